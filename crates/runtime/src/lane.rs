//! On which stream a handle of a device starts things.

use std::sync::Arc;

use cuda_driver::Gpu;

use crate::allocations::Allocations;
use crate::order::{LENT, OWN, StreamNumber};

/// Where a device's handle starts things.
#[derive(Clone)]
pub(crate) enum Lane {
    /// On the device's own stream.
    Own,
    /// On another library's.
    Lent(Gpu),
    Stream(Arc<StreamLane>),
}

/// A stream, which ends with this.
pub(crate) struct StreamLane {
    number: StreamNumber,
    /// The GPU with this stream; `None` on the CPU executor.
    gpu: Option<Gpu>,
    allocations: Arc<Allocations>,
}

impl StreamLane {
    /// Adds a stream to those of a device.
    pub(crate) fn new(gpu: Option<Gpu>, allocations: &Arc<Allocations>) -> Self {
        let number = allocations.lock().streams.add();
        Self { number, gpu, allocations: allocations.clone() }
    }
}

impl Drop for StreamLane {
    fn drop(&mut self) {
        self.allocations.lock().streams.end(self.number);
    }
}

impl Lane {
    pub(crate) fn number(&self) -> StreamNumber {
        match self {
            Self::Own => OWN,
            Self::Lent(_) => LENT,
            Self::Stream(lane) => lane.number,
        }
    }

    /// The GPU with this stream, if it is not its own.
    pub(crate) fn gpu(&self) -> Option<&Gpu> {
        match self {
            Self::Own => None,
            Self::Lent(gpu) => Some(gpu),
            Self::Stream(lane) => lane.gpu.as_ref(),
        }
    }
}
