//! dbench: the file-system part of NetBench, client processes on one local file system.
//!
//! "dbench produces only the filesystem load" (dbench(1)): each client does what a file server would do for one client of
//! NetBench, in a directory of its own. See `netbench` for the mix. The file system of the study is not published; this is
//! one with a journal, as ext4 is documented (kernel.org, ext4 and jbd2: handles, transactions, a commit thread):
//!
//! * Every operation is some CPU work; ReadX and WriteX copy their payload besides.
//! * Operations that change metadata (WriteX allocates blocks) do a part of their work as a handle on the running
//!   transaction: `journal_ns` under a lock that all clients share. It is a spinlock of the kernel, so waiters burn
//!   their CPUs and slow the holder's hardware thread down; its line and the holder's data move from CPU to CPU.
//! * Flush is an fsync: the client joins the running transaction and sleeps. The commit thread takes the transaction over,
//!   works for a moment under the lock, sleeps while the device writes, and wakes all who wait for this transaction. A new
//!   one fills up meanwhile; only one is written at a time.
//!
//! On tmpfs there is no journal: metadata is changed under a lock of the file system (its inodes and counts), Flush does
//! nothing, and nobody sleeps. With `dcache_ns` every operation also holds a lock for what look-ups share, as kernels before
//! 3.12 do for each dentry's reference count.
//!
//! A client's directory is its own, so the mutexes of directories and inodes meet no one else and are left out, as are
//! writeback by other threads and handles that wait for room in the journal.

use std::sync::{Arc, Mutex, PoisonError};

use contend_platform::{Nanos, Time};
use contend_sim::program::{Cx, ObjId, ObjectKind, Op, Program, TaskSpec, Workload};

use super::netbench::{Kind, Operation, draw};
use super::{DURATION_MS_MAX, NS_PER_MS, NS_PER_US, cached};
use crate::spec::keys::spec;
use crate::spec::value::words;
use crate::spec::{Build, WorkloadError};

words! {
    /// The file system.
    FileSystem {
        /// One with a journal, on a device.
        Journal = "journal",
        /// One in memory.
        Tmpfs = "tmpfs",
    }
}

spec! {
    /// Client processes that replay the file-system part of NetBench on a file system with a journal, after dbench. Runs
    /// until the duration is over. Counts: ops, bytes (payload of ReadX and WriteX, the tool's throughput), commits,
    /// flushes. Latencies: op, flush.
    pub struct Dbench = "dbench" {
        /// Client processes. Default: one.
        clients: u64 [1..=100_000] = 1, "tasks";
        /// CPU work of each operation, copying not included. Default: an estimate, 1,000 to 10,000: three or four system
        /// calls with a path look-up, and the tool's own code.
        work_ns: u64 [0..=10_000_000] = 4000, "ns";
        /// What an operation that changes metadata does under the lock that all clients share. Default: an estimate, 500
        /// to 20,000: start and stop of a handle, bitmaps and lists of the file system.
        journal_ns: u64 [0..=10_000_000] = 2000, "ns";
        /// CPU work to copy 1 KiB between the page cache and the client. Default: copy_kib of the machine files.
        copy_ns: u64 [0..=1_000_000] = 80, "ns/KiB";
        /// "journal" or "tmpfs": without a journal, where Flush does nothing and journal_ns is the time under the lock of the
        /// file system's inodes. Default: the study idle-cpu-search-2019's, assumed.
        file_system: FileSystem [()] = FileSystem::Journal, "";
        /// How long each operation holds a lock for what its look-ups share with all clients: dentries of common
        /// directories, the list of inodes. Default: none; an estimate for kernels before 3.12 is 200 to 1,000.
        dcache_ns: u64 [0..=10_000_000] = 0, "ns";
        /// How long the device takes to write a transaction. Default: an estimate, 50 to 1,000: flash with a protected
        /// write cache; other devices take milliseconds.
        device_us: u64 [0..=10_000_000] = 200, "us";
        /// Working set of a task, fetched again after a migration. Default: an estimate, tbench's.
        working_set_kib: u64 [0..=1_048_576] = 32, "KiB";
        /// How long. Default: 1 s, tens of thousands of operations a client.
        duration_ms: u64 [1..=DURATION_MS_MAX] = 1000, "ms";
    }
}

/// Wait queues that transactions use in turn: so many that all who were woken have run before theirs is used again, and
/// nobody takes the post that another was woken by.
const QUEUES: u64 = 64;

/// The journal's transactions, by number.
#[derive(Default)]
struct Journal {
    /// The one that handles join.
    running: u64,
    /// Who waits for the running one.
    waiters: u32,
}

type Shared = Arc<Mutex<Journal>>;

/// The journal's objects.
#[derive(Clone, Copy)]
struct Objects {
    lock: ObjId,
    /// Rung once for each transaction that somebody waits for.
    bell: ObjId,
    /// The first of the transactions' wait queues; the others follow.
    written: u32,
    dcache: Option<ObjId>,
}

impl Objects {
    fn written(&self, transaction: u64) -> ObjId {
        ObjId(self.written + (transaction % QUEUES) as u32)
    }
}

#[derive(Clone, Copy)]
enum Step {
    Work,
    Look,
    Change,
    Journal,
    Join,
    Wait,
    Done,
}

struct Client {
    journal: Shared,
    objects: Objects,
    work: Nanos,
    section: Nanos,
    look: Nanos,
    copy: Nanos,
    file_system: FileSystem,
    operation: Operation,
    /// The transaction that a Flush waits for.
    transaction: u64,
    started: Time,
    step: Step,
}

impl Program for Client {
    fn next(&mut self, cx: &mut Cx<'_>) -> Op {
        loop {
            match self.step {
                Step::Work => {
                    self.operation = draw(cx.rng);
                    self.started = cx.now;
                    self.step = Step::Look;
                    return Op::Syscall(self.work + self.copy * u64::from(self.operation.bytes) / 1024);
                }
                Step::Look => {
                    self.step = Step::Change;
                    if let Some(dcache) = self.objects.dcache {
                        return Op::kernel_lock(dcache, self.look);
                    }
                }
                Step::Change => {
                    self.step = match (self.operation.kind, self.file_system) {
                        (Kind::Look | Kind::Read, _) | (Kind::Flush, FileSystem::Tmpfs) => Step::Done,
                        (Kind::Change | Kind::Write, _) => Step::Journal,
                        (Kind::Flush, FileSystem::Journal) => Step::Join,
                    };
                }
                Step::Journal => {
                    self.step = Step::Done;
                    return Op::kernel_lock(self.objects.lock, self.section);
                }
                Step::Join => {
                    let mut journal = self.journal.lock().unwrap_or_else(PoisonError::into_inner);
                    self.transaction = journal.running;
                    journal.waiters += 1;
                    self.step = Step::Wait;
                    if journal.waiters == 1 {
                        return Op::SemPost(self.objects.bell, 1);
                    }
                }
                Step::Wait => {
                    self.step = Step::Done;
                    return Op::SemWait(self.objects.written(self.transaction));
                }
                Step::Done => {
                    cx.metrics.count("ops", 1);
                    if self.operation.bytes > 0 {
                        cx.metrics.count("bytes", self.operation.bytes.into());
                    }
                    let took = cx.now - self.started;
                    cx.metrics.latency("op", took);
                    if self.operation.kind == Kind::Flush {
                        cx.metrics.count("flushes", 1);
                        cx.metrics.latency("flush", took);
                    }
                    self.step = Step::Work;
                }
            }
        }
    }
}

#[derive(Clone, Copy)]
enum Commit {
    Wait,
    Take,
    Device,
    Wake,
}

struct Committer {
    journal: Shared,
    objects: Objects,
    section: Nanos,
    device: Nanos,
    transaction: u64,
    waiters: u32,
    step: Commit,
}

impl Program for Committer {
    fn next(&mut self, cx: &mut Cx<'_>) -> Op {
        match self.step {
            Commit::Wait => {
                self.step = Commit::Take;
                Op::SemWait(self.objects.bell)
            }
            Commit::Take => {
                {
                    let mut journal = self.journal.lock().unwrap_or_else(PoisonError::into_inner);
                    self.transaction = journal.running;
                    self.waiters = std::mem::take(&mut journal.waiters);
                    journal.running += 1;
                }
                assert!(self.waiters > 0, "the bell rings for a transaction that somebody waits for");
                self.step = Commit::Device;
                Op::kernel_lock(self.objects.lock, self.section)
            }
            Commit::Device => {
                self.step = Commit::Wake;
                Op::Sleep(self.device)
            }
            Commit::Wake => {
                cx.metrics.count("commits", 1);
                self.step = Commit::Wait;
                Op::SemPost(self.objects.written(self.transaction), self.waiters)
            }
        }
    }
}

impl Build for Dbench {
    fn tasks(&self) -> u64 {
        self.clients + 1
    }

    fn build(&self, w: &mut Workload, _: usize) -> Result<(), WorkloadError> {
        let semaphore = ObjectKind::Semaphore { initial: 0 };
        let has_journal = self.file_system == FileSystem::Journal;
        let lock = w.object(if has_journal { "journal" } else { "inodes" }, ObjectKind::SpinLock);
        let bell = w.object("commit", semaphore.clone());
        let mut objects = Objects { lock, bell, written: w.objects.len() as u32, dcache: None };
        for i in 0..QUEUES {
            w.object(format!("written{i}"), semaphore.clone());
        }
        objects.dcache = (self.dcache_ns > 0).then(|| w.object("dcache", ObjectKind::SpinLock));
        let journal = Shared::default();
        let section = self.journal_ns;
        let committer = Committer {
            journal: Arc::clone(&journal),
            objects,
            section,
            device: self.device_us * NS_PER_US,
            transaction: 0,
            waiters: 0,
            step: Commit::Wait,
        };
        if has_journal {
            w.task(TaskSpec::new("jbd2", committer));
        }
        for i in 0..self.clients {
            let client = Client {
                journal: Arc::clone(&journal),
                objects,
                work: self.work_ns,
                section,
                look: self.dcache_ns,
                copy: self.copy_ns,
                file_system: self.file_system,
                operation: Operation { kind: Kind::Look, bytes: 0 },
                transaction: 0,
                started: 0,
                step: Step::Work,
            };
            w.task(cached(format!("dbench{i}"), client, self.working_set_kib));
        }
        w.horizon = Some(self.duration_ms * NS_PER_MS);
        Ok(())
    }
}
