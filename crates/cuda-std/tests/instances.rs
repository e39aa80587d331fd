//! Numbers of `#[kernel]` from constants, and generic kernels: what an instance is, and what a launch of it checks.

extern crate tilewright_cuda_std as cuda_std;

mod common;

use cuda_std::executor::{Checks, Executor, FaultKind};
use cuda_std::prelude::*;
use cuda_std::{ContractViolation, Grid, Kernel};

use common::{ALL_CHECKS, fault, launch, line_of, succeed};

const THREADS: u32 = 64;

struct Tile;

impl Tile {
    const SIDE: u32 = 8;
}

#[kernel(block = THREADS, min_blocks = 1 + 1, dynamic_shared = 4 * THREADS)]
fn of_a_constant() {}

#[kernel(block = (Tile::SIDE, THREADS / Tile::SIDE), min_blocks = Tile::SIDE)]
fn of_a_tile() {}

#[kernel(block = (of_a_constant::BLOCK.x))]
fn of_another() {}

#[test]
fn numbers_come_from_constants() {
    assert_eq!((of_a_constant::BLOCK, of_a_constant::FACTS.min_blocks), (Dim3::new(64, 1, 1), 2));
    assert_eq!((of_a_constant::FACTS.block, of_a_constant::FACTS.dynamic_shared_bytes), ([64, 1, 1], 256));
    assert_eq!((of_a_tile::BLOCK, of_a_tile::FACTS.min_blocks), (Dim3::new(8, 8, 1), 8));
    assert_eq!(of_another::FACTS.block, [64, 1, 1]);
}

/// What the generic kernel needs of its elements.
trait Number: Element + KernelParam {
    /// A type that goes with it.
    type Wide: Element + KernelParam;
    fn widen(self) -> Self::Wide;
}

impl Number for f32 {
    type Wide = f64;
    fn widen(self) -> f64 {
        self.into()
    }
}

impl Number for u8 {
    type Wide = u32;
    fn widen(self) -> u32 {
        self.into()
    }
}

/// What is done to each element: in no parameter's type.
trait Change {
    fn change<T: Number>(x: T) -> T::Wide;
}

struct Widen;

impl Change for Widen {
    fn change<T: Number>(x: T) -> T::Wide {
        x.widen()
    }
}

/// Reverses each row of `N` elements, and changes the elements.
#[kernel(
    block = N,
    grid = (x.len() as u32 / N, 1, 1),
    requires(x.len() == y.len(), x.len() % N as usize == 0, !x.is_empty()),
    instances(reverse_f32 = <Widen, f32, 32, 32>, reverse_u8 = <Widen, u8, 64, 64>)
)]
fn reverse<C: Change, T: Number, const N: u32, const LEN: usize>(
    x: GlobalSlice<'_, T>,
    y: GlobalSliceMut<'_, T::Wide>,
    mut skip: u32,
) where
    T: 'static,
{
    static ROW: Shared<[T; LEN]> = Shared::new(); // <row>
    let (i, t) = (thread::index_1d(), thread::thread_idx_x() as usize);
    skip += 1;
    // SAFETY: the grid has a block of N threads for each row; each thread has elements of its own, and a barrier separates what it
    // writes from what another reads.
    unsafe {
        ROW.write(t, x.get_unchecked(i));
        thread::sync_threads();
        let other = ROW.read(LEN + skip as usize - t - 2); // <read>
        y.set_unchecked(i, C::change(other));
    }
}

#[test]
fn instances_are_kernels_of_their_own() {
    for checks in ALL_CHECKS {
        let x: Vec<f32> = (0..64).map(|i| i as f32).collect();
        let mut y = [0.0; 64];
        let kernel = reverse_f32 { x: GlobalSlice::new(&x), y: GlobalSliceMut::new(&mut y), skip: 0 };
        assert_eq!(kernel.grid(), Dim3::new(2, 1, 1));
        succeed(checks, kernel, kernel.grid());
        assert_eq!((y[0], y[31], y[32], y[63]), (31.0, 0.0, 63.0, 32.0));

        let x: Vec<u8> = (0..64).collect();
        let mut y = [0; 64];
        let kernel = reverse_u8 { x: GlobalSlice::new(&x), y: GlobalSliceMut::new(&mut y), skip: 0 };
        succeed(checks, kernel, kernel.grid());
        assert_eq!((y[0], y[63]), (63, 0));
    }
}

#[test]
fn instances_have_facts_of_their_own() {
    let (floats, bytes) = (reverse_f32::FACTS, reverse_u8::FACTS);
    assert_eq!((floats.name, floats.block, floats.static_shared_bytes), ("reverse_f32", [32, 1, 1], 128));
    assert_eq!((bytes.name, bytes.block, bytes.static_shared_bytes), ("reverse_u8", [64, 1, 1], 64));
    assert_ne!(floats.layout, bytes.layout);
    assert_eq!(reverse_u8::BLOCK, reverse::<Widen, u8, 64, 64>::BLOCK);
}

#[test]
fn conditions_name_the_instance() {
    let (x, mut y) = ([0u8; 64], [0; 63]);
    let kernel = reverse_u8 { x: GlobalSlice::new(&x), y: GlobalSliceMut::new(&mut y), skip: 0 };
    let violation =
        ContractViolation { kernel: "reverse_u8", condition: "x.len() == y.len()", values: " (64 against 63)".into() };
    assert_eq!(kernel.check(), Err(violation));
}

#[test]
fn reports_name_the_lines_of_the_generic_body() {
    let (x, mut y) = ([0u8; 64], [0; 64]);
    let kernel = reverse_u8 { x: GlobalSlice::new(&x), y: GlobalSliceMut::new(&mut y), skip: 7 };
    let fault = fault(Checks::Full, kernel, 1);
    let source = include_str!("instances.rs");
    assert!(matches!(fault.kind, FaultKind::SharedOutOfBounds { .. }), "{fault}");
    assert_eq!(fault.location.as_ref().map(|location| location.line), Some(line_of(source, "read")));
    let declared = format!("instances.rs:{}", line_of(source, "row"));
    assert!(fault.to_string().contains(&declared) && fault.to_string().contains("[u8; 64]"), "{fault}");
}

/// Adds its number of threads to each element.
#[kernel(
    block <= 2 * THREADS,
    grid = (x.len() as u32).div_ceil(block.x),
    requires(block.y * block.z == 1, dynamic_shared_bytes >= 4 * block.x),
    dynamic_shared
)]
fn chosen(x: GlobalSliceMut<'_, u32>) {
    let (i, t) = (thread::index_1d(), thread::thread_idx_x() as usize);
    let numbers = cuda_std::shared::all_dynamic_shared::<u32>();
    // SAFETY: there is an element of shared memory for each thread, which no other accesses; i is compared with the length.
    unsafe {
        numbers.write(t, thread::block_dim_x());
        if i < x.len() {
            x.set_unchecked(i, x.get_unchecked(i) + numbers.read(t) + 1000 * numbers.len() as u32);
        }
    }
}

#[test]
fn a_launch_chooses_block_and_shared_memory() {
    assert_eq!((chosen::MAX_THREADS, chosen::FACTS.block, chosen::FACTS.dynamic_shared_bytes), (128, [128, 1, 1], 0));
    for (threads, bytes) in [(1, 4), (33, 200), (128, 512)] {
        let mut x = [7; 200];
        let kernel = chosen { x: GlobalSliceMut::new(&mut x), block: Dim3::from(threads), dynamic_shared_bytes: bytes };
        assert_eq!((kernel.facts().block, kernel.facts().dynamic_shared_bytes), ([threads, 1, 1], bytes));
        let grid = kernel.grid();
        assert_eq!(grid.x, 200u32.div_ceil(threads));
        ALL_CHECKS.into_iter().for_each(|checks| succeed(checks, kernel, grid));
        assert_eq!(x, [7 + 2 * (threads + 1000 * (bytes / 4)); 200]);
    }
}

#[test]
fn a_launch_chooses_within_bounds() {
    let mut x = [0; 8];
    let mut message = |block: Dim3, dynamic_shared_bytes| {
        let kernel = chosen { x: GlobalSliceMut::new(&mut x), block, dynamic_shared_bytes };
        launch(Checks::Full, kernel, 1).unwrap_err().to_string()
    };
    assert_eq!(
        message(Dim3::from(129), 1 << 10),
        "kernel `chosen` cannot be launched with these arguments: it requires `block <= 2 * THREADS` (129 against 128)"
    );
    let requires = message(Dim3::from(32), 127);
    assert!(requires.contains("`dynamic_shared_bytes >= 4 * block.x` (127 against 128)"), "{requires}");
    let none = message(Dim3::new(0, 1, 1), 0);
    assert!(none.contains("`block >= 1` (0 against 1)"), "{none}");
    let more = message(Dim3::from(32), 300 << 10);
    assert!(
        more.contains("needs 307200 bytes of shared memory (0 static, 307200 dynamic), and there are 232448"),
        "{more}"
    );
}

#[test]
fn the_limits_of_a_gpu_bound_what_a_launch_chooses() {
    let limits = cuda_std::Limits::of(cuda_std::ComputeCapability::new(8, 6)).unwrap();
    let executor = Executor::new(Checks::Bounds).with_limits(limits);
    let mut x = [0; 8];
    let mut run = |dynamic_shared_bytes| {
        let kernel = chosen { x: GlobalSliceMut::new(&mut x), block: Dim3::from(32), dynamic_shared_bytes };
        // SAFETY: the only view is of an array of this test.
        unsafe { executor.launch(kernel, Dim3::from(1)) }
    };
    assert!(run(99 << 10).is_ok());
    let refused = run((99 << 10) + 4).unwrap_err().to_string();
    assert!(refused.contains("101380 dynamic), and there are 101376"), "{refused}");
}

/// Reads the element behind the last of the dynamic shared memory.
#[kernel(block <= 32, dynamic_shared, any_grid)]
fn past_the_end() {
    let all = cuda_std::shared::all_dynamic_shared::<u32>();
    // SAFETY: none: it is past the end.
    unsafe { all.write(all.len(), 1) }
}

#[test]
fn what_a_launch_has_chosen_is_the_end() {
    let fault = fault(Checks::Bounds, past_the_end { block: Dim3::from(1), dynamic_shared_bytes: 11 }, 1);
    assert!(matches!(fault.kind, FaultKind::SharedOutOfBounds { .. }), "{fault}");
    assert!(fault.to_string().contains("index 2 is out of bounds of the slice of 2 elements"), "{fault}");
}

/// A generic kernel whose launches choose.
#[kernel(block <= MOST, dynamic_shared, any_grid, instances(fill_f32 = <f32, 32>, fill_u32 = <u32, 64>))]
fn fill<T: Number0, const MOST: u32>(x: GlobalSliceMut<'_, T>, value: T) {
    let i = thread::index_1d();
    if i < x.len() {
        // SAFETY: in bounds; nobody else has this element.
        unsafe { x.set_unchecked(i, value) }
    }
}

trait Number0: Element + KernelParam {}
impl Number0 for f32 {}
impl Number0 for u32 {}

#[test]
fn launches_of_generic_kernels_choose_too() {
    let mut x = [0; 40];
    fn kernel(x: &mut [u32], threads: u32) -> fill_u32<'_> {
        fill_u32 { x: GlobalSliceMut::new(x), value: 7, block: Dim3::from(threads), dynamic_shared_bytes: 0 }
    }
    succeed(Checks::Full, kernel(&mut x, 40), 1);
    assert_eq!(x, [7; 40]);
    assert_eq!((fill_f32::MAX_THREADS, fill_u32::MAX_THREADS), (32, 64));
    let violation = kernel(&mut x, 65).check().unwrap_err();
    assert_eq!((violation.kernel, violation.condition), ("fill_u32", "block <= MOST"));
}
