//! What GPUs have an instruction: the table in `inspect/targets.rs` beside what `ptxas` takes. Needs `ptxas`, which `cargo tilewright setup` gets.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use tilewright_cuda_builder::Arch;
use tilewright_cuda_builder::inspect::{Ptx, assemble};

/// What the language emits that not all GPUs have, its neighbours, and what all of them have that looks alike.
const INSTRUCTIONS: &str = "\
mapa.shared::cluster.u32 %r1, %r2, %r3
getctarank.shared::cluster.u32 %r1, %r2
mbarrier.init.shared::cta.b64 [%r1], %r2
mbarrier.arrive.shared::cta.b64 _, [%r1]
mbarrier.arrive.shared.b64 %rd1, [%r1], %r2
mbarrier.arrive.noComplete.shared.b64 %rd1, [%r1], %r2
mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r1]
mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r1], %r2
mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%r1], %r2
mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [%r1], %r2
mbarrier.test_wait.shared::cta.b64 %p1, [%r1], %rd1
mbarrier.test_wait.parity.shared::cta.b64 %p1, [%r1], %r2
mbarrier.try_wait.parity.shared::cta.b64 %p1, [%r1], %r2
mbarrier.arrive_drop.expect_tx.shared::cta.b64 %rd1, [%r1], %r2
mbarrier.pending_count.b64 %r1, %rd1
cp.async.mbarrier.arrive.shared.b64 [%r1]
fence.mbarrier_init.release.cluster
fence.proxy.async.shared::cta
fence.proxy.async
fence.proxy.alias
fence.proxy.tensormap::generic.release.gpu
fence.acq_rel.gpu
fence.sc.cluster
fence.sc.sys
fence.release.sync_restrict::shared::cta.cluster
prefetch.tensormap [%rd1]
prefetch.global.L2 [%rd1]
cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%rd1, {%r2,%r3,%r4}], [%r5]
cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%r1], [%rd1, {%r2,%r3,%r4}], [%r5], %h1
cp.async.bulk.tensor.4d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes [%r1], [%rd1, {%r2,%r3,%r4,%r5}], [%r5], {%h1,%h2}
cp.async.bulk.tensor.3d.global.shared::cta.bulk_group [%rd1, {%r2,%r3,%r4}], [%r1]
cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%rd1], %r2, [%r3]
cp.async.bulk.global.shared::cta.bulk_group.cp_mask [%rd1], [%r1], %r2, %h1
cp.async.bulk.commit_group
cp.async.bulk.wait_group.read 0
cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%rd1], [%r1], %r2
cp.async.ca.shared.global [%r1], [%rd1], 4
cp.async.commit_group
cp.async.wait_group 0
setmaxnreg.inc.sync.aligned.u32 232
elect.sync _|%p1, 0xFFFFFFFF
wgmma.fence.sync.aligned
wgmma.commit_group.sync.aligned
wgmma.wait_group.sync.aligned 0
wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%f1,%f2,%f3,%f4}, %rd1, %rd2, %p1, 1, 1, 0, 0
griddepcontrol.wait
griddepcontrol.launch_dependents
barrier.cluster.arrive.release
barrier.cluster.wait.acquire
barrier.sync 0
bar.sync 0
tensormap.replace.tile.global_address.global.b1024.b64 [%rd1], %rd2
stmatrix.sync.aligned.m8n8.x1.shared.b16 [%r1], {%r2}
ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r2}, [%r1]
movmatrix.sync.aligned.m8n8.trans.b16 %r1, %r2
st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.u32 [%r1], %r2, [%r3]
red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.add.u32 [%r1], %r2, [%r3]
multimem.st.relaxed.gpu.global.u32 [%rd1], %r1
redux.sync.add.u32 %r1, %r2, 0xffffffff
cvt.rn.satfinite.e4m3x2.f32 %h1, %f1, %f2
cvt.rn.f16x2.e5m2x2 %r1, %h1
cvt.rn.bf16x2.f32 %r1, %f1, %f2
cvt.rn.bf16.f32 %h1, %f1
cvt.f32.bf16 %f1, %h1
cvt.rn.bf16.f64 %h1, %fd1
cvt.rn.bf16.s32 %h1, %r1
cvt.rn.f16.bf16 %h1, %h2
cvt.rna.tf32.f32 %r1, %f1
cvt.rn.tf32.f32 %r1, %f1
cvt.rn.f16x2.f32 %r1, %f1, %f2
add.rn.bf16 %h1, %h2, %h3
mul.bf16x2 %r1, %r2, %r3
fma.rn.bf16x2 %r1, %r2, %r3, %r4
fma.rn.relu.bf16x2 %r1, %r2, %r3, %r4
fma.rn.oob.f16x2 %r1, %r2, %r3, %r4
min.bf16x2 %r1, %r2, %r3
min.xorsign.abs.f32 %f1, %f2, %f3
min.u16x2 %r1, %r2, %r3
min.relu.s32 %r1, %r2, %r3
add.rn.f32x2 %rd1, %rd2, %rd3
setp.eq.bf16 %p1, %h1, %h2
tanh.approx.f32 %f1, %f2
tanh.approx.bf16x2 %r1, %r2
ex2.approx.ftz.bf16x2 %r1, %r2
ex2.approx.ftz.f32 %f1, %f2
atom.relaxed.gpu.global.add.noftz.bf16x2 %r1, [%rd1], %r2
atom.relaxed.gpu.global.add.noftz.f16x2 %r1, [%rd1], %r2
red.global.add.noftz.bf16x2 [%rd1], %r2
red.global.add.v2.f32 [%rd1], {%f3,%f4}
atom.global.exch.b128 %q1, [%rd1], %q2
atom.acq_rel.cluster.shared.add.u32 %r1, [%r2], %r3
atom.acq_rel.cta.shared.add.u32 %r1, [%r2], %r3
ld.shared::cluster.b32 %r1, [%r2]
ld.relaxed.cluster.global.b32 %r1, [%rd1]
ld.acquire.gpu.global.b32 %r1, [%rd1]
st.shared::cluster.b32 [%r2], %r1
ld.global.v8.b32 {%r1,%r2,%r3,%r4,%r5,%r6,%r7,%r8}, [%rd1]
ld.global.v4.b64 {%rd1,%rd2,%rd3,%rd4}, [%rd1]
ld.global.v2.b64 {%rd1,%rd2}, [%rd1]
ld.global.v4.b32 {%r1,%r2,%r3,%r4}, [%rd1]
ld.global.nc.L1::no_allocate.v4.f32 {%f1,%f2,%f3,%f4}, [%rd1]
st.global.L1::evict_last.b32 [%rd1], %r1
createpolicy.fractional.L2::evict_first.b64 %rd1, 1.0
isspacep.shared::cluster %p1, %rd1
nanosleep.u32 1000
mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%fd1,%fd2}, {%fd3}, {%fd4}, {%fd1,%fd2}
mma.sync.aligned.m16n8k4.row.col.f64.f64.f64.f64 {%fd1,%fd2,%fd3,%fd4}, {%fd3,%fd4}, {%fd4}, {%fd1,%fd2,%fd3,%fd4}
mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%f1,%f2,%f3,%f4}, {%r1,%r2,%r3,%r4}, {%r5,%r6}, {%f1,%f2,%f3,%f4}
mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32 {%f1,%f2,%f3,%f4}, {%r1,%r2,%r3,%r4}, {%r5,%r6}, {%f1,%f2,%f3,%f4}
mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%r1,%r2,%r3,%r4}, {%r1,%r2,%r3,%r4}, {%r5,%r6}, {%r1,%r2,%r3,%r4}
mov.u32 %r1, %cluster_ctarank
mov.u32 %r1, %cluster_nctaid.x
mov.u32 %r1, %clusterid.x
mov.u32 %r1, %nclusterid.x
mov.u32 %r1, %dynamic_smem_size
mov.u64 %rd1, %globaltimer
clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes.b128 [%r1], [%r2]
tcgen05.wait::ld.sync.aligned
match.any.sync.b32 %r1, %r2, 0xffffffff
activemask.b32 %r1
shfl.sync.down.b32 %r1|%p1, %r2, 1, 31, 0xffffffff";

/// A kernel of these instructions, each on a line of its own, and the number of the first of those lines.
fn module(arch: Arch, instructions: &[&str]) -> (String, usize) {
    let head = format!(
        ".version 8.8\n.target {arch}\n.address_size 64\n.visible .entry k() .reqntid 128 {{\n\
         .reg .b16 %h<9>; .reg .b32 %r<9>; .reg .b64 %rd<9>; .reg .f32 %f<9>; .reg .f64 %fd<9>; .reg .pred %p<4>; .reg .b128 %q<3>;\n"
    );
    let first = head.lines().count() + 1;
    let mut text = head;
    for instruction in instructions {
        let _ = writeln!(text, "{instruction};");
    }
    (text + "ret;\n}\n", first)
}

#[test]
fn the_table_is_what_the_assembler_takes() {
    let all: Vec<&str> = INSTRUCTIONS.lines().collect();
    let kernels = ["k".to_owned()];
    for &arch in Arch::ALL {
        let is_taken =
            |instruction: &&str| Ptx::parse(&module(arch, &[instruction]).0).unwrap().check(&kernels).is_ok();
        let (taken, refused): (Vec<&str>, Vec<&str>) = all.iter().copied().partition(is_taken);
        let (text, _) = module(arch, &taken);
        assemble(&text, arch).unwrap_or_else(|error| panic!("accepted for {arch}, and not there: {error}"));
        if refused.is_empty() {
            continue;
        }
        let (text, first) = module(arch, &refused);
        let message = assemble(&text, arch).unwrap_err().to_string();
        let lines: BTreeSet<usize> =
            message.lines().filter_map(|line| line.split_once(", line ")?.1.split_once(';')?.0.parse().ok()).collect();
        let there: Vec<&str> =
            refused.iter().enumerate().filter(|(i, _)| !lines.contains(&(first + i))).map(|(_, one)| *one).collect();
        assert_eq!(there, [""; 0], "refused for {arch}, and there: {message}");
    }
}
