//! The kernels of `fixtures/device-features` on the CPU. `ptx.rs` looks at their PTX, and `gpu.rs` runs it.

use cuda_std::executor::{Checks, Executor};
use cuda_std::{GlobalSlice, GlobalSliceMut};
use tests::device_features::{Feature, X, untouched};

#[test]
fn every_kernel_gives_what_it_should() {
    let executor = Executor::new(Checks::Full);
    for feature in Feature::ALL {
        let (x, mut y) = (X::new(), untouched());
        // SAFETY: the slices are this process's, and two different ones.
        unsafe { feature.launch(&executor, GlobalSlice::new(&x.0), GlobalSliceMut::new(&mut y)) }
            .unwrap_or_else(|error| panic!("{feature:?}: {error}"));
        assert_eq!(y, feature.expected(&x), "{feature:?}");
    }
}

#[test]
fn a_vector_load_from_an_address_that_is_not_aligned_is_refused() {
    let executor = Executor::new(Checks::Full);
    let (x, mut y) = (vec![X::new(); 2], untouched());
    // SAFETY: inside the vector of two, which is borrowed.
    let shifted = unsafe { GlobalSlice::from_raw_parts(x[0].0.as_ptr().wrapping_add(1), x[0].0.len()) };
    // SAFETY: the slices are this process's, and two different ones.
    let error = unsafe { Feature::VectorLoad.launch(&executor, shifted, GlobalSliceMut::new(&mut y)) }.unwrap_err();
    assert!(error.to_string().contains("x.as_ptr().addr() % 16 == 0"), "{error}");
    assert_eq!(y, untouched());
}
