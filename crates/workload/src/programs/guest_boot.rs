//! guest-boot: the boot of a kernel on all CPUs of its machine, as far as CPUs do something to one another in it.
//!
//! 1. The boot CPU initialises the kernel alone.
//! 2. It brings up the others one after another: each is prepared, started, initialises itself while the boot CPU polls for
//!    it, and then both check their clocks against one another.
//! 3. Code and tables that all CPUs use are changed by broadcasts, as `stop_machine` does: a stopper task on each CPU is woken; each arrives
//!    and spins with interrupts off; when all are there the boot CPU makes the change; then all leave. Some come with each CPU
//!    that is brought up (among those there are), the rest when all are up (modules, patched code, cache attributes).
//! 4. Services start: tasks that compute in the kernel and take locks that all share, as many as CPUs or more. While a lock is
//!    wanted by more CPUs than it serves, all but one of them spin.
//!
//! What a boot waits for (disks, networks, timeouts) is left out.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use contend_platform::{Nanos, Time};
use contend_sim::program::{Cx, ObjId, ObjectKind, Op, Program, TaskSpec, Workload};

use super::{NS_PER_MS, NS_PER_US, only, up_to};
use crate::spec::keys::spec;
use crate::spec::{Build, WorkloadError};

spec! {
    /// Boot of a kernel on all CPUs: serial work, bring-up of CPUs, broadcasts for which all but one CPU spin, start of
    /// services. Ends with the last service. Counts: cpus_up, broadcasts, services, service_steps. Latencies: bring_up (of a CPU),
    /// broadcast, service.
    pub struct GuestBoot = "guest-boot" {
        /// Serial work of the boot CPU before the others. Default: an estimate, 500 to 3,000: memory, devices, drivers.
        serial_ms: u64 [0..=1_000_000] = 1_000, "ms";
        /// Work of the boot CPU to prepare and start each other CPU. Default: an estimate, 500 to 10,000: its stacks, per-CPU areas,
        /// threads, and the interrupts that start it.
        bringup_us: u64 [0..=10_000_000] = 2_000, "us";
        /// Work of a new CPU until it reports, while the boot CPU polls. Default: an estimate, 1,000 to 50,000: it calibrates
        /// its delay loop and its timer.
        init_us: u64 [0..=10_000_000] = 10_000, "us";
        /// How long the two then compare their clocks, both computing. Default: general knowledge, not checked: 20 ms at the
        /// time; 0 where the clock is the hypervisor's.
        clock_us: u64 [0..=10_000_000] = 0, "us";
        /// Broadcasts among the CPUs that are up, for each that is brought up. Default: an estimate: memory types (MTRRs) are set
        /// on all alike.
        broadcasts_per_cpu: u64 [0..=1_000] = 1, "broadcasts";
        /// Broadcasts when all are up. Default: an estimate: code is patched and modules are loaded some hundred times.
        broadcasts: u64 [0..=1_000_000] = 200, "broadcasts";
        /// What the boot CPU does in a broadcast while the others spin. Default: an estimate, 10 to 1,000: a few instructions are
        /// patched, caches are flushed.
        broadcast_us: u64 [0..=10_000_000] = 100, "us";
        /// Work of the boot CPU between two broadcasts. Default: an estimate.
        between_us: u64 [0..=10_000_000] = 1_000, "us";
        /// Services, for each CPU. Default: an estimate: udev starts as many workers as there are CPUs, or twice as many.
        services_per_cpu: u64 [0..=64] = 2, "tasks";
        /// What a service computes. Default: an estimate, 10 to 1,000.
        service_ms: u64 [0..=1_000_000] = 100, "ms";
        /// How much of it lies between two looks at what all share. Default: an estimate, 100 to 2,000.
        step_us: u64 [1..=10_000_000] = 500, "us";
        /// How long such a look holds the lock. Default: an estimate, 1 to 50 us: lists of all modules, devices, mappings are
        /// walked. 80 CPUs with the other defaults want it 1.6 times as much as there is.
        shared_ns: u64 [0..=10_000_000] = 10_000, "ns";
        /// Locks that are shared so, each look at one of them at random. Default: an estimate: one is the worst of them.
        locks: u64 [1..=1_000] = 1, "locks";
    }
}

/// Objects, and which CPUs are meant.
struct Machine {
    spec: GuestBoot,
    nr_cpus: usize,
    /// The boot CPU and a new one.
    pair: ObjId,
    /// Rendezvous of the first k CPUs is this + k.
    all: u32,
    /// Stopper i sleeps on this + i.
    stoppers: u32,
    /// Held by the boot CPU in a broadcast; nobody else wants it.
    change: ObjId,
    /// The first of the services' locks.
    locks: u32,
    /// A service has ended.
    ended: ObjId,
    /// CPUs in the broadcast under way.
    parties: AtomicU32,
}

impl Machine {
    fn rendezvous(&self) -> ObjId {
        ObjId(self.all + self.parties.load(Relaxed))
    }
}

/// Keeps a CPU while another makes a change. Its first life is the bring-up.
struct Stopper {
    machine: Arc<Machine>,
    cpu: u32,
    step: u8,
}

impl Program for Stopper {
    fn next(&mut self, _: &mut Cx<'_>) -> Op {
        let spec = &self.machine.spec;
        self.step += 1;
        match self.step {
            1 => Op::Syscall(spec.init_us * NS_PER_US),
            2 => Op::Rendezvous(self.machine.pair),
            3 => Op::Syscall(spec.clock_us * NS_PER_US),
            4 => Op::Rendezvous(self.machine.pair),
            5 => Op::SemWait(ObjId(self.machine.stoppers + self.cpu)),
            6 => Op::Rendezvous(self.machine.rendezvous()),
            _ => {
                self.step = 4;
                Op::Rendezvous(self.machine.rendezvous())
            }
        }
    }
}

struct Service {
    machine: Arc<Machine>,
    left: Nanos,
    started: Option<Time>,
    look: bool,
    ended: bool,
}

impl Program for Service {
    fn next(&mut self, cx: &mut Cx<'_>) -> Op {
        let spec = &self.machine.spec;
        let started = *self.started.get_or_insert(cx.now);
        if std::mem::take(&mut self.look) {
            let lock = up_to(spec.locks - 1, cx.rng) as u32;
            return Op::kernel_lock(ObjId(self.machine.locks + lock), spec.shared_ns);
        }
        if self.left > 0 {
            // Half to one and a half of a step.
            let step = spec.step_us * NS_PER_US;
            let step = (step / 2 + up_to(step, cx.rng)).clamp(1, self.left);
            self.left -= step;
            self.look = true;
            cx.metrics.count("service_steps", 1);
            return Op::Syscall(step);
        }
        if std::mem::replace(&mut self.ended, true) {
            return Op::Exit;
        }
        cx.metrics.count("services", 1);
        cx.metrics.latency("service", cx.now - started);
        Op::SemPost(self.machine.ended, 1)
    }
}

#[derive(Clone, Copy)]
enum Stage {
    Serial,
    /// Prepare CPU i.
    Prepare(u32),
    Start(u32),
    CallIn(u32),
    Clock(u32),
    ClockEnd(u32),
    Up(u32),
    /// Wake stopper i, ...
    Call(u32),
    /// ... wait for all, ...
    Arrive,
    Change,
    Leave,
    Left,
    Between,
    Service(u64),
    Wait(u64),
}

/// What the boot CPU does.
struct Boot {
    machine: Arc<Machine>,
    stage: Stage,
    /// CPUs that are up.
    up: u32,
    /// Broadcasts to do before what comes next: for the new CPU, or for all.
    left: u64,
    /// Begin of the bring-up or broadcast under way.
    since: Time,
}

impl Boot {
    /// After a broadcast, or where one could have been.
    fn next_broadcast(&mut self, now: Time) -> Stage {
        let all = self.up as usize == self.machine.nr_cpus;
        if self.left > 0 {
            self.left -= 1;
            self.since = now;
            self.machine.parties.store(self.up, Relaxed);
            return Stage::Call(1);
        }
        if all { Stage::Service(0) } else { Stage::Prepare(self.up) }
    }
}

impl Program for Boot {
    fn next(&mut self, cx: &mut Cx<'_>) -> Op {
        let machine = Arc::clone(&self.machine);
        let spec = &machine.spec;
        let services = spec.services_per_cpu * machine.nr_cpus as u64;
        loop {
            match self.stage {
                Stage::Serial => {
                    self.stage = if machine.nr_cpus > 1 {
                        Stage::Prepare(1)
                    } else {
                        self.left = spec.broadcasts;
                        Stage::Between
                    };
                    return Op::Syscall(spec.serial_ms * NS_PER_MS);
                }
                Stage::Prepare(cpu) => {
                    self.since = cx.now;
                    self.stage = Stage::Start(cpu);
                    return Op::Syscall(spec.bringup_us * NS_PER_US);
                }
                Stage::Start(cpu) => {
                    self.stage = Stage::CallIn(cpu);
                    let stopper = Stopper { machine: Arc::clone(&machine), cpu, step: 0 };
                    let mut task = TaskSpec::new(format!("stopper/{cpu}"), stopper);
                    task.affinity = Some(only(cpu as usize, machine.nr_cpus));
                    task.background = true;
                    return Op::Spawn(Box::new(task));
                }
                Stage::CallIn(cpu) => {
                    self.stage = Stage::Clock(cpu);
                    return Op::Rendezvous(machine.pair);
                }
                Stage::Clock(cpu) => {
                    self.stage = Stage::ClockEnd(cpu);
                    return Op::Syscall(spec.clock_us * NS_PER_US);
                }
                Stage::ClockEnd(cpu) => {
                    self.stage = Stage::Up(cpu);
                    return Op::Rendezvous(machine.pair);
                }
                Stage::Up(cpu) => {
                    cx.metrics.count("cpus_up", 1);
                    cx.metrics.latency("bring_up", cx.now - self.since);
                    self.up = cpu + 1;
                    self.left = spec.broadcasts_per_cpu;
                    if self.up as usize == machine.nr_cpus {
                        self.left += spec.broadcasts;
                    }
                    self.stage = self.next_broadcast(cx.now);
                }
                Stage::Call(cpu) if cpu == self.up => self.stage = Stage::Arrive,
                Stage::Call(cpu) => {
                    self.stage = Stage::Call(cpu + 1);
                    return Op::SemPost(ObjId(machine.stoppers + cpu), 1);
                }
                Stage::Arrive => {
                    self.stage = Stage::Change;
                    return Op::Rendezvous(machine.rendezvous());
                }
                Stage::Change => {
                    self.stage = Stage::Leave;
                    // With interrupts off, as the others.
                    return Op::kernel_lock(machine.change, spec.broadcast_us * NS_PER_US);
                }
                Stage::Leave => {
                    self.stage = Stage::Left;
                    return Op::Rendezvous(machine.rendezvous());
                }
                Stage::Left => {
                    cx.metrics.count("broadcasts", 1);
                    cx.metrics.latency("broadcast", cx.now - self.since);
                    self.stage = Stage::Between;
                    return Op::Syscall(spec.between_us * NS_PER_US);
                }
                Stage::Between => self.stage = self.next_broadcast(cx.now),
                Stage::Service(n) if n == services => self.stage = Stage::Wait(0),
                Stage::Service(n) => {
                    self.stage = Stage::Service(n + 1);
                    let left = spec.service_ms * NS_PER_MS;
                    let service =
                        Service { machine: Arc::clone(&machine), left, started: None, look: false, ended: false };
                    // The boot CPU's task, which was bound to it while the others came up, is not any more.
                    let affinity = Some((0..machine.nr_cpus).collect());
                    return Op::Spawn(Box::new(TaskSpec { affinity, ..TaskSpec::new(format!("service{n}"), service) }));
                }
                Stage::Wait(n) if n == services => return Op::Exit,
                Stage::Wait(n) => {
                    self.stage = Stage::Wait(n + 1);
                    return Op::SemWait(machine.ended);
                }
            }
        }
    }
}

impl Build for GuestBoot {
    fn tasks(&self) -> u64 {
        1
    }

    fn build(&self, w: &mut Workload, nr_cpus: usize) -> Result<(), WorkloadError> {
        let pair = w.object("call-in", ObjectKind::Rendezvous { parties: 2 });
        let all = w.objects.len() as u32;
        for k in 0..=nr_cpus as u32 {
            w.object(format!("broadcast{k}"), ObjectKind::Rendezvous { parties: k });
        }
        let stoppers = w.objects.len() as u32;
        for cpu in 0..nr_cpus {
            w.object(format!("stopper{cpu}"), ObjectKind::Semaphore { initial: 0 });
        }
        let change = w.object("change", ObjectKind::SpinLock);
        let ended = w.object("services", ObjectKind::Semaphore { initial: 0 });
        let locks = w.objects.len() as u32;
        for i in 0..self.locks {
            w.object(format!("shared{i}"), ObjectKind::SpinLock);
        }
        let spec = self.clone();
        let parties = AtomicU32::new(1);
        let machine = Machine { spec, nr_cpus, pair, all, stoppers, change, locks, ended, parties };
        let boot = Boot { machine: Arc::new(machine), stage: Stage::Serial, up: 1, left: 0, since: 0 };
        let mut task = TaskSpec::new("boot", boot);
        task.affinity = Some(only(0, nr_cpus));
        w.task(task);
        Ok(())
    }
}
