//! Picking runqueues, moving load between them, and requests to migrate.

use super::super::balance::{Movable, Sides, choose, worthwhile};
use super::super::pick::{Seen, fallback, least_loaded};
use super::*;
use crate::xen::contract::{Lend, RqId, XenPolicy};
use crate::xen::perf::Perf;
use crate::xen::testing::{Dom, Load};
use crate::xen::units::VcpuAffinity;

/// One vCPU's full load.
const P: i64 = 1 << 18;

fn movable(avg: i64) -> Movable {
    Movable { avg, may: true, leaves: false, enters: false }
}
fn sides(own: i64, other: i64) -> Sides {
    Sides { own, other, room: None, home_only: false }
}

#[test]
fn the_smallest_difference_wins() {
    let (push, pull) = ([movable(P), movable(P / 2), movable(P / 8)], [movable(P), movable(P / 4)]);
    // 4 against 3: give a half; or give a whole and take a half ... of what there is, the half alone is best.
    assert_eq!(choose(&sides(4 * P, 3 * P), &push, &pull), (Some(1), None));
    assert_eq!(choose(&sides(5 * P, 2 * P), &push, &pull), (Some(0), None));
    assert_eq!(choose(&sides(3 * P, 4 * P), &push, &pull), (Some(1), Some(0)), "a half against a whole");
    assert_eq!(
        choose(&sides(3 * P, 4 * P), &[], &pull),
        (None, Some(1)),
        "pull only: a quarter is better than a whole"
    );
    assert_eq!(choose(&sides(P, P), &push, &pull), (None, None), "nothing is better");
    let pinned = [Movable { may: false, ..movable(P / 2) }];
    assert_eq!(choose(&sides(4 * P, 3 * P), &pinned, &[]), (None, None));
}

#[test]
fn thresholds() {
    let conf = conf("base");
    // Two pCPUs: below 2 P it takes a difference of P, else of an eighth.
    assert!(!worthwhile(&conf, P - 1, 2 * P - 1, 2) && worthwhile(&conf, P, 2 * P - 1, 2));
    assert!(!worthwhile(&conf, P / 8 - 1, 2 * P, 2) && worthwhile(&conf, P / 8, 2 * P, 2));
    // Recorded by Xen 4.17: 637,651 against 604,697, two pCPUs each, were balanced.
    assert!(worthwhile(&conf, 32_954, 637_651, 2));
}

#[test]
fn the_least_loaded_runqueue() {
    let seen = |rq, b_avgload, hard, soft| Seen { rq: RqId(rq), b_avgload, hard, soft };
    let all = [seen(0, 9, true, false), seen(1, 3, true, true), seen(2, 1, true, false), seen(3, 0, false, false)];
    assert_eq!(least_loaded(&all, false).unwrap().rq, RqId(2), "of those that it may use");
    assert_eq!(least_loaded(&all, true).unwrap().rq, RqId(1), "patch 18: of those that it prefers");
    assert_eq!(least_loaded(&all[2..], true).unwrap().rq, RqId(2), "or, if none is, of all");
    assert_eq!(least_loaded(&all[3..], true), None);
}

#[test]
fn fallbacks_in_order() {
    let (rq, hard, soft) = (cpus("0-3"), cpus("1-7"), cpus("2,6"));
    assert_eq!(fallback(CpuId(1), &rq, &hard, None), CpuId(1), "the own pCPU");
    assert_eq!(fallback(CpuId(0), &rq, &hard, None), CpuId(1), "the own runqueue");
    assert_eq!(fallback(CpuId(0), &cpus("0"), &hard, None), CpuId(1), "any");
    assert_eq!(fallback(CpuId(6), &rq, &hard, Some(&soft)), CpuId(6));
    assert_eq!(fallback(CpuId(1), &rq, &hard, Some(&soft)), CpuId(2), "patch 18: the own runqueue, preferred");
    assert_eq!(fallback(CpuId(1), &rq, &hard, Some(&cpus("6"))), CpuId(1), "before others, preferred");
}

/// Patch 19.
#[test]
fn soft_affinity_weighs_in_the_balance() {
    let room = Some((2 * P, 2 * P));
    let sides = |own, other, home_only| Sides { own, other, room, home_only };
    let (at_home, visitor, guest) =
        (Movable { leaves: true, ..movable(P) }, Movable { enters: true, ..movable(P) }, movable(P / 2));
    // As many vCPUs as pCPUs: nobody leaves home for a better balance; who does not care may.
    assert_eq!(choose(&sides(2 * P, 0, false), &[at_home], &[]), (None, None));
    assert_eq!(choose(&sides(2 * P, 0, false), &[at_home, guest], &[]), (Some(1), None));
    // Overloaded: then it is worth it, if that brings more than the vCPU's own load.
    assert_eq!(choose(&sides(4 * P, 0, false), &[at_home], &[]), (Some(0), None));
    assert_eq!(choose(&sides(3 * P, 2 * P, false), &[at_home], &[]), (None, None));
    // Of two that even the loads out alike the one that comes home goes.
    assert_eq!(choose(&sides(4 * P, 2 * P, false), &[movable(P), visitor], &[]), (Some(1), None));
    // With loads near enough: an exchange of visitors, or one into a queue with room, and nothing else.
    assert_eq!(choose(&sides(2 * P, 2 * P, true), &[guest, visitor], &[visitor]), (Some(1), Some(0)));
    assert_eq!(choose(&sides(P, P / 2, true), &[visitor], &[]), (Some(0), None));
    assert_eq!(choose(&sides(3 * P, 3 * P, true), &[guest], &[guest]), (None, None));
    assert_eq!(choose(&sides(2 * P, 2 * P, true), &[visitor], &[]), (None, None), "not into a full one");
}

/// Eight burners pinned to one node of two, then set free.
fn freed(set: &str, soft: CpuMask, until: Time) -> World<Credit2> {
    let policy = credit2(set, &[("credit2_runqueue", "socket")]);
    let doms = vec![Dom::new(256, 0, 8, Load::BURNER).hard(cpus("0-1"))];
    let mut world = World::new(&topo("2n1l2c1t"), policy, doms);
    world.run_until(2 * S);
    for n in 0..8 {
        world.on(CpuId(0)).xen.set_affinity(&world.p, unit(n), VcpuAffinity { hard: cpus("0-3"), soft });
    }
    world.run_until(until);
    world
}

#[test]
fn load_moves_where_there_is_none() {
    for set in SETS {
        let mut world = freed(set, cpus("0-3"), 3 * S);
        assert_eq!([0, 1].map(|q| with_rq(&world, q, |r| r.assigned.len())), [4, 4], "{set}");
        assert!(world.count(Perf::MigrateOnRunq) > 0, "{set}");
        let before: Vec<u64> = (0..8).map(|u| world.ran(u)).collect();
        world.run_until(13 * S);
        for n in 0..8 {
            let share = (world.ran(n) - before[n as usize]) as f64 / (5 * S) as f64;
            assert!((share - 1.0).abs() < 0.05, "{set}: vCPU {n} had {share} of its due");
        }
    }
}

#[test]
fn patch_4_a_running_vcpu_leaves_at_once() {
    // Time from the request to the move, at most.
    let longest = |set: &str| {
        let world = freed(set, cpus("0-3"), 10 * S);
        assert!(world.count(Perf::MigrateRunning) > 0 && world.count(Perf::MigrateRequested) > 0);
        let moves = events(&world, |e| match e {
            XenEvent::Credit2Migrate { vcpu, .. } => Some((*vcpu, true)),
            XenEvent::Credit2RunqAssign { vcpu, .. } => Some((*vcpu, false)),
            _ => None,
        });
        let waits = moves.iter().enumerate().filter(|(_, m)| m.2.1).map(|(i, m)| {
            let to = moves[i..].iter().find(|n| n.2 == (m.2.0, false));
            to.map_or(0, |to| to.0 - m.0)
        });
        waits.max().unwrap()
    };
    assert_eq!(longest("4"), 0);
    let base = longest("base");
    assert!((100_000..=2 * MS).contains(&base), "the base waits for the next decision: {base}");
}

#[test]
fn a_pcpu_that_is_to_let_a_vcpu_go_counts_as_tickled() {
    let world = freed("4,8", cpus("0-3"), 10 * S);
    let of = events(&world, |e| match e {
        XenEvent::Credit2Migrate { .. } => Some(None),
        XenEvent::Credit2Schedule { idle: false, tickled: true, cpu, .. } => Some(Some(*cpu)),
        XenEvent::Credit2Tickle { cpu } => Some(Some(*cpu)),
        _ => None,
    });
    // After a request the pCPU schedules, tickled, though no vCPU looked for it.
    assert!(of.windows(2).any(|w| w[0].2.is_none() && w[1].2 == Some(w[1].1)));
}

#[test]
fn locks_that_are_held_are_not_waited_for() {
    let world = freed("base", cpus("0-3"), 2 * S);
    let policy = credit2("base", &[("credit2_runqueue", "socket")]);
    let loads = |w: &World<Credit2>| [0, 1].map(|q| with_rq(w, q, |r| r.assigned.len()));
    let before = loads(&world);
    // Somebody holds the other runqueue's lock: no balancing, and nothing picked there.
    let other = world.on(CpuId(2)).cx(true);
    let cx = world.on(CpuId(0)).cx(true);
    policy.balance_load(&cx, world.now());
    assert_eq!(loads(&world), before);
    let victim = with_rq(&world, 0, |r| r.list[0].unit);
    with_rq(&world, 0, |r| r.b_avgload = 9 * P);
    assert!(cpus("0-1").contains(policy.pick(&cx, victim)));
    other.release(RqId(1));
    assert!(cpus("2-3").contains(policy.pick(&cx, victim)), "free: the less loaded one");
    // Somebody writes under the pool's lock: the vCPU stays.
    let writer = world.cx(false);
    writer.lock_global();
    assert!(cpus("0-1").contains(policy.pick_cpu(&cx, victim)));
    assert_eq!(world.count(Perf::PickResource), 1);
    policy.balance_load(&cx, world.now());
    assert_eq!(loads(&world), before);
    writer.unlock_global();
    policy.balance_load(&cx, world.now());
    let after = loads(&world);
    assert!(after[0] < before[0] || world.count(Perf::MigrateRunning) > 0, "{after:?}");
    cx.release(RqId(0));
}

#[test]
fn the_own_load_does_not_count() {
    let policy = credit2("base", &[("credit2_runqueue", "socket")]);
    let mut world = World::new(&topo("2n1l1c1t"), policy, vec![Dom::new(256, 0, 1, Load::BURNER)]);
    world.run_until(3 * S);
    let cpu = world.xen.unit(unit(0)).processor();
    let rq = usize::from(cpu.0);
    let cx = world.on(cpu).cx(true);
    // Alone with its whole load here, beside half as much there: it stays.
    with_rq(&world, 1 - rq, |r| r.b_avgload = P / 2);
    assert_eq!(policy.pick(&cx, unit(0)), cpu);
    with_rq(&world, rq, |r| r.b_avgload += P);
    assert_ne!(policy.pick(&cx, unit(0)), cpu);
    cx.release(RqId(rq as u16));
}

/// Patch 19 does not wait for a home whose lock is held: two runqueues could want each other.
#[test]
fn a_home_that_is_locked_is_given_up() {
    let policy = credit2("16-19", &[("credit2_runqueue", "socket")]);
    let mut world = World::new(&topo("2n1l1c1t"), policy, vec![Dom::new(256, 0, 2, Load::BURNER)]);
    world.run_until(3 * S);
    let here = with_rq(&world, 0, |r| r.assigned[0]);
    let there = with_rq(&world, 1, |r| r.assigned[0]);
    let prefer = |n: UnitId, hard: &str, soft: &str| {
        let affinity = VcpuAffinity { hard: cpus(hard), soft: cpus(soft) };
        world.on(CpuId(0)).xen.set_affinity(&world.p, n, affinity);
    };
    prefer(here, "0-1", "1");
    prefer(there, "1", "1");
    let going = |w: &World<Credit2>| with_unit(w, here.0, |u| u.migrate_to.is_some());
    let other = world.on(CpuId(1)).cx(true);
    let cx = world.on(CpuId(0)).cx(true);
    policy.balance_load(&cx, world.now());
    assert!(!going(&world));
    other.release(RqId(1));
    policy.balance_load(&cx, world.now());
    assert!(!going(&world), "its home is full");
    // Once who runs there may leave they change places, though the loads are equal.
    cx.release(RqId(0));
    prefer(there, "0-1", "0-1");
    let cx = world.on(CpuId(0)).cx(true);
    policy.balance_load(&cx, world.now());
    assert!(going(&world) && with_unit(&world, there.0, |u| u.migrate_to.is_some()));
    cx.release(RqId(0));
}

/// The maxima that decide on the threshold are those of the runqueue scanned last.
#[test]
fn the_quirk_is_kept() {
    let policy = credit2("base", &[("credit2_runqueue", "core")]);
    let doms = vec![Dom::new(256, 0, 3, Load::BURNER)];
    let world = World::new(&topo("1n1l3c1t"), policy, doms);
    let balanced = |loads: [i64; 3]| {
        (0..3).for_each(|q| with_rq(&world, q, |r| r.b_avgload = loads[q]));
        let before = events(&world, |e| matches!(e, XenEvent::Credit2LoadBalance { .. }).then_some(())).len();
        let cx = world.on(CpuId(0)).cx(true);
        policy.balance_load(&cx, world.now());
        cx.release(RqId(0));
        events(&world, |e| matches!(e, XenEvent::Credit2LoadBalance { .. }).then_some(())).len() > before
    };
    // A difference of half a vCPU to runqueue 1, which is overloaded; the last one is not, and decides.
    assert!(!balanced([P / 2, P, P / 2]));
    assert!(balanced([P / 2, P / 2, P]));
}
