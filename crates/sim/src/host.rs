//! A simulation from beginning to end: machine, features, workload and seed in, result out.
//!
//! Nothing is shared between simulations; run as many side by side as there are threads.

use crate::engine::{Engine, EngineCounts, Observed, Stacks, Timeline};
use crate::guest::{self, Boot, GuestReport, Guests, RunningGuest};
use crate::kvm::{Hypervisor, Kvm};
use crate::os::{MetricStore, Os, TaskReport};
use crate::program::{GroupId, Groups, Workload};
use crate::thread::Ready;
use crate::trace::{Namer, TraceHook};
use crate::watch::{self, System};
use crate::world::{Sim, World};
use crate::xen::XenReport;
use contend_machine::Machine;
use contend_platform::{Account, CpuId, NEVER, Nanos, TaskId, Time};
use contend_sched::bandwidth::CpuStat;
use contend_sched::capacity::Told;
use contend_sched::domains::Level;
use contend_sched::features::{Features, PolicyKind};
use contend_sched::kernel::{Kernel, Outside};
use contend_sched::policy::{Policy, cfs::Cfs, eevdf::Eevdf, fifo::Fifo};
use contend_sched::rq::{BalanceStats, RqStats};
use contend_sched::rq_lock::LockStats;
use std::cell::Cell;
use std::rc::Rc;

pub use crate::trace::{EventSink, Who};

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Every foreground task exited.
    Finished,
    /// The horizon was reached with tasks alive.
    Horizon,
    /// Tasks live, and nothing will ever happen again. Who waits for what.
    Deadlock(Vec<String>),
    /// Events happen, but no task has run for the stated virtual time.
    Livelock(Nanos),
    /// A runnable task has not run for the stated virtual time.
    Stall(String),
    /// The policy decided something impossible.
    PolicyError(String),
    /// A wake list of `rowand-queue` was corrupted.
    CorruptList(String),
    /// Code of a policy or program panicked.
    Panic(String),
    /// The caller's progress function said stop.
    Interrupted,
}

impl Outcome {
    /// One word for scripts.
    pub fn name(&self) -> &'static str {
        match self {
            Outcome::Finished => "finished",
            Outcome::Horizon => "horizon",
            Outcome::Deadlock(_) => "deadlock",
            Outcome::Livelock(_) => "livelock",
            Outcome::Stall(_) => "stall",
            Outcome::PolicyError(_) => "policy-error",
            Outcome::CorruptList(_) => "corrupt-list",
            Outcome::Panic(_) => "panic",
            Outcome::Interrupted => "interrupted",
        }
    }
    /// Details in sentences; empty when there is nothing to add.
    pub fn detail(&self) -> String {
        match self {
            Outcome::Finished | Outcome::Horizon | Outcome::Interrupted => String::new(),
            Outcome::Deadlock(who) => who.join("; "),
            Outcome::Livelock(ns) => format!("no task ran for {} ms of virtual time", ns / 1_000_000),
            Outcome::Stall(s) | Outcome::PolicyError(s) | Outcome::CorruptList(s) | Outcome::Panic(s) => s.clone(),
        }
    }
    /// Is it, if books did not add up at the end? A result that contradicts itself is no good one.
    pub(crate) fn doubted(self, doubts: &[String]) -> Outcome {
        match (self.is_ok(), doubts) {
            (_, []) | (false, _) => self,
            _ => Outcome::Panic(format!("an error of contend, please report it: {}", doubts.join("; "))),
        }
    }
    /// Did the simulation do what it was asked to?
    pub fn is_ok(&self) -> bool {
        matches!(self, Outcome::Finished | Outcome::Horizon)
    }
}

/// What to watch for while running.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// End of the run (also: the workload's own horizon, whichever is earlier).
    pub horizon: Time,
    /// A runnable task that does not run for this long is a stall.
    pub stall: Nanos,
    /// What programs report before this time does not count.
    pub warmup: Time,
}

impl Default for Limits {
    fn default() -> Self {
        Limits { horizon: NEVER, stall: 30_000_000_000, warmup: 0 }
    }
}

/// One lock in the result.
#[derive(Clone, Debug, PartialEq)]
pub struct LockReport {
    /// Name, e.g. `rq/12`.
    pub name: String,
    /// `rq`, `pipe`, `mutex`...
    pub kind: &'static str,
    /// What happened there.
    pub stats: LockStats,
}

/// One CPU in the result.
#[derive(Clone, Debug, PartialEq)]
pub struct CpuReport {
    /// Its accounts in ns, by [`Account`].
    pub ledger: [Nanos; Account::COUNT],
    /// /proc/schedstat's fields.
    pub stats: RqStats,
    /// Balancing by domain: level, then not idle, idle, newidle.
    pub domains: Vec<(Level, [BalanceStats; 3])>,
}

/// Everything reports need.
#[derive(Clone, Debug)]
pub struct RunResult {
    /// How it ended.
    pub outcome: Outcome,
    /// Virtual time at the end.
    pub virtual_ns: Time,
    /// CPUs, by number.
    pub cpus: Vec<CpuReport>,
    /// The CPUs' ledgers over time.
    pub timeline: Timeline,
    /// Tasks, in order of creation.
    pub tasks: Vec<TaskReport>,
    /// Groups of tasks.
    pub groups: Groups,
    /// Those of them that have a limit, with what became of it.
    pub bandwidth: Vec<(GroupId, CpuStat)>,
    /// Run-queue locks, then those of limited groups, then the objects' locks.
    pub locks: Vec<LockReport>,
    /// Scheduler statistics.
    pub observed: Observed,
    /// Engine counters.
    pub counts: EngineCounts,
    /// Cache-line transfers by distance class.
    pub transfers: Vec<u64>,
    /// What programs reported.
    pub metrics: MetricStore,
    /// Times a task was given a CPU.
    pub dispatches: u64,
    /// Hash over all dispatches.
    pub trace_hash: u64,
    /// Virtual machines, in the order of the setup.
    pub guests: Vec<GuestReport>,
    /// KVM's counters.
    pub kvm: [u64; Kvm::COUNT],
    /// Of a Xen host.
    pub xen: Option<XenReport>,
}

impl RunResult {
    /// The ledger of the whole machine. The sum is CPUs x `virtual_ns`.
    pub fn ledger(&self) -> [Nanos; Account::COUNT] {
        let mut all = [0; Account::COUNT];
        for cpu in &self.cpus {
            std::iter::zip(&mut all, &cpu.ledger).for_each(|(a, b)| *a += b);
        }
        all
    }
}

/// What the caller hears while a simulation runs, and answers: false stops it.
pub type Progress<'a> = &'a mut dyn FnMut(Status) -> bool;

/// Where a simulation stands.
#[derive(Clone, Copy, Debug)]
pub struct Status {
    /// Virtual time.
    pub now: Time,
    /// End of the run if it is known.
    pub horizon: Option<Time>,
    /// Foreground and background tasks alive.
    pub alive: u64,
    /// Dispatches so far.
    pub dispatches: u64,
}

/// Accounts of guest mode.
pub(crate) const GUEST_MODE: [Account; 3] = [Account::GuestUser, Account::GuestKernel, Account::GuestSpin];

/// What to simulate.
pub struct Setup {
    /// The machine.
    pub machine: Machine,
    /// Switches and tunables.
    pub features: Features,
    /// What runs.
    pub workload: Workload,
    /// Seed of all random streams.
    pub seed: u64,
    /// Bounds.
    pub limits: Limits,
    /// Virtual machines, and their hypervisor's switches.
    pub guests: Guests,
}

/// Simulate with one of the policies that ship.
///
/// # Errors
/// As for [`simulate_with`].
pub fn simulate(
    policy: PolicyKind,
    setup: Setup,
    sink: Option<Box<dyn EventSink>>,
    progress: Progress<'_>,
) -> std::io::Result<RunResult> {
    let f = &setup.features;
    let cpus = setup.machine.topology.nr_cpus();
    let tick = 1_000_000_000 / u64::from(setup.machine.hz);
    let groups = setup.workload.groups.clone();
    match policy {
        PolicyKind::Fifo => simulate_with(Fifo::new(f), setup, sink, progress),
        PolicyKind::Cfs => simulate_with(groups.of(Cfs::new(f, cpus), cpus, f), setup, sink, progress),
        PolicyKind::Eevdf => simulate_with(groups.of(Eevdf::new(f, cpus, tick), cpus, f), setup, sink, progress),
    }
}

/// Simulate with a policy of the caller's.
///
/// # Errors
/// The system refused memory for the CPUs' stacks, or the sink could not be written. Everything that happens inside the
/// simulation is an [`Outcome`].
pub fn simulate_with<L: Policy>(
    policy: L,
    setup: Setup,
    sink: Option<Box<dyn EventSink>>,
    progress: Progress<'_>,
) -> std::io::Result<RunResult> {
    Host::new(policy, setup, sink)?.run(progress)
}

struct Host<L: Policy> {
    engine: Rc<Engine>,
    kernel: Rc<Kernel<Sim, L>>,
    os: Rc<Os<Sim>>,
    stacks: Stacks,
    trace: Option<Rc<Namer>>,
    horizon: Time,
    limits: Limits,
    guests: Vec<Rc<dyn RunningGuest>>,
    sim: Sim,
}

/// Make the guests, and add their vCPUs to the host's threads.
fn boot_guests(
    guests: Guests,
    sim: Sim,
    workload: &Workload,
    threads: &mut Vec<Ready>,
    (seed, warmup): (u64, Time),
) -> std::io::Result<(Vec<Rc<dyn RunningGuest>>, Sim)> {
    if guests.specs.is_empty() {
        return Ok((Vec::new(), sim));
    }
    // The host's own programs are one of those that the run waits for.
    let programs = workload.tasks.iter().any(|t| !t.background) || threads.iter().any(|t| !t.background);
    let awaited = guests.specs.iter().filter(|g| !g.background).count() + usize::from(programs);
    let kvm = Rc::new(Hypervisor::new(&sim, guests.kvm, awaited));
    let mut running = Vec::new();
    let mut vms = Vec::new();
    for (index, spec) in guests.specs.into_iter().enumerate() {
        let with = Boot { p: &sim, hosting: kvm.hosting(), seed, warmup };
        let booted = guest::boot(&with, index, spec)?;
        vms.push(booted.vm);
        running.push(booted.guest);
        threads.extend(booted.threads);
    }
    kvm.set_guests(vms);
    Ok((running, sim.with_kvm(kvm)))
}

/// What runs on a Linux host, for the loop that watches.
struct Watched<'a, L: Policy> {
    kernel: &'a Kernel<Sim, L>,
    os: &'a Os<Sim>,
    engine: &'a Engine,
    guests: &'a [Rc<dyn RunningGuest>],
}

impl<L: Policy> System for Watched<'_, L> {
    fn alive(&self) -> u64 {
        self.os.alive()
    }
    fn stuck(&self, now: Time, long: Nanos) -> bool {
        self.os.stuck(now, long)
    }
    fn sleeps(&self, now: Time) -> bool {
        self.os.sleeps(now)
    }
    fn stalled(&self, now: Time, long: Nanos) -> Option<String> {
        for i in 0..self.kernel.tasks.len() {
            let task = TaskId(i as u32);
            let since = self.kernel.task(task).ent.observe(|e| e.waiting_since.filter(|_| !e.parked));
            if let Some(since) = since
                && now.saturating_sub(since) > long
            {
                let mut text = String::new();
                self.os.identify(task, |id, name, _| {
                    text =
                        format!("{name} (task {id}) has been runnable since {} ms and does not run", since / 1_000_000);
                });
                return Some(text);
            }
        }
        None
    }
    fn who_waits(&self) -> Vec<String> {
        let now = self.engine.settled_now();
        let mut who = watch::who_spins(self.engine);
        who.extend(self.os.who_waits(self.kernel, now));
        who.extend(self.guests.iter().flat_map(|g| g.who_waits(now)));
        who
    }
}

impl<L: Policy> Host<L> {
    fn new(policy: L, setup: Setup, sink: Option<Box<dyn EventSink>>) -> std::io::Result<Self> {
        let Setup { machine, features, mut workload, seed, limits, guests } = setup;
        let cpus = machine.topology.nr_cpus();
        let trace = sink.map(|sink| Rc::new(Namer::new(sink, cpus)));
        let tick = 1_000_000_000 / u64::from(machine.hz);
        let topo = machine.topology.clone();
        let flags = machine.flags;
        let busy_freq_pct = machine.costs.cpu.busy_freq_pct.value;
        let capacities = machine.capacities();
        let told = match &capacities[..] {
            [] => Told::Nothing,
            by_speed if flags.asym_packing => Told::Priority(by_speed),
            capacities => Told::Capacity(capacities),
        };
        let engine = Engine::new(machine);
        engine.idle_polls.set(features.idle_polling && !flags.idle_halts);
        engine.lock_events.warmup.set(limits.warmup);
        let sim = Sim::new(Rc::clone(&engine), trace.clone().map(|t| t as Rc<dyn TraceHook>));
        let mut kernel = Kernel::new(&sim, topo, told, features, policy, tick);
        kernel.pack_vcpus(flags.vcpu_pack);
        kernel.scale_util(busy_freq_pct);
        kernel.been_up(seed);
        let kernel = Rc::new(kernel);
        let horizon = workload.horizon.unwrap_or(NEVER).min(limits.horizon);
        let threads = workload.threads.take().map_or_else(Vec::new, |make| engine.set_up(make));
        let mut threads = threads.into_iter().map(|t| t.make(&engine)).collect::<std::io::Result<Vec<_>>>()?;
        let (guests, sim) = boot_guests(guests, sim, &workload, &mut threads, (seed, limits.warmup))?;
        let os = Rc::new(Os::new(&sim, &kernel, &mut workload, threads, seed, limits.warmup));
        if let Some(trace) = &trace {
            let locks = lock_reports(&kernel, &os, &[], 0).filter_map(|(lock, number)| Some((number?, lock.name)));
            trace.introduce(&os, locks.collect(), &guests);
        }
        let visit = {
            let (sim, kernel, os) = (sim.clone(), Rc::clone(&kernel), Rc::clone(&os));
            let places: Vec<Cell<Option<Outside>>> = vec![Cell::new(None); cpus];
            move |cpu: CpuId| {
                let place = &places[cpu.index()];
                let outside = place.get().unwrap_or_else(|| {
                    if cpu == CpuId(0) {
                        os.start(&kernel, &sim);
                    }
                    sim.engine().hint(cpu, 0, kernel.rq(cpu));
                    kernel.cpu_up(&sim)
                });
                let idle_ended = || kernel.idle_ended(&sim, &*os);
                let trapped = |task, trap| kernel.trapped(&sim, &*os, task, trap);
                let outside = sim.visit(outside, &kernel.rq(cpu).resched, idle_ended, trapped);
                place.set(Some(outside));
                if let Outside::User(task) = outside {
                    sim.engine().hint(cpu, 1, kernel.task(task));
                }
            }
        };
        let stacks = engine.boot_visits(visit)?;
        Ok(Host { engine, kernel, os, stacks, trace, horizon, limits, guests, sim })
    }

    fn run(mut self, progress: Progress<'_>) -> std::io::Result<RunResult> {
        let bounds = (self.horizon, self.limits);
        let system = Watched { kernel: &self.kernel, os: &self.os, engine: &self.engine, guests: &self.guests };
        let (outcome, end) = watch::run(&self.engine, &mut self.stacks, &system, bounds, progress);
        let result = self.result(outcome, end);
        if let Some(trace) = &self.trace {
            trace.finish(end)?;
        }
        Ok(result)
    }

    fn result(&self, outcome: Outcome, end: Time) -> RunResult {
        let (ledgers, timeline) = self.engine.close_ledger(end);
        let guests: Vec<GuestReport> = self.guests.iter().map(|g| g.report(end)).collect();
        let of_guests = guests.iter().flat_map(|g| &g.vcpus).flat_map(|v| &v.ledger).sum::<Nanos>();
        let of_cpus = ledgers.iter().flat_map(|l| GUEST_MODE.map(|a| l[a as usize])).sum::<Nanos>();
        let mut doubts = self.engine.doubts.take();
        if let Some(kvm) = self.sim.kvm() {
            doubts.append(&mut kvm.hosting().doubts.borrow_mut());
        }
        if of_guests != of_cpus {
            doubts.push(format!("guests had {of_guests} ns of guest mode, CPUs {of_cpus}"));
        }
        let cpus = ledgers
            .into_iter()
            .enumerate()
            .map(|(i, ledger)| {
                let cpu = CpuId(i as u16);
                let rq = self.kernel.rq(cpu);
                let levels = self.kernel.domains.of(cpu).iter().map(|d| d.level);
                rq.data.observe(|rd| CpuReport {
                    ledger,
                    stats: rq.stats(rd, end),
                    domains: std::iter::zip(levels, rd.balance.iter().map(|b| b.stats)).collect(),
                })
            })
            .collect();
        let waits: Vec<_> = self.engine.lock_waits().map(|(_, wait)| wait).collect();
        let locks = lock_reports(&self.kernel, &self.os, &waits, end).map(|(lock, _)| lock).collect();
        let mut metrics = self.os.metrics.borrow().clone();
        metrics.count_lock_events(self.engine.lock_events.get());
        RunResult {
            outcome: outcome.doubted(&doubts),
            virtual_ns: end,
            cpus,
            timeline: Timeline { has_queues: true, ..timeline },
            tasks: self.os.reports(&self.kernel, end),
            groups: self.os.groups.clone(),
            bandwidth: self.kernel.bandwidth.stats(|pool| pool.observe(|pool| pool.stat)),
            locks,
            observed: self.engine.observed.borrow().clone(),
            counts: self.engine.counts(),
            transfers: self.engine.transfers(),
            metrics,
            dispatches: self.engine.dispatches.get(),
            trace_hash: self.engine.trace_hash.get(),
            guests,
            kvm: self.sim.kvm().map_or([0; Kvm::COUNT], |kvm| kvm.counts()),
            xen: None,
        }
    }
}

/// A kernel's run-queue locks, those of limited groups, then its objects' locks, each with its number if it is one of the kernel's
/// spinlocks. `waits` for these that are under way count with their length by `end`.
pub(crate) fn lock_reports<W: World, L: Policy>(
    kernel: &Kernel<W, L>,
    os: &Os<W>,
    waits: &[(u32, Time)],
    end: Time,
) -> impl Iterator<Item = (LockReport, Option<u32>)> {
    let rqs = kernel.rqs.iter().enumerate().map(move |(i, rq)| {
        (LockReport { name: format!("rq/{i}"), kind: "rq", stats: rq.lock.stats_at(end) }, Some(rq.lock.number()))
    });
    let limited = kernel.bandwidth.locks().map(move |(group, lock)| {
        let name = format!("cfs_b{}", os.groups.path_of(group));
        (LockReport { name, kind: "cfs_b", stats: lock.stats_at(end) }, Some(lock.number()))
    });
    let objects = os.object_reports(end).into_iter();
    let all =
        rqs.chain(limited).chain(objects.map(|o| (LockReport { name: o.name, kind: o.kind, stats: o.lock }, o.number)));
    all.map(move |(mut lock, number)| {
        for (_, since) in waits.iter().filter(|(n, _)| Some(*n) == number) {
            lock.stats.waits_on(end.saturating_sub(*since));
        }
        (lock, number)
    })
}
