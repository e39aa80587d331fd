//! Grouped products by the kernels with small tiles, as the host sees them: test cases, operands, the launch, and products in f64 with a bound for
//! each element. The kernels on tensor cores, whose bits are those of one GPU, are tested as plans of grouped products. It is compiled for
//! the host only.

use alloc::{vec, vec::Vec};

use cuda_std::{GlobalSlice, GlobalSliceMut};
use operations::{Argument, Bits, Description, Device, Distribution, Error, Expected, Operation, Sizes, Values, Views};

use super::{
    GroupedProduct, Products, gemm_grouped_4_fp32, gemm_grouped_8_fp32, gemm_grouped_16_fp32, gemm_grouped_32_fp32,
};
use crate::gemm::batched::{TILE_4, TILE_8, TILE_16, TILE_32};
use crate::{Matrix, MatrixMut};

/// The factors of all products.
const ALPHA: f32 = 1.5;
const BETA: f32 = -0.5;

/// Grouped products.
pub static GROUPED: Grouped = Grouped;

/// `C = α·A·B + β·C` of products whose sizes are all from 0 to `most`, by tiles of `tile`×`tile`. Every other A and every third B is
/// column-major, and so is every fourth C.
pub struct Grouped;

/// A product, and where in the arguments its matrices begin.
struct Placed {
    sizes: [usize; 3],
    firsts: [usize; 3],
    by_columns: [bool; 3],
}

impl Placed {
    /// The rows and columns of A, of B and of C.
    fn shapes(&self) -> [[usize; 2]; 3] {
        let [m, n, k] = self.sizes;
        [[m, k], [k, n], [m, n]]
    }

    /// The strides of rows and of columns of a matrix.
    fn strides(&self, matrix: usize) -> [usize; 2] {
        let [rows, cols] = self.shapes()[matrix];
        if self.by_columns[matrix] { [1, rows] } else { [cols, 1] }
    }

    fn place(&self, matrix: usize, row: usize, col: usize) -> usize {
        let [row_stride, col_stride] = self.strides(matrix);
        self.firsts[matrix] + row * row_stride + col * col_stride
    }
}

/// So many products, without gaps between their matrices, and how many elements all A, all B and all C have.
fn placed(products: usize, most: usize) -> (Vec<Placed>, [usize; 3]) {
    let mut ends = [0; 3];
    let place = |index: usize| {
        // Numbers that look like chance, the same for the same sizes.
        let extent = |of: usize| (index * 2_654_435_761 + of * 40_503 + index * index * 97) / 7 % (most + 1);
        let sizes = [extent(1), extent(2), extent(3)];
        let firsts = ends;
        let placed = Placed { sizes, firsts, by_columns: [index % 2 == 1, index % 3 == 1, index % 4 == 1] };
        for (end, [rows, cols]) in ends.iter_mut().zip(placed.shapes()) {
            *end += rows * cols;
        }
        placed
    };
    let all = (0..products).map(place).collect();
    (all, ends)
}

impl Operation for Grouped {
    fn describe(&self) -> Description {
        Description {
            name: "grouped",
            idea: "C = α·A·B + β·C of products that differ in everything: one launch for all",
            sizes: &["tile", "products", "most"],
            kernels: vec![
                gemm_grouped_4_fp32::FACTS,
                gemm_grouped_8_fp32::FACTS,
                gemm_grouped_16_fp32::FACTS,
                gemm_grouped_32_fp32::FACTS,
            ],
            small: operations::every(&[&[4, 8, 16, 32], &[0, 1, 5, 40], &[1, 7, 50]]),
            large: operations::every(&[&[4, 8, 16, 32], &[20_000], &[40]]),
            bits: Bits::Same,
        }
    }

    fn arguments(&self, sizes: &Sizes) -> Result<Vec<Argument>, Error> {
        let [products, most] = sizes.get(["products", "most"])?;
        let (_, [of_a, of_b, of_c]) = placed(products, most);
        Ok(vec![
            Argument::input("a", &[of_a], Distribution::Uniform(-1.0, 1.0)),
            Argument::input("b", &[of_b], Distribution::Uniform(-1.0, 1.0)),
            Argument::in_out("c", &[of_c], Distribution::Uniform(-1.0, 1.0)),
        ])
    }

    fn launch(&self, device: &Device, sizes: &Sizes, views: &Views<'_>) -> Result<(), Error> {
        let [tile, products, most] = sizes.get(["tile", "products", "most"])?;
        let (all, _) = placed(products, most);
        let (a, b, c) = (views.read("a")?, views.read("b")?, views.write::<f32>("c")?);
        let matrix = |it: &Placed, matrix: usize, all: GlobalSlice<'_, f32>| {
            let ([rows, cols], [row_stride, col_stride]) = (it.shapes()[matrix], it.strides(matrix));
            // SAFETY: the elements are inside the argument, and the part is borrowed as the whole is.
            let part =
                unsafe { GlobalSlice::from_raw_parts(all.as_ptr().wrapping_add(it.firsts[matrix]), rows * cols) };
            Matrix::new(part, rows, cols, row_stride, col_stride).map_err(Error::operation)
        };
        let product = |it: &Placed| {
            let [row_stride, col_stride] = it.strides(2);
            let [m, n, _] = it.sizes;
            // SAFETY: as above; the parts of the products do not overlap, and the whole is not used besides.
            let part = unsafe { GlobalSliceMut::from_raw_parts(c.as_mut_ptr().wrapping_add(it.firsts[2]), m * n) };
            let c = MatrixMut::new(part, m, n, row_stride, col_stride).map_err(Error::operation)?;
            Ok(GroupedProduct { a: matrix(it, 0, a)?, b: matrix(it, 1, b)?, c })
        };
        let all = all.iter().map(product).collect::<Result<Vec<_>, Error>>()?;
        let shape = match tile {
            4 => TILE_4,
            8 => TILE_8,
            16 => TILE_16,
            _ => TILE_32,
        };
        let numbers: Vec<usize> = (0..products).collect();
        let group = Products::new(all).and_then(|all| all.group(&numbers, shape)).map_err(Error::operation)?;
        // A plan copies its table once. Here it is part of what is timed.
        let table = device.upload(group.words())?;
        // SAFETY: the table holds the group's words until the buffer's end, which waits for the kernel. The views are of memory of this
        // device.
        let gemm = unsafe { group.gemm(ALPHA, table.view(), BETA) };
        match tile {
            4 => device.launch(gemm_grouped_4_fp32 { gemm })?,
            8 => device.launch(gemm_grouped_8_fp32 { gemm })?,
            16 => device.launch(gemm_grouped_16_fp32 { gemm })?,
            _ => device.launch(gemm_grouped_32_fp32 { gemm })?,
        }
        Ok(())
    }

    fn expected(&self, sizes: &Sizes, values: &Values<'_>) -> Result<Vec<Vec<Expected>>, Error> {
        let [products, most] = sizes.get(["products", "most"])?;
        let (all, [.., of_c]) = placed(products, most);
        let (a, b, c) = (values.of("a")?, values.of("b")?, values.of("c")?);
        let mut expected = vec![Expected::exact(0.0); of_c];
        for it in &all {
            let [m, n, k] = it.sizes;
            for (row, col) in (0..m).flat_map(|row| (0..n).map(move |col| (row, col))) {
                let products = || (0..k).map(|l| a[it.place(0, row, l)] * b[it.place(1, l, col)]);
                let (alpha, old) = (f64::from(ALPHA), f64::from(BETA) * c[it.place(2, row, col)]);
                let magnitude = alpha * products().map(f64::abs).sum::<f64>() + old.abs();
                let value = alpha * products().sum::<f64>() + old;
                expected[it.place(2, row, col)] = Expected::rounded(value, k + 2, magnitude);
            }
        }
        Ok(vec![expected])
    }

    fn operations(&self, sizes: &Sizes) -> f64 {
        let Ok([products, most]) = sizes.get(["products", "most"]) else { return 0.0 };
        let (all, _) = placed(products, most);
        all.iter().map(|it| 2.0 * it.sizes.iter().map(|&extent| extent as f64).product::<f64>()).sum()
    }
}
