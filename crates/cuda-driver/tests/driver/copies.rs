//! Copies between the host and the GPU on a driver that fails in between: none goes on when its owner has the memory back.

use crate::fake_driver::counter;
use crate::{fake_library, isolated};
use tilewright_cuda_driver::{Error, Gpu, LIBRARY_VARIABLE, driver_version};

/// Has the fake driver begin anew, with the call of this number returning `code`: see `fake_faults.rs`.
pub(crate) fn begin(number: usize, code: u32, how: u32) {
    // SAFETY: the library is open already, and the function of this name has this type.
    unsafe {
        let library = libloading::Library::new(std::env::var(LIBRARY_VARIABLE).unwrap()).unwrap();
        library.get::<unsafe extern "C" fn(usize, u32, u32)>("fake_begin").unwrap()(number, code, how);
    }
}

pub(crate) fn calls() -> usize {
    counter("fake_calls")
}

/// Copies there and back, and says for both whether that failed; also how many calls there were before either.
fn there_and_back() -> (usize, [Result<(), Error>; 2]) {
    let gpu = Gpu::open(0).unwrap();
    let mut memory = gpu.allocate::<f32>(4).unwrap();
    let before = calls();
    let none_goes_on = |result| {
        assert_eq!(counter::<usize>("fake_copies_going_on"), 0, "after {result:?}");
        result
    };
    let there = none_goes_on(memory.copy_from_host(&[1.0; 4]));
    let back = none_goes_on(memory.copy_to_host(&mut [0.0; 4]));
    (before, [there, back])
}

#[test]
fn no_copy_goes_on_when_its_owner_has_the_memory_back() {
    isolated("no_copy_goes_on_when_its_owner_has_the_memory_back", fake_library, &[], || {
        driver_version().unwrap();
        begin(0, 0, 0);
        let (before, results) = there_and_back();
        assert!(results.iter().all(Result::is_ok), "{results:?}");
        // Of these, the last ones are for giving back.
        let copying = before + 6;
        for number in before + 1..=copying {
            for (code, how) in [(2, 0), (999, 0), (700, 1)] {
                begin(number, code, how);
                let (_, results) = there_and_back();
                let failed = results.iter().filter_map(|result| result.as_ref().err()).next();
                let call = failed.and_then(Error::driver_call).unwrap_or_else(|| panic!("call {number} of {before}"));
                assert_eq!(call.code, code);
                assert_eq!(matches!(failed, Some(Error::ContextLost { .. })), code == 700, "{failed:?}");
            }
        }
    });
}
