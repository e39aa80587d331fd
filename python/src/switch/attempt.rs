//! Takes a product from torch, or says why not: looks at the operands, decides, allocates by torch, and queues Tilewright's kernels on torch's
//! current stream.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

use crate::engine::{Place, Stream};
use crate::error::Failure;

use super::decision::{Decision, Layout, Question, SMALL_OPERATIONS, Setting, Take};
use super::dispatcher::{OPERATORS, Operator, Shape};
use super::layouts::{Handle, TensorPointer};
use super::records::{self, Reason, Taken};
use super::symbols::{Owned, Symbols};
use super::tensor::{Tensor, TorchDevice, bytes};

/// What the switch is set to; null if it is off.
pub(super) static CURRENT: AtomicPtr<Setting> = AtomicPtr::new(ptr::null_mut());

/// Whether each call is shown on the standard error.
pub(super) static VERBOSE: AtomicBool = AtomicBool::new(false);

/// What an operator is called with.
struct Arguments {
    added: Option<Added>,
    a: Tensor,
    b: Tensor,
    out: Option<Tensor>,
}

/// What an operator adds, with the factors, as far as these are real numbers.
struct Added {
    c: Tensor,
    beta: Option<f64>,
    alpha: Option<f64>,
}

/// An address that is aligned as those are that torch allocates, by which kernels are chosen before there is memory: to 64 bytes at least.
const ALIGNED: usize = 64;

/// Takes a product, or counts why it is passed on. What is taken has a result of its own only if the operator makes one.
///
/// # Safety
/// The arguments are tensors, such as torch gives to a kernel of the operator.
pub(super) unsafe fn attempt(
    operator: usize,
    a: Handle,
    b: Handle,
    added: Option<(Handle, Option<f64>, Option<f64>)>,
    out: Option<Handle>,
) -> Option<Option<TensorPointer>> {
    // SAFETY: null, or a setting, which stays.
    let setting = unsafe { CURRENT.load(Ordering::Acquire).as_ref() }?;
    let symbols = Symbols::get()?;
    let operator = &OPERATORS[operator];
    // SAFETY: the caller's promise; torch holds its arguments until the kernel returns.
    let tensor = |handle| unsafe { Tensor::new(symbols, handle) };
    let added = added.map(|(c, beta, alpha)| Added { c: tensor(c), beta, alpha });
    let arguments = Arguments { added, a: tensor(a), b: tensor(b), out: out.map(tensor) };
    let product = match Product::read(symbols, setting, operator, &arguments) {
        Ok(product) => product,
        Err(reason) => return pass_on(operator, reason, ""),
    };
    // What is passed on again and again shall cost no more than this.
    if let Some(reason) = product.reason_known(setting) {
        return pass_on(operator, reason, "");
    }
    // Torch may throw here, so no Rust that could panic is around it.
    if !symbols.wants_full_precision() {
        return pass_on(operator, Reason::Tf32, "");
    }
    // A panic must not go through torch.
    let done = catch_unwind(AssertUnwindSafe(|| product.compute(setting)));
    let failure = match done {
        Ok(Ok(result)) => return Some(result.map(Owned::into_pointer)),
        Ok(Err(NotDone::Reason(reason))) => return pass_on(operator, reason, ""),
        Ok(Err(NotDone::Failure(Failure::Ours(_, message)))) => message,
        Ok(Err(NotDone::Failure(Failure::Python(_)))) | Err(_) => {
            "a panic, whose message is on the standard error".to_owned()
        }
    };
    records::failed(failure.clone());
    pass_on(operator, Reason::Failed, &failure)
}

fn pass_on(operator: &Operator, reason: Reason, why: &str) -> Option<Option<TensorPointer>> {
    records::passed_on(reason);
    if VERBOSE.load(Ordering::Relaxed) {
        eprintln!(
            "tilewright: {} to torch: {}{}{why}",
            operator.shown(),
            reason.text(),
            if why.is_empty() { "" } else { ": " }
        );
    }
    None
}

/// Why a product was not computed.
enum NotDone {
    Reason(Reason),
    Failure(Failure),
}

impl From<Reason> for NotDone {
    fn from(reason: Reason) -> Self {
        Self::Reason(reason)
    }
}

impl From<Failure> for NotDone {
    fn from(failure: Failure) -> Self {
        Self::Failure(failure)
    }
}

/// A product that may be taken.
struct Product {
    symbols: &'static Symbols,
    operator: &'static Operator,
    device: TorchDevice,
    a: Layout,
    b: Layout,
    /// The shape of the result.
    shape: Layout,
    /// The addresses of a and b.
    addresses: [usize; 2],
    /// What is added, if it is not multiplied by zero.
    added: Option<Tensor>,
    /// α and β.
    factors: [f32; 2],
    out: Option<Tensor>,
}

impl Product {
    /// Looks at the arguments, the cheapest first.
    fn read(
        symbols: &'static Symbols,
        setting: &Setting,
        operator: &'static Operator,
        arguments: &Arguments,
    ) -> Result<Self, Reason> {
        let Arguments { ref added, a, b, out } = *arguments;
        let tensors = [Some(a), Some(b), added.as_ref().map(|added| added.c), out];
        let tensors = || tensors.iter().copied().flatten();
        if !tensors().all(Tensor::is_float32) {
            return Err(Reason::Type);
        }
        let extents = |tensor: Tensor| tensor.extents().ok_or(Reason::Shape);
        let (of_a, of_b) = (extents(a)?, extents(b)?);
        let (shape, operations) = result(operator.shape, of_a.sizes(), of_b.sizes()).ok_or(Reason::Shape)?;
        if setting.only_faster && operations < SMALL_OPERATIONS {
            return Err(Reason::Small);
        }
        let device = a.device().ok_or(Reason::Device)?;
        let wanted = if setting.on_cpu { symbols.cpu } else { symbols.cuda };
        if device.kind != wanted || !tensors().all(|tensor| tensor.device() == Some(device)) {
            return Err(Reason::Device);
        }
        if tensors().any(Tensor::has_names) {
            return Err(Reason::Names);
        }
        let mut factors = [1.0, 0.0];
        if let Some(Added { c, beta, alpha }) = added {
            let rounded = |number: Option<f64>| number.map(|number| number as f32).filter(|number| number.is_finite());
            factors = match (rounded(*alpha), rounded(*beta)) {
                (Some(alpha), Some(beta)) if alpha != 0.0 => [alpha, beta],
                _ => return Err(Reason::Factors),
            };
            if !broadcasts(extents(*c)?.sizes(), shape.sizes()) {
                return Err(Reason::Shape);
            }
        }
        let placed = |tensor: Tensor| tensor.address().zip(tensor.layout()).ok_or(Reason::Shape);
        let ((at_a, of_a), (at_b, of_b)) = (placed(a)?, placed(b)?);
        Ok(Self {
            symbols,
            operator,
            device,
            a: of_a.aligned(at_a),
            b: of_b.aligned(at_b),
            shape,
            addresses: [at_a, at_b],
            added: added.as_ref().map(|added| added.c).filter(|_| factors[1] != 0.0),
            factors,
            out,
        })
    }

    /// Computes the product: queues it on torch's current stream. The result is new if there is no place for it.
    fn compute(&self, setting: &Setting) -> Result<Option<Owned>, NotDone> {
        let Self { symbols, device: TorchDevice { kind, ordinal }, shape, factors, .. } = *self;
        let [at_a, at_b] = self.addresses;
        let given = self.out.map(|out| self.given(out)).transpose()?;
        let fills = self.is_elsewhere();
        let (c, at_c) = given.unwrap_or((shape, ALIGNED));
        let question = self.question(setting, c);
        let place = question.place;
        let stream = match place {
            Place::Cpu => Stream::LEGACY,
            Place::Cuda(_) => Stream(symbols.current_stream(ordinal).ok_or(Reason::Device)?),
        };
        // SAFETY: torch's current stream of the device, which torch keeps.
        let device = unsafe { place.device_on(stream)? };
        // SAFETY: the handle was made just now, for this stream.
        let decide = || unsafe { setting.decide(question, &device, stream, [at_a, at_b, at_c]) };
        let decision = match setting.known(&question) {
            Some(decision) => decision,
            None => place.on_its_threads(decide)?,
        };
        let Take { planned, record, taken } = match &*decision {
            Decision::PassOn(reason) => return Err((*reason).into()),
            Decision::Take(take) => &**take,
        };
        let memory = |sizes: &[i64], strides: &[i64]| {
            symbols.empty(sizes, strides, symbols.float32, kind, ordinal).ok_or(Reason::Memory)
        };
        let bytes = planned.workspace_bytes();
        // The executor wants its workspace aligned as a GPU's is, which torch's memory is not.
        let workspace = match place {
            Place::Cuda(_) if bytes > 0 => Some(memory(&[bytes.div_ceil(size_of::<f32>()) as i64], &[1])?),
            _ => None,
        };
        let made = match self.out {
            Some(_) => None,
            None => Some(memory(shape.sizes(), shape.strides())?),
        };
        // The one or the other is there.
        let result = self.out.or(made.as_ref().map(Owned::tensor)).ok_or(Reason::Memory)?;
        if let Some(added) = self.added.filter(|_| fills)
            && !result.copy_from(added)
        {
            return Err(Reason::Memory.into());
        }
        let address = |tensor: Tensor| tensor.address_to_write().ok_or(Reason::Memory);
        let addresses = [at_a, at_b, address(result)?];
        let at_workspace = workspace.as_ref().map(|workspace| address(workspace.tensor())).transpose()?;
        // SAFETY: the addresses are those of tensors that the caller or this holds, of the sizes and strides that they have been read
        // with. When this returns, what is queued may still be running, and the tensors may go: torch's allocator then gives their memory
        // to nobody but what is queued behind on the stream that they were made for. The result and the workspace were made just now,
        // for the current stream, which is the one used here; whatever is in them is a float32. That nobody uses operands out of the
        // stream's order is the caller's matter, as for every operator of torch.
        let run = || unsafe { planned.run(&device, addresses, factors, at_workspace) };
        place.on_its_threads(run)?;
        record.calls.fetch_add(1, Ordering::Relaxed);
        if VERBOSE.load(Ordering::Relaxed) {
            let Taken { operator, sizes: [m, n, k, count], ref precision, kernel } = *taken;
            eprintln!("tilewright: {operator} m={m} n={n} k={k} batch={count} {precision} {kernel} on {place}");
        }
        Ok(made)
    }

    /// What a decision depends on, for a result that lies like this.
    fn question(&self, setting: &Setting, c: Layout) -> Question {
        let Self { operator, device, a, b, .. } = *self;
        let place = if setting.on_cpu { Place::Cpu } else { Place::Cuda(device.ordinal as usize) };
        let (adds, fills) = (self.added.is_some(), self.is_elsewhere());
        Question { operator: operator.shown(), place, layouts: [a, b, c], adds, fills }
    }

    /// Why the product has been passed on before, if its result is new and it has.
    fn reason_known(&self, setting: &Setting) -> Option<Reason> {
        if self.out.is_some() {
            return None;
        }
        match *setting.known(&self.question(setting, self.shape))? {
            Decision::PassOn(reason) => Some(reason),
            Decision::Take(_) => None,
        }
    }

    /// Whether something is added that is not the very tensor which becomes the result.
    fn is_elsewhere(&self) -> bool {
        self.added.is_some_and(|added| self.out.is_none_or(|out| !added.is(out)))
    }

    /// Where a result lies that was given, if nothing stands against it.
    fn given(&self, out: Tensor) -> Result<(Layout, usize), Reason> {
        let (address, layout) = out.address_to_write().zip(out.layout()).ok_or(Reason::Overlap)?;
        if layout.sizes() != self.shape.sizes() {
            return Err(Reason::Overlap);
        }
        let [at_a, at_b] = self.addresses;
        let mut read = vec![bytes(at_a, &self.a), bytes(at_b, &self.b)];
        if let Some(added) = self.added.filter(|_| self.is_elsewhere()) {
            let (address, layout) = added.address().zip(added.layout()).ok_or(Reason::Overlap)?;
            read.push(bytes(address, &layout));
        }
        let written = bytes(address, &layout);
        if read.iter().any(|read| read.start < written.end && written.start < read.end) {
            return Err(Reason::Overlap);
        }
        Ok((layout.aligned(address), address))
    }
}

/// The result of a product of tensors of these extents, and how many operations it takes; none if they make none, or nothing is to be
/// computed.
fn result(shape: Shape, a: &[i64], b: &[i64]) -> Option<(Layout, f64)> {
    let (result, k) = match (shape, a, b) {
        (Shape::Matrices, &[m, k], &[terms, n]) if k == terms => (Layout::contiguous(&[m, n]), k),
        (Shape::Batches, &[count, m, k], &[other, terms, n]) if (k, count) == (terms, other) => {
            (Layout::contiguous(&[count, m, n]), k)
        }
        (Shape::Vector, &[m, k], &[terms]) if k == terms => (Layout::contiguous(&[m]), k),
        _ => return None,
    };
    let operations = 2.0 * result.sizes().iter().map(|&extent| extent as f64).product::<f64>() * k as f64;
    (operations > 0.0).then_some((result, operations))
}

/// Whether a tensor of these extents can be added to one of others.
fn broadcasts(from: &[i64], to: &[i64]) -> bool {
    from.len() <= to.len() && from.iter().rev().zip(to.iter().rev()).all(|(&from, &to)| from == to || from == 1)
}
