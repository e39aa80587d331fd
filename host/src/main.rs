//! The program `tilewright`: the library of this package, from the command line.

use std::process::ExitCode;

fn main() -> ExitCode {
    host::main()
}
