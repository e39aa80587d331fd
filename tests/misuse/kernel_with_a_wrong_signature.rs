//! A kernel is a plain function that takes its arguments by value and returns nothing.

use cuda_std::prelude::*;

#[kernel(block = 32)]
fn generic<T: Copy>(x: T) {}

#[kernel(block = 32)]
unsafe fn not_safe(x: f32) {}

#[kernel(block = 32)]
fn returns(x: f32) -> f32 {
    x
}

#[kernel(block = 32)]
fn takes_a_reference(x: &[f32]) {}

#[kernel(block = 32)]
const fn constant() {}

#[kernel(block = 32)]
extern "C" fn with_an_abi() {}

#[kernel(block = 32)]
fn with_a_pattern((x, y): (f32, f32)) {}

fn main() {}
