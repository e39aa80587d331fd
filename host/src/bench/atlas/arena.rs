//! Memory for the operands of all shapes: allocated and filled once, because both take longer than to measure most shapes.
//!
//! ```text
//!  A │ set 0 │ set 1 │ … ┃ set p │ …           each set of a shape begins at a multiple of 256 bytes; those of a pool exceed twice
//!  B │ set 0    │ set 1    │ … ┃ set p    │ …  the second-level cache together, and each contestant of a race has a pool of its own:
//!  C │ set 0 │ set 1 │ … ┃ set p │ …           none finds in the cache what another one has loaded
//! ```
//!
//! A and B repeat a block of random numbers, so that the host knows every element without a copy of gigabytes. The length of the
//! block is a prime: no two rows or matrices begin with the same number unless they are as many apart.

use gpu_kernels::{Matrix, MatrixBatch, MatrixBatchMut, MatrixMut};

use super::super::timing::sets_for;
use super::shape::{Operand, Shape};
use crate::Error;
use crate::input::{Distribution, random};
use tilewright::device::{Buffer, Device};

/// The numbers of a block.
const BLOCK: usize = 16_777_259;

/// What sets begin at a multiple of, in elements: allocations are aligned to as much.
const ALIGNMENT: u64 = 64;

/// The pools of sets: for ours and three ways of cuBLAS's. Where there are more contestants, some share one.
const POOLS: usize = 4;

/// The operand sets of a shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sets {
    /// How many there are in a pool.
    pub(crate) pool: usize,
    /// How many pools there are.
    pools: usize,
    /// From one to the next, in A, B and C.
    distances: [u64; 3],
}

impl Sets {
    /// Pools of as many sets as exceed twice the second-level cache. If one set does, it is all there is.
    pub(crate) fn of(shape: &Shape, l2_bytes: u64) -> Self {
        let distances = shape.operands().map(|operand| operand.span(shape.batch).next_multiple_of(ALIGNMENT));
        let bytes = 4 * u128::from(distances.iter().sum::<u64>());
        let pool = sets_for(bytes, l2_bytes.into(), u128::MAX);
        Self { pool, pools: if pool > 1 { POOLS } else { 1 }, distances }
    }

    /// The elements of A, B and C in all sets.
    fn elements(&self) -> [u64; 3] {
        self.distances.map(|distance| distance * (self.pool * self.pools) as u64)
    }

    /// The set of one of `count` contestants for the set of a pool that it is told. Those that share a pool are as far apart in it as they
    /// can be.
    pub(crate) fn set_of(&self, contestant: usize, count: usize, told: usize) -> usize {
        let shift = contestant / self.pools * self.pool / count.div_ceil(self.pools).max(1);
        contestant % self.pools * self.pool + (told + shift) % self.pool
    }

    /// Where a set begins in A, B and C.
    fn starts(&self, set: usize) -> [usize; 3] {
        self.distances.map(|distance| (distance * set as u64) as usize)
    }
}

/// The memory that some shapes need: the most of A, of B and of C, in elements.
pub(crate) fn elements_for<'a>(shapes: impl IntoIterator<Item = &'a Shape>, l2_bytes: u64) -> [u64; 3] {
    let larger = |one: [u64; 3], other: [u64; 3]| [0, 1, 2].map(|operand| one[operand].max(other[operand]));
    shapes.into_iter().map(|shape| Sets::of(shape, l2_bytes).elements()).fold([0; 3], larger)
}

/// A, B and C of a set, as kernels take them.
pub(crate) type Views<'a> = (MatrixBatch<'a>, MatrixBatch<'a>, MatrixBatchMut<'a>);

/// Memory for one shape after the other.
pub(crate) struct Arena {
    a: Buffer<f32>,
    b: Buffer<f32>,
    c: Buffer<f32>,
    /// The random numbers that A repeats, and those of B.
    blocks: [Vec<f32>; 2],
}

impl Arena {
    /// Allocates so many elements for each of A, B and C, and fills A and B with numbers that are uniform in [−1, 1].
    ///
    /// # Errors
    /// [`DeviceError::Driver`](runtime::Error::Driver) where the GPU has too little memory.
    pub(crate) fn new(device: &Device, elements: [u64; 3], seed: u64) -> Result<Self, Error> {
        Self::with_blocks(device, elements, seed, BLOCK)
    }

    /// The same with blocks of so many numbers.
    pub(crate) fn with_blocks(device: &Device, elements: [u64; 3], seed: u64, block: usize) -> Result<Self, Error> {
        let [a, b, c] = elements.map(|elements| device.allocate::<f32>(elements as usize));
        let blocks = [0, 1].map(|operand| {
            let len = block.min(elements[operand as usize] as usize);
            random(len, Distribution::Uniform11, seed, operand)
        });
        let mut arena = Self { a: a?, b: b?, c: c?, blocks };
        let Self { a, b, blocks, .. } = &mut arena;
        for (buffer, block) in [a, b].into_iter().zip(blocks) {
            for start in (0..buffer.len()).step_by(block.len().max(1)) {
                let len = block.len().min(buffer.len() - start);
                with_part(buffer, start, len, |part| part.copy_from(&block[..len]))?;
            }
        }
        Ok(arena)
    }

    /// A set of a shape's operands.
    ///
    /// # Errors
    /// [`Error::Shape`](tilewright::Error::Shape) for operands that no kernel takes, or that are not within the arena.
    pub(crate) fn views(&mut self, shape: &Shape, sets: Sets, set: usize) -> Result<Views<'_>, Error> {
        let [a, b, c] = sets.starts(set);
        let first = |buffer: &Buffer<f32>, start: usize, operand: Operand| (start + operand.offset).min(buffer.len());
        let [a, b, c] = [first(&self.a, a, shape.a), first(&self.b, b, shape.b), first(&self.c, c, shape.c)];
        // SAFETY: each first element is at most the length of its buffer; the views are as long as their buffers are borrowed.
        let (a, b, c) = unsafe {
            let (a, b) = (self.a.view().from_unchecked(a), self.b.view().from_unchecked(b));
            (a, b, self.c.view_mut().from_unchecked(c))
        };
        let read = |data, operand: Operand| -> Result<MatrixBatch<'_>, tilewright::Error> {
            let matrix = Matrix::new(data, operand.rows, operand.cols, operand.row_stride, operand.col_stride)?;
            Ok(MatrixBatch::new(matrix, operand.batch_stride, shape.batch)?)
        };
        let result = || -> Result<MatrixBatchMut<'_>, tilewright::Error> {
            let Operand { rows, cols, row_stride, col_stride, batch_stride, .. } = shape.c;
            Ok(MatrixBatchMut::new(MatrixMut::new(c, rows, cols, row_stride, col_stride)?, batch_stride, shape.batch)?)
        };
        Ok((read(a, shape.a)?, read(b, shape.b)?, result()?))
    }

    /// An element of A and one of B in the first set, by their places in it.
    pub(crate) fn numbers(&self, a: usize, b: usize) -> [f32; 2] {
        let [of_a, of_b] = &self.blocks;
        [of_a[a % of_a.len()], of_b[b % of_b.len()]]
    }

    /// Makes all of C zero: for products that read what it was.
    ///
    /// # Errors
    /// As for [`Arena::fill`].
    pub(crate) fn clear(&mut self) -> Result<(), Error> {
        Ok(self.c.fill_bytes(0)?)
    }

    /// Makes all bytes of elements of C in the first set the same.
    ///
    /// # Errors
    /// [`DeviceError::Driver`](runtime::Error::Driver) if an earlier kernel has failed.
    pub(crate) fn fill(&mut self, places: &[usize], byte: u8) -> Result<(), Error> {
        places.iter().try_for_each(|&place| with_part(&mut self.c, place, 1, |part| part.fill_bytes(byte)))
    }

    /// Elements of C in the first set, after everything that was queued.
    ///
    /// # Errors
    /// As for [`Arena::fill`].
    pub(crate) fn results(&mut self, places: &[usize]) -> Result<Vec<f32>, Error> {
        let read = |&place: &usize| {
            let mut value = [0.0];
            with_part(&mut self.c, place, 1, |part| part.copy_to(&mut value))?;
            Ok(value[0])
        };
        places.iter().map(read).collect()
    }
}

/// Does something with `len` elements of a buffer from `start` on, as with a buffer of their own.
///
/// # Panics
/// If they are not in the buffer.
fn with_part<T>(
    buffer: &mut Buffer<f32>,
    start: usize,
    len: usize,
    work: impl FnOnce(&mut Buffer<f32>) -> Result<T, runtime::Error>,
) -> Result<T, Error> {
    assert!(start <= buffer.len() && len <= buffer.len() - start, "{len} elements from {start} of {}", buffer.len());
    let address = buffer.view_mut().as_mut_ptr().expose_provenance() + start * size_of::<f32>();
    // SAFETY: elements of the buffer, as just compared: memory of its device, aligned as all elements are. This function borrows the
    // buffer mutably, so the memory stays allocated and nobody else touches it before the part is dropped; what is queued with the
    // part runs on the device's own stream, for whose work the end of the buffer waits.
    let mut part = unsafe { buffer.device().lent(address, len) };
    Ok(work(&mut part)?)
}
