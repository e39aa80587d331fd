//! What a GPU can do at most, by its driver's figures: what a measurement is a share of.

use cuda_std::ComputeCapability;
use runtime::Device;
use serde::Serialize;

use crate::operation::Units;

/// The rates that a GPU cannot exceed. No program reaches them: of the memory's, the best copies reach nine tenths.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Peak {
    /// Bytes that the memory moves in a second: two for each clock and each eight lines of its bus.
    pub bytes_per_second: f64,
    /// fp32 operations that the CUDA cores do in a second, at the highest clock; none for a GPU that is newer than the
    /// [table](cuda_std::ComputeCapability::fp32_per_clock).
    pub fp32_per_second: Option<f64>,
}

/// The least time that some work can take.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Least {
    /// In milliseconds.
    pub ms: f64,
    /// What it is that time of.
    pub bound_by: &'static str,
}

impl Peak {
    /// That of a device: none of the executor, nor of a GPU whose driver says nothing of its memory.
    pub fn of(device: &Device) -> Option<Self> {
        let gpu = device.gpu_properties()?;
        let fp32_per_clock = ComputeCapability::fp32_per_clock(gpu.compute_capability);
        let multiprocessor_clocks = f64::from(gpu.multiprocessors) * f64::from(gpu.clock_khz) * 1e3;
        let peak = Self {
            bytes_per_second: 2.0 * f64::from(gpu.memory_clock_khz) * 1e3 * f64::from(gpu.memory_bus_bits) / 8.0,
            fp32_per_second: fp32_per_clock
                .map(|rate| f64::from(rate) * multiprocessor_clocks)
                .filter(|rate| *rate > 0.0),
        };
        (peak.bytes_per_second > 0.0).then_some(peak)
    }

    /// The least time in which some bytes can be moved and some operations be done: the larger of the two, for they go on at
    /// the same time. Operations of units whose rate is not known count for nothing.
    pub fn least(&self, bytes: f64, operations: f64, units: Units) -> Least {
        let memory = bytes / self.bytes_per_second * 1e3;
        let rate = match units {
            Units::CudaCores => self.fp32_per_second,
            Units::TensorCores => None,
        };
        match rate.map(|rate| operations / rate * 1e3) {
            Some(computing) if computing > memory => Least { ms: computing, bound_by: "CUDA cores" },
            _ => Least { ms: memory, bound_by: "memory" },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_busier_of_memory_and_cores_says_how_long_it_takes_at_least() {
        let peak = Peak { bytes_per_second: 4e12, fp32_per_second: Some(60e12) };
        assert_eq!(peak.least(4e9, 6e9, Units::CudaCores), Least { ms: 1.0, bound_by: "memory" });
        assert_eq!(peak.least(4e9, 120e9, Units::CudaCores), Least { ms: 2.0, bound_by: "CUDA cores" });
        assert_eq!(peak.least(4e9, 120e9, Units::TensorCores), Least { ms: 1.0, bound_by: "memory" });
        let unknown = Peak { fp32_per_second: None, ..peak };
        assert_eq!(unknown.least(4e9, 120e9, Units::CudaCores), Least { ms: 1.0, bound_by: "memory" });
    }

    #[test]
    fn the_executor_has_none() {
        assert_eq!(Peak::of(&Device::cpu(cuda_std::executor::Checks::Bounds)), None);
    }
}
