//! Tests of the shapes.

use std::collections::HashSet;

use super::super::*;
use super::class;
use tilewright::plan::{DeviceFacts, Options, plan};
use tilewright::{Order, Orders, Precision};

/// Seeds that shapes are drawn by in tests.
const SEEDS: [u64; 5] = [1, 2, 3, 77, u64::MAX];

/// The shapes of the atlas, and some of each seed.
fn shapes(class: &Class, sample: usize) -> Vec<Shape> {
    let drawn = SEEDS.into_iter().flat_map(|seed| class.shapes(seed, Some(sample)));
    class.shapes(0, None).into_iter().chain(drawn).collect()
}

#[test]
fn every_class_has_twenty_shapes_and_no_two_are_the_same() {
    let mut names = HashSet::new();
    for class in &CLASSES {
        assert!(names.insert(class.name), "{}", class.name);
        let ids: Vec<String> = class.shapes(0, None).iter().map(Shape::id).collect();
        assert!(ids.len() >= 20, "{} has {}", class.name, ids.len());
        let mut seen = HashSet::new();
        assert!(ids.iter().all(|id| seen.insert(id)), "{}: {ids:?}", class.name);
    }
}

/// What the list has beyond the limit in bytes is left out; nothing else is.
#[test]
fn the_atlas_leaves_out_what_is_too_large_and_nothing_else() {
    for class in &CLASSES {
        let listed = (class.list)();
        for shape in &listed {
            assert!((class.holds)(shape), "{}: {}", class.name, shape.id());
        }
        let small = listed.iter().filter(|shape| shape.bytes() <= LIMIT_BYTES).count();
        assert_eq!(class.shapes(0, None).len(), small, "{}", class.name);
    }
    let largest = class("batches").shapes(0, None).into_iter().map(|shape| shape.bytes()).max().unwrap();
    assert!(largest > LIMIT_BYTES / 2, "{largest}: the limit leaves out what there is memory for");
}

#[test]
fn a_seed_draws_the_same_shapes_again_and_another_one_others() {
    for class in &CLASSES {
        let drawn = |seed, sample| class.shapes(seed, Some(sample));
        for seed in SEEDS {
            assert_eq!(drawn(seed, 20), drawn(seed, 20), "{}", class.name);
            assert_eq!(drawn(seed, 20).len(), 20, "{}", class.name);
            assert_eq!(
                drawn(seed, 7),
                drawn(seed, 20)[..7],
                "{}: a smaller sample is a part of a larger one",
                class.name
            );
        }
        assert_ne!(drawn(1, 20), drawn(2, 20), "{}", class.name);
        let atlas = class.shapes(0, None);
        assert_eq!(drawn(0, 9), drawn(0, 9), "{}", class.name);
        assert!(drawn(0, 9).iter().all(|shape| atlas.contains(shape)) && drawn(0, 9).len() == 9, "{}", class.name);
        assert_eq!(drawn(0, 1 << 40), atlas, "{}", class.name);
    }
}

#[test]
fn shapes_of_every_seed_are_what_their_class_says_within_its_bytes() {
    for class in &CLASSES {
        for shape in shapes(class, 100) {
            assert!((class.holds)(&shape), "{}: {}", class.name, shape.id());
            assert!(shape.bytes() <= LIMIT_BYTES, "{}: {} has {} bytes", class.name, shape.id(), shape.bytes());
        }
    }
}

/// The rules are not so wide that they hold for anything.
#[test]
fn no_rule_holds_for_a_shape_of_another_kind() {
    let shape = Shape::dense(1, [300, 200, 333], Orders::TN).into_columns();
    let holding: Vec<_> = CLASSES.iter().filter(|class| class.has(&shape)).map(|class| class.name).collect();
    assert_eq!(holding, ["layouts"]);
    let too_large = Shape::dense(100_000, [128; 3], Orders::NN);
    assert!((class("batches").holds)(&too_large) && !class("batches").has(&too_large));
}

#[test]
fn every_shape_is_a_product_that_a_plan_is_found_for() {
    let gpu = DeviceFacts::of_gpu("NVIDIA H200", (9, 0), 132, 141 << 30);
    for class in &CLASSES {
        for shape in shapes(class, 4) {
            let product = shape.description().unwrap();
            let plan = plan(&gpu, &product, &Options::from(Precision::Fp32));
            let plan = plan.unwrap_or_else(|error| panic!("{}, {}: {error}", class.name, shape.id()));
            assert_eq!(plan.product().m, shape.m);
        }
    }
}

#[test]
fn operands_tell_how_they_lie() {
    let by_rows = Operand::dense(Order::RowMajor, 5, 8);
    assert_eq!((by_rows.span(1), by_rows.span(3), by_rows.elements(3)), (40, 120, 120));
    assert!(by_rows.is_dense(3) && !by_rows.shared().is_dense(3) && by_rows.shared().is_dense(1));
    let layouts = [
        (by_rows, "N"),
        (Operand::dense(Order::ColumnMajor, 5, 8), "T"),
        (by_rows.moved_by(3), "N+3"),
        (Operand::with_gaps(Order::ColumnMajor, 5, 8, 2), "T/7"),
        (by_rows.spread(2), "S(16,2)"),
        (by_rows.shared(), "N*"),
        (Operand { row_stride: 0, ..by_rows }, "N*"),
    ];
    for (operand, layout) in layouts {
        assert_eq!(operand.layout(3), layout);
        assert_eq!(operand.is_dense(3), layout.len() == 1, "{layout}");
    }
    assert_eq!(by_rows.moved_by(3).span(1), 43);
    assert_eq!(Operand { row_stride: 0, ..by_rows }.elements(1), 8);
    // One row or one column has no distance to the next.
    assert!([Order::RowMajor, Order::ColumnMajor].iter().all(|&order| Operand::dense(order, 1, 9).is_dense(4)));
}

#[test]
fn a_shape_counts_its_bytes_and_operations() {
    let shape = Shape::dense(10, [3, 5, 7], Orders::NT);
    assert_eq!(shape.id(), "10 of 3x5x7 NTN");
    assert_eq!(shape.bytes(), 4 * 10 * (21 + 35 + 15));
    assert_eq!((shape.traffic(), shape.operations()), ([4.0 * 560.0, 4.0 * 150.0], 2.0 * 1050.0));
    let shared = Shape { b: shape.b.shared(), ..shape };
    assert_eq!((shared.traffic(), shared.id()), ([4.0 * 245.0, 4.0 * 150.0], "10 of 3x5x7 N T* N".to_owned()));
    assert!(shape.is_dense() && !shared.is_dense());
    let product = Shape { a: shape.a.moved_by(2), ..shape }.description().unwrap();
    assert_eq!((product.a.alignment, product.b.alignment, product.b.col_stride), (8, 256, 7));
}

#[test]
fn the_list_has_all_numbers_and_reads_back() {
    let chosen = [Chosen { class: class("strided"), shapes: class("strided").shapes(0, Some(4)) }];
    let list = ShapeList::new(0, Some(4), &chosen);
    let json = serde_json::to_value(&list).unwrap();
    let first = &json["classes"][0]["shapes"][0];
    for operand in ["a", "b", "c"] {
        for number in ["rows", "cols", "offset", "row_stride", "col_stride", "batch_stride"] {
            assert!(first[operand][number].is_u64(), "{operand} {number}: {first}");
        }
    }
    assert_eq!(first["m"], chosen[0].shapes[0].m);
    assert_eq!(serde_json::from_value::<ShapeList>(json).unwrap(), list);
    let text = list.text();
    assert!(text.contains("strided: ") && text.contains("4 shapes in 1 classes"), "{text}");
    assert!(chosen[0].shapes.iter().all(|shape| text.contains(&shape.id())), "{text}");
}
