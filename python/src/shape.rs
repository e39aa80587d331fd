//! The rules of `matmul` for shapes, and how a product of tensors becomes products that a plan can be made for.
//!
//! ```text
//!  a (2, 3, M, K) · b (K, N)       both extents of the batch fold into the rows:   one product, (6·M, K) · (K, N)
//!  a (5, M, K) · b (5, K, N)       one batch:                                      one plan, 5 products
//!  a (2, 1, M, K) · b (7, K, N)    two extents, of which each operand has one:     one plan for 7 products, run twice
//! ```
//!
//! Nothing is ever copied to make a layout regular. An extent folds into the rows if b does not change along it, and rows of a
//! and of c go on at the same distance; into the columns likewise. Two extents that are one regular walk through all three
//! tensors are merged. Of what is left, the longest extent is the batch of the plan, and the plan is run for each place of the
//! others. Of which only a triangle is wanted, those are matrices that stay as they are: nothing folds.
//!
//! This module knows nothing of Python, so that its tests need none.

use std::cmp::Reverse;

use tilewright::Precision;
use tilewright::operand::elements_overlap;
use tilewright::plan::Triangle;

/// What kernels count, at most: rows, columns, terms or matrices.
const MOST: usize = i32::MAX as usize;

/// The most tensors that the steps behind a product may read.
pub(crate) const MOST_OPERANDS: usize = 3;

/// The tensors of a product: a, b, those of the steps behind it, and c, in this order.
const TENSORS: usize = MOST_OPERANDS + 3;

/// Which function is called: what shapes it takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rule {
    /// Vectors, matrices, and batches of any number of extents, broadcast.
    Matmul,
    /// A matrix and a vector.
    Matvec,
    /// Two batches of as many matrices.
    Bmm,
    /// Vectors in batches of any number of extents, and a matrix whose rows they are multiplied by, or one such row.
    Linear,
    /// Two matrices.
    Addmm,
    /// Two batches of as many matrices, once more.
    Baddbmm,
}

/// Where the elements of a tensor lie, in elements from the first one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct View {
    /// The extents.
    pub(crate) shape: Vec<usize>,
    /// The distance between neighbours along each extent.
    pub(crate) strides: Vec<usize>,
}

/// A product of tensors as kernels compute it: a batch of products of matrices, perhaps several times.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Products {
    /// The rows of A and C.
    pub(crate) m: usize,
    /// The columns of B and C.
    pub(crate) n: usize,
    /// The columns of A and rows of B.
    pub(crate) k: usize,
    /// The products of the batch.
    pub(crate) count: usize,
    /// The strides of A.
    pub(crate) a: Strides,
    /// The strides of B.
    pub(crate) b: Strides,
    /// The strides of C.
    pub(crate) c: Strides,
    /// The strides of what the steps behind the product read, as if it had C's extents: 0 along those that it has once.
    pub(crate) operands: [Strides; MOST_OPERANDS],
    /// Whether there are such steps.
    pub(crate) has_steps: bool,
    /// What is wanted of each C.
    pub(crate) part: Triangle,
    /// The precision that A, and that B, has been packed for before, if it has.
    pub(crate) packed: [Option<Precision>; 2],
    /// What is left of the batch.
    repeats: Vec<Axis>,
}

/// The strides of a batch of matrices, in elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Strides {
    /// From one row to the next.
    pub(crate) rows: usize,
    /// From one column to the next.
    pub(crate) cols: usize,
    /// From one matrix to the next.
    pub(crate) batch: usize,
}

/// A walk through `N` tensors at once: those of a product, unless something else is said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Axis<const N: usize = TENSORS> {
    extent: usize,
    /// Of each tensor; the result is the last one.
    strides: [usize; N],
}

impl Rule {
    /// The function's name.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Matmul => "matmul",
            Self::Matvec => "matvec",
            Self::Bmm => "bmm",
            Self::Linear => "linear",
            Self::Addmm => "addmm",
            Self::Baddbmm => "baddbmm",
        }
    }

    /// What the function calls its operands.
    pub(crate) fn operands(self) -> [&'static str; 2] {
        match self {
            Self::Matmul | Self::Matvec | Self::Bmm => ["a", "b"],
            Self::Linear => ["x", "w"],
            Self::Addmm => ["mat1", "mat2"],
            Self::Baddbmm => ["batch1", "batch2"],
        }
    }

    /// Whether the second operand is given as the transpose of what the first one is multiplied by.
    pub(crate) fn transposes(self) -> bool {
        self == Self::Linear
    }

    /// The rule of the function of this name.
    pub(crate) fn of_name(name: &str) -> Option<Self> {
        let all = [Self::Matmul, Self::Matvec, Self::Bmm, Self::Linear, Self::Addmm, Self::Baddbmm];
        all.into_iter().find(|rule| rule.name() == name)
    }

    /// The shape of the product of tensors of these shapes, or what is wrong with them.
    pub(crate) fn result(self, a: &[usize], b: &[usize]) -> Result<Vec<usize>, String> {
        let [name_a, name_b] = self.operands();
        let refused = |why: &str| {
            let (name, a, b) = (self.name(), tuple(a), tuple(b));
            Err(format!("{name}: {name_a} has shape {a}, {name_b} has shape {b}: {why}"))
        };
        match self {
            Self::Matvec if (a.len(), b.len()) != (2, 1) => {
                return refused("matvec takes a matrix and a vector; matmul takes anything else");
            }
            Self::Bmm if (a.len(), b.len()) != (3, 3) => {
                return refused("bmm takes two tensors of three extents; matmul takes anything else");
            }
            Self::Bmm if a[0] != b[0] => {
                return refused("the first extents, the numbers of matrices, have to be equal; matmul broadcasts them");
            }
            Self::Addmm if (a.len(), b.len()) != (2, 2) => {
                return refused("addmm takes two matrices; baddbmm takes batches of them");
            }
            Self::Baddbmm if (a.len(), b.len()) != (3, 3) || a[0] != b[0] => {
                return refused("baddbmm takes two batches of as many matrices; addmm takes single ones");
            }
            Self::Linear if b.len() > 2 => {
                return refused("w has to be a matrix with a row for each feature of the result, or one such row");
            }
            _ if a.is_empty() || b.is_empty() => {
                return refused("a scalar is no operand of a matrix product; `*` multiplies by one");
            }
            _ => {}
        }
        if self == Self::Linear {
            let ([vectors @ .., of_x], [rows @ .., of_w]) = (a, b) else { return refused("a scalar is no operand") };
            return match of_x == of_w {
                true => Ok([vectors, rows].concat()),
                false => refused("the last extents, the features of x, have to be equal"),
            };
        }
        if a[a.len() - 1] != b[b.len().saturating_sub(2)] {
            let of_b = if b.len() == 1 { "the extent of" } else { "the last but one of" };
            return refused(&format!("the last extent of {name_a} and {of_b} {name_b} have to be equal"));
        }
        let (batch_a, batch_b) = (&a[..a.len().saturating_sub(2)], &b[..b.len().saturating_sub(2)]);
        let rank = batch_a.len().max(batch_b.len());
        let mut shape = Vec::with_capacity(rank + 2);
        for place in 0..rank {
            // Counted from the back, where both begin.
            let of = |batch: &[usize]| (place + batch.len()).checked_sub(rank).map_or(1, |place| batch[place]);
            match (of(batch_a), of(batch_b)) {
                (a, b) if a == b || b == 1 => shape.push(a),
                (1, b) => shape.push(b),
                (a, b) => {
                    return refused(&format!(
                        "the extents before the last two have to be equal or 1, and here they are {a} and {b}"
                    ));
                }
            }
        }
        shape.extend((a.len() > 1).then(|| a[a.len() - 2]));
        shape.extend((b.len() > 1).then(|| b[b.len() - 1]));
        Ok(shape)
    }
}

impl View {
    /// A tensor without gaps, by rows; or none, if it has more elements than can be counted.
    pub(crate) fn contiguous(shape: Vec<usize>) -> Option<Self> {
        let mut strides = vec![0; shape.len()];
        let mut elements = 1usize;
        for (stride, &extent) in strides.iter_mut().zip(&shape).rev() {
            *stride = elements;
            elements = elements.checked_mul(extent.max(1))?;
        }
        Some(Self { shape, strides })
    }

    /// The same matrix with its extents exchanged; what has one extent stays as it is.
    pub(crate) fn transposed(mut self) -> Self {
        if let [.., row, col] = &mut self.shape[..] {
            std::mem::swap(row, col);
        }
        if let [.., row, col] = &mut self.strides[..] {
            std::mem::swap(row, col);
        }
        self
    }

    /// Its strides as a tensor of this shape, which it has once where its own extent is 1 or is not there; none, where the shape has
    /// fewer extents or others.
    pub(crate) fn broadcast_to(&self, shape: &[usize]) -> Option<Vec<usize>> {
        let missing = shape.len().checked_sub(self.shape.len())?;
        let mut strides = vec![0; shape.len()];
        for (place, (&extent, &stride)) in self.shape.iter().zip(&self.strides).enumerate() {
            match extent {
                1 => {}
                _ if extent == shape[missing + place] => strides[missing + place] = stride,
                _ => return None,
            }
        }
        Some(strides)
    }

    /// Whether there are no elements.
    pub(crate) fn is_empty(&self) -> bool {
        self.shape.contains(&0)
    }

    /// The elements from the first to the last in memory, both and all gaps counted; or none, if that is beyond counting.
    pub(crate) fn span(&self) -> Option<usize> {
        if self.is_empty() {
            return Some(0);
        }
        let distance = |(&extent, &stride): (&usize, &usize)| (extent - 1).checked_mul(stride);
        let mut distances = self.shape.iter().zip(&self.strides).map(distance);
        distances.try_fold(1usize, |sum, distance| sum.checked_add(distance?))
    }

    /// Whether two elements are one place in memory.
    pub(crate) fn overlaps_itself(&self) -> bool {
        let wide = |numbers: &[usize]| numbers.iter().map(|&number| number as u64).collect::<Vec<_>>();
        elements_overlap(&wide(&self.shape), &wide(&self.strides))
    }
}

impl<const N: usize> Axis<N> {
    /// This walk repeated along `outer`, if that is one regular walk.
    fn then(self, outer: Self) -> Option<Self> {
        let extent = self.extent.checked_mul(outer.extent).filter(|&extent| extent <= MOST)?;
        if self.extent == 1 {
            return Some(outer);
        }
        let goes_on = |place: usize| self.strides[place].checked_mul(self.extent) == Some(outer.strides[place]);
        (0..N).all(goes_on).then_some(Self { extent, ..self })
    }
}

impl Products {
    /// The products of `c = a·b`, or of a part of each matrix of c. The shape of c is that which [`Rule::result`] gives. If rows are
    /// invariant, columns stay as many as they are: it is from them that the bits of a row follow.
    ///
    /// # Panics
    /// If it is another one.
    pub(crate) fn new(a: &View, b: &View, c: &View, part: Triangle, invariant: bool) -> Self {
        Self::with_operands(a, b, c, &[], part, invariant)
    }

    /// The same, and what the steps behind it read: by the strides that [`View::broadcast_to`] gives for the shape of c, at most
    /// [`MOST_OPERANDS`].
    ///
    /// # Panics
    /// If a shape is another one.
    pub(crate) fn with_operands(
        a: &View,
        b: &View,
        c: &View,
        operands: &[Vec<usize>],
        part: Triangle,
        invariant: bool,
    ) -> Self {
        let along = |of_a, of_b, place: usize| {
            let mut strides = [0; TENSORS];
            [strides[0], strides[1], strides[TENSORS - 1]] = [of_a, of_b, c.strides[place]];
            for (stride, operand) in strides[2..TENSORS - 1].iter_mut().zip(operands) {
                *stride = operand[place];
            }
            Axis { extent: c.shape[place], strides }
        };
        let (rank_a, rank_b, rank_c) = (a.shape.len(), b.shape.len(), c.shape.len());
        // A vector a is a matrix of one row, a vector b one of one column.
        let (a_is_vector, b_is_vector) = (rank_a == 1, rank_b == 1);
        let batch = rank_c - usize::from(!a_is_vector) - usize::from(!b_is_vector);
        // Those of a tensor without elements mean nothing, and may be too large to go along.
        let stride = |view: &View, place: usize| if view.is_empty() { 0 } else { view.strides[place] };
        let mut rows = Axis { extent: 1, strides: [0; TENSORS] };
        let mut cols = rows;
        if !a_is_vector {
            rows = along(stride(a, rank_a - 2), 0, batch);
        }
        if !b_is_vector {
            cols = along(0, stride(b, rank_b - 1), rank_c - 1);
        }
        let (k, a_terms) = (a.shape[rank_a - 1], stride(a, rank_a - 1));
        let b_terms = stride(b, rank_b.saturating_sub(2));

        let batch_stride = |view: &View, place: usize| {
            let place = (place + view.shape.len().saturating_sub(2)).checked_sub(batch);
            place.filter(|&place| view.shape[place] > 1).map_or(0, |place| stride(view, place))
        };
        let all = (0..batch).map(|place| along(batch_stride(a, place), batch_stride(b, place), place));
        let mut axes: Vec<Axis> = all.filter(|axis| axis.extent != 1).collect();
        // The innermost is the last one.
        axes.sort_by_key(|axis| Reverse(axis.strides[TENSORS - 1]));
        let is_whole = part == Triangle::All;
        simplify(&mut axes, &mut rows, &mut cols, [is_whole, is_whole && !invariant]);

        let batch = take_batch(&mut axes, rows, cols);
        let at = |tensor: usize| Strides {
            rows: rows.strides[tensor],
            cols: cols.strides[tensor],
            batch: batch.strides[tensor],
        };
        Self {
            m: rows.extent,
            n: cols.extent,
            k,
            count: batch.extent,
            a: Strides { cols: a_terms, ..at(0) },
            b: Strides { rows: b_terms, ..at(1) },
            c: at(TENSORS - 1),
            operands: std::array::from_fn(|operand| at(2 + operand)),
            has_steps: false,
            part,
            packed: [None; 2],
            repeats: axes,
        }
    }

    /// The same without terms, so that neither a nor b is read.
    pub(crate) fn without_terms(self) -> Self {
        let nowhere = Strides { rows: 0, cols: 0, batch: 0 };
        Self { k: 0, a: nowhere, b: nowhere, ..self }
    }

    /// Where a, b and c begin each time that the batch is computed, in elements.
    pub(crate) fn offsets(&self) -> impl Iterator<Item = [usize; 3]> + '_ {
        offsets(&self.repeats).map(|[a, b, .., c]| [a, b, c])
    }

    /// Where what the steps read begins each time, likewise.
    pub(crate) fn operand_offsets(&self) -> impl Iterator<Item = [usize; MOST_OPERANDS]> + '_ {
        offsets(&self.repeats).map(|[_, _, operands @ .., _]: [usize; TENSORS]| operands)
    }
}

/// Takes the longest extent out of those of a batch along which each matrix of the result begins behind the one before.
fn take_batch<const N: usize>(axes: &mut Vec<Axis<N>>, rows: Axis<N>, cols: Axis<N>) -> Axis<N> {
    let [across, down] = [rows, cols].map(|line| line.extent.saturating_sub(1).saturating_mul(line.strides[N - 1]));
    let is_regular = |&place: &usize| axes[place].strides[N - 1] > across.saturating_add(down);
    let longest = (0..axes.len()).filter(is_regular).max_by_key(|&place| axes[place].extent);
    longest.map_or(Axis { extent: 1, strides: [0; N] }, |place| axes.remove(place))
}

/// Where tensors begin at each place of some extents.
fn offsets<const N: usize>(axes: &[Axis<N>]) -> impl Iterator<Item = [usize; N]> + '_ {
    let times = axes.iter().map(|axis| axis.extent).product();
    (0..times).map(|mut index: usize| {
        let mut offsets = [0; N];
        for axis in axes.iter().rev() {
            let step = index % axis.extent;
            index /= axis.extent;
            for (offset, stride) in offsets.iter_mut().zip(axis.strides) {
                *offset += step * stride;
            }
        }
        offsets
    })
}

/// Folds extents of a batch into the rows and the columns, if these may grow, and merges them, as far as strides allow.
fn simplify(axes: &mut Vec<Axis>, rows: &mut Axis, cols: &mut Axis, may_grow: [bool; 2]) {
    let mut changed = true;
    while changed {
        changed = false;
        for place in (0..axes.len()).rev() {
            let axis = axes[place];
            // b has one matrix for all of them, or a has.
            let [a_stays, b_stays] = [0, 1].map(|operand| axis.strides[operand] == 0);
            if let Some(longer) = rows.then(axis).filter(|_| may_grow[0] && b_stays) {
                *rows = longer;
            } else if let Some(longer) = cols.then(axis).filter(|_| may_grow[1] && a_stays) {
                *cols = longer;
            } else if let Some((inner, longer)) =
                (place + 1..axes.len()).find_map(|inner| Some((inner, axes[inner].then(axis)?)))
            {
                axes[inner] = longer;
            } else {
                continue;
            }
            axes.remove(place);
            changed = true;
            break;
        }
    }
}

/// Matrices whose rows and columns are multiplied by factors, as the kernel takes them: a batch, perhaps several times.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Scalings {
    /// The rows.
    pub(crate) m: usize,
    /// The columns.
    pub(crate) n: usize,
    /// The matrices of the batch.
    pub(crate) count: usize,
    /// The strides of the matrices.
    pub(crate) from: Strides,
    /// The strides of the results.
    pub(crate) to: Strides,
    /// What is left of the batch.
    repeats: Vec<Axis<2>>,
}

impl Scalings {
    /// Matrices and results, of one shape of at least two extents; whether rows have factors. If they have none, rows of
    /// several matrices may be those of one.
    pub(crate) fn new(from: &View, to: &View, rows_have_factors: bool) -> Self {
        let axis = |place: usize| Axis { extent: to.shape[place], strides: [from.strides[place], to.strides[place]] };
        let of_batch = to.shape.len() - 2;
        let (mut rows, cols) = (axis(of_batch), axis(of_batch + 1));
        let mut axes: Vec<Axis<2>> = (0..of_batch).map(axis).filter(|axis| axis.extent != 1).collect();
        // The innermost is the last one.
        axes.sort_by_key(|axis| Reverse(axis.strides[1]));
        let mut place = axes.len();
        while place > 0 {
            place -= 1;
            let axis = axes[place];
            if let Some(longer) = rows.then(axis).filter(|_| !rows_have_factors) {
                rows = longer;
            } else if let Some((inner, longer)) =
                (place + 1..axes.len()).find_map(|inner| Some((inner, axes[inner].then(axis)?)))
            {
                axes[inner] = longer;
            } else {
                continue;
            }
            axes.remove(place);
            place = axes.len();
        }
        let batch = take_batch(&mut axes, rows, cols);
        let strides = |tensor: usize| Strides {
            rows: rows.strides[tensor],
            cols: cols.strides[tensor],
            batch: batch.strides[tensor],
        };
        Self { m: rows.extent, n: cols.extent, count: batch.extent, from: strides(0), to: strides(1), repeats: axes }
    }

    /// Where matrices and results begin each time that the batch is computed, in elements.
    pub(crate) fn offsets(&self) -> impl Iterator<Item = [usize; 2]> + '_ {
        offsets(&self.repeats)
    }
}

/// A shape as Python writes a tuple.
pub(crate) fn tuple(shape: &[usize]) -> String {
    match shape {
        [only] => format!("({only},)"),
        _ => format!("({})", shape.iter().map(usize::to_string).collect::<Vec<_>>().join(", ")),
    }
}

#[cfg(test)]
#[path = "shape/tests.rs"]
mod tests;
