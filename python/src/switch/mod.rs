//! The switch: torch's products of float32 on GPUs, computed by Tilewright in programs that call torch alone.
//!
//! ```text
//!  tilewright.enable ─► mod ─► dispatcher      registers kernels in the place of torch's, for one dispatch key
//!                                  │
//!  torch.mm, linear, … ─► torch ─► kernels ─► attempt ─► decision, engine     taken
//!                                     └─► torch's own kernel                  passed on: other types and devices, small products, TF32,
//!                                                                             no memory
//!  tilewright.stats ─► mod ─► records ◄── attempt counts all of them
//! ```
//!
//! It is on or off for the process, because derivatives are computed by threads of torch's own.

mod attempt;
mod decision;
mod dispatcher;
mod kernels;
mod layouts;
mod records;
mod symbols;
mod tensor;

use std::path::Path;
use std::ptr;
use std::sync::atomic::Ordering;
use std::sync::{Mutex, PoisonError};

use pyo3::prelude::*;
use tilewright::Wanted;

use crate::engine::Place;
use crate::error::{Failure, Kind, argument};
use crate::process::prepare;

use self::decision::Setting;
use self::dispatcher::{Key, Registration};
use self::symbols::Symbols;

/// What is on.
static ON: Mutex<State> = Mutex::new(State { registration: None, settings: Vec::new() });

struct State {
    /// The kernels in the place of torch's, and whether they are those for tensors on the CPU.
    registration: Option<(Registration, bool)>,
    /// All that the switch was ever set to: threads may still look at one of them.
    settings: Vec<&'static Setting>,
}

/// Takes products from now on. `libraries` is the directory of torch's libraries, `key` the number of its dispatch key for CUDA, or for the
/// CPU if `on_cpu`, where the CPU executor computes.
#[pyfunction]
#[pyo3(signature = (libraries, key, precision, *, only_faster, on_cpu, verbose))]
pub(crate) fn switch_on(
    py: Python<'_>,
    libraries: &str,
    key: u16,
    precision: &str,
    only_faster: bool,
    on_cpu: bool,
    verbose: bool,
) -> PyResult<()> {
    let wanted: Wanted =
        precision.parse().map_err(|why: String| argument(format!("precision is {precision:?}: {why}")))?;
    if on_cpu {
        prepare(py, Place::Cpu)?;
    }
    let refused = |why: String| Failure::new(Kind::Device, format!("tilewright.enable: {why}. Nothing was changed"));
    let symbols = Symbols::open(Path::new(libraries)).map_err(refused)?;
    if !on_cpu && !symbols.has_cuda() {
        return Err(refused("this torch has no CUDA".to_owned()).into());
    }
    let mut on = ON.lock().unwrap_or_else(PoisonError::into_inner);
    let known = on
        .settings
        .iter()
        .find(|known| (known.precision.as_str(), known.only_faster, known.on_cpu) == (precision, only_faster, on_cpu));
    let setting = match known {
        Some(known) => *known,
        None => {
            let made: &'static Setting =
                Box::leak(Box::new(Setting::new(precision.to_owned(), wanted, only_faster, on_cpu)));
            on.settings.push(made);
            made
        }
    };
    if on.registration.as_ref().is_none_or(|(_, for_cpu)| *for_cpu != on_cpu) {
        attempt::CURRENT.store(ptr::null_mut(), Ordering::Release);
        on.registration = None;
        let key = Key { name: if on_cpu { c"CPU" } else { c"CUDA" }, number: key };
        // SAFETY: `kernels::all` has a kernel for each operator, in the same order.
        let registered = unsafe { dispatcher::register(symbols, &key, &kernels::all()) };
        on.registration = Some((registered.map_err(refused)?, on_cpu));
    }
    attempt::VERBOSE.store(verbose, Ordering::Relaxed);
    attempt::CURRENT.store(ptr::from_ref(setting).cast_mut(), Ordering::Release);
    Ok(())
}

/// Takes none from now on, and leaves torch as it was.
#[pyfunction]
pub(crate) fn switch_off() {
    attempt::CURRENT.store(ptr::null_mut(), Ordering::Release);
    ON.lock().unwrap_or_else(PoisonError::into_inner).registration = None;
}

/// An operator; m, n, k and the number of products; the precision; the kernel; the calls; and what a call should take, here and at torch's,
/// in milliseconds.
type Row = (&'static str, [usize; 4], String, &'static str, u64, Option<(f64, f64)>);

/// What was taken, how many calls were passed on for which reason, and the last failure.
#[pyfunction]
pub(crate) fn switch_records() -> (Vec<Row>, Vec<(&'static str, u64)>, Option<String>) {
    let rows = records::all_taken().into_iter().map(|(taken, calls, predicted)| {
        let predicted = predicted.map(|predicted| (predicted.here, predicted.torch));
        (taken.operator, taken.sizes, taken.precision, taken.kernel, calls, predicted)
    });
    (rows.collect(), records::all_passed_on(), records::last_failure())
}

/// Counts from zero again.
#[pyfunction]
pub(crate) fn switch_reset() {
    records::reset();
}
