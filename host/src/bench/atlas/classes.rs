//! The classes of the atlas: what a program multiplies, by kind. [`rules`] and [`places`] have the shapes of each.

use super::class::Class;
use super::{places, rules};
use crate::Error;

/// All classes.
pub static CLASSES: [Class; 12] = [
    rules::FEW_ROWS,
    rules::FEW_COLUMNS,
    rules::SQUARES,
    rules::BATCHES,
    rules::ATTENTION,
    rules::BATCHED_MATVEC,
    rules::TALL_NARROW,
    rules::LONG_SUMS,
    rules::OUTER,
    rules::LAYOUTS,
    places::UNALIGNED,
    places::STRIDED,
];

impl Class {
    /// The class of this name.
    ///
    /// # Errors
    /// [`UnknownName`](tilewright::Error::UnknownName).
    pub fn find(name: &str) -> Result<&'static Self, Error> {
        let found = CLASSES.iter().find(|class| class.name == name);
        found.ok_or_else(|| Error::unknown_name("class", name, CLASSES.iter().map(|class| class.name).collect()))
    }
}
