//! Nsight Compute: runs this program under it, and reads what it has counted.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use super::report::COUNTERS;
use crate::Error;
use crate::child::{self, Ended};

/// How long the program may take under `ncu`, which runs each kernel several times.
const LIMIT: Duration = Duration::from_secs(1800);

/// What `ncu` says to who may not read a GPU's counters.
const NOT_PERMITTED: &str = "ERR_NVGPUCTRPERM";

/// What `ncu` has counted of a kernel.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Counted {
    pub(super) launches: u64,
    /// The blocks of all launches, if the table has them.
    pub(super) blocks: Option<u64>,
    /// By metric.
    pub(super) metrics: BTreeMap<&'static str, u64>,
}

/// What a run under `ncu` has come to.
pub(super) struct Run {
    /// By the kernels' names.
    pub(super) kernels: BTreeMap<String, Counted>,
    /// What the program has said of operations that did not run to their end.
    pub(super) errors: Vec<String>,
}

/// What `ncu` is told to count what this program launches with these arguments, and to write the table to a file. Counters depend neither on
/// what caches have kept nor on clocks.
fn words(ncu: &Path, table: &Path, arguments: &[OsString]) -> Result<Vec<OsString>, Error> {
    let program = std::env::current_exe().map_err(|error| Error::Program {
        program: ncu.to_owned(),
        reason: format!("this program is not to be found: {error}"),
    })?;
    let metrics: Vec<&str> = COUNTERS.iter().flat_map(|counter| counter.metrics).copied().collect();
    let flags =
        ["--csv", "--page", "raw", "--print-units", "base", "--cache-control", "none", "--clock-control", "none"];
    let mut words = vec![ncu.into()];
    words.extend(flags.map(OsString::from));
    words.extend(["--metrics".into(), metrics.join(",").into(), "--log-file".into(), table.into(), program.into()]);
    words.extend_from_slice(arguments);
    Ok(words)
}

/// The same as a line for a shell.
pub(super) fn line(ncu: &Path, arguments: &[OsString]) -> Result<String, Error> {
    let quoted = |word: &OsString| {
        let word = word.to_string_lossy();
        let is_plain = word.chars().all(|c| c.is_ascii_alphanumeric() || "-_./:,=".contains(c));
        if is_plain { word.into_owned() } else { format!("'{}'", word.replace('\'', "'\\''")) }
    };
    let words = words(ncu, Path::new("counters.csv"), arguments)?;
    Ok(words.iter().map(quoted).collect::<Vec<_>>().join(" "))
}

/// Reads a table that `ncu` has written.
pub(super) fn read(table: &Path) -> Result<Run, Error> {
    let failed = |reason: String| Error::operation(format!("cannot read the table {}: {reason}", table.display()));
    let text = std::fs::read_to_string(table).map_err(|error| failed(error.to_string()))?;
    let kernels = counted(&text).ok_or_else(|| {
        failed(
            "it is none of `ncu --csv --page raw` with all metrics and a launch: have it written by the command that `cost --ncu --dry-run` \
             shows"
                .to_owned(),
        )
    })?;
    Ok(Run { kernels, errors: Vec::new() })
}

/// Runs this program with these arguments under `ncu`.
pub(super) fn run(ncu: &Path, arguments: &[OsString]) -> Result<Run, Error> {
    let failed = |reason: String| Error::Program { program: ncu.to_owned(), reason };
    let folder = tempfile::tempdir().map_err(|source| Error::File { path: std::env::temp_dir(), source })?;
    let log = folder.path().join("counters.csv");
    let words = words(ncu, &log, arguments)?;
    let (ended, output) = child::output_of(Command::new(&words[0]).args(&words[1..]), LIMIT)
        .map_err(|error| failed(error.to_string()))?;
    let log = std::fs::read_to_string(&log).unwrap_or_default();
    let said =
        || log.lines().chain(output.lines()).filter(|line| !line.starts_with('"')).collect::<Vec<_>>().join("; ");
    match ended {
        _ if log.contains(NOT_PERMITTED) => Err(failed(
            "the driver does not let this user read the GPU's counters (ERR_NVGPUCTRPERM): run it as root, or have the \
             administrator load the driver's module with `NVreg_RestrictProfilingToAdminUsers=0`"
                .to_owned(),
        )),
        Ended::TimeLimit => Err(failed(format!(
            "it has not ended after {} s: have it count less at a time, with `--op` or `--kernel`",
            LIMIT.as_secs()
        ))),
        Ended::Exited(status) => {
            let errors = errors_of_operations(&output);
            // What is wrong with an operation makes the program fail, and the others have been counted.
            if !status.success() && errors.is_empty() {
                return Err(failed(format!("{status}: {}", said())));
            }
            let kernels = counted(&log).ok_or_else(|| failed(format!("it has counted nothing: {}", said())))?;
            Ok(Run { kernels, errors })
        }
    }
}

/// What the program says of single operations: `error: NAME: …`.
fn errors_of_operations(output: &str) -> Vec<String> {
    output.lines().filter_map(|line| line.strip_prefix("error: ")).map(str::to_owned).collect()
}

/// What a table of `ncu --csv --page raw` says: a line with the names of columns, one with units, one for each launch. All fields are
/// quoted. A line that is cut off, as the last one of a run that was ended, is none.
pub(super) fn counted(csv: &str) -> Option<BTreeMap<String, Counted>> {
    let mut lines = csv.lines().filter_map(|line| line.trim().strip_prefix('"')?.strip_suffix('"'));
    let columns: Vec<&str> = lines.next()?.split("\",\"").collect();
    let column = |name: &str| columns.iter().position(|column| *column == name);
    let kernel = column("Kernel Name")?;
    let grid = column("Grid Size");
    let metrics: Vec<(&'static str, usize)> = COUNTERS
        .iter()
        .flat_map(|counter| counter.metrics)
        .map(|metric| Some((*metric, column(metric)?)))
        .collect::<Option<_>>()?;
    let mut all: BTreeMap<String, Counted> = BTreeMap::new();
    for line in lines {
        let fields: Vec<&str> = line.split("\",\"").collect();
        let name = fields.get(kernel).filter(|name| !name.is_empty() && fields.len() == columns.len());
        let Some(name) = name else { continue };
        let of_kernel = all.entry((*name).to_owned()).or_default();
        of_kernel.launches += 1;
        if let Some(grid) = grid {
            *of_kernel.blocks.get_or_insert(0) += blocks(fields.get(grid)?)?;
        }
        for (metric, column) in &metrics {
            // With commas between thousands.
            let digits: String = fields.get(*column)?.chars().filter(|c| *c != ',').collect();
            *of_kernel.metrics.entry(metric).or_default() += digits.parse::<u64>().ok()?;
        }
    }
    (!all.is_empty()).then_some(all)
}

/// The blocks of a grid that is written as `(132, 1, 1)`.
fn blocks(grid: &str) -> Option<u64> {
    let extents = grid.trim().strip_prefix('(')?.strip_suffix(')')?;
    extents.split(',').map(|extent| extent.trim().parse::<u64>().ok()).product()
}

#[cfg(test)]
mod tests {
    use super::super::testing::table;
    use super::*;

    #[test]
    fn launches_of_a_kernel_are_added_up_with_their_blocks() {
        let launch = ["0", "0", "7", "0", "1", "1", "1,008", "8"];
        let kernels = counted(&table(&[("doubles", "(2, 3, 1)", launch), ("doubles", "(1, 1, 1)", launch)])).unwrap();
        let doubles = &kernels["doubles"];
        assert_eq!((doubles.launches, doubles.blocks), (2, Some(7)));
        assert_eq!(doubles.metrics["l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum"], 2016);
        let without = table(&[("doubles", "(2, 3, 1)", launch)]).replace("Grid Size", "Grid");
        assert_eq!(counted(&without).unwrap()["doubles"].blocks, None, "an older table is read, too");
    }

    #[test]
    fn a_table_that_cannot_be_read_is_no_table() {
        let launch = ["0"; 8];
        assert!(counted(&table(&[("doubles", "(1, 1, 1)", launch)])).is_some());
        for csv in [
            String::new(),
            "==ERROR== no kernels\n".to_owned(),
            table(&[]),
            table(&[("doubles", "(1, 1, 1)", launch)]).replace("op_red", "op_redo"),
            table(&[("doubles", "(1, 1, 1)", ["many"; 8])]),
            table(&[("doubles", "(1, many, 1)", launch)]),
            table(&[("doubles", "1", launch)]),
        ] {
            assert_eq!(counted(&csv), None, "{csv}");
        }
    }

    #[test]
    fn a_table_that_is_cut_off_is_used_as_far_as_it_goes() {
        let launch = ("doubles", "(2, 1, 1)", ["1"; 8]);
        let whole = table(&[launch, launch]);
        for cut in 1..whole.len() - whole.rfind("\"0\",").unwrap() {
            let doubles = &counted(&whole[..whole.len() - 1 - cut]).unwrap()["doubles"];
            assert_eq!((doubles.launches, doubles.blocks), (1, Some(2)), "{cut}");
        }
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("counters.csv");
        std::fs::write(&file, &whole).unwrap();
        assert_eq!(read(&file).unwrap().kernels["doubles"].launches, 2);
        std::fs::write(&file, "==ERROR==").unwrap();
        let told = read(&file).err().unwrap().to_string();
        assert!(told.contains("counters.csv") && told.contains("--ncu --dry-run"), "{told}");
    }

    #[test]
    fn how_ncu_is_called_is_told_for_a_shell() {
        let told = line(Path::new("/opt/n c/ncu"), &["cost".into(), "it's".into()]).unwrap();
        assert!(told.starts_with("'/opt/n c/ncu' --csv --page raw --print-units base --cache-control none"), "{told}");
        assert!(told.contains(" --log-file counters.csv ") && told.ends_with(" cost 'it'\\''s'"), "{told}");
        assert!(told.contains("--metrics l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum,"), "{told}");
    }

    #[test]
    fn what_the_program_says_of_an_operation_is_told_from_the_rest() {
        let output = "==PROF== Disconnected\nerror: twice: no such size\nan error: no\n";
        assert_eq!(errors_of_operations(output), ["twice: no such size"]);
    }
}
