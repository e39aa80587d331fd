//! Asks the driver for a tensor map: the calls of `cuTensorMapEncodeTiled` and `cuTensorMapEncodeIm2col`, and the error if it refuses.

use std::ffi::c_void;
use std::ptr::{self, NonNull};

use gpu_facts::ComputeCapability;

use crate::error::{Error, code};
use crate::gpu::Gpu;
use crate::image_tensor::ImageTensor;
use crate::library::Entry;
use crate::tensor_map::{EncodedTensorMap, L2Promotion, TensorMapFault, TensorMapRejected, TensorSwizzle, TiledTensor};

impl TiledTensor<'_> {
    /// The error that says why there is no tensor map of the array.
    pub fn rejected(&self, fault: TensorMapFault) -> Error {
        let &TiledTensor { element, address, dimensions, .. } = self;
        let dimensions = dimensions.to_vec();
        Error::TensorMapRejected(Box::new(TensorMapRejected { fault, element, address, dimensions }))
    }

    /// The value of `CUtensorMapSwizzle`.
    const fn swizzle_code(&self) -> u32 {
        match self.swizzle {
            TensorSwizzle::None => 0,
            TensorSwizzle::Bytes128 => 3,
        }
    }

    /// The value of `CUtensorMapL2promotion`.
    const fn l2_promotion_code(&self) -> u32 {
        match self.l2_promotion {
            L2Promotion::Bytes128 => 2,
            L2Promotion::Bytes256 => 3,
        }
    }

    /// One number of each of the dimensions, of which there are as many as a check lets through, and zeros.
    fn each<T: Copy + Default>(&self, number: impl Fn(&crate::TensorDimension) -> T) -> [T; 5] {
        let mut numbers = [T::default(); 5];
        for (to, dimension) in numbers.iter_mut().zip(self.dimensions) {
            *to = number(dimension);
        }
        numbers
    }
}

/// The type of `cuTensorMapEncodeTiled`, in all drivers from CUDA 12.0 on. `cust` declares the interface of 11.4.
type EncodeTiled = unsafe extern "C" fn(
    tensor_map: *mut EncodedTensorMap,
    data_type: u32,
    rank: u32,
    global_address: *mut c_void,
    global_dim: *const u64,
    global_strides: *const u64,
    box_dim: *const u32,
    element_strides: *const u32,
    interleave: u32,
    swizzle: u32,
    l2_promotion: u32,
    out_of_bounds_fill: u32,
) -> u32;

/// The type of `cuTensorMapEncodeIm2col`, likewise.
type EncodeIm2col = unsafe extern "C" fn(
    tensor_map: *mut EncodedTensorMap,
    data_type: u32,
    rank: u32,
    global_address: *mut c_void,
    global_dim: *const u64,
    global_strides: *const u64,
    pixel_box_lower_corner: *const i32,
    pixel_box_upper_corner: *const i32,
    channels_per_pixel: u32,
    pixels_per_column: u32,
    element_strides: *const u32,
    interleave: u32,
    swizzle: u32,
    l2_promotion: u32,
    out_of_bounds_fill: u32,
) -> u32;

static ENCODE_TILED: Entry = Entry::new("cuTensorMapEncodeTiled");
static ENCODE_IM2COL: Entry = Entry::new("cuTensorMapEncodeIm2col");

/// Elements are not interleaved, and what is outside of the extents is zero: the driver's numbers for that.
const NOT_INTERLEAVED: u32 = 0;
const ZEROS: u32 = 0;

impl Gpu {
    /// Describes an array of this GPU's memory for TMA. The description holds as long as the array stays where
    /// it is; the driver does not look whether there is memory.
    ///
    /// # Errors
    /// [`Error::TensorMapRejected`] for what cannot be described; [`Error::MissingFunction`] for drivers older than CUDA
    /// 12.0.
    pub fn encode_tensor_map(&self, tensor: &TiledTensor<'_>) -> Result<EncodedTensorMap, Error> {
        self.encode(tensor, tensor.check(), &ENCODE_TILED, |map, address| {
            // SAFETY: the driver's function of this name has had this type since it exists.
            let encode: EncodeTiled = unsafe { std::mem::transmute(address.as_ptr()) };
            // SAFETY: `map` may be written to and is aligned to 64 bytes; the arrays have at least as many elements as there are
            // dimensions, the strides at least one less. The array's address is a number to this function.
            unsafe {
                encode(
                    map,
                    tensor.element.code(),
                    tensor.dimensions.len() as u32,
                    ptr::without_provenance_mut(tensor.address as usize),
                    tensor.each(|dimension| dimension.extent).as_ptr(),
                    tensor.each(|dimension| dimension.byte_stride)[1..].as_ptr(),
                    tensor.each(|dimension| dimension.tile).as_ptr(),
                    [1; 5].as_ptr(),
                    NOT_INTERLEAVED,
                    tensor.swizzle_code(),
                    tensor.l2_promotion_code(),
                    ZEROS,
                )
            }
        })
    }

    /// Describes images in this GPU's memory for TMA, as [`Gpu::encode_tensor_map`] does an array.
    ///
    /// # Errors
    /// As there.
    pub fn encode_image_map(&self, image: &ImageTensor<'_>) -> Result<EncodedTensorMap, Error> {
        let tensor = &image.tensor;
        self.encode(tensor, image.check(), &ENCODE_IM2COL, |map, address| {
            // SAFETY: as above.
            let encode: EncodeIm2col = unsafe { std::mem::transmute(address.as_ptr()) };
            let [across, down] = image.steps;
            // SAFETY: as above; there are four dimensions, and corners have two numbers less.
            unsafe {
                encode(
                    map,
                    tensor.element.code(),
                    tensor.dimensions.len() as u32,
                    ptr::without_provenance_mut(tensor.address as usize),
                    tensor.each(|dimension| dimension.extent).as_ptr(),
                    tensor.each(|dimension| dimension.byte_stride)[1..].as_ptr(),
                    image.lower.as_ptr(),
                    image.upper.as_ptr(),
                    tensor.each(|dimension| dimension.tile)[0],
                    image.pixels,
                    [1, across, down, 1].as_ptr(),
                    NOT_INTERLEAVED,
                    tensor.swizzle_code(),
                    tensor.l2_promotion_code(),
                    ZEROS,
                )
            }
        })
    }

    /// What `entry` makes of an array that has been checked, by way of `call`.
    fn encode(
        &self,
        tensor: &TiledTensor<'_>,
        checked: Result<(), TensorMapFault>,
        entry: &'static Entry,
        call: impl Fn(&mut EncodedTensorMap, NonNull<c_void>) -> u32,
    ) -> Result<EncodedTensorMap, Error> {
        let rejected = |fault| tensor.rejected(fault);
        let properties = self.properties();
        if properties.compute_capability < (ComputeCapability { major: 9, minor: 0 }) {
            let (device, compute_capability) = (properties.name.clone(), properties.compute_capability);
            return Err(rejected(TensorMapFault::IncapableDevice { device, compute_capability }));
        }
        checked.map_err(rejected)?;
        self.bind()?;
        let mut map = EncodedTensorMap { words: [0; 16] };
        match self.call(|| entry.forward(|address| call(&mut map, address))) {
            Ok(()) => Ok(map),
            Err(error) => match error.returned_any(&[code::INVALID_VALUE]) {
                Ok(call) => Err(rejected(TensorMapFault::Refused(call))),
                Err(error) => Err(error.into()),
            },
        }
    }
}
