//! Sums of few terms, whose time is that of writing C: [`gpu_kernels::gemm::outer`]. They take operands in any layout.

use gpu_kernels::epilogue::Steps;
use gpu_kernels::gemm::outer::*;
use gpu_kernels::gemm::tiles::{TileShape, TiledGemm};

use super::contract::{Call, Contract, KernelInfo, Performance, Stores};
use super::scheme::{Scheme, SumOrder};
use super::tiled::Common;
use crate::{Device, Error, Sizes};

/// The contract: at most so many terms.
#[derive(Debug)]
struct Outer {
    launch: for<'a> fn(&Device, TiledGemm<'a>, Steps<'a>) -> Result<(), Error>,
    stores: Stores,
    most_terms: u32,
}

impl Contract for Outer {
    fn launch(&self, device: &Device, call: &Call<'_>) -> Result<(), Error> {
        (self.launch)(device, call.gemm, call.steps)
    }

    fn does_steps(&self) -> bool {
        true
    }

    fn most(&self) -> Sizes {
        Sizes { m: usize::MAX, n: usize::MAX, k: self.most_terms as usize }
    }

    fn stores(&self) -> Stores {
        self.stores
    }
}

/// What the kernels have in common. A block costs little more than the latency of memory, once there and once back.
const fn outer(tile: TileShape, performance: Performance) -> Common {
    Common {
        idea: "few terms: B in registers, and row by row of C, which blocks store in whole lines of memory",
        scheme: Scheme::Fp32,
        sums: SumOrder::OneByOne,
        tile,
        performance,
    }
}

/// Registers the kernels: the tile of each, how fast it is, how results are stored, and the most terms.
macro_rules! outer_kernels {
    ($($kernel:ident $tile:ident $performance:expr, $stores:ident $most_terms:expr;)*) => {
        /// Tiles of 16, 32, 256 and 1024 columns.
        pub static OUTER: [KernelInfo; 4] = [$(
            outer($tile, $performance).of_any_layout(
                $kernel::FACTS,
                &Outer {
                    launch: |device, gemm, steps| device.launch($kernel { gemm, steps }),
                    stores: Stores::$stores,
                    most_terms: $most_terms,
                },
            ),
        )*];
    };
}

outer_kernels! {
    gemm_outer_16_fp32 TILE_16 Performance::new(2, 0.37).block(2.3).unaligned(1.3), Rows MOST_TERMS[1];
    gemm_outer_32_fp32 TILE_32 Performance::new(2, 0.327).block(1.72).unaligned(1.5), Rows MOST_TERMS[1];
    gemm_outer_256_fp32 TILE_256 Performance::new(3, 0.69).block(2.33).unaligned(1.1).old_values(0.9), WholeRows MOST_TERMS[0];
    gemm_outer_1024_fp32 TILE_1024 Performance::new(2, 0.707).block(5.03).unaligned(1.04), WholeRows MOST_TERMS[1];
}
