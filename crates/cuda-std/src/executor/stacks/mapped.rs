//! One mapping, cut into stacks with guard pages.

use core::ptr::NonNull;
use std::io;

use corosensei::stack::{DefaultStack, Stack, StackPointer};

use super::super::MAX_THREADS;
use super::hash_of;

const CACHE_LINE: usize = 64;

/// What stands in the canaries: no address, and no number that a kernel is likely to write.
const CANARY: u64 = 0xA5C3_96E1_5A3C_691E;
type Canary = [u64; 4];

/// One mapping with a stack for each thread of a block.
///
/// ```text
/// low address                                                                           high address
/// | guard page | canary · guard page · stack 0 | canary · guard page · stack 1 | …
///                                  ← grows down                 ← grows down
/// ```
///
/// A page is the system's: 4 KB on x86-64; on Arm some kernels of Linux have pages of 64 KB.
///
/// A stack that overflows runs into its guard page. These inner guards are Linux's light ones (`MADV_GUARD_INSTALL`, from
/// 6.13), which do not count as mappings; pages made inaccessible in the usual way would split the mapping, and 1024
/// stacks for each of many workers exceed the number of mappings that a process may have. Where the kernel does not know
/// them, an overflow writes over the canary, which is checked whenever the thread stops running, or, if it never does,
/// reaches the guard page below the whole, which DefaultStack makes. [`overflow`](super::super::overflow) handles the guard pages.
///
/// The distance between two stacks is not a multiple of a page: if it were, the tops of all stacks, which is what a block
/// of many threads mostly touches, would compete for the same few lines of the cache. And a canary takes half a line, of
/// which the other half is the top of the stack below it, so that checking it costs no line of its own.
pub(in super::super) struct Stacks {
    #[cfg_attr(
        not(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"))),
        allow(dead_code, reason = "elsewhere nobody handles guard pages")
    )]
    memory: DefaultStack,
    /// The bytes of a page.
    page: usize,
    stack_bytes: usize,
    /// The distance between two stacks.
    stride: usize,
    /// The lowest address of the part of the mapping that belongs to the first thread.
    lowest: usize,
}

/// One stack of [`Stacks`].
pub(in super::super) struct ThreadStack {
    base: StackPointer,
    limit: StackPointer,
}

impl Stacks {
    /// How many bytes [`Stacks::new`] reserves.
    pub(in super::super) fn reserved_bytes(stack_bytes: usize) -> usize {
        Self::reserved_with(stack_bytes, page_bytes())
    }

    fn reserved_with(stack_bytes: usize, page: usize) -> usize {
        Self::stride(stack_bytes, page) * MAX_THREADS + CACHE_LINE
    }

    /// The distance between two stacks: the stack in whole pages, one page wherever it may begin, and the canary.
    fn stride(stack_bytes: usize, page: usize) -> usize {
        stack_bytes.next_multiple_of(page) + 2 * page + CACHE_LINE
    }

    /// Stacks of at least `stack_bytes`, one of [`SIZES`](super::SIZES), for the largest possible block.
    pub(in super::super) fn new(stack_bytes: usize) -> io::Result<Self> {
        let stacks = Self::without_inner_guards(stack_bytes)?;
        for thread in 0..MAX_THREADS {
            install_guard(stacks.guard(thread), stacks.page);
        }
        Ok(stacks)
    }

    /// Stacks that only the lowest guard page and the canaries watch over.
    pub(in super::super) fn without_inner_guards(stack_bytes: usize) -> io::Result<Self> {
        Self::with_pages(stack_bytes, page_bytes())
    }

    /// Stacks on a system whose pages have so many bytes: a power of two, and not less than they have on this one.
    fn with_pages(stack_bytes: usize, page: usize) -> io::Result<Self> {
        let memory = DefaultStack::new(Self::reserved_with(stack_bytes, page))?;
        let stride = Self::stride(stack_bytes, page);
        let lowest = memory.base().get() - size_of::<Canary>() - stride * MAX_THREADS;
        let stacks = Self { memory, page, stack_bytes, stride, lowest };
        for thread in 0..MAX_THREADS {
            // SAFETY: the canary's place is inside the mapping and aligned for it, and nothing else refers to it.
            unsafe { stacks.canary(thread).write([CANARY; _]) };
        }
        Ok(stacks)
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
        let limit = self.limit(thread);
        let base = limit + self.stride;
        let address = |address| StackPointer::new(address).expect("an address inside a mapping is not zero");
        ThreadStack { base: address(base), limit: address(limit) }
    }

    /// Whether `address` is in one of the stacks or in the guard page below them.
    #[cfg_attr(
        not(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"))),
        allow(dead_code, reason = "elsewhere nobody handles guard pages")
    )]
    pub(in super::super) fn contain(&self, address: usize) -> bool {
        (self.memory.limit().get()..self.memory.base().get()).contains(&address)
    }

    /// Whether nothing has written over the canary of a thread's stack.
    #[inline]
    pub(in super::super) fn intact(&self, thread: usize) -> bool {
        // SAFETY: inside the mapping, aligned and initialized; whatever has been written there are numbers.
        let canary = unsafe { self.canary(thread).read_volatile() };
        canary.iter().fold(0, |difference, word| difference | (word ^ CANARY)) == 0
    }

    /// How many bytes there are between an address in a thread's stack and the guard page below; none if it is lower.
    pub(in super::super) fn left(&self, thread: usize, address: usize) -> usize {
        address.saturating_sub(self.guard(thread) + self.page)
    }

    /// A hash of what is in a thread's stack from an address on, while the thread does not run. `None` under AddressSanitizer, which lets
    /// nobody read what lies between the variables.
    pub(in super::super) fn fingerprint(&self, thread: usize, lowest: usize) -> Option<u64> {
        if cfg!(feature = "sanitizer") {
            return None;
        }
        let first = lowest.max(self.guard(thread) + self.page);
        // SAFETY: inside the mapping, above the guard page, and never uninitialized: the system has filled it with zeros. Nobody writes there
        // while the thread does not run.
        Some(unsafe { hash_of(first..self.limit(thread) + self.stride) })
    }

    /// The page between a thread's canary and its stack. Only in [`Stacks::new`] it is made inaccessible.
    fn guard(&self, thread: usize) -> usize {
        (self.limit(thread) + size_of::<Canary>()).next_multiple_of(self.page)
    }

    fn canary(&self, thread: usize) -> NonNull<Canary> {
        NonNull::with_exposed_provenance(
            StackPointer::new(self.limit(thread)).expect("an address inside a mapping is not zero"),
        )
    }

    /// The lowest address of a thread's part of the mapping.
    #[inline]
    fn limit(&self, thread: usize) -> usize {
        assert!(thread < MAX_THREADS);
        self.lowest + thread * self.stride
    }
}

/// The bytes of a page of this system.
fn page_bytes() -> usize {
    // SAFETY: it only reads a number.
    let bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(bytes)
        .ok()
        .filter(|bytes| bytes.is_power_of_two())
        .expect("POSIX systems tell the size of their pages")
}

/// Makes a page inaccessible, if the kernel knows how to without splitting the mapping. The canaries are there for when it
/// does not.
#[cfg(target_os = "linux")]
fn install_guard(page: usize, bytes: usize) {
    /// `MADV_GUARD_INSTALL` of Linux's `mman-common.h`, which the libc crate does not have yet.
    const GUARD_INSTALL: core::ffi::c_int = 102;
    // SAFETY: the page lies inside a stack's part of the mapping, below what a thread may use.
    unsafe { libc::madvise(core::ptr::with_exposed_provenance_mut(page), bytes, GUARD_INSTALL) };
}

#[cfg(not(target_os = "linux"))]
fn install_guard(_page: usize, _bytes: usize) {}

// SAFETY: both ends are multiples of 16 inside a mapping that lives long enough (`Stacks::stack`), and are further apart
// than `MIN_STACK_SIZE`. An overflow is caught by a guard page or reported by the canary before another thread runs.
unsafe impl Stack for ThreadStack {
    fn base(&self) -> StackPointer {
        self.base
    }

    fn limit(&self) -> StackPointer {
        self.limit
    }
}

#[cfg(test)]
mod tests {
    use core::ptr;

    use super::*;

    #[test]
    fn a_write_below_a_stack_is_noticed_for_that_stack_only() {
        let stacks = Stacks::new(10_000).unwrap();
        // SAFETY: the stack is used as plain memory.
        let stack = unsafe { stacks.stack(7) };
        assert!(stack.base().get() - stack.limit().get() >= 10_000 + stacks.page);
        for offset in [0, 8, size_of::<Canary>() - 8] {
            let word = ptr::with_exposed_provenance_mut::<u64>(stack.limit().get() + offset);
            // SAFETY: inside the mapping, and aligned.
            unsafe { word.write(1) };
            assert!(!stacks.intact(7) && stacks.intact(6) && stacks.intact(8));
            // SAFETY: as above.
            unsafe { word.write(CANARY) };
            assert!(stacks.intact(7));
        }
    }

    #[test]
    fn between_canary_and_stack_is_a_page_of_the_system_however_large_its_pages_are() {
        for page in [page_bytes(), 16 << 10, 64 << 10].into_iter().filter(|&page| page >= page_bytes()) {
            let stacks = Stacks::with_pages(20_000, page).unwrap();
            for thread in [0, 1, 500, MAX_THREADS - 1] {
                let (limit, guard) = (stacks.limit(thread), stacks.guard(thread));
                assert!(guard.is_multiple_of(page), "{page}");
                assert!(
                    guard >= limit + size_of::<Canary>() && guard + page + 20_000 <= limit + stacks.stride,
                    "{page}"
                );
                assert_eq!(stacks.left(thread, limit + stacks.stride), limit + stacks.stride - guard - page);
            }
            assert!(stacks.contain(stacks.lowest) && stacks.contain(stacks.guard(0)));
        }
    }

    #[test]
    fn stacks_lie_side_by_side_and_their_tops_in_different_cache_sets() {
        let stacks = Stacks::without_inner_guards(64 << 10).unwrap();
        // SAFETY: the stacks are not used.
        let (first, second) = unsafe { (stacks.stack(0), stacks.stack(1)) };
        assert_eq!(first.base(), second.limit());
        assert_ne!(first.base().get() % stacks.page, second.base().get() % stacks.page);
        assert!(stacks.contain(first.limit().get() - 1), "the guard page belongs to the stacks");
        // SAFETY: as above.
        let last = unsafe { stacks.stack(MAX_THREADS - 1) };
        assert!(stacks.contain(last.base().get() - 1) && !stacks.contain(last.base().get() + stacks.page));
        // A canary and the top of the stack below it are in one line of the cache.
        assert_eq!(second.limit().get() % CACHE_LINE + size_of::<Canary>(), CACHE_LINE);
    }
}
