//! What a watch sees of the locks: bounded bypass, and nodes that nobody touches after their owners have left.

use contend_check::models::lock::{Exclusion, HastyAdaptive};
use contend_check::observe::Seen;
use contend_check::{Explored, Failure, Loom, LoomRun, Observed, Shuttle, ShuttleRun, Watch, run_sim_as};
use contend_locks::nodes::Link;
use contend_locks::{
    Hybrid, MakeLock, Mcs, NodeId, Nodes, Pool, PvFeatures, PvQueuedWith, PvTicket, Queued, RawLock, Ticket,
    UnfairByte, UnfairQueued,
};
use contend_machine::Machine;
use contend_platform::{Line, Note, Ordering, Platform};
use contend_sim::world::Sim;
use std::sync::Arc;

type Pv4_2<P> = PvQueuedWith<P, { PvFeatures::V4_2.bits() }>;
type PvSeries2015<P> = PvQueuedWith<P, { PvFeatures::SERIES_2015.bits() }>;

type OnLoom = Observed<Loom>;
type OnShuttle = Observed<Shuttle>;
type OnSim = Observed<Sim>;

fn loom<L: MakeLock<OnLoom> + Send + Sync + 'static>(
    watch: &Arc<Watch>,
    run: LoomRun,
    cpus: usize,
    rounds: usize,
) -> Result<Explored, Failure> {
    let handles = Arc::clone(watch);
    run.check_as(watch.over(Exclusion::<L>::new(cpus, rounds)), move |p| handles.on(p))
}

fn shuttle<L: MakeLock<OnShuttle> + Send + Sync + 'static>(
    watch: &Arc<Watch>,
    run: ShuttleRun,
    cpus: usize,
) -> Result<Explored, Failure> {
    let handles = Arc::clone(watch);
    run.check_as(watch.over(Exclusion::<L>::with_try(cpus, 3)), move |p| handles.on(p))
}

fn simulate<L: MakeLock<OnSim> + 'static>(watch: &Arc<Watch>, machine: &str, cpus: usize) {
    let machine = Machine::load(machine).unwrap();
    run_sim_as(machine, &watch.over(Exclusion::<L>::new(cpus, 50)), |p| watch.on(p));
}

// `coins`: as in `locks.rs`; `peeks`: waiters look at the nodes of others that may have left.
macro_rules! watched {
    ($($name:ident: $lock:ident, coins $coins:literal, peeks $peeks:literal;)*) => { $(
        #[test]
        fn $name() {
            let watch = Watch::new(<$lock<OnLoom> as RawLock<OnLoom>>::BYPASS_MAX, $peeks);
            loom::<$lock<OnLoom>>(&watch, LoomRun::preemptions(2).coins($coins), 2, 2).unwrap();
            loom::<$lock<OnLoom>>(&watch, LoomRun::preemptions(1).coins($coins), 3, 1).unwrap();
            shuttle::<$lock<OnShuttle>>(&watch, ShuttleRun::random(1_000), 4).unwrap();
            shuttle::<$lock<OnShuttle>>(&watch, ShuttleRun::pct(1_000, 4), 6).unwrap();
            for machine in ["64c", "4n4c4t"] {
                simulate::<$lock<OnSim>>(&watch, machine, 8);
                simulate::<$lock<OnSim>>(&watch, machine, 64);
            }
            println!("{:?}", watch.seen());
            assert!(watch.seen().queued > 0);
        }
    )* };
}

watched! {
    ticket: Ticket, coins 0, peeks false;
    mcs: Mcs, coins 0, peeks false;
    queued: Queued, coins 0, peeks false;
    pv_ticket: PvTicket, coins 1, peeks false;
    unfair_queued: UnfairQueued, coins 1, peeks true;
    pv_4_2: Pv4_2, coins 1, peeks true;
    pv_series_2015: PvSeries2015, coins 1, peeks true;
    hybrid: Hybrid, coins 1, peeks true;
    adaptive: HastyAdaptive, coins 1, peeks true;
}

/// The watch can fail: the unfair lock does not keep a promise that it does not make.
#[test]
fn an_unfair_lock_overtakes() {
    let watch = Watch::new(Some(0), true);
    let failure = loom::<UnfairQueued<OnLoom>>(&watch, LoomRun::preemptions(2), 3, 1).unwrap_err();
    assert!(failure.message.contains("was overtaken"), "{failure}");
    let failure = shuttle::<UnfairQueued<OnShuttle>>(&watch, ShuttleRun::random(1_000), 4).unwrap_err();
    assert!(failure.message.contains("was overtaken"), "{failure}");

    let watch = Watch::new(None, true);
    simulate::<UnfairQueued<OnSim>>(&watch, "64c", 64);
    assert!(watch.seen().bypasses_max > 1, "{:?}", watch.seen());
}

/// Nor does it promise that nobody looks at a node whose owner has left: waiters look at their predecessor's mask.
#[test]
fn the_unfair_lock_peeks() {
    let failure = shuttle::<UnfairQueued<OnShuttle>>(&Watch::new(None, false), ShuttleRun::random(1_000), 4);
    let failure = failure.unwrap_err();
    assert!(failure.message.contains("looks at a node"), "{failure}");
    let watch = Watch::new(None, true);
    shuttle::<UnfairQueued<OnShuttle>>(&watch, ShuttleRun::random(1_000), 4).unwrap();
    assert!(watch.seen().peeks > 0);
}

/// A lock without places in line has no bypasses.
#[test]
fn the_unfair_byte_lock_has_no_line() {
    let watch = Watch::new(Some(0), false);
    shuttle::<UnfairByte<OnShuttle>>(&watch, ShuttleRun::random(1_000), 4).unwrap();
    assert_eq!(watch.seen(), Seen::default());
}

/// An MCS lock that releases its node too early: the successor may still have to link itself. (As it happens it works as long
/// as the CPU does not queue elsewhere.)
struct Hasty<P: Platform> {
    tail: P::Word,
    nodes: Arc<Pool<P, Link<P>>>,
    /// The holder's node; guarded by the lock.
    mine: P::Cell<Option<NodeId>>,
}

impl<P: Platform> RawLock<P> for Hasty<P> {
    fn lock_with(&self, p: &P, waits: impl FnOnce()) -> bool {
        let id = self.nodes.claim(p).expect("one lock");
        let node = self.nodes.get(id);
        p.store_many([&node.locked, &node.next], [0, 0]);
        let before = p.swap(&self.tail, id.link(), Ordering::AcqRel);
        if let Some(prev) = NodeId::from_link(before) {
            p.note(Note::Queued);
            waits();
            p.store(&self.nodes.get(prev).next, id.link(), Ordering::Release);
            p.wait_until([&node.locked], None, |[locked]| locked == 1);
        }
        // SAFETY: the lock is held.
        unsafe { p.write(&self.mine, |mine| *mine = Some(id)) };
        before != 0
    }
    fn try_lock(&self, p: &P) -> bool {
        // For the end of the model, when nobody else is there.
        p.load(&self.tail, Ordering::Relaxed) == 0 && !self.lock(p)
    }
    fn is_locked(&self, p: &P) -> bool {
        p.load(&self.tail, Ordering::Relaxed) != 0
    }
    fn unlock(&self, p: &P) {
        // SAFETY: the lock is held.
        let id = unsafe { p.write(&self.mine, Option::take) }.expect("held");
        let node = self.nodes.get(id);
        self.nodes.release(p, id);
        if p.load(&node.next, Ordering::Acquire) == 0
            && p.compare_exchange(&self.tail, id.link(), 0, Ordering::Release, Ordering::Relaxed).is_ok()
        {
            return;
        }
        let [next] = p.wait_until([&node.next], None, |[next]| next != 0).expect("waits without budget");
        p.store(&self.nodes.get(NodeId::from_link(next).expect("linked")).locked, 1, Ordering::Release);
    }
}

impl<P: Platform> MakeLock<P> for Hasty<P> {
    type Pool = Pool<P, Link<P>>;
    fn pool(p: &P, nr_cpus: usize) -> Self::Pool {
        Pool::new(p, nr_cpus)
    }
    fn on_line(p: &P, line: Line, pool: &Arc<Self::Pool>) -> Self {
        Hasty { tail: p.word(line, 0), nodes: Arc::clone(pool), mine: p.cell(p.line(), None) }
    }
}

#[test]
fn a_node_released_too_early_is_noticed() {
    let watch = Watch::new(None, false);
    let failure = loom::<Hasty<OnLoom>>(&watch, LoomRun::preemptions(2), 2, 1).unwrap_err();
    assert!(failure.message.contains("changes a node that cpu"), "{failure}");
    // Once each: nobody claims the node again.
    let handles = Arc::clone(&watch);
    let model = watch.over(Exclusion::<Hasty<OnShuttle>>::new(4, 1));
    let failure = ShuttleRun::random(1_000).check_as(model, move |p| handles.on(p)).unwrap_err();
    assert!(failure.message.contains("changes a node that cpu"), "{failure}");
}
