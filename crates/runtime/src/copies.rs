//! Operations on buffers that are no launches: copies and fills, for which the host does not wait.

use bytemuck::Pod;
use cuda_std::Element;

use crate::Error;
use crate::buffer::{Buffer, Memory};
use crate::device::{Backend, Device};
use crate::host_buffer::{HostBuffer, HostMemory};
use crate::host_use::HostUse;

impl Device {
    /// Copies page-locked memory of the host into a buffer, on this stream. The host does not wait: it may read `source` meanwhile,
    /// and [`HostBuffer::as_mut_slice`] waits until the copy has finished.
    ///
    /// # Errors
    /// [`Error::LengthMismatch`]; [`Error::ForeignBuffer`] for one of another device; [`Error::Driver`] if an earlier kernel has failed.
    pub fn copy_to_device<T: Element + Pod>(
        &self,
        source: &HostBuffer<T>,
        target: &mut Buffer<T>,
    ) -> Result<(), Error> {
        self.check_copy("a copy to the device", [source.device(), target.device()], [source.len(), target.len()])?;
        let uses = || target.uses(true);
        match (&self.inner.backend, &source.memory, &target.memory) {
            (Backend::Cuda(cuda), HostMemory::Cuda(from), Memory::Cuda(to)) => {
                let host = HostUse { uses: &source.uses, is_written: false };
                // SAFETY: both are of this GPU, and both wait for what uses them when they are dropped. Who else uses the buffer comes before
                // or after, and who writes to the host's memory waits: the order, and the host's `as_mut_slice`.
                self.in_order(cuda, uses, Some(host), |gpu| unsafe { Ok(to.start_copy_from_host(gpu, from)?) })
            }
            (Backend::Cpu(_), HostMemory::Cpu(_), Memory::Cpu(to)) => {
                let _claim = self.inner.claims.claim(format_args!("a copy to the device"), uses())?;
                // SAFETY: the memory is claimed.
                unsafe { to.write(source.as_slice()?) };
                Ok(())
            }
            // Nothing to copy.
            _ => Ok(()),
        }
    }

    /// Copies a buffer into page-locked memory of the host, on this stream. The host does not wait: [`HostBuffer::as_slice`] does.
    ///
    /// # Errors
    /// Those of [`Device::copy_to_device`]; [`Error::Unwritten`] on the CPU executor with all checks, if nobody has written some of the elements.
    pub fn copy_to_host<T: Element + Pod>(&self, source: &Buffer<T>, target: &mut HostBuffer<T>) -> Result<(), Error> {
        self.check_copy("a copy to the host", [source.device(), target.device()], [target.len(), source.len()])?;
        let uses = || source.uses(false);
        match (&self.inner.backend, &source.memory, &target.memory) {
            (Backend::Cuda(cuda), Memory::Cuda(from), HostMemory::Cuda(to)) => {
                let host = HostUse { uses: &target.uses, is_written: true };
                // SAFETY: as in `copy_to_device`. Who reads the host's memory waits: `as_slice`.
                self.in_order(cuda, uses, Some(host), |gpu| unsafe { Ok(from.start_copy_to_host(gpu, to)?) })
            }
            (Backend::Cpu(_), Memory::Cpu(from), HostMemory::Cpu(_)) => {
                let _claim = self.inner.claims.claim(format_args!("a copy to the host"), uses())?;
                from.check_read(0..from.len)?;
                // SAFETY: the memory is claimed.
                unsafe { from.read(target.as_mut_slice()?) };
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Copies a buffer into another, on this stream. The host does not wait.
    ///
    /// # Errors
    /// Those of [`Device::copy_to_device`].
    pub fn copy_on_device<T: Element + Pod>(&self, source: &Buffer<T>, target: &mut Buffer<T>) -> Result<(), Error> {
        self.check_copy("a copy on the device", [source.device(), target.device()], [source.len(), target.len()])?;
        let uses = || [source.uses(false), target.uses(true)].concat();
        match (&self.inner.backend, &source.memory, &target.memory) {
            (Backend::Cuda(cuda), Memory::Cuda(from), Memory::Cuda(to)) => {
                // SAFETY: as in `copy_to_device`.
                self.in_order(cuda, uses, None, |gpu| unsafe { Ok(to.start_copy_from(gpu, from)?) })
            }
            (Backend::Cpu(_), Memory::Cpu(from), Memory::Cpu(to)) => {
                let _claim = self.inner.claims.claim(format_args!("a copy on the device"), uses())?;
                // SAFETY: both are claimed.
                unsafe { to.copy(from) };
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Sets every byte of a buffer, on this stream. The host does not wait.
    ///
    /// # Errors
    /// [`Error::ForeignBuffer`] for one of another device; [`Error::Driver`] if an earlier kernel has failed.
    pub fn fill_bytes<T: Element + Pod>(&self, target: &mut Buffer<T>, value: u8) -> Result<(), Error> {
        self.check_copy("a fill", [target.device(); 2], [0; 2])?;
        let uses = || target.uses(true);
        match (&self.inner.backend, &target.memory) {
            (Backend::Cuda(cuda), Memory::Cuda(memory)) => {
                // SAFETY: as in `copy_to_device`.
                self.in_order(cuda, uses, None, |gpu| unsafe { Ok(memory.start_fill_bytes(gpu, value)?) })
            }
            (Backend::Cpu(_), Memory::Cpu(memory)) => {
                let _claim = self.inner.claims.claim(format_args!("a fill"), uses())?;
                // SAFETY: the memory is claimed.
                unsafe { memory.fill_bytes(value) };
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Refuses buffers of other devices, and of different lengths: the host's, or the source's, and the device's.
    pub(crate) fn check_copy(
        &self,
        what: &'static str,
        owners: [&Self; 2],
        [host, device]: [usize; 2],
    ) -> Result<(), Error> {
        if let Some(owner) = owners.into_iter().find(|owner| !self.is_same(owner)) {
            return Err(Error::ForeignBuffer { what, device: self.name(), owner: owner.name() });
        }
        if host == device { Ok(()) } else { Err(Error::LengthMismatch { host, device }) }
    }
}
