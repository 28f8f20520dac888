//! From events to the chains of tasks.

use contend_machine::CAPACITY_MAX;
use contend_sim::os::histogram;
use contend_trace::event::{Comm, Event, Kind, TaskRef, TaskState, syscall};
use hdrhistogram::Histogram;
use rustc_hash::FxHashMap;

use super::barriers::{self, Barriers};
use super::chains::{Chain, Chains, Counts, Exec, State, Wake};
use super::interrupts::{Interrupts, Wakes};
use super::kernel_work::KernelWork;
use super::mutexes::{Call, Holder, Mutexes};
use super::sessions::Sessions;
use crate::model::jobs::Order;
use crate::model::step::{Step, What, Why};

pub struct Builder {
    /// The sessions of tasks that were there before.
    sessions: Sessions,
    /// What the recorded kernel's own way takes.
    work: KernelWork,
    /// How much each CPU computes, in 1/1024 of the fastest; nothing where they are alike.
    capacity: Vec<u64>,
    /// The number of the next session that begins.
    next_session: u32,
    tasks: Vec<Chain>,
    /// The living task of each pid.
    by_pid: FxHashMap<u32, u32>,
    /// Who runs on each CPU since when; `Some((None, _))`: the idle task.
    cpus: Vec<Option<(Option<u32>, u64)>>,
    /// The last event of each CPU.
    seen: Vec<u64>,
    interrupts: Vec<Interrupts>,
    /// When somebody was last woken on each CPU, or on its way there.
    woken: Vec<u64>,
    /// When a system call was last left on each CPU with no switch due.
    undisturbed: Vec<u64>,
    /// Mutexes of user space.
    mutexes: Mutexes,
    /// Barriers of user space.
    barriers: Barriers,
    execs: Vec<Exec>,
    order: Vec<Order>,
    /// Times from a wake-up to its waker's preemption.
    tails: Histogram<u64>,
    /// The recording has sched_process_exec events.
    has_exec: bool,
    /// It has calls of futex, if there were any.
    has_futex: bool,
    /// It says whether a switch is due.
    tells_due: bool,
    /// It has all system calls.
    has_calls: bool,
    /// Switches in it.
    switches: u64,
    /// Time of the first event.
    first_ts: Option<u64>,
    last_ts: u64,
}

/// Recorders: what they execute is what was to be recorded.
pub fn is_recorder(name: &str) -> bool {
    name == "perf" || name.starts_with("perf-") || name == "trace-cmd" || name == "contend-record"
}

/// A switch so soon after an interrupt may be its doing.
const PREEMPTS_WITHIN_NS: u64 = 50_000;

/// The shortest slice of a kernel (`base_slice_ns` on one CPU).
const SLICE_MIN_NS: u64 = 700_000;

/// So many wake-ups must have preempted their waker for their median to say something.
const TAILS_MIN: u64 = 10;

/// CPU numbers beyond are damage.
const CPUS_MAX: u32 = 1 << 16;

impl Builder {
    pub fn new(sessions: Sessions, work: KernelWork, capacity: Vec<u64>) -> Self {
        Builder {
            work,
            capacity,
            next_session: sessions.values().max().map_or(1, |last| last.saturating_add(1)),
            sessions,
            tasks: Vec::new(),
            by_pid: FxHashMap::default(),
            cpus: Vec::new(),
            seen: Vec::new(),
            interrupts: Vec::new(),
            woken: Vec::new(),
            undisturbed: Vec::new(),
            mutexes: Mutexes::default(),
            barriers: Barriers::default(),
            execs: Vec::new(),
            order: Vec::new(),
            tails: histogram(),
            has_exec: false,
            has_futex: false,
            tells_due: false,
            has_calls: false,
            switches: 0,
            first_ts: None,
            last_ts: 0,
        }
    }

    /// The task that has this pid now, by its number.
    pub fn task_of(&self, pid: u32) -> Option<u32> {
        self.by_pid.get(&pid).copied()
    }

    pub fn finish(mut self) -> Chains {
        let end = self.last_ts;
        for t in &mut self.tasks {
            t.flush(end);
        }
        self.mutexes.finish(&mut self.tasks);
        let tail = (self.tails.len() >= TAILS_MIN).then(|| self.tails.value_at_quantile(0.5));
        let Builder { tasks, execs, order, switches, .. } = self;
        Chains { tasks, execs, order, switches, last_ts: end, tail }
    }

    pub fn event(&mut self, e: &Event) {
        if e.cpu >= CPUS_MAX {
            return;
        }
        let first = *self.first_ts.get_or_insert(e.ts);
        self.last_ts = self.last_ts.max(e.ts);
        let cpu = e.cpu as usize;
        if self.interrupts.len() <= cpu {
            self.interrupts.resize(cpu + 1, Interrupts::default());
            self.seen.resize(cpu + 1, first);
            self.undisturbed.resize(cpu + 1, 0);
        }
        let idle = matches!(&e.kind, Kind::Switch { prev, .. } if prev.pid == 0);
        if let (true, Some(Some((Some(i), _)))) = (idle, self.cpus.get(cpu).copied()) {
            self.left_for_idle(i, e.cpu);
        }
        self.interrupts[cpu].event(e);
        self.kind(e, first);
        self.seen[cpu] = e.ts;
    }

    fn kind(&mut self, e: &Event, first: u64) {
        let cpu = e.cpu as usize;
        match &e.kind {
            Kind::Switch { prev, prev_state, next } => {
                self.switches += 1;
                let left = self.current(e, prev, first);
                let yields = left.is_some_and(|i| *prev_state == TaskState::RUNNABLE && self.yields(i, next, e));
                if let Some(i) = left.filter(|_| prev_state.is_runnable() && !yields) {
                    self.preempted(i, next, e);
                }
                if let Some(i) = left {
                    self.settle(i, e.cpu, e.ts);
                    let t = &mut self.tasks[i as usize];
                    t.reclass();
                    t.executed = None;
                    t.switches += 1;
                    t.kernel |= prev_state.prev_state() & TaskState::IDLE.prev_state() != 0;
                    t.state = if prev_state.is_runnable() {
                        t.ready = e.ts;
                        t.mark(e.ts);
                        if yields {
                            t.flush(e.ts);
                            t.steps.push(Step::new(What::Yield));
                        } else {
                            t.preempted += 1;
                        }
                        State::Runnable
                    } else if prev_state.is_dead() {
                        t.exited = true;
                        t.flush_blocking(e.ts, true);
                        self.order.push(Order::End(i));
                        State::Dead
                    } else {
                        if t.starts {
                            self.order.push(Order::Sleep(i));
                        }
                        let uninterruptible = prev_state.prev_state() & TaskState::UNINTERRUPTIBLE.prev_state() != 0;
                        t.flush_blocking(e.ts, uninterruptible);
                        t.mark(e.ts);
                        State::Sleeping(e.ts, uninterruptible)
                    };
                } else {
                    self.interrupts[cpu].take();
                }
                let came = self.task(next, first);
                if let Some(i) = came {
                    self.arrive(i, e.ts);
                }
                self.set_cpu(e.cpu, came, e.ts);
            }
            Kind::Waking { task, target_cpu } => {
                self.woken_at(e.cpu, e.ts);
                self.woken_at(*target_cpu, e.ts);
                self.waking(e, task, *target_cpu, first);
            }
            Kind::Wakeup { task, target_cpu } => {
                self.woken_at(*target_cpu, e.ts);
                // The second half of a wake-up; the first may be lost.
                if let Some(i) = self.task(task, first) {
                    let t = &mut self.tasks[i as usize];
                    if matches!(t.state, State::Sleeping(..)) && t.wake.is_none() {
                        t.wake =
                            Some(Wake { ts: e.ts, cpu: e.cpu, by: Err(Why::Interrupt), first: false, barrier: None });
                    }
                }
            }
            Kind::WakeupNew { task, target_cpu } => {
                self.woken_at(*target_cpu, e.ts);
                self.task(task, first);
            }
            Kind::Migrate { .. } => {}
            Kind::Fork { parent_pid, parent_comm, child_pid, child_comm } => {
                if *child_pid == 0 || *child_pid == u32::MAX {
                    return;
                }
                let prio = self.by_pid.get(parent_pid).map_or(120, |&p| self.tasks[p as usize].prio);
                let parent = TaskRef { pid: *parent_pid, comm: parent_comm.clone(), prio };
                let parent = self.current(e, &parent, first);
                let child = self.create(*child_pid, child_comm.clone(), prio, e.ts);
                self.tasks[child as usize].state = State::Runnable;
                self.tasks[child as usize].ready = e.ts;
                if let Some(p) = parent {
                    self.tasks[child as usize].parent = Some(p);
                    self.tasks[child as usize].session = self.tasks[p as usize].session;
                    self.settle(p, e.cpu, e.ts);
                    let t = &mut self.tasks[p as usize];
                    t.flush(e.ts);
                    t.steps.push(Step::new(What::Spawn(child)));
                    t.starts = true;
                    self.order.push(Order::Start(p, child));
                }
            }
            Kind::Exec { filename, pid, old_pid } => {
                self.has_exec = true;
                let prio = self.by_pid.get(old_pid).map_or(120, |&p| self.tasks[p as usize].prio);
                let who = TaskRef { pid: *old_pid, comm: e.comm.clone(), prio };
                let Some(i) = self.current(e, &who, first) else { return };
                if pid != old_pid && *pid != 0 && *pid != u32::MAX {
                    // A thread takes its leader's place.
                    self.by_pid.remove(old_pid);
                    self.by_pid.insert(*pid, i);
                    self.tasks[i as usize].pid = *pid;
                }
                let name = filename.rsplit('/').next().unwrap_or("").to_string();
                self.executed(i, name, e.ts);
            }
            Kind::Exit { task } => {
                self.task(task, first);
            }
            Kind::Setsid { .. } => {
                if let Some(&i) = self.by_pid.get(&e.pid) {
                    self.tasks[i as usize].session = Some(self.next_session);
                    self.next_session = self.next_session.saturating_add(1);
                }
            }
            Kind::Syscall { nr, entry } => {
                let chosen = syscall::is_futex(*nr) || syscall::is_execve(*nr);
                self.has_futex |= chosen;
                self.has_calls |= *entry && !chosen;
                self.tells_due |= e.resched;
                if self.tells_due && !entry && !e.resched {
                    self.undisturbed[cpu] = e.ts;
                }
                if let Some(&i) = self.by_pid.get(&e.pid) {
                    if *entry && syscall::is_execve(*nr) {
                        self.written(i, e);
                        let t = &mut self.tasks[i as usize];
                        t.calls_exec = Some(t.steps.len());
                        t.steps.push(Step::new(What::Nop));
                    }
                    self.tasks[i as usize].in_futex = *entry && syscall::is_futex(*nr);
                    self.tasks[i as usize].barrier_call = None;
                    self.tasks[i as usize].in_yield = *entry && syscall::is_sched_yield(*nr);
                    if self.tasks[i as usize].mutexes.call.is_some() && !entry {
                        self.written(i, e);
                        self.tasks[i as usize].futex_ends();
                    }
                }
            }
            Kind::Futex { uaddr, op, val } => {
                self.has_futex = true;
                let Some(&i) = self.by_pid.get(&e.pid) else { return };
                self.tasks[i as usize].in_futex = true;
                self.tasks[i as usize].mutexes.call = None;
                self.tasks[i as usize].barrier_call = barriers::Call::of(*uaddr, *op, *val);
                match self.mutexes.call(*uaddr, *op, *val) {
                    Some(Call::Wait(_)) => {
                        for cpu in (0..self.cpus.len()).filter(|&cpu| cpu != e.cpu as usize) {
                            self.mark_running(cpu, e.ts);
                        }
                        self.written(i, e);
                        self.mutexes.wait(*uaddr, &mut self.tasks[i as usize], e.ts);
                    }
                    Some(Call::Unlock(_)) => {
                        self.written(i, e);
                        self.mutexes.unlock(*uaddr, &mut self.tasks[i as usize], e.ts);
                    }
                    None => {}
                }
            }
            _ => {}
        }
    }

    /// Account for the running of a task up to some time, without what interrupts and contended locks took.
    fn settle(&mut self, i: u32, cpu: u32, ts: u64) {
        let (interrupts, spun) = self.interrupts[cpu as usize].take();
        let t = &mut self.tasks[i as usize];
        if let State::Running(since) = t.state {
            let ran = ts.saturating_sub(since);
            let interrupts = interrupts.min(ran);
            let spun = spun.min(ran - interrupts);
            t.counts.interrupts_ns += interrupts;
            t.counts.spun_ns += spun;
            // On a slow core the same work took longer.
            let capacity = self.capacity.get(cpu as usize).copied().unwrap_or(CAPACITY_MAX);
            let work = u128::from(ran - interrupts - spun) * u128::from(capacity) / u128::from(CAPACITY_MAX);
            t.run = t.run.saturating_add(work as u64);
            t.state = State::Running(ts.max(since));
        }
    }

    /// Write down what the task has run that makes a call here.
    fn written(&mut self, i: u32, e: &Event) {
        self.settle(i, e.cpu, e.ts);
        self.tasks[i as usize].flush(e.ts);
    }

    /// Whoever runs on this CPU may have locked a mutex by now.
    fn mark_running(&mut self, cpu: usize, ts: u64) {
        if let Some((Some(i), _)) = self.cpus[cpu]
            && self.tasks[i as usize].mutexes.uses
        {
            self.settle(i, cpu as u32, ts);
            self.tasks[i as usize].mark(ts);
        }
    }

    fn executed(&mut self, task: u32, name: String, ts: u64) {
        let t = &mut self.tasks[task as usize];
        t.flush(ts);
        // The kernel chooses the CPU when it has opened the file: soon after the call where that is recorded, otherwise some time before now.
        match t.calls_exec.take() {
            Some(at) => t.steps[at] = Step::new(What::Exec),
            None => t.steps.push(Step::new(What::Exec)),
        }
        // The caller bears the recorder's name until it executes.
        let by_recorder = is_recorder(&t.first_name);
        self.execs.push(Exec { task, at: t.steps.len(), ts, name, by_recorder });
        t.executed = Some(t.steps.len());
        t.steps.push(Step::new(What::Nop));
    }

    fn create(&mut self, pid: u32, name: Comm, prio: i32, ts: u64) -> u32 {
        let i = u32::try_from(self.tasks.len()).unwrap_or(u32::MAX);
        self.tasks.push(Chain {
            pid,
            first_name: name.clone(),
            name,
            first_prio: prio,
            told_prio: prio,
            prio,
            parent: None,
            session: self.sessions.get(&pid).copied(),
            steps: Vec::new(),
            start_ts: ts,
            switches: 0,
            preempted: 0,
            kernel: false,
            exited: false,
            starts: false,
            in_futex: false,
            in_yield: false,
            mutexes: Holder::default(),
            barrier_call: None,
            on: u32::MAX,
            came: ts,
            ready: ts,
            woke: 0,
            counts: Counts::default(),
            // Seen for the first time as it comes, is woken, or leaves: who calls says.
            state: State::Sleeping(ts, false),
            run: 0,
            wake: None,
            calls_exec: None,
            executed: None,
        });
        self.by_pid.insert(pid, i);
        i
    }

    /// The task that an event names; one that was there before the recording began is new here.
    fn task(&mut self, who: &TaskRef, first: u64) -> Option<u32> {
        if who.pid == 0 || who.pid == u32::MAX {
            return None;
        }
        let i = match self.by_pid.get(&who.pid) {
            // A pid that comes again without a fork event.
            Some(&i) if self.tasks[i as usize].state == State::Dead => {
                self.create(who.pid, who.comm.clone(), who.prio, self.last_ts)
            }
            Some(&i) => i,
            None => self.create(who.pid, who.comm.clone(), who.prio, first),
        };
        let t = &mut self.tasks[i as usize];
        t.prio = who.prio;
        if !Comm::ptr_eq(&t.name, &who.comm) && *t.name != *who.comm && &*who.comm != "<...>" {
            let renamed = is_recorder(&t.name) && !is_recorder(&who.comm) && !self.has_exec;
            t.name = who.comm.clone();
            if &*t.first_name == "<...>" {
                t.first_name = who.comm.clone();
            }
            if renamed {
                // perf sched record has no exec events: the new name tells.
                self.executed(i, who.comm.to_string(), self.last_ts);
            }
        }
        Some(i)
    }

    fn set_cpu(&mut self, cpu: u32, task: Option<u32>, ts: u64) {
        let cpu = cpu as usize;
        if self.cpus.len() <= cpu {
            self.cpus.resize(cpu + 1, None);
        }
        self.cpus[cpu] = Some((task, ts));
        if let Some(i) = task {
            self.tasks[i as usize].on = cpu as u32;
        }
    }

    /// A task has left a CPU, and that is not recorded: it ran there until the CPU's last event, as far as is known.
    fn left_unseen(&mut self, i: u32, cpu: u32, state: State) -> bool {
        let t = &mut self.tasks[i as usize];
        let there = matches!(t.state, State::Running(_)) && t.on == cpu;
        if there {
            t.counts.unchained += 1;
            self.settle(i, cpu, self.seen[cpu as usize]);
            self.tasks[i as usize].state = state;
        }
        there
    }

    /// The same; it sleeps, since nobody else came.
    fn left_for_idle(&mut self, i: u32, cpu: u32) {
        let seen = self.seen[cpu as usize];
        if self.left_unseen(i, cpu, State::Sleeping(seen, false)) && self.tasks[i as usize].starts {
            self.order.push(Order::Sleep(i));
        }
    }

    /// `who` acts on the event's CPU: it runs there. If nothing was seen there before, it has run since the recording began; if
    /// another ran there, or none did, it came unseen.
    fn current(&mut self, e: &Event, who: &TaskRef, first: u64) -> Option<u32> {
        let i = self.task(who, first)?;
        let known = self.cpus.get(e.cpu as usize).copied().flatten();
        if let Some((Some(other), _)) = known
            && other != i
        {
            self.left_unseen(other, e.cpu, State::Runnable);
        }
        let t = &mut self.tasks[i as usize];
        if !matches!(t.state, State::Running(_)) {
            if known.is_none() && t.steps.is_empty() && t.run == 0 {
                t.state = State::Running(t.start_ts);
            } else {
                // It came unseen: to an idle CPU as soon as it was awake, otherwise just now.
                t.counts.unchained += 1;
                let woken = t.wake.map_or(0, |w| w.ts);
                // What the way from idle takes, which the simulated kernel takes again.
                let way = match t.wake {
                    Some(Wake { by: Err(Why::Timer), cpu, .. }) if cpu == e.cpu => {
                        self.work.after_interrupt + self.work.timer_write
                    }
                    Some(Wake { by: Err(_), cpu, .. }) if cpu == e.cpu => self.work.after_interrupt,
                    Some(Wake { cpu, .. }) if cpu != e.cpu => self.work.after_idle,
                    _ => 0,
                };
                let since = match known {
                    Some((None, idle)) if woken > 0 || t.state == State::Runnable => {
                        idle.max(woken).saturating_add(way).min(e.ts)
                    }
                    _ => e.ts,
                };
                self.arrive(i, since);
            }
        }
        if known.is_none_or(|(who, _)| who != Some(i)) {
            self.set_cpu(e.cpu, Some(i), e.ts);
        }
        Some(i)
    }

    fn woken_at(&mut self, cpu: u32, ts: u64) {
        if cpu >= CPUS_MAX {
            return;
        }
        let cpu = cpu as usize;
        if self.woken.len() <= cpu {
            self.woken.resize(cpu + 1, 0);
        }
        self.woken[cpu] = self.woken[cpu].max(ts);
    }

    /// A runnable task leaves: by its own wish, as its system call says where all are recorded; elsewhere if nothing was there to preempt it. The next one had waited before it came, no
    /// interrupt was served in between or just before, and nobody was woken here meanwhile, by itself or another: that has the kernel
    /// choose anew, and it may choose a third. A wake-up is over with the next system call that is left with no switch due. And it has not run for a
    /// slice: kernels since 6.6 find out in any call that reads a clock of CPU time that one is over.
    fn yields(&self, i: u32, next: &TaskRef, e: &Event) -> bool {
        let t = &self.tasks[i as usize];
        if self.has_calls {
            return t.in_yield;
        }
        if e.ts.saturating_sub(t.came) >= SLICE_MIN_NS {
            return false;
        }
        if self.woken.is_empty() {
            return false; // wake-ups are not in the recording
        }
        let since = t.came.max(self.undisturbed[e.cpu as usize]);
        let waited = self.by_pid.get(&next.pid).is_some_and(|&n| self.tasks[n as usize].ready <= since);
        let Some(left) = self.interrupts[e.cpu as usize].left() else {
            return false; // interrupts are not in the recording
        };
        let woken = self.woken.get(e.cpu as usize).is_some_and(|&ts| ts >= since);
        waited && !woken && left < t.came && left.saturating_add(PREEMPTS_WITHIN_NS) < e.ts
    }

    /// A runnable task gives way to one that it has woken here, with no interrupt since: its system call went on until now.
    fn preempted(&mut self, i: u32, next: &TaskRef, e: &Event) {
        let wake = self.by_pid.get(&next.pid).and_then(|&n| self.tasks[n as usize].wake);
        let left = self.interrupts[e.cpu as usize].left().unwrap_or(0);
        if let Some(wake) = wake.filter(|w| w.by.is_ok_and(|(by, _)| by == i) && w.cpu == e.cpu && left < w.ts) {
            self.tails.saturating_record(e.ts.saturating_sub(wake.ts));
        }
    }

    /// A task gets a CPU: if it slept, that sleep is over.
    fn arrive(&mut self, i: u32, ts: u64) {
        let t = &mut self.tasks[i as usize];
        let mut stale = None;
        match t.state {
            State::Sleeping(since, _) => {
                let wake = t.wake.take();
                t.flush(since);
                match wake {
                    None if t.steps.is_empty() && t.switches == 0 => {} // was runnable when the recording began
                    None => {
                        t.counts.unseen += 1;
                        t.steps.push(Step::new(What::Sleep(ts.saturating_sub(since), Why::Unseen)));
                    }
                    Some(w) => {
                        let why = w.by.err().unwrap_or(Why::Task);
                        t.steps.extend(w.barrier.map(|number| Step::new(What::Barrier(number))));
                        t.steps.push(Step::new(What::Sleep(w.ts.saturating_sub(since), why)));
                        match w.by {
                            // Where, too: the waker may turn out to be a kernel thread that serves a device.
                            Ok((by, _)) => t.steps.extend([What::By(by), What::On(w.cpu)].map(Step::new)),
                            Err(Why::Io) => t.steps.push(Step::new(What::On(w.cpu))),
                            Err(Why::Timer) if w.first => t.extra(self.work.timer_write),
                            Err(_) => {}
                        }
                    }
                }
            }
            // Woken while it was runnable: that ended no sleep.
            State::Runnable => {
                stale = t.wake.take();
                t.counts.idle_wakes += u64::from(stale.is_some());
            }
            State::Running(_) | State::Dead => {}
        }
        t.state = State::Running(ts);
        t.came = ts;
        t.reclass();
        self.forget(stale);
    }

    /// A wake-up that ended no sleep: its post goes.
    fn forget(&mut self, wake: Option<Wake>) {
        let Some(wake) = wake else { return };
        if let Ok((by, at)) = wake.by {
            self.tasks[by as usize].steps[at] = Step::new(What::Nop);
        }
    }

    fn waking(&mut self, e: &Event, task: &TaskRef, target: u32, first: u64) {
        let has_futex = self.has_futex;
        let wakes = self.interrupts[e.cpu as usize].wakes(e);
        let waker = if matches!(wakes, Wakes::Task | Wakes::TaskPerhaps) {
            let prio = self.by_pid.get(&e.pid).map_or(120, |&p| self.tasks[p as usize].prio);
            self.current(e, &TaskRef { pid: e.pid, comm: e.comm.clone(), prio }, first)
        } else {
            None
        };
        let Some(i) = self.task(task, first) else { return };
        if waker == Some(i) {
            return;
        }
        let (mut barrier, waits) = (None, self.tasks[i as usize].barrier_call);
        let by = match waker.filter(|&w| matches!(self.tasks[w as usize].state, State::Running(_))) {
            Some(w) => {
                self.settle(w, e.cpu, e.ts);
                let t = &mut self.tasks[w as usize];
                t.counts.ambiguous += u64::from(wakes == Wakes::TaskPerhaps);
                t.flush(e.ts);
                t.woke = e.ts;
                barrier = self.barriers.woken(t.barrier_call, waits);
                if let (Some(number), Some(barriers::Call::WakeAll(_, marked @ false))) = (barrier, &mut t.barrier_call)
                {
                    *marked = true;
                    t.steps.push(Step::new(What::Barrier(number)));
                }
                let sync = has_futex && !t.in_futex;
                t.steps.push(Step::new(What::Post(i, sync)));
                let post = t.steps.len() - 1;
                // As far as is known of the CPU that the wakee was on.
                if target != e.cpu && self.cpus.get(target as usize).is_some_and(|on| matches!(on, Some((None, _)))) {
                    t.extra(self.work.kick);
                }
                Ok((w, post))
            }
            None => Err(match (wakes, self.tasks[i as usize].state) {
                (Wakes::Timer, _) => Why::Timer,
                (Wakes::Device, _) | (_, State::Sleeping(_, true)) => Why::Io,
                _ => Why::Interrupt,
            }),
        };
        // The last wake-up before a task runs again is the one that counts.
        let t = &mut self.tasks[i as usize];
        t.ready = e.ts;
        let first = match t.state {
            State::Sleeping(since, _) => self.interrupts[e.cpu as usize].was_first(since),
            _ => false,
        };
        let before = t.wake.replace(Wake { ts: e.ts, cpu: e.cpu, by, first, barrier });
        t.counts.idle_wakes += u64::from(before.is_some());
        self.forget(before);
    }
}
