//! What the [model of times](crate::plan) knows of a GPU: the constants of the whole GPU, and those of its kernels.
//!
//! ```text
//!  built in     fitted to an H200; rates by compute capability      Constants ──► the model, as an argument
//!                                                                      ▲
//!  measured     `tilewright tune --constants` on this GPU ──► MeasuredConstants: the same, with what they were measured on
//! ```
//!
//! Constants that were measured say of which GPU and of which kernels they are. For another GPU, or once a kernel has been changed, they
//! are as much a guess as those that are built in, so they are refused then ([`ConstantsFault`]).

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use cuda_std::ComputeCapability;
use serde::{Deserialize, Serialize};

/// What files of constants say they are.
const KIND: &str = "tilewright-constants";

/// The version of the format, and of what the numbers in it mean to the model.
const SCHEMA: u32 = 2;

/// The constants of a GPU that do not depend on a kernel. All times are in seconds, all rates in operations or bytes per second.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// What a launch costs, as long as the GPU waits for it.
    pub launch_seconds: f64,
    /// What another one costs, which begins when the one before has ended.
    pub next_launch_seconds: f64,
    /// What a block costs that finds nothing to do.
    pub idle_block_seconds: f64,
    /// What a wave of blocks costs that have little to read, one after the other.
    pub wave_seconds: f64,
    /// What a term of a sum costs a thread that loads it from memory itself.
    pub term_seconds: f64,
    /// The bandwidth of the memory.
    pub bandwidth: f64,
    /// The share of the bandwidth that packing and copying operands reaches.
    pub preparing_share: f64,
    /// The share of the bandwidth at which results are stored from registers.
    pub storing_share: f64,
    /// What elements of a row cost that are stored one by one, in bytes for each byte.
    pub stored_one_by_one: f64,
    /// What rows cost that begin anywhere and are stored by lines, in bytes for each byte.
    pub stored_in_lines: f64,
    /// fp32 operations of all multiprocessors.
    pub fp32_rate: f64,
    /// TF32 operations of all multiprocessors.
    pub tf32_rate: f64,
    /// fp64 operations of all multiprocessors, on tensor cores where there are such.
    pub fp64_rate: f64,
}

impl Machine {
    /// What is known of GPUs that nobody has measured: what an H200 was measured to have, with the rates that NVIDIA publishes for a
    /// multiprocessor of the generation at 1.7 GHz. No compute capability stands for the CPU executor, of whose times nothing is known.
    ///
    /// GPUs of a generation differ in their bandwidth: an RTX 4090 and an L4 have the same here.
    pub fn built_in(compute_capability: Option<(u32, u32)>, multiprocessors: u32) -> Self {
        const CLOCK: f64 = 1.7e9;
        // Where a kernel is launched while the one before it ends, that takes 1.2 µs less.
        let overlaps =
            compute_capability.is_none_or(|(major, minor)| ComputeCapability::new(major, minor).launches_overlap());
        let (launch_seconds, next_launch_seconds) = if overlaps { (1e-6, 2.2e-6) } else { (2.2e-6, 3.4e-6) };
        let of_h200 = Self {
            launch_seconds,
            next_launch_seconds,
            idle_block_seconds: 0.8e-6,
            // 1.3 to 1.7 µs.
            wave_seconds: 1.3e-6,
            // Eight terms are under way at a time.
            term_seconds: 600e-9 / 8.0,
            bandwidth: 1e9,
            preparing_share: 0.85,
            // 0.4 to 0.5.
            storing_share: 0.5,
            // 1.2 to 4.
            stored_one_by_one: 2.7,
            // 0.3 to 1.2.
            stored_in_lines: 0.6,
            fp32_rate: 1e9,
            tf32_rate: 1e9,
            fp64_rate: 1e9,
        };
        let Some((major, minor)) = compute_capability else { return of_h200 };
        // What nobody knows counts as what most have.
        let fp32 = f64::from(ComputeCapability::new(major, minor).fp32_per_clock().unwrap_or(256));
        // TF32 and fp64 operations of a multiprocessor in a clock, and the bandwidth of the memory.
        let (tf32, fp64, bandwidth) = match (major, minor) {
            (8, 0) => (1024.0, 128.0, 1.5e12),
            // Where TF32 is no faster than fp32, products of parts are slower: GeForce, and the cards made from the same chips.
            (8, _) => (256.0, 4.0, 0.6e12),
            (9, _) => (2048.0, 256.0, 4.2e12),
            (10, 0) => (1024.0, 128.0, 1.5e12),
            (12, _) => (256.0, 4.0, 1.5e12),
            _ => (1024.0, 4.0, 1.5e12),
        };
        let all = CLOCK * f64::from(multiprocessors.max(1));
        Self { bandwidth, fp32_rate: fp32 * all, tf32_rate: tf32 * all, fp64_rate: fp64 * all, ..of_h200 }
    }

    /// Each constant by its name.
    pub fn named(&self) -> [(&'static str, f64); 13] {
        [
            ("launch_seconds", self.launch_seconds),
            ("next_launch_seconds", self.next_launch_seconds),
            ("idle_block_seconds", self.idle_block_seconds),
            ("wave_seconds", self.wave_seconds),
            ("term_seconds", self.term_seconds),
            ("bandwidth", self.bandwidth),
            ("preparing_share", self.preparing_share),
            ("storing_share", self.storing_share),
            ("stored_one_by_one", self.stored_one_by_one),
            ("stored_in_lines", self.stored_in_lines),
            ("fp32_rate", self.fp32_rate),
            ("tf32_rate", self.tf32_rate),
            ("fp64_rate", self.fp64_rate),
        ]
    }
}

/// The constants of a kernel on a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct KernelConstants {
    /// The share that a multiprocessor full of blocks reaches: for products of matrices of the peak rate of the units that the scheme
    /// uses, for those with vectors of the memory's bandwidth. More than 1 where the peak is better than [`Machine`] has it.
    pub share_of_peak: f64,
    /// What a block costs apart from its steps, in seconds: filling its pipeline and storing its results.
    pub block_seconds: f64,
    /// How many times as long its steps take where lines of A and B begin anywhere, not at multiples of 16 bytes.
    pub unaligned: f64,
}

/// What the model knows of a GPU.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Constants {
    /// Of the whole GPU.
    pub machine: Machine,
    /// Of kernels by their names. One that is not here has those that are built in with it.
    pub kernels: BTreeMap<String, KernelConstants>,
}

impl Constants {
    /// What is known of GPUs that nobody has measured: see [`Machine::built_in`].
    pub fn built_in(compute_capability: Option<(u32, u32)>, multiprocessors: u32) -> Self {
        Self { machine: Machine::built_in(compute_capability, multiprocessors), kernels: BTreeMap::new() }
    }

    /// The first number that no GPU and no kernel can have, by its name.
    fn impossible(&self) -> Option<(String, f64)> {
        let of_machine = self.machine.named().map(|(name, value)| (format!("machine.{name}"), value));
        let of_kernels = self.kernels.iter().flat_map(|(kernel, constants)| {
            let KernelConstants { share_of_peak, block_seconds, unaligned } = *constants;
            [("share_of_peak", share_of_peak), ("block_seconds", block_seconds), ("unaligned", unaligned)]
                .map(|(name, value)| (format!("kernels.{kernel}.{name}"), value))
        });
        of_machine.into_iter().chain(of_kernels).find(|(_, value)| !(value.is_finite() && *value > 0.0))
    }
}

/// What constants were measured on: they hold for nothing else.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MeasuredOn {
    /// The name of the GPU, such as `NVIDIA H200`.
    pub gpu: String,
    /// Its compute capability, as (major, minor).
    pub compute_capability: (u32, u32),
    /// Its streaming multiprocessors: parts of one GPU can have the name of the whole.
    pub multiprocessors: u32,
    /// The digest of the sources of the kernels.
    pub kernels_digest: String,
}

/// Constants that were measured, as they are stored.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MeasuredConstants {
    /// What a file of constants says it is.
    kind: String,
    /// The version of the format.
    schema: u32,
    /// What they were measured on.
    #[serde(flatten)]
    pub on: MeasuredOn,
    /// The release of the GPU's driver, and the CUDA version that it supports.
    pub driver: String,
    /// The version of this crate.
    pub version: String,
    /// The commit that the program was built from; none outside a repository.
    pub commit: Option<String>,
    /// When the measurement began, in UTC (RFC 3339).
    pub date: String,
    /// The constants.
    #[serde(flatten)]
    pub constants: Constants,
    /// The file that they are from.
    #[serde(skip)]
    pub path: Option<PathBuf>,
}

/// Why constants are not used.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ConstantsFault {
    /// What should be a file of constants is not JSON, or lacks something.
    #[error("it is no file of constants: {0}")]
    Json(String),
    /// The file is something else.
    #[error("it says that it is `{0}`, and a file of constants says `{KIND}`")]
    Kind(String),
    /// It has another format.
    #[error("its format is version {0}, and this program reads version {SCHEMA}: measure again with `tilewright tune`")]
    Schema(u32),
    /// A number that no GPU has.
    #[error("{name} is {value}, and has to be a positive number: measure again with `tilewright tune`")]
    Number {
        /// Which one.
        name: String,
        /// Its value.
        value: String,
    },
    /// They are of another GPU.
    #[error("they were measured on {measured}, and this is {device}: measure this one with `tilewright tune`")]
    OtherGpu {
        /// The GPU that they are of.
        measured: String,
        /// The GPU that they were to be used for.
        device: String,
    },
    /// They are of other kernels.
    #[error(
        "they are of kernels whose sources have the digest {}…, and those of this program have {}…: measure again with \
         `tilewright tune`",
        start(measured),
        start(kernels)
    )]
    OtherKernels {
        /// The digest of the kernels that they are of.
        measured: String,
        /// The digest of this program's.
        kernels: String,
    },
    /// The file cannot be read.
    #[error("{0}")]
    File(String),
}

/// As much of a digest as tells it from another one.
fn start(digest: &str) -> String {
    digest.chars().take(12).collect()
}

impl MeasuredOn {
    /// The GPU in words.
    fn words(&self) -> String {
        let (major, minor) = self.compute_capability;
        format!("{} (compute capability {major}.{minor}, {} multiprocessors)", self.gpu, self.multiprocessors)
    }
}

impl MeasuredConstants {
    /// Constants that were measured by this program, of this `commit`, from this moment (`date`) on.
    pub fn new(on: MeasuredOn, driver: String, commit: Option<String>, date: String, constants: Constants) -> Self {
        let (kind, version) = (KIND.to_owned(), env!("CARGO_PKG_VERSION").to_owned());
        Self { kind, schema: SCHEMA, on, driver, version, commit, date, constants, path: None }
    }

    /// Reads constants.
    ///
    /// # Errors
    /// What is wrong with the text: [`ConstantsFault::Json`], [`Kind`](ConstantsFault::Kind), [`Schema`](ConstantsFault::Schema) or
    /// [`Number`](ConstantsFault::Number).
    pub fn parse(text: &str) -> Result<Self, ConstantsFault> {
        #[derive(Deserialize)]
        struct Head {
            kind: String,
            schema: u32,
        }
        let bad = |error: serde_json::Error| ConstantsFault::Json(error.to_string());
        let Head { kind, schema } = serde_json::from_str(text).map_err(bad)?;
        if kind != KIND {
            return Err(ConstantsFault::Kind(kind));
        }
        if schema != SCHEMA {
            return Err(ConstantsFault::Schema(schema));
        }
        let measured: Self = serde_json::from_str(text).map_err(bad)?;
        match measured.constants.impossible() {
            Some((name, value)) => Err(ConstantsFault::Number { name, value: value.to_string() }),
            None => Ok(measured),
        }
    }

    /// Whether they hold for a GPU with these kernels.
    ///
    /// # Errors
    /// [`ConstantsFault::OtherGpu`] and [`ConstantsFault::OtherKernels`].
    pub fn check(&self, here: &MeasuredOn) -> Result<(), ConstantsFault> {
        let (measured, device) = (self.on.words(), here.words());
        if measured != device {
            return Err(ConstantsFault::OtherGpu { measured, device });
        }
        if self.on.kernels_digest != here.kernels_digest {
            let (measured, kernels) = (self.on.kernels_digest.clone(), here.kernels_digest.clone());
            return Err(ConstantsFault::OtherKernels { measured, kernels });
        }
        Ok(())
    }

    /// Where they are from, for explanations.
    pub fn source(&self) -> String {
        let file = self.path.as_ref().map(|path| format!(", {}", path.display())).unwrap_or_default();
        format!("measured on this GPU, {}{file}", self.date)
    }
}

/// Which constants a plan goes by where the model chooses.
#[derive(Clone, Debug, Default)]
pub enum ConstantsChoice {
    /// Those that are stored for the GPU, which a [`Device`](crate::Device) has read when it was opened. Where there are none, or no
    /// device, those that are built in.
    #[default]
    Stored,
    /// Those that are built in.
    BuiltIn,
    /// These, which have to be of the GPU.
    This(Arc<MeasuredConstants>),
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured() -> MeasuredConstants {
        let on = MeasuredOn {
            gpu: "NVIDIA L4".to_owned(),
            compute_capability: (8, 9),
            multiprocessors: 58,
            kernels_digest: "0123456789abcdef".to_owned(),
        };
        let kernel = KernelConstants { share_of_peak: 0.5, block_seconds: 2e-6, unaligned: 1.1 };
        let constants = Constants {
            kernels: BTreeMap::from([("gemm_mma_nn_tf32".to_owned(), kernel)]),
            ..Constants::built_in(Some(on.compute_capability), on.multiprocessors)
        };
        let date = "2026-11-24T10:00:00Z".to_owned();
        MeasuredConstants::new(on, "580.1, CUDA 13.0".to_owned(), None, date, constants)
    }

    #[test]
    fn they_come_back_as_they_were() {
        let text = serde_json::to_string_pretty(&measured()).unwrap();
        assert_eq!(MeasuredConstants::parse(&text).unwrap(), measured(), "{text}");
    }

    #[test]
    fn what_is_no_file_of_constants_is_refused_and_why() {
        let text = serde_json::to_string(&measured()).unwrap();
        let fault = |text: &str| MeasuredConstants::parse(text).unwrap_err().to_string();
        for (text, says) in [
            ("".to_owned(), "it is no file of constants: EOF"),
            (r#"{"schema": 1}"#.to_owned(), "missing field `kind`"),
            (text.replace(KIND, "a table"), "`a table`"),
            (text.replace("\"schema\":2", "\"schema\":7"), "version 7, and this program reads version 2"),
            (text.replace("\"unaligned\":1.1", "\"unaligned\":-1.0"), "kernels.gemm_mma_nn_tf32.unaligned is -1"),
            (text.replace("\"unaligned\":1.1", "\"unaligned\":0.0"), "has to be a positive number"),
            (text.replace("\"launch_seconds\":", "\"launch_seconds\":-"), "machine.launch_seconds is -0.00000"),
            (text.replace("\"bandwidth\"", "\"bandwith\""), "missing field `bandwidth`"),
        ] {
            assert!(fault(&text).contains(says), "{}: not {says}", fault(&text));
        }
    }

    #[test]
    fn they_hold_for_one_gpu_and_its_kernels() {
        let measured = measured();
        assert_eq!(measured.check(&measured.on), Ok(()));
        let on = || measured.on.clone();
        for other in [
            MeasuredOn { gpu: "NVIDIA L40".to_owned(), ..on() },
            MeasuredOn { multiprocessors: 57, ..on() },
            MeasuredOn { compute_capability: (8, 6), ..on() },
        ] {
            let fault = measured.check(&other).unwrap_err().to_string();
            assert!(
                fault.contains(&other.words()) && fault.contains("NVIDIA L4 (compute capability 8.9, 58 m"),
                "{fault}"
            );
        }
        let fault = measured.check(&MeasuredOn { kernels_digest: "fedcba98765432100".to_owned(), ..on() }).unwrap_err();
        assert!(fault.to_string().contains("digest 0123456789ab…") && fault.to_string().contains("fedcba987654…"));
    }
}
