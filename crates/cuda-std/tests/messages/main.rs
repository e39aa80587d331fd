//! What a report of each kind of fault says, word for word: a file beside this one for each.
//!
//! With `TILEWRIGHT_BLESS=1` the files are written anew; look at what has changed.

extern crate tilewright_cuda_std as cuda_std;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Once;
use std::{env, fs};

use cuda_std::Dim3;
use cuda_std::atomic::Scope;
use cuda_std::executor::{
    AccessKind, BarrierName, BlockOperation, Elsewhere, Fault, FaultKind, LastWrite, Missing, OldValue, OtherAccess,
    Place, RemoteBarrierProblem, SharedArrayName, SourceLine, ViewElement, WarpOperation,
};

/// Where the kinds are, and the names that they have.
const KINDS: &str = include_str!("../../src/executor/fault/message.rs");

/// The files of faults of which no line is known: where a stack overflows, and where a thread is that runs on and on.
const HAVE_NO_LINE: [&str; 2] = ["stack-overflow.txt", "thread-limit.txt"];

fn line(line: u32) -> SourceLine {
    SourceLine { file: "src/kernel.rs".into(), line }
}

fn thread(x: u32) -> Dim3 {
    Dim3::new(x, 0, 0)
}

fn other(access: AccessKind) -> OtherAccess {
    OtherAccess { thread: thread(35), location: line(17), access, callers: Vec::new() }
}

/// A write in the line that the reports are of.
fn in_the_same_line() -> OtherAccess {
    OtherAccess { location: line(23), ..other(AccessKind::Write) }
}

fn tile() -> SharedArrayName {
    SharedArrayName::Static { declared: line(7), type_name: "[[f32; 32]; 32]" }
}

fn slice() -> SharedArrayName {
    SharedArrayName::Slice { byte_offset: 16, len: 20, element_bytes: 8 }
}

/// Threads in each place in which others can miss them.
fn places() -> Vec<Elsewhere> {
    let vote = Place::Warp { operation: WarpOperation::VoteAny, mask: 0xFFFF, location: line(31) };
    let phase =
        Place::Waiting { waits_for: "barrier 3, to which 32 of 64 threads have come".into(), location: line(32) };
    let places = [Place::Returned, Place::Barrier(line(30)), vote, Place::Running(line(33)), phase];
    let counts = [1, 14, 16, 1, 32];
    (1..).zip(places).zip(counts).map(|((x, place), count)| Elsewhere { first: thread(32 * x), count, place }).collect()
}

/// At least one fault of each kind, and of those whose words depend on what they have, one for each way to say it.
fn examples() -> Vec<FaultKind> {
    use FaultKind as F;
    let view = Some("gemm.a.data".to_owned());
    let of_a_half = AccessKind::Atomic { scope: Scope::Device, bytes: 4 };
    let block_scope = AccessKind::Atomic { scope: Scope::Block, bytes: 4 };
    let element = |byte| Some(ViewElement { view: "gemm.a.data".into(), index: 70, byte });
    let global = |element, access, block: Option<Dim3>, other_access| {
        let missing = block.is_none().then_some(Missing::Meeting);
        F::GlobalRace { element, access, block, other: other(other_access), missing }
    };
    let race = |array, element: &str, access, by_engine, other_access, missing| {
        let (element, other) = (element.to_owned(), other(other_access));
        F::Race { array, element, access, by_engine, other, missing }
    };
    let called = F::Race {
        array: tile(),
        element: "[3, 17]".into(),
        access: AccessKind::Read,
        by_engine: false,
        other: OtherAccess { callers: vec![line(38), line(44)], ..other(AccessKind::Write) },
        missing: Missing::Meeting,
    };
    let handed_over = |missing| race(slice(), "5", AccessKind::Read, false, AccessKind::Write, missing);
    let barrier = || BarrierName { byte_offset: 2048, initialized: line(9) };
    vec![
        F::OutOfBounds { view: view.clone(), first: 0, index: 63, count: 1, len: 63 },
        F::OutOfBounds { view: view.clone(), first: 10, index: 2, count: 4, len: 3 },
        F::OutOfBounds { view: None, first: 0, index: 60, count: 4, len: 63 },
        F::OutOfBounds { view: view.clone(), first: 0, index: 0usize.wrapping_sub(33), count: 1, len: 63 },
        F::Misaligned { view: view.clone(), first: 0, index: 3, bytes: 16 },
        F::Misaligned { view: view.clone(), first: 3, index: 2, bytes: 16 },
        F::SharedOutOfBounds { array: tile(), index: "[3, 32]".into() },
        F::SharedOutOfBounds { array: SharedArrayName::Dynamic, index: "288..544".into() },
        F::DynamicSharedBounds { byte_offset: 16, len: 7, element_bytes: 8, available: 64 },
        F::SharedUndeclared { array: tile(), static_bytes: 8192, declared_bytes: 4096 },
        F::SharedMisaligned { array: slice(), index: 2, bytes: 16 },
        F::CopyNotAwaited { byte_offset: 64, bytes: 16 },
        F::WriteUnderWay { byte_offset: 64, bytes: 16, other: other(AccessKind::Write) },
        race(tile(), "[3, 17]", AccessKind::Write, false, AccessKind::Read, Missing::Meeting),
        called,
        F::Race {
            array: tile(),
            element: "[3, 17]".into(),
            access: AccessKind::Write,
            by_engine: false,
            other: in_the_same_line(),
            missing: Missing::Meeting,
        },
        race(slice(), "5", AccessKind::Read, false, block_scope, Missing::Meeting),
        handed_over(Missing::WarpMeeting),
        handed_over(Missing::Initialization),
        handed_over(Missing::Wait(barrier())),
        handed_over(Missing::WaitForLoad(barrier())),
        handed_over(Missing::Numbered { id: 3 }),
        handed_over(Missing::LaterArrival { waited: barrier(), behind: None }),
        handed_over(Missing::LaterArrival {
            waited: barrier(),
            behind: Some(BarrierName { byte_offset: 2056, initialized: line(10) }),
        }),
        handed_over(Missing::HandOver),
        race(slice(), "5", AccessKind::Read, true, AccessKind::Write, Missing::Wait(barrier())),
        race(slice(), "5", AccessKind::Write, true, AccessKind::Read, Missing::HandOver),
        global(element(0), AccessKind::Read, None, AccessKind::Write),
        global(element(4), AccessKind::Read, None, AccessKind::Write),
        F::GlobalRace {
            element: element(0),
            access: AccessKind::Read,
            block: None,
            other: other(AccessKind::Write),
            missing: Some(Missing::Wait(barrier())),
        },
        F::GlobalRace {
            element: element(0),
            access: AccessKind::Write,
            block: None,
            other: in_the_same_line(),
            missing: Some(Missing::WarpMeeting),
        },
        global(None, AccessKind::Write, Some(thread(2)), AccessKind::Write),
        global(element(0), block_scope, Some(thread(2)), AccessKind::Atomic { scope: Scope::Device, bytes: 4 }),
        global(element(0), of_a_half, Some(thread(2)), AccessKind::Atomic { scope: Scope::Device, bytes: 8 }),
        F::OrderedOutsideOfAtomics,
        F::NotCooperative,
        F::NotClustered,
        F::ClusterRank { rank: 4, blocks: 4 },
        F::ClusterArrivedTwice { first: line(17) },
        F::ClusterWaitAlone,
        F::ClusterArrivalNotAwaited,
        F::ClusterDivergence {
            arrived: 97,
            threads: 128,
            absent: places().into_iter().map(|place| (thread(2), place)).collect(),
        },
        F::ClusterDivergence { arrived: 1, threads: 128, absent: Vec::new() },
        F::ClusterRace {
            owner: thread(2),
            array: tile(),
            element: "[3, 17]".into(),
            access: AccessKind::Write,
            block: Some(thread(2)),
            other: other(AccessKind::Read),
        },
        F::ClusterRace {
            owner: thread(1),
            array: slice(),
            element: "5".into(),
            access: AccessKind::Read,
            block: None,
            other: other(AccessKind::Atomic { scope: Scope::Cluster, bytes: 4 }),
        },
        F::ClusterRace {
            owner: thread(2),
            array: slice(),
            element: "5".into(),
            access: block_scope,
            block: Some(thread(2)),
            other: other(AccessKind::Atomic { scope: Scope::Cluster, bytes: 4 }),
        },
        F::UnwrittenRemote { owner: thread(2), array: tile(), element: "[3, 17]".into() },
        F::RemoteNotStarted { owner: thread(2) },
        F::RemoteEnded { owner: thread(2) },
        F::RemoteBarrier { owner: thread(2), byte_offset: 2048, problem: RemoteBarrierProblem::NotInitialized },
        F::RemoteBarrier { owner: thread(2), byte_offset: 2048, problem: RemoteBarrierProblem::NotFenced },
        F::RemoteBarrier { owner: thread(2), byte_offset: 2048, problem: RemoteBarrierProblem::TooManyArrivals },
        F::MulticastRanks { ranks: 0b101, blocks: 2 },
        F::Stuck {
            blocks: 4,
            place: "element 3 of view `flags`".into(),
            access: AccessKind::Atomic { scope: Scope::Device, bytes: 4 },
            last_write: None,
            others: places(),
        },
        F::Stuck {
            blocks: 1,
            place: "element 0 of the shared array `[u32; 1]` declared at src/kernel.rs:7".into(),
            access: AccessKind::Read,
            last_write: Some(LastWrite { block: thread(1), thread: thread(0), location: line(17) }),
            others: places()[..1].to_vec(),
        },
        F::StepBudget { steps: 1000 },
        F::StepBudget { steps: 1 },
        F::ThreadLimit { seconds: 60, last_stop: None },
        F::ThreadLimit { seconds: 60, last_stop: Some(line(17)) },
        F::UnwrittenShared { array: tile(), element: "[3, 17]".into(), pending: None },
        F::UnwrittenShared {
            array: SharedArrayName::Dynamic,
            element: "273".into(),
            pending: Some(other(AccessKind::Write)),
        },
        F::UnwrittenGlobal { element: element(0), bytes: 4096, allocated: line(3) },
        F::BarrierDivergence { waiting: 127, absent: places()[..1].to_vec() },
        F::BarrierDivergence { waiting: 1, absent: places()[1..2].to_vec() },
        F::BarrierMixed {
            operation: BlockOperation::SyncCount,
            other: BlockOperation::Sync,
            thread: thread(0),
            location: line(17),
        },
        F::Deadlock { waits_for: "72 more registers, of which 8 are free".into(), others: places() },
        F::BarrierNotInitialized { byte_offset: 2048 },
        F::BarrierInitialization { byte_offset: 2048, arrivals: 0 },
        F::BarrierInitialization { byte_offset: 2048, arrivals: 1 },
        F::BarrierParity { byte_offset: 2048, parity: 2 },
        F::BarrierNotFenced { byte_offset: 2048 },
        F::TooManyArrivals { byte_offset: 2048 },
        F::UnbalancedBytes { byte_offset: 2048, missing: 128 },
        F::UnbalancedBytes { byte_offset: 2048, missing: -3072 },
        F::InFlight { element: "273".into(), other: other(AccessKind::Read) },
        F::InFlight { element: "273".into(), other: other(AccessKind::Write) },
        F::TileMisaligned { coordinate: 50, element_bytes: 4 },
        F::TapTooFar { tap: [0, 256] },
        F::NotABasePixel { at: [-2, 5] },
        F::StoreBeforeArray { dimension: 1, coordinate: -1 },
        F::StoreBehindArray { byte: 4473, bytes: 4472 },
        F::WrittenBeforeLoad { element: element(0), block: Some(thread(2)), thread: thread(35), location: line(17) },
        F::NotFenced { element: "40".into(), thread: thread(40), location: line(17) },
        F::StoreNotAwaited,
        F::ProductNotAwaited,
        F::SumsNotAwaited { product: line(17) },
        F::LoadNotAwaited,
        F::BarrierNumber { id: 16, threads: 64 },
        F::BarrierCount { id: 3, threads: 96, others: 64 },
        F::BarrierUnmet { id: 5, come: 32, threads: 64 },
        F::BarrierUnmet { id: 5, come: 1, threads: 64 },
        F::BarrierMeetings { id: 1, threads: 64, thread: thread(32), location: line(17) },
        F::BarrierArrivedTwice { id: 1, threads: 64, first: line(17) },
        F::BarrierAccess { owner: None, byte_offset: 2048, access: AccessKind::Write, initialized: line(9) },
        F::BarrierAccess { owner: Some(thread(2)), byte_offset: 2048, access: AccessKind::Read, initialized: line(9) },
        F::RegistersNotFenced,
        F::WarpgroupDivergence { come: 3, other: None },
        F::WarpgroupDivergence { come: 1, other: Some(line(40)) },
        F::Registers { has: 24, wanted: 40 },
        F::WarpSplitAtBarriers { waiting: 18, elsewhere: places()[1..2].to_vec() },
        F::WarpSplitAtBarriers { waiting: 1, elsewhere: places()[1..2].to_vec() },
        F::WarpDivergence { operation: WarpOperation::ShuffleDown, mask: u32::MAX, absent: places()[2..].to_vec() },
        F::WarpDivergence { operation: WarpOperation::MmaBf16, mask: u32::MAX, absent: Vec::new() },
        F::LaneNotInMask { operation: WarpOperation::Sync, mask: 0xFFFF_FFDF, lane: 5 },
        F::InactiveLane { operation: WarpOperation::ShuffleIdx, mask: 0xFFFF, lane: 3, source_lane: 20 },
        F::InactiveLane { operation: WarpOperation::ShuffleDown, mask: u32::MAX, lane: 12, source_lane: 16 },
        F::StackOverflow { bytes: 65_536, asked: None },
        F::StackOverflow { bytes: 65_536, asked: Some(256) },
        F::Panic { message: "the len is 3 but the index is 3".into() },
        F::Panic { message: "neither has seen the other".into() },
    ]
}

/// The report of each example, those of one kind together, by the name of the file that has them.
fn reports() -> Vec<(String, String)> {
    let mut reports: Vec<(String, String)> = Vec::new();
    for kind in examples() {
        let file = format!("{}.txt", kind.name().replace(' ', "-"));
        let location = (!HAVE_NO_LINE.contains(&&*file)).then(|| line(23));
        let callers = match &kind {
            FaultKind::Race { other, .. } if !other.callers.is_empty() => vec![line(31), line(45)],
            _ => Vec::new(),
        };
        let old_value = matches!(&kind, FaultKind::Panic { message } if message.contains("neither"))
            .then(|| OldValue { block: thread(2), thread: thread(35), location: line(17), seen: 0, newest: 1 });
        let (block, thread) = (thread(1), Dim3::new(3, 1, 0));
        let fault = Fault { kernel: "multiply", block, thread, location, callers, kind, old_value };
        match reports.iter_mut().find(|(known, _)| *known == file) {
            Some((_, text)) => *text += &format!("\n{fault}\n"),
            None => reports.push((file, format!("{fault}\n"))),
        }
    }
    reports
}

fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/messages")
}

/// Writes the files anew, once, if that is asked for.
fn bless() {
    static BLESSED: Once = Once::new();
    BLESSED.call_once(|| {
        if env::var_os("TILEWRIGHT_BLESS").is_some_and(|value| value == "1") {
            reports().iter().for_each(|(file, report)| fs::write(directory().join(file), report).unwrap());
        }
    });
}

#[test]
fn reports_say_what_they_said_before() {
    bless();
    let mut changed = Vec::new();
    for (file, report) in reports() {
        let path = directory().join(&file);
        let before = fs::read_to_string(&path).unwrap_or_else(|error| format!("({error})"));
        if before != report {
            changed.push(format!("{file} says\n{before}\nand the report is\n{report}"));
        }
    }
    assert!(changed.is_empty(), "if this is as it should be, run with TILEWRIGHT_BLESS=1:\n{}", changed.join("\n"));
}

/// `FaultKind::name` names every kind, or it would not compile; and each of these names is in an example and has a file.
#[test]
fn every_kind_of_fault_has_a_file() {
    bless();
    let (_, function) = KINDS.split_once("pub fn name(&self)").unwrap();
    let (function, _) = function.split_once("\n    }\n").unwrap();
    let names: BTreeSet<String> = function
        .lines()
        .filter_map(|line| line.split_once(" => \"")?.1.strip_suffix("\","))
        .map(|name| format!("{}.txt", name.replace(' ', "-")))
        .collect();
    assert_eq!(names.len(), function.matches(" => ").count(), "two kinds have one name, or a name is not on one line");
    let reported: BTreeSet<String> = reports().into_iter().map(|(file, _)| file).collect();
    assert_eq!(names, reported, "left: the names of kinds; right: those of the examples");
    let files: BTreeSet<String> = fs::read_dir(directory())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|file| file.ends_with(".txt"))
        .collect();
    assert_eq!(names, files, "left: the names of kinds; right: the files");
}

#[test]
fn a_report_has_a_first_line_that_stands_on_its_own_the_place_and_what_to_do() {
    for (file, report) in reports() {
        for fault in report.trim_end().split("\n\n") {
            let lines: Vec<_> = fault.lines().collect();
            assert!(lines[0].starts_with("kernel `multiply`, block (1, 0, 0), thread (3, 1, 0): "), "{file}: {fault}");
            let has_line = lines[1] == "  --> src/kernel.rs:23";
            assert_eq!(has_line, !HAVE_NO_LINE.contains(&&*file), "{file}: {fault}");
            assert!(lines.last().unwrap().starts_with("  help: "), "{file}: {fault}");
        }
    }
}
