//! `cargo tilewright`.

use std::process::ExitCode;

fn main() -> ExitCode {
    workbench::main()
}
