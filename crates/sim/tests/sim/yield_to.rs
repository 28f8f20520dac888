//! Directed yield (mechanisms D.2, D.3): which checks fail and what they cost, what the hint does on either CPU, and that no
//! race of it harms anything.

use crate::common::{MS, Stage, cpus, machine, preset, stage};
use contend_platform::Ordering::{Acquire, Relaxed, Release};
use contend_platform::{Account, CpuId, Platform, SchedEvent, TaskId, Time};
use contend_sched::capacity::Told;
use contend_sched::class::Sched;
use contend_sched::cpuset::Affinity;
use contend_sched::features::{Balance, Features};
use contend_sched::kernel::{Kernel, SyscallEnd, Syscalls};
use contend_sched::policy::cfs::Cfs;
use contend_sched::policy::eevdf::Eevdf;
use contend_sched::policy::fifo::Fifo;
use contend_sched::policy::groups::GroupId;
use contend_sched::policy::{Pick, Policy};
use contend_sched::rq::{NEED_RESCHED, Rq};
use contend_sched::task::state;
use contend_sched::yield_to::{YieldTo, Yielded};
use contend_sim::engine::{Engine, Stop};
use contend_sim::world::{Sim, TraceHook};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use std::cell::{Cell, RefCell};
use std::rc::Rc;

const V3_6: YieldTo = YieldTo {
    unlocked_check: false,
    locked_check: true,
    nr_running_check: false,
    pi_lock: false,
    trylock: false,
    skip_yielding_rq: false,
};
const THEURER: YieldTo = YieldTo { unlocked_check: true, locked_check: false, ..V3_6 };
const TODAY: YieldTo = YieldTo { nr_running_check: true, pi_lock: true, ..V3_6 };

// ---- what fails, and what it costs -------------------------------------------------------------------------------------

/// Linux 3.6 whose new tasks begin as equals, so that every hint is fair.
fn equals() -> Features {
    Features { start_debit: false, ..preset("linux-3.6").features }
}

/// A runnable task on the run queue of `cpu`.
fn queued(s: &Stage, cpu: usize) -> TaskId {
    let t = s.kernel.create(&s.p, Sched::default(), Affinity::only(cpus(&[cpu])), GroupId::ROOT);
    s.kernel.wake_up_new(&s.p, t);
    t
}

/// What would run on `cpu`.
fn picked(s: &Stage, cpu: usize) -> Pick {
    // SAFETY: nobody holds the lock: the other CPUs do nothing.
    unsafe { s.p.read(&s.kernel.rqs[cpu].data, |rd| s.kernel.policy.pick_next(&mut rd.pol.clone(), 0)) }
}

/// Yield from CPU 0, which runs a task `me`; returns what became of it and how often the locks of CPUs 0 and 1 were taken.
fn from_0(s: &Stage, me: TaskId, target: TaskId, how: YieldTo) -> (Yielded, u64, u64) {
    let (own, theirs) = (s.locked(0), s.locked(1));
    let yielded = s.kernel.yield_to(&s.p, me, target, how);
    (yielded, s.locked(0) - own, s.locked(1) - theirs)
}

#[test]
fn the_hint_goes_to_the_target_s_queue_under_both_locks() {
    for how in [V3_6, THEURER, TODAY, YieldTo { trylock: true, ..V3_6 }, YieldTo { skip_yielding_rq: true, ..THEURER }]
    {
        stage("2c", equals(), false, move |s| {
            let me = s.sleeper(0);
            let tasks = [queued(s, 1), queued(s, 1), queued(s, 1)];
            let first = picked(s, 1);
            // The one that runs last, of equals.
            let target = tasks.into_iter().find(|t| first != Pick::Task(*t)).expect("two others");
            s.p.store(&s.kernel.rqs[1].resched, 0, Release);
            assert_eq!(from_0(s, me, target, how), (Yielded::Yes, 1, 1), "{how:?}");
            assert_eq!(picked(s, 1), Pick::Task(target));
            assert_eq!(s.p.load(&s.kernel.rqs[1].resched, Relaxed), NEED_RESCHED, "its CPU is to look");
            for rq in &s.kernel.rqs {
                assert_eq!(s.p.load(&rq.yielding, Acquire), 0);
                assert!(rq.lock.try_lock(&s.p), "released");
            }
            assert_eq!(s.p.load(&s.kernel.task(target).pi_lock, Acquire), 0);
        });
    }
}

#[test]
fn on_the_own_queue_one_lock_and_no_flag() {
    for how in [V3_6, THEURER, TODAY, YieldTo { trylock: true, skip_yielding_rq: true, ..V3_6 }] {
        stage("2c", equals(), false, move |s| {
            let me = s.sleeper(0);
            let (_, target) = (queued(s, 0), queued(s, 0));
            s.p.store(&s.kernel.rqs[0].resched, 0, Release);
            assert_eq!(from_0(s, me, target, how), (Yielded::Yes, 1, 0), "{how:?}");
            assert_eq!(picked(s, 0), Pick::Task(target));
            assert_eq!(s.p.load(&s.kernel.rqs[0].resched, Relaxed), 0, "it yields anyway");
        });
    }
}

#[test]
fn a_target_that_runs_or_sleeps() {
    stage("2c", equals(), false, |s| {
        let me = s.sleeper(0);
        let target = queued(s, 1);
        let words = s.kernel.task(target).words();
        for (word, value) in [(words.on_cpu, 1), (words.state, state::INTERRUPTIBLE)] {
            s.p.store(word, value, Release);
            assert_eq!(from_0(s, me, target, V3_6), (Yielded::Running, 1, 1));
            assert_eq!(from_0(s, me, target, THEURER), (Yielded::Running, 0, 0));
            let both = YieldTo { unlocked_check: true, ..V3_6 };
            assert_eq!(from_0(s, me, target, both), (Yielded::Running, 0, 0));
            // Nobody looks: a hint at a task that runs is allowed.
            assert_eq!(from_0(s, me, target, YieldTo::default()), (Yielded::Yes, 1, 1));
            s.p.store(word, 0, Release);
        }
        // One that has left its queue.
        let sleeper = s.sleeper(1);
        assert_eq!(from_0(s, me, sleeper, YieldTo::default()), (Yielded::NotQueued, 1, 1));
        assert_eq!(from_0(s, me, sleeper, V3_6), (Yielded::Running, 1, 1));
        // It has been woken, but the wake-up is not through: the state says runnable, the queue says no.
        s.p.store(&s.kernel.task(sleeper).state, state::RUNNING, Release);
        assert_eq!(from_0(s, me, sleeper, V3_6), (Yielded::NotQueued, 1, 1));
        assert_eq!(from_0(s, me, sleeper, THEURER), (Yielded::NotQueued, 1, 1));
    });
}

#[test]
fn alone_is_said_without_a_lock_and_only_if_both_are() {
    stage("2c", equals(), false, |s| {
        let me = s.sleeper(0);
        let target = queued(s, 1);
        for (own, theirs, want) in
            [(1, 1, (Yielded::Alone, 0, 0)), (2, 1, (Yielded::Yes, 1, 1)), (1, 2, (Yielded::Yes, 1, 1))]
        {
            s.busy(0, own);
            s.busy(1, theirs);
            assert_eq!(from_0(s, me, target, TODAY), want, "{own} here, {theirs} there");
        }
        s.busy(0, 1);
        s.busy(1, 1);
        assert_eq!(from_0(s, me, target, V3_6), (Yielded::Yes, 1, 1), "before 3.9 nobody asked");
        assert_eq!(s.p.load(&s.kernel.task(target).pi_lock, Acquire), 0, "released after a failure too");
    });
}

#[test]
fn who_only_tries_fails_on_either_lock() {
    stage("2c", equals(), false, |s| {
        let me = s.sleeper(0);
        let target = queued(s, 1);
        let how = YieldTo { trylock: true, ..V3_6 };
        let [own, theirs] = [&s.kernel.rqs[0].lock, &s.kernel.rqs[1].lock];
        theirs.lock(&s.p);
        assert_eq!(from_0(s, me, target, how), (Yielded::Busy, 0, 0));
        theirs.unlock(&s.p);
        own.lock(&s.p);
        assert_eq!(from_0(s, me, target, how), (Yielded::Busy, 0, 1));
        own.unlock(&s.p);
        assert_eq!(from_0(s, me, target, how), (Yielded::Yes, 1, 1), "the first was released");
    });
}

#[test]
fn a_queue_that_is_in_a_directed_yield_is_skipped_by_who_looks() {
    stage("2c", equals(), false, |s| {
        let me = s.sleeper(0);
        let target = queued(s, 1);
        let how = YieldTo { skip_yielding_rq: true, ..THEURER };
        s.p.store(&s.kernel.rqs[1].yielding, 1, Release);
        assert_eq!(from_0(s, me, target, how), (Yielded::Busy, 0, 0));
        assert_eq!(from_0(s, me, target, THEURER), (Yielded::Yes, 1, 1));
        s.p.store(&s.kernel.rqs[1].yielding, 0, Release);
        s.p.store(&s.kernel.rqs[0].yielding, 1, Release);
        assert_eq!(from_0(s, me, target, how), (Yielded::Yes, 1, 1), "the own one is no candidate's");
        assert_eq!(s.p.load(&s.kernel.rqs[0].yielding, Acquire), 1, "what others counted stays");
    });
}

// ---- races -------------------------------------------------------------------------------------------------------------

/// Each CPU of a machine executes `code` on a kernel with CFS; all must come to their end.
fn bare(name: &str, code: impl Fn(CpuId, &Stage) + Clone + 'static) {
    let m = machine(name);
    let (topo, features) = (m.topology.clone(), preset("linux-3.6").features);
    let engine = Engine::new(m);
    let p = Sim::new(Rc::clone(&engine), None);
    let policy = Cfs::new(&features, topo.nr_cpus());
    let n = topo.nr_cpus();
    let kernel = Rc::new(Kernel::new(&p, topo, Told::Nothing, features, policy, 4 * MS));
    let ended = Rc::new(Cell::new(0));
    let mut stacks = engine
        .boot(|_| {
            let (s, code, ended) =
                (Stage { kernel: Rc::clone(&kernel), p: p.clone() }, code.clone(), Rc::clone(&ended));
            move |cpu: CpuId| {
                code(cpu, &s);
                ended.set(ended.get() + 1);
                s.p.engine().idle(None, || false);
            }
        })
        .expect("stacks");
    while engine.run(&mut stacks, 10_000 * MS, 1_000_000) == Stop::Budget {}
    assert_eq!(ended.get(), n, "waiting: {:?}", engine.waiting());
}

/// While the yielder waits for the lock of the queue on which it saw its target, that one moves on.
#[test]
fn a_target_that_moves_is_followed() {
    bare("3c", |cpu, s| {
        let (p, kernel) = (&s.p, &s.kernel);
        let target = TaskId(0);
        match cpu.0 {
            0 => {
                assert_eq!(queued(s, 1), target);
                // By now CPU 1 has its lock.
                s.pass(2_000);
                let me = s.sleeper(0);
                let before = (s.locked(1), s.locked(2));
                assert_eq!(kernel.yield_to(p, me, target, V3_6), Yielded::Yes);
                assert!(p.now() > 10_000, "it waited");
                assert_eq!((s.locked(1) - before.0, s.locked(2) - before.1), (1, 1));
                assert_eq!(picked(s, 2), Pick::Task(target));
                let hinted = |cpu: usize| {
                    // SAFETY: the other CPUs are through.
                    unsafe { p.read(&kernel.rqs[cpu].data, |rd| kernel.policy.is_buddy(&rd.pol, target)) }
                };
                assert_eq!((hinted(1), hinted(2)), (false, true));
            }
            1 => {
                s.pass(1_000);
                let lock = &kernel.rqs[1].lock;
                lock.lock(p);
                s.pass(10_000);
                // What load balancing does, with the other lock left out: nobody else looks at CPU 2.
                // SAFETY: the lock of CPU 1 is held, and CPU 2 does nothing.
                unsafe {
                    p.write(&kernel.task(target).ent, |e| {
                        p.rewrite(&kernel.rqs[1].data, |rd| {
                            let why = contend_sched::policy::Dequeue::Migrate;
                            kernel.policy.dequeue(&mut rd.pol, target, &mut e.pol, why, 0);
                        });
                        p.rewrite(&kernel.rqs[2].data, |rd| {
                            let why = contend_sched::policy::Enqueue::Migrate;
                            kernel.policy.enqueue(&mut rd.pol, target, &mut e.pol, why, 0);
                        });
                        e.queued_on = Some(CpuId(2));
                    });
                }
                p.store(&kernel.task(target).cpu, 2, Release);
                lock.unlock(p);
            }
            _ => {}
        }
    });
}

/// Locked in the order of CPUs, whoever yields to whom: three CPUs at one another do not wait for ever.
#[test]
fn double_locks_in_the_order_of_cpus() {
    for how in [V3_6, THEURER, TODAY, YieldTo { trylock: true, ..V3_6 }] {
        bare("3c", move |cpu, s| {
            let mine = queued(s, cpu.index());
            s.pass(20_000);
            for i in 0..300 {
                // Everybody created one task, in some order.
                let target = TaskId((mine.0 + 1 + i % 2) % 3);
                let yielded = s.kernel.yield_to(&s.p, mine, target, how);
                let want = if how.trylock { [Yielded::Yes, Yielded::Busy] } else { [Yielded::Yes, Yielded::Alone] };
                assert!(want.contains(&yielded), "{yielded:?}");
            }
        });
    }
}

// ---- whole kernels -----------------------------------------------------------------------------------------------------

/// Who ran after whom.
#[derive(Default)]
struct Switches(RefCell<Vec<(Time, CpuId, Option<TaskId>)>>);

impl TraceHook for Switches {
    fn event(&self, now: Time, cpu: CpuId, event: SchedEvent) {
        if let SchedEvent::Switch { next, .. } = event {
            self.0.borrow_mut().push((now, cpu, next));
        }
    }
}

/// The tasks' system calls, made whenever a task has done its work: by a closure. `None` ends the run.
struct Calls<F> {
    call: F,
    /// Of each CPU, at the end: yld_count, nr_running.
    left: RefCell<Vec<(u64, u32)>>,
}

impl<L: Policy, F: Fn(&Kernel<Sim, L>, &Sim, TaskId) -> Option<SyscallEnd>> Syscalls<Sim, L> for Calls<F> {
    fn syscall(&self, kernel: &Kernel<Sim, L>, p: &Sim, task: TaskId) -> SyscallEnd {
        (self.call)(kernel, p, task).unwrap_or_else(|| {
            // SAFETY: one OS thread runs the simulation, and the closure cannot suspend: nobody else is at the data then.
            let look = |rq: &Rq<Sim, L>| unsafe { p.read(&rq.data, |rd| (rd.stats.yld_count, rd.nr_running)) };
            let left = kernel.rqs.iter().map(look).collect();
            self.left.replace(left);
            p.engine().stop();
            SyscallEnd::Continue
        })
    }
}

/// What is left of a run.
struct Lived {
    /// Switches: when, where, to whom.
    switches: Vec<(Time, CpuId, Option<TaskId>)>,
    /// By CPU.
    yld_count: Vec<u64>,
    nr_running: Vec<u32>,
}

/// Run a kernel; CPU 0 begins with `start`. it ends when `call` says so.
fn live<L: Policy>(
    name: &str,
    features: Features,
    policy: L,
    start: impl FnOnce(&Kernel<Sim, L>, &Sim) + Clone + 'static,
    call: impl Fn(&Kernel<Sim, L>, &Sim, TaskId) -> Option<SyscallEnd> + 'static,
) -> Lived {
    let m = machine(name);
    let topo = m.topology.clone();
    let engine = Engine::new(m);
    let switches = Rc::new(Switches::default());
    let p = Sim::new(Rc::clone(&engine), Some(Rc::clone(&switches) as Rc<dyn TraceHook>));
    let kernel = Rc::new(Kernel::new(&p, topo, Told::Nothing, features, policy, MS));
    let calls = Rc::new(Calls { call, left: RefCell::default() });
    let mut stacks = engine
        .boot(|_| {
            let (kernel, p, start, calls) = (Rc::clone(&kernel), p.clone(), start.clone(), Rc::clone(&calls));
            move |cpu: CpuId| {
                if cpu == CpuId(0) {
                    start(&kernel, &p);
                }
                kernel.cpu_loop(&p, &*calls);
            }
        })
        .expect("stacks");
    let stop = loop {
        match engine.run(&mut stacks, 100_000 * MS, 1_000_000) {
            Stop::Budget => {}
            stop => break stop,
        }
    };
    assert_eq!(stop, Stop::Asked, "waiting: {:?}", engine.waiting());
    let (yld_count, nr_running) = calls.left.take().into_iter().unzip();
    Lived { switches: switches.0.take(), yld_count, nr_running }
}

/// A task pinned to `cpu` (`None`: anywhere) that computes for `ns` and then makes a system call.
fn begin<L: Policy>(kernel: &Kernel<Sim, L>, p: &Sim, cpu: Option<usize>, ns: u64) -> TaskId {
    let affinity = cpu.map_or(Affinity::ALL, |c| Affinity::only(cpus(&[c])));
    let task = kernel.create(p, Sched::default(), affinity, GroupId::ROOT);
    p.engine().create_task(task, 0);
    p.engine().set_work(task, ns, Account::User);
    kernel.wake_up_new(p, task);
    task
}

/// Task 0 runs for 1 ms and yields to task 4, which was preempted on the other CPU and is behind task 3 there: there task 4
/// is next, and here task 1.
#[test]
fn a_preempted_target_elsewhere_runs_next_and_the_caller_is_skipped() {
    for how in [V3_6, THEURER, TODAY, YieldTo { trylock: true, ..V3_6 }, YieldTo { skip_yielding_rq: true, ..THEURER }]
    {
        let f = Features { balance: Balance::Off, ..equals() };
        let yields: Rc<RefCell<Vec<(Time, Yielded)>>> = Rc::default();
        let log = Rc::clone(&yields);
        let run = live(
            "2c",
            f.clone(),
            Cfs::new(&f, 2),
            |k, p| {
                [0, 0, 1, 1, 1]
                    .into_iter()
                    .for_each(|cpu| _ = begin(k, p, Some(cpu), if cpu == 0 { MS } else { 400 * MS }))
            },
            move |k, p, task| {
                if !log.borrow().is_empty() {
                    // The end of task 1's millisecond.
                    return None;
                }
                let yielded = k.yield_to(p, task, TaskId(4), how);
                log.borrow_mut().push((p.now(), yielded));
                p.engine().set_work(task, MS, Account::User);
                Some(SyscallEnd::Yield)
            },
        );
        let (at, yielded) = yields.borrow()[0];
        assert_eq!(yielded, Yielded::Yes, "{how:?}");
        for (cpu, want) in [(0, 1), (1, 4)] {
            let next = run.switches.iter().find(|(t, c, _)| *t >= at && c.0 == cpu).expect("a switch");
            assert_eq!(next.2, Some(TaskId(want)), "{how:?} on CPU {cpu}");
            assert!(next.0 - at < 20_000, "at once: by the interrupt, and by the yield");
        }
        assert_eq!(run.yld_count, [1, 0], "once, on the caller's queue");
    }
}

/// Alone on its CPU the caller yields all the same, and goes on.
#[test]
fn a_caller_alone_goes_on() {
    let f = Features { balance: Balance::Off, ..preset("linux-3.6").features };
    let calls = Rc::new(Cell::new(0));
    let run = live(
        "2c",
        f.clone(),
        Cfs::new(&f, 2),
        |k, p| [0, 1, 1].into_iter().for_each(|cpu| _ = begin(k, p, Some(cpu), if cpu == 0 { MS } else { 400 * MS })),
        move |k, p, task| {
            calls.set(calls.get() + 1);
            if calls.get() == 5 {
                return None;
            }
            p.engine().set_work(task, MS, Account::User);
            // Whichever of the two does not run.
            let queued = [1, 2].map(TaskId).into_iter().find(|t| p.load(&k.task(*t).on_cpu, Acquire) == 0);
            assert_eq!(k.yield_to(p, task, queued.expect("one of two"), V3_6), Yielded::Yes);
            Some(SyscallEnd::Yield)
        },
    );
    assert_eq!(run.switches.iter().filter(|(_, cpu, _)| cpu.0 == 0).count(), 1);
    assert_eq!(run.yld_count, [4, 0]);
}

/// Yields of all kinds at tasks that run, sleep, move and exit. Picks are verified by the mechanism; who sleeps is woken;
/// everybody gets to its end.
fn storm<L: Policy>(preset_name: &str, seed: u64, make: impl FnOnce(&Features) -> L) {
    const TASKS: u32 = 40;
    const CALLS: u32 = 150;
    let f = Features { fifo_slice_ns: 2 * MS, ..preset(preset_name).features };
    let policy = make(&f);
    let rng = RefCell::new(Pcg64Mcg::seed_from_u64(seed));
    let left: Vec<_> = (0..TASKS).map(|_| Cell::new(CALLS)).collect();
    let alive = Cell::new(TASKS);
    let yes = Rc::new(Cell::new(0));
    let seen: Rc<RefCell<Vec<Yielded>>> = Rc::default();
    let (count, log) = (Rc::clone(&yes), Rc::clone(&seen));
    let run = live(
        "2n1l4c1t",
        f,
        policy,
        // Some may run on one CPU only: it is crowded.
        |k, p| (0..TASKS).for_each(|i| _ = begin(k, p, (i % 4 == 0).then_some(1), 1_000)),
        move |k, p, task| {
            let me = &left[task.index()];
            me.set(me.get() - 1);
            if me.get() == 0 {
                alive.set(alive.get() - 1);
                if alive.get() == 0 {
                    return None;
                }
                k.exiting(p, task);
                return Some(SyscallEnd::Exit);
            }
            // No borrow is held over an operation of the platform.
            let dice = |n: u64| rng.borrow_mut().random_range(0..n);
            p.engine().set_work(task, 1_000 + dice(200_000), Account::User);
            if dice(5) == 0 {
                let ns = 1_000 + dice(500_000);
                k.announce_sleep(p, task, state::INTERRUPTIBLE);
                p.engine().arm_timer(p.now() + ns, task);
                return Some(SyscallEnd::Block);
            }
            let target = TaskId((task.0 + 1 + dice(u64::from(TASKS) - 1) as u32) % TASKS);
            let how = YieldTo {
                unlocked_check: dice(2) == 0,
                locked_check: dice(2) == 0,
                nr_running_check: dice(2) == 0,
                pi_lock: dice(2) == 0,
                trylock: dice(2) == 0,
                skip_yielding_rq: dice(2) == 0,
            };
            let yielded = k.yield_to(p, task, target, how);
            if !log.borrow().contains(&yielded) {
                log.borrow_mut().push(yielded);
            }
            if yielded != Yielded::Yes {
                return Some(SyscallEnd::Continue);
            }
            count.set(count.get() + 1);
            Some(SyscallEnd::Yield)
        },
    );
    assert_eq!(run.yld_count.iter().sum::<u64>(), yes.get());
    assert!(yes.get() > 300, "{}", yes.get());
    for want in [Yielded::Running, Yielded::NotQueued, Yielded::Busy] {
        assert!(seen.borrow().contains(&want), "{want:?} never happened: {:?}", seen.borrow());
    }
    assert_eq!(run.nr_running.iter().sum::<u32>(), 1, "the last one, which ended the run");
}

#[test]
fn storms_harm_nothing_under_cfs() {
    (0..6).for_each(|seed| storm("linux-3.6", seed, |f| Cfs::new(f, 8)));
}
#[test]
fn storms_harm_nothing_under_eevdf() {
    (0..6).for_each(|seed| storm("linux-6.18", seed, |f| Eevdf::new(f, 8, MS)));
}
#[test]
fn storms_harm_nothing_under_fifo() {
    (0..6).for_each(|seed| storm("fifo", seed, Fifo::new));
}
