//! What stands between the parentheses of `#[kernel(…)]`.

use gpu_facts::Limits;
use proc_macro2::{Span, TokenStream};
use quote::quote;
use syn::parse::{Parse, ParseStream};
use syn::punctuated::Punctuated;
use syn::spanned::Spanned;
use syn::{AngleBracketedGenericArguments, Error, Expr, Ident, Lit, LitStr, Result, Token, Visibility, parse_quote};

/// All of it.
pub(crate) struct Arguments {
    pub(crate) block: Block,
    pub(crate) min_blocks: Option<Expr>,
    pub(crate) arch: Option<String>,
    pub(crate) dynamic_shared: DynamicShared,
    pub(crate) local_memory: bool,
    pub(crate) stack: Option<Expr>,
    pub(crate) grid: Option<Expr>,
    pub(crate) any_grid: bool,
    pub(crate) cooperative: bool,
    /// The blocks of every cluster, in constant expressions of type `u32`.
    pub(crate) cluster: Option<Box<[Expr; 3]>>,
    pub(crate) requires: Vec<Expr>,
    pub(crate) instances: Vec<Instance>,
}

/// The shape of a block, in constant expressions of type `u32`.
pub(crate) enum Block {
    /// `block = 256`, `(32, 8)` or `(8, 8, 4)`: that of every block.
    Fixed(Box<[Expr; 3]>),
    /// `block <= 1024`: each launch chooses one of at most so many threads.
    AtMost(Expr),
}

/// The dynamic shared memory of a block, in bytes.
pub(crate) enum DynamicShared {
    /// `dynamic_shared = bytes`, a constant expression, or nothing.
    Fixed(Expr),
    /// `dynamic_shared`: each launch chooses.
    Chosen,
}

/// `sum_f32 = <f32, 4>`: an entry point of a generic kernel.
pub(crate) struct Instance {
    pub(crate) name: Ident,
    pub(crate) arguments: AngleBracketedGenericArguments,
}

impl Parse for Instance {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        let name = input.parse()?;
        input.parse::<Token![=]>()?;
        Ok(Self { name, arguments: input.parse()? })
    }
}

impl Parse for Arguments {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        let (mut block, mut min_blocks, mut arch, mut instances) = (None, None, None, None);
        let (mut dynamic_shared, mut requires, mut grid, mut cluster) = (None, None, None, None);
        let (mut any_grid, mut cooperative, mut local_memory, mut stack) = (false, false, false, None);
        while !input.is_empty() {
            let name: Ident = input.parse()?;
            let repeated = match name.to_string().as_str() {
                "block" => block.replace(parse_block(input)?).is_some(),
                "min_blocks" => min_blocks.replace(parse_value(input)?).is_some(),
                "arch" => {
                    input.parse::<Token![=]>()?;
                    arch.replace(parse_arch(&input.parse()?)?).is_some()
                }
                "dynamic_shared" => {
                    let bytes = match input.peek(Token![=]) {
                        true => DynamicShared::Fixed(parse_value(input)?),
                        false => DynamicShared::Chosen,
                    };
                    dynamic_shared.replace(bytes).is_some()
                }
                "local_memory" => std::mem::replace(&mut local_memory, true),
                "stack" => stack.replace(parse_value(input)?).is_some(),
                "grid" => grid.replace(parse_value(input)?).is_some(),
                "any_grid" => std::mem::replace(&mut any_grid, true),
                "cooperative" => std::mem::replace(&mut cooperative, true),
                "cluster" => cluster.replace(parse_cluster(input)?).is_some(),
                "requires" => requires.replace(parse_list(input)?).is_some(),
                "instances" => {
                    let list = parse_list::<Instance>(input)?;
                    if list.is_empty() {
                        return Err(Error::new(name.span(), "a generic kernel has at least one instance"));
                    }
                    instances.replace(list).is_some()
                }
                _ => {
                    return Err(Error::new(
                        name.span(),
                        format!(
                            "unknown argument `{name}`: expected `block`, `grid`, `any_grid`, `cooperative`, \
                             `cluster`, `min_blocks`, `arch`, `dynamic_shared`, `local_memory`, `stack`, `requires` or `instances`"
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
            dynamic_shared: dynamic_shared.unwrap_or_else(|| DynamicShared::Fixed(parse_quote!(0))),
            local_memory,
            stack,
            grid,
            any_grid,
            cooperative,
            cluster,
            requires: requires.unwrap_or_default(),
            instances: instances.unwrap_or_default(),
        })
    }
}

impl Arguments {
    /// The constants of a kernel's type: what the attribute says of its blocks, each expression once.
    pub(crate) fn constants(&self, visibility: &Visibility) -> TokenStream {
        let min_blocks = self.min_blocks.as_ref().map_or_else(|| quote!(0), |blocks| quote!(#blocks));
        let block = match &self.block {
            Block::Fixed(extents) => {
                let [x, y, z] = &**extents;
                quote!(::cuda_std::Dim3::new(#x, #y, #z))
            }
            Block::AtMost(threads) => quote!(#threads),
        };
        let dynamic_shared = match &self.dynamic_shared {
            DynamicShared::Fixed(bytes) => quote!(#bytes),
            DynamicShared::Chosen => quote!(),
        };
        let stack = self.stack.as_ref().map_or_else(|| quote!(0), |bytes| quote!(#bytes));
        let cluster = self.cluster.as_ref().map_or_else(TokenStream::new, |extents| {
            let [x, y, z] = &**extents;
            quote!(::cuda_std::Dim3::new(#x, #y, #z))
        });
        self.constants_with(visibility, [block, dynamic_shared, min_blocks, stack, cluster])
    }

    /// The constants of an instance: those of the generic kernel's type.
    pub(crate) fn constants_of(&self, visibility: &Visibility, generic: &TokenStream) -> TokenStream {
        let block = match self.block {
            Block::Fixed(_) => quote!(#generic::BLOCK),
            Block::AtMost(_) => quote!(#generic::MAX_THREADS),
        };
        let values = [
            block,
            quote!(#generic::DYNAMIC_SHARED_BYTES),
            quote!(#generic::__MIN_BLOCKS),
            quote!(#generic::__STACK_BYTES),
            quote!(#generic::CLUSTER),
        ];
        self.constants_with(visibility, values)
    }

    fn constants_with(
        &self,
        visibility: &Visibility,
        [block, dynamic_shared, min_blocks, stack, cluster]: [TokenStream; 5],
    ) -> TokenStream {
        let block = match self.block {
            Block::Fixed(_) => quote! {
                /// The shape of every block.
                #visibility const BLOCK: ::cuda_std::Dim3 = #block;
            },
            Block::AtMost(_) => quote! {
                /// The most threads that a launch can choose for a block.
                #visibility const MAX_THREADS: u32 = #block;
            },
        };
        let dynamic_shared = match self.dynamic_shared {
            DynamicShared::Fixed(_) => Some(quote! {
                /// The dynamic shared memory of every block, in bytes.
                #visibility const DYNAMIC_SHARED_BYTES: u32 = #dynamic_shared;
            }),
            DynamicShared::Chosen => None,
        };
        let cluster = self.cluster.as_ref().map(|_| {
            quote! {
                /// The blocks of every cluster.
                #visibility const CLUSTER: ::cuda_std::Dim3 = #cluster;
            }
        });
        quote! {
            #block
            #dynamic_shared
            #cluster
            #[doc(hidden)]
            #visibility const __MIN_BLOCKS: u32 = #min_blocks;
            #[doc(hidden)]
            #visibility const __STACK_BYTES: u32 = #stack;
        }
    }

    /// The fields by which a launch chooses what the kernel leaves to it: name, type, documentation.
    pub(crate) fn choices(&self) -> Vec<(Ident, TokenStream, &'static str)> {
        let name = |name| Ident::new(name, Span::call_site());
        let mut choices = Vec::new();
        if let Block::AtMost(_) = self.block {
            choices.push((name("block"), quote!(::cuda_std::Dim3), "The shape of every block of this launch."));
        }
        if let DynamicShared::Chosen = self.dynamic_shared {
            let doc = "The dynamic shared memory of every block of this launch, in bytes.";
            choices.push((name("dynamic_shared_bytes"), quote!(u32), doc));
        }
        choices
    }
}

/// `= expression`.
fn parse_value(input: ParseStream<'_>) -> Result<Expr> {
    input.parse::<Token![=]>()?;
    input.parse()
}

/// A list in parentheses.
fn parse_list<T: Parse>(input: ParseStream<'_>) -> Result<Vec<T>> {
    let list;
    syn::parenthesized!(list in input);
    Ok(Punctuated::<T, Token![,]>::parse_terminated(&list)?.into_iter().collect())
}

/// `= 256`, `= (32, 8)`, `= (8, 8, 4)` or `<= 1024`. What is written in numbers is compared with the limits that every device has; what is
/// worked out from constants, the compiler compares.
fn parse_block(input: ParseStream<'_>) -> Result<Block> {
    if input.peek(Token![<=]) {
        input.parse::<Token![<=]>()?;
        let threads: Expr = input.parse()?;
        check_block(threads.span(), [number(&threads), Some(1), Some(1)])?;
        return Ok(Block::AtMost(threads));
    }
    input.parse::<Token![=]>()?;
    let (span, block) = parse_extents(input, "block")?;
    check_block(span, std::array::from_fn(|axis| number(&block[axis])))?;
    Ok(Block::Fixed(Box::new(block)))
}

/// `= 2`, `= (2, 2)` or `= (2, 2, 2)`. What is written in numbers is compared with what every GPU has that has clusters.
fn parse_cluster(input: ParseStream<'_>) -> Result<Box<[Expr; 3]>> {
    input.parse::<Token![=]>()?;
    let (span, cluster) = parse_extents(input, "cluster")?;
    if let [Some(x), Some(y), Some(z)] = std::array::from_fn(|axis| number(&cluster[axis])) {
        let kernel = gpu_facts::KernelFacts { cluster: Some([x, y, z]), ..gpu_facts::KernelFacts::new("") };
        Limits::of_hopper().check(&kernel).map_err(|excess| Error::new(span, excess))?;
    }
    Ok(Box::new(cluster))
}

/// Up to three extents; those that are missing are 1.
fn parse_extents(input: ParseStream<'_>, of: &str) -> Result<(Span, [Expr; 3])> {
    let span = input.span();
    let extents: Vec<Expr> = match input.parse()? {
        Expr::Tuple(tuple) => tuple.elems.into_iter().collect(),
        Expr::Paren(one) => vec![*one.expr],
        one => vec![one],
    };
    if extents.is_empty() || extents.len() > 3 {
        return Err(Error::new(span, format!("a {of} has one, two or three extents")));
    }
    let mut extents = extents.into_iter();
    Ok((span, std::array::from_fn(|_| extents.next().unwrap_or_else(|| parse_quote!(1)))))
}

/// The number that a literal is, if it fits.
fn number(expression: &Expr) -> Option<u32> {
    match expression {
        Expr::Lit(literal) => match &literal.lit {
            Lit::Int(number) => number.base10_parse().ok(),
            _ => None,
        },
        _ => None,
    }
}

/// Refuses a block that no device has, where it is written in numbers.
fn check_block(span: Span, extents: [Option<u32>; 3]) -> Result<()> {
    let [Some(x), Some(y), Some(z)] = extents else { return Ok(()) };
    // All GPUs have the same limits for the shape of a block.
    let kernel = gpu_facts::KernelFacts { block: [x, y, z], ..gpu_facts::KernelFacts::new("") };
    Limits::of_every_gpu().check(&kernel).map_err(|excess| Error::new(span, excess))
}

fn parse_arch(literal: &LitStr) -> Result<String> {
    let arch = literal.value();
    let number = arch.strip_prefix("sm_").unwrap_or("");
    if number.is_empty() || !number.chars().all(|c| c.is_ascii_alphanumeric()) {
        return Err(Error::new(literal.span(), format!("`{arch}` is no architecture: expected one like \"sm_90a\"")));
    }
    Ok(arch)
}
