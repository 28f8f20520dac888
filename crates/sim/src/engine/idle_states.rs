//! Idle states: how deeply an idle CPU sleeps, and how long it then takes to wake.
//!
//! The governor works as the documentation of Linux' menu governor describes it: a CPU expects to sleep until its next
//! timer, corrected by how that went before with timers about as far away, or, where its last sleeps were alike, as long
//! as those, whichever is shorter. It takes the deepest state whose target residency is not longer. A core sleeps only
//! as deeply as its shallowest thread, so a thread beside a busy one wakes fast.

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

/// Corrections are kept for timers less than 10 us away, 100 us, 1 ms, 10 ms, 100 ms, and others.
const RANGES: usize = 6;
/// A correction of 1. Fine enough for sleeps of 1 us where no timer is set (`SLEEP_MAX`).
const ONE: u64 = 1 << 24;

/// How much less than the time to the next timer is slept.
#[derive(Default)]
struct Correction {
    /// In `ONE`s: the mean of the sleeps so far, from the eighth on of about eight.
    less: Cell<u64>,
    sleeps: Cell<u64>,
}

impl Correction {
    fn learn(&self, slept: Nanos, until_timer: Nanos) {
        let woken_early = until_timer.saturating_sub(slept);
        let less = (u128::from(woken_early) * u128::from(ONE) / u128::from(until_timer.max(1))) as u64;
        // A run stands for a system that has been up for longer than it: no slow start from `ONE`.
        let of = (self.sleeps.get() + 1).min(REMEMBERED as u64);
        self.less.set((self.less.get() * (of - 1) + less) / of);
        self.sleeps.set(of);
    }
    fn applied_to(&self, until_timer: Nanos) -> Nanos {
        (u128::from(until_timer) * u128::from(ONE - self.less.get()) / u128::from(ONE)) as Nanos
    }
}

/// What a CPU's governor knows.
#[derive(Default)]
pub(super) struct Governor {
    /// The state the CPU is in: an index into the machine's.
    state: Cell<usize>,
    last: RefCell<[Nanos; REMEMBERED]>,
    /// How many sleeps there have been.
    sleeps: Cell<usize>,
    /// One for each range of times to the next timer.
    corrections: [Correction; RANGES],
    /// When the present sleep began, and how far away the next timer was then.
    since: Cell<Time>,
    until_timer: Cell<Nanos>,
}

impl Governor {
    /// How long the sleep that begins now will be.
    fn predict(&self, until_timer: Nanos) -> Nanos {
        let corrected = self.corrections[range(until_timer)].applied_to(until_timer);
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
        self.corrections[range(until_timer)].learn(slept, until_timer);
        self.sleeps.set(n + 1);
    }
}

/// Which of the corrections is that of a timer so far away.
fn range(until_timer: Nanos) -> usize {
    (until_timer / 1_000).checked_ilog10().map_or(0, |decade| (decade as usize).min(RANGES - 1))
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
        assert_eq!(g.predict(10_000), 10_000, "an early timer is nearer, and was never wrong");
    }

    #[test]
    fn without_a_timer_sleeps_are_foreseen_as_well_as_with_a_late_one() {
        // Not alike: the mean of all is what is left.
        let sleeps = [20_000, 400_000, 900_000, 60_000, 300_000, 700_000, 40_000, 580_000];
        for until_timer in [SLEEP_MAX, 50_000_000, 1_000_000] {
            let g = Governor::default();
            for slept in sleeps.repeat(10) {
                g.learn(slept, until_timer);
            }
            assert_eq!(g.typical(), None);
            let expected = g.predict(until_timer);
            assert!((300_000..450_000).contains(&expected), "{expected} of {until_timer}");
        }
    }

    #[test]
    fn corrections_are_kept_by_how_far_the_timer_is() {
        let at = |us: u64| range(us * 1_000);
        assert_eq!(
            [0, 1, 9, 10, 99, 100, 999, 1_000, 10_000, 100_000, 1_000_000].map(at),
            [0, 0, 0, 1, 1, 2, 2, 3, 4, 5, 5]
        );
        let g = Governor::default();
        g.learn(100_000, SLEEP_MAX);
        assert_eq!(g.predict(4_000_000), 4_000_000, "sleeps without a timer say nothing of those with one");
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
