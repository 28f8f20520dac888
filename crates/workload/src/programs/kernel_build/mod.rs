//! kernel-build: `make -j` of a kernel tree with a warm page cache.
//!
//! make does what is serial at the start, then starts a unit whenever one of `jobs` tokens is free: a shell that starts the
//! other processes of the unit one after another (gcc and its helpers, the compiler, the assembler, fixdep, rm, mv), waits for each,
//! and writes the object file. At the end make links. `process` has what a process does, and the locks that it takes.
//!
//! The sizes come from one published build (mvermeulen): Linux 4.13 on a desktop, 29,135 processes, 31.5 million minor faults,
//! 1,079 s of user and 41 s of system time. A unit is here 11 processes (estimate, from what a recipe of the tree runs), so the
//! build had 2,650 of them, each with 12,000 faults and 0.4 s of user time.

mod process;

use std::sync::{Arc, Mutex, PoisonError};

use contend_platform::{Nanos, Time};
use contend_sim::program::{Cx, ObjId, ObjectKind, Op, Program, TaskSpec, Workload};
use rand::Rng;

pub(super) use self::process::PCP_BATCH;
use self::process::{Costs, Locks, Process, Step, Task};
use super::{DURATION_MS_MAX, NS_PER_MS, NS_PER_US, cached};
use crate::spec::keys::spec;
use crate::spec::{Build, WorkloadError};

spec! {
    /// `make -j` of a kernel tree, its files in the page cache. Ends with the build, or after a slice of it. Counts: units,
    /// unit_millionths (work done, in millionths of a mean unit), build_billionths (the same, in billionths of the build: what a
    /// slice is scaled by), faults. Latencies: unit.
    pub struct KernelBuild = "kernel-build" {
        /// Units that are under way at a time (-j). Default: one a CPU of a usual machine.
        jobs: u64 [1..=4_096] = 16, "units";
        /// Units of the build. A slice takes from them for ever; its `build_billionths` tell how much of it they are. Default: of the build that the sizes are from.
        units: u64 [1..=100_000] = 2_650, "units";
        /// User time of a unit, of all its processes together, at the machine's reference speed. Default: 1,079 s for 2,650
        /// units on a desktop processor of 2016; slower processors take about twice that.
        compile_ms: u64 [1..=100_000] = 400, "ms";
        /// A unit is shorter or longer by up to this, at random. Default: an estimate; the largest files take several times
        /// as long as the smallest.
        spread_pct: u64 [0..=100] = 60, "%";
        /// Processes of a unit. Default: an estimate from the recipe: shell, gcc, compiler, assembler, fixdep, rm, mv, objcopy
        /// and checks.
        processes: u64 [3..=64] = 11, "tasks";
        /// Page faults of a unit, of all its processes together. Default: 31.5 million for 2,650 units; 28,000 a second of CPU
        /// time, where another build had 35,600.
        faults_per_unit: u64 [0..=1_000_000] = 12_000, "faults";
        /// Time of a page fault without the visible locks: exception, page table, zeroing of 4 KiB. Default: an estimate, 300 to
        /// 1,000; the published build has 1,300 of system time a fault, exec, exit and files included.
        fault_ns: u64 [0..=1_000_000] = 600, "ns";
        /// How long the zone's lock is held for each page that moves to or from a per-CPU list, 31 at a time, beside its lines.
        /// Default: an estimate, 5 to 40: lists and counters.
        zone_page_ns: u64 [0..=100_000] = 15, "ns";
        /// Cache lines of each such page, with the zone's lock held, that come from the CPU that held it last: structures of
        /// the page and of its buddy. Default: derived from page faults of saturated zones (A. Lu, 2018): 1.9 to 2.6.
        zone_page_lines: u64 [0..=100] = 2, "lines";
        /// Files that a unit opens, all its processes together. Default: an estimate; 400 headers, and the libraries and
        /// locales of each process.
        opens_per_unit: u64 [0..=1_000_000] = 800, "files";
        /// Time to open, read and close a file in the page cache, without the visible locks. Default: an estimate, three or four
        /// system calls and the look-ups that fail before.
        open_ns: u64 [0..=1_000_000] = 3_000, "ns";
        /// How long the lock of the list of all processes is held at a fork, an exit and a wait. Default: an estimate, 500 to
        /// 5,000.
        tasklist_ns: u64 [0..=1_000_000] = 1_500, "ns";
        /// Files that a unit creates, renames or removes. Default: an estimate: object, temporary object, dependencies, command.
        changes_per_unit: u64 [0..=1_000] = 8, "files";
        /// How long the file system's lock is held for each of them. Default: dbench's journal_ns.
        journal_ns: u64 [0..=1_000_000] = 2_000, "ns";
        /// Work of make for each unit: rules, stat, start of the shell. Default: an estimate; a kernel tree has several makes at
        /// work, here it is one.
        make_us: u64 [0..=1_000_000] = 1_000, "us";
        /// Serial work of make before the first unit. Default: an estimate: configuration, generated headers, tools.
        start_ms: u64 [0..=1_000_000] = 2_000, "ms";
        /// Serial work of make after the last: link, symbol tables, compression. Default: an estimate.
        link_ms: u64 [0..=1_000_000] = 5_000, "ms";
        /// Working set of the compiler, fetched again after a migration. Default: an estimate, an L2 of the time.
        working_set_kib: u64 [0..=1_048_576] = 256, "KiB";
        /// 0: the whole build. Otherwise a slice of its middle for this long: `jobs` units are under way at the start, each at
        /// a random point, and there is no serial work but make's for each unit. Default: the whole.
        duration_ms: u64 [0..=DURATION_MS_MAX] = 0, "ms";
    }
}

/// Share of the compiler and the assembler in a unit's user time, in percent; the others share the rest. Estimates.
const CC1_TIME: u64 = 90;
const AS_TIME: u64 = 5;
/// The same of its page faults.
const CC1_FAULTS: u64 = 65;
const AS_FAULTS: u64 = 10;
/// The compiler's share of the open files.
const CC1_OPENS: u64 = 70;
/// Copying the parent at a fork, in ns, beside the machine's `fork`. Estimate: make, shells and gcc are small.
const FORK_NS: Nanos = 30_000;
/// `i_mmap` of a fork, in ns: as for exec.
const FORK_I_MMAP_NS: Nanos = 1_500;
/// `inodes`, the list of all inodes, for a file that is created or removed, in ns. Estimate.
const INODES_NS: Nanos = 300;
/// A file's change outside the visible locks, in ns. Estimate.
const CHANGE_NS: Nanos = 8_000;
/// Millionths of a unit.
const UNIT: u64 = 1_000_000;

/// What all processes share.
struct Plan {
    spec: KernelBuild,
    locks: Locks,
    costs: Costs,
    /// Free job slots.
    tokens: ObjId,
    /// The first slot's "a child has exited"; the others follow.
    exited: u32,
    slots: Mutex<Vec<u32>>,
}

/// Which process of a unit.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Shell,
    Compiler,
    Assembler,
    Helper,
}

impl Plan {
    fn exited(&self, slot: u32) -> ObjId {
        ObjId(self.exited + slot)
    }

    /// What a process of a unit of this size (1,000: mean) has to do.
    fn task(&self, kind: Kind, size: u64) -> Task {
        let s = &self.spec;
        let others = s.processes - 2;
        let (time, faults, opens) = match kind {
            Kind::Compiler => ((CC1_TIME, 100), (CC1_FAULTS, 100), (CC1_OPENS, 100)),
            Kind::Assembler => {
                let opens = (100 - CC1_OPENS, 100 * (s.processes - 1));
                ((AS_TIME, 100), (AS_FAULTS, 100), opens)
            }
            Kind::Shell | Kind::Helper => (
                (100 - CC1_TIME - AS_TIME, 100 * others),
                (100 - CC1_FAULTS - AS_FAULTS, 100 * others),
                (100 - CC1_OPENS, 100 * (s.processes - 1)),
            ),
        };
        // The small processes are alike in all units.
        let size = if matches!(kind, Kind::Compiler | Kind::Assembler) { size } else { 1000 };
        let part = |total: u64, (n, d): (u64, u64)| total * n * size / d / 1000;
        Task {
            compute: part(s.compile_ms * NS_PER_MS, time),
            faults: part(s.faults_per_unit, faults),
            opens: part(s.opens_per_unit, opens),
            share: part(UNIT, time),
        }
    }

    /// Serial work of make that computes for so long and faults as all else does.
    fn serial(&self, ms: u64) -> Process {
        let faults = ms * self.spec.faults_per_unit / self.spec.compile_ms;
        let opens = ms * self.spec.opens_per_unit / self.spec.compile_ms;
        Process::new(self.locks, self.costs, Task { compute: ms * NS_PER_MS, faults, opens, share: 0 })
    }

    fn process(&self, kind: Kind, size: u64) -> Process {
        Process::new(self.locks, self.costs, self.task(kind, size))
    }
}

/// Steps of a fork, before the child exists.
fn fork_step(locks: &Locks, tasklist: Nanos, i: u8) -> Option<Step> {
    match i {
        0 => Some(Step::Kernel(FORK_NS)),
        1 => Some(Step::Locked(locks.i_mmap, FORK_I_MMAP_NS, 0)),
        2 => Some(Step::Locked(locks.tasklist, tasklist, 0)),
        _ => None,
    }
}

/// A process that its parent waits for: compiler, assembler, helper.
struct Child {
    plan: Arc<Plan>,
    process: Process,
    /// Begin in the midst of the work.
    midway: bool,
    slot: u32,
    end: u8,
    working_set_kib: u32,
}

impl Program for Child {
    fn next(&mut self, cx: &mut Cx<'_>) -> Op {
        if std::mem::take(&mut self.midway) {
            self.process.skip(cx.rng);
        }
        if let Some(step) = self.process.next(cx.rng, cx.metrics) {
            return step.op();
        }
        self.end += 1;
        match self.end {
            1 => Op::kernel_lock(self.plan.locks.tasklist, self.plan.spec.tasklist_ns),
            2 => Op::SemPost(self.plan.exited(self.slot), 1),
            _ => Op::Exit,
        }
    }
    fn working_set_kib(&self) -> u32 {
        self.working_set_kib
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Stage {
    Start,
    Own,
    Fork,
    Wait,
    Reap,
    Change,
    Exit,
}

/// The shell of a unit.
struct Shell {
    plan: Arc<Plan>,
    slot: u32,
    own: Process,
    /// Children started so far.
    child: u64,
    size: u64,
    midway: bool,
    started: Time,
    stage: Stage,
    i: u8,
    changes: u64,
}

impl Shell {
    /// Helpers run before the compiler and after the assembler.
    fn kind(&self, child: u64) -> Kind {
        let helpers = self.plan.spec.processes - 3;
        match child {
            c if c == helpers / 2 => Kind::Compiler,
            c if c == helpers / 2 + 1 => Kind::Assembler,
            _ => Kind::Helper,
        }
    }

    fn spawn(&mut self) -> Op {
        let kind = self.kind(self.child);
        self.child += 1;
        let name = match kind {
            Kind::Compiler => "cc1",
            Kind::Assembler => "as",
            Kind::Shell | Kind::Helper => "gcc",
        };
        let compiler = kind == Kind::Compiler;
        let child = Child {
            process: self.plan.process(kind, self.size),
            plan: Arc::clone(&self.plan),
            midway: self.midway && compiler,
            slot: self.slot,
            end: 0,
            working_set_kib: if compiler { self.plan.spec.working_set_kib as u32 } else { 0 },
        };
        Op::Spawn(Box::new(TaskSpec::new(name, child)))
    }
}

/// Size of a unit, 1,000: mean.
fn size(spread_pct: u64, rng: &mut impl Rng) -> u64 {
    let most = spread_pct * 10;
    (1000 - most + rng.next_u64() % (2 * most + 1)).max(1)
}

impl Program for Shell {
    fn next(&mut self, cx: &mut Cx<'_>) -> Op {
        loop {
            match self.stage {
                Stage::Start => {
                    self.started = cx.now;
                    self.size = size(self.plan.spec.spread_pct, cx.rng);
                    if self.midway {
                        self.child = (self.plan.spec.processes - 3) / 2;
                    }
                    self.stage = Stage::Own;
                }
                Stage::Own => match self.own.next(cx.rng, cx.metrics) {
                    Some(step) => return step.op(),
                    None => self.stage = Stage::Fork,
                },
                Stage::Fork if self.child == self.plan.spec.processes - 1 => self.stage = Stage::Change,
                Stage::Fork => {
                    let step = fork_step(&self.plan.locks, self.plan.spec.tasklist_ns, self.i);
                    self.i += 1;
                    if let Some(step) = step {
                        return step.op();
                    }
                    self.i = 0;
                    self.stage = Stage::Wait;
                    return self.spawn();
                }
                Stage::Wait => {
                    self.stage = Stage::Reap;
                    return Op::SemWait(self.plan.exited(self.slot));
                }
                Stage::Reap => {
                    self.stage = Stage::Fork;
                    return Op::kernel_lock(self.plan.locks.tasklist, self.plan.spec.tasklist_ns);
                }
                Stage::Change if self.changes == self.plan.spec.changes_per_unit => {
                    self.stage = Stage::Exit;
                    self.i = 0;
                }
                Stage::Change => {
                    self.i += 1;
                    match self.i {
                        1 => return Op::Syscall(CHANGE_NS),
                        2 => return Op::kernel_lock(self.plan.locks.journal, self.plan.spec.journal_ns),
                        _ => {
                            self.i = 0;
                            self.changes += 1;
                            return Op::kernel_lock(self.plan.locks.inodes, INODES_NS);
                        }
                    }
                }
                Stage::Exit => {
                    self.i += 1;
                    match self.i {
                        1 => return Op::kernel_lock(self.plan.locks.tasklist, self.plan.spec.tasklist_ns),
                        2 => {
                            if !self.midway {
                                cx.metrics.latency("unit", cx.now - self.started);
                            }
                            cx.metrics.count("units", 1);
                            self.plan.slots.lock().unwrap_or_else(PoisonError::into_inner).push(self.slot);
                            return Op::SemPost(self.plan.tokens, 1);
                        }
                        _ => return Op::Exit,
                    }
                }
            }
        }
    }
}

#[derive(Clone, Copy)]
enum Make {
    Serial,
    Token,
    Work,
    Fork,
    Collect(u64),
    Link,
}

/// make itself.
struct Maker {
    plan: Arc<Plan>,
    serial: Process,
    started: u64,
    stage: Make,
    i: u8,
}

impl Maker {
    fn slice(&self) -> bool {
        self.plan.spec.duration_ms > 0
    }

    fn spawn(&mut self) -> Op {
        let slot = self.plan.slots.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let slot = slot.expect("a token comes with a slot");
        let midway = self.slice() && self.started < self.plan.spec.jobs;
        self.started += 1;
        let shell = Shell {
            own: self.plan.process(Kind::Shell, 1000),
            plan: Arc::clone(&self.plan),
            slot,
            child: 0,
            size: 0,
            midway,
            started: 0,
            stage: Stage::Start,
            i: 0,
            changes: 0,
        };
        Op::Spawn(Box::new(TaskSpec::new("sh", shell)))
    }
}

impl Program for Maker {
    fn next(&mut self, cx: &mut Cx<'_>) -> Op {
        loop {
            match self.stage {
                Make::Serial => match self.serial.next(cx.rng, cx.metrics) {
                    Some(step) => return step.op(),
                    None => self.stage = Make::Token,
                },
                Make::Token if !self.slice() && self.started == self.plan.spec.units => self.stage = Make::Collect(0),
                Make::Token => {
                    self.stage = Make::Work;
                    return Op::SemWait(self.plan.tokens);
                }
                Make::Work => {
                    self.stage = Make::Fork;
                    // In a slice the first units are there at once.
                    if !self.slice() || self.started >= self.plan.spec.jobs {
                        return Op::Run(self.plan.spec.make_us * NS_PER_US);
                    }
                }
                Make::Fork => {
                    let step = fork_step(&self.plan.locks, self.plan.spec.tasklist_ns, self.i);
                    self.i += 1;
                    if let Some(step) = step {
                        return step.op();
                    }
                    self.i = 0;
                    self.stage = Make::Token;
                    return self.spawn();
                }
                Make::Collect(n) if n == self.plan.spec.jobs => {
                    self.serial = self.plan.serial(self.plan.spec.link_ms);
                    self.stage = Make::Link;
                }
                Make::Collect(n) => {
                    self.stage = Make::Collect(n + 1);
                    return Op::SemWait(self.plan.tokens);
                }
                Make::Link => return self.serial.next(cx.rng, cx.metrics).map_or(Op::Exit, Step::op),
            }
        }
    }
}

impl Build for KernelBuild {
    fn tasks(&self) -> u64 {
        // At a time: make, and of each unit the shell and the one that it waits for.
        1 + 2 * self.jobs
    }

    fn build(&self, w: &mut Workload, _: usize) -> Result<(), WorkloadError> {
        let mut lock = |name: &str| w.object(name, ObjectKind::SpinLock);
        let locks = Locks {
            zone: lock("zone"),
            lru: lock("lru"),
            dcache: lock("dcache"),
            slab: lock("slab"),
            i_mmap: lock("i_mmap"),
            tasklist: lock("tasklist"),
            journal: lock("journal"),
            inodes: lock("inodes"),
        };
        let tokens = w.object("job-tokens", ObjectKind::Semaphore { initial: self.jobs as u32 });
        let exited = w.objects.len() as u32;
        for i in 0..self.jobs {
            w.object(format!("job{i}"), ObjectKind::Semaphore { initial: 0 });
        }
        let plan = Arc::new(Plan {
            spec: self.clone(),
            locks,
            costs: Costs {
                fault: self.fault_ns,
                zone_page: self.zone_page_ns,
                zone_lines: self.zone_page_lines,
                open: self.open_ns,
                units: self.units,
            },
            tokens,
            exited,
            slots: Mutex::new((0..self.jobs as u32).rev().collect()),
        });
        let slice = self.duration_ms > 0;
        let maker = Maker {
            serial: plan.serial(self.start_ms),
            plan,
            started: 0,
            stage: if slice { Make::Token } else { Make::Serial },
            i: 0,
        };
        w.task(cached("make".into(), maker, self.working_set_kib));
        w.horizon = slice.then_some(self.duration_ms * NS_PER_MS);
        Ok(())
    }
}
