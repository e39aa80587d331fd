//! Every kernel of the registry on the executor, by a plan.

use cuda_std::executor::Checks;
use rayon::prelude::*;
use tests::{Layouts, Sizes, special_values, suite};
use tilewright::Device;
use tilewright::kernels::{self, KernelInfo};

#[test]
fn every_kernel_computes_the_products_of_the_suite() {
    let device = Device::cpu(Checks::Full);
    let run = |kernel: &&'static KernelInfo| match suite::run(&device, kernel) {
        Ok(computed) => usize::from(computed.that_share_scans > 0),
        Err(reason) => panic!("{reason}"),
    };
    let that_share_scans: usize = kernels::ALL.par_iter().map(run).sum();
    assert_eq!(that_share_scans, 4, "a kernel for each layout shares scans");
}

#[test]
fn every_kernel_gives_results_of_the_right_class() {
    let device = Device::cpu(Checks::Bounds);
    let failures: Vec<String> =
        kernels::ALL.par_iter().filter_map(|kernel| special_values::check_all(&device, kernel).err()).collect();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn every_kernel_computes_parts_of_results() {
    let device = Device::cpu(Checks::Bounds);
    for &kernel in kernels::ALL.iter() {
        let shapes = [kernel.within(Sizes { m: 37, n: 36, k: 20 })];
        let parts = |layouts| tests::check_parts(&device, kernel, &shapes, layouts).unwrap();
        let computed: usize = Layouts::ALL.into_iter().map(parts).sum();
        assert!(computed > 0, "{} has computed nothing", kernel.name);
    }
}
