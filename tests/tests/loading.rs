//! How a device loads kernels: on a driver that only pretends, the one of `cuda_driver`'s tests, with the real PTX.
//!
//! A process opens a driver's library only once, so each test runs in a process of its own.

mod fake_driver;

use std::cell::Cell;
use std::time::{Duration, Instant};

use cuda_driver::{TensorElement, TensorSwizzle};
use cuda_std::{ContractViolation, Dim3, Kernel, KernelFacts, View};
use gpu_kernels::gemm::Gemm;
use gpu_kernels::gemm::basic::naive_1d::gemm_naive_1d_fp32;
use gpu_kernels::gemm::basic::naive_2d::gemm_naive_2d_fp32;
use gpu_kernels::gemm::basic::tiled::gemm_tiled_32_fp32;
use gpu_kernels::{Grid, Matrix, MatrixBatch, MatrixMut};
use proptest::prelude::*;
use proptest::test_runner::{RngSeed, TestRunner};
use tilewright::device::{TensorLayout, TensorTile};
use tilewright::{Buffer, Device, DeviceError, Error, Order};

use fake_driver::isolated;

fn loaded_modules() -> u32 {
    // SAFETY: the function of this name takes nothing and returns such a number.
    let counter: extern "C" fn() -> u32 = unsafe { fake_driver::function(c"fake_loaded_modules") };
    counter()
}

/// Three buffers of 4 elements.
fn buffers(device: &Device) -> [Buffer<f32>; 3] {
    [(); 3].map(|()| device.upload(&[0.0; 4]).unwrap())
}

/// `C = A·B` of 2×2.
fn gemm([a, b, c]: &mut [Buffer<f32>; 3]) -> Gemm<'_> {
    let matrix = |view| Matrix::new(view, 2, 2, 2, 1).unwrap();
    let c = MatrixMut::new(c.view_mut(), 2, 2, 2, 1).unwrap();
    Gemm::new(1.0, matrix(a.view()), matrix(b.view()), 0.0, c).unwrap()
}

/// A kernel that the build does not have.
#[derive(Clone, Copy)]
struct Unknown;

// SAFETY: it has no arguments. There is no such entry point, which is what this is for.
unsafe impl Kernel for Unknown {
    const FACTS: KernelFacts = KernelFacts { name: "no_such_kernel", ..gemm_naive_1d_fp32::FACTS };

    fn check(&self) -> Result<(), ContractViolation> {
        Ok(())
    }

    fn visit_params(&self, _visit: &mut dyn FnMut(*const std::ffi::c_void)) {}

    fn visit_views(&self, _visit: &mut dyn FnMut(View<'_>)) {}

    unsafe fn run_thread(self) {}
}

impl Grid for Unknown {
    fn grid(&self) -> Dim3 {
        Dim3::new(1, 1, 1)
    }
}

#[test]
fn a_kernel_is_loaded_when_it_is_first_used_and_only_then() {
    isolated("a_kernel_is_loaded_when_it_is_first_used_and_only_then", &[], || {
        let device = Device::cuda(0).unwrap();
        assert_eq!((loaded_modules(), device.loaded_kernels().len()), (0, 0), "opening loads nothing");
        device.has_kernel(&gemm_naive_1d_fp32::FACTS).unwrap();
        assert_eq!(loaded_modules(), 0, "nor does asking");

        let mut buffers = buffers(&device);
        for _ in 0..3 {
            device.launch(gemm_naive_1d_fp32 { gemm: gemm(&mut buffers) }).unwrap();
            assert_eq!(loaded_modules(), 1);
        }
        let prepared = device.prepare(&gemm_naive_2d_fp32::FACTS).unwrap().unwrap();
        assert_eq!(loaded_modules(), 2);
        assert_eq!((prepared.name.as_str(), prepared.arch.as_str()), (gemm_naive_2d_fp32::NAME, "sm_90a"));
        assert!(prepared.load_time > Duration::ZERO);
        assert_eq!((prepared.registers, prepared.static_shared_bytes), (32, 0), "as the fake driver says");
        device.launch(gemm_naive_2d_fp32 { gemm: gemm(&mut buffers) }).unwrap();
        assert_eq!(device.prepare(&gemm_naive_2d_fp32::FACTS).unwrap().unwrap(), prepared, "it is ready already");
        assert_eq!(loaded_modules(), 2);
        let names: Vec<_> = device.loaded_kernels().into_iter().map(|kernel| kernel.name).collect();
        assert_eq!(names, [gemm_naive_1d_fp32::NAME, gemm_naive_2d_fp32::NAME]);
    });
}

#[test]
fn threads_that_want_the_same_kernel_load_it_once() {
    isolated("threads_that_want_the_same_kernel_load_it_once", &[], || {
        let device = Device::cuda(0).unwrap();
        std::thread::scope(|scope| {
            for turn in 0..8 {
                let device = device.clone();
                scope.spawn(move || {
                    let kernel = if turn % 2 == 0 { gemm_naive_1d_fp32::FACTS } else { gemm_tiled_32_fp32::FACTS };
                    assert_eq!(device.prepare(&kernel).unwrap().unwrap().name, kernel.name);
                });
            }
        });
        assert_eq!(loaded_modules(), 2);
    });
}

#[test]
fn a_gpu_gets_the_best_ptx_that_it_runs_or_the_one_asked_for() {
    isolated("a_gpu_gets_the_best_ptx_that_it_runs_or_the_one_asked_for", &[], || {
        let arch = |device: &Device| device.prepare(&gemm_naive_1d_fp32::FACTS).unwrap().unwrap().arch;
        let best = Device::cuda(0).unwrap();
        assert_eq!(
            (arch(&best).as_str(), best.takes_ptx_for("sm_90a"), best.takes_ptx_for("sm_80")),
            ("sm_90a", true, true)
        );
        let portable = Device::cuda_with_arch(0, "sm_80").unwrap();
        assert_eq!((arch(&portable).as_str(), portable.takes_ptx_for("sm_90a")), ("sm_80", false));
        let error = Device::cuda_with_arch(0, "sm_81").unwrap_err().to_string();
        assert!(error.contains("no PTX for `sm_81`") && error.contains("sm_80, sm_90a"), "{error}");

        let properties = best.gpu_properties().unwrap();
        assert_eq!(properties.compute_capability.to_string(), "9.0");
        assert_eq!((properties.multiprocessors, properties.limits.shared_bytes), (132, 227 << 10));
        assert!(properties.l2_bytes > 0);
        assert!(!best.raw_stream().unwrap().is_null());
        best.make_current().unwrap();
    });
}

#[test]
fn another_gpu_never_gets_code_for_hopper_alone() {
    let variables = [("FAKE_CUDA_CAPABILITY", "10.0"), ("FAKE_CUDA_VERSION", "13000")];
    isolated("another_gpu_never_gets_code_for_hopper_alone", &variables, || {
        let device = Device::cuda(0).unwrap();
        assert!(!device.takes_ptx_for("sm_90a"));
        for kernel in tilewright::kernels::ALL.iter() {
            match device.prepare(&kernel.facts) {
                Ok(loaded) => assert_eq!(loaded.unwrap().arch, "sm_80", "{}", kernel.name),
                // There is PTX of it for Hopper only.
                Err(error) => assert!(
                    matches!(&error, DeviceError::KernelForOtherGpus { available, .. } if available == "sm_90a"),
                    "{error}"
                ),
            }
        }
        let error = Device::cuda_with_arch(0, "sm_90a").unwrap_err();
        assert!(
            matches!(&error, Error::Device(DeviceError::IncapableDevice { available, .. }) if available == "sm_90a"),
            "{error}"
        );
    });
}

#[test]
fn an_unknown_kernel_is_refused_with_those_that_there_are() {
    isolated("an_unknown_kernel_is_refused_with_those_that_there_are", &[], || {
        let device = Device::cuda(0).unwrap();
        let errors = [
            device.launch(Unknown).unwrap_err(),
            device.prepare(&Unknown::FACTS).unwrap_err().into(),
            device.has_kernel(&Unknown::FACTS).unwrap_err().into(),
        ];
        for error in errors {
            let message = error.to_string();
            let [before, there_are] = message.split("; it has ").collect::<Vec<_>>()[..] else { panic!("{message}") };
            assert!(before.contains("no_such_kernel") && there_are.contains("gemm_"), "{message}");
        }
        assert_eq!(loaded_modules(), 0);
    });
}

#[test]
fn a_file_of_ptx_is_loaded_at_once_and_whole() {
    isolated("a_file_of_ptx_is_loaded_at_once_and_whole", &[], || {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        let ptx = ".version 7.0\n.target sm_80\n.visible .entry gemm_naive_1d_fp32() { ret; }\n.visible .entry b() { ret; }\n";
        std::io::Write::write_all(&mut file, ptx.as_bytes()).unwrap();
        // SAFETY: the fake driver does nothing on a launch, and these kernels are not launched.
        let device = unsafe { Device::cuda_with_ptx(0, file.path()) }.unwrap();
        assert_eq!(loaded_modules(), 1);
        let other = KernelFacts { name: "b", ..gemm_naive_1d_fp32::FACTS };
        for kernel in [other, gemm_naive_1d_fp32::FACTS] {
            assert_eq!(device.prepare(&kernel).unwrap().unwrap().arch, "sm_80");
        }
        assert_eq!(loaded_modules(), 1);
        let error = device.has_kernel(&gemm_naive_2d_fp32::FACTS).unwrap_err().to_string();
        assert!(error.contains("it has gemm_naive_1d_fp32, b"), "{error}");
    });
}

#[test]
fn ptx_whose_parameters_are_laid_out_otherwise_is_refused() {
    isolated("ptx_whose_parameters_are_laid_out_otherwise_is_refused", &[], || {
        let device_with = |layout: u64| {
            let mut file = tempfile::NamedTempFile::new().unwrap();
            let facts = cuda_driver::ptx_facts::PtxFacts { layout, ..Default::default() };
            let line = cuda_driver::ptx_facts::line(gemm_naive_1d_fp32::NAME, facts);
            let ptx = format!("{line}\n.version 7.0\n.target sm_80\n.visible .entry gemm_naive_1d_fp32() {{ ret; }}\n");
            std::io::Write::write_all(&mut file, ptx.as_bytes()).unwrap();
            // SAFETY: the fake driver does nothing on a launch.
            unsafe { Device::cuda_with_ptx(0, file.path()) }.unwrap()
        };
        let layout = gemm_naive_1d_fp32::FACTS.layout;
        device_with(layout).prepare(&gemm_naive_1d_fp32::FACTS).unwrap();
        let error = device_with(layout ^ 1).prepare(&gemm_naive_1d_fp32::FACTS).unwrap_err();
        assert!(matches!(error, DeviceError::OtherLayout { kernel: "gemm_naive_1d_fp32", .. }), "{error}");
    });
}

#[test]
fn a_measurement_has_no_load_in_it() {
    isolated("a_measurement_has_no_load_in_it", &[], || {
        let device = Device::cuda(0).unwrap();
        let mut buffers = buffers(&device);
        let mut launches = 0;
        let mut measure = |runs| {
            let launch = || {
                launches += 1;
                device.launch(gemm_naive_1d_fp32 { gemm: gemm(&mut buffers) })
            };
            assert_eq!(device.time(runs, launch).unwrap().len(), runs);
            std::mem::take(&mut launches)
        };
        assert_eq!(measure(5), 10, "the first time, the kernel is loaded in between, and all is measured again");
        assert_eq!(measure(5), 5);
    });
}

#[test]
fn tensor_maps_describe_views_and_are_checked_against_them() {
    isolated("tensor_maps_describe_views_and_are_checked_against_them", &[], || {
        let device = Device::cuda(0).unwrap();
        let buffer = device.upload(&[0.0f32; 1000]).unwrap();
        // Two matrices of 10×12, the rows of 20.
        let matrix = Matrix::new(buffer.view(), 10, 12, 20, 1).unwrap();
        let batch = MatrixBatch::new(matrix, 400, 2).unwrap();
        let tile =
            TensorTile { element: TensorElement::Tf32, length: 32, lines: 128, swizzle: TensorSwizzle::Bytes128 };
        let map = device.tensor_map_of_batch(&batch, Order::RowMajor, &tile).unwrap();
        let address = buffer.view().as_ptr().addr() as u64;
        assert_eq!(map.bytes(), [11, 3, address, 3, 3, 12, 10, 2, 80, 1600, 32, 128, 1, 0, 0, 0]);
        assert_eq!((map.layout().extents, map.layout().tile), ([12, 10, 2], [32, 128, 1]));

        // The same by its columns, which are not neighbours; and stored the other way round, where they are.
        let error = device.tensor_map_of_batch(&batch, Order::ColumnMajor, &tile).unwrap_err().to_string();
        assert!(error.contains("80 bytes apart, not 4"), "{error}");
        let transposed = MatrixBatch::new(matrix.transposed(), 400, 2).unwrap();
        let by_columns = device.tensor_map_of_batch(&transposed, Order::ColumnMajor, &tile).unwrap();
        assert_eq!(by_columns.bytes(), map.bytes());

        // Packed halves in an array of `u32`: 30 lines of 64, each of 128 bytes.
        let packed = device.upload(&[0u32; 960]).unwrap();
        let layout = TensorLayout { length: 64, lines: 30, line_stride: 64, matrices: 1, matrix_stride: 0 };
        let half = TensorTile { element: TensorElement::Bf16, length: 64, lines: 64, swizzle: TensorSwizzle::Bytes128 };
        let map = device.tensor_map(packed.view(), &layout, &half).unwrap();
        assert_eq!(map.bytes()[3..12], [3, 3, 64, 30, 1, 128, 128, 64, 64]);
        let beyond = device.tensor_map(packed.view(), &TensorLayout { lines: 31, ..layout }, &half).unwrap_err();
        assert!(matches!(beyond, DeviceError::TensorOutOfBounds { .. }), "{beyond}");
        // Rows that do not begin at multiples of 16 bytes.
        let odd = TensorLayout { line_stride: 63, lines: 3, ..layout };
        let error = device.tensor_map(packed.view(), &odd, &half).unwrap_err().to_string();
        assert!(error.contains("126 bytes apart") && error.contains("multiples of 16"), "{error}");
    });
}

/// Layouts and tiles of any numbers: what gets a tensor map lies inside the array, and the driver is told what it was meant to be.
#[test]
fn no_tensor_map_reaches_beyond_its_array() {
    fn number() -> impl Strategy<Value = u64> {
        const EDGES: [u64; 10] = [0, 1, 4, 16, 64, 1 << 32, (1 << 40) / 4, 1 << 62, u64::MAX - 1, u64::MAX];
        prop_oneof![
            4 => (0..40u64).prop_map(|number| 4 * number), 1 => 0..200u64,
            1 => proptest::sample::select(&EDGES[..]), 1 => any::<u64>()
        ]
    }
    isolated("no_tensor_map_reaches_beyond_its_array", &[], || {
        let device = Device::cuda(0).unwrap();
        let buffer = device.upload(&[0u32; 960]).unwrap();
        let elements = [TensorElement::Tf32, TensorElement::Fp32, TensorElement::Bf16, TensorElement::Fp16];
        let (made, refused) = (Cell::new(0), Cell::new(0));
        let count = || prop_oneof![3 => 0..8u64, 1 => number()];
        let layouts = (number(), count(), number(), count(), number());
        let tile_length = prop_oneof![(1..17u32).prop_map(|eights| 8 * eights), 0..300u32];
        let tiles = (proptest::sample::select(elements.to_vec()), tile_length, 0..300u32, any::<bool>());
        let config = ProptestConfig {
            cases: 20_000,
            rng_seed: RngSeed::Fixed(1),
            failure_persistence: None,
            ..Default::default()
        };
        let run =
            TestRunner::new(config).run(&(layouts, tiles), |(layout, (element, tile_length, tile_lines, swizzled))| {
                let (length, lines, line_stride, matrices, matrix_stride) = layout;
                let layout = TensorLayout { length, lines, line_stride, matrices, matrix_stride };
                let swizzle = if swizzled { TensorSwizzle::Bytes128 } else { TensorSwizzle::None };
                let tile = TensorTile { element, length: tile_length, lines: tile_lines, swizzle };
                match device.tensor_map(buffer.view(), &layout, &tile) {
                    Ok(map) => {
                        let last = |count: u64, stride: u64| u128::from(count - 1) * u128::from(stride);
                        let end = last(matrices, matrix_stride) + last(lines, line_stride) + u128::from(length);
                        prop_assert!(end * u128::from(element.bytes()) <= 4 * 960, "{layout:?}");
                        prop_assert_eq!(map.layout().extents, [length, lines, matrices]);
                        made.set(made.get() + 1);
                    }
                    Err(
                        DeviceError::TensorOutOfBounds { .. }
                        | DeviceError::Driver(cuda_driver::Error::TensorMapRejected(_)),
                    ) => {
                        refused.set(refused.get() + 1);
                    }
                    Err(other) => prop_assert!(false, "{other}"),
                }
                Ok(())
            });
        run.unwrap();
        assert!(made.get() > 100 && refused.get() > 1000, "{made:?} made and {refused:?} refused");
    });
}

/// What a launch costs the host, apart from the driver: the fake one does next to nothing. Printed, because a machine under
/// load takes any time; `cargo test --release -p tests --test loading -- --nocapture cost` shows it.
#[test]
fn the_cost_of_a_launch_on_the_host() {
    isolated("the_cost_of_a_launch_on_the_host", &[], || {
        const LAUNCHES: u32 = 20_000;
        let device = Device::cuda(0).unwrap();
        let mut buffers = buffers(&device);
        // As many live buffers as a program may have.
        let _others: Vec<_> = (0..100).map(|_| device.upload(&[0.0f32; 4]).unwrap()).collect();
        let mut launch = || device.launch(gemm_naive_2d_fp32 { gemm: gemm(&mut buffers) }).unwrap();
        launch();
        let mut best = Duration::MAX;
        for _ in 0..5 {
            let start = Instant::now();
            (0..LAUNCHES).for_each(|_| launch());
            best = best.min(start.elapsed() / LAUNCHES);
        }
        println!("a launch costs {best:?}");
        assert_eq!(loaded_modules(), 1);
    });
}
