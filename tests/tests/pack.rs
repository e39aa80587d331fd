//! The kernels that bring operands into another form, on the CPU executor with all its checks: every word is what a plain
//! computation on this processor gives, bit by bit.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use cuda_std::convert::{bf16x2, f16x2};
use cuda_std::executor::{Checks, Executor};
use cuda_std::{ContractViolation, GlobalSlice, GlobalSliceMut, Kernel as _};
use gpu_kernels::gemm::hopper::fallback::GROUP;
use gpu_kernels::pack::clear::matrix_clear_outside_fp32;
use gpu_kernels::pack::copy::matrix_copy_fp32;
use gpu_kernels::pack::exceptions::{LIST, MOST};
use gpu_kernels::pack::group_flags::{ToFlags, group_flags_fp16};
use gpu_kernels::pack::half::{self, pack_bf16, pack_fp16};
use gpu_kernels::pack::pairs::{self, BLOCK, ToPairs, pack_pairs_fp16, split_fp16};
use gpu_kernels::pack::scaled::{Chunks, line_extremes_fp32, line_scales_fp32};
use gpu_kernels::{Grid, Matrix, MatrixBatch, MatrixBatchMut, MatrixMut, Triangle};
use tests::half_of_the_grid;

static EXECUTOR: LazyLock<Executor> = LazyLock::new(|| Executor::new(Checks::Full));

/// Launches half of the blocks that there is work for.
fn launch(kernel: impl Grid) {
    let grid = half_of_the_grid(&kernel);
    // SAFETY: the views are of slices that outlive the launch, those that are written borrowed mutably.
    unsafe { EXECUTOR.launch(kernel, grid) }.unwrap_or_else(|error| panic!("{error}"));
}

/// What stands where there is no element: a NaN that shows in every result.
const GAP: u32 = 0x7FC0_DEAD;

/// Where the elements of matrices lie.
#[derive(Clone, Copy, Debug)]
struct Lay {
    row_stride: usize,
    col_stride: usize,
    batch_stride: usize,
    len: usize,
}

/// Every kind of strides: without gaps, with gaps, apart in both directions, and all of these transposed.
fn lays(lines: usize, terms: usize, matrices: usize) -> Vec<Lay> {
    let mut lays = Vec::new();
    for (step, padding) in [(1, 0), (1, 3), (3, 2)] {
        for transposed in [false, true] {
            let (outer, inner) = if transposed { (terms, lines) } else { (lines, terms) };
            let pitch = inner * step + padding;
            let batch_stride = outer * pitch + 1;
            let strides = if transposed { [step, pitch] } else { [pitch, step] };
            let len = 2 + batch_stride * matrices.max(1);
            lays.push(Lay { row_stride: strides[0], col_stride: strides[1], batch_stride, len });
        }
    }
    lays
}

/// Matrices in memory, two elements behind its beginning.
struct Source {
    lay: Lay,
    lines: usize,
    terms: usize,
    matrices: usize,
    memory: Vec<f32>,
}

impl Source {
    fn new([lines, terms, matrices]: [usize; 3], lay: Lay, element: impl Fn(usize, usize, usize) -> f32) -> Self {
        let mut source = Self { lay, lines, terms, matrices, memory: vec![f32::from_bits(GAP); lay.len] };
        for matrix in 0..matrices {
            for line in 0..lines {
                for term in 0..terms {
                    let place = source.place(matrix, line, term);
                    source.memory[place] = element(matrix, line, term);
                }
            }
        }
        source
    }

    fn place(&self, matrix: usize, line: usize, term: usize) -> usize {
        2 + matrix * self.lay.batch_stride + line * self.lay.row_stride + term * self.lay.col_stride
    }

    /// An element; zero behind the last.
    fn at(&self, matrix: usize, line: usize, term: usize) -> f32 {
        if term < self.terms { self.memory[self.place(matrix, line, term)] } else { 0.0 }
    }

    fn batch(&self) -> MatrixBatch<'_> {
        let view = GlobalSlice::new(&self.memory[2..]);
        let first = Matrix::new(view, self.lines, self.terms, self.lay.row_stride, self.lay.col_stride).unwrap();
        MatrixBatch::new(first, self.lay.batch_stride, self.matrices).unwrap()
    }

    fn all_lines(&self) -> impl Iterator<Item = (usize, usize)> {
        let lines = self.lines;
        (0..self.matrices).flat_map(move |matrix| (0..lines).map(move |line| (matrix, line)))
    }

    fn line(&self, (matrix, line): (usize, usize)) -> Vec<f32> {
        (0..self.terms).map(|term| self.at(matrix, line, term)).collect()
    }
}

/// Numbers of all magnitudes that fp32 has, and what is no number at all.
fn any_number(matrix: usize, line: usize, term: usize) -> f32 {
    let hash = (matrix * 31 + line * 1009 + term * 7919 + 12345).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    match hash >> 58 {
        0 => [0.0, -0.0, f32::INFINITY, f32::NEG_INFINITY, f32::NAN, 1e-45, f32::MAX, 65520.0][hash % 8],
        _ => f32::from_bits((hash >> 20) as u32),
    }
}

/// Numbers of similar size, some of them zero.
fn ordinary(matrix: usize, line: usize, term: usize) -> f32 {
    let hash = (matrix * 31 + line * 1009 + term * 7919 + 5).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
    if hash.is_multiple_of(17) { 0.0 } else { hash as f32 / (1u64 << 31) as f32 - 1.0 }
}

/// Extents below, at and beyond those of tiles; lines, terms, matrices.
const SHAPES: [[usize; 3]; 15] = [
    [0, 0, 0],
    [0, 5, 1],
    [5, 0, 2],
    [5, 4, 0],
    [1, 1, 1],
    [1, 131, 1],
    [131, 1, 2],
    [3, 31, 2],
    [33, 32, 1],
    [64, 64, 1],
    [7, 97, 3],
    [65, 63, 2],
    [63, 130, 1],
    [128, 65, 1],
    [257, 33, 2],
];

/// All shapes from wherever they may lie.
fn everywhere(element: fn(usize, usize, usize) -> f32, mut check: impl FnMut(&Source)) {
    for shape in SHAPES {
        for lay in lays(shape[0], shape[1], shape[2]) {
            check(&Source::new(shape, lay, element));
        }
    }
}

#[test]
fn copies_have_every_element_in_its_place_and_nothing_else_is_written() {
    everywhere(any_number, |source| {
        for lay in lays(source.lines, source.terms, source.matrices) {
            let shape = [source.lines, source.terms, source.matrices];
            let expected = Source::new(shape, lay, |matrix, line, term| source.at(matrix, line, term));
            let mut memory = vec![f32::from_bits(GAP); lay.len];
            let view = GlobalSliceMut::new(&mut memory[2..]);
            let first = MatrixMut::new(view, source.lines, source.terms, lay.row_stride, lay.col_stride).unwrap();
            let to = MatrixBatchMut::new(first, lay.batch_stride, source.matrices).unwrap();
            launch(matrix_copy_fp32 { from: source.batch(), to });
            let bits = |memory: &[f32]| memory.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
            assert_eq!(bits(&memory), bits(&expected.memory), "{shape:?} from {:?} to {lay:?}", source.lay);
        }
    });
}

#[test]
fn what_is_not_wanted_becomes_zero_and_nothing_else_is_written() {
    for part in [Triangle::All, Triangle::Upper, Triangle::Lower] {
        everywhere(any_number, |source| {
            let shape = [source.lines, source.terms, source.matrices];
            let expected = Source::new(shape, source.lay, |matrix, line, term| {
                if part.contains(line as u32, term as u32) { source.at(matrix, line, term) } else { 0.0 }
            });
            let mut memory = source.memory.clone();
            let (view, lay) = (GlobalSliceMut::new(&mut memory[2..]), source.lay);
            let first = MatrixMut::new(view, source.lines, source.terms, lay.row_stride, lay.col_stride).unwrap();
            let matrices = MatrixBatchMut::new(first, lay.batch_stride, source.matrices).unwrap();
            launch(matrix_clear_outside_fp32 { matrices, triangle: part });
            let bits = |memory: &[f32]| memory.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
            assert_eq!(bits(&memory), bits(&expected.memory), "{part:?} of {shape:?}, {lay:?}");
        });
    }
}

#[test]
fn a_copy_of_another_shape_is_refused() {
    let source = Source::new([3, 4, 1], lays(3, 4, 1)[0], ordinary);
    let mut memory = [0.0; 12];
    let to = MatrixMut::new(GlobalSliceMut::new(&mut memory), 4, 3, 3, 1).unwrap();
    let violation = matrix_copy_fp32 { from: source.batch(), to: to.into() }.check().unwrap_err();
    assert!(matches!(violation, ContractViolation { .. }), "{violation}");
}

#[test]
fn rounded_operands_are_packed_two_to_a_word() {
    everywhere(any_number, |source| {
        let pitch = half::pitch(source.terms as u32) as usize;
        assert_eq!(pitch, source.terms.div_ceil(64) * 32);
        macro_rules! check {
            ($($kernel:ident $round:ident)*) => { $(
                // A word more than is needed.
                let mut words = vec![GAP; source.matrices * source.lines * pitch + 1];
                launch($kernel { source: source.batch(), words: GlobalSliceMut::new(&mut words) });
                assert_eq!(words.pop(), Some(GAP));
                let expected: Vec<u32> = (source.all_lines())
                    .flat_map(|(matrix, line)| (0..pitch).map(move |word| (matrix, line, 2 * word)))
                    .map(|(matrix, line, term)| $round(source.at(matrix, line, term), source.at(matrix, line, term + 1)))
                    .collect();
                assert_eq!(words, expected, "{:?} from {:?}", [source.lines, source.terms, source.matrices], source.lay);
            )* };
        }
        check!(pack_bf16 bf16x2 pack_fp16 f16x2);
    });
}

/// What the kernels make of an operand that is packed as pairs.
#[derive(Debug, PartialEq)]
struct Pairs {
    words: Vec<u32>,
    /// For each block of terms, of each line of whole groups.
    factors: Vec<f32>,
    /// Of each group.
    unfit: Vec<u32>,
    /// Where the terms of each group begin and end that are not zero.
    nonzero: Vec<u32>,
    /// The line in the group and the term of each exception of each group.
    exceptions: Vec<Vec<[u32; 2]>>,
}

/// The other operand of a launch that packs two: 300×70 ones.
struct Other {
    /// Whether it is A.
    is_first: bool,
    numbers: Vec<f32>,
    words: Vec<[f32; 4]>,
    factors: Vec<f32>,
    contents: Vec<u32>,
}

impl Other {
    const SIZES: [u32; 2] = [300, 70];

    fn new(is_first: bool) -> Self {
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
    fn beside<'a>(&'a mut self, operand: ToPairs<'a>) -> (ToPairs<'a>, ToPairs<'a>) {
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
    fn check(&self, flags: ToFlags<'_>) {
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
fn packed_pairs(source: &Source, element_by_element: bool) -> Pairs {
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
fn expected_factor(block: &[f32], element_by_element: bool) -> (f32, bool, Vec<usize>) {
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
fn check_pairs(source: &Source, element_by_element: bool) {
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
        // Tiles have 64 lines.
        let is_written = line < source.lines.next_multiple_of(64);
        assert!(line < source.lines || (factor == 0.0) == is_written, "factor {index} of {case}");
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

/// Where the terms of each group begin and end that are not all zero, counted in steps, and not beyond the `most` that there are.
fn expected_nonzero(source: &Source, step: usize, most: usize) -> Vec<u32> {
    let groups = source.lines.div_ceil(GROUP as usize);
    let mut expected = [u32::MAX, 0].repeat(groups * source.matrices);
    for at in source.all_lines() {
        let of_group = &mut expected[2 * (at.0 * groups + at.1 / GROUP as usize)..][..2];
        for term in (0..source.terms).filter(|&term| source.at(at.0, at.1, term) != 0.0) {
            of_group[0] = of_group[0].min((term / step * step) as u32);
            of_group[1] = of_group[1].max(((term / step + 1) * step).min(most) as u32);
        }
    }
    expected
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
fn zeros_at_the_ends_of_all_lines_of_a_group_are_noticed() {
    for lay in lays(300, 400, 2) {
        // Bands, wider and further to the right with each group; the last group of the second matrix is zero.
        let source = Source::new([300, 400, 2], lay, |matrix, line, term| {
            let group = line / GROUP as usize;
            let is_zero =
                (matrix, group) == (1, 1) || term < 70 * group + line % 7 || term > 100 + 90 * group + line % 5;
            if is_zero { if term % 2 == 0 { 0.0 } else { -0.0 } } else { 1.0 + term as f32 }
        });
        check_pairs(&source, true);
        assert_eq!(packed_pairs(&source, true).nonzero, [0, 128, 64, 256, 0, 128, u32::MAX, 0]);
        for chunks in [Chunks { terms: 400, count: 1 }, Chunks { terms: 32, count: 13 }] {
            check_lines(&source, chunks);
        }
        let chunks = Chunks { terms: 32, count: 13 };
        assert_eq!(scaled_lines(&source, chunks).2, [0, 128, 64, 224, 0, 128, u32::MAX, 0]);
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

/// The factors of whole lines, of each group whether a line is left to the fallback, and where its terms begin and end that are not zero.
fn scaled_lines(source: &Source, chunks: Chunks) -> (Vec<f32>, Vec<u32>, Vec<u32>) {
    let (lines, matrices) = (source.lines as u32, source.matrices as u32);
    let mut extremes = vec![GAP; chunks.words(lines, matrices) as usize];
    launch(line_extremes_fp32 { source: source.batch(), chunks, extremes: GlobalSliceMut::new(&mut extremes) });
    let mut unfit = vec![GAP; lines.div_ceil(GROUP) as usize * source.matrices];
    let mut nonzero = vec![GAP; 2 * unfit.len()];
    let mut factors = vec![f32::NAN; unfit.len() * GROUP as usize];
    launch(line_scales_fp32 {
        extremes: GlobalSlice::new(&extremes),
        lines,
        matrices,
        chunks: chunks.count,
        factors: GlobalSliceMut::new(&mut factors),
        fallback: GlobalSliceMut::new(&mut unfit),
        nonzero: GlobalSliceMut::new(&mut nonzero),
    });
    (factors, unfit, nonzero)
}

#[track_caller]
fn check_lines(source: &Source, chunks: Chunks) {
    let case = format!("{:?} from {:?}, {chunks:?}", [source.lines, source.terms, source.matrices], source.lay);
    let (factors, unfit, nonzero) = scaled_lines(source, chunks);
    assert_eq!(nonzero, expected_nonzero(source, chunks.terms as usize, source.terms), "{case}");
    let groups = source.lines.div_ceil(GROUP as usize);
    let mut expected_unfit = vec![false; groups * source.matrices];
    for at in source.all_lines() {
        // A line is left to the fallback only for its largest element.
        let largest = source
            .line(at)
            .into_iter()
            .map(f32::abs)
            .fold(0.0, |most, x| if x > most || x.is_nan() { x } else { most });
        let fits = largest == 0.0 || (2f32.powi(-60)..2f32.powi(78)).contains(&largest);
        let factor = if fits && largest != 0.0 { expected_factor(&[largest], false).0 } else { 1.0 };
        assert_eq!(factors[at.0 * groups * GROUP as usize + at.1], factor, "line {at:?} of {case}");
        expected_unfit[at.0 * groups + at.1 / GROUP as usize] |= !fits;
    }
    for (index, &factor) in factors.iter().enumerate() {
        let is_filling = index % (groups * GROUP as usize) >= source.lines;
        assert!(!is_filling || factor == 1.0, "factor {index} of {case}");
    }
    assert_eq!(unfit.iter().map(|&word| word != 0).collect::<Vec<_>>(), expected_unfit, "{case}");
}

#[test]
fn whole_lines_have_a_factor() {
    for numbers in [any_number, ordinary] {
        everywhere(numbers, |source| {
            check_lines(source, Chunks::of(source.lines as u32, source.terms as u32, source.matrices as u32));
        });
    }
}

#[test]
fn lines_of_many_chunks_have_the_extremes_of_all() {
    for lay in lays(40, 1500, 2) {
        let source = Source::new([40, 1500, 2], lay, |matrix, line, term| {
            // The largest of each line somewhere else.
            let at = (line * 37 + matrix * 501) % 1500;
            match term {
                _ if term == at => 3.0 * 2f32.powi(line as i32 - 20),
                _ => 2f32.powi(line as i32 - 30) * ordinary(matrix, line, term).abs().max(0.01),
            }
        });
        for chunks in
            [Chunks { terms: 512, count: 3 }, Chunks { terms: 1500, count: 1 }, Chunks { terms: 7, count: 215 }]
        {
            check_lines(&source, chunks);
        }
    }
}

#[test]
fn buffers_that_are_too_small_are_refused() {
    let source = Source::new([5, 70, 2], lays(5, 70, 2)[1], ordinary);
    let mut words = [0; 640];
    let refused = pack_bf16 { source: source.batch(), words: GlobalSliceMut::new(&mut words[..639]) }.check();
    assert!(refused.unwrap_err().to_string().contains("fits"));
    assert!(pack_fp16 { source: source.batch(), words: GlobalSliceMut::new(&mut words) }.check().is_ok());
    let chunks = Chunks { terms: 32, count: 3 };
    let extremes = GlobalSliceMut::new(&mut words[..90]);
    assert!(line_extremes_fp32 { source: source.batch(), chunks, extremes }.check().is_ok());
    assert!(
        line_extremes_fp32 { source: source.batch(), chunks: Chunks { count: 2, ..chunks }, extremes }.check().is_err()
    );
    let mut memory = vec![0.0; 960 + 8];
    let aligned = memory.as_ptr().align_offset(16);
    let (mut enough, mut factors, mut contents) = (vec![0; 8], vec![0.0; 512], vec![0; 4]);
    let mut pack = |words: std::ops::Range<usize>, of_factors: usize, of_contents: usize| {
        let operand = ToPairs {
            source: source.batch(),
            words: GlobalSliceMut::new(&mut memory[words]),
            factors: GlobalSliceMut::new(&mut factors[..of_factors]),
            contents: GlobalSliceMut::new(&mut contents[..of_contents]),
        };
        // A launch asks the same of either operand.
        let mut other = Other::new(false);
        let (a, b) = other.beside(operand);
        let checked = pack_pairs_fp16 { a, b, element_by_element: 1 }.check();
        assert_eq!(checked.is_ok(), pack_pairs_fp16 { a: b, b: a, element_by_element: 1 }.check().is_ok());
        checked
    };
    assert!(pack(aligned..aligned + 960, 512, 4).is_ok());
    assert!(pack(aligned..aligned + 959, 512, 4).is_err());
    assert!(pack(aligned + 1..aligned + 961, 512, 4).is_err());
    assert!(pack(aligned..aligned + 960, 511, 4).is_err());
    assert!(pack(aligned..aligned + 960, 512, 3).is_err());
    let (fallback, nonzero) = enough.split_at_mut(2);
    let (fallback, contents) = (GlobalSliceMut::new(fallback), GlobalSlice::new(&contents));
    let mut lists = [0; 2 * LIST as usize];
    let mut list = [0; LIST as usize];
    let (list, lists) = (GlobalSliceMut::new(&mut list), GlobalSliceMut::new(&mut lists));
    let flags = |contents, nonzero, exceptions| {
        let flags = ToFlags { contents, lines: 5, terms: 70, matrices: 2, fallback, nonzero, exceptions };
        let nothing = ToFlags {
            lines: 0,
            fallback: GlobalSliceMut::new(&mut []),
            nonzero: GlobalSliceMut::new(&mut []),
            ..flags
        };
        let checked = group_flags_fp16 { a: flags, b: nothing }.check();
        assert_eq!(checked.is_ok(), group_flags_fp16 { a: nothing, b: flags }.check().is_ok());
        checked
    };
    let nonzero = GlobalSliceMut::new(&mut nonzero[..4]);
    assert!(flags(contents, nonzero, lists).is_ok());
    assert!(flags(GlobalSlice::new(&[0; 3]), nonzero, lists).is_err());
    assert!(flags(contents, nonzero, list).is_err());
    assert!(flags(contents, GlobalSliceMut::new(&mut [0; 3]), lists).is_err());
}
