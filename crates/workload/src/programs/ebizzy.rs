//! ebizzy: threads that allocate large chunks, fill them and search in them, after the benchmark of that name.
//!
//! "ebizzy is designed to generate a workload resembling common web application server workloads. It is highly threaded, has a
//! large in-memory working set, and allocates and deallocates memory frequently" (its README). Each thread, again and again: takes one of
//! the chunks, allocates as much, copies it, searches a number in it by bisection, frees it. A chunk is larger than malloc keeps, so
//! it is mapped, faulted in page by page, and unmapped:
//!
//! * mmap and munmap change the process's areas: `mmap_sem`, which all threads share. It is a mutex here: changes exclude one
//!   another, but page faults (its readers) neither wait for them nor hold them up.
//! * Each fault reads `mmap_sem`, which moves its line; the zone's lock is taken once for 31 pages, as in `kernel_build`.
//! * munmap flushes: every other CPU that runs a thread of the process is interrupted and the caller spins until all have
//!   answered (`Op::Shootdown`), with `mmap_sem` held, then gives the pages back.

use contend_platform::Nanos;
use contend_sim::program::{Cx, ObjId, ObjectKind, Op, Program, Workload};

use super::kernel_build::PCP_BATCH;
use super::{DURATION_MS_MAX, NS_PER_MS, cached, up_to};
use crate::spec::keys::spec;
use crate::spec::{Build, WorkloadError};

spec! {
    /// Threads of one process that map, fill, search and unmap large chunks, after ebizzy. Runs until the duration is over.
    /// Counts: records (chunks searched: the tool's result), faults. Latencies: record, unmap.
    pub struct Ebizzy = "ebizzy" {
        /// Threads (-t). Default: no machine's; the tool takes twice the number of CPUs.
        threads: u64 [1..=10_000] = 16, "tasks";
        /// Size of a chunk (-s). Default: the tool's 512 KiB, from memory.
        chunk_kib: u64 [4..=1_048_576] = 512, "KiB";
        /// Time to copy 1 KiB of a chunk, page faults not included. Default: copy_kib of the machine files.
        copy_ns: u64 [0..=1_000_000] = 80, "ns/KiB";
        /// Time to search in a chunk. Default: an estimate: 16 steps of a bisection, most of them in the caches.
        search_ns: u64 [0..=100_000_000] = 1_000, "ns";
        /// Time of a page fault without the visible locks. Default: kernel-build's estimate.
        fault_ns: u64 [0..=1_000_000] = 600, "ns";
        /// How long the zone's lock is held for each page, 31 at a time, beside its lines. Default: kernel-build's estimate.
        zone_page_ns: u64 [0..=100_000] = 15, "ns";
        /// Cache lines of each such page that come from the CPU that held the zone's lock last. Default: kernel-build's.
        zone_page_lines: u64 [0..=100] = 2, "lines";
        /// How long mmap changes the process's areas. Default: an estimate, 500 to 5,000.
        mmap_ns: u64 [0..=10_000_000] = 2_000, "ns";
        /// How long munmap takes for each page besides the visible locks and the flush, areas locked. Default: an estimate.
        unmap_page_ns: u64 [0..=100_000] = 100, "ns";
        /// How long each page fault holds up the line of mmap_sem that all threads count themselves on. Default: an estimate,
        /// 20 to 300: two atomic instructions, the line not at hand.
        fault_sem_ns: u64 [0..=1_000_000] = 50, "ns";
        /// Working set of a thread, fetched again after a migration. Default: an estimate: the chunk is new each time.
        working_set_kib: u64 [0..=1_048_576] = 64, "KiB";
        /// How long (-S). Default: 1 s; the tool's are 10.
        duration_ms: u64 [1..=DURATION_MS_MAX] = 1_000, "ms";
    }
}

/// Size of a page.
const PAGE_KIB: u64 = 4;

#[derive(Clone, Copy)]
enum Step {
    Join,
    LockMap,
    Map,
    UnlockMap,
    Copy,
    Fault,
    Sem,
    Zone,
    Search,
    LockUnmap,
    Unmap,
    Flush,
    Free,
    FreeZone,
    UnlockUnmap,
}

struct Searcher {
    spec: Ebizzy,
    space: ObjId,
    mmap_sem: ObjId,
    count: ObjId,
    zone: ObjId,
    pages: u64,
    /// Pages of the chunk that are there.
    mapped: u64,
    /// Pages of the batch under way.
    batch: u64,
    began: Nanos,
    unmapped: Nanos,
    step: Step,
}

impl Searcher {
    /// The batch's pages move between the zone and a per-CPU list.
    fn zone_section(&self) -> Op {
        let lines = (self.batch * self.spec.zone_page_lines) as u32;
        Op::KernelLock { lock: self.zone, hold: self.batch * self.spec.zone_page_ns, lines }
    }
}

impl Program for Searcher {
    fn next(&mut self, cx: &mut Cx<'_>) -> Op {
        loop {
            match self.step {
                Step::Join => {
                    self.step = Step::LockMap;
                    return Op::Join(self.space);
                }
                Step::LockMap => {
                    self.began = cx.now;
                    self.step = Step::Map;
                    return Op::Lock(self.mmap_sem);
                }
                Step::Map => {
                    self.step = Step::UnlockMap;
                    return Op::Syscall(self.spec.mmap_ns);
                }
                Step::UnlockMap => {
                    self.step = Step::Copy;
                    return Op::Unlock(self.mmap_sem);
                }
                Step::Copy if self.mapped == self.pages => self.step = Step::Search,
                Step::Copy => {
                    self.batch = (self.pages - self.mapped).min(PCP_BATCH);
                    self.mapped += self.batch;
                    self.step = Step::Fault;
                    return Op::Run(self.batch * PAGE_KIB * self.spec.copy_ns);
                }
                Step::Fault => {
                    self.step = Step::Sem;
                    cx.metrics.count("faults", self.batch);
                    return Op::Syscall(self.batch * self.spec.fault_ns);
                }
                Step::Sem => {
                    self.step = Step::Zone;
                    if self.spec.fault_sem_ns > 0 {
                        return Op::kernel_lock(self.count, self.batch * self.spec.fault_sem_ns);
                    }
                }
                Step::Zone => {
                    self.step = Step::Copy;
                    return self.zone_section();
                }
                Step::Search => {
                    self.step = Step::LockUnmap;
                    // Half to one and a half.
                    let search = self.spec.search_ns;
                    return Op::Run(search / 2 + up_to(search, cx.rng));
                }
                Step::LockUnmap => {
                    self.unmapped = cx.now;
                    self.step = Step::Unmap;
                    return Op::Lock(self.mmap_sem);
                }
                Step::Unmap => {
                    self.step = Step::Flush;
                    return Op::Syscall(self.pages * self.spec.unmap_page_ns);
                }
                Step::Flush => {
                    self.step = Step::Free;
                    return Op::Shootdown;
                }
                Step::Free if self.mapped == 0 => self.step = Step::UnlockUnmap,
                Step::Free => {
                    self.batch = self.mapped.min(PCP_BATCH);
                    self.mapped -= self.batch;
                    self.step = Step::FreeZone;
                }
                Step::FreeZone => {
                    self.step = Step::Free;
                    return self.zone_section();
                }
                Step::UnlockUnmap => {
                    cx.metrics.count("records", 1);
                    cx.metrics.latency("unmap", cx.now - self.unmapped);
                    cx.metrics.latency("record", cx.now - self.began);
                    self.step = Step::LockMap;
                    return Op::Unlock(self.mmap_sem);
                }
            }
        }
    }
}

impl Build for Ebizzy {
    fn tasks(&self) -> u64 {
        self.threads
    }

    fn build(&self, w: &mut Workload, _: usize) -> Result<(), WorkloadError> {
        let space = w.object("ebizzy", ObjectKind::AddressSpace);
        let mmap_sem = w.object("mmap_sem", ObjectKind::Mutex);
        let count = w.object("mmap_sem-count", ObjectKind::SpinLock);
        let zone = w.object("zone", ObjectKind::SpinLock);
        for i in 0..self.threads {
            let searcher = Searcher {
                spec: self.clone(),
                space,
                mmap_sem,
                count,
                zone,
                pages: self.chunk_kib.div_ceil(PAGE_KIB),
                mapped: 0,
                batch: 0,
                began: 0,
                unmapped: 0,
                step: Step::Join,
            };
            w.task(cached(format!("ebizzy{i}"), searcher, self.working_set_kib));
        }
        w.horizon = Some(self.duration_ms * NS_PER_MS);
        Ok(())
    }
}
