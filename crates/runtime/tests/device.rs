//! Launches on the CPU executor: what is refused before anything runs, and that what is accepted runs. Nothing here needs a GPU.

use cuda_std::executor::{Checks, Executor};
use cuda_std::prelude::*;
use cuda_std::{ComputeCapability, Dim3, Excess, Limits, grid};
use tilewright_runtime::{Device, Error};

/// `y = A·x` for a matrix with as many columns as `x` has elements, by rows: one thread for each row.
#[kernel(block = 32, grid = y.len().div_ceil(32).max(1) as u32, requires(a.len() == x.len() * y.len()))]
fn gemv(a: GlobalSlice<'_, f32>, x: GlobalSlice<'_, f32>, y: GlobalSliceMut<'_, f32>) {
    let row = thread::index_1d();
    if row >= y.len() {
        return;
    }
    let mut sum = 0.0;
    for col in 0..x.len() {
        // SAFETY: row < y.len() and col < x.len(), and A has as many elements as their product.
        sum = unsafe { math::fma(a.get_unchecked(row * x.len() + col), x.get_unchecked(col), sum) };
    }
    // SAFETY: row < y.len(); no other thread has this row.
    unsafe { y.set_unchecked(row, sum) };
}

/// Sets all elements, whatever the grid.
#[kernel(block = 32, any_grid)]
fn fill(value: f32, y: GlobalSliceMut<'_, f32>) {
    let threads = (thread::grid_dim_x() * thread::block_dim_x()) as usize;
    let mut i = thread::index_1d();
    // Of a grid with several rows of blocks, one row does it all.
    while i < y.len() && thread::block_idx_y() == 0 && thread::block_idx_z() == 0 {
        // SAFETY: i < y.len(); no other thread of the first row of blocks has this i.
        unsafe { y.set_unchecked(i, value) };
        i += threads;
    }
}

/// Needs more shared memory than most GPUs have.
#[kernel(block = 32, grid = 1, dynamic_shared = 200 << 10)]
fn large() {}

/// Each element becomes the largest of all of them.
#[kernel(block = 32, cooperative, any_grid, requires(met.len() == 1, largest.len() == 1))]
fn level(y: DisjointSlice<'_, u32>, largest: GlobalAtomics<'_, u32>, met: GlobalAtomics<'_, u32>) {
    let Some(largest) = largest.get(0) else { return };
    for y in y.own_elements() {
        largest.fetch_max(y.get(), atomic::Relaxed, atomic::Scope::Device);
    }
    // SAFETY: all threads come here, or none.
    unsafe { grid::sync(met) };
    for y in y.own_elements() {
        y.set(largest.load(atomic::Relaxed, atomic::Scope::Device));
    }
}

const A: [f32; 6] = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0];
const X: [f32; 3] = [1.0, 0.0, -1.0];

#[test]
fn a_launch_on_views_of_the_devices_own_buffers_runs() {
    let device = Device::cpu(Checks::Full);
    let (a, x) = (device.upload(&A).unwrap(), device.upload(&X).unwrap());
    let mut y = device.upload(&[9.0, 9.0]).unwrap();
    device.launch(gemv { a: a.view(), x: x.view(), y: y.view_mut() }).unwrap();
    let mut result = [0.0; 2];
    y.copy_to(&mut result).unwrap();
    assert_eq!(result, [-2.0, -2.0]);
}

#[test]
fn memory_without_values_is_written_before_it_is_read() {
    let device = Device::cpu(Checks::Full);
    let a = device.upload(&A).unwrap();
    let here = |line: u32| format!("{}:{line}", file!());
    let (mut empty, line) = (device.allocate::<f32>(3).unwrap(), line!());
    let mut y = device.upload(&[9.0, 9.0]).unwrap();
    let mut result = [0.0; 3];

    // The host reads it, before and after a kernel has written a part.
    let message = empty.copy_to(&mut result).unwrap_err().to_string();
    assert!(message.starts_with("3 of 3 elements that the host reads have never been written"), "{message}");
    assert!(message.contains(&here(line)), "{message}");
    let mut part = empty.view_mut();
    // SAFETY: a part of the buffer, which is borrowed.
    part = unsafe { GlobalSliceMut::from_raw_parts(part.as_mut_ptr(), 2) };
    device.launch_any_grid(1, fill { value: 1.0, y: part }).unwrap();
    let error = empty.copy_to(&mut result).unwrap_err();
    assert!(matches!(&error, Error::Unwritten(unwritten) if (unwritten.first, unwritten.count) == (2, 1)), "{error}");
    assert!(error.is_kernel_fault());

    // A kernel reads it.
    let error = device.launch(gemv { a: a.view(), x: empty.view(), y: y.view_mut() }).unwrap_err();
    let message = error.to_string();
    assert!(message.contains("element 2 of view `x` is read, and nobody has written it"), "{message}");
    assert!(message.contains(&here(line)), "{message}");

    // What the host writes is there, until the memory is used for something else.
    empty.copy_from(&X).unwrap();
    device.launch(gemv { a: a.view(), x: empty.view(), y: y.view_mut() }).unwrap();
    empty.copy_to(&mut result).unwrap();
    empty.set_len(2);
    assert!(matches!(empty.copy_to(&mut result[..2]), Err(Error::Unwritten(_))));
    empty.fill_bytes(0).unwrap();
    empty.copy_to(&mut result[..2]).unwrap();
    empty.take_as_unwritten(1..2);
    assert!(empty.check_written(0..1).is_ok() && empty.check_written(0..2).is_err());
    empty.take_as_written();
    assert!(empty.check_written(0..2).is_ok());

    // Without all checks, and for somebody else's memory, nobody looks.
    let device = Device::cpu(Checks::Bounds);
    device.allocate::<f32>(3).unwrap().copy_to(&mut result).unwrap();
}

#[test]
fn a_cooperative_launch_has_as_many_blocks_as_run_at_the_same_time() {
    let device = Device::with_executor(Executor::new(Checks::Full).multiprocessors(2));
    let (mut largest, mut met) = (device.upload(&[0u32]).unwrap(), device.upload(&[0u32]).unwrap());
    let mut y = device.upload(&(0..5000).collect::<Vec<u32>>()).unwrap();
    let resident = device.resident_blocks(&level::FACTS).unwrap() as u32;
    assert_eq!(resident, 64);
    for (blocks, is_possible) in [(3, true), (resident, true), (resident + 1, false)] {
        let (y, largest, met) = (y.view_disjoint(), largest.view_atomics(), met.view_atomics());
        let result = device.launch_any_grid(blocks, level { y, largest, met });
        assert_eq!(result.is_ok(), is_possible, "{blocks} blocks: {result:?}");
        if let Err(error) = result {
            assert!(error.to_string().contains("65x1x1 blocks, and 64 of this kernel run at the same time"), "{error}");
        }
    }
    let mut result = vec![0; 5000];
    y.copy_to(&mut result).unwrap();
    assert_eq!(result, [4999; 5000]);
}

#[test]
fn a_view_of_another_device_is_refused() {
    let (device, other) = (Device::cpu(Checks::Bounds), Device::cpu(Checks::Bounds));
    let (a, x) = (device.upload(&A).unwrap(), other.upload(&X).unwrap());
    let mut y = device.upload(&[9.0, 9.0]).unwrap();
    let error = device.launch(gemv { a: a.view(), x: x.view(), y: y.view_mut() }).unwrap_err();
    assert!(matches!(&error, Error::ForeignView { view, bytes: 12, .. } if view == "x"), "{error}");
    let mut result = [0.0; 2];
    y.copy_to(&mut result).unwrap();
    assert_eq!(result, [9.0, 9.0], "nothing may have run");
}

#[test]
fn a_view_of_a_host_slice_is_refused() {
    let device = Device::cpu(Checks::Bounds);
    let mut y = device.upload(&[9.0, 9.0]).unwrap();
    let error = device.launch(gemv { a: GlobalSlice::new(&A), x: GlobalSlice::new(&X), y: y.view_mut() }).unwrap_err();
    assert!(error.to_string().contains("`a` (24 bytes at"), "{error}");
}

#[test]
fn a_view_of_a_freed_buffer_is_refused() {
    let device = Device::cpu(Checks::Bounds);
    let (a, x) = (device.upload(&A).unwrap(), device.upload(&X).unwrap());
    let mut y = device.upload(&[9.0, 9.0]).unwrap();
    let freed = a.view().as_ptr();
    drop(a);
    // SAFETY: not fulfilled: the memory is freed. But the launch has to see that before anything reads it.
    let dangling = unsafe { GlobalSlice::from_raw_parts(freed, A.len()) };
    let error = device.launch(gemv { a: dangling, x: x.view(), y: y.view_mut() }).unwrap_err();
    assert!(matches!(error, Error::ForeignView { .. }), "{error}");
}

#[test]
fn a_view_beyond_the_end_of_a_buffer_is_refused() {
    let device = Device::cpu(Checks::Bounds);
    let (a, x) = (device.upload(&A[..5]).unwrap(), device.upload(&X).unwrap());
    let mut y = device.upload(&[9.0, 9.0]).unwrap();
    // SAFETY: not fulfilled: the buffer is shorter. But the launch has to see that before anything reads it.
    let too_long = unsafe { GlobalSlice::from_raw_parts(a.view().as_ptr(), A.len()) };
    let error = device.launch(gemv { a: too_long, x: x.view(), y: y.view_mut() }).unwrap_err();
    assert!(matches!(error, Error::ForeignView { bytes: 24, .. }), "{error}");
}

#[test]
fn lent_memory_is_used_where_it_is_and_only_while_it_is_lent() {
    let device = Device::cpu(Checks::Full);
    let mut theirs = [1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0, 1.0, 0.0, -1.0, 9.0, 9.0];
    let address = theirs.as_mut_ptr().expose_provenance();
    let lent = |first: usize, len: usize| {
        // SAFETY: elements of `theirs`, which nothing else uses while there are buffers.
        unsafe { device.lent::<f32>(address + first * size_of::<f32>(), len) }
    };
    // The same memory twice, once within more.
    let (all, x, mut y) = (lent(0, 6), lent(6, 3), lent(9, 2));
    let overlapping = lent(3, 6);
    device.launch(gemv { a: all.view(), x: x.view(), y: y.view_mut() }).unwrap();
    drop(overlapping);
    let mut copy = [0.0; 2];
    y.copy_to(&mut copy).unwrap();
    assert_eq!(copy, [-2.0, -2.0]);
    let late = all.view().as_ptr();
    drop(all);
    // SAFETY: the memory is there, but not lent any more, which the launch has to see.
    let late = unsafe { GlobalSlice::from_raw_parts(late, 6) };
    let error = device.launch(gemv { a: late, x: x.view(), y: y.view_mut() }).unwrap_err();
    assert!(matches!(&error, Error::ForeignView { view, .. } if view == "a"), "{error}");
    assert_eq!(lent(0, 0).view().len(), 0);
    drop((x, y));
    assert_eq!(theirs[9..], [-2.0, -2.0], "nothing was copied");
}

#[test]
fn the_cpu_has_no_streams() {
    // SAFETY: no stream of a GPU is used.
    let error = unsafe { Device::cpu(Checks::Bounds).on_stream(std::ptr::null_mut()) }.unwrap_err();
    assert!(matches!(error, Error::OnlyOnGpus { what: "streams" }), "{error}");
}

#[test]
fn an_output_that_overlaps_an_operand_is_refused() {
    let device = Device::cpu(Checks::Bounds);
    let (a, square) = (device.upload(&A).unwrap(), device.upload(&[1.0; 9]).unwrap());
    let mut y = device.upload(&X).unwrap();
    let written = y.view_mut();
    // SAFETY: the memory is valid; that it is also written is what the launch has to see.
    let read = unsafe { GlobalSlice::from_raw_parts(written.as_mut_ptr().cast_const(), X.len()) };
    let error = device.launch(gemv { a: square.view(), x: read, y: written }).unwrap_err();
    assert!(
        matches!(&error, Error::OverlappingViews { written, other, .. } if written == "y" && other == "x"),
        "{error}"
    );
    // Operands that are only read may be the same.
    let mut y = device.upload(&[0.0; 2]).unwrap();
    // SAFETY: the first three elements of a buffer that nothing writes to.
    let part = unsafe { GlobalSlice::from_raw_parts(a.view().as_ptr(), 3) };
    device.launch(gemv { a: a.view(), x: part, y: y.view_mut() }).unwrap();
}

#[test]
fn empty_views_are_of_no_memory() {
    let device = Device::cpu(Checks::Bounds);
    let (nothing, mut y) = (device.upload::<f32>(&[]).unwrap(), device.upload(&[5.0, 5.0]).unwrap());
    device.launch(gemv { a: nothing.view(), x: nothing.view(), y: y.view_mut() }).unwrap();
    let mut result = [1.0; 2];
    y.copy_to(&mut result).unwrap();
    assert_eq!(result, [0.0, 0.0]);
}

#[test]
fn a_grid_is_the_kernels_own_or_an_argument_that_is_checked() {
    let device = Device::cpu(Checks::Bounds);
    let mut y = device.upload(&[0.0f32; 100]).unwrap();
    for grid in [Dim3::from(1), Dim3::from(7), Dim3::new(2, 3, 2)] {
        device.launch_any_grid(grid, fill { value: grid.x as f32, y: y.view_mut() }).unwrap();
        let mut result = [0.0; 100];
        y.copy_to(&mut result).unwrap();
        assert_eq!(result, [grid.x as f32; 100]);
    }
    for grid in [Dim3::from(0), Dim3::new(1, 65_536, 1), Dim3::from(u32::MAX)] {
        let error = device.launch_any_grid(grid, fill { value: 1.0, y: y.view_mut() }).unwrap_err();
        assert!(error.to_string().contains(&format!("{}x{}x{} blocks", grid.x, grid.y, grid.z)), "{error}");
    }
}

#[test]
fn the_executor_refuses_what_the_gpu_would_whose_limits_it_has() {
    device_with((9, 0)).launch(large {}).unwrap();
    let error = device_with((8, 9)).launch(large {}).unwrap_err();
    let Error::Executor(cuda_std::executor::LaunchError::Excess { excess, .. }) = error else { panic!("{error}") };
    assert_eq!(excess, Excess::Shared { static_bytes: 0, dynamic_bytes: 200 << 10, limit: 99 << 10 });
}

fn device_with((major, minor): (u32, u32)) -> Device {
    let limits = Limits::of(ComputeCapability::new(major, minor)).unwrap();
    Device::with_executor(Executor::new(Checks::Full).with_limits(limits))
}

#[test]
fn copies_are_of_the_buffers_length() {
    let device = Device::cpu(Checks::Bounds);
    let mut buffer = device.upload(&X).unwrap();
    assert!(matches!(buffer.copy_from(&A), Err(Error::LengthMismatch { host: 6, device: 3 })));
    assert!(matches!(buffer.copy_to(&mut []), Err(Error::LengthMismatch { host: 0, device: 3 })));
}

#[test]
fn memory_is_aligned_as_on_a_gpu() {
    let device = Device::cpu(Checks::Bounds);
    for len in [1, 63, 64, 65] {
        let buffer = device.allocate::<f64>(len).unwrap();
        assert_eq!((buffer.len(), buffer.view().as_ptr().addr() % 256), (len, 0));
    }
}

#[test]
fn a_size_beyond_any_address_range_is_an_error() {
    let device = Device::cpu(Checks::Bounds);
    assert!(matches!(device.allocate::<f32>(usize::MAX / 2), Err(Error::Driver(_))));
    assert!(matches!(device.allocate::<f32>(1 << 60), Err(Error::NotEnoughMemory { .. })));
}
