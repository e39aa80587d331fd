//! What is read from the syntax tree alone: paths, names, and what is for tests only.

use syn::ext::IdentExt as _;
use syn::{Attribute, Item, UseTree, Visibility};

/// A path as it is written.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct ItemPath {
    /// Whether it begins with `::`.
    pub(super) global: bool,
    pub(super) segments: Vec<String>,
    pub(super) line: usize,
}

impl std::fmt::Display for ItemPath {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.global {
            f.write_str("::")?;
        }
        f.write_str(&self.segments.join("::"))
    }
}

/// A name that a `use` brings in, or a `*`, which has none.
pub(super) struct Leaf {
    pub(super) path: ItemPath,
    pub(super) name: Option<String>,
}

impl Leaf {
    pub(super) fn is_glob(&self) -> bool {
        self.name.is_none()
    }
}

/// The names that a `use` brings in.
pub(super) fn leaves(item: &syn::ItemUse) -> Vec<Leaf> {
    let mut found = Vec::new();
    let line = item.use_token.span.start().line;
    gather(&item.tree, &ItemPath { global: item.leading_colon.is_some(), segments: Vec::new(), line }, &mut found);
    found
}

fn gather(tree: &UseTree, before: &ItemPath, found: &mut Vec<Leaf>) {
    let with = |name: &syn::Ident| {
        let mut path = before.clone();
        path.line = name.span().start().line;
        // `use a::{self}` is `use a`.
        if name != "self" || path.segments.is_empty() {
            path.segments.push(name.unraw().to_string());
        }
        path
    };
    match tree {
        UseTree::Path(part) => gather(&part.tree, &with(&part.ident), found),
        UseTree::Name(leaf) => {
            let path = with(&leaf.ident);
            let name = path.segments.last().cloned();
            found.push(Leaf { path, name });
        }
        UseTree::Rename(leaf) => {
            found.push(Leaf { path: with(&leaf.ident), name: Some(leaf.rename.unraw().to_string()) });
        }
        UseTree::Glob(_) => found.push(Leaf { path: before.clone(), name: None }),
        UseTree::Group(group) => group.items.iter().for_each(|tree| gather(tree, before, found)),
    }
}

/// Whether a `use` only hands names on.
pub(super) fn is_re_export(item: &syn::ItemUse) -> bool {
    match &item.vis {
        Visibility::Inherited => false,
        Visibility::Restricted(restricted) => !restricted.path.is_ident("self"),
        Visibility::Public(_) => true,
    }
}

/// A path of the syntax tree.
pub(super) fn written(path: &syn::Path) -> ItemPath {
    ItemPath {
        global: path.leading_colon.is_some(),
        segments: path.segments.iter().map(|segment| segment.ident.unraw().to_string()).collect(),
        line: path.segments.first().map_or(0, |segment| segment.ident.span().start().line),
    }
}

/// Whether an attribute keeps something out of everything but tests.
pub(super) fn is_for_tests(attribute: &Attribute) -> bool {
    if attribute.path().is_ident("test") {
        return true;
    }
    attribute.path().is_ident("cfg") && attribute.parse_args::<syn::Meta>().is_ok_and(|meta| needs_test(&meta))
}

fn needs_test(condition: &syn::Meta) -> bool {
    let parts = |list: &syn::MetaList| {
        let parser = syn::punctuated::Punctuated::<syn::Meta, syn::Token![,]>::parse_terminated;
        list.parse_args_with(parser).unwrap_or_default()
    };
    match condition {
        syn::Meta::Path(path) => path.is_ident("test") || path.is_ident("doctest"),
        syn::Meta::List(list) if list.path.is_ident("all") => parts(list).iter().any(needs_test),
        syn::Meta::List(list) if list.path.is_ident("any") => parts(list).iter().all(needs_test),
        _ => false,
    }
}

pub(super) fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::ExternCrate(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::ForeignMod(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::TraitAlias(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Union(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

/// The name of an item that has one and is neither a module nor a macro.
pub(super) fn name(item: &Item) -> Option<&syn::Ident> {
    Some(match item {
        Item::Const(item) => &item.ident,
        Item::Enum(item) => &item.ident,
        Item::Fn(item) => &item.sig.ident,
        Item::Static(item) => &item.ident,
        Item::Struct(item) => &item.ident,
        Item::Trait(item) => &item.ident,
        Item::TraitAlias(item) => &item.ident,
        Item::Type(item) => &item.ident,
        Item::Union(item) => &item.ident,
        _ => return None,
    })
}
