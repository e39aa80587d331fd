//! The functions of `cuda_std::math` against functions in f64.
//!
//! Those of one argument on some numbers of each exponent, and, where there are minutes for it, on all 2³²:
//!
//! ```sh
//! RUSTFLAGS="-C target-cpu=native" cargo test --release -p tilewright-cuda-std --test math -- --ignored --nocapture --test-threads 1
//! ```
//!
//! for one function with `every_number::sin` at the end. Without the processor's own fused operation it takes several times as long.

mod fast;
mod one_argument;
mod reference;
mod special;
mod special_pairs;
mod two_arguments;
