//! Products with few columns, or few rows, which are the columns of the transposes: [`gpu_kernels::gemm::narrow`].

use gpu_kernels::gemm::narrow::cuda_cores::*;
use gpu_kernels::gemm::narrow::tensor_cores::*;
use gpu_kernels::gemm::tiles::TiledGemm;

use super::contract::{Call, Contract, Copies, KernelInfo, Performance};
use super::scheme::{Scheme, SumOrder};
use super::tiled::Common;
use crate::description::Description;
use crate::order::Order::{ColumnMajor, RowMajor};
use crate::refusal::Refusal;
use crate::{Device, Error, Sizes};

/// The contract: at most so many columns, which are at most so far apart. B, which is small, is copied where it is not column-major.
#[derive(Debug)]
struct Narrow {
    launch: fn(&Device, TiledGemm<'_>) -> Result<(), Error>,
    most_columns: usize,
    most_pitch_of_b: u64,
}

impl Contract for Narrow {
    fn launch(&self, device: &Device, call: &Call<'_>) -> Result<(), Error> {
        (self.launch)(device, call.gemm)
    }

    fn copies(&self) -> Copies {
        Copies::Everything
    }

    fn most(&self) -> Sizes {
        Sizes { m: usize::MAX, n: self.most_columns, k: usize::MAX }
    }

    fn refusal(&self, product: &Description) -> Option<Refusal> {
        if product.n == 1 {
            return Some(Refusal::OneColumn);
        }
        // The columns of a copy are as far apart as they are long, and a multiple of four.
        let is_read = product.b.order() == Some(ColumnMajor);
        let pitch = if is_read { product.b.col_stride as u64 } else { (product.k as u64).next_multiple_of(4) };
        (pitch > self.most_pitch_of_b).then_some(Refusal::FarColumns { most: self.most_pitch_of_b })
    }
}

/// On CUDA cores, for at most so many columns: a lane has so many fused operations for each number of A. Where lines begin anywhere, rows of A are read in vectors
/// all the same, but columns of B are not, or columns of A.
const fn on_cuda_cores(most_columns: u32) -> Common {
    Common {
        idea: "few columns: A is read once, four rows and all columns to a lane",
        scheme: Scheme::Fp32,
        sums: SumOrder::Own,
        tile: tile_on_cuda_cores(most_columns),
        performance: Performance::new(1, 0.42)
            .block_that_waits(1.6)
            .unaligned(1.92)
            .by_columns(1.0, 1.25)
            .alone(2.1, 1.2)
            .parts_of_steps(8)
            .columns_by_elements(),
    }
}

/// On tensor cores, so many columns at a time.
const fn on_tensor_cores(columns: u32, performance: Performance) -> Common {
    Common {
        idea: "some tens of columns: A is read once, and a warp has 64 rows of 16 k at a time",
        scheme: Scheme::Fp32ThreeTf32,
        sums: SumOrder::Slices { warps: 8 },
        tile: tile_on_tensor_cores(columns),
        performance: performance.parts_of_steps(8),
    }
}

/// The kernels for A row-major, and column-major: what is common to those for other sizes, the most columns that they take, and how far apart.
macro_rules! narrow_kernels {
    ($($name:ident $common:expr, $most:expr, $pitch:expr, $nt:ident $tt:ident, $doc:literal;)*) => { $(
        #[doc = $doc]
        pub static $name: [KernelInfo; 2] = [
            $common.of($nt::FACTS, RowMajor, ColumnMajor, &Narrow {
                launch: |device, gemm| device.launch($nt { gemm }),
                most_columns: $most,
                most_pitch_of_b: $pitch,
            }),
            $common.of($tt::FACTS, ColumnMajor, ColumnMajor, &Narrow {
                launch: |device, gemm| device.launch($tt { gemm }),
                most_columns: $most,
                most_pitch_of_b: $pitch,
            }),
        ];
    )* };
}

/// For 16 columns at a time, and for 32.
const SIXTEEN: Performance =
    Performance::new(1, 0.219).block(2.83).unaligned_but_for_pairs(1.8).by_columns(0.834, 1.0).repeated(1.7);
const THIRTY_TWO: Performance =
    Performance::new(1, 0.299).block(4.5).unaligned_but_for_pairs(1.49).by_columns(0.88, 1.0).repeated(1.5);

narrow_kernels! {
    NARROW_2 on_cuda_cores(2), 2, MAX_PITCH_OF_B,
        gemm_narrow_2_nt_fp32 gemm_narrow_2_tt_fp32, "For at most 2 columns.";
    NARROW_4 on_cuda_cores(4), 4, MAX_PITCH_OF_B,
        gemm_narrow_4_nt_fp32 gemm_narrow_4_tt_fp32, "For at most 4 columns.";
    NARROW_8 on_cuda_cores(8), 8, MAX_PITCH_OF_B,
        gemm_narrow_8_nt_fp32 gemm_narrow_8_tt_fp32, "For at most 8 columns.";
    NARROW_16 on_cuda_cores(16), 16, MAX_PITCH_OF_B,
        gemm_narrow_16_nt_fp32 gemm_narrow_16_tt_fp32, "For at most 16 columns.";
    NARROW_16_3XTF32 on_tensor_cores(16, SIXTEEN), usize::MAX, u64::MAX,
        gemm_narrow_16_nt_fp32_3xtf32 gemm_narrow_16_tt_fp32_3xtf32, "For 16 columns at a time.";
    NARROW_32_3XTF32 on_tensor_cores(32, THIRTY_TWO), usize::MAX, u64::MAX,
        gemm_narrow_32_nt_fp32_3xtf32 gemm_narrow_32_tt_fp32_3xtf32, "For 32 columns at a time.";
}
