//! The models of `mma`, `ldmatrix` and `cp.async` on the CPU, and what is reported of their misuse.

#![allow(clippy::undocumented_unsafe_blocks, reason = "many of these kernels break the contracts on purpose")]

extern crate tilewright_cuda_std as cuda_std;

mod common;

use common::{ALL_CHECKS, at, fault, line_of, succeed};
use cuda_std::executor::{Checks, Elsewhere, FaultKind, Place, SourceLine, WarpOperation};
use cuda_std::prelude::*;
use cuda_std::{async_copy, ldmatrix, mma};

const SOURCE: &str = include_str!("tensor_cores.rs");

fn line(mark: &str) -> SourceLine {
    SourceLine { file: file!().into(), line: line_of(SOURCE, mark) }
}

// Products.

/// What a kernel multiplies: 0 for TF32, 1 for bf16, 2 for fp16.
type Format = u32;

/// `D = A·B + C` for A 16×16 by rows, B 16×8 by rows, C and D 16×8 by rows. TF32 takes two products of 8 terms.
#[kernel(block = 32)]
fn product(
    format: u32,
    a: GlobalSlice<'_, f32>,
    b: GlobalSlice<'_, f32>,
    c: GlobalSlice<'_, f32>,
    d: GlobalSliceMut<'_, f32>,
) {
    let (g, q) = (warp::lane_id() as usize / 4, warp::lane_id() as usize % 4);
    unsafe {
        let a = |row: usize, k: usize| a.get_unchecked(row * 16 + k);
        let b = |k: usize, col: usize| b.get_unchecked(k * 8 + col);
        let places = [(g, 2 * q), (g, 2 * q + 1), (g + 8, 2 * q), (g + 8, 2 * q + 1)];
        let mut sums = places.map(|(row, col)| c.get_unchecked(row * 8 + col));
        if format == 0 {
            for k in [0, 8] {
                let a = [a(g, k + q), a(g + 8, k + q), a(g, k + q + 4), a(g + 8, k + q + 4)];
                sums = mma::mma_m16n8k8_tf32(a, [b(k + q, g), b(k + q + 4, g)], sums);
            }
        } else {
            let pack = if format == 1 { convert::bf16x2 } else { convert::f16x2 };
            let of_a = |row: usize, k: usize| pack(a(row, k + 2 * q), a(row, k + 2 * q + 1));
            let of_b = |k: usize| pack(b(k + 2 * q, g), b(k + 2 * q + 1, g));
            let (a, b) = ([of_a(g, 0), of_a(g + 8, 0), of_a(g, 8), of_a(g + 8, 8)], [of_b(0), of_b(8)]);
            sums = if format == 1 { mma::mma_m16n8k16_bf16(a, b, sums) } else { mma::mma_m16n8k16_fp16(a, b, sums) };
        }
        for (i, (row, col)) in places.into_iter().enumerate() {
            d.set_unchecked(row * 8 + col, sums[i]);
        }
    }
}

fn multiply(format: Format, a: &[f32; 256], b: &[f32; 128], c: &[f32; 128]) -> [f32; 128] {
    let mut d = [f32::NAN; 128];
    let (a, b, c) = (GlobalSlice::new(a), GlobalSlice::new(b), GlobalSlice::new(c));
    succeed(Checks::Full, product { format, a, b, c, d: GlobalSliceMut::new(&mut d) }, 1);
    d
}

#[test]
fn every_element_of_a_product_is_in_its_place() {
    let small = |i: usize, seed: usize| ((i * 7 + seed + i * i) % 31) as f32 - 15.0;
    let a: [f32; 256] = std::array::from_fn(|i| small(i, 3));
    let b: [f32; 128] = std::array::from_fn(|i| small(i, 5));
    let c: [f32; 128] = std::array::from_fn(|i| small(i, 11));
    for format in [0, 1, 2] {
        let d = multiply(format, &a, &b, &c);
        for (row, col) in (0..16).flat_map(|row| (0..8).map(move |col| (row, col))) {
            let sum: f32 = (0..16).map(|k| a[row * 16 + k] * b[k * 8 + col]).sum();
            assert_eq!(d[row * 8 + col], sum + c[row * 8 + col], "format {format}, ({row}, {col})");
        }
    }
}

/// The element (0, 0) of a product of which only row 0 of A, column 0 of B and this element of C matter.
fn first(format: Format, a: &[f32], b: &[f32], c: f32) -> f32 {
    let (mut all_a, mut all_b, mut all_c) = ([0.0; 256], [0.0; 128], [0.0; 128]);
    a.iter().enumerate().for_each(|(k, &a)| all_a[k] = a);
    b.iter().enumerate().for_each(|(k, &b)| all_b[k * 8] = b);
    all_c[0] = c;
    multiply(format, &all_a, &all_b, &all_c)[0]
}

const POWER: fn(i32) -> f32 = |exponent| 2f32.powi(exponent);

#[test]
fn tf32_ignores_the_low_bits_of_operands() {
    let x = 1.0 + POWER(-10) + POWER(-11); // twelve bits
    assert_eq!(first(0, &[x], &[1.0], 0.0), 1.0 + POWER(-10));
    assert_eq!(first(0, &[1.0], &[-x], 0.0), -1.0 - POWER(-10));
    assert_eq!(first(0, &[1.0 + POWER(-10)], &[1.0 + POWER(-10)], 0.0), 1.0 + POWER(-9) + POWER(-20), "exact products");
}

#[test]
fn sums_are_cut_off_two_bits_below_an_fp32_number() {
    for format in [0, 1, 2] {
        // Half a unit in the last place, and a quarter more: to nearest, it would be rounded up.
        let half = POWER(-12);
        assert_eq!(first(format, &[1.0, half * 1.5], &[1.0, half], 0.0), 1.0, "{format}");
        assert_eq!(first(format, &[-1.0, -half * 1.5], &[1.0, half], 0.0), -1.0, "{format}");
        // Four times a quarter of a unit make one: the two extra bits.
        let quarter = [1.0, POWER(-12), POWER(-12), POWER(-12), POWER(-12)];
        let one = [1.0, POWER(-13), POWER(-13), POWER(-13), POWER(-13)];
        assert_eq!(first(format, &quarter, &one, 0.0), 1.0 + POWER(-23), "{format}");
        // Eight times an eighth make nothing: beyond them.
        let (eighth, one) = ([&[1.0][..], &[POWER(-13); 7]].concat(), [&[1.0][..], &[POWER(-13); 7]].concat());
        assert_eq!(first(format, &eighth, &one, 0.0), 1.0, "{format}");
        // The element of C is one of the summands.
        assert_eq!(first(format, &[half * 1.5], &[half], 1.0), 1.0, "{format}");
        // Of what is cut off, nothing is remembered when the large summands cancel.
        assert_eq!(first(format, &[1.0, POWER(-14)], &[1.0, POWER(-14)], -1.0), 0.0, "{format}");
    }
    // So a sum of many short ones is biased, and to one side.
    let mut sum = 1.0;
    for _ in 0..1000 {
        sum = first(0, &[POWER(-12)], &[1.75 * POWER(-13)], sum);
    }
    assert_eq!(sum, 1.0, "rounded to nearest, it would be near 1 + 1000·2⁻²⁴");
}

#[test]
fn special_values_of_products() {
    for format in [0, 1, 2] {
        let class = |a: &[f32], b: &[f32], c| first(format, a, b, c);
        assert_eq!(class(&[f32::INFINITY], &[2.0], 1.0), f32::INFINITY);
        assert_eq!(class(&[f32::INFINITY], &[-2.0], 1.0), f32::NEG_INFINITY);
        assert!(class(&[f32::INFINITY], &[0.0], 1.0).is_nan());
        assert!(class(&[f32::INFINITY, 1.0], &[1.0, f32::NEG_INFINITY], 1.0).is_nan());
        assert!(class(&[f32::NAN], &[0.0], 1.0).is_nan() && class(&[], &[], f32::NAN).is_nan());
        assert_eq!(class(&[1.0], &[1.0], f32::NEG_INFINITY), f32::NEG_INFINITY);
        assert_eq!(class(&[1.0], &[-1.0], 1.0).to_bits(), 0);
        assert_eq!(class(&[0.0], &[-1.0], -0.0).to_bits(), 0);
        assert_eq!(class(&[1.0], &[f32::from_bits(0)], f32::from_bits(1)), f32::from_bits(1), "subnormal sums");
    }
    // Subnormal operands are what they are, and so are subnormal sums.
    assert_eq!(first(0, &[POWER(-130)], &[POWER(100)], 0.0), POWER(-30));
    assert_eq!(first(1, &[POWER(-130)], &[0.25], 0.0), POWER(-132));
    assert_eq!(first(2, &[POWER(-24)], &[1.0], 0.0), POWER(-24), "the smallest fp16 number");
    assert_eq!(first(0, &[POWER(-74)], &[1.5 * POWER(-75)], 0.0), f32::from_bits(1));
    // Overflow.
    assert_eq!(first(0, &[POWER(127)], &[2.0], 0.0), f32::INFINITY);
    assert_eq!(first(1, &[POWER(127), POWER(127)], &[1.0, 0.75], 0.0), 1.75 * POWER(127));
    assert_eq!(first(0, &[POWER(103)], &[0.75], f32::MAX), f32::MAX, "cut off, not rounded up");
}

/// `A·B + C` in fp64 for A 8×4, B 4×8 and C 8×8, by rows.
#[kernel(block = 32)]
fn product_fp64(a: GlobalSlice<'_, f64>, b: GlobalSlice<'_, f64>, c: GlobalSlice<'_, f64>, d: GlobalSliceMut<'_, f64>) {
    let (g, q) = (warp::lane_id() as usize / 4, warp::lane_id() as usize % 4);
    unsafe {
        let sums = [c.get_unchecked(8 * g + 2 * q), c.get_unchecked(8 * g + 2 * q + 1)];
        let sums = mma::mma_m8n8k4_fp64(a.get_unchecked(4 * g + q), b.get_unchecked(8 * q + g), sums);
        (0..2).for_each(|i| d.set_unchecked(8 * g + 2 * q + i, sums[i]));
    }
}

fn multiply_fp64(a: &[f64; 32], b: &[f64; 32], c: &[f64; 64]) -> [f64; 64] {
    let mut d = [f64::NAN; 64];
    let (a, b, c) = (GlobalSlice::new(a), GlobalSlice::new(b), GlobalSlice::new(c));
    succeed(Checks::Full, product_fp64 { a, b, c, d: GlobalSliceMut::new(&mut d) }, 1);
    d
}

#[test]
fn fp64_products_are_fused_operations_in_the_order_of_k() {
    // Numbers of which no sum of products has few bits.
    let number = |i: usize| ((i * i + 3) as f64).sqrt() * if i.is_multiple_of(3) { -1.0 } else { 1.0 };
    let a: [f64; 32] = std::array::from_fn(number);
    let b: [f64; 32] = std::array::from_fn(|i| number(i + 40));
    let c: [f64; 64] = std::array::from_fn(|i| number(i + 80));
    let d = multiply_fp64(&a, &b, &c);
    for (row, col) in (0..8).flat_map(|row| (0..8).map(move |col| (row, col))) {
        let terms = |k: usize| (a[row * 4 + k], b[k * 8 + col]);
        let sum = (0..4).map(terms).fold(c[row * 8 + col], |sum, (a, b)| a.mul_add(b, sum));
        assert_eq!(d[row * 8 + col], sum, "({row}, {col})");
    }
    // Whether a term is added before another one shows, and that each is rounded once.
    let first = |terms: [(f64, f64); 4], c: f64| {
        let (mut a, mut b, mut all) = ([0.0; 32], [0.0; 32], [0.0; 64]);
        terms.into_iter().enumerate().for_each(|(k, term)| (a[k], b[8 * k]) = term);
        all[0] = c;
        multiply_fp64(&a, &b, &all)[0]
    };
    let (large, none) = (2f64.powi(60), (0.0, 0.0));
    assert_eq!(first([(1.0, 1.0), (large, 1.0), (-large, 1.0), none], 0.0), 0.0);
    assert_eq!(first([(large, 1.0), (-large, 1.0), (1.0, 1.0), none], 0.0), 1.0);
    let x = 1.0 + f64::EPSILON;
    assert_eq!(first([(x, x), none, none, none], -1.0 - 2.0 * f64::EPSILON), f64::EPSILON * f64::EPSILON);
    assert!(first([(f64::INFINITY, 0.0), none, none, none], 0.0).is_nan());
    assert_eq!(first([none, none, (f64::MAX, 2.0), none], 0.0), f64::INFINITY);
}

/// A product that only some lanes take part in.
#[kernel(block = 64)]
fn divergent_product(lanes: u32) {
    unsafe {
        if thread::thread_idx_x() < 32 || warp::lane_id() < lanes {
            mma::mma_m16n8k8_tf32([0.0; 4], [0.0; 2], [0.0; 4]); // <product>
        }
    }
}

/// A product in a block with a warp of 8 lanes.
#[kernel(block = 40)]
fn product_of_a_part_of_a_warp() {
    unsafe { mma::mma_m16n8k16_bf16([0; 4], [0; 2], [0.0; 4]) };
}

#[test]
fn a_product_without_all_lanes_is_reported() {
    for checks in ALL_CHECKS {
        succeed(checks, divergent_product { lanes: 0 }, 2);
        succeed(checks, divergent_product { lanes: 32 }, 2);
        let fault = fault(checks, divergent_product { lanes: 20 }, 2);
        assert_eq!((fault.thread, fault.location), (at(32, 0, 0), Some(line("product"))));
        let absent = vec![Elsewhere { first: at(52, 0, 0), count: 12, place: Place::Returned }];
        let (operation, mask) = (WarpOperation::MmaTf32, u32::MAX);
        assert_eq!(fault.kind, FaultKind::WarpDivergence { operation, mask, absent });
    }
    let fault = fault(Checks::Full, product_of_a_part_of_a_warp {}, 1);
    assert!(fault.to_string().contains("lanes that never come"), "{fault}");
    assert!(fault.to_string().contains("note: the block has no threads for them"), "{fault}");
}

// Matrices.

/// Loads four matrices whose rows lie in reverse order, and stores what each lane receives.
#[kernel(block = 32, dynamic_shared = 512)]
fn load_reversed(shift: u32, barrier: u32, out: GlobalSliceMut<'_, f32>) {
    let lane = warp::lane_id() as usize;
    unsafe {
        let rows = dynamic_shared::<f32>(0, 128);
        (0..4).for_each(|word| rows.write(lane * 4 + word, (lane * 4 + word) as f32));
        if barrier != 0 {
            thread::sync_threads();
        }
        let words = ldmatrix::ldmatrix_x4(&rows, ((31 - lane) * 4).wrapping_add_signed(shift as i32 as isize)); // <load>
        words.into_iter().enumerate().for_each(|(i, word)| out.set_unchecked(i * 32 + lane, word));
    }
}

#[test]
fn a_lane_receives_its_word_of_each_matrix() {
    let mut out = [0.0; 128];
    succeed(Checks::Full, load_reversed { shift: 0, barrier: 1, out: GlobalSliceMut::new(&mut out) }, 1);
    for (matrix, lane) in (0..4).flat_map(|matrix| (0..32).map(move |lane| (matrix, lane))) {
        let row = 31 - (8 * matrix + lane / 4);
        assert_eq!(out[matrix * 32 + lane], (row * 4 + lane % 4) as f32);
    }
}

#[test]
fn a_wrong_load_of_matrices_is_reported() {
    let mut out = [0.0; 128];
    let mut load = |shift, barrier| {
        let fault = fault(Checks::Full, load_reversed { shift, barrier, out: GlobalSliceMut::new(&mut out) }, 1);
        assert_eq!(fault.location, Some(line("load")));
        fault.kind
    };
    assert!(matches!(load(2, 1), FaultKind::SharedOutOfBounds { .. }), "its last two elements");
    assert!(matches!(load(4, 1), FaultKind::SharedOutOfBounds { .. }));
    assert!(matches!(load(-2i32 as u32, 1), FaultKind::SharedMisaligned { index: 122, bytes: 16, .. }));
    assert!(matches!(load(0, 0), FaultKind::Race { .. }));
}

// Copies.

/// Copies 64 elements, 4 by each thread, and stores them as another thread sees them. `mistake` leaves something out or does
/// something wrong.
#[kernel(block = 16, dynamic_shared = 256)]
fn copies(mistake: u32, count: u32, x: GlobalSlice<'_, f32>, y: GlobalSliceMut<'_, f32>) {
    let t = thread::thread_idx_x() as usize;
    unsafe {
        let tile = dynamic_shared::<f32>(0, 64);
        let (to, from) = match mistake {
            1 => (4 * t + 2, 4 * t),
            2 => (4 * t, 4 * t + 1),
            3 => (4 * t + 4, 4 * t),
            4 => (4 * t, 4 * t + 64),
            _ => (4 * t, 4 * t),
        };
        if mistake == 8 {
            tile.write(4 * (t + 1) % 64, 1.0); // <write>
        }
        async_copy::copy_async::<4, _>(&tile, to, &x, from, count); // <copy>
        if mistake != 5 {
            async_copy::commit_group();
        }
        if mistake == 6 {
            async_copy::wait_group::<1>();
        } else if mistake != 9 {
            async_copy::wait_group::<0>();
        }
        if mistake == 9 {
            y.set_unchecked(t, tile.read(4 * t)); // <early>
            async_copy::wait_group::<0>();
        }
        if mistake != 7 {
            thread::sync_threads();
        }
        for i in 0..4 {
            let place = 64 * thread::block_idx_x() as usize + 4 * t + i;
            y.set_unchecked(place, tile.read(4 * (15 - t) + i)); // <read>
        }
    }
}

fn copied(mistake: u32, count: u32) -> (copies<'static>, &'static mut [f32; 3 * 64]) {
    #[repr(align(16))]
    struct Aligned([f32; 64]);
    let x: &'static Aligned = Box::leak(Box::new(Aligned(std::array::from_fn(|i| i as f32 + 1.0))));
    let y: &'static mut [f32; 3 * 64] = Box::leak(Box::new([0.0; 3 * 64]));
    // SAFETY: the memory is leaked; only the kernel writes to it during the launch.
    let view = unsafe { GlobalSliceMut::from_raw_parts(y.as_mut_ptr(), y.len()) };
    (copies { mistake, count, x: GlobalSlice::new(&x.0), y: view }, y)
}

#[test]
fn copies_arrive_with_zeros_after_what_is_copied() {
    for checks in ALL_CHECKS {
        for count in 0..=4 {
            let (kernel, y) = copied(0, count);
            succeed(checks, kernel, 3);
            for (i, &y) in y.iter().enumerate() {
                let (piece, place) = (15 - i % 64 / 4, i % 4);
                let should = if place < count as usize { (4 * piece + place) as f32 + 1.0 } else { 0.0 };
                assert_eq!(y, should, "{count}, {i}");
            }
        }
        // A source that is not read may be out of bounds.
        succeed(checks, copied(4, 0).0, 1);
    }
}

#[test]
fn copies_to_or_from_wrong_places_are_reported() {
    for checks in ALL_CHECKS {
        let kind = |mistake| {
            let fault = fault(checks, copied(mistake, 4).0, 1);
            assert_eq!(fault.location, Some(line("copy")), "{fault}");
            fault.kind
        };
        assert!(matches!(kind(1), FaultKind::SharedMisaligned { index: 2, bytes: 16, .. }));
        assert!(matches!(kind(2), FaultKind::Misaligned { index: 1, bytes: 16, .. }));
        assert!(matches!(kind(3), FaultKind::SharedOutOfBounds { .. }));
        assert!(matches!(kind(4), FaultKind::OutOfBounds { index: 64, count: 4, len: 64, .. }));
    }
}

#[test]
fn copies_that_are_not_waited_for_are_reported() {
    // Neither a group that was never made nor one that the wait leaves out has arrived.
    for mistake in [5, 6] {
        let fault = fault(Checks::Full, copied(mistake, 4).0, 1);
        assert_eq!(fault.location, Some(line("read")), "{fault}");
        assert!(matches!(fault.kind, FaultKind::UnwrittenShared { .. }), "{fault}");
        // Without the shadow, the read gives a NaN, and the end of the thread shows the copy.
        let fault = common::fault(Checks::Bounds, copied(mistake, 4).0, 1);
        assert_eq!(fault.location, Some(line("copy")));
        assert_eq!(fault.kind, FaultKind::CopyNotAwaited { byte_offset: 0, bytes: 16 });
    }
    // A read before the wait, even by the thread that copies.
    let fault = fault(Checks::Full, copied(9, 4).0, 1);
    assert_eq!(fault.location, Some(line("early")), "{fault}");
    assert!(matches!(fault.kind, FaultKind::UnwrittenShared { .. }), "{fault}");
}

#[test]
fn copies_without_barriers_are_races() {
    // Others read without a barrier after the wait.
    let fault = fault(Checks::Full, copied(7, 4).0, 1);
    assert!(matches!(fault.kind, FaultKind::Race { .. } | FaultKind::UnwrittenShared { .. }), "{fault}");
    // The target was accessed by another thread, without a barrier before the copy.
    let fault = common::fault(Checks::Full, copied(8, 4).0, 1);
    assert!(
        matches!(&fault.kind, FaultKind::Race { other, .. } if other.location == line("copy")
        || other.location == line("write")),
        "{fault}"
    );
}

/// Three groups of one copy each, of which a wait covers the first only; then the others.
#[kernel(block = 1, dynamic_shared = 48)]
fn groups(x: GlobalSlice<'_, f32>, y: GlobalSliceMut<'_, f32>) {
    unsafe {
        let tile = dynamic_shared::<f32>(0, 12);
        let first = 5 * thread::block_idx_x() as usize;
        for i in 0..3 {
            async_copy::copy_async::<1, _>(&tile, i, &x, i, 1);
            async_copy::commit_group();
        }
        async_copy::wait_group::<2>();
        y.set_unchecked(first, tile.read(0));
        async_copy::copy_async::<2, _>(&tile, 4, &x, 2, 2);
        async_copy::commit_group();
        async_copy::wait_group::<1>();
        (1..3).for_each(|i| y.set_unchecked(first + i, tile.read(i)));
        async_copy::wait_group::<0>();
        (3..5).for_each(|i| y.set_unchecked(first + i, tile.read(i + 1)));
    }
}

#[test]
fn a_wait_covers_all_groups_but_the_latest() {
    #[repr(align(8))]
    struct Aligned([f32; 4]);
    let (x, mut y) = (Aligned([5.0, 6.0, 7.0, 8.0]), [0.0; 10]);
    for checks in ALL_CHECKS {
        y.fill(0.0);
        succeed(checks, groups { x: GlobalSlice::new(&x.0), y: GlobalSliceMut::new(&mut y) }, 2);
        assert_eq!(y, [5.0, 6.0, 7.0, 7.0, 8.0, 5.0, 6.0, 7.0, 7.0, 8.0]);
    }
}

/// The executor has to be fast enough for tests of whole tiles: 128×128×64 of TF32 products, by 8 warps.
#[kernel(block = 256)]
fn many_products(y: GlobalSliceMut<'_, f32>) {
    let mut sums = [1.0; 4];
    for _ in 0..8 * 2 * 8 * 8 / 8 {
        unsafe { sums = mma::mma_m16n8k8_tf32([1.0, 0.5, -1.0, 2.0], [1.0, -1.0], sums) };
    }
    unsafe { y.set_unchecked(thread::index_1d(), sums[0]) };
}

#[test]
fn products_take_microseconds() {
    let mut y = [0.0; 256];
    let start = std::time::Instant::now();
    succeed(Checks::Full, many_products { y: GlobalSliceMut::new(&mut y) }, 1);
    assert!(start.elapsed().as_secs_f64() < 1.0, "{:?}", start.elapsed());
}
