//! Does the steps of an epilogue on sums in shared memory, before they are stored.
//!
//! ```text
//!  shared memory, by lines          for each step: for each four neighbours of a thread        C
//!
//!  sums  ──► · α + β·C  ──────────► + bias, gelu ──────────► + residual ──────────► …  ──────► stored as without steps
//!            in place               in place                 in place
//! ```
//!
//! A step whose operand repeats from line to line is done together with the next one, if that has no operand.
//!
//! What a step is, and what its operand is, threads find out once for all of their elements, and the code of each function stands once in a
//! kernel: steps are the outer loop, and elements, which can be indexed where they are, the inner one. Nothing of C is read or written but what is
//! without steps, and the accumulators need not be indexed.

use blocks::epilogue::{Neighbours, Step, StepsLeft, WithFunction, takes_vectors_of};
use cuda_std::prelude::*;

use super::sum_lines::{SumLines, Together};
use super::tiles::Tile;
use crate::MatrixMut;

/// How many fours of neighbours a thread loads operands for before it computes: they may come from far away.
const LOADS: usize = 4;

/// Lines of sums in shared memory.
pub(crate) struct StagedLines<'a, P> {
    pub(crate) lines: SumLines,
    /// The row and the column of C that the first sum is of, multiples of 4.
    pub(crate) first: [u32; 2],
    pub(crate) memory: &'a SharedSlice<f32>,
    /// Where a sum is: of a line, and the number in it. From a multiple of 4 on, four are side by side and aligned.
    pub(crate) place: P,
}

/// Four neighbours in a line, as a thread has them.
#[derive(Clone, Copy)]
struct Four {
    place: usize,
    at: Neighbours,
}

impl<P: Fn(u32, u32) -> u32> StagedLines<'_, P> {
    /// The fours of all lines.
    #[inline(always)]
    fn fours(&self) -> u32 {
        self.lines.count * self.lines.length / 4
    }

    /// Number `four` of them. `product` is the one of which there are results, and `extents` are the rows and columns of C.
    #[inline(always)]
    fn four(&self, four: u32, product: u32, extents: [u32; 2]) -> Four {
        // The length is a power of two.
        let log = (self.lines.length / 4).trailing_zeros();
        let (line, number) = (four >> log, (four & ((1 << log) - 1)) * 4);
        let in_column = self.lines.are_columns;
        let [down, right] = if in_column { [number, line] } else { [line, number] };
        let (row, col) = (self.first[0] + down, self.first[1] + right);
        let there = [extents[0].saturating_sub(row), extents[1].saturating_sub(col)];
        let (along, across) = if in_column { (there[0], there[1]) } else { (there[1], there[0]) };
        let count = if across == 0 { 0 } else { along.min(4) };
        Four { place: (self.place)(line, number) as usize, at: Neighbours { product, row, col, count, in_column } }
    }

    /// Makes `α·sum + β·C` of the sums, in place.
    ///
    /// # Safety
    /// As for [`StagedLines::apply`]. No other thread accesses these elements of C.
    #[inline(always)]
    #[track_caller]
    pub(crate) unsafe fn combine(&self, tile: &Tile<'_>, threads: Together) {
        let factor = tile.factor();
        // SAFETY: the caller's promise.
        unsafe {
            if !tile.overwrites() {
                self.blend::<LOADS>(&tile.c, tile.product, threads, |sum, before| tile.blended(sum, before));
            } else if factor != 1.0 {
                let mut number = threads.number;
                while number < self.fours() {
                    let place = self.four(number, 0, [0; 2]).place;
                    self.memory.write4(place, self.memory.read4(place).map(|sum| factor * sum));
                    number = hint::keep_rolled(number + threads.count);
                }
            }
        }
    }

    /// Makes of each sum what `blended` makes of it and of what C was, in place. `c` are the results of product `product`. A thread loads `AT_A_TIME` fours
    /// of C before it computes.
    ///
    /// # Safety
    /// As for [`StagedLines::combine`]; the threads, times `AT_A_TIME`, divide the fours.
    #[inline(always)]
    #[track_caller]
    pub(crate) unsafe fn blend<const AT_A_TIME: usize>(
        &self,
        c: &MatrixMut<'_>,
        product: u32,
        threads: Together,
        blended: impl Fn(f32, f32) -> f32,
    ) {
        let by_lines = if self.lines.are_columns { c.transposed() } else { *c };
        let has_vectors = takes_vectors_of(&by_lines, 4);
        let mut number = threads.number;
        while number < self.fours() {
            let fours: [Four; AT_A_TIME] =
                core::array::from_fn(|i| self.four(number + i as u32 * threads.count, product, [c.rows(), c.cols()]));
            // SAFETY: inside the lines, by the caller's promise; elements of C are read that there are. (All loads come before the first store.)
            unsafe {
                let before = fours.map(|four| old_values(&by_lines, has_vectors, four.at));
                let sums = fours.map(|four| self.memory.read4(four.place));
                for i in 0..AT_A_TIME {
                    self.memory.write4(fours[i].place, core::array::from_fn(|j| blended(sums[i][j], before[i][j])));
                }
            }
            number = hint::keep_rolled(number + AT_A_TIME as u32 * threads.count);
        }
    }

    /// Does the steps, in place: the lines are of the results of product `product`, which have these `extents`.
    ///
    /// # Safety
    /// All of the threads come here, with the same arguments, after what has been written to the memory has been made visible to them; each then
    /// has the same fours whenever it comes here or to [`StagedLines::combine`]. The threads, times [`LOADS`], divide the fours, and those of a line
    /// divide the threads; the steps fit the results.
    #[inline(always)]
    #[track_caller]
    pub(crate) unsafe fn apply(&self, mut left: StepsLeft<'_>, product: u32, extents: [u32; 2], threads: Together) {
        while !left.is_empty() {
            let step = left.take();
            let four = |number: u32| self.four(number, product, extents);
            // Of what repeats, all fours of a thread need the same: they are at the same place in their lines.
            if step.has_operand() && !step.repeats(self.lines.are_columns) {
                let mut number = threads.number;
                while number < self.fours() {
                    let fours: [Four; LOADS] = core::array::from_fn(|i| four(number + i as u32 * threads.count));
                    // SAFETY: inside the lines, by the caller's promise; the step has an operand. (All loads come before the first store.)
                    unsafe {
                        let loaded = fours.map(|four| step.load::<4>(four.at));
                        let values = fours.map(|four| self.memory.read4(four.place));
                        for i in 0..LOADS {
                            self.memory.write4(fours[i].place, step.combine(values[i], loaded[i]));
                        }
                    }
                    number = hint::keep_rolled(number + LOADS as u32 * threads.count);
                }
            } else {
                // SAFETY: inside the lines, by the caller's promise; what is loaded are elements of an operand that there is.
                unsafe {
                    let (repeated, then) = match step.has_operand() {
                        true => (step.load::<4>(four(threads.number).at), left.take_without_operand()),
                        false => ([0.0; 4], step),
                    };
                    then.dispatch(Change { lines: self, threads, step, repeated });
                }
            }
        }
    }
}

/// What neighbours in a line of C were, a row of `by_lines`; zeros for those outside.
///
/// # Safety
/// The first [`count`](Neighbours::count) of them are elements of C, and no other thread accesses them; `has_vectors` is whether `by_lines`
/// [takes vectors](takes_vectors_of) of four.
#[inline(always)]
#[track_caller]
unsafe fn old_values(by_lines: &MatrixMut<'_>, has_vectors: bool, at: Neighbours) -> [f32; 4] {
    let [line, first] = if at.in_column { [at.col, at.row] } else { [at.row, at.col] };
    // SAFETY: the caller's promise. Vectors are aligned: the first of four neighbours has a number that four divides.
    unsafe {
        if has_vectors && at.count == 4 {
            return by_lines.data().get_vector_unchecked(by_lines.offset(line, first));
        }
        let mut values = [0.0; 4];
        for i in 0..4 {
            if (i as u32) < at.count {
                values[i] = by_lines.at(line, first + i as u32);
            }
        }
        values
    }
}

/// A step that is done to all fours, in place: what repeats, if the step has that, and then a function.
struct Change<'a, P> {
    lines: &'a StagedLines<'a, P>,
    threads: Together,
    step: Step<'a>,
    repeated: [f32; 4],
}

impl<P: Fn(u32, u32) -> u32> WithFunction for Change<'_, P> {
    type Result = ();

    /// # Safety
    /// As for [`StagedLines::apply`].
    #[inline(always)]
    #[track_caller]
    unsafe fn with(self, function: impl Fn(f32) -> f32) {
        let Self { lines, threads, step, repeated } = self;
        let place_of = |number: u32| lines.four(number, 0, [0; 2]).place;
        // SAFETY: inside the lines, by the caller's promise. (The next four is read before this one is computed.)
        unsafe {
            let mut number = threads.number;
            let mut place = place_of(number);
            let mut values = lines.memory.read4(place);
            while number < lines.fours() {
                let next = number + threads.count;
                let next_place = place_of(if next < lines.fours() { next } else { number });
                let next_values = lines.memory.read4(next_place);
                let combined = if step.has_operand() { step.combine(values, repeated) } else { values };
                lines.memory.write4(place, combined.map(&function));
                (place, values) = (next_place, next_values);
                number = hint::keep_rolled(next);
            }
        }
    }
}
