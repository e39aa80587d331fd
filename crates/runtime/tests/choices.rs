//! Kernels whose launches choose block and shared memory, and kernels that need a stack: on the CPU executor, and on the driver that only pretends, the one of
//! `cuda_driver`'s tests, which refuses what a GPU refuses.
//!
//! A process opens a driver's library only once, so each test with it runs in a process of its own.

#[path = "../../cuda-driver/tests/driver/fake_library.rs"]
mod fake_library;
#[path = "../../cuda-driver/tests/driver/isolated.rs"]
mod isolated;

use std::path::PathBuf;
use std::process::Command;
use std::sync::LazyLock;

use cuda_driver::LIBRARY_VARIABLE;
use cuda_std::executor::Checks;
use cuda_std::prelude::*;
use cuda_std::shared::all_dynamic_shared;
use cuda_std::{Kernel, KernelFacts};
use tilewright_runtime::{Device, Error, KernelSet};

static LIBRARY: LazyLock<PathBuf> = LazyLock::new(|| fake_library::compile("libcuda_fake_choices.so", &[]));

fn isolated(test: &str, variables: &[(&str, &str)], body: fn()) {
    let prepare = |command: &mut Command| {
        command.env(LIBRARY_VARIABLE, &*LIBRARY).envs(variables.iter().copied());
    };
    isolated::isolated(test, prepare, body);
}

/// Reverses each block of numbers.
#[kernel(
    block <= 256,
    dynamic_shared,
    grid = (x.len() as u32).div_ceil(block.x),
    requires(x.len() % block.x as usize == 0, dynamic_shared_bytes >= 4 * block.x)
)]
fn reverse(x: GlobalSliceMut<'_, u32>) {
    let (i, t, all) = (thread::index_1d(), thread::thread_idx_x() as usize, all_dynamic_shared::<u32>());
    // SAFETY: the grid has a block for each part of x, and there is a number of shared memory for each thread; a barrier is between
    // what a thread writes and what another reads.
    unsafe {
        all.write(t, x.get_unchecked(i));
        thread::sync_threads();
        x.set_unchecked(i, all.read(thread::block_dim_x() as usize - 1 - t));
    }
}

/// Says how much of the stack it needs.
#[kernel(block = 1, grid = 1, stack = 100 << 10)]
fn recurses() {}

fn device() -> Device {
    let ptx = ".version 7.4\n.target sm_80\n.visible .entry reverse()\n.maxntid 256\n{\n}\n";
    let recursive = ".version 7.4\n.target sm_80\n.visible .entry recurses()\n.reqntid 1\n{\n}\n";
    let archs = vec![("sm_80", &*vec![("reverse", ptx), ("recurses", recursive)].leak())];
    let set = KernelSet::embedded(reverse::FACTS.source.crate_name, None, Ok(archs.leak()), &[]);
    Device::cuda(0, &[Box::leak(Box::new(set))]).unwrap()
}

/// Launches the kernel on so many numbers.
fn launch(device: &Device, numbers: u32, block: Dim3, dynamic_shared_bytes: u32) -> Result<Vec<u32>, Error> {
    let mut x = device.upload(&(0..numbers).collect::<Vec<_>>())?;
    device.launch(reverse { x: x.view_mut(), block, dynamic_shared_bytes })?;
    let mut result = vec![0; numbers as usize];
    x.copy_to(&mut result)?;
    Ok(result)
}

#[test]
fn the_executor_runs_what_a_launch_has_chosen() {
    let device = Device::cpu(Checks::Full);
    assert_eq!(launch(&device, 6, Dim3::from(3), 12).unwrap(), [2, 1, 0, 5, 4, 3]);
    assert_eq!(launch(&device, 6, Dim3::from(6), 100).unwrap(), [5, 4, 3, 2, 1, 0]);
}

/// What a device that offers so much shared memory for each block refuses, and how it says so.
fn refuses(device: &Device, available: u32) {
    launch(device, 256, Dim3::from(256), 48 << 10).unwrap();
    launch(device, 256, Dim3::from(32), available).unwrap();
    let message = |block, bytes| launch(device, 256, block, bytes).unwrap_err().to_string();
    let block = message(Dim3::from(512), 2048);
    assert!(block.contains("kernel `reverse`") && block.contains("`block <= 256` (512 against 256)"), "{block}");
    let shape = message(Dim3::new(16, 32, 1), 2048);
    assert!(shape.contains("`block <= 256` (512 against 256)"), "{shape}");
    let none = message(Dim3::new(32, 0, 1), 2048);
    assert!(none.contains("`block >= 1` (0 against 1)"), "{none}");
    let little = message(Dim3::from(64), 255);
    assert!(little.contains("`dynamic_shared_bytes >= 4 * block.x` (255 against 256)"), "{little}");
    let much = message(Dim3::from(64), available + 1);
    let said = format!("({} static, {} dynamic), and there are {available}", 0, available + 1);
    assert!(much.contains("reverse") && much.contains(&said), "{much}");
}

#[test]
fn the_executor_refuses_what_there_is_not() {
    refuses(&Device::cpu(Checks::Bounds), 227 << 10);
}

#[test]
fn a_gpu_refuses_what_there_is_not() {
    isolated("a_gpu_refuses_what_there_is_not", &[], || refuses(&device(), 227 << 10));
}

#[test]
fn a_smaller_gpu_refuses_more() {
    let variables = [("FAKE_CUDA_CAPABILITY", "8.6")];
    isolated("a_smaller_gpu_refuses_more", &variables, || refuses(&device(), 99 << 10));
}

/// The stack of each thread, as the fake driver has it.
fn stack_bytes() -> usize {
    // SAFETY: the library is open already, and has this function.
    unsafe {
        let library = libloading::Library::new(std::env::var(LIBRARY_VARIABLE).unwrap()).unwrap();
        let stack_bytes = library.get::<unsafe extern "C" fn() -> usize>("fake_stack_bytes").unwrap();
        stack_bytes()
    }
}

#[test]
fn a_gpu_gives_threads_the_stack_that_a_kernel_needs() {
    isolated("a_gpu_gives_threads_the_stack_that_a_kernel_needs", &[], || {
        let device = device();
        launch(&device, 256, Dim3::from(256), 2048).unwrap();
        assert_eq!(stack_bytes(), 1024, "as it was");
        device.launch(recurses {}).unwrap();
        assert_eq!(stack_bytes(), 100 << 10);
    });
}

#[test]
fn resident_blocks_are_those_of_the_choice() {
    let device = Device::cpu(Checks::Bounds);
    let mut x = device.upload(&[0u32; 256]).unwrap();
    let mut facts = |threads, dynamic_shared_bytes| -> KernelFacts {
        reverse { x: x.view_mut(), block: Dim3::from(threads), dynamic_shared_bytes }.facts()
    };
    let (small, large) = (facts(32, 128), facts(256, 100 << 10));
    let resident = |facts| device.resident_blocks(facts).unwrap();
    assert_eq!((resident(&small) / 132, resident(&large) / 132), (32, 2));
}
