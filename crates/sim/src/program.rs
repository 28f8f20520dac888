//! What tasks are made of: a small system-call-like interface.
//!
//! A [`Program`] is a stackless state machine: the kernel asks it for its next [`Op`] whenever the one before has
//! completed. So a task costs a few hundred bytes and 100,000 of them fit a process; only CPUs own stacks
//! (`docs/internals/engine.md` says why). A [`Workload`] is the tasks that exist at the start, the kernel objects they
//! share, and when the run is over.

use crate::thread::Threads;
use contend_platform::{CpuId, Nanos, TaskId, Time};
pub use contend_sched::class::{Sched, Share};
pub use contend_sched::policy::groups::{GROUPS_MAX, Group, GroupId, Groups};
use fixedbitset::FixedBitSet;
use rand_pcg::Pcg64Mcg;

/// Index of an object in [`Workload::objects`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, PartialOrd, Ord)]
pub struct ObjId(pub u32);

/// A kernel object that tasks share.
#[derive(Clone, Debug, PartialEq)]
pub struct Object {
    /// Name in reports.
    pub name: String,
    /// Kind and parameters.
    pub kind: ObjectKind,
}

/// Kinds of kernel objects.
#[derive(Clone, Debug, PartialEq)]
pub enum ObjectKind {
    /// A pipe: bytes up to `capacity`; readers sleep while it is empty, writers while it is full.
    Pipe {
        /// Buffer size in bytes (Linux default 65,536).
        capacity: u32,
    },
    /// A connected local socket: like a pipe of whole messages, with a socket's costs.
    Socket {
        /// Send buffer in bytes (Linux default 212,992).
        capacity: u32,
        /// Cache lines of the connection's state that each write and each read of it writes, besides the one whose
        /// contention is simulated: they move to whoever does.
        lines: u32,
    },
    /// A socket whose sender is the kernel: what is written is handed over, not copied.
    Inbox {
        /// Bytes that it holds; the sender sleeps while it is full.
        capacity: u32,
        /// As for a socket.
        lines: u32,
    },
    /// One end of a ring that two domains of a Xen host share. The front end is written to ([`Op::Write`], a packet each), the back
    /// end read from ([`Op::Read`], one packet whatever the number).
    Ring {
        /// Which ring: both ends name it.
        channel: u32,
        /// Which end.
        end: RingEnd,
        /// The virtual CPU that events interrupt.
        vcpu: u16,
        /// Bytes of each packet; the same at both ends.
        bytes: u32,
    },
    /// A sleeping mutex (futex based, FIFO wake-up, no hand-off).
    Mutex,
    /// A condition variable.
    Cond,
    /// A barrier of `parties` tasks.
    Barrier {
        /// How many tasks must arrive.
        parties: u32,
    },
    /// A counting semaphore with an initial count; wake-ups of recordings are posts to these.
    Semaphore {
        /// Count at the start.
        initial: u32,
    },
    /// A futex word with a waiter queue in a hash bucket.
    Futex,
    /// A kernel spinlock that tasks take inside system calls ([`Op::KernelLock`]).
    SpinLock,
    /// Where CPUs wait for one another, spinning in the kernel ([`Op::Rendezvous`]).
    Rendezvous {
        /// How many must arrive; each on a CPU of its own, since they keep it.
        parties: u32,
    },
    /// An address space: which tasks share translations ([`Op::Join`], [`Op::Shootdown`]).
    AddressSpace,
}

/// An end of a shared ring.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RingEnd {
    /// Puts requests in: the guest's driver.
    Front,
    /// Takes them: dom0's.
    Back,
}

impl RingEnd {
    /// In a word.
    pub fn name(self) -> &'static str {
        match self {
            RingEnd::Front => "front",
            RingEnd::Back => "back",
        }
    }
}

/// One step of a program.
pub enum Op {
    /// Compute for this long at the machine's reference speed, in ns.
    Run(Nanos),
    /// Spend this long in the kernel (a system call that neither blocks nor locks), in ns.
    Syscall(Nanos),
    /// Sleep for this long (timer), in ns.
    Sleep(Nanos),
    /// Sleep until this time; returns at once when it has passed.
    SleepUntil(Time),
    /// Sleep until a device has served a request, in ns; it interrupts this CPU (modulo the CPUs there are). In a virtual machine
    /// the caller's.
    Device(Nanos, u32),
    /// `sched_yield`.
    Yield,
    /// Write to a pipe or socket; blocks while there is no room.
    Write(ObjId, u32),
    /// Read this many bytes from a pipe or socket; blocks until they are there.
    Read(ObjId, u32),
    /// Lock a mutex.
    Lock(ObjId),
    /// Unlock a mutex.
    Unlock(ObjId),
    /// Unlock a mutex; if that wakes somebody, the system call goes on for so long then, in ns.
    Release(ObjId, Nanos),
    /// Wait for a condition variable, releasing the mutex meanwhile.
    CondWait {
        /// The condition variable.
        cond: ObjId,
        /// The mutex, held by the caller.
        mutex: ObjId,
    },
    /// Wake one waiter.
    CondSignal(ObjId),
    /// Wake all waiters.
    CondBroadcast(ObjId),
    /// Wait until all parties have arrived.
    Barrier(ObjId),
    /// Take one count of a semaphore; blocks while there is none.
    SemWait(ObjId),
    /// Give this many counts.
    SemPost(ObjId, u32),
    /// Give one count of a semaphore as another object of the kernel would wake somebody.
    Wake {
        /// The semaphore.
        semaphore: ObjId,
        /// The caller says that it will sleep soon (WF_SYNC), as a write to a pipe does.
        sync: bool,
        /// How long the system call goes on then, in ns: whoever it woke does not come to this CPU before.
        tail: Nanos,
        /// The program's next step, after further posts if there are any, is part of the same system call, which does not return to the
        /// program in between: it blocks, or the task exits.
        blocks: bool,
    },
    /// Sleep on a futex until woken; a wake-up that came before is not remembered.
    FutexWait(ObjId),
    /// Wake up to this many waiters.
    FutexWake(ObjId, u32),
    /// Take a kernel spinlock, do what it guards, release it ([`Op::kernel_lock`] where that is time alone).
    KernelLock {
        /// The lock.
        lock: ObjId,
        /// How long it is held beside the lines, in ns.
        hold: Nanos,
        /// Cache lines of what it guards that are read one after another, each from the caches of the CPU that held it last.
        lines: u32,
    },
    /// Arrive, and spin in the kernel with interrupts off until all parties have.
    Rendezvous(ObjId),
    /// Be one of the tasks of an address space from here on.
    Join(ObjId),
    /// Interrupt all other CPUs that run tasks of the caller's address space, and spin until each has flushed its
    /// translations.
    Shootdown,
    /// Start a new task: copy what it is to have, and let it go.
    Spawn(Box<TaskSpec>),
    /// The same of a task whose computing has done the copying: recorded runs reach to the end of it.
    Spawned(Box<TaskSpec>),
    /// Execute a program (`execve`): the caller may be moved to another CPU.
    Exec,
    /// Restrict the caller to these CPUs (`None`: all).
    SetAffinity(Option<FixedBitSet>),
    /// Change the caller's class and priority.
    SetScheduler(Sched),
    /// Move the caller to another group (`cgroup.procs`).
    SetGroup(GroupId),
    /// End the task: unmap what it had, and go.
    Exit,
    /// The same of a task whose computing has unmapped what it had: recorded runs reach to the end of their exit.
    Exited,
}

impl Op {
    /// [`Op::KernelLock`] of a section whose data is at hand: `lock` is held for `hold` ns.
    pub fn kernel_lock(lock: ObjId, hold: Nanos) -> Op {
        Op::KernelLock { lock, hold, lines: 0 }
    }
}

/// What a program sees when it is asked for its next step.
pub struct Cx<'a> {
    /// Virtual time.
    pub now: Time,
    /// The task.
    pub task: TaskId,
    /// The CPU it is on.
    pub cpu: CpuId,
    /// Random numbers, one stream per task, from the run's seed.
    pub rng: &'a mut Pcg64Mcg,
    /// Where to report samples.
    pub metrics: &'a mut dyn Metrics,
}

/// Samples and counts that programs report; they become the result's `metrics` table.
pub trait Metrics {
    /// Add `n` to the counter `name`, whose reporting unit is `unit` (messages, transactions...).
    fn count(&mut self, name: &'static str, n: u64);
    /// Record one latency sample in ns.
    fn latency(&mut self, name: &'static str, ns: Nanos);
}

/// A task's code.
pub trait Program: Send {
    /// The next step. Called once at the start and again each time a step has completed.
    fn next(&mut self, cx: &mut Cx<'_>) -> Op;
    /// Working set in KiB: what a migration must refill from farther away (0: nothing worth counting).
    fn working_set_kib(&self) -> u32 {
        0
    }
}

/// A task to be.
pub struct TaskSpec {
    /// `comm` in traces; at most 15 bytes are shown there.
    pub name: String,
    /// Its code.
    pub program: Box<dyn Program>,
    /// Class and priority (`None`: its parent's; of those that exist at the start, an ordinary task's).
    pub sched: Option<Sched>,
    /// Its group (`None`: its parent's; of those that exist at the start, the root).
    pub group: Option<GroupId>,
    /// Allowed CPUs (`None`: its parent's; of those that exist at the start, all).
    pub affinity: Option<FixedBitSet>,
    /// The task does not keep the run alive (a daemon); the run ends when all others have exited.
    pub background: bool,
}

impl TaskSpec {
    /// An ordinary task with nice 0 and no restrictions.
    pub fn new(name: impl Into<String>, program: impl Program + 'static) -> Self {
        TaskSpec {
            name: name.into(),
            program: Box::new(program),
            sched: None,
            group: None,
            affinity: None,
            background: false,
        }
    }
}

/// Everything that runs.
#[derive(Default)]
pub struct Workload {
    /// Kernel objects, by [`ObjId`].
    pub objects: Vec<Object>,
    /// Groups of tasks.
    pub groups: Groups,
    /// Tasks that exist at time 0, all started on CPU 0's behalf in this order.
    pub tasks: Vec<TaskSpec>,
    /// Makes the tasks whose code has a stack. They start after the others.
    pub threads: Option<Threads>,
    /// End of the run even if tasks live, in ns (`None`: when the last non-background task exits).
    pub horizon: Option<Time>,
}

impl Workload {
    /// Add an object and return its id.
    pub fn object(&mut self, name: impl Into<String>, kind: ObjectKind) -> ObjId {
        self.objects.push(Object { name: name.into(), kind });
        ObjId(self.objects.len() as u32 - 1)
    }
    /// Add a task.
    pub fn task(&mut self, task: TaskSpec) {
        self.tasks.push(task);
    }
}
