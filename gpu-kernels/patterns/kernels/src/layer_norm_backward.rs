//! The gradients of layer normalisation in fp32: from x and dy (rows × cols), γ, and each row's mean and 1/σ, it makes dx (rows × cols), dγ
//! and dβ (a number for each column), with the same bits every time. Three launches: for dx a warp or a block has a row; for dγ and dβ a
//! block adds up 128 columns of a chunk of rows; then a block adds up 128 columns of what the chunks have.
//!
//! With `x̂ⱼ = (xⱼ − mean) / σ` and `aⱼ = dyⱼ·γⱼ` of a row:
//!
//! ```text
//!  dx       dxⱼ = (aⱼ − ⟨a⟩ − x̂ⱼ·⟨a·x̂⟩) / σ         ⟨ ⟩ is the mean over the row, which a warp or a block has
//!
//!  dγ, dβ   Σ dyⱼ·x̂ⱼ and Σ dyⱼ over all rows
//!
//!              128 columns
//!            ┌──────────┬──────────┬ … ┐            a block: the rows of a chunk, each of whose 8 warps has every 8th
//!     chunk 0 │ block 0  │ block 1  │    ─► sums   ┐
//!     chunk 1 │ block …  │          │    ─► sums   ├─► layer_norm_columns_fp32 adds up the chunks' sums, in their order
//!            └──────────┴──────────┴ … ┘            ┘
//! ```
//!
//! No block adds to what another one has: which of them is earlier makes no difference for any bit.
//!
//! x and dy are read twice, once for the rows and once for the columns. A NaN or an infinity in a row makes all dx of that row NaN, and the
//! sums of the columns where it stands; as everywhere.
//!
//! Source: the formulas are those of J. L. Ba, J. R. Kiros and G. E. Hinton, "Layer normalization" (2016), differentiated.

use cuda_std::prelude::*;

use crate::row::{FOUR, LANES, Needed, Team, of_block, of_lanes, plus, sum_of_four};

/// The most columns of [`layer_norm_dx_of_warp_fp32`].
pub const OF_WARP: usize = 1024;

/// The most columns of [`layer_norm_dx_of_block_fp32`].
pub const OF_BLOCK: usize = 4096;

/// The threads of a block, and those of one that has a long row.
const THREADS: usize = layer_norm_dx_of_block_fp32::BLOCK.x as usize;
const MANY_THREADS: usize = layer_norm_dx_long_fp32::BLOCK.x as usize;

/// The warps of both.
const WARPS: usize = THREADS / LANES;
const MANY_WARPS: usize = MANY_THREADS / LANES;

/// The columns of a block that adds up columns.
const COLUMNS: usize = FOUR * LANES;

/// The rows that a warp loads at once.
const ROWS_AT_ONCE: usize = 4;

/// The blocks that add up columns: about as many as run at the same time on an H200.
#[cfg(not(target_arch = "nvptx64"))]
const BLOCKS: usize = 1024;

/// The rows of a chunk: so many that there are blocks enough, but not fewer than a block has something to do with.
#[cfg(not(target_arch = "nvptx64"))]
pub fn rows_of_chunk(rows: usize, cols: usize) -> usize {
    let chunks = (BLOCKS / cols.div_ceil(COLUMNS).max(1)).max(1);
    rows.div_ceil(chunks).next_multiple_of(WARPS * ROWS_AT_ONCE).max(WARPS * ROWS_AT_ONCE)
}

/// The blocks for so many chunks of so many columns.
#[cfg(not(target_arch = "nvptx64"))]
fn blocks(rows: u32, cols: u32, of_chunk: u32) -> Option<u32> {
    let (chunks, groups) = (rows.div_ceil(of_chunk.max(1)).max(1), cols.div_ceil(COLUMNS as u32).max(1));
    chunks.checked_mul(groups).filter(|&blocks| blocks <= i32::MAX as u32)
}

/// What a kernel for dx is given.
#[derive(Clone, Copy)]
struct Matrices<'a> {
    x: GlobalSlice<'a, f32>,
    dy: GlobalSlice<'a, f32>,
    gamma: GlobalSlice<'a, f32>,
    dx: GlobalSliceMut<'a, f32>,
}

impl Matrices<'_> {
    /// Their addresses, combined.
    #[inline(always)]
    fn addresses(&self) -> usize {
        let inputs = self.x.as_ptr().addr() | self.dy.as_ptr().addr() | self.gamma.as_ptr().addr();
        inputs | self.dx.as_mut_ptr().addr()
    }
}

/// What a row was normalised with.
#[derive(Clone, Copy)]
struct Moments {
    mean: f32,
    inverse: f32,
}

impl Moments {
    /// Numbers of the row, normalised.
    #[inline(always)]
    fn normalized(self, x: [f32; FOUR]) -> [f32; FOUR] {
        x.map(|x| (x - self.mean) * self.inverse)
    }

    /// dx of some numbers: `a` is dy·γ.
    #[inline(always)]
    fn dx(self, a: [f32; FOUR], normalized: [f32; FOUR], [mean, slope]: [f32; 2]) -> [f32; FOUR] {
        core::array::from_fn(|i| math::fma(-normalized[i], slope, a[i] - mean) * self.inverse)
    }
}

/// Products of numbers of the same place.
#[inline(always)]
fn products(one: [f32; FOUR], other: [f32; FOUR]) -> [f32; FOUR] {
    core::array::from_fn(|i| one[i] * other[i])
}

/// dx of a row that a team keeps in registers, `GROUPS` groups at most. `sum` and `other_sum` find that of what each thread has.
///
/// # Safety
/// As for [`Team::load`] and [`Team::store`], of the row from `first` on; what the two functions ask for. There is a γ for each column.
#[inline(always)]
unsafe fn in_registers<const THREADS: usize, const GROUPS: usize>(
    team: Team<THREADS>,
    matrices: Matrices<'_>,
    moments: Moments,
    [first, cols]: [usize; 2],
    sum: impl Fn(f32) -> f32,
    other_sum: impl Fn(f32) -> f32,
) {
    let Matrices { x, dy, gamma, dx } = matrices;
    let groups = team.groups();
    // SAFETY: the caller's promise.
    let (mut normalized, mut a): ([[f32; FOUR]; GROUPS], [[f32; FOUR]; GROUPS]) =
        unsafe { (team.load(x, first, 0, 0.0, Needed::Once), team.load(dy, first, 0, 0.0, Needed::Once)) };
    // Groups that are not there are left out: the same for all threads. What is not there of the others has a dy of 0.
    let (mut of_a, mut of_products) = (0.0, 0.0);
    for group in 0..GROUPS {
        if group < groups {
            // SAFETY: the caller's promise.
            let [gamma] = unsafe { team.load(gamma, 0, group, 0.0, Needed::Again) };
            normalized[group] = moments.normalized(normalized[group]);
            a[group] = products(a[group], gamma);
            of_a += sum_of_four(a[group]);
            of_products += sum_of_four(products(a[group], normalized[group]));
        }
    }
    let means = [sum(of_a) / cols as f32, other_sum(of_products) / cols as f32];
    for group in 0..GROUPS {
        if group < groups {
            // SAFETY: the caller's promise.
            unsafe { team.store(dx, first, group, [moments.dx(a[group], normalized[group], means)]) };
        }
    }
}

/// dx of rows of up to 1024 numbers.
#[kernel(
    block = 256,
    grid = rows.div_ceil(WARPS as u32).max(1),
    requires(
        x.len() == rows as usize * cols as usize, dy.len() == x.len(), dx.len() == x.len(), cols as usize <= OF_WARP,
        gamma.len() == cols as usize, mean.len() == rows as usize, inverse.len() == rows as usize
    )
)]
pub fn layer_norm_dx_of_warp_fp32(
    rows: u32,
    cols: u32,
    x: GlobalSlice<'_, f32>,
    dy: GlobalSlice<'_, f32>,
    gamma: GlobalSlice<'_, f32>,
    mean: GlobalSlice<'_, f32>,
    inverse: GlobalSlice<'_, f32>,
    dx: GlobalSliceMut<'_, f32>,
) {
    let (me, cols) = (thread::thread_idx_x() as usize, cols as usize);
    let row = thread::block_idx_x() as usize * WARPS + me / LANES;
    if row >= rows as usize {
        return; // the same for the whole warp
    }
    let matrices = Matrices { x, dy, gamma, dx };
    let team = Team::<LANES>::new(me % LANES, cols, matrices.addresses());
    // SAFETY: the launch has checked the lengths. The row is this warp's alone, all of whose lanes come here.
    unsafe {
        let moments = Moments { mean: mean.get_unchecked(row), inverse: inverse.get_unchecked(row) };
        in_registers::<LANES, { OF_WARP / (FOUR * LANES) }>(
            team,
            matrices,
            moments,
            [row * cols, cols],
            |sum| of_lanes(sum, plus),
            |sum| of_lanes(sum, plus),
        );
    }
}

/// dx of rows of up to 4096 numbers.
#[kernel(
    block = 256,
    min_blocks = 4,
    grid = rows.max(1),
    requires(
        x.len() == rows as usize * cols as usize, dy.len() == x.len(), dx.len() == x.len(), cols as usize <= OF_BLOCK,
        gamma.len() == cols as usize, mean.len() == rows as usize, inverse.len() == rows as usize
    )
)]
pub fn layer_norm_dx_of_block_fp32(
    rows: u32,
    cols: u32,
    x: GlobalSlice<'_, f32>,
    dy: GlobalSlice<'_, f32>,
    gamma: GlobalSlice<'_, f32>,
    mean: GlobalSlice<'_, f32>,
    inverse: GlobalSlice<'_, f32>,
    dx: GlobalSliceMut<'_, f32>,
) {
    static SUMS: Shared<[f32; WARPS]> = Shared::new();
    static SUMS_OF_PRODUCTS: Shared<[f32; WARPS]> = Shared::new();
    let (me, row, cols) = (thread::thread_idx_x() as usize, thread::block_idx_x() as usize, cols as usize);
    if row >= rows as usize {
        return; // the same for the whole block
    }
    let matrices = Matrices { x, dy, gamma, dx };
    let team = Team::<THREADS>::new(me, cols, matrices.addresses());
    // SAFETY: the launch has checked the lengths. The row is this block's alone, all of whose threads come here.
    unsafe {
        let moments = Moments { mean: mean.get_unchecked(row), inverse: inverse.get_unchecked(row) };
        in_registers::<THREADS, { OF_BLOCK / (FOUR * THREADS) }>(
            team,
            matrices,
            moments,
            [row * cols, cols],
            |sum| of_block(&SUMS, sum, 0.0, plus),
            |sum| of_block(&SUMS_OF_PRODUCTS, sum, 0.0, plus),
        );
    }
}

/// dx of rows of any length, which are read twice.
#[kernel(
    block = 1024,
    grid = rows.max(1),
    requires(
        x.len() == rows as usize * cols as usize, dy.len() == x.len(), dx.len() == x.len(), cols <= i32::MAX as u32,
        gamma.len() == cols as usize, mean.len() == rows as usize, inverse.len() == rows as usize
    )
)]
pub fn layer_norm_dx_long_fp32(
    rows: u32,
    cols: u32,
    x: GlobalSlice<'_, f32>,
    dy: GlobalSlice<'_, f32>,
    gamma: GlobalSlice<'_, f32>,
    mean: GlobalSlice<'_, f32>,
    inverse: GlobalSlice<'_, f32>,
    dx: GlobalSliceMut<'_, f32>,
) {
    static SUMS: Shared<[f32; MANY_WARPS]> = Shared::new();
    static SUMS_OF_PRODUCTS: Shared<[f32; MANY_WARPS]> = Shared::new();
    let (me, row, cols) = (thread::thread_idx_x() as usize, thread::block_idx_x() as usize, cols as usize);
    if row >= rows as usize {
        return; // the same for the whole block
    }
    let matrices = Matrices { x, dy, gamma, dx };
    let team = Team::<MANY_THREADS>::new(me, cols, matrices.addresses());
    let (first, groups) = (row * cols, team.groups());
    // SAFETY: the launch has checked the lengths. The row is this block's alone, all of whose threads come here.
    unsafe {
        let moments = Moments { mean: mean.get_unchecked(row), inverse: inverse.get_unchecked(row) };
        // What is not there has a dy of 0.
        let of_group = |group: usize| {
            let ([x], [dy]) =
                (team.load(x, first, group, 0.0, Needed::Again), team.load(dy, first, group, 0.0, Needed::Again));
            let [gamma] = team.load(gamma, 0, group, 0.0, Needed::Again);
            (products(dy, gamma), moments.normalized(x))
        };
        let (mut of_a, mut of_products) = (0.0, 0.0);
        for group in 0..groups {
            let (a, normalized) = of_group(group);
            of_a += sum_of_four(a);
            of_products += sum_of_four(products(a, normalized));
        }
        let mean = of_block(&SUMS, of_a, 0.0, plus) / cols as f32;
        let slope = of_block(&SUMS_OF_PRODUCTS, of_products, 0.0, plus) / cols as f32;
        for group in 0..groups {
            let (a, normalized) = of_group(group);
            team.store(dx, first, group, [moments.dx(a, normalized, [mean, slope])]);
        }
    }
}

/// The sums of a lane in each warp of a block, one behind the other for the lanes of a warp: two for each of its columns.
type Sums = [[f32; THREADS]; 2 * FOUR];

/// Adds up the sums of the warps, and writes those of two times 128 columns.
///
/// # Safety
/// All threads of a block of 256 come here together, with memory that nobody uses otherwise. The columns of this group from `first` on are
/// inside of both outputs, and this block's alone.
#[inline(always)]
unsafe fn write_sums(
    memory: &'static Shared<Sums>,
    sums: [[f32; FOUR]; 2],
    team: impl Fn(usize) -> Team<LANES>,
    [first, group]: [usize; 2],
    outputs: [GlobalSliceMut<'_, f32>; 2],
) {
    let me = thread::thread_idx_x() as usize;
    // SAFETY: the barrier, which all threads reach, is between writes and reads. A thread has one column of one output.
    unsafe {
        for which in 0..2 {
            for i in 0..FOUR {
                memory.write([which * FOUR + i, me], sums[which][i]);
            }
        }
        thread::sync_threads();
        let (place, lane) = (me / LANES, me % LANES);
        let mut sum = 0.0;
        for warp in 0..WARPS {
            sum += memory.read([place, warp * LANES + lane]);
        }
        let team = team(lane);
        if team.has(group, place % FOUR) {
            let col = first + team.col(group, place % FOUR) as usize;
            if place < FOUR { outputs[0].set_unchecked(col, sum) } else { outputs[1].set_unchecked(col, sum) }
        }
    }
}

/// For each chunk of rows, the sums of `dy·x̂` and those of `dy` of each column.
#[kernel(
    block = 256,
    grid = blocks(rows, cols, of_chunk).unwrap_or(0).max(1),
    requires(
        x.len() == rows as usize * cols as usize, dy.len() == x.len(), cols <= i32::MAX as u32,
        mean.len() == rows as usize, inverse.len() == rows as usize,
        of_chunk > 0, blocks(rows, cols, of_chunk).is_some(),
        gammas.len() == (rows.div_ceil(of_chunk.max(1)).max(1)) as usize * cols as usize, betas.len() == gammas.len()
    )
)]
pub fn layer_norm_chunks_fp32(
    rows: u32,
    cols: u32,
    of_chunk: u32,
    x: GlobalSlice<'_, f32>,
    dy: GlobalSlice<'_, f32>,
    mean: GlobalSlice<'_, f32>,
    inverse: GlobalSlice<'_, f32>,
    gammas: GlobalSliceMut<'_, f32>,
    betas: GlobalSliceMut<'_, f32>,
) {
    static SUMS: Shared<Sums> = Shared::new();
    let groups = (cols as usize).div_ceil(COLUMNS).max(1) as u32;
    let (chunk, group) = (thread::block_idx_x() / groups, (thread::block_idx_x() % groups) as usize);
    let (me, rows, cols, of_chunk) = (thread::thread_idx_x() as usize, rows as usize, cols as usize, of_chunk as usize);
    let addresses = x.as_ptr().addr() | dy.as_ptr().addr();
    let team = Team::<LANES>::new(me % LANES, cols, addresses);
    let end = ((chunk as usize + 1) * of_chunk).min(rows);
    let mut sums = [[0.0; FOUR]; 2];
    let mut from = chunk as usize * of_chunk + me / LANES;
    while from < end {
        let left = (end - from).div_ceil(WARPS);
        let place = [from * cols, WARPS * cols];
        // SAFETY: the rows that are left are below `rows`, and the launch has checked the lengths.
        let (xs, dys): ([_; ROWS_AT_ONCE], [_; ROWS_AT_ONCE]) =
            unsafe { (team.load_lines(x, place, group, left), team.load_lines(dy, place, group, left)) };
        let moments: [_; ROWS_AT_ONCE] = core::array::from_fn(|i| {
            let row = from + i * WARPS;
            // Of rows that are not there all is 0. Those of the next chunk are somebody else's, even if they are there.
            if row >= end {
                return Moments { mean: 0.0, inverse: 0.0 };
            }
            // SAFETY: likewise.
            unsafe { Moments { mean: mean.get_unchecked(row), inverse: inverse.get_unchecked(row) } }
        });
        for i in 0..ROWS_AT_ONCE {
            let (normalized, dy) = (moments[i].normalized(xs[i]), dys[i]);
            for col in 0..FOUR {
                sums[0][col] = math::fma(dy[col], normalized[col], sums[0][col]);
                sums[1][col] += dy[col];
            }
        }
        from += ROWS_AT_ONCE * WARPS;
    }
    let team = |lane| Team::<LANES>::new(lane, cols, addresses);
    // SAFETY: all threads come here. A chunk's sums of these columns are this block's alone.
    unsafe { write_sums(&SUMS, sums, team, [chunk as usize * cols, group], [gammas, betas]) };
}

/// The sums of each column over all chunks: dγ and dβ.
#[kernel(
    block = 256,
    grid = cols.div_ceil(COLUMNS as u32).max(1),
    requires(
        gammas.len() == chunks as usize * cols as usize, cols <= i32::MAX as u32, betas.len() == gammas.len(),
        dgamma.len() == cols as usize, dbeta.len() == cols as usize
    )
)]
pub fn layer_norm_columns_fp32(
    chunks: u32,
    cols: u32,
    gammas: GlobalSlice<'_, f32>,
    betas: GlobalSlice<'_, f32>,
    dgamma: GlobalSliceMut<'_, f32>,
    dbeta: GlobalSliceMut<'_, f32>,
) {
    static SUMS: Shared<Sums> = Shared::new();
    let (me, group) = (thread::thread_idx_x() as usize, thread::block_idx_x() as usize);
    let (chunks, cols) = (chunks as usize, cols as usize);
    let addresses = gammas.as_ptr().addr() | betas.as_ptr().addr();
    let team = Team::<LANES>::new(me % LANES, cols, addresses);
    let mut sums = [[0.0; FOUR]; 2];
    let mut from = me / LANES;
    while from < chunks {
        let left = (chunks - from).div_ceil(WARPS);
        let place = [from * cols, WARPS * cols];
        // SAFETY: the chunks that are left are below `chunks`, and the launch has checked the lengths.
        let numbers: [[[f32; FOUR]; ROWS_AT_ONCE]; 2] =
            unsafe { [team.load_lines(gammas, place, group, left), team.load_lines(betas, place, group, left)] };
        for i in 0..ROWS_AT_ONCE {
            for which in 0..2 {
                for col in 0..FOUR {
                    sums[which][col] += numbers[which][i][col];
                }
            }
        }
        from += ROWS_AT_ONCE * WARPS;
    }
    let team = |lane| Team::<LANES>::new(lane, cols, addresses);
    // SAFETY: all threads come here. These columns are this block's alone.
    unsafe { write_sums(&SUMS, sums, team, [0, group], [dgamma, dbeta]) };
}

#[cfg(not(target_arch = "nvptx64"))]
pub use operation::LayerNormBackward;

/// The operation as the host sees it: rows and columns, the five inputs, dx, dγ and dβ as outputs, the three launches, and the same formulas in
/// f64 with a bound for each element. It is compiled for the host only.
#[cfg(not(target_arch = "nvptx64"))]
mod operation {
    use testkit::{
        Argument, Bits, Description, Device, Distribution, Error, Expected, Operation, Sizes, Values, Views,
    };

    use super::{
        MANY_THREADS, OF_BLOCK, OF_WARP, ROWS_AT_ONCE, WARPS, layer_norm_chunks_fp32, layer_norm_columns_fp32,
        layer_norm_dx_long_fp32, layer_norm_dx_of_block_fp32, layer_norm_dx_of_warp_fp32, rows_of_chunk,
    };
    use crate::row::{FOUR, LANES, roundings_of_sum};

    /// The derivatives by x, γ and β.
    pub struct LayerNormBackward {
        name: &'static str,
        numbers: Distribution,
        large: &'static [[usize; 2]],
    }

    impl LayerNormBackward {
        /// Of numbers as they come.
        pub const NORMAL: Self = Self {
            name: "layer-norm-backward",
            numbers: Distribution::Normal,
            large: &[[262_144, 768], [65_536, 1023], [4096, 16_384], [16_384, 4096]],
        };
        /// Of numbers of many magnitudes, few of which count.
        pub const WIDE: Self = Self {
            name: "layer-norm-backward-wide",
            numbers: Distribution::LogUniform(1e-12, 1e8),
            large: &[[10_000, 1000], [1000, 4096], [100, 16_384]],
        };
    }

    impl Operation for LayerNormBackward {
        fn describe(&self) -> Description {
            Description {
                name: self.name,
                idea: "the derivatives of layer normalisation by x, γ and β; columns are added up by chunks of rows, in order",
                sizes: &["rows", "cols"],
                kernels: vec![
                    layer_norm_dx_of_warp_fp32::FACTS,
                    layer_norm_dx_of_block_fp32::FACTS,
                    layer_norm_dx_long_fp32::FACTS,
                    layer_norm_chunks_fp32::FACTS,
                    layer_norm_columns_fp32::FACTS,
                ],
                // Nothing, one, both ways of loading, about the ends of what each kernel can do, and several chunks of one group of
                // columns and of several.
                small: testkit::cases(&[
                    [0, 5],
                    [3, 0],
                    [1, 1],
                    [9, 31],
                    [100, 128],
                    [33, 129],
                    [1100, 3],
                    [2, 1024],
                    [2, 1025],
                    [1, 4096],
                    [2, 4097],
                ]),
                large: testkit::cases(self.large),
                bits: Bits::Same,
            }
        }

        fn arguments(&self, sizes: &Sizes) -> Result<Vec<Argument>, Error> {
            let [rows, cols] = sizes.get(["rows", "cols"])?;
            let chunks = rows.div_ceil(rows_of_chunk(rows, cols)).max(1);
            Ok(vec![
                Argument::input("x", &[rows, cols], self.numbers),
                Argument::input("dy", &[rows, cols], self.numbers),
                Argument::input("gamma", &[cols], Distribution::Normal),
                // Any will do: the formulas do not ask where they come from.
                Argument::input("mean", &[rows], Distribution::Normal),
                Argument::input("inverse", &[rows], Distribution::Uniform(0.1, 10.0)),
                Argument::output("dx", &[rows, cols]),
                Argument::output("dgamma", &[cols]),
                Argument::output("dbeta", &[cols]),
                Argument::scratch("gammas", &[chunks, cols]),
                Argument::scratch("betas", &[chunks, cols]),
            ])
        }

        fn launch(&self, device: &Device, sizes: &Sizes, views: &Views<'_>) -> Result<(), Error> {
            let [rows, cols] = sizes.get_u32(["rows", "cols"])?;
            let (x, dy, gamma) = (views.read("x")?, views.read("dy")?, views.read("gamma")?);
            let (mean, inverse, dx) = (views.read("mean")?, views.read("inverse")?, views.write("dx")?);
            if cols as usize <= OF_WARP {
                device.launch(layer_norm_dx_of_warp_fp32 { rows, cols, x, dy, gamma, mean, inverse, dx })?;
            } else if cols as usize <= OF_BLOCK {
                device.launch(layer_norm_dx_of_block_fp32 { rows, cols, x, dy, gamma, mean, inverse, dx })?;
            } else {
                device.launch(layer_norm_dx_long_fp32 { rows, cols, x, dy, gamma, mean, inverse, dx })?;
            }
            let of_chunk = rows_of_chunk(rows as usize, cols as usize) as u32;
            let (gammas, betas) = (views.write("gammas")?, views.write("betas")?);
            device.launch(layer_norm_chunks_fp32 { rows, cols, of_chunk, x, dy, mean, inverse, gammas, betas })?;
            let chunks = rows.div_ceil(of_chunk).max(1);
            let (gammas, betas) = (views.read("gammas")?, views.read("betas")?);
            let (dgamma, dbeta) = (views.write("dgamma")?, views.write("dbeta")?);
            Ok(device.launch(layer_norm_columns_fp32 { chunks, cols, gammas, betas, dgamma, dbeta })?)
        }

        fn expected(&self, sizes: &Sizes, values: &Values<'_>) -> Result<Vec<Vec<Expected>>, Error> {
            let [rows, cols] = sizes.get(["rows", "cols"])?;
            let (x, dy, gamma) = (values.of("x")?, values.of("dy")?, values.of("gamma")?);
            let (mean, inverse) = (values.of("mean")?, values.of("inverse")?);
            // The groups of a thread, in the kernel where there are most.
            let groups = cols.div_ceil(FOUR * MANY_THREADS).max(OF_WARP / (FOUR * LANES));
            // a has one, x̂ has two, their product one more, a division, and what makes dx of them three; twice for what is squared.
            let of_dx = roundings_of_sum(groups) + 12;
            // x̂ has two; the rows of a warp's chunk, warps, chunks of a warp, warps.
            let of_chunk = rows_of_chunk(rows, cols);
            let in_order = |rows: usize| rows.div_ceil(WARPS).next_multiple_of(ROWS_AT_ONCE) + WARPS;
            let of_column = 3 + in_order(of_chunk) + in_order(rows.div_ceil(of_chunk));

            let normalized_of = |row: usize| {
                let normalized = |x: &f64| (x - mean[row]) * inverse[row];
                x[row * cols..(row + 1) * cols].iter().map(normalized).collect::<Vec<_>>()
            };
            let dx = testkit::each_row(rows, |row| {
                let of_row = row * cols..(row + 1) * cols;
                let (dy, normalized) = (&dy[of_row], normalized_of(row));
                let a: Vec<_> = dy.iter().zip(gamma).map(|(dy, gamma)| dy * gamma).collect();
                let mean_of = |of: &dyn Fn(usize) -> f64| (0..cols).map(of).sum::<f64>() / cols as f64;
                let [mean_of_a, size_of_a] = [mean_of(&|j| a[j]), mean_of(&|j| a[j].abs())];
                let [slope, steepest] =
                    [mean_of(&|j| a[j] * normalized[j]), mean_of(&|j| (a[j] * normalized[j]).abs())];
                let one = |j: usize| {
                    let value = (a[j] - mean_of_a - normalized[j] * slope) * inverse[row];
                    let magnitude = (a[j].abs() + size_of_a + normalized[j].abs() * steepest) * inverse[row];
                    Expected::rounded(value, of_dx, magnitude)
                };
                (0..cols).map(one).collect()
            });
            // Sums and magnitudes of columns, of parts of the rows that do not depend on the number of threads.
            let of_part = rows.div_ceil(64).max(1);
            let parts = testkit::each(rows.div_ceil(of_part), |part| {
                let mut columns = vec![[[0.0; 2]; 2]; cols];
                for row in part * of_part..rows.min((part + 1) * of_part) {
                    let normalized = normalized_of(row);
                    for (j, column) in columns.iter_mut().enumerate() {
                        let dy = dy[row * cols + j];
                        for (sums, term) in column.iter_mut().zip([dy * normalized[j], dy]) {
                            *sums = [sums[0] + term, sums[1] + term.abs()];
                        }
                    }
                }
                columns
            });
            let mut columns: Vec<[[f64; 2]; 2]> = vec![[[0.0; 2]; 2]; cols];
            for part in &parts {
                for (sums, more) in columns.iter_mut().flatten().zip(part.iter().flatten()) {
                    *sums = [sums[0] + more[0], sums[1] + more[1]];
                }
            }
            let of = |which: usize| {
                let sum = |sums: &[[f64; 2]; 2]| Expected::rounded(sums[which][0], of_column, sums[which][1]);
                columns.iter().map(sum).collect()
            };
            Ok(vec![dx, of(0), of(1)])
        }

        fn operations(&self, sizes: &Sizes) -> f64 {
            // For dx three products, two sums, two differences, a fused multiply-add; for γ and β two, an addition, a fused multiply-add.
            sizes.get(["rows", "cols"]).map_or(0.0, |[rows, cols]| 15.0 * rows as f64 * cols as f64)
        }

        fn bytes(&self, sizes: &Sizes) -> Result<f64, Error> {
            // x and dy are read for the rows, and for the columns, which need all rows.
            let [rows, cols] = sizes.get(["rows", "cols"])?;
            Ok(4.0 * (5.0 * rows as f64 * cols as f64 + 4.0 * rows as f64 + 3.0 * cols as f64))
        }
    }
}
