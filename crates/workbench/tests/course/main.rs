//! The course: all solutions pass, all puzzles fail as intended, and what a learner does with `cargo tilewright learn`.

mod answers;
#[path = "../repository/mod.rs"]
mod repository;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};

use answers::{ANSWERS, Answer, RIGHT, UNCOMPILABLE};
use repository::target;
use serde_json::Value;

/// Whoever has this builds and runs programs: those of the repository's course and of a learner's are one file in the target directory.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// A program that builds in the target directory of the repository: dependencies are the same.
fn program(program: &str, directory: &Path) -> Command {
    let mut command = Command::new(program);
    command.current_dir(directory).env("CARGO_NET_OFFLINE", "true").env("NO_COLOR", "1");
    command.env("CARGO_TARGET_DIR", target());
    command
}

fn command(name: &str, directory: &Path, arguments: &[&str]) -> Output {
    program(name, directory).args(arguments).output().unwrap()
}

fn cargo(directory: &Path, arguments: &[&str]) -> Output {
    command(&std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned()), directory, arguments)
}

/// `cargo tilewright learn …`
fn learn(directory: &Path, arguments: &[&str]) -> Output {
    command(env!("CARGO_BIN_EXE_cargo-tilewright"), directory, &[&["tilewright", "learn"], arguments].concat())
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn lines(output: &Output) -> Vec<Value> {
    let line = |line: &str| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
    text(&output.stdout).lines().map(line).collect()
}

fn assert_formatted(directory: &Path) {
    let format = cargo(directory, &["fmt", "--all", "--check"]);
    assert!(format.status.success(), "{}{}", text(&format.stdout), text(&format.stderr));
}

#[test]
fn every_solution_passes_and_costs_what_its_puzzle_says() {
    let _alone = alone();
    let course = repository().join("course");
    assert_formatted(&course);
    // With PTX: each kernel compiles for a GPU, and passes what is checked of PTX.
    let output = cargo(&course, &["run", "--locked", "--features", "gpu", "--", "all", "--json"]);
    let messages = text(&output.stderr);
    assert!(!messages.contains("warning"), "{messages}");
    let outcomes = lines(&output);
    assert!(outcomes.len() >= 24, "{messages}");
    for outcome in &outcomes {
        assert_eq!(outcome["passed"], true, "{outcome:#}");
        assert_eq!(outcome["score"], outcome["reference"], "the score of {}", outcome["puzzle"]);
    }
    assert!(output.status.success(), "{messages}");
    // Nothing in a solution that orders threads can be left out: the cases are strong enough to tell.
    let mutants = cargo(&course, &["run", "--quiet", "--locked", "--features", "gpu", "--", "mutants"]);
    let found = text(&mutants.stdout);
    assert!(mutants.status.success() && found.contains("pipeline: 11 of 11 calls"), "{found}{}", text(&mutants.stderr));
    let gpu = cargo(&course, &["run", "--quiet", "--locked", "--features", "gpu", "--", "all", "--gpu"]);
    let message = text(&gpu.stderr);
    let is_refused = gpu.status.code() == Some(2) && message.contains("no GPU runs these kernels: ");
    assert!(gpu.status.success() || is_refused, "{}{message}", text(&gpu.stdout));
}

#[test]
fn every_puzzle_fails_as_intended_and_is_solved_step_by_step() {
    let _alone = alone();
    let place = tempfile::tempdir().unwrap();
    let nowhere = learn(place.path(), &["check"]);
    assert!(nowhere.status.code() == Some(2) && text(&nowhere.stderr).contains("is in no course"), "{nowhere:?}");
    let written = learn(place.path(), &[]);
    assert!(written.status.success() && text(&written.stdout).contains("has 26 puzzles"), "{written:?}");
    let course = place.path().join("tilewright-course");
    assert_eq!(fs::read_dir(place.path()).unwrap().count(), 1, "nothing else is left");
    assert_formatted(&course);

    // As it is written, it compiles without a warning, and each puzzle fails by its own fault.
    let all = learn(&course, &["check", "all", "--json"]);
    let messages = text(&all.stderr);
    assert!(all.status.code() == Some(1) && messages.is_empty(), "{messages}");
    let listed = lines(&learn(&course, &["list", "--json"]));
    let outcomes = lines(&all);
    let names = |values: &[Value], key: &str| values.iter().map(|value| value[key].clone()).collect::<Vec<_>>();
    assert_eq!(names(&listed, "name"), names(&outcomes, "puzzle"));
    assert_eq!(names(&listed, "file"), names(&outcomes, "file"));
    for outcome in &outcomes {
        assert_eq!(outcome["kind"], outcome["fails"], "{outcome:#}");
        assert!(
            outcome["passed"] == false && outcome["meaning"].as_str().is_some_and(|it| it.len() > 40),
            "{outcome:#}"
        );
    }
    assert!(listed.iter().all(|entry| entry["state"] == "open" && entry["hints_shown"] == 0), "{listed:?}");

    // For people: the report, then what it means.
    let check = learn(&course, &["check"]);
    let report = text(&check.stdout);
    let place_of = |what: &str| report.find(what).unwrap_or_else(|| panic!("no {what:?} in {report}"));
    assert!(place_of("element 600 is out of bounds") < place_of("--> kernels/src/p01_axpy.rs:"));
    assert!(place_of("--> kernels") < place_of("more threads than y has elements") && check.status.code() == Some(1));

    // Hints, one more each time.
    let hints = |arguments: &[&str]| {
        lines(&learn(&course, &[&["hint"], arguments].concat()))[0]["hints"].as_array().unwrap().len()
    };
    assert_eq!(
        [hints(&["--json"]), hints(&["axpy", "--json"]), hints(&["1", "--json"]), hints(&["p01", "--json"])],
        [1, 2, 3, 3]
    );
    let unknown = learn(&course, &["hint", "axpi"]);
    assert!(unknown.status.code() == Some(2) && text(&unknown.stderr).contains("did you mean `axpy`"), "{unknown:?}");

    // What does not compile: rustc's message, for the right file and line, once.
    let file = course.join("kernels/src/p01_axpy.rs");
    let unsolved = fs::read_to_string(&file).unwrap();
    fs::write(&file, unsolved.replace("math::fma(", "math::fmb(")).unwrap();
    let broken = learn(&course, &["check", "axpy"]);
    let messages = text(&broken.stderr);
    assert!(broken.status.code() == Some(2) && messages.contains("does not compile"), "{messages}");
    assert!(
        messages.matches("cannot find function `fmb`").count() == 1 && messages.contains("kernels/src/p01_axpy.rs:"),
        "{messages}"
    );

    // Solved, and noted as long as the file is what passed.
    let solved = fs::read_to_string(repository().join("course/kernels/src/p01_axpy.rs")).unwrap();
    fs::write(&file, &solved).unwrap();
    let check = learn(&course, &["check"]);
    let report = text(&check.stdout);
    assert!(
        check.status.success() && report.contains("axpy: solved") && report.contains("Next: 2. off-by-one"),
        "{report}"
    );
    assert!(report.contains("sectors of global memory"), "{report}");
    let state = || lines(&learn(&course, &["--json"]))[0]["state"].as_str().unwrap().to_owned();
    assert_eq!(state(), "solved");
    fs::write(&file, format!("{solved}\n")).unwrap();
    assert_eq!(state(), "changed");
    fs::remove_file(&file).unwrap();
    assert_eq!(state(), "missing");
    fs::write(&file, &solved).unwrap();
    assert_eq!(state(), "solved");

    // A reset keeps what there was.
    let reset = learn(&course, &["reset", "axpy", "--json"]);
    assert_eq!(lines(&reset)[0]["backup"], "backups/p01_axpy-1.rs");
    assert_eq!(fs::read_to_string(course.join("backups/p01_axpy-1.rs")).unwrap(), solved);
    assert_eq!(fs::read_to_string(&file).unwrap(), unsolved);

    // Progress that cannot be read is told, and left alone.
    let progress = course.join("progress.json");
    fs::write(&progress, "{").unwrap();
    let list = learn(&course, &["list"]);
    assert!(list.status.success() && text(&list.stderr).contains("is no JSON"), "{list:?}");
    let hint = learn(&course, &["hint", "axpy"]);
    assert!(hint.status.code() == Some(2) && text(&hint.stderr).contains("remove it"), "{hint:?}");
    assert_eq!(fs::read_to_string(&progress).unwrap(), "{");

    // What is there is left alone.
    let again = learn(place.path(), &[]);
    assert!(again.status.code() == Some(2) && text(&again.stderr).contains("is not empty"), "{again:?}");
    let gpu = cargo(&course, &["run", "--quiet", "--", "axpy", "--gpu"]);
    assert!(gpu.status.code() == Some(2) && text(&gpu.stderr).contains("--features gpu"), "{gpu:?}");

    // Without a driver nothing is built for a GPU: PTX of all kernels takes a minute.
    let mut without_driver = program(env!("CARGO_BIN_EXE_cargo-tilewright"), &course);
    without_driver.args(["tilewright", "learn", "check", "axpy", "--gpu"]);
    let refused = without_driver.env("TILEWRIGHT_LIBCUDA", "/no/such/library").env("CARGO", "/no/cargo").output();
    let refused = refused.unwrap();
    assert!(refused.status.code() == Some(2) && text(&refused.stderr).contains("no NVIDIA driver"), "{refused:?}");

    // A warning is told once, and the program's output is nothing but what it prints.
    fs::write(&file, unsolved.replace("let i = thread", "let unused = 0;\n    let i = thread")).unwrap();
    let warned = learn(&course, &["check", "axpy"]);
    let messages = text(&warned.stderr);
    assert!(messages.matches("unused variable").count() == 1 && !messages.contains("Compiling"), "{messages}");
}

#[test]
fn what_prints_into_a_closed_pipe_ends() {
    let place = tempfile::tempdir().unwrap();
    assert!(learn(place.path(), &[]).status.success());
    let course = place.path().join("tilewright-course");
    for task in [&["list"][..], &["hint", "axpy"]] {
        let mut command = program(env!("CARGO_BIN_EXE_cargo-tilewright"), &course);
        command.args(["tilewright", "learn"]).args(task).stderr(Stdio::piped());
        // The reader is gone before anything is printed.
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = command.stdout(writer).output().unwrap();
        assert!(!output.status.success() && output.stderr.is_empty(), "{task:?}: {output:?}");
    }
}

#[test]
fn every_answer_comes_to_what_it_has_to() {
    let _alone = alone();
    let place = tempfile::tempdir().unwrap();
    assert!(learn(place.path(), &[]).status.success());
    let course = place.path().join("tilewright-course");
    let solutions: BTreeMap<String, (PathBuf, String)> = lines(&learn(&course, &["list", "--json"]))
        .iter()
        .map(|entry| {
            let file = Path::new(entry["file"].as_str().unwrap());
            let text = fs::read_to_string(repository().join("course").join(file)).unwrap();
            // As a learner would have it: without marks.
            let is_kept = |line: &&str| !["//@", "//|"].iter().any(|mark| line.trim_start().starts_with(mark));
            let text = text.lines().filter(is_kept).map(|line| format!("{line}\n")).collect();
            (entry["name"].as_str().unwrap().to_owned(), (course.join(file), text))
        })
        .collect();
    let write = |answer: &Answer| {
        let (file, text) = &solutions[answer.puzzle];
        let edited = answer.edits.iter().fold(text.clone(), |text, (from, to)| {
            assert_eq!(text.matches(from).count(), 1, "{}, {}: {from:?}", answer.puzzle, answer.idea);
            text.replace(from, to)
        });
        fs::write(file, edited).unwrap();
    };
    let solve_all = || solutions.values().for_each(|(file, text)| fs::write(file, text).unwrap());
    for (name, _) in solutions.iter().filter(|(_, (file, _))| file_number(file) >= 12) {
        let wrong = ANSWERS.iter().filter(|answer| answer.puzzle == name && answer.outcome != RIGHT).count();
        assert!(wrong >= 3, "{name}: {wrong} wrong answers are tried");
    }
    // One build for an answer to each of several puzzles.
    let mut rounds: Vec<Vec<&Answer>> = Vec::new();
    for answer in ANSWERS {
        let is_free = |round: &&mut Vec<&Answer>| round.iter().all(|other| other.puzzle != answer.puzzle);
        match rounds.iter_mut().find(is_free) {
            Some(round) => round.push(answer),
            None => rounds.push(vec![answer]),
        }
    }
    let mut wrong = Vec::new();
    for round in &rounds {
        solve_all();
        round.iter().for_each(|answer| write(answer));
        let output = learn(&course, &["check", "all", "--json"]);
        let outcomes = lines(&output);
        assert_eq!(outcomes.len(), solutions.len(), "{}", text(&output.stderr));
        for outcome in &outcomes {
            let answer = round.iter().find(|answer| outcome["puzzle"] == answer.puzzle);
            let expected = answer.map_or(RIGHT, |answer| answer.outcome);
            let found = if outcome["passed"] == true { RIGHT } else { outcome["kind"].as_str().unwrap_or_default() };
            if found != expected {
                let idea = answer.map_or("the solution", |answer| answer.idea);
                wrong.push(format!("{}, {idea}: {expected} expected, {found} found\n{outcome:#}", outcome["puzzle"]));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
    let (message, answer) = UNCOMPILABLE;
    solve_all();
    write(&answer);
    let refused = learn(&course, &["check", answer.puzzle]);
    assert!(refused.status.code() == Some(2) && text(&refused.stderr).contains(message), "{refused:?}");
}

/// The number of a puzzle, from the name of its file: `p12_block_sum.rs`.
fn file_number(file: &Path) -> usize {
    let name = file.file_name().and_then(|name| name.to_str()).unwrap();
    name[1..3].parse().unwrap()
}
