//! No copy into page-locked memory can be started while the program looks at it.

use cuda_std::executor::Checks;
use tilewright_runtime::{Device, Error};

fn main() -> Result<(), Error> {
    let device = Device::cpu(Checks::Bounds);
    let (buffer, mut host) = (device.upload(&[1.0f32])?, device.allocate_on_host(1)?);
    let before = host.as_slice()?;
    device.copy_to_host(&buffer, &mut host)?;
    assert_eq!(before, [0.0]);
    Ok(())
}
