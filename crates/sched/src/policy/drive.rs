//! Drives a policy through its contract as the mechanism does, on one run queue, with random or given steps. For tests.

use super::{Dequeue, Enqueue, Pick, Policy, Put};
use contend_platform::{TaskId, Time};
use proptest::prelude::*;

/// Where a task is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum At {
    New,
    Asleep,
    /// Asleep, its dequeue delayed.
    Delayed,
    Queued,
    Running,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Step {
    /// Time passes, in ns.
    Pass(u64),
    Tick,
    /// This task wakes (or starts).
    Wake(usize),
    /// The running task sleeps.
    Sleep,
    Yield,
    /// Load balancing takes a task away and brings it back later.
    Away(usize),
}

pub(super) fn steps(tasks: usize) -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (1u64..3_000_000).prop_map(Step::Pass),
        1 => (1u64..2_000).prop_map(Step::Pass),
        3 => Just(Step::Tick),
        4 => (0..tasks).prop_map(Step::Wake),
        2 => Just(Step::Sleep),
        1 => Just(Step::Yield),
        1 => (0..tasks).prop_map(Step::Away),
    ];
    prop::collection::vec(step, 1..400)
}

pub(super) struct Drive<L: Policy> {
    pub policy: L,
    pub rq: L::Rq,
    pub tasks: Vec<L::Task>,
    pub at: Vec<At>,
    pub curr: Option<usize>,
    pub now: Time,
}

fn id(i: usize) -> TaskId {
    TaskId(i as u32)
}

impl<L: Policy> Drive<L> {
    pub fn new(policy: L, nices: &[i8]) -> Self {
        let rq = policy.new_rq();
        let tasks = nices.iter().map(|n| policy.new_task(*n)).collect();
        Drive { policy, rq, tasks, at: vec![At::New; nices.len()], curr: None, now: 0 }
    }

    /// Take the running task off.
    pub fn put(&mut self, why: Put) {
        let Some(i) = self.curr.take() else { return };
        let delayed = self.policy.put_prev(&mut self.rq, id(i), &mut self.tasks[i], why, self.now);
        self.at[i] = match why {
            Put::Preempted | Put::Yielded => At::Queued,
            _ if delayed => At::Delayed,
            _ => At::Asleep,
        };
    }

    /// Choose and start; `look` sees the queue and the choice before it is taken out.
    pub fn pick(&mut self, mut look: impl FnMut(&Self, usize)) {
        loop {
            match self.policy.pick_next(&mut self.rq, self.now) {
                Pick::Nothing => {
                    assert!(!self.at.contains(&At::Queued), "nothing picked: {:?}", self.at);
                    return;
                }
                Pick::Finished(t) => {
                    assert_eq!(self.at[t.index()], At::Delayed);
                    self.policy.dequeue(&mut self.rq, t, &mut self.tasks[t.index()], Dequeue::Sleep, self.now);
                    self.at[t.index()] = At::Asleep;
                }
                Pick::Task(t) => {
                    assert_eq!(self.at[t.index()], At::Queued);
                    look(self, t.index());
                    self.policy.set_next(&mut self.rq, t, &mut self.tasks[t.index()], self.now);
                    self.at[t.index()] = At::Running;
                    self.curr = Some(t.index());
                    return;
                }
            }
        }
    }

    fn preempts(&mut self, woken: usize) -> bool {
        let Some(c) = self.curr else { return true };
        let copy = self.tasks[woken].clone();
        self.policy.wakeup_preempt(&mut self.rq, (id(c), &mut self.tasks[c]), (id(woken), &copy), self.now)
    }

    /// One step, then a new choice where one is due.
    pub fn step(&mut self, step: Step, look: impl FnMut(&Self, usize)) {
        let resched = match step {
            Step::Pass(ns) => {
                self.now += ns;
                false
            }
            Step::Tick => {
                self.curr.is_some_and(|c| self.policy.tick(&mut self.rq, id(c), &mut self.tasks[c], self.now))
            }
            Step::Wake(i) => match self.at[i] {
                At::New | At::Asleep => {
                    let why = if self.at[i] == At::New { Enqueue::New } else { Enqueue::Wakeup { moved: false } };
                    self.policy.enqueue(&mut self.rq, id(i), &mut self.tasks[i], why, self.now);
                    self.at[i] = At::Queued;
                    self.preempts(i)
                }
                At::Delayed => {
                    self.policy.revive(&mut self.rq, id(i), &mut self.tasks[i], self.now);
                    self.at[i] = At::Queued;
                    self.preempts(i)
                }
                At::Queued | At::Running => false,
            },
            Step::Sleep => {
                self.put(Put::Sleep);
                self.pick(look);
                return;
            }
            Step::Yield => {
                if self.curr.is_some() {
                    self.put(Put::Yielded);
                    self.pick(look);
                }
                return;
            }
            Step::Away(i) => {
                if self.at[i] == At::Queued {
                    self.policy.dequeue(&mut self.rq, id(i), &mut self.tasks[i], Dequeue::Migrate, self.now);
                    self.now += 1000;
                    self.policy.enqueue(&mut self.rq, id(i), &mut self.tasks[i], Enqueue::Migrate, self.now);
                }
                false
            }
        };
        if resched {
            self.put(Put::Preempted);
            self.pick(look);
        }
    }

    /// All tasks compute for `ns`, with a tick every `tick`; returns what each ran.
    pub fn saturate(&mut self, ns: u64, tick: u64, mut look: impl FnMut(&Self)) -> Vec<u64> {
        (0..self.tasks.len()).for_each(|i| self.step(Step::Wake(i), |_, _| ()));
        let end = self.now + ns;
        while self.now < end {
            self.step(Step::Pass(tick), |_, _| ());
            self.step(Step::Tick, |_, _| ());
            look(self);
        }
        self.put(Put::Preempted);
        self.tasks.iter().map(|t| self.policy.sum_exec(t)).collect()
    }
}
