//! Tests of the atlas: none needs a GPU.

mod measuring;
mod pictures;
mod reports;
mod shapes;

use super::super::roofline::{Ceiling, Roofline};
use super::Class;

/// A report with ratios and without.
pub(crate) fn example() -> super::report::AtlasReport {
    reports::report(vec![
        reports::row("one", 8, Some(0.5)),
        reports::row("two", 8, None),
        reports::row("two", 16, Some(2.0)),
        reports::failed("three", 8),
    ])
}

fn class(name: &str) -> &'static Class {
    Class::find(name).unwrap()
}

fn roofline() -> Roofline {
    let ceiling = |per_second| Ceiling { per_second, by: "a probe".to_owned() };
    Roofline {
        read: ceiling(4.0),
        write: ceiling(2.0),
        copy: ceiling(3.0),
        fma: ceiling(50.0),
        tf32: Some(ceiling(400.0)),
        fp64: Some(ceiling(50.0)),
        bf16: Some(ceiling(800.0)),
    }
}
