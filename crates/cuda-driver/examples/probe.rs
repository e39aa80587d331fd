//! Tries everything this crate does on GPU 0, and provokes every error that can be provoked, to read the messages.
//!
//! ```text
//! cargo run -p tilewright-cuda-driver --example probe
//! ```
//!
//! Exits with 1 if a step that has to succeed fails, or one that has to fail succeeds. Needs about 10 GiB of memory on
//! the host and on the GPU for the copy of more than 4 GiB.

use std::error::Error;
use std::ffi::c_void;
use std::process::ExitCode;
use std::time::Instant;

use tilewright_cuda_driver::{DeviceMemory, Function, Gpu, cust, driver_version};

/// `sum[i] = a[i] + b[i]`, one thread per element, and a kernel that writes where there is no memory.
const PTX: &str = "\
.version 7.0
.target sm_70
.address_size 64

.visible .entry add(.param .u64 a, .param .u64 b, .param .u64 sum, .param .u32 len)
{
    .reg .pred %out;
    .reg .u32 %i, %block, %threads, %thread, %len;
    .reg .u64 %a, %b, %sum;
    .reg .f32 %x, %y;
    ld.param.u64 %a, [a];
    ld.param.u64 %b, [b];
    ld.param.u64 %sum, [sum];
    ld.param.u32 %len, [len];
    mov.u32 %block, %ctaid.x;
    mov.u32 %threads, %ntid.x;
    mov.u32 %thread, %tid.x;
    mad.lo.u32 %i, %block, %threads, %thread;
    setp.ge.u32 %out, %i, %len;
    @%out bra DONE;
    mad.wide.u32 %a, %i, 4, %a;
    mad.wide.u32 %b, %i, 4, %b;
    mad.wide.u32 %sum, %i, 4, %sum;
    ld.global.f32 %x, [%a];
    ld.global.f32 %y, [%b];
    add.f32 %x, %x, %y;
    st.global.f32 [%sum], %x;
DONE:
    ret;
}

.visible .entry write_to_null()
{
    .reg .u64 %null;
    mov.u64 %null, 0;
    st.global.u64 [%null], %null;
    ret;
}
";

fn main() -> ExitCode {
    match probe() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn probe() -> Result<(), Box<dyn Error>> {
    println!("driver: CUDA {}, {} device(s)", driver_version()?, Gpu::count()?);
    let start = Instant::now();
    let gpu = Gpu::open(0)?;
    println!("opened in {:.1?}: {:#?}", start.elapsed(), gpu.properties());
    println!("{:?}", gpu.memory()?);
    println!("cust, on the same context: {:?}", cust::memory::mem_get_info());

    let start = Instant::now();
    let module = gpu.load_ptx(PTX)?;
    println!("\nmodule loaded in {:.1?} (load_time: {:.1?})", start.elapsed(), module.load_time());
    let start = Instant::now();
    let add = module.function("add")?;
    println!("{add:?}, found in {:.1?}", start.elapsed());
    run_add(&gpu, &add)?;
    copy_more_than_4_gib(&gpu)?;
    use_from_other_threads(&gpu, &add)?;

    println!("\n--- errors; the GPU stays usable");
    expect("device 1000", Gpu::open(1000))?;
    expect("2^40 floats", gpu.allocate::<f32>(1 << 40))?;
    expect("2^62 floats", gpu.allocate::<f32>(1 << 62))?;
    expect("not PTX", gpu.load_ptx("this is not PTX"))?;
    expect("empty PTX", gpu.load_ptx(""))?;
    expect("a syntax error", gpu.load_ptx(&PTX.replace("add.f32", "plus.f32")))?;
    expect(
        "an external function",
        gpu.load_ptx(
            &PTX.replace(".visible .entry add", ".extern .func f;\n.visible .entry add")
                .replace("DONE:\n", "DONE:\n call f;\n"),
        ),
    )?;
    expect("PTX 99.0", gpu.load_ptx(&PTX.replace(".version 7.0", ".version 99.0")))?;
    expect("PTX for sm_199", gpu.load_ptx(&PTX.replace("sm_70", "sm_199")))?;
    expect("PTX for sm_100a", gpu.load_ptx(&PTX.replace(".version 7.0", ".version 8.6").replace("sm_70", "sm_100a")))?;
    expect("kernel `sub`", module.function("sub"))?;
    let launch = |grid, block, shared| {
        let (mut address, mut len) = (0u64, 0u32);
        let params = [&raw mut address, &raw mut address, &raw mut address, (&raw mut len).cast()];
        let mut params = params.map(|param| param.cast::<c_void>());
        // SAFETY: the parameters are those of `add`, which touches nothing for a length of 0.
        unsafe { add.launch(&gpu, grid, block, shared, &mut params) }
    };
    expect("no block", launch([0, 1, 1], [32, 1, 1], 0))?;
    expect("a grid of 65536 along y", launch([1, 65536, 1], [32, 1, 1], 0))?;
    expect("a block of 2048 threads", launch([1, 1, 1], [2048, 1, 1], 0))?;
    expect("1 MiB of shared memory", launch([1, 1, 1], [32, 1, 1], 1 << 20))?;
    run_add(&gpu, &add)?;

    println!("\n--- errors; the context is lost");
    let write_to_null = module.function("write_to_null")?;
    // SAFETY: the kernel takes no arguments. It writes to an address where there is no memory, so it changes nothing,
    // and the driver ends the context: this is what is to be seen.
    unsafe { write_to_null.launch(&gpu, [1, 1, 1], [1, 1, 1], 0, &mut []) }?;
    expect("synchronizing after a write to address 0", gpu.synchronize())?;
    expect("allocating after that", gpu.allocate::<f32>(1))?;
    expect("opening the device anew after that", Gpu::open(0).and_then(|gpu| gpu.memory()))?;
    println!("\nall as it has to be");
    Ok(())
}

/// Adds two vectors, with shared memory that has to be asked for, and checks the sum.
fn run_add(gpu: &Gpu, add: &Function) -> Result<(), Box<dyn Error>> {
    let len = 1 << 24;
    let a: Vec<f32> = (0..len).map(|index| index as f32).collect();
    let b: Vec<f32> = (0..len).map(|index| 0.5 * index as f32).collect();
    let mut a_device = gpu.allocate::<f32>(len)?;
    let mut b_device = gpu.allocate::<f32>(len)?;
    let mut sum_device = gpu.allocate::<f32>(len)?;
    a_device.copy_from_host(&a)?;
    b_device.copy_from_host(&b)?;
    sum_device.fill_bytes(0xff)?;
    for shared_bytes in [0, gpu.properties().limits.shared_bytes] {
        let start = gpu.record_event()?;
        launch_add(gpu, add, &a_device, &b_device, &mut sum_device, shared_bytes)?;
        let time = gpu.record_event()?.elapsed_since(&start)?;
        println!("add of {len} floats with {shared_bytes} bytes of shared memory: {time:.1?} by the GPU's clock");
    }
    let mut sum = vec![0.0; len];
    sum_device.copy_to_host(&mut sum)?;
    let wrong = (0..len).find(|&index| sum[index] != a[index] + b[index]);
    match wrong {
        None => Ok(()),
        Some(index) => Err(format!("sum[{index}] is {}, not {}", sum[index], a[index] + b[index]).into()),
    }
}

fn launch_add(
    gpu: &Gpu,
    add: &Function,
    a: &DeviceMemory<f32>,
    b: &DeviceMemory<f32>,
    sum: &mut DeviceMemory<f32>,
    shared_bytes: u32,
) -> Result<(), Box<dyn Error>> {
    assert!(a.len() == sum.len() && b.len() == sum.len());
    let (mut a, mut b, len) = (a.address(), b.address(), sum.len());
    let (mut sum, mut len_param) = (sum.address(), u32::try_from(len)?);
    let mut params: [*mut c_void; 4] =
        [(&raw mut a).cast(), (&raw mut b).cast(), (&raw mut sum).cast(), (&raw mut len_param).cast()];
    // SAFETY: the parameters are those of `add`, which reads and writes `len` elements of arrays that have as many; the
    // arrays are borrowed here, and wait for the GPU when they are dropped.
    unsafe { add.launch(gpu, [u32::try_from(len.div_ceil(256))?, 1, 1], [256, 1, 1], shared_bytes, &mut params) }?;
    Ok(())
}

fn copy_more_than_4_gib(gpu: &Gpu) -> Result<(), Box<dyn Error>> {
    let len = (5 << 30) / 8 + 1;
    let source: Vec<u64> = (0..len as u64).collect();
    let mut target = vec![0; len];
    let mut memory = gpu.allocate::<u64>(len)?;
    let start = Instant::now();
    memory.copy_from_host(&source)?;
    let there = start.elapsed();
    let start = Instant::now();
    memory.copy_to_host(&mut target)?;
    let back = start.elapsed();
    if target != source {
        return Err("a copy of more than 4 GiB came back different".into());
    }
    println!("copied {} bytes to the GPU in {there:.2?} and back in {back:.2?}", len * 8);
    Ok(())
}

fn use_from_other_threads(gpu: &Gpu, add: &Function) -> Result<(), Box<dyn Error>> {
    std::thread::scope(|scope| {
        let threads: Vec<_> =
            (0..4).map(|_| scope.spawn(|| run_add(gpu, add).map_err(|error| error.to_string()))).collect();
        threads.into_iter().try_for_each(|thread| thread.join().expect("the thread does not panic"))
    })?;
    println!("used from four threads");
    Ok(())
}

/// Prints the error of something that has to fail.
fn expect<T>(what: &str, result: Result<T, tilewright_cuda_driver::Error>) -> Result<(), String> {
    match result {
        Ok(_) => Err(format!("{what}: this succeeded, and must not")),
        Err(error) => {
            println!("\n{what}:\n  {error}\n  {error:?}");
            Ok(())
        }
    }
}
