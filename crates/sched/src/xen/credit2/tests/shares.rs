//! Shares by weight over 10 virtual seconds, and what preempts what.

use super::*;
use crate::xen::contract::{Adjust, DomParams, Tunables, XenPolicy};
use crate::xen::perf::Perf;
use crate::xen::testing::{Dom, Load};

fn shares(world: &World<Credit2>, weights: &[(u16, f64)], since: &[u64], what: &str) {
    let ran: Vec<f64> = weights.iter().enumerate().map(|(i, (d, _))| (world.dom_ran(*d) - since[i]) as f64).collect();
    let (total, weight): (f64, f64) = (ran.iter().sum(), weights.iter().map(|(_, w)| w).sum());
    for (ran, (dom, w)) in std::iter::zip(ran, weights) {
        let (share, due) = (ran / total, w / weight);
        assert!((share / due - 1.0).abs() < 0.01, "{what}: domain {dom} had {share:.4}, due {due:.4}");
    }
}

#[test]
fn weights_give_shares() {
    for set in SETS {
        let policy = credit2(set, &[("credit2_runqueue", "all")]);
        let doms = [256, 512, 1024].map(|w| Dom::new(w, 0, 4, Load::BURNER));
        let mut world = World::new(&topo("1n1l4c1t"), policy, doms.into());
        world.run_until(10 * S);
        assert_eq!((1..=3).map(|d| world.dom_ran(d)).sum::<u64>(), 40 * S, "{set}: no pCPU idles");
        shares(&world, &[(1, 256.0), (2, 512.0), (3, 1024.0)], &[0; 3], set);
    }
}

#[test]
fn a_weight_that_changes_counts_from_then_on() {
    let policy = credit2("upstream-today", &[("credit2_runqueue", "all")]);
    let doms = [256, 512].map(|w| Dom::new(w, 0, 3, Load::BURNER));
    let mut world = World::new(&topo("1n1l2c1t"), policy, doms.into());
    world.run_until(5 * S);
    let before = [world.dom_ran(1), world.dom_ran(2)];
    world.on(CpuId(0));
    policy.adjust(&world.cx(false), Adjust::Domain { dom: 1, params: DomParams { weight: 2048, cap: 0 } });
    assert_eq!(with_rq(&world, 0, |r| r.max_weight), 2048);
    policy.adjust(&world.cx(false), Adjust::Domain { dom: 1, params: DomParams { weight: 768, cap: 0 } });
    assert_eq!(with_rq(&world, 0, |r| r.max_weight), 768, "the largest left is looked for");
    world.run_until(15 * S);
    shares(&world, &[(1, 768.0), (2, 512.0)], &before, "changed");
}

/// Shortest stretch that anybody but who blocked ran without a break on pCPU 0.
fn shortest(world: &World<Credit2>) -> u64 {
    let switches = events(world, |e| match e {
        XenEvent::Switch { prev, .. } if !prev.is_idle() => Some(()),
        _ => None,
    });
    let on0: Vec<Time> = switches.iter().filter(|(_, c, ())| *c == CpuId(0)).map(|s| s.0).collect();
    on0.windows(2).map(|w| w[1] - w[0]).min().unwrap()
}

#[test]
fn the_rate_limit_keeps_the_pcpu() {
    // A sleeper with full credit would preempt burners at each wake-up.
    let run = |ratelimit| {
        let policy = credit2("base", &[]);
        let sleeper = Load { run: 100_000, sleep: 1_700_000 };
        let doms = vec![Dom::new(256, 0, 2, Load::BURNER), Dom::new(256, 0, 1, sleeper)];
        let mut world = World::with(&topo("1n1l1c1t"), policy, Tunables { ratelimit, tslice: 0 }, doms);
        world.run_until(S);
        let waited = world.xen.unit(unit(2)).book.borrow().wait_max;
        (shortest(&world), world.count(Perf::Ratelimited), waited)
    };
    let (with, limited, waited) = run(1_000_000);
    // The sleeper blocks after 0.1 ms; burners keep the pCPU for the limit.
    assert_eq!(with, 100_000);
    assert!(limited > 100, "{limited}");
    assert!(waited >= 900_000, "the sleeper waits for the limit to pass: {waited}");
    let (_, limited, waited) = run(0);
    assert_eq!(limited, 0);
    // Once its credit is used up (a reset comes when the burners have none) it may still wait.
    assert!(waited < 20 * MS);
}

#[test]
fn runs_repeat() {
    let run = || {
        let load = Load { run: 700_000, sleep: 900_000 };
        let doms = vec![Dom::new(256, 0, 5, load), Dom::new(512, 0, 4, Load::BURNER)];
        let mut world = World::new(&topo("2n1l2c2t"), credit2("patched", &[]), doms);
        world.run_until(S / 2);
        world.log.0.take()
    };
    assert!(run() == run());
}
