//! Operands as pairs of fp16 numbers: words, factors, exceptions, what is left to the fallback.

use std::collections::BTreeMap;

use cuda_std::{GlobalSlice, GlobalSliceMut};
use gpu_kernels::gemm::hopper::fallback::GROUP;
use gpu_kernels::pack::exceptions::{LIST, MOST};
use gpu_kernels::pack::group_flags::{ToFlags, group_flags_fp16};
use gpu_kernels::pack::pairs::{self, BLOCK, ToPairs, pack_pairs_fp16, split_fp16};
use gpu_kernels::{Matrix, MatrixBatch};

use super::{GAP, Source, any_number, everywhere, expected_nonzero, launch, lays, ordinary};

/// What the kernels make of an operand that is packed as pairs.
#[derive(Debug, PartialEq)]
pub(super) struct Pairs {
    words: Vec<u32>,
    /// For each block of terms, of each line of whole groups.
    factors: Vec<f32>,
    /// Of each group.
    unfit: Vec<u32>,
    /// Where the terms of each group begin and end that are not zero.
    pub(super) nonzero: Vec<u32>,
    /// The line in the group and the term of each exception of each group.
    exceptions: Vec<Vec<[u32; 2]>>,
}

/// The other operand of a launch that packs two: 300×70 ones.
pub(super) struct Other {
    /// Whether it is A.
    is_first: bool,
    numbers: Vec<f32>,
    words: Vec<[f32; 4]>,
    factors: Vec<f32>,
    contents: Vec<u32>,
}

impl Other {
    const SIZES: [u32; 2] = [300, 70];

    pub(super) fn new(is_first: bool) -> Self {
        let [lines, terms] = Self::SIZES;
        Self {
            is_first,
            numbers: vec![1.0; (lines * terms) as usize],
            words: vec![[f32::from_bits(GAP); 4]; (lines * pairs::pitch(terms)) as usize / 4],
            factors: vec![f32::from_bits(GAP); pairs::factor_words(lines, terms, 1) as usize],
            contents: vec![GAP; pairs::tiles(lines, terms, 1) as usize],
        }
    }

    /// A and B of a launch that packs this one and another one.
    pub(super) fn beside<'a>(&'a mut self, operand: ToPairs<'a>) -> (ToPairs<'a>, ToPairs<'a>) {
        let [lines, terms] = Self::SIZES.map(|size| size as usize);
        let source = Matrix::new(GlobalSlice::new(&self.numbers), lines, terms, terms, 1).unwrap();
        let other = ToPairs {
            source: MatrixBatch::new(source, 0, 1).unwrap(),
            words: GlobalSliceMut::new(self.words.as_flattened_mut()),
            factors: GlobalSliceMut::new(&mut self.factors),
            contents: GlobalSliceMut::new(&mut self.contents),
        };
        if self.is_first { (other, operand) } else { (operand, other) }
    }

    /// Sums up what the tiles of both operands have, and looks at all that has been made of this one.
    pub(super) fn check(&self, flags: ToFlags<'_>) {
        let [lines, terms] = Self::SIZES;
        let (mut fallback, mut nonzero, mut lists) = ([GAP; 2], [GAP; 4], [GAP; 2 * LIST as usize]);
        let other = ToFlags {
            contents: GlobalSlice::new(&self.contents),
            lines,
            terms,
            matrices: 1,
            fallback: GlobalSliceMut::new(&mut fallback),
            nonzero: GlobalSliceMut::new(&mut nonzero),
            exceptions: GlobalSliceMut::new(&mut lists),
        };
        let (a, b) = if self.is_first { (other, flags) } else { (flags, other) };
        launch(group_flags_fp16 { a, b });
        assert_eq!((fallback, nonzero), ([0; 2], [0, 128, 0, 128]));
        assert_eq!([lists[0], lists[LIST as usize]], [0; 2]);
        // Something, and more than one number of a line.
        assert!(self.contents.iter().all(|&word| word == 0b101));
        // Ones, scaled, are 2^14, whose fp16 bits are 0x7400; and their low parts are zero, as is what is behind the last term.
        let pitch = pairs::pitch(terms) as usize;
        for (place, word) in self.words.as_flattened().iter().enumerate() {
            let (group, in_group) = (place % pitch / 32, place % 32);
            let is_there = in_group < 16 && group * 32 + 2 * in_group < terms as usize;
            assert_eq!(word.to_bits(), if is_there { 0x7400_7400 } else { 0 }, "word {place}");
        }
    }
}

/// Packs an operand as pairs, beside another one.
pub(super) fn packed_pairs(source: &Source, element_by_element: bool) -> Pairs {
    let (lines, terms, matrices) = (source.lines as u32, source.terms as u32, source.matrices as u32);
    let gap = f32::from_bits(GAP);
    // A word more than is needed, four beyond which memory is aligned.
    let len = source.lines * source.matrices * pairs::pitch(terms) as usize;
    let mut memory = vec![gap; len + 5];
    let first = memory.as_ptr().align_offset(16);
    let mut factors = vec![gap; pairs::factor_words(lines, terms, matrices) as usize + 1];
    let mut contents = vec![GAP; pairs::tiles(lines, terms, matrices) as usize + 1];
    let to_pack = ToPairs {
        source: source.batch(),
        words: GlobalSliceMut::new(&mut memory[first..=first + len]),
        factors: GlobalSliceMut::new(&mut factors),
        contents: GlobalSliceMut::new(&mut contents),
    };
    // The other operand has its tiles before those of this one, or behind them.
    let mut other = Other::new(source.lines.is_multiple_of(2));
    let (a, b) = other.beside(to_pack);
    launch(pack_pairs_fp16 { a, b, element_by_element: element_by_element.into() });
    let mut unfit = vec![GAP; lines.div_ceil(GROUP) as usize * source.matrices];
    let mut nonzero = vec![GAP; 2 * unfit.len()];
    let mut lists = vec![GAP; LIST as usize * unfit.len()];
    let to_flags = ToFlags {
        contents: GlobalSlice::new(&contents),
        lines,
        terms,
        matrices,
        fallback: GlobalSliceMut::new(&mut unfit),
        nonzero: GlobalSliceMut::new(&mut nonzero),
        exceptions: GlobalSliceMut::new(&mut lists),
    };
    other.check(to_flags);
    let words: Vec<u32> = memory[first..=first + len].iter().map(|word| word.to_bits()).collect();
    assert_eq!((words[len], factors.pop().map(f32::to_bits), contents.pop()), (GAP, Some(GAP), Some(GAP)));
    assert!(contents.iter().all(|&word| word < 1 << 16), "{contents:?}");
    let exceptions = lists.chunks(LIST as usize).map(|list| {
        let (listed, rest) = list[1..].split_at(2 * list[0] as usize);
        assert!(rest.iter().all(|&word| word == GAP), "{list:?}");
        listed.chunks(2).map(|exception| [exception[0], exception[1]]).collect()
    });
    // Each word has two factors.
    let factors =
        factors.iter().flat_map(|word| [word.to_bits() << 16, word.to_bits() & 0xFFFF_0000].map(f32::from_bits));
    let exceptions = exceptions.collect();
    Pairs { words: words[..len].to_vec(), factors: factors.collect(), unfit, nonzero, exceptions }
}

/// The factor of a block of a line, whether it is unfit, and which of its numbers are too small, by plain arithmetic in f64.
pub(super) fn expected_factor(block: &[f32], element_by_element: bool) -> (f32, bool, Vec<usize>) {
    let magnitudes = || block.iter().map(|x| f64::from(x.abs())).filter(|&x| x != 0.0);
    let largest = magnitudes().fold(0.0, f64::max);
    if magnitudes().any(|x| !x.is_finite()) || largest >= 2f64.powi(78) {
        return (1.0, true, vec![]);
    }
    if largest == 0.0 {
        return (0.0, false, vec![]);
    }
    let factor = 2f64.powi((largest.log2().floor() as i32).max(-60) - 14);
    let is_small = |x: f64| x != 0.0 && x / factor < 2f64.powi(-14);
    let small = (0..block.len()).filter(|&term| element_by_element && is_small(block[term].abs().into()));
    (factor as f32, !element_by_element && is_small(largest), small.collect())
}

/// Whether of the numbers of a block, at most 64, that one of four threads has, there are two other than zero, or the largest is no power of two.
fn no_selection(block: &[f32], thread: usize) -> bool {
    let numbers = (0..2).flat_map(|half| (0..8).map(move |i| half * 32 + thread * 8 + i));
    let numbers: Vec<f32> = numbers.filter_map(|term| block.get(term)).map(|x| x.abs()).filter(|&x| x != 0.0).collect();
    let largest = numbers.iter().copied().max_by(f32::total_cmp).unwrap_or(0.0);
    numbers.len() > 1 || largest.to_bits() % (1 << 23) != 0
}

#[track_caller]
pub(super) fn check_pairs(source: &Source, element_by_element: bool) {
    let case = format!("{:?} from {:?}", [source.lines, source.terms, source.matrices], source.lay);
    let Pairs { words, factors, unfit, nonzero, exceptions } = packed_pairs(source, element_by_element);
    // Whole blocks are looked at.
    assert_eq!(nonzero, expected_nonzero(source, BLOCK as usize, usize::MAX), "{case}");
    let (groups, side) = (source.lines.div_ceil(GROUP as usize), BLOCK as usize);
    let mut expected_unfit = vec![false; groups * source.matrices];
    // Of each group, whether it has anything, and anything that no operand has which selects.
    let mut has = vec![[false; 2]; groups * source.matrices];
    // Of each tile, what is too small: the group, and the line in it and the term.
    let mut small = BTreeMap::<_, Vec<(usize, [u32; 2])>>::new();
    let pitch = pairs::pitch(source.terms as u32) as usize;
    assert_eq!(pitch, source.terms.div_ceil(32) * 32);
    let blocks = source.terms.div_ceil(side);
    for (index, at) in source.all_lines().enumerate() {
        let line = source.line(at);
        for block in 0..blocks {
            let of_block = &line[block * side..source.terms.min((block + 1) * side)];
            let (factor, is_unfit, too_small) = expected_factor(of_block, element_by_element);
            let scale = if factor == 0.0 { 1.0 } else { 1.0 / factor };
            let place = (at.0 * blocks + block) * groups * GROUP as usize + at.1;
            assert_eq!(factors[place], factor, "block {block} of line {at:?} of {case}");
            let group = at.0 * groups + at.1 / GROUP as usize;
            expected_unfit[group] |= is_unfit;
            let place = |&term: &usize| (group, [at.1 % GROUP as usize, block * side + term].map(|place| place as u32));
            let of_tile = small.entry((at.0, block, at.1 / side)).or_default();
            of_tile.extend(too_small.iter().map(place));
            has[group][0] |= of_block.iter().any(|&x| x != 0.0);
            has[group][1] |= !element_by_element || (0..4).any(|thread| no_selection(of_block, thread));
            for pair in 0..32 {
                let term = block * side + 2 * pair;
                let first = index * pitch + block * side + pair / 16 * 32 + pair % 16;
                if block * side + pair / 16 * 32 < pitch {
                    let is_left_out = |term: usize| too_small.contains(&(term - block * side));
                    let x = |term| if is_left_out(term) { 0.0 } else { source.at(at.0, at.1, term) * scale };
                    let x = [term, term + 1].map(x);
                    assert_eq!([words[first], words[first + 16]], split_fp16(x), "line {at:?}, term {term} of {case}");
                }
            }
        }
    }
    for (index, &factor) in factors.iter().enumerate() {
        let line = index % (groups * GROUP as usize);
        assert!(line < source.lines || factor == 0.0, "factor {index} of {case}");
    }
    // In the order of tiles: one block of terms after the other.
    let mut expected_exceptions = vec![Vec::new(); unfit.len()];
    for of_tile in small.values() {
        match of_tile[..] {
            [] => {}
            [(group, place)] => expected_exceptions[group].push(place),
            [(group, _), ..] => expected_unfit[group] = true,
        }
    }
    let may_select = |[any, other]: [bool; 2]| any && !other;
    let expected_unfit: Vec<_> = (expected_unfit.into_iter().zip(has).zip(&expected_exceptions))
        .map(|((unfit, has), exceptions)| unfit || exceptions.len() > MOST as usize || may_select(has))
        .collect();
    assert_eq!(unfit.iter().map(|&word| word != 0).collect::<Vec<_>>(), expected_unfit, "{case}");
    // What is left to the fallback needs no list.
    (expected_exceptions.iter_mut().zip(&expected_unfit))
        .filter(|(_, unfit)| **unfit)
        .for_each(|(list, _)| list.clear());
    assert_eq!(exceptions, expected_exceptions, "{case}");
}

#[test]
fn pairs_have_their_parts_their_factors_and_what_is_unfit() {
    for element_by_element in [false, true] {
        for numbers in [any_number, ordinary] {
            everywhere(numbers, |source| check_pairs(source, element_by_element));
        }
    }
}

#[test]
fn blocks_of_a_line_are_scaled_on_their_own() {
    // Far apart from block to block, and by lines; some blocks are zero, and some smaller than a scale can bring up.
    let element = |matrix: usize, line: usize, term: usize| {
        let power = [-100, -87, -70, -60, -3, 0, 40, 77][(line * 3 + term / 64 * 5 + matrix) % 8];
        let is_zero = (line + term / 64).is_multiple_of(5);
        if is_zero { 0.0 } else { 2f32.powi(power) * (1.0 + ordinary(matrix, line, term).abs().min(0.99)) }
    };
    for lay in lays(70, 400, 2) {
        for element_by_element in [false, true] {
            check_pairs(&Source::new([70, 400, 2], lay, element), element_by_element);
        }
    }
    // What is too small beside the largest of its line may be large enough in its block.
    let apart = Source::new([1, 128, 1], lays(1, 128, 1)[0], |_, _, term| if term < 64 { 1.0 } else { 1e-12 });
    assert_eq!(packed_pairs(&apart, true).unfit, [0]);
}

/// Ordinary numbers, but for those of these places, which are too small: the matrix, the line and the term.
fn with_small_numbers(small: &[[usize; 3]]) -> impl Fn(usize, usize, usize) -> f32 {
    |matrix, line, term| {
        let x = 1.0 + ordinary(matrix, line, term).abs();
        if small.contains(&[matrix, line, term]) { x * 1e-12 } else { x }
    }
}

#[test]
fn single_numbers_that_are_too_small_are_exceptions() {
    // In the first and the last line and term of a tile, of a group, and of all; in two groups, and in one more than once.
    let corners = [[0, 0, 0], [0, 63, 127], [0, 64, 64], [0, 255, 399], [0, 256, 200], [1, 299, 399], [1, 130, 7]];
    for lay in lays(300, 400, 2) {
        check_pairs(&Source::new([300, 400, 2], lay, with_small_numbers(&corners)), true);
        check_pairs(&Source::new([300, 400, 2], lay, with_small_numbers(&corners)), false);
    }
    let lay = lays(300, 400, 2)[0];
    let packed = packed_pairs(&Source::new([300, 400, 2], lay, with_small_numbers(&corners)), true);
    assert_eq!(packed.unfit, [0; 4]);
    let exceptions = [vec![[0, 0], [63, 127], [64, 64], [255, 399]], vec![[0, 200]], vec![[130, 7]], vec![[43, 399]]];
    assert_eq!(packed.exceptions, exceptions);
}

#[test]
fn a_list_has_room_for_so_many_exceptions_and_a_tile_for_one() {
    let lay = lays(200, 2000, 1)[0];
    let in_own_tiles =
        |count: usize| (0..count).map(|i| [0, 64 * (i % 3) + i, 64 * (i / 3) + 3 * i]).collect::<Vec<_>>();
    for (count, unfit) in [(1, 0), (MOST as usize, 0), (MOST as usize + 1, 1)] {
        let source = Source::new([200, 2000, 1], lay, with_small_numbers(&in_own_tiles(count)));
        check_pairs(&source, true);
        let packed = packed_pairs(&source, true);
        assert_eq!((packed.unfit, packed.exceptions[0].len()), (vec![unfit], if unfit == 0 { count } else { 0 }));
    }
    // Of one thread, of one warp, and of two warps.
    for other in [[0, 70, 129], [0, 71, 129], [0, 127, 191]] {
        let source = Source::new([200, 2000, 1], lay, with_small_numbers(&[[0, 70, 128], other]));
        check_pairs(&source, true);
        assert_eq!(packed_pairs(&source, true).unfit, [1], "{other:?}");
    }
}

#[test]
fn one_unfit_line_makes_its_group_unfit_and_no_other() {
    let lay = lays(600, 3, 2)[0];
    for (bad, x) in [(0, f32::INFINITY), (255, f32::NAN), (256, 1e30), (599, 1e-30), (300, 2f32.powi(-29))] {
        let source = Source::new([600, 3, 2], lay, |matrix, line, term| {
            let is_bad = matrix == 1 && line == bad;
            // (One number that is too small would be an exception.)
            let is_here = if x == 2f32.powi(-29) { term > 0 } else { term == 1 || x.is_finite() };
            if is_bad && is_here { x } else { 1.0 }
        });
        let expected: Vec<_> = (0..6).map(|group| u32::from(group == 3 + bad as u32 / GROUP)).collect();
        assert_eq!(packed_pairs(&source, true).unfit, expected, "{x:e} in line {bad}");
        let too_small_beside_others = bad == 300;
        let normwise = if too_small_beside_others { vec![0; 6] } else { expected };
        assert_eq!(packed_pairs(&source, false).unfit, normwise, "{x:e} in line {bad}");
    }
}

#[test]
fn groups_of_lines_that_may_select_are_left_to_the_fallback() {
    for lay in lays(600, 300, 1) {
        // A group of a permutation, one in which a line has two numbers, and one of zeros but for a number that is no power of two.
        let source = |what: usize| {
            Source::new([600, 300, 1], lay, move |_, line, term| match (line / GROUP as usize, what) {
                (1, 1) if line == 300 && term == 200 => -1.0,
                (1, 1) if line == 300 && term == 201 => 1.0,
                (2, 2) => {
                    if line == 520 && term == 3 {
                        3.0
                    } else {
                        0.0
                    }
                }
                (2, 3) => 0.0,
                _ => {
                    if term == 7 * line % 300 {
                        2f32.powi(line as i32 % 40 - 20)
                    } else {
                        0.0
                    }
                }
            })
        };
        for (what, unfit) in [(0, [1, 1, 1]), (1, [1, 0, 1]), (2, [1, 1, 0]), (3, [1, 1, 0])] {
            let source = source(what);
            check_pairs(&source, true);
            check_pairs(&source, false);
            assert_eq!(packed_pairs(&source, true).unfit, unfit);
            assert_eq!(packed_pairs(&source, false).unfit, [0; 3]);
        }
    }
}
