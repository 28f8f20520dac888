//! The chain of every task in a recording: what it did, step by step.

use contend_sim::program::Sched;
use contend_trace::event::Comm;
use rustc_hash::FxHashSet;

use super::barriers;
use super::filter::is_kernel;
use super::mutexes::Holder;
use crate::model::jobs::Order;
use crate::model::step::{Step, What, Why};

/// Where a task is.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum State {
    /// On a CPU since then (or since its run was last written down).
    Running(u64),
    /// On a run queue.
    Runnable,
    /// Asleep since then; uninterruptibly or not.
    Sleeping(u64, bool),
    Dead,
}

/// A wake-up that may end a sleep.
#[derive(Clone, Copy)]
pub(super) struct Wake {
    pub(super) ts: u64,
    /// Where.
    pub(super) cpu: u32,
    /// The waker, and where in its chain the post stands; otherwise why the sleep ended.
    pub(super) by: Result<(u32, usize), Why>,
    /// A timer's, and it was that CPU's next when it was armed.
    pub(super) first: bool,
    /// One of all who waited on this word.
    pub(super) barrier: Option<u32>,
}

/// What is odd about a task's events, and what was taken out of its runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Time of interrupts on its back, in ns.
    pub interrupts_ns: u64,
    /// Time it spun for contended kernel locks, in ns.
    pub spun_ns: u64,
    /// Wake-ups of a task that was not asleep, or that another followed.
    pub idle_wakes: u64,
    /// Sleeps that end without a wake-up in the recording.
    pub unseen: u64,
    /// Switches away from a task that was not known to run there.
    pub unchained: u64,
    /// Posts that a running task made, where the recording does not tell interrupts apart.
    pub ambiguous: u64,
}

/// A task of the recording.
pub struct Chain {
    pub pid: u32,
    pub name: Comm,
    /// Name at its first event.
    pub first_name: Comm,
    /// In the kernel's numbers: at the first event, as the steps have it, and at the last one.
    pub first_prio: i32,
    pub(super) told_prio: i32,
    pub prio: i32,
    pub parent: Option<u32>,
    /// Its session, as far as that is known.
    pub session: Option<u32>,
    pub steps: Vec<Step>,
    /// When it was first there.
    pub start_ts: u64,
    /// Switches in which it left a CPU, and how many of them it stayed runnable.
    pub switches: u64,
    pub preempted: u64,
    /// Has slept as only kernel threads do (TASK_IDLE).
    pub kernel: bool,
    pub exited: bool,
    /// Has started others.
    pub(super) starts: bool,
    /// In the system call futex.
    pub(super) in_futex: bool,
    /// In the system call sched_yield.
    pub(super) in_yield: bool,
    /// Its mutexes.
    pub mutexes: Holder,
    /// What the call of futex that it is in is to barriers.
    pub(super) barrier_call: Option<barriers::Call>,
    /// Its last CPU; when it came there, when it last became runnable, and when it last woke another.
    pub(super) on: u32,
    pub(super) came: u64,
    pub(super) ready: u64,
    pub(super) woke: u64,
    pub counts: Counts,
    pub(super) state: State,
    pub(super) run: u64,
    pub(super) wake: Option<Wake>,
    /// The step that stands where it entered `execve`.
    pub(super) calls_exec: Option<usize>,
    /// The step that stands where it last executed a program, if it has not left the CPU since: room for what `chrt`, `nice` and the like
    /// changed before that.
    pub(super) executed: Option<usize>,
}

/// A command that was executed.
pub struct Exec {
    pub task: u32,
    /// Steps of the task that stand before.
    pub at: usize,
    pub ts: u64,
    /// Last part of the file's name.
    pub name: String,
    /// Executed by perf or trace-cmd.
    pub by_recorder: bool,
}

/// The chains of all tasks.
pub struct Chains {
    pub tasks: Vec<Chain>,
    pub execs: Vec<Exec>,
    pub order: Vec<Order>,
    /// Switches in the recording.
    pub switches: u64,
    pub last_ts: u64,
    /// From `sched_waking` to `sched_switch`, in ns, where a woken task preempted its waker at once: the median. `None`: hardly ever
    /// seen.
    pub tail: Option<u64>,
}

impl Chains {
    /// Names of the commands that were executed, each once, in order.
    pub fn executed(&self) -> Vec<String> {
        each_once(self.execs.iter().map(|e| &*e.name))
    }

    /// Names of the tasks, each once, in order.
    pub fn names(&self) -> Vec<String> {
        each_once(self.tasks.iter().map(|t| &*t.name))
    }
}

fn each_once<'a>(names: impl Iterator<Item = &'a str>) -> Vec<String> {
    let mut seen = FxHashSet::default();
    names.filter(|n| seen.insert(*n)).map(String::from).collect()
}

/// Who wakes another and blocks uninterruptibly or exits so soon did both in one system call. In recordings nine of ten tasks that started a
/// device's kernel thread and waited for it blocked within 5 us, those that told their parent of their end within 35 us; of
/// 3,805 none was preempted by whom it had woken.
const BLOCKS_WITHIN_NS: u64 = 50_000;

impl Chain {
    /// Account for running up to `ts`.
    pub(super) fn run_until(&mut self, ts: u64) {
        if let State::Running(since) = self.state {
            self.run = self.run.saturating_add(ts.saturating_sub(since));
            self.state = State::Running(ts);
        }
    }

    /// Its priority at the step `at`, in the kernel's numbers.
    pub fn prio_at(&self, at: usize) -> i32 {
        let changes = self.steps[..at].iter().rev().map(|s| s.what());
        changes
            .filter_map(|s| if let What::Sched(sched) = s { Some(sched.kernel_prio()) } else { None })
            .next()
            .unwrap_or(self.first_prio)
    }

    /// Its class or priority may have changed since its last step: that comes where it executed a program in this run, as those do that change
    /// their own first; elsewhere after what it has run until now.
    pub(super) fn reclass(&mut self) {
        if self.prio == self.told_prio {
            return;
        }
        self.told_prio = self.prio;
        if self.steps.is_empty() && self.run == 0 && self.switches == 0 {
            self.first_prio = self.prio;
            return;
        }
        let change = Step::new(What::Sched(Sched::of_kernel_prio(self.prio)));
        if let Some(at) = self.executed.take() {
            self.steps[at] = change;
            return;
        }
        if self.run > 0 {
            self.steps.push(Step::new(What::Run(self.run)));
            self.run = 0;
        }
        self.steps.push(change);
    }

    /// Write down what has been run.
    pub fn flush(&mut self, ts: u64) {
        self.run_until(ts);
        if self.run > 0 {
            self.steps.push(Step::new(What::Run(self.run)));
            self.run = 0;
        }
    }

    /// The same where it sleeps, `deep` in the kernel: uninterruptibly, or for ever. If it woke another just before, that was in
    /// the same call, and it has not left the kernel since; a thread of the kernel never does.
    pub(super) fn flush_blocking(&mut self, ts: u64, deep: bool) {
        self.run_until(ts);
        let woke = matches!(self.steps.last().map(|s| s.what()), Some(What::Post(..) | What::Extra(_)))
            && self.woke >= self.came;
        let soon = woke && ts.saturating_sub(self.woke) <= BLOCKS_WITHIN_NS;
        if soon && (deep || is_kernel(self)) {
            self.steps.push(Step::new(What::Kernel(self.run, true)));
            self.run = 0;
        }
        self.flush(ts);
    }

    /// The recorded kernel did more for the last step than [`KernelWork`](super::kernel_work::KernelWork) has for its kind.
    pub(super) fn extra(&mut self, ns: u64) {
        if ns > 0 {
            self.steps.push(Step::new(What::Extra(ns)));
        }
    }
}
