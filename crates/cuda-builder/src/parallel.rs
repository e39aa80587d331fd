//! Many pieces of work, as many at a time as there are processors.

use std::panic::resume_unwind;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// What `work` makes of each item, in their order.
pub(crate) fn map<T: Sync, R: Send>(items: &[T], work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let workers = thread::available_parallelism().map_or(1, usize::from).min(items.len());
    let mut results = thread::scope(|scope| {
        let take = || -> Vec<(usize, R)> {
            std::iter::from_fn(|| {
                let position = next.fetch_add(1, Ordering::Relaxed);
                Some((position, work(items.get(position)?)))
            })
            .collect()
        };
        let workers: Vec<_> = (0..workers).map(|_| scope.spawn(take)).collect();
        let results = workers.into_iter().map(|worker| worker.join().unwrap_or_else(|panic| resume_unwind(panic)));
        results.flatten().collect::<Vec<_>>()
    });
    results.sort_by_key(|(position, _)| *position);
    results.into_iter().map(|(_, result)| result).collect()
}

#[cfg(test)]
mod tests {
    #[test]
    fn results_are_in_the_order_of_the_items() {
        let items: Vec<u32> = (0..1000).collect();
        let doubled: Vec<u32> = items.iter().map(|item| 2 * item).collect();
        assert_eq!(super::map(&items, |item| 2 * item), doubled);
        assert!(super::map(&[0u32; 0], |item| 2 * item).is_empty());
    }
}
