//! `#[constant]`.
//!
//! ```text
//! #[constant]
//! static WEIGHTS: [f32; 3] = [0.25, 0.5, 0.25];
//! ```
//!
//! becomes a static of a type whose reads are checked on the CPU, in a section which the link step for a GPU places in constant memory:
//!
//! ```text
//! #[cfg_attr(target_arch = "nvptx64", unsafe(link_section = ".constant"))]
//! static WEIGHTS: Constant<[f32; 3]> = Constant::new([0.25, 0.5, 0.25]);
//! ```

use proc_macro2::TokenStream;
use quote::quote;
use syn::spanned::Spanned;
use syn::{Error, ItemStatic, Result, StaticMutability};

pub(crate) fn expand(item: &ItemStatic) -> Result<TokenStream> {
    let ItemStatic { attrs: attributes, vis: visibility, mutability, ident: name, ty: kind, expr: values, .. } = item;
    if let StaticMutability::Mut(token) = mutability {
        return Err(Error::new(token.span(), "constant memory is not written to: leave out `mut`"));
    }
    Ok(quote! {
        #(#attributes)*
        #[cfg_attr(target_arch = "nvptx64", unsafe(link_section = ".constant"))]
        #visibility static #name: ::cuda_std::Constant<#kind> = ::cuda_std::Constant::new(#values);
    })
}
