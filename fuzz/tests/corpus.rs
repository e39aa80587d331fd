//! The committed corpus: inputs that led fuzzers to new places, and those that once failed.

use std::path::Path;

use fuzz::TARGETS;

#[test]
fn every_input_of_the_corpus_is_refused_or_understood() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
    for (name, check) in TARGETS {
        let mut inputs: Vec<_> = std::fs::read_dir(corpus.join(name))
            .unwrap_or_else(|error| panic!("{name} has no corpus: {error}"))
            .map(|entry| entry.unwrap().path())
            .collect();
        inputs.sort();
        assert!(!inputs.is_empty(), "the corpus of {name} is empty");
        for path in inputs {
            let data = std::fs::read(&path).unwrap();
            let result = std::panic::catch_unwind(|| check(&data));
            assert!(result.is_ok(), "{} fails: the panic is above", path.display());
        }
    }
}
