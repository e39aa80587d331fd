//! Every kernel of the registry on the executor, by a plan, with guard words around operands and workspace: what `gpu.rs`
//! does on a GPU, for few products, because the executor is slow.

use cuda_std::executor::Checks;
use tests::{Batch, Layouts, Planned, Problem, Shape};
use tilewright::Device;
use tilewright::kernels::{self, Family};

#[test]
fn every_kernel_leaves_everything_around_its_operands_as_it_was() {
    let device = Device::cpu(Checks::Full);
    for &kernel in kernels::ALL.iter() {
        let n = if kernel.family() == Family::Gemv { 1 } else { 35 };
        let mut computed = 0;
        for layouts in Layouts::ALL {
            let problem = Problem::new(Shape { m: 37, n, k: 70 }, layouts.padded(), 3).scaled(-0.7, 0.3);
            let shared = Batch::new(2, [true, false], Shape { m: 5, n: n.min(6), k: 40 }, layouts, 4);
            let one = Batch::from(problem);
            // Results that a tensor map can describe, and few terms.
            let n = if kernel.family() == Family::Gemv { 1 } else { 36 };
            let short = Batch::from(Problem::new(Shape { m: 37, n, k: 60 }, layouts, 5).scaled(-0.7, 0.0));
            for (batch, splits) in [(&one, None), (&one, Some(2)), (&shared, None), (&short, None)] {
                computed += usize::from(Planned::check_one(&device, kernel, splits, batch).unwrap());
            }
        }
        assert!(computed > 0, "{} has computed nothing", kernel.name);
    }
}

#[test]
fn every_kernel_computes_parts_of_results() {
    let device = Device::cpu(Checks::Bounds);
    for &kernel in kernels::ALL.iter() {
        let n = if kernel.family() == Family::Gemv { 1 } else { 36 };
        let shapes = [Shape { m: 37, n, k: 20 }];
        let parts = |layouts| tests::check_parts(&device, kernel, &shapes, layouts).unwrap();
        let computed: usize = Layouts::ALL.into_iter().map(parts).sum();
        assert!(computed > 0, "{} has computed nothing", kernel.name);
    }
}
