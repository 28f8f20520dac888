//! The contract between an algorithm and the world it runs in.
//!
//! A lock or a scheduler mechanism is written once, generic over [`Platform`] (what any shared-memory algorithm
//! needs) or [`SchedPlatform`] (what a scheduler needs of a CPU besides). Four worlds implement the first:
//! [`native::Native`] (OS threads and futexes), the simulator (`contend-sim`), and loom and shuttle
//! (`contend-check`). Nothing here is chosen by `cfg`: all worlds live in one process.
//!
//! Rules that every algorithm keeps:
//!
//! * shared words are touched through the platform only, with the weakest ordering that is right; the simulator is
//!   sequentially consistent and ignores it, loom checks it;
//! * [`Platform::wait_until`] is the only way to spin; there is no other loop around a load;
//! * relaxed accesses may take effect a little early or late (in the simulator by up to a microsecond when the line is
//!   already there); whatever others must see in order uses acquire, release or a read-modify-write;
//! * a closure given to [`Platform::read`] or [`Platform::write`] calls no platform operation: no borrow is ever
//!   held across a point where another CPU may run;
//! * private work is reported with [`Platform::charge`]; it costs virtual time in the simulator and nothing elsewhere.
//!
//! The contract itself needs no operating system: without the feature `std` (on by default) the crate is `no_std`, and
//! [`bare`] is the one world it brings.

#![cfg_attr(not(feature = "std"), no_std)]
#![cfg_attr(docsrs, feature(doc_cfg))]

pub mod account;
pub mod bare;
pub mod lock_event;
#[cfg(feature = "std")]
pub mod native;
mod note;
pub mod slices;
pub mod ticks;

use core::fmt;
pub use core::sync::atomic::Ordering;

pub use account::{Account, Work};
pub use lock_event::LockEvent;
pub use note::Note;
pub use slices::Parting;

/// A point in time, in nanoseconds since the start of the run.
pub type Time = u64;
/// A length of time, in nanoseconds.
pub type Nanos = u64;
/// "No such time": later than every event.
pub const NEVER: Time = u64::MAX;

/// A logical CPU (hardware thread), numbered from 0. At most [`CpuId::MAX_CPUS`] exist.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct CpuId(pub u16);

impl CpuId {
    /// The largest machine that can be described.
    pub const MAX_CPUS: usize = 4096;
    /// The CPU's number as an index.
    #[inline]
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Debug for CpuId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cpu{}", self.0)
    }
}

impl fmt::Display for CpuId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// A task (thread) of a simulated or native kernel; an index into its task table, reused after exit.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaskId(pub u32);

impl TaskId {
    /// The task's number as an index.
    #[inline]
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Debug for TaskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "task{}", self.0)
    }
}

/// Placement: words and cells created with the same `Line` share one cache line in the simulator. In the other
/// worlds placement is by type ([`Padded`]) and this is only a number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Line(pub u32);

/// Aligned to two 64-byte lines, so that adjacent-line prefetch shares nothing either.
#[repr(align(128))]
#[derive(Debug, Default)]
pub struct Padded<T>(pub T);

impl<T> core::ops::Deref for Padded<T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        &self.0
    }
}

/// Where a CPU stands with a spinlock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SpinlockPhase {
    /// It found the lock taken, and begins to wait.
    Wait,
    /// It has the lock: after [`SpinlockPhase::Wait`], or at once.
    Held,
    /// It has it still, and is about to release it.
    Released,
}

/// What a shared-memory algorithm may do. A value of the type is one CPU's handle on its world.
pub trait Platform {
    /// A shared 64-bit word.
    type Word;
    /// Plain data that some protocol (usually a lock) guards.
    type Cell<T>;

    /// [`Platform::cpu`] tells CPUs apart that run at the same time. What belongs to a CPU (queue nodes and their counts) is
    /// guarded by that: pools of it are not compiled for a world where this is false.
    const NUMBERED: bool = true;

    /// A fresh cache line to place words and cells on.
    fn line(&self) -> Line;
    /// A word on `line`, holding `init`.
    fn word(&self, line: Line, init: u64) -> Self::Word;
    /// Guarded data on `line`.
    fn cell<T>(&self, line: Line, init: T) -> Self::Cell<T>;

    /// The CPU that executes the caller: another one for each that runs at the same time, but if not [`Platform::NUMBERED`].
    fn cpu(&self) -> CpuId;
    /// The clock, in ns since the start of the run; monotonic on one CPU.
    fn now(&self) -> Time;

    /// Atomic load.
    fn load(&self, w: &Self::Word, order: Ordering) -> u64;
    /// Loads of words whose addresses do not depend on one another (a scan over run queues), so that a CPU overlaps
    /// their misses. In order; Acquire.
    #[inline]
    fn load_many<const N: usize>(&self, words: [&Self::Word; N]) -> [u64; N] {
        words.map(|w| self.load(w, Ordering::Acquire))
    }
    /// Relaxed loads, in order, of words on lines that the caller has just loaded others of.
    #[inline]
    fn load_more<const N: usize>(&self, words: [&Self::Word; N]) -> [u64; N] {
        words.map(|w| self.load(w, Ordering::Relaxed))
    }
    /// Atomic store.
    fn store(&self, w: &Self::Word, value: u64, order: Ordering);
    /// Relaxed stores to words of one line.
    #[inline]
    fn store_many<const N: usize>(&self, words: [&Self::Word; N], values: [u64; N]) {
        core::iter::zip(words, values).for_each(|(w, v)| self.store(w, v, Ordering::Relaxed));
    }
    /// Atomic exchange; returns the old value.
    fn swap(&self, w: &Self::Word, value: u64, order: Ordering) -> u64;
    /// Atomic compare-and-exchange; `Err` carries the value found.
    fn compare_exchange(
        &self,
        w: &Self::Word,
        current: u64,
        new: u64,
        success: Ordering,
        failure: Ordering,
    ) -> Result<u64, u64>;
    /// Atomic addition (wrapping); returns the old value.
    fn fetch_add(&self, w: &Self::Word, n: u64, order: Ordering) -> u64;
    /// Atomic or; returns the old value.
    fn fetch_or(&self, w: &Self::Word, bits: u64, order: Ordering) -> u64;
    /// Atomic and; returns the old value.
    fn fetch_and(&self, w: &Self::Word, bits: u64, order: Ordering) -> u64;
    /// Memory fence.
    fn fence(&self, order: Ordering);
    /// Order what this CPU did before with what it does from here on, as seen by a CPU that passes a
    /// [`Platform::heavy_fence`]: of two CPUs, one of which writes A, passes this and reads B, while the other writes B, passes
    /// the heavy one and reads A, at least one sees the other's write. For paths that are taken often, where the other side's is
    /// taken rarely. The pair is two sequentially consistent fences where a world has nothing better.
    #[inline]
    #[track_caller]
    fn light_fence(&self) {
        self.fence(Ordering::SeqCst);
    }
    /// The other half of [`Platform::light_fence`]. Two heavy ones are as good as one of each, two light ones are nothing.
    ///
    /// False: the world has refused it, and other CPUs may have run meanwhile. The caller's writes may then be missed by one who
    /// passes a light one: it must not rely on being told, and looks for itself.
    #[inline]
    #[track_caller]
    #[must_use]
    fn heavy_fence(&self) -> bool {
        self.fence(Ordering::SeqCst);
        true
    }

    /// Spin until `done` accepts the words' values (loaded with Acquire), or until `budget` ns have been spent
    /// (`None`: for ever). Returns the accepted values, or `None` when the budget ran out; under the checkers the
    /// expiry of a budget is a nondeterministic branch.
    fn wait_until<const N: usize>(
        &self,
        words: [&Self::Word; N],
        budget: Option<Nanos>,
        done: impl FnMut([u64; N]) -> bool,
    ) -> Option<[u64; N]>;

    /// Give the CPU up while `w` holds `expected` (compared on the low 32 bits), until a [`Platform::kick`] of the
    /// same word. May return for no reason: callers loop.
    fn halt(&self, w: &Self::Word, expected: u64);
    /// Wake whoever is halted on `w`. The caller changed `w` before; a kick that precedes the halt is not lost,
    /// because the halter compares the value.
    fn kick(&self, w: &Self::Word, target: CpuId);
    /// Is `cpu` known not to be running: a vCPU that its hypervisor took off its CPU (`vcpu_is_preempted`)? A hint that
    /// may be out of date at once. False where the world has no such signal.
    #[inline]
    fn preempted(&self, cpu: CpuId) -> bool {
        let _ = cpu;
        false
    }
    /// The caller waits for a lock: should it ask [`Platform::parting`] when it lets go? Asked once a wait; a world that
    /// needs to look at its clocks only now and then says no in between.
    #[inline]
    fn parting_due(&self) -> bool {
        true
    }
    /// The caller holds a lock for which it had to wait, and is about to let go: what should it do then, so that it does not lose its CPU with the
    /// lock held? If it is to wait, whoever takes the lock next should ask, too.
    #[inline]
    fn parting(&self) -> Parting {
        Parting::YieldIfOver
    }
    /// The caller has let go of a contended lock: if it must lose its CPU soon, now is a good moment. Do what [`Platform::parting`] said.
    /// (It holds nothing else as far as that lock knows: it may hold an outer one.)
    #[inline]
    fn part(&self, how: Parting) {
        let _ = how;
    }
    /// The caller waits, and spinning has been in vain, for the `turn`-th time in this wait (from 0): let others run for a
    /// while ([`slices::Relinquish`]). False: it has not been done, since it cannot be, would cost more than it helps, or has been done often enough; wait in another way.
    #[inline]
    fn relinquish(&self, turn: u32) -> bool {
        let _ = turn;
        false
    }
    /// The caller waits in many waits with small budgets, one of which has just ended in vain: let others run, if a wait without budget
    /// that has lasted as long would. `since` is the world's note of when that began, `None` at first.
    #[inline]
    fn spun(&self, since: &mut Option<Time>) {
        let _ = since;
    }
    /// Something that a lock statistic counts happened, `n` times (for latencies: took `n` ns). Costs nothing where
    /// nobody counts.
    #[inline]
    fn lock_event(&self, event: LockEvent, n: u64) {
        let _ = (event, n);
    }
    /// The clock for latencies among the lock events: [`Platform::now`] where somebody counts, always 0 elsewhere.
    #[inline]
    fn lock_clock(&self) -> Time {
        0
    }
    /// The calling CPU and a kernel's spinlock, by its number there: reported by kernels, not by the locks themselves. A
    /// world in which CPUs can be taken away so knows which lock one held or waited for. Nothing happens elsewhere.
    #[inline]
    fn spinlock(&self, lock: u32, phase: SpinlockPhase) {
        let _ = (lock, phase);
    }
    /// The calling CPU has got a kernel's spinlock, by its number there, for which it had to wait since `since`: for trace
    /// hooks. Costs nothing when no trace is on.
    #[inline]
    fn lock_waited(&self, lock: u32, since: Time) {
        let _ = (lock, since);
    }
    /// Something that a checker wants to know. Nothing happens elsewhere.
    #[inline]
    fn note(&self, note: Note) {
        let _ = note;
    }

    /// Look at guarded data.
    ///
    /// # Safety
    /// The protocol that guards the cell excludes writers for the duration of the call, and `f` calls no platform
    /// operation.
    unsafe fn read<T, R>(&self, c: &Self::Cell<T>, f: impl FnOnce(&T) -> R) -> R;
    /// Change guarded data.
    ///
    /// # Safety
    /// The protocol that guards the cell excludes every other access for the duration of the call, and `f` calls no
    /// platform operation.
    unsafe fn write<T, R>(&self, c: &Self::Cell<T>, f: impl FnOnce(&mut T) -> R) -> R;

    /// Change guarded data again, in the critical section in which [`Platform::write`] has already fetched it: its line
    /// cannot have gone meanwhile.
    ///
    /// # Safety
    /// As for [`Platform::write`].
    #[inline]
    unsafe fn rewrite<T, R>(&self, c: &Self::Cell<T>, f: impl FnOnce(&mut T) -> R) -> R {
        // SAFETY: passed on from the caller.
        unsafe { self.write(c, f) }
    }
    /// Change two pieces of guarded data at once.
    ///
    /// # Safety
    /// As for [`Platform::write`], for both; they are different cells.
    #[inline]
    unsafe fn write2<A, B, R>(&self, a: &Self::Cell<A>, b: &Self::Cell<B>, f: impl FnOnce(&mut A, &mut B) -> R) -> R {
        // SAFETY: passed on from the caller; nesting holds no platform operation inside `f`.
        unsafe { self.write(a, |a| self.write(b, |b| f(a, b))) }
    }

    /// Report private work: `n` units of `work`. Costs nothing outside the simulator.
    #[inline]
    fn charge(&self, work: Work, n: u64) {
        let _ = (work, n);
    }
    /// Book the CPU's time to `account` from now on; returns the account before.
    #[inline]
    fn enter(&self, account: Account) -> Account {
        account
    }
}

/// Interrupts one CPU sends to another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ipi {
    /// Look at your need-resched flag; in 2010's `rowand-queue` also: drain your wake list.
    Reschedule,
    /// Drain your wake list (call-function queue).
    CallFunction,
    /// Balance on behalf of the idle CPUs (nohz kick).
    NohzBalance,
    /// Push your running task away (active balance; the stopper thread's job).
    ActiveBalance,
}

impl Ipi {
    /// Every kind, in the order of [`Ipi::bit`].
    pub const ALL: [Ipi; 4] = [Ipi::Reschedule, Ipi::CallFunction, Ipi::NohzBalance, Ipi::ActiveBalance];
    /// The kind's bit in a pending mask.
    #[inline]
    pub fn bit(self) -> u64 {
        1 << self as u64
    }
}

/// What an interrupt handler finds to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Interrupts {
    /// Mask of [`Ipi::bit`].
    pub ipis: u64,
    /// The periodic tick came due (it is re-armed).
    pub tick: bool,
    /// Sleep timers have expired: call [`SchedPlatform::take_timer`] until it returns `None`.
    pub timers: bool,
    /// The one-shot timer ([`SchedPlatform::program_timer`]) came due; it is off now.
    pub deadline: bool,
}

/// What became of a stretch of user execution.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Trap {
    /// An interrupt is pending; the task has not finished what it was doing.
    Interrupt,
    /// The task entered the kernel with a request, which the world keeps for [`SchedPlatform::run_user`]'s caller.
    Syscall,
}

/// A scheduling event, for trace hooks. Costs nothing when no trace is on.
#[derive(Clone, Copy, Debug)]
pub enum SchedEvent {
    /// `prev` left the CPU (`None`: idle), `next` runs.
    Switch {
        /// The task that left.
        prev: Option<TaskId>,
        /// The state it left in: 0 runnable (preempted), 1 sleeping, 2 disk sleep, 16 dead.
        prev_state: u64,
        /// The task that runs now.
        next: Option<TaskId>,
    },
    /// A waker has begun to wake the task.
    Waking {
        /// The task.
        task: TaskId,
        /// The CPU it last ran on.
        target: CpuId,
    },
    /// The task is on a run queue.
    Wakeup {
        /// The task.
        task: TaskId,
        /// The CPU of that run queue.
        target: CpuId,
        /// The task is new.
        new: bool,
    },
    /// The CPU begins to serve interrupts, or has served them: what happens in between is not the current task's doing.
    Interrupt {
        /// It begins.
        begin: bool,
    },
    /// The task moves between CPUs.
    Migrate {
        /// The task.
        task: TaskId,
        /// From.
        from: CpuId,
        /// To.
        to: CpuId,
    },
}

/// What a scheduler needs of a CPU besides shared memory.
///
/// Kernel code runs with interrupts off on a stack of its CPU; interrupts are taken where user code runs
/// ([`SchedPlatform::run_user`]), in [`SchedPlatform::idle`] and wherever the kernel asks
/// [`SchedPlatform::interrupt_pending`].
pub trait SchedPlatform: Platform {
    /// Number of CPUs.
    fn nr_cpus(&self) -> usize;
    /// Send an interrupt. Kinds coalesce while pending.
    fn send_ipi(&self, target: CpuId, ipi: Ipi);
    /// Enter the interrupt handler: everything that is pending now, which is thereby acknowledged.
    fn take_interrupts(&self) -> Interrupts;
    /// Leave it: what it found has been served.
    fn leave_interrupts(&self) {}
    /// This CPU was idle and is about to schedule. Returns how much of what that takes, in ns, counts as CPU time of the task that it goes on to.
    fn leave_idle(&self) -> Nanos {
        0
    }
    /// Report `task`, from [`SchedPlatform::take_timer`], once `at` has come on this CPU's clock. A world whose scheduler keeps its own
    /// timers need not have it.
    fn arm_timer(&self, at: Time, task: TaskId) {
        unreachable!("this world has no timers of tasks: {task:?} at {at}");
    }
    /// The next task whose sleep timer on this CPU has expired.
    fn take_timer(&self) -> Option<TaskId>;
    /// Stop (true) or restart the periodic tick of this CPU: it stops on idle CPUs (NOHZ).
    fn stop_tick(&self, stopped: bool);
    /// Set the CPU's one-shot timer to `at` ([`NEVER`]: off). A scheduler either has sleep timers of tasks and a tick, or keeps
    /// its own timers and sets this one; a world that hosts no scheduler of the second kind need not have it.
    fn program_timer(&self, at: Time) {
        unreachable!("this world has no one-shot timer to set to {at}");
    }
    /// Is an interrupt pending? Kernel code that would run on with interrupts off asks at good points.
    fn interrupt_pending(&self) -> bool;
    /// Run the current task's user code until it traps.
    fn run_user(&self, task: TaskId) -> Trap;
    /// Wait for an interrupt, or for `poll` to become non-zero (a CPU that polls its need-resched flag while idle).
    fn idle(&self, poll: &Self::Word);
    /// Does an idle CPU watch its need-resched word, so that a remote store wakes it without an interrupt?
    fn idle_polls(&self) -> bool;
    /// The machine switches to another task (`None`: idle) here: the cost of the switch itself and of cold caches.
    fn switch_to(&self, prev: Option<TaskId>, next: Option<TaskId>);
    /// A wake-up by the calling CPU was placed on `cpu`; the task ran on `prev` before. For statistics.
    #[inline]
    fn wakeup_placed(&self, prev: CpuId, cpu: CpuId) {
        let _ = (prev, cpu);
    }
    /// An idle search ended after probing this many run queues. For statistics.
    #[inline]
    fn idle_search(&self, probes: u64, found: bool) {
        let _ = (probes, found);
    }
    /// A woken task got its CPU this long after it was put on the run queue. For statistics.
    #[inline]
    fn wakeup_latency(&self, ns: Nanos) {
        let _ = ns;
    }
    /// `cpu`'s run queue has `n` runnable tasks from now on, the running one included. For statistics.
    #[inline]
    fn queue_length(&self, cpu: CpuId, n: u32) {
        let _ = (cpu, n);
    }
    /// A trace hook.
    #[inline]
    fn trace(&self, event: SchedEvent) {
        let _ = event;
    }
}
