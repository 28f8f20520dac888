//! The hash of the paravirtual locks, alone; and a lock whose hash is full.

use crate::Model;
use contend_locks::hash::LockHash;
use contend_locks::nodes::{NodeId, Nodes};
use contend_locks::pv::{PvNodes, PvPool, PvTunables};
use contend_locks::pv_queued::{PvFeatures, PvQueued, PvQueuedNode};
use contend_locks::{MakeLock, RawLock, WaitPool};
use contend_platform::{CpuId, Line, Platform};
use std::sync::Arc;

/// Each CPU enters a lock of its own and takes it out again, in a hash with one bucket.
#[derive(Clone, Copy, Debug)]
pub struct Hashing {
    /// CPUs, up to 4.
    pub cpus: usize,
    /// How often.
    pub rounds: usize,
}

impl<P: Platform> Model<P> for Hashing {
    type Shared = LockHash<P>;

    fn cpus(&self) -> usize {
        self.cpus
    }
    fn setup(&self, p: &P) -> LockHash<P> {
        LockHash::new(p, 1)
    }
    fn run(&self, p: &P, hash: &LockHash<P>) {
        let (key, node) = (1 + p.cpu().index() as u64, NodeId::of(p.cpu(), 2));
        for _ in 0..self.rounds {
            assert!(hash.insert(p, key, node), "there is room for all");
            assert_eq!(hash.remove(p, key), node, "the node of another lock");
        }
    }
    fn finish(&self, p: &P, hash: &LockHash<P>) {
        let node = NodeId::of(CpuId(0), 0);
        assert!((1..=4).all(|key| hash.insert(p, key, node)), "entries are left over");
        assert!(!hash.insert(p, 5, node), "four entries a bucket");
    }
}

/// The nodes of a world, with a hash in which nothing has room.
pub struct FullHash<P: Platform> {
    pool: Arc<PvPool<P, 2, PvFeatures>>,
    hash: Arc<LockHash<P>>,
}

impl<P: Platform> Nodes<P, PvQueuedNode<P>> for FullHash<P> {
    fn get(&self, id: NodeId) -> &PvQueuedNode<P> {
        self.pool.get(id)
    }
    fn claim(&self, p: &P) -> Option<NodeId> {
        self.pool.claim(p)
    }
    fn release(&self, p: &P, id: NodeId) {
        self.pool.release(p, id);
    }
}

impl<P: Platform> PvNodes<P, PvQueuedNode<P>> for FullHash<P> {
    fn hash(&self) -> &LockHash<P> {
        &self.hash
    }
    fn key(&self, _number: u32, _word: &P::Word) -> u64 {
        1
    }
}

/// [`PvQueued`] with a hash that is full: its waiters behind the head halt, its heads do not.
pub struct PvHashFull<P: Platform, const FEATURES: u8>(PvQueued<P, FullHash<P>>);

impl<P: Platform, const FEATURES: u8> RawLock<P> for PvHashFull<P, FEATURES> {
    fn lock_with(&self, p: &P, waits: impl FnOnce()) -> bool {
        self.0.lock_with(p, waits)
    }
    fn try_lock(&self, p: &P) -> bool {
        self.0.try_lock(p)
    }
    fn is_locked(&self, p: &P) -> bool {
        self.0.is_locked(p)
    }
    fn unlock(&self, p: &P) {
        self.0.unlock(p);
    }
}

impl<P: Platform, const FEATURES: u8> MakeLock<P> for PvHashFull<P, FEATURES> {
    type Pool = PvPool<P, 2, PvFeatures>;

    fn pool(p: &P, nr_cpus: usize) -> Self::Pool {
        PvPool::new(p, nr_cpus, PvFeatures::from_bits(FEATURES))
    }
    fn on_line(p: &P, line: Line, pool: &Arc<Self::Pool>) -> Self {
        let hash = LockHash::new(p, 1);
        assert!((2..=5).all(|key| hash.insert(p, key, NodeId::of(CpuId(0), 0))));
        let nodes = FullHash { pool: Arc::clone(pool), hash: Arc::new(hash) };
        PvHashFull(PvQueued::from_parts(p.word(line, 0), nodes, 0, pool.settings, pool.tunables))
    }
}

/// A paravirtual lock whose budgets are so small that nearly every wait halts, also where time is real.
pub struct Hasty<L>(L);

impl<P: Platform, L: RawLock<P>> RawLock<P> for Hasty<L> {
    fn lock_with(&self, p: &P, waits: impl FnOnce()) -> bool {
        self.0.lock_with(p, waits)
    }
    fn try_lock(&self, p: &P) -> bool {
        self.0.try_lock(p)
    }
    fn is_locked(&self, p: &P) -> bool {
        self.0.is_locked(p)
    }
    fn unlock(&self, p: &P) {
        self.0.unlock(p);
    }
}

/// What locks of a kind share, with budgets that can be shortened.
pub trait Budgets {
    /// Next to nothing from now on.
    fn shorten(&mut self);
}

impl<P: Platform, const LINES: usize, S> Budgets for PvPool<P, LINES, S> {
    fn shorten(&mut self) {
        self.tunables = PvTunables { spin_ns: 50, pending_ns: 20, ..self.tunables };
    }
}

impl<P: Platform> Budgets for WaitPool<P> {
    fn shorten(&mut self) {
        self.spin_ns = 50;
    }
}

impl<P: Platform, L: MakeLock<P>> MakeLock<P> for Hasty<L>
where
    L::Pool: Budgets,
{
    type Pool = L::Pool;

    fn pool(p: &P, nr_cpus: usize) -> Self::Pool {
        let mut pool = L::pool(p, nr_cpus);
        pool.shorten();
        pool
    }
    fn on_line(p: &P, line: Line, pool: &Arc<Self::Pool>) -> Self {
        Hasty(L::on_line(p, line, pool))
    }
}
