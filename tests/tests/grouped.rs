//! Grouped products: one launch for each kernel, whatever the number of products, each of which is what it would be alone.

use cuda_std::executor::Checks;
use rayon::prelude::*;
use tests::grouped::{self, Member};
use tilewright::kernels::{GROUPED, GroupedKernel};
use tilewright::{Device, Orders, Precision};

/// The layouts that a kernel is for; none if it takes any.
fn orders(kernel: &GroupedKernel) -> Option<Orders> {
    Some(Orders { a: kernel.single.a?, b: kernel.single.b? })
}

#[test]
fn every_kernel_gives_each_product_the_bits_that_it_has_alone() {
    GROUPED.par_iter().enumerate().for_each(|(index, kernel)| {
        let device = Device::cpu(Checks::Full);
        let side = kernel.tile().m as usize;
        let factors = [[1.0, 0.0], [-1.5, 0.5], [0.0, 2.0]];
        for (round, factors) in factors.into_iter().enumerate() {
            // The executor's models of Hopper's instructions are slow.
            let (count, most) = if kernel.facts.arch.is_some() { (6, 70) } else { (25, 3 * side) };
            let seed = (100 * index + round) as u64;
            let members = Member::group(seed, count, most, orders(kernel), factors);
            let outcome = grouped::check(&device, &kernel.single.into(), &members);
            let outcome = outcome.unwrap_or_else(|reason| panic!("{}: {reason}", kernel.name));
            assert_eq!(outcome.launches, 1, "{}", kernel.name);
        }
    });
}

#[test]
fn groups_of_any_layouts_take_a_launch_for_each_kernel() {
    let device = Device::cpu(Checks::Full);
    for (seed, factors) in [(1, [1.0, 0.0]), (2, [0.5, -1.0])] {
        let members = Member::group(seed, 40, 200, None, factors);
        for precision in [Precision::Fp32, Precision::Fp32Strict] {
            let outcome = grouped::check(&device, &precision.into(), &members).unwrap();
            let names = outcome.kernels.iter().flatten().map(|kernel| kernel.name);
            let mut names: Vec<_> = names.collect();
            names.sort_unstable();
            names.dedup();
            // On the executor, the last kernel that can: on tensor cores for each layout, and where elements have gaps, another one.
            let expected = if precision == Precision::Fp32 { 5 } else { 1 };
            assert_eq!((outcome.launches, names.len()), (expected, expected), "{names:?}");
        }
    }
}
