//! What is measured: products by name, each with the times to reach.

use crate::Error;
use crate::baseline::Math;
use tilewright::{Orders, Precision, Sizes};

/// A product to measure, by us and by cuBLAS.
#[derive(Clone, Debug, PartialEq)]
pub struct Case {
    /// The product's name.
    pub problem: String,
    /// The extents.
    pub sizes: Sizes,
    /// The orders of A and B.
    pub orders: Orders,
    /// How precise ours has to be.
    pub precision: Precision,
    /// The kernel that is asked for; otherwise the plan chooses.
    pub kernel: Option<String>,
    /// Whether ours has to be PTX for sm_80, whatever the GPU.
    pub portable: bool,
    /// What is to be reached, if something is.
    pub target: Option<Target>,
}

/// What the baseline may do where ours has this precision: TF32 if ours may, otherwise fp32.
pub(super) fn math_for(precision: Precision) -> Math {
    match precision {
        Precision::Tf32 | Precision::Bf16 | Precision::Fp16 => Math::Tf32,
        Precision::Fp32Rounded
        | Precision::Fp32Ozaki
        | Precision::Fp32Strict
        | Precision::Fp32
        | Precision::Fp32Normwise => Math::Fp32,
    }
}

/// What a case has to reach, as the time of the fastest baseline divided by ours.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Target {
    /// The least that will do.
    pub floor: f64,
    /// What is wanted; none where the group's mean counts.
    pub goal: Option<f64>,
    /// The least share of the measured roofline.
    pub share: Option<f64>,
    /// The group whose geometric mean counts, and the mean that is wanted.
    pub group: Option<(&'static str, f64)>,
}

impl Case {
    /// The additions and multiplications.
    pub fn operations(&self) -> f64 {
        let Sizes { m, n, k } = self.sizes;
        2.0 * m as f64 * n as f64 * k as f64
    }

    /// What the baseline may do: TF32 if ours may, otherwise fp32.
    pub fn math(&self) -> Math {
        math_for(self.precision)
    }

    /// What tells this case from all others of a report.
    pub fn id(&self) -> String {
        let Sizes { m, n, k } = self.sizes;
        let orders = self.orders;
        let kernel = self.kernel.as_ref().map(|kernel| format!(" by {kernel}")).unwrap_or_default();
        let portable = if self.portable { " on sm_80" } else { "" };
        format!("{} {orders} m={m} n={n} k={k} {}{kernel}{portable}", self.problem, self.precision)
    }

    /// The largest errors that [`Precision::Fp32`] may have where cuBLAS has smaller ones: relative in the Frobenius norm,
    /// and element by element against Σ|a||b|.
    pub fn error_bounds(&self) -> Option<(f64, f64)> {
        /// The terms from which on a sum is long.
        const LONG: usize = 2048;
        let frobenius = if self.sizes.k < LONG { 3e-7 } else { 7e-7 };
        (self.precision == Precision::Fp32).then_some((frobenius, 1e-6))
    }
}

/// The name of the [atlas](super::atlas), a suite with a report of its own.
pub const ATLAS: &str = "atlas";

/// The name of the suite that measures epilogues, which has a report of its own, too.
pub const EPILOGUE: &str = "epilogue";

/// The names of the other suites, with what each is.
pub const SUITES: [(&str, &str); 3] = [
    ("targets", "everything that has a time to reach"),
    ("problems", "the named problems, in the default precision"),
    ("shapes", "squares from 512 to 8192, and products of short sums"),
];

/// The sizes of `at-b` and `a-bt`.
const LARGE: Sizes = Sizes { m: 2048, n: 4096, k: 8192 };

/// The cases of a suite.
///
/// # Errors
/// [`UnknownName`](tilewright::Error::UnknownName).
pub fn suite(name: &str) -> Result<Vec<Case>, Error> {
    match name {
        "targets" => Ok(targets()),
        "problems" => {
            let default = |case: &Case| case.precision == Precision::Fp32 && case.kernel.is_none() && !case.portable;
            let named = ["matvec", "large-k", "at-b", "a-bt"];
            Ok(targets().into_iter().filter(|case| default(case) && named.contains(&case.problem.as_str())).collect())
        }
        "shapes" => Ok(shapes().collect()),
        _ => {
            let known = SUITES.iter().map(|(name, _)| *name).chain([ATLAS, EPILOGUE]);
            Err(Error::unknown_name("suite", name, known.collect()))
        }
    }
}

/// A case of the default precision, chosen by the plan.
fn case(problem: &str, orders: Orders, sizes: Sizes, floor: f64, goal: f64) -> Case {
    Case {
        problem: problem.to_owned(),
        sizes,
        orders,
        precision: Precision::Fp32,
        kernel: None,
        portable: false,
        target: Some(Target { floor, goal: Some(goal), share: None, group: None }),
    }
}

/// Everything that has a time to reach.
fn targets() -> Vec<Case> {
    let precisely = |precision: Precision, case: Case| Case { precision, ..case };
    let by = |kernel: &str, case: Case| Case { kernel: Some(kernel.to_owned()), ..case };
    let large = |problem: &str, orders, floor, goal| case(problem, orders, LARGE, floor, goal);
    let mut cases = vec![
        case("matvec", Orders::NN, Sizes { m: 2048, n: 1, k: 1 << 20 }, 1.15, 1.2),
        case("large-k", Orders::NN, Sizes { m: 256, n: 256, k: 1 << 19 }, 3.0, 4.0),
        large("at-b", Orders::TN, 3.2, 3.8),
        large("a-bt", Orders::NT, 3.3, 4.0),
        by("gemm_wgmma_tn_fp32_3xtf32", large("at-b", Orders::TN, 2.6, 2.8)),
        by("gemm_wgmma_nt_fp32_3xtf32", large("a-bt", Orders::NT, 2.6, 2.8)),
        precisely(Precision::Fp32Normwise, large("a-bt", Orders::NT, 3.8, 4.5)),
        precisely(Precision::Tf32, large("a-bt", Orders::NT, 1.0, 1.1)),
        precisely(Precision::Tf32, large("at-b", Orders::TN, 1.3, 1.6)),
    ];
    if let Some(Target { share, .. }) = &mut cases[0].target {
        *share = Some(0.98);
    }
    for (problem, orders) in [("a-b", Orders::NN), ("a-bt", Orders::NT), ("at-b", Orders::TN), ("at-bt", Orders::TT)] {
        cases.push(precisely(Precision::Fp32Strict, large(problem, orders, 0.92, 1.05)));
    }
    cases.push(Case { portable: true, ..large("a-bt", Orders::NT, 1.2, 1.6) });
    cases.push(case("irregular", Orders::NN, Sizes { m: 8205, n: 5921, k: 2949 }, 2.0, 3.5));
    cases.extend(shapes());
    cases
}

/// Squares, and large results of short sums: none may be slower than cuBLAS, and the mean counts.
fn shapes() -> impl Iterator<Item = Case> {
    let squares = [512, 1024, 2048, 4096, 8192].map(|size| ("square", size, size));
    let shapes = squares.into_iter().chain([("short-k", 4096, 64), ("short-k", 32_768, 32)]);
    shapes.map(|(problem, size, k)| Case {
        target: Some(Target { floor: 1.0, goal: None, share: None, group: Some(("shapes", 2.5)) }),
        ..case(problem, Orders::NN, Sizes { m: size, n: size, k }, 1.0, 1.0)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn floors(name: &str) -> Vec<(String, f64)> {
        suite(name).unwrap().iter().map(|case| (case.id(), case.target.unwrap().floor)).collect()
    }

    #[test]
    fn every_row_of_the_targets_is_there_with_its_floor() {
        let floors = floors("targets");
        let expected = [
            ("matvec NN m=2048 n=1 k=1048576 fp32", 1.15),
            ("large-k NN m=256 n=256 k=524288 fp32", 3.0),
            ("at-b TN m=2048 n=4096 k=8192 fp32", 3.2),
            ("a-bt NT m=2048 n=4096 k=8192 fp32", 3.3),
            ("at-b TN m=2048 n=4096 k=8192 fp32 by gemm_wgmma_tn_fp32_3xtf32", 2.6),
            ("a-bt NT m=2048 n=4096 k=8192 fp32 by gemm_wgmma_nt_fp32_3xtf32", 2.6),
            ("a-bt NT m=2048 n=4096 k=8192 fp32-normwise", 3.8),
            ("a-bt NT m=2048 n=4096 k=8192 tf32", 1.0),
            ("at-b TN m=2048 n=4096 k=8192 tf32", 1.3),
            ("a-b NN m=2048 n=4096 k=8192 fp32-strict", 0.92),
            ("a-bt NT m=2048 n=4096 k=8192 fp32-strict", 0.92),
            ("at-b TN m=2048 n=4096 k=8192 fp32-strict", 0.92),
            ("at-bt TT m=2048 n=4096 k=8192 fp32-strict", 0.92),
            ("a-bt NT m=2048 n=4096 k=8192 fp32 on sm_80", 1.2),
            ("irregular NN m=8205 n=5921 k=2949 fp32", 2.0),
            ("square NN m=512 n=512 k=512 fp32", 1.0),
            ("square NN m=1024 n=1024 k=1024 fp32", 1.0),
            ("square NN m=2048 n=2048 k=2048 fp32", 1.0),
            ("square NN m=4096 n=4096 k=4096 fp32", 1.0),
            ("square NN m=8192 n=8192 k=8192 fp32", 1.0),
            ("short-k NN m=4096 n=4096 k=64 fp32", 1.0),
            ("short-k NN m=32768 n=32768 k=32 fp32", 1.0),
        ];
        assert_eq!(floors, expected.map(|(id, floor)| (id.to_owned(), floor)));
        assert_eq!(suite("targets").unwrap()[0].target.unwrap().share, Some(0.98));
    }

    #[test]
    fn cases_are_told_apart_by_their_names() {
        for (name, _) in SUITES {
            let mut ids: Vec<String> = suite(name).unwrap().iter().map(Case::id).collect();
            let all = ids.len();
            ids.sort();
            ids.dedup();
            assert!(all > 0 && ids.len() == all, "{name}");
        }
        assert!(suite("target").unwrap_err().to_string().contains("did you mean `targets`?"));
        assert_eq!(suite("problems").unwrap().len(), 4);
    }

    #[test]
    fn the_baseline_may_do_what_ours_may() {
        for case in suite("targets").unwrap() {
            assert_eq!(case.math() == Math::Tf32, case.precision == Precision::Tf32, "{}", case.id());
        }
    }

    #[test]
    fn only_fp32_promises_a_bound_and_short_sums_a_tighter_one() {
        let bounds = |size: usize, precision| {
            let sizes = Sizes { m: size, n: size, k: size };
            Case { precision, ..case("square", Orders::NN, sizes, 1.0, 1.0) }.error_bounds()
        };
        assert_eq!(bounds(2047, Precision::Fp32), Some((3e-7, 1e-6)));
        assert_eq!(bounds(2048, Precision::Fp32), Some((7e-7, 1e-6)));
        assert_eq!(bounds(2048, Precision::Tf32), None);
    }
}
