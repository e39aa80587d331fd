//! What Nsight Compute has measured of a kernel, as distances from the roofline.

use std::collections::BTreeMap;

use serde::Serialize;

/// Below this share of every peak, nothing that a GPU has is short: threads wait for one another, or for memory that is far away.
const BUSY: f64 = 60.0;

const TIME: &str = "gpu__time_duration.sum";
const READ: &str = "dram__bytes_read.sum";
const WRITTEN: &str = "dram__bytes_write.sum";
const DRAM: &str = "dram__throughput.avg.pct_of_peak_sustained_elapsed";
const L2: &str = "lts__throughput.avg.pct_of_peak_sustained_elapsed";
const L1: &str = "l1tex__throughput.avg.pct_of_peak_sustained_active";
const FMA: &str = "sm__pipe_fma_cycles_active.avg.pct_of_peak_sustained_active";
const TENSOR: &str = "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active";
const ISSUE: &str = "sm__inst_issued.avg.pct_of_peak_sustained_active";
const WARPS: &str = "sm__warps_active.avg.pct_of_peak_sustained_active";

/// What `ncu` is asked for.
pub(super) const METRICS: [&str; 10] = [TIME, READ, WRITTEN, DRAM, L2, L1, FMA, TENSOR, ISSUE, WARPS];

/// What can be short, and what that is called.
const ROOFS: [(&str, &str); 6] = [
    (DRAM, "bandwidth of the GPU's memory"),
    (L2, "bandwidth of the L2 cache"),
    (L1, "L1 cache and shared memory"),
    (FMA, "CUDA cores"),
    (TENSOR, "tensor cores"),
    (ISSUE, "instructions that can be issued"),
];

/// What was measured of one kernel: times and bytes of all its launches together, and the shares of the longest one.
#[derive(Debug, PartialEq, Serialize)]
pub(super) struct Measured {
    launches: u64,
    microseconds: f64,
    bytes_read: f64,
    bytes_written: f64,
    /// In percent of the peak; what this GPU does not count is left out.
    shares: BTreeMap<&'static str, f64>,
    /// In percent of the warps that a multiprocessor can have.
    warps: Option<f64>,
    /// The name of the highest share, if it is high enough to hold the kernel back.
    limit: Option<&'static str>,
}

impl Measured {
    /// Reads a table of `ncu --csv --page raw --print-units base`: a line with the names of columns, one with units, one for each launch. All
    /// fields are quoted. None, if it has no launch of the kernel.
    pub(super) fn read(csv: &str, kernel: &str) -> Option<Self> {
        let mut lines = csv.lines().filter_map(|line| line.trim().strip_prefix('"')?.strip_suffix('"'));
        let columns: Vec<&str> = lines.next()?.split("\",\"").collect();
        let column = |name: &str| columns.iter().position(|column| *column == name);
        let name = column("Kernel Name")?;
        let rows: Vec<Vec<&str>> = lines.map(|line| line.split("\",\"").collect()).collect();
        let rows: Vec<&Vec<&str>> = rows.iter().filter(|row| row.get(name) == Some(&kernel)).collect();
        // With commas between thousands; `n/a` where this GPU has no such counter.
        let value = |row: &[&str], metric: &str| row.get(column(metric)?)?.replace(',', "").parse::<f64>().ok();
        let sum = |metric: &str| rows.iter().filter_map(|row| value(row, metric)).sum::<f64>();
        let time = |row: &&&Vec<&str>| value(row, TIME).unwrap_or_default();
        let longest = rows.iter().max_by(|a, b| time(a).total_cmp(&time(b)))?;
        let shares: BTreeMap<_, _> =
            ROOFS.iter().filter_map(|(metric, name)| Some((*name, value(longest, metric)?))).collect();
        let highest = shares.iter().max_by(|a, b| a.1.total_cmp(b.1));
        let limit = highest.filter(|(_, share)| **share >= BUSY).map(|(name, _)| *name);
        Some(Self {
            launches: rows.len() as u64,
            microseconds: sum(TIME) / 1000.0,
            bytes_read: sum(READ),
            bytes_written: sum(WRITTEN),
            warps: value(longest, WARPS),
            shares,
            limit,
        })
    }

    /// In words, each with what it is about.
    pub(super) fn lines(&self) -> Vec<(&'static str, String)> {
        let Self { launches, microseconds, bytes_read, bytes_written, shares, warps, limit } = self;
        let times = if *launches == 1 { String::new() } else { format!(" in {launches} launches") };
        let highest = shares.iter().max_by(|a, b| a.1.total_cmp(b.1));
        let held = match (limit, highest) {
            (Some(limit), Some((_, share))) => {
                format!("{limit}: {share:.0} % of the peak, {:.0} % from the roof", 100.0 - share)
            }
            (None, Some((name, share))) => format!(
                "latency: nothing is short ({name}, the busiest, is at {share:.0} %); more warps, more that each has under way, or fewer \
                 waits would help"
            ),
            _ => "unknown: this GPU has none of the counters".to_owned(),
        };
        let rate = (bytes_read + bytes_written) / (microseconds / 1e6).max(1e-12) / 1e9;
        let shown: Vec<_> =
            ROOFS.iter().filter_map(|(_, name)| Some(format!("{name} {:.0} %", shares.get(name)?))).collect();
        let mut lines = vec![
            ("time", format!("{microseconds:.1} µs{times}")),
            ("limit", held),
            (
                "memory",
                format!("{:.2} MB read, {:.2} MB written, {rate:.0} GB/s", bytes_read / 1e6, bytes_written / 1e6),
            ),
            ("of the peaks", shown.join(", ")),
        ];
        lines.extend(warps.map(|warps| ("warps", format!("{warps:.0} % of those that a multiprocessor can have"))));
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As `ncu` writes it.
    pub(in super::super) fn table(rows: &[(&str, [&str; METRICS.len()])]) -> String {
        let line = |fields: Vec<&str>| format!("\"{}\"\n", fields.join("\",\""));
        let mut csv = "==PROF== Connected to process 501\n".to_owned();
        csv += &line([&["ID", "Kernel Name"], &METRICS[..]].concat());
        csv += &line(vec![""; METRICS.len() + 2]);
        for (kernel, values) in rows {
            csv += &line([&["0", kernel], &values[..]].concat());
        }
        csv
    }

    const BOUND: [&str; 10] = ["61,000", "128,000,000", "64,000,000", "91.5", "40.2", "22", "12", "n/a", "30", "56.2"];

    #[test]
    fn the_busiest_of_what_can_be_short_is_the_limit() {
        let csv = table(&[("other", ["1"; 10]), ("softmax", BOUND)]);
        let measured = Measured::read(&csv, "softmax").unwrap();
        let text: Vec<_> = measured.lines().into_iter().map(|(label, what)| format!("{label}: {what}")).collect();
        assert_eq!(
            text,
            [
                "time: 61.0 µs",
                "limit: bandwidth of the GPU's memory: 92 % of the peak, 8 % from the roof",
                "memory: 128.00 MB read, 64.00 MB written, 3148 GB/s",
                "of the peaks: bandwidth of the GPU's memory 92 %, bandwidth of the L2 cache 40 %, L1 cache and shared memory 22 %, CUDA cores \
                 12 %, instructions that can be issued 30 %",
                "warps: 56 % of those that a multiprocessor can have",
            ]
        );
        let mut idle = BOUND;
        idle[3] = "20";
        let twice = Measured::read(&table(&[("softmax", idle), ("softmax", idle)]), "softmax").unwrap();
        assert_eq!((twice.launches, twice.limit, twice.microseconds), (2, None, 122.0));
        assert!(
            twice.lines()[1]
                .1
                .starts_with("latency: nothing is short (bandwidth of the L2 cache, the busiest, is at 40 %)")
        );
    }

    #[test]
    fn a_table_without_the_kernel_is_none() {
        for csv in ["", "==ERROR== no kernels", &table(&[]), &table(&[("other", BOUND)])] {
            assert_eq!(Measured::read(csv, "softmax"), None, "{csv}");
        }
    }
}
