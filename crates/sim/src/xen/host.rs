//! A Xen host from its setup to its result.

use super::spec::{Change, Content, DomainSetup, What, XenReport, XenSetup, XenVcpu};
use super::watcher::{Sinks, Watcher};
use crate::engine::{Code, Engine};
use crate::guest::{self, Boot, GuestReport, Hosting, RunningGuest, VcpuState, Vm};
use crate::host::{CpuReport, GUEST_MODE, LockReport, Outcome, Progress, RunResult};
use crate::kvm::Kvm;
use crate::os::{MetricStore, TaskReport, random_stream};
use crate::program::{GroupId, Groups, Program};
use crate::thread::State;
use crate::trace::{GuestNamer, TraceHook};
use crate::watch::{self, System};
use crate::world::{Sim, World};
use contend_platform::{CpuId, Line, NEVER, Nanos, Platform, TaskId, Time};
use contend_sched::class::Sched;
use contend_sched::kernel::Outside;
use contend_sched::rq::RqStats;
use contend_sched::task::{RunStats, WakeStats};
use contend_sched::xen::contract::{UnitId, XenPolicy};
use contend_sched::xen::credit1::Credit1;
use contend_sched::xen::credit2::Credit2;
use contend_sched::xen::event::RunState;
use contend_sched::xen::features::Scheduler;
use contend_sched::xen::mechanism::{DomainSpec, Observer, PoolSpec, Xen};
use contend_sched::xen::round_robin::RoundRobin;
use rand_pcg::Pcg64Mcg;
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// What is in a vCPU.
pub(super) enum Occupant {
    Kernel(KernelVcpu),
    Program(ProgramVcpu),
}

/// A vCPU of a guest kernel.
pub(super) struct KernelVcpu {
    pub vm: Rc<Vm>,
    pub vcpu: Rc<VcpuState>,
    pub state: Rc<State>,
    code: Cell<Option<Code>>,
    /// It halted and is not over it: with the guest's interrupts on?
    pub halted: Cell<Option<bool>>,
}

/// A vCPU that runs a program without a kernel.
pub(super) struct ProgramVcpu {
    pub program: RefCell<Box<dyn Program>>,
    pub rng: RefCell<Pcg64Mcg>,
    /// When it wakes from its latest sleep.
    pub wake_at: Cell<Time>,
    /// Index of its domain.
    pub domain: usize,
    working_set_kib: u32,
}

/// A domain, as the host knows it.
struct Domain {
    name: String,
    /// Number of its first vCPU.
    first: usize,
    /// Programs that have not ended; the run waits for them.
    left: Cell<usize>,
    background: bool,
}

/// What is not the scheduler's.
pub(crate) struct XenHost {
    pub(super) hosting: Rc<Hosting>,
    pub(super) occupants: Rc<[Occupant]>,
    domains: Vec<Domain>,
    domain_of: Vec<usize>,
    timeline: Vec<Change>,
    /// Changes made.
    done: Cell<usize>,
    pub(super) metrics: RefCell<MetricStore>,
    pub(super) warmup: Time,
}

/// Simulate a Xen host.
///
/// # Errors
/// The system refused memory for stacks, or a sink could not be written. What happens inside the simulation is an [`Outcome`].
///
/// # Panics
/// The setup is contradictory: pools that overlap, affinities outside a pool. Whoever reads scenarios checks them.
pub fn simulate(setup: XenSetup, sinks: Sinks, progress: Progress<'_>) -> std::io::Result<RunResult> {
    match setup.scheduler {
        Scheduler::RoundRobin => simulate_with(RoundRobin, setup, sinks, progress),
        Scheduler::Credit => simulate_with(Credit1::new(&setup.features), setup, sinks, progress),
        Scheduler::Credit2 => simulate_with(Credit2::new(&setup.features), setup, sinks, progress),
    }
}

/// Simulate a Xen host with a policy of the caller's.
///
/// # Errors
/// As for [`simulate`].
///
/// # Panics
/// As for [`simulate`].
pub fn simulate_with<L: XenPolicy + Clone>(
    policy: L,
    setup: XenSetup,
    mut sinks: Sinks,
    progress: Progress<'_>,
) -> std::io::Result<RunResult> {
    let XenSetup { machine, features, pools, domains, mut timeline, seed, limits, .. } = setup;
    let topo = machine.topology.clone();
    let awaited = domains.iter().filter(|d| !d.background()).count();
    let window = (features.ple_gap > 0).then_some(features.ple_window);
    let hosting = Rc::new(Hosting::new(&machine, Rc::from([]), window, awaited));
    let engine = Engine::new(machine);
    engine.idle_polls.set(true);
    let sim = Sim::new(Rc::clone(&engine), None);
    let specs =
        domains.iter().map(|d| DomainSpec { dom: d.dom, params: d.params, pool: d.pool, vcpus: d.affinity.clone() });
    let specs: Vec<DomainSpec> = specs.collect();
    let pools = pools.into_iter().map(|pool| PoolSpec {
        name: pool.name,
        policy: policy.clone(),
        cpus: pool.cpus,
        tunables: pool.tunables,
    });
    let mut xen = Xen::new(&sim, &topo, pools.collect(), specs);
    let boot = Boot { p: &sim, hosting: &hosting, seed, warmup: limits.warmup };
    let Fitted { occupants, domains, guests } = fit(&boot, domains)?;
    timeline.sort_by_key(|c| c.at);
    let domain_of = (0..domains.len()).flat_map(|d| {
        let end = domains.get(d + 1).map_or(occupants.len(), |next| next.first);
        vec![d; end - domains[d].first]
    });
    let host = Rc::new(XenHost {
        hosting,
        domain_of: domain_of.collect(),
        occupants: occupants.into(),
        domains,
        timeline,
        done: Cell::new(0),
        metrics: RefCell::default(),
        warmup: limits.warmup,
    });
    let told = sinks.sched.take().map(|sink| Rc::new(RefCell::new(sink)));
    let namer = told.clone().map(|sink| Rc::new(GuestNamer::new(sink)));
    if let Some(namer) = &namer {
        host.hosting.tell(&(Rc::clone(namer) as Rc<dyn TraceHook>));
        namer.introduce(&guests);
    }
    let names = xen.units.iter().map(|u| format!("d{}v{}", u.info.dom, u.info.vcpu)).collect();
    let tracing = told.is_some() || sinks.xen.is_some();
    let sinks = (told, sinks.xen);
    let watcher = Rc::new(Watcher::new(Rc::clone(&host.occupants), names, &xen, sinks, features.trace_switch_vcpu));
    xen.observe(Rc::clone(&watcher) as Rc<dyn Observer>, tracing);
    let xen = Rc::new(xen);
    let visit = {
        let (sim, xen, host) = (sim.clone(), Rc::clone(&xen), Rc::clone(&host));
        let places: Vec<Cell<Option<Outside>>> = vec![Cell::new(None); topo.nr_cpus()];
        move |cpu: CpuId| {
            let place = &places[cpu.index()];
            let outside = place.get().unwrap_or_else(|| xen.cpu_up(&sim, &*host));
            let idle_ended = || xen.idle_ended(&sim, &*host);
            let trapped = |unit, trap| xen.trapped(&sim, &*host, unit, trap);
            place.set(Some(sim.visit(outside, xen.idle_word(cpu), idle_ended, trapped)));
        }
    };
    let mut stacks = engine.boot_visits(visit)?;
    let system = Watched { host: &host, xen: &xen, engine: &engine, guests: &guests };
    let (outcome, end) = watch::run(&engine, &mut stacks, &system, (limits.horizon, limits), progress);
    let result = result(&host, &xen, &engine, &guests, (outcome, end));
    if let Some(namer) = &namer {
        namer.let_go();
    }
    watcher.finish(end)?;
    Ok(result)
}

/// Domains with what runs in them.
struct Fitted {
    occupants: Vec<Occupant>,
    domains: Vec<Domain>,
    guests: Vec<Rc<dyn RunningGuest>>,
}

fn fit(boot: &Boot<'_>, setups: Vec<DomainSetup>) -> std::io::Result<Fitted> {
    let mut fitted = Fitted { occupants: Vec::new(), domains: Vec::new(), guests: Vec::new() };
    for (index, setup) in setups.into_iter().enumerate() {
        let background = setup.background();
        let first = fitted.occupants.len();
        match setup.content {
            Content::Kernel(spec) => {
                let name = spec.name.clone();
                assert_eq!(spec.topology.nr_cpus(), setup.affinity.len(), "{name}: one affinity a vCPU");
                let booted = guest::boot(boot, index, *spec)?;
                for ready in booted.threads {
                    let (_, number) = ready.vcpu.expect("the thread is a vCPU");
                    fitted.occupants.push(Occupant::Kernel(KernelVcpu {
                        vcpu: Rc::clone(booted.vm.vcpu(number)),
                        vm: Rc::clone(&booted.vm),
                        state: Rc::clone(ready.code.state()),
                        code: Cell::new(Some(ready.code)),
                        halted: Cell::new(None),
                    }));
                }
                fitted.guests.push(booted.guest);
                fitted.domains.push(Domain { name, first, left: Cell::new(0), background });
            }
            Content::Programs { name, programs, .. } => {
                assert_eq!(programs.len(), setup.affinity.len(), "{name}: one affinity a vCPU");
                let left = Cell::new(programs.len());
                for program in programs {
                    let id = fitted.occupants.len() as u64 + 1;
                    fitted.occupants.push(Occupant::Program(ProgramVcpu {
                        working_set_kib: program.working_set_kib(),
                        program: RefCell::new(program),
                        rng: RefCell::new(random_stream(boot.seed, id)),
                        wake_at: Cell::new(NEVER),
                        domain: index,
                    }));
                }
                fitted.domains.push(Domain { name, first, left, background });
            }
        }
    }
    Ok(fitted)
}

impl DomainSetup {
    fn background(&self) -> bool {
        match &self.content {
            Content::Kernel(spec) => spec.background,
            Content::Programs { background, .. } => *background,
        }
    }
}

impl XenHost {
    /// Give the vCPU its place in the engine.
    pub(super) fn adopt<L: XenPolicy>(&self, xen: &Xen<Sim, L>, p: &Sim, unit: UnitId) {
        match &self.occupants[unit.index()] {
            Occupant::Kernel(guest) => {
                p.create_task(unit, 0);
                p.engine().give_code(unit, guest.code.take().expect("a vCPU is adopted once"));
                guest.vcpu.attach(p, unit, Line(xen.unit(unit).flags.line));
            }
            Occupant::Program(program) => p.create_task(unit, program.working_set_kib),
        }
    }

    /// The vCPU `number` of the domain of `unit`.
    pub(super) fn unit_beside(&self, unit: UnitId, number: CpuId) -> UnitId {
        TaskId((self.domains[self.domain_of[unit.index()]].first + number.index()) as u32)
    }

    /// A program of a domain without a kernel has ended.
    pub(super) fn program_ended(&self, p: &Sim, domain: usize) {
        let domain = &self.domains[domain];
        domain.left.set(domain.left.get() - 1);
        if domain.left.get() == 0 && !domain.background && self.hosting.one_finished() {
            p.engine().stop();
        }
    }

    /// Set the alarm for the next change of the timeline, on the calling pCPU.
    pub(super) fn next_change<L: XenPolicy>(&self, xen: &Xen<Sim, L>, p: &Sim) {
        if let Some(change) = self.timeline.get(self.done.get()) {
            xen.set_alarm(p, change.at.max(p.now() + 1));
        }
    }

    /// Make the changes that are due.
    pub(super) fn change<L: XenPolicy>(&self, xen: &Xen<Sim, L>, p: &Sim) {
        while let Some(change) = self.timeline.get(self.done.get()).filter(|c| c.at <= p.now()) {
            self.done.set(self.done.get() + 1);
            match change.what {
                What::Domain(domain, params) => xen.set_params(p, domain, params),
                What::Pool(pool, tunables) => xen.set_tunables(p, pool, tunables),
                What::Affinity(domain, vcpu, affinity) => {
                    let unit = self.domains[domain].first + usize::from(vcpu);
                    xen.set_affinity(p, TaskId(unit as u32), affinity);
                }
            }
        }
    }
}

/// What runs on the host, for the loop that watches.
struct Watched<'a, L: XenPolicy> {
    host: &'a XenHost,
    xen: &'a Xen<Sim, L>,
    engine: &'a Engine,
    guests: &'a [Rc<dyn RunningGuest>],
}

impl<L: XenPolicy> System for Watched<'_, L> {
    fn alive(&self) -> u64 {
        self.host.occupants.len() as u64
    }
    /// Do all vCPUs wait, halted without a timer, or spin?
    fn stuck(&self, now: Time, long: Nanos) -> bool {
        self.host.occupants.iter().all(|o| match o {
            Occupant::Program(_) => false,
            Occupant::Kernel(guest) => {
                let spins = guest.state.spins.get().is_some_and(|s| !s.bounded && now.saturating_sub(s.since) > long);
                let halted =
                    guest.halted.get().is_some_and(|interrupts| !interrupts || guest.vcpu.host_timer.get() == NEVER);
                spins || halted && guest.vcpu.pending.observe() == 0
            }
        })
    }
    fn sleeps(&self, now: Time) -> bool {
        let until = |at: Time| at != NEVER && at > now;
        self.host.occupants.iter().any(|o| match o {
            Occupant::Program(program) => until(program.wake_at.get()),
            Occupant::Kernel(guest) => guest.halted.get().is_some() && until(guest.vcpu.host_timer.get()),
        })
    }
    fn stalled(&self, now: Time, long: Nanos) -> Option<String> {
        let waits = |u: &&contend_sched::xen::units::UnitSlot<Sim, L>| {
            let book = u.book.borrow();
            book.state == RunState::Runnable && now.saturating_sub(book.since) > long
        };
        self.xen.units.iter().find(waits).map(|u| {
            let since = u.book.borrow().since / 1_000_000;
            format!("d{}v{} has been runnable since {since} ms and does not run", u.info.dom, u.info.vcpu)
        })
    }
    fn who_waits(&self) -> Vec<String> {
        let now = self.engine.settled_now();
        let mut who = watch::who_spins(self.engine);
        for u in &self.xen.units {
            who.push(format!("d{}v{} is {}", u.info.dom, u.info.vcpu, u.book.borrow().state.name()));
        }
        who.extend(self.guests.iter().flat_map(|g| g.who_waits(now)));
        who
    }
}

fn result<L: XenPolicy>(
    host: &XenHost,
    xen: &Xen<Sim, L>,
    engine: &Engine,
    guests: &[Rc<dyn RunningGuest>],
    (outcome, end): (Outcome, Time),
) -> RunResult {
    let (ledgers, timeline) = engine.close_ledger(end);
    let guests: Vec<GuestReport> = guests.iter().map(|g| g.report(end)).collect();
    let of_guests = guests.iter().flat_map(|g| &g.vcpus).flat_map(|v| &v.ledger).sum::<Nanos>();
    let of_cpus = ledgers.iter().flat_map(|l| GUEST_MODE.map(|a| l[a as usize])).sum::<Nanos>();
    let mut doubts = engine.doubts.take();
    doubts.append(&mut host.hosting.doubts.borrow_mut());
    if of_guests != of_cpus {
        doubts.push(format!("guests had {of_guests} ns of guest mode, CPUs {of_cpus}"));
    }
    let cpus = ledgers.into_iter().map(|ledger| CpuReport { ledger, stats: RqStats::default(), domains: Vec::new() });
    let locks = xen.lock_rows().into_iter().map(|(name, kind, stats)| LockReport { name, kind, stats });
    let mut tasks = Vec::new();
    let mut vcpus = Vec::new();
    for (i, unit) in xen.units.iter().enumerate() {
        let domain = &host.domains[host.domain_of[i]];
        let book = unit.book.borrow().at(end);
        let times = book.times_until(end);
        // The state that it is in at the end has its share.
        let last = end.saturating_sub(book.since);
        let soft = book.last.is_some_and(|cpu| unit.affinity().soft.contains(cpu));
        let in_soft = book.in_soft + if book.state == RunState::Running && soft { last } else { 0 };
        let wait_max = book.wait_max.max(if book.state == RunState::Runnable { last } else { 0 });
        if times.iter().sum::<Nanos>() != end {
            doubts.push(format!("the states of {}/{} do not sum to {end} ns: {times:?}", domain.name, unit.info.vcpu));
        }
        tasks.push(TaskReport {
            id: i as u64,
            name: format!("{}/{}", domain.name, unit.info.vcpu),
            sched: Sched::default(),
            group: GroupId::ROOT,
            started: 0,
            exited: None,
            run: RunStats {
                switches: book.dispatches,
                waits: book.dispatches,
                wait_sum: times[RunState::Runnable as usize],
                wait_max,
                wait_max_at: 0,
                nr_migrations: book.moves,
                preempted: book.preempted,
                sum_exec: times[RunState::Running as usize],
            },
            wake: WakeStats::default(),
            waits_for: None,
            waits_since: None,
        });
        vcpus.push(XenVcpu {
            id: unit.info,
            domain: domain.name.clone(),
            params: xen.domains[unit.domain].params.get(),
            times,
            in_soft,
            dispatches: book.dispatches,
            moves: book.moves,
            preempted: book.preempted,
            wait_max,
        });
    }
    let mut kvm = [0; Kvm::COUNT];
    kvm[Kvm::IpisDelivered as usize] = host.hosting.ipis_delivered.get();
    RunResult {
        outcome: outcome.doubted(&doubts),
        virtual_ns: end,
        cpus: cpus.collect(),
        timeline,
        tasks,
        bandwidth: Vec::new(),
        groups: Groups::default(),
        locks: locks.collect(),
        observed: engine.observed.borrow().clone(),
        counts: engine.counts(),
        transfers: engine.transfers(),
        metrics: host.metrics.borrow().clone(),
        dispatches: engine.dispatches.get(),
        trace_hash: engine.trace_hash.get(),
        guests,
        kvm,
        xen: Some(XenReport { vcpus, perf: xen.counts(), trylocks: xen.trylocks(), changes: host.done.get() }),
    }
}
