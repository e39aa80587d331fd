//! Changes of what TMA moves: which tile, to which place, and which barrier is told.

use core::panic::Location;

use super::super::context::Context;
use super::Change;
use crate::{ImageMap, TensorMap};

impl Context<'_> {
    /// Where a load by TMA writes to, as an index of a slice, what it reads, and the barrier that it tells. The slice is given by its offset,
    /// its length and the bytes of an element.
    pub(in crate::executor) fn change_load(
        &self,
        location: &'static Location<'static>,
        map: &TensorMap<'_>,
        (_, _, element_bytes): (usize, usize, usize),
        (index, at, barrier): (usize, [u32; 3], usize),
    ) -> (usize, [u32; 3], usize) {
        use Change::{NextBarrier, NextBoxX, NextBoxY, NextBoxZ, NextTile};
        match self.change("load_tile", location, &[NextBoxX, NextBoxY, NextBoxZ, NextTile, NextBarrier]) {
            None => (index, at, barrier),
            Some(NextBarrier) => (index, at, self.next_barrier(barrier)),
            Some(NextTile) => (index + map.layout().bytes() / element_bytes, at, barrier),
            Some(change) => (index, next_box(map, at, change), barrier),
        }
    }

    /// The same of a load of pixels.
    pub(in crate::executor) fn change_load_of_pixels(
        &self,
        location: &'static Location<'static>,
        map: &ImageMap<'_>,
        (_, _, element_bytes): (usize, usize, usize),
        (index, mut at, barrier): (usize, [u32; 4], usize),
    ) -> (usize, [u32; 4], usize) {
        use Change::{NextBarrier, NextBoxX, NextBoxY, NextBoxZ, NextTile};
        let layout = map.layout();
        let [across, down] = layout.steps;
        let (dimension, further) =
            match self.change("load_pixels", location, &[NextBoxX, NextBoxY, NextBoxZ, NextTile, NextBarrier]) {
                None => return (index, at, barrier),
                Some(NextBarrier) => return (index, at, self.next_barrier(barrier)),
                Some(NextTile) => return (index + layout.bytes() / element_bytes, at, barrier),
                Some(NextBoxX) => (0, layout.channels),
                Some(NextBoxY) => (1, across),
                Some(_) => (2, down),
            };
        at[dimension] = at[dimension].wrapping_add(further);
        (index, at, barrier)
    }

    /// Where a store by TMA reads from, and what it writes. As for [`Context::change_load`].
    pub(in crate::executor) fn change_store(
        &self,
        location: &'static Location<'static>,
        map: &TensorMap<'_>,
        (_, _, element_bytes): (usize, usize, usize),
        (index, at): (usize, [u32; 3]),
    ) -> (usize, [u32; 3]) {
        use Change::{NextBoxX, NextBoxY, NextBoxZ, NextTile};
        match self.change("store_tile", location, &[NextBoxX, NextBoxY, NextBoxZ, NextTile]) {
            None => (index, at),
            Some(NextTile) => (index + map.layout().bytes() / element_bytes, at),
            Some(change) => (index, next_box(map, at, change)),
        }
    }
}

/// Coordinates of a tile a box further on.
fn next_box(map: &TensorMap<'_>, mut at: [u32; 3], change: Change) -> [u32; 3] {
    let dimension = match change {
        Change::NextBoxX => 0,
        Change::NextBoxY => 1,
        _ => 2,
    };
    at[dimension] = at[dimension].wrapping_add(map.layout().tile[dimension]);
    at
}
