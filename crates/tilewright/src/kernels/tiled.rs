//! Registers kernels whose argument is a [`TiledGemm`]: a batch of products, each divided into tiles of C and, with split-K, into
//! ranges of k.

use cuda_std::KernelFacts;
use gpu_kernels::gemm::tiles::{TileShape, TiledGemm};

use super::contract::{Call, Contract, KernelInfo, Performance};
use super::scheme::{Scheme, SumOrder};
use crate::order::Order;
use crate::{Device, Error};

/// What the kernels of a family have in common.
#[derive(Clone, Copy)]
pub(super) struct Common {
    pub(super) idea: &'static str,
    pub(super) scheme: Scheme,
    pub(super) sums: SumOrder,
    pub(super) tile: TileShape,
    pub(super) performance: Performance,
}

impl Common {
    /// The kernel with these facts, for operands that are stored like this.
    pub(super) const fn of(
        self,
        facts: KernelFacts,
        a: Order,
        b: Order,
        contract: &'static dyn Contract,
    ) -> KernelInfo {
        let Self { idea, scheme, sums, tile, performance } = self;
        KernelInfo {
            name: facts.name,
            facts,
            idea,
            scheme,
            sums,
            a: Some(a),
            b: Some(b),
            tile: Some(tile),
            divides_sums: true,
            deterministic: true,
            performance: performance.with_a(a),
            contract,
        }
    }

    /// The kernel with these facts, for operands in any layout, whose sums are not divided.
    pub(super) const fn of_any_layout(self, facts: KernelFacts, contract: &'static dyn Contract) -> KernelInfo {
        let any = self.of(facts, Order::RowMajor, Order::RowMajor, contract);
        KernelInfo { a: None, b: None, divides_sums: false, ..any }
    }
}

/// The contract of kernels that need the product alone.
#[derive(Debug)]
pub(super) struct Tiled(pub(super) fn(&Device, TiledGemm<'_>) -> Result<(), Error>);

impl Contract for Tiled {
    fn launch(&self, device: &Device, call: &Call<'_>) -> Result<(), Error> {
        (self.0)(device, call.gemm)
    }
}

/// Registers kernels that need the product alone: what they have in common, and how each needs A and B to be stored.
macro_rules! tiled_kernels {
    ($($(#[$doc:meta])* $visibility:vis static $family:ident = $common:ident: $($kernel:ident $a:ident $b:ident),*;)*) => { $(
        $(#[$doc])*
        $visibility static $family: [KernelInfo; 4] = [$(
            $common.of($kernel::FACTS, $a, $b, &Tiled(|device, gemm| device.launch($kernel { gemm })))
        ),*];
    )* };
}
pub(super) use tiled_kernels;
