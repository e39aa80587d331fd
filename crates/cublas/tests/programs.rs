//! Programs that multiply by cuBLAS, with the library loaded before everything else. A cuBLAS that computes on the host stands in for NVIDIA's, and
//! the CPU executor for the GPU, or the fake driver of `cuda_driver`'s tests.

#![cfg(all(target_os = "linux", target_env = "gnu", target_arch = "x86_64"))]

#[path = "../../cuda-driver/tests/driver/fake_library.rs"]
mod fake_library;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::LazyLock;

/// The functions that the library stands in for, and nothing else.
const EXPORTED: [&str; 18] = [
    "cublasGemmBatchedEx",
    "cublasGemmBatchedEx_64",
    "cublasGemmEx",
    "cublasGemmEx_64",
    "cublasGemmStridedBatchedEx",
    "cublasGemmStridedBatchedEx_64",
    "cublasLtMatmul",
    "cublasSgemmBatched",
    "cublasSgemmBatched_64",
    "cublasSgemmEx",
    "cublasSgemmEx_64",
    "cublasSgemmStridedBatched",
    "cublasSgemmStridedBatched_64",
    "cublasSgemm_v2",
    "cublasSgemm_v2_64",
    "cublasSgemv_v2",
    "cublasSgemv_v2_64",
    "dlsym",
];

/// The folder with the two fake libraries and the two programs, compiled once. Other processes may do the same at the same time.
static COMPILED: LazyLock<PathBuf> = LazyLock::new(|| {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let building = tempfile::tempdir_in(target).unwrap();
    let path = |name: &str| building.path().join(name);
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/program");
    for (library, options) in [("libcublasLt", &["--cfg", "lt"][..]), ("libcublas", &[])] {
        let (archive, name, map) = (path("archive.a"), format!("{library}.so.12"), path("versions"));
        run(Command::new("rustc")
            .args(["--edition=2024", "--crate-type=staticlib", "--crate-name=fake", "-O", "-Cpanic=abort"])
            .args(["--check-cfg=cfg(lt)", "-Awarnings"])
            .args(options)
            .arg("-o")
            .args([&archive, &sources.join("fake_cublas.rs")]));
        // With versions of symbols, as NVIDIA has them.
        fs::write(&map, format!("{name} {{ global: cublas*; fake_*; local: *; }};")).unwrap();
        run(Command::new("cc")
            .args(["-shared", "-o"])
            .arg(path(&name))
            .arg(format!("-Wl,-soname,{name}"))
            .arg(format!("-Wl,--version-script={}", map.display()))
            .args(["-Wl,--whole-archive".as_ref(), archive.as_os_str(), "-Wl,--no-whole-archive".as_ref()])
            .args(["-lpthread", "-ldl", "-lm", "-lgcc_s", "-lc"]));
        std::os::unix::fs::symlink(&name, path(&format!("{library}.so"))).unwrap();
    }
    for (program, options) in [("linked", &["--cfg", "linked"][..]), ("looking_up", &[])] {
        run(Command::new("rustc")
            .args(["--edition=2024", "--crate-name=caller", "-O", "--check-cfg=cfg(linked)", "-Awarnings"])
            .args(options)
            .arg(format!("-L{}", building.path().display()))
            .arg("-o")
            .args([&path(program), &sources.join("caller.rs")]));
    }
    // One file after the other, so that none is open for writing when somebody runs it.
    let folder = target.join("cublas-programs");
    fs::create_dir_all(&folder).unwrap();
    for name in ["libcublas.so.12", "libcublasLt.so.12", "linked", "looking_up"] {
        fs::rename(path(name), folder.join(name)).unwrap();
    }
    folder
});

fn run(command: &mut Command) -> Output {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(output.status.success(), "{command:?}:\n{}", String::from_utf8_lossy(&output.stderr));
    output
}

/// The library, which cargo has built beside this test.
fn library() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let library = test.ancestors().nth(1).unwrap().join("libtilewright_cublas.so");
    assert!(library.exists(), "{} is not there", library.display());
    library
}

/// A program with the library in front, on the CPU executor.
fn program(name: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new(COMPILED.join(name));
    for (variable, _) in std::env::vars().filter(|(variable, _)| variable.starts_with("TILEWRIGHT_")) {
        command.env_remove(variable);
    }
    command
        .args(arguments)
        .env("LD_LIBRARY_PATH", &*COMPILED)
        .env("LD_PRELOAD", library())
        .env("TILEWRIGHT_CUBLAS", "cpu")
        .env("TILEWRIGHT_VERBOSE", "1");
    command
}

/// Standard output and error of a program that has ended well.
fn ended_well(command: &mut Command) -> (String, String) {
    let output = command.output().unwrap();
    let [out, error] = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text).into_owned());
    assert!(output.status.success() && out.ends_with("done\n"), "{command:?}: {}\n{out}\n{error}", output.status);
    (out, error)
}

const BOTH: [&str; 2] = ["linked", "looking_up"];

#[test]
fn nothing_but_the_functions_that_it_stands_in_for_is_exported() {
    let output = run(Command::new("nm").args(["-D", "--defined-only", "--format=posix"]).arg(library()));
    let text = String::from_utf8(output.stdout).unwrap();
    let mut names: Vec<&str> = text.lines().filter_map(|line| line.split_whitespace().next()).collect();
    names.sort_unstable();
    assert_eq!(names, EXPORTED);
}

#[test]
fn products_are_right_and_taken() {
    for name in BOTH {
        for seed in ["1", "2", "3"] {
            let (_, error) = ended_well(&mut program(name, &["products", seed, "64"]));
            assert!(error.contains("at the end: 64 calls taken; passed on: none"), "{error}");
            assert!(error.contains("TILEWRIGHT cublasSgemm_v2_64(m="), "{error}");
        }
    }
}

#[test]
fn blocks_of_one_matrix_are_multiplied_where_they_are() {
    for name in BOTH {
        let (_, error) = ended_well(&mut program(name, &["blocks"]));
        assert!(error.contains("at the end: 16 calls taken; passed on: none"), "{error}");
    }
}

#[test]
fn threads_multiply_at_the_same_time() {
    for name in BOTH {
        let (_, error) = ended_well(&mut program(name, &["threads"]));
        assert!(error.contains("at the end: 128 calls taken; passed on: none"), "{error}");
    }
}

#[test]
fn what_is_not_taken_reaches_cublas_as_it_is() {
    for name in BOTH {
        let (_, error) = ended_well(&mut program(name, &["passed-on"]));
        for reason in [
            "cublasSgemm_v2: cuBLAS, for the handle is null",
            "cublasSgemm_v2: cuBLAS, for alpha and beta are in device memory",
            "cublasSgemm_v2: cuBLAS, for the math mode is not the default: 3",
            "cublasSgemmBatched: cuBLAS, for the matrices are given by pointers in device memory",
            "cublasGemmEx: cuBLAS, for the compute type is not CUBLAS_COMPUTE_32F: 77",
            "at the end: 1 calls taken; passed on: ",
            "4 for the math mode is not the default",
        ] {
            assert!(error.contains(reason), "{reason} is not in\n{error}");
        }
        let (_, error) = ended_well(&mut program(name, &["matmul-passed-on"]));
        for reason in [
            "another epilogue than a bias, relu and gelu is asked for: 130",
            "C is not D",
            "the compute type is not CUBLAS_COMPUTE_32F: 77",
        ] {
            assert!(error.contains(&format!("cublasLtMatmul: cuBLAS, for {reason}")), "{reason} is not in\n{error}");
        }
    }
}

#[test]
fn what_cublas_calls_itself_is_left_to_it() {
    for name in BOTH {
        let (_, error) = ended_well(&mut program(name, &["inner"]));
        // The inner call is not even shown.
        assert!(!error.contains("cublasSgemmStridedBatched"), "{error}");
    }
}

#[test]
fn functions_that_are_looked_up_are_those_of_the_library() {
    for name in BOTH {
        ended_well(&mut program(name, &["lookups"]));
    }
}

#[test]
fn children_of_a_fork_have_cublas() {
    let (_, error) = ended_well(&mut program("linked", &["forked"]));
    assert!(error.contains("cuBLAS, for this process was forked from one that has used tilewright"), "{error}");
}

#[test]
fn settings_turn_it_off_and_wrong_ones_do_not_end_a_program() {
    let (_, error) = ended_well(program("linked", &["not-taken"]).env("TILEWRIGHT_CUBLAS", "off"));
    assert!(error.contains("8 for TILEWRIGHT_CUBLAS is off"), "{error}");
    for (variable, value, says) in [
        ("TILEWRIGHT_PRECISION", "fp33", "TILEWRIGHT_PRECISION is \"fp33\": "),
        (
            "TILEWRIGHT_WORKSPACE",
            "12Q",
            "TILEWRIGHT_WORKSPACE is \"12Q\": expected bytes, such as 0, 4096 or 512M; every call goes to cuBLAS",
        ),
        ("TILEWRIGHT_MIN_GAIN", "much", "expected microseconds, or all"),
        ("TILEWRIGHT_CUBLAS", "gpu", "expected on, off or cpu"),
    ] {
        let (_, error) =
            ended_well(program("linked", &["not-taken"]).env(variable, value).env_remove("TILEWRIGHT_VERBOSE"));
        assert!(error.contains(says) && error.lines().count() == 1, "{says} is not the one line of\n{error}");
    }
    let (_, error) = ended_well(program("linked", &["products", "1", "8"]).env("TILEWRIGHT_PRECISION", "fp32-strict"));
    assert!(error.contains("at the end: 8 calls taken"), "{error}");
}

#[test]
fn without_a_driver_cublas_computes() {
    let mut command = program("linked", &["not-taken"]);
    let (_, error) =
        ended_well(command.env("TILEWRIGHT_CUBLAS", "on").env("TILEWRIGHT_LIBCUDA", "/no/such/library.so"));
    assert!(error.contains("8 for the driver") && error.contains("/no/such/library.so"), "{error}");
}

/// A program that never multiplies has nothing of it.
#[test]
fn other_programs_do_not_notice_it() {
    let output = run(Command::new("ls").arg("/").env("LD_PRELOAD", library()).env("TILEWRIGHT_VERBOSE", "1"));
    assert!(output.stderr.is_empty() && !output.stdout.is_empty());
}

/// What the driver is asked for by a program on a GPU of the fake driver, call by call, and what the library says of it.
fn on_fake_gpu(context: &str, size: &str, stream: &str, variables: &[(&str, &str)]) -> Option<(Vec<String>, String)> {
    if tilewright::device::missing_ptx().is_some() {
        println!("skipped: this build has no PTX");
        return None;
    }
    static DRIVER: LazyLock<PathBuf> = LazyLock::new(|| fake_library::compile("libcuda_cublas.so", &["-O"]));
    let mut command = program("linked", &["gpu", context, size, stream]);
    command.env("TILEWRIGHT_CUBLAS", "on").env("TILEWRIGHT_LIBCUDA", &*DRIVER).env("FAKE_CUDA_THREADS", "1024");
    let (out, error) = ended_well(command.envs(variables.iter().copied()));
    let calls = out.lines().filter(|line| line.starts_with("call ")).map(str::to_owned).collect();
    Some((calls, error))
}

/// The context of GPU 0 of the fake driver.
const PRIMARY: &str = "100";

#[test]
fn a_gpu_computes_with_memory_in_the_order_of_the_stream() {
    let packed = [("TILEWRIGHT_MIN_GAIN", "all")];
    let Some((calls, error)) = on_fake_gpu(PRIMARY, "2048", "77", &packed) else { return };
    assert!(calls.iter().all(|call| call.contains("status 0, by cuBLAS 0, ")), "{calls:#?}\n{error}");
    assert!(
        error.contains("stream 0x4d: gemm_wgmma_packed_staged_fp32_3xfp16") && error.contains("cuBLAS at least"),
        "{error}"
    );
    // From the second call on nothing is loaded, and nothing waits.
    let second = calls[1].split("driver: ").nth(1).unwrap();
    let position = |name: &str| second.find(name).unwrap_or_else(|| panic!("no {name} in {second}"));
    assert!(position("cuMemAllocFromPoolAsync") < position("cuLaunchKernel"), "{second}");
    assert!(second.rfind("cuLaunchKernel").unwrap() < position("cuMemFreeAsync"), "{second}");
    for name in ["Synchronize", "cuModuleLoad", "cuMemAlloc_v2", "cuMemFree_v2", "cuMemcpy"] {
        assert!(!second.contains(name), "{name} in {second}");
    }
}

#[test]
fn a_limit_leads_to_a_plan_without_a_workspace_or_to_cublas() {
    let limited = [("TILEWRIGHT_MIN_GAIN", "all"), ("TILEWRIGHT_WORKSPACE", "0")];
    let Some((calls, error)) = on_fake_gpu(PRIMARY, "2048", "77", &limited) else { return };
    assert!(
        calls.iter().all(|call| call.contains("by cuBLAS 0") && !call.contains("cuMemAllocFromPoolAsync")),
        "{calls:#?}"
    );
    assert!(error.contains("workspace 0 bytes") && !error.contains("packed"), "{error}");
    // The same where the GPU has no memory left: the error is nobody's.
    let failing = [("TILEWRIGHT_MIN_GAIN", "all"), ("FAKE_CUDA", "cuMemAllocFromPoolAsync=2")];
    let (calls, error) = on_fake_gpu(PRIMARY, "2048", "77", &failing).unwrap();
    assert!(calls.iter().all(|call| call.contains("status 0, by cuBLAS 0")), "{calls:#?}");
    assert!(error.contains("workspace 0 bytes") && !error.contains("packed"), "{error}");
}

#[test]
fn a_captured_stream_has_the_limit_of_captures() {
    let Some((calls, error)) = on_fake_gpu(PRIMARY, "2048", "4711", &[("TILEWRIGHT_MIN_GAIN", "all")]) else { return };
    assert!(
        calls.iter().all(|call| call.contains("by cuBLAS 0") && call.contains("cuMemAllocFromPoolAsync")),
        "{calls:#?}"
    );
    assert!(error.contains("packed"), "{error}");
    let limited = [("TILEWRIGHT_MIN_GAIN", "all"), ("TILEWRIGHT_CAPTURE_WORKSPACE", "0")];
    let (calls, _) = on_fake_gpu(PRIMARY, "2048", "4711", &limited).unwrap();
    assert!(
        calls.iter().all(|call| call.contains("by cuBLAS 0") && !call.contains("cuMemAllocFromPoolAsync")),
        "{calls:#?}"
    );
    let old = [("TILEWRIGHT_MIN_GAIN", "all"), ("FAKE_CUDA_VERSION", "12020")];
    let (calls, error) = on_fake_gpu(PRIMARY, "64", "4711", &old).unwrap();
    assert!(calls.iter().all(|call| call.contains("by cuBLAS 1")), "{calls:#?}");
    assert!(error.contains("the driver cannot load kernels while a stream is captured"), "{error}");
}

#[test]
fn where_there_is_nothing_to_gain_or_no_gpu_to_use_cublas_computes() {
    for (context, variables, reason) in [
        (PRIMARY, &[][..], "there is too little to gain: "),
        ("0", &[], "no context of CUDA is current"),
        ("555", &[("TILEWRIGHT_MIN_GAIN", "all")], "the context is not the GPU's primary one"),
        (PRIMARY, &[("FAKE_CUDA_CAPABILITY", "7.5")], "the GPU cannot be used: "),
        (
            PRIMARY,
            &[("FAKE_CUDA", "cuLaunchKernel=1,cuLaunchKernelEx=1"), ("TILEWRIGHT_MIN_GAIN", "all")],
            "tilewright cannot compute it: ",
        ),
    ] {
        let Some((calls, error)) = on_fake_gpu(context, "64", "0", variables) else { return };
        assert!(calls.iter().all(|call| call.contains("status 0, by cuBLAS 1")), "{reason}: {calls:#?}\n{error}");
        assert!(error.contains(&format!("cublasSgemm_v2: cuBLAS, for {reason}")), "{reason} is not in\n{error}");
    }
}
