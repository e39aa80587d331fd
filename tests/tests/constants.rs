//! Constants of the planner's model from end to end, on a driver that only pretends: measured, stored, found again, and refused where
//! they do not hold.

#[path = "../../crates/cuda-driver/tests/driver/fake_library.rs"]
mod fake_library;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

use tempfile::TempDir;
use tests::program;
use tilewright::device::missing_ptx;
use tilewright::plan::read_constants;

/// The driver that `cuda-driver` is tested with: it has a GPU of compute capability 9.0, on which everything takes as long.
static FAKE_DRIVER: LazyLock<PathBuf> =
    LazyLock::new(|| fake_library::compile("libcuda_fake_for_constants.so", &["-O"]));

/// What a program has done: its code, its output, its errors.
type Done = (Option<i32>, String, String);

/// Runs on the fake driver, for a user with this directory of configuration.
fn run(configuration: &Path, variable: Option<&str>, arguments: &[&str]) -> Done {
    let mut command: Command = program(arguments);
    command.env("TILEWRIGHT_LIBCUDA", &*FAKE_DRIVER).env_remove("CUDA_VISIBLE_DEVICES");
    // Some kernels take more threads than the 256 that a block otherwise has there.
    command.env("FAKE_CUDA_THREADS", "1024").env("XDG_CONFIG_HOME", configuration).env_remove("TILEWRIGHT_CONSTANTS");
    if let Some(value) = variable {
        command.env("TILEWRIGHT_CONSTANTS", value);
    }
    let output = command.output().expect("the program runs");
    let text = |bytes| String::from_utf8(bytes).expect("the program writes text");
    (output.status.code(), text(output.stdout), text(output.stderr))
}

/// What a plan is explained by, on the line of its constants.
fn constants_of_a_plan(configuration: &Path, variable: Option<&str>, more: &[&str]) -> String {
    let product = [
        "--explain",
        "--problem=large-k",
        "--kernel",
        "gemm_tiled_32_fp32",
        "--m=40",
        "--n=40",
        "--k=40",
        "--runs=1",
        "--device=cuda",
    ];
    let (_, output, errors) = run(configuration, variable, &[&product, more].concat());
    let line = output.lines().find_map(|line| line.trim_start().strip_prefix("constants"));
    line.unwrap_or_else(|| panic!("{output}{errors}")).trim().to_owned()
}

#[test]
fn constants_are_measured_stored_and_used_until_they_do_not_hold() {
    assert_eq!(missing_ptx(), None, "without PTX there is nothing to measure");
    let user = TempDir::new().unwrap();
    let stored = user.path().join("tilewright/constants/fake-gpu-132.json");
    let tune = |arguments: &[&str]| {
        run(user.path(), None, &[&["tune", "--constants", "--device=cuda", "--limit-seconds=60"], arguments].concat())
    };
    assert!(constants_of_a_plan(user.path(), None, &[]).starts_with("built in"));

    // On this GPU all products take about as long, so no plan is better than another.
    let (code, output, errors) = tune(&[]);
    assert_eq!((code, errors.as_str()), (Some(0), ""), "{output}");
    assert!(output.contains("Nothing is stored: plans by these constants are no better"), "{output}");
    assert!(!stored.exists());
    fs::create_dir_all(stored.parent().unwrap()).unwrap();
    let (code, output, errors) = tune(&["--output", stored.to_str().unwrap()]);
    assert_eq!((code, errors.as_str()), (Some(0), ""), "{output}");
    assert!(output.contains(&format!("Written to {}", stored.display())), "{output}");
    let measured = read_constants(&stored).unwrap();
    assert_eq!((measured.on.gpu.as_str(), measured.on.multiprocessors), ("Fake GPU", 132));
    assert!(!measured.constants.kernels.is_empty(), "{output}");

    let by_default = constants_of_a_plan(user.path(), None, &[]);
    assert!(by_default.contains("measured on this GPU") && by_default.contains(&measured.date), "{by_default}");
    assert!(by_default.contains("fake-gpu-132.json"), "{by_default}");
    assert!(constants_of_a_plan(user.path(), Some("none"), &[]).starts_with("built in"));
    assert!(constants_of_a_plan(user.path(), None, &["--constants", "none"]).starts_with("built in"));
    // In another place, by the variable and by the flag.
    let other = user.path().join("other.json");
    fs::copy(&stored, &other).unwrap();
    let other = other.to_str().unwrap();
    assert!(constants_of_a_plan(user.path(), Some(other), &[]).contains("other.json"));
    assert!(constants_of_a_plan(user.path(), None, &["--constants", other]).contains("other.json"));

    // Of other kernels, and no constants at all: what is stored is left alone, what is named is refused.
    let text = fs::read_to_string(&stored).unwrap();
    let of_other_kernels = text.replace(&measured.on.kernels_digest, "0123456789abcdef");
    for (content, says) in [(of_other_kernels.as_str(), "have the digest 0123456789ab"), ("{", "no file of constants")]
    {
        fs::write(&stored, content).unwrap();
        let used = constants_of_a_plan(user.path(), None, &[]);
        assert!(used.starts_with("built in") && used.contains("are not used") && used.contains(says), "{used}");
        let named = ["--explain", "--m=4", "--n=4", "--k=4", "--device=cuda", "--constants", stored.to_str().unwrap()];
        let (code, _, errors) = run(user.path(), None, &named);
        assert!(code == Some(2) && errors.contains(says) && errors.contains("--constants none"), "{errors}");
    }

    // The last one is not ours any more, so it is not replaced; what is ours is.
    let (code, output, errors) = tune(&[]);
    assert!(
        code == Some(2) && output.is_empty() && errors.contains("what is there stays as it is"),
        "{output}{errors}"
    );
    assert_eq!(fs::read_to_string(&stored).unwrap(), "{");
    fs::write(&stored, of_other_kernels).unwrap();
    assert_eq!(tune(&["--output", stored.to_str().unwrap()]).0, Some(0));
    assert!(constants_of_a_plan(user.path(), None, &[]).contains("measured on this GPU"));

    // A place that cannot be.
    let (code, _, errors) = tune(&["--output", "/no such directory/constants.json"]);
    assert!(code == Some(2) && errors.contains("No such file") && errors.contains("--output"), "{errors}");
    let file_in_the_way = user.path().join("a file");
    fs::write(&file_in_the_way, "").unwrap();
    let (code, _, errors) = run(&file_in_the_way, None, &["tune", "--constants", "--device=cuda"]);
    assert!(code == Some(2) && errors.contains("its directory cannot be made"), "{errors}");
}

#[test]
fn flags_of_constants_are_for_constants_on_a_gpu() {
    let user = TempDir::new().unwrap();
    for (arguments, says) in [
        (&["tune", "--constants", "--op", "gemv"][..], "cannot be used with"),
        (&["tune", "--limit-seconds", "3", "--output", "x"], "--constants"),
        (&["tune"], "--output"),
        (&["tune", "--constants", "--device=cpu"], "needs one"),
        (&["--constants", "/no such file", "--m=4", "--n=4", "--k=4", "--device=cpu"], "cannot read it: No such file"),
    ] {
        let (code, _, errors) = run(user.path(), None, arguments);
        assert!(code == Some(2) && errors.contains(says), "{arguments:?}: {errors}");
    }
    assert_eq!(fs::read_dir(user.path()).unwrap().count(), 0, "something was written");
}
