//! Marks in rows that share one axis: a strip for each class of shapes, a bar for each kernel.

use super::labels::width_of;
use super::scale::Scale;
use super::svg::{NORMAL, SMALL, Style, WIDTH, legend, line, mark, picture, shortened, text, wrapped};

/// A mark.
#[derive(Clone, Debug, Default)]
pub struct Mark {
    /// Where it is on the axis.
    pub value: f64,
    /// The number of its colour and shape.
    pub look: usize,
    /// From where to where repeated measurements spread.
    pub spread: Option<[f64; 2]>,
    /// What a pointer on it shows.
    pub title: String,
    /// What scripts find it by: the kernel.
    pub key: String,
}

/// A row.
#[derive(Clone, Debug, Default)]
pub struct Row {
    /// Its name, at the left.
    pub name: String,
    /// Its marks.
    pub marks: Vec<Mark>,
    /// Where a stroke across the row is: a mean, or a bound.
    pub stroke: Option<f64>,
    /// What stands at the right, in two lines.
    pub figures: [String; 2],
    /// A heading above it, for it and those below.
    pub heading: String,
}

/// Marks in rows.
#[derive(Clone, Debug)]
pub struct Rows {
    /// What it shows.
    pub title: String,
    /// The same in a sentence or two for who does not see it.
    pub description: String,
    /// A line under the title.
    pub note: String,
    /// What the axis is of.
    pub axis: String,
    /// The axis.
    pub scale: Scale,
    /// Whether bars go from the left end to the first mark.
    pub bars: bool,
    /// Whether many marks of a row are spread over its height, so that none hides another.
    pub spread: bool,
    /// A number whose line is drawn through all rows, such as the ratio 1.
    pub line: Option<f64>,
    /// The series in the legend: looks and names.
    pub legend: Vec<(usize, String)>,
    /// The rows.
    pub rows: Vec<Row>,
}

const MARK: f64 = 4.0;
const BOTTOM: f64 = 46.0;
const HEADING: f64 = 26.0;

impl Rows {
    /// Room for names at the left, and for figures at the right.
    fn sides(&self) -> [f64; 2] {
        let widest = |texts: &mut dyn Iterator<Item = f64>| texts.fold(0.0, f64::max);
        let names = widest(&mut self.rows.iter().map(|row| width_of(&row.name, NORMAL)));
        let figures = widest(
            &mut self.rows.iter().map(|row| width_of(&row.figures[0], NORMAL).max(width_of(&row.figures[1], SMALL))),
        );
        [(names + 28.0).clamp(80.0, 360.0), if figures == 0.0 { 30.0 } else { (figures + 30.0).clamp(40.0, 240.0) }]
    }

    fn height_of(&self, row: &Row) -> f64 {
        match (self.spread, row.figures[1].is_empty()) {
            (true, _) => 46.0,
            (false, true) => 21.0,
            (false, false) => 36.0,
        }
    }

    pub(super) fn svg(&self, id: &str, style: Style) -> String {
        let [left, right] = self.sides();
        let ends = [left, WIDTH - right];
        let place = |value: f64| Some(ends[0] + self.scale.place(value)? * (ends[1] - ends[0]));

        let mut svg = text(16.0, 24.0, "title", "start", &self.title);
        let mut top = 42.0;
        for line in wrapped(&self.note, NORMAL, WIDTH - 32.0) {
            svg += &text(16.0, top, "quiet", "start", &line);
            top += 16.0;
        }
        let names: Vec<_> = self.legend.iter().map(|(look, name)| (*look, name.as_str())).collect();
        let (shown, height) = legend(16.0, top + 6.0, &names);
        svg += &shown;
        let top = top + height + 4.0;
        let heights =
            self.rows.iter().map(|row| self.height_of(row) + if row.heading.is_empty() { 0.0 } else { HEADING });
        let bottom = top + heights.sum::<f64>().max(20.0);

        for tick in self.scale.ticks(7) {
            let Some(x) = place(tick.value) else { continue };
            svg += &line([x, x], [top, bottom], "grid");
            svg += &text(x, bottom + 17.0, "quiet", "middle", &tick.label);
        }
        svg += &line(ends, [bottom, bottom], "axis");
        svg += &text((ends[0] + ends[1]) / 2.0, bottom + 36.0, "", "middle", &self.axis);
        if let Some(x) = self.line.and_then(place) {
            svg += &line([x, x], [top, bottom], "one");
        }
        let mut y = top;
        for row in &self.rows {
            if !row.heading.is_empty() {
                y += HEADING;
                svg += &text(16.0, y - 8.0, "quiet", "start", &row.heading);
            }
            let height = self.height_of(row);
            svg += &self.row(row, y, height, ends, &place);
            y += height;
        }
        picture(id, bottom + BOTTOM, [&self.title, &self.description], style, &svg)
    }

    fn row(&self, row: &Row, top: f64, height: f64, ends: [f64; 2], place: &dyn Fn(f64) -> Option<f64>) -> String {
        let middle = top + height / 2.0;
        let mut svg = String::new();
        if self.spread {
            svg += &line([16.0, WIDTH - 16.0], [top, top], "grid");
        }
        svg += &text(16.0, middle + 4.0, "", "start", &shortened(&row.name, NORMAL, ends[0] - 24.0));
        if let (true, Some(x)) = (self.bars, row.marks.first().and_then(|mark| place(mark.value))) {
            let (left, width) = (ends[0], (x - ends[0]).max(0.0));
            let (top, height) = (middle - 6.0, 12.0);
            svg += &format!(
                "<rect x=\"{left:.1}\" y=\"{top:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" class=\"bar\"/>\n"
            );
        }
        let many = if self.spread { "many" } else { "" };
        let mut marks = String::new();
        for (number, one) in row.marks.iter().enumerate() {
            let Some(x) = place(one.value) else { continue };
            // Multiples of the golden ratio fill the height evenly, however many there are.
            let across = if self.spread { ((number as f64 * 0.618_034).fract() - 0.5) * (height - 18.0) } else { 0.0 };
            if let Some([low, high]) = one.spread.map(|ends| ends.map(place)) {
                let (low, high) = (low.unwrap_or(x), high.unwrap_or(x));
                if high - low > 2.0 * MARK {
                    marks += &line(
                        [low, high],
                        [middle + across; 2],
                        &format!("spread l{}", one.look % super::palette::SERIES),
                    );
                }
            }
            let size = if self.spread { 3.0 } else { MARK };
            marks += &mark(x, middle + across, one.look, size, many, &one.title, &one.key);
        }
        svg += &marks;
        if let Some(x) = row.stroke.and_then(place) {
            let half = if self.spread { height / 2.0 - 9.0 } else { height / 2.0 - 3.0 };
            svg += &line([x, x], [middle - half, middle + half], "mean");
        }
        let [first, second] = &row.figures;
        let x = ends[1] + 16.0;
        if second.is_empty() {
            return svg + &text(x, middle + 4.0, "", "start", first);
        }
        svg + &text(x, middle - 3.0, "", "start", first) + &text(x, middle + 12.0, "small quiet", "start", second)
    }
}
