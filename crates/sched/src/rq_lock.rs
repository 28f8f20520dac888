//! The run-queue lock: one of the lock algorithms, with the counts that `perf lock contention` shows.
//!
//! Counters are plain atomics without simulated cost: they are the observer's, not the machine's. They are written only
//! by the holder, so a relaxed load and store is enough.

use crate::features::RqLockKind;
use contend_locks::nodes::Link;
use contend_locks::{MakeLock, Pool, Queued, RawLock, Ticket};
use contend_platform::{Account, Line, Nanos, Platform, Time};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

enum Algorithm<P: Platform> {
    Ticket(Ticket<P>),
    Queued(Queued<P>),
}

/// What happened at a lock.
#[derive(Debug, Default)]
pub struct LockCounters {
    acquisitions: AtomicU64,
    contended: AtomicU64,
    wait_ns: AtomicU64,
    wait_ns_max: AtomicU64,
    hold_ns: AtomicU64,
    since: AtomicU64,
}

/// A snapshot of [`LockCounters`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LockStats {
    /// Times taken.
    pub acquisitions: u64,
    /// Times it was not free when asked for.
    pub contended: u64,
    /// Total time waited by contended acquisitions, in ns.
    pub wait_ns: Nanos,
    /// Longest such wait.
    pub wait_ns_max: Nanos,
    /// Total time held, in ns.
    pub hold_ns: Nanos,
}

fn add(counter: &AtomicU64, n: u64) {
    counter.store(counter.load(Relaxed) + n, Relaxed);
}

impl LockCounters {
    /// The lock was taken at `now` after an attempt that began at `asked`.
    pub fn taken(&self, asked: Time, now: Time, contended: bool) {
        add(&self.acquisitions, 1);
        if contended {
            let waited = now - asked;
            add(&self.contended, 1);
            add(&self.wait_ns, waited);
            self.wait_ns_max.store(self.wait_ns_max.load(Relaxed).max(waited), Relaxed);
        }
        self.since.store(now, Relaxed);
    }
    /// It is about to be released.
    pub fn released(&self, now: Time) {
        add(&self.hold_ns, now.saturating_sub(self.since.load(Relaxed)));
    }
    /// The counts so far.
    pub fn get(&self) -> LockStats {
        LockStats {
            acquisitions: self.acquisitions.load(Relaxed),
            contended: self.contended.load(Relaxed),
            wait_ns: self.wait_ns.load(Relaxed),
            wait_ns_max: self.wait_ns_max.load(Relaxed),
            hold_ns: self.hold_ns.load(Relaxed),
        }
    }
}

/// A kernel spinlock with counters; taken with interrupts off.
pub struct KernelLock<P: Platform> {
    algorithm: Algorithm<P>,
    counters: LockCounters,
    account: Account,
}

/// What kernel locks are made from: the nodes that queued locks share.
pub struct LockFactory<P: Platform> {
    pool: Arc<Pool<P, Link<P>>>,
    no_nodes: Arc<()>,
    kind: RqLockKind,
}

impl<P: Platform> LockFactory<P> {
    /// A factory for a machine of `cpus` CPUs.
    pub fn new(p: &P, cpus: usize, kind: RqLockKind) -> Self {
        LockFactory { pool: Arc::new(Pool::new(p, cpus)), no_nodes: Arc::new(()), kind }
    }
    /// A free lock on `line` (with what it guards, or alone) whose waiters book their time to `account`.
    pub fn create(&self, p: &P, line: Line, account: Account) -> KernelLock<P> {
        let algorithm = match self.kind {
            RqLockKind::Ticket => Algorithm::Ticket(Ticket::on_line(p, line, &self.no_nodes)),
            RqLockKind::Queued => Algorithm::Queued(Queued::on_line(p, line, &self.pool)),
        };
        KernelLock { algorithm, counters: LockCounters::default(), account }
    }
}

impl<P: Platform> KernelLock<P> {
    /// Take the lock. Waiting for it, and only that, is booked to the lock's account.
    #[inline]
    pub fn lock(&self, p: &P) {
        let asked = p.now();
        let mut before = None;
        let waits = || before = Some(p.enter(self.account));
        let contended = match &self.algorithm {
            Algorithm::Ticket(l) => l.lock_with(p, waits),
            Algorithm::Queued(l) => l.lock_with(p, waits),
        };
        if let Some(before) = before {
            p.enter(before);
        }
        self.counters.taken(asked, p.now(), contended);
    }
    /// Take the lock if it is free.
    pub fn try_lock(&self, p: &P) -> bool {
        let asked = p.now();
        let got = match &self.algorithm {
            Algorithm::Ticket(l) => l.try_lock(p),
            Algorithm::Queued(l) => l.try_lock(p),
        };
        if got {
            self.counters.taken(asked, p.now(), false);
        }
        got
    }
    /// Release it; the caller holds it.
    #[inline]
    pub fn unlock(&self, p: &P) {
        self.counters.released(p.now());
        match &self.algorithm {
            Algorithm::Ticket(l) => l.unlock(p),
            Algorithm::Queued(l) => l.unlock(p),
        }
    }
    /// Counts so far.
    pub fn stats(&self) -> LockStats {
        self.counters.get()
    }
}
