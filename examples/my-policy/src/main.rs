//! Runs the policies beside FIFO and prints what becomes of two workloads: `cargo run --release`.

use contend_machine::Machine;
use contend_sched::features::{Balance, Features, IdleSearch, WakeAffine};
use contend_sched::policy::{Policy, fifo::Fifo};
use contend_sim::guest::Guests;
use contend_sim::host::{Limits, RunResult, Setup, simulate_with};
use contend_sim::program::{Cx, Op, Program, Sched, TaskSpec, Workload};
use contend_sim::watchdog::Watchdog;
use my_policy::WeightedRoundRobin;
use my_policy::work_stealing::WorkStealing;
use std::time::Duration;

const MS: u64 = 1_000_000;

/// Computes for ever.
struct Hog;
impl Program for Hog {
    fn next(&mut self, _: &mut Cx<'_>) -> Op {
        Op::Run(100 * MS)
    }
}

/// Three hogs on one CPU, the last of them nice.
fn hogs() -> Workload {
    let mut w = Workload { horizon: Some(3_000 * MS), ..Workload::default() };
    for (i, nice) in [0, 0, 5].into_iter().enumerate() {
        w.task(TaskSpec { sched: Some(Sched::normal(nice)), ..TaskSpec::new(format!("hog{i}"), Hog) });
    }
    w
}

/// Computes for so many ns, sleeps, and computes as long again.
struct Job(Vec<Op>);
impl Program for Job {
    fn next(&mut self, _: &mut Cx<'_>) -> Op {
        self.0.pop().unwrap_or(Op::Exit)
    }
}

/// Starts so many jobs of 1 to 15 ms.
struct Parent(u64);
impl Program for Parent {
    fn next(&mut self, _: &mut Cx<'_>) -> Op {
        if self.0 == 0 {
            return Op::Exit;
        }
        self.0 -= 1;
        let ns = MS * (1 + self.0 * 7 % 15);
        let job = Job(vec![Op::Run(ns), Op::Sleep(2 * MS), Op::Run(ns)]);
        Op::Spawn(Box::new(TaskSpec::new(format!("job{}", self.0), job)))
    }
}

/// Sixty jobs, which one task starts.
fn jobs() -> Workload {
    let mut w = Workload::default();
    w.task(TaskSpec::new("parent", Parent(60)));
    w
}

/// A policy that loops for ever ends the program with words.
fn run(name: &'static str, policy: impl Policy, features: Features, machine: &str, workload: Workload) -> RunResult {
    let machine = Machine::load(machine).expect("such a machine");
    let limits = Limits { stall: 1_000 * MS, ..Limits::default() };
    let setup = Setup { machine, features, workload, seed: 1, limits, guests: Guests::default() };
    let dog = Watchdog::new(Duration::from_secs(10), move |last| {
        let at = last.map_or(0, |s| s.now) / MS;
        eprintln!(
            "{name} does not return, in a call after {at} ms of virtual time; run this in a debugger to see in which"
        );
        std::process::exit(1);
    });
    simulate_with(policy, setup, None, &mut |status| dog.hears(status, || true)).expect("memory for a stack")
}

fn main() {
    let features = Features { fifo_slice_ns: 8 * MS, ..Features::default() };
    let fifo = run("fifo", Fifo::new(&features), features.clone(), "1c", hogs());
    let mine = run("mine", WeightedRoundRobin { turn_ns: 8 * MS }, features, "1c", hogs());
    println!("CPU time in ms");
    println!("task   nice  fifo  mine");
    for (f, m) in std::iter::zip(&fifo.tasks, &mine.tasks) {
        println!("{}  {:>4}  {:>4}  {:>4}", f.name, f.sched.nice(), f.run.sum_exec / MS, m.run.sum_exec / MS);
    }
    println!("fifo: {}, {} dispatches", fifo.outcome.name(), fifo.dispatches);
    println!("mine: {}, {} dispatches", mine.outcome.name(), mine.dispatches);

    let nowhere = Features {
        balance: Balance::Off,
        idle_search: IdleSearch::None,
        wake_affine: WakeAffine::Off,
        ..Features::default()
    };
    let machine = "2n1l4c1t";
    let fifo = Fifo::new(&Features::default());
    let rows = [
        ("fifo, linux-6.18's placement", run("fifo", fifo.clone(), Features::default(), machine, jobs())),
        ("fifo, no placement", run("fifo", fifo, nowhere.clone(), machine, jobs())),
        ("work stealing", run("work stealing", WorkStealing, nowhere, machine, jobs())),
    ];
    println!("\n60 jobs that one task starts, on 8 CPUs\npolicy                         took   moves  probes");
    for (name, r) in &rows {
        let moves: u64 = r.tasks.iter().map(|t| t.run.nr_migrations).sum();
        println!("{name:<28}  {:>4} ms  {moves:>4}  {:>6}", r.virtual_ns / MS, r.observed.probes);
    }
    if let Some(r) = std::iter::once(&mine).chain(rows.iter().map(|(_, r)| r)).find(|r| !r.outcome.is_ok()) {
        eprintln!("{}", r.outcome.detail());
        std::process::exit(1);
    }
}
