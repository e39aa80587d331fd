//! The transposes of small matrices: a block has as many, one after the other, as make up to 4096 numbers.
//!
//! ```text
//!  x      │ a₀₀ a₀₁ a₁₀ a₁₁ a₂₀ a₂₁ │ b₀₀ …         a warp reads 32 numbers that lie side by side
//!  kept     the same, with a place free behind each 32
//!  y      │ a₀₀ a₁₀ a₂₀ a₀₁ a₁₁ a₂₁ │ b₀₀ …         a warp writes 32 numbers that lie side by side
//! ```

use cuda_std::prelude::*;

use crate::row::LANES;

/// The most numbers of a matrix.
pub const MOST: usize = 2048;

/// The numbers of a block at most, and what they take with the places that are free.
const NUMBERS: usize = 4096;
const PLACES: usize = NUMBERS + NUMBERS / LANES;

/// The threads of a block, and the numbers of each.
const THREADS: usize = transpose_small_fp32::BLOCK.x as usize;
const OWN: usize = NUMBERS / THREADS;

/// The numbers of a block: those of whole matrices.
#[inline(always)]
fn of_block(area: usize) -> usize {
    NUMBERS / area.max(1) * area
}

/// The blocks for matrices of so many numbers, of which there are so many together.
#[cfg(not(target_arch = "nvptx64"))]
fn blocks(len: usize, area: usize) -> Option<u32> {
    u32::try_from(len.div_ceil(of_block(area).max(1))).ok().filter(|&blocks| blocks <= i32::MAX as u32)
}

/// What numbers below 4096 are divided by, 2048 at most.
#[derive(Clone, Copy)]
struct Divisor {
    divisor: u32,
    /// 2²⁴ divided by it, rounded up: too large by less than one in 2¹² parts of a whole.
    inverse: u32,
}

impl Divisor {
    #[inline(always)]
    const fn new(divisor: u32) -> Self {
        let divisor = if divisor == 0 { 1 } else { divisor };
        Self { divisor, inverse: (1u32 << 24).div_ceil(divisor) }
    }

    /// Quotient and remainder.
    #[inline(always)]
    const fn divide(self, number: u32) -> [u32; 2] {
        let quotient = ((number as u64 * self.inverse as u64) >> 24) as u32;
        [quotient, number.wrapping_sub(quotient.wrapping_mul(self.divisor))]
    }
}

/// Quotients grow with the number, so they are exact if those of all multiples, and of what is one less, are.
const _: () = {
    let mut divisor = 1;
    while divisor <= MOST as u32 {
        let mut multiple = divisor;
        while multiple <= NUMBERS as u32 {
            let quotient = multiple / divisor;
            assert!(Divisor::new(divisor).divide(multiple)[0] == quotient, "too small");
            assert!(Divisor::new(divisor).divide(multiple - 1)[0] == quotient - 1, "too large");
            multiple += divisor;
        }
        divisor += 1;
    }
};

/// `y[b, j, i] = x[b, i, j]` for `batch` matrices of so many rows and columns, one after the other, of up to 2048 numbers each.
#[kernel(
    block = 256,
    grid = blocks(x.len(), rows as usize * cols as usize).unwrap_or(1).max(1),
    requires(
        rows as usize * cols as usize <= MOST,
        x.len() == rows as usize * cols as usize * batch as usize,
        y.len() == x.len(),
        blocks(x.len(), rows as usize * cols as usize).is_some()
    )
)]
pub fn transpose_small_fp32(batch: u32, rows: u32, cols: u32, x: GlobalSlice<'_, f32>, y: GlobalSliceMut<'_, f32>) {
    static KEPT: Shared<[f32; PLACES]> = Shared::new();
    let (me, area) = (thread::thread_idx_x() as usize, rows as usize * cols as usize);
    let first = thread::block_idx_x() as usize * of_block(area);
    if batch == 0 || first >= x.len() {
        return; // the same for the whole block
    }
    let len = (x.len() - first).min(of_block(area));
    let place = |number: usize| number + number / LANES;
    // SAFETY: all threads reach the barrier, which is between what is written to shared memory and what is read. Numbers of a block are below
    // `NUMBERS`, and inside of x and y; each is one thread's.
    unsafe {
        let numbers: [f32; OWN] = core::array::from_fn(|i| {
            let number = me + i * THREADS;
            if number < len { x.get_unchecked(first + number) } else { 0.0 }
        });
        for i in 0..OWN {
            KEPT.write(place(me + i * THREADS), numbers[i]);
        }
        thread::sync_threads();
        let (of_area, of_rows) = (Divisor::new(area as u32), Divisor::new(rows));
        for i in 0..OWN {
            let number = me + i * THREADS;
            let [matrix, in_matrix] = of_area.divide(number as u32);
            let [col, row] = of_rows.divide(in_matrix);
            if number < len {
                let from = matrix * of_area.divisor + row * cols + col;
                y.set_unchecked(first + number, KEPT.read(place(from as usize)));
            }
        }
    }
}
