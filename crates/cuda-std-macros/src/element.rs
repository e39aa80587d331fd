//! `#[derive(Element)]`: an implementation that loads and stores field by field, and proofs that the struct is its fields and nothing else.

use proc_macro2::{Span, TokenStream};
use quote::{quote, quote_spanned};
use syn::spanned::Spanned;
use syn::{Data, DeriveInput, Error, Result};

use crate::param::{is_repr_c, member};

pub(crate) fn expand(item: &DeriveInput) -> Result<TokenStream> {
    let Data::Struct(data) = &item.data else {
        return Err(Error::new(item.ident.span(), "only a struct, or a number, can be an element of memory"));
    };
    if !is_repr_c(item)? {
        return Err(Error::new(
            item.ident.span(),
            "an element of memory needs `#[repr(C)]`, so that its layout on the GPU and on the CPU is the same",
        ));
    }
    if let Some(parameter) = item.generics.params.first() {
        return Err(Error::new(
            parameter.span(),
            "an element of memory cannot be generic: its size and padding depend on it",
        ));
    }
    if data.fields.is_empty() {
        return Err(Error::new(item.ident.span(), "an element of memory has at least one field"));
    }
    let name = &item.ident;
    let members: Vec<_> = data.fields.iter().enumerate().map(|(i, field)| member(i, field)).collect();
    let kinds: Vec<_> = data.fields.iter().map(|field| &field.ty).collect();
    // Each at the place of its field, so that a field which is no element is pointed at, but as a part of what the derive makes.
    let place = |kind: &syn::Type| kind.span().resolved_at(Span::call_site());
    let loads = members.iter().zip(&kinds).map(|(member, kind)| {
        quote_spanned! { place(kind) =>
            #member: <#kind as ::cuda_std::Element>::load(&raw const (*source).#member)
        }
    });
    let stores = members.iter().zip(&kinds).map(|(member, kind)| {
        quote_spanned! { place(kind) =>
            <#kind as ::cuda_std::Element>::store(&raw mut (*target).#member, value.#member)
        }
    });
    Ok(quote! {
        const _: () = {
            assert!(
                ::core::mem::size_of::<#name>() == 0 #( + ::core::mem::size_of::<#kinds>() )*,
                "an element of memory has no padding: order its fields by size, or name the padding as a field"
            );
            assert!(
                true #( && ::core::mem::align_of::<#name>() >= ::core::mem::align_of::<#kinds>() )*,
                "an element of memory is not packed: its fields are accessed where they are aligned"
            );
            assert!(::core::mem::align_of::<#name>() <= 16, "an element of memory is aligned to at most 16 bytes");
        };

        // SAFETY: `repr(C)`, all fields are elements, and their sizes add up to the struct's, so that every pattern of bits is a value
        // and there is no padding; each field is accessed as an element.
        unsafe impl ::cuda_std::Element for #name {
            #[inline(always)]
            unsafe fn load(source: *const Self) -> Self {
                // SAFETY: the caller's promise, for each of the fields.
                unsafe { Self { #( #loads ),* } }
            }

            #[inline(always)]
            unsafe fn store(target: *mut Self, value: Self) {
                // SAFETY: the caller's promise, for each of the fields.
                unsafe { #( #stores; )* }
            }
        }

        // SAFETY: as above: zero is one of the patterns.
        #[cfg(not(target_arch = "nvptx64"))]
        unsafe impl ::cuda_std::__private::bytemuck::Zeroable for #name {}

        // SAFETY: as above.
        #[cfg(not(target_arch = "nvptx64"))]
        unsafe impl ::cuda_std::__private::bytemuck::Pod for #name {}
    })
}
