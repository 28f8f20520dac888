//! Which node waits for which lock: the table by which an unlock finds the head of a queue that halts.
//!
//! A lock's word has room for the tail of its queue, not for the head. Whoever puts the head to sleep, or finds it asleep,
//! enters `lock -> node` here **before** the lock's word says that there is an entry; the unlock that reads so in the word takes
//! the entry out **before** the lock is free. So a lock has one entry at most, a node is in one entry at most, and a table
//! with as many entries as there are nodes is never full.
//!
//! Open addressing: an entry's search begins at the first place of the bucket that the key hashes to and goes on from bucket
//! to bucket. A bucket is a cache line of four entries. Entries are taken out by clearing their key; searches do not stop
//! at free entries, so no marks are needed for what was there.
//!
//! ```text
//! entry     (key, node); key 0: free
//! insert    (0, *) -> (k, *) -> (k, n)      acquire: the last owner's look at the node is over
//! remove    (k, n) -> (0, n)                release
//! ```
//!
//! **Keys.** Linux takes the lock's address. Here nothing may depend on addresses, so that a run repeats exactly: the locks
//! of a world are numbered by the pool they are made with. Threads, whose locks are made by anybody without a pool, take the
//! address ([`PvNodes::key`](crate::pv::PvNodes::key)).

use crate::nodes::{NODES_PER_CPU, NodeId};
use alloc::vec::Vec;
use contend_platform::{LockEvent, Ordering, Padded, Platform};

/// Entries on a line: 64 bytes, two words each.
const ENTRIES_PER_BUCKET: usize = 4;

struct Entry<P: Platform> {
    key: P::Word,
    node: P::Word,
}

type Bucket<P> = [Entry<P>; ENTRIES_PER_BUCKET];

/// The table.
pub struct LockHash<P: Platform> {
    /// A power of two.
    buckets: Vec<Padded<Bucket<P>>>,
}

impl<P: Platform> LockHash<P> {
    /// For CPUs `0..nr_cpus`: at least one entry for each of their nodes.
    pub fn new(p: &P, nr_cpus: usize) -> Self {
        let entries = nr_cpus.max(1) * NODES_PER_CPU;
        let buckets = entries.div_ceil(ENTRIES_PER_BUCKET).next_power_of_two();
        let bucket = |_| {
            let line = p.line();
            Padded(core::array::from_fn(|_| Entry { key: p.word(line, 0), node: p.word(line, 0) }))
        };
        LockHash { buckets: (0..buckets).map(bucket).collect() }
    }

    /// All entries, the likely ones of `key` first.
    fn search(&self, key: u64) -> impl Iterator<Item = &Entry<P>> {
        assert_ne!(key, 0, "no lock has the key 0");
        let mask = self.buckets.len() - 1;
        // Multiplicative hashing (Knuth): the high bits of a product with 2^64 / the golden ratio depend on all of the key.
        let first = (key.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32) as usize;
        (0..=mask).flat_map(move |i| self.buckets[(first.wrapping_add(i)) & mask].iter())
    }

    /// Enter `key -> node`. False if the table is full, which cannot be if it has an entry for each node.
    pub fn insert(&self, p: &P, key: u64, node: NodeId) -> bool {
        for (looked, entry) in self.search(key).enumerate() {
            if p.compare_exchange(&entry.key, 0, key, Ordering::Acquire, Ordering::Relaxed).is_ok() {
                // Relaxed: published with the lock's word.
                p.store(&entry.node, node.link(), Ordering::Relaxed);
                let hops = looked / ENTRIES_PER_BUCKET;
                if hops > 0 {
                    p.lock_event(LockEvent::PvHashHops, hops as u64);
                }
                return true;
            }
        }
        false
    }

    /// Take the entry of `key` out, which is there; the caller has acquired it with the lock's word, and is the only one who
    /// looks for it.
    pub fn remove(&self, p: &P, key: u64) -> NodeId {
        // Relaxed: what is looked for was acquired, and what else a search meets does not matter.
        let entry = self.search(key).find(|entry| p.load(&entry.key, Ordering::Relaxed) == key);
        let entry = entry.unwrap_or_else(|| panic!("lock {key} is not in the hash"));
        let node = p.load(&entry.node, Ordering::Relaxed);
        // An exchange where a store would do: others try to exchange the key, and loom is exact for exchanges only.
        p.swap(&entry.key, 0, Ordering::Release);
        NodeId::from_link(node).expect("an entry has a node")
    }
}
