//! How runs end, with the exact text of each.

use crate::common::{MS, cpus, hog, machine, preset, run_on, script, task};
use contend_platform::{TaskId, Time};
use contend_sched::features::Features;
use contend_sched::policy::{Dequeue, Enqueue, Pick, Policy, Put};
use contend_sim::guest::Guests;
use contend_sim::host::{Limits, Outcome, RunResult, Setup, simulate, simulate_with};
use contend_sim::program::{ObjectKind, Op, TaskSpec, Workload};
use std::collections::VecDeque;

fn end(w: Workload) -> RunResult {
    run_on(machine("2c"), &preset("linux-6.18"), w, 60_000 * MS)
}

fn check(r: &RunResult, name: &str, detail: &str) {
    assert_eq!((r.outcome.name(), r.outcome.detail().as_str()), (name, detail));
    assert_eq!(r.outcome.is_ok(), matches!(name, "finished" | "horizon"));
    assert_eq!(r.ledger().iter().sum::<u64>(), r.virtual_ns * r.cpus.len() as u64, "the ledger of a failed run too");
}

#[test]
fn finished_and_horizon() {
    let mut w = Workload::default();
    w.task(hog("a", MS));
    check(&end(w), "finished", "");
    let mut w = Workload { horizon: Some(MS), ..Workload::default() };
    w.task(hog("a", 10 * MS));
    check(&end(w), "horizon", "");
    check(&end(Workload::default()), "finished", "");
}

#[test]
fn deadlock_says_who_waits_for_what() {
    let mut w = Workload::default();
    let a = w.object("a", ObjectKind::Mutex);
    let b = w.object("b", ObjectKind::Mutex);
    w.task(script("left", vec![Op::Lock(a), Op::Sleep(MS), Op::Lock(b)]));
    w.task(script("right", vec![Op::Lock(b), Op::Sleep(MS), Op::Lock(a)]));
    let r = end(w);
    check(
        &r,
        "deadlock",
        "left (task 0) waits for mutex b, held by right (task 1); right (task 1) waits for mutex a, held by left (task 0)",
    );
}

#[test]
fn every_kind_of_wait_has_its_words() {
    let mut w = Workload::default();
    let pipe = w.object("pipe", ObjectKind::Pipe { capacity: 100 });
    let full = w.object("full", ObjectKind::Pipe { capacity: 100 });
    let sem = w.object("sem", ObjectKind::Semaphore { initial: 0 });
    let futex = w.object("futex", ObjectKind::Futex);
    let barrier = w.object("barrier", ObjectKind::Barrier { parties: 3 });
    let (cond, mutex) = (w.object("cond", ObjectKind::Cond), w.object("mutex", ObjectKind::Mutex));
    for (i, op) in
        [Op::Read(pipe, 7), Op::SemWait(sem), Op::FutexWait(futex), Op::Barrier(barrier), Op::Write(full, 130)]
            .into_iter()
            .enumerate()
    {
        w.task(script(&format!("t{i}"), vec![op]));
    }
    w.task(script("t5", vec![Op::Lock(mutex), Op::CondWait { cond, mutex }]));
    check(
        &end(w),
        "deadlock",
        "t0 (task 0) waits for 7 bytes from pipe; t1 (task 1) waits for a post to sem; \
         t2 (task 2) waits for a wake-up of futex; t3 (task 3) waits for barrier barrier (1 of 3 have arrived); \
         t4 (task 4) waits for room for 30 bytes in full; t5 (task 5) waits for a signal of cond",
    );
    let mut w = Workload::default();
    let sem = w.object("sem", ObjectKind::Semaphore { initial: 0 });
    (0..25).for_each(|i| w.task(script(&format!("t{i}"), vec![Op::SemWait(sem)])));
    assert!(end(w).outcome.detail().ends_with("t19 (task 19) waits for a post to sem; and 5 more"));
}

#[test]
fn stall_names_the_starved_task() {
    let mut w = Workload::default();
    for name in ["greedy", "starved"] {
        w.task(TaskSpec { affinity: Some(cpus(&[1])), ..hog(name, 20_000 * MS) });
    }
    let limits = Limits { horizon: 60_000 * MS, stall: 1000 * MS, ..Limits::default() };
    let p = preset("fifo");
    let setup =
        Setup { machine: machine("2c"), features: p.features, workload: w, seed: 1, limits, guests: Guests::default() };
    let r = simulate(p.policy, setup, None, &mut |_| true).expect("stacks");
    check(&r, "stall", "starved (task 1) has been runnable since 0 ms and does not run");
    assert!(r.virtual_ns <= 1400 * MS, "found at {} ms", r.virtual_ns / MS);
}

#[test]
fn a_panicking_program_is_an_outcome() {
    let mut w = Workload::default();
    w.task(task("bad", |cx| if cx.now > MS { panic!("step {} is one too many", 3) } else { Op::Run(2 * MS) }));
    let r = end(w);
    assert_eq!(r.outcome.name(), "panic");
    assert!(r.outcome.detail().contains("step 3 is one too many"), "{}", r.outcome.detail());
    let mut w = Workload::default();
    let m = w.object("m", ObjectKind::Mutex);
    w.task(script("bad", vec![Op::Unlock(m)]));
    assert!(end(w).outcome.detail().contains("mutex m is unlocked by a task that does not hold it"));
}

#[test]
fn interrupted() {
    let mut w = Workload::default();
    w.task(task("sleepless", |cx| if cx.now % 2 == 0 { Op::Run(999) } else { Op::Sleep(1001) }));
    let p = preset("linux-6.18");
    let setup = Setup {
        machine: machine("2c"),
        features: p.features,
        workload: w,
        seed: 1,
        limits: Limits::default(),
        guests: Guests::default(),
    };
    let mut looks = 0;
    let r = simulate(p.policy, setup, None, &mut |status| {
        assert_eq!(status.alive, 1);
        looks += 1;
        looks < 3
    })
    .expect("stacks");
    check(&r, "interrupted", "");
    assert_eq!(looks, 3);
}

// ---- policies that go wrong ---------------------------------------------------------------------------------------

#[derive(Clone, Copy)]
enum Wrong {
    /// Names a task that never existed.
    Nobody,
    /// Says that nothing is queued.
    Nothing,
    /// Is finished with this task: nobody, one that sleeps and is queued nowhere, or one that is awake.
    Finished(u32),
    /// Panics.
    Panic,
    /// Keeps a task running for ever: no error, a stall.
    Unfair,
    /// Offers this task to balancing: nobody, or one that is not there.
    Offers(u32),
}

/// First in first out, but for one mistake.
struct Buggy(Wrong);

impl Policy for Buggy {
    type Rq = (VecDeque<TaskId>, u32);
    type Task = (u64, Time);
    fn new_rq(&self) -> Self::Rq {
        Self::Rq::default()
    }
    fn new_task(&self, _: i8) -> (u64, Time) {
        (0, 0)
    }
    fn enqueue(&self, rq: &mut Self::Rq, task: TaskId, _: &mut (u64, Time), _: Enqueue, _: Time) {
        rq.0.push_back(task);
    }
    fn dequeue(&self, rq: &mut Self::Rq, task: TaskId, _: &mut (u64, Time), _: Dequeue, _: Time) {
        rq.0.retain(|t| *t != task);
    }
    fn pick_next(&self, rq: &mut Self::Rq, _: Time) -> Pick {
        let Some(first) = rq.0.front() else { return Pick::Nothing };
        rq.1 += 1;
        match (self.0, rq.1) {
            (Wrong::Nobody, 3..) => Pick::Task(TaskId(4711)),
            (Wrong::Nothing, 3..) => Pick::Nothing,
            (Wrong::Finished(task), 3..) => Pick::Finished(TaskId(task)),
            (Wrong::Panic, 3..) => panic!("the third choice is hard"),
            _ => Pick::Task(*first),
        }
    }
    fn set_next(&self, rq: &mut Self::Rq, task: TaskId, _: &mut (u64, Time), _: Time) {
        rq.0.retain(|t| *t != task);
    }
    fn put_prev(&self, rq: &mut Self::Rq, task: TaskId, _: &mut (u64, Time), why: Put, _: Time) -> bool {
        if matches!(why, Put::Preempted | Put::Yielded) {
            rq.0.push_back(task);
        }
        false
    }
    fn tick(&self, _: &mut Self::Rq, _: TaskId, _: &mut (u64, Time), _: Time) -> bool {
        !matches!(self.0, Wrong::Unfair)
    }
    fn wakeup_preempt(
        &self,
        _: &mut Self::Rq,
        _: (TaskId, &mut (u64, Time)),
        _: (TaskId, &(u64, Time)),
        _: Time,
    ) -> bool {
        false
    }
    fn candidates(&self, _: &Self::Rq, _: usize, into: &mut Vec<TaskId>) {
        if let Wrong::Offers(task) = self.0 {
            into.push(TaskId(task));
        }
    }
    fn last_ran(&self, t: &(u64, Time)) -> Time {
        t.1
    }
    fn sum_exec(&self, t: &(u64, Time)) -> u64 {
        t.0
    }
}

#[test]
fn policy_errors() {
    let run_on = |cpus: &str, more: usize, wrong: Wrong| {
        let mut w = Workload::default();
        // The second choice finds a exited or asleep and b, c queued.
        w.task(script("a", vec![Op::Run(100_000), Op::Sleep(50 * MS)]));
        w.task(hog("b", 5 * MS));
        w.task(hog("c", 5 * MS));
        (0..more).for_each(|_| w.task(hog("d", 500 * MS)));
        let limits = Limits { horizon: 60_000 * MS, ..Limits::default() };
        let setup = Setup {
            machine: machine(cpus),
            features: Features::default(),
            workload: w,
            seed: 1,
            limits,
            guests: Guests::default(),
        };
        simulate_with(Buggy(wrong), setup, None, &mut |_| true).expect("stacks")
    };
    let run = |wrong| run_on("1c", 0, wrong);
    check(&run(Wrong::Nobody), "policy-error", "pick_next on cpu0 named task4711, which does not exist");
    check(
        &run(Wrong::Nothing),
        "policy-error",
        "pick_next found nothing on cpu0 where 2 tasks are runnable (task1, task2)",
    );
    let finished = |task| run(Wrong::Finished(task));
    check(&finished(4711), "policy-error", "pick_next on cpu0 named task4711, which does not exist");
    check(&finished(0), "policy-error", "pick_next on cpu0 named Finished(task0), which is queued nowhere");
    check(&finished(1), "policy-error", "pick_next on cpu0 named Finished(task1), which is queued on cpu0, awake");
    let r = run(Wrong::Panic);
    assert_eq!(r.outcome.name(), "panic");
    assert!(r.outcome.detail().contains("the third choice is hard"), "{}", r.outcome.detail());
    assert_eq!(run(Wrong::Unfair).outcome, Outcome::Finished);
    let offers = |task| run_on("2c", 3, Wrong::Offers(task)).outcome;
    let nobody = offers(4711);
    assert!(nobody.detail().contains("named task4711, which does not exist"), "{}", nobody.detail());
    // Task 0 sleeps, or runs elsewhere.
    let asleep = offers(0);
    assert!(asleep.detail().contains("candidates on cpu"), "{asleep:?}");
    assert!(asleep.detail().contains("named task0, which is not runnable there"), "{}", asleep.detail());
}

#[test]
fn a_policy_that_names_a_sleeper() {
    /// Names task 0 whenever it is asked.
    struct Stubborn(Buggy);
    impl Policy for Stubborn {
        type Rq = <Buggy as Policy>::Rq;
        type Task = <Buggy as Policy>::Task;
        fn new_rq(&self) -> Self::Rq {
            self.0.new_rq()
        }
        fn new_task(&self, nice: i8) -> Self::Task {
            self.0.new_task(nice)
        }
        fn enqueue(&self, rq: &mut Self::Rq, task: TaskId, t: &mut Self::Task, why: Enqueue, now: Time) {
            self.0.enqueue(rq, task, t, why, now);
        }
        fn dequeue(&self, rq: &mut Self::Rq, task: TaskId, t: &mut Self::Task, why: Dequeue, now: Time) {
            self.0.dequeue(rq, task, t, why, now);
        }
        fn pick_next(&self, rq: &mut Self::Rq, _: Time) -> Pick {
            if rq.0.is_empty() { Pick::Nothing } else { Pick::Task(TaskId(0)) }
        }
        fn set_next(&self, rq: &mut Self::Rq, task: TaskId, t: &mut Self::Task, now: Time) {
            self.0.set_next(rq, task, t, now);
        }
        fn put_prev(&self, rq: &mut Self::Rq, task: TaskId, t: &mut Self::Task, why: Put, now: Time) -> bool {
            self.0.put_prev(rq, task, t, why, now)
        }
        fn tick(&self, _: &mut Self::Rq, _: TaskId, _: &mut Self::Task, _: Time) -> bool {
            false
        }
        fn wakeup_preempt(
            &self,
            _: &mut Self::Rq,
            _: (TaskId, &mut Self::Task),
            _: (TaskId, &Self::Task),
            _: Time,
        ) -> bool {
            false
        }
        fn candidates(&self, _: &Self::Rq, _: usize, _: &mut Vec<TaskId>) {}
        fn last_ran(&self, t: &Self::Task) -> Time {
            t.1
        }
        fn sum_exec(&self, t: &Self::Task) -> u64 {
            t.0
        }
    }
    let mut w = Workload::default();
    w.task(script("a", vec![Op::Run(100_000), Op::Sleep(50 * MS)]));
    w.task(hog("b", 5 * MS));
    let limits = Limits { horizon: 60_000 * MS, ..Limits::default() };
    let setup = Setup {
        machine: machine("1c"),
        features: Features::default(),
        workload: w,
        seed: 1,
        limits,
        guests: Guests::default(),
    };
    let r = simulate_with(Stubborn(Buggy(Wrong::Unfair)), setup, None, &mut |_| true).expect("stacks");
    check(&r, "policy-error", "pick_next on cpu0 named task0, which is not runnable there: it is queued nowhere");
}

/// Longer than anybody may be runnable without running.
#[test]
fn a_long_sleep_is_no_livelock() {
    for cpus in ["1c", "4c"] {
        let mut w = Workload::default();
        w.task(script("sleeper", vec![Op::Run(1000), Op::Sleep(100_000 * MS), Op::Run(1000)]));
        let r = run_on(machine(cpus), &preset("linux-6.18"), w, 200_000 * MS);
        check(&r, "finished", "");
        assert!(r.virtual_ns > 100_000 * MS);
    }
}

#[test]
fn a_long_computation_is_no_livelock() {
    let mut w = Workload::default();
    w.task(hog("long", 50_000 * MS));
    check(&end(w), "finished", "");
}
