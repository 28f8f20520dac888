//! Wake-ups, yields and the rate limit on one pCPU: who runs next, and when.

use super::*;
use crate::xen::credit1::pri;
use crate::xen::credit1::queue::{Entry, Queue};
use crate::xen::event::RunState;
use crate::xen::testing::Load;

/// Units of [`one_pcpu`].
const A: UnitId = TaskId(0);
const B: UnitId = TaskId(1);
const C: UnitId = TaskId(2);
/// Runs 100 us whenever it is woken by hand.
const SHORT: Load = Load { run: MS / 10, sleep: 1000 * SECOND };
/// When tests begin: no tick, no end of a slice is near.
const T: Time = 45 * MS;

/// A pCPU with a burner A, and B and C, which are asleep. It is [`T`], and A has run for long.
fn one_pcpu(set: &[(&str, &str)]) -> World<Credit1> {
    let doms = vec![Dom::new(256, 0, 1, Load::BURNER), Dom::new(256, 0, 2, SHORT)];
    let mut world = world("1n1l1c1t", &features(set), doms);
    world.run_until(T);
    assert_eq!(world.xen.curr(CpuId(0)), Some(A));
    // No tick has found B and C: they are boosted since they started.
    [B, C].iter().for_each(|unit| state(&world, *unit, |u| u.pri = pri::UNDER));
    forget(&world);
    world
}

/// When `unit` began to run after `from`, in ns from then.
fn delay(world: &World<Credit1>, unit: UnitId, from: Time) -> Nanos {
    let log = world.log.0.borrow();
    let info = world.xen.unit(unit).info;
    let runs = |e: &XenEvent| matches!(e, XenEvent::Runstate { vcpu, new: RunState::Running, .. } if *vcpu == info);
    log.iter().find(|(at, _, e)| *at >= from && runs(e)).expect("it ran").0 - from
}

fn boosts(world: &World<Credit1>) -> usize {
    events(world, |e| matches!(e, XenEvent::Credit1Boost { .. }).then_some(())).len()
}

#[test]
fn a_wakeup_with_credit_is_boosted_and_preempts() {
    let world = one_pcpu(&[]);
    wake(&world, B);
    assert_eq!(delay(&world, B, T), 0, "BOOST goes before UNDER and OVER");
    assert_eq!(boosts(&world), 1);
    assert_eq!(state(&world, B, |u| u.pri), pri::BOOST);
}

#[test]
fn a_tick_ends_a_boost() {
    let mut world = world("1n1l1c1t", &features(&[]), vec![Dom::new(256, 0, 1, Load::BURNER)]);
    world.run_until(9 * MS);
    assert_eq!(state(&world, A, |u| u.pri), pri::BOOST);
    world.run_until(11 * MS);
    assert_eq!(state(&world, A, |u| u.pri), pri::UNDER);
    assert_eq!(events(&world, |e| matches!(e, XenEvent::Credit1Unboost { .. }).then_some(())).len(), 1);
}

#[test]
fn who_has_no_credit_or_migrates_is_not_boosted() {
    let world = one_pcpu(&[]);
    state(&world, B, |u| (u.credit, u.pri) = (-50, pri::OVER));
    wake(&world, B);
    assert_eq!((boosts(&world), world.xen.curr(CpuId(0))), (0, Some(A)), "without credit");
    state(&world, C, |u| u.migrates = true);
    wake(&world, C);
    assert_eq!((boosts(&world), state(&world, C, |u| u.pri)), (0, pri::UNDER), "after pick_cpu was asked for it");
    // The next time it is a wake-up again.
    let mut world = world;
    world.run_until(T + 100 * MS);
    wake(&world, C);
    assert_eq!(boosts(&world), 1);
}

#[test]
fn an_unparked_vcpu_is_not_boosted() {
    let mut world = world("1n1l1c1t", &features(&[]), vec![Dom::new(256, 30, 1, Load::BURNER)]);
    world.run_until(SECOND);
    let wakes = events(&world, |e| matches!(e, XenEvent::Wake { .. }).then_some(())).len();
    assert!(wakes > 5 && boosts(&world) == 1, "{wakes} times unparked; boosted when it started");
}

#[test]
fn the_queue_is_by_priority_then_first_come() {
    let topo = topo("1n1l1c1t");
    let entry = |unit, pri, yielded| Entry { unit: TaskId(unit), pri, yielded };
    let order = |q: &Queue| q.waiting.iter().map(|e| e.unit.0).collect::<Vec<_>>();
    let mut q = Queue::new(&topo, CpuId(0));
    for (unit, pri) in
        [(1, pri::UNDER), (2, pri::OVER), (3, pri::UNDER), (4, pri::BOOST), (5, pri::OVER), (6, pri::BOOST)]
    {
        q.insert(entry(unit, pri, false));
    }
    assert_eq!(order(&q), [4, 6, 1, 3, 2, 5]);
    // Who yields passes one of a lower priority, too, if there is one.
    q.insert(entry(7, pri::UNDER, true));
    assert_eq!(order(&q), [4, 6, 1, 3, 2, 7, 5]);
    q.insert(entry(8, pri::OVER, true));
    assert_eq!(order(&q), [4, 6, 1, 3, 2, 7, 5, 8]);
    // An accounting changes priorities; the sort parts with credit from without, and keeps the order in each part.
    q.set_pri(TaskId(1), pri::OVER);
    q.set_pri(TaskId(5), pri::UNDER);
    assert_eq!(order(&q), [4, 6, 1, 3, 2, 7, 5, 8], "not yet");
    q.sort();
    assert_eq!(order(&q), [4, 6, 3, 7, 5, 1, 2, 8]);
}

#[test]
fn an_accounting_has_the_queues_sorted_at_the_next_tick() {
    let doms = vec![Dom::new(256, 0, 3, Load::BURNER)];
    let mut world = world("1n1l1c1t", &features(&[]), doms);
    world.run_until(5 * MS);
    let order = |world: &World<Credit1>| {
        let cx = world.cx(false);
        let rq = cx.rq_of(CpuId(0));
        cx.lock(rq);
        let order: Vec<u32> = cx.with_rq(rq, |q| q.waiting.iter().map(|e| e.unit.0).collect());
        // The head loses its credit behind the queue's back.
        cx.with_rq(rq, |q| q.set_pri(q.waiting[0].unit, pri::OVER));
        cx.unlock(rq);
        order
    };
    assert_eq!(order(&world), [1, 2]);
    world.run_until(15 * MS);
    assert_eq!(order(&world), [1, 2], "nothing has happened that asks for a sort");
    world.cx(false).mask_put(crate::xen::credit1::UNSORTED, CpuId(0), true);
    world.run_until(25 * MS);
    assert_eq!(order(&world), [2, 1]);
}

/// B's run ends at T + 0.1 ms, so A is new on the pCPU then; C is woken `after` that. Returns C's delay.
fn limited(set: &[(&str, &str)], after: Nanos) -> Nanos {
    let mut world = one_pcpu(set);
    wake(&world, B);
    let at = T + MS / 10 + after;
    world.run_until(at);
    assert_eq!(world.xen.curr(CpuId(0)), Some(A));
    forget(&world);
    wake(&world, C);
    let next = events(&world, |e| match e {
        XenEvent::SwitchInfCont { slice_ns, .. } => *slice_ns,
        _ => None,
    });
    world.run_until(at + 5 * MS);
    let delay = delay(&world, C, at);
    if delay > 0 {
        assert!(next[0] > 0);
    }
    delay
}

/// Patch 3.
#[test]
fn a_rate_limit_lasts_a_whole_one_more_without_patch_3() {
    let patch = [("c1_ratelimit_remaining", "true")];
    for after in [0, MS / 5, MS * 9 / 10] {
        assert_eq!(limited(&[], after), MS, "base: from the wake-up");
        assert_eq!(limited(&patch, after), MS - after, "patch 3: from the start of the run");
    }
    assert_eq!(limited(&[], MS), 0, "over");
}

/// Patch 3's own bug: the floor is 100, meant in us, taken in ns, and compared with what has run.
#[test]
fn patch_3_compares_the_wrong_time_with_the_wrong_floor() {
    let first_slice = |after: Nanos| {
        let mut world = one_pcpu(&[("c1_ratelimit_remaining", "true")]);
        wake(&world, B);
        world.run_until(T + MS / 10 + after);
        forget(&world);
        wake(&world, C);
        let slices = events(&world, |e| match e {
            XenEvent::SwitchInfCont { slice_ns, .. } => *slice_ns,
            _ => None,
        });
        slices[0]
    };
    assert_eq!(first_slice(50), 100, "ran 50 ns: looked at again after 100 ns");
    assert_eq!(first_slice(150), 999_850);
    assert_eq!(first_slice(MS - 30), 30, "30 ns are left: no floor at all");
}

/// Patch 7.
#[test]
fn a_yield_waits_for_the_rate_limit_without_patch_7() {
    let next_after = |set: &[(&str, &str)]| {
        let doms = vec![Dom::new(256, 0, 2, Load::BURNER), Dom::new(256, 0, 1, SHORT)];
        let mut world = world("1n1l1c1t", &features(set), doms);
        // C's first run is its last until it is woken.
        let start = 95 * MS;
        world.run_until(start);
        // C runs for 0.1 ms, so that the burner after it is new on the pCPU.
        wake(&world, C);
        let at = start + MS / 2;
        world.run_until(at);
        let first = world.xen.curr(CpuId(0)).expect("a burner runs");
        let other = if first == A { B } else { A };
        forget(&world);
        world.on(CpuId(0)).xen.yield_unit(&world.p, first);
        world.softirqs();
        world.run_until(at + 5 * MS);
        delay(&world, other, at)
    };
    assert_eq!(next_after(&[]), MS, "kept for another rate limit; the yield counts then");
    assert_eq!(next_after(&[("yield_no_ratelimit", "true")]), 0);
    assert_eq!(next_after(&[("ratelimit_us", "0")]), MS, "the pool's parameter is what counts, not the switch");
}

/// Patch 8.
#[test]
fn schedule_and_ratelimit_records_are_patch_8s() {
    let records = |set: &[(&str, &str)]| {
        let world = one_pcpu(set);
        wake(&world, B);
        let mut world = world;
        world.run_until(T + MS / 5);
        wake(&world, C);
        let schedule = events(&world, |e| matches!(e, XenEvent::Credit1Schedule { .. }).then_some(())).len();
        (
            schedule,
            events(&world, |e| matches!(e, XenEvent::Credit1Ratelimit { ran_ns: 100_000, .. }).then_some(())).len(),
        )
    };
    assert_eq!(records(&[]), (0, 0));
    assert_eq!(records(&[("trace_schedule", "true")]), (3, 1));
}

/// The pool's rate limit and slice are read anew each time.
#[test]
fn tunables_change_online() {
    let mut world = world("1n1l1c1t", &features(&[]), vec![Dom::new(256, 0, 2, Load::BURNER)]);
    world.run_until(90 * MS);
    let slices = |world: &World<Credit1>| {
        events(world, |e| match e {
            XenEvent::SwitchInfNext { slice_ns, .. } => *slice_ns,
            _ => None,
        })
    };
    assert!(slices(&world).iter().all(|s| *s == 30_000_000));
    world.on(CpuId(0)).xen.set_tunables(&world.p, 0, crate::xen::contract::Tunables { ratelimit: 0, tslice: 5 * MS });
    world.run_until(150 * MS);
    forget(&world);
    world.run_until(250 * MS);
    let after = slices(&world);
    assert!(after.len() >= 18 && after.iter().all(|s| *s == 5_000_000), "{after:?}");
}
