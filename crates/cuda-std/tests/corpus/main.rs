//! A corpus of small kernels after published patterns, each right, and with the mistakes that are made in it: what the checker finds,
//! with class and lines, and what it does not find.
//!
//! Each kernel takes a number: with 0 it is right, with another one it has that mistake. Each runs with [`SCHEDULES`] seeds, which decide
//! in what order blocks that can wait for one another take turns. The tables of `docs/book/src/checker.md` come from here: with
//! `TILEWRIGHT_BLESS=1` they are written anew.

#![allow(clippy::undocumented_unsafe_blocks, reason = "many of these kernels break the contracts on purpose")]

extern crate tilewright_cuda_std as cuda_std;

mod barriers;
mod bounds;
mod clusters;
#[path = "../common/mod.rs"]
mod common;
mod copies;
mod global;
mod handed_over;
mod litmus;
mod lock_free;
mod locks;
mod matches;
mod orders;
mod pattern;
mod products;
mod rounds;
mod several;
mod shared;
mod stages;
mod tables;
mod votes;
mod waits;
mod warps;
mod whole_grids;
mod widths;

use cuda_std::executor::{Checks, Executor};

use pattern::{Expected, Family};

/// How many orders of blocks each kernel runs in.
const SCHEDULES: u64 = 20;

const FAMILIES: &[Family] = &[
    shared::FAMILY,
    warps::FAMILY,
    matches::FAMILY,
    barriers::FAMILY,
    votes::FAMILY,
    global::FAMILY,
    orders::FAMILY,
    handed_over::FAMILY,
    several::FAMILY,
    litmus::FAMILY,
    locks::FAMILY,
    lock_free::FAMILY,
    widths::FAMILY,
    rounds::FAMILY,
    stages::FAMILY,
    whole_grids::FAMILY,
    clusters::FAMILY,
    waits::FAMILY,
    bounds::FAMILY,
    copies::FAMILY,
    products::FAMILY,
];

/// Executors for all schedules.
fn executors() -> Vec<Executor> {
    let executor = Executor::new(Checks::Full);
    (0..SCHEDULES).map(|seed| executor.clone().schedule(seed)).collect()
}

#[test]
fn right_kernels_are_not_reported() {
    let (executors, mut false_reports, mut kernels) = (executors(), Vec::new(), 0);
    for pattern in FAMILIES.iter().flat_map(|family| family.patterns) {
        kernels += 1;
        for (seed, executor) in executors.iter().enumerate() {
            if let Err(report) = (pattern.run)(0, executor) {
                false_reports.push(format!("{}, schedule {seed}: {report}", pattern.name));
                break;
            }
        }
    }
    assert!(false_reports.is_empty(), "{}", false_reports.join("\n\n"));
    assert!(kernels >= 60, "{kernels} right kernels");
}

#[test]
fn mistakes_are_found_with_their_class_and_lines() {
    let (executors, mut wrong, mut all, mut recalled) = (executors(), Vec::new(), 0, 0);
    for family in FAMILIES {
        for pattern in family.patterns {
            for (number, mistake) in (1..).zip(pattern.mistakes) {
                all += 1;
                // In how many orders it is found.
                let mut times = 0;
                let mut found = executors.iter().enumerate().try_for_each(|(seed, executor)| {
                    match ((pattern.run)(number, executor), &mistake.expected) {
                        (Err(report), Expected::Found { .. } | Expected::Sometimes { .. }) => {
                            times += 1;
                            mistake
                                .compare(family.source, &report)
                                .map_err(|difference| format!("schedule {seed}: {difference}"))
                        }
                        (Ok(()), Expected::Missed { .. } | Expected::Sometimes { .. }) => Ok(()),
                        (Ok(()), Expected::Found { kind, .. }) => Err(format!("schedule {seed}: no `{kind}` is found")),
                        (Err(report), Expected::Missed { .. }) => {
                            Err(format!("schedule {seed}: is found now, so say so here: {report}"))
                        }
                    }
                });
                if found.is_ok() && mistake.is_found() && times == 0 {
                    found = Err("is found in no order".to_owned());
                }
                if found.is_ok() && matches!(mistake.expected, Expected::Sometimes { .. }) && times == executors.len() {
                    found = Err("is found in all orders now, so say so here".to_owned());
                }
                match found {
                    Ok(()) => recalled += usize::from(mistake.is_found()),
                    Err(difference) => wrong.push(format!("{}, {}: {difference}", pattern.name, mistake.what)),
                }
            }
        }
    }
    println!("{}", tables::by_class(FAMILIES));
    println!("{recalled} of {all} mistakes are found");
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
    assert!(all >= 60, "{all} mistakes");
    assert!(recalled as f64 >= 0.95 * all as f64, "{recalled} of {all} mistakes are found");
}

#[test]
fn the_documents_say_what_is_found_and_what_is_not() {
    let differences = tables::compare_documents(FAMILIES, SCHEDULES);
    assert!(
        differences.is_empty(),
        "if this is as it should be, run with TILEWRIGHT_BLESS=1:\n{}",
        differences.join("\n\n")
    );
}

/// A mark that no mistake names, and a name that two kernels have, are mistakes of the corpus itself.
#[test]
fn kernels_have_names_of_their_own_and_marks_are_used() {
    let mut names: Vec<_> = FAMILIES.iter().flat_map(|family| family.patterns).map(|pattern| pattern.name).collect();
    names.sort_unstable();
    let count = names.len();
    names.dedup();
    assert_eq!(names.len(), count, "two kernels have one name");
    for family in FAMILIES {
        let used: Vec<_> = family
            .patterns
            .iter()
            .flat_map(|pattern| pattern.mistakes)
            .flat_map(|mistake| match mistake.expected {
                Expected::Found { marks, .. } | Expected::Sometimes { marks, .. } => marks,
                Expected::Missed { .. } => &[],
            })
            .collect();
        let marks = family.source.lines().filter_map(|line| line.split_once("// <")?.1.strip_suffix('>'));
        let unused: Vec<_> = marks.filter(|mark| !used.contains(&mark)).collect();
        assert!(unused.is_empty(), "no mistake names these marks: {unused:?}");
    }
}
