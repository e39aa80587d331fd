//! Where `--json` writes to: whatever a path leads to is written, and nothing but a regular file is replaced.

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;
use tempfile::TempDir;
use tests::program;

/// A run that takes next to nothing, and writes its report there.
fn report_to(path: &str) -> Command {
    let mut command =
        program(&["--device=cpu", "--problem=large-k", "--m=1", "--n=1", "--k=1", "--runs=1", "--json", path]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// What the run prints, apart from its report. It has to pass.
fn print_of(mut command: Command) -> String {
    let output = command.output().unwrap();
    let (text, errors) = (String::from_utf8(output.stdout).unwrap(), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && errors.is_empty(), "{}: {text}{errors}", output.status);
    assert!(text.contains("All 5 checks passed"), "{text}");
    text
}

fn is_report(text: &str) -> bool {
    serde_json::from_str::<Value>(text).is_ok_and(|report| report["problems"][0]["m"] == 1)
}

/// The same run in a shell, where `$@` is the run.
fn in_shell(script: &str, run: &Command, directory: &Path) -> Command {
    let mut shell = Command::new("sh");
    shell.args(["-c", script, "sh"]).arg(run.get_program()).args(run.get_args()).current_dir(directory);
    shell.envs(run.get_envs().filter_map(|(name, value)| Some((name, value?)))).stdin(Stdio::null());
    shell
}

#[test]
fn links_fifos_and_devices_stay_what_they_are() {
    let directory = TempDir::new().unwrap();
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    fs::write(path("report.json"), "old").unwrap();
    fs::set_permissions(path("report.json"), fs::Permissions::from_mode(0o600)).unwrap();
    symlink("report.json", path("link")).unwrap();
    print_of(report_to(&path("link")));
    assert!(is_report(&fs::read_to_string(path("report.json")).unwrap()));
    assert_eq!(fs::metadata(path("report.json")).unwrap().mode() & 0o777, 0o600);
    assert!(fs::symlink_metadata(path("link")).unwrap().is_symlink(), "the link is replaced");

    let made = Command::new("mkfifo").arg(path("fifo")).status().unwrap();
    assert!(made.success());
    let reader = std::thread::spawn({
        let fifo = path("fifo");
        move || fs::read_to_string(fifo).unwrap()
    });
    print_of(report_to(&path("fifo")));
    assert!(fs::symlink_metadata(path("fifo")).unwrap().file_type().is_fifo(), "the FIFO is replaced");
    assert!(is_report(&reader.join().unwrap()));

    // Of this test's own: a program that replaces devices replaces this one.
    let made = Command::new("mknod").args([&path("null"), "c", "1", "3"]).stderr(Stdio::null()).status();
    if made.is_ok_and(|status| status.success()) && fs::File::open(path("null")).is_ok() {
        print_of(report_to(&path("null")));
        assert!(fs::symlink_metadata(path("null")).unwrap().file_type().is_char_device(), "the device is replaced");
    } else {
        eprintln!("skipped: devices cannot be made here");
    }
}

#[test]
fn the_standard_output_and_other_descriptors_get_the_report() {
    let directory = TempDir::new().unwrap();
    // As `/dev/stdout` and `/dev/fd/3` are, but of this test's own: a program that replaces links replaces these.
    let link = |name: &str, descriptor: u32| {
        let link = directory.path().join(name);
        symlink(format!("/proc/self/fd/{descriptor}"), &link).unwrap();
        link.to_str().unwrap().to_owned()
    };
    let (stdout, third) = (link("stdout", 1), link("third", 3));
    let read = |name: &str| fs::read_to_string(directory.path().join(name)).unwrap();
    // To a pipe, and to a file, which has the table before.
    let printed = print_of(report_to(&stdout));
    let (table, report) = printed.split_at(printed.find("\n{").unwrap());
    assert!(table.contains("| kernel") && is_report(report), "{printed}");
    let shell = in_shell("\"$@\" > both", &report_to(&stdout), directory.path()).output().unwrap();
    assert!(shell.status.success(), "{shell:?}");
    let printed = read("both");
    let (table, report) = printed.split_at(printed.find("\n{").unwrap());
    assert!(table.contains("| kernel") && is_report(report), "{printed}");
    // As bash's `>(…)` passes it.
    print_of(in_shell("{ \"$@\" 3>&1 >&4 | cat > report; } 4>&1", &report_to(&third), directory.path()));
    assert!(is_report(&read("report")), "{}", read("report"));
}
