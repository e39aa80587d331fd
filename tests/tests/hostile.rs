//! Input that nobody means well with: sizes that cannot exist, tables and reports that say anything, PTX in pieces. All of it
//! is refused by an error that says what was wrong, or makes sense; nothing panics, wraps around, or is allocated before it has
//! been looked at.

use std::path::Path;
use std::sync::LazyLock;

use cuda_driver::PtxSummary;
use cuda_std::executor::Checks;
use cuda_std::{GlobalSlice, GlobalSliceMut};
use gpu_kernels::{Matrix, MatrixBatch, MatrixBatchMut, MatrixMut, Vector, VectorMut};
use host::bench::compare::Comparison;
use host::bench::report::BenchReport;
use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use serde_json::Value;
use tests::device_features::PTX;
use tilewright::Sizes;
use tilewright::kernels::{self, KernelInfo};
use tilewright::plan::table::TableFault;
use tilewright::plan::{
    Description, DeviceFacts, Options, Placement, Processor, Reason, Table, Tables, Workspace, plan,
};
use tilewright::{Device, DeviceError, DeviceMatrix, Error, Precision};

/// Numbers at which something changes, and any others.
fn extent() -> impl Strategy<Value = usize> {
    const EDGES: [usize; 12] =
        [0, 1, 2, 3, 31, 1 << 16, (1 << 31) - 1, 1 << 31, 1 << 32, 1 << 62, usize::MAX - 1, usize::MAX];
    prop_oneof![2 => 0..12usize, 2 => proptest::sample::select(&EDGES[..]), 1 => any::<usize>()]
}

/// What nobody can allocate, in elements of 4 bytes.
const IMPOSSIBLE: [usize; 6] = [1 << 44, 1 << 50, 1 << 60, (isize::MAX as usize) / 4, usize::MAX / 4, usize::MAX];

/// The elements from the first to the last place of `counts` along strides, counted without bounds; 0 without elements.
fn span(counts: &[(usize, usize)]) -> u128 {
    if counts.iter().any(|&(count, _)| count == 0) {
        return 0;
    }
    // Below 2³² each, or refused before: no overflow.
    counts.iter().map(|&(count, stride)| (count as u128 - 1) * stride as u128).sum::<u128>() + 1
}

/// Whether kernels can count this far.
fn countable(extents: &[usize]) -> bool {
    extents.iter().all(|&extent| extent <= i32::MAX as usize)
}

/// The same cases every time: what passes on one machine passes on the next.
fn config(cases: u32) -> ProptestConfig {
    ProptestConfig { cases, rng_seed: RngSeed::Fixed(1), failure_persistence: None, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(config(20_000))]

    /// A matrix, a vector and a batch exist exactly if all of their elements are in the data.
    #[test]
    fn views_lie_inside_their_data(
        (rows, cols, row_stride, col_stride) in (extent(), extent(), extent(), extent()),
        (count, stride, len) in (extent(), extent(), 0..200usize),
    ) {
        let mut data = vec![0.0; len];
        let in_two = [(rows, row_stride), (cols, col_stride)];
        let fits = countable(&[rows, cols]) && span(&in_two) <= len as u128;
        let made = Matrix::new(GlobalSlice::new(&data), rows, cols, row_stride, col_stride);
        prop_assert_eq!(made.is_ok(), fits, "{:?}", made.map(drop));
        if let Ok(first) = made {
            let batch = MatrixBatch::new(first, stride, count);
            let all = span(&in_two) == 0 || span(&[in_two[0], in_two[1], (count, stride)]) <= len as u128;
            prop_assert_eq!(batch.is_ok(), countable(&[count]) && all, "{:?}", batch.map(drop));
        }
        let vector = Vector::new(GlobalSlice::new(&data), rows, row_stride);
        prop_assert_eq!(vector.is_ok(), countable(&[rows]) && span(&in_two[..1]) <= len as u128);

        // What is written must not overlap itself, besides.
        let made = MatrixMut::new(GlobalSliceMut::new(&mut data), rows, cols, row_stride, col_stride);
        prop_assert!(made.is_err() || fits);
        if let Ok(first) = made {
            let batch = MatrixBatchMut::new(first, stride, count);
            let all = span(&in_two) == 0 || span(&[in_two[0], in_two[1], (count, stride)]) <= len as u128;
            prop_assert!(batch.is_err() || countable(&[count]) && all);
        }
        let vector = VectorMut::new(GlobalSliceMut::new(&mut data), rows, row_stride);
        prop_assert!(vector.is_err() || countable(&[rows]) && span(&in_two[..1]) <= len as u128);
    }

    /// A matrix on a device, and all that can be asked of it.
    #[test]
    fn matrices_of_a_device_lie_inside_their_buffers(
        (rows, cols, row_stride, col_stride) in (extent(), extent(), extent(), extent()),
        (count, stride, offset, len) in (extent(), extent(), extent(), 0..200usize),
    ) {
        let device = Device::cpu(Checks::Bounds);
        let buffer = device.allocate::<f32>(len).unwrap();
        let made = DeviceMatrix::new(buffer, rows, cols, [row_stride, col_stride])
            .and_then(|matrix| matrix.moved_by(offset))
            .and_then(|matrix| matrix.into_batch(count, stride));
        let Ok(mut matrix) = made else {
            prop_assert!(!made.unwrap_err().to_string().is_empty());
            return Ok(());
        };
        prop_assert!(matrix.placement().alignment.is_power_of_two());
        for result in [
            matrix.matrix().map(|it| it.data().len()),
            matrix.batch().map(|it| it.first().data().len()),
            matrix.transposed_batch().map(|it| it.first().data().len()),
            matrix.matrix_mut().map(|it| it.data().len()),
            matrix.batch_mut(false).map(|it| it.first().data().len()),
            matrix.batch_mut(true).map(|it| it.first().data().len()),
        ] {
            match result {
                Ok(visible) => prop_assert!(visible <= len),
                Err(error) => prop_assert!(matches!(error, Error::Shape(_)), "{error}"),
            }
        }
        if let Err(error) = Description::of(1.0, &matrix, &matrix, 0.0, &matrix) {
            prop_assert!(!error.to_string().is_empty());
        }
    }
}

#[test]
fn memory_that_cannot_be_had_is_refused_and_not_tried_for() {
    let device = Device::cpu(Checks::Bounds);
    for len in IMPOSSIBLE {
        for error in [
            Error::from(device.allocate::<f32>(len).unwrap_err()),
            device.allocate::<u64>(len).unwrap_err().into(),
            Workspace::new(&device, len).unwrap_err(),
        ] {
            let is_refused = match &error {
                Error::Device(DeviceError::NotEnoughMemory { needs, has, .. }) => needs > has,
                Error::Device(DeviceError::Driver(error)) => matches!(error, cuda_driver::Error::SizeOverflow { .. }),
                _ => false,
            };
            assert!(is_refused, "{len} elements: {error}");
        }
    }
}

/// Changes values of a JSON document: numbers to what nobody measures, anything to something else, or nothing.
#[derive(Clone, Debug)]
struct Change {
    /// Which of all values, counted through the document.
    place: usize,
    value: Option<Value>,
}

fn changes() -> impl Strategy<Value = Vec<Change>> {
    let numbers = [
        "0",
        "-1",
        "1",
        "1e-320",
        "1e308",
        "-1e308",
        "4294967295",
        "18446744073709551615",
        "9223372036854775808",
        "0.5",
    ];
    let value = prop_oneof![
        5 => proptest::sample::select(numbers.to_vec()).prop_map(|text| Some(serde_json::from_str(text).unwrap())),
        1 => prop_oneof![Just("inf"), Just("NaN"), Just(""), Just("NVIDIA H200"), Just("TT"), Just("\n\u{1b}[2J")]
            .prop_map(|text| Some(Value::from(text))),
        1 => prop_oneof![Just(Value::Null), Just(Value::Bool(true)), Just(serde_json::json!([])), Just(serde_json::json!({}))]
            .prop_map(Some),
        1 => Just(None),
    ];
    let change = (any::<usize>(), value).prop_map(|(place, value)| Change { place, value });
    prop::collection::vec(change, 1..5)
}

fn changed(document: &Value, changes: &[Change]) -> Value {
    let mut document = document.clone();
    for change in changes {
        let all = pointers(&document);
        let pointer = &all[change.place % all.len()];
        // The document itself is in nothing that it could be taken out of.
        let Some((parent, last)) = pointer.rsplit_once('/') else {
            document = change.value.clone().unwrap_or(Value::Null);
            continue;
        };
        match (&change.value, document.pointer_mut(parent)) {
            (Some(value), _) => *document.pointer_mut(pointer).unwrap() = value.clone(),
            (None, Some(Value::Object(object))) => drop(object.remove(last)),
            (None, Some(Value::Array(array))) => drop(array.remove(last.parse().unwrap())),
            (None, parent) => panic!("{pointer} is in {parent:?}, which has no parts"),
        }
    }
    document
}

/// The places of all values, as JSON pointers. None of the names has a `/` in it.
fn pointers(value: &Value) -> Vec<String> {
    fn visit(value: &Value, path: &str, all: &mut Vec<String>) {
        all.push(path.to_owned());
        match value {
            Value::Object(object) => object.iter().for_each(|(key, value)| visit(value, &format!("{path}/{key}"), all)),
            Value::Array(array) => {
                array.iter().enumerate().for_each(|(index, value)| visit(value, &format!("{path}/{index}"), all))
            }
            _ => {}
        }
    }
    let mut all = Vec::new();
    visit(value, "", &mut all);
    all
}

/// A table of one product in each precision, with a time of every kernel: otherwise a kernel would be taken for newer than the table, and the
/// table would not be followed.
static TABLE: LazyLock<Value> = LazyLock::new(|| {
    let time = |(index, kernel): (usize, &&KernelInfo)| serde_json::json!({ "kernel": kernel.name, "splits": 1, "median_us": index + 1 });
    let times: Vec<Value> = kernels::ALL.iter().enumerate().map(time).collect();
    let entry = |precision: &Precision| {
        serde_json::json!({
            "precision": precision, "layout": "NN", "m": 512, "n": 512, "k": 512, "batch": 1, "aligned": true, "times": times,
        })
    };
    serde_json::json!({
        "schema": 1, "gpu": "NVIDIA H200", "driver": "580.1, CUDA 13.0", "version": "0.1.0", "commit": "abc",
        "date": "2026-11-21T00:00:00Z", "entries": Precision::ALL.iter().map(entry).collect::<Vec<_>>(),
    })
});

fn h200() -> DeviceFacts {
    let processor = Processor::Gpu { compute_capability: (9, 0), sm_90a: true };
    DeviceFacts { processor, ..DeviceFacts::of_gpu("NVIDIA H200", (9, 0), 132, 140 << 30) }
}

/// Reads a table and plans by it, if it is one. Says how many plans followed it.
fn plan_by(text: &str) -> usize {
    let table = match Table::parse(text) {
        Ok(table) => table,
        Err(fault) => {
            assert!(!fault.to_string().is_empty());
            return 0;
        }
    };
    let mut followed = 0;
    let tables = Tables::This(std::sync::Arc::new(table));
    for (m, n, k) in [(512, 512, 512), (700, 512, 400)] {
        let placed = Placement::row_major;
        let product = Description::new(Sizes { m, n, k }, 1, placed(k), placed(n), placed(n)).unwrap();
        for precision in Precision::ALL {
            let options = Options { tables: tables.clone(), ..Options::from(precision) };
            match plan(&h200(), &product, &options) {
                Ok(plan) => {
                    assert!(plan.splits() >= 1 && !plan.explanation().to_string().is_empty());
                    followed += usize::from(matches!(plan.explanation().reason, Reason::Table { .. }));
                }
                Err(error) => assert!(matches!(error, Error::TableForOtherGpu { .. }), "{error}"),
            }
        }
    }
    followed
}

/// A report of `tilewright bench` that has been committed.
static REPORT: LazyLock<Value> = LazyLock::new(|| {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/results/2026-11-21-h200-targets.json");
    let mut report: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    report["results"].as_array_mut().unwrap().truncate(3);
    report
});

/// Reads a report and compares it with one that is in order, both ways, if it is one.
fn compare_with(text: &str, good: &BenchReport, directory: &Path) {
    let path = directory.join("report.json");
    std::fs::write(&path, text).unwrap();
    match BenchReport::read_json(&path) {
        Ok(read) => {
            for (old, new) in [(&read, good), (good, &read), (&read, &read)] {
                let comparison = Comparison::new(old, new);
                assert!(!comparison.text().is_empty());
                let _ = comparison.passes();
            }
            assert!(read.results.iter().all(|case| case.floor_met().is_some() == case.target.is_some()));
        }
        Err(error) => {
            assert!(
                matches!(&error, host::Error::Usage(reason) if reason.contains("report.json is no benchmark report")),
                "{error}"
            );
        }
    }
}

/// The text with some bytes replaced, and cut off.
fn garbled(text: &str, edits: &[(usize, u8)], end: usize) -> String {
    let mut bytes = text.as_bytes().to_vec();
    for &(place, byte) in edits {
        let place = place % bytes.len();
        bytes[place] = byte;
    }
    bytes.truncate(if end.is_multiple_of(4) { end / 4 % text.len() } else { text.len() });
    String::from_utf8_lossy(&bytes).into_owned()
}

proptest! {
    #![proptest_config(config(1000))]

    #[test]
    fn tables_that_say_anything_are_refused_or_followed(changes in changes()) {
        plan_by(&changed(&TABLE, &changes).to_string());
    }

    #[test]
    fn reports_that_say_anything_are_refused_or_compared(changes in changes()) {
        let directory = tempfile::tempdir().unwrap();
        let good: BenchReport = serde_json::from_value(REPORT.clone()).unwrap();
        compare_with(&changed(&REPORT, &changes).to_string(), &good, directory.path());
    }

    #[test]
    fn documents_with_bytes_replaced_are_refused_or_read(
        edits in prop::collection::vec((any::<usize>(), any::<u8>()), 1..5), end in any::<usize>(),
    ) {
        plan_by(&garbled(&TABLE.to_string(), &edits, end));
        let directory = tempfile::tempdir().unwrap();
        let good: BenchReport = serde_json::from_value(REPORT.clone()).unwrap();
        compare_with(&garbled(&REPORT.to_string(), &edits, end), &good, directory.path());
    }

    /// What is read of PTX before the driver gets it: nothing fails, and what there is comes from the text.
    #[test]
    fn ptx_in_pieces_is_read(
        edits in prop::collection::vec((any::<usize>(), any::<u8>()), 0..8), end in any::<usize>(), which in any::<usize>(), alone in any::<bool>(),
        pieces in prop::collection::vec(
            proptest::sample::select(&[".version ", ".target ", ".entry ", "sm_90a", "sm_4294967296", "8.", ".", "(", "\n", "//",
                "99999999999.0", "4294967295.0\n", "é", "\0", " "][..]), 0..12),
    ) {
        let modules = PTX.expect("the kernels of the tests are compiled")[0].1;
        let (_, module) = modules[which % modules.len()];
        let text = if alone { String::new() } else { garbled(module, &edits, end) } + &pieces.concat();
        let summary = PtxSummary::of(&text);
        prop_assert!(summary.kernels.iter().all(|name| text.contains(name.as_str())));
        prop_assert!(summary.target.as_ref().is_none_or(|target| text.contains(target.as_str())));
        for (major, minor) in [(0, 0), (9, 0), (u32::MAX, u32::MAX)] {
            let _ = summary.excludes(cuda_driver::ComputeCapability { major, minor });
            let _ = summary.is_read_by(cuda_driver::DriverVersion { major, minor });
        }
    }
}

/// The kernels of this table divide sums, and the plan is for a product that is in it.
#[test]
fn a_table_that_divides_sums_among_no_blocks_is_refused() {
    let mut table = TABLE.clone();
    for entry in table["entries"].as_array_mut().unwrap() {
        for time in entry["times"].as_array_mut().unwrap() {
            time["splits"] = 0.into();
        }
    }
    plan_by(&table.to_string());
    assert!(matches!(Table::parse(&table.to_string()), Err(TableFault::Splits { .. })));
}

#[test]
fn what_is_changed_here_is_right_as_it_stands() {
    assert!(Table::parse(&TABLE.to_string()).is_ok());
    assert!(plan_by(&TABLE.to_string()) >= 3, "the table is followed");
    assert!(serde_json::from_value::<BenchReport>(REPORT.clone()).is_ok());
}
