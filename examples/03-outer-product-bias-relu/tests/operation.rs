//! All cases on the CPU executor with all its checks, each barrier left out in turn, and what the kernel set has in it. No GPU is
//! needed.

use outer_product_bias_relu_kernels::OuterProductBiasRelu;

/// What the build script has embedded: `CRATE`, `DIGEST`, `PTX` and `CUBINS`.
#[allow(dead_code, unreachable_pub, reason = "generated for `runtime::kernel_set!`, of which one item is used here")]
mod embedded {
    include!(concat!(env!("OUT_DIR"), "/kernels.rs"));
}

#[test]
fn every_case_is_right() {
    testkit::assert_checks(&OuterProductBiasRelu);
}

#[test]
fn no_barrier_can_be_left_out() {
    testkit::assert_mutants(&OuterProductBiasRelu);
}

/// The body is a function of a library: no kernel of another crate comes with it.
#[test]
fn the_kernel_set_has_this_crates_kernel_only() {
    let archs = match embedded::PTX {
        Ok(archs) => archs,
        Err(reason) => return println!("skipped: no PTX: {reason}"),
    };
    assert_eq!(archs.len(), 1, "sm_80 is asked for, and nothing else");
    for (arch, kernels) in archs {
        let names: Vec<_> = kernels.iter().map(|(name, _)| *name).collect();
        assert_eq!(names, ["outer_product_bias_relu"], "{arch}");
        for (name, ptx) in *kernels {
            assert_eq!(ptx.matches(".entry ").count(), 1, "{name} for {arch}");
        }
    }
}
