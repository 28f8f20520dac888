//! The kernel's spinlocks, run-queue locks among them: one of the lock algorithms, with the counts that `perf lock
//! contention` shows.
//!
//! Which algorithm is a feature of the kernel ([`SpinlockKind`]). Ticket and queued locks, those of kernels on bare
//! machines, are inlined where they are taken; the others, of guests mostly, are out of the way behind one call.
//!
//! Counters are plain atomics without simulated cost: they are the observer's, not the machine's. They are written only
//! by the holder, so a relaxed load and store is enough.

use crate::features::SpinlockKind;
use contend_locks::pv_queued::PvQueuedPool;
use contend_locks::{
    Adaptive, Hybrid, MakeLock, Mcs, PvFeatures, PvQueued, PvTicket, Queued, RawLock, Ticket, UnfairByte, UnfairQueued,
};
use contend_platform::{Account, Line, Nanos, Platform, SpinlockPhase, Time};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

/// What the locks of type `L` share.
type Shared<P, L> = Arc<<L as MakeLock<P>>::Pool>;

enum Algorithm<P: Platform> {
    Ticket(Ticket<P>),
    Queued(Queued<P>),
    Other(Box<Other<P>>),
}

/// What the locks of a factory share.
enum Pool<P: Platform> {
    Ticket(Shared<P, Ticket<P>>),
    Queued(Shared<P, Queued<P>>),
    Other(OtherPool<P>),
}

macro_rules! others {
    ($($name:ident: $lock:ty),* $(,)?) => {
        /// The algorithms that are not inlined.
        enum Other<P: Platform> { $($name($lock)),* }

        /// What their locks share.
        enum OtherPool<P: Platform> { $($name(Shared<P, $lock>)),* }

        impl<P: Platform> OtherPool<P> {
            fn create(&self, p: &P, line: Line) -> Other<P> {
                match self { $(OtherPool::$name(pool) => Other::$name(MakeLock::on_line(p, line, pool))),* }
            }
        }

        impl<P: Platform> Other<P> {
            #[cold]
            #[inline(never)]
            fn lock_with(&self, p: &P, waits: impl FnOnce()) -> bool {
                match self { $(Other::$name(l) => l.lock_with(p, waits)),* }
            }
            #[cold]
            #[inline(never)]
            fn try_lock(&self, p: &P) -> bool {
                match self { $(Other::$name(l) => l.try_lock(p)),* }
            }
            #[cold]
            #[inline(never)]
            fn unlock(&self, p: &P) {
                match self { $(Other::$name(l) => l.unlock(p)),* }
            }
        }
    };
}

others! {
    UnfairByte: UnfairByte<P>,
    PvTicket: PvTicket<P>,
    PvQueued: PvQueued<P>,
    UnfairQueued: UnfairQueued<P>,
    Hybrid: Hybrid<P>,
    Mcs: Mcs<P>,
    Adaptive: Adaptive<P>,
}

impl<P: Platform> Pool<P> {
    fn new(p: &P, cpus: usize, kind: SpinlockKind) -> Self {
        fn shared<P: Platform, L: MakeLock<P>>(p: &P, cpus: usize) -> Shared<P, L> {
            Arc::new(L::pool(p, cpus))
        }
        let pv_queued = |features| Pool::Other(OtherPool::PvQueued(Arc::new(PvQueuedPool::new(p, cpus, features))));
        match kind {
            SpinlockKind::Ticket => Pool::Ticket(shared::<P, Ticket<P>>(p, cpus)),
            SpinlockKind::Queued => Pool::Queued(shared::<P, Queued<P>>(p, cpus)),
            SpinlockKind::UnfairByte => Pool::Other(OtherPool::UnfairByte(shared::<P, UnfairByte<P>>(p, cpus))),
            SpinlockKind::PvTicket => Pool::Other(OtherPool::PvTicket(shared::<P, PvTicket<P>>(p, cpus))),
            SpinlockKind::PvQueued => pv_queued(PvFeatures::V4_2),
            SpinlockKind::PvQueuedUnlockKick => pv_queued(PvFeatures::KICK_AT_UNLOCK),
            SpinlockKind::PvQueuedKickAhead => pv_queued(PvFeatures::KICK_AHEAD),
            SpinlockKind::PvQueuedWaitEarly => pv_queued(PvFeatures::WAIT_EARLY),
            SpinlockKind::PvQueuedPending => pv_queued(PvFeatures::PENDING),
            SpinlockKind::PvQueued2015To2 => {
                pv_queued(PvFeatures { wait_early: false, pending: false, ..PvFeatures::SERIES_2015 })
            }
            SpinlockKind::PvQueued2015To3 => pv_queued(PvFeatures { pending: false, ..PvFeatures::SERIES_2015 }),
            SpinlockKind::PvQueued2015 => pv_queued(PvFeatures::SERIES_2015),
            SpinlockKind::UnfairQueued => Pool::Other(OtherPool::UnfairQueued(shared::<P, UnfairQueued<P>>(p, cpus))),
            SpinlockKind::Hybrid => Pool::Other(OtherPool::Hybrid(shared::<P, Hybrid<P>>(p, cpus))),
            SpinlockKind::Mcs => Pool::Other(OtherPool::Mcs(shared::<P, Mcs<P>>(p, cpus))),
            SpinlockKind::Adaptive => Pool::Other(OtherPool::Adaptive(shared::<P, Adaptive<P>>(p, cpus))),
        }
    }
}

/// What happened at a lock.
#[derive(Debug, Default)]
pub struct LockCounters {
    acquisitions: AtomicU64,
    contended: AtomicU64,
    wait_ns: AtomicU64,
    wait_ns_max: AtomicU64,
    hold_ns: AtomicU64,
    /// When it was taken, + 1; 0: it is free.
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

impl LockStats {
    /// Somebody has waited so long, and still does.
    pub fn waits_on(&mut self, ns: Nanos) {
        self.contended += 1;
        self.wait_ns += ns;
        self.wait_ns_max = self.wait_ns_max.max(ns);
    }
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
        self.since.store(now + 1, Relaxed);
    }
    /// It is about to be released.
    pub fn released(&self, now: Time) {
        add(&self.hold_ns, (now + 1).saturating_sub(self.since.load(Relaxed)));
        self.since.store(0, Relaxed);
    }
    /// The counts at `end`, if it is held with the time since it was taken.
    pub fn get_at(&self, end: Time) -> LockStats {
        let since = self.since.load(Relaxed).checked_sub(1);
        let stats = self.get();
        LockStats { hold_ns: stats.hold_ns + since.map_or(0, |since| end.saturating_sub(since)), ..stats }
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
    number: u32,
    account: Account,
}

/// What kernel locks are made from: the algorithm, and what its locks share.
pub struct LockFactory<P: Platform> {
    pool: Pool<P>,
    made: AtomicU32,
}

impl<P: Platform> LockFactory<P> {
    /// A factory for a machine of `cpus` CPUs.
    pub fn new(p: &P, cpus: usize, kind: SpinlockKind) -> Self {
        LockFactory { pool: Pool::new(p, cpus, kind), made: AtomicU32::new(0) }
    }
    /// A free lock on `line` (with what it guards, or alone) whose waiters book their time to `account`.
    pub fn create(&self, p: &P, line: Line, account: Account) -> KernelLock<P> {
        let algorithm = match &self.pool {
            Pool::Ticket(pool) => Algorithm::Ticket(Ticket::on_line(p, line, pool)),
            Pool::Queued(pool) => Algorithm::Queued(Queued::on_line(p, line, pool)),
            Pool::Other(pool) => Algorithm::Other(Box::new(pool.create(p, line))),
        };
        let number = self.made.fetch_add(1, Relaxed);
        assert_ne!(number, u32::MAX, "2^32 locks of one kernel");
        KernelLock { algorithm, counters: LockCounters::default(), number, account }
    }
}

impl<P: Platform> KernelLock<P> {
    /// The lock's number among those of its factory, which counts from 0 as it makes them. (A kernel makes those of its run
    /// queues first: the lock of a CPU's run queue has the CPU's number.)
    #[inline]
    pub fn number(&self) -> u32 {
        self.number
    }
    /// Take the lock. Waiting for it, and only that, is booked to the lock's account.
    #[inline]
    pub fn lock(&self, p: &P) {
        let asked = p.now();
        let mut before = None;
        let waits = || {
            p.spinlock(self.number, SpinlockPhase::Wait);
            before = Some(p.enter(self.account));
        };
        let contended = match &self.algorithm {
            Algorithm::Ticket(l) => l.lock_with(p, waits),
            Algorithm::Queued(l) => l.lock_with(p, waits),
            Algorithm::Other(l) => l.lock_with(p, waits),
        };
        p.spinlock(self.number, SpinlockPhase::Held);
        if let Some(before) = before {
            p.enter(before);
            p.lock_waited(self.number, asked);
        }
        self.counters.taken(asked, p.now(), contended);
    }
    /// Take the lock if it is free.
    pub fn try_lock(&self, p: &P) -> bool {
        let asked = p.now();
        let got = match &self.algorithm {
            Algorithm::Ticket(l) => l.try_lock(p),
            Algorithm::Queued(l) => l.try_lock(p),
            Algorithm::Other(l) => l.try_lock(p),
        };
        if got {
            p.spinlock(self.number, SpinlockPhase::Held);
            self.counters.taken(asked, p.now(), false);
        }
        got
    }
    /// Release it; the caller holds it.
    #[inline]
    pub fn unlock(&self, p: &P) {
        self.counters.released(p.now());
        p.spinlock(self.number, SpinlockPhase::Released);
        match &self.algorithm {
            Algorithm::Ticket(l) => l.unlock(p),
            Algorithm::Queued(l) => l.unlock(p),
            Algorithm::Other(l) => l.unlock(p),
        }
    }
    /// Counts so far.
    pub fn stats(&self) -> LockStats {
        self.counters.get()
    }
    /// Counts at `end`, if it is held with the time since it was taken.
    pub fn stats_at(&self, end: Time) -> LockStats {
        self.counters.get_at(end)
    }
}
