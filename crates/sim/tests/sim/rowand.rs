//! The patch of December 2010 with its weaknesses (mechanisms B.2): what they do is pinned, and never repaired.
//!
//! * The return value of a queued wake-up is lost, so a wake-one walk wakes everybody.
//! * A batch is woken last in, first out.
//! * A task that sets itself running while it is queued can be pushed a second time: the list becomes a cycle.
//!
//! The last cannot happen to tasks of this project's small kernel: there, whoever announces a sleep goes to sleep (it looks
//! at its condition before, with the object's lock held, and `schedule()` takes the state WAKING for a sleep), so a task is
//! off the list before it can be pushed again. It takes a kernel in which a task looks once more after the
//! announcement and stays awake, as wait loops of Linux do. `double_push` plays one.

use crate::common::{Does, MS, cpus, machine, preset, run_on, script, traced};
use contend_platform::Ordering::{Acquire, Release};
use contend_platform::{Account, CpuId, Platform, TaskId, Work};
use contend_sched::capacity::Told;
use contend_sched::class::Sched;
use contend_sched::cpuset::Affinity;
use contend_sched::kernel::{CorruptList, Kernel, SyscallEnd, Syscalls};
use contend_sched::policy::cfs::Cfs;
use contend_sched::task::state;
use contend_sim::engine::Engine;
use contend_sim::host::Outcome;
use contend_sim::program::{GroupId, ObjectKind, Op, TaskSpec, Workload};
use contend_sim::world::Sim;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;

const ROWAND: &str = "linux-2.6.37-rowand";

/// `readers` tasks on CPU 1 sleep on one pipe; CPU 0 writes for one of them, and later for the rest.
fn one_pipe(readers: usize) -> Workload {
    let mut w = Workload::default();
    let pipe = w.object("pipe", ObjectKind::Pipe { capacity: 65_536 });
    for i in 0..readers {
        let t = script(&format!("r{i}"), vec![Op::Read(pipe, 1)]);
        w.task(TaskSpec { affinity: Some(cpus(&[1])), ..t });
    }
    let ops = vec![Op::Sleep(5 * MS), Op::Write(pipe, 1), Op::Sleep(5 * MS), Op::Write(pipe, readers as u32 - 1)];
    w.task(TaskSpec { affinity: Some(cpus(&[0])), ..script("writer", ops) });
    w
}

/// Wake-ups of readers in each era, after the first byte was written (the writer is between its two sleeps).
fn woken_by_one_byte(name: &str) -> (u64, Vec<String>) {
    let p = preset(name);
    let (_, lines) = traced(machine("x86_64-2cpu"), p.policy, p.features, one_pipe(6), 8 * MS);
    if std::env::var("SHOW").is_ok() {
        for l in &lines {
            println!("{l}");
        }
    }
    let wakes: Vec<String> = lines.into_iter().filter(|l| l.contains(" wakes r")).collect();
    (wakes.len() as u64, wakes)
}

#[test]
fn a_wake_one_walk_wakes_everybody() {
    assert_eq!(woken_by_one_byte("linux-2.6.37").0, 1);
    assert_eq!(woken_by_one_byte("linux-3.0").0, 1);
    assert_eq!(woken_by_one_byte(ROWAND).0, 6);
    let r = run_on(machine("x86_64-2cpu"), &preset(ROWAND), one_pipe(6), 1000 * MS);
    assert_eq!(r.outcome, Outcome::Finished, "too many wake-ups, but none too few");
}

#[test]
fn a_batch_is_woken_last_in_first_out() {
    let p = preset(ROWAND);
    let (_, lines) = traced(machine("x86_64-2cpu"), p.policy, p.features, one_pipe(6), 8 * MS);
    let of = |l: &String, mark: &str| l.split(mark).nth(1).map(|rest| rest[..2].to_string());
    let slept: Vec<String> =
        lines.iter().take_while(|l| !l.contains("wakes")).filter_map(|l| of(l, "cpu1  ")).collect();
    let slept: Vec<String> = slept.into_iter().filter(|s| s.starts_with('r')).collect();
    let mut woken: Vec<String> = lines.iter().filter_map(|l| of(l, " wakes ")).filter(|w| w.starts_with('r')).collect();
    assert_eq!(slept.len(), 6, "they queued at the pipe in this order: {slept:?}");
    woken.reverse();
    assert_eq!(woken, slept, "the walk goes through the queue; its end is woken first");
}

/// `batch` sleepers of CPU 1, woken together by CPU 0: interrupts coalesce and never exceed the remote wake-ups.
#[test]
fn interrupts_do_not_exceed_remote_wake_ups() {
    let ratio = |batch: u32| {
        let mut w = Workload::default();
        let sem = w.object("sem", ObjectKind::Semaphore { initial: 0 });
        for i in 0..batch {
            let t = TaskSpec::new(format!("s{i}"), Does(move |_: &mut contend_sim::program::Cx<'_>| Op::SemWait(sem)));
            w.task(TaskSpec { affinity: Some(cpus(&[1])), background: true, ..t });
        }
        let mut left = 200;
        let post = move |_: &mut contend_sim::program::Cx<'_>| {
            left -= 1;
            match left {
                0 => Op::Exit,
                n if n % 2 == 0 => Op::SemPost(sem, batch),
                _ => Op::Sleep(2 * MS),
            }
        };
        w.task(TaskSpec { affinity: Some(cpus(&[0])), ..TaskSpec::new("poster", Does(post)) });
        let r = run_on(machine("x86_64-2cpu"), &preset(ROWAND), w, 2000 * MS);
        assert_eq!(r.outcome, Outcome::Finished);
        let remote: u64 = r.tasks.iter().filter(|t| t.name.starts_with('s')).map(|t| t.wake.nr_wakeups).sum();
        assert!(remote >= u64::from(batch) * 90, "{remote}");
        // Each start of a task interrupts once.
        assert!(r.counts.ipis <= remote + u64::from(batch), "{} interrupts, {remote} wake-ups", r.counts.ipis);
        r.counts.ipis as f64 / remote as f64
    };
    let (one, four, sixteen) = (ratio(1), ratio(4), ratio(16));
    assert!(one > 0.95, "{one}");
    assert!(four < 0.9 * one && sixteen < 0.9 * four, "the ratio falls with the batch: {one} {four} {sixteen}");
}

// ---- the double push ----------------------------------------------------------------------------------------------

/// A kernel whose task announces its sleep and then stays awake, twice in one system call, as a wait loop whose condition
/// comes true does. Meanwhile another CPU wakes it each time.
struct Restless {
    task: Cell<Option<TaskId>>,
    /// The state the first waker found, then the second.
    go: <Sim as Platform>::Word,
}

impl Syscalls<Sim, Cfs> for Restless {
    fn syscall(&self, kernel: &Kernel<Sim, Cfs>, p: &Sim, task: TaskId) -> SyscallEnd {
        for round in 0..2 {
            kernel.announce_sleep(p, task, state::INTERRUPTIBLE);
            p.store(&self.go, 2 * round + 1, Release);
            p.wait_until([&self.go], None, |[v]| v == 2 * round + 2);
            // The condition is true after all.
            kernel.cancel_sleep(p, task);
        }
        SyscallEnd::Block
    }
}

#[test]
fn a_double_push_corrupts_the_list_and_is_the_outcome() {
    let m = machine("x86_64-2cpu");
    let features = preset(ROWAND).features;
    let topo = m.topology.clone();
    let engine = Engine::new(m);
    let p = Sim::new(Rc::clone(&engine), None);
    let policy = Cfs::new(&features, 2);
    let kernel = Rc::new(Kernel::new(&p, topo, Told::Nothing, features, policy, 4 * MS));
    let world = Rc::new(Restless { task: Cell::new(None), go: p.word(p.line(), 0) });
    let mut stacks = engine
        .boot(|_| {
            let (kernel, p, world) = (Rc::clone(&kernel), p.clone(), Rc::clone(&world));
            move |cpu: CpuId| {
                if cpu == CpuId(1) {
                    return kernel.cpu_loop(&p, &*world);
                }
                let mut only1 = fixedbitset::FixedBitSet::with_capacity(2);
                only1.insert(1);
                let task = kernel.create(&p, Sched::default(), Affinity::only(only1), GroupId::ROOT);
                p.engine().create_task(task, 0);
                p.engine().set_work(task, 1000, Account::User);
                world.task.set(Some(task));
                kernel.wake_up_new(&p, task);
                for round in 0..2 {
                    p.wait_until([&world.go], None, |[v]| v == 2 * round + 1);
                    assert_eq!(p.load(&kernel.task(task).state, Acquire), state::INTERRUPTIBLE);
                    assert!(!kernel.try_to_wake_up(&p, task, state::NORMAL, 0), "queued: reported as not woken");
                    p.store(&world.go, 2 * round + 2, Release);
                }
                p.charge(Work::Ns, 1);
            }
        })
        .expect("stacks");
    let end = catch_unwind(AssertUnwindSafe(|| engine.run(&mut stacks, 1000 * MS, u64::MAX)));
    let payload = end.expect_err("the list is a cycle").downcast::<CorruptList>().expect("CorruptList");
    assert_eq!(
        payload.0,
        "the wake list of cpu1 is a cycle: a task was pushed while it was still queued (rowand-queue, weakness b)"
    );
}
