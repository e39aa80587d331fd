//! The kernels that there are: by name, with what each stands for, what it can compute, and how to launch it.
//!
//! Whether a kernel *can* compute a product ([`KernelInfo::refusal`]) is apart from whether it *should*, which is the
//! [plan](crate::plan)'s matter.

mod gemv;
mod helpers;
mod ladder;
mod mma;
mod packed;
mod register_tiled;
mod scaling;
mod wgmma;

use std::sync::LazyLock;

use cuda_std::{GlobalSlice, GlobalSliceMut, KernelFacts};
use gpu_kernels::gemm::hopper::fallback::Fallback;
use gpu_kernels::gemm::hopper::fp16_pairs::PairInfo;
use gpu_kernels::gemm::tiles::{MAX_BLOCKS, TileShape, TiledGemm};
use gpu_kernels::{
    Triangle,
    gemm::Gemm,
    gemv::{Gemv, SplitGemv},
};
use serde::{Deserialize, Serialize};

use crate::device::Device;
use crate::plan::{Description, DeviceFacts, Processor, Refusal, Storage};
use crate::{Error, Precision};

pub use gemv::{GEMV_SPLIT_ATOMIC_FP32, GEMV_SPLIT_FP32, GEMV_TRANSPOSED_SPLIT_FP32};
pub use helpers::HELPERS;
pub(crate) use helpers::{
    CLEAR, COPY, Format, REDUCTION, REPAIR, ScaledParts, add_partial_sums, clear_outside, copy_matrices, pack_rounded,
    pack_scaled, repair_marked_tiles,
};
pub use ladder::{
    GEMM_NAIVE_1D_FP32, GEMM_NAIVE_2D_FP32, GEMM_TILED_16_FP32, GEMM_TILED_32_FP32, GEMV_BLOCK_REDUCTION_FP32, LADDER,
};
pub use mma::{
    MMA_64X32_FP32_3XTF32, MMA_64X32_K64_FP32_3XTF32, MMA_BF16, MMA_FP16, MMA_FP32_3XTF32, MMA_FP32_MIXED, MMA_TF32,
};
pub use packed::{WGMMA_BF16, WGMMA_FP16, WGMMA_FP32_3XFP16, WGMMA_FP32_NORMWISE, WGMMA_SHORT_FP32_3XFP16, WGMMA_TF32};
pub use register_tiled::{REGISTER_TILED, REGISTER_TILED_64, REGISTER_TILED_128};
pub use scaling::SCALING;
pub(crate) use scaling::scale_matrices;
pub use wgmma::{WGMMA_FP32_3XTF32, WGMMA_FP32_MIXED};

/// What the kernels of a family have in common that take a [`TiledGemm`].
#[derive(Clone, Copy)]
struct Common {
    idea: &'static str,
    scheme: Scheme,
    tile: TileShape,
    performance: Performance,
}

impl Common {
    /// The kernel with these facts, for operands that are stored like this.
    const fn of(self, facts: KernelFacts, a: Storage, b: Storage, launch: Launch) -> KernelInfo {
        let Self { idea, scheme, tile, performance } = self;
        KernelInfo {
            name: facts.name,
            facts,
            idea,
            scheme,
            a: Some(a),
            b: Some(b),
            transposing: false,
            stores_by_tensor_map: false,
            most_terms: None,
            tile: Some(tile),
            divides_sums: true,
            varies: false,
            performance,
            launch,
        }
    }
}

/// Registers kernels that take a [`TiledGemm`]: what they have in common, and how each needs A and B to be stored.
macro_rules! tiled_kernels {
    ($($(#[$doc:meta])* $visibility:vis static $family:ident = $common:ident: $($kernel:ident $a:ident $b:ident),*;)*) => { $(
        $(#[$doc])*
        $visibility static $family: [KernelInfo; 4] = [$(
            $common.of($kernel::FACTS, $a, $b, Launch::Tiled(|device, gemm| device.launch($kernel { gemm })))
        ),*];
    )* };
}
use tiled_kernels;

/// Which product a kernel computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// `y = α·A·x + β·y`.
    Gemv,
    /// `C = α·A·B + β·C`.
    Gemm,
}

/// What a kernel makes of two operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scheme {
    /// Fused fp32 operations on CUDA cores.
    Fp32,
    /// One TF32 product, and two bf16 products for what TF32 leaves.
    Fp32Mixed,
    /// Three TF32 products.
    Fp32ThreeTf32,
    /// Three fp16 products of scaled operands, where they lose nothing by that.
    Fp32ThreeFp16,
    /// Three fp16 products of scaled operands.
    Fp32ScaledFp16,
    /// One TF32 product.
    Tf32,
    /// One bf16 product.
    Bf16,
    /// One fp16 product.
    Fp16,
}

impl Scheme {
    /// The precision that it is for.
    pub fn precision(self) -> Precision {
        match self {
            Self::Fp32 => Precision::Fp32Strict,
            Self::Fp32Mixed | Self::Fp32ThreeTf32 | Self::Fp32ThreeFp16 => Precision::Fp32,
            Self::Fp32ScaledFp16 => Precision::Fp32Normwise,
            Self::Tf32 => Precision::Tf32,
            Self::Bf16 => Precision::Bf16,
            Self::Fp16 => Precision::Fp16,
        }
    }

    /// Whether it may serve a product of this precision: what is strict fp32 is as accurate as fp32, too.
    pub fn serves(self, precision: Precision) -> bool {
        self.precision() == precision || (self == Self::Fp32 && precision == Precision::Fp32)
    }

    /// What is computed, in a few words.
    pub fn words(self) -> &'static str {
        match self {
            Self::Fp32 => "fused fp32 operations on CUDA cores",
            Self::Fp32Mixed => "mixed: one TF32 and two bf16 products on tensor cores, fp32 promotion",
            Self::Fp32ThreeTf32 => "3xTF32: three TF32 products on tensor cores, fp32 promotion",
            Self::Fp32ThreeFp16 => "3xFP16: three fp16 products of scaled operands on tensor cores, fp32 promotion",
            Self::Fp32ScaledFp16 => "three fp16 products of scaled operands on tensor cores, fp32 promotion",
            Self::Tf32 => "one TF32 product on tensor cores",
            Self::Bf16 => "one bf16 product on tensor cores",
            Self::Fp16 => "one fp16 product on tensor cores",
        }
    }
}

/// What a model needs to estimate a kernel's time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Performance {
    /// The blocks that a multiprocessor runs at a time, where shared memory and threads are no limit: what registers leave.
    pub(crate) blocks_per_multiprocessor: u32,
    /// The share that a multiprocessor full of blocks reaches: for products of matrices of the peak rate of the units that
    /// the scheme uses, for those with vectors of the memory's bandwidth.
    pub(crate) share_of_peak: f64,
}

/// A kernel.
#[derive(Debug)]
pub struct KernelInfo {
    /// The name, which is that of the PTX entry point.
    pub name: &'static str,
    /// What it needs of a GPU, as its type says.
    pub facts: KernelFacts,
    /// The idea that it stands for, in one line.
    pub idea: &'static str,
    /// What it makes of its operands.
    pub scheme: Scheme,
    /// How A has to be stored, if that matters.
    pub a: Option<Storage>,
    /// How B has to be stored, if that matters.
    pub b: Option<Storage>,
    /// Whether operands that are stored otherwise than it needs are copied into the workspace first, too.
    pub transposing: bool,
    /// Whether the copy engine stores its results: those that a tensor map can describe, and whose old values are not needed.
    pub stores_by_tensor_map: bool,
    /// The most terms that its sums can have, if it is for short ones.
    pub most_terms: Option<u32>,
    /// The part of C that a block computes, and the terms that it loads at a time.
    pub tile: Option<TileShape>,
    /// Whether it can divide its sums among blocks.
    pub divides_sums: bool,
    /// Whether the order of its additions varies from run to run.
    pub varies: bool,
    pub(crate) performance: Performance,
    pub(crate) launch: Launch,
}

/// How a kernel is launched: by what it takes.
#[derive(Debug)]
pub(crate) enum Launch {
    /// One matrix and one vector.
    Gemv(fn(&Device, Gemv<'_>) -> Result<(), Error>),
    /// One product.
    Gemm(fn(&Device, Gemm<'_>) -> Result<(), Error>),
    /// A batch of products, whose sums may be divided.
    Tiled(fn(&Device, TiledGemm<'_>) -> Result<(), Error>),
    /// The same, with a mark for each block if there are any, for [`repair_marked_tiles`] to go by, and for some tiles only.
    Marking(fn(&Device, TiledGemm<'_>, GlobalSliceMut<'_, u32>, Fallback<'_>) -> Result<(), Error>),
    /// The same, of packed operands.
    Packed {
        format: Format,
        /// What lies outside of the part of C need not be computed.
        launch: fn(&Device, TiledGemm<'_>, Triangle, [PackedOperand<'_>; 2]) -> Result<(), Error>,
        /// Whether it leaves out tiles of lines that are unfit for the format.
        leaves_out: bool,
    },
    /// One matrix and one vector, whose sums may be divided.
    SplitGemv {
        launch: fn(&Device, SplitGemv<'_>) -> Result<(), Error>,
        /// The best number of splits for an m×k matrix on so many multiprocessors.
        splits: fn(u32, u32, u32) -> u32,
        /// The groups of rows that an m×k matrix has: the blocks of each split.
        groups: fn(u32, u32) -> u32,
    },
    /// The same, with blocks that add to the result.
    AtomicGemv {
        launch: fn(&Device, SplitGemv<'_>, u32) -> Result<(), Error>,
        /// As for [`Launch::SplitGemv`].
        splits: fn(u32, u32, u32) -> u32,
        /// Likewise.
        groups: fn(u32, u32) -> u32,
    },
}

/// An operand as it has been packed: its lines, and what goes with them if they are scaled.
#[derive(Clone, Copy)]
pub(crate) struct PackedOperand<'a> {
    pub(crate) words: GlobalSlice<'a, u32>,
    pub(crate) scales: PairInfo<'a>,
}

/// All kernels that multiply, in the order of the ladder: from the simplest to those that use the most of the hardware.
pub static ALL: LazyLock<Vec<&'static KernelInfo>> = LazyLock::new(|| {
    let gemv = [&GEMV_SPLIT_ATOMIC_FP32, &GEMV_SPLIT_FP32, &GEMV_TRANSPOSED_SPLIT_FP32];
    let on_cuda_cores = REGISTER_TILED_64.iter().chain(&REGISTER_TILED_128).chain(&REGISTER_TILED);
    let of_rounded_operands = MMA_FP16.iter().chain(&MMA_BF16).chain(&MMA_TF32);
    let of_rounded_operands = of_rounded_operands.chain(&WGMMA_FP16).chain(&WGMMA_BF16).chain(&WGMMA_TF32);
    let of_split_operands =
        MMA_64X32_K64_FP32_3XTF32.iter().chain(&MMA_64X32_FP32_3XTF32).chain(&MMA_FP32_3XTF32).chain(&MMA_FP32_MIXED);
    let of_split_operands = of_split_operands.chain(&WGMMA_FP32_3XTF32).chain(&WGMMA_FP32_MIXED);
    let of_split_operands = of_split_operands.chain(&WGMMA_FP32_NORMWISE).chain(&WGMMA_SHORT_FP32_3XFP16);
    let of_split_operands = of_split_operands.chain(&WGMMA_FP32_3XFP16);
    let families = on_cuda_cores.chain(of_rounded_operands).chain(of_split_operands);
    LADDER.into_iter().chain(gemv).chain(families).collect()
});

/// The kernel of this name.
///
/// # Errors
/// [`Error::UnknownName`], with the name that is most like it.
pub fn find(name: &str) -> Result<&'static KernelInfo, Error> {
    let known = || ALL.iter().map(|kernel| kernel.name).collect();
    ALL.iter().copied().find(|kernel| kernel.name == name).ok_or_else(|| Error::unknown_name("kernel", name, known()))
}

/// The kernels of a family.
pub fn of(family: Family) -> impl Iterator<Item = &'static KernelInfo> {
    ALL.iter().copied().filter(move |kernel| kernel.family() == family)
}

impl KernelInfo {
    /// Which product the kernel computes.
    pub fn family(&self) -> Family {
        match self.launch {
            Launch::Gemv(_) | Launch::SplitGemv { .. } | Launch::AtomicGemv { .. } => Family::Gemv,
            Launch::Gemm(_) | Launch::Tiled(_) | Launch::Marking(_) | Launch::Packed { .. } => Family::Gemm,
        }
    }

    /// Whether a launch computes one product of a batch, so that there are as many launches.
    pub(crate) fn one_by_one(&self) -> bool {
        !matches!(self.launch, Launch::Tiled(_) | Launch::Marking(_) | Launch::Packed { .. })
    }

    /// How it needs its operands packed, if it does.
    pub(crate) fn format(&self) -> Option<Format> {
        match self.launch {
            Launch::Packed { format, .. } => Some(format),
            _ => None,
        }
    }

    /// Whether there may be tiles that it leaves out.
    pub(crate) fn leaves_out(&self) -> bool {
        matches!(self.launch, Launch::Packed { leaves_out: true, .. })
    }

    /// The kernel that computes what it leaves out: the tiles of lines that are unfit for it. That one reads the operands
    /// themselves, which are stored like this.
    pub(crate) fn fallback(&self, [a, b]: [Storage; 2], terms_of_a_split: usize) -> Option<&'static Self> {
        if !self.leaves_out() {
            return None;
        }
        let long = terms_of_a_split >= Precision::MIXED_FROM;
        let family = if long { &WGMMA_FP32_MIXED } else { &WGMMA_FP32_3XTF32 };
        family.iter().find(|kernel| (kernel.a, kernel.b) == (Some(a), Some(b)))
    }

    /// How many marks it makes for a product: none if it makes none.
    pub(crate) fn marks(&self, product: &Description, splits: u32) -> u128 {
        /// The blocks that share the looking at an operand: with fewer, each looks at all of it anyway.
        const SHARERS: usize = 8;
        /// The terms of a sum from which on the time saved is more than that of launching another kernel.
        const WORTHWHILE: usize = 1024;
        let Some(tile) = self.tile.filter(|_| matches!(self.launch, Launch::Marking(_))) else { return 0 };
        let shared = product.n.div_ceil(tile.n as usize) >= SHARERS;
        let long = product.terms() / splits.max(1) as usize >= WORTHWHILE;
        // Tiles are computed again when the results have been written, so these must not have been needed.
        if shared && long && product.beta_is_zero { self.blocks(product, splits) } else { 0 }
    }

    /// The precision that it computes in.
    pub fn precision(&self) -> Precision {
        self.scheme.precision()
    }

    /// Whether it loads its operands by tensor maps. What these cannot describe is copied into the workspace first.
    pub fn loads_by_tensor_maps(&self) -> bool {
        self.facts.tensor_maps > 0
    }

    /// The blocks of its grid, as far as that is the same on every device.
    pub fn blocks(&self, product: &Description, splits: u32) -> u128 {
        let (m, n, batch) = (product.m as u128, product.n as u128, product.batch as u128);
        match (&self.launch, self.tile) {
            (Launch::Gemv(_), _) => m * batch,
            (Launch::SplitGemv { groups, .. } | Launch::AtomicGemv { groups, .. }, _) => {
                u128::from(groups(product.m as u32, product.k as u32)) * batch * u128::from(splits)
            }
            (_, Some(tile)) => m.div_ceil(tile.m.into()) * n.div_ceil(tile.n.into()) * batch * u128::from(splits),
            (_, None) => (m * n).div_ceil(256) * batch,
        }
    }

    /// The pieces that its sums have: the most splits that there can be.
    pub fn pieces(&self, product: &Description) -> u32 {
        let terms = (product.terms() as u32).max(1);
        match self.tile {
            _ if !self.divides_sums => 1,
            Some(tile) => terms.div_ceil(tile.k),
            None => terms,
        }
    }

    /// Why the kernel cannot compute a product in a precision on a device, or may not unless it is named; `None` if it can.
    /// What it is best at does not matter here.
    pub fn refusal(
        &self,
        device: &DeviceFacts,
        product: &Description,
        precision: Precision,
        splits: Option<u32>,
    ) -> Option<Refusal> {
        if !self.scheme.serves(precision) {
            return Some(Refusal::Precision { has: self.precision(), wanted: precision });
        }
        if self.family() == Family::Gemv && product.n != 1 {
            return Some(Refusal::NotAVector { n: product.n });
        }
        if let (Some(needs), Processor::Gpu { sm_90a: false, .. }) = (self.facts.arch, device.processor) {
            return Some(Refusal::Architecture { needs, device: device.to_string() });
        }
        if let Err(excess) = device.limits.check(&self.facts) {
            return Some(Refusal::Excess { device: device.to_string(), excess });
        }
        for (operand, needs, has) in [("A", self.a, product.a.storage()), ("B", self.b, product.b.storage())] {
            // What is spread can be copied first, if it may be read at all; for some kernels, whatever lies otherwise.
            let copied = (has == Storage::Spread || self.transposing) && !self.one_by_one() && product.terms() > 0;
            if let Some(needs) = needs
                && needs != has
                && !copied
            {
                return Some(Refusal::Layout { operand, needs: needs.words(), has: has.words() });
            }
        }
        if self.loads_by_tensor_maps() && product.terms() == 0 && !product.is_empty() {
            return Some(Refusal::NoTerms);
        }
        if let Some(most) = self.most_terms
            && product.terms() > most as usize
        {
            return Some(Refusal::LongSums { most });
        }
        if self.stores_by_tensor_map {
            let Description { m, n, batch, c, beta_is_zero, .. } = *product;
            if !beta_is_zero {
                return Some(Refusal::OldValues);
            }
            // The copy engine stores whole pieces of 16 bytes, also at the end of a row.
            if c.storage() != Storage::ByRows || !c.fits_tensor_map(m, n, batch) || !n.is_multiple_of(4) {
                return Some(Refusal::Results);
            }
        }
        let (asked, most) = (splits.unwrap_or(1), self.pieces(product));
        if asked > 1 && !self.divides_sums {
            return Some(Refusal::NoSplits { splits: asked });
        }
        if asked > most {
            return Some(Refusal::TooManySplits { splits: asked, most });
        }
        // The kernels of the ladder loop, or spread their tiles along several axes of the grid.
        let blocks = self.blocks(product, asked);
        let loops = matches!(self.launch, Launch::Gemv(_) | Launch::Gemm(_));
        if !loops && blocks > u128::from(MAX_BLOCKS) {
            return Some(Refusal::TooManyBlocks { blocks });
        }
        if self.divides_sums && product.batch as u128 * u128::from(asked) > u128::from(MAX_BLOCKS) {
            return Some(Refusal::TooManyBlocks { blocks: product.batch as u128 * u128::from(asked) });
        }
        if self.scheme == Scheme::Fp32Mixed && product.terms() < Precision::MIXED_FROM && product.terms() > 0 {
            return Some(Refusal::ShortSums { precision, from: Precision::MIXED_FROM });
        }
        // The executor's models of Hopper's instructions are slow.
        if device.processor == Processor::Cpu && self.facts.arch.is_some() {
            return Some(Refusal::SlowOnCpu);
        }
        self.varies.then_some(Refusal::Varies)
    }
}

#[cfg(test)]
mod tests {
    use cuda_std::Kernel;
    use gpu_kernels::gemm::basic::naive_1d::gemm_naive_1d_fp32;
    use gpu_kernels::gemm::basic::naive_2d::gemm_naive_2d_fp32;
    use gpu_kernels::gemm::basic::tiled::{gemm_tiled_16_fp32, gemm_tiled_32_fp32};
    use gpu_kernels::gemv::block_reduction::gemv_block_reduction_fp32;

    use super::*;

    #[test]
    fn names_are_those_of_the_entry_points_and_are_found() {
        assert_eq!(
            LADDER.map(|kernel| kernel.name),
            [
                gemv_block_reduction_fp32::NAME,
                gemm_naive_1d_fp32::NAME,
                gemm_naive_2d_fp32::NAME,
                gemm_tiled_16_fp32::NAME,
                gemm_tiled_32_fp32::NAME
            ]
        );
        for (index, kernel) in ALL.iter().enumerate() {
            let found = find(kernel.name).unwrap();
            assert!(std::ptr::eq(found, *kernel), "two kernels are called {}, number {index} is one", kernel.name);
        }
        let message = find("gemm_tiled_23").unwrap_err().to_string();
        assert!(message.contains("did you mean `gemm_tiled_32_fp32`?"), "{message}");
    }
}
