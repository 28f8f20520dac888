//! An ordered queue that is an array while it is short, as run queues mostly are, and stays fast when it is not.
//!
//! The least [`FRONT`] elements or fewer stand in a sorted array, the others in a tree; every element of the array is
//! less than every one of the tree, and the tree is empty unless the array is not.

use std::collections::BTreeSet;

/// Most elements in the array: about where moving half of it costs as much as a walk through a tree.
const FRONT: usize = 32;

/// A set of distinct elements in ascending order.
#[derive(Clone, Debug)]
pub(super) struct Timeline<T> {
    front: Vec<T>,
    rest: BTreeSet<T>,
}

impl<T> Default for Timeline<T> {
    fn default() -> Self {
        Timeline { front: Vec::new(), rest: BTreeSet::new() }
    }
}

impl<T: Ord + Copy, const N: usize> From<[T; N]> for Timeline<T> {
    fn from(elements: [T; N]) -> Self {
        let mut timeline = Timeline::default();
        elements.into_iter().for_each(|t| timeline.insert(t));
        timeline
    }
}

impl<T: Ord + Copy> Timeline<T> {
    /// Add an element that is not there.
    pub fn insert(&mut self, new: T) {
        let at = self.front.iter().position(|t| new < *t).unwrap_or(self.front.len());
        if at == FRONT || (at == self.front.len() && !self.rest.is_empty()) {
            self.rest.insert(new);
            return;
        }
        if self.front.len() == FRONT {
            self.rest.extend(self.front.pop());
        }
        self.front.insert(at, new);
    }

    /// Remove an element; was it there?
    pub fn remove(&mut self, old: &T) -> bool {
        let Some(at) = self.front.iter().position(|t| t == old) else { return self.rest.remove(old) };
        self.front.remove(at);
        if self.front.is_empty() && !self.rest.is_empty() {
            self.front.extend(std::iter::from_fn(|| self.rest.pop_first()).take(FRONT / 2));
        }
        true
    }

    /// The least element.
    #[inline]
    pub fn first(&self) -> Option<&T> {
        self.front.first()
    }

    /// Is it there?
    pub fn contains(&self, t: &T) -> bool {
        self.front.contains(t) || self.rest.contains(t)
    }

    /// Has it no elements?
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.front.is_empty()
    }

    /// The elements in ascending order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &T> {
        self.front.iter().chain(&self.rest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_timeline_is_a_sorted_set(ops in prop::collection::vec((0u16..120, any::<bool>()), 0..600)) {
            let (mut timeline, mut plain) = (Timeline::default(), BTreeSet::new());
            for (n, add) in ops {
                if add && plain.insert(n) {
                    timeline.insert(n);
                } else if !add {
                    prop_assert_eq!(timeline.remove(&n), plain.remove(&n));
                }
                prop_assert_eq!(timeline.first(), plain.first());
                prop_assert_eq!(timeline.is_empty(), plain.is_empty());
                prop_assert!(timeline.contains(&n) == plain.contains(&n));
                prop_assert!(timeline.iter().eq(&plain));
                prop_assert!(timeline.iter().rev().eq(plain.iter().rev()));
            }
        }
    }
}
