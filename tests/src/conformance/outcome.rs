//! What a comparison has found.

use serde::Serialize;

use super::number::{Format, Number};
use super::words::Content;

/// The most differences of one instruction that are told with their operands.
const SHOWN: usize = 20;

/// Likewise, of those that are in the bits of NaNs alone.
const SHOWN_NANS: usize = 4;

/// How two words compare.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The same bits.
    Equal,
    /// NaNs at the same places, of different bits; all else is the same.
    NanPayload,
    /// Something else.
    Different,
}

/// What has been found of one instruction.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Outcome {
    /// The kernel of `fixtures/instructions`, and what it was run on.
    pub instruction: String,
    /// The executions.
    pub cases: usize,
    /// The words of their results.
    pub elements: usize,
    /// Those with the same bits on both sides.
    pub equal: usize,
    /// Those that are NaNs of different bits.
    pub equal_but_for_nan_payload: usize,
    /// All others.
    pub different: usize,
    /// The first ones of those that are different.
    pub differences: Vec<Difference>,
    /// The first ones of those that are NaNs of different bits.
    pub nan_payloads: Vec<Difference>,
    /// Why the comparison has ended early, if it has.
    pub error: Option<String>,
}

/// An element that is not the same, with all that is needed to compute it again. Words are hexadecimal.
#[derive(Clone, Debug, Serialize)]
pub struct Difference {
    /// Which one.
    pub element: String,
    /// The operands.
    pub operands: String,
    /// What the executor makes of them.
    pub executor: String,
    /// What the other side does.
    pub other: String,
}

impl Content {
    /// Compares two words of a result.
    pub fn compare(self, one: u32, other: u32) -> Verdict {
        let formats: &[(Format, u32)] = match self {
            _ if one == other => return Verdict::Equal,
            Self::Bits => return Verdict::Different,
            Self::Numbers => &[(Format::Fp32, 0)],
            Self::Pairs(format) => &[(format, 0), (format, 16)],
        };
        let same = |&(format, shift): &(Format, u32)| {
            let [one, other] = [one, other].map(|word| word >> shift & (u32::MAX >> (32 - format.word_bits())));
            one == other || format.decode(one) == Number::Nan && format.decode(other) == Number::Nan
        };
        if formats.iter().all(same) { Verdict::NanPayload } else { Verdict::Different }
    }
}

impl Outcome {
    /// Of nothing yet.
    pub fn new(instruction: &str) -> Self {
        Self { instruction: instruction.into(), ..Self::default() }
    }

    /// Enters an element; `describe` says which, and its operands.
    pub fn enter(&mut self, content: Content, executor: u32, other: u32, describe: impl FnOnce() -> (String, String)) {
        self.elements += 1;
        let verdict = content.compare(executor, other);
        let (count, shown, room) = match verdict {
            Verdict::Equal => return self.equal += 1,
            Verdict::NanPayload => (&mut self.equal_but_for_nan_payload, &mut self.nan_payloads, SHOWN_NANS),
            Verdict::Different => (&mut self.different, &mut self.differences, SHOWN),
        };
        *count += 1;
        if shown.len() < room {
            let (element, operands) = describe();
            let [executor, other] = [executor, other].map(|word| format!("{word:08x}"));
            shown.push(Difference { element, operands, executor, other });
        }
    }
}

/// Words in hexadecimal.
pub fn hex(words: &[u32]) -> String {
    words.iter().map(|word| format!("{word:08x}")).collect::<Vec<_>>().join(" ")
}
