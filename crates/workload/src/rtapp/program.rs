//! What a task executes: one flat list of steps for the whole file, shared by all tasks, and a small state for each.
//!
//! A task's steps lie one after another: delay, start, then for every phase a head (settings), a top (the round
//! begins), its events and a foot (the round ends: metrics, next round or next phase), and a tail (next round of the
//! task, or exit). Every pass through a loop body returns at least one [`Op`], except that an empty phase and a
//! relative timer found late return none; the first runs once, the second cannot be late twice in a row, so
//! [`RtProgram::next`] always returns.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use contend_platform::{NEVER, Nanos, Time};
use contend_sim::program::{Cx, GroupId, ObjId, Op, Program, Sched, TaskSpec};
use fixedbitset::FixedBitSet;

/// One step. 24 bytes.
#[derive(Debug)]
pub(super) enum Step {
    Delay(Nanos),
    /// The task's life begins: timers count from here.
    Start,
    /// Apply the phase's settings.
    Head(u32),
    Top,
    /// `phase`, and the place of its `Top`.
    Foot {
        phase: u32,
        top: u32,
    },
    Tail {
        task: u32,
    },
    Run(Nanos),
    Runtime(Nanos),
    Sleep(Nanos),
    /// `mem`: computing that is not a `run`.
    Mem(Nanos),
    /// `iorun`: time in system calls.
    Io(Nanos),
    Timer {
        slot: u32,
        own: bool,
        absolute: bool,
        period_ns: Nanos,
    },
    Lock(ObjId),
    Unlock(ObjId),
    Wait {
        cond: ObjId,
        mutex: ObjId,
    },
    Signal(ObjId),
    Broadcast(ObjId),
    Barrier(ObjId),
    Suspend(ObjId),
    Resume(ObjId),
    Yield,
    Fork(u32),
}

/// A phase's settings and what its foot needs.
#[derive(Debug)]
pub(super) struct PhaseCode {
    /// Rounds (`u32::MAX`: for ever).
    pub rounds: u32,
    /// Index of the CPU set in force.
    pub cpus: u32,
    /// New class and priority.
    pub sched: Option<Sched>,
    /// The group in force.
    pub group: GroupId,
    /// It has a timer, so its rounds have a slack.
    pub timer: bool,
}

/// A task's entry point and what each of its instances starts with.
#[derive(Debug)]
pub(super) struct TaskCode {
    pub name: String,
    /// Position in the file, as in rt-app's thread names.
    pub number: u32,
    pub entry: u32,
    /// Step after `Start`.
    pub body: u32,
    /// Rounds (`u32::MAX`: for ever).
    pub rounds: u32,
    pub own_timers: u32,
    pub cpus: u32,
    pub sched: Option<Sched>,
    pub group: GroupId,
    pub working_set_kib: u32,
    /// How many have been forked.
    pub forks: AtomicU32,
}

/// All that the tasks of one workload share. The atomics are plain variables: tasks of a simulation take turns.
#[derive(Debug, Default)]
pub(super) struct App {
    pub steps: Vec<Step>,
    pub phases: Vec<PhaseCode>,
    pub tasks: Vec<TaskCode>,
    /// CPU sets; index 0 is "all".
    pub cpus: Vec<Option<FixedBitSet>>,
    /// Next expiry of each shared timer (`NEVER`: not used yet).
    pub timers: Vec<AtomicU64>,
    pub cumulative_slack: bool,
}

/// What the step that has just completed was.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Pending {
    Nothing,
    /// A `run` since `mark`.
    Run,
    /// A timer that fired at `mark`.
    Timer,
    /// A part of a `runtime` that ends at `mark`.
    Spin,
}

/// One task.
pub(super) struct RtProgram {
    app: Arc<App>,
    /// Expiry of each timer of its own.
    timers: Box<[Time]>,
    task: u32,
    pc: u32,
    /// Rounds of the current phase, and of the task, that are complete.
    phase_round: u32,
    task_round: u32,
    /// CPU set in force.
    cpus: u32,
    /// Class in force, as far as the file says.
    sched: Option<Sched>,
    group: GroupId,
    pending: Pending,
    /// When the task's life began (after its delay).
    started: Time,
    /// When the current round of the phase began.
    begun: Time,
    /// See [`Pending`].
    mark: Time,
    /// Time between start and end of the round's `run` and `runtime` events.
    run_ns: Nanos,
    /// Slack of the round, negative when late.
    slack_ns: i64,
}

impl RtProgram {
    /// The task at its entry point.
    pub fn new(app: &Arc<App>, task: u32) -> Self {
        let code = &app.tasks[task as usize];
        RtProgram {
            app: app.clone(),
            timers: vec![NEVER; code.own_timers as usize].into(),
            task,
            pc: code.entry,
            phase_round: 0,
            task_round: 0,
            cpus: code.cpus,
            sched: code.sched,
            group: code.group,
            pending: Pending::Nothing,
            started: 0,
            begun: 0,
            mark: 0,
            run_ns: 0,
            slack_ns: 0,
        }
    }

    /// The step before has completed: take its measures.
    fn settle(&mut self, cx: &mut Cx<'_>) {
        match self.pending {
            Pending::Run => self.run_ns += cx.now.saturating_sub(self.mark),
            Pending::Timer => cx.metrics.latency("wakeup_latency", cx.now.saturating_sub(self.mark)),
            // Ends at its step, or goes on there.
            Pending::Spin => return,
            Pending::Nothing => {}
        }
        self.pending = Pending::Nothing;
    }

    /// Begin, continue or end a `runtime` of `total` ns.
    fn spin(&mut self, now: Time, total: Nanos) -> Option<Op> {
        if self.pending != Pending::Spin {
            self.pending = Pending::Spin;
            self.mark = now + total;
        } else if now >= self.mark {
            self.pending = Pending::Nothing;
            self.run_ns += now - (self.mark - total);
            return None;
        }
        // As rt-app does, look at the clock between parts: a sixteenth of the whole, but at least 10 us.
        Some(Op::Run((self.mark - now).min((total / 16).max(10_000))))
    }

    /// Set a timer's next expiry; the step's [`Op`] unless it is missed in relative mode.
    fn timer(&mut self, cx: &mut Cx<'_>, slot: u32, own: bool, absolute: bool, period_ns: Nanos) -> Option<Op> {
        let slot = slot as usize;
        let last = if own { self.timers[slot] } else { self.app.timers[slot].load(Ordering::Relaxed) };
        let due = (if last == NEVER { self.started } else { last }).saturating_add(period_ns).min(NEVER - 1);
        let slack = i64::try_from(i128::from(due) - i128::from(cx.now)).unwrap_or(i64::MAX);
        self.slack_ns = if self.app.cumulative_slack { self.slack_ns.saturating_add(slack) } else { slack };
        let missed = due < cx.now;
        let next = if missed && !absolute { cx.now } else { due };
        if own {
            self.timers[slot] = next;
        } else {
            self.app.timers[slot].store(next, Ordering::Relaxed);
        }
        if missed {
            cx.metrics.count("timers_missed", 1);
            return absolute.then_some(Op::SleepUntil(due));
        }
        self.pending = Pending::Timer;
        self.mark = due;
        Some(Op::SleepUntil(due))
    }

    /// A round of a phase is over.
    fn round(&mut self, cx: &mut Cx<'_>, timer: bool) {
        cx.metrics.latency("period", cx.now.saturating_sub(self.begun));
        cx.metrics.latency("run", self.run_ns);
        if timer {
            let name = if self.slack_ns < 0 { "slack_missed" } else { "slack" };
            cx.metrics.latency(name, self.slack_ns.unsigned_abs());
        }
        cx.metrics.count("phase_loops", 1);
    }
}

/// Another instance of a task that `fork` names, called as rt-app calls it. `own`: the file gives its parent a class, which it does not inherit.
fn forked(app: &Arc<App>, task: u32, own: bool) -> TaskSpec {
    let n = app.tasks[task as usize].forks.fetch_add(1, Ordering::Relaxed);
    let code = &app.tasks[task as usize];
    let mut spec = spec(app, task, format!("{}-{}-{n}", code.name, code.number));
    spec.sched = spec.sched.or(own.then(Sched::default));
    spec
}

/// An instance of a task.
pub(super) fn spec(app: &Arc<App>, task: u32, name: String) -> TaskSpec {
    let program = RtProgram::new(app, task);
    let mut spec = TaskSpec::new(name, program);
    spec.sched = app.tasks[task as usize].sched;
    // A forked thread has its own, as the file says; in the root one that is where the workload is.
    spec.group = Some(app.tasks[task as usize].group).filter(|g| *g != GroupId::ROOT);
    spec.affinity = app.cpus[app.tasks[task as usize].cpus as usize].clone();
    spec
}

impl Program for RtProgram {
    fn next(&mut self, cx: &mut Cx<'_>) -> Op {
        self.settle(cx);
        loop {
            let app = &*self.app;
            let step = &app.steps[self.pc as usize];
            self.pc += 1;
            match *step {
                Step::Delay(ns) => return Op::Sleep(ns),
                Step::Start => self.started = cx.now,
                Step::Head(phase) => {
                    self.phase_round = 0;
                    let phase = &app.phases[phase as usize];
                    if phase.cpus != self.cpus {
                        self.cpus = phase.cpus;
                        self.pc -= 1;
                        return Op::SetAffinity(app.cpus[phase.cpus as usize].clone());
                    }
                    if phase.group != self.group {
                        self.group = phase.group;
                        self.pc -= 1;
                        return Op::SetGroup(phase.group);
                    }
                    if let Some(sched) = phase.sched.filter(|s| Some(*s) != self.sched) {
                        self.sched = Some(sched);
                        return Op::SetScheduler(sched);
                    }
                }
                Step::Top => {
                    self.begun = cx.now;
                    self.run_ns = 0;
                    self.slack_ns = 0;
                }
                Step::Foot { phase, top } => {
                    let PhaseCode { rounds, timer, .. } = app.phases[phase as usize];
                    self.round(cx, timer);
                    if rounds == u32::MAX {
                        self.pc = top;
                    } else {
                        self.phase_round += 1;
                        if self.phase_round < rounds {
                            self.pc = top;
                        }
                    }
                }
                Step::Tail { task } => {
                    let task = &app.tasks[task as usize];
                    if task.rounds != u32::MAX {
                        self.task_round += 1;
                        if self.task_round >= task.rounds {
                            // Asked again, say so again.
                            self.pc -= 1;
                            self.task_round = task.rounds;
                            return Op::Exit;
                        }
                    }
                    self.pc = task.body;
                }
                Step::Run(ns) => {
                    self.pending = Pending::Run;
                    self.mark = cx.now;
                    return Op::Run(ns);
                }
                Step::Runtime(ns) => {
                    if let Some(op) = self.spin(cx.now, ns) {
                        self.pc -= 1;
                        return op;
                    }
                }
                Step::Sleep(ns) => return Op::Sleep(ns),
                Step::Mem(ns) => return Op::Run(ns),
                Step::Io(ns) => return Op::Syscall(ns),
                Step::Timer { slot, own, absolute, period_ns } => {
                    if let Some(op) = self.timer(cx, slot, own, absolute, period_ns) {
                        return op;
                    }
                }
                Step::Lock(m) => return Op::Lock(m),
                Step::Unlock(m) => return Op::Unlock(m),
                Step::Wait { cond, mutex } => return Op::CondWait { cond, mutex },
                Step::Signal(c) => return Op::CondSignal(c),
                Step::Broadcast(c) => return Op::CondBroadcast(c),
                Step::Barrier(b) => return Op::Barrier(b),
                Step::Suspend(f) => return Op::FutexWait(f),
                Step::Resume(f) => return Op::FutexWake(f, u32::MAX),
                Step::Yield => return Op::Yield,
                Step::Fork(task) => return Op::Spawn(Box::new(forked(&self.app, task, self.sched.is_some()))),
            }
        }
    }

    fn working_set_kib(&self) -> u32 {
        self.app.tasks[self.task as usize].working_set_kib
    }
}
