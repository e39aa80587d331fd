//! The page of the committed files, of none, and of hostile ones.

use std::path::Path;

use super::names::scheme;
use super::*;
use crate::draw::tests::elements;
use crate::page::Part;
use crate::results::tests::committed;

/// What is in the repository beside this page.
pub(crate) fn committed_results() -> Results {
    let files = committed();
    let is = |name: &str, end: &str| name.ends_with(end);
    let json = files.iter().filter(|(name, _)| is(name, ".json")).map(|(name, text)| (name.as_str(), text.as_str()));
    let mut results = Results::read(json).unwrap();
    files.iter().filter(|(name, _)| is(name, ".md")).for_each(|(name, text)| results.note_words(name, text));
    results
}

fn absent(section: &Section) -> Vec<&str> {
    let command = |part: &Part| match part {
        Part::Missing { command, .. } => Some(command.clone()),
        _ => None,
    };
    assert!(section.parts.iter().filter_map(command).all(|command| !command.is_empty()));
    section
        .parts
        .iter()
        .filter_map(|part| if let Part::Missing { what, .. } = part { Some(what.as_str()) } else { None })
        .collect()
}

#[test]
fn the_committed_page_is_up_to_date() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/results/report.html");
    let page = report(&committed_results());
    if std::env::var_os("TILEWRIGHT_BLESS").is_some() {
        std::fs::write(&path, &page).unwrap();
    }
    let stored = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        stored == page,
        "docs/results/report.html is not what the files beside it give: TILEWRIGHT_BLESS=1 cargo test -p tilewright-pages, or \
         tilewright report --results docs/results --output docs/results/report.html"
    );
    assert!(page.len() < 1_000_000, "{} bytes: too many to commit", page.len());
}

#[test]
fn the_committed_pictures_are_up_to_date() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/results/pictures");
    let pictures = pictures(&committed_results());
    let mut names: Vec<String> = (std::fs::read_dir(&directory).unwrap())
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    assert!(!names.is_empty());
    for name in names {
        let (_, svg) =
            pictures.iter().find(|(known, _)| *known == name).unwrap_or_else(|| panic!("no section draws {name}"));
        let path = directory.join(&name);
        if std::env::var_os("TILEWRIGHT_BLESS").is_some() {
            std::fs::write(&path, svg).unwrap();
        }
        assert!(
            std::fs::read_to_string(&path).unwrap() == *svg,
            "docs/results/pictures/{name} is not what the files give: TILEWRIGHT_BLESS=1"
        );
    }
}

#[test]
fn committed_files_fill_the_sections_that_they_have_figures_for() {
    let results = committed_results();
    for section in all(&results) {
        let figures = section.figures().count();
        match section.id {
            "roofline" | "history" => assert_eq!(figures, 1, "{}", section.id),
            "ladder" => assert_eq!(figures, 4),
            "sweeps" | "errors" => assert_eq!(figures, 3, "{}", section.id),
            "atlas" => assert_eq!((figures, absent(&section).len()), (1, 0)),
            "operations" => assert_eq!(absent(&section).len(), 2),
            _ => assert_eq!((section.id, figures), ("files", 0)),
        }
    }
    let pictures = pictures(&results);
    assert_eq!(pictures.len(), 13);
    let mut names: Vec<_> = pictures.iter().map(|(name, _)| name).collect();
    names.dedup();
    assert_eq!(names.len(), pictures.len());
    for (name, svg) in &pictures {
        assert!(elements(svg).len() > 20 && svg.contains("prefers-color-scheme"), "{name}");
    }
}

#[test]
fn every_kernel_of_the_newest_files_is_in_the_roofline() {
    let results = committed_results();
    let page = roofline::section(&results);
    let figure = page.figures().next().unwrap();
    let crate::draw::Picture::Chart(chart) = &figure.picture else { panic!("a chart") };
    let drawn: Vec<&str> =
        chart.series.iter().flat_map(|series| &series.points).map(|point| point.key.as_str()).collect();
    let benches = results.benches();
    let measured = |bench: &'_ crate::results::Bench| -> Vec<String> {
        bench.results.iter().filter_map(|case| Some(case.measured()?.kernel.clone())).collect()
    };
    let (newest, oldest) = (measured(benches[0].1), measured(benches[benches.len() - 1].1));
    let run = results.runs()[0].1.problems.iter().flat_map(|problem| &problem.results);
    let of_newest: Vec<String> = newest.into_iter().chain(run.map(|result| result.kernel.clone())).collect();
    for kernel in &of_newest {
        assert!(drawn.contains(&kernel.as_str()), "{kernel}");
    }
    // Kernels that are gone are history.
    let gone: Vec<_> = oldest.iter().filter(|kernel| !of_newest.contains(kernel)).collect();
    assert!(!gone.is_empty() && gone.iter().all(|kernel| !drawn.contains(&kernel.as_str())), "{gone:?}");
    assert_eq!(chart.limits.len(), 7, "memory, fp32, fp64, TF32 and bf16 with their thirds");
    assert_eq!(figure.table.rows.len(), drawn.len());
}

#[test]
fn samples_fill_the_sections_that_no_committed_file_fills() {
    let results = Results::read(crate::results::SAMPLES).unwrap();
    assert_eq!(results.left_out.len(), 1, "{:?}", results.left_out);
    for section in all(&results) {
        let figures = section.figures().count();
        match section.id {
            "atlas" | "operations" | "roofline" | "history" => {
                assert_eq!((absent(&section).len(), figures), (0, 1), "{}", section.id);
            }
            "sweeps" | "errors" => assert_eq!(figures, 2, "{}", section.id),
            _ => {}
        }
    }
    let history = history::section(&results);
    let figure = history.figures().next().unwrap();
    assert_eq!(figure.table.rows.len(), 15, "five sizes at three commits");
    let atlas = atlas::section(&results);
    let Some(Part::Table(classes)) = atlas.parts.last() else { panic!("a table of classes") };
    let strided = classes.rows.last().unwrap();
    assert_eq!(
        strided.cells.iter().map(|cell| cell.text.as_str()).collect::<Vec<_>>(),
        ["strided", "1", "1", "0", "–", "–", "–", "0", "–"]
    );
}

#[test]
fn a_page_of_no_files_says_which_commands_make_some() {
    let page = report(&Results::default());
    for section in all(&Results::default()).iter().filter(|section| section.id != "files") {
        assert!(!absent(section).is_empty(), "{}", section.id);
    }
    assert!(page.contains("tilewright bench --suite targets --json FILE") && page.contains("0 files of results"));
}

#[test]
fn a_file_of_another_version_is_named_on_the_page() {
    let other = r#"{"schema": "tilewright-bench", "schema_version": 9}"#;
    let results = Results::read([("newer.json", other)]).unwrap();
    let page = report(&results);
    assert!(page.contains("1 file left out") && page.contains("newer.json") && page.contains("version 9"));
}

/// No value of an attribute is there twice.
fn assert_unique(page: &str, attribute: &str) {
    let mut values: Vec<&str> = page.split(attribute).skip(1).map(|rest| rest.split('"').next().unwrap()).collect();
    values.sort_unstable();
    for pair in values.windows(2) {
        assert_ne!(pair[0], pair[1], "{attribute}");
    }
}

#[test]
fn everything_has_a_name_of_its_own_with_several_gpus_too() {
    let other: Vec<(String, String)> = (crate::results::SAMPLES.iter())
        .map(|(name, text)| (name.replace("samples/", "other/"), text.replace("Imaginary GPU", "Another GPU")))
        .collect();
    let other = other.iter().map(|(name, text)| (name.as_str(), text.as_str()));
    let files = committed();
    let json =
        files.iter().filter(|(name, _)| name.ends_with(".json")).map(|(name, text)| (name.as_str(), text.as_str()));
    let results = Results::read(crate::results::SAMPLES.into_iter().chain(other).chain(json)).unwrap();
    let page = report(&results);
    for attribute in [" id=\"", " aria-label=\""] {
        assert_unique(&page, attribute);
    }
    let captions: Vec<&str> =
        page.split("</caption>").filter_map(|part| Some(part.rsplit_once("-caption\">")?.1)).collect();
    let mut unique = captions.clone();
    unique.sort_unstable();
    unique.dedup();
    assert_eq!(unique.len(), captions.len(), "{captions:?}");
}

const HOSTILE: &str = "</script><script>alert(1)</script><img src=x onerror=alert(1)> \" ' & \\u0000 \\u202e";

/// A report of `bench` on one product, with a text wherever one may be.
fn hostile_bench() -> String {
    let text = HOSTILE.replace('"', "\\\"");
    let ceiling = format!(r#"{{"per_second": 4.0, "by": "{text}"}}"#);
    let times = r#"{"runs": 1, "launches_per_run": 1, "median_ms": 1.0, "min_ms": 0.9, "spread_ms": 0.1}"#;
    let case = |size: u32| {
        format!(
            r#"{{"id": "{text} m={size} n={size} k={size} {text}", "problem": "{text}", "m": {size}, "n": {size}, "k": {size}, "layout": "{text}",
            "precision": "{text}", "math": "fp32", "target": null, "outcome": {{"measured": {{"kernel": "{text}", "splits": 1,
            "workspace_bytes": 0, "operand_sets": 1, "times": {times}, "tflop_per_s": 1.5, "tb_per_s": 0.5,
            "least": {{"ms": 0.5, "bound_by": "{text}"}}, "baselines": [{{"routine": "{text}", "times": {times}}}], "torch_ms": null,
            "errors": [{{"inputs": "{text}", "rows": 1, "ours": {{"frobenius": "inf", "max": "NaN"}},
            "cublas": ["{text}", {{"frobenius": 1e-7, "max": 0.0}}], "bound": null}}]}}}}}}"#
        )
    };
    format!(
        r#"{{"schema": "tilewright-bench", "schema_version": 1, "date": "{text}", "version": "0", "commit": "{text}",
        "device": {{"kind": "cuda", "name": "{text}", "driver_release": "{text}"}}, "cublas": {{"version": "{text}", "path": ""}},
        "roofline": {{"read": {ceiling}, "write": {ceiling}, "copy": {ceiling}, "fma": {ceiling}, "tf32": null, "bf16": null}},
        "runs": 1, "results": [{}, {}, {}]}}"#,
        case(1),
        case(2),
        case(4)
    )
}

#[test]
fn hostile_names_are_text_everywhere() {
    let name = "</td><script>alert(1)</script>.json";
    let mut results = Results::read([(name, hostile_bench().as_str())]).unwrap();
    results.note_words("javascript:alert(1).md", "# <script>alert(1)</script>\n");
    assert!(results.left_out.is_empty(), "{:?}", results.left_out);
    let page = report(&results);
    assert_eq!(page.matches("<script>").count(), 1, "the page's own");
    assert_eq!(page.matches("</script>").count(), 1);
    assert!(!page.contains("<img") && !page.contains('\0') && page.contains("&lt;img src=x"));
    assert!(!page.contains("href=\"javascript:"));
    for (name, svg) in pictures(&results) {
        assert!(!name.contains(['<', '/', ' ', '"']), "{name}");
        elements(&svg);
    }
    assert_unique(&page, " id=\"");
}

#[test]
fn schemes_are_told_by_the_ends_of_names() {
    for (kernel, look) in [
        ("gemm_tiled_32_fp32", 0),
        ("gemm_wgmma_nt_fp32_3xtf32", 1),
        ("gemm_wgmma_packed_fp32_3xfp16", 2),
        ("gemm_wgmma_packed_fp32_normwise", 3),
        ("gemm_wgmma_nt_tf32", 4),
        ("gemm_mma_nt_bf16", 5),
        ("softmax", 6),
    ] {
        assert_eq!(scheme(kernel).0, look, "{kernel}");
    }
}

/// Numbers by chance that are the same every time.
struct Chance(u64);

impl Chance {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % end
    }
}

#[test]
fn numbers_of_any_size_make_pictures_all_the_same() {
    const NUMBERS: [&str; 12] = [
        "0",
        "-1",
        "1e308",
        "1e-308",
        "5e-324",
        "-0.0",
        "1e15",
        "\"inf\"",
        "\"NaN\"",
        "\"-inf\"",
        "0.97",
        "123456.789",
    ];
    let mut chance = Chance(11);
    let (mut read, mut left_out) = (0, 0);
    for round in 0..120 {
        let (name, text) = crate::results::SAMPLES[round % crate::results::SAMPLES.len()];
        // Every eighth number of the file becomes another one.
        let mut changed = String::new();
        let mut rest = text;
        while let Some(colon) = rest.find(':') {
            let (before, after) = rest.split_at(colon + 1);
            changed.push_str(before);
            let length = after.find(|character: char| !"0123456789.e+-".contains(character)).unwrap_or(after.len());
            let is_version = before.ends_with("schema_version\":") || before.ends_with("schema_version\": ");
            let is_replaced = length > 0 && !is_version && chance.below(8) == 0;
            changed.push_str(if is_replaced { NUMBERS[chance.below(NUMBERS.len())] } else { &after[..length] });
            rest = &after[length..];
        }
        changed.push_str(rest);
        let Ok(results) = Results::read([(name, changed.as_str())]) else { continue };
        left_out += results.left_out.len();
        read += results.files.len();
        assert!(report(&results).ends_with("</html>\n"));
        for (_, svg) in pictures(&results) {
            elements(&svg);
        }
    }
    assert!(read > 20 && left_out > 20, "{read} read, {left_out} left out");
}

#[test]
fn text_that_is_cut_anywhere_is_refused_or_read() {
    for (name, text) in crate::results::SAMPLES {
        for end in (0..text.len()).step_by(97).filter(|end| text.is_char_boundary(*end)) {
            if let Ok(results) = Results::read([(name, &text[..end])]) {
                assert!(report(&results).ends_with("</html>\n"), "{name} {end}");
            }
        }
    }
}
