//! Which modules use which: every path of a crate, and the file that defines what it leads to.

use std::collections::BTreeMap;

use proc_macro2::TokenStream;
use syn::visit::{self, Visit};
use syn::{Attribute, Item};

use super::syntax::{ItemPath, attributes, is_for_tests, is_re_export, leaves, written};
use super::tokens;
use super::tree::{FileId, ItemId, ScopeId, Sought, Target, Tree};

/// What the modules of a crate use of one another.
#[derive(Default)]
pub(super) struct Uses {
    /// From which file to which, with one place where it is so.
    pub(super) edges: BTreeMap<(FileId, FileId), Example>,
    /// Paths that lead nowhere that is known.
    pub(super) unresolved: Vec<(FileId, Example)>,
}

/// A place, and what is written there.
#[derive(Clone, Debug)]
pub(super) struct Example {
    pub(super) line: usize,
    pub(super) written: String,
}

/// Reads every path of a crate.
pub(super) fn read(tree: &mut Tree) -> anyhow::Result<Uses> {
    let mut uses = Uses::default();
    for file in 0..tree.files.len() {
        let items = std::mem::take(&mut tree.files[file].items);
        let scope = tree.files[file].scope;
        let mut reader = Reader { tree, uses: &mut uses, file, scope, this: Vec::new(), error: None };
        items.iter().for_each(|item| reader.visit_item(item));
        if let Some(error) = reader.error {
            return Err(error);
        }
    }
    for (from, to, line, names) in &tree.declared_by_macros {
        let written = format!("the macro that declares `{}`", tree.files[*to].name);
        let scope = tree.files[*to].scope;
        // It may use whatever it is given that the module has.
        let items = names.iter().flat_map(|name| {
            let path = ItemPath { global: false, segments: vec!["self".to_owned(), name.clone()], line: *line };
            tree.resolve(scope, &path, Sought::AnythingElse)
        });
        let files = items.filter_map(|target| match target {
            Target::Item(item) => Some(tree.items[item].file),
            _ => None,
        });
        for file in files.chain([*to]) {
            uses.edges.entry((*from, file)).or_insert_with(|| Example { line: *line, written: written.clone() });
        }
    }
    Ok(uses)
}

struct Reader<'a> {
    tree: &'a mut Tree,
    uses: &'a mut Uses,
    file: FileId,
    scope: ScopeId,
    /// What `Self` is, innermost last, if it is of this crate.
    this: Vec<Option<ItemId>>,
    error: Option<anyhow::Error>,
}

/// What becomes of a path that leads nowhere.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Otherwise {
    List,
    Ignore,
}

impl Reader<'_> {
    /// Notes what a path uses; its targets.
    fn uses(&mut self, path: &ItemPath, sought: Sought, otherwise: Otherwise) -> Vec<Target> {
        if path.segments[0] == "Self" {
            if let (Some(Some(item)), Some(name)) = (self.this.last(), path.segments.get(1)) {
                self.associated(*item, name, path);
            }
            return vec![Target::External];
        }
        let targets = self.tree.resolve(self.scope, path, sought);
        for target in &targets {
            if let Target::Item(item) = *target {
                self.edge(self.tree.items[item].file, path);
                if let Some(last) = path.segments.last() {
                    self.associated(item, last, path);
                }
            }
        }
        if targets.is_empty() && otherwise == Otherwise::List {
            let written = path.to_string();
            self.uses.unresolved.push((self.file, Example { line: path.line, written }));
        }
        targets
    }

    /// Notes that something of a type's own is used, where that is defined in another file than the type.
    fn associated(&mut self, item: ItemId, name: &str, path: &ItemPath) {
        for file in self.tree.associated(item, name).to_vec() {
            self.edge(file, path);
        }
    }

    fn edge(&mut self, to: FileId, path: &ItemPath) {
        if to != self.file {
            let example = || Example { line: path.line, written: path.to_string() };
            self.uses.edges.entry((self.file, to)).or_insert_with(example);
        }
    }

    /// Notes what tokens use. `line`: where they are, if not where they are written.
    fn tokens(&mut self, tokens: &TokenStream, line: Option<usize>) {
        for mut mention in tokens::paths(tokens) {
            if let Some(line) = line {
                // What `$crate` leads to is used by the macro, not by those who call it.
                if mention.path.segments[0] == "$crate" {
                    continue;
                }
                mention.path.line = line;
            }
            let sought = if mention.is_macro { Sought::Macro } else { Sought::AnythingElse };
            let of_ours = ["crate", "$crate", "super", "self"].contains(&mention.path.segments[0].as_str());
            let list = of_ours && mention.path.segments.len() > 1 && line.is_none();
            self.uses(&mention.path, sought, if list { Otherwise::List } else { Otherwise::Ignore });
        }
    }
}

/// Whether a path that leads nowhere is a type of Rust's own or a generic parameter, with something of its own behind.
fn is_type_of_rust(path: &ItemPath) -> bool {
    const PRIMITIVE: &[&str] = &[
        "bool", "char", "f16", "f32", "f64", "i8", "i16", "i32", "i64", "i128", "isize", "str", "u8", "u16", "u32",
        "u64", "u128", "usize",
    ];
    let first = path.segments[0].as_str();
    first.starts_with(char::is_uppercase) || PRIMITIVE.contains(&first)
}

impl<'ast> Visit<'ast> for Reader<'_> {
    fn visit_item(&mut self, item: &'ast Item) {
        if !attributes(item).iter().any(is_for_tests) {
            visit::visit_item(self, item);
        }
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        if !item.attrs.iter().any(is_for_tests) {
            visit::visit_impl_item_fn(self, item);
        }
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        for leaf in leaves(item) {
            // A name may be a macro's, too.
            let as_macro = self.tree.resolve(self.scope, &leaf.path, Sought::Macro);
            let anything = self.tree.resolve(self.scope, &leaf.path, Sought::AnythingElse);
            let module = anything.iter().any(|target| matches!(target, Target::Module(_)));
            if (module || is_re_export(item)) && !(as_macro.is_empty() && anything.is_empty()) {
                continue;
            }
            let otherwise = if as_macro.is_empty() { Otherwise::List } else { Otherwise::Ignore };
            self.uses(&leaf.path, Sought::AnythingElse, otherwise);
            if !leaf.is_glob() {
                self.uses(&leaf.path, Sought::Macro, Otherwise::Ignore);
            }
        }
    }

    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        let Some((_, items)) = &item.content else { return };
        let Some(scope) = self.tree.inline_module(self.scope, &item.ident) else { return };
        let around = std::mem::replace(&mut self.scope, scope);
        items.iter().for_each(|item| self.visit_item(item));
        self.scope = around;
    }

    fn visit_item_macro(&mut self, item: &'ast syn::ItemMacro) {
        match item.ident {
            Some(_) => self.tokens(&item.mac.tokens, None),
            None => self.visit_macro(&item.mac),
        }
    }

    fn visit_item_impl(&mut self, item: &'ast syn::ItemImpl) {
        let this = match &*item.self_ty {
            syn::Type::Path(of) => self.tree.resolve(self.scope, &written(&of.path), Sought::AnythingElse),
            _ => Vec::new(),
        };
        self.this.push(this.iter().find_map(|target| match target {
            Target::Item(item) => Some(*item),
            _ => None,
        }));
        visit::visit_item_impl(self, item);
        self.this.pop();
    }

    fn visit_item_trait(&mut self, item: &'ast syn::ItemTrait) {
        self.this.push(None);
        visit::visit_item_trait(self, item);
        self.this.pop();
    }

    fn visit_block(&mut self, block: &'ast syn::Block) {
        let items: Vec<Item> = (block.stmts.iter())
            .filter_map(|statement| match statement {
                syn::Stmt::Item(item) => Some(item.clone()),
                _ => None,
            })
            .collect();
        let around = self.scope;
        if !items.is_empty() {
            match self.tree.block(around, &items) {
                Ok(scope) => self.scope = scope,
                Err(error) => self.error = Some(error),
            }
        }
        visit::visit_block(self, block);
        self.scope = around;
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let whole = written(path);
        let list = whole.segments.len() > 1 && !is_type_of_rust(&whole);
        self.uses(&whole, Sought::AnythingElse, if list { Otherwise::List } else { Otherwise::Ignore });
        visit::visit_path(self, path);
    }

    fn visit_pat_ident(&mut self, pattern: &'ast syn::PatIdent) {
        // A constant looks like a variable that is bound.
        let name = pattern.ident.to_string();
        if name.starts_with(char::is_uppercase) {
            let path = ItemPath { global: false, segments: vec![name], line: pattern.ident.span().start().line };
            self.uses(&path, Sought::AnythingElse, Otherwise::Ignore);
        }
        visit::visit_pat_ident(self, pattern);
    }

    fn visit_macro(&mut self, call: &'ast syn::Macro) {
        let path = written(&call.path);
        for target in self.uses(&path, Sought::Macro, Otherwise::Ignore) {
            if let Target::Item(item) = target
                && let Some(body) = self.tree.items[item].body.clone()
            {
                self.tokens(&body, Some(path.line));
            }
        }
        self.tokens(&call.tokens, None);
    }

    fn visit_attribute(&mut self, attribute: &'ast Attribute) {
        if let syn::Meta::List(list) = &attribute.meta {
            self.tokens(&list.tokens, None);
            for path in tokens::quoted_paths(&list.tokens) {
                self.uses(&path, Sought::AnythingElse, Otherwise::Ignore);
            }
        }
    }

    /// What an item is visible in is not used by it.
    fn visit_vis_restricted(&mut self, _: &'ast syn::VisRestricted) {}
}
