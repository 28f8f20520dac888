//! Virtual time: which CPU runs next, on which stack, and what it is doing.
//!
//! Invariants:
//!
//! * One CPU runs at a time. While CPU c runs, its key is out of the queue and `limit` is the root, the earliest event
//!   of anybody else; c may go on in place while its local time (`now` + `debt`) is below it.
//! * A suspended CPU is in one [`Mode`] and its key is the time at which that mode ends or can be interrupted.
//! * No borrow of engine state is held across a suspension: every access is a short scope inside one method.
//! * Every ns of every CPU is booked once: `since` is the time up to which the CPU's time has been booked.

use crate::lines::{Cost, LineCosts, Lines, Touch};
use crate::queue::{NO_KEY, Tournament, key, key_cpu, key_time};
use contend_machine::{Machine, Topology};
use contend_platform::{Account, CpuId, Interrupts, Ipi, NEVER, Nanos, TaskId, Time, Work};
use corosensei::stack::DefaultStack;
use corosensei::{Coroutine, CoroutineResult, Yielder};
use std::cell::{Cell, RefCell};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::rc::Rc;

/// Speed is in 1/1024 of a lone thread's.
const FULL_SPEED: u64 = 1024;
/// Private work may be owed for at most this long before it is settled, in ns: an interrupt is never later by more.
const DEBT_MAX: Nanos = 1000;
/// A CPU runs on in place for at most this long in virtual time, so that the caller of [`Engine::run`] can look around.
const IN_PLACE_MAX: Nanos = 10_000_000;
/// Lines whose rights the running CPU remembers.
const RIGHTS: usize = 32;
/// Stack of one CPU in bytes, besides its guard page. Kernel paths use a few KiB; user policies may use more.
const STACK_BYTES: usize = 256 * 1024;

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
    /// Nothing to do, interruptible.
    Idle,
}

/// State of one CPU.
struct Cpu {
    mode: Cell<Mode>,
    account: Cell<Account>,
    /// Time up to which this CPU's time is booked.
    since: Cell<Time>,
    ledger: RefCell<[Nanos; Account::COUNT]>,
    /// Speed now, in 1/1024.
    speed: Cell<u64>,
    /// Busy threads of its core, itself included: the index of its speed.
    busy: Cell<usize>,
    /// Work left of the user stretch in flight, in 1/1024 ns at full speed, as of `user_since`.
    user_left: Cell<u64>,
    user_since: Cell<Time>,
    /// Arrival time of each kind of pending IPI (NEVER: none).
    ipi_at: [Cell<Time>; Ipi::ALL.len()],
    tick_at: Cell<Time>,
    tick_stopped: Cell<bool>,
    /// Earliest of the above and the first timer.
    irq_at: Cell<Time>,
    timers: RefCell<BinaryHeap<Reverse<(Time, u64, TaskId)>>>,
    /// What it waits for, for the deadlock report: a lock's number.
    waits_for: Cell<u64>,
    yielder: Cell<*const Yielder<(), ()>>,
}

/// Resolved costs, in ns.
struct Costs {
    /// Cost of a unit of work, by number of busy threads in the core (index 0 unused).
    work: Vec<[Nanos; Work::COUNT]>,
    hit: Nanos,
    atomic: Nanos,
    ipi_send: Nanos,
    ipi_deliver: Nanos,
    ipi_deliver_remote: Nanos,
    irq: Nanos,
    idle_exit: Nanos,
    context_switch: Nanos,
    /// Refill per KiB of working set by distance class.
    refill: Vec<Nanos>,
    /// Largest part of a working set that counts, by distance class, in KiB.
    refill_max_kib: Vec<u32>,
    /// Speed by number of busy threads in the core (index 0 unused), in 1/1024.
    smt_speed: Vec<u64>,
    tick_period: Nanos,
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
    /// The running CPU may go on in place below this key: the root of the queue, or `cap`.
    limit: Cell<u64>,
    /// Bound on running in place: the horizon, and [`IN_PLACE_MAX`].
    cap: Cell<u64>,
    current: Cell<CpuId>,
    queue: RefCell<Tournament>,
    lines: RefCell<Lines>,
    /// Number of the current resumption of a CPU.
    resumed: Cell<u64>,
    /// Rights on lines seen since then, by line modulo [`RIGHTS`]; see [`Engine::touch`].
    rights: [Cell<u64>; RIGHTS],
    cpus: Vec<Cpu>,
    busy_in_core: Vec<Cell<u8>>,
    seq: Cell<u64>,
    stopping: Cell<bool>,
    /// Idle CPUs watch their need-resched flag (mwait or polling idle), so that a remote store wakes them.
    pub idle_polls: Cell<bool>,
    counts: Cell<EngineCounts>,
    /// Times a task was given a CPU that ran something else before.
    pub dispatches: Cell<u64>,
    /// Hash over all dispatches.
    pub trace_hash: Cell<u64>,
    /// Statistics of the scheduler, as its platform reports them.
    pub observed: RefCell<Observed>,
    /// Per task: work left in the current operation, in 1/1024 ns.
    task_work: RefCell<Vec<TaskWork>>,
}

/// The user-side state of a task that the engine needs.
#[derive(Clone, Copy, Debug)]
struct TaskWork {
    left: u64,
    account: Account,
    /// Refill of cold caches that comes first, in 1/1024 ns.
    refill: u64,
    working_set_kib: u32,
    last_cpu: u16,
}

impl TaskWork {
    fn new(working_set_kib: u32) -> Self {
        TaskWork { left: 0, account: Account::User, refill: 0, working_set_kib, last_cpu: u16::MAX }
    }
}

/// The coroutines of a run; dropped (and unwound) with it.
pub struct Stacks(Vec<Coroutine<(), (), (), DefaultStack>>);

impl Engine {
    /// A machine at time 0 with all CPUs idle and no lines.
    pub fn new(machine: Machine) -> Rc<Self> {
        let topo = &machine.topology;
        let n = topo.nr_cpus();
        let c = &machine.costs;
        let classes = topo.nr_distances();
        let by_class = |core: Nanos, llc: Nanos, node: Nanos, remote: &dyn Fn(usize) -> Nanos| -> Vec<Nanos> {
            (0..classes)
                .map(|d| match d {
                    0 => 0,
                    1 => core,
                    2 => llc,
                    3 => node,
                    d => remote(d - 4),
                })
                .collect()
        };
        let l = &c.lines;
        let transfer = by_class(l.core.value, l.llc.value, l.node.value, &|i| l.remote[i].value);
        let ca = &c.cache;
        let refill =
            by_class(ca.refill_core_per_kib.value, ca.refill_llc_per_kib.value, ca.refill_node_per_kib.value, &|_| {
                ca.refill_remote_per_kib.value
            });
        let refill_max_kib =
            (0..classes).map(|d| if d <= 2 { ca.l2_kib.value as u32 } else { ca.llc_kib.value as u32 }).collect();
        let threads = (0..topo.nr_cores()).map(|k| topo.core_cpus(k).len()).max().unwrap_or(1);
        let mut smt_speed = vec![FULL_SPEED];
        for k in 0..threads {
            smt_speed.push((c.cpu.smt_speed_pct[k].value * FULL_SPEED).div_ceil(100));
        }
        let costs = Costs {
            work: smt_speed
                .iter()
                .map(|speed| c.kernel_ns().map(|ns| (ns * FULL_SPEED).div_ceil((*speed).max(1))))
                .collect(),
            hit: l.hit.value,
            atomic: l.atomic.value,
            ipi_send: c.interrupts.ipi_send.value,
            ipi_deliver: c.interrupts.ipi_deliver.value,
            ipi_deliver_remote: c.interrupts.ipi_deliver_remote.value,
            irq: c.interrupts.irq.value,
            idle_exit: c.interrupts.idle_exit.value,
            context_switch: c.cpu.context_switch.value,
            refill,
            refill_max_kib,
            smt_speed,
            tick_period: 1_000_000_000 / u64::from(machine.hz),
        };
        let line_costs = LineCosts { hit: l.hit.value, atomic: l.atomic.value, transfer, memory: l.node.value };
        let cpus = (0..n)
            .map(|_| Cpu {
                mode: Cell::new(Mode::Running),
                account: Cell::new(Account::Switch),
                since: Cell::new(0),
                ledger: RefCell::new([0; Account::COUNT]),
                speed: Cell::new(FULL_SPEED),
                busy: Cell::new(1),
                user_left: Cell::new(0),
                user_since: Cell::new(0),
                ipi_at: std::array::from_fn(|_| Cell::new(NEVER)),
                tick_at: Cell::new(NEVER),
                tick_stopped: Cell::new(true),
                irq_at: Cell::new(NEVER),
                timers: RefCell::default(),
                waits_for: Cell::new(0),
                yielder: Cell::new(std::ptr::null()),
            })
            .collect();
        let busy = (0..topo.nr_cores()).map(|k| Cell::new(topo.core_cpus(k).len() as u8)).collect();
        let engine = Engine {
            queue: RefCell::new(Tournament::new(n)),
            lines: RefCell::new(Lines::new(n, line_costs)),
            costs,
            now: Cell::new(0),
            debt: Cell::new(0),
            limit: Cell::new(NO_KEY),
            cap: Cell::new(NO_KEY),
            current: Cell::new(CpuId(0)),
            resumed: Cell::new(0),
            rights: std::array::from_fn(|_| Cell::new(u64::MAX)),
            cpus,
            busy_in_core: busy,
            seq: Cell::new(0),
            stopping: Cell::new(false),
            idle_polls: Cell::new(false),
            counts: Cell::default(),
            task_work: RefCell::default(),
            dispatches: Cell::new(0),
            trace_hash: Cell::new(0),
            observed: RefCell::new(Observed::new(classes)),
            machine,
        };
        // CPUs start busy (in their boot path) and become idle one by one.
        for cpu in 0..n {
            engine.set_speed(CpuId(cpu as u16));
        }
        Rc::new(engine)
    }

    /// Give every CPU a stack and the code it runs; nothing runs before [`Engine::run`].
    pub fn boot<F: FnOnce(CpuId) + 'static>(
        self: &Rc<Self>,
        mut code: impl FnMut(CpuId) -> F,
    ) -> std::io::Result<Stacks> {
        let mut stacks = Vec::with_capacity(self.cpus.len());
        for i in 0..self.cpus.len() {
            let cpu = CpuId(i as u16);
            let engine = Rc::clone(self);
            let body = code(cpu);
            let stack = DefaultStack::new(STACK_BYTES)?;
            stacks.push(Coroutine::with_stack(stack, move |yielder: &Yielder<(), ()>, ()| {
                engine.cpus[i].yielder.set(yielder);
                drop(engine);
                body(cpu);
            }));
            self.queue.borrow_mut().set(cpu, key(0, cpu));
            self.cpus[i].mode.set(Mode::Kernel);
        }
        Ok(Stacks(stacks))
    }

    /// Run until `horizon`, until nothing is left, until asked to stop, or for `budget` events.
    pub fn run(&self, stacks: &mut Stacks, horizon: Time, budget: u64) -> Stop {
        let mut left = budget;
        loop {
            let root = self.queue.borrow().root();
            let time = key_time(root);
            if self.stopping.get() {
                return Stop::Asked;
            }
            if time == NEVER {
                return Stop::Nothing;
            }
            if time > horizon {
                self.now.set(horizon);
                return Stop::Horizon;
            }
            if left == 0 {
                return Stop::Budget;
            }
            left -= 1;
            let cpu = key_cpu(root);
            self.now.set(time);
            self.debt.set(0);
            self.current.set(cpu);
            self.resumed.set(self.resumed.get() + 1);
            if self.resumed.get() >> 31 != 0 {
                // The number would no longer fit an entry of `rights`: start again with none.
                self.resumed.set(0);
                self.rights.iter().for_each(|r| r.set(u64::MAX));
            }
            {
                let mut q = self.queue.borrow_mut();
                q.set(cpu, NO_KEY);
                let cap = horizon.saturating_add(1).min(time + IN_PLACE_MAX);
                self.cap.set(key(cap, CpuId(0)));
                self.limit.set(q.root().min(self.cap.get()));
            }
            match stacks.0[cpu.index()].resume(()) {
                CoroutineResult::Yield(()) => {}
                CoroutineResult::Return(()) => {
                    self.cpus[cpu.index()].mode.set(Mode::Kernel);
                }
            }
        }
    }

    /// End the run: [`Engine::run`] returns when the running CPU next suspends.
    pub fn stop(&self) {
        self.stopping.set(true);
        // Force the running CPU to suspend at its next settling point.
        self.limit.set(0);
    }

    /// The topology.
    pub fn topology(&self) -> &Topology {
        &self.machine.topology
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

    /// Does some CPU run user code?
    pub fn user_running(&self) -> bool {
        self.cpus.iter().any(|c| c.mode.get() == Mode::User)
    }

    /// Counters so far.
    pub fn counts(&self) -> EngineCounts {
        self.counts.get()
    }

    /// Line transfers so far by distance class.
    pub fn transfers(&self) -> Vec<u64> {
        self.lines.borrow().transfers.clone()
    }

    #[inline]
    fn cpu(&self, cpu: CpuId) -> &Cpu {
        &self.cpus[cpu.index()]
    }

    fn count(&self, f: impl FnOnce(&mut EngineCounts)) {
        let mut c = self.counts.get();
        f(&mut c);
        self.counts.set(c);
    }

    // ---- time ------------------------------------------------------------------------------------------------

    /// Suspend the running CPU until `until`, in `mode`.
    fn suspend(&self, until: u64, mode: Mode) {
        let cpu = self.current.get();
        let c = self.cpu(cpu);
        c.mode.set(mode);
        self.queue.borrow_mut().set(cpu, until);
        self.count(|n| n.events += 1);
        let yielder = c.yielder.get();
        // SAFETY: `yielder` was stored by this CPU's coroutine when it started and lives on its stack until the coroutine
        // ends; `current` is `cpu`, so this code runs inside that very coroutine, which is what `suspend` requires.
        unsafe { (*yielder).suspend(()) };
        debug_assert_eq!(self.current.get(), cpu);
        c.mode.set(Mode::Running);
    }

    /// Advance the running CPU to `time`, in place when nobody has an earlier event.
    #[inline]
    fn advance_to(&self, time: Time) {
        let k = key(time, self.current.get());
        self.debt.set(0);
        if k < self.limit.get() {
            self.now.set(time);
        } else {
            self.suspend(k, Mode::Kernel);
        }
    }

    /// Pay the debt: after this, everything earlier than the running CPU's time has happened.
    #[inline]
    pub fn settle(&self) {
        self.advance_to(self.now());
    }

    /// Owe `ns` more of private work at reference speed (SMT siblings slow it down).
    #[inline]
    pub fn owe(&self, ns: Nanos) {
        let speed = self.cpu(self.current.get()).speed.get();
        let ns = if speed == FULL_SPEED { ns } else { (ns * FULL_SPEED).div_ceil(speed) };
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
        let busy = self.cpu(self.current.get()).busy.get();
        let debt = self.debt.get() + self.costs.work[busy][work as usize] * n;
        self.debt.set(debt);
        if debt > DEBT_MAX {
            self.settle();
        }
    }

    /// Book the running CPU's time to `account` from now on.
    #[inline]
    pub fn enter(&self, account: Account) -> Account {
        let cpu = self.current.get();
        let c = self.cpu(cpu);
        let old = c.account.replace(account);
        if old != account {
            self.book(cpu, old, self.now());
        }
        old
    }

    #[inline]
    fn book(&self, cpu: CpuId, account: Account, until: Time) {
        let c = self.cpu(cpu);
        let since = c.since.replace(until);
        c.ledger.borrow_mut()[account as usize] += until - since;
    }

    /// Book every CPU up to `end` and return the accounts, CPU by CPU. The sum is exactly CPUs x `end`.
    ///
    /// A CPU that was cut off inside a stretch that ends later is booked to `end` only.
    pub fn close_ledger(&self, end: Time) -> Vec<[Nanos; Account::COUNT]> {
        let mut all = Vec::with_capacity(self.cpus.len());
        for (i, c) in self.cpus.iter().enumerate() {
            let cpu = CpuId(i as u16);
            if c.since.get() <= end {
                self.book(cpu, c.account.get(), end);
            } else {
                // Debt booked past the end (at most DEBT_MAX) by an account change: take it back from that account.
                let over = c.since.replace(end) - end;
                take_back(&mut c.ledger.borrow_mut(), c.account.get(), over);
            }
            let l = *c.ledger.borrow();
            assert_eq!(l.iter().sum::<Nanos>(), end, "{cpu:?}: the ledger does not add up");
            all.push(l);
        }
        all
    }

    // ---- shared memory ---------------------------------------------------------------------------------------

    /// A fresh cache line.
    pub fn create_line(&self) -> u32 {
        self.lines.borrow_mut().create()
    }

    /// A visible access: settle, pay, return when it takes effect.
    #[inline]
    pub fn access(&self, line: u32, how: Touch) {
        self.settle();
        self.touch(line, how);
    }

    /// Access to data that a lock guards: no settling point unless the line must move.
    #[inline]
    pub fn touch(&self, line: u32, how: Touch) {
        // Rights that the running CPU was seen to have since it was resumed are still its own: nobody else has run.
        let seen = self.rights[line as usize % RIGHTS].get();
        let exclusive = Self::right(self.resumed.get(), line);
        if seen == exclusive || (how == Touch::Read && seen == exclusive - 1) {
            let cost = if how == Touch::Rmw { self.costs.atomic } else { self.costs.hit };
            self.debt.set(self.debt.get() + cost);
            return;
        }
        self.touch_line(line, how);
    }

    /// What `rights` holds for a line that this CPU may write; minus 1: only read.
    #[inline]
    fn right(resumed: u64, line: u32) -> u64 {
        resumed << 33 | u64::from(line) << 1 | 1
    }

    fn touch_line(&self, line: u32, how: Touch) {
        let cost = {
            let mut lines = self.lines.borrow_mut();
            lines.touch(&self.machine.topology, line, self.current.get(), self.now(), how)
        };
        match cost {
            Cost::Hit(ns) => self.debt.set(self.debt.get() + ns),
            Cost::Until(time) => self.advance_to(time),
        }
        // After a transfer that let others run the right may be gone again: then nothing is noted.
        let right = Self::right(self.resumed.get(), line);
        if !matches!(cost, Cost::Until(_)) {
            self.rights[line as usize % RIGHTS].set(if how == Touch::Read { right - 1 } else { right });
        }
    }

    /// Independent loads: their transfers overlap, each on its own line.
    pub fn access_many<const N: usize>(&self, lines: [u32; N]) {
        self.settle();
        let now = self.now.get();
        let (mut hits, mut done) = (0, now);
        {
            let mut all = self.lines.borrow_mut();
            for line in lines {
                match all.touch(&self.machine.topology, line, self.current.get(), now, Touch::Read) {
                    Cost::Hit(ns) => hits += ns,
                    Cost::Until(time) => done = done.max(time),
                }
            }
        }
        if done > now {
            self.advance_to(done);
        }
        self.debt.set(self.debt.get() + hits);
    }

    /// The value of a word on `line` has changed: CPUs that wait on the line look again.
    #[inline]
    pub fn changed(&self, line: u32) {
        if self.lines.borrow().is_watched(line) {
            self.wake_watchers(line);
        }
    }

    fn wake_watchers(&self, line: u32) {
        let list = self.lines.borrow_mut().take_watchers(line);
        let now = self.now();
        for cpu in list {
            let c = self.cpu(cpu);
            match c.mode.get() {
                // It pays its own transfer when it looks.
                Mode::Waiting | Mode::Idle => {
                    let at = self.queue.borrow().get(cpu);
                    self.set_key(cpu, at.min(key(now, cpu)));
                }
                // It has been woken by something else and has not run yet.
                Mode::Kernel | Mode::User | Mode::Running => {}
            }
        }
    }

    /// Sleep on `lines` until one changes or `deadline` passes. Spurious returns are allowed.
    pub fn wait_on(&self, lines: &[u32], deadline: Time, waits_for: u64) {
        let cpu = self.current.get();
        {
            let mut all = self.lines.borrow_mut();
            lines.iter().for_each(|l| all.watch(*l, cpu));
        }
        self.cpu(cpu).waits_for.set(waits_for);
        self.suspend(key(deadline, cpu), Mode::Waiting);
        self.cpu(cpu).waits_for.set(0);
        let mut all = self.lines.borrow_mut();
        lines.iter().for_each(|l| all.unwatch(*l, cpu));
    }

    /// CPUs that spin, and on what, for the deadlock report.
    pub fn waiting(&self) -> Vec<(CpuId, u64)> {
        (0..self.cpus.len())
            .filter(|&i| self.cpus[i].mode.get() == Mode::Waiting)
            .map(|i| (CpuId(i as u16), self.cpus[i].waits_for.get()))
            .collect()
    }

    /// Set another CPU's key, and keep `limit` true.
    #[inline]
    fn set_key(&self, cpu: CpuId, key: u64) {
        debug_assert_ne!(cpu, self.current.get());
        let mut q = self.queue.borrow_mut();
        q.set(cpu, key);
        if !self.stopping.get() {
            self.limit.set(q.root().min(self.cap.get()));
        }
    }

    // ---- interrupts ------------------------------------------------------------------------------------------

    /// Send an interrupt; kinds coalesce while pending.
    pub fn send_ipi(&self, target: CpuId, ipi: Ipi) {
        self.owe(self.costs.ipi_send);
        self.settle();
        let me = self.current.get();
        let c = self.cpu(target);
        let slot = &c.ipi_at[ipi as usize];
        let remote = self.topology().distance(me, target) > 3;
        let at = self.now() + if remote { self.costs.ipi_deliver_remote } else { self.costs.ipi_deliver };
        if slot.get() <= at {
            return;
        }
        slot.set(at);
        self.count(|n| n.ipis += 1);
        self.irq_due(target, at);
    }

    /// An interrupt source of `cpu` comes due at `at`.
    fn irq_due(&self, cpu: CpuId, at: Time) {
        let c = self.cpu(cpu);
        if at >= c.irq_at.get() {
            return;
        }
        c.irq_at.set(at);
        if matches!(c.mode.get(), Mode::User | Mode::Idle) {
            let k = self.queue.borrow().get(cpu);
            let now = self.now.get();
            self.set_key(cpu, k.min(key(at.max(now), cpu)));
        }
    }

    fn recompute_irq(&self, c: &Cpu) {
        let mut at = c.tick_at.get();
        for slot in &c.ipi_at {
            at = at.min(slot.get());
        }
        if let Some(Reverse((t, _, _))) = c.timers.borrow().peek() {
            at = at.min(*t);
        }
        c.irq_at.set(at);
    }

    /// Is an interrupt pending for the running CPU?
    #[inline]
    pub fn irq_pending(&self) -> bool {
        self.cpu(self.current.get()).irq_at.get() <= self.now()
    }

    /// Enter the interrupt handler of the running CPU.
    pub fn take_interrupts(&self) -> Interrupts {
        let c = self.cpu(self.current.get());
        let now = self.now();
        if c.irq_at.get() > now {
            return Interrupts::default();
        }
        let mut found = Interrupts::default();
        for ipi in Ipi::ALL {
            let slot = &c.ipi_at[ipi as usize];
            if slot.get() <= now {
                slot.set(NEVER);
                found.ipis |= ipi.bit();
            }
        }
        if c.tick_at.get() <= now {
            found.tick = true;
            // The next tick on this CPU's grid; ticks that were missed while interrupts were off are one tick.
            let p = self.costs.tick_period;
            let missed = (now - c.tick_at.get()) / p;
            c.tick_at.set(c.tick_at.get() + (missed + 1) * p);
        }
        found.timers = c.timers.borrow().peek().is_some_and(|Reverse((t, _, _))| *t <= now);
        self.recompute_irq(c);
        self.count(|n| n.interrupts += 1);
        self.owe(self.costs.irq);
        found
    }

    /// The next expired sleep timer of the running CPU.
    pub fn take_timer(&self) -> Option<TaskId> {
        let c = self.cpu(self.current.get());
        let mut timers = c.timers.borrow_mut();
        let now = self.now();
        match timers.peek() {
            Some(Reverse((t, _, _))) if *t <= now => {
                let task = timers.pop().map(|Reverse((_, _, task))| task);
                drop(timers);
                self.recompute_irq(c);
                task
            }
            _ => None,
        }
    }

    /// Wake `task` at `at` from the running CPU's timer interrupt.
    pub fn arm_timer(&self, at: Time, task: TaskId) {
        let cpu = self.current.get();
        let seq = self.seq.get();
        self.seq.set(seq + 1);
        self.cpu(cpu).timers.borrow_mut().push(Reverse((at, seq, task)));
        let c = self.cpu(cpu);
        c.irq_at.set(c.irq_at.get().min(at));
    }

    /// Stop or restart the running CPU's tick.
    pub fn stop_tick(&self, stopped: bool) {
        let cpu = self.current.get();
        let c = self.cpu(cpu);
        if c.tick_stopped.replace(stopped) == stopped {
            return;
        }
        if stopped {
            c.tick_at.set(NEVER);
        } else {
            // CPUs tick at the same rate but not at the same moment (skewed, so that they do not convoy on a lock).
            let p = self.costs.tick_period;
            let phase = p * u64::from(cpu.0) / self.cpus.len() as u64;
            let now = self.now();
            let k = if now < phase { 0 } else { (now - phase) / p + 1 };
            c.tick_at.set(k * p + phase);
        }
        self.recompute_irq(c);
    }

    // ---- execution -------------------------------------------------------------------------------------------

    /// Make room for `task` in the engine's table.
    pub fn create_task(&self, task: TaskId, working_set_kib: u32) {
        let mut t = self.task_work.borrow_mut();
        if t.len() <= task.index() {
            t.resize(task.index() + 1, TaskWork::new(0));
        }
        t[task.index()] = TaskWork::new(working_set_kib);
    }

    /// Give `task` this much to compute, booked to `account`, in ns at reference speed.
    pub fn set_work(&self, task: TaskId, ns: Nanos, account: Account) {
        let t = &mut self.task_work.borrow_mut()[task.index()];
        t.left = ns.checked_mul(FULL_SPEED).expect("an operation is shorter than 2^54 ns");
        t.account = account;
    }

    /// Run the task's work on the running CPU until it is done (true) or an interrupt comes (false).
    pub fn run_user(&self, task: TaskId) -> bool {
        self.settle();
        // The return to user mode takes what has come meanwhile, even for a task that will ask for something at once.
        if self.irq_pending() {
            return false;
        }
        let work = self.task_work.borrow()[task.index()];
        if work.refill > 0 {
            let left = self.run_stretch(work.refill, Account::ColdCache);
            self.task_work.borrow_mut()[task.index()].refill = left;
            if left > 0 {
                return false;
            }
        }
        if work.left == 0 {
            return true;
        }
        let left = self.run_stretch(work.left, work.account);
        self.task_work.borrow_mut()[task.index()].left = left;
        left == 0
    }

    /// Run `work` (1/1024 ns), interruptible; returns what is left.
    #[inline]
    fn run_stretch(&self, work: u64, account: Account) -> u64 {
        let cpu = self.current.get();
        let c = self.cpu(cpu);
        if c.irq_at.get() <= self.now.get() {
            return work;
        }
        let kernel_account = self.enter(account);
        c.user_left.set(work);
        c.user_since.set(self.now.get());
        let end = self.now.get() + work.div_ceil(c.speed.get());
        let until = key(end.min(c.irq_at.get()), cpu);
        if until < self.limit.get() {
            self.now.set(key_time(until));
        } else {
            self.suspend(until, Mode::User);
        }
        self.progress(c);
        self.enter(kernel_account);
        c.user_left.get()
    }

    /// Account the work that `c` has done since `user_since`.
    fn progress(&self, c: &Cpu) {
        let now = self.now.get();
        let done = (now - c.user_since.replace(now)) * c.speed.get();
        c.user_left.set(c.user_left.get().saturating_sub(done));
    }

    /// Wait for an interrupt or, with `poll`, for a change of that line. `ready` is asked once, after everything
    /// earlier has happened: true means do not sleep.
    pub fn idle(&self, poll: Option<u32>, ready: impl FnOnce() -> bool) {
        let cpu = self.current.get();
        let c = self.cpu(cpu);
        self.settle();
        if c.irq_at.get() <= self.now.get() || ready() {
            return;
        }
        let before = self.enter(Account::Idle);
        self.set_busy(cpu, false);
        if let Some(line) = poll {
            self.lines.borrow_mut().watch(line, cpu);
        }
        self.suspend(key(c.irq_at.get(), cpu), Mode::Idle);
        if let Some(line) = poll {
            self.lines.borrow_mut().unwatch(line, cpu);
        }
        self.set_busy(cpu, true);
        self.enter(before);
        self.owe(self.costs.idle_exit);
    }

    /// A CPU became busy or idle: its core's threads change speed.
    fn set_busy(&self, cpu: CpuId, busy: bool) {
        let core = self.topology().core_of(cpu);
        let n = &self.busy_in_core[core];
        n.set(if busy { n.get() + 1 } else { n.get() - 1 });
        if self.topology().core_cpus(core).len() == 1 {
            return;
        }
        for i in 0..self.topology().core_cpus(core).len() {
            let sibling = self.topology().core_cpus(core)[i];
            self.set_speed(sibling);
        }
    }

    /// Give `cpu` the speed of its core's load; re-time its work in flight.
    fn set_speed(&self, cpu: CpuId) {
        let c = self.cpu(cpu);
        let busy = self.busy_in_core[self.topology().core_of(cpu)].get() as usize;
        let speed = self.costs.smt_speed[busy.max(1)];
        c.busy.set(busy.max(1));
        if c.speed.get() == speed {
            return;
        }
        if c.mode.get() == Mode::User {
            self.progress(c);
            c.speed.set(speed);
            let end = self.now.get() + c.user_left.get().div_ceil(speed);
            self.set_key(cpu, key(end.min(c.irq_at.get()).max(self.now.get()), cpu));
        } else {
            c.speed.set(speed);
        }
    }

    /// Cost of one unit of `work`, in ns.
    pub fn work_cost(&self, work: Work) -> Nanos {
        self.costs.work[1][work as usize]
    }

    /// The context switch itself, and the refill of a migrated task's caches.
    pub fn switch_to(&self, prev: Option<TaskId>, next: Option<TaskId>) {
        if prev == next {
            return;
        }
        self.owe(self.costs.context_switch);
        let Some(next) = next else { return };
        let cpu = self.current.get();
        self.dispatches.set(self.dispatches.get() + 1);
        // Fx-style mix of (time, CPU, task): cheap, always on, the same on every machine.
        let word = self.now().rotate_left(24) ^ u64::from(cpu.0) << 48 ^ u64::from(next.0);
        self.trace_hash.set((self.trace_hash.get().rotate_left(5) ^ word).wrapping_mul(0x517c_c1b7_2722_0a95));
        let t = &mut self.task_work.borrow_mut()[next.index()];
        let from = std::mem::replace(&mut t.last_cpu, cpu.0);
        if from != cpu.0 && from != u16::MAX && t.working_set_kib > 0 {
            let d = self.topology().distance(CpuId(from), cpu);
            let kib = t.working_set_kib.min(self.costs.refill_max_kib[d]);
            t.refill = self.costs.refill[d] * u64::from(kib) * FULL_SPEED;
        }
    }
}

/// Remove `over` ns from the accounts, from `first` as far as it goes.
fn take_back(ledger: &mut [Nanos; Account::COUNT], first: Account, over: Nanos) {
    let mut over = over;
    let order = std::iter::once(first as usize).chain(0..Account::COUNT);
    for i in order {
        let n = ledger[i].min(over);
        ledger[i] -= n;
        over -= n;
    }
    debug_assert_eq!(over, 0);
}
