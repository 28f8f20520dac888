//! Virtual time: which CPU runs next, on which stack, and what it is doing.
//!
//! Invariants:
//!
//! * One CPU runs at a time. While CPU c runs, `limit` is at most the earliest event of anybody else; c may go on in place while its local time (`now` + `debt`) is below it.
//! * A suspended CPU is in one [`Mode`] and its key is the time at which that mode ends or can be interrupted.
//! * A CPU outside the kernel needs no stack and has none: see [`stacks`].
//! * No borrow of engine state is held across a suspension: every access is a short scope inside one method.
//! * Every ns of every CPU is booked once: `since` is the time up to which the CPU's time has been booked.

mod costs;
mod execution;
mod idle_states;
mod interrupts;
mod ledger;
mod memory;
mod recent;
mod stacks;
mod timeline;
mod user;

use crate::counters::LockEvents;
use crate::lines::Lines;
use crate::queue::{NO_KEY, Queue, key, key_within};
use contend_machine::{Machine, Topology};
use contend_platform::slices::Rounds;
use contend_platform::ticks::Ticks;
use contend_platform::{Account, CpuId, Ipi, NEVER, Nanos, TaskId, Time, Work};
use costs::Costs;
pub(crate) use interrupts::{first_tick, next_tick};
pub(crate) use recent::{Recent, take_back};
pub use stacks::Stacks;
use stacks::{NO_STACK, StackYielder};
use std::cell::{Cell, RefCell};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::rc::Rc;
pub use timeline::{Interval, Timeline};
use timeline::{Notes, QueueLength, intervals_max};
pub(crate) use user::Code;

/// Speed is in 1/1024 of a lone thread's.
pub(crate) const FULL_SPEED: u64 = 1024;
/// Private work may be owed for at most this long before it is settled, in ns: an interrupt is never later by more.
const DEBT_MAX: Nanos = 1000;
/// A CPU runs on in place for at most this long in virtual time, so that the caller of [`Engine::run`] can look around.
const IN_PLACE_MAX: Nanos = 10_000_000;

/// What a suspended CPU is doing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// Not suspended.
    Running,
    /// In the kernel, interrupts off, until a known time.
    Kernel,
    /// Spinning on lines, interrupts off.
    Waiting,
    /// User code, interruptible.
    User,
    /// User code that spins on lines, interruptible.
    Spinning,
    /// Nothing to do, interruptible.
    Idle,
}

/// What interrupts a CPU for a sleeping task's sake; ordered by time, then as armed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Due {
    at: Time,
    seq: u64,
    task: TaskId,
    /// A device's interrupt, not the CPU's timer.
    device: bool,
}

/// State of one CPU. What nearly every visit needs comes first, so that it lies in few of the host's cache lines.
#[repr(C, align(64))]
struct Cpu {
    /// Time up to which this CPU's time is booked.
    since: Cell<Time>,
    /// Earliest of the sources of interrupts below and the first timer.
    irq_at: Cell<Time>,
    /// Speed now, in 1/1024.
    speed: Cell<u64>,
    /// Work left of the user stretch in flight, in 1/1024 ns at full speed, as of `user_since`.
    user_left: Cell<u64>,
    user_since: Cell<Time>,
    /// The stretch in flight ends then even if work is left: a guest's timer.
    user_deadline: Cell<Time>,
    yielder: Cell<*const StackYielder>,
    mode: Cell<Mode>,
    account: Cell<Account>,
    /// The account to go back to when it returns to the kernel from outside.
    kernel_account: Cell<Account>,
    /// By the kind of its core and the busy threads there, itself included: the index of its speed.
    speed_class: Cell<u16>,
    /// The stack that it is on, or [`NO_STACK`].
    stack: Cell<u16>,
    tick_stopped: Cell<bool>,
    ledger: [Cell<Nanos>; Account::COUNT],
    /// The ledger over time.
    notes: Notes<{ Account::COUNT }>,
    /// Arrival time of each kind of pending IPI (NEVER: none).
    ipi_at: [Cell<Time>; Ipi::ALL.len()],
    tick_at: Cell<Time>,
    /// The one-shot timer.
    deadline_at: Cell<Time>,
    timers: RefCell<BinaryHeap<Reverse<Due>>>,
    /// It is in an interrupt, at whose end its timer is to be written: one expired, or a new one is the first.
    serves_interrupt: Cell<bool>,
    timer_expired: Cell<bool>,
    /// An address near the top of what is in use of its stack while it is suspended on it; never dereferenced.
    stack_top: Cell<*const u8>,
    /// See [`Engine::hint`]: addresses, never dereferenced, and sizes.
    hints: [Cell<(*const u8, u32)>; 2],
    /// Stretches booked past the event it gave way at, the latest first; see [`recent`].
    ahead: RefCell<Vec<(Time, u8)>>,
    /// What it waits for, for the deadlock report: a lock's number.
    waits_for: Cell<u64>,
    governor: idle_states::Governor,
}

/// Why the event loop came back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stop {
    /// Somebody asked for it with [`Engine::stop`].
    Asked,
    /// The horizon is reached.
    Horizon,
    /// No CPU has an event.
    Nothing,
    /// The step budget is used up: call again (progress, Ctrl-C).
    Budget,
}

/// Counters of the engine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EngineCounts {
    /// Suspensions: a CPU gave way to an earlier event.
    pub events: u64,
    /// IPIs sent (not coalesced with a pending one of the same kind).
    pub ipis: u64,
    /// Interrupt handler entries.
    pub interrupts: u64,
}

/// Statistics of the scheduler, without simulated cost.
#[derive(Clone, Debug)]
pub struct Observed {
    /// From being put on a run queue by a wake-up to running, in ns.
    pub wakeup_latency: hdrhistogram::Histogram<u64>,
    /// Wake-ups by distance from the waker to the chosen CPU.
    pub wakeups_from_waker: Vec<u64>,
    /// Wake-ups by distance from the CPU the task ran on before to the chosen one.
    pub wakeups_from_prev: Vec<u64>,
    /// Searches for an idle CPU beyond the quick checks.
    pub idle_searches: u64,
    /// Of those, successful.
    pub idle_searches_found: u64,
    /// Run queues looked at in them.
    pub probes: u64,
}

impl Observed {
    fn new(distances: usize) -> Self {
        Observed {
            wakeup_latency: crate::os::histogram(),
            wakeups_from_waker: vec![0; distances],
            wakeups_from_prev: vec![0; distances],
            idle_searches: 0,
            idle_searches_found: 0,
            probes: 0,
        }
    }
}

/// The simulated machine.
pub struct Engine {
    /// The machine file it was made from.
    pub machine: Machine,
    costs: Costs,
    now: Cell<Time>,
    debt: Cell<Nanos>,
    /// The running CPU may go on in place below this key: the earliest of the others, the horizon, [`IN_PLACE_MAX`].
    limit: Cell<u64>,
    current: Cell<CpuId>,
    queue: Queue,
    lines: Lines,
    cpus: Vec<Cpu>,
    /// Of the running CPU's ledger.
    recent: Recent,
    queue_lengths: Vec<QueueLength>,
    busy_in_core: Vec<Cell<u8>>,
    seq: Cell<u64>,
    stopping: Cell<bool>,
    /// Idle CPUs watch their need-resched flag (mwait or polling idle), so that a remote store wakes them.
    pub idle_polls: Cell<bool>,
    /// CPUs that poll a line look again near ones first: see [`Engine::changed`].
    pub near_first: Cell<bool>,
    events: Cell<u64>,
    ipis: Cell<u64>,
    interrupts: Cell<u64>,
    /// Times a task was given a CPU that ran something else before.
    pub dispatches: Cell<u64>,
    /// Hash over all dispatches.
    pub trace_hash: Cell<u64>,
    /// Statistics of the scheduler, as its platform reports them.
    pub observed: RefCell<Observed>,
    /// Per task: work left in the current operation, in 1/1024 ns.
    task_work: RefCell<Vec<TaskWork>>,
    /// Code of the threads that do not run at the moment, by task.
    codes: RefCell<Vec<Option<Code>>>,
    /// Of threads.
    pub(crate) lock_events: LockEvents,
    /// Slices of the threads, which are one process.
    rounds: Rounds,
    /// What threads have learned of their CPUs' ticks.
    ticks: Ticks,
    /// The CPU whose data were fetched last.
    fetched: Cell<CpuId>,
    /// What [`Engine::run`] was asked for: how far, and how many events are left.
    horizon: Cell<Time>,
    budget: Cell<u64>,
    /// Events below this key are due: the horizon; 0 once somebody has asked to stop.
    due_below: Cell<u64>,
    /// The run has ended: nobody suspends any more.
    over: Cell<bool>,
    /// Who waits for which spinlock of the kernel, by its number, and since when, by CPU.
    lock_waits: Vec<Cell<LockWait>>,
    /// Books that did not add up at the end: errors of this program.
    pub(crate) doubts: RefCell<Vec<String>>,
}

/// A wait under way for a kernel's spinlock: its number, and since when.
pub(crate) type LockWait = Option<(u32, Time)>;

/// The user-side state of a task that the engine needs.
#[derive(Clone, Copy, Debug)]
struct TaskWork {
    left: u64,
    account: Account,
    /// Refill of cold caches that comes first, in 1/1024 ns; plus [`STACKFUL`].
    first: u64,
    working_set_kib: u32,
    last_cpu: u16,
}

/// Flag in [`TaskWork::first`]: after all that, code with a stack of its own goes on. With the refill, so that tasks without
/// either are asked once.
const STACKFUL: u64 = 1 << 63;

impl TaskWork {
    fn new(working_set_kib: u32) -> Self {
        TaskWork { left: 0, account: Account::User, first: 0, working_set_kib, last_cpu: u16::MAX }
    }
}

impl Engine {
    /// A machine at time 0 with all CPUs idle and no lines.
    pub fn new(machine: Machine) -> Rc<Self> {
        let topo = &machine.topology;
        let n = topo.nr_cpus();
        let (costs, line_costs) = Costs::of(&machine);
        let cpus = (0..n)
            .map(|_| Cpu {
                mode: Cell::new(Mode::Running),
                account: Cell::new(Account::Switch),
                since: Cell::new(0),
                ledger: std::array::from_fn(|_| Cell::new(0)),
                ahead: RefCell::default(),
                notes: Notes::new(intervals_max(n)),
                speed: Cell::new(FULL_SPEED),
                speed_class: Cell::new(1),
                user_left: Cell::new(0),
                user_since: Cell::new(0),
                user_deadline: Cell::new(NEVER),
                ipi_at: std::array::from_fn(|_| Cell::new(NEVER)),
                tick_at: Cell::new(NEVER),
                tick_stopped: Cell::new(true),
                deadline_at: Cell::new(NEVER),
                irq_at: Cell::new(NEVER),
                timers: RefCell::default(),
                serves_interrupt: Cell::new(false),
                timer_expired: Cell::new(false),
                waits_for: Cell::new(0),
                governor: idle_states::Governor::default(),
                kernel_account: Cell::new(Account::Switch),
                stack: Cell::new(NO_STACK),
                yielder: Cell::new(std::ptr::null()),
                stack_top: Cell::new(std::ptr::null()),
                hints: std::array::from_fn(|_| Cell::new((std::ptr::null(), 0))),
            })
            .collect();
        let busy = (0..topo.nr_cores()).map(|k| Cell::new(topo.core_cpus(k).len() as u8)).collect();
        let engine = Engine {
            queue: Queue::new(n),
            lines: Lines::new(n, line_costs),
            costs,
            now: Cell::new(0),
            debt: Cell::new(0),
            limit: Cell::new(NO_KEY),
            current: Cell::new(CpuId(0)),
            cpus,
            recent: Recent::new(),
            queue_lengths: (0..n).map(|_| QueueLength::new(intervals_max(n))).collect(),
            busy_in_core: busy,
            seq: Cell::new(0),
            stopping: Cell::new(false),
            idle_polls: Cell::new(false),
            near_first: Cell::new(false),
            events: Cell::new(0),
            ipis: Cell::new(0),
            interrupts: Cell::new(0),
            task_work: RefCell::default(),
            codes: RefCell::default(),
            lock_events: LockEvents::default(),
            rounds: Rounds::new(),
            ticks: Ticks::new(),
            fetched: Cell::new(CpuId(u16::MAX)),
            horizon: Cell::new(0),
            budget: Cell::new(0),
            due_below: Cell::new(0),
            over: Cell::new(false),
            lock_waits: vec![Cell::new(None); n],
            doubts: RefCell::default(),
            dispatches: Cell::new(0),
            trace_hash: Cell::new(0),
            observed: RefCell::new(Observed::new(machine.topology.nr_distances())),
            machine,
        };
        // CPUs start busy (in their boot path) and become idle one by one.
        for cpu in 0..n {
            engine.set_speed(CpuId(cpu as u16));
        }
        Rc::new(engine)
    }

    /// End the run: [`Engine::run`] returns when the running CPU next suspends.
    pub fn stop(&self) {
        self.stopping.set(true);
        self.due_below.set(0);
        // Force the running CPU to suspend at its next settling point.
        self.limit.set(0);
    }

    /// The topology.
    pub fn topology(&self) -> &Topology {
        &self.machine.topology
    }

    /// The running CPU begins to wait for a spinlock of the kernel, or does not wait any more.
    #[inline]
    pub(crate) fn waits_for_lock(&self, wait: LockWait) {
        self.lock_waits[self.current.get().index()].set(wait);
    }
    /// Who waits for one: the CPU, which lock, and since when.
    pub(crate) fn lock_waits(&self) -> impl Iterator<Item = (CpuId, (u32, Time))> {
        let waits = self.lock_waits.iter().enumerate();
        waits.filter_map(|(cpu, wait)| Some((CpuId(cpu as u16), wait.get()?)))
    }

    /// Time of the running CPU, its unsettled private work included.
    #[inline]
    pub fn now(&self) -> Time {
        self.now.get() + self.debt.get()
    }

    /// The CPU that runs.
    #[inline]
    pub fn current(&self) -> CpuId {
        self.current.get()
    }

    /// Time of the last event; for the caller of [`Engine::run`].
    pub fn settled_now(&self) -> Time {
        self.now.get()
    }

    /// CPU time that tasks have had so far in user mode and system calls, over all CPUs, in ns.
    pub fn task_time(&self) -> Nanos {
        let accounts = [
            Account::User,
            Account::Syscall,
            Account::ColdCache,
            Account::UserSpin,
            Account::GuestUser,
            Account::GuestKernel,
        ];
        let now = self.now.get();
        let of = |c: &Cpu| {
            let booked = accounts.iter().map(|a| c.ledger[*a as usize].get()).sum::<Nanos>();
            let running = accounts.contains(&c.account.get());
            booked + if running { now.saturating_sub(c.since.get()) } else { 0 }
        };
        self.cpus.iter().map(of).sum()
    }

    /// Counters so far.
    pub fn counts(&self) -> EngineCounts {
        EngineCounts { events: self.events.get(), ipis: self.ipis.get(), interrupts: self.interrupts.get() }
    }

    /// Line transfers so far by distance class.
    pub fn transfers(&self) -> Vec<u64> {
        self.lines.transfers()
    }

    #[inline]
    fn cpu(&self, cpu: CpuId) -> &Cpu {
        &self.cpus[cpu.index()]
    }

    // ---- time ------------------------------------------------------------------------------------------------

    /// Advance the running CPU to `time`, in place when nobody has an earlier event.
    #[inline]
    fn advance_to(&self, time: Time) {
        if !self.advances_to(time) {
            self.suspend_until(time);
        }
    }

    /// Advance the running CPU to `time` in place, unless somebody has an earlier event.
    #[inline]
    fn advances_to(&self, time: Time) -> bool {
        // The running CPU stays below `limit`, which is made by `key`; a step is far shorter than what that check leaves.
        let cpu = self.current.get();
        self.debt.set(0);
        let first = key_within(time, cpu) < self.limit.get();
        if first {
            self.now.set(time);
        }
        first
    }

    /// Somebody has an earlier event than the running CPU, which is in the kernel until `time`.
    #[cold]
    #[inline(never)]
    fn suspend_until(&self, time: Time) {
        self.suspend(key(time, self.current.get()), Mode::Kernel);
    }

    /// Pay the debt: after this, everything earlier than the running CPU's time has happened.
    #[inline]
    pub fn settle(&self) {
        self.advance_to(self.now());
    }

    /// Owe `ns` more of private work at reference speed (a slower core and busy SMT siblings make it longer).
    #[inline]
    pub fn owe(&self, ns: Nanos) {
        self.owe_latency(self.at_speed(ns));
    }

    /// What `ns` of work at reference speed take the running CPU.
    #[inline]
    fn at_speed(&self, ns: Nanos) -> Nanos {
        let speed = self.cpu(self.current.get()).speed.get();
        if speed == FULL_SPEED { ns } else { (ns * FULL_SPEED).div_ceil(speed) }
    }

    /// Owe `ns` more of waiting for the hardware: a busy sibling makes it no longer.
    #[inline]
    pub fn owe_latency(&self, ns: Nanos) {
        let debt = self.debt.get() + ns;
        self.debt.set(debt);
        if debt > DEBT_MAX {
            self.settle();
        }
    }

    /// Owe `n` units of `work`.
    #[inline]
    pub fn charge(&self, work: Work, n: u64) {
        if matches!(work, Work::Ns | Work::Policy) {
            return self.owe(n);
        }
        let class = usize::from(self.cpu(self.current.get()).speed_class.get());
        self.owe_latency(self.costs.work[class][work as usize] * n);
    }

    /// Set another CPU's key, and keep `limit` true.
    #[inline]
    fn set_key(&self, cpu: CpuId, key: u64) {
        debug_assert_ne!(cpu, self.current.get());
        self.queue.set(cpu, key);
        // A key that moved to a later time leaves `limit` lower than need be: the running CPU gives way once too often.
        self.limit.set(self.limit.get().min(key));
    }
}
