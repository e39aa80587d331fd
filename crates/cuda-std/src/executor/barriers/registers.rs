//! `setmaxnreg`, by which warpgroups give each other registers: a warpgroup waits until enough are free.

use core::panic::Location;
use std::format;

use super::{Wait, note_wait, wait_for};
use crate::executor::context::current;
use crate::executor::fault::FaultKind;
use crate::executor::steps::{StepBarrier, StepKind};

/// Gives up registers, down to `count` for this thread.
#[track_caller]
pub(crate) fn release_registers(count: u32) {
    let (context, location) = (current(), Location::caller());
    let has = context.details().registers.replace(count);
    if count > has {
        context.fail(location, FaultKind::Registers { has, wanted: count });
    }
    let free = &context.barriers.free_registers;
    free.set(free.get() + (has - count));
    context.note_step(StepKind::RegistersReleased, location, |note, _| note.text(format!("{has} to {count}")));
}

/// Waits for registers, up to `count` for this thread.
#[track_caller]
pub(crate) fn acquire_registers(count: u32) {
    let (context, location) = (current(), Location::caller());
    let has = context.details().registers.get();
    if count < has {
        context.fail(location, FaultKind::Registers { has, wanted: count });
    }
    note_wait(context, StepKind::Wait, StepBarrier::Registers, 0, location);
    wait_for(context, Wait::Registers { count: count - has }, location);
    context.note_step(StepKind::RegistersAcquired, location, |note, _| {
        note.barrier(StepBarrier::Registers).text(format!("{has} to {count}"))
    });
    context.details().registers.set(count);
    let free = &context.barriers.free_registers;
    free.set(free.get() - (count - has));
}
