//! The event queue: a tournament tree with one key per CPU.
//!
//! A key is `time << 12 | cpu`, so that equal times go to the lower CPU number and comparing is one instruction. The
//! root is the earliest key of all. Changing a key replays the matches on its path to the root and stops early when a
//! match keeps its winner, so that a typical change touches a few nodes however many CPUs there are.

use contend_platform::{CpuId, NEVER, Time};

/// Bits of a key that hold the CPU number.
const CPU_BITS: u32 = 12;
/// The latest time a key can hold, in ns (about 52 days).
pub const TIME_MAX: Time = (1 << (64 - CPU_BITS)) - 2;
/// The key of a CPU that has nothing to do.
pub const NO_KEY: u64 = u64::MAX;

/// Make a key.
#[inline]
pub fn key(time: Time, cpu: CpuId) -> u64 {
    if time >= TIME_MAX {
        assert!(time == NEVER, "virtual time beyond {TIME_MAX} ns");
        return NO_KEY;
    }
    time << CPU_BITS | u64::from(cpu.0)
}

/// The time in a key.
#[inline]
pub fn key_time(key: u64) -> Time {
    if key == NO_KEY { NEVER } else { key >> CPU_BITS }
}

/// The CPU in a key.
#[inline]
pub fn key_cpu(key: u64) -> CpuId {
    CpuId((key & ((1 << CPU_BITS) - 1)) as u16)
}

/// The tree: `nodes[1]` is the root, leaves start at `leaves`.
#[derive(Debug)]
pub struct Tournament {
    nodes: Vec<u64>,
    leaves: usize,
}

impl Tournament {
    /// A tree for `cpus` CPUs, none of which has anything to do.
    pub fn new(cpus: usize) -> Self {
        assert!((1..=CpuId::MAX_CPUS).contains(&cpus));
        let leaves = cpus.next_power_of_two().max(2);
        Tournament { nodes: vec![NO_KEY; 2 * leaves], leaves }
    }

    /// The earliest key.
    #[inline]
    pub fn root(&self) -> u64 {
        self.nodes[1]
    }

    /// The earliest key of all CPUs but this one.
    #[inline]
    pub fn others(&self, cpu: CpuId) -> u64 {
        let mut i = self.leaves + cpu.index();
        let mut winner = NO_KEY;
        while i > 1 {
            winner = winner.min(self.nodes[i ^ 1]);
            i >>= 1;
        }
        winner
    }

    /// This CPU's key.
    #[inline]
    pub fn get(&self, cpu: CpuId) -> u64 {
        self.nodes[self.leaves + cpu.index()]
    }

    /// Set this CPU's key.
    #[inline]
    pub fn set(&mut self, cpu: CpuId, key: u64) {
        let mut i = self.leaves + cpu.index();
        if self.nodes[i] == key {
            return;
        }
        self.nodes[i] = key;
        let mut winner = key;
        while i > 1 {
            winner = winner.min(self.nodes[i ^ 1]);
            i >>= 1;
            if self.nodes[i] == winner {
                return;
            }
            self.nodes[i] = winner;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// The root is always the minimum of the keys.
        #[test]
        fn root_is_minimum(cpus in 1usize..200, ops in prop::collection::vec((0usize..200, 0u64..1_000_000), 1..300)) {
            let mut tree = Tournament::new(cpus);
            let mut plain = vec![NO_KEY; cpus];
            for (cpu, t) in ops {
                let cpu = CpuId((cpu % cpus) as u16);
                let k = if t % 5 == 0 { NO_KEY } else { key(t, cpu) };
                tree.set(cpu, k);
                plain[cpu.index()] = k;
                prop_assert_eq!(tree.root(), *plain.iter().min().expect("at least one CPU"));
                prop_assert_eq!(tree.get(cpu), k);
                let others = plain.iter().enumerate().filter(|(c, _)| *c != cpu.index()).map(|(_, k)| *k).min();
                prop_assert_eq!(tree.others(cpu), others.unwrap_or(NO_KEY));
            }
        }
    }

    #[test]
    fn equal_times_go_to_the_lower_cpu() {
        let mut tree = Tournament::new(8);
        tree.set(CpuId(5), key(7, CpuId(5)));
        tree.set(CpuId(2), key(7, CpuId(2)));
        assert_eq!(key_cpu(tree.root()), CpuId(2));
        assert_eq!(key_time(tree.root()), 7);
    }
}
