//! A guest from its specification to its report: its kernel, and the threads that are its vCPUs.

use super::hosting::Hosting;
use super::memory::Slowdown;
use super::spec::{GuestReport, GuestSpec, VcpuReport, VcpuTimes};
use super::state::{Phase, VcpuState};
use super::vcpu::Vcpu;
use super::vm::Vm;
use crate::counters::LockEvents;
use crate::engine::{Code, Engine};
use crate::host::{LockReport, lock_reports};
use crate::os::{Os, long_waits};
use crate::thread::{Ready, Thread};
use crate::trace::Names;
use crate::world::Sim;
use contend_platform::{CpuId, Nanos, Platform, TaskId, Time};
use contend_sched::capacity::Told;
use contend_sched::class::Sched;
use contend_sched::features::{Features, PolicyKind};
use contend_sched::kernel::Kernel;
use contend_sched::policy::{Policy, cfs::Cfs, eevdf::Eevdf, fifo::Fifo};
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// Stack of a vCPU in bytes, besides its guard page: as much as a physical CPU's.
const STACK_BYTES: usize = 256 * 1024;

/// A guest whose kernel's policy is some other code's business.
pub(crate) trait RunningGuest: Names {
    /// Its number in the run.
    fn number(&self) -> u16;
    /// Its name.
    fn name(&self) -> &str;
    /// How many vCPUs it has.
    fn vcpus(&self) -> usize;
    /// What happened until `end`.
    fn report(&self, end: Time) -> GuestReport;
    /// Tasks that wait, and for what.
    fn who_waits(&self, end: Time) -> Vec<String>;
}

struct Running<L: Policy> {
    name: String,
    vm: Rc<Vm>,
    kernel: Rc<Kernel<Vcpu, L>>,
    os: Rc<Os<Vcpu>>,
}

/// A guest that is ready to run.
pub(crate) struct Booted {
    pub vm: Rc<Vm>,
    pub guest: Rc<dyn RunningGuest>,
    /// The threads that are its vCPUs.
    pub threads: Vec<Ready>,
}

/// What all guests of a run are made with.
pub(crate) struct Boot<'a> {
    pub p: &'a Sim,
    pub hosting: &'a Rc<Hosting>,
    pub seed: u64,
    pub warmup: Time,
}

/// Make a guest: its virtual machine, its kernel, and threads for its vCPUs, which are number `index` among the run's guests.
pub(crate) fn boot(with: &Boot<'_>, index: usize, spec: GuestSpec) -> std::io::Result<Booted> {
    let tick = 1_000_000_000 / u64::from(spec.hz);
    let cpus = spec.topology.nr_cpus();
    let f: &Features = &spec.features;
    let groups = spec.workload.groups.clone();
    match spec.policy {
        PolicyKind::Fifo => boot_with(with, index, Fifo::new(f), tick, spec),
        PolicyKind::Cfs => boot_with(with, index, groups.of(Cfs::new(f, cpus), cpus, f), tick, spec),
        PolicyKind::Eevdf => boot_with(with, index, groups.of(Eevdf::new(f, cpus, tick), cpus, f), tick, spec),
    }
}

fn boot_with<L: Policy>(
    with: &Boot<'_>,
    index: usize,
    policy: L,
    tick_ns: Nanos,
    spec: GuestSpec,
) -> std::io::Result<Booted> {
    let GuestSpec { name, topology, features, mut workload, group, pin, background, memory, .. } = spec;
    let (p, hosting) = (with.p, with.hosting);
    let engine: &Rc<Engine> = p.engine();
    let n = topology.nr_cpus();
    let vcpu = |i: usize| Rc::new(VcpuState::new(p, index as u16, CpuId(i as u16), Rc::clone(hosting)));
    let lock_events = LockEvents::default();
    lock_events.warmup.set(with.warmup);
    let vm = Rc::new(Vm {
        vcpus: (0..n).map(vcpu).collect(),
        last_boosted: p.word(p.line(), 0),
        tasks: RefCell::default(),
        timer_seq: Cell::new(0),
        tick_ns,
        finished: Cell::new(None),
        background,
        lock_events,
        preemption: RefCell::default(),
        hosting: Rc::clone(hosting),
        slowdown: memory.map(|m| Slowdown::new(&engine.machine, m)),
    });
    let handle = |number: CpuId| {
        let thread = Thread::of_vcpu(Rc::clone(engine), Rc::clone(vm.vcpu(number)));
        Vcpu::new(thread, Rc::clone(&vm), number)
    };
    // Words and cells take no time to make.
    let outside = handle(CpuId(0));
    let mut kernel = Kernel::new(&outside, topology, Told::Nothing, features, policy, tick_ns);
    // Each guest's programs have random streams of their own.
    let seed = with.seed ^ (index as u64 + 1).rotate_left(32);
    kernel.been_up(seed);
    let kernel = Rc::new(kernel);
    let os = Rc::new(Os::new(&outside, &kernel, &mut workload, Vec::new(), seed, with.warmup));
    let mut threads = Vec::with_capacity(n);
    for i in 0..n {
        let number = CpuId(i as u16);
        let (kernel, os) = (Rc::clone(&kernel), Rc::clone(&os));
        let code = Code::new(STACK_BYTES, handle(number), move |vcpu: &Vcpu| {
            vcpu.start();
            if vcpu.cpu() == CpuId(0) {
                os.start(&kernel, vcpu);
            }
            kernel.cpu_loop(vcpu, &*os);
        })?;
        threads.push(Ready {
            name: format!("{name}/{i}"),
            code,
            sched: Sched::default(),
            group,
            affinity: pin.get(i).cloned(),
            background: true,
            working_set_kib: 0,
            vcpu: Some((index, number)),
        });
    }
    let running = Running { name, vm: Rc::clone(&vm), kernel, os };
    Ok(Booted { vm, guest: Rc::new(running), threads })
}

impl<L: Policy> Names for Running<L> {
    fn identify(&self, task: TaskId, f: &mut dyn FnMut(u64, &str, Sched)) {
        self.os.identify(task, f);
    }
    fn locks(&self) -> Vec<(u32, String)> {
        lock_reports(&self.kernel, &self.os, &[], 0).filter_map(|(lock, number)| Some((number?, lock.name))).collect()
    }
}

impl<L: Policy> RunningGuest for Running<L> {
    fn number(&self) -> u16 {
        self.vm.vcpu(CpuId(0)).guest
    }
    fn name(&self) -> &str {
        &self.name
    }
    fn vcpus(&self) -> usize {
        self.vm.vcpus.len()
    }
    fn report(&self, end: Time) -> GuestReport {
        let vcpus = self.vm.vcpus.iter().map(|v| {
            let (ledger, times) = v.close(end);
            let rq = self.kernel.rq(v.number);
            VcpuReport {
                ledger,
                times: VcpuTimes {
                    halted: times[Phase::Halted as usize],
                    stolen: times[Phase::Stolen as usize],
                    host: times[Phase::Host as usize],
                },
                exits: v.exits.get(),
                stats: rq.data.observe(|rd| rq.stats(rd, end)),
                preempted: v.preemptions.get(),
                preempted_max: v.preempted_max.get(),
            }
        });
        let waits: Vec<_> = self.vm.vcpus.iter().filter_map(|v| v.waiting.get()).collect();
        let (locks, numbers): (Vec<LockReport>, Vec<Option<u32>>) =
            lock_reports(&self.kernel, &self.os, &waits, end).unzip();
        let by_number = self.vm.preemption.borrow();
        // Nobody who holds a mutex is in the kernel's way.
        let preempted = |number: Option<u32>| by_number.get(number? as usize).copied();
        let preemption = numbers.into_iter().map(|n| preempted(n).unwrap_or_default()).collect();
        let mut metrics = self.os.metrics.borrow().clone();
        metrics.count_lock_events(self.vm.lock_events.get());
        let tasks = self.os.reports(&self.kernel, end);
        GuestReport {
            name: self.name.clone(),
            // A run ends at its last event; private work after that may be owed still.
            finished: self.vm.finished.get().map(|at| at.min(end)),
            vcpus: vcpus.collect(),
            long_waits: long_waits(&tasks, end / 2),
            tasks,
            groups: self.os.groups.clone(),
            locks,
            preemption,
            metrics,
        }
    }

    fn who_waits(&self, end: Time) -> Vec<String> {
        self.os.who_waits(&self.kernel, end).into_iter().map(|line| format!("{}: {line}", self.name)).collect()
    }
}
