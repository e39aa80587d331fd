//! Printing from kernels, and assertions with values.
//!
//! ```standalone_crate
//! # extern crate tilewright_cuda_std as cuda_std;
//! use cuda_std::prelude::*;
//!
//! #[kernel(block = 32)]
//! pub fn halves(x: GlobalSlice<'_, u32>) {
//!     let i = thread::index_1d();
//!     if let Some(value) = x.get(i) {
//!         gpu_assert!(value % 2 == 0, "element {} is {}, which is odd", i, value);
//!         if thread::thread_idx_x() == 0 {
//!             gpu_println!("x[{}] = {}", i, value);
//!         }
//!     }
//! }
//! # use cuda_std::{Dim3, executor::{Checks, Executor}};
//! # let x = [2, 4, 7];
//! # let kernel = halves { x: GlobalSlice::new(&x) };
//! # // SAFETY: the only view is of an array of this program.
//! # let error = unsafe { Executor::new(Checks::Full).launch(kernel, Dim3::from(1)) }.unwrap_err();
//! # assert!(error.to_string().contains(": the kernel panicked: element 2 is 7, which is odd\n"), "{error}");
//! ```
//!
//! The text is a literal with `{}` in the place of each value; `{{` and `}}` stand for braces. Values are numbers of 32 or 64 bits, `usize`
//! and `bool`; a text has at most 136 bytes. All of that is checked when the kernel is compiled. A thread leaves text and values, and the
//! host puts the line together: a kernel contains no code that turns numbers into digits.
//!
//! # What is printed when
//!
//! On a GPU lines appear when the host next waits for it, by `Device::synchronize` or a copy. They come in the order in which threads have
//! taken their places in the buffer, which differs from run to run. The CPU executor prints when the launch has ended, in the order of the
//! blocks' numbers, and so every time the same; where blocks can wait for one another, in the order in which they ran.
//!
//! Between two readings there is room for [`LINES`](crate::print_record::LINES) lines. Nothing is lost in silence: a last line tells how
//! many more there were.
//!
//! # Panics
//!
//! A panic on a GPU, be it of [`gpu_assert!`](crate::gpu_assert), of `assert!` or of an index, ends the grid and with it the GPU's context:
//! the host's next call that waits fails, with an error that names kernel, block, thread, file and line, as the CPU executor's report
//! does. The message comes with it if it is a constant text, that of `Option::expect` too. The messages of `panic!("… {}", x)` and its like
//! are left out, because `core` would write them to memory that kernels do not have: [`gpu_assert!`](crate::gpu_assert) and
//! [`gpu_panic!`](crate::gpu_panic) take up to four values along.
//!
//! A kernel that does none of this has the same PTX as without this module. One that does and is loaded by other means than the crate
//! `tilewright-runtime` prints nothing and reports nothing, but ends all the same.

use crate::print_record::{LINE_VALUES, REPORT_VALUES, TEXT_BYTES};

/// Prints a line on the host: a literal with `{}` in the place of each value, and up to 8 values. See [`print`](crate::print).
///
/// What would be no line does not compile:
///
/// ```compile_fail,E0080
/// # use tilewright_cuda_std::gpu_println;
/// gpu_println!("{} {}", 1);
/// ```
/// ```compile_fail,E0080
/// # use tilewright_cuda_std::gpu_println;
/// gpu_println!("no place", 1);
/// ```
/// ```compile_fail,E0080
/// # use tilewright_cuda_std::gpu_println;
/// gpu_println!("{:?}", 1);
/// ```
/// ```compile_fail,E0277
/// # use tilewright_cuda_std::gpu_println;
/// gpu_println!("{}", "a text");
/// ```
/// ```compile_fail,E0080
/// # use tilewright_cuda_std::gpu_println;
/// gpu_println!("{}{}{}{}{}{}{}{}{}", 1, 2, 3, 4, 5, 6, 7, 8, 9);
/// ```
#[macro_export]
macro_rules! gpu_println {
    ($text:literal $(, $value:expr)* $(,)?) => {{
        const TEXT: &$crate::print::Text = &$crate::print::Text::of_line($text, [$(stringify!($value)),*]);
        $crate::print::line(TEXT, [$($crate::print::Value::of($value)),*])
    }};
}

/// Ends the kernel with a report: a literal with `{}` in the place of each value, and up to 4 values. See [`print`](crate::print).
///
/// ```compile_fail,E0080
/// # use tilewright_cuda_std::gpu_panic;
/// gpu_panic!("{}{}{}{}{}", 1, 2, 3, 4, 5);
/// ```
#[macro_export]
macro_rules! gpu_panic {
    ($text:literal $(, $value:expr)* $(,)?) => {{
        const TEXT: &str = $crate::print::checked_report($text, [$(stringify!($value)),*]);
        $crate::print::fail(TEXT, [$($crate::print::Value::of($value)),*])
    }};
}

/// Ends the kernel with a report unless the condition holds. The rest is as for [`gpu_panic!`](crate::gpu_panic).
#[macro_export]
macro_rules! gpu_assert {
    ($condition:expr, $text:literal $(, $value:expr)* $(,)?) => {
        if !$condition {
            $crate::gpu_panic!($text $(, $value)*)
        }
    };
}

/// What a printed value is. The number stands for it in memory; zero is no value.
///
/// ```
/// # use tilewright_cuda_std::{print::Scalar, print::Kind};
/// assert_eq!(<f32 as Scalar>::KIND, Kind::F32);
/// assert_eq!(<usize as Scalar>::KIND, Kind::U64, "64 bits on every GPU");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
#[allow(missing_docs, reason = "named after the types")]
pub enum Kind {
    U32 = 1,
    I32,
    U64,
    I64,
    F32,
    F64,
    Bool,
}

/// A number that can be printed.
///
/// ```
/// # use tilewright_cuda_std::print::{Scalar, Value};
/// fn printed<T: Scalar>(number: T) -> String {
///     Value::of(number).to_string()
/// }
/// assert_eq!((printed(-2i64), printed(1.5f32), printed(true)), ("-2".into(), "1.5".into(), "true".into()));
/// ```
#[diagnostic::on_unimplemented(
    message = "a kernel cannot print a `{Self}`",
    note = "it prints u32, i32, u64, i64, usize, f32, f64 and bool: convert it"
)]
pub trait Scalar: Copy {
    #[doc(hidden)]
    const KIND: Kind;
    #[doc(hidden)]
    fn to_bits(self) -> u64;
}

macro_rules! scalars {
    ($($number:ty, $kind:ident, $value:ident => $bits:expr;)*) => { $(
        impl Scalar for $number {
            const KIND: Kind = Kind::$kind;

            #[inline(always)]
            fn to_bits(self) -> u64 {
                let $value = self;
                $bits
            }
        }
    )* };
}

scalars! {
    u32, U32, value => value.into();
    i32, I32, value => i64::from(value) as u64;
    u64, U64, value => value;
    i64, I64, value => value as u64;
    usize, U64, value => value as u64;
    f32, F32, value => value.to_bits().into();
    f64, F64, value => value.to_bits();
    bool, Bool, value => value.into();
}

/// A value of a line.
///
/// ```
/// # use tilewright_cuda_std::{print::Value};
/// assert_eq!(Value::of(-1.5f32).to_string(), "-1.5");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Value {
    pub(crate) kind: Kind,
    pub(crate) bits: u64,
}

impl Value {
    /// Of a number.
    ///
    /// ```
    /// # use tilewright_cuda_std::{print::Value};
    /// assert_eq!(Value::of(true).to_string(), "true");
    /// ```
    #[inline(always)]
    pub fn of<T: Scalar>(number: T) -> Self {
        Self { kind: T::KIND, bits: number.to_bits() }
    }
}

/// Prints a line. For [`gpu_println!`](crate::gpu_println), which has checked that there is a value for each place.
#[doc(hidden)]
#[inline(always)]
#[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
pub fn line<const N: usize>(text: &'static Text, values: [Value; N]) {
    #[cfg(target_arch = "nvptx64")]
    crate::trap::print(text, values);
    #[cfg(not(target_arch = "nvptx64"))]
    crate::executor::print(text.text, &values);
}

/// Ends the kernel. For [`gpu_panic!`](crate::gpu_panic), which has checked that there is a value for each place.
#[doc(hidden)]
#[inline(always)]
#[track_caller]
pub fn fail<const N: usize>(text: &'static str, values: [Value; N]) -> ! {
    #[cfg(target_arch = "nvptx64")]
    crate::trap::fail(core::panic::Location::caller(), text, values);
    #[cfg(not(target_arch = "nvptx64"))]
    panic!("{}", rendered(text, &values));
}

/// The text of a line.
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub struct Text {
    pub(crate) text: &'static str,
    /// Its bytes, as a GPU writes them.
    #[cfg(target_arch = "nvptx64")]
    pub(crate) words: [u64; TEXT_BYTES / 8],
}

#[doc(hidden)]
impl Text {
    /// The text.
    ///
    /// # Panics
    /// When the kernel is compiled: if it has not a place for each of these values, or a line cannot have so many.
    pub const fn of_line<const N: usize>(text: &'static str, values: [&str; N]) -> Self {
        assert!(values.len() <= LINE_VALUES, "a line has at most 8 values");
        checked(text, N);
        Self {
            text,
            #[cfg(target_arch = "nvptx64")]
            words: words(text.as_bytes()),
        }
    }
}

#[cfg(target_arch = "nvptx64")]
const fn words(bytes: &[u8]) -> [u64; TEXT_BYTES / 8] {
    let mut words = [0; TEXT_BYTES / 8];
    let mut at = 0;
    while at < bytes.len() {
        words[at / 8] |= (bytes[at] as u64) << (8 * (at % 8));
        at += 1;
    }
    words
}

/// The text of the report of a failed assertion.
///
/// # Panics
/// When the kernel is compiled: if it has not a place for each of these values, or a report cannot have so many.
#[doc(hidden)]
pub const fn checked_report<const N: usize>(text: &'static str, values: [&str; N]) -> &'static str {
    assert!(values.len() <= REPORT_VALUES, "the report of a failed assertion has at most 4 values");
    checked(text, N);
    text
}

const fn checked(text: &str, values: usize) {
    let bytes = text.as_bytes();
    assert!(bytes.len() <= TEXT_BYTES, "a text has at most 136 bytes");
    let (mut at, mut places) = (0, 0);
    while at < bytes.len() {
        let next = if at + 1 < bytes.len() { bytes[at + 1] } else { 0 };
        match (bytes[at], next) {
            (b'{', b'{') | (b'}', b'}') => at += 1,
            (b'{', b'}') => {
                places += 1;
                at += 1;
            }
            (b'{' | b'}', _) => panic!("the place of a value is written `{{}}`, and a brace `{{{{` or `}}}}`"),
            _ => {}
        }
        at += 1;
    }
    assert!(places <= values, "the text has more `{{}}` than there are values");
    assert!(places >= values, "there are more values than the text has `{{}}`");
}

#[cfg(not(target_arch = "nvptx64"))]
mod host {
    use core::fmt;
    use std::format;
    use std::string::{String, ToString};
    use std::sync::Arc;

    use super::{Kind, Value};
    use crate::Dim3;
    use crate::executor::{Fault, FaultKind, SourceLine};
    use crate::print_record::{Channel, LINES, Message, PrintHead, Report, VERBATIM};

    #[doc(hidden)]
    impl Kind {
        /// Of a number in memory; `None` if it stands for none.
        fn of_number(number: u8) -> Option<Self> {
            use Kind::{Bool, F32, F64, I32, I64, U32, U64};
            [U32, I32, U64, I64, F32, F64, Bool].into_iter().find(|kind| *kind as u8 == number)
        }
    }

    impl fmt::Display for Value {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            match self.kind {
                Kind::U32 | Kind::U64 => self.bits.fmt(f),
                Kind::I32 | Kind::I64 => (self.bits as i64).fmt(f),
                Kind::F32 => f32::from_bits(self.bits as u32).fmt(f),
                Kind::F64 => f64::from_bits(self.bits).fmt(f),
                Kind::Bool => (self.bits != 0).fmt(f),
            }
        }
    }

    // What GPU and host share is numbers in memory.

    // SAFETY: `repr(C)`, of numbers and arrays of numbers, with no padding in between; zeros are numbers.
    unsafe impl bytemuck::Zeroable for Channel {}
    // SAFETY: as above, and every bit pattern is a number.
    unsafe impl bytemuck::Pod for Channel {}
    // SAFETY: as above.
    unsafe impl bytemuck::Zeroable for PrintHead {}
    // SAFETY: as above.
    unsafe impl bytemuck::Pod for PrintHead {}
    // SAFETY: as above.
    unsafe impl bytemuck::Zeroable for Message {}
    // SAFETY: as above.
    unsafe impl bytemuck::Pod for Message {}
    // SAFETY: as above.
    unsafe impl bytemuck::Zeroable for Report {}
    // SAFETY: as above.
    unsafe impl bytemuck::Pod for Report {}

    /// What a kernel has printed.
    #[derive(Clone, Debug, PartialEq, Eq)]
    #[non_exhaustive]
    pub enum Printed {
        /// A line of a thread.
        Line {
            /// The kernel's name.
            kernel: &'static str,
            /// The block.
            block: Dim3,
            /// The thread, by its position in the block.
            thread: Dim3,
            /// The line, without its end.
            text: String,
        },
        /// Lines are missing.
        Missing {
            /// How many there was no room for; `None` if a GPU's context is lost, and with it the number, and what had not yet arrived.
            lines: Option<u64>,
        },
    }

    impl fmt::Display for Printed {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            match self {
                Self::Line { text, .. } => f.write_str(text),
                Self::Missing { lines: Some(lines) } => write!(
                    f,
                    "({lines} more lines of kernels are lost: there is room for {LINES} until the host reads them; print less, \
                     or by fewer threads)"
                ),
                Self::Missing { lines: None } => {
                    f.write_str("(lines of kernels may be missing: the GPU's context is lost, and with it what had not yet arrived)")
                }
            }
        }
    }

    /// Where lines go that kernels print. Without anything else it is the standard output.
    #[derive(Clone)]
    pub struct PrintSink(Arc<dyn Fn(&Printed) + Send + Sync>);

    impl PrintSink {
        /// Calls `show` with each of them, one after the other.
        pub fn new(show: impl Fn(&Printed) + Send + Sync + 'static) -> Self {
            Self(Arc::new(show))
        }

        /// Shows what a kernel has printed.
        pub fn show(&self, printed: &Printed) {
            (self.0)(printed);
        }
    }

    impl Default for PrintSink {
        fn default() -> Self {
            Self::new(|printed| std::println!("{printed}"))
        }
    }

    impl fmt::Debug for PrintSink {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.debug_struct("PrintSink").finish_non_exhaustive()
        }
    }

    /// The text with values in the places of `{}`, in this order, and single braces for double ones. What has no value stays.
    pub(crate) fn rendered(text: &str, values: &[Value]) -> String {
        let (mut line, mut values, mut rest) = (String::new(), values.iter(), text);
        while let Some(brace) = rest.find(['{', '}']) {
            line += &rest[..brace];
            let (pair, after) = rest[brace..].split_at_checked(2).unwrap_or((&rest[brace..], ""));
            match pair {
                "{}" => line += &values.next().map_or_else(|| pair.to_string(), Value::to_string),
                "{{" => line.push('{'),
                "}}" => line.push('}'),
                other => line += other,
            }
            rest = after;
        }
        line + rest
    }

    /// The values in memory whose kinds are these, 8 bits for each.
    fn values_of(kinds: u64, bits: &[u64]) -> std::vec::Vec<Value> {
        let one = |(kind, bits): (u8, &u64)| Some(Value { kind: Kind::of_number(kind)?, bits: *bits });
        kinds.to_le_bytes().into_iter().zip(bits).map_while(one).collect()
    }

    /// The beginning of a text, of which this many bytes have been kept, or its end, if not all have been.
    fn kept(bytes: &[u8], all: u64) -> (std::borrow::Cow<'_, str>, bool) {
        let count = usize::try_from(all).unwrap_or(usize::MAX);
        (String::from_utf8_lossy(&bytes[..count.min(bytes.len())]), count > bytes.len())
    }

    #[doc(hidden)]
    impl Message {
        /// The text with the values in their places.
        pub fn rendered(&self) -> String {
            let (text, is_cut) = kept(&self.text, self.text_bytes);
            let text = match self.kinds {
                VERBATIM => text.into_owned(),
                kinds => rendered(&text, &values_of(kinds, &self.values)),
            };
            text + if is_cut { "…" } else { "" }
        }

        /// The line, as one of a kernel of this name.
        pub fn printed(&self, kernel: &'static str) -> Printed {
            let [block, thread] = [self.block, self.thread].map(Dim3::from);
            Printed::Line { kernel, block, thread, text: self.rendered() }
        }
    }

    #[doc(hidden)]
    impl Report {
        /// The fault that the executor would report.
        pub fn fault(&self, kernel: &'static str) -> Fault {
            let (file, is_cut) = kept(&self.file, self.file_bytes);
            let file = if is_cut { format!("…{file}") } else { file.into_owned() };
            let message = self.message.rendered();
            let line = SourceLine { file: file.into(), line: u32::try_from(self.line).unwrap_or(u32::MAX) };
            let [block, thread] = [self.message.block, self.message.thread].map(Dim3::from);
            let kind = FaultKind::Panic { message };
            Fault { kernel, block, thread, location: Some(line), callers: std::vec::Vec::new(), kind, old_value: None }
        }
    }

    #[cfg(test)]
    mod tests {
        use super::*;
        use crate::print_record::{FILE_BYTES, LINE_VALUES, TEXT_BYTES};

        #[test]
        fn values_stand_in_their_places() {
            let values = [Value::of(-7i32), Value::of(1.5f32), Value::of(true), Value::of(u64::MAX)];
            assert_eq!(rendered("a {} b {}, {{{}}} {}", &values), "a -7 b 1.5, {true} 18446744073709551615");
            assert_eq!(rendered("é{}é", &[Value::of(f64::NAN)]), "éNaNé");
            assert_eq!(rendered("", &[]), "");
            assert_eq!(rendered("a damaged one: {é {", &[]), "a damaged one: {é {");
        }

        /// A message as a thread leaves it.
        fn message(text: &str, kinds: u64, values: [u64; 2]) -> Message {
            let mut message = Message {
                is_complete: 1,
                module: 0,
                block: [1, 2, 3],
                thread: [4, 5, 6],
                kinds,
                text_bytes: text.len() as u64,
                values: [0; LINE_VALUES],
                text: [0; TEXT_BYTES],
            };
            message.values[..2].copy_from_slice(&values);
            let kept = text.len().min(TEXT_BYTES);
            message.text[..kept].copy_from_slice(&text.as_bytes()[..kept]);
            message
        }

        #[test]
        fn a_message_in_memory_becomes_a_line() {
            let kinds = u64::from(Kind::I32 as u8) | u64::from(Kind::Bool as u8) << 8;
            let line = message("{{{}}} {}", kinds, [u64::MAX, 1]);
            assert_eq!(line.rendered(), "{-1} true");
            let expected = Printed::Line {
                kernel: "k",
                block: Dim3::new(1, 2, 3),
                thread: Dim3::new(4, 5, 6),
                text: "{-1} true".to_string(),
            };
            assert_eq!(line.printed("k"), expected);
            assert_eq!(message("{{}} {}", VERBATIM, [1, 2]).rendered(), "{{}} {}", "the braces of a panic are its own");
            let long = "x".repeat(TEXT_BYTES) + "y";
            assert_eq!(message(&long[..TEXT_BYTES], 0, [0; 2]).rendered(), long[..TEXT_BYTES]);
            assert_eq!(message(&long, VERBATIM, [0; 2]).rendered(), format!("{}…", &long[..TEXT_BYTES]));
            assert_eq!(
                Message { text_bytes: u64::MAX, ..line }.rendered().chars().last(),
                Some('…'),
                "whatever is there"
            );
        }

        #[test]
        fn a_report_in_memory_is_the_fault_that_the_executor_reports() {
            let report = |name: &str| {
                let mut file = [0; FILE_BYTES];
                let kept = name.len().min(FILE_BYTES);
                file[..kept].copy_from_slice(&name.as_bytes()[name.len() - kept..]);
                let message = message("not even", VERBATIM, [0; 2]);
                Report { message, line: 12, file_bytes: name.len() as u64, file }.fault("k").to_string()
            };
            let expected =
                "kernel `k`, block (1, 2, 3), thread (4, 5, 6): the kernel panicked: not even\n  --> src/lib.rs:12\n";
            assert!(report("src/lib.rs").starts_with(expected), "{}", report("src/lib.rs"));
            let long = "d/".repeat(FILE_BYTES) + "lib.rs";
            let end = &long[long.len() - FILE_BYTES..];
            assert!(
                report(&long).starts_with(&expected.replace("src/lib.rs", &format!("…{end}"))),
                "{}",
                report(&long)
            );
        }

        #[test]
        fn values_come_back_from_memory() {
            let values = [Value::of(-1i32), Value::of(2usize), Value::of(false)];
            let kinds = values.iter().rev().fold(0, |all, value| all << 8 | u64::from(value.kind as u8));
            let bits: std::vec::Vec<u64> = values.iter().map(|value| value.bits).collect();
            assert_eq!(values_of(kinds, &bits), values);
            assert!(values_of(0xFF, &[1]).is_empty(), "nothing is made of what is no kind");
        }
    }
}

#[cfg(not(target_arch = "nvptx64"))]
pub(crate) use host::rendered;
#[cfg(not(target_arch = "nvptx64"))]
pub use host::{PrintSink, Printed};
