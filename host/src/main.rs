//! The program `tilewright`. What it does is in the library of this package, [`host::main`].

use std::process::ExitCode;

fn main() -> ExitCode {
    host::main()
}
