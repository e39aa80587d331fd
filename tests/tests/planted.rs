//! The kernels with a fault each, on the CPU executor. `tilewright sanitize` runs them on a GPU, under the tools that have to find
//! the faults.

use std::collections::HashSet;

use cuda_std::executor::Checks;
use host::planted::Fault;
use tilewright::{Device, kernels};

/// What the tools for GPUs have to find, the executor finds too, apart from two calls of one barrier, which it takes for one as the
/// hardware does.
#[test]
fn the_faults_that_are_planted_for_other_tools_are_reported() {
    let device = Device::cpu(Checks::Full);
    for fault in Fault::ALL {
        // SAFETY: the executor looks at what a kernel is about to do before it does it.
        let run = || unsafe { fault.run(&device) };
        match fault {
            Fault::BarriersInBothBranches => run().unwrap(),
            Fault::ReadOutOfBounds | Fault::RaceInSharedMemory | Fault::ReadUnwritten | Fault::Trap => {
                let error = run().unwrap_err();
                assert!(error.is_kernel_fault(), "{fault}: {error}");
                let message = error.to_string();
                assert!(message.contains(fault.kernel()) && message.contains("planted.rs"), "{fault}: {message}");
            }
            // Nothing but a time limit finds that: see `endings.rs`.
            Fault::Endless => {}
        }
    }
}

#[test]
fn no_kernel_with_a_fault_is_one_to_multiply_with() {
    let names: HashSet<_> = Fault::ALL.map(Fault::kernel).into();
    assert_eq!(names.len(), Fault::ALL.len());
    assert!(kernels::ALL.iter().all(|kernel| !names.contains(kernel.name)));
    for fault in Fault::ALL {
        assert!(kernels::find(fault.kernel()).is_err());
        assert_eq!(fault.name().parse::<Fault>().unwrap(), fault);
    }
    assert!("traap".parse::<Fault>().unwrap_err().to_string().contains("did you mean `trap`"));
}
