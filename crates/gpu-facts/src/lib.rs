//! What a kernel needs of a GPU ([`KernelFacts`]), what GPUs offer ([`Limits`]), and whether the one fits the other
//! ([`Limits::check`]); how many blocks of it a multiprocessor runs at a time ([`Occupancy`]).
//!
//! ```text
//!  #[kernel] ──▶ KernelFacts ─┐
//!                             ├──▶ Limits::check ──▶ Ok, or Excess: how much is needed and how much there is
//!  driver, or Limits::of ─────┘
//! ```
//!
//! Everybody who has to know asks here: the planner before it takes a kernel, the launch before it calls the driver, the
//! executor before it runs a block, the builder before it embeds PTX, and the driver that the tests pretend with. Where
//! there is a driver, its figures count; where there is none, those of the table.

#![no_std]

mod kernel;
mod limits;
mod occupancy;
#[cfg(not(target_arch = "nvptx64"))]
pub mod ptx_facts;

pub use kernel::{Excess, KernelFacts, KernelSource};
pub use limits::{ComputeCapability, Limits};
pub use occupancy::{BlockNeeds, BlocksBy, Occupancy};
