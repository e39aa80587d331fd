//! Products by a warpgroup (`wgmma`, sm_90a): four warps, 128 threads, multiply a 64×K tile of A, in registers or in shared
//! memory, and a K×N tile of B in shared memory, and add the result to 64×N accumulators in registers.
//!
//! ```text
//!  accumulators of warp w (rows 16·w to 16·w + 15), lane = 4·g + q, for each group j of 8 columns:
//!
//!     row g          columns 8·j + 2·q, + 1        d[4·j], d[4·j + 1]
//!     row g + 8                                    d[4·j + 2], d[4·j + 3]
//!
//!  A in registers, 4 of 32 bits: rows g, g + 8, g, g + 8;  positions q, q, q + 4, q + 4 of 8 (TF32),
//!                                pairs 2q, 2q, 2q + 8, 2q + 8 of 16 (bf16, fp16)
//!                                fours 4q, 4q, 4q + 16, 4q + 16 of 32 (int8)
//! ```
//!
//! Tiles in shared memory have rows of 128 bytes in the pattern of TMA's 128-byte swizzle. A row is that of one row of A or column of B
//! ("K-major", [`Descriptor`]), or, in formats of 16 bits, that of one k ("MN-major", [`MnMajor`]):
//!
//! ```text
//!  K-major:  128 bytes of k            MN-major:  64 rows of A or columns of B      the next 64
//!           ┌──────────────┐                     ┌──────────────┐                 ┌──────────────┐
//!  column 0 │              │                 k 0 │              │             k 0 │              │
//!  column 1 │              │                 k 1 │              │             k 1 │              │
//!  …        │              │                 …   │              │             …   │              │
//!           └──────────────┘                     └──────────────┘ ◀─ distance ──▶ └──────────────┘
//!  V, as it lies in memory (keys × numbers of a head), is a right operand P·V that is MN-major; K, in Q·Kᵀ, one that is K-major.
//! ```
//!
//! Accumulators are fp32, of int8 products 32-bit integers, which wrap around.
//!
//! The products are asynchronous: [`fence`], products, [`commit`], and [`wait`](Sums::wait) before the accumulators are read. Until then
//! neither the accumulators nor the registers of A may be touched, and the tiles in shared memory must not change. The compiler does not
//! know of this; kernels keep it by passing the accumulators through [`wait`](Sums::wait).
//!
//! On the CPU a warp multiplies its 16 rows by itself; accumulators are NaNs until they have passed through a wait. How exactly the model
//! computes is told in [`mma`](crate::mma).

#[cfg(not(target_arch = "nvptx64"))]
use crate::executor::{OperandA, SharedTile};

/// Describes a tile in shared memory to `wgmma`: rows of 128 bytes, one for each row of A or column of B ("K-major"), in
/// the pattern of TMA's 128-byte swizzle, in which the eight 16-byte pieces of row r are exchanged by XOR with
/// r mod 8.
///
/// ```
/// # use tilewright_cuda_std::{examples::{run, tile_of}, wgmma::*};
/// // A tile of ones in shared memory, of which B is 8 rows of k and 16 columns.
/// let sums = run(128, || {
///     let tile = tile_of(1f32.to_bits());
///     let (mut sums, b) = ([0.0; 8], Descriptor::at(tile, 0));
///     // SAFETY: a whole warpgroup; it waits for the product before it looks at the sums.
///     unsafe {
///         fence();
///         sums.set::<Tf32>([2f32.to_bits(); 4], b);
///         commit();
///         sums.wait::<0>();
///     }
///     sums
/// });
/// assert_eq!(sums, [[16.0; 8]; 128]);
/// ```
#[derive(Clone, Copy)]
pub struct Descriptor {
    /// The lower half of the descriptor; the upper one is the same for all tiles.
    #[cfg(target_arch = "nvptx64")]
    lower: u32,
    /// Where the tile begins in the dynamic shared memory, in bytes.
    #[cfg(not(target_arch = "nvptx64"))]
    place: usize,
}

impl Descriptor {
    /// The tile that begins at element `index` of a slice, at a multiple of 1024 bytes.
    ///
    /// ```
    /// # use tilewright_cuda_std::{examples::{run, tile_of}, wgmma::*};
    /// let sums = run(128, || {
    ///     let tile = tile_of(1f32.to_bits());
    ///     // Rows 0 to 63 are A; the 16 columns of B are rows 8 to 23: 32 words each, from a multiple of 1024 bytes on.
    ///     let (mut sums, a, b) = ([0.0; 8], Descriptor::at(tile, 0), Descriptor::at(tile, 8 * 32));
    ///     // SAFETY: a whole warpgroup; it waits for the product before it looks at the sums.
    ///     unsafe {
    ///         fence();
    ///         sums.set_shared::<Tf32>(a, b);
    ///         commit();
    ///         sums.wait::<0>();
    ///     }
    ///     sums
    /// });
    /// assert_eq!(sums, [[8.0; 8]; 128]);
    /// ```
    #[inline(always)]
    #[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
    pub fn at(slice: crate::SharedSlice<f32>, index: usize) -> Self {
        #[cfg(target_arch = "nvptx64")]
        {
            // PTX ISA, "Matrix descriptor format", in units of 16 bytes: the address, and a leading-dimension offset, which
            // this swizzle ignores (1).
            Self { lower: slice.shared_address(index) >> 4 & 0x3FFF | 1 << 16 }
        }
        #[cfg(not(target_arch = "nvptx64"))]
        {
            // Eight rows: the smallest step by which a tile can be moved.
            let index = crate::executor::change_operand("Descriptor::at", index, 1024 / size_of::<f32>());
            Self { place: crate::executor::tile_place(slice.place(), index) }
        }
    }

    /// The part of the tile's rows that begins `bytes` bytes further on, a multiple of 16.
    ///
    /// ```
    /// # use tilewright_cuda_std::{examples::{run, tile_of}, wgmma::*};
    /// let sums = run(128, || {
    ///     let (tile, mut sums) = (Descriptor::at(tile_of(1f32.to_bits()), 0), [0.0; 8]);
    ///     // SAFETY: a whole warpgroup; it waits for the products before it looks at the sums.
    ///     unsafe {
    ///         fence();
    ///         // All 32 k of the rows, 8 at a time: 32 bytes.
    ///         sums.set_shared::<Tf32>(tile, tile);
    ///         (1..4).for_each(|step| sums.add_shared::<Tf32>(tile.offset(32 * step), tile.offset(32 * step)));
    ///         commit();
    ///         sums.wait::<0>();
    ///     }
    ///     sums
    /// });
    /// assert_eq!(sums, [[32.0; 8]; 128]);
    /// ```
    #[inline(always)]
    #[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
    pub fn offset(self, bytes: u32) -> Self {
        #[cfg(target_arch = "nvptx64")]
        {
            Self { lower: self.lower + (bytes >> 4) }
        }
        #[cfg(not(target_arch = "nvptx64"))]
        {
            // What one instruction multiplies of a row.
            Self { place: self.place + crate::executor::change_operand("Descriptor::offset", bytes as usize, 32) }
        }
    }
}

/// Describes a tile in shared memory whose rows of 128 bytes have 64 numbers of 16 bits each: of 64 rows of A or columns of B for one k
/// ("MN-major"), k by k, in the pattern of TMA's 128-byte swizzle. So it lies there if TMA loads it from a row-major matrix whose rows are k.
/// What there is beyond 64 rows or columns lies behind it, 64 each, at equal distances.
///
/// ```
/// # use tilewright_cuda_std::{convert, examples::{run, tile_of}, wgmma::{self, MnMajor, Sums}};
/// // A tile of ones, of which B is 16 rows of k and 16 columns, as in a row-major matrix.
/// let sums = run(128, || {
///     let ones = convert::bf16x2(1.0, 1.0);
///     let (mut sums, b) = ([0.0; 8], MnMajor::at(tile_of(ones), 0, 1024));
///     // SAFETY: a whole warpgroup; it waits for the product before it looks at the sums.
///     unsafe {
///         wgmma::fence();
///         sums.set::<wgmma::Bf16>([ones; 4], b);
///         wgmma::commit();
///         sums.wait::<0>();
///     }
///     sums
/// });
/// assert_eq!(sums, [[16.0; 8]; 128]);
/// ```
#[derive(Clone, Copy)]
pub struct MnMajor {
    /// As that of a [`Descriptor`].
    #[cfg(target_arch = "nvptx64")]
    lower: u32,
    /// Where the tile begins in the dynamic shared memory, in bytes.
    #[cfg(not(target_arch = "nvptx64"))]
    place: usize,
    /// From 64 rows or columns to the next, in bytes.
    #[cfg(not(target_arch = "nvptx64"))]
    distance: usize,
}

impl MnMajor {
    /// The rows of A or columns of B that lie side by side.
    pub const WIDTH: usize = 64;

    /// The tile that begins at element `index` of a slice, at a multiple of 1024 bytes, and whose 64 rows or columns are `distance` bytes
    /// apart from the next 64: a multiple of 1024, below 256 KB.
    ///
    /// ```
    /// # use tilewright_cuda_std::{convert, examples::{run, tile_of}, wgmma::{self, MnMajor, Sums}};
    /// // 32 columns are less than 64: nothing lies at the distance.
    /// let sums = run(128, || {
    ///     let ones = convert::f16x2(1.0, 1.0);
    ///     let (mut sums, b) = ([0.0; 16], MnMajor::at(tile_of(ones), 1024 / 4, 1024));
    ///     // SAFETY: a whole warpgroup; it waits for the product before it looks at the sums.
    ///     unsafe {
    ///         wgmma::fence();
    ///         sums.set::<wgmma::Fp16>([ones; 4], b);
    ///         wgmma::commit();
    ///         sums.wait::<0>();
    ///     }
    ///     sums
    /// });
    /// assert_eq!(sums, [[16.0; 16]; 128]);
    /// ```
    #[inline(always)]
    #[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
    pub fn at(slice: crate::SharedSlice<f32>, index: usize, distance: u32) -> Self {
        #[cfg(target_arch = "nvptx64")]
        {
            // PTX ISA, "Matrix descriptor format", in units of 16 bytes: the address, and the leading-dimension offset, which is the distance
            // of 64 rows or columns from the next in this swizzle (CUTLASS, `mma_sm90_desc.hpp`, B128 of Major-MN).
            Self { lower: slice.shared_address(index) >> 4 & 0x3FFF | (distance >> 4 & 0x3FFF) << 16 }
        }
        #[cfg(not(target_arch = "nvptx64"))]
        {
            Self {
                place: crate::executor::tile_place(slice.place(), index),
                distance: crate::executor::tile_distance(distance),
            }
        }
    }

    /// The part of the tile that begins `k` further on, a multiple of 8.
    ///
    /// ```
    /// # use tilewright_cuda_std::{convert, examples::{run, tile_of}, wgmma::{self, MnMajor, Sums}};
    /// let sums = run(128, || {
    ///     let ones = convert::bf16x2(1.0, 1.0);
    ///     let (mut sums, b) = ([0.0; 8], MnMajor::at(tile_of(ones), 0, 1024));
    ///     // SAFETY: a whole warpgroup; it waits for the products before it looks at the sums.
    ///     unsafe {
    ///         wgmma::fence();
    ///         sums.set::<wgmma::Bf16>([ones; 4], b);
    ///         sums.add::<wgmma::Bf16>([ones; 4], b.skip(16)); // the next 16 k
    ///         wgmma::commit();
    ///         sums.wait::<0>();
    ///     }
    ///     sums
    /// });
    /// assert_eq!(sums, [[32.0; 8]; 128]);
    /// ```
    #[inline(always)]
    pub fn skip(self, k: u32) -> Self {
        #[cfg(target_arch = "nvptx64")]
        {
            Self { lower: self.lower + (k << 3) }
        }
        #[cfg(not(target_arch = "nvptx64"))]
        {
            Self { place: self.place + 128 * k as usize, ..self }
        }
    }
}

/// A tile in shared memory, as `wgmma` takes it: [`Descriptor`] or [`MnMajor`].
///
/// ```
/// # use tilewright_cuda_std::{convert, examples::{run, tile_of}, wgmma::{self, Descriptor, MnMajor, Sums, Tile}};
/// /// Adds 16 k. The tile of A is K-major, that of B either.
/// unsafe fn add(sums: &mut [f32; 8], a: Descriptor, b: impl Tile) {
///     // SAFETY: the caller's promise.
///     unsafe { sums.add_shared::<wgmma::Bf16>(a, b) }
/// }
/// let sums = run(128, || {
///     let (mut sums, tile) = ([0.0; 8], tile_of(convert::bf16x2(1.0, 1.0)));
///     // SAFETY: a whole warpgroup; it waits for the products before it looks at the sums.
///     unsafe {
///         wgmma::fence();
///         add(&mut sums, Descriptor::at(tile, 0), Descriptor::at(tile, 0));
///         add(&mut sums, Descriptor::at(tile, 0), MnMajor::at(tile, 0, 1024));
///         wgmma::commit();
///         sums.wait::<0>();
///     }
///     sums
/// });
/// assert_eq!(sums, [[32.0; 8]; 128]);
/// ```
pub trait Tile: Copy + sealed::Sealed {
    /// Whether the instruction has to transpose it: 0 or 1.
    #[doc(hidden)]
    const TRANSPOSED: u32;

    /// The descriptor.
    #[doc(hidden)]
    #[cfg(target_arch = "nvptx64")]
    fn bits(self) -> u64;

    /// Where it is.
    #[doc(hidden)]
    #[cfg(not(target_arch = "nvptx64"))]
    fn place(self) -> SharedTile;
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for super::Descriptor {}
    impl Sealed for super::MnMajor {}
}

/// The upper half of a descriptor: the distance of groups of 8 rows of 128 bytes, 1024 bytes (64), and the 128-byte swizzle (1).
#[cfg(target_arch = "nvptx64")]
const UPPER: u64 = (1 << 30 | 64) << 32;

impl Tile for Descriptor {
    const TRANSPOSED: u32 = 0;

    #[inline(always)]
    #[cfg(target_arch = "nvptx64")]
    fn bits(self) -> u64 {
        UPPER | u64::from(self.lower)
    }

    #[cfg(not(target_arch = "nvptx64"))]
    fn place(self) -> SharedTile {
        SharedTile::KMajor(self.place)
    }
}

impl Tile for MnMajor {
    const TRANSPOSED: u32 = 1;

    #[inline(always)]
    #[cfg(target_arch = "nvptx64")]
    fn bits(self) -> u64 {
        UPPER | u64::from(self.lower)
    }

    #[cfg(not(target_arch = "nvptx64"))]
    fn place(self) -> SharedTile {
        SharedTile::MnMajor { place: self.place, distance: self.distance }
    }
}

/// Refuses, at compile time, tiles that are MN-major in a format whose instructions take none.
#[cfg(target_arch = "nvptx64")]
const fn require_major<F: Format, A: Tile, B: Tile>() {
    assert!(
        matches!(F::KIND, Kind::Bf16 | Kind::Fp16) || A::TRANSPOSED == 0 && B::TRANSPOSED == 0,
        "only formats of 16 bits have operands that are MN-major"
    );
}

/// The element types of a product: how `wgmma` names them, and the extent k of one instruction.
///
/// ```
/// # use tilewright_cuda_std::{convert, examples::{run, tile_of}, wgmma::{self, Descriptor, Format, Sums}};
/// /// The sums of products of ones, two or four to a word: as many as the format has k.
/// fn k_of<F: Format>(ones: u32) -> Vec<[F::Number; 8]>
/// where
///     [F::Number; 8]: Sums<Number = F::Number>,
///     F::Number: Default + Copy + Send,
/// {
///     run(128, || {
///         let (mut sums, tile) = ([F::Number::default(); 8], Descriptor::at(tile_of(ones), 0));
///         // SAFETY: a whole warpgroup; it waits for the product before it looks at the sums.
///         unsafe {
///             wgmma::fence();
///             sums.set_shared::<F>(tile, tile);
///             wgmma::commit();
///             sums.wait::<0>();
///         }
///         sums
///     })
/// }
/// assert_eq!(k_of::<wgmma::Bf16>(convert::bf16x2(1.0, 1.0)), [[16.0; 8]; 128]);
/// assert_eq!(k_of::<wgmma::Int8>(0x0101_0101), [[32; 8]; 128]);
/// ```
pub trait Format {
    /// What products are added up in.
    type Number;

    /// Which instruction it is.
    #[doc(hidden)]
    const KIND: Kind;
}

/// The instructions that there are.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Tf32,
    Bf16,
    Fp16,
    Int8,
}

/// TF32: k = 8, in 32 bits each; the low 13 bits are ignored.
///
/// ```
/// # use tilewright_cuda_std::{examples::{run, tile_of}, wgmma::{self, Descriptor, Sums}};
/// let sums = run(128, || {
///     let (mut sums, tile) = ([0.0; 8], Descriptor::at(tile_of(1f32.to_bits()), 0));
///     // SAFETY: a whole warpgroup; it waits for the products before it looks at the sums.
///     unsafe {
///         wgmma::fence();
///         sums.set_shared::<wgmma::Tf32>(tile, tile);
///         wgmma::commit();
///         sums.wait::<0>();
///     }
///     sums
/// });
/// assert_eq!(sums, [[8.0; 8]; 128]);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Tf32;
/// bf16: k = 16.
///
/// ```
/// # use tilewright_cuda_std::{convert, examples::{run, tile_of}, wgmma::{self, Descriptor, Sums}};
/// let sums = run(128, || {
///     let (mut sums, tile) = ([0.0; 8], Descriptor::at(tile_of(convert::bf16x2(1.0, 1.0)), 0));
///     // SAFETY: a whole warpgroup; it waits for the products before it looks at the sums.
///     unsafe {
///         wgmma::fence();
///         sums.set_shared::<wgmma::Bf16>(tile, tile);
///         wgmma::commit();
///         sums.wait::<0>();
///     }
///     sums
/// });
/// assert_eq!(sums, [[16.0; 8]; 128]);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Bf16;
/// fp16: k = 16.
///
/// ```
/// # use tilewright_cuda_std::{convert, examples::{run, tile_of}, wgmma::{self, Descriptor, Sums}};
/// let sums = run(128, || {
///     let (mut sums, tile) = ([0.0; 8], Descriptor::at(tile_of(convert::f16x2(1.0, 1.0)), 0));
///     // SAFETY: a whole warpgroup; it waits for the products before it looks at the sums.
///     unsafe {
///         wgmma::fence();
///         sums.set_shared::<wgmma::Fp16>(tile, tile);
///         wgmma::commit();
///         sums.wait::<0>();
///     }
///     sums
/// });
/// assert_eq!(sums, [[16.0; 8]; 128]);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Fp16;
/// Signed integers of 8 bits: k = 32. Their sums are exact, but wrap around beyond 32 bits.
///
/// ```
/// # use tilewright_cuda_std::{examples::{run, tile_of}, wgmma::{self, Descriptor, Sums}};
/// let sums = run(128, || {
///     let (mut sums, tile) = ([0i32; 8], Descriptor::at(tile_of(0x0202_0202), 0));
///     // SAFETY: a whole warpgroup; it waits for the products before it looks at the sums.
///     unsafe {
///         wgmma::fence();
///         sums.set_shared::<wgmma::Int8>(tile, tile); // 32·2·2
///         wgmma::commit();
///         sums.wait::<0>();
///     }
///     sums
/// });
/// assert_eq!(sums, [[128; 8]; 128]);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Int8;

impl Format for Tf32 {
    type Number = f32;
    const KIND: Kind = Kind::Tf32;
}
impl Format for Bf16 {
    type Number = f32;
    const KIND: Kind = Kind::Bf16;
}
impl Format for Fp16 {
    type Number = f32;
    const KIND: Kind = Kind::Fp16;
}
impl Format for Int8 {
    type Number = i32;
    const KIND: Kind = Kind::Int8;
}

/// Orders this warpgroup's accesses to registers before the products that follow (`wgmma.fence`).
///
/// ```
/// # use tilewright_cuda_std::{examples::{run, tile_of}, wgmma::{self, Descriptor, Sums}};
/// // A fence stands between what threads do with their registers and the first product.
/// let sums = run(128, || {
///     let (mut sums, tile) = ([0.0; 8], Descriptor::at(tile_of(1f32.to_bits()), 0));
///     // SAFETY: a whole warpgroup; it waits for the products before it looks at the sums.
///     unsafe {
///         wgmma::fence();
///         sums.set_shared::<wgmma::Tf32>(tile, tile);
///         sums.add_shared::<wgmma::Tf32>(tile, tile); // the same sums: no other fence
///         wgmma::commit();
///         sums.wait::<0>();
///     }
///     sums
/// });
/// assert_eq!(sums, [[16.0; 8]; 128]);
/// ```
///
/// # Safety
/// All 128 threads of the warpgroup come here together.
#[inline(always)]
#[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
pub unsafe fn fence() {
    #[cfg(target_arch = "nvptx64")]
    // SAFETY: the caller's promise.
    unsafe {
        core::arch::asm!("wgmma.fence.sync.aligned;", options(nostack, preserves_flags));
    }
    #[cfg(not(target_arch = "nvptx64"))]
    crate::executor::fence_products();
}

/// Makes the products since the last such call a group that can be waited for (`wgmma.commit_group`).
///
/// ```
/// # use tilewright_cuda_std::{examples::{run, tile_of}, wgmma::{self, Descriptor, Sums}};
/// let sums = run(128, || {
///     let (mut sums, tile) = ([0.0; 8], Descriptor::at(tile_of(1f32.to_bits()), 0));
///     // SAFETY: a whole warpgroup; it waits for the products before it looks at the sums.
///     unsafe {
///         wgmma::fence();
///         sums.set_shared::<wgmma::Tf32>(tile, tile);
///         sums.add_shared::<wgmma::Tf32>(tile, tile);
///         // Both products are a group, which the wait is for.
///         wgmma::commit();
///         sums.wait::<0>();
///     }
///     sums
/// });
/// assert_eq!(sums, [[16.0; 8]; 128]);
/// ```
///
/// # Safety
/// All 128 threads of the warpgroup come here together.
#[inline(always)]
#[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
pub unsafe fn commit() {
    #[cfg(target_arch = "nvptx64")]
    // SAFETY: the caller's promise.
    unsafe {
        core::arch::asm!("wgmma.commit_group.sync.aligned;", options(nostack, preserves_flags));
    }
    #[cfg(not(target_arch = "nvptx64"))]
    crate::executor::commit_products();
}

/// What `wgmma` adds to: 64×N accumulators, `N / 2` in each of 128 threads.
///
/// ```
/// # use tilewright_cuda_std::{convert, examples::{run, tile_of}, wgmma::{self, Descriptor, Sums}};
/// // 16 columns: 8 sums in each of 128 threads.
/// let sums = run(128, || {
///     let (mut sums, tile) = ([0.0; 8], Descriptor::at(tile_of(convert::bf16x2(1.0, 1.0)), 0));
///     // SAFETY: a whole warpgroup; it waits for the products before it looks at the sums.
///     unsafe {
///         wgmma::fence();
///         sums.set_shared::<wgmma::Bf16>(tile, tile);
///         sums.add_shared::<wgmma::Bf16>(tile, tile);
///         wgmma::commit();
///         sums.wait::<0>();
///     }
///     sums
/// });
/// assert_eq!(sums, [[32.0; 8]; 128]);
/// ```
pub trait Sums: Sized {
    /// What they are.
    type Number;

    /// Waits until at most `PENDING` groups are under way (`wgmma.wait_group`). The accumulators pass through, so that the compiler
    /// reads none of them before.
    ///
    /// ```
    /// # use tilewright_cuda_std::{examples::{run, tile_of}, wgmma::{self, Descriptor, Sums, Tf32}};
    /// let sums = run(128, || {
    ///     let (mut first, mut second, tile) = ([0.0; 8], [0.0; 8], Descriptor::at(tile_of(1f32.to_bits()), 0));
    ///     // SAFETY: a whole warpgroup; it waits for a product before it looks at its sums.
    ///     unsafe {
    ///         wgmma::fence();
    ///         first.set_shared::<Tf32>(tile, tile);
    ///         wgmma::commit();
    ///         wgmma::fence();
    ///         second.set_shared::<Tf32>(tile, tile);
    ///         wgmma::commit();
    ///         first.wait::<1>(); // the second group may still be under way
    ///         second.wait::<0>();
    ///     }
    ///     first[0] + second[0]
    /// });
    /// assert_eq!(sums, [16.0; 128]);
    /// ```
    ///
    /// # Safety
    /// All 128 threads of the warpgroup come here together.
    unsafe fn wait<const PENDING: u32>(&mut self);

    /// Sets the accumulators to A·B, with 4 registers of A and a tile of B.
    ///
    /// ```
    /// # use tilewright_cuda_std::{examples::{run, tile_of}, wgmma::{self, Descriptor, Sums}};
    /// let sums = run(128, || {
    ///     let (mut sums, tile) = ([1.0; 8], Descriptor::at(tile_of(1f32.to_bits()), 0));
    ///     // SAFETY: a whole warpgroup; it waits for the products before it looks at the sums.
    ///     unsafe {
    ///         wgmma::fence();
    ///         // A is all threes; what the sums were before is lost.
    ///         sums.set::<wgmma::Tf32>([3f32.to_bits(); 4], tile);
    ///         wgmma::commit();
    ///         sums.wait::<0>();
    ///     }
    ///     sums
    /// });
    /// assert_eq!(sums, [[24.0; 8]; 128]);
    /// ```
    ///
    /// # Safety
    /// All 128 threads of the warpgroup come here together, after [`fence`]. Until a wait for the group has returned, the
    /// tile of B does not change. The accumulators pass through that wait before they are used.
    unsafe fn set<F: Format<Number = Self::Number>>(&mut self, a: [u32; 4], b: impl Tile);

    /// Adds A·B, with 4 registers of A and a tile of B.
    ///
    /// ```
    /// # use tilewright_cuda_std::{examples::{run, tile_of}, wgmma::{self, Descriptor, Sums}};
    /// let sums = run(128, || {
    ///     let (mut sums, tile) = ([1.0; 8], Descriptor::at(tile_of(1f32.to_bits()), 0));
    ///     // SAFETY: a whole warpgroup; it waits for the products before it looks at the sums.
    ///     unsafe {
    ///         wgmma::fence();
    ///         // A is all threes.
    ///         sums.add::<wgmma::Tf32>([3f32.to_bits(); 4], tile);
    ///         wgmma::commit();
    ///         sums.wait::<0>();
    ///     }
    ///     sums
    /// });
    /// assert_eq!(sums, [[25.0; 8]; 128]);
    /// ```
    ///
    /// # Safety
    /// As for [`Sums::set`].
    unsafe fn add<F: Format<Number = Self::Number>>(&mut self, a: [u32; 4], b: impl Tile);

    /// Sets the accumulators to A·B, with both tiles in shared memory.
    ///
    /// ```
    /// # use tilewright_cuda_std::{convert, examples::{run, tile_of}, wgmma::{self, Descriptor, Sums}};
    /// let sums = run(128, || {
    ///     let (mut sums, tile) = ([1.0; 8], Descriptor::at(tile_of(convert::bf16x2(1.0, 1.0)), 0));
    ///     // SAFETY: a whole warpgroup; it waits for the products before it looks at the sums.
    ///     unsafe {
    ///         wgmma::fence();
    ///         sums.set_shared::<wgmma::Bf16>(tile, tile);
    ///         wgmma::commit();
    ///         sums.wait::<0>();
    ///     }
    ///     sums
    /// });
    /// assert_eq!(sums, [[16.0; 8]; 128]);
    /// ```
    ///
    /// # Safety
    /// As for [`Sums::set`], and the tile of A does not change either.
    unsafe fn set_shared<F: Format<Number = Self::Number>>(&mut self, a: impl Tile, b: impl Tile);

    /// Adds A·B, with both tiles in shared memory.
    ///
    /// ```
    /// # use tilewright_cuda_std::{convert, examples::{run, tile_of}, wgmma::{self, Descriptor, Sums}};
    /// let sums = run(128, || {
    ///     let (mut sums, tile) = ([1.0; 8], Descriptor::at(tile_of(convert::bf16x2(1.0, 1.0)), 0));
    ///     // SAFETY: a whole warpgroup; it waits for the products before it looks at the sums.
    ///     unsafe {
    ///         wgmma::fence();
    ///         sums.add_shared::<wgmma::Bf16>(tile, tile);
    ///         wgmma::commit();
    ///         sums.wait::<0>();
    ///     }
    ///     sums
    /// });
    /// assert_eq!(sums, [[17.0; 8]; 128]);
    /// ```
    ///
    /// # Safety
    /// As for [`Sums::set_shared`].
    unsafe fn add_shared<F: Format<Number = Self::Number>>(&mut self, a: impl Tile, b: impl Tile);
}

/// One instruction. The placeholders of an assembly template are literals, so the positions of all accumulators have to be listed.
#[cfg(target_arch = "nvptx64")]
macro_rules! instruction {
    ($n:literal, $types:literal, $modes:literal, $direction:ident, $adds:literal, $sums:ident, registers $a:ident, $b:ident,
     [$first:literal $($i:literal)*]) => {
        core::arch::asm!(
            concat!("{{ .reg .pred add; setp.ne.u32 add, ", $adds, ", 0;"),
            concat!("wgmma.mma_async.sync.aligned.m64n", $n, $types),
            concat!("{{ {", $first, "}", $(", {", $i, "}",)* " }},"),
            concat!("{{ {a0}, {a1}, {a2}, {a3} }}, {b}, add", $modes, "; }}"),
            $direction(reg32) $sums[$first], $($direction(reg32) $sums[$i],)*
            a0 = in(reg32) $a[0], a1 = in(reg32) $a[1], a2 = in(reg32) $a[2], a3 = in(reg32) $a[3], b = in(reg64) $b.bits(),
            tb = const B::TRANSPOSED,
            options(nostack, preserves_flags),
        )
    };
    ($n:literal, $types:literal, $modes:literal, $direction:ident, $adds:literal, $sums:ident, shared $a:ident, $b:ident,
     [$first:literal $($i:literal)*]) => {
        core::arch::asm!(
            concat!("{{ .reg .pred add; setp.ne.u32 add, ", $adds, ", 0;"),
            concat!("wgmma.mma_async.sync.aligned.m64n", $n, $types),
            concat!("{{ {", $first, "}", $(", {", $i, "}",)* " }}, {a}, {b}, add", $modes, "; }}"),
            $direction(reg32) $sums[$first], $($direction(reg32) $sums[$i],)*
            a = in(reg64) $a.bits(), b = in(reg64) $b.bits(), ta = const A::TRANSPOSED, tb = const B::TRANSPOSED,
            options(nostack, preserves_flags),
        )
    };
}

/// Waits for groups of products, for accumulators at these positions.
#[cfg(target_arch = "nvptx64")]
macro_rules! wait {
    ($sums:ident, $pending:ident, [$first:literal $($i:literal)*]) => {
        core::arch::asm!(
            concat!("wgmma.wait_group.sync.aligned {pending}; // {", $first, "}", $(" {", $i, "}",)*),
            inout(reg32) $sums[$first], $(inout(reg32) $sums[$i],)* pending = const $pending,
            options(nostack, preserves_flags),
        )
    };
}

/// Implements [`Sums`] for a 64×`n` result, of which each thread has `count` accumulators, at `positions`. For each kind of product:
/// the types, and the modes that follow for A in registers and for A in shared memory.
#[cfg(target_arch = "nvptx64")]
macro_rules! sums {
    ($number:ident, $n:literal, $count:literal, $positions:tt,
     $($kind:ident $types:literal $registers:literal $shared:literal;)*) => {
        impl Sums for [$number; $count] {
            type Number = $number;

            #[inline(always)]
            unsafe fn wait<const PENDING: u32>(&mut self) {
                // SAFETY: the caller's promise; the values pass through unchanged.
                unsafe { wait!(self, PENDING, $positions) }
            }

            #[inline(always)]
            unsafe fn set<F: Format<Number = $number>>(&mut self, a: [u32; 4], b: impl Tile) {
                // Its parameters have names, which the instruction needs.
                #[inline(always)]
                unsafe fn issue<F: Format, B: Tile>(sums: &mut [$number; $count], a: [u32; 4], b: B) {
                    const { require_major::<F, Descriptor, B>() };
                    // SAFETY: the caller's promise.
                    unsafe {
                        match F::KIND {
                            $(Kind::$kind => instruction!($n, $types, $registers, out, "0", sums, registers a, b, $positions),)*
                            // The others have sums of another type.
                            _ => {}
                        }
                    }
                }
                // SAFETY: the caller's promise.
                unsafe { issue::<F, _>(self, a, b) }
            }

            #[inline(always)]
            unsafe fn add<F: Format<Number = $number>>(&mut self, a: [u32; 4], b: impl Tile) {
                // Its parameters have names, which the instruction needs.
                #[inline(always)]
                unsafe fn issue<F: Format, B: Tile>(sums: &mut [$number; $count], a: [u32; 4], b: B) {
                    const { require_major::<F, Descriptor, B>() };
                    // SAFETY: the caller's promise.
                    unsafe {
                        match F::KIND {
                            $(Kind::$kind => instruction!($n, $types, $registers, inout, "1", sums, registers a, b, $positions),)*
                            // The others have sums of another type.
                            _ => {}
                        }
                    }
                }
                // SAFETY: the caller's promise.
                unsafe { issue::<F, _>(self, a, b) }
            }

            #[inline(always)]
            unsafe fn set_shared<F: Format<Number = $number>>(&mut self, a: impl Tile, b: impl Tile) {
                // Its parameters have names, which the instruction needs.
                #[inline(always)]
                unsafe fn issue<F: Format, A: Tile, B: Tile>(sums: &mut [$number; $count], a: A, b: B) {
                    const { require_major::<F, A, B>() };
                    // SAFETY: the caller's promise.
                    unsafe {
                        match F::KIND {
                            $(Kind::$kind => instruction!($n, $types, $shared, out, "0", sums, shared a, b, $positions),)*
                            // The others have sums of another type.
                            _ => {}
                        }
                    }
                }
                // SAFETY: the caller's promise.
                unsafe { issue::<F, _, _>(self, a, b) }
            }

            #[inline(always)]
            unsafe fn add_shared<F: Format<Number = $number>>(&mut self, a: impl Tile, b: impl Tile) {
                // Its parameters have names, which the instruction needs.
                #[inline(always)]
                unsafe fn issue<F: Format, A: Tile, B: Tile>(sums: &mut [$number; $count], a: A, b: B) {
                    const { require_major::<F, A, B>() };
                    // SAFETY: the caller's promise.
                    unsafe {
                        match F::KIND {
                            $(Kind::$kind => instruction!($n, $types, $shared, inout, "1", sums, shared a, b, $positions),)*
                            // The others have sums of another type.
                            _ => {}
                        }
                    }
                }
                // SAFETY: the caller's promise.
                unsafe { issue::<F, _, _>(self, a, b) }
            }
        }
    };
}

/// [`sums`] in fp32.
#[cfg(target_arch = "nvptx64")]
macro_rules! fp32_sums {
    ($n:literal, $count:literal, $positions:tt) => {
        sums!(f32, $n, $count, $positions,
            Tf32 "k8.f32.tf32.tf32" ", 1, 1 /* {tb} */" ", 1, 1 /* {ta} {tb} */";
            Bf16 "k16.f32.bf16.bf16" ", 1, 1, {tb}" ", 1, 1, {ta}, {tb}";
            Fp16 "k16.f32.f16.f16" ", 1, 1, {tb}" ", 1, 1, {ta}, {tb}";);
    };
}

/// [`sums`] in integers.
#[cfg(target_arch = "nvptx64")]
macro_rules! integer_sums {
    ($n:literal, $count:literal, $positions:tt) => {
        sums!(i32, $n, $count, $positions, Int8 "k32.s32.s8.s8" " /* {tb} */" " /* {ta} {tb} */";);
    };
}

#[cfg(target_arch = "nvptx64")]
fp32_sums!(16, 8, [0 1 2 3 4 5 6 7]);
#[cfg(target_arch = "nvptx64")]
fp32_sums!(32, 16, [0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15]);
#[cfg(target_arch = "nvptx64")]
#[rustfmt::skip]
fp32_sums!(64, 32, [0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31]);
#[cfg(target_arch = "nvptx64")]
#[rustfmt::skip]
fp32_sums!(128, 64, [
            0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31 32 33 34 35 36 37 38
            39 40 41 42 43 44 45 46 47 48 49 50 51 52 53 54 55 56 57 58 59 60 61 62 63]);

#[cfg(target_arch = "nvptx64")]
#[rustfmt::skip]
fp32_sums!(160, 80, [
            0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31 32 33 34 35 36 37 38
            39 40 41 42 43 44 45 46 47 48 49 50 51 52 53 54 55 56 57 58 59 60 61 62 63 64 65 66 67 68 69 70 71 72 73 74
            75 76 77 78 79]);
#[cfg(target_arch = "nvptx64")]
#[rustfmt::skip]
fp32_sums!(176, 88, [
            0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31 32 33 34 35 36 37 38
            39 40 41 42 43 44 45 46 47 48 49 50 51 52 53 54 55 56 57 58 59 60 61 62 63 64 65 66 67 68 69 70 71 72 73
            74 75 76 77 78 79 80 81 82 83 84 85 86 87]);
#[cfg(target_arch = "nvptx64")]
#[rustfmt::skip]
fp32_sums!(192, 96, [
            0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31 32 33 34 35 36 37 38
            39 40 41 42 43 44 45 46 47 48 49 50 51 52 53 54 55 56 57 58 59 60 61 62 63 64 65 66 67 68 69 70 71 72 73 74
            75 76 77 78 79 80 81 82 83 84 85 86 87 88 89 90 91 92 93 94 95]);
/// With the positions of 128 accumulators.
#[cfg(target_arch = "nvptx64")]
#[rustfmt::skip]
macro_rules! of_128 {
    ($sums:ident) => {
        $sums!(256, 128, [
            0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31 32 33 34 35 36 37 38
            39 40 41 42 43 44 45 46 47 48 49 50 51 52 53 54 55 56 57 58 59 60 61 62 63 64 65 66 67 68 69 70 71 72 73
            74 75 76 77 78 79 80 81 82 83 84 85 86 87 88 89 90 91 92 93 94 95 96 97 98 99 100 101 102 103 104 105 106
            107 108 109 110 111 112 113 114 115 116 117 118 119 120 121 122 123 124 125 126 127]);
    };
}

#[cfg(target_arch = "nvptx64")]
of_128!(fp32_sums);
#[cfg(target_arch = "nvptx64")]
of_128!(integer_sums);

/// Implements [`Sums`] for any number of accumulators.
#[cfg(not(target_arch = "nvptx64"))]
macro_rules! modelled_sums {
    ($($number:ident)*) => { $(
        impl<const COUNT: usize> Sums for [$number; COUNT] {
            type Number = $number;

            #[track_caller]
            unsafe fn wait<const PENDING: u32>(&mut self) {
                crate::executor::wait_for_products(self, PENDING.into());
            }

            #[track_caller]
            unsafe fn set<F: Format<Number = $number>>(&mut self, a: [u32; 4], b: impl Tile) {
                crate::executor::multiply(self, F::KIND, OperandA::Registers(a), b.place(), false);
            }

            #[track_caller]
            unsafe fn add<F: Format<Number = $number>>(&mut self, a: [u32; 4], b: impl Tile) {
                crate::executor::multiply(self, F::KIND, OperandA::Registers(a), b.place(), true);
            }

            #[track_caller]
            unsafe fn set_shared<F: Format<Number = $number>>(&mut self, a: impl Tile, b: impl Tile) {
                crate::executor::multiply(self, F::KIND, OperandA::Shared(a.place()), b.place(), false);
            }

            #[track_caller]
            unsafe fn add_shared<F: Format<Number = $number>>(&mut self, a: impl Tile, b: impl Tile) {
                crate::executor::multiply(self, F::KIND, OperandA::Shared(a.place()), b.place(), true);
            }
        }
    )* };
}

#[cfg(not(target_arch = "nvptx64"))]
modelled_sums!(f32 i32);
