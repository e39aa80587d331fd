//! Machine code in a kernel set: when it is taken in place of PTX, when it is not, and what is said of damaged one. On the driver that
//! only pretends, the one of `cuda_driver`'s tests, as a new one and as old ones.
//!
//! A process opens a driver's library only once, so each test runs in processes of its own.

#[path = "../../cuda-driver/tests/driver/fake_library.rs"]
mod fake_library;
#[path = "../../cuda-driver/tests/driver/isolated.rs"]
mod isolated;

use std::path::PathBuf;
use std::process::Command;
use std::sync::LazyLock;

use cuda_driver::LIBRARY_VARIABLE;
use cuda_std::{KernelFacts, KernelSource};
use miniz_oxide::deflate::compress_to_vec_zlib;
use tilewright_runtime::{Device, Error, KernelSet};

static LIBRARY: LazyLock<PathBuf> = LazyLock::new(|| fake_library::compile("libcuda_fake_cubins.so", &[]));

fn isolated(test: &str, variables: &[(&str, &str)], body: fn()) {
    let prepare = |command: &mut Command| {
        command.env(LIBRARY_VARIABLE, &*LIBRARY).envs(variables.iter().copied());
    };
    isolated::isolated(test, prepare, body);
}

const KERNEL: KernelFacts =
    KernelFacts { source: KernelSource { crate_name: "kernels", digest: None }, ..KernelFacts::new("scale") };

/// The kernel for the fake driver. The shared memory tells where it has been taken from.
fn ptx(arch: &str, shared_bytes: u32) -> String {
    format!(
        ".version 7.4\n.target {arch}\n.visible .entry scale() .reqntid 32 {{\n.shared .align 4 .b8 TILE[{shared_bytes}];\n}}\n"
    )
}

/// Machine code for the fake driver.
fn cubin(shared_bytes: u32) -> Vec<u8> {
    let mut header = b"\x7fELF".to_vec();
    header.resize(54, 0);
    [&header[..], b"fake cubin", ptx("sm_90a", shared_bytes).as_bytes(), b"\0"].concat()
}

/// A set with PTX for sm_80 and sm_90a, and machine code for some architectures, each compressed and from the PTX that fits.
fn set(cubins: &[(&'static str, Vec<u8>)]) -> &'static KernelSet {
    fn leak<T>(items: Vec<T>) -> &'static [T] {
        items.leak()
    }
    let ptx_of = |arch, bytes| (arch, leak(vec![("scale", &*ptx(arch, bytes).leak())]));
    let cubins = cubins.iter().map(|(arch, compressed)| {
        let ptx_arch = if *arch == "sm_90a" { "sm_90a" } else { "sm_80" };
        (ptx_arch, *arch, leak(vec![("scale", leak(compressed.clone()))]))
    });
    let ptx = leak(vec![ptx_of("sm_80", 80), ptx_of("sm_90a", 90)]);
    Box::leak(Box::new(KernelSet::embedded("kernels", None, Ok(ptx), leak(cubins.collect()))))
}

/// Machine code for three architectures, all of it in order.
fn whole() -> &'static KernelSet {
    let compressed = |bytes| compress_to_vec_zlib(&cubin(bytes), 9);
    set(&[("sm_80", compressed(1080)), ("sm_86", compressed(1086)), ("sm_90a", compressed(1090))])
}

/// From where the kernel is loaded: the architecture of its machine code, if it is that, and the shared memory.
fn loaded(set: &'static KernelSet) -> Result<(Option<&'static str>, u32), Error> {
    let device = Device::cuda(0, &[set])?;
    let kernel = device.prepare(&KERNEL)?.unwrap();
    assert_eq!(device.prepare(&KERNEL)?.unwrap(), kernel, "it is ready already");
    assert_eq!(device.loaded_kernels(), std::slice::from_ref(&kernel));
    Ok((kernel.cubin, kernel.static_shared_bytes))
}

#[test]
fn machine_code_for_the_gpu_is_taken_in_place_of_ptx() {
    isolated("machine_code_for_the_gpu_is_taken_in_place_of_ptx", &[], || {
        assert_eq!(loaded(whole()).unwrap(), (Some("sm_90a"), 1090));
        assert_eq!(loaded(set(&[])).unwrap(), (None, 90), "there is none");
        // Who asks for the portable kernels gets no machine code of others.
        let device = Device::cuda_with_arch(0, &[whole()], Some("sm_80")).unwrap();
        let portable = device.prepare(&KERNEL).unwrap().unwrap();
        assert_eq!((portable.arch.as_str(), portable.cubin, portable.static_shared_bytes), ("sm_80", None, 80));
    });
}

#[test]
fn a_gpu_takes_the_nearest_machine_code_of_its_generation() {
    for capability in ["8.0", "8.9", "12.0"] {
        let variables = [("FAKE_CUDA_CAPABILITY", capability)];
        isolated("a_gpu_takes_the_nearest_machine_code_of_its_generation", &variables, || {
            let expected = match &*std::env::var("FAKE_CUDA_CAPABILITY").unwrap() {
                "8.0" => (Some("sm_80"), 1080),
                "8.9" => (Some("sm_86"), 1086),
                _ => (None, 80),
            };
            assert_eq!(loaded(whole()).unwrap(), expected);
        });
    }
}

#[test]
fn a_driver_that_refuses_machine_code_gets_ptx() {
    // INVALID_IMAGE, NO_BINARY_FOR_GPU, INVALID_PTX, UNSUPPORTED_PTX_VERSION, INVALID_SOURCE.
    for code in ["200", "209", "218", "222", "300"] {
        for refusal in [code.to_owned(), format!("lazily,{code}")] {
            let variables = [("FAKE_CUDA_CUBINS", &*refusal)];
            isolated("a_driver_that_refuses_machine_code_gets_ptx", &variables, || {
                assert_eq!(loaded(whole()).unwrap(), (None, 90));
            });
        }
    }
}

#[test]
fn what_is_wrong_with_the_gpu_is_reported() {
    // OUT_OF_MEMORY, OPERATING_SYSTEM, UNKNOWN.
    for code in ["2", "304", "999"] {
        for refusal in [code.to_owned(), format!("lazily,{code}")] {
            let variables = [("FAKE_CUDA_CUBINS", &*refusal)];
            isolated("what_is_wrong_with_the_gpu_is_reported", &variables, || {
                let refusal = std::env::var("FAKE_CUDA_CUBINS").unwrap();
                let code: u32 = refusal.trim_start_matches("lazily,").parse().unwrap();
                let error = loaded(whole()).unwrap_err();
                let Error::Driver(cuda_driver::Error::Call { call }) = &error else { panic!("{error}") };
                assert_eq!(call.code, code);
            });
        }
    }
}

/// Every bit of it turned over, and every part of it left out: the driver gets what `ptxas` wrote, or nothing.
#[test]
fn damaged_machine_code_is_an_error_that_says_so() {
    isolated("damaged_machine_code_is_an_error_that_says_so", &[], || {
        let compressed = compress_to_vec_zlib(&cubin(1090), 9);
        let flipped = (0..8 * compressed.len()).map(|bit| {
            let mut damaged = compressed.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            damaged
        });
        let cut = (0..compressed.len()).map(|length| compressed[..length].to_vec());
        let mut found = 0;
        for damaged in flipped.chain(cut) {
            match loaded(set(&[("sm_90a", damaged)])) {
                Err(error @ Error::DamagedCubin { .. }) => {
                    let text = error.to_string();
                    assert!(
                        ["`scale`", "sm_90a", "is damaged", "build the program again"]
                            .iter()
                            .all(|it| text.contains(it)),
                        "{text}"
                    );
                    found += 1;
                }
                // A bit that says nothing, such as those that fill the last byte of the compressed data.
                other => assert_eq!(other.unwrap(), (Some("sm_90a"), 1090)),
            }
        }
        assert!(found > 8 * compressed.len(), "{found} of {}", 9 * compressed.len());
    });
}
