//! The text of PTX: what stands at the top of a module, what a statement says.

/// The directives at the head of a module, `.version`, `.target` and `.address_size`, each a line; and everything else
/// without comments, file names and line numbers.
pub(super) fn head_and_code(text: &str) -> (Vec<&str>, String) {
    let (head, _, code) = head_files_and_code(text, false);
    (head, code)
}

/// The same with the names of files, each a line; and with line numbers in the code, if they shall stay there.
pub(super) fn head_files_and_code(text: &str, with_lines: bool) -> (Vec<&str>, Vec<&str>, String) {
    let (mut head, mut files) = (Vec::new(), Vec::new());
    let mut code = String::with_capacity(text.len());
    for line in text.lines().map(without_comment) {
        // These directives end with the line, all others with `;`.
        match line.split_ascii_whitespace().next() {
            Some(".version" | ".target" | ".address_size") => head.push(line.trim()),
            Some(".file") => files.push(line.trim()),
            Some(".loc") if !with_lines => {}
            _ => {
                code.push_str(line);
                code.push('\n');
            }
        }
    }
    (head, files, code)
}

/// What stands at the top of a module.
pub(super) enum Item<'a> {
    /// A kernel or a function: what stands before the braces, and in between.
    Function { header: &'a str, body: &'a str },
    /// A variable or a prototype, without its `;`.
    Statement(&'a str),
}

impl<'a> Item<'a> {
    /// What the item defines or declares; `None` if that is nothing with a name.
    pub(super) fn name(&self) -> Option<&'a str> {
        let (Self::Function { header: declaration, .. } | Self::Statement(declaration)) = *self;
        // A kernel before anything else, as `Function::parse` has it.
        let has = |directive: &&str| words(declaration).any(|word| word == *directive);
        if let Some(directive) = [".entry", ".func"].into_iter().find(has) {
            return function_name(declaration, directive);
        }
        let is_variable = words(declaration).any(|word| matches!(word, ".shared" | ".global" | ".const"));
        // The initial value may name other variables.
        let declaration = declaration.split(['=', '[']).next().filter(|_| is_variable)?;
        words(declaration).last()
    }

    /// Whether it is a kernel.
    pub(super) fn is_kernel(&self) -> bool {
        matches!(self, Self::Function { header, .. } if words(header).any(|word| word == ".entry"))
    }

    /// The item as it stands in the module.
    pub(super) fn text(&self) -> String {
        match self {
            Self::Function { header, body } => format!("{}\n{{{body}}}\n", header.trim()),
            Self::Statement(statement) => format!("{};\n", statement.trim()),
        }
    }
}

/// The functions and statements at the top; `None` if a brace or a `;` is missing.
pub(super) fn items(code: &str) -> Option<Vec<Item<'_>>> {
    let mut items = Vec::new();
    let mut rest = code;
    while !rest.trim().is_empty() {
        let end = rest.find([';', '{'])?;
        let head = &rest[..end];
        if rest[end..].starts_with(';') {
            items.push(Item::Statement(head));
            rest = &rest[end + 1..];
        } else if words(head).any(|word| word == ".entry" || word == ".func") {
            let close = closing_brace(rest, end)?;
            items.push(Item::Function { header: head, body: &rest[end + 1..close] });
            rest = &rest[close + 1..];
        } else {
            // The braces of an initial value.
            let close = closing_brace(rest, end)?;
            let end = close + rest[close..].find(';')?;
            items.push(Item::Statement(&rest[..end]));
            rest = &rest[end + 1..];
        }
    }
    Some(items)
}

fn closing_brace(text: &str, open: usize) -> Option<usize> {
    let mut depth = 0usize;
    for (at, byte) in text.bytes().enumerate().skip(open) {
        match byte {
            b'{' => depth += 1,
            b'}' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return Some(at);
        }
    }
    None
}

/// A statement of a body without what may stand before the opcode: the braces of a scope, labels, a guard.
pub(super) fn instruction(statement: &str) -> &str {
    let mut rest = statement.trim_start_matches(|c: char| c.is_whitespace() || c == '{' || c == '}');
    loop {
        let word = rest.split_ascii_whitespace().next().unwrap_or("");
        if word.ends_with(':') || word.starts_with('@') {
            rest = rest[word.len()..].trim_start_matches(|c: char| c.is_whitespace() || c == '{');
        } else {
            return rest.trim_end();
        }
    }
}

/// Whether PTX, or the text of inline assembly in LLVM IR, has an instruction with this opcode.
pub(crate) fn has_opcode(ptx: &str, opcode: &str) -> bool {
    let text = ptx.replace("\\0A", "\n");
    text.split(';').any(|statement| instruction(statement).split_ascii_whitespace().next() == Some(opcode))
}

/// The words of PTX: names, directives and numbers.
pub(super) fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !(c.is_ascii_alphanumeric() || "_$.%".contains(c))).filter(|word| !word.is_empty())
}

/// The function's name: the first word after the directive, or after the parenthesis with the result.
pub(super) fn function_name<'a>(header: &'a str, directive: &str) -> Option<&'a str> {
    let after = header.split_once(directive)?.1.trim_start();
    let after = if after.starts_with('(') { after.split_once(')')?.1 } else { after };
    words(after).next()
}

/// The name and the size in bytes of a variable: `.shared .align 4 .b8 NAME[1024]`, `.b32 NAME`.
pub(super) fn array(statement: &str) -> Option<(String, u64)> {
    let (declaration, count) = match statement.split_once('[') {
        // No number: an array that the launch sizes.
        Some((declaration, rest)) => (declaration, rest.split(']').next()?.trim().parse().unwrap_or(0)),
        None => (statement, 1),
    };
    let name = words(declaration).last()?;
    let bits: u64 = words(declaration).find_map(|word| {
        let kind = word.strip_prefix('.')?;
        kind.strip_prefix(['b', 'u', 's', 'f'])?.parse().ok()
    })?;
    Some((name.to_owned(), (bits / 8).saturating_mul(count)))
}

/// The numbers of a version: `7.4`.
pub(super) fn parse_version(word: &str) -> Option<(u32, u32)> {
    let (major, minor) = word.split_once('.')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

fn without_comment(line: &str) -> &str {
    line.split_once("//").map_or(line, |(code, _)| code)
}
