//! The lines that kernels print: each worker collects those of its blocks, and the launch shows them when it has ended.
//!
//! Blocks run on several workers, in an order that differs from launch to launch. So a line comes with a number by which all are sorted in
//! the end: that of its block; or, where blocks take turns, which is an order that does not differ, its own. The first [`LINES`] by
//! this order are kept, whatever the workers do.

use core::cell::{Cell, RefCell};
use core::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::vec::Vec;

use super::context::current;
use super::steps::StepKind;
use crate::Dim3;
use crate::print::{PrintSink, Printed, Value, rendered};
use crate::print_record::{LINE_VALUES, LINES};

/// A line as the thread has left it.
struct Collected {
    /// By this they are sorted. Those of a block come in the order in which they were printed, as long as sorting does not change it.
    order: u64,
    block: Dim3,
    thread: Dim3,
    text: &'static str,
    values: [Value; LINE_VALUES],
    count: usize,
}

/// Lines of blocks that have ended, and how many more there were.
#[derive(Default)]
struct Kept {
    lines: Vec<Collected>,
    missing: u64,
}

/// The lines of a launch.
#[derive(Default)]
pub(super) struct Prints {
    kept: Mutex<Kept>,
    /// The number of the next line, where blocks take turns.
    next: AtomicU64,
}

/// The lines of the block that a worker runs.
#[derive(Default)]
pub(super) struct BlockPrints {
    lines: RefCell<Vec<Collected>>,
    missing: Cell<u64>,
}

/// Has the running thread print a line. There are no more values than a line can have.
#[track_caller]
pub(crate) fn print(text: &'static str, values: &[Value]) {
    let context = current();
    context.require_headroom();
    context.note_step(StepKind::Print, core::panic::Location::caller(), |note, _| note.text(rendered(text, values)));
    let mut collected = Collected {
        order: match context.print_order.get() {
            Some(order) => order,
            None => context.prints.next.fetch_add(1, Ordering::Relaxed),
        },
        block: context.block.get(),
        thread: context.thread().index,
        text,
        values: [Value::of(0u32); LINE_VALUES],
        count: values.len(),
    };
    collected.values[..values.len()].copy_from_slice(values);
    let mut lines = context.block_prints.lines.borrow_mut();
    // So many of one block come before this one, by whatever order.
    if lines.len() < LINES {
        lines.push(collected);
    } else {
        context.block_prints.missing.set(context.block_prints.missing.get() + 1);
    }
}

impl Prints {
    /// Takes the lines of a block that has ended.
    pub(super) fn take(&self, block: &BlockPrints) {
        let mut lines = block.lines.borrow_mut();
        if lines.is_empty() {
            return;
        }
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.missing += block.missing.take();
        kept.lines.append(&mut lines);
        kept.leave_out_the_last();
    }

    /// Shows the lines in their order. `last`: of no block behind this one.
    pub(super) fn show(self, kernel: &'static str, last: Option<u64>, sink: &PrintSink) {
        let Kept { mut lines, missing } = self.kept.into_inner().unwrap_or_else(PoisonError::into_inner);
        lines.sort_by_key(|line| line.order);
        for line in lines.iter().filter(|line| last.is_none_or(|last| line.order <= last)) {
            let Collected { block, thread, text, values, count, .. } = *line;
            sink.show(&Printed::Line { kernel, block, thread, text: rendered(text, &values[..count]) });
        }
        if missing > 0 {
            sink.show(&Printed::Missing { lines: Some(missing) });
        }
    }
}

impl Kept {
    fn leave_out_the_last(&mut self) {
        if let Some(more) = self.lines.len().checked_sub(LINES).filter(|more| *more > 0) {
            self.lines.sort_by_key(|line| line.order);
            self.lines.truncate(LINES);
            self.missing += more as u64;
        }
    }
}
