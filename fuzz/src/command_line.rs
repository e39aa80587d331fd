//! The command line: words, one on a line.

use clap::Parser;
use host::problem;
use host::program::cli::{Cli, Command};

/// Words are refused with a reason, or make products whose memory can be told.
///
/// # Panics
/// If not.
pub fn check(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let words = std::iter::once("tilewright").chain(text.lines());
    let Cli { command, run, .. } = match Cli::try_parse_from(words) {
        Ok(parsed) => parsed,
        Err(error) => {
            assert!(matches!(error.exit_code(), 0 | 2), "exit code {}", error.exit_code());
            return crate::has_reason(error);
        }
    };
    let flags = match command {
        None => run,
        Some(Command::Run(flags)) => flags,
        Some(Command::Bench(flags)) => {
            match flags.options() {
                Ok(options) => assert!(!options.cases.is_empty() && !options.inputs.is_empty() && options.runs > 0),
                Err(error) => crate::has_reason(error),
            }
            return;
        }
        Some(Command::Tune(flags)) => return drop(flags.task()),
        Some(Command::Sanitize(_) | Command::Report(_) | Command::Planted(_) | Command::Operations(_)) => return,
    };
    let options = match flags.options() {
        Ok(options) => options,
        Err(error) => return crate::has_reason(error),
    };
    for problem in &problem::ALL {
        for reduced in [false, true] {
            let described = problem.product(reduced, &options.overrides).and_then(|product| {
                // Three operands of less than 2⁶³ bytes each.
                assert!(product.device_bytes().0 < 3 << 63, "{}", product.device_bytes());
                product.description()
            });
            match described {
                Ok(product) => assert!(!product.to_string().is_empty()),
                Err(error) => crate::has_reason(error),
            }
        }
    }
}
