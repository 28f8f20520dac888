//! The hypervisor's clock, as far as records tell it.
//!
//! Each pCPU's clock is kept apart, as its distance from the time stamps; the distance between two of them is found when
//! a duration that began on one ends on the other. Clocks are set anew from time to time (once a second), and a pCPU of
//! an emulation may stand still between reading its clock and writing a record; a distance that has just changed is not
//! believed until it has been found again.

/// How far a computed duration is off at most, in ns (`docs/xen-decisions.md`).
pub const SLACK: i64 = 100_000;

/// A distance is believed for as long, in ns: clocks are set anew.
const AGE_MAX: i64 = 1_000_000_000;

/// A clock has moved against the time stamps, from here on, in ns.
const JUMP: i64 = 50_000;

/// A time by the clock of a pCPU, in ns.
#[derive(Clone, Copy, Debug)]
pub struct Stamp {
    pub cpu: usize,
    pub ns: i64,
}

/// All pCPUs' clocks.
#[derive(Debug)]
pub struct Clocks {
    /// By pCPU: the clock less the time stamps.
    off: Vec<i64>,
    /// By two pCPUs: the second's clock less the first's, and when that was found.
    apart: Vec<Vec<Option<(i64, i64)>>>,
}

impl Clocks {
    pub fn new(cpus: usize) -> Self {
        Self { off: vec![0; cpus], apart: vec![vec![None; cpus]; cpus] }
    }

    /// The clock of `cpu` at a time stamp.
    pub fn now(&self, cpu: usize, ns: i64) -> i64 {
        ns + self.off[cpu]
    }

    /// At the time stamp `ns` the clock of `cpu` stood at `now`.
    pub fn set(&mut self, cpu: usize, ns: i64, now: i64) {
        let off = now - ns;
        if (off - self.off[cpu]).abs() > JUMP {
            for other in 0..self.off.len() {
                (self.apart[cpu][other], self.apart[other][cpu]) = (None, None);
            }
        }
        self.off[cpu] = off;
    }

    /// `ago` ns ago by the clock of `cpu`, which stands at `now`, it was `then` by that of another.
    pub fn link(&mut self, cpu: usize, now: i64, then: Stamp, ago: i64) {
        if cpu != then.cpu {
            let apart = then.ns + ago - now;
            self.apart[cpu][then.cpu] = Some((apart, now));
            self.apart[then.cpu][cpu] = Some((-apart, then.ns + ago));
        }
    }

    /// How long ago `then` was, by the clock of `cpu`, which stands at `now`. `None`: not known.
    pub fn since(&self, cpu: usize, now: i64, then: Stamp) -> Option<i64> {
        if cpu == then.cpu {
            return Some(now - then.ns);
        }
        let (apart, at) = self.apart[cpu][then.cpu]?;
        (now - at < AGE_MAX).then_some(now + apart - then.ns)
    }
}
