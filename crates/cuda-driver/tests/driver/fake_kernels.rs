//! The fake driver's modules and kernels. What a kernel needs, it reads from the PTX, as the real one does; and what a GPU does
//! not offer, it refuses.

use std::cell::UnsafeCell;
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::ops::Range;
use std::sync::atomic::{AtomicI32, AtomicU32, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, OnceLock};

use gpu_facts::KernelFacts;

use crate::fake_faults::{Kind, made};
use crate::fake_printing::{fail, print};
use crate::fake_streams::enqueue;
use crate::print_record::{CHANNEL, Channel};
use crate::{
    ENDLESS, ILLEGAL_ADDRESS, INVALID_VALUE, LAST_STREAM, LAUNCH_FAILED, LOST, MULTIPROCESSORS, NOT_FOUND, SUCCESS,
    check, copy_text, destroyed, limits, prescribed_in_context, refusal_to_destroy,
};

/// How often functions were called that a program should call rarely.
static LOADED_MODULES: AtomicU32 = AtomicU32::new(0);
static SET_ATTRIBUTES: AtomicU32 = AtomicU32::new(0);
/// The launches that may begin while the kernel before them ends.
static DEPENDENT_LAUNCHES: AtomicU32 = AtomicU32::new(0);
/// The launches whose blocks all run at the same time.
static COOPERATIVE_LAUNCHES: AtomicU32 = AtomicU32::new(0);
/// The dynamic shared memory that the last function was allowed that more was asked for.
static DYNAMIC_SHARED_LIMIT: AtomicI32 = AtomicI32::new(48 * 1024);

/// The stack of each thread.
static STACK_BYTES: AtomicUsize = AtomicUsize::new(1024);

#[unsafe(no_mangle)]
extern "C" fn fake_dynamic_shared_limit() -> i32 {
    DYNAMIC_SHARED_LIMIT.load(SeqCst)
}

#[unsafe(no_mangle)]
extern "C" fn fake_loaded_modules() -> u32 {
    LOADED_MODULES.load(SeqCst)
}

#[unsafe(no_mangle)]
extern "C" fn fake_set_attributes() -> u32 {
    SET_ATTRIBUTES.load(SeqCst)
}

#[unsafe(no_mangle)]
extern "C" fn fake_dependent_launches() -> u32 {
    DEPENDENT_LAUNCHES.load(SeqCst)
}

#[unsafe(no_mangle)]
extern "C" fn fake_cooperative_launches() -> u32 {
    COOPERATIVE_LAUNCHES.load(SeqCst)
}

/// A kernel, as far as this driver knows it.
struct Function {
    /// Whether it waits for the kernels before it.
    waits: bool,
    action: Action,
    /// The block that the PTX requires, if it does.
    block: Option<[u32; 3]>,
    /// The most threads of a block.
    max_threads: u32,
    static_shared_bytes: u32,
    /// The blocks of a cluster, if the PTX says how many.
    cluster: Option<[u32; 3]>,
    /// What a launch may ask for.
    dynamic_shared_limit: AtomicU32,
    /// The module's, which stays as long as this.
    channel: *const Channel,
}

enum Action {
    Fill,
    Mix,
    Faulty,
    Trap,
    Endless,
    Prints,
    Panics { is_reported: bool },
    Nothing,
}

const NO_BINARY_FOR_GPU: u32 = 209;
const COOPERATIVE_LAUNCH_TOO_LARGE: u32 = 720;
const INVALID_CLUSTER_SIZE: u32 = 912;
const ELF: &[u8] = b"\x7fELF";
/// The length of a header.
const ELF_HEADER: usize = 64;
/// What the header of machine code for this driver ends with. Behind it is PTX that ends with a NUL.
const CUBIN_MARK: &[u8] = b"fake cubin";

/// The PTX in machine code, if it is for this driver.
unsafe fn text_of_cubin(image: *const c_char) -> Option<*const c_char> {
    let header = unsafe { std::slice::from_raw_parts(image.cast::<u8>(), ELF_HEADER) };
    header.ends_with(CUBIN_MARK).then(|| unsafe { image.add(ELF_HEADER) })
}

/// With which code machine code is refused, and when: `lazily`, or at once.
fn refuses_cubins() -> Option<(&'static str, u32)> {
    static REFUSES: OnceLock<String> = OnceLock::new();
    let refuses = REFUSES.get_or_init(|| std::env::var("FAKE_CUDA_CUBINS").unwrap_or_default());
    let (when, code) = refuses.split_once(',').unwrap_or(("", refuses));
    Some((when, code.parse().ok()?))
}

/// A block of a kernel whose PTX does not say how many threads it has.
const MAX_THREADS: u32 = 256;

/// The numbers between a word and the end of its line, such as those of `.reqntid 32, 8, 1`.
fn numbers(text: &str, word: &str) -> Option<Vec<u32>> {
    let (_, rest) = text.split_once(word)?;
    let line = rest.lines().next()?.split("//").next()?;
    line.split(',').map(|number| number.trim().parse().ok()).collect()
}

impl Function {
    /// Reads the kernel of this name.
    fn read(ptx: &str, name: &str, channel: *const Channel) -> Option<Self> {
        let start = ptx.find(&format!(".entry {name}("))?;
        let head = ptx[start..].split_once('{').map_or(&ptx[start..], |(head, _)| head);
        let extents = |word| {
            numbers(head, word).map(|mut extents| {
                extents.resize(3, 1);
                [extents[0], extents[1], extents[2]]
            })
        };
        let (block, cluster) = (extents(".reqntid"), extents(".reqnctapercluster"));
        // `.shared .align 4 .b8 TILE[2048];`: all of the module, because the kernels here come in modules of their own.
        let shared = ptx.lines().filter(|line| line.trim_start().starts_with(".shared "));
        let bytes = shared.filter_map(|line| line.split_once('[')?.1.split_once(']')?.0.parse::<u32>().ok());
        let action = match name {
            "fill" => Action::Fill,
            "mix" => Action::Mix,
            "faulty" => Action::Faulty,
            "planted_trap" => Action::Trap,
            "planted_endless" => Action::Endless,
            "prints" => Action::Prints,
            "panics" => Action::Panics { is_reported: true },
            "traps_in_the_middle" => Action::Panics { is_reported: false },
            _ => Action::Nothing,
        };
        let static_shared_bytes = bytes.sum();
        let dynamic_shared_limit = limits().static_shared_bytes.saturating_sub(static_shared_bytes);
        let waits =
            ptx[start..].lines().take_while(|line| *line != "}").any(|line| line.contains("griddepcontrol.wait;"));
        let dynamic_shared_limit = dynamic_shared_limit.into();
        let bound = numbers(head, ".maxntid").map_or(MAX_THREADS, |extents| extents.iter().product());
        let max_threads = block.map_or(bound, |block| block.iter().product());
        Some(Self { waits, action, block, max_threads, static_shared_bytes, cluster, dynamic_shared_limit, channel })
    }

    /// The blocks that a multiprocessor runs at a time.
    fn resident_blocks(&self, threads: u32, dynamic_shared_bytes: u32) -> u32 {
        let (block, static_shared_bytes) = ([threads, 1, 1], self.static_shared_bytes);
        limits().resident_blocks(&KernelFacts {
            block,
            static_shared_bytes,
            dynamic_shared_bytes,
            ..KernelFacts::new("")
        })
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuModuleLoadDataEx(
    module: *mut usize,
    image: *const c_char,
    option_count: c_uint,
    options: *const c_uint,
    values: *const *mut c_void,
) -> u32 {
    check!(prescribed_in_context("cuModuleLoadDataEx"));
    let is_cubin = unsafe { CStr::from_ptr(image) }.to_bytes().starts_with(ELF);
    let image = match (is_cubin, refuses_cubins()) {
        (true, Some(("", code))) => return code,
        (true, _) => match unsafe { text_of_cubin(image) } {
            Some(text) => text,
            None => return NO_BINARY_FOR_GPU,
        },
        (false, _) => image,
    };
    let ptx = unsafe { CStr::from_ptr(image) }.to_str().unwrap().to_owned();
    if let Some((_, rest)) = ptx.split_once("// reject ") {
        // CU_JIT_ERROR_LOG_BUFFER and its size.
        if option_count == 2 {
            unsafe {
                assert_eq!((*options, *options.add(1)), (5, 6));
                let len = *values.add(1) as usize;
                copy_text("ptxas fatal : Syntax error near 'nonsense'", (*values).cast(), len as c_int);
            }
        }
        return rest.split_whitespace().next().unwrap().parse().unwrap();
    }
    made(Kind::Module);
    LOADED_MODULES.fetch_add(1, SeqCst);
    unsafe {
        *module =
            Box::into_raw(Box::new(Module { ptx, is_cubin, functions: Vec::new(), channel: Box::default() })) as usize
    };
    SUCCESS
}

/// A module, and what was made of its kernels: they go with it.
pub(crate) struct Module {
    ptx: String,
    is_cubin: bool,
    functions: Vec<Box<Function>>,
    /// Where its kernels print to, if it has such a variable.
    pub(crate) channel: Box<UnsafeCell<Channel>>,
}

impl Module {
    pub(crate) fn has_channel(&self) -> bool {
        self.ptx.lines().any(|line| line.starts_with(".visible .global") && line.contains(CHANNEL))
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuModuleUnload(module: usize) -> u32 {
    check!(refusal_to_destroy("cuModuleUnload"));
    drop(unsafe { Box::from_raw(module as *mut Module) });
    destroyed(Kind::Module)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuModuleGetFunction(function: *mut usize, module: usize, name: *const c_char) -> u32 {
    check!(prescribed_in_context("cuModuleGetFunction"));
    let module = unsafe { &mut *(module as *mut Module) };
    if let (true, Some(("lazily", code))) = (module.is_cubin, refuses_cubins()) {
        return code;
    }
    let name = unsafe { CStr::from_ptr(name) }.to_str().unwrap();
    let Some(found) = Function::read(&module.ptx, name, module.channel.get()) else { return NOT_FOUND };
    module.functions.push(Box::new(found));
    unsafe { *function = &raw const **module.functions.last().unwrap() as usize };
    SUCCESS
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuFuncGetAttribute(value: *mut c_int, attribute: c_int, function: usize) -> u32 {
    check!(prescribed_in_context("cuFuncGetAttribute"));
    let function = unsafe { &*(function as *const Function) };
    let answer = match attribute {
        0 => function.max_threads,
        1 => function.static_shared_bytes,
        3 => 0,
        4 => 32,
        _ => return INVALID_VALUE,
    };
    unsafe { *value = answer as c_int };
    SUCCESS
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuFuncSetAttribute(function: usize, attribute: c_int, value: c_int) -> u32 {
    check!(prescribed_in_context("cuFuncSetAttribute"));
    assert_eq!(attribute, 8, "MAX_DYNAMIC_SHARED_SIZE_BYTES is all that is set");
    let function = unsafe { &*(function as *const Function) };
    let Ok(bytes) = u32::try_from(value) else { return INVALID_VALUE };
    if bytes.saturating_add(function.static_shared_bytes) > limits().shared_bytes {
        return INVALID_VALUE;
    }
    function.dynamic_shared_limit.store(bytes, SeqCst);
    DYNAMIC_SHARED_LIMIT.store(value, SeqCst);
    SET_ATTRIBUTES.fetch_add(1, SeqCst);
    SUCCESS
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuLaunchKernel(
    function: usize,
    grid_x: c_uint,
    grid_y: c_uint,
    grid_z: c_uint,
    block_x: c_uint,
    block_y: c_uint,
    block_z: c_uint,
    dynamic_shared_bytes: c_uint,
    stream: usize,
    params: *const *const c_void,
    extra: usize,
) -> u32 {
    check!(prescribed_in_context("cuLaunchKernel"));
    assert!(extra == 0);
    let (grid, block) = ([grid_x, grid_y, grid_z], [block_x, block_y, block_z]);
    unsafe { launch(function, grid, block, dynamic_shared_bytes, stream, params) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuOccupancyMaxActiveBlocksPerMultiprocessor(
    blocks: *mut c_int,
    function: usize,
    threads: c_int,
    dynamic_shared_bytes: usize,
) -> u32 {
    check!(prescribed_in_context("cuOccupancyMaxActiveBlocksPerMultiprocessor"));
    let function = unsafe { &*(function as *const Function) };
    unsafe { *blocks = function.resident_blocks(threads as u32, dynamic_shared_bytes as u32) as c_int };
    SUCCESS
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuLaunchCooperativeKernel(
    function: usize,
    grid_x: c_uint,
    grid_y: c_uint,
    grid_z: c_uint,
    block_x: c_uint,
    block_y: c_uint,
    block_z: c_uint,
    dynamic_shared_bytes: c_uint,
    stream: usize,
    params: *const *const c_void,
) -> u32 {
    check!(prescribed_in_context("cuLaunchCooperativeKernel"));
    let (grid, block) = ([grid_x, grid_y, grid_z], [block_x, block_y, block_z]);
    let resident =
        unsafe { &*(function as *const Function) }.resident_blocks(block.iter().product(), dynamic_shared_bytes);
    if grid.iter().product::<c_uint>() > resident * MULTIPROCESSORS {
        return COOPERATIVE_LAUNCH_TOO_LARGE;
    }
    COOPERATIVE_LAUNCHES.fetch_add(1, SeqCst);
    unsafe { launch(function, grid, block, dynamic_shared_bytes, stream, params) }
}

/// `CU_LIMIT_STACK_SIZE`, and what a thread can have.
const STACK: c_uint = 0;
const MAX_STACK_BYTES: usize = KernelFacts::MAX_STACK_BYTES as usize;

#[unsafe(no_mangle)]
unsafe extern "C" fn cuCtxGetLimit(value: *mut usize, limit: c_uint) -> u32 {
    check!(prescribed_in_context("cuCtxGetLimit"));
    assert_eq!(limit, STACK, "the stack is all that is asked for");
    unsafe { *value = STACK_BYTES.load(SeqCst) };
    SUCCESS
}

#[unsafe(no_mangle)]
extern "C" fn cuCtxSetLimit(limit: c_uint, value: usize) -> u32 {
    check!(prescribed_in_context("cuCtxSetLimit"));
    assert_eq!(limit, STACK, "the stack is all that is set");
    if value > MAX_STACK_BYTES {
        return INVALID_VALUE;
    }
    STACK_BYTES.store(value, SeqCst);
    SUCCESS
}

#[unsafe(no_mangle)]
extern "C" fn fake_stack_bytes() -> usize {
    STACK_BYTES.load(SeqCst)
}

/// What all ways to launch a kernel do.
unsafe fn launch(
    function: usize,
    grid: [c_uint; 3],
    block: [c_uint; 3],
    dynamic_shared_bytes: c_uint,
    stream: usize,
    params: *const *const c_void,
) -> u32 {
    LAST_STREAM.store(stream, SeqCst);
    match unsafe { prepare(function, grid, block, dynamic_shared_bytes, params) } {
        Ok(Launch { uses, work }) => {
            enqueue(stream, uses, Box::new(move || work()));
            SUCCESS
        }
        Err(code) => code,
    }
}

/// A launch that has been accepted: the memory that it uses, and what it does.
pub(crate) struct Launch {
    pub(crate) uses: Vec<Range<u64>>,
    pub(crate) work: Arc<dyn Fn() + Send + Sync>,
}

/// Checks a launch, and copies its arguments.
pub(crate) unsafe fn prepare(
    function: usize,
    grid: [c_uint; 3],
    block: [c_uint; 3],
    dynamic_shared_bytes: c_uint,
    params: *const *const c_void,
) -> Result<Launch, u32> {
    let function = unsafe { &*(function as *const Function) };
    let static_shared_bytes = function.static_shared_bytes;
    let cluster = function.cluster;
    let needs = KernelFacts { block, static_shared_bytes, dynamic_shared_bytes, cluster, ..KernelFacts::new("") };
    if needs.check_clusters(grid).is_err() {
        return Err(INVALID_CLUSTER_SIZE);
    }
    let fits = limits().check(&needs).is_ok()
        && limits().check_grid(grid).is_ok()
        && dynamic_shared_bytes <= function.dynamic_shared_limit.load(SeqCst)
        && match function.block {
            Some(required) => block == required,
            None => needs.threads() <= function.max_threads.into(),
        };
    if !fits {
        return Err(INVALID_VALUE);
    }
    let channel = function.channel as usize;
    let mut uses = Vec::new();
    let mut used = |address: u64, len: u64| uses.push(address..address + 4 * len);
    let work: Arc<dyn Fn() + Send + Sync> = match function.action {
        Action::Fill => {
            let address = unsafe { *(*params).cast::<u64>() };
            let len = unsafe { *(*params.add(1)).cast::<u64>() };
            let value = unsafe { *(*params.add(2)).cast::<f32>() };
            used(address, len);
            Arc::new(move || unsafe {
                std::slice::from_raw_parts_mut(address as *mut f32, len as usize).fill(value);
            })
        }
        Action::Mix => {
            let factor = unsafe { *(*params).cast::<u32>() };
            let rounds = unsafe { *(*params.add(1)).cast::<u32>() };
            let [x, len] = unsafe { *(*params.add(2)).cast::<[u64; 2]>() };
            let [y, len_of_y] = unsafe { *(*params.add(3)).cast::<[u64; 2]>() };
            assert_eq!(len, len_of_y);
            used(x, len);
            used(y, len);
            Arc::new(move || {
                for i in 0..len as usize {
                    unsafe {
                        let (x, y) = ((x as *const u32).add(i).read(), (y as *mut u32).add(i));
                        y.write((0..rounds).fold(y.read(), |y, _| y.wrapping_mul(factor).wrapping_add(x)));
                    }
                }
            })
        }
        Action::Faulty => Arc::new(|| LOST.store(ILLEGAL_ADDRESS, SeqCst)),
        Action::Trap => Arc::new(|| LOST.store(LAUNCH_FAILED, SeqCst)),
        Action::Endless => Arc::new(|| ENDLESS.store(true, SeqCst)),
        Action::Prints => {
            let count = unsafe { *(*params).cast::<u32>() };
            Arc::new(move || unsafe { print(&*(channel as *const Channel), count) })
        }
        Action::Panics { is_reported } => Arc::new(move || {
            unsafe { fail(&*(channel as *const Channel), is_reported) };
            LOST.store(LAUNCH_FAILED, SeqCst);
        }),
        Action::Nothing => Arc::new(|| {}),
    };
    Ok(Launch { uses, work })
}

/// `CUlaunchConfig`, and the one `CUlaunchAttribute` that is set.
#[repr(C)]
struct LaunchConfig {
    grid: [c_uint; 3],
    block: [c_uint; 3],
    shared_bytes: c_uint,
    stream: usize,
    attributes: *const [u32; 18],
    attribute_count: c_uint,
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuLaunchKernelEx(
    config: *const LaunchConfig,
    function: usize,
    params: *const *const c_void,
    extra: usize,
) -> u32 {
    check!(prescribed_in_context("cuLaunchKernelEx"));
    let config = unsafe { &*config };
    assert!(extra == 0 && config.attribute_count == 1);
    let [id, _, value, rest @ ..] = unsafe { *config.attributes };
    assert_eq!((id, value, rest), (6, 1, [0; 15]), "programmatic stream serialization is allowed");
    assert!(unsafe { &*(function as *const Function) }.waits, "the kernel does not wait for those before it");
    DEPENDENT_LAUNCHES.fetch_add(1, SeqCst);
    unsafe { launch(function, config.grid, config.block, config.shared_bytes, config.stream, params) }
}
