//! What a kernel needs besides what PTX has words for, in comments at the beginning of PTX:
//!
//! ```text
//! // tilewright kernel axpy: dynamic shared memory 0, layout 84c1a2f00d31e977
//! ```
//!
//! The builder writes them, and the launch reads them, also of PTX from a file.

extern crate alloc;

use alloc::format;
use alloc::string::String;

/// How such a line begins.
const BEGINNING: &str = "// tilewright kernel ";

/// The line for a kernel, without its end.
pub fn line(kernel: &str, dynamic_shared_bytes: u32, layout: u64) -> String {
    format!("{BEGINNING}{kernel}: dynamic shared memory {dynamic_shared_bytes}, layout {layout:016x}")
}

/// The dynamic shared memory in bytes, and the fingerprint of the parameters' layout, of a kernel, as such a line says; `None` if
/// there is none.
pub fn find(ptx: &str, kernel: &str) -> Option<(u32, u64)> {
    let lines = ptx.lines().take_while(|line| line.starts_with("//"));
    let facts = lines.filter_map(|line| line.strip_prefix(BEGINNING)?.strip_prefix(kernel)?.strip_prefix(": "));
    let read = |facts: &str| {
        let (bytes, layout) = facts.strip_prefix("dynamic shared memory ")?.split_once(", layout ")?;
        Some((bytes.parse().ok()?, u64::from_str_radix(layout, 16).ok()?))
    };
    facts.filter_map(read).next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let ptx = format!("{}\n{}\n//\n.version 7.4\n", line("a", 7, u64::MAX), line("ab", 183_808, 1));
        assert_eq!(find(&ptx, "a"), Some((7, u64::MAX)));
        assert_eq!(find(&ptx, "ab"), Some((183_808, 1)));
        assert_eq!(find(&ptx, "b"), None);
        assert_eq!(find(".version 7.4\n// tilewright kernel a: dynamic shared memory 1, layout 2", "a"), None);
        assert_eq!(find("// tilewright kernel a: dynamic shared memory x, layout 2", "a"), None);
    }
}
