//! Products with few columns, or few rows, which are the columns of the transposes: [`gpu_kernels::gemm::narrow`].

use gpu_kernels::gemm::narrow::*;
use gpu_kernels::gemm::tiles::TiledGemm;

use super::contract::{Call, Contract, Copies, KernelInfo, Performance};
use super::scheme::Scheme;
use super::tiled::Common;
use crate::description::Description;
use crate::order::Order::{self, ColumnMajor, RowMajor};
use crate::refusal::Refusal;
use crate::{Device, Error, Sizes};

/// The contract: at most so many columns. B, which is small, is copied where it is not column-major.
#[derive(Debug)]
struct Narrow {
    launch: fn(&Device, TiledGemm<'_>) -> Result<(), Error>,
    most_columns: u32,
}

impl Contract for Narrow {
    fn launch(&self, device: &Device, call: &Call<'_>) -> Result<(), Error> {
        (self.launch)(device, call.gemm)
    }

    fn copies(&self) -> Copies {
        Copies::Everything
    }

    fn most(&self) -> Sizes {
        Sizes { m: usize::MAX, n: self.most_columns as usize, k: usize::MAX }
    }

    fn refusal(&self, product: &Description) -> Option<Refusal> {
        if product.n == 1 && product.batch == 1 {
            return Some(Refusal::OneColumn);
        }
        let is_far = product.b.order() == Some(ColumnMajor) && product.b.col_stride as u64 > MAX_PITCH_OF_B;
        is_far.then_some(Refusal::FarColumns { most: MAX_PITCH_OF_B })
    }
}

/// What the kernels for so many columns have in common. The share of the peak is that of a block whose loads alone count, a
/// quarter of a microsecond for 32×128 elements of A, or, for 16 columns, that of its operations.
const fn common(most_columns: u32, share_of_peak: f64) -> Common {
    Common {
        idea: "few columns: A is read once, four rows and all columns to a lane",
        scheme: Scheme::Fp32,
        tile: tile(most_columns),
        performance: Performance { blocks_per_multiprocessor: 1, share_of_peak },
    }
}

/// The kernels for so many columns: A row-major, and column-major.
macro_rules! narrow_kernels {
    ($($name:ident $columns:literal $share:literal $nt:ident $tt:ident, $doc:literal;)*) => { $(
        #[doc = $doc]
        pub static $name: [KernelInfo; 2] = {
            const fn of(a: Order, facts: cuda_std::KernelFacts, contract: &'static Narrow) -> KernelInfo {
                common($columns, $share).of(facts, a, ColumnMajor, contract)
            }
            [
                of(RowMajor, $nt::FACTS, &Narrow {
                    launch: |device, gemm| device.launch($nt { gemm }),
                    most_columns: $columns,
                }),
                of(ColumnMajor, $tt::FACTS, &Narrow {
                    launch: |device, gemm| device.launch($tt { gemm }),
                    most_columns: $columns,
                }),
            ]
        };
    )* };
}

narrow_kernels! {
    NARROW_2 2 0.15 gemm_narrow_2_nt_fp32 gemm_narrow_2_tt_fp32, "For at most 2 columns.";
    NARROW_4 4 0.3 gemm_narrow_4_nt_fp32 gemm_narrow_4_tt_fp32, "For at most 4 columns.";
    NARROW_8 8 0.6 gemm_narrow_8_nt_fp32 gemm_narrow_8_tt_fp32, "For at most 8 columns.";
    NARROW_16 16 0.7 gemm_narrow_16_nt_fp32 gemm_narrow_16_tt_fp32, "For at most 16 columns.";
}
