//! Both counts side by side, kernel by kernel, and how many kernels have the same.

use std::collections::BTreeMap;
use std::fmt;

use cuda_std::executor::{CostKind, KernelCosts};
use serde::Serialize;

use super::OfExecutor;
use super::ncu::Counted;

/// A counter of `ncu`, and the executor's.
pub(super) struct Counter {
    what: &'static str,
    group: Option<&'static str>,
    /// Added up.
    pub(super) metrics: &'static [&'static str],
    here: fn(&KernelCosts) -> u64,
}

/// What counters are summed up by.
const SECTORS: &str = "sectors of global loads, stores and atomic operations";
const CONFLICTS: &str = "bank conflicts of shared loads and stores";

/// How far the executor's count of a group may be from the GPU's to be near it.
const NEAR: f64 = 0.05;

/// The counter that atomic loads count for.
const LOADS: &str = "global load sectors";

pub(super) const COUNTERS: [Counter; 7] = [
    Counter {
        what: LOADS,
        group: Some(SECTORS),
        metrics: &["l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum"],
        // To the GPU, an asynchronous copy is a load, and so is an atomic one.
        here: |costs| {
            [CostKind::GlobalLoad, CostKind::GlobalAtomicLoad, CostKind::AsyncCopy]
                .map(|kind| costs.total(kind).sectors)
                .iter()
                .sum()
        },
    },
    Counter {
        what: "global store sectors",
        group: Some(SECTORS),
        metrics: &["l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum"],
        here: |costs| costs.total(CostKind::GlobalStore).sectors,
    },
    Counter {
        what: "global atomic sectors",
        group: Some(SECTORS),
        metrics: &[
            "l1tex__t_sectors_pipe_lsu_mem_global_op_atom.sum",
            "l1tex__t_sectors_pipe_lsu_mem_global_op_red.sum",
        ],
        here: |costs| costs.total(CostKind::GlobalAtomic).sectors,
    },
    Counter {
        what: "shared load conflicts",
        group: Some(CONFLICTS),
        metrics: &["l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum"],
        here: |costs| costs.total(CostKind::SharedLoad).conflicts,
    },
    Counter {
        what: "shared store conflicts",
        group: Some(CONFLICTS),
        metrics: &["l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_st.sum"],
        here: |costs| costs.total(CostKind::SharedStore).conflicts,
    },
    Counter {
        what: "shared load wavefronts",
        group: None,
        metrics: &["l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum"],
        here: |costs| costs.total(CostKind::SharedLoad).wavefronts,
    },
    Counter {
        what: "shared store wavefronts",
        group: None,
        metrics: &["l1tex__data_pipe_lsu_wavefronts_mem_shared_op_st.sum"],
        here: |costs| costs.total(CostKind::SharedStore).wavefronts,
    },
];

/// What both have counted.
#[derive(Debug, Serialize)]
pub(super) struct CountersReport {
    kernels: Vec<OfKernel>,
    /// The groups of counters.
    summary: Vec<Summary>,
    /// The kernels of which nothing is compared, because they were not launched alike.
    not_compared: Vec<String>,
}

#[derive(Debug, Serialize)]
struct OfKernel {
    kernel: String,
    /// The operations that launch it on the executor.
    operations: Vec<&'static str>,
    /// How often the executor has launched it, and the GPU. Where a plan depends on the GPU, so may its kernels.
    launches: [u64; 2],
    /// The blocks of these launches, together; none where `ncu` says nothing of them.
    blocks: [Option<u64>; 2],
    /// The sectors of its atomic loads on the executor, by which it waits or sees how far others are: of these there are others each time.
    atomic_load_sectors: u64,
    counters: Vec<Row>,
}

#[derive(Debug, Serialize)]
struct Row {
    what: &'static str,
    executor: u64,
    gpu: u64,
}

/// What comes of a group of counters.
#[derive(Debug, Default, Serialize)]
struct Summary {
    group: &'static str,
    /// How many kernels are compared.
    kernels: usize,
    /// For how many every counter is the same.
    equal: usize,
    /// How many are equal, or have sums of all counters of the group that are near one another.
    near: usize,
    /// How many of the others wait by atomic loads, and may be different for nothing else.
    waiting: usize,
    /// Those that are not equal, with these sums.
    others: Vec<Other>,
}

#[derive(Debug, Serialize)]
struct Other {
    kernel: String,
    executor: u64,
    gpu: u64,
    /// How many sectors of atomic loads the executor has counted, where the GPU's loads are at least those of the executor that are not
    /// atomic, and everything else is equal.
    waits_by: Option<u64>,
}

impl Row {
    fn is_nothing(&self) -> bool {
        self.executor == 0 && self.gpu == 0
    }
}

impl OfKernel {
    /// Where only one of both says how many blocks there were, the launches alone decide.
    fn is_launched_alike(&self) -> bool {
        let [here, there] = self.launches;
        let blocks_differ = matches!(self.blocks, [Some(here), Some(there)] if here != there);
        here == there && !blocks_differ
    }
}

impl OfKernel {
    /// The sectors of its atomic loads, if how many there are may be all that makes these counters different.
    fn waits_by(&self, rows: &[&Row]) -> Option<u64> {
        let by_chance = |row: &Row| {
            let others = row.executor - self.atomic_load_sectors.min(row.executor);
            row.executor == row.gpu || row.what == LOADS && row.gpu >= others
        };
        let may_be = self.atomic_load_sectors > 0 && rows.iter().all(|row| by_chance(row));
        may_be.then_some(self.atomic_load_sectors)
    }
}

impl CountersReport {
    /// Both side by side.
    pub(super) fn new(here: &BTreeMap<&'static str, OfExecutor>, there: &BTreeMap<String, Counted>) -> Self {
        let nothing = Counted::default();
        let of_kernel = |OfExecutor { costs, operations }: &OfExecutor| {
            let counted = there.get(costs.kernel).unwrap_or(&nothing);
            let row = |counter: &Counter| {
                let gpu = counter.metrics.iter().filter_map(|metric| counted.metrics.get(metric)).sum();
                Row { what: counter.what, executor: (counter.here)(costs), gpu }
            };
            let mut kernel = OfKernel {
                kernel: costs.kernel.to_owned(),
                operations: operations.clone(),
                launches: [costs.launches, counted.launches],
                blocks: [Some(costs.blocks), counted.blocks],
                atomic_load_sectors: costs.total(CostKind::GlobalAtomicLoad).sectors,
                counters: Vec::new(),
            };
            if kernel.is_launched_alike() {
                kernel.counters = COUNTERS.iter().map(row).collect();
            }
            kernel
        };
        let of_gpu_alone = |(name, counted): (&String, &Counted)| OfKernel {
            kernel: name.clone(),
            operations: Vec::new(),
            launches: [0, counted.launches],
            blocks: [Some(0), counted.blocks],
            atomic_load_sectors: 0,
            counters: Vec::new(),
        };
        let alone = there.iter().filter(|(name, _)| !here.contains_key(name.as_str())).map(of_gpu_alone);
        let kernels: Vec<OfKernel> = here.values().map(of_kernel).chain(alone).collect();
        let not_compared = kernels.iter().filter(|kernel| !kernel.is_launched_alike());
        Self {
            summary: [SECTORS, CONFLICTS].map(|group| Summary::of(group, &kernels)).into(),
            not_compared: not_compared.map(|kernel| kernel.kernel.clone()).collect(),
            kernels,
        }
    }
}

impl Summary {
    fn of(group: &'static str, kernels: &[OfKernel]) -> Self {
        let mut summary = Self { group, ..Self::default() };
        for kernel in kernels.iter().filter(|kernel| kernel.is_launched_alike()) {
            let rows = kernel.counters.iter().zip(&COUNTERS).filter(|(_, counter)| counter.group == Some(group));
            let rows: Vec<&Row> = rows.map(|(row, _)| row).collect();
            let executor: u64 = rows.iter().map(|row| row.executor).sum();
            let gpu: u64 = rows.iter().map(|row| row.gpu).sum();
            summary.kernels += 1;
            if rows.iter().all(|row| row.executor == row.gpu) {
                summary.equal += 1;
                summary.near += 1;
                continue;
            }
            if executor.abs_diff(gpu) as f64 <= NEAR * gpu as f64 {
                summary.near += 1;
            }
            let waits_by = kernel.waits_by(&rows);
            summary.waiting += usize::from(waits_by.is_some());
            summary.others.push(Other { kernel: kernel.kernel.clone(), executor, gpu, waits_by });
        }
        summary
    }
}

/// By how much the executor's count is off.
fn off(executor: u64, gpu: u64) -> String {
    format!("{:>+7.1} %", 100.0 * (executor as f64 / gpu.max(1) as f64 - 1.0))
}

impl fmt::Display for OfKernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kernel, launches: [here, there], blocks, counters, .. } = self;
        if !self.is_launched_alike() {
            write!(f, "{kernel}: launched {here} times on the executor, {there} times on the GPU")?;
            if let [Some(here), Some(there)] = blocks {
                write!(f, " ({here} and {there} blocks)")?;
            }
            return write!(f, ": nothing is compared");
        }
        write!(f, "{kernel}, launched {here} times")?;
        for Row { what, executor, gpu } in counters.iter().filter(|row| !row.is_nothing()) {
            write!(f, "\n  {what:<23} {executor:>12} {gpu:>12}")?;
            match executor == gpu {
                true => write!(f, "   equal")?,
                false => write!(f, " {}", off(*executor, *gpu))?,
            }
        }
        Ok(())
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { group, kernels, equal, near, waiting, others } = self;
        let near_by = 100.0 * NEAR;
        write!(f, "{group}: equal for {equal} of {kernels} kernels, within {near_by} % for {near}")?;
        if *waiting > 0 {
            write!(f, "; {waiting} of those that are not equal wait by atomic loads")?;
        }
        others.iter().try_for_each(|Other { kernel, executor, gpu, waits_by }| {
            write!(f, "\n  {kernel:<40} {executor:>12} {gpu:>12} {}", off(*executor, *gpu))?;
            match waits_by {
                Some(sectors) => write!(f, "   waits: {sectors} on the executor are of atomic loads"),
                None => Ok(()),
            }
        })
    }
}

impl fmt::Display for CountersReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.kernels.iter().try_for_each(|kernel| writeln!(f, "{kernel}"))?;
        self.summary.iter().try_for_each(|summary| write!(f, "\n{summary}"))?;
        if !self.not_compared.is_empty() {
            let which = self.not_compared.join(", ");
            write!(f, "\nlaunched otherwise, and not compared: {which}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::ncu::counted;
    use super::super::testing::{Launch, table};
    use super::super::{OfExecutor, add};
    use super::*;
    use crate::testing::Twice;
    use crate::{Operation, costs_of};

    /// Of two launches of `doubles` with two blocks each.
    fn here() -> BTreeMap<&'static str, OfExecutor> {
        let sizes = Twice { wrong: false }.describe().parse_sizes("n=64").unwrap();
        let mut here = BTreeMap::new();
        for operation in ["twice", "twice again"] {
            add(&mut here, operation, costs_of(&Twice { wrong: false }, vec![sizes.clone()], 1).unwrap());
        }
        here
    }

    fn report(rows: &[Launch<'_>]) -> CountersReport {
        CountersReport::new(&here(), &counted(&table(rows)).unwrap())
    }

    /// The metrics are in the order of the table: wavefronts, conflicts, atomics, stores, loads.
    const LAUNCH: Launch<'_> = ("doubles", "(2, 1, 1)", ["0", "0", "7", "0", "1", "1", "1,008", "8"]);
    const EQUAL: Launch<'_> = ("doubles", "(2, 1, 1)", ["0", "0", "0", "0", "0", "0", "8", "8"]);
    const NEARLY: Launch<'_> = ("doubles", "(2, 1, 1)", ["0", "0", "0", "0", "0", "0", "7", "8"]);

    #[test]
    fn launches_of_a_kernel_are_added_up_and_shown_beside_the_executors() {
        let text = report(&[LAUNCH, LAUNCH]).to_string();
        assert!(text.contains("doubles, launched 2 times"), "{text}");
        assert!(text.contains("global load sectors               16           16   equal"), "{text}");
        assert!(text.contains("global store sectors              16         2016   -99.2 %"), "{text}");
        assert!(text.contains("global atomic sectors              0            4"), "both metrics: {text}");
        let report = report(&[LAUNCH, LAUNCH]);
        assert_eq!(report.kernels[0].operations, ["twice", "twice again"]);
    }

    /// Others are compared all the same.
    #[test]
    fn a_kernel_that_is_launched_otherwise_is_not_compared() {
        let text = report(&[LAUNCH, LAUNCH, ("other", "(1, 1, 1)", ["0"; 8])]).to_string();
        assert!(
            text.contains(
                "other: launched 0 times on the executor, 1 times on the GPU (0 and 1 blocks): nothing is compared"
            ),
            "{text}"
        );
        assert!(text.contains("not compared: other") && text.contains("global load sectors"), "{text}");
        let less_often = report(&[EQUAL]);
        assert_eq!((less_often.summary[0].kernels, &*less_often.not_compared), (0, &["doubles".to_owned()][..]));
        let other_grid = report(&[EQUAL, (EQUAL.0, "(3, 1, 1)", EQUAL.2)]);
        assert!(other_grid.kernels[0].counters.is_empty(), "{other_grid}");
        assert!(other_grid.to_string().contains("2 times on the GPU (4 and 5 blocks)"), "{other_grid}");
    }

    #[test]
    fn the_summary_tells_equal_kernels_from_near_ones_and_others() {
        let of = |rows: &[Launch<'_>]| {
            let report = report(rows);
            let counts = |it: &Summary| (it.kernels, it.equal, it.near, it.others.len());
            [0, 1].map(|group| counts(&report.summary[group]))
        };
        assert_eq!(of(&[EQUAL, EQUAL]), [(1, 1, 1, 0); 2]);
        assert_eq!(of(&[EQUAL, NEARLY]), [(1, 0, 1, 1), (1, 1, 1, 0)], "32 of 31 sectors");
        assert_eq!(of(&[NEARLY, NEARLY]), [(1, 0, 0, 1), (1, 1, 1, 0)], "32 of 30 sectors");
        assert_eq!(of(&[LAUNCH, LAUNCH]), [(1, 0, 0, 1), (1, 0, 0, 1)]);
        let text = report(&[LAUNCH, LAUNCH]).to_string();
        assert!(text.contains("atomic operations: equal for 0 of 1 kernels, within 5 % for 0"), "{text}");
        assert!(text.contains("loads and stores: equal for 0 of 1 kernels, within 5 % for 0\n  doubles "), "{text}");
        let json = serde_json::to_value(report(&[NEARLY, NEARLY])).unwrap();
        assert_eq!(json["summary"][0]["others"][0]["executor"], 32);
        assert_eq!(json["summary"][0]["others"][0]["gpu"], 30);
        assert!(json["summary"][0]["others"][0]["waits_by"].is_null(), "there is no atomic load");
        // What one counter has too much does not make up for what another has too little.
        let exchanged = ("doubles", "(2, 1, 1)", ["0", "0", "0", "0", "0", "0", "10", "6"]);
        assert_eq!(of(&[exchanged, exchanged])[0], (1, 0, 1, 1));
    }

    /// A kernel whose atomic loads read two of its ten sectors.
    #[test]
    fn a_kernel_that_waits_by_atomic_loads_is_told_from_others() {
        let waits = |[loads, stores]: [u64; 2]| {
            let row = |what, executor, gpu| Row { what, executor, gpu };
            let kernel = OfKernel {
                kernel: "waits".to_owned(),
                operations: Vec::new(),
                launches: [1; 2],
                blocks: [None; 2],
                atomic_load_sectors: 2,
                counters: vec![row(LOADS, 10, loads), row("global store sectors", 4, stores)],
            };
            Summary::of(SECTORS, &[kernel])
        };
        for (gpu, waiting) in [([10, 4], 0), ([300, 4], 1), ([8, 4], 1), ([7, 4], 0), ([300, 5], 0)] {
            assert_eq!(waits(gpu).waiting, waiting, "{gpu:?}");
        }
        let text = waits([300, 4]).to_string();
        assert!(text.contains("; 1 of those that are not equal wait by atomic loads\n"), "{text}");
        assert!(text.ends_with("waits: 2 on the executor are of atomic loads"), "{text}");
    }
}
