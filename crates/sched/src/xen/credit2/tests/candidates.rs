//! Who runs next, on tables.

use super::super::candidate::{Candidate, CandidateIn, Current, Next, Queue, Waiter, candidate};
use super::*;

#[derive(Default)]
struct Table {
    list: Vec<Waiter>,
    looked: Vec<usize>,
    broke: Vec<usize>,
}

impl Queue for Table {
    fn get(&mut self, at: usize) -> Option<Waiter> {
        self.list.get(at).copied()
    }
    fn checked(&mut self, at: usize) {
        self.looked.push(at);
    }
    fn has_budget(&mut self, at: usize) -> bool {
        !self.broke.contains(&at)
    }
}

/// On pCPU 3, with 2 ms of credit, for 5 ms already.
const CURRENT: Current =
    Current { credit: 2_000_000, runnable: true, ran: 5_000_000, yields: false, better_off: false };

fn on3(current: Option<Current>) -> CandidateIn {
    CandidateIn { cpu: CpuId(3), current, ratelimit: 1_000_000, tickled: cpus("") }
}

/// Waits on pCPU 3.
fn here(credit: i32) -> Waiter {
    Waiter { credit, cpu: CpuId(3), allowed: true, tickled: None }
}
fn there(credit: i32) -> Waiter {
    Waiter { cpu: CpuId(1), ..here(credit) }
}

fn ask(set: &str, i: &CandidateIn, list: &[Waiter]) -> Candidate {
    candidate(&conf(set), i, &mut Table { list: list.into(), ..Table::default() })
}
fn next(set: &str, i: &CandidateIn, list: &[Waiter]) -> Next {
    ask(set, i, list).next
}

#[test]
fn base_takes_the_first_it_may_if_it_has_more_credit() {
    let on = on3(Some(CURRENT));
    assert_eq!(next("base", &on, &[]), Next::Current);
    assert_eq!(next("base", &on3(None), &[]), Next::Idle);
    assert_eq!(next("base", &on, &[here(2_000_001)]), Next::Waiter(0));
    assert_eq!(next("base", &on, &[here(2_000_000)]), Next::Current, "ties go on");
    // Skipped: not allowed, and from another pCPU without credit for the resistance.
    let list = [Waiter { allowed: false, ..here(9_000_000) }, there(2_499_999), here(2_000_005)];
    assert_eq!(next("base", &on, &list), Next::Waiter(2));
    assert_eq!(ask("base", &on, &list).resisted, 1);
    assert_eq!(next("base", &on, &[there(2_500_000)]), Next::Waiter(0));
    let resist = Conf::new(&features("base", &[("credit2_migrate_resist_us", "0")]));
    let mut table = Table { list: vec![there(2_000_001)], ..Table::default() };
    assert_eq!(candidate(&resist, &on, &mut table).next, Next::Waiter(0), "no resistance");
    // Who cannot go on counts as idle.
    let stops = on3(Some(Current { runnable: false, ..CURRENT }));
    assert_eq!(next("base", &stops, &[there(-9_000_000)]), Next::Waiter(0));
    assert_eq!(next("base", &stops, &[]), Next::Idle);
}

#[test]
fn the_rate_limit_goes_first() {
    let young = on3(Some(Current { ran: 999_999, ..CURRENT }));
    let c = ask("patched", &young, &[here(10_000_000)]);
    assert_eq!((c.next, c.ratelimited, c.walked), (Next::Current, true, 0));
    let off = CandidateIn { ratelimit: 0, ..young };
    assert_eq!(next("base", &off, &[here(10_000_000)]), Next::Waiter(0));
}

#[test]
fn patch_5_leaves_vcpus_to_the_pcpu_tickled_for_them() {
    let tickled = CandidateIn { tickled: cpus("1"), ..on3(None) };
    let list = [Waiter { tickled: Some(CpuId(1)), ..here(5) }, here(3)];
    let c = ask("5", &tickled, &list);
    assert_eq!((c.next, c.deferred), (Next::Waiter(1), 1));
    assert_eq!(next("base", &tickled, &list), Next::Waiter(0));
    // Once that pCPU has scheduled, it had its chance.
    assert_eq!(next("5", &on3(None), &list), Next::Waiter(0));
    let own = CandidateIn { tickled: cpus("3"), ..on3(None) };
    assert_eq!(next("5", &own, &[Waiter { tickled: Some(CpuId(3)), ..here(5) }]), Next::Waiter(0));
}

#[test]
fn patches_6_and_7_yield() {
    let yields = Current { yields: true, ..CURRENT };
    let list = [there(2_499_999), here(-4)];
    assert_eq!(next("base", &on3(Some(yields)), &list), Next::Current, "the base knows no yields");
    assert_eq!(next("6", &on3(Some(yields)), &list), Next::Waiter(1), "resistance is heeded, credit is not");
    assert_eq!(next("6", &on3(Some(yields)), &[there(2_499_999)]), Next::Current);
    let young = on3(Some(Current { ran: 10, ..yields }));
    assert_eq!(next("6", &young, &list), Next::Current);
    assert_eq!(next("6,7", &young, &list), Next::Waiter(1));
    assert_eq!(next("7", &young, &list), Next::Current);
    assert_eq!(next("upstream-today", &young, &list), Next::Waiter(1), "nor does the walk stop");
}

#[test]
fn patch_20_sends_home_who_could_run_there() {
    let better = on3(Some(Current { better_off: true, ..CURRENT }));
    assert_eq!(next("16,17,20", &better, &[]), Next::Idle);
    assert_eq!(next("16,17,20", &better, &[here(-9_000_000)]), Next::Waiter(0));
    assert_eq!(next("16,17", &better, &[here(-9_000_000)]), Next::Current);
    let young = on3(Some(Current { better_off: true, ran: 10, ..CURRENT }));
    assert_eq!(next("16,17,20", &young, &[]), Next::Current, "the rate limit goes first");
}

#[test]
fn patch_21_asks_less_and_decides_the_same() {
    for list in [vec![], vec![there(-9_000_000), here(3)], vec![here(7)]] {
        let (with, without) = (ask("21", &on3(None), &list), ask("base", &on3(None), &list));
        assert_eq!((with.next, with.walked), (without.next, without.walked));
        assert!(!with.asked && without.asked);
        assert!(ask("21", &on3(Some(CURRENT)), &list).asked);
    }
}

#[test]
fn today_stops_at_who_has_no_more_credit() {
    let on = on3(Some(CURRENT));
    let list = [Waiter { allowed: false, ..here(9_000_000) }, there(1_999_999), here(1_000_000)];
    assert_eq!(ask("upstream-today", &on, &list).walked, 2);
    assert_eq!(ask("base", &on, &list).walked, 3);
    // An idle pCPU resists too, where its credit is close to the floor (recorded: d1v2 with -10,000,000 stays where it is).
    assert_eq!(next("upstream-today", &on3(None), &[there(-10_000_000)]), Next::Idle);
    assert_eq!(next("upstream-today", &on3(None), &[here(-10_000_000)]), Next::Waiter(0));
    assert_eq!(next("upstream-today", &on3(None), &[there(-9_500_001)]), Next::Waiter(0));
}

#[test]
fn who_has_no_budget_is_passed_over() {
    let mut table = Table { list: vec![here(5), here(4)], broke: vec![0], ..Table::default() };
    assert_eq!(candidate(&conf("upstream-today"), &on3(None), &mut table).next, Next::Waiter(1));
    assert_eq!(table.looked, [0, 1]);
}

#[test]
fn the_list_is_by_credit_first_come_first_served() {
    let mut rq = super::super::state::Rq::new(&cpus("0-1"));
    let places = [(0, 5), (1, 7), (2, 5), (3, -1), (4, 5)].map(|(n, credit)| rq.queue(unit(n), credit));
    assert_eq!(places, [0, 0, 2, 3, 3]);
    let order = |rq: &super::super::state::Rq| rq.list.iter().map(|e| e.unit.0).collect::<Vec<_>>();
    assert_eq!(order(&rq), [1, 0, 2, 4, 3]);
    rq.unqueue(unit(2));
    assert_eq!(order(&rq), [1, 0, 4, 3]);
}
