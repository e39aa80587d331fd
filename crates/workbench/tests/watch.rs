//! `cargo tilewright watch` on a crate that `new` writes: everything that a kernel's author may save.

mod repository;

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use repository::target;
use serde_json::Value;

fn tilewright(directory: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cargo-tilewright"));
    // As cargo calls it.
    command.arg("tilewright").args(arguments).current_dir(directory);
    command.env("CARGO_TARGET_DIR", target()).env_remove("NO_COLOR").env_remove("CLICOLOR_FORCE");
    command
}

fn run(directory: &Path, arguments: &[&str]) -> (Option<i32>, String, String) {
    let Output { status, stdout, stderr } = tilewright(directory, arguments).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (status.code(), text(stdout), text(stderr))
}

/// A crate with the kernel `row_sums`.
struct Crate {
    _place: tempfile::TempDir,
    directory: PathBuf,
    original: String,
}

impl Crate {
    fn new(name: &str) -> Self {
        let place = tempfile::tempdir().unwrap();
        let (code, text, message) = run(place.path(), &["new", name, "--kernel", "reduce", "--json"]);
        assert_eq!(code, Some(0), "{message}");
        let told: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(told["kernel"], "row_sums");
        let directory = PathBuf::from(told["directory"].as_str().unwrap());
        let original = fs::read_to_string(directory.join("kernels/src/lib.rs")).unwrap();
        Self { _place: place, directory, original }
    }

    fn source(&self) -> PathBuf {
        self.directory.join("kernels/src/lib.rs")
    }

    /// The kernel with something in another's place.
    fn with(&self, before: &str, after: &str) -> String {
        assert!(self.original.contains(before), "{before}");
        self.original.replacen(before, after, 1)
    }

    fn save(&self, before: &str, after: &str) {
        fs::write(self.source(), self.with(before, after)).unwrap();
    }

    fn once(&self, more: &[&str]) -> (Option<i32>, String, String) {
        run(&self.directory, &[&["watch", "row_sums", "--once"], more].concat())
    }
}

const BARRIER: &str = "            thread::sync_threads();\n";

#[test]
fn every_kind_of_mistake_is_told_once_and_with_what_was_compiled_all_the_same() {
    let it = Crate::new("watched");
    let (code, text, message) = it.once(&[]);
    assert_eq!((code, message.as_str()), (Some(0), ""), "{text}");
    assert!(text.starts_with("row_sums  right  ") && text.contains("row-sums: 24 of 24 cases right"), "{text}");
    let has_tools = !text.contains("`ptxas` is missing");
    assert!(!has_tools || text.contains(" registers, no spills, 256×1×1 threads, 1024 B shared memory"), "{text}");
    assert!(!text.contains('\x1b'), "a pipe has no colours: {text}");

    // From a directory within, and with colours.
    let mut forced = tilewright(&it.directory.join("kernels/src"), &["watch", "row_sums", "--once"]);
    let forced = String::from_utf8(forced.env("CLICOLOR_FORCE", "1").output().unwrap().stdout).unwrap();
    assert!(forced.contains("\x1b[32mright\x1b[0m"), "{forced}");

    it.save(BARRIER, "");
    let (code, text, _) = it.once(&[]);
    assert_eq!(code, Some(1), "{text}");
    assert!(text.starts_with("row_sums  wrong") && text.contains("FAILED with rows=1,cols=0"), "{text}");
    assert!(text.contains("a race") && text.matches("--> kernels/src/lib.rs:").count() == 2, "{text}");
    assert!(!has_tools || text.contains(" registers, no spills"), "{text}");

    it.save("        col += THREADS;", "        col += threads;");
    let (code, text, message) = it.once(&[]);
    assert_eq!((code, message.as_str()), (Some(1), ""), "{text}");
    let line = 1 + it.original[..it.original.find("        col += THREADS;").unwrap()].lines().count();
    assert_eq!(text.matches("error[E0425]: cannot find value `threads`").count(), 1, "{text}");
    assert_eq!(text.matches(&format!("--> kernels/src/lib.rs:{line}:")).count(), 1, "{text}");

    // The compiler's message, and not that of the build script about the same.
    let (code, text, message) = run(&it.directory, &["check", "row_sums"]);
    assert_eq!((code, text.as_str()), (Some(1), ""), "{message}");
    assert_eq!(message.matches("error[E0425]: cannot find value `threads`").count(), 1, "{message}");

    // What the host accepts, and a GPU has not.
    it.save("        col += THREADS;", "        col += THREADS;\n        std::thread::yield_now();");
    let (code, text, _) = it.once(&[]);
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("24 of 24 cases right") && text.contains("cannot be made"), "{text}");
    assert_eq!(text.matches("error[E0433]").count(), 1, "{text}");

    it.save("            half /= 2;", "            half /= 1;");
    let (code, text, _) = it.once(&["--limit", "2"]);
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("have not ended after 2 s") && text.contains("--limit SECONDS"), "{text}");

    it.save("        col += THREADS;", "        let unused = 1;\n        col += THREADS;");
    let (code, text, _) = it.once(&[]);
    assert_eq!(code, Some(0), "{text}");
    assert_eq!(text.matches("warning: unused variable: `unused`").count(), 1, "{text}");

    for (arguments, expected) in [
        (&["watch", "row_sum", "--once"][..], "there is no kernel `row_sum` (did you mean `row_sums`?)"),
        (
            &["watch", "row_sums", "--once", "--op", "row-sum"],
            "there is no operation `row-sum` (did you mean `row-sums`?)",
        ),
        (&["check", "rowsums"], "there is no kernel `rowsums` (did you mean `row_sums`?)"),
        (&["profile", "row_sums", "--ncu", "/no/such/ncu"], "`profile` needs "),
    ] {
        let (code, _, message) = run(&it.directory, arguments);
        assert_eq!(code, Some(2), "{arguments:?}: {message}");
        assert!(message.contains(expected), "{arguments:?}: {message}");
    }
}

#[test]
fn saves_are_followed_however_an_editor_writes_and_differences_are_to_the_last_good_build() {
    let it = Crate::new("followed");
    let mut watch = tilewright(&it.directory, &["watch", "row_sums", "--json"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(watch.stdout.take().unwrap()).lines();
    let mut next = || -> Value { serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap() };
    let first = next();
    assert_eq!((&first["right"], &first["difference"]), (&Value::Bool(true), &serde_json::json!([])), "{first}");

    // In place.
    it.save(BARRIER, "");
    let wrong = next();
    assert_eq!((&wrong["right"], &wrong["checks"]["state"]), (&Value::Bool(false), &"checked".into()), "{wrong}");
    // By another file that takes its name.
    let beside = it.directory.join("kernels/src/.lib.rs.new");
    let larger = it.with("static SUMS: Shared<[f32; 256]>", "static SUMS: Shared<[f32; 512]>");
    fs::write(&beside, larger).unwrap();
    fs::rename(&beside, it.source()).unwrap();
    let right = next();
    assert_eq!(right["right"], true, "{right}");
    if right["compiled"]["state"] == "code" {
        // To the first, not to the one without a barrier.
        let difference = right["difference"].as_array().unwrap();
        let shared = difference.iter().find(|change| change["what"] == "bytes of shared memory").unwrap();
        assert_eq!((&shared["before"], &shared["now"]), (&1024.into(), &2048.into()), "{right}");
        assert!(difference.iter().all(|change| change["what"] != "barriers instructions"), "{right}");
    }
    watch.kill().unwrap();
    watch.wait().unwrap();
}
