//! References on all cores of the machine. Whatever is computed here does not depend on how many there are: each value is computed
//! by itself, and values stand in the order of their numbers.

use rayon::prelude::*;

/// What `one` makes of each number below `count`, in order.
pub fn each<T: Send>(count: usize, one: impl Fn(usize) -> T + Send + Sync) -> Vec<T> {
    (0..count).into_par_iter().map(one).collect()
}

/// The values that `one` makes of each number below `count`, those of 0 first.
pub fn each_row<T: Send>(count: usize, one: impl Fn(usize) -> Vec<T> + Send + Sync) -> Vec<T> {
    (0..count).into_par_iter().flat_map_iter(one).collect()
}

/// Puts values into order. Which of equal ones comes first is left open.
pub fn sort<T: Ord + Send>(values: &mut [T]) {
    values.par_sort_unstable();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_threads_makes_no_difference() {
        let all = || {
            let mut sorted = each(5000, |i| i as u64 * 0x9E37_79B9 % 5003);
            sort(&mut sorted);
            (each(1000, |i| (i as f64).sqrt()), each_row(100, |i| vec![i; i % 7]), sorted)
        };
        let of_threads = |count| rayon::ThreadPoolBuilder::new().num_threads(count).build().unwrap().install(all);
        let expected = of_threads(1);
        assert_eq!(expected.1[..5], [1, 2, 2, 3, 3]);
        assert!(expected.2.is_sorted());
        for count in [2, 3, 8] {
            assert_eq!(of_threads(count), expected, "{count} threads");
        }
    }
}
