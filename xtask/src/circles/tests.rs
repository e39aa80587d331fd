use std::collections::HashSet;
use std::fs;

use super::Modules;

/// The modules of an invented crate: the paths of its files below `src`, and their text.
fn read(files: &[(&str, &str)]) -> anyhow::Result<Modules> {
    let directory = tempfile::tempdir()?;
    for (path, text) in files {
        let path = directory.path().join(path);
        fs::create_dir_all(path.parent().expect("a file has a directory"))?;
        fs::write(path, text)?;
    }
    let externs = HashSet::from(["std".to_owned(), "elsewhere".to_owned()]);
    Modules::read(&directory.path().join("lib.rs"), externs)
}

/// The edges of an invented crate, as `from -> to`, and whether everything in it was resolved.
fn edges(files: &[(&str, &str)]) -> Vec<String> {
    let modules = read(files).expect("the crate can be read");
    let unresolved: Vec<&str> = modules.uses.unresolved.iter().map(|(_, example)| example.written.as_str()).collect();
    assert!(unresolved.is_empty(), "{unresolved:?}");
    let name = |file: usize| modules.tree.files[file].name.clone();
    let mut edges: Vec<String> =
        modules.edges().iter().map(|&(from, to)| format!("{} -> {}", name(from), name(to))).collect();
    edges.sort();
    edges
}

#[test]
fn a_circle_of_two_is_shown_with_a_place_for_each_edge() {
    let modules = read(&[
        ("lib.rs", "mod a;\nmod b;\nmod c;\n"),
        ("a.rs", "pub struct A;\npub fn f(b: crate::b::B) {}\n"),
        ("b.rs", "use crate::{\n    c::C,\n    a::A,\n};\npub struct B(A, C);\n"),
        ("c.rs", "pub struct C;\n"),
    ])
    .expect("the crate can be read");
    let report = modules.report("invented", false);
    assert_eq!(modules.circles().len(), 1);
    assert!(report.starts_with("invented: 4 modules, 3 edges, 1 CIRCLE, 0 paths unresolved\n"), "{report}");
    assert!(report.contains("a circle of 2: a, b\n"), "{report}");
    assert!(report.contains("a.rs:2: crate::b::B\n"), "{report}");
    assert!(report.contains("b.rs:3: crate::a::A\n"), "{report}");
    assert!(!report.contains("c.rs"), "{report}");
}

#[test]
fn without_a_circle_there_are_levels() {
    let modules = read(&[
        ("lib.rs", "mod a;\nmod b;\nfn f() { a::g() }"),
        ("a.rs", "pub fn g() { super::b::h() }"),
        ("b.rs", "pub fn h() {}"),
    ])
    .expect("the crate can be read");
    let report = modules.report("invented", false);
    assert_eq!(
        report,
        "invented: 3 modules, 2 edges, no circle, 0 paths unresolved\n  level 0: b\n  level 1: a\n  level 2: crate\n"
    );
}

#[test]
fn a_name_that_was_handed_on_belongs_to_the_file_that_defines_it() {
    let files = |a: &str| {
        edges(&[
            ("lib.rs", "mod a;\nmod b;\npub use b::*;\n"),
            ("a.rs", a),
            ("b/mod.rs", "mod inner;\npub use self::inner::Deep as Renamed;\nuse crate::a::A;\n"),
            ("b/inner.rs", "pub struct Deep;\n"),
        ])
    };
    // What is handed on, and by whom, is no edge; that `b` uses `a` is no circle with `a`'s use of `b::inner`.
    assert_eq!(files("pub struct A; type B = crate::Renamed;"), ["a -> b::inner", "b -> a"]);
    assert_eq!(files("use crate::b::{self}; pub struct A(b::Renamed);"), ["a -> b::inner", "b -> a"]);
    assert_eq!(files("pub struct A;"), ["b -> a"]);
}

#[test]
fn a_child_that_uses_what_its_parent_defines_closes_a_circle_if_the_parent_uses_it() {
    let parent = |text: &str| {
        let files = [("lib.rs", "mod p;"), ("p/mod.rs", text), ("p/child.rs", "use super::P; pub fn f(_: P) {}")];
        read(&files).expect("the crate can be read").circles().len()
    };
    assert_eq!(parent("mod child; pub struct P; pub fn g() { child::f(P) }"), 1);
    assert_eq!(parent("mod child; pub struct P; pub use child::f;"), 0);
    // What comes in by a `*` counts only where it is used.
    assert_eq!(parent("mod child; use child::*; pub struct P; pub fn g() { f(P) }"), 1);
    assert_eq!(parent("mod child; use child::*; pub struct P;"), 0);
}

#[test]
fn what_is_for_tests_only_is_left_out() {
    let edges = edges(&[
        ("lib.rs", "mod a;\nmod b;\n"),
        (
            "a.rs",
            "pub struct A;\n#[cfg(test)]\nuse crate::b::B;\n#[cfg(all(test, unix))]\nmod tests;\n#[cfg(test)]\nmod \
             inline { use crate::b::B; }\n#[test]\nfn f() { crate::b::B; }\nimpl A { #[cfg(test)] fn g(_: crate::b::B) {} }",
        ),
        ("a/tests.rs", "use crate::b::B;"),
        ("b.rs", "#[cfg(not(test))]\npub struct B(crate::a::A);"),
    ]);
    assert_eq!(edges, ["b -> a"]);
}

#[test]
fn modules_in_a_file_belong_to_it_but_see_other_names() {
    let files = [
        ("lib.rs", "mod a;\nmod b;\n"),
        (
            "a.rs",
            "pub mod inline { use super::super::b::B; pub struct Inner(B); pub mod deep { use super::*; type T = Inner; } }",
        ),
        ("b.rs", "pub struct B; fn f() { use elsewhere::inline::*; fn g(_: Inner) {} }"),
    ];
    assert_eq!(edges(&files), ["a -> b"]);
    let files = [files[0], files[1], ("b.rs", "pub struct B; fn f() { use crate::a::inline::*; fn g(_: Inner) {} }")];
    assert_eq!(edges(&files), ["a -> b", "b -> a"]);
}

#[test]
fn paths_are_found_wherever_they_are_written() {
    for text in [
        "fn f<T: crate::b::Trait>() {}",
        "fn f(_: &dyn crate::b::Trait) {}",
        "fn f() { let _ = Vec::<crate::b::B>::new(); }",
        "fn f() { <crate::b::B as Clone>::clone(&x); }",
        "fn f() { match x { crate::b::E::One => {} } }",
        "use crate::b::E::*;",
        "fn f() { println!(\"{}\", crate::b::constant()); }",
        "use crate::b; fn f() { assert!(b::constant() == 1); }",
        "#[serde(with = \"crate::b\", default = \"crate::b::constant\")] struct S;",
        "#[kernel(block = (crate::b::N, 1))] fn f() {}",
        "impl crate::b::Trait for u32 {}",
        "fn f() { crate::made!(); }",
        "use crate::made; fn f() { made! {} }",
        "mod inner { pub(in crate::a) use crate::b::B; } type T = inner::B;",
    ] {
        let b =
            "pub struct B; pub enum E { One } pub trait Trait {} pub fn constant() -> u8 { 1 } pub const N: u32 = 1;
            #[macro_export] macro_rules! made { () => {} }";
        assert_eq!(edges(&[("lib.rs", "mod a;\nmod b;\n"), ("a.rs", text), ("b.rs", b)]), ["a -> b"], "{text}");
    }
}

#[test]
fn words_that_are_no_paths_make_no_edge() {
    for text in [
        "fn f() { x.used(); y.used; println!(\"{}\", x.used()); dbg!(S { used: 1 }, used = 2); }",
        "struct S { used: u8 } fn f<'used>() {}",
        "/// [`crate::b::used`]\nfn f() {}",
        "pub(in crate::b) fn f() {}",
        "use crate::b;",
        "use elsewhere::b::used; fn f() { used(); elsewhere::b::used(); std::b::used(); ::b::used() }",
    ] {
        let files = [("lib.rs", "mod a;\nmod b;\n"), ("a.rs", text), ("b.rs", "pub fn used() {}")];
        assert_eq!(edges(&files), [""; 0], "{text}");
    }
}

#[test]
fn macros_make_modules_and_items_and_what_they_expand_to_counts() {
    let edges = edges(&[
        (
            "lib.rs",
            "macro_rules! modules { ($($name:ident)*) => { $(pub mod $name;)* static S: u8 = $($name::X)*; } }\nmodules! { a b }\nmod c;\nmod d;",
        ),
        (
            "a.rs",
            "macro_rules! make { ($name:ident) => { pub fn $name() { $crate::c::used(); super::c::used() } } }\npub(crate) use make;",
        ),
        ("b.rs", "crate::a::make! { made }"),
        ("c.rs", "pub fn used() {}"),
        ("d.rs", "fn f() { crate::b::made() }"),
    ]);
    assert_eq!(edges, ["a -> c", "b -> a", "b -> c", "crate -> a", "crate -> b", "d -> b"]);
}

#[test]
fn a_macro_that_declares_a_module_uses_what_it_is_given_of_it() {
    let edges = edges(&[
        ("lib.rs", "macro_rules! list { ($m:ident: $s:ident) => { mod $m; fn f() { $m::$s } } }\nlist! { a: S }"),
        ("a/mod.rs", "mod b;\nmod c;\npub use b::S;\npub use c::T;"),
        ("a/b.rs", "pub static S: u8 = 1;"),
        ("a/c.rs", "pub static T: u8 = 1;"),
    ]);
    assert_eq!(edges, ["crate -> a", "crate -> a::b"]);
}

#[test]
fn a_function_that_is_called_by_its_types_path_counts_for_its_impl() {
    let edges = edges(&[
        ("lib.rs", "mod a;\nmod b;\nmod c;\n"),
        ("a.rs", "pub struct A;\nimpl A { pub fn here() { Self::there(); } }"),
        ("b.rs", "use crate::a::A;\nimpl A { pub fn there() {} }"),
        ("c.rs", "fn f() { crate::a::A::here(); crate::a::A::there() }"),
    ]);
    assert_eq!(edges, ["a -> b", "b -> a", "c -> a", "c -> b"]);
}

#[test]
fn a_path_that_leads_nowhere_is_shown() {
    let files = [
        ("lib.rs", "mod a;\npub mod b { pub struct B; }\n"),
        (
            "a.rs",
            "use crate::b::Missing;\nfn f() { super::nowhere::g(); unknown::h(); Vec::new(); u32::MAX; T::default() }",
        ),
    ];
    let modules = read(&files).expect("the crate can be read");
    let report = modules.report("invented", true);
    assert_eq!(modules.uses.unresolved.len(), 3, "{report}");
    for line in ["a.rs:1: crate::b::Missing\n", "a.rs:2: super::nowhere::g\n", "a.rs:2: unknown::h\n"] {
        assert!(report.contains(line), "{report}");
    }
}

#[test]
fn a_crate_that_cannot_be_read_is_an_error_that_says_where() {
    let error = |files: &[(&str, &str)]| format!("{:#}", read(files).err().expect("an error"));
    assert!(
        error(&[("lib.rs", "mod a;\n\nmod missing;"), ("a.rs", "")]).contains("lib.rs:3: `mod missing;` has no file")
    );
    assert!(error(&[("lib.rs", "mod a;"), ("a.rs", "\nfn f( {}")]).contains("a.rs:2:"));
    assert!(error(&[("lib.rs", "#[path = \"x.rs\"]\nmod a;"), ("x.rs", "")]).contains("#[path]"));
}

#[test]
fn a_use_of_itself_comes_to_an_end() {
    let files = [
        ("lib.rs", "mod a;\nmod b;\n"),
        ("a.rs", "pub use crate::b::*;"),
        ("b.rs", "pub use crate::a::*; type T = X;"),
    ];
    assert_eq!(edges(&files), [""; 0]);
}
