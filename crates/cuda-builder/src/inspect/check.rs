//! The checks of PTX.

use std::collections::HashSet;

use rustc_demangle::demangle;

use super::check_error::{CONSTANT_BYTES, CheckError};
use super::ptx::{Function, Ptx};
use crate::Arch;

/// The kernels that may have what others may not.
///
/// ```
/// # use tilewright_cuda_builder::inspect::{Allowed, Ptx};
/// let module = Ptx::parse(".version 7.4\n.target sm_80\n.visible .entry k() .reqntid 32 { .local .b8 depot[64]; ret; }\n")?;
/// let kernels = ["k".to_owned()];
/// assert!(module.check(&kernels).is_err());
/// module.check_with(&kernels, &Allowed { local: kernels.to_vec(), ..Allowed::default() })?;
/// # Ok::<(), tilewright_cuda_builder::inspect::CheckError>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Allowed {
    /// Those that may have local memory.
    pub local: Vec<String>,
    /// Those that may have functions which call themselves.
    pub recursion: Vec<String>,
}

fn readable(name: &str) -> String {
    format!("{:#}", demangle(name))
}

impl Ptx {
    /// Checks what every module promises: each access names its state space, nothing is in local memory, no function calls itself, each
    /// instruction is one of the architecture's, every kernel has launch bounds, and the entry points are the `kernels`.
    ///
    /// # Errors
    /// The first thing that is not so.
    pub fn check(&self, kernels: &[String]) -> Result<(), CheckError> {
        self.check_with(kernels, &Allowed::default())
    }

    /// The same of a module of which some kernels, and what these alone call, may have more.
    ///
    /// # Errors
    /// As for [`Ptx::check`].
    pub fn check_with(&self, kernels: &[String], allowed: &Allowed) -> Result<(), CheckError> {
        let strict = self.called_by(|kernel| !allowed.local.contains(&kernel.name));
        let target: Option<Arch> = self.target.parse().ok();
        for function in &self.functions {
            let name = || readable(&function.name);
            let allows_local = !strict.contains(function.name.as_str());
            // First, because what an architecture lacks may be in local memory there: a tensor map.
            let missing = |arch: &Arch| function.needs.iter().find(|(needs, _)| !needs.is_met_by(*arch));
            if let Some(target) = target
                && let Some((needs, instruction)) = missing(&target)
            {
                let (needs, instruction) = (*needs, instruction.clone());
                return Err(CheckError::Architecture { function: name(), instruction, needs, target });
            }
            // Before accesses, because an array in local memory is accessed through a generic pointer to it.
            let is_local = function.local_bytes > 0 || function.memory.iter().any(|it| it.space() == Some("local"));
            if is_local && !allows_local {
                return Err(CheckError::Local { function: name(), bytes: function.local_bytes, is_given: false });
            }
            if function.constant_bytes > CONSTANT_BYTES {
                return Err(CheckError::Constant { function: name(), bytes: function.constant_bytes });
            }
            if let Some(generic) = function.memory.iter().find(|instruction| instruction.space().is_none()) {
                let instruction = generic.text.as_str().into();
                return Err(CheckError::Generic { function: name(), instruction, arguments: Box::default() });
            }
            if function.is_kernel && function.block.is_none() {
                return Err(CheckError::NoLaunchBounds(name()));
            }
        }
        for kernel in self.kernels().filter(|kernel| !allowed.recursion.contains(&kernel.name)) {
            if let Some(circle) = self.circle(kernel) {
                let circle = circle.into_iter().map(|function| readable(&function.name)).collect();
                return Err(CheckError::Recursion { kernel: readable(&kernel.name), circle });
            }
        }
        if let Some(name) = self.undefined.first() {
            return Err(CheckError::Undefined(readable(name)));
        }
        let sorted = |mut names: Vec<String>| {
            names.sort();
            names
        };
        let found = sorted(self.kernels().map(|kernel| kernel.name.clone()).collect());
        let expected = sorted(kernels.to_vec());
        if found == expected { Ok(()) } else { Err(CheckError::Entries { found, expected }) }
    }

    /// The functions that a function calls, or may call through a pointer.
    fn callees<'a>(&'a self, function: &'a Function) -> impl Iterator<Item = &'a Function> {
        // In such a call a register is named, and no function.
        let through_pointer = function.calls.iter().any(|name| name.starts_with('%'));
        let is_called =
            move |name: &String| function.calls.contains(name) || through_pointer && self.pointed_to.contains(name);
        self.functions.iter().filter(move |callee| is_called(&callee.name))
    }

    /// Such kernels, and the functions that they call, directly or through others.
    fn called_by(&self, kernels: impl Fn(&Function) -> bool) -> HashSet<&str> {
        let mut open: Vec<&Function> = self.kernels().filter(|kernel| kernels(kernel)).collect();
        let mut found: HashSet<&str> = open.iter().map(|kernel| kernel.name.as_str()).collect();
        while let Some(function) = open.pop() {
            for callee in self.callees(function) {
                if found.insert(&callee.name) {
                    open.push(callee);
                }
            }
        }
        found
    }

    /// Functions of which each calls the next, and the last the first, if a kernel comes to such ones.
    fn circle(&self, kernel: &Function) -> Option<Vec<&Function>> {
        // The calls that lead to where the search is, each with the callees that are still to be looked at.
        let begin = self.functions.iter().find(|function| function.name == kernel.name)?;
        let mut path = vec![(begin, self.callees(begin))];
        let mut seen = HashSet::from([begin.name.as_str()]);
        while let Some((_, callees)) = path.last_mut() {
            let Some(callee) = callees.next() else {
                path.pop();
                continue;
            };
            if let Some(first) = path.iter().position(|(function, _)| function.name == callee.name) {
                return Some(path[first..].iter().map(|(function, _)| *function).collect());
            }
            if seen.insert(&callee.name) {
                path.push((callee, self.callees(callee)));
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::super::ptx::tests::module;
    use super::super::targets::Needs;
    use super::*;

    fn check(body: &str) -> Result<(), CheckError> {
        module(body).check(&["k".to_owned()])
    }

    #[test]
    fn constant_arrays_are_added_up() {
        let check = |bytes: u64| {
            let head =
                ".version 7.4\n.target sm_80\n.const .align 4 .b8 A[65000] = {1, 2};\n.const .align 4 .b8 C[9];\n";
            let text = format!(
                "{head}.const .align 1 .b8 B[{bytes}];\n.visible .entry k() .reqntid 32 {{\n\tld.const.b8 %r1, [A];\n\tld.const.b8 %r1, [B];\n}}\n"
            );
            Ptx::parse(&text).unwrap().check(&["k".to_owned()])
        };
        assert_eq!(check(536), Ok(()));
        assert_eq!(check(537), Err(CheckError::Constant { function: "k".to_owned(), bytes: 65_537 }));
    }

    #[test]
    fn local_memory_is_for_kernels_that_may_have_it() {
        let function = |kind: &str, name: &str, bounds: &str, body: &str| {
            format!("{kind} {name}() {bounds} {{\n{body}\n\tret;\n}}\n")
        };
        let helper = function(".func", "helper", "", ".local .align 4 .b8 depot[64];\n\tst.local.b32 [%r1], %r2;");
        let calls = "\t{\n\tcall.uni helper, ();\n\t}";
        let kernel = |name, body| function(".visible .entry", name, ".reqntid 32", body);
        let head = ".version 7.4\n.target sm_80\n.func helper();\n";
        let (a, b, other) = (kernel("a", calls), kernel("b", calls), kernel("other", ""));
        let module = Ptx::parse(&format!("{head}{helper}{a}{b}{other}")).unwrap();
        let names = ["a", "b", "other"].map(str::to_owned);
        let check = |allowed: &[usize]| {
            let local = allowed.iter().map(|&i| names[i].clone()).collect();
            module.check_with(&names, &Allowed { local, ..Allowed::default() })
        };
        assert_eq!(check(&[0, 1]), Ok(()));
        let refused = Err(CheckError::Local { function: "helper".to_owned(), bytes: 64, is_given: false });
        assert_eq!((check(&[0]), check(&[1, 2]), module.check(&names)), (refused.clone(), refused.clone(), refused));
    }

    #[test]
    fn accepts_what_names_its_space() {
        assert_eq!(check("ld.param.b64 %rd1, [k_param_0]; ld.const.b32 %r1, [c]; st.global.b32 [%rd1], %r1;"), Ok(()));
    }

    #[test]
    fn refuses_generic_accesses() {
        for access in [
            "ld.b32 %r1, [%rd1]",
            "st.v2.b32 [%rd1], {%r1, %r2}",
            "atom.add.u32 %r1, [%rd1], 1",
            "@%p1 red.add.u32 [%rd1], 1",
        ] {
            let error = check(&format!("\tld.global.b32 %r1, [%rd1];\n\t{access};")).unwrap_err();
            let instruction = access.trim_start_matches("@%p1 ").into();
            assert_eq!(error, CheckError::Generic { function: "k".to_owned(), instruction, arguments: Box::default() });
        }
    }

    #[test]
    fn refuses_what_the_architecture_does_not_have() {
        let check = |target: &str, body: &str| {
            let text = module(body);
            Ptx { target: target.to_owned(), ..text }.check(&["k".to_owned()])
        };
        for instruction in [
            "atom.relaxed.gpu.global.add.noftz.bf16x2 %r1, [%rd1], %r2;",
            "@%p1 atom.acq_rel.cluster.shared.add.u32 %r1, [%r2], %r3;",
            "fence.acq_rel.cluster;",
            "mapa.shared::cluster.u32 %r1, %r2, %r3;",
            "ld.shared::cluster.b32 %r1, [%r2];",
            "barrier.cluster.arrive;",
            "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r1];",
        ] {
            let CheckError::Architecture { needs, target, .. } = check("sm_80", instruction).unwrap_err() else {
                panic!("{instruction}")
            };
            assert_eq!((needs, target), (Needs::From(Arch::Sm90), Arch::Sm80));
            assert_eq!(check("sm_90a", instruction), Ok(()));
            assert_eq!(check("sm_120", instruction), Ok(()));
        }
        assert_eq!(check("sm_80", "fence.acq_rel.gpu;\nld.acquire.gpu.global.b32 %r1, [%rd1];"), Ok(()));
    }

    #[test]
    fn what_hopper_alone_has_is_told_from_what_all_later_ones_have() {
        // The first instruction is there on sm_90, the second is not.
        let body = "mbarrier.try_wait.parity.shared::cta.b64 %p1, [%r1], %r2;\n@%p1 wgmma.fence.sync.aligned;";
        for (target, expected) in [
            ("sm_80", Some("GPUs have from sm_90 on, and is compiled for sm_80: `mbarrier.try_wait.parity")),
            ("sm_90", Some("only sm_90a has, and is compiled for sm_90: `wgmma.fence.sync.aligned`")),
            ("sm_90a", None),
            ("sm_100a", Some("only sm_90a has, and is compiled for sm_100a")),
        ] {
            let result = Ptx { target: target.to_owned(), ..module(body) }.check(&["k".to_owned()]);
            let message = result.err().map(|error| error.to_string());
            match expected {
                Some(text) => assert!(message.as_ref().is_some_and(|it| it.contains(text)), "{target}: {message:?}"),
                None => assert_eq!(message, None),
            }
        }
    }

    /// A module with such functions, of which each calls these: `%` through a pointer, and `&f` makes a pointer to `f`.
    fn calls(functions: &[(&str, &[&str])]) -> Ptx {
        let one = |(name, calls): &(&str, &[&str])| {
            let calls: String = calls
                .iter()
                .map(|callee| match callee.strip_prefix('&') {
                    Some(function) => format!("\tmov.b64 %rd1, {function};\n"),
                    None if *callee == "%" => "\tcall (retval0), %rd1, (param0), prototype_0;\n".to_owned(),
                    None => format!("\t{{ // callseq\n\tcall.uni (retval0), {callee}, (param0);\n\t}}\n"),
                })
                .collect();
            let kind = if name.starts_with('k') { ".visible .entry" } else { ".func" };
            let bounds = if name.starts_with('k') { ".reqntid 32" } else { "" };
            format!("{kind} {name}() {bounds} {{\n{calls}\tret;\n}}\n")
        };
        let text: String = functions.iter().map(one).collect();
        Ptx::parse(&format!(".version 7.4\n.target sm_80\n{text}")).unwrap()
    }

    #[test]
    fn functions_that_call_themselves_are_for_kernels_with_a_stack() {
        let itself = calls(&[("k", &["f"]), ("f", &["g", "f"]), ("g", &[])]);
        let k = ["k".to_owned()];
        let error = itself.check(&k).unwrap_err();
        let recursion = |circle: &[&str]| CheckError::Recursion {
            kernel: "k".to_owned(),
            circle: circle.iter().map(|&name| name.to_owned()).collect(),
        };
        assert_eq!(error, recursion(&["f"]));
        assert!(error.to_string().contains("`f` calls itself, and kernel `k` has no stack"), "{error}");
        // Local memory is another matter.
        let local = Allowed { local: k.to_vec(), ..Allowed::default() };
        assert_eq!(itself.check_with(&k, &local), Err(recursion(&["f"])));
        let with_stack = Allowed { recursion: k.to_vec(), ..Allowed::default() };
        assert_eq!(itself.check_with(&k, &with_stack), Ok(()));
        // Not for another kernel that comes to the same function.
        let both = calls(&[("k", &["f"]), ("k_2", &["f"]), ("f", &["f"])]);
        let names = ["k".to_owned(), "k_2".to_owned()];
        assert!(
            matches!(both.check_with(&names, &with_stack), Err(CheckError::Recursion { kernel, .. }) if kernel == "k_2")
        );

        let by_way =
            calls(&[("k", &["a"]), ("a", &["f", "b"]), ("f", &["g"]), ("g", &["h"]), ("h", &["f"]), ("b", &[])]);
        let error = by_way.check(&k).unwrap_err();
        assert_eq!(error, recursion(&["f", "g", "h"]));
        assert!(error.to_string().contains("`f` calls itself by way of `g` and `h`"), "{error}");
        // Two ways to a function are no circle.
        assert_eq!(calls(&[("k", &["a", "b", "c"]), ("a", &["c"]), ("b", &["c", "a"]), ("c", &[])]).check(&k), Ok(()));
    }

    #[test]
    fn a_call_through_a_pointer_may_be_one_of_any_function_that_there_is_a_pointer_to() {
        let k = ["k".to_owned()];
        let circle = calls(&[("k", &["&f", "f"]), ("f", &["%"])]);
        assert!(matches!(circle.check(&k), Err(CheckError::Recursion { circle, .. }) if circle == ["f"]));
        assert_eq!(calls(&[("k", &["&g", "f"]), ("f", &["%"]), ("g", &[])]).check(&k), Ok(()));
        // A table of functions.
        let text = ".version 7.4\n.target sm_80\n.global .align 8 .u64 T[2] = {f, g};\n\
                    .visible .entry k() .reqntid 32 {\n\tcall.uni f, ();\n}\n.func f() {\n\tcall (r), %rd4, (p), prototype_6;\n}\n\
                    .func g() {\n\tret;\n}\n";
        let table = Ptx::parse(text).unwrap();
        assert_eq!(table.pointed_to, ["f", "g"]);
        assert!(matches!(table.check(&k), Err(CheckError::Recursion { .. })));
        assert_eq!(Ptx::parse(&text.replace("{f, g}", "{g, g}")).unwrap().check(&k), Ok(()));
    }

    #[test]
    fn refuses_local_memory() {
        let error = check(".local .align 8 .b8 \t__local_depot0[16];\n.reg .b32 %r<3>;").unwrap_err();
        assert_eq!(error, CheckError::Local { function: "k".to_owned(), bytes: 16, is_given: false });
        // What LLVM makes of an array that is indexed: its address is a generic one.
        let error =
            check(".local .align 4 .b8 __local_depot0[64];\n\tcvta.local.u64 %SP, %SPL;\n\tst.b32 [%rd1], %r1;");
        assert_eq!(error.unwrap_err(), CheckError::Local { function: "k".to_owned(), bytes: 64, is_given: false });
        let error = check("st.local.b32 [%rd1], %r1;").unwrap_err();
        assert_eq!(error, CheckError::Local { function: "k".to_owned(), bytes: 0, is_given: false });
    }

    #[test]
    fn refuses_what_is_not_defined_or_not_expected() {
        let header = ".version 7.0\n.target sm_80\n";
        let prototype = ".func (.param .b32 result) helper\n(\n.param .b64 p\n)\n";
        let undefined = Ptx::parse(&format!("{header}.extern {prototype};")).unwrap();
        assert_eq!(undefined.check(&[]), Err(CheckError::Undefined("helper".to_owned())));
        let defined = Ptx::parse(&format!("{header}{prototype};\n{prototype}{{ ret; }}")).unwrap();
        assert_eq!(defined.check(&[]), Ok(()));
        assert!(matches!(defined.check(&["k".to_owned()]), Err(CheckError::Entries { .. })));
        let unbounded = Ptx::parse(&format!("{header}.visible .entry k()\n{{ ret; }}")).unwrap();
        assert_eq!(unbounded.check(&["k".to_owned()]), Err(CheckError::NoLaunchBounds("k".to_owned())));
    }
}
