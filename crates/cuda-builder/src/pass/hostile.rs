//! IR and PTX that nobody wrote on purpose: real lines, cut, doubled and mixed with what the readers look for. They refuse it or
//! make something of it, and do nothing else.

use proptest::prelude::*;
use proptest::test_runner::RngSeed;

use super::{convergence, ir, kernels, rewrite, with_channel, with_reports, with_target, without_target};
use crate::Arch;
use crate::inspect::{Ptx, executed_together, split_by_kernel};

const IR: &str = r#"target triple = "nvptx64-nvidia-cuda"
@TILE = internal unnamed_addr global [128 x i8] undef, section ".shared", align 4
@"a b" = hidden constant <{ [4 x i8] }> c"\00@\22;", align 4
@llvm.used = appending global [1 x ptr] [ptr @TILE], section "llvm.metadata"
@alias = alias ptr, ptr @"a b"
@__tilewright_dynamic_shared = external local_unnamed_addr global [0 x i8]
@__tilewright_facts_k = constant <{ [128 x i8] }> <{ [128 x i8] c"\05\00\00\00\00\00\00\00\00\00\00\00\00\00\00\00\20\00\00\00\00\00\00\00\08\00\00\00\00\00\00\00\01\00\00\00\00\00\00\00\00\00\00\00\00\00\00\00\00\00\00\00\00\00\00\00sm_90a\00\00\00\00\00\00\00\00\00\00\00\00\00\00\00\00\00\00\00\00\00\00\00\00\00\00\00\00\00\00\00\00\00\00\00\00\00\00\00\00\00\00\02\00\00\00\00\00\00\00\01\00\00\00\00\00\00\00\00\00\00\00\00\00\00\00" }>
define ptx_kernel void @k(ptr noundef %a, i64 %b) #0 {
  %1 = getelementptr float, ptr @TILE, i64 %0
  %2 = load i32, ptr getelementptr inbounds nuw (i8, ptr @TILE, i64 12), align 4 ; @no
  call void asm sideeffect "bar.sync 0;", "~{memory}"()
  %3 = call { i32, i32 } @f(ptr byval([4 x i8]) align 4 %1, ptr @"a b")
  ret void
}
attributes #0 = { nounwind "target-cpu"="sm_90a" }
"#;

const PTX: &str = r#".version 8.0
.target sm_90a, debug
.address_size 64
.extern .shared .align 16 .b8 dynamic[];
.shared .align 4 .b8 TILE[128];
.global .align 4 .u32 numbers[2] = {1, 2};
.func (.param .b32 result) helper(.param .b64 p)
;
.visible .entry k(
	.param .u64 k_param_0
)
.reqntid 32, 8, 1
.minnctapersm 2
{
	.local .align 8 .b8 	__local_depot0[16];
	.shared .align 4 .b8 OWN[16];
$L__BB0_1: // a label
	@%p1 ld.global.v4.b32 {%r1, %r2, %r3, %r4}, [%rd1];
	{ // inline asm
	call.uni (retval0), helper, (param0);
	mov.b64 %rd2, numbers;
	bar.sync 0;
	}
	@%p2 bra $L__BB0_1;
	ret;
}
"#;

/// What the readers look for, and numbers that they may add up.
const TOKENS: [&str; 34] = [
    "@",
    "@\"",
    "\"",
    ";",
    "(",
    ")",
    "{",
    "}",
    "[",
    "]",
    "<",
    ">",
    "=",
    ",",
    " ",
    "\n",
    "\t",
    " section \"",
    " = ",
    "define ptx_kernel void @",
    "@__tilewright_facts_k = constant [8 x i8] c\"",
    "18446744073709551615",
    "-1",
    "é",
    ".entry ",
    ".func ",
    ".shared ",
    ".local .b8 x[",
    "[18446744073709551615];",
    ".reqntid ",
    ".version 4294967295.4294967295\n",
    ".target ",
    "addrspace(",
    "\0",
];

#[derive(Clone, Debug)]
enum Edit {
    Cut(usize, usize),
    Insert(usize, &'static str),
    Double(usize, usize),
    End(usize),
}

fn edits() -> impl Strategy<Value = Vec<Edit>> {
    let edit = prop_oneof![
        3 => (any::<usize>(), 1..60usize).prop_map(|(at, length)| Edit::Cut(at, length)),
        4 => (any::<usize>(), proptest::sample::select(&TOKENS[..])).prop_map(|(at, token)| Edit::Insert(at, token)),
        2 => (any::<usize>(), 1..200usize).prop_map(|(at, length)| Edit::Double(at, length)),
        1 => any::<usize>().prop_map(Edit::End),
    ];
    prop::collection::vec(edit, 1..6)
}

fn edited(text: &str, edits: &[Edit]) -> String {
    let mut bytes = text.as_bytes().to_vec();
    for edit in edits {
        let place = |at: usize| at % (bytes.len() + 1);
        match *edit {
            Edit::Cut(at, length) => {
                let start = place(at);
                bytes.drain(start..bytes.len().min(start + length));
            }
            Edit::Insert(at, token) => {
                let start = place(at);
                bytes.splice(start..start, token.bytes());
            }
            Edit::Double(at, length) => {
                let start = place(at);
                let again = bytes[start..bytes.len().min(start + length)].to_vec();
                bytes.splice(start..start, again);
            }
            Edit::End(at) => bytes.truncate(place(at)),
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn read_ir(text: &str) {
    for arch in [Arch::Sm80, Arch::Sm90a] {
        if let Err(error) = rewrite(text, arch) {
            assert!(!error.to_string().is_empty());
        }
    }
    let _ = kernels(text);
    let _ = (convergence::mark_convergent(text), with_reports(text), with_channel(text));
    let (rest, target) = without_target(text);
    let _ = with_target(&rest, &target);
    for line in text.lines() {
        let _ = ir::Variable::parse(line).map(|variable| variable.is_generic());
        let _ = (ir::global_names(line).count(), ir::section(line), ir::split_list(line));
        for open in line.match_indices('(').map(|(open, _)| open) {
            let _ = ir::parenthesized(line, open);
        }
    }
}

fn read_ptx(text: &str) {
    match Ptx::parse(text) {
        Ok(module) => {
            let _ = module.check(&["k".to_owned()]).map_err(|error| assert!(!error.to_string().is_empty()));
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
    if let Ok(modules) = split_by_kernel(text) {
        assert!(modules.iter().all(|(name, module)| module.contains(name)));
    }
    let _ = executed_together(text);
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 4000, rng_seed: RngSeed::Fixed(1), failure_persistence: None, ..ProptestConfig::default()
    })]

    #[test]
    fn whatever_ir_is_made_of_it_is_read_or_refused(edits in edits()) {
        read_ir(&edited(IR, &edits));
    }

    #[test]
    fn whatever_ptx_is_made_of_it_is_read_or_refused(edits in edits()) {
        read_ptx(&edited(PTX, &edits));
    }

    #[test]
    fn any_text_at_all_is_read_or_refused(
        tokens in prop::collection::vec(proptest::sample::select(&TOKENS[..]), 0..40), text in ".{0,40}",
    ) {
        let text = tokens.concat() + &text;
        read_ir(&text);
        read_ptx(&text);
    }
}

#[test]
fn what_is_changed_here_is_right_as_it_stands() {
    assert_eq!(rewrite(IR, Arch::Sm90a).unwrap().names(), ["k"]);
    assert_eq!(Ptx::parse(PTX).unwrap().kernels().count(), 1);
}
