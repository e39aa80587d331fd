//! The ratios of all shapes in a picture: a strip of points for each class.
//!
//! ```text
//!              ¼      ½      1      2      4
//!   few-rows   │      │    · ┃ ·· ···  ·   │     48 shapes, mean 1.62
//!   squares    │      │      ┃    ·  · ····│     79 shapes, mean 3.11
//! ```

use super::report::{AtlasReport, ClassSummary, Row, SLOWER};

/// The width of the whole, of the names at the left and of the numbers at the right.
const WIDTH: f64 = 960.0;
const LEFT: f64 = 130.0;
const RIGHT: f64 = 190.0;

/// What is above the strips, and below them.
const TOP: f64 = 62.0;
const BOTTOM: f64 = 34.0;

/// The height of a strip, and of its part that points are spread over.
const STRIP: f64 = 46.0;
const SPREAD: f64 = 28.0;

/// The axis goes at least from one of these powers of two to the other, and at most as far as the other two; points beyond are drawn at
/// its ends.
const AT_LEAST: [i32; 2] = [-1, 2];
const AT_MOST: [i32; 2] = [-4, 7];

/// Colours for light and dark: of text, of lines, of faster and of slower points. Both pairs differ in brightness, too.
const STYLE: &str = "\
svg { background: #ffffff; font: 12px system-ui, sans-serif; }
text { fill: #1f2328; }
.quiet { fill: #59636e; }
.line { stroke: #d1d9e0; stroke-width: 1; }
.one { stroke: #59636e; stroke-width: 1.5; }
.mean { stroke: #1f2328; stroke-width: 2; }
.faster { fill: #0969da; fill-opacity: 0.65; }
.slower { fill: #d1480f; fill-opacity: 0.9; }
@media (prefers-color-scheme: dark) {
  svg { background: #0d1117; }
  text { fill: #e6edf3; }
  .quiet { fill: #9198a1; }
  .line { stroke: #30363d; }
  .one { stroke: #9198a1; }
  .mean { stroke: #e6edf3; }
  .faster { fill: #58a6ff; }
  .slower { fill: #ff9b57; }
}
";

/// The axis: logarithms of ratios to places.
struct Axis {
    /// The powers of two at its ends.
    ends: [i32; 2],
}

impl Axis {
    fn of(rows: &[Row]) -> Self {
        let powers = || rows.iter().filter_map(Row::ratio).map(f64::log2);
        let least = powers().fold(f64::from(AT_LEAST[0]), f64::min).floor() as i32;
        let most = powers().fold(f64::from(AT_LEAST[1]), f64::max).ceil() as i32;
        Self { ends: [least.max(AT_MOST[0]), most.min(AT_MOST[1])] }
    }

    fn place(&self, ratio: f64) -> f64 {
        let [first, last] = self.ends.map(f64::from);
        LEFT + (ratio.log2().clamp(first, last) - first) / (last - first) * (WIDTH - LEFT - RIGHT)
    }

    /// The ratios that have a line, with their names.
    fn lines(&self) -> impl Iterator<Item = (f64, String)> {
        let [first, last] = self.ends;
        (first..=last).map(|power| {
            let name = if power < 0 { format!("1/{}", 1 << -power) } else { (1 << power).to_string() };
            (f64::from(power).exp2(), name)
        })
    }
}

impl AtlasReport {
    /// The picture as SVG.
    pub fn svg(&self) -> String {
        let axis = Axis::of(&self.results);
        let classes = &self.summary.classes;
        let height = TOP + STRIP * classes.len() as f64 + BOTTOM;
        let bottom = height - BOTTOM;
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" height=\"{height}\" \
             role=\"img\">\n<title>Times of cuBLAS divided by ours, by class of shapes</title>\n<style>\n{STYLE}</style>\n"
        );
        let commit = self.commit.as_ref().map(|commit| format!(", commit {commit}")).unwrap_or_default();
        svg += &text(16.0, 22.0, "", "Times of cuBLAS divided by ours: to the right of 1, ours is faster");
        let mean = self.summary.mean.map(|mean| format!("; mean of the classes' means {mean:.2}")).unwrap_or_default();
        let about = format!("{}, {}, seed {}{commit}, {}{mean}", self.device, self.precision, self.seed, self.date);
        svg += &text(16.0, 40.0, "quiet", &about);
        for (ratio, name) in axis.lines() {
            let (x, class) = (axis.place(ratio), if ratio == 1.0 { "one" } else { "line" });
            svg += &line([x, x], [TOP, bottom], class);
            svg += &format!(
                "<text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\" class=\"quiet\">{name}</text>\n",
                bottom + 18.0
            );
        }
        for (number, class) in classes.iter().enumerate() {
            svg += &self.strip(&axis, class, TOP + STRIP * number as f64);
        }
        svg + "</svg>\n"
    }

    /// The points of a class.
    fn strip(&self, axis: &Axis, class: &ClassSummary, top: f64) -> String {
        let middle = top + STRIP / 2.0;
        let mut svg = line([16.0, WIDTH - 16.0], [top, top], "line");
        svg += &text(16.0, middle + 4.0, "", &class.class);
        let points = self.results.iter().filter(|row| row.class == class.class);
        let points = points.filter_map(|row| Some((row, row.ratio()?)));
        for (number, (row, ratio)) in points.enumerate() {
            // Multiples of the golden ratio fill the strip evenly, however many there are.
            let height = (number as f64 * 0.618_034).fract() - 0.5;
            let kind = if ratio < 1.0 { "slower" } else { "faster" };
            svg += &format!(
                "<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"3\" class=\"{kind}\"><title>{}: {ratio:.2}</title></circle>\n",
                axis.place(ratio),
                middle + height * SPREAD,
                escaped(&row.id)
            );
        }
        let numbers = match class.mean {
            Some(mean) => {
                let x = axis.place(mean);
                svg += &line([x, x], [middle - SPREAD / 2.0, middle + SPREAD / 2.0], "mean");
                format!("{} shapes, mean {mean:.2}", class.compared)
            }
            None => "no ratios".to_owned(),
        };
        let right = WIDTH - RIGHT + 16.0;
        svg += &text(right, middle - 3.0, "", &numbers);
        let least = class.least.as_ref().map(|(ratio, _)| format!("least {ratio:.2}, {} below {SLOWER}", class.slower));
        svg + &text(right, middle + 13.0, "quiet", &least.unwrap_or_default())
    }
}

fn text(x: f64, y: f64, class: &str, text: &str) -> String {
    format!("<text x=\"{x:.1}\" y=\"{y:.1}\" class=\"{class}\">{}</text>\n", escaped(text))
}

fn line([x1, x2]: [f64; 2], [y1, y2]: [f64; 2], class: &str) -> String {
    format!("<line x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\" class=\"{class}\"/>\n")
}

/// Text as XML has it.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
