//! What the threads of a warp or a block have to execute together, counted in PTX.

use std::collections::BTreeMap;

/// How often each instruction stands in PTX that threads have to execute together: barriers, and whatever PTX calls `.sync`
/// or `.aligned` (shuffles, votes, `ldmatrix`, `mma`, `wgmma`, `elect`, `setmaxnreg`).
pub fn executed_together(ptx: &str) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for line in ptx.lines().filter(|line| !line.trim_start().starts_with('.')) {
        let code = line.split("//").next().unwrap_or_default();
        // Inline assembly can have several instructions on a line, and braces around them.
        for instruction in code.split([';', '{', '}']) {
            // Before an instruction there may be a label and a predicate.
            let mut words = instruction.split_ascii_whitespace().filter(|word| !word.starts_with('@'));
            let name = words.find(|word| !word.ends_with(':')).unwrap_or_default();
            let mut parts = name.split('.');
            let is_barrier = matches!(parts.next(), Some("bar" | "barrier"));
            if is_barrier || parts.any(|part| part == "sync" || part == "aligned") {
                *counts.entry(name.to_owned()).or_default() += 1;
            }
        }
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_what_threads_execute_together() {
        let ptx = "\
.visible .entry k(.param .u64 sync) // bar.sync 0;
{
$L__BB0_1: bar.sync 0;
	@%p1 bra.uni $L__BB0_1;
	@!%p2 barrier.sync.aligned 1, 256;
	shfl.sync.bfly.b32 	%r1, %r2, 1, 31, -1;
	{ .reg .pred elected;
elect.sync _|elected, 0xFFFFFFFF; selp.u32 %r1, 1, 0, elected; }
	bar.sync \t1;
	cp.async.wait_group 2;
	ld.shared.f32 %f1, [%r1]; // no .sync
}
";
        let counts = executed_together(ptx);
        let counts: Vec<_> = counts.iter().map(|(name, &count)| (name.as_str(), count)).collect();
        assert_eq!(
            counts,
            [("bar.sync", 2), ("barrier.sync.aligned", 1), ("elect.sync", 1), ("shfl.sync.bfly.b32", 1)]
        );
    }
}
