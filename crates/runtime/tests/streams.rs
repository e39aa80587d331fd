//! Streams, events, page-locked memory and graphs on the CPU executor: what comes out, and what is refused. Nothing here needs a GPU.

use std::sync::mpsc;
use std::time::Duration;

use cuda_std::executor::Checks;
use cuda_std::prelude::*;
use cuda_std::print::PrintSink;
use tilewright_runtime::{Device, Error, StreamPriority};

/// `y[i] = factor·y[i] + x[i]`: what comes out depends on the order.
#[kernel(block = 64, grid = x.len().div_ceil(64).max(1) as u32, requires(x.len() == y.len()))]
fn mix(factor: u32, x: GlobalSlice<'_, u32>, y: DisjointSlice<'_, u32>) {
    if let Some(y) = y.own()
        && let Some(x) = x.get(y.index())
    {
        y.set(y.get().wrapping_mul(factor).wrapping_add(x));
    }
}

#[kernel(block = 1, grid = 1)]
fn tell(x: GlobalSlice<'_, u32>) {
    if let Some(x) = x.get(0) {
        gpu_println!("{}", x);
    }
}

#[kernel(block = 1, grid = 1)]
fn other(x: GlobalSlice<'_, u32>) {
    let _ = x;
}

fn device() -> Device {
    Device::cpu(Checks::Full)
}

#[test]
fn what_is_started_on_streams_comes_out_in_the_programs_order() {
    let device = device();
    let (first, second) =
        (device.new_stream().unwrap(), device.new_stream_with_priority(StreamPriority::High).unwrap());
    let mut host = device.allocate_on_host::<u32>(100).unwrap();
    assert_eq!(host.as_slice().unwrap(), [0; 100], "its bytes are zero");
    host.as_mut_slice().unwrap().fill(3);
    let (mut x, mut y) = (device.allocate(100).unwrap(), device.upload(&[1; 100]).unwrap());
    first.copy_to_device(&host, &mut x).unwrap();
    host.as_mut_slice().unwrap().fill(0);
    second.launch(mix { factor: 10, x: x.view(), y: y.view_disjoint() }).unwrap();
    first.copy_on_device(&y, &mut x).unwrap();
    second.fill_bytes(&mut y, 0).unwrap();
    device.launch(mix { factor: 7, x: x.view(), y: y.view_disjoint() }).unwrap();
    first.copy_to_host(&y, &mut host).unwrap();
    assert_eq!(host.as_slice().unwrap(), [13; 100]);
}

#[test]
fn events_are_of_one_device() {
    let (device, other) = (device(), Device::cpu(Checks::Bounds));
    let stream = device.new_stream().unwrap();
    let start = stream.record_event().unwrap();
    std::thread::sleep(Duration::from_millis(2));
    let end = device.record_event().unwrap();
    stream.wait_for(&end).unwrap();
    end.synchronize().unwrap();
    assert!(end.has_happened().unwrap());
    assert!(end.elapsed_since(&start).unwrap() >= Duration::from_millis(2));
    assert_eq!(start.elapsed_since(&end).unwrap(), Duration::ZERO);
    let foreign = other.record_event().unwrap();
    for error in [stream.wait_for(&foreign).unwrap_err(), end.elapsed_since(&foreign).unwrap_err()] {
        assert!(matches!(error, Error::ForeignEvent { .. }), "{error}");
    }
}

#[test]
fn copies_between_devices_and_of_different_lengths_are_refused() {
    let (device, other) = (device(), Device::cpu(Checks::Bounds));
    let (mut host, mut there) = (device.allocate_on_host::<u32>(3).unwrap(), other.allocate::<u32>(3).unwrap());
    let mut here = device.allocate::<u32>(4).unwrap();
    for error in [
        device.copy_to_device(&host, &mut there).unwrap_err(),
        other.copy_to_host(&there, &mut host).unwrap_err(),
        device.fill_bytes(&mut there, 0).unwrap_err(),
        device.new_graph().unwrap().fill_bytes(&mut there, 0).unwrap_err(),
    ] {
        assert!(matches!(error, Error::ForeignBuffer { .. }), "{error}");
    }
    let error = device.copy_to_device(&host, &mut here).unwrap_err();
    assert!(matches!(error, Error::LengthMismatch { host: 3, device: 4 }), "{error}");
    let error = device.copy_to_host(&here, &mut host).unwrap_err();
    assert!(matches!(error, Error::LengthMismatch { host: 3, device: 4 }), "{error}");
}

#[test]
fn nothing_is_copied_of_nothing() {
    let device = device();
    let mut host = device.allocate_on_host::<u32>(0).unwrap();
    let (mut a, mut b) = (device.allocate::<u32>(0).unwrap(), device.allocate::<u32>(0).unwrap());
    device.copy_to_device(&host, &mut a).unwrap();
    device.copy_on_device(&a, &mut b).unwrap();
    device.copy_to_host(&b, &mut host).unwrap();
    assert_eq!((host.len(), host.as_slice().unwrap()), (0, &[][..]));
}

#[test]
fn a_graph_does_again_what_its_steps_say() {
    let device = device();
    let (mut x, mut y, mut z) =
        (device.upload(&[1u32; 70]).unwrap(), device.upload(&[1; 70]).unwrap(), device.upload(&[9; 70]).unwrap());
    let mut builder = device.new_graph().unwrap();
    builder.launch(mix { factor: 2, x: x.view(), y: y.view_disjoint() }).unwrap();
    builder.copy_on_device(&y, &mut z).unwrap();
    builder.fill_bytes(&mut x, 0).unwrap();
    assert_eq!(builder.len(), 3);
    let mut graph = builder.finish().unwrap();
    let read = |buffer: &tilewright_runtime::Buffer<u32>| {
        let mut all = [0; 70];
        buffer.copy_to(&mut all).unwrap();
        assert_eq!(all, [all[0]; 70]);
        all[0]
    };
    assert_eq!((read(&x), read(&y), read(&z)), (1, 1, 9), "adding steps runs nothing");
    let stream = device.new_stream().unwrap();
    stream.launch_graph(&graph).unwrap();
    assert_eq!((read(&x), read(&y), read(&z)), (0, 3, 3));
    x.copy_from(&[5; 70]).unwrap();
    device.launch_graph(&graph).unwrap();
    assert_eq!((read(&x), read(&y), read(&z)), (0, 11, 11));
    graph.set_launch(0, mix { factor: 3, x: x.view(), y: y.view_disjoint() }).unwrap();
    device.launch_graph(&graph).unwrap();
    assert_eq!((read(&x), read(&y), read(&z)), (0, 33, 33));
}

#[test]
fn a_graph_whose_buffer_is_gone_is_refused_by_name() {
    let device = device();
    let (x, mut y) = (device.upload(&[1u32; 8]).unwrap(), device.upload(&[1; 8]).unwrap());
    let mut builder = device.new_graph().unwrap();
    builder.fill_bytes(&mut y, 0).unwrap();
    builder.launch(mix { factor: 2, x: x.view(), y: y.view_disjoint() }).unwrap();
    let graph = builder.finish().unwrap();
    device.launch_graph(&graph).unwrap();
    y.set_len(7);
    let error = device.launch_graph(&graph).unwrap_err().to_string();
    assert!(error.starts_with("step 0 (a fill) of the graph uses `the target`, 32 bytes at"), "{error}");
    y.set_len(8);
    device.launch_graph(&graph).unwrap();
    drop(x);
    // Most likely where `x` was: it is another buffer all the same.
    let _again = device.upload(&[1u32; 8]).unwrap();
    let error = device.launch_graph(&graph).unwrap_err().to_string();
    assert!(error.starts_with("step 1 (kernel `mix`) of the graph uses `x`, 32 bytes at"), "{error}");
    let mut result = [9; 8];
    y.copy_to(&mut result).unwrap();
    assert_eq!(result, [1; 8], "nothing has run");
    let error = Device::cpu(Checks::Full).launch_graph(&graph).unwrap_err();
    assert!(matches!(error, Error::ForeignGraph { .. }), "{error}");
}

#[test]
fn a_step_is_replaced_only_where_the_order_stays() {
    let device = device();
    let (x, mut y, mut z) =
        (device.upload(&[1u32; 8]).unwrap(), device.upload(&[1; 8]).unwrap(), device.upload(&[1; 8]).unwrap());
    let mut builder = device.new_graph().unwrap();
    builder.launch(mix { factor: 2, x: x.view(), y: y.view_disjoint() }).unwrap();
    builder.launch(mix { factor: 3, x: x.view(), y: z.view_disjoint() }).unwrap();
    builder.launch(mix { factor: 5, x: z.view(), y: y.view_disjoint() }).unwrap();
    builder.fill_bytes(&mut z, 0).unwrap();
    let mut graph = builder.finish().unwrap();
    let refused = |result: Result<(), Error>| match result.unwrap_err() {
        Error::GraphStep { step, reason, .. } => (step, reason),
        error => panic!("{error}"),
    };
    // The first two are beside each other.
    let (step, reason) = refused(graph.set_launch(1, mix { factor: 3, x: y.view(), y: z.view_disjoint() }));
    assert_eq!((step, &*reason), (1, "it would use memory of step 0, which is in no order with it"));
    let (step, reason) = refused(graph.set_launch(0, mix { factor: 3, x: x.view(), y: z.view_disjoint() }));
    assert_eq!((step, &*reason), (0, "it would use memory of step 1, which is in no order with it"));
    let (step, reason) = refused(graph.set_launch(3, mix { factor: 3, x: x.view(), y: z.view_disjoint() }));
    assert_eq!((step, &*reason), (3, "it is a fill"));
    assert_eq!(refused(graph.set_launch(2, other { x: x.view() })), (2, "it is kernel `mix`".to_owned()));
    assert_eq!(
        refused(graph.set_launch(4, other { x: x.view() })),
        (4, "it has 4 steps, which count from 0".to_owned())
    );
    // The third comes after both.
    graph.set_launch(2, mix { factor: 7, x: y.view(), y: z.view_disjoint() }).unwrap();
    device.launch_graph(&graph).unwrap();
    let mut result = [0; 8];
    y.copy_to(&mut result).unwrap();
    assert_eq!(result, [3; 8]);
}

#[test]
fn copies_of_a_view_are_used_one_after_the_other() {
    // A view that writes can be copied, and sent to other threads: their launches still do not meet.
    let device = device();
    let x = device.upload(&[1u32; 256]).unwrap();
    let mut y = device.upload(&[0u32; 256]).unwrap();
    let view = y.view_disjoint();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..50 {
                    device.launch(mix { factor: 1, x: x.view(), y: view }).unwrap();
                }
            });
        }
    });
    let mut result = [0; 256];
    y.copy_to(&mut result).unwrap();
    assert_eq!(result, [200; 256]);
}

#[test]
fn a_launch_from_within_a_launch_does_not_wait_for_itself() {
    let device = device();
    let x = device.upload(&[1u32; 1]).unwrap();
    let mut y = device.upload(&[41u32; 1]).unwrap();
    // Views of the same memory are in the hands of what shows lines.
    let (sender, results) = mpsc::channel();
    let (address, within) = (y.view_mut().as_mut_ptr() as usize, device.clone());
    device.print_to(PrintSink::new(move |_| {
        // SAFETY: the buffer is there until the end of the test.
        let y = unsafe { DisjointSlice::from_raw_parts(address as *mut u32, 1) };
        let mut x = within.upload(&[1u32]).unwrap();
        within.fill_bytes(&mut x, 1).unwrap();
        sender.send(within.launch(mix { factor: 1, x: x.view(), y })).unwrap();
    }));
    device.launch(tell { x: y.view() }).unwrap();
    let error = results.recv().unwrap().unwrap_err();
    assert!(matches!(&error, Error::InUse { what } if what == "kernel `mix`"), "{error}");
    device.launch(mix { factor: 1, x: x.view(), y: y.view_disjoint() }).unwrap();
    let mut result = [0];
    y.copy_to(&mut result).unwrap();
    assert_eq!(result, [42]);
}
