//! Tickling under affinities: patches 1 and 2, later changes, and what it is worth.

use super::*;
use crate::xen::perf::Perf;
use crate::xen::testing::Load;

const NEW: UnitId = TaskId(0);
const CUR: UnitId = TaskId(1);
/// Runs 100 us whenever it is woken by hand.
const SHORT: Load = Load { run: MS / 10, sleep: 1000 * SECOND };

/// Two sockets of two cores. NEW sleeps on pCPU 0, which runs CUR; `burners` more are pinned to the pCPUs named. It is 45 ms.
fn host(set: &[(&str, &str)], burners: &[u16], new: (&[u16], &[u16]), cur: &[u16]) -> World<Credit1> {
    let mut doms = vec![Dom::new(256, 0, 1, SHORT), Dom::new(256, 0, 1, Load::BURNER).hard(cpus(&[0]))];
    doms.extend(burners.iter().map(|c| Dom::new(256, 0, 1, Load::BURNER).hard(cpus(&[*c]))));
    let mut world = world("2n1l2c1t", &features(set), doms);
    world.run_until(45 * MS);
    affine(&world, CUR, cpus(cur), cpus(&[0, 1, 2, 3]));
    affine(&world, NEW, cpus(&[0, 1, 2, 3]), cpus(new.1));
    put(&world, NEW, CpuId(0));
    affine(&world, NEW, cpus(new.0), cpus(new.1));
    assert_eq!(world.xen.curr(CpuId(0)), Some(CUR));
    forget(&world);
    world
}

/// Whom wake-ups of NEW on busy pCPU 0 tickle, one after the other.
fn tickled(set: &[(&str, &str)], hard: &[u16], soft: &[u16], times: usize) -> Vec<u16> {
    let mut world = host(set, &[], (hard, soft), &[0]);
    let mut to = Vec::new();
    for i in 1..=times as u64 {
        wake(&world, NEW);
        to.extend(events(&world, |e| match e {
            XenEvent::Credit1Tickle { cpu } => Some(cpu.0),
            _ => None,
        }));
        world.run_until((45 + 70 * i) * MS);
        put(&world, NEW, CpuId(0));
        affine(&world, NEW, cpus(hard), cpus(soft));
        forget(&world);
    }
    to
}

/// Patch 2, the bug: among idle pCPUs the next one is tickled, wherever NEW wants to be.
#[test]
fn base_tickles_outside_the_affinity_and_patch_2_does_not() {
    let patch = [("c1_tickle_mask", "true")];
    assert_eq!(tickled(&[], &[0, 1, 2, 3], &[0, 1], 4), [1, 2, 3, 1], "round all that are idle");
    assert_eq!(tickled(&patch, &[0, 1, 2, 3], &[0, 1], 4), [1; 4], "round all that are idle and in the soft affinity");
    assert_eq!(tickled(&[], &[0, 3], &[0, 1, 2, 3], 3), [1, 2, 3], "even where it may not run");
    assert_eq!(tickled(&patch, &[0, 3], &[0, 1, 2, 3], 3), [3; 3]);
    assert_eq!(tickled(&patch, &[0, 2, 3], &[0, 1, 2, 3], 4), [2, 3, 2, 3], "a round still");
    assert_eq!(tickled(&[("tickle_one_idle_cpu", "false")], &[0, 2, 3], &[0, 1, 2, 3], 1), [2, 3], "all of them");
}

/// ... and what follows: the pCPU that was tickled finds nothing that it may run, and NEW waits for the slice of another.
#[test]
fn base_leaves_a_vcpu_waiting_while_its_pcpu_idles() {
    let waited = |set: &[(&str, &str)]| {
        let mut world = host(set, &[], (&[0, 3], &[0, 1, 2, 3]), &[0]);
        wake(&world, NEW);
        world.run_until(110 * MS);
        (world.xen.unit(NEW).book.borrow().wait_max, world.count(Perf::LoadBalanceIdle) > 0)
    };
    let (base, searched) = waited(&[]);
    assert!(base > 10 * MS && searched, "waited {base} ns with pCPU 3 idle");
    assert_eq!(waited(&[("c1_tickle_mask", "true")]).0, 0);
}

/// Patch 1 changes how it is asked whether the running vCPU could leave, not the answer.
#[test]
fn patch_1_decides_as_base_does() {
    for cur in [&[0][..], &[0, 2], &[0, 1], &[0, 1, 2, 3]] {
        let kicks = |set: &[(&str, &str)]| {
            // pCPUs 2 and 3 are idle, but NEW may run on 0 alone; CUR where `cur` says.
            let world = host(set, &[1], (&[0], &[0, 1, 2, 3]), cur);
            wake(&world, NEW);
            assert_eq!(world.xen.curr(CpuId(0)), Some(NEW), "it is of higher priority");
            let at = world.xen.unit(CUR).processor();
            (world.count(Perf::MigrateKickedAway), at, world.xen.curr(at) == Some(CUR))
        };
        let base = kicks(&[]);
        assert_eq!(base, kicks(&[("c1_tickle_cur_hard", "true")]), "{cur:?}");
        let away = cur.iter().any(|c| *c >= 2);
        assert_eq!(base.0, u64::from(away), "kicked away if it can go somewhere idle: {cur:?}");
        assert_eq!(base.2, away, "and runs there");
        // Today's code looks at the wrong mask, and never does.
        assert_eq!(kicks(&[("c1_2023", "true")]).0, 0);
    }
}

/// Patch 1 is worth a mask's work.
#[test]
fn patch_1_saves_the_work_of_a_mask() {
    let probes = |set: &[(&str, &str)]| {
        let world = host(set, &[1], (&[0], &[0, 1, 2, 3]), &[0, 2]);
        let before = world.p.charged(contend_platform::Work::Probe);
        world.on(CpuId(0)).xen.unblock(&world.p, NEW);
        world.p.charged(contend_platform::Work::Probe) - before
    };
    assert_eq!(probes(&[]), probes(&[("c1_tickle_cur_hard", "true")]) + 1);
}

/// 2017: who was tickled is not idle any more, so a second wake-up at once goes elsewhere.
#[test]
fn later_tickling_takes_a_pcpu_once() {
    let idlers = |set: &[(&str, &str)]| {
        let world = host(set, &[], (&[0, 1], &[0, 1, 2, 3]), &[0]);
        world.on(CpuId(0)).xen.unblock(&world.p, NEW);
        format!("{:?}", world.cx(false).mask(crate::xen::credit1::IDLERS))
    };
    let mask = ("c1_tickle_mask", "true");
    assert_eq!(idlers(&[mask]), "1-3");
    assert_eq!(idlers(&[mask, ("c1_2017", "true")]), "2-3");
}

/// The study's shape in small: 16 pCPUs on two nodes; two domains of 8 vCPUs with soft affinity to a node each, that run and
/// sleep; 12 vCPUs without that burn.
fn study(set: &[(&str, &str)], dom0: usize) -> (f64, f64) {
    let node = |n: u16| (n * 8..n * 8 + 8).collect::<Vec<_>>();
    let vm = |n, run| Dom::new(256, 0, 8, Load { run, sleep: 2 * MS }).soft(cpus(&node(n)));
    let doms = vec![vm(0, 1_300_000), vm(1, 1_700_000), Dom::new(256, 0, dom0, Load::BURNER)];
    let mut world = world("2n1l8c1t", &features(set), doms);
    world.run_until(5 * SECOND);
    let (mut in_soft, mut ran, mut waited) = (0, 0, 0);
    for unit in 0..16 {
        let book = world.xen.unit(TaskId(unit)).book.borrow();
        in_soft += book.in_soft;
        ran += book.times[0];
        waited += book.times[1];
    }
    (percent(in_soft, ran), percent(waited, ran))
}

/// Without load it is rare that a vCPU finds its own pCPU busy; between that and too much the bug costs most.
#[test]
fn patch_2_keeps_vcpus_in_their_soft_affinity() {
    for dom0 in [2, 4, 6, 8, 10] {
        let base = study(&[], dom0);
        let patched = study(&[("c1_tickle_mask", "true")], dom0);
        let gain = if dom0 == 8 { 20.0 } else { 0.0 };
        assert!(
            patched.0 > base.0 + gain,
            "residency with {dom0} burners: {base:?} {patched:?} per cent (and waiting)"
        );
    }
    // With 12 nobody is idle, and the patch chooses among idle pCPUs.
    assert_eq!(study(&[], 12), study(&[("c1_tickle_mask", "true")], 12));
}
