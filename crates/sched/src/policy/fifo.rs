//! The reference policy: first in, first out, with an optional time slice.
//!
//! Tasks run in the order in which they became runnable, until they sleep or, with `fifo_slice_ns`, until the tick
//! finds their slice used up; then they go to the end. A wake-up never preempts. Nice values are ignored. A directed yield
//! puts its target at the front: whoever runs there goes on, as after a wake-up. (Linux's real-time classes refuse it.)

use super::{Dequeue, Enqueue, Pick, Policy, Put};
use crate::features::Features;
use contend_platform::{TaskId, Time};
use std::collections::VecDeque;

/// The policy's parameters.
#[derive(Clone, Debug)]
pub struct Fifo {
    /// Slice in ns; 0 runs to completion.
    slice: u64,
}

impl Fifo {
    /// Parameters from a feature set.
    pub fn new(features: &Features) -> Self {
        Fifo { slice: features.fifo_slice_ns }
    }

    fn account(t: &mut FifoTask, now: Time) {
        t.ran += now - t.since;
        t.since = now;
    }
}

/// One run queue: runnable tasks, oldest first.
#[derive(Clone, Debug, Default)]
pub struct FifoRq {
    queue: VecDeque<TaskId>,
}

/// One task.
#[derive(Clone, Debug, Default)]
pub struct FifoTask {
    /// Time run, in ns.
    ran: u64,
    /// Time run when it was last given the CPU.
    ran_at_pick: u64,
    /// Accounted up to here.
    since: Time,
}

impl Policy for Fifo {
    type Rq = FifoRq;
    type Task = FifoTask;

    fn new_rq(&self) -> FifoRq {
        FifoRq::default()
    }
    fn new_task(&self, _nice: i8) -> FifoTask {
        FifoTask::default()
    }

    fn enqueue(&self, rq: &mut FifoRq, task: TaskId, _: &mut FifoTask, _: Enqueue, _: Time) {
        rq.queue.push_back(task);
    }
    fn dequeue(&self, rq: &mut FifoRq, task: TaskId, _: &mut FifoTask, _: Dequeue, _: Time) {
        rq.queue.retain(|t| *t != task);
    }
    fn pick_next(&self, rq: &mut FifoRq, _: Time) -> Pick {
        rq.queue.front().map_or(Pick::Nothing, |t| Pick::Task(*t))
    }
    fn set_next(&self, rq: &mut FifoRq, task: TaskId, t: &mut FifoTask, now: Time) {
        rq.queue.retain(|q| *q != task);
        t.since = now;
        t.ran_at_pick = t.ran;
    }
    fn put_prev(&self, rq: &mut FifoRq, task: TaskId, t: &mut FifoTask, why: Put, now: Time) -> bool {
        Self::account(t, now);
        match why {
            // Preempted from outside (a migration, say) it keeps its place unless its slice is over.
            Put::Preempted if self.slice == 0 || t.ran - t.ran_at_pick < self.slice => rq.queue.push_front(task),
            Put::Preempted | Put::Yielded => rq.queue.push_back(task),
            Put::Sleep | Put::Exit => {}
        }
        false
    }
    fn tick(&self, rq: &mut FifoRq, _: TaskId, t: &mut FifoTask, now: Time) -> bool {
        Self::account(t, now);
        self.slice > 0 && t.ran - t.ran_at_pick >= self.slice && !rq.queue.is_empty()
    }
    fn wakeup_preempt(&self, _: &mut FifoRq, _: (TaskId, &mut FifoTask), _: (TaskId, &FifoTask), _: Time) -> bool {
        false
    }
    fn yield_to(&self, rq: &mut FifoRq, task: TaskId, _: &FifoTask) -> bool {
        if let Some(at) = rq.queue.iter().position(|t| *t == task) {
            rq.queue.remove(at);
            rq.queue.push_front(task);
        }
        true
    }
    fn candidates(&self, rq: &FifoRq, max: usize, into: &mut Vec<TaskId>) {
        into.extend(rq.queue.iter().rev().take(max));
    }
    fn last_ran(&self, t: &FifoTask) -> Time {
        t.since
    }
    fn sum_exec(&self, t: &FifoTask) -> u64 {
        t.ran
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directed_yield_moves_its_target_to_the_front() {
        let p = Fifo::new(&Features::default());
        let mut rq = p.new_rq();
        let mut t = FifoTask::default();
        (0..4).for_each(|i| p.enqueue(&mut rq, TaskId(i), &mut t, Enqueue::New, 0));
        p.set_next(&mut rq, TaskId(0), &mut t, 0);
        assert!(p.yield_to(&mut rq, TaskId(2), &t));
        assert_eq!(rq.queue, [2, 1, 3].map(TaskId));
        assert!(p.yield_to(&mut rq, TaskId(0), &t), "it runs: nothing to do");
        assert_eq!(rq.queue, [2, 1, 3].map(TaskId));
    }
}
