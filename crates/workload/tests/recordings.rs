//! Recordings: exact counts on a small one, conservation on a real one, and damage that never panics nor deadlocks.

mod common;

use std::io::Read;

use common::{run, spec, user_ns};
use contend_machine::Machine;
use contend_sched::features::Preset;
use contend_sim::guest::Guests;
use contend_sim::host::{Limits, Outcome, Setup, simulate};
use contend_sim::program::Workload;
use contend_workload::recording::{RecordingError, RecordingReport, RecordingSpec};
use rand::Rng;
use rand_pcg::Pcg64Mcg;

const SHIPPED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../recordings/hackbench-2cpu.txt.gz");

fn build(text: &str, spec: &RecordingSpec) -> Result<(Workload, RecordingReport), RecordingError> {
    let mut w = Workload::default();
    let r = spec.build(&mut w, text.as_bytes().to_vec())?;
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

#[test]
fn a_small_recording_step_by_step() {
    let (w, r) =
        build(SMALL, &RecordingSpec { file: "small".into(), ..RecordingSpec::default() }).expect("a recording");
    assert_eq!((r.tasks, r.initial, r.outside, r.kernel_threads, r.forks), (2, 1, 1, 1, 1));
    assert_eq!((r.waits, r.sleeps, r.sleeps_outside, r.posts, r.ambiguous), (1, 1, 0, 1, 0));
    let (parent, child) = (&r.per_task[0], &r.per_task[1]);
    assert_eq!((parent.run_ns, parent.bursts, parent.waits, parent.sleeps), (10_000 + 13_000, 2, 1, 0));
    assert_eq!((child.run_ns, child.bursts, child.waits, child.sleeps), (3_000 + 7_000 + 1_000, 2, 0, 1));
    assert!(parent.exited && child.exited);
    assert_eq!((child.switches, child.preempted), (3, 1));
    let s = simulated("2c", w);
    assert_eq!(s.outcome, Outcome::Finished);
    assert_eq!(user_ns(&s), 34_000);
    assert_eq!(s.tasks.iter().map(|t| (t.name.as_str(), t.nice)).collect::<Vec<_>>(), [("cmd-10", 0), ("cmd-11", 5)]);
}

#[test]
fn without_flags_the_running_task_is_taken_for_the_waker() {
    let text = SMALL.replace(" ..... ", " ").replace(" d..2. ", " ").replace(" d.h2. ", " ");
    let (_, r) =
        build(&text, &RecordingSpec { file: "small".into(), ..RecordingSpec::default() }).expect("a recording");
    assert_eq!((r.waits, r.sleeps, r.ambiguous), (2, 0, 3));
}

#[test]
fn other_choices() {
    let of = |f: fn(&mut RecordingSpec)| {
        let mut s = RecordingSpec { file: "small".into(), ..RecordingSpec::default() };
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
    let e = of(|s| s.copies = 100_000).map(|(_, r)| r.tasks);
    assert_eq!(e.expect("200,000 tasks are allowed"), 2);
}

#[test]
fn the_shipped_recording_does_its_recorded_work() {
    let s = spec("recording", &[("file", SHIPPED)]);
    let (_, reports) = s.build_with_reports(2, &|f| std::fs::read(f)).expect("a recording");
    let r = &reports[0];
    assert_eq!((r.tasks, r.initial, r.forks), (81, 1, 80), "{r}");
    // Machines without SMT: there work takes its recorded time.
    for machine in ["x86_64-2cpu", "1n1l2c1t", "2n22c"] {
        for preset in ["linux-2.6.37", "linux-6.0", "linux-6.18"] {
            let sim = run(machine, preset, &s);
            assert_eq!(sim.outcome, Outcome::Finished, "{machine} {preset}");
            assert_eq!(sim.tasks.len(), 81);
            assert_eq!(user_ns(&sim), r.run_ns, "{machine} {preset}: not more and not less work than recorded");
        }
    }
    // One by one: a task runs its recorded time and what the kernel adds.
    let sim = run("x86_64-2cpu", "linux-6.18", &s);
    for t in &r.per_task {
        let name = format!("{}-{}", t.name, t.pid);
        let ran = sim.tasks.iter().find(|s| s.name == name).expect("the task").run.sum_exec;
        assert!(ran >= t.run_ns, "{name}: {ran} of {}", t.run_ns);
        // Switches and wake-ups; the first task forks the other 80.
        let forks = if t.pid == r.per_task[0].pid { r.forks } else { 0 };
        let kernel = 20_000 * (t.bursts + 10) + 100_000 * forks;
        assert!(ran <= t.run_ns + kernel, "{name}: {ran} of {}", t.run_ns);
    }
    // The length of the run on the machine it was recorded on, within a quarter.
    let ratio = sim.virtual_ns as f64 / r.span_ns as f64;
    assert!((0.8..1.25).contains(&ratio), "{ratio}");
}

/// Lines and digits of real recordings are removed, doubled, swapped and changed: whatever can be read can be replayed,
/// and no replay deadlocks.
#[test]
fn damaged_recordings_neither_panic_nor_deadlock() {
    let mut text = String::new();
    let bytes = std::fs::read(SHIPPED).expect("the recording");
    flate2::read::MultiGzDecoder::new(&bytes[..]).read_to_string(&mut text).expect("text");
    let shipped: Vec<&str> = text.lines().take(3000).collect();
    let small: Vec<&str> = SMALL.lines().collect();
    let mut rng = Pcg64Mcg::new(7);
    let mut replayed = 0;
    for round in 0..400 {
        let source = if round % 4 == 0 { &shipped } else { &small };
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
        let s = RecordingSpec { file: "damaged".into(), all: round % 2 == 0, ..RecordingSpec::default() };
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
        drop(RecordingSpec { file: "garbage".into(), ..RecordingSpec::default() }.build(&mut w, bytes));
    }
}
