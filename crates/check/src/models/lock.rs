//! Locks: exclusion, try_lock, two locks at once, a thing that moves between locks.

use crate::Model;
use contend_locks::adaptive::{Adaptive, Node, Tuning};
use contend_locks::nodes::Pool;
use contend_locks::{MakeLock, lock_mover, lock_pair, unlock_pair};
use contend_platform::Nanos;
use contend_platform::{CpuId, Note, Ordering, Platform};
use std::marker::PhantomData;
use std::sync::Arc;

/// Each CPU takes the lock `rounds` times and counts in guarded data.
pub struct Exclusion<L> {
    /// CPUs.
    pub cpus: usize,
    /// Acquisitions by each.
    pub rounds: usize,
    /// The last CPU only tries: it goes without the lock when it is not free.
    pub last_tries: bool,
    lock: PhantomData<fn() -> L>,
}

impl<L> Exclusion<L> {
    /// All CPUs wait for the lock.
    pub fn new(cpus: usize, rounds: usize) -> Self {
        Exclusion { cpus, rounds, last_tries: false, lock: PhantomData }
    }
    /// The last CPU only tries.
    pub fn with_try(cpus: usize, rounds: usize) -> Self {
        Exclusion { last_tries: true, ..Self::new(cpus, rounds) }
    }
}

impl<L> Clone for Exclusion<L> {
    fn clone(&self) -> Self {
        Exclusion { lock: PhantomData, ..*self }
    }
}

/// The lock and what it guards.
pub struct Guarded<P: Platform, L> {
    lock: L,
    /// Acquisitions.
    count: P::Cell<u64>,
    /// Tries that failed: counted by the last CPU alone.
    failed: P::Cell<u64>,
}

impl<P: Platform, L: MakeLock<P> + 'static> Model<P> for Exclusion<L> {
    type Shared = Guarded<P, L>;

    fn cpus(&self) -> usize {
        self.cpus
    }
    fn setup(&self, p: &P) -> Guarded<P, L> {
        Guarded { lock: L::new(p, self.cpus), count: p.cell(p.line(), 0), failed: p.cell(p.line(), 0) }
    }
    fn run(&self, p: &P, s: &Guarded<P, L>) {
        let tries = self.last_tries && p.cpu().index() == self.cpus - 1;
        for _ in 0..self.rounds {
            if tries {
                if !s.lock.try_lock(p) {
                    // SAFETY: only this CPU touches it before the end.
                    unsafe { p.write(&s.failed, |failed| *failed += 1) };
                    continue;
                }
            } else {
                s.lock.lock(p);
            }
            p.note(Note::Acquired);
            // SAFETY: the lock is held; that it excludes is what is checked.
            unsafe { p.write(&s.count, |count| *count += 1) };
            s.lock.unlock(p);
        }
    }
    fn finish(&self, p: &P, s: &Guarded<P, L>) {
        // SAFETY: the CPUs have ended.
        let (count, failed) = unsafe { (p.read(&s.count, |c| *c), p.read(&s.failed, |f| *f)) };
        assert_eq!(count + failed, (self.cpus * self.rounds) as u64, "lost an acquisition");
        assert!(s.lock.try_lock(p), "free at the end");
        s.lock.unlock(p);
    }
}

/// How a CPU takes two locks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PairOrder {
    /// By CPU number: [`lock_pair`].
    ByCpu,
    /// As the arguments come: the mistake.
    AsGiven,
}

/// CPU `i` moves a unit from account `i` to the next, around a ring of locks, several of which form a cycle.
pub struct Pairs<L> {
    cpus: usize,
    order: PairOrder,
    lock: PhantomData<fn() -> L>,
}

impl<L> Pairs<L> {
    /// `cpus` CPUs and as many locks.
    pub fn new(cpus: usize, order: PairOrder) -> Self {
        Pairs { cpus, order, lock: PhantomData }
    }
}

impl<L> Clone for Pairs<L> {
    fn clone(&self) -> Self {
        Pairs { lock: PhantomData, ..*self }
    }
}

impl<P: Platform, L: MakeLock<P> + 'static> Model<P> for Pairs<L> {
    type Shared = Vec<(L, P::Cell<i64>)>;

    fn cpus(&self) -> usize {
        self.cpus
    }
    fn setup(&self, p: &P) -> Self::Shared {
        let pool = Arc::new(L::pool(p, self.cpus));
        (0..self.cpus).map(|_| (L::on_line(p, p.line(), &pool), p.cell(p.line(), 0))).collect()
    }
    fn run(&self, p: &P, s: &Self::Shared) {
        let (from, to) = (p.cpu().index(), (p.cpu().index() + 1) % self.cpus);
        let (a, b) = ((CpuId(from as u16), &s[from].0), (CpuId(to as u16), &s[to].0));
        match self.order {
            PairOrder::ByCpu => lock_pair(p, a, b),
            PairOrder::AsGiven => {
                a.1.lock(p);
                b.1.lock(p);
            }
        }
        // SAFETY: both locks are held.
        unsafe {
            p.write(&s[from].1, |v| *v -= 1);
            p.write(&s[to].1, |v| *v += 1);
        }
        unlock_pair(p, a, b);
    }
    fn finish(&self, p: &P, s: &Self::Shared) {
        // SAFETY: the CPUs have ended.
        assert!(s.iter().all(|(_, account)| unsafe { p.read(account, |v| *v) } == 0));
    }
}

/// How a CPU locks the run queue of a task that moves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Recheck {
    /// [`lock_mover`].
    Yes,
    /// Without the second look: the mistake.
    No,
}

/// CPU 0 moves a task between two run queues under both locks, the others lock the run queue it is on.
pub struct Moves<L> {
    cpus: usize,
    recheck: Recheck,
    lock: PhantomData<fn() -> L>,
}

impl<L> Moves<L> {
    /// One mover and `cpus - 1` others.
    pub fn new(cpus: usize, recheck: Recheck) -> Self {
        Moves { cpus, recheck, lock: PhantomData }
    }
}

impl<L> Clone for Moves<L> {
    fn clone(&self) -> Self {
        Moves { lock: PhantomData, ..*self }
    }
}

/// Two run queues and a task.
pub struct TwoQueues<P: Platform, L> {
    locks: [L; 2],
    queued: [P::Cell<bool>; 2],
    /// The CPU of the task.
    place: P::Word,
}

impl<P: Platform, L: MakeLock<P> + 'static> Model<P> for Moves<L> {
    type Shared = TwoQueues<P, L>;

    fn cpus(&self) -> usize {
        self.cpus
    }
    fn setup(&self, p: &P) -> Self::Shared {
        let pool = Arc::new(L::pool(p, self.cpus));
        TwoQueues {
            locks: [L::on_line(p, p.line(), &pool), L::on_line(p, p.line(), &pool)],
            queued: [p.cell(p.line(), true), p.cell(p.line(), false)],
            place: p.word(p.line(), 0),
        }
    }
    fn run(&self, p: &P, s: &Self::Shared) {
        if p.cpu() == CpuId(0) {
            let (a, b) = ((CpuId(1), &s.locks[1]), (CpuId(0), &s.locks[0]));
            lock_pair(p, a, b);
            // SAFETY: both locks are held.
            unsafe {
                assert!(p.write(&s.queued[0], std::mem::take));
                p.write(&s.queued[1], |q| *q = true);
            }
            p.store(&s.place, 1, Ordering::Relaxed);
            unlock_pair(p, a, b);
        } else {
            let at = match self.recheck {
                Recheck::Yes => lock_mover(p, &s.place, |cpu| &s.locks[cpu.index()]).index(),
                Recheck::No => {
                    let at = p.load(&s.place, Ordering::Relaxed) as usize;
                    s.locks[at].lock(p);
                    at
                }
            };
            // SAFETY: the lock of that queue is held.
            assert!(unsafe { p.read(&s.queued[at], |q| *q) }, "locked a run queue that the task is not on");
            s.locks[at].unlock(p);
        }
    }
}

/// The adaptive lock's budgets cut down, so that a few steps reach every phase: no second try, one
/// bypass.
pub enum Hasty {}

impl Tuning for Hasty {
    const SPIN_NS: Nanos = 100;
    const RESPIN_NS: Nanos = 100;
    const QUEUE_SPIN_NS: Nanos = 100;
    const BYPASS_MAX: u32 = 1;
}

/// The adaptive lock with [`Hasty`] budgets.
pub type HastyAdaptive<P> = Adaptive<P, Arc<Pool<P, Node<P>>>, Hasty>;
