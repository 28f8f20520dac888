//! The real-time queue of one CPU: order, and throttling. Guarded by the run queue's lock.

use crate::class::RtPrio;
use crate::features::{Features, RtThrottle};
use crate::pelt::Average;
use contend_platform::{Nanos, TaskId, Time};
use std::collections::VecDeque;

/// The real-time tasks of one run queue. Nothing but an empty pointer where there has been none: then each question costs one look at it.
#[derive(Clone, Debug, Default)]
pub struct RtRq(Option<Box<Queue>>);

/// What there is once there has been one. Its functions are cold: most runs have no real-time task, and none pay for them.
#[derive(Clone, Debug, Default)]
struct Queue {
    /// Those that wait, the next one first: by priority, then first in, first out.
    tasks: VecDeque<(RtPrio, TaskId)>,
    /// The priority of the one that runs.
    running: Option<RtPrio>,
    /// It may run nowhere else.
    running_pinned: bool,
    /// Accounted up to here.
    since: Time,
    /// A fair task runs (for the fair server).
    fair_runs: bool,
    /// Part of the CPU that real-time tasks use, 0 to 1024.
    util: Average,
    throttle: Throttle,
    /// What others know of this CPU ([`super::push_pull`]).
    published: Published,
}

/// See [`super::push_pull`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Published {
    /// Highest priority here (0: none).
    pub level: RtPrio,
    /// Highest priority that waits (0: none).
    pub waiting: RtPrio,
    /// The one that runs may run nowhere else.
    pub pinned: bool,
}

/// Whether real-time tasks may run.
#[derive(Clone, Copy, Debug, Default)]
struct Throttle {
    /// They may not.
    on: bool,
    /// `runtime`: the current period, and what they had in it, with what they overran in those before.
    period: u64,
    used: Nanos,
    /// `fair-server`: the beginning of the period in which fair tasks began to wait, and what they have had since.
    starving: Option<Time>,
    served: Nanos,
    /// When a fair task was last seen here.
    seen: Time,
}

impl Queue {
    fn highest_waiting(&self) -> Option<RtPrio> {
        self.tasks.front().map(|(p, _)| *p)
    }
    #[cold]
    fn published_now(&self) -> Published {
        let waiting = self.highest_waiting().unwrap_or(0);
        let pinned = self.running.is_some() && self.running_pinned;
        Published { level: waiting.max(self.running.unwrap_or(0)), waiting, pinned }
    }
    #[cold]
    fn remove(&mut self, task: TaskId, prio: RtPrio) {
        let first = self.tasks.partition_point(|(p, _)| *p > prio);
        let at = self.tasks.range(first..).position(|(_, t)| *t == task).expect("the task is queued here");
        self.tasks.remove(first + at);
    }
    /// Before all of its priority, or behind them.
    #[cold]
    fn insert(&mut self, task: TaskId, prio: RtPrio, at_head: bool) {
        let at = self.tasks.partition_point(|(p, _)| if at_head { *p > prio } else { *p >= prio });
        self.tasks.insert(at, (prio, task));
    }

    #[cold]
    fn book(&mut self, now: Time) {
        // A task's time may begin before others' was booked last.
        let now = now.max(self.since);
        let ran = now.saturating_sub(std::mem::replace(&mut self.since, now));
        self.util.update(now, if self.running.is_some() { 1024 } else { 0 });
        if self.running.is_some() {
            self.throttle.used += ran;
        } else if self.fair_runs {
            self.throttle.served += ran;
        }
    }

    #[cold]
    fn throttle(&mut self, f: &Features, fair: u32, now: Time) -> bool {
        self.book(now);
        let (period, runtime) = (f.rt_period_us * 1000, f.rt_runtime_us * 1000);
        let t = &mut self.throttle;
        let before = t.on;
        match f.rt_throttle {
            RtThrottle::None => t.on = false,
            _ if runtime >= period => t.on = false,
            RtThrottle::Runtime => {
                let current = now / period;
                let passed = current - std::mem::replace(&mut t.period, current);
                t.used = t.used.saturating_sub(runtime.saturating_mul(passed));
                t.on = t.used > runtime;
            }
            RtThrottle::FairServer => {
                let wait = fair > 0 && self.running.is_some();
                // Who waited and had nothing has it when he comes back: balancing may take him round and round.
                let owed = t.served == 0 && now - t.seen < period;
                if fair > 0 {
                    t.seen = now;
                }
                if !t.on && t.starving.is_none_or(|since| now - since >= period && !owed) {
                    (t.starving, t.served) = (wait.then_some(now), 0);
                }
                // A moment without fair tasks does not begin the period anew.
                t.on = fair > 0 && t.served < period - runtime && t.starving.is_some_and(|s| now - s >= runtime);
            }
        }
        // Also for one that has become a real-time task since.
        t.on != before || (t.on && self.running.is_some())
    }
}

impl RtRq {
    /// Tasks that wait.
    #[inline]
    pub fn nr_queued(&self) -> u32 {
        self.0.as_ref().map_or(0, |q| q.tasks.len() as u32)
    }
    /// Tasks that wait and may not run.
    #[inline]
    pub fn nr_throttled(&self) -> u32 {
        if self.throttled() { self.nr_queued() } else { 0 }
    }
    /// Real-time tasks may not run.
    #[inline]
    pub fn throttled(&self) -> bool {
        self.0.as_ref().is_some_and(|q| q.throttle.on)
    }
    /// A real-time task runs.
    #[inline]
    pub fn runs(&self) -> bool {
        self.running().is_some()
    }
    /// The priority of the one that runs.
    #[inline]
    pub fn running(&self) -> Option<RtPrio> {
        self.0.as_ref()?.running
    }
    /// There has been a real-time task.
    #[inline]
    pub fn is_used(&self) -> bool {
        self.0.is_some()
    }
    /// If a real-time task runs and all that wait are lower: the highest of those (0: none). What is left when it goes.
    #[inline]
    pub fn left_alone(&self) -> Option<RtPrio> {
        let q = self.0.as_ref()?;
        let waiting = q.highest_waiting().unwrap_or(0);
        q.running.filter(|prio| waiting < *prio).map(|_| waiting)
    }
    /// Who is next, if real-time tasks may run.
    #[inline]
    pub fn next(&self) -> Option<TaskId> {
        let q = self.0.as_ref().filter(|q| !q.throttle.on)?;
        q.tasks.front().map(|(_, t)| *t)
    }
    /// Somebody of this priority or a higher one waits and may run.
    #[inline]
    pub fn waits_at(&self, prio: RtPrio) -> bool {
        self.0.as_ref().is_some_and(|q| !q.throttle.on && q.highest_waiting() >= Some(prio))
    }
    /// Somebody waits behind a real-time task, and another CPU might take him.
    #[inline]
    pub fn wants_push(&self) -> bool {
        let waits = |q: &Queue| q.highest_waiting().is_some() && q.highest_waiting() <= q.running;
        self.0.as_ref().is_some_and(|q| !q.throttle.on && waits(q))
    }
    /// Those that wait, the next one first.
    pub fn waiting(&self) -> impl Iterator<Item = (RtPrio, TaskId)> + '_ {
        self.0.iter().flat_map(|q| q.tasks.iter().copied())
    }
    /// The highest priority here, running or waiting; 0: none.
    pub fn level(&self) -> RtPrio {
        self.published_now().level
    }
    pub(super) fn published_now(&self) -> Published {
        self.0.as_ref().map_or(Published::default(), |q| q.published_now())
    }
    /// What others know is no longer so.
    #[inline]
    pub(crate) fn stale(&self) -> bool {
        self.0.as_ref().is_some_and(|q| q.published != q.published_now())
    }
    /// They know it now: what they knew before, and what they do.
    pub(super) fn publish(&mut self) -> (Published, Published) {
        let Some(q) = &mut self.0 else { return Default::default() };
        let new = q.published_now();
        (std::mem::replace(&mut q.published, new), new)
    }

    fn made(&mut self) -> &mut Queue {
        self.0.as_mut().expect("a real-time task has been queued here")
    }
    /// Behind all of its priority.
    pub fn enqueue(&mut self, task: TaskId, prio: RtPrio) {
        self.0.get_or_insert_default().insert(task, prio, false);
    }
    /// A waiting task leaves.
    pub fn dequeue(&mut self, task: TaskId, prio: RtPrio) {
        self.made().remove(task, prio);
    }
    /// A waiting task runs.
    pub fn set_next(&mut self, task: TaskId, prio: RtPrio, pinned: bool) {
        let q = self.made();
        q.remove(task, prio);
        (q.running, q.running_pinned) = (Some(prio), pinned);
    }
    /// The running task may run nowhere else from now on, or may again.
    pub fn set_running_pinned(&mut self, pinned: bool) {
        self.made().running_pinned = pinned;
    }
    /// The running task stops; `stays`: it waits again, before or behind all of its priority.
    pub fn put_prev(&mut self, task: TaskId, prio: RtPrio, stays: bool, at_head: bool) {
        let q = self.made();
        q.running = None;
        if stays {
            q.insert(task, prio, at_head);
        }
    }

    // ---- time ----------------------------------------------------------------------------------------------

    /// Book the time since the last call. Before anything that [`RtRq::running`] or `fair_runs` says changes.
    #[inline]
    pub fn account(&mut self, now: Time) {
        if let Some(q) = &mut self.0 {
            q.book(now);
        }
    }
    /// Whether a fair task runs from now on; after [`RtRq::account`].
    #[inline]
    pub fn set_fair_runs(&mut self, runs: bool) {
        if let Some(q) = &mut self.0 {
            q.fair_runs = runs;
        }
    }
    /// The part of the CPU that real-time tasks take, 0 to 1024, as of the last accounting.
    #[inline]
    pub fn taken(&self) -> u64 {
        self.0.as_ref().map_or(0, |q| q.util.get().min(1024))
    }
    /// May real-time tasks run? Decides anew; `fair`: how many fair tasks are runnable here. Returns true if the answer
    /// has changed, so that the CPU is to choose again.
    #[inline]
    pub fn throttle(&mut self, f: &Features, fair: u32, now: Time) -> bool {
        self.0.as_mut().is_some_and(|q| q.throttle(f, fair, now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Nanos = 1_000_000;

    fn order(rq: &RtRq) -> Vec<u32> {
        rq.waiting().map(|(_, t)| t.0).collect()
    }

    #[test]
    fn by_priority_then_first_in_first_out() {
        let mut rq = RtRq::default();
        for (task, prio) in [(0, 10), (1, 50), (2, 10), (3, 99), (4, 50)] {
            rq.enqueue(TaskId(task), prio);
        }
        assert_eq!(order(&rq), [3, 1, 4, 0, 2]);
        rq.set_next(TaskId(1), 50, false);
        assert_eq!((order(&rq), rq.level()), (vec![3, 4, 0, 2], 99));
        rq.put_prev(TaskId(1), 50, true, true);
        assert_eq!(order(&rq), [3, 1, 4, 0, 2], "preempted: the first of its priority");
        rq.set_next(TaskId(1), 50, false);
        rq.put_prev(TaskId(1), 50, true, false);
        assert_eq!(order(&rq), [3, 4, 1, 0, 2], "yielded: the last of its priority");
        rq.dequeue(TaskId(2), 10);
        assert_eq!(order(&rq), [3, 4, 1, 0]);
    }

    /// A real-time task that would run for ever beside `fair` fair ones: how much each class gets of `seconds`, by a tick of 1 ms.
    fn hog(f: &Features, fair: u32, seconds: u64) -> [Nanos; 3] {
        let mut rq = RtRq::default();
        rq.enqueue(TaskId(0), 1);
        let (mut running, mut had) = (2, [0; 3]);
        for tick in 0..seconds * 1000 {
            let now = tick * MS;
            rq.throttle(f, fair, now);
            let next = if rq.next().is_some() || (running == 0 && !rq.throttled()) {
                0
            } else if fair > 0 {
                1
            } else {
                2
            };
            if next != running {
                rq.account(now);
                if running == 0 {
                    rq.put_prev(TaskId(0), 1, true, true);
                }
                rq.set_fair_runs(next == 1);
                if next == 0 {
                    rq.set_next(TaskId(0), 1, false);
                }
                running = next;
            }
            had[running] += MS;
        }
        had
    }

    #[test]
    fn throttled_to_its_runtime_even_if_nobody_else_wants_the_cpu() {
        let f = Features { rt_throttle: RtThrottle::Runtime, ..Features::default() };
        for (fair, other) in [(1, 1), (0, 2)] {
            let had = hog(&f, fair, 20);
            assert!((had[0] / MS).abs_diff(19_000) <= 40, "{had:?}");
            assert_eq!(had[0] + had[other], 20_000 * MS, "{had:?}");
        }
        let f = Features { rt_runtime_us: f.rt_period_us, ..f };
        assert_eq!(hog(&f, 1, 20), [20_000 * MS, 0, 0], "as much as a period: no limit");
    }

    #[test]
    fn the_fair_server_serves_only_those_who_wait() {
        let f = Features { rt_throttle: RtThrottle::FairServer, ..Features::default() };
        let had = hog(&f, 1, 20);
        assert!((had[1] / MS).abs_diff(1000) <= 40, "{had:?}");
        assert_eq!(hog(&f, 0, 20), [20_000 * MS, 0, 0]);
        let f = Features { rt_throttle: RtThrottle::None, ..f };
        assert_eq!(hog(&f, 1, 20), [20_000 * MS, 0, 0]);
    }

    /// A fair task comes for 130 ms of every 390, as balancing takes it round three CPUs.
    #[test]
    fn the_fair_server_serves_who_comes_and_goes() {
        let f = Features { rt_throttle: RtThrottle::FairServer, ..Features::default() };
        let mut rq = RtRq::default();
        rq.enqueue(TaskId(0), 1);
        rq.set_next(TaskId(0), 1, false);
        let mut served = 0;
        for tick in 0..20_000 {
            let (now, fair) = (tick * MS, u32::from(tick % 390 < 130));
            rq.throttle(&f, fair, now);
            let on = rq.throttled();
            if on == rq.runs() {
                rq.account(now);
                rq.set_fair_runs(on);
                if on {
                    rq.put_prev(TaskId(0), 1, true, true);
                } else {
                    rq.set_next(TaskId(0), 1, false);
                }
            }
            served += u64::from(on);
        }
        assert!((500..=1000).contains(&served), "ms in 20 s: {served}");
    }

    #[test]
    fn what_is_taken_of_the_cpu_is_an_average() {
        let mut rq = RtRq::default();
        rq.enqueue(TaskId(0), 1);
        rq.set_next(TaskId(0), 1, false);
        rq.account(33 * MS);
        assert!((500..530).contains(&rq.taken()), "half of it after a half-life: {}", rq.taken());
        rq.account(10_000 * MS);
        assert_eq!(rq.taken(), 1024);
        rq.put_prev(TaskId(0), 1, false, false);
        rq.account(20_000 * MS);
        assert_eq!(rq.taken(), 0);
    }
}
