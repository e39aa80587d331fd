//! How GPU and host agree on lines that threads print and on the report of a panic: structs in memory that both sides access, with
//! the same layout on both.
//!
//! ```text
//!  module of a kernel        GPU memory                    the host's memory, page-locked
//!  ┌──────────┐         ┌──▶ ┌────────────┐          ┌──▶ ┌──────────┐
//!  │ Channel  │─ head ──┘    │ PrintHead  │ how many │    │ Message  │ × LINES
//!  │          │─ messages ── └────────────┘ ─────────┘    ├──────────┤
//!  │          │─ report ────────────────────────────────▶ │ Report   │ of the first thread that fails
//!  └──────────┘                                           └──────────┘
//! ```
//!
//! Messages lie on the host because a kernel that ends in a trap takes all of the GPU's memory along; their number lies on the GPU because
//! its threads count there. A kernel that neither prints nor panics has no [`Channel`] in its module, and the host does nothing of this.

/// The name of the variable of type [`Channel`] in a module of PTX.
pub const CHANNEL: &str = "__tilewright_channel";

/// How many lines there is room for between two readings by the host. On a GPU they take two megabytes of the host's memory.
pub const LINES: usize = 8192;

/// The most values that a line has.
pub const LINE_VALUES: usize = 8;

/// The most values that the report of a failed assertion has.
pub const REPORT_VALUES: usize = 4;

/// The longest text, in bytes of UTF-8.
pub const TEXT_BYTES: usize = 136;

/// The bytes that a [`Report`] has for the name of the file, of which it keeps the end.
pub const FILE_BYTES: usize = 240;

/// In place of the kinds of values: the text is not one with places for values, and its braces are braces.
pub const VERBATIM: u64 = u64::MAX;

/// What a module is told by the host before the first launch: a variable in global memory, all zero until then.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Channel {
    /// The address of a [`PrintHead`]. Zero: nobody listens.
    pub head: u64,
    /// The address of [`LINES`] times a [`Message`], as the GPU sees it.
    pub messages: u64,
    /// The address of a [`Report`], as the GPU sees it.
    pub report: u64,
    /// By what number the host knows the module.
    pub module: u64,
}

/// What threads count in.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PrintHead {
    /// How many lines have been printed since the host last read them, also those that there was no room for.
    pub lines: u64,
    /// Whether a thread is writing the [`Report`]. Only the first does.
    pub has_failed: u64,
}

/// What a thread has to say: a text with `{}` in the places of values, and the values.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message {
    /// One once everything else has been written, else zero.
    pub is_complete: u64,
    /// [`Channel::module`].
    pub module: u64,
    /// The block's coordinates in the grid.
    pub block: [u32; 3],
    /// The thread's coordinates in its block.
    pub thread: [u32; 3],
    /// What the values are, 8 bits for each: see [`Kind`](crate::print::Kind). Or [`VERBATIM`].
    pub kinds: u64,
    /// The text's length in bytes. One that is longer than [`TEXT_BYTES`], as the message of a panic can be, is cut off there.
    pub text_bytes: u64,
    /// The values' bits.
    pub values: [u64; LINE_VALUES],
    /// The text.
    pub text: [u8; TEXT_BYTES],
}

/// What the first thread that fails leaves behind.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Report {
    /// Who has failed, and why.
    pub message: Message,
    /// The line of source, counted from 1.
    pub line: u64,
    /// The length of the file's name.
    pub file_bytes: u64,
    /// The name of the file, or its end.
    pub file: [u8; FILE_BYTES],
}
