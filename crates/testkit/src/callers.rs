//! Which line of a kernel a thread of it has come from: from its stack, by what the compiler has left of lines in the program. A program
//! without debug information (`debug = false`) has no lines, and then nothing is said.

use std::cell::RefCell;
use std::collections::HashMap;

use cuda_std::executor::{Callers, SourceLine};

/// What the function is called that has the body of a kernel.
const BODY: &str = "run_thread";

/// Finds lines of kernels.
pub(crate) const CALLERS: Callers = Callers { addresses, line };

/// Return addresses of the running thread, innermost first. Nothing is looked up here: a kernel's stack is small.
fn addresses(found: &mut [usize]) -> usize {
    let mut count = 0;
    backtrace::trace(|frame| {
        if let Some(place) = found.get_mut(count) {
            *place = frame.ip().addr();
            count += 1;
        }
        count < found.len()
    });
    count
}

thread_local! {
    /// What is known of return addresses.
    static KNOWN: RefCell<HashMap<usize, Option<SourceLine>>> = RefCell::default();
}

/// The line in the innermost function that is the body of a kernel.
fn line(addresses: &[usize]) -> Option<SourceLine> {
    KNOWN.with_borrow_mut(|known| {
        addresses.iter().find_map(|&address| known.entry(address).or_insert_with(|| look_up(address)).clone())
    })
}

fn look_up(address: usize) -> Option<SourceLine> {
    let mut found = None;
    // A call is before the address to which it returns.
    backtrace::resolve(std::ptr::without_provenance_mut(address.saturating_sub(1)), |symbol| {
        let is_body = symbol.name().is_some_and(|name| is_body(&name.to_string()));
        if let (None, true, Some(file), Some(line)) = (&found, is_body, symbol.filename(), symbol.lineno()) {
            found = Some(SourceLine { file: file.display().to_string().into(), line });
        }
    });
    found
}

/// Whether a function of this name is the body of a kernel, or within it. The executor's own `run_threads`, which is below all bodies, is not.
fn is_body(name: &str) -> bool {
    name.split("::").any(|part| part == BODY)
}

#[cfg(test)]
mod tests {
    use cuda_std::executor::StepOptions;

    use crate::Operation as _;
    use crate::testing::Twice;

    #[test]
    fn the_executors_own_functions_are_no_bodies() {
        let body = "<mine::doubles as tilewright_cuda_std::launch::Kernel>::run_thread";
        for name in [body.to_owned(), format!("{body}::h0123456789abcdef"), format!("{body}::{{closure#0}}")] {
            assert!(super::is_body(&name), "{name}");
        }
        let block = "tilewright_cuda_std::executor::block::Block";
        for name in
            [format!("{block}::run_threads"), format!("{block}::new::{{closure#0}}"), "mine::doubles".to_owned()]
        {
            assert!(!super::is_body(&name), "{name}");
        }
    }

    /// Whether this program has debug information is a matter of its profile: with it, each access has the kernel's line.
    #[test]
    fn a_kernels_line_is_found_if_the_program_has_lines() {
        let operation = Twice { wrong: false };
        let sizes = operation.describe().parse_sizes("n=32").unwrap();
        let options = StepOptions { callers: Some(super::CALLERS), ..StepOptions::default() };
        let trace = crate::record_steps(&operation, sizes, 1, 0, options).unwrap();
        let load = &trace.blocks[0].steps[0];
        let has_lines = super::look_up(a_kernels_line_is_found_if_the_program_has_lines as fn() as usize + 1);
        match load.caller {
            Some(_) => assert!(trace.place(load.caller).contains("testing.rs:"), "{:?}", trace.places),
            None => assert!(!cfg!(debug_assertions) || has_lines.is_none()),
        }
    }
}
