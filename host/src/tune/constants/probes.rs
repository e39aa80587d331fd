//! What is measured of a GPU without any product: what a launch costs, and the bandwidth of the memory.

use gpu_kernels::probe::{
    THREADS, blocks, probe_fma_fp32, probe_read_deep_fp32, probe_read_fp32, probe_read_single_fp32,
};

use crate::Error;
use crate::bench::roofline;
use crate::bench::timing::{Busy, Contestant, Race};
use std::time::Duration;
use tilewright::Device;

/// The bytes that are read for the bandwidth: so many times the second-level cache, within these bounds.
const TIMES_CACHE: u64 = 16;
const READ_BYTES: (u64, u64) = (256 << 20, 2 << 30);

/// The part of the free memory that they may take.
const SHARE_OF_MEMORY: u128 = 4;

/// What measuring a launch may take, and how often it is measured at most.
const BUDGET: Duration = Duration::from_millis(60);
const RUNS: usize = 30;

/// What probes say of a GPU.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Probed {
    /// What a launch of next to nothing takes among others, in seconds.
    pub(super) launch_seconds: f64,
    /// The bandwidth of reading, in bytes per second.
    pub(super) bandwidth: f64,
}

/// Measures a GPU. `busy` keeps it busy while launches are queued.
///
/// # Errors
/// [`DeviceError::Driver`](runtime::Error::Driver) where there is too little memory; those of launches.
pub(super) fn probe(device: &Device, busy: Busy<'_>) -> Result<Probed, Error> {
    Ok(Probed { launch_seconds: launch(device, busy)?, bandwidth: bandwidth(device)? })
}

fn launch(device: &Device, busy: Busy<'_>) -> Result<f64, Error> {
    let mut results = device.allocate::<f32>(THREADS as usize)?;
    let nothing: Contestant<'_> = Box::new(|_| {
        let results = results.view_mut();
        Ok(device.launch(probe_fma_fp32 { factor: 0.999, offset: 0.001, rounds: 1, results })?)
    });
    let times = Race { device, runs: RUNS, sets: 1, busy }.run_within(BUDGET, 5, &mut [nothing])?;
    Ok(times[0].median_ms * 1e-3)
}

fn bandwidth(device: &Device) -> Result<f64, Error> {
    let l2_bytes = device.gpu_properties().map_or(0, |properties| properties.l2_bytes);
    let free = device.free_memory()?.map_or(u128::from(READ_BYTES.0), |free| free.0);
    let wanted = (TIMES_CACHE * u64::from(l2_bytes)).clamp(READ_BYTES.0, READ_BYTES.1);
    let bytes = u128::from(wanted).min(free / SHARE_OF_MEMORY) as usize;
    let len = (bytes / 4).max(1 << 20);
    let mut source = device.allocate::<f32>(len)?;
    source.fill_bytes(0)?;
    // Enough for the smallest chunks below.
    let mut sums = device.allocate::<f32>(blocks(len, 1 << 11) as usize * THREADS as usize)?;
    let mut least = f64::INFINITY;
    macro_rules! probe {
        ($($kernel:ident $exponent:literal),*) => {
            $(
                let (data, parts) = (source.view(), sums.view_mut());
                let launch = || device.launch($kernel { data, chunk: 1 << $exponent, sums: parts });
                let ms = roofline::time(device, launch)?;
                least = least.min(ms);
            )*
        };
    }
    probe!(
        probe_read_fp32 12,
        probe_read_fp32 14,
        probe_read_deep_fp32 13,
        probe_read_deep_fp32 15,
        probe_read_single_fp32 11,
        probe_read_single_fp32 13
    );
    Ok(4.0 * len as f64 / (least * 1e-3))
}
