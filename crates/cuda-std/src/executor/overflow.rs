//! Makes a stack overflow in a kernel a report instead of a segmentation fault.
//!
//! A thread that runs into a guard page raises SIGSEGV. The handler recognizes by the address that a thread of a kernel
//! has overflowed, throws away what is on its stack, and lets its coroutine return [`Ended::StackOverflow`] to the worker.
//! All other faults go to the handler that was there before: Rust's own reports overflows of ordinary stacks.
//!
//! What is thrown away is not finished first: an allocation would leave the allocator locked, and what follows on this OS
//! thread would wait for it forever. So the executor's own code on a thread's stack looks at what is left before it
//! allocates or borrows (`Context::require_headroom`), and reports the overflow then. That does not cover
//!
//! - kernels that themselves allocate, lock or panic, none of which is for a GPU, in the last few kilobytes of a stack;
//! - threads that wait there for others when another thread's fault ends the launch, because unwinding them takes stack.
//!
//! Handlers run on the alternative signal stack that Rust's runtime gives to every thread of a Rust program.

#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
pub(super) use handler::install;

/// Elsewhere only overflows that the canaries show are reported.
#[cfg(not(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"))))]
pub(super) fn install() {}

#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
mod handler {
    use core::ffi::{c_int, c_void};
    use core::mem;
    use core::ptr;
    use std::sync::OnceLock;

    use super::super::context::{Ended, try_current};
    use super::registers;

    /// What handled SIGSEGV before.
    static PREVIOUS: OnceLock<libc::sigaction> = OnceLock::new();

    type Handler = extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void);

    /// Sets the handler, once for the process.
    pub(in super::super) fn install() {
        PREVIOUS.get_or_init(|| {
            // SAFETY: all-zero is a value of this plain C struct.
            let (mut action, mut previous): (libc::sigaction, libc::sigaction) = unsafe { mem::zeroed() };
            let handler: Handler = handle;
            action.sa_sigaction = handler as usize;
            action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
            // SAFETY: both point to valid structs, and the handler is of the kind that SA_SIGINFO asks for.
            unsafe {
                libc::sigemptyset(&mut action.sa_mask);
                libc::sigaction(libc::SIGSEGV, &action, &mut previous);
            }
            previous
        });
    }

    extern "C" fn handle(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
        // SAFETY: the system passes valid pointers, the last of them to the context of the thread that was interrupted.
        let handled = unsafe { end_coroutine((*info).si_addr().addr(), &mut *context.cast::<libc::ucontext_t>()) };
        if !handled {
            call_previous(signal, info, context);
        }
    }

    /// If `address` is in the stacks of the kernel that was interrupted, makes its coroutine return when the handler does.
    fn end_coroutine(address: usize, interrupted: &mut libc::ucontext_t) -> bool {
        let stack_pointer = registers::stack_pointer(interrupted);
        let Some(context) = try_current() else { return false };
        let stacks = &context.memory.stacks;
        // A frame larger than a page may be a page or more below the address where the overflow was noticed.
        if !stacks.contain(address) || !stacks.contain(stack_pointer) {
            return false;
        }
        let Some(coroutine) = context.details().trap_handler.get() else { return false };
        // SAFETY: the interrupted code ran on this thread's stack, or, below it, on what are stacks of threads that will
        // not run again. What it has not finished of its writes to the context are plain numbers, none of which is read
        // any more but `current`, which only the worker writes.
        let wanted = unsafe { coroutine.setup_trap_handler(|| Ended::StackOverflow) };
        registers::set(interrupted, wanted);
        true
    }

    fn call_previous(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
        match PREVIOUS.get() {
            Some(previous) if ![libc::SIG_DFL, libc::SIG_IGN].contains(&previous.sa_sigaction) => {
                // SAFETY: it was set as a handler. One without SA_SIGINFO takes only the first argument, and in the C
                // calling convention of this platform ignores the others.
                let handler = unsafe { mem::transmute::<usize, Handler>(previous.sa_sigaction) };
                handler(signal, info, context);
            }
            // The faulting instruction runs again, and the fault now ends the process.
            // SAFETY: sets the default action.
            _ => unsafe {
                let mut default: libc::sigaction = mem::zeroed();
                default.sa_sigaction = libc::SIG_DFL;
                libc::sigaction(signal, &default, ptr::null_mut());
            },
        }
    }
}

/// The registers of a thread that a signal has interrupted.
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod registers {
    use corosensei::trap::TrapHandlerRegs;

    pub(super) fn stack_pointer(interrupted: &libc::ucontext_t) -> usize {
        interrupted.uc_mcontext.gregs[libc::REG_RSP as usize] as usize
    }

    pub(super) fn set(interrupted: &mut libc::ucontext_t, wanted: TrapHandlerRegs) {
        let TrapHandlerRegs { rip, rsp, rbp, rdi, rsi } = wanted;
        for (register, value) in [
            (libc::REG_RIP, rip),
            (libc::REG_RSP, rsp),
            (libc::REG_RBP, rbp),
            (libc::REG_RDI, rdi),
            (libc::REG_RSI, rsi),
        ] {
            interrupted.uc_mcontext.gregs[register as usize] = value as i64;
        }
    }
}

/// The registers of a thread that a signal has interrupted.
#[cfg(all(target_os = "linux", target_arch = "aarch64"))]
mod registers {
    use corosensei::trap::TrapHandlerRegs;

    /// `x29` is the frame pointer, `x30` the link register.
    const FRAME: usize = 29;
    const LINK: usize = 30;

    pub(super) fn stack_pointer(interrupted: &libc::ucontext_t) -> usize {
        interrupted.uc_mcontext.sp as usize
    }

    pub(super) fn set(interrupted: &mut libc::ucontext_t, wanted: TrapHandlerRegs) {
        let TrapHandlerRegs { pc, sp, x0, x1, x29, lr } = wanted;
        let registers = &mut interrupted.uc_mcontext;
        (registers.pc, registers.sp) = (pc, sp);
        for (register, value) in [(0, x0), (1, x1), (FRAME, x29), (LINK, lr)] {
            registers.regs[register] = value;
        }
    }
}

#[cfg(test)]
mod tests {
    use core::ffi::c_void;
    use core::hint::black_box;
    use std::sync::Mutex;

    use super::super::context::Memory;
    use super::super::shared_memory::SharedMemory;
    use super::super::stacks::Stacks;
    use super::super::{Checks, Executor, FaultKind, LaunchError};
    use crate::{ContractViolation, Dim3, Kernel, KernelFacts, View, thread};

    /// In the second of two blocks, thread `culprit` needs a deep stack.
    #[derive(Clone, Copy)]
    struct Recurses {
        culprit: u32,
        depth: u64,
    }

    fn recurse(depth: u64) -> u64 {
        let frame = black_box([depth; 20]);
        if depth == 0 { 0 } else { 1 + recurse(depth - 1) + frame[3] / u64::MAX }
    }

    // SAFETY: it is only run on the CPU, and has no views.
    unsafe impl Kernel for Recurses {
        const FACTS: KernelFacts = KernelFacts { block: [1024, 1, 1], ..KernelFacts::new("recurses") };

        fn check(&self) -> Result<(), ContractViolation> {
            Ok(())
        }

        fn visit_params(&self, _: &mut dyn FnMut(*const c_void)) {}

        fn visit_views(&self, _: &mut dyn FnMut(View<'_>)) {}

        unsafe fn run_thread(self) {
            // SAFETY: all threads reach both barriers.
            unsafe { thread::sync_threads() };
            if thread::block_idx_x() == 1 && thread::thread_idx_x() == self.culprit {
                black_box(recurse(self.depth));
            }
            // SAFETY: as above.
            unsafe { thread::sync_threads() };
        }
    }

    #[test]
    fn without_guard_pages_between_the_stacks_the_canaries_show_an_overflow() {
        let stack_bytes = Executor::DEFAULT_STACK_BYTES;
        let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
        // A little too deep, so that the thread comes back over the canary; and endless, down to the lowest guard page.
        for depth in [600, 1 << 40] {
            for culprit in [0, 1, 512, 1023] {
                let stacks = Stacks::without_inner_guards(stack_bytes).unwrap();
                let mut executor = Executor::new(Checks::Full);
                executor.idle = Mutex::new(std::vec![Memory { stacks, shared: SharedMemory::new() }]).into();
                // SAFETY: the kernel has no views.
                let result = pool.install(|| unsafe { executor.launch(Recurses { culprit, depth }, Dim3::from(2)) });
                let Err(LaunchError::Fault(fault)) = result else { panic!("{result:?}") };
                assert_eq!((fault.block, fault.thread), (Dim3::new(1, 0, 0), Dim3::new(culprit, 0, 0)));
                assert_eq!(fault.kind, FaultKind::StackOverflow { bytes: stack_bytes, asked: None });
                // The next launch does not find what the overflow has left.
                // SAFETY: as above.
                pool.install(|| unsafe { executor.launch(Recurses { culprit, depth: 0 }, Dim3::from(2)) }).unwrap();
            }
        }
    }
}
