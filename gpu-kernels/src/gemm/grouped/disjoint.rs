//! Whether matrices of a group share elements: a result may have none in common with another result, nor with an operand.
//!
//! ```text
//!  memory   ├── A of 0 ──┤   ├── C of 0 ──┤  ├─ C of 1 ──┤        by first address: each is compared with those before it that
//!                 ├─ B of 0 ─┤           ├───── C of 2 ─────┤     have not ended where it begins
//! ```

use alloc::vec::Vec;

/// The elements of a matrix in memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Extent {
    /// The address of the first element, in elements.
    pub(super) first: u64,
    pub(super) extents: [u32; 2],
    pub(super) strides: [u64; 2],
    /// Whether it is written.
    pub(super) is_result: bool,
    /// Which product of the group.
    pub(super) product: usize,
    /// `A`, `B` or `C`.
    pub(super) name: &'static str,
}

impl Extent {
    /// The place behind its last element.
    fn end(&self) -> u64 {
        let last = |extent: u32, stride: u64| u64::from(extent - 1) * stride;
        self.first + last(self.extents[0], self.strides[0]) + last(self.extents[1], self.strides[1]) + 1
    }

    /// The length of its lines, their number, and how far they are from each other; if neighbours in a line are neighbours in memory.
    fn lines(&self) -> Option<(i128, i128, i128)> {
        let [rows, cols] = self.extents.map(i128::from);
        match self.strides {
            [pitch, 1] => Some((cols, rows, pitch.into())),
            [1, pitch] => Some((rows, cols, pitch.into())),
            _ => None,
        }
    }

    /// Whether it shares an element with another one, or may: where their lines are as far apart, that is exact; otherwise two that lie
    /// between each other's lines count as sharing one.
    fn shares_with(&self, other: &Self) -> bool {
        if self.end() <= other.first || other.end() <= self.first {
            return false;
        }
        let (Some((length, lines, pitch)), Some((other_length, other_lines, other_pitch))) =
            (self.lines(), other.lines())
        else {
            return true;
        };
        if lines == 1 || other_lines == 1 || pitch != other_pitch || pitch == 0 {
            return !self.is_between_lines_of(other) && !other.is_between_lines_of(self);
        }
        // Line i of this one begins at i·pitch, line j of the other one at distance + j·pitch. They meet if
        // −other_length < distance + (j − i)·pitch < length for some j − i.
        let distance = i128::from(other.first) - i128::from(self.first);
        let least = (1 - other_length - distance).div_euclid(pitch)
            + i128::from((1 - other_length - distance).rem_euclid(pitch) > 0);
        let most = (length - 1 - distance).div_euclid(pitch);
        least.max(1 - lines) <= most.min(other_lines - 1)
    }

    /// Whether it is one line, and has room between two lines of another one.
    fn is_between_lines_of(&self, other: &Self) -> bool {
        let (Some((length, 1, _)), Some((other_length, other_lines, pitch))) = (self.lines(), other.lines()) else {
            return false;
        };
        let distance = i128::from(self.first) - i128::from(other.first);
        let (line, within) =
            if pitch == 0 { (0, distance) } else { (distance.div_euclid(pitch), distance.rem_euclid(pitch)) };
        (0..other_lines).contains(&line)
            && within >= other_length
            && (within + length <= pitch || line == other_lines - 1)
    }
}

/// The first two that share an element, one of which is a result. There is none without elements.
pub(super) fn sharing(mut matrices: Vec<Extent>) -> Option<[Extent; 2]> {
    matrices.sort_by_key(|matrix| (matrix.first, matrix.product, matrix.name));
    // Those that have not ended yet. Operands may share what they like, and often are the same: one of each kind is enough.
    let (mut results, mut operands): (Vec<Extent>, Vec<Extent>) = (Vec::new(), Vec::new());
    for matrix in matrices {
        results.retain(|other| other.end() > matrix.first);
        let with_result = results.iter().find(|other| other.shares_with(&matrix));
        let other = if matrix.is_result {
            operands.retain(|other| other.end() > matrix.first);
            with_result.or_else(|| operands.iter().find(|other| other.shares_with(&matrix)))
        } else {
            with_result
        };
        if let Some(&other) = other {
            return Some([other, matrix]);
        }
        let is_same = |other: &Extent| {
            (other.first, other.extents, other.strides) == (matrix.first, matrix.extents, matrix.strides)
        };
        if matrix.is_result {
            results.push(matrix);
        } else if !operands.last().is_some_and(is_same) {
            operands.push(matrix);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::*;

    fn matrix(first: u64, extents: [u32; 2], strides: [u64; 2]) -> Extent {
        Extent { first, extents, strides, is_result: true, product: 0, name: "C" }
    }

    /// The answer by looking at every element.
    fn share(one: &Extent, other: &Extent) -> bool {
        let places = |it: &Extent| -> Vec<u64> {
            let [rows, cols] = it.extents.map(u64::from);
            let (first, strides) = (it.first, it.strides);
            (0..rows * cols).map(|i| first + i / cols * strides[0] + i % cols * strides[1]).collect()
        };
        let others = places(other);
        places(one).iter().any(|place| others.contains(place))
    }

    #[test]
    fn two_matrices_share_an_element_or_do_not() {
        let mut state = 1u64;
        let mut random = |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % below
        };
        let mut found = [0; 2];
        for _ in 0..50_000 {
            let pitch = 6 + random(6);
            let mut one = || {
                let (rows, cols) = (1 + random(5) as u32, 1 + random(6) as u32);
                let other_pitch = if random(4) == 0 { pitch + 1 } else { pitch };
                let by_columns = random(2) == 0;
                let (extents, strides) =
                    if by_columns { ([cols, rows], [1, other_pitch]) } else { ([rows, cols], [other_pitch, 1]) };
                matrix(100 + random(60), extents, strides)
            };
            let (first, second) = (one(), one());
            let (is, expected) = (first.shares_with(&second), share(&first, &second));
            assert_eq!(is, second.shares_with(&first), "{first:?} {second:?}");
            // Only where lines are as far apart is the answer exact; otherwise it may be yes without need.
            let is_exact = first.strides.iter().max() == second.strides.iter().max();
            assert!(is == expected || (is && !is_exact), "{first:?} {second:?}: {is}");
            found[usize::from(expected)] += 1;
        }
        assert!(found.iter().all(|&count| count > 5000), "{found:?}");
    }

    #[test]
    fn columns_of_one_tensor_are_apart_and_an_operand_that_is_a_result_is_found() {
        let heads = |head: u64| Extent { product: head as usize, ..matrix(64 * head, [100, 64], [64 * 12, 1]) };
        let mut all: Vec<Extent> = (0..12).map(heads).collect();
        assert!(sharing(all.clone()).is_none());
        let operand = Extent { is_result: false, product: 3, name: "A", ..matrix(80_000, [2, 2], [2, 1]) };
        all.extend([operand, operand]);
        assert!(sharing(all.clone()).is_none());
        all.push(Extent { is_result: false, product: 5, name: "B", ..matrix(64 * 12 + 63, [1, 2], [2, 1]) });
        let [one, other] = sharing(all).unwrap();
        assert_eq!((one.product, one.name, other.product, other.name), (0, "C", 5, "B"));
        let same = sharing(vec![heads(1), heads(1)]).unwrap();
        assert_eq!(same.map(|it| it.product), [1, 1]);
    }
}
