//! The kernels that bring operands into another form, on the CPU executor with all its checks: every word is what a plain
//! computation on this processor gives, bit by bit.

use std::sync::LazyLock;

use cuda_std::convert::{bf16x2, f16x2};
use cuda_std::executor::{Checks, Executor};
use cuda_std::{ContractViolation, GlobalSlice, GlobalSliceMut, Kernel as _};
use gpu_kernels::gemm::hopper::fallback::GROUP;
use gpu_kernels::pack::clear::matrix_clear_outside_fp32;
use gpu_kernels::pack::copy::matrix_copy_fp32;
use gpu_kernels::pack::exceptions::LIST;
use gpu_kernels::pack::group_flags::{ToFlags, group_flags_fp16};
use gpu_kernels::pack::half::{self, pack_bf16, pack_fp16};
use gpu_kernels::pack::pairs::{ToPairs, pack_pairs_fp16};
use gpu_kernels::pack::scaled::{Chunks, line_extremes_fp32, line_scales_fp32};
use gpu_kernels::{Grid, Matrix, MatrixBatch, MatrixBatchMut, MatrixMut, Triangle};
use tests::half_of_the_grid;

mod fp16_pairs;

use fp16_pairs::{Other, check_pairs, expected_factor, packed_pairs};

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
