//! Random operands: the same for a seed, whatever the number of threads.

use std::fmt;
use std::str::FromStr;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use crate::progress::Progress;

/// How the elements of operands are distributed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Distribution {
    /// Uniform in [−1, 1]: sums cancel, as they do in practice.
    #[default]
    #[serde(rename = "uniform-11")]
    Uniform11,
    /// Uniform in [0, 1]: nothing cancels, which flatters low precision.
    #[serde(rename = "uniform-01")]
    Uniform01,
}

impl Distribution {
    fn range(self) -> (f32, f32) {
        match self {
            Self::Uniform11 => (-1.0, 1.0),
            Self::Uniform01 => (0.0, 1.0),
        }
    }
}

impl fmt::Display for Distribution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (low, high) = self.range();
        write!(f, "uniform in [{low}, {high}]")
    }
}

impl FromStr for Distribution {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "uniform-11" => Ok(Self::Uniform11),
            "uniform-01" => Ok(Self::Uniform01),
            _ => Err("expected `uniform-11` for [-1, 1] or `uniform-01` for [0, 1]".to_owned()),
        }
    }
}

/// Elements that one generator makes, in a row.
const CHUNK: usize = 1 << 16;

/// `len` random numbers. Operands of one product take different values of `operand`.
///
/// Every chunk of 65,536 numbers has a generator of its own, with a key made of the seed, the operand and the chunk's
/// number; so the result depends on these and on nothing else. (Another version of `rand` may give other numbers.)
pub fn random(len: usize, distribution: Distribution, seed: u64, operand: u64) -> Vec<f32> {
    let (low, high) = distribution.range();
    // Zeroed memory is mapped when it is first written, which is then done by all threads.
    let mut numbers = vec![0.0; len];
    let progress = Progress::new("making random inputs", len.div_ceil(CHUNK));
    numbers.par_chunks_mut(CHUNK).enumerate().for_each(|(chunk, numbers)| {
        let mut key = [0; 32];
        for (part, number) in key.chunks_exact_mut(8).zip([seed, operand, chunk as u64]) {
            part.copy_from_slice(&number.to_le_bytes());
        }
        let mut generator = StdRng::from_seed(key);
        numbers.fill_with(|| generator.random_range(low..=high));
        progress.step();
    });
    numbers
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_threads(threads: usize, seed: u64, operand: u64) -> Vec<f32> {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| random(3 * CHUNK + 17, Distribution::Uniform11, seed, operand))
    }

    #[test]
    fn a_seed_gives_the_same_numbers_on_any_number_of_threads() {
        let one = with_threads(1, 42, 0);
        assert_eq!(one, with_threads(3, 42, 0));
        assert_ne!(one, with_threads(1, 43, 0));
        assert_ne!(one, with_threads(1, 42, 1));
        assert_ne!(one[..CHUNK], one[CHUNK..2 * CHUNK], "chunks repeat each other");
    }

    #[test]
    fn numbers_fill_their_range_and_stay_in_it() {
        for (distribution, low, mean) in [(Distribution::Uniform11, -1.0, 0.0), (Distribution::Uniform01, 0.0, 0.5)] {
            let numbers = random(200_000, distribution, 1, 0);
            assert!(numbers.iter().all(|&number| (low..=1.0).contains(&number)));
            let average = numbers.iter().map(|&number| f64::from(number)).sum::<f64>() / numbers.len() as f64;
            assert!((average - mean).abs() < 0.01, "{average}");
            let least = numbers.iter().copied().fold(f32::INFINITY, f32::min);
            let most = numbers.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            assert!(least < low + 0.001 && most > 0.999, "{least} to {most}");
        }
    }
}
