//! Batches of small products, several in a block: [`gpu_kernels::gemm::batched`]. They take operands in any layout.

use gpu_kernels::gemm::batched::*;
use gpu_kernels::gemm::tiles::{MAX_BLOCKS, TileShape, TiledGemm};

use super::contract::{Call, Contract, KernelInfo, Performance};
use super::scheme::{Scheme, SumOrder};
use super::tiled::Common;
use crate::description::Description;
use crate::refusal::Refusal;
use crate::{Device, Error};

/// The most rows or columns of products that these kernels are chosen for.
const LARGEST: usize = 64;

/// The contract: teams of a block compute a tile each.
#[derive(Debug)]
struct Batched {
    launch: fn(&Device, TiledGemm<'_>) -> Result<(), Error>,
    tile: TileShape,
}

impl Contract for Batched {
    fn launch(&self, device: &Device, call: &Call<'_>) -> Result<(), Error> {
        (self.launch)(device, call.gemm)
    }

    fn tiles_of_a_block(&self) -> u32 {
        tiles_of_a_block(self.tile)
    }

    fn refusal(&self, product: &Description) -> Option<Refusal> {
        // A kernel counts tiles as others do blocks.
        let tiles = (product.m.div_ceil(self.tile.m as usize) as u128)
            * product.n.div_ceil(self.tile.n as usize) as u128
            * product.batch as u128;
        if tiles > u128::from(MAX_BLOCKS) {
            return Some(Refusal::TooManyBlocks { blocks: tiles });
        }
        // For larger products there are kernels that load an operand less often. They would have to copy operands with gaps between all
        // elements first.
        let has_others = product.a.order().is_some() && product.b.order().is_some();
        let is_large = product.m.min(product.n) > LARGEST && has_others;
        is_large.then_some(Refusal::NotSmall { most: LARGEST as u32 })
    }
}

/// What the kernels have in common. A block costs little more than the latency of memory, once there and once back.
const fn batched(tile: TileShape, performance: Performance) -> Common {
    Common {
        idea: "several small products of a batch in a block, a team of threads for each",
        scheme: Scheme::Fp32,
        sums: SumOrder::OneByOne,
        tile,
        performance,
    }
}

/// Registers the kernels: the tile of each, and how fast it is.
macro_rules! batched_kernels {
    ($($kernel:ident $tile:ident $performance:expr;)*) => {
        /// Tiles of 4×4, 8×8, 16×16 and 32×32.
        pub static BATCHED: [KernelInfo; 4] = [$(
            batched($tile, $performance).of_any_layout(
                $kernel::FACTS,
                &Batched { launch: |device, gemm| device.launch($kernel { gemm }), tile: $tile },
            ),
        )*];
    };
}

batched_kernels! {
    gemm_batched_4_fp32 TILE_4 Performance::new(8, 0.079).block(0.78).unaligned(1.05).of_bandwidth(0.65);
    gemm_batched_8_fp32 TILE_8 Performance::new(6, 0.173).block(0.85).unaligned(1.12);
    gemm_batched_16_fp32 TILE_16 Performance::new(4, 0.284).block(0.91).unaligned(1.1);
    gemm_batched_32_fp32 TILE_32 Performance::new(4, 0.423).block(1.47).unaligned(1.08).parts_of_steps(4);
}
