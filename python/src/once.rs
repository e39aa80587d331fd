//! What is made of Python's objects once for all. A forked child can wait for none of it.
//!
//! ```text
//!  thread of the parent              another thread of it, which forks     the child
//!  interpreter │ make ── set │       │ fork │                              │ get: made, or not yet: then it makes its own
//!              └─ held ──────┘       └ held ┘
//! ```
//!
//! Whoever forks holds the interpreter. `PyOnceLock`, and with it `intern!`, gives the interpreter up between claiming its cell and
//! filling it: a child that is forked there finds a claimed cell, and waits for a thread that it does not have. Here, nothing is claimed
//! while the value is made; two threads may both make one, and the first stays.

use std::convert::Infallible;
use std::sync::OnceLock;

use pyo3::prelude::*;
use pyo3::types::{PyString, PyType};

/// A place for one value.
pub(crate) struct Once<T>(OnceLock<T>);

impl<T> Once<T> {
    pub(crate) const fn new() -> Self {
        Self(OnceLock::new())
    }

    /// The value, if there is one.
    pub(crate) fn get(&self, _holds_interpreter: Python<'_>) -> Option<&T> {
        self.0.get()
    }

    /// The value, which this makes if there is none. To make it may give the interpreter up in between.
    pub(crate) fn get_or_try_init<E>(
        &self,
        _holds_interpreter: Python<'_>,
        make: impl FnOnce() -> Result<T, E>,
    ) -> Result<&T, E> {
        if let Some(value) = self.0.get() {
            return Ok(value);
        }
        let made = make()?;
        // The interpreter is held from here on: no fork comes between the claim and the value.
        Ok(self.0.get_or_init(|| made))
    }
}

impl Once<Py<PyType>> {
    /// A class of a module.
    pub(crate) fn class<'py>(&self, py: Python<'py>, module: &str, name: &str) -> PyResult<&Bound<'py, PyType>> {
        let class = || Ok::<_, PyErr>(py.import(module)?.getattr(name)?.cast_into::<PyType>()?.unbind());
        Ok(self.get_or_try_init(py, class)?.bind(py))
    }
}

impl Once<Py<PyString>> {
    /// A name for attributes: one object for all uses of it, which Python compares by its address.
    pub(crate) fn name<'py>(&self, py: Python<'py>, name: &str) -> &Bound<'py, PyString> {
        let Ok(name) = self.get_or_try_init(py, || Ok::<_, Infallible>(PyString::intern(py, name).unbind()));
        name.bind(py)
    }
}

/// The name of an attribute or a method, as an object of Python that is made once.
macro_rules! name {
    ($py:expr, $name:literal) => {{
        static NAME: crate::once::Once<pyo3::Py<pyo3::types::PyString>> = crate::once::Once::new();
        NAME.name($py, $name)
    }};
}
pub(crate) use name;
