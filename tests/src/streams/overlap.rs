//! Copies from and to the host beside kernels: an array that goes through the device in chunks, on one stream and on several.
//!
//! ```text
//!  one stream     │copy 0│kernel 0│copy back 0│copy 1│kernel 1│copy back 1│ …
//!  two streams    │copy 0│kernel 0│copy back 0│copy 2│ …
//!                        │copy 1│kernel 1│copy back 1│copy 3│ …              copies in both directions, and a kernel, at the same time
//! ```

use std::time::Duration;

use runtime::{Device, Error};

use super::kernels::mix;

/// What was measured.
#[derive(Clone, Debug)]
pub struct Overlap {
    /// The copies alone, to the device and back, chunk by chunk.
    pub copies: Duration,
    /// The kernels alone.
    pub kernels: Duration,
    /// Everything on one stream.
    pub in_order: Duration,
    /// Everything on as many streams as there are buffers on the device.
    pub beside: Duration,
    /// Whether the results of both are right.
    pub is_right: bool,
}

/// How much goes through the device.
#[derive(Clone, Copy, Debug)]
pub struct Amount {
    /// The chunks.
    pub chunks: usize,
    /// The elements of 4 bytes of each.
    pub elements: usize,
    /// The rounds of the kernel.
    pub rounds: u32,
    /// The buffers on the device, and the streams.
    pub streams: usize,
}

/// Measures.
///
/// # Errors
/// Those of the device.
pub fn measure(device: &Device, amount: Amount) -> Result<Overlap, Error> {
    let Amount { chunks, elements, rounds, streams: count } = amount;
    let factor = 0x9E37_79B1;
    let x = device.upload(&vec![7u32; elements])?;
    let mut hosts = (0..chunks).map(|_| device.allocate_on_host::<u32>(elements)).collect::<Result<Vec<_>, _>>()?;
    let mut buffers = (0..count).map(|_| device.allocate::<u32>(elements)).collect::<Result<Vec<_>, _>>()?;
    let streams = (0..count).map(|_| device.new_stream()).collect::<Result<Vec<_>, _>>()?;
    let expected = |value: u32| (0..rounds).fold(value, |y, _| y.wrapping_mul(factor).wrapping_add(7));
    let (first, mut is_right) = (&streams[0], true);
    let mut run = |streams: &[&Device], copies: bool, kernels: bool, is_right: &mut bool| -> Result<Duration, Error> {
        let mut best = Duration::MAX;
        for _ in 0..3 {
            for (number, host) in hosts.iter_mut().enumerate() {
                host.as_mut_slice()?.fill(number as u32);
            }
            device.synchronize()?;
            let start = first.record_event()?;
            streams.iter().try_for_each(|stream| stream.wait_for(&start))?;
            for (number, host) in hosts.iter_mut().enumerate() {
                let stream = streams[number % streams.len()];
                let buffer = &mut buffers[number % count];
                if copies {
                    stream.copy_to_device(host, buffer)?;
                }
                if kernels {
                    stream.launch(mix { factor, rounds, x: x.view(), y: buffer.view_disjoint() })?;
                }
                if copies {
                    stream.copy_to_host(buffer, host)?;
                }
            }
            for stream in streams {
                first.wait_for(&stream.record_event()?)?;
            }
            best = best.min(first.record_event()?.elapsed_since(&start)?);
            if copies && kernels {
                for (number, host) in hosts.iter().enumerate() {
                    let expected = expected(number as u32);
                    *is_right &= host.as_slice()?.iter().all(|value| *value == expected);
                }
            }
        }
        Ok(best)
    };
    let all: Vec<&Device> = streams.iter().map(|stream| &**stream).collect();
    let one = [&**first];
    Ok(Overlap {
        copies: run(&one, true, false, &mut is_right)?,
        kernels: run(&one, false, true, &mut is_right)?,
        in_order: run(&one, true, true, &mut is_right)?,
        beside: run(&all, true, true, &mut is_right)?,
        is_right,
    })
}
