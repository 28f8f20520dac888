//! sembench: many threads that sleep, each on a semaphore of its own, and a waker that wakes them by the hundred.
//!
//! After Chris Mason's benchmark of that name, by which the wake-up patches of 2010 and 2011 were judged, as it is described in
//! public: `sembench -t THREADS -w WAKENUM -o OP` runs so many threads, wakes WAKENUM of them at a time, and reports "worker
//! burns per second"; OP 0 is System V semaphores, 2 is futexes (its usage text). "Batched wakeup. One process will wake
//! hundreds or more at once that are each waiting on their own semaphore" (Mason, 2010-05-16). Its code was not used.
//!
//! * **futex**: a system call a wake-up; no lock is shared by two threads.
//! * **ipc**: all semaphores are in one array, whose lock every wait takes, and every post: one system call posts 64 (SEMOPM as
//!   the published runs set it). The wake-ups come after the lock is released, as they have since 2010.
//!
//! The list of those that wait costs nothing here but the semaphores' own operations. Posting 64 semaphores of the array is
//! one hold of its lock here, but 64 system calls' entries: there is no operation on several semaphores.

use std::sync::{Arc, Mutex, PoisonError};

use contend_platform::Nanos;
use contend_sim::program::{Cx, ObjId, ObjectKind, Op, Program, TaskSpec, Workload};

use super::{DURATION_MS_MAX, NS_PER_MS, only, up_to};
use crate::spec::keys::spec;
use crate::spec::value::words;
use crate::spec::{Build, SpecError, SpecProblem, WorkloadError};

words! {
    /// How the threads sleep.
    SembenchOp {
        /// A futex each (-o 2).
        Futex = "futex",
        /// A System V semaphore each, all in one array (-o 0).
        Ipc = "ipc",
    }
}

spec! {
    /// Threads that sleep, each on its own semaphore, and a waker that wakes many at a time, after sembench. Runs until the
    /// duration is over. Counts: burns (a thread woke up, and did its work).
    pub struct Sembench = "sembench" {
        /// Wakers, each with threads of its own. Default: one, as it is described.
        wakers: u64 [1..=10_000] = 1, "tasks";
        /// Threads of each waker (-t). Default: as in the published runs.
        threads: u64 [1..=1_000_000] = 2048, "tasks";
        /// Threads that a waker wakes at a time (-w), 0 for all; it sleeps until so many wait. Default: as in the published
        /// runs.
        batch: u64 [0..=1_000_000] = 1900, "tasks";
        /// "futex" (-o 2) or "ipc" (-o 0). Default: as in the published runs.
        op: SembenchOp [()] = SembenchOp::Ipc, "";
        /// Work of a thread each time that it was woken. Default: an estimate, a short loop.
        burn_ns: u64 [0..=1_000_000_000] = 1000, "ns";
        /// Random addition to that work, from none to this. Default: an estimate; no two bursts take the same time.
        jitter_pct: u64 [0..=1000] = 25, "%";
        /// How long the array's lock is held for each semaphore of a system call (op = "ipc"). Default: an estimate.
        array_ns: u64 [0..=1_000_000] = 50, "ns";
        /// The wakers on the first CPUs, the threads on the others in turn. Default: free to move, as it is described.
        pin: bool [()] = false, "";
        /// How long (-r). Default: the published runs' 30 s.
        duration_ms: u64 [1..=DURATION_MS_MAX] = 30_000, "ms";
    }
}

/// Semaphores that one system call posts: SEMOPM of the published runs (`4096 32000 64 128` in /proc/sys/kernel/sem).
const SEMOPM: usize = 64;

/// Who waits for a waker.
#[derive(Default)]
struct Waiting {
    /// In order of arrival.
    queue: std::collections::VecDeque<u32>,
    /// The waker has been called, and has not gone to sleep since.
    called: bool,
}

type Shared = Arc<Mutex<Waiting>>;

fn look(shared: &Shared) -> std::sync::MutexGuard<'_, Waiting> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

struct Waker {
    waiting: Shared,
    bell: ObjId,
    array: Option<(ObjId, Nanos)>,
    /// The first thread's semaphore; the others follow.
    first: u32,
    batch: usize,
    /// Left to wake in this pass.
    left: usize,
    /// Left of the system call under way.
    posted: usize,
}

impl Program for Waker {
    fn next(&mut self, _: &mut Cx<'_>) -> Op {
        let mut waiting = look(&self.waiting);
        if self.left == 0 {
            if waiting.queue.len() < self.batch {
                waiting.called = false;
                return Op::SemWait(self.bell);
            }
            self.left = self.batch;
            self.posted = 0;
        }
        if let (Some((array, ns)), 0) = (self.array, self.posted) {
            self.posted = self.left.min(SEMOPM);
            return Op::kernel_lock(array, ns * self.posted as Nanos);
        }
        self.posted = self.posted.saturating_sub(1);
        self.left -= 1;
        let thread = waiting.queue.pop_front().expect("a batch was there, and nobody else takes of it");
        Op::SemPost(ObjId(self.first + thread), 1)
    }
}

struct Thread {
    waiting: Shared,
    bell: ObjId,
    own: ObjId,
    array: Option<(ObjId, Nanos)>,
    number: u32,
    batch: usize,
    burn: Nanos,
    jitter: Nanos,
    step: Step,
}

#[derive(Clone, Copy)]
enum Step {
    Join,
    Array,
    Wait,
    Burn,
    Done,
}

impl Program for Thread {
    fn next(&mut self, cx: &mut Cx<'_>) -> Op {
        loop {
            match self.step {
                Step::Join => {
                    self.step = Step::Array;
                    let mut waiting = look(&self.waiting);
                    waiting.queue.push_back(self.number);
                    if waiting.queue.len() >= self.batch && !waiting.called {
                        waiting.called = true;
                        return Op::SemPost(self.bell, 1);
                    }
                }
                Step::Array => {
                    self.step = Step::Wait;
                    if let Some((array, ns)) = self.array {
                        return Op::kernel_lock(array, ns);
                    }
                }
                Step::Wait => {
                    self.step = Step::Burn;
                    return Op::SemWait(self.own);
                }
                Step::Burn => {
                    self.step = Step::Done;
                    if self.burn > 0 {
                        return Op::Run(self.burn + up_to(self.jitter, cx.rng));
                    }
                }
                Step::Done => {
                    self.step = Step::Join;
                    cx.metrics.count("burns", 1);
                }
            }
        }
    }
}

impl Build for Sembench {
    fn tasks(&self) -> u64 {
        self.wakers.saturating_mul(self.threads + 1)
    }

    fn build(&self, w: &mut Workload, nr_cpus: usize) -> Result<(), WorkloadError> {
        let wrong = |key: &str, found: String, right: &str| {
            let problem = SpecProblem::Value { found, right: right.into() };
            Err(SpecError { key: format!("workload.{key}"), span: None, problem }.into())
        };
        if self.batch > self.threads {
            let found = format!("{} at a time of {} threads", self.batch, self.threads);
            return wrong("batch", found, "at most as many as there are threads");
        }
        if self.pin && self.wakers >= nr_cpus as u64 {
            let found = format!("true with {} wakers on {nr_cpus} CPUs", self.wakers);
            return wrong("pin", found, "false, or more CPUs than wakers");
        }
        let wakers = self.wakers as usize;
        let on = |cpu: usize| self.pin.then(|| only(cpu, nr_cpus));
        let mut others = (wakers..nr_cpus).cycle();
        for i in 0..self.wakers {
            let waiting: Shared = Arc::default();
            let semaphore = ObjectKind::Semaphore { initial: 0 };
            let bell = w.object(format!("waker{i}"), semaphore.clone());
            let array = (self.op == SembenchOp::Ipc)
                .then(|| (w.object(format!("array{i}"), ObjectKind::SpinLock), self.array_ns));
            let first = w.objects.len() as u32;
            let batch = if self.batch == 0 { self.threads } else { self.batch } as usize;
            let waker = Waker { waiting: Arc::clone(&waiting), bell, array, first, batch, left: 0, posted: 0 };
            w.task(TaskSpec { affinity: on(i as usize), ..TaskSpec::new(format!("waker{i}"), waker) });
            for t in 0..self.threads {
                let own = w.object(format!("thread{i}.{t}"), semaphore.clone());
                let (waiting, number, burn) = (Arc::clone(&waiting), t as u32, self.burn_ns);
                let jitter = burn * self.jitter_pct / 100;
                let thread = Thread { waiting, bell, own, array, number, batch, burn, jitter, step: Step::Join };
                let affinity = on(others.next().unwrap_or_default());
                w.task(TaskSpec { affinity, ..TaskSpec::new(format!("thread{i}.{t}"), thread) });
            }
        }
        w.horizon = Some(self.duration_ms * NS_PER_MS);
        Ok(())
    }
}
