//! Pictures as SVG: [`Chart`] has points on two axes, [`Rows`] has marks in rows that share one axis.
//!
//! ```text
//!   Chart  │   ╱‾‾‾‾‾ limit          Rows  name one   ├──●─────  1.9
//!          │  ╱  ●▲                        name two   ├──────▲─  3.2
//!          └────────── x                   name three ├●───────  0.7
//! ```
//!
//! A series has a colour and a shape, so that nobody needs colours to tell series apart. A picture takes its colours from the page that
//! it is in, or has a style of its own, with `prefers-color-scheme`, where it is a file ([`Style`]).

mod chart;
mod labels;
mod palette;
mod rows;
mod scale;
mod svg;

pub use chart::{Axis, Chart, Limit, Point, Series};
pub use palette::{CHART_STYLE, SERIES, page_colours};
pub use rows::{Mark, Row, Rows};
pub(crate) use scale::days_of;
pub use scale::{Scale, Tick, figure};
pub use svg::Style;

/// One of the two pictures.
#[derive(Clone, Debug)]
pub enum Picture {
    /// Points on two axes.
    Chart(Chart),
    /// Marks in rows.
    Rows(Rows),
}

impl Picture {
    /// The picture as SVG. `id` is to be unique on the page: letters, digits and hyphens.
    pub fn svg(&self, id: &str, style: Style) -> String {
        match self {
            Self::Chart(chart) => chart.svg(id, style),
            Self::Rows(rows) => rows.svg(id, style),
        }
    }

    /// Its title.
    pub fn title(&self) -> &str {
        match self {
            Self::Chart(chart) => &chart.title,
            Self::Rows(rows) => &rows.title,
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
