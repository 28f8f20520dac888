//! What leaving idle states takes, and which there are.

use std::ops::Range;
use std::time::Duration;

use itertools::Itertools;

use super::{Deriving, How};
use crate::plan::{HALTED, IDLE, MIDDLE, What};
use crate::stats::Spread;

/// A residency that says "never".
pub(super) const NEVER_NS: u64 = 1_000_000_000;
/// What the simulator charges from a waker's system call until the wakee runs on another CPU that was idle: cost and how
/// often. Found by raising each cost in turn in a futex ping-pong of two CPUs under linux-6.18, and looking how much
/// longer half a round trip takes; less the second futex_op there, which is the wakee's.
const WAKEUP: &[(&str, &str, f64)] = &[
    ("kernel", "syscall", 1.0),
    ("kernel", "futex_op", 1.0),
    ("kernel", "ttwu", 1.0),
    ("kernel", "select_cpu", 1.0),
    ("kernel", "enqueue", 1.0),
    ("kernel", "pick", 1.0),
    ("kernel", "clock_read", 2.0),
    ("cpu", "context_switch", 1.0),
    ("lines", "hit", 39.0),
    ("lines", "atomic", 8.0),
];
/// Transfers of lines in the same.
pub(super) const WAKEUP_TRANSFERS: f64 = 16.0;

impl Deriving<'_> {
    /// A transfer between the nearest different cores.
    pub(super) fn near_line(&self) -> Spread {
        let classes = self.given.machine.topology.nr_distances();
        (2..classes).find_map(|c| self.of(What::Transfer(c))).unwrap_or(Spread::exactly(0.0))
    }

    /// What leaving an idle state takes: what remains of a wake-up's latency.
    pub(super) fn idle(&mut self) {
        let mut sum = self.near_line().times(WAKEUP_TRANSFERS);
        for (section, field, times) in WAKEUP {
            let Some(part) = self.known(section, field) else { return };
            sum = sum.plus(part.times(*times));
        }
        // The first time that is taken for the shallowest state.
        let base = if self.out.idle_halts { HALTED } else { 0 };
        let Some(first) = self.of(What::WakeIdle(base)) else { return };
        let mut parts = format!(
            "a system call, futex_op, ttwu, select_cpu, enqueue, pick, the switch, {WAKEUP_TRANSFERS} line transfers"
        );
        let interrupt = if self.out.idle_halts {
            for field in ["ipi_send", "ipi_deliver", "irq"] {
                let Some(part) = self.known("interrupts", field) else { return };
                sum = sum.plus(part);
            }
            parts += ", ipi_send, ipi_deliver, irq";
            ""
        } else {
            "; an interrupt, if idle is left by one, is part of it"
        };
        let mut how = format!(
            "FUTEX_WAKE to a CPU that was idle for {} us, until the thread runs ({:.0} ns), less {:.0} ns for what the \
             simulator charges on the way ({parts}){interrupt}",
            IDLE[base].as_micros(),
            first.value,
            sum.value
        );
        let mut exit = first.less(sum);
        if let Some(restart) = self.tick_restart(exit) {
            exit = exit.less(Spread::exactly(restart.value));
            how += &format!(", and less tick_restart ({:.0})", restart.value);
        }
        self.derived(("interrupts", "idle_exit"), exit, &how);

        if self.given.idle_states.iter().any(|s| u128::from(s.residency_ns) > IDLE[base].as_nanos()) {
            self.declared_states(base, first, exit);
        } else {
            self.seen_states(base, first, exit);
        }
    }

    /// Setting up the tick again, a part of leaving idle (`exit` with it): what the kernel's own events leave for it if they could be read.
    fn tick_restart(&mut self, exit: Spread) -> Option<Spread> {
        let key = ("interrupts", "tick_restart");
        let write = self.known("interrupts", "timer_write").or_else(|| self.known("kernel", "timer_program"))?;
        let others = self.known("interrupts", "irq_leave").zip(self.known("kernel", "pick"));
        if let Some((seen, (leave, pick))) = self.of(What::IdleTimer).zip(others) {
            let how = format!(
                "sched_switch from idle after hrtimer_expire_exit ({:.0} ns), less timer_write (or timer_program), irq_leave and pick ({:.0}, {:.0} \
                 and {:.0})",
                seen.value, write.value, leave.value, pick.value
            );
            let restart = seen.less(write).less(leave).less(pick).at_most(exit.value);
            self.derived(key, restart, &how);
        } else {
            let restart = Spread { value: write.value.min(exit.value / 2.0), lo: 0.0, hi: write.hi, n: 0 };
            let source = "estimate: timer_write (or timer_program), at most half of what leaving idle takes: the tick's timer is set again";
            self.put(key, How::Estimate, restart, source.into());
        }
        self.known(key.0, key.1)
    }

    /// Deeper idle states that the kernel declares: each with what a wake-up after as long takes longer.
    fn declared_states(&mut self, base: usize, first: Spread, exit: Spread) {
        let mut floor = IDLE[base].as_nanos() as u64;
        for (names, long) in DEEPER.into_iter().zip([MIDDLE, IDLE.len() - 1]) {
            let range = floor + 1..=IDLE[long].as_nanos() as u64;
            let states = self.given.idle_states.iter().filter(|s| range.contains(&s.residency_ns));
            let state = states.max_by_key(|s| s.residency_ns);
            let Some((state, slower)) = state.zip(self.of(What::WakeIdle(long))) else {
                self.no_state(names, exit);
                continue;
            };
            floor = state.residency_ns;
            self.derived(
                ("interrupts", names.0),
                slower.less(first).plus(exit),
                &longer(IDLE[base], IDLE[long], slower),
            );
            let residency = Spread::exactly(floor as f64);
            self.declared(("interrupts", names.1), residency, &format!("the target residency of {}", state.name));
        }
    }

    /// None is declared (the host of a guest has its own): those that show in wake-ups after longer idle times.
    fn seen_states(&mut self, base: usize, first: Spread, exit: Spread) {
        let seen: Vec<(usize, Spread)> =
            (base..IDLE.len()).filter_map(|i| Some((i, self.of(What::WakeIdle(i))?))).collect();
        let values: Vec<f64> = seen.iter().map(|(_, s)| s.value).collect();
        let steps = steps(&values, DEEPER.len());
        let mut ends = steps.iter().skip(1).copied().chain([values.len()]);
        // A single step is the deepest state's.
        for (i, names) in DEEPER.into_iter().enumerate() {
            let step = (i + steps.len()).checked_sub(DEEPER.len()).map(|i| steps[i]);
            let Some(step) = step else {
                self.no_state(names, exit);
                continue;
            };
            let level = &seen[step..ends.next().expect("each step ends")];
            let mean = Spread {
                value: level.iter().map(|(_, s)| s.value).sum::<f64>() / level.len() as f64,
                lo: level.iter().map(|(_, s)| s.lo).fold(f64::INFINITY, f64::min),
                hi: level.iter().map(|(_, s)| s.hi).fold(0.0, f64::max),
                n: level.iter().map(|(_, s)| s.n).sum(),
            };
            let (before, after) = (IDLE[seen[step - 1].0], IDLE[seen[step].0]);
            self.derived(("interrupts", names.0), mean.less(first).plus(exit), &longer(IDLE[base], after, mean));
            let (lo, hi) = (before.as_nanos() as f64, after.as_nanos() as f64);
            let between = Spread { value: (lo * hi).sqrt(), lo, hi, n: 0 };
            let source = format!(
                "estimate: somewhere between {} and {} us of idleness wake-ups begin to take longer, though the \
                 kernel declares no such state (a hypervisor's own)",
                before.as_micros(),
                after.as_micros()
            );
            self.put(("interrupts", names.1), How::Estimate, between, source);
        }
    }

    fn no_state(&mut self, names: (&'static str, &'static str), exit: Spread) {
        let source = "of no effect while the state is never entered".to_string();
        self.put(("interrupts", names.0), How::Estimate, exit, source);
        let never = Spread::exactly(NEVER_NS as f64);
        self.declared(("interrupts", names.1), never, "no idle state of such a residency, and wake-ups show none");
    }
}

/// The two deeper idle states' keys: what leaving takes, and from which idle time on.
const DEEPER: [(&str, &str); 2] = [("c1e_exit", "c1e_residency"), ("c6_exit", "c6_residency")];

fn longer(first: Duration, idle: Duration, wake_up: Spread) -> String {
    let (idle, first) = (idle.as_micros(), first.as_micros());
    let taken = wake_up.value;
    format!(
        "idle_exit, and what a wake-up after {idle} us of idleness or more ({taken:.0} ns) takes longer than after {first} us"
    )
}

/// A level is a sixth above the one before.
const STEP: f64 = 7.0 / 6.0;

/// Where `values` rise to another level: at most `most` places, as many as there are, where the levels describe the values best.
pub(super) fn steps(values: &[f64], most: usize) -> Vec<usize> {
    let level = |range: Range<usize>| {
        let logs = || values[range.clone()].iter().map(|v| v.max(1.0).ln());
        let mean = logs().sum::<f64>() / range.len() as f64;
        (mean, logs().map(|l| (l - mean).powi(2)).sum::<f64>())
    };
    let describes = |starts: &[usize]| {
        let starts: Vec<usize> = [0].into_iter().chain(starts.iter().copied()).chain([values.len()]).collect();
        let levels: Vec<(f64, f64)> = starts.windows(2).map(|w| level(w[0]..w[1])).collect();
        let rises = levels.windows(2).all(|w| w[1].0 >= w[0].0 + STEP.ln());
        rises.then(|| levels.iter().map(|l| l.1).sum::<f64>())
    };
    (1..=most)
        .rev()
        .find_map(|n| {
            let chosen = (1..values.len()).combinations(n).filter_map(|starts| Some((describes(&starts)?, starts)));
            chosen.min_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, starts)| starts)
        })
        .unwrap_or_default()
}
