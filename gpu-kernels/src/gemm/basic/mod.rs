//! Basic kernels, from the textbook's definition of the product to tiles in shared memory, in the order in which to read them. Each
//! stands for one idea:
//!
//! | module | idea | loads from global memory for each multiplication |
//! |---|---|---|
//! | [`naive_1d`] | one thread for each element of C, numbered along a line | 2 |
//! | [`naive_2d`] | the grid has the shape of C | 2 |
//! | [`tiled`] | a block shares what its threads would all load | 2 / 16, or 2 / 32 |
//!
//! What comes next is [`register_tiled`](super::register_tiled).

pub mod naive_1d;
pub mod naive_2d;
pub mod tiled;
