//! The GPU that is measured.

use cuda_std::executor::Checks;
use tilewright::Device;
use tilewright::device::DeviceChoice;

use crate::Error;

/// Opens the device to measure.
pub(super) fn open(choice: DeviceChoice) -> Result<Device, Error> {
    Ok(match choice {
        DeviceChoice::Cpu => Device::cpu(Checks::Bounds),
        DeviceChoice::Auto => Device::cuda(0)?,
        DeviceChoice::Cuda(ordinal) => Device::cuda(ordinal)?,
    })
}

/// The same GPU with the kernels that any has from compute capability 8.0 on, and no others.
pub(super) fn portable(device: &Device) -> Result<Device, Error> {
    let ordinal = device.gpu_properties().map_or(0, |properties| properties.ordinal);
    Ok(Device::cuda_with_arch(ordinal, "sm_80")?)
}

/// Refuses a device that there is nothing to measure on.
///
/// # Errors
/// [`Error::Usage`] for the CPU executor.
pub(super) fn refuse_cpu(device: &Device) -> Result<(), Error> {
    if device.is_cpu() {
        return Err(Error::Usage(
            "a benchmark needs a CUDA GPU: the CPU executor checks every access and runs one thread after the other, so its \
             times say nothing about a GPU; to check results without one, use `tilewright run --device cpu`"
                .to_owned(),
        ));
    }
    Ok(())
}
