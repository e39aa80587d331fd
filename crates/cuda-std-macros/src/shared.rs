//! The shared arrays of a kernel: the `static` items of type `Shared<…>` in its body.

use proc_macro2::TokenStream;
use quote::quote;
use syn::visit::Visit;
use syn::visit_mut::VisitMut;
use syn::{Attribute, Error, Expr, Ident, Item, ItemStatic, Result, Stmt, Type, parse_quote};

/// Whether a type is named so, whatever module its path goes through and whatever its own arguments are.
fn is_named(kind: &Type, name: &str) -> bool {
    matches!(kind, Type::Path(path) if path.path.segments.last().is_some_and(|segment| segment.ident == name))
}

/// Whether an item is an array in shared memory: its type is `Shared<…>`, or another name of that, and its value `Shared::new()`.
fn is_shared(item: &ItemStatic) -> bool {
    let made_by = match &*item.expr {
        Expr::Call(call) => match &*call.func {
            Expr::Path(path) => path.path.segments.iter().rev().nth(1),
            _ => None,
        },
        _ => None,
    };
    is_named(&item.ty, "Shared") || made_by.is_some_and(|segment| segment.ident == "Shared")
}

/// What has the link step for a GPU place a static in shared memory.
pub(crate) fn section() -> Attribute {
    parse_quote!(#[cfg_attr(target_arch = "nvptx64", unsafe(link_section = ".shared"))])
}

/// The body with its shared arrays placed in shared memory.
pub(crate) fn placed(body: &syn::Block) -> syn::Block {
    struct Place;

    impl VisitMut for Place {
        fn visit_item_static_mut(&mut self, item: &mut ItemStatic) {
            if is_shared(item) {
                item.attrs.push(section());
            }
        }
    }

    let mut body = body.clone();
    Place.visit_block_mut(&mut body);
    body
}

/// What the shared arrays of a kernel's body take, as a constant expression: `Shared::<…>::BYTES` of each, beside the body's
/// own constants and types, which the arrays' types may name.
pub(crate) fn static_bytes(body: &syn::Block) -> TokenStream {
    #[derive(Default)]
    struct Types<'a>(Vec<&'a Type>);

    impl<'a> Visit<'a> for Types<'a> {
        fn visit_item_static(&mut self, item: &'a ItemStatic) {
            if is_shared(item) {
                self.0.push(&item.ty);
            }
        }
    }

    let mut shared = Types::default();
    shared.visit_block(body);
    if shared.0.is_empty() {
        return quote!(0);
    }
    let kinds = shared.0;
    let names = body.stmts.iter().filter_map(|statement| match statement {
        Stmt::Item(item @ (Item::Const(_) | Item::Type(_) | Item::Use(_) | Item::Struct(_) | Item::Enum(_))) => {
            Some(item)
        }
        _ => None,
    });
    quote!({
        #[allow(unused, missing_docs)]
        const fn bytes() -> u32 {
            #(#names)*
            0 #( + <#kinds>::BYTES )*
        }
        bytes()
    })
}

/// Takes the shared arrays out of a body. A generic function can own none, because there would be one for all of its instances.
pub(crate) fn take(body: &mut syn::Block) -> Result<Vec<ItemStatic>> {
    #[derive(Default)]
    struct Take(Vec<ItemStatic>);

    impl VisitMut for Take {
        fn visit_block_mut(&mut self, block: &mut syn::Block) {
            block.stmts.retain(|statement| match statement {
                Stmt::Item(Item::Static(item)) if is_shared(item) => {
                    self.0.push(item.clone());
                    false
                }
                _ => true,
            });
            syn::visit_mut::visit_block_mut(self, block);
        }
    }

    let mut taken = Take::default();
    taken.visit_block_mut(body);
    let mut names: Vec<&Ident> = Vec::new();
    for ItemStatic { ident, .. } in &taken.0 {
        if names.contains(&ident) {
            let message = format!("a generic kernel has one shared array of each name: give this `{ident}` another");
            return Err(Error::new(ident.span(), message));
        }
        names.push(ident);
    }
    Ok(taken.0)
}
