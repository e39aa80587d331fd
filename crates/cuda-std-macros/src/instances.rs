//! Generic kernels.
//!
//! ```text
//! #[kernel(block = THREADS, instances(sum_f32 = <f32, 128>, sum_u32 = <u32, 64>))]
//! pub fn sum<T: Number, const THREADS: u32>(x: GlobalSlice<'_, T>, y: GlobalSliceMut<'_, T>) {
//!     static TILE: Shared<[T; 32]> = Shared::new();
//!     body
//! }
//! ```
//!
//! becomes a type that stands for the generic kernel, with what depends on its parameters:
//!
//! ```text
//! pub struct sum<T: Number, const THREADS: u32>(PhantomData<fn() -> T>);
//! impl<T: Number, const THREADS: u32> sum<T, THREADS> {
//!     pub const BLOCK: Dim3 = Dim3::new(THREADS, 1, 1);
//!     unsafe fn __run(x: GlobalSlice<'_, T>, y: GlobalSliceMut<'_, T>, TILE: &'static Shared<[T; 32]>) { body }
//! }
//! impl<T: Number, const THREADS: u32> __sum_types for sum<T, THREADS> {
//!     type x<'launch> = GlobalSlice<'launch, T>;
//!     type TILE = Shared<[T; 32]>;
//! }
//! ```
//!
//! and for each instance what `kernel` makes of a function that is not generic:
//!
//! ```text
//! pub fn sum_f32(x: <sum<f32, 128> as __sum_types>::x<'_>, y: …) {
//!     static TILE: <sum<f32, 128> as __sum_types>::TILE = Shared::new();
//!     unsafe { <sum<f32, 128>>::__run(x, y, &TILE) }
//! }
//! ```
//!
//! So the compiler replaces types by types, and checks the body once, with what its bounds promise.

use proc_macro2::{Span, TokenStream};
use quote::{format_ident, quote, quote_spanned};
use syn::spanned::Spanned;
use syn::visit_mut::VisitMut;
use syn::{GenericParam, Ident, ItemFn, ItemStatic, Result, parse_quote};

use crate::arguments::{Arguments, Instance};
use crate::entry::{Entry, condition, inputs, name_lifetimes};
use crate::kernel::Parameter;
use crate::shared;

pub(crate) fn expand(arguments: &Arguments, function: &ItemFn, parameters: &[Parameter]) -> Result<TokenStream> {
    let mut body = (*function.block).clone();
    let generic = Generic {
        arguments,
        function,
        parameters,
        types: format_ident!("__{}_types", function.sig.ident),
        arrays: shared::take(&mut body)?,
    };
    let definition = generic.definition(&body)?;
    let instances =
        arguments.instances.iter().map(|instance| generic.entry(instance).expand()).collect::<Result<TokenStream>>()?;
    Ok(quote! {
        #definition
        #instances
    })
}

struct Generic<'a> {
    arguments: &'a Arguments,
    function: &'a ItemFn,
    parameters: &'a [Parameter],
    /// The trait that has the types of parameters and shared arrays.
    types: Ident,
    arrays: Vec<ItemStatic>,
}

impl Generic<'_> {
    /// The names of what a launch brings: parameters, and what it chooses.
    fn launch_names(&self) -> Vec<Ident> {
        let choices = self.arguments.choices().into_iter().map(|(name, ..)| name);
        self.parameters.iter().map(|parameter| parameter.name.clone()).chain(choices).collect()
    }

    fn definition(&self, body: &syn::Block) -> Result<TokenStream> {
        let ItemFn { attrs: attributes, vis: visibility, sig: signature, .. } = self.function;
        let (name, types) = (&signature.ident, &self.types);
        let (impl_generics, type_generics, bounds) = signature.generics.split_for_impl();
        let type_parameters = signature.generics.params.iter().filter_map(|parameter| match parameter {
            GenericParam::Type(parameter) => Some(&parameter.ident),
            _ => None,
        });
        let definition_generics = &signature.generics.params;
        let constants = self.arguments.constants(visibility);

        let mut fields: Vec<Parameter> = self
            .parameters
            .iter()
            .map(|Parameter { name, kind, .. }| Parameter { name: name.clone(), mutability: None, kind: kind.clone() })
            .collect();
        let (field_names, has_lifetime): (Vec<_>, Vec<_>) =
            self.parameters.iter().map(|parameter| (&parameter.name, has_lifetime(parameter))).unzip();
        let lifetimes: Vec<_> = has_lifetime.into_iter().map(|has| has.then(|| quote!(<'launch>))).collect();
        name_lifetimes(&mut fields)?;
        let field_kinds = fields.iter().map(|field| &field.kind);

        let array_names: Vec<_> = self.arrays.iter().map(|array| &array.ident).collect();
        let array_kinds: Vec<_> = self.arrays.iter().map(|array| &array.ty).collect();
        let mut run_inputs = inputs(self.parameters);
        if !self.parameters.is_empty() {
            run_inputs.extend(quote!(,));
        }
        run_inputs.extend(quote!(#(#array_names: &'static #array_kinds),*));

        let choices = self.arguments.choices();
        let choice_inputs = choices.iter().map(|(name, kind, _)| quote!(#name: #kind));
        let launch_inputs =
            self.parameters.iter().map(|Parameter { name, kind, .. }| quote!(#name: #kind)).chain(choice_inputs);
        let launch_inputs = quote!(#(#launch_inputs),*);
        let kernel = Ident::new("kernel", Span::mixed_site());
        let conditions = self.arguments.conditions().map(|(text, holds)| condition(&quote!(#kernel), &text, &holds));
        let grid = self.arguments.grid.as_ref().map(|grid| {
            quote! {
                #[doc(hidden)]
                #[cfg(not(target_arch = "nvptx64"))]
                #[allow(unused_variables, clippy::too_many_arguments)]
                fn __grid(#launch_inputs) -> ::cuda_std::Dim3 {
                    ::core::convert::Into::into(#grid)
                }
            }
        });
        Ok(quote! {
            #(#attributes)*
            #[allow(non_camel_case_types, dead_code)]
            #visibility struct #name<#definition_generics>(
                ::core::marker::PhantomData<fn() -> (#(#type_parameters,)*)>
            ) #bounds;

            #[doc(hidden)]
            #[allow(non_camel_case_types, dead_code, missing_docs)]
            #visibility trait #types {
                #( type #field_names #lifetimes; )*
                #( type #array_names; )*
            }

            impl #impl_generics #types for #name #type_generics #bounds {
                #( type #field_names #lifetimes = #field_kinds; )*
                #( type #array_names = #array_kinds; )*
            }

            #[allow(dead_code)]
            impl #impl_generics #name #type_generics #bounds {
                #constants

                /// # Safety
                /// As for a launch of the kernel, by one of its threads.
                #[doc(hidden)]
                #[inline(always)]
                #[allow(non_snake_case, clippy::too_many_arguments)]
                unsafe fn __run(#run_inputs) #body

                #grid

                #[doc(hidden)]
                #[cfg(not(target_arch = "nvptx64"))]
                #[allow(unused_variables, clippy::too_many_arguments)]
                fn __check(
                    #kernel: &'static str, #launch_inputs
                ) -> ::core::result::Result<(), ::cuda_std::ContractViolation> {
                    #(#conditions)*
                    ::core::result::Result::Ok(())
                }
            }
        })
    }

    /// An instance, as a kernel that is not generic.
    fn entry<'a>(&'a self, instance: &'a Instance) -> Entry<'a> {
        let ItemFn { attrs: attributes, vis: visibility, sig: signature, .. } = self.function;
        let (generic, types) = (&signature.ident, &self.types);
        let Instance { name, arguments } = instance;
        let this = quote!(#generic #arguments);
        let parameters: Vec<Parameter> = self
            .parameters
            .iter()
            .map(|parameter| {
                let Parameter { name, kind, .. } = parameter;
                let lifetime = has_lifetime(parameter).then(|| quote!(<'_>));
                // At the place of its type, so that one which is no parameter is pointed at.
                let kind = quote_spanned! { kind.span().resolved_at(Span::call_site()) =>
                    <#this as #types>::#name #lifetime
                };
                Parameter { name: name.clone(), mutability: None, kind: parse_quote!(#kind) }
            })
            .collect();
        let names = self.parameters.iter().map(|parameter| &parameter.name);
        let array_names: Vec<_> = self.arrays.iter().map(|array| &array.ident).collect();
        let section = shared::section();
        let array_items = self.arrays.iter().map(|array| {
            // Made by the array's own expression, the place of which is what reports name.
            let ItemStatic { attrs: attributes, ident: name, expr, .. } = array;
            quote! {
                #(#attributes)*
                #section
                static #name: <#this as #types>::#name = #expr;
            }
        });
        let statements = quote! {
            #(#array_items)*
            // SAFETY: whoever runs the kernel keeps what its parameters' types and `requires` promise.
            unsafe { <#this>::__run(#(#names,)* #(&#array_names),*) }
        };
        let launch_names = self.launch_names();
        let name_string = name.to_string();
        let doc = format!("The instance `{}` of [`{generic}`].", this.to_string().replace(' ', ""));
        Entry {
            arguments: self.arguments,
            name,
            attributes: quote!(#(#attributes)* #[doc = ""] #[doc = #doc]),
            visibility,
            parameters,
            constants: self.arguments.constants_of(visibility, &quote!(<#this>)),
            check: quote!(<#this>::__check(#name_string, #(#launch_names),*)?;),
            grid: self.arguments.grid.as_ref().map(|_| quote!(<#this>::__grid(#(#launch_names),*))),
            gpu_body: quote!({ #statements }),
            cpu_body: statements,
            static_shared_bytes: quote!(0 #( + <<#this as #types>::#array_names>::BYTES )*),
        }
    }
}

/// Whether the type of a parameter has a lifetime.
fn has_lifetime(parameter: &Parameter) -> bool {
    struct Find(bool);

    impl VisitMut for Find {
        fn visit_lifetime_mut(&mut self, _: &mut syn::Lifetime) {
            self.0 = true;
        }
    }

    let mut find = Find(false);
    find.visit_type_mut(&mut parameter.kind.clone());
    find.0
}
