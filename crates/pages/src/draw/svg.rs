//! The elements of pictures.

use super::labels::{Anchor, width_of};
use super::palette::{SERIES, style_of_files};
use crate::escaped;

/// Where a picture gets its colours from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// From the page that it is in: [`CHART_STYLE`](super::CHART_STYLE) and [`page_colours`](super::page_colours).
    OfPage,
    /// It is a file, and has its own.
    OfFile,
}

/// The width of all pictures.
pub(super) const WIDTH: f64 = 960.0;

/// The size of names at marks.
pub(super) const SMALL: f64 = 10.5;
/// The size of other text.
pub(super) const NORMAL: f64 = 12.0;

/// A whole picture around its elements. The description is for who does not see it.
pub(super) fn picture(id: &str, height: f64, [title, description]: [&str; 2], style: Style, elements: &str) -> String {
    let style = match style {
        Style::OfPage => String::new(),
        Style::OfFile => format!("<style>\n{}</style>\n", style_of_files()),
    };
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"chart\" viewBox=\"0 0 {WIDTH} {height:.0}\" width=\"{WIDTH}\" \
         height=\"{height:.0}\" role=\"img\" aria-labelledby=\"{id}-title {id}-desc\">\n<title id=\"{id}-title\">{}</title>\n\
         <desc id=\"{id}-desc\">{}</desc>\n{style}{elements}</svg>\n",
        escaped(title),
        escaped(description)
    )
}

pub(super) fn text(x: f64, y: f64, class: &str, anchor: Anchor, content: &str) -> String {
    let class = if class.is_empty() { String::new() } else { format!(" class=\"{class}\"") };
    let anchor = if anchor == "start" { String::new() } else { format!(" text-anchor=\"{anchor}\"") };
    format!("<text x=\"{x:.1}\" y=\"{y:.1}\"{class}{anchor}>{}</text>\n", escaped(content))
}

pub(super) fn line([x1, x2]: [f64; 2], [y1, y2]: [f64; 2], class: &str) -> String {
    format!("<line x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\" class=\"{class}\"/>\n")
}

/// Lines from point to point.
pub(super) fn lines(points: &[(f64, f64)], class: &str) -> String {
    let points: Vec<_> = points.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
    format!("<polyline points=\"{}\" class=\"{class}\"/>\n", points.join(" "))
}

/// A mark of a series, in its shape, with what a pointer on it shows. `key` is what scripts find it by.
pub(super) fn mark(x: f64, y: f64, series: usize, size: f64, class: &str, title: &str, key: &str) -> String {
    let series = series % SERIES;
    let title = if title.is_empty() { String::new() } else { format!("<title>{}</title>", escaped(title)) };
    let key = if key.is_empty() { String::new() } else { format!(" data-key=\"{}\"", escaped(key)) };
    let class = format!("mark s{series}{}{class}", if class.is_empty() { "" } else { " " });
    if series == 0 {
        return format!(
            "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{size:.1}\" class=\"{class}\"{key}>{title}</circle>\n"
        );
    }
    // Corners of the shapes, for a size of 1: of about the same area.
    let corners: &[(f64, f64)] = match series {
        1 => &[(0.0, -1.3), (1.2, 0.9), (-1.2, 0.9)],
        2 => &[(-0.95, -0.95), (0.95, -0.95), (0.95, 0.95), (-0.95, 0.95)],
        3 => &[(0.0, -1.4), (1.25, 0.0), (0.0, 1.4), (-1.25, 0.0)],
        4 => &[(0.0, 1.3), (1.2, -0.9), (-1.2, -0.9)],
        5 => &[
            (-0.4, -1.3),
            (0.4, -1.3),
            (0.4, -0.4),
            (1.3, -0.4),
            (1.3, 0.4),
            (0.4, 0.4),
            (0.4, 1.3),
            (-0.4, 1.3),
            (-0.4, 0.4),
            (-1.3, 0.4),
            (-1.3, -0.4),
            (-0.4, -0.4),
        ],
        _ => &[(-1.3, 0.0), (-0.65, -1.15), (0.65, -1.15), (1.3, 0.0), (0.65, 1.15), (-0.65, 1.15)],
    };
    let points: Vec<_> =
        corners.iter().map(|(across, down)| format!("{:.1},{:.1}", x + across * size, y + down * size)).collect();
    format!("<polygon points=\"{}\" class=\"{class}\"{key}>{title}</polygon>\n", points.join(" "))
}

/// The names of series with their marks, from `x` on, in as many lines as it takes. The height that it has.
pub(super) fn legend(x: f64, top: f64, names: &[(usize, &str)]) -> (String, f64) {
    let (mut svg, mut left, mut y) = (String::new(), x, top);
    for &(series, name) in names {
        let width = width_of(name, NORMAL) + 34.0;
        if left + width > WIDTH - 16.0 && left > x {
            (left, y) = (x, y + 18.0);
        }
        svg += &mark(left + 6.0, y - 4.0, series, 4.5, "", "", "");
        svg += &text(left + 17.0, y, "", "start", name);
        left += width;
    }
    (svg, if names.is_empty() { 0.0 } else { y - top + 22.0 })
}

/// Text in lines that are no wider than this.
pub(super) fn wrapped(content: &str, size: f64, width: f64) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in content.split_whitespace() {
        match lines.last_mut() {
            Some(line) if width_of(line, size) + width_of(word, size) + size * 0.4 <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

/// Text that is no wider than this: its end is left out for `…`.
pub(super) fn shortened(content: &str, size: f64, width: f64) -> String {
    if width_of(content, size) <= width {
        return content.to_owned();
    }
    let mut short: Vec<char> = content.chars().collect();
    while !short.is_empty() && width_of(&short.iter().collect::<String>(), size) > width - size {
        short.pop();
    }
    short.into_iter().collect::<String>().trim_end().to_owned() + "…"
}
