//! Code of a few lines, for tests.

use crate::code::{Class, Code, Listing, Origin, PtxLine, RustLine, SassLine, SourceText};

/// Code with these lines of Rust, and the machine code of each.
pub(super) fn code(lines: &[(u32, &str, &[&str])]) -> Code {
    let at = |line: u32| RustLine { file: "src/lib.rs".to_owned(), line };
    let mut listing = Listing::default();
    for (origin, &(line, text, sass)) in lines.iter().enumerate() {
        listing.source.push(SourceText { at: at(line), text: text.to_owned() });
        let inner = vec![(RustLine { file: "core/src/ops/arith.rs".to_owned(), line: 90 }, "add".to_owned())];
        listing.origins.push(Origin { line: at(line), inner });
        let ptx = PtxLine { text: format!("ptx.of.line {line};"), origin: Some(origin), is_moved: line == 2 };
        listing.ptx.push(ptx);
        listing.sass.extend(sass.iter().map(|text| SassLine {
            address: 0,
            text: (*text).to_owned(),
            labels: Vec::new(),
            class: Class::Other,
            ptx: Some(origin),
            origin: Some(origin),
            registers: line,
            uniform_registers: 0,
            predicates: 0,
        }));
    }
    Code {
        kernel: "k".to_owned(),
        arch: "sm_80".to_owned(),
        block: [32, 1, 1],
        min_blocks: None,
        static_shared_bytes: 4,
        dynamic_shared_bytes: 0,
        warnings: Vec::new(),
        machine: Err("no tools".to_owned()),
        listing: Some(listing),
    }
}
