//! What other blocks of the cluster ask a block's shadow, and enter there: whether there is something. The rest of their accesses is in the
//! shadow of the cluster (`remote.rs`). All of this happens while the block to which the memory belongs does not have its turn.

use super::*;

impl SharedMemory {
    /// Notes that another block of the cluster writes bytes of an array, which has been prepared and is checked.
    pub(in super::super::super) fn note_remote_write(&self, array: &SharedIdentity, bytes: Range<usize>) {
        let now = Stamp::new(self.clock.get(), 0);
        self.records_of(array, bytes, |record| record.stored = now);
    }

    /// Whether bytes of an array, which has been prepared and is checked, have been written: another block of the cluster reads them.
    pub(in super::super::super) fn is_written_remotely(&self, array: &SharedIdentity, bytes: Range<usize>) -> bool {
        let mut is_written = true;
        self.records_of(array, bytes, |record| is_written &= self.is_written(record));
        is_written
    }

    /// Makes words of the dynamic shared memory, which has been prepared and is checked, such that nobody has written.
    pub(in super::super::super) fn forget_remote_writes(&self, words: Range<usize>) {
        self.records_of(&DYNAMIC, bytes_of(&words), |record| {
            (record.write, record.stored) = (Access::NONE, Stamp::NEVER);
        });
    }

    /// Calls `visit` with the records of bytes of an array, which has been prepared and is checked, while the block to which the memory
    /// belongs does not have its turn.
    fn records_of(&self, array: &SharedIdentity, bytes: Range<usize>, mut visit: impl FnMut(&mut Record)) {
        let mut storage = self.storage.borrow_mut();
        let Storage { keys, shadows, .. } = &mut storage[array.assigned_number()];
        assert!(bytes.end <= keys.len() * WORD, "the array has been prepared, and the access is inside");
        // The block has pointers to these words, which have to stay valid: no reference is made to all of them.
        let (keys, shadows) = (keys.as_mut_ptr(), shadows.as_mut_ptr());
        for (word, bytes) in WordBytes::of_words(bytes) {
            // SAFETY: there is a key and a shadow for each word, as just compared. Nobody else holds references to them: the worker of the
            // block does nothing while another one has its turn, and between two turns nobody keeps them.
            let (key, shadow) = unsafe { (&*keys.add(word), &mut *shadows.add(word)) };
            if bytes == WordBytes::ALL && shadow.parts.is_none() {
                visit(&mut shadow.whole);
            } else {
                let parts = shadow.parts(*key);
                bytes.positions().for_each(|byte| visit(&mut parts.records[byte]));
            }
        }
    }

    /// Who has written a word of an array last in this block, and where: another block of the cluster, which has accessed it, asks.
    pub(in super::super::super) fn last_write_of_owner(
        &self,
        array: &SharedIdentity,
        word: usize,
    ) -> Option<(usize, &'static Location<'static>)> {
        let mut storage = self.storage.borrow_mut();
        let shadows = &mut storage.get_mut(array.assigned_number())?.shadows;
        if word >= shadows.len() {
            return None;
        }
        // SAFETY: there is such a word, as just compared; the rest as in `records_of`.
        let shadow = unsafe { &mut *shadows.as_mut_ptr().add(word) };
        let of_block = Stamp::new(self.block.get(), 0);
        let writes = shadow.records().iter().map(|record| record.write);
        let last = writes.filter(|write| write.stamp >= of_block).max_by_key(|write| write.stamp)?;
        Some((last.stamp.thread(), last.location?))
    }
}
