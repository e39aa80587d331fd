//! A Python that can make the Python package.

use std::env;

use super::{command, first_line};

/// What works, and how to get it.
pub const ADVICE: &str = "install Python 3.10 or newer with its module venv (on Debian and Ubuntu: apt-get install \
                          python3 python3-venv), or name another one by the environment variable PYTHON";

/// A Python that is new enough, and its version.
pub fn find() -> Option<(String, String)> {
    let names = env::var("PYTHON").map_or_else(|_| vec!["python3".to_owned(), "python".to_owned()], |name| vec![name]);
    // `ensurepip` is what Debian leaves out of `venv` unless that is installed.
    let program = "import sys, venv, ensurepip; assert sys.version_info >= (3, 10); print(sys.version.split()[0])";
    names.into_iter().find_map(|name| {
        let version = first_line(command(&name, &["-c", program]))?;
        Some((name, version))
    })
}
