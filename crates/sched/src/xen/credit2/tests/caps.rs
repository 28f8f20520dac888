//! Caps, since Xen 4.10.

use super::super::cap::Domain;
use super::*;
use crate::xen::contract::{Adjust, DomParams, XenPolicy};
use crate::xen::perf::Perf;
use crate::xen::testing::{Dom, Load};

fn near(ran: u64, due: u64, what: &str) {
    assert!((ran as f64 / due as f64 - 1.0).abs() < 0.01, "{what}: ran {ran}, due {due}");
}

#[test]
fn caps_are_kept() {
    for (how, cap, n) in [("all", 25, 1), ("all", 50, 4), ("socket", 150, 4), ("core", 333, 6), ("cpu", 30, 8)] {
        let policy = credit2("upstream-today", &[("credit2_runqueue", how)]);
        let doms = vec![Dom::new(256, cap, n, Load::BURNER), Dom::new(256, 0, 2, Load::BURNER)];
        let mut world = World::new(&topo("2n1l2c2t"), policy, doms);
        world.run_until(10 * S);
        near(world.dom_ran(1), u64::from(cap) * S / 10, &format!("{how}, cap {cap}, {n} vCPUs"));
        assert!(world.count(Perf::VcpuPark) > 100);
        // The other domain's vCPUs have pCPUs of their own.
        near(world.dom_ran(2), 20 * S, how);
    }
}

#[test]
fn a_cap_bounds_sleepers_and_heavy_weights() {
    let policy = credit2("upstream-today", &[("credit2_runqueue", "all")]);
    let sleeper = Load { run: 3 * MS, sleep: MS };
    let doms = vec![Dom::new(65_000, 60, 3, sleeper), Dom::new(256, 0, 3, Load::BURNER)];
    let mut world = World::new(&topo("1n1l2c1t"), policy, doms);
    world.run_until(10 * S);
    near(world.dom_ran(1), 6 * S, "60 of 200");
    near(world.dom_ran(2), 14 * S, "the rest");
}

#[test]
fn caps_change_while_it_runs() {
    let policy = credit2("upstream-today", &[("credit2_runqueue", "all")]);
    let mut world = World::new(&topo("1n1l2c1t"), policy, vec![Dom::new(256, 0, 2, Load::BURNER)]);
    let mut last = 0;
    for (cap, due) in [(0, 20), (40, 4), (120, 12), (0, 20), (70, 7)] {
        let params = DomParams { weight: 256, cap };
        policy.adjust(&world.on(CpuId(1)).cx(false), Adjust::Domain { dom: 1, params });
        let from = world.now();
        world.softirqs();
        world.run_until(from + 10 * S);
        near(world.dom_ran(1) - last, due * S, &format!("cap {cap}"));
        last = world.dom_ran(1);
    }
}

#[test]
fn a_cap_is_shared_evenly_and_who_is_out_of_budget_does_not_wait() {
    for (cap, n) in [(1, 4), (20, 8), (130, 4), (7, 3)] {
        let policy = credit2("upstream-today", &[("credit2_runqueue", "all")]);
        let mut world = World::new(&topo("1n1l8c1t"), policy, vec![Dom::new(256, cap, n, Load::BURNER)]);
        world.run_until(10 * S);
        let ran: Vec<u64> = (0..n as u32).map(|u| world.ran(u)).collect();
        let (least, most) = (*ran.iter().min().expect("vCPUs"), *ran.iter().max().expect("vCPUs"));
        assert!(most * 10 < least * 12, "cap {cap}: {ran:?}");
        for unit in &world.xen.units {
            let [running, runnable, _, offline] = unit.book.borrow().times_until(10 * S);
            assert!(runnable < S / 100 && running + offline > 99 * S / 10, "cap {cap}: {runnable} {offline}");
        }
    }
}

#[test]
fn before_2017_there_are_no_caps() {
    for set in ["base", "patched"] {
        let mut world = World::new(&topo("1n1l1c1t"), credit2(set, &[]), vec![Dom::new(256, 10, 1, Load::BURNER)]);
        world.run_until(S);
        assert_eq!(world.dom_ran(1), S);
    }
}

#[test]
fn pools_carry_debts_and_no_savings() {
    let mut d = Domain::new(DomParams { weight: 256, cap: 50 }, 5_000_000);
    d.units = vec![unit(0), unit(1)];
    assert_eq!(d.take(unit(0), 0), Some(2_500_000), "an even share");
    assert_eq!(d.take(unit(1), -1_000_000), Some(1_500_000), "what is left, less what was overdrawn");
    assert_eq!(d.take(unit(0), -700_000), None);
    d.parked = vec![unit(1), unit(0)];
    assert_eq!(d.unpark(), [], "nothing to go on with");
    d.replenish(1);
    assert_eq!(d.budget, 4_300_000);
    d.replenish(3);
    assert_eq!(d.budget, 5_000_000, "no savings");
    d.budget = 2_000_000;
    assert_eq!(d.unpark(), [(unit(0), 2_000_000)], "whose last was longest ago; no more than there are quotas");
    assert_eq!((&d.parked[..], d.budget), (&[unit(1)][..], 0));
    d.budget = 5_000_000;
    d.units = (0..20).map(unit).collect();
    assert_eq!(d.take(unit(0), 0), Some(500_000), "not less than half a ms");
}
