//! A stack of the system's kind for each thread: Windows grows a stack page by page, and has to be told of each one that a thread of the
//! system runs on, so none can be a part of a larger piece of memory.
//!
//! An overflow ends the process there, with the system's own message: what `overflow` does on Linux is not done.

use core::ptr::NonNull;
use std::io;
use std::vec::Vec;

use corosensei::stack::{DefaultStack, Stack, StackPointer, StackTebFields};

use super::super::MAX_THREADS;
use super::hash_of;

/// More than the pages below a stack that are for its overflow: a guard page of two, the system's guarantee, one that stays reserved.
const BELOW: usize = 16 << 10;

/// A stack for each thread of the largest block.
pub(in super::super) struct Stacks {
    /// Each has a place of its own, which [`ThreadStack`] points to.
    stacks: Vec<NonNull<DefaultStack>>,
    stack_bytes: usize,
}

// SAFETY: a `DefaultStack` is memory that may be used from any thread, and `Stacks` owns its stacks.
unsafe impl Send for Stacks {}

/// One stack of [`Stacks`].
pub(in super::super) struct ThreadStack(NonNull<DefaultStack>);

impl Stacks {
    /// How many bytes of address space [`Stacks::new`] reserves. They become memory as they are used.
    pub(in super::super) fn reserved_bytes(stack_bytes: usize) -> usize {
        (stack_bytes + BELOW) * MAX_THREADS
    }

    /// Stacks of at least `stack_bytes`, one of [`SIZES`](super::SIZES), for the largest possible block.
    pub(in super::super) fn new(stack_bytes: usize) -> io::Result<Self> {
        let mut stacks = Self { stacks: Vec::with_capacity(MAX_THREADS), stack_bytes };
        for _ in 0..MAX_THREADS {
            let stack = std::boxed::Box::new(DefaultStack::new(stack_bytes + BELOW)?);
            stacks.stacks.push(NonNull::from(std::boxed::Box::leak(stack)));
        }
        Ok(stacks)
    }

    /// The same here, where the system makes the guard pages.
    #[cfg(test)]
    pub(in super::super) fn without_inner_guards(stack_bytes: usize) -> io::Result<Self> {
        Self::new(stack_bytes)
    }

    /// The size that each stack was asked to have.
    pub(in super::super) fn stack_bytes(&self) -> usize {
        self.stack_bytes
    }

    /// The stack of one thread.
    ///
    /// # Safety
    /// The stacks outlive the result, and no other code uses this thread's stack.
    pub(in super::super) unsafe fn stack(&self, thread: usize) -> ThreadStack {
        ThreadStack(self.stacks[thread])
    }

    /// Always: a write below a stack ends the process.
    #[inline]
    pub(in super::super) fn intact(&self, _: usize) -> bool {
        true
    }

    /// How many bytes there are between an address in a thread's stack and the pages below it; none if it is lower.
    pub(in super::super) fn left(&self, thread: usize, address: usize) -> usize {
        // SAFETY: the stack is there as long as `self`; its ends do not change.
        let limit = unsafe { self.stacks[thread].as_ref() }.limit().get();
        address.saturating_sub(limit + BELOW)
    }

    /// A hash of what is in a thread's stack from an address on, while the thread does not run.
    pub(in super::super) fn fingerprint(&self, thread: usize, lowest: usize) -> Option<u64> {
        // SAFETY: as in `left`.
        let stack = unsafe { self.stacks[thread].as_ref() };
        // Below the limit of today is the guard page, which nobody may touch from another stack.
        let first = lowest.max(stack.teb_fields().StackLimit);
        // SAFETY: above the limit the stack is memory, which the system has filled with zeros. Nobody writes there while the thread does not
        // run.
        Some(unsafe { hash_of(first..stack.base().get()) })
    }
}

impl Drop for Stacks {
    fn drop(&mut self) {
        for stack in self.stacks.drain(..) {
            // SAFETY: from `Box::leak` in `new`; no thread uses it any more, as `stack` demands.
            drop(unsafe { std::boxed::Box::from_raw(stack.as_ptr()) });
        }
    }
}

// SAFETY: a `DefaultStack` is one, and lives long enough (`Stacks::stack`).
unsafe impl Stack for ThreadStack {
    fn base(&self) -> StackPointer {
        // SAFETY: the stack is there, and nobody else uses it (`Stacks::stack`).
        unsafe { self.0.as_ref() }.base()
    }

    fn limit(&self) -> StackPointer {
        // SAFETY: as above.
        unsafe { self.0.as_ref() }.limit()
    }

    fn teb_fields(&self) -> StackTebFields {
        // SAFETY: as above.
        unsafe { self.0.as_ref() }.teb_fields()
    }

    fn update_teb_fields(&mut self, stack_limit: usize, guaranteed_stack_bytes: usize) {
        // SAFETY: as above.
        unsafe { self.0.as_mut() }.update_teb_fields(stack_limit, guaranteed_stack_bytes);
    }
}
