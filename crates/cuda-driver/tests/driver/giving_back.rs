//! What is dropped while the driver fails: nothing is given back that may still be used, nor in a context that may be another's.

use crate::copies::{begin, calls};
use crate::fake_driver::counter;
use crate::{fake_library, isolated};
use tilewright_cuda_driver::{Gpu, driver_version};

/// Makes something on a GPU and drops it while another GPU's context is current. The call of this number after the drop has begun
/// fails, if there is one. The number of things that are left.
fn left_of<T>(make: impl Fn(&Gpu) -> T, failing: usize) -> i32 {
    // How many calls there are until the drop.
    let mut before = 0;
    for fails_at in [0, 1] {
        begin(fails_at * (before + failing), 999, 0);
        let (gpu, other) = (Gpu::open(0).unwrap(), Gpu::open(1).unwrap());
        let made = make(&gpu);
        other.make_current().unwrap();
        before = calls();
        let with: i32 = counter("fake_live_objects");
        drop(made);
        let gone = with - counter::<i32>("fake_live_objects");
        if fails_at == 1 {
            return 1 - gone;
        }
        assert_eq!(gone, 1, "where nothing fails");
    }
    unreachable!("the second time returns")
}

#[test]
fn what_may_still_be_used_is_not_given_back() {
    isolated("what_may_still_be_used_is_not_given_back", fake_library, &[], || {
        driver_version().unwrap();
        for failing in [1, 2] {
            // The first call makes the context current, the second one waits.
            assert_eq!(left_of(|gpu| gpu.allocate::<f32>(4).unwrap(), failing), 1, "memory, call {failing}");
            let on_host = |gpu: &Gpu| gpu.allocate_on_host::<f32>(4).unwrap();
            assert_eq!(left_of(on_host, failing), 1, "memory of the host, call {failing}");
            assert_eq!(left_of(|gpu| gpu.load_ptx(".entry a()").unwrap(), failing), 1, "a module, call {failing}");
        }
        assert_eq!(left_of(|gpu| gpu.record_event().unwrap(), 1), 1, "an event");
    });
}
