//! What fuzzers run: everything that parses or plans, on any bytes at all. Each target takes bytes, and panics if what is made of
//! them is not right; an engine makes the bytes up (`cargo xtask fuzz`), and a test runs the committed ones (`tests/corpus.rs`).
//!
//! What holds for all of them: no panic, no overflow, nothing that is out of bounds, no memory or time out of proportion to the
//! input. What is accepted can be used; what is refused is refused with a reason.

// The modules that this crate takes in by their paths bring their own tests, which run where they belong.
#![cfg(not(test))]

pub mod command_line;
pub mod constants;
pub mod llvm_ir;
pub mod plan;
pub mod ptx;
pub mod report;
pub mod shape;
pub mod table;

// Where the pass looks for it, which `llvm_ir` takes in by its path.
use cuda_builder::Arch;

/// A name, and what is run on bytes.
pub type Target = (&'static str, fn(&[u8]));

/// All targets by their names, which are those of their programs and of the directories of their corpora.
pub const TARGETS: [Target; 8] = [
    ("command_line", command_line::check),
    ("constants", constants::check),
    ("llvm_ir", llvm_ir::check),
    ("plan", plan::check),
    ("ptx", ptx::check),
    ("report", report::check),
    ("shape", shape::check),
    ("table", table::check),
];

/// Something that was refused has to say why.
fn has_reason(error: impl std::fmt::Display) {
    assert!(!error.to_string().is_empty(), "refused without a reason");
}
