//! The fake driver's memory: it lies on the host.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::collections::HashMap;
use std::ffi::{c_int, c_uint, c_void};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use crate::fake_faults::{Kind, end_handle, is_handle, made};
use crate::fake_streams::{LAST_STREAM, check_unused, enqueue};
use crate::{INVALID_VALUE, SUCCESS, check, create, destroyed, prescribed, prescribed_in_context, refusal_to_destroy};

const OUT_OF_MEMORY: u32 = 2;
/// What addresses are multiples of, as the driver promises.
const ALIGNMENT: usize = 256;

/// "The GPU's" memory: 8 GiB, of which 1 GiB is always in use.
pub(crate) const TOTAL_MEMORY: usize = 8 << 30;
const USED_MEMORY: usize = 1 << 30;
/// Beyond this size, copies and fills touch the first and last byte only.
const LARGE: usize = 1 << 30;

static MEMORY: Mutex<Option<HashMap<u64, usize>>> = Mutex::new(None);
/// The page-locked memory of the host.
static HOST_MEMORY: Mutex<Option<HashMap<u64, usize>>> = Mutex::new(None);
static LAST_COPY_BYTES: AtomicUsize = AtomicUsize::new(0);
/// Copies from or to the host that nobody has waited for yet.
pub(crate) static COPIES_GOING_ON: AtomicUsize = AtomicUsize::new(0);

fn with_memory<R>(action: impl FnOnce(&mut HashMap<u64, usize>) -> R) -> R {
    action(MEMORY.lock().unwrap().get_or_insert_with(HashMap::new))
}

/// Frees all memory: that which nobody has given back too.
pub(crate) fn free_everything() {
    with_memory(|memory| memory.drain().for_each(|(address, bytes)| release(address, bytes)));
    with_host_memory(|memory| memory.drain().for_each(|(address, bytes)| release(address, bytes)));
}

fn with_host_memory<R>(action: impl FnOnce(&mut HashMap<u64, usize>) -> R) -> R {
    action(HOST_MEMORY.lock().unwrap().get_or_insert_with(HashMap::new))
}

/// Page-locked memory, with anything in it.
pub(crate) fn allocate_on_host(bytes: usize) -> *mut c_void {
    let block = unsafe { alloc_zeroed(Layout::from_size_align(bytes, ALIGNMENT).unwrap()) };
    assert!(!block.is_null());
    unsafe { block.write_bytes(0xAB, bytes) };
    with_host_memory(|memory| memory.insert(block as u64, bytes));
    block.cast()
}

pub(crate) fn free_on_host(pointer: *mut c_void) {
    let bytes = with_host_memory(|memory| memory.remove(&(pointer as u64))).expect("freed what was not allocated");
    release(pointer as u64, bytes);
}

fn release(address: u64, bytes: usize) {
    check_unused(address..address + bytes as u64);
    // SAFETY: it was allocated like this, and is in the map no more.
    unsafe { dealloc(address as *mut u8, Layout::from_size_align(bytes, ALIGNMENT).unwrap()) };
}

#[unsafe(no_mangle)]
extern "C" fn fake_last_copy_bytes() -> usize {
    LAST_COPY_BYTES.load(SeqCst)
}

#[unsafe(no_mangle)]
extern "C" fn fake_copies_going_on() -> usize {
    COPIES_GOING_ON.load(SeqCst)
}

/// The device is the GPU of number 3, for memory that has been allocated, and no other attribute is asked for.
#[unsafe(no_mangle)]
extern "C" fn cuPointerGetAttribute(data: *mut c_int, attribute: c_uint, address: u64) -> u32 {
    check!(prescribed("cuPointerGetAttribute"));
    assert_eq!(attribute, 9);
    let is_known = with_memory(|memory| {
        u32::from(memory.iter().any(|(&first, &bytes)| (first..first + bytes as u64).contains(&address)))
    });
    if is_known == 0 {
        return INVALID_VALUE;
    }
    unsafe { *data = 3 };
    SUCCESS
}

#[unsafe(no_mangle)]
extern "C" fn cuMemGetInfo_v2(free: *mut usize, total: *mut usize) -> u32 {
    check!(prescribed_in_context("cuMemGetInfo_v2"));
    let used: usize = with_memory(|memory| memory.values().sum());
    unsafe {
        *free = TOTAL_MEMORY - USED_MEMORY - used;
        *total = TOTAL_MEMORY;
    }
    SUCCESS
}

#[unsafe(no_mangle)]
extern "C" fn cuMemAlloc_v2(address: *mut u64, bytes: usize) -> u32 {
    check!(prescribed_in_context("cuMemAlloc_v2"));
    allocate(address, bytes)
}

fn allocate(address: *mut u64, bytes: usize) -> u32 {
    with_memory(|memory| {
        if bytes == 0 {
            return INVALID_VALUE;
        }
        let used: usize = memory.values().sum();
        if bytes > TOTAL_MEMORY - USED_MEMORY - used {
            return OUT_OF_MEMORY;
        }
        // Zeroed pages are not backed by memory before they are touched.
        let block = unsafe { alloc_zeroed(Layout::from_size_align(bytes, ALIGNMENT).unwrap()) };
        assert!(!block.is_null());
        memory.insert(block as u64, bytes);
        made(Kind::Allocation);
        unsafe { *address = block as u64 };
        SUCCESS
    })
}

/// A pool is a number, and has no memory of its own.
#[unsafe(no_mangle)]
extern "C" fn cuMemPoolCreate(pool: *mut usize, properties: *const [c_int; 4]) -> u32 {
    check!(prescribed_in_context("cuMemPoolCreate"));
    // Pinned memory, for no other process, of a device.
    if unsafe { *properties }[..3] != [1, 0, 1] {
        return INVALID_VALUE;
    }
    create(Kind::Pool, pool)
}

#[unsafe(no_mangle)]
extern "C" fn cuMemPoolSetAttribute(pool: usize, attribute: c_uint, value: *const u64) -> u32 {
    check!(prescribed_in_context("cuMemPoolSetAttribute"));
    // What a pool keeps.
    if !is_handle(pool) || attribute != 4 || value.is_null() { INVALID_VALUE } else { SUCCESS }
}

#[unsafe(no_mangle)]
extern "C" fn cuMemPoolDestroy(pool: usize) -> u32 {
    check!(refusal_to_destroy("cuMemPoolDestroy"));
    end_handle(pool);
    destroyed(Kind::Pool)
}

/// Memory is there at once, and what is done before on the stream cannot see it.
#[unsafe(no_mangle)]
extern "C" fn cuMemAllocFromPoolAsync(address: *mut u64, bytes: usize, pool: usize, stream: usize) -> u32 {
    LAST_STREAM.store(stream, SeqCst);
    check!(prescribed_in_context("cuMemAllocFromPoolAsync"));
    if !is_handle(pool) { INVALID_VALUE } else { allocate(address, bytes) }
}

#[unsafe(no_mangle)]
extern "C" fn cuMemFreeAsync(address: u64, stream: usize) -> u32 {
    LAST_STREAM.store(stream, SeqCst);
    check!(refusal_to_destroy("cuMemFreeAsync"));
    enqueue(
        stream,
        Vec::new(),
        Box::new(move || {
            let bytes = with_memory(|memory| memory.remove(&address)).expect("freed what was not allocated");
            // SAFETY: as in `release`, which would look at what is on the streams while one of these does this.
            unsafe { dealloc(address as *mut u8, Layout::from_size_align(bytes, ALIGNMENT).unwrap()) };
        }),
    );
    destroyed(Kind::Allocation)
}

#[unsafe(no_mangle)]
extern "C" fn cuMemFree_v2(address: u64) -> u32 {
    check!(refusal_to_destroy("cuMemFree_v2"));
    let bytes = with_memory(|memory| memory.remove(&address)).expect("freed what was not allocated");
    release(address, bytes);
    destroyed(Kind::Allocation)
}

/// Copies; what is large is copied at its two ends only.
fn copy(target: u64, source: u64, bytes: usize, stream: usize) -> u32 {
    LAST_COPY_BYTES.store(bytes, SeqCst);
    COPIES_GOING_ON.fetch_add(1, SeqCst);
    let uses = vec![target..target + bytes as u64, source..source + bytes as u64];
    let copy = move || {
        let (target, source) = (target as *mut u8, source as *const u8);
        if bytes < LARGE {
            unsafe { target.copy_from_nonoverlapping(source, bytes) };
        } else {
            unsafe {
                *target = *source;
                *target.add(bytes - 1) = *source.add(bytes - 1);
            }
        }
    };
    enqueue(stream, uses, Box::new(copy));
    SUCCESS
}

#[unsafe(no_mangle)]
extern "C" fn cuMemcpyHtoDAsync_v2(target: u64, source: *const c_void, bytes: usize, stream: usize) -> u32 {
    check!(prescribed_in_context("cuMemcpyHtoDAsync_v2"));
    copy(target, source as u64, bytes, stream)
}

#[unsafe(no_mangle)]
extern "C" fn cuMemcpyDtoHAsync_v2(target: *mut c_void, source: u64, bytes: usize, stream: usize) -> u32 {
    check!(prescribed_in_context("cuMemcpyDtoHAsync_v2"));
    copy(target as u64, source, bytes, stream)
}

#[unsafe(no_mangle)]
extern "C" fn cuMemcpyDtoDAsync_v2(target: u64, source: u64, bytes: usize, stream: usize) -> u32 {
    check!(prescribed_in_context("cuMemcpyDtoDAsync_v2"));
    copy(target, source, bytes, stream)
}

#[unsafe(no_mangle)]
extern "C" fn cuMemsetD8Async(target: u64, value: u8, bytes: usize, stream: usize) -> u32 {
    check!(prescribed_in_context("cuMemsetD8Async"));
    let fill = move || {
        let target = target as *mut u8;
        if bytes < LARGE {
            unsafe { target.write_bytes(value, bytes) };
        } else {
            unsafe {
                *target = value;
                *target.add(bytes - 1) = value;
            }
        }
    };
    enqueue(stream, vec![target..target + bytes as u64], Box::new(fill));
    SUCCESS
}
