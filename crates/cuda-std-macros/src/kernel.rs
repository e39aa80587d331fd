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
//! #[export_name = "__tilewright_facts_axpy"] static FACTS: [u64; 17] = [5, 0, 256, 1, 1, …];
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
//!
//! What becomes of a generic function is said in the module `instances`; what one entry point expands to, in `entry`.

use proc_macro2::{Span, TokenStream};
use quote::quote;
use syn::spanned::Spanned;
use syn::{Error, FnArg, GenericParam, Ident, ItemFn, Pat, Result, Safety, Token, Type};

use crate::arguments::Arguments;
use crate::entry::{Entry, condition};
use crate::{instances, shared};

/// A parameter of the kernel: its name as the body sees it, and its type.
pub(crate) struct Parameter {
    pub(crate) name: Ident,
    pub(crate) mutability: Option<Token![mut]>,
    pub(crate) kind: Type,
}

fn parameters(arguments: &Arguments, function: &ItemFn) -> Result<Vec<Parameter>> {
    let one = |argument: &FnArg| match argument {
        FnArg::Typed(typed) => match &*typed.pat {
            Pat::Ident(pattern) if pattern.by_ref.is_none() && pattern.subpat.is_none() => {
                let name = pattern.ident.clone();
                if arguments.choices().iter().any(|(choice, ..)| name == *choice) {
                    let message = format!("`{name}` is what a launch chooses: the parameter needs another name");
                    return Err(Error::new(name.span(), message));
                }
                Ok(Parameter { name, mutability: pattern.mutability, kind: (*typed.ty).clone() })
            }
            pattern => Err(Error::new(pattern.span(), "a kernel parameter is a plain name")),
        },
        FnArg::Receiver(receiver) => Err(Error::new(receiver.span(), "a kernel is not a method")),
    };
    function.sig.inputs.iter().map(one).collect()
}

fn check_signature(arguments: &Arguments, function: &ItemFn) -> Result<()> {
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
    if let Some(GenericParam::Lifetime(lifetime)) =
        signature.generics.params.iter().find(|parameter| matches!(parameter, GenericParam::Lifetime(_)))
    {
        return refuse(
            lifetime.span(),
            "a kernel has no names for lifetimes: write `'_` in the types of its parameters",
        );
    }
    if signature.generics.params.is_empty() {
        if let Some(instance) = arguments.instances.first() {
            return refuse(
                instance.name.span(),
                "only a generic kernel has instances: give the function parameters in `<…>`",
            );
        }
    } else if arguments.instances.is_empty() {
        return refuse(
            signature.generics.span(),
            "a generic kernel says which instances are compiled, each with the name of its entry point: \
             `#[kernel(…, instances(sum_f32 = <f32>, sum_u32 = <u32>))]`",
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

pub(crate) fn expand(arguments: &Arguments, function: &ItemFn) -> Result<TokenStream> {
    check_signature(arguments, function)?;
    let parameters = parameters(arguments, function)?;
    if !function.sig.generics.params.is_empty() {
        return instances::expand(arguments, function, &parameters);
    }
    let ItemFn { attrs: attributes, vis: visibility, sig: signature, block: body, .. } = function;
    let name = &signature.ident;
    let kernel = name.to_string();
    let placed = shared::placed(body);
    let conditions = arguments.conditions().map(|(text, holds)| condition(&quote!(#kernel), &text, &holds));
    let statements = &body.stmts;
    Entry {
        arguments,
        name,
        attributes: quote!(#(#attributes)*),
        visibility,
        parameters,
        constants: arguments.constants(visibility),
        check: quote!(#(#conditions)*),
        grid: arguments.grid.as_ref().map(|grid| quote!(::core::convert::Into::into(#grid))),
        gpu_body: quote!(#placed),
        cpu_body: quote!(#(#statements)*),
        static_shared_bytes: shared::static_bytes(body),
    }
    .expand()
}
