//! How a convolution is divided among the blocks of Hopper's kernels: tiles of so many pixels and of a group's filters, or of the filters of
//! several groups that share a stage. Kernels walk through them, and the host counts them to choose a kernel.

use super::{Convolution, Tile};

/// The channels of a stage, and of a product's instruction.
pub(super) const CHANNELS: u32 = 64;
pub(super) const STEP_CHANNELS: u32 = 16;
/// The filters that are stored at a time.
pub(super) const UNIT: u32 = 8;
/// The filters of a tile of several groups.
const SHARED_FILTERS: u32 = 64;

/// The tiles of a convolution, of so many pixels and at most so many filters, the filters of the same pixels one after the other, so that
/// those are in the second-level cache.
///
/// A group's filters are divided evenly: 344 are two tiles of 176, not one of 256 and one of 88, since blocks that always have the full one
/// would be the last ones to end. No more is loaded than a tile has: what comes from the second-level cache takes longer than the products
/// where channels begin anywhere in a line.
#[derive(Clone, Copy)]
pub(super) struct Tiles {
    /// The pixels of a tile.
    pub(super) rows: u32,
    /// The filters of a warpgroup, a multiple of eight, and of a tile.
    pub(super) of_warpgroup: u32,
    pub(super) of_tile: u32,
    /// The tiles of a group's filters, and of all groups.
    of_group: u32,
    across: u32,
    /// The pixels of the result.
    pub(super) pixels: u32,
}

impl Tiles {
    /// Those of a convolution, of so many pixels and at most so many filters, which so many warpgroups share evenly likewise. (Those of several groups
    /// are never shared.)
    #[inline(always)]
    pub(super) fn new(conv: &Convolution, [rows, filters]: [u32; 2], warpgroups: u32) -> Self {
        let of_group = conv.filters.div_ceil(filters).max(1);
        let of_warpgroup = conv.filters.div_ceil(of_group * warpgroups).next_multiple_of(UNIT);
        let [down, across] = conv.out();
        Self {
            rows,
            of_warpgroup,
            of_tile: warpgroups * of_warpgroup,
            of_group,
            across: (of_group * conv.groups).max(1),
            pixels: conv.batch * down * across,
        }
    }

    /// Tile `number`, if it is there.
    #[inline(always)]
    pub(super) fn tile(&self, conv: &Convolution, number: u32) -> Option<Tile> {
        let (pixel, at) = (number / self.across * self.rows, number % self.across);
        let (group, filter) = (at / self.of_group, at % self.of_group * self.of_tile);
        (pixel < self.pixels && filter < conv.filters).then_some(Tile { pixel, group, filter })
    }
}

#[cfg(not(target_arch = "nvptx64"))]
impl Tiles {
    /// How many there are, unless a block's number could not count them.
    pub(super) fn count(&self) -> Option<u32> {
        let all = u64::from(self.pixels.div_ceil(self.rows)) * u64::from(self.across);
        // A block counts on from its last tile by the number of blocks.
        u32::try_from(all).ok().filter(|&all| all <= i32::MAX as u32 / 2)
    }

    /// In how many rounds so many blocks go through all of them.
    pub(super) fn rounds(&self, workers: u32) -> Option<u32> {
        self.count().filter(|&count| count > 0).map(|count| count.div_ceil(workers))
    }

    /// The fewest pixels of a tile with which so many blocks need no more rounds.
    pub(super) fn fewest_rows(&self, workers: u32) -> Option<u32> {
        let of_pixels = self.rounds(workers)? * workers / self.across;
        Some(self.pixels.div_ceil(of_pixels).next_multiple_of(UNIT).min(self.rows))
    }
}

/// How many groups share a stage of a kernel with so many parts, and a tile of its filters: as many as fit, by powers of two. A part has the
/// filters of one group, and 16 channels are of one group.
#[inline(always)]
pub(super) fn sharing(conv: &Convolution, parts: u32) -> u32 {
    let fit = |groups: u32| conv.channels <= CHANNELS / groups && conv.groups.is_multiple_of(groups);
    let are_whole = conv.channels.is_multiple_of(STEP_CHANNELS) && conv.filters == SHARED_FILTERS / parts;
    if parts == 1 || !are_whole {
        1
    } else if parts == 4 && fit(4) {
        4
    } else if fit(2) {
        2
    } else {
        1
    }
}

/// The convolution with as many groups as one, with the channels and the filters of all of them, most pairs of which have nothing to do with one
/// another.
#[inline(always)]
pub(super) fn joined(conv: &Convolution, groups: u32) -> Convolution {
    let (channels, filters) = (conv.channels * groups, conv.filters * groups);
    Convolution { channels, filters, groups: conv.groups / groups, ..*conv }
}

/// The tiles of a kernel with so many parts, of so many pixels and at most so many filters, which so many warpgroups share.
#[cfg(not(target_arch = "nvptx64"))]
pub(super) fn tiles(conv: &Convolution, parts: u32, most: [u32; 2], warpgroups: u32) -> Tiles {
    Tiles::new(&joined(conv, sharing(conv, parts)), most, warpgroups)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_filter_is_in_one_tile_and_no_tile_has_none() {
        for (most, warpgroups) in [(64, 1), (128, 1), (160, 1), (192, 1), (256, 2)] {
            for filters in (8..=4 * 4096).step_by(8) {
                let conv = Convolution::of_row(1, [CHANNELS, filters], 3);
                let tiles = Tiles::new(&conv, [128, most], warpgroups);
                assert!(tiles.of_tile <= most && tiles.of_tile.is_multiple_of(8));
                let mut next = [0; 3];
                for number in 0..tiles.count().unwrap() {
                    let tile = tiles.tile(&conv, number).expect("a tile with filters");
                    assert_eq!(
                        tile.filter, next[tile.group as usize],
                        "{filters} filters, {most} at most, tile {number}"
                    );
                    next[tile.group as usize] = tile.filter + tiles.of_tile;
                }
                assert!(next.iter().all(|&next| next >= filters));
                assert!(tiles.tile(&conv, tiles.count().unwrap()).is_none());
            }
        }
    }

    #[test]
    fn fewer_pixels_of_a_tile_need_no_more_rounds() {
        for pixels in (1..200_000).step_by(997) {
            for (filters, groups, workers) in [(264, 1, 132), (104, 1, 132), (512, 5, 132), (64, 1, 3), (8, 40, 7)] {
                let conv = Convolution::of_row(pixels, [CHANNELS, filters], groups);
                let most = Tiles::new(&conv, [256, 128], 1);
                let (rounds, rows) = (most.rounds(workers).unwrap(), most.fewest_rows(workers).unwrap());
                let fewer = |rows| Tiles::new(&conv, [rows, 128], 1).rounds(workers).unwrap();
                assert!(rows <= 256 && fewer(rows) == rounds, "{pixels} pixels, {filters} filters: {rows}");
                assert!(rows == 8 || fewer(rows - 8) > rounds, "{pixels} pixels, {filters} filters: {rows}");
            }
        }
    }
}
