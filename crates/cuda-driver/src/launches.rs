//! The kernels that have been launched and not yet waited for. A kernel's fault shows only in a later call, which loses the context:
//! then the error names these kernels, one of which is to blame.

use std::sync::Arc;

use cust::sys::CUstream;

/// How many pairs of a kernel and a stream are told apart. Other libraries may make streams without end, and wait for them where
/// nobody here sees it.
const MOST_PAIRS: usize = 64;

/// What has been launched.
#[derive(Debug, Default)]
pub(crate) struct Launches {
    /// The number of launches so far.
    count: u64,
    /// The kernels that have not been waited for.
    unfinished: Vec<Launched>,
}

/// A kernel that may still run. There is one of these for however many launches.
#[derive(Debug)]
struct Launched {
    kernel: Arc<str>,
    /// On which stream; `None` stands for several that are not told apart.
    stream: Option<CUstream>,
    /// Which launch was its last.
    last: u64,
}

// SAFETY: the stream is compared with others, and nothing else is done with it.
unsafe impl Send for Launched {}

impl Launches {
    /// The number of launches so far.
    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    /// Notes a launch of a kernel on a stream.
    pub(crate) fn add(&mut self, kernel: &Arc<str>, stream: CUstream) {
        self.count += 1;
        let is_full = self.unfinished.len() >= MOST_PAIRS;
        let of_kernel = || |launched: &&mut Launched| Arc::ptr_eq(&launched.kernel, kernel);
        let same = self
            .unfinished
            .iter_mut()
            .filter(of_kernel())
            .find(|launched| launched.stream.is_none_or(|other| other == stream));
        if let Some(again) = same {
            again.last = self.count;
        } else if let Some(elsewhere) = self.unfinished.iter_mut().find(of_kernel()).filter(|_| is_full) {
            *elsewhere = Launched { kernel: kernel.clone(), stream: None, last: self.count };
        } else {
            self.unfinished.push(Launched { kernel: kernel.clone(), stream: Some(stream), last: self.count });
        }
    }

    /// Notes that the first `count` launches, as far as they were on this stream, have finished.
    pub(crate) fn have_finished(&mut self, stream: CUstream, count: u64) {
        self.unfinished.retain(|launched| launched.stream != Some(stream) || launched.last > count);
    }

    /// The names of the kernels that may still run.
    pub(crate) fn unfinished(&self) -> Vec<String> {
        let mut names: Vec<String> = Vec::new();
        for Launched { kernel, .. } in &self.unfinished {
            if !names.iter().any(|name| **name == **kernel) {
                names.push(kernel.to_string());
            }
        }
        names
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stream(number: usize) -> CUstream {
        std::ptr::without_provenance_mut(16 * number)
    }

    #[test]
    fn what_has_been_waited_for_is_not_to_blame() {
        let (a, b): (Arc<str>, Arc<str>) = ("a".into(), "b".into());
        let mut launches = Launches::default();
        launches.add(&a, stream(1));
        launches.add(&b, stream(2));
        launches.add(&a, stream(2));
        let count = launches.count();
        launches.add(&b, stream(1));
        assert_eq!(launches.unfinished(), ["a", "b"]);
        launches.have_finished(stream(2), count);
        assert_eq!(launches.unfinished(), ["a", "b"], "on the other stream");
        launches.have_finished(stream(1), count);
        assert_eq!(launches.unfinished(), ["b"], "launched since");
        launches.have_finished(stream(1), launches.count());
        assert!(launches.unfinished().is_empty());
    }

    #[test]
    fn streams_without_end_take_no_memory_without_end() {
        let (a, b): (Arc<str>, Arc<str>) = ("a".into(), "b".into());
        let mut launches = Launches::default();
        for number in 0..10 * MOST_PAIRS {
            launches.add(&a, stream(number));
        }
        launches.add(&b, stream(1));
        assert_eq!((launches.unfinished.len(), launches.count()), (MOST_PAIRS + 1, 10 * MOST_PAIRS as u64 + 1));
        for number in 0..10 * MOST_PAIRS {
            launches.have_finished(stream(number), launches.count());
        }
        assert_eq!(launches.unfinished(), ["a"], "on streams that are not told apart");
    }
}
