//! Every committed file is read; others are refused by name.

use super::*;

/// The committed files of results: names and texts.
pub(crate) fn committed() -> Vec<(String, String)> {
    let directory = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/results");
    let mut files: Vec<_> = (std::fs::read_dir(directory).unwrap())
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "json" || extension == "md"))
        .map(|path| (path.file_name().unwrap().to_str().unwrap().to_owned(), std::fs::read_to_string(&path).unwrap()))
        .collect();
    files.sort();
    files
}

#[test]
fn every_committed_file_is_read_and_says_where_it_is_from() {
    let files: Vec<_> = committed().into_iter().filter(|(name, _)| name.ends_with(".json")).collect();
    assert!(files.len() >= 5, "{}", files.len());
    for (name, text) in &files {
        let Reading::Results(file) = read(name, text).unwrap() else { panic!("{name} is left out") };
        assert_eq!(&file.source.file, name);
        assert!(file.source.date.starts_with("2026-11-"), "{name}: {}", file.source.date);
        let filled = match &file.content {
            Content::Bench(it) => it.results.iter().filter(|case| case.measured().is_some()).count(),
            Content::Atlas(it) => it.results.len(),
            Content::Run(it) => it.problems.iter().map(|problem| problem.results.len()).sum(),
            Content::Operations(it) => it.len(),
            Content::Counters(it) => it.kernels.len(),
            Content::KernelBench(it) => it.problems.len(),
            Content::Agreement(it) => it.len(),
            Content::Conformance(it) => it.outcomes.len(),
        };
        assert!(filled >= 8, "{name}: {filled}");
        // What `agreement` writes says nothing of where it is from.
        if !matches!(file.content, Content::Agreement(_)) {
            assert_eq!(file.source.gpu, "NVIDIA H200", "{name}");
            assert!(file.source.driver.starts_with("580."), "{name}: {}", file.source.driver);
        }
        if matches!(file.content, Content::Bench(_) | Content::Run(_)) {
            assert!(file.source.commit.len() == 12 && file.source.date.starts_with("2026-"), "{name}");
        }
    }
}

#[test]
fn a_file_of_another_version_is_left_out_with_the_reason() {
    let left_out = |text: &str| match read("x.json", text).unwrap() {
        Reading::LeftOut { file, reason } => {
            assert_eq!(file, "x.json");
            reason
        }
        Reading::Results(file) => panic!("{file:?}"),
    };
    let other = left_out(r#"{"schema": "tilewright-bench", "schema_version": 2, "results": []}"#);
    assert!(other.contains("version 2") && other.contains("reads 1") && other.contains("measure again"), "{other}");
    assert!(left_out(r#"{"schema": "tilewright-bench"}"#).contains("no version"));
    let by_operation = left_out(r#"{"operation": "softmax", "kernels": [{"kernel": "softmax", "counters": []}]}"#);
    assert!(by_operation.contains("another version of `cost --ncu --json`"), "{by_operation}");
    assert!(left_out(r#"{"schema": "tilewright-table", "schema_version": 1}"#).contains("does not show"));
    let lacks = left_out(r#"{"schema": "tilewright-bench", "schema_version": 1, "results": []}"#);
    assert!(lacks.contains("another version") && lacks.contains("missing field"), "{lacks}");
    let old = left_out(r#"{"date": "2020-01-01T00:00:00Z", "device": {}, "problems": [{"name": "old"}]}"#);
    assert!(old.contains("tilewright run"), "{old}");
    let executor = r#"{"operation":"sum","sizes":"n=5","device":"the CPU executor","is_of_executor":true,"median_ms":1.0,"bytes":1.0}"#;
    assert!(left_out(executor).contains("say nothing about a GPU"));
    assert!(left_out(r#"{"date": "", "device": {"kind": "cpu"}, "problems": []}"#).contains("CPU executor"));
    let costs = r#"{"operation": "sum", "sizes": "n=1", "kernels": [{"kernel": "k", "launches": 1, "rows": []}]}"#;
    assert!(left_out(costs).contains("--ncu"));
}

#[test]
fn what_is_no_results_file_is_an_error_that_names_it() {
    for text in ["", "{", "hello", "[1, 2", "{}\n{"] {
        let error = read("some/file.json", text).unwrap_err();
        assert!(
            matches!(error, Error::NotJson { .. }) && error.to_string().starts_with("some/file.json is no"),
            "{error}"
        );
    }
    for text in [
        "{}",
        "[]",
        "3",
        "null",
        "\"text\"",
        "{\"schema\": \"other\", \"schema_version\": 1}",
        "{\"name\": \"npm\"}",
        "[[]]",
        "{}\n{}",
    ] {
        let error = read("some/file.json", text).unwrap_err();
        assert!(
            matches!(error, Error::Unknown { .. }) && error.to_string().contains("some/file.json"),
            "{text}: {error}"
        );
    }
    let error = Results::read([("a.json", "[]")]).unwrap_err();
    assert!(error.to_string().starts_with("a.json"), "{error}");
}

#[test]
fn operations_come_in_lines_with_and_without_a_schema() {
    let old = r#"{"operation":"sum","sizes":"n=5","device":"CUDA device 0 (NVIDIA H200)","is_of_executor":false,"runs":20,"sets":3,
        "launches_per_run":1,"median_ms":0.25,"spread_ms":0.001,"min_ms":0.249,"bytes":1e9,"operations":2.5e8,
        "least":{"ms":0.2,"bound_by":"memory"},"baseline":null,"no_baseline":"none"}"#;
    let old = old.replace('\n', " ");
    let new = old.replacen('{', r#"{"schema":"tilewright-operation","schema_version":1,"date":"2026-11-26T00:00:00Z","commit":"abc","driver":"580",
        "peak":{"bytes_per_second":4.8e12,"fp32_per_second":6.7e13},"#, 1).replace('\n', " ");
    for (text, count) in [(old.clone(), 1), (format!("{old}\n{old}\n"), 2), (format!("{new}\n\n{new}"), 2)] {
        let Reading::Results(file) = read("ops.json", &text).unwrap() else { panic!("left out") };
        let Content::Operations(operations) = &file.content else { panic!("{file:?}") };
        assert_eq!((operations.len(), file.source.gpu.as_str()), (count, "NVIDIA H200"));
        assert_eq!(operations[0].times.median_ms, 0.25);
    }
    let Reading::Results(file) = read("ops.json", &new).unwrap() else { panic!("left out") };
    assert_eq!((file.source.commit.as_str(), file.source.driver.as_str()), ("abc", "580"));
}

#[test]
fn files_are_in_the_order_of_their_dates() {
    let files = committed();
    let texts = files.iter().filter(|(name, _)| name.ends_with(".json")).rev();
    let results = Results::read(texts.map(|(name, text)| (name.as_str(), text.as_str()))).unwrap();
    assert!(results.files.is_sorted_by_key(|file| file.source.date.clone()));
    assert!(results.left_out.is_empty());
}
