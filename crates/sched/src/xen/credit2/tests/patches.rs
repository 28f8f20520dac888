//! What single patches change, in small worlds. (Decisions on tables: `tickles.rs`, `candidates.rs`.)

use super::*;
use crate::xen::perf::Perf;
use crate::xen::testing::{Dom, Load};

/// Burners and sleepers on one runqueue.
fn mixed(set: &str) -> World<Credit2> {
    let policy = credit2(set, &[("credit2_runqueue", "all")]);
    let doms = vec![
        Dom::new(256, 0, 3, Load::BURNER),
        Dom::new(512, 0, 6, Load { run: 300_000, sleep: 1_100_000 }),
        Dom::new(256, 0, 3, Load { run: 2_000_000, sleep: 2_300_000 }),
    ];
    let mut world = World::new(&topo("1n1l4c1t"), policy, doms);
    world.run_until(S);
    world
}

#[test]
fn patch_5_counts_and_records() {
    let candidates = |w: &World<Credit2>| {
        events(w, |e| match e {
            XenEvent::Credit2RunqCandidate { tickled, .. } => Some(*tickled),
            _ => None,
        })
    };
    let (with, without) = (mixed("5"), mixed("base"));
    assert!(candidates(&without).is_empty());
    assert_eq!(without.count(Perf::DeferredToTickled), 0);
    let records = candidates(&with);
    let own = records.iter().filter(|(_, cpu, t)| *t == Some(*cpu)).count();
    let other = records.iter().filter(|(_, cpu, t)| t.is_some_and(|t| t != *cpu)).count();
    assert!(own > 1000, "who was tickled comes for whom it was tickled: {own}");
    assert_eq!(other as u64, with.count(Perf::TickledOverridden));
}

#[test]
fn patch_6_yields_hand_the_pcpu_over() {
    // A burner with most credit yields at once, with another burner waiting.
    let go = |set: &str| {
        let policy = credit2(set, &[]);
        let doms = vec![Dom::new(256, 0, 2, Load::BURNER)];
        let mut world = World::new(&topo("1n1l1c1t"), policy, doms);
        world.run_until(5 * MS);
        let cpu = CpuId(0);
        let runs = world.xen.curr(cpu).unwrap();
        world.on(cpu).xen.yield_unit(&world.p, runs);
        world.softirqs();
        (world.xen.curr(cpu) != Some(runs), world.count(Perf::VcpuYield))
    };
    assert_eq!(go("6,7"), (true, 1));
    assert_eq!(go("base"), (false, 0));
}

#[test]
fn patch_8_records_schedule_and_ratelimit() {
    let count = |set: &str| {
        let world = mixed(set);
        let n = |f: fn(&XenEvent) -> bool| events(&world, |e| f(e).then_some(())).len() as u64;
        let schedules = n(|e| matches!(e, XenEvent::Credit2Schedule { .. }));
        let limited = n(|e| matches!(e, XenEvent::Credit2Ratelimit { .. }));
        (schedules, world.count(Perf::SchedRun), limited, world.count(Perf::Ratelimited))
    };
    let (schedules, runs, limited, counted) = count("8");
    assert_eq!((schedules, limited), (runs, counted));
    assert!(limited > 0);
    let (schedules, _, limited, _) = count("base");
    assert_eq!((schedules, limited), (0, 0));
}

#[test]
fn records_of_passes_show_the_core_without_the_tickle() {
    let world = mixed("upstream-today");
    let idle = events(&world, |e| match e {
        XenEvent::Credit2Schedule { idle: true, smt_idle, tickled: true, .. } => Some(*smt_idle),
        _ => None,
    });
    // Cores have one thread.
    assert!(!idle.is_empty() && idle.iter().all(|(_, _, smt_idle)| *smt_idle));
}

#[test]
fn patch_10_shows_signs() {
    let least = |set: &str| {
        let shown = |e: &XenEvent| match e {
            XenEvent::Credit2CreditBurn { credit, .. } | XenEvent::Credit2TickleCheck { credit, .. } => Some(*credit),
            _ => None,
        };
        events(&mixed(set), shown).iter().map(|e| e.2).min().unwrap()
    };
    assert!(least("10") < 0);
    assert_eq!(least("base"), 0);
}

#[test]
fn patch_22_decides_less_often() {
    let decisions = |set: &str| {
        let doms = vec![Dom::new(256, 0, 1, Load::BURNER)];
        let mut world = World::new(&topo("1n1l1c1t"), credit2(set, &[]), doms);
        world.run_until(S);
        world.count(Perf::SchedRun)
    };
    let (with, without) = (decisions("22"), decisions("base"));
    assert!((100..=110).contains(&with), "{with}");
    assert!((500..=620).contains(&without), "{without}");
}

#[test]
fn patch_24_tickles_no_pcpu_that_would_not_switch() {
    let (with, without) = (mixed("24"), mixed("base"));
    let limited = |w: &World<Credit2>| w.count(Perf::Ratelimited) as f64 / w.count(Perf::TickledBusy).max(1) as f64;
    assert!(limited(&with) < limited(&without) / 2.0, "{} {}", limited(&with), limited(&without));
}

#[test]
fn today_charges_running_vcpus_at_a_reset() {
    // Two burners on two pCPUs of one runqueue: at a reset on one pCPU the other's vCPU has run unpaid.
    let policy = |set| credit2(set, &[("credit2_runqueue", "all")]);
    let lost = |set| {
        let doms = vec![Dom::new(256, 0, 2, Load::BURNER)];
        let mut world = World::new(&topo("1n1l2c1t"), policy(set), doms);
        world.run_until(S);
        let paid: i64 = events(&world, |e| match e {
            XenEvent::Credit2CreditBurn { delta, .. } => Some(i64::from(*delta)),
            _ => None,
        })
        .iter()
        .map(|e| e.2)
        .sum();
        2 * S as i64 - paid
    };
    assert!(
        lost("upstream-today") < 25 * MS as i64,
        "all but the present stretches is paid: {}",
        lost("upstream-today")
    );
    assert!(lost("10") > lost("upstream-today"), "the base forgets some: {}", lost("10"));
}
