//! Constants of a GPU that there is not are found from times that a model of it makes.

use std::collections::BTreeMap;
use std::sync::Arc;

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use super::contest::{contest, shapes};
use super::design::{Trial, kernels_in_order, trials};
use crate::bench::atlas::{CLASSES, Shape};
use tilewright::Precision;
use tilewright::kernels::KernelInfo;
use tilewright::plan::fit::{Fit, FitErrors, Observation, fit};
use tilewright::plan::{
    self, Constants, ConstantsChoice, Description, DeviceFacts, Features, GemmPlan, KernelConstants, MeasuredConstants,
    MeasuredOn, Options,
};

/// A GPU that there is not, like an RTX 3080.
fn pretended() -> Pretended {
    Pretended { compute_capability: (8, 6), multiprocessors: 68, bandwidth: 0.45e12, fp32: 1.1, tensor: 1.9 }
}

/// Another one, like an H20.
fn of_hopper() -> Pretended {
    Pretended { compute_capability: (9, 0), multiprocessors: 78, bandwidth: 3.2e12, fp32: 1.05, tensor: 0.3 }
}

/// What the GPU has, and how many times the rates that are built in.
#[derive(Clone, Copy, Debug)]
struct Pretended {
    compute_capability: (u32, u32),
    multiprocessors: u32,
    bandwidth: f64,
    fp32: f64,
    tensor: f64,
}

impl Pretended {
    fn facts(&self) -> DeviceFacts {
        DeviceFacts::of_gpu("a pretended GPU", self.compute_capability, self.multiprocessors, 40 << 30)
    }

    fn built_in(&self) -> Constants {
        Constants::built_in(Some(self.compute_capability), self.multiprocessors)
    }

    fn plan(&self, product: &Description, options: &Options) -> Result<GemmPlan, tilewright::Error> {
        plan::plan(&self.facts(), product, options)
    }

    /// What is known before products are measured: launches and the bandwidth.
    fn probed(&self, truth: &Constants) -> Constants {
        let mut probed = self.built_in();
        probed.machine.bandwidth = 0.98 * truth.machine.bandwidth;
        probed.machine.launch_seconds = 1.03 * truth.machine.launch_seconds;
        probed
    }

    fn trials(&self, kernel: &'static KernelInfo) -> Vec<Trial> {
        trials(&self.facts(), &|product, options| self.plan(product, options), kernel, 7).unwrap()
    }

    /// What the GPU is taken to be: nothing of it is as the constants that are built in have it.
    fn truth(&self, seed: u64) -> Constants {
        // By names, so that a kernel more or less changes nothing of the others.
        let of_name = |name: &str| {
            let mut generator = SmallRng::seed_from_u64(
                name.bytes().fold(seed, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(PRIME)),
            );
            move |value: f64, least: f64, most: f64| value * between(&mut generator, least, most)
        };
        let mut truth = self.built_in();
        let machine = &mut truth.machine;
        machine.bandwidth = self.bandwidth;
        machine.launch_seconds = 3.5e-6;
        machine.next_launch_seconds = 4.4e-6;
        machine.preparing_share = 0.85;
        machine.storing_share = 0.7;
        machine.stored_one_by_one = 2.5;
        machine.stored_in_lines = 1.6;
        machine.wave_seconds = 2.2e-6;
        machine.term_seconds = 110e-9;
        machine.idle_block_seconds = 1.5e-6;
        machine.fp32_rate *= self.fp32;
        machine.tf32_rate *= self.tensor;
        // Kernels that differ in layouts alone are about alike.
        let mut families: BTreeMap<String, KernelConstants> = BTreeMap::new();
        for kernel in kernels_in_order() {
            let family =
                kernel.name.replace("_nn_", "_").replace("_nt_", "_").replace("_tn_", "_").replace("_tt_", "_");
            let built_in = kernel.built_in_constants();
            let mut near = of_name(&family);
            let of_family = families.entry(family).or_insert_with(|| KernelConstants {
                share_of_peak: near(built_in.share_of_peak, 0.5, 1.4),
                block_seconds: near(built_in.block_seconds, 0.6, 3.0),
                unaligned: near(built_in.unaligned, 0.95, 1.4),
            });
            let mut near = of_name(kernel.name);
            let KernelConstants { share_of_peak, block_seconds, unaligned } = *of_family;
            truth.kernels.insert(
                kernel.name.to_owned(),
                KernelConstants {
                    share_of_peak: near(share_of_peak, 0.93, 1.07),
                    block_seconds: near(block_seconds, 0.9, 1.1),
                    unaligned,
                },
            );
        }
        truth
    }
}

/// How far times are off by chance.
const NOISE: f64 = 0.03;

/// That of the FNV-1a hash.
const PRIME: u64 = 0x0100_0000_01B3;

/// A number by chance between two, each power of two as often as any other.
fn between(generator: &mut SmallRng, least: f64, most: f64) -> f64 {
    least * (most / least).powf(generator.random())
}

/// The times of the GPU that is pretended, off by so much: by chance, or for what the model leaves out. Now and then something else comes in
/// between.
fn measured(trials: &[Trial], truth: &Constants, seed: u64, off: f64) -> Vec<Observation> {
    let mut generator = SmallRng::seed_from_u64(seed);
    let mut noise = || {
        let sum: f64 = (0..12).map(|_| generator.random::<f64>()).sum();
        let disturbed = if generator.random_range(0..25) == 0 { 1.4 } else { 1.0 };
        (off * (sum - 6.0)).exp() * disturbed
    };
    let one = |trial: &Trial| Observation { ms: trial.features.ms(truth) * noise(), features: trial.features.clone() };
    trials.iter().map(one).collect()
}

/// Options by which plans go by these constants.
fn options(gpu: Pretended, constants: &Constants) -> Options {
    let on = MeasuredOn {
        gpu: gpu.facts().name,
        compute_capability: gpu.compute_capability,
        multiprocessors: gpu.multiprocessors,
        kernels_digest: String::new(),
    };
    let measured = MeasuredConstants::new(on, String::new(), None, String::new(), constants.clone());
    Options { constants: ConstantsChoice::This(Arc::new(measured)), ..Options::from(Precision::Fp32) }
}

/// Which of some constants make the best plans, where all times are off by so much.
fn best_of(gpu: Pretended, truth: &Constants, contestants: &[&Constants], off: f64) -> usize {
    let options: Vec<Options> = contestants.iter().map(|constants| options(gpu, constants)).collect();
    let plan = |shape: &Shape, index: usize| Ok(gpu.plan(&shape.description()?, &options[index])?);
    let mut generator = SmallRng::seed_from_u64(5);
    let time = |_: &Shape, plan: &GemmPlan| Ok(Features::of(plan).ms(truth) * between(&mut generator, 1.0, 1.0 + off));
    let found = contest(&shapes(7), contestants.len(), plan, time, None).unwrap();
    assert!(found.shapes >= 60 && found.differing <= found.shapes, "{found:?}");
    println!("{found:?}");
    found.best()
}

/// The regrets of plans for shapes that nothing was fitted to, by what the GPU is taken to be, in order.
fn regrets(gpu: Pretended, truth: &Constants, constants: &Constants) -> Vec<f64> {
    let [best, chosen] = [truth, constants].map(|constants| options(gpu, constants));
    let mut regrets = Vec::new();
    for class in &CLASSES {
        for shape in class.shapes(4711, Some(24)) {
            let product = shape.description().unwrap();
            let ms = |options: &Options| Features::of(&gpu.plan(&product, options).unwrap()).ms(truth);
            regrets.push(ms(&chosen) / ms(&best));
        }
    }
    regrets.sort_by(f64::total_cmp);
    regrets
}

fn at(sorted: &[f64], share: f64) -> f64 {
    sorted[((sorted.len() - 1) as f64 * share).round() as usize]
}

/// Fits constants to times of a GPU, and tries them on products and shapes that nothing was fitted to.
fn try_on(gpu: Pretended, seed: u64, off: f64, find: impl Fn(&Constants, &[Observation]) -> Fit) {
    let truth = gpu.truth(seed);
    let trials = kernels_in_order().into_iter().flat_map(|kernel| gpu.trials(kernel));
    let (held_out, fitted): (Vec<_>, Vec<_>) = trials.partition(|trial| trial.held_out);
    let found = find(&gpu.probed(&truth), &measured(&fitted, &truth, seed, off));
    let held_out = measured(&held_out, &truth, 100 + seed, off);
    let errors = |constants: &Constants| FitErrors::of(constants, &held_out).unwrap();
    let (before, after) = (errors(&gpu.built_in()), errors(&found.constants));
    let [by_default, by_fit] = [&gpu.built_in(), &found.constants].map(|constants| regrets(gpu, &truth, constants));
    let mut told = format!(
        "{:?}, seed {seed}: fitted to {} times; of {} held out, median {:.3} -> {:.3}, 95 % {:.3} -> {:.3}; regret of {} \
         shapes: 95 % {:.3} -> {:.3}, most {:.3} -> {:.3}",
        gpu.compute_capability,
        fitted.len(),
        after.times,
        before.median,
        after.median,
        before.most,
        after.most,
        by_fit.len(),
        at(&by_default, 0.95),
        at(&by_fit, 0.95),
        at(&by_default, 1.0),
        at(&by_fit, 1.0)
    );
    for (name, value) in truth.machine.named() {
        let Some(one) = found.machine.iter().find(|one| one.name == name) else { continue };
        told += &format!("\n  {name}: {value:.2e}, found {:.2e} by {} times", one.after, one.times);
    }
    println!("{told}");
    let (built_in, probed) = (gpu.built_in(), gpu.probed(&truth));
    assert_eq!(best_of(gpu, &truth, &[&built_in, &probed, &found.constants], off), 2, "{told}");
    assert_eq!(best_of(gpu, &truth, &[&found.constants, &built_in, &found.constants], off), 0, "{told}");
    // The noise alone is two thirds of itself in the middle, and twice itself of 95 percent.
    assert!(before.median > 0.15 && after.median < 1.3 * off && after.most < 5.0 * off, "{told}");
    // A plan that noise makes look better is worse by a part of the noise.
    assert!(by_fit.len() >= 200 && at(&by_fit, 0.95) <= 1.07 + off / 2.0, "{told}");
    assert!(at(&by_default, 0.95) > 1.15, "{told}");
    // Of what enough times depend on, the whole GPU's constants are found, too.
    let sure = || found.machine.iter().filter(|one| one.times >= 10);
    assert!(sure().count() >= 4, "{told}");
    for (name, value) in truth.machine.named() {
        let Some(one) = sure().find(|one| one.name == name) else { continue };
        assert!((one.after / value).ln().abs() < 0.14 + 2.0 * off, "{name}: {told}");
    }
}

#[test]
fn constants_of_a_pretended_gpu_are_found_and_plans_by_them_are_good() {
    for seed in [1, 2, 3] {
        try_on(pretended(), seed, NOISE, fit);
    }
}

#[test]
fn constants_of_a_pretended_gpu_with_all_kernels_are_found() {
    for seed in [1, 2] {
        try_on(of_hopper(), seed, NOISE, fit);
    }
}

/// The model is not right: times differ from it by more than noise. Constants that are found are right on the whole.
#[test]
fn constants_are_found_where_the_model_is_off_by_a_tenth() {
    for (gpu, seed) in [(pretended(), 1), (pretended(), 2), (of_hopper(), 1)] {
        try_on(gpu, seed, 0.1, fit);
    }
}

/// Not fitting is noticed: the constants that are built in are no good there.
#[test]
#[should_panic(expected = "regret of")]
fn a_fit_that_finds_nothing_is_noticed() {
    try_on(pretended(), 1, NOISE, |known, _| fit(known, &[]));
}

/// A fit that takes the costs of blocks for those of steps is noticed, too.
#[test]
#[should_panic(expected = "regret of")]
fn a_fit_of_shares_alone_is_noticed() {
    try_on(pretended(), 1, NOISE, |known, observations| {
        let mut found = fit(known, observations);
        for (name, constants) in &mut found.constants.kernels {
            let kernel = tilewright::kernels::find(name).unwrap();
            constants.block_seconds = kernel.built_in_constants().block_seconds;
        }
        found
    });
}

/// Without times, everything is as it was; and of a kernel without times, what is known of the unit that it uses: here one that is three times as fast as
/// was known. The kernel itself is as it was known.
#[test]
fn kernels_without_times_gain_what_their_unit_gains() {
    let gpu = Pretended { tensor: 3.0, ..pretended() };
    for seed in 1..=4 {
        let mut truth = gpu.truth(seed);
        truth.kernels.remove("gemm_mma_nn_fp16");
        let none = fit(&gpu.probed(&truth), &[]);
        assert_eq!(none.constants, gpu.probed(&truth));
        let of = |name: &str| gpu.trials(tilewright::kernels::find(name).unwrap());
        let some = [of("gemm_mma_nn_fp32_3xtf32"), of("gemm_mma_nn_tf32"), of("gemm_mma_nn_bf16")].concat();
        let found = fit(&gpu.probed(&truth), &measured(&some, &truth, seed, NOISE));
        assert_eq!(found.kernels.len(), 3);
        let (before, after) = (gpu.built_in().machine, found.constants.machine);
        assert!(after.tf32_rate > 1.1 * before.tf32_rate && after.fp32_rate == before.fp32_rate, "{after:?}");
        let other = measured(&of("gemm_mma_nn_fp16"), &truth, 100 + seed, NOISE);
        let errors = |constants: &Constants| FitErrors::of(constants, &other).unwrap().median;
        assert!(errors(&found.constants) < errors(&gpu.built_in()), "{found:?}");
    }
}

#[test]
fn there_are_products_to_measure_for_every_kernel_that_can_run() {
    for gpu in [pretended(), of_hopper()] {
        for kernel in kernels_in_order() {
            let trials = gpu.trials(kernel);
            if trials.is_empty() {
                let facts = gpu.facts();
                let cannot = kernel.facts.arch.is_some() || facts.limits.check(&kernel.facts).is_err();
                assert!(cannot && gpu.multiprocessors == 68, "{}", kernel.name);
                continue;
            }
            let fitted = trials.iter().filter(|trial| !trial.held_out).count();
            assert!(fitted >= 5 && trials.len() - fitted >= 2, "{}: {} of {}", kernel.name, fitted, trials.len());
            assert!(trials.iter().any(|trial| trial.features.is_aligned()), "{}", kernel.name);
            assert!(trials.iter().all(|trial| trial.shape.bytes() <= 160 << 20), "{}", kernel.name);
        }
    }
}
