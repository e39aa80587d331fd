//! What the lines of a kernel would cost on a GPU, as the program's task `cost --kernel NAME --json` says.
//!
//! ```text
//!  {"operation":"softmax","sizes":"rows=7,cols=1000","kernels":[{"kernel":"softmax_fp32","rows":[
//!      {"line":"kernels/src/lib.rs:108","what":"global load","sectors":875,"conflicts":0,…},…
//! ```

use anyhow::{Context as _, ensure};
use serde::{Deserialize, Serialize};

use crate::Project;
use crate::code::{Listing, RustLine};

/// What accesses of one kind cost at one line.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct LineCost {
    /// The line of the kernel's crate.
    pub(crate) line: RustLine,
    /// What it does: `global load`.
    pub(crate) what: String,
    pub(crate) requests: u64,
    pub(crate) sectors: u64,
    /// The sectors that as many bytes would be in if they lay side by side.
    pub(crate) least_sectors: u64,
    pub(crate) wavefronts: u64,
    pub(crate) conflicts: u64,
}

/// What the lines of a kernel cost in one case.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Costs {
    /// The operation and the sizes.
    pub(crate) case: String,
    /// By line.
    pub(crate) lines: Vec<LineCost>,
}

#[derive(Deserialize)]
struct Report {
    operation: String,
    sizes: String,
    kernels: Vec<OfKernel>,
}

#[derive(Deserialize)]
struct OfKernel {
    kernel: String,
    rows: Vec<Row>,
}

#[derive(Deserialize)]
struct Row {
    /// None for the sum of all lines.
    line: Option<String>,
    what: String,
    requests: u64,
    bytes: u64,
    sectors: u64,
    wavefronts: u64,
    conflicts: u64,
}

/// The bytes of a sector of global memory.
const SECTOR: u64 = 32;

impl Costs {
    /// Has the program count, which cargo builds first.
    pub(crate) fn of(project: &Project, kernel: &str, listing: &Listing) -> anyhow::Result<Self> {
        let words = ["cost", "--kernel", kernel, "--json"].map(str::to_owned);
        let output = project.program(&words)?.output().context("cannot run cargo")?;
        ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr).trim());
        Self::read(&String::from_utf8_lossy(&output.stdout), kernel, listing)
    }

    fn read(json: &str, kernel: &str, listing: &Listing) -> anyhow::Result<Self> {
        for line in json.lines().filter(|line| line.starts_with('{')) {
            let report: Report = serde_json::from_str(line).context("the program's costs cannot be read")?;
            let Some(found) = report.kernels.into_iter().find(|found| found.kernel == kernel) else { continue };
            let lines = found.rows.into_iter().filter_map(|row| {
                let (file, line) = row.line.as_ref()?.rsplit_once(':')?;
                let line = place(file, line.parse().ok()?, listing)?;
                Some(LineCost {
                    line,
                    what: row.what,
                    requests: row.requests,
                    sectors: row.sectors,
                    least_sectors: if row.sectors == 0 { 0 } else { row.bytes.div_ceil(SECTOR) },
                    wavefronts: row.wavefronts,
                    conflicts: row.conflicts,
                })
            });
            return Ok(Self { case: format!("{} with {}", report.operation, report.sizes), lines: lines.collect() });
        }
        anyhow::bail!("no operation of the program has launched `{kernel}`")
    }

    /// What one line costs, in words, most important first.
    pub(crate) fn at(&self, line: &RustLine) -> Vec<&LineCost> {
        self.lines.iter().filter(|cost| cost.line == *line).collect()
    }
}

impl LineCost {
    /// `global load 875 sectors`, `shared load 896 wavefronts, 128 conflicts`.
    pub(crate) fn words(&self) -> String {
        let Self { what, requests, sectors, least_sectors, wavefronts, conflicts, .. } = self;
        match (*sectors, *wavefronts) {
            (0, 0) => format!("{what} {requests}"),
            (0, _) if *conflicts > 0 => format!("{what} {wavefronts} wavefronts, {conflicts} conflicts"),
            (0, _) => format!("{what} {wavefronts} wavefronts"),
            (_, _) if sectors > least_sectors => format!("{what} {sectors} sectors of at least {least_sectors}"),
            (_, _) => format!("{what} {sectors} sectors"),
        }
    }

    /// Whether less would do.
    pub(crate) fn is_wasteful(&self) -> bool {
        // A warp's first and last sector may be shared with its neighbours' at any address.
        self.conflicts > 0 || self.sectors > self.least_sectors + self.least_sectors / 8
    }
}

/// The line of the kernel's crate that a line of the executor's belongs to: itself, or the only one that has it inlined.
fn place(file: &str, line: u32, listing: &Listing) -> Option<RustLine> {
    // The executor names files as the compiler does, seen from the workspace: `kernels/src/lib.rs`.
    let is_it = |at: &RustLine| at.line == line && is_end_of(&at.file, file);
    let own = listing.origins.iter().map(|origin| &origin.line).find(|at| is_it(at));
    let inlined = || {
        let mut found = listing.origins.iter().filter(|origin| origin.inner.iter().any(|(at, _)| is_it(at)));
        let first = &found.next()?.line;
        found.all(|origin| origin.line == *first).then_some(first)
    };
    own.or_else(inlined).cloned()
}

/// Whether one path ends with the other, part by part.
fn is_end_of(end: &str, path: &str) -> bool {
    let (short, long) = if end.len() <= path.len() { (end, path) } else { (path, end) };
    long.strip_suffix(short).is_some_and(|rest| rest.is_empty() || rest.ends_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::code::Origin;

    const JSON: &str = r#"{"operation":"other","sizes":"n=1","kernels":[{"kernel":"o","launches":1,"rows":[]}]}
{"operation":"sum","sizes":"n=9","kernels":[{"kernel":"k","launches":1,"rows":[
{"line":"kernels/src/lib.rs:108","what":"global load","requests":4,"lanes":128,"bytes":512,"sectors":64,"wavefronts":0,"conflicts":0},
{"line":"crates/blocks/src/tile.rs:9","what":"shared load","requests":4,"lanes":128,"bytes":512,"sectors":0,"wavefronts":8,"conflicts":4},
{"line":"crates/blocks/src/other.rs:9","what":"wait","requests":4,"lanes":128,"bytes":0,"sectors":0,"wavefronts":0,"conflicts":0},
{"line":null,"what":"global load","requests":4,"lanes":128,"bytes":512,"sectors":64,"wavefronts":0,"conflicts":0}]}]}"#;

    fn at(file: &str, line: u32) -> RustLine {
        RustLine { file: file.to_owned(), line }
    }

    #[test]
    fn costs_are_at_the_lines_of_the_crate() {
        let origins = vec![
            Origin { line: at("src/lib.rs", 108), inner: Vec::new() },
            Origin { line: at("src/lib.rs", 50), inner: vec![(at("blocks/src/tile.rs", 9), "get".to_owned())] },
        ];
        let listing = Listing { origins, ..Listing::default() };
        // What follows a line break in the file is one line in what the program prints.
        let json = JSON.replace("\n{\"line\"", "{\"line\"");
        let costs = Costs::read(&json, "k", &listing).unwrap();
        assert_eq!(costs.case, "sum with n=9");
        let words = |line| costs.at(&at("src/lib.rs", line)).iter().map(|cost| cost.words()).collect::<Vec<_>>();
        assert_eq!(words(108), ["global load 64 sectors of at least 16"]);
        assert_eq!(words(50), ["shared load 8 wavefronts, 4 conflicts"]);
        assert!(costs.lines.len() == 2 && costs.lines.iter().all(LineCost::is_wasteful));
        let error = Costs::read(&json, "none", &listing).unwrap_err().to_string();
        assert!(error.contains("`none`"), "{error}");
        assert!(!is_end_of("rc/lib.rs", "kernels/src/lib.rs") && is_end_of("a/src/lib.rs", "src/lib.rs"));
    }
}
