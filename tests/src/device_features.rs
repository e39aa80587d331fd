//! The kernels of `fixtures/device-features`, what they are run with, and what has to come out.

use cuda_std::executor::{Executor, LaunchError};
use cuda_std::{Dim3, GlobalSlice, GlobalSliceMut, Kernel};
use kernels::{
    LAYOUTS, LOWER_LANES, THREADS, X_LEN, Y_LEN, collectives, lane_numbers, launch_sized_memory, not_inlined,
    parameter_layouts, reverse_in_three_dimensions, shuffles_of_4_bytes, shuffles_of_8_bytes, vector_load, votes,
    warp_barrier,
};

// The source itself, because a crate with a workspace of its own cannot be a dependency.
#[path = "../fixtures/device-features/src/kernels.rs"]
pub mod kernels;

include!(concat!(env!("OUT_DIR"), "/device_features.rs"));

/// What a slot holds that no thread has written to.
const UNTOUCHED: u64 = 0x5EA1_5EA1_5EA1_5EA1;

/// A kernel of `fixtures/device-features`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "named after the kernels")]
pub enum Feature {
    VectorLoad,
    ReverseInThreeDimensions,
    LaunchSizedMemory,
    ShufflesOf4Bytes,
    ShufflesOf8Bytes,
    Votes,
    Collectives,
    WarpBarrier,
    LaneNumbers,
    NotInlined,
    ParameterLayouts,
}

/// Something that runs kernels.
pub trait Launcher {
    /// What can go wrong.
    type Error;

    /// Runs a kernel on `blocks` blocks along x.
    ///
    /// # Errors
    /// If it cannot be launched, or fails.
    ///
    /// # Safety
    /// All views among the kernel's arguments are of memory that it can access until it has finished, and views that it may
    /// write to overlap no other.
    unsafe fn launch<K: Kernel>(&self, kernel: K, blocks: u32) -> Result<(), Self::Error>;
}

impl Launcher for Executor {
    type Error = LaunchError;

    unsafe fn launch<K: Kernel>(&self, kernel: K, blocks: u32) -> Result<(), LaunchError> {
        // SAFETY: the caller's promise.
        unsafe { Executor::launch(self, kernel, blocks.into()) }
    }
}

/// The argument `x` of the kernels, where they can load four elements at once.
#[derive(Clone, Debug)]
#[repr(C, align(16))]
pub struct X(pub [f32; X_LEN]);

impl X {
    /// From −19.75 in steps of a half: negative in the first warp, of both signs in the second, then positive.
    #[allow(clippy::new_without_default, reason = "not an empty one")]
    pub fn new() -> Self {
        Self(std::array::from_fn(|i| i as f32 * 0.5 - 19.75))
    }
}

/// The argument `y` of the kernels, before any of them has run.
pub fn untouched() -> Vec<u64> {
    vec![UNTOUCHED; Y_LEN]
}

impl Feature {
    /// All of them.
    pub const ALL: [Self; 11] = [
        Self::VectorLoad,
        Self::ReverseInThreeDimensions,
        Self::LaunchSizedMemory,
        Self::ShufflesOf4Bytes,
        Self::ShufflesOf8Bytes,
        Self::Votes,
        Self::Collectives,
        Self::WarpBarrier,
        Self::LaneNumbers,
        Self::NotInlined,
        Self::ParameterLayouts,
    ];

    /// The name of the entry point, and the shape of a block.
    pub fn name_and_block(self) -> (&'static str, Dim3) {
        fn of<K: Kernel>() -> (&'static str, Dim3) {
            (K::NAME, K::FACTS.block.into())
        }
        match self {
            Self::VectorLoad => of::<vector_load<'_>>(),
            Self::ReverseInThreeDimensions => of::<reverse_in_three_dimensions<'_>>(),
            Self::LaunchSizedMemory => of::<launch_sized_memory<'_>>(),
            Self::ShufflesOf4Bytes => of::<shuffles_of_4_bytes<'_>>(),
            Self::ShufflesOf8Bytes => of::<shuffles_of_8_bytes<'_>>(),
            Self::Votes => of::<votes<'_>>(),
            Self::Collectives => of::<collectives<'_>>(),
            Self::WarpBarrier => of::<warp_barrier<'_>>(),
            Self::LaneNumbers => of::<lane_numbers<'_>>(),
            Self::NotInlined => of::<not_inlined<'_>>(),
            Self::ParameterLayouts => of::<parameter_layouts<'_>>(),
        }
    }

    /// Runs the kernel, on a block more than it needs.
    ///
    /// # Errors
    /// What the launch reports.
    ///
    /// # Safety
    /// The views are of memory that `launcher`'s kernels can access until they have finished, and do not overlap.
    pub unsafe fn launch<L: Launcher>(
        self,
        launcher: &L,
        x: GlobalSlice<'_, f32>,
        y: GlobalSliceMut<'_, u64>,
    ) -> Result<(), L::Error> {
        let (_, block) = self.name_and_block();
        let blocks = THREADS as u32 / block.volume() as u32 + 1;
        // SAFETY: the caller's promise.
        unsafe {
            match self {
                Self::VectorLoad => launcher.launch(vector_load { x, y }, blocks),
                Self::ReverseInThreeDimensions => launcher.launch(reverse_in_three_dimensions { x, y }, blocks),
                Self::LaunchSizedMemory => launcher.launch(launch_sized_memory { x, y }, blocks),
                Self::ShufflesOf4Bytes => launcher.launch(shuffles_of_4_bytes { x, y }, blocks),
                Self::ShufflesOf8Bytes => launcher.launch(shuffles_of_8_bytes { x, y }, blocks),
                Self::Votes => launcher.launch(votes { x, y }, blocks),
                Self::Collectives => launcher.launch(collectives { x, y }, blocks),
                Self::WarpBarrier => launcher.launch(warp_barrier { x, y }, blocks),
                Self::LaneNumbers => launcher.launch(lane_numbers { x, y }, blocks),
                Self::NotInlined => launcher.launch(not_inlined { x, y }, blocks),
                Self::ParameterLayouts => launcher.launch(parameter_layouts { x, y }, blocks),
            }
        }
    }

    /// What is in `y` when the kernel has run.
    pub fn expected(self, x: &X) -> Vec<u64> {
        let X(x) = x;
        let bits = |i: usize| u64::from(x[i].to_bits());
        let mut y = untouched();
        for i in 0..THREADS {
            let (lane, first) = (i % 32, i / 32 * 32);
            let slots = match self {
                Self::VectorLoad => (4 * i..4 * i + 4).map(bits).collect(),
                Self::ReverseInThreeDimensions => vec![bits(i / 64 * 64 + 63 - i % 64)],
                Self::LaunchSizedMemory => {
                    let block = i / 64 * 64;
                    vec![bits(block + (i + 1) % 64), (block + 63 - i % 64) as u64]
                }
                Self::ShufflesOf4Bytes => shuffled(lane, |lane| bits(first + lane)),
                Self::ShufflesOf8Bytes => shuffled(lane, |lane| (f64::from(x[first + lane]) * 1.1).to_bits()),
                Self::Votes => {
                    let ballot = (0..32).filter(|lane| x[first + lane] > 0.0).fold(0u64, |mask, lane| mask | 1 << lane);
                    let lower = (1 << LOWER_LANES) - 1;
                    let any_above_is_not = ballot | lower != 0xFFFF_FFFF;
                    let part = if lane < LOWER_LANES as usize { ballot & lower } else { any_above_is_not.into() };
                    vec![(ballot == 0xFFFF_FFFF).into(), (ballot != 0).into(), ballot, part]
                }
                Self::Collectives => collected(x, i),
                Self::WarpBarrier => vec![bits(first + (lane + 1) % 32)],
                Self::LaneNumbers => vec![(i % 48 % 32) as u64, bits(i)],
                Self::NotInlined => {
                    let (block, next) = (i / 64 * 64, (i + 1) % 64);
                    let (opposite, own) = (x[block + 63 - next], x[block + next]);
                    [opposite - own, -opposite - own].map(|value| value.to_bits().into()).to_vec()
                }
                Self::ParameterLayouts => LAYOUTS.into_iter().chain([bits(i)]).collect(),
            };
            for (slot, value) in slots.into_iter().enumerate() {
                y[slot * THREADS + i] = value;
            }
        }
        y
    }
}

/// The slots of a lane after `shuffles`: 5 down in segments of 16 lanes, 3 up in segments of 8, the bits of 9 flipped, which
/// leads into another segment of 8, though not upwards, and lane 13 modulo 8 of each segment.
fn shuffled(lane: usize, value: impl Fn(usize) -> u64) -> Vec<u64> {
    let sources = [
        (lane % 16 + 5 < 16).then(|| lane + 5),
        (lane % 8 >= 3).then(|| lane - 3),
        (lane / 8 % 2 == 1).then_some(lane ^ 9),
        Some(lane / 8 * 8 + 5),
    ];
    sources.into_iter().flat_map(|source| [value(source.unwrap_or(lane)), source.is_some().into()]).collect()
}

/// The slots of a thread after [`collectives`].
fn collected(x: &[f32], i: usize) -> Vec<u64> {
    let bits = |i: usize| x[i].to_bits();
    let warp = || (i / 32 * 32..i / 32 * 32 + 32).map(bits);
    let same =
        (0..).zip(warp()).filter(|(_, other)| other >> 22 == bits(i) >> 22).fold(0, |all, (lane, _)| all | 1 << lane);
    let all_are = |shift: u32| warp().all(|other| other >> shift == bits(i) >> shift);
    let signed = || warp().map(u32::cast_signed);
    let block = &x[i / 96 * 96..][..96];
    let count = block.iter().filter(|x| **x > 0.0).count() as u32;
    let fold = |first, both: fn(u32, u32) -> u32| warp().fold(first, both);
    [
        (same, all_are(31).into()),
        (same, all_are(31).into()),
        (fold(0, u32::wrapping_add), fold(0, |all, x| all ^ x)),
        (fold(u32::MAX, u32::min), signed().fold(i32::MAX, i32::min).cast_unsigned()),
        (fold(0, u32::max), signed().fold(i32::MIN, i32::max).cast_unsigned()),
        (fold(u32::MAX, |all, x| all & x), fold(0, |all, x| all | x)),
        (count, u32::from(count == 96) << 1 | u32::from(count > 0)),
        (1, 0),
    ]
    .map(|(low, high): (u32, u32)| u64::from(high) << 32 | u64::from(low))
    .to_vec()
}
