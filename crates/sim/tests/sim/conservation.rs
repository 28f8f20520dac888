//! Work conservation: no CPU idles for long while another has two tasks or more that may run on it.
//!
//! Stated delay: an idle CPU is kicked from the tick of a CPU with more than one task (4 ms), takes its turn among idle CPUs at
//! the next domain interval (up to twice the span in ms), and an active balance takes a few failed passes more. Twenty ticks
//! plus four times the largest interval cover that.

use crate::common::{MS, hog, machine, preset, run_on};
use contend_platform::{Account, CpuId, Time};
use contend_sched::features::{Balance, Preset};
use contend_sim::guest::Guests;
use contend_sim::host::{EventSink, Limits, Outcome, Setup, Who, simulate};
use contend_sim::program::Workload;
use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

/// Tracks who is runnable where, and how long some CPU idles beside a crowded one.
#[derive(Default)]
struct Watch {
    cpus: usize,
    at: HashMap<u64, CpuId>,
    running: HashMap<CpuId, u64>,
    since: Option<Time>,
    longest: (Time, Time),
}

impl Watch {
    fn look(&mut self, now: Time) {
        let mut nr = vec![0; self.cpus];
        self.at.values().for_each(|c| nr[c.index()] += 1);
        let wasted = nr.contains(&0) && nr.iter().any(|n| *n > 1);
        match (wasted, self.since) {
            (true, None) => self.since = Some(now),
            (false, Some(since)) => {
                self.longest = self.longest.max((now - since, since));
                self.since = None;
            }
            _ => {}
        }
    }
}

struct Sink(Rc<RefCell<Watch>>);
impl EventSink for Sink {
    fn switch(&mut self, now: Time, cpu: CpuId, prev: Option<Who<'_>>, prev_state: u64, next: Option<Who<'_>>) {
        let mut w = self.0.borrow_mut();
        if let Some(p) = prev {
            w.running.remove(&cpu);
            if prev_state != 0 {
                w.at.remove(&p.id);
            }
        }
        if let Some(n) = next {
            w.running.insert(cpu, n.id);
            w.at.insert(n.id, cpu);
        }
        w.look(now);
    }
    fn waking(&mut self, _: Time, _: CpuId, _: Option<Who<'_>>, _: Who<'_>, _: CpuId) {}
    fn wakeup(&mut self, now: Time, _: CpuId, _: Option<Who<'_>>, task: Who<'_>, target: CpuId, _: bool) {
        let mut w = self.0.borrow_mut();
        w.at.insert(task.id, target);
        w.look(now);
    }
    fn migrate(&mut self, now: Time, _: CpuId, _: Option<Who<'_>>, task: Who<'_>, _: CpuId, to: CpuId) {
        let mut w = self.0.borrow_mut();
        if let Some(at) = w.at.get_mut(&task.id) {
            *at = to;
            w.look(now);
        }
    }
    fn finish(&mut self, now: Time) -> std::io::Result<()> {
        let mut w = self.0.borrow_mut();
        if let Some(since) = w.since {
            w.longest = w.longest.max((now - since, since));
        }
        Ok(())
    }
}

/// Hogs of different lengths, more of them than CPUs: as some exit, CPUs run dry and must find the others' work.
fn check(p: &Preset, m: &str, hogs: usize) {
    let machine = machine(m);
    let cpus = machine.topology.nr_cpus();
    let mut w = Workload::default();
    for i in 0..hogs {
        w.task(hog(&format!("hog{i}"), (100 + 40 * (i as u64 * 7 % hogs as u64)) * MS));
    }
    let watch = Rc::new(RefCell::new(Watch { cpus, ..Watch::default() }));
    let limits = Limits { horizon: 60_000 * MS, ..Limits::default() };
    let setup =
        Setup { machine, features: p.features.clone(), workload: w, seed: 1, limits, guests: Guests::default() };
    let r = simulate(p.policy, setup, Some(Box::new(Sink(Rc::clone(&watch)))), &mut |_| true).expect("stacks");
    assert_eq!(r.outcome, Outcome::Finished, "{} on {m}", p.name);
    let delay = 20 * 4 * MS + 4 * (2 * cpus as u64 * MS);
    let (longest, since) = watch.borrow().longest;
    assert!(
        longest <= delay,
        "{} on {m}: from {} ms an idle CPU left work alone for {} ms (stated: {} ms)",
        p.name,
        since / MS,
        longest / MS,
        delay / MS
    );
}

macro_rules! conserves {
    ($($test:ident: $preset:literal,)*) => {
        $(#[test] fn $test() {
            let uneven = [("kirin-960-8c", 11), ("alder-lake-16c-24t", 31)];
            let even = [("2c", 3), ("1n1l2c2t", 5), ("8c", 11), ("2n1l4c2t", 24), ("2n2l2c1t", 9)];
            for (m, hogs) in even.into_iter().chain(uneven) {
                check(&preset($preset), m, hogs);
            }
        })*
        #[test]
        fn every_preset_that_balances_is_listed() {
            let listed = [$($preset),*];
            for p in Preset::all().iter().filter(|p| p.features.balance != Balance::Off) {
                assert!(listed.contains(&p.name), "{}", p.name);
            }
        }
    };
}

conserves! {
    linux_2_6_37: "linux-2.6.37",
    linux_2_6_37_rowand: "linux-2.6.37-rowand",
    linux_3_0: "linux-3.0",
    linux_3_6: "linux-3.6",
    linux_4_1: "linux-4.1",
    linux_5_2: "linux-5.2",
    v3_2019: "2019-v3",
    v3_2019_no_sis_core: "2019-v3-no-sis-core",
    linux_5_8: "linux-5.8",
    linux_5_15: "linux-5.15",
    linux_6_0: "linux-6.0",
    linux_6_6: "linux-6.6",
    linux_6_18: "linux-6.18",
    fifo: "fifo",
}

/// Total work is conserved: the hogs' CPU time is what they asked for, and on a machine that is never short of tasks nobody
/// idles.
#[test]
fn saturated_machines_do_not_idle() {
    for p in Preset::all() {
        let mut w = Workload { horizon: Some(1000 * MS), ..Workload::default() };
        (0..12).for_each(|i| w.task(hog(&format!("hog{i}"), 10_000 * MS)));
        let r = run_on(machine("4c"), &p, w, 1000 * MS);
        assert_eq!(r.outcome, Outcome::Horizon, "{}", p.name);
        let idle = r.ledger()[Account::Idle as usize];
        assert!(idle < MS / 10, "{}: idle for {idle} ns", p.name);
    }
}
