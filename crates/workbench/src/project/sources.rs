//! Which kernels a crate has, by its sources: nothing has to be built for that.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// The text of a crate's sources.
pub(crate) struct Sources {
    files: Vec<String>,
}

/// How a name stands in the sources. The later one is surer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Found {
    /// As a word in a file that has a macro with `#[kernel]` in it: which names it makes, only the compiler knows.
    Word,
    /// As the name of a function with `#[kernel]`.
    Kernel,
}

impl Sources {
    /// Reads the files below `src`. What cannot be read has no kernels.
    pub(crate) fn read(crate_dir: &Path) -> Self {
        let mut files = Vec::new();
        let mut left = vec![crate_dir.join("src")];
        while let Some(directory) = left.pop() {
            for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
                let path = entry.path();
                if path.is_dir() {
                    left.push(path);
                } else if path.extension().is_some_and(|extension| extension == "rs") {
                    files.extend(fs::read_to_string(path).map(|text| without_comments(&text)));
                }
            }
        }
        Self { files }
    }

    /// Whether there is a kernel of that name.
    pub(super) fn has(&self, name: &str) -> Option<Found> {
        if self.files.iter().any(|text| entry_points(text).any(|entry| entry == name)) {
            return Some(Found::Kernel);
        }
        // Macros and their uses may be in several files of the crate.
        let makes = self.files.iter().any(|text| makes_kernels(text));
        let is_word = |text: &String| words(text).any(|word| word == name);
        (makes && is_name(name) && self.files.iter().any(is_word)).then_some(Found::Word)
    }

    /// The names of kernels, and such as macros may make kernels of.
    pub(crate) fn kernels(&self) -> Vec<String> {
        let mut names: BTreeSet<String> = BTreeSet::new();
        for text in &self.files {
            names.extend(entry_points(text).map(str::to_owned));
            if makes_kernels(text) {
                // `gemm_mma_nn_fp32`, rather than `block` or `write_to`.
                let long = words(text).filter(|word| word.matches('_').count() >= 2 && is_name(word));
                names.extend(long.map(str::to_owned));
            }
        }
        names.into_iter().collect()
    }
}

/// Whether a word can be a kernel's name.
fn is_name(word: &str) -> bool {
    word.starts_with(|c: char| c.is_ascii_lowercase())
        && word.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
}

/// What `//` begins is text, of documentation too. (In a string it is none, but no name is lost with it.)
fn without_comments(text: &str) -> String {
    text.lines().map(|line| line.split("//").next().unwrap_or_default()).collect::<Vec<_>>().join("\n")
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !(c.is_alphanumeric() || c == '_')).filter(|word| !word.is_empty())
}

/// The names of the functions with `#[kernel]`, or `#[kernel(…)]`.
fn entry_points(text: &str) -> impl Iterator<Item = &str> {
    text.match_indices("#[kernel").filter_map(|(at, _)| {
        let rest = &text[at..];
        let name = rest[rest.find("fn ")? + 3..].split(['(', '<', ' ']).next()?;
        is_name(name).then_some(name)
    })
}

/// Whether a macro has `#[kernel]` before a function whose name is its own to choose.
fn makes_kernels(text: &str) -> bool {
    text.match_indices("#[kernel").any(|(at, _)| {
        let rest = &text[at..];
        rest.find("fn ").is_some_and(|function| rest[function + 3..].starts_with('$'))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "
        /// Not `#[kernel] fn of_the_text(`.
        #[kernel(block = 256, requires(fn_of(x)))]
        pub fn axpy(x: f32) {}
        #[kernel]
        pub unsafe fn with_type<T>(x: T) {}
        macro_rules! kernels { ($($name:ident),*) => { $(#[kernel(block = 32)] pub fn $name() {})* }; }
        kernels!(product_nn_fp32, product_nt_fp32);
        fn helper() { write_to(3) }
    ";

    #[test]
    fn kernels_are_found_by_attribute_and_in_the_words_of_macros() {
        let sources = Sources { files: vec![without_comments(TEXT)] };
        assert_eq!(entry_points(&sources.files[0]).collect::<Vec<_>>(), ["axpy", "with_type"]);
        assert_eq!(sources.has("axpy"), Some(Found::Kernel));
        assert_eq!(sources.has("product_nn_fp32"), Some(Found::Word));
        assert_eq!([sources.has("of_the_text"), sources.has("product")], [None; 2]);
        assert_eq!(sources.kernels(), ["axpy", "product_nn_fp32", "product_nt_fp32", "with_type"]);
        let plain = Sources { files: vec!["#[kernel] pub fn axpy() {} fn helper() {}".to_owned()] };
        assert_eq!((plain.has("helper"), plain.kernels()), (None, vec!["axpy".to_owned()]));
    }
}
