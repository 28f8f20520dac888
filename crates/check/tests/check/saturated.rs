//! Saturated locks in the simulator against closed forms.

use contend_check::{Model, Simulated, run_sim};
use contend_locks::{MakeLock, Mcs, Ticket, UnfairByte};
use contend_machine::Machine;
use contend_platform::{Nanos, Platform, Time, Work};
use contend_sim::world::Sim;
use std::marker::PhantomData;
use std::sync::{Arc, Mutex};

/// Every CPU takes the lock `rounds` times and works `hold_ns` inside.
struct Saturate<L> {
    cpus: usize,
    rounds: usize,
    hold_ns: Nanos,
    log: Arc<Mutex<Log>>,
    lock: PhantomData<fn() -> L>,
}

/// The observer's, without simulated cost.
#[derive(Default, Debug)]
struct Log {
    /// When the lock was taken.
    taken: Vec<Time>,
    /// Acquisitions that had to wait.
    contended: usize,
    inside: usize,
}

impl<L> Clone for Saturate<L> {
    fn clone(&self) -> Self {
        Saturate { log: Arc::clone(&self.log), lock: PhantomData, ..*self }
    }
}

impl<P: Platform, L: MakeLock<P> + 'static> Model<P> for Saturate<L> {
    type Shared = L;
    fn cpus(&self) -> usize {
        self.cpus
    }
    fn setup(&self, p: &P) -> L {
        L::new(p, self.cpus)
    }
    fn run(&self, p: &P, lock: &L) {
        // No guard is held across a platform operation.
        let log = || self.log.lock().unwrap();
        for _ in 0..self.rounds {
            let contended = lock.lock(p);
            {
                let mut log = log();
                assert_eq!(log.inside, 0, "two CPUs inside");
                log.inside = 1;
                log.taken.push(p.now());
                log.contended += usize::from(contended);
            }
            p.charge(Work::Ns, self.hold_ns);
            log().inside = 0;
            lock.unlock(p);
        }
    }
}

const ROUNDS: usize = 50;
const HOLD_NS: Nanos = 300;

fn saturate<L: MakeLock<Sim> + 'static>(machine: &Machine, cpus: usize) -> (Log, Simulated) {
    let log = Arc::new(Mutex::new(Log::default()));
    let model = Saturate::<L> { cpus, rounds: ROUNDS, hold_ns: HOLD_NS, log: Arc::clone(&log), lock: PhantomData };
    let run = run_sim(machine.clone(), &model);
    drop(model);
    let log = Arc::into_inner(log).unwrap().into_inner().unwrap();
    assert_eq!(log.taken.len(), cpus * ROUNDS, "all finish");
    assert!(log.taken.is_sorted());
    (log, run)
}

/// Mean time from one acquisition to the next while everybody is there: the first and last fifth are left out.
fn period(log: &Log) -> f64 {
    let n = log.taken.len();
    let (a, b) = (n / 5, n - n / 5);
    (log.taken[b] - log.taken[a]) as f64 / (b - a) as f64
}

/// On one LLC, where every transfer takes the same time, the hand-over of a saturated MCS lock is the store to the
/// successor's line and the successor's load of it: two transfers, however many CPUs wait.
#[test]
fn mcs_throughput_is_its_closed_form() {
    for spec in ["2c", "8c", "64c"] {
        let machine = Machine::synthetic(spec).unwrap();
        let cpus = machine.topology.nr_cpus();
        let (log, _) = saturate::<Mcs<Sim>>(&machine, cpus);
        let lines = &machine.costs.lines;
        // With two CPUs the hold is too short for the one that comes back to have linked itself before the release, which
        // then fetches its node. From three on the successor has long been there.
        let measured = period(&log);
        let expected = (HOLD_NS + 2 * lines.llc.value + 2 * lines.hit.value) as f64;
        println!("{spec}: {measured} ns from one acquisition to the next, {expected} expected");
        if cpus > 2 {
            assert!((measured / expected - 1.0).abs() < 0.01, "{spec}: {measured} ns, not {expected}");
        }
        assert!(log.contended >= (cpus - 1) * (ROUNDS - 1), "{spec}: {} contended", log.contended);
    }
}

#[test]
fn a_lone_cpu_never_contends() {
    fn alone<L: MakeLock<Sim> + 'static>(machine: &Machine) {
        let (log, _) = saturate::<L>(machine, 1);
        assert_eq!(log.contended, 0);
        assert!(period(&log) < (HOLD_NS + 50) as f64, "{}", period(&log));
    }
    let machine = Machine::synthetic("8c").unwrap();
    alone::<Mcs<Sim>>(&machine);
    alone::<Ticket<Sim>>(&machine);
    alone::<UnfairByte<Sim>>(&machine);
}

/// Locks whose waiters poll one word pay for each poller at each hand-over; MCS does not.
#[test]
fn hand_over_grows_with_pollers() {
    let machine = Machine::synthetic("64c").unwrap();
    let hand_over = |log: &Log| period(log) - HOLD_NS as f64;
    let of = |cpus| {
        [
            hand_over(&saturate::<Mcs<Sim>>(&machine, cpus).0),
            hand_over(&saturate::<Ticket<Sim>>(&machine, cpus).0),
            hand_over(&saturate::<UnfairByte<Sim>>(&machine, cpus).0),
        ]
    };
    let (few, more, many) = (of(4), of(16), of(64));
    println!("hand-over in ns of MCS, ticket, unfair byte: {few:?} with 4 CPUs, {more:?} with 16, {many:?} with 64");
    assert!((many[0] / few[0] - 1.0).abs() < 0.02, "MCS: {} and {}", few[0], many[0]);
    for lock in [1, 2] {
        assert!(more[lock] > 2.0 * few[lock], "{} and {}", few[lock], more[lock]);
        assert!(many[lock] > 2.0 * more[lock], "{} and {}", more[lock], many[lock]);
    }
}

#[test]
fn the_same_twice() {
    let machine = Machine::synthetic("2n8c2t").unwrap();
    let once = || {
        let (log, run) = saturate::<Ticket<Sim>>(&machine, 32);
        (log.taken, run)
    };
    assert_eq!(once(), once());
}
