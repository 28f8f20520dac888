//! What the threads of a benchmark do.

use serde::{Deserialize, Serialize};

/// N threads on one lock. Times are CPU time at the machine's speed, not wall time: a thread that loses its CPU does its
/// work later.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Load {
    /// Threads that take the lock, 1 to 1024.
    pub threads: u32,
    /// Threads that only compute, beside them, 0 to 1024.
    pub hogs: u32,
    /// Time with the lock held, in ns.
    pub critical_ns: u64,
    /// Time between unlock and lock, in ns: each time uniform between these two.
    pub think_ns: (u64, u64),
    /// Time before what counts, in ns, 0 to 10 s. The operating system needs some 0.3 s to spread threads that have just
    /// been started evenly over the CPUs; until then a fair lock looks unfair.
    pub warmup_ns: u64,
    /// How long, in ns of wall or virtual time, 1 ms to 100 s.
    pub duration_ns: u64,
    /// Seed of the think times.
    pub seed: u64,
}

impl Default for Load {
    /// The load of the project's figures: a short critical section, several times as much outside.
    fn default() -> Self {
        Load {
            threads: 2,
            hogs: 0,
            critical_ns: 100,
            think_ns: (250, 750),
            warmup_ns: 300_000_000,
            duration_ns: 1_000_000_000,
            seed: 1,
        }
    }
}

/// A load that makes no sense.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LoadError {
    /// A number outside its range.
    #[error("{key} = {found}: must lie between {lo} and {hi}")]
    Range {
        /// The field.
        key: &'static str,
        /// What was given.
        found: u64,
        /// The least.
        lo: u64,
        /// The most.
        hi: u64,
    },
    /// The shortest think time is longer than the longest.
    #[error("think_ns = ({0}, {1}): the first must not exceed the second")]
    Think(u64, u64),
    /// No lock of that name.
    #[error("no lock named \"{0}\"; there are {1}")]
    Lock(String, String),
}

impl Load {
    /// Check the ranges.
    ///
    /// # Errors
    /// The first field out of its range.
    pub fn check(&self) -> Result<(), LoadError> {
        let within = |key, found: u64, lo, hi| {
            if (lo..=hi).contains(&found) { Ok(()) } else { Err(LoadError::Range { key, found, lo, hi }) }
        };
        within("threads", self.threads.into(), 1, 1024)?;
        within("hogs", self.hogs.into(), 0, 1024)?;
        within("critical_ns", self.critical_ns, 0, 1_000_000_000)?;
        within("think_ns", self.think_ns.1, 0, 1_000_000_000)?;
        within("warmup_ns", self.warmup_ns, 0, 10_000_000_000)?;
        within("duration_ns", self.duration_ns, 1_000_000, 100_000_000_000)?;
        if self.think_ns.0 > self.think_ns.1 {
            return Err(LoadError::Think(self.think_ns.0, self.think_ns.1));
        }
        Ok(())
    }
}
