//! Playing an exact model: a program a task, over one shared array of steps.
//!
//! A wake-up is a post to the sleeper's semaphore: it is remembered, so a sleeper that comes late does not sleep. Where a post must not
//! come before the wait that it ended (`pairs`), the waker goes on and owes it; it posts when the sleeper has come so far, and hears
//! of that if it sleeps meanwhile: the reply that it would have slept for. One of a stream is made when the reader sleeps again, or before the
//! writer sleeps or ends. Who owes one waits before the next to the same task until that stops. Mutexes are locked and unlocked (`mutexes`), and tasks
//! meet at barriers (`barriers`). With
//! [`PlayOptions::jobs`], a dispatcher's waits for the ends of its jobs are not played; it takes a slot before it starts a job, a
//! job gives its slot back when it ends, and the dispatcher waits for those jobs that the recording shows it needed. If there are
//! fewer slots than were recorded, a job waits for nobody outside of it: these waits are sleeps, and nobody posts for them.

mod meet;
mod posts;

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use contend_platform::Nanos;
use contend_sim::program::{Cx, GROUPS_MAX, Group, GroupId, ObjId, ObjectKind, Op, Program, Sched, TaskSpec, Workload};
use rustc_hash::FxHashSet;

use super::barriers::{self, Barriers};
use super::exact::Exact;
use super::jobs::{JobPlan, Start};
use super::mutexes::{self, Act, Mutexes};
use super::pairs::{self, Pairs};
use super::step::{What, Why};
use super::wake_ups::WakeUps;
use crate::speed::run_ns;
use meet::Relock;

/// How a model is scaled.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PlayOptions {
    /// How many times side by side.
    pub copies: u64,
    /// Run times are divided by this.
    pub speed: f64,
    /// Jobs at once; `None`: as recorded.
    pub jobs: Option<u32>,
}

impl Default for PlayOptions {
    fn default() -> Self {
        PlayOptions { copies: 1, speed: 1.0, jobs: None }
    }
}

/// What all players share.
struct Tape {
    model: Exact,
    plan: Option<JobPlan>,
    options: PlayOptions,
    pairs: Pairs,
    mutexes: Mutexes,
    barriers: Barriers,
    /// Waits and posts that none of these plays.
    dropped: FxHashSet<usize>,
    /// Who has come to each round of a barrier, one copy after another. A simulation is one thread: nobody waits for these.
    meetings: Vec<Mutex<Vec<u32>>>,
    /// A copy's tasks, one copy after another; empty if no post is held.
    progress: Vec<Progress>,
    /// Sessions, ascending; each copy has a group of its own for each.
    sessions: Vec<u32>,
}

/// How far a task is. A simulation is one thread: no ordering is needed.
#[derive(Default)]
struct Progress {
    /// Behind the last of its waits that it has begun.
    begun: AtomicUsize,
    /// Tasks that owe it a post for a wait that it has not begun, and which wait.
    owing: Mutex<Vec<(usize, u32)>>,
    /// It waits on its semaphore.
    waiting: AtomicBool,
    /// For a stream, of which nothing has come.
    open: AtomicBool,
    /// How often that was posted only to say that a post that it owes is due, or that its reader has come so far.
    notices: AtomicUsize,
    /// Writers that wait until it stops.
    held_up: Mutex<Vec<u32>>,
    over: AtomicBool,
}

/// Add the model's tasks to `w`.
pub fn play(model: Exact, w: &mut Workload, options: PlayOptions) {
    let plan = options.jobs.and_then(|slots| model.jobs.as_ref().map(|jobs| JobPlan::new(&model, jobs, slots)));
    // Slots change the order that wake-ups were recorded in.
    let (mutexes, barriers, pairs, dropped) = if plan.is_some() {
        Default::default()
    } else {
        let mut wake_ups = WakeUps::of(&model);
        let mut barriers = barriers::find(&model, &wake_ups);
        let mut mutexes = mutexes::find(&model, &wake_ups, &barriers);
        let mut dropped = std::mem::take(&mut barriers.dropped);
        dropped.extend(mutexes.dropped.drain());
        wake_ups.leave_out(&dropped);
        let mut pairs = pairs::find(&model, &wake_ups, pairs::REPLAYED);
        dropped.extend(pairs.dropped.drain());
        (mutexes, barriers, pairs, dropped)
    };
    let all =
        if pairs.held.is_empty() && pairs.streams.is_empty() { 0 } else { model.tasks.len() * options.copies as usize };
    let progress = (0..all).map(|_| Progress::default()).collect();
    let meetings = (0..barriers.rounds.len() * options.copies as usize).map(|_| Mutex::default()).collect();
    let sessions: BTreeSet<u32> = model.tasks.iter().filter_map(|t| t.session).collect();
    // Too many for a group each: then nobody has one.
    let room = w.groups.len() + sessions.len() * options.copies as usize <= GROUPS_MAX;
    let sessions = if room { sessions.into_iter().collect() } else { Vec::new() };
    // Tasks that keep to themselves, as virtual CPUs do, need nothing to wait at, and so no kernel.
    let wakes = mutexes.number > 0
        || plan.is_some()
        || model.steps.iter().any(|s| matches!(s.what(), What::Post(..) | What::Sleep(_, Why::Task)));
    let tape = Arc::new(Tape { model, plan, options, pairs, mutexes, barriers, dropped, meetings, progress, sessions });
    for copy in 0..options.copies {
        let suffix = if options.copies > 1 { format!("+{copy}") } else { String::new() };
        let mutexes = w.objects.len() as u32;
        for mutex in 0..tape.mutexes.number {
            w.object(format!("mutex/{mutex}{suffix}"), ObjectKind::Mutex);
        }
        let (semaphores, groups) = (w.objects.len() as u32, w.groups.len() as u16);
        let copy = Copy { number: copy as u32, mutexes, semaphores, groups };
        for session in &tape.sessions {
            let name = format!("/autogroup-{session}{suffix}");
            w.groups.add(Group { name, parent: GroupId::ROOT, shares: 1024, limit: None, session: true });
        }
        for t in tape.model.tasks.iter().filter(|_| wakes) {
            w.object(format!("wake/{}-{}{suffix}", t.name, t.pid), ObjectKind::Semaphore { initial: 0 });
        }
        if let (Some(plan), Some(slots)) = (&tape.plan, options.jobs) {
            for dispatcher in 0..plan.dispatchers {
                w.object(format!("slots/{dispatcher}{suffix}"), ObjectKind::Semaphore { initial: slots });
                w.object(format!("ended/{dispatcher}{suffix}"), ObjectKind::Semaphore { initial: 0 });
            }
            for job in 0..plan.jobs {
                w.object(format!("job/{job}{suffix}"), ObjectKind::Semaphore { initial: 0 });
            }
        }
        for i in (0..tape.model.tasks.len()).filter(|&i| tape.model.tasks[i].initial) {
            w.task(copy.task(&tape, i as u32, None));
        }
    }
}

/// One of the copies.
#[derive(Clone, Copy)]
struct Copy {
    number: u32,
    /// Its first mutex.
    mutexes: u32,
    /// Its first semaphore.
    semaphores: u32,
    /// Groups before its first session's.
    groups: u16,
}

impl Copy {
    /// A task, started by `parent`.
    fn task(self, tape: &Arc<Tape>, number: u32, parent: Option<u32>) -> TaskSpec {
        let t = &tape.model.tasks[number as usize];
        // One that is of its parent's class has inherited it, and does so here.
        let inherited = parent.map_or(Sched::default(), |p| tape.model.tasks[p as usize].sched);
        let sched = Some(t.sched).filter(|s| *s != inherited);
        let suffix = if tape.options.copies > 1 { format!("+{}", self.number) } else { String::new() };
        let player = Player {
            tape: Arc::clone(tape),
            at: t.from,
            to: t.to,
            number,
            copy: self,
            due: Vec::new(),
            ended: 0,
            owes: Vec::new(),
            streams: Vec::new(),
            ahead: 0,
            rest: 0,
            sent: Vec::new(),
            asked: Vec::new(),
            request: None,
            held_up: None,
            locks: 0,
            relocks: None,
            notices: 0,
            spare: 0,
            waits: None,
            tail: 0,
        };
        let session = t.session.and_then(|s| tape.sessions.binary_search(&s).ok());
        let group = session.map(|i| GroupId(self.groups + 1 + i as u16));
        TaskSpec { sched, group, ..TaskSpec::new(format!("{}-{}{suffix}", t.name, t.pid), player) }
    }

    fn mutex(self, number: u32) -> ObjId {
        ObjId(self.mutexes + number)
    }

    fn wake(self, task: u32) -> ObjId {
        ObjId(self.semaphores + task)
    }

    fn progress(self, tape: &Tape, task: u32) -> Option<&Progress> {
        tape.progress.get(self.number as usize * tape.model.tasks.len() + task as usize)
    }

    fn slots(self, tape: &Tape, dispatcher: u32) -> ObjId {
        ObjId(self.semaphores + tape.model.tasks.len() as u32 + 2 * dispatcher)
    }

    fn ended(self, tape: &Tape, dispatcher: u32) -> ObjId {
        ObjId(self.slots(tape, dispatcher).0 + 1)
    }

    fn job(self, tape: &Tape, plan: &JobPlan, job: u32) -> ObjId {
        ObjId(self.semaphores + tape.model.tasks.len() as u32 + 2 * plan.dispatchers + job)
    }
}

/// A task that plays its part.
struct Player {
    tape: Arc<Tape>,
    at: usize,
    to: usize,
    number: u32,
    copy: Copy,
    /// What is to be done before the next step, last first.
    due: Vec<Op>,
    /// A dispatcher: of how many of its jobs it has seen the end.
    ended: u32,
    /// Posts that it owes: for which wait.
    owes: Vec<(Owed, usize)>,
    /// Those of a stream, which it makes before it sleeps.
    streams: Vec<Owed>,
    /// Time of coming runs and rests of calls that it has spent.
    ahead: Nanos,
    /// What is left of a run.
    rest: Nanos,
    /// Requests that it has sent, by server; and that it had sent so far in the recording.
    sent: Vec<usize>,
    asked: Vec<usize>,
    /// The step of the request that it cannot send before a server has replied.
    request: Option<usize>,
    /// The step of the post before which its reader is to stop.
    held_up: Option<usize>,
    /// Mutexes that it holds.
    locks: u32,
    /// What it has of a mutex when the barrier at which it waits lets it go on.
    relocks: Option<Relock>,
    /// Notices that it has seen.
    notices: usize,
    /// Posts that were meant for a recorded wait and came while it waited for a notice.
    spare: usize,
    /// It waits on its semaphore; for a post of the recording, or only for notices.
    waits: Option<bool>,
    /// How long a system call went on after it last unlocked a mutex and woke somebody.
    tail: Nanos,
}

/// A post that is to be made later.
#[derive(Clone, Copy)]
struct Owed {
    /// To whom.
    sleeper: u32,
    /// As in [`Op::Wake`].
    sync: bool,
    tail: Nanos,
}

impl Player {
    /// Wait until `n` of this dispatcher's jobs have ended.
    fn wait_ended(&mut self, dispatcher: u32, n: u32) {
        let object = self.copy.ended(&self.tape, dispatcher);
        self.due.extend((self.ended..n).map(|_| Op::SemWait(object)));
        self.ended = self.ended.max(n);
    }

    /// A spawn under slots: what the job needs, a slot, the job.
    fn spawn_job(&mut self, child: u32) -> Option<()> {
        let tape = Arc::clone(&self.tape);
        let plan = tape.plan.as_ref()?;
        let job = plan.job_of(child)?;
        self.due.push(Op::Spawned(Box::new(self.copy.task(&tape, child, Some(self.number)))));
        self.due.push(Op::SemWait(self.copy.slots(&tape, job.dispatcher)));
        match job.start {
            Start::Slot => {}
            Start::After(other) => self.due.push(Op::SemWait(self.copy.job(&tape, plan, other))),
            Start::AfterAll => self.wait_ended(job.dispatcher, job.before),
        }
        Some(())
    }

    /// The end of a job, or of a dispatcher, which has waited for all of its own.
    fn end(&mut self) {
        let tape = Arc::clone(&self.tape);
        let Some(plan) = &tape.plan else { return };
        if let Some((dispatcher, jobs)) = plan.dispatcher(self.number) {
            self.wait_ended(dispatcher, jobs);
        }
        let Some(job) = plan.job_of(self.number) else { return };
        // All of it is part of the exit.
        let semaphore = self.copy.slots(&tape, job.dispatcher);
        self.due.push(Op::Wake { semaphore, sync: false, tail: 0, blocks: true });
        self.due.push(Op::SemPost(self.copy.ended(&tape, job.dispatcher), 1));
        if job.needed_by > 0 {
            self.due.push(Op::SemPost(self.copy.job(&tape, plan, job.number), job.needed_by));
        }
        // Last first: the waits of a job that is a dispatcher, too, come before its own end is told.
        self.due.reverse();
    }

    fn progress(&self) -> Option<&Progress> {
        self.copy.progress(&self.tape, self.number)
    }

    /// Wait on the own semaphore, for a post of the recording or only for notices; `open`: for one of a stream. Before, writers are let go.
    fn wait(&mut self, recorded: bool, open: bool) {
        self.waits = Some(recorded);
        if let Some(progress) = self.progress() {
            progress.waiting.store(true, Ordering::Relaxed);
        }
        self.due.push(Op::SemWait(self.copy.wake(self.number)));
        self.stops(open);
    }

    /// The semaphore was posted. A notice is not what a recorded wait is for: it goes on.
    fn woken(&mut self, recorded: bool) {
        if let Some(progress) = self.progress() {
            progress.waiting.store(false, Ordering::Relaxed);
            progress.open.store(false, Ordering::Relaxed);
            if progress.notices.load(Ordering::Relaxed) > self.notices {
                self.notices += 1;
                if recorded {
                    self.wait(true, false);
                }
                return;
            }
            self.spare += usize::from(!recorded);
        }
        if recorded && let Some(relock) = self.relocks.take() {
            self.relock(relock, []);
        }
    }

    /// The post at step `at` as it was recorded: synchronous or not, with what was left then to do of the system call, and whether that
    /// blocked.
    fn recorded(&mut self, at: usize, post: Op) -> Op {
        let Op::SemPost(semaphore, 1) = post else { return post };
        let sync = matches!(self.tape.model.steps[at].what(), What::Post(_, true));
        let rest = self.call_rest();
        self.at += usize::from(rest.is_some());
        let (tail, blocks) = rest.unwrap_or((0, false));
        Op::Wake { semaphore, sync, tail, blocks }
    }

    /// What is left to do of the system call after the step that was just taken, and whether it blocks then.
    fn call_rest(&self) -> Option<(Nanos, bool)> {
        match self.tape.model.steps[self.at..self.to].first()?.what() {
            What::Kernel(ns, blocks) => Some((self.scaled(ns), blocks)),
            _ => None,
        }
    }

    /// What remains of such a time, if some of it has been spent ahead.
    fn remaining(&mut self, ns: Nanos) -> Nanos {
        let done = ns.min(self.ahead);
        self.ahead -= done;
        ns - done
    }

    /// A run under the asked-for speed.
    fn scaled(&self, ns: u64) -> Nanos {
        let speed = self.tape.options.speed;
        if speed == 1.0 { ns } else { run_ns(ns as f64, speed) as Nanos }
    }

    /// Is the wait at step `at` for a task that may come only when this one's job has ended?
    fn parted(&self, at: usize) -> bool {
        let (tape, by) = (&self.tape, at + 1);
        let waker = (by < self.to).then(|| tape.model.steps[by].what());
        matches!((&tape.plan, waker), (Some(plan), Some(What::By(waker))) if plan.parts(waker, self.number))
    }

    /// Go on with a run: one call at a time, while it owes a post of a stream that any of them may be. Of a long run several at a time:
    /// a second is not to be a million pieces.
    fn run(&mut self) -> Option<Op> {
        let calls = self.streams.iter().map(|o| o.tail).min().filter(|&call| call > 0);
        let piece = calls.map_or(self.rest, |call| call.max(self.rest / 64).min(self.rest));
        self.rest -= piece;
        (piece > 0).then_some(Op::Run(piece))
    }

    /// Lock a mutex before anything else.
    fn lock(&mut self, mutex: ObjId) {
        self.locks += 1;
        self.due.push(Op::Lock(mutex));
        self.stops(false);
    }

    /// The locking or unlocking at step `at`, if that is played.
    fn mutex(&mut self, at: usize) -> Option<Op> {
        match *self.tape.mutexes.acts.get(&at)? {
            Act::Lock(mutex, on) => {
                self.at = on;
                self.lock(self.copy.mutex(mutex));
                None
            }
            Act::Unlock(mutex, post) => {
                self.locks = self.locks.saturating_sub(1);
                let op = self.copy.mutex(mutex);
                if let Some(post) = post {
                    // What it ran in the call before it woke somebody.
                    let before = &self.tape.model.steps[at..post];
                    let ran = before.iter().map(|s| if let What::Run(ns) = s.what() { ns } else { 0 }).sum();
                    self.rest = self.scaled(ran);
                    self.at = post + 1;
                    self.tail = 0;
                    if let Some((ns, false)) = self.call_rest() {
                        self.at += 1;
                        self.tail = ns;
                    }
                }
                Some(Op::Release(op, self.tail))
            }
        }
    }

    fn step(&mut self) -> Option<Op> {
        let (at, what) = (self.at, self.tape.model.steps[self.at].what());
        self.at += 1;
        Some(match what {
            What::Run(ns) => {
                self.rest = self.remaining(self.scaled(ns));
                return self.run();
            }
            What::Kernel(ns, _) => {
                let rest = self.remaining(self.scaled(ns));
                return (rest > 0).then_some(Op::Syscall(rest));
            }
            What::Sleep(..) | What::Post(..) if self.tape.dropped.contains(&at) => {
                return None;
            }
            What::Sleep(_, Why::Task) if self.spare > 0 => {
                self.spare -= 1;
                self.begins(at, false);
                return None;
            }
            What::Sleep(ns, Why::Task) if self.parted(at) => Op::Sleep(ns as Nanos),
            What::Sleep(_, Why::Task) => {
                let plan = self.tape.plan.as_ref();
                match plan.and_then(|p| p.end_wait(at)) {
                    None => {
                        self.wait(true, self.tape.pairs.streams.contains(&at));
                        self.make_good(None);
                        self.begins(at, true);
                        return None;
                    }
                    // Nothing more is started: all jobs are waited for.
                    Some((dispatcher, Some(all))) => {
                        self.wait_ended(dispatcher, all);
                        return None;
                    }
                    Some((_, None)) => return None,
                }
            }
            What::Sleep(ns, Why::Io) => match self.tape.model.steps.get(self.at).map(|s| s.what()) {
                Some(What::On(cpu)) => Op::Device(ns as Nanos, cpu),
                // Not known where.
                _ => Op::Device(ns as Nanos, self.number),
            },
            What::Sleep(ns, _) => Op::Sleep(ns as Nanos),
            What::Post(..) if self.tape.plan.as_ref().is_some_and(|p| p.end_post(at)) => return None,
            What::Post(who, _) if self.tape.plan.as_ref().is_some_and(|p| p.parts(self.number, who)) => return None,
            What::Post(who, _) => return self.post(at, who).map(|op| self.recorded(at, op)),
            What::Spawn(child) => {
                if self.spawn_job(child).is_some() {
                    return None;
                }
                Op::Spawned(Box::new(self.copy.task(&self.tape, child, Some(self.number))))
            }
            What::Exec => Op::Exec,
            What::Yield => Op::Yield,
            What::Sched(sched) => Op::SetScheduler(sched),
            What::Lock(..) | What::Unlock(_) => return self.mutex(at),
            What::Barrier(_) => {
                self.meet(at);
                return None;
            }
            What::Nop | What::By(_) | What::On(_) | What::Locked | What::Extra(_) => return None,
        })
    }
}

impl Program for Player {
    fn next(&mut self, _: &mut Cx<'_>) -> Op {
        loop {
            // What is due ends in the wait, if there is one.
            if let Some(op) = self.due.pop() {
                return op;
            }
            if let Some(recorded) = self.waits.take() {
                self.woken(recorded);
            }
            if let Some(op) = self.owed() {
                return op;
            }
            if !self.due.is_empty() {
                continue;
            }
            if let Some(at) = self.request.take()
                && let What::Post(sleeper, _) = self.tape.model.steps[at].what()
                && let Some(op) = self.post(at, sleeper)
            {
                return self.recorded(at, op);
            }
            if let Some(at) = self.held_up.take()
                && let What::Post(sleeper, _) = self.tape.model.steps[at].what()
            {
                self.goes_on(sleeper);
                if let Some(op) = self.post(at, sleeper) {
                    let op = self.recorded(at, op);
                    self.due.insert(0, op);
                }
            }
            if !self.due.is_empty() {
                continue;
            }
            if self.held_up.is_some() {
                self.wait(false, false);
                continue;
            }
            self.rest = self.remaining(self.rest);
            if let Some(op) = self.run() {
                return op;
            }
            if let Some(op) = self.sent_before() {
                return op;
            }
            if self.request.is_some() || (self.at == self.to && !self.owes.is_empty()) {
                self.wait(false, false);
                continue;
            }
            if self.at < self.to {
                if let Some(op) = self.step() {
                    return op;
                }
            } else if self.at == self.to {
                self.at += 1;
                self.end();
                if let Some(progress) = self.progress() {
                    progress.over.store(true, Ordering::Relaxed);
                }
                self.stops(false);
            } else {
                return Op::Exited;
            }
        }
    }
}
