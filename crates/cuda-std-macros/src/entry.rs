//! What one entry point expands to: see the module `kernel`.

use proc_macro2::TokenStream;
use quote::{format_ident, quote};
use syn::visit_mut::VisitMut;
use syn::{BinOp, Error, Expr, Ident, Result, Visibility, parse_quote};

use crate::arguments::{Arguments, Block, DynamicShared};
use crate::entry_points::if_wanted;
use crate::kernel::Parameter;

/// An entry point: a kernel, or an instance of a generic one.
pub(crate) struct Entry<'a> {
    pub(crate) arguments: &'a Arguments,
    pub(crate) name: &'a Ident,
    /// The attributes, the documentation among them.
    pub(crate) attributes: TokenStream,
    pub(crate) visibility: &'a Visibility,
    pub(crate) parameters: Vec<Parameter>,
    /// `BLOCK` and the like, as items of the struct.
    pub(crate) constants: TokenStream,
    /// Statements that return an error where a condition does not hold, for which the parameters are variables.
    pub(crate) check: TokenStream,
    /// The grid of a launch, for which they are, too.
    pub(crate) grid: Option<TokenStream>,
    /// What a thread does: a block.
    pub(crate) gpu_body: TokenStream,
    /// The same on the CPU: statements.
    pub(crate) cpu_body: TokenStream,
    /// What the kernel declares, a constant expression.
    pub(crate) static_shared_bytes: TokenStream,
}

/// Names the elided lifetimes of a type, so that it can be the type of a field, and remembers whether there were any.
#[derive(Default)]
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
            let message = "a kernel takes views, not references: `GlobalSlice<'_, f32>` for `&[f32]`";
            Error::new_spanned(reference, message)
        });
    }
}

/// Whether the parameters' types have lifetimes; and the types with these named.
pub(crate) fn name_lifetimes(parameters: &mut [Parameter]) -> Result<bool> {
    let mut lifetimes = NameLifetimes::default();
    parameters.iter_mut().for_each(|parameter| lifetimes.visit_type_mut(&mut parameter.kind));
    lifetimes.refused.map_or(Ok(lifetimes.found), Err)
}

impl Entry<'_> {
    pub(crate) fn expand(self) -> Result<TokenStream> {
        let kinds: Vec<_> = self.parameters.iter().map(|parameter| parameter.kind.clone()).collect();
        let on_gpu = self.for_gpu();
        let on_cpu = self.for_cpu()?;
        Ok(quote! {
            const _: () = ::cuda_std::assert_parameters_fit(&[ #(
                (::core::mem::size_of::<#kinds>(), ::core::mem::align_of::<#kinds>(), <#kinds as ::cuda_std::KernelParam>::IS_TENSOR_MAP),
            )* ]);
            #on_gpu
            #on_cpu
        })
    }

    /// The block of the facts: its three extents.
    fn block(&self) -> [TokenStream; 3] {
        let name = self.name;
        match self.arguments.block {
            Block::Fixed(_) => [quote!(#name::BLOCK.x), quote!(#name::BLOCK.y), quote!(#name::BLOCK.z)],
            Block::AtMost(_) => [quote!(#name::MAX_THREADS), quote!(1), quote!(1)],
        }
    }

    /// The dynamic shared memory of the facts: none where a launch chooses.
    fn dynamic_shared_bytes(&self) -> TokenStream {
        let name = self.name;
        match self.arguments.dynamic_shared {
            DynamicShared::Fixed(_) => quote!(#name::DYNAMIC_SHARED_BYTES),
            DynamicShared::Chosen => quote!(0),
        }
    }

    /// The extents of the cluster, if there is one.
    fn cluster(&self) -> Option<[TokenStream; 3]> {
        let name = self.name;
        let extents = || [quote!(#name::CLUSTER.x), quote!(#name::CLUSTER.y), quote!(#name::CLUSTER.z)];
        self.arguments.cluster.as_ref().map(|_| extents())
    }

    fn for_gpu(&self) -> TokenStream {
        let Self { arguments, name, attributes, visibility, parameters, constants, gpu_body, .. } = self;
        // The architecture's name as a number, first letter in the lowest byte.
        let arch =
            arguments.arch.iter().flat_map(|name| name.bytes().rev()).fold(0, |code, byte| code << 8 | u64::from(byte));
        let kinds: Vec<_> = parameters.iter().map(|parameter| &parameter.kind).collect();
        let inputs = inputs(parameters);
        let (name_string, count, words) = (name.to_string(), kinds.len() as u64, 14 + kinds.len());
        let facts = format!("__tilewright_facts_{name}");
        let local_memory = arguments.local_memory;
        let is_bound = u64::from(matches!(arguments.block, Block::AtMost(_)));
        let ([x, y, z], dynamic_shared_bytes) = (self.block(), self.dynamic_shared_bytes());
        let [cluster_x, cluster_y, cluster_z] = self.cluster().unwrap_or_else(|| [quote!(0), quote!(0), quote!(0)]);
        let entry_point = quote! {
            #attributes
            #[cfg(target_arch = "nvptx64")]
            #[unsafe(no_mangle)]
            // Nobody calls it from C: an array that is passed by value is one.
            #[allow(improper_ctypes_definitions)]
            #visibility unsafe extern "ptx-kernel" fn #name(#inputs) #gpu_body

            // In the order in which the link step reads them.
            #[cfg(target_arch = "nvptx64")]
            const _: () = {
                #[unsafe(export_name = #facts)]
                static FACTS: [u64; #words] = [
                    5, #is_bound, #x as u64, #y as u64, #z as u64, #name::__MIN_BLOCKS as u64, #dynamic_shared_bytes as u64, #arch,
                    if #name::__STACK_BYTES > 0 { 2 } else { #local_memory as u64 }, #cluster_x as u64, #cluster_y as u64, #cluster_z as u64,
                    ::cuda_std::Layout::new(#name_string) #( .elements::<#kinds>() )* .fingerprint(), #count,
                    #( <#kinds as ::cuda_std::KernelParam>::IS_TENSOR_MAP as u64, )*
                ];
            };
        };
        let entry_point = if_wanted(entry_point, name, attributes, &inputs, gpu_body);
        quote! {
            #entry_point

            #[cfg(target_arch = "nvptx64")]
            #[allow(non_camel_case_types, missing_docs)]
            #visibility enum #name {}

            #[cfg(target_arch = "nvptx64")]
            #[allow(dead_code, missing_docs)]
            impl #name {
                #constants
            }
        }
    }

    fn for_cpu(mut self) -> Result<TokenStream> {
        let generics = name_lifetimes(&mut self.parameters)?.then(|| quote!(<'launch>));
        let ([x, y, z], dynamic_shared_bytes) = (self.block(), self.dynamic_shared_bytes());
        let cluster = match self.cluster() {
            Some([x, y, z]) => quote!(::core::option::Option::Some([#x, #y, #z])),
            None => quote!(::core::option::Option::None),
        };
        let Self {
            arguments,
            name,
            attributes,
            visibility,
            parameters,
            constants,
            check,
            grid,
            cpu_body,
            static_shared_bytes,
            ..
        } = self;
        let name_string = name.to_string();
        let arch = match &arguments.arch {
            Some(arch) => quote!(::core::option::Option::Some(#arch)),
            None => quote!(::core::option::Option::None),
        };
        let cooperative = arguments.cooperative;
        let names: Vec<_> = parameters.iter().map(|parameter| &parameter.name).collect();
        let kinds: Vec<_> = parameters.iter().map(|parameter| &parameter.kind).collect();
        let strings: Vec<_> = names.iter().map(|name| name.to_string()).collect();
        let docs = strings.iter().map(|name| format!("The kernel's parameter `{name}`."));
        let bindings = parameters.iter().map(|Parameter { name, mutability, .. }| match mutability {
            Some(token) => quote!(#name: #token #name),
            None => quote!(#name),
        });
        let choices = arguments.choices();
        let choice_names: Vec<_> = choices.iter().map(|(name, ..)| name).collect();
        let choice_kinds = choices.iter().map(|(_, kind, _)| kind);
        let choice_docs = choices.iter().map(|(.., doc)| doc);
        let facts = arguments.facts_of_launch();
        let grid = grid.map(|grid| {
            quote! {
                #[cfg(not(target_arch = "nvptx64"))]
                impl #generics ::cuda_std::Grid for #name #generics {
                    #[allow(unused_variables)]
                    fn grid(&self) -> ::cuda_std::Dim3 {
                        let Self { #(#names,)* #(#choice_names),* } = *self;
                        #grid
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
        Ok(quote! {
            #attributes
            #[cfg(not(target_arch = "nvptx64"))]
            #[allow(non_camel_case_types)]
            #[derive(Clone, Copy)]
            #visibility struct #name #generics {
                #( #[doc = #docs] pub #names: #kinds, )*
                #( #[doc = #choice_docs] pub #choice_names: #choice_kinds, )*
            }

            #[cfg(not(target_arch = "nvptx64"))]
            #[allow(dead_code)]
            impl #generics #name #generics {
                #constants
                /// What the kernel needs of a GPU.
                #visibility const FACTS: ::cuda_std::KernelFacts = ::cuda_std::KernelFacts {
                    name: #name_string,
                    source: ::cuda_std::KernelSource {
                        crate_name: ::core::env!("CARGO_CRATE_NAME"),
                        digest: ::core::option_env!("TILEWRIGHT_KERNEL_DIGEST"),
                    },
                    block: [#x, #y, #z],
                    min_blocks: Self::__MIN_BLOCKS,
                    arch: #arch,
                    static_shared_bytes: #static_shared_bytes,
                    dynamic_shared_bytes: #dynamic_shared_bytes,
                    stack_bytes: Self::__STACK_BYTES,
                    is_cooperative: #cooperative,
                    cluster: #cluster,
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

                #facts

                #[allow(unused_variables)]
                fn check(&self) -> ::core::result::Result<(), ::cuda_std::ContractViolation> {
                    let Self { #(#names,)* #(#choice_names),* } = *self;
                    #check
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
                    // What a launch chooses, a thread asks the hardware for.
                    let Self { #(#bindings,)* #(#choice_names: _),* } = self;
                    #cpu_body
                }
            }
        })
    }
}

/// The parameters of a function.
pub(crate) fn inputs(parameters: &[Parameter]) -> TokenStream {
    let inputs = parameters.iter().map(|Parameter { name, mutability, kind }| quote!(#mutability #name: #kind));
    quote!(#(#inputs),*)
}

impl Arguments {
    /// The method that says what a launch has chosen, if launches of the kernel choose.
    fn facts_of_launch(&self) -> Option<TokenStream> {
        let block = matches!(self.block, Block::AtMost(_)).then(|| quote!(block: self.block.into(),));
        let shared = matches!(self.dynamic_shared, DynamicShared::Chosen)
            .then(|| quote!(dynamic_shared_bytes: self.dynamic_shared_bytes,));
        (block.is_some() || shared.is_some()).then(|| {
            quote! {
                fn facts(&self) -> ::cuda_std::KernelFacts {
                    ::cuda_std::KernelFacts { #block #shared ..Self::FACTS }
                }
            }
        })
    }

    /// What a launch checks: the bounds of its block, and `requires`. Each as it is written, and as an expression.
    pub(crate) fn conditions(&self) -> impl Iterator<Item = (String, Expr)> {
        let bounds = match &self.block {
            Block::AtMost(threads) => vec![
                // First: a condition or a grid may divide by it.
                ("block >= 1".to_owned(), parse_quote!(block.volume() >= 1)),
                (
                    format!("block <= {}", quote!(#threads)),
                    parse_quote!(block.volume() <= u128::from(Self::MAX_THREADS)),
                ),
            ],
            Block::Fixed(_) => Vec::new(),
        };
        let requires = self.requires.iter().map(|condition| (quote!(#condition).to_string(), condition.clone()));
        bounds.into_iter().chain(requires)
    }
}

/// The statement that checks one condition of a kernel. Both sides of a comparison are evaluated once, and named in the
/// error.
pub(crate) fn condition(kernel: &TokenStream, text: &str, condition: &Expr) -> TokenStream {
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
