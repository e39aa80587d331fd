//! `KernelParam::LAYOUT`: the same for what is laid out in the same way, another one for anything else.

extern crate tilewright_cuda_std as cuda_std;

use std::collections::BTreeMap;

use cuda_std::prelude::*;
use cuda_std::{Layout, View};

/// A struct as it is compiled for the GPU and for the CPU, with and without a difference.
macro_rules! compiled {
    ($($side:ident { $($fields:tt)* })*) => { $(
        mod $side {
            use super::*;

            #[derive(Clone, Copy, KernelParam)]
            #[repr(C)]
            #[allow(dead_code, reason = "only laid out")]
            pub(crate) struct Scaling<'a> {
                $($fields)*
            }
        }
    )* };
}

compiled! {
    original { x: GlobalSlice<'a, f32>, factor: f32, count: u32 }
    same { x: GlobalSlice<'a, f32>, #[cfg(all())] factor: f32, #[cfg(any())] offset: f32, count: u32 }
    without { x: GlobalSlice<'a, f32>, #[cfg(any())] factor: f32, count: u32 }
    with { x: GlobalSlice<'a, f32>, factor: f32, #[cfg(all())] offset: f32, count: u32 }
    renamed { x: GlobalSlice<'a, f32>, divisor: f32, count: u32 }
    retyped { x: GlobalSlice<'a, f32>, factor: u32, count: u32 }
    exchanged { x: GlobalSlice<'a, f32>, count: u32, factor: f32 }
    written { x: GlobalSliceMut<'a, f32>, factor: f32, count: u32 }
    of_others { x: GlobalSlice<'a, u32>, factor: f32, count: u32 }
    wide { x: GlobalSlice<'a, f32>, factor: f64, count: u32 }
}

mod aligned {
    use super::*;

    #[derive(Clone, Copy, KernelParam)]
    #[repr(C, align(16))]
    pub(crate) struct Scaling<'a> {
        x: GlobalSlice<'a, f32>,
        factor: f32,
        count: u32,
    }

    const _: () = assert!(align_of::<Scaling<'_>>() == 16);
}

#[derive(Clone, Copy, KernelParam)]
#[repr(C)]
struct Pair<'a>(original::Scaling<'a>, f32);

mod nested {
    use super::*;

    #[derive(Clone, Copy, KernelParam)]
    #[repr(C)]
    pub(crate) struct Pair<'a>(pub(crate) renamed::Scaling<'a>, pub(crate) f32);
}

#[derive(Clone, Copy, KernelParam)]
#[repr(C)]
struct Nothing {}

/// As it would be by hand.
#[derive(Clone, Copy)]
#[repr(transparent)]
#[allow(dead_code, reason = "only laid out")]
struct Number(f32);

// SAFETY: a number in a struct of its own.
unsafe impl KernelParam for Number {
    const LAYOUT: u64 = Layout::new("Number").field::<f32>("0", 0).sized::<Self>().fingerprint();
    const HAS_VIEWS: bool = false;

    fn visit_views(&self, _name: cuda_std::ViewName<'_>, _visit: &mut dyn FnMut(View<'_>)) {}
}

#[test]
fn equal_ones_have_one_and_others_have_others() {
    assert_eq!(original::Scaling::LAYOUT, same::Scaling::LAYOUT);
    let all = [
        ("f32", f32::LAYOUT),
        ("f64", f64::LAYOUT),
        ("u32", u32::LAYOUT),
        ("i32", i32::LAYOUT),
        ("u64", u64::LAYOUT),
        ("i64", i64::LAYOUT),
        ("GlobalSlice<f32>", GlobalSlice::<f32>::LAYOUT),
        ("GlobalSlice<f64>", GlobalSlice::<f64>::LAYOUT),
        ("GlobalSlice<u32>", GlobalSlice::<u32>::LAYOUT),
        ("GlobalSliceMut<f32>", GlobalSliceMut::<f32>::LAYOUT),
        ("GlobalSliceMut<u32>", GlobalSliceMut::<u32>::LAYOUT),
        ("TensorMap", TensorMap::LAYOUT),
        ("TensorMapMut", TensorMapMut::LAYOUT),
        ("original", original::Scaling::LAYOUT),
        ("without", without::Scaling::LAYOUT),
        ("with", with::Scaling::LAYOUT),
        ("renamed", renamed::Scaling::LAYOUT),
        ("retyped", retyped::Scaling::LAYOUT),
        ("exchanged", exchanged::Scaling::LAYOUT),
        ("written", written::Scaling::LAYOUT),
        ("of_others", of_others::Scaling::LAYOUT),
        ("wide", wide::Scaling::LAYOUT),
        ("aligned", aligned::Scaling::LAYOUT),
        ("Pair", Pair::LAYOUT),
        ("nested::Pair", nested::Pair::LAYOUT),
        ("Nothing", Nothing::LAYOUT),
        ("Number", Number::LAYOUT),
    ];
    let mut known = BTreeMap::new();
    for (name, layout) in all {
        if let Some(other) = known.insert(layout, name) {
            panic!("{name} and {other} have the same layout");
        }
    }
}

/// FNV-1a of the name, behind its length: nothing of it depends on the compiler or on what is compiled for. That of structs is
/// compared between a GPU and the CPU by the kernel `parameter_layouts` of the package `tests`.
#[test]
fn that_of_a_number_is_made_of_its_name() {
    let bytes = b"\x03\0\0\0\0\0\0\0f32";
    let step = |hash: u64, &byte: &u8| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01B3);
    assert_eq!(f32::LAYOUT, bytes.iter().fold(0xCBF2_9CE4_8422_2325, step));
}
