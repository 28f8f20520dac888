//! Tasks whose code has a stack: their birth, their calls, and when they are stuck.

use super::{Birth, Code, Os, Pending};
use crate::program::Op;
use crate::thread::{Call, Ready};
use crate::world::{Sim, World};
use contend_platform::{CpuId, Ipi, Nanos, Ordering, Platform, SchedPlatform, TaskId, Time, Work};
use contend_sched::cpuset::Affinity;
use contend_sched::kernel::{Kernel, SyscallEnd};
use contend_sched::policy::Policy;
use contend_sched::rq::peek_curr;
use std::rc::Rc;

impl Os<Sim> {
    pub(crate) fn spawn_thread<L: Policy>(&self, kernel: &Kernel<Sim, L>, p: &Sim, thread: Ready) {
        let Ready { name, code: stack, sched, group, affinity, background, working_set_kib, vcpu } = thread;
        let code = Code::Thread(Rc::clone(stack.state()));
        let affinity = affinity.map_or(Affinity::ALL, Affinity::only);
        let task = self.create(kernel, p, Birth { name, code, sched, group, affinity, background, working_set_kib });
        p.engine().give_code(task, stack);
        if let (Some((vm, number)), Some(kvm)) = (vcpu, p.kvm()) {
            kvm.adopt(p, kernel, task, vm, number);
        }
        kernel.wake_up_started(p, task);
    }

    /// What a thread has trapped for: an operation that programs can ask for too, or, served here, a call on a word.
    #[cold]
    pub(crate) fn serve_thread<L: Policy>(
        &self,
        kernel: &Kernel<Sim, L>,
        p: &Sim,
        task: TaskId,
    ) -> Result<Op, SyscallEnd> {
        let state = self.with(task, |t| t.thread.clone()).expect("the task is a thread");
        match state.call.take().expect("a thread traps with a call") {
            Call::Op(op) => Ok(op),
            Call::Exit => Ok(Op::Exit),
            Call::Wait { word, expected } => {
                p.charge(Work::Syscall, 1);
                // SAFETY: the thread that called is inside `Thread::halt`, which borrows the word until the call is over.
                let word = unsafe { &*word };
                state.halts.set(Some((word.line, expected)));
                Err(self.word_wait(kernel, p, task, word, expected))
            }
            Call::Usage => {
                p.charge(Work::Syscall, 1);
                let (stats, on) = kernel.task(task).ent.observe(|e| (e.stats, e.queued_on));
                let since = on.map_or(p.now(), |cpu| kernel.rq(cpu).data.observe(|rd| rd.curr_since));
                let cpu_ns = stats.sum_exec + p.now().saturating_sub(since);
                state.usage.set((cpu_ns, stats.preempted));
                Err(self.done(task))
            }
            Call::Barrier => {
                p.charge(Work::Syscall, 1);
                self.membarrier(kernel, p);
                Err(self.done(task))
            }
            Call::Vcpu(call) => Err(self.vcpu_exit(kernel, p, task, call)),
            Call::Wake(futex) => {
                p.charge(Work::Syscall, 1);
                Err(self.word_wake(kernel, p, futex))
            }
        }
    }

    /// Interrupt all other CPUs on which threads run (they are taken for one process's), and wait until they have answered.
    fn membarrier<L: Policy>(&self, kernel: &Kernel<Sim, L>, p: &Sim) {
        let mut wait = 0;
        for cpu in (0..p.nr_cpus()).map(|cpu| CpuId(cpu as u16)).filter(|cpu| *cpu != p.cpu()) {
            let curr = peek_curr(p.load(&kernel.rq(cpu).peek, Ordering::Acquire));
            if curr.is_some_and(|task| self.with(task, |t| t.thread.is_some())) {
                p.send_ipi(cpu, Ipi::Reschedule);
                wait = wait.max(p.engine().ipi_answer(cpu));
            }
        }
        p.charge(Work::Ns, wait);
    }

    /// A thread goes on with a call that blocked.
    #[cold]
    pub(crate) fn thread_goes_on<L: Policy>(&self, kernel: &Kernel<Sim, L>, p: &Sim, task: TaskId) -> SyscallEnd {
        match self.with(task, |t| t.pending) {
            Pending::Vcpu(wait) => self.vcpu_goes_on(kernel, p, task, wait),
            _ => self.word_woken(kernel, p, task),
        }
    }

    /// Do all tasks but background programs wait, and have waited for as long as this, for what only threads can give? Then
    /// no thread will ever go on.
    pub(crate) fn stuck(&self, now: Time, long: Nanos) -> bool {
        let tasks = self.tasks.borrow();
        let mut threads = 0;
        let stuck = tasks.iter().flatten().filter(|t| t.alive).all(|t| {
            let Some(state) = &t.thread else { return t.background };
            threads += 1;
            let spins = state.spins.get().is_some_and(|s| !s.bounded && now.saturating_sub(s.since) > long);
            let waits = match t.pending {
                Pending::WordFutex => !t.woken,
                // A halted vCPU with a timer will go on by itself.
                Pending::Vcpu(wait) => wait.for_ever(),
                _ => false,
            };
            spins || waits
        });
        stuck && threads > 0
    }

    /// Does somebody sleep until a time that is still to come?
    pub(crate) fn sleeps(&self, now: Time) -> bool {
        self.tasks.borrow().iter().flatten().filter(|t| t.alive).any(|t| match t.pending {
            Pending::Sleep(until) => until > now,
            // A halted vCPU with a timer.
            Pending::Vcpu(wait) => !wait.for_ever(),
            _ => false,
        })
    }
}

impl<W: World> Os<W> {
    /// A thread's call has been served as far as it goes: its code does not go on while the call waits.
    #[cold]
    pub(super) fn thread_served(&self, task: TaskId, end: SyscallEnd) {
        self.with(task, |t| {
            if let Some(state) = &t.thread {
                state.in_kernel.set(t.pending != Pending::Nothing && end != SyscallEnd::Exit);
            }
        });
    }
}
