//! What streams, events, page-locked memory and graphs ask of the driver, and what becomes of it when a call fails: on the driver that only
//! pretends, the one of `cuda_driver`'s tests. That what comes out is right in whatever order a driver does it, `tests/tests/streams.rs`
//! shows.
//!
//! A process opens a driver's library only once, so each test runs in a process of its own.

#[path = "../../cuda-driver/tests/driver/fake_library.rs"]
mod fake_library;
#[path = "../../cuda-driver/tests/driver/isolated.rs"]
mod isolated;

use std::ffi::CStr;
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Arc, LazyLock, Mutex};

use cuda_driver::LIBRARY_VARIABLE;
use cuda_std::prelude::*;
use cuda_std::print::{PrintSink, Printed};
use tilewright_runtime::{Buffer, Device, Error, HostBuffer, KernelSet, StreamPriority};

static LIBRARY: LazyLock<PathBuf> = LazyLock::new(|| fake_library::compile("libcuda_fake_streams.so", &[]));

fn isolated(test: &str, body: fn()) {
    let prepare = |command: &mut Command| {
        command.env(LIBRARY_VARIABLE, &*LIBRARY);
    };
    isolated::isolated(test, prepare, body);
}

/// As the fake driver's kernel of this name does it.
#[kernel(block = 1, grid = 1, requires(x.len() == y.len()))]
fn mix(factor: u32, rounds: u32, x: GlobalSlice<'_, u32>, y: GlobalSliceMut<'_, u32>) {
    let _ = (factor, rounds, x, y);
}

/// As the fake driver's kernel of this name prints.
#[kernel(block = 1, grid = 1)]
fn prints(count: u32) {
    gpu_println!("{}", count);
}

/// Asks for a cooperative launch.
#[kernel(block = 1, cooperative, any_grid)]
fn meets(x: GlobalSlice<'_, u32>) {
    let _ = x;
}

/// Has clusters.
#[kernel(block = 1, cluster = (2, 3), any_grid)]
fn clustered(x: GlobalSlice<'_, u32>) {
    let _ = x;
}

fn set() -> &'static KernelSet {
    const CHANNEL: &str = ".visible .global .align 8 .b8 __tilewright_channel[32];\n";
    let kernels = [("mix", ""), ("prints", CHANNEL), ("meets", "")].map(|(kernel, variable)| {
        let ptx = format!(".version 7.4\n.target sm_80\n{variable}.visible .entry {kernel}() .reqntid 1 {{\n}}\n");
        (kernel, &*ptx.leak())
    });
    let with_clusters = [(
        "clustered",
        ".version 8.0\n.target sm_90\n.visible .entry clustered()\n.reqntid 1\n.explicitcluster\n.reqnctapercluster 2, 3, 1 // @clustered\n{\n}\n",
    )];
    let archs = vec![
        ("sm_90", &*Box::leak(Box::new(with_clusters)) as &[_]),
        ("sm_80", &*Box::leak(Box::new(kernels)) as &[_]),
    ];
    let crate_name = <mix as cuda_std::Kernel>::FACTS.source.crate_name;
    Box::leak(Box::new(KernelSet::embedded(crate_name, None, Ok(archs.leak()), &[])))
}

/// A function of the fake driver's own.
fn fake<F: Copy>(name: &CStr) -> F {
    // SAFETY: the library is the fake driver, whose functions only note something; it stays open.
    let library = unsafe { libloading::Library::new(&*LIBRARY) }.unwrap();
    // SAFETY: the callers name the type that the function has.
    let function = *unsafe { library.get::<F>(name.to_bytes_with_nul()) }.unwrap();
    std::mem::forget(library);
    function
}

/// Has the driver begin anew, with the call of this number failing: see `fake_faults.rs`.
fn begin(at: usize, code: u32, how: u32) {
    fake::<extern "C" fn(usize, u32, u32)>(c"fake_begin")(at, code, how);
}

fn live_objects() -> i32 {
    fake::<extern "C" fn() -> i32>(c"fake_live_objects")()
}

fn call_count() -> usize {
    fake::<extern "C" fn() -> usize>(c"fake_calls")()
}

/// The functions that `work` has called, but for those that every call is preceded by, and the making of events.
fn calls(work: impl FnOnce()) -> Vec<String> {
    let before = call_count();
    work();
    let name = fake::<unsafe extern "C" fn(usize, *mut usize) -> *const u8>(c"fake_call_name");
    let names = (before + 1..=call_count()).map(|number| {
        let mut length = 0;
        // SAFETY: there are as many calls, and the length may be written to. A name is a constant of a library that is never closed.
        let bytes = unsafe { std::slice::from_raw_parts(name(number, &mut length), length) };
        std::str::from_utf8(bytes).unwrap().trim_end_matches("_v2").to_owned()
    });
    names.filter(|name| !["cuCtxSetCurrent", "cuEventCreate"].contains(&name.as_str())).collect()
}

fn open() -> Device {
    Device::cuda(0, &[set()]).unwrap()
}

fn buffers(device: &Device) -> [Buffer<u32>; 3] {
    [1, 2, 3].map(|value| device.upload(&[value; 10]).unwrap())
}

fn launch<'a>(x: &'a Buffer<u32>, y: &'a mut Buffer<u32>) -> mix<'a> {
    mix { factor: 3, rounds: 1, x: x.view(), y: y.view_mut() }
}

#[test]
fn a_grid_is_made_of_whole_clusters() {
    isolated("a_grid_is_made_of_whole_clusters", || {
        let device = open();
        let [x, ..] = buffers(&device);
        device.launch_any_grid((4, 3, 5), clustered { x: x.view() }).unwrap();
        for grid in [(3, 3, 1), (4, 4, 1), (1, 1, 1)] {
            let error = device.launch_any_grid(grid, clustered { x: x.view() }).unwrap_err().to_string();
            assert!(error.contains("`clustered`") && error.contains("no whole clusters of 2x3x1"), "{error}");
        }
        // The GPU can be used further, and the kernel.
        device.launch_any_grid((2, 3), clustered { x: x.view() }).unwrap();
        device.synchronize().unwrap();
    });
}

#[test]
fn a_gpu_without_clusters_refuses_a_kernel_with_clusters_by_name() {
    let prepare = |command: &mut Command| {
        command.env(LIBRARY_VARIABLE, &*LIBRARY).env("FAKE_CUDA_CAPABILITY", "8.6");
    };
    isolated::isolated("a_gpu_without_clusters_refuses_a_kernel_with_clusters_by_name", prepare, || {
        let device = open();
        let [x, ..] = buffers(&device);
        let error = device.launch_any_grid((2, 3), clustered { x: x.view() }).unwrap_err();
        let Error::KernelForOtherGpus { kernel, available, .. } = &error else { panic!("{error}") };
        assert_eq!((kernel.as_str(), available.as_str()), ("clustered", "sm_90"));
    });
}

#[test]
fn one_stream_asks_for_no_events() {
    isolated("one_stream_asks_for_no_events", || {
        begin(0, 0, 0);
        let device = open();
        let [x, mut y, mut z] = buffers(&device);
        device.prepare(&<mix as cuda_std::Kernel>::FACTS).unwrap();
        let calls = calls(|| {
            device.launch(launch(&x, &mut y)).unwrap();
            device.copy_on_device(&y, &mut z).unwrap();
            device.fill_bytes(&mut y, 0).unwrap();
            z.copy_to(&mut [0; 10]).unwrap();
            drop(z);
        });
        let expected = [
            "cuLaunchKernel",
            "cuMemcpyDtoDAsync",
            "cuMemsetD8Async",
            "cuMemcpyDtoHAsync",
            "cuStreamSynchronize",
            "cuStreamSynchronize",
            "cuMemFree",
        ];
        assert_eq!(calls, expected);
    });
}

#[test]
fn what_conflicts_waits_once_and_the_rest_does_not() {
    isolated("what_conflicts_waits_once_and_the_rest_does_not", || {
        begin(0, 0, 0);
        let device = open();
        let [x, mut y, mut z] = buffers(&device);
        device.prepare(&<mix as cuda_std::Kernel>::FACTS).unwrap();
        let (first, second) = (device.new_stream().unwrap(), device.new_stream().unwrap());
        let (operation, wait) = (["cuLaunchKernel", "cuEventRecord"], "cuStreamWaitEvent");
        let launch_on =
            |device: &Device, x: &Buffer<u32>, y: &mut Buffer<u32>| calls(|| device.launch(launch(x, y)).unwrap());
        assert_eq!(launch_on(&first, &x, &mut y), operation);
        assert_eq!(launch_on(&second, &x, &mut z), operation, "both only read x");
        assert_eq!(
            launch_on(&second, &y, &mut z),
            [&[wait], &operation[..]].concat(),
            "y is written on the first stream"
        );
        assert_eq!(launch_on(&second, &y, &mut z), operation, "the second is behind it now");
        assert_eq!(
            launch_on(&first, &z, &mut y),
            [&[wait], &operation[..]].concat(),
            "z is written, and y read, by one"
        );
        assert_eq!(launch_on(&device, &z, &mut y), [&[wait; 2], &operation[..]].concat(), "one for each stream");

        // An event of one's own counts as well.
        drop(launch_on(&first, &z, &mut y));
        let event = first.record_event().unwrap();
        second.wait_for(&event).unwrap();
        assert_eq!(launch_on(&second, &x, &mut y), operation);
        // But not for what was started after it.
        let event = first.record_event().unwrap();
        drop(launch_on(&first, &x, &mut z));
        second.wait_for(&event).unwrap();
        assert_eq!(launch_on(&second, &x, &mut z), [&[wait], &operation[..]].concat());

        // The host waits for what uses a buffer, and for nothing else, before that is freed.
        drop(launch_on(&first, &y, &mut z));
        let freed = calls(|| drop(y));
        assert_eq!(
            freed.iter().filter(|call| *call == "cuEventSynchronize").count(),
            2,
            "who wrote, and who read: {freed:?}"
        );
        assert_eq!(freed[freed.len() - 2..], ["cuStreamSynchronize", "cuMemFree"]);
        let mut scratch = first.allocate::<u32>(10).unwrap();
        first.fill_bytes(&mut scratch, 1).unwrap();
        assert_eq!(calls(|| drop(scratch)), ["cuEventSynchronize", "cuMemFree"]);
    });
}

#[test]
fn parts_of_a_buffer_are_told_apart() {
    // Nothing ever happens, so that nothing may be forgotten.
    let prepare = |command: &mut Command| {
        command.env(LIBRARY_VARIABLE, &*LIBRARY).env("FAKE_CUDA", "cuEventQuery=600");
    };
    isolated::isolated("parts_of_a_buffer_are_told_apart", prepare, || {
        begin(0, 0, 0);
        let device = open();
        let x = device.upload(&[1u32; 200]).unwrap();
        let mut y = device.upload(&[1u32; 200]).unwrap();
        device.prepare(&<mix as cuda_std::Kernel>::FACTS).unwrap();
        let streams = [(); 3].map(|()| device.new_stream().unwrap());
        let (operation, wait) = (["cuLaunchKernel", "cuEventRecord"], "cuStreamWaitEvent");
        let mut part = |device: &Device, first: usize, len: usize| {
            let (x, y) = (x.view().as_ptr().wrapping_add(first), y.view_mut().as_mut_ptr().wrapping_add(first));
            // SAFETY: parts of the buffers, which are there until the end.
            let (x, y) = unsafe { (GlobalSlice::from_raw_parts(x, len), GlobalSliceMut::from_raw_parts(y, len)) };
            calls(|| device.launch(mix { factor: 3, rounds: 1, x, y }).unwrap())
        };
        assert_eq!(part(&streams[0], 0, 100), operation);
        assert_eq!(part(&streams[1], 100, 100), operation, "another part");
        assert_eq!(part(&streams[1], 99, 2), [&[wait], &operation[..]].concat(), "one element of the first part");
        assert_eq!(part(&streams[2], 0, 90), [&[wait], &operation[..]].concat(), "of the first part alone");
        assert_eq!(part(&device, 0, 200), [&[wait; 3], &operation[..]].concat());
        assert_eq!(part(&streams[0], 0, 1), [&[wait], &operation[..]].concat(), "who wrote all has taken their place");

        // Of many parts only as much is kept as a few tell.
        for first in 0..200 {
            part(&streams[0], first, 1);
        }
        assert_eq!(
            part(&streams[1], 7, 1),
            [&[wait; 2], &operation[..]].concat(),
            "who wrote all, and the last of the many"
        );
        assert_eq!(part(&streams[1], 150, 1), operation, "behind all of the many by now");
        part(&streams[0], 7, 1);
        assert_eq!(part(&streams[1], 7, 1), [&[wait], &operation[..]].concat());

        // And what is kept stands for the last of them.
        for seed in 1..=20 {
            fake::<extern "C" fn(u64)>(c"fake_defer")(seed);
            let (mut y, mut z) = (device.upload(&[1u32; 200]).unwrap(), device.upload(&[0u32; 1]).unwrap());
            let (of_x, of_y) = (x.view().as_ptr(), y.view_mut().as_mut_ptr());
            // The last of them is one too many.
            for first in 0..64 {
                let (x, y) = (of_x.wrapping_add(first), of_y.wrapping_add(first));
                // SAFETY: parts of the buffers, which are there until the end.
                let (x, y) = unsafe { (GlobalSlice::from_raw_parts(x, 1), GlobalSliceMut::from_raw_parts(y, 1)) };
                streams[0].launch(mix { factor: 3, rounds: 1, x, y }).unwrap();
            }
            // SAFETY: as above.
            let of_y = unsafe { GlobalSlice::from_raw_parts(of_y.wrapping_add(63), 1) };
            streams[1].launch(mix { factor: 1, rounds: 1, x: of_y, y: z.view_mut() }).unwrap();
            let mut result = [0];
            z.copy_to(&mut result).unwrap();
            assert_eq!(result, [4], "seed {seed}");
        }
        fake::<extern "C" fn(u64)>(c"fake_defer")(0);
    });
}

#[test]
fn a_new_stream_is_behind_what_was_not_recorded() {
    isolated("a_new_stream_is_behind_what_was_not_recorded", || {
        for seed in 1..=20 {
            fake::<extern "C" fn(u64)>(c"fake_defer")(seed);
            let device = open();
            let [x, mut y, _] = buffers(&device);
            // One stream, so nobody notes this.
            device.launch(launch(&x, &mut y)).unwrap();
            let stream = device.new_stream().unwrap();
            let mut host = device.allocate_on_host(10).unwrap();
            stream.copy_to_host(&y, &mut host).unwrap();
            assert_eq!(host.as_slice().unwrap(), [7; 10], "seed {seed}");
        }
        fake::<extern "C" fn(u64)>(c"fake_defer")(0);
    });
}

#[test]
fn the_host_waits_for_copies_of_its_memory_and_no_others() {
    isolated("the_host_waits_for_copies_of_its_memory_and_no_others", || {
        begin(0, 0, 0);
        let device = open();
        let [x, mut y, _] = buffers(&device);
        let mut hosts: [HostBuffer<u32>; 2] = [(); 2].map(|()| device.allocate_on_host(10).unwrap());
        let stream = device.new_stream_with_priority(StreamPriority::High).unwrap();
        assert_eq!(fake::<extern "C" fn() -> i32>(c"fake_last_priority")(), -5);
        let [from, to] = &mut hosts;
        stream.copy_to_device(from, &mut y).unwrap();
        stream.copy_to_host(&x, to).unwrap();
        assert!(calls(|| _ = from.as_slice().unwrap()).is_empty(), "the copy only reads it");
        assert_eq!(calls(|| _ = from.as_mut_slice().unwrap()), ["cuEventSynchronize"]);
        assert!(calls(|| _ = from.as_mut_slice().unwrap()).is_empty());
        assert_eq!(calls(|| assert_eq!(to.as_slice().unwrap(), [1; 10])), ["cuEventSynchronize"]);
        stream.copy_to_host(&x, to).unwrap();
        assert_eq!(calls(|| drop(hosts)), ["cuMemFreeHost", "cuEventSynchronize", "cuMemFreeHost"]);
    });
}

#[test]
fn on_another_librarys_stream_only_the_hosts_memory_is_waited_for() {
    isolated("on_another_librarys_stream_only_the_hosts_memory_is_waited_for", || {
        begin(0, 0, 0);
        let device = open();
        let [x, mut y, _] = buffers(&device);
        let mut host = device.allocate_on_host::<u32>(10).unwrap();
        // SAFETY: to the fake driver a stream is any number.
        let [theirs, also_theirs] =
            [0x70, 0x71].map(|stream| unsafe { device.on_stream(std::ptr::without_provenance_mut(stream)) }.unwrap());
        device.fill_bytes(&mut y, 1).unwrap();
        assert_eq!(calls(|| theirs.fill_bytes(&mut y, 0).unwrap()), ["cuMemsetD8Async"]);
        assert_eq!(calls(|| theirs.copy_to_host(&x, &mut host).unwrap()), ["cuMemcpyDtoHAsync", "cuEventRecord"]);
        let again = calls(|| also_theirs.copy_to_host(&x, &mut host).unwrap());
        assert_eq!(
            again,
            ["cuStreamWaitEvent", "cuMemcpyDtoHAsync", "cuEventRecord"],
            "nobody knows which stream that is"
        );
        assert_eq!(calls(|| _ = host.as_slice().unwrap()), ["cuEventSynchronize"]);
    });
}

#[test]
fn a_graph_is_one_call_and_waits_as_a_whole() {
    isolated("a_graph_is_one_call_and_waits_as_a_whole", || {
        begin(0, 0, 0);
        let device = open();
        let [x, mut y, mut z] = buffers(&device);
        device.prepare(&<mix as cuda_std::Kernel>::FACTS).unwrap();
        let mut builder = device.new_graph().unwrap();
        builder.launch(launch(&x, &mut y)).unwrap();
        builder.copy_on_device(&y, &mut z).unwrap();
        builder.fill_bytes(&mut y, 0).unwrap();
        builder.launch_any_grid(2, meets { x: x.view() }).unwrap();
        let mut graph = builder.finish().unwrap();
        let stream = device.new_stream().unwrap();
        stream.fill_bytes(&mut z, 9).unwrap();
        let whole = ["cuStreamWaitEvent", "cuGraphLaunch", "cuEventRecord"];
        assert_eq!(calls(|| device.launch_graph(&graph).unwrap()), whole);
        assert_eq!(calls(|| device.launch_graph(&graph).unwrap()), whole[1..]);
        assert_eq!(calls(|| stream.launch_graph(&graph).unwrap()), whole);
        assert_eq!(calls(|| graph.set_launch(0, launch(&x, &mut y)).unwrap()), ["cuGraphExecKernelNodeSetParams"]);
        let mut result = [0; 10];
        z.copy_to(&mut result).unwrap();
        assert_eq!(result, [1; 10], "y was 0 after the first launch");
        let ended = calls(|| drop(graph));
        assert_eq!(ended, ["cuEventSynchronize", "cuGraphExecDestroy", "cuGraphDestroy"]);
        drop((device, x, y, z, stream));
        assert_eq!(live_objects(), 0);
    });
}

#[test]
fn forgotten_buffers_stay_where_they_are() {
    isolated("forgotten_buffers_stay_where_they_are", || {
        begin(0, 0, 0);
        fake::<extern "C" fn(u64)>(c"fake_defer")(7);
        let device = open();
        let stream = device.new_stream().unwrap();
        for value in 0..50 {
            // The driver that only pretends ends the process if anything that is in use were freed.
            let mut host = device.allocate_on_host::<u32>(10).unwrap();
            host.as_mut_slice().unwrap().fill(value);
            let mut buffer = stream.allocate::<u32>(10).unwrap();
            stream.copy_to_device(&host, &mut buffer).unwrap();
            std::mem::forget(host);
            let mut last = device.allocate_on_host::<u32>(10).unwrap();
            stream.copy_to_host(&buffer, &mut last).unwrap();
            std::mem::forget(buffer);
            assert_eq!(last.as_slice().unwrap(), [value; 10]);
        }
        fake::<extern "C" fn(u64)>(c"fake_defer")(0);
    });
}

/// Everything that there is to do, once.
fn use_all() -> Result<(), Error> {
    let device = Device::cuda(0, &[set()])?;
    let (mut x, mut y) = (device.upload(&[1u32; 10])?, device.upload(&[2u32; 10])?);
    let streams = [device.new_stream()?, device.new_stream_with_priority(StreamPriority::High)?];
    let mut host = device.allocate_on_host::<u32>(10)?;
    host.as_mut_slice()?.fill(5);
    streams[0].copy_to_device(&host, &mut x)?;
    let start = streams[1].record_event()?;
    streams[1].launch(launch(&x, &mut y))?;
    streams[0].wait_for(&start)?;
    start.synchronize()?;
    let mut builder = device.new_graph()?;
    builder.launch(launch(&x, &mut y))?;
    builder.copy_on_device(&y, &mut x)?;
    builder.fill_bytes(&mut y, 0)?;
    builder.launch_any_grid(1, meets { x: x.view() })?;
    let mut graph = builder.finish()?;
    streams[0].launch_graph(&graph)?;
    graph.set_launch(0, launch(&x, &mut y))?;
    let mut scratch = streams[1].allocate::<u32>(10)?;
    streams[1].copy_on_device(&x, &mut scratch)?;
    streams[1].copy_to_host(&scratch, &mut host)?;
    assert_eq!(host.as_slice()?, [38; 10]);
    device.launch(prints { count: 1 })?;
    device.synchronize()?;
    // What comes after this gives things back.
    device.free_memory().map(|_| ())
}

/// For each call, whether it is for giving something back. What fails there is not told: there is nobody left to tell.
fn is_cleaning_up(calls: &[String]) -> Vec<bool> {
    let mut cleaning = vec![false; calls.len()];
    for (index, call) in calls.iter().enumerate() {
        if ["Destroy", "Free", "Unload", "Release"].iter().any(|part| call.contains(part)) {
            // Before it, the context is made current, and what may need the thing is waited for.
            let is_before =
                |call: &String| call == "cuCtxSetCurrent" || call.contains("Synchronize") || call.contains("Query");
            let before = calls[..index].iter().rev().take_while(|call| is_before(call)).count();
            cleaning[index - before..=index].fill(true);
        }
    }
    cleaning
}

#[test]
fn whatever_call_fails_is_told_and_nothing_is_left() {
    isolated("whatever_call_fails_is_told_and_nothing_is_left", || {
        cuda_driver::driver_version().unwrap();
        begin(0, 0, 0);
        let names = calls_by_number(|| use_all().unwrap());
        assert_eq!(live_objects(), 0);
        let cleaning = is_cleaning_up(&names);
        let ending = names.iter().position(|name| name.contains("cuMemGetInfo")).unwrap() + 1;
        assert!(ending > 100 && cleaning[ending..].iter().all(|is_cleaning| *is_cleaning), "{names:?}");
        for (number, name) in names.iter().enumerate().map(|(index, name)| (index + 1, name)) {
            // When a context is made, `cust` makes it current and does not look whether it is; we do the same, and look.
            let is_repeated = number > 1 && names[number - 2] == "cuDevicePrimaryCtxRetain";
            for (code, how) in [(2, 0), (999, 0), (700, 1), (999, 2)] {
                let what = format!("call {number} ({name}) failed with {code}, {how}");
                begin(number, code, how);
                let result = use_all();
                let left = live_objects();
                let may_succeed = if how == 0 { cleaning[number - 1] || is_repeated } else { number > ending };
                match &result {
                    Ok(()) => assert!(may_succeed, "{what} unseen"),
                    Err(Error::Driver(error)) => {
                        let call = error.driver_call().unwrap_or_else(|| panic!("{what}: {error}"));
                        assert_eq!(call.code, code, "{what}: {error}");
                        assert!(how != 0 || call.function == name, "{what}: {error}");
                    }
                    Err(error) => panic!("{what}: {error}"),
                }
                // A thing stays that nobody knows to be unused, or that the driver does not destroy; of a graph that is two.
                let may_stay = if cleaning[number - 1] { 2 } else { 0 };
                assert!(how != 0 || (0..=may_stay).contains(&left), "{what}, and {left} things are left: {result:?}");
            }
        }
    });
}

/// The functions that `work` has called, all of them, from the beginning.
fn calls_by_number(work: impl FnOnce()) -> Vec<String> {
    work();
    let name = fake::<unsafe extern "C" fn(usize, *mut usize) -> *const u8>(c"fake_call_name");
    let one = |number| {
        let mut length = 0;
        // SAFETY: as in `calls`.
        let bytes = unsafe { std::slice::from_raw_parts(name(number, &mut length), length) };
        std::str::from_utf8(bytes).unwrap().to_owned()
    };
    (1..=call_count()).map(one).collect()
}

#[test]
fn lines_are_read_without_waiting_for_the_whole_context() {
    isolated("lines_are_read_without_waiting_for_the_whole_context", || {
        begin(0, 0, 0);
        let device = open();
        let printed = Arc::<Mutex<Vec<Printed>>>::default();
        let target = printed.clone();
        device.print_to(PrintSink::new(move |line| target.lock().unwrap().push(line.clone())));
        let lines = || std::mem::take(&mut *printed.lock().unwrap()).len();
        let stream = device.new_stream().unwrap();
        // SAFETY: to the fake driver a stream is any number; of this one it says that it is captured.
        let captured = unsafe { device.on_stream(std::ptr::without_provenance_mut(4711)) }.unwrap();
        // SAFETY: as above, and it is not captured.
        let theirs = unsafe { device.on_stream(std::ptr::without_provenance_mut(0x70)) }.unwrap();
        // SAFETY: as above.
        let also_theirs = unsafe { device.on_stream(std::ptr::without_provenance_mut(0x71)) }.unwrap();
        device.launch(prints { count: 0 }).unwrap();
        device.synchronize().unwrap();
        let waits_for_all = |work: &dyn Fn()| calls(work).iter().any(|call| call == "cuCtxSynchronize");

        captured.launch(prints { count: 0 }).unwrap();
        stream.launch(prints { count: 2 }).unwrap();
        assert!(!waits_for_all(&|| device.synchronize().unwrap()));
        assert_eq!(lines(), 2);
        theirs.launch(prints { count: 3 }).unwrap();
        assert!(!waits_for_all(&|| theirs.synchronize().unwrap()));
        assert_eq!(lines(), 3);
        // Nobody knows whether the stream is still there that was not waited for.
        theirs.launch(prints { count: 4 }).unwrap();
        also_theirs.launch(prints { count: 5 }).unwrap();
        assert!(waits_for_all(&|| also_theirs.synchronize().unwrap()));
        assert_eq!(lines(), 9);
    });
}
