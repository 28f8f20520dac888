//! The ways into the kernel and out of it: the CPU loop, traps, interrupts, the tick.

use super::schedule::Why;
use super::{Kernel, Outside, SyscallEnd, Syscalls};
use crate::features::Balance;
use crate::policy::Policy;
use crate::rq::{NEED_RESCHED, POLLING, RESCHED_MASK};
use crate::task::state;
use contend_platform::Ordering::{AcqRel, Acquire, Relaxed};
use contend_platform::{Account, Ipi, SchedEvent, SchedPlatform, TaskId, Trap, Work};

impl<P: SchedPlatform, L: Policy> Kernel<P, L> {
    /// What a CPU does, until [`Syscalls::stopped`].
    pub fn cpu_loop<S: Syscalls<P, L>>(&self, p: &P, sys: &S) {
        let mut outside = self.cpu_up(p);
        while !sys.stopped(p) {
            outside = match outside {
                Outside::Idle => {
                    p.idle(&self.rq(p.cpu()).resched);
                    self.idle_ended(p, sys)
                }
                Outside::User(task) => {
                    let trap = p.run_user(task);
                    self.trapped(p, sys, task, trap)
                }
            };
        }
    }

    /// The calling CPU comes up, idle.
    pub fn cpu_up(&self, p: &P) -> Outside {
        self.idle_entered(p, false);
        self.leave(p, None)
    }

    /// The task that the calling CPU ran has entered the kernel: what there is to do, until the CPU leaves it again.
    pub fn trapped<S: Syscalls<P, L>>(&self, p: &P, sys: &S, task: TaskId, trap: Trap) -> Outside {
        let mut moving = None;
        let why = match trap {
            Trap::Interrupt => {
                self.interrupts(p, sys);
                None
            }
            Trap::Syscall => match sys.syscall(self, p, task) {
                SyscallEnd::Continue => None,
                SyscallEnd::Block => Some(Why::Block),
                SyscallEnd::Migrate => {
                    self.announce_sleep(p, task, state::UNINTERRUPTIBLE);
                    moving = Some(task);
                    Some(Why::Block)
                }
                SyscallEnd::MoveTo(cpu) => Some(Why::MoveTo(cpu)),
                SyscallEnd::Yield => Some(Why::Yield),
                SyscallEnd::Exit => Some(Why::Exit),
            },
        };
        let why = match why {
            Some(why) => why,
            None if p.load(&self.rq(p.cpu()).resched, Relaxed) & RESCHED_MASK != 0 => Why::Preempt,
            None => return Outside::User(task),
        };
        let next = self.schedule(p, why);
        if let Some(task) = moving {
            // What the stopper thread does in Linux: place the task where it may run.
            self.try_to_wake_up(p, task, state::UNINTERRUPTIBLE, 0);
        }
        self.leave(p, next)
    }

    /// The calling CPU was idle, and no longer waits: as [`Kernel::trapped`].
    pub fn idle_ended<S: Syscalls<P, L>>(&self, p: &P, sys: &S) -> Outside {
        let rq = self.rq(p.cpu());
        let polls = self.idle_polls(p);
        if polls {
            p.fetch_and(&rq.resched, !POLLING, AcqRel);
        }
        self.interrupts(p, sys);
        // A poller was told by its flag, not by an interrupt, that wake-ups are queued.
        if polls && !rq.wake_list.is_empty(p) {
            self.drain_wake_list(p);
        }
        if p.load(&rq.resched, Acquire) & NEED_RESCHED == 0 {
            return self.leave(p, None);
        }
        let way = p.leave_idle();
        let next = self.schedule(p, Why::Idle { way });
        self.leave(p, next)
    }

    /// The calling CPU is about to leave the kernel, for `next` or to idle.
    fn leave(&self, p: &P, next: Option<TaskId>) -> Outside {
        match next {
            Some(task) => Outside::User(task),
            None => {
                if self.idle_polls(p) {
                    p.fetch_or(&self.rq(p.cpu()).resched, POLLING, AcqRel);
                }
                Outside::Idle
            }
        }
    }

    fn idle_polls(&self, p: &P) -> bool {
        self.features.idle_polling && p.idle_polls()
    }

    /// Serve pending interrupts.
    fn interrupts<S: Syscalls<P, L>>(&self, p: &P, sys: &S) {
        let before = p.enter(Account::Interrupt);
        p.trace(SchedEvent::Interrupt { begin: true });
        while p.interrupt_pending() {
            let found = p.take_interrupts();
            if found.ipis & Ipi::CallFunction.bit() != 0 {
                self.drain_wake_list(p);
                self.bandwidth_interrupt(p);
                sys.call_function(self, p);
            }
            if found.ipis & Ipi::Reschedule.bit() != 0 {
                self.reschedule_interrupt(p);
            }
            if found.timers {
                while let Some(task) = p.take_timer() {
                    p.charge(Work::Timer, 1);
                    if !self.bandwidth_timer(p, task) {
                        sys.timer(self, p, task);
                    }
                }
            }
            if found.tick {
                self.tick(p);
            }
            if found.ipis & Ipi::NohzBalance.bit() != 0 {
                self.nohz_idle_balance(p);
            }
            if found.ipis & Ipi::ActiveBalance.bit() != 0 {
                self.push_running(p);
            }
            p.leave_interrupts();
        }
        p.trace(SchedEvent::Interrupt { begin: false });
        p.enter(before);
    }

    /// scheduler_tick.
    fn tick(&self, p: &P) {
        let cpu = p.cpu();
        p.charge(Work::Tick, 1);
        let held = self.lock(p, cpu);
        let now = p.now();
        let curr = self.with_rq(p, &held, |rd| rd.curr);
        let mut resched = false;
        if let Some(task) = curr {
            let pelt = self.pelt;
            resched = self.with_task(p, &held, task, |rd, e| {
                if pelt {
                    rd.update_averages(now);
                    e.util.update(now, rd.capacity);
                    e.load.update(now, self.weight_of(e));
                }
                self.class_tick(rd, task, e, now)
            });
            resched |= self.bandwidth_tick(p, &held, task);
        }
        resched |= self.with_rq(p, &held, |rd| rd.throttle(&self.features, now));
        if curr.is_some() {
            self.publish(p, &held);
            self.update_misfit(p, &held, curr);
        }
        let crowded =
            self.with_rq(p, &held, |rd| rd.nr_running >= 2) || self.has_misfit(p, cpu) || self.preferred_idles(cpu);
        let due = now >= p.load(&self.rq(cpu).next_balance, Relaxed);
        self.unlock(p, held);
        if resched {
            self.resched(p, cpu);
        }
        if self.features.balance == Balance::Off {
            return;
        }
        if due {
            self.periodic_balance(p, cpu, curr.is_none());
        }
        if curr.is_some() && self.features.nohz_balance {
            self.kick_nohz_balancer(p, crowded);
        }
    }
}
