use cuda_std::{GlobalSlice, GlobalSliceMut};
use gpu_kernels::gemv::{Gemv, block_reduction::gemv_block_reduction_fp32};
use gpu_kernels::{Matrix, Vector, VectorMut};

use super::*;

/// `y = A·x` for a 2×3 matrix, from whatever views.
fn gemv<'a>(
    a: GlobalSlice<'a, f32>,
    x: GlobalSlice<'a, f32>,
    y: GlobalSliceMut<'a, f32>,
) -> gemv_block_reduction_fp32<'a> {
    let a = Matrix::new(a, 2, 3, 3, 1).unwrap();
    let (x, y) = (Vector::new(x, 3, 1).unwrap(), VectorMut::new(y, 2, 1).unwrap());
    gemv_block_reduction_fp32 { gemv: Gemv::new(1.0, a, x, 0.0, y).unwrap() }
}

const A: [f32; 6] = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0];
const X: [f32; 3] = [1.0, 0.0, -1.0];

#[test]
fn a_launch_on_views_of_the_devices_own_buffers_runs() {
    let device = Device::cpu(Checks::Full);
    let (a, x) = (device.upload(&A).unwrap(), device.upload(&X).unwrap());
    let mut y = device.upload(&[9.0, 9.0]).unwrap();
    device.launch(gemv(a.view(), x.view(), y.view_mut())).unwrap();
    let mut result = [0.0; 2];
    y.copy_to(&mut result).unwrap();
    assert_eq!(result, [-2.0, -2.0]);
}

#[test]
fn a_view_of_another_device_is_refused() {
    let (device, other) = (Device::cpu(Checks::Bounds), Device::cpu(Checks::Bounds));
    let (a, x) = (device.upload(&A).unwrap(), other.upload(&X).unwrap());
    let mut y = device.upload(&[9.0, 9.0]).unwrap();
    let error = device.launch(gemv(a.view(), x.view(), y.view_mut())).unwrap_err();
    assert!(matches!(&error, Error::ForeignView { view, bytes: 12, .. } if view == "gemv.x.data"), "{error}");
    let mut result = [0.0; 2];
    y.copy_to(&mut result).unwrap();
    assert_eq!(result, [9.0, 9.0], "nothing may have run");
}

#[test]
fn a_view_of_a_host_slice_is_refused() {
    let device = Device::cpu(Checks::Bounds);
    let mut y = device.upload(&[9.0, 9.0]).unwrap();
    let error = device.launch(gemv(GlobalSlice::new(&A), GlobalSlice::new(&X), y.view_mut())).unwrap_err();
    assert!(error.to_string().contains("`gemv.a.data` (24 bytes at"), "{error}");
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
    let error = device.launch(gemv(dangling, x.view(), y.view_mut())).unwrap_err();
    assert!(matches!(error, Error::ForeignView { .. }), "{error}");
}

#[test]
fn a_view_beyond_the_end_of_a_buffer_is_refused() {
    let device = Device::cpu(Checks::Bounds);
    let (a, x) = (device.upload(&A[..5]).unwrap(), device.upload(&X).unwrap());
    let mut y = device.upload(&[9.0, 9.0]).unwrap();
    // SAFETY: not fulfilled: the buffer is shorter. But the launch has to see that before anything reads it.
    let too_long = unsafe { GlobalSlice::from_raw_parts(a.view().as_ptr(), A.len()) };
    let error = device.launch(gemv(too_long, x.view(), y.view_mut())).unwrap_err();
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
    let (all, x, mut y) = (lent(0, 9), lent(6, 3), lent(9, 2));
    device.launch(gemv(all.view(), x.view(), y.view_mut())).unwrap();
    let mut copy = [0.0; 2];
    y.copy_to(&mut copy).unwrap();
    assert_eq!(copy, [-2.0, -2.0]);
    let late = all.view().as_ptr();
    drop(all);
    // SAFETY: the memory is there, but not lent any more, which the launch has to see.
    let late = unsafe { GlobalSlice::from_raw_parts(late, 6) };
    let error = device.launch(gemv(late, x.view(), y.view_mut())).unwrap_err();
    assert!(matches!(&error, Error::ForeignView { view, .. } if view == "gemv.a.data"), "{error}");
    assert_eq!(lent(0, 0).view().len(), 0);
    drop((x, y));
    assert_eq!(theirs[9..], [-2.0, -2.0], "nothing was copied");
}

#[test]
fn the_cpu_has_no_streams() {
    // SAFETY: no stream of a GPU is used.
    let error = unsafe { Device::cpu(Checks::Bounds).on_stream(std::ptr::null_mut()) }.unwrap_err();
    assert!(matches!(error, Error::Usage(_)), "{error}");
}

#[test]
fn an_output_that_overlaps_an_operand_is_refused() {
    let device = Device::cpu(Checks::Bounds);
    let a = device.upload(&A).unwrap();
    let mut y = device.upload(&X).unwrap();
    let written = y.view_mut();
    // SAFETY: the memory is valid; that it is also written is what the launch has to see.
    let read = unsafe { GlobalSlice::from_raw_parts(written.as_mut_ptr().cast_const(), X.len()) };
    let error = device.launch(gemv(a.view(), read, written)).unwrap_err();
    assert!(
        matches!(&error, Error::OverlappingViews { written, other, .. } if written == "gemv.y.data" && other == "gemv.x.data"),
        "{error}"
    );
    // Operands that are only read may be the same.
    let mut y = device.upload(&[0.0; 2]).unwrap();
    // SAFETY: the first three elements of a buffer that nothing writes to.
    let part = unsafe { GlobalSlice::from_raw_parts(a.view().as_ptr(), 3) };
    device.launch(gemv(a.view(), part, y.view_mut())).unwrap();
}

#[test]
fn empty_views_are_of_no_memory() {
    let device = Device::cpu(Checks::Bounds);
    let (nothing, mut y) = (device.upload::<f32>(&[]).unwrap(), device.upload(&[5.0, 5.0]).unwrap());
    let a = Matrix::new(nothing.view(), 2, 0, 0, 1).unwrap();
    let (x, y_view) = (Vector::new(nothing.view(), 0, 1).unwrap(), VectorMut::new(y.view_mut(), 2, 1).unwrap());
    device.launch(gemv_block_reduction_fp32 { gemv: Gemv::new(1.0, a, x, 2.0, y_view).unwrap() }).unwrap();
    let mut result = [0.0; 2];
    y.copy_to(&mut result).unwrap();
    assert_eq!(result, [10.0, 10.0]);
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

#[test]
fn without_a_gpu_the_cpu_is_opened_and_the_reason_is_told() {
    match Device::open() {
        Ok((device, None)) => assert!(!device.is_cpu()),
        Ok((device, Some(reason))) => assert!(device.is_cpu() && reason.is_absence_of_gpus(), "{reason}"),
        Err(error) => assert!(!error.is_absence_of_gpus(), "{error}"),
    }
}

#[test]
fn device_names_are_read() {
    assert_eq!("auto".parse(), Ok(DeviceChoice::Auto));
    assert_eq!("cpu".parse(), Ok(DeviceChoice::Cpu));
    assert_eq!("cuda".parse(), Ok(DeviceChoice::Cuda(0)));
    assert_eq!("cuda:3".parse(), Ok(DeviceChoice::Cuda(3)));
    for wrong in ["", "gpu", "cuda:", "cuda:x", "cuda3"] {
        assert!(wrong.parse::<DeviceChoice>().is_err(), "{wrong}");
    }
}
