//! Hints for the caches, which change no value and no check, and clocks.

extern crate tilewright_cuda_std as cuda_std;

mod common;

use cuda_std::cache::{
    CoherentLoadHint, EvictFirst, EvictLast, L2Only, LastUse, NoAllocate, ReadOnly, ReadOnlyOnce, StoreHint, Streaming,
    Uncached, WriteThrough,
};
use cuda_std::executor::{Checks, FaultKind};
use cuda_std::prelude::*;

use common::{ALL_CHECKS, fault, line_of, succeed};

/// Copies elements: by vectors, by elements and by safe elements.
#[kernel(
    block = 32,
    requires(x.len() == 32 * N, y.len() == x.len(), z.len() == 32),
    instances(
        copy_u8 = <u8, Streaming, Streaming, 16>,
        copy_f16 = <F16, L2Only, L2Only, 2>,
        copy_u32 = <u32, LastUse, WriteThrough, 4>,
        copy_f64 = <f64, Uncached, NoAllocate, 2>,
        copy_i8 = <i8, NoAllocate, EvictFirst, 8>,
        copy_i64 = <i64, EvictFirst, EvictLast, 1>,
        copy_f32 = <f32, EvictLast, L2Only, 1>
    )
)]
fn copy<T: Element + KernelParam, L: CoherentLoadHint + Default, S: StoreHint + Default, const N: usize>(
    x: GlobalSlice<'_, T>,
    y: GlobalSliceMut<'_, T>,
    z: DisjointSlice<'_, T>,
) {
    let (i, load, store) = (thread::index(), L::default(), S::default());
    x.prefetch_l2(i + 1000);
    // SAFETY: each of 32 threads has N elements of its own.
    unsafe {
        y.set_vector_hinted_unchecked(N * i, x.get_vector_hinted_unchecked::<N>(N * i, load), store);
        let first = y.get_hinted_unchecked(N * i, load);
        y.set_hinted_unchecked(N * i, first, store);
        y.prefetch_l2(i);
    }
    if let Some(z) = z.own() {
        z.set_hinted(x.get_hinted(i, ReadOnly).unwrap_or(z.get_hinted(load)), store);
    }
}

#[test]
fn hints_change_no_value() {
    macro_rules! check {
        ($($kernel:ident, $element:ty, $n:literal, $number:expr;)*) => { $(
            for checks in ALL_CHECKS {
                let number: fn(u8) -> $element = $number;
                #[repr(align(16))]
                struct Aligned([$element; 32 * $n]);
                let x = Aligned(std::array::from_fn(|i| number(i as u8)));
                let (mut y, mut z) = (Aligned([number(0); 32 * $n]), [number(0); 32]);
                let (x_view, y_view) = (GlobalSlice::new(&x.0), GlobalSliceMut::new(&mut y.0));
                succeed(checks, $kernel { x: x_view, y: y_view, z: DisjointSlice::new(&mut z) }, 1);
                assert_eq!((&x.0[..], &x.0[..32]), (&y.0[..], &z[..]));
            }
        )* };
    }
    check! {
        copy_u8, u8, 16, |i| i;
        copy_f16, F16, 2, |i| F16::from_f32(i.into());
        copy_u32, u32, 4, |i| u32::from(i) << 20;
        copy_f64, f64, 2, |i| f64::from(i) + 0.1;
        copy_i8, i8, 8, |i| i as i8;
        copy_i64, i64, 1, |i| -i64::from(i) << 40;
        copy_f32, f32, 1, |i| f32::from(i);
    }
}

#[kernel(block = 32)]
fn reads(x: GlobalSlice<'_, u32>, first: u32) {
    if thread::thread_idx_x() == 5 {
        // SAFETY: none: that is the caller's.
        unsafe {
            x.get_vector_hinted_unchecked::<2>(first as usize, ReadOnlyOnce); // <read>
        }
    }
}

#[kernel(block = 32)]
fn writes(x: GlobalSliceMut<'_, u32>, first: u32) {
    if first != 0 || thread::thread_idx_x() < 2 {
        // SAFETY: none: that is the caller's.
        unsafe { x.set_hinted_unchecked(first as usize, 1, Streaming) } // <write>
    }
}

#[test]
fn accesses_with_hints_are_checked_as_all_others() {
    let source = include_str!("hints.rs");
    #[repr(align(16))]
    struct Aligned([u32; 8]);
    let mut x = Aligned([0; 8]);
    for checks in ALL_CHECKS {
        let past = fault(checks, reads { x: GlobalSlice::new(&x.0), first: 8 }, 1);
        assert!(matches!(past.kind, FaultKind::OutOfBounds { index: 8, count: 2, len: 8, .. }), "{past}");
        assert_eq!(past.location.as_ref().map(|location| location.line), Some(line_of(source, "read")));
        let between = fault(checks, reads { x: GlobalSlice::new(&x.0), first: 3 }, 1);
        assert!(matches!(between.kind, FaultKind::Misaligned { index: 3, bytes: 8, .. }), "{between}");
        let past = fault(checks, writes { x: GlobalSliceMut::new(&mut x.0), first: 9 }, 1);
        assert!(matches!(past.kind, FaultKind::OutOfBounds { index: 9, .. }), "{past}");
    }
    let race = fault(Checks::Full, writes { x: GlobalSliceMut::new(&mut x.0), first: 0 }, 1);
    assert!(matches!(race.kind, FaultKind::GlobalRace { .. }), "{race}");
    assert_eq!(race.location.as_ref().map(|location| location.line), Some(line_of(source, "write")));
}

#[kernel(block = 8, any_grid, requires(times.len() % 8 == 0))]
fn clocks(times: DisjointSlice<'_, u64>) {
    let first = thread::clock64();
    for _ in 0..thread::thread_idx_x() {
        thread::clock();
    }
    let Some(time) = times.own() else { return };
    let (second, third) = (thread::globaltimer(), thread::clock64());
    time.set(1_000_000 * first + 1000 * second + third);
}

#[test]
fn clocks_go_on_for_each_thread() {
    for checks in ALL_CHECKS {
        let mut times = [7; 16];
        succeed(checks, clocks { times: DisjointSlice::new(&mut times) }, 2);
        let expected = |i: u64| 1000 * (i + 1) + i + 2;
        assert_eq!(times, std::array::from_fn(|i| expected(i as u64 % 8)));
    }
}
