//! Products of views, each element of which is looked up by the definition.

use std::collections::BTreeMap;

use super::*;

fn contiguous(shape: &[usize]) -> View {
    View::contiguous(shape.to_vec()).unwrap()
}

/// With the extents in another order, as `transpose` makes it.
fn permuted(view: View, order: &[usize]) -> View {
    let of = |values: &[usize]| order.iter().map(|&place| values[place]).collect();
    View { shape: of(&view.shape), strides: of(&view.strides) }
}

/// For each place of c, the places of the factors, by the definition.
fn expected(a: &View, b: &View, c: &View) -> BTreeMap<usize, Vec<(usize, usize)>> {
    let mut sums = BTreeMap::new();
    let (rank_a, rank_b) = (a.shape.len(), b.shape.len());
    for index in 0..c.shape.iter().product() {
        let mut rest = index;
        let mut at = vec![0; c.shape.len()];
        for place in (0..at.len()).rev() {
            at[place] = rest % c.shape[place];
            rest /= c.shape[place];
        }
        let to: usize = at.iter().zip(&c.strides).map(|(at, stride)| at * stride).sum();
        let col = (rank_b > 1).then(|| at.pop().unwrap());
        let row = (rank_a > 1).then(|| at.pop().unwrap());
        let batch = |view: &View| -> usize {
            let own = view.shape.len().saturating_sub(2);
            let along = |place: usize| if view.shape[place] == 1 { 0 } else { at[at.len() - own + place] };
            (0..own).map(|place| along(place) * view.strides[place]).sum()
        };
        let terms = (0..a.shape[rank_a - 1]).map(|term| {
            let of_row = row.map_or(0, |row| row * a.strides[rank_a - 2]);
            let of_col = col.map_or(0, |col| col * b.strides[rank_b - 1]);
            let of_a = batch(a) + of_row + term * a.strides[rank_a - 1];
            (of_a, batch(b) + of_col + term * b.strides[rank_b.saturating_sub(2)])
        });
        sums.insert(to, terms.collect());
    }
    sums
}

/// The same, by the products.
fn computed(products: &Products) -> BTreeMap<usize, Vec<(usize, usize)>> {
    let mut sums = BTreeMap::new();
    let at = |first: usize, strides: Strides, matrix, row, col| {
        first + matrix * strides.batch + row * strides.rows + col * strides.cols
    };
    for [a, b, c] in products.offsets() {
        for matrix in 0..products.count {
            for row in 0..products.m {
                for col in 0..products.n {
                    let terms = (0..products.k)
                        .map(|term| (at(a, products.a, matrix, row, term), at(b, products.b, matrix, term, col)));
                    let before = sums.insert(at(c, products.c, matrix, row, col), terms.collect());
                    assert_eq!(before, None, "written twice");
                }
            }
        }
    }
    sums
}

/// The products of c without gaps, checked term by term.
fn products(a: &View, b: &View) -> Products {
    let c = contiguous(&Rule::Matmul.result(&a.shape, &b.shape).unwrap());
    let products = Products::new(a, b, &c, Triangle::All, false);
    assert_eq!(computed(&products), expected(a, b, &c), "{a:?} {b:?}");
    products
}

#[test]
fn every_term_of_every_element_is_there_once() {
    let shapes: [&[usize]; 12] = [
        &[3],
        &[2, 3],
        &[1, 3],
        &[4, 2, 3],
        &[1, 2, 3],
        &[4, 1, 3],
        &[2, 4, 2, 3],
        &[2, 1, 2, 3],
        &[1, 4, 2, 3],
        &[3, 1, 4, 2, 3],
        &[4, 0, 3],
        &[0, 1, 2, 3],
    ];
    let mut count = 0;
    for shape_a in shapes {
        for shape_b in shapes {
            let (a, b) = (contiguous(shape_a), contiguous(shape_b));
            let mut order: Vec<usize> = (0..b.shape.len()).collect();
            let last_two = order.len().saturating_sub(2);
            order[last_two..].reverse();
            let by_columns = permuted(b, &order);
            let by_rows = contiguous(&by_columns.shape);
            for b in [by_columns, by_rows] {
                if Rule::Matmul.result(&a.shape, &b.shape).is_ok() {
                    products(&a, &b);
                    count += 1;
                }
            }
        }
    }
    assert!(count > 100, "{count}");
}

#[test]
fn a_batch_with_one_matrix_for_all_folds_into_rows_or_columns() {
    let folded = products(&contiguous(&[5, 2, 3]), &contiguous(&[3, 4]));
    assert_eq!((folded.m, folded.n, folded.k, folded.count, folded.offsets().count()), (10, 4, 3, 1, 1));
    let folded = products(&contiguous(&[2, 5, 2, 3]), &contiguous(&[3, 4]));
    assert_eq!((folded.m, folded.count), (20, 1));
    let folded = products(&contiguous(&[2, 5, 2, 3]), &contiguous(&[3]));
    assert_eq!((folded.m, folded.n, folded.count), (20, 1, 1));
    // Every matrix of a has one row: a batch of vectors.
    let folded = products(&contiguous(&[3]), &contiguous(&[5, 3, 1]));
    assert_eq!((folded.m, folded.n, folded.count), (1, 5, 1));
    // Of invariant rows, the columns stay, and rows may be more.
    let (row, b) = (contiguous(&[1, 3]), contiguous(&[5, 3, 4]));
    let of = |a: &View, b: &View, c: &[usize]| Products::new(a, b, &contiguous(c), Triangle::All, true);
    let kept = of(&row, &b, &[5, 1, 4]);
    assert_eq!((kept.m, kept.n, kept.count), (1, 4, 5));
    assert_eq!(computed(&kept), expected(&row, &b, &contiguous(&[5, 1, 4])));
    assert_eq!(of(&contiguous(&[5, 2, 3]), &contiguous(&[3, 4]), &[5, 2, 4]).m, 10);
    // Triangles are of each matrix.
    let (a, b, c) = (contiguous(&[5, 2, 3]), contiguous(&[3, 4]), contiguous(&[5, 2, 4]));
    let kept = Products::new(&a, &b, &c, Triangle::Upper, false);
    assert_eq!((kept.m, kept.n, kept.count, kept.part), (2, 4, 5, Triangle::Upper));
    // Rows that do not go on at the same distance are a batch.
    let padded = View { shape: vec![5, 2, 3], strides: vec![100, 3, 1] };
    let batch = products(&padded, &contiguous(&[3, 4]));
    assert_eq!((batch.m, batch.count, batch.a.batch, batch.b.batch), (2, 5, 100, 0));
}

#[test]
fn a_batch_of_several_extents_is_one_where_strides_allow() {
    let merged = products(&contiguous(&[2, 5, 2, 3]), &contiguous(&[2, 5, 3, 4]));
    assert_eq!((merged.m, merged.count, merged.offsets().count()), (2, 10, 1));
    let permuted = products(&permuted(contiguous(&[5, 2, 2, 3]), &[1, 0, 2, 3]), &contiguous(&[2, 5, 3, 4]));
    assert_eq!((permuted.m, permuted.count, permuted.offsets().count()), (2, 5, 2));
    let broadcast = products(&contiguous(&[2, 1, 2, 3]), &contiguous(&[7, 3, 4]));
    assert_eq!((broadcast.count, broadcast.offsets().count()), (7, 2));
    let offsets: Vec<_> = broadcast.offsets().collect();
    assert_eq!(offsets, [[0, 0, 0], [6, 0, 56]]);
}

#[test]
fn results_between_each_other_are_computed_one_after_the_other() {
    let (a, b) = (contiguous(&[4, 2, 3]), contiguous(&[4, 3, 5]));
    let c = permuted(contiguous(&[2, 4, 5]), &[1, 0, 2]);
    let products = Products::new(&a, &b, &c, Triangle::All, false);
    assert_eq!((products.count, products.offsets().count()), (1, 4));
    assert_eq!(computed(&products), expected(&a, &b, &c));
}

#[test]
fn what_is_too_long_to_be_folded_is_a_batch() {
    let (a, b) = (contiguous(&[4, 1 << 30, 1]), contiguous(&[1, 1]));
    let products = Products::new(&a, &b, &contiguous(&[4, 1 << 30, 1]), Triangle::All, false);
    assert_eq!((products.m, products.count), (1 << 30, 4));
}

/// The matrices of a view scaled to another, every element of which has to come from its place, once.
fn scalings(from: &View, to: &View, rows_have_factors: bool) -> Scalings {
    let scalings = Scalings::new(from, to, rows_have_factors);
    let place = |view: &View, mut index: usize| {
        let mut place = 0;
        for (&extent, &stride) in view.shape.iter().zip(&view.strides).rev() {
            place += index % extent * stride;
            index /= extent;
        }
        place
    };
    let rows = from.shape[from.shape.len() - 2];
    let cols = from.shape[from.shape.len() - 1];
    let all = 0..from.shape.iter().product();
    let expected: BTreeMap<_, _> =
        all.map(|index| (place(to, index), (place(from, index), index / cols % rows, index % cols))).collect();
    let mut computed = BTreeMap::new();
    for [first_from, first_to] in scalings.offsets() {
        for (matrix, row) in (0..scalings.count).flat_map(|matrix| (0..scalings.m).map(move |row| (matrix, row))) {
            for col in 0..scalings.n {
                let at = |first: usize, strides: Strides| {
                    first + matrix * strides.batch + row * strides.rows + col * strides.cols
                };
                // Without factors, rows are whatever they are.
                let named = if rows_have_factors { row } else { expected[&at(first_to, scalings.to)].1 };
                let from = (at(first_from, scalings.from), named, col);
                assert_eq!(computed.insert(at(first_to, scalings.to), from), None, "written twice");
            }
        }
    }
    assert_eq!(computed, expected, "{from:?} {to:?}");
    scalings
}

#[test]
fn every_element_is_scaled_once() {
    let of = |shape: &[usize]| contiguous(shape);
    for rows_have_factors in [false, true] {
        let one = |from: &View, to: &View| scalings(from, to, rows_have_factors);
        let merged = one(&of(&[4, 5, 2, 3]), &of(&[4, 5, 2, 3]));
        assert_eq!((merged.m, merged.count), if rows_have_factors { (2, 20) } else { (40, 1) });
        assert_eq!(merged.offsets().count(), 1);
        let apart = one(&permuted(of(&[5, 4, 2, 3]), &[1, 0, 2, 3]), &of(&[4, 5, 2, 3]));
        assert_eq!((apart.count, apart.offsets().count()), (5, 4));
        let by_columns = one(&permuted(of(&[5, 3, 2]), &[0, 2, 1]), &of(&[5, 2, 3]));
        assert_eq!((by_columns.m, by_columns.count), (2, 5));
        one(&of(&[2, 3]), &permuted(of(&[3, 2]), &[1, 0]));
        one(&View { shape: vec![4, 1, 3], strides: vec![0, 7, 1] }, &of(&[4, 1, 3]));
        one(&of(&[4, 2, 3]), &permuted(of(&[2, 4, 3]), &[1, 0, 2]));
        one(&of(&[1, 1, 2, 1]), &of(&[1, 1, 2, 1]));
    }
}

#[test]
fn shapes_that_make_no_product_are_named() {
    let refused = |rule: Rule, a: &[usize], b: &[usize]| rule.result(a, b).unwrap_err();
    let message = refused(Rule::Matmul, &[2, 3], &[4, 5]);
    assert!(message.contains("(2, 3)") && message.contains("(4, 5)"), "{message}");
    assert!(refused(Rule::Matmul, &[2, 3], &[4]).contains("the extent of b"));
    assert!(refused(Rule::Matmul, &[], &[4]).contains("scalar"));
    assert!(refused(Rule::Matmul, &[3, 2, 3], &[2, 3, 4]).contains("3 and 2"));
    assert!(refused(Rule::Matvec, &[2, 3], &[3, 1]).starts_with("matvec"));
    assert!(refused(Rule::Bmm, &[2, 3], &[3, 1]).contains("three extents"));
    assert!(refused(Rule::Bmm, &[1, 2, 3], &[2, 3, 1]).contains("matmul broadcasts"));
    assert_eq!(Rule::Bmm.result(&[2, 2, 3], &[2, 3, 1]), Ok(vec![2, 2, 1]));
    assert_eq!(Rule::Matvec.result(&[2, 3], &[3]), Ok(vec![2]));
    assert_eq!(Rule::Matmul.result(&[3], &[3]), Ok(vec![]));
    assert_eq!(Rule::of_name("bmm"), Some(Rule::Bmm));
    assert_eq!(Rule::of_name("dot"), None);
}

/// NumPy's `as_strided` makes such arrays.
#[test]
fn strides_of_a_tensor_without_elements_mean_nothing() {
    let a = View { shape: vec![5, 3, 0], strides: vec![usize::MAX, usize::MAX / 2, 1] };
    let b = View { shape: vec![5, 0, 2], strides: vec![1, 1, usize::MAX] };
    assert_eq!((a.span(), b.span()), (Some(0), Some(0)));
    let products = products(&a, &b);
    assert!(products.offsets().all(|[a, b, _]| (a, b) == (0, 0)));
    let without =
        Products::new(&contiguous(&[5, 3, 2]), &contiguous(&[5, 2, 2]), &contiguous(&[5, 3, 2]), Triangle::All, false);
    let without = without.without_terms();
    assert_eq!((without.m, without.k, without.a.batch, without.c.batch), (3, 0, 0, 6));
}

#[test]
fn the_memory_of_a_view_is_counted_with_its_gaps() {
    assert_eq!(contiguous(&[2, 3]).span(), Some(6));
    assert_eq!(contiguous(&[]).span(), Some(1));
    assert_eq!(contiguous(&[2, 0]).span(), Some(0));
    assert_eq!(View { shape: vec![2, 3], strides: vec![10, 2] }.span(), Some(15));
    assert_eq!(View { shape: vec![3, 3], strides: vec![usize::MAX, 1] }.span(), None);
    assert_eq!(View::contiguous(vec![usize::MAX, 2, 2]), None);
    assert!(View { shape: vec![1, 3, 2], strides: vec![0, 0, 1] }.overlaps_itself());
    assert!(!View { shape: vec![1, 3], strides: vec![0, 1] }.overlaps_itself());
    assert!(View { shape: vec![3, 4, 4], strides: vec![8, 4, 1] }.overlaps_itself());
    assert!(!View { shape: vec![3, 5, 4], strides: vec![4, 12, 1] }.overlaps_itself());
    assert_eq!((tuple(&[]), tuple(&[4]), tuple(&[4, 5])), ("()".into(), "(4,)".into(), "(4, 5)".into()));
}

/// Every element of the result finds its element of an operand that is broadcast to it, wherever folding has put rows and columns.
#[test]
fn operands_are_read_where_the_result_is_written() {
    type Shape = &'static [usize];
    let shapes: [(Shape, Shape, &[Shape]); 6] = [
        (&[2, 3], &[3, 4], &[&[2, 4], &[4], &[2, 1], &[], &[1, 4]]),
        (&[5, 2, 3], &[3, 4], &[&[5, 2, 4], &[2, 4], &[5, 1, 4], &[5, 1, 1], &[5, 2, 1], &[4]]),
        (&[5, 2, 3], &[5, 3, 4], &[&[5, 2, 4], &[2, 4], &[5, 1, 4], &[4]]),
        (&[6, 5, 2, 3], &[3, 4], &[&[6, 5, 2, 4], &[5, 1, 4], &[6, 1, 1, 4], &[1, 5, 2, 1], &[6, 1, 2, 4]]),
        (&[5, 2, 3], &[3], &[&[5, 2], &[2], &[5, 1]]),
        (&[3], &[5, 3, 4], &[&[5, 4], &[4], &[5, 1]]),
    ];
    for (shape_a, shape_b, operands) in shapes {
        let c = contiguous(&Rule::Matmul.result(shape_a, shape_b).unwrap());
        let (a, b) = (contiguous(shape_a), contiguous(shape_b));
        for [first, second] in operands.iter().flat_map(|first| operands.iter().map(move |second| [first, second])) {
            // The second one by columns.
            let (backwards, order): (Vec<usize>, Vec<usize>) =
                (second.iter().rev().copied().collect(), (0..second.len()).rev().collect());
            let views = [contiguous(first), permuted(contiguous(&backwards), &order)];
            let strides = views.each_ref().map(|view| view.broadcast_to(&c.shape).unwrap());
            for invariant in [false, true] {
                let products = Products::with_operands(&a, &b, &c, &strides, Triangle::All, invariant);
                let mut found = BTreeMap::new();
                for (starts, of_operands) in products.offsets().zip(products.operand_offsets()) {
                    for matrix in 0..products.count {
                        for (row, col) in (0..products.m).flat_map(|row| (0..products.n).map(move |col| (row, col))) {
                            let at = |first: usize, strides: Strides| {
                                first + matrix * strides.batch + row * strides.rows + col * strides.cols
                            };
                            let read = [0, 1].map(|place| at(of_operands[place], products.operands[place]));
                            assert_eq!(found.insert(at(starts[2], products.c), read), None, "written twice");
                        }
                    }
                }
                for (index, read) in &found {
                    // C has no gaps, so that a place is an index.
                    let (mut rest, mut expected) = (*index, [0; 2]);
                    for place in (0..c.shape.len()).rev() {
                        let step = rest % c.shape[place];
                        rest /= c.shape[place];
                        expected = [0, 1].map(|operand| expected[operand] + step * strides[operand][place]);
                    }
                    assert_eq!(*read, expected, "{shape_a:?} {shape_b:?} {first:?} {second:?} {index}");
                }
                assert_eq!(found.len(), c.shape.iter().product::<usize>());
            }
        }
    }
}

#[test]
fn what_cannot_be_broadcast_has_no_strides() {
    assert_eq!(contiguous(&[2, 1]).broadcast_to(&[5, 2, 4]), Some(vec![0, 1, 0]));
    assert_eq!(contiguous(&[]).broadcast_to(&[5, 2]), Some(vec![0, 0]));
    assert_eq!(contiguous(&[1, 1]).broadcast_to(&[4]), None);
    assert_eq!(contiguous(&[3]).broadcast_to(&[4]), None);
    assert_eq!(contiguous(&[4, 1]).broadcast_to(&[5, 4]), None);
}

#[test]
fn functions_with_steps_have_shapes_of_their_own() {
    let linear = |x: &[usize], w: &[usize]| Rule::Linear.result(x, w);
    assert_eq!(linear(&[2, 5, 3], &[4, 3]), Ok(vec![2, 5, 4]));
    assert_eq!(linear(&[3], &[3]), Ok(vec![]));
    assert_eq!(linear(&[5, 3], &[3]), Ok(vec![5]));
    assert!(linear(&[5, 3], &[3, 4]).unwrap_err().contains("x has shape (5, 3), w has shape (3, 4)"));
    assert!(linear(&[5, 3], &[1, 4, 3]).unwrap_err().contains("matrix"));
    assert!(linear(&[], &[3]).unwrap_err().contains("scalar") && linear(&[3], &[]).unwrap_err().contains("scalar"));
    assert_eq!(Rule::Addmm.result(&[2, 3], &[3, 4]), Ok(vec![2, 4]));
    assert!(Rule::Addmm.result(&[2, 3], &[3]).unwrap_err().contains("mat2 has shape (3,)"));
    assert_eq!(Rule::Baddbmm.result(&[5, 2, 3], &[5, 3, 4]), Ok(vec![5, 2, 4]));
    assert!(Rule::Baddbmm.result(&[5, 2, 3], &[1, 3, 4]).unwrap_err().contains("batch1"));
    assert!(Rule::Baddbmm.result(&[5, 2, 3], &[5, 2, 4]).unwrap_err().contains("last but one of batch2"));
    assert!(Rule::Linear.transposes() && !Rule::Addmm.transposes());
    let w = permuted(contiguous(&[4, 3]), &[1, 0]);
    assert_eq!(contiguous(&[4, 3]).transposed(), w);
    assert_eq!(contiguous(&[3]).transposed(), contiguous(&[3]));
}
