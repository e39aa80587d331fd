//! The repository's tasks, run as `cargo xtask <task>`. What CI runs is `cargo xtask test`.

mod book;
mod browser;
mod build_ptx;
mod circles;
mod compare_ptx;
mod coverage;
mod documentation;
mod first_path;
mod format;
mod fuzz;
mod memory_check;
mod mutants;
mod portable;
mod python;
#[cfg(test)]
mod shared;
mod side_by_side;
mod test;
mod wheels;
mod workspace;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// The repository's tasks.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Compiles the kernels to PTX and shows what each needs.
    BuildPtx(build_ptx::Arguments),
    /// Compares the kernels of two commits, or of a commit and the working tree.
    ComparePtx(compare_ptx::Arguments),
    /// Shows whether modules of a crate use one another in a circle.
    Circles(circles::Arguments),
    /// Opens the repository's pages in a browser and looks for faults: rendering, accessibility, without a script, on paper.
    Browser(browser::Arguments),
    /// Builds the documentation, without warnings, and counts public items that have no example.
    Documentation(documentation::Arguments),
    /// Builds the Python package for this machine and tests it.
    Python(python::Arguments),
    /// Builds the Python package for all machines that it is for, and says what is in each wheel.
    Wheels(wheels::Arguments),
    /// Type-checks what needs no GPU for other systems.
    Portable(portable::Arguments),
    /// Changes kernels, one thing at a time, and sees whether anything tells.
    Mutants(mutants::Arguments),
    /// Formats every source file, those that `cargo fmt` does not see, too.
    Format(format::Arguments),
    /// Runs the fuzz targets.
    Fuzz(fuzz::Arguments),
    /// Runs tests under AddressSanitizer.
    MemoryCheck(memory_check::Arguments),
    /// Shows which lines of the library and of the executor the tests run.
    Coverage(coverage::Arguments),
    /// Does in an empty folder what somebody does who begins, and prints what each step shows and how long it takes.
    FirstPath(first_path::Arguments),
    /// Makes the book, target/book/index.html.
    Book(book::Arguments),
    /// Runs what `cargo test --workspace` runs, several programs at a time.
    SideBySide(side_by_side::Arguments),
    /// Runs everything that CI runs, setting up what it needs.
    Test(test::Arguments),
    /// What authors of kernels do in any crate, `cargo tilewright`.
    #[command(flatten)]
    Workbench(workbench::Task),
}

fn main() -> ExitCode {
    if let Some(code) = documentation::stand_in_for_rustdoc().or_else(side_by_side::stand_in_for_runner) {
        return code;
    }
    run(Arguments::parse().task).unwrap_or_else(|error| {
        eprintln!("error: {error:#}");
        ExitCode::FAILURE
    })
}

/// Carries out a task; what the program ends with.
fn run(task: Task) -> anyhow::Result<ExitCode> {
    let done = match task {
        Task::BuildPtx(arguments) => build_ptx::run(&arguments),
        Task::ComparePtx(arguments) => compare_ptx::run(&arguments),
        Task::Circles(arguments) => circles::run(&arguments),
        Task::Browser(arguments) => browser::run(&arguments),
        Task::Documentation(arguments) => documentation::run(&arguments),
        Task::Python(arguments) => python::run(&arguments),
        Task::Wheels(arguments) => wheels::run(&arguments),
        Task::Portable(arguments) => portable::run(&arguments),
        Task::Mutants(arguments) => mutants::run(&arguments),
        Task::Format(arguments) => format::run(&arguments),
        Task::Fuzz(arguments) => fuzz::run(&arguments),
        Task::MemoryCheck(arguments) => memory_check::run(&arguments),
        Task::Coverage(arguments) => coverage::run(&arguments),
        Task::FirstPath(arguments) => first_path::run(&arguments),
        Task::Book(arguments) => book::run(&arguments),
        Task::SideBySide(arguments) => side_by_side::run(&arguments),
        Task::Test(arguments) => test::run(&arguments),
        Task::Workbench(task) => return Ok(workbench::run_and_report(&workbench::Place::default(), &task)),
    };
    done.map(|()| ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn machine_code_is_for_the_architectures_named_or_for_those_of_wheels() {
        let archs = |options: &[&str]| {
            let words = ["cargo xtask", "wheels"].into_iter().chain(options.iter().copied());
            let Task::Wheels(arguments) = Arguments::parse_from(words).task else { panic!("{options:?}") };
            arguments.cubins.iter().map(|arch| arch.name()).collect::<Vec<_>>().join(",")
        };
        assert_eq!(archs(&[]), "");
        assert_eq!(archs(&["--cubins"]), "sm_80,sm_86,sm_90a,sm_100,sm_120");
        assert_eq!(archs(&["--cubins", "sm_89,sm_90a"]), "sm_89,sm_90a");
    }

    #[test]
    fn tasks_and_their_options_parse() {
        for line in [
            "doctor",
            "setup --yes --dry-run",
            "build-ptx --arch sm_80,sm_90a --emit ptx,llvm-ir,cubin --out x --kernel tiled --strict",
            "compare-ptx HEAD~3 --json",
            "compare-ptx before after --arch sm_80 --crate-dir tests/fixtures/instructions",
            "circles host --verbose",
            "inspect gemv_block_reduction_fp32 --arch sm_80 --full",
            "inspect gemv --all --table --arch sm_80",
            "inspect --all --table --json",
            "inspect gemm_tiled_32_fp32 --compare gemm_tiled_16_fp32 --html x.html",
            "inspect gemm_tiled_32_fp32 --against HEAD~3 --json",
            "inspect gemm_tiled_32_fp32 --cost --sass",
            "browser",
            "browser page.html other.html --screenshots x",
            "documentation --package tilewright-cuda-std --list",
            "python --with-torch",
            "python --release",
            "wheels",
            "wheels --machine aarch64 --cubins sm_80,sm_90a --run",
            "wheels --inspect a.whl b.whl --run",
            "mutants --sites --filter ring.rs --limit 60 --budget 20 --jobs 1 --met met.txt --report x.md",
            "mutants --sample 100 --seed 7 --suite target/debug/suite",
            "mutants --chosen",
            "new ../mine",
            "new mine --kernel reduce",
            "portable",
            "portable --target x86_64-pc-windows-msvc,aarch64-apple-darwin",
            "format --check",
            "fuzz plan --seconds 600",
            "fuzz --minimize",
            "memory-check copies",
            "coverage --html -- -p host",
            "first-path --short --edits 2 --out transcript.txt",
            "watch gemm_tiled_32_fp32 --once --json --arch sm_80",
            "check row_sums --json",
            "profile row_sums --sizes rows=3,cols=4 --ncu /opt/ncu",
            "doctor --json",
            "completions zsh",
            "book --check",
            "book --open",
            "book --external",
            "side-by-side -p tests -p host",
            "test --quick --with-torch",
        ] {
            let words = ["cargo xtask"].into_iter().chain(line.split(' '));
            assert!(Arguments::try_parse_from(words).is_ok(), "{line}");
        }
        for line in [
            "build-ptx --arch sm_1",
            "inspect",
            "inspect --table",
            "inspect a --compare b --against HEAD",
            "inspect a --json --html x.html",
            "wheels --cubins sm_1",
            "wheels --machine arm",
            "wheels --inspect a.whl --machine aarch64",
            "fuzz --seconds 0",
            "fuzz --seconds 2147483648",
            "mutants --limit 0",
            "mutants --jobs 0",
            "mutants --sample 0",
            "mutants --sample 100 --chosen",
            "mutants --sample 100 --report x.md",
            "mutants --seed 7",
        ] {
            let words = ["cargo xtask"].into_iter().chain(line.split(' '));
            assert!(Arguments::try_parse_from(words).is_err(), "{line}");
        }
    }
}
