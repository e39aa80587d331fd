//! A generic kernel names its instances; a launch is of an instance, with the types that this has.

use cuda_std::prelude::*;

#[kernel(block = 32)]
fn no_instances<T: Element + KernelParam>(x: GlobalSlice<'_, T>) {
    let _ = x.len();
}

#[kernel(block = 32, instances())]
fn empty<T: Element + KernelParam>(x: GlobalSlice<'_, T>) {
    let _ = x.len();
}

#[kernel(block = 32, instances(plain = <f32>))]
fn not_generic(x: f32) {
    let _ = x;
}

#[kernel(block = 32, any_grid, instances(same = <f32>))]
fn named_lifetime<'a, T: Element + KernelParam>(x: GlobalSlice<'a, T>) {
    let _ = x.len();
}

#[kernel(block = 32, any_grid, instances(two_arrays = <f32>))]
fn arrays<T: Element + KernelParam>(x: GlobalSlice<'_, T>) {
    static TILE: Shared<[f32; 32]> = Shared::new();
    if x.is_empty() {
        static TILE: Shared<[f32; 32]> = Shared::new();
    }
}

#[kernel(block = 32, any_grid, instances(fill_f32 = <f32>, fill_u32 = <u32>))]
fn fill<T: Element + KernelParam>(x: GlobalSliceMut<'_, T>, value: T) {
    // SAFETY: nothing runs.
    unsafe { x.set_unchecked(0, value) }
}

fn main() {
    let mut x = [0u32; 32];
    let _ = fill_f32 { x: GlobalSliceMut::new(&mut x), value: 1.0 };
}
