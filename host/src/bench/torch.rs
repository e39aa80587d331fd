//! Times of `torch.matmul`, from a file that a script of ours has written where torch is installed.
//!
//! Torch calls cuBLAS, too. Its times say whether the baselines here are used as well as torch uses them.

use std::path::Path;

use serde::Deserialize;

use super::suite::Case;
use crate::Error;
use crate::baseline::Math;
use tilewright::Sizes;

/// The script that times torch, which prints what [`TorchTimes::read`] reads.
pub const SCRIPT: &str = include_str!("torch_baseline.py");

const SCHEMA: &str = "tilewright-torch";

/// The times of torch.
#[derive(Clone, Debug, Deserialize)]
pub struct TorchTimes {
    schema: String,
    schema_version: u32,
    /// The version of torch.
    pub torch: String,
    /// The GPU that they were measured on.
    pub device: String,
    results: Vec<TorchTime>,
}

#[derive(Clone, Debug, Deserialize)]
struct TorchTime {
    m: usize,
    n: usize,
    k: usize,
    layout: String,
    math: Math,
    median_ms: f64,
}

impl TorchTimes {
    /// Reads the file.
    ///
    /// # Errors
    /// [`Error::File`]; [`Error::Usage`] for what the script has not written.
    pub fn read(path: &Path) -> Result<Self, Error> {
        let text = crate::files::read_text(path)?;
        let refuse = |reason: String| {
            Error::Usage(format!(
                "{} has no times of torch in it: {reason}. Make it with `tilewright bench --print-torch-script | python3 -`",
                path.display()
            ))
        };
        let times: Self = serde_json::from_str(&text).map_err(|error| refuse(error.to_string()))?;
        if (times.schema.as_str(), times.schema_version) != (SCHEMA, 1) {
            return Err(refuse(format!("its schema is {} {}", times.schema, times.schema_version)));
        }
        Ok(times)
    }

    /// The median for a case, in milliseconds, if it was measured.
    pub fn median_ms(&self, case: &Case) -> Option<f64> {
        let same = |time: &&TorchTime| {
            (Sizes { m: time.m, n: time.n, k: time.k }, time.layout.as_str(), time.math)
                == (case.sizes, case.orders.name(), case.math())
        };
        self.results.iter().find(same).map(|time| time.median_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::super::suite::suite;
    use super::*;

    fn read(text: &str) -> Result<TorchTimes, Error> {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("torch.json");
        std::fs::write(&path, text).unwrap();
        TorchTimes::read(&path)
    }

    #[test]
    fn times_are_found_by_size_layout_and_math() {
        let times = read(
            r#"{"schema": "tilewright-torch", "schema_version": 1, "torch": "2.11", "device": "GPU", "results": [
                {"m": 2048, "n": 4096, "k": 8192, "layout": "NT", "math": "tf32", "median_ms": 0.35},
                {"m": 2048, "n": 4096, "k": 8192, "layout": "NT", "math": "fp32", "median_ms": 2.8}]}"#,
        )
        .unwrap();
        let found: Vec<(String, f64)> =
            suite("targets").unwrap().iter().filter_map(|case| Some((case.id(), times.median_ms(case)?))).collect();
        assert!(
            found.iter().all(|(id, ms)| id.starts_with("a-bt") && (*ms == 0.35) == id.ends_with(" tf32")),
            "{found:?}"
        );
        assert_eq!(found.len(), 6);
    }

    #[test]
    fn another_file_is_refused() {
        assert!(read("{}").unwrap_err().to_string().contains("--print-torch-script"));
        let other = r#"{"schema": "x", "schema_version": 1, "torch": "", "device": "", "results": []}"#;
        assert!(read(other).unwrap_err().to_string().contains("its schema is x 1"));
    }

    #[test]
    fn the_script_times_every_product_of_the_targets() {
        for case in suite("targets").unwrap() {
            let Sizes { m, n, k } = case.sizes;
            let named = format!("({m}, {n}, {k}, \"{}\", \"{}\")", case.orders, case.math());
            let squares = m == n && n == k && SCRIPT.contains(&m.to_string());
            let layouts = (m, n, k) == (2048, 4096, 8192) && SCRIPT.contains(&format!("\"{}\"", case.orders));
            assert!(SCRIPT.contains(&named) || squares || layouts, "{named}");
        }
    }
}
