//! The native half of the Python package `tilewright`: what `python/tilewright` calls. It is an extension module for Python's
//! stable interface, and needs neither a GPU nor a driver to be loaded.
//!
//! ```text
//!  tilewright.matmul ─► product ─┬─ torch tensors ──► torch ───┐
//!  ….linear ─► fused ──────┤
//!  tilewright.scale ──► scaling ─┼─ other arrays ──► tensor ───┼─► shape ─► engine ─► the library
//!  ….grouped_matmul ──► grouped ─┘     dlpack, array           ┘            process
//!  ….PackedMatrix ─► packed ───────────── torch ──────────────► engine ─► the library
//!  tilewright.enable ─► switch: torch's own products ──► shape ─► engine ─► the library
//! ```

mod array;
mod dlpack;
mod engine;
mod error;
mod fused;
mod grouped;
mod once;
mod packed;
mod process;
mod product;
mod scaling;
mod shape;
mod switch;
mod tensor;
mod torch;

use pyo3::prelude::*;

/// The native half of the package.
// An interpreter without the global lock takes it back when it imports this, and says so: a child of a fork rests on that lock (the module
// `process`), and nothing here has been tested without it.
#[pymodule(gil_used = true)]
mod _native {
    #[pymodule_export]
    use crate::array::Array;
    #[pymodule_export]
    use crate::fused::{fused, fused_tensors};
    #[pymodule_export]
    use crate::grouped::grouped;
    #[pymodule_export]
    use crate::packed::{pack, reads_packed};
    #[pymodule_export]
    use crate::product::{check_is_apart, explain, multiply, multiply_tensors, precisions};
    #[pymodule_export]
    use crate::scaling::{scale, scale_tensors};
    #[pymodule_export]
    use crate::switch::{switch_off, switch_on, switch_records, switch_reset};

    use crate::process::check_interpreter;
    use crate::tensor::type_name;
    use pyo3::prelude::*;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        check_interpreter(module.py())?;
        // PyO3 keeps the names that this asks for in cells of its own kind: they are filled before there are calls to fork in.
        type_name(module.as_any());
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}
