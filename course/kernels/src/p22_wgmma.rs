//! # 22. `wgmma`: a warpgroup multiplies, and does not wait
//!
//! On Hopper four warps together, a *warpgroup* of 128 threads, multiply tiles that lie in shared
//! memory as TMA has put them there: 64 × 8 by 8 × 16 in one instruction, `wgmma`. It is
//! *asynchronous*: the threads go on at once, and the sums in their registers are not there yet.
//!
//! ```text
//!  wgmma::fence()            registers that threads have written before are seen by the products
//!  sums.add_shared(…) × 4    issued: 4 × 8 terms
//!  wgmma::commit()           these are a group
//!  sums.wait::<0>()          no group is under way: the sums are there, and the tiles were read
//! ```
//!
//! A tile has rows of 32 terms, 128 bytes each, of which one instruction takes 8: 32 bytes. Where
//! in the row it begins, its *descriptor* says, in bytes: `of_a.offset(32)` are terms 8 to 15 of
//! all rows of the tile.
//!
//! A GPU does not tell if a wait is missing: threads read what their registers happen to have, and
//! TMA overwrites tiles that are still read. All four warps read both tiles: before thread 0 asks
//! for the next ones, all of them have to be done.
//!
//! **Write:** from the wait for the tiles on what a warpgroup does with 32 terms, until the next
//! tiles may come.
//@ hint The order is that of the picture, with a loop over four steps of 8 terms, which are 32 bytes apart, in A and in B.
//@ hint `sums.wait::<0>()` is about the products of the own warp. What tells thread 0 that the other warps' are over, too?
//@ hint `wgmma::fence();`, four times `sums.add_shared::<Tf32>(of_a.offset(32 * step), of_b.offset(32 * step));`, `wgmma::commit();`, `sums.wait::<0>();`, `thread::sync_threads();`

use cuda_std::hopper::{self, Barrier};
use cuda_std::prelude::*;
use cuda_std::wgmma::{self, Descriptor, Sums, Tf32};

/// The elements of a tile of A, 64 rows of 32 terms, and of B, 16 columns of 32 terms.
const OF_A: usize = 64 * 32;
const OF_B: usize = 16 * 32;
/// The bytes of both, behind which the barrier is.
const BYTES: u32 = 4 * (OF_A + OF_B) as u32;

/// `C = A·B`, by tiles of 64 × 16; A is a map of m×k by rows, B one of k×n by columns.
#[kernel(
    block = 128,
    arch = "sm_90a",
    dynamic_shared = BYTES + 8,
    grid = (n.div_ceil(16), m.div_ceil(64)),
    requires(
        m > 0 && n > 0 && k > 0,
        a.layout().tile == [32, 64, 1] && b.layout().tile == [32, 16, 1],
        c.len() == m as usize * n as usize
    )
)]
pub fn product_wgmma(
    a: TensorMap<'_>,
    b: TensorMap<'_>,
    m: u32,
    n: u32,
    k: u32,
    c: GlobalSliceMut<'_, f32>,
) {
    let (t, row, col) =
        (thread::thread_idx_x(), 64 * thread::block_idx_y(), 16 * thread::block_idx_x());
    // SAFETY: all threads come to the barriers and the products. Tiles are read when they are
    // there, and loaded again when the products that read them are over. Rows and columns are
    // compared before a store.
    unsafe {
        let tiles = dynamic_shared::<f32>(0, OF_A + OF_B);
        let barrier = Barrier::at(dynamic_shared(BYTES as usize, 1), 0);
        if t == 0 {
            barrier.init(1);
            hopper::fence_barrier_init();
        }
        thread::sync_threads();
        let (of_a, of_b) = (Descriptor::at(tiles, 0), Descriptor::at(tiles, OF_A));
        let mut sums = [0.0f32; 8];
        let (mut first, mut parity) = (0, 0);
        while first < k {
            if t == 0 {
                barrier.arrive_expecting(BYTES);
                hopper::load_tile(tiles, 0, a, [first, row, 0], barrier);
                hopper::load_tile(tiles, OF_A, b, [first, col, 0], barrier);
            }
            barrier.wait(parity);
            //@ blank
            wgmma::fence();
            for step in 0..4 {
                sums.add_shared::<Tf32>(of_a.offset(32 * step), of_b.offset(32 * step));
            }
            wgmma::commit();
            sums.wait::<0>();
            thread::sync_threads();
            //@ instead
            //| sums.add_shared::<Tf32>(of_a, of_b);
            //| wgmma::commit();
            //@ end
            first += 32;
            parity ^= 1;
        }
        // Warp w has rows 16·w + g and 16·w + g + 8, and of each 8 columns those from 2·q on.
        let (g, q) = (t % 32 / 4, t % 4);
        for i in 0..8u32 {
            let (row, col) =
                (row + t / 32 * 16 + g + i / 2 % 2 * 8, col + i / 4 * 8 + 2 * q + i % 2);
            if row < m && col < n {
                c.set_unchecked(row as usize * n as usize + col as usize, sums[i as usize]);
            }
        }
    }
}

#[cfg(not(target_arch = "nvptx64"))]
pub use operation::PUZZLE;

#[cfg(not(target_arch = "nvptx64"))]
mod operation {
    use cuda_driver::TensorElement;

    use super::product_wgmma;
    use crate::puzzle::prelude::*;

    /// The puzzle.
    pub static PUZZLE: Puzzle = Puzzle {
        name: "wgmma",
        file: file!(),
        source: include_str!("p22_wgmma.rs"),
        operation: &Product,
        fails: "RegistersNotFenced",
        lesson: "Products of a warpgroup read and write registers beside the threads, which have \
                 just set the sums to zero: without the fence nothing says which comes first.",
        reference: Score { sectors: 1216, global: 38, shared: 0, conflicts: 0, waits: 28 },
        limits: Limits::NONE,
        judge: None,
    };

    struct Product;

    impl Operation for Product {
        fn describe(&self) -> Description {
            Description {
                name: "wgmma",
                idea: "C = A·B by a warpgroup",
                sizes: &["m", "n", "k"],
                kernels: vec![product_wgmma::FACTS],
                small: testkit::cases(&[[64, 16, 32], [65, 20, 36], [64, 16, 96]]),
                large: vec![vec![4096, 4096, 4096]],
                bits: Bits::Same,
            }
        }

        fn arguments(&self, sizes: &Sizes) -> Result<Vec<Argument>, Error> {
            let [m, n, k] = sizes.get(["m", "n", "k"])?;
            let numbers = Distribution::Integers(-8, 8);
            let (a, b) =
                (Argument::input("a", &[m, k], numbers), Argument::input("b", &[n, k], numbers));
            Ok(vec![a, b, Argument::output("c", &[m, n])])
        }

        fn launch(&self, device: &Device, sizes: &Sizes, views: &Views<'_>) -> Result<(), Error> {
            let [m, n, k] = sizes.get_u32(["m", "n", "k"])?;
            let a = swizzled_map(device, views.read("a")?, [m, k], 64, TensorElement::Fp32)?;
            let b = swizzled_map(device, views.read("b")?, [n, k], 16, TensorElement::Fp32)?;
            Ok(device.launch(product_wgmma { a, b, m, n, k, c: views.write("c")? })?)
        }

        fn expected(
            &self,
            sizes: &Sizes,
            values: &Values<'_>,
        ) -> Result<Vec<Vec<Expected>>, Error> {
            let ([m, n, k], a, b) = (sizes.get(["m", "n", "k"])?, values.of("a")?, values.of("b")?);
            // Sums of small integers: exact.
            let one = |at: usize| {
                Expected::exact(sum((0..k).map(|l| a[at / n * k + l] * b[at % n * k + l])))
            };
            Ok(vec![testkit::each(m * n, one)])
        }

        fn operations(&self, sizes: &Sizes) -> f64 {
            sizes.get(["m", "n", "k"]).map_or(0.0, |[m, n, k]| 2.0 * m as f64 * n as f64 * k as f64)
        }

        fn units(&self) -> Units {
            Units::TensorCores
        }
    }
}
