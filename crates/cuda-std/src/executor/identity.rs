//! The arrays in shared memory that kernels declare: for each its type, length and place of declaration, by which a report names
//! it.

use core::panic::Location;
use core::sync::atomic::{AtomicUsize, Ordering};
use std::format;
use std::string::{String, ToString};
use std::vec::Vec;

use super::fault::SharedArrayName;
use super::shared_memory::{Placement, WORD};
use crate::shared::SharedArray;

/// An array in shared memory: what is known of it from its type and its declaration, and the number under which workers
/// keep what their blocks have in it.
pub(crate) struct SharedIdentity {
    /// The number times the size of a [`Placement`]: the way into the table that each access takes. [`UNNUMBERED`] until
    /// first used.
    pub(super) scaled_number: AtomicUsize,
    /// `None` for the dynamic shared memory.
    declared: Option<&'static Location<'static>>,
    type_name: fn() -> &'static str,
    extents: &'static [usize],
    element_bytes: usize,
    /// What the array takes of a block's static shared memory.
    static_bytes: usize,
}

/// How many numbers there are. Each takes 32 bytes in every thread of the process.
pub(super) const NUMBERS: usize = 512;

/// The number of arrays that have not been used yet. No block uses this one.
const UNNUMBERED: usize = 0;

/// The dynamic shared memory, seen as an array of words.
pub(super) static DYNAMIC: SharedIdentity = SharedIdentity {
    scaled_number: AtomicUsize::new(size_of::<Placement>()),
    declared: None,
    type_name: || "",
    extents: &[],
    element_bytes: WORD,
    static_bytes: 0,
};

impl SharedIdentity {
    #[track_caller]
    pub(crate) const fn new<A: SharedArray>() -> Self {
        let element_bytes = size_of::<A::Element>();
        Self {
            scaled_number: AtomicUsize::new(UNNUMBERED),
            declared: Some(Location::caller()),
            type_name: core::any::type_name::<A>,
            extents: A::EXTENTS,
            element_bytes,
            static_bytes: crate::Shared::<A>::BYTES as usize,
        }
    }

    /// The number, which this array gets now if it has none.
    pub(super) fn assigned_number(&self) -> usize {
        static NEXT: AtomicUsize = AtomicUsize::new(2);
        // Relaxed, here and elsewhere: nothing but the number itself depends on it.
        let mut scaled = self.scaled_number.load(Ordering::Relaxed);
        if scaled == UNNUMBERED {
            let new = NEXT.fetch_add(1, Ordering::Relaxed);
            assert!(new < NUMBERS, "a program can use at most {} different shared arrays", NUMBERS - 2);
            scaled = new * size_of::<Placement>();
            if let Err(other_thread_was_first) =
                self.scaled_number.compare_exchange(UNNUMBERED, scaled, Ordering::Relaxed, Ordering::Relaxed)
            {
                scaled = other_thread_was_first;
            }
        }
        scaled / size_of::<Placement>()
    }

    /// What the array takes of a block's static shared memory.
    pub(super) fn static_bytes(&self) -> usize {
        self.static_bytes
    }

    pub(super) fn name(&self) -> SharedArrayName {
        match self.declared {
            Some(declared) => SharedArrayName::Static { declared: declared.into(), type_name: (self.type_name)() },
            None => SharedArrayName::Dynamic,
        }
    }

    /// The position of a word as the source indexes the array: `5`, or `[3, 17]`.
    pub(super) fn index(&self, word: usize) -> String {
        self.index_of_byte(word * WORD)
    }

    /// The position of the element that a byte is of, as the source indexes the array. In the dynamic shared memory it is the word,
    /// and says which byte of it, but for the first.
    pub(super) fn index_of_byte(&self, byte: usize) -> String {
        let mut rest = byte / self.element_bytes;
        if self.declared.is_none() && !byte.is_multiple_of(WORD) {
            return format!("{rest}, byte {}", byte % WORD);
        }
        let faster = self.extents.get(1..).unwrap_or_default();
        let mut coordinates = Vec::new();
        for axis in 0..faster.len() {
            let stride: usize = faster[axis..].iter().product();
            coordinates.push(rest / stride);
            rest %= stride;
        }
        coordinates.push(rest);
        if coordinates.len() == 1 { rest.to_string() } else { format!("{coordinates:?}") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_is_named_as_the_source_indexes_it() {
        let line = SharedIdentity::new::<[f32; 40]>();
        let wide = SharedIdentity::new::<[f64; 40]>();
        let plane = SharedIdentity::new::<[[f32; 5]; 7]>();
        let volume = SharedIdentity::new::<[[[u64; 4]; 3]; 2]>();
        assert_eq!((line.index(17), wide.index(17)), ("17".into(), "8".into()));
        assert_eq!((plane.index(0), plane.index(34)), ("[0, 0]".into(), "[6, 4]".into()));
        assert_eq!(volume.index(2 * (5 * 4 + 3) + 1), "[1, 2, 3]");
        assert_eq!((DYNAMIC.index(9), DYNAMIC.index_of_byte(38)), ("9".into(), "9, byte 2".into()));
        let bytes = SharedIdentity::new::<[[u8; 5]; 7]>();
        assert_eq!((bytes.index_of_byte(7), bytes.index(2)), ("[1, 2]".into(), "[1, 3]".into()));
        assert_eq!((plane.static_bytes(), volume.static_bytes(), DYNAMIC.static_bytes()), (140, 192, 0));
    }

    #[test]
    fn the_table_of_placements_is_entered_with_valid_numbers_only() {
        for array in [SharedIdentity::new::<[f32; 1]>(), SharedIdentity::new::<[f32; 1]>()] {
            assert_eq!(array.scaled_number.load(Ordering::Relaxed), UNNUMBERED);
            let number = array.assigned_number();
            assert!((2..NUMBERS).contains(&number));
            assert_eq!((array.assigned_number(), DYNAMIC.assigned_number()), (number, 1));
            assert_eq!(array.scaled_number.load(Ordering::Relaxed), number * size_of::<Placement>());
        }
    }
}
