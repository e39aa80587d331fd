//! A stand-in for `libcuda.so.1` that keeps its "GPU memory" on the host. `main.rs` compiles it with rustc alone.
//!
//! - `FAKE_CUDA="cuInit=999,cuStreamSynchronize=715"` makes functions return these codes and do nothing else.
//! - `FAKE_CUDA_VERSION=13000` is the version it reports; it is 12040 otherwise.
//! - `FAKE_CUDA_CAPABILITY=8.0` is the compute capability of its GPUs; it is 9.0 otherwise. They have the limits of
//!   `gpu_facts::Limits`.
//! - A block of a kernel has the threads that its PTX says, or else at most 256.
//! - Functions that need a context return `CUDA_ERROR_INVALID_CONTEXT` on a thread where none is current.
//! - PTX with the line `// reject 218` is rejected with that code and a log.
//! - Machine code is an ELF header with PTX behind it ([`fake_kernels::CUBIN_MARK`]); what real assemblers write is refused with
//!   209. `FAKE_CUDA_CUBINS=222` refuses all with that code, as an old driver; `FAKE_CUDA_CUBINS=lazily,222` not before a kernel of
//!   it is asked for.
//! - The kernel `fill(address, len, value)` fills floats; `mix(factor, rounds, x, y)` makes each `y`, of 32 bits,
//!   `factor * y + x` as often; `faulty` makes every later call return 700, `planted_trap` 719;
//!   whoever waits for `planted_endless` waits for ever. Those that print and panic are in `fake_printing.rs`.
//! - It does everything at once, unless `fake_defer` tells it otherwise: see `fake_streams.rs`.
//! - `fake_*` are for the tests; those of `fake_faults.rs` make the n-th call fail, and count what is not given back.

mod fake_faults;
mod fake_graphs;
mod fake_kernels;
mod fake_memory;
mod fake_printing;
mod fake_streams;
// The layout of what kernels print, which the runtime reads.
#[path = "../../../cuda-std/src/print_record.rs"]
mod print_record;

use std::cell::Cell;
use std::ffi::{c_char, c_int, c_uint};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};

use gpu_facts::{ComputeCapability, Limits};

use fake_faults::{Kind, called, given_back, made, new_handle};
use fake_memory::TOTAL_MEMORY;
use fake_streams::LAST_STREAM;

const SUCCESS: u32 = 0;
/// As many as an H200 has.
const MULTIPROCESSORS: u32 = 132;
const INVALID_VALUE: u32 = 1;
const INVALID_DEVICE: u32 = 101;
const INVALID_CONTEXT: u32 = 201;
const INVALID_HANDLE: u32 = 400;
const NOT_FOUND: u32 = 500;
const ILLEGAL_ADDRESS: u32 = 700;
const LAUNCH_FAILED: u32 = 719;

static LOST: AtomicU32 = AtomicU32::new(SUCCESS);
/// Whether a kernel runs that never ends.
pub(crate) static ENDLESS: AtomicBool = AtomicBool::new(false);

thread_local! {
    static CURRENT_CONTEXT: Cell<usize> = const { Cell::new(0) };
    /// Global: no thread may do what would disturb a capture.
    static CAPTURE_MODE: Cell<c_uint> = const { Cell::new(0) };
}

/// The code that a function is to return: see [`called`]; or the one that a lost context returns.
fn prescribed(function: &'static str) -> u32 {
    match called(function) {
        SUCCESS => LOST.load(SeqCst),
        code => code,
    }
}

fn prescribed_in_context(function: &'static str) -> u32 {
    match called(function) {
        SUCCESS if CURRENT_CONTEXT.get() == 0 => INVALID_CONTEXT,
        SUCCESS => LOST.load(SeqCst),
        code => code,
    }
}

macro_rules! check {
    ($code:expr) => {
        match $code {
            SUCCESS => {}
            code => return code,
        }
    };
}
pub(crate) use check;

#[unsafe(no_mangle)]
extern "C" fn fake_capture_mode() -> c_uint {
    CAPTURE_MODE.get()
}

#[unsafe(no_mangle)]
extern "C" fn fake_current_context() -> usize {
    CURRENT_CONTEXT.get()
}

#[unsafe(no_mangle)]
extern "C" fn cuGetErrorName(code: u32, text: *mut *const c_char) -> u32 {
    let name = match code {
        2 => c"CUDA_ERROR_OUT_OF_MEMORY",
        226 => c"CUDA_ERROR_CONTAINED",
        700 => c"CUDA_ERROR_ILLEGAL_ADDRESS",
        _ => return INVALID_VALUE,
    };
    unsafe { *text = name.as_ptr() };
    SUCCESS
}

#[unsafe(no_mangle)]
extern "C" fn cuGetErrorString(code: u32, text: *mut *const c_char) -> u32 {
    let description = match code {
        2 => c"out of memory",
        226 => c"Invalid access of peer GPU memory over nvlink or a hardware error",
        700 => c"an illegal memory access was encountered",
        _ => return INVALID_VALUE,
    };
    unsafe { *text = description.as_ptr() };
    SUCCESS
}

#[unsafe(no_mangle)]
extern "C" fn cuDriverGetVersion(version: *mut c_int) -> u32 {
    check!(prescribed("cuDriverGetVersion"));
    let reported = std::env::var("FAKE_CUDA_VERSION").map_or(12040, |version| version.parse().unwrap());
    unsafe { *version = reported };
    SUCCESS
}

#[unsafe(no_mangle)]
extern "C" fn cuInit(_flags: c_uint) -> u32 {
    prescribed("cuInit")
}

#[unsafe(no_mangle)]
extern "C" fn cuDeviceGetCount(count: *mut c_int) -> u32 {
    check!(prescribed("cuDeviceGetCount"));
    unsafe { *count = 2 };
    SUCCESS
}

#[unsafe(no_mangle)]
extern "C" fn cuDeviceGet(device: *mut c_int, ordinal: c_int) -> u32 {
    check!(prescribed("cuDeviceGet"));
    if !(0..2).contains(&ordinal) {
        return INVALID_DEVICE;
    }
    unsafe { *device = ordinal };
    SUCCESS
}

#[unsafe(no_mangle)]
extern "C" fn cuDeviceGetName(name: *mut c_char, len: c_int, _device: c_int) -> u32 {
    check!(called("cuDeviceGetName"));
    copy_text("Fake GPU", name, len)
}

#[unsafe(no_mangle)]
extern "C" fn cuDeviceGetPCIBusId(id: *mut c_char, len: c_int, _device: c_int) -> u32 {
    check!(called("cuDeviceGetPCIBusId"));
    copy_text("0000:1b:00.0", id, len)
}

fn copy_text(text: &str, target: *mut c_char, len: c_int) -> u32 {
    assert!(text.len() < len as usize);
    unsafe {
        target.cast::<u8>().copy_from_nonoverlapping(text.as_ptr(), text.len());
        *target.add(text.len()) = 0;
    }
    SUCCESS
}

#[cfg(not(without_uuid))]
#[unsafe(no_mangle)]
extern "C" fn cuDeviceGetUuid(uuid: *mut [u8; 16], _device: c_int) -> u32 {
    check!(called("cuDeviceGetUuid"));
    unsafe { *uuid = [0x00, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88, 0x99, 0xaa, 0xbb, 0xcc, 0xdd, 0xee, 0xff] };
    SUCCESS
}

#[unsafe(no_mangle)]
extern "C" fn cuDeviceTotalMem_v2(bytes: *mut usize, _device: c_int) -> u32 {
    check!(called("cuDeviceTotalMem_v2"));
    unsafe { *bytes = TOTAL_MEMORY };
    SUCCESS
}

#[unsafe(no_mangle)]
extern "C" fn cuDeviceGetAttribute(value: *mut c_int, attribute: c_int, _device: c_int) -> u32 {
    check!(called("cuDeviceGetAttribute"));
    let (capability, limits) = (compute_capability(), limits());
    let answer = match attribute {
        1 => limits.threads_per_block,
        2..=4 => limits.block[attribute as usize - 2],
        5..=7 => limits.grid[attribute as usize - 5],
        8 => limits.static_shared_bytes,
        12 => limits.registers_per_block,
        16 => MULTIPROCESSORS,
        39 => limits.threads_per_multiprocessor,
        75 => capability.major,
        76 => capability.minor,
        81 => limits.shared_bytes_per_multiprocessor,
        97 => limits.shared_bytes,
        106 => limits.blocks_per_multiprocessor,
        111 => limits.reserved_shared_bytes,
        _ => 1000 + attribute as u32,
    };
    unsafe { *value = answer as c_int };
    SUCCESS
}

/// 9.0, unless the environment says otherwise, which is read once.
fn compute_capability() -> ComputeCapability {
    static CAPABILITY: OnceLock<ComputeCapability> = OnceLock::new();
    *CAPABILITY.get_or_init(|| {
        let text = std::env::var("FAKE_CUDA_CAPABILITY").unwrap_or_else(|_| "9.0".to_owned());
        let (major, minor) = text.split_once('.').unwrap();
        ComputeCapability::new(major.parse().unwrap(), minor.parse().unwrap())
    })
}

/// What the GPUs offer: those of a compute capability that the table does not have, what all do.
pub(crate) fn limits() -> Limits {
    Limits::of(compute_capability()).unwrap_or(Limits::of_every_gpu())
}

#[unsafe(no_mangle)]
extern "C" fn cuDevicePrimaryCtxRetain(context: *mut usize, device: c_int) -> u32 {
    check!(prescribed("cuDevicePrimaryCtxRetain"));
    made(Kind::Context);
    unsafe { *context = 100 + device as usize };
    SUCCESS
}

#[unsafe(no_mangle)]
extern "C" fn cuDevicePrimaryCtxRelease_v2(_device: c_int) -> u32 {
    check!(called("cuDevicePrimaryCtxRelease_v2"));
    given_back(Kind::Context);
    SUCCESS
}

#[unsafe(no_mangle)]
extern "C" fn cuCtxSetCurrent(context: usize) -> u32 {
    check!(called("cuCtxSetCurrent"));
    CURRENT_CONTEXT.set(context);
    SUCCESS
}

#[unsafe(no_mangle)]
extern "C" fn cuCtxGetCurrent(context: *mut usize) -> u32 {
    check!(called("cuCtxGetCurrent"));
    unsafe { *context = CURRENT_CONTEXT.get() };
    SUCCESS
}

#[unsafe(no_mangle)]
extern "C" fn cuCtxGetDevice(device: *mut c_int) -> u32 {
    check!(prescribed_in_context("cuCtxGetDevice"));
    // Contexts of other numbers are further ones of the first GPU.
    unsafe { *device = c_int::from(CURRENT_CONTEXT.get() == 101) };
    SUCCESS
}

/// Creates a stream or an event.
fn create(kind: Kind, handle: *mut usize) -> u32 {
    made(kind);
    unsafe { *handle = new_handle() };
    SUCCESS
}

/// What keeps a function from destroying something. A lost context does not: see [`destroyed`].
fn refusal_to_destroy(function: &'static str) -> u32 {
    match called(function) {
        SUCCESS if CURRENT_CONTEXT.get() == 0 => INVALID_CONTEXT,
        code => code,
    }
}

/// Something is no more. The code is still that of a lost context, if it is.
fn destroyed(kind: Kind) -> u32 {
    given_back(kind);
    LOST.load(SeqCst)
}

/// What the driver makes of this is its secret; this one writes down what it was given.
#[cfg(not(without_tensor_maps))]
#[unsafe(no_mangle)]
unsafe extern "C" fn cuTensorMapEncodeTiled(
    map: *mut [u64; 16],
    data_type: c_uint,
    rank: c_uint,
    address: u64,
    extents: *const u64,
    strides: *const u64,
    tile: *const c_uint,
    element_strides: *const c_uint,
    interleave: c_uint,
    swizzle: c_uint,
    l2_promotion: c_uint,
    fill: c_uint,
) -> u32 {
    check!(prescribed_in_context("cuTensorMapEncodeTiled"));
    assert!(map as usize % 64 == 0 && (1..=5).contains(&rank) && interleave == 0 && fill == 0);
    let rank = rank as usize;
    unsafe {
        let mut words = vec![data_type.into(), rank as u64, address, swizzle.into(), l2_promotion.into()];
        words.extend_from_slice(std::slice::from_raw_parts(extents, rank));
        words.extend_from_slice(std::slice::from_raw_parts(strides, rank - 1));
        words.extend(std::slice::from_raw_parts(tile, rank).iter().map(|&extent| u64::from(extent)));
        assert!(std::slice::from_raw_parts(element_strides, rank).iter().all(|&stride| stride == 1));
        words.resize(16, 0);
        *map = words.try_into().unwrap();
    }
    SUCCESS
}

#[cfg(not(without_tensor_maps))]
#[unsafe(no_mangle)]
unsafe extern "C" fn cuTensorMapEncodeIm2col(
    map: *mut [u64; 16],
    data_type: c_uint,
    rank: c_uint,
    address: u64,
    extents: *const u64,
    strides: *const u64,
    lower: *const [i32; 2],
    upper: *const [i32; 2],
    channels: c_uint,
    pixels: c_uint,
    element_strides: *const [c_uint; 4],
    interleave: c_uint,
    swizzle: c_uint,
    l2_promotion: c_uint,
    fill: c_uint,
) -> u32 {
    check!(prescribed_in_context("cuTensorMapEncodeIm2col"));
    assert!(map as usize % 64 == 0 && rank == 4 && interleave == 0 && fill == 0);
    // As many as fit: numbers that are small share a word.
    let both = |[one, other]: [i32; 2]| u64::from(one as u8) << 8 | u64::from(other as u8);
    unsafe {
        let [one, across, down, last] = *element_strides;
        assert!(one == 1 && last == 1);
        let mut words = vec![data_type.into(), address, u64::from(swizzle) << 8 | u64::from(l2_promotion)];
        words.extend_from_slice(std::slice::from_raw_parts(extents, 4));
        words.extend_from_slice(std::slice::from_raw_parts(strides, 3));
        words.extend([both(*lower), both(*upper), channels.into(), pixels.into(), across.into(), down.into()]);
        *map = words.try_into().unwrap();
    }
    SUCCESS
}
