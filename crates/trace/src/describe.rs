//! A step in words.

use crate::{Block, Kind, Memory, Step};

/// How many ranges are listed one by one.
const RANGES: usize = 3;

impl Block {
    /// What memory is called.
    ///
    /// ```
    /// # use kernel_trace::*;
    /// # let trace = Trace::from_json(include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/example.json")))?;
    /// # let block = &trace.blocks[0];
    /// assert_eq!(block.memory(Memory::View(0)), "`x`");
    /// assert_eq!(block.memory(Memory::Cluster(1, 0)), "the dynamic shared memory of the block of rank 1");
    /// # Ok::<(), Error>(())
    /// ```
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
    ///
    /// ```
    /// # use kernel_trace::*;
    /// # let trace = Trace::from_json(include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/example.json")))?;
    /// # let block = &trace.blocks[0];
    /// let load = block.steps.iter().find(|step| step.kind == Kind::TmaLoad).unwrap();
    /// let detail = "128 bytes of the dynamic shared memory [0..128]; mbarrier at byte 128; transfer 0";
    /// assert_eq!(block.detail(load), detail);
    /// # Ok::<(), Error>(())
    /// ```
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
    ///
    /// ```
    /// # use kernel_trace::*;
    /// let step = Step::new(1, Kind::Vote, Some(2));
    /// assert_eq!(step.who(), "warp 2");
    /// assert_eq!(Step { lanes: 1 << 5, ..step.clone() }.who(), "warp 2 lane 5");
    /// assert_eq!(Step { lanes: 0xFFFF, ..step }.who(), "warp 2 0x0000ffff");
    /// ```
    pub fn who(&self) -> String {
        match self.warp {
            Some(warp) if self.lanes == u32::MAX => format!("warp {warp}"),
            Some(warp) if self.lanes.count_ones() == 1 => format!("warp {warp} lane {}", self.lanes.trailing_zeros()),
            Some(warp) => format!("warp {warp} {:#010x}", self.lanes),
            None => self.by.clone(),
        }
    }
}
