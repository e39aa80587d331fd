//! What a tool of `compute-sanitizer` has written.
//!
//! ```text
//! ========= COMPUTE-SANITIZER
//! ========= Invalid __global__ read of size 4 bytes
//! =========     at planted_read_out_of_bounds+0x110
//! =========     by thread (5,0,0) in block (0,0,0)
//! ========= ERROR SUMMARY: 1 error                                                  all tools but one
//! ========= RACECHECK SUMMARY: 2 hazards displayed (1 error, 1 warning)             racecheck
//! ```
//!
//! Only a log with one summary, as the tool writes it, says that there were no errors.

use super::tool::Tool;

/// What every line of a tool begins with.
const MARK: &str = "=========";

/// What a tool has found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) errors: u64,
    pub(super) warnings: u64,
}

impl Counts {
    /// What a log says, or why nobody can tell.
    pub(super) fn of(tool: Tool, log: &str) -> Result<Self, String> {
        let lines: Vec<&str> = lines(log).collect();
        // A second one says how many of more than a hundred errors were not printed.
        let summary = |line: &&&str| line.contains("SUMMARY:") && !line.contains("not printed");
        let summaries: Vec<&&str> = lines.iter().filter(summary).collect();
        let [summary] = summaries[..] else {
            return Err(format!("the log of {tool} has {} summaries, and not one", summaries.len()));
        };
        let mut counts = match tool {
            Tool::Racecheck => racecheck_summary(summary),
            _ => summary.strip_prefix("ERROR SUMMARY: ").and_then(|rest| only(rest, "error")).map(Self::of_errors),
        }
        .ok_or_else(|| format!("the summary of {tool} cannot be read: {summary}"))?;
        // Those of hazards are in the summary.
        let other = |line: &&&str| is_warning(line) && !line.contains("Race reported");
        counts.warnings += lines.iter().filter(other).count() as u64;
        Ok(counts)
    }

    fn of_errors(errors: u64) -> Self {
        Self { errors, warnings: 0 }
    }
}

/// What the tool says of a failure that is no fault of a kernel: it did not get to look, or broke, or the program did.
pub(super) fn own_failure(log: &str) -> Option<String> {
    let is_failure = |line: &&str| {
        line.contains("Internal Sanitizer Error")
            || line.starts_with("Error: ") && !line.contains("Race reported")
            || line.contains("terminated before first instrumented API call")
    };
    lines(log).find(is_failure).map(str::to_owned)
}

/// The lines that the tool has written, without what marks them.
fn lines(log: &str) -> impl Iterator<Item = &str> {
    log.lines().filter_map(|line| line.trim().strip_prefix(MARK)).map(str::trim)
}

/// `RACECHECK SUMMARY: 2 hazards displayed (1 error, 1 warning)`. All hazards are one or the other.
fn racecheck_summary(summary: &str) -> Option<Counts> {
    let rest = summary.strip_prefix("RACECHECK SUMMARY: ")?;
    let (hazards, rest) = rest.split_once(" displayed (")?;
    let (errors, warnings) = rest.strip_suffix(')')?.split_once(", ")?;
    let (hazards, errors, warnings) = (only(hazards, "hazard")?, only(errors, "error")?, only(warnings, "warning")?);
    // Those that are no longer displayed are errors as well.
    Some(Counts { errors: errors.max(hazards.checked_sub(warnings)?), warnings })
}

/// The number in `1 error` or `2 errors`, and nothing else.
fn only(text: &str, what: &str) -> Option<u64> {
    let (number, word) = text.split_once(' ')?;
    (word.strip_suffix('s').unwrap_or(word) == what).then(|| number.parse().ok())?
}

fn is_warning(line: &str) -> bool {
    line.get(..7).is_some_and(|start| start.eq_ignore_ascii_case("warning"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(tool: Tool, lines: &[&str]) -> Result<(u64, u64), String> {
        let log: String = lines.iter().map(|line| format!("========= {line}\n")).collect();
        Counts::of(tool, &log).map(|counts| (counts.errors, counts.warnings))
    }

    #[test]
    fn summaries_are_read() {
        for tool in [Tool::Memcheck, Tool::Synccheck, Tool::Initcheck] {
            assert_eq!(counts(tool, &["COMPUTE-SANITIZER", "ERROR SUMMARY: 0 errors"]), Ok((0, 0)));
            assert_eq!(counts(tool, &["COMPUTE-SANITIZER", "ERROR SUMMARY: 1 error"]), Ok((1, 0)));
            assert_eq!(counts(tool, &["Warning: something", "", "ERROR SUMMARY: 192 errors"]), Ok((192, 1)));
        }
        let unprinted = "ERROR SUMMARY: 92 errors were not printed. Use --print-limit option to adjust the number of printed errors";
        assert_eq!(counts(Tool::Initcheck, &["ERROR SUMMARY: 192 errors", unprinted]), Ok((192, 0)));
        assert!(counts(Tool::Initcheck, &[unprinted]).is_err());
        let racecheck = |summary: &str| counts(Tool::Racecheck, &["COMPUTE-SANITIZER", summary]);
        assert_eq!(racecheck("RACECHECK SUMMARY: 0 hazards displayed (0 errors, 0 warnings)"), Ok((0, 0)));
        assert_eq!(racecheck("RACECHECK SUMMARY: 1 hazard displayed (1 error, 0 warnings)"), Ok((1, 0)));
        assert_eq!(racecheck("RACECHECK SUMMARY: 3 hazards displayed (1 error, 2 warnings)"), Ok((1, 2)));
        let hazard = "Warning: Race reported between Write access at k+0x10 and Read access at k+0x20";
        let summary = "RACECHECK SUMMARY: 1 hazard displayed (0 errors, 1 warning)";
        assert_eq!(counts(Tool::Racecheck, &[hazard, summary]), Ok((0, 1)), "counted once");
        let hazard = "Error: Race reported between Write access at k+0x10 and Read access at k+0x20";
        let summary = "RACECHECK SUMMARY: 1 hazard displayed (1 error, 0 warnings)";
        assert_eq!(counts(Tool::Racecheck, &[hazard, summary]), Ok((1, 0)));
    }

    #[test]
    fn what_is_no_summary_says_nothing() {
        let unreadable = [
            &[][..],
            &["COMPUTE-SANITIZER"],
            &["ERROR SUMMARY: 0 errors", "ERROR SUMMARY: 0 errors"],
            &["ERROR SUMMARY: no errors"],
            &["ERROR SUMMARY: 0"],
            &["ERROR SUMMARY: 0 errors of 7"],
            &["ERROR SUMMARY: -1 errors"],
            &["RACECHECK SUMMARY: 0 hazards displayed (0 errors, 0 warnings)"],
        ];
        for lines in unreadable {
            assert!(counts(Tool::Memcheck, lines).is_err(), "{lines:?}");
        }
        for summary in [
            "ERROR SUMMARY: 0 errors",
            "RACECHECK SUMMARY: 0 hazards displayed",
            "RACECHECK SUMMARY: 0 hazards displayed (0 errors)",
            "RACECHECK SUMMARY: 0 hazards displayed (0 errors, 1 warnings)",
        ] {
            assert!(counts(Tool::Racecheck, &[summary]).is_err(), "{summary}");
        }
        assert!(Counts::of(Tool::Memcheck, "ERROR SUMMARY: 0 errors\n").is_err(), "the program may write that");
    }

    #[test]
    fn failures_of_the_tool_are_told_from_faults_of_kernels() {
        for failure in [
            "Internal Sanitizer Error: the tool is broken",
            "Error: Target application terminated before first instrumented API call",
            "Error: No attachable process found. compute-sanitizer timed-out.",
            "Error: process didn't terminate successfully",
        ] {
            let log = format!("========= COMPUTE-SANITIZER\n========= {failure}\n========= ERROR SUMMARY: 0 errors\n");
            assert_eq!(own_failure(&log).as_deref(), Some(failure));
        }
        let log = "Error: x\n========= Error: Race reported between Write access at k+0x10\n========= Invalid __global__ read";
        assert_eq!(own_failure(log), None);
    }
}
