//! What LLVM's tools say when they fail, without what is of use to LLVM's authors only.

/// Where the useful part of what a compiler says ends: what follows is a stack of its functions.
const CRASH: [&str; 6] = [
    "PLEASE submit a bug report",
    "Stack dump:",
    "Stack dump without symbol names",
    "stack backtrace:",
    "query stack during panic:",
    "note: we would appreciate a bug report",
];

/// Whether a line begins what a compiler says of its own crash.
pub(crate) fn is_crash(line: &str) -> bool {
    CRASH.iter().any(|mark| line.starts_with(mark))
}

/// What a tool has said.
#[derive(Debug)]
pub(crate) struct LlvmLog<'a>(pub(crate) &'a str);

impl<'a> LlvmLog<'a> {
    /// The message itself: the lines before the stack, without the nodes of LLVM's graph.
    pub(crate) fn message(&self) -> String {
        let lines = self.0.lines().take_while(|line| !is_crash(line));
        let lines = lines.filter(|line| !line.starts_with(' ') && !line.starts_with("In function: "));
        lines.map(|line| line.trim_start_matches("LLVM ERROR: ").trim()).collect::<Vec<_>>().join("; ")
    }

    /// The function that it was about.
    pub(crate) fn function(&self) -> Option<&'a str> {
        let named = self.0.lines().find_map(|line| line.strip_prefix("In function: "));
        named.or_else(|| self.0.lines().find_map(|line| line.split_once("on function '@")?.1.strip_suffix('\'')))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SELECT: &str = "\
LLVM ERROR: Cannot select: 0x55708b84a1d0: f32 = fsin 0x55708b84a240
  0x55708b84a240: f32,ch = load<(load (s32) from %ir.13, addrspace 1)> 0x55708b814220
In function: k
PLEASE submit a bug report to https://github.com/llvm/llvm-project/issues/ and include the crash backtrace.
Stack dump:
0.	Program arguments: llc -O3
2.	Running pass 'NVPTX DAG->DAG Pattern Instruction Selection' on function '@k'
 #0 0x00007fdabf8b8786 llvm::sys::PrintStackTrace(llvm::raw_ostream&, int)
";

    #[test]
    fn keeps_the_message_and_the_function() {
        assert_eq!(LlvmLog(SELECT).message(), "Cannot select: 0x55708b84a1d0: f32 = fsin 0x55708b84a240");
        assert_eq!(LlvmLog(SELECT).function(), Some("k"));
        let library =
            SELECT.replace("In function: k\n", "").replace("Cannot select", "unsupported library call operation");
        assert_eq!(LlvmLog(&library).function(), Some("k"));
        assert_eq!(LlvmLog("opt: unknown pass\n").message(), "opt: unknown pass");
        assert_eq!(LlvmLog("opt: unknown pass\n").function(), None);
    }
}
