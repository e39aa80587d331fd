//! A step in words.

use crate::{Block, Kind, Memory, Step};

/// How many ranges are listed one by one.
const RANGES: usize = 3;

impl Block {
    /// What memory is called.
    pub fn memory(&self, memory: Memory) -> String {
        let array = |array: usize| self.arrays.get(array).map_or("shared memory", |array| &array.name);
        match memory {
            Memory::View(view) => self.views.get(view).map_or("a view".into(), |view| format!("`{}`", view.name)),
            Memory::Global => "global memory of no view".into(),
            Memory::Shared(number) => array(number).to_owned(),
            Memory::Cluster(rank, number) => format!("{} of the block of rank {rank}", array(number)),
        }
    }

    /// What a step does it to: memory, barrier, and more, in words.
    pub fn detail(&self, step: &Step) -> String {
        let mut words = Vec::new();
        if !step.text.is_empty() {
            // A report has several lines: the first one stands for it.
            words.push(step.text.lines().next().unwrap_or_default().to_owned());
        }
        if let Some(memory) = step.memory {
            words.push(format!("{} bytes of {}{}", step.bytes, self.memory(memory), ranges(step)));
        } else if step.bytes > 0 {
            words.push(format!("{} bytes", step.bytes));
        }
        match (step.barrier, step.phase) {
            (Some(barrier), Some(phase)) => words.push(format!("{barrier}, phase {phase}")),
            (Some(barrier), None) => words.push(barrier.to_string()),
            (None, Some(group)) if counts_groups(step.kind) => words.push(format!("group {group}")),
            (None, Some(group)) => words.push(format!("groups before {group}")),
            (None, None) => {}
        }
        if let Some(transfer) = step.transfer {
            words.push(format!("transfer {transfer}"));
        }
        if step.times > 1 {
            words.push(format!("{} times", step.times));
        }
        words.join("; ")
    }
}

/// Whether the number of a step is that of the group that it belongs to; of waits it is the number of the first that is not waited for.
fn counts_groups(kind: Kind) -> bool {
    !matches!(kind, Kind::AsyncCopyWait | Kind::TmaStoreWait | Kind::WgmmaWait)
}

fn ranges(step: &Step) -> String {
    if step.ranges.is_empty() {
        return String::new();
    }
    let listed: Vec<_> = step.ranges.iter().take(RANGES).map(|[start, end]| format!("{start}..{end}")).collect();
    let more = step.ranges.len().saturating_sub(RANGES);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!(" [{}{more}]", listed.join(", "))
}

impl Step {
    /// Who makes it.
    pub fn who(&self) -> String {
        match self.warp {
            Some(warp) if self.lanes == u32::MAX => format!("warp {warp}"),
            Some(warp) if self.lanes.count_ones() == 1 => format!("warp {warp} lane {}", self.lanes.trailing_zeros()),
            Some(warp) => format!("warp {warp} {:#010x}", self.lanes),
            None => self.by.clone(),
        }
    }
}
