//! Copies that transpose, and operands rounded to 16 bits, as the host sees them: test cases, inputs, the launch, and each element as it has to come
//! out. It is compiled for the host only.

use alloc::{vec, vec::Vec};

use cuda_std::KernelFacts;
use operations::{
    Argument, Bits, Description, Device, Distribution, Element, Error, Expected, Operation, Sizes, Values, Views,
};

use super::copy::matrix_copy_fp32;
use super::half::{pack_bf16, pack_fp16, pitch};
use crate::{Matrix, MatrixBatch, MatrixBatchMut, MatrixMut};

/// A copy that transposes: from column-major to row-major matrices.
pub static COPY: Copy = Copy;

/// Operands rounded to bf16.
pub static PACK_BF16: Pack = Pack {
    name: "pack-bf16",
    kernel: pack_bf16::FACTS,
    launch: |device, source, views| Ok(device.launch(pack_bf16 { source, words: views.write("words")? })?),
    format: Format { digits: 8, exponent_bits: 8 },
};

/// Operands rounded to fp16.
pub static PACK_FP16: Pack = Pack {
    name: "pack-fp16",
    kernel: pack_fp16::FACTS,
    launch: |device, source, views| Ok(device.launch(pack_fp16 { source, words: views.write("words")? })?),
    format: Format { digits: 11, exponent_bits: 5 },
};

/// Row-major matrices, one after the other, in an input of this name.
fn source<'a>(sizes: &Sizes, views: &Views<'a>) -> Result<MatrixBatch<'a>, Error> {
    let [count, rows, cols] = sizes.get(["count", "rows", "cols"])?;
    let first = Matrix::new(views.read("source")?, rows, cols, cols, 1).map_err(Error::operation)?;
    MatrixBatch::new(first, rows * cols, count).map_err(Error::operation)
}

/// A copy of matrices.
pub struct Copy;

impl Operation for Copy {
    fn describe(&self) -> Description {
        Description {
            name: "copy",
            idea: "matrices from column-major to row-major, through tiles in shared memory",
            sizes: &["count", "rows", "cols"],
            kernels: vec![matrix_copy_fp32::FACTS],
            small: operations::every(&[&[1, 3], &[0, 1, 31, 65], &[0, 1, 64, 130]]),
            large: vec![vec![1, 16_384, 8192], vec![37, 1001, 777]],
            bits: Bits::Same,
        }
    }

    fn arguments(&self, sizes: &Sizes) -> Result<Vec<Argument>, Error> {
        let [count, rows, cols] = sizes.get(["count", "rows", "cols"])?;
        Ok(vec![
            Argument::input("source", &[count, cols, rows], Distribution::Special),
            Argument::output("copy", &[count, rows, cols]),
        ])
    }

    fn launch(&self, device: &Device, sizes: &Sizes, views: &Views<'_>) -> Result<(), Error> {
        let [count, rows, cols] = sizes.get(["count", "rows", "cols"])?;
        let from = Matrix::new(views.read("source")?, rows, cols, 1, rows).map_err(Error::operation)?;
        let from = MatrixBatch::new(from, rows * cols, count).map_err(Error::operation)?;
        let to = MatrixMut::new(views.write("copy")?, rows, cols, cols, 1).map_err(Error::operation)?;
        let to = MatrixBatchMut::new(to, rows * cols, count).map_err(Error::operation)?;
        Ok(device.launch(matrix_copy_fp32 { from, to })?)
    }

    fn expected(&self, sizes: &Sizes, values: &Values<'_>) -> Result<Vec<Vec<Expected>>, Error> {
        let [count, rows, cols] = sizes.get(["count", "rows", "cols"])?;
        let source = values.of("source")?;
        let place = |index: usize| {
            let (matrix, row, col) = (index / (rows * cols), index / cols % rows, index % cols);
            Expected::exact(source[matrix * rows * cols + col * rows + row])
        };
        Ok(vec![(0..count * rows * cols).map(place).collect()])
    }

    fn operations(&self, _: &Sizes) -> f64 {
        0.0
    }
}

/// Row-major operands, rounded to a format of 16 bits, two terms to a word.
pub struct Pack {
    name: &'static str,
    kernel: KernelFacts,
    launch: fn(&Device, MatrixBatch<'_>, &Views<'_>) -> Result<(), Error>,
    format: Format,
}

/// A binary format of IEEE 754, of 16 bits in all.
#[derive(Clone, Copy)]
struct Format {
    /// The significant bits, the leading one included.
    digits: i32,
    exponent_bits: u32,
}

impl Format {
    /// The bits of a finite number, rounded to nearest, ties to even.
    fn bits_of(self, value: f64) -> u16 {
        let bias = (1 << (self.exponent_bits - 1)) - 1;
        let sign = u16::from(value.is_sign_negative()) << 15;
        // Below the normal numbers, all have the exponent of the smallest of these.
        let exponent_of = |magnitude: f64| (((magnitude.to_bits() >> 52) as i32) - 1023).max(1 - bias);
        let unit = 2.0f64.powi(exponent_of(value.abs()) - (self.digits - 1));
        let rounded = (value.abs() / unit).round_ties_even() * unit;
        let exponent = exponent_of(rounded);
        if exponent > bias {
            return sign | ((1 << self.exponent_bits) - 1) << (self.digits - 1);
        }
        let significand = (rounded * 2.0f64.powi(self.digits - 1 - exponent)) as u16;
        // The leading bit of a normal number is not stored; that it is there adds one to the exponent.
        sign | ((((exponent + bias - 1) as u16) << (self.digits - 1)) + significand)
    }
}

impl Operation for Pack {
    fn describe(&self) -> Description {
        Description {
            name: self.name,
            idea: "lines of an operand rounded to 16 bits, padded with zeros to 128 bytes",
            sizes: &["count", "rows", "cols"],
            kernels: vec![self.kernel],
            small: operations::every(&[&[1, 3], &[1, 31, 65], &[1, 64, 130]]),
            large: vec![vec![1, 16_384, 8192], vec![37, 1001, 777]],
            bits: Bits::Same,
        }
    }

    fn arguments(&self, sizes: &Sizes) -> Result<Vec<Argument>, Error> {
        let ([count, rows, cols], [cols_32]) = (sizes.get(["count", "rows", "cols"])?, sizes.get_u32(["cols"])?);
        Ok(vec![
            Argument::input("source", &[count, rows, cols], Distribution::LogUniform(1e-9, 1e9)),
            Argument::output("words", &[count, rows, pitch(cols_32) as usize]).of(Element::U32),
        ])
    }

    fn launch(&self, device: &Device, sizes: &Sizes, views: &Views<'_>) -> Result<(), Error> {
        (self.launch)(device, source(sizes, views)?, views)
    }

    fn expected(&self, sizes: &Sizes, values: &Values<'_>) -> Result<Vec<Vec<Expected>>, Error> {
        let ([count, rows, cols], [cols_32]) = (sizes.get(["count", "rows", "cols"])?, sizes.get_u32(["cols"])?);
        let (source, pitch) = (values.of("source")?, pitch(cols_32) as usize);
        let word = |index: usize| {
            let (line, word) = (index / pitch, index % pitch);
            let term = |term: usize| if term < cols { source[line * cols + term] } else { 0.0 };
            let [low, high] = [term(2 * word), term(2 * word + 1)].map(|value| u32::from(self.format.bits_of(value)));
            Expected::exact((high << 16 | low).into())
        };
        Ok(vec![(0..count * rows * pitch).map(word).collect()])
    }

    fn operations(&self, _: &Sizes) -> f64 {
        0.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_rounded_to_both_formats() {
        let bf16 = |value| PACK_BF16.format.bits_of(value);
        assert_eq!([1.0, -2.0, 0.0, -0.0, 3.0e38].map(bf16), [0x3f80, 0xc000, 0, 0x8000, 0x7f62]);
        let fp16 = |value| PACK_FP16.format.bits_of(value);
        assert_eq!([1.0, 65504.0, 65519.0, 65520.0, -1e9].map(fp16), [0x3c00, 0x7bff, 0x7bff, 0x7c00, 0xfc00]);
        // The smallest normal number, the largest subnormal one, the smallest, and halves of that.
        let tiny = 2.0f64.powi(-24);
        let small = [1024.0 * tiny, 1023.0 * tiny, tiny, 0.5 * tiny, 1.5 * tiny, 1023.5 * tiny];
        assert_eq!(small.map(fp16), [0x0400, 0x03ff, 1, 0, 2, 0x0400]);
    }
}
