//! Tensor maps, as a driver that writes down what it was given encodes them.

use crate::fake_driver::assert_says;
use crate::{fake_library, fake_library_without_tensor_maps, isolated};
use tilewright_cuda_driver::{
    Error, Gpu, ImageTensor, L2Promotion, TensorDimension, TensorElement, TensorMapFault, TensorSwizzle, TiledTensor,
};

/// A batch of 7 matrices of 300 rows of 1000, whose lines are 1024 elements apart.
const BATCH: [TensorDimension; 3] = [
    TensorDimension { extent: 1000, byte_stride: 4, tile: 32 },
    TensorDimension { extent: 300, byte_stride: 4096, tile: 128 },
    TensorDimension { extent: 7, byte_stride: 300 * 4096, tile: 1 },
];

fn tensor(dimensions: &[TensorDimension]) -> TiledTensor<'_> {
    TiledTensor {
        element: TensorElement::Tf32,
        address: 0xA000,
        dimensions,
        swizzle: TensorSwizzle::Bytes128,
        l2_promotion: L2Promotion::Bytes256,
    }
}

#[test]
fn the_driver_gets_what_describes_the_array() {
    isolated("the_driver_gets_what_describes_the_array", fake_library, &[], || {
        let gpu = Gpu::open(0).unwrap();
        let map = gpu.encode_tensor_map(&tensor(&BATCH)).unwrap();
        assert_eq!(size_of_val(&map), 128);
        assert_eq!(
            map.words,
            [11, 3, 0xA000, 3, 3, 1000, 300, 7, 4096, 300 * 4096, 32, 128, 1, 0, 0, 0],
            "TFLOAT32, 128-byte swizzle, 256-byte promotion"
        );
        // The other kinds of elements and options, by the driver's numbers for them.
        for (element, bytes, number) in
            [(TensorElement::Fp16, 2, 6), (TensorElement::Fp32, 4, 7), (TensorElement::Bf16, 2, 9)]
        {
            let dimensions = [TensorDimension { byte_stride: bytes, ..BATCH[0] }, BATCH[1]];
            let (swizzle, l2_promotion) = (TensorSwizzle::None, L2Promotion::Bytes128);
            let tensor = TiledTensor { element, swizzle, l2_promotion, ..tensor(&dimensions) };
            let words = gpu.encode_tensor_map(&tensor).unwrap().words;
            assert_eq!(words[..10], [number, 2, 0xA000, 0, 2, 1000, 300, 4096, 32, 128], "{element:?}");
        }
    });
}

/// 3 images of 20 rows of 30 pixels of 128 channels, of which 64 are loaded at a time.
const IMAGES: [TensorDimension; 4] = [
    TensorDimension { extent: 128, byte_stride: 2, tile: 64 },
    TensorDimension { extent: 30, byte_stride: 256, tile: 1 },
    TensorDimension { extent: 20, byte_stride: 30 * 256, tile: 1 },
    TensorDimension { extent: 3, byte_stride: 600 * 256, tile: 1 },
];

fn images() -> ImageTensor<'static> {
    let tensor = TiledTensor { element: TensorElement::Bf16, ..tensor(&IMAGES) };
    ImageTensor { tensor, lower: [-1, -2], upper: [-3, 4], steps: [2, 5], pixels: 192 }
}

#[test]
fn the_driver_gets_what_describes_images() {
    isolated("the_driver_gets_what_describes_images", fake_library, &[], || {
        let map = Gpu::open(0).unwrap().encode_image_map(&images()).unwrap();
        assert_eq!(
            map.words,
            [9, 0xA000, 0x303, 128, 30, 20, 3, 256, 7680, 153_600, 0xFFFE, 0xFD04, 64, 192, 2, 5],
            "BFLOAT16, 128-byte swizzle, 256-byte promotion"
        );
    });
}

#[test]
fn images_that_cannot_be_described_are_refused_with_the_reason() {
    isolated("images_that_cannot_be_described_are_refused_with_the_reason", fake_library, &[], || {
        let gpu = Gpu::open(0).unwrap();
        let error = gpu.encode_image_map(&ImageTensor { lower: [0, -200], ..images() }).unwrap_err();
        assert_says(&error, &["128 x 30 x 20 x 3 elements of Bf16", "dimension 2, which has 20, begin at -200"]);
    });
}

#[test]
fn what_the_driver_refuses_of_images_is_told() {
    let variables = [("FAKE_CUDA", "cuTensorMapEncodeIm2col=1")];
    isolated("what_the_driver_refuses_of_images_is_told", fake_library, &variables, || {
        let error = Gpu::open(0).unwrap().encode_image_map(&images()).unwrap_err();
        assert_says(&error, &["cuTensorMapEncodeIm2col returned CUDA_ERROR_INVALID_VALUE (1)"]);
    });
}

#[test]
fn what_cannot_be_described_is_refused_with_the_reason() {
    isolated("what_cannot_be_described_is_refused_with_the_reason", fake_library, &[], || {
        let gpu = Gpu::open(0).unwrap();
        let dimensions = [BATCH[0], TensorDimension { byte_stride: 4004, ..BATCH[1] }];
        let error = gpu.encode_tensor_map(&tensor(&dimensions)).unwrap_err();
        let Error::TensorMapRejected(rejected) = &error else { panic!("{error}") };
        assert_eq!(rejected.fault, TensorMapFault::Stride { dimension: 1, byte_stride: 4004 });
        assert_says(&error, &["1000 x 300 elements of Tf32 at 0xa000", "tiles of 32 x 128", "4004 bytes apart"]);
        assert!(error.driver_call().is_none());
    });
}

#[test]
fn what_the_driver_refuses_is_told() {
    let variables = [("FAKE_CUDA", "cuTensorMapEncodeTiled=1")];
    isolated("what_the_driver_refuses_is_told", fake_library, &variables, || {
        let error = Gpu::open(0).unwrap().encode_tensor_map(&tensor(&BATCH)).unwrap_err();
        assert_says(
            &error,
            &["1000 x 300 x 7 elements", "cuTensorMapEncodeTiled returned CUDA_ERROR_INVALID_VALUE (1)"],
        );
        assert_eq!(error.driver_call().unwrap().code, 1);
    });
}

#[test]
fn a_driver_before_cuda_12_has_no_tensor_maps() {
    isolated("a_driver_before_cuda_12_has_no_tensor_maps", fake_library_without_tensor_maps, &[], || {
        let error = Gpu::open(0).unwrap().encode_tensor_map(&tensor(&BATCH)).unwrap_err();
        assert!(matches!(error, Error::MissingFunction { function: "cuTensorMapEncodeTiled", .. }), "{error}");
        assert_says(&error, &["update"]);
    });
}

#[test]
fn a_gpu_before_hopper_has_no_tensor_maps() {
    let variables = [("FAKE_CUDA_CAPABILITY", "8.9")];
    isolated("a_gpu_before_hopper_has_no_tensor_maps", fake_library, &variables, || {
        let error = Gpu::open(0).unwrap().encode_tensor_map(&tensor(&BATCH)).unwrap_err();
        assert_says(&error, &["9.0 or newer", "Fake GPU has 8.9"]);
    });
}
