//! `cargo tilewright inspect` on kernels of this repository, whose output the book shows, and on a crate that `new` writes.

mod repository;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use cuda_builder::inspect::CudaTool;
use cuda_builder::toolchain::Toolchain;
use repository::target;
use serde_json::Value;

fn root() -> PathBuf {
    fs::canonicalize(Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")).unwrap()
}

fn tilewright(directory: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cargo-tilewright"));
    // As cargo calls it; as wide as a page of the book.
    command.arg("tilewright").args(arguments).current_dir(directory).env("COLUMNS", "120").env("NO_COLOR", "1");
    command.env_remove("CLICOLOR_FORCE").env_remove("CARGO_TARGET_DIR");
    command
}

fn run(mut command: Command) -> (Option<i32>, String, String) {
    let Output { status, stdout, stderr } = command.output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (status.code(), text(stdout), text(stderr))
}

fn printed(command: Command) -> String {
    let (code, text, message) = run(command);
    assert_eq!(code, Some(0), "{message}");
    text
}

/// Whether there is something to disassemble with; says so if not.
fn has_tools() -> bool {
    let has = CudaTool::Ptxas.find().is_some() && CudaTool::Nvdisasm.find().is_some();
    if !has {
        println!("skipped: no ptxas and nvdisasm; `cargo tilewright setup` gets them");
    }
    has
}

/// The versions of all that has a part in what is shown.
fn made_with() -> String {
    let toolchain = Toolchain::find(&root().join("gpu-kernels")).unwrap();
    let last_words = |program: PathBuf| {
        let output = Command::new(program).arg("--version").output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        text.lines()
            .filter(|line| line.contains("ersion ") || line.starts_with("rustc") || line.starts_with("Cuda"))
            .map(|line| format!("{}\n", line.trim()))
            .collect::<String>()
    };
    let tools = [CudaTool::Ptxas, CudaTool::Nvdisasm].map(|tool| last_words(tool.find().unwrap()));
    let rustc = toolchain.rustc.clone();
    last_words(rustc) + &last_words(toolchain.llvm_tool("opt")) + &tools.concat()
}

/// What stands at the margin of a text, without its numbers: its form, which is the same whatever kernel it is of.
fn form_of(text: &str) -> String {
    let at_margin = text.lines().filter(|line| line.starts_with(|c: char| c.is_ascii_alphabetic()));
    let without_numbers =
        |line: &str| line.split(|c: char| c.is_ascii_digit()).next().unwrap_or_default().to_owned() + "\n";
    at_margin.map(without_numbers).collect()
}

/// What the book shows, beside what has just been made. With `TILEWRIGHT_BLESS` set, it is written.
fn compare(name: &str, made: &str, part_of: fn(&str) -> String) {
    let path = root().join("docs/book/src/inspect").join(name);
    if std::env::var_os("TILEWRIGHT_BLESS").is_some() {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, made).unwrap();
        return;
    }
    let (kept, made) = (part_of(&fs::read_to_string(&path).unwrap_or_default()), part_of(made));
    let first = kept.lines().zip(made.lines()).position(|(kept, made)| kept != made);
    let at = first.unwrap_or_else(|| kept.lines().count().min(made.lines().count()));
    assert!(
        kept == made,
        "{} is not what inspect makes, from line {} on: `{}`, not `{}`. If it should be, run this test with TILEWRIGHT_BLESS=1",
        path.display(),
        at + 1,
        made.lines().nth(at).unwrap_or_default(),
        kept.lines().nth(at).unwrap_or_default()
    );
}

/// The kernels that the book shows: the tiled product, the pipeline with TMA and wgmma, a softmax with what the executor counts.
const IN_THE_BOOK: [(&str, &str, &[&str]); 3] = [
    ("gemm_tiled_32_fp32", "gpu-kernels", &[]),
    ("gemm_wgmma_nn_fp32_3xtf32", "gpu-kernels", &[]),
    ("softmax_fp32", "examples/02-softmax", &["--cost"]),
];

fn in_the_book(directory: &str, arguments: &[&str]) -> Command {
    let mut command = tilewright(&root().join(directory), arguments);
    if directory.starts_with("examples") {
        command.env("CARGO_TARGET_DIR", target());
    }
    command
}

#[test]
fn the_book_shows_what_inspect_makes() {
    if !has_tools() {
        return;
    }
    let kept = fs::read_to_string(root().join("docs/book/src/inspect/made-with.txt")).unwrap_or_default();
    let blesses = std::env::var_os("TILEWRIGHT_BLESS").is_some();
    if kept != made_with() && !blesses {
        // Another compiler makes other code of the same source: that says nothing of the source.
        println!("skipped: the book's were made with\n{kept}and here are\n{}", made_with());
        return;
    }
    compare("made-with.txt", &made_with(), str::to_owned);
    for (kernel, directory, flags) in IN_THE_BOOK {
        let text = printed(in_the_book(directory, &[&["inspect", kernel], flags].concat()));
        assert!(!text.contains(root().to_str().unwrap()), "machine paths in the text of {kernel}");
        // Of the pipeline, every change to a library that it uses changes a line or a count: the book has it as of the day when this was last written.
        let is_of_one_day = kernel.starts_with("gemm_wgmma");
        compare(&format!("inspect-{kernel}.txt"), &text, if is_of_one_day { form_of } else { str::to_owned });
        let page = tempfile::Builder::new().suffix(".html").tempfile().unwrap();
        let path = page.path().to_str().unwrap();
        printed(in_the_book(directory, &[&["inspect", kernel, "--html", path], flags].concat()));
        let page = fs::read_to_string(path).unwrap();
        assert!(
            !page.contains("http") && !page.contains(root().to_str().unwrap()),
            "{kernel}: network or machine paths"
        );
        assert!(page.contains("<table class=\"code\">") && page.contains("prefers-color-scheme: dark"));
        // That of the pipeline has three megabytes.
        if page.len() < 1 << 20 {
            compare(&format!("inspect-{kernel}.html"), &page, str::to_owned);
        }
    }
}

#[test]
fn lines_change_no_instruction() {
    if !has_tools() {
        return;
    }
    for (kernel, directory, _) in IN_THE_BOOK {
        let json = |arguments: &[&str]| -> Value {
            serde_json::from_str(&printed(in_the_book(
                directory,
                &[&["inspect", kernel, "--json"], arguments].concat(),
            )))
            .unwrap()
        };
        let (with, without) = (json(&[]), json(&["--table"]));
        assert!(with["machine"]["instructions"].as_u64().unwrap() > 100, "{kernel}");
        assert_eq!(with["machine"], without[0]["machine"], "{kernel}");
    }
}

/// A crate with the kernel `add_relu`.
fn new_crate() -> (tempfile::TempDir, PathBuf) {
    let place = tempfile::tempdir().unwrap();
    printed(tilewright(place.path(), &["new", "mine"]));
    let directory = place.path().join("mine");
    (place, directory)
}

fn inspect(directory: &Path, arguments: &[&str]) -> Command {
    let mut command = tilewright(directory, &[&["inspect"], arguments].concat());
    command.env("CARGO_TARGET_DIR", target());
    command
}

#[test]
fn a_crate_of_ones_own() {
    let (_place, directory) = new_crate();
    let source = directory.join("kernels/src/lib.rs");
    let original = fs::read_to_string(&source).unwrap();
    let line_of = |text: &str| original.lines().position(|line| line.contains(text)).unwrap() as u64 + 1;

    // Without NVIDIA's tools there is the PTX, and how to get them.
    let mut without = inspect(&directory, &["add_relu"]);
    without.env("TILEWRIGHT_CUDA_BIN", "/nonexistent");
    let text = printed(without);
    assert!(text.contains("add.rn.f32") && text.contains("`cargo tilewright setup` gets it"), "{text}");

    // Each instruction has its line.
    let json: Value = serde_json::from_str(&printed(inspect(&directory, &["add_relu", "--json"]))).unwrap();
    let listing = &json["listing"];
    let line = |origin: &Value| {
        origin.as_u64().map(|origin| listing["origins"][origin as usize]["line"]["line"].as_u64().unwrap())
    };
    let ptx = listing["ptx"].as_array().unwrap();
    let adds = ptx.iter().find(|line| line["text"].as_str().unwrap().starts_with("add.rn.f32")).unwrap();
    assert_eq!(line(&adds["origin"]), Some(line_of("let sum = x + y")), "{adds}");
    if has_tools() {
        let sass = listing["sass"].as_array().unwrap();
        let find = |opcode: &str| sass.iter().find(|line| line["text"].as_str().unwrap().contains(opcode)).unwrap();
        assert_eq!(line(&find("FADD")["origin"]), Some(line_of("let sum = x + y")));
        assert_eq!(line(&find("STG")["origin"]), Some(line_of("z.set(")));
        let nameless = sass.iter().filter(|line| line["origin"].is_null()).count();
        assert!(nameless * 5 < sass.len(), "{nameless} of {} have no line", sass.len());
        let registers = json["machine"]["resources"]["registers"].as_u64().unwrap();
        let peak = listing["peak"]["registers"].as_u64().unwrap();
        assert!(0 < peak && peak <= registers, "{peak} of {registers}");
        assert!(json["machine"]["occupancy"]["warps"].as_u64().unwrap() > 0);
    }

    // One name that is nearly right, and a kernel that is not.
    let (code, _, message) = run(inspect(&directory, &["add_rellu"]));
    assert!(code == Some(2) && message.contains("`add_relu`"), "{message}");
    fs::write(&source, original.replace("x + y;", "x + missing;")).unwrap();
    let (code, text, message) = run(inspect(&directory, &["add_relu"]));
    assert_eq!((code, text.as_str()), (Some(1), ""), "{message}");
    assert_eq!(message.matches("cannot find value `missing`").count(), 1, "{message}");
    assert!(message.contains("kernels/src/lib.rs:"), "{message}");
}
