//! Tells LLVM what the threads of a block or a warp have to come to together, before any of its passes runs.
//!
//! A barrier that stands once in the source must stay one instruction: if LLVM copied it into both arms of a branch that some
//! of the lanes take, they would wait for each other at different places. LLVM's word for such a call is `convergent`: no
//! pass then makes it depend on more or on other conditions than it does. Of its own intrinsics it knows. Of a function it has
//! to be told, and of inline assembly:
//!
//! ```text
//! attributes #3 = { alwaysinline nounwind "target-cpu"="sm_80" }
//!      →  attributes #3 = { convergent alwaysinline nounwind "target-cpu"="sm_80" }
//! call void asm sideeffect "bar.sync 1, 256;", "~{memory}"() #9, !srcloc !4
//!      →  call void asm sideeffect "bar.sync 1, 256;", "~{memory}"() convergent #9, !srcloc !4
//! ```
//!
//! Every function is marked, and LLVM takes the mark from those that turn out not to need it. Of inline assembly only what
//! has an instruction that PTX itself names so is, because the mark costs optimizations: `.sync` (`mma`, `ldmatrix`, `wgmma`,
//! `elect`, `shfl`, `setmaxnreg`), `.aligned`, `bar`, `barrier`, `activemask`.

use std::borrow::Cow;

use super::ir;

/// What the groups of attributes of all functions that are defined contain, and those of calls do not.
const OF_DEFINITIONS: &str = "\"target-cpu\"=";

/// What instructions have in their names that the threads of a warp have to execute together.
const TOGETHER: [&str; 5] = [".sync", ".aligned", "bar.", "barrier.", "activemask"];

/// The module with all marks.
pub(crate) fn mark_convergent(ir: &str) -> String {
    let mut result = String::with_capacity(ir.len() + ir.len() / 16);
    for line in ir.lines() {
        result.push_str(&marked(line));
        result.push('\n');
    }
    result
}

fn marked(line: &str) -> Cow<'_, str> {
    if line.starts_with("attributes #")
        && line.contains(OF_DEFINITIONS)
        && !line.split(' ').any(|word| word == "convergent")
    {
        return Cow::Owned(line.replacen("{ ", "{ convergent ", 1));
    }
    // Attributes of a call come after its arguments, and nothing that follows has parentheses.
    match (assembly(line), line.rfind(')')) {
        (Some(text), Some(end)) if is_together(text) => {
            let (call, rest) = line.split_at(end + 1);
            Cow::Owned(format!("{call} convergent{rest}"))
        }
        _ => Cow::Borrowed(line),
    }
}

/// Whether inline assembly has an instruction that the threads of a warp have to execute together.
pub(super) fn is_together(assembly: &str) -> bool {
    TOGETHER.iter().any(|part| assembly.contains(part))
}

/// The text of the inline assembly that is called on a line.
pub(crate) fn assembly(line: &str) -> Option<&str> {
    let keyword = ir::find(line, " asm ").filter(|_| line.contains("call "))?;
    let (_, text) = line[keyword..].split_once('"')?;
    Some(text.split_once('"')?.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_functions_once() {
        let line = r#"attributes #3 = { alwaysinline nounwind "target-cpu"="sm_80" }"#;
        let with = r#"attributes #3 = { convergent alwaysinline nounwind "target-cpu"="sm_80" }"#;
        assert_eq!(mark_convergent(line), format!("{with}\n"));
        assert_eq!(marked(with), with);
        let of_calls = "attributes #26 = { memory(read, inaccessiblemem: readwrite) }";
        assert_eq!(marked(of_calls), of_calls);
    }

    #[test]
    fn marks_assembly_that_threads_execute_together() {
        for (before, after) in [
            (
                r#"  call void asm sideeffect "bar.sync 1, 256;", "~{memory}"(), !srcloc !4"#,
                r#"  call void asm sideeffect "bar.sync 1, 256;", "~{memory}"() convergent, !srcloc !4"#,
            ),
            (
                r#"  %4 = call { float } asm "mma.sync.aligned.m8 {$0};", "=&r,r,r"(i32 %1, i32 %f(2)) #29, !srcloc !31"#,
                r#"  %4 = call { float } asm "mma.sync.aligned.m8 {$0};", "=&r,r,r"(i32 %1, i32 %f(2)) convergent #29, !srcloc !31"#,
            ),
        ] {
            assert_eq!(marked(before), after);
        }
        for line in [
            r#"  %25 = call i32 asm "mov.u32 ${0}, %laneid;", "=&r"() #29, !srcloc !31"#,
            r#"  call void asm sideeffect "cp.async.wait_group 2;", "~{memory}"(), !srcloc !4"#,
            r#"  call void @bar.sync(ptr @" asm ")"#,
            "  %2 = add i32 %1, 1",
        ] {
            assert_eq!(marked(line), line);
        }
    }
}
