//! The chosen chains as they are played: one array of steps for all tasks and copies.

use std::sync::Arc;

use contend_platform::Nanos;
use contend_sim::program::{Cx, ObjId, ObjectKind, Op, Program, TaskSpec, Workload};

use super::chains::{Chains, Step, What};
use super::filter::Chosen;
use super::report::{RecordedTask, RecordingReport};

/// The steps of all tasks, one after another.
pub struct Tape {
    steps: Vec<Step>,
    pub tasks: Vec<TapeTask>,
}

/// One task's part of the tape.
pub struct TapeTask {
    name: String,
    nice: i8,
    from: usize,
    to: usize,
    /// Starts when the replay starts, not by a spawn.
    initial: bool,
}

/// A kernel priority as a nice value; real-time tasks become the nicest to themselves.
fn nice(prio: i32) -> i8 {
    (prio - 120).clamp(-20, 19) as i8
}

/// Cut the tape: chosen tasks only, numbered anew; times divided by `speed`.
pub fn cut(chains: &Chains, chosen: &Chosen, speed: f64) -> (Tape, RecordingReport) {
    let mut number = vec![None; chains.tasks.len()];
    let mut next = 0u32;
    for (i, _) in chosen.included.iter().enumerate().filter(|(_, i)| **i) {
        number[i] = Some(next);
        next += 1;
    }
    let start_of = |i: usize| match chosen.root {
        Some((task, at, ts)) if task as usize == i => (at, ts),
        _ => (0, chains.tasks[i].start_ts),
    };
    let included = || (0..chains.tasks.len()).filter(|&i| chosen.included[i]);
    let begin = included().map(|i| start_of(i).1).min().unwrap_or(0);
    let scaled = |ns: u64| if speed == 1.0 { ns } else { (ns as f64 / speed) as u64 };

    let mut r = RecordingReport {
        tasks: next.into(),
        outside: chains.tasks.len() as u64 - u64::from(next),
        kernel_threads: chosen.kernel_threads,
        span_ns: chains.last_ts.saturating_sub(begin),
        ..RecordingReport::default()
    };
    let mut tape = Tape { steps: Vec::new(), tasks: Vec::with_capacity(next as usize) };
    // A child whose spawn is on the tape starts there.
    let mut spawned = vec![false; next as usize];
    for i in included() {
        for step in &chains.tasks[i].steps[start_of(i).0..] {
            if let What::Spawn(c) = step.what()
                && let Some(c) = number[c as usize]
            {
                spawned[c as usize] = true;
            }
        }
    }
    for i in included() {
        let t = &chains.tasks[i];
        let (at, ts) = start_of(i);
        let me = tape.tasks.len();
        let from = tape.steps.len();
        let mut task =
            RecordedTask { name: t.name.to_string(), pid: t.pid, exited: t.exited, ..RecordedTask::default() };
        task.switches = t.switches;
        task.preempted = t.preempted;
        if !spawned[me] {
            r.initial += 1;
            if ts > begin {
                tape.steps.push(Step::new(What::Sleep(scaled(ts - begin))));
            }
        }
        // Running, and not yet on the tape.
        let mut run = 0;
        let mut bursting = false;
        let mut steps = t.steps[at..].iter().map(|s| s.what()).peekable();
        while let Some(what) = steps.next() {
            let step = match what {
                What::Run(ns) => {
                    run = u64::saturating_add(run, ns);
                    task.run_ns = task.run_ns.saturating_add(ns);
                    task.bursts += u64::from(!bursting);
                    bursting = true;
                    continue;
                }
                What::Nop | What::By(_) | What::Wait => continue,
                What::Post(who) => match number[who as usize] {
                    Some(n) => What::Post(n),
                    None => continue,
                },
                What::Spawn(who) => match number[who as usize] {
                    Some(n) => What::Spawn(n),
                    None => continue,
                },
                What::Sleep(ns) => {
                    bursting = false;
                    match steps.next_if(|s| matches!(s, What::By(_))) {
                        Some(What::By(who)) if number[who as usize].is_some() => {
                            task.waits += 1;
                            What::Wait
                        }
                        Some(_) => {
                            r.sleeps_outside += 1;
                            task.sleeps += 1;
                            What::Sleep(scaled(ns))
                        }
                        None => {
                            task.sleeps += 1;
                            What::Sleep(scaled(ns))
                        }
                    }
                }
            };
            if run > 0 {
                tape.steps.push(Step::new(What::Run(scaled(run))));
                run = 0;
            }
            r.posts += u64::from(matches!(step, What::Post(_)));
            r.forks += u64::from(matches!(step, What::Spawn(_)));
            tape.steps.push(Step::new(step));
        }
        if run > 0 {
            tape.steps.push(Step::new(What::Run(scaled(run))));
        }
        let name = format!("{}-{}", t.name, t.pid);
        r.realtime += u64::from(t.prio < 100);
        tape.tasks.push(TapeTask { name, nice: nice(t.prio), from, to: tape.steps.len(), initial: !spawned[me] });
        r.idle_wakes += t.counts.idle_wakes;
        r.unseen += t.counts.unseen;
        r.unchained += t.counts.unchained;
        r.ambiguous += t.counts.ambiguous;
        r.bursts += task.bursts;
        r.run_ns = r.run_ns.saturating_add(task.run_ns);
        r.waits += task.waits;
        r.sleeps += task.sleeps;
        r.switches += task.switches;
        r.preempted += task.preempted;
        r.per_task.push(task);
    }
    r.sleeps -= r.sleeps_outside;
    r.steps = tape.steps.len() as u64;
    (tape, r)
}

/// Add one copy.
pub fn add(tape: &Arc<Tape>, w: &mut Workload, copy: u64, copies: u64) {
    let semaphores = w.objects.len() as u32;
    let suffix = if copies > 1 { format!("+{copy}") } else { String::new() };
    for t in &tape.tasks {
        w.object(format!("wake/{}{suffix}", t.name), ObjectKind::Semaphore { initial: 0 });
    }
    let copy = copy as u32;
    for i in 0..tape.tasks.len() {
        if tape.tasks[i].initial {
            w.task(spec(tape, i as u32, semaphores, copy, copies > 1));
        }
    }
}

fn spec(tape: &Arc<Tape>, number: u32, semaphores: u32, copy: u32, copies: bool) -> TaskSpec {
    let t = &tape.tasks[number as usize];
    let name = if copies { format!("{}+{copy}", t.name) } else { t.name.clone() };
    let player = Player { tape: Arc::clone(tape), at: t.from, to: t.to, number, semaphores, copy, copies };
    TaskSpec { nice: t.nice, ..TaskSpec::new(name, player) }
}

/// A task that plays its part.
struct Player {
    tape: Arc<Tape>,
    at: usize,
    to: usize,
    number: u32,
    /// The copy's first semaphore.
    semaphores: u32,
    copy: u32,
    copies: bool,
}

impl Program for Player {
    fn next(&mut self, _: &mut Cx<'_>) -> Op {
        while self.at < self.to {
            let step = self.tape.steps[self.at].what();
            self.at += 1;
            return match step {
                What::Run(ns) => Op::Run(ns as Nanos),
                What::Sleep(ns) => Op::Sleep(ns as Nanos),
                What::Wait => Op::SemWait(ObjId(self.semaphores + self.number)),
                What::Post(who) => Op::SemPost(ObjId(self.semaphores + who), 1),
                What::Spawn(who) => Op::Spawn(Box::new(spec(&self.tape, who, self.semaphores, self.copy, self.copies))),
                What::Nop | What::By(_) => continue,
            };
        }
        Op::Exit
    }
}
