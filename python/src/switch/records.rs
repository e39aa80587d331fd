//! What the switch has done: how often each product was taken, and why others were passed on.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Why a call goes to torch's own kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub(super) enum Reason {
    Small,
    NotFaster,
    Type,
    Tf32,
    Shape,
    Device,
    Names,
    Overlap,
    Factors,
    Memory,
    Failed,
}

impl Reason {
    const ALL: [Self; 11] = [
        Self::Small,
        Self::NotFaster,
        Self::Type,
        Self::Tf32,
        Self::Shape,
        Self::Device,
        Self::Names,
        Self::Overlap,
        Self::Factors,
        Self::Memory,
        Self::Failed,
    ];

    /// In words.
    pub(super) fn text(self) -> &'static str {
        match self {
            Self::Small => "too small to gain anything",
            Self::NotFaster => "not predicted to be faster",
            Self::Type => "elements other than float32",
            Self::Tf32 => "TF32 was asked for",
            Self::Shape => "no product of these shapes, or one without elements or terms",
            Self::Device => "tensors on different devices",
            Self::Names => "extents with names",
            Self::Overlap => "a result that overlaps an operand, overlaps itself or has another shape",
            Self::Factors => "alpha is zero, or a factor is no real number of float32",
            Self::Memory => "not enough memory for the result and the workspace",
            Self::Failed => "a failure",
        }
    }
}

/// What is counted together.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Taken {
    pub(super) operator: &'static str,
    /// m, n, k, and the number of products.
    pub(super) sizes: [usize; 4],
    pub(super) precision: String,
    pub(super) kernel: &'static str,
}

/// How often, and what each call should take here and at torch's, in milliseconds; none on the CPU executor.
#[derive(Debug)]
pub(super) struct Record {
    pub(super) calls: AtomicU64,
    pub(super) predicted: Option<Predicted>,
}

/// Predicted times of a call, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Predicted {
    /// By the kernel that was chosen, with what comes before it.
    pub(super) here: f64,
    /// By instructions for fp32 alone, which is what torch's library computes by unless TF32 is allowed.
    pub(super) torch: f64,
}

/// The records that are kept, at most: further products are counted by one for each operator.
const MOST: usize = 4096;

static RECORDS: Mutex<Option<HashMap<Taken, Arc<Record>>>> = Mutex::new(None);

static PASSED_ON: [AtomicU64; Reason::ALL.len()] = [const { AtomicU64::new(0) }; Reason::ALL.len()];

/// The message of the last failure.
static FAILURE: Mutex<Option<String>> = Mutex::new(None);

/// The record of what is counted together with this.
pub(super) fn record(mut taken: Taken, predicted: Option<Predicted>) -> Arc<Record> {
    let mut records = lock(&RECORDS);
    let records = records.get_or_insert_default();
    if records.len() >= MOST && !records.contains_key(&taken) {
        taken = Taken { sizes: [0; 4], kernel: "several", ..taken };
        return records.entry(taken).or_insert_with(|| Arc::new(Record::new(None))).clone();
    }
    records.entry(taken).or_insert_with(|| Arc::new(Record::new(predicted))).clone()
}

impl Record {
    fn new(predicted: Option<Predicted>) -> Self {
        Self { calls: AtomicU64::new(0), predicted }
    }
}

pub(super) fn passed_on(reason: Reason) {
    PASSED_ON[reason as usize].fetch_add(1, Ordering::Relaxed);
}

pub(super) fn failed(message: String) {
    *lock(&FAILURE) = Some(message);
}

/// All that was taken, with the number of calls.
pub(super) fn all_taken() -> Vec<(Taken, u64, Option<Predicted>)> {
    let records = lock(&RECORDS);
    let all = records.iter().flatten();
    let counted = all.map(|(taken, record)| (taken.clone(), record.calls.load(Ordering::Relaxed), record.predicted));
    let mut used: Vec<_> = counted.filter(|(_, calls, _)| *calls > 0).collect();
    used.sort_by(|(one, ..), (other, ..)| one.cmp(other));
    used
}

/// How many calls were passed on, for each reason that there was.
pub(super) fn all_passed_on() -> Vec<(&'static str, u64)> {
    let counts = Reason::ALL.map(|reason| (reason.text(), PASSED_ON[reason as usize].load(Ordering::Relaxed)));
    counts.into_iter().filter(|(_, count)| *count > 0).collect()
}

pub(super) fn last_failure() -> Option<String> {
    lock(&FAILURE).clone()
}

/// Counts from zero again.
pub(super) fn reset() {
    for record in lock(&RECORDS).iter().flat_map(|records| records.values()) {
        record.calls.store(0, Ordering::Relaxed);
    }
    PASSED_ON.iter().for_each(|count| count.store(0, Ordering::Relaxed));
    *lock(&FAILURE) = None;
}

/// Nothing that holds one of these locks leaves what it guards half changed.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
