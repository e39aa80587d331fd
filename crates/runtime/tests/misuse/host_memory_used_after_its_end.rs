//! The elements of page-locked memory do not outlive it.

use cuda_std::executor::Checks;
use tilewright_runtime::{Device, Error};

fn main() -> Result<(), Error> {
    let host = Device::cpu(Checks::Bounds).allocate_on_host::<f32>(1)?;
    let elements = host.as_slice()?;
    drop(host);
    assert_eq!(elements, [0.0]);
    Ok(())
}
