//! One case of an operation: its arguments, runs of it, and what is to be seen afterwards.

use std::cell::OnceCell;
use std::marker::PhantomData;
use std::ops::Range;

use cuda_std::executor::UnwrittenElements;
use rayon::prelude::*;
use runtime::{Buffer, Device};
use serde::Serialize;

use crate::Error;
use crate::argument::{Argument, Values, Views};
use crate::expected::Expected;
use crate::operation::{Description, Operation, Sizes};

/// The words of a device that are guards on either side of an argument: what is between them is aligned as it would be alone.
const GUARD: usize = 64;

/// The elements that stand in as many words.
const fn guards_of(argument: &Argument) -> usize {
    GUARD * size_of::<u32>() / argument.element.bytes()
}

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
    /// Those of [`Operation::arguments`]; [`Error::TooLarge`]; [`Error::BadDistribution`]; [`Error::GivenCount`]; [`Error::GivenNumber`];
    /// [`Error::NoOutputs`].
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
            let guard = argument.element.guard(guards_of(argument));
            let mut buffer = device.upload(&argument.element.pack([&guard[..], memory, &guard].concat()))?;
            if argument.values.is_none() {
                buffer.take_as_unwritten(whole_words(argument, memory.len() / argument.element.words()));
            }
            Ok::<_, Error>(buffer)
        };
        Ok(Memory(self.arguments.iter().zip(&self.memory).map(upload).collect::<Result<_, _>>()?))
    }

    /// Launches the operation's kernels, and waits for nothing.
    pub(crate) fn launch(&self, device: &Device, memory: &mut Memory) -> Result<(), Error> {
        self.with_views(memory, |views| self.operation.launch(device, &self.sizes, views))
    }

    /// Launches the operation's kernels, once, waits for them, and looks at nothing: for what counts or times them from outside.
    ///
    /// ```
    /// # use operations::{Device, Operation, Trial};
    /// # fn first_case(operation: &dyn Operation, device: &Device) -> Result<(), operations::Error> {
    /// let case = operation.describe().last_case(device)?;
    /// Trial::new(operation, case, 1)?.launch_once(device)
    /// # }
    /// ```
    ///
    /// # Errors
    /// Those of the launch.
    pub fn launch_once(&self, device: &Device) -> Result<(), Error> {
        self.launch(device, &mut self.upload(device)?)?;
        Ok(device.synchronize()?)
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
        for ((argument, before), buffer) in self.arguments.iter().zip(&self.memory).zip(&mut memory.0) {
            if argument.is_compared() {
                require_written(argument, buffer)?;
            }
            // Of what is scratch, kernels need not write everything.
            buffer.take_as_written();
            let mut after = vec![0; buffer.len()];
            buffer.copy_to(&mut after)?;
            let after = argument.element.unpack(after, argument.len()? + 2 * guards_of(argument));
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
            let pairs = || first.par_chunks(width).zip(other.par_chunks(width)).enumerate();
            let differ = |(one, another): (&[u32], &[u32])| !argument.element.is_same(one, another);
            let Some((index, (one, another))) = pairs().find_first(|&(_, pair)| differ(pair)) else { continue };
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
            let pairs = first.par_chunks(width).zip(other.par_chunks(width));
            counts[0] += pairs.filter(|(one, another)| argument.element.is_same(one, another)).count();
            counts[1] += first.len() / width;
        }
        counts
    }

    /// The bytes of all arguments.
    pub(crate) fn total_bytes(&self) -> usize {
        let bytes = |(argument, words): (&Argument, &Vec<u32>)| {
            words.len() / argument.element.words() * argument.element.bytes()
        };
        self.arguments.iter().zip(&self.memory).map(bytes).sum()
    }

    fn compared(&self) -> impl Iterator<Item = &Argument> {
        self.arguments.iter().filter(|argument| argument.is_compared())
    }

    /// What the outputs shall be, worked out once.
    fn expected(&self) -> Result<&[Vec<Expected>], Error> {
        if let Some(expected) = self.expected.get() {
            return Ok(expected);
        }
        let numbers = |(argument, words): (&Argument, &Vec<u32>)| match &argument.values {
            Some(_) => words.par_chunks(argument.element.words()).map(|words| argument.element.number(words)).collect(),
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
            if let Some((index, it)) = expected.par_iter().enumerate().find_first(|(_, expected)| !expected.is_sound())
            {
                let (position, Expected { value, bound }) = (argument.position(index), *it);
                return Err(Error::BadBound { operation, argument: argument_name, position, value, bound });
            }
        }
        Ok(self.expected.get_or_init(|| expected))
    }
}

/// The arguments in the memory of a device.
pub(crate) struct Memory(Vec<Buffer<u32>>);

/// The words of a device that `elements` elements of an argument fill, behind the guard: not one that a guard's element shares.
fn whole_words(argument: &Argument, elements: usize) -> Range<usize> {
    GUARD..GUARD + elements * argument.element.bytes() / size_of::<u32>()
}

/// Refuses an output of which the device knows that elements have not been written.
fn require_written(argument: &Argument, buffer: &Buffer<u32>) -> Result<(), Error> {
    let len = argument.len()?;
    match buffer.check_written(whole_words(argument, len)) {
        Err(runtime::Error::Unwritten(UnwrittenElements { first, count, .. })) => {
            let elements = |words: usize| words * size_of::<u32>() / argument.element.bytes();
            let position = argument.position(elements(first - GUARD));
            Err(Error::Unwritten { argument: argument.name, position, count: elements(count).max(1), len })
        }
        other => Ok(other?),
    }
}

/// Looks at what a run has left of an argument, as words of the host: guard words, inputs, elements that nobody has written. The elements
/// without the guard words.
fn examine(argument: &Argument, before: &[u32], mut after: Vec<u32>) -> Result<Vec<u32>, Error> {
    let (width, name) = (argument.element.words(), argument.name);
    let guard = argument.element.guard(guards_of(argument));
    let behind = after.split_off(guard.len() + before.len());
    let elements = after.split_off(guard.len());
    let written = |words: &[u32]| words.iter().zip(&guard).position(|(word, guard)| word != guard);
    // How far something is from the elements, in words of 32 bits, as memory has them.
    let words_of = |words: usize| (words * argument.element.bytes()).div_ceil(width * size_of::<u32>());
    if let Some(index) = written(&after) {
        let place = format!("{} words before the first element of", words_of(guard.len() - index));
        return Err(Error::Guard { argument: name, place, bits: after[index] });
    }
    if let Some(index) = written(&behind) {
        let place = format!("{} words after the last element of", words_of(index + 1));
        return Err(Error::Guard { argument: name, place, bits: behind[index] });
    }
    let len = elements.len() / width;
    let element = |words: &[u32], index: usize| argument.element.number(&words[index * width..(index + 1) * width]);
    match argument.role {
        crate::Role::Input => {
            let changed = elements.par_iter().zip(before).position_first(|(after, before)| after != before);
            if let Some(index) = changed.map(|word| word / width) {
                let (position, before, after) =
                    (argument.position(index), element(before, index), element(&elements, index));
                return Err(Error::InputChanged { argument: name, position, before, after });
            }
        }
        // An integer may be what the guard words are.
        crate::Role::Output if !argument.element.is_integral() => {
            let is_unwritten = |words: &[u32]| *words == guard[..width];
            if let Some(index) = elements.par_chunks(width).position_first(is_unwritten) {
                let count = elements.par_chunks(width).filter(|words| is_unwritten(words)).count();
                return Err(Error::Unwritten { argument: name, position: argument.position(index), count, len });
            }
        }
        crate::Role::Output | crate::Role::InOut | crate::Role::Scratch => {}
    }
    Ok(elements)
}

/// What a part of an output has: how accurate the right elements are, the first wrong one, and how many are.
#[derive(Default)]
struct Judged {
    accuracy: Accuracy,
    first_wrong: Option<usize>,
    wrong: usize,
}

impl Judged {
    /// Of one element.
    fn of(index: usize, expected: &Expected, error: f64) -> Self {
        let mut judged = Self { accuracy: Accuracy { elements: 1, ..Accuracy::default() }, ..Self::default() };
        if !expected.allows(error) {
            (judged.first_wrong, judged.wrong) = (Some(index), 1);
        } else if error > 0.0 {
            (judged.accuracy.error, judged.accuracy.part_of_bound) = (error, error / expected.bound);
        }
        judged
    }

    /// Of both together: largest errors, lowest index, counts, in whatever order parts come.
    fn and(self, other: Self) -> Self {
        let first_wrong = match (self.first_wrong, other.first_wrong) {
            (Some(one), Some(another)) => Some(one.min(another)),
            (one, another) => one.or(another),
        };
        Self { accuracy: self.accuracy.and(other.accuracy), first_wrong, wrong: self.wrong + other.wrong }
    }
}

/// Compares every element of an output with what it shall be.
fn judge(argument: &Argument, expected: &[Expected], words: &[u32]) -> Result<Accuracy, Error> {
    let width = argument.element.words();
    let error_of = |expected: &Expected, words| expected.error_of(argument.element.number(words), argument.element);
    let elements = expected.par_iter().zip(words.par_chunks(width)).enumerate();
    let Judged { accuracy, first_wrong, wrong } = elements
        .map(|(index, (expected, words))| Judged::of(index, expected, error_of(expected, words)))
        .reduce(Judged::default, Judged::and);
    let Some(index) = first_wrong else { return Ok(accuracy) };
    let (words, Expected { value, bound }) = (&words[index * width..(index + 1) * width], expected[index]);
    Err(Error::Wrong {
        argument: argument.name,
        position: argument.position(index),
        found: argument.element.number(words),
        bits: words.iter().rev().fold(0, |bits, &word| bits << 32 | u64::from(word)),
        value,
        error: error_of(&expected[index], words),
        bound,
        wrong,
        len: expected.len(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guards_of_elements_of_two_bytes_are_seen_one_by_one() {
        let argument = Argument::output("y", &[3]).of(crate::Element::Bf16);
        let guards = guards_of(&argument);
        assert_eq!(guards, 128, "256 bytes");
        let device = || argument.element.pack(argument.element.guard(2 * guards + 3));
        let seen = |change: &dyn Fn(&mut [u32])| {
            let mut memory = device();
            // The three elements: the third one shares a word with the first guard behind.
            (memory[64], memory[65]) = (0x4000_3F80, 0x7FAD_4040);
            change(&mut memory);
            let after = argument.element.unpack(memory, 3 + 2 * guards);
            examine(&argument, &argument.element.guard(3), after).map_err(|error| error.to_string())
        };
        assert_eq!(seen(&|_| ()), Ok(vec![0x3F80, 0x4000, 0x4040]));
        let behind = seen(&|memory| memory[65] = 0x1234_4040).unwrap_err();
        assert!(behind.contains("1 words after the last element of") && behind.contains("0x1234"), "{behind}");
        let before = seen(&|memory| memory[63] = 0x1234_7FAD).unwrap_err();
        assert!(before.contains("1 words before the first element of"), "{before}");
        let unwritten = seen(&|memory| memory[64] = 0x7FAD_3F80).unwrap_err();
        assert!(unwritten.contains("[1]"), "{unwritten}");
    }

    #[test]
    fn a_judgement_does_not_depend_on_the_number_of_threads() {
        let argument = Argument::output("y", &[10_000]);
        let value = |i: usize| (i as f64).sqrt();
        let expected: Vec<_> = (0..10_000).map(|i| Expected::within(value(i), 1e-3 + i as f64 * 1e-7)).collect();
        let mut words: Vec<u32> = (0..10_000).map(|i| (value(i) as f32 + 1e-6 * (i % 13) as f32).to_bits()).collect();
        let of_threads = |count, words: &[u32]| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(count).build().unwrap();
            pool.install(|| judge(&argument, &expected, words).map_err(|error| error.to_string()))
        };
        let right = of_threads(1, &words).unwrap();
        assert!(right.elements == 10_000 && right.error > 1e-6 && right.part_of_bound < 0.1, "{right:?}");
        assert_eq!(of_threads(5, &words), Ok(right));
        for wrong in [7777, 1234, 9000] {
            words[wrong] = 0;
        }
        let wrong = of_threads(1, &words).unwrap_err();
        assert!(wrong.contains("[1234]") && wrong.contains("3 of 10000"), "{wrong}");
        assert_eq!(of_threads(5, &words), Err(wrong));
    }
}
