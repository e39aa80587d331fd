//! The accelerations of n bodies by the gravity of all others, every pair computed on its own, in fp32. A block of 128 threads has 256
//! bodies, two for each thread, and goes through all n by tiles of 256, which it keeps in shared memory.
//!
//! ```text
//!               bodies j, 256 at a time in shared memory
//!             ┌──────────┬──────────┬─ …
//!  256        │ tile 0   │ tile 1   │            a block; a thread has two bodies i, and reads each body j once for both:
//!  bodies i   │          │          │            all lanes the same one, by one load of 16 bytes
//!             └──────────┴──────────┴─ …
//!                          aᵢ += mⱼ · d / (|d|² + ε²)^(3/2),     d = xⱼ − xᵢ
//! ```
//!
//! A body does not accelerate itself, because d is 0 and ε is not. What comes behind the last body has no mass.
//!
//! The inverse root is that of the hardware, so the bits are the same on one device, but not on a GPU and on the executor. Squares of
//! distances have to be numbers of fp32, and so have their inverse cubes: distances from 10⁻¹² to 10¹², or a softening of that size.
//!
//! Source of the pattern: L. Nyland, M. Harris and J. Prins, "Fast N-body simulation with CUDA" (GPU Gems 3, 2007).

use cuda_std::prelude::*;

/// The threads of a block.
const THREADS: usize = n_body_fp32::BLOCK.x as usize;

/// The bodies of a thread.
const OWN: usize = 2;

/// The bodies of a tile, which are those of a block as well.
pub const TILE: usize = THREADS * OWN;

/// The numbers of a body: three coordinates, and its mass.
const FOUR: usize = 4;

/// The bodies j of a tile that a thread goes through without a question in between.
const AT_ONCE: usize = 8;

/// The bytes of a tile.
const TILE_BYTES: u32 = (TILE * FOUR * size_of::<f32>()) as u32;

/// Adds to an acceleration what a body at a distance adds.
#[inline(always)]
fn attract(acceleration: &mut [f32; 3], at: [f32; 3], [x, y, z, mass]: [f32; FOUR], softening: f32) {
    let d = [x - at[0], y - at[1], z - at[2]];
    let square = math::fma(d[2], d[2], math::fma(d[1], d[1], math::fma(d[0], d[0], softening)));
    let inverse = math::fast::rsqrt(square);
    let factor = mass * inverse * (inverse * inverse);
    for axis in 0..3 {
        acceleration[axis] = math::fma(d[axis], factor, acceleration[axis]);
    }
}

/// The accelerations of bodies, three numbers for each. A body has four: three coordinates and its mass. `softening` is ε².
#[kernel(
    block = 128,
    grid = (bodies.len() / FOUR).div_ceil(TILE).max(1) as u32,
    dynamic_shared = TILE_BYTES,
    requires(
        bodies.len().is_multiple_of(FOUR), bodies.as_ptr().addr().is_multiple_of(FOUR * size_of::<f32>()),
        accelerations.len() == bodies.len() / FOUR * 3, softening > 0.0
    )
)]
pub fn n_body_fp32(softening: f32, bodies: GlobalSlice<'_, f32>, accelerations: GlobalSliceMut<'_, f32>) {
    let (me, n) = (thread::thread_idx_x() as usize, bodies.len() / FOUR);
    let body = |index: usize| {
        // SAFETY: a body has four numbers, and the launch has checked that the first is aligned.
        if index < n { unsafe { bodies.get4_unchecked(index * FOUR) } } else { [0.0; FOUR] }
    };
    let own = |i: usize| thread::block_idx_x() as usize * TILE + i * THREADS + me;
    let at: [[f32; 3]; OWN] = core::array::from_fn(|i| {
        let [x, y, z, _] = body(own(i));
        [x, y, z]
    });
    let mut sums = [[0.0; 3]; OWN];
    // SAFETY: as many bytes as the launch has. All threads reach the barriers, which are between what is written to the tile and what is
    // read; its indices are below its length, and multiples of four. Each acceleration has one thread.
    unsafe {
        let tile = dynamic_shared::<f32>(0, TILE * FOUR);
        let mut first = 0;
        while first < n {
            // Two loads are under way while the others are done with the tile before.
            let next: [[f32; FOUR]; OWN] = core::array::from_fn(|i| body(first + i * THREADS + me));
            thread::sync_threads();
            for i in 0..OWN {
                tile.write4((i * THREADS + me) * FOUR, next[i]);
            }
            thread::sync_threads();
            for j in (0..TILE).step_by(AT_ONCE) {
                for k in 0..AT_ONCE {
                    let other = tile.read4((j + k) * FOUR);
                    for i in 0..OWN {
                        attract(&mut sums[i], at[i], other, softening);
                    }
                }
            }
            first += TILE;
        }
        for i in 0..OWN {
            if own(i) < n {
                for axis in 0..3 {
                    accelerations.set_unchecked(own(i) * 3 + axis, sums[i][axis]);
                }
            }
        }
    }
}

#[cfg(not(target_arch = "nvptx64"))]
pub use operation::NBody;

/// The test cases of the kernel, the accelerations computed in f64, and the error bound of each element. It is compiled for the host only.
#[cfg(not(target_arch = "nvptx64"))]
mod operation {

    use testkit::{
        Argument, Bits, Description, Device, Distribution, Error, Expected, Operation, Sizes, Values, Views,
    };

    use super::n_body_fp32;

    /// ε².
    const SOFTENING: f32 = 1e-6;

    /// The accelerations of bodies.
    pub struct NBody {
        name: &'static str,
        numbers: Distribution,
    }

    impl NBody {
        /// Of bodies around the origin, half of which repel.
        pub const NORMAL: Self = Self { name: "n-body", numbers: Distribution::Normal };
        /// Of heavy bodies far from the origin, so near to one another that the softening counts.
        pub const NEAR: Self = Self { name: "n-body-near", numbers: Distribution::Uniform(1000.0, 1000.01) };
    }

    impl Operation for NBody {
        fn describe(&self) -> Description {
            Description {
                name: self.name,
                idea: "the gravity of all pairs of bodies, tiles of which are in shared memory",
                sizes: &["n"],
                kernels: vec![n_body_fp32::FACTS],
                small: [0, 1, 2, 127, 256, 257, 600].map(|n| vec![n]).to_vec(),
                large: vec![vec![10_001], vec![65_536]],
                bits: Bits::SameOnOneDevice,
            }
        }

        fn arguments(&self, sizes: &Sizes) -> Result<Vec<Argument>, Error> {
            let [n] = sizes.get(["n"])?;
            Ok(vec![Argument::input("bodies", &[n, 4], self.numbers), Argument::output("accelerations", &[n, 3])])
        }

        fn launch(&self, device: &Device, _sizes: &Sizes, views: &Views<'_>) -> Result<(), Error> {
            let (bodies, accelerations) = (views.read("bodies")?, views.write("accelerations")?);
            Ok(device.launch(n_body_fp32 { softening: SOFTENING, bodies, accelerations })?)
        }

        fn expected(&self, sizes: &Sizes, values: &Values<'_>) -> Result<Vec<Vec<Expected>>, Error> {
            let ([n], bodies) = (sizes.get(["n"])?, values.of("bodies")?);
            // A difference; the square of a distance has 4 (differences, squares and sums of what is not negative), whose power of −3/2 is
            // off by 6 of them; the inverse root 2⁻²²·⁹ three times, which is less than 7; 3 products; then the sum.
            let roundings = 1 + 6 + 7 + 3 + n;
            let of_body = |at: &[f64]| {
                let mut sums = [[0.0; 2]; 3];
                for other in bodies.chunks(4) {
                    let d = [other[0] - at[0], other[1] - at[1], other[2] - at[2]];
                    let square = d[0] * d[0] + d[1] * d[1] + d[2] * d[2] + f64::from(SOFTENING);
                    let factor = other[3] / (square * square.sqrt());
                    for (sum, d) in sums.iter_mut().zip(d) {
                        *sum = [sum[0] + d * factor, sum[1] + (d * factor).abs()];
                    }
                }
                sums.map(|[sum, magnitude]| Expected::rounded(sum, roundings, magnitude))
            };
            Ok(vec![testkit::each_row(n, |body| of_body(&bodies[4 * body..4 * (body + 1)]).to_vec())])
        }

        fn operations(&self, sizes: &Sizes) -> f64 {
            // Three differences, six fused multiply-adds, three products, and an inverse root as one.
            sizes.get(["n"]).map_or(0.0, |[n]| 19.0 * n as f64 * n as f64)
        }
    }
}
