//! Launches that end early, because nobody waits for them any more.

use core::cell::RefCell;
use core::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::thread_local;

/// Asks launches to end: see [`Stop::listen`]. A handle: clones are of the same one.
#[derive(Clone, Debug, Default)]
pub struct Stop(Arc<AtomicBool>);

thread_local! {
    /// What launches of this thread listen to.
    static LISTENED_TO: RefCell<Option<Stop>> = const { RefCell::new(None) };
}

impl Stop {
    /// One that has not asked yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Asks. Launches that listen end with [`LaunchError::Stopped`](super::LaunchError::Stopped), those that run as soon as the
    /// blocks have ended in which they are.
    pub fn ask(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether it has asked.
    pub fn is_asked(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Has everything listen that `body` launches on this thread, on whatever executor, and to nothing else.
    pub fn listen<R>(&self, body: impl FnOnce() -> R) -> R {
        /// What was listened to before is so again, also after a panic.
        struct Before(Option<Stop>);
        impl Drop for Before {
            fn drop(&mut self) {
                LISTENED_TO.replace(self.0.take());
            }
        }
        let _before = Before(LISTENED_TO.replace(Some(self.clone())));
        body()
    }

    /// What launches of this thread listen to.
    pub(super) fn listened_to() -> Option<Self> {
        LISTENED_TO.with_borrow(Clone::clone)
    }
}
