//! Tiles by TMA: of all elements and swizzles, inside an array, across its borders and outside.

use cuda_driver::{TensorElement, TensorSwizzle};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::machine::{Error, Machine, Tensor};
use super::number::Format;
use super::operands::special_numbers;
use super::outcome::Outcome;
use super::words::{Content, loaded_as_tf32};

/// What the words of an array are before a store.
const UNTOUCHED: u32 = 0x5EA1_5EA1;

/// A comparison of loads or stores.
pub struct Tiles {
    /// What it is called.
    pub name: String,
    tensor: Tensor,
    at: Vec<[i32; 3]>,
    what: What,
}

/// What is done with tiles.
#[derive(Clone, Copy, PartialEq, Eq)]
enum What {
    /// They are loaded, each into so many blocks.
    Loads {
        blocks: usize,
    },
    Stores,
}

/// All comparisons.
pub fn tiles() -> Vec<Tiles> {
    let mut all = Vec::new();
    let elements = [
        ("fp16", TensorElement::Fp16),
        ("bf16", TensorElement::Bf16),
        ("fp32", TensorElement::Fp32),
        ("tf32", TensorElement::Tf32),
    ];
    // Bytes of a line of a tile, lines, matrices.
    let boxes = [
        (TensorSwizzle::None, [16, 3, 1]),
        (TensorSwizzle::None, [64, 8, 2]),
        (TensorSwizzle::None, [128, 32, 1]),
        (TensorSwizzle::None, [176, 7, 1]),
        (TensorSwizzle::Bytes128, [128, 8, 1]),
        (TensorSwizzle::Bytes128, [128, 21, 2]),
        (TensorSwizzle::Bytes128, [128, 128, 1]),
    ];
    for what in [What::Loads { blocks: 1 }, What::Stores, What::Loads { blocks: 2 }] {
        for (name, element) in elements {
            for (swizzle, [line_bytes, lines, matrices]) in boxes {
                let bytes = element.bytes();
                let tile = [line_bytes / bytes as u32, lines, matrices];
                // Lines that end with half a piece of 16 bytes, and a gap behind them.
                let extents = [(296 + 8) / bytes - 1, 37, 3];
                let byte_strides = [bytes, 320, 320 * 38];
                let tensor = Tensor { element, extents, byte_strides, tile, swizzle };
                let kind = match what {
                    What::Loads { blocks: 1 } => "load_tiles",
                    What::Loads { .. } => "load_tiles_to_blocks",
                    What::Stores => "store_tile",
                };
                let swizzle = if swizzle == TensorSwizzle::None { "straight" } else { "swizzled" };
                let name = format!("{kind}_{name}_{swizzle}_{line_bytes}x{lines}x{matrices}");
                all.push(Tiles { name, tensor, at: coordinates(&tensor, what == What::Stores), what });
            }
        }
    }
    // One matrix for all products of a batch.
    let (element, byte_strides) = (TensorElement::Fp32, [4, 320, 0]);
    let (extents, tile, swizzle) = ([75, 37, 3], [32, 8, 1], TensorSwizzle::Bytes128);
    let tensor = Tensor { element, extents, byte_strides, tile, swizzle };
    all.push(Tiles {
        name: "load_tiles_fp32_shared_matrix".into(),
        tensor,
        at: coordinates(&tensor, false),
        what: What::Loads { blocks: 1 },
    });
    all
}

/// Where tiles begin: inside, across each border, and outside, also far. Where TMA can begin, that is.
fn coordinates(tensor: &Tensor, stores: bool) -> Vec<[i32; 3]> {
    let [length, lines, matrices] = tensor.extents.map(|extent| extent as i32);
    let [across, down, _] = tensor.tile.map(|extent| extent as i32);
    let piece = 16 / tensor.element.bytes() as i32;
    let (last_piece, behind) = ((length - 1) / piece * piece, (length + piece - 1) / piece * piece);
    let xs = [
        i32::MIN,
        -across - piece,
        -across,
        piece - across,
        -piece,
        0,
        piece,
        (length - across) / piece * piece,
        last_piece,
        behind,
        i32::MAX / 256 * 256,
    ];
    let ys = [-down, 1 - down, -1, 0, 3, lines - down, lines - 1, lines, i32::MAX - 255];
    let zs = [-1, 0, matrices - 1, matrices];
    let mut at = Vec::new();
    for (i, &x) in xs.iter().enumerate() {
        for (j, &y) in ys.iter().enumerate() {
            for (k, &z) in zs.iter().enumerate() {
                // Stores are compared array by array. So not all values of a coordinate with all of the others, but each with some.
                let is_usual = [x, y, z].iter().filter(|&&coordinate| coordinate == 0).count() >= 2;
                let is_stored = [x, y, z].iter().all(|&coordinate| coordinate >= 0)
                    && (is_usual || (i + 5 * j + 3 * k).is_multiple_of(3));
                if !stores || is_stored {
                    at.push([x, y, z]);
                }
            }
        }
    }
    at
}

impl Tiles {
    /// Compares what both sides do; without another machine, the executor with what the description of tensor maps says.
    ///
    /// # Errors
    /// What a launch reports.
    pub fn compare(&self, executor: &Machine, other: Option<&Machine>, seed: u64) -> Result<Outcome, Error> {
        let mut rng = StdRng::seed_from_u64(seed);
        let mut outcome = Outcome::new(&self.name);
        outcome.cases = self.at.len();
        match self.what {
            What::Stores => self.compare_stores(executor, other, &mut rng, &mut outcome)?,
            What::Loads { blocks } => self.compare_loads(blocks, executor, other, &mut rng, &mut outcome)?,
        }
        Ok(outcome)
    }

    fn compare_loads(
        &self,
        blocks: usize,
        executor: &Machine,
        other: Option<&Machine>,
        rng: &mut StdRng,
        outcome: &mut Outcome,
    ) -> Result<(), Error> {
        let special = special_numbers(Format::Fp32);
        let word = |rng: &mut StdRng| match rng.random_range(0..4) {
            0 => special[rng.random_range(0..special.len())],
            // Ties of TF32, and their neighbours.
            1 => (rng.random::<u32>() & 0xFFFF_E000 | 0x1000).wrapping_add(rng.random_range(0..3)).wrapping_sub(1),
            _ => rng.random(),
        };
        let array: Vec<u32> = (0..self.words()).map(|_| word(rng)).collect();
        let here = executor.load_tiles(&self.tensor, &array, &self.at, blocks)?;
        let there = match other {
            Some(other) => other.load_tiles(&self.tensor, &array, &self.at, blocks)?,
            None => self.at.iter().flat_map(|&at| self.loaded(&array, at).repeat(blocks)).collect(),
        };
        let words = self.tensor.tile_words();
        let content = if self.tensor.element == TensorElement::Tf32 { Content::Numbers } else { Content::Bits };
        for (i, (executor, other)) in here.into_iter().zip(there).enumerate() {
            outcome.enter(content, executor, other, || {
                let at = self.at[i / words / blocks];
                let source: Vec<u32> = self.sources(at, i % words).map(|word| array[word]).collect();
                (format!("tile at {at:?}, word {}", i % words), format!("array has {}", super::outcome::hex(&source)))
            });
        }
        Ok(())
    }

    fn compare_stores(
        &self,
        executor: &Machine,
        other: Option<&Machine>,
        rng: &mut StdRng,
        outcome: &mut Outcome,
    ) -> Result<(), Error> {
        let before = vec![UNTOUCHED; self.words()];
        for &at in &self.at {
            let tile: Vec<u32> = (0..self.tensor.tile_words()).map(|_| rng.random()).collect();
            let (mut here, mut there) = (before.clone(), before.clone());
            executor.store_tile(&self.tensor, &mut here, at, &tile)?;
            match other {
                Some(other) => other.store_tile(&self.tensor, &mut there, at, &tile)?,
                None => self.stored(&mut there, at, &tile),
            }
            for (word, (executor, other)) in here.into_iter().zip(there).enumerate() {
                outcome.enter(Content::Bits, executor, other, || {
                    let (byte, [_, line, matrix]) = (4 * word as u64, self.tensor.byte_strides);
                    let place = [byte % line, byte % matrix / line, byte / matrix];
                    let tile_word = tile.iter().position(|&word| word == other || word == executor);
                    let found = tile_word.map_or("no word of the tile".into(), |at| format!("word {at} of the tile"));
                    (format!("tile at {at:?}, byte, line and matrix {place:?} of the array"), found)
                });
            }
        }
        Ok(())
    }

    /// The words of the array; of one matrix, if all are the same.
    fn words(&self) -> usize {
        self.tensor.words()
    }

    /// Calls `visit` for each element of a tile that is inside these extents, with its places in the tile and in the array, in bytes.
    fn visit(&self, extents: [u64; 3], at: [i32; 3], mut visit: impl FnMut(usize, usize)) {
        let Tensor { element, byte_strides, tile, swizzle, .. } = self.tensor;
        let bytes = element.bytes();
        let mut place = 0;
        for z in 0..tile[2] {
            for y in 0..tile[1] {
                for x in 0..tile[0] {
                    let coordinates = [x, y, z].map(i64::from);
                    let inside: Option<[u64; 3]> = (0..3)
                        .map(|i| u64::try_from(coordinates[i] + i64::from(at[i])).ok().filter(|&to| to < extents[i]))
                        .collect::<Option<Vec<_>>>()
                        .and_then(|all| all.try_into().ok());
                    if let Some(to) = inside {
                        let in_array: u64 = (0..3).map(|i| to[i] * byte_strides[i]).sum();
                        // The pattern is one of addresses: bits 4 to 6 are xored with bits 7 to 9.
                        let in_tile = match swizzle {
                            TensorSwizzle::None => place,
                            TensorSwizzle::Bytes128 => place ^ (place >> 7 & 7) << 4,
                        };
                        visit(in_tile as usize, in_array as usize);
                    }
                    place += bytes;
                }
            }
        }
    }

    /// The words of the array that a word of a tile is from.
    fn sources(&self, at: [i32; 3], word: usize) -> impl Iterator<Item = usize> {
        let mut sources = Vec::new();
        self.visit(self.tensor.extents, at, |in_tile, in_array| {
            if in_tile / 4 == word {
                sources.push(in_array / 4);
            }
        });
        sources.into_iter()
    }

    /// A tile in shared memory.
    fn loaded(&self, array: &[u32], at: [i32; 3]) -> Vec<u32> {
        let mut tile = vec![0; self.tensor.tile_words()];
        self.visit(self.tensor.extents, at, |in_tile, in_array| match self.tensor.element.bytes() {
            2 => {
                let half = array[in_array / 4] >> (8 * (in_array % 4)) & 0xFFFF;
                tile[in_tile / 4] |= half << (8 * (in_tile % 4));
            }
            _ if self.tensor.element == TensorElement::Tf32 => {
                tile[in_tile / 4] = loaded_as_tf32(array[in_array / 4]);
            }
            _ => tile[in_tile / 4] = array[in_array / 4],
        });
        tile
    }

    /// Stores a tile, by pieces of 16 bytes.
    fn stored(&self, array: &mut [u32], at: [i32; 3], tile: &[u32]) {
        let [length, lines, matrices] = self.tensor.extents;
        let length = length.next_multiple_of(16 / self.tensor.element.bytes());
        self.visit([length, lines, matrices], at, |in_tile, in_array| {
            let mask = if self.tensor.element.bytes() == 2 { 0xFFFF << (8 * (in_array % 4)) } else { u32::MAX };
            let word = tile[in_tile / 4] >> (8 * (in_tile % 4)) << (8 * (in_array % 4));
            array[in_array / 4] = array[in_array / 4] & !mask | word & mask;
        });
    }
}
