//! The pass of the link step: LLVM's textual IR.

// Only the link step uses it.
#[allow(dead_code, unreachable_pub, reason = "the builder uses the rest, and exports some of it")]
#[path = "../../crates/cuda-builder/src/pass/mod.rs"]
mod pass;

use std::collections::BTreeSet;

use crate::Arch;

/// Whatever the text is: it is refused with a reason, or rewritten, and no mark is left.
///
/// # Panics
/// If not.
pub fn check(data: &[u8]) {
    let text = &*String::from_utf8_lossy(data);
    for arch in [Arch::Sm80, Arch::Sm90a] {
        match pass::rewrite(text, arch) {
            Ok(rewritten) => {
                let all = pass::kernels(text);
                assert!(rewritten.names().iter().all(|kernel| all.contains(kernel)));
                assert_eq!(pass::kernels(&rewritten.ir), all, "{}", rewritten.ir);
            }
            Err(error) => crate::has_reason(error),
        }
    }
    // Without lines there is nothing to tell copies by.
    assert!(text.contains("!dbg ") || pass::copied(text).is_empty());
    let marked = pass::mark_convergent(text);
    assert_eq!(marked.lines().count(), text.lines().count());
    // The body of a function that is replaced is another one; whatever else there is stays.
    assert!(pass::with_reports(text).ends_with('\n') || text.is_empty());
    assert_eq!(pass::with_channel(text).lines().count(), text.lines().count());
    let (rest, target) = pass::without_target(text);
    let again = pass::with_target(&rest, &target);
    // The lines are the same ones, in an order of their own. What ends a line may change, and lines with nothing on them.
    let lines = |text: &str| -> BTreeSet<String> {
        text.lines().map(|line| line.trim_end().to_owned()).filter(|line| !line.is_empty()).collect()
    };
    assert!(lines(text).is_subset(&lines(&again)), "{again}");
}
