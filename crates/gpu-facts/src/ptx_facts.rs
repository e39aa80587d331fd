//! What a kernel needs besides what PTX has words for, in comments at the beginning of PTX:
//!
//! ```text
//! // tilewright kernel axpy: dynamic shared memory 0, layout 84c1a2f00d31e977
//! // tilewright kernel sort: dynamic shared memory 0, local memory, layout 1f00d31e97784c1a
//! ```
//!
//! The builder writes them, and the launch reads them, also of PTX from a file.

extern crate alloc;

use alloc::format;
use alloc::string::String;

/// How such a line begins.
const BEGINNING: &str = "// tilewright kernel ";

/// What stands in it where a kernel may have local memory.
const LOCAL: &str = ", local memory";

/// What such a line says.
///
/// ```
/// # use gpu_facts::ptx_facts::{PtxFacts, find};
/// let ptx = "// tilewright kernel axpy: dynamic shared memory 64, layout 00000000000000ff\n.version 7.4";
/// let facts = PtxFacts { dynamic_shared_bytes: 64, allows_local: false, layout: 255 };
/// assert_eq!(find(ptx, "axpy"), Some(facts));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PtxFacts {
    /// The dynamic shared memory that a launch gives each block, in bytes; 0 where each launch chooses.
    pub dynamic_shared_bytes: u32,
    /// Whether the kernel may have local memory.
    pub allows_local: bool,
    /// The fingerprint of the parameters' layout.
    pub layout: u64,
}

/// The line for a kernel, without its end.
///
/// ```
/// # use gpu_facts::ptx_facts::{PtxFacts, line};
/// let facts = PtxFacts { allows_local: true, layout: 255, ..PtxFacts::default() };
/// let expected = "// tilewright kernel sort: dynamic shared memory 0, local memory, layout 00000000000000ff";
/// assert_eq!(line("sort", facts), expected);
/// ```
pub fn line(kernel: &str, facts: PtxFacts) -> String {
    let PtxFacts { dynamic_shared_bytes, allows_local, layout } = facts;
    let local = if allows_local { LOCAL } else { "" };
    format!("{BEGINNING}{kernel}: dynamic shared memory {dynamic_shared_bytes}{local}, layout {layout:016x}")
}

/// What such a line says of a kernel; `None` if there is none.
///
/// ```
/// # use gpu_facts::ptx_facts::find;
/// let ptx = "// tilewright kernel axpy: dynamic shared memory 64, layout 00000000000000ff\n.version 7.4";
/// assert_eq!(find(ptx, "axpy").unwrap().dynamic_shared_bytes, 64);
/// assert_eq!(find(ptx, "sort"), None);
/// ```
pub fn find(ptx: &str, kernel: &str) -> Option<PtxFacts> {
    let lines = ptx.lines().take_while(|line| line.starts_with("//"));
    let facts = lines.filter_map(|line| line.strip_prefix(BEGINNING)?.strip_prefix(kernel)?.strip_prefix(": "));
    let read = |facts: &str| {
        let (bytes, layout) = facts.strip_prefix("dynamic shared memory ")?.split_once(", layout ")?;
        let (bytes, allows_local) = bytes.strip_suffix(LOCAL).map_or((bytes, false), |bytes| (bytes, true));
        let (dynamic_shared_bytes, layout) = (bytes.parse().ok()?, u64::from_str_radix(layout, 16).ok()?);
        Some(PtxFacts { dynamic_shared_bytes, allows_local, layout })
    };
    facts.filter_map(read).next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let a = PtxFacts { dynamic_shared_bytes: 7, allows_local: false, layout: u64::MAX };
        let ab = PtxFacts { dynamic_shared_bytes: 183_808, allows_local: true, layout: 1 };
        let ptx = format!("{}\n{}\n//\n.version 7.4\n", line("a", a), line("ab", ab));
        assert_eq!((find(&ptx, "a"), find(&ptx, "ab")), (Some(a), Some(ab)));
        assert_eq!(find(&ptx, "b"), None);
        assert_eq!(find(".version 7.4\n// tilewright kernel a: dynamic shared memory 1, layout 2", "a"), None);
        assert_eq!(find("// tilewright kernel a: dynamic shared memory x, layout 2", "a"), None);
    }
}
