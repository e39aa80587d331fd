//! `#[kernel]`.
//!
//! ```text
//! #[kernel(block = 256, requires(x.len() == y.len()))]
//! pub fn axpy(a: f32, x: GlobalSlice<'_, f32>, y: GlobalSliceMut<'_, f32>) { body }
//! ```
//!
//! becomes, on the GPU, the entry point, and beside it a constant with the kernel's facts, which the link step reads and
//! removes. The compiler works them out, so they may depend on constants and on types:
//!
//! ```text
//! #[no_mangle] pub unsafe extern "ptx-kernel" fn axpy(a: f32, x: GlobalSlice<'_, f32>, y: GlobalSliceMut<'_, f32>) { body }
//! #[export_name = "__tilewright_facts_axpy"] static FACTS: [u64; 12] = [2, 256, 1, 1, …];
//! ```
//!
//! and on the CPU the arguments of a launch, which know the same facts, how to check themselves and how to run as one thread:
//!
//! ```text
//! pub struct axpy<'launch> { pub a: f32, pub x: GlobalSlice<'launch, f32>, pub y: GlobalSliceMut<'launch, f32> }
//! unsafe impl<'launch> Kernel for axpy<'launch> {
//!     const FACTS: KernelFacts = …;
//!     fn run_thread(self) { let Self { a, x, y } = self; body }
//! }
//! ```

use gpu_facts::Limits;
use proc_macro2::{Span, TokenStream};
use quote::{format_ident, quote};
use syn::parse::{Parse, ParseStream};
use syn::punctuated::Punctuated;
use syn::spanned::Spanned;
use syn::visit::Visit;
use syn::visit_mut::VisitMut;
use syn::{
    BinOp, Error, Expr, FnArg, Ident, Item, ItemFn, LitInt, LitStr, Pat, Result, Safety, Stmt, Token, Type, parse_quote,
};

use crate::entry_points::if_wanted;

/// What stands between the parentheses of `#[kernel(…)]`.
pub(crate) struct Arguments {
    block: [u32; 3],
    min_blocks: Option<u32>,
    arch: Option<String>,
    dynamic_shared: Option<Expr>,
    grid: Option<Expr>,
    any_grid: bool,
    cooperative: bool,
    requires: Vec<Expr>,
}

impl Parse for Arguments {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        let (mut block, mut min_blocks, mut arch) = (None, None, None);
        let (mut dynamic_shared, mut requires, mut grid) = (None, None, None);
        let (mut any_grid, mut cooperative) = (false, false);
        while !input.is_empty() {
            let name: Ident = input.parse()?;
            let repeated = match name.to_string().as_str() {
                "block" => {
                    input.parse::<Token![=]>()?;
                    block.replace(parse_block(input)?).is_some()
                }
                "min_blocks" => {
                    input.parse::<Token![=]>()?;
                    min_blocks.replace(input.parse::<LitInt>()?.base10_parse::<u32>()?).is_some()
                }
                "arch" => {
                    input.parse::<Token![=]>()?;
                    arch.replace(parse_arch(&input.parse()?)?).is_some()
                }
                "dynamic_shared" => {
                    input.parse::<Token![=]>()?;
                    dynamic_shared.replace(input.parse::<Expr>()?).is_some()
                }
                "grid" => {
                    input.parse::<Token![=]>()?;
                    grid.replace(input.parse::<Expr>()?).is_some()
                }
                "any_grid" => std::mem::replace(&mut any_grid, true),
                "cooperative" => std::mem::replace(&mut cooperative, true),
                "requires" => {
                    let conditions;
                    syn::parenthesized!(conditions in input);
                    let conditions = Punctuated::<Expr, Token![,]>::parse_terminated(&conditions)?;
                    requires.replace(conditions.into_iter().collect::<Vec<_>>()).is_some()
                }
                _ => {
                    return Err(Error::new(
                        name.span(),
                        format!(
                            "unknown argument `{name}`: expected `block`, `grid`, `any_grid`, `cooperative`, \
                             `min_blocks`, `arch`, `dynamic_shared` or `requires`"
                        ),
                    ));
                }
            };
            if repeated {
                return Err(Error::new(name.span(), format!("argument `{name}` is given twice")));
            }
            if !input.is_empty() {
                input.parse::<Token![,]>()?;
            }
        }
        let block = block.ok_or_else(|| {
            Error::new(Span::call_site(), "the shape of a block is missing: write `#[kernel(block = 256)]`")
        })?;
        if any_grid && let Some(grid) = &grid {
            return Err(Error::new(
                grid.span(),
                "a kernel has a grid of its own, or takes any: leave out one of the two",
            ));
        }
        Ok(Self {
            block,
            min_blocks,
            arch,
            dynamic_shared,
            grid,
            any_grid,
            cooperative,
            requires: requires.unwrap_or_default(),
        })
    }
}

impl Arguments {
    /// The dynamic shared memory, in bytes, as a constant expression.
    fn dynamic_shared(&self) -> TokenStream {
        self.dynamic_shared.as_ref().map_or_else(|| quote!(0), |bytes| quote!(#bytes))
    }
}

/// `256`, `(32, 8)` or `(8, 8, 4)`, within the limits that every device has.
fn parse_block(input: ParseStream<'_>) -> Result<[u32; 3]> {
    let span = input.span();
    let extents: Vec<LitInt> = if input.peek(syn::token::Paren) {
        let list;
        syn::parenthesized!(list in input);
        Punctuated::<LitInt, Token![,]>::parse_terminated(&list)?.into_iter().collect()
    } else {
        vec![input.parse()?]
    };
    let mut block = [1u32; 3];
    if extents.is_empty() || extents.len() > block.len() {
        return Err(Error::new(span, "a block has one, two or three extents"));
    }
    for (extent, literal) in block.iter_mut().zip(&extents) {
        *extent = literal.base10_parse()?;
    }
    // All GPUs have the same limits for the shape of a block.
    let kernel = gpu_facts::KernelFacts { block, ..gpu_facts::KernelFacts::new("") };
    Limits::of_every_gpu().check(&kernel).map_err(|excess| Error::new(span, excess))?;
    Ok(block)
}

fn parse_arch(literal: &LitStr) -> Result<String> {
    let arch = literal.value();
    let number = arch.strip_prefix("sm_").unwrap_or("");
    if number.is_empty() || !number.chars().all(|c| c.is_ascii_alphanumeric()) {
        return Err(Error::new(literal.span(), format!("`{arch}` is no architecture: expected one like \"sm_90a\"")));
    }
    Ok(arch)
}

/// A parameter of the kernel: its name as the body sees it, and its type.
struct Parameter {
    name: Ident,
    mutability: Option<Token![mut]>,
    kind: Box<Type>,
}

fn parameters(function: &ItemFn) -> Result<Vec<Parameter>> {
    let one = |argument: &FnArg| match argument {
        FnArg::Typed(typed) => match &*typed.pat {
            Pat::Ident(pattern) if pattern.by_ref.is_none() && pattern.subpat.is_none() => {
                Ok(Parameter { name: pattern.ident.clone(), mutability: pattern.mutability, kind: typed.ty.clone() })
            }
            pattern => Err(Error::new(pattern.span(), "a kernel parameter is a plain name")),
        },
        FnArg::Receiver(receiver) => Err(Error::new(receiver.span(), "a kernel is not a method")),
    };
    function.sig.inputs.iter().map(one).collect()
}

fn check_signature(function: &ItemFn) -> Result<()> {
    let signature = &function.sig;
    let refuse = |span: Span, message: &str| Err(Error::new(span, message));
    if let Some(token) = &signature.constness {
        return refuse(token.span(), "a kernel cannot be `const`");
    }
    if let Some(token) = &signature.asyncness {
        return refuse(token.span(), "a kernel cannot be `async`");
    }
    if let Safety::Unsafe(token) = &signature.safety {
        return refuse(
            token.span(),
            "a kernel is not `unsafe`: what it needs of its arguments goes into `requires` or into their types, which \
             every launch checks",
        );
    }
    if let Some(abi) = &signature.abi {
        return refuse(abi.span(), "a kernel has no ABI of its own: `#[kernel]` sets it");
    }
    if !signature.generics.params.is_empty() {
        return refuse(
            signature.generics.span(),
            "a kernel cannot be generic: write one kernel for each instance, and the shared body as a generic function",
        );
    }
    if let syn::ReturnType::Type(arrow, _) = &signature.output {
        return refuse(arrow.span(), "a kernel returns nothing: it writes to its views");
    }
    if let Some(variadic) = &signature.variadic {
        return refuse(variadic.span(), "a kernel cannot be variadic");
    }
    Ok(())
}

/// Whether a type is named so, whatever module its path goes through and whatever its own arguments are.
fn is_named(kind: &Type, name: &str) -> bool {
    matches!(kind, Type::Path(path) if path.path.segments.last().is_some_and(|segment| segment.ident == name))
}

/// Whether an item is an array in shared memory: its type is `Shared<…>`, or another name of that, and its value `Shared::new()`.
fn is_shared(item: &syn::ItemStatic) -> bool {
    let made_by = match &*item.expr {
        Expr::Call(call) => match &*call.func {
            Expr::Path(path) => path.path.segments.iter().rev().nth(1),
            _ => None,
        },
        _ => None,
    };
    is_named(&item.ty, "Shared") || made_by.is_some_and(|segment| segment.ident == "Shared")
}

/// Places the `static` items that are [shared](is_shared) in shared memory.
struct PlaceShared;

impl VisitMut for PlaceShared {
    fn visit_item_static_mut(&mut self, item: &mut syn::ItemStatic) {
        if is_shared(item) {
            item.attrs.push(parse_quote!(#[unsafe(link_section = ".shared")]));
        }
    }
}

/// Finds the types of the `static` items that are in shared memory.
#[derive(Default)]
struct SharedTypes<'a>(Vec<&'a Type>);

impl<'a> Visit<'a> for SharedTypes<'a> {
    fn visit_item_static(&mut self, item: &'a syn::ItemStatic) {
        if is_shared(item) {
            self.0.push(&item.ty);
        }
    }
}

/// What the shared arrays of a kernel's body take, as a constant expression: `Shared::<…>::BYTES` of each, beside the body's
/// own constants and types, which the arrays' types may name.
fn static_shared(body: &syn::Block) -> TokenStream {
    let mut shared = SharedTypes::default();
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

/// Names the elided lifetimes of a type, so that it can be the type of a field, and remembers whether there were any.
struct NameLifetimes {
    found: bool,
    refused: Option<Error>,
}

impl VisitMut for NameLifetimes {
    fn visit_lifetime_mut(&mut self, lifetime: &mut syn::Lifetime) {
        if lifetime.ident == "_" {
            self.found = true;
            *lifetime = syn::Lifetime::new("'launch", lifetime.span());
        }
    }

    fn visit_type_reference_mut(&mut self, reference: &mut syn::TypeReference) {
        self.refused.get_or_insert_with(|| {
            Error::new(reference.span(), "a kernel takes views, not references: `GlobalSlice<'_, f32>` for `&[f32]`")
        });
    }
}

pub(crate) fn expand(arguments: Arguments, function: ItemFn) -> Result<TokenStream> {
    check_signature(&function)?;
    let parameters = parameters(&function)?;
    let on_gpu = expand_for_gpu(&arguments, &function, &parameters);
    let on_cpu = expand_for_cpu(&arguments, &function, parameters)?;
    Ok(quote! {
        #on_gpu
        #on_cpu
    })
}

fn expand_for_gpu(arguments: &Arguments, function: &ItemFn, parameters: &[Parameter]) -> TokenStream {
    let [x, y, z] = arguments.block;
    let min_blocks = arguments.min_blocks.unwrap_or(0);
    // The architecture's name as a number, first letter in the lowest byte.
    let arch =
        arguments.arch.iter().flat_map(|name| name.bytes().rev()).fold(0, |code, byte| code << 8 | u64::from(byte));
    let kinds: Vec<_> = parameters.iter().map(|parameter| &parameter.kind).collect();
    let (name_string, count, words) = (function.sig.ident.to_string(), kinds.len() as u64, 9 + kinds.len());
    let facts = format!("__tilewright_facts_{}", function.sig.ident);
    let dynamic_shared = arguments.dynamic_shared();
    let mut body = function.block.clone();
    PlaceShared.visit_block_mut(&mut body);
    let (attributes, visibility) = (&function.attrs, &function.vis);
    let (name, inputs) = (&function.sig.ident, &function.sig.inputs);
    let entry_point = quote! {
        #(#attributes)*
        #[cfg(target_arch = "nvptx64")]
        #[unsafe(no_mangle)]
        #visibility unsafe extern "ptx-kernel" fn #name(#inputs) #body

        // In the order in which the link step reads them.
        #[cfg(target_arch = "nvptx64")]
        const _: () = {
            #[unsafe(export_name = #facts)]
            static FACTS: [u64; #words] = [
                2, #x as u64, #y as u64, #z as u64, #min_blocks as u64, #name::DYNAMIC_SHARED_BYTES as u64, #arch,
                ::cuda_std::Layout::new(#name_string) #( .elements::<#kinds>() )* .fingerprint(), #count,
                #( <#kinds as ::cuda_std::KernelParam>::IS_TENSOR_MAP as u64, )*
            ];
        };
    };
    let entry_point = if_wanted(entry_point, function, &body);
    quote! {
        #entry_point

        #[cfg(target_arch = "nvptx64")]
        #[allow(non_camel_case_types, missing_docs)]
        #visibility enum #name {}

        #[cfg(target_arch = "nvptx64")]
        #[allow(dead_code, missing_docs)]
        impl #name {
            #visibility const BLOCK: ::cuda_std::Dim3 = ::cuda_std::Dim3::new(#x, #y, #z);
            #visibility const DYNAMIC_SHARED_BYTES: u32 = #dynamic_shared;
        }
    }
}

fn expand_for_cpu(arguments: &Arguments, function: &ItemFn, mut parameters: Vec<Parameter>) -> Result<TokenStream> {
    let mut lifetimes = NameLifetimes { found: false, refused: None };
    for parameter in &mut parameters {
        lifetimes.visit_type_mut(&mut parameter.kind);
    }
    if let Some(error) = lifetimes.refused {
        return Err(error);
    }
    let generics = if lifetimes.found { quote!(<'launch>) } else { quote!() };

    let name = &function.sig.ident;
    let name_string = name.to_string();
    let (attributes, visibility, statements) = (&function.attrs, &function.vis, &function.block);
    let [x, y, z] = arguments.block;
    let min_blocks = arguments.min_blocks.unwrap_or(0);
    let arch = match &arguments.arch {
        Some(arch) => quote!(::core::option::Option::Some(#arch)),
        None => quote!(::core::option::Option::None),
    };
    let dynamic_shared = arguments.dynamic_shared();
    let static_shared = static_shared(&function.block);
    let cooperative = arguments.cooperative;
    let names: Vec<_> = parameters.iter().map(|parameter| &parameter.name).collect();
    let kinds: Vec<_> = parameters.iter().map(|parameter| &parameter.kind).collect();
    let strings: Vec<_> = names.iter().map(|name| name.to_string()).collect();
    let docs = strings.iter().map(|name| format!("The kernel's parameter `{name}`."));
    let bindings = parameters.iter().map(|Parameter { name, mutability, .. }| match mutability {
        Some(token) => quote!(#name: #token #name),
        None => quote!(#name),
    });
    let grid = arguments.grid.as_ref().map(|grid| {
        quote! {
            #[cfg(not(target_arch = "nvptx64"))]
            impl #generics ::cuda_std::Grid for #name #generics {
                #[allow(unused_variables)]
                fn grid(&self) -> ::cuda_std::Dim3 {
                    let Self { #(#names),* } = *self;
                    ::core::convert::Into::into(#grid)
                }
            }
        }
    });
    let any_grid = arguments.any_grid.then(|| {
        quote! {
            #[cfg(not(target_arch = "nvptx64"))]
            impl #generics ::cuda_std::AnyGrid for #name #generics {}
        }
    });
    let conditions = arguments.requires.iter().map(|condition| check_condition(&name_string, condition));
    Ok(quote! {
        #(#attributes)*
        #[cfg(not(target_arch = "nvptx64"))]
        #[allow(non_camel_case_types)]
        #[derive(Clone, Copy)]
        #visibility struct #name #generics {
            #( #[doc = #docs] pub #names: #kinds, )*
        }

        #[cfg(not(target_arch = "nvptx64"))]
        #[allow(dead_code)]
        impl #generics #name #generics {
            /// The shape of every block.
            #visibility const BLOCK: ::cuda_std::Dim3 = ::cuda_std::Dim3::new(#x, #y, #z);
            /// The dynamic shared memory of every block, in bytes.
            #visibility const DYNAMIC_SHARED_BYTES: u32 = #dynamic_shared;
            /// What the kernel needs of a GPU.
            #visibility const FACTS: ::cuda_std::KernelFacts = ::cuda_std::KernelFacts {
                name: #name_string,
                source: ::cuda_std::KernelSource {
                    crate_name: ::core::env!("CARGO_CRATE_NAME"),
                    digest: ::core::option_env!("TILEWRIGHT_KERNEL_DIGEST"),
                },
                block: [#x, #y, #z],
                min_blocks: #min_blocks,
                arch: #arch,
                static_shared_bytes: #static_shared,
                dynamic_shared_bytes: Self::DYNAMIC_SHARED_BYTES,
                is_cooperative: #cooperative,
                tensor_maps: 0 #( + <#kinds as ::cuda_std::KernelParam>::IS_TENSOR_MAP as u32 )*,
                layout: ::cuda_std::Layout::new(#name_string) #( .elements::<#kinds>() )* .fingerprint(),
            };
        }

        #grid
        #any_grid

        // What no GPU has is no kernel.
        #[cfg(not(target_arch = "nvptx64"))]
        const _: () = #name::FACTS.assert_possible();

        // SAFETY: this and the entry point above come from the same function, and every parameter reports its views.
        #[cfg(not(target_arch = "nvptx64"))]
        unsafe impl #generics ::cuda_std::Kernel for #name #generics {
            const FACTS: ::cuda_std::KernelFacts = Self::FACTS;

            #[allow(unused_variables)]
            fn check(&self) -> ::core::result::Result<(), ::cuda_std::ContractViolation> {
                let Self { #(#names),* } = *self;
                #(#conditions)*
                ::core::result::Result::Ok(())
            }

            #[allow(unused_variables)]
            fn visit_params(&self, visit: &mut dyn ::core::ops::FnMut(*const ::core::ffi::c_void)) {
                #( visit((&raw const self.#names).cast()); )*
            }

            #[allow(unused_variables)]
            fn visit_views(&self, visit: &mut dyn ::core::ops::FnMut(::cuda_std::View<'_>)) {
                #( ::cuda_std::KernelParam::visit_views(&self.#names, ::cuda_std::ViewName::of(#strings), visit); )*
            }

            unsafe fn run_thread(self) {
                let Self { #(#bindings),* } = self;
                #statements
            }
        }
    })
}

/// The statement that checks one condition of `requires`. Both sides of a comparison are evaluated once, and named in the
/// error.
fn check_condition(kernel: &str, condition: &Expr) -> TokenStream {
    let text = quote!(#condition).to_string();
    let violation = |values: TokenStream| {
        quote! {
            return ::core::result::Result::Err(::cuda_std::ContractViolation {
                kernel: #kernel,
                condition: #text,
                values: #values,
            });
        }
    };
    if let Expr::Binary(binary) = condition
        && matches!(binary.op, BinOp::Eq(_) | BinOp::Ne(_) | BinOp::Lt(_) | BinOp::Le(_) | BinOp::Gt(_) | BinOp::Ge(_))
    {
        let (left, operator, right) = (&binary.left, &binary.op, &binary.right);
        let (l, r) = (format_ident!("left"), format_ident!("right"));
        let violation = violation(quote!(::cuda_std::__private::format!(" ({:?} against {:?})", #l, #r)));
        return quote! {
            {
                let (#l, #r) = (#left, #right);
                if !(#l #operator #r) { #violation }
            }
        };
    }
    let violation = violation(quote!(::cuda_std::__private::String::new()));
    quote! { if !(#condition) { #violation } }
}
