//! Products of warpgroups: what they compute, and what has to be waited for.

#![allow(clippy::undocumented_unsafe_blocks, reason = "some of these kernels break the contracts on purpose")]

extern crate tilewright_cuda_std as cuda_std;

mod common;

use common::{ALL_CHECKS, fault, line_of, succeed};
use cuda_std::executor::{AccessKind, Checks, FaultKind, Missing};
use cuda_std::hopper::{self, Barrier};
use cuda_std::prelude::*;
use cuda_std::wgmma::{self, Bf16, Descriptor, Format, Fp16, Sums, Tf32};
use cuda_std::{TileElement, TileLayout, TileSwizzle};

const SOURCE: &str = include_str!("products.rs");

fn line(mark: &str) -> u32 {
    line_of(SOURCE, mark)
}

/// The words of a row, 128 bytes; the rows of A, and the columns of B.
const ROW: usize = 32;
const ROWS: usize = 64;
const COLUMNS: usize = 128;
/// The steps that the terms of a row take: 32 bytes each.
const STEPS: usize = 4;

const NOTHING: u32 = 0;
const NO_WAIT: u32 = 1;
const NO_ASYNC_FENCE: u32 = 2;
const TELLS_BEFORE_IT_WAITS: u32 = 3;
const NO_BARRIER: u32 = 4;
const IN_REGISTERS: u32 = 5;
const NO_FENCE: u32 = 6;
const NO_SECOND_FENCE: u32 = 7;
const SECOND_FENCE: u32 = 8;
const TOO_FAR_BACK: u32 = 9;
/// As [`TELLS_BEFORE_IT_WAITS`], without the last step: overwritten is what only the last step reads, or what the one before it does.
const OVERWRITES_UNREAD: u32 = 10;
const OVERWRITES_LAST_READ: u32 = 11;

/// Where a word of a tile is: swizzled.
fn place(row: usize, word: usize) -> usize {
    row * ROW + ((word / 4) ^ (row % 8)) * 4 + word % 4
}

/// The product of a warpgroup; a fifth warp overwrites what the others have read, when they have told it.
unsafe fn multiply<F: Format<Number = f32>>(
    a: GlobalSlice<'_, u32>,
    b: GlobalSlice<'_, u32>,
    wrong: u32,
    out: GlobalSliceMut<'_, f32>,
) {
    unsafe {
        let memory: SharedSlice<f32> = dynamic_shared(0, (ROWS + COLUMNS) * ROW);
        let words: SharedSlice<u32> = dynamic_shared(0, (ROWS + COLUMNS) * ROW);
        let read = Barrier::at(dynamic_shared((ROWS + COLUMNS) * ROW * 4, 1), 0);
        let me = thread::thread_idx_x() as usize;
        if me == 0 {
            read.init(4);
        }
        if me < 128 {
            for i in (me..ROWS * ROW).step_by(128) {
                words.write(place(i / ROW, i % ROW), a.get_unchecked(i));
            }
            for i in (me..COLUMNS * ROW).step_by(128) {
                words.write(ROWS * ROW + place(i / ROW, i % ROW), b.get_unchecked(i)); // <write b>
            }
            if wrong != NO_ASYNC_FENCE {
                hopper::fence_async_shared();
            }
        }
        if wrong != NO_BARRIER || me >= 128 {
            hopper::sync_part::<160>(1);
        }
        if me >= 128 {
            read.wait(0);
            match wrong {
                OVERWRITES_UNREAD | OVERWRITES_LAST_READ => {
                    let step = if wrong == OVERWRITES_UNREAD { STEPS - 1 } else { STEPS - 2 };
                    if me - 128 < 8 {
                        words.write(ROWS * ROW + place(3, 8 * step + me - 128), 0); // <overwrite a step>
                    }
                }
                _ => words.write(ROWS * ROW + me - 128, 0), // <overwrite>
            }
            return;
        }
        let (warp, lane) = (me / 32, me % 32);
        let (g, q) = (lane / 4, lane % 4);
        let first_of_b = ROWS * ROW + if wrong == TOO_FAR_BACK { 8 * ROW } else { 0 };
        let (of_a, of_b) = (Descriptor::at(memory, 0), Descriptor::at(memory, first_of_b));
        let mut sums = [0f32; COLUMNS / 2];
        if wrong != NO_FENCE {
            wgmma::fence();
        }
        let is_short = wrong == OVERWRITES_UNREAD || wrong == OVERWRITES_LAST_READ;
        for step in 0..if is_short { STEPS - 1 } else { STEPS } {
            let of_b = of_b.offset(32 * step as u32);
            if wrong == IN_REGISTERS {
                let word = |row: usize, at: usize| words.read(place(16 * warp + row, 8 * step + at));
                let registers = [word(g, q), word(g + 8, q), word(g, q + 4), word(g + 8, q + 4)];
                match step {
                    0 => sums.set::<F>(registers, of_b),
                    _ => sums.add::<F>(registers, of_b),
                }
            } else if step == 0 {
                sums.set_shared::<F>(of_a, of_b); // <product>
            } else {
                sums.add_shared::<F>(of_a.offset(32 * step as u32), of_b); // <last product>
            }
        }
        wgmma::commit();
        let tell = || {
            if hopper::elect_one() {
                read.arrive();
            }
        };
        let tells_early = wrong == TELLS_BEFORE_IT_WAITS || is_short;
        if tells_early {
            tell();
        }
        if wrong != NO_WAIT {
            sums.wait::<0>();
        }
        if wrong == NO_SECOND_FENCE || wrong == SECOND_FENCE {
            if wrong == SECOND_FENCE {
                wgmma::fence();
            }
            sums.set_shared::<F>(of_a, of_b); // <product after the wait>
            // Only products have had to do with the sums meanwhile.
            wgmma::commit();
            sums.add_shared::<F>(of_a, of_b);
            wgmma::commit();
            sums.wait::<0>();
        }
        if !tells_early {
            tell();
        }
        for (i, sum) in sums.into_iter().enumerate() {
            let (row, col) = (16 * warp + g + i / 2 % 2 * 8, i / 4 * 8 + 2 * q + i % 2);
            out.set_unchecked(row * COLUMNS + col, sum); // <result>
        }
    }
}

#[kernel(block = 160, dynamic_shared = (64 + 128) * 128 + 8)]
fn multiply_tf32(a: GlobalSlice<'_, u32>, b: GlobalSlice<'_, u32>, wrong: u32, out: GlobalSliceMut<'_, f32>) {
    unsafe { multiply::<Tf32>(a, b, wrong, out) }
}

#[kernel(block = 160, dynamic_shared = (64 + 128) * 128 + 8)]
fn multiply_bf16(a: GlobalSlice<'_, u32>, b: GlobalSlice<'_, u32>, wrong: u32, out: GlobalSliceMut<'_, f32>) {
    unsafe { multiply::<Bf16>(a, b, wrong, out) }
}

#[kernel(block = 160, dynamic_shared = (64 + 128) * 128 + 8)]
fn multiply_fp16(a: GlobalSlice<'_, u32>, b: GlobalSlice<'_, u32>, wrong: u32, out: GlobalSliceMut<'_, f32>) {
    unsafe { multiply::<Fp16>(a, b, wrong, out) }
}

/// A small whole number for term `term` of line `line`.
fn number(line: usize, term: usize) -> f32 {
    ((5 * line + 3 * term) % 11) as f32 - 5.0
}

/// Lines of numbers, packed to words as an operand has them.
fn pack(lines: usize, bits: impl Fn(f32) -> u32, in_word: usize) -> Vec<u32> {
    let word = |line: usize, word: usize| {
        let terms = (0..in_word).map(|i| bits(number(line, word * in_word + i)) << (16 * i));
        terms.fold(0, |word, term| word | term)
    };
    (0..lines).flat_map(|line| (0..ROW).map(move |at| (line, at))).map(|(line, at)| word(line, at)).collect()
}

fn bits_of_tf32(x: f32) -> u32 {
    // The low bits are ignored.
    x.to_bits() | 0x1FFF
}

fn bits_of_bf16(x: f32) -> u32 {
    x.to_bits() >> 16
}

/// Of a whole number that is small.
fn bits_of_fp16(x: f32) -> u32 {
    let bits = x.to_bits();
    if x == 0.0 { 0 } else { bits >> 16 & 0x8000 | ((bits >> 23 & 0xFF) - 112) << 10 | bits >> 13 & 0x3FF }
}

#[test]
fn a_warpgroup_multiplies_what_tiles_and_registers_have() {
    for checks in ALL_CHECKS {
        for wrong in [NOTHING, IN_REGISTERS] {
            for (format, in_word) in [(0, 1), (1, 2), (2, 2)] {
                let bits = [bits_of_tf32, bits_of_bf16, bits_of_fp16][format];
                let (a, b) = (pack(ROWS, bits, in_word), pack(COLUMNS, bits, in_word));
                let mut out = vec![f32::NAN; ROWS * COLUMNS];
                let (of_a, of_b) = (GlobalSlice::new(&a), GlobalSlice::new(&b));
                let of_out = GlobalSliceMut::new(&mut out);
                match format {
                    0 => succeed(checks, multiply_tf32 { a: of_a, b: of_b, wrong, out: of_out }, 1),
                    1 => succeed(checks, multiply_bf16 { a: of_a, b: of_b, wrong, out: of_out }, 1),
                    _ => succeed(checks, multiply_fp16 { a: of_a, b: of_b, wrong, out: of_out }, 1),
                }
                for (i, found) in out.into_iter().enumerate() {
                    let terms = 0..ROW * in_word;
                    let product = |term: usize| number(i / COLUMNS, term) * number(i % COLUMNS, term);
                    assert_eq!(found, terms.map(product).sum::<f32>(), "format {format}, way {wrong}, element {i}");
                }
            }
        }
    }
}

/// All checks find nothing.
fn nothing_is_found(wrong: u32) {
    let (a, b) = (pack(ROWS, bits_of_tf32, 1), pack(COLUMNS, bits_of_tf32, 1));
    let mut out = vec![0.0; ROWS * COLUMNS];
    let (a, b, out) = (GlobalSlice::new(&a), GlobalSlice::new(&b), GlobalSliceMut::new(&mut out));
    succeed(Checks::Full, multiply_tf32 { a, b, wrong, out }, 1);
}

#[test]
fn products_in_order_need_no_fence_between_them() {
    nothing_is_found(SECOND_FENCE);
}

#[test]
fn what_goes_on_meanwhile_is_waited_for_and_made_visible() {
    let (a, b) = (pack(ROWS, bits_of_tf32, 1), pack(COLUMNS, bits_of_tf32, 1));
    let mut out = vec![0.0; ROWS * COLUMNS];
    let mut run = |wrong| {
        let out = GlobalSliceMut::new(&mut out);
        fault(Checks::Full, multiply_tf32 { a: GlobalSlice::new(&a), b: GlobalSlice::new(&b), wrong, out }, 1)
    };
    let not_awaited = run(NO_WAIT);
    let FaultKind::SumsNotAwaited { product } = &not_awaited.kind else { panic!("{not_awaited}") };
    assert_eq!((product.line, not_awaited.location.unwrap().line), (line("last product"), line("result")));

    for (wrong, mark) in [(NO_FENCE, "product"), (NO_SECOND_FENCE, "product after the wait")] {
        let not_fenced = run(wrong);
        let found = (not_fenced.kind, not_fenced.location.unwrap().line);
        assert_eq!(found, (FaultKind::RegistersNotFenced, line(mark)));
    }

    let not_fenced = run(NO_ASYNC_FENCE);
    assert!(matches!(not_fenced.kind, FaultKind::NotFenced { .. }), "{not_fenced}");
    assert_eq!(not_fenced.location.unwrap().line, line("product"));

    let overwritten = run(TELLS_BEFORE_IT_WAITS);
    let FaultKind::Race { other, missing: Missing::LaterArrival { .. }, .. } = &overwritten.kind else {
        panic!("{overwritten}")
    };
    // The word that is overwritten first is one of the first step.
    assert_eq!((other.location.line, overwritten.location.unwrap().line), (line("product"), line("overwrite")));

    let overwritten = run(OVERWRITES_LAST_READ);
    let FaultKind::Race { other, .. } = &overwritten.kind else { panic!("{overwritten}") };
    let lines = (other.location.line, overwritten.location.unwrap().line);
    assert_eq!(lines, (line("last product"), line("overwrite a step")));

    let raced = run(NO_BARRIER);
    let FaultKind::Race { other, by_engine: true, .. } = &raced.kind else { panic!("{raced}") };
    assert!(raced.to_string().ends_with("has to call `fence_async_shared` behind its access as well"), "{raced}");
    assert_eq!(other.location.line, line("write b"));
}

#[test]
fn a_step_reads_32_bytes_of_a_row_and_no_others() {
    nothing_is_found(OVERWRITES_UNREAD);
}

#[test]
fn what_products_read_is_inside_of_shared_memory() {
    let (a, b) = (pack(ROWS, bits_of_tf32, 1), pack(COLUMNS, bits_of_tf32, 1));
    let (a, b) = (GlobalSlice::new(&a), GlobalSlice::new(&b));
    for checks in ALL_CHECKS {
        let mut out = vec![0.0; ROWS * COLUMNS];
        let too_far_back = multiply_tf32 { a, b, wrong: TOO_FAR_BACK, out: GlobalSliceMut::new(&mut out) };
        let fault = fault(checks, too_far_back, 1);
        let FaultKind::SharedOutOfBounds { index, .. } = &fault.kind else { panic!("{fault}") };
        assert_eq!((index.as_str(), fault.location.unwrap().line), ("2304..6400", line("product")));
    }
}

/// Has a tile loaded over the rows of A that a product reads: before it has been waited for, or after.
#[kernel(block = 128, dynamic_shared = (64 + 128) * 128 + 8)]
fn loads_over_an_operand(map: TensorMap<'_>, waits: u32) {
    unsafe {
        let memory: SharedSlice<f32> = dynamic_shared(0, (ROWS + COLUMNS) * ROW);
        let loaded = Barrier::at(dynamic_shared((ROWS + COLUMNS) * ROW * 4, 1), 0);
        let me = thread::thread_idx_x() as usize;
        for i in (me..(ROWS + COLUMNS) * ROW).step_by(128) {
            memory.write(i, 0.0);
        }
        if me == 0 {
            loaded.init(1);
            hopper::fence_barrier_init();
        }
        hopper::fence_async_shared();
        thread::sync_threads();
        let mut sums = [0f32; COLUMNS / 2];
        wgmma::fence();
        sums.set_shared::<Tf32>(Descriptor::at(memory, 0), Descriptor::at(memory, ROWS * ROW)); // <product read meanwhile>
        wgmma::commit();
        if waits != 0 {
            sums.wait::<0>();
            thread::sync_threads();
        }
        if me == 0 {
            loaded.arrive_expecting(8 * ROW as u32 * 4);
            hopper::load_tile(memory, 8 * ROW, map, [0; 3], loaded); // <load over an operand>
        }
        loaded.wait(0);
        if waits == 0 {
            sums.wait::<0>();
        }
    }
}

#[test]
fn a_load_over_what_a_product_still_reads_is_reported() {
    let memory = [0.0; 8 * ROW];
    let (element, swizzle) = (TileElement::Bytes4, TileSwizzle::Bytes128);
    let (extents, byte_strides) = ([ROW as u64, 8, 1], [4, 128, 1024]);
    let layout = TileLayout { element, extents, byte_strides, tile: [ROW as u32, 8, 1], swizzle };
    // SAFETY: the extents are those of the memory; the executor does not look at the words.
    let map = unsafe { TensorMap::from_raw_parts([0; 16], memory.as_ptr().cast(), size_of_val(&memory), layout) };
    for checks in ALL_CHECKS {
        succeed(checks, loads_over_an_operand { map, waits: 1 }, 1);
    }
    let too_early = fault(Checks::Full, loads_over_an_operand { map, waits: 0 }, 1);
    let FaultKind::InFlight { element, other } = &too_early.kind else { panic!("{too_early}") };
    let found = (element.as_str(), other.access, other.location.line);
    assert_eq!(found, ("256", AccessKind::Read, line("product read meanwhile")));
    assert_eq!(too_early.location.unwrap().line, line("load over an operand"));
}
