//! sysbench's OLTP test against a database server on the same machine: client threads, a server thread a connection, and
//! a log that commits in groups.
//!
//! A transaction of sysbench's oltp_read_write with its defaults is 20 statements: BEGIN, 10 point selects, 4 range
//! queries (simple, sum, order, distinct) over 100 rows each, an update of an indexed and one of another column, a
//! delete and an insert, COMMIT (the tool's option list: point_selects 10, four kinds of ranges 1 each, index_updates,
//! non_index_updates and delete_inserts 1 each). Each is a round trip over a local socket.
//!
//! The server's threads meet at short mutexes (one of `MUTEXES` for each statement) and at the log. A commit appends to the
//! log under its mutex. If nobody writes the log, the thread becomes the leader and writes and syncs everything appended
//! so far, without the mutex; else it waits on a condition variable, and finds its record written or leads the next
//! group: one fsync for many commits (MariaDB's page on group commit; PostgreSQL and InnoDB do alike).

use std::sync::{Arc, Mutex, PoisonError};

use contend_platform::{Nanos, Time};
use contend_sim::program::{Cx, ObjId, ObjectKind, Op, Program, TaskSpec, Workload};
use rand::Rng;

use super::{DURATION_MS_MAX, NS_PER_MS, NS_PER_US, STEP_US_MAX, cached};
use crate::spec::keys::spec;
use crate::spec::{Build, WorkloadError};

spec! {
    /// Client threads and a database server on one machine, after sysbench's oltp_read_write against MySQL. Runs until the
    /// duration is over. Counts: transactions, statements, log_writes. Latencies: transaction, commit.
    pub struct Oltp = "oltp" {
        /// Client threads (--threads), each with a connection and a server thread of its own. Default: one.
        threads: u64 [1..=100_000] = 1, "pairs";
        /// CPU work of the server for a statement, the mean of a transaction's 20. Default: an estimate, 20 to 400: a
        /// point select takes some tens of us, a range of 100 rows some hundreds.
        statement_us: u64 [0..=STEP_US_MAX] = 100, "us";
        /// CPU work of the client for a statement. Default: an estimate, 2 to 30: building the query, reading the rows.
        client_us: u64 [0..=STEP_US_MAX] = 10, "us";
        /// Time that a statement, and a commit's append to the log, holds a mutex of the server. Default: an estimate, 100
        /// to 2,000.
        lock_ns: u64 [0..=1_000_000] = 500, "ns";
        /// How long a write and sync of the log take. Default: an estimate, 20 to 1,000: flash with a protected write cache.
        log_us: u64 [0..=STEP_US_MAX] = 100, "us";
        /// Working set of a task, fetched again after a migration. Default: an estimate, at least an L2 of
        /// the time: the code and data that a database touches for a statement are larger.
        working_set_kib: u64 [0..=1_048_576] = 256, "KiB";
        /// How long. Default: 1 s, hundreds of transactions a client.
        duration_ms: u64 [1..=DURATION_MS_MAX] = 1000, "ms";
    }
}

/// The statements of a transaction: work in per cent of the mean, bytes of the answer. Estimates: a range reads 100 rows
/// where a point select reads one, but both are parsed, planned and sent; rows have 120 bytes (column c of sysbench's
/// table), a sum is one number, and answers without rows are short. They average to 100.
const STATEMENTS: [(u64, u32); 20] = {
    const POINT: (u64, u32) = (65, 200);
    [
        (20, 20), // BEGIN
        POINT,
        POINT,
        POINT,
        POINT,
        POINT,
        POINT,
        POINT,
        POINT,
        POINT,
        POINT,
        (165, 12_500), // simple range
        (150, 100),    // sum
        (210, 12_500), // order
        (235, 12_500), // distinct
        (150, 20),     // update of an indexed column
        (120, 20),     // update of another
        (130, 20),     // delete
        (130, 20),     // insert
        (40, 20),      // COMMIT
    ]
};
/// A statement's text. Estimate.
const QUERY_BYTES: u32 = 100;
/// Send buffer of a local socket: net.core.wmem_default of x86-64 kernels.
const SOCKET_BYTES: u32 = 212_992;
/// Short mutexes of the server, of which a statement takes one. Estimate: the partitions of a buffer pool or lock table.
const MUTEXES: u32 = 8;

/// The log, guarded by its mutex.
#[derive(Default)]
struct Log {
    /// Records appended, written so far.
    appended: u64,
    written: u64,
    /// A leader writes.
    busy: bool,
}

/// What the server's threads share.
#[derive(Clone)]
struct Shared {
    log: Arc<Mutex<Log>>,
    mutex: ObjId,
    cond: ObjId,
    /// The first of the short mutexes.
    first: u32,
}

#[derive(Clone, Copy)]
enum Ask {
    Work,
    Send,
    Receive,
    Answered,
}

struct Client {
    to: ObjId,
    from: ObjId,
    work: Nanos,
    at: usize,
    started: Time,
    asked: Time,
    step: Ask,
}

impl Program for Client {
    fn next(&mut self, cx: &mut Cx<'_>) -> Op {
        loop {
            match self.step {
                Ask::Work => {
                    self.step = Ask::Send;
                    if self.work > 0 {
                        return Op::Run(self.work);
                    }
                }
                Ask::Send => {
                    self.asked = cx.now;
                    self.step = Ask::Receive;
                    return Op::Write(self.to, QUERY_BYTES);
                }
                Ask::Receive => {
                    self.step = Ask::Answered;
                    return Op::Read(self.from, STATEMENTS[self.at].1);
                }
                Ask::Answered => {
                    self.step = Ask::Work;
                    cx.metrics.count("statements", 1);
                    self.at += 1;
                    if self.at == STATEMENTS.len() {
                        self.at = 0;
                        cx.metrics.count("transactions", 1);
                        cx.metrics.latency("commit", cx.now - self.asked);
                        cx.metrics.latency("transaction", cx.now - self.started);
                        self.started = cx.now;
                    }
                }
            }
        }
    }
}

#[derive(Clone, Copy)]
enum Serve {
    Receive,
    Lock,
    Hold,
    Unlock,
    Work,
    Done,
    Append,
    Appended,
    Check,
    Write,
    Written,
    Release,
    Wake,
    Answer,
}

struct Server {
    shared: Shared,
    to: ObjId,
    from: ObjId,
    statement: Nanos,
    hold: Nanos,
    device: Nanos,
    at: usize,
    mutex: ObjId,
    /// This transaction's record in the log.
    record: u64,
    /// The last record of the group that this thread writes.
    group: u64,
    step: Serve,
}

impl Server {
    fn log(&self) -> std::sync::MutexGuard<'_, Log> {
        self.shared.log.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Program for Server {
    fn next(&mut self, cx: &mut Cx<'_>) -> Op {
        loop {
            match self.step {
                Serve::Receive => {
                    self.step = Serve::Lock;
                    return Op::Read(self.from, QUERY_BYTES);
                }
                Serve::Lock => {
                    self.mutex = ObjId(self.shared.first + cx.rng.next_u32() % MUTEXES);
                    self.step = Serve::Hold;
                    return Op::Lock(self.mutex);
                }
                Serve::Hold => {
                    self.step = Serve::Unlock;
                    if self.hold > 0 {
                        return Op::Run(self.hold);
                    }
                }
                Serve::Unlock => {
                    self.step = Serve::Work;
                    return Op::Unlock(self.mutex);
                }
                Serve::Work => {
                    self.step = Serve::Done;
                    let work = self.statement * STATEMENTS[self.at].0 / 100;
                    if work > 0 {
                        return Op::Run(work);
                    }
                }
                Serve::Done => {
                    if self.at + 1 < STATEMENTS.len() {
                        self.step = Serve::Answer;
                        continue;
                    }
                    self.step = Serve::Append;
                    return Op::Lock(self.shared.mutex);
                }
                // From here on the log's mutex is held.
                Serve::Append => {
                    let mut log = self.log();
                    log.appended += 1;
                    let record = log.appended;
                    drop(log);
                    self.record = record;
                    self.step = Serve::Appended;
                    if self.hold > 0 {
                        return Op::Run(self.hold);
                    }
                }
                Serve::Appended => self.step = Serve::Check,
                Serve::Check => {
                    let mut log = self.log();
                    if log.written >= self.record {
                        drop(log);
                        self.step = Serve::Answer;
                        return Op::Unlock(self.shared.mutex);
                    }
                    if log.busy {
                        return Op::CondWait { cond: self.shared.cond, mutex: self.shared.mutex };
                    }
                    log.busy = true;
                    let group = log.appended;
                    drop(log);
                    self.group = group;
                    self.step = Serve::Write;
                    return Op::Unlock(self.shared.mutex);
                }
                // The leader, without the mutex.
                Serve::Write => {
                    self.step = Serve::Written;
                    return Op::Sleep(self.device);
                }
                Serve::Written => {
                    self.step = Serve::Release;
                    return Op::Lock(self.shared.mutex);
                }
                Serve::Release => {
                    cx.metrics.count("log_writes", 1);
                    let mut log = self.log();
                    log.written = self.group;
                    log.busy = false;
                    drop(log);
                    self.step = Serve::Wake;
                    return Op::Unlock(self.shared.mutex);
                }
                Serve::Wake => {
                    self.step = Serve::Answer;
                    return Op::CondBroadcast(self.shared.cond);
                }
                Serve::Answer => {
                    let bytes = STATEMENTS[self.at].1;
                    self.at = (self.at + 1) % STATEMENTS.len();
                    self.step = Serve::Receive;
                    return Op::Write(self.to, bytes);
                }
            }
        }
    }
}

impl Build for Oltp {
    fn tasks(&self) -> u64 {
        self.threads * 2
    }

    fn build(&self, w: &mut Workload, _: usize) -> Result<(), WorkloadError> {
        let mutex = w.object("log", ObjectKind::Mutex);
        let cond = w.object("log-written", ObjectKind::Cond);
        let first = w.objects.len() as u32;
        for i in 0..MUTEXES {
            w.object(format!("server{i}"), ObjectKind::Mutex);
        }
        let shared = Shared { log: Arc::default(), mutex, cond, first };
        for i in 0..self.threads {
            let there = w.object(format!("query{i}"), ObjectKind::Socket { capacity: SOCKET_BYTES, lines: 0 });
            let back = w.object(format!("answer{i}"), ObjectKind::Socket { capacity: SOCKET_BYTES, lines: 0 });
            let work = self.client_us * NS_PER_US;
            let client = Client { to: there, from: back, work, at: 0, started: 0, asked: 0, step: Ask::Work };
            w.task(TaskSpec::new(format!("sysbench{i}"), client));
            let server = Server {
                shared: shared.clone(),
                to: back,
                from: there,
                statement: self.statement_us * NS_PER_US,
                hold: self.lock_ns,
                device: self.log_us * NS_PER_US,
                at: 0,
                mutex,
                record: 0,
                group: 0,
                step: Serve::Receive,
            };
            w.task(cached(format!("mysqld{i}"), server, self.working_set_kib));
        }
        w.horizon = Some(self.duration_ms * NS_PER_MS);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::STATEMENTS;

    #[test]
    fn statements_average_to_the_mean() {
        assert_eq!(STATEMENTS.iter().map(|s| s.0).sum::<u64>(), 100 * STATEMENTS.len() as u64);
    }
}
