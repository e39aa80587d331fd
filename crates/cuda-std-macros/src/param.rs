//! `#[derive(KernelParam)]`: an implementation that visits the fields, a fingerprint of their layout, and proofs that it is fixed.
//!
//! A derive sees no `#[cfg]`: the compiler has taken it, and perhaps its field, away before. A field that is there on the GPU only, or
//! on the CPU only, shows in the fingerprint.

use proc_macro2::TokenStream;
use quote::quote;
use syn::spanned::Spanned;
use syn::{Data, DeriveInput, Error, GenericParam, Index, Member, Result};

pub(crate) fn expand(item: &DeriveInput) -> Result<TokenStream> {
    let Data::Struct(data) = &item.data else {
        return Err(Error::new(item.ident.span(), "only a struct can be a kernel parameter"));
    };
    if !is_repr_c(item)? {
        return Err(Error::new(
            item.ident.span(),
            "a kernel parameter needs `#[repr(C)]`, so that its layout on the GPU and on the CPU is the same",
        ));
    }
    if let Some(parameter) = item.generics.params.iter().find(|p| !matches!(p, GenericParam::Lifetime(_))) {
        return Err(Error::new(parameter.span(), "a kernel parameter can be generic over lifetimes only"));
    }
    let name = &item.ident;
    let (parameters, arguments, bounds) = item.generics.split_for_impl();
    let kinds: Vec<_> = data.fields.iter().map(|field| &field.ty).collect();
    let members: Vec<_> = data.fields.iter().enumerate().map(|(i, field)| member(i, field)).collect();
    let suffixes = members.iter().map(|member| match member {
        Member::Named(field) => field.to_string(),
        Member::Unnamed(index) => index.index.to_string(),
    });
    Ok(quote! {
        // SAFETY: `repr(C)`, all fields are kernel parameters themselves, as `field` demands, and all are visited.
        unsafe impl #parameters ::cuda_std::KernelParam for #name #arguments #bounds {
            const LAYOUT: u64 = ::cuda_std::Layout::new(::core::stringify!(#name))
                #( .field::<#kinds>(::core::stringify!(#members), ::core::mem::offset_of!(Self, #members)) )*
                .sized::<Self>()
                .fingerprint();

            const IS_TENSOR_MAP: bool = {
                // The GPU would read the first bytes of what the host passes as if they were the map's address.
                assert!(
                    !(false #( || <#kinds as ::cuda_std::KernelParam>::IS_TENSOR_MAP )*),
                    "a tensor map has to be a parameter of the kernel itself: it cannot be a field of another parameter"
                );
                false
            };

            #[cfg(not(target_arch = "nvptx64"))]
            const HAS_VIEWS: bool = false #( || <#kinds as ::cuda_std::KernelParam>::HAS_VIEWS )*;

            #[cfg(not(target_arch = "nvptx64"))]
            #[allow(unused_variables)]
            fn visit_views(&self, name: ::cuda_std::ViewName<'_>, visit: &mut dyn ::core::ops::FnMut(::cuda_std::View<'_>)) {
                #( if <#kinds as ::cuda_std::KernelParam>::HAS_VIEWS {
                    ::cuda_std::KernelParam::visit_views(
                        &self.#members,
                        name.field(#suffixes),
                        visit,
                    );
                } )*
            }
        }

        const _: () = {
            assert!(::core::mem::align_of::<#name>() <= 16, "a kernel parameter is aligned to at most 16 bytes");
        };
    })
}

/// Whether a struct is laid out as in C.
pub(crate) fn is_repr_c(item: &DeriveInput) -> Result<bool> {
    let mut found = false;
    for attribute in item.attrs.iter().filter(|attribute| attribute.path().is_ident("repr")) {
        attribute.parse_nested_meta(|meta| {
            found |= meta.path.is_ident("C");
            if meta.input.peek(syn::token::Paren) {
                let alignment;
                syn::parenthesized!(alignment in meta.input);
                alignment.parse::<syn::LitInt>()?;
            }
            Ok(())
        })?;
    }
    Ok(found)
}

/// What the field at a position is called.
pub(crate) fn member(position: usize, field: &syn::Field) -> Member {
    match &field.ident {
        Some(name) => Member::Named(name.clone()),
        None => Member::Unnamed(Index::from(position)),
    }
}
