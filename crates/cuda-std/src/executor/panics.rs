//! Panics in kernels become reports, and print nothing.

use core::any::Any;
use core::cell::RefCell;
use std::borrow::Cow;
use std::string::{String, ToString};
use std::sync::Once;
use std::vec::Vec;
use std::{panic, thread_local};

use super::context::try_current;
use super::fault::SourceLine;

thread_local! {
    /// Where the last panic of a kernel on this thread came from, and what had called that. Only the hook is told.
    static LOCATION: RefCell<Option<(SourceLine, Vec<SourceLine>)>> = const { RefCell::new(None) };
}

/// Makes the panic hook keep silent about kernels. Everything else goes to the hook that was there before.
pub(super) fn install_hook() {
    static INSTALL: Once = Once::new();
    INSTALL.call_once(|| {
        let previous = panic::take_hook();
        panic::set_hook(std::boxed::Box::new(move |info| {
            let Some(context) = try_current() else { return previous(info) };
            let line = |location: &panic::Location<'_>| SourceLine {
                file: Cow::Owned(location.file().to_string()),
                line: location.line(),
            };
            LOCATION.set(info.location().map(line).map(|line| (line.clone(), context.callers_of(Some(&line)))));
        }));
    });
}

/// The message of a kernel's panic, and its place if the hook saw it, with what had called that.
pub(super) fn take_report(payload: &(dyn Any + Send)) -> (String, Option<(SourceLine, Vec<SourceLine>)>) {
    let text = payload.downcast_ref::<&str>().map(|text| text.to_string());
    let message = text.or_else(|| payload.downcast_ref::<String>().cloned());
    (message.unwrap_or_else(|| "(not a text)".into()), LOCATION.take())
}
