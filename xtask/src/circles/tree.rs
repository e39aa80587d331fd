//! What the modules of a crate define and import, and which definition a path leads to.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use proc_macro2::{LineColumn, TokenStream};
use syn::Item;
use syn::ext::IdentExt as _;

use super::syntax::{ItemPath, Leaf, attributes, is_for_tests, leaves, name, written};
use super::tokens;

/// A file, by its number in [`Tree::files`].
pub(super) type FileId = usize;
/// A scope, by its number in [`Tree::scopes`].
pub(super) type ScopeId = usize;
/// An item, by its number in [`Tree::items`].
pub(super) type ItemId = usize;

/// The scope of the crate's root.
pub(super) const ROOT: ScopeId = 0;

/// The modules of a crate.
#[derive(Default)]
pub(super) struct Tree {
    pub(super) files: Vec<File>,
    scopes: Vec<Scope>,
    pub(super) items: Vec<Defined>,
    /// The macros that a `macro_rules!` of this crate defines, by name.
    macros: HashMap<String, Vec<ItemId>>,
    /// The files that define a type's associated item in an `impl` of their own.
    associated: HashMap<(ItemId, String), Vec<FileId>>,
    /// The `impl`s that `associated` is made from: where, of what, and what they define.
    impls: Vec<(ScopeId, ItemPath, Vec<String>)>,
    /// Modules that a macro declares: in which file, which, where the macro is called, and all names that it is given.
    pub(super) declared_by_macros: Vec<(FileId, FileId, usize, Vec<String>)>,
    /// Files of modules for tests, and the directories of their own modules.
    tests: HashSet<PathBuf>,
    /// What other crates are called here.
    externs: HashSet<String>,
}

/// A file with a module, or with several if some are inline.
pub(super) struct File {
    pub(super) path: PathBuf,
    /// The path of its module within the crate.
    pub(super) name: String,
    pub(super) scope: ScopeId,
    pub(super) items: Vec<Item>,
}

/// An item and where it is.
pub(super) struct Defined {
    pub(super) file: FileId,
    scope: ScopeId,
    /// Of a `macro_rules!`: what it expands to, and its patterns.
    pub(super) body: Option<TokenStream>,
}

/// What names mean somewhere.
struct Scope {
    file: FileId,
    kind: ScopeKind,
    names: HashMap<String, Vec<Meaning>>,
    imports: HashMap<String, Vec<ItemPath>>,
    globs: Vec<ItemPath>,
    /// Every identifier in calls of macros that may define items here, and one item for them all.
    made: HashSet<String>,
    made_item: ItemId,
}

enum ScopeKind {
    /// A module, and the one that it is declared in. Where its declaration is tells it from others of its name.
    Module { parent: Option<ScopeId>, declared: Option<LineColumn> },
    /// A block with items, and the scope around it.
    Block { around: ScopeId },
}

/// What a scope calls by a name.
#[derive(Clone, Copy)]
enum Meaning {
    Module(ScopeId),
    Item(ItemId),
    Macro(ItemId),
}

/// What is looked for.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Sought {
    Macro,
    AnythingElse,
}

/// What a path leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Target {
    Module(ScopeId),
    Item(ItemId),
    /// Something of another crate.
    External,
}

/// What is being looked up, so that imports in a circle come to an end.
type Seen = Vec<(ScopeId, String, Sought)>;

impl Tree {
    /// Reads a crate from its root's file. `externs`: what other crates are called in it.
    pub(super) fn read(root: &Path, externs: HashSet<String>) -> anyhow::Result<Self> {
        let mut tree = Self { externs, ..Self::default() };
        let directory = root.parent().context("the root of the crate has no directory")?;
        tree.file(root, directory, "crate".to_owned(), None)?;
        for (scope, path, names) in std::mem::take(&mut tree.impls) {
            for target in tree.resolve(scope, &path, Sought::AnythingElse) {
                let Target::Item(item) = target else { continue };
                let file = tree.scopes[scope].file;
                for name in names.iter().filter(|_| tree.items[item].file != file) {
                    tree.associated.entry((item, name.clone())).or_default().push(file);
                }
            }
        }
        Ok(tree)
    }

    /// Whether a file is one of the crate's, be it for tests only.
    pub(super) fn knows(&self, path: &Path) -> bool {
        self.files.iter().any(|file| file.path == path) || path.ancestors().any(|part| self.tests.contains(part))
    }

    /// Reads a file and those of the modules that it declares; the file's module.
    fn file(
        &mut self,
        path: &Path,
        directory: &Path,
        name: String,
        parent: Option<ScopeId>,
    ) -> anyhow::Result<ScopeId> {
        let text = fs::read_to_string(path).with_context(|| path.display().to_string())?;
        let syntax = syn::parse_file(&text).map_err(|error| {
            let LineColumn { line, column } = error.span().start();
            anyhow::anyhow!("{}:{line}:{}: {error}", path.display(), column + 1)
        })?;
        let file = self.files.len();
        let scope = self.scope(file, ScopeKind::Module { parent, declared: None });
        self.files.push(File { path: path.to_owned(), name, scope, items: Vec::new() });
        self.declare(scope, &syntax.items, Some(directory))?;
        self.files[file].items = syntax.items;
        Ok(scope)
    }

    fn scope(&mut self, file: FileId, kind: ScopeKind) -> ScopeId {
        let scope = self.scopes.len();
        let made_item = self.item(scope, file, None);
        let (names, imports) = (HashMap::new(), HashMap::new());
        self.scopes.push(Scope { file, kind, names, imports, globs: Vec::new(), made: HashSet::new(), made_item });
        scope
    }

    fn item(&mut self, scope: ScopeId, file: FileId, body: Option<TokenStream>) -> ItemId {
        self.items.push(Defined { file, scope, body });
        self.items.len() - 1
    }

    /// A scope for a block with items.
    pub(super) fn block(&mut self, around: ScopeId, items: &[Item]) -> anyhow::Result<ScopeId> {
        let scope = self.scope(self.scopes[around].file, ScopeKind::Block { around });
        self.declare(scope, items, None)?;
        Ok(scope)
    }

    /// Notes what items define in a scope. Modules without a body are looked for in the directory.
    fn declare(&mut self, scope: ScopeId, items: &[Item], directory: Option<&Path>) -> anyhow::Result<()> {
        let file = self.scopes[scope].file;
        for item in items {
            let for_tests = attributes(item).iter().any(is_for_tests);
            match item {
                Item::Mod(module) => self.module(scope, module, for_tests, directory)?,
                _ if for_tests => {}
                Item::Use(item) => {
                    for Leaf { path, name } in leaves(item) {
                        match name {
                            Some(name) => self.scopes[scope].imports.entry(name).or_default().push(path),
                            None => self.scopes[scope].globs.push(path),
                        }
                    }
                }
                Item::Macro(item) => match &item.ident {
                    Some(name) => {
                        let id = self.item(scope, file, Some(item.mac.tokens.clone()));
                        self.macros.entry(name.to_string()).or_default().push(id);
                        self.name(scope, name, Meaning::Macro(id));
                        if item.attrs.iter().any(|attribute| attribute.path().is_ident("macro_export")) {
                            self.name(ROOT, name, Meaning::Macro(id));
                        }
                    }
                    None => self.scopes[scope].made.extend(tokens::identifiers(&item.mac.tokens)),
                },
                Item::ForeignMod(foreign) => {
                    for item in &foreign.items {
                        let name = match item {
                            syn::ForeignItem::Fn(item) => &item.sig.ident,
                            syn::ForeignItem::Static(item) => &item.ident,
                            syn::ForeignItem::Type(item) => &item.ident,
                            _ => continue,
                        };
                        let id = self.item(scope, file, None);
                        self.name(scope, name, Meaning::Item(id));
                    }
                }
                Item::Impl(item) if item.trait_.is_none() => {
                    let syn::Type::Path(of) = &*item.self_ty else { continue };
                    let names = item.items.iter().filter_map(|item| match item {
                        syn::ImplItem::Fn(item) => Some(item.sig.ident.to_string()),
                        syn::ImplItem::Const(item) => Some(item.ident.to_string()),
                        syn::ImplItem::Type(item) => Some(item.ident.to_string()),
                        _ => None,
                    });
                    self.impls.push((scope, written(&of.path), names.collect()));
                }
                _ => {
                    if let Some(name) = name(item) {
                        let id = self.item(scope, file, None);
                        self.name(scope, name, Meaning::Item(id));
                    }
                }
            }
        }
        // After all others: a macro may be called before the module is declared that it mentions.
        for item in items {
            if let (Item::Macro(item), Some(directory)) = (item, directory)
                && item.ident.is_none()
            {
                self.modules_of_macro(scope, &item.mac.tokens, directory)?;
            }
        }
        Ok(())
    }

    fn module(
        &mut self,
        scope: ScopeId,
        module: &syn::ItemMod,
        for_tests: bool,
        directory: Option<&Path>,
    ) -> anyhow::Result<()> {
        let Scope { file, .. } = self.scopes[scope];
        let name = module.ident.unraw().to_string();
        let at = module.ident.span().start();
        if let Some((_, items)) = &module.content {
            if !for_tests {
                let child = self.scope(file, ScopeKind::Module { parent: Some(scope), declared: Some(at) });
                self.name(scope, &module.ident, Meaning::Module(child));
                self.declare(child, items, directory.map(|directory| directory.join(&name)).as_deref())?;
            }
            return Ok(());
        }
        let shown = format!("{}:{}: `mod {name};`", self.files[file].path.display(), at.line);
        if module.attrs.iter().any(|attribute| attribute.path().is_ident("path")) {
            bail!("{shown} has a #[path]: this check does not know where such files are");
        }
        let directory = directory.with_context(|| format!("{shown} is in a block, where no file belongs to it"))?;
        let path = file_of(directory, &name).with_context(|| format!("{shown} has no file"))?;
        if for_tests {
            self.tests.extend([path, directory.join(&name)]);
            return Ok(());
        }
        self.module_file(scope, &name, &path, directory).map(drop)
    }

    fn module_file(&mut self, scope: ScopeId, name: &str, path: &Path, directory: &Path) -> anyhow::Result<FileId> {
        let within = &self.files[self.scopes[scope].file].name;
        let full = if within == "crate" { name.to_owned() } else { format!("{within}::{name}") };
        let child = self.file(path, &directory.join(name), full, Some(scope))?;
        self.scopes[scope].names.entry(name.to_owned()).or_default().push(Meaning::Module(child));
        Ok(self.scopes[child].file)
    }

    /// Modules that a macro declares: whatever it is given that no `mod` declares, and that a file has the name of.
    fn modules_of_macro(&mut self, scope: ScopeId, given: &TokenStream, directory: &Path) -> anyhow::Result<()> {
        for (name, line) in tokens::identifiers_at(given) {
            let known = self.scopes[scope].names.get(&name).into_iter().flatten();
            if known.into_iter().any(|meaning| matches!(meaning, Meaning::Module(_))) {
                continue;
            }
            if let Some(path) = file_of(directory, &name).filter(|path| !self.tests.contains(path)) {
                let child = self.module_file(scope, &name, &path, directory)?;
                let all = tokens::identifiers(given).collect();
                self.declared_by_macros.push((self.scopes[scope].file, child, line, all));
            }
        }
        Ok(())
    }

    fn name(&mut self, scope: ScopeId, name: &syn::Ident, meaning: Meaning) {
        self.scopes[scope].names.entry(name.unraw().to_string()).or_default().push(meaning);
    }

    /// The scope of a module that has its body where it is declared.
    pub(super) fn inline_module(&self, scope: ScopeId, name: &syn::Ident) -> Option<ScopeId> {
        let at = name.span().start();
        self.scopes[scope].names.get(&name.unraw().to_string())?.iter().find_map(|meaning| match *meaning {
            Meaning::Module(child) => match self.scopes[child].kind {
                ScopeKind::Module { declared, .. } if declared == Some(at) => Some(child),
                _ => None,
            },
            _ => None,
        })
    }

    /// The files with `impl`s of their own that define an item of a type.
    pub(super) fn associated(&self, item: ItemId, name: &str) -> &[FileId] {
        self.associated.get(&(item, name.to_owned())).map_or(&[], |files| files)
    }

    /// Whether another crate has this name here.
    pub(super) fn is_extern(&self, name: &str) -> bool {
        self.externs.contains(name)
    }

    /// What a path leads to: several definitions where they depend on what is built, none if that cannot be told.
    pub(super) fn resolve(&self, scope: ScopeId, path: &ItemPath, sought: Sought) -> Vec<Target> {
        self.follow(scope, path, sought, &mut Seen::new())
    }

    fn follow(&self, scope: ScopeId, path: &ItemPath, sought: Sought, seen: &mut Seen) -> Vec<Target> {
        if path.global {
            return vec![Target::External];
        }
        let mut segments = path.segments.iter().map(String::as_str).peekable();
        let mut module = None;
        while let Some(&first) = segments.peek() {
            module = match (first, module) {
                ("crate" | "$crate", None) => Some(ROOT),
                ("self", None) => Some(self.module_of(scope)),
                ("super", before) => {
                    let ScopeKind::Module { parent, .. } = self.scopes[before.unwrap_or(self.module_of(scope))].kind
                    else {
                        return Vec::new();
                    };
                    let Some(parent) = parent else { return Vec::new() };
                    Some(self.module_of(parent))
                }
                _ => break,
            };
            segments.next();
        }
        let kind = |last: bool| if last { sought } else { Sought::AnythingElse };
        let mut targets = match module {
            Some(module) => vec![Target::Module(module)],
            None => {
                let Some(first) = segments.next() else { return Vec::new() };
                let found = self.in_sight(scope, first, kind(segments.peek().is_none()), seen);
                if found.is_empty() && self.is_extern(first) { vec![Target::External] } else { found }
            }
        };
        while let Some(segment) = segments.next() {
            let module = targets.iter().find_map(|target| match target {
                Target::Module(module) => Some(*module),
                _ => None,
            });
            // What follows an item is one of its own: a variant, a function of an `impl`.
            let Some(module) = module else { return targets };
            let last = segments.peek().is_none();
            targets = self.look_up(module, segment, kind(last), true, seen);
        }
        targets
    }

    /// What a name without a path means in a scope.
    fn in_sight(&self, mut scope: ScopeId, name: &str, sought: Sought, seen: &mut Seen) -> Vec<Target> {
        let mut elsewhere = Vec::new();
        loop {
            let found = self.look_up(scope, name, sought, false, seen);
            if found == [Target::External] {
                // It may come in by a `*` of another crate, or be one of ours further out.
                elsewhere = found;
            } else if !found.is_empty() {
                return found;
            }
            match self.scopes[scope].kind {
                ScopeKind::Block { around } => scope = around,
                ScopeKind::Module { .. } => break,
            }
        }
        if sought == Sought::AnythingElse {
            return elsewhere;
        }
        // A macro is also seen by what comes after it, in the modules declared there, too: the innermost is taken.
        let mut module = Some(scope);
        while let Some(at) = module {
            let here = |&&id: &&ItemId| self.items[id].scope == at;
            if let Some(&id) = self.macros.get(name).into_iter().flatten().rev().find(here) {
                return vec![Target::Item(id)];
            }
            module = match self.scopes[at].kind {
                ScopeKind::Module { parent, .. } => parent,
                ScopeKind::Block { around } => Some(around),
            };
        }
        elsewhere
    }

    /// What a scope calls by a name, in this order: an item or module of its own or an import; what comes in by a `*`; what a macro
    /// may have made, if the name has the scope's path before it; and what may come in by a `*` of another crate.
    fn look_up(&self, scope: ScopeId, name: &str, sought: Sought, qualified: bool, seen: &mut Seen) -> Vec<Target> {
        let question = (scope, name.to_owned(), sought);
        if seen.contains(&question) {
            return Vec::new();
        }
        seen.push(question);
        let found = self.look_up_anew(scope, name, sought, qualified, seen);
        seen.pop();
        found
    }

    fn look_up_anew(
        &self,
        scope: ScopeId,
        name: &str,
        sought: Sought,
        qualified: bool,
        seen: &mut Seen,
    ) -> Vec<Target> {
        let Scope { names, imports, globs, made, made_item, .. } = &self.scopes[scope];
        let own = names.get(name).into_iter().flatten().filter_map(|meaning| match (*meaning, sought) {
            (Meaning::Macro(item), Sought::Macro) | (Meaning::Item(item), Sought::AnythingElse) => {
                Some(Target::Item(item))
            }
            (Meaning::Module(module), Sought::AnythingElse) => Some(Target::Module(module)),
            _ => None,
        });
        let mut found: Vec<Target> = own.collect();
        for path in imports.get(name).into_iter().flatten() {
            found.extend(self.follow(scope, path, sought, seen));
        }
        let mut external = Vec::new();
        if found.is_empty() {
            for path in globs {
                for target in self.follow(scope, path, Sought::AnythingElse, seen) {
                    match target {
                        Target::Module(module) => found.extend(self.look_up(module, name, sought, false, seen)),
                        Target::External => external = vec![Target::External],
                        Target::Item(_) => {}
                    }
                }
            }
        }
        if found.is_empty() && qualified && made.contains(name) {
            found.push(Target::Item(*made_item));
        }
        if found.is_empty() {
            return external;
        }
        found.dedup();
        found
    }

    /// The module that a scope is in.
    fn module_of(&self, mut scope: ScopeId) -> ScopeId {
        while let ScopeKind::Block { around } = self.scopes[scope].kind {
            scope = around;
        }
        scope
    }
}

/// The file of a module.
fn file_of(directory: &Path, name: &str) -> Option<PathBuf> {
    let candidates = [directory.join(format!("{name}.rs")), directory.join(name).join("mod.rs")];
    candidates.into_iter().find(|path| path.is_file())
}
