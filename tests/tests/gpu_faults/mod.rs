//! What a real GPU does when a kernel fails, or never ends, and when its memory is used up.
//!
//! A context that a kernel has ended cannot be repaired in its process, and a kernel that never ends cannot be stopped in
//! its own. So the trials `faults::…` run this same program again, with one of the trials `planted::…`, which are run only if
//! asked for:
//!
//! ```text
//!  faults::a_trap_…      ──process──▶ planted::trap      everything fails ever after, and says why
//!  faults::an_endless_…  ──process──▶ planted::endless   ended after a while; then the GPU computes as before
//! ```
//!
//! The trials `alone::…` are to be run alone, and so only if asked for, too.

use std::process::{Command, Stdio};
use std::time::Duration;

use cuda_driver::Error as DriverError;
use gpu_kernels::gemm::Gemm;
use gpu_kernels::gemm::basic::naive_2d::gemm_naive_2d_fp32;
use gpu_kernels::{Matrix, MatrixMut};
use host::planted::Fault;
use libtest_mimic::{Failed, Trial};
use testkit::child::{self, Ended};
use tests::{Batch, Layouts, Planned, Problem, Sizes};
use tilewright::kernels;
use tilewright::{Buffer, Device, DeviceError, Error};

use super::{still_works, test};

/// How long a process may take that ends by itself: most of it is the driver's start.
const PATIENCE: Duration = Duration::from_secs(120);

/// How long a process is left alone that never ends: long enough for the kernel to have begun.
const ENDLESS: Duration = Duration::from_secs(20);

pub(super) fn trials() -> Vec<Trial> {
    let planted = Fault::ALL.into_iter().map(|fault| {
        let run = move |device: &Device| if fault == Fault::Trap { trap(device) } else { planted(device, fault) };
        test(format!("planted::{fault}"), run).with_ignored_flag(true)
    });
    let faults = [
        test("faults::a_trap_ends_the_context_and_everything_says_so", |_| in_a_process(Fault::Trap, Some(PATIENCE))),
        test("faults::an_endless_kernel_is_ended_with_its_process", endless),
        // No other trial would find memory meanwhile.
        test("alone::memory_exhausted_midway", memory_exhausted_midway).with_ignored_flag(true),
    ];
    planted.chain(faults).collect()
}

/// Runs a kernel with a fault, of which a tool may have something to say.
fn planted(device: &Device, fault: Fault) -> Result<(), Failed> {
    // SAFETY: nothing else is done in this process, which was asked for this trial alone.
    Ok(unsafe { fault.run(device) }?)
}

/// Runs the trial of a planted fault in a process of its own, and fails if that does.
fn in_a_process(fault: Fault, limit: Option<Duration>) -> Result<(), Failed> {
    match run_planted(fault, limit)? {
        Ended::Exited(status) if status.success() => Ok(()),
        other => Err(format!("planted::{fault}, in its own process: {other:?}").into()),
    }
}

fn run_planted(fault: Fault, limit: Option<Duration>) -> Result<Ended, Failed> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["--ignored", "--exact", &format!("planted::{fault}"), "--test-threads", "1"]).stdin(Stdio::null());
    Ok(child::run(&mut command, limit)?)
}

/// A kernel that never ends is ended with its process, after which the GPU computes as before.
fn endless(device: &Device) -> Result<(), Failed> {
    match run_planted(Fault::Endless, Some(ENDLESS))? {
        Ended::TimeLimit => still_works(device),
        ended => Err(format!("the process with the endless kernel has ended by itself: {ended:?}").into()),
    }
}

/// A kernel that gives up: from then on everything fails with the same error, in which the kernel is named.
fn trap(device: &Device) -> Result<(), Failed> {
    let mut buffers = [device.upload(&[1.0f32; 4])?, device.upload(&[1.0f32; 4])?, device.upload(&[1.0f32; 4])?];
    device.prepare(&gemm_naive_2d_fp32::FACTS)?;
    // SAFETY: the kernel does nothing but end the context; nobody goes by what this process computes after that.
    let first = unsafe { Fault::Trap.run(device) }.err().ok_or("the kernel has not failed")?;
    let Error::Device(DeviceError::Driver(DriverError::ContextLost { kernels, .. })) = &first else {
        return Err(format!("not the error for a lost context: {first}").into());
    };
    if *kernels != [Fault::Trap.kernel()] {
        return Err(format!("the kernel is not blamed: {first}").into());
    }
    println!("{first}");
    let expected = first.to_string();
    let mut target = [0.0; 4];
    let all: [(&str, Result<(), DeviceError>); 11] = [
        ("check_context", device.check_context()),
        ("synchronize", device.synchronize()),
        ("upload", device.upload(&[1.0f32; 4]).map(drop)),
        ("allocate", device.allocate::<u32>(4).map(drop)),
        ("copy to the host", buffers[0].copy_to(&mut target)),
        ("copy to the GPU", buffers[0].copy_from(&target)),
        ("fill", buffers[0].fill_bytes(0)),
        ("launch", (**device).launch(gemm_naive_2d_fp32 { gemm: small_product(&mut buffers) })),
        ("prepare", device.prepare(&gemm_naive_2d_fp32::FACTS).map(drop)),
        ("time", device.time(1, || Ok(())).map(drop)),
        ("free memory", device.free_memory().map(drop)),
    ];
    for (what, result) in all {
        let error = result.err().ok_or_else(|| format!("{what} succeeds"))?.to_string();
        if error != expected {
            return Err(format!("{what} says {error}, not {expected}").into());
        }
    }
    Ok(())
}

fn small_product([a, b, c]: &mut [Buffer<f32>; 3]) -> Gemm<'_> {
    let matrix = |view| Matrix::new(view, 2, 2, 2, 1).expect("2x2 is in 4 elements");
    let c = MatrixMut::new(c.view_mut(), 2, 2, 2, 1).expect("2x2 is in 4 elements");
    Gemm::new(1.0, matrix(a.view()), matrix(b.view()), 0.0, c).expect("the shapes make a product")
}

/// All of the GPU's memory is taken but for less and less: a product with a workspace fails with the error for that as long as it
/// does not fit, leaves nothing behind, and succeeds as soon as it does.
fn memory_exhausted_midway(device: &Device) -> Result<(), Failed> {
    // In numbers of eight bytes, as all sizes here.
    const STEP: usize = (4 << 20) / 8;
    let kernel = kernels::find("gemm_wgmma_packed_fp32_3xfp16")?;
    let kernel = if device.has_kernel(&kernel.facts).is_ok() { kernel } else { kernels::find("gemm_mma_nn_tf32")? };
    let batch = Batch::from(Problem::new(Sizes { m: 1500, n: 1400, k: 1300 }, Layouts::ALL[0], 1));
    let product = || Planned::check_one(device, kernel, Some(1), &batch);
    let free = || -> Result<u128, Failed> { Ok(device.free_memory()?.ok_or("a GPU tells its free memory")?.0) };
    // Loads what it needs, which stays.
    product()?;
    let before = free()?;
    let mut taken: Vec<Buffer<u64>> = Vec::new();
    let mut size = usize::try_from(before)? / 8;
    while size >= STEP {
        match device.allocate(size) {
            Ok(buffer) => taken.push(buffer),
            Err(DeviceError::Driver(DriverError::OutOfMemory { .. })) => size /= 2,
            Err(other) => return Err(other.into()),
        }
    }
    let mut refusals = 0;
    loop {
        let full = free()?;
        match product() {
            Ok(_) => break,
            Err(error) if error.to_string().contains("out of GPU memory") => refusals += 1,
            Err(error) => return Err(error.into()),
        }
        if free()? != full {
            return Err(format!("{full} bytes were free before a product that failed, {} after it", free()?).into());
        }
        // The smallest first.
        taken.pop().ok_or("nothing is taken any more, and the product does not fit")?;
    }
    if refusals == 0 {
        return Err("the product has never failed: the memory was not full".into());
    }
    drop(taken);
    match free()? {
        after if after == before => still_works(device),
        after => Err(format!("{before} bytes were free at first, {after} at the end").into()),
    }
}
