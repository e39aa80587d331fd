//! The tables of what the checker finds and does not find.

use std::fmt::Write as _;

use crate::pattern::{Class, Expected, Family, Mistake};

fn mistakes(families: &[Family]) -> impl Iterator<Item = (&'static str, &'static Mistake)> {
    let patterns = families.iter().flat_map(|family| family.patterns);
    patterns.flat_map(|pattern| pattern.mistakes.iter().map(|mistake| (pattern.name, mistake)))
}

fn is_found(mistake: &Mistake) -> bool {
    matches!(mistake.expected, Expected::Found { .. })
}

/// For each class of mistakes, how many are found.
pub(crate) fn by_class(families: &[Family]) -> String {
    let mut classes: Vec<Class> = mistakes(families).map(|(_, mistake)| mistake.class).collect();
    classes.sort();
    classes.dedup();
    let mut text = "| class of mistakes | found | not found |\n|---|---:|---:|\n".to_owned();
    for class in classes {
        let all = mistakes(families).filter(|(_, mistake)| mistake.class == class).count();
        let found = mistakes(families).filter(|(_, mistake)| mistake.class == class && is_found(mistake)).count();
        _ = writeln!(text, "| {} | {found} | {} |", class.text(), all - found);
    }
    text
}
