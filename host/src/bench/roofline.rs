//! What the GPU can do at most, measured in the same run as everything else.
//!
//! | | how |
//! |---|---|
//! | read, write, copy | the best of the probes of [`gpu_kernels::probe`]: shapes of access times sizes of chunks, on arrays of gigabytes |
//! | CUDA cores | [`probe_fma_fp32`]: chains of fused multiplications and additions |
//! | tensor cores | cuBLAS itself on squares of 4096 and 8192: TF32 (A·Bᵀ), and bf16 with sums in fp32. No kernel does nothing else, so the best known one stands for the peak |
//!
//! The least time of a product is the larger of two: that of moving its operands once, and that of its operations on the
//! units that carry them out. What a kernel takes is told as a share of that.

use std::time::Duration;

use gpu_kernels::probe::{
    FMA_OPERATIONS, THREADS, blocks, probe_copy_deep_fp32, probe_copy_fp32, probe_copy_scalar_fp32,
    probe_copy_single_fp32, probe_fma_fp32, probe_read_deep_fp32, probe_read_fp32, probe_read_scalar_fp32,
    probe_read_single_fp32, probe_write_deep_fp32, probe_write_fp32, probe_write_scalar_fp32, probe_write_single_fp32,
};
use gpu_kernels::{Matrix, MatrixMut};
use serde::{Deserialize, Serialize};

use super::timing::Times;
use crate::Error;
use crate::baseline::{CuBlas, Math, Routine, SquareFormat};
use crate::input::{Distribution, random};
use tilewright::device::{Buffer, Device};
use tilewright::kernels::Scheme;

/// A ceiling, and what has reached it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ceiling {
    /// 10¹² bytes or operations per second, at the median.
    pub per_second: f64,
    /// The kernel or routine, and how it was launched.
    pub by: String,
}

/// The ceilings of a GPU.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Roofline {
    /// Reading, in TB/s.
    pub read: Ceiling,
    /// Writing, in TB/s.
    pub write: Ceiling,
    /// Copying, in TB/s: bytes read and bytes written.
    pub copy: Ceiling,
    /// fp32 on CUDA cores, in TFLOP/s.
    pub fma: Ceiling,
    /// TF32 on tensor cores, in TFLOP/s; none without cuBLAS.
    pub tf32: Option<Ceiling>,
    /// fp64 on tensor cores, in TFLOP/s; none without cuBLAS, or in reports from before it was measured.
    #[serde(default)]
    pub fp64: Option<Ceiling>,
    /// bf16 on tensor cores, in TFLOP/s, which is also what fp16 has; none without cuBLAS.
    pub bf16: Option<Ceiling>,
}

/// What a product asks of a GPU at the least.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Work {
    /// Bytes to read.
    pub read: f64,
    /// Bytes to write.
    pub written: f64,
    /// Multiplications and additions of the product.
    pub operations: f64,
    /// What is made of each of them.
    pub scheme: Scheme,
}

/// The least time of a product.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Least {
    /// In milliseconds.
    pub ms: f64,
    /// What it is that time of: `memory`, `CUDA cores` or `tensor cores`.
    pub bound_by: String,
}

impl Roofline {
    /// The least time for some work; none if it needs a ceiling that was not measured.
    pub fn least(&self, work: Work) -> Option<Least> {
        let ms = |amount: f64, ceiling: &Ceiling| amount / (ceiling.per_second * 1e12) * 1e3;
        let memory = ms(work.read, &self.read) + ms(work.written, &self.write);
        let tf32 = |times: f64| Some(times * ms(work.operations, self.tf32.as_ref()?));
        let half = |times: f64| Some(times * ms(work.operations, self.bf16.as_ref()?));
        let (compute, units) = match work.scheme {
            Scheme::Fp32Fp64 => (ms(work.operations, self.fp64.as_ref()?), "tensor cores"),
            // Int8 is twice as fast as bf16, on every GPU with `wgmma`.
            Scheme::Fp32TenInt8 => (half(5.0)?, "tensor cores"),
            Scheme::Fp32 => (ms(work.operations, &self.fma), "CUDA cores"),
            Scheme::Fp32ThreeTf32 => (tf32(3.0)?, "tensor cores"),
            Scheme::Fp32ThreeFp16 | Scheme::Fp32ScaledFp16 => (half(3.0)?, "tensor cores"),
            Scheme::Tf32 => (tf32(1.0)?, "tensor cores"),
            Scheme::Bf16 | Scheme::Fp16 => (half(1.0)?, "tensor cores"),
        };
        let (ms, bound_by) = if memory >= compute { (memory, "memory") } else { (compute, units) };
        Some(Least { ms, bound_by: bound_by.to_owned() })
    }

    /// The ceilings, on some lines.
    pub fn text(&self) -> String {
        let line = |name: &str, ceiling: Option<&Ceiling>, unit: &str| match ceiling {
            Some(Ceiling { per_second, by }) => format!("  {name:<13} {per_second:>7.2} {unit:<8} {by}\n"),
            None => format!("  {name:<13} not measured, for want of cuBLAS\n"),
        };
        let mut text = "Ceilings, measured in this run:\n".to_owned();
        for (name, ceiling) in [("read", &self.read), ("write", &self.write), ("copy", &self.copy)] {
            text += &line(name, Some(ceiling), "TB/s");
        }
        text += &line("CUDA cores", Some(&self.fma), "TFLOP/s");
        text += &line("tensor, TF32", self.tf32.as_ref(), "TFLOP/s");
        text += &line("tensor, fp64", self.fp64.as_ref(), "TFLOP/s");
        text + &line("tensor, bf16", self.bf16.as_ref(), "TFLOP/s")
    }
}

/// The elements of the largest arrays that memory probes are run on, and of the smallest, which still exceed every cache by
/// far.
const ELEMENTS: (usize, usize) = (1 << 30, 1 << 26);

/// The sizes of chunks, in powers of two of elements: for reading, where a block should stay, and for writing and copying,
/// where it should not. All are tried for all three.
const CHUNKS: [u32; 10] = [10, 11, 12, 13, 14, 16, 17, 18, 19, 20];

/// The runs of each probe, after one that is not measured.
const RUNS: usize = 7;

/// The sizes of the squares that tensor cores multiply. The larger one has the better rate, as long as power allows.
const SQUARES: [usize; 2] = [4096, 8192];

/// The blocks of a multiprocessor, the waves of them, and the rounds of [`probe_fma_fp32`].
const FMA_BLOCKS: usize = 8;
const FMA_WAVES: [usize; 2] = [1, 4];
const FMA_ROUNDS: u32 = 8000;

/// Measures the ceilings of a GPU.
///
/// # Errors
/// [`DeviceError::Driver`](runtime::Error::Driver) where there is too little memory; those of launches.
pub fn measure(device: &Device, blas: Option<&CuBlas>) -> Result<Roofline, Error> {
    let free = device.free_memory()?.map_or(0, |free| free.0);
    let mut len = ELEMENTS.0;
    // Two arrays, the sums, and something for everybody else.
    while len > ELEMENTS.1 && 4 * 4 * len as u128 > free {
        len /= 2;
    }
    let source = device.upload(&random(len, Distribution::Uniform11, 0, 0))?;
    let mut target = device.allocate::<f32>(len)?;
    let most_blocks = blocks(len, 1 << CHUNKS[0]) as usize;
    let mut sums = device.allocate::<f32>(most_blocks * THREADS as usize)?;

    let [mut reads, mut writes, mut copies] = [const { Vec::new() }; 3];
    for exponent in CHUNKS {
        let chunk = 1u64 << exponent;
        macro_rules! probe {
            ($least:literal, $read:ident, $write:ident, $copy:ident) => {
                // A chunk of less than one step would be walked element by element.
                if chunk >= $least {
                    let by = |name: &str| format!("{name}, chunks of 2^{exponent}");
                    let (data, sums) = (source.view(), sums.view_mut());
                    reads.push((by(stringify!($read)), time(device, || device.launch($read { data, chunk, sums }))?));
                    let (data, out) = (source.view(), target.view_mut());
                    let (value, target) = (1.0, out);
                    writes.push((
                        by(stringify!($write)),
                        time(device, || device.launch($write { value, chunk, target }))?,
                    ));
                    copies.push((
                        by(stringify!($copy)),
                        time(device, || device.launch($copy { source: data, chunk, target }))?,
                    ));
                }
            };
        }
        probe!(4096, probe_read_fp32, probe_write_fp32, probe_copy_fp32);
        probe!(8192, probe_read_deep_fp32, probe_write_deep_fp32, probe_copy_deep_fp32);
        probe!(1024, probe_read_single_fp32, probe_write_single_fp32, probe_copy_single_fp32);
        probe!(2048, probe_read_scalar_fp32, probe_write_scalar_fp32, probe_copy_scalar_fp32);
    }
    let bytes = 4.0 * len as f64;
    let squares = |format| blas.map(|blas| squares(device, blas, format)).transpose();
    Ok(Roofline {
        read: best(reads, bytes),
        write: best(writes, bytes),
        copy: best(copies, 2.0 * bytes),
        fma: fma(device)?,
        tf32: blas.map(|blas| tf32(device, blas, &source, &target)).transpose()?,
        fp64: squares(SquareFormat::Fp64)?,
        bf16: squares(SquareFormat::Bf16)?,
    })
}

/// The time of one launch, in milliseconds: the median of some, after one that is not measured.
pub(crate) fn time<E: From<runtime::Error>>(
    device: &Device,
    mut launch: impl FnMut() -> Result<(), E>,
) -> Result<f64, Error>
where
    Error: From<E>,
{
    launch()?;
    let times = device.time(RUNS, launch)?;
    Ok(Times::of(&times, 1).map_or(f64::INFINITY, |times| times.median_ms))
}

/// The fastest of some, as what it does per second.
fn best(times: Vec<(String, f64)>, amount: f64) -> Ceiling {
    let fastest = times.into_iter().min_by(|a, b| a.1.total_cmp(&b.1));
    let (by, ms) = fastest.unwrap_or_else(|| ("nothing".to_owned(), f64::INFINITY));
    Ceiling { per_second: amount / (ms * 1e-3) * 1e-12, by }
}

/// Fused multiplications and additions.
pub(crate) fn fma(device: &Device) -> Result<Ceiling, Error> {
    let multiprocessors = device.multiprocessors() as usize;
    let mut times = Vec::new();
    for waves in FMA_WAVES {
        let blocks = multiprocessors * FMA_BLOCKS * waves;
        let mut results = device.allocate::<f32>(blocks * THREADS as usize)?;
        let results = results.view_mut();
        let rounds = FMA_ROUNDS / waves as u32;
        let ms = time(device, || device.launch(probe_fma_fp32 { factor: 0.999, offset: 0.001, rounds, results }))?;
        let by = format!("probe_fma_fp32, {blocks} blocks");
        // Blocks times rounds are the same for all, so the times can be compared.
        times.push((by, ms));
    }
    let threads = (multiprocessors * FMA_BLOCKS * THREADS as usize) as f64;
    Ok(best(times, threads * f64::from(FMA_ROUNDS) * FMA_OPERATIONS as f64))
}

/// TF32 by cuBLAS, A·Bᵀ, the faster of its two ways.
fn tf32(device: &Device, blas: &CuBlas, source: &Buffer<f32>, target: &Buffer<f32>) -> Result<Ceiling, Error> {
    let mut ceilings = Vec::new();
    for size in SQUARES {
        let a = Matrix::new(source.view(), size, size, size, 1)?.into();
        let b = Matrix::new(target.view(), size, size, 1, size)?.into();
        let mut c = device.allocate::<f32>(size * size)?;
        let c = MatrixMut::new(c.view_mut(), size, size, size, 1)?.into();
        for routine in [Routine::Gemm, Routine::Lt] {
            let call = blas.prepare(routine, Math::Tf32, a, b, c)?;
            // SAFETY: three buffers of the device that cuBLAS was opened on.
            let ms = time(device, || unsafe { call.run(1.0, a, b, 0.0, c) })?;
            ceilings.push(best(vec![(format!("{} TF32, A·Bᵀ, {size}³", routine.name()), ms)], cube(size)));
        }
    }
    Ok(highest(ceilings))
}

/// Squares of a format by cuBLAS.
fn squares(device: &Device, blas: &CuBlas, format: SquareFormat) -> Result<Ceiling, Error> {
    let mut ceilings = Vec::new();
    for size in SQUARES {
        let [len, _, results] = format.words(size);
        let words = |operand| -> Vec<u32> {
            let numbers = random(2 * len, Distribution::Uniform11, 0, operand);
            let words = numbers.chunks_exact(2).map(|pair| match format {
                // The upper half of an fp32 number is a bf16 number, rounded towards zero.
                SquareFormat::Bf16 => pair[0].to_bits() >> 16 | pair[1].to_bits() & 0xFFFF_0000,
                // The bits of an fp32 number of [1, 1.5) are the upper half of an fp64 number below 1; any are a lower half.
                SquareFormat::Fp64 => (1.0 + pair[0].abs() / 2.0).to_bits(),
            });
            words.collect()
        };
        let (a, b) = (device.upload(&words(0))?, device.upload(&words(1))?);
        let mut c = device.allocate::<u32>(results)?;
        let ms = time(device, || blas.square(format, size, &a, &b, &mut c))?;
        ceilings.push(best(vec![(format!("cublasGemmEx {format}, {size}³"), ms)], cube(size)));
    }
    Ok(highest(ceilings))
}

/// The operations of a product of squares.
fn cube(size: usize) -> f64 {
    2.0 * (size as f64).powi(3)
}

/// The highest of some ceilings.
fn highest(ceilings: Vec<Ceiling>) -> Ceiling {
    let none = || Ceiling { per_second: 0.0, by: "nothing".to_owned() };
    ceilings.into_iter().max_by(|a, b| a.per_second.total_cmp(&b.per_second)).unwrap_or_else(none)
}

/// Keeps a GPU busy for a given time, with work that leaves memory and caches alone.
pub(crate) struct Stall {
    device: Device,
    results: Buffer<f32>,
    rounds_per_ms: f64,
}

impl Stall {
    /// By the measured speed of the CUDA cores.
    ///
    /// # Errors
    /// [`DeviceError::Driver`](runtime::Error::Driver) where there is no memory.
    pub(crate) fn new(device: &Device, fma: &Ceiling) -> Result<Self, Error> {
        let threads = device.multiprocessors() as usize * FMA_BLOCKS * THREADS as usize;
        let results = device.allocate(threads)?;
        let rounds_per_ms = fma.per_second * 1e9 / (threads as f64 * FMA_OPERATIONS as f64);
        Ok(Self { device: device.clone(), results, rounds_per_ms })
    }

    /// Queues work for about so many milliseconds.
    ///
    /// # Errors
    /// Those of a launch.
    pub(crate) fn run(&mut self, ms: f64) -> Result<(), Error> {
        let rounds = (ms * self.rounds_per_ms).ceil().clamp(1.0, 1e9) as u32;
        let results = self.results.view_mut();
        Ok(self.device.launch(probe_fma_fp32 { factor: 0.999, offset: 0.001, rounds, results })?)
    }
}

/// A share of a ceiling's time: what would have been enough, of what was needed.
pub fn share(least: &Least, median: Duration) -> f64 {
    least.ms / (median.as_secs_f64() * 1e3).max(f64::MIN_POSITIVE)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn roofline() -> Roofline {
        let ceiling = |per_second| Ceiling { per_second, by: "a probe".to_owned() };
        Roofline {
            read: ceiling(4.0),
            write: ceiling(2.0),
            copy: ceiling(3.0),
            fma: ceiling(50.0),
            tf32: Some(ceiling(400.0)),
            fp64: Some(ceiling(50.0)),
            bf16: Some(ceiling(800.0)),
        }
    }

    fn least(scheme: Scheme, read: f64, written: f64, operations: f64) -> (f64, String) {
        let least = roofline().least(Work { read, written, operations, scheme }).unwrap();
        ((least.ms * 1e6).round() / 1e6, least.bound_by)
    }

    #[test]
    fn the_least_time_is_that_of_the_busier_of_memory_and_units() {
        // 8 GB read at 4 TB/s, 2 GB written at 2 TB/s.
        assert_eq!(least(Scheme::Fp32, 8e9, 2e9, 1e9), (3.0, "memory".to_owned()));
        // 1 TFLOP.
        assert_eq!(least(Scheme::Fp32, 0.0, 0.0, 1e12), (20.0, "CUDA cores".to_owned()));
        assert_eq!(least(Scheme::Tf32, 0.0, 0.0, 1e12).0, 2.5);
        assert_eq!(least(Scheme::Fp32ThreeTf32, 0.0, 0.0, 1e12).0, 7.5);
        assert_eq!(least(Scheme::Fp32ScaledFp16, 0.0, 0.0, 1e12).0, 3.75);
        assert_eq!(least(Scheme::Bf16, 0.0, 0.0, 1e12).0, 1.25);
        assert_eq!(least(Scheme::Fp32Fp64, 0.0, 0.0, 1e12).0, 20.0);
    }

    #[test]
    fn without_a_ceiling_there_is_no_least_time() {
        let without = Roofline { tf32: None, bf16: None, ..roofline() };
        let work = |scheme| Work { read: 1.0, written: 1.0, operations: 1.0, scheme };
        assert!(without.least(work(Scheme::Fp32ThreeTf32)).is_none());
        assert!(without.least(work(Scheme::Fp32)).is_some());
        assert!(without.text().contains("not measured"));
    }

    #[test]
    fn the_best_of_some_counts() {
        let ceiling = best(vec![("slow".to_owned(), 2.0), ("fast".to_owned(), 1.0)], 4e9);
        assert_eq!((ceiling.by.as_str(), ceiling.per_second), ("fast", 4.0));
        let slower = Ceiling { per_second: 3.0, by: "slow".to_owned() };
        assert_eq!(highest(vec![slower.clone(), ceiling, slower]).by, "fast");
        let least = Least { ms: 1.5, bound_by: "memory".to_owned() };
        assert_eq!(share(&least, Duration::from_millis(2)), 0.75);
    }
}
