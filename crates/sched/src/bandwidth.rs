//! Bandwidth of groups (`cpu.max`): pools that CPUs draw slices of run time from, queues that stop when they have none left.
//!
//! ```text
//!  quota a period ──▶ pool (a lock a group) ── slice ──▶ left on a CPU (its run queue's lock) ──▶ charged as tasks run
//!                        ▲                                   │
//!                        └───────── all but 1 ms ────────────┘ when the group's last task there sleeps
//! ```
//!
//! A task that may not run since a group of its has nothing left is *parked*: it is out of its class's hands and in no sum of the
//! run queue, though it stays runnable. The shape, and what each era does: `docs/internals/bandwidth.md`.

mod pool;

use crate::cpuset::CpuMask;
use crate::features::CfsBandwidth;
use crate::kernel::{Held, Kernel};
use crate::policy::Policy;
use crate::policy::groups::{GroupId, Groups};
use crate::rq::RqData;
use crate::rq_lock::{KernelLock, LockFactory};
use crate::task::TASKS_MAX;
use contend_platform::{Account, CpuId, Ipi, Nanos, Platform, SchedPlatform, TaskId, Time, Work};
pub use pool::{CpuStat, Limit, Pool};
use std::sync::atomic::Ordering::Relaxed;

/// What a group keeps on a CPU where it sleeps (`min_cfs_rq_runtime`).
const MIN_LEFT: i64 = 1_000_000;
/// How long after a return to the pool it is handed out (`cfs_bandwidth_slack_period`).
const SLACK_PERIOD: Nanos = 5_000_000;
/// Not worth it if the pool is filled this soon after that (`min_bandwidth_expiration`).
const MIN_EXPIRATION: Nanos = 2_000_000;

/// All groups' bandwidth.
pub struct Bandwidth<P: Platform> {
    /// Of the groups that have a limit, in their order.
    limited: Vec<Limited<P>>,
    /// By [`GroupId`]: itself and those that it is in, from the inside, if limited.
    over: Vec<Box<[u16]>>,
    /// CPUs that were sent an interrupt since some group has time again there. An observer's: the request comes with the interrupt.
    told: CpuMask,
}

/// A group with a limit.
struct Limited<P: Platform> {
    group: GroupId,
    /// Guards `pool`; taken inside run-queue locks (`cfs_b->lock`).
    lock: KernelLock<P>,
    pool: P::Cell<Pool>,
    /// In which period the pool is (`expires_seq`); on the line of `pool`.
    period: P::Word,
    /// Where it is throttled. Others look at it without a lock and without simulated cost.
    throttled: CpuMask,
}

/// A limited group on a CPU; guarded by the lock of its run queue.
#[derive(Clone, Debug, Default)]
pub struct Local {
    /// Run time left; below 0: a debt.
    left: i64,
    /// The period in which it was drawn.
    drawn_in: u64,
    /// Members that are queued or run here.
    nr: u32,
    /// Throttled since.
    throttled: Option<Time>,
    /// It has time again, and its CPU does not know yet.
    refilled: bool,
}

/// What a run queue has for limited groups.
#[derive(Clone, Debug, Default)]
pub struct Locals {
    /// In the order of [`Bandwidth::limited`]; none: no group has a limit.
    groups: Box<[Local]>,
    /// Tasks that may not run, in the order in which they were stopped.
    parked: Vec<TaskId>,
    /// Since when the running task is to be charged.
    since: Time,
}

impl Locals {
    /// With nothing left for any of so many limited groups.
    pub(crate) fn new(limited: usize) -> Self {
        Locals { groups: vec![Local::default(); limited].into(), ..Locals::default() }
    }
}

/// The timers of limited groups, among those of tasks: the end of a period, and what was returned is handed out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Timer {
    Period(usize),
    Slack(usize),
}

impl Timer {
    fn id(self) -> TaskId {
        let n = match self {
            Timer::Period(i) => 2 * i,
            Timer::Slack(i) => 2 * i + 1,
        };
        TaskId((TASKS_MAX + n) as u32)
    }
    fn of(id: TaskId) -> Option<Timer> {
        let n = id.index().checked_sub(TASKS_MAX)?;
        Some(if n % 2 == 0 { Timer::Period(n / 2) } else { Timer::Slack(n / 2) })
    }
}

impl<P: Platform> Bandwidth<P> {
    /// Of these groups, on a machine of `cpus` CPUs.
    pub(crate) fn new(p: &P, locks: &LockFactory<P>, groups: Option<&Groups>, cpus: usize) -> Self {
        let none = Groups::default();
        let groups = groups.unwrap_or(&none);
        let limits = groups.iter().filter_map(|(id, g)| g.limit.map(|limit| (id, limit)));
        let limited: Vec<_> = limits
            .map(|(group, limit)| {
                let line = p.line();
                Limited {
                    group,
                    lock: locks.create(p, line, Account::SpinLock),
                    pool: p.cell(line, Pool::new(limit, group)),
                    period: p.word(line, 0),
                    throttled: CpuMask::new(cpus),
                }
            })
            .collect();
        let place = |g: GroupId| limited.iter().position(|l| l.group == g).map(|i| i as u16);
        let over = (0..=groups.len()).map(|g| groups.path(GroupId(g as u16)).filter_map(place).collect());
        let over = if limited.is_empty() { Vec::new() } else { over.collect() };
        Bandwidth { over, limited, told: CpuMask::new(cpus) }
    }
    /// Has no group a limit?
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.limited.is_empty()
    }
    /// How many groups have one.
    pub(crate) fn len(&self) -> usize {
        self.limited.len()
    }
    /// The limits that hold for a group's tasks, from the inside.
    #[inline]
    fn over(&self, group: GroupId) -> &[u16] {
        self.over.get(group.0 as usize).map_or(&[], |over| over)
    }
    /// Each limited group with its lock, for reports.
    pub fn locks(&self) -> impl Iterator<Item = (GroupId, &KernelLock<P>)> {
        self.limited.iter().map(|l| (l.group, &l.lock))
    }
    /// Each limited group with what `cpu.stat` shows of it, read by `observe`.
    pub fn stats(&self, observe: impl Fn(&P::Cell<Pool>) -> CpuStat) -> Vec<(GroupId, CpuStat)> {
        self.limited.iter().map(|l| (l.group, observe(&l.pool))).collect()
    }
}

impl<P: SchedPlatform, L: Policy> Kernel<P, L> {
    /// The limits that the task has, as a fair one: those of its groups.
    fn limits_of(&self, p: &P, held: &Held, task: TaskId) -> &[u16] {
        let group = self.with_task(p, held, task, |_, e| {
            if e.sched.rt().is_some() { GroupId::ROOT } else { self.policy.group_of(&e.pol) }
        });
        self.bandwidth.over(group)
    }
    /// Is it throttled here by any of these?
    fn any_throttled(rd: &RqData<L>, over: &[u16]) -> bool {
        over.iter().any(|i| rd.bandwidth.groups[usize::from(*i)].throttled.is_some())
    }

    /// May balancing move a task of this queue to `cpu`: is it throttled neither here nor there?
    pub(crate) fn bandwidth_lets_move(&self, p: &P, held: &Held, task: TaskId, cpu: CpuId) -> bool {
        let throttled = |i: &u16| {
            let at = &self.bandwidth.limited[usize::from(*i)].throttled;
            at.has(cpu) || at.has(held.0)
        };
        self.bandwidth.is_empty() || !self.limits_of(p, held, task).iter().any(throttled)
    }

    // ---- what runs is charged ----------------------------------------------------------------------------------

    /// A task begins to run here.
    #[inline]
    pub(crate) fn bandwidth_begins(&self, rd: &mut RqData<L>, now: Time) {
        if !self.bandwidth.is_empty() {
            rd.bandwidth.since = now;
        }
    }

    /// The running task is about to stop, or was found running: its groups pay for it.
    #[inline]
    pub(crate) fn bandwidth_charge(&self, p: &P, held: &Held, task: TaskId) {
        if !self.bandwidth.is_empty() {
            self.charge_limits(p, held, task);
        }
    }
    fn charge_limits(&self, p: &P, held: &Held, task: TaskId) {
        let now = p.now();
        let over = self.limits_of(p, held, task);
        self.with_rq(p, held, |rd| {
            let ran = now - std::mem::replace(&mut rd.bandwidth.since, now);
            for i in over {
                rd.bandwidth.groups[usize::from(*i)].left -= ran as i64;
            }
        });
    }

    /// What the group of this limit has left here, and whether it is throttled.
    fn left(&self, p: &P, held: &Held, i: usize) -> (i64, bool) {
        let expires = self.features.cfs_bandwidth == CfsBandwidth::V4_18;
        let period = if expires { p.load(&self.bandwidth.limited[i].period, Relaxed) } else { 0 };
        self.with_rq(p, held, |rd| {
            let local = &mut rd.bandwidth.groups[i];
            if local.drawn_in < period {
                local.left = local.left.min(0);
            }
            (local.left, local.throttled.is_some())
        })
    }

    /// The tick found the task running. Returns true if one of its groups has no time left.
    #[inline]
    pub(crate) fn bandwidth_tick(&self, p: &P, held: &Held, task: TaskId) -> bool {
        if self.bandwidth.is_empty() {
            return false;
        }
        self.charge_limits(p, held, task);
        let over = self.limits_of(p, held, task);
        over.iter().any(|i| !self.has_time(p, held, usize::from(*i), false))
    }

    /// `prev` has stopped running: who has nothing left is throttled. Returns whether `prev`, which would stay, was parked.
    #[inline]
    pub(crate) fn bandwidth_stopped(&self, p: &P, held: &Held, prev: TaskId, stays: bool) -> bool {
        !self.bandwidth.is_empty() && self.stop_limits(p, held, prev, stays)
    }
    fn stop_limits(&self, p: &P, held: &Held, prev: TaskId, stays: bool) -> bool {
        let over = self.limits_of(p, held, prev);
        for i in over.iter().map(|i| usize::from(*i)) {
            if self.with_rq(p, held, |rd| rd.bandwidth.groups[i].nr > 0) {
                self.has_time(p, held, i, true);
            }
        }
        stays && self.bandwidth_parks(p, held, prev)
    }

    // ---- who comes and goes ------------------------------------------------------------------------------------

    /// The task was queued here.
    #[inline]
    pub(crate) fn bandwidth_came(&self, p: &P, held: &Held, task: TaskId) {
        if !self.bandwidth.is_empty() {
            let over = self.limits_of(p, held, task);
            self.count_in(p, held, over);
            self.bandwidth_parks(p, held, task);
        }
    }
    /// One more is queued here; the first one needs time.
    fn count_in(&self, p: &P, held: &Held, over: &[u16]) {
        self.with_rq(p, held, |rd| over.iter().for_each(|i| rd.bandwidth.groups[usize::from(*i)].nr += 1));
        for i in over.iter().map(|i| usize::from(*i)) {
            // Not if a group further in had none: then it was parked, and is counted no more.
            if self.with_rq(p, held, |rd| rd.bandwidth.groups[i].nr == 1) {
                self.has_time(p, held, i, true);
            }
        }
    }

    /// The task is no longer queued here, and does not run.
    #[inline]
    pub(crate) fn bandwidth_left(&self, p: &P, held: &Held, task: TaskId) {
        if !self.bandwidth.is_empty() {
            let over = self.limits_of(p, held, task);
            self.count_out(p, held, over);
        }
    }
    /// One less is queued here; the last one leaves what the group does not need.
    fn count_out(&self, p: &P, held: &Held, over: &[u16]) {
        for i in over.iter().map(|i| usize::from(*i)) {
            let slack = self.with_rq(p, held, |rd| {
                let local = &mut rd.bandwidth.groups[i];
                local.nr -= 1;
                if local.nr == 0 && local.throttled.is_none() { local.left - MIN_LEFT } else { 0 }
            });
            if slack > 0 {
                self.return_time(p, held, i, slack);
            }
        }
    }

    /// The running task is about to be of another group or class: what [`Kernel::bandwidth_changed`] wants to know.
    pub(crate) fn bandwidth_changes(&self, p: &P, held: &Held, task: TaskId) -> &[u16] {
        if self.bandwidth.is_empty() {
            return &[];
        }
        self.charge_limits(p, held, task);
        self.limits_of(p, held, task)
    }
    /// The running task was subject to the limits `before`. It runs on, if only to its next switch.
    pub(crate) fn bandwidth_changed(&self, p: &P, held: &Held, task: TaskId, before: &[u16]) {
        if self.bandwidth.is_empty() {
            return;
        }
        let after = self.limits_of(p, held, task);
        if before != after {
            self.count_in(p, held, after);
            self.count_out(p, held, before);
            if self.with_rq(p, held, |rd| Self::any_throttled(rd, after)) {
                self.resched(p, held.0);
            }
        }
    }
    /// Is the task kept from running?
    #[inline]
    pub(crate) fn is_parked(&self, p: &P, held: &Held, task: TaskId) -> bool {
        !self.bandwidth.is_empty() && self.with_task(p, held, task, |_, e| e.parked)
    }

    // ---- slices ------------------------------------------------------------------------------------------------

    /// Has the group of this limit time to run here, if it asks its pool? If not, and `throttle`: it is throttled.
    fn has_time(&self, p: &P, held: &Held, i: usize, throttle: bool) -> bool {
        let (left, throttled) = self.left(p, held, i);
        if left > 0 || throttled {
            return !throttled;
        }
        let limited = &self.bandwidth.limited[i];
        let slice = (self.features.cfs_bandwidth_slice_us * 1000) as i64;
        limited.lock.lock(p);
        let now = p.now();
        let period = p.load(&limited.period, Relaxed);
        // SAFETY: the lock that guards the pool is held.
        let (drawn, arm) = unsafe {
            p.write(&limited.pool, |pool| {
                let arm = pool.start(now);
                let drawn = pool.draw((slice - left) as u64) as i64;
                if left + drawn <= 0 && throttle {
                    pool.waiting.push_back(held.0);
                }
                (drawn, arm)
            })
        };
        if let Some(at) = arm {
            p.arm_timer(at, Timer::Period(i).id());
        }
        limited.lock.unlock(p);
        let has = left + drawn > 0;
        self.with_rq(p, held, |rd| {
            let local = &mut rd.bandwidth.groups[i];
            local.left += drawn;
            local.drawn_in = period;
            if !has && throttle {
                local.throttled = Some(now);
            }
        });
        if !has && throttle {
            limited.throttled.set(held.0, true);
            if self.features.cfs_bandwidth < CfsBandwidth::V6_18 {
                self.park_all(p, held, limited.group);
            }
        }
        has
    }

    /// Give `slack` of what is left here back to the pool.
    fn return_time(&self, p: &P, held: &Held, i: usize, slack: i64) {
        let limited = &self.bandwidth.limited[i];
        let drawn_in = self.with_rq(p, held, |rd| {
            rd.bandwidth.groups[i].left -= slack;
            rd.bandwidth.groups[i].drawn_in
        });
        let slice = self.features.cfs_bandwidth_slice_us * 1000;
        limited.lock.lock(p);
        let now = p.now();
        let expired =
            self.features.cfs_bandwidth == CfsBandwidth::V4_18 && p.load(&limited.period, Relaxed) != drawn_in;
        // SAFETY: the lock that guards the pool is held.
        let arm = !expired && unsafe { p.write(&limited.pool, |pool| pool.give_back(slack as u64, slice, now)) };
        if arm {
            p.arm_timer(now + SLACK_PERIOD, Timer::Slack(i).id());
        }
        limited.lock.unlock(p);
    }

    // ---- timers ------------------------------------------------------------------------------------------------

    /// A timer expired on this CPU. Returns whether it was one of bandwidth.
    #[inline]
    pub(crate) fn bandwidth_timer(&self, p: &P, id: TaskId) -> bool {
        let Some(timer) = Timer::of(id) else { return false };
        match timer {
            Timer::Period(i) => self.period_ends(p, i),
            Timer::Slack(i) => {
                let slice = self.features.cfs_bandwidth_slice_us * 1000;
                let limited = &self.bandwidth.limited[i];
                limited.lock.lock(p);
                // SAFETY: the lock that guards the pool is held.
                let enough = unsafe { p.write(&limited.pool, |pool| pool.slack_due(slice)) };
                limited.lock.unlock(p);
                if enough {
                    self.hand_out(p, i);
                }
            }
        }
        true
    }

    fn period_ends(&self, p: &P, i: usize) {
        let limited = &self.bandwidth.limited[i];
        limited.lock.lock(p);
        let now = p.now();
        // SAFETY: the lock that guards the pool is held.
        let end = unsafe { p.write(&limited.pool, |pool| pool.period_ends(now)) };
        let period = p.load(&limited.period, Relaxed);
        p.store(&limited.period, period + 1, Relaxed);
        limited.lock.unlock(p);
        if end.waiting {
            self.hand_out(p, i);
        }
        if let Some(at) = end.next {
            p.arm_timer(at, Timer::Period(i).id());
        }
    }

    /// Pay the debts of those CPUs where the group is throttled, as far as the pool goes (`distribute_cfs_runtime`).
    fn hand_out(&self, p: &P, i: usize) {
        let limited = &self.bandwidth.limited[i];
        limited.lock.lock(p);
        // SAFETY: the lock that guards the pool is held.
        let waiting: Vec<CpuId> = unsafe { p.write(&limited.pool, |pool| pool.waiting.iter().copied().collect()) };
        limited.lock.unlock(p);
        for cpu in waiting {
            let held = self.lock(p, cpu);
            let local = self.with_rq(p, &held, |rd| rd.bandwidth.groups[i].clone());
            if local.throttled.is_none() || local.refilled {
                self.unlock(p, held);
                continue;
            }
            let debt = 1 - local.left;
            limited.lock.lock(p);
            let period = p.load(&limited.period, Relaxed);
            // SAFETY: the lock that guards the pool is held.
            let (drawn, empty) = unsafe {
                p.write(&limited.pool, |pool| {
                    let drawn = pool.draw(debt as u64) as i64;
                    if drawn == debt {
                        pool.waiting.retain(|c| *c != cpu);
                    }
                    (drawn, pool.is_empty())
                })
            };
            limited.lock.unlock(p);
            let queues_itself = self.features.cfs_bandwidth >= CfsBandwidth::V6_3 && cpu != p.cpu();
            self.with_rq(p, &held, |rd| {
                let local = &mut rd.bandwidth.groups[i];
                local.left += drawn;
                local.drawn_in = period;
                local.refilled = drawn == debt && queues_itself;
            });
            if drawn == debt && !queues_itself {
                self.unthrottle(p, &held, i);
            }
            self.unlock(p, held);
            if drawn == debt && queues_itself {
                self.bandwidth.told.set(cpu, true);
                p.send_ipi(cpu, Ipi::CallFunction);
            }
            if empty {
                break;
            }
        }
    }

    /// A call-function interrupt came: groups may have time again here.
    #[inline]
    pub(crate) fn bandwidth_interrupt(&self, p: &P) {
        if self.bandwidth.is_empty() || !self.bandwidth.told.has(p.cpu()) {
            return;
        }
        self.bandwidth.told.set(p.cpu(), false);
        let held = self.lock(p, p.cpu());
        for i in 0..self.bandwidth.len() {
            if self.with_rq(p, &held, |rd| std::mem::take(&mut rd.bandwidth.groups[i].refilled)) {
                self.unthrottle(p, &held, i);
            }
        }
        self.unlock(p, held);
    }

    /// The group has time again here: its tasks are queued, those that no other limit holds.
    fn unthrottle(&self, p: &P, held: &Held, i: usize) {
        let limited = &self.bandwidth.limited[i];
        let now = p.now();
        let (since, parked) = self
            .with_rq(p, held, |rd| (rd.bandwidth.groups[i].throttled.take(), std::mem::take(&mut rd.bandwidth.parked)));
        limited.throttled.set(held.0, false);
        limited.lock.lock(p);
        // SAFETY: the lock that guards the pool is held.
        unsafe { p.write(&limited.pool, |pool| pool.stat.throttled_ns += now - since.unwrap_or(now)) };
        limited.lock.unlock(p);
        let each = self.features.cfs_bandwidth >= CfsBandwidth::V6_18;
        p.charge(Work::Enqueue, u64::from(!each && !parked.is_empty()));
        // Who was stopped last is owed most: the policy measures the others by the first that is there.
        for task in parked.into_iter().rev() {
            let over = self.limits_of(p, held, task);
            if self.with_rq(p, held, |rd| Self::any_throttled(rd, over)) {
                self.with_rq(p, held, |rd| rd.bandwidth.parked.insert(0, task));
            } else {
                p.charge(Work::Enqueue, u64::from(each));
                self.unpark(p, held, task, over);
            }
        }
        self.publish(p, held);
        let idles = self.with_rq(p, held, |rd| rd.curr.is_none() && rd.nr_running > 0);
        if idles {
            self.resched(p, held.0);
        }
    }

    // ---- tasks that may not run --------------------------------------------------------------------------------

    /// Park the task, which is queued here, if one of its groups is throttled. Returns whether it was.
    #[inline]
    pub(crate) fn bandwidth_parks(&self, p: &P, held: &Held, task: TaskId) -> bool {
        if self.bandwidth.is_empty() {
            return false;
        }
        let over = self.limits_of(p, held, task);
        let (parked, stops) = self.with_task(p, held, task, |rd, e| {
            // One that sleeps, its dequeue delayed, does not run anyway.
            (e.parked, !e.parked && !e.delayed && Self::any_throttled(rd, over))
        });
        if stops {
            p.charge(Work::Dequeue, 1);
            self.park(p, held, task, over);
        }
        parked || stops
    }

    /// Park all members of a group that are queued here: the group leaves its queue.
    fn park_all(&self, p: &P, held: &Held, group: GroupId) {
        let mut members = Vec::new();
        self.with_rq(p, held, |rd| self.policy.members(&rd.pol, group, &mut members));
        p.charge(Work::Dequeue, u64::from(!members.is_empty()));
        for task in members {
            let over = self.limits_of(p, held, task);
            self.park(p, held, task, over);
        }
    }

    fn park(&self, p: &P, held: &Held, task: TaskId, over: &[u16]) {
        let now = p.now();
        let pelt = self.pelt;
        let nr_running = self.with_task(p, held, task, |rd, e| {
            if pelt {
                rd.update_averages(now);
                e.load.update(now, self.weight_of(e));
                e.util.update(now, 0);
            }
            rd.runnable_load.sub(self.load_of(rd, e));
            self.policy.park(&mut rd.pol, task, &mut e.pol, now);
            rd.nr_running -= 1;
            rd.est_out(e);
            rd.set_weight(&self.policy, rd.weight - self.weight_of(e));
            e.parked = true;
            rd.bandwidth.parked.push(task);
            rd.nr_running
        });
        p.queue_length(held.0, nr_running);
        self.count_out(p, held, over);
    }

    fn unpark(&self, p: &P, held: &Held, task: TaskId, over: &[u16]) {
        let now = p.now();
        let pelt = self.pelt;
        let nr_running = self.with_task(p, held, task, |rd, e| {
            if pelt {
                rd.update_averages(now);
                e.load.update(now, 0);
                e.util.update(now, 0);
            }
            e.parked = false;
            self.policy.unpark(&mut rd.pol, task, &mut e.pol, now);
            rd.runnable_load.add(self.load_of(rd, e));
            rd.nr_running += 1;
            rd.est_in(e);
            rd.set_weight(&self.policy, rd.weight + self.weight_of(e));
            rd.nr_running
        });
        p.queue_length(held.0, nr_running);
        self.note_overload(p, nr_running);
        self.count_in(p, held, over);
    }
}

#[cfg(test)]
mod tests;
