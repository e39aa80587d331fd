//! The live allocations of a device, and what a launch checks against them.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};

use cuda_std::{Kernel, ViewAccess};

use crate::Error;

/// The address ranges of a device that buffers hold, by their first byte.
#[derive(Debug, Default)]
pub(super) struct Allocations {
    live: Mutex<BTreeMap<usize, usize>>,
}

impl Allocations {
    /// Notes that `bytes` at `address` are now a buffer's. An empty buffer holds nothing.
    pub(super) fn insert(&self, address: usize, bytes: usize) {
        if bytes > 0 {
            self.lock().insert(address, bytes);
        }
    }

    /// Notes that the buffer at `address` is about to be freed.
    pub(super) fn remove(&self, address: usize, bytes: usize) {
        if bytes > 0 {
            self.lock().remove(&address);
        }
    }

    /// Checks that every view among the kernel's arguments lies within one live buffer, and that no view that is written
    /// to overlaps another one. Empty views are of no memory, so anything goes. `device` names the device in the error.
    ///
    /// Views can be copied, and those of host slices are as safe to make as those of buffers: without this check, safe
    /// code could have a GPU read host memory, or two threads of a kernel write to one place.
    pub(super) fn check<K: Kernel>(&self, kernel: &K, device: impl Fn() -> String) -> Result<(), Error> {
        let mut views: Vec<(String, Range<usize>, ViewAccess)> = Vec::new();
        let mut refused = None;
        let live = self.lock();
        kernel.visit_views(&mut |view| {
            if view.bytes == 0 || refused.is_some() {
                return;
            }
            // The buffer with the highest address that is not beyond the view's.
            let buffer = live.range(..=view.address).next_back();
            let inside = buffer.is_some_and(|(&start, &bytes)| {
                let offset = view.address - start;
                offset <= bytes && view.bytes <= bytes - offset
            });
            if !inside {
                refused = Some(Error::ForeignView {
                    kernel: K::NAME,
                    view: view.name.to_owned(),
                    address: view.address,
                    bytes: view.bytes,
                    device: device(),
                });
                return;
            }
            // No overflow: the view is inside an allocation.
            let range = view.address..view.address + view.bytes;
            for (name, other, access) in &views {
                let overlap = range.start < other.end && other.start < range.end;
                let written = [*access, view.access].contains(&ViewAccess::ReadWrite);
                if overlap && written {
                    let (written, other) = match view.access {
                        ViewAccess::ReadWrite => (view.name.to_owned(), name.clone()),
                        ViewAccess::Read => (name.clone(), view.name.to_owned()),
                    };
                    refused = Some(Error::OverlappingViews { kernel: K::NAME, written, other });
                    return;
                }
            }
            views.push((view.name.to_owned(), range, view.access));
        });
        refused.map_or(Ok(()), Err)
    }

    /// No code that holds the lock can panic halfway through a change, so a poisoned lock guards a map in order.
    fn lock(&self) -> MutexGuard<'_, BTreeMap<usize, usize>> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
