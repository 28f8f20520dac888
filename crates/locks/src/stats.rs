//! What the slow paths of locks did, counted by the names that Linux gives its counters.
//!
//! The counts are those of all locks of OS threads in the process. Each thread counts on lines of its own, so counting does not
//! add contention to what it counts; it does cost a few ns an event. Locks of other worlds (`SpinMutex`, simulators) are not
//! counted here.
//!
//! ```
//! use contend_locks::stats::{self, LockEvent};
//!
//! let before = stats::snapshot();
//! // ... the part of the program that is looked at ...
//! let counts = stats::snapshot().since(&before);
//! for (name, count) in counts.iter().filter(|&(_, count)| count != 0) {
//!     println!("{name} {count}");
//! }
//! assert_eq!(counts.get(LockEvent::LockNoNode), 0);
//! ```

pub use contend_platform::LockEvent;

use contend_platform::native::lock_events;
use core::fmt;

/// All counters at one moment. `Display` writes a line `name value` for each.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Snapshot {
    counts: [u64; LockEvent::COUNT],
}

/// The counters now. What other threads count meanwhile is seen or not, each counter by itself.
pub fn snapshot() -> Snapshot {
    Snapshot { counts: lock_events() }
}

impl Snapshot {
    /// One counter: how often, or for [`LockEvent::PvLatencyKick`] and [`LockEvent::PvLatencyWake`] how many ns in all.
    pub fn get(&self, event: LockEvent) -> u64 {
        self.counts[event as usize]
    }

    /// All counters with their names, in the order of [`LockEvent::ALL`].
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        LockEvent::ALL.iter().map(|&event| (event.name(), self.get(event)))
    }

    /// What was counted since `earlier`.
    #[must_use]
    pub fn since(&self, earlier: &Snapshot) -> Snapshot {
        let mut counts = self.counts;
        for (now, before) in counts.iter_mut().zip(&earlier.counts) {
            *now = now.wrapping_sub(*before);
        }
        Snapshot { counts }
    }
}

impl fmt::Display for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.iter().try_for_each(|(name, count)| writeln!(f, "{name} {count}"))
    }
}
