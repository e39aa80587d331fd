//! A form of PTX in which two kernels are the same text if they differ in nothing but names.
//!
//! ```text
//! .shared .align 4 .b8 _RNvNvCs9LJ…TILE[64];           .visible .entry kernel
//! .visible .entry scale(                               (
//!     .param .u64 scale_param_0                        .param .u64 param#1)
//! )                                                    .reqntid 32, 1, 1
//! .reqntid 32, 1, 1                                    {
//! {                                                    ld.param.b64 %b64#1, [param#1];
//!     .reg .b64 %rd<7>;                          ──►   label#1:
//! // %bb.0:                                            st.shared.b32 [symbol#1 + 4], %b64#1;
//!     ld.param.b64 %rd6, [scale_param_0];              @%pred#1 bra label#1;
//! $L__BB3_2:                                           }
//!     st.shared.b32 [_RNvNvCs9LJ…TILE+4], %rd6;        .shared .align 4 .b8 symbol#1[64];
//!     @%p3 bra $L__BB3_2;
//! }
//! ```
//!
//! Whatever the module itself gives a name to is numbered in the order in which the kernel comes to it. What has a meaning
//! outside stays: opcodes, directives, numbers, special registers, functions that are defined elsewhere.

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};

use super::check_error::CheckError;
use super::text::{Item, head_and_code, items};

/// Variables in memory, wherever they are declared. Parameters are another matter: a function's stand in its header.
const VARIABLES: [&str; 4] = [".local", ".shared", ".global", ".const"];

/// A module with one kernel, such as [`split_by_kernel`](super::split_by_kernel) makes, without comments, an instruction on
/// each line, and with numbers for all names that mean nothing outside of it.
///
/// Two modules have the same normal form if one becomes the other by new names for its kernel, functions, variables,
/// parameters, registers and labels, and by another order of its functions and variables. Otherwise they have not.
///
/// # Errors
/// [`CheckError::Malformed`] if it is no PTX, or has not exactly one kernel.
pub fn normal_form(ptx: &str) -> Result<String, CheckError> {
    let malformed = |what: &str| CheckError::Malformed(what.to_owned());
    let (head, code) = head_and_code(ptx);
    let items = items(&code).ok_or_else(|| malformed("it ends in the middle of something"))?;
    let mut kernels = items.iter().filter_map(|item| item.name().filter(|_| item.is_kernel()));
    let (Some(kernel), None) = (kernels.next(), kernels.next()) else {
        return Err(malformed("it has not exactly one kernel"));
    };

    let texts: Vec<(bool, String)> =
        items.iter().map(|item| (matches!(item, Item::Function { .. }), item.text())).collect();
    let mut named: HashMap<&str, Vec<Definition<'_>>> = HashMap::new();
    let mut nameless = BTreeSet::new();
    for (item, (is_function, text)) in items.iter().zip(&texts) {
        let definition = Definition { is_function: *is_function, tokens: tokens(text) };
        match item.name() {
            Some(name) => named.entry(name).or_default().push(definition),
            None => drop(nameless.insert(definition.tokens.join(" "))),
        }
    }
    for definitions in named.values_mut() {
        definitions.sort_by_key(|definition| definition.is_function);
    }

    let mut symbols =
        Symbols { named: &named, numbers: HashMap::from([(kernel, "kernel".to_owned())]), open: VecDeque::new() };
    symbols.open.push_back(kernel);
    let mut out = head.join("\n") + "\n";
    while let Some(name) = symbols.open.pop_front() {
        for definition in &named[name] {
            Writer::new(&mut symbols, &definition.tokens, name).write(definition.is_function, &mut out);
        }
    }
    out.extend(nameless.iter().map(|statement| format!("{statement}\n")));
    Ok(out)
}

/// Something that stands at the top of a module.
struct Definition<'a> {
    /// With a body.
    is_function: bool,
    tokens: Vec<&'a str>,
}

impl Definition<'_> {
    /// Whether it only says that there is such a function.
    fn is_prototype(&self) -> bool {
        !self.is_function && self.tokens.contains(&".func")
    }
}

/// What the module defines, and what of it the kernel has come to.
struct Symbols<'a, 'm> {
    named: &'m HashMap<&'a str, Vec<Definition<'a>>>,
    numbers: HashMap<&'a str, String>,
    /// Numbered, and not written yet.
    open: VecDeque<&'a str>,
}

impl<'a> Symbols<'a, '_> {
    fn name(&mut self, word: &str) -> Option<String> {
        let (&name, definitions) = self.named.get_key_value(word)?;
        if let Some(number) = self.numbers.get(name) {
            return Some(number.clone());
        }
        self.open.push_back(name);
        // What is defined elsewhere is known by its name.
        let outside = definitions.iter().all(Definition::is_prototype);
        let number = if outside { name.to_owned() } else { format!("symbol#{}", self.numbers.len()) };
        self.numbers.insert(name, number.clone());
        Some(number)
    }
}

/// What a name in a function is declared as.
#[derive(Clone)]
struct Declared {
    /// `%b32` for registers of that type, `param`, `variable`.
    kind: String,
    /// Whether it is the beginning of many: `%r<7>` declares `%r0` to `%r6`.
    is_range: bool,
}

/// Writes one item with its names replaced.
struct Writer<'a, 's, 'm> {
    symbols: &'s mut Symbols<'a, 'm>,
    tokens: &'s [&'a str],
    own_name: &'a str,
    labels: HashSet<&'a str>,
    /// What the braces that are open have declared, the innermost last, each under a number of its own.
    scopes: Vec<(usize, HashMap<&'a str, Declared>)>,
    scopes_seen: usize,
    /// What has a number: by the scope that it belongs to, and its name.
    numbers: HashMap<(usize, &'a str), String>,
    counts: HashMap<String, usize>,
    /// Variables that the function declares: the scope and the name of each, and the declaration.
    variables: Vec<((usize, &'a str), &'s [&'a str])>,
    line: String,
}

/// The scope that a function's labels are in, wherever they stand.
const LABELS: usize = usize::MAX;

impl<'a, 's, 'm> Writer<'a, 's, 'm> {
    fn new(symbols: &'s mut Symbols<'a, 'm>, tokens: &'s [&'a str], own_name: &'a str) -> Self {
        let labels = tokens.windows(2).filter(|pair| pair[1] == ":" && is_name(pair[0])).map(|pair| pair[0]).collect();
        Self {
            symbols,
            tokens,
            own_name,
            labels,
            scopes: vec![(0, HashMap::new())],
            scopes_seen: 1,
            numbers: HashMap::new(),
            counts: HashMap::new(),
            variables: Vec::new(),
            line: String::new(),
        }
    }

    fn write(mut self, is_function: bool, out: &mut String) {
        let header = self.tokens.iter().position(|&token| token == "{").filter(|_| is_function);
        let (header, body) = self.tokens.split_at(header.unwrap_or(self.tokens.len()));
        self.header(header, out);
        self.body(body, out);
        self.end_line(out);
        self.write_variables(out);
    }

    /// The variables that the function declares, in the order in which it comes to them, and then those that it does not use.
    fn write_variables(&mut self, out: &mut String) {
        let mut lines = Vec::new();
        for (key, declaration) in std::mem::take(&mut self.variables) {
            let number = self.numbers.get(&key).cloned().unwrap_or_else(|| "unused".to_owned());
            for &token in declaration {
                let text = if token == key.1 { number.clone() } else { self.replaced(token) };
                self.push(&text);
            }
            lines.push((number.len(), number, std::mem::take(&mut self.line)));
        }
        lines.sort();
        out.extend(lines.iter().map(|(.., line)| format!("{line}\n")));
    }

    /// The header of a function, or the whole of a statement.
    fn header(&mut self, tokens: &[&'a str], out: &mut String) {
        let mut has_parameters = false;
        for &token in tokens {
            if token == ".param" && self.line.ends_with(['(', ',']) || matches!(token, ".reqntid" | ".maxntid") {
                self.end_line(out);
            }
            has_parameters |= matches!(token, ".param" | ".reg");
            if has_parameters && is_name(token) && token != self.own_name {
                self.declare(token, "param", false);
            }
            let text = self.replaced(token);
            self.push(&text);
        }
        self.end_line(out);
    }

    fn body(&mut self, tokens: &'s [&'a str], out: &mut String) {
        let mut at = 0;
        while let Some(&token) = tokens.get(at) {
            let end = at + tokens[at..].iter().position(|&token| token == ";").unwrap_or(tokens.len() - at - 1) + 1;
            match token {
                "{" => {
                    self.scopes.push((self.scopes_seen, HashMap::new()));
                    self.scopes_seen += 1;
                    self.push(token);
                    self.end_line(out);
                    at += 1;
                }
                "}" => {
                    self.scopes.pop();
                    self.push(token);
                    self.end_line(out);
                    at += 1;
                }
                ";" => at += 1,
                label if tokens.get(at + 1) == Some(&":") => {
                    let text = self.replaced(label);
                    self.push(&text);
                    self.push(":");
                    self.end_line(out);
                    at += 2;
                }
                "@" => {
                    // A guard, perhaps with a `!`. The instruction follows on the same line.
                    let length = if tokens.get(at + 1) == Some(&"!") { 3 } else { 2 };
                    for token in &tokens[at..(at + length).min(tokens.len())] {
                        let text = self.replaced(token);
                        self.push(&text);
                    }
                    at += length;
                }
                ".reg" => {
                    self.registers(&tokens[at + 1..end]);
                    at = end;
                }
                space if VARIABLES.contains(&space) => {
                    if let Some(name) = first_name(&tokens[at..end]) {
                        let scope = self.declare(name, "variable", false);
                        self.variables.push(((scope, name), &tokens[at..end]));
                    }
                    at = end;
                }
                opcode => {
                    if opcode == ".param"
                        && let Some(name) = first_name(&tokens[at..end])
                    {
                        self.declare(name, "param", false);
                    }
                    self.push(opcode);
                    for token in &tokens[at + 1..end] {
                        let text = self.replaced(token);
                        self.push(&text);
                    }
                    self.end_line(out);
                    at = end;
                }
            }
        }
    }

    /// `.reg .b32 %r<7>, sum;`, whose type becomes part of the names.
    fn registers(&mut self, declaration: &[&'a str]) {
        let kind: String =
            declaration.iter().take_while(|token| token.starts_with('.')).map(|part| &part[1..]).collect();
        for (at, &token) in declaration.iter().enumerate().filter(|(_, token)| is_name(token)) {
            self.declare(token, &format!("%{kind}"), declaration.get(at + 1) == Some(&"<"));
        }
    }

    /// Takes a name for something declared here, and gives the number of the braces that it is declared in.
    fn declare(&mut self, name: &'a str, kind: &str, is_range: bool) -> usize {
        let Some((number, scope)) = self.scopes.last_mut().filter(|_| name != "_") else { return 0 };
        scope.insert(name, Declared { kind: kind.to_owned(), is_range });
        *number
    }

    /// The token, or the number that takes its place.
    fn replaced(&mut self, token: &'a str) -> String {
        if !is_name(token) {
            return token.to_owned();
        }
        for (scope, declared) in self.scopes.iter().rev() {
            if let Some((name, kind)) = declared_in(declared, token) {
                let (key, kind) = ((*scope, name), kind.to_owned());
                return self.numbered(key, &kind) + &token[name.len()..];
            }
        }
        if self.labels.contains(token) {
            return self.numbered((LABELS, token), "label");
        }
        self.symbols.name(token).unwrap_or_else(|| token.to_owned())
    }

    fn numbered(&mut self, key: (usize, &'a str), kind: &str) -> String {
        let counts = &mut self.counts;
        let number = self.numbers.entry(key).or_insert_with(|| {
            let count = counts.entry(kind.to_owned()).or_default();
            *count += 1;
            format!("{kind}#{count}")
        });
        number.clone()
    }

    fn push(&mut self, text: &str) {
        let tight = self.line.is_empty()
            || self.line.ends_with(['(', '[', '{', '@', '!'])
            || [",", ";", ")", "]", "}", ":"].contains(&text)
            // The size in a declaration.
            || text == "[" && self.line.starts_with('.');
        if !tight {
            self.line.push(' ');
        }
        self.line.push_str(text);
    }

    fn end_line(&mut self, out: &mut String) {
        if !self.line.is_empty() {
            out.push_str(&self.line);
            out.push('\n');
            self.line.clear();
        }
    }
}

/// The declared name that a word is, without the element of a vector that it may end with, and what it is declared as.
fn declared_in<'a, 'd>(declared: &'d HashMap<&str, Declared>, word: &'a str) -> Option<(&'a str, &'d str)> {
    let name = match word.split_once('.') {
        Some((name, "x" | "y" | "z" | "w" | "r" | "g" | "b" | "a")) => name,
        _ => word,
    };
    if let Some(found) = declared.get(name).filter(|found| !found.is_range) {
        return Some((name, &found.kind));
    }
    let digits = name.len() - name.trim_end_matches(|c: char| c.is_ascii_digit()).len();
    let found =
        (1..=digits).find_map(|digits| declared.get(&name[..name.len() - digits]).filter(|found| found.is_range));
    Some((name, &found?.kind))
}

fn first_name<'a>(tokens: &[&'a str]) -> Option<&'a str> {
    tokens.iter().copied().find(|token| is_name(token))
}

/// Whether a token can be a name: no directive, no number, no punctuation.
fn is_name(token: &str) -> bool {
    token.starts_with(|c: char| c.is_ascii_alphabetic() || "_$%".contains(c))
}

/// The words, strings and signs of PTX without comments. A word may have dots and pairs of colons in it.
fn tokens(text: &str) -> Vec<&str> {
    let is_word = |c: char| c.is_ascii_alphanumeric() || "_$.%".contains(c);
    let mut tokens = Vec::new();
    let mut rest = text.trim_start();
    while let Some(first) = rest.chars().next() {
        let length = if is_word(first) {
            let mut length = 0;
            loop {
                length += rest[length..].find(|c| !is_word(c)).unwrap_or(rest.len() - length);
                match rest[length..].strip_prefix("::") {
                    Some(after) if after.starts_with(is_word) => length += 2,
                    _ => break length,
                }
            }
        } else if first == '"' {
            rest[1..].find('"').map_or(rest.len(), |end| end + 2)
        } else if rest.starts_with("//") {
            rest = rest.split_once('\n').map_or("", |(_, after)| after).trim_start();
            continue;
        } else if rest.starts_with("/*") {
            rest = rest.split_once("*/").map_or("", |(_, after)| after).trim_start();
            continue;
        } else {
            first.len_utf8()
        };
        let (token, after) = rest.split_at(length);
        tokens.push(token);
        rest = after.trim_start();
    }
    tokens
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inspect::split_by_kernel;

    const MODULE: &str = r#"
.version 8.0
.target sm_90a
.address_size 64
.extern .shared .align 1024 .b8 dynamic[];
.extern .func (.param .b32 result) vprintf(.param .b64 text, .param .b64 list);
.global .align 4 .u32 numbers[3] = {1, 2, 3};
.global .align 8 .u64 table[2] = {generic(numbers), 0};
.shared .align 4 .b8 TILE[64];
.func (.param .b32 result) leaf(.param .b64 at) { .reg .b64 %rd<2>; ld.param.b64 %rd1, [at]; ret; }
.visible .entry scale(
	.param .u64 .ptr .align 1 scale_param_0,
	.param .align 8 .b8 scale_param_1[184]
)
.reqntid 32, 8, 1
.minnctapersm 2
{
	.reg .pred %p<3>;
	.reg .b32 %r<9>;
	.reg .b64 %rd<9>;
	.shared .align 4 .b8 FIRST[16];
	.shared .align 4 .b8 SECOND[32];
// %bb.0:
	ld.param.b64 %rd6, [scale_param_0];
	ld.param.b32 %r7, [scale_param_1+176];
	mov.u32 %r1, %tid.x;
	mov.b64 {_, %r2}, %rd6;
	{ .reg .pred add; setp.ne.u32 add, 1, 0; selp.u32 %r3, 1, 0, add; }
$L__BB3_2: // in Loop: Header=BB3_2 Depth=1
	st.shared.f32 [FIRST+4], 0f3F800000; st.shared.b32 [SECOND], -1;
	st.shared.b32 [TILE], %r1;
	ld.global.u64 %rd2, [table+8];
	mbarrier.init.shared::cta.b64 [dynamic], %r2;
	{ // callseq 0, 0
	.param .b64 param0;
	st.param.b64 [param0], %rd2;
	.param .b32 retval0;
	call.uni (retval0), leaf, (param0);
	call.uni (retval0), vprintf, (param0, param0);
	}
	.pragma "nounroll";
	setp.lt.u32 %p1, %r3, %r7;
	@!%p1 bra $L__BB3_2;
	bra.uni $L__BB3_3;
$L__BB3_3:
	ret;
}
"#;

    fn form(text: &str) -> String {
        normal_form(text).unwrap()
    }

    fn changed(from: &str, to: &str) -> String {
        assert!(MODULE.contains(from), "{from}");
        MODULE.replace(from, to)
    }

    #[test]
    fn names_order_and_comments_make_no_difference() {
        for (from, to) in [
            ("scale", "gemm_scale_fp32"),
            ("TILE", "_RNvNvCs9LJRQkWU6zP_4TILE"),
            ("FIRST", "zz_first"),
            ("numbers", "anon.1"),
            ("leaf", "other"),
            ("dynamic", "launch_sized"),
            ("BB3_2", "BB17_40"),
            ("%r7", "%r8"),
            ("%rd6", "%rd5"),
            ("%rd<9>", "%rd<900>"),
            ("%p", "%pred"),
            ("param0", "argument7"),
            ("retval0", "r"),
            ("{ .reg .pred add; setp.ne.u32 add, 1, 0;", "{\n.reg .pred p, q;\nsetp.ne.u32 q, 1, 0;"),
            ("32 %r3, 1, 0, add;", "32 %r3, /* add */ 1, 0, add;"),
            ("// callseq 0, 0", "// callseq 7, 0"),
            ("\tret;", "\n\n   ret ; // end"),
            (
                "\t.shared .align 4 .b8 FIRST[16];\n\t.shared .align 4 .b8 SECOND[32];\n",
                "\t.shared .align 4 .b8 SECOND[32];\n\t.shared .align 4 .b8 FIRST[16];\n",
            ),
            ("\t.reg .b32 %r<9>;\n\t.reg .b64 %rd<9>;\n", "\t.reg .b64 %rd<9>;\n\t.reg .b32 %r<9>;\n"),
        ] {
            // All of a block of inline assembly, or nothing.
            let changed = match from.starts_with('{') {
                true => changed(from, to).replace("1, 0, add;", "1, 0, q;"),
                false => changed(from, to),
            };
            assert_eq!(form(&changed), form(MODULE), "{from} -> {to}");
        }
        let tile = ".shared .align 4 .b8 TILE[64];\n";
        let (head, rest) = MODULE.split_once(tile).unwrap();
        assert_eq!(form(&format!("{head}{rest}{tile}")), form(MODULE), "the order of variables");
    }

    #[test]
    fn everything_else_does() {
        for (from, to) in [
            (".version 8.0", ".version 8.3"),
            (".target sm_90a", ".target sm_90"),
            ("st.shared.f32 [FIRST", "st.shared.b32 [FIRST"),
            ("st.shared.b32 [TILE]", "st.b32 [TILE]"),
            ("st.shared.b32 [TILE]", "st.global.b32 [TILE]"),
            ("[FIRST+4]", "[FIRST+8]"),
            ("[FIRST+4]", "[SECOND+4]"),
            ("0f3F800000", "0f3F800001"),
            ("-1;", "1;"),
            ("%tid.x", "%tid.y"),
            ("{1, 2, 3}", "{1, 2, 4}"),
            ("{generic(numbers), 0}", "{0, generic(numbers)}"),
            ("TILE[64]", "TILE[128]"),
            ("TILE[64]", "TILE[64] = {1}"),
            (".align 1024", ".align 128"),
            ("FIRST[16]", "FIRST[20]"),
            (".reqntid 32, 8, 1", ".reqntid 32, 4, 1"),
            (".minnctapersm 2", ".minnctapersm 1"),
            (".minnctapersm 2\n", ""),
            ("scale_param_1[184]", "scale_param_1[192]"),
            ("[scale_param_1+176]", "[scale_param_1+160]"),
            ("[scale_param_0]", "[scale_param_1]"),
            (".param .u64 .ptr .align 1", ".param .u64 .ptr .align 4"),
            ("vprintf", "vprintf2"),
            ("{_, %r2}", "{%r2, _}"),
            ("%r3, %r7", "%r7, %r3"),
            (".pred %p<3>", ".b32 %p<3>"),
            ("@!%p1", "@%p1"),
            ("bra.uni $L__BB3_3", "bra.uni $L__BB3_2"),
            ("nounroll", "unroll"),
            ("[table+8]", "[table]"),
            ("ld.param.b64 %rd1, [at]; ret;", "ret;"),
            ("shared::cta", "shared::cluster"),
            ("(param0, param0)", "(param0, retval0)"),
            ("\tret;", "\tret;\n\tret;"),
        ] {
            assert_ne!(form(&changed(from, to)), form(MODULE), "{from} -> {to}");
        }
    }

    /// What the module has beside a kernel is no part of it, and where the kernel stands is none either.
    #[test]
    fn a_kernel_is_the_same_whatever_stands_beside_it() {
        let other =
            ".shared .b8 A[4];\n.visible .entry a() .reqntid 1 { .reg .b32 %r<2>; st.shared.b32 [A], %r1; ret; }\n";
        let kernel = |modules: &[(String, String)]| {
            let (_, module) = modules.iter().find(|(name, _)| name == "scale").unwrap();
            form(module)
        };
        let (head, rest) = MODULE.split_at(MODULE.find(".extern .shared").unwrap());
        for together in [format!("{head}{other}{rest}"), format!("{MODULE}{other}")] {
            assert_eq!(kernel(&split_by_kernel(&together).unwrap()), form(MODULE));
        }
    }

    #[test]
    fn reads_like_ptx() {
        let form = form(MODULE);
        let lines: Vec<_> = form.lines().collect();
        for line in [
            ".visible .entry kernel (",
            ".param .align 8 .b8 param#2[184])",
            ".reqntid 32, 8, 1 .minnctapersm 2",
            "ld.param.b32 %b32#1, [param#2 + 176];",
            "label#1:",
            "@!%pred#2 bra label#1;",
            ".shared .align 4 .b8 variable#1[16];",
        ] {
            assert!(lines.contains(&line), "{line} in\n{form}");
        }
    }

    #[test]
    fn takes_one_kernel_and_nothing_else() {
        for text in ["", ".version 8.0\n.target sm_80\n", ".version 8.0\n.visible .entry k() {"] {
            assert!(matches!(normal_form(text), Err(CheckError::Malformed(_))), "{text}");
        }
        let two = format!("{MODULE}.visible .entry k() {{ ret; }}");
        assert!(matches!(normal_form(&two), Err(CheckError::Malformed(_))));
    }
}
