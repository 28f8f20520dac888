//! Which lock events the locks with a queue report whose waiters halt: all that belong to their features, and no others. (Shuttle's
//! threads also wake for no reason.)

use LockEvent::{
    LockPending, LockSlowpath, PvKickAhead, PvKickLock, PvKickUnlock, PvKickWake, PvLatencyKick, PvLatencyWake,
    PvLockStealing, PvSpuriousWakeup, PvWaitAgain, PvWaitEarly, PvWaitHead, PvWaitNode,
};
use contend_check::models::lock::{Exclusion, HastyAdaptive};
use contend_check::{Counted, Counts, Shuttle, ShuttleRun};
use contend_locks::{Hybrid, MakeLock, PvFeatures, PvQueuedWith};
use contend_platform::LockEvent;

const CPUS: usize = 5;
const ROUNDS: usize = 3;
const EXECUTIONS: usize = 1_000;

fn counts<L: MakeLock<Counted<Shuttle>> + Send + Sync + 'static>() -> Counts {
    let counts = Counts::default();
    let of_run = counts.clone();
    ShuttleRun::random(EXECUTIONS)
        .check_as(Exclusion::<L>::new(CPUS, ROUNDS), move |p| Counted::new(p, of_run.clone()))
        .expect("no mistake");
    counts
}

/// What happens with every lock and what with this one, and nothing else.
fn events(counts: &Counts, happen: &[LockEvent]) {
    for &event in LockEvent::ALL {
        let happens = ALWAYS.contains(&event) || happen.contains(&event);
        assert_eq!(counts.of(event) > 0, happens, "{}: {}", event.name(), counts.of(event));
    }
    let of = |event| counts.of(event);
    let kicks = of(PvKickLock) + of(PvKickUnlock) + of(PvKickAhead);
    assert!(of(PvKickWake) <= kicks, "a kick wakes at most once");
    assert!(of(PvLatencyKick) >= kicks, "a kick takes a step of the clock");
    assert!(of(PvWaitAgain) < of(PvWaitHead) && of(PvWaitEarly) <= of(PvWaitNode));
    assert!(of(LockSlowpath) + of(LockPending) <= (CPUS * ROUNDS * EXECUTIONS) as u64);
}

const ALWAYS: &[LockEvent] = &[
    LockSlowpath,
    PvKickUnlock,
    PvKickWake,
    PvLatencyKick,
    PvLatencyWake,
    PvWaitHead,
    PvWaitNode,
    PvWaitAgain,
    PvSpuriousWakeup,
];

macro_rules! pv {
    ($($name:ident: $features:ident, $($event:ident)*;)*) => { $(
        #[test]
        fn $name() {
            let counts = counts::<PvQueuedWith<Counted<Shuttle>, { PvFeatures::$features.bits() }>>();
            events(&counts, &[$($event),*]);
        }
    )* };
}

pv! {
    v4_2: V4_2, PvKickLock;
    kick_at_unlock: KICK_AT_UNLOCK,;
    kick_ahead: KICK_AHEAD, PvKickLock PvKickAhead;
    wait_early: WAIT_EARLY, PvKickLock PvWaitEarly;
    pending: PENDING, PvKickLock LockPending;
    series_2015: SERIES_2015, PvKickAhead PvWaitEarly LockPending;
}

#[test]
fn hybrid() {
    events(&counts::<Hybrid<Counted<Shuttle>>>(), &[PvLockStealing, PvWaitEarly]);
}

#[test]
fn adaptive() {
    events(&counts::<HastyAdaptive<Counted<Shuttle>>>(), &[PvLockStealing, PvWaitEarly]);
}
