//! What stands in the source of a crate at a place.

use std::fs;
use std::path::Path;

/// A place, `src/lib.rs:11:24`, with the expression that begins there, as it is written: up to where what it is part of goes on, and no
/// further than its line. The place of a method's call is the method's name; what it is called on belongs to the expression.
pub(super) fn with_expression(place: String, crate_dir: &Path) -> String {
    let expression = || {
        let mut parts = place.rsplitn(3, ':');
        let (column, line): (usize, usize) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
        let text = fs::read_to_string(crate_dir.join(parts.next()?)).ok()?;
        let line = text.lines().nth(line.checked_sub(1)?)?;
        let (before, rest) = line.split_at_checked(column.checked_sub(1)?)?;
        let expression = format!("{}{}", receiver(before), expression(rest));
        Some(expression).filter(|expression| !expression.is_empty())
    };
    match expression() {
        Some(expression) => format!("{place} (`{expression}`)"),
        None => place,
    }
}

/// The expression that a line begins with.
fn expression(line: &str) -> &str {
    let mut depth = 0usize;
    for (at, c) in line.char_indices() {
        match c {
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' if depth == 0 => return line[..at].trim_end(),
            ')' | ']' | '}' => depth -= 1,
            // The place of a remainder is that of its left side.
            ' ' if depth == 0 && line[at..].starts_with(" % ") => {
                let right = at + " % ".len();
                return &line[..right + expression(&line[right..]).len()];
            }
            ';' | ',' | ' ' if depth == 0 => return line[..at].trim_end(),
            _ => {}
        }
    }
    line.trim_end()
}

/// What a method is called on that stands before it in its line, with the dot; nothing if what follows is no method.
fn receiver(before: &str) -> &str {
    if !before.ends_with('.') {
        return "";
    }
    let mut depth = 0usize;
    for (at, c) in before.char_indices().rev() {
        match c {
            ')' | ']' => depth += 1,
            '(' | '[' if depth > 0 => depth -= 1,
            _ if depth > 0 || c.is_alphanumeric() || "_.:?".contains(c) => {}
            _ => return &before[at + c.len_utf8()..],
        }
    }
    before
}

/// The line of a function's definition, `src/lib.rs:11`, with what stands there before its body.
pub(super) fn with_definition(place: String, crate_dir: &Path) -> String {
    let definition = text_at(&place, crate_dir).and_then(|text| {
        let line = text.lines().next()?.trim();
        Some(line.split_once(" {").map_or(line, |(head, _)| head).to_owned())
    });
    match definition.filter(|definition| !definition.is_empty()) {
        Some(definition) => format!("{place} (`{definition}`)"),
        None => place,
    }
}

/// The parameters of the function that is defined at a place which are pointers, references or of a type that may have one: their names.
pub(super) fn pointers_of(place: &str, crate_dir: &Path) -> Vec<String> {
    let text = text_at(place, crate_dir).unwrap_or_default();
    let parameters = parameters(&text).unwrap_or_default();
    let named = parameters.iter().filter_map(|parameter| parameter.split_once(':'));
    let named: Vec<(&str, &str)> =
        named.map(|(name, kind)| (name.trim().trim_start_matches("mut "), kind.trim())).collect();
    let are = |is: fn(&str) -> bool| -> Vec<String> {
        named.iter().filter(|(_, kind)| is(kind)).map(|(name, _)| (*name).to_owned()).collect()
    };
    let pointers = are(|kind| kind.starts_with(['&', '*']));
    if pointers.is_empty() { are(|kind| !is_number(kind)) } else { pointers }
}

fn is_number(kind: &str) -> bool {
    let bits = kind.strip_prefix(['u', 'i', 'f']).unwrap_or("");
    matches!(kind, "bool" | "char" | "usize" | "isize") || matches!(bits, "8" | "16" | "32" | "64" | "128")
}

/// The source from the line of a place on.
fn text_at(place: &str, crate_dir: &Path) -> Option<String> {
    let (file, line) = place.rsplit_once(':')?;
    let skipped = line.parse::<usize>().ok()?.checked_sub(1)?;
    let text = fs::read_to_string(crate_dir.join(file)).ok()?;
    Some(text.lines().skip(skipped).map(|line| format!("{line}\n")).collect())
}

/// The parameters of the first function in a text, as they are written.
fn parameters(text: &str) -> Option<Vec<&str>> {
    let after = text.split_once("fn ")?.1;
    // What is generic comes before the parameters, and may have parentheses of its own.
    let mut depth = 0usize;
    let mut open = None;
    let mut parameters = Vec::new();
    let mut before = ' ';
    for (at, c) in after.char_indices() {
        match c {
            '(' if depth == 0 => {
                open = Some(at + 1);
                depth += 1;
            }
            '<' | '(' | '[' | '{' => depth += 1,
            '>' if before == '-' => {}
            '>' | ')' | ']' | '}' => depth = depth.checked_sub(1)?,
            _ => {}
        }
        if let Some(start) = open.filter(|_| depth == 0 || depth == 1 && c == ',') {
            parameters.extend(Some(after[start..at].trim()).filter(|parameter| !parameter.is_empty()));
            open = Some(at + 1);
            if depth == 0 {
                return Some(parameters);
            }
        }
        before = c;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_expression_ends_where_its_brackets_do() {
        for (line, found) in [
            ("w[b as usize]);", "w[b as usize]"),
            ("values[f(i, 3)] + 1.0;", "values[f(i, 3)]"),
            ("x.get([i, j]), 7", "x.get([i, j])"),
            ("(a + b) % f(c) + 1.0);", "(a + b) % f(c)"),
            ("values[", "values["),
            (")", ""),
        ] {
            assert_eq!(expression(line), found);
        }
        for (before, found) in [
            ("let x = TILE.", "TILE."),
            ("f(self.tiles[i + 1].", "self.tiles[i + 1]."),
            ("    g(a, b)?.", "g(a, b)?."),
            ("x.y(", ""),
            (".", "."),
            ("é.", "é."),
            ("(é).", "(é)."),
            ("", ""),
        ] {
            assert_eq!(receiver(before), found);
        }
        assert_eq!(with_expression("src/none.rs:1:1".to_owned(), Path::new("/nowhere")), "src/none.rs:1:1");
        assert_eq!(with_definition("src/none.rs:1".to_owned(), Path::new("/nowhere")), "src/none.rs:1");
    }

    #[test]
    fn a_function_has_parameters() {
        let text =
            "unsafe fn f<T, F: Fn(T) -> u32>(\n    mut x: &[(u8, T); 2],\n    p: *const f32, // no\n) -> u32 {\n";
        assert_eq!(parameters(text).unwrap(), ["mut x: &[(u8, T); 2]", "p: *const f32", "// no"]);
        assert_eq!(parameters("fn f() {"), Some(vec![]));
        assert_eq!((parameters("fn f"), parameters("fn f)"), parameters("")), (None, None, None));
    }

    #[test]
    fn pointers_are_told_from_numbers() {
        let directory = tempfile::tempdir().unwrap();
        let text = "\nfn f(mut x: &f32, n: u32, p: *mut u8, v: View) {\nfn g(n: usize, v: View) {\nfn h() {\n";
        fs::write(directory.path().join("a.rs"), text).unwrap();
        let of = |line: usize| pointers_of(&format!("a.rs:{line}"), directory.path());
        assert_eq!((of(2), of(3)), (vec!["x".to_owned(), "p".to_owned()], vec!["v".to_owned()]));
        assert_eq!((of(4), of(7)), (vec![], vec![]));
        assert_eq!(with_definition("a.rs:3".to_owned(), directory.path()), "a.rs:3 (`fn g(n: usize, v: View)`)");
    }
}
