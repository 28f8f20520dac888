//! What runs: user work at the core's speed, idling, and the switch between tasks.

use super::{Cpu, Engine, FULL_SPEED, Mode, STACKFUL, TaskWork};
use crate::queue::{key, key_time};
use contend_platform::{Account, CpuId, NEVER, Nanos, TaskId, Time, Work};
use std::task::Poll;

/// What becomes of a stretch of work that begins.
enum Stretch {
    /// It ended in place; so much is left.
    Over(u64),
    /// Others come first: the CPU is to be let go until then (a key).
    Until(u64),
}

impl Engine {
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
        loop {
            match self.poll_user(task) {
                Poll::Ready(done) => return done,
                Poll::Pending => {
                    self.stay();
                }
            }
        }
    }

    /// As [`Engine::run_user`], but where that suspends the CPU, the caller shall let it go, everything off the stack, and ask
    /// again when the CPU is visited next ([`Engine::boot_visits`]).
    pub fn poll_user(&self, task: TaskId) -> Poll<bool> {
        let c = self.cpu(self.current.get());
        if c.mode.get() == Mode::User {
            c.mode.set(Mode::Running);
            let left = self.end_stretch(c);
            let work = &mut self.task_work.borrow_mut()[task.index()];
            if work.first == 0 {
                work.left = left;
                return Poll::Ready(left == 0);
            }
            work.first = left;
            if left > 0 {
                return Poll::Ready(false);
            }
        } else {
            self.settle();
            // The return to user mode takes what has come meanwhile, even for a task that will ask for something at once.
            if c.irq_at.get() <= self.now.get() {
                return Poll::Ready(false);
            }
        }
        let work = self.task_work.borrow()[task.index()];
        if work.first > 0 {
            if work.first & STACKFUL != 0 {
                return Poll::Ready(self.run_thread(task, work));
            }
            match self.begin_stretch(c, work.first, Account::ColdCache, NEVER) {
                Stretch::Over(left) => self.task_work.borrow_mut()[task.index()].first = left,
                Stretch::Until(until) => return self.let_go(until, Mode::User),
            }
            if self.task_work.borrow()[task.index()].first > 0 {
                return Poll::Ready(false);
            }
        }
        if work.left == 0 {
            return Poll::Ready(true);
        }
        match self.begin_stretch(c, work.left, work.account, NEVER) {
            Stretch::Over(left) => {
                self.task_work.borrow_mut()[task.index()].left = left;
                Poll::Ready(left == 0)
            }
            Stretch::Until(until) => self.let_go(until, Mode::User),
        }
    }

    /// The running CPU is outside the kernel until `until`, and off its stack.
    #[inline]
    fn let_go<T>(&self, until: u64, mode: Mode) -> Poll<T> {
        self.put_off(until, mode);
        Poll::Pending
    }

    /// Refill cold caches; done?
    pub(super) fn run_refill(&self, task: TaskId, work: TaskWork) -> bool {
        let left = self.run_stretch(work.first & !STACKFUL, Account::ColdCache, NEVER);
        self.task_work.borrow_mut()[task.index()].first = work.first & STACKFUL | left;
        left == 0
    }

    /// Run `work` (1/1024 ns), interruptible, at most until `deadline`; returns what is left.
    #[inline]
    pub(super) fn run_stretch(&self, work: u64, account: Account, deadline: Time) -> u64 {
        let c = self.cpu(self.current.get());
        match self.begin_stretch(c, work, account, deadline) {
            Stretch::Over(left) => left,
            Stretch::Until(until) => {
                self.suspend(until, Mode::User);
                self.end_stretch(c)
            }
        }
    }

    /// The running CPU, `c`, begins a stretch of [`Engine::run_stretch`].
    #[inline]
    fn begin_stretch(&self, c: &Cpu, work: u64, account: Account, deadline: Time) -> Stretch {
        if c.irq_at.get() <= self.now.get() {
            return Stretch::Over(work);
        }
        c.kernel_account.set(self.enter(account));
        c.user_left.set(work);
        c.user_since.set(self.now.get());
        let end = self.now.get() + work.div_ceil(c.speed.get());
        c.user_deadline.set(deadline);
        let until = key(end.min(c.irq_at.get()).min(deadline), self.current.get());
        if until < self.limit.get() {
            self.now.set(key_time(until));
            Stretch::Over(self.end_stretch(c))
        } else {
            Stretch::Until(until)
        }
    }

    /// The stretch of the running CPU is over; returns what is left.
    #[inline]
    fn end_stretch(&self, c: &Cpu) -> u64 {
        self.progress(c);
        self.enter(c.kernel_account.get());
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
    pub fn idle(&self, poll: Option<u32>, ready: impl Fn() -> bool) {
        while self.poll_idle(poll, &ready).is_pending() {
            self.stay();
        }
    }

    /// As [`Engine::idle`], but where that suspends the CPU, as [`Engine::poll_user`].
    pub fn poll_idle(&self, poll: Option<u32>, ready: impl Fn() -> bool) -> Poll<()> {
        let cpu = self.current.get();
        let c = self.cpu(cpu);
        if c.mode.get() != Mode::Idle {
            self.settle();
            if c.irq_at.get() <= self.now.get() || ready() {
                return Poll::Ready(());
            }
            c.kernel_account.set(self.enter(Account::Idle));
            self.enter_idle_state(cpu);
            self.set_busy(cpu, false);
            if let Some(line) = poll {
                self.lines.watch(line, cpu);
            }
            return self.let_go(key(c.irq_at.get(), cpu), Mode::Idle);
        }
        c.mode.set(Mode::Running);
        if let Some(line) = poll {
            self.lines.unwatch(line, cpu);
        }
        let exit = self.leave_idle_state(cpu);
        self.set_busy(cpu, true);
        self.enter(c.kernel_account.get());
        self.owe_latency(exit);
        Poll::Ready(())
    }

    /// `vcpu_is_preempted`: the machine is itself a guest, and its hypervisor took this CPU away when it halted.
    pub fn preempted(&self, cpu: CpuId) -> bool {
        self.costs.steal_time && self.cpu(cpu).mode.get() == Mode::Idle
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

    /// Give `cpu` the speed of its core's kind and load; re-time its work in flight.
    pub(super) fn set_speed(&self, cpu: CpuId) {
        let c = self.cpu(cpu);
        let busy = self.busy_in_core[self.topology().core_of(cpu)].get().max(1);
        let class = self.costs.speed_class(self.topology().kind_of(cpu), busy);
        let speed = self.costs.speed[class];
        c.speed_class.set(class as u16);
        if c.speed.get() == speed {
            return;
        }
        if c.mode.get() == Mode::User {
            self.progress(c);
            c.speed.set(speed);
            let end = self.now.get() + c.user_left.get().div_ceil(speed);
            self.set_key(cpu, key(end.min(c.irq_at.get()).min(c.user_deadline.get()).max(self.now.get()), cpu));
        } else {
            c.speed.set(speed);
        }
    }

    /// Cost of one unit of `work` at reference speed, in ns.
    pub fn work_cost(&self, work: Work) -> Nanos {
        self.costs.work[1][work as usize]
    }

    /// What a KiB that `from` has in its caches costs `to`, in ns.
    pub fn refill_cost(&self, from: CpuId, to: CpuId) -> Nanos {
        self.costs.refill[self.topology().distance(from, to)]
    }

    /// Cost of the context switch itself, in ns.
    pub(crate) fn switch_cost(&self) -> Nanos {
        self.costs.context_switch
    }

    /// What refilling a working set costs that was in the caches of `from`, on `to`, in 1/1024 ns.
    pub(crate) fn refill_work(&self, from: CpuId, to: CpuId, working_set_kib: u32) -> u64 {
        let d = self.topology().distance(from, to);
        let kib = working_set_kib.min(self.costs.refill_max_kib[d]);
        self.costs.refill[d] * u64::from(kib) * FULL_SPEED
    }

    /// Latency of a line that `from` has written, for `to`, in ns.
    pub fn line_cost(&self, from: CpuId, to: CpuId) -> Nanos {
        self.costs.transfer[self.topology().distance(from, to)]
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
            t.first = t.first & STACKFUL | self.refill_work(CpuId(from), cpu, t.working_set_kib);
        }
    }
}
