//! cuBLAS calls against a stand-in that computes on the host what its documentation says, on the CPU device's memory.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use cuda_std::executor::Checks;
use gpu_kernels::{Matrix, MatrixBatch, MatrixBatchMut, MatrixMut};

use super::*;
use crate::Error;
use tilewright::Device;

/// The stand-in under its two names, compiled when it is first asked for.
fn fake() -> &'static Path {
    static LIBRARY: OnceLock<(tempfile::TempDir, PathBuf)> = OnceLock::new();
    let (_, path) = LIBRARY.get_or_init(|| {
        let folder = tempfile::tempdir().unwrap();
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/baseline/fake_cublas.rs");
        let compiled = folder.path().join("libcublas.so.13");
        let output = Command::new("rustc")
            .args(["--edition=2024", "--crate-type=cdylib", "--crate-name=cublas", "-Cpanic=abort"])
            .args(["-Adead_code", "-Anon_snake_case"])
            .arg("-o")
            .args([&compiled, &source])
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        // One file under two names is one library, which counts all calls together.
        std::os::unix::fs::symlink(&compiled, folder.path().join("libcublasLt.so.13")).unwrap();
        (folder, compiled)
    });
    path
}

fn open(device: &Device) -> CuBlas {
    CuBlas::load(device, fake()).unwrap().unwrap()
}

/// How a matrix lies in memory.
#[derive(Clone, Copy, Debug)]
struct Lie {
    rows: usize,
    cols: usize,
    row_stride: usize,
    col_stride: usize,
    batch_stride: usize,
}

impl Lie {
    /// With contiguous rows or contiguous columns, and `gap` elements between them.
    fn new(rows: usize, cols: usize, by_rows: bool, gap: usize) -> Self {
        let (row_stride, col_stride) = if by_rows { (cols + gap, 1) } else { (1, rows + gap) };
        let batch_stride = 5 + if by_rows { rows * (cols + gap) } else { cols * (rows + gap) };
        Self { rows, cols, row_stride, col_stride, batch_stride }
    }

    fn at(&self, matrix: usize, row: usize, col: usize) -> usize {
        matrix * self.batch_stride + row * self.row_stride + col * self.col_stride
    }

    fn len(&self, count: usize) -> usize {
        count * self.batch_stride
    }
}

const COUNT: usize = 3;

/// Computes a batch through the stand-in, and compares every element with a plain sum. What lies between the rows of C must
/// stay as it was.
fn agrees(routine: Routine, count: usize, a: Lie, b: Lie, c: Lie) {
    let device = Device::cpu(Checks::Bounds);
    let blas = open(&device);
    let numbers = |len, seed: usize| (0..len).map(|i| ((i * 7 + seed) % 13) as f32 - 6.0).collect::<Vec<f32>>();
    let (host_a, host_b, host_c) = (numbers(a.len(count), 1), numbers(b.len(count), 2), numbers(c.len(count), 3));
    let (there_a, there_b) = (device.upload(&host_a).unwrap(), device.upload(&host_b).unwrap());
    let mut there_c = device.upload(&host_c).unwrap();
    {
        let read = |buffer, lie: Lie| {
            let first = Matrix::new(buffer, lie.rows, lie.cols, lie.row_stride, lie.col_stride).unwrap();
            MatrixBatch::new(first, lie.batch_stride, count).unwrap()
        };
        let first = MatrixMut::new(there_c.view_mut(), c.rows, c.cols, c.row_stride, c.col_stride).unwrap();
        let result = MatrixBatchMut::new(first, c.batch_stride, count).unwrap();
        let (left, right) = (read(there_a.view(), a), read(there_b.view(), b));
        let call = blas.prepare(routine, Math::Fp32, left, right, result).unwrap();
        // SAFETY: buffers of the device that the library was opened on; C is one of its own.
        unsafe { call.run(2.0, left, right, -1.0, result) }.unwrap();
    }
    let mut expected = host_c.clone();
    for matrix in 0..count {
        for row in 0..c.rows {
            for col in 0..c.cols {
                let sum: f32 = (0..a.cols).map(|l| host_a[a.at(matrix, row, l)] * host_b[b.at(matrix, l, col)]).sum();
                let place = c.at(matrix, row, col);
                expected[place] = 2.0 * sum - host_c[place];
            }
        }
    }
    let mut result = host_c;
    there_c.copy_to(&mut result).unwrap();
    assert_eq!(result, expected, "{routine:?} {a:?} {b:?} {c:?}");
}

#[test]
fn every_layout_gives_the_product_by_every_routine() {
    let (m, n, k) = (5, 7, 3);
    for routine in [Routine::Gemm, Routine::Lt] {
        for count in [1, COUNT] {
            for layouts in 0..8 {
                let by_rows = |bit: usize| layouts >> bit & 1 == 0;
                let (a, b) = (Lie::new(m, k, by_rows(0), 2), Lie::new(k, n, by_rows(1), 1));
                agrees(routine, count, a, b, Lie::new(m, n, by_rows(2), 4));
            }
        }
    }
}

#[test]
fn matrix_times_vector_takes_a_by_rows_and_by_columns() {
    for by_rows in [true, false] {
        let (a, x) = (Lie::new(5, 3, by_rows, 2), Lie::new(3, 1, true, 2));
        agrees(Routine::Gemv, 1, a, x, Lie::new(5, 1, true, 3));
        agrees(Routine::Gemm, 1, a, x, Lie::new(5, 1, true, 0));
    }
}

#[test]
fn vectors_are_one_column_of_one_product() {
    let device = Device::cpu(Checks::Bounds);
    let blas = open(&device);
    let data = device.upload(&[0.0; 64]).unwrap();
    let mut written = device.upload(&[0.0; 64]).unwrap();
    let matrix = |rows, cols| MatrixBatch::from(Matrix::new(data.view(), rows, cols, cols, 1).unwrap());
    let result = MatrixBatchMut::from(MatrixMut::new(written.view_mut(), 5, 2, 2, 1).unwrap());
    let refused = blas.prepare(Routine::Gemv, Math::Fp32, matrix(5, 3), matrix(3, 2), result).err().unwrap();
    assert!(refused.to_string().contains("use cublasSgemm"), "{refused}");
}

#[test]
fn operands_laid_out_otherwise_than_prepared_are_refused() {
    let device = Device::cpu(Checks::Bounds);
    let blas = open(&device);
    let data = device.upload(&[0.0; 64]).unwrap();
    let mut written = device.upload(&[0.0; 64]).unwrap();
    let matrix = |rows, cols| MatrixBatch::from(Matrix::new(data.view(), rows, cols, cols, 1).unwrap());
    let result = MatrixBatchMut::from(MatrixMut::new(written.view_mut(), 5, 2, 2, 1).unwrap());
    let call = blas.prepare(Routine::Gemm, Math::Fp32, matrix(5, 3), matrix(3, 2), result).unwrap();
    // SAFETY: buffers of the device that the library was opened on; C is one of its own.
    let refused = unsafe { call.run(1.0, matrix(5, 4), matrix(4, 2), 0.0, result) }.unwrap_err();
    assert!(matches!(refused, Error::Baseline(BaselineError::Unprepared)), "{refused}");
}

#[test]
fn a_failing_call_names_function_and_status() {
    let device = Device::cpu(Checks::Bounds);
    let blas = open(&device);
    let data = device.upload(&[0.0; 64]).unwrap();
    let mut written = device.upload(&[0.0; 64]).unwrap();
    // The stand-in refuses this extent.
    let matrix = |rows, cols| MatrixBatch::from(Matrix::new(data.view(), rows, cols, cols, 1).unwrap());
    let result = MatrixBatchMut::from(MatrixMut::new(written.view_mut(), 13, 1, 1, 1).unwrap());
    let call = blas.prepare(Routine::Gemm, Math::Tf32, matrix(13, 1), matrix(1, 1), result).unwrap();
    // SAFETY: as above.
    let failed = unsafe { call.run(1.0, matrix(13, 1), matrix(1, 1), 0.0, result) }.unwrap_err().to_string();
    assert_eq!(failed, "cublasSgemm failed with status 13 (the stand-in's status)");
    let none = blas.prepare(Routine::Lt, Math::Tf32, matrix(13, 1), matrix(1, 1), result).err().unwrap();
    assert!(matches!(none, Error::Baseline(BaselineError::NoAlgorithm)), "{none}");
}

/// Opens the stand-in, and multiplies by each routine. What could not be done is named by the function that failed.
fn use_everything(device: &Device) -> Result<(), String> {
    let blas = CuBlas::load(device, fake()).map_err(|error| error.to_string())??;
    let data = device.upload(&[1.0; 64]).unwrap();
    let mut written = device.upload(&[0.0; 64]).unwrap();
    for (routine, n, count) in
        [(Routine::Gemm, 2, 1), (Routine::Gemm, 2, 2), (Routine::Gemv, 1, 1), (Routine::Lt, 2, 2)]
    {
        let batch = |rows, cols| {
            let first = Matrix::new(data.view(), rows, cols, cols, 1).unwrap();
            MatrixBatch::new(first, rows * cols, count).unwrap()
        };
        let first = MatrixMut::new(written.view_mut(), 5, n, n, 1).unwrap();
        let result = MatrixBatchMut::new(first, 5 * n, count).unwrap();
        let product = || -> Result<(), Error> {
            let call = blas.prepare(routine, Math::Fp32, batch(5, 3), batch(3, n), result)?;
            // SAFETY: buffers of the device that the library was opened on; C is one of its own.
            unsafe { call.run(1.0, batch(5, 3), batch(3, n), 0.0, result) }
        };
        match product() {
            Ok(()) => {}
            Err(Error::Baseline(error @ BaselineError::Call { status: 14, .. })) => return Err(error.to_string()),
            Err(other) => panic!("{routine:?}: {other}"),
        }
    }
    Ok(())
}

/// Each call of cuBLAS's functions fails in turn: an error that names a function, and nothing is left behind.
#[test]
fn every_call_fails_in_turn() {
    let device = Device::cpu(Checks::Bounds);
    drop(open(&device));
    // SAFETY: the stand-in has been opened, and stays open; these are the types of its functions.
    let (begin, calls, live) = unsafe {
        let library = std::mem::ManuallyDrop::new(libloading::Library::new(fake()).unwrap());
        (
            *library.get::<extern "C" fn(usize)>("fake_begin").unwrap(),
            *library.get::<extern "C" fn() -> usize>("fake_calls").unwrap(),
            *library.get::<extern "C" fn() -> i32>("fake_live").unwrap(),
        )
    };
    begin(0);
    use_everything(&device).unwrap();
    assert_eq!(live(), 0, "nothing fails, and something is left");
    let all = calls();
    let mut silent = 0;
    for number in 1..=all {
        begin(number);
        match use_everything(&device) {
            Err(message) => {
                assert!(message.contains("cublas") && message.contains("failed with status 14"), "{number}: {message}");
                assert_eq!(live(), 0, "call {number}: {message}");
            }
            // What fails to be destroyed is left, and nobody is left to be told.
            Ok(()) => {
                assert_eq!(live(), 1, "call {number} has failed, and nobody has noticed");
                silent += 1;
            }
        }
    }
    // Five objects of cuBLASLt for its product, and two handles.
    assert_eq!(silent, 7, "of {all}");
}

#[test]
fn what_is_no_cublas_is_refused_with_a_reason() {
    let device = Device::cpu(Checks::Bounds);
    let reason = |path: &str| CuBlas::load(&device, path.as_ref()).unwrap().err().unwrap();
    assert!(reason("/no/such/libcublas.so.13").contains("cannot open shared object file"));
    assert_eq!(open(&device).version(), "13.1.0");
    assert_eq!(open(&device).path(), fake());
    let message = CuBlas::open(&device).err().unwrap().to_string();
    assert!(message.contains("CUDA GPUs only"), "{message}");
    let message = BaselineError::NoLibrary { tried: vec!["x: not there".to_owned()] }.to_string();
    assert!(message.contains("x: not there") && message.contains(LIBRARY_VARIABLE), "{message}");
}
