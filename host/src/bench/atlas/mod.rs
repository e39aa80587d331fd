//! The atlas: products of every kind that programs compute, ours beside cuBLAS. `tilewright bench --suite atlas`.
//!
//! ```text
//!  classes   classes, rules, places   kinds of shapes: those of the atlas itself, and others by a seed
//!     │
//!  shape     shape                    extents, number of products, strides and offsets of A, B and C
//!     │
//!  list      list                     all of it as text or JSON: for this, no GPU is needed
//! ```
//!
//! A benchmark of a few shapes shows how fast these are. Kernels and their choice are made by people who know such a list, so it says
//! little of any other shape. The atlas has some hundreds, and by `--seed` as many more as anyone likes that nobody has looked at.

mod args;
mod classes;
mod list;
mod places;
mod rules;
mod shape;
#[cfg(test)]
mod tests;

pub use args::AtlasOptions;
pub(super) use args::{AtlasFlags, Common};
pub use classes::{CLASSES, Class, LIMIT_BYTES};
pub use list::ShapeList;
pub use shape::{Operand, Shape};

use crate::Error;
use crate::files::write_json;

/// The name of the suite.
pub const SUITE: &str = "atlas";

/// A class with those of its shapes that are asked for.
#[derive(Clone)]
pub struct Chosen {
    /// The class.
    pub class: &'static Class,
    /// The shapes.
    pub shapes: Vec<Shape>,
}

/// Lists the shapes that `options` ask for, and gives `print` what there is to read, as it comes.
///
/// # Errors
/// [`Error::File`]; [`Error::Usage`] without `--list`.
pub fn run(options: &AtlasOptions, mut print: impl FnMut(&str)) -> Result<(), Error> {
    if !options.list {
        return Err(Error::Usage("the atlas can be listed, and not yet measured: say --list".to_owned()));
    }
    let chosen = options.chosen();
    let list = ShapeList::new(options.seed, options.sample, &chosen);
    match &options.json {
        Some(path) => write_json(path, &list),
        None => {
            print(&list.text());
            Ok(())
        }
    }
}
