//! Command lines, and what comes of them.

use super::*;
use crate::testing::{Halved, SumTooEarly, Twice};

fn run(line: &str) -> Result<bool, Error> {
    let words = ["program"].into_iter().chain(line.split(' ').filter(|word| !word.is_empty()));
    let arguments = Arguments::try_parse_from(words).unwrap_or_else(|error| panic!("{line}: {error}"));
    Program { operations: &[&Twice { wrong: false }, &Halved], kernel_sets: &[], planted: &[] }.run(arguments.task)
}

#[test]
fn every_task_runs_on_the_executor() {
    for line in [
        "",
        "list",
        "list --json",
        "list --markdown",
        "check --json",
        "check --op twice --device cpu --seed 9",
        "check --op twice --sizes n=77 --schedules 4 --schedule-seed 18446744073709551615 --trace-values",
        "run --op halved",
        "run --op twice --trace-values",
        "check --trace-values --json",
        "run --op twice --sizes n=77 --seed 3 --json",
        "mutants --kernel halves",
        "agreement --device cpu --seeds 1",
        "cost",
        "cost --op twice --sizes n=77 --json",
        "trace",
        "trace --kernel halves --sizes n=77 --block 2 --block 1,0,0 --schedule-seed 3 --format json",
        "trace --op twice --format html",
        "trace --op twice --format chrome --limit 2",
        "bench --op twice --runs 3 --json --sizes n=100",
    ] {
        assert!(run(line).unwrap_or_else(|error| panic!("{line}: {error}")), "{line}");
    }
}

#[test]
fn what_is_unknown_is_said_with_what_there_is() {
    let message = |line: &str| run(line).unwrap_err().to_string();
    assert!(message("run --op twise").contains("`twise` (did you mean `twice` or `halved`?)"));
    assert!(message("check --kernel doubled").contains("(did you mean `doubles` or `halves`?)"));
    assert!(message("run --op twice --sizes m=3").contains("has no size `m` (did you mean `n`?)"));
    assert!(!run("check --sizes m=3").unwrap(), "said of each operation");
    assert!(message("check --device gpu").contains("there is no device `gpu`"));
    assert_eq!(["cpu", "cuda", "cuda:3", "4"].map(|it| device_of(it).unwrap()), [None, Some(0), Some(3), Some(4)]);
    assert!(message("check --device cuda:-1").contains("there is no device `cuda:-1`"));
    assert!(message("agreement").contains("needs a GPU"));
    assert!(message("sanitize --op twise").contains("(did you mean `twice`"));
    assert!(message("sanitize --kernel doubled").contains("(did you mean `doubles`"));
    assert!(message("cost --ncu --device cpu").contains("come without `--ncu`"));
    assert!(message("cost --ncu --op halved").contains("this program has no kernel sets"));
    assert!(message("trace --op twice --block 9,0,0").contains("there is no block (9, 0, 0)"));
    assert!(message("trace --op twice --launch 1").contains("no launch 1, counted from 0, of any kernel"));
    assert!(message("trace --kernel halfs").contains("(did you mean `halves`"));
    assert!(message("cost --launch-on cpu").contains("there is no device `cpu`"));
    assert!(message("sanitize --device cpu").contains("`check` looks for the same"));
    assert!(message("sanitize").contains("`sanitize` needs a GPU with kernels of this program: this program has no"));
    let refused = Arguments::try_parse_from(["program", "sanitize", "--tool", "memchek"]).err().unwrap();
    assert!(refused.to_string().contains("there is no tool `memchek` (did you mean `memcheck`"), "{refused}");
    assert!(!run("bench --op twice --runs 0").unwrap(), "said, and not passed");
}

#[test]
fn one_wrong_operation_fails_the_program_and_the_others_have_their_turn() {
    let program = Program { operations: &[&Twice { wrong: true }, &Halved], kernel_sets: &[], planted: &[] };
    for line in ["check", "run --op twice", "bench"] {
        let task = Arguments::try_parse_from(["program"].into_iter().chain(line.split(' '))).unwrap().task;
        assert!(!program.run(task).unwrap(), "{line}");
    }
}

/// What is said of the operation whose fault only some orders of blocks show, and the same command line as the words of a program.
fn with_schedules(first: u64, count: u64) -> Report {
    let sizes = SumTooEarly.describe().parse_sizes("n=5").unwrap();
    check_schedules(&SumTooEarly, vec![sizes], 1, Schedules { first, count }).unwrap()
}

fn of_sum_too_early(line: &str) -> bool {
    let arguments = Arguments::try_parse_from(["program"].into_iter().chain(line.split(' '))).unwrap();
    let program = Program { operations: &[&SumTooEarly], kernel_sets: &[], planted: &[] };
    program.run(arguments.task).unwrap()
}

#[test]
fn what_only_some_schedules_show_is_found_and_found_again_by_the_line_that_is_printed() {
    // By these three it is not found.
    let hidden = (0..100).find(|&first| with_schedules(first, 3).holds()).expect("some orders do not show it");
    let report = with_schedules(hidden, 100).to_string();
    let again = report.lines().find_map(|line| line.trim().strip_prefix("again: ")).expect("some orders show it");
    let (line, seed) = again.rsplit_once(" --schedule-seed ").unwrap_or_else(|| panic!("{report}"));
    assert_eq!(line, "check --op sum-too-early --sizes n=5 --seed 1 --device cpu");
    let failing = with_schedules(seed.parse().unwrap(), 1).to_string();
    let fault = |report: &str| report.lines().nth(1).map(str::to_owned);
    assert!(fault(&report).is_some_and(|line| line.contains("a race")), "{report}");
    assert_eq!(fault(&failing), fault(&report), "the same kernel, blocks and elements");

    for task in ["check", "run"] {
        let wanted = format!("{task} --op sum-too-early --sizes n=5 --seed 1 --device cpu");
        assert!(of_sum_too_early(&format!("{wanted} --schedule-seed {hidden}")), "{wanted}");
        assert!(!of_sum_too_early(&format!("{wanted} --schedule-seed {hidden} --schedules 100")), "{wanted}");
        assert!(!of_sum_too_early(&again.replacen("check", task, 1)), "{again}");
    }
}

/// Runs beyond the schedules that were asked for show whether bits are the same. Where they are not, all checks have a look.
#[test]
fn a_schedule_that_gives_other_bits_is_run_again_with_all_checks() {
    let shows = |seed: u64| !with_schedules(seed, 3).holds() && !with_schedules(seed, 1).holds();
    let before = (0..100).find(|&first| {
        let report = with_schedules(first, 1);
        report.cases[0].schedules.is_some_and(|again| again.first == first + 1)
    });
    let before = before.expect("an order that does not show it, before one that does");
    assert!(shows(before + 1) && with_schedules(before, 1).to_string().contains("a race"));
}

#[test]
fn schedules_are_of_the_executor() {
    let refused = Arguments::try_parse_from(["program", "check", "--schedules", "0"]).err().unwrap().to_string();
    assert!(refused.contains("0 is not in 1.."), "{refused}");
    let gpu = Error::SchedulesOnGpu { device: "NVIDIA H200".to_owned() }.to_string();
    assert!(gpu.contains("`NVIDIA H200` is one: leave out `--schedules`"), "{gpu}");
    assert!(Orders::default().require_executor(&Device::cpu(Checks::Bounds)).is_ok());
}
