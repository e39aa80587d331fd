//! Batches of products so small that a block has several as a whole, and tall products of which it has some rows: [`gpu_kernels::gemm::whole`]. They take
//! operands in layouts that have no gaps.

use gpu_kernels::are_without_gaps;
use gpu_kernels::gemm::tiles::TileShape;
use gpu_kernels::gemm::whole::{self, are_whole_rows, gemm_whole_fp32, gemm_whole_rows_fp32};

use super::basic::rung;
use super::contract::{Call, Contract, Copying, KernelInfo, Performance, Stores};
use crate::description::Description;
use crate::placement::Placement;
use crate::refusal::Refusal;
use crate::{Device, Error, Sizes};

/// The contract: a block has room for one product at least, and all lie without gaps.
#[derive(Debug)]
struct Whole;

/// The products that a block computes: as many as there is room for, but no more than it takes to give every multiprocessor [`BLOCKS`].
fn products_of_a_block(most: u32, batch: u32, multiprocessors: u32) -> u32 {
    let fill = batch.div_ceil(multiprocessors.max(1).saturating_mul(BLOCKS)).max(1);
    let products = if fill > 4 { fill.div_ceil(4).saturating_mul(4) } else { fill };
    products.min(most)
}

/// The blocks that a multiprocessor is to have.
const BLOCKS: u32 = 4;

impl Contract for Whole {
    fn launch(&self, device: &Device, call: &Call<'_>) -> Result<(), Error> {
        let gemm = call.gemm;
        let most = whole::Sizes::of(&gemm).most_products();
        let products = products_of_a_block(most, gemm.a().count(), device.multiprocessors());
        device.launch(gemm_whole_fp32 { gemm, products, steps: call.steps })
    }

    fn refusal(&self, product: &Description) -> Option<Refusal> {
        let &Description { m, n, batch, ref a, ref b, ref c, .. } = product;
        let k = product.k;
        if sizes_of(product).most_products() == 0 {
            return Some(Refusal::NotWhole { m, n, k });
        }
        let all = [(a, m, k), (b, k, n), (c, m, n)];
        let is_without_gaps = |(it, rows, cols): (&Placement, usize, usize)| {
            are_without_gaps([rows as u64, cols as u64], strides(it), it.batch_stride as u64, batch as u64)
        };
        (!all.into_iter().all(is_without_gaps)).then_some(Refusal::Gaps)
    }

    /// Half of the largest size, until there is room for a product in any layout.
    fn within(&self, mut sizes: Sizes) -> Sizes {
        while self::sizes(sizes, true, true).most_products() == 0 {
            let Sizes { m, n, k } = &mut sizes;
            let largest = if *m >= *n && *m >= *k {
                m
            } else if *n >= *k {
                n
            } else {
                k
            };
            *largest = largest.div_ceil(2);
        }
        sizes
    }

    fn copying(&self, product: &Description, multiprocessors: u32) -> Option<Copying> {
        let (sizes, batch) = (sizes_of(product), product.batch as u32);
        let products = products_of_a_block(sizes.most_products().max(1), batch, multiprocessors);
        let work = Work { sizes, products, strides_of_c: strides(&product.c) };
        Some(Copying {
            blocks: batch.div_ceil(products).into(),
            rounds: work.rounds(),
            passes: work.passes(product.terms()),
            again: 0.0,
        })
    }

    fn blocks(&self, _tile: Option<TileShape>, product: &Description, _splits: u32) -> u128 {
        let most = sizes_of(product).most_products().max(1);
        (product.batch as u128).div_ceil(most.into())
    }

    fn does_steps(&self) -> bool {
        true
    }

    fn stores(&self) -> Stores {
        Stores::Lines
    }
}

/// What the threads of a block compute: products, or rows, of these sizes. A thread has sums of four rows and four columns, which are a quarter of all apart.
struct Work {
    sizes: whole::Sizes,
    products: u32,
    strides_of_c: [u64; 2],
}

/// The threads of a warp, and the banks of shared memory.
const LANES: u64 = 32;

impl Work {
    /// The threads that have sums of a product: down, and across.
    fn threads_of_one(&self) -> [u64; 2] {
        [self.sizes.m, self.sizes.n].map(|lines| u64::from(lines.div_ceil(4)))
    }

    /// All threads that have sums.
    fn threads(&self) -> u64 {
        let [down, across] = self.threads_of_one();
        down.saturating_mul(across).saturating_mul(self.products.into())
    }

    /// How often a block has that many threads.
    fn rounds(&self) -> u32 {
        u32::try_from(self.threads().div_ceil(256)).unwrap_or(u32::MAX)
    }

    /// The passes through shared memory of all warps. For each term a thread loads an element for each of its rows and columns, and in the end it
    /// stores its sums.
    fn passes(&self, terms: usize) -> f64 {
        let whole::Sizes { m, n, k, a_by_rows, b_by_columns } = self.sizes;
        let [m, n, k] = [m, n, k].map(u64::from);
        let [down, across] = self.threads_of_one();
        // From one row of A, or column of B, to the next, and all elements of one.
        let line = |lines: u64, has_terms: bool| if has_terms { (pitch(k), lines * pitch(k)) } else { (1, k * lines) };
        let ((row_of_a, of_a), (col_of_b, of_b)) = (line(m, a_by_rows), line(n, b_by_columns));
        let [row_of_c, col_of_c] = self.strides_of_c;
        // The products, rows and columns that the threads of a warp have.
        let products = LANES.div_ceil((down * across).max(1)).min(self.products.into());
        let (rows, cols) = (LANES.div_ceil(across.max(1)).min(down), across.min(LANES));
        let load_a = lanes_that_meet(&[(products, of_a), (rows, row_of_a)]);
        let load_b = lanes_that_meet(&[(products, of_b), (cols, col_of_b)]);
        let store_c = lanes_that_meet(&[(products, m * n), (rows, row_of_c), (cols, col_of_c)]);
        let of_a_warp = terms as f64 * 4.0 * (load_a + load_b) as f64 + (m.min(4) * n.min(4) * store_c) as f64;
        self.threads().div_ceil(LANES) as f64 * of_a_warp
    }
}

/// From one line to the next in shared memory, where its `k` terms are neighbours: the kernels put gaps between lines that would be in few banks.
const fn pitch(k: u64) -> u64 {
    if k.is_multiple_of(8) { k + 4 } else { k }
}

/// How many lanes of a warp have different elements of one bank, at the most: so many passes an access takes. The elements are those of a lattice, of so many
/// points, so far apart, in each direction.
fn lanes_that_meet(directions: &[(u64, u64)]) -> u64 {
    let (mut lanes, mut banks, mut common) = (1, 1, LANES);
    for &(count, stride) in directions.iter().filter(|(count, _)| *count > 1) {
        lanes = LANES.min(lanes * count);
        banks *= count.min(LANES / gcd(stride, LANES));
        common = gcd(stride, common);
    }
    lanes.div_ceil(banks.min(LANES / common))
}

/// The greatest number that divides both.
const fn gcd(one: u64, other: u64) -> u64 {
    if other == 0 { one } else { gcd(other, one % other) }
}

/// Sizes as the kernels have them, where the terms of A's rows or of B's columns are neighbours. What is no number of 32 bits has no room in any case.
fn sizes(Sizes { m, n, k }: Sizes, a_by_rows: bool, b_by_columns: bool) -> whole::Sizes {
    let [m, n, k] = [m, n, k].map(|size| u32::try_from(size).unwrap_or(u32::MAX));
    whole::Sizes { m, n, k, a_by_rows, b_by_columns }
}

/// Those of a product.
fn sizes_of(product: &Description) -> whole::Sizes {
    let &Description { m, n, k, ref a, ref b, .. } = product;
    sizes(Sizes { m, n, k }, a.col_stride == 1, b.row_stride == 1)
}

/// The strides of rows and columns of an operand.
fn strides(it: &Placement) -> [u64; 2] {
    [it.row_stride, it.col_stride].map(|stride| stride as u64)
}

/// Several products in a block, copied as they lie.
pub static WHOLE: KernelInfo = KernelInfo {
    performance: Performance::new(4, 1.93).block(1.28),
    ..rung(
        gemm_whole_fp32::FACTS,
        "several small products in a block, copied to shared memory and back as they lie in memory",
        &Whole,
    )
};

/// The contract of the kernel for tall products: a block has room for four rows at least, and C lies row by row.
#[derive(Debug)]
struct WholeRows;

/// The rows that a block computes: as many as there is room for, but no more than it takes to give every multiprocessor [`BLOCKS`].
fn rows_of_a_block(most: u32, rows: u64, multiprocessors: u32) -> u32 {
    let fill = rows.div_ceil(u64::from(multiprocessors.max(1)) * u64::from(BLOCKS)).next_multiple_of(4).max(4);
    most.min(u32::try_from(fill).unwrap_or(u32::MAX))
}

impl Contract for WholeRows {
    fn launch(&self, device: &Device, call: &Call<'_>) -> Result<(), Error> {
        let gemm = call.gemm;
        let all = u64::from(gemm.m()) * u64::from(gemm.a().count());
        let rows = rows_of_a_block(whole::Sizes::of(&gemm).most_rows(), all, device.multiprocessors());
        device.launch(gemm_whole_rows_fp32 { gemm, rows, steps: call.steps })
    }

    fn refusal(&self, product: &Description) -> Option<Refusal> {
        let &Description { m, n, k, ref a, ref b, ref c, .. } = product;
        if sizes_of(product).most_rows() == 0 {
            return Some(Refusal::NotWhole { m: m.min(4), n, k });
        }
        if !are_whole_rows([m, n, k].map(|size| size as u64), [a, b, c].map(strides)) {
            return Some(Refusal::GapsOfRows);
        }
        // Of B it copies k times n elements for rows times n of C.
        let rows = sizes_of(product).most_rows() as usize;
        (2 * rows < k).then_some(Refusal::FewRows { rows, k })
    }

    /// Half of the columns or of the terms, until there is room for four rows in any layout.
    fn within(&self, mut sizes: Sizes) -> Sizes {
        while self::sizes(sizes, true, true).most_rows() == 0 {
            let largest = if sizes.n >= sizes.k { &mut sizes.n } else { &mut sizes.k };
            *largest = largest.div_ceil(2);
        }
        sizes
    }

    /// Each block copies all of B.
    fn copying(&self, product: &Description, multiprocessors: u32) -> Option<Copying> {
        let (most, all) = (sizes_of(product).most_rows(), (product.m as u64).saturating_mul(product.batch as u64));
        let rows = (rows_of_a_block(most, all, multiprocessors).max(1) as usize).min(product.m.max(1));
        let blocks = (product.m.div_ceil(rows) as u64).saturating_mul(product.batch as u64);
        let others = blocks.saturating_sub(product.b.distinct(product.batch) as u64);
        let again = others as f64 * product.terms() as f64 * product.n as f64;
        // Columns that begin anywhere are copied element by element, which takes as long again.
        let Description { m, n, k, batch, ref a, .. } = *product;
        let is_one_by_one = a.col_stride != 1 && a.alignment_of_lines(m, k, batch) < Placement::FULL_ALIGNMENT;
        let elements = (m * a.distinct(batch)) as f64 * product.terms() as f64;
        let again = again + if is_one_by_one { elements } else { 0.0 };
        let sizes = sizes_of(product).with_rows(rows as u32);
        let work = Work { sizes, products: 1, strides_of_c: [n as u64, 1] };
        Some(Copying { blocks, rounds: work.rounds(), passes: work.passes(product.terms()), again })
    }

    fn blocks(&self, _tile: Option<TileShape>, product: &Description, _splits: u32) -> u128 {
        let most = sizes_of(product).most_rows().max(1);
        (product.m as u128).div_ceil(most.into()) * product.batch as u128
    }

    fn does_steps(&self) -> bool {
        true
    }

    fn stores(&self) -> Stores {
        Stores::Lines
    }
}

/// Some rows of a tall product in a block, copied as they lie.
pub static WHOLE_ROWS: KernelInfo = KernelInfo {
    performance: Performance::new(4, 1.93).block(1.5),
    ..rung(
        gemm_whole_rows_fp32::FACTS,
        "some rows of a tall product in a block, copied to shared memory and back as they lie in memory",
        &WholeRows,
    )
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lanes_meet_whose_elements_are_in_one_bank() {
        // By the banks of all lanes' elements, each of which is one of a lattice.
        let counted = |[products, rows, cols]: [(u64, u64); 3]| {
            let mut elements = std::collections::BTreeSet::new();
            let lanes =
                (0..products.0).flat_map(|p| (0..rows.0).flat_map(move |r| (0..cols.0).map(move |c| [p, r, c])));
            for [product, row, col] in lanes.take(LANES as usize) {
                elements.insert(product * products.1 + row * rows.1 + col * cols.1);
            }
            let of_bank = |bank| elements.iter().filter(|element| **element % LANES == bank).count() as u64;
            (0..LANES).map(of_bank).max().unwrap()
        };
        let one = (1, 0);
        for (directions, expected) in [
            ([(32, 1), one, one], 1),
            ([(32, 2), one, one], 2),
            ([(32, 16), one, one], 16),
            ([(32, 28), one, one], 4),
            ([(32, 32), one, one], 32),
            ([(4, 32), (8, 1), one], 4),
            ([(8, 340), (4, 20), one], 4),
            ([(4, 160), (2, 20), (4, 1)], 4),
            // All lanes have one element, or eight of them.
            ([one, one, one], 1),
            ([(8, 9), one, one], 1),
        ] {
            let found = lanes_that_meet(&directions);
            assert_eq!((found, counted(directions)), (expected, expected), "{directions:?}");
        }
    }

    #[test]
    fn lines_are_as_far_apart_as_the_kernels_have_them() {
        // As many products have room whose lines are as long, and lie side by side by columns, without gaps.
        let most = |k: u64, by_terms| sizes(Sizes { m: 5, n: 3, k: k as usize }, by_terms, by_terms).most_products();
        for k in 1..200 {
            assert_eq!(most(k, true), most(pitch(k), false), "k = {k}");
        }
    }
}
