//! The orderings of the wake-up path: mutants, and what catches each.

use contend_check::models::wake_list::{Kind, PushDrain, PushedElsewhere};
use contend_check::models::wakeup::{Path, Place, Wakeup};
use contend_check::mutate::{Check, Log, table};
use contend_check::{Loom, LoomRun, Mutated, Shuttle, ShuttleRun};
use contend_locks::UnfairByte;

const CALL: PushDrain = PushDrain { kind: Kind::Call, pushers: 2, tasks: 2, drains: 2, flags: true };

#[test]
fn wake_list() {
    let log = Log::default();
    let logged = log.clone();
    ShuttleRun::random(100).check_as(CALL, move |p| Mutated::logged(p, logged.clone())).expect("no mistake");
    let checks: &[Check] = &[
        ("loom, 1 pusher", |m| {
            LoomRun::preemptions(2)
                .check_as(PushDrain { pushers: 1, tasks: 2, ..CALL }, move |p| Mutated::new(p, m.clone()))
        }),
        ("loom, 2 pushers", |m| {
            LoomRun::preemptions(2).check_as(PushDrain { tasks: 1, ..CALL }, move |p| Mutated::new(p, m.clone()))
        }),
        ("loom, two lists", |m| {
            LoomRun::preemptions(2).check_as(PushedElsewhere { kind: Kind::Call }, move |p| Mutated::new(p, m.clone()))
        }),
    ];
    insta::assert_snapshot!(table("sched/src/wake_list.rs", &log, checks));
}

type OnLoom = Wakeup<UnfairByte<Mutated<Loom>>>;
type OnShuttle = Wakeup<UnfairByte<Mutated<Shuttle>>>;

#[test]
fn wake_protocol() {
    let log = Log::default();
    for place in [Place::Previous, Place::Waker] {
        let logged = log.clone();
        let model = OnShuttle::new(2, Path::RemoteLock, place);
        ShuttleRun::random(200).check_as(model, move |p| Mutated::logged(p, logged.clone())).expect("no mistake");
    }
    let checks: &[Check] = &[
        ("loom, placed on the waker's CPU", |m| {
            let model = OnLoom::new(1, Path::Queue, Place::Waker);
            LoomRun::preemptions(2).check_as(model, move |p| Mutated::new(p, m.clone()))
        }),
        ("loom, woken where it was", |m| {
            let model = OnLoom::new(1, Path::RemoteLock, Place::Previous);
            LoomRun::preemptions(2).check_as(model, move |p| Mutated::new(p, m.clone()))
        }),
        ("loom, queued where it was", |m| {
            let model = OnLoom::new(1, Path::QueueOnCpu, Place::Previous);
            LoomRun::preemptions(2).check_as(model, move |p| Mutated::new(p, m.clone()))
        }),
        ("loom, 2 wakers, queued", |m| {
            let model = OnLoom::new(2, Path::QueueOnCpu, Place::Previous);
            LoomRun::preemptions(1).check_as(model, move |p| Mutated::new(p, m.clone()))
        }),
        ("loom, 2 wakers, placed on theirs", |m| {
            let model = OnLoom::new(2, Path::Queue, Place::Waker);
            LoomRun::preemptions(2).check_as(model, move |p| Mutated::new(p, m.clone()))
        }),
        ("loom, delayed dequeue", |m| {
            let model = OnLoom::delayed(1, Path::Queue, Place::Waker);
            LoomRun::preemptions(2).check_as(model, move |p| Mutated::new(p, m.clone()))
        }),
        ("shuttle, 4 wakers", |m| {
            let model = OnShuttle::new(4, Path::Queue, Place::Waker);
            ShuttleRun::random(500).check_as(model, move |p| Mutated::new(p, m.clone()))
        }),
    ];
    insta::assert_snapshot!(table("sched/src/wake_protocol.rs", &log, checks));
}
