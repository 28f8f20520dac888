//! What every process of the build does: it is executed, computes and touches new pages, opens files, and is torn down.
//!
//! Only locks that several processes of a build take are visible; a lock that one process takes alone (its page tables', its
//! mmap_sem) meets nobody and is a part of the time charged. Sections have the sizes that the kernel's batches give
//! them, one `Op::KernelLock` each:
//!
//! * `zone`: per-CPU lists of pages are refilled, and emptied when a process ends, 31 pages at a time. The structures of
//!   each page and its buddy are cache lines that come from the CPU that held the lock last.
//! * `lru`: new pages reach the lists 14 at a time (a pagevec); pages of a process that ends leave them 31 at a time. The pages
//!   are the CPU's own; the ends of the lists and what lies beside the pages come from the CPU that held the lock last.
//! * `dcache`: reference counts of dentries that all processes share (`/`, the libraries, the tree's directories).
//! * `slab`: the list of partly used slabs of a cache, once for 16 open files.
//! * `i_mmap`: the list of a file's mappings, for three files that all processes map (program, libc, loader). It is a sleeping
//!   lock whose waiters spin while the owner runs; here they always spin.

use contend_platform::Nanos;
use contend_sim::program::{Metrics, ObjId, Op};
use rand::Rng;

/// Pages that move between a zone and a per-CPU list at a time: `batch` of /proc/zoneinfo on machines of 1 GiB and more.
pub(in crate::programs) const PCP_BATCH: u64 = 31;
/// Pages of a pagevec (kernels before 4.14; then 15). General knowledge, not checked.
const PAGEVEC: u64 = 14;
/// Open files for each visible look at a slab's list: estimate, the objects of an emptied slab of dentries or files.
const OPENS_PER_SLAB: u64 = 16;
/// Open files for each visible section of `dcache`, which is as long as theirs together.
const OPENS_PER_DCACHE: u64 = 4;
/// `slab`, in ns. Estimate.
const SLAB_NS: Nanos = 500;
/// `dcache` for each open file, in ns. Estimate: a few reference counts.
const DCACHE_NS: Nanos = 60;
/// `i_mmap` for the mappings of one file, in ns. Estimate: four areas (text, data...) of 300 to 500 ns, tree insertions.
const I_MMAP_NS: Nanos = 1500;
/// Files that all map.
const MAPPED_FILES: u64 = 3;
/// `lru` for each page, in ns. Estimate: list operations on a page structure that this CPU has used just before.
const LRU_PAGE_NS: Nanos = 15;
/// Lines of a section of `lru` that others wrote: head of the list, the page behind it, counters. Estimate.
const LRU_LINES: u32 = 3;
/// Such lines more when 31 pages leave: they came in pagevecs, whose ends have neighbours of other CPUs. Estimate.
const LRU_NEIGHBOURS: u32 = 4;
/// Freeing a page, without the locks, in ns. Estimate: page table entry, reverse mapping, reference count.
const FREE_PAGE_NS: Nanos = 100;
/// Executing a program, without page faults and opens, in ns. Estimate: 200 to 500 us for the whole.
const EXEC_NS: Nanos = 200_000;

/// The locks.
#[derive(Clone, Copy)]
pub(super) struct Locks {
    pub zone: ObjId,
    pub lru: ObjId,
    pub dcache: ObjId,
    pub slab: ObjId,
    pub i_mmap: ObjId,
    pub tasklist: ObjId,
    pub journal: ObjId,
    pub inodes: ObjId,
}

/// Costs that keys give.
#[derive(Clone, Copy)]
pub(super) struct Costs {
    pub fault: Nanos,
    pub zone_page: Nanos,
    pub zone_lines: u64,
    pub open: Nanos,
    /// Units of the build.
    pub units: u64,
}

/// A part of an operation: small enough to be kept in a list.
#[derive(Clone, Copy)]
pub(super) enum Step {
    Run(Nanos),
    Kernel(Nanos),
    /// The lock, how long it is held beside the lines, and these.
    Locked(ObjId, Nanos, u32),
}

impl Step {
    pub(super) fn op(self) -> Op {
        match self {
            Step::Run(ns) => Op::Run(ns),
            Step::Kernel(ns) => Op::Syscall(ns),
            Step::Locked(lock, hold, lines) => Op::KernelLock { lock, hold, lines },
        }
    }
}

/// What one process has to do.
#[derive(Clone, Copy)]
pub(super) struct Task {
    /// Computing, in ns.
    pub compute: Nanos,
    /// Page faults.
    pub faults: u64,
    /// Files opened.
    pub opens: u64,
    /// Its share of the unit, in millionths of a mean unit.
    pub share: u64,
}

#[derive(Clone, Copy, PartialEq)]
enum Phase {
    Exec,
    Work,
    Teardown,
    Done,
}

/// A process on its way through a [`Task`].
pub(super) struct Process {
    locks: Locks,
    costs: Costs,
    task: Task,
    phase: Phase,
    /// Batches of page faults, done and in all.
    batch: u64,
    batches: u64,
    /// Pages that no pagevec has carried to the lists yet.
    loose: u64,
    opened: u64,
    freed: u64,
    /// Work done that makes no whole billionth of the build yet, in billionths of a unit.
    undivided: u64,
    /// What is next, last first. Never longer than it was made.
    steps: Vec<Step>,
}

impl Process {
    pub(super) fn new(locks: Locks, costs: Costs, task: Task) -> Self {
        let batches = task.faults.div_ceil(PCP_BATCH).max(1);
        Process {
            locks,
            costs,
            task,
            phase: Phase::Exec,
            batch: 0,
            batches,
            loose: 0,
            opened: 0,
            freed: 0,
            undivided: 0,
            steps: Vec::with_capacity(16),
        }
    }

    /// It is somewhere in its work already.
    pub(super) fn skip(&mut self, rng: &mut impl Rng) {
        self.phase = Phase::Work;
        self.batch = rng.next_u64() % self.batches;
        self.opened = self.task.opens * self.batch / self.batches;
    }

    /// The next step; `None` when the process has nothing left but to exit.
    pub(super) fn next(&mut self, rng: &mut impl Rng, metrics: &mut dyn Metrics) -> Option<Step> {
        while self.steps.is_empty() && self.phase != Phase::Done {
            self.refill(rng, metrics);
            self.steps.reverse();
        }
        self.steps.pop()
    }

    fn locked(&mut self, lock: ObjId, ns: Nanos) {
        self.steps.push(Step::Locked(lock, ns, 0));
    }

    /// `pages` move between the zone and a per-CPU list.
    fn zone(&mut self, pages: u64) {
        let (hold, lines) = (pages * self.costs.zone_page, pages * self.costs.zone_lines);
        if hold + lines > 0 {
            self.steps.push(Step::Locked(self.locks.zone, hold, lines as u32));
        }
    }

    fn lru(&mut self, pages: u64, lines: u32) {
        self.steps.push(Step::Locked(self.locks.lru, pages * LRU_PAGE_NS, lines));
    }

    fn refill(&mut self, rng: &mut impl Rng, metrics: &mut dyn Metrics) {
        match self.phase {
            Phase::Exec => {
                self.steps.push(Step::Kernel(EXEC_NS));
                for _ in 0..MAPPED_FILES {
                    self.locked(self.locks.i_mmap, I_MMAP_NS);
                }
                self.phase = Phase::Work;
            }
            Phase::Work if self.batch == self.batches => {
                for _ in 0..MAPPED_FILES {
                    self.locked(self.locks.i_mmap, I_MMAP_NS);
                }
                self.phase = Phase::Teardown;
            }
            Phase::Work => self.work(rng, metrics),
            Phase::Teardown if self.freed == self.task.faults => self.phase = Phase::Done,
            Phase::Teardown => {
                let pages = (self.task.faults - self.freed).min(PCP_BATCH);
                self.freed += pages;
                self.steps.push(Step::Kernel(pages * FREE_PAGE_NS));
                self.lru(pages, LRU_LINES + LRU_NEIGHBOURS);
                self.zone(pages);
            }
            Phase::Done => {}
        }
    }

    /// Computing until a per-CPU list's worth of pages has been touched, their faults, and the files opened meanwhile.
    fn work(&mut self, rng: &mut impl Rng, metrics: &mut dyn Metrics) {
        let (i, n) = (self.batch, self.batches);
        self.batch += 1;
        let part = |total: u64| total * (i + 1) / n - total * i / n;
        // Half to one and a half: bursts are not all alike.
        let run = part(self.task.compute) * (512 + rng.next_u64() % 1024) / 1024;
        let pages = part(self.task.faults);
        let opens = part(self.task.opens);
        self.steps.push(Step::Run(run));
        let kernel = pages * self.costs.fault + opens * self.costs.open;
        if kernel > 0 {
            self.steps.push(Step::Kernel(kernel));
        }
        self.zone(pages);
        self.loose += pages;
        while self.loose >= PAGEVEC {
            self.loose -= PAGEVEC;
            self.lru(PAGEVEC, LRU_LINES);
        }
        let before = self.opened;
        self.opened += opens;
        let sections = self.opened / OPENS_PER_DCACHE - before / OPENS_PER_DCACHE;
        // A process that opens much and touches little must not grow the list.
        if sections > 4 {
            self.locked(self.locks.dcache, sections * OPENS_PER_DCACHE * DCACHE_NS);
        } else {
            (0..sections).for_each(|_| self.locked(self.locks.dcache, OPENS_PER_DCACHE * DCACHE_NS));
        }
        if self.opened / OPENS_PER_SLAB > before / OPENS_PER_SLAB {
            self.locked(self.locks.slab, SLAB_NS);
        }
        let done = part(self.task.share);
        metrics.count("unit_millionths", done);
        self.undivided += done * 1_000;
        metrics.count("build_billionths", self.undivided / self.costs.units);
        self.undivided %= self.costs.units;
        metrics.count("faults", pages);
    }
}
