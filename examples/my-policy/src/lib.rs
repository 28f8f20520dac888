//! Weighted round robin: tasks take turns, and a turn lasts as long as the task's weight says.
//!
//! All of a policy is below: its state of a run queue, its state of a task, and a decision for each event. What happens
//! around it (locks, wake-up paths, idle search, balancing) is the mechanism's and chosen by the run's features. The
//! contract is `contend_sched::policy::Policy`; `docs/internals/policy-contract.md` retells it in a page.

pub mod work_stealing;

use contend_platform::{TaskId, Time};
use contend_sched::policy::{Dequeue, Enqueue, Pick, Policy, Put, nice_to_weight};
use std::collections::VecDeque;

/// The policy's only parameter.
pub struct WeightedRoundRobin {
    /// Length of a turn of a task with nice 0, in ns.
    pub turn_ns: u64,
}

/// One task.
#[derive(Clone, Debug)]
pub struct Turn {
    weight: u64,
    /// Time run, in ns, and accounted up to `since`.
    ran: u64,
    since: Time,
    /// What is left of its turn, in ns.
    left: u64,
}

impl WeightedRoundRobin {
    fn turn(&self, weight: u64) -> u64 {
        (self.turn_ns * weight / 1024).max(1)
    }

    fn account(t: &mut Turn, now: Time) {
        let ran = now - t.since;
        t.since = now;
        t.ran += ran;
        t.left = t.left.saturating_sub(ran);
    }
}

impl Policy for WeightedRoundRobin {
    type Rq = VecDeque<TaskId>;
    type Task = Turn;

    fn new_rq(&self) -> VecDeque<TaskId> {
        VecDeque::new()
    }
    fn new_task(&self, nice: i8) -> Turn {
        let weight = nice_to_weight(nice);
        Turn { weight, ran: 0, since: 0, left: self.turn(weight) }
    }
    fn enqueue(&self, rq: &mut VecDeque<TaskId>, task: TaskId, t: &mut Turn, why: Enqueue, _: Time) {
        if why != Enqueue::Migrate {
            t.left = self.turn(t.weight);
        }
        rq.push_back(task);
    }
    fn dequeue(&self, rq: &mut VecDeque<TaskId>, task: TaskId, _: &mut Turn, _: Dequeue, _: Time) {
        rq.retain(|t| *t != task);
    }
    fn pick_next(&self, rq: &mut VecDeque<TaskId>, _: Time) -> Pick {
        rq.front().map_or(Pick::Nothing, |t| Pick::Task(*t))
    }
    fn set_next(&self, rq: &mut VecDeque<TaskId>, task: TaskId, t: &mut Turn, now: Time) {
        rq.retain(|q| *q != task);
        t.since = now;
    }
    fn put_prev(&self, rq: &mut VecDeque<TaskId>, task: TaskId, t: &mut Turn, why: Put, now: Time) -> bool {
        Self::account(t, now);
        match why {
            Put::Preempted if t.left > 0 => rq.push_front(task),
            Put::Preempted | Put::Yielded => {
                t.left = self.turn(t.weight);
                rq.push_back(task);
            }
            Put::Sleep | Put::Exit => {}
        }
        false
    }
    fn tick(&self, rq: &mut VecDeque<TaskId>, _: TaskId, t: &mut Turn, now: Time) -> bool {
        Self::account(t, now);
        t.left == 0 && !rq.is_empty()
    }
    fn wakeup_preempt(&self, _: &mut VecDeque<TaskId>, _: (TaskId, &mut Turn), _: (TaskId, &Turn), _: Time) -> bool {
        false
    }
    fn candidates(&self, rq: &VecDeque<TaskId>, max: usize, into: &mut Vec<TaskId>) {
        into.extend(rq.iter().rev().take(max));
    }
    fn last_ran(&self, t: &Turn) -> Time {
        t.since
    }
    fn weight(&self, t: &Turn) -> u64 {
        t.weight
    }
    fn set_nice(&self, t: &mut Turn, nice: i8) {
        t.weight = nice_to_weight(nice);
    }
    fn sum_exec(&self, t: &Turn) -> u64 {
        t.ran
    }
}
