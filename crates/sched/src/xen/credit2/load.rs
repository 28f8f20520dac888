//! Load averages (mechanisms E.2): how many vCPUs run or wait, over a window of about a second.
//!
//! Time is counted in units of 2^10 ns. With W units in the window and P the number that stands for one vCPU, after d units at
//! load l an average a becomes `a + d*l*P/W - d*a/W`, each term rounded down; after more than a window, `l*P`. That is the first-order
//! decay `a' = a + (lP - a) d/W`, in integers.

use contend_platform::Time;

/// A unit of time is 2 to this power, in ns.
pub const UNIT_SHIFT: u32 = 10;

/// Window and precision, as powers of two.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shifts {
    /// Units of time in the window.
    pub window: u32,
    /// What stands for one vCPU.
    pub precision: u32,
}

impl Shifts {
    /// What `vcpus` running vCPUs amount to.
    pub fn full(self, vcpus: usize) -> i64 {
        (vcpus as i64) << self.precision
    }

    /// The average `avg` after `units` of time at `load`.
    pub fn decayed(self, avg: i64, units: i64, load: i64) -> i64 {
        if units > 1 << self.window {
            return load << self.precision;
        }
        avg + ((units * (load << self.precision)) >> self.window) - ((units * avg) >> self.window)
    }
}

/// A load and its average.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Load {
    /// vCPUs that run or wait now.
    pub now: i64,
    /// Average; 1 is 2 to the power of the precision.
    pub avg: i64,
    /// In units of time: the average is of then.
    pub last: i64,
}

impl Load {
    /// Units that have passed; from now on the averages are of `now`, also where that is before they were of: nothing has passed
    /// then, and the time between counts once more later (as recorded on hosts whose pCPUs' clocks differ:
    /// `docs/xen-decisions.md`).
    pub fn elapse(&mut self, now: Time) -> i64 {
        let now = (now >> UNIT_SHIFT) as i64;
        (now - std::mem::replace(&mut self.last, now)).max(0)
    }
    /// Bring the average up to date, then let the load change.
    pub fn update(&mut self, shifts: Shifts, now: Time, change: i64) {
        let units = self.elapse(now);
        self.avg = shifts.decayed(self.avg, units, self.now);
        self.now += change;
    }
}
