//! Accesses outside of views and arrays, each with the access that is just inside.

#![allow(clippy::undocumented_unsafe_blocks, reason = "many of these kernels break the contracts on purpose")]

extern crate tilewright_cuda_std as cuda_std;

mod common;

use common::{ALL_CHECKS, WithShared, at, fault, launch, line_of, succeed, what};
use cuda_std::Excess;
use cuda_std::executor::{Checks, FaultKind, LaunchError, SharedArrayName};
use cuda_std::prelude::*;

const SOURCE: &str = include_str!("memory.rs");

#[kernel(block = 32)]
fn copies(from: GlobalSlice<'_, f32>, to: GlobalSliceMut<'_, f32>) {
    let i = thread::index_1d();
    unsafe {
        let value = from.get_unchecked(i); // <load>
        to.set_unchecked(i, value); // <store>
    }
}

#[test]
fn a_load_past_the_end_is_reported() {
    let mut to = [0.0; 64];
    for checks in ALL_CHECKS {
        let from: Vec<f32> = (0..63).map(|i| i as f32).collect();
        let kernel = copies { from: GlobalSlice::new(&from), to: GlobalSliceMut::new(&mut to) };
        let fault = fault(checks, kernel, 2);
        assert_eq!((fault.block, fault.thread), (at(1, 0, 0), at(31, 0, 0)));
        assert_eq!(
            fault.kind,
            FaultKind::OutOfBounds { view: Some("from".into()), first: 0, index: 63, count: 1, len: 63 }
        );
        let location = fault.location.clone().unwrap();
        assert_eq!(location.line, line_of(SOURCE, "load"));
        assert!(location.file.ends_with("tests/memory.rs"), "{location}");
        assert_eq!(
            fault.to_string().lines().take(2).collect::<Vec<_>>(),
            [
                "kernel `copies`, block (1, 0, 0), thread (31, 0, 0): element 63 is out of bounds of view `from`, which has 63",
                &format!("  --> {location}"),
            ]
        );
    }
}

#[test]
fn a_store_past_the_end_is_reported_and_none_inside_is() {
    let from: Vec<f32> = (0..64).map(|i| i as f32).collect();
    for checks in ALL_CHECKS {
        let mut to = [0.0; 65];
        let kernel = copies { from: GlobalSlice::new(&from), to: GlobalSliceMut::new(&mut to[..40]) };
        let fault = fault(checks, kernel, 2);
        assert_eq!((fault.block, fault.thread), (at(1, 0, 0), at(8, 0, 0)));
        assert_eq!(fault.location.unwrap().line, line_of(SOURCE, "store"));
        assert_eq!(
            fault.kind,
            FaultKind::OutOfBounds { view: Some("to".into()), first: 0, index: 40, count: 1, len: 40 }
        );
        assert_eq!(to[40..], [0.0; 25]);

        succeed(checks, copies { from: GlobalSlice::new(&from), to: GlobalSliceMut::new(&mut to[..64]) }, 2);
        assert_eq!(to[..64], from);
        assert_eq!(to[64], 0.0);
    }
}

#[derive(Clone, Copy, KernelParam)]
#[repr(C)]
struct Matrix<'a> {
    columns: u64,
    data: GlobalSlice<'a, f64>,
}

#[kernel(block = (4, 2))]
fn reads_row_3(a: Matrix<'_>, b: Matrix<'_>) {
    let column = thread::thread_idx_x() as usize;
    unsafe {
        a.data.get_unchecked(column);
        b.data.get_unchecked(3 * b.columns as usize + column);
    }
}

#[test]
fn a_view_in_a_struct_is_named_by_its_path() {
    let data = [0.0; 12];
    let a = Matrix { columns: 4, data: GlobalSlice::new(&data) };
    let b = Matrix { columns: 4, data: GlobalSlice::new(&data[1..]) };
    let fault = fault(Checks::Bounds, reads_row_3 { a, b }, 1);
    assert_eq!(
        fault.kind,
        FaultKind::OutOfBounds { view: Some("b.data".into()), first: 0, index: 12, count: 1, len: 11 }
    );
    assert_eq!(fault.thread, at(0, 0, 0));
}

#[kernel(block = 1)]
fn reads_first(x: GlobalSlice<'_, u32>, y: GlobalSlice<'_, u32>) {
    unsafe { y.get_unchecked(x.len()) };
}

#[test]
fn views_that_cannot_be_told_apart_are_both_named() {
    let kernel = reads_first { x: GlobalSlice::new(&[]), y: GlobalSlice::new(&[]) };
    let FaultKind::OutOfBounds { view, .. } = fault(Checks::Bounds, kernel, 1).kind else { panic!() };
    assert_eq!(view.unwrap(), "x` or `y");
}

#[kernel(block = 2)]
fn reads_vectors(x: GlobalSlice<'_, f32>, first: u64, y: GlobalSliceMut<'_, f32>) {
    let t = thread::thread_idx_x() as usize;
    let four = unsafe { x.get4_unchecked(first as usize + 4 * t) }; // <vector>
    for (i, value) in four.into_iter().enumerate() {
        unsafe { y.set_unchecked(4 * t + i, value) };
    }
}

#[repr(align(16))]
struct Aligned([f32; 13]);

#[test]
fn a_vector_load_has_to_be_aligned_and_inside() {
    let x = Aligned(core::array::from_fn(|i| i as f32));
    let mut y = [0.0; 8];
    for checks in ALL_CHECKS {
        let y = GlobalSliceMut::new(&mut y);
        let kernel = |x, first| reads_vectors { x: GlobalSlice::new(x), first, y };
        let misaligned = fault(checks, kernel(&x.0, 3), 1);
        assert_eq!(misaligned.kind, FaultKind::Misaligned { view: Some("x".into()), first: 0, index: 3, bytes: 16 });
        assert_eq!(misaligned.location.unwrap().line, line_of(SOURCE, "vector"));
        let base_misaligned = fault(checks, kernel(&x.0[1..], 0), 1);
        assert_eq!(
            base_misaligned.kind,
            FaultKind::Misaligned { view: Some("x".into()), first: 0, index: 0, bytes: 16 }
        );

        let outside = fault(checks, kernel(&x.0, 8), 1);
        assert_eq!(
            outside.kind,
            FaultKind::OutOfBounds { view: Some("x".into()), first: 0, index: 12, count: 4, len: 13 }
        );
        assert_eq!(outside.thread, at(1, 0, 0));
        assert!(
            what(&outside).ends_with("the 4 elements from 12 are not all in bounds of view `x`, which has 13"),
            "{outside}"
        );

        succeed(checks, kernel(&x.0, 4), 1);
    }
    assert_eq!(y, x.0[4..12]);
}

/// Accesses one element of the part of a view from `first` on. `vector`: four of them at once.
#[kernel(block = 1)]
fn accesses_a_part(x: GlobalSliceMut<'_, f32>, y: GlobalSlice<'_, f32>, first: u64, index: u64, what: u32) {
    let (first, index) = (first as usize, index as usize);
    unsafe {
        match what {
            0 => drop(y.from_unchecked(first).get_unchecked(index)), // <part read>
            1 => x.from_unchecked(first).set_unchecked(index, 1.0),  // <part written>
            2 => drop(y.from_unchecked(first).get4_unchecked(index)), // <part vector>
            _ => drop(y.from_unchecked(first / 2).from_unchecked(first - first / 2).get_unchecked(index)),
        }
    }
}

#[test]
fn an_access_through_a_part_names_the_view_and_the_place_in_it() {
    let (mut x, y) = (Aligned([0.0; 13]), Aligned([0.0; 13]));
    // Side by side in memory: the end of the one is the beginning of the other.
    let mut both = [0.0f32; 20];
    for checks in ALL_CHECKS {
        let mut found = |first: u64, index: u64, what| {
            let (x, y) = (GlobalSliceMut::new(&mut x.0), GlobalSlice::new(&y.0));
            fault(checks, accesses_a_part { x, y, first, index, what }, 1)
        };
        for (what, view, place) in [(0, "y", Some("part read")), (1, "x", Some("part written")), (3, "y", None)] {
            let fault = found(10, 3, what);
            let view = Some(view.to_owned());
            assert_eq!(fault.kind, FaultKind::OutOfBounds { view, first: 10, index: 3, count: 1, len: 3 });
            if let Some(place) = place {
                assert_eq!(fault.location.clone().unwrap().line, line_of(SOURCE, place));
            }
        }
        let message = what(&found(10, 3, 1));
        let expected = "element 3 is out of bounds of the part of view `x` from element 10 on, which has 3: it would be element 13 of \
                        the view";
        assert!(message.ends_with(expected), "{message}");
        // Before the part, and before the view.
        let message = what(&found(10, -4i64 as u64, 0));
        assert!(
            message.ends_with("part of view `y` from element 10 on, which has 3: it would be element 6 of the view"),
            "{message}"
        );
        assert!(what(&found(10, -12i64 as u64, 0)).ends_with("it would be element -2 of the view"));
        // A part that begins at the end, or behind it, has nothing.
        for first in [13, 14, 1000] {
            let message = found(first, 2, 0).to_string();
            assert!(message.contains("part of view `y` from element 13 on, which has 0"), "{message}");
        }
        let vector = found(8, 4, 2);
        let view = Some("y".to_owned());
        assert_eq!(vector.kind, FaultKind::OutOfBounds { view: view.clone(), first: 8, index: 4, count: 4, len: 5 });
        assert!(
            vector.to_string().contains("the 4 elements from 4 are not all in bounds of the part of view `y`"),
            "{vector}"
        );
        let misaligned = found(3, 2, 2);
        assert_eq!(misaligned.kind, FaultKind::Misaligned { view, first: 3, index: 2, bytes: 16 });
        let message = what(&misaligned);
        let expected = "the address of element 2 of the part of view `y` from element 3 on, element 5 of the view, is not a multiple of \
                        16 bytes";
        assert!(message.ends_with(expected), "{message}");

        let (left, right) = both.split_at_mut(8);
        for first in [8, 9] {
            let (x, y) = (GlobalSliceMut::new(right), GlobalSlice::new(left));
            let kernel = accesses_a_part { x, y, first, index: 1, what: 0 };
            let FaultKind::OutOfBounds { view, first, .. } = fault(checks, kernel, 1).kind else { panic!() };
            assert_eq!((view.as_deref(), first), (Some("y"), 8));
        }
    }
}

#[kernel(block = 1, dynamic_shared = 256)]
fn accesses_a_part_of_shared_memory(first: u64, index: u64, writes: u32) {
    unsafe {
        let part = dynamic_shared::<f64>(16, 20).skip(first as usize);
        if writes != 0 {
            part.write(index as usize, 1.0);
        } else {
            part.read(index as usize);
        }
    }
}

#[test]
fn an_access_through_a_part_of_shared_memory_says_where_that_is() {
    for checks in ALL_CHECKS {
        for writes in [0, 1] {
            let fault = fault(checks, accesses_a_part_of_shared_memory { first: 12, index: 8, writes }, 1);
            let array = SharedArrayName::Slice { byte_offset: 112, len: 8, element_bytes: 8 };
            assert_eq!(fault.kind, FaultKind::SharedOutOfBounds { array, index: "8".into() });
            let message = what(&fault);
            let expected = "index 8 is out of bounds of the slice of 8 elements of 8 bytes from byte 112 on of the dynamic shared memory";
            assert!(message.ends_with(expected), "{message}");
        }
    }
}

#[kernel(block = 1, dynamic_shared = 256)]
fn accesses_vectors_in_shared_memory(index: u64, what: u32) {
    unsafe {
        let (slice, index) = (dynamic_shared::<f32>(8, 20).skip(1), index as usize);
        match what {
            0 => slice.write2(index, [1.0; 2]),
            1 => slice.write4(index, [1.0; 4]),
            2 => drop(slice.read2(index)),
            _ => drop(slice.read4(index)),
        }
    }
}

#[test]
fn vectors_in_shared_memory_have_to_be_aligned() {
    let array = SharedArrayName::Slice { byte_offset: 12, len: 19, element_bytes: 4 };
    for (what, bytes) in [(0, 8), (1, 16), (2, 8), (3, 16)] {
        let fault = |index| fault(Checks::Full, accesses_vectors_in_shared_memory { index, what }, 1);
        let misaligned = fault(2);
        assert_eq!(misaligned.kind, FaultKind::SharedMisaligned { array: array.clone(), index: 2, bytes });
        assert!(misaligned.location.unwrap().file.ends_with("tests/memory.rs"));
        assert!(matches!(fault(21).kind, FaultKind::SharedOutOfBounds { array: name, .. } if name == array));
    }
    for index in [1, 5] {
        succeed(Checks::Full, accesses_vectors_in_shared_memory { index, what: 1 }, 1);
    }
}

#[kernel(block = 1)]
fn writes_shared(row: u64, column: u64) {
    static TILE: Shared<[[f32; 5]; 3]> = Shared::new(); // <tile>
    unsafe { TILE.write([row as usize, column as usize], 1.0) }; // <tile write>
}

#[test]
fn an_index_outside_a_shared_array_is_reported_as_written() {
    for checks in ALL_CHECKS {
        succeed(checks, writes_shared { row: 2, column: 4 }, 1);
        // The last is inside if only the offset counts.
        for (row, column) in [(3, 0), (u64::MAX, u64::MAX), (1, 5)] {
            let fault = fault(checks, writes_shared { row, column }, 1);
            assert_eq!(fault.location.unwrap().line, line_of(SOURCE, "tile write"));
            let FaultKind::SharedOutOfBounds { array, index } = fault.kind else { panic!("{:?}", fault.kind) };
            assert_eq!(index, format!("[{row}, {column}]"));
            let SharedArrayName::Static { declared, type_name } = array else { panic!("{array:?}") };
            assert_eq!((declared.line, type_name), (line_of(SOURCE, "tile"), "[[f32; 5]; 3]"));
        }
    }
}

#[kernel(block = 4, dynamic_shared = 64)]
fn uses_dynamic(byte_offset: u64, len: u64, index: u64, out: GlobalSliceMut<'_, f64>) {
    let t = thread::thread_idx_x() as usize;
    unsafe {
        let slice = dynamic_shared::<f64>(byte_offset as usize, len as usize); // <slice>
        slice.write(t + index as usize, t as f64 + 0.5); // <slice write>
        thread::sync_threads();
        out.set_unchecked(thread::index_1d(), slice.read(3 - t + index as usize));
    }
}

#[test]
fn dynamic_shared_memory_is_as_large_as_the_kernel_says() {
    let mut out = [0.0; 12];
    for checks in ALL_CHECKS {
        let mut run = |byte_offset, len, index| {
            let out = GlobalSliceMut::new(&mut out);
            launch(checks, uses_dynamic { byte_offset, len, index, out }, 3)
        };
        run(16, 6, 2).unwrap();
        for (byte_offset, len) in [(20, 1), (16, 7), (72, 0), (8, u64::MAX)] {
            let Err(LaunchError::Fault(fault)) = run(byte_offset, len, 0) else { panic!() };
            let (byte_offset, len) = (byte_offset as usize, len as usize);
            let kind = FaultKind::DynamicSharedBounds { byte_offset, len, element_bytes: 8, available: 64 };
            assert_eq!(fault.kind, kind);
            assert_eq!(fault.location.unwrap().line, line_of(SOURCE, "slice"));
        }
        let Err(LaunchError::Fault(fault)) = run(16, 6, 3) else { panic!() };
        let array = SharedArrayName::Slice { byte_offset: 16, len: 6, element_bytes: 8 };
        let kind = FaultKind::SharedOutOfBounds { array, index: "6".into() };
        assert_eq!((fault.kind, fault.thread), (kind, at(3, 0, 0)));
        assert_eq!(fault.location.unwrap().line, line_of(SOURCE, "slice write"));
    }
    assert_eq!(out, [[3.5, 2.5, 1.5, 0.5]; 3].concat()[..]);
}

#[kernel(block = 1)]
fn uses_much_shared_memory(second: u32) {
    const LEN: usize = 6000;
    static FIRST: Shared<[u64; LEN]> = Shared::new();
    static SECOND: Shared<[u64; 144]> = Shared::new();
    unsafe {
        FIRST.write(LEN - 1, 1);
        SECOND.write(143, 1);
        if second != 0 {
            declares_its_own();
        }
    }
}

/// A function that is no kernel. On a GPU the array would be in nobody's shared memory.
unsafe fn declares_its_own() {
    static THIRD: Shared<[u32; 1]> = Shared::new();
    unsafe { THIRD.write(0, 1) }; // <third>
}

#[test]
fn a_block_cannot_have_more_shared_memory_than_on_a_gpu() {
    assert_eq!(uses_much_shared_memory::FACTS.static_shared_bytes, 48 << 10);
    for checks in ALL_CHECKS {
        launch(checks, WithShared::<{ (227 - 48) << 10 }, _>(uses_much_shared_memory { second: 0 }), 2).unwrap();

        let result =
            launch(checks, WithShared::<{ ((227 - 48) << 10) + 1 }, _>(uses_much_shared_memory { second: 0 }), 2);
        let Err(LaunchError::Excess { excess, .. }) = result else { panic!("{result:?}") };
        assert_eq!(excess, Excess::Shared { static_bytes: 0xC000, dynamic_bytes: 0x2CC01, limit: 227 << 10 });
    }
}

#[test]
fn an_array_that_the_kernel_does_not_declare_is_reported() {
    for checks in ALL_CHECKS {
        let undeclared = fault(checks, uses_much_shared_memory { second: 1 }, 2);
        assert_eq!(undeclared.location.unwrap().line, line_of(SOURCE, "third"));
        let FaultKind::SharedUndeclared { static_bytes, declared_bytes, .. } = undeclared.kind else {
            panic!("{:?}", undeclared.kind)
        };
        assert_eq!((static_bytes, declared_bytes), ((48 << 10) + 4, 48 << 10));
    }
}

/// Block 0 writes all of an array, the others only a part, and all read an element of the rest.
#[kernel(block = 8)]
fn reads_what_block_0_wrote(out: GlobalSliceMut<'_, f64>) {
    static ARRAY: Shared<[[f64; 2]; 4]> = Shared::new(); // <array>
    let t = thread::thread_idx_x() as usize;
    unsafe {
        if thread::block_idx_x() == 0 || t < 4 {
            ARRAY.write([t / 2, t % 2], 7.0);
        }
        thread::sync_threads();
        if t == 5 {
            out.set_unchecked(thread::block_idx_x() as usize, ARRAY.read([t / 2, t % 2])); // <unwritten>
        }
    }
}

#[test]
fn memory_that_this_block_has_not_written_holds_nothing() {
    let mut out = [0.0; 2];
    // Without the check: neither garbage, nor what another block left.
    succeed(Checks::Bounds, reads_what_block_0_wrote { out: GlobalSliceMut::new(&mut out) }, 2);
    assert!(out[0] == 7.0 && out[1].is_nan(), "{out:?}");

    let fault = fault(Checks::Full, reads_what_block_0_wrote { out: GlobalSliceMut::new(&mut out) }, 2);
    assert_eq!((fault.block, fault.thread), (at(1, 0, 0), at(5, 0, 0)));
    assert_eq!(fault.location.unwrap().line, line_of(SOURCE, "unwritten"));
    let FaultKind::UnwrittenShared { array, element, pending: None } = fault.kind else { panic!("{:?}", fault.kind) };
    assert_eq!(element, "[2, 1]");
    let SharedArrayName::Static { declared, .. } = array else { panic!("{array:?}") };
    assert_eq!(declared.line, line_of(SOURCE, "array"));
}

/// Each thread doubles its own elements; `first` says whether only the first.
#[kernel(block = (4, 2))]
fn doubles_own(first: u32, x: DisjointSlice<'_, u32>) {
    if first != 0 {
        if let Some(x) = x.own() {
            x.set(2 * x.get());
        }
    } else {
        for x in x.own_elements() {
            x.set(2 * x.index() as u32 + x.get());
        }
    }
}

#[test]
fn each_thread_has_elements_of_its_own_and_all_together_have_all() {
    for checks in ALL_CHECKS {
        for (grid, len) in [(Dim3::from(3), 100), (Dim3::new(2, 3, 2), 1000), (Dim3::from(1), 3), (Dim3::from(2), 0)] {
            let mut x: Vec<u32> = (0..len).collect();
            launch(checks, doubles_own { first: 0, x: DisjointSlice::new(&mut x) }, grid).unwrap();
            assert!(x.iter().enumerate().all(|(i, x)| *x == 3 * i as u32), "{grid}, {len}");
            launch(checks, doubles_own { first: 1, x: DisjointSlice::new(&mut x) }, grid).unwrap();
            let threads = (8 * grid.x * grid.y * grid.z) as usize;
            assert!(x.iter().enumerate().all(|(i, x)| *x == (if i < threads { 6 } else { 3 }) * i as u32));
        }
    }
}

/// Which thread has written an element: its number in the grid, from 1 on. Elements that two have written say so.
fn mark(seen: u32) -> u32 {
    if seen == 0 { thread::index() as u32 + 1 } else { u32::MAX }
}

/// Each thread marks its own chunks of three.
#[kernel(block = (4, 2))]
fn marks_chunks(x: DisjointSlice<'_, u32, PerThread<3>>) {
    for chunk in x.own_chunks() {
        for i in 0..4 {
            if let Some(seen) = chunk.get(i) {
                assert!(chunk.set(i, mark(seen)));
            } else {
                assert!(!chunk.set(i, 0), "behind the end");
            }
        }
    }
}

/// The same of vectors.
#[kernel(block = (4, 2))]
fn marks_vectors(x: DisjointSlice<'_, u32, PerThread<4>>) {
    x.own_chunks().for_each(|chunk| chunk.set_vector(chunk.get_vector(0).map(mark)));
}

/// Of rows of each block.
#[kernel(block = (4, 2))]
fn marks_rows(x: DisjointSlice<'_, u32, PerBlock>) {
    for row in x.own_rows() {
        row.own_elements().for_each(|x| x.set(mark(x.get())));
    }
}

/// Of rows of each warp, in vectors of two; the last warp has eight lanes.
#[kernel(block = (20, 2))]
fn marks_rows_of_warps(x: DisjointSlice<'_, u32, PerWarp<2>>) {
    for row in x.own_rows() {
        row.own_chunks().for_each(|chunk| chunk.set_vector(chunk.get_vector(0).map(mark)));
    }
}

/// Whatever the grid, the length and the rows: each element has one thread, and the one that the partition says.
#[test]
fn each_element_has_the_thread_that_its_partition_says() {
    let launches = [(Dim3::from(3), 100), (Dim3::new(2, 3, 2), 1001), (Dim3::from(1), 3), (Dim3::from(2), 0)];
    let marked = |kernel: &dyn Fn(DisjointSlice<'_, u32>), len: usize, skipped: usize| {
        // A slice that begins anywhere: only some are aligned to vectors.
        let mut memory = vec![0; len + skipped];
        kernel(DisjointSlice::new(&mut memory[skipped..]));
        assert_eq!(memory[..skipped], vec![0; skipped]);
        memory.split_off(skipped).into_iter().map(|x| x as usize - 1).collect::<Vec<_>>()
    };
    for (grid, len) in launches {
        let (blocks, threads) = ((grid.x * grid.y * grid.z) as usize, 8);
        for (checks, skipped) in ALL_CHECKS.into_iter().flat_map(|checks| [(checks, 0), (checks, 1), (checks, 2)]) {
            let chunks = |x: DisjointSlice<'_, u32>| {
                launch(checks, marks_chunks { x: x.divided(PerThread) }, grid).unwrap();
            };
            let found = marked(&chunks, len, skipped);
            assert!(found.iter().enumerate().all(|(i, thread)| *thread == i / 3 % (blocks * threads)), "{found:?}");

            let vectors = |x: DisjointSlice<'_, u32>| {
                launch(checks, marks_vectors { x: x.divided(PerThread) }, grid).unwrap();
            };
            let found = marked(&vectors, len, skipped);
            assert!(found.iter().enumerate().all(|(i, thread)| *thread == i / 4 % (blocks * threads)), "{found:?}");

            for row in [1, 7, 8, 64, 5000] {
                let rows = |x: DisjointSlice<'_, u32>| {
                    launch(checks, marks_rows { x: x.divided(PerBlock::rows(row)) }, grid).unwrap();
                };
                let found = marked(&rows, len, skipped);
                let expected = |i: usize| i / row % blocks * threads + i % row % threads;
                assert!(found.iter().enumerate().all(|(i, thread)| *thread == expected(i)), "{row}: {found:?}");

                let of_warps = |x: DisjointSlice<'_, u32>| {
                    launch(checks, marks_rows_of_warps { x: x.divided(PerWarp::rows(row)) }, grid).unwrap();
                };
                let found = marked(&of_warps, len, skipped);
                let expected = |i: usize| {
                    let (warp, lanes) = (i / row % (2 * blocks), if (i / row).is_multiple_of(2) { 32 } else { 8 });
                    warp / 2 * 40 + warp % 2 * 32 + i % row / 2 % lanes
                };
                assert!(found.iter().enumerate().all(|(i, thread)| *thread == expected(i)), "{row}: {found:?}");
            }
        }
    }
}

#[test]
#[should_panic(expected = "rows of no elements do not divide a view of 4")]
fn rows_without_elements_are_refused() {
    let _ = DisjointSlice::new(&mut [1; 4]).divided(PerBlock::<1>::rows(0));
}

/// Divides in the kernel, by a number that threads do not agree on.
#[kernel(block = 4)]
fn divides(x: DisjointSlice<'_, u32>) {
    for row in x.divided(PerBlock::<1>::rows(thread::index() + 1)).own_rows() {
        row.own_elements().for_each(|x| x.set(1));
    }
}

#[test]
fn threads_cannot_divide_a_view() {
    let mut x = [0; 16];
    let fault = fault(Checks::Full, divides { x: DisjointSlice::new(&mut x) }, 1);
    assert!(fault.to_string().contains("the host divides a view before a launch"), "{fault}");
    let empty = DisjointSlice::<u32>::new(&mut []).divided(PerWarp::<1>::rows(0));
    assert!(empty.is_empty(), "a matrix without columns");
}
