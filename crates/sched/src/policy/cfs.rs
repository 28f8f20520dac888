//! The completely fair scheduler, 2.6.23 to 6.5 (mechanisms A.1 and A.2).
//!
//! Each entity has a virtual runtime that grows with the time it runs, more slowly the heavier it is. The queue is
//! ordered by it and the leftmost entity runs. `min_vruntime` is monotonic; sleepers are placed a little before it, new
//! tasks a slice behind. Three hints may override the order where that is not unfair by more than a wake-up
//! granularity: `next` (run this, it was just woken), `last` (return to the one that was preempted), `skip` (it yielded).
//!
//! Invariant: the running entity is not in the timeline; `total_weight` and `nr` count it all the same.

use super::groups::{At, Fair};
use super::timeline::Timeline;
use super::{Dequeue, Enqueue, Pick, Policy, Put, WEIGHT_IDLE, nice_to_weight};
use crate::features::Features;
use contend_platform::{TaskId, Time};

/// sched_nr_latency: above this many runnable entities the period grows (latency / min_granularity).
const NR_LATENCY: u64 = 8;

/// The policy's parameters, scaled, in ns.
#[derive(Clone, Debug)]
pub struct Cfs {
    latency: u64,
    min_granularity: u64,
    wakeup_granularity: u64,
    gentle_fair_sleepers: bool,
    start_debit: bool,
    last_buddy: bool,
    wakeup_next_hint: bool,
    yield_skip: bool,
    wakeup_preemption: bool,
}

/// An entity as the timeline holds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Node {
    vruntime: i64,
    /// Ties: later insertion goes after.
    seq: u64,
    task: TaskId,
    weight: u64,
}

impl Node {
    fn of(task: TaskId, t: &CfsTask) -> Self {
        Node { vruntime: t.vruntime, seq: t.seq, task, weight: t.weight }
    }
}

/// One run queue.
#[derive(Clone, Debug, Default)]
pub struct CfsRq {
    timeline: Timeline<Node>,
    min_vruntime: i64,
    /// Of all runnable entities, the running one included.
    total_weight: u64,
    /// Likewise.
    nr: u64,
    seq: u64,
    /// The running entity's virtual runtime, as last accounted.
    curr: Option<Running>,
    /// Hints. At pick time a hinted entity is in the timeline and its node here is the one there.
    next: Option<Node>,
    last: Option<Node>,
    skip: Option<Node>,
}

/// What the queue knows of the running entity.
#[derive(Clone, Copy, Debug)]
struct Running {
    vruntime: i64,
    weight: u64,
    /// Accounted up to here.
    at: Time,
}

/// One task.
#[derive(Clone, Debug)]
pub struct CfsTask {
    vruntime: i64,
    weight: u64,
    exec_start: Time,
    sum_exec: u64,
    prev_sum_exec: u64,
    seq: u64,
}

impl Cfs {
    /// Parameters from a feature set, for a machine of `cpus` CPUs.
    pub fn new(f: &Features, cpus: usize) -> Self {
        let scale = f.scale(cpus);
        Cfs {
            latency: f.latency_ns * scale,
            min_granularity: f.min_granularity_ns * scale,
            wakeup_granularity: f.wakeup_granularity_ns * scale,
            gentle_fair_sleepers: f.gentle_fair_sleepers,
            start_debit: f.start_debit,
            last_buddy: f.last_buddy,
            wakeup_next_hint: f.wakeup_next_hint,
            yield_skip: f.yield_skip,
            wakeup_preemption: f.wakeup_preemption,
        }
    }

    /// The time in which every runnable entity runs once.
    fn period(&self, nr: u64) -> u64 {
        if nr <= NR_LATENCY { self.latency } else { nr * self.min_granularity }
    }

    /// An entity's share of the period. `queued`: it is already counted in `rq`.
    fn slice(&self, rq: &CfsRq, weight: u64, queued: bool) -> u64 {
        let (nr, total) = if queued { (rq.nr, rq.total_weight) } else { (rq.nr + 1, rq.total_weight + weight) };
        // At most 10^5 entities x 3 ms x 88,761 < 2^63.
        self.period(nr) * weight / total.max(1)
    }

    /// How far ahead an entity of this weight must be to preempt.
    fn gran(&self, weight: u64) -> i64 {
        (self.wakeup_granularity * 1024 / weight) as i64
    }

    /// Is running `a` (virtual runtime `vr_a`) instead of `b` unfair by more than `b`'s granularity?
    fn unfair(&self, vr_a: i64, b: &Node) -> bool {
        vr_a - b.vruntime > self.gran(b.weight)
    }

    fn update_curr(rq: &mut CfsRq, t: &mut CfsTask, now: Time) {
        let delta = now - t.exec_start;
        t.exec_start = now;
        t.sum_exec += delta;
        t.vruntime += (delta * 1024 / t.weight) as i64;
        rq.curr = Some(Running { vruntime: t.vruntime, weight: t.weight, at: now });
        rq.update_min();
    }

    fn place(&self, rq: &CfsRq, t: &mut CfsTask, new: bool) {
        let base = if new {
            let debit = self.slice(rq, t.weight, false) * 1024 / t.weight;
            if self.start_debit { rq.min_vruntime + debit as i64 } else { rq.min_vruntime }
        } else if self.gentle_fair_sleepers {
            rq.min_vruntime - (self.latency / 2) as i64
        } else {
            rq.min_vruntime - self.latency as i64
        };
        t.vruntime = t.vruntime.max(base);
    }
}

impl CfsRq {
    fn update_min(&mut self) {
        let left = self.timeline.first().map(|n| n.vruntime);
        let candidate = match (self.curr.map(|c| c.vruntime), left) {
            (Some(c), Some(l)) => c.min(l),
            (Some(v), None) | (None, Some(v)) => v,
            (None, None) => return,
        };
        self.min_vruntime = self.min_vruntime.max(candidate);
    }

    /// Account the running entity up to `now` in the queue's own copy: whoever is placed now is placed by where the
    /// queue is now, not by where it was at the last tick.
    fn advance(&mut self, now: Time) {
        if let Some(c) = &mut self.curr {
            c.vruntime += (now.saturating_sub(c.at) * 1024 / c.weight) as i64;
            c.at = now;
            self.update_min();
        }
    }

    fn insert(&mut self, task: TaskId, t: &mut CfsTask) {
        self.seq += 1;
        t.seq = self.seq;
        let node = Node::of(task, t);
        self.timeline.insert(node);
        for hint in [&mut self.next, &mut self.last, &mut self.skip].into_iter().flatten() {
            if hint.task == task {
                *hint = node;
            }
        }
    }

    fn remove(&mut self, task: TaskId, t: &CfsTask) {
        let there = self.timeline.remove(&Node::of(task, t));
        assert!(there, "{task:?} is not in the timeline");
    }

    fn clear_hints(&mut self, task: TaskId) {
        for hint in [&mut self.next, &mut self.last, &mut self.skip] {
            if hint.is_some_and(|n| n.task == task) {
                *hint = None;
            }
        }
    }
}

impl Policy for Cfs {
    type Rq = CfsRq;
    type Task = CfsTask;

    fn new_rq(&self) -> CfsRq {
        CfsRq::default()
    }
    fn new_task(&self, nice: i8) -> CfsTask {
        CfsTask {
            vruntime: i64::MIN / 2,
            weight: nice_to_weight(nice),
            exec_start: 0,
            sum_exec: 0,
            prev_sum_exec: 0,
            seq: 0,
        }
    }

    fn enqueue(&self, rq: &mut CfsRq, task: TaskId, t: &mut CfsTask, why: Enqueue, now: Time) {
        rq.advance(now);
        match why {
            Enqueue::New => self.place(rq, t, true),
            Enqueue::Wakeup { moved } => {
                if moved {
                    t.vruntime += rq.min_vruntime;
                }
                self.place(rq, t, false);
            }
            Enqueue::Migrate => t.vruntime += rq.min_vruntime,
        }
        rq.total_weight += t.weight;
        rq.nr += 1;
        rq.insert(task, t);
        rq.update_min();
    }

    fn dequeue(&self, rq: &mut CfsRq, task: TaskId, t: &mut CfsTask, why: Dequeue, now: Time) {
        rq.advance(now);
        rq.remove(task, t);
        rq.clear_hints(task);
        rq.total_weight -= t.weight;
        rq.nr -= 1;
        rq.update_min();
        if why == Dequeue::Migrate {
            t.vruntime -= rq.min_vruntime;
        }
    }

    fn pick_next(&self, rq: &mut CfsRq, _now: Time) -> Pick {
        let Some(left) = rq.timeline.first().copied() else { return Pick::Nothing };
        let mut choice = left.task;
        if rq.skip.is_some_and(|n| n.task == left.task)
            && let Some(second) = rq.timeline.iter().nth(1)
            && !self.unfair(second.vruntime, &left)
        {
            choice = second.task;
        }
        for hint in [rq.last, rq.next].into_iter().flatten() {
            if !self.unfair(hint.vruntime, &left) {
                choice = hint.task;
            }
        }
        rq.clear_hints(choice);
        Pick::Task(choice)
    }

    fn set_next(&self, rq: &mut CfsRq, task: TaskId, t: &mut CfsTask, now: Time) {
        rq.remove(task, t);
        t.exec_start = now;
        t.prev_sum_exec = t.sum_exec;
        rq.curr = Some(Running { vruntime: t.vruntime, weight: t.weight, at: now });
        rq.update_min();
    }

    fn put_prev(&self, rq: &mut CfsRq, task: TaskId, t: &mut CfsTask, why: Put, now: Time) -> bool {
        Self::update_curr(rq, t, now);
        match why {
            Put::Preempted => rq.insert(task, t),
            Put::Yielded => {
                rq.clear_hints(task);
                rq.skip = (self.yield_skip && rq.nr > 1).then(|| Node::of(task, t));
                rq.insert(task, t);
            }
            Put::Sleep | Put::Exit => {
                rq.clear_hints(task);
                rq.total_weight -= t.weight;
                rq.nr -= 1;
            }
        }
        rq.curr = None;
        rq.update_min();
        false
    }

    fn tick(&self, rq: &mut CfsRq, task: TaskId, t: &mut CfsTask, now: Time) -> bool {
        Self::update_curr(rq, t, now);
        if rq.nr <= 1 {
            return false;
        }
        let ideal = self.slice(rq, t.weight, true);
        let ran = t.sum_exec - t.prev_sum_exec;
        if ran > ideal {
            rq.clear_hints(task);
            return true;
        }
        if ran < self.min_granularity {
            return false;
        }
        rq.timeline.first().is_some_and(|left| t.vruntime - left.vruntime > ideal as i64)
    }

    fn wakeup_preempt(
        &self,
        rq: &mut CfsRq,
        (curr_id, curr): (TaskId, &mut CfsTask),
        (task, woken): (TaskId, &CfsTask),
        now: Time,
    ) -> bool {
        Self::update_curr(rq, curr, now);
        if !self.wakeup_preemption || curr.vruntime - woken.vruntime <= self.gran(woken.weight) {
            return false;
        }
        if self.wakeup_next_hint {
            rq.next = Some(Node::of(task, woken));
        }
        if self.last_buddy && rq.nr >= NR_LATENCY {
            rq.last = Some(Node::of(curr_id, curr));
        }
        true
    }

    fn yield_to(&self, rq: &mut CfsRq, task: TaskId, t: &CfsTask) -> bool {
        rq.next = Some(Node::of(task, t));
        true
    }
    fn detach_sleeping(&self, t: &mut CfsTask, rq_floor: i64) {
        t.vruntime -= rq_floor;
    }
    fn floor(&self, rq: &CfsRq) -> i64 {
        rq.min_vruntime
    }
    fn candidates(&self, rq: &CfsRq, max: usize, into: &mut Vec<TaskId>) {
        into.extend(rq.timeline.iter().rev().take(max).map(|n| n.task));
    }
    /// Its virtual runtime stays: that of the others moves while they leave one by one.
    fn park(&self, rq: &mut CfsRq, task: TaskId, t: &mut CfsTask, now: Time) {
        self.dequeue(rq, task, t, Dequeue::Sleep, now);
    }
    fn unpark(&self, rq: &mut CfsRq, task: TaskId, t: &mut CfsTask, now: Time) {
        self.enqueue(rq, task, t, Enqueue::Wakeup { moved: false }, now);
    }
    fn is_buddy(&self, rq: &CfsRq, task: TaskId) -> bool {
        [rq.next, rq.last].into_iter().flatten().any(|n| n.task == task)
    }
    fn last_ran(&self, t: &CfsTask) -> Time {
        t.exec_start
    }
    fn weight(&self, t: &CfsTask) -> u64 {
        t.weight
    }
    fn set_idle(&self, t: &mut CfsTask) {
        t.weight = WEIGHT_IDLE;
    }
    fn set_nice(&self, t: &mut CfsTask, nice: i8) {
        t.weight = nice_to_weight(nice);
    }
    fn sum_exec(&self, t: &CfsTask) -> u64 {
        t.sum_exec
    }
}

impl Fair for Cfs {
    /// The virtual runtime stays: what has been had is not counted again.
    fn reweight(&self, rq: &mut CfsRq, id: TaskId, t: &mut CfsTask, weight: u64, at: At, now: Time) {
        match at {
            At::Out(_) => return t.weight = weight,
            At::Running => Self::update_curr(rq, t, now),
            At::Queued | At::Delayed => {
                rq.advance(now);
                rq.remove(id, t);
            }
        }
        rq.total_weight = rq.total_weight - t.weight + weight;
        t.weight = weight;
        if at == At::Running {
            rq.curr = Some(Running { vruntime: t.vruntime, weight, at: now });
        } else {
            rq.insert(id, t);
        }
        rq.update_min();
    }
    fn total_weight(&self, rq: &CfsRq) -> u64 {
        rq.total_weight
    }
    fn next_hint(&self, rq: &CfsRq) -> Option<TaskId> {
        rq.next.map(|n| n.task)
    }
}

#[cfg(test)]
mod tests;
