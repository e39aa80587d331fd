//! The program from end to end: what it prints, writes and returns.

#[path = "../../crates/cuda-driver/tests/driver/fake_library.rs"]
mod fake_library;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::LazyLock;

use serde_json::Value;
use tempfile::TempDir;
use tests::program;

/// What a program has done.
#[derive(Debug)]
struct Done {
    code: Option<i32>,
    stdout: String,
    stderr: String,
}

fn done(mut command: Command) -> Done {
    let output = command.output().expect("the program runs");
    let text = |bytes| String::from_utf8(bytes).expect("the program writes text");
    Done { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
}

fn run(arguments: &[&str]) -> Done {
    done(program(arguments))
}

/// The driver that `cuda-driver` is tested with: it has a GPU of compute capability 9.0, and fails where it is told to.
static FAKE_DRIVER: LazyLock<PathBuf> = LazyLock::new(|| fake_library::compile("libcuda_fake_for_programs.so", &[]));

/// Runs on the fake driver, with this variable for it.
fn run_on_fake_driver(variable: (&str, &str), arguments: &[&str]) -> Done {
    let mut command = program(arguments);
    command.env("TILEWRIGHT_LIBCUDA", &*FAKE_DRIVER).env_remove("CUDA_VISIBLE_DEVICES").env(variable.0, variable.1);
    done(command)
}

/// Runs what has to succeed.
#[track_caller]
fn succeed(arguments: &[&str]) -> String {
    let done = run(arguments);
    assert!(done.code == Some(0) && done.stderr.is_empty(), "{arguments:?}: {done:?}");
    done.stdout
}

/// Runs what has to be refused, with code 2, nothing on the standard output, and a message that has all `parts`.
#[track_caller]
fn refused(arguments: &[&str], parts: &[&str]) {
    let done = run(arguments);
    assert!(done.code == Some(2) && done.stdout.is_empty(), "{arguments:?}: {done:?}");
    for part in parts {
        assert!(done.stderr.contains(part), "{arguments:?}: {:?} does not say {part:?}", done.stderr);
    }
}

/// A product that takes no time.
const SMALL: [&str; 11] =
    ["--device", "cpu", "--problem", "large-k", "--m", "17", "--n", "33", "--k", "40", "--runs=2"];

fn small(more: &[&'static str]) -> Vec<&'static str> {
    [&SMALL, more].concat()
}

/// Runs with `--json`, and reads what has been written. Nothing else may be left in the directory.
fn json(arguments: &[&str]) -> Value {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("report.json");
    succeed(&[arguments, &["--json", path.to_str().unwrap()]].concat());
    assert_eq!(entries(directory.path()), ["report.json"]);
    serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap()
}

fn entries(directory: &Path) -> Vec<String> {
    let names = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.collect()
}

const GEMM_KERNELS: [&str; 4] =
    ["gemm_naive_1d_fp32", "gemm_naive_2d_fp32", "gemm_tiled_16_fp32", "gemm_tiled_32_fp32"];

#[test]
fn a_small_run_prints_a_table() {
    let table = succeed(&SMALL);
    for part in ["CPU executor", "m=17 n=33 k=40", "layout NN", "median ms", "All 5 checks passed"] {
        assert!(table.contains(part), "{table} does not say {part:?}");
    }
    for kernel in GEMM_KERNELS.into_iter().chain(["gemm_mma_nn_fp32_3xtf32"]) {
        let row = table.lines().find(|line| line.contains('|') && line.contains(kernel));
        let row = row.unwrap_or_else(|| panic!("no row for {kernel}: {table}"));
        assert!(row.contains(" ok "), "{row}");
    }
    assert_eq!(table.lines().filter(|line| line.contains(" ok ")).count(), 5);
    let named = succeed(&[&["run"], &SMALL[..]].concat());
    assert!(named.contains("All 5 checks passed"), "`run` is what happens without a subcommand");
}

#[test]
fn without_a_gpu_it_says_so_and_runs_reduced_sizes_on_the_cpu() {
    let table = succeed(&["--problem", "matvec", "--runs", "1"]);
    let lines: Vec<_> = table.lines().collect();
    assert!(lines[0].starts_with("No GPU is used") && lines[0].contains("no CUDA driver"), "{table}");
    assert!(lines.iter().filter(|line| line.contains("no CUDA driver")).count() == 1, "said once: {table}");
    for part in ["Device: CPU executor", "m=256 n=1 k=65536 (reduced for the CPU executor from m=2048 n=1 k=1048576)"] {
        assert!(table.contains(part), "{table} does not say {part:?}");
    }
}

#[test]
fn the_reason_for_the_cpu_is_one_line_whatever_it_quotes() {
    let mut command = program(&["--problem", "matvec", "--m=2", "--k=3", "--runs=1"]);
    command.env("TILEWRIGHT_LIBCUDA", "/nonexistent/with a\nline");
    let done = done(command);
    let lines: Vec<_> = done.stdout.lines().collect();
    assert!(lines[0].contains("with a line") && lines[1].starts_with("tilewright "), "{done:?}");
}

#[test]
fn only_a_gpu_that_is_not_there_makes_room_for_the_cpu() {
    let arguments = ["--problem", "matvec", "--m=2", "--k=3", "--runs=1"];
    let done = run_on_fake_driver(("FAKE_CUDA", "cuInit=100"), &arguments);
    assert_eq!((done.code, done.stderr.as_str()), (Some(0), ""), "{done:?}");
    let lines: Vec<_> = done.stdout.lines().collect();
    assert!(lines[0].starts_with("No GPU is used") && lines[0].contains("no CUDA device"), "{done:?}");
    assert!(lines[1].starts_with("tilewright "), "{done:?}");
    for (variable, part) in [
        (("FAKE_CUDA_VERSION", "10020"), "too old: it supports CUDA 10.2"),
        (("FAKE_CUDA", "cuInit=999"), "cuInit returned CUDA_ERROR_UNKNOWN"),
        (("FAKE_CUDA", "cuDevicePrimaryCtxRetain=2"), "CUDA_ERROR_OUT_OF_MEMORY"),
        (("FAKE_CUDA", "cuStreamCreateWithPriority=719"), "context is lost"),
        (("FAKE_CUDA", "cuModuleLoadDataEx=218"), "does not accept the PTX"),
    ] {
        let done = run_on_fake_driver(variable, &arguments);
        assert_eq!((done.code, done.stdout.as_str()), (Some(2), ""), "{variable:?}: {done:?}");
        assert!(done.stderr.contains(part) && done.stderr.ends_with("on the CPU: --device cpu\n"), "{done:?}");
    }
}

#[test]
fn a_driver_gets_ptx_that_it_reads() {
    let arguments = ["--device", "cuda", "--problem", "matvec", "--m=2", "--k=3"];
    for (version, arch) in [("11080", "sm_80"), ("12000", "sm_90a"), ("13000", "sm_90a")] {
        let done = run_on_fake_driver(("FAKE_CUDA_VERSION", version), &arguments);
        assert!(done.stdout.contains(&format!("PTX for {arch}\n")), "{version}: {done:?}");
    }
}

#[test]
fn checks_are_for_the_cpu() {
    let arguments = ["--check", "--problem", "matvec", "--m=2", "--k=3", "--runs=1"];
    let done = run_on_fake_driver(("FAKE_CUDA", ""), &arguments);
    assert_eq!((done.code, done.stderr.as_str()), (Some(0), ""), "{done:?}");
    let lines: Vec<_> = done.stdout.lines().collect();
    assert!(lines[0].starts_with("No GPU is used: --check") && lines[1].starts_with("tilewright "), "{done:?}");
    assert!(done.stdout.contains("checks: full"), "{done:?}");
    for device in ["cuda", "cuda:0"] {
        let done = run_on_fake_driver(("FAKE_CUDA", ""), &[&arguments[..], &["--device", device]].concat());
        assert_eq!((done.code, done.stdout.as_str()), (Some(2), ""), "{done:?}");
        assert!(done.stderr.contains("leave out --check, or choose --device cpu"), "{done:?}");
    }
    refused(&["--check", "--ptx", "x.ptx"], &["--ptx is for GPUs, and --check for the CPU executor"]);
}

#[test]
fn json_has_everything_that_the_table_has() {
    let report =
        json(&small(&["--check", "--seed", "7", "--trans-a", "--trans-b", "--alpha=2", "--beta=-0.5", "--ldc=40"]));
    assert_eq!((&report["device"]["kind"], &report["device"]["checks"]), (&"cpu".into(), &"full".into()));
    assert_eq!((&report["seed"], &report["note"]), (&7.into(), &Value::Null));
    assert!(report["date"].as_str().unwrap().ends_with('Z'), "{}", report["date"]);
    let [problem] = &report["problems"].as_array().unwrap()[..] else { panic!("one problem: {report}") };
    for (field, value) in [("problem", "large-k"), ("layout", "TT")] {
        assert_eq!(problem[field], value);
    }
    for (field, value) in [("m", 17), ("n", 33), ("k", 40)] {
        assert_eq!(problem[field], value);
    }
    assert_eq!((&problem["alpha"], &problem["beta"]), (&2.0.into(), &(-0.5).into()));
    assert_eq!(problem["leading_dimensions"], Value::from(vec![17, 40, 40]));
    let results = problem["results"].as_array().unwrap();
    let (planned, rungs) = results.split_last().unwrap();
    assert_eq!(rungs.iter().map(|result| result["kernel"].as_str().unwrap()).collect::<Vec<_>>(), GEMM_KERNELS);
    assert!(rungs.iter().all(|result| result["precision"] == "fp32-strict"), "{report}");
    assert_eq!((&planned["kernel"], &planned["precision"]), (&"gemm_mma_tt_fp32_3xtf32".into(), &"fp32".into()));
    for result in results {
        assert_eq!((&result["timing"]["runs"], &result["splits"]), (&2.into(), &1.into()));
        assert_eq!((&result["explanation"], &result["workspace_bytes"]), (&Value::Null, &0.into()));
        for field in ["median_ms", "min_ms", "p90_ms", "max_ms"] {
            assert!(result["timing"][field].as_f64().unwrap() > 0.0, "{field}: {result}");
        }
        for field in ["first_call_ms", "download_ms", "tflop_per_s", "tb_per_s"] {
            assert!(result[field].as_f64().unwrap() >= 0.0, "{field}: {result}");
        }
        let check = &result["check"];
        assert_eq!((&check["passed"], &check["elements"]), (&true.into(), &(17 * 33).into()));
        for (error, bound) in [("frobenius_error", "frobenius_bound"), ("max_error", "max_bound")] {
            let (error, bound) = (check[error].as_f64().unwrap(), check[bound].as_f64().unwrap());
            assert!(0.0 < error && error <= bound, "{check}");
        }
        assert!(check["worst"]["row"].as_u64().unwrap() < 17 && check["worst"]["col"].as_u64().unwrap() < 33);
    }
}

#[test]
fn a_precision_is_planned_and_explained() {
    let arguments = small(&["--precision", "tf32", "--splits", "2", "--batch", "3", "--explain"]);
    let text = succeed(&arguments);
    for part in [
        "Plan for 3 times m=17 n=33 k=40",
        "precision  tf32: operands rounded to TF32",
        "kernel     gemm_mma_nn_tf32",
        "sums divided among 2",
        "step 2     add up the partial sums",
        "its precision is fp32-strict, and tf32 is asked for",
        "batch=3",
        "bounds for tf32",
        "All 1 checks passed",
    ] {
        assert!(text.contains(part), "{text} does not say {part:?}");
    }
    let report = json(&arguments);
    let problem = &report["problems"][0];
    let [result] = &problem["results"].as_array().unwrap()[..] else { panic!("one result: {report}") };
    assert_eq!((&problem["batch"], &result["check"]["elements"]), (&3.into(), &(3 * 17 * 33).into()));
    assert_eq!((&result["precision"], &result["splits"]), (&"tf32".into(), &2.into()));
    // Rows of partial sums take the place of a multiple of four elements.
    assert_eq!(result["workspace_bytes"], 4 * 2 * 3 * 17 * 36);
    assert_eq!(result["explanation"]["kernel"], "gemm_mma_nn_tf32");
    assert_eq!(result["explanation"]["reason"]["by"], "ladder");
}

/// An operation heeds the flags that products do, or refuses them.
#[test]
fn an_operation_runs_as_products_do() {
    let arguments = ["run", "--op", "rms-norm", "--sizes", "rows=3,cols=40", "--check", "--seed", "5"];
    let text = succeed(&arguments);
    for part in ["checks: full", "Seed 5. Every element", "| rms-norm  | rows=3,cols=40 |", "All 1 checks passed"] {
        assert!(text.contains(part), "{text} does not say {part:?}");
    }
    let report = json(&arguments);
    assert_eq!((&report["problems"], &report["inputs"]), (&Value::Array(Vec::new()), &Value::Null));
    let [operation] = &report["operations"].as_array().unwrap()[..] else { panic!("one operation: {report}") };
    assert_eq!((&operation["operation"], &operation["passed"]), (&"rms-norm".into(), &true.into()));
    assert_eq!((&operation["sizes"], &operation["elements"]), (&"rows=3,cols=40".into(), &120.into()));
    refused(&["--op", "rms-norm", "--m", "4"], &["--op <NAME>", "--m <COUNT>"]);
    refused(&["--op", "rms-norm", "--ptx", "/nonexistent/x.ptx"], &["cannot read /nonexistent/x.ptx"]);
    refused(&["--op", "rms-nurm"], &["there is no operation `rms-nurm` (did you mean `rms-norm`, "]);
}

/// Nothing to compute is as good as any other product.
#[test]
fn a_batch_of_no_products_passes() {
    let report = json(&small(&["--batch", "0"]));
    let problem = &report["problems"][0];
    assert_eq!((&problem["batch"], problem["results"].as_array().unwrap().len()), (&0.into(), 5));
    assert!(problem["results"].as_array().unwrap().iter().all(|result| result["check"]["elements"] == 0));
}

#[test]
fn what_a_plan_cannot_do_is_refused_with_the_reason() {
    let refused = |more: &[&'static str], parts: &[&str]| refused(&small(more), parts);
    refused(
        &["--kernel", "gemm_mma_nt_tf32"],
        &["gemm_mma_nt_tf32", "B stored column-major", "B is row-major", "nn_tf32"],
    );
    refused(
        &["--kernel", "gemm_mma_nn_tf32", "--precision", "fp32"],
        &["its precision is tf32", "choose precision tf32"],
    );
    refused(&["--kernel", "gemm_wgmma_packed_short_fp32_3xfp16"], &["multiple of 4"]);
    refused(&["--kernel", "gemm_tiled_16_fp32", "--splits", "2"], &["has no split-K"]);
    refused(&["--precision", "fp32-strict", "--splits", "4000"], &["no kernel computes", "4000 splits are asked for"]);
    refused(&["--splits", "0"], &["splits is 0", "at least one"]);
    refused(&["--precision", "fp64"], &["fp64", "fp32-strict"]);
    refused(&["--batch", "2147483648"], &["batch is 2147483648"]);
    refused(&["--arch", "sm_80"], &["--arch is for GPUs"]);
}

#[test]
fn tables_are_of_one_gpu_and_made_on_one() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("table.json");
    let table = path.to_str().unwrap();
    refused(&[&SMALL, &["--table", table][..]].concat(), &["cannot read", table]);
    fs::write(&path, "{}").unwrap();
    refused(&[&SMALL, &["--table", table][..]].concat(), &["is no table of measured times", "schema"]);
    let content = r#"{"schema": 1, "gpu": "NVIDIA H200", "driver": "", "version": "", "date": "", "entries": []}"#;
    fs::write(&path, content).unwrap();
    refused(
        &[&SMALL, &["--table", table][..]].concat(),
        &["the table is of NVIDIA H200", "tilewright tune", "leave out --table"],
    );
    assert!(succeed(&small(&["--table", "none"])).contains("All 5 checks passed"));

    refused(&["tune", "--device", "cpu", "--output", table], &["needs one"]);
    refused(&["tune", "--output", table], &["no CUDA driver"]);
    refused(&["tune"], &["--output"]);
    refused(
        &["tune", "--op", "scale", "--output", table],
        &["`scale` has nothing to tune", "gemv, gemm-fp32-rounded, gemm-fp32-ozaki, gemm-fp32-strict"],
    );
    refused(&["tune", "--op", "gemw", "--output", table], &["there is no operation `gemw` (did you mean `gemv`, `"]);
    refused(&["tune", "--op", "gemv", "--precision", "tf32", "--output", table], &["cannot be used with"]);
    refused(&["tune", "--op", "gemv", "--output", table], &["no CUDA driver"]);
    assert_eq!(fs::read_to_string(&path).unwrap(), content);
}

/// The system refuses to write to any file, as where a disk is full: a new file comes into being, and stays empty.
#[test]
fn where_nothing_can_be_written_an_older_report_stays_whole() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("report.json");
    fs::write(&path, "older").unwrap();
    let arguments = [&SMALL, &["--json", path.to_str().unwrap()][..]].concat();
    let with_room = program(&arguments);
    let mut command = Command::new("sh");
    command.args(["-c", "trap '' XFSZ; ulimit -f 0; exec \"$@\"", "sh"]).arg(with_room.get_program());
    command.args(with_room.get_args());
    for (name, value) in with_room.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    let done = done(command);
    assert_eq!(done.code, Some(2), "{done:?}");
    assert!(done.stdout.contains("All 5 checks passed"), "what was found is shown all the same: {done:?}");
    assert!(done.stderr.contains(&format!("cannot write {}: File too large", path.display())), "{done:?}");
    assert_eq!(fs::read_to_string(&path).unwrap(), "older");
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1, "a temporary file is left");

    assert_eq!(run(&arguments).code, Some(0));
    assert!(fs::read_to_string(&path).unwrap().starts_with('{'));
}

#[test]
fn the_seed_decides_the_inputs() {
    let error = |seed: &'static str| {
        let report = json(&small(&["--seed", seed, "--kernel", "gemm_naive_1d_fp32"]));
        report["problems"][0]["results"][0]["check"]["frobenius_error"].as_f64().unwrap()
    };
    assert_eq!(error("1"), error("1"));
    assert_ne!(error("1"), error("2"));
}

#[test]
fn unknown_names_are_answered_with_the_nearest() {
    refused(&["--problem", "mat-vec"], &["unknown problem `mat-vec`", "did you mean `matvec`?"]);
    refused(&["--kernel", "gemm_tiled_64_fp32"], &["unknown kernel `gemm_tiled_64_fp32`", "did you mean `gemm_tiled_"]);
    refused(&["--devize", "cpu"], &["--devize", "--device"]);
    refused(&["--device", "gpu"], &["gpu", "cuda"]);
}

#[test]
fn bad_sizes_are_refused_with_their_values_and_nothing_is_written() {
    let directory = TempDir::new().unwrap();
    let file = directory.path().join("report.json");
    fs::write(&file, "old").unwrap();
    let cases: [(&[&str], &[&str]); 12] = [
        (&["--m", "2147483648"], &["m is 2147483648", "2147483647"]),
        (&["--k", "99999999999999999999"], &["99999999999999999999"]),
        (&["--n", "-1"], &["-1"]),
        (
            &["--m", "2147483647", "--n", "1", "--k", "2147483647"],
            &["A", "2147483647", "more bytes than can be addressed"],
        ),
        (
            &["--m", "2000000", "--n", "1", "--k", "2000000"],
            &["not enough memory on the host", "TiB are needed", "are free", "--m, --n and --k"],
        ),
        (&["--m", "8", "--n", "8", "--k", "9", "--lda", "8"], &["leading dimension of A is 8", "9"]),
        (
            &["--kernel", "gemv_block_reduction_fp32", "--n", "2"],
            &["gemv_block_reduction_fp32", "n must be at most 1, but n is 2"],
        ),
        (&["--runs", "0"], &["runs is 0"]),
        (&["--runs", "18446744073709551615"], &["1000000", "runs is 18446744073709551615"]),
        (&["--alpha", "nan"], &["alpha is NaN in fp32", "finite"]),
        (&["--beta=-inf"], &["beta is -inf in fp32", "finite"]),
        (&["--beta", "1e39"], &["beta is inf in fp32", "3.4028235e38"]),
    ];
    for (arguments, parts) in cases {
        let always = ["--device", "cpu", "--problem", "large-k", "--json", file.to_str().unwrap()];
        refused(&[&always, arguments].concat(), parts);
        assert_eq!(entries(directory.path()), ["report.json"], "{arguments:?}");
        assert_eq!(fs::read_to_string(&file).unwrap(), "old", "{arguments:?}");
    }
}

#[test]
fn json_that_cannot_be_written_is_refused_before_the_run() {
    let directory = TempDir::new().unwrap();
    let file = directory.path().join("file");
    fs::write(&file, "").unwrap();
    let missing = directory.path().join("missing").join("report.json");
    let in_a_file = file.join("report.json");
    for path in [directory.path(), &missing, &in_a_file] {
        let path = path.to_str().unwrap();
        refused(&[&SMALL, &["--json", path][..]].concat(), &["cannot write", path]);
    }
    assert_eq!(entries(directory.path()), ["file"]);
}

#[test]
fn a_file_that_is_no_ptx_is_refused_even_without_a_gpu() {
    let directory = TempDir::new().unwrap();
    let path = |name: &str, content: &[u8]| {
        let path = directory.path().join(name);
        fs::write(&path, content).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let garbage = path("garbage.ptx", b"\x7fELF\xff\xfe");
    refused(&["--ptx", &garbage], &["garbage.ptx is not PTX", "not text", "cargo xtask build-ptx"]);
    let empty = path("empty.ptx", b"");
    refused(&["--ptx", &empty], &["empty.ptx is not PTX", ".version"]);
    refused(&["--ptx", "/nonexistent/x.ptx"], &["cannot read /nonexistent/x.ptx"]);
    // What looks like PTX needs a GPU: there is no going on without one if it is asked for.
    let plausible = path("plausible.ptx", b".version 7.0\n.target sm_80\n");
    refused(&["--ptx", &plausible], &["no CUDA driver", "/nonexistent/libcuda.so.1", "Install the NVIDIA driver"]);
    refused(&["--ptx", &plausible, "--device", "cpu"], &["--ptx", "CPU executor"]);
    refused(&["--device", "cuda"], &["no CUDA driver"]);
}

#[test]
fn lists_and_helps() {
    let list = succeed(&["--list"]);
    for name in ["matvec", "large-k", "at-b", "a-bt", "gemv_block_reduction_fp32"].iter().chain(&GEMM_KERNELS) {
        assert!(list.contains(name), "{list} does not have {name}");
    }
    let help = succeed(&["--help"]);
    for flag in [
        "--json",
        "--problem",
        "--kernel",
        "--m",
        "--n",
        "--k",
        "--trans-a",
        "--trans-b",
        "--runs",
        "--seed",
        "--device",
        "--list",
        "--check",
        "--ptx",
        "--arch",
        "--precision",
        "--splits",
        "--batch",
        "--explain",
        "--table",
        "--time-limit",
    ] {
        assert!(
            help.contains(&format!("{flag} ")) || help.contains(&format!("{flag}\n")),
            "{help} does not have {flag}"
        );
    }
    assert!(succeed(&["run", "--help"]).contains("--json"));
    assert_eq!(succeed(&["--version"]), format!("tilewright {}\n", env!("CARGO_PKG_VERSION")));
}

#[test]
fn a_closed_standard_output_is_no_reason_to_panic() {
    for arguments in [&["--list"][..], &["--help"], &SMALL] {
        let mut child =
            program(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the program runs");
        drop(child.stdout.take()); // as `| head -0` would
        let output = child.wait_with_output().unwrap();
        let errors = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.code() == Some(0) && errors.is_empty(), "{arguments:?}: {}: {errors}", output.status);
    }
}

#[test]
fn the_program_does_not_load_a_driver() {
    let output =
        Command::new("ldd").arg(program(&[]).get_program()).output().expect("ldd is part of the C library's tools");
    let libraries = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success() && libraries.contains("libc.so"), "{libraries}");
    assert!(!libraries.contains("cuda"), "{libraries}");
}

/// A full disk behind the standard output: what was computed cannot be read, so it did not go well.
#[test]
fn a_standard_output_without_room_is_an_error() {
    for arguments in [&["--list"][..], &SMALL] {
        let mut command = program(arguments);
        command.stdout(fs::OpenOptions::new().write(true).open("/dev/full").unwrap());
        let done = done(command);
        assert_eq!(done.code, Some(2), "{done:?}");
        assert!(done.stderr.contains("cannot write to the standard output: No space left on device"), "{done:?}");
    }
}

/// A stand-in for `compute-sanitizer`, which reports every planted fault and nothing else, and runs no program: that, the tests of
/// the module itself show with more of them.
const COMPUTE_SANITIZER: &str = r#"#!/bin/sh
if [ "$1" = --version ]; then echo 'Version 2025.3.1.0'; exit 0; fi
tool=$2 log=$6
shift 7
errors=0
case "$*" in
    planted*) errors=1; echo "=========     at planted_$(echo $2 | tr - _)+0x110" >> "$log";;
esac
if [ $tool = racecheck ]; then echo "========= RACECHECK SUMMARY: $errors hazards displayed ($errors errors, 0 warnings)" >> "$log"
else echo "========= ERROR SUMMARY: $errors errors" >> "$log"; fi
[ $errors = 0 ] || exit 86
"#;

#[test]
fn sanitize_runs_every_tool_and_says_how_it_went() {
    let directory = TempDir::new().unwrap();
    let write = |name: &str, script: &str| {
        let path = directory.path().join(name);
        fs::write(&path, script).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        // Another test may just have begun a process that still has it open for writing.
        while Command::new(&path).arg("--version").output().is_err() {
            std::thread::yield_now();
        }
        path
    };
    let right = write("right", COMPUTE_SANITIZER);
    let silent = write("silent", &COMPUTE_SANITIZER.replace("errors=1", "errors=0"));
    let output = directory.path().join("report.json");
    let sanitize = |tool: &Path, more: &[&str]| {
        let tool = tool.to_str().unwrap();
        let arguments = ["sanitize", "--compute-sanitizer", tool, "--output", output.to_str().unwrap()];
        run_on_fake_driver(("FAKE_CUDA", ""), &[&arguments, more].concat())
    };
    let two = ["--kernel", "gemm_tiled_16_fp32", "--kernel", "gemm_wgmma_nt_tf32"];
    let done = sanitize(&right, &two);
    assert_eq!((done.code, done.stderr.as_str()), (Some(0), ""), "{done:?}");
    let report: Value = serde_json::from_str(&fs::read_to_string(&output).unwrap()).unwrap();
    let tools: Vec<_> = report["tools"].as_array().unwrap().iter().map(|tool| tool["tool"].as_str().unwrap()).collect();
    assert_eq!(tools, ["memcheck", "racecheck", "synccheck", "initcheck"]);
    assert_eq!(report["tools"][3]["left_out"], Value::from(vec!["gemm_wgmma_nt_tf32"]));
    assert_eq!(report["compute_sanitizer_version"], "2025.3.1.0");
    assert_eq!(done.stdout.lines().filter(|line| line.contains(" ok ")).count(), 4, "{done:?}");

    let done = sanitize(&silent, &[&two[..], &["--tool", "racecheck"]].concat());
    assert_eq!((done.code, done.stderr.as_str()), (Some(1), ""), "{done:?}");
    assert!(done.stdout.contains("NOT REPORTED") && done.stdout.contains("planted_race_in_shared_memory"), "{done:?}");

    for (tool, more, part) in [
        (&right, &["--tool", "memchek"][..], "did you mean `memcheck`, "),
        (&right, &["--kernel", "gemm"], "unknown kernel `gemm`"),
        (&right, &["--device", "cpu"], "tilewright run --check"),
        (&right, &["--tool-limit", "0"], "--tool-limit"),
        (&directory.path().join("missing"), &[], "missing: No such file or directory"),
        (&right, &["--output", "/no/such/directory/report.json"], "cannot be used multiple times"),
    ] {
        let done = sanitize(tool, more);
        assert!(done.code == Some(2) && done.stdout.is_empty() && done.stderr.contains(part), "{more:?}: {done:?}");
    }
    // Without a GPU there is nothing to look at.
    let arguments = ["sanitize", "--compute-sanitizer", right.to_str().unwrap()];
    refused(&arguments, &["no CUDA driver"]);
}

/// A kernel that traps or never ends on a GPU. While the driver waits for it for ever, the program can still be ended.
#[test]
fn planted_faults_end_as_they_should() {
    let done = run_on_fake_driver(("FAKE_CUDA", ""), &["planted", "trap", "--device", "cuda"]);
    assert_eq!(done.code, Some(1), "{done:?}");
    assert!(done.stderr.contains("only `planted_trap` had not been waited for"), "{done:?}");
    let endless = ["planted", "endless", "--device", "cuda", "--time-limit", "1"];
    let done = run_on_fake_driver(("FAKE_CUDA", ""), &endless);
    assert_eq!(done.code, Some(124), "{done:?}");
    // It was told to end before it was made to.
    assert!(done.stderr.contains("interrupted") && done.stderr.contains("not finished after 1 s"), "{done:?}");
}

/// Where a GPU is lost in a run, the program says so, and which kernel may have been the cause; its exit code is that of a kernel
/// which did something wrong.
#[test]
fn a_lost_gpu_is_reported_with_the_kernel() {
    let arguments =
        ["--device", "cuda", "--kernel", "gemm_naive_1d_fp32", "--problem", "large-k", "--m=2", "--n=2", "--k=3"];
    for function in ["cuEventSynchronize", "cuEventElapsedTime", "cuLaunchKernelEx"] {
        let done = run_on_fake_driver(("FAKE_CUDA", &format!("{function}=719")), &arguments);
        assert_eq!(done.code, Some(1), "{function}: {done:?}");
        assert!(done.stderr.contains("context is lost") && done.stderr.contains("start the program again"), "{done:?}");
    }
}
