//! Recordings: exact counts on a small one, conservation on a real one, and damage that never panics nor deadlocks.

mod common;

use std::io::Read;

use common::{run, spec, user_ns};
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
    let (r, _) = spec.build(&mut w, 0, text.as_bytes().to_vec(), &|_| Ok(free()))?;
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

#[test]
fn a_small_recording_step_by_step() {
    let (w, r) = build(SMALL, &small()).expect("a recording");
    assert_eq!((r.tasks, r.initial, r.outside, r.kernel_threads, r.forks), (2, 1, 1, 1, 1));
    // By a task; by an interrupt of which nothing is said.
    assert_eq!((r.sleeps, r.posts, r.ambiguous), ([1, 0, 0, 0, 1, 0], 1, 0));
    let (parent, child) = (&r.per_task[0], &r.per_task[1]);
    assert_eq!((parent.run_ns, parent.bursts, parent.waits, parent.sleeps), (10_000 + 13_000, 2, 1, 0));
    assert_eq!((child.run_ns, child.bursts, child.waits, child.sleeps), (3_000 + 7_000 + 1_000, 2, 0, 1));
    assert!(parent.exited && child.exited);
    assert_eq!((child.switches, child.preempted), (3, 1));
    let s = simulated("2c", w);
    assert_eq!(s.outcome, Outcome::Finished);
    assert_eq!(user_ns(&s), 34_000);
    assert_eq!(
        s.tasks.iter().map(|t| (t.name.as_str(), t.sched.nice())).collect::<Vec<_>>(),
        [("cmd-10", 0), ("cmd-11", 5)]
    );
}

#[test]
fn without_flags_the_running_task_is_taken_for_the_waker() {
    let text = SMALL.replace(" ..... ", " ").replace(" d..2. ", " ").replace(" d.h2. ", " ");
    let (_, r) = build(&text, &small()).expect("a recording");
    assert_eq!((r.sleeps, r.ambiguous), ([2, 0, 0, 0, 0, 0], 3));
}

/// A task leaves CPU 0, runnable, for another.
fn switch(us: u32, from: u32, to: u32) -> String {
    format!(
        "cmd-{from} [000] d..2. 1.{us:06}: sched_switch: prev_comm=cmd prev_pid={from} prev_prio=120 prev_state=R ==> \
         next_comm=cmd next_pid={to} next_prio=120\n"
    )
}

/// A timer's interrupt there.
fn interrupt(us: u32, who: &str) -> String {
    format!(
        "{who} [000] d.h1. 1.{us:06}: hrtimer_expire_entry: hrtimer=0xff now=1 function=tick\n\
         {who} [000] d.h1. 1.{us:06}: hrtimer_expire_exit: hrtimer=0xff\n"
    )
}

/// Two tasks pass one CPU to and fro: what nothing but the task itself can have caused is a yield.
#[test]
fn yields_are_told_from_preemptions() {
    let first = "\
sh-10 [000] ..... 1.000002: sched_switch: prev_comm=swapper/0 prev_pid=0 prev_prio=120 prev_state=R ==> next_comm=sh next_pid=10 next_prio=120
sh-10 [000] ..... 1.000010: sched_process_exec: filename=/bin/cmd pid=10 old_pid=10
cmd-10 [000] ..... 1.000015: sched_process_fork: comm=cmd pid=10 child_comm=cmd child_pid=11
cmd-10 [000] d..2. 1.000016: sched_wakeup_new: comm=cmd pid=11 prio=120 target_cpu=000
";
    let tasks = first.to_string()
        + &switch(100, 10, 11) // 11 is new: it may have preempted
        + &switch(110, 11, 10) // 10 had waited before 11 came: a yield
        + &switch(120, 10, 11); // again
    let last = interrupt(125, "cmd-11") + &switch(130, 11, 10); // the tick was just there
    let of = |text: String| {
        let (w, r) = build(&text, &small()).expect("a recording");
        (r.yields, r.preempted, simulated("1c", w).outcome)
    };
    let before = interrupt(1, "<idle>-0");
    assert_eq!(of(before.clone() + &tasks + &last), (2, 2, Outcome::Finished));
    // A kernel that says "preempted" means it.
    let said = tasks.replace("prev_state=R ==> next_comm=cmd", "prev_state=R+ ==> next_comm=cmd");
    assert_eq!(of(before.clone() + &said), (0, 3, Outcome::Finished));
    // A wake-up has the kernel choose anew, and it may choose a third: by the task itself, or here by another; not elsewhere.
    let wakes = |who: &str, cpu: u32| {
        let woken = format!("{who} d..2. 1.000108: sched_waking: comm=kworker/1:0 pid=5 prio=120 target_cpu=00{cpu}\n");
        let (until, from) = tasks.split_at(tasks.find("cmd-11 [000] d..2. 1.000110").expect("the first yield"));
        of(before.clone() + until + &woken + from + &last)
    };
    assert_eq!(wakes("cmd-11 [000]", 1), (1, 3, Outcome::Finished));
    assert_eq!(wakes("<idle>-0 [001]", 0), (1, 3, Outcome::Finished));
    assert_eq!(wakes("<idle>-0 [001]", 1), (2, 2, Outcome::Finished));
    // A call that is left with no switch due has not brought one about.
    let left = |flags: &str| {
        let woken = "cmd-11 [000] d..2. 1.000107: sched_waking: comm=kworker/1:0 pid=5 prio=120 target_cpu=001\n";
        let left = format!("cmd-11 [000] {flags} 1.000108: sys_exit: NR 1 = 1\n");
        let (until, from) = tasks.split_at(tasks.find("cmd-11 [000] d..2. 1.000110").expect("the first yield"));
        let due = "<idle>-0 [001] dN.2. 1.000001: sys_exit: NR 1 = 1\n";
        of(before.clone() + due + until + woken + &left + from + &last)
    };
    assert_eq!(left("....."), (2, 2, Outcome::Finished));
    assert_eq!(left(".N..."), (1, 3, Outcome::Finished));
    // Without interrupts in the recording nobody knows.
    assert_eq!(of(tasks), (0, 3, Outcome::Finished));
}

/// Where all system calls are recorded, they say who yields; where no wake-up is, nothing does.
#[test]
fn yields_are_not_made_up() {
    let woken = "<idle>-0 [000] d..2. 1.000002: sched_waking: comm=cmd pid=10 prio=120 target_cpu=000\n";
    let call = |us: u32, nr: u32| format!("cmd-11 [000] ..... 1.{us:06}: sys_enter: NR {nr} (0, 0, 0, 0, 0, 0)\n");
    let yields = |woken: &str, call: &str| {
        let text =
            interrupt(1, "<idle>-0") + woken + &switch(50, 0, 10) + &switch(100, 10, 11) + call + &switch(110, 11, 10);
        build(&text, &RecordingSpec { all: true, ..small() }).expect("a recording").1.yields
    };
    assert_eq!(yields(woken, ""), 1);
    assert_eq!(yields("", ""), 0, "the wake-up that preempted may not be recorded");
    assert_eq!(yields(woken, &call(105, 24)), 1);
    assert_eq!(yields(woken, &call(105, 39)), 0, "it was in another call");
}

/// A task becomes a real-time one, sleeps twice, and is an ordinary one again when it exits.
#[test]
fn classes_change_where_they_did() {
    let text = "\
sh-10 [000] ..... 1.000002: sched_switch: prev_comm=swapper/0 prev_pid=0 prev_prio=120 prev_state=R ==> next_comm=sh next_pid=10 next_prio=120
sh-10 [000] ..... 1.000010: sched_process_exec: filename=/bin/cmd pid=10 old_pid=10
cmd-10 [000] d..2. 1.000100: sched_switch: prev_comm=cmd prev_pid=10 prev_prio=19 prev_state=S ==> next_comm=swapper/0 next_pid=0 next_prio=120
<idle>-0 [000] d.h2. 1.000200: sched_waking: comm=cmd pid=10 prio=19 target_cpu=000
<idle>-0 [000] d..2. 1.000202: sched_switch: prev_comm=swapper/0 prev_pid=0 prev_prio=120 prev_state=R ==> next_comm=cmd next_pid=10 next_prio=19
cmd-10 [000] d..2. 1.000300: sched_switch: prev_comm=cmd prev_pid=10 prev_prio=19 prev_state=S ==> next_comm=swapper/0 next_pid=0 next_prio=120
<idle>-0 [000] d.h2. 1.000400: sched_waking: comm=cmd pid=10 prio=19 target_cpu=000
<idle>-0 [000] d..2. 1.000402: sched_switch: prev_comm=swapper/0 prev_pid=0 prev_prio=120 prev_state=R ==> next_comm=cmd next_pid=10 next_prio=19
cmd-10 [000] d..2. 1.000500: sched_switch: prev_comm=cmd prev_pid=10 prev_prio=125 prev_state=X ==> next_comm=swapper/0 next_pid=0 next_prio=120
";
    let spec = small();
    let (model, r) = spec.model(text.into(), &|_| Ok(free())).expect("a recording");
    let (fifo, nice) = (Sched::Fifo(80), Sched::Normal(5));
    assert_eq!(model.scheds_of(0).collect::<Vec<_>>(), [Sched::Normal(0), fifo, nice]);
    assert_eq!((r.realtime, r.reclassed, model.main_sched(0)), (1, 2, fifo));
    let told: Vec<What> = model.steps_of(0).filter(|s| matches!(s, What::Run(_) | What::Sched(_))).collect();
    assert!(matches!(told[..], [What::Run(_), What::Sched(_), What::Run(_), What::Run(_), What::Sched(_)]), "{told:?}");
    // Through a file.
    let again = Model::parse(&Model::Exact(model.clone()).to_bytes(), "m").expect("a model");
    assert!(matches!(again, Model::Exact(again) if again.steps == model.steps));
    let task = |w: Workload| simulated("1c", w).tasks[0].sched;
    assert_eq!(task(build(text, &spec).expect("a recording").0), nice);
}

#[test]
fn what_does_not_say_who_ran_when_is_refused() {
    let lines = |of: &dyn Fn(usize, &str) -> bool| {
        SMALL.lines().enumerate().filter(|(i, l)| of(*i, l)).fold(String::new(), |all, (_, l)| all + l + "\n")
    };
    let refused = |text: &str| build(text, &small()).map(|_| ()).expect_err("no recording").to_string();
    let woken = lines(&|_, l| l.contains("sched_wak"));
    assert!(refused(&woken).contains("small: no sched_switch among its 4 events"), "{}", refused(&woken));
    let earlier = SMALL.replace(" 1.0", " 8.0") + SMALL;
    assert!(refused(&earlier).contains("events go back in time, by up to 7.000 s"), "{}", refused(&earlier));
    // A stamp that cannot be is one event's damage.
    let whole = build(SMALL, &small()).expect("a recording").1;
    let stray = lines(&|i, _| i < 5)
        + "sh-10 [000] d..2. 2000000000.000010: sched_waking: comm=a pid=77 prio=120 target_cpu=000\n"
        + &lines(&|i, _| i >= 5);
    let r = build(&stray, &small()).expect("a recording").1;
    assert_eq!((r.span_ns, r.steps), (whole.span_ns, whole.steps));
    assert_eq!(r.read.expect("counts").strays, 1);
}

/// A task wakes another on its CPU, twelve times: by a pipe and by a futex in turns. The woken one comes 2 us later.
#[test]
fn what_follows_a_wake_up_and_which_are_synchronous() {
    let line = |us: u32, pid: u32, what: String| format!("cmd-{pid} [000] d..2. 1.{us:06}: {what}\n");
    let switch = |us: u32, from: u32, state: &str, to: u32| {
        let prev = format!("prev_comm=cmd prev_pid={from} prev_prio=120 prev_state={state}");
        line(us, from, format!("sched_switch: {prev} ==> next_comm=cmd next_pid={to} next_prio=120"))
    };
    let mut text = "\
sh-10 [000] ..... 1.000002: sched_switch: prev_comm=swapper/0 prev_pid=0 prev_prio=120 prev_state=R ==> next_comm=sh next_pid=10 next_prio=120
sh-10 [000] ..... 1.000009: sys_enter_execve: filename: 0x55, argv: 0x55, envp: 0x55
sh-10 [000] ..... 1.000010: sched_process_exec: filename=/bin/cmd pid=10 old_pid=10
cmd-10 [000] ..... 1.000015: sched_process_fork: comm=cmd pid=10 child_comm=cmd child_pid=11
cmd-10 [000] d..2. 1.000016: sched_wakeup_new: comm=cmd pid=11 prio=120 target_cpu=000
"
    .to_string();
    text += &switch(20, 10, "R", 11);
    for n in 0..12 {
        let us = 100 + 100 * n;
        let call = if n % 2 == 0 { 1 } else { 202 };
        text += &switch(us, 11, "S", 10);
        text += &line(us + 4, 10, format!("sys_enter: NR {call} (0, 0, 0, 0, 0, 0)"));
        text += &line(us + 5, 10, "sched_waking: comm=cmd pid=11 prio=120 target_cpu=000".into());
        text += &switch(us + 7, 10, "R", 11);
        text += &switch(us + 20, 11, "S", 10);
        text += &line(us + 21, 10, format!("sys_exit: NR {call} = 0"));
        text += &line(us + 30, 10, "sched_waking: comm=cmd pid=11 prio=120 target_cpu=000".into());
        text += &switch(us + 50, 10, "S", 11);
    }
    let of = |text: &str| {
        let (model, r) = small().model(text.as_bytes().to_vec(), &|_| Ok(free())).expect("a recording");
        let parent: Vec<What> = model.steps_of(0).collect();
        let posts = parent.windows(3).filter(|w| matches!(w[0], What::Post(..)));
        let posts: Vec<_> = posts.map(|w| (w[0], w[1], w[2])).take(4).collect();
        (r.tail_ns, r.sync_posts, posts)
    };
    let (tail, sync, posts) = of(&text);
    // Outside any call a post cannot be, so that it was not in futex says enough.
    assert_eq!((tail, sync), (2_000, 18));
    let after = |sync, ns| (What::Post(1, sync), What::Kernel(2_000, false), What::Run(ns));
    assert_eq!(posts, [after(true, 10_000), after(true, 18_000), after(false, 10_000), after(true, 18_000)]);
    // Without calls nothing is known of how they woke; with few preemptions, not how long a call goes on.
    let without = text.lines().filter(|l| !l.contains(": sys_")).collect::<Vec<_>>().join("\n");
    assert_eq!((of(&without).0, of(&without).1), (2_000, 0));
    let few = without.lines().take(60).collect::<Vec<_>>().join("\n");
    assert_eq!(of(&few).0, 0);
    let (w, _) = build(&text, &small()).expect("a recording");
    assert_eq!(simulated("1c", w).outcome, Outcome::Finished);
}

/// Two threads on one CPU share a mutex. The first holds it, which nothing says, and is preempted; the second waits for it, is faster
/// than the first once it is free, and unlocks it.
fn mutex() -> String {
    let line = |us: u32, pid: u32, what: &str| format!("cmd-{pid} [000] d..2. 1.{us:06}: {what}\n");
    let switch = |us: u32, from: u32, state: &str, to: u32| {
        let prev = format!("prev_comm=cmd prev_pid={from} prev_prio=120 prev_state={state}");
        line(us, from, &format!("sched_switch: {prev} ==> next_comm=cmd next_pid={to} next_prio=120"))
    };
    let wait = |us, pid| line(us, pid, "sys_enter_futex: __syscall_nr=202 uaddr=0x55c0 op=0x80 val=0x2");
    let wake = |us, pid| line(us, pid, "sys_enter_futex: __syscall_nr=202 uaddr=0x55c0 op=0x81 val=0x1");
    let left = |us, pid| line(us, pid, "sys_exit_futex: __syscall_nr=202, ret=0x0");
    let mut text = "\
sh-10 [000] ..... 1.000002: sched_switch: prev_comm=swapper/0 prev_pid=0 prev_prio=120 prev_state=R ==> next_comm=sh next_pid=10 next_prio=120
sh-10 [000] ..... 1.000010: sched_process_exec: filename=/bin/cmd pid=10 old_pid=10
cmd-10 [000] ..... 1.000015: sched_process_fork: comm=cmd pid=10 child_comm=cmd child_pid=11
cmd-10 [000] d..2. 1.000016: sched_wakeup_new: comm=cmd pid=11 prio=120 target_cpu=000
"
    .to_string();
    // A first round tells that they use it.
    for at in [0, 1_000] {
        text += &switch(at + 100, 10, "R", 11);
        text += &wait(at + 110, 11);
        text += &switch(at + 112, 11, "S", 10);
        text += &wake(at + 120, 10);
        text += &line(at + 121, 10, "sched_waking: comm=cmd pid=11 prio=120 target_cpu=000");
        text += &left(at + 122, 10);
        text += &switch(at + 123, 10, "R", 11);
        text += &left(at + 125, 11);
        text += &wake(at + 140, 11);
        text += &left(at + 142, 11);
        text += &switch(at + 160, 11, "R", 10);
    }
    text
}

#[test]
fn mutexes_of_user_space_are_locked_again() {
    let (model, _) = small().model(mutex().into_bytes(), &|_| Ok(free())).expect("a recording");
    let steps = |task: usize| model.steps_of(task).filter(|s| !matches!(s, What::Nop)).collect::<Vec<_>>();
    let section = [What::Lock(0, false), What::Run(8_000), What::Unlock(0)];
    assert!(steps(0).windows(3).any(|w| w == section), "{:?}", steps(0));
    let sleep = What::Sleep(9_000, Why::Task);
    let section =
        [What::Lock(0, true), What::Run(2_000), sleep, What::By(0), What::Run(2_000), What::Locked, What::Run(15_000)];
    assert!(steps(1).windows(7).any(|w| w == section), "{:?}", steps(1));
    let bytes = Model::Exact(model.clone()).to_bytes();
    let Model::Exact(again) = Model::parse(&bytes, "m").expect("a model") else { panic!("exact") };
    assert!((0..2).all(|t| again.steps_of(t).eq(steps(t))));
    // Whatever the machine, they get through.
    for machine in ["1c", "2c", "4c"] {
        let (w, _) = build(&mutex(), &small()).expect("a recording");
        assert_eq!(w.objects[0].name, "mutex/0");
        assert_eq!(simulated(machine, w).outcome, Outcome::Finished);
    }
}

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

/// A writer that is ahead of its reader, as on another CPU it is. The reader sleeps as often as it did.
#[test]
fn a_stream_keeps_its_sleeps() {
    let sleeps = |rounds: usize| {
        let mut tasks: [(&str, Vec<What>); 2] = [("writer", vec![]), ("reader", vec![])];
        for _ in 0..rounds {
            let kernel = What::Kernel(1_000, false);
            tasks[0].1.extend([What::Post(1, false), kernel, What::Run(20_000)]);
            tasks[1].1.extend([What::Sleep(1_000, Why::Task), What::By(0), What::Run(100_000)]);
        }
        tasks[0].1.push(What::Run(1_000_000_000));
        let s = simulated("2c", played(tasks));
        assert_eq!(s.outcome, Outcome::Finished);
        s.observed.wakeups_from_prev.iter().sum::<u64>()
    };
    assert!(sleeps(40) >= 38, "{}", sleeps(40));
    // Few are no stream: what has come is there.
    assert!(sleeps(9) <= 5, "{}", sleeps(9));
}

/// A reader that has had more than its share does not preempt its writer. That goes one message ahead and waits; readers of several, too.
#[test]
fn writers_do_not_run_away() {
    for readers in [1, 3] {
        let mut tasks = ["a", "b", "c", "d"].map(|name| (name, Vec::new()));
        for _ in 0..60 {
            for reader in 1..=readers {
                tasks[0].1.extend([What::Post(reader, false), What::Kernel(1_000, false), What::Run(4_000)]);
                tasks[reader as usize].1.extend([What::Sleep(1_000, Why::Task), What::By(0), What::Run(12_000)]);
            }
        }
        for machine in ["1c", "2c"] {
            let s = simulated(machine, played(tasks.clone()));
            assert_eq!(s.outcome, Outcome::Finished);
            let woken: u64 = s.tasks.iter().filter(|t| !t.name.starts_with("a-")).map(|t| t.wake.nr_wakeups).sum();
            let most = u64::from(60 * readers);
            assert!((most * 9 / 10..=most).contains(&woken), "{machine}: {woken} of {most}");
        }
    }
}

#[test]
fn contended_locks_of_the_recorded_kernel() {
    let waits = [
        ("000011", "cmd-10 [000] d..1.", "contention_begin: 0xffff888100000010 (flags=SPIN)"),
        ("000013", "cmd-10 [000] d..1.", "contention_end: 0xffff888100000010 (ret=0)"),
        ("000013", "cmd-10 [000] d..1.", "contention_begin: 0xffff888100000010 (flags=SPIN)"),
        ("000014", "cmd-10 [000] d..1.", "contention_end: 0xffff888100000010 (ret=0)"),
        // Spins, sleeps, and is preempted meanwhile: one wait.
        ("000019", "cmd-11 [001] .....", "contention_begin: 0xffff888100000020 (flags=SPIN|MUTEX)"),
        ("000020", "cmd-11 [001] .....", "contention_begin: 0xffff888100000020 (flags=MUTEX)"),
        ("000022", "kworker/1:0-5 [001] .....", "contention_begin: 0xffff888100000010 (flags=SPIN)"),
        ("000023", "kworker/1:0-5 [001] .....", "contention_end: 0xffff888100000010 (ret=0)"),
        ("000027", "cmd-11 [001] .....", "contention_end: 0xffff888100000020 (ret=0)"),
        // Readers and writers; the end of the first wait is lost, the last does not end.
        ("000032", "cmd-10 [000] .....", "contention_begin: 0xffff888100000030 (flags=READ)"),
        ("000034", "cmd-10 [000] .....", "contention_begin: 0xffff888100000030 (flags=READ)"),
        ("000035", "cmd-10 [000] .....", "contention_end: 0xffff888100000030 (ret=0)"),
        ("000036", "cmd-10 [000] .....", "contention_begin: 0xffff888100000030 (flags=WRITE)"),
        ("000038", "cmd-10 [000] .....", "contention_end: 0xffff888100000030 (ret=0)"),
        ("000039", "cmd-10 [000] .....", "contention_begin: 0xffff888100000040 (flags=)"),
    ];
    let mut lines: Vec<String> = SMALL.lines().map(Into::into).collect();
    lines.extend(waits.map(|(us, who, what)| format!("{who} 1.{us}: {what}")));
    let time = |line: &String| line.find(" 1.0000").map(|at| line[at..at + 9].to_string());
    lines.sort_by_key(time);
    let text = lines.join("\n");
    let of = |all| {
        let (_, r) = build(&text, &RecordingSpec { all, ..small() }).expect("a recording");
        let said = r.to_string();
        let rows = r.locks.iter().map(|l| (l.number, l.address & 0xff, l.kind, l.contended, l.wait_ns, l.wait_max_ns));
        (rows.collect::<Vec<_>>(), said)
    };
    let (own, said) = of(false);
    let expected = [
        (1, 0x20, "mutex", 1, 8_000, 8_000),
        (2, 0x10, "spinlock", 2, 3_000, 2_000),
        (3, 0x30, "rwsem:W", 1, 2_000, 2_000),
        (3, 0x30, "rwsem:R", 1, 1_000, 1_000),
    ];
    assert_eq!(own, expected);
    assert!(said.contains("contended kernel locks: 5 waits of 0.014 ms in all"), "{said}");
    let (everybody, _) = of(true);
    assert_eq!(everybody[1], (2, 0x10, "spinlock", 3, 4_000, 2_000));
}

#[test]
fn other_choices() {
    let of = |f: fn(&mut RecordingSpec)| {
        let mut s = small();
        f(&mut s);
        build(SMALL, &s)
    };
    let (w, r) = of(|s| s.all = true).expect("a recording");
    assert_eq!(r.tasks, 3);
    assert_eq!(simulated("2c", w).outcome, Outcome::Finished);
    let (w, r) = of(|s| s.copies = 3).expect("a recording");
    assert_eq!((r.tasks, r.copies, w.tasks.len(), w.objects.len()), (2, 3, 3, 6));
    assert_eq!(user_ns(&simulated("2c", w)), 3 * 34_000);
    let (w, r) = of(|s| s.speed = 2.0).expect("a recording");
    assert_eq!(r.run_ns, 34_000, "the report is of the recording");
    assert_eq!(user_ns(&simulated("2c", w)), 17_000);
    let e = of(|s| s.command = "mc".into()).err().expect("no such command").to_string();
    assert_eq!(e, "small: \"mc\" was not executed in it; executed were cmd");
    let nothing_executed: Vec<&str> = SMALL.lines().filter(|l| !l.contains("sched_process_exec")).collect();
    let e = build(&nothing_executed.join("\n"), &RecordingSpec { command: "mc".into(), ..small() })
        .err()
        .expect("no such task")
        .to_string();
    assert!(e.starts_with("small: no task in it is called \"mc\"; tasks are "), "{e}");
    let e = of(|s| s.copies = 100_000).map(|(_, r)| r.tasks);
    assert_eq!(e.expect("200,000 tasks are allowed"), 2);
}

/// An interrupt wakes a task on its idle CPU, and the kernel does not record that the CPU goes on to it: its run is without the way
/// from idle, which the simulated kernel takes itself, and neither its begin nor the wait for it is counted.
#[test]
fn arrivals_that_are_not_recorded() {
    let mut text = "\
sh-10 [000] ..... 1.000000: sched_switch: prev_comm=swapper/0 prev_pid=0 prev_prio=120 prev_state=R ==> next_comm=sh next_pid=10 next_prio=120
sh-10 [000] ..... 1.000010: sched_process_exec: filename=/bin/cmd pid=10 old_pid=10
cmd-10 [000] d..2. 1.000020: sched_switch: prev_comm=cmd prev_pid=10 prev_prio=120 prev_state=S ==> next_comm=swapper/0 next_pid=0 next_prio=120
"
    .to_string();
    for us in [100, 300, 500] {
        text += &format!("<idle>-0 [000] d.h2. 1.000{us}: sched_waking: comm=cmd pid=10 prio=120 target_cpu=000\n");
        let left =
            "prev_comm=cmd prev_pid=10 prev_prio=120 prev_state=S ==> next_comm=swapper/0 next_pid=0 next_prio=120";
        text += &format!("cmd-10 [000] d..2. 1.000{}: sched_switch: {left}\n", us + 50);
    }
    let run_ns = |way: &str| {
        let mut machine = Machine::parse(&String::from_utf8(free()).expect("text"), "free").expect("a machine");
        machine.set("interrupts.tick_restart", way).expect("a cost");
        let mut w = Workload::default();
        let r = small().build(&mut w, 0, text.clone().into_bytes(), &|_| Ok(machine.to_toml().into_bytes()));
        r.expect("a recording").0.run_ns
    };
    assert_eq!(run_ns("0"), 160_000);
    assert_eq!(run_ns("9000"), 133_000);
    let mut kept = Kept::default();
    let read = small().read(text.into_bytes(), &|_| Ok(free()), &mut |e| kept.event(e));
    drop(read.expect("a recording"));
    let stats = kept.stats(|pid| (pid == 10).then_some("cmd"));
    assert_eq!(stats.from_idle.unseen(), 3);
    let all = &stats.all;
    // One run of 20 us is in the recording whole; of three of 50 us the beginning is not.
    assert_eq!((all.switches, all.wakeup_latency.len(), all.runs.len(), all.run_ns), (4, 0, 1, 170_000));
}

/// What the recorded kernel did beyond the price of a step's kind: it set the hardware's timer where the sleep's timer was the CPU's next, and it
/// sent an interrupt where the woken task's CPU idled and halts. That is taken out of runs, too.
#[test]
fn prices_that_the_recording_tells() {
    let idle = "next_comm=swapper/0 next_pid=0 next_prio=120";
    let cmd = "prev_comm=cmd prev_pid=10 prev_prio=120 prev_state=S";
    let taken = |between: &str, timer: &str| {
        // `cmd` forks `kid`, which sleeps on CPU 1; runs 100 us, wakes it, sleeps, is woken by a timer.
        let text = EXEC.to_string()
            + "\
cmd-10 [000] ..... 1.000020: sched_process_fork: comm=cmd pid=10 child_comm=kid child_pid=11
<idle>-0 [001] d..2. 1.000030: sched_switch: prev_comm=swapper/1 prev_pid=0 prev_prio=120 prev_state=R ==> next_comm=kid next_pid=11 next_prio=120
kid-11 [001] d..2. 1.000040: sched_switch: prev_comm=kid prev_pid=11 prev_prio=120 prev_state=S ==> next_comm=swapper/1 next_pid=0 next_prio=120
cmd-10 [000] d..2. 1.000120: sched_waking: comm=kid pid=11 prio=120 target_cpu=001
<idle>-0 [001] d..2. 1.000140: sched_switch: prev_comm=swapper/1 prev_pid=0 prev_prio=120 prev_state=R ==> next_comm=kid next_pid=11 next_prio=120
kid-11 [001] d..2. 1.000150: sched_switch: prev_comm=kid prev_pid=11 prev_prio=120 prev_state=S ==> next_comm=swapper/1 next_pid=0 next_prio=120
"
            + &format!("cmd-10 [000] d..2. 1.000220: sched_switch: {cmd} ==> {idle}\n")
            + between
            + &format!("<idle>-0 [000] d.h1. 1.000400: {timer}_expire_entry: {timer}=0xff now=1 function=wake\n")
            + "\
<idle>-0 [000] d.h2. 1.000401: sched_waking: comm=cmd pid=10 prio=120 target_cpu=000
"
            + &format!("<idle>-0 [000] d.h1. 1.000402: {timer}_expire_exit: {timer}=0xff\n")
            + "\
<idle>-0 [000] d..2. 1.000410: sched_switch: prev_comm=swapper/0 prev_pid=0 prev_prio=120 prev_state=R ==> next_comm=cmd next_pid=10 next_prio=120
cmd-10 [000] d..2. 1.000500: sched_switch: prev_comm=cmd prev_pid=10 prev_prio=120 prev_state=X ==> next_comm=swapper/0 next_pid=0 next_prio=120
";
        let mut machine = Machine::parse(&String::from_utf8(free()).expect("text"), "free").expect("a machine");
        for (key, value) in
            [("idle_halts", "true"), ("interrupts.ipi_send", "3000"), ("interrupts.timer_write", "5000")]
        {
            machine.set(key, value).expect("a key");
        }
        let mut w = Workload::default();
        let r = small().build(&mut w, 0, text.into_bytes(), &|_| Ok(machine.to_toml().into_bytes()));
        r.expect("a recording").0.kernel_ns
    };
    let other = "\
<idle>-0 [000] d.h1. 1.000300: hrtimer_expire_entry: hrtimer=0xee now=1 function=tick
<idle>-0 [000] d.h1. 1.000301: hrtimer_expire_exit: hrtimer=0xee
";
    assert_eq!(taken("", "hrtimer"), 8_000);
    assert_eq!(taken(other, "hrtimer"), 3_000, "another timer was to expire before");
    assert_eq!(taken("", "timer"), 3_000, "not the hardware's");
}

/// A task's last switch to idle is missing: it ran until its CPU was last seen with it, not until the recording's end.
#[test]
fn departures_that_are_not_recorded() {
    let text = EXEC.to_string()
        + "\
cmd-10 [000] d.h1. 1.000030: hrtimer_expire_entry: hrtimer=0xff now=1 function=tick
cmd-10 [000] d.h1. 1.000030: hrtimer_expire_exit: hrtimer=0xff
<idle>-0 [000] d..2. 1.000400: sched_switch: prev_comm=swapper/0 prev_pid=0 prev_prio=120 prev_state=R ==> next_comm=other next_pid=12 next_prio=120
other-12 [000] d..2. 1.900000: sched_switch: prev_comm=other prev_pid=12 prev_prio=120 prev_state=S ==> next_comm=swapper/0 next_pid=0 next_prio=120
";
    let (w, r) = build(&text, &small()).expect("a recording");
    assert_eq!((r.run_ns, r.unchained), (20_000, 1));
    assert_eq!(simulated("1c", w).outcome, Outcome::Finished);
}

/// Who wakes another and then blocks uninterruptibly or exits, soon, has not left the kernel in between: the other does not come to its CPU
/// before.
#[test]
fn one_system_call_wakes_and_blocks() {
    let wakes = |us: u32, gap: u32, state: &str, run: u32| {
        let end = us + gap;
        let back = end + run;
        format!(
            "\
cmd-10 [000] d..2. 1.{us:06}: sched_waking: comm=kworker/0:1H pid=54 prio=100 target_cpu=000
cmd-10 [000] d..2. 1.{end:06}: sched_switch: prev_comm=cmd prev_pid=10 prev_prio=120 prev_state={state} ==> next_comm=kworker/0:1H next_pid=54 next_prio=100
kworker/0:1H-54 [000] d..2. 1.{back:06}: sched_waking: comm=helper pid=12 prio=120 target_cpu=000
kworker/0:1H-54 [000] d..2. 1.{:06}: sched_switch: prev_comm=kworker/0:1H prev_pid=54 prev_prio=100 prev_state=S ==> next_comm=helper next_pid=12 next_prio=120
helper-12 [000] d.h2. 1.{:06}: sched_waking: comm=cmd pid=10 prio=120 target_cpu=000
helper-12 [000] d..2. 1.{:06}: sched_switch: prev_comm=helper prev_pid=12 prev_prio=120 prev_state=S ==> next_comm=cmd next_pid=10 next_prio=120
",
            back + 4,
            back + 5,
            back + 6
        )
    };
    let text = EXEC.to_string()
        + &wakes(100, 3, "D", 10)
        + &wakes(200, 3, "S", 10)
        + &wakes(300, 60, "D", 10)
        + &wakes(500, 30, "X", 10);
    let spec = RecordingSpec { all: true, ..small() };
    let (model, _) = spec.model(text.clone().into_bytes(), &|_| Ok(free())).expect("a recording");
    let after_posts = |task| {
        let steps: Vec<What> = model.steps_of(task).collect();
        let posts = steps.windows(2).filter(|w| matches!(w[0], What::Post(..))).map(|w| w[1]);
        posts.collect::<Vec<_>>()
    };
    let blocks = |ns| What::Kernel(ns, true);
    assert_eq!(after_posts(0), [blocks(3_000), What::Run(3_000), What::Run(60_000), blocks(30_000)]);
    // A thread of the kernel is there all the time.
    assert_eq!(after_posts(1), [blocks(4_000); 4]);
    let Model::Exact(again) = Model::parse(&Model::Exact(model.clone()).to_bytes(), "model").expect("a model") else {
        panic!("it is exact")
    };
    assert!((0..2).all(|task| again.steps_of(task).eq(model.steps_of(task))));
    let preempted = |state: &str| {
        let text = EXEC.to_string() + &(1..9).map(|n| wakes(100 * n, 3, state, 10)).collect::<String>();
        let (w, _) = build(&text, &spec).expect("a recording");
        let result = simulated("1c", w);
        assert_eq!(result.outcome, Outcome::Finished);
        result.tasks.iter().find(|t| t.name.starts_with("cmd")).expect("it is there").run.preempted
    };
    assert_eq!(preempted("D"), 0);
    assert!(preempted("S") > 0);
}

/// The first task was in a session; its child begins one of its own.
#[test]
fn sessions_are_inherited_and_begun() {
    let fork = SMALL.find("cmd-10 [000] d..2. 1.000020").expect("the line");
    let began = "cmd-11 [001] ..... 1.000019: sys_exit_setsid: 0xb\n";
    let failed = "cmd-11 [001] ..... 1.000019: sys_exit_setsid: 0xffffffffffffffff\n";
    let of = |between: &str, copies: u64| {
        let text = format!("{}{between}{}", &SMALL[..fork], &SMALL[fork..]);
        let s = RecordingSpec { sessions: "s.toml".into(), copies, ..small() };
        let read = |file: &str| Ok(if file == "s.toml" { b"[sessions]\n37 = [10]\n".to_vec() } else { free() });
        let mut w = Workload::default();
        s.build(&mut w, 0, text.into_bytes(), &read).expect("a recording");
        let names: Vec<String> = w.groups.iter().map(|(_, g)| g.name.clone()).collect();
        assert!(w.groups.iter().all(|(_, g)| g.session && g.shares == 1024));
        let p = Preset::find("linux-6.18").expect("a preset");
        let features = contend_sched::features::Features { autogroup: true, ..p.features };
        let machine = Machine::load("2c").expect("a machine");
        let (limits, guests) = (Limits::default(), Guests::default());
        let setup = Setup { machine, features, workload: w, seed: 1, limits, guests };
        let r = simulate(p.policy, setup, None, &mut |_| true).expect("stacks");
        let groups: Vec<String> = r.tasks.iter().map(|t| r.groups.path_of(t.group).to_string()).collect();
        (names, groups)
    };
    let [a, b] = ["/autogroup-37", "/autogroup-38"].map(String::from);
    assert_eq!(of("", 1), (vec![a.clone()], vec![a.clone(), a.clone()]));
    assert_eq!(of(failed, 1), (vec![a.clone()], vec![a.clone(), a.clone()]));
    assert_eq!(of(began, 1), (vec![a.clone(), b.clone()], vec![a, b]));
    let (names, groups) = of(began, 2);
    assert_eq!(names, ["/autogroup-37+0", "/autogroup-38+0", "/autogroup-37+1", "/autogroup-38+1"]);
    assert_eq!(groups.iter().collect::<std::collections::BTreeSet<_>>().len(), 4, "{groups:?}");
}

#[test]
fn the_shipped_recording_does_its_recorded_work() {
    let s = spec("recording", &[("file", SHIPPED)]);
    let target = Target { nr_cpus: 2, speed: 0 };
    let (_, origins) = s.build_in(Default::default(), target, &|f| std::fs::read(f)).expect("a recording");
    let r = &origins.recordings[0];
    assert_eq!((r.tasks, r.initial, r.forks), (81, 1, 80), "{r}");
    // Machines without SMT: there work takes its recorded time.
    for machine in ["x86_64-2cpu", "1n1l2c1t", "2n22c"] {
        for preset in ["linux-2.6.37", "linux-6.0", "linux-6.18"] {
            let sim = run(machine, preset, &s);
            assert_eq!(sim.outcome, Outcome::Finished, "{machine} {preset}");
            assert_eq!(sim.tasks.len(), 81);
            let work = r.run_ns - r.kernel_ns - r.tails_ns;
            // The rest of a call in which a post is made late is taken out of a run.
            let done = user_ns(&sim);
            assert!(done <= work && done > work * 98 / 100, "{machine} {preset}: {done} ns of work, recorded {work}");
        }
    }
    // One by one: a task runs its recorded time and what the kernel adds.
    let sim = run("x86_64-2cpu", "linux-6.18", &s);
    for t in &r.per_task {
        let name = format!("{}-{}", t.name, t.pid);
        let ran = sim.tasks.iter().find(|s| s.name == name).expect("the task").run.sum_exec;
        // Switches and wake-ups, taken out and done again; the first task forks the other 80.
        let forks = if t.pid == r.per_task[0].pid { r.forks } else { 0 };
        let kernel = 20_000 * (t.bursts + t.switches + 10) + 100_000 * forks;
        assert!(ran.abs_diff(t.run_ns) <= kernel, "{name}: {ran} of {}", t.run_ns);
    }
    // The length of the run on the machine it was recorded on, within a quarter.
    let ratio = sim.virtual_ns as f64 / r.span_ns as f64;
    assert!((0.8..1.25).contains(&ratio), "{ratio}");
}

/// A machine of half the speed runs twice as long for the same work, of a recording and of either form of its model; where one of the
/// two speeds is not known run times stay.
#[test]
fn run_times_are_those_of_the_machine_that_runs() {
    let recorded = |speed: u64| {
        let mut machine = Machine::parse(&String::from_utf8(free()).unwrap(), "free.toml").expect("a machine");
        machine.set("cpu.speed", &speed.to_string()).expect("a cost");
        machine.to_toml().into_bytes()
    };
    let run = |model: Option<&[u8]>, recorded_on: u64, here: u64| {
        let mut w = Workload::default();
        let rescaled = match model {
            None => {
                let built = small().build(&mut w, here, SMALL.as_bytes().to_vec(), &|_| Ok(recorded(recorded_on)));
                built.expect("a recording").1
            }
            Some(bytes) => {
                let spec = ModelSpec { file: "m".into(), ..ModelSpec::default() };
                spec.build(&mut w, here, bytes).expect("a model")
            }
        };
        let ran = simulated("2c", w);
        (user_ns(&ran), rescaled.to_string())
    };
    let (exact, _) = small().model(SMALL.as_bytes().to_vec(), &|_| Ok(recorded(600))).expect("a recording");
    assert_eq!(exact.source.machine_speed, 600);
    let fitted = Model::Fitted(fitted::fit(&exact)).to_bytes();
    let exact = Model::Exact(exact).to_bytes();
    for (model, file) in [(None, "small"), (Some(&exact[..]), "m"), (Some(&fitted), "m")] {
        let (as_recorded, said) = run(model, 600, 600);
        assert_eq!(said, format!("{file}: run times x1.00: cpu.speed is 600 where it was recorded, 600 here"));
        let (slower, said) = run(model, 600, 300);
        assert!(slower.abs_diff(2 * as_recorded) <= 100, "{slower} {as_recorded}: rounding, a step");
        assert_eq!(said, format!("{file}: run times x2.00: cpu.speed is 600 where it was recorded, 300 here"));
        let (not_known, said) = run(model, 600, 0);
        assert_eq!(not_known, as_recorded);
        assert_eq!(said, format!("{file}: run times as recorded: this machine has no cpu.speed"));
    }
    let (not_known, said) = run(None, 0, 300);
    assert_eq!(not_known, run(None, 600, 600).0);
    assert_eq!(said, "small: run times as recorded: the recorded machine has no cpu.speed");
}

/// What is wrong in a model's text is said with its line, or its key.
#[test]
fn a_wrong_model_is_refused_where_it_is_wrong() {
    let (exact, _) = small().model(SMALL.as_bytes().to_vec(), &|_| Ok(free())).expect("a recording");
    let text = String::from_utf8(Model::Fitted(fitted::fit(&exact)).to_bytes()).expect("text");
    let with = |line: &str| text.replacen("cpus = ", &format!("{line}\ncpus = "), 1);
    let at = 1 + text.lines().position(|l| l.starts_with("cpus = ")).expect("a line");
    for (text, said) in [
        (with("machine_speed = -5"), format!("m.toml:{at}: invalid value: integer `-5`, expected u64")),
        (
            with("machine_speed = 1000001"),
            format!("m.toml:{at}: source.machine_speed: found 1000001; should be 0 to 1000000"),
        ),
        // What is missing in the whole stands in no line.
        ("# c\nschema = 1\nform = \"fitted\"\n".into(), "m.toml: missing field `source`".into()),
        (with("bogus = 1"), format!("m.toml:{at}: unknown field `bogus`, expected one of")),
    ] {
        let error = Model::parse(text.as_bytes(), "m.toml").expect_err("wrong").to_string();
        assert!(error.starts_with(&said), "{error}");
    }
}

/// Lines and digits of real recordings are removed, doubled, swapped and changed: whatever can be read can be replayed,
/// and no replay deadlocks.
#[test]
fn damaged_recordings_neither_panic_nor_deadlock() {
    let mut text = String::new();
    let bytes = std::fs::read(SHIPPED).expect("the recording");
    flate2::read::MultiGzDecoder::new(&bytes[..]).read_to_string(&mut text).expect("text");
    let shipped: Vec<&str> = text.lines().take(3000).collect();
    let made: Vec<&str> = SMALL.lines().collect();
    let mut rng = Pcg64Mcg::new(7);
    let mut replayed = 0;
    for round in 0..400 {
        let source = if round % 4 == 0 { &shipped } else { &made };
        let mut lines: Vec<String> = source.iter().map(ToString::to_string).collect();
        for _ in 0..1 + rng.next_u64() % if round % 4 == 0 { 200 } else { 5 } {
            let at = (rng.next_u64() % lines.len() as u64) as usize;
            let other = (rng.next_u64() % lines.len() as u64) as usize;
            match rng.next_u64() % 4 {
                0 if lines.len() > 1 => drop(lines.remove(at)),
                1 => lines.insert(other, lines[at].clone()),
                2 => lines.swap(at, other),
                _ => {
                    // A digit that is not of the seconds: times stay in the same hour.
                    let mut line = lines[at].clone().into_bytes();
                    let digits: Vec<usize> = (0..line.len()).filter(|&i| line[i].is_ascii_digit()).collect();
                    if let Some(&i) = digits.get((rng.next_u64() % digits.len().max(1) as u64) as usize) {
                        line[i] = b'0' + (rng.next_u64() % 10) as u8;
                    }
                    lines[at] = String::from_utf8(line).expect("ASCII");
                }
            }
        }
        let text = lines.join("\n");
        let s = RecordingSpec { all: round % 2 == 0, ..small() };
        let Ok((mut w, _)) = build(&text, &s) else { continue };
        w.horizon = Some(2_000_000_000);
        let r = simulated("2c", w);
        assert!(matches!(r.outcome, Outcome::Finished | Outcome::Horizon), "round {round}: {:?}\n{text}", r.outcome);
        replayed += 1;
    }
    assert!(replayed > 300, "{replayed}");
}

/// Bytes of any kind.
#[test]
fn garbage_is_refused() {
    let mut rng = Pcg64Mcg::new(9);
    for _ in 0..300 {
        let n = (rng.next_u64() % 400) as usize;
        let mut bytes: Vec<u8> = (0..n).map(|_| (rng.next_u64() % 256) as u8).collect();
        if rng.next_u64().is_multiple_of(2) {
            let at = (rng.next_u64() % SMALL.len() as u64) as usize;
            bytes.splice(0..0, SMALL.as_bytes()[..at].iter().copied());
        }
        let mut w = Workload::default();
        // Only that it returns.
        drop(small().build(&mut w, 0, bytes, &|_| Ok(free())));
    }
}

/// `make -j2` with slots: two compilers at once, a third when one has ended, and the archive after all of them.
fn make(jobs: &[(u32, u64, u64)]) -> String {
    use std::fmt::Write;
    // (time, line), since events of the two CPUs interleave.
    let mut lines: Vec<(u64, String)> = Vec::new();
    let mut at = |us: u64, line: String| lines.push((us, line));
    at(0, "sh-10 [000] ..... TS: sched_process_exec: filename=/bin/make pid=10 old_pid=10".into());
    for &(pid, from, to) in jobs {
        at(
            from,
            format!("make-10 [000] ..... TS: sched_process_fork: comm=make pid=10 child_comm=make child_pid={pid}"),
        );
        at(from + 1, "make-10 [000] d..2. TS: sched_switch: prev_comm=make prev_pid=10 prev_prio=120 prev_state=S ==> next_comm=swapper/0 next_pid=0 next_prio=120".into());
        let cpu = pid % 2 + 1;
        at(
            from + 2,
            format!(
                "<idle>-0 [00{cpu}] d..2. TS: sched_switch: prev_comm=swapper/{cpu} prev_pid=0 prev_prio=120 prev_state=R ==> next_comm=cc next_pid={pid} next_prio=120"
            ),
        );
        at(to, format!("cc-{pid} [00{cpu}] d..2. TS: sched_waking: comm=make pid=10 prio=120 target_cpu=000"));
        at(
            to + 1,
            format!(
                "cc-{pid} [00{cpu}] d..2. TS: sched_switch: prev_comm=cc prev_pid={pid} prev_prio=120 prev_state=Z ==> next_comm=swapper/{cpu} next_pid=0 next_prio=120"
            ),
        );
        at(to + 2, "<idle>-0 [000] d..2. TS: sched_switch: prev_comm=swapper/0 prev_pid=0 prev_prio=120 prev_state=R ==> next_comm=make next_pid=10 next_prio=120".into());
        at(to + 5, "make-10 [000] d..2. TS: sched_switch: prev_comm=make prev_pid=10 prev_prio=120 prev_state=S ==> next_comm=swapper/0 next_pid=0 next_prio=120".into());
    }
    let last = jobs.iter().map(|j| j.2).max().unwrap_or(0);
    at(last + 6, "make-10 [000] d..2. TS: sched_switch: prev_comm=make prev_pid=10 prev_prio=120 prev_state=Z ==> next_comm=swapper/0 next_pid=0 next_prio=120".into());
    lines.sort_by_key(|l| l.0);
    let mut text = String::new();
    for (us, line) in lines {
        writeln!(text, "{}", line.replace("TS", &format!("1.{us:06}"))).expect("a string");
    }
    text
}

#[test]
fn jobs_are_found_and_widened() {
    // Two at once; each next starts 3 us after an end; the last alone, after all.
    let text = make(&[
        (11, 100, 1100),
        (12, 110, 1300),
        (13, 1103, 2100),
        (14, 1303, 2300),
        (15, 2103, 3100),
        (16, 2303, 3300),
        (17, 3303, 3500),
    ]);
    let (model, _) = small().model(text.clone().into_bytes(), &|_| Ok(free())).expect("a recording");
    let jobs = model.jobs.as_ref().expect("jobs");
    let d = &jobs.dispatchers[0];
    assert_eq!((jobs.dispatchers.len(), d.limit, d.jobs.len()), (1, 2, 7));
    let starts: Vec<Start> = d.jobs.iter().map(|j| j.start).collect();
    assert_eq!(starts[..6], [Start::Slot; 6]);
    assert_eq!(starts[6], Start::AfterAll, "{text}");

    let time = |jobs: u64, machine: &str| {
        let (w, _) = build(&text, &RecordingSpec { jobs, ..small() }).expect("a recording");
        let r = simulated(machine, w);
        assert_eq!(r.outcome, Outcome::Finished);
        r.virtual_ns as f64 / 1e3
    };
    // As recorded; with two slots; with six: one round of compilers, then the archive. One slot: one after another.
    assert!((3300.0..4200.0).contains(&time(0, "8c")), "{}", time(0, "8c"));
    assert!((3000.0..4200.0).contains(&time(2, "8c")), "{}", time(2, "8c"));
    assert!((1200.0..2000.0).contains(&time(6, "8c")), "{}", time(6, "8c"));
    assert!((6000.0..7400.0).contains(&time(1, "8c")), "{}", time(1, "8c"));
    let (e, asked) = (build(SMALL, &RecordingSpec { jobs: 4, ..small() }), "make -j and xargs -P");
    assert!(e.err().expect("no jobs").to_string().contains(asked));
}

/// Compilers of two jobs wake each other, and the dispatcher one of them after it has started the next: with one slot each
/// of these wake-ups would come too late.
#[test]
fn jobs_that_wait_for_each_other_run_one_after_another() {
    let idle = |pid: u32, us: u32, leaves: bool| {
        let cpu = pid % 2 + 1;
        let task = format!("comm=cc PREV_pid={pid} PREV_prio=120");
        let (prev, next) = (task.replace("PREV", "prev").replace("comm", "prev_comm"), task.replace("PREV", "next"));
        let next = next.replace("comm=cc", "next_comm=cc");
        let switch = match leaves {
            true => format!("{prev} prev_state=S ==> next_comm=swapper/{cpu} next_pid=0 next_prio=120"),
            false => format!("prev_comm=swapper/{cpu} prev_pid=0 prev_prio=120 prev_state=R ==> {next}"),
        };
        let who = if leaves { format!("cc-{pid}") } else { "<idle>-0".into() };
        format!("{who} [00{cpu}] d..2. 1.{us:06}: sched_switch: {switch}")
    };
    let wakes = |who: &str, us: u32, pid: u32| {
        format!("{who} d..2. 1.{us:06}: sched_waking: comm=cc pid={pid} prio=120 target_cpu=00{}", pid % 2 + 1)
    };
    let jobs =
        [(11, 100, 1100), (12, 110, 1300), (13, 1103, 2100), (14, 1303, 2300), (15, 2103, 3100), (16, 2303, 3300)];
    let mut lines: Vec<String> = make(&jobs).lines().map(Into::into).collect();
    lines.extend([idle(11, 500, true), wakes("cc-12 [001]", 510, 11), idle(11, 512, false)]);
    lines.extend([idle(12, 600, true), wakes("cc-11 [002]", 610, 12), idle(12, 612, false)]);
    lines.extend([idle(12, 1000, true), wakes("make-10 [000]", 1103, 12), idle(12, 1110, false)]);
    lines.sort_by_key(|l| l.split(": ").next().and_then(|l| l.rsplit(' ').next().map(String::from)));
    let text = lines.join("\n");
    let (_, r) = build(&text, &small()).expect("a recording");
    assert_eq!(r.posts, 6 + 3, "of ends, and these");
    for (jobs, us) in [(0, 3300.0..4200.0), (1, 6000.0..7400.0), (2, 3000.0..4200.0), (6, 1000.0..2000.0)] {
        let (w, _) = build(&text, &RecordingSpec { jobs, ..small() }).expect("a recording");
        let r = simulated("8c", w);
        assert_eq!(r.outcome, Outcome::Finished, "{jobs} slots");
        assert!(us.contains(&(r.virtual_ns as f64 / 1e3)), "{jobs} slots: {}", r.virtual_ns);
    }
}

/// A client's request goes to the server that is ready. It then waits for what only the other one's work brings about: that gets its
/// request all the same.
#[test]
fn a_server_that_another_stands_in_for_gets_its_request() {
    let by = |task| [What::Sleep(1_000, Why::Task), What::By(task)];
    let mut tasks: [(&str, Vec<What>); 4] =
        [("client", vec![]), ("server", vec![]), ("server", vec![]), ("log", vec![])];
    for _ in 0..12 {
        for server in [1, 2] {
            tasks[0].1.push(What::Post(server, false));
            tasks[0].1.extend(by(server));
            tasks[server as usize].1.extend(by(0));
            tasks[server as usize].1.extend([What::Run(1_000), What::Post(0, false)]);
        }
    }
    tasks[0].1.push(What::Post(1, false));
    tasks[0].1.extend(by(3));
    tasks[0].1.push(What::Post(2, false));
    tasks[1].1.push(What::Run(10_000_000));
    tasks[1].1.extend(by(0));
    tasks[1].1.push(What::Post(3, false));
    tasks[2].1.extend(by(0));
    tasks[3].1.extend(by(1));
    tasks[3].1.push(What::Post(0, false));
    let s = simulated("4c", played(tasks));
    assert_eq!(s.outcome, Outcome::Finished);
    assert_eq!(user_ns(&s), 24 * 1_000 + 10_000_000);
}

#[test]
fn servers_that_the_command_talks_to_are_replayed() {
    // A server that was there before exchanges three wake-ups with the command; a daemon that it wakes once is left out.
    let mut text = String::from(
        "sh-10 [000] ..... 1.000000: sched_process_exec: filename=/bin/client pid=10 old_pid=10\n\
         client-10 [000] d..2. 1.000001: sched_waking: comm=logd pid=50 prio=120 target_cpu=001\n\
         <idle>-0 [001] d..2. 1.000002: sched_switch: prev_comm=swapper/1 prev_pid=0 prev_prio=120 prev_state=R ==> next_comm=logd next_pid=50 next_prio=120\n\
         logd-50 [001] d..2. 1.000003: sched_switch: prev_comm=logd prev_pid=50 prev_prio=120 prev_state=S ==> next_comm=swapper/1 next_pid=0 next_prio=120\n",
    );
    for n in 0..4u64 {
        let t = |us: u64| format!("1.{:06}", 100 * (n + 1) + us);
        text += &format!(
            "client-10 [000] d..2. {}: sched_waking: comm=server pid=40 prio=120 target_cpu=001\n\
             client-10 [000] d..2. {}: sched_switch: prev_comm=client prev_pid=10 prev_prio=120 prev_state=S ==> next_comm=swapper/0 next_pid=0 next_prio=120\n\
             <idle>-0 [001] d..2. {}: sched_switch: prev_comm=swapper/1 prev_pid=0 prev_prio=120 prev_state=R ==> next_comm=server next_pid=40 next_prio=120\n\
             server-40 [001] d..2. {}: sched_waking: comm=client pid=10 prio=120 target_cpu=000\n\
             server-40 [001] d..2. {}: sched_switch: prev_comm=server prev_pid=40 prev_prio=120 prev_state=S ==> next_comm=swapper/1 next_pid=0 next_prio=120\n\
             <idle>-0 [000] d..2. {}: sched_switch: prev_comm=swapper/0 prev_pid=0 prev_prio=120 prev_state=R ==> next_comm=client next_pid=10 next_prio=120\n",
            t(0),
            t(1),
            t(2),
            t(22),
            t(23),
            t(24)
        );
    }
    let (w, r) = build(&text, &small()).expect("a recording");
    assert_eq!((r.tasks, r.outside), (2, 1), "{r}");
    assert_eq!(r.partners, [("server".to_string(), 1)]);
    let s = simulated("2c", w);
    assert_eq!(s.outcome, Outcome::Finished);
    // Requests and replies take turns: the client sleeps for each.
    let client = s.tasks.iter().find(|t| t.name.starts_with("client")).expect("the client");
    assert!(client.run.switches >= 4, "{}", client.run.switches);
}

/// A client asks servers that stay: each request is served once, and no more are open than allowed.
#[test]
fn a_fitted_client_waits_for_replies() {
    for servers in [1u64, 2] {
        let text = format!(
            "schema = 1\nform = \"fitted\"\n[source]\nrecording = \"x\"\ncpus = 3\nspan_ns = 1\n\
             [[role]]\nname = \"client\"\ntasks = 1\nturns = [101]\nrun_us = [10]\n\
             ends = [{{ by = \"ask\", role = \"server\", share = 1.0, open = {servers}, us = [0] }}]\n\
             [[role]]\nname = \"server\"\ntasks = {servers}\nserves = true\nturns = [7]\nrun_us = [400]\n\
             ends = [{{ by = \"task\", role = \"client\", share = 1.0, us = [10] }}]\n"
        );
        let mut w = Workload::default();
        let spec = ModelSpec { file: "m".into(), ..ModelSpec::default() };
        spec.build(&mut w, 0, text.as_bytes()).expect("a model");
        let s = simulated("3c", w);
        assert_eq!(s.outcome, Outcome::Finished);
        // A server begins with a turn of its own; then one for each request.
        assert_eq!(user_ns(&s), 101 * 10_000 + (servers + 100) * 400_000);
        assert_eq!(s.metrics.counts.get("model_timeouts"), None);
        // A request waits for a free server: they work one after the other, or side by side.
        let least = 100 * 400_000 / servers;
        assert!((least..least + least / 4).contains(&s.virtual_ns), "{servers}: {}", s.virtual_ns);
    }
}

/// A script starts a server and its client, both at once. With one slot the client waits for the server to end, which nobody asks.
#[test]
fn a_fitted_server_that_nobody_can_ask_gives_up() {
    let text = "schema = 1\nform = \"fitted\"\n[source]\nrecording = \"x\"\ncpus = 2\nspan_ns = 1\n\
         [[role]]\nname = \"sh\"\ntasks = 1\nturns = [1]\nrun_us = [10]\n\
         starts = [{ role = \"server\", per_life = 1.0, at_once = 2 }, { role = \"client\", per_life = 1.0, at_once = 2 }]\n\
         [[role]]\nname = \"server\"\ntasks = 0\nturns = [21]\nrun_us = [400]\n\
         ends = [{ by = \"task\", role = \"client\", share = 1.0, us = [10] }]\n\
         [[role]]\nname = \"client\"\ntasks = 0\nturns = [21]\nrun_us = [10]\n\
         ends = [{ by = \"ask\", role = \"server\", share = 1.0, open = 1, us = [0] }]\n";
    for (jobs, gives_up) in [(0, false), (2, false), (1, true)] {
        let mut w = Workload::default();
        let spec = ModelSpec { file: "m".into(), jobs, ..ModelSpec::default() };
        spec.build(&mut w, 0, text.as_bytes()).expect("a model");
        w.horizon = Some(10_000_000_000);
        let s = simulated("2c", w);
        assert_eq!(s.outcome, Outcome::Finished, "{jobs}");
        assert_eq!(s.metrics.counts.contains_key("model_timeouts"), gives_up, "{jobs}");
    }
}

/// A script's children run one after another, wherever it runs; `--jobs` is not for it.
#[test]
fn a_fitted_script_stays_in_turn() {
    let text = make(&[(11, 100, 1100), (12, 1103, 2100), (13, 2103, 3100), (14, 3103, 4100)]);
    let (model, _) = small().model(text.into_bytes(), &|_| Ok(free())).expect("a recording");
    assert!(model.jobs.is_none());
    assert_eq!(model.scripts.len(), 1);
    // The exact form says so in its file, too.
    let Ok(Model::Exact(model)) = Model::parse(&Model::Exact(model).to_bytes(), "m") else { panic!("an exact model") };
    let model = fitted::fit(&model);
    let starts: Vec<_> = model.roles.iter().flat_map(|r| &r.starts).map(|s| (s.role.as_str(), s.at_once)).collect();
    assert_eq!(starts, [("cc", 1)]);

    let text = Model::Fitted(model).to_bytes();
    let mut w = Workload::default();
    let spec = ModelSpec { file: "m".into(), copies: 2, ..ModelSpec::default() };
    spec.build(&mut w, 0, &text).expect("a model");
    let s = simulated("8c", w);
    assert_eq!(s.outcome, Outcome::Finished);
    assert!((3900.0..4400.0).contains(&(s.virtual_ns as f64 / 1e3)), "{}", s.virtual_ns);
    let refused = ModelSpec { jobs: 4, ..spec }.build(&mut Workload::default(), 0, &text);
    assert!(refused.expect_err("no jobs").to_string().contains("make -j and xargs -P"));
}

/// Slots are a task's own, and all that it starts under a limit share them.
#[test]
fn slots_are_of_one_task_for_all_that_it_starts() {
    let model = |makes: u32, at_once: u32| {
        format!(
            "schema = 1\nform = \"fitted\"\n[source]\nrecording = \"x\"\ncpus = 2\nspan_ns = 1\n\
             [[role]]\nname = \"make\"\ntasks = {makes}\nturns = [1]\nrun_us = [0]\n\
             starts = [{{ role = \"cc\", per_life = 4.0, at_once = {at_once} }}, {{ role = \"ld\", per_life = 4.0, at_once = {at_once} }}]\n\
             [[role]]\nname = \"cc\"\ntasks = 0\nturns = [1]\nrun_us = [1000]\n\
             [[role]]\nname = \"ld\"\ntasks = 0\nturns = [1]\nrun_us = [1000]\n"
        )
    };
    // Eight of 1 ms each, for each make; new tasks may share a CPU for a moment.
    for (makes, at_once, jobs, ms) in
        [(1, 1, 0, 8), (1, 2, 0, 4), (1, 2, 1, 8), (1, 2, 4, 2), (4, 2, 0, 4), (1, 0, 0, 1)]
    {
        let mut w = Workload::default();
        let spec = ModelSpec { file: "m".into(), jobs, ..ModelSpec::default() };
        spec.build(&mut w, 0, model(makes, at_once).as_bytes()).expect("a model");
        let s = simulated("32c", w);
        assert_eq!(s.outcome, Outcome::Finished);
        let found = s.virtual_ns as f64 / 1e6;
        assert!((f64::from(ms)..f64::from(ms) * 1.5).contains(&found), "{makes}, {at_once}, {jobs}: {found}");
    }
}
