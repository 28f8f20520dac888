//! A database with a server process for each user and a log writer, like Oracle's with dedicated servers: the users are on
//! other hosts.
//!
//! The study publishes only throughput relative to the unpatched kernel, and neither schema nor load: nothing here can be
//! fitted. The structure is documented (Oracle's Database Concepts: dedicated server processes, LGWR; Tanel Poder's picture
//! of "log file sync"): a process waits for a call from the network, computes, reads blocks from storage, and at COMMIT
//! posts LGWR and waits; LGWR writes all that is in the log buffer with one write, then posts the sessions that wait, one
//! by one, each on its semaphore. Sessions that commit meanwhile go with the next write.
//!
//! The numbers are assumptions, chosen so that 20 users use somewhat less than a tenth of 88 CPUs and 220 users ask for
//! all: their 3 ms or so of computing beside a busy sibling are two fifths of a transaction's time.

use std::sync::{Arc, Mutex, PoisonError};

use contend_platform::{Nanos, Time};
use contend_sim::program::{Cx, ObjId, ObjectKind, Op, Program, TaskSpec, Workload};
use rand::Rng;

use super::{DURATION_MS_MAX, NS_PER_MS, NS_PER_US, STEP_US_MAX, cached};
use crate::spec::keys::spec;
use crate::spec::{Build, WorkloadError};

spec! {
    /// A server process for each remote user and one log writer, like Oracle with dedicated servers. Runs until the duration
    /// is over. Counts: transactions, calls, log_writes. Latencies: transaction, commit.
    pub struct OltpDedicated = "oltp-dedicated" {
        /// Users. Default: the study's least.
        users: u64 [1..=100_000] = 20, "users";
        /// CPU work of a call, of which a transaction has 10; +-50 % at random, as all times here
        /// but latches. Default: an assumption, 100 to 400: with the other times, 220 users ask for all of 88 CPUs.
        call_us: u64 [0..=STEP_US_MAX] = 200, "us";
        /// Network and think time before a call. Default: an assumption, 100 to 500: a round trip in a data centre and the
        /// client's work.
        network_us: u64 [0..=STEP_US_MAX] = 250, "us";
        /// Wait for a block from storage, which 3 calls of a transaction do. Default: an assumption, 100 to 1,000: flash;
        /// disks take 5,000.
        io_us: u64 [0..=STEP_US_MAX] = 400, "us";
        /// How long a write of the log takes. Default: an assumption, 100 to 1,000: flash behind a controller; up to 2,000
        /// is called good (Quest, Log File Sync / Write Waits).
        log_us: u64 [0..=STEP_US_MAX] = 300, "us";
        /// Time that a call, and a commit, holds a latch. Default: an assumption, 100 to 2,000.
        latch_ns: u64 [0..=1_000_000] = 500, "ns";
        /// Working set of a task, fetched again after a migration. Default: an estimate, at least an
        /// L2 of the time: the code and data that a database touches for a call are larger.
        working_set_kib: u64 [0..=1_048_576] = 256, "KiB";
        /// How long. Default: 1 s, more than a hundred transactions a user.
        duration_ms: u64 [1..=DURATION_MS_MAX] = 1000, "ms";
    }
}

/// Calls of a transaction. Assumption: short transactions, as of TPC-C.
const CALLS: u32 = 10;
/// Every third call reads a block that is not cached. Assumption.
const READ_EVERY: u32 = 3;
/// Latches, of which a call takes one. Assumption: hot ones among many.
const LATCHES: u32 = 8;
/// What LGWR computes for a write. Assumption.
const WRITE_NS: Nanos = 20_000;

/// The log buffer.
#[derive(Default)]
struct Log {
    /// Sessions whose commits are to be written.
    pending: Vec<u32>,
    /// LGWR has been posted since it last took them.
    posted: bool,
}

type Shared = Arc<Mutex<Log>>;

/// A time of this mean, +-50 %.
fn about(rng: &mut impl Rng, mean: Nanos) -> Nanos {
    mean / 2 + rng.next_u64() % (mean + 1)
}

#[derive(Clone, Copy)]
enum Step {
    Network,
    Latch,
    Hold,
    Release,
    Compute,
    Storage,
    Called,
    Append,
    Appended,
    Logged,
    Post,
    Wait,
    Committed,
}

struct Session {
    log: Shared,
    number: u32,
    own: ObjId,
    lgwr: ObjId,
    /// The log buffer's latch; the others follow it.
    latch: ObjId,
    taken: ObjId,
    times: OltpDedicated,
    /// Calls of this transaction so far.
    call: u32,
    started: Time,
    asked: Time,
    step: Step,
}

impl Program for Session {
    fn next(&mut self, cx: &mut Cx<'_>) -> Op {
        loop {
            match self.step {
                Step::Network => {
                    self.step = Step::Latch;
                    if self.call == 0 {
                        self.started = cx.now;
                    }
                    return Op::Sleep(about(cx.rng, self.times.network_us * NS_PER_US));
                }
                Step::Latch => {
                    self.taken = ObjId(self.latch.0 + 1 + cx.rng.next_u32() % LATCHES);
                    self.step = Step::Hold;
                    return Op::Lock(self.taken);
                }
                Step::Hold => {
                    self.step = Step::Release;
                    return Op::Run(self.times.latch_ns);
                }
                Step::Release => {
                    self.step = Step::Compute;
                    return Op::Unlock(self.taken);
                }
                Step::Compute => {
                    self.call += 1;
                    self.step = if self.call.is_multiple_of(READ_EVERY) { Step::Storage } else { Step::Called };
                    return Op::Run(about(cx.rng, self.times.call_us * NS_PER_US));
                }
                Step::Storage => {
                    self.step = Step::Called;
                    return Op::Sleep(about(cx.rng, self.times.io_us * NS_PER_US));
                }
                Step::Called => {
                    cx.metrics.count("calls", 1);
                    self.step = if self.call == CALLS { Step::Append } else { Step::Network };
                }
                Step::Append => {
                    self.asked = cx.now;
                    self.step = Step::Appended;
                    return Op::Lock(self.latch);
                }
                Step::Appended => {
                    self.step = Step::Logged;
                    return Op::Run(self.times.latch_ns);
                }
                Step::Logged => {
                    self.step = Step::Post;
                    return Op::Unlock(self.latch);
                }
                Step::Post => {
                    self.step = Step::Wait;
                    let mut log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
                    log.pending.push(self.number);
                    if !std::mem::replace(&mut log.posted, true) {
                        return Op::SemPost(self.lgwr, 1);
                    }
                }
                Step::Wait => {
                    self.step = Step::Committed;
                    return Op::SemWait(self.own);
                }
                Step::Committed => {
                    cx.metrics.count("transactions", 1);
                    cx.metrics.latency("commit", cx.now - self.asked);
                    cx.metrics.latency("transaction", cx.now - self.started);
                    self.call = 0;
                    self.step = Step::Network;
                }
            }
        }
    }
}

#[derive(Clone, Copy)]
enum Writer {
    Wait,
    Take,
    Write,
    Written,
    Post,
}

struct Lgwr {
    log: Shared,
    bell: ObjId,
    /// The first session's semaphore; the others follow.
    first: u32,
    device: Nanos,
    /// Sessions to be posted, last first.
    batch: Vec<u32>,
    step: Writer,
}

impl Program for Lgwr {
    fn next(&mut self, cx: &mut Cx<'_>) -> Op {
        loop {
            match self.step {
                Writer::Wait => {
                    self.step = Writer::Take;
                    return Op::SemWait(self.bell);
                }
                Writer::Take => {
                    let mut log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
                    log.posted = false;
                    // The list keeps its memory: no allocation after the first rounds.
                    std::mem::swap(&mut self.batch, &mut log.pending);
                    self.batch.reverse();
                    assert!(!self.batch.is_empty(), "LGWR is posted after a commit");
                    self.step = Writer::Write;
                    return Op::Run(WRITE_NS);
                }
                Writer::Write => {
                    self.step = Writer::Written;
                    return Op::Sleep(about(cx.rng, self.device));
                }
                Writer::Written => {
                    cx.metrics.count("log_writes", 1);
                    self.step = Writer::Post;
                }
                Writer::Post => match self.batch.pop() {
                    Some(session) => return Op::SemPost(ObjId(self.first + session), 1),
                    None => self.step = Writer::Wait,
                },
            }
        }
    }
}

impl Build for OltpDedicated {
    fn tasks(&self) -> u64 {
        self.users + 1
    }

    fn build(&self, w: &mut Workload, _: usize) -> Result<(), WorkloadError> {
        let semaphore = ObjectKind::Semaphore { initial: 0 };
        let lgwr = w.object("lgwr", semaphore.clone());
        let latch = w.object("log-buffer", ObjectKind::Mutex);
        for i in 0..LATCHES {
            w.object(format!("latch{i}"), ObjectKind::Mutex);
        }
        let first = w.objects.len() as u32;
        let log = Shared::default();
        let device = self.log_us * NS_PER_US;
        let writer = Lgwr { log: Arc::clone(&log), bell: lgwr, first, device, batch: Vec::new(), step: Writer::Wait };
        w.task(TaskSpec::new("lgwr", writer));
        for i in 0..self.users {
            let own = w.object(format!("session{i}"), semaphore.clone());
            let session = Session {
                log: Arc::clone(&log),
                number: i as u32,
                own,
                lgwr,
                latch,
                taken: latch,
                times: self.clone(),
                call: 0,
                started: 0,
                asked: 0,
                step: Step::Network,
            };
            w.task(cached(format!("session{i}"), session, self.working_set_kib));
        }
        w.horizon = Some(self.duration_ms * NS_PER_MS);
        Ok(())
    }
}
