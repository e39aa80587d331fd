//! Loops that are still loops in what a kernel was compiled to, how often they go round, and what LLVM says of them.
//!
//! ```text
//!  opt --passes=print<scalar-evolution>     Loop %38: backedge-taken count is i32 31          32 iterations
//!  opt -pass-remarks-output=…               loop-unroll: Unable to fully unroll loop as directed …
//!  the IR itself                            38:  …  br i1 %9, label %38, label %40, !dbg !31  src/lib.rs:14
//! ```
//!
//! LLVM unrolls a loop whose number of iterations it knows and whose body is small enough then; of the others it rarely says why. So here all
//! that remain are listed, with what is known of them: an array that such a loop indexes is in local memory, and its loads wait for
//! one another.

use std::path::Path;

use super::places::{Place, Places};

/// A loop of a kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loop {
    /// The function that it is in: the kernel, unless the compiler has not inlined it.
    pub function: String,
    /// The line of Rust that it comes from and those that this was inlined in, the innermost first; none if the compiler does not say.
    pub place: Vec<Place>,
    /// How often it goes round, where the compiler knows.
    pub iterations: Option<u64>,
    /// What LLVM's unrolling and vectorisation say of it.
    pub remarks: Vec<String>,
}

/// The passes of LLVM whose remarks are kept.
pub(crate) const PASSES: &str = "loop-unroll|loop-vectorize|transform-warning";

/// The loops of a module, in the order of its text. `llvm_ir` is what [`PtxModule::llvm_ir`](crate::PtxModule::llvm_ir) names in a build with
/// [`places`](crate::CudaBuilder::places): LLVM's analysis and remarks lie beside it. Without them there are none.
pub fn loops(llvm_ir: &Path) -> Vec<Loop> {
    let read = |path: &Path| std::fs::read_to_string(path).unwrap_or_default();
    let (analysis, remarks) = (analysis_path(llvm_ir), remarks_path(llvm_ir));
    of(&read(llvm_ir), &read(&analysis), &read(&remarks))
}

/// The file with what `print<scalar-evolution>` says of a module.
pub(crate) fn analysis_path(llvm_ir: &Path) -> std::path::PathBuf {
    llvm_ir.with_extension("loops.txt")
}

/// The file with LLVM's remarks on how a module came about.
pub(crate) fn remarks_path(llvm_ir: &Path) -> std::path::PathBuf {
    llvm_ir.with_extension("remarks.yaml")
}

fn of(ir: &str, analysis: &str, remarks: &str) -> Vec<Loop> {
    let places = Places::of(ir);
    let blocks = blocks(ir);
    let remarks = read_remarks(remarks);
    let mut found = Vec::new();
    for (function, header, iterations) in counts(analysis) {
        let Some(block) = blocks.iter().position(|block| block.function == function && block.label == header) else {
            continue;
        };
        let target = [format!("label %{header},"), format!("label %\"{header}\",")];
        // Where the loop goes round, where it begins, and whatever else is in its first block.
        let goes_there = |line: &&str| target.iter().any(|target| line.contains(target.as_str()));
        let of_function = || blocks.iter().filter(|block| block.function == function);
        let back = of_function().flat_map(|block| block.lines.last()).copied().filter(goes_there);
        let lines: Vec<&str> = back.rev().chain(blocks[block].lines.iter().copied()).collect();
        let place =
            lines.iter().find_map(|line| places.of_instruction(line).filter(|&list| !places.list(list).is_empty()));
        let said: Vec<String> = remarks
            .iter()
            .filter(|remark| remark.function == function && lines.iter().any(|line| remark.is_at(line, &places)))
            .map(|remark| remark.text.clone())
            .collect();
        found.push((
            block,
            Loop {
                function,
                place: place.map(|list| places.list(list).to_vec()).unwrap_or_default(),
                iterations,
                remarks: without_repetition(said),
            },
        ));
    }
    found.sort_by_key(|(block, _)| *block);
    found.into_iter().map(|(_, found)| found).collect()
}

/// Each remark once, and none that another says with its reason.
fn without_repetition(mut remarks: Vec<String>) -> Vec<String> {
    remarks.sort();
    remarks.dedup();
    let has_more =
        |remark: &String| remarks.iter().any(|other| other.len() > remark.len() && other.starts_with(remark.as_str()));
    remarks.iter().filter(|remark| !has_more(remark)).cloned().collect()
}

/// A basic block.
struct Block<'a> {
    function: String,
    label: &'a str,
    lines: Vec<&'a str>,
}

fn blocks(ir: &str) -> Vec<Block<'_>> {
    let mut blocks: Vec<Block<'_>> = Vec::new();
    let mut function = None;
    for line in ir.lines() {
        if line.starts_with("define ") {
            let name = line.split_once('@').and_then(|(_, rest)| rest.split('(').next()).unwrap_or_default();
            let name = name.trim_matches('"').to_owned();
            blocks.push(Block { function: name.clone(), label: "", lines: Vec::new() });
            function = Some(name);
        } else if line == "}" {
            function = None;
        } else if let Some(function) = &function {
            let label = line.split_once(':').map(|(label, _)| label).filter(|_| !line.starts_with([' ', ';']));
            match (label, blocks.last_mut()) {
                (Some(label), _) => {
                    blocks.push(Block { function: function.clone(), label: label.trim_matches('"'), lines: Vec::new() })
                }
                (None, Some(block)) if !line.trim().is_empty() => block.lines.push(line),
                _ => {}
            }
        }
    }
    blocks
}

/// The function, the first block and the number of iterations of each loop that LLVM's analysis mentions.
fn counts(analysis: &str) -> Vec<(String, String, Option<u64>)> {
    let mut function = String::new();
    let mut loops: Vec<(String, String, Option<u64>)> = Vec::new();
    for line in analysis.lines() {
        if let Some(name) = line.strip_prefix("Determining loop execution counts for: @") {
            function = name.trim_matches('"').to_owned();
        }
        let Some((header, said)) = line.strip_prefix("Loop %").and_then(|rest| rest.rsplit_once(": ")) else {
            continue;
        };
        if said.starts_with("Unpredictable backedge-taken count") {
            loops.push((function.clone(), header.trim_matches('"').to_owned(), None));
        } else if let Some(count) = said.strip_prefix("backedge-taken count is ") {
            // `i32 31`, or an expression.
            let number = count.trim().trim_start_matches(|c: char| c != ' ').trim().parse::<u64>().ok();
            let number = number.or_else(|| count.trim().parse().ok());
            loops.push((function.clone(), header.trim_matches('"').to_owned(), number.map(|number| number + 1)));
        }
    }
    loops
}

/// What a pass of LLVM says of a place.
#[derive(Debug, Default, PartialEq)]
struct Remark {
    function: String,
    file: String,
    line: u32,
    column: u32,
    text: String,
}

impl Remark {
    /// Whether an instruction's innermost line is the remark's.
    fn is_at(&self, instruction: &str, places: &Places) -> bool {
        places.innermost(instruction).is_some_and(|(place, column)| {
            (place.line, column) == (self.line, self.column) && place.file.ends_with(&self.file)
        })
    }
}

/// Remarks that something was not done, in LLVM's YAML.
fn read_remarks(yaml: &str) -> Vec<Remark> {
    let mut remarks = Vec::new();
    for document in yaml
        .split("--- !")
        .filter(|text| text.starts_with("Missed") || text.starts_with("Analysis") || text.starts_with("Failure"))
    {
        // A long line goes on in the next.
        let flat = document.split_ascii_whitespace().collect::<Vec<_>>().join(" ");
        let field = |name: &str, end: &str| {
            let rest = flat.split_once(name).map_or("", |(_, rest)| rest);
            rest.split(end).next().unwrap_or_default().trim().trim_matches('\'').to_owned()
        };
        let strings = flat.split_once("Args:").map_or("", |(_, args)| args).trim_end_matches("...");
        let parts = strings.split("- String: ").skip(1).map(|part| {
            // Other arguments, such as a number, follow with a name of their own.
            let part = part.trim().replace(" - ", " ");
            part.trim_matches('\'').to_owned()
        });
        remarks.push(Remark {
            function: field("Function: ", " Args:").trim_end_matches("...").trim().to_owned(),
            file: field("File: ", ","),
            line: field(" Line: ", ",").parse().unwrap_or(0),
            column: field("Column: ", " }").parse().unwrap_or(0),
            text: format!("{}: {}", field("Pass: ", " Name:"), parts.collect::<Vec<_>>().concat()),
        });
    }
    remarks
}

#[cfg(test)]
mod tests {
    use super::*;

    const IR: &str = r#"define void @k(ptr %0) !dbg !8 {
  br label %2

2:                                                ; preds = %1, %2
  %3 = phi i32 [ 0, %1 ], [ %4, %2 ]
  %4 = add i32 %3, 1, !dbg !31
  %5 = icmp eq i32 %4, 32, !dbg !31
  br i1 %5, label %inner.exit, label %2, !dbg !32

inner.exit:                                       ; preds = %2
  br label %inner.exit, !dbg !33
}
!3 = !DIFile(filename: "src/lib.rs", directory: "/home/me/kernels")
!8 = distinct !DISubprogram(name: "k", scope: !9, file: !3, line: 12)
!31 = !DILocation(line: 15, column: 5, scope: !8)
!32 = !DILocation(line: 14, column: 5, scope: !8)
!33 = !DILocation(line: 20, column: 9, scope: !8)
"#;

    const ANALYSIS: &str = "\
Printing analysis 'Scalar Evolution Analysis' for function 'k':
Determining loop execution counts for: @k
Loop %inner.exit: Unpredictable backedge-taken count.
Loop %inner.exit: Unpredictable constant max backedge-taken count. \n\
Loop %2: backedge-taken count is i32 31
Loop %2: constant max backedge-taken count is i32 31
Loop %2: Trip multiple is 32
";

    const REMARKS: &str = "\
--- !Analysis
Pass:            loop-vectorize
Name:            CantComputeNumberOfIterations
DebugLoc:        { File: 'src/lib.rs', Line: 20, 
                   Column: 9 }
Function:        k
Args:
  - String:          'loop not vectorized: '
  - String:          could not determine number of loop iterations
...
--- !Missed
Pass:            loop-vectorize
Name:            MissedDetails
DebugLoc:        { File: 'src/lib.rs', Line: 20, Column: 9 }
Function:        k
Args:
  - String:          loop not vectorized
...
--- !Passed
Pass:            loop-unroll
Name:            FullyUnrolled
DebugLoc:        { File: 'src/lib.rs', Line: 14, Column: 5 }
Function:        k
Args:
  - String:          'completely unrolled loop with '
...
";

    #[test]
    fn loops_that_remain_have_lines_counts_and_reasons() {
        let loops = of(IR, ANALYSIS, REMARKS);
        let shown: Vec<_> = loops.iter().map(|it| (it.place[0].line, it.iterations, it.remarks.join("; "))).collect();
        assert_eq!(
            shown,
            [
                (14, Some(32), String::new()),
                (
                    20,
                    None,
                    "loop-vectorize: loop not vectorized: could not determine number of loop iterations".to_owned()
                )
            ]
        );
        assert_eq!(of(IR, "", ""), []);
    }
}
