//! The tools against a stand-in for `compute-sanitizer`: a script that writes logs, and does not run any program.

use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt;

use super::*;

/// Writes a script that can be executed: not before a process that another test has just begun no longer has it open for writing.
fn executable(path: &Path, script: &str) {
    std::fs::write(path, script).unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
    let is_busy = || {
        Command::new(path).arg("--version").output().is_err_and(|error| error.kind() == ErrorKind::ExecutableFileBusy)
    };
    while is_busy() {
        std::thread::yield_now();
    }
}

/// A stand-in whose `body` has `$tool`, `$log` and `$program`, the arguments of the program in one.
fn stand_in(body: &str) -> (tempfile::TempDir, Options) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("compute-sanitizer");
    let script = format!(
        r#"#!/bin/sh
if [ "$1" = --version ]; then
    echo 'NVIDIA (R) Compute Sanitizer'
    echo 'Version 2025.3.1.0'
    exit 0
fi
[ "$1" = --tool ] && [ "$3" = --error-exitcode ] && [ "$4" = 86 ] && [ "$5" = --log-file ] || exit 99
tool=$2 log=$6
shift 7
program="$*"
say() {{ echo "========= $1" >> "$log"; }}
say COMPUTE-SANITIZER
clean() {{
    if [ $tool = racecheck ]; then say 'RACECHECK SUMMARY: 0 hazards displayed (0 errors, 0 warnings)'
    else say 'ERROR SUMMARY: 0 errors'; fi
    exit 0
}}
found() {{
    say "Invalid something"
    say "    at $1+0x110"
    if [ $tool = racecheck ]; then say 'RACECHECK SUMMARY: 1 hazard displayed (1 error, 0 warnings)'
    else say 'ERROR SUMMARY: 1 error'; fi
    exit 86
}}
fault=$(echo "${{program#planted }}" | sed 's/ .*//; s/-/_/g')
{body}
"#
    );
    executable(&path, &script);
    let options = Options {
        tools: Vec::new(),
        kernels: Vec::new(),
        ordinal: 3,
        compute_sanitizer: path,
        program: "tilewright".into(),
        limit: Duration::from_secs(60),
        output: None,
    };
    (folder, options)
}

/// One of each sort.
fn some_kernels() -> Vec<Subject> {
    let names = ["gemm_naive_2d_fp32", "gemm_wgmma_tt_tf32", "matrix_scaling_fp32"];
    subjects(&names.map(str::to_owned)).unwrap()
}

fn checked(tool: Tool, body: &str) -> ToolReport {
    let (_folder, options) = stand_in(body);
    check(tool, &some_kernels(), &options).unwrap()
}

/// Reports planted faults, and nothing else.
const RIGHT: &str = r#"case "$program" in planted*) found planted_$fault;; *) clean;; esac"#;

#[test]
fn a_tool_that_reports_its_fault_and_nothing_else_passes() {
    for tool in Tool::ALL {
        let report = checked(tool, RIGHT);
        assert!(report.passed(), "{report:?}");
        let left_out = if tool == Tool::Initcheck { vec!["gemm_wgmma_tt_tf32"] } else { vec![] };
        assert_eq!(report.left_out, left_out);
        assert_eq!(report.kernels.len() + left_out.len(), 3);
        assert!(report.outcome.excerpt.is_empty(), "{report:?}");
    }
}

#[test]
fn a_tool_that_does_not_report_its_fault_fails() {
    for silent in [
        "clean",
        // Something is reported, though of another kernel.
        r#"case "$program" in planted*) found another_kernel;; *) clean;; esac"#,
        // A summary that cannot be read.
        r#"case "$program" in planted*) say "at planted_$fault"; exit 86;; *) clean;; esac"#,
    ] {
        let report = checked(Tool::Memcheck, silent);
        assert!(!report.planted_reported && !report.passed(), "{silent}: {report:?}");
        assert!(report.line().contains("NOT REPORTED"), "{}", report.line());
    }
}

#[test]
fn what_a_tool_finds_in_a_kernel_is_counted_and_shown() {
    let body =
        r#"case "$program" in planted*) found planted_$fault;; *tt_tf32*) found gemm_wgmma_tt_tf32;; *) clean;; esac"#;
    for tool in [Tool::Memcheck, Tool::Racecheck, Tool::Synccheck] {
        let report = checked(tool, body);
        assert_eq!((report.outcome.errors, report.outcome.problems.len()), (1, 0), "{report:?}");
        assert!(report.planted_reported && !report.passed());
        assert!(report.outcome.excerpt.iter().any(|line| line.contains("gemm_wgmma_tt_tf32+0x110")), "{report:?}");
    }
    let body = r#"case "$program" in planted*) found planted_$fault;; *) say 'Warning: something'; clean;; esac"#;
    let report = checked(Tool::Synccheck, body);
    assert!(report.passed() && report.outcome.warnings == 3, "{report:?}");
    assert!(report.outcome.excerpt.iter().any(|line| line.contains("Warning: something")), "{report:?}");
}

#[test]
fn what_cannot_be_judged_is_a_problem() {
    for (otherwise, part) in [
        ("exit 0", "has 0 summaries"),
        ("say 'ERROR SUMMARY: many errors'; exit 0", "cannot be read: ERROR SUMMARY: many errors"),
        ("say 'ERROR SUMMARY: 0 errors'; exit 86", "ends as with errors"),
        ("say 'ERROR SUMMARY: 0 errors'; echo 'error: no driver'; exit 2", "did not end well: exit status: 2"),
        ("say 'ERROR SUMMARY: 0 errors'; kill -SEGV $$", "did not end well: signal"),
        ("say 'Internal Sanitizer Error: it is broken'; clean", "Internal Sanitizer Error"),
    ] {
        let report = checked(
            Tool::Memcheck,
            &format!(r#"case "$program" in planted*) found planted_$fault;; *tt_tf32*) {otherwise};; *) clean;; esac"#),
        );
        let [problem] = &report.outcome.problems[..] else { panic!("{otherwise}: {report:?}") };
        assert!(problem.contains(part) && problem.contains("--kernel gemm_wgmma_tt_tf32"), "{otherwise}: {problem}");
        assert!(report.planted_reported && !report.passed());
    }
    // What the program has written last is shown.
    let report = checked(Tool::Memcheck, "echo 'error: no driver'; say 'ERROR SUMMARY: 0 errors'; exit 2");
    assert!(report.outcome.excerpt.iter().any(|line| line == "error: no driver"), "{report:?}");
}

#[test]
fn a_program_that_does_not_end_is_a_problem() {
    let (_folder, mut options) =
        stand_in("case \"$program\" in planted*) found planted_$fault;; esac; clean() { :; }; sleep 1000");
    options.limit = Duration::from_secs(1);
    let report = check(Tool::Memcheck, &some_kernels()[..1], &options).unwrap();
    assert!(report.outcome.problems[0].contains("did not end within the time limit"), "{report:?}");
}

#[test]
fn the_program_is_told_of_every_kernel_on_the_gpu_that_was_asked_for() {
    let all = subjects(&[]).unwrap();
    let told: Vec<String> =
        all.iter().map(|subject| subject.arguments(3).join(" ".as_ref()).into_string().unwrap()).collect();
    for kernel in kernels::ALL.iter() {
        assert!(told.iter().any(|told| told.contains(&format!("--kernel {} ", kernel.name))), "{}", kernel.name);
    }
    for operation in gpu_kernels::OPERATIONS {
        let name = operation.describe().name;
        assert!(told.iter().any(|told| told.starts_with(&format!("run --op {name} --sizes "))), "{name}");
    }
    assert!(told.iter().all(|told| told.ends_with(" --device cuda:3")));
    assert_eq!(planted_arguments(planted::Fault::Trap, 3).join(" ".as_ref()), "planted trap --device cuda:3");
}

#[test]
fn what_is_no_compute_sanitizer_is_refused() {
    let (folder, options) = stand_in(RIGHT);
    assert_eq!(version(&options.compute_sanitizer).unwrap(), "2025.3.1.0");
    let other = folder.path().join("other");
    executable(&other, "#!/bin/sh\necho I am another program\n");
    let refusal = |path: &Path| version(path).unwrap_err().to_string();
    assert!(refusal(&other).contains("I am another program"), "{}", refusal(&other));
    assert!(refusal("/no/such/tool".as_ref()).contains("No such file"), "{}", refusal("/no/such/tool".as_ref()));
}

#[test]
fn a_report_is_a_table_and_comes_back_from_json() {
    let (_folder, options) = stand_in(RIGHT);
    let device = DeviceInfo::Cpu { name: None, threads: 1, checks: "full".to_owned() };
    let mut report = SanitizeReport::begin(device, options.compute_sanitizer.clone(), "2025.3.1.0".to_owned());
    report.tools.push(check(Tool::Initcheck, &some_kernels(), &options).unwrap());
    let row = |report: &SanitizeReport| {
        let table = report.table();
        table.lines().find(|line| line.contains("| initcheck")).map(str::to_owned).unwrap_or_else(|| panic!("{table}"))
    };
    assert!(report.passed() && row(&report).contains(" ok "), "{}", report.table());
    assert_eq!(serde_json::from_str::<SanitizeReport>(&serde_json::to_string(&report).unwrap()).unwrap(), report);
    report.tools[0].planted_reported = false;
    assert!(!report.passed() && row(&report).contains("NOT REPORTED") && row(&report).contains("FAILED"));
    assert!(report.table().contains("planted_read_unwritten"));
}
