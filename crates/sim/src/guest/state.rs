//! A vCPU: what its guest, its thread and the host know of one another.

use super::hosting::{Hosting, VirtCosts};
use crate::counters::Counters;
use crate::engine::LockWait;
use crate::engine::{Recent, take_back};
use crate::kvm::Exit;
use crate::thread::Thread;
use crate::trace::{GuestCpu, VcpuPhase};
use crate::world::{Sim, SimWord};
use contend_platform::Ordering::{AcqRel, Acquire, Relaxed, Release};
use contend_platform::{Account, CpuId, Line, NEVER, Nanos, Platform, TaskId, Time, Trap};
use std::cell::{Cell, OnceCell, RefCell};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::rc::Rc;

/// In [`VcpuState::pending`]: a pv kick has come and no halt has consumed it.
pub(crate) const KICK: u64 = 1 << 32;
/// In [`VcpuState::pending`]: the guest's interrupts, by [`contend_platform::Ipi::bit`].
pub(crate) const IPIS: u64 = KICK - 1;

/// Where a vCPU's time goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Phase {
    /// In guest mode.
    Guest,
    /// Host code works for it.
    Host,
    /// Runnable, without a CPU.
    Stolen,
    /// Halted.
    Halted,
}

/// Words on the first line of the thread's task structure, with its state: general knowledge, not checked, of Linux 3.6.
pub(crate) struct TaskWords {
    /// PF_VCPU among the task's flags: in guest mode.
    pub mode: SimWord,
    /// References to the task: whoever looks at it takes one.
    pub usage: SimWord,
}

/// A vCPU.
pub(crate) struct VcpuState {
    /// Its guest's number in the run, and its own in the guest.
    pub guest: u16,
    pub number: CpuId,
    /// Its thread, once that exists.
    pub task: OnceCell<TaskId>,
    pub task_words: OnceCell<TaskWords>,
    /// The physical CPU it runs on, or ran on last.
    pub pcpu: Cell<CpuId>,
    /// The guest's pending IPIs and [`KICK`].
    pub pending: SimWord,
    /// 1: blocked on its halt queue, or about to be. On the line of `pending`.
    pub halted: SimWord,
    /// in_spin_loop, dy_eligible, preempted (1: in user mode, 2: in the guest's kernel), ready: on a line of their own.
    pub in_spin_loop: SimWord,
    pub dy_eligible: SimWord,
    pub preempted: SimWord,
    pub ready: SimWord,
    hosting: Rc<Hosting>,

    phase: Cell<Phase>,
    phase_since: Cell<Time>,
    times: [Cell<Nanos>; 4],
    recent_phases: Recent,
    /// The guest's account, and its guest-mode time when it began.
    account: Cell<Account>,
    account_since: Cell<Nanos>,
    ledger: [Cell<Nanos>; Account::COUNT],
    /// In guest-mode time.
    recent_accounts: Recent,
    pub exits: Counters<{ Exit::COUNT }>,
    /// All exits: tells whether a loop was left.
    pub exits_sum: Cell<u64>,
    /// Why it left guest mode last.
    last_exit: Cell<Exit>,

    pub tick_at: Cell<Time>,
    pub tick_stopped: Cell<bool>,
    pub timers: RefCell<BinaryHeap<Reverse<(Time, u64, TaskId)>>>,
    /// When the host's timer for it goes off; NEVER: it is not armed.
    pub host_timer: Cell<Time>,
    /// ple_window in cycles.
    pub ple_window: Cell<u64>,
    /// Halt polling's window in ns.
    pub poll_ns: Cell<Nanos>,

    /// Locks of the guest that it holds, innermost last, and the one it waits for.
    pub holding: RefCell<Vec<u32>>,
    pub waiting: Cell<LockWait>,
    /// Since when it has no CPU though it is runnable.
    pub lost_at: Cell<Option<Time>>,
    /// When it halted, and for how long it has polled since.
    pub halted_since: Cell<Time>,
    pub polled: Cell<Nanos>,
    pub preemptions: Cell<u64>,
    pub preempted_max: Cell<Nanos>,
}

impl VcpuState {
    /// A vCPU before its thread starts.
    pub fn new(p: &Sim, guest: u16, number: CpuId, hosting: Rc<Hosting>) -> Self {
        let (shared, spin) = (p.line(), p.line());
        VcpuState {
            guest,
            number,
            task: OnceCell::new(),
            task_words: OnceCell::new(),
            pcpu: Cell::new(CpuId(0)),
            pending: p.word(shared, 0),
            halted: p.word(shared, 0),
            in_spin_loop: p.word(spin, 0),
            dy_eligible: p.word(spin, 0),
            preempted: p.word(spin, 0),
            ready: p.word(spin, 0),
            phase: Cell::new(Phase::Halted),
            phase_since: Cell::new(0),
            times: std::array::from_fn(|_| Cell::new(0)),
            recent_phases: Recent::new(),
            account: Cell::new(Account::Switch),
            account_since: Cell::new(0),
            ledger: std::array::from_fn(|_| Cell::new(0)),
            recent_accounts: Recent::new(),
            exits: Counters::default(),
            exits_sum: Cell::new(0),
            last_exit: Cell::new(Exit::ExternalInterrupt),
            tick_at: Cell::new(NEVER),
            tick_stopped: Cell::new(true),
            timers: RefCell::default(),
            host_timer: Cell::new(NEVER),
            ple_window: Cell::new(hosting.ple_window.unwrap_or(0)),
            hosting,
            poll_ns: Cell::new(0),
            holding: RefCell::default(),
            waiting: Cell::new(None),
            lost_at: Cell::new(None),
            halted_since: Cell::new(0),
            polled: Cell::new(0),
            preemptions: Cell::new(0),
            preempted_max: Cell::new(0),
        }
    }

    /// Its thread exists; `line` is that of the thread's state.
    pub fn attach(&self, p: &Sim, task: TaskId, line: Line) {
        let words = TaskWords { mode: p.word(line, 0), usage: p.word(line, 0) };
        assert!(self.task.set(task).is_ok() && self.task_words.set(words).is_ok(), "a vCPU has one thread");
    }
    /// The guest runs a task of its own.
    pub fn in_user_mode(&self) -> bool {
        matches!(self.account.get(), Account::User | Account::ColdCache)
    }
    /// Its thread exists. The first of a guest's vCPUs may run before the last has been started.
    pub fn started(&self) -> bool {
        self.task.get().is_some()
    }
    pub fn thread_task(&self) -> TaskId {
        *self.task.get().expect("the vCPU's thread exists")
    }
    fn words(&self) -> &TaskWords {
        self.task_words.get().expect("the vCPU's thread exists")
    }
    /// In guest mode?
    pub fn mode(&self) -> &SimWord {
        &self.words().mode
    }
    pub fn usage(&self) -> &SimWord {
        &self.words().usage
    }

    // ---- time ------------------------------------------------------------------------------------------------

    /// From now on its time is `phase`'s.
    pub fn book(&self, phase: Phase, now: Time) {
        let old = self.phase.replace(phase);
        let since = self.phase_since.replace(now);
        self.recent_phases.note(since, old as usize);
        let t = &self.times[old as usize];
        t.set(t.get() + now - since);
        if let Some(hook) = self.hosting.hook() {
            let phase = match phase {
                Phase::Guest => VcpuPhase::Guest,
                Phase::Host if old == Phase::Guest => VcpuPhase::Exit(self.last_exit.get()),
                Phase::Host => VcpuPhase::Host,
                Phase::Stolen => VcpuPhase::Stolen,
                Phase::Halted => VcpuPhase::Halted,
            };
            hook.vcpu(now, self.name(), phase);
        }
    }
    /// What traces call it.
    pub fn name(&self) -> GuestCpu {
        GuestCpu { guest: self.guest, cpu: self.number }
    }
    pub fn phase(&self) -> Phase {
        self.phase.get()
    }
    /// Time spent in guest mode.
    pub fn guest_time(&self, now: Time) -> Nanos {
        let under_way = if self.phase.get() == Phase::Guest { now - self.phase_since.get() } else { 0 };
        self.times[Phase::Guest as usize].get() + under_way
    }
    /// The guest books its time to `account` from now on; returns the account before.
    pub fn enter(&self, account: Account, now: Time) -> Account {
        let old = self.account.replace(account);
        if old != account {
            let at = self.guest_time(now);
            let since = self.account_since.replace(at);
            self.recent_accounts.note(since, old as usize);
            let l = &self.ledger[old as usize];
            l.set(l.get() + at - since);
        }
        old
    }

    /// Everything up to `end`: the guest's accounts, and the times of [`Phase`]. What was booked past it is taken back.
    pub fn close(&self, end: Time) -> ([Nanos; Account::COUNT], [Nanos; 4]) {
        let mut times: [Nanos; 4] = std::array::from_fn(|i| self.times[i].get());
        let since = self.phase_since.get();
        times[self.phase.get() as usize] += end.saturating_sub(since);
        take_back(&mut times, self.recent_phases.latest_first(), since, end);
        let mut ledger: [Nanos; Account::COUNT] = std::array::from_fn(|i| self.ledger[i].get());
        let (guest, booked) = (times[Phase::Guest as usize], self.account_since.get());
        ledger[self.account.get() as usize] += guest.saturating_sub(booked);
        take_back(&mut ledger, self.recent_accounts.latest_first(), booked, guest);
        if times.iter().sum::<Nanos>() != end || ledger.iter().sum::<Nanos>() != guest {
            let who = format!("guest {}, vCPU {}", self.guest, self.number);
            self.hosting.doubt(format!("the times of {who} do not sum to {end} ns: {times:?}, {ledger:?}"));
        }
        (ledger, times)
    }

    // ---- the guest's interrupts ----------------------------------------------------------------------------------

    /// When its next timer comes due.
    pub fn timer_at(&self) -> Time {
        let first = self.timers.borrow().peek().map_or(NEVER, |Reverse((at, _, _))| *at);
        first.min(self.tick_at.get())
    }
    /// Is one of its guest's interrupts pending?
    pub fn irq_due(&self, now: Time) -> bool {
        self.pending.observe() & IPIS != 0 || self.timer_at() <= now
    }

    // ---- leaving and entering guest mode; on the vCPU's thread ------------------------------------------------------

    /// The host's account for what the guest does now.
    pub fn host_account(&self) -> Account {
        match self.account.get() {
            Account::User | Account::ColdCache => Account::GuestUser,
            Account::RqLock | Account::SpinLock | Account::OnCpu => Account::GuestSpin,
            _ => Account::GuestKernel,
        }
    }

    /// An exit; `trap` says whether for a physical interrupt.
    pub fn leave_guest(&self, thread: &Thread, trap: Trap) {
        if trap == Trap::Interrupt {
            self.count_exit(Exit::ExternalInterrupt);
        }
        self.leave(thread);
    }
    pub fn count_exit(&self, exit: Exit) {
        self.exits.add(exit as usize, 1);
        self.exits_sum.set(self.exits_sum.get() + 1);
        self.last_exit.set(exit);
    }

    fn leave(&self, thread: &Thread) {
        let engine = thread.engine();
        thread.book_to(Account::VmExit);
        self.book(Phase::Host, engine.now());
        thread.store(self.mode(), 0, Relaxed);
        self.mark_cpu(thread, 0);
        engine.spend_user(self.hosting.costs.exit);
    }

    /// An entry, on the CPU that the host has chosen.
    pub fn enter_guest(&self, thread: &Thread) {
        let engine = thread.engine();
        // From here an interrupt for the vCPU finds it in guest mode and pulls it out; what came before is seen below.
        self.pcpu.set(engine.current());
        thread.store(self.mode(), 1, Relaxed);
        self.mark_cpu(thread, 1);
        engine.spend_user(self.hosting.costs.entry);
        thread.load(&self.pending, Relaxed);
        if self.irq_due(engine.now()) {
            engine.spend_user(self.hosting.costs.inject);
        }
        // Nothing is owed in guest mode that was not done there.
        engine.settle_user();
        self.book(Phase::Guest, engine.now());
        thread.book_to(self.host_account());
    }

    fn mark_cpu(&self, thread: &Thread, mode: u64) {
        if let Some(word) = self.hosting.modes.get(thread.engine().current().index()) {
            thread.store(word, mode, Relaxed);
        }
    }

    /// An exit that needs nothing of the host's scheduler: `ns` of work in the handler, and back.
    pub fn quick_exit(&self, thread: &Thread, exit: Exit, ns: Nanos) {
        self.count_exit(exit);
        self.leave(thread);
        thread.engine().spend_user(ns);
        self.enter_guest(thread);
    }

    /// A sender's half of an interrupt or kick, on the host: `bits` are pending from now on.
    pub fn post(&self, p: &Sim, bits: u64) -> u64 {
        p.fetch_or(&self.pending, bits, AcqRel)
    }
    /// The halter's half: a kick is consumed.
    pub fn take_kick(&self, p: &Sim) -> bool {
        p.load(&self.pending, Acquire) & KICK != 0 && p.fetch_and(&self.pending, !KICK, AcqRel) & KICK != 0
    }
    /// The guest's handler takes the pending IPIs.
    pub fn take_ipis(&self, thread: &Thread) -> u64 {
        if self.pending.observe() & IPIS == 0 { 0 } else { thread.fetch_and(&self.pending, !IPIS, AcqRel) & IPIS }
    }
    /// The vCPU is on its halt queue, or not.
    pub fn set_halted(&self, p: &Sim, halted: bool) {
        p.store(&self.halted, u64::from(halted), Release);
    }
    pub fn virt(&self) -> &VirtCosts {
        &self.hosting.costs
    }
}
