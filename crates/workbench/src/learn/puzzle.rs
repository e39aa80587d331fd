//! A puzzle's file, as the course has it: the solution, and marks that say what a learner gets in its place.
//!
//! ```text
//!  //! # 7. `divergence`: a title           number, name and title: the first line
//!  //@ hint a hint                          not in what learners get; the first one comes first
//!      //@ blank
//!      the solution                         cut out
//!      //@ instead
//!      //| what stands there at first       put in, where the mark is indented to
//!      //@ end
//! ```

/// A puzzle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Puzzle {
    /// Its number, from 1 on.
    pub(super) number: usize,
    /// Its name.
    pub(super) name: String,
    /// What it is about.
    pub(super) title: String,
    /// Its file, from the directory of the course.
    pub(super) file: &'static str,
    /// Its kernel: the last one, if there are several.
    pub(super) kernel: String,
    /// The text of the file for a learner.
    pub(super) unsolved: String,
    /// The hints, each telling more than the one before.
    pub(super) hints: Vec<String>,
    /// The lines of the solution, which the learner's file does not have.
    pub(super) solution: Vec<String>,
}

/// Where the reader is in a file.
enum Part {
    Kept,
    Solution,
    /// And how far the mark is indented.
    Instead(String),
}

impl Puzzle {
    /// Reads a file of the course.
    ///
    /// # Errors
    /// What of the marks is not as it has to be.
    pub(super) fn read(file: &'static str, text: &str) -> Result<Self, String> {
        let first = text.lines().next().unwrap_or_default();
        let (number, name, title) = heading(first).ok_or_else(|| format!("the first line is no heading: {first}"))?;
        let kernel = kernel(text).ok_or("there is no `pub fn` that could be a kernel")?.to_owned();
        let (mut unsolved, mut hints, mut solution) = (String::new(), Vec::new(), Vec::new());
        let (mut part, mut blanks) = (Part::Kept, 0);
        for (index, line) in text.lines().enumerate() {
            let indent = &line[..line.len() - line.trim_start().len()];
            let wrong = |what: &str| Err(format!("line {}: {what}", index + 1));
            let words = line.trim_start();
            part = match (part, words.strip_prefix("//@ ")) {
                (Part::Kept, Some("blank")) => {
                    unsolved += &format!("{indent}// ▼ Your part: what stands here is not right yet.\n");
                    blanks += 1;
                    Part::Solution
                }
                (Part::Kept, Some(hint)) if hint.starts_with("hint ") => {
                    hints.push(hint["hint ".len()..].to_owned());
                    Part::Kept
                }
                (Part::Solution, Some("instead")) => Part::Instead(indent.to_owned()),
                (Part::Instead(_), Some("end")) => {
                    unsolved += &format!("{indent}// ▲\n");
                    Part::Kept
                }
                (_, Some(_)) => return wrong("a mark that cannot be here"),
                (Part::Kept, None) => {
                    unsolved += &format!("{line}\n");
                    Part::Kept
                }
                (Part::Solution, None) => {
                    solution.push(words.to_owned());
                    Part::Solution
                }
                (Part::Instead(indent), None) => {
                    let Some(line) = words.strip_prefix("//|") else {
                        return wrong("what comes instead begins with `//|`");
                    };
                    let line = line.strip_prefix(' ').unwrap_or(line);
                    unsolved += format!("{indent}{line}").trim_end();
                    unsolved.push('\n');
                    Part::Instead(indent)
                }
            };
        }
        if !matches!(part, Part::Kept) || blanks == 0 || hints.is_empty() {
            return Err("a blank that ends, and a hint, are what makes a puzzle".to_owned());
        }
        Ok(Self { number, name, title, file, kernel, unsolved, hints, solution })
    }
}

/// The number, the name and the title of a heading.
fn heading(line: &str) -> Option<(usize, String, String)> {
    let (number, rest) = line.strip_prefix("//! # ")?.split_once(". `")?;
    let (name, title) = rest.split_once("`: ")?;
    Some((number.parse().ok()?, name.to_owned(), title.to_owned()))
}

/// The name of the last public function before the operation.
fn kernel(text: &str) -> Option<&str> {
    let of_gpu = text.split("\n#[cfg(not(target_arch").next()?;
    let (_, function) = of_gpu.rsplit_once("\npub fn ")?;
    function.split(['(', '<']).next()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "//! # 7. `seven`: a title\n//@ hint one\n//@ hint two\npub fn f() {\n    //@ blank\n    right();\n    //@ instead\n    \
        //| if wrong {\n    //|     wrong();\n    //| }\n    //@ end\n}\n";

    #[test]
    fn the_blank_is_cut_out_and_something_else_stands_there() {
        let puzzle = Puzzle::read("a.rs", TEXT).unwrap();
        assert_eq!((puzzle.number, &*puzzle.name, &*puzzle.title), (7, "seven", "a title"));
        assert_eq!(puzzle.hints, ["one", "two"]);
        assert_eq!((&puzzle.solution[..], &*puzzle.kernel), (&["right();".to_owned()][..], "f"));
        assert_eq!(
            puzzle.unsolved,
            "//! # 7. `seven`: a title\npub fn f() {\n    // ▼ Your part: what stands here is not right yet.\n    if wrong {\n        \
             wrong();\n    }\n    // ▲\n}\n"
        );
    }

    #[test]
    fn marks_that_are_not_in_order_are_told_with_their_line() {
        for (from, to, told) in [
            ("# 7. ", "# ", "first line"),
            ("pub fn", "fn", "no `pub fn`"),
            ("    //@ end\n}\n", "", "a blank that ends"),
            ("    //@ instead\n", "", "line 10: a mark"),
            ("//| }", "}", "line 10: what comes instead"),
            ("//@ hint one\n//@ hint two\n", "", "a hint"),
            ("//@ hint one", "//@ hnit one", "line 2: a mark"),
        ] {
            let error = Puzzle::read("a.rs", &TEXT.replace(from, to)).unwrap_err();
            assert!(error.contains(told), "{from:?}: {error}");
        }
    }
}
