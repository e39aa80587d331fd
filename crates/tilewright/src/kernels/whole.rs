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
        device.launch(gemm_whole_fp32 { gemm, products })
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
        let (most, batch) = (sizes_of(product).most_products(), product.batch as u32);
        let products = products_of_a_block(most.max(1), batch, multiprocessors);
        let rounds = rounds_of(threads_of(product.m, product.n).saturating_mul(products.into()));
        Some(Copying { blocks: batch.div_ceil(products).into(), rounds, again: 0.0, one_by_one: false })
    }

    fn blocks(&self, _tile: Option<TileShape>, product: &Description, _splits: u32) -> u128 {
        let most = sizes_of(product).most_products().max(1);
        (product.batch as u128).div_ceil(most.into())
    }

    fn stores(&self) -> Stores {
        Stores::Lines
    }
}

/// The threads that have sums of so many rows and columns: four by four each.
fn threads_of(rows: usize, cols: usize) -> u64 {
    (rows.div_ceil(4) as u64).saturating_mul(cols.div_ceil(4) as u64)
}

/// How often a block has that many threads.
fn rounds_of(threads: u64) -> u32 {
    u32::try_from(threads.div_ceil(256)).unwrap_or(u32::MAX)
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
    performance: Performance::new(4, 1.65).block(1.2),
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
        device.launch(gemm_whole_rows_fp32 { gemm, rows })
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
        let Description { m, k, batch, ref a, .. } = *product;
        let one_by_one = a.col_stride != 1 && a.alignment_of_lines(m, k, batch) < Placement::FULL_ALIGNMENT;
        Some(Copying { blocks, rounds: rounds_of(threads_of(rows, product.n)), again, one_by_one })
    }

    fn blocks(&self, _tile: Option<TileShape>, product: &Description, _splits: u32) -> u128 {
        let most = sizes_of(product).most_rows().max(1);
        (product.m as u128).div_ceil(most.into()) * product.batch as u128
    }

    fn stores(&self) -> Stores {
        Stores::Lines
    }
}

/// Some rows of a tall product in a block, copied as they lie.
pub static WHOLE_ROWS: KernelInfo = KernelInfo {
    performance: Performance::new(4, 1.65).block(1.4).unaligned(1.45),
    ..rung(
        gemm_whole_rows_fp32::FACTS,
        "some rows of a tall product in a block, copied to shared memory and back as they lie in memory",
        &WholeRows,
    )
};
