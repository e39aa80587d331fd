//! The classes whose operands lie in memory as operands of real programs do, and not as those of benchmarks: [`rules`](super::rules)
//! has the others.

use rand::RngExt;

use super::class::Class;
use super::rules::{extent, pick};
use super::shape::{Operand, Shape};
use tilewright::{Order, Orders};

pub(super) const UNALIGNED: Class = Class {
    name: "unaligned",
    about: "63 to 4096 rows, columns and terms with rows of no multiple of 4, offsets of 1 to 3, or gaps between rows",
    list: || {
        let sizes = [[512; 3], [1024; 3], [2048; 3], [64, 4096, 4096], [4096, 64, 1024]];
        let all = |extents| (0..UNALIGNMENTS).map(move |number| unaligned(extents, number, Orders::ALL[number % 4]));
        sizes.into_iter().flat_map(all).collect()
    },
    draw: |rng| {
        let extents = [64; 3].map(|least| extent(rng, least, 4096));
        let number = rng.random_range(0..UNALIGNMENTS);
        unaligned(extents, number, pick(rng, &Orders::ALL))
    },
    holds: |shape| {
        let odd = |operand: Operand| {
            !operand.leading_dimension().is_multiple_of(4) || (1..=3).contains(&operand.offset) || !operand.is_dense(1)
        };
        let [a, b, c] = shape.operands();
        shape.batch == 1
            && shape.extents().iter().all(|extent| (63..=4096).contains(extent))
            && [a, b, c].iter().all(|operand| operand.offset <= 3 && operand.order().is_some())
            && [a, b, c].into_iter().any(odd)
    },
};

pub(super) const STRIDED: Class = Class {
    name: "strided",
    about: "1 to 64 products of 64 to 2048 rows, columns and terms with strides along rows and columns, strides of 0, heads side by side",
    list: || {
        let sizes = [[256; 3], [512; 3], [1024; 3], [128, 2048, 512]];
        let all = |extents| (0..STRIDES).map(move |number| strided(extents, 16, number, Orders::ALL[number / 2 % 4]));
        sizes.into_iter().flat_map(all).collect()
    },
    draw: |rng| {
        let extents = [64; 3].map(|least| extent(rng, least, 2048));
        let (count, number) = (rng.random_range(2..=64), rng.random_range(0..STRIDES));
        strided(extents, count, number, pick(rng, &Orders::ALL))
    },
    holds: |shape| {
        (1..=64).contains(&shape.batch)
            && shape.extents().iter().all(|extent| (64..=2048).contains(extent))
            && !shape.is_dense()
            && shape.operands().iter().all(|operand| operand.offset == 0)
    },
};

/// The ways in which [`unaligned`] places operands.
const UNALIGNMENTS: usize = 9;

/// A product of which something is not aligned to 16 bytes, or has gaps. Extents are one less where they have to be no multiple of 4.
fn unaligned(extents: [usize; 3], number: usize, orders: Orders) -> Shape {
    let plain = Shape::dense(1, extents, orders);
    let gaps = |operand: Operand, gap: usize| {
        let order = operand.order().unwrap_or(Order::RowMajor);
        Operand::with_gaps(order, operand.rows, operand.cols, gap)
    };
    let Shape { a, b, c, .. } = plain;
    match number {
        0 => Shape::dense(1, extents.map(|extent| if extent.is_multiple_of(4) { extent - 1 } else { extent }), orders),
        1 => Shape { a: a.moved_by(1), ..plain },
        2 => Shape { b: b.moved_by(2), ..plain },
        3 => Shape { c: c.moved_by(3), ..plain },
        4 => Shape { a: a.moved_by(1), b: b.moved_by(3), c: c.moved_by(2), ..plain },
        5 => Shape { a: gaps(a, 1), ..plain },
        6 => Shape { b: gaps(b, 4), ..plain },
        7 => Shape { c: gaps(c, 3), ..plain },
        _ => Shape { a: gaps(a, 64), b: gaps(b, 64), c: gaps(c, 64), ..plain },
    }
}

/// The ways in which [`strided`] places operands.
const STRIDES: usize = 9;

/// Products whose operands are slices, broadcasts or permutations of others. Only the last three are batches, of `count`.
fn strided(extents: [usize; 3], count: usize, number: usize, orders: Orders) -> Shape {
    let (one, batch) = (Shape::dense(1, extents, orders), Shape::dense(count, extents, orders));
    match number {
        // Every second or third element: slices such as a[:, ::2].
        0 => Shape { a: one.a.spread(2), ..one },
        1 => Shape { b: one.b.spread(2), ..one },
        2 => Shape { c: one.c.spread(2), ..one },
        3 => Shape { a: one.a.spread(3), b: one.b.spread(2), ..one },
        // A row for all rows of A, a column for all columns of B: torch's expand.
        4 => Shape { a: Operand { row_stride: 0, col_stride: 1, ..one.a }, ..one },
        5 => Shape { b: Operand { row_stride: 1, col_stride: 0, ..one.b }, ..one },
        6 => Shape { a: batch.a.shared(), ..batch },
        7 => Shape { b: batch.b.shared(), ..batch },
        // A row of each head after the other, as attention has it before its heads are moved apart.
        _ => {
            let side_by_side = |rows, cols| Operand {
                batch_stride: cols,
                row_stride: count * cols,
                ..Operand::dense(Order::RowMajor, rows, cols)
            };
            let [m, n, k] = extents;
            Shape { a: side_by_side(m, k), b: side_by_side(k, n), c: side_by_side(m, n), ..batch }
        }
    }
}
