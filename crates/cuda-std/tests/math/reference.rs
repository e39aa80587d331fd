//! What the functions are compared with, and how far off a result is.

use std::f64::consts::PI;

/// The only NaN that there may be.
pub(crate) const NAN: u32 = 0x7FFF_FFFF;

/// How far off a result is, in units in the last place of the exact one; infinitely, if it is another kind of number.
pub(crate) fn error(found: f32, exact: f64) -> f64 {
    let rounded = exact as f32;
    if rounded.is_nan() || found.is_nan() {
        return if rounded.is_nan() && found.to_bits() == NAN { 0.0 } else { f64::INFINITY };
    }
    if found.to_bits() == rounded.to_bits() && (exact == 0.0 || !rounded.is_finite()) {
        return 0.0;
    }
    if exact == 0.0 || exact.is_infinite() {
        return f64::INFINITY;
    }
    // The largest number and infinity are one unit apart, as if the exponents went on.
    let found = if found.is_finite() { f64::from(found) } else { 2f64.powi(128).copysign(f64::from(found)) };
    (found - exact).abs() / ulp(exact)
}

/// As [`error`], if the result and the exact one are finite, not 0 and nearly the same; else it can be anything, but NaN or infinite if
/// one of the two is. Without branches, for loops over many.
pub(crate) fn error_of_ordinary(found: f32, exact: f64) -> f64 {
    let exponent = (exact.to_bits() >> 52 & 0x7FF).max(1023 - 126);
    (f64::from(found) - exact).abs() * f64::from_bits((2 * 1023 + 23 - exponent) << 52)
}

/// The distance of the `f32` about a number that is none too small for one; of those that are too large, the largest.
pub(crate) fn ulp(x: f64) -> f64 {
    let exponent = (x.abs().to_bits() >> 52) as i32 - 1023;
    f64::from_bits(((exponent.clamp(-126, 127) - 23 + 1023) as u64) << 52)
}

/// sin πx, by a reduction that is exact.
pub(crate) fn sinpi(x: f64) -> f64 {
    let y = x - 2.0 * (0.5 * x).round_ties_even();
    let n = (2.0 * y).round_ties_even();
    let r = (y - 0.5 * n) * PI;
    let result = [r.sin(), r.cos(), -r.sin(), -r.cos()][(n as i64 & 3) as usize];
    // Zeros have the sign of x (IEEE 754-2019).
    if result == 0.0 { result.copysign(x) } else { result }
}

/// cos πx, by a reduction that is exact.
pub(crate) fn cospi(x: f64) -> f64 {
    let y = x - 2.0 * (0.5 * x).round_ties_even();
    let n = (2.0 * y).round_ties_even();
    let r = (y - 0.5 * n) * PI;
    let result = [r.cos(), -r.sin(), -r.cos(), r.sin()][(n as i64 & 3) as usize];
    if result == 0.0 { 0.0 } else { result }
}

/// libm's, but for numbers where it is too small for f64, and where it has a zero without sign.
pub(crate) fn tgamma(x: f64) -> f64 {
    if x > -60.0 || x == x.floor() || x.is_nan() {
        return libm::tgamma(x);
    }
    if x.floor() as i64 % 2 == 0 { 0.0 } else { -0.0 }
}

/// As many neighbours as one polynomial stands for.
pub(crate) const NEIGHBOURS: usize = 1024;
const NODES: [usize; 8] = [10, 87, 227, 411, 612, 796, 936, 1013];
const PROBES: [usize; 4] = [0, 330, 700, 1023];

/// The exact results for many numbers: of 1024 neighbours at a time, by a polynomial through 8 of them where that is good enough.
///
/// It is good enough where four others are within 2⁻⁴⁴ of it, and where the function is not near to a zero.
pub(crate) struct Neighbours {
    exact: fn(f64) -> f64,
    /// Whether a polynomial may stand for it: it is off by a part of a unit, where nothing at all is allowed.
    is_smooth: bool,
    /// What makes coefficients of values.
    inverse: [[f64; 8]; 8],
}

impl Neighbours {
    pub(crate) fn of(exact: fn(f64) -> f64, is_smooth: bool) -> Self {
        // Gauß–Jordan, on the powers of the nodes.
        let mut rows: Vec<Vec<f64>> = Vec::new();
        for (i, &node) in NODES.iter().enumerate() {
            let powers = (0..8).map(|k| place(node).powi(k));
            rows.push(powers.chain((0..8).map(|j| f64::from(u8::from(i == j)))).collect());
        }
        for column in 0..8 {
            let largest = (column..8).max_by(|&a, &b| rows[a][column].abs().total_cmp(&rows[b][column].abs()));
            rows.swap(column, largest.unwrap());
            let pivot: Vec<f64> = rows[column].iter().map(|x| x / rows[column][column]).collect();
            for (i, row) in rows.iter_mut().enumerate() {
                let factor = if i == column { 0.0 } else { row[column] };
                row.iter_mut().zip(&pivot).for_each(|(x, p)| *x -= factor * p);
            }
            rows[column] = pivot;
        }
        Self { exact, is_smooth, inverse: std::array::from_fn(|k| std::array::from_fn(|j| rows[k][8 + j])) }
    }

    /// The exact results for a number and those after it; its bits are a multiple of 1024.
    pub(crate) fn after(&self, first: u32) -> [f64; NEIGHBOURS] {
        let exact = |k: usize| (self.exact)(f64::from(f32::from_bits(first + k as u32)));
        let values = NODES.map(exact);
        let coefficients = self.inverse.map(|row| row.iter().zip(&values).map(|(a, b)| a * b).sum());
        let polynomial = |k: usize| coefficients.iter().rev().fold(0.0, |sum: f64, c: &f64| sum.mul_add(place(k), *c));
        let smallest = values.iter().fold(f64::INFINITY, |a, b| a.min(b.abs()));
        let largest = values.iter().fold(0.0, |a: f64, b| a.max(b.abs()));
        let is_one_sign = values.iter().all(|value| (*value > 0.0) == (values[0] > 0.0));
        let is_good = self.is_smooth
            && largest.is_finite()
            && smallest * 4.0 > largest
            && is_one_sign
            && PROBES.iter().all(|&k| (polynomial(k) - exact(k)).abs() <= exact(k).abs() * 2f64.powi(-44));
        let mut all = [0.0; NEIGHBOURS];
        if is_good {
            (0..NEIGHBOURS).for_each(|k| all[k] = polynomial(k));
        } else {
            (0..NEIGHBOURS).for_each(|k| all[k] = exact(k));
        }
        all
    }
}

/// From −1 to 1.
fn place(k: usize) -> f64 {
    (2.0 * k as f64 - (NEIGHBOURS - 1) as f64) / (NEIGHBOURS - 1) as f64
}
