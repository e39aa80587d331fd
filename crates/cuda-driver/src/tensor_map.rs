//! Tensor maps: descriptions of arrays in a GPU's memory, from which TMA loads tiles.
//!
//! ```text
//!              ◀── extent 0 ──▶
//!             ┌────────┬───────┐─ ─ ▲                         tile 0 elements of a line side by side,
//!   address ▶ │ tile   │       │    │ byte stride 1           tile 1 lines,
//!             ├────────┘       │─ ─ ▼                         tile 2 of what they make up, and so on;
//!             │      ┌────────┐│                              what lies outside of the extents is zero
//!             └──────┴────────┴┘ ▲
//!   and extent 2 of these, byte stride 2 apart
//! ```

use std::fmt;

use gpu_facts::ComputeCapability;

use crate::driver_call::DriverCall;

/// What TMA takes the elements for. It matters where it rounds them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TensorElement {
    /// IEEE 754 binary16.
    Fp16,
    /// bfloat16.
    Bf16,
    /// IEEE 754 binary32, copied as it is. A tensor core that takes it for TF32 ignores the low 13 bits.
    Fp32,
    /// IEEE 754 binary32 in memory, rounded to TF32 on the way: to nearest, ties to even.
    Tf32,
}

impl TensorElement {
    /// The size of an element in memory, in bytes.
    pub const fn bytes(self) -> u64 {
        match self {
            Self::Fp16 | Self::Bf16 => 2,
            Self::Fp32 | Self::Tf32 => 4,
        }
    }

    /// The value of `CUtensorMapDataType`.
    pub(crate) const fn code(self) -> u32 {
        match self {
            Self::Fp16 => 6,
            Self::Fp32 => 7,
            Self::Bf16 => 9,
            Self::Tf32 => 11,
        }
    }
}

/// How a tile's 16-byte pieces are exchanged in shared memory, so that columns of it are read without bank conflicts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TensorSwizzle {
    /// Lines of a tile lie one after the other.
    None,
    /// Lines of 128 bytes; the number of a 16-byte piece in its line is xored with the line's number modulo 8.
    Bytes128,
}

/// How much the second-level cache fetches at least.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum L2Promotion {
    /// 128 bytes.
    Bytes128,
    /// 256 bytes.
    Bytes256,
}

/// One dimension of an array, and of its tiles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TensorDimension {
    /// The elements of the array in this dimension: 1 to 2³².
    pub extent: u64,
    /// The bytes from one to the next. In the first dimension that is the size of an element; in the others a multiple of
    /// 16 below 2⁴⁰.
    pub byte_stride: u64,
    /// The elements of a tile in this dimension: 1 to 256. In the first dimension they make up a multiple of 16 bytes, and
    /// with [`TensorSwizzle::Bytes128`] 128: TMA would leave gaps behind shorter ones.
    pub tile: u32,
}

/// An array in a GPU's memory, and the tiles that it is loaded in.
#[derive(Clone, Copy, Debug)]
pub struct TiledTensor<'a> {
    /// What the elements are.
    pub element: TensorElement,
    /// The address of the first, a multiple of 16.
    pub address: u64,
    /// One to five dimensions, that of neighbouring elements first.
    pub dimensions: &'a [TensorDimension],
    /// How tiles lie in shared memory.
    pub swizzle: TensorSwizzle,
    /// What the second-level cache fetches.
    pub l2_promotion: L2Promotion,
}

/// What a kernel receives: 128 bytes that only TMA understands, aligned as it needs them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C, align(64))]
pub struct EncodedTensorMap {
    /// The bytes, as numbers of 8.
    pub words: [u64; 16],
}

/// Why an array cannot be described by a tensor map.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TensorMapFault {
    /// The GPU has no TMA (its compute capability is below 9.0).
    #[error("tensor maps need compute capability 9.0 or newer, and {device} has {compute_capability}")]
    IncapableDevice {
        /// The name of the GPU.
        device: String,
        /// What it has.
        compute_capability: ComputeCapability,
    },
    /// Another number of dimensions than one to five.
    #[error("a tensor map has 1 to 5 dimensions, not {0}")]
    Rank(usize),
    /// The array begins where TMA cannot begin.
    #[error("the array's address {0:#x} is not a multiple of 16: copy it to where it is")]
    Address(u64),
    /// A dimension without elements, or with too many.
    #[error("dimension {dimension} has {extent} elements: they have to be 1 to 4294967296 (2^32)")]
    Extent {
        /// The dimension, from 0.
        dimension: usize,
        /// Its extent.
        extent: u64,
    },
    /// The first dimension's elements are not neighbours.
    #[error(
        "elements of dimension 0 are {byte_stride} bytes apart, not {element_bytes}: a tensor map's first dimension is the \
         one whose elements are neighbours in memory"
    )]
    Apart {
        /// The bytes from one to the next.
        byte_stride: u64,
        /// The size of an element.
        element_bytes: u64,
    },
    /// A stride that TMA cannot make.
    #[error(
        "elements of dimension {dimension} are {byte_stride} bytes apart: a tensor map's strides are multiples of 16 bytes \
         below 1099511627776 (2^40). Copy the array to where its lines begin at such distances"
    )]
    Stride {
        /// The dimension, from 0.
        dimension: usize,
        /// The bytes from one to the next.
        byte_stride: u64,
    },
    /// A tile that is empty or too large.
    #[error("a tile has {tile} elements in dimension {dimension}: they have to be 1 to 256")]
    Tile {
        /// The dimension, from 0.
        dimension: usize,
        /// The tile's elements in it.
        tile: u32,
    },
    /// Lines of a tile that cannot be laid out in shared memory.
    #[error("lines of a tile have {bytes} bytes: they have to be a multiple of 16, and 128 with the swizzle of 128")]
    TileLine {
        /// Their size in bytes.
        bytes: u64,
    },
    /// Images have another number of dimensions than four.
    #[error("a tensor map of images has 4 dimensions, channels, columns, rows and images, not {0}")]
    ImageRank(usize),
    /// A tile of several pixels in a dimension: they are counted otherwise.
    #[error("a tile of images has {tile} in dimension {dimension}: it has to be 1, and pixels are counted apart")]
    ImageTile {
        /// The dimension, from 0.
        dimension: usize,
        /// The tile's elements in it.
        tile: u32,
    },
    /// A filter without taps, or whose last tap is further from the first one than TMA reaches.
    #[error(
        "a filter has {taps} taps, {dilation} apart, in dimension {dimension}: there has to be one, and TMA reaches 255 pixels"
    )]
    Reach {
        /// The dimension, from 0.
        dimension: usize,
        /// The taps.
        taps: u32,
        /// From one to the next.
        dilation: u32,
    },
    /// Corners that TMA cannot have, or between which there is no pixel.
    #[error(
        "base pixels of dimension {dimension}, which has {extent}, begin at {lower} and end {upper} behind its end: both have to be -128 to \
         127, with a pixel between them"
    )]
    Corners {
        /// The dimension, from 0: 1 for columns, 2 for rows.
        dimension: usize,
        /// The lower corner.
        lower: i32,
        /// The upper corner.
        upper: i32,
        /// The pixels of the dimension.
        extent: u64,
    },
    /// A step from one base pixel to the next that TMA cannot take.
    #[error("base pixels of dimension {dimension} are {step} apart: they have to be 1 to 8")]
    Step {
        /// The dimension, from 0.
        dimension: usize,
        /// The step.
        step: u32,
    },
    /// No pixels, or too many.
    #[error("{0} pixels are to be loaded at a time: they have to be 1 to 1024")]
    Pixels(u32),
    /// The driver refuses, for a reason that it does not give.
    #[error("{0}")]
    Refused(DriverCall),
}

/// An array that cannot be described by a tensor map, and why.
#[derive(Clone, Debug)]
pub struct TensorMapRejected {
    /// What is wrong.
    pub fault: TensorMapFault,
    /// The elements.
    pub element: TensorElement,
    /// The address of the first.
    pub address: u64,
    /// All dimensions.
    pub dimensions: Vec<TensorDimension>,
}

impl fmt::Display for TensorMapRejected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |value: fn(&TensorDimension) -> u64| {
            self.dimensions.iter().map(|dimension| value(dimension).to_string()).collect::<Vec<_>>().join(" x ")
        };
        write!(
            f,
            "there is no tensor map for {} elements of {:?} at {:#x} in tiles of {}: {}",
            list(|dimension| dimension.extent),
            self.element,
            self.address,
            list(|dimension| u64::from(dimension.tile)),
            self.fault
        )
    }
}

impl TiledTensor<'_> {
    /// Checks everything that is documented of a tensor map.
    ///
    /// # Errors
    /// The first thing that is not so.
    pub fn check(&self) -> Result<(), TensorMapFault> {
        if !(1..=5).contains(&self.dimensions.len()) {
            return Err(TensorMapFault::Rank(self.dimensions.len()));
        }
        if !self.address.is_multiple_of(16) {
            return Err(TensorMapFault::Address(self.address));
        }
        let element_bytes = self.element.bytes();
        for (dimension, &TensorDimension { extent, byte_stride, tile }) in self.dimensions.iter().enumerate() {
            if !(1..=1 << 32).contains(&extent) {
                return Err(TensorMapFault::Extent { dimension, extent });
            }
            if !(1..=256).contains(&tile) {
                return Err(TensorMapFault::Tile { dimension, tile });
            }
            if dimension == 0 {
                if byte_stride != element_bytes {
                    return Err(TensorMapFault::Apart { byte_stride, element_bytes });
                }
                let bytes = u64::from(tile) * element_bytes;
                if !bytes.is_multiple_of(16) || (self.swizzle == TensorSwizzle::Bytes128 && bytes != 128) {
                    return Err(TensorMapFault::TileLine { bytes });
                }
            } else if !byte_stride.is_multiple_of(16) || byte_stride >= 1 << 40 {
                return Err(TensorMapFault::Stride { dimension, byte_stride });
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MATRIX: [TensorDimension; 2] = [
        TensorDimension { extent: 1000, byte_stride: 4, tile: 32 },
        TensorDimension { extent: 300, byte_stride: 4016, tile: 128 },
    ];

    fn check(change: impl FnOnce(&mut TiledTensor<'_>, &mut Vec<TensorDimension>)) -> Result<(), TensorMapFault> {
        let mut dimensions = MATRIX.to_vec();
        let mut tensor = TiledTensor {
            element: TensorElement::Tf32,
            address: 1 << 40,
            dimensions: &[],
            swizzle: TensorSwizzle::Bytes128,
            l2_promotion: L2Promotion::Bytes256,
        };
        change(&mut tensor, &mut dimensions);
        TiledTensor { dimensions: &dimensions, ..tensor }.check()
    }

    #[test]
    fn takes_what_tma_takes() {
        assert_eq!(check(|_, _| {}), Ok(()));
        assert_eq!(check(|_, dimensions| dimensions[1].extent = 1 << 32), Ok(()));
        assert_eq!(check(|_, dimensions| dimensions[1].byte_stride = (1 << 40) - 16), Ok(()));
        assert_eq!(check(|_, dimensions| dimensions[1].tile = 256), Ok(()));
        assert_eq!(check(|_, dimensions| dimensions.extend([MATRIX[1]; 3])), Ok(()));
        // All matrices of a batch may be one and the same.
        assert_eq!(check(|_, dimensions| dimensions[1].byte_stride = 0), Ok(()));
        let halves = |tensor: &mut TiledTensor<'_>, dimensions: &mut Vec<TensorDimension>| {
            tensor.element = TensorElement::Bf16;
            (dimensions[0].byte_stride, dimensions[0].tile) = (2, 64);
        };
        assert_eq!(check(halves), Ok(()));
        assert_eq!(
            check(|tensor, dimensions| {
                tensor.swizzle = TensorSwizzle::None;
                dimensions[0].tile = 256;
            }),
            Ok(())
        );
    }

    #[test]
    fn names_what_it_does_not_take() {
        use TensorMapFault::*;
        assert_eq!(check(|_, dimensions| dimensions.clear()), Err(Rank(0)));
        assert_eq!(check(|_, dimensions| dimensions.extend([MATRIX[1]; 4])), Err(Rank(6)));
        assert_eq!(check(|tensor, _| tensor.address += 8), Err(Address((1 << 40) + 8)));
        assert_eq!(check(|_, d| d[0].extent = 0), Err(Extent { dimension: 0, extent: 0 }));
        let extent = (1 << 32) + 1;
        assert_eq!(check(|_, d| d[1].extent = extent), Err(Extent { dimension: 1, extent }));
        assert_eq!(check(|_, d| d[0].byte_stride = 8), Err(Apart { byte_stride: 8, element_bytes: 4 }));
        for byte_stride in [4008, 1 << 40] {
            assert_eq!(check(|_, d| d[1].byte_stride = byte_stride), Err(Stride { dimension: 1, byte_stride }));
        }
        for tile in [0, 257] {
            assert_eq!(check(|_, d| d[1].tile = tile), Err(Tile { dimension: 1, tile }));
        }
        assert_eq!(check(|_, d| d[0].tile = 36), Err(TileLine { bytes: 144 }));
        assert_eq!(check(|_, d| d[0].tile = 6), Err(TileLine { bytes: 24 }));
        assert_eq!(check(|_, d| d[0].tile = 16), Err(TileLine { bytes: 64 }));
    }
}
