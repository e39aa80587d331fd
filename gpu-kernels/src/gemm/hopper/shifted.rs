//! Loads for the kernels of [`decomposed`](super::decomposed) of operands whose rows of memory begin anywhere. TMA loads from multiples of 16 bytes
//! alone, of tensor maps with strides of as many. But every fourth row begins as far behind such a multiple, its *shift* of 0 to 3 elements, and four rows
//! further on is a multiple of 16 bytes further on. So there are four tensor maps, of every fourth row each, and converter warp w copies what it has
//! loaded by map w to where it would be without a shift.
//!
//! ```text
//!  global memory                      shifted stage, of warp w              raw stage
//!
//!  row w      · a b c d e f g … ──►   ┌─────────────────┐              ┌───────────────────────┐
//!  row w + 1                          │· a b c d e f … ·│ ──┐          │ row 0, of warp 0      │
//!  row w + 2              TMA, rows   ├─────────────────┤   │ 32 lanes │ …                     │
//!  row w + 3              of 36       │· o p q r s t … ·│   └────────► │ row w   a b c d e f … │
//!  row w + 4  · o p q r s t u … ──►   └─────────────────┘              │ …                     │
//!             └ shift                                                  └───────────────────────┘
//! ```
//!
//! What reads raw stages is as it is elsewhere. The rows of an operand that is not K-major have 64 elements of a tile of A, or all columns of one of B, and four
//! more.
//!
//! **Batches.** Where matrices begin multiples of 16 bytes apart, they are the third extent of the maps. A K-major operand whose matrices are a whole
//! number of rows apart is one matrix of all rows, for which it does not matter where a product's rows begin.

use blocks::ring::ProducerConsumer;
use blocks::swizzle::PIECE;
use blocks::uniform::uniform;
use cuda_std::hopper::{self, Barrier};
use cuda_std::prelude::*;

use super::converter::Converter;
use super::decomposed_block::{
    A_TILE, Block, CONVERTER_WARPS, Loads, PARTS, PARTS_OF_A, SHIFTED_ROW, TILE, raw_stage_len, shifted_barriers,
    shifted_stage_len, tile_of,
};
use super::operand::{BOX, Major, ROW};
use crate::Matrix;
use crate::gemm::scan::{self, Scan};

/// The rows of memory that are copied together.
const STRIP: u32 = 8;
/// The elements of A that a box has side by side, where it is not K-major.
const WIDTH_OF_A: u32 = 64;
/// The box by which operand `O` is loaded, of which a tile has `lines` rows of A, or columns of B: rows of memory, and the elements of each.
pub const fn box_of(is_k_major: bool, lines: u32) -> [u32; 2] {
    let parts = if lines > TILE.n { PARTS_OF_A } else { 1 };
    if is_k_major {
        [lines / CONVERTER_WARPS / parts, SHIFTED_ROW]
    } else {
        [ROW / CONVERTER_WARPS, if lines > TILE.n { WIDTH_OF_A } else { lines } + (SHIFTED_ROW - ROW)]
    }
}

/// A row that no map has. (Of one to three rows, there is a map for each, and TMA loads zeros for the others.)
const NO_ROW: u32 = 1 << 30;

/// An operand by four tensor maps: map i has rows of memory i, i + 4, and so on.
#[derive(Clone, Copy)]
pub(super) struct Fours<'a> {
    pub(super) maps: [TensorMap<'a>; 4],
    /// How many rows of memory further on the next matrix begins; 0 where matrices are the maps' third extent.
    pub(super) rows_of_matrix: u32,
}

/// The loads by such maps, to `STAGES` stages. A warp has parts of each for itself, which are full when a phase of their barrier is over.
#[derive(Clone, Copy)]
pub(super) struct ByFours<'a, const STAGES: u32> {
    pub(super) a: Fours<'a>,
    pub(super) b: Fours<'a>,
    pub(super) barriers: SharedSlice<u64>,
    pub(super) memory: SharedSlice<f32>,
}

/// What a warp loads of an operand.
#[derive(Clone, Copy)]
struct Part<'a> {
    map: TensorMap<'a>,
    shift: u32,
    /// Along the rows of memory; which of the map's rows; and which matrix. Of a K-major operand, the first is the k, otherwise the second, four of them at a time.
    at: [u32; 3],
}

impl<'a> Part<'a> {
    /// That of warp `warp`, from row `first` of A (column of B) of matrix `matrix` on. The rows of `lines` are those.
    ///
    /// # Safety
    /// All lanes of the warp come here, with the same.
    #[inline(always)]
    unsafe fn new<O: Major>(of: &Fours<'a>, lines: Matrix<'a>, [first, matrix]: [u32; 2], warp: u32) -> Self {
        let (pitch, row, rows) = if O::K {
            (lines.row_stride(), matrix * of.rows_of_matrix + first + warp, lines.rows())
        } else {
            (lines.col_stride(), warp, lines.cols())
        };
        let map = match row % 4 {
            0 => of.maps[0],
            1 => of.maps[1],
            2 => of.maps[2],
            _ => of.maps[3],
        };
        let is_one = of.rows_of_matrix > 0;
        let (row_of_map, matrix) =
            (if is_one || row < rows { row / 4 } else { NO_ROW }, if is_one { 0 } else { matrix });
        let at = if O::K { [0, row_of_map, matrix] } else { [first, row_of_map, matrix] };
        // SAFETY: the caller's promise.
        unsafe { Self { map, shift: uniform(lines.shift(pitch, row % 4)), at: at.map(|value| uniform(value)) } }
    }
}

/// The elements of a warp's part of an operand in a stage.
const fn quarter_of(lines: u32) -> u32 {
    lines / CONVERTER_WARPS * SHIFTED_ROW
}

/// Where part `part` of a warp is in a step, and its barrier.
#[derive(Clone, Copy)]
struct Place {
    offset: u32,
    barrier: Barrier,
    /// The parity of the phase.
    phase: u32,
}

impl<const STAGES: u32> ByFours<'_, STAGES> {
    /// The place of part `part` of warp `warp` in step `step`.
    #[inline(always)]
    fn place<const COLUMNS: u32>(&self, warp: u32, part: u32, step: u32) -> Place {
        let stage = step % STAGES;
        let [of_a, of_b] = const { [quarter_of(TILE.m), quarter_of(COLUMNS)] };
        let in_stage = if part < PARTS_OF_A {
            (warp * PARTS_OF_A + part) * (of_a / PARTS_OF_A)
        } else {
            CONVERTER_WARPS * of_a + warp * of_b
        };
        let barrier = Barrier::at(self.barriers, ((stage * CONVERTER_WARPS + warp) * PARTS + part) as usize);
        Place { offset: stage * shifted_stage_len(COLUMNS) + in_stage, barrier, phase: (step / STAGES) & 1 }
    }

    /// Issues a warp's loads of a half of its part of A for step `step`, which begins at `k`.
    ///
    /// # Safety
    /// As for [`Loads::convert`]; nobody reads what was there any more.
    #[inline(always)]
    unsafe fn load_a<A: Major, const COLUMNS: u32>(&self, of: &Part<'_>, [warp, half]: [u32; 2], step: u32, k: u32) {
        let Place { offset, barrier, .. } = self.place::<COLUMNS>(warp, half, step);
        let [rows, length] = const { box_of(A::K, TILE.m) };
        let boxes = const { if A::K { 1 } else { TILE.m / WIDTH_OF_A / PARTS_OF_A } };
        let [along, row, matrix] = of.at;
        // SAFETY: the caller's promise. Boxes begin at multiples of 128 bytes, and coordinates at multiples of four elements.
        unsafe {
            if hopper::elect_one() {
                barrier.arrive_expecting(boxes * rows * length * 4);
            }
            for i in 0..boxes {
                let at = if A::K {
                    [along + k, row + half * rows, matrix]
                } else {
                    [along + (half * boxes + i) * WIDTH_OF_A, row + k / 4, matrix]
                };
                if hopper::elect_one() {
                    hopper::load_tile(self.memory, (offset + i * rows * length) as usize, of.map, at, barrier);
                }
            }
        }
    }

    /// Likewise its part of B.
    ///
    /// # Safety
    /// As there.
    #[inline(always)]
    unsafe fn load_b<B: Major, const COLUMNS: u32>(&self, of: &Part<'_>, warp: u32, step: u32, k: u32) {
        let Place { offset, barrier, .. } = self.place::<COLUMNS>(warp, PARTS_OF_A, step);
        let [rows, length] = const { box_of(B::K, COLUMNS) };
        let [along, row, matrix] = of.at;
        let at = if B::K { [along + k, row, matrix] } else { [along, row + k / 4, matrix] };
        // SAFETY: the caller's promise; as above.
        unsafe {
            if hopper::elect_one() {
                barrier.arrive_expecting(rows * length * 4);
                hopper::load_tile(self.memory, offset as usize, of.map, at, barrier);
            }
        }
    }

    /// Copies a part of an operand, of `lines` rows of A or columns of B in a tile, from `from` in its stage to the raw tile at `to`: so many strips.
    ///
    /// # Safety
    /// Both are complete: what is read has been loaded, and nobody reads the raw tile. All lanes of the warp come here.
    #[inline(always)]
    unsafe fn copy<O: Major>(
        &self,
        raw: SharedSlice<f32>,
        [lines, strips]: [u32; 2],
        part: &Part<'_>,
        warp: u32,
        [from, to]: [u32; 2],
        scan: &mut Scan,
    ) {
        let [_, pitch] = box_of(O::K, lines);
        let lane = warp::lane_id();
        let mut from = from + lane + part.shift;
        // Every other row of a warp has its pieces exchanged as this one has, the others by four pieces more.
        let mut to = to + warp * ROW + (lane ^ (warp * PIECE));
        let next_strip = if O::K { STRIP * pitch } else { ROW };
        // Of an A that is not K-major, the two strips of a box.
        let next = if lines > TILE.n && !O::K { STRIP * pitch } else { 2 * next_strip };
        let together = strips.min(2);
        let mut strip = 0;
        while strip < strips {
            // SAFETY: inside the stage, and inside the raw tile, of which a warp has every fourth row and a lane an element of each.
            unsafe {
                let mut values = [[0.0; STRIP as usize]; 2];
                for strip in 0..together {
                    for i in 0..STRIP {
                        let memory = self.memory.skip((strip * next_strip + i * pitch) as usize);
                        values[strip as usize][i as usize] = memory.read(from as usize);
                    }
                }
                for strip in 0..together {
                    scan.scan_now(&values[strip as usize]);
                    for i in 0..STRIP {
                        let to = to ^ (i % 2 * (4 * PIECE));
                        raw.skip((strip * BOX + 4 * i * ROW) as usize)
                            .write(to as usize, values[strip as usize][i as usize]);
                    }
                }
            }
            from += next;
            to += together * BOX;
            strip = hint::keep_rolled(strip + together);
        }
    }
}

impl<const STAGES: u32> Loads for ByFours<'_, STAGES> {
    const IN_PLACE: bool = false;
    const SCAN: bool = true;

    #[inline(always)]
    unsafe fn prepare(self) {
        for i in 0..shifted_barriers(STAGES) {
            // SAFETY: the caller's promise.
            unsafe { Barrier::at(self.barriers, i as usize).init(1) };
        }
    }

    #[inline(always)]
    unsafe fn convert<A: Major, B: Major, const COLUMNS: u32, const RAW_STAGES: u32>(
        self,
        block: &Block<'_, COLUMNS, RAW_STAGES>,
        raw: &mut ProducerConsumer<RAW_STAGES>,
        warp: u32,
    ) -> u32 {
        const { assert!(STAGES > 0 && tile_of(COLUMNS).k == ROW) };
        let Some(tile) = block.gemm.tile(tile_of(COLUMNS), thread::block_idx_x()) else { return 0 };
        let (a, b) = (block.gemm.a().first(), block.gemm.b().first().transposed());
        // SAFETY: all lanes come here.
        let (parts, first_k, steps) = unsafe {
            let of_a = Part::new::<A>(&self.a, a, [tile.row, tile.matrices[0]], warp);
            let of_b = Part::new::<B>(&self.b, b, [tile.col, tile.matrices[1]], warp);
            ([of_a, of_b], uniform(tile.k_begin), uniform(block.steps))
        };
        let (mut converter, mut scans) = (Converter::<COLUMNS>::new::<B>(warp), [Scan::new(); 2]);
        const STRIPS: u32 = TILE.m / ROW / PARTS_OF_A;
        // SAFETY: a warp reads what it has itself had loaded, when the phase is over, and has it loaded again when all its lanes have read it; and it commits
        // the raw stage, which it has acquired, when all have written.
        unsafe {
            let mut step = 0;
            while step < steps.min(STAGES) {
                let k = first_k + step * ROW;
                for half in 0..PARTS_OF_A {
                    self.load_a::<A, COLUMNS>(&parts[0], [warp, half], step, k);
                }
                self.load_b::<B, COLUMNS>(&parts[1], warp, step, k);
                step = hint::keep_rolled(step + 1);
            }
            for step in 0..steps {
                let to = block.raw.producer_after(step);
                let raw_a = to.stage() * raw_stage_len(COLUMNS);
                let next = step + STAGES;
                let k = first_k + next * ROW;
                to.acquire();
                let mut half = 0;
                while half < PARTS_OF_A {
                    let place = self.place::<COLUMNS>(warp, half, step);
                    place.barrier.wait(place.phase);
                    let from_to = [place.offset, raw_a + half * (STRIPS * BOX)];
                    self.copy::<A>(block.memory, [TILE.m, STRIPS], &parts[0], warp, from_to, &mut scans[0]);
                    warp::sync_warp(warp::ALL_LANES);
                    if next < steps {
                        self.load_a::<A, COLUMNS>(&parts[0], [warp, half], next, k);
                    }
                    half = hint::keep_rolled(half + 1);
                }
                let place = self.place::<COLUMNS>(warp, PARTS_OF_A, step);
                place.barrier.wait(place.phase);
                let from_to = [place.offset, raw_a + A_TILE];
                self.copy::<B>(
                    block.memory,
                    [COLUMNS, const { COLUMNS / ROW }],
                    &parts[1],
                    warp,
                    from_to,
                    &mut scans[1],
                );
                warp::sync_warp(warp::ALL_LANES);
                to.commit();
                if next < steps {
                    self.load_b::<B, COLUMNS>(&parts[1], warp, next, k);
                }
                converter.step::<A, B, Self, RAW_STAGES>(block, raw, step, || {});
            }
        }
        scans[0].found_of(scan::A) | scans[1].found_of(scan::B)
    }
}

const _: () = {
    let boxes = [box_of(true, TILE.m), box_of(false, TILE.m)];
    let mut i = 0;
    while i < boxes.len() {
        assert!(
            (boxes[i][0] * boxes[i][1] * 4).is_multiple_of(128),
            "where TMA loads a box begins at a multiple of as many bytes"
        );
        i += 1;
    }
};

/// Whether four tensor maps are of every fourth row of memory of an operand, in the boxes by which a tile with `lines` rows of A, or columns of B, is loaded.
/// The rows of `first`, the first matrix of `count`, are those.
#[cfg(not(target_arch = "nvptx64"))]
pub(super) fn describe_fours<O: Major>(
    maps: [&TensorMap<'_>; 4],
    rows_of_matrix: u32,
    first: Matrix<'_>,
    count: u32,
    lines: u32,
) -> bool {
    let (rows, length, pitch, neighbours) = if O::K {
        (first.rows(), first.cols(), first.row_stride(), first.is_contiguous_along_rows())
    } else {
        (first.cols(), first.rows(), first.col_stride(), first.is_contiguous_along_cols())
    };
    let is_one = rows_of_matrix > 0;
    let (all, matrices) = if is_one {
        ((u64::from(count) - 1) * u64::from(rows_of_matrix) + u64::from(rows), 1)
    } else {
        (rows.into(), count)
    };
    let [box_rows, box_length] = box_of(O::K, lines);
    neighbours
        && (O::K || !is_one)
        && (!is_one || rows >= 4)
        && (0..4u32).zip(maps).all(|(i, map)| {
            let i = if u64::from(i) < all { i } else { 0 };
            let before = first.shift(pitch, i);
            let layout = map.layout();
            let extents = [u64::from(length + before), (all - u64::from(i)).div_ceil(4), u64::from(matrices)];
            map.elements_before() == before
                && layout.element == cuda_std::TileElement::Bytes4
                && layout.extents == extents
                && (extents[1] <= 1 || layout.byte_strides[1] == 16 * pitch)
                && layout.tile == [box_length, box_rows, 1]
                && layout.swizzle == cuda_std::TileSwizzle::None
        })
}

#[cfg(test)]
mod tests {
    use cuda_std::{TileElement, TileLayout, TileSwizzle};

    use super::*;
    use crate::gemm::hopper::operand::{KMajor, MnMajor};

    /// Maps of every fourth row of memory of `rows` rows of `length` elements, `pitch` apart, of which the first begins `shift` elements behind a multiple of 16 bytes.
    fn maps([rows, length]: [u64; 2], pitch: u64, shift: u64, tile: [u32; 2]) -> [TensorMap<'static>; 4] {
        [0, 1, 2, 3].map(|i| {
            let i = if i < rows { i } else { 0 };
            let before = (shift + i * pitch) % 4;
            let layout = TileLayout {
                element: TileElement::Bytes4,
                extents: [length + before, (rows - i).div_ceil(4), 1],
                byte_strides: [4, 16 * pitch, 0],
                tile: [tile[1], tile[0], 1],
                swizzle: TileSwizzle::None,
            };
            // SAFETY: nothing loads by it.
            unsafe {
                TensorMap::from_raw_parts([0; 16], core::ptr::null(), 0, layout).with_elements_before(before as u32)
            }
        })
    }

    #[test]
    fn four_tensor_maps_have_to_be_of_every_fourth_row() {
        #[repr(align(16))]
        struct Aligned([f32; 400]);
        let memory = Aligned([0.0; 400]);
        let data = GlobalSlice::new(&memory.0[1..]);
        let lines = Matrix::new(data, 9, 13, 15, 1).unwrap();
        let is = |maps: &[TensorMap<'_>; 4], rows_of_matrix| {
            describe_fours::<KMajor>(maps.each_ref(), rows_of_matrix, lines, 1, TILE.m)
        };
        let box_ = box_of(true, TILE.m);
        assert!(is(&maps([9, 13], 15, 1, box_), 0));
        for wrong in [
            maps([8, 13], 15, 1, box_),
            maps([9, 12], 15, 1, box_),
            maps([9, 13], 19, 1, box_),
            maps([9, 13], 15, 2, box_),
            maps([9, 13], 15, 1, box_of(true, 64)),
        ] {
            assert!(!is(&wrong, 0));
        }
        let [first, second, third, fourth] = maps([9, 13], 15, 1, box_);
        assert!(!is(&[second, first, third, fourth], 0));
        // Where rows of memory are k, those of another matrix may not be loaded.
        let box_ = box_of(false, TILE.m);
        let columns = Matrix::new(data, 13, 9, 1, 15).unwrap();
        let maps = maps([9, 13], 15, 1, box_);
        assert!(describe_fours::<MnMajor>(maps.each_ref(), 0, columns, 1, TILE.m));
        assert!(!describe_fours::<MnMajor>(maps.each_ref(), 9, columns, 1, TILE.m));
        assert!(!describe_fours::<KMajor>(maps.each_ref(), 0, columns, 1, TILE.m));
    }

    #[test]
    fn of_fewer_than_four_rows_maps_are_of_the_first() {
        #[repr(align(16))]
        struct Aligned([f32; 64]);
        let memory = Aligned([0.0; 64]);
        let lines = Matrix::new(GlobalSlice::new(&memory.0), 3, 7, 7, 1).unwrap();
        let maps = maps([3, 7], 7, 0, box_of(true, 64));
        assert!(describe_fours::<KMajor>(maps.each_ref(), 0, lines, 1, 64));
        assert!(!describe_fours::<KMajor>(maps.each_ref(), 3, lines, 1, 64), "then all are of one matrix");
    }
}
