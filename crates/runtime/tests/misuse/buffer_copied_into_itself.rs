//! A buffer is either read or written by a copy.

use cuda_std::executor::Checks;
use tilewright_runtime::{Device, Error};

fn main() -> Result<(), Error> {
    let device = Device::cpu(Checks::Bounds);
    let mut buffer = device.upload(&[1.0f32])?;
    device.copy_on_device(&buffer, &mut buffer)?;
    device.new_graph()?.copy_on_device(&buffer, &mut buffer)
}
