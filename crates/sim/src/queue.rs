//! The event queue: a heap with one key per CPU.
//!
//! A key is `time << 12 | cpu`, so that keys are unique, equal times go to the lower CPU number, and comparing is one
//! instruction. A node has four children, so that the heap of 1,024 CPUs is five levels high. Each CPU's place is known:
//! a change moves its key from there, mostly by a level or two, since a CPU that gives way in the kernel comes back soon.

use contend_platform::{CpuId, NEVER, Time};
use std::cell::Cell;

/// Bits of a key that hold the CPU number.
const CPU_BITS: u32 = 12;
/// The latest time a key can hold, in ns (about 52 days).
pub const TIME_MAX: Time = (1 << (64 - CPU_BITS)) - 2;
/// Later than any key of a CPU that has something to do.
pub const NO_KEY: u64 = u64::MAX;

/// Make a key. That of a CPU which has nothing to do ([`NEVER`]) comes after all others.
#[inline]
pub fn key(time: Time, cpu: CpuId) -> u64 {
    assert!(time < TIME_MAX || time == NEVER, "virtual time beyond {TIME_MAX} ns");
    time << CPU_BITS | u64::from(cpu.0)
}

/// Make a key of a time below [`TIME_MAX`] or a little above, where the caller knows that: without the check.
#[inline]
pub fn key_within(time: Time, cpu: CpuId) -> u64 {
    debug_assert!(time <= TIME_MAX);
    time << CPU_BITS | u64::from(cpu.0)
}

/// The time in a key.
#[inline]
pub fn key_time(key: u64) -> Time {
    let time = key >> CPU_BITS;
    if time == NEVER >> CPU_BITS { NEVER } else { time }
}

/// The CPU in a key.
#[inline]
pub fn key_cpu(key: u64) -> CpuId {
    CpuId((key & ((1 << CPU_BITS) - 1)) as u16)
}

/// Where the root stands; the places before it stay empty.
const ROOT: usize = 3;

/// Four keys with one parent.
type Family = [Cell<u64>; 4];

/// The heap. The children of the node at place `i` stand at `4 * (i - 2)` and the three places after it (as one family), its
/// parent at `i / 4 + 2`.
#[derive(Debug)]
pub struct Queue {
    /// Whole families: what no CPU fills holds [`NO_KEY`].
    keys: Box<[Family]>,
    /// Place by CPU.
    places: Box<[Cell<u16>; 1 << CPU_BITS]>,
}

impl Queue {
    /// A queue for `cpus` CPUs, none of which has anything to do.
    pub fn new(cpus: usize) -> Self {
        assert!((1..=CpuId::MAX_CPUS).contains(&cpus));
        let keys = (0..(ROOT + cpus).div_ceil(4)).map(|_| [const { Cell::new(NO_KEY) }; 4]).collect();
        let queue = Queue { keys, places: Box::new([const { Cell::new(0) }; 1 << CPU_BITS]) };
        for cpu in 0..cpus {
            queue.put(ROOT + cpu, key(NEVER, CpuId(cpu as u16)));
        }
        queue
    }

    /// The earliest key.
    #[inline]
    pub fn first(&self) -> u64 {
        self.keys[ROOT / 4][ROOT % 4].get()
    }

    /// The earliest key of all CPUs but this one.
    #[inline]
    pub fn others(&self, cpu: CpuId) -> u64 {
        if self.place(cpu) != ROOT {
            return self.first();
        }
        self.children(ROOT).map_or(NO_KEY, |children| earliest(children).0)
    }

    /// This CPU's key.
    #[inline]
    pub fn get(&self, cpu: CpuId) -> u64 {
        let place = self.place(cpu);
        self.keys[place / 4][place % 4].get()
    }

    /// Set this CPU's key, which names it.
    #[inline(always)]
    pub fn set(&self, cpu: CpuId, key: u64) {
        debug_assert_eq!(key_cpu(key), cpu);
        let place = self.place(cpu);
        if place == ROOT || key > self.get(cpu) {
            self.sink(place, key);
        } else {
            self.rise(place, key);
        }
    }

    #[inline]
    fn place(&self, cpu: CpuId) -> usize {
        // The mask spares a check of bounds; CPU numbers are below it.
        usize::from(self.places[cpu.index() % (1 << CPU_BITS)].get())
    }

    #[inline(always)]
    fn sink(&self, mut place: usize, key: u64) {
        while let Some(children) = self.children(place) {
            let (least, i) = earliest(children);
            if key <= least {
                break;
            }
            self.put(place, least);
            place = 4 * (place - 2) + i;
        }
        self.put(place, key);
    }

    #[inline(always)]
    fn rise(&self, mut place: usize, key: u64) {
        while place != ROOT {
            let parent = place / 4 + 2;
            let above = self.keys[parent / 4][parent % 4].get();
            if above <= key {
                break;
            }
            self.put(place, above);
            place = parent;
        }
        self.put(place, key);
    }

    #[inline]
    fn children(&self, place: usize) -> Option<&Family> {
        self.keys.get(place - 2)
    }

    #[inline]
    fn put(&self, place: usize, key: u64) {
        self.keys[place / 4][place % 4].set(key);
        self.places[key_cpu(key).index()].set(place as u16);
    }
}

/// The least of four keys and where it stands.
#[inline]
fn earliest(family: &Family) -> (u64, usize) {
    let [a, b, c, d] = [family[0].get(), family[1].get(), family[2].get(), family[3].get()];
    let (ab, i) = if b < a { (b, 1) } else { (a, 0) };
    let (cd, j) = if d < c { (d, 3) } else { (c, 2) };
    if cd < ab { (cd, j) } else { (ab, i) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// The first is always the minimum of the keys.
        #[test]
        fn first_is_minimum(cpus in 1usize..200, ops in prop::collection::vec((0usize..200, 0u64..1_000_000), 1..300)) {
            let queue = Queue::new(cpus);
            let mut plain: Vec<u64> = (0..cpus).map(|c| key(NEVER, CpuId(c as u16))).collect();
            for (cpu, t) in ops {
                let cpu = CpuId((cpu % cpus) as u16);
                let k = key(if t % 5 == 0 { NEVER } else { t }, cpu);
                queue.set(cpu, k);
                plain[cpu.index()] = k;
                prop_assert_eq!(queue.first(), *plain.iter().min().expect("at least one CPU"));
                prop_assert_eq!(queue.get(cpu), k);
                let others = plain.iter().enumerate().filter(|(c, _)| *c != cpu.index()).map(|(_, k)| *k).min();
                prop_assert_eq!(queue.others(cpu), others.unwrap_or(NO_KEY));
                (0..cpus).for_each(|c| assert_eq!(queue.get(CpuId(c as u16)), plain[c]));
            }
        }
    }

    #[test]
    fn equal_times_go_to_the_lower_cpu() {
        let queue = Queue::new(8);
        queue.set(CpuId(5), key(7, CpuId(5)));
        queue.set(CpuId(2), key(7, CpuId(2)));
        assert_eq!(key_cpu(queue.first()), CpuId(2));
        assert_eq!(key_time(queue.first()), 7);
    }
}
