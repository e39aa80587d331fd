//! Which line of a kernel a thread of it has come from: from its stack, by what the compiler has left of lines in the program. A program
//! without debug information (`debug = false`) has no lines, and then nothing is said.

use std::cell::RefCell;
use std::collections::HashMap;
use std::path::Path;

use cuda_std::executor::{Callers, SourceLine};

/// What the function is called that has the body of a kernel.
const BODY: &str = "run_thread";

/// Where the compiler's own libraries come from.
const LIBRARIES: &str = "/rustc/";

/// Finds lines of kernels.
pub(crate) const CALLERS: Callers = Callers { addresses, lines };

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

/// A line that a return address stands for.
#[derive(Clone)]
struct Frame {
    line: SourceLine,
    /// Whether it is the body of a kernel, or within it.
    is_body: bool,
}

thread_local! {
    /// What is known of return addresses: several functions if some of them are inlined, the innermost first.
    static KNOWN: RefCell<HashMap<usize, Vec<Frame>>> = RefCell::default();
}

/// The lines of a kernel's functions, up to the innermost one that is its body.
fn lines(addresses: &[usize]) -> Vec<SourceLine> {
    KNOWN.with_borrow_mut(|known| {
        let mut lines = Vec::new();
        for &address in addresses {
            for Frame { line, is_body } in known.entry(address).or_insert_with(|| look_up(address)) {
                lines.push(line.clone());
                if *is_body {
                    return lines;
                }
            }
        }
        Vec::new()
    })
}

/// The functions at a return address that are the kernel's: not those of the executor, nor of the compiler's libraries.
fn look_up(address: usize) -> Vec<Frame> {
    let mut found = Vec::new();
    // A call is before the address to which it returns.
    backtrace::resolve(std::ptr::without_provenance_mut(address.saturating_sub(1)), |symbol| {
        let is_body = symbol.name().is_some_and(|name| is_body(&name.to_string()));
        if let (Some(file), Some(line)) = (symbol.filename(), symbol.lineno())
            && (is_body || is_of_kernels(file))
        {
            found.push(Frame { line: SourceLine { file: file.display().to_string().into(), line }, is_body });
        }
    });
    found
}

/// Whether a file may have functions of kernels.
fn is_of_kernels(file: &Path) -> bool {
    !file.starts_with(LIBRARIES) && !file.starts_with(cuda_std::executor::SOURCES)
}

/// Whether a function of this name is the body of a kernel, or within it. The executor's own `run_threads`, which is below all bodies, is not.
fn is_body(name: &str) -> bool {
    name.split("::").any(|part| part == BODY)
}

#[cfg(test)]
mod tests {
    use cuda_std::executor::{Fault, FaultKind, LaunchError, SourceLine, StepOptions};
    use cuda_std::prelude::*;

    use crate::testing::Twice;
    use crate::{
        Argument, Description, Device, Distribution, Error, Expected, Operation, Sizes, Values, Views, check_executor,
    };

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
            None => assert!(!cfg!(debug_assertions) || has_lines.is_empty()),
        }
    }

    const SOURCE: &str = include_str!("callers.rs");

    /// The number of the line that has the comment `// <mark>`.
    fn line_of(mark: &str) -> u32 {
        let comment = format!("// <{mark}>");
        let (number, _) = (1..).zip(SOURCE.lines()).find(|(_, line)| line.ends_with(&comment)).unwrap();
        number
    }

    fn put(x: &GlobalSliceMut<'_, f32>, i: usize) {
        // SAFETY: there is such an element. What is not fulfilled is the fault: another thread writes it, too.
        unsafe { x.set_unchecked(i, 1.0) } // <put>
    }

    /// Two elements, by one line that is called from two.
    fn put_both(x: &GlobalSliceMut<'_, f32>) {
        put(x, 0); // <put the first>
        put(x, 1); // <put the second>
    }

    #[kernel(block = 32, grid = 1, requires(x.len() >= 2))]
    fn races_in_functions(x: GlobalSliceMut<'_, f32>) {
        match thread::thread_idx_x() {
            0 => put_both(&x), // <put both>
            1 => put(&x, 0),   // <put again>
            _ => {}
        }
    }

    struct RacesInFunctions;

    impl Operation for RacesInFunctions {
        fn describe(&self) -> Description {
            Description {
                name: "races-in-functions",
                kernels: vec![races_in_functions::FACTS],
                small: vec![vec![2]],
                ..Twice { wrong: false }.describe()
            }
        }

        fn arguments(&self, sizes: &Sizes) -> Result<Vec<Argument>, Error> {
            let [n] = sizes.get(["n"])?;
            Ok(vec![Argument::in_out("x", &[n], Distribution::Integers(1, 9))])
        }

        fn launch(&self, device: &Device, _: &Sizes, views: &Views<'_>) -> Result<(), Error> {
            Ok(device.launch(races_in_functions { x: views.write("x")? })?)
        }

        fn expected(&self, _: &Sizes, values: &Values<'_>) -> Result<Vec<Vec<Expected>>, Error> {
            Ok(vec![values.of("x")?.iter().map(|_| Expected::exact(1.0)).collect()])
        }

        fn operations(&self, _: &Sizes) -> f64 {
            0.0
        }
    }

    /// The workspace gives this crate lines in the profile for tests, whatever the others have.
    #[test]
    fn a_report_has_the_calls_that_led_to_both_accesses() {
        let report = check_executor(&RacesInFunctions, 1).unwrap();
        assert!(!report.to_string().contains("called from"), "{report}");
        let report = report.with_callers(&RacesInFunctions, super::CALLERS);
        let Some(Error::Runtime(runtime::Error::Executor(LaunchError::Fault(fault)))) = &report.cases[0].failure else {
            panic!("expected a fault: {report}");
        };
        let Fault { location: Some(location), callers, kind: FaultKind::GlobalRace { other, .. }, .. } = &**fault
        else {
            panic!("expected a race: {report}");
        };
        let lines = |callers: &[SourceLine]| callers.iter().map(|line| line.line).collect::<Vec<_>>();
        assert_eq!((location.line, other.location.line), (line_of("put"), line_of("put")), "{report}");
        assert_eq!(lines(callers), [line_of("put again")], "{report}");
        assert_eq!(lines(&other.callers), [line_of("put the first"), line_of("put both")], "{report}");
        assert_eq!(callers[0].file, location.file, "as the report's own line names it: {report}");
    }
}
