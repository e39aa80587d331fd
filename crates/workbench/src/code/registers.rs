//! Registers along the code: where most are live, which lines of Rust hold them, and what is in local memory for want of them.
//!
//! ```text
//!  FFMA R4, …      src/lib.rs:40   ─┐
//!  LDG R9, …       src/lib.rs:38   ─┤ 2 of the registers that are live at the maximum got their values in line 40, 1 in line 38
//!  HMMA …          ◀── the maximum ─┘
//!  STL [R1+0x8], R4                  the value of line 40 goes to slot 8, from which LDL reads it again
//! ```

use std::collections::BTreeMap;

use cuda_builder::inspect::{Instruction, Mark};
use serde::Serialize;

use super::lines::SassLine;

/// Where most registers are live.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Peak {
    /// How many.
    pub registers: u32,
    /// The instructions at which there are so many: indices into [`Listing::sass`](super::Listing::sass).
    pub at: Vec<usize>,
    /// Which origins the values come from that are live at the first of them, and how many registers those take: the most first. `None` is
    /// for values that nobody has written before, or that the compiler gives no line for.
    pub held: Vec<(Option<usize>, usize)>,
}

/// A part of local memory: for a register that was spilled, or of an array.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Slot {
    /// Where it is in the thread's stack frame, in bytes; `None` for what is indexed at run time, which is an array.
    pub offset: Option<u32>,
    /// Whether it is for a register for which there was no room; an array of the source otherwise.
    pub is_spill: bool,
    /// The bytes of its largest access.
    pub bytes: u32,
    /// The origins of the values that are stored there.
    pub values: Vec<usize>,
    /// The stores: indices into [`Listing::sass`](super::Listing::sass).
    pub stores: Vec<usize>,
    /// The loads.
    pub loads: Vec<usize>,
}

/// Which instruction has last written each register.
#[derive(Default)]
struct LastWrites(BTreeMap<u16, usize>);

impl LastWrites {
    fn see(&mut self, index: usize, instruction: &Instruction) {
        for &(register, mark) in &instruction.live.marks {
            if matches!(mark, Mark::Written | Mark::ReadAndWritten) {
                self.0.insert(register, index);
            }
        }
    }
}

impl Peak {
    pub(super) fn of(instructions: &[Instruction], sass: &[SassLine]) -> Option<Self> {
        let registers = instructions.iter().map(|instruction| instruction.live.registers).max()?;
        let has_most = |&index: &usize| instructions[index].live.registers == registers;
        let at: Vec<usize> = (0..instructions.len()).filter(has_most).collect();
        let first = *at.first()?;
        let mut writes = LastWrites::default();
        instructions[..=first].iter().enumerate().for_each(|(index, instruction)| writes.see(index, instruction));
        let mut held: BTreeMap<Option<usize>, usize> = BTreeMap::new();
        for (register, _) in &instructions[first].live.marks {
            // What comes round a loop was written further down.
            let writes_it = |instruction: &Instruction| {
                let is_write = |mark| matches!(mark, Mark::Written | Mark::ReadAndWritten);
                instruction.live.marks.iter().any(|&(other, mark)| other == *register && is_write(mark))
            };
            let later = || (first..instructions.len()).find(|&index| writes_it(&instructions[index]));
            let writer = writes.0.get(register).copied().or_else(later);
            *held.entry(writer.and_then(|index| sass[index].origin)).or_insert(0) += 1;
        }
        let mut held: Vec<_> = held.into_iter().collect();
        held.sort_by_key(|&(origin, count)| (std::cmp::Reverse(count), origin));
        Some(Self { registers, at, held })
    }
}

/// An access of local memory.
#[derive(Debug, PartialEq)]
struct Local {
    is_store: bool,
    bytes: u32,
    offset: Option<u32>,
    /// The first register that is stored.
    value: Option<u16>,
}

/// `STL.64 [R1+0x8], R4`, `LDL R4, [R1]`.
fn local(text: &str) -> Option<Local> {
    let mut words = text.split_ascii_whitespace().skip_while(|word| word.starts_with('@'));
    let opcode = words.next()?;
    let is_store = match opcode.split('.').next()? {
        "STL" => true,
        "LDL" => false,
        _ => return None,
    };
    let width = opcode.split('.').find_map(|part| match part {
        "U8" | "S8" => Some(1),
        "U16" | "S16" => Some(2),
        "64" => Some(8),
        "128" => Some(16),
        _ => None,
    });
    let (before, rest) = text.split_once('[')?;
    let (address, after) = rest.split_once(']')?;
    let offset = match address.split_once("R1") {
        Some(("", "")) => Some(0),
        Some(("", offset)) => offset.strip_prefix("+0x").and_then(|digits| u32::from_str_radix(digits, 16).ok()),
        _ => None,
    };
    let operand = if is_store { after } else { before };
    let value = operand.split([',', ' ']).rfind(|word| !word.is_empty());
    let value = value.and_then(|word| word.split('.').next()?.strip_prefix('R')?.parse().ok()).filter(|_| is_store);
    Some(Local { is_store, bytes: width.unwrap_or(4), offset, value })
}

impl Slot {
    pub(super) fn all(instructions: &[Instruction], sass: &[SassLine]) -> Vec<Self> {
        let mut slots: BTreeMap<Option<u32>, Self> = BTreeMap::new();
        let mut writes = LastWrites::default();
        for (index, instruction) in instructions.iter().enumerate() {
            if let Some(access) = local(&instruction.text) {
                let slot = slots.entry(access.offset).or_insert_with(|| Self {
                    offset: access.offset,
                    is_spill: false,
                    bytes: 0,
                    values: Vec::new(),
                    stores: Vec::new(),
                    loads: Vec::new(),
                });
                slot.bytes = slot.bytes.max(access.bytes);
                slot.is_spill |= instruction.note.as_deref() == Some("SpillRefill");
                if access.is_store {
                    slot.stores.push(index)
                } else {
                    slot.loads.push(index)
                }
                let origin = access.value.and_then(|register| sass[*writes.0.get(&register)?].origin);
                slot.values.extend(origin.filter(|origin| !slot.values.contains(origin)));
            }
            writes.see(index, instruction);
        }
        slots.into_values().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::code::Class;
    use cuda_builder::inspect::Live;

    /// An instruction, its origin, and what is live.
    type Line<'a> = (&'a str, usize, &'a [(u16, Mark)]);

    /// Instructions with their origins and what is live.
    fn code(lines: &[Line<'_>]) -> (Vec<Instruction>, Vec<SassLine>) {
        let one = |(index, &(text, origin, marks)): (usize, &Line<'_>)| {
            let address = u32::try_from(16 * index).unwrap();
            let registers = u32::try_from(marks.len()).unwrap();
            let live = Live { registers, predicates: 0, uniform: 0, marks: marks.to_vec() };
            let instruction =
                Instruction { address, text: text.to_owned(), note: None, labels: Vec::new(), ptx_line: None, live };
            let line = SassLine {
                address,
                text: text.to_owned(),
                labels: Vec::new(),
                class: Class::Other,
                ptx: None,
                origin: Some(origin),
                registers,
                uniform_registers: 0,
                predicates: 0,
            };
            (instruction, line)
        };
        lines.iter().enumerate().map(one).unzip()
    }

    use Mark::{Kept, Read, ReadAndWritten, Written};

    #[test]
    fn the_maximum_is_held_by_the_lines_that_wrote_last() {
        let (instructions, sass) = code(&[
            ("MOV R0, 0", 7, &[(0, Written), (9, Kept)]),
            ("LDG R1, [R0]", 8, &[(0, Read), (1, Written), (9, Kept)]),
            ("FFMA R0, R1, R1, R0", 7, &[(0, ReadAndWritten), (1, Kept), (9, Kept)]),
            ("MOV R9, R0", 5, &[(0, Read), (9, Written)]),
        ]);
        let peak = Peak::of(&instructions, &sass).unwrap();
        assert_eq!((peak.registers, &peak.at[..]), (3, &[1, 2][..]));
        assert_eq!(peak.held, [(Some(5), 1), (Some(7), 1), (Some(8), 1)], "R9 comes round a loop");
        assert_eq!(Peak::of(&[], &[]), None);
    }

    #[test]
    fn slots_say_whose_values_go_where() {
        let (mut instructions, sass) = code(&[
            ("FADD R4, R2, R3", 3, &[(4, Written)]),
            ("@P0 STL [R1+0x8], R4", 4, &[(4, Read)]),
            ("LDL R6, [R1+0x8]", 6, &[(6, Written)]),
            ("STL.128 [R1], R8", 4, &[]),
            ("LDL.LU R6, [R12+0x4]", 6, &[(6, Written)]),
        ]);
        instructions[1].note = Some("SpillRefill".to_owned());
        let slots = Slot::all(&instructions, &sass);
        assert_eq!(slots.iter().map(|slot| slot.is_spill).collect::<Vec<_>>(), [false, false, true]);
        let shown: Vec<_> = slots
            .iter()
            .map(|it| format!("{:?} {} {:?} {:?} {:?}", it.offset, it.bytes, it.values, it.stores, it.loads))
            .collect();
        assert_eq!(shown, ["None 4 [] [] [4]", "Some(0) 16 [] [3] []", "Some(8) 4 [3] [1] [2]"]);
    }
}
