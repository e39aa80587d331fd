//! Products with diagonal matrices and with numbers: every element is what the same multiplications give on this processor, bit
//! by bit, and nothing else is written.

use tilewright::{Device, DeviceMatrix};

/// What stands where nothing may be written, or read.
const GAP: f32 = f32::from_bits(0x7FC0_DEAD);

/// The distance of factors.
const STEP: usize = 3;

/// Where matrices lie.
#[derive(Clone, Copy, Debug)]
pub struct Placed {
    /// From one matrix, row and column to the next.
    pub strides: [usize; 3],
    /// The elements before the first one, behind a place as aligned as allocations are.
    pub first: usize,
}

/// Matrices to be scaled.
#[derive(Clone, Copy, Debug)]
pub struct Scaled {
    /// Of how many matrices, with how many rows and columns.
    pub shape: [usize; 3],
    /// Where they are.
    pub from: Placed,
    /// Where they go to: nowhere, if they are scaled in place.
    pub to: Option<Placed>,
    /// Whether rows have factors, and columns, and whether these are neighbours in memory.
    pub has: [bool; 3],
    /// What all elements are multiplied by.
    pub alpha: f32,
}

/// Numbers of which no two neighbours are alike, with some that are special.
fn numbers(len: usize) -> Vec<f32> {
    const SPECIAL: [f32; 6] = [-0.0, f32::INFINITY, f32::MIN_POSITIVE, 1e-42, f32::MAX, f32::NAN];
    let number = |i: usize| if i % 23 == 5 { SPECIAL[i / 23 % 6] } else { ((i % 1009) as f32 - 40.0) * 0.37 };
    (0..len).map(number).collect()
}

impl Placed {
    /// The place of an element.
    fn at(&self, [matrix, row, col]: [usize; 3]) -> usize {
        self.first + matrix * self.strides[0] + row * self.strides[1] + col * self.strides[2]
    }
}

impl Scaled {
    /// Extents below, at and beyond those of a thread, a warp and a block, in all layouts that make a difference: rows without
    /// gaps, with gaps that keep them aligned and that do not, columns, both apart, repeated ones, aligned and not; to all
    /// layouts of results, and in place; with all kinds of factors.
    pub fn all() -> Vec<Self> {
        const SHAPES: [[usize; 3]; 15] = [
            [1, 0, 5],
            [1, 5, 0],
            [0, 5, 5],
            [1, 1, 1],
            [1, 1, 4],
            [1, 3, 7],
            [1, 2, 1023],
            [1, 2, 1024],
            [1, 1, 1028],
            [1, 3, 2049],
            [1, 1030, 1],
            [1, 40, 64],
            [3, 5, 4],
            [300, 3, 3],
            [2, 7, 300],
        ];
        let mut all = Vec::new();
        for (index, shape) in SHAPES.into_iter().enumerate() {
            let [_, rows, cols] = shape;
            let by_rows = |pitch: usize| [rows * pitch, pitch, 1];
            let by_columns = |pitch: usize| [cols * pitch, 1, pitch];
            let placed = |strides| Placed { strides, first: 0 };
            let froms = [
                placed(by_rows(cols)),
                Placed { strides: by_rows(cols), first: 1 },
                Placed { strides: by_rows((cols + 4).next_multiple_of(4)), first: 4 },
                placed(by_rows(cols + 3)),
                placed([rows * cols + 1, cols, 1]),
                placed(by_columns(rows + 1)),
                Placed { strides: [6 * rows * cols, 3 * cols, 2], first: 2 },
                placed([0, 0, 1]),
                placed([0, 1, 0]),
            ];
            let tos = [
                placed(by_rows(cols)),
                placed(by_rows((cols + 4).next_multiple_of(4))),
                Placed { strides: by_rows(cols + 1), first: 3 },
                placed(by_columns(rows)),
            ];
            for (turn, from) in froms.into_iter().enumerate() {
                // What shares places in memory cannot be a result.
                let in_place = (turn < 7).then_some(None);
                for to in tos.into_iter().map(Some).chain(in_place) {
                    for factors in 0..8 {
                        let has = [factors & 1 != 0, factors & 2 != 0, factors & 4 != 0];
                        let alpha = if (index + turn) % 2 == 0 { -1.5 } else { 1.0 };
                        all.push(Self { shape, from, to, has, alpha });
                    }
                }
            }
        }
        // So large that layouts that do not go together are brought together first.
        for (rows, cols) in [(33, 70), (64, 32)] {
            let from = Placed { strides: [1, 1, rows], first: 0 };
            for strides in [[1, cols, 1], [1, cols + 5, 1]] {
                let to = Some(Placed { strides, first: 0 });
                all.push(Self { shape: [1, rows, cols], from, to, has: [true; 3], alpha: 0.7 });
            }
        }
        all
    }

    /// All elements, by their matrix, row and column.
    fn elements(&self) -> impl Iterator<Item = [usize; 3]> {
        let [count, rows, cols] = self.shape;
        (0..count).flat_map(move |i| (0..rows).flat_map(move |row| (0..cols).map(move |col| [i, row, col])))
    }

    /// Memory for matrices that are placed like that.
    fn memory(&self, placed: Placed) -> Vec<f32> {
        // A batch of none is made of one.
        let last = self.shape.map(|extent| extent.saturating_sub(1));
        vec![GAP; placed.at(last) + 9]
    }

    /// Scales the matrices, and compares every word of the result's memory.
    ///
    /// # Errors
    /// What is wrong, in words.
    pub fn check(&self, device: &Device) -> Result<(), String> {
        self.run(device).map_err(|reason| format!("{self:?}: {reason}"))
    }

    fn run(&self, device: &Device) -> Result<(), crate::Error> {
        let [count, rows, cols] = self.shape;
        let step = if self.has[2] { 1 } else { STEP };
        let mut b = self.memory(self.from);
        for (element, number) in self.elements().zip(numbers(count * rows * cols)) {
            b[self.from.at(element)] = number;
        }
        let factors = numbers(STEP * rows.max(cols) + 1);
        let to = self.to.unwrap_or(self.from);
        let before = if self.to.is_some() { self.memory(to) } else { b.clone() };
        let mut expected = before.clone();
        for element @ [_, row, col] in self.elements() {
            let mut value = b[self.from.at(element)];
            if self.has[0] {
                value *= factors[step * row];
            }
            if self.has[1] {
                value *= factors[step * col];
            }
            expected[to.at(element)] = self.alpha * value;
        }

        let placed = |memory: &[f32], Placed { strides: [batch, row, col], first }: Placed| {
            DeviceMatrix::new(device.upload(memory)?, rows, cols, [row, col])?.moved_by(first)?.into_batch(count, batch)
        };
        let mut c = placed(&before, to)?;
        let of_rows = DeviceMatrix::new(device.upload(&factors)?, rows, 1, [step, 1])?;
        let of_cols = DeviceMatrix::new(device.upload(&factors)?, 1, cols, [1, step])?;
        let (of_rows, of_cols) = (self.has[0].then_some(&of_rows), self.has[1].then_some(&of_cols));
        match self.to {
            Some(_) => tilewright::scale(device, self.alpha, of_rows, &placed(&b, self.from)?, of_cols, &mut c)?,
            None => tilewright::scale_in_place(device, self.alpha, of_rows, of_cols, &mut c)?,
        }
        let mut found = before;
        c.buffer().copy_to(&mut found)?;
        for (index, (found, expected)) in found.iter().zip(&expected).enumerate() {
            // Which NaN comes of a product is the processor's.
            let is_nan = expected.is_nan() && expected.to_bits() != GAP.to_bits();
            if found.to_bits() != expected.to_bits() && !(is_nan && found.is_nan()) {
                let (found_bits, bits) = (found.to_bits(), expected.to_bits());
                return Err(format!("word {index} is {found:e} ({found_bits:#x}), not {expected:e} ({bits:#x})").into());
            }
        }
        Ok(())
    }
}
