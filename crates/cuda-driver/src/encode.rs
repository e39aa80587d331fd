//! Asks the driver for a tensor map: the call of `cuTensorMapEncodeTiled`, and the error if it refuses.

use std::ffi::c_void;
use std::ptr::{self, NonNull};

use gpu_facts::ComputeCapability;

use crate::error::{Error, code};
use crate::gpu::Gpu;
use crate::library::Entry;
use crate::tensor_map::{EncodedTensorMap, L2Promotion, TensorMapFault, TensorMapRejected, TensorSwizzle, TiledTensor};

impl TiledTensor<'_> {
    /// The error that says why there is no tensor map of the array.
    pub fn rejected(&self, fault: TensorMapFault) -> Error {
        let &TiledTensor { element, address, dimensions, .. } = self;
        let dimensions = dimensions.to_vec();
        Error::TensorMapRejected(Box::new(TensorMapRejected { fault, element, address, dimensions }))
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

static ENCODE_TILED: Entry = Entry::new("cuTensorMapEncodeTiled");

impl Gpu {
    /// Describes an array of this GPU's memory for TMA. The description holds as long as the array stays where
    /// it is; the driver does not look whether there is memory.
    ///
    /// # Errors
    /// [`Error::TensorMapRejected`] for what cannot be described; [`Error::MissingFunction`] for drivers older than CUDA
    /// 12.0.
    pub fn encode_tensor_map(&self, tensor: &TiledTensor<'_>) -> Result<EncodedTensorMap, Error> {
        let rejected = |fault| tensor.rejected(fault);
        let properties = self.properties();
        if properties.compute_capability < (ComputeCapability { major: 9, minor: 0 }) {
            let (device, compute_capability) = (properties.name.clone(), properties.compute_capability);
            return Err(rejected(TensorMapFault::IncapableDevice { device, compute_capability }));
        }
        tensor.check().map_err(rejected)?;
        self.bind()?;

        let mut map = EncodedTensorMap { words: [0; 16] };
        let rank = tensor.dimensions.len();
        // As many as `check` lets through. The strides are those from the second dimension on.
        let (mut extents, mut byte_strides, mut tile) = ([0u64; 5], [0u64; 5], [0u32; 5]);
        for (at, dimension) in tensor.dimensions.iter().enumerate() {
            (extents[at], byte_strides[at], tile[at]) = (dimension.extent, dimension.byte_stride, dimension.tile);
        }
        let swizzle = match tensor.swizzle {
            TensorSwizzle::None => 0,
            TensorSwizzle::Bytes128 => 3,
        };
        let l2_promotion = match tensor.l2_promotion {
            L2Promotion::Bytes128 => 2,
            L2Promotion::Bytes256 => 3,
        };
        let encode = |address: NonNull<c_void>| {
            // SAFETY: the driver's function of this name has had this type since it exists.
            let encode: EncodeTiled = unsafe { std::mem::transmute(address.as_ptr()) };
            // SAFETY: `map` may be written to and is aligned to 64 bytes; the arrays have at least `rank` elements, the
            // strides at least one less. The array's address is a number to this function.
            unsafe {
                encode(
                    &mut map,
                    tensor.element.code(),
                    rank as u32,
                    ptr::without_provenance_mut(tensor.address as usize),
                    extents.as_ptr(),
                    byte_strides[1..].as_ptr(),
                    tile.as_ptr(),
                    [1; 5].as_ptr(),
                    0, // no interleaving
                    swizzle,
                    l2_promotion,
                    0, // zeros outside of the extents
                )
            }
        };
        match self.call(|| ENCODE_TILED.forward(encode)) {
            Ok(()) => Ok(map),
            Err(error) => match error.returned_any(&[code::INVALID_VALUE]) {
                Ok(call) => Err(rejected(TensorMapFault::Refused(call))),
                Err(error) => Err(error.into()),
            },
        }
    }
}
