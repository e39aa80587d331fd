//! Elements of all sizes: what kernels load and store is what there was, races are those of bytes, and so is what nobody has written.

#![allow(clippy::undocumented_unsafe_blocks, reason = "many of these kernels break the contracts on purpose")]

extern crate tilewright_cuda_std as cuda_std;

mod common;

use common::{ALL_CHECKS, at, fault, line_of, succeed};
use cuda_std::executor::{AccessKind, Checks, Fault, FaultKind};
use cuda_std::prelude::*;
use cuda_std::{Bf16, E4m3, E5m2, F16};

const SOURCE: &str = include_str!("elements.rs");

/// Stamps a kernel that reverses blocks of 64 elements by way of static and of dynamic shared memory, and puts `last` in the place of
/// the last element; and its test.
macro_rules! reversed {
    ($($kernel:ident, $test:ident, $number:ty, $of:expr;)*) => { $(
        #[kernel(block = 64, dynamic_shared = 64 * 8 + 8)]
        fn $kernel(last: $number, x: GlobalSlice<'_, $number>, y: DisjointSlice<'_, $number>, z: GlobalSliceMut<'_, $number>) {
            static TILE: Shared<[[$number; 8]; 8]> = Shared::new();
            let t = thread::thread_idx_x() as usize;
            unsafe {
                let slice = dynamic_shared::<$number>(8, 64);
                TILE.write([t / 8, t % 8], x.get(thread::index()).unwrap_or(last));
                thread::sync_threads();
                let other = 63 - t;
                slice.write(t, TILE.read([other / 8, other % 8]));
                thread::sync_threads();
                z.set_unchecked(thread::index(), slice.read(other));
                if let Some(y) = y.own() {
                    y.set(slice.read(t));
                }
            }
        }

        #[test]
        fn $test() {
            let of: fn(u8) -> $number = $of;
            let x: Vec<$number> = (0..255).map(of).collect();
            let bits = |numbers: &[$number]| -> Vec<u128> { numbers.iter().map(|&x| bits_of(x)).collect() };
            for checks in ALL_CHECKS {
                let (mut y, mut z) = (vec![of(0); 250], vec![of(0); 256]);
                let (views, last) = ((GlobalSlice::new(&x), DisjointSlice::new(&mut y)), of(7));
                succeed(checks, $kernel { last, x: views.0, y: views.1, z: GlobalSliceMut::new(&mut z) }, 4);
                let whole: Vec<$number> = x.iter().copied().chain([last]).collect();
                let turned: Vec<$number> = whole.chunks(64).flat_map(|block| block.iter().rev().copied()).collect();
                assert_eq!((bits(&y), bits(&z)), (bits(&turned[..250]), bits(&whole)), "{checks:?}");
            }
        }
    )* };
}

/// The bits of an element, which has no padding and at most 16 bytes.
fn bits_of<T: Element>(number: T) -> u128 {
    let mut bytes = [0; 16];
    assert!(size_of::<T>() <= bytes.len());
    unsafe { std::ptr::copy_nonoverlapping((&raw const number).cast::<u8>(), bytes.as_mut_ptr(), size_of::<T>()) };
    u128::from_le_bytes(bytes)
}

reversed! {
    reversed_u8, bytes_come_through_every_memory, u8, |i| i;
    reversed_i8, signed_bytes_come_through_every_memory, i8, |i| i as i8;
    reversed_u16, halfwords_come_through_every_memory, u16, |i| 255 * u16::from(i);
    reversed_i16, signed_halfwords_come_through_every_memory, i16, |i| -100 * i16::from(i);
    reversed_u32, words_come_through_every_memory, u32, |i| u32::from(i) << 24;
    reversed_f64, fp64_comes_through_every_memory, f64, |i| -1.0 / f64::from(i);
    reversed_f16, fp16_comes_through_every_memory, F16, |i| F16::from_bits(u16::from(i) << 8 | 0xFF);
    reversed_bf16, bf16_comes_through_every_memory, Bf16, |i| Bf16::from_bits(u16::from(i) << 8 | 0x81);
    reversed_e4m3, e4m3_comes_through_every_memory, E4m3, E4m3::from_bits;
    reversed_e5m2, e5m2_comes_through_every_memory, E5m2, E5m2::from_bits;
}

fn line(mark: &str) -> u32 {
    line_of(SOURCE, mark)
}

/// The line of a fault, and that of the access that it conflicts with, in the order of the lines; and its element, if it is in shared
/// memory.
fn race(fault: &Fault) -> ([(u32, AccessKind); 2], String) {
    let (access, other, element) = match &fault.kind {
        FaultKind::Race { access, other, element, .. } => (access, other, element.clone()),
        FaultKind::GlobalRace { access, other, element: Some(element), .. } => {
            (access, other, element.index.to_string())
        }
        _ => panic!("expected a race, got: {fault}"),
    };
    let mut lines = [(fault.location.as_ref().unwrap().line, *access), (other.location.line, other.access)];
    lines.sort_by_key(|(line, _)| *line);
    (lines, element)
}

/// Two threads write a byte each, in global memory: of one block or of two.
#[kernel(block = 2)]
fn write_bytes(first: u32, second: u32, x: GlobalSliceMut<'_, u8>) {
    unsafe {
        match thread::index_1d() {
            0 => x.set_unchecked(first as usize, 1),  // <first byte>
            1 => x.set_unchecked(second as usize, 2), // <second byte>
            2 => x.set_unchecked(14, 3),              // <byte of another block>
            _ => {}
        }
    }
}

#[test]
fn neighbouring_bytes_of_global_memory_are_no_race() {
    for (first, second) in [(0, 1), (3, 4), (5, 7), (12, 2)] {
        let mut x = [0; 16];
        succeed(Checks::Full, write_bytes { first, second, x: GlobalSliceMut::new(&mut x) }, 2);
        assert_eq!((x[first as usize], x[second as usize], x[14]), (1, 2, 3));
    }
}

#[test]
fn one_byte_of_global_memory_is_a_race() {
    for byte in [0, 1, 6, 15] {
        let memory = &mut [0; 16];
        let kernel = write_bytes { first: byte, second: byte, x: GlobalSliceMut::new(memory) };
        let (lines, element) = race(&fault(Checks::Full, kernel, 1));
        assert_eq!(lines, [(line("first byte"), AccessKind::Write), (line("second byte"), AccessKind::Write)]);
        assert_eq!(element, byte.to_string());
    }
    let memory = &mut [0; 16];
    let kernel = write_bytes { first: 14, second: 13, x: GlobalSliceMut::new(memory) };
    let (lines, _) = race(&fault(Checks::Full, kernel, 2));
    assert_eq!(lines, [(line("first byte"), AccessKind::Write), (line("byte of another block"), AccessKind::Write)]);
}

/// All threads read a halfword, one of them another of the same word, and one, which no barrier separates from the others, writes one.
#[kernel(block = 64)]
fn read_and_write_global(written: u32, x: GlobalSliceMut<'_, u16>, y: GlobalSliceMut<'_, u16>) {
    unsafe {
        let i = thread::index_1d();
        let mut sum = x.get_unchecked(2); // <read by all>
        if i == 40 {
            sum += x.get_unchecked(3); // <read by one>
        }
        y.set_unchecked(i, sum);
        if i == 70 {
            x.set_unchecked(written as usize, 5); // <written by another>
        }
    }
}

/// The same in shared memory.
#[kernel(block = 64, dynamic_shared = 12)]
fn read_and_write_shared(written: u32, x: GlobalSlice<'_, u16>, y: GlobalSliceMut<'_, u16>) {
    unsafe {
        let (slice, t) = (dynamic_shared::<u16>(0, 6), thread::thread_idx_x() as usize);
        if t < 6 {
            slice.write(t, x.get_unchecked(t));
        }
        thread::sync_threads();
        let mut sum = slice.read(2); // <shared read by all>
        if t == 40 {
            sum += slice.read(3); // <shared read by one>
        }
        y.set_unchecked(thread::index_1d(), sum);
        if t == 50 {
            slice.write(written as usize, 5); // <shared written by another>
        }
    }
}

#[test]
fn a_halfword_that_others_read_is_not_written() {
    let (mut y, expected) = ([0; 128], |t: usize| if t % 64 == 40 { 2 } else { 1 });
    for written in 0..6 {
        let mut x = [1; 6];
        let read = GlobalSlice::new(&[1; 6]);
        let of_shared = read_and_write_shared { written, x: read, y: GlobalSliceMut::new(&mut y) };
        if written == 2 || written == 3 {
            let mark = if written == 2 { "read by all" } else { "read by one" };
            let lines_of = |prefix: &str| {
                let [read, write] = [mark, "written by another"].map(|mark| line(&format!("{prefix}{mark}")));
                [(read, AccessKind::Read), (write, AccessKind::Write)]
            };
            assert_eq!(race(&fault(Checks::Full, of_shared, 1)).0, lines_of("shared "));
            let views = (GlobalSliceMut::new(&mut x), GlobalSliceMut::new(&mut y));
            let of_global = read_and_write_global { written, x: views.0, y: views.1 };
            assert_eq!(race(&fault(Checks::Full, of_global, 2)).0, lines_of(""));
        } else {
            succeed(Checks::Full, of_shared, 2);
            assert!((0..128).all(|t| y[t] == expected(t)));
            let views = (GlobalSliceMut::new(&mut x), GlobalSliceMut::new(&mut y));
            succeed(Checks::Full, read_and_write_global { written, x: views.0, y: views.1 }, 2);
            assert_eq!((x[written as usize], y[40], y[104]), (5, 2, 1));
        }
    }
}

/// Memory in which words and bytes meet: a thread writes a byte, another a word, through views of the same memory.
#[kernel(block = 2)]
fn write_byte_and_word(byte: u32, word: u32, x: GlobalSliceMut<'_, u32>) {
    unsafe {
        let bytes = GlobalSliceMut::<u8>::from_raw_parts(x.as_mut_ptr().cast(), 4 * x.len());
        if thread::index_1d() == 0 {
            bytes.set_unchecked(byte as usize, 1); // <a byte>
        } else {
            x.set_unchecked(word as usize, 0x0202_0202); // <a word>
        }
    }
}

#[test]
fn a_byte_of_a_word_is_a_race_and_one_beside_it_is_none() {
    for byte in 0..12 {
        let mut x = [0; 3];
        let kernel = write_byte_and_word { byte, word: 1, x: GlobalSliceMut::new(&mut x) };
        if byte / 4 == 1 {
            let (lines, _) = race(&fault(Checks::Full, kernel, 1));
            assert_eq!(lines, [(line("a byte"), AccessKind::Write), (line("a word"), AccessKind::Write)]);
        } else {
            succeed(Checks::Full, kernel, 1);
            assert_eq!((x[1], x[byte as usize / 4]), (0x0202_0202, 1 << (byte % 4 * 8)));
        }
    }
}

/// Bytes of shared memory, static and dynamic: thread `t` writes byte `t`, and reads byte `t + distance` after a barrier, or before it.
#[kernel(block = 64, dynamic_shared = 128)]
fn exchange_bytes(distance: u32, is_dynamic: u32, has_barrier: u32, y: GlobalSliceMut<'_, u8>) {
    static BYTES: Shared<[u8; 64]> = Shared::new();
    let t = thread::thread_idx_x() as usize;
    let other = (t + distance as usize) % 64;
    unsafe {
        let slice = dynamic_shared::<u8>(3, 64);
        if is_dynamic != 0 {
            slice.write(t, t as u8); // <dynamic write>
        } else {
            BYTES.write(t, t as u8); // <static write>
        }
        if has_barrier != 0 {
            thread::sync_threads();
        }
        let value = if is_dynamic != 0 {
            slice.read(other) // <dynamic read>
        } else {
            BYTES.read(other) // <static read>
        };
        y.set_unchecked(t, value);
    }
}

#[test]
fn bytes_of_shared_memory_are_a_threads_own() {
    for (is_dynamic, writes, reads) in [(0, "static write", "static read"), (1, "dynamic write", "dynamic read")] {
        for (distance, has_barrier) in [(0, 0), (0, 1), (1, 1), (17, 1)] {
            let mut y = [0; 64];
            let kernel = exchange_bytes { distance, is_dynamic, has_barrier, y: GlobalSliceMut::new(&mut y) };
            succeed(Checks::Full, kernel, 1);
            assert!((0..64).all(|t| y[t] == ((t as u32 + distance) % 64) as u8));
        }
        for distance in [1, 4, 33] {
            let memory = &mut [0; 64];
            let kernel = exchange_bytes { distance, is_dynamic, has_barrier: 0, y: GlobalSliceMut::new(memory) };
            let (lines, _) = race(&fault(Checks::Full, kernel, 1));
            assert_eq!(lines, [(line(writes), AccessKind::Write), (line(reads), AccessKind::Read)]);
        }
    }
}

/// Writes all bytes of static shared memory but one, and reads one; or a word of the dynamic shared memory, in which one is missing.
#[kernel(block = 32, dynamic_shared = 32)]
fn read_what_may_be_missing(missing: u32, read: u32, is_word: u32, y: GlobalSliceMut<'_, u32>) {
    static BYTES: Shared<[[u8; 8]; 4]> = Shared::new();
    let t = thread::thread_idx_x();
    unsafe {
        let (bytes, words) = (dynamic_shared::<u8>(0, 32), dynamic_shared::<u32>(0, 8));
        if t != missing {
            BYTES.write([t as usize / 8, t as usize % 8], 1);
            bytes.write(t as usize, 1);
        }
        thread::sync_threads();
        if t == 0 && is_word != 0 {
            y.set_unchecked(0, words.read(read as usize / 4)); // <read of a word>
        } else if t == 0 {
            y.set_unchecked(0, BYTES.read([read as usize / 8, read as usize % 8]).into()); // <read of a byte>
        }
    }
}

#[test]
fn bytes_that_nobody_has_written_are_found() {
    for (missing, read, is_word, element) in [(13, 13, 0, "[1, 5]"), (31, 31, 0, "[3, 7]"), (13, 12, 1, "3")] {
        let y = &mut [0];
        let fault =
            fault(Checks::Full, read_what_may_be_missing { missing, read, is_word, y: GlobalSliceMut::new(y) }, 1);
        let FaultKind::UnwrittenShared { element: found, .. } = &fault.kind else { panic!("{fault}") };
        let mark = if is_word != 0 { "read of a word" } else { "read of a byte" };
        assert_eq!((found.as_str(), fault.location.as_ref().unwrap().line), (element, line(mark)));
    }
    for (missing, read, is_word, value) in
        [(13, 12, 0, 1), (13, 14, 0, 1), (13, 16, 1, 0x0101_0101), (99, 12, 1, 0x0101_0101)]
    {
        let mut y = [0];
        succeed(Checks::Full, read_what_may_be_missing { missing, read, is_word, y: GlobalSliceMut::new(&mut y) }, 1);
        assert_eq!(y, [value]);
    }
}

/// One thread counts in an element, another writes a halfword, which is not in the element if the byte is right.
#[kernel(block = 64, dynamic_shared = 16)]
fn count_beside_a_halfword(byte: u32, y: GlobalSliceMut<'_, u32>) {
    unsafe {
        let (words, halves) = (dynamic_shared::<u32>(0, 4), dynamic_shared::<u16>(0, 8));
        let t = thread::thread_idx_x();
        if t < 4 {
            words.write(t as usize, 0);
        }
        thread::sync_threads();
        if t != 40 {
            words.atomic(1).fetch_add(1, atomic::Relaxed, atomic::Scope::Block); // <count>
        } else {
            halves.write(byte as usize / 2, 0xFFFF); // <halfword>
        }
        thread::sync_threads();
        if t < 4 {
            y.set_unchecked(t as usize, words.read(t as usize));
        }
    }
}

#[test]
fn a_halfword_beside_an_atomic_element_is_no_race() {
    let mut y = [0; 4];
    succeed(Checks::Full, count_beside_a_halfword { byte: 2, y: GlobalSliceMut::new(&mut y) }, 1);
    assert_eq!(y, [0xFFFF_0000, 63, 0, 0]);
    succeed(Checks::Full, count_beside_a_halfword { byte: 8, y: GlobalSliceMut::new(&mut y) }, 1);
    assert_eq!(y, [0, 63, 0xFFFF, 0]);
    for byte in [4, 6] {
        let fault = fault(Checks::Full, count_beside_a_halfword { byte, y: GlobalSliceMut::new(&mut y) }, 1);
        let (lines, element) = race(&fault);
        assert_eq!((lines[0].0, lines[1]), (line("count"), (line("halfword"), AccessKind::Write)));
        assert_eq!(
            element,
            if byte == 4 || fault.thread != at(40, 0, 0) { "1".to_owned() } else { "1, byte 2".to_owned() }
        );
    }
}

/// Words that are written as a whole, then in parts, then as a whole again. One of the barriers may be missing.
#[kernel(block = 64, dynamic_shared = 256)]
fn change_sizes(missing: u32, y: GlobalSliceMut<'_, u32>) {
    unsafe {
        let (words, bytes) = (dynamic_shared::<u32>(0, 64), dynamic_shared::<u8>(0, 256));
        let t = thread::thread_idx_x() as usize;
        let barrier = |number: u32| {
            if number != missing {
                thread::sync_threads();
            }
        };
        words.write(t, 0);
        barrier(1);
        for i in 0..4 {
            bytes.write(64 * i + t, i as u8 + 1);
        }
        barrier(2);
        let sum = words.read(t);
        barrier(3);
        words.write((t + 5) % 64, sum);
        barrier(4);
        let byte = bytes.read(4 * t + 2);
        barrier(5);
        bytes.write(4 * ((t + 1) % 64) + 2, byte + 1);
        barrier(6);
        y.set_unchecked(t, words.read(t));
    }
}

#[test]
fn words_may_be_accessed_in_parts_and_as_a_whole_by_turns() {
    let mut y = [0; 64];
    succeed(Checks::Full, change_sizes { missing: 0, y: GlobalSliceMut::new(&mut y) }, 1);
    for t in 0..64u32 {
        let part = ((t + 59) % 64) / 16 + 1;
        let before = ((t + 58) % 64) / 16 + 1;
        let bytes = [part, part, before + 1, part].map(|byte| byte as u8);
        assert_eq!(y[t as usize], u32::from_le_bytes(bytes), "word {t}");
    }
    for missing in 1..=6 {
        let fault = fault(Checks::Full, change_sizes { missing, y: GlobalSliceMut::new(&mut y) }, 1);
        assert!(matches!(fault.kind, FaultKind::Race { .. }), "without barrier {missing}: {fault}");
    }
}

#[test]
fn a_byte_past_the_end_is_reported() {
    for checks in ALL_CHECKS {
        let memory = &mut [0; 13];
        let kernel = write_bytes { first: 0, second: 13, x: GlobalSliceMut::new(memory) };
        let fault = fault(checks, kernel, 1);
        let kind = FaultKind::OutOfBounds { view: Some("x".into()), first: 0, index: 13, count: 1, len: 13 };
        assert_eq!((fault.thread, fault.kind), (at(1, 0, 0), kind));
        let memory = &mut [0];
        let kernel = read_what_may_be_missing { missing: 99, read: 32, is_word: 0, y: GlobalSliceMut::new(memory) };
        let fault = common::fault(checks, kernel, 1);
        assert!(matches!(fault.kind, FaultKind::SharedOutOfBounds { .. }), "{fault}");
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Element, KernelParam)]
#[repr(C)]
struct Pair {
    x: f32,
    y: u32,
}

/// Of 6 bytes, so that every other one has parts of two words.
#[derive(Clone, Copy, Debug, PartialEq, Element, KernelParam)]
#[repr(C)]
struct Color {
    red: u16,
    green: F16,
    low: u8,
    high: i8,
}

/// As long as the longest vector, and aligned like it.
#[derive(Clone, Copy, Debug, PartialEq, Element, KernelParam)]
#[repr(C, align(16))]
struct Line(Pair, u64);

/// With arrays, also of structs, and of arrays.
#[derive(Clone, Copy, Debug, PartialEq, Element, KernelParam)]
#[repr(C)]
struct Patch {
    corners: [[u8; 2]; 2],
    heights: [Height; 2],
}

#[derive(Clone, Copy, Debug, PartialEq, Element, KernelParam)]
#[repr(C)]
struct Height(i16);

fn patch(i: u8) -> Patch {
    Patch { corners: [[i, 1], [2, !i]], heights: [Height(-i16::from(i)), Height(300)] }
}

const fn pair(i: u8) -> Pair {
    Pair { x: i as f32 / 2.0, y: 3 << 24 | i as u32 }
}

fn color(i: u8) -> Color {
    Color { red: 257 * u16::from(i), green: F16::from_bits(u16::from(i) << 7), low: !i, high: i as i8 }
}

reversed! {
    reversed_pairs, structs_come_through_every_memory, Pair, pair;
    reversed_colors, structs_of_halfwords_come_through_every_memory, Color, color;
    reversed_patches, structs_with_arrays_come_through_every_memory, Patch, patch;
}

/// Stamps a kernel that reverses the vectors of a block, of `N` elements each, by way of dynamic shared memory; and its test.
macro_rules! vectors {
    ($($kernel:ident, $test:ident, $number:ty, $n:literal, $of:expr;)*) => { $(
        #[kernel(block = 32, dynamic_shared = 32 * 16)]
        fn $kernel(skipped: u32, x: GlobalSlice<'_, $number>, y: GlobalSliceMut<'_, $number>) {
            let (t, i) = (thread::thread_idx_x() as usize, $n * thread::index() + skipped as usize);
            unsafe {
                let slice = dynamic_shared::<$number>(0, 32 * $n);
                let vector: [$number; $n] = x.get_vector_unchecked(i);
                slice.write_vector($n * t, vector);
                thread::sync_threads();
                let vector = slice.read_vector::<$n>($n * (31 - t));
                y.set_vector_unchecked(i, vector);
                assert_eq!(y.get_vector_unchecked::<$n>(i).map(bits_of), vector.map(bits_of));
            }
        }

        #[test]
        fn $test() {
            let of: fn(u8) -> $number = $of;
            let len = 64 * $n;
            let bits = |numbers: &[$number]| -> Vec<u128> { numbers.iter().map(|&x| bits_of(x)).collect() };
            for checks in ALL_CHECKS {
                let mut memory = vec![[0u128; 2]; 64];
                let (x, y) = memory.split_at_mut(32);
                // SAFETY: as many bytes as there are, which are numbers whatever they are.
                let [x, y] = [x, y].map(|half| unsafe {
                    std::slice::from_raw_parts_mut(half.as_mut_ptr().cast::<$number>(), 1024 / size_of::<$number>())
                });
                x.iter_mut().enumerate().for_each(|(i, x)| *x = of(i as u8));
                let views = (GlobalSlice::new(&x[..len]), GlobalSliceMut::new(&mut y[..len]));
                succeed(checks, $kernel { skipped: 0, x: views.0, y: views.1 }, 2);
                let turned: Vec<$number> =
                    x[..len].chunks(32 * $n).flat_map(|block| block.chunks($n).rev().flatten().copied()).collect();
                assert_eq!(bits(&y[..len]), bits(&turned), "{checks:?}");

                let size = $n * size_of::<$number>();
                let views = (GlobalSlice::new(&x[..len - 1]), GlobalSliceMut::new(&mut y[..len]));
                let past = fault(checks, $kernel { skipped: 0, x: views.0, y: views.1 }, 2);
                let (first, len) = (len - $n, len - 1);
                let kind = FaultKind::OutOfBounds { view: Some("x".into()), first: 0, index: first, count: $n, len };
                assert_eq!((past.kind, past.block, past.thread), (kind, at(1, 0, 0), at(31, 0, 0)));

                if $n > 1 {
                    let views = (GlobalSlice::new(&*x), GlobalSliceMut::new(&mut *y));
                    let beside = fault(checks, $kernel { skipped: 1, x: views.0, y: views.1 }, 1);
                    let kind = FaultKind::Misaligned { view: Some("x".into()), first: 0, index: 1, bytes: size };
                    assert_eq!((beside.kind, beside.thread), (kind, at(0, 0, 0)));
                }
            }
        }
    )* };
}

vectors! {
    vectors_u8x16, vectors_of_16_bytes_are_aligned, u8, 16, |i| i;
    vectors_u8x2, vectors_of_2_bytes_are_aligned, u8, 2, |i| i;
    vectors_i16x4, vectors_of_halfwords_are_aligned, i16, 4, |i| -i16::from(i);
    vectors_f16x8, vectors_of_fp16_are_aligned, F16, 8, |i| F16::from_bits(u16::from(i) << 8 | 1);
    vectors_bf16x2, pairs_of_bf16_are_aligned, Bf16, 2, |i| Bf16::from_bits(u16::from(i) << 8 | 1);
    vectors_e4m3x4, vectors_of_fp8_are_aligned, E4m3, 4, E4m3::from_bits;
    vectors_f32x4, vectors_of_fp32_are_aligned, f32, 4, f32::from;
    vectors_f64x2, vectors_of_fp64_are_aligned, f64, 2, f64::from;
    vectors_u64x1, vectors_of_one_element_are_one_access, u64, 1, |i| u64::from(i) << 40 | 5;
    vectors_pairs, vectors_of_structs_are_aligned, Pair, 2, pair;
    vectors_lines, structs_of_16_bytes_are_vectors, Line, 1, |i| Line(pair(i), 7 << 33 | u64::from(i));
}

/// A thread writes a vector to shared memory, which need not be aligned, and others a halfword each.
#[kernel(block = 16, dynamic_shared = 48)]
fn vector_beside_halfwords(first: u32, y: GlobalSliceMut<'_, u16>) {
    unsafe {
        let (slice, t) = (dynamic_shared::<u16>(0, 24), thread::thread_idx_x() as usize);
        if t == 8 {
            slice.write_vector(first as usize, [1u16; 8]); // <vector>
        }
        slice.write(if t < 8 { t } else { t + 8 }, 2); // <halfword beside it>
        thread::sync_threads();
        y.set_unchecked(t, slice.read(t));
    }
}

#[test]
fn a_vector_is_all_of_its_elements() {
    let mut y = [0; 16];
    succeed(Checks::Full, vector_beside_halfwords { first: 8, y: GlobalSliceMut::new(&mut y) }, 1);
    assert_eq!(y, core::array::from_fn(|i| if i < 8 { 2 } else { 1 }));
    for first in [0, 16] {
        let kernel = vector_beside_halfwords { first, y: GlobalSliceMut::new(&mut y) };
        let lines = [(line("vector"), AccessKind::Write), (line("halfword beside it"), AccessKind::Write)];
        assert_eq!(race(&fault(Checks::Full, kernel, 1)).0, lines);
    }
    for checks in ALL_CHECKS {
        let fault = fault(checks, vector_beside_halfwords { first: 4, y: GlobalSliceMut::new(&mut y) }, 1);
        assert!(matches!(fault.kind, FaultKind::SharedMisaligned { index: 4, bytes: 16, .. }), "{fault}");
        assert_eq!(fault.location.unwrap().line, line("vector"));
    }
}

/// Threads write structs of 6 bytes, neighbours or the same ones, and read one that may be missing.
#[kernel(block = 32)]
fn write_colors(divisor: u32, missing: u32, x: GlobalSliceMut<'_, Color>) {
    static COLORS: Shared<[Color; 32]> = Shared::new();
    let t = thread::thread_idx_x() as usize;
    let color = Color { red: t as u16, green: F16::from_bits(2), low: 3, high: -4 };
    unsafe {
        if t != missing as usize {
            COLORS.write(t, color);
        }
        thread::sync_threads();
        x.set_unchecked(t / divisor as usize, COLORS.read(t));
    }
}

#[test]
fn structs_are_written_by_one_thread_each() {
    let mut x = [color(0); 32];
    succeed(Checks::Full, write_colors { divisor: 1, missing: 32, x: GlobalSliceMut::new(&mut x) }, 1);
    assert_eq!(x[31], Color { red: 31, green: F16::from_bits(2), low: 3, high: -4 });
    let twice = fault(Checks::Full, write_colors { divisor: 2, missing: 32, x: GlobalSliceMut::new(&mut x) }, 1);
    assert!(matches!(twice.kind, FaultKind::GlobalRace { .. }), "{twice}");
    let missing = fault(Checks::Full, write_colors { divisor: 1, missing: 13, x: GlobalSliceMut::new(&mut x) }, 1);
    let FaultKind::UnwrittenShared { element, .. } = &missing.kind else { panic!("{missing}") };
    assert_eq!(element, "13");
}

/// Copies of fewer elements than there is room for: the rest becomes zero.
#[kernel(block = 1, dynamic_shared = 16)]
fn copy_some(count: u32, x: GlobalSlice<'_, u8>, y: GlobalSliceMut<'_, u8>) {
    unsafe {
        let slice = dynamic_shared::<u8>(0, 16);
        cuda_std::async_copy::copy_async::<16, u8>(&slice, 0, &x, 0, count);
        cuda_std::async_copy::commit_group();
        cuda_std::async_copy::wait_group::<0>();
        for i in 0..16 {
            y.set_unchecked(i, slice.read(i));
        }
    }
}

#[test]
fn copies_end_between_two_words() {
    let memory = [u128::from_le_bytes([7; 16])];
    let x = GlobalSlice::new(bytemuck::cast_slice::<u128, u8>(&memory));
    for count in 0..=16 {
        let mut y = [1; 16];
        succeed(Checks::Full, copy_some { count, x, y: GlobalSliceMut::new(&mut y) }, 1);
        assert_eq!(y, core::array::from_fn(|i| if i < count as usize { 7 } else { 0 }));
    }
}

/// Lanes hand a byte on to their neighbours.
#[kernel(block = 32)]
fn rotate_bytes(y: DisjointSlice<'_, u8>, z: DisjointSlice<'_, F16>) {
    let lane = thread::thread_idx_x();
    // SAFETY: all lanes call both.
    let (byte, half) = unsafe {
        let from = (lane + 1) % 32;
        (
            warp::warp_shuffle_idx(u32::MAX, 200 + lane as u8, from, 32).0,
            warp::warp_shuffle_idx(u32::MAX, F16::from_f32(lane as f32 / 4.0), from, 32).0,
        )
    };
    if let (Some(y), Some(z)) = (y.own(), z.own()) {
        y.set(byte);
        z.set(half);
    }
}

#[test]
fn lanes_exchange_small_elements() {
    let (mut y, mut z) = ([0; 32], [F16::default(); 32]);
    succeed(Checks::Full, rotate_bytes { y: DisjointSlice::new(&mut y), z: DisjointSlice::new(&mut z) }, 1);
    assert!((0..32).all(|i| y[i] == 200 + ((i + 1) % 32) as u8 && z[i].to_f32() == ((i + 1) % 32) as f32 / 4.0));
}
