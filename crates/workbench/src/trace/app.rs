//! What the viewer shows: a block of a trace after some of its steps.

use kernel_trace::replay::State;
use kernel_trace::{Block, Kind, Step, Summary, Trace};

use super::source::Sources;

/// The viewer.
pub(super) struct App {
    pub(super) trace: Trace,
    pub(super) sources: Sources,
    /// The number of the block.
    block: usize,
    /// How many of its steps have been made.
    at: usize,
    pub(super) summary: Summary,
    pub(super) state: State,
    /// What is being typed behind `/`.
    pub(super) typed: Option<String>,
    /// What was looked for last.
    pub(super) wanted: String,
    /// What there is to say about the last key.
    pub(super) message: String,
    pub(super) shows_help: bool,
    pub(super) has_ended: bool,
}

impl App {
    /// Before the first step of the first block.
    pub(super) fn new(trace: Trace, sources: Sources) -> Self {
        let summary = Summary::of(&trace.blocks[0]);
        let state = State::after(&trace.blocks[0], &summary, trace.warps(), 0);
        Self {
            trace,
            sources,
            block: 0,
            at: 0,
            summary,
            state,
            typed: None,
            wanted: String::new(),
            message: String::new(),
            shows_help: false,
            has_ended: false,
        }
    }

    pub(super) fn block(&self) -> &Block {
        &self.trace.blocks[self.block]
    }

    /// How many steps have been made.
    pub(super) fn at(&self) -> usize {
        self.at
    }

    /// The step that was made last.
    pub(super) fn step(&self) -> Option<&Step> {
        self.at.checked_sub(1).map(|at| &self.block().steps[at])
    }

    /// Goes to where so many steps have been made.
    pub(super) fn go_to(&mut self, at: usize) {
        self.at = at.min(self.block().steps.len());
        self.state = State::after(self.block(), &self.summary, self.trace.warps(), self.at);
    }

    /// Goes so many steps on, or back.
    pub(super) fn go_by(&mut self, steps: isize) {
        self.go_to(self.at.saturating_add_signed(steps));
    }

    /// Goes behind the next step that is meant, or the one before. `what` says what there is none of, if there is none.
    pub(super) fn go_to_next(&mut self, is_back: bool, what: &str, is_meant: impl Fn(&Self, &Step) -> bool) {
        let steps = &self.block().steps;
        let found = match is_back {
            false => (self.at..steps.len()).find(|at| is_meant(self, &steps[*at])),
            true => (0..self.at.saturating_sub(1)).rev().find(|at| is_meant(self, &steps[*at])),
        };
        match found {
            Some(at) => self.go_to(at + 1),
            None => self.message = format!("no {what} {} here", if is_back { "before" } else { "behind" }),
        }
    }

    /// Whether a step has to do with a barrier.
    pub(super) fn is_at_barrier(&self, step: &Step) -> bool {
        matches!(step.kind, Kind::Arrive | Kind::Wait | Kind::Complete | Kind::Passed)
    }

    /// Whether a step's line, its source, or what it does has the text that is looked for.
    pub(super) fn is_wanted(&self, step: &Step) -> bool {
        let places = [self.trace.place(step.place), self.trace.place(step.caller)];
        let is_in = |text: &str| text.contains(&self.wanted);
        places.into_iter().any(is_in)
            || is_in(&step.kind.name())
            || is_in(&self.block().detail(step))
            || self.sources.around(places[0], 0, 0).iter().any(|(_, line)| is_in(line))
    }

    /// Shows the next block of the trace, or the one before.
    pub(super) fn change_block(&mut self, is_back: bool) {
        let blocks = self.trace.blocks.len();
        self.block = (self.block + if is_back { blocks - 1 } else { 1 }) % blocks;
        self.summary = Summary::of(self.block());
        self.go_to(0);
    }
}
