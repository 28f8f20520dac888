//! The hypervisor's clock, as far as records tell it.
//!
//! Each pCPU's clock is kept apart, from an arbitrary start: at each pass of its scheduler it is what it was at an earlier
//! pass and a duration that a record states, so it is right to the ns there. Between passes it is reckoned from the time
//! stamps. The two do not run alike (an emulation's clocks are wrong by up to some parts in a thousand, and are set anew
//! every second), so records are read twice: the first time for what the clocks stood at in passes.
//!
//! How far apart two pCPUs' clocks are is found when a duration that began on one ends on the other, in a pass. It stays so.

use std::collections::VecDeque;

/// How far a computed duration is off at most, in ns (`docs/xen-decisions.md`).
pub const SLACK: i64 = 100_000;

/// A distance between two clocks is believed for as long, in ns: a duration that a record does not tell rightly spoils it.
const AGE_MAX: i64 = 100_000_000;

/// A time by the clock of a pCPU, in ns.
#[derive(Clone, Copy, Debug)]
pub struct Stamp {
    pub cpu: usize,
    pub ns: i64,
    /// Right to the ns, by the count of starts of that pCPU's clock here ([`Clocks::restart`]).
    pub exact: Option<u32>,
}

/// Time stamps of a pCPU's passes, and its clock there less the time stamp.
pub type Passes = Vec<(i64, i64)>;

/// All pCPUs' clocks.
#[derive(Debug)]
pub struct Clocks {
    /// By pCPU: those found so far.
    found: Vec<Passes>,
    /// By pCPU: those found at the first reading.
    known: Vec<Passes>,
    /// By pCPU: how often it was started anew.
    starts: Vec<u32>,
    /// By two pCPUs: the second's clock less the first's, and the time stamp when that was found.
    apart: Vec<Vec<Option<(i64, i64)>>>,
    /// By pCPU: with whom it has ever been linked.
    linked: Vec<Vec<usize>>,
    /// As `apart`, as found last.
    latest: Vec<Vec<Option<i64>>>,
}

impl Clocks {
    /// With what a first reading has found.
    pub fn new(known: Vec<Passes>) -> Self {
        let cpus = known.len();
        Self {
            found: vec![Passes::new(); cpus],
            known,
            starts: vec![0; cpus],
            apart: vec![vec![None; cpus]; cpus],
            linked: vec![Vec::new(); cpus],
            latest: vec![vec![None; cpus]; cpus],
        }
    }

    /// What this reading has found.
    pub fn into_found(self) -> Vec<Passes> {
        self.found
    }

    /// The clock of `cpu` at a time stamp, reckoned.
    ///
    /// It lies on a line between a pass before and one after. A clock is read some time before the record is written, and how long
    /// before varies: of the lines through the nearest two on each side the uppermost is nearest to the truth.
    pub fn now(&self, cpu: usize, ns: i64) -> i64 {
        let known = &self.known[cpu];
        let next = known.partition_point(|(at, _)| *at <= ns);
        let (before, after) = known.split_at(next);
        let before = before.iter().rev().take(2);
        let line = |a: &(i64, i64), b: &(i64, i64)| {
            a.1 + (i128::from(b.1 - a.1) * i128::from(ns - a.0) / i128::from((b.0 - a.0).max(1))) as i64
        };
        let lines = before.clone().flat_map(|a| after.iter().take(2).map(move |b| line(a, b)));
        let off = lines.max().or_else(|| before.clone().chain(after.first()).map(|(_, off)| *off).max());
        ns + off.unwrap_or(0)
    }

    /// The same, by nothing but the latest pass.
    pub fn about(&self, cpu: usize, ns: i64) -> i64 {
        ns + self.found[cpu].last().map_or(0, |(_, off)| *off)
    }

    /// At the time stamp `ns` the clock of `cpu` stood at `now`.
    pub fn set(&mut self, cpu: usize, ns: i64, now: i64) {
        self.found[cpu].push((ns, now - ns));
    }

    /// A time by the clock of `cpu`.
    pub fn stamp(&self, cpu: usize, ns: i64, exact: bool) -> Stamp {
        Stamp { cpu, ns, exact: exact.then(|| self.starts[cpu]) }
    }

    /// Nothing links the clock of `cpu` to what it was before.
    pub fn restart(&mut self, cpu: usize) {
        self.starts[cpu] += 1;
        for other in 0..self.found.len() {
            (self.apart[cpu][other], self.apart[other][cpu]) = (None, None);
        }
    }

    /// Whether a time is right to the ns by its pCPU's clock as it goes now.
    pub fn exact(&self, stamp: Stamp) -> bool {
        stamp.exact == Some(self.starts[stamp.cpu])
    }

    /// `then`, by the clock of another pCPU, was `ago` ns before `now`, by the clock of `cpu`: all right to the ns.
    pub fn link(&mut self, at: i64, cpu: usize, now: i64, then: Stamp, ago: i64) {
        let other = then.cpu;
        let apart = then.ns + ago - now;
        if cpu == other || !self.exact(then) {
            return;
        }
        // It should stay so: what differs much is a duration that a record does not tell rightly. Nothing is believed until it has been
        // found twice.
        let before = self.latest[cpu][other].replace(apart);
        self.latest[other][cpu] = Some(-apart);
        if before.is_some_and(|before| (before - apart).abs() > SLACK) {
            (self.apart[cpu][other], self.apart[other][cpu]) = (None, None);
            return;
        }
        for (a, b, apart) in [(cpu, other, apart), (other, cpu, -apart)] {
            if self.apart[a][b].replace((apart, at)).is_none() && !self.linked[a].contains(&b) {
                self.linked[a].push(b);
            }
        }
    }

    /// The clock of one pCPU less that of another, by way of others if they have not been linked directly.
    fn apart(&self, at: i64, from: usize, to: usize) -> Option<i64> {
        let fresh =
            |a: usize, b: usize| self.apart[a][b].filter(|(_, found)| at - found < AGE_MAX).map(|(apart, _)| apart);
        if from == to {
            return Some(0);
        }
        if let Some(apart) = fresh(from, to) {
            return Some(apart);
        }
        let mut seen = vec![false; self.linked.len()];
        let mut next = VecDeque::from([(from, 0)]);
        seen[from] = true;
        while let Some((here, sum)) = next.pop_front() {
            if here == to {
                return Some(sum);
            }
            for &via in &self.linked[here] {
                if let (Some(apart), false) = (fresh(here, via), seen[via]) {
                    seen[via] = true;
                    next.push_back((via, sum + apart));
                }
            }
        }
        None
    }

    /// How long ago `then` was, by the clock of `cpu`, which stands at `now`. `None`: not known.
    pub fn since(&self, at: i64, cpu: usize, now: i64, then: Stamp) -> Option<i64> {
        let apart = self.apart(at, cpu, then.cpu)?;
        Some(now + apart - then.ns)
    }

    /// What the clock of `cpu` stands at, `ago` ns after `then`, if that is known to the ns.
    pub fn after(&self, at: i64, cpu: usize, then: Stamp, ago: i64) -> Option<i64> {
        if !self.exact(then) {
            return None;
        }
        let apart = self.apart(at, cpu, then.cpu)?;
        Some(then.ns + ago - apart)
    }
}
