//! Every construct's steps, every message, and that no input makes the parser panic.

mod fuzz;
mod installed;
mod messages;
mod steps;

use std::collections::BTreeMap;

use contend_platform::{CpuId, Nanos, TaskId, Time};
use contend_sim::program::{Cx, Metrics, Op, Program, TaskSpec, Workload};
use rand_pcg::Pcg64Mcg;

use super::{RtApp, parse};

/// The sample files.
const SAMPLES: [(&str, &str); 4] = [
    ("periodic.json", include_str!("../../testdata/rtapp/periodic.json")),
    ("locks.json", include_str!("../../testdata/rtapp/locks.json")),
    ("workgen.json", include_str!("../../testdata/rtapp/workgen.json")),
    ("hints.json", include_str!("../../testdata/rtapp/hints.json")),
];

#[derive(Default)]
struct Samples {
    latencies: BTreeMap<&'static str, Vec<Nanos>>,
    counts: BTreeMap<&'static str, u64>,
}

impl Metrics for Samples {
    fn count(&mut self, name: &'static str, n: u64) {
        *self.counts.entry(name).or_default() += n;
    }
    fn latency(&mut self, name: &'static str, ns: Nanos) {
        self.latencies.entry(name).or_default().push(ns);
    }
}

/// Plays one program without a kernel: what it asks for happens at once, time passes as asked.
struct Player {
    program: Box<dyn Program>,
    now: Time,
    /// Computing takes this many times longer than asked (preemption or a slow CPU).
    slow: u64,
    /// Timers wake this late.
    late: Nanos,
    rng: Pcg64Mcg,
    samples: Samples,
    spawned: Vec<TaskSpec>,
}

impl Player {
    fn new(spec: TaskSpec) -> Player {
        let rng = Pcg64Mcg::new(1);
        Player { program: spec.program, now: 0, slow: 1, late: 0, rng, samples: Samples::default(), spawned: vec![] }
    }

    /// One step, in words, times in us.
    fn step(&mut self) -> String {
        let mut cx =
            Cx { now: self.now, task: TaskId(0), cpu: CpuId(0), rng: &mut self.rng, metrics: &mut self.samples };
        let us = |ns: Nanos| if ns.is_multiple_of(1000) { (ns / 1000).to_string() } else { format!("{ns}ns") };
        match self.program.next(&mut cx) {
            Op::Run(ns) => {
                self.now += ns * self.slow;
                format!("run {}", us(ns))
            }
            Op::Syscall(ns) => {
                self.now += ns;
                format!("syscall {}", us(ns))
            }
            Op::Sleep(ns) => {
                self.now += ns;
                format!("sleep {}", us(ns))
            }
            Op::SleepUntil(t) => {
                self.now = if t > self.now { t + self.late } else { self.now };
                format!("until {}", us(t))
            }
            Op::Yield => "yield".into(),
            Op::Lock(o) => format!("lock {}", o.0),
            Op::Unlock(o) => format!("unlock {}", o.0),
            Op::CondWait { cond, mutex } => format!("wait {} {}", cond.0, mutex.0),
            Op::CondSignal(o) => format!("signal {}", o.0),
            Op::CondBroadcast(o) => format!("broadcast {}", o.0),
            Op::Barrier(o) => format!("barrier {}", o.0),
            Op::FutexWait(o) => format!("suspend {}", o.0),
            Op::FutexWake(o, n) => format!("resume {} {n}", o.0),
            Op::Spawn(spec) => {
                let words = format!("spawn {}", spec.name);
                self.spawned.push(*spec);
                words
            }
            Op::SetAffinity(set) => {
                format!("cpus {}", set.map_or("all".into(), |s| format!("{:?}", s.ones().collect::<Vec<_>>())))
            }
            Op::SetScheduler(s) => format!("sched {s}"),
            Op::Exit => "exit".into(),
            _ => "unexpected".into(),
        }
    }

    /// Up to `n` steps, ending with the exit.
    fn play(&mut self, n: usize) -> String {
        let mut words = Vec::new();
        for _ in 0..n {
            words.push(self.step());
            if words.last().is_some_and(|w| w == "exit") {
                break;
            }
        }
        words.join(", ")
    }
}

fn load(text: &str) -> RtApp {
    parse(text, "t.json").unwrap_or_else(|e| panic!("{e}"))
}

fn workload(text: &str) -> Workload {
    load(text).workload(8).unwrap_or_else(|e| panic!("{e}"))
}

/// A file with one task `t` of this body.
fn task(body: &str) -> String {
    format!(r#"{{ "tasks" : {{ "t" : {{ {body} }} }} }}"#)
}

fn player(text: &str) -> Player {
    Player::new(workload(text).tasks.remove(0))
}
