//! The safe layer and its messages, on a driver that returns what each test prescribes (`fake_libcuda.rs`).

use std::ffi::c_void;
use std::ptr;
use std::time::Duration;

use crate::{fake_library, fake_library_without_uuid, isolated};
use tilewright_cuda_driver::cust::error::CudaError;
use tilewright_cuda_driver::{
    ComputeCapability, DriverVersion, Error, Function, Gpu, LIBRARY_VARIABLE, Limits, PtxFault, cust, driver_version,
    gpu_of_address, is_capturing, keep_context, relax_capture,
};

const PTX: &str = "\
.version 7.1
.target sm_80
.address_size 64
.shared .align 4 .b8 TILE[2048];
.visible .entry fill(.param .u64 address, .param .u64 len, .param .f32 value) { ret; }
.visible .entry faulty() { ret; }
";

/// Asks the fake driver for one of its counters.
pub(crate) fn counter<T: Copy>(name: &str) -> T {
    // SAFETY: the library is open already; the functions take nothing and return what the callers below say.
    unsafe {
        let library = libloading::Library::new(std::env::var(LIBRARY_VARIABLE).unwrap()).unwrap();
        let counter = library.get::<unsafe extern "C" fn() -> T>(name).unwrap();
        counter()
    }
}

fn live_objects() -> i32 {
    counter("fake_live_objects")
}

/// Asserts that a message has all of these parts.
pub(crate) fn assert_says(error: &Error, parts: &[&str]) {
    let message = error.to_string();
    for part in parts {
        assert!(message.contains(part), "`{part}` is not in: {message}");
    }
}

#[test]
fn properties_are_what_the_driver_says() {
    isolated("properties_are_what_the_driver_says", fake_library, &[("FAKE_CUDA_VERSION", "13010")], || {
        assert_eq!(driver_version().unwrap(), DriverVersion { major: 13, minor: 1 });
        assert_eq!(Gpu::count().unwrap(), 2);
        let gpu = Gpu::open(1).unwrap();
        let properties = gpu.properties();
        assert_eq!(properties.ordinal, 1);
        assert_eq!(properties.name, "Fake GPU");
        assert_eq!(properties.uuid, "GPU-00112233-4455-6677-8899-aabbccddeeff");
        assert_eq!(properties.pci_bus_id, "0000:1b:00.0");
        assert_eq!(properties.compute_capability, ComputeCapability { major: 9, minor: 0 });
        assert_eq!(properties.total_memory, 8 << 30);
        assert_eq!(properties.multiprocessors, 132);
        assert_eq!(Some(properties.limits), Limits::of(properties.compute_capability));
        assert_eq!(properties.driver, DriverVersion { major: 13, minor: 1 });
        let memory = gpu.memory().unwrap();
        assert_eq!((memory.free, memory.total), (7 << 30, 8 << 30));
    });
}

#[test]
fn a_kernel_runs_on_memory_that_comes_back() {
    isolated("a_kernel_runs_on_memory_that_comes_back", fake_library, &[], || {
        let gpu = Gpu::open(0).unwrap();
        let mut memory = gpu.allocate::<f32>(1000).unwrap();
        let source: Vec<f32> = (0..1000).map(|index| index as f32).collect();
        memory.copy_from_host(&source).unwrap();
        let mut target = vec![0.0; 1000];
        memory.copy_to_host(&mut target).unwrap();
        assert_eq!(target, source);
        memory.fill_bytes(0).unwrap();
        memory.copy_to_host(&mut target).unwrap();
        assert_eq!(target, [0.0; 1000]);

        let module = gpu.load_ptx(PTX).unwrap();
        assert_eq!(module.kernels(), ["fill", "faulty"]);
        assert!(module.load_time() > Duration::ZERO);
        let fill = module.function("fill").unwrap();
        let resources = fill.resources();
        assert_eq!((resources.registers, resources.static_shared_bytes, resources.local_bytes), (32, 2048, 0));
        assert_eq!(resources.max_threads_per_block, 256);

        // The function keeps the module and the GPU alive.
        drop(module);
        let (mut address, mut len, mut value) = (memory.address(), memory.len() as u64, 2.5f32);
        let mut params: [*mut c_void; 3] = [(&raw mut address).cast(), (&raw mut len).cast(), (&raw mut value).cast()];
        let start = gpu.record_event().unwrap();
        // SAFETY: the arguments are those of `fill`, and it stays within `memory`.
        unsafe { fill.launch(&gpu, [4, 1, 1], [256, 1, 1], 0, &mut params) }.unwrap();
        let end = gpu.record_event().unwrap();
        assert_eq!(end.elapsed_since(&start).unwrap(), Duration::from_micros(1500));
        memory.copy_to_host(&mut target).unwrap();
        assert_eq!(target, [2.5; 1000]);

        // Context, stream, memory, module and two events.
        assert_eq!(live_objects(), 6);
        drop((gpu, memory, start, end));
        assert_eq!(live_objects(), 3, "the function still has the GPU and the module");
        drop(fill);
        assert_eq!(live_objects(), 0);
    });
}

#[test]
fn a_gpu_is_used_and_dropped_on_threads_that_have_no_context() {
    isolated("a_gpu_is_used_and_dropped_on_threads_that_have_no_context", fake_library, &[], || {
        let gpu = Gpu::open(0).unwrap();
        let module = gpu.load_ptx(PTX).unwrap();
        let mut memory = gpu.allocate::<u64>(3).unwrap();
        let event = gpu.record_event().unwrap();
        let thread = std::thread::spawn(move || {
            memory.copy_from_host(&[1, 2, 3]).unwrap();
            drop(memory);
        });
        thread.join().unwrap();
        std::thread::spawn(move || drop(event)).join().unwrap();
        std::thread::spawn(move || module.function("fill").unwrap()).join().unwrap();
        let other = gpu.clone();
        std::thread::spawn(move || other.memory().unwrap()).join().unwrap();
        std::thread::spawn(move || drop(gpu)).join().unwrap();
        assert_eq!(live_objects(), 0);
    });
}

#[test]
fn another_librarys_stream_and_memory_are_used_and_left_alone() {
    isolated("another_librarys_stream_and_memory_are_used_and_left_alone", fake_library, &[], || {
        let gpu = Gpu::open(0).unwrap();
        let own = gpu.raw_stream().addr();
        let fill = gpu.load_ptx(PTX).unwrap().function("fill").unwrap();
        let before = live_objects();
        let mut theirs = [0f32; 10];
        for stream in [0, 4711] {
            // SAFETY: to the fake driver a stream is any number.
            let there = unsafe { gpu.on_stream(ptr::without_provenance_mut(stream)) };
            assert_eq!(there.raw_stream().addr(), stream);
            // SAFETY: the fake GPU's memory is this processor's, and this is ten elements of it.
            let memory = unsafe { there.lent::<f32>(theirs.as_mut_ptr() as u64, theirs.len()) };
            assert!(memory.is_lent() && !gpu.allocate::<f32>(1).unwrap().is_lent());
            let (mut address, mut len, mut value) = (memory.address(), memory.len() as u64, 1.0 + stream as f32);
            let mut params: [*mut c_void; 3] =
                [(&raw mut address).cast(), (&raw mut len).cast(), (&raw mut value).cast()];
            // SAFETY: the arguments are those of `fill`, and it stays within `memory`.
            unsafe { fill.launch(&there, [1, 1, 1], [1, 1, 1], 0, &mut params) }.unwrap();
            assert_eq!(counter::<usize>("fake_last_stream"), stream);
            gpu.synchronize().unwrap();
            assert_eq!(counter::<usize>("fake_last_stream"), own);
            drop(there.record_event().unwrap());
            assert_eq!(counter::<usize>("fake_last_stream"), stream);
            gpu.synchronize().unwrap();
            drop(memory);
            assert_eq!(counter::<usize>("fake_last_stream"), own, "nothing waits for what is lent");
            assert_eq!(theirs, [1.0 + stream as f32; 10]);
        }
        assert_eq!(live_objects(), before);
    });
}

#[test]
fn captures_are_noticed_and_not_disturbed() {
    isolated("captures_are_noticed_and_not_disturbed", fake_library, &[], || {
        let gpu = Gpu::open(0).unwrap();
        // SAFETY: to the fake driver a stream is any number.
        let captured = |stream| unsafe { is_capturing(ptr::without_provenance_mut(stream)) }.unwrap();
        assert!(captured(4711) && !captured(4712));
        let mode = || counter::<u32>("fake_capture_mode");
        assert_eq!(mode(), 0);
        let outer = relax_capture().unwrap();
        assert_eq!(mode(), 2);
        drop(relax_capture().unwrap());
        assert_eq!(mode(), 2, "what the inner one found");
        drop(outer);
        assert_eq!(mode(), 0);
        drop(gpu);
    });
}

#[test]
fn memory_tells_whose_it_is() {
    isolated("memory_tells_whose_it_is", fake_library, &[], || {
        let gpu = Gpu::open(0).unwrap();
        let memory = gpu.allocate::<f32>(10).unwrap();
        assert_eq!(gpu_of_address(memory.address() as usize + 36).unwrap(), 3);
        let error = gpu_of_address(memory.address() as usize + 40).unwrap_err();
        assert_says(&error, &["cuPointerGetAttribute", "CUDA_ERROR_INVALID_VALUE"]);
    });
}

#[test]
fn the_context_of_others_can_be_kept() {
    isolated("the_context_of_others_can_be_kept", fake_library, &[], || {
        let gpu = Gpu::open(0).unwrap();
        let ours = counter::<usize>("fake_current_context");
        // SAFETY: to the fake driver a context is any number.
        unsafe { cust::sys::cuCtxSetCurrent(ptr::without_provenance_mut(5)) };
        let kept = keep_context().unwrap();
        gpu.memory().unwrap();
        assert_eq!(counter::<usize>("fake_current_context"), ours);
        drop(kept);
        assert_eq!(counter::<usize>("fake_current_context"), 5);
    });
}

#[test]
fn nothing_is_asked_of_the_driver_for_zero_bytes() {
    isolated("nothing_is_asked_of_the_driver_for_zero_bytes", fake_library, &[], || {
        let gpu = Gpu::open(0).unwrap();
        let before = live_objects();
        let mut empty = gpu.allocate::<f32>(0).unwrap();
        assert_eq!((empty.address(), empty.len(), empty.is_empty()), (0, 0, true));
        empty.copy_from_host(&[]).unwrap();
        empty.copy_to_host(&mut []).unwrap();
        empty.fill_bytes(1).unwrap();
        let mut units = gpu.allocate::<()>(5).unwrap();
        units.copy_from_host(&[(); 5]).unwrap();
        assert_eq!(live_objects(), before);
    });
}

#[test]
fn copies_of_more_than_4_gib_keep_their_size() {
    isolated("copies_of_more_than_4_gib_keep_their_size", fake_library, &[], || {
        let gpu = Gpu::open(0).unwrap();
        let len = (5 << 30) / 8 + 1;
        let mut memory = gpu.allocate::<u64>(len).unwrap();
        assert_eq!(gpu.memory().unwrap().free, (7 << 30) - len * 8);
        // Zeroed memory that the fake driver touches at its ends only costs nothing.
        let mut host = vec![0u64; len];
        host[len - 1] = u64::MAX;
        memory.copy_from_host(&host).unwrap();
        assert_eq!(counter::<usize>("fake_last_copy_bytes"), len * 8);
        memory.fill_bytes(0x55).unwrap();
        memory.copy_to_host(&mut host).unwrap();
        assert_eq!(counter::<usize>("fake_last_copy_bytes"), len * 8);
        assert_eq!(host[len - 1] >> 56, 0x55);
    });
}

#[test]
fn out_of_memory_names_the_sizes() {
    isolated("out_of_memory_names_the_sizes", fake_library, &[], || {
        let gpu = Gpu::open(0).unwrap();
        let _used = gpu.allocate::<u8>(1 << 30).unwrap();
        let error = gpu.allocate::<f32>(2 << 30).unwrap_err();
        let Error::OutOfMemory { requested, free, total, .. } = error else { panic!("{error}") };
        assert_eq!((requested, free, total), (8 << 30, 6 << 30, 8 << 30));
        assert_says(
            &error,
            &["8589934592 bytes (8.0 GiB)", "(6.0 GiB) are free", "CUDA_ERROR_OUT_OF_MEMORY (2): out of memory"],
        );

        for len in [usize::MAX, usize::MAX / 4, isize::MAX as usize / 4 + 1] {
            let error = gpu.allocate::<f32>(len).unwrap_err();
            assert!(matches!(error, Error::SizeOverflow { element_bytes: 4, .. }), "{error}");
        }
    });
}

#[test]
fn copies_between_different_lengths_are_refused() {
    isolated("copies_between_different_lengths_are_refused", fake_library, &[], || {
        let gpu = Gpu::open(0).unwrap();
        let mut memory = gpu.allocate::<f32>(4).unwrap();
        for len in [0, 3, 5] {
            let error = memory.copy_from_host(&vec![0.0; len]).unwrap_err();
            assert!(matches!(error, Error::LengthMismatch { host_len, device_len: 4 } if host_len == len), "{error}");
            let error = memory.copy_to_host(&mut vec![0.0; len]).unwrap_err();
            assert!(matches!(error, Error::LengthMismatch { host_len, device_len: 4 } if host_len == len), "{error}");
        }
    });
}

#[test]
fn rejected_ptx_says_why() {
    isolated("rejected_ptx_says_why", fake_library, &[], || {
        let gpu = Gpu::open(0).unwrap();
        let reject = |ptx: &str| {
            let error = gpu.load_ptx(ptx).unwrap_err();
            let Error::PtxRejected(rejected) = &error else { panic!("{error}") };
            (rejected.fault, error)
        };
        let (fault, error) = reject(".version 9.2\n.target sm_90\n// reject 222\n");
        assert_eq!(fault, PtxFault::TooNew);
        assert_says(&error, &["CUDA 12.4", "PTX 9.2", "Update the NVIDIA driver", "UNSUPPORTED_PTX_VERSION (222)"]);

        let (fault, error) = reject(".version 8.6\n.target sm_100a\n// reject 209\n");
        assert_eq!(fault, PtxFault::WrongArchitecture);
        assert_says(&error, &["sm_100a", "Fake GPU", "sm_90", "NO_BINARY_FOR_GPU (209)"]);

        let (fault, error) = reject(".version 8.0\n.target sm_80\nnonsense\n// reject 218\n");
        assert_eq!(fault, PtxFault::Invalid);
        assert_says(&error, &["8.0, sm_80", "INVALID_PTX (218)", "Syntax error near 'nonsense'"]);

        let (fault, error) = reject("// reject 200");
        assert_eq!(fault, PtxFault::Invalid);
        assert_says(&error, &["without .version, without .target"]);

        let (fault, error) = reject(".version 8.0\n\0");
        assert_eq!(fault, PtxFault::ContainsNul { offset: 13 });
        assert_says(&error, &["offset 13"]);
        assert_eq!(error.driver_call(), None);

        // What is not the module's fault is not blamed on it.
        let error = gpu.load_ptx("// reject 2").unwrap_err();
        assert!(matches!(error, Error::Call { .. }), "{error}");
        let error = gpu.load_ptx("// reject 221").unwrap_err();
        assert_says(&error, &["libnvidia-ptxjitcompiler"]);
    });
}

/// Machine code for the fake driver.
fn cubin(ptx: &str) -> Vec<u8> {
    let mut cubin = b"\x7fELF".to_vec();
    cubin.resize(54, 0);
    [&cubin[..], b"fake cubin", ptx.as_bytes(), b"\0"].concat()
}

#[test]
fn machine_code_is_loaded_as_it_is() {
    isolated("machine_code_is_loaded_as_it_is", fake_library, &[], || {
        let gpu = Gpu::open(0).unwrap();
        // SAFETY: this driver takes it for machine code.
        let load = |kernel, cubin: &[u8]| unsafe { gpu.load_cubin(kernel, cubin) };
        let module = load("fill", &cubin(PTX)).unwrap();
        assert_eq!(module.kernels(), ["fill"]);
        assert_eq!(module.function("fill").unwrap().name(), "fill");
        let error = module.function("other").unwrap_err();
        assert_says(&error, &["no kernel named `other`", "it has fill"]);
        // As an assembler writes it.
        let error = load("fill", &[&b"\x7fELF"[..], &[0; 100]].concat()).unwrap_err();
        assert!(matches!(&error, Error::CubinRejected { kernel, .. } if kernel == "fill"), "{error}");
        assert_says(&error, &["`fill`", "CUDA 12.4", "PTX", "NO_BINARY_FOR_GPU (209)"]);
        // What is not the machine code's fault is not blamed on it.
        let error = load("fill", &cubin("// reject 2")).unwrap_err();
        assert!(matches!(error, Error::Call { .. }), "{error}");
    });
}

#[test]
fn machine_code_may_be_refused_when_its_kernel_is_asked_for() {
    let variables = [("FAKE_CUDA_CUBINS", "lazily,222")];
    isolated("machine_code_may_be_refused_when_its_kernel_is_asked_for", fake_library, &variables, || {
        let gpu = Gpu::open(0).unwrap();
        // SAFETY: this driver takes it for machine code.
        let module = unsafe { gpu.load_cubin("fill", &cubin(PTX)) }.unwrap();
        let error = module.function("fill").unwrap_err();
        assert!(matches!(error, Error::CubinRejected { .. }) && error.driver_call().is_some(), "{error}");
        gpu.load_ptx(PTX).unwrap().function("fill").unwrap();
    });
}

#[test]
fn an_unknown_kernel_is_named_with_those_that_exist() {
    isolated("an_unknown_kernel_is_named_with_those_that_exist", fake_library, &[], || {
        let module = Gpu::open(0).unwrap().load_ptx(PTX).unwrap();
        for name in ["fil", "", "fill\0"] {
            let error = module.function(name).unwrap_err();
            assert!(matches!(&error, Error::NoSuchKernel { name: found, .. } if found == name), "{error}");
            assert_says(&error, &["it has fill, faulty"]);
        }
    });
}

/// Kernels that wait for those before them, and kernels that do not, on GPUs and drivers that can launch a kernel while another one ends, and
/// on others.
#[test]
fn a_kernel_that_waits_may_begin_while_the_one_before_it_ends() {
    for (capability, version, dependent) in [("9.0", "12030", 2), ("9.0", "12020", 0), ("8.9", "13000", 0)] {
        let variables = [
            ("FAKE_CUDA_CAPABILITY", capability),
            ("FAKE_CUDA_VERSION", version),
            ("DEPENDENT", &*dependent.to_string()),
        ];
        isolated("a_kernel_that_waits_may_begin_while_the_one_before_it_ends", fake_library, &variables, || {
            let gpu = Gpu::open(0).unwrap();
            let plain = gpu.load_ptx(PTX).unwrap().function("fill").unwrap();
            let ptx = PTX.replace("value) {", "value) {\ngriddepcontrol.wait;");
            // SAFETY: it does.
            let waiting = unsafe { gpu.load_ptx(&ptx).unwrap().function("fill").unwrap().that_waits() };
            let memory = gpu.allocate::<f32>(4).unwrap();
            // The process of a test runs it for all of the variables above, with those that it has been given.
            let before = counter::<u32>("fake_dependent_launches");
            for (function, value) in [(&waiting, 1f32), (&plain, 2.0), (&waiting.clone(), 3.0)] {
                let (mut address, mut len, mut value) = (memory.address(), 4u64, value);
                let mut params = [(&raw mut address).cast::<c_void>(), (&raw mut len).cast(), (&raw mut value).cast()];
                // SAFETY: the arguments are those of `fill`, for memory that there is.
                unsafe { function.launch(&gpu, [1; 3], [32, 1, 1], 0, &mut params).unwrap() };
                let mut filled = [0.0; 4];
                memory.copy_to_host(&mut filled).unwrap();
                assert_eq!(filled, [value; 4]);
            }
            let expected: u32 = std::env::var("DEPENDENT").unwrap().parse().unwrap();
            assert_eq!(counter::<u32>("fake_dependent_launches") - before, expected);
        });
    }
}

#[test]
fn all_blocks_of_a_cooperative_launch_run_at_the_same_time_or_it_is_refused() {
    isolated("all_blocks_of_a_cooperative_launch_run_at_the_same_time_or_it_is_refused", fake_library, &[], || {
        let gpu = Gpu::open(0).unwrap();
        let ptx = ".entry idle() {\n.shared .align 4 .b8 TILE[2048];\n}";
        let plain = gpu.load_ptx(ptx).unwrap().function("idle").unwrap();
        let meeting = plain.clone().that_meets();
        for (shared, resident) in [(0, 8 * 132), (100 << 10, 2 * 132), (225 << 10, 132)] {
            assert_eq!(meeting.resident_blocks([256, 1, 1], shared).unwrap(), resident);
            // SAFETY: this kernel takes no arguments and does nothing.
            let launch = |function: &Function, blocks| unsafe {
                function.launch(&gpu, [blocks, 1, 1], [256, 1, 1], shared, &mut [])
            };
            let before = counter::<u32>("fake_cooperative_launches");
            launch(&meeting, resident as u32).unwrap();
            launch(&plain, resident as u32 + 1).unwrap();
            assert_eq!(counter::<u32>("fake_cooperative_launches") - before, 1);
            let error = launch(&meeting, resident as u32 + 1).unwrap_err();
            assert!(matches!(error, Error::LaunchExceeds { .. }), "{error}");
            let (blocks, limit) =
                (format!("{}x1x1 blocks", resident + 1), format!("and {resident} of this kernel run"));
            assert_says(&error, &["`idle`", &blocks, &limit]);
        }
        gpu.synchronize().unwrap();
    });
}

#[test]
fn a_grid_that_is_not_made_of_whole_clusters_is_refused_before_the_driver_is_called_and_by_it() {
    let name = "a_grid_that_is_not_made_of_whole_clusters_is_refused_before_the_driver_is_called_and_by_it";
    isolated(name, fake_library, &[], || {
        let gpu = Gpu::open(0).unwrap();
        let ptx = ".entry idle()\n.reqntid 32, 1, 1\n.explicitcluster\n.reqnctapercluster 2, 3, 1\n{\n}";
        let plain = gpu.load_ptx(ptx).unwrap().function("idle").unwrap();
        let clustered = plain.clone().in_clusters([2, 3, 1]);
        // SAFETY: this kernel takes no arguments and does nothing.
        let launch = |function: &Function, grid| unsafe { function.launch(&gpu, grid, [32, 1, 1], 0, &mut []) };
        launch(&clustered, [4, 9, 7]).unwrap();
        let error = launch(&clustered, [4, 8, 1]).unwrap_err();
        assert!(matches!(error, Error::LaunchExceeds { .. }), "{error}");
        assert_says(&error, &["`idle`", "4x8x1 blocks", "no whole clusters of 2x3x1"]);
        // Who has not said so gets the driver's own refusal.
        let error = launch(&plain, [4, 8, 1]).unwrap_err();
        assert!(matches!(error, Error::LaunchRejected { .. }), "{error}");
        let error = launch(&clustered.in_clusters([4, 3, 1]), [4, 9, 1]).unwrap_err();
        assert_says(&error, &["`idle`", "a cluster has 4x3x1 blocks", "1 to 8"]);
        gpu.synchronize().unwrap();
    });
}

#[test]
fn a_refused_launch_names_the_limits_and_leaves_the_gpu_usable() {
    isolated("a_refused_launch_names_the_limits_and_leaves_the_gpu_usable", fake_library, &[], || {
        let gpu = Gpu::open(0).unwrap();
        let ptx = ".entry idle() {\n.shared .align 4 .b8 TILE[2048];\n}";
        let function = gpu.load_ptx(ptx).unwrap().function("idle").unwrap();
        // SAFETY: this kernel takes no arguments and does nothing.
        let launch = |grid, block, shared| unsafe { function.launch(&gpu, grid, block, shared, &mut []) };
        for (grid, block) in [([1, 65536, 1], [32, 1, 1]), ([0, 1, 1], [32, 1, 1]), ([1, 1, 1], [512, 1, 1])] {
            let error = launch(grid, block, 0).unwrap_err();
            if block[0] == 32 {
                let [x, y, z] = grid;
                let grid = format!("{x}x{y}x{z} blocks");
                assert!(matches!(error, Error::LaunchExceeds { .. }), "{error}");
                assert_says(&error, &["`idle`", "compute capability 9.0", &grid, "65535 along y"]);
            } else {
                // What only the driver knows: the kernel has been compiled for fewer threads.
                assert!(matches!(error, Error::LaunchRejected(_)), "{error}");
                assert_says(&error, &["`idle`", "[512, 1, 1]", "at most 256 threads", "CUDA_ERROR_INVALID_VALUE (1)"]);
            }
        }
        let bounded = gpu.load_ptx(".entry bounded()\n.maxntid 64\n{\n}").unwrap().function("bounded").unwrap();
        // SAFETY: as above.
        let launch_bounded = |block| unsafe { bounded.launch(&gpu, [1; 3], block, 0, &mut []) };
        launch_bounded([8, 8, 1]).unwrap();
        launch_bounded([31, 1, 1]).unwrap();
        assert_says(&launch_bounded([65, 1, 1]).unwrap_err(), &["`bounded`", "[65, 1, 1]", "at most 64 threads"]);
        launch([1, 1, 1], [256, 1, 1], 46 << 10).unwrap();
        assert_eq!(
            counter::<i32>("fake_dynamic_shared_limit"),
            48 << 10,
            "48 KiB with the static part: nothing to ask for"
        );
        launch([1, 1, 1], [256, 1, 1], 200 << 10).unwrap();
        assert_eq!(counter::<i32>("fake_dynamic_shared_limit"), 225 << 10, "227 KiB less the 2 KiB of static memory");
        launch([1, 1, 1], [256, 1, 1], 225 << 10).unwrap();
        assert_eq!(counter::<u32>("fake_set_attributes"), 1, "once is enough");
        let error = launch([1, 1, 1], [256, 1, 1], 226 << 10).unwrap_err();
        assert_says(&error, &["233472 bytes", "2048 static, 231424 dynamic", "232448"]);
        gpu.synchronize().unwrap();
    });
}

#[test]
fn stacks_grow_to_what_a_thread_can_have() {
    isolated("stacks_grow_to_what_a_thread_can_have", fake_library, &[], || {
        let gpu = Gpu::open(0).unwrap();
        let stack = || counter::<usize>("fake_stack_bytes");
        gpu.require_stack(500).unwrap();
        assert_eq!(stack(), 1024, "it has more");
        gpu.require_stack(64 << 10).unwrap();
        assert_eq!(stack(), 64 << 10);
        gpu.require_stack(4096).unwrap();
        assert_eq!(stack(), 64 << 10, "somebody else needs it");
        let error = gpu.require_stack((512 << 10) + 1).unwrap_err();
        assert!(matches!(error, Error::StackRejected { .. }), "{error}");
        assert_says(&error, &["no stack of 524289 bytes", "they have 65536 bytes", "cuCtxSetLimit"]);
        gpu.require_stack(512 << 10).unwrap();
        assert_eq!(stack(), 512 << 10);
    });
}

#[test]
fn a_failed_kernel_loses_the_context_for_good() {
    isolated("a_failed_kernel_loses_the_context_for_good", fake_library, &[], || {
        let gpu = Gpu::open(0).unwrap();
        let mut memory = gpu.allocate::<f32>(8).unwrap();
        let mut nothing = gpu.allocate::<f32>(0).unwrap();
        let faulty = gpu.load_ptx(PTX).unwrap().function("faulty").unwrap();
        // SAFETY: the fake driver's kernel touches no memory.
        unsafe { faulty.launch(&gpu, [1, 1, 1], [1, 1, 1], 0, &mut []) }.unwrap();
        let error = gpu.synchronize().unwrap_err();
        assert!(matches!(error, Error::ContextLost { .. }), "{error}");
        let parts =
            ["CUDA_ERROR_ILLEGAL_ADDRESS (700): an illegal memory access", "only `faulty`", "start the program again"];
        assert_says(&error, &parts);
        // SAFETY: as above; nothing is launched any more.
        let launched = unsafe { faulty.launch(&gpu, [1, 1, 1], [1, 1, 1], 0, &mut []) };
        let errors = [
            launched.unwrap_err(),
            memory.copy_from_host(&[0.0; 8]).unwrap_err(),
            memory.copy_to_host(&mut [0.0; 8]).unwrap_err(),
            memory.fill_bytes(0).unwrap_err(),
            gpu.allocate::<f32>(1).unwrap_err(),
            gpu.record_event().unwrap_err(),
            gpu.load_ptx(PTX).unwrap_err(),
            gpu.memory().unwrap_err(),
            gpu.make_current().unwrap_err(),
            gpu.check_context().unwrap_err(),
            // What asks nothing of the driver when all is well.
            gpu.allocate::<f32>(0).unwrap_err(),
            nothing.copy_from_host(&[]).unwrap_err(),
            nothing.copy_to_host(&mut []).unwrap_err(),
            nothing.fill_bytes(0).unwrap_err(),
        ];
        for later in errors {
            assert_eq!(later.to_string(), error.to_string(), "the first one, ever after");
        }
    });
}

/// The kernels that may have failed are those that nobody has waited for, on any stream.
#[test]
fn a_lost_context_names_the_kernels_that_had_not_been_waited_for() {
    isolated("a_lost_context_names_the_kernels_that_had_not_been_waited_for", fake_library, &[], || {
        let gpu = Gpu::open(0).unwrap();
        // SAFETY: the fake driver takes any stream.
        let other = unsafe { gpu.on_stream(ptr::without_provenance_mut(77)) };
        let module = gpu.load_ptx(".entry a() .entry b() .entry c() .entry faulty()").unwrap();
        let launch = |gpu: &Gpu, name| {
            // SAFETY: the fake driver's kernels take no arguments and do nothing.
            unsafe { module.function(name).unwrap().launch(gpu, [1, 1, 1], [1, 1, 1], 0, &mut []) }.unwrap();
        };
        launch(&gpu, "a");
        launch(&other, "b");
        gpu.synchronize().unwrap();
        launch(&gpu, "c");
        launch(&gpu, "faulty");
        let error = other.synchronize().unwrap_err();
        let Error::ContextLost { kernels, .. } = &error else { panic!("{error}") };
        assert_eq!(*kernels, ["b", "c", "faulty"]);
        assert_says(&error, &["these had not been waited for: b, c, faulty"]);
    });
}

#[test]
fn codes_newer_than_cust_are_kept_in_messages_and_hidden_from_cust() {
    let variables = [("FAKE_CUDA", "cuStreamSynchronize=226,cuMemGetInfo_v2=4711,cuEventCreate=2")];
    isolated("codes_newer_than_cust_are_kept_in_messages_and_hidden_from_cust", fake_library, &variables, || {
        let gpu = Gpu::open(0).unwrap();
        // cust has neither code in its enum: to hand it one would be undefined behaviour.
        assert_eq!(cust::memory::mem_get_info(), Err(CudaError::UnknownError));
        // This one it has.
        let event = cust::event::Event::new(cust::event::EventFlags::DEFAULT);
        assert_eq!(event.map(drop), Err(CudaError::OutOfMemory));
        let error = gpu.memory().unwrap_err();
        assert_says(&error, &["cuMemGetInfo_v2 returned a code that neither", "(4711)"]);
        assert_eq!(error.driver_call().unwrap().code, 4711);
        let error = gpu.synchronize().unwrap_err();
        assert!(matches!(error, Error::ContextLost { .. }), "{error}");
        assert_says(&error, &["CUDA_ERROR_CONTAINED (226): Invalid access of peer GPU memory", "nvidia-smi -q"]);
    });
}

#[test]
fn an_unspecific_failure_to_initialize_has_advice() {
    isolated("an_unspecific_failure_to_initialize_has_advice", fake_library, &[("FAKE_CUDA", "cuInit=999")], || {
        let error = Gpu::open(0).unwrap_err();
        assert!(matches!(error, Error::Call { .. }), "{error}");
        // The fake driver has no name for 999; cust's enum has.
        assert_says(&error, &["cuInit returned CUDA_ERROR_UNKNOWN (999)", "nvidia-smi"]);
        assert_eq!(driver_version().unwrap(), DriverVersion { major: 12, minor: 4 });
    });
}

#[test]
fn no_device_mentions_the_variable_that_hides_devices() {
    let variables = [("FAKE_CUDA", "cuInit=100"), ("CUDA_VISIBLE_DEVICES", "7")];
    isolated("no_device_mentions_the_variable_that_hides_devices", fake_library, &variables, || {
        let error = Gpu::open(0).unwrap_err();
        assert!(matches!(error, Error::NoDevice { .. }), "{error}");
        assert_says(&error, &["no CUDA device", "CUDA_ERROR_NO_DEVICE (100)", "CUDA_VISIBLE_DEVICES is set to \"7\""]);
    });
}

#[test]
fn no_device_otherwise_points_to_nvidia_smi() {
    isolated("no_device_otherwise_points_to_nvidia_smi", fake_library, &[("FAKE_CUDA", "cuInit=100")], || {
        let error = Gpu::count().unwrap_err();
        assert_says(&error, &["no CUDA device", "nvidia-smi"]);
        assert!(!error.to_string().contains("CUDA_VISIBLE_DEVICES"), "{error}");
    });
}

#[test]
fn the_stub_of_a_toolkit_is_no_driver() {
    isolated("the_stub_of_a_toolkit_is_no_driver", fake_library, &[("FAKE_CUDA", "cuDriverGetVersion=34")], || {
        let error = Gpu::open(0).unwrap_err();
        assert!(matches!(error, Error::NoDriver { .. }), "{error}");
        assert_says(&error, &["stub", "LD_LIBRARY_PATH"]);
    });
}

#[test]
fn a_driver_that_is_too_old_is_refused_before_anything_else() {
    isolated(
        "a_driver_that_is_too_old_is_refused_before_anything_else",
        fake_library,
        &[("FAKE_CUDA_VERSION", "11030")],
        || {
            let error = Gpu::open(0).unwrap_err();
            let Error::DriverTooOld { found, needed } = error else { panic!("{error}") };
            assert_eq!((found, needed), (DriverVersion { major: 11, minor: 3 }, DriverVersion::MINIMUM));
            assert_says(&error, &["CUDA 11.3", "11.4", "Update the NVIDIA driver"]);
        },
    );
}

#[test]
fn a_function_that_the_driver_lacks_is_named() {
    isolated("a_function_that_the_driver_lacks_is_named", fake_library_without_uuid, &[], || {
        let error = Gpu::open(0).unwrap_err();
        assert!(matches!(error, Error::MissingFunction { function: "cuDeviceGetUuid", .. }), "{error}");
        assert_says(&error, &["libcuda_fake_without_uuid.so", "cuDeviceGetUuid"]);
        // The fake driver has next to nothing of what cust calls.
        assert_eq!(cust::context::CurrentContext::get_cache_config(), Err(CudaError::NotFound));
    });
}

#[test]
fn a_device_that_is_not_there_is_refused_by_number() {
    isolated("a_device_that_is_not_there_is_refused_by_number", fake_library, &[], || {
        for ordinal in [2, usize::MAX] {
            let error = Gpu::open(ordinal).unwrap_err();
            assert!(matches!(error, Error::BadOrdinal { count: 2, .. }), "{error}");
            assert_says(&error, &[&ordinal.to_string(), "the devices are 0 to 1"]);
        }
    });
}

#[test]
fn a_failure_in_opening_leaves_nothing_open() {
    let variables = [("FAKE_CUDA", "cuStreamCreateWithPriority=2")];
    isolated("a_failure_in_opening_leaves_nothing_open", fake_library, &variables, || {
        let error = Gpu::open(0).unwrap_err();
        assert_says(&error, &["cuStreamCreateWithPriority", "CUDA_ERROR_OUT_OF_MEMORY (2)", "too little free memory"]);
        assert_eq!(live_objects(), 0);
    });
}

#[test]
fn the_first_failure_of_an_operation_is_the_one_reported() {
    // `cust` destroys what it got instead of a stream, which fails as well.
    let variables = [("FAKE_CUDA", "cuStreamCreateWithPriority=700")];
    isolated("the_first_failure_of_an_operation_is_the_one_reported", fake_library, &variables, || {
        let error = Gpu::open(0).unwrap_err();
        assert!(matches!(error, Error::ContextLost { .. }), "{error}");
        assert_says(&error, &["cuStreamCreateWithPriority", "CUDA_ERROR_ILLEGAL_ADDRESS (700)"]);
    });
}
