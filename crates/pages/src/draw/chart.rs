//! Points on two axes.

use super::labels::{Area, Labels, spread, width_of};
use super::scale::Scale;
use super::svg::{NORMAL, SMALL, Style, WIDTH, legend, line, lines, mark, picture, text, wrapped};

/// An axis.
#[derive(Clone, Debug)]
pub struct Axis {
    /// What it is of, with its unit.
    pub name: String,
    /// Where numbers are.
    pub scale: Scale,
}

/// A point.
#[derive(Clone, Debug, Default)]
pub struct Point {
    /// Across.
    pub x: f64,
    /// Up.
    pub y: f64,
    /// From where to where repeated measurements spread, upwards.
    pub spread: Option<[f64; 2]>,
    /// The name beside it, where there is room.
    pub label: String,
    /// What a pointer on it shows.
    pub title: String,
    /// What scripts find it by: the kernel.
    pub key: String,
}

/// Points that belong together.
#[derive(Clone, Debug, Default)]
pub struct Series {
    /// What the legend says.
    pub name: String,
    /// The number of its colour and shape.
    pub look: usize,
    /// Whether lines go from point to point.
    pub joined: bool,
    /// Its points.
    pub points: Vec<Point>,
}

/// What no point can exceed: lines from corner to corner, with a name at the right end.
#[derive(Clone, Debug)]
pub struct Limit {
    /// Its name.
    pub name: String,
    /// Its corners.
    pub corners: Vec<(f64, f64)>,
}

/// Points on two axes.
#[derive(Clone, Debug)]
pub struct Chart {
    /// What it shows.
    pub title: String,
    /// The same in a sentence or two for who does not see it.
    pub description: String,
    /// A line under the title.
    pub note: String,
    /// The axis at the bottom.
    pub x: Axis,
    /// The axis at the left.
    pub y: Axis,
    /// The points.
    pub series: Vec<Series>,
    /// The limits.
    pub limits: Vec<Limit>,
    /// The height of the part with points.
    pub height: f64,
}

/// What is left, right and below of the part with points.
const LEFT: f64 = 70.0;
const RIGHT: f64 = 150.0;
const BOTTOM: f64 = 46.0;
const MARK: f64 = 4.5;

/// The part with points.
struct Frame<'a> {
    chart: &'a Chart,
    area: Area,
}

impl Frame<'_> {
    fn x(&self, value: f64) -> Option<f64> {
        Some(self.area.left + self.chart.x.scale.place(value)? * (self.area.right - self.area.left))
    }

    fn y(&self, value: f64) -> Option<f64> {
        Some(self.area.bottom - self.chart.y.scale.place(value)? * (self.area.bottom - self.area.top))
    }

    fn place(&self, x: f64, y: f64) -> Option<(f64, f64)> {
        Some((self.x(x)?, self.y(y)?))
    }

    fn axes(&self) -> String {
        let Area { left, top, right, bottom } = self.area;
        let mut svg = String::new();
        for tick in self.chart.x.scale.ticks(8) {
            let Some(x) = self.x(tick.value) else { continue };
            svg += &line([x, x], [top, bottom], "grid");
            svg += &text(x, bottom + 17.0, "quiet", "middle", &tick.label);
        }
        for tick in self.chart.y.scale.ticks(7) {
            let Some(y) = self.y(tick.value) else { continue };
            svg += &line([left, right], [y, y], "grid");
            svg += &text(left - 8.0, y + 4.0, "quiet", "end", &tick.label);
        }
        svg += &line([left, right], [bottom, bottom], "axis");
        svg += &line([left, left], [top, bottom], "axis");
        svg += &text((left + right) / 2.0, bottom + 36.0, "", "middle", &self.chart.x.name);
        svg + &text(16.0, top - 14.0, "", "start", &self.chart.y.name)
    }

    /// Limits with names beside the right end, apart from one another.
    fn limits(&self, labels: &mut Labels) -> String {
        let mut svg = String::new();
        let ends: Vec<(f64, &str)> = (self.chart.limits.iter())
            .filter_map(|limit| {
                let corners: Vec<_> = limit.corners.iter().filter_map(|&(x, y)| self.place(x, y)).collect();
                svg += &lines(&corners, "limit");
                labels.avoid(&corners);
                Some((corners.last()?.1, limit.name.as_str()))
            })
            .filter(|(_, name)| !name.is_empty())
            .collect();
        let wanted: Vec<f64> = ends.iter().map(|(y, _)| *y).collect();
        let places = spread(&wanted, 14.0, [self.area.top, self.area.bottom - 4.0]);
        for ((y, name), place) in ends.into_iter().zip(places) {
            let right = self.area.right;
            svg += &lines(&[(right, y), (right + 6.0, place), (right + 10.0, place)], "lead");
            svg += &text(right + 13.0, place + 4.0, "small", "start", name);
        }
        svg
    }

    fn points(&self, mut labels: Labels) -> String {
        let mut svg = String::new();
        let mut named = Vec::new();
        for series in &self.chart.series {
            let look = series.look % super::palette::SERIES;
            let places: Vec<_> =
                series.points.iter().filter_map(|point| Some((point, self.place(point.x, point.y)?))).collect();
            if series.joined {
                let corners: Vec<_> = places.iter().map(|(_, place)| *place).collect();
                svg += &lines(&corners, &format!("joined l{look}"));
                labels.avoid(&corners);
            }
            for (point, (x, y)) in places {
                if let Some([low, high]) = point.spread.map(|ends| ends.map(|end| self.y(end))) {
                    let (low, high) = (low.unwrap_or(y), high.unwrap_or(y));
                    // Narrower than its mark, nobody sees it.
                    if low - high > 2.0 * MARK {
                        let class = format!("spread l{look}");
                        svg += &line([x, x], [low, high], &class);
                        svg += &line([x - 4.0, x + 4.0], [low, low], &class);
                        svg += &line([x - 4.0, x + 4.0], [high, high], &class);
                    }
                }
                svg += &mark(x, y, look, MARK, "", &point.title, &point.key);
                labels.take(Area::around(x, y, MARK + 1.0));
                if !point.label.is_empty() {
                    named.push((x, y, point.label.as_str()));
                }
            }
        }
        // From the top down: what is best has its name first.
        named.sort_by(|one, other| one.1.total_cmp(&other.1));
        for (x, y, label) in named {
            if let Some((x, y, anchor)) = labels.beside(x, y, label, SMALL) {
                svg += &text(x, y, "small name", anchor, label);
            }
        }
        svg
    }
}

impl Chart {
    pub(super) fn svg(&self, id: &str, style: Style) -> String {
        let mut head = text(16.0, 24.0, "title", "start", &self.title);
        let mut top = 42.0;
        for line in wrapped(&self.note, NORMAL, WIDTH - 32.0) {
            head += &text(16.0, top, "quiet", "start", &line);
            top += 16.0;
        }
        let names: Vec<_> = (self.series.iter())
            .filter(|series| !series.name.is_empty() && !series.points.is_empty())
            .map(|series| (series.look, series.name.as_str()))
            .collect();
        let (shown, height) = legend(16.0, top + 6.0, &names);
        let top = top + height + 26.0;
        let right = if self.limits.is_empty() {
            WIDTH - 40.0
        } else {
            let widest = self.limits.iter().map(|limit| width_of(&limit.name, SMALL)).fold(0.0, f64::max);
            WIDTH - (widest + 20.0).clamp(40.0, RIGHT + 60.0)
        };
        let frame = Frame { chart: self, area: Area { left: LEFT, top, right, bottom: top + self.height } };
        let mut labels = Labels::new(frame.area);
        let limits = frame.limits(&mut labels);
        let elements = head + &shown + &frame.axes() + &limits + &frame.points(labels);
        picture(id, top + self.height + BOTTOM, [&self.title, &self.description], style, &elements)
    }
}
