//! Lists of pending wake-ups: many CPUs push tasks for one CPU, which takes them all at once.
//!
//! A task can be on one such list at a time and carries the link itself (`links` finds a task's link word). Head and
//! links hold `0` (empty, end) or the task's number plus 1.
//!
//! ```text
//! push T    T.link: * -> h;  head: h -> T     release, retried while the head is no longer h; first in if h == 0
//! drain     head: h -> 0                      acquire; the chain h, h.link, ... belongs to the drainer
//! ```
//!
//! [`RowandList`] is the list of the 2010 post "reduce runqueue lock contention", with its weaknesses; [`CallList`] is
//! what kernels do today. Both are Treiber stacks whose only consumer takes everything, so there is no ABA problem: a
//! head value means the same whoever put it there.
//!
//! # The post's open question
//!
//! *"verify that smp_wmb() is implied by cmpxchg() on x86, so that the explicit smp_wmb() can be removed"*. In terms of
//! this memory model, checked by loom (`contend-check`, `tests/check/wake_list.rs`):
//!
//! | exchange of the head | barrier | flags of the wake-up | link |
//! |---|---|---|---|
//! | release | none | seen | seen |
//! | relaxed | none | **stale** | **stale: tasks lost** |
//! | relaxed | before the loop, as posted | seen | **stale: tasks lost** |
//! | relaxed | before each exchange | seen | seen |
//!
//! So the barrier can be removed where the exchange is a release (everywhere in Linux, where `cmpxchg()` is fully
//! ordered); and where it were not, the posted barrier would stand in the wrong place: the link is written after it.
//! Failure of the exchange needs no ordering: the drainer acquires all pushes at once, since each exchange continues the
//! release sequences of those before.

use contend_platform::{Line, Ordering, Platform, TaskId};

/// Where the writer's barrier stands in a push.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Barrier {
    /// Nowhere.
    None,
    /// Before the loop, as posted: after the wake-up's flags, before the link.
    BeforeLoop,
    /// Before each exchange: after the link too.
    BeforeExchange,
}

/// How a push orders its writes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PushOrder {
    /// Success ordering of the exchange of the head.
    pub exchange: Ordering,
    /// The writer's barrier (a release fence).
    pub barrier: Barrier,
}

impl PushOrder {
    /// As posted in 2010: `smp_wmb()`, then `cmpxchg()`, itself fully ordered.
    pub const POSTED: PushOrder = PushOrder { exchange: Ordering::AcqRel, barrier: Barrier::BeforeLoop };
    /// What is enough.
    pub const ENOUGH: PushOrder = PushOrder { exchange: Ordering::Release, barrier: Barrier::None };
}

/// What a drain did.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Drained {
    /// Tasks handed to the callback.
    pub tasks: usize,
    /// The walk was given up because it went on past the limit: a corrupted list, where a kernel would hang.
    pub endless: bool,
}

/// Walks give up after this many tasks: more than can exist.
pub const WALK_LIMIT: usize = 1 << 20;

#[inline]
fn link_of(task: TaskId) -> u64 {
    u64::from(task.0) + 1
}
#[inline]
fn task_of(link: u64) -> Option<TaskId> {
    link.checked_sub(1).map(|task| TaskId(task as u32))
}

/// The push of both lists; returns whether the list was empty.
#[inline]
fn push<'a, P: Platform>(
    p: &P,
    head: &P::Word,
    links: &impl Fn(TaskId) -> &'a P::Word,
    task: TaskId,
    order: PushOrder,
) -> bool
where
    P::Word: 'a,
{
    if order.barrier == Barrier::BeforeLoop {
        p.fence(Ordering::Release);
    }
    // As in the post, the first guess is "empty"; a failed exchange brings a better one.
    let mut expected = 0;
    loop {
        p.store(links(task), expected, Ordering::Relaxed);
        if order.barrier == Barrier::BeforeExchange {
            p.fence(Ordering::Release);
        }
        match p.compare_exchange(head, expected, link_of(task), order.exchange, Ordering::Relaxed) {
            Ok(_) => return expected == 0,
            Err(found) => expected = found,
        }
    }
}

/// The wake list of the 2010 post.
///
/// Tasks come out last in, first out. Two weaknesses, kept because they are the subject:
///
/// * **A task pushed twice** before the drain corrupts the list: its link is overwritten, the chain becomes a cycle, and
///   what stood before the second push is lost. The post's protocol permits it: a waker changes the state of a task that
///   still runs; the task sets itself running, goes to sleep again and is pushed by the next waker.
/// * **The link is read after the callback** of the same task, which lets the task run: if it sleeps and is pushed to
///   another CPU's list before that read, the walk continues in that other list, and the rest of its own is lost.
pub struct RowandList<P: Platform> {
    head: P::Word,
    order: PushOrder,
    walk_limit: usize,
}

impl<P: Platform> RowandList<P> {
    /// An empty list whose head lies on `line`.
    pub fn new(p: &P, line: Line) -> Self {
        RowandList::with(p, line, PushOrder::POSTED, WALK_LIMIT)
    }

    /// With a push order of one's own, and a limit on the walk.
    pub fn with(p: &P, line: Line, order: PushOrder, walk_limit: usize) -> Self {
        RowandList { head: p.word(line, 0), order, walk_limit }
    }

    /// Is nothing pending? A guess, unless the caller excludes pushes.
    #[inline]
    pub fn is_empty(&self, p: &P) -> bool {
        p.load(&self.head, Ordering::Relaxed) == 0
    }

    /// Queue the wake-up of `task`. Returns whether the list was empty: then the caller sends the interrupt.
    #[inline]
    pub fn push<'a>(&self, p: &P, links: &impl Fn(TaskId) -> &'a P::Word, task: TaskId) -> bool
    where
        P::Word: 'a,
    {
        push(p, &self.head, links, task, self.order)
    }

    /// Take all and hand each to `wake`, the last pushed first, reading each link after the task's callback.
    pub fn drain<'a>(&self, p: &P, links: &impl Fn(TaskId) -> &'a P::Word, mut wake: impl FnMut(TaskId)) -> Drained
    where
        P::Word: 'a,
    {
        let mut drained = Drained::default();
        // Acquire: what the pushers wrote, links included.
        let mut next = task_of(p.swap(&self.head, 0, Ordering::Acquire));
        while let Some(task) = next {
            if drained.tasks == self.walk_limit {
                drained.endless = true;
                break;
            }
            drained.tasks += 1;
            wake(task);
            next = task_of(p.load(links(task), Ordering::Relaxed));
        }
        drained
    }
}

/// Today's list: a CPU's call-function queue.
///
/// Tasks come out in the order in which they were pushed (the chain is turned round first), and each link is read before
/// the callback of its task, so a task may be queued anywhere as soon as it has been handed over. The caller pushes a task
/// only once before it is drained; the state WAKING, entered under the task's `pi_lock`, is what ensures that.
pub struct CallList<P: Platform> {
    head: P::Word,
}

impl<P: Platform> CallList<P> {
    /// An empty list whose head lies on `line`.
    pub fn new(p: &P, line: Line) -> Self {
        CallList { head: p.word(line, 0) }
    }

    /// Is nothing pending? A guess, unless the caller excludes pushes.
    #[inline]
    pub fn is_empty(&self, p: &P) -> bool {
        p.load(&self.head, Ordering::Relaxed) == 0
    }

    /// Queue the wake-up of `task`. Returns whether the list was empty: then the caller sends the interrupt.
    #[inline]
    pub fn push<'a>(&self, p: &P, links: &impl Fn(TaskId) -> &'a P::Word, task: TaskId) -> bool
    where
        P::Word: 'a,
    {
        push(p, &self.head, links, task, PushOrder::ENOUGH)
    }

    /// Take all and hand each to `wake`, the first pushed first.
    pub fn drain<'a>(&self, p: &P, links: &impl Fn(TaskId) -> &'a P::Word, mut wake: impl FnMut(TaskId)) -> Drained
    where
        P::Word: 'a,
    {
        // Acquire: what the pushers wrote, links included. From here the chain is private.
        let mut rest = task_of(p.swap(&self.head, 0, Ordering::Acquire));
        let mut first = None;
        let mut chained = 0;
        while let Some(task) = rest {
            chained += 1;
            assert!(chained <= WALK_LIMIT, "{task:?} was pushed to a wake list twice");
            rest = task_of(p.load(links(task), Ordering::Relaxed));
            p.store(links(task), first.map_or(0, link_of), Ordering::Relaxed);
            first = Some(task);
        }
        let mut drained = Drained::default();
        while let Some(task) = first {
            drained.tasks += 1;
            first = task_of(p.load(links(task), Ordering::Relaxed));
            wake(task);
        }
        drained
    }
}
