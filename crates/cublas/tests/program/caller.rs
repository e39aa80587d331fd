//! A program that multiplies by cuBLAS, compiled with rustc alone: with `--cfg linked` against the fake one, otherwise it opens it and looks the
//! functions up. Its first argument says what it does; an assertion that fails ends it.

#![allow(non_snake_case, clippy::all)]

use std::ffi::{CStr, c_char, c_int, c_longlong, c_void};
use std::ptr::{null, null_mut};

type P = *const c_void;
type M = *mut c_void;
type F = *const f32;
type I = c_int;

unsafe extern "C" {
    fn dlopen(name: *const c_char, flags: I) -> M;
    fn dlsym(handle: M, name: *const c_char) -> M;
    fn dlerror() -> *const c_char;
    fn fork() -> I;
    fn waitpid(process: I, status: *mut I, options: I) -> I;
    fn _exit(code: I) -> !;
}

macro_rules! functions {
    ($($library:literal: $name:ident($($parameter:ty),*) -> $result:ty;)*) => {
        #[cfg(linked)]
        mod symbols {
            use super::*;
            #[link(name = "cublas")]
            #[link(name = "cublasLt")]
            unsafe extern "C" { $(pub fn $name($(_: $parameter),*) -> $result;)* }
        }
        #[derive(Clone, Copy)]
        struct Cublas { $($name: unsafe extern "C" fn($($parameter),*) -> $result),* }
        impl Cublas {
            #[cfg(linked)]
            fn get() -> Self { Self { $($name: symbols::$name),* } }
            #[cfg(not(linked))]
            fn get() -> Self {
                Self { $($name: unsafe { std::mem::transmute(dlsym(library($library), concat!(stringify!($name), "\0").as_ptr().cast())) }),* }
            }
        }
    };
}
functions! {
    "libcublas.so.12": fake_calls() -> u64;
    "libcublas.so.12": fake_argument(usize) -> i64;
    "libcublas.so.12": fake_call_itself(I) -> ();
    "libcublas.so.12": cublasCreate_v2(*mut M) -> I;
    "libcublas.so.12": cublasSetStream_v2(M, usize) -> I;
    "libcublas.so.12": cublasSetPointerMode_v2(M, I) -> I;
    "libcublas.so.12": cublasSetMathMode(M, I) -> I;
    "libcublas.so.12": cublasSetSmCountTarget(M, I) -> I;
    "libcublas.so.12": cublasSgemm_v2(M, I, I, I, I, I, F, F, I, F, I, F, *mut f32, I) -> I;
    "libcublas.so.12": cublasSgemm_v2_64(M, I, I, i64, i64, i64, F, F, i64, F, i64, F, *mut f32, i64) -> I;
    "libcublas.so.12": cublasSgemmStridedBatched(M, I, I, I, I, I, F, F, I, c_longlong, F, I, c_longlong, F, *mut f32, I, c_longlong, I) -> I;
    "libcublas.so.12": cublasSgemmBatched(M, I, I, I, I, I, F, *const F, I, *const F, I, F, *const *mut f32, I, I) -> I;
    "libcublas.so.12": cublasSgemmEx(M, I, I, I, I, I, F, P, I, I, P, I, I, F, M, I, I) -> I;
    "libcublas.so.12": cublasGemmEx(M, I, I, I, I, I, P, P, I, I, P, I, I, P, M, I, I, I, I) -> I;
    "libcublas.so.12": cublasGemmStridedBatchedEx(M, I, I, I, I, I, P, P, I, I, c_longlong, P, I, I, c_longlong, P, M, I, I, c_longlong, I, I, I) -> I;
    "libcublas.so.12": cublasSgemv_v2(M, I, I, I, F, F, I, F, I, F, *mut f32, I) -> I;
    "libcublasLt.so.12": cublasLtMatmulDescCreate(*mut M, I, I) -> I;
    "libcublasLt.so.12": cublasLtMatmulDescSetAttribute(M, I, P, usize) -> I;
    "libcublasLt.so.12": cublasLtMatrixLayoutCreate(*mut M, I, u64, u64, i64) -> I;
    "libcublasLt.so.12": cublasLtMatrixLayoutSetAttribute(M, I, P, usize) -> I;
    "libcublasLt.so.12": cublasLtMatmul(M, M, P, P, M, P, M, P, P, M, M, M, P, M, usize, M) -> I;
}

/// Opens a library for this program alone.
fn library(name: &str) -> M {
    let name = format!("{name}\0");
    let handle = unsafe { dlopen(name.as_ptr().cast(), 1) };
    assert!(!handle.is_null(), "{name}: {:?}", unsafe { CStr::from_ptr(dlerror()) });
    handle
}

/// SplitMix64.
struct Random(u64);
impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }
    fn below(&mut self, limit: i64) -> i64 {
        (self.next() % limit as u64) as i64
    }
    fn of<T: Copy>(&mut self, among: &[T]) -> T {
        among[self.below(among.len() as i64) as usize]
    }
    fn numbers(&mut self, len: i64) -> Vec<f32> {
        (0..len).map(|_| (self.next() >> 40) as f32 / (1 << 23) as f32 - 1.0).collect()
    }
}

/// A matrix by columns in a vector, with gaps, and a guard at the end.
struct Columns {
    data: Vec<f32>,
    rows: i64,
    cols: i64,
    leading: i64,
    stride: i64,
}

impl Columns {
    fn new(random: &mut Random, rows: i64, cols: i64, count: i64, may_repeat: bool) -> Self {
        let leading = rows + random.below(4);
        let stride = if may_repeat && random.below(4) == 0 { 0 } else { leading * cols + random.below(5) };
        let data = random.numbers(leading * cols + stride * (count - 1) + 3);
        Self { data, rows, cols, leading, stride }
    }
    fn at(&self, transposed: bool, batch: i64, row: i64, col: i64) -> f64 {
        let (row, col) = if transposed { (col, row) } else { (row, col) };
        f64::from(self.data[(batch * self.stride + row + col * self.leading) as usize])
    }
}

/// What `c` has to be, and how far its elements may be from it, in place of each element that is computed; others as they are.
fn expected(
    [m, n, k, count]: [i64; 4],
    alpha: f32,
    a: &Columns,
    ta: bool,
    b: &Columns,
    tb: bool,
    beta: f32,
    c: &Columns,
) -> Vec<(f64, f64)> {
    let mut all: Vec<(f64, f64)> = c.data.iter().map(|&x| (f64::from(x), 0.0)).collect();
    for batch in 0..count {
        for (row, col) in (0..m).flat_map(|row| (0..n).map(move |col| (row, col))) {
            let terms =
                |f: fn(f64) -> f64| (0..k).map(|i| f(a.at(ta, batch, row, i) * b.at(tb, batch, i, col))).sum::<f64>();
            let old = if beta == 0.0 { 0.0 } else { f64::from(beta) * c.at(false, batch, row, col) };
            let bound =
                (f64::from(alpha).abs() * terms(f64::abs) * (k + 4) as f64 + 4.0 * old.abs()) * 2f64.powi(-24) + 1e-37;
            all[(batch * c.stride + row + col * c.leading) as usize] = (f64::from(alpha) * terms(|x| x) + old, bound);
        }
    }
    all
}

/// What `cublasLtMatmul` does to its result: nothing, or a bias for each row, and then relu or gelu.
struct Finish {
    epilogue: I,
    bias: Vec<f32>,
    bias_stride: i64,
}

impl Finish {
    const NONE: Self = Self { epilogue: 1, bias: Vec::new(), bias_stride: 0 };

    fn new(random: &mut Random, rows: i64, count: i64) -> Self {
        let bias_stride = random.of(&[0, rows, rows + 3]);
        let bias = random.numbers(rows + bias_stride * (count - 1));
        Self { epilogue: random.of(&[1, 2, 4, 6, 32, 36]), bias, bias_stride }
    }

    /// Does the same to what is expected of a matrix.
    fn apply(&self, expected: &mut [(f64, f64)], [rows, cols, count]: [i64; 3], c: &Columns) {
        for batch in 0..count {
            for (row, col) in (0..rows).flat_map(|row| (0..cols).map(move |col| (row, col))) {
                let (value, bound) = &mut expected[(batch * c.stride + row + col * c.leading) as usize];
                if self.epilogue & 4 != 0 {
                    *value += f64::from(self.bias[(batch * self.bias_stride + row) as usize]);
                    *bound += value.abs() * 2f64.powi(-24);
                }
                let x = *value;
                (*value, *bound) = match self.epilogue & !4 {
                    2 => (x.max(0.0), *bound),
                    // Its derivative is at most 1.13.
                    32 => {
                        let tanh = (0.797_884_560_802_865_4 * (x + 0.044715 * x * x * x)).tanh();
                        (x * (1.0 + tanh) / 2.0, 1.13 * *bound + 1e-6 * x.abs())
                    }
                    _ => (x, *bound),
                };
            }
        }
    }
}

fn check(what: &str, found: &[f32], expected: &[(f64, f64)]) {
    for (index, (&found, &(value, bound))) in found.iter().zip(expected).enumerate() {
        assert!((f64::from(found) - value).abs() <= bound, "{what}: element {index} is {found}, not {value} ± {bound}");
    }
}

fn handle(cublas: &Cublas) -> M {
    let mut handle = null_mut();
    assert_eq!(unsafe { (cublas.cublasCreate_v2)(&mut handle) }, 0);
    handle
}

/// Random products by each function, with every layout; `is_taken` of them, or else all are passed on.
fn products(cublas: &Cublas, seed: u64, rounds: i64, is_taken: bool) {
    let mut random = Random(seed);
    let handle = handle(cublas);
    for round in 0..rounds {
        let function = round % 8;
        let batched = matches!(function, 2 | 5 | 7);
        let is_vector = function == 6;
        let [m, n, k] = [1 + random.below(40), if is_vector { 1 } else { 1 + random.below(40) }, 1 + random.below(50)];
        let count = if batched { 1 + random.below(4) } else { 1 };
        let (alpha, beta) = (random.of(&[1.0, -2.5, 0.75]), random.of(&[0.0, 1.0, -0.5]));
        let operation = random.of(&[0, 1, 2]);
        let (ta, tb) = (operation, if is_vector { 0 } else { random.of(&[0, 1, 2]) });
        let a = if ta == 0 {
            Columns::new(&mut random, m, k, count, true)
        } else {
            Columns::new(&mut random, k, m, count, true)
        };
        let b = if tb == 0 {
            Columns::new(&mut random, k, n, count, true)
        } else {
            Columns::new(&mut random, n, k, count, true)
        };
        let mut c = Columns::new(&mut random, m, n, count, false);
        if beta == 0.0 && random.below(2) == 0 {
            // What must not be read. (Gaps, too: they are compared as they are.)
            let nan =
                (0..count).flat_map(|x| (0..n).map(move |y| (x, y))).flat_map(|(x, y)| (0..m).map(move |z| (x, y, z)));
            for (batch, col, row) in nan.collect::<Vec<_>>() {
                c.data[(batch * c.stride + row + col * c.leading) as usize] = f32::NAN;
            }
        }
        let mut right = expected([m, n, k, count], alpha, &a, ta != 0, &b, tb != 0, beta, &c);
        let finish = if function == 7 { Finish::new(&mut random, m, count) } else { Finish::NONE };
        finish.apply(&mut right, [m, n, count], &c);
        let before = unsafe { (cublas.fake_calls)() };
        let (pa, pb, pc) = (a.data.as_ptr(), b.data.as_ptr(), c.data.as_mut_ptr());
        let [m32, n32, k32, lda, ldb, ldc, count32] = [m, n, k, a.leading, b.leading, c.leading, count].map(|x| x as I);
        let (xa, xb): (F, F) = (&alpha, &beta);
        let status = unsafe {
            match function {
                0 => (cublas.cublasSgemm_v2)(handle, ta, tb, m32, n32, k32, xa, pa, lda, pb, ldb, xb, pc, ldc),
                1 => (cublas.cublasSgemm_v2_64)(
                    handle, ta, tb, m, n, k, xa, pa, a.leading, pb, b.leading, xb, pc, c.leading,
                ),
                2 => (cublas.cublasSgemmStridedBatched)(
                    handle, ta, tb, m32, n32, k32, xa, pa, lda, a.stride, pb, ldb, b.stride, xb, pc, ldc, c.stride,
                    count32,
                ),
                3 => (cublas.cublasSgemmEx)(
                    handle,
                    ta,
                    tb,
                    m32,
                    n32,
                    k32,
                    xa,
                    pa.cast(),
                    0,
                    lda,
                    pb.cast(),
                    0,
                    ldb,
                    xb,
                    pc.cast(),
                    0,
                    ldc,
                ),
                4 => (cublas.cublasGemmEx)(
                    handle,
                    ta,
                    tb,
                    m32,
                    n32,
                    k32,
                    xa.cast(),
                    pa.cast(),
                    0,
                    lda,
                    pb.cast(),
                    0,
                    ldb,
                    xb.cast(),
                    pc.cast(),
                    0,
                    ldc,
                    68,
                    if round % 16 == 4 { -1 } else { 99 },
                ),
                5 => (cublas.cublasGemmStridedBatchedEx)(
                    handle,
                    ta,
                    tb,
                    m32,
                    n32,
                    k32,
                    xa.cast(),
                    pa.cast(),
                    0,
                    lda,
                    a.stride,
                    pb.cast(),
                    0,
                    ldb,
                    b.stride,
                    xb.cast(),
                    pc.cast(),
                    0,
                    ldc,
                    c.stride,
                    count32,
                    68,
                    -1,
                ),
                // The matrix as it lies in memory; x and y are the columns of B and C, one after the other.
                6 => (cublas.cublasSgemv_v2)(handle, ta, a.rows as I, a.cols as I, xa, pa, lda, pb, 1, xb, pc, 1),
                _ => matmul(cublas, handle, [ta, tb], count32, xa, &a, &b, xb, &mut c, &finish),
            }
        };
        let what = format!("seed {seed}, round {round}, function {function}, {m}x{n}x{k}, {count} times, op {ta} {tb}");
        assert_eq!(status, 0, "{what}");
        assert_eq!(unsafe { (cublas.fake_calls)() } != before, !is_taken && function != 7, "{what}");
        check(&what, &c.data, &right);
    }
}

fn layout(cublas: &Cublas, matrix: &Columns, count: I) -> M {
    let mut layout = null_mut();
    unsafe {
        (cublas.cublasLtMatrixLayoutCreate)(&mut layout, 0, matrix.rows as u64, matrix.cols as u64, matrix.leading);
        (cublas.cublasLtMatrixLayoutSetAttribute)(layout, 5, (&raw const count).cast(), 4);
        (cublas.cublasLtMatrixLayoutSetAttribute)(layout, 6, (&raw const matrix.stride).cast(), 8);
    }
    layout
}

fn desc(cublas: &Cublas, compute: I, operations: [I; 2]) -> M {
    let mut desc = null_mut();
    unsafe {
        (cublas.cublasLtMatmulDescCreate)(&mut desc, compute, 0);
        for (attribute, operation) in [3, 4].into_iter().zip(operations) {
            (cublas.cublasLtMatmulDescSetAttribute)(desc, attribute, (&raw const operation).cast(), 4);
        }
    }
    desc
}

fn matmul(
    cublas: &Cublas,
    handle: M,
    operations: [I; 2],
    count: I,
    alpha: F,
    a: &Columns,
    b: &Columns,
    beta: F,
    c: &mut Columns,
    finish: &Finish,
) -> I {
    let [la, lb, lc] = [&*a, b, c].map(|matrix| layout(cublas, matrix, count));
    let (pa, pb, pc) = (a.data.as_ptr(), b.data.as_ptr(), c.data.as_mut_ptr());
    let desc = desc(cublas, 68, operations);
    let bias = finish.bias.as_ptr();
    unsafe {
        let set = cublas.cublasLtMatmulDescSetAttribute;
        assert_eq!(set(desc, 7, (&raw const finish.epilogue).cast(), 4), 0);
        assert_eq!(set(desc, 8, (&raw const bias).cast(), 8), 0);
        assert_eq!(set(desc, 10, (&raw const finish.bias_stride).cast(), 8), 0);
        (cublas.cublasLtMatmul)(
            handle,
            desc,
            alpha.cast(),
            pa.cast(),
            la,
            pb.cast(),
            lb,
            beta.cast(),
            pc.cast(),
            lc,
            pc.cast(),
            lc,
            null(),
            null_mut(),
            0,
            null_mut(),
        )
    }
}

/// A step of a factorization: of one matrix, the block right below minus the one on its left times the one above it. All three have lines
/// between each other's.
fn blocks(cublas: &Cublas) {
    let (handle, mut random) = (handle(cublas), Random(5));
    for _ in 0..16 {
        let [n, k] = [20 + random.below(30), 1 + random.below(19)];
        let whole = Columns { data: random.numbers(n * n), rows: n, cols: n, leading: n, stride: 0 };
        let block = |row: i64, col: i64, rows: i64, cols: i64| Columns {
            data: whole.data[(row + col * n) as usize..].to_vec(),
            rows,
            cols,
            leading: n,
            stride: 0,
        };
        let (a, b, c) = (block(k, 0, n - k, k), block(0, k, k, n - k), block(k, k, n - k, n - k));
        let right = expected([n - k, n - k, k, 1], -1.0, &a, false, &b, false, 1.0, &c);
        let (alpha, beta, mut data) = (-1.0f32, 1.0f32, whole.data.clone());
        let at = |row: i64, col: i64| (row + col * n) as usize;
        let [m32, k32, n32] = [n - k, k, n].map(|x| x as I);
        let status = unsafe {
            let first = data.as_mut_ptr();
            let [pa, pb, pc] = [at(k, 0), at(0, k), at(k, k)].map(|place| first.add(place));
            (cublas.cublasSgemm_v2)(handle, 0, 0, m32, m32, k32, &alpha, pa, n32, pb, n32, &beta, pc, n32)
        };
        assert_eq!(status, 0);
        let what = format!("{n} columns, of which {k} are done");
        check(&what, &data[at(k, k)..], &right);
        assert_eq!(data[..at(k, k)], whole.data[..at(k, k)], "{what}");
    }
}

/// Calls that cuBLAS gets as they are, and answers.
fn passed_on(cublas: &Cublas) {
    let handle = handle(cublas);
    let (a, b) = ([1.0f32, 2.0, 3.0, 4.0], [5.0f32, 6.0, 7.0, 8.0]);
    let mut c = [0.0f32; 4];
    let (alpha, beta) = (1.0f32, 0.0f32);
    let (xa, xb): (F, F) = (&alpha, &beta);
    let (pa, pb, pc) = (a.as_ptr(), b.as_ptr(), c.as_mut_ptr());
    let passes = |what: &str, status: I, arguments: &[i64], call: &dyn Fn() -> I| {
        let before = unsafe { (cublas.fake_calls)() };
        assert_eq!(call(), status, "{what}");
        assert_eq!(unsafe { (cublas.fake_calls)() }, before + 1, "{what} is passed on");
        for (index, &argument) in arguments.iter().enumerate() {
            assert_eq!(unsafe { (cublas.fake_argument)(index) }, argument, "{what}: argument {index}");
        }
    };
    let sgemm = |what: &str, status: I, handle: M, ta: I, tb: I, m: I, n: I, k: I, alpha: F, lda: I, ldb: I, ldc: I| {
        let numbers = |x: I| i64::from(x);
        let arguments = [
            handle as i64,
            numbers(ta),
            numbers(tb),
            numbers(m),
            numbers(n),
            numbers(k),
            alpha as i64,
            pa as i64,
            numbers(lda),
            pb as i64,
            numbers(ldb),
            xb as i64,
            pc as i64,
            numbers(ldc),
        ];
        passes(what, status, &arguments, &|| unsafe {
            (cublas.cublasSgemm_v2)(handle, ta, tb, m, n, k, alpha, pa, lda, pb, ldb, xb, pc, ldc)
        });
    };
    sgemm("no handle", 1, null_mut(), 0, 0, 2, 2, 2, xa, 2, 2, 2);
    sgemm("a negative extent", 7, handle, 0, 0, -2, 2, 2, xa, 2, 2, 2);
    sgemm("an extent of 0", 0, handle, 0, 0, 0, 2, 2, xa, 2, 2, 2);
    sgemm("nothing to add up", 0, handle, 0, 0, 2, 2, 0, xa, 2, 2, 2);
    sgemm("a small leading dimension", 7, handle, 0, 0, 2, 2, 2, xa, 1, 2, 2);
    sgemm("a negative leading dimension", 7, handle, 0, 0, 2, 2, 2, xa, 2, -2, 2);
    sgemm("no such operation", 15, handle, 0, 9, 2, 2, 2, xa, 2, 2, 2);
    sgemm("no alpha", 7, handle, 0, 0, 2, 2, 2, null(), 2, 2, 2);
    for (set, value) in [
        (cublas.cublasSetPointerMode_v2, 1),
        (cublas.cublasSetMathMode, 3),
        (cublas.cublasSetMathMode, 2),
        (cublas.cublasSetMathMode, 4),
        (cublas.cublasSetMathMode, 3 | 16),
        (cublas.cublasSetSmCountTarget, 8),
    ] {
        assert_eq!(unsafe { set(handle, value) }, 0);
        sgemm(&format!("mode {value}"), 0, handle, 0, 0, 2, 2, 2, xa, 2, 2, 2);
        assert_eq!(unsafe { set(handle, 0) }, 0);
    }
    let gemm_ex = |what: &str, status: I, types: [I; 3], compute: I, algorithm: I| {
        passes(what, status, &[handle as i64, 0, 1], &|| unsafe {
            (cublas.cublasGemmEx)(
                handle,
                0,
                1,
                2,
                2,
                2,
                xa.cast(),
                pa.cast(),
                types[0],
                2,
                pb.cast(),
                types[1],
                2,
                xb.cast(),
                pc.cast(),
                types[2],
                2,
                compute,
                algorithm,
            )
        });
        assert_eq!(unsafe { (cublas.fake_argument)(18) }, i64::from(algorithm), "{what}");
    };
    gemm_ex("bf16", 15, [14, 14, 14], 68, -1);
    gemm_ex("fp16 to fp32", 15, [2, 2, 0], 68, -1);
    gemm_ex("pedantic", 0, [0; 3], 69, -1);
    gemm_ex("TF32", 0, [0; 3], 77, -1);
    gemm_ex("an algorithm", 0, [0; 3], 68, 7);
    let (array_a, array_b, array_c) = ([pa, pa], [pb, pb], [pc, pc]);
    passes("pointers", 0, &[handle as i64], &|| unsafe {
        (cublas.cublasSgemmBatched)(
            handle,
            0,
            0,
            2,
            2,
            2,
            xa,
            array_a.as_ptr(),
            2,
            array_b.as_ptr(),
            2,
            xb,
            array_c.as_ptr(),
            2,
            2,
        )
    });
    passes("a negative increment", 0, &[handle as i64], &|| unsafe {
        (cublas.cublasSgemv_v2)(handle, 0, 2, 2, xa, pa, 2, pb, -1, xb, pc, 1)
    });
    assert_eq!(c[0], 1.0 * 6.0 + 3.0 * 5.0);
    // With a flag that is about 16-bit products, the mode is the default one.
    assert_eq!(unsafe { (cublas.cublasSetMathMode)(handle, 16) }, 0);
    let before = unsafe { (cublas.fake_calls)() };
    assert_eq!(unsafe { (cublas.cublasSgemm_v2)(handle, 0, 0, 2, 2, 2, xa, pa, 2, pb, 2, xb, pc, 2) }, 0);
    assert_eq!(unsafe { (cublas.fake_calls)() }, before);
    assert_eq!(c, [23.0, 34.0, 31.0, 46.0]);
    println!("passed on");
}

/// `cublasLtMatmul` with what is no plain product; the fake counts calls of each library by itself.
fn matmul_passed_on(cublas: &Cublas) {
    let handle = handle(cublas);
    let calls: unsafe extern "C" fn() -> u64 =
        unsafe { std::mem::transmute(dlsym(library("libcublasLt.so.12"), c"fake_calls".as_ptr())) };
    let matrix = |fill: f32| Columns { data: vec![fill; 4], rows: 2, cols: 2, leading: 2, stride: 4 };
    let (a, b, mut c, other) = (matrix(1.0), matrix(2.0), matrix(3.0), matrix(5.0));
    let (alpha, one) = (1.0f32, 1.0f32);
    let layouts = [&a, &b, &c, &other].map(|matrix| layout(cublas, matrix, 1));
    let mut call = |handle: M, desc: M, from_other: bool| unsafe {
        let pc = c.data.as_mut_ptr();
        let (old, old_layout) =
            if from_other { (other.data.as_ptr(), layouts[3]) } else { (pc.cast_const(), layouts[2]) };
        let before = calls();
        let status = (cublas.cublasLtMatmul)(
            handle,
            desc,
            (&raw const alpha).cast(),
            a.data.as_ptr().cast(),
            layouts[0],
            b.data.as_ptr().cast(),
            layouts[1],
            (&raw const one).cast(),
            old.cast(),
            old_layout,
            pc.cast(),
            layouts[2],
            null(),
            null_mut(),
            0,
            null_mut(),
        );
        (status, calls() - before)
    };
    let with = |attribute: I, value: I| {
        let desc = desc(cublas, 68, [0, 0]);
        assert_eq!(
            unsafe { (cublas.cublasLtMatmulDescSetAttribute)(desc, attribute, (&raw const value).cast(), 4) },
            0
        );
        desc
    };
    assert_eq!(call(handle, desc(cublas, 68, [0, 0]), false), (0, 0), "a plain product is taken");
    assert_eq!(call(handle, desc(cublas, 77, [0, 0]), false), (0, 1), "TF32");
    assert_eq!(call(handle, desc(cublas, 68, [0, 0]), true), (0, 1), "C is not D");
    assert_eq!(call(handle, with(7, 130), false), (0, 1), "relu with a matrix of signs");
    assert_eq!(call(handle, with(7, 4), false), (0, 1), "a bias without a pointer");
    assert_eq!(call(handle, with(26, 2), false), (0, 0), "what a bias would be of, without one");
    assert_eq!(call(handle, with(2, 1), false), (0, 1), "factors in device memory");
    assert_eq!(call(handle, with(15, 4), false), (0, 1), "multiprocessors");
    assert_eq!(call(null_mut(), desc(cublas, 68, [0, 0]), false), (1, 1), "no handle");
    let by_pointers: I = 1;
    assert_eq!(
        unsafe { (cublas.cublasLtMatrixLayoutSetAttribute)(layouts[0], 8, (&raw const by_pointers).cast(), 4) },
        0
    );
    assert_eq!(call(handle, desc(cublas, 68, [0, 0]), false), (15, 1), "pointers to matrices");
    println!("matmul passed on");
}

/// What cuBLAS calls itself is not taken.
fn inner(cublas: &Cublas) {
    let handle = handle(cublas);
    let (a, b) = ([1.0f32, 2.0, 3.0, 4.0], [5.0f32, 6.0, 7.0, 8.0]);
    let mut c = [0.0f32; 4];
    let (alpha, beta) = (1.0f32, 0.0f32);
    unsafe {
        (cublas.fake_call_itself)(1);
        // An increment for `plain` to refuse: then cuBLAS computes it, by a function that would be taken.
        assert_eq!((cublas.cublasSetMathMode)(handle, 3), 0);
        let before = (cublas.fake_calls)();
        let pointers = (a.as_ptr(), b.as_ptr(), c.as_mut_ptr());
        assert_eq!(
            (cublas.cublasSgemm_v2)(handle, 0, 0, 2, 2, 2, &alpha, pointers.0, 2, pointers.1, 2, &beta, pointers.2, 2),
            0
        );
        assert_eq!((cublas.fake_calls)(), before + 2, "both calls are cuBLAS's");
        assert_eq!((cublas.fake_argument)(17), 1, "the inner one was the last");
    }
    assert_eq!(c, [23.0, 34.0, 31.0, 46.0]);
    println!("inner");
}

/// `dlsym` is what it was for everything else.
fn lookups() {
    let find = |handle: M, name: &CStr| unsafe { dlsym(handle, name.as_ptr()) };
    let next: M = -1isize as M;
    assert!(!find(null_mut(), c"malloc").is_null());
    assert!(!find(next, c"malloc").is_null(), "behind this program");
    assert!(find(null_mut(), c"cublasNoSuchFunction").is_null());
    let message = unsafe { CStr::from_ptr(dlerror()) }.to_str().unwrap();
    assert!(message.contains("cublasNoSuchFunction"), "{message}");
    let cublas = library("libcublas.so.12");
    let (lt, this) = (library("libcublasLt.so.12"), unsafe { dlopen(null(), 1) });
    let ours = find(null_mut(), c"cublasSgemm_v2");
    assert!(!ours.is_null() && find(cublas, c"cublasSgemm_v2") == ours && find(this, c"cublasSgemm_v2") == ours);
    assert!(find(lt, c"cublasSgemm_v2").is_null(), "the library does not have it");
    assert_ne!(find(cublas, c"cublasCreate_v2"), null_mut());
    let found = find(lt, c"cublasLtMatmul");
    assert!(found == find(null_mut(), c"cublasLtMatmul") && !found.is_null());
    // `RTLD_NEXT` means behind the library that calls, which is the fake cuBLAS here.
    #[cfg(linked)]
    {
        let next: unsafe extern "C" fn() -> M = unsafe { std::mem::transmute(find(cublas, c"fake_next")) };
        assert_ne!(find(cublas, c"fake_calls"), find(lt, c"fake_calls"));
        assert_eq!(unsafe { next() }, find(lt, c"fake_calls"));
    }
    println!("lookups");
}

/// A child of a fork that came after the first product has them all computed by cuBLAS.
fn forked(cublas: &Cublas) {
    products(cublas, 1, 1, true);
    let child = unsafe { fork() };
    if child == 0 {
        let result = std::panic::catch_unwind(|| products(cublas, 2, 7, false));
        unsafe { _exit(if result.is_ok() { 0 } else { 1 }) };
    }
    let mut status = -1;
    assert_eq!(unsafe { waitpid(child, &mut status, 0) }, child);
    assert_eq!(status, 0, "the child");
    println!("forked");
}

fn main() {
    let cublas = Cublas::get();
    let arguments: Vec<String> = std::env::args().collect();
    let number = |index: usize| arguments[index].parse::<u64>().unwrap();
    match arguments[1].as_str() {
        "products" => products(&cublas, number(2), number(3) as i64, true),
        "blocks" => blocks(&cublas),
        "not-taken" => products(&cublas, 1, 8, false),
        "passed-on" => passed_on(&cublas),
        "matmul-passed-on" => matmul_passed_on(&cublas),
        "inner" => inner(&cublas),
        "lookups" => lookups(),
        "forked" => forked(&cublas),
        "threads" => std::thread::scope(|scope| {
            (0..8).for_each(|thread| drop(scope.spawn(move || products_alone(&cublas, thread))));
        }),
        "gpu" => gpu(&cublas, number(2), number(3) as i64, number(4) as usize),
        other => panic!("{other}"),
    }
    println!("done");
}

/// Random products, while other threads do the same: who has called the fake cannot be told then.
fn products_alone(cublas: &Cublas, seed: u64) {
    products(cublas, seed, 16, true);
}

/// One product of this size on a GPU of the fake driver, which computes nothing, on a stream of this number.
fn gpu(cublas: &Cublas, driver_context: u64, size: i64, stream: usize) {
    let driver = library(&std::env::var("TILEWRIGHT_LIBCUDA").unwrap());
    unsafe {
        let begin: unsafe extern "C" fn(usize, u32, u32) = std::mem::transmute(dlsym(driver, c"fake_begin".as_ptr()));
        let calls: unsafe extern "C" fn() -> usize = std::mem::transmute(dlsym(driver, c"fake_calls".as_ptr()));
        let name: unsafe extern "C" fn(usize, *mut usize) -> *const u8 =
            std::mem::transmute(dlsym(driver, c"fake_call_name".as_ptr()));
        let set_current: unsafe extern "C" fn(usize) -> u32 =
            std::mem::transmute(dlsym(driver, c"cuCtxSetCurrent".as_ptr()));
        begin(0, 0, 0);
        set_current(driver_context as usize);
        let handle = handle(cublas);
        (cublas.cublasSetStream_v2)(handle, stream);
        let (alpha, beta) = (1.0f32, 0.0f32);
        let memory = [(); 3].map(|()| vec![0.0f32; (size * size) as usize + 64]);
        let [a, b, c] = memory.each_ref().map(|memory| (memory.as_ptr() as usize).next_multiple_of(256) as *mut f32);
        let size = size as I;
        for call in 0..2 {
            let (before, products) = (calls(), (cublas.fake_calls)());
            let status =
                (cublas.cublasSgemm_v2)(handle, 1, 0, size, size, size, &alpha, a, size, b, size, &beta, c, size);
            let names: Vec<String> = (before + 1..=calls())
                .map(|number| {
                    let mut length = 0;
                    let text = name(number, &mut length);
                    String::from_utf8_lossy(std::slice::from_raw_parts(text, length)).into_owned()
                })
                .collect();
            println!(
                "call {call}: status {status}, by cuBLAS {}, driver: {}",
                (cublas.fake_calls)() - products,
                names.join(" ")
            );
        }
    }
}
