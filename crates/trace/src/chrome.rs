//! A trace in the format of Chrome's tracing, which <https://ui.perfetto.dev> shows.
//!
//! A step takes a microsecond: the executor knows an order, and no time. Each block is a process, each warp a thread of it. Waits are spans
//! of their warps, from the step that comes to the barrier to the one that goes on; transfers and phases are asynchronous spans.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::{Barrier, Block, Kind, Step, Summary, Trace, replay};

/// The thread of what is made by no warp: TMA, and barriers.
const OTHERS: usize = 0;

pub(crate) fn chrome(trace: &Trace) -> String {
    let mut events = Vec::new();
    for (process, block) in trace.blocks.iter().enumerate() {
        of_block(trace, block, process, &mut events);
    }
    let other = json!({
        "format": trace.format, "version": trace.version, "operation": trace.operation, "sizes": trace.sizes,
        "unit": "a microsecond is a step: an order, and no time",
    });
    // An event on each line.
    let events: Vec<_> = events.iter().map(Value::to_string).collect();
    format!("{{\"displayTimeUnit\":\"ms\",\"otherData\":{other},\"traceEvents\":[\n{}\n]}}\n", events.join(",\n"))
}

fn of_block(trace: &Trace, block: &Block, process: usize, events: &mut Vec<Value>) {
    let summary = Summary::of(block);
    let [x, y, z] = block.block;
    let name = |of: &str, thread: usize, name: String| json!({"ph": "M", "name": of, "pid": process, "tid": thread, "args": {"name": name}});
    events.push(name("process_name", 0, format!("{} block ({x}, {y}, {z})", trace.kernel)));
    events.push(name("thread_name", OTHERS, "TMA and barriers".to_owned()));
    for warp in 0..trace.warps() {
        let role = summary.role(warp).map_or("", |role| role.name.as_str());
        events.push(name("thread_name", warp + 1, format!("warp {warp}: {role}")));
    }
    // Where each warp began to wait, and where phases and transfers began.
    let mut waits: BTreeMap<usize, &Step> = BTreeMap::new();
    let mut phases: BTreeMap<(Barrier, u64), u64> = BTreeMap::new();
    let mut transfers: BTreeMap<u64, &Step> = BTreeMap::new();
    let last = block.steps.last().map_or(0, |step| step.step);
    let span = |warp: usize, wait: &Step, end: u64| {
        let barrier = wait.barrier.map_or("wait".to_owned(), |barrier| format!("wait: {barrier}"));
        let args = json!({"phase": wait.phase, "line": trace.place(wait.place)});
        json!({"ph": "X", "cat": "wait", "name": barrier, "pid": process, "tid": warp + 1, "ts": wait.step,
               "dur": end - wait.step, "args": args})
    };
    let asynchronous = |category: &str, name: &str, id: String, begin: u64, end: u64, args: Value| {
        let event = |phase: &str, at: u64| json!({"ph": phase, "cat": category, "name": name, "id": id, "pid": process, "tid": OTHERS, "ts": at, "args": args});
        [event("b", begin), event("e", end)]
    };
    for step in &block.steps {
        let (at, thread) = (step.step, step.warp.map_or(OTHERS, |warp| warp + 1));
        if let (Some(barrier), Some(phase), false) = (step.barrier, step.phase, step.kind == Kind::Passed) {
            let begin = *phases.entry((barrier, phase)).or_insert(at);
            if step.kind == Kind::Complete {
                let (name, id) = (format!("{barrier}: phase"), format!("{process} {barrier} {phase}"));
                events.extend(asynchronous("phase", &name, id, begin, at, json!({"phase": phase})));
            }
        }
        match (step.kind, step.warp, step.transfer) {
            (Kind::Wait, Some(warp), _) => {
                // Lanes of a warp may come one after the other: the first of them begins the span.
                waits.entry(warp).or_insert(step);
                continue;
            }
            (Kind::Passed | Kind::RegistersAcquired, Some(warp), _) => {
                if let Some(wait) = waits.remove(&warp) {
                    events.push(span(warp, wait, at));
                }
                continue;
            }
            (Kind::TmaLoad, _, Some(transfer)) => {
                transfers.insert(transfer, step);
            }
            (Kind::TmaLoaded, _, Some(transfer)) => {
                if let Some(load) = transfers.remove(&transfer) {
                    let args =
                        json!({"bytes": load.bytes, "what": block.detail(load), "line": trace.place(load.place)});
                    events.extend(asynchronous(
                        "TMA",
                        "TMA load",
                        format!("{process} TMA {transfer}"),
                        load.step,
                        at,
                        args,
                    ));
                }
            }
            (Kind::Complete, ..) => continue,
            _ => {}
        }
        let args =
            json!({"what": block.detail(step), "line": trace.place(step.place), "from": trace.place(step.caller)});
        events
            .push(json!({"ph": "X", "cat": "step", "name": step.kind.name(), "pid": process, "tid": thread, "ts": at,
                           "dur": 1, "args": args}));
    }
    // What never came to its end goes on to the end of the trace.
    events.extend(waits.into_iter().map(|(warp, wait)| span(warp, wait, last + 1)));
    for (transfer, load) in transfers {
        let args = json!({"bytes": load.bytes, "what": block.detail(load)});
        events.extend(asynchronous(
            "TMA",
            "TMA load that is not awaited",
            format!("{process} TMA {transfer}"),
            load.step,
            last + 1,
            args,
        ));
    }
    for (at, bytes, full) in replay::counters(block, &summary) {
        let counter = |name: &str, value: u64| json!({"ph": "C", "name": name, "pid": process, "ts": at, "args": {"value": value}});
        events.push(counter("bytes in flight", bytes));
        events.push(counter("filled stages", full as u64));
    }
}
