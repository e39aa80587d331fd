//! # 23. `proxy-fence`: written by threads, read by tensor cores
//!
//! TMA and tensor cores reach shared memory by another way than threads do: PTX calls it the *async
//! proxy*. What a thread has written is not visible there, not even behind a barrier, before the
//! thread has called a fence: `hopper::fence_async_shared()` (`fence.proxy.async`).
//!
//! ```text
//!  TMA ──► tile ──► threads round each number to TF32, in place ──► tensor cores
//!                              write                                  read
//!                              fence_async_shared()   each thread, behind its own writes
//!                              barrier                then all know that all have
//! ```
//!
//! Without the rounding, tensor cores cut off the low bits, which makes results too small on
//! average. A fence left out is a mistake that tests on a GPU may never notice.
//!
//! **Write:** the rounding of both tiles, in place, by all 128 threads (`convert::tf32(x)` rounds a
//! number), and what has to come behind it before tensor cores read the tiles.
//@ hint The tiles have OF_A + OF_B numbers, a multiple of 128. Thread t may have t, t + 128, …: where a number is in the tile does not matter, if it stays there.
//@ hint `tiles.write(at, convert::tf32(tiles.read(at)));` If only the barrier comes behind it, the report says what is missing, and who has to call it.
//@ hint `hopper::fence_async_shared();` by all threads, behind their writes and before the barrier.

use cuda_std::hopper::{self, Barrier};
use cuda_std::prelude::*;
use cuda_std::wgmma::{self, Descriptor, Sums, Tf32};

/// The elements of a tile of A, 64 rows of 32 terms, and of B, 16 columns of 32 terms.
const OF_A: usize = 64 * 32;
const OF_B: usize = 16 * 32;
/// The bytes of both, behind which the barrier is.
const BYTES: u32 = 4 * (OF_A + OF_B) as u32;

/// `C = A·B` of numbers rounded to TF32, by tiles of 64 × 16; A is a map of m×k by rows, B one of
/// k×n by columns.
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
pub fn product_of_rounded(
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
            // Each thread has its own numbers, in place: where they are in the tile does not
            // matter.
            for i in 0..(OF_A + OF_B) / 128 {
                let at = 128 * i + t as usize;
                tiles.write(at, convert::tf32(tiles.read(at)));
            }
            hopper::fence_async_shared();
            thread::sync_threads();
            //@ instead
            //| // The tiles are as TMA has brought them.
            //@ end
            wgmma::fence();
            for step in 0..4 {
                sums.add_shared::<Tf32>(of_a.offset(32 * step), of_b.offset(32 * step));
            }
            wgmma::commit();
            sums.wait::<0>();
            thread::sync_threads();
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

    use super::product_of_rounded;
    use crate::puzzle::prelude::*;

    /// The puzzle.
    pub static PUZZLE: Puzzle = Puzzle {
        name: "proxy-fence",
        file: file!(),
        source: include_str!("p23_proxy_fence.rs"),
        operation: &Product,
        fails: "Wrong",
        lesson: "Tensor cores take 11 bits of each number and cut off the others, so all products \
                 of numbers that were not rounded before come out too small.",
        reference: Score { sectors: 1216, global: 38, shared: 240, conflicts: 0, waits: 40 },
        limits: Limits::NONE,
        judge: None,
    };

    struct Product;

    impl Operation for Product {
        fn describe(&self) -> Description {
            Description {
                name: "proxy-fence",
                idea: "C = A·B of numbers that threads round in shared memory",
                sizes: &["m", "n", "k"],
                kernels: vec![product_of_rounded::FACTS],
                small: testkit::cases(&[[64, 16, 32], [65, 20, 36], [64, 16, 96]]),
                large: vec![vec![4096, 4096, 4096]],
                bits: Bits::Same,
            }
        }

        fn arguments(&self, sizes: &Sizes) -> Result<Vec<Argument>, Error> {
            let [m, n, k] = sizes.get(["m", "n", "k"])?;
            let numbers = Distribution::Uniform(-1.0, 1.0);
            let (a, b) =
                (Argument::input("a", &[m, k], numbers), Argument::input("b", &[n, k], numbers));
            Ok(vec![a, b, Argument::output("c", &[m, n])])
        }

        fn launch(&self, device: &Device, sizes: &Sizes, views: &Views<'_>) -> Result<(), Error> {
            let [m, n, k] = sizes.get_u32(["m", "n", "k"])?;
            let a = swizzled_map(device, views.read("a")?, [m, k], 64, TensorElement::Fp32)?;
            let b = swizzled_map(device, views.read("b")?, [n, k], 16, TensorElement::Fp32)?;
            Ok(device.launch(product_of_rounded { a, b, m, n, k, c: views.write("c")? })?)
        }

        fn expected(
            &self,
            sizes: &Sizes,
            values: &Values<'_>,
        ) -> Result<Vec<Vec<Expected>>, Error> {
            let ([m, n, k], a, b) = (sizes.get(["m", "n", "k"])?, values.of("a")?, values.of("b")?);
            let rounded = |x: f64| f64::from(cuda_std::convert::tf32(x as f32));
            let one = |at: usize| {
                let terms =
                    || (0..k).map(|l| rounded(a[at / n * k + l]) * rounded(b[at % n * k + l]));
                // The products of rounded numbers are exact; sums are cut off, where fp32 rounds.
                Expected::rounded(sum(terms()), 2 * k, sum(terms().map(f64::abs)))
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
