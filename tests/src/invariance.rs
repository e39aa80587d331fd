//! Rows that are computed with other rows beside them, elsewhere in memory and in other batches, and have to keep their bits.
//!
//! ```text
//!  all rows of A │ row 0 │ tiny │ … │ inf │ … │ huge │ …        each row alone, a few, and many; from several rows on;
//!                └──────┬───────────────┬─────────┘            by rows and by columns, with and without gaps, in batches
//!                       ▼               ▼
//!               rows of C: the same bits as in the product of all rows
//! ```

use ndarray::Array2;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tilewright::plan::{Description, DeviceFacts, Options, Placement, plan};
use tilewright::{Device, DeviceMatrix, Error, Order, Precision, Sizes};

/// All rows that there are.
const ROWS: usize = 300;

/// Some of the rows of A, and how they and C are placed.
#[derive(Clone, Copy, Debug)]
struct Case {
    first: usize,
    rows: usize,
    /// Products, each with the rows after those of the one before.
    batch: usize,
    a: Order,
    /// The elements after each line of A.
    gap: usize,
    c: Order,
}

/// What was compared.
#[derive(Clone, Debug, Default)]
pub struct Compared {
    /// The kernels that multiplied.
    pub kernels: Vec<&'static str>,
    /// Among how many blocks sums were divided.
    pub splits: u32,
    /// The rows that were compared.
    pub rows: usize,
}

fn cases() -> Vec<Case> {
    let all = Case { first: 0, rows: ROWS, batch: 1, a: Order::RowMajor, gap: 0, c: Order::RowMajor };
    let mut cases = vec![all];
    for (first, rows, batch) in [
        (0, 1, 1),
        (3, 1, 1),
        (8, 1, 1),
        (77, 2, 1),
        (14, 17, 1),
        (64, 64, 1),
        (1, 65, 1),
        (40, 200, 1),
        (5, 20, 3),
        (2, 1, 9),
    ] {
        for (a, gap) in [(Order::RowMajor, 0), (Order::RowMajor, 1), (Order::ColumnMajor, 3)] {
            cases.push(Case { first, rows, batch, a, gap, c: Order::RowMajor });
        }
    }
    cases.push(Case { first: 30, rows: 100, c: Order::ColumnMajor, ..all });
    cases
}

/// Rows of random numbers, of which some have an element, or all, that no tensor core can multiply as it is, and some select a row of B.
pub fn rows_of_a(rows: usize, k: usize, generator: &mut StdRng) -> Array2<f32> {
    let mut a = Array2::from_shape_fn((rows, k), |_| generator.random_range(-1.0..1.0f32));
    for (index, mut row) in a.rows_mut().into_iter().enumerate() {
        let place = generator.random_range(0..k);
        match index % 20 {
            3 => row[place] = 1e-33,
            7 => row[place] = f32::INFINITY,
            // Alone, it is an A that selects a row of B.
            8 => {
                row.fill(0.0);
                row[place] = 4.0;
            }
            9 => row[place] = f32::NAN,
            11 => row[place] = 3e36,
            13 => row.mapv_inplace(|x| x * 1e-35),
            15 => row.fill(0.0),
            17 => row.mapv_inplace(|x| x * 3e37),
            _ => {}
        }
    }
    a
}

/// Columns of random numbers, one with an element that is too small to be decomposed, and one with an infinity.
pub fn columns_of_b(k: usize, n: usize, generator: &mut StdRng) -> Array2<f32> {
    let mut b = Array2::from_shape_fn((k, n), |_| generator.random_range(-1.0..1.0f32));
    b[[k / 2, n / 3]] = 1e-34;
    b[[k / 3, n / 2]] = f32::INFINITY;
    b
}

/// A product of row-major matrices.
///
/// # Panics
/// For sizes that cannot be multiplied.
pub fn product(m: usize, n: usize, k: usize) -> Description {
    let (a, b, c) = (Placement::row_major(k), Placement::row_major(n), Placement::row_major(n));
    Description::new(Sizes { m, n, k }, 1, a, b, c).expect("sizes that can be multiplied")
}

/// Uploads matrices of one shape one after the other, each line with `gap` elements after it.
///
/// # Errors
/// Those of an upload.
pub fn upload(device: &Device, matrices: &[Array2<f32>], order: Order, gap: usize) -> Result<DeviceMatrix, Error> {
    let (rows, cols) = matrices[0].dim();
    let [lines, length] = order.lines(rows, cols);
    let pitch = length + gap;
    let mut numbers = vec![f32::NAN; matrices.len() * lines * pitch];
    for (matrix, numbers) in matrices.iter().zip(numbers.chunks_mut(lines * pitch)) {
        for ((row, col), &value) in matrix.indexed_iter() {
            let (line, place) = if order == Order::RowMajor { (row, col) } else { (col, row) };
            numbers[line * pitch + place] = value;
        }
    }
    let strides = order.strides(pitch, 1);
    DeviceMatrix::new_batch(device.upload(&numbers)?, [rows, cols], strides, matrices.len(), lines * pitch)
}

/// Computes rows of `C = α·A·B + β·C` by invariant plans for a GPU, on a device, and compares their bits.
///
/// # Errors
/// The first row that differs, with its case, in words; those of plans and runs.
pub fn check(
    device: &Device,
    gpu: &DeviceFacts,
    precision: Precision,
    [n, k]: [usize; 2],
    seed: u64,
) -> Result<Compared, Error> {
    let mut generator = StdRng::seed_from_u64(seed);
    let (alpha, beta) = (1.5, if seed.is_multiple_of(2) { 0.0 } else { -0.5 });
    let (a, b) = (rows_of_a(ROWS, k, &mut generator), columns_of_b(k, n, &mut generator));
    let old = Array2::from_shape_fn((ROWS, n), |_| generator.random_range(-1.0..1.0f32));
    let b_order = if seed % 4 < 2 { Order::RowMajor } else { Order::ColumnMajor };
    let mut expected = None;
    let mut compared = Compared::default();
    for case in cases() {
        let Case { first, rows, batch, a: order, gap, c: c_order } = case;
        let part = |matrix: &'_ Array2<f32>, index: usize| {
            let begin = first + index * rows;
            matrix.slice(ndarray::s![begin..begin + rows, ..]).to_owned()
        };
        let parts = |matrix: &Array2<f32>| (0..batch).map(|index| part(matrix, index)).collect::<Vec<_>>();
        let (a_parts, c_parts) = (parts(&a), parts(&old));
        let a_there = upload(device, &a_parts, order, gap)?;
        let b_there = upload(device, &vec![b.clone(); batch], b_order, 0)?;
        let mut c_there = upload(device, &c_parts, c_order, 0)?;
        let product = Description::of(alpha, &a_there, &b_there, beta, &c_there)?;
        let options = Options { invariant: true, ..Options::from(precision) };
        let plan = plan(gpu, &product, &options)?;
        let mut workspace = plan.workspace(device)?;
        plan.run(device, alpha, &a_there, &b_there, beta, &mut c_there, &mut workspace)?;
        let mut results = c_parts;
        c_there.download_all(&mut results.iter_mut().map(|it| it.view_mut()).collect::<Vec<_>>())?;
        let name = plan.kernel().name;
        if !compared.kernels.contains(&name) {
            compared.kernels.push(name);
        }
        compared.splits = plan.splits();
        let expected = expected.get_or_insert_with(|| results[0].clone());
        for (index, row) in (0..batch).flat_map(|product| (0..rows).map(move |row| (product, row))).enumerate() {
            let (result, expected) = (results[row.0].row(row.1), expected.row(first + index));
            let differs =
                |(one, other): (&f32, &f32)| one.to_bits() != other.to_bits() && !(one.is_nan() && other.is_nan());
            if let Some(col) = result.iter().zip(expected).position(differs) {
                return Err(Error::Usage(format!(
                    "{case:?}: row {}, column {col} is {:e}, and {:e} with all rows ({name}, {} splits)",
                    first + index,
                    result[col],
                    expected[col],
                    plan.splits()
                )));
            }
            compared.rows += 1;
        }
    }
    Ok(compared)
}
