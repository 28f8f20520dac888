//! Tasks that one thing connects: private words of two processes may stand at the same address, and what is one is told by who wakes whom.

use std::hash::Hash;

use rustc_hash::FxHashMap;

/// Sets of keys, each known by its least.
pub(super) struct Same<K>(FxHashMap<K, K>);

impl<K> Default for Same<K> {
    fn default() -> Self {
        Same(FxHashMap::default())
    }
}

impl<K: Copy + Ord + Hash> Same<K> {
    /// The least of those that are connected with this one.
    pub fn root(&self, mut of: K) -> K {
        while let Some(&next) = self.0.get(&of) {
            of = next;
        }
        of
    }

    /// Connect two.
    pub fn join(&mut self, a: K, b: K) {
        let (a, b) = (self.root(a), self.root(b));
        if a != b {
            self.0.insert(a.max(b), a.min(b));
        }
    }
}
