//! A group's pool of run time: what its lock guards, without the lock.

use super::{MIN_EXPIRATION, SLACK_PERIOD};
use crate::policy::groups::GroupId;
use contend_platform::{CpuId, Nanos, Time};
use std::collections::VecDeque;

/// What a group may use of all CPUs together: `cpu.max` and `cpu.max.burst`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limit {
    /// Run time a period, in ns.
    pub quota: Nanos,
    /// A period, in ns.
    pub period: Nanos,
    /// What may be saved up of unused quota beyond one period's, in ns.
    pub burst: Nanos,
}

/// What `cpu.stat` shows of a group with a limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CpuStat {
    /// Periods that ended while the group was active.
    pub nr_periods: u64,
    /// Of those, in which it was throttled on some CPU.
    pub nr_throttled: u64,
    /// Time for which it was throttled, in ns, summed over CPUs.
    pub throttled_ns: Nanos,
    /// Periods in which it used more than its quota.
    pub nr_bursts: u64,
    /// How much more, in ns, in all.
    pub burst_ns: Nanos,
}

/// The pool.
#[derive(Debug)]
pub struct Pool {
    limit: Limit,
    /// What is left of this period's run time.
    runtime: Nanos,
    /// What there was when it was filled.
    filled: Nanos,
    /// When the period ends; the timer is set to it if `active`.
    ends: Time,
    active: bool,
    /// Nobody asked for time since the last period's end.
    idle: bool,
    /// Handing out what was given back is under way.
    slack_started: bool,
    /// CPUs where the group is throttled, who came first first.
    pub(super) waiting: VecDeque<CpuId>,
    /// Counters.
    pub stat: CpuStat,
}

/// What a period's end asks for.
pub(super) struct End {
    /// Somebody waits for time.
    pub waiting: bool,
    /// When the next one ends; `None`: nothing happens, the timer stays off.
    pub next: Option<Time>,
}

impl Pool {
    /// Full. Its periods begin at another time than those of other groups.
    pub(super) fn new(limit: Limit, group: GroupId) -> Self {
        // The golden ratio's multiples lie evenly however many there are.
        let golden = (u64::from(group.0).wrapping_mul(0x9E37_79B9_7F4A_7C15)) >> 32;
        let begins = ((u128::from(limit.period) * u128::from(golden)) >> 32) as Time;
        Pool {
            limit,
            runtime: limit.quota,
            filled: limit.quota,
            ends: begins,
            active: false,
            idle: false,
            slack_started: false,
            waiting: VecDeque::new(),
            stat: CpuStat::default(),
        }
    }
    pub(super) fn is_empty(&self) -> bool {
        self.runtime == 0
    }
    /// The group is active: returns when to set the timer to, if it is off.
    pub(super) fn start(&mut self, now: Time) -> Option<Time> {
        self.idle = false;
        if std::mem::replace(&mut self.active, true) {
            return None;
        }
        self.pass(now);
        Some(self.ends)
    }
    /// Periods that have ended by `now`.
    fn pass(&mut self, now: Time) -> u64 {
        let Some(over) = now.checked_sub(self.ends) else { return 0 };
        let periods = over / self.limit.period + 1;
        self.ends += periods * self.limit.period;
        periods
    }
    /// Take up to `want`.
    pub(super) fn draw(&mut self, want: Nanos) -> Nanos {
        let drawn = want.min(self.runtime);
        self.runtime -= drawn;
        drawn
    }
    /// Put `slack` back. True: a timer shall hand it out after [`SLACK_PERIOD`].
    pub(super) fn give_back(&mut self, slack: Nanos, slice: Nanos, now: Time) -> bool {
        self.runtime += slack;
        let soon = self.active && self.ends <= now + SLACK_PERIOD + MIN_EXPIRATION;
        let start = self.runtime > slice && !self.waiting.is_empty() && !self.slack_started && !soon;
        self.slack_started |= start;
        start
    }
    /// That timer: is there something to hand out?
    pub(super) fn slack_due(&mut self, slice: Nanos) -> bool {
        self.slack_started = false;
        self.runtime > slice && !self.waiting.is_empty()
    }
    /// The timer of the period: fill the pool.
    pub(super) fn period_ends(&mut self, now: Time) -> End {
        let periods = self.pass(now);
        let waiting = !self.waiting.is_empty();
        let Limit { quota, burst, .. } = self.limit;
        self.stat.nr_periods += periods;
        let more = (self.filled - self.runtime.min(self.filled)).saturating_sub(quota);
        self.stat.nr_bursts += u64::from(more > 0);
        self.stat.burst_ns += more;
        self.runtime = (self.runtime + quota).min(quota + burst);
        self.filled = self.runtime;
        if waiting {
            self.stat.nr_throttled += periods;
        }
        let stop = self.idle && !waiting;
        self.idle = !waiting;
        self.active = !stop;
        End { waiting, next: (!stop).then_some(self.ends) }
    }
}
