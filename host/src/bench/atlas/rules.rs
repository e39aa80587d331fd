//! The rule of each class: its shapes in the atlas, how others are drawn, and what holds for all of them.

use rand::RngExt;
use rand::rngs::SmallRng;

use super::class::Class;
use super::shape::{Operand, Shape};
use tilewright::{Order, Orders};

/// The rows of an activation: from one token to a small batch of prompts.
const ROWS: [usize; 15] = [1, 2, 3, 4, 5, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192];

/// Weights of language models, as inputs k and outputs n: k by n.
const WEIGHTS: [[usize; 2]; 8] = [
    [4096, 4096],
    [4096, 11_008],
    [8192, 8192],
    [8192, 28_672],
    [28_672, 8192],
    [4096, 32_000],
    [4096, 128_256],
    [32_768, 32_768],
];

pub(super) const FEW_ROWS: Class = Class {
    name: "few-rows",
    about: "1 to 192 rows, row-major, times a weight of 2^20 to 2^30 elements, row-major (x·W) or column-major (x·Wᵀ)",
    list: || {
        let shape = |m, [k, n]: [usize; 2], orders| Shape::dense(1, [m, n, k], orders);
        let weights =
            |m| WEIGHTS.into_iter().flat_map(move |weight| [(m, weight, Orders::NN), (m, weight, Orders::NT)]);
        ROWS.into_iter().flat_map(weights).map(|(m, weight, orders)| shape(m, weight, orders)).collect()
    },
    draw: |rng| {
        let [k, n] = [extent(rng, 1024, 32_768), extent(rng, 1024, 131_072)];
        Shape::dense(1, [extent(rng, 1, 192), n, k], pick(rng, &[Orders::NN, Orders::NT]))
    },
    holds: |shape| {
        (1..=192).contains(&shape.m) && is_weight(shape.n, shape.k) && is_plain(shape) && is_by_rows(&shape.a)
    },
};

pub(super) const FEW_COLUMNS: Class = Class {
    name: "few-columns",
    about: "a weight of 2^20 to 2^30 elements, row-major or column-major, times 1 to 192 columns of either order",
    list: || {
        let columns = |(index, n): (usize, usize)| {
            let b = Order::ALL[index % 2];
            let orders = Order::ALL.map(|a| Orders { a, b });
            WEIGHTS.into_iter().flat_map(move |[k, m]| orders.map(|orders| Shape::dense(1, [m, n, k], orders)))
        };
        ROWS.into_iter().enumerate().flat_map(columns).collect()
    },
    draw: |rng| {
        let [k, m] = [extent(rng, 1024, 32_768), extent(rng, 1024, 131_072)];
        Shape::dense(1, [m, extent(rng, 1, 192), k], pick(rng, &Orders::ALL))
    },
    holds: |shape| (1..=192).contains(&shape.n) && is_weight(shape.m, shape.k) && is_plain(shape),
};

pub(super) const SQUARES: Class = Class {
    name: "squares",
    about: "row-major squares of 7 to 16385: powers of two, three times these, one more and one less, primes",
    list: || {
        let powers = (3..=14).map(|power| 1usize << power);
        let threes = (2..=12).map(|power| 3usize << power);
        let primes = [29, 67, 131, 269, 541, 1091, 2179, 4327, 8467, 14_009];
        let around = powers.chain(threes).flat_map(|size| [size - 1, size, size + 1]);
        around.chain(primes).map(|size| Shape::dense(1, [size; 3], Orders::NN)).collect()
    },
    draw: |rng| Shape::dense(1, [extent(rng, 7, 16_385); 3], Orders::NN),
    holds: |shape| {
        shape.m == shape.n && shape.n == shape.k && (7..=16_385).contains(&shape.m) && is_plain(shape) && is_nn(shape)
    },
};

pub(super) const BATCHES: Class = Class {
    name: "batches",
    about: "16 to 100000 products of 4 to 128 rows, columns and terms, in all layouts",
    list: || {
        let counts = [16, 128, 1024, 8192, 32_768, 100_000];
        let sizes = [4, 8, 12, 16, 24, 32, 48, 64, 96, 128];
        let all = counts.into_iter().flat_map(|count| sizes.map(|size| (count, size)));
        let shape = |(index, (count, size))| Shape::dense(count, [size; 3], Orders::ALL[index % 4]);
        all.enumerate().map(shape).collect()
    },
    draw: |rng| {
        let extents = [4; 3].map(|least| extent(rng, least, 128));
        Shape::dense(extent(rng, 16, 100_000), extents, pick(rng, &Orders::ALL))
    },
    holds: |shape| {
        (16..=100_000).contains(&shape.batch)
            && shape.extents().iter().all(|extent| (4..=128).contains(extent))
            && shape.is_dense()
            && is_by_rows(&shape.c)
    },
};

pub(super) const ATTENTION: Class = Class {
    name: "attention",
    about: "scores q·kᵀ, L×d·d×L, and values p·v, L×L·L×d, of 1 to 512 heads, with L from 128 to 8192 and d of 64 or 128",
    list: || {
        let mut shapes = Vec::new();
        for heads in [16, 96] {
            for length in [128, 256, 512, 1024, 2048, 4096, 8192] {
                for width in [64, 128] {
                    shapes.extend([scores(heads, length, width), values(heads, length, width)]);
                }
            }
        }
        shapes
    },
    draw: |rng| {
        let (heads, length, width) = (extent(rng, 1, 512), extent(rng, 128, 8192), pick(rng, &[64, 128]));
        pick(rng, &[scores, values])(heads, length, width)
    },
    holds: |shape| {
        let width = if shape.b.order() == Some(Order::ColumnMajor) { shape.k } else { shape.n };
        let expected = [scores, values].map(|of| of(shape.batch, shape.m, width));
        (1..=512).contains(&shape.batch)
            && (128..=8192).contains(&shape.m)
            && [64, 128].contains(&width)
            && expected.contains(shape)
    },
};

pub(super) const BATCHED_MATVEC: Class = Class {
    name: "batched-matvec",
    about: "16 to 65536 products of a matrix and a vector, or of a vector and a matrix, of 16 to 8192 rows and columns",
    list: || {
        let mut shapes = Vec::new();
        for count in [16, 64, 256, 1024, 4096, 65_536] {
            for [rows, cols] in [[64, 64], [128, 128], [128, 1024], [1024, 128], [1024, 1024], [4096, 128]] {
                let (a, b) = (Order::ALL[shapes.len() / 2 % 2], Order::ALL[shapes.len() / 4 % 2]);
                shapes.push(matrix_by_vector(count, rows, cols, a));
                shapes.push(vector_by_matrix(count, rows, cols, b));
            }
        }
        shapes
    },
    draw: |rng| {
        let (rows, cols) = (extent(rng, 16, 8192), extent(rng, 16, 8192));
        pick(rng, &[matrix_by_vector, vector_by_matrix])(extent(rng, 16, 65_536), rows, cols, pick(rng, &Order::ALL))
    },
    holds: |shape| {
        let rest = if shape.n == 1 { shape.m } else { shape.n };
        (shape.m == 1 || shape.n == 1)
            && (16..=65_536).contains(&shape.batch)
            && [rest, shape.k].iter().all(|extent| (16..=8192).contains(extent))
            && shape.is_dense()
    },
};

pub(super) const TALL_NARROW: Class = Class {
    name: "tall-narrow",
    about: "m, n or k from 10000 to 1000000, the other two from 1 to 512, in all layouts",
    list: || {
        let mut shapes = Vec::new();
        for long in [10_000, 65_536, 100_000, 262_144, 1_000_000] {
            for [one, other] in [[1, 64], [4, 4], [16, 16], [32, 256], [64, 64], [512, 512]] {
                for extents in [[long, one, other], [one, long, other], [one, other, long]] {
                    shapes.push(Shape::dense(1, extents, Orders::ALL[shapes.len() / 3 % 4]));
                }
            }
        }
        shapes
    },
    draw: |rng| {
        let (long, one, other) = (extent(rng, 10_000, 1_000_000), extent(rng, 1, 512), extent(rng, 1, 512));
        let extents = pick(rng, &[[long, one, other], [one, long, other], [one, other, long]]);
        Shape::dense(1, extents, pick(rng, &Orders::ALL))
    },
    holds: |shape| {
        let mut extents = shape.extents();
        extents.sort_unstable();
        let [least, middle, most] = extents;
        least >= 1 && middle <= 512 && (10_000..=1_000_000).contains(&most) && is_plain(shape)
    },
};

pub(super) const LONG_SUMS: Class = Class {
    name: "long-sums",
    about: "64 to 512 rows and columns with sums over 100000 to 1000000, and dot products of 10000 to 100000000 terms",
    list: || {
        let mut shapes = Vec::new();
        for [m, n] in [[64, 64], [128, 128], [256, 256], [512, 512], [64, 512]] {
            for k in [100_000, 262_144, 524_288, 1_000_000] {
                shapes.extend([Orders::NN, Orders::NT, Orders::TN].map(|orders| Shape::dense(1, [m, n, k], orders)));
            }
        }
        shapes.extend((4..=8).map(|power| dot(10usize.pow(power))));
        shapes
    },
    draw: |rng| {
        if rng.random_range(0..8) == 0 {
            return dot(extent(rng, 10_000, 100_000_000));
        }
        let extents = [extent(rng, 64, 512), extent(rng, 64, 512), extent(rng, 100_000, 1_000_000)];
        Shape::dense(1, extents, pick(rng, &Orders::ALL))
    },
    holds: |shape| {
        let [m, n, k] = shape.extents();
        let sums = (64..=512).contains(&m) && (64..=512).contains(&n) && (100_000..=1_000_000).contains(&k);
        (sums || (*shape == dot(k) && (10_000..=100_000_000).contains(&k))) && is_plain(shape)
    },
};

pub(super) const OUTER: Class = Class {
    name: "outer",
    about: "sums over 1 to 8 for a result of 512 to 16384 rows and columns, in all layouts",
    list: || {
        let results =
            [[512, 512], [2048, 2048], [4096, 4096], [16_384, 16_384], [512, 16_384], [16_384, 512], [8191, 3001]];
        let all = [1, 2, 4, 8].into_iter().flat_map(|k| results.map(|[m, n]| [m, n, k]));
        all.enumerate().map(|(index, extents)| Shape::dense(1, extents, Orders::ALL[index % 4])).collect()
    },
    draw: |rng| {
        let extents = [extent(rng, 512, 16_384), extent(rng, 512, 16_384), rng.random_range(1..=8)];
        Shape::dense(1, extents, pick(rng, &Orders::ALL))
    },
    holds: |shape| {
        [shape.m, shape.n].iter().all(|extent| (512..=16_384).contains(extent))
            && (1..=8).contains(&shape.k)
            && is_plain(shape)
    },
};

pub(super) const LAYOUTS: Class = Class {
    name: "layouts",
    about: "128 to 4096 rows, columns and terms in all orders of A, B and C",
    list: || {
        let sizes = [[512; 3], [1024; 3], [2048, 1024, 512], [1000, 1500, 700], [3072, 3072, 768]];
        let both = |shape: Shape| [shape, shape.into_columns()];
        let all = |extents| Orders::ALL.into_iter().flat_map(move |orders| both(Shape::dense(1, extents, orders)));
        sizes.into_iter().flat_map(all).collect()
    },
    draw: |rng| {
        let shape = Shape::dense(1, [128; 3].map(|least| extent(rng, least, 4096)), pick(rng, &Orders::ALL));
        if rng.random() { shape.into_columns() } else { shape }
    },
    holds: |shape| {
        shape.batch == 1 && shape.is_dense() && shape.extents().iter().all(|extent| (128..=4096).contains(extent))
    },
};

/// A number from `least` to `most` whose logarithm is uniform: as it is, or the next multiple of 16 or power of two below it.
pub(super) fn extent(rng: &mut SmallRng, least: usize, most: usize) -> usize {
    let (low, high) = ((least as f64).ln(), ((most + 1) as f64).ln());
    let number = (rng.random_range(low..high).exp() as usize).clamp(least, most);
    let rounded = match rng.random_range(0..3) {
        0 => number,
        1 => number / 16 * 16,
        _ => 1 << number.ilog2(),
    };
    if rounded < least { number } else { rounded }
}

/// One of some.
pub(super) fn pick<T: Copy>(rng: &mut SmallRng, from: &[T]) -> T {
    from[rng.random_range(0..from.len())]
}

/// One product without gaps and with a row-major result.
fn is_plain(shape: &Shape) -> bool {
    shape.batch == 1 && shape.is_dense() && is_by_rows(&shape.c)
}

fn is_by_rows(operand: &Operand) -> bool {
    *operand == Operand::dense(Order::RowMajor, operand.rows, operand.cols)
}

fn is_nn(shape: &Shape) -> bool {
    is_by_rows(&shape.a) && is_by_rows(&shape.b)
}

fn is_weight(outputs: usize, inputs: usize) -> bool {
    outputs >= 1024 && inputs >= 1024 && (1 << 20..=1 << 30).contains(&(outputs * inputs))
}

fn scores(heads: usize, length: usize, width: usize) -> Shape {
    Shape::dense(heads, [length, length, width], Orders::NT)
}

fn values(heads: usize, length: usize, width: usize) -> Shape {
    Shape::dense(heads, [length, width, length], Orders::NN)
}

fn matrix_by_vector(count: usize, rows: usize, cols: usize, order: Order) -> Shape {
    Shape::dense(count, [rows, 1, cols], Orders { a: order, b: Order::RowMajor })
}

fn vector_by_matrix(count: usize, rows: usize, cols: usize, order: Order) -> Shape {
    Shape::dense(count, [1, cols, rows], Orders { a: Order::RowMajor, b: order })
}

fn dot(terms: usize) -> Shape {
    Shape::dense(1, [1, 1, terms], Orders::NT)
}
