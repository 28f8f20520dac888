//! Recordings: exact counts on a small one, conservation on a real one, and damage that never panics nor deadlocks.

mod futexes;
mod jobs;
mod kernel_work;
mod replays;
mod servers;
mod steps;

use std::io::Read;

use crate::common::{run, spec, user_ns};
use contend_machine::Machine;
use contend_platform::Work;
use contend_sched::features::Preset;
use contend_sim::guest::Guests;
use contend_sim::host::{Limits, Outcome, Setup, simulate};
use contend_sim::program::{Sched, Workload};
use contend_workload::model::step::{Step, What, Why};
use contend_workload::model::{Exact, Model, ModelSpec, Start, Task, fitted};
use contend_workload::recording::stats::Kept;
use contend_workload::recording::{RecordingError, RecordingReport, RecordingSpec};
use contend_workload::spec::Target;
use rand::Rng;
use rand_pcg::Pcg64Mcg;

const SHIPPED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../recordings/hackbench-2cpu.txt.gz");

/// A machine whose kernel costs nothing: nothing is taken out of runs.
fn free() -> Vec<u8> {
    let mut machine = Machine::synthetic("2c").expect("a machine");
    for work in Work::ALL.iter().filter(|w| !matches!(w, Work::Ns | Work::Policy)) {
        machine.set(&format!("kernel.{}", work.name()), "0").expect("a cost");
    }
    for cost in ["cpu.context_switch", "interrupts.irq_leave", "interrupts.tick_restart", "interrupts.idle_exit"] {
        machine.set(cost, "0").expect("a cost");
    }
    machine.to_toml().into_bytes()
}

fn small() -> RecordingSpec {
    RecordingSpec { file: "small".into(), recorded_on: "free.toml".into(), ..RecordingSpec::default() }
}

fn build(text: &str, spec: &RecordingSpec) -> Result<(Workload, RecordingReport), RecordingError> {
    let mut w = Workload::default();
    let (r, ..) = spec.build(&mut w, 0, text.as_bytes().to_vec(), &|_| Ok(free()))?;
    Ok((w, r))
}

fn simulated(machine: &str, workload: Workload) -> contend_sim::host::RunResult {
    let p = Preset::find("linux-6.18").expect("a preset");
    let machine = Machine::load(machine).expect("a machine");
    let setup = Setup {
        machine,
        features: p.features,
        workload,
        seed: 1,
        limits: Limits::default(),
        guests: Guests::default(),
    };
    simulate(p.policy, setup, None, &mut |_| true).expect("stacks")
}

/// CPU 0: a shell executes `cmd`, which forks a child, runs, sleeps until the child wakes it, exits. CPU 1: the child
/// runs 3 us, is preempted by a kernel thread, runs 4 us, wakes its parent, sleeps 10 us by a timer, runs 1 us, exits.
const SMALL: &str = "\
sh-10 [000] ..... 1.000000: sched_switch: prev_comm=swapper/0 prev_pid=0 prev_prio=120 prev_state=R ==> next_comm=sh next_pid=10 next_prio=120
sh-10 [000] ..... 1.000010: sched_process_exec: filename=/bin/cmd pid=10 old_pid=10
cmd-10 [000] ..... 1.000015: sched_process_fork: comm=cmd pid=10 child_comm=cmd child_pid=11
cmd-10 [000] d..2. 1.000016: sched_wakeup_new: comm=cmd pid=11 prio=125 target_cpu=001
<idle>-0 [001] d..2. 1.000018: sched_switch: prev_comm=swapper/1 prev_pid=0 prev_prio=120 prev_state=R ==> next_comm=cmd next_pid=11 next_prio=125
cmd-10 [000] d..2. 1.000020: sched_switch: prev_comm=cmd prev_pid=10 prev_prio=120 prev_state=S ==> next_comm=swapper/0 next_pid=0 next_prio=120
cmd-11 [001] d..2. 1.000021: sched_switch: prev_comm=cmd prev_pid=11 prev_prio=125 prev_state=R ==> next_comm=kworker/1:0 next_pid=5 next_prio=120
kworker/1:0-5 [001] d..2. 1.000024: sched_switch: prev_comm=kworker/1:0 prev_pid=5 prev_prio=120 prev_state=I ==> next_comm=cmd next_pid=11 next_prio=125
cmd-11 [001] d..2. 1.000028: sched_waking: comm=cmd pid=10 prio=120 target_cpu=000
cmd-11 [001] d.h2. 1.000028: sched_waking: comm=kworker/1:0 pid=5 prio=120 target_cpu=001
<idle>-0 [000] d..2. 1.000030: sched_switch: prev_comm=swapper/0 prev_pid=0 prev_prio=120 prev_state=R ==> next_comm=cmd next_pid=10 next_prio=120
cmd-11 [001] d..2. 1.000031: sched_switch: prev_comm=cmd prev_pid=11 prev_prio=125 prev_state=S ==> next_comm=swapper/1 next_pid=0 next_prio=120
cmd-10 [000] d.h2. 1.000041: sched_waking: comm=cmd pid=11 prio=125 target_cpu=001
cmd-10 [000] ..... 1.000042: sched_process_exit: comm=cmd pid=10 prio=120
cmd-10 [000] d..2. 1.000043: sched_switch: prev_comm=cmd prev_pid=10 prev_prio=120 prev_state=Z ==> next_comm=swapper/0 next_pid=0 next_prio=120
<idle>-0 [001] d..2. 1.000045: sched_switch: prev_comm=swapper/1 prev_pid=0 prev_prio=120 prev_state=R ==> next_comm=cmd next_pid=11 next_prio=125
cmd-11 [001] d..2. 1.000046: sched_switch: prev_comm=cmd prev_pid=11 prev_prio=125 prev_state=X ==> next_comm=swapper/1 next_pid=0 next_prio=120
";

/// CPU 0: a shell executes `cmd`.
const EXEC: &str = "\
sh-10 [000] ..... 1.000000: sched_switch: prev_comm=swapper/0 prev_pid=0 prev_prio=120 prev_state=R ==> next_comm=sh next_pid=10 next_prio=120
sh-10 [000] ..... 1.000010: sched_process_exec: filename=/bin/cmd pid=10 old_pid=10
";

/// The replay of an exact model of tasks that take these steps; by way of its file.
fn played<const N: usize>(tasks: [(&str, Vec<What>); N]) -> Workload {
    let mut model = Exact::default();
    model.source.cpus = N as u32;
    for (pid, (name, steps)) in (1u32..).zip(tasks) {
        let from = model.steps.len();
        model.steps.extend(steps.into_iter().map(Step::new));
        let (sched, to) = (Sched::default(), model.steps.len());
        let name = name.into();
        model.tasks.push(Task { name, pid, sched, session: None, from, to, initial: true, exited: true });
    }
    let mut w = Workload::default();
    let spec = ModelSpec { file: "m".into(), ..ModelSpec::default() };
    spec.build(&mut w, 0, &Model::Exact(model).to_bytes()).expect("a model");
    w
}
