//! Whom to tickle: the order of mechanisms E.2, and the scores of patch 17, on tables.

use super::super::tickle::{Currents, Tickle, TickleIn, preemptable, score, tickle};
use super::*;
use proptest::prelude::*;

/// vCPUs that run: by pCPU, credit, whether it prefers the pCPU, whether it can be preempted.
#[derive(Clone, Default)]
struct Table(Vec<(u16, i32, bool, bool)>, Vec<(u16, i32)>);

impl Table {
    fn of(&self, cpu: CpuId) -> (u16, i32, bool, bool) {
        *self.0.iter().find(|r| r.0 == cpu.0).unwrap_or_else(|| panic!("{cpu:?} was asked about"))
    }
}

impl Currents for Table {
    fn preemptable(&mut self, cpus: &CpuMask) -> CpuMask {
        cpus.iter().filter(|cpu| self.of(*cpu).3).collect()
    }
    fn credit(&mut self, cpu: CpuId) -> i32 {
        self.of(cpu).1
    }
    fn in_soft(&mut self, cpu: CpuId) -> bool {
        self.of(cpu).2
    }
    fn checked(&mut self, cpu: CpuId, _: i32, score: i32) {
        self.1.push((cpu.0, score));
    }
}

/// Eight pCPUs, siblings 0-1, 2-3, ...; all busy; the new vCPU on 2 with 5 ms of credit.
fn busy() -> TickleIn {
    TickleIn {
        credit: 5_000_000,
        cpu: CpuId(2),
        hard: cpus("0-7"),
        soft: cpus("0-511"),
        soft_useful: false,
        pinned: false,
        cpus: cpus("0-7"),
        idle: cpus(""),
        tickled: cpus(""),
        smt_idle: cpus(""),
    }
}

fn ask(conf: &Conf, i: &TickleIn, table: &Table) -> Tickle {
    tickle(conf, i, &mut 0, &mut table.clone())
}

/// All run with as much credit as the new vCPU has.
fn equals() -> Table {
    Table((0..8).map(|c| (c, 5_000_000, true, true)).collect(), Vec::new())
}

#[test]
fn base_goes_idle_core_idle_pcpu_own_pcpu_least_credit() {
    let conf = conf("base");
    let none = Table::default();
    let idle = |idle: &str, smt: &str, tickled: &str| TickleIn {
        idle: cpus(idle),
        smt_idle: cpus(smt),
        tickled: cpus(tickled),
        ..busy()
    };
    // (1) a pCPU of an idle core: the own, else the next in the cycle.
    assert_eq!(ask(&conf, &idle("1-5", "2-5", ""), &none), Tickle::Idle(CpuId(2)));
    assert_eq!(
        ask(&conf, &idle("0-1,2,5", "0-1", ""), &none),
        Tickle::Idle(CpuId(0)),
        "before the own, whose core is busy"
    );
    assert_eq!(ask(&conf, &idle("0-1,6-7", "0-1,6-7", ""), &none), Tickle::Idle(CpuId(6)));
    let mut narrow = idle("0-1,6-7", "0-1,6-7", "");
    narrow.hard = cpus("0-5");
    assert_eq!(ask(&conf, &narrow, &none), Tickle::Idle(CpuId(0)), "within hard affinity");
    // (2) an idle pCPU.
    assert_eq!(ask(&conf, &idle("2,5", "", ""), &none), Tickle::Idle(CpuId(2)));
    assert_eq!(ask(&conf, &idle("1,5", "", ""), &none), Tickle::Idle(CpuId(5)));
    assert_eq!(ask(&conf, &idle("1,5", "", "5"), &none), Tickle::Idle(CpuId(1)), "not tickled already");
    // (3) the own pCPU, if there is more credit than who runs has: by one is enough.
    let mut table = equals();
    table.0[2].1 = 4_999_999;
    table.0[0].1 = -10_000_000;
    assert_eq!(ask(&conf, &busy(), &table), Tickle::Busy(CpuId(2)));
    // (4) else the one with least credit, if that is less by migration resistance.
    table.0[2].1 = 5_000_000;
    table.0[4].1 = 1;
    assert_eq!(ask(&conf, &busy(), &table), Tickle::Busy(CpuId(0)));
    table.0[0].1 = 4_500_001;
    table.0[4].1 = 4_500_001;
    assert_eq!(ask(&conf, &busy(), &table), Tickle::Nobody);
    table.0[4].1 = 4_500_000;
    assert_eq!(ask(&conf, &busy(), &table), Tickle::Busy(CpuId(4)));
    // Not those that are tickled, or idle: there is nobody to compare with.
    let i = TickleIn { tickled: cpus("4"), ..busy() };
    assert_eq!(ask(&conf, &i, &table), Tickle::Nobody);
}

#[test]
fn power_savings_fill_busy_cores() {
    let saving = Conf::new(&features("base", &[("smt_power_savings", "true")]));
    let i = TickleIn { idle: cpus("3,4-5"), smt_idle: cpus("4-5"), ..busy() };
    assert_eq!(ask(&saving, &i, &Table::default()), Tickle::Idle(CpuId(3)));
    assert_eq!(ask(&conf("base"), &i, &Table::default()), Tickle::Idle(CpuId(4)));
}

#[test]
fn scores_as_recorded() {
    // Xen 4.17: d1v1 with 2,036,816 against d1v3 with 4,087,626 on another pCPU.
    assert_eq!(score(2_036_816, 4_087_626, 500_000, false, true, true), -2_550_810);
    // d0v0 with 10,500,000 against d1v3 with 8,550,095 on another: it wins, and prefers all pCPUs.
    assert_eq!(score(10_500_000, 8_550_095, 500_000, false, true, true), 11_449_905);
    assert_eq!(score(2, 1, 500_000, true, false, true), 1);
    assert_eq!(score(2, 1, 500_000, true, true, false), 20_000_001);
    assert_eq!(score(2, 2, 500_000, true, true, false), 0, "no bonus without winning by credit");
}

#[test]
fn patch_17_soft_first_then_scores() {
    let (with, without) = (conf("16,17"), conf("base"));
    let i = TickleIn { soft: cpus("4-7"), soft_useful: true, ..busy() };
    // Idle pCPUs: soft affinity first, even a busy core's before an idle core elsewhere.
    let idle = TickleIn { idle: cpus("0-1,5"), smt_idle: cpus("0-1"), ..i };
    assert_eq!(ask(&with, &idle, &Table::default()), Tickle::Idle(CpuId(5)));
    assert_eq!(ask(&without, &idle, &Table::default()), Tickle::Idle(CpuId(0)));
    // Busy: where it prefers to be, though another has less credit.
    let mut table = equals();
    table.0[0].1 = -5_000_000;
    table.0[6].1 = 4_000_000;
    assert_eq!(ask(&with, &i, &table), Tickle::Busy(CpuId(6)));
    assert_eq!(ask(&without, &i, &table), Tickle::Busy(CpuId(0)));
    // Where who runs would rather not be, too.
    table.0[7] = (7, 4_400_000, false, true);
    assert_eq!(ask(&with, &i, &table), Tickle::Busy(CpuId(7)));
    // The own pCPU wins at once only if it is preferred.
    table.0[2].1 = 0;
    assert_eq!(ask(&with, &i, &table), Tickle::Busy(CpuId(7)));
    assert_eq!(ask(&with, &TickleIn { soft: cpus("2-7"), ..i }, &table), Tickle::Busy(CpuId(2)));
}

#[test]
fn patch_24_leaves_the_rate_limited_alone() {
    for (set, without) in [("24", "base"), ("16,17,24", "16,17")] {
        let mut table = equals();
        table.0[2] = (2, 0, true, false);
        table.0[5] = (5, 1_000_000, true, true);
        assert_eq!(ask(&conf(without), &busy(), &table), Tickle::Busy(CpuId(2)), "{without}");
        assert_eq!(ask(&conf(set), &busy(), &table), Tickle::Busy(CpuId(5)), "{set}");
    }
    assert!(!preemptable(950_000, 1_000_000) && preemptable(950_001, 1_000_000));
    assert!(preemptable(0, 0) && preemptable(0, 50_000));
}

#[test]
fn today_a_pinned_vcpu_takes_its_pcpu() {
    let i = TickleIn { hard: cpus("2"), pinned: true, idle: cpus("2,4-5"), smt_idle: cpus("4-5"), ..busy() };
    let mut probes = 0;
    assert_eq!(tickle(&conf("upstream-today"), &i, &mut probes, &mut Table::default()), Tickle::Idle(CpuId(2)));
    assert_eq!(probes, 1);
}

/// Often a difference is exactly the resistance, or none.
fn credit() -> impl Strategy<Value = i32> {
    (-20i32..21).prop_map(|half_ms| half_ms * 500_000)
}

fn mask() -> impl Strategy<Value = CpuMask> {
    any::<u8>().prop_map(|bits| CpuMask::from_words(std::iter::once(u64::from(bits))))
}

proptest! {
    /// Patch 17 without soft affinity decides as before but for a difference of exactly the resistance, which is not enough any
    /// more.
    #[test]
    fn patch_17_without_soft_affinity(
        idle in mask(), tickled in mask(), hard in mask(), own in 0u16..8, new in credit(),
        credits in prop::collection::vec(credit(), 8), shift in 0i32..2,
    ) {
        let i = TickleIn { credit: new + shift, cpu: CpuId(own), hard, idle, tickled, ..busy() };
        let table = Table((0..8u16).map(|c| (c, credits[usize::from(c)], true, true)).collect(), Vec::new());
        let (base, with) = (ask(&conf("base"), &i, &table), ask(&conf("16,17"), &i, &table));
        let tie = |t: Tickle| matches!(t, Tickle::Busy(c) if c.0 != own && table.of(c).1 + 500_000 == i.credit);
        prop_assert!(base == with || (tie(base) && with == Tickle::Nobody), "{:?} {:?}", base, with);
        prop_assert!(shift == 0 || base == with);
    }

    /// Patch 23 decides the same, and looks at no more; the answer is a pCPU of the runqueue within hard affinity.
    #[test]
    fn patch_23_is_only_faster(
        idle in mask(), tickled in mask(), hard in mask(), soft in mask(), own in 0u16..8, savings: bool, scores: bool,
        credit in -10_000_000i32..10_500_000, credits in prop::collection::vec(-10_000_000i32..10_500_000, 8),
        prefers in mask(), limited in mask(),
    ) {
        let free = idle - tickled;
        let core = |c: u16| cpus(&format!("{}-{}", c * 2, c * 2 + 1));
        let smt_idle = (0..4).map(core).filter(|c| c.is_subset(&free)).fold(CpuMask::NONE, |a, b| a | b);
        let i = TickleIn {
            credit, cpu: CpuId(own), hard, soft, soft_useful: soft.intersects(&hard), pinned: false,
            cpus: cpus("0-7"), idle, tickled, smt_idle,
        };
        let table = Table(
            (0..8u16).map(|c| (c, credits[usize::from(c)], prefers.contains(CpuId(c)), !limited.contains(CpuId(c)))).collect(),
            Vec::new(),
        );
        let keys = [("smt_power_savings", if savings { "true" } else { "false" })];
        let sets = if scores { ["16,17,24", "16,17,23-24"] } else { ["24", "23-24"] };
        let asked = sets.map(|set| {
            let (mut probes, mut table) = (0, table.clone());
            (tickle(&Conf::new(&features(set, &keys)), &i, &mut probes, &mut table), table.1, probes)
        });
        prop_assert_eq!(asked[0].0, asked[1].0);
        prop_assert_eq!(&asked[0].1, &asked[1].1);
        match asked[0].0 {
            Tickle::Idle(c) => prop_assert!(free.contains(c) && hard.contains(c)),
            Tickle::Busy(c) => {
                prop_assert!(!idle.contains(c) && !tickled.contains(c) && hard.contains(c) && !limited.contains(c));
                prop_assert!((free & hard).is_empty(), "somebody was idle");
                prop_assert!(table.of(c).1 < credit);
            }
            Tickle::Nobody => prop_assert!((free & hard).is_empty()),
        }
        prop_assert!(asked[1].2 <= asked[0].2, "{} {}", asked[1].2, asked[0].2);
        let own_will_do = smt_idle.contains(CpuId(own)) && hard.contains(CpuId(own)) && !savings && !scores;
        prop_assert!(asked[1].2 < asked[0].2 || !(free.is_empty() || own_will_do));
    }
}
