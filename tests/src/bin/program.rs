//! The program `tilewright`, built along with the tests: from the same crates, so that it is never an old one.

use std::process::ExitCode;

fn main() -> ExitCode {
    host::main()
}
