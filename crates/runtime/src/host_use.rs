//! The operations that use page-locked memory of the host. It is used as a whole.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::order::{Operation, Use, Uses};

/// Those that use some page-locked memory.
#[derive(Debug, Default)]
pub(crate) struct HostUses {
    uses: Mutex<Uses>,
}

/// An operation's use of such memory.
pub(crate) struct HostUse<'a> {
    pub(crate) uses: &'a HostUses,
    pub(crate) is_written: bool,
}

impl HostUses {
    /// Waits for what may still use the memory: all of it, or only what writes to it.
    ///
    /// # Errors
    /// [`ContextLost`](cuda_driver::Error::ContextLost) if a kernel has failed, and others of the driver: then nobody knows whether it is still
    /// used, and it counts as used.
    pub(crate) fn wait(&self, is_written: bool) -> Result<(), cuda_driver::Error> {
        // Not under the lock: others may go on to copy from it.
        let operations: Vec<_> = self.lock().conflicts(&whole(is_written)).cloned().collect();
        operations.iter().try_for_each(|operation| operation.synchronize())?;
        self.lock().forget(&operations);
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, Uses> {
        self.uses.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl HostUse<'_> {
    /// The operations that this one has to come after.
    pub(crate) fn conflicts(&self) -> Vec<Arc<Operation>> {
        self.uses.lock().conflicts(&whole(self.is_written)).cloned().collect()
    }

    /// Notes that the operation has been started.
    pub(crate) fn note(&self, operation: &Arc<Operation>) {
        self.uses.lock().note(whole(self.is_written), operation);
    }
}

/// Stands for all of the memory.
fn whole(is_written: bool) -> Use {
    Use::new(0, 1, is_written)
}
