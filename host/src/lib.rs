//! The program `tilewright`: runs, checks, times, tunes and sanitizes the kernels of the library of that name.
//!
//! # Where things are
//!
//! | module | what |
//! |---|---|
//! | [`operations`] | what the kernels are for, one after the other: what most commands go through |
//! | [`problem`], [`input`] | products by name, and random operands for them |
//! | [`check`] | whether a result is right |
//! | [`mod@measure`], [`report`] | how long it took; tables and JSON |
//! | [`tune`], [`tables`] | which kernel is the fastest for which product, and what the planner's model has to know of a GPU |
//! | [`mod@bench`], [`baseline`] | kernels beside cuBLAS, and shares of what the GPU can do |
//! | [`html`] | files of results as a page, and pictures |
//! | [`files`] | files that are whole, or as they were |
//! | [`planted`], [`sanitize`] | faults, and tools that look for such |
//! | [`mod@run`] | the main job: problems, and the operations after them |
//! | [`program`] | the command line, which does all of it: [`main`] |

pub mod baseline;
pub mod bench;
pub mod check;
mod error;
pub mod files;
pub mod html;
pub mod input;
pub mod measure;
pub mod operations;
pub mod planted;
pub mod problem;
pub mod program;
mod progress;
mod provenance;
pub mod report;
pub mod run;
pub mod sanitize;
pub mod tables;
pub mod tune;

pub use error::Error;
pub use problem::Product;
pub use program::main;
