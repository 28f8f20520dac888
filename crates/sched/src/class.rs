//! Scheduling classes: what a task asked for with `sched_setscheduler`, and which class of the mechanism serves it.
//!
//! Real-time tasks stand above the policy, which never hears of them ([`crate::rt`]); all others are the policy's. The
//! shape and what was decided: `docs/internals/classes.md`.

use crate::kernel::Kernel;
use crate::policy::{Dequeue, Enqueue, Policy, Put};
use crate::rq::RqData;
use crate::task::Entity;
use contend_platform::{SchedPlatform, TaskId, Time};
use std::fmt;

/// Priority of a real-time task, 1 (lowest) to 99, as in `chrt`.
pub type RtPrio = u8;
/// The highest.
pub const RT_PRIO_MAX: RtPrio = 99;

/// What an ordinary task asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Share {
    /// Nice value, -20 to 19.
    pub nice: i8,
    /// The slice in us (`sched_runtime` of `sched_setattr`), [`SLICE_US`]; 0: the kernel's `base_slice_ns`.
    pub slice_us: u32,
}

/// Slices that a task may ask for, in us: the bounds of Linux 6.12 (general knowledge, not checked: 0.1 to 100 ms; it takes
/// others for the nearest).
pub const SLICE_US: std::ops::RangeInclusive<u32> = 100..=100_000;

/// What `sched_setattr` and `setpriority` set: policy, priority and slice. `SCHED_DEADLINE` is not modelled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sched {
    /// `SCHED_OTHER`.
    Normal(Share),
    /// `SCHED_BATCH`: preempts nobody when it wakes up.
    Batch(Share),
    /// `SCHED_IDLE`: weighs 3, preempts nobody, and is preempted by any other task that wakes up.
    Idle,
    /// `SCHED_FIFO` with this priority.
    Fifo(RtPrio),
    /// `SCHED_RR` with this priority.
    RoundRobin(RtPrio),
}

impl Default for Sched {
    fn default() -> Self {
        Sched::normal(0)
    }
}

impl Sched {
    /// `SCHED_OTHER` with this nice value, and no slice of its own.
    pub const fn normal(nice: i8) -> Self {
        Sched::Normal(Share { nice, slice_us: 0 })
    }
    /// `SCHED_BATCH` with this nice value, and no slice of its own.
    pub const fn batch(nice: i8) -> Self {
        Sched::Batch(Share { nice, slice_us: 0 })
    }
    /// The real-time priority; `None`: the policy's.
    #[inline]
    pub fn rt(self) -> Option<RtPrio> {
        match self {
            Sched::Fifo(prio) | Sched::RoundRobin(prio) => Some(prio),
            _ => None,
        }
    }
    /// Nice value and slice; the default where they have no meaning.
    pub fn share(self) -> Share {
        match self {
            Sched::Normal(share) | Sched::Batch(share) => share,
            _ => Share::default(),
        }
    }
    /// The nice value; 0 where it has no meaning.
    pub fn nice(self) -> i8 {
        self.share().nice
    }
    /// An ordinary task that asks for nothing but its nice value.
    pub fn is_only_nice(self) -> bool {
        self == Sched::normal(self.nice())
    }
    /// The kernel's priority, as in `sched_switch` events: 120 + nice, or 99 - the real-time priority.
    pub fn kernel_prio(self) -> i32 {
        self.rt().map_or(120 + i32::from(self.nice()), |prio| i32::from(RT_PRIO_MAX - prio))
    }
    /// What a kernel priority of a recording stands for. Whether a real-time task is FIFO or RR is not in it (FIFO), nor are
    /// `SCHED_BATCH` and `SCHED_IDLE`. Deadline tasks (below 0) come as the highest real-time priority.
    pub fn of_kernel_prio(prio: i32) -> Self {
        match prio {
            100.. => Sched::normal((prio - 120).clamp(-20, 19) as i8),
            // 99 would be priority 0, which no task has.
            _ => Sched::Fifo((99 - prio.clamp(0, 98)) as RtPrio),
        }
    }
    /// Tell the policy: its part of a task is kept also while the task is a real-time one.
    pub(crate) fn apply<L: Policy>(self, policy: &L, t: &mut L::Task) {
        match self {
            Sched::Idle => policy.set_idle(t),
            _ => policy.set_nice(t, self.nice()),
        }
        policy.set_slice(t, u64::from(self.share().slice_us) * 1000);
    }
    /// From text, as [`fmt::Display`] writes it; `None`: none of these.
    pub fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split(':');
        let kind = parts.next()?;
        let (number, slice) = (parts.next(), parts.next());
        if parts.next().is_some() {
            return None;
        }
        let number = match number {
            // No sign, no blank: one way of writing it.
            Some(n) if n.strip_prefix('-').unwrap_or(n).bytes().all(|b| b.is_ascii_digit()) => {
                Some(n.parse::<i8>().ok()?)
            }
            Some(_) => return None,
            None => None,
        };
        let slice_us = match slice {
            Some(s) => slice_us(s)?,
            None => 0,
        };
        let nice = || Some(number.unwrap_or(0)).filter(|n| (-20..=19).contains(n));
        let share = || nice().map(|nice| Share { nice, slice_us });
        let prio = || number.and_then(|n| u8::try_from(n).ok()).filter(|n| (1..=RT_PRIO_MAX).contains(n));
        match kind {
            "normal" => share().map(Sched::Normal),
            "batch" => share().map(Sched::Batch),
            _ if slice.is_some() => None,
            "idle" => number.is_none().then_some(Sched::Idle),
            "fifo" => prio().map(Sched::Fifo),
            "rr" => prio().map(Sched::RoundRobin),
            _ => None,
        }
    }
    /// What [`Sched::parse`] takes, in words.
    pub const ALLOWED: &str = "normal, batch, either with :NICE or :NICE:SLICE, idle, fifo:PRIO or rr:PRIO (NICE -20 to 19, \
                               SLICE 100us to 100ms, PRIO 1 to 99)";
}

/// "500us", "3ms": a whole number and its unit.
fn slice_us(text: &str) -> Option<u32> {
    let (number, unit) = text.strip_suffix("us").map(|n| (n, 1)).or_else(|| Some((text.strip_suffix("ms")?, 1000)))?;
    if !number.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    number.parse::<u32>().ok()?.checked_mul(unit).filter(|us| SLICE_US.contains(us))
}

impl fmt::Display for Sched {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let share = |f: &mut fmt::Formatter<'_>, kind: &str, share: Share| match share {
            Share { nice: 0, slice_us: 0 } => write!(f, "{kind}"),
            Share { nice, slice_us: 0 } => write!(f, "{kind}:{nice}"),
            Share { nice, slice_us } if slice_us % 1000 == 0 => write!(f, "{kind}:{nice}:{}ms", slice_us / 1000),
            Share { nice, slice_us } => write!(f, "{kind}:{nice}:{slice_us}us"),
        };
        match *self {
            Sched::Normal(s) => share(f, "normal", s),
            Sched::Batch(s) => share(f, "batch", s),
            Sched::Idle => write!(f, "idle"),
            Sched::Fifo(p) => write!(f, "fifo:{p}"),
            Sched::RoundRobin(p) => write!(f, "rr:{p}"),
        }
    }
}

/// The calls of the policy's contract, to whichever class the task is of. All with the run queue's lock held.
impl<P: SchedPlatform, L: Policy> Kernel<P, L> {
    #[inline]
    pub(crate) fn class_enqueue(&self, rd: &mut RqData<L>, task: TaskId, e: &mut Entity<L>, why: Enqueue, now: Time) {
        match e.sched.rt() {
            None => self.policy.enqueue(&mut rd.pol, task, &mut e.pol, why, now),
            Some(prio) => rd.rt.enqueue(task, prio),
        }
    }
    #[inline]
    pub(crate) fn class_dequeue(&self, rd: &mut RqData<L>, task: TaskId, e: &mut Entity<L>, why: Dequeue, now: Time) {
        match e.sched.rt() {
            None => self.policy.dequeue(&mut rd.pol, task, &mut e.pol, why, now),
            Some(prio) => rd.rt.dequeue(task, prio),
        }
    }
    #[inline]
    pub(crate) fn class_set_next(&self, rd: &mut RqData<L>, task: TaskId, e: &mut Entity<L>, now: Time) {
        rd.rt.account(now);
        match e.sched.rt() {
            None => {
                rd.rt.set_fair_runs(true);
                self.policy.set_next(&mut rd.pol, task, &mut e.pol, now);
            }
            Some(prio) => rd.rt.set_next(task, prio, e.pinned),
        }
    }
    /// Returns true if the task sleeps but stays queued.
    #[inline]
    pub(crate) fn class_put_prev(
        &self,
        rd: &mut RqData<L>,
        task: TaskId,
        e: &mut Entity<L>,
        why: Put,
        now: Time,
    ) -> bool {
        rd.rt.account(now);
        match e.sched.rt() {
            None => {
                rd.rt.set_fair_runs(false);
                self.policy.put_prev(&mut rd.pol, task, &mut e.pol, why, now)
            }
            Some(prio) => {
                // The slice of one that becomes last begins anew when it runs again.
                if why != Put::Preempted {
                    e.rr_ticks = 0;
                }
                let at_head = why == Put::Preempted && !std::mem::take(&mut e.makes_room);
                rd.rt.put_prev(task, prio, matches!(why, Put::Preempted | Put::Yielded), at_head);
                false
            }
        }
    }
    /// Returns true if the running task is to be preempted.
    #[inline]
    pub(crate) fn class_tick(&self, rd: &mut RqData<L>, task: TaskId, e: &mut Entity<L>, now: Time) -> bool {
        let Some(prio) = e.sched.rt() else { return self.policy.tick(&mut rd.pol, task, &mut e.pol, now) };
        if !matches!(e.sched, Sched::RoundRobin(_)) {
            return false;
        }
        e.rr_ticks = e.rr_ticks.saturating_add(1);
        // A tick is up to 1 ns longer than `tick_ns`, which is rounded down (HZ=300).
        if u64::from(e.rr_ticks) * (self.tick_ns + 1) < self.features.rr_timeslice_ms * 1_000_000 {
            return false;
        }
        e.rr_ticks = 0;
        e.makes_room = rd.rt.waits_at(prio);
        e.makes_room
    }
    /// Does a task just queued preempt the running one? `None`: both are the policy's, which is to be asked.
    pub(crate) fn class_preempts(rd: &RqData<L>, woken: Sched, curr: Sched) -> Option<bool> {
        match (woken.rt(), curr.rt()) {
            (Some(woken), curr) => Some(!rd.rt.throttled() && curr.is_none_or(|curr| woken > curr)),
            (None, Some(_)) => Some(false),
            (None, None) => match (woken, curr) {
                (Sched::Idle, _) => Some(false),
                (_, Sched::Idle) => Some(true),
                (Sched::Batch(_), _) => Some(false),
                _ => None,
            },
        }
    }
    /// What the task weighs among fair ones: nothing if it is a real-time task.
    #[inline]
    pub(crate) fn weight_of(&self, e: &Entity<L>) -> u64 {
        if e.sched.rt().is_some() { 0 } else { self.policy.weight(&e.pol) }
    }
    /// [`Policy::h_load`] of the task's own load: nothing if it is a real-time task.
    #[inline]
    pub(crate) fn load_of(&self, rd: &RqData<L>, e: &Entity<L>) -> u64 {
        if e.sched.rt().is_some() { 0 } else { self.policy.h_load(&rd.pol, &e.pol, e.load.get()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_goes_both_ways() {
        for text in [
            "normal",
            "normal:-20",
            "normal:19",
            "normal:0:100us",
            "normal:-5:3ms",
            "batch",
            "batch:5",
            "batch:0:100ms",
            "idle",
            "fifo:1",
            "fifo:99",
            "rr:50",
        ] {
            assert_eq!(Sched::parse(text).expect(text).to_string(), text);
        }
        assert_eq!(Sched::parse("normal:0"), Some(Sched::normal(0)));
        assert_eq!(Sched::parse("normal:0:3000us"), Sched::parse("normal:0:3ms"));
        for text in [
            "",
            "fifo",
            "fifo:0",
            "fifo:100",
            "fifo:-1",
            "fifo:+5",
            "fifo: 5",
            "rr:",
            "idle:1",
            "normal:20",
            "batch:-21",
            "deadline",
            "rr:300",
            "normal:0:",
            "normal:0:3",
            "normal:0:99us",
            "normal:0:101ms",
            "normal:0:+3ms",
            "normal:0:3ms:",
            "normal::3ms",
            "idle:0:3ms",
            "fifo:5:3ms",
        ] {
            assert_eq!(Sched::parse(text), None, "{text}");
        }
    }

    #[test]
    fn kernel_priorities_go_both_ways() {
        for (sched, prio) in [
            (Sched::normal(0), 120),
            (Sched::normal(-20), 100),
            (Sched::normal(19), 139),
            (Sched::Fifo(99), 0),
            (Sched::Fifo(1), 98),
        ] {
            assert_eq!((sched.kernel_prio(), Sched::of_kernel_prio(prio)), (prio, sched));
        }
        assert_eq!(Sched::of_kernel_prio(-1), Sched::Fifo(99), "a deadline task");
        assert_eq!(Sched::of_kernel_prio(99), Sched::Fifo(1));
        assert_eq!(Sched::of_kernel_prio(i32::MAX), Sched::normal(19));
        assert_eq!(Sched::of_kernel_prio(i32::MIN), Sched::Fifo(99));
    }
}
