//! Lists of pending wake-ups: the orderings of a push, the double push, the link read too late.

use crate::Model;
use contend_platform::{CpuId, Ordering, Platform, TaskId};
use contend_sched::wake_list::{CallList, Drained, PushOrder, RowandList};
use std::collections::BTreeMap;

/// Which list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// [`RowandList`] with this order of writes.
    Rowand(PushOrder),
    /// [`CallList`].
    Call,
}

/// Either list.
pub enum List<P: Platform> {
    /// The post's.
    Rowand(RowandList<P>),
    /// Today's.
    Call(CallList<P>),
}

impl<P: Platform> List<P> {
    /// An empty one, for at most `tasks` tasks: a walk beyond them has come upon a cycle.
    pub fn new(p: &P, kind: Kind, tasks: usize) -> Self {
        match kind {
            Kind::Rowand(order) => List::Rowand(RowandList::with(p, p.line(), order, tasks)),
            Kind::Call => List::Call(CallList::new(p, p.line())),
        }
    }
    /// Push `task`; was the list empty?
    pub fn push(&self, p: &P, links: &[P::Word], task: TaskId) -> bool {
        let link = |task: TaskId| &links[task.index()];
        match self {
            List::Rowand(list) => list.push(p, &link, task),
            List::Call(list) => list.push(p, &link, task),
        }
    }
    /// Take all.
    pub fn drain(&self, p: &P, links: &[P::Word], wake: impl FnMut(TaskId)) -> Drained {
        let link = |task: TaskId| &links[task.index()];
        match self {
            List::Rowand(list) => list.drain(p, &link, wake),
            List::Call(list) => list.drain(p, &link, wake),
        }
    }
}

/// CPU 0 drains at arbitrary times, the others push tasks of their own. Every task comes out once; one push in a batch, the
/// first, finds the list empty (and sends the interrupt).
#[derive(Clone)]
pub struct PushDrain {
    /// The list.
    pub kind: Kind,
    /// CPUs that push.
    pub pushers: usize,
    /// Tasks each pushes.
    pub tasks: usize,
    /// Drains before the end.
    pub drains: usize,
    /// Each task carries flags, written by the pusher before the push and read by the drainer: plain data.
    pub flags: bool,
}

/// What the CPUs of [`PushDrain`] share.
pub struct Queue<P: Platform> {
    list: List<P>,
    links: Vec<P::Word>,
    flags: Vec<P::Cell<u64>>,
    /// Pushes that found the list empty, by CPU.
    first: Vec<P::Cell<usize>>,
    /// What CPU 0 has drained: tasks in order, and batches.
    drained: P::Cell<(Vec<TaskId>, usize)>,
}

impl PushDrain {
    fn drain<P: Platform>(&self, p: &P, s: &Queue<P>) {
        let mut tasks = Vec::new();
        let result = s.list.drain(p, &s.links, |task| {
            if self.flags {
                // SAFETY: the pusher has written before the push; that this is ordered is what is checked.
                let flags = unsafe { p.read(&s.flags[task.index()], |flags| *flags) };
                assert_eq!(flags, u64::from(task.0) + 100, "stale flags");
            }
            tasks.push(task);
        });
        assert!(!result.endless, "the wake list is a cycle");
        // SAFETY: only CPU 0 drains, and the main thread after the end.
        unsafe {
            p.write(&s.drained, |(all, batches)| {
                *batches += usize::from(!tasks.is_empty());
                all.append(&mut tasks);
            });
        }
    }
}

impl<P: Platform> Model<P> for PushDrain {
    type Shared = Queue<P>;

    fn cpus(&self) -> usize {
        1 + self.pushers
    }
    fn setup(&self, p: &P) -> Queue<P> {
        let tasks = self.pushers * self.tasks;
        Queue {
            list: List::new(p, self.kind, tasks),
            links: (0..tasks).map(|_| p.word(p.line(), 0)).collect(),
            flags: (0..tasks).map(|_| p.cell(p.line(), 0)).collect(),
            first: (0..=self.pushers).map(|_| p.cell(p.line(), 0)).collect(),
            drained: p.cell(p.line(), (Vec::new(), 0)),
        }
    }
    fn run(&self, p: &P, s: &Queue<P>) {
        let cpu = p.cpu().index();
        if cpu == 0 {
            for _ in 0..self.drains {
                self.drain(p, s);
            }
            return;
        }
        for i in 0..self.tasks {
            let task = TaskId(((cpu - 1) * self.tasks + i) as u32);
            if self.flags {
                // SAFETY: before the push the task is the pusher's own.
                unsafe { p.write(&s.flags[task.index()], |flags| *flags = u64::from(task.0) + 100) };
            }
            if s.list.push(p, &s.links, task) {
                // SAFETY: each CPU has its own counter.
                unsafe { p.write(&s.first[cpu], |first| *first += 1) };
            }
        }
    }
    fn finish(&self, p: &P, s: &Queue<P>) {
        self.drain(p, s);
        // SAFETY: the CPUs have ended.
        let (tasks, batches) = unsafe { p.read(&s.drained, Clone::clone) };
        // SAFETY: as above.
        let first: usize = s.first.iter().map(|f| unsafe { p.read(f, |f| *f) }).sum();
        let mut sorted = tasks.clone();
        sorted.sort();
        let all: Vec<TaskId> = (0..(self.pushers * self.tasks) as u32).map(TaskId).collect();
        assert_eq!(sorted, all, "each task comes out once");
        assert_eq!(first, batches, "one interrupt a batch");
        if self.kind == Kind::Call {
            let mut last = BTreeMap::new();
            for task in tasks {
                let pusher = task.index() / self.tasks;
                assert!(last.insert(pusher, task).is_none_or(|before| before < task), "first in, first out");
            }
        }
    }
}

/// The 2010 protocol around its list: a task that waits for something `rounds` times, and as many wakers, each of which
/// fulfils one wait. The list is drained at the end (the interrupt may be late).
///
/// A waker changes the state of the task to WAKING and pushes it while the task still runs; the task finds its wait
/// fulfilled, sets itself running, and sleeps again: the next waker pushes it once more.
#[derive(Clone)]
pub struct Post2010 {
    /// The list.
    pub kind: Kind,
    /// Waits of the task, and wakers.
    pub rounds: usize,
}

/// What the CPUs of [`Post2010`] share.
pub struct PostTask<P: Platform> {
    list: List<P>,
    links: Vec<P::Word>,
    state: P::Word,
    /// Waits fulfilled so far.
    fulfilled: P::Word,
}

const RUNNING: u64 = 0;
const INTERRUPTIBLE: u64 = 1;
const WAKING: u64 = 256;

impl<P: Platform> Model<P> for Post2010 {
    type Shared = PostTask<P>;

    fn cpus(&self) -> usize {
        1 + self.rounds
    }
    fn setup(&self, p: &P) -> PostTask<P> {
        PostTask {
            list: List::new(p, self.kind, 1),
            links: vec![p.word(p.line(), 0)],
            state: p.word(p.line(), RUNNING),
            fulfilled: p.word(p.line(), 0),
        }
    }
    fn run(&self, p: &P, s: &PostTask<P>) {
        if p.cpu() == CpuId(0) {
            for round in 0..self.rounds as u64 {
                p.store(&s.state, INTERRUPTIBLE, Ordering::Release);
                p.fence(Ordering::SeqCst);
                // If the wait were not fulfilled, the task would call schedule(); that path is not needed here.
                if p.load(&s.fulfilled, Ordering::Acquire) > round {
                    p.store(&s.state, RUNNING, Ordering::Release);
                }
            }
        } else {
            p.fetch_add(&s.fulfilled, 1, Ordering::AcqRel);
            p.fence(Ordering::SeqCst);
            let sleeps = p.load(&s.state, Ordering::Acquire) == INTERRUPTIBLE;
            let exchange =
                || p.compare_exchange(&s.state, INTERRUPTIBLE, WAKING, Ordering::AcqRel, Ordering::Relaxed).is_ok();
            if sleeps && exchange() {
                s.list.push(p, &s.links, TaskId(0));
            }
        }
    }
    fn finish(&self, p: &P, s: &PostTask<P>) {
        let drained = s.list.drain(p, &s.links, |_| {});
        assert!(!drained.endless, "the wake list is a cycle");
    }
}

/// Tasks 0 and 1 wait on CPU 0's list, task 0 at its head. As soon as CPU 0 has handed task 0 over, it runs, sleeps, and is
/// pushed to CPU 1's list. All three wake-ups must be handed over.
#[derive(Clone)]
pub struct PushedElsewhere {
    /// The lists.
    pub kind: Kind,
}

/// What the CPUs of [`PushedElsewhere`] share.
pub struct TwoLists<P: Platform> {
    lists: [List<P>; 2],
    links: Vec<P::Word>,
    /// Task 0 has been handed over.
    ran: P::Word,
    /// How often each task was handed over by CPU 0; a second list's by the main thread.
    woken: P::Cell<[usize; 2]>,
}

impl<P: Platform> Model<P> for PushedElsewhere {
    type Shared = TwoLists<P>;

    fn cpus(&self) -> usize {
        2
    }
    fn setup(&self, p: &P) -> TwoLists<P> {
        let s = TwoLists {
            lists: [List::new(p, self.kind, 10), List::new(p, self.kind, 10)],
            links: vec![p.word(p.line(), 0), p.word(p.line(), 0)],
            ran: p.word(p.line(), 0),
            woken: p.cell(p.line(), [0; 2]),
        };
        // The post's list hands over the last pushed first, today's the first.
        let order = if self.kind == Kind::Call { [0, 1] } else { [1, 0] };
        for task in order {
            s.lists[0].push(p, &s.links, TaskId(task));
        }
        s
    }
    fn run(&self, p: &P, s: &TwoLists<P>) {
        if p.cpu() == CpuId(0) {
            let drained = s.lists[0].drain(p, &s.links, |task| {
                // SAFETY: only CPU 0 touches it, and the main thread after the end.
                unsafe { p.write(&s.woken, |woken| woken[task.index()] += 1) };
                if task == TaskId(0) {
                    p.store(&s.ran, 1, Ordering::Release);
                }
            });
            assert!(!drained.endless, "the wake list is a cycle");
        } else {
            p.wait_until([&s.ran], None, |[ran]| ran == 1);
            s.lists[1].push(p, &s.links, TaskId(0));
        }
    }
    fn finish(&self, p: &P, s: &TwoLists<P>) {
        // SAFETY: the CPUs have ended.
        let mut woken = unsafe { p.read(&s.woken, |woken| *woken) };
        s.lists[1].drain(p, &s.links, |task| woken[task.index()] += 1);
        assert_eq!(woken, [2, 1], "a wake-up was lost");
    }
}
