//! The arguments of an operation: what they are, the numbers in them, and how a launch gets at them.
//!
//! ```text
//!  guard words │ elements │ guard words        one buffer for each argument
//!     256 B    │          │    256 B
//! ```

use std::marker::PhantomData;

use cuda_std::atomic::AtomicElement;
use cuda_std::{Bf16, DisjointSlice, F16, GlobalAtomics, GlobalSlice, GlobalSliceMut};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use rayon::prelude::*;

use crate::error::{Error, Nearest};
use crate::numbers::{Numbers, check_given};

/// The elements whose numbers one thread makes one after the other.
const CHUNK: usize = 1 << 16;

/// By how much the seeds of neighbouring chunks differ: not as those of neighbouring arguments do.
const CHUNK_SEED: u64 = 0xD1B5_4A32_D192_ED03;

/// What the elements of an argument are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Element {
    /// IEEE binary32.
    F32,
    /// bfloat16, the upper half of an fp32 number.
    Bf16,
    /// IEEE binary16.
    F16,
    /// IEEE binary64.
    F64,
    /// Signed, of 32 bits.
    I32,
    /// Unsigned, of 32 bits.
    U32,
    /// Unsigned, of 64 bits. References know it in double precision: exactly up to 2⁵³.
    U64,
}

/// What an argument is there for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Read, and never written.
    Input,
    /// Written, and compared with what it shall be. Every element has to be written.
    Output,
    /// Read first, then written, and compared.
    InOut,
    /// Memory for what lies between two kernels. Nobody looks at it afterwards.
    Scratch,
}

/// Where the numbers of an input come from.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Distribution {
    /// All numbers between these two are equally likely.
    Uniform(f64, f64),
    /// The normal distribution, with mean 0 and variance 1.
    Normal,
    /// Magnitudes between these two positive numbers, all exponents equally likely; either sign.
    LogUniform(f64, f64),
    /// Integers from the first to the last.
    Integers(i64, i64),
    /// Every other number uniform in [−1, 1]; the rest zeros of both signs, infinities, NaN, the smallest and the largest numbers,
    /// subnormal ones.
    Special,
}

/// An argument of an operation.
#[derive(Clone, Debug)]
pub struct Argument {
    pub(crate) name: &'static str,
    pub(crate) role: Role,
    pub(crate) element: Element,
    pub(crate) extents: Vec<usize>,
    /// Of outputs and scratch memory, none.
    pub(crate) values: Option<Numbers>,
}

impl Argument {
    /// An array of `f32` that is read. The last extent is of neighbours in memory.
    pub fn input(name: &'static str, extents: &[usize], values: impl Into<Numbers>) -> Self {
        Self::new(name, Role::Input, extents, Some(values.into()))
    }

    /// An array of `f32` that is written.
    pub fn output(name: &'static str, extents: &[usize]) -> Self {
        Self::new(name, Role::Output, extents, None)
    }

    /// An array of `f32` that is read and written.
    pub fn in_out(name: &'static str, extents: &[usize], values: impl Into<Numbers>) -> Self {
        Self::new(name, Role::InOut, extents, Some(values.into()))
    }

    /// An array of `f32` that the kernels of the operation have for themselves.
    pub fn scratch(name: &'static str, extents: &[usize]) -> Self {
        Self::new(name, Role::Scratch, extents, None)
    }

    fn new(name: &'static str, role: Role, extents: &[usize], values: Option<Numbers>) -> Self {
        Self { name, role, element: Element::F32, extents: extents.to_vec(), values }
    }

    /// The same of other elements.
    pub fn of(self, element: Element) -> Self {
        Self { element, ..self }
    }

    /// How many elements it has, whose bytes fit an address.
    pub(crate) fn len(&self) -> Result<usize, Error> {
        let len = self.extents.iter().try_fold(1usize, |len, &extent| len.checked_mul(extent));
        let fits = |len: &usize| len.checked_mul(8).is_some_and(|bytes| bytes <= isize::MAX as usize);
        len.filter(fits).ok_or_else(|| Error::TooLarge { argument: self.name, extents: self.extents.clone() })
    }

    /// What has to be moved at least: read once, written once, or both.
    pub(crate) fn least_bytes_moved(&self) -> f64 {
        let times = match self.role {
            Role::Input | Role::Output => 1.0,
            Role::InOut => 2.0,
            Role::Scratch => 0.0,
        };
        let elements: f64 = self.extents.iter().map(|&extent| extent as f64).product();
        times * elements * self.element.bytes() as f64
    }

    /// Where an element is, by its extents.
    pub(crate) fn position(&self, index: usize) -> String {
        let mut left = index;
        let mut coordinates: Vec<String> = (self.extents.iter().rev())
            .map(|&extent| {
                let coordinate = left % extent.max(1);
                left /= extent.max(1);
                coordinate.to_string()
            })
            .collect();
        coordinates.reverse();
        format!("[{}]", coordinates.join(", "))
    }

    /// Whether it is compared with what it shall be.
    pub(crate) fn is_compared(&self) -> bool {
        matches!(self.role, Role::Output | Role::InOut)
    }

    /// Its memory before a launch, without guard words: its numbers, or guard words all over, so that what is not written shows.
    pub(crate) fn memory(&self, seed: u64) -> Result<Vec<u32>, Error> {
        let len = self.len()?;
        let width = self.element.words();
        let values = match &self.values {
            None => return Ok(self.element.guard(len)),
            Some(Numbers::Given(numbers)) => {
                check_given(self, numbers, len)?;
                let mut words = vec![0; len * width];
                let elements = words.par_chunks_mut(width).zip(&numbers[..]);
                elements.for_each(|(element, number)| self.element.write(element, *number));
                return Ok(words);
            }
            Some(Numbers::Drawn(distribution)) => distribution,
        };
        values.check(self)?;
        // Each chunk has a generator of its own, so the numbers do not depend on how many threads make them.
        let mut words = vec![0; len * width];
        words.par_chunks_mut(CHUNK * width).enumerate().for_each(|(chunk, words)| {
            let mut generator = StdRng::seed_from_u64(seed.wrapping_add((chunk as u64).wrapping_mul(CHUNK_SEED)));
            for element in words.chunks_mut(width) {
                self.element.write(element, values.number(&mut generator, self.element));
            }
        });
        Ok(words)
    }
}

impl Element {
    /// How many words of 32 bits an element has on the host, where none has less than one.
    pub(crate) const fn words(self) -> usize {
        match self {
            Self::F32 | Self::Bf16 | Self::F16 | Self::I32 | Self::U32 => 1,
            Self::F64 | Self::U64 => 2,
        }
    }

    /// How many bytes an element has on a device.
    pub(crate) const fn bytes(self) -> usize {
        match self {
            Self::Bf16 | Self::F16 => 2,
            Self::F32 | Self::I32 | Self::U32 => 4,
            Self::F64 | Self::U64 => 8,
        }
    }

    /// Elements as a device has them, from their words on the host. What is left of the last word of the device is a guard.
    pub(crate) fn pack(self, words: Vec<u32>) -> Vec<u32> {
        if self.bytes() != 2 {
            return words;
        }
        let guard = self.guard(1)[0];
        words.par_chunks(2).map(|pair| pair[0] | pair.get(1).unwrap_or(&guard) << 16).collect()
    }

    /// The words on the host of the first `len` elements that a device has.
    pub(crate) fn unpack(self, words: Vec<u32>, len: usize) -> Vec<u32> {
        if self.bytes() != 2 {
            return words;
        }
        (0..len).into_par_iter().map(|index| words[index / 2] >> (16 * (index % 2)) & 0xFFFF).collect()
    }

    /// As many elements of what stands in memory where nothing is, or where nothing has been written: a NaN, so that a result into
    /// which it was read is wrong; an unusual one, so that a write to its place shows; a signalling one, because whatever is computed
    /// with it is quiet, and thus another.
    pub(crate) fn guard(self, len: usize) -> Vec<u32> {
        match self {
            Self::F32 | Self::I32 | Self::U32 => vec![0x7F80_DEAD; len],
            Self::Bf16 => vec![0x7FAD; len],
            Self::F16 => vec![0x7DAD; len],
            // The word with the exponent comes second.
            Self::F64 | Self::U64 => [0x7F80_DEAD, 0x7FF0_DEAD].repeat(len),
        }
    }

    /// Writes a number, rounded, to the words of an element.
    fn write(self, words: &mut [u32], value: f64) {
        match self {
            Self::F32 => words[0] = (value as f32).to_bits(),
            Self::Bf16 => words[0] = bf16(value).to_bits().into(),
            Self::F16 => words[0] = f16(value).to_bits().into(),
            Self::I32 => words[0] = (value as i32).cast_unsigned(),
            Self::U32 => words[0] = value as u32,
            Self::F64 | Self::U64 => {
                let bits = if self == Self::F64 { value.to_bits() } else { value as u64 };
                words.copy_from_slice(&[bits as u32, (bits >> 32) as u32]);
            }
        }
    }

    /// The number in these words, of which there are as many as an element has.
    pub(crate) fn number(self, words: &[u32]) -> f64 {
        match self {
            Self::F32 => f64::from(f32::from_bits(words[0])),
            Self::Bf16 => Bf16::from_bits(words[0] as u16).to_f32().into(),
            Self::F16 => F16::from_bits(words[0] as u16).to_f32().into(),
            Self::I32 => words[0].cast_signed().into(),
            Self::U32 => f64::from(words[0]),
            Self::F64 => f64::from_bits(u64::from(words[1]) << 32 | u64::from(words[0])),
            Self::U64 => (u64::from(words[1]) << 32 | u64::from(words[0])) as f64,
        }
    }

    /// Whether elements are whole numbers, none of which is impossible.
    pub(crate) const fn is_integral(self) -> bool {
        self.whole_numbers().is_some()
    }

    /// The least and the greatest whole number that an element can be, if elements are whole numbers: of those that an `i64` can be, too.
    pub(crate) const fn whole_numbers(self) -> Option<(i64, i64)> {
        match self {
            Self::I32 => Some((i32::MIN as i64, i32::MAX as i64)),
            Self::U32 => Some((0, u32::MAX as i64)),
            Self::U64 => Some((0, i64::MAX)),
            Self::F32 | Self::Bf16 | Self::F16 | Self::F64 => None,
        }
    }

    /// Whether two elements have the same bits, or are both NaN.
    pub(crate) fn is_same(self, one: &[u32], another: &[u32]) -> bool {
        one == another || self.number(one).is_nan() && self.number(another).is_nan()
    }

    /// The floating-point number of this kind that is nearest to a value.
    pub(crate) fn rounded(self, value: f64) -> f64 {
        match self {
            Self::F32 => f64::from(value as f32),
            Self::Bf16 => bf16(value).to_f32().into(),
            Self::F16 => f16(value).to_f32().into(),
            // An integer that does not fit stays what it is: no element is equal to it.
            Self::F64 | Self::I32 | Self::U32 | Self::U64 => value,
        }
    }
}

/// The bf16 number that is nearest to a value, ties to even: rounded once, though by way of fp32.
fn bf16(value: f64) -> Bf16 {
    Bf16::from_f32(to_odd(value))
}

/// The fp16 number that is nearest to a value, in the same way.
fn f16(value: f64) -> F16 {
    F16::from_f32(to_odd(value))
}

/// The value itself, or that one of the two fp32 numbers about it whose last bit is set: on the right side of every tie of a format with fewer bits.
fn to_odd(value: f64) -> f32 {
    let nearest = value as f32;
    let is_below = f64::from(nearest).abs() < value.abs();
    let is_above = f64::from(nearest).abs() > value.abs();
    f32::from_bits(match nearest.to_bits() {
        bits if bits & 1 == 1 || !(is_below || is_above) => bits,
        bits if is_below => bits + 1,
        bits => bits - 1,
    })
}

impl Distribution {
    fn check(&self, argument: &Argument) -> Result<(), Error> {
        let whole = argument.element.whole_numbers();
        let is_integral = whole.is_some();
        let is_right = match *self {
            Self::Uniform(low, high) => !is_integral && low.is_finite() && high.is_finite() && low <= high,
            Self::LogUniform(low, high) => !is_integral && 0.0 < low && low <= high && high.is_finite(),
            Self::Normal | Self::Special => !is_integral,
            Self::Integers(low, high) => {
                let (least, greatest) = whole.unwrap_or((i64::MIN, i64::MAX));
                low <= high && least <= low && high <= greatest && high.checked_sub(low).is_some()
            }
        };
        let (argument, element) = (argument.name, argument.element);
        if is_right { Ok(()) } else { Err(Error::BadDistribution { argument, element, distribution: *self }) }
    }

    fn number(&self, generator: &mut StdRng, element: Element) -> f64 {
        match *self {
            Self::Uniform(low, high) => generator.random_range(low..=high),
            Self::Normal => {
                // Box and Muller's. The first number is not zero.
                let (u, v): (f64, f64) = (1.0 - generator.random::<f64>(), generator.random());
                (-2.0 * u.ln()).sqrt() * (std::f64::consts::TAU * v).cos()
            }
            Self::LogUniform(low, high) => {
                let magnitude = generator.random_range(low.ln()..=high.ln()).exp().clamp(low, high);
                if generator.random() { magnitude } else { -magnitude }
            }
            Self::Integers(low, high) => generator.random_range(low..=high) as f64,
            Self::Special if generator.random() => generator.random_range(-1.0..=1.0),
            Self::Special => {
                let (least, most) = match element {
                    Element::F64 => (f64::MIN_POSITIVE, f64::MAX),
                    Element::Bf16 => (f64::from(f32::MIN_POSITIVE), Bf16::from_bits(0x7F7F).to_f32().into()),
                    Element::F16 => (F16::from_bits(0x0400).to_f32().into(), F16::from_bits(0x7BFF).to_f32().into()),
                    Element::F32 | Element::I32 | Element::U32 | Element::U64 => {
                        (f64::from(f32::MIN_POSITIVE), f64::from(f32::MAX))
                    }
                };
                let magnitudes = [0.0, f64::INFINITY, f64::NAN, least, most, least / 256.0, 1.0];
                let magnitude = magnitudes[generator.random_range(0..magnitudes.len())];
                if generator.random() { magnitude } else { -magnitude }
            }
        }
    }
}

/// The numbers of the arguments before a launch, in double precision, for a reference.
pub struct Values<'a> {
    pub(crate) operation: &'static str,
    pub(crate) arguments: &'a [Argument],
    pub(crate) numbers: Vec<Vec<f64>>,
}

impl Values<'_> {
    /// Those of an input, or of an output that is read first.
    ///
    /// # Errors
    /// [`Error::UnknownArgument`], with the three names that are nearest, also for what has no values before a launch.
    pub fn of(&self, name: &str) -> Result<&[f64], Error> {
        let has_values = |argument: &Argument| argument.values.is_some();
        let index = find(self.operation, self.arguments, name, has_values)?;
        Ok(&self.numbers[index])
    }
}

/// The arguments in the memory of a device, for a launch.
pub struct Views<'a> {
    pub(crate) operation: &'static str,
    pub(crate) arguments: &'a [Argument],
    /// The address of the first element of each.
    pub(crate) addresses: Vec<*mut u32>,
    pub(crate) lens: Vec<usize>,
    pub(crate) memory: PhantomData<&'a mut [u32]>,
}

impl<'a> Views<'a> {
    /// An argument as a kernel that reads it takes it.
    ///
    /// # Errors
    /// [`Error::UnknownArgument`], with the three names that are nearest; [`Error::ElementMismatch`].
    pub fn read<T: ElementType>(&self, name: &str) -> Result<GlobalSlice<'a, T>, Error> {
        let index = self.find::<T>(name, |_| true)?;
        // SAFETY: as many elements, in a buffer that is borrowed for as long. All bit patterns are numbers, and the address is a
        // multiple of 256. Kernels run one after the other, and a launch refuses one that writes to what it reads by another view.
        Ok(unsafe { GlobalSlice::from_raw_parts(self.addresses[index].cast_const().cast(), self.lens[index]) })
    }

    /// An argument as a kernel that writes it takes it. Inputs are not written.
    ///
    /// # Errors
    /// Those of [`Views::read`]; [`Error::UnknownArgument`] also for an input.
    pub fn write<T: ElementType>(&self, name: &str) -> Result<GlobalSliceMut<'a, T>, Error> {
        let index = self.find::<T>(name, |argument| argument.role != Role::Input)?;
        // SAFETY: as for `read`; the buffer is borrowed mutably.
        Ok(unsafe { GlobalSliceMut::from_raw_parts(self.addresses[index].cast(), self.lens[index]) })
    }

    /// An argument as a kernel takes it each of whose threads has elements of its own. Inputs are not written.
    ///
    /// # Errors
    /// Those of [`Views::write`].
    pub fn disjoint<T: ElementType>(&self, name: &str) -> Result<DisjointSlice<'a, T>, Error> {
        let view = self.write::<T>(name)?;
        // SAFETY: as for the view, which is given up for this one.
        Ok(unsafe { DisjointSlice::from_raw_parts(view.as_mut_ptr(), view.len()) })
    }

    /// An argument as a kernel takes it whose threads access its elements atomically. Inputs are not written.
    ///
    /// # Errors
    /// Those of [`Views::write`].
    pub fn atomics<T: ElementType + AtomicElement>(&self, name: &str) -> Result<GlobalAtomics<'a, T>, Error> {
        let view = self.write::<T>(name)?;
        // SAFETY: as for the view, which is given up for this one.
        Ok(unsafe { GlobalAtomics::from_raw_parts(view.as_mut_ptr(), view.len()) })
    }

    fn find<T: ElementType>(&self, name: &str, is_right: impl Fn(&Argument) -> bool) -> Result<usize, Error> {
        let index = find(self.operation, self.arguments, name, is_right)?;
        let element = self.arguments[index].element;
        if element != T::ELEMENT {
            let (operation, argument) = (self.operation, self.arguments[index].name);
            return Err(Error::ElementMismatch { operation, argument, element, asked: T::ELEMENT });
        }
        Ok(index)
    }
}

/// The argument of this name, if it is as it has to be.
fn find(
    operation: &'static str,
    arguments: &[Argument],
    name: &str,
    is_right: impl Fn(&Argument) -> bool,
) -> Result<usize, Error> {
    let right = || arguments.iter().filter(|argument| is_right(argument));
    arguments.iter().position(|argument| argument.name == name && is_right(argument)).ok_or_else(|| {
        let known: Vec<_> = right().map(|argument| argument.name).collect();
        Error::UnknownArgument { operation, name: name.to_owned(), nearest: Nearest::of(name, &known) }
    })
}

/// A type of elements that arguments can have.
pub trait ElementType: cuda_std::Element + sealed::Sealed {
    /// Which one.
    const ELEMENT: Element;
}

impl ElementType for f32 {
    const ELEMENT: Element = Element::F32;
}

impl ElementType for Bf16 {
    const ELEMENT: Element = Element::Bf16;
}

impl ElementType for F16 {
    const ELEMENT: Element = Element::F16;
}

impl ElementType for i32 {
    const ELEMENT: Element = Element::I32;
}

impl ElementType for f64 {
    const ELEMENT: Element = Element::F64;
}

impl ElementType for u32 {
    const ELEMENT: Element = Element::U32;
}

impl ElementType for u64 {
    const ELEMENT: Element = Element::U64;
}

/// The address of elements is cast to a pointer to such a type, so nobody else may say that one has so many bytes.
mod sealed {
    pub trait Sealed {}
    impl Sealed for f32 {}
    impl Sealed for cuda_std::Bf16 {}
    impl Sealed for cuda_std::F16 {}
    impl Sealed for i32 {}
    impl Sealed for f64 {}
    impl Sealed for u32 {}
    impl Sealed for u64 {}
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(element: Element, values: Distribution) -> Vec<f64> {
        let words = Argument::input("x", &[10, 100], values).of(element).memory(7).unwrap();
        words.chunks(element.words()).map(|words| element.number(words)).collect()
    }

    #[test]
    fn numbers_are_distributed_as_they_are_said_to_be() {
        use Distribution::{Integers, LogUniform, Normal, Special, Uniform};
        let uniform = numbers(Element::F32, Uniform(-3.0, 5.0));
        assert!(uniform.iter().all(|x| (-3.0..=5.0).contains(x)) && uniform.iter().any(|&x| x < -2.0));
        assert_eq!(uniform, numbers(Element::F32, Uniform(-3.0, 5.0)), "the same seed, the same numbers");
        let log = numbers(Element::F64, LogUniform(1e-20, 1e20));
        assert!(log.iter().all(|x| (1e-20..=1e20).contains(&x.abs())));
        assert!((300..700).contains(&log.iter().filter(|x| x.abs() < 1.0).count()));
        let normal = numbers(Element::F32, Normal);
        let variance = normal.iter().map(|x| x * x).sum::<f64>() / 1000.0;
        assert!((0.85..1.15).contains(&variance), "{variance}");
        let integers = numbers(Element::U32, Integers(3, 6));
        assert!(integers.iter().all(|x| [3.0, 4.0, 5.0, 6.0].contains(x)) && integers.contains(&6.0));
        let signed = numbers(Element::I32, Integers(-3, 6));
        assert!(signed.iter().all(|x| (-3.0..=6.0).contains(x)) && signed.contains(&-3.0) && signed.contains(&6.0));
        let special = numbers(Element::F16, Special);
        assert!(special.contains(&65_504.0) && special.iter().any(|x| x.is_nan()), "the largest of fp16");
        assert!(special.iter().any(|x| x.abs() > 0.0 && x.abs() < 2f64.powi(-14)), "subnormal");
        let special = numbers(Element::F32, Special);
        assert!(special.iter().any(|x| x.is_nan()) && special.contains(&f64::INFINITY));
        assert!(special.iter().any(|x| x.abs() > 0.0 && x.abs() < f64::from(f32::MIN_POSITIVE)), "subnormal");
    }

    #[test]
    fn what_an_element_cannot_be_is_refused() {
        use Distribution::{Integers, LogUniform, Normal, Uniform};
        for (element, values) in [
            (Element::U32, Uniform(0.0, 1.0)),
            (Element::U32, Normal),
            (Element::U32, Integers(-1, 1)),
            (Element::I32, Integers(0, 1 << 31)),
            (Element::I32, Normal),
            (Element::F32, Uniform(1.0, 0.0)),
            (Element::F32, LogUniform(0.0, 1.0)),
            (Element::F32, Integers(i64::MIN, i64::MAX)),
        ] {
            let error = Argument::input("x", &[4], values).of(element).memory(1).unwrap_err();
            assert!(matches!(error, Error::BadDistribution { argument: "x", .. }), "{error}");
        }
        let error = Argument::output("x", &[usize::MAX, 2]).memory(1).unwrap_err();
        assert!(matches!(error, Error::TooLarge { argument: "x", .. }), "{error}");
    }

    #[test]
    fn guards_are_signalling_nans() {
        let bits = Element::F32.guard(1)[0];
        assert!(f32::from_bits(bits).is_nan() && bits & 1 << 22 == 0);
        let words = Element::F64.guard(1);
        assert!(Element::F64.number(&words).is_nan() && words[1] & 1 << 19 == 0);
        for (element, quiet) in [(Element::Bf16, 1 << 6), (Element::F16, 1 << 9)] {
            let word = element.guard(1);
            assert!(element.number(&word).is_nan() && word[0] & quiet == 0, "{element:?}");
        }
    }

    #[test]
    fn elements_of_two_bytes_are_packed_and_come_back() {
        let words = vec![1, 0xFFFF, 3];
        let packed = Element::Bf16.pack(words.clone());
        assert_eq!(packed, [0xFFFF_0001, 0x7FAD_0003]);
        assert_eq!(Element::Bf16.unpack(packed, 3), words);
        let packed = Element::F16.pack(words.clone());
        assert_eq!(packed, [0xFFFF_0001, 0x7DAD_0003]);
        assert_eq!(Element::F16.unpack(packed, 3), words);
        for element in [Element::F32, Element::I32] {
            assert_eq!(element.unpack(element.pack(words.clone()), 3), words);
        }
    }

    #[test]
    fn numbers_of_bf16_are_rounded_once() {
        // A tie of bf16, and what is so little above that fp32 takes it for the tie.
        let tie = 1.0 + 2f64.powi(-8);
        let bits = |value| bf16(value).to_bits();
        assert_eq!([tie, tie + 2f64.powi(-40), -tie - 2f64.powi(-40)].map(bits), [0x3F80, 0x3F81, 0xBF81]);
        let next = 1.0 + 3.0 * 2f64.powi(-8);
        assert_eq!([next, next - 2f64.powi(-40), 0.0, -0.0, 1e39].map(bits), [0x3F82, 0x3F81, 0, 0x8000, 0x7F80]);
        assert!(bf16(f64::NAN).to_f32().is_nan());
        let normal = numbers(Element::Bf16, Distribution::Normal);
        assert!(normal.iter().all(|&x| Element::Bf16.rounded(x) == x) && normal.iter().any(|&x| x > 1.0));
    }

    #[test]
    fn numbers_of_fp16_are_rounded_once() {
        // A tie of fp16, and what is so little above that fp32 takes it for the tie.
        let tie = 1.0 + 2f64.powi(-11);
        let bits = |value| f16(value).to_bits();
        assert_eq!([tie, tie + 2f64.powi(-40), -tie - 2f64.powi(-40)].map(bits), [0x3C00, 0x3C01, 0xBC01]);
        assert_eq!([2f64.powi(-24), 65_519.0, 65_520.0, -0.0, 1e39].map(bits), [1, 0x7BFF, 0x7C00, 0x8000, 0x7C00]);
        assert_eq!((Element::F16.rounded(tie), Element::I32.rounded(-2.5)), (1.0, -2.5));
    }

    #[test]
    fn positions_are_those_of_the_extents() {
        let argument = Argument::output("x", &[3, 4, 5]);
        assert_eq!(argument.position(0), "[0, 0, 0]");
        assert_eq!(argument.position(59), "[2, 3, 4]");
        assert_eq!(argument.position(7), "[0, 1, 2]");
    }
}
