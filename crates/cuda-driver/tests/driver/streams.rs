//! Streams, events and graphs of a GPU, on the driver that only pretends. What a program makes of them, the tests of `tilewright-runtime` show.

use std::ffi::c_void;

use crate::fake_driver::{assert_says, counter};
use crate::{fake_library, isolated};
use tilewright_cuda_driver::{Error, Function, Gpu, GraphLaunch};

const PTX: &str = "\
.version 7.1
.target sm_80
.visible .entry fill(.param .u64 address, .param .u64 len, .param .f32 value) { ret; }
";

#[test]
fn streams_have_priorities_and_end_with_their_last_handle() {
    isolated("streams_have_priorities_and_end_with_their_last_handle", fake_library, &[], || {
        let gpu = Gpu::open(0).unwrap();
        assert_eq!(gpu.stream_priorities().unwrap(), -5..=0);
        let before = counter::<i32>("fake_live_objects");
        let urgent = gpu.with_new_stream(-5).unwrap();
        assert_eq!(counter::<i32>("fake_last_priority"), -5);
        let again = urgent.clone();
        assert!(urgent.raw_stream() == again.raw_stream() && urgent.raw_stream() != gpu.raw_stream());
        let mut event = gpu.new_event().unwrap();
        event.record(&urgent).unwrap();
        assert_eq!(counter::<usize>("fake_last_stream"), urgent.raw_stream().addr());
        gpu.wait_for(&event).unwrap();
        assert_eq!(counter::<usize>("fake_last_stream"), gpu.raw_stream().addr());
        event.synchronize().unwrap();
        drop((event, urgent));
        assert_eq!(counter::<i32>("fake_live_objects"), before + 1);
        drop(again);
        assert_eq!(counter::<i32>("fake_live_objects"), before);
    });
}

#[test]
fn an_event_that_has_not_happened_is_no_error() {
    let pending = [("FAKE_CUDA", "cuEventQuery=600")];
    isolated("an_event_that_has_not_happened_is_no_error", fake_library, &pending, || {
        let event = Gpu::open(0).unwrap().record_event().unwrap();
        assert!(!event.has_happened().unwrap());
    });
}

#[test]
fn an_event_that_cannot_be_asked_for_is_one() {
    isolated("an_event_that_cannot_be_asked_for_is_one", fake_library, &[("FAKE_CUDA", "cuEventQuery=400")], || {
        let event = Gpu::open(0).unwrap().record_event().unwrap();
        assert_says(&event.has_happened().unwrap_err(), &["cuEventQuery", "400"]);
    });
}

fn launch<'a>(function: &'a Function, params: &'a mut [*mut c_void], block: [u32; 3]) -> GraphLaunch<'a> {
    GraphLaunch { function, grid: [1, 1, 1], block, dynamic_shared_bytes: 0, params }
}

#[test]
fn a_graph_does_what_its_nodes_say_when_it_is_launched() {
    isolated("a_graph_does_what_its_nodes_say_when_it_is_launched", fake_library, &[], || {
        let gpu = Gpu::open(0).unwrap();
        let before = counter::<i32>("fake_live_objects");
        let fill = gpu.load_ptx(PTX).unwrap().function("fill").unwrap();
        let (mut source, target) = (gpu.allocate::<f32>(4).unwrap(), gpu.allocate::<f32>(4).unwrap());
        let (none, fewer) = (gpu.allocate::<f32>(0).unwrap(), gpu.allocate::<f32>(3).unwrap());
        source.copy_from_host(&[0.0; 4]).unwrap();
        let (mut address, mut len, mut value) = (source.address(), 4u64, 1.5f32);
        let mut params: [*mut c_void; 3] = [(&raw mut address).cast(), (&raw mut len).cast(), (&raw mut value).cast()];
        let mut graph = gpu.new_graph().unwrap();
        // SAFETY: the arguments are those of `fill`; the arrays are there until the graph is dropped, and nobody else uses them.
        let mut executable = unsafe {
            graph.add_launch(launch(&fill, &mut params, [1, 1, 1]), &[]).unwrap();
            // Nothing to copy, so no node of the driver's; what comes after it comes after nothing.
            graph.add_copy(&none, &none, &[0]).unwrap();
            graph.add_copy(&source, &target, &[0, 1]).unwrap();
            graph.add_fill(&source, 0xFF, &[2]).unwrap();
            assert!(matches!(graph.add_copy(&source, &fewer, &[]), Err(Error::LengthMismatch { .. })));
            let refused = graph.add_launch(launch(&fill, &mut params, [1, 1, 2000]), &[]).unwrap_err();
            assert!(matches!(refused, Error::LaunchExceeds { .. }), "{refused}");
            graph.instantiate().unwrap()
        };
        let read = |of: &tilewright_cuda_driver::DeviceMemory<f32>| {
            let mut result = [0.0; 4];
            of.copy_to_host(&mut result).unwrap();
            result
        };
        // SAFETY: as above.
        unsafe { executable.launch(&gpu) }.unwrap();
        assert!(read(&target) == [1.5; 4] && read(&source).iter().all(|value| value.is_nan()));
        value = 2.5;
        params[2] = (&raw mut value).cast();
        // SAFETY: as above.
        unsafe {
            executable.set_launch(0, launch(&fill, &mut params, [1, 1, 1])).unwrap();
            executable.launch(&gpu).unwrap();
        }
        assert_eq!(read(&target), [2.5; 4]);
        drop((executable, fill, source, target, none, fewer));
        assert_eq!(counter::<i32>("fake_live_objects"), before);
    });
}
