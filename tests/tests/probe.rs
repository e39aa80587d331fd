//! The probes do what their figures count: every element is read, written or copied once, whatever the length.

use cuda_std::executor::Checks;
use gpu_kernels::probe::{
    THREADS, blocks, probe_copy_deep_fp32, probe_copy_fp32, probe_copy_scalar_fp32, probe_copy_single_fp32,
    probe_fma_fp32, probe_read_deep_fp32, probe_read_fp32, probe_read_scalar_fp32, probe_read_single_fp32,
    probe_write_deep_fp32, probe_write_fp32, probe_write_scalar_fp32, probe_write_single_fp32,
};
use tilewright::{Device, DeviceError, Error};

/// Lengths around the steps of 1024, 2048, 4096 and 8192 elements, and chunks below, at and above them.
const LENGTHS: [usize; 14] = [0, 1, 3, 4, 5, 255, 1023, 1024, 2049, 4095, 4097, 8192, 20_000, 33_003];
const CHUNKS: [u64; 8] = [4, 1020, 1024, 2052, 4096, 8192, 8196, 1 << 20];

/// Whole numbers, so that sums in any order are exact.
fn numbers(len: usize) -> Vec<f32> {
    (0..len).map(|i| (i % 61) as f32 - 30.0).collect()
}

/// Calls `check` with every length and every chunk that makes no more blocks than a test has time for.
fn everywhere(mut check: impl FnMut(&Device, usize, u64)) {
    let device = Device::cpu(Checks::Full);
    for len in LENGTHS {
        for chunk in CHUNKS {
            if blocks(len, chunk) <= 40 {
                check(&device, len, chunk);
            }
        }
    }
}

#[test]
fn reading_adds_up_every_element_once() {
    everywhere(|device, len, chunk| {
        let data = device.upload(&numbers(len)).unwrap();
        let sums_len = (blocks(len, chunk) * u64::from(THREADS)) as usize;
        macro_rules! check {
            ($($kernel:ident)*) => { $(
                let mut sums = device.upload(&vec![f32::NAN; sums_len + 1]).unwrap();
                device.launch($kernel { data: data.view(), chunk, sums: sums.view_mut() }).unwrap();
                let mut found = vec![0.0; sums_len + 1];
                sums.copy_to(&mut found).unwrap();
                assert!(found.pop().unwrap().is_nan(), "a sum too many was written");
                let name = stringify!($kernel);
                assert_eq!(found.iter().sum::<f32>(), numbers(len).iter().sum::<f32>(), "{name}, {len} in chunks of {chunk}");
            )* };
        }
        check!(probe_read_fp32 probe_read_deep_fp32 probe_read_single_fp32 probe_read_scalar_fp32);
    });
}

#[test]
fn writing_reaches_every_element() {
    everywhere(|device, len, chunk| {
        macro_rules! check {
            ($($kernel:ident)*) => { $(
                let mut target = device.upload(&vec![f32::NAN; len]).unwrap();
                device.launch($kernel { value: 2.5, chunk, target: target.view_mut() }).unwrap();
                let mut found = vec![0.0; len];
                target.copy_to(&mut found).unwrap();
                assert_eq!(found, vec![2.5; len], "{}, {len} in chunks of {chunk}", stringify!($kernel));
            )* };
        }
        check!(probe_write_fp32 probe_write_deep_fp32 probe_write_single_fp32 probe_write_scalar_fp32);
    });
}

#[test]
fn copying_keeps_every_element_in_its_place() {
    everywhere(|device, len, chunk| {
        let source = device.upload(&numbers(len)).unwrap();
        macro_rules! check {
            ($($kernel:ident)*) => { $(
                let mut target = device.upload(&vec![f32::NAN; len]).unwrap();
                device.launch($kernel { source: source.view(), chunk, target: target.view_mut() }).unwrap();
                let mut found = vec![0.0; len];
                target.copy_to(&mut found).unwrap();
                assert_eq!(found, numbers(len), "{}, {len} in chunks of {chunk}", stringify!($kernel));
            )* };
        }
        check!(probe_copy_fp32 probe_copy_deep_fp32 probe_copy_single_fp32 probe_copy_scalar_fp32);
    });
}

#[test]
fn chains_of_multiplications_are_as_long_as_they_are_counted() {
    let device = Device::cpu(Checks::Full);
    for (blocks, rounds) in [(0, 5), (1, 0), (2, 3)] {
        let mut results = device.upload(&vec![f32::NAN; blocks * THREADS as usize]).unwrap();
        device.launch(probe_fma_fp32 { factor: 0.5, offset: 1.0, rounds, results: results.view_mut() }).unwrap();
        let chain = |first: u32| (0..rounds * 16).fold(first as f32, |x, _| 0.5f32.mul_add(x, 1.0));
        let expected: f32 = (0..8).map(chain).sum();
        let mut found = vec![0.0; blocks * THREADS as usize];
        results.copy_to(&mut found).unwrap();
        assert!(found.iter().all(|&sum| sum == expected), "{rounds} rounds: {found:?}");
    }
    assert_eq!(gpu_kernels::probe::FMA_OPERATIONS, 2 * 8 * 16);
}

#[test]
fn what_a_probe_cannot_take_is_refused_before_it_runs() {
    let device = Device::cpu(Checks::Full);
    let data = device.upload(&numbers(2000)).unwrap();
    let mut target = device.upload(&numbers(2000)).unwrap();
    let refused = |result: Result<(), Error>, condition: &str| match result {
        Err(Error::Device(DeviceError::Contract(violation))) => {
            assert!(violation.condition.contains(condition), "{violation}")
        }
        other => panic!("expected a refusal by `{condition}`, got {other:?}"),
    };
    for chunk in [0, 6, 1 << 40] {
        let kernel = probe_write_fp32 { value: 0.0, chunk, target: target.view_mut() };
        refused(device.launch(kernel), "takes");
    }
    // SAFETY: there are 2000 elements.
    let odd = unsafe { data.view().from_unchecked(1) };
    // SAFETY: as above.
    let odd_target = unsafe { target.view_mut().from_unchecked(1) };
    refused(device.launch(probe_copy_fp32 { source: odd, chunk: 4, target: odd_target }), "aligned");
    // SAFETY: as above.
    let shorter = unsafe { target.view_mut().from_unchecked(4) };
    refused(device.launch(probe_copy_fp32 { source: data.view(), chunk: 4, target: shorter }), "source");
    // SAFETY: as above.
    let few = unsafe { target.view_mut().from_unchecked(2000 - 2 * THREADS as usize + 1) };
    refused(device.launch(probe_read_fp32 { data: data.view(), chunk: 1000, sums: few }), "sums");
    refused(
        device.launch(probe_fma_fp32 { factor: 0.0, offset: 0.0, rounds: 1, results: target.view_mut() }),
        "results",
    );
}
