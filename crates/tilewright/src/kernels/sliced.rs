//! Small products: [`gpu_kernels::gemm::sliced`]. They take operands in any layout, and copy none.

use gpu_kernels::gemm::sliced::*;
use gpu_kernels::gemm::tiles::TileShape;

use super::contract::{KernelInfo, Performance};
use super::scheme::{Scheme, SumOrder};
use super::tiled::{Common, Tiled};

/// What the kernels have in common.
const fn sliced(tile: TileShape, performance: Performance) -> Common {
    Common {
        idea: "small tiles, whose k the warps of a block divide among themselves, from memory to tensor cores without a stop",
        scheme: Scheme::Fp32ThreeTf32,
        sums: SumOrder::Slices,
        tile,
        performance,
    }
}

/// Registers the kernels: the tile of each, and how fast it is.
macro_rules! sliced_kernels {
    ($($kernel:ident $tile:ident $performance:expr;)*) => {
        /// Tiles of 16×16 and 32×32.
        pub static SLICED: [KernelInfo; 2] = [$(
            KernelInfo {
                divides_sums: true,
                ..sliced($tile, $performance)
                    .of_any_layout($kernel::FACTS, &Tiled(|device, gemm| device.launch($kernel { gemm })))
            },
        )*];
    };
}

sliced_kernels! {
    gemm_sliced_16x16_fp32_3xtf32 TILE_16 Performance::new(2, 0.1).block(1.0).unaligned(1.2);
    gemm_sliced_32x32_fp32_3xtf32 TILE_32 Performance::new(2, 0.2).block(1.5).unaligned(1.2);
}
