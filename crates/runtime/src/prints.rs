//! What the kernels of a GPU print, and what one that panics leaves behind: the host's side of [`cuda_std::print_record`].
//!
//! ```text
//!  a module is loaded     has it a channel?  ─ yes ▶  tell it where to write, and its number
//!  launch                 holds `launches` while it starts a kernel
//!  synchronize, copies    wait ─▶ has anything been launched since?  ─ yes ▶  stop launches, wait for the streams of those, read, set back
//!  the context is lost    the report goes into the error; lines that have arrived are shown by the next who waits
//! ```
//!
//! Without a module that has a channel, nothing is allocated, and nothing of this takes time.
//!
//! The streams are waited for one by one: to wait for the whole context (`cuCtxSynchronize`) ends any capture of a stream into a graph that
//! is going on there, by whatever library (seen with CUDA 13.0, in every mode of captures). Of another library's stream nobody knows whether
//! it is still there later on. So if kernels have been launched on several of these, the whole context is waited for after all. A launch
//! that is captured does not count: it does not run.

use std::collections::BTreeSet;
use std::ffi::CString;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock, RwLockReadGuard};

use bytemuck::Zeroable;
use cuda_driver::{DeviceMemory, Gpu, HostMemory, Module};
use cuda_std::print::{PrintSink, Printed};
use cuda_std::print_record::{CHANNEL, Channel, LINES, Message, PrintHead, Report};

use crate::Error;
use crate::allocations::Allocations;

/// What the name of a kernel is that is one of several in a module, which nobody can tell apart afterwards.
const ONE_OF_SEVERAL: &str = "(one of several in a file)";

/// What the kernels of a GPU print and report.
pub(crate) struct Prints {
    gpu: Gpu,
    sink: Mutex<PrintSink>,
    buffers: OnceLock<Arc<Buffers>>,
    /// Held while the first buffers are made.
    makes_buffers: Mutex<()>,
    /// Read by who launches a kernel, written by who reads what kernels have printed: then none runs.
    launches: RwLock<()>,
    /// Whether there may be something to read.
    has_launched: AtomicBool,
    /// The other libraries' streams on which something may still be running.
    lent: Mutex<BTreeSet<usize>>,
    /// Knows what the device's streams were given last.
    allocations: Arc<Allocations>,
}

/// The memory that GPU and host share.
struct Buffers {
    head: Mutex<DeviceMemory<PrintHead>>,
    messages: Mutex<HostMemory<Message>>,
    report: HostMemory<Report>,
    /// The kernel of each module, by its number.
    modules: Mutex<Vec<&'static str>>,
}

impl Prints {
    pub(crate) fn new(gpu: Gpu, allocations: Arc<Allocations>) -> Arc<Self> {
        Arc::new(Self {
            gpu,
            sink: Mutex::default(),
            buffers: OnceLock::new(),
            makes_buffers: Mutex::default(),
            launches: RwLock::default(),
            has_launched: AtomicBool::new(false),
            lent: Mutex::default(),
            allocations,
        })
    }

    /// Sets where lines go.
    pub(crate) fn print_to(&self, sink: PrintSink) {
        *lock(&self.sink) = sink;
    }

    /// Tells a module that has just been loaded where to write, if its PTX says that it wants to know. `kernel` is the one that it has, if
    /// it has but one.
    pub(crate) fn connect(&self, module: &Module, ptx: &str, kernel: Option<&'static str>) -> Result<(), Error> {
        if !ptx.contains(CHANNEL) {
            return Ok(());
        }
        let buffers = self.buffers()?;
        let number = {
            let mut modules = lock(&buffers.modules);
            modules.push(kernel.unwrap_or(ONE_OF_SEVERAL));
            modules.len() - 1
        };
        let channel = Channel {
            head: lock(&buffers.head).address(),
            messages: lock(&buffers.messages).device_address(),
            report: buffers.report.device_address(),
            module: number as u64,
        };
        let name = CString::new(CHANNEL).expect("it is a name");
        // SAFETY: the module has just been loaded, and none of its kernels has been launched. It finds addresses of memory that stays until
        // the GPU has finished: `HostMemory` and `DeviceMemory` wait for it when they are dropped.
        Ok(unsafe { module.write_variable(&name, channel) }?)
    }

    fn buffers(&self) -> Result<&Arc<Buffers>, Error> {
        let _alone = lock(&self.makes_buffers);
        if let Some(buffers) = self.buffers.get() {
            return Ok(buffers);
        }
        let mut head = self.gpu.allocate(1)?;
        head.copy_from_host(&[PrintHead::default()])?;
        let buffers = Arc::new(Buffers {
            head: Mutex::new(head),
            messages: Mutex::new(self.gpu.allocate_on_host(LINES)?),
            report: self.gpu.allocate_on_host(1)?,
            modules: Mutex::default(),
        });
        // The buffers hold the GPU, which holds the explanation.
        let weak = Arc::downgrade(&buffers);
        self.gpu.explain_loss(move || weak.upgrade()?.report());
        Ok(self.buffers.get_or_init(|| buffers))
    }

    /// To be held while a kernel is launched on the stream of `gpu`, which may be lent.
    pub(crate) fn launching(&self, gpu: &Gpu, is_lent: bool) -> Result<Option<RwLockReadGuard<'_, ()>>, Error> {
        if self.buffers.get().is_none() {
            return Ok(None);
        }
        let guard = self.launches.read().unwrap_or_else(PoisonError::into_inner);
        if is_lent {
            gpu.make_current()?;
            let stream = gpu.raw_stream();
            // SAFETY: whoever has made the handle has promised that the stream is valid, and of this GPU's context, which is current.
            if unsafe { cuda_driver::is_capturing(stream) }? {
                return Ok(Some(guard));
            }
            lock(&self.lent).insert(stream.addr());
        }
        self.has_launched.store(true, Ordering::Release);
        Ok(Some(guard))
    }

    /// Shows what has been printed, after a wait that has ended like this: for the stream of `gpu`, if that is known.
    pub(crate) fn after(&self, gpu: Option<&Gpu>, waited: Result<(), cuda_driver::Error>) -> Result<(), Error> {
        let Some(buffers) = self.buffers.get() else { return Ok(waited?) };
        let mut printed = Vec::new();
        let result = match waited {
            Ok(()) => self.read(gpu, buffers, &mut printed),
            Err(error) => Err(error),
        };
        if matches!(result, Err(cuda_driver::Error::ContextLost { .. }))
            && self.has_launched.swap(false, Ordering::AcqRel)
        {
            printed.extend(buffers.take(LINES).into_iter().flatten());
            printed.push(Printed::Missing { lines: None });
        }
        // Not under the lock: what is called may launch kernels.
        let sink = lock(&self.sink).clone();
        printed.iter().for_each(|printed| sink.show(printed));
        Ok(result?)
    }

    /// Takes the lines that are there, and makes room for others. Waits for all streams, if anything has been launched.
    fn read(
        &self,
        waited: Option<&Gpu>,
        buffers: &Buffers,
        printed: &mut Vec<Printed>,
    ) -> Result<(), cuda_driver::Error> {
        if !self.has_launched.load(Ordering::Acquire) {
            return Ok(());
        }
        let _nobody_launches = self.launches.write().unwrap_or_else(PoisonError::into_inner);
        self.wait_for_all(waited)?;
        let mut head = lock(&buffers.head);
        let mut counts = [PrintHead::default()];
        head.copy_to_host(&mut counts)?;
        let [counts] = counts;
        if counts.lines > 0 {
            head.copy_from_host(&[PrintHead { lines: 0, ..counts }])?;
            let kept = counts.lines.min(LINES as u64);
            printed.extend(buffers.take(kept as usize).into_iter().flatten());
            let missing = counts.lines - kept;
            printed.extend((missing > 0).then_some(Printed::Missing { lines: Some(missing) }));
        }
        self.has_launched.store(false, Ordering::Release);
        Ok(())
    }
}

impl Prints {
    /// Waits until no kernel runs, while none is launched.
    fn wait_for_all(&self, waited: Option<&Gpu>) -> Result<(), cuda_driver::Error> {
        let mut lent = lock(&self.lent);
        if let Some(gpu) = waited {
            // Another thread may have launched something there between the wait and the lock.
            gpu.synchronize()?;
            lent.remove(&gpu.raw_stream().addr());
        }
        if lent.is_empty() {
            let streams = self.allocations.lock().streams.last();
            streams.iter().try_for_each(|last| last.synchronize())?;
            self.gpu.synchronize()?;
        } else {
            self.gpu.synchronize_all()?;
        }
        lent.clear();
        Ok(())
    }
}

impl Drop for Prints {
    /// Shows what nobody has waited for. Errors stay unseen: whoever would be told has given up the device.
    fn drop(&mut self) {
        if self.has_launched.load(Ordering::Acquire) {
            let waited = self.gpu.synchronize();
            let _ = self.after(None, waited);
        }
    }
}

impl Buffers {
    /// The first messages, as far as they are complete, and makes their places free.
    fn take(&self, count: usize) -> Vec<Option<Printed>> {
        let mut messages = lock(&self.messages);
        let one = |index: usize| {
            let message = messages.get(index);
            if message.is_complete == 0 {
                return None;
            }
            messages.set(index, Message::zeroed());
            Some(message.printed(self.kernel(&message)))
        };
        (0..count).map(one).collect()
    }

    /// The kernel that a message is of.
    fn kernel(&self, message: &Message) -> &'static str {
        let number = usize::try_from(message.module).unwrap_or(usize::MAX);
        lock(&self.modules).get(number).copied().unwrap_or("(unknown)")
    }

    /// What the first thread that has failed has left.
    fn report(&self) -> Option<String> {
        let report = self.report.get(0);
        (report.message.is_complete != 0).then(|| report.fault(self.kernel(&report.message)).to_string())
    }
}

/// Nothing that holds one of these locks leaves what it protects half changed, so a poisoned one is in order.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
