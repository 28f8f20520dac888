//! Idle states: how deeply an idle CPU sleeps, and how long it then takes to wake.
//!
//! The governor works as the documentation of Linux' menu governor describes it: a CPU expects to sleep until its next
//! timer, corrected by how that went before, or, where its last sleeps were alike, as long as those. It takes the
//! deepest state whose target residency is not longer. A core sleeps only as deeply as its shallowest thread, so a
//! thread beside a busy one wakes fast.

use super::Engine;
use contend_machine::Interrupts;
use contend_platform::{CpuId, NEVER, Nanos, Time};
use std::cell::{Cell, RefCell};

/// One state.
pub(super) struct IdleState {
    exit: Nanos,
    residency: Nanos,
}

/// A residency that says "never".
const NO_STATE: Nanos = 1_000_000_000;

impl IdleState {
    /// The states of a machine, shallowest first.
    pub(super) fn of(c: &Interrupts) -> Vec<IdleState> {
        let deeper = [(&c.c1e_exit, &c.c1e_residency), (&c.c6_exit, &c.c6_residency)];
        let deeper = deeper.into_iter().filter(|(_, residency)| residency.value < NO_STATE);
        let deeper = deeper.map(|(exit, residency)| IdleState { exit: exit.value, residency: residency.value });
        std::iter::once(IdleState { exit: c.idle_exit.value, residency: 0 }).chain(deeper).collect()
    }
}

/// Sleeps that the governor remembers.
const REMEMBERED: usize = 8;
/// Sleeps are alike if they differ by less than this (standard deviation), or by less than a sixth of their mean.
const ALIKE: u64 = 20_000;
/// Sleeps longer than this are remembered as this long.
const SLEEP_MAX: Nanos = 1_000_000_000;

/// What a CPU's governor knows.
#[derive(Default)]
pub(super) struct Governor {
    /// The state the CPU is in: an index into the machine's.
    state: Cell<usize>,
    last: RefCell<[Nanos; REMEMBERED]>,
    /// How many sleeps there have been.
    sleeps: Cell<usize>,
    /// Sleep over time to the next timer, in 1/1024; a mean over about eight sleeps.
    ratio: Cell<u64>,
    /// When the present sleep began, and how far away the next timer was then.
    since: Cell<Time>,
    until_timer: Cell<Nanos>,
}

impl Governor {
    /// How long the sleep that begins now will be.
    fn predict(&self, until_timer: Nanos) -> Nanos {
        let ratio = if self.sleeps.get() == 0 { 1024 } else { self.ratio.get() };
        let corrected = (u128::from(until_timer) * u128::from(ratio) / 1024) as Nanos;
        self.typical().map_or(corrected, |t| t.min(corrected))
    }

    /// The mean of the last sleeps if they are alike, if need be without the two longest.
    fn typical(&self) -> Option<Nanos> {
        if self.sleeps.get() < REMEMBERED {
            return None;
        }
        let mut last = *self.last.borrow();
        last.sort_unstable();
        [REMEMBERED, REMEMBERED - 1, REMEMBERED - 2].into_iter().find_map(|n| {
            let mean = last[..n].iter().sum::<u64>() / n as u64;
            let variance = last[..n].iter().map(|s| u128::from(s.abs_diff(mean)).pow(2)).sum::<u128>() / n as u128;
            (variance <= u128::from(ALIKE.max(mean / 6)).pow(2)).then_some(mean)
        })
    }

    fn learn(&self, slept: Nanos, until_timer: Nanos) {
        let n = self.sleeps.get();
        self.last.borrow_mut()[n % REMEMBERED] = slept.min(SLEEP_MAX);
        let went = (u128::from(slept.min(until_timer)) * 1024 / u128::from(until_timer.max(1))) as u64;
        let ratio = if n == 0 { 1024 } else { self.ratio.get() };
        self.ratio.set((ratio * 7 + went) / 8);
        self.sleeps.set(n + 1);
    }
}

impl Engine {
    /// `cpu` goes idle: which state it takes.
    pub(super) fn enter_idle_state(&self, cpu: CpuId) {
        let states = &self.costs.idle_states;
        let until_timer = self.until_timer(cpu);
        self.cpu(cpu).governor.since.set(self.now.get());
        self.cpu(cpu).governor.until_timer.set(until_timer);
        if states.len() > 1 {
            let expected = self.cpu(cpu).governor.predict(until_timer);
            let state = states.iter().rposition(|s| s.residency <= expected).unwrap_or(0);
            self.cpu(cpu).governor.state.set(state);
        }
    }

    /// `cpu`, idle until now, wakes: what that takes. To be asked before the CPU counts as busy.
    pub(super) fn leave_idle_state(&self, cpu: CpuId) -> Nanos {
        let states = &self.costs.idle_states;
        if states.len() == 1 {
            return states[0].exit;
        }
        let c = self.cpu(cpu);
        c.governor.learn(self.now.get() - c.governor.since.get(), c.governor.until_timer.get());
        let core = self.topology().core_of(cpu);
        if self.busy_in_core[core].get() > 0 {
            return states[0].exit;
        }
        let threads = self.topology().core_cpus(core).iter();
        let state = threads.map(|t| self.cpu(*t).governor.state.get()).min().unwrap_or(0);
        states[state].exit
    }

    /// Time to the next interrupt that an idle CPU knows of.
    fn until_timer(&self, cpu: CpuId) -> Nanos {
        match self.cpu(cpu).irq_at.get() {
            NEVER => SLEEP_MAX,
            at => at.saturating_sub(self.now.get()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_governor_expects_the_timer_until_its_sleeps_are_alike() {
        let g = Governor::default();
        assert_eq!(g.predict(4_000_000), 4_000_000);
        for _ in 0..REMEMBERED {
            g.learn(50_000, 4_000_000);
        }
        assert_eq!(g.predict(4_000_000), 50_000);
        assert_eq!(g.predict(10_000), 10_000 * g.ratio.get() / 1024, "an early timer is nearer");
    }

    #[test]
    fn two_long_sleeps_of_eight_are_left_out_and_more_are_not() {
        let g = Governor::default();
        for slept in [30_000, 30_000, 900_000, 30_000, 30_000, 30_000, 30_000, 700_000] {
            g.learn(slept, 1_000_000);
        }
        assert_eq!(g.typical(), Some(30_000));
        g.learn(800_000, 1_000_000);
        assert_eq!(g.typical(), None);
    }
}
