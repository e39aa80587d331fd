//! The executor's state that a thread of a kernel reaches on the CPU: its indices, the block's memory and barriers, and how its
//! coroutine stops until what it waits for has happened.

use core::cell::{Cell, RefCell};
use core::panic::Location;
use core::ptr;
use std::boxed::Box;
use std::collections::HashMap;
use std::format;
use std::string::{String, ToString};
use std::sync::Arc;
use std::thread_local;
use std::vec::Vec;

use corosensei::trap::CoroutineTrapHandler;

use super::backtraces::Backtraces;
use super::barriers::{Barriers, Wait};
use super::changes::Asked;
use super::cluster::{Clusters, Meetings, Team};
use super::copies::Copies;
use super::costs::{CostKind, Recorder};
use super::fault::{
    AccessKind, Elsewhere, Fault, FaultKind, LastWrite, Place as FaultPlace, SourceLine, ViewElement, WarpOperation,
    element_name,
};
use super::global_memory::{AtomicElement, GlobalMemory};
use super::identity::SharedIdentity;
use super::known::Ordered;
use super::meetings::BlockVotes;
use super::prints::{BlockPrints, Prints};
use super::products::{Products, Warpgroups};
use super::remote;
use super::shared_memory::{SharedMemory, WORD, set_interval};
use super::spins::{self, Awaited, States};
use super::stacks::Stacks;
use super::steps;
use super::tma::Tma;
use super::turns::{Random, Turns};
use super::values::{self, Taken, ValueTrace};
use super::watchdog::{CurrentTurn, Watchdog};
use super::workers::{Launch, Worker};
use super::{Checks, Executor, MAX_THREADS};
use crate::Dim3;
use crate::atomic::{Place, Scope};
use gpu_facts::KernelFacts;

/// The lanes of a warp.
pub(super) const LANES: usize = crate::warp::LANES as usize;

/// What a thread must have left of its stack, in bytes, for the executor to allocate there, or to unwind it after a
/// report. An estimate on the safe side: a few frames of ordinary size.
const HEADROOM: usize = 8 << 10;

/// Where a thread is that has not stopped in its block yet.
pub(super) static NOWHERE: &Location<'static> = Location::caller();

/// How a thread's coroutine switches back to the worker.
pub(super) type Yielder = corosensei::Yielder<(), ()>;

/// A coroutine ends by itself only if its stack overflowed: a thread that has returned waits for its part in the next
/// block instead.
#[derive(Clone, Copy)]
pub(super) enum Ended {
    #[cfg_attr(
        not(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"))),
        allow(dead_code, reason = "elsewhere nobody handles guard pages")
    )]
    StackOverflow,
}

/// [`Kernel::visit_views`](crate::Kernel::visit_views) of the kernel that runs.
pub(super) type VisitViews<'a> = dyn Fn(&mut dyn FnMut(crate::View<'_>)) + 'a;

/// What a worker keeps from launch to launch.
pub(super) struct Memory {
    pub(super) stacks: Stacks,
    pub(super) shared: SharedMemory,
}

/// Where a thread stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum State {
    /// Goes on when it is its turn: it has not run in the block yet, or has let the other lanes of its warp come to where it is.
    Ready,
    /// Waits at a barrier.
    Barrier,
    /// Waits for lanes of its warp.
    Warp,
    /// Asks which lanes are active with it.
    Asking,
    /// Goes on after others have had their turn: it has made an atomic operation.
    Yielded,
    /// Waits for what its details say.
    Waiting,
    /// Has returned from the kernel.
    Returned,
    /// Has done something that ends the launch; the context says what.
    Faulted,
    /// Has too little stack left for what it is about to do.
    StackOverflow,
}

/// What a lane brings to an operation of its warp.
#[derive(Clone, Copy)]
pub(super) struct Request {
    pub(super) operation: WarpOperation,
    /// Those of the value for a shuffle or a match, otherwise 0.
    pub(super) bytes: u8,
    pub(super) mask: u32,
    pub(super) value: u64,
    /// The `b` and `c` operands of `shfl.sync`.
    pub(super) b: u32,
    pub(super) c: u32,
    /// What an aligned operation does with the payloads of all lanes.
    pub(super) collective: Option<Collective>,
}

impl Request {
    pub(super) const NONE: Self =
        Self { operation: WarpOperation::Sync, bytes: 0, mask: 0, value: 0, b: 0, c: 0, collective: None };
}

/// The most words that a lane brings to an aligned operation of its warp, and takes from it.
pub(crate) const PAYLOAD: usize = 16;

/// What one lane brings to an aligned operation, or takes from it.
pub(crate) type Payload = [u32; PAYLOAD];

/// An operation of all lanes of a warp: makes what the lanes take out of what they bring, in place.
pub(crate) type Collective = fn(&mut [Payload; LANES]);

/// One thread of the block: what each switch touches, kept small, because it is a large part of what a block keeps the
/// cache busy with.
pub(super) struct Thread {
    pub(super) yielder: Cell<*const Yielder>,
    /// Where it waits, or has stopped last; [`NOWHERE`] before.
    pub(super) location: Cell<&'static Location<'static>>,
    /// See [`super::shared_memory`].
    pub(super) interval: Cell<u64>,
    pub(super) state: Cell<State>,
    pub(super) index: Dim3,
}

/// What else there is to a thread.
pub(super) struct Details {
    pub(super) request: Cell<Request>,
    pub(super) response: Cell<(u64, bool)>,
    pub(super) payload: Cell<Payload>,
    pub(super) copies: Cell<Copies>,
    pub(super) products: Cell<Products>,
    /// What it waits for, if it is [`State::Waiting`], and what it has waited for last otherwise.
    pub(super) wait: Cell<Wait>,
    /// The groups of stores by TMA that it has made.
    pub(super) store_groups: Cell<u64>,
    /// The tick at which it last made its writes visible to TMA.
    pub(super) fenced: Cell<u64>,
    /// The registers that it has.
    pub(super) registers: Cell<u32>,
    /// How often it has read a clock.
    pub(super) clock: Cell<u64>,
    /// What it has done about the order of its atomic operations.
    pub(super) ordered: Cell<Ordered>,
    /// What it waits for, if it is [`State::Yielded`], and what it was like then.
    pub(super) awaited: Cell<Option<Awaited>>,
    pub(super) states: Cell<States>,
    /// What it has done about the barrier of the cluster.
    pub(super) meetings: Cell<Meetings>,
    /// Which unusual numbers it has taken in or given away, if that is of interest.
    pub(super) taken: Cell<Taken>,
    pub(super) trap_handler: Cell<Option<CoroutineTrapHandler<Ended>>>,
}

/// Everything that a worker's threads share during a launch.
pub(super) struct Context<'a> {
    pub(super) kernel: &'static str,
    pub(super) checks: Checks,
    pub(super) grid: Dim3,
    pub(super) block_dim: Dim3,
    /// Whether all blocks run at the same time.
    pub(super) is_cooperative: bool,
    pub(super) block: Cell<Dim3>,
    /// Its number in linear order.
    pub(super) block_number: Cell<u64>,
    pub(super) threads: Box<[Thread]>,
    /// In the order of `threads`.
    pub(super) details: Box<[Details]>,
    /// The thread that runs, or ran last, by its position in linear order.
    pub(super) current: Cell<usize>,
    pub(super) dynamic_bytes: usize,
    /// What the shared arrays take that the kernel declares.
    pub(super) declared_static_bytes: usize,
    /// The stack that the kernel asks for, if it does.
    pub(super) stack_asked: Option<u32>,
    /// The blocks that the kernel asks to be on a multiprocessor at the same time; 0 where it does not.
    pub(super) min_blocks: u32,
    pub(super) memory: &'a Memory,
    /// What threads bring to the barrier of the block.
    pub(super) votes: BlockVotes,
    pub(super) barriers: Barriers,
    pub(super) engine: Tma,
    pub(super) warpgroups: Warpgroups,
    /// What is to be done in another way, if anything is: see [`super::changes`].
    pub(super) changes_asked: Option<Asked<'a>>,
    /// Looks for unusual numbers, if that is of interest, with the number of the launch.
    pub(super) trace: Option<(&'a ValueTrace, u64)>,
    /// Finds from where the accesses of a report were called, if that is of interest.
    pub(super) backtraces: Option<&'a Backtraces>,
    /// Counts what accesses cost, if that is of interest.
    pub(super) costs: Option<Recorder>,
    /// Records what blocks do, step by step, if that is of interest; and whether this or `backtraces` looks at the one that runs.
    pub(super) steps: Option<steps::Recorder>,
    pub(super) is_recording: Cell<bool>,
    pub(super) fault: Cell<Option<Box<Fault>>>,
    /// The first read of shared memory that nobody had written. Whether it is a race with a write that this executor's
    /// order puts later is known at the end of the epoch.
    pub(super) unwritten_read: Cell<Option<Box<Fault>>>,
    /// The first read of global memory without values. Whether it is a race with a write is known at the end of the launch.
    pub(super) read_without_values: Cell<Option<Box<Fault>>>,
    visit_views: &'a VisitViews<'a>,
    /// What the race detector knows of global memory, if races are looked for.
    pub(super) global: Option<&'a GlobalMemory>,
    /// Where blocks can wait for one another: their turns, and the worker's number there.
    pub(super) turns: Option<(&'a Turns, usize)>,
    /// How the blocks of the grid are divided into clusters.
    pub(super) clusters: Clusters,
    /// If the kernel has clusters: the workers that run one together, and the rank of this one's block.
    pub(super) team: Option<(&'a Team<'a>, usize)>,
    /// The atomic operation that the running thread makes.
    pub(super) atomic_access: Cell<AccessKind>,
    /// Where lines that the block prints come among those of others, if that is known before.
    pub(super) print_order: Cell<Option<u64>>,
    /// What the launch has printed, and the block that runs.
    pub(super) prints: &'a Prints,
    pub(super) block_prints: BlockPrints,
    /// Atomic elements of the block's shared memory.
    elements: RefCell<HashMap<(usize, usize), AtomicElement>>,
    /// Whether an atomic operation has changed anything since this was last asked.
    pub(super) has_changed: Cell<bool>,
    /// How often threads have written something, by whatever way.
    pub(super) changes: Cell<u64>,
    /// Decides who runs on.
    pub(super) random: Cell<Random>,
    /// Whether lanes that ask who is active may find others, as the seed decides.
    pub(super) finds_active_lanes: bool,
    /// Where the worker says which thread has its turn, if somebody looks whether it ever ends.
    pub(super) watched_turn: Option<Arc<CurrentTurn>>,
}

thread_local! {
    /// The context of the worker on this thread; null while it runs no kernel. The kernel's accesses all begin here, so it
    /// must be no more than a load: `const`, and nothing to drop.
    static CURRENT: Cell<*const Context<'static>> = const { Cell::new(ptr::null()) };
}

/// Makes a context the one that [`current`] finds, until it is dropped.
pub(super) struct Entered<'a>(&'a Context<'a>);

impl<'a> Context<'a> {
    pub(super) fn new(
        executor: &'a Executor,
        facts: &KernelFacts,
        launch: &'a Launch,
        memory: &'a Memory,
        visit_views: &'a VisitViews<'a>,
        Worker { turns, team }: Worker<'a>,
    ) -> Self {
        let block_dim = Dim3::from(facts.block);
        let Dim3 { x, y, z } = block_dim;
        let positions = (0..z).flat_map(|z| (0..y).flat_map(move |y| (0..x).map(move |x| Dim3::new(x, y, z))));
        let threads: Box<[_]> = positions
            .map(|index| Thread {
                yielder: Cell::new(ptr::null()),
                location: Cell::new(NOWHERE),
                interval: Cell::new(0),
                state: Cell::new(State::Ready),
                index,
            })
            .collect();
        let details = threads.iter().map(|_| Details {
            request: Cell::new(Request::NONE),
            response: Cell::new((0, false)),
            payload: Cell::new([0; PAYLOAD]),
            copies: Cell::default(),
            products: Cell::default(),
            wait: Cell::new(Wait::NOTHING),
            store_groups: Cell::new(0),
            fenced: Cell::new(0),
            registers: Cell::new(0),
            clock: Cell::new(0),
            ordered: Cell::default(),
            awaited: Cell::default(),
            states: Cell::default(),
            meetings: Cell::default(),
            taken: Cell::default(),
            trap_handler: Cell::new(None),
        });
        assert!((1..=MAX_THREADS).contains(&threads.len()), "the launch has checked the shape of the block");
        Self {
            kernel: facts.name,
            checks: executor.checks,
            grid: launch.grid,
            block_dim,
            is_cooperative: facts.is_cooperative,
            block: Cell::new(Dim3::new(0, 0, 0)),
            block_number: Cell::new(0),
            details: details.collect(),
            threads,
            current: Cell::new(0),
            dynamic_bytes: facts.dynamic_shared_bytes as usize,
            declared_static_bytes: facts.static_shared_bytes as usize,
            stack_asked: Some(facts.stack_bytes).filter(|&bytes| bytes > 0),
            min_blocks: facts.min_blocks,
            memory,
            votes: BlockVotes::default(),
            barriers: Barriers::default(),
            engine: Tma::default(),
            warpgroups: Warpgroups::default(),
            backtraces: executor.backtraces.as_deref(),
            costs: executor.costs.as_ref().map(|costs| Recorder::new(costs, facts.name)),
            steps: (executor.steps.as_ref().filter(|_| launch.is_recorded))
                .map(|steps| steps::Recorder::new(steps, visit_views)),
            is_recording: Cell::new(false),
            trace: None,
            changes_asked: executor.changes.as_ref().map(|changes| Asked::new(changes, facts.name)),
            fault: Cell::new(None),
            unwritten_read: Cell::new(None),
            read_without_values: Cell::new(None),
            visit_views,
            global: launch.global.as_ref(),
            turns,
            clusters: launch.clusters,
            team,
            atomic_access: Cell::new(AccessKind::Atomic { scope: Scope::Device, bytes: 4 }),
            print_order: Cell::new(None),
            prints: &launch.prints,
            block_prints: BlockPrints::default(),
            elements: RefCell::default(),
            has_changed: Cell::new(false),
            changes: Cell::new(0),
            random: Cell::default(),
            finds_active_lanes: executor.checks == Checks::Full && launch.seed != 0,
            watched_turn: launch.watchdog.as_ref().map(Watchdog::watch),
        }
    }

    /// Makes a block the one that runs. The numbers that decide who runs on depend on the block and the seed alone.
    pub(super) fn begin_block(&self, number: u64, seed: u64) {
        self.block.set(self.position(number));
        self.block_number.set(number);
        self.random.set(Random::new(seed ^ number.rotate_left(32)));
        self.elements.borrow_mut().clear();
        self.votes.begin_block();
        for thread in &self.details {
            drop(thread.ordered.take());
            thread.clock.set(0);
            thread.wait.set(Wait::NOTHING);
            thread.states.set(States::default());
            thread.taken.set(Taken::default());
            thread.meetings.set(Meetings::default());
        }
    }

    /// The coordinates of a block in the grid.
    pub(super) fn position(&self, number: u64) -> Dim3 {
        super::cluster::position(self.grid, number)
    }

    /// Whether a scope around one block includes another one.
    pub(super) fn is_within(&self, scope: Scope, one: u64, other: u64) -> bool {
        match scope {
            Scope::Block => one == other,
            Scope::Cluster => self.clusters.are_together(one, other),
            Scope::Device | Scope::System => true,
        }
    }

    /// Whether what a thread waits for has come.
    pub(super) fn has_come(&self, position: usize, wait: Wait) -> bool {
        match wait {
            Wait::ArrivalsOfWarp { .. } | Wait::Cluster { .. } => self.has_met(position, wait),
            _ => self.barriers.has_come(wait),
        }
    }

    /// Where threads are, with those in the same place taken together.
    pub(super) fn elsewhere(&self, positions: impl Iterator<Item = usize>) -> Vec<Elsewhere> {
        let mut places: Vec<Elsewhere> = Vec::new();
        for position in positions {
            let thread = &self.threads[position];
            let location = thread.location.get().into();
            let place = match thread.state.get() {
                State::Barrier => FaultPlace::Barrier(location),
                State::Warp => {
                    let Request { operation, mask, .. } = self.details[position].request.get();
                    FaultPlace::Warp { operation, mask, location }
                }
                State::Waiting => {
                    let waits_for = self.barriers.describe(self.details[position].wait.get());
                    FaultPlace::Waiting { waits_for, location }
                }
                State::Yielded | State::Asking => FaultPlace::Running(location),
                State::Ready | State::Returned | State::Faulted | State::StackOverflow => FaultPlace::Returned,
            };
            match places.iter_mut().find(|known| known.place == place) {
                Some(known) => known.count += 1,
                None => places.push(Elsewhere { first: thread.index, count: 1, place }),
            }
        }
        places
    }

    /// Looks at what is known of an atomic element: what it carries from thread to thread, and which values it has had.
    pub(super) fn with_element(&self, place: Place, look: impl FnOnce(&mut AtomicElement)) {
        match (place, self.global) {
            (Place::Global(address, true), Some(memory)) => memory.with_element(address.addr(), look),
            (Place::Global(..), _) => {}
            (Place::Shared(array, offset), _) => {
                let array = ptr::from_ref::<SharedIdentity>(array).addr();
                look(self.elements.borrow_mut().entry((array, offset)).or_default());
            }
            (Place::Remote(rank, array, offset), _) => {
                if let Some(owner) = remote::context_of(self, rank) {
                    owner.with_element(Place::Shared(array, offset), look);
                }
            }
        }
    }

    /// The element of a view among the kernel's parameters that a byte at an address is of.
    pub(super) fn element_at(&self, address: usize) -> Option<ViewElement> {
        let mut found = None;
        (self.visit_views)(&mut |view| {
            let is_inside = view.address <= address && address - view.address < view.bytes;
            if found.is_none() && is_inside {
                let (byte, size) = (address - view.address, view.element_bytes);
                found = Some(ViewElement { view: view.name.to_string(), index: byte / size, byte: byte % size });
            }
        });
        found
    }

    /// Counts an access of the running thread, if that is of interest: at an address or a place in shared memory, of so many bytes.
    #[inline]
    pub(super) fn note_cost(&self, kind: CostKind, place: (usize, usize), location: &'static Location<'static>) {
        if let Some(costs) = &self.costs {
            self.require_headroom();
            costs.note(kind, self.current.get(), place, location);
        }
    }

    /// Notes that the running thread writes something.
    #[inline(always)]
    pub(super) fn note_change(&self) {
        self.changes.set(self.changes.get().wrapping_add(1));
        spins::begin();
    }

    /// A number that changes whenever a thread of the block writes something, or synchronizes with others.
    pub(super) fn version(&self) -> u64 {
        self.changes.get().wrapping_add(self.memory.shared.now())
    }

    /// What an element is called.
    pub(super) fn name_of(&self, place: Place) -> String {
        match place {
            Place::Global(address, _) => element_name(&self.element_at(address.addr())),
            Place::Shared(array, offset) => format!("element {} of {}", array.index_of_byte(offset), array.name()),
            Place::Remote(rank, array, offset) => {
                let (element, array) = (array.index_of_byte(offset), array.name());
                format!("element {element} of {array} of the block of rank {rank}")
            }
        }
    }

    /// Who has written an element last, if that was no atomic operation, and is known.
    pub(super) fn last_write(&self, place: Place) -> Option<LastWrite> {
        let (block, thread, location) = match place {
            Place::Global(address, _) => self.global?.last_write(address.addr())?,
            Place::Shared(array, offset) => {
                let (thread, location) = self.memory.shared.last_write(array, offset / WORD)?;
                (self.block_number.get(), thread, location)
            }
            Place::Remote(rank, array, offset) => {
                let owner = remote::context_of(self, rank)?;
                let (thread, location) = owner.memory.shared.last_write_of_owner(array, offset / WORD)?;
                (owner.block_number.get(), thread, location)
            }
        };
        // What TMA has written, nobody waits for by reads.
        let thread = self.threads.get(thread)?.index;
        Some(LastWrite { block: self.position(block), thread, location: location.into() })
    }

    /// Lets the threads that run on this OS thread find the context.
    pub(super) fn enter(&'a self) -> Entered<'a> {
        spins::look_at_all(self.costs.is_some());
        values::set_tracing(self.trace.is_some());
        let previous = CURRENT.replace(ptr::from_ref(self).cast());
        assert!(previous.is_null(), "a worker runs one launch at a time");
        Entered(self)
    }

    /// The thread that runs.
    #[inline(always)]
    pub(super) fn thread(&self) -> &Thread {
        &self.threads[self.current.get()]
    }

    /// Stops the running thread until its worker resumes it.
    #[inline(always)]
    pub(super) fn suspend(&self, state: State, location: &'static Location<'static>) {
        let thread = self.thread();
        thread.location.set(location);
        thread.state.set(state);
        // SAFETY: this is the running thread, so its coroutine has begun, which set the yielder, and the yielder lives at
        // the base of the stack that this very call runs on.
        unsafe { (*thread.yielder.get()).suspend(()) };
    }

    /// Has the running thread begin an interval: see [`super::shared_memory`].
    pub(super) fn begin_interval(&self, tick: u64) {
        self.thread().interval.set(tick);
        set_interval(tick);
    }

    /// What else there is to the running thread.
    #[inline(always)]
    pub(super) fn details(&self) -> &Details {
        &self.details[self.current.get()]
    }

    /// Ends the launch with the report of a stack overflow unless the running thread has [`HEADROOM`] left.
    ///
    /// What allocates or borrows on a thread's stack begins with this: [`super::overflow`] says why.
    pub(super) fn require_headroom(&self) {
        let here = 0u8;
        let left = self.memory.stacks.left(self.current.get(), ptr::from_ref(&here).addr());
        if left < HEADROOM {
            loop {
                // Not resumed: after an overflow, stacks are abandoned.
                self.suspend(State::StackOverflow, self.thread().location.get());
            }
        }
    }

    /// A report on the running thread.
    pub(super) fn report(&self, location: Option<SourceLine>, kind: FaultKind) -> Box<Fault> {
        let (block, thread) = (self.block.get(), self.thread().index);
        let callers = self.callers_of(location.as_ref());
        Box::new(Fault { kernel: self.kernel, block, thread, location, callers, kind, old_value: self.old_value() })
    }

    /// Ends the launch because of what the running thread does.
    #[cold]
    pub(super) fn fail(&self, location: &'static Location<'static>, kind: FaultKind) -> ! {
        self.require_headroom();
        self.fault.set(Some(self.report(Some(location.into()), kind)));
        loop {
            // Resumed once, to unwind: then `suspend` does not return.
            self.suspend(State::Faulted, location);
        }
    }

    /// Ends the launch because of what a thread that waits has asked for; its worker does that, not the thread.
    #[cold]
    pub(super) fn fail_later(&self, position: usize, kind: FaultKind) {
        self.current.set(position);
        self.fault.set(Some(self.report(Some(self.thread().location.get().into()), kind)));
    }

    /// The view among the kernel's parameters that these bytes are, or are a part of, and how many of its bytes come before them.
    /// There may be several that cannot be told apart, such as empty ones, which have no address of their own: then all are named.
    ///
    /// Parts are what is left of a view from an element on, so a view that ends where the bytes end comes before one that does
    /// not, such as the neighbour that begins where an empty part is; of several, the one with the fewest bytes before.
    pub(super) fn view_of(&self, address: usize, bytes: usize) -> Option<(String, usize)> {
        let end = address.saturating_add(bytes);
        let mut best = None;
        let mut names = Vec::new();
        (self.visit_views)(&mut |view| {
            let view_end = view.address.saturating_add(view.bytes);
            if view.address != address && (view.address > address || end > view_end) {
                return;
            }
            let fit = Some((view_end == end, view.address));
            if fit > best {
                best = fit;
                names.clear();
            }
            if fit == best {
                names.push(view.name.to_string());
            }
        });
        best.map(|(_, begin)| (names.join("` or `"), address - begin))
    }
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        self.0.memory.shared.end_block();
        spins::look_at_all(false);
        values::set_tracing(false);
        CURRENT.set(ptr::null());
    }
}

/// The context of the kernel that runs on this OS thread, if one does.
#[inline(always)]
pub(super) fn try_current<'a>() -> Option<&'a Context<'a>> {
    // SAFETY: the pointer is set while the context is borrowed by its `Entered`. A coroutine of the launch ends before
    // that, and nobody else holds the reference for longer than a function of this module's parent runs.
    unsafe { CURRENT.get().cast::<Context<'a>>().as_ref() }
}

/// The context of the kernel that runs on this OS thread.
///
/// # Panics
/// If none does.
#[inline(always)]
#[track_caller]
pub(super) fn current<'a>() -> &'a Context<'a> {
    match try_current() {
        Some(context) => context,
        None => outside_of_a_kernel(),
    }
}

#[cold]
#[inline(never)]
#[track_caller]
fn outside_of_a_kernel() -> ! {
    panic!(
        "this function works inside a kernel only, and no kernel is running on this thread: launch one with an `Executor`"
    )
}
