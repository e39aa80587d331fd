//! Sums of few terms, whose time is that of writing C: [`gpu_kernels::gemm::outer`]. They take operands in any layout.

use gpu_kernels::gemm::outer::*;
use gpu_kernels::gemm::tiles::{TileShape, TiledGemm};

use super::contract::{Call, Contract, KernelInfo, Performance, Stores};
use super::scheme::Scheme;
use super::tiled::Common;
use crate::{Device, Error, Sizes};

/// The contract: at most [`MOST_TERMS`].
#[derive(Debug)]
struct Outer {
    launch: fn(&Device, TiledGemm<'_>) -> Result<(), Error>,
    stores: Stores,
}

impl Contract for Outer {
    fn launch(&self, device: &Device, call: &Call<'_>) -> Result<(), Error> {
        (self.launch)(device, call.gemm)
    }

    fn most(&self) -> Sizes {
        Sizes { m: usize::MAX, n: usize::MAX, k: MOST_TERMS as usize }
    }

    fn stores(&self) -> Stores {
        self.stores
    }
}

/// What the kernels have in common. A block costs little more than the latency of memory, once there and once back.
const fn outer(tile: TileShape, blocks_per_multiprocessor: u32, share_of_peak: f64) -> Common {
    Common {
        idea: "few terms: B in registers, and row by row of C, which blocks store in whole lines of memory",
        scheme: Scheme::Fp32,
        tile,
        performance: Performance::new(blocks_per_multiprocessor, share_of_peak).block(2.6).unaligned(1.2),
    }
}

/// Registers the kernels: the tile of each, the blocks on a multiprocessor, the share of the peak, and how results are stored.
macro_rules! outer_kernels {
    ($($kernel:ident $tile:ident $blocks:literal $share_of_peak:literal $stores:ident,)*) => {
        /// Tiles of 16, 32 and 1024 columns.
        pub static OUTER: [KernelInfo; 3] = [$(
            outer($tile, $blocks, $share_of_peak).of_any_layout(
                $kernel::FACTS,
                &Outer { launch: |device, gemm| device.launch($kernel { gemm }), stores: Stores::$stores },
            ),
        )*];
    };
}

outer_kernels! {
    gemm_outer_16_fp32 TILE_16 2 0.4 Rows,
    gemm_outer_32_fp32 TILE_32 2 0.4 Rows,
    gemm_outer_1024_fp32 TILE_1024 2 0.4 Lines,
}
