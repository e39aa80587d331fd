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
//! | [`tune`], [`tables`] | which kernel is the fastest for which product |
//! | [`mod@bench`], [`baseline`] | kernels beside cuBLAS, and shares of what the GPU can do |
//! | [`files`] | files that are whole, or as they were |
//! | [`planted`], [`sanitize`], [`child`] | faults, tools that look for such, and processes that end in any case |
//! | [`mod@run`] | all of it in turn: what the command line does |

pub mod baseline;
pub mod bench;
pub mod check;
pub mod child;
mod error;
pub mod files;
pub mod input;
pub mod measure;
pub mod operations;
pub mod planted;
pub mod problem;
pub mod progress;
mod provenance;
pub mod report;
pub mod run;
pub mod sanitize;
pub mod tables;
pub mod tune;

pub use error::Error;
pub use problem::Product;
