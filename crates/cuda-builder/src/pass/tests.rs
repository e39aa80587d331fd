use super::*;

fn rewritten(ir: &str) -> String {
    rewrite(ir, Arch::Sm90a).unwrap().ir
}

#[test]
fn a_shared_static_moves_to_address_space_3_with_all_its_uses() {
    let ir = r#"
@TILE = internal unnamed_addr global [128 x i8] undef, section ".shared", align 4
@TILE2 = internal global <{ [4 x i8] }> undef, section ".shared", comdat, align 16
@"a b" = global [4 x i8] poison, section ".shared"
@llvm.used = appending global [1 x ptr] [ptr @TILE], section "llvm.metadata"
  %1 = getelementptr float, ptr @TILE, i64 %0
  %2 = load i32, ptr getelementptr inbounds nuw (i8, ptr @TILE2, i64 12), align 4
  %3 = icmp eq ptr %1, @"a b"
  store ptr @TILE20, ptr %2 ; @TILE
"#;
    let expected = r#"
@TILE = internal unnamed_addr addrspace(3) global [128 x i8] undef, align 4
@TILE2 = internal addrspace(3) global <{ [4 x i8] }> undef, comdat, align 16
@"a b" = addrspace(3) global [4 x i8] poison
@llvm.used = appending global [1 x ptr] [ptr addrspacecast (ptr addrspace(3) @TILE to ptr)], section "llvm.metadata"
  %1 = getelementptr float, ptr addrspacecast (ptr addrspace(3) @TILE to ptr), i64 %0
  %2 = load i32, ptr getelementptr inbounds nuw (i8, ptr addrspacecast (ptr addrspace(3) @TILE2 to ptr), i64 12), align 4
  %3 = icmp eq ptr %1, addrspacecast (ptr addrspace(3) @"a b" to ptr)
  store ptr @TILE20, ptr %2 ; @TILE
"#;
    assert_eq!(rewritten(ir), expected);
}

#[test]
fn a_constant_static_moves_to_address_space_4_with_all_its_uses() {
    let ir = r#"
@TABLE = internal unnamed_addr constant <{ [8 x i8] }> <{ [8 x i8] c"section " }>, section ".constant", align 4
@OTHER = internal constant [4 x i8] c"abcd", align 4
  %2 = load i32, ptr getelementptr inbounds nuw (i8, ptr @TABLE, i64 4), align 4
  %3 = load i8, ptr @OTHER
"#;
    let expected = r#"
@TABLE = internal unnamed_addr addrspace(4) constant <{ [8 x i8] }> <{ [8 x i8] c"section " }>, align 4
@OTHER = internal constant [4 x i8] c"abcd", align 4
  %2 = load i32, ptr getelementptr inbounds nuw (i8, ptr addrspacecast (ptr addrspace(4) @TABLE to ptr), i64 4), align 4
  %3 = load i8, ptr @OTHER
"#;
    assert_eq!(rewritten(ir), expected);
    let writable = "@TABLE = internal global [4 x i8] c\"abcd\", section \".constant\"";
    let error = rewrite(writable, Arch::Sm80).unwrap_err();
    assert!(matches!(&error, PassError::NotConstant { name, .. } if name == "TABLE"), "{error}");
}

#[test]
fn dynamic_shared_memory_is_external_and_aligned() {
    let ir = "@__tilewright_dynamic_shared = external local_unnamed_addr global [0 x i8]\n  \
              %1 = getelementptr i8, ptr @__tilewright_dynamic_shared, i64 4\n";
    let expected = "@__tilewright_dynamic_shared = external addrspace(3) global [0 x i8], align 1024\n  \
                    %1 = getelementptr i8, ptr addrspacecast (ptr addrspace(3) @__tilewright_dynamic_shared to ptr), i64 4\n";
    assert_eq!(rewritten(ir), expected);
}

#[test]
fn marker_calls_become_casts_and_the_declaration_goes() {
    let ir = "declare noundef ptr @__tilewright_address_space_global(ptr noundef) unnamed_addr #2\n  \
              %2 = tail call ptr @__tilewright_address_space_global(ptr noundef %0) #9\n";
    let expected = "  %tilewright.cast.2 = addrspacecast ptr %0 to ptr addrspace(1)\n  \
                    %2 = addrspacecast ptr addrspace(1) %tilewright.cast.2 to ptr\n";
    assert_eq!(rewritten(ir), expected);
}

#[test]
fn kernels_get_launch_bounds_and_the_architecture() {
    let ir = entry::line("k", &[5, 0, 32, 8, 1, 2, 0, 0, 0, 0, 0, 0, 0, 1, 0])
        + r#"define ptx_kernel void @k(ptr noundef %0) unnamed_addr #0 align 4 {
  ret void
}
attributes #0 = { nounwind "target-cpu"="sm_80" "x"="y" }
"#;
    let expected = r#"define ptx_kernel void @k(ptr noundef %0) unnamed_addr "nvvm.reqntid"="32,8,1" "nvvm.minctasm"="2" #0 align 4 {
  call void asm sideeffect "griddepcontrol.wait;", "~{memory}"()
  ret void
}
attributes #0 = { nounwind "target-cpu"="sm_90a" "x"="y" }
"#;
    let result = rewrite(&ir, Arch::Sm90a).unwrap();
    assert_eq!(result.ir, expected);
    assert_eq!(result.names(), ["k"]);
    assert_eq!(kept(&ir), ["__tilewright_facts_k", "k"]);
}

#[test]
fn kernels_wait_for_earlier_ones_where_they_may_be_launched_while_these_run() {
    let facts = entry::line("k", &[5, 0, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    let others = "define void @f() {\nstart:\n  ret void\n}\n";
    for label in ["start:\n", "start:                    ; preds = none\n", ""] {
        let kernel = format!("define ptx_kernel void @k() {{\n{label}  ret void\n}}\n");
        let rewritten = |arch| rewrite(&format!("{facts}{kernel}{others}"), arch).unwrap().ir;
        let wait = "  call void asm sideeffect \"griddepcontrol.wait;\", \"~{memory}\"()\n";
        let waits = |ir: &str| ir.matches(wait).count();
        for arch in [Arch::Sm90, Arch::Sm90a, Arch::Sm120] {
            let ir = rewritten(arch);
            assert!(ir.contains(&format!("{{\n{label}{wait}  ret void\n}}\n")), "{ir}");
            assert_eq!(waits(&ir), 1, "{ir}");
        }
        assert_eq!(waits(&rewritten(Arch::Sm89)), 0);
    }
}

#[test]
fn a_kernel_for_one_architecture_is_left_out_of_the_others() {
    let ir = entry::line("a", &[5, 0, 1, 1, 1, 0, 0, u64::from_le_bytes(*b"sm_90a\0\0"), 0, 0, 0, 0, 0, 0])
        + &entry::line("b", &[5, 0, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0])
        + "define ptx_kernel void @a() {\n}\ndefine ptx_kernel void @b() {\n}\n";
    assert_eq!(rewrite(&ir, Arch::Sm90a).unwrap().names(), ["a", "b"]);
    assert_eq!(rewrite(&ir, Arch::Sm80).unwrap().names(), ["b"]);
}

#[test]
fn refuses_entries_that_the_macro_did_not_make() {
    let error = rewrite("define ptx_kernel void @k() #0 {\n}", Arch::Sm80).unwrap_err();
    assert_eq!(error, PassError::ForeignEntry { kernel: "k".to_owned() });
    let ir = entry::line("other", &[5, 0, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0]) + "define ptx_kernel void @k() {\n}";
    assert_eq!(rewrite(&ir, Arch::Sm80).unwrap_err(), PassError::ForeignEntry { kernel: "k".to_owned() });
    let ir = entry::line("k", &[9, 0, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0]) + "define ptx_kernel void @k() {\n}";
    let error = rewrite(&ir, Arch::Sm80).unwrap_err();
    assert!(matches!(error, PassError::MalformedEntry { .. }) && error.to_string().contains("version 9"), "{error}");
}

#[test]
fn refuses_what_shared_memory_cannot_hold() {
    for (definition, reason) in [
        (r#"@X = internal constant [4 x i8] undef, section ".shared""#, "written"),
        (r#"@X = internal global [4 x i8] zeroinitializer, section ".shared""#, "initial value"),
        (r#"@X = internal global [4 x i8] c"\01\02\03\04", section ".shared""#, "initial value"),
        (r#"@X = internal thread_local global [4 x i8] undef, section ".shared""#, "thread-local"),
        (r#"@X = internal addrspace(1) global [4 x i8] undef, section ".shared""#, "address space"),
        (r#"@X = internal global [4 x i8] undef, section ".shared.x""#, ".shared.x"),
        ("@__tilewright_dynamic_shared = internal global [0 x i8] zeroinitializer", "dynamic shared memory"),
    ] {
        let error = rewrite(definition, Arch::Sm80).unwrap_err();
        assert!(matches!(error, PassError::NotShareable { .. }), "{definition}: {error}");
        assert!(error.to_string().contains(reason), "{definition}: {error}");
    }
}

#[test]
fn refuses_the_address_of_shared_memory_in_a_static() {
    let ir = "@X = internal global [4 x i8] undef, section \".shared\"\n@P = constant ptr @X\n";
    let error = rewrite(ir, Arch::Sm80).unwrap_err();
    assert_eq!(error, PassError::SharedAddressInStatic { holder: "P".to_owned(), shared: "X".to_owned() });
}

#[test]
fn refuses_a_writable_static_that_a_kernel_comes_to() {
    let ir = |in_kernel: &str| {
        entry::line("k", &[5, 0, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0])
            + &format!(
                "@_RNvCs1234_7kernels5COUNT = internal global i32 0\n@TABLE = internal constant ptr @_RNvCs1234_7kernels5COUNT\n\
             define ptx_kernel void @k() {{\n  {in_kernel}\n}}\n\
             define internal void @f() {{\n  %1 = load ptr, ptr @TABLE\n}}\n"
            )
    };
    assert!(rewrite(&ir("ret void"), Arch::Sm80).is_ok());
    let error = rewrite(&ir("call void @f()"), Arch::Sm80).unwrap_err();
    assert_eq!(error, PassError::WritableStatic { kernel: "k".to_owned(), name: "kernels::COUNT".to_owned() });
}
