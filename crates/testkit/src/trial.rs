//! One case of an operation: its arguments, runs of it, and what is to be seen afterwards.

use std::cell::OnceCell;
use std::marker::PhantomData;

use runtime::{Buffer, Device};
use serde::Serialize;

use crate::Error;
use crate::argument::{Argument, Values, Views};
use crate::expected::Expected;
use crate::operation::{Description, Operation, Sizes};

/// The bytes of guard words on either side of an argument, in words: what is between them is aligned as it would be alone.
const GUARD: usize = 64;

/// One case: sizes, and numbers for the arguments.
pub struct Trial<'a> {
    pub(crate) operation: &'a dyn Operation,
    pub(crate) description: Description,
    pub(crate) sizes: Sizes,
    arguments: Vec<Argument>,
    /// The elements before a launch, as words of 32 bits.
    memory: Vec<Vec<u32>>,
    expected: OnceCell<Vec<Vec<Expected>>>,
}

/// What a run has left in the outputs, as words of 32 bits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outputs(Vec<Vec<u32>>);

/// How far results were from what they shall be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Accuracy {
    /// How many elements were compared.
    pub elements: usize,
    /// The largest error.
    pub error: f64,
    /// The largest error as a part of what was allowed; 0 where nothing was allowed, and nothing was wrong.
    pub part_of_bound: f64,
}

impl Accuracy {
    /// Of both together.
    pub(crate) fn and(self, other: Self) -> Self {
        Self {
            elements: self.elements + other.elements,
            error: self.error.max(other.error),
            part_of_bound: self.part_of_bound.max(other.part_of_bound),
        }
    }
}

impl<'a> Trial<'a> {
    /// A case of an operation. The same seed gives the same numbers.
    ///
    /// # Errors
    /// Those of [`Operation::arguments`]; [`Error::TooLarge`]; [`Error::BadDistribution`]; [`Error::NoOutputs`].
    pub fn new(operation: &'a dyn Operation, sizes: Sizes, seed: u64) -> Result<Self, Error> {
        let description = operation.describe();
        let arguments = operation.arguments(&sizes)?;
        if !arguments.iter().any(Argument::is_compared) {
            return Err(Error::NoOutputs { operation: description.name });
        }
        // Each argument has numbers of its own.
        let seed_of = |index: usize| seed.wrapping_add((index as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15));
        let memory =
            arguments.iter().enumerate().map(|(index, it)| it.memory(seed_of(index))).collect::<Result<_, _>>()?;
        Ok(Self { operation, description, sizes, arguments, memory, expected: OnceCell::new() })
    }

    /// The arguments in the memory of a device, with guard words.
    pub(crate) fn upload(&self, device: &Device) -> Result<Memory, Error> {
        let upload = |(argument, memory): (&Argument, &Vec<u32>)| {
            let guard = argument.element.guard(GUARD / argument.element.words());
            device.upload(&[&guard[..], memory, &guard].concat())
        };
        Ok(Memory(self.arguments.iter().zip(&self.memory).map(upload).collect::<Result<_, _>>()?))
    }

    /// Launches the operation's kernels, and waits for nothing.
    pub(crate) fn launch(&self, device: &Device, memory: &mut Memory) -> Result<(), Error> {
        self.with_views(memory, |views| self.operation.launch(device, &self.sizes, views))
    }

    /// Does something with the arguments.
    pub(crate) fn with_views(
        &self,
        memory: &mut Memory,
        action: impl FnOnce(&Views<'_>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let mut addresses = Vec::with_capacity(memory.0.len());
        for buffer in &mut memory.0 {
            addresses.push(buffer.view_mut().as_mut_ptr().wrapping_add(GUARD));
        }
        let views = Views {
            operation: self.description.name,
            arguments: &self.arguments,
            addresses,
            lens: self.arguments.iter().map(Argument::len).collect::<Result<_, _>>()?,
            memory: PhantomData,
        };
        action(&views)
    }

    /// Runs the operation once, and looks at everything but the values of the outputs: the guard words, the inputs, and whether every
    /// element of the outputs has been written.
    ///
    /// # Errors
    /// Those of the launch; [`Error::Guard`], [`Error::InputChanged`], [`Error::Unwritten`].
    pub fn run(&self, device: &Device) -> Result<Outputs, Error> {
        self.run_with(device, |views| self.operation.launch(device, &self.sizes, views))
    }

    /// The same of something else on the arguments, in place of the operation's kernels.
    pub(crate) fn run_with(
        &self,
        device: &Device,
        action: impl FnOnce(&Views<'_>) -> Result<(), Error>,
    ) -> Result<Outputs, Error> {
        let mut memory = self.upload(device)?;
        self.with_views(&mut memory, action)?;
        device.synchronize()?;
        let mut outputs = Vec::new();
        for ((argument, before), buffer) in self.arguments.iter().zip(&self.memory).zip(&memory.0) {
            let mut after = vec![0; buffer.len()];
            buffer.copy_to(&mut after)?;
            let elements = examine(argument, before, after)?;
            if argument.is_compared() {
                outputs.push(elements);
            }
        }
        Ok(Outputs(outputs))
    }

    /// Compares every element of the outputs with what it shall be.
    ///
    /// # Errors
    /// [`Error::Wrong`]; those of the reference: [`Error::ReferenceCount`], [`Error::ReferenceLength`], [`Error::BadBound`].
    pub fn judge(&self, outputs: &Outputs) -> Result<Accuracy, Error> {
        let mut accuracy = Accuracy::default();
        for ((argument, expected), words) in self.compared().zip(self.expected()?).zip(&outputs.0) {
            accuracy = accuracy.and(judge(argument, expected, words)?);
        }
        Ok(accuracy)
    }

    /// Compares the bits of two runs; `runs` says which, for the error: `in runs 1 and 2`. Which NaN comes of an operation is the processor's: any is the same as any other.
    ///
    /// # Errors
    /// [`Error::Varies`].
    pub fn compare(&self, runs: &str, first: &Outputs, other: &Outputs) -> Result<(), Error> {
        for ((argument, first), other) in self.compared().zip(&first.0).zip(&other.0) {
            let width = argument.element.words();
            let pairs = || first.chunks(width).zip(other.chunks(width)).enumerate();
            let differ = |(one, another): (&[u32], &[u32])| !argument.element.is_same(one, another);
            let Some((index, (one, another))) = pairs().find(|&(_, pair)| differ(pair)) else { continue };
            return Err(Error::Varies {
                argument: argument.name,
                position: argument.position(index),
                first: argument.element.number(one),
                other: argument.element.number(another),
                runs: runs.to_owned(),
                count: pairs().filter(|&(_, pair)| differ(pair)).count(),
                len: first.len() / width,
            });
        }
        Ok(())
    }

    /// How many elements of two runs have the same bits, and of how many.
    pub(crate) fn same_bits(&self, first: &Outputs, other: &Outputs) -> [usize; 2] {
        let mut counts = [0; 2];
        for ((argument, first), other) in self.compared().zip(&first.0).zip(&other.0) {
            let width = argument.element.words();
            let pairs = first.chunks(width).zip(other.chunks(width));
            counts[0] += pairs.filter(|(one, another)| argument.element.is_same(one, another)).count();
            counts[1] += first.len() / width;
        }
        counts
    }

    /// The bytes of all arguments.
    pub(crate) fn total_bytes(&self) -> usize {
        self.memory.iter().map(|words| 4 * words.len()).sum()
    }

    fn compared(&self) -> impl Iterator<Item = &Argument> {
        self.arguments.iter().filter(|argument| argument.is_compared())
    }

    /// What the outputs shall be, worked out once.
    fn expected(&self) -> Result<&[Vec<Expected>], Error> {
        if let Some(expected) = self.expected.get() {
            return Ok(expected);
        }
        let numbers = |(argument, words): (&Argument, &Vec<u32>)| match argument.values {
            Some(_) => words.chunks(argument.element.words()).map(|words| argument.element.number(words)).collect(),
            None => Vec::new(),
        };
        let numbers = self.arguments.iter().zip(&self.memory).map(numbers).collect();
        let operation = self.description.name;
        let values = Values { operation, arguments: &self.arguments, numbers };
        let expected = self.operation.expected(&self.sizes, &values)?;
        let outputs = self.compared().count();
        if expected.len() != outputs {
            return Err(Error::ReferenceCount { operation, found: expected.len(), outputs });
        }
        for (argument, expected) in self.compared().zip(&expected) {
            let (argument_name, found, len) = (argument.name, expected.len(), argument.len()?);
            if found != len {
                return Err(Error::ReferenceLength { operation, argument: argument_name, found, len });
            }
            if let Some((index, it)) = expected.iter().enumerate().find(|(_, expected)| !expected.is_sound()) {
                let (position, Expected { value, bound }) = (argument.position(index), *it);
                return Err(Error::BadBound { operation, argument: argument_name, position, value, bound });
            }
        }
        Ok(self.expected.get_or_init(|| expected))
    }
}

/// The arguments in the memory of a device.
pub(crate) struct Memory(Vec<Buffer<u32>>);

/// Looks at what a run has left of an argument: guard words, inputs, elements that nobody has written. The elements without the guard
/// words.
fn examine(argument: &Argument, before: &[u32], mut after: Vec<u32>) -> Result<Vec<u32>, Error> {
    let (width, name) = (argument.element.words(), argument.name);
    let guard = argument.element.guard(GUARD / width);
    let behind = after.split_off(GUARD + before.len());
    let elements = after.split_off(GUARD);
    let written = |words: &[u32]| words.iter().zip(&guard).position(|(word, guard)| word != guard);
    if let Some(index) = written(&after) {
        let place = format!("{} words before the first element of", GUARD - index);
        return Err(Error::Guard { argument: name, place, bits: after[index] });
    }
    if let Some(index) = written(&behind) {
        let place = format!("{} words after the last element of", index + 1);
        return Err(Error::Guard { argument: name, place, bits: behind[index] });
    }
    let len = elements.len() / width;
    let element = |words: &[u32], index: usize| argument.element.number(&words[index * width..(index + 1) * width]);
    match argument.role {
        crate::Role::Input => {
            let changed = elements.iter().zip(before).position(|(after, before)| after != before);
            if let Some(index) = changed.map(|word| word / width) {
                let (position, before, after) =
                    (argument.position(index), element(before, index), element(&elements, index));
                return Err(Error::InputChanged { argument: name, position, before, after });
            }
        }
        // An integer may be what the guard words are.
        crate::Role::Output if !argument.element.is_integral() => {
            let unwritten = || elements.chunks(width).enumerate().filter(|(_, words)| *words == &guard[..width]);
            if let Some((index, _)) = unwritten().next() {
                let (position, count) = (argument.position(index), unwritten().count());
                return Err(Error::Unwritten { argument: name, position, count, len });
            }
        }
        crate::Role::Output | crate::Role::InOut | crate::Role::Scratch => {}
    }
    Ok(elements)
}

/// Compares every element of an output with what it shall be.
fn judge(argument: &Argument, expected: &[Expected], words: &[u32]) -> Result<Accuracy, Error> {
    let width = argument.element.words();
    let mut accuracy = Accuracy { elements: expected.len(), ..Accuracy::default() };
    let mut first = None;
    let mut wrong = 0;
    for (index, (expected, words)) in expected.iter().zip(words.chunks(width)).enumerate() {
        let error = expected.error_of(argument.element.number(words), argument.element);
        if !expected.allows(error) {
            wrong += 1;
            first.get_or_insert((index, words, *expected, error));
        } else if error > 0.0 {
            accuracy.error = accuracy.error.max(error);
            accuracy.part_of_bound = accuracy.part_of_bound.max(error / expected.bound);
        }
    }
    let Some((index, words, Expected { value, bound }, error)) = first else { return Ok(accuracy) };
    Err(Error::Wrong {
        argument: argument.name,
        position: argument.position(index),
        found: argument.element.number(words),
        bits: words.iter().rev().fold(0, |bits, &word| bits << 32 | u64::from(word)),
        value,
        error,
        bound,
        wrong,
        len: expected.len(),
    })
}
