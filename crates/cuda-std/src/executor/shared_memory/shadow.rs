//! The shadow of shared memory: for each 4 bytes, who accessed them last; and where threads access parts of a word, for each byte
//! of it.
//!
//! ```text
//! word      0              1              2                              a `u8` at byte 5, an `f16` at bytes 6 and 7
//! shadow    ├── whole ──┤  ├─┬─┬─┬─┤      ├── whole ──┤
//!                           4 5 6 7                                      records of bytes, until a write of the whole word
//! ```
//!
//! What holds of a record holds of all bytes that it is of. So an access to a whole word is compared with the records of all its bytes,
//! and a word that nobody has accessed in parts costs no more than if there were no parts.

mod from_cluster;

use core::ops::Range;

use super::*;

/// When and by whom an access was made. Zero is never: there is no tick 0.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Stamp(u64);

impl Stamp {
    /// For the threads of the largest block, and for TMA, which has the number behind them.
    const THREAD_BITS: u32 = MAX_THREADS.ilog2() + 1;
    const NEVER: Self = Self(0);

    #[inline]
    fn new(interval: u64, thread: usize) -> Self {
        Self(interval << Self::THREAD_BITS | thread as u64)
    }

    #[inline]
    fn interval(self) -> u64 {
        self.0 >> Self::THREAD_BITS
    }

    #[inline]
    fn thread(self) -> usize {
        (self.0 & ((1 << Self::THREAD_BITS) - 1)) as usize
    }
}

/// An access, as the shadow remembers it.
#[derive(Clone, Copy)]
struct Access {
    stamp: Stamp,
    /// `None` only if there was no access.
    location: Option<&'static Location<'static>>,
}

impl Access {
    const NONE: Self = Self { stamp: Stamp::NEVER, location: None };
}

/// Reads by lanes of a warp, in one interval, on one line.
#[derive(Clone, Copy)]
struct WarpReads {
    location: &'static Location<'static>,
    interval: u64,
    warp: u32,
    lanes: u32,
}

impl WarpReads {
    fn accesses(self) -> impl Iterator<Item = Access> {
        let thread = move |lane: usize| self.warp as usize * LANES + lane;
        lanes_in(self.lanes)
            .map(move |lane| Access { stamp: Stamp::new(self.interval, thread(lane)), location: Some(self.location) })
    }
}

/// What is remembered of a word, or of a byte of one: the last write, and up to two reads and two atomic operations after it. If one of the reads
/// belongs to the present epoch, the first does, and likewise of the atomic operations.
#[derive(Clone)]
struct Record {
    write: Access,
    reads: [Access; 2],
    /// All reads, where two do not tell enough. They are of the epoch that the two are of.
    more_reads: Vec<WarpReads>,
    atomics: [Access; 2],
    /// The last atomic operation that left something there.
    stored: Stamp,
}

impl Record {
    const NONE: Self = Self {
        write: Access::NONE,
        reads: [Access::NONE; 2],
        more_reads: Vec::new(),
        atomics: [Access::NONE; 2],
        stored: Stamp::NEVER,
    };
}

/// Which bytes of a word an access is of.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(in super::super) struct WordBytes {
    first: u8,
    end: u8,
}

impl WordBytes {
    /// All of them.
    pub(in super::super) const ALL: Self = Self { first: 0, end: WORD as u8 };

    /// Each word that some of these bytes are in, with the bytes in it.
    #[inline]
    pub(in super::super) fn of_words(bytes: Range<usize>) -> impl Iterator<Item = (usize, Self)> {
        words_of(&bytes).map(move |word| {
            let within = |byte: usize| (byte - word * WORD) as u8;
            let (first, end) = (bytes.start.max(word * WORD), bytes.end.min((word + 1) * WORD));
            (word, Self { first: within(first), end: within(end) })
        })
    }

    /// The first of them, of a word of an array.
    pub(in super::super) fn in_array(self, word: usize) -> usize {
        word * WORD + usize::from(self.first)
    }

    /// Where all of them are, of a word of an array.
    pub(in super::super) fn range_in_array(self, word: usize) -> Range<usize> {
        word * WORD + usize::from(self.first)..word * WORD + usize::from(self.end)
    }

    fn positions(self) -> Range<usize> {
        self.first.into()..self.end.into()
    }
}

/// The shadow of one word, apart from its key.
#[derive(Clone)]
pub(super) struct Shadow {
    /// What is remembered of all bytes alike. It says nothing where there are parts.
    whole: Record,
    parts: Option<Box<Parts>>,
}

/// What is remembered of each byte of a word.
#[derive(Clone)]
struct Parts {
    records: [Record; WORD],
    /// The key of the word is theirs if they are all the same, and otherwise none.
    keys: [u64; WORD],
}

impl Parts {
    /// The key of the word.
    fn key(&self) -> u64 {
        if self.keys.iter().all(|key| *key == self.keys[0]) { self.keys[0] } else { 0 }
    }
}

impl Shadow {
    pub(super) const NONE: Self = Self { whole: Record::NONE, parts: None };

    /// The parts of a word with this key. Allocates where there are none.
    fn parts(&mut self, key: u64) -> &mut Parts {
        let whole = &self.whole;
        self.parts.get_or_insert_with(|| {
            Box::new(Parts { records: core::array::from_fn(|_| whole.clone()), keys: [key; WORD] })
        })
    }

    /// All records that say something.
    fn records(&mut self) -> &mut [Record] {
        match &mut self.parts {
            Some(parts) => &mut parts.records,
            None => core::slice::from_mut(&mut self.whole),
        }
    }
}

/// A conflict that the shadow has shown.
pub(in super::super) struct Conflict {
    pub(in super::super) thread: usize,
    pub(in super::super) interval: u64,
    pub(in super::super) location: &'static Location<'static>,
    pub(in super::super) access: AccessKind,
    /// The first byte of the word of which it is one.
    pub(in super::super) byte: usize,
}

/// How an atomic operation on shared memory is called: whoever can reach it is in the block.
const ATOMIC: AccessKind = AccessKind::Atomic { scope: crate::atomic::Scope::Device, bytes: 4 };

/// Whether bytes had been written before they were read.
#[derive(PartialEq, Eq)]
pub(in super::super) enum Content {
    Written,
    /// Not all of them.
    Unwritten,
}

impl Content {
    fn new(is_written: bool) -> Self {
        if is_written { Self::Written } else { Self::Unwritten }
    }
}

/// The key and the shadow of a word.
///
/// # Safety
/// The running block uses the array, which has keys, and `word` is one of its words. Nobody else holds these references: no two
/// threads of a block run at once, and nobody keeps them.
#[inline(always)]
unsafe fn entries<'a>(array: &SharedIdentity, word: usize) -> (&'a mut u64, &'a mut Shadow) {
    let (keys, shadows) = with_placement(array, |placement| (placement.keys.get(), placement.shadows.get()));
    // SAFETY: there is a key and a shadow for each word of the array; the rest is the caller's promise.
    unsafe { (&mut *keys.add(word), &mut *shadows.add(word)) }
}

/// An access by `thread`, which runs.
#[inline(always)]
fn access(thread: usize, location: &'static Location<'static>) -> Access {
    Access { stamp: Stamp::new(FAST_PATH.with(|path| path.interval.get()), thread), location: Some(location) }
}

/// Makes sure that there is stack to allocate on, or to free.
fn require_headroom() {
    current().require_headroom();
}

impl SharedMemory {
    /// Enters a write of these bytes of a word by `thread`, which runs, into the shadow.
    ///
    /// # Safety
    /// The running block uses the array, which has keys, and `word` is one of its words.
    #[inline]
    pub(in super::super) unsafe fn note_write(
        &self,
        array: &SharedIdentity,
        word: usize,
        bytes: WordBytes,
        thread: usize,
        location: &'static Location<'static>,
    ) -> Result<(), Conflict> {
        // SAFETY: the caller's promise.
        let (key, shadow) = unsafe { entries(array, word) };
        let me = access(thread, location);
        if bytes != WordBytes::ALL || shadow.parts.is_some() {
            return self.note_write_in_parts(key, shadow, bytes, me);
        }
        self.enter_write(&mut shadow.whole, me)?;
        *key = 0;
        Ok(())
    }

    #[inline(never)]
    fn note_write_in_parts(
        &self,
        key: &mut u64,
        shadow: &mut Shadow,
        bytes: WordBytes,
        me: Access,
    ) -> Result<(), Conflict> {
        require_headroom();
        let parts = shadow.parts(*key);
        for byte in bytes.positions() {
            self.enter_write(&mut parts.records[byte], me).map_err(|conflict| Conflict { byte, ..conflict })?;
            parts.keys[byte] = 0;
        }
        if bytes == WordBytes::ALL {
            // What is remembered is the same of all of them again.
            shadow.whole = Record { write: me, ..Record::NONE };
            shadow.parts = None;
        }
        *key = 0;
        Ok(())
    }

    #[inline(always)]
    fn enter_write(&self, record: &mut Record, me: Access) -> Result<(), Conflict> {
        let epoch = Stamp::new(self.epoch.get(), 0);
        if record.write.stamp >= epoch || record.reads[0].stamp >= epoch || record.atomics[0].stamp >= epoch {
            self.conflict(record.write, me.stamp, AccessKind::Write)?;
            self.conflict(record.atomics[0], me.stamp, ATOMIC)?;
            self.conflict(record.atomics[1], me.stamp, ATOMIC)?;
            self.conflict(record.reads[0], me.stamp, AccessKind::Read)?;
            self.conflict(record.reads[1], me.stamp, AccessKind::Read)?;
            self.conflict_with_any(&mut record.more_reads, me.stamp)?;
            (record.reads, record.atomics) = ([Access::NONE; 2], [Access::NONE; 2]);
        }
        record.write = me;
        Ok(())
    }

    /// Enters an atomic operation on one word by `thread`, which runs, into the shadow.
    ///
    /// # Safety
    /// As for [`SharedMemory::note_write`].
    pub(in super::super) unsafe fn note_atomic(
        &self,
        array: &SharedIdentity,
        word: usize,
        thread: usize,
        location: &'static Location<'static>,
    ) -> Result<Content, Conflict> {
        // SAFETY: the caller's promise.
        let (key, shadow) = unsafe { entries(array, word) };
        let me = access(thread, location);
        let mut is_written = true;
        for (byte, record) in shadow.records().iter_mut().enumerate() {
            is_written &= self.enter_atomic(record, me).map_err(|conflict| Conflict { byte, ..conflict })?;
        }
        if let Some(parts) = &mut shadow.parts {
            parts.keys = [0; WORD];
        }
        *key = 0;
        Ok(Content::new(is_written))
    }

    /// Returns whether there had been something.
    fn enter_atomic(&self, record: &mut Record, me: Access) -> Result<bool, Conflict> {
        let epoch = Stamp::new(self.epoch.get(), 0);
        if record.write.stamp >= epoch || record.reads[0].stamp >= epoch {
            self.conflict(record.write, me.stamp, AccessKind::Write)?;
            self.conflict(record.reads[0], me.stamp, AccessKind::Read)?;
            self.conflict(record.reads[1], me.stamp, AccessKind::Read)?;
            self.conflict_with_any(&mut record.more_reads, me.stamp)?;
            record.reads = [Access::NONE; 2];
        }
        if record.atomics[0].stamp < epoch {
            record.atomics = [me, Access::NONE];
        } else {
            self.add_read(&mut record.atomics, me);
        }
        let is_written = self.is_written(record);
        record.stored = me.stamp;
        Ok(is_written)
    }

    /// Whether the running block has written what a record is of.
    fn is_written(&self, record: &Record) -> bool {
        record.write.stamp.max(record.stored) >= Stamp::new(self.block.get(), 0)
    }

    /// Enters a write by TMA, which `thread` stands for. It has been compared with other accesses at its issue.
    ///
    /// # Safety
    /// As for [`SharedMemory::note_write`].
    pub(in super::super) unsafe fn note_load(
        &self,
        array: &SharedIdentity,
        word: usize,
        thread: usize,
        location: &'static Location<'static>,
    ) {
        // SAFETY: the caller's promise.
        let (key, shadow) = unsafe { entries(array, word) };
        for record in shadow.records() {
            record.write = access(thread, location);
            (record.reads, record.atomics) = ([Access::NONE; 2], [Access::NONE; 2]);
            record.more_reads.clear();
        }
        if let Some(parts) = &mut shadow.parts {
            parts.keys = [0; WORD];
        }
        *key = 0;
    }

    /// Of the first of these words of the dynamic shared memory that a thread has written last in this block, or a part of it, unless `is_fine`
    /// with that thread and interval: the word, the thread, and where. None where nothing is known of the memory. The words are inside.
    pub(in super::super) fn writer_unless(
        &self,
        words: Range<usize>,
        is_fine: impl Fn(usize, u64) -> bool,
    ) -> Option<(usize, (usize, &'static Location<'static>))> {
        let shadows = with_placement(&DYNAMIC, |placement| placement.shadows.get());
        if shadows.is_null() {
            return None;
        }
        let began = Stamp::new(self.block.get(), 0);
        words.into_iter().find_map(|word| {
            // SAFETY: there is a shadow for each word of the array, and the word is inside, as whoever asks has checked. Nobody else holds a
            // reference: no two threads of a block run at once, and nobody keeps them.
            let shadow = unsafe { &mut *shadows.add(word) };
            shadow.records().iter().find_map(|record| {
                let Access { stamp, location } = record.write;
                let line = location.filter(|_| stamp >= began && !is_fine(stamp.thread(), stamp.interval()))?;
                Some((word, (stamp.thread(), line)))
            })
        })
    }

    /// Who has written a word of an array last in this block, and where, if accesses are checked.
    pub(in super::super) fn last_write(
        &self,
        array: &SharedIdentity,
        word: usize,
    ) -> Option<(usize, &'static Location<'static>)> {
        if with_placement(array, |placement| placement.keys.get()).is_null() {
            return None;
        }
        // SAFETY: the running block uses the array, which has keys; whoever waits for the word has accessed it.
        let (_, shadow) = unsafe { entries(array, word) };
        let of_block = Stamp::new(self.block.get(), 0);
        let writes = shadow.records().iter().map(|record| record.write);
        let last = writes.filter(|write| write.stamp >= of_block).max_by_key(|write| write.stamp)?;
        Some((last.stamp.thread(), last.location?))
    }

    /// Makes a word one that nobody has written.
    ///
    /// # Safety
    /// As for [`SharedMemory::note_write`].
    pub(in super::super) unsafe fn forget_write(&self, array: &SharedIdentity, word: usize) {
        // SAFETY: the caller's promise.
        let (_, shadow) = unsafe { entries(array, word) };
        for record in shadow.records() {
            (record.write, record.stored) = (Access::NONE, Stamp::NEVER);
        }
    }

    /// Enters a read of these bytes of a word by `thread`, which runs, into the shadow.
    ///
    /// # Safety
    /// As for [`SharedMemory::note_write`].
    #[inline]
    pub(in super::super) unsafe fn note_read(
        &self,
        array: &SharedIdentity,
        word: usize,
        bytes: WordBytes,
        thread: usize,
        location: &'static Location<'static>,
    ) -> Result<Content, Conflict> {
        // SAFETY: the caller's promise.
        let (key, shadow) = unsafe { entries(array, word) };
        let me = access(thread, location);
        if bytes != WordBytes::ALL || shadow.parts.is_some() {
            return self.note_read_in_parts(key, shadow, bytes, me);
        }
        self.enter_read(&mut shadow.whole, me, key).map(Content::new)
    }

    #[inline(never)]
    fn note_read_in_parts(
        &self,
        key: &mut u64,
        shadow: &mut Shadow,
        bytes: WordBytes,
        me: Access,
    ) -> Result<Content, Conflict> {
        require_headroom();
        let parts = shadow.parts(*key);
        let mut is_written = true;
        for byte in bytes.positions() {
            is_written &= self
                .enter_read(&mut parts.records[byte], me, &mut parts.keys[byte])
                .map_err(|conflict| Conflict { byte, ..conflict })?;
        }
        *key = parts.key();
        Ok(Content::new(is_written))
    }

    /// Returns whether there is something to read. Sets the key if there are readers enough.
    #[inline(always)]
    fn enter_read(&self, record: &mut Record, me: Access, key: &mut u64) -> Result<bool, Conflict> {
        let epoch = Stamp::new(self.epoch.get(), 0);
        if record.write.stamp >= epoch || record.atomics[0].stamp >= epoch {
            self.conflict(record.write, me.stamp, AccessKind::Write)?;
            self.conflict(record.atomics[0], me.stamp, ATOMIC)?;
            self.conflict(record.atomics[1], me.stamp, ATOMIC)?;
        }
        if record.reads[0].stamp < epoch {
            record.reads[0] = me;
            record.more_reads.clear();
            if self.clocks.are_in_use() {
                self.add_read_to_all(record, me);
            }
        } else if self.clocks.are_in_use() {
            self.add_read_to_all(record, me);
        } else if let Some(enough) = self.add_read(&mut record.reads, me) {
            *key = enough;
        }
        Ok(self.is_written(record))
    }

    /// Adds a read to others of the same epoch, all of which are kept: a writer may be ordered after any of them and not after
    /// the rest. Those of a warp are one entry, so that they are as quickly found as few.
    fn add_read_to_all(&self, record: &mut Record, read: Access) {
        let Some(location) = read.location else { return };
        let (warp, lane) = ((read.stamp.thread() / LANES) as u32, read.stamp.thread() % LANES);
        let interval = read.stamp.interval();
        // A thread's last read is enough: what is ordered after it is ordered after its earlier ones.
        let (mut is_known, mut is_over) = (false, false);
        for known in record.more_reads.iter_mut().filter(|known| known.warp == warp) {
            if known.interval == interval && ptr::eq(known.location, location) {
                known.lanes |= 1 << lane;
                is_known = true;
            } else {
                known.lanes &= !(1 << lane);
                is_over |= known.lanes == 0;
            }
        }
        if is_over {
            record.more_reads.retain(|known| known.lanes != 0);
        }
        if is_known {
            return;
        }
        record.more_reads.push(WarpReads { location, interval, warp, lanes: 1 << lane });
    }

    /// Adds a read to others of the same epoch. Returns the key if with it there are enough.
    fn add_read(&self, reads: &mut [Access; 2], read: Access) -> Option<u64> {
        let me = read.stamp;
        // The reads that a writer may conflict with although it is ordered after this one.
        let mut open = reads.iter().copied().filter(|other| self.unordered(other.stamp, me));
        match (open.next(), open.next()) {
            (None, _) => {
                *reads = [read, Access::NONE];
                None
            }
            (Some(other), None) => {
                *reads = [other, read];
                if other.stamp.thread() / LANES != me.thread() / LANES {
                    Some(self.epoch.get())
                } else {
                    (other.stamp.interval() == me.interval()).then_some(me.interval())
                }
            }
            (Some(first), Some(_)) if first.stamp.thread() / LANES != me.thread() / LANES => {
                *reads = [first, read];
                Some(self.epoch.get())
            }
            // Two lanes of this warp are enough.
            (Some(_), Some(_)) => None,
        }
    }

    /// Whether nothing orders what a thread did in an interval before what `me` is doing, both of the running block.
    pub(in super::super) fn is_unordered(&self, thread: usize, interval: u64, me: usize) -> bool {
        self.unordered(Stamp::new(interval, thread), Stamp::new(0, me))
    }

    /// Whether nothing orders an earlier access before what `me` is doing.
    fn unordered(&self, other: Stamp, me: Stamp) -> bool {
        if other.interval() < self.epoch.get() || other.thread() == me.thread() {
            return false;
        }
        if self.clocks.known(me.thread(), other.thread()) > other.interval() {
            return false;
        }
        let warp = me.thread() / LANES;
        if other.thread() / LANES != warp {
            return true;
        }
        let clock = &self.warps[warp];
        other.interval() >= clock.full.get()
            && clock
                .known
                .borrow()
                .as_ref()
                .is_none_or(|known| other.interval() >= known[me.thread() % LANES][other.thread() % LANES])
    }

    /// Compares a write with all reads, and forgets them.
    fn conflict_with_any(&self, reads: &mut Vec<WarpReads>, me: Stamp) -> Result<(), Conflict> {
        let mut all = reads.drain(..).flat_map(WarpReads::accesses);
        all.try_for_each(|read| self.conflict(read, me, AccessKind::Read))
    }

    fn conflict(&self, other: Access, me: Stamp, access: AccessKind) -> Result<(), Conflict> {
        match other.location {
            Some(location) if self.unordered(other.stamp, me) => {
                let (thread, interval) = (other.stamp.thread(), other.stamp.interval());
                Err(Conflict { thread, interval, location, access, byte: 0 })
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readers_that_every_writer_conflicts_with_are_kept() {
        let memory = SharedMemory::new();
        memory.begin_block();
        let mut reads = [Access::NONE; 2];
        let mut read = |thread: usize| {
            let stamp = Stamp::new(memory.first_interval(thread / LANES), thread);
            let key = memory.add_read(&mut reads, Access { stamp, location: Some(Location::caller()) });
            (key, reads.map(|read| read.stamp.thread()))
        };
        assert_eq!(read(3), (None, [3, 0]));
        assert_eq!(read(3), (None, [3, 0]));
        assert_eq!(read(4), (Some(memory.first_interval(0)), [3, 4]));
        assert_eq!(read(5), (None, [3, 4]));
        // A writer in warp 0 may be ordered after the others, but not after this one.
        assert_eq!(read(40), (Some(memory.epoch.get()), [3, 40]));
    }
}
