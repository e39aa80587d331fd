//! Which kernels become entry points.
//!
//! A build for a GPU makes those of the crate that is built, never those of the crates that it depends on, and can be asked for
//! some of them alone. `cuda_builder` says so in an environment variable; without it, every kernel is an entry point.

use proc_macro2::TokenStream;
use quote::{format_ident, quote};
use syn::Ident;

/// The variable: `*` for all kernels of the crate that is built, or their names, separated by commas.
const WANTED: &str = "TILEWRIGHT_ENTRY_POINTS";

/// What cargo sets for the compiler of the crate that it was told to build.
const PRIMARY: &str = "CARGO_PRIMARY_PACKAGE";

/// The entry point, or what takes its place where it is not wanted: a function that nobody can call, of which the compiler makes
/// errors and warnings, and no code. The builder finds the names of those that were left out by a static of no size.
pub(crate) fn if_wanted(
    entry_point: TokenStream,
    name: &Ident,
    attributes: &TokenStream,
    inputs: &TokenStream,
    body: &TokenStream,
) -> TokenStream {
    let Ok(wanted) = std::env::var(WANTED) else { return entry_point };
    let is_primary = std::env::var_os(PRIMARY).is_some();
    if is_primary && (wanted == "*" || wanted.split(',').any(|wanted| name == wanted)) {
        return entry_point;
    }
    let left_out = is_primary.then(|| {
        let left_out = format_ident!("__tilewright_left_out_{name}");
        quote! {
            #[unsafe(no_mangle)]
            #[allow(non_upper_case_globals)]
            static #left_out: () = ();
        }
    });
    quote! {
        #[cfg(target_arch = "nvptx64")]
        const _: () = {
            #attributes
            #[allow(dead_code)]
            unsafe fn #name(#inputs) #body
            #left_out
        };
    }
}
