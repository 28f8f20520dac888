//! Runs the policy and FIFO on the same workload and prints what each task got: `cargo run --release`.

use contend_machine::Machine;
use contend_sched::features::Features;
use contend_sched::policy::{Policy, fifo::Fifo};
use contend_sim::guest::Guests;
use contend_sim::host::{Limits, Outcome, RunResult, Setup, simulate_with};
use contend_sim::program::{Cx, Op, Program, Sched, TaskSpec, Workload};
use contend_sim::watchdog::Watchdog;
use my_policy::WeightedRoundRobin;
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
fn workload() -> Workload {
    let mut w = Workload { horizon: Some(3_000 * MS), ..Workload::default() };
    for (i, nice) in [0, 0, 5].into_iter().enumerate() {
        w.task(TaskSpec { sched: Some(Sched::Normal(nice)), ..TaskSpec::new(format!("hog{i}"), Hog) });
    }
    w
}

/// A policy that loops for ever ends the program with words.
fn run(name: &'static str, policy: impl Policy) -> RunResult {
    let machine = Machine::load("1c").expect("one core");
    let limits = Limits { stall: 1_000 * MS, ..Limits::default() };
    let setup = Setup {
        machine,
        features: Features::default(),
        workload: workload(),
        seed: 1,
        limits,
        guests: Guests::default(),
    };
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
    let fifo = run("fifo", Fifo::new(&Features { fifo_slice_ns: 8 * MS, ..Features::default() }));
    let mine = run("mine", WeightedRoundRobin { turn_ns: 8 * MS });
    println!("CPU time in ms");
    println!("task   nice  fifo  mine");
    for (f, m) in std::iter::zip(&fifo.tasks, &mine.tasks) {
        println!("{}  {:>4}  {:>4}  {:>4}", f.name, f.sched.nice(), f.run.sum_exec / MS, m.run.sum_exec / MS);
    }
    println!("fifo: {}, {} dispatches", fifo.outcome.name(), fifo.dispatches);
    println!("mine: {}, {} dispatches", mine.outcome.name(), mine.dispatches);
    if mine.outcome != Outcome::Horizon {
        eprintln!("{}", mine.outcome.detail());
        std::process::exit(1);
    }
}
