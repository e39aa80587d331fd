//! Page-locked memory, variables of modules, and what is said of the cause of a loss, on the driver that only pretends.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

use crate::copies::begin;
use crate::fake_driver::counter;
use crate::{fake_library, isolated};
use tilewright_cuda_driver::{Error, Gpu, driver_version};

const PTX: &str = ".version 7.4\n.target sm_80\n.visible .global .align 8 .b8 __tilewright_channel[32];\n\
                   .visible .entry panics() .reqntid 1 {\n}\n";

#[test]
fn memory_of_the_host_begins_with_zeros() {
    isolated("memory_of_the_host_begins_with_zeros", fake_library, &[], || {
        let gpu = Gpu::open(0).unwrap();
        let mut memory = gpu.allocate_on_host::<u64>(3).unwrap();
        assert_eq!((memory.len(), [0, 1, 2].map(|index| memory.get(index))), (3, [0; 3]));
        memory.set(2, 7);
        // SAFETY: the fake driver's memory is the host's, this is one of three elements, and nobody writes to it meanwhile.
        let there = unsafe { *std::ptr::with_exposed_provenance::<u64>(memory.device_address() as usize).add(2) };
        assert_eq!((memory.get(2), there), (7, 7));
        assert!(catch_unwind(AssertUnwindSafe(|| memory.get(3))).is_err());
        assert!(matches!(gpu.allocate_on_host::<u64>(usize::MAX / 2), Err(Error::SizeOverflow { .. })));
    });
}

#[test]
fn memory_of_the_host_is_given_back_whatever_fails() {
    isolated("memory_of_the_host_is_given_back_whatever_fails", fake_library, &[], || {
        driver_version().unwrap();
        let calls = || counter::<usize>("fake_calls");
        begin(0, 0, 0);
        let gpu = Gpu::open(0).unwrap();
        let before = calls();
        drop(gpu.allocate_on_host::<u64>(1).unwrap());
        let after = calls();
        drop(gpu);
        assert_eq!(counter::<i32>("fake_live_objects"), 0);
        let mut failed = 0;
        // To make the context current, to allocate, to ask for the address.
        for number in before + 1..=after {
            begin(number, 2, 0);
            let gpu = Gpu::open(0).unwrap();
            let memory = gpu.allocate_on_host::<u64>(1);
            let is_made = memory.is_ok();
            drop((memory, gpu));
            if !is_made {
                failed += 1;
                assert_eq!(counter::<i32>("fake_live_objects"), 0, "call {number}");
            }
        }
        assert_eq!(failed, 3);
    });
}

#[test]
fn a_variable_is_written_by_its_name_and_size() {
    isolated("a_variable_is_written_by_its_name_and_size", fake_library, &[], || {
        let module = Gpu::open(0).unwrap().load_ptx(PTX).unwrap();
        // SAFETY: no kernel runs, or will; zeros are no addresses.
        let write = |name| unsafe { module.write_variable(name, [0u64; 4]) };
        write(c"__tilewright_channel").unwrap();
        let error = write(c"another").unwrap_err();
        assert_eq!(error.driver_call().map(|call| (call.function, call.code)), Some(("cuModuleGetGlobal_v2", 500)));
        // SAFETY: as above.
        let error = unsafe { module.write_variable(c"__tilewright_channel", 0u64) }.unwrap_err();
        assert_eq!(error.driver_call().map(|call| call.code), Some(1), "{error}");
    });
}

#[test]
fn an_explanation_is_asked_for_once_and_comes_first() {
    isolated("an_explanation_is_asked_for_once_and_comes_first", fake_library, &[], || {
        let gpu = Gpu::open(0).unwrap();
        let asked = Arc::new(AtomicU32::new(0));
        let counts = asked.clone();
        gpu.explain_loss(move || {
            counts.fetch_add(1, SeqCst);
            Some("kernel `panics` has a reason".to_owned())
        });
        gpu.explain_loss(|| panic!("only the first counts"));
        let function = gpu.load_ptx(PTX).unwrap().function("panics").unwrap();
        // SAFETY: the kernel takes nothing, and the channel of its module is not set.
        unsafe { function.launch(&gpu, [1, 1, 1], [1, 1, 1], 0, &mut []) }.unwrap();
        assert_eq!(asked.load(SeqCst), 0);
        let error = gpu.synchronize().unwrap_err();
        let text = error.to_string();
        let expected = "kernel `panics` has a reason\nSo the GPU's context is lost: cuStreamSynchronize returned ";
        assert!(text.starts_with(expected) && text.contains("All GPU memory of this process is gone"), "{text}");
        assert!(gpu.synchronize_all().unwrap_err().to_string() == text && gpu.allocate_on_host::<u64>(1).is_err());
        assert_eq!(asked.load(SeqCst), 1);
        let Error::ContextLost { report, .. } = error else { panic!("{text}") };
        assert_eq!(report.as_deref(), Some("kernel `panics` has a reason"));
    });
}
