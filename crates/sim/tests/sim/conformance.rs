//! Every preset keeps the rules, on every shape of machine and every mix of work: one macro, one test a preset.
//!
//! The rules are checked from outside, on the stream of scheduling events: a task runs on one CPU at a time, only when it
//! is runnable, only where it may; a CPU's events chain up; the ledger adds up (asserted by the engine); all work is done;
//! the same scenario gives the same events.

use crate::placing::Steered;
use contend_machine::Machine;
use contend_platform::{Account, CpuId, Time};
use contend_sched::bandwidth::Limit;
use contend_sched::class::Sched;
use contend_sched::features::{CfsBandwidth, Features, Preempt, Preset};
use contend_sched::policy::eevdf::Eevdf;
use contend_sim::guest::Guests;
use contend_sim::host::{EventSink, Limits, Outcome, RunResult, Setup, Who, simulate, simulate_with};
use contend_sim::program::{Cx, GroupId, Groups, ObjectKind, Op, Program, TaskSpec, Workload};
use fixedbitset::FixedBitSet;
use rand::RngExt;
use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

#[derive(Default)]
struct Rules {
    running: HashMap<u64, CpuId>,
    curr: HashMap<CpuId, u64>,
    runnable: HashMap<u64, CpuId>,
    allowed: HashMap<u64, FixedBitSet>,
    last: Time,
    switches: u64,
    broken: Vec<String>,
}

impl Rules {
    fn check(&mut self, ok: bool, what: impl FnOnce() -> String) {
        if !ok {
            self.broken.push(what());
        }
    }
}

struct Checker(Rc<RefCell<Rules>>);

impl EventSink for Checker {
    fn switch(&mut self, now: Time, cpu: CpuId, prev: Option<Who<'_>>, prev_state: u64, next: Option<Who<'_>>) {
        let mut r = self.0.borrow_mut();
        r.switches += 1;
        let curr = r.curr.get(&cpu).copied();
        r.check(curr == prev.map(|p| p.id), || format!("{now}: {cpu:?} ran {curr:?}, but {prev:?} leaves"));
        if let Some(p) = prev {
            r.running.remove(&p.id);
            r.curr.remove(&cpu);
            if prev_state != 0 {
                r.runnable.remove(&p.id);
            }
        }
        if let Some(n) = next {
            let elsewhere = r.running.get(&n.id).copied();
            r.check(elsewhere.is_none(), || format!("{now}: {n:?} starts on {cpu:?} and runs on {elsewhere:?}"));
            let at = r.runnable.get(&n.id).copied();
            r.check(at == Some(cpu), || format!("{now}: {n:?} starts on {cpu:?} but is runnable at {at:?}"));
            let allowed = r.allowed.get(&n.id).is_none_or(|a| a.contains(cpu.index()));
            r.check(allowed, || format!("{now}: {n:?} starts on {cpu:?}, where it must not"));
            r.running.insert(n.id, cpu);
            r.curr.insert(cpu, n.id);
        }
    }
    fn waking(&mut self, _: Time, _: CpuId, _: Option<Who<'_>>, _: Who<'_>, _: CpuId) {}
    fn wakeup(&mut self, _: Time, _: CpuId, _: Option<Who<'_>>, task: Who<'_>, target: CpuId, _: bool) {
        self.0.borrow_mut().runnable.insert(task.id, target);
    }
    fn migrate(&mut self, _: Time, _: CpuId, _: Option<Who<'_>>, task: Who<'_>, _: CpuId, to: CpuId) {
        let mut r = self.0.borrow_mut();
        if r.runnable.contains_key(&task.id) {
            r.runnable.insert(task.id, to);
        }
    }
    fn finish(&mut self, now: Time) -> std::io::Result<()> {
        self.0.borrow_mut().last = now;
        Ok(())
    }
}

/// A task that does a bit of everything, by dice.
struct Anything {
    steps: u32,
    pipes: Vec<contend_sim::program::ObjId>,
    sem: contend_sim::program::ObjId,
    mutex: contend_sim::program::ObjId,
    holds: bool,
    reader: bool,
    barging: bool,
    cpus: usize,
    pinned: bool,
    /// It moves among so many groups and the root.
    groups: u16,
    /// It is of all classes in turn.
    classes: bool,
}

impl Program for Anything {
    fn next(&mut self, cx: &mut Cx<'_>) -> Op {
        if self.steps == 0 && !self.holds {
            return Op::Exit;
        }
        self.steps = self.steps.saturating_sub(1);
        if self.holds {
            self.holds = false;
            return Op::Unlock(self.mutex);
        }
        if self.groups > 0 && cx.rng.random_ratio(1, 8) {
            return Op::SetGroup(GroupId(cx.rng.random_range(0..=self.groups)));
        }
        // Two pipes are fed by a daemon and two drained by one; or all of them have both, who compete with this task.
        let pipe = match self.barging {
            true => self.pipes[cx.rng.random_range(0..4)],
            false => self.pipes[cx.rng.random_range(0..2) + if self.reader { 0 } else { 2 }],
        };
        match cx.rng.random_range(0..12) {
            0 | 1 => Op::Run(cx.rng.random_range(1..3_000_000)),
            2 => Op::Run(cx.rng.random_range(1..20_000)),
            3 => Op::Sleep(cx.rng.random_range(1..2_000_000)),
            4 if self.steps.is_multiple_of(2) => Op::Exec,
            4 => Op::Yield,
            5 => {
                self.holds = true;
                Op::Lock(self.mutex)
            }
            6 | 7 if self.reader => Op::Read(pipe, 100),
            6 | 7 => Op::Write(pipe, 100),
            8 => Op::SemPost(self.sem, 1),
            9 if self.classes => Op::SetScheduler(match cx.rng.random_range(0..8) {
                0 => Sched::Fifo(cx.rng.random_range(1..100)),
                1 => Sched::RoundRobin(50),
                2 => Sched::Idle,
                3 => Sched::batch(5),
                _ => Sched::default(),
            }),
            9 => Op::SetScheduler(Sched::normal(cx.rng.random_range(-5..6))),
            10 if !self.pinned => {
                let mut set = FixedBitSet::with_capacity(self.cpus);
                set.set_range(.., true);
                Op::SetAffinity(Some(set))
            }
            _ => Op::Syscall(cx.rng.random_range(100..5_000)),
        }
    }
    fn working_set_kib(&self) -> u32 {
        64
    }
}

/// The other end of a pipe, with some work between and a sleep now and then: two that never do anything else can keep in step for ever,
/// and a task that competes with them then always comes too late.
struct Feeder(contend_sim::program::ObjId, bool, bool);

impl Program for Feeder {
    fn next(&mut self, cx: &mut Cx<'_>) -> Op {
        self.2 = !self.2;
        if self.2 && cx.rng.random_ratio(1, 64) {
            return Op::Sleep(cx.rng.random_range(1..50_000));
        }
        if self.2 {
            return Op::Run(cx.rng.random_range(1..2_000));
        }
        if self.1 { Op::Write(self.0, 100) } else { Op::Read(self.0, 100) }
    }
}

/// Groups within groups, of all weights, some of them with limits.
fn tree(limited: bool) -> Groups {
    let mut groups = Groups::default();
    for (path, weight) in [("/a", 300), ("/a/b", 1), ("/a/b/c", 10_000), ("/a/d", 100), ("/e", 20)] {
        let group = groups.at(path).expect("a path");
        groups.set_weight(group, weight);
    }
    for (path, quota, period) in [("/a", 9, 10), ("/a/b", 5, 7), ("/e", 3, 3)].into_iter().filter(|_| limited) {
        let group = groups.at(path).expect("a path");
        let (quota, period) = (quota * 1_000_000, period * 1_000_000);
        groups.set_limit(group, Limit { quota, period, burst: 0 });
    }
    groups
}

fn workload(cpus: usize, tasks: usize, seed: u64, how: How, rules: &Rc<RefCell<Rules>>) -> Workload {
    let How { barging, grouped, limited, classes } = how;
    let mut w = Workload { groups: if grouped { tree(limited) } else { Groups::default() }, ..Workload::default() };
    let pipes: Vec<_> = (0..4).map(|i| w.object(format!("pipe{i}"), ObjectKind::Pipe { capacity: 4096 })).collect();
    let sem = w.object("sem", ObjectKind::Semaphore { initial: 0 });
    let mutex = w.object("mutex", ObjectKind::Mutex);
    for i in 0..tasks {
        let pinned = i % 5 == 0;
        let mut spec = TaskSpec::new(
            format!("any{i}"),
            Anything {
                steps: 60,
                pipes: pipes.clone(),
                sem,
                mutex,
                holds: false,
                reader: i % 2 == 0,
                barging,
                cpus,
                pinned,
                groups: w.groups.len() as u16,
                classes,
            },
        );
        spec.sched = (classes && i % 4 == 0).then_some(Sched::Fifo(1 + (i * 7 % 99) as u8));
        if grouped {
            spec.group = Some(GroupId((i % 6) as u16));
        }
        if pinned {
            let mut set = FixedBitSet::with_capacity(cpus);
            set.insert((i + seed as usize) % cpus);
            set.insert(i / 2 % cpus);
            rules.borrow_mut().allowed.insert(i as u64, set.clone());
            spec.affinity = Some(set);
        }
        w.task(spec);
    }
    for (i, &pipe) in pipes.iter().enumerate() {
        for write in [true, false].into_iter().filter(|write| barging || *write == (i < 2)) {
            w.task(TaskSpec { background: true, ..TaskSpec::new("feeder", Feeder(pipe, write, false)) });
        }
    }
    w
}

/// Which kind of a workload.
#[derive(Clone, Copy, Debug)]
struct How {
    barging: bool,
    grouped: bool,
    limited: bool,
    classes: bool,
}

/// Runs a setup under some policy.
type Simulate<'a> = &'a dyn Fn(Setup, Box<dyn EventSink>) -> RunResult;

fn run(
    simulate: Simulate<'_>,
    features: &Features,
    machine: &str,
    tasks: usize,
    seed: u64,
    how: How,
) -> (RunResult, Rules) {
    let rules = Rc::new(RefCell::new(Rules::default()));
    let machine = Machine::load(machine).expect("the machine exists");
    let cpus = machine.topology.nr_cpus();
    let workload = workload(cpus, tasks, seed, how, &rules);
    let limits = Limits { horizon: 60_000_000_000, ..Limits::default() };
    let setup = Setup { machine, features: features.clone(), workload, seed, limits, guests: Guests::default() };
    let result = simulate(setup, Box::new(Checker(Rc::clone(&rules))));
    let rules = Rc::try_unwrap(rules).unwrap_or_else(|_| panic!("the sink is gone")).into_inner();
    (result, rules)
}

fn preset_conforms(name: &str) {
    let preset = Preset::find(name).expect("the preset exists");
    conforms(name, &preset.features, &|setup, sink| {
        simulate(preset.policy, setup, Some(sink), &mut |_| true).expect("stacks")
    });
}

#[test]
fn lazy_preemption() {
    let preset = Preset::find("linux-6.18").expect("the preset exists");
    conforms("lazy preemption", &Features { preempt: Preempt::Lazy, ..preset.features }, &|setup, sink| {
        simulate(preset.policy, setup, Some(sink), &mut |_| true).expect("stacks")
    });
}

/// Wherever a policy puts tasks, and from wherever it takes them.
#[test]
fn any_placement() {
    let features = Preset::find("linux-6.18").expect("the preset exists").features;
    let dice = |a: u64, b: u64| (a.wrapping_add(b) | 1).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40;
    conforms("any placement", &features.clone(), &move |setup: Setup, sink| {
        let (groups, cpus) = (setup.workload.groups.clone(), setup.machine.topology.nr_cpus());
        let tick = 1_000_000_000 / u64::from(setup.machine.hz);
        let policy = Steered {
            inner: groups.of(Eevdf::new(&features, cpus, tick), cpus, &features),
            place: Box::new(move |cpus, task, wake| {
                let n = cpus.topology().nr_cpus() as u64;
                let at = dice(cpus.now(), u64::from(task.0)) % n;
                let all = (at..n).chain(0..at).map(|cpu| CpuId(cpu as u16));
                let idle = wake.sync || at.is_multiple_of(2);
                all.filter(|cpu| cpus.allows(*cpu))
                    .collect::<Vec<_>>()
                    .into_iter()
                    .find(|cpu| !idle || cpus.is_idle(*cpu))
            }),
            pull: Box::new(move |cpus, failed| {
                let n = cpus.topology().nr_cpus() as u64;
                let from = CpuId((dice(cpus.now(), 7) % n) as u16);
                (from != cpus.this() && !failed.contains(&from)).then_some(from)
            }),
        };
        simulate_with(policy, setup, Some(sink), &mut |_| true).expect("stacks")
    });
}

fn conforms(name: &str, features: &Features, simulate: Simulate<'_>) {
    let shapes = [
        ("1n1l1c1t", 6, 1),
        ("1n1l2c1t", 12, 2),
        ("1n1l2c2t", 16, 3),
        ("2n2l2c2t", 40, 4),
        ("2n1l8c2t", 20, 5),
        ("4n1l8c2t", 200, 6),
        ("kirin-960-8c", 24, 7),
        ("alder-lake-16c-24t", 40, 8),
    ];
    // Without slices or wake-up preemption the competitors may keep a pipe to themselves for ever: rightly so.
    // FIFO has no groups.
    let kinds = [(false, false), (true, false), (false, true), (true, true)];
    let kinds = kinds.into_iter().filter(|(barging, grouped)| name != "fifo" || !(*barging || *grouped));
    // Nor classes with barging: who is lower than his competitors may always come too late.
    let limited = false;
    let kinds = kinds.map(|(barging, grouped)| How { barging, grouped, limited, classes: !barging });
    let plain = [false, true].map(|grouped| How { barging: false, grouped, limited, classes: false });
    let kinds = plain.into_iter().filter(|how| name != "fifo" || !how.grouped).chain(kinds);
    let limited = [false, true].map(|classes| How { barging: false, grouped: true, limited: true, classes });
    let has_limits = name != "fifo" && features.cfs_bandwidth != CfsBandwidth::Off;
    let kinds = kinds.chain(limited.into_iter().filter(|_| has_limits));
    for ((machine, tasks, seed), how) in kinds.flat_map(|how| shapes.map(|s| (s, how))) {
        let (result, rules) = run(simulate, features, machine, tasks, seed, how);
        let place = format!("{name} on {machine}, seed {seed}, {how:?}");
        let left: Vec<_> = result.tasks.iter().filter(|t| t.exited.is_none() && t.name != "feeder").collect();
        assert_eq!(result.outcome, Outcome::Finished, "{place}: {} {left:?}", result.outcome.detail());
        assert_eq!(rules.broken, Vec::<String>::new(), "{place}");
        assert!(rules.switches > tasks as u64, "{place}");
        let last = result.tasks.iter().filter_map(|t| t.exited).max();
        assert!(last <= Some(result.virtual_ns), "{place}: {last:?}");
        let total: u64 = result.ledger().iter().sum();
        assert_eq!(total, result.virtual_ns * result.cpus.len() as u64, "{place}");
        // What tasks say they ran is what the CPUs booked outside idle and kernel-only time, up to the switch paths.
        let ran: u64 = result.tasks.iter().map(|t| t.run.sum_exec).sum();
        assert!(ran >= result.ledger()[Account::User as usize], "{place}: {ran}");
        let (again, _) = run(simulate, features, machine, tasks, seed, how);
        assert_eq!(again.trace_hash, result.trace_hash, "{place}");
        assert_eq!(again.virtual_ns, result.virtual_ns, "{place}");
        assert_eq!(again.tasks, result.tasks, "{place}");
    }
}

macro_rules! conformance {
    ($($test:ident: $preset:literal,)*) => {
        $(#[test] fn $test() { preset_conforms($preset); })*

        /// A preset that is added and not listed here fails this.
        #[test]
        fn every_preset_is_listed() {
            let listed = [$($preset),*];
            for p in Preset::all() {
                // Rowand's patch loses wake-ups by design; `rowand.rs` pins what it does.
                assert!(listed.contains(&p.name) || p.name == "linux-2.6.37-rowand", "{}", p.name);
            }
        }
    };
}

conformance! {
    fifo: "fifo",
    linux_2_6_37: "linux-2.6.37",
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
}
