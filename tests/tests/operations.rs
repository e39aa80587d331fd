//! Every operation of the program: its cases with all checks of the executor, and its mutants.

use std::path::Path;
use std::time::Duration;

use host::operations;
use testkit::{Bits, check_executor, mutants};

#[test]
fn every_operation_passes_the_executors_checks() {
    for operation in operations::ALL.iter() {
        let report = check_executor(*operation, 1).unwrap();
        assert!(report.holds(), "{report}");
    }
}

/// Only of those whose kernels are the operation's own: of what the planner chooses, `cargo xtask mutants` makes other ones.
#[test]
fn no_mutant_of_a_kernel_with_an_operation_survives() {
    let mut seen = 0;
    for operation in gpu_kernels::OPERATIONS {
        assert_eq!(operation.describe().bits, Bits::Same);
        let found = mutants(*operation, 1, Duration::from_secs(60)).unwrap();
        assert!(found.survivors().next().is_none(), "{found}");
        seen += usize::from(!found.to_string().is_empty());
    }
    assert_eq!(seen, gpu_kernels::OPERATIONS.len());
}

#[test]
fn the_documentation_has_a_row_for_each_operation() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/book/src/operations.md");
    let text = std::fs::read_to_string(path).unwrap();
    let table = testkit::markdown(&operations::ALL);
    assert!(
        text.ends_with(&table),
        "let docs/book/src/operations.md end with `cargo run -p host -- list --markdown`:\n{table}"
    );
}

#[test]
fn names_of_operations_are_unique_and_their_kernels_are_there() {
    let mut names: Vec<_> = operations::ALL.iter().map(|operation| operation.describe().name).collect();
    let count = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), count);
    assert!(operations::ALL.iter().all(|operation| !operation.describe().kernels.is_empty()));
}
