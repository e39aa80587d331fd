//! Device memory that calls leave for the next ones, so that these need not allocate any.
//!
//! ```text
//!             take                      queue work with it, or copy           give back
//!  Memory ───────────► a call has it ─────────────────────────────► Memory ───────────► the next call
//! ```
//!
//! A [`Memory`] is of one stream. Whoever takes a buffer has it alone until it is given back; what was queued with it by then runs
//! before whatever the next one queues, also if that is another thread. No lock is held while anything runs.

use std::sync::{Mutex, MutexGuard, PoisonError};

use runtime::{Buffer, Error};

/// The most bytes of buffers for matrices that are kept.
const MOST_BYTES: usize = 512 << 20;

/// The most buffers for matrices that are kept.
const MOST_BUFFERS: usize = 16;

/// The elements up to which a buffer is for any smaller matrix: 256 KiB.
const SMALL: usize = 1 << 16;

/// What is kept for the calls on one stream.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    /// As many as there were calls at a time.
    workspaces: Mutex<Vec<Buffer<f32>>>,
    /// In the order in which they were given back.
    buffers: Mutex<Vec<Buffer<f32>>>,
}

impl Memory {
    /// Memory of at least `len` elements for a workspace. What has been too small is freed first.
    pub(crate) fn take_workspace(
        &self,
        len: usize,
        allocate: impl FnOnce() -> Result<Buffer<f32>, Error>,
    ) -> Result<Buffer<f32>, Error> {
        let taken = {
            let mut kept = lock(&self.workspaces);
            let fit = kept.iter().position(|buffer| buffer.len() >= len);
            fit.or(kept.len().checked_sub(1)).map(|index| kept.swap_remove(index))
        };
        match taken {
            Some(buffer) if buffer.len() >= len => Ok(buffer),
            small => {
                drop(small);
                allocate()
            }
        }
    }

    /// Keeps a workspace.
    pub(crate) fn give_workspace(&self, buffer: Buffer<f32>) {
        lock(&self.workspaces).push(buffer);
    }

    /// A buffer of `len` elements, of which nothing is known.
    pub(crate) fn take_buffer(
        &self,
        len: usize,
        allocate: impl FnOnce() -> Result<Buffer<f32>, Error>,
    ) -> Result<Buffer<f32>, Error> {
        if len == 0 {
            return allocate();
        }
        let taken = {
            let mut kept = lock(&self.buffers);
            // Not a large one for a small matrix: a large one may be about to need it.
            let fits = |buffer: &Buffer<f32>| (len..=len.saturating_mul(2).max(SMALL)).contains(&buffer.capacity());
            let fitting = kept.iter().enumerate().filter(|(_, buffer)| fits(buffer));
            let smallest = fitting.min_by_key(|(_, buffer)| buffer.capacity()).map(|(index, _)| index);
            smallest.map(|index| kept.remove(index))
        };
        match taken {
            Some(mut buffer) => {
                buffer.set_len(len);
                Ok(buffer)
            }
            None => allocate(),
        }
    }

    /// Keeps a buffer, and frees those that have been kept for the longest time if that is too much.
    pub(crate) fn give_buffer(&self, buffer: Buffer<f32>) {
        if buffer.capacity() == 0 {
            return;
        }
        let surplus = {
            let mut kept = lock(&self.buffers);
            kept.push(buffer);
            let mut bytes: usize = kept.iter().map(bytes_of).sum();
            let mut surplus = 0;
            while bytes > MOST_BYTES || kept.len() - surplus > MOST_BUFFERS {
                bytes -= bytes_of(&kept[surplus]);
                surplus += 1;
            }
            kept.drain(..surplus).collect::<Vec<_>>()
        };
        // Waits for the stream, so without the lock.
        drop(surplus);
    }

    /// Frees everything that nobody has taken, and tells whether there was any.
    pub(crate) fn free(&self) -> bool {
        let kept = [&self.workspaces, &self.buffers].map(|kept| std::mem::take(&mut *lock(kept)));
        kept.iter().any(|kept| !kept.is_empty())
    }

    /// The bytes that are kept.
    pub(crate) fn bytes(&self) -> usize {
        [&self.workspaces, &self.buffers].into_iter().map(|kept| lock(kept).iter().map(bytes_of).sum::<usize>()).sum()
    }
}

fn bytes_of(buffer: &Buffer<f32>) -> usize {
    buffer.capacity() * size_of::<f32>()
}

/// Nothing that holds the lock leaves a list half changed, so a poisoned one is in order.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use cuda_std::executor::Checks;
    use runtime::Device;

    use super::*;

    const MEBI: usize = 1 << 18;

    fn nothing() -> Result<Buffer<f32>, Error> {
        panic!("there is a buffer to take")
    }

    #[test]
    fn a_workspace_grows_and_nobody_shares_it() {
        let (device, memory) = (Device::cpu(Checks::Bounds), Memory::default());
        let allocate = |len| device.allocate(len);
        let small = memory.take_workspace(10, || allocate(10)).unwrap();
        let other = memory.take_workspace(10, || allocate(10)).unwrap();
        assert_ne!(small.view().as_ptr(), other.view().as_ptr());
        memory.give_workspace(small);
        let large = memory.take_workspace(100, || allocate(100)).unwrap();
        assert_eq!(memory.bytes(), 0, "the small one has made way");
        memory.give_workspace(other);
        memory.give_workspace(large);
        assert_eq!(memory.take_workspace(50, nothing).unwrap().len(), 100);
        assert_eq!(memory.take_workspace(5, nothing).unwrap().len(), 10);
    }

    #[test]
    fn the_smallest_buffer_that_fits_is_used_again() {
        let (device, memory) = (Device::cpu(Checks::Bounds), Memory::default());
        for len in [1000, 10, 100] {
            memory.give_buffer(device.allocate(len).unwrap());
        }
        let buffer = memory.take_buffer(50, nothing).unwrap();
        assert_eq!((buffer.len(), buffer.capacity()), (50, 100));
        memory.give_buffer(buffer);
        assert_eq!(memory.take_buffer(100, nothing).unwrap().len(), 100);
        assert_eq!(memory.take_buffer(1001, || device.allocate(1001)).unwrap().len(), 1001);
        assert_eq!(memory.bytes(), 4 * 1010);
        memory.give_buffer(device.allocate(MEBI).unwrap());
        assert_eq!(memory.take_buffer(MEBI / 4, || device.allocate(MEBI / 4)).unwrap().capacity(), MEBI / 4);
        assert_eq!(memory.take_buffer(MEBI / 2, nothing).unwrap().capacity(), MEBI);
        assert!(memory.free());
        assert_eq!((memory.bytes(), memory.free()), (0, false));
    }

    #[test]
    fn no_more_is_kept_than_is_said() {
        let (device, memory) = (Device::cpu(Checks::Bounds), Memory::default());
        for len in 1..=2 * MOST_BUFFERS {
            memory.give_buffer(device.allocate(len).unwrap());
        }
        assert_eq!(memory.bytes(), 4 * (MOST_BUFFERS + 1..=2 * MOST_BUFFERS).sum::<usize>(), "the last ones");
        memory.give_buffer(device.allocate(500 * MEBI).unwrap());
        assert!(memory.bytes() > 500 << 20);
        memory.give_buffer(device.allocate(20 * MEBI).unwrap());
        assert_eq!(memory.bytes(), 20 << 20);
        memory.give_buffer(device.allocate(513 * MEBI).unwrap());
        assert_eq!(memory.bytes(), 0, "what is too large by itself goes at once, and all that is older");
    }
}
