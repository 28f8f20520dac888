//! Earliest eligible virtual deadline first, 6.6 to today (mechanisms A.4).
//!
//! V is the weighted mean virtual runtime of all queued entities and the running one. An entity is eligible while it
//! has not had more than its share (`vruntime <= V`); among the eligible the earliest deadline runs, where a deadline is
//! one slice of service after the request began. A sleeper keeps its lag `V - vruntime`, clamped; with DELAY_DEQUEUE a
//! sleeper that has had too much stays queued until the others have caught up.
//!
//! With NEXT_BUDDY a woken task that is eligible preempts and is picked next, whatever its deadline and the running task's protection
//! are; a new task has to wait for its turn. No preset has it on (docs/internals/eevdf-wakeups.md).
//!
//! Arithmetic: V is never divided out for the eligibility test: `vruntime * W <= S` with W the sum of weights and S the
//! sum of weight x vruntime, in 128 bits (vruntime < 2^62, W < 2^34), so the test is exact and the invariant that the lags
//! sum to zero holds without rounding.

use super::groups::{At, Fair};
use super::timeline::Timeline;
use super::{Dequeue, Enqueue, Pick, Policy, Put, WEIGHT_IDLE, nice_to_weight};
use crate::features::Features;
use contend_platform::{TaskId, Time};

/// The policy's parameters, in ns.
#[derive(Clone, Debug)]
pub struct Eevdf {
    base_slice: u64,
    tick: u64,
    place_lag: bool,
    run_to_parity: bool,
    delay_dequeue: bool,
    yield_forfeits: bool,
    pick_buddy: bool,
    next_buddy: bool,
    wakeup_preemption: bool,
    custom_slice: bool,
    preempt_short: bool,
    parity_min_slice: bool,
}

/// A queued entity, ordered by deadline, then by insertion.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Node {
    deadline: i64,
    seq: u64,
    vruntime: i64,
    task: TaskId,
    delayed: bool,
}

/// One run queue.
#[derive(Clone, Debug, Default)]
pub struct EevdfRq {
    queue: Timeline<Node>,
    /// Sum of weights of the queued entities.
    weight: i64,
    /// Sum of weight x vruntime of the queued entities.
    weighted: i128,
    /// The running entity's (vruntime, weight), as last accounted.
    curr: Option<(i64, i64)>,
    /// Up to when that was.
    curr_at: Time,
    /// The entity that was put back last and the vruntime up to which its slice is protected.
    protected: Option<(Node, i64)>,
    /// V when last somebody was queued: where an empty queue starts again.
    floor: i64,
    /// The slices of their own that queued entities which are awake have asked for, in no order.
    slices: Vec<u64>,
    /// How many queued entities are awake and have asked for none.
    plain: usize,
    /// Hint: queued or running here, awake or not. Until it is picked, leaves, or has used its request up.
    next: Option<TaskId>,
    seq: u64,
}

/// One task.
#[derive(Clone, Debug)]
pub struct EevdfTask {
    vruntime: i64,
    deadline: i64,
    /// Protected until its vruntime passes this.
    vprot: i64,
    vlag: i64,
    weight: u64,
    /// In ns, as asked for; 0: the base slice.
    slice: u64,
    exec_start: Time,
    sum_exec: u64,
    seq: u64,
    delayed: bool,
}

impl EevdfTask {
    /// Lag and what is left of the request are service owed: in virtual time they shrink as the weight grows.
    fn set_weight(&mut self, weight: u64) {
        let scale = |v: i64| scaled(v, self.weight, weight);
        self.vlag = scale(self.vlag);
        self.deadline = self.vruntime + scale(self.deadline - self.vruntime);
        if self.vprot > self.vruntime {
            self.vprot = self.vruntime + scale(self.vprot - self.vruntime);
        }
        self.weight = weight;
    }
}

/// A span of one weight's virtual time in another's.
fn scaled(span: i64, from: u64, to: u64) -> i64 {
    (i128::from(span) * i128::from(from) / i128::from(to)) as i64
}

impl EevdfRq {
    /// (S, W) over the queued entities and the running one.
    #[inline]
    fn sums(&self) -> (i128, i64) {
        let (v, w) = self.curr.unwrap_or((0, 0));
        (self.weighted + i128::from(v) * i128::from(w), self.weight + w)
    }

    /// Account the running entity up to `now` in the queue's own copy: V is wanted as it is now, not as it was at the
    /// last tick.
    fn advance(&mut self, now: Time) {
        if let Some((vruntime, weight)) = &mut self.curr {
            *vruntime += (now.saturating_sub(self.curr_at) * 1024) as i64 / *weight;
            self.curr_at = now;
        }
    }

    fn set_curr(&mut self, t: &EevdfTask, now: Time) {
        self.curr = Some((t.vruntime, t.weight as i64));
        self.curr_at = now;
    }

    /// V, rounded down; the floor when nobody is there.
    fn average(&self) -> i64 {
        let (s, w) = self.sums();
        if w == 0 {
            return self.floor;
        }
        // 128-bit division is slow; most sums fit 64 bits.
        match i64::try_from(s) {
            Ok(s) => s.div_euclid(w),
            Err(_) => s.div_euclid(w.into()) as i64,
        }
    }

    fn eligible(&self, vruntime: i64) -> bool {
        let (s, w) = self.sums();
        i128::from(vruntime) * i128::from(w) <= s
    }

    fn insert(&mut self, task: TaskId, t: &mut EevdfTask) {
        self.seq += 1;
        t.seq = self.seq;
        self.queue.insert(Node::of(task, t));
        self.weight += t.weight as i64;
        self.weighted += i128::from(t.weight) * i128::from(t.vruntime);
        match t.slice {
            _ if t.delayed => {}
            0 => self.plain += 1,
            slice => self.slices.push(slice),
        }
    }

    fn remove(&mut self, task: TaskId, t: &EevdfTask) {
        let there = self.queue.remove(&Node::of(task, t));
        assert!(there, "{task:?} is not queued");
        self.floor = self.average();
        self.weight -= t.weight as i64;
        self.weighted -= i128::from(t.weight) * i128::from(t.vruntime);
        match t.slice {
            _ if t.delayed => {}
            0 => self.plain -= 1,
            slice => {
                let at = self.slices.iter().position(|s| *s == slice).expect("it was queued with its slice");
                self.slices.swap_remove(at);
            }
        }
        if self.next == Some(task) {
            self.next = None;
        }
    }

    fn earliest_eligible(&self) -> Option<&Node> {
        let (s, w) = self.sums();
        self.queue.iter().find(|n| i128::from(n.vruntime) * i128::from(w) <= s)
    }
}

impl Node {
    fn of(task: TaskId, t: &EevdfTask) -> Self {
        Node { deadline: t.deadline, seq: t.seq, vruntime: t.vruntime, task, delayed: t.delayed }
    }
}

impl Eevdf {
    /// Parameters from a feature set, for a machine of `cpus` CPUs whose tick lasts `tick_ns`.
    pub fn new(f: &Features, cpus: usize, tick_ns: u64) -> Self {
        Eevdf {
            base_slice: f.base_slice_ns * f.scale(cpus),
            tick: tick_ns,
            place_lag: f.place_lag,
            run_to_parity: f.run_to_parity,
            delay_dequeue: f.delay_dequeue,
            yield_forfeits: f.yield_forfeits,
            pick_buddy: f.pick_buddy,
            next_buddy: f.next_buddy,
            wakeup_preemption: f.wakeup_preemption,
            custom_slice: f.custom_slice,
            preempt_short: f.preempt_short,
            parity_min_slice: f.parity_min_slice,
        }
    }

    /// A slice in ns: the one asked for, or the base slice.
    fn slice(&self, asked: u64) -> u64 {
        if asked == 0 { self.base_slice } else { asked }
    }

    /// One slice in the entity's virtual time.
    fn vslice(&self, t: &EevdfTask) -> i64 {
        (self.slice(t.slice) * 1024 / t.weight) as i64
    }

    /// The shortest slice of the running entity and of those queued that are awake, in ns.
    fn min_slice(&self, rq: &EevdfRq, curr: &EevdfTask) -> u64 {
        let own = self.slice(curr.slice);
        let own = if rq.plain > 0 { own.min(self.base_slice) } else { own };
        rq.slices.iter().copied().fold(own, u64::min)
    }

    /// The bound of |lag|, in the entity's virtual time: two slices or one tick.
    fn lag_limit(&self, t: &EevdfTask) -> i64 {
        (self.tick.max(2 * self.slice(t.slice)) * 1024 / t.weight) as i64
    }

    fn lag(&self, rq: &EevdfRq, t: &EevdfTask) -> i64 {
        let limit = self.lag_limit(t);
        (rq.average() - t.vruntime).clamp(-limit, limit)
    }

    /// Account the running entity up to `now`.
    fn account(rq: &mut EevdfRq, t: &mut EevdfTask, now: Time) {
        let delta = now - t.exec_start;
        t.exec_start = now;
        t.sum_exec += delta;
        t.vruntime += (delta * 1024 / t.weight) as i64;
        rq.set_curr(t, now);
    }

    /// The same; true if whoever finds it out has to reschedule: its request is used up, or its protection is over.
    fn time_is_over(&self, rq: &mut EevdfRq, t: &mut EevdfTask, now: Time) -> bool {
        self.update_curr(rq, t, now) || self.is_past_protection(t)
    }

    /// Its protection is over and that matters by itself, whatever is left of its request.
    fn is_past_protection(&self, t: &EevdfTask) -> bool {
        self.parity_min_slice && t.vruntime >= t.vprot
    }

    /// The same; true if it has used its request up (it has a new deadline then).
    fn update_curr(&self, rq: &mut EevdfRq, t: &mut EevdfTask, now: Time) -> bool {
        Self::account(rq, t, now);
        if t.vruntime < t.deadline {
            return false;
        }
        t.deadline = t.vruntime + self.vslice(t);
        true
    }

    /// Place an entity that joins, with its lag: at V - lag x (W + w) / W, so that its lag is what it was once it counts.
    fn place(&self, rq: &EevdfRq, t: &mut EevdfTask) {
        let (_, w) = rq.sums();
        let lag = if self.place_lag && w > 0 && t.vlag != 0 {
            (i128::from(t.vlag) * i128::from(w + t.weight as i64) / i128::from(w)) as i64
        } else {
            0
        };
        t.vruntime = rq.average() - lag;
        // Protection was given in the time of the queue that the entity left.
        t.vprot = i64::MIN;
    }
}

impl Policy for Eevdf {
    type Rq = EevdfRq;
    type Task = EevdfTask;

    fn new_rq(&self) -> EevdfRq {
        EevdfRq::default()
    }
    fn new_task(&self, nice: i8) -> EevdfTask {
        EevdfTask {
            vruntime: 0,
            deadline: 0,
            vprot: 0,
            vlag: 0,
            weight: nice_to_weight(nice),
            slice: 0,
            exec_start: 0,
            sum_exec: 0,
            seq: 0,
            delayed: false,
        }
    }

    fn enqueue(&self, rq: &mut EevdfRq, task: TaskId, t: &mut EevdfTask, why: Enqueue, now: Time) {
        rq.advance(now);
        let left = t.deadline - t.vruntime;
        self.place(rq, t);
        t.deadline = t.vruntime
            + match why {
                // New tasks get half a slice: they come in between the others.
                Enqueue::New => self.vslice(t) / 2,
                Enqueue::Wakeup { .. } => self.vslice(t),
                // A move is not a new request.
                Enqueue::Migrate => left,
            };
        rq.insert(task, t);
    }

    fn dequeue(&self, rq: &mut EevdfRq, task: TaskId, t: &mut EevdfTask, why: Dequeue, now: Time) {
        rq.advance(now);
        let lag = self.lag(rq, t);
        rq.remove(task, t);
        t.delayed = false;
        // Whoever sat its debt out in the queue has none left, and earns nothing by it.
        t.vlag = if why == Dequeue::Sleep { lag.min(0) } else { lag };
    }

    fn pick_next(&self, rq: &mut EevdfRq, _now: Time) -> Pick {
        let protected = rq.protected.take();
        if self.pick_buddy
            && let Some(next) = rq.next
            && let Some(n) = rq.queue.iter().find(|n| n.task == next)
            && !n.delayed
            && rq.eligible(n.vruntime)
        {
            return Pick::Task(next);
        }
        if self.run_to_parity
            && let Some((n, vprot)) = protected
            && n.vruntime < vprot
            && rq.eligible(n.vruntime)
            && rq.queue.contains(&n)
        {
            return Pick::Task(n.task);
        }
        // The entity with the smallest vruntime is eligible, so there is one whenever the queue is not empty.
        match rq.earliest_eligible() {
            Some(n) if n.delayed => Pick::Finished(n.task),
            Some(n) => Pick::Task(n.task),
            None => Pick::Nothing,
        }
    }

    fn set_next(&self, rq: &mut EevdfRq, task: TaskId, t: &mut EevdfTask, now: Time) {
        rq.remove(task, t);
        t.exec_start = now;
        if t.vprot <= t.vruntime {
            t.vprot = t.deadline;
            if self.parity_min_slice {
                let least = self.min_slice(rq, t) * 1024 / t.weight;
                t.vprot = t.vprot.min(t.vruntime + least as i64);
            }
        }
        rq.set_curr(t, now);
    }

    fn put_prev(&self, rq: &mut EevdfRq, task: TaskId, t: &mut EevdfTask, why: Put, now: Time) -> bool {
        let used_up = self.update_curr(rq, t, now);
        if rq.next == Some(task) && (used_up || why != Put::Preempted) {
            rq.next = None;
        }
        let eligible = rq.eligible(t.vruntime);
        if why == Put::Yielded && eligible {
            if self.yield_forfeits {
                t.vruntime = t.vruntime.max(t.deadline);
                t.deadline = t.vruntime + self.vslice(t);
            } else {
                t.deadline += self.vslice(t);
            }
        }
        let average = rq.average();
        let limit = self.lag_limit(t);
        let lag = (average - t.vruntime).clamp(-limit, limit);
        rq.floor = average;
        rq.curr = None;
        match why {
            Put::Preempted | Put::Yielded => {
                rq.insert(task, t);
                rq.protected = (why == Put::Preempted).then(|| (Node::of(task, t), t.vprot));
                false
            }
            Put::Sleep if self.delay_dequeue && !eligible => {
                t.delayed = true;
                t.vprot = t.vruntime;
                rq.insert(task, t);
                true
            }
            Put::Sleep | Put::Exit => {
                t.vlag = lag;
                t.vprot = i64::MIN;
                false
            }
        }
    }

    fn tick(&self, rq: &mut EevdfRq, task: TaskId, t: &mut EevdfTask, now: Time) -> bool {
        let used_up = self.update_curr(rq, t, now);
        if used_up && rq.next == Some(task) {
            rq.next = None;
        }
        (used_up || self.is_past_protection(t)) && !rq.queue.is_empty()
    }

    fn wakeup_preempt(
        &self,
        rq: &mut EevdfRq,
        (_, curr): (TaskId, &mut EevdfTask),
        (task, woken): (TaskId, &EevdfTask),
        now: Time,
    ) -> bool {
        if self.time_is_over(rq, curr, now) {
            return true;
        }
        if !self.wakeup_preemption {
            return false;
        }
        if self.next_buddy && woken.sum_exec > 0 {
            let eligible = rq.eligible(woken.vruntime);
            if eligible {
                rq.next = Some(task);
            }
            return eligible;
        }
        if self.preempt_short && self.slice(woken.slice) < self.slice(curr.slice) {
            curr.vprot = curr.vruntime;
        }
        let curr_eligible = rq.eligible(curr.vruntime);
        if curr_eligible && self.run_to_parity && curr.vruntime < curr.vprot {
            return false;
        }
        rq.earliest_eligible()
            .is_some_and(|best| best.task == task && (!curr_eligible || best.deadline <= curr.deadline))
    }

    fn time_is_up(
        &self,
        rq: &mut EevdfRq,
        (_, curr): (TaskId, &mut EevdfTask),
        _: (TaskId, &EevdfTask),
        now: Time,
    ) -> bool {
        self.time_is_over(rq, curr, now)
    }

    fn revive(&self, rq: &mut EevdfRq, task: TaskId, t: &mut EevdfTask, _now: Time) {
        // V as of when the running entity was last accounted for: what it has run since does not tell against the woken one, which
        // may then be owed that (docs/internals/eevdf-wakeups.md).
        rq.remove(task, t);
        t.delayed = false;
        if t.vruntime < rq.average() {
            // It has overslept its debt; it starts anew without credit.
            t.vlag = 0;
            self.place(rq, t);
            t.deadline = t.vruntime + self.vslice(t);
        }
        rq.insert(task, t);
    }

    fn yield_to(&self, rq: &mut EevdfRq, task: TaskId, _: &EevdfTask) -> bool {
        rq.next = Some(task);
        true
    }

    fn candidates(&self, rq: &EevdfRq, max: usize, into: &mut Vec<TaskId>) {
        into.extend(rq.queue.iter().rev().filter(|n| !n.delayed).take(max).map(|n| n.task));
    }
    fn last_ran(&self, t: &EevdfTask) -> Time {
        t.exec_start
    }
    fn weight(&self, t: &EevdfTask) -> u64 {
        t.weight
    }
    fn set_idle(&self, t: &mut EevdfTask) {
        t.set_weight(WEIGHT_IDLE);
    }
    fn set_nice(&self, t: &mut EevdfTask, nice: i8) {
        t.set_weight(nice_to_weight(nice));
    }
    fn set_slice(&self, t: &mut EevdfTask, slice: u64) {
        // What is left of a request stays: the next one is as long as asked for.
        if self.custom_slice {
            t.slice = slice;
        }
    }
    fn sum_exec(&self, t: &EevdfTask) -> u64 {
        t.sum_exec
    }
}

impl Fair for Eevdf {
    /// At V - lag x w / w': V stays where it is, and so does the service owed.
    fn reweight(&self, rq: &mut EevdfRq, id: TaskId, t: &mut EevdfTask, weight: u64, at: At, now: Time) {
        match at {
            At::Out(_) => return t.set_weight(weight),
            // Whether its request is used up is found at the next tick.
            At::Running => Self::account(rq, t, now),
            At::Queued | At::Delayed => rq.advance(now),
        }
        let average = rq.average();
        let vruntime = average - scaled(average - t.vruntime, t.weight, weight);
        let moved = |t: &mut EevdfTask| {
            t.set_weight(weight);
            let by = vruntime - t.vruntime;
            (t.vruntime, t.deadline) = (vruntime, t.deadline + by);
            t.vprot = t.vprot.saturating_add(by);
        };
        if at == At::Running {
            moved(t);
            rq.set_curr(t, now);
        } else {
            let hint = rq.next;
            rq.remove(id, t);
            moved(t);
            rq.insert(id, t);
            rq.next = hint;
        }
    }
    fn total_weight(&self, rq: &EevdfRq) -> u64 {
        rq.sums().1 as u64
    }
    fn next_hint(&self, rq: &EevdfRq) -> Option<TaskId> {
        rq.next
    }
}

#[cfg(test)]
mod tests;
