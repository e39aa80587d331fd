//! Attention of numbers that are made to break it: masks of −∞, one score beyond all others, rows longer than a tile of which one key
//! counts.

use cuda_driver::{TensorElement, TensorSwizzle};
use cuda_std::executor::{Checks, Executor};
use cuda_std::prelude::*;
use patterns_kernels::attention::{attention_64_mma_bf16, attention_64_mma_fp32_3xtf32, attention_64_wgmma_bf16};
use runtime::{Device, TensorLayout, TensorTile};

const SIZE: usize = 64;

/// bf16 attention of one head, by each of the kernels for it.
const BF16: [fn(&[f32], &[f32], &[f32]) -> Vec<f32>; 2] = [bf16, bf16_of_hopper];

/// [`bf16`] by the kernel for Hopper.
fn bf16_of_hopper(q: &[f32], k: &[f32], v: &[f32]) -> Vec<f32> {
    let device = Device::cpu(Checks::Full);
    let upload = |x: &[f32]| device.upload(&x.iter().map(|&x| Bf16::from_f32(x)).collect::<Vec<_>>()).unwrap();
    let (of_q, of_k, of_v, mut o) = (upload(q), upload(k), upload(v), upload(q));
    let (queries, keys) = (q.len() / SIZE, k.len() / SIZE);
    let layout = |rows: usize| TensorLayout {
        length: SIZE as u64,
        lines: rows as u64,
        line_stride: SIZE as u64,
        matrices: 1,
        matrix_stride: (rows * SIZE) as u64,
    };
    let tile = |lines| TensorTile { element: TensorElement::Bf16, length: 64, lines, swizzle: TensorSwizzle::Bytes128 };
    let kernel = attention_64_wgmma_bf16 {
        q: device.tensor_map(of_q.view(), &layout(queries), &tile(192)).unwrap(),
        k: device.tensor_map(of_k.view(), &layout(keys), &tile(128)).unwrap(),
        v: device.tensor_map(of_v.view(), &layout(keys), &tile(128)).unwrap(),
        heads: 1,
        queries: queries as u32,
        keys: keys as u32,
        causal: 0,
        scale: 0.125,
        together: 1,
        workers: 1,
        o: o.view_mut(),
    };
    device.launch(kernel).unwrap();
    let mut result = vec![Bf16::from_bits(0); q.len()];
    o.copy_to(&mut result).unwrap();
    result.iter().map(|x| x.to_f32()).collect()
}

/// bf16 attention of one head: a query for each row of `q`, a key for each row of `k`.
fn bf16(q: &[f32], k: &[f32], v: &[f32]) -> Vec<f32> {
    let bf16 = |x: &[f32]| x.iter().map(|&x| Bf16::from_f32(x)).collect::<Vec<_>>();
    let (q, k, v, mut o) =
        (Aligned::new(&bf16(q)), Aligned::new(&bf16(k)), Aligned::new(&bf16(v)), Aligned::new(&bf16(q)));
    let kernel = attention_64_mma_bf16 {
        heads: 1,
        queries: (q.len / SIZE) as u32,
        keys: (k.len / SIZE) as u32,
        causal: 0,
        scale: 0.125,
        q: GlobalSlice::new(q.slice()),
        k: GlobalSlice::new(k.slice()),
        v: GlobalSlice::new(v.slice()),
        o: GlobalSliceMut::new(o.slice_mut()),
    };
    launch(kernel);
    o.slice().iter().map(|x| x.to_f32()).collect()
}

/// The same in fp32.
fn fp32(q: &[f32], k: &[f32], v: &[f32]) -> Vec<f32> {
    let (q, k, v, mut o) = (Aligned::new(q), Aligned::new(k), Aligned::new(v), Aligned::new(q));
    let kernel = attention_64_mma_fp32_3xtf32 {
        heads: 1,
        queries: (q.len / SIZE) as u32,
        keys: (k.len / SIZE) as u32,
        causal: 0,
        scale: 0.125,
        q: GlobalSlice::new(q.slice()),
        k: GlobalSlice::new(k.slice()),
        v: GlobalSlice::new(v.slice()),
        o: GlobalSliceMut::new(o.slice_mut()),
    };
    launch(kernel);
    o.slice().to_vec()
}

fn launch<K: cuda_std::Kernel + cuda_std::Grid>(kernel: K) {
    let grid = kernel.grid();
    // SAFETY: the views are of memory of this processor, which nobody else accesses meanwhile.
    unsafe { Executor::new(Checks::Full).launch(kernel, grid) }.unwrap();
}

/// Numbers from a multiple of 16 bytes on, as the memory of a GPU has them.
struct Aligned<T> {
    memory: Vec<[u64; 2]>,
    len: usize,
    element: std::marker::PhantomData<T>,
}

impl<T: Element> Aligned<T> {
    fn new(elements: &[T]) -> Self {
        let mut memory = vec![[0; 2]; size_of_val(elements).div_ceil(16)];
        // SAFETY: as many bytes, of which every pattern is an element.
        unsafe { memory.as_mut_ptr().cast::<T>().copy_from_nonoverlapping(elements.as_ptr(), elements.len()) };
        memory.shrink_to_fit();
        Self { memory, len: elements.len(), element: std::marker::PhantomData }
    }

    fn slice(&self) -> &[T] {
        assert!(self.memory.as_ptr().addr().is_multiple_of(16), "an allocator that aligns to 8 bytes only");
        // SAFETY: the memory has so many elements, aligned to more than one of them.
        unsafe { std::slice::from_raw_parts(self.memory.as_ptr().cast(), self.len) }
    }

    fn slice_mut(&mut self) -> &mut [T] {
        assert!(self.memory.as_ptr().addr().is_multiple_of(16), "an allocator that aligns to 8 bytes only");
        // SAFETY: likewise, borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(self.memory.as_mut_ptr().cast(), self.len) }
    }
}

/// A row whose number 0 is this one, and whose others are small and differ.
fn row(first: f32, seed: usize) -> Vec<f32> {
    (0..SIZE).map(|i| if i == 0 { first } else { ((i * 7 + seed * 13) % 16) as f32 / 64.0 }).collect()
}

#[test]
fn keys_with_a_score_of_minus_infinity_are_as_keys_that_are_not_there() {
    for bf16 in BF16 {
        let q = row(1.0, 0);
        // Whole tiles of 64 keys, before all others and behind, and keys among others.
        for masked in [0..70, 64..130, 3..5, 100..200] {
            let all: Vec<usize> = (0..200).collect();
            let keys_of = |keys: &[usize], mask: bool| -> Vec<f32> {
                keys.iter()
                    .flat_map(|&key| row(if mask && masked.contains(&key) { f32::NEG_INFINITY } else { 0.0 }, key))
                    .collect()
            };
            let values_of =
                |keys: &[usize]| -> Vec<f32> { keys.iter().flat_map(|&key| row(key as f32, 3 * key)).collect() };
            let left: Vec<usize> = all.iter().copied().filter(|key| !masked.contains(key)).collect();
            let (with, without) =
                (bf16(&q, &keys_of(&all, true), &values_of(&all)), bf16(&q, &keys_of(&left, false), &values_of(&left)));
            for (one, other) in with.iter().zip(&without) {
                // Tiles have other keys, so sums have other roundings.
                assert!((one - other).abs() <= other.abs() / 64.0, "{masked:?}: {one} and {other}");
            }
        }
    }
}

#[test]
fn a_row_that_is_masked_throughout_is_nan_and_no_other_is() {
    for bf16 in BF16 {
        let q = [row(1.0, 0), row(0.0, 1), row(1.0, 2)].concat();
        let k: Vec<f32> = (0..100).flat_map(|key| row(f32::NEG_INFINITY, key)).collect();
        let v: Vec<f32> = (0..100).flat_map(|key| row(1.0, key)).collect();
        let o = bf16(&q, &k, &v);
        // 0 · −∞ is NaN as well.
        assert!(o.iter().all(|x| x.is_nan()), "{o:?}");
        let k: Vec<f32> = (0..100).flat_map(|key| row(if key == 90 { 2.0 } else { f32::NEG_INFINITY }, key)).collect();
        let q = [row(1.0, 0), row(-1.0, 1)].concat();
        let o = bf16(&q, &k, &v);
        assert_eq!(o[..SIZE], row(1.0, 90).iter().map(|&x| Bf16::from_f32(x).to_f32()).collect::<Vec<_>>()[..]);
        assert!(o[SIZE..].iter().all(|x| x.is_nan()), "a score of +∞ has no softmax");
    }
}

#[test]
fn one_score_beyond_all_others_takes_all_wherever_it_is() {
    for huge in [1e4, 1e10, 1e19] {
        for at in [0, 63, 64, 150, 199] {
            let q = row(huge, 0);
            let k: Vec<f32> = (0..200).flat_map(|key| row(if key == at { huge } else { -1.0 }, key)).collect();
            let v: Vec<f32> = (0..200).flat_map(|key| row(key as f32, key)).collect();
            let rounded = |x: &f32| Bf16::from_f32(*x).to_f32();
            assert_eq!(fp32(&q, &k, &v), row(at as f32, at), "{huge} at {at}");
            for bf16 in BF16 {
                assert_eq!(
                    bf16(&q, &k, &v),
                    row(at as f32, at).iter().map(rounded).collect::<Vec<_>>(),
                    "{huge} at {at}"
                );
            }
        }
    }
}

#[test]
fn equal_scores_beyond_what_one_fused_operation_could_resolve_are_a_mean() {
    // 2⁶⁰: a unit in the last place of the scaled score is 2³⁴ and more.
    for huge in [1.0, (1u32 << 30) as f32, -((1u32 << 30) as f32)] {
        let mut q = vec![0.0; SIZE];
        q[0] = huge;
        let k: Vec<f32> = (0..128).flat_map(|_| vec![huge; SIZE]).collect();
        let v: Vec<f32> = (0..128).flat_map(|key| vec![key as f32; SIZE]).collect();
        assert!(fp32(&q, &k, &v).iter().all(|o| (o - 63.5).abs() < 1e-4), "{huge}");
        for bf16 in BF16 {
            assert!(bf16(&q, &k, &v).iter().all(|o| (o - 63.5).abs() <= 0.5), "{huge}");
        }
    }
}
