use cuda_std::atomic::{Acquire, Release, Scope};
use cuda_std::prelude::*;

#[kernel(block = 32)]
fn loads_and_stores(flags: GlobalAtomics<'_, u32>) {
    if let Some(flag) = flags.get(0) {
        let value = flag.load(Release, Scope::Device);
        flag.store(value, Acquire, Scope::Device);
        atomic::fence(Acquire, Scope::Device);
    }
}

fn main() {}
