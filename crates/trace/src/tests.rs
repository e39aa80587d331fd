//! A block of three warps: a producer with TMA, a consumer, and one that waits forever.

use std::collections::BTreeMap;

use super::replay::{Held, State, Touch, map};
use super::*;

/// Two fills of one stage: the barrier at byte 128 is told of bytes, that at byte 136 of what has been read.
pub(crate) fn example() -> Trace {
    let mut steps: Vec<Step> = Vec::new();
    let mut add = |kind, warp: Option<usize>, change: &dyn Fn(Step) -> Step| {
        let step = Step::new(steps.len() as u64 + 1, kind, warp);
        steps.push(change(Step { place: warp, ..step }));
    };
    let (full, empty) = (Barrier::Mbarrier(128), Barrier::Mbarrier(136));
    let at = |barrier, phase| move |step: Step| Step { barrier: Some(barrier), phase: Some(phase), ..step };
    let shared = |step: Step| Step { memory: Some(Memory::Shared(0)), ranges: vec![[0, 128]], bytes: 128, ..step };
    for fill in 0..2 {
        if fill > 0 {
            add(Kind::Wait, Some(0), &at(empty, 0));
            add(Kind::Passed, Some(0), &at(empty, 0));
        }
        add(Kind::Arrive, Some(0), &|step| Step {
            lanes: 1,
            bytes: 128,
            text: "expects bytes".into(),
            ..at(full, fill)(step)
        });
        add(Kind::TmaLoad, Some(0), &|step| Step {
            lanes: 1,
            transfer: Some(fill),
            barrier: Some(full),
            ..shared(step)
        });
        add(Kind::Wait, Some(1), &at(full, fill));
        add(Kind::TmaLoaded, None, &|step| Step {
            by: "TMA".into(),
            transfer: Some(fill),
            barrier: Some(full),
            ..shared(step)
        });
        add(Kind::Complete, None, &|step| Step { by: "block".into(), ..at(full, fill)(step) });
        add(Kind::Passed, Some(1), &at(full, fill));
        add(Kind::Wgmma, Some(1), &shared);
        add(Kind::Arrive, Some(1), &|step| Step { lanes: 1, ..at(empty, fill)(step) });
        add(Kind::Complete, Some(1), &|step| Step { lanes: 1, ..at(empty, fill)(step) });
    }
    add(Kind::End, Some(0), &|step| step);
    add(Kind::Wait, Some(2), &at(full, 2));
    add(Kind::Fault, Some(2), &|step| Step {
        text: "kernel `k`: it waits <forever> & ever\n  --> k.rs:9".into(),
        ..step
    });
    let block = Block {
        block: [0; 3],
        views: vec![View { name: "x".into(), element_bytes: 4, bytes: 512 }],
        arrays: vec![Array { name: "the dynamic shared memory".into(), bytes: 144 }],
        steps,
        more: 7,
        fault: Some("kernel `k`: it waits <forever> & ever\n  --> k.rs:9".into()),
        left: vec![Left { warp: 2, threads: 32, place: Some(2), waits: "waits for phase 2".into() }],
    };
    Trace {
        format: FORMAT.into(),
        version: VERSION,
        operation: "example".into(),
        sizes: "n=2".into(),
        seed: 1,
        schedule_seed: 0,
        kernel: "k".into(),
        grid: [1; 3],
        block: [96, 1, 1],
        cluster: [1; 3],
        error: None,
        places: ["k.rs:1", "k.rs:2", "k.rs:3"].map(String::from).into(),
        blocks: vec![block],
    }
}

#[test]
fn a_trace_is_read_as_it_was_written_and_another_version_says_so() {
    let trace = example();
    let json = trace.to_json();
    assert_eq!(Trace::from_json(&json).unwrap(), trace);
    // A step on a line.
    assert!(json.lines().count() > trace.blocks[0].steps.len());
    let other = json.replacen("\"version\":1", "\"version\":2", 1);
    let message = Trace::from_json(&other).unwrap_err().to_string();
    assert!(message.contains("version 2") && message.contains("reads version 1"), "{message}");
    let message = Trace::from_json("{\"format\":\"results\",\"version\":1}").unwrap_err().to_string();
    assert!(message.contains("its format is `results`"), "{message}");
    assert!(Trace::from_json("[1]").is_err() && Trace::from_json("").is_err());
    // What is in a string is no structure.
    let mut odd = example();
    odd.blocks[0].steps[0].text = "a \\\" ,{ [{ b\\".into();
    assert_eq!(Trace::from_json(&odd.to_json()).unwrap(), odd);
}

/// With `TILEWRIGHT_BLESS=1` the file is written anew.
#[test]
fn the_trace_of_the_documentations_examples_is_this_one() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/src/example.json");
    if std::env::var_os("TILEWRIGHT_BLESS").is_some() {
        std::fs::write(path, example().to_json()).unwrap();
    }
    assert_eq!(std::fs::read_to_string(path).unwrap(), example().to_json());
}

#[test]
fn every_kind_has_its_name() {
    for name in ["tma-loaded", "mbarrier-init", "registers-acquired", "ldmatrix"] {
        assert_eq!(Kind::of_name(name).unwrap().name(), name);
    }
    assert_eq!(Kind::of_name("tma"), None);
}

#[test]
fn roles_storage_handoffs_and_lifetimes_follow_from_the_steps() {
    let trace = example();
    let summary = Summary::of(&trace.blocks[0]);
    let roles: Vec<_> = summary.roles.iter().map(|role| (role.name.as_str(), &role.warps[..])).collect();
    assert_eq!(roles, [("producer", &[0][..]), ("consumer", &[1]), ("idle", &[2])]);
    assert!(summary.is_specialized());
    let [stage] = &summary.stages[..] else { panic!("{:?}", summary.stages) };
    assert_eq!((stage.bytes(), stage.barrier), (128, Some(Barrier::Mbarrier(128))));
    let fill = |issued, there, read| Fill { issued, there: Some(there), read: Some((read, read)) };
    assert_eq!(stage.fills, [fill(2, 5, 7), fill(13, 16, 18)]);
    let [storage] = &summary.storage[..] else { panic!("{:?}", summary.storage) };
    assert_eq!(
        (&storage.written_by[..], &storage.read_by[..]),
        (&["TMA".to_owned()][..], &["consumer by wgmma".to_owned()][..])
    );
    let [full, empty] = &summary.handoffs[..] else { panic!("{:?}", summary.handoffs) };
    let counts = |role: &str, count| BTreeMap::from([(role.to_owned(), count)]);
    assert_eq!((&full.arrivals, full.phases, full.bytes), (&counts("producer", 2), 2, 256));
    assert_eq!((&empty.arrivals, &empty.waits), (&counts("consumer", 2), &counts("producer", 1)));
    assert_eq!(full.waits["idle"], 1);
}

#[test]
fn a_replay_knows_who_waits_and_what_is_in_flight() {
    let trace = example();
    let (block, summary) = (&trace.blocks[0], Summary::of(&trace.blocks[0]));
    let after = |count| State::after(block, &summary, trace.warps(), count);
    let full = Barrier::Mbarrier(128);
    assert_eq!(after(0).stages, [Held::Nothing]);
    let waits = after(3);
    assert_eq!(waits.warps[1].waits, Some((full, Some(0))));
    assert_eq!(
        (waits.in_flight.len(), waits.barriers[&full].bytes, &waits.barriers[&full].waiting),
        (1, 128, &vec![1])
    );
    assert_eq!(waits.stages, [Held::Filling]);
    let there = after(6);
    assert_eq!((there.in_flight.len(), there.barriers[&full].bytes, there.barriers[&full].phase), (0, 0, 1));
    assert!(there.warps[1].waits.is_none() && there.barriers[&full].waiting.is_empty());
    assert_eq!((there.stages[0], after(7).stages[0]), (Held::Full, Held::Used));
    let end = after(usize::MAX);
    assert!(end.warps[0].has_ended && end.warps[2].waits == Some((full, Some(2))));
    assert_eq!(map(block, 0, 9, 2), [[Touch::InFlight; 8].as_slice(), &[Touch::Nothing]].concat());
    assert_eq!(map(block, 0, 9, 7)[0], Touch::Read);
    assert!(map(block, 5, 4, 99).iter().all(|touch| *touch == Touch::Nothing));
}

#[test]
fn text_has_the_tables_and_each_step() {
    let text = example().to_text();
    for wanted in [
        "kernel         k",
        "7 more of single threads are not kept",
        "producer  0      issues TMA loads",
        "mbarrier at byte 128  producer 2, TMA 256 bytes  consumer 2, idle 1  2",
        "stage 0: 0..128  0     2       5      7 to 7",
        "warp 2  32       waits for phase 2  k.rs:3",
        "--> k.rs:9",
    ] {
        assert!(text.contains(wanted), "{wanted:?} is missing in\n{text}");
    }
    assert!(
        text.lines()
            .any(|line| line.contains("warp 0 lane 0")
                && line.contains("128 bytes of the dynamic shared memory [0..128]"))
    );
}

#[test]
fn chrome_has_a_row_for_each_warp_and_spans_that_end() {
    let value: serde_json::Value = serde_json::from_str(&example().to_chrome()).unwrap();
    let events = value["traceEvents"].as_array().unwrap();
    let of = |phase: &'static str| events.iter().filter(move |event| event["ph"] == phase);
    let names: Vec<_> = of("M").filter_map(|event| event["args"]["name"].as_str()).collect();
    assert_eq!(
        names,
        ["k block (0, 0, 0)", "TMA and barriers", "warp 0: producer", "warp 1: consumer", "warp 2: idle"]
    );
    // Two transfers and four phases, each with its end.
    assert_eq!((of("b").count(), of("e").count()), (6, 6));
    for begin in of("b") {
        let end = of("e").find(|end| end["id"] == begin["id"] && end["cat"] == begin["cat"]).unwrap();
        assert!(end["ts"].as_u64() >= begin["ts"].as_u64());
    }
    let waits: Vec<_> = of("X").filter(|event| event["cat"] == "wait").collect();
    assert_eq!(waits.len(), 4);
    // That which never ends goes to the end.
    assert!(waits.iter().any(|wait| wait["tid"] == 3));
    assert!(of("C").any(|event| event["name"] == "bytes in flight" && event["args"]["value"] == 128));
    assert!(of("C").any(|event| event["name"] == "filled stages" && event["args"]["value"] == 1));
}

#[test]
fn the_page_has_everything_without_javascript() {
    let page = example().to_html();
    for wanted in [
        "<caption>Roles</caption>",
        "<caption>Hand-offs</caption>",
        "<caption>Steps</caption>",
        "class=\"timeline\"",
        "prefers-color-scheme: dark",
        "it waits &lt;forever&gt; &amp; ever",
    ] {
        assert!(page.contains(wanted), "{wanted}");
    }
    assert!(!page.contains("<forever>"));
    // Nothing from elsewhere.
    assert!(!page.contains("http:") && !page.contains("https:") && !page.contains("src="));
    let count = |text: &str| page.matches(text).count();
    assert_eq!(
        (count("<table"), count("<section"), count("<svg")),
        (count("</table>"), count("</section>"), count("</svg>"))
    );
    assert_eq!(count("<tr id="), example().blocks[0].steps.len());
    // Two loads, and four waits, of which one never ends.
    assert_eq!((count("class=\"transfer\""), count("class=\"wait\"")), (2, 4));
}

#[test]
fn a_trace_says_the_same_wherever_it_was_recorded() {
    let at = |directory: &str| {
        let mut trace = example();
        trace.places.iter_mut().for_each(|place| place.insert_str(0, directory));
        trace.blocks[0].fault = Some(format!("it waits\n  --> {directory}k.rs:9"));
        trace
    };
    let shortened = at("/home/somebody/mine/").relative_to(Path::new("/home/somebody/mine"));
    assert_eq!(shortened, at(""));
    // What is elsewhere keeps its whole path.
    assert_eq!(at("/opt/").relative_to(Path::new("/home")), at("/opt/"));
}
