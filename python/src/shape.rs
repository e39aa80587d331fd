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

use tilewright::operand::elements_overlap;
use tilewright::plan::Triangle;

/// What kernels count, at most: rows, columns, terms or matrices.
const MOST: usize = i32::MAX as usize;

/// Which function is called: what shapes it takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rule {
    /// Vectors, matrices, and batches of any number of extents, broadcast.
    Matmul,
    /// A matrix and a vector.
    Matvec,
    /// Two batches of as many matrices.
    Bmm,
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
    /// What is wanted of each C.
    pub(crate) part: Triangle,
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
struct Axis<const N: usize = 3> {
    extent: usize,
    /// Of a, b and c; the result is the last one.
    strides: [usize; N],
}

impl Rule {
    /// The function's name.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Matmul => "matmul",
            Self::Matvec => "matvec",
            Self::Bmm => "bmm",
        }
    }

    /// The rule of the function of this name.
    pub(crate) fn of_name(name: &str) -> Option<Self> {
        [Self::Matmul, Self::Matvec, Self::Bmm].into_iter().find(|rule| rule.name() == name)
    }

    /// The shape of the product of tensors of these shapes, or what is wrong with them.
    pub(crate) fn result(self, a: &[usize], b: &[usize]) -> Result<Vec<usize>, String> {
        let refused =
            |why: &str| Err(format!("{}: a has shape {}, b has shape {}: {why}", self.name(), tuple(a), tuple(b)));
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
            _ if a.is_empty() || b.is_empty() => {
                return refused("a scalar is no operand of a matrix product; `*` multiplies by one");
            }
            _ => {}
        }
        if a[a.len() - 1] != b[b.len().saturating_sub(2)] {
            let of_b = if b.len() == 1 { "the extent of b" } else { "the last but one of b" };
            return refused(&format!("the last extent of a and {of_b} have to be equal"));
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
        let (rank_a, rank_b, rank_c) = (a.shape.len(), b.shape.len(), c.shape.len());
        // A vector a is a matrix of one row, a vector b one of one column.
        let (a_is_vector, b_is_vector) = (rank_a == 1, rank_b == 1);
        let batch = rank_c - usize::from(!a_is_vector) - usize::from(!b_is_vector);
        // Those of a tensor without elements mean nothing, and may be too large to go along.
        let stride = |view: &View, place: usize| if view.is_empty() { 0 } else { view.strides[place] };
        let mut rows = Axis { extent: 1, strides: [0; 3] };
        let mut cols = rows;
        if !a_is_vector {
            rows = Axis { extent: a.shape[rank_a - 2], strides: [stride(a, rank_a - 2), 0, c.strides[batch]] };
        }
        if !b_is_vector {
            cols = Axis { extent: b.shape[rank_b - 1], strides: [0, stride(b, rank_b - 1), c.strides[rank_c - 1]] };
        }
        let (k, a_terms) = (a.shape[rank_a - 1], stride(a, rank_a - 1));
        let b_terms = stride(b, rank_b.saturating_sub(2));

        let batch_stride = |view: &View, place: usize| {
            let place = (place + view.shape.len().saturating_sub(2)).checked_sub(batch);
            place.filter(|&place| view.shape[place] > 1).map_or(0, |place| stride(view, place))
        };
        let all = (0..batch).map(|place| Axis {
            extent: c.shape[place],
            strides: [batch_stride(a, place), batch_stride(b, place), c.strides[place]],
        });
        let mut axes: Vec<Axis> = all.filter(|axis| axis.extent != 1).collect();
        // The innermost is the last one.
        axes.sort_by_key(|axis| Reverse(axis.strides[2]));
        let is_whole = part == Triangle::All;
        simplify(&mut axes, &mut rows, &mut cols, [is_whole, is_whole && !invariant]);

        let batch = take_batch(&mut axes, rows, cols);
        let [of_a, of_b, of_c] = batch.strides;
        Self {
            m: rows.extent,
            n: cols.extent,
            k,
            count: batch.extent,
            a: Strides { rows: rows.strides[0], cols: a_terms, batch: of_a },
            b: Strides { rows: b_terms, cols: cols.strides[1], batch: of_b },
            c: Strides { rows: rows.strides[2], cols: cols.strides[2], batch: of_c },
            part,
            repeats: axes,
        }
    }

    /// Where a, b and c begin each time that the batch is computed, in elements.
    pub(crate) fn offsets(&self) -> impl Iterator<Item = [usize; 3]> + '_ {
        offsets(&self.repeats)
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
mod tests {
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
}
