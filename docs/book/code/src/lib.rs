//! The code of the book's chapters, compiled and run.
//!
//! Each chapter is the documentation of a module here, so that `cargo test -p tilewright-book --doc` runs its blocks of Rust: mdBook hides the
//! lines that rustdoc hides. What blocks there are beside these, `tests/blocks.rs` counts; commands are run by `tests/commands.rs`.

/// A module for each chapter, and the list of them.
macro_rules! chapters {
    ($($name:ident: $file:literal,)*) => {
        $(
            #[cfg(doctest)]
            #[doc = include_str!(concat!("../../src/", $file))]
            mod $name {}
        )*

        /// Every chapter: its file, and its text.
        pub const CHAPTERS: &[(&str, &str)] = &[$(($file, include_str!(concat!("../../src/", $file)))),*];
    };
}

chapters! {
    index: "index.md",
    install: "install.md",
    gpu: "gpu.md",
    first_kernel: "first-kernel.md",
    from_cuda: "from-cuda.md",
    memory: "memory.md",
    ladder: "ladder.md",
    fp32: "fp32.md",
    precision: "precision.md",
    testing: "testing.md",
    checker: "checker.md",
    workbench: "workbench.md",
    inspect: "inspect.md",
    trace: "trace.md",
    course: "course.md",
    own_crate: "own-crate.md",
    products: "products.md",
    python: "python.md",
    cublas: "cublas.md",
    operations: "operations.md",
    compiling: "compiling.md",
    architecture: "architecture.md",
    performance: "performance.md",
    glossary: "glossary.md",
}
