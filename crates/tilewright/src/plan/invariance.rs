//! Rows whose bits depend on nothing but the row itself, B, and their sizes: not on how many rows come with it, nor on which, nor on its place in
//! a batch.
//!
//! ```text
//!  n, k, precision, GPU ──► Arithmetic: scheme, order of sums, splits      the one whose kernels are fast enough for few rows and for many
//!                               │
//!  m, layouts, alignment ───────┴─► the fastest of the kernels that have it     each with other tiles, all with the same bits
//! ```
//!
//! What an element is rounded to is decided by the scheme of its kernel, by the order of its sum, and by where split-K divides it. So a plan
//! for invariant rows takes all three from n and k alone, by the estimated times for [few rows and for many](ROWS), and then the fastest kernel
//! for the rows that there are. That costs something where a kernel with another arithmetic would have been faster: what it may cost,
//! [`may_cost`] says.

use crate::description::Description;
use crate::kernels::{KernelInfo, Scheme, SumOrder};
use crate::placement::Placement;
use crate::{Error, Sizes};

/// What decides the bits of an element.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Arithmetic {
    pub(super) scheme: Scheme,
    pub(super) sums: SumOrder,
    pub(super) splits: u32,
}

/// The numbers of rows that times are estimated for.
const ROWS: [usize; 6] = [1, 8, 64, 256, 1024, 4096];

/// Among how many blocks sums may be divided.
const SPLITS: [u32; 10] = [1, 2, 3, 4, 6, 8, 12, 16, 24, 32];

/// How many times as long as the fastest kernel an invariant plan may take for so many rows.
fn may_cost(rows: usize) -> f64 {
    if rows < 256 { 1.5 } else { 1.15 }
}

impl Arithmetic {
    /// Whether a kernel computes so, or does if the transposes are multiplied.
    pub(super) fn is_of(&self, kernel: &KernelInfo, transposed: bool) -> bool {
        let sums = if transposed { kernel.sums.of_transposes() } else { kernel.sums };
        sums != SumOrder::Own && (kernel.scheme, sums) == (self.scheme, self.sums)
    }

    /// The arithmetics that kernels have, with these splits or with any.
    fn all(kernels: &[&'static KernelInfo], splits: Option<u32>) -> Vec<Self> {
        let one = splits.map(|splits| [splits]);
        let splits = one.as_ref().map_or(&SPLITS[..], |one| &one[..]);
        let mut all: Vec<Self> = Vec::new();
        for kernel in kernels.iter().filter(|kernel| kernel.sums != SumOrder::Own) {
            for &splits in splits {
                let arithmetic = Self { scheme: kernel.scheme, sums: kernel.sums, splits };
                if !all.contains(&arithmetic) {
                    all.push(arithmetic);
                }
            }
        }
        all
    }

    /// The arithmetic for products with as many columns and terms as this one: that whose slowest case, beside the fastest kernel there is and
    /// what it [may cost](may_cost), is the least slow. `time(product, arithmetic)` is the time of the fastest kernel of those that have it,
    /// or of all; nothing if none can compute the product.
    pub(super) fn choose(
        kernels: &[&'static KernelInfo],
        product: &Description,
        splits: Option<u32>,
        time: impl Fn(&Description, Option<&Self>) -> Option<f64>,
    ) -> Result<Option<Self>, Error> {
        let products = typical_products(product.n, product.terms())?;
        let limits: Vec<f64> = (products.iter())
            .map(|product| time(product, None).map_or(f64::INFINITY, |least| least * may_cost(product.m)))
            .collect();
        let worst = |arithmetic: &Self| {
            let shares =
                products.iter().zip(&limits).map(|(product, limit)| Some(time(product, Some(arithmetic))? / limit));
            shares.reduce(|one, other| Some(one?.max(other?))).flatten()
        };
        // Of two that are equal, the later one: kernels are in the order of the ladder.
        let judged = Self::all(kernels, splits).into_iter().rev().filter_map(|it| Some((worst(&it)?, it)));
        Ok(judged.min_by(|(one, _), (other, _)| one.total_cmp(other)).map(|(_, it)| it))
    }
}

/// Products of so many columns and terms, for each number of rows and both layouts of B. Nothing in them depends on where the operands of a
/// product happen to lie.
fn typical_products(n: usize, k: usize) -> Result<Vec<Description>, Error> {
    let aligned = |length: usize| length.next_multiple_of(4);
    let (a, c) = (Placement::row_major(aligned(k)), Placement::row_major(aligned(n)));
    let layouts = [Placement::row_major(aligned(n)), Placement::column_major(aligned(k))];
    let sizes = ROWS.into_iter().flat_map(|m| layouts.map(|b| (m, b)));
    sizes.map(|(m, b)| Ok(Description::new(Sizes { m, n, k }, 1, a, b, c)?.with_factors(1.0, 0.0))).collect()
}
