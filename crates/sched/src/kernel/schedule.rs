//! `schedule()`.
//!
//! It follows the kernel's protocol: the run-queue lock is held over the switch, `on_cpu` of the task that left is cleared
//! when the next one has taken over, and only then is the lock released.

use super::{Held, Kernel, policy_error};
use crate::features::Balance;
use crate::policy::{Dequeue, Pick, Policy, Put};
use crate::rq::{RESCHED_MASK, peek_curr};
use crate::task::state;
use crate::wake_protocol;
use contend_platform::Ordering::{AcqRel, Acquire, Relaxed};
use contend_platform::{Account, CpuId, Nanos, SchedEvent, SchedPlatform, TaskId, Time, Work};

/// Why `schedule` is called.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Why {
    Preempt,
    Block,
    Yield,
    Exit,
    /// The stopper takes the running task to that CPU.
    MoveTo(CpuId),
    /// There is a task for an idle CPU, and so many ns of the way here are the task's.
    Idle {
        way: Nanos,
    },
}

impl<P: SchedPlatform, L: Policy> Kernel<P, L> {
    /// Choose what runs next and switch to it; returns it (`None`: idle).
    pub(super) fn schedule(&self, p: &P, why: Why) -> Option<TaskId> {
        let before = p.enter(Account::Switch);
        let cpu = p.cpu();
        let rq = self.rq(cpu);
        let mut held = self.lock(p, cpu);
        p.charge(Work::ClockRead, 1);
        let (prev, left) = self.with_rq(p, &held, |rd| {
            rd.stats.sched_count += 1;
            (rd.curr, rd.rt.left_alone())
        });
        if let Some(left) = left.filter(|_| matches!(why, Why::Block | Why::Exit)) {
            held = self.pull_rt(p, held, left);
        }
        let mut pushed = None;
        if let Some(task) = prev {
            let stays = self.put_prev(p, &held, task, why);
            let parked = self.bandwidth_stopped(p, &held, task, stays);
            pushed = match why {
                Why::Preempt if stays && !parked => self.take_pushed(p, &held, task),
                Why::MoveTo(to) if stays && !parked => Some(self.take_off(p, &held, task, to)),
                _ => None,
            };
        }
        if p.load(&rq.resched, Relaxed) & RESCHED_MASK != 0 {
            p.fetch_and(&rq.resched, !RESCHED_MASK, AcqRel);
        }
        let mut next = self.pick(p, &held);
        if next.is_none() {
            held = self.newidle(p, held);
            next = self.pick(p, &held);
        }
        let now = p.now();
        if let Some(task) = next {
            let way = if let Why::Idle { way } = why { way } else { 0 };
            self.set_next(p, &held, task, prev, (now, way));
        } else {
            let was_idle = prev.is_none();
            self.with_rq(p, &held, |rd| {
                rd.update_averages(now);
                rd.curr = None;
                rd.stats.sched_goidle += 1;
                if !was_idle || rd.idle_stamp == 0 {
                    rd.idle_stamp = now;
                }
            });
        }
        self.publish(p, &held);
        self.update_misfit(p, &held, next);
        if next != prev {
            let prev_state = self.leaving_state(p, prev, why);
            p.trace(SchedEvent::Switch { prev, prev_state, next });
            if let Some(task) = next {
                wake_protocol::enter_cpu(p, self.task(task).words());
            }
            p.switch_to(prev, next);
            // finish_task_switch: from here another CPU may run the task that left.
            if let Some(task) = prev {
                wake_protocol::leave_cpu(p, self.task(task).words());
            }
            if prev.is_none() {
                p.stop_tick(false);
                self.nohz_idle.set(cpu, false);
            }
        } else if next.is_some() {
            p.switch_to(prev, next);
        }
        let (rt_used, throttled) = self.with_rq(p, &held, |rd| (rd.rt.is_used(), rd.rt.nr_throttled() > 0));
        self.unlock_pushing(p, held);
        if let Some((task, to)) = pushed {
            self.attach(p, to, &[task]);
            if why == Why::Preempt {
                self.count_pushed(p, cpu, to);
            }
        }
        if next.is_none() && prev.is_some() {
            self.idle_entered(p, throttled);
        } else if next.is_none() && rt_used {
            // A throttled task has come meanwhile, or has gone elsewhere.
            p.stop_tick(!throttled);
        }
        if why == Why::Exit
            && let Some(task) = prev
        {
            self.tasks.free(task);
        }
        p.enter(before);
        next
    }

    /// prev_state of a sched_switch event.
    fn leaving_state(&self, p: &P, prev: Option<TaskId>, why: Why) -> u64 {
        match (prev, why) {
            (Some(_), Why::Exit) => state::DEAD,
            (Some(task), Why::Block) => p.load(&self.task(task).state, Relaxed) & state::NORMAL,
            _ => 0,
        }
    }

    /// Take the running task off; returns whether it stays on the queue.
    fn put_prev(&self, p: &P, held: &Held, task: TaskId, why: Why) -> bool {
        let t = self.task(task);
        let put = match why {
            Why::Exit => Put::Exit,
            Why::Yield => Put::Yielded,
            // A wake-up may have come between setting the state and here: then the task never sleeps.
            Why::Block if p.load(&t.state, Acquire) != state::RUNNING => Put::Sleep,
            Why::Block | Why::Preempt | Why::MoveTo(_) | Why::Idle { .. } => Put::Preempted,
        };
        p.charge(Work::Dequeue, u64::from(put == Put::Sleep || put == Put::Exit));
        self.bandwidth_charge(p, held, task);
        let now = p.now();
        let pelt = self.pelt;
        let (stays, nr_running) = self.with_task(p, held, task, |rd, e| {
            if pelt {
                rd.update_averages(now);
                e.util.update(now, rd.capacity);
                e.load.update(now, self.weight_of(e));
            }
            let ran = now - rd.curr_since;
            rd.curr_since = now;
            rd.stats.rq_cpu_time += ran;
            e.stats.sum_exec += ran;
            rd.running = None;
            let load = self.load_of(rd, e);
            let delayed = self.class_put_prev(rd, task, e, put, now);
            match put {
                Put::Preempted | Put::Yielded => {
                    e.waiting_since = Some(now);
                    e.woken = false;
                    if put == Put::Yielded {
                        rd.stats.yld_count += 1;
                    } else {
                        e.stats.preempted += 1;
                    }
                    return (true, rd.nr_running);
                }
                Put::Exit if pelt && e.sched.rt().is_none() => {
                    rd.load.sub(load);
                    rd.util.sub(e.util.get());
                }
                Put::Sleep | Put::Exit => e.slept_load = load,
            }
            rd.runnable_load.sub(load);
            rd.est_out(e);
            e.est_update();
            rd.nr_running -= 1;
            rd.set_weight(&self.policy, rd.weight - self.weight_of(e));
            if delayed {
                e.delayed = true;
            } else {
                e.queued_on = None;
                rd.nr_queued -= 1;
            }
            (delayed, rd.nr_running)
        });
        p.queue_length(held.0, nr_running);
        if matches!(put, Put::Sleep | Put::Exit) {
            self.bandwidth_left(p, held, task);
        }
        if !stays {
            wake_protocol::leave_queue(p, t.words());
        }
        stays
    }

    /// Ask the policy, verify its answer.
    fn pick(&self, p: &P, held: &Held) -> Option<TaskId> {
        loop {
            p.charge(Work::Pick, 1);
            let now = p.now();
            let picked = self.with_rq(p, held, |rd| {
                rd.throttle(&self.features, now);
                rd.rt.next().map_or_else(|| self.policy.pick_next(&mut rd.pol, now), Pick::Task)
            });
            match picked {
                Pick::Nothing => {
                    let queued = self.with_rq(p, held, |rd| rd.nr_fair());
                    if queued != 0 {
                        self.nothing_found(p, held, queued);
                    }
                    return None;
                }
                Pick::Task(task) => {
                    self.verify(p, held, task);
                    if self.bandwidth_parks(p, held, task) {
                        continue;
                    }
                    return Some(task);
                }
                Pick::Finished(task) => {
                    self.must_exist(held.0, task, "pick_next");
                    let was = self.with_task(p, held, task, |rd, e| {
                        let was = (e.queued_on, e.delayed);
                        if was == (Some(held.0), true) {
                            self.policy.dequeue(&mut rd.pol, task, &mut e.pol, Dequeue::Sleep, now);
                            e.delayed = false;
                            e.queued_on = None;
                            rd.nr_queued -= 1;
                        }
                        was
                    });
                    // Only a sleeping task that is still queued here is finished with.
                    if was != (Some(held.0), true) {
                        let is = described(was.0, was.1);
                        policy_error(format!("pick_next on {:?} named Finished({task:?}), which {is}", held.0));
                    }
                    wake_protocol::leave_queue(p, self.task(task).words());
                }
            }
        }
    }

    /// No task on two CPUs, none on a forbidden one.
    fn verify(&self, p: &P, held: &Held, task: TaskId) {
        self.must_exist(held.0, task, "pick_next");
        let (queued_on, delayed) = self.with_task(p, held, task, |_, e| (e.queued_on, e.delayed));
        must_be_runnable(held.0, task, queued_on, delayed, "pick_next");
    }

    /// The policy named nobody: say whom it should have.
    fn nothing_found(&self, p: &P, held: &Held, queued: u32) -> ! {
        const NAMED_MAX: usize = 8;
        let here = |task: TaskId| {
            let t = self.task(task);
            // Only of a task queued here does the held lock guard the rest.
            let ours = p.load(&t.cpu, Acquire) == held.0.index() as u64 && p.load(&t.on_rq, Acquire) != 0;
            ours && self
                .with_task(p, held, task, |_, e| e.queued_on == Some(held.0) && !e.delayed && e.sched.rt().is_none())
        };
        let names: Vec<_> = self.tasks.ids().filter(|t| here(*t)).take(NAMED_MAX).map(|t| format!("{t:?}")).collect();
        let more = if queued as usize > names.len() { ", ..." } else { "" };
        policy_error(format!(
            "pick_next found nothing on {:?} where {queued} tasks are runnable ({}{more})",
            held.0,
            names.join(", ")
        ));
    }

    /// The policy's function `by` has named this task on `cpu`.
    pub(crate) fn must_exist(&self, cpu: CpuId, task: TaskId, by: &str) {
        if !self.tasks.exists(task) {
            policy_error(format!("{by} on {cpu:?} named {task:?}, which does not exist"));
        }
    }

    /// The task has been chosen now, and its CPU time began so long ago, but not before it was queued.
    fn set_next(&self, p: &P, held: &Held, task: TaskId, prev: Option<TaskId>, (now, way): (Time, Nanos)) {
        let pelt = self.pelt;
        let latency = self.with_task(p, held, task, |rd, e| {
            let from = (now - way).max(e.waiting_since.unwrap_or(now));
            if pelt {
                rd.update_averages(from);
                e.util.update(from, 0);
                e.load.update(from, self.weight_of(e));
            }
            self.class_set_next(rd, task, e, from);
            rd.curr = Some(task);
            rd.running = Some(task);
            rd.curr_since = from;
            self.bandwidth_begins(rd, from);
            rd.idle_stamp = 0;
            let mut latency = None;
            if let Some(since) = e.waiting_since.take() {
                let waited = now - since;
                if e.woken {
                    latency = Some(waited);
                }
                if prev != Some(task) {
                    rd.stats.run_delay += waited;
                    rd.stats.pcount += 1;
                    e.stats.waits += 1;
                    e.stats.wait_sum += waited;
                    if waited > e.stats.wait_max {
                        e.stats.wait_max = waited;
                        e.stats.wait_max_at = since;
                    }
                } else {
                    // Put back and picked again in one go: it never waited, and was not switched away from.
                    e.stats.preempted -= u64::from(!e.woken && e.stats.preempted > 0);
                }
            }
            if prev != Some(task) {
                e.stats.switches += 1;
            }
            latency
        });
        if let Some(ns) = latency {
            p.wakeup_latency(ns);
        }
    }

    /// Nothing to run: look for work elsewhere. Returns with the lock held again.
    fn newidle(&self, p: &P, held: Held) -> Held {
        let now = p.now();
        let cpu = held.0;
        self.with_rq(p, &held, |rd| {
            if rd.idle_stamp == 0 {
                rd.idle_stamp = now;
            }
        });
        // A spurious idle-to-idle schedule does not balance again.
        let fresh = peek_curr(p.load(&self.rq(cpu).peek, Relaxed)).is_some();
        if !fresh || !self.features.newidle_balance {
            return held;
        }
        if L::PULLS {
            return self.pull_by_policy(p, held);
        }
        if self.features.balance == Balance::Off {
            return held;
        }
        self.newidle_balance(p, held)
    }

    /// This CPU has become idle.
    pub(super) fn idle_entered(&self, p: &P, throttled: bool) {
        // Throttled tasks wait for a tick.
        p.stop_tick(!throttled);
        self.nohz_idle.set(p.cpu(), true);
        self.update_idle_core(p);
    }
}

/// The same: where the task is queued, and whether it sleeps.
pub(crate) fn must_be_runnable(cpu: CpuId, task: TaskId, queued_on: Option<CpuId>, delayed: bool, by: &str) {
    if queued_on != Some(cpu) || delayed {
        let is = described(queued_on, delayed);
        policy_error(format!("{by} on {cpu:?} named {task:?}, which is not runnable there: it {is}"));
    }
}

/// Where a task is, in words.
fn described(queued_on: Option<CpuId>, delayed: bool) -> String {
    match queued_on {
        None => "is queued nowhere".into(),
        Some(cpu) if delayed => format!("is queued on {cpu:?}, asleep"),
        Some(cpu) => format!("is queued on {cpu:?}, awake"),
    }
}
