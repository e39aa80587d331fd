//! What can be wrong with PTX.

use super::targets::Needs;
use crate::Arch;

/// The constant memory of a kernel, in bytes.
pub(super) const CONSTANT_BYTES: u64 = 64 << 10;

/// What is not acceptable about PTX.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CheckError {
    /// It cannot be read at all.
    #[error("it cannot be read: {0}")]
    Malformed(String),
    /// An access that does not name its state space.
    #[error(
        "`{function}` accesses memory through a generic pointer{}: `{instruction}`. `GlobalSlice` and its like know their memory in every \
         function, `Shared`, `SharedSlice` and constant arrays where all calls pass such; with any other pointer or reference, a function \
         has to be `#[inline(always)]`", of(.arguments)
    )]
    Generic {
        /// The function.
        function: String,
        /// The first such instruction.
        instruction: Box<str>,
        /// The arguments of the function that the pointer may come from, if it comes from one and their names are known.
        arguments: Box<[String]>,
    },
    /// Something is in local memory.
    #[error("`{function}` keeps {bytes} bytes in local memory: {}", why_local(*.is_given))]
    Local {
        /// The function.
        function: String,
        /// How much.
        bytes: u64,
        /// Whether it is there because another function is given its address, as far as that is known; otherwise an array is indexed.
        is_given: bool,
    },
    /// A function calls itself, and nobody has said how deep its stack is.
    #[error(
        "{}, and kernel `{kernel}` has no stack for that. Write a loop, or say how many bytes of stack a thread needs: \
         `#[kernel(stack = BYTES)]`", calls_itself(.circle)
    )]
    Recursion {
        /// The kernel.
        kernel: String,
        /// Functions of which each calls the next, and the last the first.
        circle: Vec<String>,
    },
    /// More constant memory than there is.
    #[error(
        "`{function}` reads {bytes} bytes of constant memory, and there are {CONSTANT_BYTES} for all arrays of a kernel: keep some of them in \
         global memory"
    )]
    Constant {
        /// The kernel, or a function that is called by one.
        function: String,
        /// How much.
        bytes: u64,
    },
    /// An instruction that the architecture does not have.
    #[error(
        "`{function}` has an instruction that {needs}, and is compiled for {target}: `{instruction}`. A kernel with it says what it is for, \
         `#[kernel(arch = \"{}\")]`, or does without", .needs.example()
    )]
    Architecture {
        /// The function.
        function: String,
        /// The instruction.
        instruction: String,
        /// What has it.
        needs: Needs,
        /// What the module is for.
        target: Arch,
    },
    /// A function is called that no crate defines.
    #[error("`{0}` is called and not defined by any crate")]
    Undefined(String),
    /// A kernel has no launch bounds.
    #[error("kernel `{0}` has neither `.reqntid` nor `.maxntid`")]
    NoLaunchBounds(String),
    /// The entry points are not the kernels that were linked.
    #[error("the entry points are {found:?}, the kernels are {expected:?}")]
    Entries {
        /// In the PTX.
        found: Vec<String>,
        /// In the crate.
        expected: Vec<String>,
    },
}

fn why_local(is_given: bool) -> &'static str {
    if is_given {
        "a function that is not inlined, or called through a pointer (`dyn`, `fn`), is given a reference to it. Give it the value itself, \
         or have it inlined: `#[inline(always)]`, and a type parameter in place of `dyn`"
    } else {
        "an array is indexed by a value that is not known at compile time. Unroll the loop, so that it is, keep the array in shared \
         memory, or allow it: `#[kernel(local_memory)]`"
    }
}

fn of(arguments: &[String]) -> String {
    let names: Vec<_> = arguments.iter().map(|name| format!("`{name}`")).collect();
    match &names[..] {
        [] => String::new(),
        [name] => format!(", its argument {name}"),
        names => format!(", one of its arguments {}", names.join(", ")),
    }
}

fn calls_itself(circle: &[String]) -> String {
    let names: Vec<_> = circle.iter().map(|name| format!("`{name}`")).collect();
    match &names[..] {
        [] => "a function calls itself".to_owned(),
        [name] => format!("{name} calls itself"),
        [name, others @ ..] => format!("{name} calls itself by way of {}", others.join(" and ")),
    }
}
