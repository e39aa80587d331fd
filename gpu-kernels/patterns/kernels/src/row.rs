//! How a team of threads (a warp or a block) has a row of an fp32 matrix together: which columns each thread loads and stores, and sums and
//! maxima over the row.
//!
//! ```text
//!                group 0                               group 1
//!  vectors     │ t₀ t₀ t₀ t₀ │ t₁ t₁ t₁ t₁ │ …       │ t₀ t₀ t₀ t₀ │ …         a load of 16 bytes for each thread and group
//!  one by one  │ t₀ t₁ t₂ …    │ t₀ t₁ t₂ …  │ …     │ t₀ t₁ t₂ …              four loads, where rows do not begin at multiples of 16 bytes
//! ```
//!
//! A group is four numbers of each thread, whichever they are. What is kept of a row is its thread's own, so that nothing else has to know
//! in which of the two ways it was loaded. Which way it is makes a difference for the order of additions, and so for the last bits of sums.

use cuda_std::prelude::*;

/// The lanes of a warp.
pub(crate) const LANES: usize = warp::LANES as usize;

/// The numbers of a thread in a group.
pub(crate) const FOUR: usize = 4;

/// How often what is loaded is needed.
#[derive(Clone, Copy)]
pub(crate) enum Needed {
    /// Once: it leaves the first-level cache to others.
    Once,
    /// Again, as what all rows have in common.
    Again,
}

/// `THREADS` threads that have a row of `cols` numbers together; what one of them has of it.
#[derive(Clone, Copy)]
pub(crate) struct Team<const THREADS: usize> {
    cols: u32,
    by_vectors: bool,
    /// The first column of this thread, and from one of the numbers of a group to the next.
    first: u32,
    step: u32,
}

impl<const THREADS: usize> Team<THREADS> {
    /// What thread `me` of them has of up to 2³¹ columns. `addresses` are those at which the matrices begin whose rows are loaded or stored,
    /// combined by `|`.
    #[inline(always)]
    pub(crate) fn new(me: usize, cols: usize, addresses: usize) -> Self {
        let by_vectors = cols.is_multiple_of(FOUR) && addresses.is_multiple_of(FOUR * size_of::<f32>());
        let (me, four, threads) = (me as u32, FOUR as u32, THREADS as u32);
        let (first, step) = if by_vectors { (me * four, 1) } else { (me, threads) };
        Self { cols: cols as u32, by_vectors, first, step }
    }

    /// The same of the first `cols` numbers of a row, or of others that begin at one of its multiples of four.
    #[inline(always)]
    pub(crate) fn of(self, cols: usize) -> Self {
        Self { cols: cols as u32, ..self }
    }

    /// The groups of a row.
    #[inline(always)]
    pub(crate) fn groups(self) -> usize {
        (self.cols as usize).div_ceil(FOUR * THREADS)
    }

    /// The column of a number of this thread.
    #[inline(always)]
    pub(crate) fn col(self, group: usize, i: usize) -> u32 {
        self.first + group as u32 * (FOUR * THREADS) as u32 + i as u32 * self.step
    }

    /// Whether there is such a column.
    #[inline(always)]
    pub(crate) fn has(self, group: usize, i: usize) -> bool {
        self.col(group, i) < self.cols
    }

    /// This thread's numbers of `GROUPS` groups from group `from` on, of the row that begins at element `first`. In place of what is not
    /// there it is `filler`.
    ///
    /// # Safety
    /// A row from `first` on is inside of x, one of the matrices whose addresses were given; `first` is a multiple of `cols`.
    #[inline(always)]
    #[track_caller]
    pub(crate) unsafe fn load<const GROUPS: usize>(
        self,
        x: GlobalSlice<'_, f32>,
        first: usize,
        from: usize,
        filler: f32,
        needed: Needed,
    ) -> [[f32; FOUR]; GROUPS] {
        let mut numbers = [[filler; FOUR]; GROUPS];
        // The question is asked once, so that the loads come one after the other.
        if self.by_vectors {
            for group in 0..GROUPS {
                if self.has(from + group, 0) {
                    let place = first + self.col(from + group, 0) as usize;
                    // SAFETY: the column was compared, and `cols` is a multiple of 4 as it is; so is `first`, and the matrix is aligned.
                    numbers[group] = unsafe {
                        match needed {
                            Needed::Once => x.get4_streaming_unchecked(place),
                            Needed::Again => x.get4_unchecked(place),
                        }
                    };
                }
            }
        } else {
            for group in 0..GROUPS {
                for i in 0..FOUR {
                    if self.has(from + group, i) {
                        // SAFETY: the column was compared.
                        numbers[group][i] = unsafe { x.get_unchecked(first + self.col(from + group, i) as usize) };
                    }
                }
            }
        }
        numbers
    }

    /// This thread's numbers of one group of `LINES` rows, of which there are `lines`, `pitch` elements from one to the next, from element
    /// `first` on. In place of what is not there it is 0.
    ///
    /// # Safety
    /// As for [`Team::load`], for each of those rows.
    #[inline(always)]
    #[track_caller]
    pub(crate) unsafe fn load_lines<const LINES: usize>(
        self,
        x: GlobalSlice<'_, f32>,
        [first, pitch]: [usize; 2],
        group: usize,
        lines: usize,
    ) -> [[f32; FOUR]; LINES] {
        let mut numbers = [[0.0; FOUR]; LINES];
        // As in `load`.
        if self.by_vectors {
            for line in 0..LINES {
                if line < lines && self.has(group, 0) {
                    let place = first + line * pitch + self.col(group, 0) as usize;
                    // SAFETY: as for `load`; the line was compared too.
                    numbers[line] = unsafe { x.get4_streaming_unchecked(place) };
                }
            }
        } else {
            for line in 0..LINES {
                for i in 0..FOUR {
                    if line < lines && self.has(group, i) {
                        let place = first + line * pitch + self.col(group, i) as usize;
                        // SAFETY: likewise.
                        numbers[line][i] = unsafe { x.get_unchecked(place) };
                    }
                }
            }
        }
        numbers
    }

    /// Writes them likewise.
    ///
    /// # Safety
    /// As for [`Team::load`]; no other team has this row of y.
    #[inline(always)]
    #[track_caller]
    pub(crate) unsafe fn store<const GROUPS: usize>(
        self,
        y: GlobalSliceMut<'_, f32>,
        first: usize,
        from: usize,
        numbers: [[f32; FOUR]; GROUPS],
    ) {
        if self.by_vectors {
            for group in 0..GROUPS {
                if self.has(from + group, 0) {
                    // SAFETY: as for `load`; a column is one thread's.
                    unsafe { y.set4_unchecked(first + self.col(from + group, 0) as usize, numbers[group]) };
                }
            }
        } else {
            for group in 0..GROUPS {
                for i in 0..FOUR {
                    if self.has(from + group, i) {
                        // SAFETY: as for `load`; a column is one thread's.
                        unsafe { y.set_unchecked(first + self.col(from + group, i) as usize, numbers[group][i]) };
                    }
                }
            }
        }
    }
}

/// One number and another.
#[inline(always)]
pub(crate) fn plus(one: f32, other: f32) -> f32 {
    one + other
}

/// The sum of four numbers.
#[inline(always)]
pub(crate) fn sum_of_four([a, b, c, d]: [f32; FOUR]) -> f32 {
    (a + b) + (c + d)
}

/// What an operation makes of a number of each lane of a warp; all of them get it. The operation does not mind which of two operands comes
/// first, so that all get the same bits.
///
/// # Safety
/// All lanes of the warp come here together.
#[inline(always)]
#[track_caller]
pub(crate) unsafe fn of_lanes(mut value: f32, operation: impl Fn(f32, f32) -> f32) -> f32 {
    for distance in [16, 8, 4, 2, 1] {
        // SAFETY: the caller's promise.
        let other = unsafe { warp::warp_shuffle_xor(warp::ALL_LANES, value, distance, warp::LANES) }.0;
        value = operation(value, other);
    }
    value
}

/// The same of each thread of a one-dimensional block of `WARPS` warps: those of a warp, then what the warps have. `neutral` is what the
/// operation makes nothing of.
///
/// # Safety
/// All threads of the block come here together, with memory that nobody accesses otherwise, or not without a barrier before and behind.
#[inline(always)]
#[track_caller]
pub(crate) unsafe fn of_block<const WARPS: usize>(
    memory: &'static Shared<[f32; WARPS]>,
    value: f32,
    neutral: f32,
    operation: impl Fn(f32, f32) -> f32,
) -> f32 {
    const { assert!(WARPS <= LANES, "a lane for each warp") };
    let me = thread::thread_idx_x() as usize;
    let (warp, lane) = (me / LANES, me % LANES);
    // SAFETY: all threads come here; each element has one writer, and the barrier is between writes and reads.
    unsafe {
        let of_warp = of_lanes(value, &operation);
        if lane == 0 {
            memory.write(warp, of_warp);
        }
        thread::sync_threads();
        let of_a_warp = if lane < WARPS { memory.read(lane) } else { neutral };
        of_lanes(of_a_warp, operation)
    }
}

/// The roundings that a number meets on its way into a sum over so many groups of a block, or of a warp: among its four and the groups of
/// its thread, among lanes, among warps.
#[cfg(not(target_arch = "nvptx64"))]
pub(crate) const fn roundings_of_sum(groups: usize) -> usize {
    2 + groups + 2 * LANES.ilog2() as usize
}
