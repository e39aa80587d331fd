//! What TMA moves at a time: a tile of an array, or pixels of images, and where each of its elements is in shared memory and in the array.

use std::format;
use std::string::String;

use super::super::context::Context;
use super::super::fault::AccessKind;
use crate::{ImageMap, TensorMap, TileElement, TileSwizzle};

/// What the first coordinate of a tile is a multiple of, in bytes, and what is stored at a time. The description of the instruction says
/// neither, but an H200 ends a kernel with another coordinate for an illegal instruction (measured on 2026-11-22).
pub(super) const PIECE_BYTES: u64 = 16;

/// A tile.
#[derive(Clone, Copy)]
pub(super) enum Tile<'a> {
    /// Of the array that a tensor map describes, from these coordinates on.
    Array { map: TensorMap<'a>, at: [u32; 3] },
    /// Of the images that an image map describes: the pixels of a tap, from these coordinates of a base pixel on.
    Pixels { map: ImageMap<'a>, at: [u32; 4], tap: [u16; 2] },
}

impl Tile<'_> {
    /// What it is of, in words.
    pub(super) fn describe(&self, context: &Context<'_>) -> String {
        let array = context.element_at(self.pointer().addr());
        let array = array.map_or(String::new(), |element| format!(" of `{}`", element.view));
        let bytes = self.element().bytes();
        match self {
            Self::Array { map, at } => {
                let ([length, lines, matrices], [x, y, z]) = (map.layout().tile, at.map(u32::cast_signed));
                format!("tile {length}×{lines}×{matrices} of {bytes} bytes each at ({x}, {y}, {z}){array}")
            }
            Self::Pixels { map, at, tap: [across, down] } => {
                let (channels, pixels) = (map.layout().channels, map.layout().pixels);
                let [channel, column, row, image] = at.map(u32::cast_signed);
                format!(
                    "{pixels} pixels of {channels} channels of {bytes} bytes each from ({channel}, {column}, {row}, {image}) on, \
                     tap ({across}, {down}){array}"
                )
            }
        }
    }

    /// The address of the array.
    pub(super) fn pointer(&self) -> *const u8 {
        match self {
            Self::Array { map, .. } => map.pointer(),
            Self::Pixels { map, .. } => map.pointer(),
        }
    }

    /// The bytes of the array.
    pub(super) fn size(&self) -> usize {
        match self {
            Self::Array { map, .. } => map.size(),
            Self::Pixels { map, .. } => map.size(),
        }
    }

    /// The elements.
    pub(super) fn element(&self) -> TileElement {
        match self {
            Self::Array { map, .. } => map.layout().element,
            Self::Pixels { map, .. } => map.layout().element,
        }
    }

    /// How the tile lies in shared memory.
    pub(super) fn swizzle(&self) -> TileSwizzle {
        match self {
            Self::Array { map, .. } => map.layout().swizzle,
            Self::Pixels { map, .. } => map.layout().swizzle,
        }
    }

    /// The bytes of the tile.
    pub(super) fn bytes(&self) -> usize {
        match self {
            Self::Array { map, .. } => map.layout().bytes(),
            Self::Pixels { map, .. } => map.layout().bytes(),
        }
    }

    /// The first coordinate, which TMA has begin at whole pieces.
    pub(super) fn first_coordinate(&self) -> i32 {
        let (Self::Array { at: [first, ..], .. } | Self::Pixels { at: [first, ..], .. }) = self;
        first.cast_signed()
    }

    /// Calls `visit` for every element that is read or written, with its place in the tile's shared memory and in the array, in bytes.
    /// Elements of a line, or of a pixel, come one after the other.
    pub(super) fn visit(&self, kind: AccessKind, visit: impl FnMut(usize, usize)) {
        match self {
            Self::Array { map, at } => visit_array(map, *at, kind, visit),
            Self::Pixels { map, at, tap } => visit_pixels(map, *at, *tap, visit),
        }
    }
}

impl Tile<'_> {
    /// Calls `visit` for every element that comes before the memory of an array, with its place in the tile's shared memory.
    pub(super) fn visit_before(&self, mut visit: impl FnMut(usize)) {
        let Self::Array { map, at } = self else { return };
        let before = u64::from(map.elements_before());
        if before > 0 {
            visit_coordinates(map, *at, AccessKind::Read, |in_tile, [x, ..]| {
                if x < before {
                    visit(in_tile);
                }
            });
        }
    }
}

/// [`Tile::visit`] of a tile of an array. What comes before the memory is not visited.
fn visit_array(map: &TensorMap<'_>, first: [u32; 3], kind: AccessKind, mut visit: impl FnMut(usize, usize)) {
    let before = u64::from(map.elements_before());
    visit_coordinates(map, first, kind, |in_tile, coordinates| {
        if coordinates[0] >= before {
            let [x, y, z] = coordinates;
            let strides = map.layout().byte_strides;
            visit(in_tile, ((x - before) * strides[0] + y * strides[1] + z * strides[2]) as usize);
        }
    });
}

/// Calls `visit` for every element of a tile of an array that is read or written, with its place in the tile's shared memory and its coordinates.
fn visit_coordinates(map: &TensorMap<'_>, first: [u32; 3], kind: AccessKind, mut visit: impl FnMut(usize, [u64; 3])) {
    let (layout, bytes) = (map.layout(), map.layout().element.bytes());
    let mut extents = layout.extents;
    if kind == AccessKind::Write {
        // Whole pieces of lines are stored.
        extents[0] = extents[0].next_multiple_of(PIECE_BYTES / bytes as u64);
    }
    let [length, lines, matrices] = layout.tile;
    for matrix in 0..matrices {
        for line in 0..lines {
            for place in 0..length {
                let at = [place, line, matrix];
                // Coordinates are signed: a tile may begin before the array, with negative ones.
                let coordinates: [u64; 3] =
                    core::array::from_fn(|i| (i64::from(first[i].cast_signed()) + i64::from(at[i])) as u64);
                if (0..3).all(|i| coordinates[i] < extents[i]) {
                    let number = ((matrix * lines + line) * length + place) as usize;
                    let in_tile = layout.swizzle.apply(number * bytes);
                    visit(in_tile, coordinates);
                }
            }
        }
    }
}

/// Where base pixels end, in columns (0) or rows.
fn end(map: &ImageMap<'_>, i: usize) -> i64 {
    map.layout().extents[i + 1] as i64 + i64::from(map.layout().upper[i])
}

/// Whether there is a base pixel at these coordinates, of whichever image.
pub(super) fn is_base_pixel(map: &ImageMap<'_>, [_, column, row, _]: [u32; 4]) -> bool {
    let layout = map.layout();
    let at = [column, row].map(|at| i64::from(at.cast_signed()));
    (0..2).all(|i| {
        let from_lower = at[i] - i64::from(layout.lower[i]);
        from_lower >= 0 && from_lower % i64::from(layout.steps[i]) == 0 && at[i] < end(map, i)
    })
}

/// [`Tile::visit`] of pixels.
fn visit_pixels(map: &ImageMap<'_>, first: [u32; 4], tap: [u16; 2], mut visit: impl FnMut(usize, usize)) {
    let (layout, bytes) = (map.layout(), map.layout().element.bytes());
    let [channel, mut column, mut row, mut image] = first.map(|coordinate| i64::from(coordinate.cast_signed()));
    let [lower, steps] = [layout.lower.map(i64::from), layout.steps.map(i64::from)];
    for pixel in 0..layout.pixels {
        let (x, y) = (column + i64::from(tap[0]), row + i64::from(tap[1]));
        for place in 0..layout.channels {
            let coordinates = [channel + i64::from(place), x, y, image].map(|at| at as u64);
            if (0..4).all(|i| coordinates[i] < layout.extents[i]) {
                let number = (pixel * layout.channels + place) as usize;
                let in_array: u64 = (0..4).map(|i| coordinates[i] * layout.byte_strides[i]).sum();
                visit(layout.swizzle.apply(number * bytes), in_array as usize);
            }
        }
        column += steps[0];
        if column >= end(map, 0) {
            (column, row) = (lower[0], row + steps[1]);
        }
        if row >= end(map, 1) {
            (row, image) = (lower[1], image + 1);
        }
    }
}
