//! The order of what runs on the CPU executor: at most one operation at a time uses memory that one of them writes.
//!
//! An operation there runs on the thread that starts it, and has finished when it returns. So the order of a program is kept by itself, but
//! for those of several threads: a thread claims the memory that its operation uses, and waits until nobody else has a claim against it.

use std::fmt;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};

use crate::Error;
use crate::order::Use;

/// What is being used on the executor.
#[derive(Debug, Default)]
pub(crate) struct Claims {
    held: Mutex<Held>,
    one_has_ended: Condvar,
}

#[derive(Debug, Default)]
struct Held {
    claims: Vec<(u64, ThreadId, Vec<Use>)>,
    count: u64,
}

/// The right to use some memory, until it is dropped.
#[derive(Debug)]
#[must_use = "the claim ends when this is dropped"]
pub(crate) struct Claim<'a> {
    claims: &'a Claims,
    number: u64,
}

impl Claims {
    /// Waits until no other thread's claim conflicts with these uses, and claims them.
    ///
    /// # Errors
    /// [`Error::InUse`] if the claim that conflicts is this thread's: it would wait for itself.
    pub(crate) fn claim(&self, what: fmt::Arguments<'_>, uses: Vec<Use>) -> Result<Claim<'_>, Error> {
        let this_thread = thread::current().id();
        let mut held = self.lock();
        loop {
            let against = |(_, _, others): &&(u64, ThreadId, Vec<Use>)| {
                others.iter().any(|other| uses.iter().any(|use_| use_.conflicts_with(other)))
            };
            match held.claims.iter().filter(against).max_by_key(|(_, thread, _)| *thread == this_thread) {
                None => break,
                Some((_, thread, _)) if *thread == this_thread => return Err(Error::InUse { what: what.to_string() }),
                Some(_) => held = self.one_has_ended.wait(held).unwrap_or_else(PoisonError::into_inner),
            }
        }
        held.count += 1;
        let number = held.count;
        held.claims.push((number, this_thread, uses));
        Ok(Claim { claims: self, number })
    }

    /// No code that holds the lock leaves the list half changed, so a poisoned one is in order.
    fn lock(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        self.claims.lock().claims.retain(|(number, ..)| *number != self.number);
        self.claims.one_has_ended.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Duration;

    use super::*;

    #[test]
    fn what_conflicts_waits_and_the_rest_does_not() {
        let claims = Claims::default();
        let uses = |address, is_written| vec![Use::new(address, 10, is_written)];
        let read = claims.claim(format_args!("a"), uses(100, false)).unwrap();
        let also_read = claims.claim(format_args!("b"), uses(105, false)).unwrap();
        let elsewhere = claims.claim(format_args!("c"), uses(115, true)).unwrap();
        let has_written = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                let _written = claims.claim(format_args!("d"), uses(109, true)).unwrap();
                has_written.store(true, Ordering::SeqCst);
            });
            for claim in [read, also_read, elsewhere] {
                thread::sleep(Duration::from_millis(20));
                assert!(!has_written.load(Ordering::SeqCst));
                drop(claim);
            }
        });
        assert!(has_written.load(Ordering::SeqCst));
    }

    #[test]
    fn nobody_waits_for_oneself() {
        let claims = Claims::default();
        let outer = claims.claim(format_args!("a"), vec![Use::new(100, 10, true)]).unwrap();
        let error = claims.claim(format_args!("kernel `b`"), vec![Use::new(100, 1, false)]).unwrap_err();
        assert!(
            error.to_string().starts_with("kernel `b` uses memory that a launch of this thread is using"),
            "{error}"
        );
        drop(outer);
        claims.claim(format_args!("b"), vec![Use::new(100, 1, false)]).map(drop).unwrap();
    }
}
