//! What an idle pCPU takes, and where vCPUs are sent: two sockets of two cores, pCPUs 0 and 1, 2 and 3.

use super::*;
use crate::xen::credit1::{IDLERS, pri};
use crate::xen::perf::Perf;
use crate::xen::testing::Load;

const ALL: [u16; 4] = [0, 1, 2, 3];

/// On each pCPU but 0 a burner that must stay, and one or more that wait behind it and may leave from 15 ms on for where `hard`
/// says, and would rather be where `soft` says; on pCPU 0 a vCPU that sleeps from 20 ms on. Returns whom pCPU 0 stole then, as
/// (from, number of the waiter).
fn stolen(set: &[(&str, &str)], waiters: &[(u16, &[u16], &[u16])]) -> Vec<(u16, u16)> {
    stolen_again(set, waiters, 0)
}

/// The same; then `again` times what pCPU 0 has stolen is paused, and it looks anew.
fn stolen_again(set: &[(&str, &str)], waiters: &[(u16, &[u16], &[u16])], again: u64) -> Vec<(u16, u16)> {
    let pinned = |cpu| Dom::new(256, 0, 1, Load::BURNER).hard(cpus(&[cpu]));
    let mut doms = vec![Dom::new(256, 0, 1, Load { run: 20 * MS, sleep: SECOND }).hard(cpus(&[0]))];
    doms.extend([1, 2, 3].map(pinned));
    doms.extend(waiters.iter().map(|(at, _, _)| pinned(*at)));
    let mut world = world("2n1l2c1t", &features(set), doms);
    world.run_until(15 * MS);
    for (i, (at, hard, soft)) in waiters.iter().enumerate() {
        let unit = TaskId(4 + i as u32);
        let u = world.xen.unit(unit);
        assert_eq!((u.processor(), world.xen.is_running(&world.p, unit)), (CpuId(*at), false), "it waits");
        affine(&world, unit, cpus(hard), cpus(soft));
    }
    forget(&world);
    world.run_until(21 * MS);
    for i in 0..again {
        let at = world.xen.curr(CpuId(0)).expect("it has stolen");
        world.on(CpuId(0)).xen.pause(&world.p, at, crate::xen::units::pause::PAUSED);
        world.softirqs();
        world.run_until(21 * MS + (i + 1) * 2 * MS);
    }
    events(&world, |e| match e {
        XenEvent::Credit1Stolen { peer, vcpu } => Some((peer.0, vcpu.dom - 5)),
        _ => None,
    })
}

#[test]
fn the_own_node_comes_first() {
    assert_eq!(stolen(&[], &[(2, &ALL, &ALL), (1, &ALL, &ALL)]), [(1, 1)]);
    assert_eq!(stolen(&[], &[(3, &ALL, &ALL), (2, &ALL, &ALL)]), [(2, 1)], "then the lowest number");
}

#[test]
fn who_prefers_this_pcpu_comes_before_who_only_may_run_here() {
    // The vCPU of the own node would rather be on the other; the other way round for the other.
    assert_eq!(stolen(&[], &[(1, &ALL, &[2, 3]), (2, &ALL, &[0, 1])]), [(2, 1)]);
    // A soft affinity with all is no preference: there is no soft step for it.
    assert_eq!(stolen(&[], &[(1, &ALL, &ALL), (2, &ALL, &[0, 1])]), [(2, 1)]);
    // Nobody prefers it: the hard step.
    assert_eq!(stolen(&[], &[(1, &ALL, &[2, 3])]), [(1, 0)]);
    assert_eq!(
        stolen(&[], &[(1, &[1, 2], &ALL), (3, &[0, 3], &ALL)]),
        [(3, 1)],
        "where it may not run it is not taken"
    );
}

#[test]
fn a_vcpu_that_ran_a_moment_ago_may_be_too_hot() {
    assert_eq!(stolen(&[("vcpu_migration_delay_us", "10000")], &[(1, &ALL, &ALL)]), [(1, 0)], "it has not run yet");
    let one = |set: &[(&str, &str)]| {
        // On pCPU 1 two burners take turns from 30 ms on; pCPU 0 comes free 5 ms after.
        let doms = vec![
            Dom::new(256, 0, 1, Load { run: 35 * MS, sleep: SECOND }).hard(cpus(&[0])),
            Dom::new(256, 0, 2, Load::BURNER).hard(cpus(&[1])),
        ];
        let mut world = world("1n1l2c1t", &features(set), doms);
        world.run_until(34 * MS);
        assert_eq!(world.xen.curr(CpuId(1)), Some(TaskId(2)));
        affine(&world, TaskId(1), cpus(&[0, 1]), cpus(&[0, 1]));
        world.run_until(36 * MS);
        world.xen.curr(CpuId(0))
    };
    assert_eq!(one(&[]), Some(TaskId(1)));
    assert_eq!(one(&[("vcpu_migration_delay_us", "4000")]), Some(TaskId(1)), "cold after 5 ms");
    assert_eq!(one(&[("vcpu_migration_delay_us", "6000")]), None, "hot");
}

/// Later changes: 2017's and 2023's.
#[test]
fn later_stealing_skips_and_waits() {
    let searches = |set: &[(&str, &str)]| {
        // pCPU 0 goes idle again and again, and nobody waits anywhere.
        let pinned = |cpu| Dom::new(256, 0, 1, Load::BURNER).hard(cpus(&[cpu]));
        let blink = Load { run: MS / 10, sleep: MS / 10 };
        let doms = vec![Dom::new(256, 0, 1, blink).hard(cpus(&[0])), pinned(1), pinned(2), pinned(3)];
        let mut world = world("2n1l2c1t", &features(set), doms);
        world.run_until(100 * MS);
        let checked = events(&world, |e| match e {
            XenEvent::Credit1StealCheck { checked, .. } => Some(*checked),
            _ => None,
        });
        (world.count(Perf::LoadBalanceIdle), checked, world.xen.trylocks()[0])
    };
    let (base, checked, tried) = searches(&[]);
    assert!(base > 400 && checked.is_empty() && tried > 2000, "{base} {tried}");
    let (y2017, checked, tried) = searches(&[("c1_2017", "true")]);
    assert!(y2017 > 400 && checked.len() > 2000 && checked.iter().filter(|c| **c).count() < 20, "{y2017}");
    assert!(tried < 20, "queues with one runnable vCPU are not locked: {tried}");
    let (y2023, _, _) = searches(&[("c1_2023", "true")]);
    assert!(y2023 < 110, "once a ms: {y2023}");
}

/// 2017: the search begins behind whom was stolen from last.
#[test]
fn later_stealing_goes_round() {
    let both: &[(u16, &[u16], &[u16])] = &[(2, &ALL, &ALL), (2, &ALL, &ALL), (3, &ALL, &ALL), (3, &ALL, &ALL)];
    let peers = |set: &[(&str, &str)]| stolen_again(set, both, 3).iter().map(|(peer, _)| *peer).collect::<Vec<_>>();
    assert_eq!(peers(&[]), [2, 2, 3, 3], "from the lowest, until nobody waits there");
    assert_eq!(peers(&[("c1_2017", "true")]), [2, 3, 2, 3]);
}

#[test]
fn todays_stealing_leaves_who_yielded() {
    let stolen = |set: &[(&str, &str)]| {
        let doms = vec![
            Dom::new(256, 0, 1, Load { run: 20 * MS, sleep: SECOND }).hard(cpus(&[0])),
            Dom::new(256, 0, 2, Load::BURNER).hard(cpus(&[1])),
        ];
        let mut world = world("1n1l2c1t", &features(set), doms);
        world.run_until(18 * MS);
        let first = world.xen.curr(CpuId(1)).expect("a burner runs");
        world.on(CpuId(1)).xen.yield_unit(&world.p, first);
        world.softirqs();
        assert_ne!(world.xen.curr(CpuId(1)), Some(first), "it waits");
        affine(&world, first, cpus(&[0, 1]), cpus(&[0, 1]));
        world.run_until(21 * MS);
        world.xen.curr(CpuId(0)) == Some(first)
    };
    assert!(stolen(&[]) && stolen(&[("c1_2017", "true")]));
    assert!(!stolen(&[("c1_2023", "true")]));
}

/// The pCPU that `pick` says for a sleeping vCPU on `own` when just `idle` are idle, on two sockets of two cores of two threads.
///
/// Numbers are by core here, {0,1} {2,3} | {4,5} {6,7}; the machine's are first threads first.
fn picked(set: &[(&str, &str)], own: u16, soft: &[u16], idle: &[u16]) -> u16 {
    const BY_CORE: [u16; 8] = [0, 4, 1, 5, 2, 6, 3, 7];
    let real = |list: &[u16]| list.iter().map(|c| BY_CORE[usize::from(*c)]).collect::<Vec<_>>();
    let (own, soft, idle) = (BY_CORE[usize::from(own)], real(soft), real(idle));
    let world = world("2n1l2c2t", &features(set), vec![Dom::new(256, 0, 1, Load { run: MS, sleep: 1000 * SECOND })]);
    let mut world = world;
    world.run_until(5 * MS);
    let unit = TaskId(0);
    put(&world, unit, CpuId(own));
    affine(&world, unit, CpuMask::first_n(8), cpus(&soft));
    let cx = world.cx(false);
    (0..8).for_each(|c| cx.mask_put(IDLERS, CpuId(c), idle.contains(&c)));
    // Somebody waits on its own pCPU, which is busy unless it is named.
    let rq = cx.lock_unit(unit);
    if !idle.contains(&own) {
        let entry = crate::xen::credit1::queue::Entry { unit: TaskId(77), pri: pri::UNDER, yielded: false };
        cx.with_rq(rq, |q| q.insert(entry));
    }
    let cpu = Credit1::new(&features(set)).pick(&cx, unit);
    BY_CORE.iter().position(|c| *c == cpu.0).expect("a pCPU") as u16
}

#[test]
fn pick_prefers_idle_neighbourhoods() {
    let all: Vec<u16> = (0..8).collect();
    let base = |own, soft: &[u16], idle: &[u16]| picked(&[], own, soft, idle);
    assert_eq!(base(0, &all, &[]), 0, "nobody is idle: where it is");
    assert_eq!(base(0, &all, &all), 0, "all are: where it is");
    assert_eq!(base(0, &all, &[5]), 5, "the one that is");
    assert_eq!(base(0, &all, &[0, 2, 3]), 2, "an idle core in the socket is better than half a one");
    assert_eq!(base(0, &all, &[0, 4, 5]), 0, "twice as many in the other socket are not enough");
    assert_eq!(base(0, &all, &[0, 4, 5, 6]), 4, "three times as many are");
    assert_eq!(base(0, &all, &[0, 1, 4, 5, 6]), 0, "three are not twice two and more");
    assert_eq!(base(0, &[2, 3], &[0, 1, 3]), 3, "soft affinity first");
    assert_eq!(base(0, &[2, 3], &[5]), 5, "then hard");
    assert_eq!(picked(&[("smt_power_savings", "true")], 0, &all, &[0, 1, 3]), 3, "the core in use already");
}

/// Two that wake on one idle pCPU before it has looked both tickle it alone: the second waits beside an idle pCPU until a tick moves
/// the first. (When it has left, `pick_cpu` finds its pCPU's queue empty and sends it back there; from there it is stolen by the
/// idle pCPU that its wake-up tickles. Without patch 2 that may be the wrong one, and takes another tick.)
#[test]
fn a_tick_moves_who_could_be_better_off() {
    // Cores are pCPUs 0 and 2, 1 and 3; the second is idle, but two burners must stay on the first until 45 ms.
    let doms = vec![Dom::new(256, 0, 2, Load::BURNER).hard(cpus(&[0]))];
    let mut world = world("1n1l2c2t", &features(&[("c1_tickle_mask", "true")]), doms);
    (0..2).for_each(|u| affine(&world, TaskId(u), cpus(&[0, 2]), cpus(&ALL)));
    let at = |world: &World<Credit1>| {
        let mut at = [0, 1].map(|u| world.xen.unit(TaskId(u)).processor().0);
        at.sort_unstable();
        at
    };
    assert_eq!(at(&world), [0, 0]);
    world.run_until(45 * MS);
    assert_eq!(at(&world), [0, 2], "a thread each");
    let before = world.count(Perf::MigrateRunning);
    assert_eq!(before, 1);
    (0..2).for_each(|u| affine(&world, TaskId(u), cpus(&ALL), cpus(&ALL)));
    world.run_until(75 * MS);
    let [a, b] = at(&world);
    assert_ne!(a % 2, b % 2, "one has gone to the idle core");
    assert_eq!(world.count(Perf::MigrateRunning), before + 1);
}
