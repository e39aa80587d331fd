//! Kernels after well-known patterns, one in each module, and the operation beside it.
//!
//! Some have blocks that tell one another what they have done:
//!
//! | module | pattern | what orders the blocks |
//! |---|---|---|
//! | [`histogram`] | many threads add to few elements: first in shared memory, then in global memory | nothing has to |
//! | [`relax`] | all blocks of a cooperative launch meet, again and again | a counter that is acquired and released |
//! | [`sum`] | the block that is done last adds up what all have found | a counter that each acquires and releases |
//! | [`scan`] | a block waits for those before it (decoupled look-back) | what is waited for is one word, and carries the value itself |
//! | [`stream_k`] | blocks share the k of a product's last tiles, and hand partial sums over | a flag that one releases and the other acquires |
//! | [`radix_sort`] | the same for each of 256 digits, and a launch for each pass | the same |
//!
//! In the others blocks have nothing to do with one another:
//!
//! | module | pattern |
//! |---|---|
//! | [`attention`] | scores of tile after tile of keys stay in registers, and maxima are corrected as they come |
//! | [`conv2d`] | a product on tensor cores with a matrix that is never built: copies gather it |
//! | [`layer_norm`] | mean and variance of a row that is kept in registers |
//! | [`layer_norm_backward`] | sums of rows, and sums of columns in the same order every time, without atomic additions |
//! | [`n_body`] | what all threads need is read from shared memory, once for several results |
//! | [`philox`] | numbers that are a function of their position: no thread has a state |
//! | [`softmax`] | a row is kept in registers, or in shared memory, by as many threads as it needs |
//! | [`top_k`] | a bound that is cheap to find leaves few candidates for what is dear |
//! | [`transpose`] | a tile goes through shared memory, so that what is read and what is written lies side by side |

#![cfg_attr(target_arch = "nvptx64", no_std)]
#![allow(
    clippy::needless_range_loop,
    reason = "an array stays in registers only if it is indexed by constants, which iterators over it hide"
)]

pub mod attention;
pub mod conv2d;
mod counters;
pub mod histogram;
#[cfg(not(target_arch = "nvptx64"))]
mod hopper;
pub mod layer_norm;
pub mod layer_norm_backward;
pub mod n_body;
pub mod philox;
mod quad;
pub mod radix_sort;
pub mod relax;
mod row;
pub mod scan;
pub mod softmax;
pub mod stream_k;
pub mod sum;
pub mod top_k;
pub mod transpose;
mod words;
mod zero;

/// All of them.
#[cfg(not(target_arch = "nvptx64"))]
pub const OPERATIONS: &[&dyn testkit::Operation] = &[
    &histogram::Histogram,
    &relax::Relax,
    &scan::Scan,
    &sum::Sum,
    &transpose::Transpose,
    &softmax::Softmax::NORMAL,
    &softmax::Softmax::SPECIAL,
    &softmax::Softmax::WIDE,
    &softmax::Softmax::HUGE,
    &layer_norm::LayerNorm::NORMAL,
    &layer_norm::LayerNorm::OFFSET,
    &layer_norm::LayerNorm::WIDE,
    &layer_norm_backward::LayerNormBackward::NORMAL,
    &layer_norm_backward::LayerNormBackward::WIDE,
    &n_body::NBody::NORMAL,
    &n_body::NBody::NEAR,
    &top_k::TopK::NORMAL,
    &top_k::TopK::SPECIAL,
    &top_k::TopK::TIES,
    &radix_sort::RadixSort::ANY,
    &radix_sort::RadixSort::TIES,
    &philox::Philox::WORDS,
    &philox::Philox::UNIFORM,
    &philox::Philox::NORMAL,
    &conv2d::Conv2d::FP32,
    &conv2d::Conv2d::WIDE,
    &conv2d::Conv2d::BF16,
    &conv2d::Conv2d::BF16_MMA,
    &stream_k::StreamK::NORMAL,
    &stream_k::StreamK::WIDE,
    &attention::Attention::FP32,
    &attention::Attention::WIDE,
    &attention::Attention::EQUAL,
    &attention::Attention::BF16,
    &attention::Attention::BF16_MMA,
    &attention::Attention::BF16_WIDE,
];
