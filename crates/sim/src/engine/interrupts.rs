//! Interrupts: IPIs by kind, the tick, sleep timers; when a CPU takes them.

use super::{Cpu, Due, Engine, Mode};
use crate::queue::key;
use contend_platform::{CpuId, Interrupts, Ipi, NEVER, Nanos, TaskId, Time};
use std::cmp::Reverse;

impl Cpu {
    /// Is `at` before all of its timers? Devices have none.
    fn is_before_all(&self, at: Time) -> bool {
        let timers = self.timers.borrow();
        match timers.peek() {
            Some(Reverse(first)) if !first.device || at < first.at => at < first.at,
            _ => timers.iter().all(|Reverse(d)| d.device || at < d.at),
        }
    }
}

impl Engine {
    /// Send an interrupt; kinds coalesce while pending.
    pub fn send_ipi(&self, target: CpuId, ipi: Ipi) {
        self.owe(self.costs.ipi_send);
        self.settle();
        let c = self.cpu(target);
        let slot = &c.ipi_at[ipi as usize];
        let at = self.now() + self.ipi_flight(target);
        if slot.get() <= at {
            return;
        }
        slot.set(at);
        self.ipis.set(self.ipis.get() + 1);
        self.irq_due(target, at);
    }

    /// How long it takes until `target` has served an IPI that has just been sent, in ns, if nothing keeps it.
    pub fn ipi_answer(&self, target: CpuId) -> Nanos {
        self.ipi_flight(target) + self.costs.irq_enter + self.costs.irq_leave
    }

    /// How long an IPI to `target` is on its way, in ns.
    fn ipi_flight(&self, target: CpuId) -> Nanos {
        let remote = self.topology().distance(self.current.get(), target) >= self.topology().first_remote();
        if remote { self.costs.ipi_deliver_remote } else { self.costs.ipi_deliver }
    }

    /// An interrupt source of `cpu` comes due at `at`.
    fn irq_due(&self, cpu: CpuId, at: Time) {
        let c = self.cpu(cpu);
        if at >= c.irq_at.get() {
            return;
        }
        c.irq_at.set(at);
        if matches!(c.mode.get(), Mode::User | Mode::Spinning | Mode::Idle) {
            let k = self.queue.get(cpu);
            let now = self.now.get();
            self.set_key(cpu, k.min(key(at.max(now), cpu)));
        }
    }

    fn recompute_irq(&self, c: &Cpu) {
        let mut at = c.tick_at.get().min(c.deadline_at.get());
        for slot in &c.ipi_at {
            at = at.min(slot.get());
        }
        if let Some(Reverse(due)) = c.timers.borrow().peek() {
            at = at.min(due.at);
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
        c.serves_interrupt.set(true);
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
            c.tick_at.set(next_tick(c.tick_at.get(), now, self.costs.tick_period));
        }
        if c.deadline_at.get() <= now {
            found.deadline = true;
            c.deadline_at.set(NEVER);
        }
        found.timers = c.timers.borrow().peek().is_some_and(|Reverse(due)| due.at <= now);
        self.recompute_irq(c);
        self.interrupts.set(self.interrupts.get() + 1);
        self.owe(self.costs.irq_enter);
        found
    }

    /// Leave the interrupt handler of the running CPU.
    pub fn leave_interrupts(&self) {
        let c = self.cpu(self.current.get());
        c.serves_interrupt.set(false);
        if c.timer_expired.replace(false) {
            self.write_timer();
        }
        // Even nothing, owed, may settle what was owed before, and so change what a machine without this cost does.
        if self.costs.irq_leave > 0 {
            self.owe(self.costs.irq_leave);
        }
    }

    /// The running CPU's next timer event is written to the hardware.
    fn write_timer(&self) {
        if self.costs.timer_write > 0 {
            self.owe(self.costs.timer_write);
        }
    }

    /// The next expired sleep timer of the running CPU.
    pub fn take_timer(&self) -> Option<TaskId> {
        let c = self.cpu(self.current.get());
        let mut timers = c.timers.borrow_mut();
        let now = self.now();
        match timers.peek() {
            Some(&Reverse(Due { at, task, device, .. })) if at <= now => {
                timers.pop();
                drop(timers);
                self.recompute_irq(c);
                c.timer_expired.set(!device || c.timer_expired.get());
                Some(task)
            }
            _ => None,
        }
    }

    /// Wake `task` at `at` from the running CPU's timer interrupt.
    #[inline]
    pub fn arm_timer(&self, at: Time, task: TaskId) {
        let cpu = self.current.get();
        let c = self.cpu(cpu);
        let due = self.armed(at, task, false);
        // Whether it is the first is asked only where that matters; what an interrupt arms is written once, as it ends.
        if self.costs.timer_write > 0 && at < c.tick_at.get().min(c.deadline_at.get()) && c.is_before_all(at) {
            if c.serves_interrupt.get() {
                c.timer_expired.set(true);
            } else {
                self.write_timer();
            }
        }
        c.timers.borrow_mut().push(Reverse(due));
        c.irq_at.set(c.irq_at.get().min(at));
    }

    fn armed(&self, at: Time, task: TaskId, device: bool) -> Due {
        let seq = self.seq.get();
        self.seq.set(seq + 1);
        Due { at, seq, task, device }
    }

    /// Wake `task` at `at` from an interrupt of CPU `cpu`, modulo the CPUs there are: a device's.
    pub fn arm_device(&self, at: Time, task: TaskId, cpu: u32) {
        let cpu = CpuId((u64::from(cpu) % self.topology().nr_cpus() as u64) as u16);
        let due = self.armed(at, task, true);
        self.cpu(cpu).timers.borrow_mut().push(Reverse(due));
        self.irq_due(cpu, at);
    }

    /// Set the running CPU's one-shot timer.
    #[inline]
    pub fn program_timer(&self, at: Time) {
        let c = self.cpu(self.current.get());
        c.deadline_at.set(at);
        self.recompute_irq(c);
    }

    /// Cost of taking an interrupt, in ns.
    pub(crate) fn irq_cost(&self) -> Nanos {
        self.costs.irq_enter + self.costs.irq_leave
    }

    /// The running CPU, idle until now, is about to look for a task: the tick is set up again, if it was stopped.
    /// Returns what of that the woken task's CPU time has: where idle CPUs halt an interrupt queued the task before, and its clock was read then.
    pub fn leave_idle(&self) -> Nanos {
        let restart = self.costs.tick_restart;
        if restart == 0 || !self.cpu(self.current.get()).tick_stopped.get() {
            return 0;
        }
        self.owe(restart);
        if self.costs.idle_halts { restart } else { 0 }
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
            self.write_timer();
        } else {
            c.tick_at.set(first_tick(self.now(), cpu, self.cpus.len(), self.costs.tick_period));
        }
        self.recompute_irq(c);
    }
}

/// The first tick after `now` on the grid of `cpu`, one of `cpus`. CPUs tick at the same rate but not at the same moment
/// (skewed, so that they do not convoy on a lock).
pub(crate) fn first_tick(now: Time, cpu: CpuId, cpus: usize, period: Nanos) -> Time {
    let phase = period * u64::from(cpu.0) / cpus as u64;
    let k = if now < phase { 0 } else { (now - phase) / period + 1 };
    k * period + phase
}

/// The tick after the one that came due at `at`. Those that were missed until `now`, with interrupts off, are one tick.
pub(crate) fn next_tick(at: Time, now: Time, period: Nanos) -> Time {
    at + ((now - at) / period + 1) * period
}
