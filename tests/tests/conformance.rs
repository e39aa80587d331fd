//! The comparison of single instructions, without a GPU: the models of `cuda_std` beside a reference, few words of each. On a GPU the
//! program `conformance` does the same with the instructions themselves.

use cuda_std::executor::{Checks, Executor};
use rand::SeedableRng;
use rand::rngs::StdRng;
use tests::conformance::fit::fit;
use tests::conformance::kernels::PTX;
use tests::conformance::machine::Machine;
use tests::conformance::number::{Format, Rounding};
use tests::conformance::numerics::{Addend, Cut, Dot, Exponent, Numerics, Terms, terms};
use tests::conformance::operands::{Kind, Operands};
use tests::conformance::outcome::Verdict;
use tests::conformance::probes::probes;
use tests::conformance::products::Element;
use tests::conformance::words::Content;
use tests::conformance::{Options, names, run};

/// Compares those instructions whose names begin like this.
fn compare(beginning: &str, elements: usize) {
    let options = Options { instructions: vec![beginning.into()], elements, seed: 7, fits: false };
    let report = run(&options, None, |_| ());
    assert!(!report.outcomes.is_empty(), "no instruction's name begins with {beginning}");
    assert!(report.agrees(), "{}", report.markdown());
    assert!(report.outcomes.iter().all(|outcome| outcome.equal > 0));
}

#[test]
fn instructions_of_threads_and_warps_do_what_they_should() {
    let of_tensor_cores_or_tiles = ["mma_", "wgmma_", "load_tiles_", "load_pixels_", "store_tile_"];
    for name in names() {
        if !of_tensor_cores_or_tiles.iter().any(|beginning| name.starts_with(beginning)) {
            compare(&name, 20_000);
        }
    }
}

/// With all checks, which look for races between the blocks, what clusters and multicast do is the same.
#[test]
fn instructions_of_clusters_are_free_of_races() {
    let checked = Machine::Executor(Executor::new(Checks::Full));
    for beginning in ["cluster_", "load_tiles_to_blocks_fp32_swizzled_128x8"] {
        let options = Options { instructions: vec![beginning.into()], elements: 5000, seed: 7, fits: false };
        let report = run(&options, Some(&checked), |_| ());
        assert!(!report.outcomes.is_empty() && report.agrees(), "{}", report.markdown());
    }
}

#[test]
fn products_of_warps_do_what_they_should() {
    compare("mma_", 3000);
}

#[test]
fn products_of_warpgroups_do_what_they_should() {
    compare("wgmma_", 1);
}

#[test]
fn tiles_are_loaded_as_they_should() {
    compare("load_tiles_", 0);
}

#[test]
fn pixels_are_loaded_as_they_should() {
    compare("load_pixels_", 0);
}

#[test]
fn tiles_are_stored_as_they_should() {
    compare("store_tile_", 0);
}

/// Values do not tell which hint an instruction has; its name does.
#[test]
fn hints_for_the_caches_become_instructions_of_these_names() {
    let archs = PTX.expect("the test programs have PTX");
    for (kernel, load, store) in [
        ("cache_l2_only", ".cg", ".cg"),
        ("cache_streaming", ".cs", ".cs"),
        ("cache_last_use", ".lu", ".wt"),
        ("cache_uncached", ".cv", ".wt"),
        ("cache_read_only", ".nc", ".wt"),
        ("cache_read_only_once", ".nc.L1::no_allocate", ".cs"),
        ("cache_no_allocate", ".L1::no_allocate", ".L1::no_allocate"),
        ("cache_evict_first", ".L1::evict_first", ".L1::evict_first"),
        ("cache_evict_last", ".L1::evict_last", ".L1::evict_last"),
    ] {
        for (arch, kernels) in archs {
            let (_, ptx) = kernels.iter().find(|(name, _)| *name == kernel).unwrap();
            for (operation, hint) in [("ld", load), ("st", store)] {
                let all =
                    ptx.lines().filter(|line| line.trim_start().starts_with(&format!("{operation}.global"))).count();
                let sizes = ["b8", "b16", "b32", "b64", "v2.b32", "v4.b32", "v2.b64"];
                let counts = sizes.map(|size| ptx.matches(&format!("{operation}.global{hint}.{size} ")).count());
                assert_eq!((counts, all), ([2, 1, 1, 1, 2, 1, 1], 9), "{operation} of {kernel} for {arch}");
            }
            assert_eq!(ptx.matches("prefetch.global.L2 ").count(), 2, "{kernel}");
        }
    }
}

/// Values of one thread do not tell which fence stands between; the instruction does.
#[test]
fn fences_have_the_order_and_the_scope_that_they_are_asked_for() {
    let archs = PTX.expect("the test programs have PTX").iter();
    // Before compute capability 9.0 there are no clusters.
    let found = archs.filter_map(|(arch, kernels)| Some((arch, kernels.iter().find(|(name, _)| *name == "fences")?.1)));
    let found: Vec<_> = found.collect();
    assert_eq!(found.len(), 1);
    for (arch, ptx) in found {
        for scope in ["cta", "cluster", "gpu", "sys"] {
            let counts = ["acq_rel", "sc"].map(|order| ptx.matches(&format!("fence.{order}.{scope};")).count());
            assert_eq!(counts, [2, 2], "{scope} for {arch}");
        }
    }
}

/// Chunks that begin at multiples of their size are one access.
#[test]
fn chunks_of_a_thread_are_vectors() {
    for (arch, kernels) in PTX.expect("the test programs have PTX") {
        let ptx = |kernel: &str| kernels.iter().find(|(name, _)| *name == kernel).unwrap().1;
        let chunks = ptx("partition_chunks");
        assert!(chunks.contains("st.global.v4.b32") && chunks.contains("ld.global.v4.b32"), "{arch}: {chunks}");
        let pairs = ptx("partition_rows_of_warps");
        assert!(pairs.contains("st.global.v2.b32"), "{arch}: {pairs}");
    }
}

/// Sums that were computed by the real thing: each kind of operands, and probes.
#[test]
fn the_reference_adds_up_as_an_h200_does() {
    let text = include_str!("../fixtures/sums-h200.txt");
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let words = |column: &str| -> Vec<u32> {
            column.split(' ').map(|word| u32::from_str_radix(word, 16).expect("a word")).collect()
        };
        let [instruction, _kind, a, b, c, result] = line.split(" | ").collect::<Vec<_>>().try_into().expect("a line");
        let formats = [Format::Tf32, Format::Bf16, Format::Fp16];
        let format = formats.into_iter().find(|format| instruction.contains(&format.to_string())).expect("a format");
        let [a, b] = [a, b].map(|row| words(row).try_into().expect("a row"));
        let found = Numerics::of_hopper(format).sum(&Terms::new(format, &Dot { a, b, c: words(c)[0] }));
        assert_eq!(found, words(result)[0], "{line}");
    }
}

/// What the search finds is what results were made with: for parameters that are not those of the executor.
#[test]
fn the_search_finds_the_parameters() {
    let plain = Numerics {
        fraction_bits: 24,
        terms: 4,
        interleaved: false,
        exponent: Exponent::OfFields,
        least_exponent: None,
        cut: Cut::TowardZero,
        rounding: Rounding::TowardZero,
        addend: Addend::WithProducts,
    };
    let (terms, exponent, interleaved) = (terms(Format::Bf16), Exponent::OfOperands, true);
    let (cut, rounding, addend) = (Cut::Down, Rounding::TiesToEven, Addend::AfterProducts);
    for (format, numerics) in [
        (Format::Tf32, plain),
        (Format::Bf16, Numerics { terms, exponent, least_exponent: Some(-133), ..plain }),
        (Format::Fp16, Numerics { interleaved, cut, rounding, addend, ..plain }),
    ] {
        let mut rng = StdRng::seed_from_u64(5);
        let element = |kind, dot| {
            let other = numerics.sum(&Terms::new(format, &dot));
            Element { kind, dot, executor: 0, other }
        };
        let asked: Vec<_> = probes(format).into_iter().map(|probe| element(Kind::Special, probe.dot)).collect();
        let mut others = Vec::new();
        for kind in Kind::ALL {
            let operands = Operands::random(&mut rng, format, kind, 16, 8);
            for (row, column) in (0..16).flat_map(|row| (0..8).map(move |column| (row, column))) {
                others.push(element(kind, operands.dot(row, column)));
            }
        }
        let found = fit(format, &asked, &others);
        let best = &found.finalists[0];
        assert_eq!((best.numerics, best.matches), (numerics, found.elements), "{:?}", found.finalists);
        if numerics.least_exponent.is_some() {
            let found = (found.least_exponents, found.least_exponent_matches, found.elements);
            assert_eq!((found.0, found.1), (vec![numerics.least_exponent], found.2));
        }
    }
}

#[test]
fn nans_are_told_apart_from_differences() {
    let (one, quiet, other) = (0x3F80_0000, 0x7FC0_0000, 0xFFFF_FFFF);
    assert_eq!(Content::Numbers.compare(quiet, other), Verdict::NanPayload);
    assert_eq!(Content::Bits.compare(quiet, other), Verdict::Different);
    assert_eq!(Content::Numbers.compare(one, quiet), Verdict::Different);
    assert_eq!(Content::Numbers.compare(0, 0x8000_0000), Verdict::Different);
    let pairs = Content::Pairs(Format::Fp16);
    assert_eq!(pairs.compare(0x7E00_3C00, 0x7FFF_3C00), Verdict::NanPayload);
    assert_eq!(pairs.compare(0x7E00_3C00, 0x7FFF_3C01), Verdict::Different);
}
