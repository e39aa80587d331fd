//! Lists that a launch makes of its arguments: short ones, for which no memory is asked of the heap.

/// A list that is on the heap only with more than `N` elements.
pub(crate) struct ShortList<T, const N: usize> {
    /// The elements, while there are so few.
    few: [T; N],
    len: usize,
    /// All elements, once there are more.
    many: Vec<T>,
}

impl<T: Copy, const N: usize> ShortList<T, N> {
    /// An empty list; `filler` is what is where no element is yet.
    pub(crate) fn new(filler: T) -> Self {
        Self { few: [filler; N], len: 0, many: Vec::new() }
    }

    pub(crate) fn push(&mut self, element: T) {
        if let Some(place) = self.few.get_mut(self.len) {
            *place = element;
        } else {
            if self.len == N {
                self.many.extend_from_slice(&self.few);
            }
            self.many.push(element);
        }
        self.len += 1;
    }

    pub(crate) fn as_slice(&self) -> &[T] {
        if self.len <= N { &self.few[..self.len] } else { &self.many }
    }

    pub(crate) fn as_mut_slice(&mut self) -> &mut [T] {
        if self.len <= N { &mut self.few[..self.len] } else { &mut self.many }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_number_of_elements_stays_in_order() {
        let mut list = ShortList::<usize, 3>::new(77);
        for count in 0..10 {
            assert_eq!(list.as_slice(), (0..count).collect::<Vec<_>>());
            assert_eq!(list.many.capacity() > 0, count > 3, "{count}");
            list.push(count);
        }
        list.as_mut_slice()[9] = 0;
        assert_eq!(list.as_slice().last(), Some(&0));
    }
}
