//! Measuring, on the CPU executor: its times say nothing, and everything else is as on a GPU.

use std::time::Instant;

use cuda_std::executor::Checks;

use super::super::arena::{Arena, Sets, elements_for};
use super::super::errors::Sample;
use super::super::report::{AtlasReport, Outcome, Row, Summary};
use super::super::run::{Bench, exchanged};
use super::super::*;
use super::{class, roofline};
use tilewright::device::DeviceChoice;
use tilewright::plan::{ConstantsChoice, Description, GemmPlan, Options, Tables, Workspace};
use tilewright::{Order, Orders, Precision};

pub(super) fn options(limit: Option<Duration>) -> AtlasOptions {
    AtlasOptions {
        classes: Vec::new(),
        sample: None,
        seed: 3,
        precision: Precision::Fp32Strict,
        tables: Tables::None,
        constants: ConstantsChoice::BuiltIn,
        runs: 2,
        device: DeviceChoice::Cpu,
        portable: false,
        baseline: false,
        list: false,
        regret: true,
        replan: None,
        beta: 0.0,
        limit,
        json: None,
        svg: None,
    }
}

/// Shapes of all kinds that the executor computes at once.
fn shapes() -> Vec<Shape> {
    let shape = Shape::dense(3, [5, 7, 9], Orders::NT);
    let one = Shape::dense(1, [5, 7, 9], Orders::TN);
    vec![
        shape,
        shape.into_columns(),
        one,
        Shape { a: one.a.moved_by(3), b: one.b.moved_by(1), c: one.c.moved_by(2), ..one },
        Shape { a: Operand::with_gaps(Order::ColumnMajor, 5, 9, 3), c: one.c.spread(2), ..one },
        Shape { a: shape.a.shared(), ..shape },
        Shape { b: Operand { row_stride: 1, col_stride: 0, ..one.b }, ..one },
        Shape::dense(1, [1, 11, 6], Orders::NN),
        Shape::dense(1, [11, 1, 6], Orders::TN),
        Shape::dense(1, [1, 1, 300], Orders::NT),
    ]
}

#[test]
fn every_kind_of_shape_is_measured_and_right() {
    let device = Device::cpu(Checks::Full);
    let (roofline, shapes) = (roofline(), shapes());
    let elements = elements_for(&shapes, 0);
    for (number, (shape, beta)) in shapes.iter().flat_map(|shape| [(shape, 0.0), (shape, -0.5)]).enumerate() {
        let options = AtlasOptions { beta, ..options(None) };
        let bench = Bench::new((&device, None), &roofline, &options, elements).unwrap();
        let Outcome::Measured(measured) = bench.measure(shape, number).unwrap() else {
            panic!("{} is not run", shape.id())
        };
        assert!(measured.error.max < 1e-6 && measured.error.frobenius < 1e-6, "{}: {:?}", shape.id(), measured.error);
        assert_eq!((measured.times.runs, measured.operand_sets), (2, 1));
        assert!(measured.call_us > 0.0 && measured.share().unwrap() > 0.0);
        assert!(measured.compared >= 1 && measured.compared <= 32);
        let regret = measured.regret.unwrap();
        let chosen = regret.times.last().unwrap();
        assert_eq!(
            (&chosen.kernel, chosen.splits, regret.times.len()),
            (&measured.kernel, measured.splits, regret.plans)
        );
        assert!(regret.times.iter().all(|time| time.median_ms > 0.0), "{regret:?}");
        assert!(regret.plans > 1 && regret.ratio >= 1.0, "{regret:?}");
        // The best of the others, of which the same kernel with other splits is one.
        assert_ne!((&regret.best_kernel, regret.best_splits), (&measured.kernel, measured.splits), "{regret:?}");
    }
}

/// What a product, or that of the transposes, puts into the elements of a sample.
fn multiplied(device: &Device, shape: &Shape, arena: &mut Arena, sample: &Sample, transposed: bool) -> Vec<f32> {
    let (a, b, c) = exchanged(arena.views(shape, Sets::of(shape, 0), 0).unwrap(), transposed);
    assert_eq!(c.first().rows() as usize, if transposed { shape.n } else { shape.m });
    let product = Description::of_views(1.0, &a, &b, 0.0, &c).unwrap();
    let plan = GemmPlan::new(device, &product, &Options::from(Precision::Fp32Strict)).unwrap();
    plan.run_views(device, 1.0, a, b, 0.0, c, &mut Workspace::none()).unwrap();
    arena.results(sample.places()).unwrap()
}

/// The transposed operands, in which cuBLAS's `gemv` takes a row, are those of the same product.
#[test]
fn the_transposed_product_puts_the_same_numbers_in_the_same_places() {
    let device = Device::cpu(Checks::Bounds);
    let shape = Shape::dense(1, [1, 11, 6], Orders::NN);
    let mut arena = Arena::new(&device, elements_for([&shape], 0), 1).unwrap();
    let sample = Sample::new(&shape, &arena, 1);
    arena.fill(sample.places(), 0xFF).unwrap();
    let before = arena.results(sample.places()).unwrap();
    assert!(before.iter().all(|result| result.is_nan()) && sample.errors(&before).max == f64::INFINITY);
    let mut results = multiplied(&device, &shape, &mut arena, &sample, true);
    assert!(sample.errors(&results).max < 1e-6);
    results[0] += 0.5;
    assert!(sample.errors(&results).max > 1e-3);
}

/// The host knows every element, whichever repetition of the block it is in.
#[test]
fn a_and_b_repeat_blocks_of_their_own() {
    let device = Device::cpu(Checks::Bounds);
    let shape = Shape::dense(2, [6, 5, 7], Orders::NT);
    for block in [11, 13, 1 << 20] {
        let mut arena = Arena::with_blocks(&device, elements_for([&shape], 0), 1, block).unwrap();
        let sample = Sample::new(&shape, &arena, 1);
        let results = multiplied(&device, &shape, &mut arena, &sample, false);
        assert!(sample.errors(&results).max < 1e-6, "{block}");
        let [a, b] = arena.numbers(0, 0);
        assert!(a != b && arena.numbers(1, 1) != [a, b]);
        assert_eq!(arena.numbers(11, 11) == [a, b], block == 11);
    }
}

#[test]
fn long_sums_are_added_up_in_segments() {
    let device = Device::cpu(Checks::Bounds);
    let shape = Shape::dense(1, [1, 1, 66_000], Orders::NT);
    let mut arena = Arena::new(&device, elements_for([&shape], 0), 1).unwrap();
    let sample = Sample::new(&shape, &arena, 1);
    let results = multiplied(&device, &shape, &mut arena, &sample, false);
    assert!(results.len() == 1 && sample.errors(&results).max < 1e-6, "{:?}", sample.errors(&results));
}

/// Sets lie behind one another, each aligned.
#[test]
fn sets_exceed_twice_the_cache_and_do_not_overlap() {
    let device = Device::cpu(Checks::Bounds);
    let shape =
        Shape { c: Operand::dense(Order::RowMajor, 5, 7).moved_by(1), ..Shape::dense(2, [5, 7, 9], Orders::NN) };
    let l2_bytes = 10_000;
    let sets = Sets::of(&shape, l2_bytes);
    // 90, 126 and 71 elements, in lines of 64.
    let set_bytes = 4 * (128 + 128 + 128);
    assert_eq!(sets.pool as u64, 2 * l2_bytes / set_bytes + 1);
    let mut arena = Arena::new(&device, elements_for([&shape], l2_bytes), 0).unwrap();
    let mut address = |set| {
        let (a, b, c) = arena.views(&shape, sets, set).unwrap();
        [a.first().data().as_ptr().addr(), b.first().data().as_ptr().addr(), c.first().data().as_mut_ptr().addr()]
    };
    let first = address(0);
    assert_eq!(first.map(|address| address % 256), [0, 0, 4]);
    let all = 4 * sets.pool;
    assert_eq!(address(all - 1), first.map(|address| address + (all - 1) * 512));
    assert!(arena.views(&shape, sets, all).is_err(), "beyond the arena");
    assert_eq!(Sets::of(&shape, 700).pool, 1, "one set exceeds twice the cache");
}

/// None of up to four contestants ever touches a set of another one; more of them are far apart.
#[test]
fn contestants_have_sets_of_their_own() {
    let sets = Sets::of(&Shape::dense(1, [8; 3], Orders::NN), 10_000);
    let pool = sets.pool;
    assert_eq!(pool, 27);
    let touched =
        |contestant, count| (0..pool).map(move |told| sets.set_of(contestant, count, told)).collect::<Vec<_>>();
    for contestant in 0..4 {
        let mut own = touched(contestant, 4);
        assert_eq!(own[0], contestant * pool);
        own.sort_unstable();
        assert!(own.into_iter().eq(contestant * pool..(contestant + 1) * pool));
    }
    let starts: Vec<usize> = (0..12).map(|contestant| sets.set_of(contestant, 12, 0)).collect();
    assert_eq!(starts, [0, 27, 54, 81, 9, 36, 63, 90, 18, 45, 72, 99]);
    assert_eq!(sets.set_of(8, 12, 10), 1, "around the end of the pool");
    let alone = Sets::of(&Shape::dense(1, [800; 3], Orders::NN), 10_000);
    assert!((0..9).all(|contestant| alone.set_of(contestant, 9, contestant) == 0));
}

#[test]
fn the_largest_shapes_go_without_memory_first() {
    let shapes = [[8; 3], [64; 3], [512; 3]].map(|extents| Shape::dense(1, extents, Orders::NN)).to_vec();
    let bytes = |size: u64| 3 * 4 * size * size;
    let chosen = [Chosen { class: class("squares"), shapes }];
    assert_eq!(largest_that_fit(&chosen, 0, u64::MAX), ([512 * 512; 3], LIMIT_BYTES));
    assert_eq!(largest_that_fit(&chosen, 0, bytes(512) - 1), ([64 * 64; 3], bytes(512) - 1));
    assert_eq!(largest_that_fit(&chosen, 0, bytes(8) - 1), ([0; 3], bytes(8) - 1));
}

/// What is left out is counted, and what does not fit says so.
#[test]
fn a_run_stops_in_time_and_keeps_what_it_has() {
    let device = Device::cpu(Checks::Bounds);
    let roofline = roofline();
    let chosen = [
        Chosen { class: class("batches"), shapes: vec![Shape::dense(16, [4; 3], Orders::NN)] },
        Chosen { class: class("squares"), shapes: vec![Shape::dense(1, [8; 3], Orders::NN)] },
    ];
    let (elements, _) = largest_that_fit(&chosen, 0, u64::MAX);
    let run = |limit, room| {
        let options = options(limit);
        let bench = Bench::new((&device, None), &roofline, &options, elements).unwrap();
        let mut report = AtlasReport { left_out: 2, results: Vec::new(), ..super::reports::report(Vec::new()) };
        let mut text = String::new();
        let mut print = |part: &str| text += part;
        measure_all(&bench, room, &chosen, Instant::now(), &mut report, &mut print).unwrap();
        (report, text)
    };
    let (report, text) = run(None, LIMIT_BYTES);
    assert_eq!((report.left_out, report.results.len()), (0, 2));
    assert_eq!(report.results[0].id, "16 of 4x4x4 NNN");
    assert!(text.contains("batches") && text.contains("8x8x8"), "{text}");
    let (report, text) = run(Some(Duration::ZERO), LIMIT_BYTES);
    assert_eq!((report.left_out, report.results.len(), text.as_str()), (2, 0, ""));
    let (report, text) = run(None, 4 * 3 * 64);
    assert!(
        matches!(&report.results[0], Row { outcome: Outcome::NotRun { reason }, .. } if reason.contains("768 bytes"))
    );
    assert!(text.contains("16 of 4x4x4 NNN: not run: ") && report.results[1].measured().is_some(), "{text}");
    assert_eq!(Summary::of(&report.results).classes[0].not_run, 1);
}
