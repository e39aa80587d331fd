//! What this program's own writers write today, the page reads; files and directories.

use super::*;
use crate::bench;
use pages::results::{Content, Reading};
use tilewright::device::DeviceInfo;

/// A GPU, for reports that were made by hand.
fn gpu() -> DeviceInfo {
    DeviceInfo::Cuda {
        ordinal: 0,
        name: "a GPU".to_owned(),
        uuid: String::new(),
        compute_capability: "9.0".to_owned(),
        multiprocessors: 132,
        memory_bytes: 1,
        driver_cuda_version: "13.0".to_owned(),
        driver_release: Some("580".to_owned()),
        ptx_arch: "sm_90a".to_owned(),
    }
}

fn content(text: &str) -> Content {
    match pages::results::read("x.json", text).unwrap() {
        Reading::Results(file) => {
            assert_eq!((file.source.gpu.as_str(), file.source.driver.as_str()), ("a GPU", "580 (CUDA 13.0)"));
            file.content
        }
        Reading::LeftOut { reason, .. } => panic!("{reason}"),
    }
}

#[test]
fn what_bench_writes_today_is_read() {
    let mut report = bench::report::tests::report(2.0);
    report.device = gpu();
    let Content::Bench(read) = content(&serde_json::to_string(&report).unwrap()) else { panic!("no bench") };
    assert_eq!(read.results.len(), report.results.len());
    assert_eq!(read.results[0].measured().unwrap().ratio(), Some(2.0));
    assert_eq!(read.results[0].measured().unwrap().errors[0].cublas.as_ref().unwrap().1.frobenius, f64::INFINITY);
}

#[test]
fn what_the_atlas_writes_today_is_read() {
    let mut report = bench::atlas::tests::example();
    report.device = gpu();
    let Content::Atlas(read) = content(&serde_json::to_string(&report).unwrap()) else { panic!("no atlas") };
    let ratios = |ratios: Vec<Option<f64>>| ratios.iter().flatten().sum::<f64>();
    assert_eq!(read.results.len(), report.results.len());
    assert!(
        ratios(read.results.iter().map(|row| row.ratio()).collect())
            == ratios(report.results.iter().map(|row| row.ratio()).collect())
    );
}

#[test]
fn what_run_writes_today_is_read() {
    let mut report = crate::report::tests::report();
    report.device = gpu();
    let Content::Run(read) = content(&serde_json::to_string(&report).unwrap()) else { panic!("no run") };
    assert_eq!(read.problems[0].results[0].kernel, report.problems[0].results[0].kernel);
    assert!(!read.problems[0].results[0].check.passed);
}

fn flags(results: &[&Path], output: Option<&Path>, svg: Option<&Path>) -> ReportFlags {
    let owned = |path: &Path| path.to_owned();
    ReportFlags {
        results: results.iter().map(|path| owned(path)).collect(),
        output: output.map(owned),
        svg: svg.map(owned),
    }
}

#[test]
fn a_page_and_pictures_are_written_and_lead_to_the_files() {
    let directory = tempfile::tempdir().unwrap();
    let (results, out) = (directory.path().join("results"), directory.path().join("out"));
    fs::create_dir_all(&results).unwrap();
    fs::create_dir_all(&out).unwrap();
    let mut report = bench::report::tests::report(2.0);
    report.device = gpu();
    report.write_json(&results.join("bench.json")).unwrap();
    fs::write(results.join("words.md"), "# In words\n").unwrap();
    fs::write(results.join("other.json"), "{\"schema\": \"tilewright-bench\", \"schema_version\": 99}").unwrap();
    fs::write(results.join("picture.svg"), "no results").unwrap();

    let (page, svg) = (out.join("report.html"), out.join("svg"));
    let said = std::cell::RefCell::new(String::new());
    let print = |text: &str| said.borrow_mut().push_str(text);
    flags(&[&results], Some(&page), Some(&svg)).run(print).unwrap();
    let said = said.into_inner();
    assert!(said.contains("left out: ../results/other.json: it has version 99"), "{said}");
    let page = fs::read_to_string(page).unwrap();
    assert!(page.contains("href=\"./../results/bench.json\"") && page.contains("In words"), "{page}");
    let pictures = fs::read_dir(svg).unwrap().count();
    assert!(pictures >= 4 && said.contains(&format!("{pictures} pictures")), "{said}");
}

#[test]
fn what_is_no_results_file_is_an_error_that_names_it() {
    let directory = tempfile::tempdir().unwrap();
    let (no, page) = (directory.path().join("no.json"), directory.path().join("page.html"));
    fs::write(&no, "{\"name\": \"something else\"}").unwrap();
    let error = flags(&[&no], Some(&page), None).run(|_| {}).unwrap_err().to_string();
    assert!(error.starts_with(&format!("{} is no results file", no.display())), "{error}");
    assert!(!page.exists(), "nothing is written");
    let error = flags(&[&directory.path().join("absent.json")], Some(&page), None).run(|_| {}).unwrap_err().to_string();
    assert!(error.contains("cannot read") && error.contains("absent.json"), "{error}");
}

#[test]
fn ways_lead_from_directories_to_files() {
    let way = |from: &str, to: &str| way(Path::new(from), Path::new(to)).unwrap().to_string_lossy().into_owned();
    assert_eq!(way("/a/b", "/a/b/c.json"), "c.json");
    assert_eq!(way("/a/b", "/a/c/d.json"), "../c/d.json");
    assert_eq!(way("/", "/a/c/d.json"), "a/c/d.json");
}
