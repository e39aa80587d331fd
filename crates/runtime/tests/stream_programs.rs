//! Random programs on several streams, on the CPU executor and on the driver that only pretends, which does everything as late and in as bad
//! an order as a driver may: see `fake_streams.rs` of `cuda_driver`'s tests. A GPU runs the same programs by the program `streams` of the
//! package `tests`, which has them.

extern crate tilewright_runtime as runtime;

#[path = "../../cuda-driver/tests/driver/fake_library.rs"]
mod fake_library;
#[path = "../../cuda-driver/tests/driver/isolated.rs"]
mod isolated;
#[path = "../../../tests/fixtures/streams/src/kernels.rs"]
mod kernels;
#[path = "../../../tests/src/streams/overlap.rs"]
#[allow(dead_code, unreachable_pub, reason = "another crate has it, too, and shows it; times mean nothing here")]
mod overlap;
#[path = "../../../tests/src/streams/programs.rs"]
#[allow(unreachable_pub, reason = "another crate has it, too, and shows it")]
mod programs;

use std::path::PathBuf;
use std::process::Command;
use std::sync::LazyLock;

use cuda_driver::LIBRARY_VARIABLE;
use cuda_std::executor::Checks;
use programs::{Limits, run};
use runtime::{Device, KernelSet};

static LIBRARY: LazyLock<PathBuf> = LazyLock::new(|| fake_library::compile("libcuda_fake_programs.so", &["-O"]));

/// What the fake driver takes for the kernel.
const PTX: &[(&str, &[(&str, &str)])] =
    &[("sm_80", &[("mix", ".version 7.4\n.target sm_80\n.visible .entry mix() .reqntid 128 {\n}\n")])];

const LIMITS: Limits = Limits { rounds: 8 };

#[test]
fn programs_come_out_the_same_on_the_executor_with_all_checks() {
    let (full, bounds) = (Device::cpu(Checks::Full), Device::cpu(Checks::Bounds));
    for seed in 0..10 {
        assert_eq!(run(&full, seed, LIMITS).unwrap(), run(&bounds, seed, LIMITS).unwrap(), "seed {seed}");
    }
    assert_ne!(run(&bounds, 1, LIMITS).unwrap(), run(&bounds, 2, LIMITS).unwrap());
}

#[test]
fn chunks_are_right_on_one_stream_and_on_several() {
    let amount = overlap::Amount { chunks: 5, elements: 300, rounds: 3, streams: 3 };
    assert!(overlap::measure(&Device::cpu(Checks::Full), amount).unwrap().is_right);
}

#[test]
fn programs_come_out_the_same_in_whatever_order_the_driver_does_things() {
    let prepare = |command: &mut Command| {
        command.env(LIBRARY_VARIABLE, &*LIBRARY);
    };
    isolated::isolated("programs_come_out_the_same_in_whatever_order_the_driver_does_things", prepare, || {
        let in_order = Device::cpu(Checks::Bounds);
        let crate_name = <kernels::mix<'_> as cuda_std::Kernel>::FACTS.source.crate_name;
        let set = Box::leak(Box::new(KernelSet::embedded(crate_name, None, Ok(PTX), &[])));
        let device = Device::cuda(0, &[set]).unwrap();
        // SAFETY: the library is open, and these are the functions' types.
        let (defer, live) = unsafe {
            let library = Box::leak(Box::new(libloading::Library::new(&*LIBRARY).unwrap()));
            let defer = library.get::<extern "C" fn(u64)>(b"fake_defer\0").unwrap();
            (defer, library.get::<extern "C" fn() -> i32>(b"fake_live_objects\0").unwrap())
        };
        for seed in 1..=500 {
            defer(seed);
            assert_eq!(run(&device, seed, LIMITS).unwrap(), run(&in_order, seed, LIMITS).unwrap(), "seed {seed}");
        }
        defer(0);
        drop(device);
        assert_eq!(live(), 0, "everything has been given back");
    });
}
