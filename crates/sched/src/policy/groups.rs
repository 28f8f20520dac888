//! Groups of tasks (cgroups' CPU weights, the sessions of autogroup): a policy made of policies.
//!
//! A group has on each CPU a run queue of its own, and is there an entity of its parent's run queue: it is queued while that queue holds
//! somebody, it runs while one of its tasks runs. Both queues are the policy's own, which knows nothing of groups.
//! The group's shares are divided among CPUs by how much of its load is on each.
//!
//! ```text
//! shares of the group here = shares * load here / load of the group, from 2 to all
//! load here                = max(weight of its entities here, their average over some 30 ms)
//! ```
//!
//! Where a woken task and the running one are in different groups, the entities by which their groups meet are compared.
//!
//! A machine without groups has one queue a CPU, and every operation goes straight to it. The shape and what was weighed:
//! `docs/internals/groups.md`.

mod on_cpu;
mod tree;

pub use on_cpu::GroupedRq;
pub use tree::{
    DEPTH_MAX, GROUPS_MAX, Group, GroupId, Groups, SHARES, WEIGHT_DEFAULT, WEIGHT_MAX, shares_of, weight_of,
};

use super::{Dequeue, Enqueue, Pick, Policy, Put};
use crate::pelt::Average;
use contend_platform::{TaskId, Time};
use on_cpu::{OnCpu, entity_id, group_of};
use std::sync::Mutex;
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};

/// What a policy must offer beyond [`Policy`], so that groups can be its entities.
pub trait Fair: Policy {
    /// The weight of an entity changes, wherever it is; its lag, as service owed, stays.
    fn reweight(&self, rq: &mut Self::Rq, id: TaskId, t: &mut Self::Task, weight: u64, at: At, now: Time);
    /// The sum of the weights of its entities, the running one included.
    fn total_weight(&self, rq: &Self::Rq) -> u64;
    /// Who is hinted to be next.
    fn next_hint(&self, rq: &Self::Rq) -> Option<TaskId>;
}

/// How an entity left its run queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Leave {
    /// It came to sleep, or was moved away.
    As(Dequeue),
    /// It may not run for a while ([`Policy::park`]).
    Parked,
}

/// Where an entity is, as seen from its run queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum At {
    /// Not there.
    Out(Leave),
    /// In the queue.
    Queued,
    /// Asleep, its dequeue delayed.
    Delayed,
    /// Running.
    Running,
}

/// The policy.
#[derive(Debug)]
pub struct Grouped<L> {
    inner: L,
    groups: Groups,
    /// By [`GroupId`]: whose a task that joins it is.
    effective: Vec<GroupId>,
    /// Load of each group, on all CPUs. Linux has one number a group for it, on a line that all its CPUs share; here no
    /// cost is simulated for it.
    totals: Vec<Mutex<Total>>,
    /// [`Policy::floor`] of each group's queues, by CPU. Without simulated cost.
    floors: Vec<AtomicI64>,
    cpus_made: std::sync::atomic::AtomicUsize,
}

/// The load of a group.
#[derive(Debug, Default)]
struct Total {
    /// On CPUs where somebody of it is runnable.
    present: u64,
    /// What CPUs where nobody is any more remember: it decays.
    left: Average,
}

/// One task.
pub struct GroupedTask<L: Policy> {
    own: L::Task,
    group: GroupId,
    /// The CPU that it slept on.
    slept_on: u32,
}

impl<L: Policy> Clone for GroupedTask<L> {
    fn clone(&self) -> Self {
        GroupedTask { own: self.own.clone(), group: self.group, slept_on: self.slept_on }
    }
}

impl<L: Fair> Grouped<L> {
    /// `inner` for tasks and groups alike, on a machine of `cpus` CPUs whose kernel makes groups of sessions if `autogroup`.
    pub fn new(inner: L, groups: Groups, cpus: usize, autogroup: bool) -> Self {
        let n = groups.len();
        Grouped {
            effective: (0..=n).map(|g| groups.effective(autogroup, GroupId(g as u16))).collect(),
            totals: (0..n).map(|_| Mutex::default()).collect(),
            floors: (0..n * cpus).map(|_| AtomicI64::new(0)).collect(),
            cpus_made: 0.into(),
            inner,
            groups,
        }
    }

    fn published_floor(&self, group: GroupId, cpu: usize) -> &AtomicI64 {
        &self.floors[cpu * self.groups.len() + group.0 as usize - 1]
    }

    /// A group's queue here has changed: count its load, and give its entity its part of the shares.
    fn settle(&self, rq: &mut GroupedRq<L>, group: GroupId, now: Time) {
        let shares = self.groups.get(group).expect("not the root").shares;
        let (cpu, here) = (rq.cpu, rq.on_cpu(group));
        self.published_floor(group, cpu).store(self.inner.floor(&here.rq), Relaxed);
        let load = here.load.get();
        let mut total = self.totals[group.0 as usize - 1].lock().expect("no panic while held");
        total.left.update(now, 0);
        match here.counted {
            Some(before) => total.present -= before,
            None => total.left.sub(load),
        }
        if here.nr == 0 {
            total.left.add(load);
            here.counted = None;
            return;
        }
        total.present += load;
        here.counted = Some(load);
        let all = total.present + total.left.get();
        drop(total);
        let mine = load.max(here.weight);
        let weight = (shares * mine / (all - load + mine).max(1)).clamp(*SHARES.start(), shares);
        let (at, parent) = (here.at, here.parent);
        let before = self.inner.weight(&here.entity);
        if weight == before || at == At::Delayed {
            return;
        }
        let (queue, entity) = rq.entity(group);
        self.inner.reweight(queue, entity_id(group), entity, weight, at, now);
        if parent != GroupId::ROOT && !matches!(at, At::Out(_)) {
            let up = rq.on_cpu(parent);
            up.weight = up.weight - before + weight;
        }
    }

    /// Somebody came to a group's queue: so does the group, to its parent's.
    fn enqueue_above(&self, rq: &mut GroupedRq<L>, group: GroupId, now: Time) {
        let mut g = group;
        while g != GroupId::ROOT {
            self.settle(rq, g, now);
            let (at, parent) = (rq.on_cpu(g).at, rq.on_cpu(g).parent);
            let (queue, entity) = rq.entity(g);
            match at {
                At::Queued | At::Running => {}
                At::Delayed => {
                    self.inner.revive(queue, entity_id(g), entity, now);
                    rq.on_cpu(g).at = At::Queued;
                    self.settle(rq, g, now);
                }
                At::Out(how) => {
                    let id = entity_id(g);
                    match how {
                        Leave::As(Dequeue::Migrate) => self.inner.enqueue(queue, id, entity, Enqueue::Migrate, now),
                        Leave::As(Dequeue::Sleep) => {
                            self.inner.enqueue(queue, id, entity, Enqueue::Wakeup { moved: false }, now);
                        }
                        Leave::Parked => self.inner.unpark(queue, id, entity, now),
                    }
                    let weight = self.inner.weight(entity);
                    rq.on_cpu(g).at = At::Queued;
                    rq.count(parent, 1, weight);
                }
            }
            g = parent;
        }
    }

    /// Somebody who did not run left a group's queue: so does the group, if that was the last.
    fn dequeue_above(&self, rq: &mut GroupedRq<L>, group: GroupId, how: Leave, now: Time) {
        let mut g = group;
        while g != GroupId::ROOT {
            self.settle(rq, g, now);
            let here = rq.on_cpu(g);
            let parent = here.parent;
            if here.nr == 0 {
                assert_eq!(here.at, At::Queued, "a group that has nobody to run");
                here.at = At::Out(how);
                let (queue, entity) = rq.entity(g);
                match how {
                    Leave::As(why) => self.inner.dequeue(queue, entity_id(g), entity, why, now),
                    Leave::Parked => self.inner.park(queue, entity_id(g), entity, now),
                }
                let weight = self.inner.weight(entity);
                rq.count(parent, -1, weight);
            }
            g = parent;
        }
    }

    /// The running task of a group was put back, or has gone: so does the group.
    fn put_above(&self, rq: &mut GroupedRq<L>, group: GroupId, now: Time) {
        let mut g = group;
        while g != GroupId::ROOT {
            self.settle(rq, g, now);
            let (empty, parent) = (rq.on_cpu(g).nr == 0, rq.on_cpu(g).parent);
            let (queue, entity) = rq.entity(g);
            let why = if empty { Put::Sleep } else { Put::Preempted };
            let delayed = self.inner.put_prev(queue, entity_id(g), entity, why, now);
            let weight = self.inner.weight(entity);
            rq.on_cpu(g).at = match why {
                Put::Sleep if delayed => At::Delayed,
                Put::Sleep => At::Out(Leave::As(Dequeue::Sleep)),
                _ => At::Queued,
            };
            if empty && !delayed {
                rq.count(parent, -1, weight);
            }
            g = parent;
        }
    }

    /// A group runs, and those that it is in: from the outside.
    fn run(&self, rq: &mut GroupedRq<L>, group: GroupId, now: Time) {
        if group == GroupId::ROOT {
            return;
        }
        let parent = rq.on_cpu(group).parent;
        self.run(rq, parent, now);
        let (queue, entity) = rq.entity(group);
        self.inner.set_next(queue, entity_id(group), entity, now);
        rq.on_cpu(group).at = At::Running;
    }

    fn collect(&self, rq: &GroupedRq<L>, queue: &L::Rq, max: usize, into: &mut Vec<TaskId>) {
        let mut entities = Vec::new();
        self.inner.candidates(queue, max, &mut entities);
        for id in entities {
            match group_of(id) {
                Some(g) => self.collect(rq, &rq.look(g).rq, max, into),
                None => into.push(id),
            }
        }
    }
}

impl<L: Fair> Policy for Grouped<L> {
    type Rq = GroupedRq<L>;
    type Task = GroupedTask<L>;

    fn new_rq(&self) -> GroupedRq<L> {
        let on_cpu = |(_, g): (GroupId, &Group)| OnCpu {
            rq: self.inner.new_rq(),
            entity: self.inner.new_task(0),
            at: At::Out(Leave::As(Dequeue::Sleep)),
            parent: g.parent,
            nr: 0,
            weight: 0,
            load: Average::default(),
            counted: None,
        };
        let groups = self.groups.iter().map(on_cpu).collect();
        GroupedRq { root: self.inner.new_rq(), groups, cpu: self.cpus_made.fetch_add(1, Relaxed) }
    }
    fn new_task(&self, nice: i8) -> GroupedTask<L> {
        GroupedTask { own: self.inner.new_task(nice), group: GroupId::ROOT, slept_on: 0 }
    }
    fn join(&self, t: &mut GroupedTask<L>, group: GroupId) {
        t.group = self.effective[group.0 as usize];
    }

    #[inline]
    fn enqueue(&self, rq: &mut GroupedRq<L>, task: TaskId, t: &mut GroupedTask<L>, why: Enqueue, now: Time) {
        if t.group == GroupId::ROOT {
            return self.inner.enqueue(&mut rq.root, task, &mut t.own, why, now);
        }
        rq.touch(t.group, now);
        self.inner.enqueue(rq.queue(t.group), task, &mut t.own, why, now);
        rq.count(t.group, 1, self.inner.weight(&t.own));
        self.enqueue_above(rq, t.group, now);
    }

    #[inline]
    fn dequeue(&self, rq: &mut GroupedRq<L>, task: TaskId, t: &mut GroupedTask<L>, why: Dequeue, now: Time) {
        if t.group == GroupId::ROOT {
            return self.inner.dequeue(&mut rq.root, task, &mut t.own, why, now);
        }
        rq.touch(t.group, now);
        self.inner.dequeue(rq.queue(t.group), task, &mut t.own, why, now);
        rq.count(t.group, -1, self.inner.weight(&t.own));
        self.dequeue_above(rq, t.group, Leave::As(why), now);
    }

    #[inline]
    fn pick_next(&self, rq: &mut GroupedRq<L>, now: Time) -> Pick {
        let mut level = GroupId::ROOT;
        loop {
            match self.inner.pick_next(rq.queue(level), now) {
                Pick::Task(id) => match group_of(id) {
                    Some(group) => level = group,
                    None => return Pick::Task(id),
                },
                Pick::Finished(id) => {
                    let Some(group) = group_of(id) else { return Pick::Finished(id) };
                    rq.touch(level, now);
                    let (queue, entity) = rq.entity(group);
                    self.inner.dequeue(queue, id, entity, Dequeue::Sleep, now);
                    let weight = self.inner.weight(entity);
                    rq.on_cpu(group).at = At::Out(Leave::As(Dequeue::Sleep));
                    rq.count(level, -1, weight);
                    self.dequeue_above(rq, level, Leave::As(Dequeue::Sleep), now);
                    level = GroupId::ROOT;
                }
                Pick::Nothing => {
                    assert_eq!(level, GroupId::ROOT, "a queued group has nobody to run");
                    return Pick::Nothing;
                }
            }
        }
    }

    #[inline]
    fn set_next(&self, rq: &mut GroupedRq<L>, task: TaskId, t: &mut GroupedTask<L>, now: Time) {
        if t.group == GroupId::ROOT {
            return self.inner.set_next(&mut rq.root, task, &mut t.own, now);
        }
        self.run(rq, t.group, now);
        self.inner.set_next(rq.queue(t.group), task, &mut t.own, now);
    }

    #[inline]
    fn put_prev(&self, rq: &mut GroupedRq<L>, task: TaskId, t: &mut GroupedTask<L>, why: Put, now: Time) -> bool {
        if t.group == GroupId::ROOT {
            return self.inner.put_prev(&mut rq.root, task, &mut t.own, why, now);
        }
        rq.touch(t.group, now);
        let delayed = self.inner.put_prev(rq.queue(t.group), task, &mut t.own, why, now);
        t.slept_on = rq.cpu as u32;
        if !delayed && matches!(why, Put::Sleep | Put::Exit) {
            rq.count(t.group, -1, self.inner.weight(&t.own));
        }
        self.put_above(rq, t.group, now);
        delayed
    }

    #[inline]
    fn tick(&self, rq: &mut GroupedRq<L>, task: TaskId, t: &mut GroupedTask<L>, now: Time) -> bool {
        if t.group == GroupId::ROOT {
            return self.inner.tick(&mut rq.root, task, &mut t.own, now);
        }
        rq.touch(t.group, now);
        let mut resched = self.inner.tick(rq.queue(t.group), task, &mut t.own, now);
        let mut g = t.group;
        while g != GroupId::ROOT {
            self.settle(rq, g, now);
            let (queue, entity) = rq.entity(g);
            resched |= self.inner.tick(queue, entity_id(g), entity, now);
            g = rq.on_cpu(g).parent;
        }
        resched
    }

    #[inline]
    fn wakeup_preempt(
        &self,
        rq: &mut GroupedRq<L>,
        (running, curr): (TaskId, &mut GroupedTask<L>),
        (task, woken): (TaskId, &GroupedTask<L>),
        now: Time,
    ) -> bool {
        if curr.group == woken.group {
            return self.inner.wakeup_preempt(rq.queue(curr.group), (running, &mut curr.own), (task, &woken.own), now);
        }
        let (level, by_running, by_woken) = rq.meeting(curr.group, woken.group);
        let (id, entity) = match by_woken {
            None => (task, woken.own.clone()),
            Some(g) => (entity_id(g), rq.on_cpu(g).entity.clone()),
        };
        let preempts = match by_running {
            None => self.inner.wakeup_preempt(rq.queue(level), (running, &mut curr.own), (id, &entity), now),
            Some(g) => {
                let (queue, running) = rq.entity(g);
                self.inner.wakeup_preempt(queue, (entity_id(g), running), (id, &entity), now)
            }
        };
        // A group that is to be next is for the sake of one of its tasks.
        if let Some(by_woken) = by_woken
            && preempts
            && self.inner.next_hint(rq.queue(level)) == Some(id)
        {
            self.hint(rq, woken.group, by_woken, (task, &woken.own));
        }
        preempts
    }

    fn time_is_up(
        &self,
        rq: &mut GroupedRq<L>,
        (running, curr): (TaskId, &mut GroupedTask<L>),
        (task, woken): (TaskId, &GroupedTask<L>),
        now: Time,
    ) -> bool {
        let woken_as = (task, &woken.own);
        if curr.group == woken.group {
            return self.inner.time_is_up(rq.queue(curr.group), (running, &mut curr.own), woken_as, now);
        }
        let (level, by_running, _) = rq.meeting(curr.group, woken.group);
        match by_running {
            None => self.inner.time_is_up(rq.queue(level), (running, &mut curr.own), woken_as, now),
            Some(g) => {
                let (queue, running) = rq.entity(g);
                self.inner.time_is_up(queue, (entity_id(g), running), woken_as, now)
            }
        }
    }

    fn yield_to(&self, rq: &mut GroupedRq<L>, task: TaskId, t: &GroupedTask<L>) -> bool {
        self.hint(rq, t.group, GroupId::ROOT, (task, &t.own))
    }
    fn revive(&self, rq: &mut GroupedRq<L>, task: TaskId, t: &mut GroupedTask<L>, now: Time) {
        rq.touch(t.group, now);
        self.inner.revive(rq.queue(t.group), task, &mut t.own, now);
    }
    fn detach_sleeping(&self, t: &mut GroupedTask<L>, rq_floor: i64) {
        let floor = match t.group {
            GroupId::ROOT => rq_floor,
            group => self.published_floor(group, t.slept_on as usize).load(Relaxed),
        };
        self.inner.detach_sleeping(&mut t.own, floor);
    }
    fn floor(&self, rq: &GroupedRq<L>) -> i64 {
        self.inner.floor(&rq.root)
    }
    fn candidates(&self, rq: &GroupedRq<L>, max: usize, into: &mut Vec<TaskId>) {
        if rq.groups.is_empty() {
            return self.inner.candidates(&rq.root, max, into);
        }
        let before = into.len();
        self.collect(rq, &rq.root, max, into);
        // Those that are queued behind the running one in its groups.
        for here in rq.groups.iter().filter(|g| g.at == At::Running) {
            self.collect(rq, &here.rq, max, into);
        }
        into.truncate(before + max);
    }
    fn is_buddy(&self, rq: &GroupedRq<L>, task: TaskId) -> bool {
        self.inner.is_buddy(&rq.root, task) || rq.groups.iter().any(|g| self.inner.is_buddy(&g.rq, task))
    }
    #[inline]
    fn last_ran(&self, t: &GroupedTask<L>) -> Time {
        self.inner.last_ran(&t.own)
    }
    #[inline]
    fn weight(&self, t: &GroupedTask<L>) -> u64 {
        self.inner.weight(&t.own)
    }
    fn h_load(&self, rq: &GroupedRq<L>, t: &GroupedTask<L>, load: u64) -> u64 {
        let part = |load: u64, g| {
            let here = rq.look(g);
            load * self.inner.weight(&here.entity) / here.weight.max(1)
        };
        if t.group == GroupId::ROOT { load } else { rq.path(t.group).fold(load, part) }
    }
    fn queue_weight(&self, rq: &GroupedRq<L>, flat: u64) -> u64 {
        if rq.groups.is_empty() { flat } else { self.inner.total_weight(&rq.root) }
    }
    fn park(&self, rq: &mut GroupedRq<L>, task: TaskId, t: &mut GroupedTask<L>, now: Time) {
        rq.touch(t.group, now);
        self.inner.park(rq.queue(t.group), task, &mut t.own, now);
        rq.count(t.group, -1, self.inner.weight(&t.own));
        self.dequeue_above(rq, t.group, Leave::Parked, now);
    }
    fn unpark(&self, rq: &mut GroupedRq<L>, task: TaskId, t: &mut GroupedTask<L>, now: Time) {
        rq.touch(t.group, now);
        self.inner.unpark(rq.queue(t.group), task, &mut t.own, now);
        rq.count(t.group, 1, self.inner.weight(&t.own));
        self.enqueue_above(rq, t.group, now);
    }
    fn groups(&self) -> Option<&Groups> {
        Some(&self.groups)
    }
    #[inline]
    fn group_of(&self, t: &GroupedTask<L>) -> GroupId {
        t.group
    }
    fn members(&self, rq: &GroupedRq<L>, group: GroupId, into: &mut Vec<TaskId>) {
        self.collect(rq, &rq.look(group).rq, usize::MAX, into);
        // Those behind a running one of its groups within.
        for (g, here) in self.groups.iter().zip(&rq.groups).filter(|((g, _), h)| *g != group && h.at == At::Running) {
            if self.groups.path(g.0).any(|g| g == group) {
                self.collect(rq, &here.rq, usize::MAX, into);
            }
        }
    }
    fn set_idle(&self, t: &mut GroupedTask<L>) {
        self.inner.set_idle(&mut t.own);
    }
    fn set_nice(&self, t: &mut GroupedTask<L>, nice: i8) {
        self.inner.set_nice(&mut t.own, nice);
    }
    fn set_slice(&self, t: &mut GroupedTask<L>, slice: u64) {
        self.inner.set_slice(&mut t.own, slice);
    }
    #[inline]
    fn sum_exec(&self, t: &GroupedTask<L>) -> u64 {
        self.inner.sum_exec(&t.own)
    }
}

impl<L: Fair> Grouped<L> {
    /// Hint the task in its group, its group in the one around it, and so on, `until` not in any.
    fn hint(&self, rq: &mut GroupedRq<L>, group: GroupId, until: GroupId, (task, t): (TaskId, &L::Task)) -> bool {
        let fair = self.inner.yield_to(rq.queue(group), task, t);
        let mut g = group;
        while g != until {
            let (id, entity, parent) = (entity_id(g), rq.on_cpu(g).entity.clone(), rq.on_cpu(g).parent);
            self.inner.yield_to(rq.queue(parent), id, &entity);
            g = parent;
        }
        fair
    }
}

#[cfg(test)]
mod tests;
