//! Threads: user code with a stack, which may lose its CPU anywhere. One behaviour a module.

mod crew;
mod ends;
mod futex;
mod ledger;
mod locks;
mod preemption;
mod time;

use crate::common::{machine, preset};
use contend_platform::{Account, Nanos};
use contend_sim::guest::Guests;
use contend_sim::host::{Limits, Outcome, RunResult, Setup, simulate};
use contend_sim::program::{TaskSpec, Workload};
use contend_sim::thread::{Thread, ThreadSpec};

/// Run threads on a machine under linux-6.18 until `horizon`, beside these programs. The ledger is checked.
fn run_beside(
    on: &str,
    horizon: Nanos,
    programs: Vec<TaskSpec>,
    make: impl FnOnce(&Thread) -> Vec<ThreadSpec> + Send + 'static,
) -> RunResult {
    run_within(on, Limits { horizon, ..Limits::default() }, programs, make)
}

fn run_within(
    on: &str,
    limits: Limits,
    programs: Vec<TaskSpec>,
    make: impl FnOnce(&Thread) -> Vec<ThreadSpec> + Send + 'static,
) -> RunResult {
    let p = preset("linux-6.18");
    let mut workload = Workload { threads: Some(Box::new(make)), ..Workload::default() };
    programs.into_iter().for_each(|t| workload.task(t));
    let setup =
        Setup { machine: machine(on), features: p.features, workload, seed: 1, limits, guests: Guests::default() };
    let r = simulate(p.policy, setup, None, &mut |_| true).expect("stacks");
    for cpu in &r.cpus {
        assert_eq!(cpu.ledger.iter().sum::<u64>(), r.virtual_ns, "each CPU's time is booked once");
    }
    r
}

fn run(on: &str, horizon: Nanos, make: impl FnOnce(&Thread) -> Vec<ThreadSpec> + Send + 'static) -> RunResult {
    run_beside(on, horizon, vec![], make)
}

/// `n` threads that run the same code, numbered from 0.
fn alike(n: u16, code: impl Fn(&Thread) + Clone + 'static) -> Vec<ThreadSpec> {
    (0..n).map(|i| ThreadSpec::new(format!("t{i}"), i, code.clone())).collect()
}

fn booked(r: &RunResult, account: Account) -> Nanos {
    r.ledger()[account as usize]
}

fn finished(r: &RunResult) {
    assert_eq!(r.outcome, Outcome::Finished, "{}", r.outcome.detail());
}
