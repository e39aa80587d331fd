//! Small products: [`gpu_kernels::gemm::sliced`]. They take operands in any layout, and copy none.

use gpu_kernels::gemm::sliced::*;
use gpu_kernels::gemm::tiles::{TileShape, TiledGemm, is_grid_of_tiles};

use super::contract::{Call, Contract, KernelInfo, Performance};
use super::scheme::{Scheme, SumOrder};
use super::tiled::Common;
use crate::description::Description;
use crate::refusal::Refusal;
use crate::{Device, Error};

/// The contract: blocks for rows of tiles and for results lie along other axes of the grid than those for columns.
#[derive(Debug)]
struct Sliced {
    launch: fn(&Device, TiledGemm<'_>) -> Result<(), Error>,
    tile: TileShape,
}

impl Contract for Sliced {
    fn launch(&self, device: &Device, call: &Call<'_>) -> Result<(), Error> {
        (self.launch)(device, call.gemm)
    }

    fn refusal_of_grid(&self, _tile: Option<TileShape>, product: &Description, splits: u32) -> Option<Refusal> {
        let (m, results) = (product.m, product.batch as u128 * u128::from(splits));
        (!is_grid_of_tiles(self.tile, m as u128, results)).then_some(Refusal::TooManyTiles { m, results })
    }
}

/// What the kernels have in common.
const fn sliced(tile: TileShape, warps: u32, performance: Performance) -> Common {
    Common {
        idea: "small tiles, whose k the warps of a block divide among themselves, and copy two chunks ahead, each for itself",
        scheme: Scheme::Fp32ThreeTf32,
        sums: SumOrder::Slices { warps },
        tile,
        performance: performance.parts_of_steps(warps),
    }
}

/// Registers the kernels: the tile and the warps of each, and how fast it is.
macro_rules! sliced_kernels {
    ($($kernel:ident $tile:ident $warps:literal $performance:expr;)*) => {
        /// Tiles of 16×16 and 32×32.
        pub static SLICED: [KernelInfo; 5] = [$(
            KernelInfo {
                divides_sums: true,
                ..sliced($tile, $warps, $performance).of_any_layout(
                    $kernel::FACTS,
                    &Sliced { launch: |device, gemm| device.launch($kernel { gemm }), tile: $tile },
                )
            },
        )*];
    };
}

sliced_kernels! {
    gemm_sliced_16x16_fp32_3xtf32 TILE_16 8 Performance::new(2, 0.148).block(1.8).unaligned(1.33);
    gemm_sliced_32x32_fp32_3xtf32 TILE_32 8 Performance::new(2, 0.296).block(2.8).unaligned(1.4);
    gemm_sliced_32x32_k64_fp32_3xtf32 TILE_32_K64 4 Performance::new(4, 0.295).block(2.65).unaligned(1.9).old_values(2.5);
    gemm_sliced_16x16_k16_fp32_3xtf32 TILE_16_K16 1 Performance::new(20, 0.149).block(1.75).unaligned(1.2).old_values(4.0);
    gemm_sliced_32x32_k16_fp32_3xtf32 TILE_32_K16 1 Performance::new(12, 0.285).block(2.4).unaligned(1.45).old_values(5.0);
}
