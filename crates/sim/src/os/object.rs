//! Objects that tasks share: a lock on its own line, and the data it guards.

use crate::guest::Channel;
use crate::program::{self, ObjectKind};
use crate::world::World;
use contend_platform::{Account, CpuId, Nanos, Platform, TaskId, Time};
use contend_sched::kernel::Kernel;
use contend_sched::policy::Policy;
use contend_sched::rq_lock::{KernelLock, LockCounters, LockStats};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

/// One object. Its data is touched with its lock held, but for the user-space word of a mutex.
pub(super) struct Object<W: World> {
    pub name: String,
    pub kind: ObjectKind,
    /// wait_queue lock, futex hash bucket lock, or the spinlock itself.
    pub lock: KernelLock<W>,
    /// Where the data lies.
    pub data: <W as Platform>::Cell<()>,
    /// Bytes in a pipe, count of a semaphore, arrivals at a barrier.
    pub level: Cell<u64>,
    /// Bytes read from a pipe since a page's worth was last freed for waiting writers.
    pub freed: Cell<u64>,
    /// The CPU that wrote to a pipe last: its caches hold the bytes.
    pub writer: Cell<CpuId>,
    /// The CPU that wrote to a socket's state, or to what a spinlock guards, last.
    pub state_at: Cell<CpuId>,
    /// Generation of a barrier.
    pub generation: Cell<u64>,
    /// Owner of a mutex, + 1; 0: free. User space's word.
    pub word: <W as Platform>::Word,
    /// What happened at a mutex itself; at its hash bucket that is counted by `lock`.
    pub mutex: LockCounters,
    /// Sleepers, first come first served; readers of a pipe.
    pub waiters: RefCell<VecDeque<TaskId>>,
    /// Writers of a pipe.
    pub writers: RefCell<VecDeque<TaskId>>,
    /// What an end of a ring shares with the other.
    pub channel: Option<Rc<Channel>>,
}

/// An object's lock in the result.
#[derive(Clone, Debug, PartialEq)]
pub struct ObjectReport {
    /// Name of the object.
    pub name: String,
    /// Kind in one word.
    pub kind: &'static str,
    /// What happened at its lock.
    pub lock: LockStats,
    /// The lock's number among its kernel's spinlocks, if it is one.
    pub number: Option<u32>,
}

impl<W: World> Object<W> {
    pub fn new<L: Policy>(p: &W, kernel: &Kernel<W, L>, o: &program::Object) -> Self {
        let level = match o.kind {
            ObjectKind::Semaphore { initial } => u64::from(initial),
            _ => 0,
        };
        let data = p.line();
        let channel = match o.kind {
            ObjectKind::Ring { channel, end, vcpu, .. } => Some(p.channel(channel, end, CpuId(vcpu))),
            _ => None,
        };
        Object {
            name: o.name.clone(),
            kind: o.kind.clone(),
            // One structure holds a pipe's lock and its indices; a futex bucket its lock and its list.
            lock: kernel.locks.create(p, data, Account::SpinLock),
            data: p.cell(data, ()),
            level: Cell::new(level),
            freed: Cell::new(0),
            writer: Cell::new(CpuId(0)),
            state_at: Cell::new(CpuId(0)),
            generation: Cell::new(0),
            word: p.word(p.line(), 0),
            mutex: LockCounters::default(),
            waiters: RefCell::default(),
            writers: RefCell::default(),
            channel,
        }
    }

    /// Touch the data's line for writing; the lock is held.
    pub fn touch(&self, p: &W) {
        // SAFETY: the lock that guards the data is held by the caller; the closure does nothing.
        unsafe { p.write(&self.data, |()| ()) }
    }

    /// Owner of a mutex.
    pub fn owner(&self) -> Option<TaskId> {
        (self.word.observe() as u32).checked_sub(1).map(TaskId)
    }

    /// "3 of 5 are there".
    pub fn progress(&self) -> String {
        match self.kind {
            ObjectKind::Barrier { parties } => format!("{} of {parties} have arrived", self.level.get()),
            ObjectKind::Rendezvous { parties } => {
                format!("{} of {parties} have arrived", self.word.observe() as u32)
            }
            _ => String::new(),
        }
    }

    /// Its lock; of a mutex itself, for which tasks have been `waiting` so long, and its hash bucket.
    pub fn reports(&self, waiting: &[Nanos], end: Time) -> impl Iterator<Item = ObjectReport> + use<W> {
        let mutex = matches!(self.kind, ObjectKind::Mutex);
        let mut stats = self.mutex.get_at(end);
        waiting.iter().for_each(|wait| stats.waits_on(*wait));
        let itself = ObjectReport { name: self.name.clone(), kind: "mutex", lock: stats, number: None };
        let mut lock = self.report(end);
        if mutex {
            lock.name = format!("futex of {}", self.name);
        }
        mutex.then_some(itself).into_iter().chain([lock])
    }

    fn report(&self, end: Time) -> ObjectReport {
        let kind = match self.kind {
            ObjectKind::Pipe { .. } => "pipe",
            ObjectKind::Socket { .. } => "socket",
            ObjectKind::Inbox { .. } => "inbox",
            ObjectKind::Ring { .. } => "ring",
            ObjectKind::Mutex | ObjectKind::Futex => "futex",
            ObjectKind::Cond => "cond",
            ObjectKind::Barrier { .. } => "barrier",
            ObjectKind::Semaphore { .. } => "semaphore",
            ObjectKind::SpinLock => "spinlock",
            ObjectKind::Rendezvous { .. } => "rendezvous",
            ObjectKind::AddressSpace => "address-space",
        };
        ObjectReport { name: self.name.clone(), kind, lock: self.lock.stats_at(end), number: Some(self.lock.number()) }
    }
}
