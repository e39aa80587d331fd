//! What the functions cost: each thread adds up 256 values of one of them, and waits for nothing but arithmetic.
//!
//! ```text
//!  thread i:  sum over round 0 … 255 of f(from + step·(round + i mod 32 / 32))
//! ```
//!
//! Neighbours are near one another, so a warp takes one way through a function; the domain, from where to where, says which.

use cuda_std::prelude::*;

#[cfg(not(target_arch = "nvptx64"))]
use crate::blocks;

/// The values that each thread adds up.
const ROUNDS: u32 = 256;

/// How many rounds the compiler is to make of one, as nvcc does without being told.
const UNROLLED: u32 = 4;

/// What thread `i` begins with, in units of the step.
#[inline(always)]
fn begin(i: usize) -> f32 {
    (i % 32) as f32 * 0.03125
}

/// A kernel for each function, and what is told about it on the CPU.
macro_rules! in_loops {
    ($($(#[$doc:meta])* $kernel:ident: |$x:ident| $value:expr, $reference:expr, [$($domain:expr),*];)*) => {
        $(
            $(#[$doc])*
            #[kernel(block = 256, grid = blocks(sums.len()))]
            pub fn $kernel(from: f32, step: f32, sums: GlobalSliceMut<'_, f32>) {
                let i = thread::index_1d();
                if i < sums.len() {
                    let (mut at, mut sum) = (begin(i), 0.0);
                    for _ in 0..ROUNDS / UNROLLED {
                        for _ in 0..UNROLLED {
                            let $x = math::fma(step, at, from);
                            sum += $value;
                            at += 1.0;
                        }
                    }
                    // SAFETY: i < sums.len(); no other thread has this i.
                    unsafe { sums.set_unchecked(i, sum) };
                }
            }
        )*

        /// An operation for each function.
        #[cfg(not(target_arch = "nvptx64"))]
        pub static IN_LOOPS: &[operation::InLoop] = &[$(operation::InLoop {
            name: stringify!($kernel),
            facts: $kernel::FACTS,
            launch: |device, from, step, sums| Ok(device.launch($kernel { from, step, sums })?),
            reference: $reference,
            domains: &[$($domain),*],
        }),*];
    };
}

in_loops! {
    /// eˣ.
    loop_exp: |x| math::exp(x), f64::exp, [(0.25, 0.75), (-40.0, 40.0)];
    /// 2ˣ.
    loop_exp2: |x| math::exp2(x), f64::exp2, [(0.25, 0.75)];
    /// 10ˣ.
    loop_exp10: |x| math::exp10(x), |x| 10f64.powf(x), [(0.25, 0.75)];
    /// eˣ − 1.
    loop_expm1: |x| math::expm1(x), f64::exp_m1, [(0.25, 0.75)];
    /// ln x.
    loop_log: |x| math::log(x), f64::ln, [(0.25, 0.75), (1.0, 1000.0)];
    /// The logarithm of base 2.
    loop_log2: |x| math::log2(x), f64::log2, [(0.25, 0.75)];
    /// The logarithm of base 10.
    loop_log10: |x| math::log10(x), f64::log10, [(0.25, 0.75)];
    /// ln (1 + x).
    loop_log1p: |x| math::log1p(x), f64::ln_1p, [(0.25, 0.75)];
    /// √x.
    loop_sqrt: |x| math::sqrt(x), f64::sqrt, [(0.25, 0.75)];
    /// 1/√x.
    loop_rsqrt: |x| math::rsqrt(x), |x| 1.0 / x.sqrt(), [(0.25, 0.75)];
    /// ∛x.
    loop_cbrt: |x| math::cbrt(x), f64::cbrt, [(0.25, 0.75)];
    /// 1/∛x.
    loop_rcbrt: |x| math::rcbrt(x), |x| 1.0 / x.cbrt(), [(0.25, 0.75)];
    /// 1/x.
    loop_div: |x| 1.0 / x, |x| 1.0 / x, [(0.25, 0.75)];
    /// sin x.
    loop_sin: |x| math::sin(x), f64::sin, [(0.25, 0.75), (-50.0, 50.0), (1000000.0, 2000000.0)];
    /// cos x.
    loop_cos: |x| math::cos(x), f64::cos, [(0.25, 0.75), (-50.0, 50.0)];
    /// tan x.
    loop_tan: |x| math::tan(x), f64::tan, [(0.25, 0.75)];
    /// sin x · cos x, both of one call.
    loop_sincos: |x| { let (sin, cos) = math::sincos(x); sin * cos }, |x| x.sin() * x.cos(), [(0.25, 0.75), (-50.0, 50.0)];
    /// sin πx.
    loop_sinpi: |x| math::sinpi(x), |x| (std::f64::consts::PI * x).sin(), [(0.25, 0.75)];
    /// cos πx.
    loop_cospi: |x| math::cospi(x), |x| (std::f64::consts::PI * x).cos(), [(0.25, 0.75)];
    /// arcsin x.
    loop_asin: |x| math::asin(x), f64::asin, [(0.25, 0.75)];
    /// arccos x.
    loop_acos: |x| math::acos(x), f64::acos, [(0.25, 0.75)];
    /// arctan x.
    loop_atan: |x| math::atan(x), f64::atan, [(0.25, 0.75), (-50.0, 50.0)];
    /// The angle of (x, 0.6).
    loop_atan2: |x| math::atan2(x, 0.6), |x| x.atan2(f64::from(0.6f32)), [(0.25, 0.75)];
    /// sinh x.
    loop_sinh: |x| math::sinh(x), f64::sinh, [(0.25, 0.75)];
    /// cosh x.
    loop_cosh: |x| math::cosh(x), f64::cosh, [(0.25, 0.75)];
    /// tanh x.
    loop_tanh: |x| math::tanh(x), f64::tanh, [(0.25, 0.75), (-5.0, 5.0)];
    /// arsinh x.
    loop_asinh: |x| math::asinh(x), f64::asinh, [(0.25, 0.75)];
    /// arcosh x.
    loop_acosh: |x| math::acosh(x), f64::acosh, [(1.25, 1.75)];
    /// artanh x.
    loop_atanh: |x| math::atanh(x), f64::atanh, [(0.25, 0.75)];
    /// The error function.
    loop_erf: |x| math::erf(x), libm::erf, [(0.25, 0.75), (-3.0, 3.0)];
    /// 1 less the error function.
    loop_erfc: |x| math::erfc(x), libm::erfc, [(0.25, 0.75), (-3.0, 3.0)];
    /// Γ(x).
    loop_tgamma: |x| math::tgamma(x), libm::tgamma, [(0.25, 0.75), (2.0, 10.0)];
    /// ln |Γ(x)|.
    loop_lgamma: |x| math::lgamma(x), libm::lgamma, [(0.25, 0.75), (2.0, 10.0)];
    /// x to the power of 1.7.
    loop_pow: |x| math::pow(x, 1.7), |x| x.powf(f64::from(1.7f32)), [(0.25, 0.75)];
    /// √(x² + 0.36).
    loop_hypot: |x| math::hypot(x, 0.6), |x| x.hypot(f64::from(0.6f32)), [(0.25, 0.75)];
    /// The rest of x by 0.3.
    loop_fmod: |x| math::fmod(x, 0.3), |x| x % f64::from(0.3f32), [(0.25, 0.75), (1.0, 1000.0)];
}

/// The test cases of the kernels, the sums computed in f64, and their error bounds. It is compiled for the host only.
#[cfg(not(target_arch = "nvptx64"))]
mod operation {
    use cuda_std::KernelFacts;
    use testkit::{Argument, Bits, Description, Device, Error, Expected, Operation, Sizes, Values, Views};

    use super::{GlobalSliceMut, ROUNDS, begin};

    /// The values of one function, added up.
    pub struct InLoop {
        pub(super) name: &'static str,
        pub(super) facts: KernelFacts,
        pub(super) launch: fn(&Device, f32, f32, GlobalSliceMut<'_, f32>) -> Result<(), Error>,
        pub(super) reference: fn(f64) -> f64,
        /// From where to where.
        pub(super) domains: &'static [(f32, f32)],
    }

    impl InLoop {
        /// The threads, where they begin, and the step.
        fn of(&self, sizes: &Sizes) -> Result<(usize, f32, f32), Error> {
            let [n, domain] = sizes.get(["n", "domain"])?;
            let range = self.domains.get(domain);
            let (from, to) = range.ok_or_else(|| Error::operation(NoDomain { domain, count: self.domains.len() }))?;
            Ok((n, *from, (to - from) / ROUNDS as f32))
        }
    }

    /// A number of no domain.
    #[derive(Debug)]
    struct NoDomain {
        domain: usize,
        count: usize,
    }

    impl std::fmt::Display for NoDomain {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            write!(f, "there is no domain {}: their numbers are less than {}", self.domain, self.count)
        }
    }

    impl std::error::Error for NoDomain {}

    impl Operation for InLoop {
        fn describe(&self) -> Description {
            let cases = |n: usize| (0..self.domains.len()).map(|domain| vec![n, domain]).collect();
            Description {
                name: self.name,
                idea: "each thread adds up 256 values of a function, near one another",
                sizes: &["n", "domain"],
                kernels: vec![self.facts],
                small: cases(40),
                large: cases(1 << 20),
                bits: Bits::Same,
            }
        }

        fn arguments(&self, sizes: &Sizes) -> Result<Vec<Argument>, Error> {
            Ok(vec![Argument::output("sums", &[self.of(sizes)?.0])])
        }

        fn launch(&self, device: &Device, sizes: &Sizes, views: &Views<'_>) -> Result<(), Error> {
            let (_, from, step) = self.of(sizes)?;
            (self.launch)(device, from, step, views.write("sums")?)
        }

        fn expected(&self, sizes: &Sizes, _: &Values<'_>) -> Result<Vec<Vec<Expected>>, Error> {
            let (n, from, step) = self.of(sizes)?;
            let sum = |lane: usize| {
                let at = |round: u32| begin(lane) + round as f32;
                let value = |round| (self.reference)(f64::from(cuda_std::math::fma(step, at(round), from)));
                let values: Vec<f64> = (0..ROUNDS).map(value).collect();
                // Each sum is rounded, and each value by at most four units in its last place.
                Expected::rounded(
                    values.iter().sum(),
                    ROUNDS as usize + 8,
                    values.iter().map(|value| value.abs()).sum(),
                )
            };
            let of_lanes: Vec<_> = (0..32).map(sum).collect();
            Ok(vec![(0..n).map(|i| of_lanes[i % 32]).collect()])
        }

        fn operations(&self, sizes: &Sizes) -> f64 {
            self.of(sizes).map_or(0.0, |(n, ..)| n as f64 * f64::from(ROUNDS))
        }
    }
}
