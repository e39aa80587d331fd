//! `tilewright bench` on a machine without a GPU: what it refuses, and what needs none.

use std::process::Output;

use tests::program;

fn bench(arguments: &[&str]) -> Output {
    let all: Vec<&str> = ["bench"].iter().chain(arguments).copied().collect();
    program(&all).output().expect("the program runs")
}

/// What the program complains about, having refused to run.
fn refusal(arguments: &[&str]) -> String {
    let output = bench(arguments);
    let message = String::from_utf8(output.stderr).expect("the program writes text");
    assert_eq!(output.status.code(), Some(2), "{arguments:?}: {message}");
    assert!(output.stdout.is_empty(), "{arguments:?}");
    message
}

#[test]
fn without_a_gpu_there_is_nothing_to_measure() {
    let message = refusal(&[]);
    assert!(message.starts_with("error: no CUDA driver: cannot use /nonexistent/libcuda.so.1"), "{message}");
    let message = refusal(&["--device", "cpu"]);
    assert!(message.starts_with("error: a benchmark needs a CUDA GPU: the CPU executor"), "{message}");
}

#[test]
fn flags_that_make_no_sense_are_refused_before_a_gpu_is_looked_for() {
    for (arguments, expected) in [
        (&["--suite", "target"][..], "did you mean `targets`?"),
        (&["--problem", "matvek"], "did you mean `matvec`?"),
        (&["--problem", "matvec", "--precision", "bf16"], "nothing is left to measure"),
        (&["--kernel", "gemm_tiled_23_fp32"], "did you mean `gemm_tiled_32_fp32`?"),
        (&["--m", "7"], "--n"),
        (&["--m", "7", "--n", "0", "--k", "7"], "n is 0"),
        (&["--runs", "0"], "--runs"),
        (&["--inputs", "normal"], "log-uniform"),
        (&["--precision", "fp64"], "fp32-normwise"),
        (&["--layout", "NN"], "--m"),
    ] {
        let message = refusal(arguments);
        assert!(message.contains(expected) && !message.contains("CUDA driver"), "{arguments:?}: {message}");
    }
}

#[test]
fn the_script_for_torch_is_python() {
    let output = bench(&["--print-torch-script"]);
    assert_eq!(output.status.code(), Some(0));
    let script = String::from_utf8(output.stdout).unwrap();
    assert!(
        script.starts_with("\"\"\"") && script.contains("import torch") && script.ends_with("main()\n"),
        "{script}"
    );
}
