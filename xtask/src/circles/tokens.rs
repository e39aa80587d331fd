//! Paths in tokens that nobody has parsed: what a macro is given, and what it expands to.

use proc_macro2::{TokenStream, TokenTree};
use syn::ext::IdentExt as _;

use super::syntax::ItemPath;

/// A path that tokens seem to contain.
pub(super) struct Mention {
    pub(super) path: ItemPath,
    /// Whether a `!` comes after it.
    pub(super) is_macro: bool,
}

/// Words after which a name is defined, not used.
const DEFINING: &[&str] =
    &["fn", "struct", "enum", "union", "trait", "type", "const", "static", "mod", "let", "macro_rules"];

/// The paths in tokens, as far as they can be told: names of fields and arguments, methods and lifetimes are none.
pub(super) fn paths(tokens: &TokenStream) -> Vec<Mention> {
    let mut found = Vec::new();
    gather(tokens, &mut found);
    found
}

fn gather(tokens: &TokenStream, found: &mut Vec<Mention>) {
    let tokens: Vec<TokenTree> = tokens.clone().into_iter().collect();
    let is = |at: usize, what: char| matches!(tokens.get(at), Some(TokenTree::Punct(punct)) if punct.as_char() == what);
    let ident = |at: usize| match tokens.get(at) {
        Some(TokenTree::Ident(name)) => Some(name.unraw().to_string()),
        _ => None,
    };
    let mut at = 0;
    while at < tokens.len() {
        let begin = at;
        at += 1;
        let first = match &tokens[begin] {
            TokenTree::Group(group) => {
                gather(&group.stream(), found);
                continue;
            }
            TokenTree::Ident(name) => name,
            _ => continue,
        };
        let mut segments = vec![first.unraw().to_string()];
        while is(at, ':')
            && is(at + 1, ':')
            && let Some(next) = ident(at + 2)
        {
            segments.push(next);
            at += 3;
        }
        let before = |count: usize, what: char| begin >= count && is(begin - count, what);
        if before(1, '$') {
            if segments[0] != "crate" {
                continue;
            }
            segments[0] = "$crate".to_owned();
        }
        let method = before(1, '.') && !before(2, '.');
        let continued = before(1, ':') && before(2, ':');
        let defined = begin > 0 && ident(begin - 1).is_some_and(|word| DEFINING.contains(&word.as_str()));
        let named = segments.len() == 1
            && (is(at, ':') && !is(at + 1, ':') || is(at, '=') && !is(at + 1, '=') && !is(at + 1, '>'));
        if method || continued || defined || named || before(1, '\'') {
            continue;
        }
        let path = ItemPath { global: false, segments, line: first.span().start().line };
        found.push(Mention { path, is_macro: is(at, '!') && !is(at + 1, '=') });
    }
}

/// The paths that literal strings among the tokens consist of, as in `#[serde(with = "a::b")]`.
pub(super) fn quoted_paths(tokens: &TokenStream) -> Vec<ItemPath> {
    let mut found = Vec::new();
    for token in tokens.clone() {
        match token {
            TokenTree::Group(group) => found.extend(quoted_paths(&group.stream())),
            TokenTree::Literal(literal) => {
                let Ok(text) = syn::parse_str::<syn::LitStr>(&literal.to_string()) else { continue };
                let Ok(path) = text.parse::<syn::Path>() else { continue };
                let line = literal.span().start().line;
                found.push(ItemPath { line, ..super::syntax::written(&path) });
            }
            _ => {}
        }
    }
    found
}

/// Every identifier.
pub(super) fn identifiers(tokens: &TokenStream) -> impl Iterator<Item = String> {
    identifiers_at(tokens).into_iter().map(|(name, _)| name)
}

/// Every identifier, and the line that it is on.
pub(super) fn identifiers_at(tokens: &TokenStream) -> Vec<(String, usize)> {
    let mut found = Vec::new();
    for token in tokens.clone() {
        match token {
            TokenTree::Ident(name) => found.push((name.unraw().to_string(), name.span().start().line)),
            TokenTree::Group(group) => found.extend(identifiers_at(&group.stream())),
            _ => {}
        }
    }
    found
}
