//! How GPU and host agree on lines that threads print and on the report of a panic: structs in memory that both sides access, with
//! the same layout on both.
//!
//! ```text
//!  module of a kernel       GPU memory                               the host's memory, page-locked
//!  ┌─────────┐         ┌──▶ ┌────────────┐                    ┌──▶ ┌────────────┐
//!  │ Channel │─ prints ┘    │ PrintHead  │ lines so far       │    │ Report     │ where, what, four values
//!  │         │─ report ─────│            │ has anyone failed? ┘    └────────────┘
//!  └─────────┘              ├────────────┤
//!                           │ Line       │ × LINES
//!                           └────────────┘
//! ```
//!
//! A kernel that neither prints nor panics has no [`Channel`] in its module, and the host then does nothing of this.

/// The name of the variable of type [`Channel`] in a module of PTX.
pub const CHANNEL: &str = "__tilewright_channel";

/// How many lines the host's program keeps of what kernels print between two readings of it, on either side. Of those beyond it tells
/// the number. On a GPU they take less than a megabyte.
pub const LINES: usize = 8192;

/// The most values that a line has.
pub const LINE_VALUES: usize = 8;

/// The most values that the report of a failed assertion has.
pub const REPORT_VALUES: usize = 4;

/// The bytes that a [`Report`] has for the name of the file, of which it keeps the end, and for the text, of which it keeps the
/// beginning.
pub const TEXT_BYTES: usize = 240;

/// What a module is told by the host before the first launch: a variable in global memory, all zero until then.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Channel {
    /// The address of a [`PrintHead`] in the GPU's memory, with [`LINES`] lines behind it. Zero: nobody listens.
    pub prints: u64,
    /// The address of a [`Report`] in the host's memory, as the GPU sees it.
    pub report: u64,
    /// By what number the host knows the module.
    pub module: u64,
}

/// Stands before the lines.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PrintHead {
    /// How many lines have been printed since the host last read them, also those that there was no room for.
    pub lines: u64,
    /// Whether a thread is writing the [`Report`]. Only the first does.
    pub has_failed: u64,
}

/// Which thread of which block of which module.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Origin {
    /// [`Channel::module`].
    pub module: u64,
    /// The block's coordinates in the grid.
    pub block: [u32; 3],
    /// The thread's coordinates in its block.
    pub thread: [u32; 3],
}

/// A line that a thread has printed: its text with `{}` in the places of values, and the values.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Line {
    /// Who has printed it.
    pub origin: Origin,
    /// The text's address in the GPU's memory. It stays while the module is loaded.
    pub text: u64,
    /// The text's length in bytes.
    pub text_bytes: u64,
    /// What the values are, 8 bits for each: see [`Kind`](crate::print::Kind).
    pub kinds: u64,
    /// Their bits.
    pub values: [u64; LINE_VALUES],
}

/// What the first thread that fails leaves behind, in the host's memory: the GPU's is lost when the kernel ends in a trap.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Report {
    /// One once everything else has been written.
    pub is_complete: u64,
    /// Who has failed.
    pub origin: Origin,
    /// The line of source, counted from 1.
    pub line: u64,
    /// The length of the file's name.
    pub file_bytes: u64,
    /// The length of the text. Zero: `core` would have to write the message, which a GPU leaves out.
    pub text_bytes: u64,
    /// As in [`Line`].
    pub kinds: u64,
    /// As in [`Line`].
    pub values: [u64; REPORT_VALUES],
    /// The name of the file, or its end.
    pub file: [u8; TEXT_BYTES],
    /// The text, or its beginning.
    pub text: [u8; TEXT_BYTES],
}
