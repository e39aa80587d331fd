//! What runs the kernels: the executor on this processor, or a GPU.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use cuda_driver::cust::memory::bytemuck::{self, Pod};
use cuda_driver::{
    Error as DriverError, Function, Gpu, L2Promotion, TensorDimension, TensorElement, TensorSwizzle, TiledTensor,
};
use cuda_std::executor::{Checks, Executor, LaunchError};
use cuda_std::{
    Element, GlobalSlice, GlobalSliceMut, ImageLayout, ImageMap, Kernel, TensorMap, TensorMapMut, TileElement,
    TileLayout, TileSwizzle,
};

use super::kernels::{PTX, tiles};
use super::pixels::Pixels;
use crate::device_features::Launcher;

/// What can go wrong.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The executor reports a fault.
    #[error(transparent)]
    Launch(#[from] LaunchError),
    /// The driver does.
    #[error(transparent)]
    Driver(#[from] DriverError),
    /// The kernels were not compiled.
    #[error("there is no PTX in this program: {0}")]
    NoPtx(&'static str),
    /// A kernel is missing.
    #[error("there is no PTX of kernel `{0}` in this program")]
    NoKernel(&'static str),
}

/// What runs the kernels.
pub enum Machine {
    /// The executor.
    Executor(Executor),
    /// A GPU, and the kernels that have been loaded.
    Gpu(Gpu, Mutex<HashMap<&'static str, Function>>),
}

/// A kernel of the modules but [`tiles`], with its views filled in.
pub type Launch = fn(&Machine, GlobalSlice<'_, u32>, GlobalSliceMut<'_, u32>, u32) -> Result<(), Error>;

/// An array, as TMA sees it, in units of 4 bytes; its size is whatever its last element needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tensor {
    /// What the elements are.
    pub element: TensorElement,
    /// How many there are, the fastest-running dimension first.
    pub extents: [u64; 3],
    /// From one to the next, in bytes.
    pub byte_strides: [u64; 3],
    /// The elements of a tile.
    pub tile: [u32; 3],
    /// How a tile lies in shared memory.
    pub swizzle: TensorSwizzle,
}

impl Tensor {
    /// The words of a tile.
    pub fn tile_words(&self) -> usize {
        self.tile.iter().map(|&extent| extent as usize).product::<usize>() * self.element.bytes() as usize / 4
    }

    /// The words of the array: all matrices, which may be one and the same, with all lines and the gaps behind them.
    pub fn words(&self) -> usize {
        let [_, line, matrix] = self.byte_strides;
        let bytes = if matrix == 0 { line * self.extents[1] } else { matrix * self.extents[2] };
        (bytes / 4) as usize
    }

    fn dimensions(&self) -> [TensorDimension; 3] {
        std::array::from_fn(|i| TensorDimension {
            extent: self.extents[i],
            byte_stride: self.byte_strides[i],
            tile: self.tile[i],
        })
    }

    fn layout(&self) -> TileLayout {
        TileLayout {
            element: tile_element(self.element),
            extents: self.extents,
            byte_strides: self.byte_strides,
            tile: self.tile,
            swizzle: tile_swizzle(self.swizzle),
        }
    }
}

/// The elements, as a kernel's layout has them.
fn tile_element(element: TensorElement) -> TileElement {
    match element {
        TensorElement::Fp16 | TensorElement::Bf16 => TileElement::Bytes2,
        TensorElement::Fp32 => TileElement::Bytes4,
        TensorElement::Tf32 => TileElement::Tf32,
    }
}

/// How tiles lie, likewise.
fn tile_swizzle(swizzle: TensorSwizzle) -> TileSwizzle {
    match swizzle {
        TensorSwizzle::None => TileSwizzle::None,
        TensorSwizzle::Bytes128 => TileSwizzle::Bytes128,
    }
}

impl Launcher for Machine {
    type Error = Error;

    unsafe fn launch<K: Kernel>(&self, kernel: K, blocks: u32) -> Result<(), Error> {
        match self {
            // SAFETY: the caller's promise.
            Self::Executor(executor) => Ok(unsafe { executor.launch(kernel, blocks.into()) }?),
            Self::Gpu(gpu, functions) => {
                let facts = kernel.facts();
                let function = function(gpu, functions, K::NAME)?;
                gpu.require_stack(facts.stack_bytes as usize)?;
                let mut params = kernel.param_addresses();
                // SAFETY: the caller's promise. `Kernel` vouches for the arguments, which are copied before this returns.
                Ok(unsafe {
                    function.launch(gpu, [blocks, 1, 1], facts.block, facts.dynamic_shared_bytes, &mut params)
                }?)
            }
        }
    }
}

/// A kernel, loaded if it has not been.
fn function(
    gpu: &Gpu,
    functions: &Mutex<HashMap<&'static str, Function>>,
    name: &'static str,
) -> Result<Function, Error> {
    let mut functions = functions.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(function) = functions.get(name) {
        return Ok(function.clone());
    }
    // The best architecture comes first, and the others run everywhere.
    let archs = PTX.map_err(Error::NoPtx)?;
    let runs = |arch: &str| arch != "sm_90a" || gpu.properties().compute_capability.major == 9;
    let kernels = archs.iter().filter(|(arch, _)| runs(arch)).flat_map(|(_, kernels)| kernels.iter());
    let ptx = kernels.into_iter().find(|(kernel, _)| *kernel == name).ok_or(Error::NoKernel(name))?.1;
    let function = gpu.load_ptx(ptx)?.function(name)?;
    functions.insert(name, function.clone());
    Ok(function)
}

impl Machine {
    /// The executor, without the checks that take long.
    pub fn executor() -> Self {
        Self::Executor(Executor::new(Checks::Bounds))
    }

    /// The first GPU.
    ///
    /// # Errors
    /// If there is none, or it cannot be opened.
    pub fn gpu() -> Result<Self, Error> {
        Ok(Self::Gpu(Gpu::open(0)?, Mutex::default()))
    }

    /// What it is, in words.
    pub fn name(&self) -> String {
        match self {
            Self::Executor(_) => "the executor".into(),
            Self::Gpu(gpu, _) => {
                let properties = gpu.properties();
                let release = properties.driver_release.as_deref().unwrap_or("of unknown release");
                format!("{}, driver {release}, CUDA {}", properties.name, properties.driver)
            }
        }
    }

    /// Lends a copy of `data` to a kernel that reads it.
    fn reading<T: Element + Pod, R>(
        &self,
        data: &[T],
        run: impl FnOnce(GlobalSlice<'_, T>) -> Result<R, Error>,
    ) -> Result<R, Error> {
        match self {
            Self::Executor(_) => run(GlobalSlice::new(data)),
            Self::Gpu(gpu, _) => {
                let mut memory = gpu.allocate::<T>(data.len())?;
                memory.copy_from_host(data)?;
                // SAFETY: the array has this address and length, and is freed only behind this, which waits for the kernel.
                run(unsafe { GlobalSlice::from_raw_parts(memory.address() as usize as *const T, data.len()) })
            }
        }
    }

    /// Lends memory to a kernel that writes to it, with `data` in it before, and what the kernel has left there after.
    fn writing<T: Element + Pod>(
        &self,
        data: &mut [T],
        run: impl FnOnce(GlobalSliceMut<'_, T>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        match self {
            Self::Executor(_) => run(GlobalSliceMut::new(data)),
            Self::Gpu(gpu, _) => {
                let mut memory = gpu.allocate::<T>(data.len())?;
                memory.copy_from_host(data)?;
                // SAFETY: as in `reading`. Nothing else accesses it.
                run(unsafe { GlobalSliceMut::from_raw_parts(memory.address() as usize as *mut T, data.len()) })?;
                Ok(memory.copy_to_host(data)?)
            }
        }
    }

    /// Runs a kernel on `blocks` blocks. Returns what it makes of the input, `outputs` words.
    ///
    /// # Errors
    /// What the launch reports, or the driver.
    pub fn run(&self, launch: Launch, blocks: u32, input: &[u32], outputs: usize) -> Result<Vec<u32>, Error> {
        // The executor's vectors and copies need addresses as aligned as those of a GPU's memory are.
        let aligned_input: Vec<u128> = input.chunks(4).map(words_to_u128).collect();
        let mut aligned_output = vec![0u128; outputs.div_ceil(4)];
        let input = &bytemuck::cast_slice(&aligned_input)[..input.len()];
        let output: &mut [u32] = &mut bytemuck::cast_slice_mut(&mut aligned_output)[..outputs];
        self.reading(input, |input| self.writing(output, |output| launch(self, input, output, blocks)))?;
        Ok(output.to_vec())
    }

    /// The map of an array at an address.
    ///
    /// # Safety
    /// There is memory of `tensor.words()` words, which this machine's kernels can read for as long as the map is used.
    unsafe fn map<'a>(&self, tensor: &Tensor, address: *const u32) -> Result<TensorMap<'a>, Error> {
        let words = match self {
            Self::Executor(_) => [0; 16],
            Self::Gpu(gpu, _) => {
                let tiled = TiledTensor {
                    element: tensor.element,
                    address: address.addr() as u64,
                    dimensions: &tensor.dimensions(),
                    swizzle: tensor.swizzle,
                    l2_promotion: L2Promotion::Bytes256,
                };
                gpu.encode_tensor_map(&tiled)?.words
            }
        };
        // SAFETY: the words say what the layout says; the caller's promise.
        Ok(unsafe { TensorMap::from_raw_parts(words, address.cast(), 4 * tensor.words(), tensor.layout()) })
    }

    /// Loads tiles of an array, which begin at these coordinates, each into the memory of so many blocks: one, or the two of a cluster.
    /// Returns what is in shared memory, tile by tile, and block by block of each.
    ///
    /// # Errors
    /// As for [`Machine::run`].
    ///
    /// # Panics
    /// If the array has another length, or there are other numbers of blocks.
    pub fn load_tiles(
        &self,
        tensor: &Tensor,
        array: &[u32],
        at: &[[i32; 3]],
        blocks: usize,
    ) -> Result<Vec<u32>, Error> {
        assert!(matches!(blocks, 1 | 2), "{blocks} blocks");
        assert_eq!(array.len(), tensor.words(), "the array of {tensor:?}");
        let words = tensor.tile_words();
        let at_words: Vec<u32> = at.as_flattened().iter().map(|&at| at as u32).collect();
        let mut output = vec![0; blocks * at.len() * words];
        self.reading(array, |array| {
            // SAFETY: the view's memory is there until the kernel has finished.
            let map = unsafe { self.map(tensor, array.as_ptr()) }?;
            self.reading(&at_words, |at_view| {
                self.writing(&mut output, |output| {
                    let (at, words, grid) = (at_view, words as u32, (blocks * at.len()) as u32);
                    // SAFETY: all views are of memory that is lent until the kernel has finished.
                    unsafe {
                        match blocks {
                            1 => self.launch(tiles::load_tiles { map, at, words, output }, grid),
                            _ => self.launch(tiles::load_tiles_to_blocks { map, at, words, output }, grid),
                        }
                    }
                })
            })
        })?;
        Ok(output)
    }

    /// Loads pixels of images, from so many base pixels on, for a tap each: six numbers for each load. Returns what is in shared memory, load
    /// by load.
    ///
    /// # Errors
    /// As for [`Machine::run`].
    ///
    /// # Panics
    /// If the array has another length.
    pub fn load_pixels(&self, pixels: &Pixels, images: &[u32], at: &[u32]) -> Result<Vec<u32>, Error> {
        assert_eq!(images.len(), pixels.words(), "the images of {pixels:?}");
        let words = pixels.tile_words();
        let grid = (at.len() / 6) as u32;
        let mut output = vec![0; grid as usize * words];
        self.reading(images, |images| {
            let map = pixels.with_tensor(images.as_ptr().addr() as u64, |tensor| -> Result<_, Error> {
                let words = match self {
                    Self::Executor(_) => [0; 16],
                    Self::Gpu(gpu, _) => gpu.encode_image_map(tensor)?.words,
                };
                let dimensions = tensor.tensor.dimensions;
                let layout = ImageLayout {
                    element: tile_element(tensor.tensor.element),
                    extents: std::array::from_fn(|i| dimensions[i].extent),
                    byte_strides: std::array::from_fn(|i| dimensions[i].byte_stride),
                    lower: tensor.lower,
                    upper: tensor.upper,
                    steps: tensor.steps,
                    channels: dimensions[0].tile,
                    pixels: tensor.pixels,
                    swizzle: tile_swizzle(tensor.tensor.swizzle),
                };
                let bytes = size_of::<u32>() * images.len();
                // SAFETY: the words say what the layout says; the view's memory is there until the kernel has finished.
                Ok(unsafe { ImageMap::from_raw_parts(words, images.as_ptr().cast(), bytes, layout) })
            })?;
            self.reading(at, |at| {
                self.writing(&mut output, |output| {
                    // SAFETY: all views are of memory that is lent until the kernel has finished.
                    unsafe { self.launch(tiles::load_pixels { map, at, words: words as u32, output }, grid) }
                })
            })
        })?;
        Ok(output)
    }

    /// Stores a tile into an array.
    ///
    /// # Errors
    /// As for [`Machine::run`].
    ///
    /// # Panics
    /// If the array or the tile has another length.
    pub fn store_tile(&self, tensor: &Tensor, array: &mut [u32], at: [i32; 3], tile: &[u32]) -> Result<(), Error> {
        assert_eq!((array.len(), tile.len()), (tensor.words(), tensor.tile_words()), "{tensor:?}");
        let at = at.map(|at| at as u32);
        self.writing(array, |array| {
            // SAFETY: as in `load_tiles`. The view beside it is of the same memory.
            let map = unsafe { TensorMapMut::new(self.map(tensor, array.as_mut_ptr())?) };
            self.reading(&at, |at| {
                self.reading(tile, |input| {
                    // SAFETY: as in `load_tiles`.
                    unsafe { self.launch(tiles::store_tile { array, map, at, input }, 1) }
                })
            })
        })
    }
}

fn words_to_u128(words: &[u32]) -> u128 {
    words.iter().rev().fold(0, |all, &word| all << 32 | u128::from(word))
}
