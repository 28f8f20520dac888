//! Lists of pending wake-ups: the question of the 2010 post, its two corruptions, and today's list.

use contend_check::models::wake_list::{Kind, Post2010, PushDrain, PushedElsewhere};
use contend_check::{Explored, Failure, FailureKind, LoomRun, ShuttleRun, run_native};
use contend_platform::Ordering;
use contend_sched::wake_list::{Barrier, PushOrder};

fn passes(what: &str, result: Result<Explored, Failure>) {
    match result {
        Ok(explored) => println!("{what}: {} executions", explored.executions),
        Err(failure) => panic!("{what}: {failure}"),
    }
}

fn order(exchange: Ordering, barrier: Barrier) -> Kind {
    Kind::Rowand(PushOrder { exchange, barrier })
}

/// One task with flags: are they seen?
fn flags(kind: Kind) -> Result<Explored, Failure> {
    LoomRun::default().check(PushDrain { kind, pushers: 1, tasks: 1, drains: 1, flags: true })
}

/// Two pushers: are the links seen?
fn links(kind: Kind) -> Result<Explored, Failure> {
    LoomRun::preemptions(3).check(PushDrain { kind, pushers: 2, tasks: 1, drains: 1, flags: false })
}

/// The table in `contend_sched::wake_list`.
#[test]
fn the_posts_question() {
    for (kind, flags_seen, links_seen) in [
        (Kind::Rowand(PushOrder::POSTED), true, true),
        (order(Ordering::AcqRel, Barrier::None), true, true),
        (Kind::Rowand(PushOrder::ENOUGH), true, true),
        (order(Ordering::Relaxed, Barrier::None), false, false),
        (order(Ordering::Relaxed, Barrier::BeforeLoop), true, false),
        (order(Ordering::Relaxed, Barrier::BeforeExchange), true, true),
    ] {
        match flags(kind) {
            Ok(_) => assert!(flags_seen, "{kind:?}: stale flags were not found"),
            Err(failure) => {
                assert!(!flags_seen, "{kind:?}: {failure}");
                assert_eq!(failure.kind, FailureKind::Race, "{kind:?}: {failure}");
            }
        }
        match links(kind) {
            Ok(_) => assert!(links_seen, "{kind:?}: stale links were not found"),
            Err(failure) => {
                assert!(!links_seen, "{kind:?}: {failure}");
                assert!(failure.message.contains("each task comes out once"), "{kind:?}: {failure}");
            }
        }
    }
}

#[test]
fn both_lists_lose_nothing() {
    for kind in [Kind::Rowand(PushOrder::POSTED), Kind::Rowand(PushOrder::ENOUGH), Kind::Call] {
        let model = |pushers, tasks, drains| PushDrain { kind, pushers, tasks, drains, flags: true };
        passes("loom, 1 pusher", LoomRun::default().check(model(1, 2, 2)));
        passes("loom, 2 pushers", LoomRun::preemptions(3).check(model(2, 1, 2)));
        passes("shuttle, 5 pushers", ShuttleRun::random(1_000).check(model(5, 3, 6)));
        passes("shuttle pct, 5 pushers", ShuttleRun::pct(1_000, 4).check(model(5, 3, 6)));
        run_native(&model(3, 2_000, 500));
    }
}

/// The double push of the 2010 protocol makes the list a cycle: its interrupt handler would never end.
#[test]
fn double_push_makes_a_cycle() {
    let model = Post2010 { kind: Kind::Rowand(PushOrder::POSTED), rounds: 2 };
    for result in [LoomRun::preemptions(2).check(model.clone()), ShuttleRun::random(10_000).check(model)] {
        let failure = result.expect_err("the cycle was not found");
        assert!(failure.message.contains("the wake list is a cycle"), "{failure}");
    }
    // One wait is harmless.
    let once = Post2010 { kind: Kind::Rowand(PushOrder::POSTED), rounds: 1 };
    passes("loom, one wait", LoomRun::default().check(once));
}

/// The link read after the callback: the task is on another CPU's list by then, and the rest of the walk is lost.
#[test]
fn link_read_after_the_callback_loses_tasks() {
    let posted = PushedElsewhere { kind: Kind::Rowand(PushOrder::POSTED) };
    for result in [LoomRun::default().check(posted.clone()), ShuttleRun::random(1_000).check(posted)] {
        let failure = result.expect_err("the loss was not found");
        assert!(failure.message.contains("a wake-up was lost"), "{failure}");
    }
    let today = PushedElsewhere { kind: Kind::Call };
    passes("loom", LoomRun::default().check(today.clone()));
    passes("shuttle", ShuttleRun::random(1_000).check(today));
}
