//! Four OS threads play four CPUs and run the scheduler mechanism natively.

use contend_machine::Machine;
use contend_machine::Topology;
use contend_platform::{CpuId, Ipi};
use contend_runtime::{Config, CpuCounts, Runtime, TaskCtx, TaskHandle};
use contend_sched::cpuset::Affinity;
use contend_sched::features::{Features, PolicyKind, Preset};
use contend_sched::policy::{Policy, cfs::Cfs, eevdf::Eevdf, fifo::Fifo};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const CPUS: usize = 4;
const TICK_NS: u64 = 1_000_000;

/// A kernel is shared by threads by its type alone: nothing in it needs a promise.
#[test]
fn kernels_are_sync() {
    fn sync<T: Sync + Send>() {}
    sync::<contend_sched::kernel::Kernel<contend_runtime::NativeCpu, Fifo>>();
    sync::<contend_sched::kernel::Kernel<contend_runtime::NativeCpu, Cfs>>();
    sync::<contend_sched::kernel::Kernel<contend_runtime::NativeCpu, Eevdf>>();
}

fn topology(spec: &str) -> Topology {
    Machine::synthetic(spec).unwrap().topology
}

fn preset(name: &str) -> (PolicyKind, Features) {
    let preset = Preset::find(name).unwrap();
    (preset.policy, preset.features)
}

fn config(spec: &str, features: &Features) -> Config {
    let topology = topology(spec);
    assert_eq!(topology.nr_cpus(), CPUS);
    Config { topology, features: features.clone(), tick_ns: TICK_NS, idle_polls: false, stack_bytes: 64 * 1024 }
}

/// A lost wake-up is a run without end: end it, loudly.
fn watched<R>(what: &str, run: impl FnOnce() -> R) -> R {
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let began = Instant::now();
            while !done.load(Relaxed) {
                if began.elapsed() > Duration::from_secs(60) {
                    eprintln!("{what}: no end after 60 s");
                    std::process::abort();
                }
                std::thread::park_timeout(Duration::from_millis(20));
            }
        });
        struct Done<'a>(&'a AtomicBool);
        impl Drop for Done<'_> {
            fn drop(&mut self) {
                self.0.store(true, Relaxed);
            }
        }
        let _done = Done(&done);
        run()
    })
}

fn total(counts: &[CpuCounts], f: impl Fn(&CpuCounts) -> u64) -> u64 {
    counts.iter().map(f).sum()
}

/// Something to run on a kernel of any policy.
trait Job {
    fn run<L>(self, config: Config, policy: L)
    where
        L: Policy + Send + Sync,
        L::Rq: Send,
        L::Task: Send;
}

fn with_policy(kind: PolicyKind, config: Config, job: impl Job) {
    let f = config.features.clone();
    match kind {
        PolicyKind::Fifo => job.run(config, Fifo::new(&f)),
        PolicyKind::Cfs => job.run(config, Cfs::new(&f, CPUS)),
        PolicyKind::Eevdf => job.run(config, Eevdf::new(&f, CPUS, TICK_NS)),
    }
}

/// No task on two CPUs at once, asserted by the task itself around plain data of its own.
#[derive(Default)]
struct Alone(AtomicBool);

impl Alone {
    fn work<R>(&self, f: impl FnOnce() -> R) -> R {
        assert!(!self.0.swap(true, Relaxed), "a task runs twice");
        let r = f();
        assert!(self.0.swap(false, Relaxed), "a task ran twice");
        r
    }
}

/// Pairs of tasks hand a unit to and fro; each counts in plain memory on its own stack and in the pair's.
struct PingPong {
    pairs: usize,
    rounds: u64,
    /// What the machine must have done besides.
    check: fn(&[CpuCounts]),
}

impl Job for PingPong {
    fn run<L>(self, config: Config, policy: L)
    where
        L: Policy + Send + Sync,
        L::Rq: Send,
        L::Task: Send,
    {
        let mut runtime = Runtime::new(config, policy);
        let counters: Arc<Vec<AtomicU64>> = Arc::new((0..self.pairs).map(|_| AtomicU64::new(0)).collect());
        let done = Arc::new(AtomicU64::new(0));
        let semaphores: Vec<_> = (0..self.pairs).map(|_| (runtime.semaphore(1), runtime.semaphore(0))).collect();
        let (rounds, pairs) = (self.rounds, self.pairs);
        let all = (Arc::clone(&counters), Arc::clone(&done));
        let main = move |ctx: &TaskCtx<'_>| {
            for (pair, (ping, pong)) in semaphores.into_iter().enumerate() {
                for side in 0..2 {
                    let (mine, other) = if side == 0 { (&ping, &pong) } else { (&pong, &ping) };
                    let (mine, other) = (Arc::clone(mine), Arc::clone(other));
                    let (counters, done) = (Arc::clone(&all.0), Arc::clone(&all.1));
                    let body = move |ctx: &TaskCtx<'_>| {
                        let alone = Alone::default();
                        let mut own = 0;
                        for _ in 0..rounds {
                            ctx.down(&mine);
                            // Plain load and store: only the pair's turn orders them.
                            alone.work(|| {
                                own += 1;
                                let n = counters[pair].load(Relaxed);
                                counters[pair].store(n + 1, Relaxed);
                            });
                            ctx.checkpoint();
                            ctx.up(&other);
                        }
                        assert_eq!(own, rounds);
                        done.fetch_add(1, Relaxed);
                    };
                    // SAFETY: tasks hold nothing of a thread.
                    unsafe { ctx.spawn(Affinity::ALL, body) };
                }
            }
        };
        // SAFETY: as above.
        let counts = watched("ping-pong", || unsafe { runtime.run(main) });
        assert_eq!(done.load(Relaxed), 2 * pairs as u64, "all finish");
        assert!(counters.iter().all(|c| c.load(Relaxed) == 2 * rounds), "{counters:?}");
        (self.check)(&counts);
    }
}

#[test]
fn pairs_under_every_policy() {
    for name in ["fifo", "linux-3.6", "linux-6.6"] {
        let (kind, features) = preset(name);
        with_policy(kind, config("4c", &features), PingPong { pairs: 32, rounds: 200, check: |_| {} });
    }
}

#[test]
fn pairs_under_every_wake_path() {
    // Two caches: queued wake-ups of 3.3 and later cross them.
    for name in
        ["linux-2.6.37", "linux-3.0", "linux-3.6", "linux-5.2", "linux-5.8", "linux-5.15", "linux-6.0", "linux-6.18"]
    {
        for spec in ["4c", "2n2c", "2l1c2t"] {
            let (kind, features) = preset(name);
            with_policy(kind, config(spec, &features), PingPong { pairs: 32, rounds: 60, check: |_| {} });
        }
    }
}

/// Pinned to different CPUs, each wake-up goes to another CPU: by its lock and a reschedule interrupt (2.6.37), or by its
/// wake list and a call-function interrupt (3.0, 6.18 across caches).
#[test]
fn wake_ups_across_cpus() {
    struct Across(Ipi);
    impl Job for Across {
        fn run<L>(self, config: Config, policy: L)
        where
            L: Policy + Send + Sync,
            L::Rq: Send,
            L::Task: Send,
        {
            const ROUNDS: u64 = 500;
            let mut runtime = Runtime::new(config, policy);
            let (ping, pong) = (runtime.semaphore(0), runtime.semaphore(0));
            let main = move |ctx: &TaskCtx<'_>| {
                ctx.set_affinity(only(0));
                let (a, b) = (Arc::clone(&ping), Arc::clone(&pong));
                let other = move |ctx: &TaskCtx<'_>| {
                    for _ in 0..ROUNDS {
                        ctx.down(&a);
                        assert_eq!(ctx.cpu(), CpuId(3));
                        ctx.up(&b);
                    }
                };
                // SAFETY: tasks hold nothing of a thread.
                unsafe { ctx.spawn(only(3), other) };
                for _ in 0..ROUNDS {
                    ctx.up(&ping);
                    ctx.down(&pong);
                    assert_eq!(ctx.cpu(), CpuId(0));
                }
            };
            // SAFETY: as above.
            let counts = watched("across", || unsafe { runtime.run(main) });
            // A unit given before the other has gone to sleep needs no wake-up.
            let woken = total(&counts, |c| c.wakeups_remote);
            let sent = total(&counts, |c| c.ipis_sent[self.0 as usize]);
            assert!(woken >= ROUNDS / 10 && sent >= ROUNDS / 10, "{woken} woken, {sent} of {:?}: {counts:?}", self.0);
        }
    }
    for (name, ipi) in
        [("linux-2.6.37", Ipi::Reschedule), ("linux-3.0", Ipi::CallFunction), ("linux-6.18", Ipi::CallFunction)]
    {
        let (kind, features) = preset(name);
        with_policy(kind, config("2n2c", &features), Across(ipi));
    }
}

fn only(cpu: usize) -> Affinity {
    let mut set = fixedbitset::FixedBitSet::with_capacity(CPUS);
    set.insert(cpu);
    Affinity::only(set)
}

/// Idle CPUs that poll their flag are woken by it alone.
#[test]
fn polling_idle() {
    let (kind, features) = preset("linux-6.18");
    let config = Config { idle_polls: true, ..config("2n2c", &features) };
    with_policy(
        kind,
        config,
        PingPong { pairs: 2, rounds: 200, check: |counts| assert_eq!(total(counts, |c| c.sleeps), 0) },
    );
}

/// Parking is decided without a lock, by the fences of the wake-up protocol: a ring of tasks, several tokens under way.
#[test]
fn parking_in_a_ring() {
    for name in ["linux-2.6.37", "linux-3.0", "linux-6.18"] {
        let (_, features) = preset(name);
        let mut runtime = Runtime::new(config("2n2c", &features), Fifo::new(&features));
        let passes = Arc::new(AtomicU64::new(0));
        let seen = Arc::clone(&passes);
        let main = move |ctx: &TaskCtx<'_>| {
            const TASKS: usize = 8;
            const LAPS: u64 = 300;
            let ring = Arc::new(Mutex::new(Vec::<TaskHandle>::new()));
            for i in 0..TASKS {
                let (all, seen) = (Arc::clone(&ring), Arc::clone(&seen));
                let body = move |ctx: &TaskCtx<'_>| {
                    for _ in 0..LAPS {
                        ctx.park();
                        seen.fetch_add(1, Relaxed);
                        let next = all.lock().unwrap()[(i + 1) % TASKS].clone();
                        ctx.unpark(&next);
                    }
                };
                // SAFETY: no guard is held across a request.
                let handle = unsafe { ctx.spawn(Affinity::ALL, body) };
                ring.lock().unwrap().push(handle);
            }
            let first = ring.lock().unwrap()[0].clone();
            ctx.unpark(&first);
        };
        // SAFETY: as above.
        watched("ring", || unsafe { runtime.run(main) });
        assert_eq!(passes.load(Relaxed), 8 * 300, "{name}");
    }
}

/// Tasks let go on one CPU compute until every CPU has run one of them: idle CPUs must take them. In 3.6 without nohz
/// balancing it is newidle that does it; later eras skip newidle when its measured cost (here with the time for which the
/// OS had taken the thread's core away) exceeds the idle time to expect.
#[test]
fn balance_moves_tasks_off_an_overloaded_cpu() {
    for name in ["linux-3.6", "linux-5.2", "linux-6.18"] {
        let (kind, mut features) = preset(name);
        features.ni_random = false;
        features.migration_cost_ns = 0;
        features.nohz_balance = name != "linux-3.6";
        with_policy(kind, config("4c", &features), Spread { newidle: !features.nohz_balance });
    }
}

struct Spread {
    newidle: bool,
}

impl Job for Spread {
    fn run<L>(self, config: Config, policy: L)
    where
        L: Policy + Send + Sync,
        L::Rq: Send,
        L::Task: Send,
    {
        let mut runtime = Runtime::new(config, policy);
        let seen: Arc<Vec<AtomicBool>> = Arc::new((0..CPUS).map(|_| AtomicBool::new(false)).collect());
        let cpus = Arc::clone(&seen);
        let main = move |ctx: &TaskCtx<'_>| {
            ctx.set_affinity(only(0));
            for _ in 0..16 {
                let cpus = Arc::clone(&cpus);
                let body = move |ctx: &TaskCtx<'_>| {
                    // All of them pile up on CPU 0, and are let go from there.
                    ctx.sleep(Duration::from_millis(2));
                    assert_eq!(ctx.cpu(), CpuId(0));
                    ctx.set_affinity(Affinity::ALL);
                    while !cpus.iter().all(|c| c.load(Relaxed)) {
                        cpus[ctx.cpu().index()].store(true, Relaxed);
                        ctx.checkpoint();
                    }
                };
                // SAFETY: tasks hold nothing of a thread.
                unsafe { ctx.spawn(only(0), body) };
            }
            // A little to do elsewhere now and then, so that CPUs become idle anew.
            for cpu in 1..CPUS {
                let cpus = Arc::clone(&cpus);
                let body = move |ctx: &TaskCtx<'_>| {
                    while !cpus.iter().all(|c| c.load(Relaxed)) {
                        ctx.sleep(Duration::from_micros(500));
                    }
                };
                // SAFETY: as above.
                unsafe { ctx.spawn(only(cpu), body) };
            }
        };
        // SAFETY: as above.
        watched("spread", || unsafe { runtime.run(main) });
        let [_, idle, newly] = runtime.pulled();
        assert!(newly > 0 || (!self.newidle && idle > 0), "pulled by idle CPUs {idle}, newly idle ones {newly}");
    }
}

/// Tasks that compute without asking for anything are preempted by the tick, at their checkpoints.
#[test]
fn ticks_preempt_at_checkpoints() {
    let (_, features) = preset("linux-6.18");
    let mut runtime = Runtime::new(config("4c", &features), Eevdf::new(&features, CPUS, TICK_NS));
    let main = move |ctx: &TaskCtx<'_>| {
        let turns = Arc::new((AtomicU64::new(0), AtomicU64::new(0)));
        for i in 0..2 {
            let turns = Arc::clone(&turns);
            let body = move |ctx: &TaskCtx<'_>| {
                let (last, turns) = &*turns;
                while turns.load(Relaxed) < 8 {
                    if last.swap(i, Relaxed) != i {
                        turns.fetch_add(1, Relaxed);
                    }
                    ctx.checkpoint();
                }
            };
            // SAFETY: tasks hold nothing of a thread.
            unsafe { ctx.spawn(only(2), body) };
        }
    };
    // SAFETY: as above.
    let counts = watched("ticks", || unsafe { runtime.run(main) });
    assert!(counts[2].ticks >= 4, "{counts:?}");
}

/// Numbers of tasks that have ended are used again.
#[test]
fn exit_and_reuse() {
    for name in ["linux-2.6.37", "linux-6.18"] {
        let (_, features) = preset(name);
        let mut runtime = Runtime::new(config("4c", &features), Fifo::new(&features));
        let ended = Arc::new(AtomicU64::new(0));
        let done = runtime.semaphore(0);
        let (n, up) = (Arc::clone(&ended), Arc::clone(&done));
        let main = move |ctx: &TaskCtx<'_>| {
            for _ in 0..50 {
                for _ in 0..20 {
                    let (n, up) = (Arc::clone(&n), Arc::clone(&up));
                    let body = move |ctx: &TaskCtx<'_>| {
                        ctx.yield_now();
                        n.fetch_add(1, Relaxed);
                        ctx.up(&up);
                    };
                    // SAFETY: tasks hold nothing of a thread.
                    unsafe { ctx.spawn(Affinity::ALL, body) };
                }
                for _ in 0..20 {
                    ctx.down(&done);
                }
            }
        };
        // SAFETY: as above.
        watched("exit", || unsafe { runtime.run(main) });
        assert_eq!(ended.load(Relaxed), 1000);
        // Twice 20 and the main task, and the few whose CPUs had not finished the switch.
        assert!(runtime.kernel().tasks.len() < 200, "{} numbers", runtime.kernel().tasks.len());
    }
}

#[test]
fn sleeps_are_not_short() {
    let (_, features) = preset("linux-6.18");
    let mut runtime = Runtime::new(config("4c", &features), Fifo::new(&features));
    let slept = Arc::new(AtomicU64::new(0));
    let n = Arc::clone(&slept);
    let main = move |ctx: &TaskCtx<'_>| {
        for i in 0..20u64 {
            let n = Arc::clone(&n);
            let body = move |ctx: &TaskCtx<'_>| {
                let began = ctx.now();
                ctx.sleep(Duration::from_millis(i));
                assert!(ctx.now() >= began + i * 1_000_000);
                n.fetch_add(1, Relaxed);
            };
            // SAFETY: tasks hold nothing of a thread.
            unsafe { ctx.spawn(Affinity::ALL, body) };
        }
    };
    let began = Instant::now();
    // SAFETY: as above.
    watched("sleep", || unsafe { runtime.run(main) });
    assert_eq!(slept.load(Relaxed), 20);
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
}

/// A panic stops the machine, unwinds the tasks that are left and comes out of `run`.
#[test]
fn panics_come_out() {
    let (_, features) = preset("linux-6.18");
    let mut runtime = Runtime::new(config("4c", &features), Fifo::new(&features));
    let never = runtime.semaphore(0);
    let held = Arc::new(());
    let inside = Arc::clone(&held);
    let main = move |ctx: &TaskCtx<'_>| {
        let body = move |ctx: &TaskCtx<'_>| {
            let _inside = inside;
            ctx.down(&never);
        };
        // SAFETY: tasks hold nothing of a thread.
        unsafe { ctx.spawn(Affinity::ALL, body) };
        ctx.sleep(Duration::from_millis(2));
        std::panic::resume_unwind(Box::new("as intended"));
    };
    // SAFETY: as above.
    let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| unsafe { runtime.run(main) }));
    assert_eq!(result.unwrap_err().downcast_ref(), Some(&"as intended"));
    assert_eq!(Arc::strong_count(&held), 1, "the task that was left has been unwound");
}

/// One machine after another in one process, and one run after another on one machine.
#[test]
fn start_and_stop() {
    let (_, features) = preset("linux-6.18");
    let mut runtime = Runtime::new(config("4c", &features), Fifo::new(&features));
    let n = Arc::new(AtomicU64::new(0));
    for _ in 0..20 {
        let n = Arc::clone(&n);
        // SAFETY: tasks hold nothing of a thread.
        watched("start", || unsafe { runtime.run(move |_| _ = n.fetch_add(1, Relaxed)) });
    }
    assert_eq!(n.load(Relaxed), 20);
}
