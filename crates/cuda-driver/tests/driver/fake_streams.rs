//! The fake driver's streams and events, and the order in which it does what it is given.
//!
//! It does everything at once, unless `fake_defer(seed)` has been called. From then on it is as bad as a driver may be: what is put on a
//! stream waits there, and now and then, and when the host waits, it does something from the front of one of the streams, whichever the
//! seed leads to. Nothing but the order of a stream and the waits for events is kept. Memory that is freed while something on a stream
//! would still use it ends the process.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ffi::{c_int, c_uint};
use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering::SeqCst};

use crate::fake_faults::{Kind, end_handle, is_handle};
use crate::fake_memory::COPIES_GOING_ON;
use crate::{
    CAPTURE_MODE, ENDLESS, INVALID_HANDLE, LOST, SUCCESS, check, create, destroyed, prescribed, prescribed_in_context,
    refusal_to_destroy,
};

const NOT_READY: u32 = 600;
/// What is no stream.
const NO_STREAM: usize = 0xBAD;

pub(crate) static LAST_STREAM: AtomicUsize = AtomicUsize::new(usize::MAX);
static LAST_PRIORITY: AtomicI32 = AtomicI32::new(0);

static SCHEDULE: Mutex<Schedule> =
    Mutex::new(Schedule { random: None, streams: BTreeMap::new(), events: BTreeMap::new() });

struct Schedule {
    /// The state of a generator, if things are deferred.
    random: Option<u64>,
    streams: BTreeMap<usize, VecDeque<Step>>,
    /// How often each event was recorded, and which of these records have not happened. They may happen in any order.
    events: BTreeMap<usize, (u64, BTreeSet<u64>)>,
}

/// What is done when its turn comes.
pub(crate) type Work = Box<dyn FnOnce() + Send>;

enum Step {
    Work(Work, Vec<Range<u64>>),
    Record(usize, u64),
    Wait(usize, u64),
}

impl Schedule {
    fn random(&mut self, below: usize) -> usize {
        // SplitMix64.
        let state = self.random.as_mut().unwrap();
        *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = *state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((mixed ^ (mixed >> 31)) % below as u64) as usize
    }

    fn has_happened(&self, event: usize, number: u64) -> bool {
        self.events.get(&event).is_none_or(|(_, pending)| !pending.contains(&number))
    }

    /// Does one thing from the front of a stream, and says whether there was one that does not wait.
    fn step(&mut self) -> bool {
        let ready = |(stream, steps): (&usize, &VecDeque<Step>)| match steps.front()? {
            Step::Wait(event, number) => self.has_happened(*event, *number).then_some(*stream),
            Step::Work(..) | Step::Record(..) => Some(*stream),
        };
        let ready: Vec<usize> = self.streams.iter().filter_map(ready).collect();
        if ready.is_empty() {
            return false;
        }
        let stream = ready[self.random(ready.len())];
        match self.streams.get_mut(&stream).unwrap().pop_front().unwrap() {
            Step::Work(work, _) => work(),
            Step::Record(event, number) => _ = self.events.entry(event).or_default().1.remove(&number),
            Step::Wait(..) => {}
        }
        true
    }

    fn run_until(&mut self, is_done: impl Fn(&Self) -> bool) {
        while !is_done(self) {
            assert!(self.step(), "the streams wait for one another for ever");
        }
    }

    fn put(&mut self, stream: usize, step: Step) {
        self.streams.entry(stream).or_default().push_back(step);
        for _ in 0..self.random(3) {
            self.step();
        }
    }
}

/// Does something on a stream that uses this memory, now or later.
pub(crate) fn enqueue(stream: usize, uses: Vec<Range<u64>>, work: Work) {
    let mut schedule = SCHEDULE.lock().unwrap();
    if schedule.random.is_some() { schedule.put(stream, Step::Work(work, uses)) } else { work() }
}

/// A number that the seed leads to, below this one; 0 if nothing is deferred. Not while something is done.
pub(crate) fn random_below(below: usize) -> usize {
    let mut schedule = SCHEDULE.lock().unwrap();
    if schedule.random.is_some() { schedule.random(below) } else { 0 }
}

/// Ends the process if anything that has not been done uses this memory.
pub(crate) fn check_unused(memory: Range<u64>) {
    let schedule = SCHEDULE.lock().unwrap();
    for step in schedule.streams.values().flatten() {
        if let Step::Work(_, uses) = step {
            let is_used = uses.iter().any(|used| used.start < memory.end && memory.start < used.end);
            assert!(!is_used, "memory is freed that something on a stream will use");
        }
    }
}

/// As in a new process.
pub(crate) fn begin() {
    let mut schedule = SCHEDULE.lock().unwrap();
    (schedule.streams, schedule.events) = (BTreeMap::new(), BTreeMap::new());
}

/// From now on things are done in an order that the seed leads to; with 0, at once.
#[unsafe(no_mangle)]
extern "C" fn fake_defer(seed: u64) {
    let mut schedule = SCHEDULE.lock().unwrap();
    if schedule.random.is_some() {
        schedule.run_until(|schedule| schedule.streams.values().all(VecDeque::is_empty));
    }
    schedule.random = (seed != 0).then_some(seed);
}

#[unsafe(no_mangle)]
extern "C" fn fake_last_stream() -> usize {
    LAST_STREAM.load(SeqCst)
}

#[unsafe(no_mangle)]
extern "C" fn fake_last_priority() -> i32 {
    LAST_PRIORITY.load(SeqCst)
}

#[unsafe(no_mangle)]
extern "C" fn cuCtxGetStreamPriorityRange(least: *mut c_int, greatest: *mut c_int) -> u32 {
    check!(prescribed_in_context("cuCtxGetStreamPriorityRange"));
    unsafe { (*least, *greatest) = (0, -5) };
    SUCCESS
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamCreateWithPriority(stream: *mut usize, _flags: c_uint, priority: c_int) -> u32 {
    // As the real driver does where the context is lost, this leaves something behind also if it fails.
    // SAFETY: the caller passes a place for the stream.
    unsafe { *stream = NO_STREAM };
    check!(prescribed_in_context("cuStreamCreateWithPriority"));
    LAST_PRIORITY.store(priority, SeqCst);
    create(Kind::Stream, stream)
}

/// What is still on the stream goes on.
#[unsafe(no_mangle)]
extern "C" fn cuStreamDestroy_v2(stream: usize) -> u32 {
    check!(refusal_to_destroy("cuStreamDestroy_v2"));
    if stream == NO_STREAM {
        return INVALID_HANDLE;
    }
    end_handle(stream);
    destroyed(Kind::Stream)
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamSynchronize(stream: usize) -> u32 {
    LAST_STREAM.store(stream, SeqCst);
    waited(prescribed_in_context("cuStreamSynchronize"), |schedule| {
        schedule.streams.get(&stream).is_none_or(VecDeque::is_empty)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuCtxSynchronize() -> u32 {
    waited(prescribed_in_context("cuCtxSynchronize"), |schedule| schedule.streams.values().all(VecDeque::is_empty))
}

/// After a wait no copy goes on; nor does one in a context that is lost.
fn waited(code: u32, is_done: impl Fn(&Schedule) -> bool) -> u32 {
    if code == SUCCESS {
        let mut schedule = SCHEDULE.lock().unwrap();
        if schedule.random.is_some() {
            schedule.run_until(is_done);
        }
    }
    while ENDLESS.load(SeqCst) {
        std::thread::park();
    }
    let code = if code == SUCCESS { LOST.load(SeqCst) } else { code };
    if code == SUCCESS || LOST.load(SeqCst) != SUCCESS {
        COPIES_GOING_ON.store(0, SeqCst);
    }
    code
}

/// Stream 4711 is captured.
#[unsafe(no_mangle)]
extern "C" fn cuStreamIsCapturing(stream: usize, status: *mut c_uint) -> u32 {
    check!(prescribed_in_context("cuStreamIsCapturing"));
    unsafe { *status = u32::from(stream == 4711) };
    SUCCESS
}

#[unsafe(no_mangle)]
extern "C" fn cuThreadExchangeStreamCaptureMode(mode: *mut c_uint) -> u32 {
    check!(prescribed("cuThreadExchangeStreamCaptureMode"));
    unsafe { *mode = CAPTURE_MODE.replace(*mode) };
    SUCCESS
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamWaitEvent(stream: usize, event: usize, flags: c_uint) -> u32 {
    LAST_STREAM.store(stream, SeqCst);
    check!(prescribed_in_context("cuStreamWaitEvent"));
    if !is_handle(event) || flags != 0 {
        return INVALID_HANDLE;
    }
    let mut schedule = SCHEDULE.lock().unwrap();
    if schedule.random.is_some() {
        let recorded = schedule.events.get(&event).map_or(0, |(recorded, _)| *recorded);
        schedule.put(stream, Step::Wait(event, recorded));
    }
    SUCCESS
}

#[unsafe(no_mangle)]
extern "C" fn cuEventCreate(event: *mut usize, _flags: c_uint) -> u32 {
    check!(prescribed_in_context("cuEventCreate"));
    create(Kind::Event, event)
}

#[unsafe(no_mangle)]
extern "C" fn cuEventRecord(event: usize, stream: usize) -> u32 {
    LAST_STREAM.store(stream, SeqCst);
    check!(prescribed_in_context("cuEventRecord"));
    if !is_handle(event) {
        return INVALID_HANDLE;
    }
    let mut schedule = SCHEDULE.lock().unwrap();
    if schedule.random.is_some() {
        let (recorded, pending) = schedule.events.entry(event).or_default();
        *recorded += 1;
        let number = *recorded;
        pending.insert(number);
        schedule.put(stream, Step::Record(event, number));
    }
    SUCCESS
}

#[unsafe(no_mangle)]
extern "C" fn cuEventSynchronize(event: usize) -> u32 {
    let code = prescribed_in_context("cuEventSynchronize");
    if code != SUCCESS {
        return code;
    }
    let mut schedule = SCHEDULE.lock().unwrap();
    if schedule.random.is_some() {
        let recorded = schedule.events.get(&event).map_or(0, |(recorded, _)| *recorded);
        schedule.run_until(|schedule| schedule.has_happened(event, recorded));
    }
    LOST.load(SeqCst)
}

#[unsafe(no_mangle)]
extern "C" fn cuEventQuery(event: usize) -> u32 {
    check!(prescribed_in_context("cuEventQuery"));
    let schedule = SCHEDULE.lock().unwrap();
    let recorded = schedule.events.get(&event).map_or(0, |(recorded, _)| *recorded);
    if schedule.has_happened(event, recorded) { SUCCESS } else { NOT_READY }
}

#[unsafe(no_mangle)]
extern "C" fn cuEventElapsedTime(milliseconds: *mut f32, start: usize, end: usize) -> u32 {
    check!(prescribed_in_context("cuEventElapsedTime"));
    if !is_handle(start) || !is_handle(end) {
        return INVALID_HANDLE;
    }
    unsafe { *milliseconds = 1.5 };
    SUCCESS
}

#[unsafe(no_mangle)]
extern "C" fn cuEventDestroy_v2(event: usize) -> u32 {
    check!(refusal_to_destroy("cuEventDestroy_v2"));
    end_handle(event);
    destroyed(Kind::Event)
}
