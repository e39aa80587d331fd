//! Runs a closure as a kernel, for the examples of this documentation: each call is a launch on the executor, with all checks.
//!
//! Kernels are functions under [`kernel`](macro@crate::kernel), and what stands in the closure could stand in one. A closure needs no view
//! to write its result to: it returns it.

use core::ffi::c_void;
use std::sync::{Mutex, PoisonError};
use std::vec::Vec;

use gpu_facts::{KernelFacts, Limits};

use crate::atomic::AtomicElement;
use crate::executor::{Checks, Executor};
use crate::{
    ContractViolation, Dim3, DisjointSlice, Element, GlobalAtomics, GlobalSlice, GlobalSliceMut, ImageLayout, ImageMap,
    Kernel, KernelParam, Layout, PerBlock, PerThread, PerWarp, SharedSlice, TensorMap, TensorMapMut, TileElement,
    TileLayout, TileSwizzle, View, ViewName, dynamic_shared, hopper, thread,
};

/// The dynamic shared memory of each block, in bytes.
pub const DYNAMIC_SHARED_BYTES: u32 = 64 << 10;

/// What the shared arrays in a closure can have together, in bytes.
pub const STATIC_SHARED_BYTES: u32 = 16 << 10;

/// Runs `body` as each thread of one block. Returns what each has returned, in the order of [`thread::index`].
///
/// # Panics
/// With the executor's report, if the threads do what a kernel must not do.
pub fn run<R: Send>(block: impl Into<Dim3>, body: impl Fn() -> R + Sync) -> Vec<R> {
    run_grid(1, block, body)
}

/// [`run`], as each thread of a grid.
///
/// # Panics
/// As [`run`].
pub fn run_grid<R: Send>(grid: impl Into<Dim3>, block: impl Into<Dim3>, body: impl Fn() -> R + Sync) -> Vec<R> {
    launch(grid.into(), block.into(), None, Nothing, |Nothing| body())
}

/// [`run`], as each thread of a grid whose blocks are in clusters.
///
/// # Panics
/// As [`run`].
pub fn run_clusters<R: Send>(
    grid: impl Into<Dim3>,
    cluster: impl Into<Dim3>,
    block: impl Into<Dim3>,
    body: impl Fn() -> R + Sync,
) -> Vec<R> {
    launch(grid.into(), block.into(), Some(cluster.into()), Nothing, |Nothing| body())
}

/// [`run`], with a view of a slice as the only argument.
///
/// # Panics
/// As [`run`].
pub fn run_over<'a, T, V: OfSlice<'a, T>, R: Send>(
    block: impl Into<Dim3>,
    slice: &'a mut [T],
    body: impl Fn(V) -> R + Sync,
) -> Vec<R> {
    launch(1.into(), block.into(), None, V::of(slice), body)
}

/// [`run_over`], as each thread of the blocks of one cluster.
///
/// # Panics
/// As [`run`].
pub fn run_over_cluster<'a, T, V: OfSlice<'a, T>, R: Send>(
    blocks: u32,
    block: impl Into<Dim3>,
    slice: &'a mut [T],
    body: impl Fn(V) -> R + Sync,
) -> Vec<R> {
    launch(blocks.into(), block.into(), Some(blocks.into()), V::of(slice), body)
}

/// A tile of 64 rows of 128 bytes, each word of which is `word`, for products of tensor cores: at the beginning of the dynamic shared memory,
/// written by 128 threads, visible to all of them and to the tensor cores.
pub fn tile_of(word: u32) -> SharedSlice<f32> {
    const WORDS: usize = 64 * 32;
    // SAFETY: within the dynamic shared memory; each thread writes its own elements, and all of them reach the barrier.
    unsafe {
        let tile = dynamic_shared::<f32>(0, WORDS);
        (thread::index_1d()..WORDS).step_by(128).for_each(|i| tile.write(i, f32::from_bits(word)));
        hopper::fence_async_shared();
        thread::sync_threads();
        tile
    }
}

/// What a kernel can receive of a slice.
pub trait OfSlice<'a, T>: KernelParam {
    /// The view of it.
    fn of(slice: &'a mut [T]) -> Self;
}

impl<'a, T: Element + KernelParam> OfSlice<'a, T> for GlobalSlice<'a, T> {
    fn of(slice: &'a mut [T]) -> Self {
        Self::new(slice)
    }
}

impl<'a, T: Element + KernelParam> OfSlice<'a, T> for GlobalSliceMut<'a, T> {
    fn of(slice: &'a mut [T]) -> Self {
        Self::new(slice)
    }
}

impl<'a, T: Element + KernelParam, const N: usize> OfSlice<'a, T> for DisjointSlice<'a, T, PerThread<N>> {
    fn of(slice: &'a mut [T]) -> Self {
        DisjointSlice::new(slice).divided(PerThread)
    }
}

/// Rows of 40.
impl<'a, T: Element + KernelParam, const N: usize> OfSlice<'a, T> for DisjointSlice<'a, T, PerBlock<N>> {
    fn of(slice: &'a mut [T]) -> Self {
        DisjointSlice::new(slice).divided(PerBlock::rows(40))
    }
}

/// Rows of 40.
impl<'a, T: Element + KernelParam, const N: usize> OfSlice<'a, T> for DisjointSlice<'a, T, PerWarp<N>> {
    fn of(slice: &'a mut [T]) -> Self {
        DisjointSlice::new(slice).divided(PerWarp::rows(40))
    }
}

impl<'a, T: AtomicElement + KernelParam> OfSlice<'a, T> for GlobalAtomics<'a, T> {
    fn of(slice: &'a mut [T]) -> Self {
        Self::new(slice)
    }
}

/// A matrix with rows of so many numbers, as the kernel writes it and as TMA does, in tiles of so many columns and rows.
#[derive(Clone, Copy)]
pub struct Matrix<'a, const ROW: u32 = 32, const TILE_COLS: u32 = 32, const TILE_ROWS: u32 = 8> {
    /// The memory, which the kernel may write to.
    pub memory: GlobalSliceMut<'a, f32>,
    /// The same memory for TMA loads.
    pub map: TensorMap<'a>,
    /// And for TMA stores.
    pub map_mut: TensorMapMut<'a>,
}

impl<'a, const ROW: u32, const TILE_COLS: u32, const TILE_ROWS: u32> OfSlice<'a, f32>
    for Matrix<'a, ROW, TILE_COLS, TILE_ROWS>
{
    fn of(slice: &'a mut [f32]) -> Self {
        let row = u64::from(ROW);
        let extents = [row, slice.len() as u64 / row, 1];
        let byte_strides = [4, 4 * row, size_of_val(slice) as u64];
        let (element, tile, swizzle) = (TileElement::Bytes4, [TILE_COLS, TILE_ROWS, 1], TileSwizzle::None);
        let layout = TileLayout { element, extents, byte_strides, tile, swizzle };
        let memory = GlobalSliceMut::new(slice);
        // SAFETY: the executor has no use for the bytes. The layout describes whole rows of the slice, which is borrowed for as long as the
        // maps are there; that the kernel does not write what TMA reads at the time, the executor checks.
        let map = unsafe { TensorMap::from_raw_parts([0; 16], memory.as_mut_ptr().cast(), memory.len() * 4, layout) };
        // SAFETY: as above; the slice is borrowed mutably.
        Self { memory, map, map_mut: unsafe { TensorMapMut::new(map) } }
    }
}

// SAFETY: it is never passed to a GPU, and the memory is reported by its view, with what the kernel may do to it.
unsafe impl<const ROW: u32, const TILE_COLS: u32, const TILE_ROWS: u32> KernelParam
    for Matrix<'_, ROW, TILE_COLS, TILE_ROWS>
{
    const LAYOUT: u64 = Layout::new("Matrix").fingerprint();

    fn visit_views(&self, name: ViewName<'_>, visit: &mut dyn FnMut(View<'_>)) {
        self.memory.visit_views(name.field("memory"), visit);
        self.map_mut.visit_views(name.field("map_mut"), visit);
    }
}

/// Images of 4 × 4 pixels of 8 numbers, of which TMA loads 16 pixels at a time, for filters of 3 × 3 with a padding of one.
#[derive(Clone, Copy)]
pub struct Images<'a> {
    /// What TMA loads.
    pub map: ImageMap<'a>,
}

impl<'a> OfSlice<'a, f32> for Images<'a> {
    fn of(slice: &'a mut [f32]) -> Self {
        let (bytes, images) = (size_of_val(slice), slice.len() as u64 / 128);
        let layout = ImageLayout {
            element: TileElement::Bytes4,
            extents: [8, 4, 4, images],
            byte_strides: [4, 32, 128, 512],
            lower: [-1; 2],
            upper: [-1; 2],
            steps: [1; 2],
            channels: 8,
            pixels: 16,
            swizzle: TileSwizzle::None,
        };
        // SAFETY: the executor has no use for the bytes. The layout describes whole images of the slice, which is borrowed for as long as the
        // map is there.
        Self { map: unsafe { ImageMap::from_raw_parts([0; 16], slice.as_ptr().cast(), bytes, layout) } }
    }
}

// SAFETY: it is never passed to a GPU, and the memory is reported.
unsafe impl KernelParam for Images<'_> {
    const LAYOUT: u64 = Layout::new("Images").fingerprint();

    fn visit_views(&self, name: ViewName<'_>, visit: &mut dyn FnMut(View<'_>)) {
        self.map.visit_views(name.field("map"), visit);
    }
}

/// No argument.
#[derive(Clone, Copy)]
struct Nothing;

// SAFETY: it is never passed to a GPU, and has no view.
unsafe impl KernelParam for Nothing {
    const LAYOUT: u64 = Layout::new("Nothing").fingerprint();
    const HAS_VIEWS: bool = false;

    fn visit_views(&self, _name: ViewName<'_>, _visit: &mut dyn FnMut(View<'_>)) {}
}

fn launch<V: KernelParam, R: Send>(
    grid: Dim3,
    block: Dim3,
    cluster: Option<Dim3>,
    view: V,
    body: impl Fn(V) -> R + Sync,
) -> Vec<R> {
    let threads = (grid.volume() * block.volume()) as usize;
    let results = Mutex::new((0..threads).map(|_| None).collect());
    let facts =
        KernelFacts { block: block.into(), cluster: cluster.map(Into::into), ..Closure::<V, R, fn(V) -> R>::FACTS };
    let kernel = Closure { facts, view, body: &body, results: &results };
    // SAFETY: the only view is of a slice in this program's memory, which is borrowed mutably.
    if let Err(error) = unsafe { Executor::new(Checks::Full).launch(kernel, grid) } {
        panic!("{error}");
    }
    let results: Vec<Option<R>> = results.into_inner().unwrap_or_else(PoisonError::into_inner);
    results.into_iter().flatten().collect()
}

/// A closure as a kernel, and where its threads leave what they return.
struct Closure<'a, V, R, F> {
    facts: KernelFacts,
    view: V,
    body: &'a F,
    results: &'a Mutex<Vec<Option<R>>>,
}

impl<V: Copy, R, F> Clone for Closure<'_, V, R, F> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<V: Copy, R, F> Copy for Closure<'_, V, R, F> {}

// SAFETY: there is no PTX of it, so that no GPU can be asked for it; its only view is reported.
unsafe impl<V: KernelParam, R: Send, F: Fn(V) -> R + Sync> Kernel for Closure<'_, V, R, F> {
    const FACTS: KernelFacts = KernelFacts {
        block: [Limits::of_hopper().threads_per_block, 1, 1],
        static_shared_bytes: STATIC_SHARED_BYTES,
        dynamic_shared_bytes: DYNAMIC_SHARED_BYTES,
        ..KernelFacts::new("closure")
    };

    fn facts(&self) -> KernelFacts {
        self.facts
    }

    fn check(&self) -> Result<(), ContractViolation> {
        Ok(())
    }

    fn visit_params(&self, _visit: &mut dyn FnMut(*const c_void)) {}

    fn visit_views(&self, visit: &mut dyn FnMut(View<'_>)) {
        self.view.visit_views(ViewName::of("view"), visit);
    }

    unsafe fn run_thread(self) {
        let result = (self.body)(self.view);
        self.results.lock().unwrap_or_else(PoisonError::into_inner)[thread::index()] = Some(result);
    }
}
