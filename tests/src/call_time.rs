//! What a call of `tilewright::multiply` costs the thread that makes it, once its plan and its workspace are there.

use std::fmt::Write;
use std::hint::black_box;
use std::time::Instant;

use gpu_kernels::gemm::Gemm;
use gpu_kernels::gemm::basic::naive_2d::gemm_naive_2d_fp32;
use gpu_kernels::{Matrix, MatrixMut};
use tilewright::plan::{Description, GemmPlan, Options};
use tilewright::{Device, DeviceMatrix, Error, Precision};

/// The calls that are timed together. So few fit into the queue of a GPU, so that none waits.
const TOGETHER: u32 = 50;

/// How often they are.
const TIMES: usize = 400;

/// The median time of a call, in nanoseconds.
fn nanoseconds(device: &Device, mut call: impl FnMut() -> Result<(), Error>) -> Result<f64, Error> {
    let mut times = Vec::with_capacity(TIMES);
    for _ in 0..TIMES {
        device.synchronize()?;
        let start = Instant::now();
        for _ in 0..TOGETHER {
            call()?;
        }
        times.push(start.elapsed().as_nanos() as f64 / f64::from(TOGETHER));
    }
    times.sort_by(f64::total_cmp);
    Ok(times[TIMES / 2])
}

/// The times of calls, of their parts, and of a launch by itself, in lines of text.
///
/// # Errors
/// Those of the device.
pub fn report(device: &Device) -> Result<String, Error> {
    let mut text = format!("{}, medians in ns:\n", device.name());
    let mut buffers = [device.allocate::<f32>(4)?, device.allocate(4)?, device.allocate(4)?];
    let launch = nanoseconds(device, || {
        let [a, b, c] = &mut buffers;
        let c = MatrixMut::new(c.view_mut(), 2, 2, 2, 1)?;
        let gemm = Gemm::new(1.0, Matrix::new(a.view(), 2, 2, 2, 1)?, Matrix::new(b.view(), 2, 2, 2, 1)?, 0.0, c)?;
        device.launch(gemm_naive_2d_fp32 { gemm })
    })?;
    let _ = writeln!(text, "a launch of the simplest kernel: {launch:.0}");
    for (precision, size) in [
        (Precision::Fp32Strict, 64),
        (Precision::Tf32, 64),
        (Precision::Fp16, 64),
        (Precision::Fp32, 64),
        (Precision::Fp32, 512),
        (Precision::Fp16, 1024),
        (Precision::Fp32, 2048),
    ] {
        let matrix = || DeviceMatrix::new(device.allocate(size * size)?, size, size, [size, 1]);
        let (a, b, mut c) = (matrix()?, matrix()?, matrix()?);
        let product = Description::of(1.0, &a, &b, 0.0, &c)?;
        let options = Options::from(precision);
        let plan = device.plan(&product, &options)?;
        let mut workspace = plan.workspace(device)?;
        let described = nanoseconds(device, || black_box(Description::of(1.0, &a, &b, 0.0, &c)).map(drop))?;
        let found = nanoseconds(device, || black_box(device.plan(&product, &options)).map(drop))?;
        let run = nanoseconds(device, || plan.run(device, 1.0, &a, &b, 0.0, &mut c, &mut workspace))?;
        let call = nanoseconds(device, || tilewright::multiply(device, precision, 1.0, &a, &b, 0.0, &mut c))?;
        let start = Instant::now();
        for _ in 0..10 {
            black_box(GemmPlan::new(device, &product, &options)?);
        }
        let planned = start.elapsed().as_nanos() / 10;
        let kernels = plan.kernels().iter().map(|kernel| kernel.name).collect::<Vec<_>>().join(", ");
        let _ = writeln!(
            text,
            "{precision} {size}: a call {call:.0}; of this to describe {described:.0}, to find the plan {found:.0}, to run it \
             {run:.0} ({kernels}). To make the plan {planned}"
        );
    }
    Ok(text)
}
