//! `libtilewright_cublas.so`: takes fp32 matrix products from cuBLAS in programs that are not compiled again.
//!
//! ```text
//!  program, torch, CuPy, JAX
//!      │ cublasSgemm_v2 (linked: LD_PRELOAD comes first; looked up: `dlsym` is exported too)
//!      ▼
//!  exports ── intercept ── state       stream, pointer mode, math mode: cuBLAS's own getters say
//!                 │        product     column-major arguments as views of matrices
//!                 │        choose      a plan that is faster than cuBLAS can be, and whose workspace fits
//!                 │        compute     queued on the caller's stream ──────────────────────────────► CUBLAS_STATUS_SUCCESS
//!                 └── whatever is in the way ─► original: cuBLAS's function, with the same arguments ─► its status
//! ```
//!
//! Nothing is refused here: what this library does not compute, cuBLAS computes or refuses. While a call is inside of cuBLAS, what cuBLAS calls
//! itself is not taken, thread by thread. A child of a fork that came after the first product passes everything on.
//!
//! # The order of the modules
//!
//! A module knows those in the lines above its own, and none below.
//!
//! ```text
//!  abi   why   report ◄─ settings          the types of cuBLAS; why a call is passed on; lines for `TILEWRIGHT_VERBOSE`; the environment
//!  loader   product   place                the functions of the libraries that are loaded; matrices; the GPU that is current
//!  state   choose                          what a handle and descriptors say; which plan
//!  compute                                 running it
//!  intercept                               ours or cuBLAS's
//!  exports ◄─ lookup                       the functions of cuBLAS; `dlsym`
//! ```

#![cfg(all(target_os = "linux", target_env = "gnu", any(target_arch = "x86_64", target_arch = "aarch64")))]

mod abi;
mod choose;
mod compute;
mod exports;
mod intercept;
mod loader;
mod lookup;
mod place;
mod product;
mod report;
mod settings;
mod state;
mod why;
