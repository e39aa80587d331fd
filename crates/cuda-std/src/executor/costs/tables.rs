//! Costs in words: a table for each kernel, with a row for each line of source.

use core::fmt;
use std::format;
use std::string::String;

use super::super::fault::counted;
use super::{Cost, CostKind, KernelCosts, LineCost};

impl CostKind {
    /// All of them, in the order of tables.
    pub const ALL: [Self; 10] = [
        Self::GlobalLoad,
        Self::GlobalAtomicLoad,
        Self::GlobalStore,
        Self::GlobalAtomic,
        Self::AsyncCopy,
        Self::Tma,
        Self::SharedLoad,
        Self::SharedStore,
        Self::SharedAtomic,
        Self::Wait,
    ];

    /// What it is called in tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::GlobalLoad => "global load",
            Self::GlobalAtomicLoad => "atomic load",
            Self::GlobalStore => "global store",
            Self::GlobalAtomic => "global atomic",
            Self::AsyncCopy => "async copy",
            Self::Tma => "TMA",
            Self::SharedLoad => "shared load",
            Self::SharedStore => "shared store",
            Self::SharedAtomic => "shared atomic",
            Self::Wait => "wait",
        }
    }

    const fn is_global(self) -> bool {
        matches!(
            self,
            Self::GlobalLoad
                | Self::GlobalAtomicLoad
                | Self::GlobalStore
                | Self::GlobalAtomic
                | Self::AsyncCopy
                | Self::Tma
        )
    }

    const fn is_shared(self) -> bool {
        matches!(self, Self::SharedLoad | Self::SharedStore | Self::SharedAtomic)
    }
}

impl Cost {
    /// Which part of the bytes of its sectors is used, if it has any: 1 for all of them.
    pub fn used(&self) -> Option<f64> {
        (self.sectors > 0).then(|| self.bytes as f64 / (32 * self.sectors) as f64)
    }
}

/// The columns of a row behind the line and what it does.
fn row(f: &mut fmt::Formatter<'_>, kind: CostKind, cost: &Cost) -> fmt::Result {
    let Cost { requests, lanes, sectors, wavefronts, conflicts, .. } = *cost;
    let per_request = |count: u64| if requests == 0 { 0.0 } else { count as f64 / requests as f64 };
    write!(f, "{:<13} {requests:>11} {:>6.1}", kind.name(), per_request(lanes))?;
    match cost.used().filter(|_| kind.is_global()) {
        Some(used) => write!(f, " {sectors:>11} {:>6.1} {:>5.0} %", per_request(sectors), 100.0 * used)?,
        None => write!(f, " {:>11} {:>6} {:>7}", "", "", "")?,
    }
    if kind.is_shared() {
        write!(f, " {wavefronts:>11}")?;
    } else {
        write!(f, " {:>11}", "")?;
    }
    match kind {
        _ if kind.is_shared() => write!(f, " {conflicts:>10}"),
        CostKind::GlobalAtomic => write!(f, " {conflicts:>10}"),
        _ => Ok(()),
    }
}

impl fmt::Display for KernelCosts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kernel, launches, lines, .. } = self;
        let name = |LineCost { line, .. }: &LineCost| -> String { format!("{line}") };
        let width = lines.iter().map(|line| name(line).len()).max().unwrap_or(0).max("all lines".len());
        let times = counted(launches, "time");
        writeln!(f, "{kernel}, launched {times}: a request is what a warp does in one instruction")?;
        write!(
            f,
            "{:<width$}  {:<13} {:>11} {:>6} {:>11} {:>6} {:>7} {:>11} {:>10}",
            "line", "what", "requests", "lanes", "sectors", "each", "used", "wavefronts", "conflicts"
        )?;
        for line in lines {
            write!(f, "\n{:<width$}  ", name(line))?;
            row(f, line.kind, &line.cost)?;
        }
        for kind in CostKind::ALL {
            let total = self.total(kind);
            if total.requests > 0 {
                write!(f, "\n{:<width$}  ", "all lines")?;
                row(f, kind, &total)?;
            }
        }
        Ok(())
    }
}
