//! The CPU model of `wgmma`, the asynchronous product of a warpgroup: accumulators are not available, and operands in shared memory
//! must not change, until the group of products has been waited for.
//!
//! ```text
//! warp         fence ─ product ─ product ─ commit ─────────────── wait ── its accumulators
//! its accumulators     └ not there ───────────────────────────────┘
//! shared memory        └ read ─────────────────────── until here ─┘
//! ```
//!
//! Between the first product and the wait that they pass through, accumulators read as NaNs whose bits say which product they are of, or as
//! integers with the same bits. Arithmetic leaves such a NaN as it is; when it is stored, or goes to another lane or into another product,
//! that is reported. The model reads operands in shared memory when the product is issued, so they have to be written by then. It enters a
//! second read at the wait: a write to them has to be ordered after that.
//!
//! A warp computes the 16 rows of the accumulators that its threads hold, whenever it comes to a product. That the other three warps of a
//! warpgroup come to the same ones, in the same order, is looked at when they do, and at the end of the block. The race detector takes the
//! first lane of a warp for the reader.

use core::cell::{RefCell, RefMut};
use core::ops::Range;
use core::panic::Location;
use core::ptr;
use std::collections::VecDeque;
use std::format;
use std::vec;
use std::vec::Vec;

use super::Checks;
use super::backtraces::Spot;
use super::context::{Context, LANES, PAYLOAD, Payload, current};
use super::fault::{AccessKind, FaultKind, WarpOperation};
use super::hooks::{lane, shared_out_of_bounds, words_to_read_by_engine};
use super::identity::DYNAMIC;
use super::meetings::collective;
use super::shared_memory::{WORD, bytes_of, has_products, set_has_products};
use super::steps::{Memory, StepKind};
use super::tma::Tma;
use super::values::{self, trace_in};
use crate::tensor_cores::{Terms, WORDS, sum};
use crate::wgmma::{Kind, MnMajor};
use crate::{Element, TileSwizzle};

/// The bytes of a row of a tile in shared memory.
const ROW: usize = 128;

/// The products of one thread that have not been waited for.
#[derive(Default)]
pub(super) struct Products {
    pending: Vec<Pending>,
    /// What the thread reads for its warp.
    reads: Vec<Read>,
    /// The number of products that the thread has come to in this block.
    come: u64,
    /// The number of groups that have been committed: the number of the group that the next product belongs to.
    committed: u64,
    /// Whether a fence orders what the thread has done with its registers before the next product.
    is_fenced: bool,
    /// The lines of the products that the thread has begun in this block.
    lines: Vec<&'static Location<'static>>,
}

/// The upper half of what accumulators are that have not been waited for: a quiet NaN, whose lower half is the number of a line.
const EARLY: u32 = 0x7FD5_0000;

impl Products {
    /// What an accumulator of a product on this line is until it has been waited for.
    fn early(&mut self, location: &'static Location<'static>) -> u32 {
        let known = self.lines.iter().position(|line| ptr::eq(*line, location));
        let number = known.unwrap_or(self.lines.len());
        if known.is_none() && number <= usize::from(u16::MAX) {
            self.lines.push(location);
        }
        EARLY | number.min(usize::from(u16::MAX)) as u32
    }

    /// The line of the product that a word is an accumulator of, or has been computed from one, if nobody had waited for it.
    fn line_of(&self, word: u32) -> Option<&'static Location<'static>> {
        // A negative is one as well.
        let number = (word & !(1 << 31)).checked_sub(EARLY)?;
        self.lines.get(number as usize).copied()
    }
}

/// Ends the launch if a value that leaves the running thread's registers is an accumulator that has not been waited for, or has been
/// computed from one.
#[inline(always)]
#[track_caller]
pub(crate) fn require_awaited<T: Element>(value: &T) {
    if has_products() && size_of::<T>().is_multiple_of(WORD) && align_of::<T>().is_multiple_of(WORD) {
        // SAFETY: an element has no padding, and this one is of whole words.
        let words = unsafe { core::slice::from_raw_parts(ptr::from_ref(value).cast::<u32>(), size_of::<T>() / WORD) };
        require_words_awaited(words, Location::caller());
    }
}

/// [`require_awaited`] of these words.
#[cold]
#[inline(never)]
pub(super) fn require_words_awaited(words: &[u32], location: &'static Location<'static>) {
    let context = current();
    let products = context.details().products.take();
    let line = words.iter().find_map(|word| products.line_of(*word));
    context.details().products.set(products);
    if let Some(line) = line {
        context.fail(location, FaultKind::SumsNotAwaited { product: line.into() });
    }
}

/// Sums that are under way.
struct Pending {
    /// Where the thread has them.
    place: *const u32,
    /// Their bits.
    values: Vec<u32>,
    group: u64,
    location: &'static Location<'static>,
}

struct Read {
    part: Part,
    group: u64,
    location: &'static Location<'static>,
}

/// The warps of a warpgroup.
const WARPS: usize = 4;

/// Which products the warps of each warpgroup of a block have come to.
#[derive(Default)]
pub(super) struct Warpgroups(RefCell<Vec<Warpgroup>>);

#[derive(Default)]
struct Warpgroup {
    /// How many products each warp has come to.
    come: [usize; WARPS],
    /// How many of them all four have come to.
    over: usize,
    /// The others, with the thread that came to each first.
    awaited: VecDeque<(usize, &'static Location<'static>)>,
    columns: [Columns; WARPS],
}

/// The columns of B in the product that a warp is at. Its lanes come to a product together, and the first that goes on reads the columns for all
/// of them.
#[derive(Default)]
struct Columns {
    /// Which product of a lane it is: the first, the second.
    come: u64,
    of_8: Vec<Terms<8>>,
    of_16: Vec<Terms<16>>,
}

impl Warpgroups {
    pub(super) fn begin_block(&self) {
        set_has_products(false);
        self.0.borrow_mut().clear();
    }

    /// Notes that a thread's warp comes to a product. Returns where another warp has come to another product in its place, if one has.
    fn come(&self, position: usize, location: &'static Location<'static>) -> Option<&'static Location<'static>> {
        let (mut group, warp) = self.of_warp(position);
        let Warpgroup { come, over, awaited, .. } = &mut *group;
        let number = come[warp];
        match awaited.get(number - *over) {
            Some((_, other)) if *other != location => return Some(*other),
            Some(_) => {}
            None => awaited.push_back((position, location)),
        }
        come[warp] += 1;
        while come.iter().all(|come| come > over) {
            *over += 1;
            awaited.pop_front();
        }
        None
    }

    /// The warpgroup of a thread, and which of its warps the thread is of.
    fn of_warp(&self, position: usize) -> (RefMut<'_, Warpgroup>, usize) {
        let (group, warp) = (position / LANES / WARPS, position / LANES % WARPS);
        let mut groups = self.0.borrow_mut();
        if groups.len() <= group {
            groups.resize_with(group + 1, Warpgroup::default);
        }
        (RefMut::map(groups, |groups| &mut groups[group]), warp)
    }

    /// A product that some warps have come to, and others have not, at the end of a block: who has come first and where, and what is wrong.
    pub(super) fn unmet(&self) -> Option<(usize, &'static Location<'static>, FaultKind)> {
        let groups = self.0.borrow();
        groups.iter().find_map(|group| {
            let (position, location) = group.awaited.front()?;
            let come = group.come.iter().filter(|come| **come > group.over).count();
            Some((*position, *location, FaultKind::WarpgroupDivergence { come, other: None }))
        })
    }
}

/// A, of a product.
#[derive(Clone, Copy)]
pub(crate) enum OperandA {
    /// What this thread has of it in registers.
    Registers([u32; 4]),
    /// A tile in shared memory.
    Shared(SharedTile),
}

/// A tile in the dynamic shared memory: the byte where it begins, and how it lies there.
#[derive(Clone, Copy, Debug)]
#[doc(hidden)]
pub enum SharedTile {
    /// 128 bytes are of one row of A or column of B.
    KMajor(usize),
    /// 128 bytes are 64 rows of A or columns of B, of one k. The next 64 are so many bytes behind.
    MnMajor { place: usize, distance: usize },
}

/// What an instruction reads of a tile.
#[derive(Clone)]
struct Part {
    /// The words of the rows of 128 bytes that it reads from.
    rows: Range<usize>,
    /// Where in each of them, before bytes are swizzled, what it reads begins: a multiple of 32 bytes. All of each row if there is none.
    step: Option<usize>,
}

impl Part {
    /// Rows that begin at a byte of the dynamic shared memory, or up to 128 bytes before one.
    fn new(begin: usize, rows: usize, is_step: bool, location: &'static Location<'static>) -> Self {
        let step = (is_step && begin.is_multiple_of(WORDS * WORD)).then_some(begin % ROW);
        Self { rows: tile(begin, rows, location), step }
    }

    /// The words that it reads, in ranges. A step of a row is 32 bytes: the two pieces of 16 that it is made of stay together when bytes are
    /// swizzled.
    fn words(&self) -> impl Iterator<Item = Range<usize>> {
        let distance = if self.step.is_some() { ROW / WORD } else { self.rows.len() };
        self.rows.clone().step_by(distance).map(move |row| match self.step {
            Some(step) => {
                let first = TileSwizzle::Bytes128.apply(row * WORD + step) / WORD / WORDS * WORDS;
                first..first + WORDS
            }
            None => self.rows.clone(),
        })
    }

    /// Enters the reads into the shadow, which there is.
    fn note_read(&self, context: &Context<'_>, location: &'static Location<'static>) {
        self.words().for_each(|words| _ = words_to_read_by_engine(context, words, location));
    }

    /// Ends the launch unless the tensor cores see what threads have written there.
    fn require_visible(&self, context: &Context<'_>, location: &'static Location<'static>) {
        self.words().for_each(|words| Tma::require_visible(context, words, location));
    }
}

/// The extent k of an instruction whose operands may be MN-major.
const HALF_TERMS: usize = 16;

impl SharedTile {
    /// What an instruction may read of so many rows of A or columns of B, the first of which has this number.
    fn parts(self, first: usize, count: usize, location: &'static Location<'static>) -> Vec<Part> {
        match self {
            Self::KMajor(place) => vec![Part::new(place + first * ROW, count, true, location)],
            Self::MnMajor { place, distance } => {
                let blocks = first / MnMajor::WIDTH..(first + count).div_ceil(MnMajor::WIDTH);
                blocks.map(|block| Part::new(place + block * distance, HALF_TERMS, false, location)).collect()
            }
        }
    }

    /// What an instruction takes of a row of A or column of B: 32 bytes. `data` is the dynamic shared memory.
    ///
    /// # Safety
    /// [`SharedTile::parts`] has been called with this row or column: the words are inside. No other OS thread uses the data.
    unsafe fn terms(self, data: *const u32, number: usize) -> [u32; WORDS] {
        // Tiles begin at multiples of 1024 bytes, and 8 rows of 128 bytes are as many.
        let word = |byte: usize| {
            // SAFETY: the caller's promise.
            unsafe { *data.add(TileSwizzle::Bytes128.apply(byte) / WORD) }
        };
        match self {
            Self::KMajor(place) => core::array::from_fn(|i| word(place + number * ROW + WORD * i)),
            Self::MnMajor { place, distance } => {
                let begin = place + number / MnMajor::WIDTH * distance + number % MnMajor::WIDTH * 2;
                let half = |k: usize| {
                    let byte = begin + k * ROW;
                    word(byte / WORD * WORD) >> (8 * (byte % WORD)) & 0xFFFF
                };
                core::array::from_fn(|i| half(2 * i) | half(2 * i + 1) << 16)
            }
        }
    }
}

/// The distance of one part of a tile from the next, which its descriptor can say.
#[track_caller]
pub(crate) fn tile_distance(bytes: u32) -> usize {
    let alignment = TileSwizzle::Bytes128.alignment() as u32;
    assert!(
        bytes.is_multiple_of(alignment) && bytes < 1 << 18,
        "parts of a tile are {bytes} bytes apart: a descriptor has multiples of {alignment} below 262144"
    );
    bytes as usize
}

/// What accumulators are: 32 bits.
pub(crate) trait Number: Sized + 'static {
    /// The bits of numbers, in their place.
    fn bits_of(numbers: &mut [Self]) -> &mut [u32];
}

impl Number for f32 {
    fn bits_of(numbers: &mut [Self]) -> &mut [u32] {
        // SAFETY: as large and aligned as u32, and all bits are those of a number on either side.
        unsafe { core::slice::from_raw_parts_mut(numbers.as_mut_ptr().cast(), numbers.len()) }
    }
}

impl Number for i32 {
    fn bits_of(numbers: &mut [Self]) -> &mut [u32] {
        // SAFETY: as above.
        unsafe { core::slice::from_raw_parts_mut(numbers.as_mut_ptr().cast(), numbers.len()) }
    }
}

/// Multiplies, and adds to the accumulators of this thread or sets them: 64×N of a warpgroup, for twice as many columns as it has accumulators.
#[track_caller]
pub(crate) fn multiply<T: Number>(sums: &mut [T], kind: Kind, a: OperandA, b: SharedTile, adds: bool) {
    multiply_bits(T::bits_of(sums), kind, a, b, adds);
}

#[track_caller]
fn multiply_bits(sums: &mut [u32], kind: Kind, a: OperandA, b: SharedTile, adds: bool) {
    let (context, location) = (current(), Location::caller());
    context.require_headroom();
    let registers = match a {
        OperandA::Registers(registers) => registers,
        OperandA::Shared(_) => [0; 4],
    };
    let mut payload = [0; PAYLOAD];
    payload[..4].copy_from_slice(&registers);
    let quad = collective(WarpOperation::Wgmma, payload, share_registers);
    if lane() == 0
        && let Some(other) = context.warpgroups.come(context.current.get(), location)
    {
        context.fail(location, FaultKind::WarpgroupDivergence { come: 1, other: Some(other.into()) });
    }

    let (warp, lane) = (context.current.get() / LANES % 4, lane() as usize);
    let (g, q) = (lane / 4, lane % 4);
    let columns = 2 * sums.len();
    let is_mn_major = |tile: SharedTile| matches!(tile, SharedTile::MnMajor { .. });
    assert!(
        matches!(kind, Kind::Bf16 | Kind::Fp16)
            || !(is_mn_major(b) || matches!(a, OperandA::Shared(a) if is_mn_major(a))),
        "only formats of 16 bits have operands that are MN-major, not {kind:?}"
    );
    let mut parts = b.parts(0, columns, location);
    if let OperandA::Shared(a) = a {
        parts.extend(a.parts(16 * warp, 16, location));
    }
    let mut products = context.details().products.take();
    let group = products.committed;
    let place = sums.as_ptr();
    let position = products.pending.iter().position(|pending| pending.place == place);
    // Only products have had to do with accumulators that are under way, and these are in order among themselves.
    let registers_are_untouched = position.is_some() && matches!(a, OperandA::Shared(_));
    if !products.is_fenced && !registers_are_untouched {
        context.fail(location, FaultKind::RegistersNotFenced);
    }
    context.note_step(StepKind::Wgmma, location, |note, steps| {
        let bytes = parts.iter().map(|part| bytes_of(&part.rows));
        let of_a = if matches!(a, OperandA::Shared(_)) { "shared memory" } else { "registers" };
        let first = if adds { "" } else { ", sets the accumulators" };
        let note = note.at(steps, Memory::Shared(&DYNAMIC), bytes).phase(group);
        note.text(format!("64×{columns} {kind:?}, A from {of_a}{first}"))
    });
    if lane == 0 {
        if context.checks == Checks::Full {
            for part in &parts {
                part.note_read(context, location);
                part.require_visible(context, location);
            }
        }
        products.reads.extend(parts.iter().cloned().map(|part| Read { part, group, location }));
    }
    // Without the shadow, which only the first lane needs: the words are inside.
    let data = words_to_read_by_engine(context, 0..0, location).cast::<u32>().cast_const();
    let rows = match a {
        OperandA::Registers(_) => rows_of_quad(&quad),
        // SAFETY: the words were looked at above, with these rows. No other OS thread uses the data.
        OperandA::Shared(a) => [g, g + 8].map(|row| unsafe { a.terms(data, 16 * warp + row) }),
    };

    let mut pending = match position {
        Some(position) => products.pending.swap_remove(position),
        None => Pending { place, values: sums.to_vec(), group, location },
    };
    // SAFETY: likewise, with these columns.
    let column = |number: usize| unsafe { b.terms(data, number) };
    products.come += 1;
    let (mut group_of_warps, warp) = context.warpgroups.of_warp(context.current.get());
    let known = &mut group_of_warps.columns[warp];
    let is_first = known.come != products.come;
    known.come = products.come;
    let under_way = &mut *pending.values;
    match kind {
        Kind::Tf32 => {
            let columns = kept(&mut known.of_8, is_first, columns, |number| Terms::new(kind, &column(number)));
            add_products(under_way, &rows.each_ref().map(|words| Terms::new(kind, words)), columns, q, adds);
        }
        Kind::Bf16 | Kind::Fp16 => {
            let columns = kept(&mut known.of_16, is_first, columns, |number| Terms::new(kind, &column(number)));
            add_products(under_way, &rows.each_ref().map(|words| Terms::new(kind, words)), columns, q, adds);
        }
        Kind::Int8 => add_integers(under_way, &rows, |group, second| column(8 * group + 2 * q + second), adds),
    }
    drop(group_of_warps);
    values::made_by_sums(context, context.current.get(), "a product of a warpgroup", location);
    sums.fill(products.early(location));
    set_has_products(true);
    products.pending.push(Pending { group, ..pending });
    context.details().products.set(products);
}

/// What is kept, after the first has made it. (Lanes that came to products of different sizes have no right result, but one of their own.)
fn kept<T>(known: &mut Vec<T>, is_first: bool, count: usize, make: impl Fn(usize) -> T) -> &[T] {
    if is_first || known.len() != count {
        known.clear();
        known.extend((0..count).map(make));
    }
    known
}

/// Adds the products of a K-step to the accumulators of a thread, or sets these to them: of two rows, and of two columns of each group of eight,
/// those of lane `q` of a quad.
fn add_products<const K: usize>(sums: &mut [u32], rows: &[Terms<K>; 2], columns: &[Terms<K>], q: usize, adds: bool) {
    for (sums, columns) in sums.chunks_mut(4).zip(columns.chunks(8)) {
        for second in 0..2 {
            for (half, row) in rows.iter().enumerate() {
                let value = &mut sums[2 * half + second];
                let addend = if adds { f32::from_bits(*value) } else { 0.0 };
                *value = sum(row, &columns[2 * q + second], addend).to_bits();
            }
        }
    }
}

/// The same with the integers that are the bytes of the words.
fn add_integers(sums: &mut [u32], rows: &[[u32; WORDS]; 2], column: impl Fn(usize, usize) -> [u32; WORDS], adds: bool) {
    for (group, sums) in sums.chunks_mut(4).enumerate() {
        for second in 0..2 {
            let column = column(group, second);
            for (half, row) in rows.iter().enumerate() {
                let value = &mut sums[2 * half + second];
                let sum = row.iter().zip(&column).map(|(&a, &b)| product_of_bytes(a, b)).sum::<i32>();
                *value = (if adds { *value } else { 0 }).wrapping_add_signed(sum);
            }
        }
    }
}

/// The sum of the products of four bytes, as signed integers.
fn product_of_bytes(a: u32, b: u32) -> i32 {
    let of = |word: u32| word.to_le_bytes().map(|byte| i32::from(byte.cast_signed()));
    of(a).iter().zip(of(b)).map(|(a, b)| a * b).sum()
}

/// The words of a tile of so many rows, which begins at a byte of the dynamic shared memory, or up to 128 bytes behind one.
fn tile(begin: usize, rows: usize, location: &'static Location<'static>) -> Range<usize> {
    let (first, end) = (begin / ROW * ROW, begin / ROW * ROW + rows * ROW);
    if end > current().dynamic_bytes {
        shared_out_of_bounds(&DYNAMIC, first / WORD..end / WORD, location);
    }
    first / WORD..end / WORD
}

/// Gives each lane what the four lanes of its quad have in registers: sixteen words.
fn share_registers(lanes: &mut [Payload; LANES]) {
    let before = *lanes;
    for (lane, payload) in lanes.iter_mut().enumerate() {
        for (i, word) in payload.iter_mut().enumerate() {
            *word = before[lane / 4 * 4 + i / 4][i % 4];
        }
    }
}

/// The two rows of A that a quad has: lane q has words q and q + 4 of each.
fn rows_of_quad(quad: &Payload) -> [[u32; WORDS]; 2] {
    [0, 1].map(|second| core::array::from_fn(|word| quad[4 * (word % 4) + 2 * (word / 4) + second]))
}

/// Comes to an instruction of the warpgroup that only orders.
#[track_caller]
pub(crate) fn fence_products() {
    if current().leaves_out("wgmma::fence", Location::caller()) {
        return;
    }
    collective(WarpOperation::WgmmaFence, [0; PAYLOAD], |_| ());
    set_fenced(true);
}

/// Makes a group of the products since the last one.
#[track_caller]
pub(crate) fn commit_products() {
    if current().leaves_out("wgmma::commit", Location::caller()) {
        return;
    }
    collective(WarpOperation::WgmmaCommit, [0; PAYLOAD], |_| ());
    let products = &current().details().products;
    let before = products.take();
    current().note_step(StepKind::WgmmaCommit, Location::caller(), |note, _| note.phase(before.committed));
    // Registers with an operand may be written from here on, and others have been all the time.
    products.set(Products { committed: before.committed + 1, is_fenced: false, ..before });
}

fn set_fenced(is_fenced: bool) {
    let products = &current().details().products;
    let before = products.take();
    products.set(Products { is_fenced, ..before });
}

/// Waits until at most the `latest` groups are under way, and puts accumulators where they belong, if these are some that have been waited
/// for.
#[track_caller]
pub(crate) fn wait_for_products<T: Number>(sums: &mut [T], latest: u64) {
    wait_for_bits(T::bits_of(sums), latest);
    let location = Location::caller();
    sums.iter().for_each(|sum| trace_in(sum, location));
}

#[track_caller]
fn wait_for_bits(sums: &mut [u32], latest: u64) {
    let Some(latest) = current().change_pending("Sums::wait", Location::caller(), latest) else { return };
    collective(WarpOperation::WgmmaWait, [0; PAYLOAD], |_| ());
    let context = current();
    context.require_headroom();
    let mut products = context.details().products.take();
    let end = products.committed.saturating_sub(latest);
    context.note_step(StepKind::WgmmaWait, Location::caller(), |note, _| note.phase(end).until_under_way(latest));
    let done = |pending: &Pending| pending.group < end && pending.place == sums.as_ptr();
    if let Some(position) = products.pending.iter().position(done) {
        sums.copy_from_slice(&products.pending.swap_remove(position).values);
        products.is_fenced = false;
    }
    products.reads.retain(|read| {
        let is_over = read.group < end;
        if is_over && context.checks == Checks::Full {
            read.part.note_read(context, read.location);
        }
        !is_over
    });
    context.details().products.set(products);
}

/// Ends the launch if words that a load is about to overwrite are still read by products that nobody has waited for.
pub(super) fn require_read(context: &Context<'_>, target: &Range<usize>, location: &'static Location<'static>) {
    if let Some((word, position, line)) = pending_read(context, target) {
        let thread = context.threads[position].index;
        let other = context.other_access(thread, line, AccessKind::Read, Spot::dynamic_word(word));
        context.fail(location, FaultKind::InFlight { element: DYNAMIC.index(word), other });
    }
}

/// The first of some words of a block's dynamic shared memory that a product reads which nobody has waited for: its thread and its line.
pub(super) fn pending_read(
    context: &Context<'_>,
    words: &Range<usize>,
) -> Option<(usize, usize, &'static Location<'static>)> {
    context.details.iter().enumerate().step_by(LANES).find_map(|(position, details)| {
        let products = details.products.take();
        let mut reads = products.reads.iter();
        let read = reads.find(|read| read.part.rows.start < words.end && words.start < read.part.rows.end);
        let read = read.map(|read| (read.part.rows.start.max(words.start), position, read.location));
        details.products.set(products);
        read
    })
}

/// Ends the launch if the running thread, which returns from the kernel, has accumulators under way.
pub(super) fn require_no_products() {
    let context = current();
    let products = context.details().products.take();
    if let Some(pending) = products.pending.first() {
        context.fail(pending.location, FaultKind::ProductNotAwaited);
    }
    // What is kept are the allocations: with the last accumulators, the last reads are over.
    let Products { pending, reads, mut lines, .. } = products;
    lines.clear();
    context.details().products.set(Products { pending, reads, come: 0, committed: 0, is_fenced: false, lines });
}
