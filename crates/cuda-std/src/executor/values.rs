//! Where the first NaN comes up, the first infinity, the first subnormal number, and the first addend that is lost.
//!
//! The arithmetic of a kernel is the processor's, and nobody sees it here. What is seen are the numbers that threads take in and give away:
//!
//! ```text
//!  taken in      loads · values of other lanes · atomic operations · accumulators of tensor cores · results of functions of `math`
//!  given away    stores · values for other lanes · atomic operations · addends of tensor cores · arguments of functions of `math`
//!
//!  thread        x = load        e = exp(x)          y = e / s         store(y)
//!                ▲ no NaN        ▲ none, and none    ▲                 ▲ a NaN: computed between the two lines
//! ```
//!
//! A thread *makes* a NaN if it gives one away, and has taken in none before; the report names the line, and the line of what it took in or
//! gave away before that, since when it has computed it. Of an infinity and a subnormal number it is the same. Sums of tensor cores,
//! atomic additions and functions of `math` but `fma` are seen themselves: they make a NaN if there is one in the result and none among what is added. An addend is *lost* if
//! such a sum is, bit by bit, what it was before, although what was added to it is not zero.

use core::any::Any;
use core::cell::Cell;
use core::fmt;
use core::panic::Location;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread_local;
use std::vec::Vec;

use super::Executor;
use super::context::{Context, current};
use super::fault::SourceLine;
use crate::{Bf16, Dim3, F16};

/// What is looked for among numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Unusual {
    /// No number.
    Nan,
    /// An infinity.
    Infinity,
    /// A number that has fewer bits than others of its type, because it is so small.
    Subnormal,
    /// A sum that is what it was before something was added.
    LostAddend,
}

/// The first operation of a kernel that shows one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FirstUnusual {
    /// The kernel's name.
    pub kernel: &'static str,
    /// The block.
    pub block: Dim3,
    /// The thread, by its position in the block; the first lane of a warp that makes it together.
    pub thread: Dim3,
    /// What came up.
    pub unusual: Unusual,
    /// The operation.
    pub operation: &'static str,
    /// Its line.
    pub line: SourceLine,
    /// The line of the last number that the thread took in or gave away before, if it has computed this one since then by itself; `None` if
    /// the operation has made it, or if it was the thread's first.
    pub since: Option<SourceLine>,
    /// Whether the operation itself has made it.
    pub is_made_here: bool,
}

/// What came up in launches: [`Executor::with_trace`].
#[derive(Debug, Default)]
pub struct ValueTrace(Mutex<Found>);

#[derive(Debug, Default)]
struct Found {
    launches: u64,
    /// By kernel and kind, with where that was.
    first: BTreeMap<(&'static str, Unusual), (At, FirstUnusual)>,
}

/// The number of a launch, and of a block.
type At = (u64, u64);

impl ValueTrace {
    /// What came up first in each kernel.
    pub fn first(&self) -> Vec<FirstUnusual> {
        self.lock().first.values().map(|(_, first)| first.clone()).collect()
    }

    /// Notes a launch. Returns its number.
    pub(super) fn begin(&self) -> u64 {
        let mut found = self.lock();
        found.launches += 1;
        found.launches
    }

    /// Nothing that holds the lock can panic halfway through a change.
    fn lock(&self) -> MutexGuard<'_, Found> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Executor {
    /// The same executor, which looks for the first NaN, infinity, subnormal number and lost addend of each kernel, in the first block in
    /// linear order in which there is one.
    ///
    /// ```standalone_crate
    /// # use cuda_std::{executor::{Checks, Executor, Unusual, ValueTrace}, prelude::*};
    /// # extern crate tilewright_cuda_std as cuda_std;
    /// # use std::sync::Arc;
    /// #[kernel(block = 32)]
    /// fn invert(x: DisjointSlice<'_, f32>) {
    ///     if let Some(x) = x.own() {
    ///         x.set(1.0 / x.get());
    ///     }
    /// }
    /// let (trace, mut x) = (Arc::new(ValueTrace::default()), [2.0, 0.0, 4.0]);
    /// let executor = Executor::new(Checks::Full).with_trace(Arc::clone(&trace));
    /// // SAFETY: the only view is of an array of this program.
    /// unsafe { executor.launch(invert { x: DisjointSlice::new(&mut x) }, Dim3::from(1)) }.unwrap();
    /// let first = &trace.first()[0];
    /// assert_eq!((first.unusual, first.thread.x), (Unusual::Infinity, 1));
    /// ```
    pub fn with_trace(self, trace: Arc<ValueTrace>) -> Self {
        Self { trace: Some(trace), ..self }
    }
}

/// Kinds of unusual numbers, a bit for each.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Kinds(u8);

impl Kinds {
    const ALL: [Unusual; 4] = [Unusual::Nan, Unusual::Infinity, Unusual::Subnormal, Unusual::LostAddend];

    fn of(unusual: Unusual) -> Self {
        Self(1 << unusual as u8)
    }

    /// Those of a number of a type with this smallest normal one.
    fn of_number(number: f64, smallest: f64) -> Self {
        match number {
            _ if number.is_nan() => Self::of(Unusual::Nan),
            _ if number.is_infinite() => Self::of(Unusual::Infinity),
            _ if number != 0.0 && number.abs() < smallest => Self::of(Unusual::Subnormal),
            _ => Self(0),
        }
    }

    /// Those of an element, if it is a floating-point number.
    fn of_element<T: Any>(element: &T) -> Self {
        number(element).map_or(Self(0), |(number, smallest)| Self::of_number(number, smallest))
    }

    fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    fn each(self) -> impl Iterator<Item = Unusual> {
        Self::ALL.into_iter().filter(move |unusual| self.0 & Self::of(*unusual).0 != 0)
    }
}

/// An element as a number, and the smallest normal one of its type, if it is a floating-point number.
fn number<T: Any>(element: &T) -> Option<(f64, f64)> {
    let element: &dyn Any = element;
    if let Some(number) = element.downcast_ref::<f32>() {
        Some(((*number).into(), f32::MIN_POSITIVE.into()))
    } else if let Some(number) = element.downcast_ref::<f64>() {
        Some((*number, f64::MIN_POSITIVE))
    } else if let Some(number) = element.downcast_ref::<F16>() {
        Some((number.to_f32().into(), half::f16::MIN_POSITIVE.into()))
    } else {
        let number = element.downcast_ref::<Bf16>()?;
        Some((number.to_f32().into(), f32::MIN_POSITIVE.into()))
    }
}

/// What a thread has taken in or given away.
#[derive(Clone, Copy, Default)]
pub(super) struct Taken {
    kinds: Kinds,
    /// Where the last one was.
    last: Option<&'static Location<'static>>,
}

thread_local! {
    /// Whether the launch on this OS thread looks for unusual numbers, and what sums have made since it was last asked.
    static TRACING: (Cell<bool>, Cell<Kinds>) = const { (Cell::new(false), Cell::new(Kinds(0))) };
}

/// Whether the launch on this OS thread looks for unusual numbers.
#[inline(always)]
pub(crate) fn is_tracing() -> bool {
    TRACING.with(|(is_tracing, _)| is_tracing.get())
}

pub(super) fn set_tracing(is_tracing: bool) {
    TRACING.with(|(flag, made)| {
        flag.set(is_tracing);
        made.set(Kinds(0));
    });
}

/// Looks at an element that the running thread takes in.
#[inline(always)]
pub(crate) fn trace_in<T: Any>(element: &T, location: &'static Location<'static>) {
    #[cold]
    #[inline(never)]
    fn look_at<T: Any>(element: &T, location: &'static Location<'static>) {
        take(Kinds::of_element(element), location);
    }
    if is_tracing() {
        look_at(element, location);
    }
}

/// Looks at an element that the running thread gives away.
#[inline(always)]
pub(crate) fn trace_out<T: Any>(element: &T, operation: &'static str, location: &'static Location<'static>) {
    #[cold]
    #[inline(never)]
    fn look_at<T: Any>(element: &T, operation: &'static str, location: &'static Location<'static>) {
        give(Kinds::of_element(element), operation, location);
    }
    if is_tracing() {
        look_at(element, operation, location);
    }
}

/// Looks at what a function makes of its arguments, which the running thread has by then.
#[cold]
#[inline(never)]
pub(crate) fn trace_function<const N: usize>(
    operation: &'static str,
    arguments: [f32; N],
    result: f32,
    location: &'static Location<'static>,
) {
    let given = arguments.iter().fold(Kinds(0), |all, argument| all.and(Kinds::of_element(argument)));
    give(given, "an argument of a function", location);
    let context = current();
    let made = Kinds::of_element(&result);
    report(context, context.current.get(), made.without(given), operation, location, None, true);
    take(made, location);
}

/// Looks at an atomic operation of the running thread: what was there, what it brought, and what is there now.
pub(crate) fn trace_atomic<T: Any>([before, brought, after]: [T; 3], adds: bool, location: &'static Location<'static>) {
    if !is_tracing() {
        return;
    }
    let operation = "an atomic operation";
    give(Kinds::of_element(&brought), operation, location);
    take(Kinds::of_element(&before), location);
    let mut made = Kinds::of_element(&after);
    made = made.without(Kinds::of_element(&before)).without(Kinds::of_element(&brought));
    let numbers = [&before, &brought, &after].map(|element| number(element).map(|(number, _)| number));
    if let [Some(before), Some(brought), Some(after)] = numbers
        && adds
        && after == before
        && before.is_finite()
        && brought != 0.0
    {
        made = made.and(Kinds::of(Unusual::LostAddend));
    }
    let context = current();
    report(context, context.current.get(), made, operation, location, None, true);
}

/// Looks at a sum of tensor cores, of numbers with this smallest normal one. [`made_by_sums`] tells what came of it.
pub(crate) fn trace_sum<T: Copy + Into<f64>>(a: &[T], b: &[T], c: T, result: T, smallest: T) {
    if !is_tracing() {
        return;
    }
    let (c, result, smallest) = (c.into(), result.into(), smallest.into());
    let of = |number: f64| Kinds::of_number(number, smallest);
    let brought = a.iter().chain(b).fold(of(c), |all, &number| all.and(of(number.into())));
    let mut made = of(result).without(brought);
    let product: f64 = a.iter().zip(b).map(|(&a, &b)| a.into() * b.into()).sum();
    if product != 0.0 && product.is_finite() && result == c && c.is_finite() {
        made = made.and(Kinds::of(Unusual::LostAddend));
    }
    TRACING.with(|(_, all)| all.set(all.get().and(made)));
}

/// Reports what sums of tensor cores have made for a thread, if that is of interest.
pub(super) fn made_by_sums(
    context: &Context<'_>,
    position: usize,
    operation: &'static str,
    location: &'static Location<'static>,
) {
    if is_tracing() {
        let made = TRACING.with(|(_, made)| made.replace(Kinds(0)));
        report(context, position, made, operation, location, None, true);
    }
}

#[cold]
#[inline(never)]
fn take(kinds: Kinds, location: &'static Location<'static>) {
    let taken = &current().details().taken;
    taken.set(Taken { kinds: taken.get().kinds.and(kinds), last: Some(location) });
}

#[cold]
#[inline(never)]
fn give(kinds: Kinds, operation: &'static str, location: &'static Location<'static>) {
    let context = current();
    let taken = context.details().taken.get();
    report(context, context.current.get(), kinds.without(taken.kinds), operation, location, taken.last, false);
    take(kinds, location);
}

fn report(
    context: &Context<'_>,
    position: usize,
    kinds: Kinds,
    operation: &'static str,
    location: &'static Location<'static>,
    since: Option<&'static Location<'static>>,
    is_made_here: bool,
) {
    let Some((trace, launch)) = &context.trace else { return };
    if kinds == Kinds(0) {
        return;
    }
    context.require_headroom();
    let at = (*launch, context.block_number.get());
    let mut found = trace.lock();
    for unusual in kinds.each() {
        let known = found.first.get(&(context.kernel, unusual));
        if known.is_some_and(|(known, _)| *known <= at) {
            continue;
        }
        let first = FirstUnusual {
            kernel: context.kernel,
            block: context.block.get(),
            thread: context.threads[position].index,
            unusual,
            operation,
            line: location.into(),
            since: since.map(SourceLine::from),
            is_made_here,
        };
        found.first.insert((context.kernel, unusual), (at, first));
    }
}

impl fmt::Display for Unusual {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Nan => "NaN",
            Self::Infinity => "infinity",
            Self::Subnormal => "subnormal number",
            Self::LostAddend => "lost addend",
        })
    }
}

impl fmt::Display for FirstUnusual {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kernel, block, thread, unusual, operation, line, since, is_made_here } = self;
        let verb = if *is_made_here { "makes it" } else { "has one that the thread was not given" };
        write!(
            f,
            "kernel `{kernel}`, block {block}, thread {thread}: the first {unusual}: {operation} {verb}\n  --> {line}"
        )?;
        match since {
            Some(since) => write!(f, "\n  note: the thread has computed it behind this line\n  --> {since}"),
            None => Ok(()),
        }
    }
}
