//! No copy of page-locked memory can be started while the program may write to it.

use cuda_std::executor::Checks;
use tilewright_runtime::{Device, Error};

fn main() -> Result<(), Error> {
    let device = Device::cpu(Checks::Bounds);
    let (mut buffer, mut host) = (device.upload(&[1.0f32])?, device.allocate_on_host(1)?);
    let elements = host.as_mut_slice()?;
    device.copy_to_device(&host, &mut buffer)?;
    elements[0] = 2.0;
    Ok(())
}
