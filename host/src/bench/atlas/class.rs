//! What a class of shapes is, and how its shapes are chosen: all of them, a sample, or others by a seed.

use std::collections::HashSet;

use rand::SeedableRng;
use rand::rngs::SmallRng;
use rand::seq::index;

use super::shape::Shape;

/// The most bytes that A, B and C of a shape may lie in: larger ones are in no class.
pub const LIMIT_BYTES: u64 = 6 << 30;

/// The shapes of a class that are drawn from a seed, unless a number is asked for.
const DRAWN: usize = 32;

/// How often a class may draw what it cannot use, or has drawn before, for each shape that is wanted.
const DRAWS_FOR_ONE: usize = 200;

/// Shapes that have something in common.
pub struct Class {
    /// The name.
    pub name: &'static str,
    /// What is in it, in a sentence.
    pub about: &'static str,
    /// The shapes of the atlas itself, those of too many bytes included.
    pub(super) list: fn() -> Vec<Shape>,
    /// A shape by chance.
    pub(super) draw: fn(&mut SmallRng) -> Shape,
    /// Whether a shape is as `about` says.
    pub(super) holds: fn(&Shape) -> bool,
}

/// A class with those of its shapes that are asked for.
#[derive(Clone)]
pub struct Chosen {
    /// The class.
    pub class: &'static Class,
    /// The shapes.
    pub shapes: Vec<Shape>,
}

impl Class {
    /// Whether a shape is one of this class.
    pub fn has(&self, shape: &Shape) -> bool {
        (self.holds)(shape) && shape.bytes() <= LIMIT_BYTES
    }

    /// The shapes of a seed: for 0 the atlas itself, or `sample` of its shapes in their order; for any other seed `sample` shapes
    /// by chance from the same ranges, the same ones whenever the seed is the same; fewer where a class has not as many.
    pub fn shapes(&self, seed: u64, sample: Option<usize>) -> Vec<Shape> {
        let mut generator = self.generator(seed);
        if seed == 0 {
            let mut shapes = (self.list)();
            shapes.retain(|shape| self.has(shape));
            if let Some(sample) = sample.filter(|&sample| sample < shapes.len()) {
                let mut chosen = index::sample(&mut generator, shapes.len(), sample).into_vec();
                chosen.sort_unstable();
                return chosen.into_iter().map(|index| shapes[index]).collect();
            }
            return shapes;
        }
        let wanted = sample.unwrap_or(DRAWN);
        let (mut shapes, mut ids) = (Vec::new(), HashSet::new());
        for _ in 0..wanted.saturating_mul(DRAWS_FOR_ONE) {
            if shapes.len() == wanted {
                break;
            }
            let shape = (self.draw)(&mut generator);
            if self.has(&shape) && ids.insert(shape.id()) {
                shapes.push(shape);
            }
        }
        shapes
    }

    /// A generator for this class alone: what one class draws does not depend on which others are asked for.
    fn generator(&self, seed: u64) -> SmallRng {
        // FNV-1a of the name.
        let name = self
            .name
            .bytes()
            .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
        SmallRng::seed_from_u64(seed ^ name)
    }
}
