//! What the fake driver counts, and how it is made to fail: at the n-th call of its functions, once or for good.
//!
//! ```text
//! fake_begin(n, code, how)    everything as in a new process; call n will return `code` and do nothing else
//!        how = 0              that call alone
//!        how = 1              from then on all that needs the context, which is lost; what it has can still be destroyed
//!        how = 2              from then on everything: the driver is gone
//! ```

use std::collections::HashSet;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::{AtomicI32, AtomicU32, AtomicUsize};
use std::sync::{Mutex, OnceLock};

use crate::fake_memory::{COPIES_GOING_ON, free_everything};
use crate::{CURRENT_CONTEXT, LOST, SUCCESS, fake_streams};

/// What has to be given back.
#[derive(Clone, Copy)]
pub(crate) enum Kind {
    Context,
    Stream,
    Event,
    Allocation,
    Module,
    HostAllocation,
    Graph,
    ExecutableGraph,
    Pool,
}

static LIVE: [AtomicI32; 9] = [const { AtomicI32::new(0) }; 9];

/// The names of the functions that were called, in their order.
static CALLS: Mutex<Vec<&'static str>> = Mutex::new(Vec::new());
/// Whether names are kept: not in a test that calls a million functions.
static IS_LOGGING: AtomicU32 = AtomicU32::new(0);

/// The number of the call that fails, from 1; 0 for none.
static FAIL_AT: AtomicUsize = AtomicUsize::new(0);
static FAIL_CODE: AtomicU32 = AtomicU32::new(SUCCESS);
static FAIL_HOW: AtomicU32 = AtomicU32::new(ONCE);
const ONCE: u32 = 0;
const CONTEXT_LOST: u32 = 1;
const GONE: u32 = 2;

/// The handles of streams, events and pools, so that none is destroyed twice, and no event or pool used after that.
static HANDLES: Mutex<Option<HashSet<usize>>> = Mutex::new(None);
static LAST_HANDLE: AtomicUsize = AtomicUsize::new(0x1_0000);

/// Counts a call, and returns the code that it is to return: the one that the environment prescribes for the function, or that
/// of `fake_begin`.
pub(crate) fn called(function: &'static str) -> u32 {
    // Read once: to look at the environment takes longer than a launch.
    static PRESCRIPTIONS: OnceLock<String> = OnceLock::new();
    let prescriptions = PRESCRIPTIONS.get_or_init(|| std::env::var("FAKE_CUDA").unwrap_or_default());
    let code = prescriptions.split(',').filter_map(|entry| entry.split_once('=')).find(|entry| entry.0 == function);
    if let Some((_, code)) = code {
        return code.parse().unwrap();
    }
    if IS_LOGGING.load(SeqCst) == 0 {
        return SUCCESS;
    }
    let number = {
        let mut calls = CALLS.lock().unwrap();
        calls.push(function);
        calls.len()
    };
    let (at, code, how) = (FAIL_AT.load(SeqCst), FAIL_CODE.load(SeqCst), FAIL_HOW.load(SeqCst));
    if at != 0 && number == at {
        if how == CONTEXT_LOST {
            LOST.store(code, SeqCst);
        }
        return code;
    }
    if at != 0 && number > at && how == GONE { code } else { SUCCESS }
}

/// Something was made that has to be given back.
pub(crate) fn made(kind: Kind) {
    LIVE[kind as usize].fetch_add(1, SeqCst);
}

/// It was given back.
pub(crate) fn given_back(kind: Kind) {
    let before = LIVE[kind as usize].fetch_sub(1, SeqCst);
    assert!(before > 0, "more was given back than there was");
}

/// A handle that no other stream or event has.
pub(crate) fn new_handle() -> usize {
    let handle = LAST_HANDLE.fetch_add(1, SeqCst) + 1;
    HANDLES.lock().unwrap().get_or_insert_with(HashSet::new).insert(handle);
    handle
}

/// Whether there is a stream or an event of this handle.
pub(crate) fn is_handle(handle: usize) -> bool {
    HANDLES.lock().unwrap().as_ref().is_some_and(|handles| handles.contains(&handle))
}

/// Ends the handle of a stream or an event.
pub(crate) fn end_handle(handle: usize) {
    let was_there = HANDLES.lock().unwrap().as_mut().is_some_and(|handles| handles.remove(&handle));
    assert!(was_there, "destroyed what was not there: {handle:#x}");
}

/// Everything as in a new process; then call number `at` fails, or none if that is 0. Nothing of before may be used any more,
/// and no other thread may call the driver meanwhile.
#[unsafe(no_mangle)]
extern "C" fn fake_begin(at: usize, code: u32, how: u32) {
    fake_streams::begin();
    free_everything();
    CURRENT_CONTEXT.set(0);
    LOST.store(SUCCESS, SeqCst);
    COPIES_GOING_ON.store(0, SeqCst);
    LIVE.iter().for_each(|live| live.store(0, SeqCst));
    *HANDLES.lock().unwrap() = None;
    CALLS.lock().unwrap().clear();
    IS_LOGGING.store(1, SeqCst);
    FAIL_AT.store(at, SeqCst);
    FAIL_CODE.store(code, SeqCst);
    FAIL_HOW.store(how, SeqCst);
}

/// The number of functions that were called since `fake_begin`.
#[unsafe(no_mangle)]
extern "C" fn fake_calls() -> usize {
    CALLS.lock().unwrap().len()
}

/// The name of the function of a call, from 1, and its length.
#[unsafe(no_mangle)]
unsafe extern "C" fn fake_call_name(number: usize, length: *mut usize) -> *const u8 {
    let name = CALLS.lock().unwrap()[number - 1];
    // SAFETY: the caller passes a place for the length. The name is a constant.
    unsafe { *length = name.len() };
    name.as_ptr()
}

/// Contexts, streams, events, allocations, modules and graphs that nobody has given back.
#[unsafe(no_mangle)]
extern "C" fn fake_live_objects() -> i32 {
    LIVE.iter().map(|live| live.load(SeqCst)).sum()
}

/// How many there are of one [`Kind`].
#[unsafe(no_mangle)]
extern "C" fn fake_live_of(kind: usize) -> i32 {
    LIVE[kind].load(SeqCst)
}
