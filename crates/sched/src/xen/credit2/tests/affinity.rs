//! Hard affinity always, soft affinity with the patches for it.

use super::*;
use crate::xen::event::{RunState, VcpuId};
use crate::xen::perf::Perf;
use crate::xen::testing::{Dom, Load};
use crate::xen::units::VcpuAffinity;
use proptest::prelude::*;

/// Time that a vCPU has run within its soft affinity, up to now.
fn in_soft(world: &World<Credit2>, n: u32) -> u64 {
    let u = world.xen.unit(unit(n));
    let book = u.book.borrow();
    let running = book.state == RunState::Running && book.last.is_some_and(|c| u.affinity().soft.contains(c));
    book.in_soft + if running { world.now() - book.since } else { 0 }
}

/// Share of its running that a domain did within its soft affinity.
fn residency(world: &World<Credit2>, dom: u16) -> f64 {
    let units = world.xen.units.iter().enumerate().filter(|(_, u)| u.info.dom == dom);
    let (soft, ran) =
        units.fold((0, 0), |(soft, ran), (i, _)| (soft + in_soft(world, i as u32), ran + world.ran(i as u32)));
    soft as f64 / ran as f64
}

/// Two domains, each preferring a node, and one that does not care.
fn two_nodes(set: &str, how: &str, soft: [&str; 2], until: Time) -> World<Credit2> {
    let policy = credit2(set, &[("credit2_runqueue", how)]);
    let load = Load { run: 3 * MS, sleep: 2 * MS };
    let doms = vec![
        Dom::new(256, 0, 4, load).soft(cpus(soft[0])),
        Dom::new(256, 0, 4, load).soft(cpus(soft[1])),
        Dom::new(256, 0, 3, Load { run: 5 * MS, sleep: 7 * MS }),
    ];
    let mut world = World::new(&topo("2n1l4c1t"), policy, doms);
    world.run_until(until);
    world
}

#[test]
fn residency_rises_with_the_patches() {
    for how in ["socket", "all"] {
        let [base, with_17_18, with_20] = ["base", "16-18", "16-18,20"].map(|set| {
            let world = two_nodes(set, how, ["0-3", "4-7"], 5 * S);
            (residency(&world, 1) + residency(&world, 2)) / 2.0
        });
        assert!(base < 0.65, "{how}: the base knows no soft affinity: {base:.3}");
        assert!(with_17_18 > base + 0.2, "{how}: {base:.3} {with_17_18:.3}");
        assert!(with_20 >= with_17_18, "{how}: {with_17_18:.3} {with_20:.3}");
    }
}

/// Who switches to whom, where and when.
fn switches(world: &World<Credit2>) -> Vec<(Time, CpuId, (VcpuId, VcpuId))> {
    events(world, |e| match e {
        XenEvent::Switch { prev, next } => Some((*prev, *next)),
        _ => None,
    })
}

#[test]
fn nothing_changes_without_soft_affinity() {
    for how in ["socket", "all"] {
        for all in ["0-7", "0-511"] {
            let run = |set: &str| switches(&two_nodes(set, how, [all; 2], 2 * S));
            // Patch 17 decides ties otherwise (`tickles.rs`): the others are compared with and without it.
            for (without, sets) in [("base", ["16", "16,18", "16,18-19"]), ("16,17", ["16-18", "16-18,20", "16-20"])] {
                let without = run(without);
                assert!(without.len() > 1000);
                sets.iter().for_each(|set| assert!(without == run(set), "{how} {set} {all}"));
            }
        }
    }
}

#[test]
fn patch_18_new_vcpus_start_where_they_prefer() {
    let start = |set: &str| {
        let policy = credit2(set, &[("credit2_runqueue", "socket")]);
        let doms = vec![Dom::new(256, 0, 6, Load::BURNER).soft(cpus("2-3"))];
        let world = World::new(&topo("2n1l2c1t"), policy, doms);
        [0, 1].map(|q| with_rq(&world, q, |r| r.assigned.len()))
    };
    assert_eq!(start("base"), [3, 3]);
    assert_eq!(start("16,18"), [0, 6]);
}

#[test]
fn patch_20_a_vcpu_goes_home_when_there_is_room() {
    // One runqueue: a burner runs where it would rather not, since its node is full until the others end.
    let end = |set: &str| {
        let policy = credit2(set, &[("credit2_runqueue", "all")]);
        let once = Load { run: 200 * MS, sleep: 100 * S };
        let doms =
            vec![Dom::new(256, 0, 2, once).hard(cpus("0-1")), Dom::new(256, 0, 1, Load::BURNER).soft(cpus("0-1"))];
        let mut world = World::new(&topo("2n1l2c1t"), policy, doms);
        world.run_until(S);
        residency(&world, 2)
    };
    let (with, without) = (end("16,17,20"), end("16,17"));
    assert!(without < 0.05, "{without}");
    assert!(with > 0.75, "{with}");
}

/// Patch 19: what it brings where runqueues are nodes and domains were started in a bad way.
#[test]
fn patch_19_balances_towards_soft_affinity() {
    let run = |set: &str| {
        let policy = credit2(set, &[("credit2_runqueue", "socket")]);
        let doms = vec![Dom::new(256, 0, 3, Load::BURNER), Dom::new(256, 0, 3, Load::BURNER)];
        let mut world = World::new(&topo("2n1l2c1t"), policy, doms);
        world.run_until(S);
        // Now they get preferences, crosswise to where they run as far as the numbers go.
        for n in 0..6 {
            let soft = cpus(if n < 3 { "0-1" } else { "2-3" });
            world.on(CpuId(0)).xen.set_affinity(&world.p, unit(n), VcpuAffinity { hard: cpus("0-3"), soft });
        }
        let before: u64 = (0..6).map(|u| in_soft(&world, u)).sum();
        let from: u64 = (1..=2).map(|d| world.dom_ran(d)).sum();
        world.run_until(6 * S);
        let ran: u64 = (1..=2).map(|d| world.dom_ran(d)).sum::<u64>() - from;
        assert!(ran > 19 * S, "{set}: no pCPU idles for long: {ran}");
        let soft: u64 = (0..6).map(|u| in_soft(&world, u)).sum::<u64>() - before;
        soft as f64 / ran as f64
    };
    let (without, with) = (run("4,16-18"), run("4,16-19"));
    assert!(with > without + 0.15 && with > 0.9, "{without:.3} {with:.3}");
}

fn mask() -> impl Strategy<Value = CpuMask> {
    (1u8..=255).prop_map(|bits| CpuMask::from_words(std::iter::once(u64::from(bits))))
}

/// Run, sleep, hard and soft affinity.
type RandomVcpu = (u64, u64, CpuMask, CpuMask);

fn dom() -> impl Strategy<Value = (u16, u16, Vec<RandomVcpu>)> {
    let vcpu = (50_000u64..5_000_000, 0u64..5_000_000, mask(), mask());
    (1u16..2000, prop::sample::select(vec![0u16, 0, 30, 150]), prop::collection::vec(vcpu, 1..5))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]
    /// Random domains, patches and changes of affinity: nobody runs outside hard affinity, no pCPU idles while somebody who
    /// may run there waits in its runqueue for long, and the books agree.
    #[test]
    fn hard_affinity_and_books(
        doms in prop::collection::vec(dom(), 1..6),
        patches in any::<u32>(), today: bool, how in prop::sample::select(vec!["cpu", "core", "socket", "all"]),
        changes in prop::collection::vec((1u64..40, mask(), mask()), 0..4),
    ) {
        let mut f = XenFeatures::default();
        let on: Vec<String> = (4..=24).filter(|n| patches >> n & 1 != 0).map(|n| n.to_string()).collect();
        let on = if on.is_empty() { "none".into() } else { on.join(",") };
        f.set_patches(&on).unwrap();
        f.c2_today = today;
        f.set("credit2_runqueue", how).unwrap();
        let specs = doms.iter().map(|(weight, cap, vcpus)| {
            let mut d = Dom::new(*weight, *cap, vcpus.len(), Load::BURNER);
            d.vcpus = vcpus.iter().map(|(run, sleep, hard, soft)| {
                (Load { run: *run, sleep: *sleep }, VcpuAffinity { hard: *hard, soft: *soft })
            }).collect();
            d
        });
        let mut hard: Vec<CpuMask> = doms.iter().flat_map(|d| d.2.iter().map(|v| v.2)).collect();
        let mut world = World::new(&topo("2n1l2c2t"), Credit2::new(&f), specs.collect());
        let ids: Vec<VcpuId> = world.xen.units.iter().map(|u| u.info).collect();
        let mut seen = 0;
        for (at, to_hard, to_soft) in changes.iter().copied().chain([(60, cpus("0-7"), cpus("0-7"))]) {
            world.run_until(world.now() + at * MS);
            for (_, cpu, (_, next)) in &switches(&world)[seen..] {
                if !next.is_idle() {
                    let n = ids.iter().position(|i| i == next).unwrap();
                    prop_assert!(hard[n].contains(*cpu), "{:?} on {:?}, not in {:?}", next, cpu, hard[n]);
                }
            }
            check_books(&world)?;
            seen = switches(&world).len();
            let n = seen % hard.len();
            hard[n] = to_hard;
            world.on(CpuId(0)).xen.set_affinity(&world.p, unit(n as u32), VcpuAffinity { hard: to_hard, soft: to_soft });
            world.softirqs();
        }
        let resets = events(&world, |e| matches!(e, XenEvent::Credit2CreditReset { .. }).then_some(()));
        prop_assert_eq!(world.count(Perf::CreditReset) > 0, !resets.is_empty());
    }
}

/// Runqueues and vCPUs say the same.
fn check_books(world: &World<Credit2>) -> Result<(), TestCaseError> {
    let nr = world.xen.units.len() as u32;
    let rqs = world.xen.pools[0].rqs.len();
    let mut assigned = 0;
    for q in 0..rqs {
        let (list, units, load, max_weight, masks) = with_rq(world, q, |r| {
            (r.list.clone(), r.assigned.clone(), r.load.now, r.max_weight, (r.cpus, r.idle, r.tickled, r.smt_idle))
        });
        assigned += units.len();
        let running = masks.0.iter().filter(|c| world.xen.curr(*c).is_some()).count();
        prop_assert_eq!(load, (list.len() + running) as i64, "queued and running");
        prop_assert!(list.windows(2).all(|w| w[0].credit >= w[1].credit), "sorted");
        for e in &list {
            let (queued, credit) = with_unit(world, e.unit.0, |u| (u.queued, u.credit));
            prop_assert!(queued && credit == e.credit && units.contains(&e.unit));
        }
        let weights: Vec<u16> = units.iter().map(|u| with_unit(world, u.0, |u| u.weight)).collect();
        prop_assert_eq!(max_weight, weights.into_iter().max().unwrap_or(1));
        let idle: CpuMask = masks.0.iter().filter(|c| world.xen.curr(*c).is_none()).collect();
        prop_assert_eq!(masks.1, idle);
        prop_assert!(masks.2.is_empty(), "all that were tickled have scheduled");
        for cpu in masks.0.iter() {
            let core: CpuMask = world.xen.topo.core_cpus(world.xen.topo.core_of(cpu)).iter().copied().collect();
            prop_assert_eq!(masks.3.contains(cpu), (core & masks.0).is_subset(&idle), "smt_idle of {:?}", cpu);
        }
    }
    prop_assert_eq!(assigned, nr as usize);
    for n in 0..nr {
        let (queued, counted, delayed) = with_unit(world, n, |u| (u.queued, u.load.now, u.delayed_add));
        let running = world.xen.pcpus.iter().any(|p| p.curr.get() == Some(unit(n)));
        prop_assert_eq!(counted, i64::from(queued || running));
        prop_assert!(!delayed);
        prop_assert!(!queued || !running);
    }
    Ok(())
}
