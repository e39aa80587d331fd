//! `#[derive(Element)]`: an implementation that loads and stores field by field, and proofs that the struct is its fields and nothing else.

use proc_macro2::{Span, TokenStream};
use quote::{quote, quote_spanned};
use syn::spanned::Spanned;
use syn::{Data, DeriveInput, Error, Result, Type};

use crate::param::{is_repr_c, member};

/// The value of a field at an address. An array is loaded element by element: it is no element itself, because an array of elements in shared
/// memory is one of several dimensions.
fn load(kind: &Type, source: TokenStream, place: Span) -> TokenStream {
    let Type::Array(array) = kind else {
        return quote_spanned! { place => <#kind as ::cuda_std::Element>::load(#source) };
    };
    let of_element = load(&array.elem, quote!(source.add(i)), place);
    let element = &array.elem;
    quote_spanned! { place => {
        let source: *const #element = (#source).cast();
        ::core::array::from_fn(|i| #of_element)
    } }
}

/// Stores the value of a field to an address.
fn store(kind: &Type, target: TokenStream, value: TokenStream, place: Span) -> TokenStream {
    let Type::Array(array) = kind else {
        return quote_spanned! { place => <#kind as ::cuda_std::Element>::store(#target, #value) };
    };
    let of_element = store(&array.elem, quote!(target.add(i)), quote!(value), place);
    let element = &array.elem;
    quote_spanned! { place => {
        let target: *mut #element = (#target).cast();
        for (i, value) in ::core::iter::IntoIterator::into_iter(#value).enumerate() {
            #of_element
        }
    } }
}

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
    let place = |kind: &Type| kind.span().resolved_at(Span::call_site());
    let loads = members.iter().zip(&kinds).map(|(member, kind)| {
        let load = load(kind, quote!(&raw const (*source).#member), place(kind));
        quote! { #member: #load }
    });
    let stores = members
        .iter()
        .zip(&kinds)
        .map(|(member, kind)| store(kind, quote!(&raw mut (*target).#member), quote!(value.#member), place(kind)));
    // By this the compiler joins fields that are neighbours; of each by itself it knows no more than how a field is aligned.
    let aligned = |pointer: TokenStream| {
        quote! {
            #[cfg(target_arch = "nvptx64")]
            ::core::hint::assert_unchecked(#pointer.addr() % ::core::mem::align_of::<#name>() == 0);
        }
    };
    let (source_is_aligned, target_is_aligned) = (aligned(quote!(source)), aligned(quote!(target)));
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

        // SAFETY: `repr(C)`, all fields are elements or arrays of elements, and their sizes add up to the struct's, so that every pattern of bits is a value
        // and there is no padding; each field is accessed as an element, or as so many.
        unsafe impl ::cuda_std::Element for #name {
            #[inline(always)]
            unsafe fn load(source: *const Self) -> Self {
                // SAFETY: the caller's promise, for the struct and for each of the fields.
                unsafe {
                    #source_is_aligned
                    Self { #( #loads ),* }
                }
            }

            #[inline(always)]
            unsafe fn store(target: *mut Self, value: Self) {
                // SAFETY: the caller's promise, for the struct and for each of the fields.
                unsafe {
                    #target_is_aligned
                    #( #stores; )*
                }
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
