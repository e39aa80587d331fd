//! The few things that have to be known of LLVM's textual IR: what is a name, what is a string, what a line defines.

use std::borrow::Cow;
use std::ops::Range;

/// The global names in a line (`@x`, `@"a b"`), each with the range that it covers, `@` included. What looks like a name
/// inside a string or a comment is none.
pub(crate) fn global_names(line: &str) -> impl Iterator<Item = (Range<usize>, &str)> {
    let bytes = line.as_bytes();
    let mut at = 0;
    std::iter::from_fn(move || {
        while at < bytes.len() {
            match bytes[at] {
                b';' => at = bytes.len(),
                b'"' => at = end_of_string(bytes, at),
                b'@' => {
                    let start = at;
                    at = end_of_name(bytes, at + 1);
                    return Some((start..at, unquoted(&line[start + 1..at])));
                }
                _ => at += 1,
            }
        }
        None
    })
}

/// The line with some of its global names replaced: `replace` gives what stands in for a name.
pub(super) fn replace_names<'a>(line: &'a str, replace: impl Fn(&str) -> Option<String>) -> Cow<'a, str> {
    let mut result = String::new();
    let mut copied = 0;
    for (range, name) in global_names(line) {
        if let Some(replacement) = replace(name) {
            result.push_str(&line[copied..range.start]);
            result.push_str(&replacement);
            copied = range.end;
        }
    }
    if copied == 0 {
        return Cow::Borrowed(line);
    }
    result.push_str(&line[copied..]);
    Cow::Owned(result)
}

/// The name of the entry point whose definition begins on this line.
pub(crate) fn entry_name(line: &str) -> Option<&str> {
    let definition = line.strip_prefix("define ")?;
    let (range, name) = global_names(definition).next()?;
    definition[..range.start].split(' ').any(|word| word == "ptx_kernel").then_some(name)
}

/// The names of local values in a line (`%x`, `%"a b"`), `%` included, each with the range that it covers. What looks like a name inside a string is
/// none.
pub(super) fn local_names(line: &str) -> impl Iterator<Item = (Range<usize>, &str)> {
    let bytes = line.as_bytes();
    let mut at = 0;
    std::iter::from_fn(move || {
        while at < bytes.len() {
            match bytes[at] {
                b'"' => at = end_of_string(bytes, at),
                b'%' => {
                    let start = at;
                    at = end_of_name(bytes, at + 1);
                    return Some((start..at, &line[start..at]));
                }
                _ => at += 1,
            }
        }
        None
    })
}

/// The line with some of the names of local values replaced (`%x`, `%"a b"`): `replace` gives what stands in for a name.
pub(super) fn replace_locals(line: &str, replace: impl Fn(&str) -> Option<String>) -> String {
    let (mut result, mut copied) = (String::with_capacity(line.len()), 0);
    for (range, name) in local_names(line) {
        if let Some(replacement) = replace(name) {
            result.push_str(&line[copied..range.start]);
            result.push_str(&replacement);
            copied = range.end;
        }
    }
    result.push_str(&line[copied..]);
    result
}

/// A global name as the IR writes it, `@` included.
pub(super) fn global_name(name: &str) -> String {
    if end_of_name(name.as_bytes(), 0) == name.len() { format!("@{name}") } else { format!("@\"{name}\"") }
}

/// Where `pattern` begins in `text`, outside of strings.
pub(super) fn find(text: &str, pattern: &str) -> Option<usize> {
    let bytes = text.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        if bytes[at..].starts_with(pattern.as_bytes()) {
            return Some(at);
        }
        at = if bytes[at] == b'"' { end_of_string(bytes, at) } else { at + 1 };
    }
    None
}

/// What stands between the parenthesis at `open` and the one that closes it; `None` if either is not there.
pub(super) fn parenthesized(text: &str, open: usize) -> Option<&str> {
    let bytes = text.as_bytes();
    if bytes.get(open) != Some(&b'(') {
        return None;
    }
    let (mut at, mut depth) = (open, 0usize);
    while at < bytes.len() {
        match bytes[at] {
            b'"' => {
                at = end_of_string(bytes, at);
                continue;
            }
            b'(' => depth += 1,
            b')' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return Some(&text[open + 1..at]);
        }
        at += 1;
    }
    None
}

/// The items of a list, split at the commas outside of parentheses, brackets, braces and strings.
pub(super) fn split_list(list: &str) -> Vec<&str> {
    let bytes = list.as_bytes();
    let (mut items, mut start, mut at, mut depth) = (Vec::new(), 0, 0, 0i32);
    while at < bytes.len() {
        match bytes[at] {
            b'"' => {
                at = end_of_string(bytes, at);
                continue;
            }
            b'(' | b'[' | b'{' | b'<' => depth += 1,
            b')' | b']' | b'}' | b'>' => depth -= 1,
            b',' if depth == 0 => {
                items.push(list[start..at].trim());
                start = at + 1;
            }
            _ => {}
        }
        at += 1;
    }
    items.push(list[start..].trim());
    items
}

/// The section of a definition: the range of the clause, with the space (and in a global's definition the comma) before
/// it, and the section's name.
pub(super) fn section(definition: &str) -> Option<(Range<usize>, &str)> {
    const CLAUSE: &str = " section \"";
    let clause = find(definition, CLAUSE)?;
    let name = clause + CLAUSE.len();
    let end = name + definition[name..].find('"')?;
    let start = if definition[..clause].ends_with(',') { clause - 1 } else { clause };
    Some((start..end + 1, &definition[name..end]))
}

/// What the definition of a global variable, `@name = …`, says before its type.
pub(super) struct Variable<'a> {
    /// The name without `@` and quotes.
    pub(super) name: &'a str,
    /// The words before `global` or `constant`: linkage, address space and so on.
    pub(super) prefix: Vec<&'a str>,
    /// Where the keyword `global` or `constant` begins in the line.
    pub(super) keyword: usize,
    pub(super) writable: bool,
}

impl<'a> Variable<'a> {
    /// Reads a line that begins with `@`; `None` for what is no variable, an alias for one.
    pub(super) fn parse(line: &'a str) -> Option<Self> {
        let (range, name) = global_names(line).next().filter(|(range, _)| range.start == 0)?;
        let mut at = range.end + line[range.end..].strip_prefix(" = ").map(|_| 3)?;
        let mut prefix = Vec::new();
        loop {
            // A line that ends before the keyword is no variable.
            let word = line.get(at..)?.split(' ').next().filter(|word| !word.is_empty())?;
            match word {
                "global" | "constant" => return Some(Self { name, prefix, keyword: at, writable: word == "global" }),
                "alias" | "ifunc" => return None,
                _ => prefix.push(word),
            }
            at += word.len() + 1;
        }
    }

    /// Whether it is in the generic address space, which is where rustc puts every static.
    pub(super) fn is_generic(&self) -> bool {
        !self.prefix.iter().any(|word| word.starts_with("addrspace(") && *word != "addrspace(0)")
    }
}

/// The bytes of the constant that a line defines as one string: `@x = constant [2 x i8] c"a\00"`.
pub(super) fn string_constant(line: &str) -> Option<Vec<u8>> {
    let open = find(line, "c\"")? + 1;
    let text = line[open..end_of_string(line.as_bytes(), open)].strip_prefix('"')?.strip_suffix('"')?;
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((&first, others)) = rest.split_first() {
        rest = others;
        if first != b'\\' {
            bytes.push(first);
        } else if let Some(others) = others.strip_prefix(b"\\") {
            bytes.push(b'\\');
            rest = others;
        } else {
            let digits = std::str::from_utf8(others.get(..2)?).ok()?;
            bytes.push(u8::from_str_radix(digits, 16).ok()?);
            rest = &others[2..];
        }
    }
    Some(bytes)
}

/// The index after the string that begins at `open`. LLVM writes a quote inside a string as `\22`.
fn end_of_string(bytes: &[u8], open: usize) -> usize {
    bytes[open + 1..].iter().position(|&byte| byte == b'"').map_or(bytes.len(), |length| open + length + 2)
}

fn end_of_name(bytes: &[u8], start: usize) -> usize {
    if bytes.get(start) == Some(&b'"') {
        return end_of_string(bytes, start);
    }
    let is_part = |byte: &u8| byte.is_ascii_alphanumeric() || b"-$._".contains(byte);
    start + bytes[start..].iter().take_while(|byte| is_part(byte)).count()
}

fn unquoted(name: &str) -> &str {
    name.strip_prefix('"').and_then(|name| name.strip_suffix('"')).unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(line: &str) -> Vec<&str> {
        global_names(line).map(|(_, name)| name).collect()
    }

    #[test]
    fn finds_names_but_not_in_strings_and_comments() {
        let line = r#"  call void @f(ptr @"a b", ptr getelementptr (i8, ptr @T.1, i64 4)) "k"="@no" ; @no"#;
        assert_eq!(names(line), ["f", "a b", "T.1"]);
        assert_eq!(names(r#"@x = constant [2 x i8] c"@\22" ; "#), ["x"]);
    }

    #[test]
    fn finds_local_names() {
        let line = r#"  %.a.1 = select i1 %"b c", ptr %0, ptr %10, !x !{!"%no"}"#;
        let names: Vec<_> = local_names(line).map(|(_, name)| name).collect();
        assert_eq!(names, ["%.a.1", "%\"b c\"", "%0", "%10"]);
    }

    #[test]
    fn replaces_whole_names_only() {
        let line = "  %1 = select i1 %0, ptr @TILE, ptr @TILE2";
        let replaced = replace_names(line, |name| (name == "TILE").then(|| "X".to_owned()));
        assert_eq!(replaced, "  %1 = select i1 %0, ptr X, ptr @TILE2");
    }

    #[test]
    fn reads_variables() {
        let variable = Variable::parse("@\"a b\" = internal unnamed_addr addrspace(3) global i32 undef").unwrap();
        assert_eq!((variable.name, variable.writable, variable.is_generic()), ("a b", true, false));
        let variable = Variable::parse("@c = hidden constant [1 x i8] c\"x\", align 1").unwrap();
        assert_eq!((variable.name, variable.writable, variable.is_generic()), ("c", false, true));
        assert!(Variable::parse("@a = alias ptr, ptr @c").is_none());
    }

    #[test]
    fn reads_sections() {
        let line = r#"@x = global [1 x i8] c" section \22no\22", section ".shared", align 4"#;
        let (range, name) = section(line).unwrap();
        assert_eq!((&line[range], name), (r#", section ".shared""#, ".shared"));
        let line = r#"define void @f() #0 section "s" {"#;
        let (range, name) = section(line).unwrap();
        assert_eq!((&line[range], name), (r#" section "s""#, "s"));
    }

    #[test]
    fn reads_strings_of_bytes() {
        let bytes = |line| string_constant(line);
        assert_eq!(bytes(r#"@"c" = constant [4 x i8] c"a\00\22\\", align 8"#), Some(b"a\0\"\\".to_vec()));
        assert_eq!(bytes(r#"@x = constant <{ [2 x i8] }> <{ [2 x i8] c"\FFz" }>"#), Some(b"\xFFz".to_vec()));
        for bad in ["@x = constant i64 7", r#"@x = constant c"\0""#, r#"@x = constant c"\zz""#, "@x = constant c\"abc"]
        {
            assert_eq!(bytes(bad), None, "{bad}");
        }
    }

    #[test]
    fn matches_parentheses() {
        assert_eq!(parenthesized(r#"f(a (b) ")" c) d"#, 1), Some(r#"a (b) ")" c"#));
        assert_eq!(parenthesized("f(a", 1), None);
        assert_eq!([parenthesized("f a", 1), parenthesized("f)", 1), parenthesized("f", 1)], [None; 3]);
    }
}
