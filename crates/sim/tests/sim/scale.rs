//! Large runs: their memory (the high-water mark of a process of its own), and many runs side by side.

use crate::common::{MS, machine, preset, run_on, task};
use contend_sim::host::{Outcome, RunResult};
use contend_sim::program::{Op, Workload};
use std::process::Command;

/// 100,000 sleepers and eight that run.
fn crowd() -> RunResult {
    let mut w = Workload { horizon: Some(300 * MS), ..Workload::default() };
    for i in 0..100_000u64 {
        w.task(task("sleeper", move |cx| Op::SleepUntil((cx.now / (200 * MS) + 1) * 200 * MS + i)));
    }
    for i in 0..8 {
        let mut on = false;
        w.task(task(&format!("runner{i}"), move |_| {
            on = !on;
            if on { Op::Run(MS) } else { Op::Sleep(MS) }
        }));
    }
    run_on(machine("2n1l8c2t"), &preset("linux-6.18"), w, 300 * MS)
}

/// 1,024 CPUs, 4,096 tasks that run 3 ms and sleep 1 to 7 ms.
fn wide() -> RunResult {
    let mut w = Workload { horizon: Some(300 * MS), ..Workload::default() };
    for i in 0..4096u64 {
        let mut on = false;
        w.task(task(&format!("t{i}"), move |_| {
            on = !on;
            if on { Op::Run(3 * MS) } else { Op::Sleep((1 + i % 7) * MS) }
        }));
    }
    run_on(machine("8n2l32c2t"), &preset("linux-6.18"), w, 300 * MS)
}

/// The subprocess: runs what the environment names and prints its memory.
#[test]
fn child() {
    let r = match std::env::var("CONTEND_TEST_SCALE").as_deref() {
        Ok("crowd") => crowd(),
        Ok("wide") => wide(),
        _ => return,
    };
    assert_eq!(r.outcome, Outcome::Horizon, "{}", r.outcome.detail());
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux");
    let peak = status.lines().find(|l| l.starts_with("VmHWM:")).expect("VmHWM");
    println!("{peak}\ntasks {} cpus {} dispatches {}", r.tasks.len(), r.cpus.len(), r.dispatches);
}

/// Peak resident memory in MiB of a run in a process of its own, and what it said.
fn peak_mib(what: &str) -> (u64, String) {
    let exe = std::env::current_exe().expect("the test's path");
    let out = Command::new(exe)
        .args(["--exact", "scale::child", "--nocapture"])
        .env("CONTEND_TEST_SCALE", what)
        .output()
        .expect("the child starts");
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    assert!(out.status.success(), "{text}\n{}", String::from_utf8_lossy(&out.stderr));
    let kib = text.lines().find_map(|l| l.split("VmHWM:").nth(1)).expect("a peak");
    (kib.trim().trim_end_matches(" kB").parse::<u64>().expect("KiB") / 1024, text)
}

#[test]
#[cfg(target_os = "linux")]
fn a_hundred_thousand_tasks_fit_a_process() {
    let (mib, text) = peak_mib("crowd");
    println!("100,000 tasks: {mib} MiB\n{text}");
    assert!(text.contains("tasks 100008 cpus 32"), "{text}");
    assert!(mib < 400, "{mib} MiB: a task costs more than 4 KiB");
}

#[test]
#[cfg(target_os = "linux")]
fn a_thousand_cpus_fit_a_gibibyte() {
    let (mib, text) = peak_mib("wide");
    println!("1,024 CPUs: {mib} MiB\n{text}");
    assert!(text.contains("tasks 4096 cpus 1024"), "{text}");
    assert!(mib < 1024, "{mib} MiB");
}

#[test]
fn side_by_side_runs_are_equal() {
    let one = |seed: u64| {
        let mut w = Workload { horizon: Some(100 * MS), ..Workload::default() };
        for i in 0..40 {
            let mut on = false;
            w.task(task(&format!("t{i}"), move |_| {
                on = !on;
                if on { Op::Run(MS + 1000 * seed) } else { Op::Sleep((1 + i % 5) * MS) }
            }));
        }
        let r = run_on(machine("2n1l4c2t"), &preset("linux-6.18"), w, 100 * MS);
        (r.trace_hash, r.virtual_ns, r.ledger(), r.tasks)
    };
    let alone = [one(0), one(1)];
    assert_ne!(alone[0].0, alone[1].0);
    let together = std::thread::scope(|s| {
        let threads: Vec<_> = (0..12u64).map(|i| s.spawn(move || one(i % 2))).collect();
        threads.into_iter().map(|t| t.join().expect("no panic")).collect::<Vec<_>>()
    });
    for (i, r) in together.iter().enumerate() {
        assert_eq!(r, &alone[i % 2], "thread {i}");
    }
}
