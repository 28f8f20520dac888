//! Credits, resets, run times and load averages, as arithmetic.

use super::super::credit::{Limit, RuntimeIn, after_reset, burn, lasts, reset_due, reset_times, runtime};
use super::super::load::{Load, Shifts};
use super::super::state::{CREDIT_INIT, CREDIT_MAX};
use super::*;
use crate::xen::testing::{Dom, Load as Work};
use proptest::prelude::*;

const NO_FLOOR: i32 = i32::MIN;

#[test]
fn burning_keeps_what_is_below_a_credit() {
    // Weight 3 of 7: three ns cost seven credits, one ns costs two and a third.
    let (mut credit, mut residual) = (0, 0);
    for due in [-2, -4, -7] {
        (credit, residual) = burn(credit, residual, 1, 3, 7, NO_FLOOR);
        assert_eq!(credit, due);
    }
    assert_eq!(residual, 0);
    // A recorded one (Xen 4.17, weight 256 of 512): 3,734,586 less 2 times 6,214,396.
    assert_eq!(burn(3_734_586, 0, 6_214_396, 256, 512, -10_000_000).0, -8_694_206);
    assert_eq!(burn(0, 0, 24_000_000, 256, 256, -CREDIT_INIT).0, -CREDIT_INIT, "the floor");
    assert_eq!(burn(i32::MIN, 0, u64::MAX >> 20, 1, 65_535, NO_FLOOR).0, i32::MIN, "and of the type");
}

#[test]
fn resets_by_the_numbers() {
    assert!(reset_due(0, None, false) && !reset_due(1, None, false));
    assert!(reset_due(-5, Some(3), false), "the base does not look at the head of the list");
    assert!(!reset_due(-5, Some(3), true) && reset_due(-5, Some(0), true) && reset_due(-5, None, true));
    // Base: one, or what who runs next needs to come out of debt, and one.
    for (next, times) in [(0, 1), (-9_999_999, 1), (-10_000_000, 1), (-10_000_001, 2), (-25_000_000, 3)] {
        assert_eq!(reset_times(next, false), times, "{next}");
    }
    // Today: two if who runs next is at the floor (recorded: -10,000,000 to 10,000,000).
    assert_eq!((reset_times(-9_999_999, true), reset_times(-10_000_000, true)), (1, 2));
    assert_eq!(after_reset(-4_896_526, 1), 5_103_474);
    assert_eq!(after_reset(1_978_271, 1), CREDIT_MAX);
    assert_eq!(after_reset(-10_000_000, 2), CREDIT_INIT);
}

/// Each reset gives to each assigned vCPU what it should, clipped, and to nobody else; between resets credits change by burning and
/// by compensation for moves only.
#[test]
fn credit_is_conserved() {
    for set in SETS {
        let sleeper = Work { run: 3 * MS, sleep: 5 * MS };
        let doms = vec![Dom::new(256, 0, 3, Work::BURNER), Dom::new(512, 0, 3, sleeper)];
        let policy = credit2(set, &[("credit2_runqueue", "all"), ("trace_signed_credit", "true")]);
        let mut world = World::new(&topo("1n1l2c1t"), policy, doms);
        world.run_until(3 * S);
        let units = |v: &crate::xen::event::VcpuId| usize::from((v.dom - 1) * 3 + v.vcpu);
        let mut credit = [i64::from(CREDIT_INIT); 6];
        let (mut resets, mut moves) = (0, 0);
        let mut batch: Vec<(Time, i64)> = Vec::new();
        for (at, _, e) in world.log.0.borrow().iter() {
            match e {
                XenEvent::Credit2CreditBurn { vcpu, credit: left, delta, .. } => {
                    let cost = i64::from(*delta) * 512 / if vcpu.dom == 1 { 256 } else { 512 };
                    let (had, left) = (credit[units(vcpu)], i64::from(*left));
                    // Compensation is in no record of its own.
                    let moved = had - cost != left && had - cost + 50_000 == left;
                    moves += i64::from(moved);
                    assert!(moved || had - cost == left || left == -i64::from(CREDIT_INIT), "{set} {e} had {had}");
                    credit[units(vcpu)] = left;
                }
                XenEvent::Credit2CreditReset { vcpu, start, end } => {
                    let had = credit[units(vcpu)];
                    assert!([had, had + 50_000].contains(&i64::from(*start)), "{set} {e} had {had}");
                    let given = (i64::from(CREDIT_MAX) - i64::from(*start)).min(i64::from(end - start));
                    assert_eq!(i64::from(*start) + given, i64::from(*end));
                    batch.retain(|(t, _)| t == at);
                    batch.push((*at, i64::from(end - start)));
                    if batch.len() == 6 {
                        resets += 1;
                        let full = batch.iter().map(|b| b.1).max().unwrap();
                        assert_eq!(full % i64::from(CREDIT_INIT), 0, "somebody got it unclipped");
                        assert!(batch.iter().all(|b| b.1 <= full));
                        batch.clear();
                    }
                    credit[units(vcpu)] = i64::from(*end);
                }
                _ => {}
            }
        }
        assert!(resets > 100, "{set}: {resets}");
        assert_eq!(moves > 0, world.count(crate::xen::perf::Perf::Migrated) > 0, "{set}");
        let last: Vec<i64> = (0..6).map(|u| with_unit(&world, u, |u| i64::from(u.credit))).collect();
        for (now, seen) in std::iter::zip(last, credit) {
            assert!(now == seen || now == seen + 50_000, "{set}: {now} {seen}");
        }
    }
}

#[test]
fn run_times() {
    let i = RuntimeIn {
        credit: 5_153_474,
        weight: 512,
        max_weight: 512,
        waiter: Some(351_436),
        ratelimit: MS,
        ran: None,
        max: 10 * MS,
        budget: None,
    };
    // As recorded by Xen 4.17: until the credit of the head of the list.
    assert_eq!(runtime(&i), (4_802_038, Limit::Within));
    assert_eq!(runtime(&RuntimeIn { waiter: Some(-7), ..i }).0, 5_153_474, "who waits without credit does not count");
    assert_eq!(runtime(&RuntimeIn { weight: 256, ..i }).0, 2_401_019, "credit goes twice as fast");
    assert_eq!(runtime(&RuntimeIn { credit: 100, ..i }), (MS, Limit::Min), "the rate limit");
    assert_eq!(runtime(&RuntimeIn { credit: 100, ran: Some(323_076), ..i }).0, 676_924, "the rest of it");
    assert_eq!(runtime(&RuntimeIn { credit: 100, ran: Some(2 * MS), ..i }).0, 500_000, "at least 0.5 ms");
    assert_eq!(runtime(&RuntimeIn { credit: 100, ratelimit: 0, ..i }).0, 500_000);
    assert_eq!(runtime(&RuntimeIn { max: 2 * MS, ..i }), (2 * MS, Limit::Max));
    assert_eq!(runtime(&RuntimeIn { budget: Some(3_000_000), ..i }).0, 3_000_000);
    assert_eq!(runtime(&RuntimeIn { budget: Some(-5), ..i }).0, MS);
}

/// The definition, in fractions.
fn reference(avg: f64, units: f64, load: f64, shifts: Shifts) -> f64 {
    let (window, one) = (f64::powi(2.0, shifts.window as i32), f64::powi(2.0, shifts.precision as i32));
    if units > window { load * one } else { avg + units / window * (load * one - avg) }
}

proptest! {
    #[test]
    fn load_averages_follow_the_definition(
        steps in prop::collection::vec((0u64..2_000_000_000, 0i64..8), 1..60),
        window in 12u32..24, precision in 12u32..20,
    ) {
        let shifts = Shifts { window, precision };
        let mut load = Load::default();
        let (mut now, mut exact, mut last) = (0u64, 0.0, 0u64);
        for (n, (pass, to)) in steps.into_iter().enumerate() {
            now += pass;
            exact = reference(exact, ((now >> 10) - (last >> 10)) as f64, load.now as f64, shifts);
            last = now;
            load.update(shifts, now, to - load.now);
            prop_assert_eq!(load.now, to);
            // Each step rounds two terms, and a rounding error decays.
            prop_assert!((load.avg as f64 - exact).abs() <= 2.0 * (n + 1) as f64, "{} {}", load.avg, exact);
        }
        // A clock that goes back changes no mean, but the time that it is of.
        let (was, back) = (load, now.saturating_sub(5_000_000));
        load.update(shifts, back, 0);
        prop_assert_eq!(load, Load { last: (back >> 10) as i64, ..was });
    }

    #[test]
    fn what_is_burned_does_not_depend_on_how_often(
        parts in prop::collection::vec(1u64..300_000, 1..20), weight in 1u16..2000, more in 0u16..2000,
    ) {
        let max = weight + more;
        let total: u64 = parts.iter().sum();
        // Within the range of credits.
        prop_assume!(total * u64::from(max) / u64::from(weight) < 1 << 30);
        let (mut credit, mut residual) = (CREDIT_INIT, 0);
        for part in parts {
            (credit, residual) = burn(credit, residual, part, weight, max, NO_FLOOR);
        }
        prop_assert_eq!((credit, residual), burn(CREDIT_INIT, 0, total, weight, max, NO_FLOOR));
        // The way back: what is left lasts as long as it takes to burn it, but for one ns of rounding.
        let time = lasts(CREDIT_INIT, weight, max);
        prop_assert!(burn(CREDIT_INIT, 0, time, weight, max, NO_FLOOR).0 >= 0);
        prop_assert!(burn(CREDIT_INIT, 0, time + 1, weight, max, NO_FLOOR).0 < i32::from(max / weight) + 1);
    }
}
