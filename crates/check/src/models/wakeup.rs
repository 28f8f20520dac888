//! The wake-up path of today against `schedule()`: `contend_sched::wake_protocol` with what surrounds it in a kernel.
//!
//! One task waits until every waker has counted up; each waker counts and then wakes it. CPU 0 runs the task at first; a
//! waker may place it on its own CPU. The world checks that the task runs to its end (no wake-up is lost: otherwise every
//! CPU halts, a deadlock), that it is on one queue at most, and that its private data is never touched by two CPUs
//! without order (a CPU runs it only after the CPU before has saved it).

use crate::Model;
use contend_locks::{MakeLock, RawLock, lock_mover};
use contend_platform::{CpuId, Ordering, Platform, TaskId};
use contend_sched::wake_list::CallList;
use contend_sched::wake_protocol::{
    Claim, RUNNING, WakeWords, announce_sleep, cancel_sleep, claim, enter_cpu, enter_queue, leave_cpu, leave_queue,
    reclaim_queued, wait_off_cpu, wants_sleep,
};
use std::marker::PhantomData;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

const INTERRUPTIBLE: u64 = 1;
const TASK: TaskId = TaskId(0);

/// How a waker gets the task onto another CPU's run queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Path {
    /// Take that run queue's lock.
    RemoteLock,
    /// Queue the wake-up; the target takes its own lock.
    Queue,
    /// Queue, and if the task still switches out, queue at once instead of waiting for that.
    QueueOnCpu,
}

/// Where a waker places the task.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// On the CPU it was on.
    Previous,
    /// On the waker's CPU.
    Waker,
}

/// What an idle CPU does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Idle {
    /// Halts until an interrupt.
    Halts,
    /// Watches its need-resched flag, so that a waker sets the flag and sends no interrupt.
    Polls,
}

/// The model; `L` is the kind of all its locks.
pub struct Wakeup<L> {
    /// Wakers, one a CPU from CPU 1 on.
    pub wakers: usize,
    /// How the task reaches another CPU.
    pub path: Path,
    /// Which CPU.
    pub place: Place,
    /// Idle CPUs.
    pub idle: Idle,
    /// A task that goes to sleep stays queued until its CPU finds nothing better (DELAY_DEQUEUE).
    pub delayed: bool,
    lock: PhantomData<fn() -> L>,
}

impl<L> Wakeup<L> {
    /// A model whose idle CPUs halt.
    pub fn new(wakers: usize, path: Path, place: Place) -> Self {
        Wakeup { wakers, path, place, idle: Idle::Halts, delayed: false, lock: PhantomData }
    }
    /// A model whose idle CPUs poll.
    pub fn polling(wakers: usize, path: Path, place: Place) -> Self {
        Wakeup { idle: Idle::Polls, ..Self::new(wakers, path, place) }
    }
    /// A model with delayed dequeues.
    pub fn delayed(wakers: usize, path: Path, place: Place) -> Self {
        Wakeup { delayed: true, ..Self::new(wakers, path, place) }
    }
}

impl<L> Clone for Wakeup<L> {
    fn clone(&self) -> Self {
        Wakeup { lock: PhantomData, ..*self }
    }
}

/// Bits of [`Cpu::flags`], as in the scheduler.
const NEED_RESCHED: u64 = 1;
const POLLING: u64 = 2;

struct Cpu<P: Platform, L> {
    rq_lock: L,
    /// Tasks that may run here; guarded by `rq_lock`.
    queue: P::Cell<Vec<TaskId>>,
    /// The task sleeps and is still queued here; guarded by `rq_lock`.
    delayed: P::Cell<bool>,
    wake_list: CallList<P>,
    /// An interrupt is pending.
    interrupt: P::Word,
    /// NEED_RESCHED and POLLING.
    flags: P::Word,
}

/// The kernel of the model.
pub struct World<P: Platform, L> {
    cpus: Vec<Cpu<P, L>>,
    pi_lock: L,
    state: P::Word,
    on_rq: P::Word,
    on_cpu: P::Word,
    cpu: P::Word,
    links: Vec<P::Word>,
    /// What the task waits for: wakers that have counted.
    counted: P::Word,
    /// The task's registers and stack: touched by the CPU that runs it.
    private: P::Cell<u64>,
    /// The task's scheduling data: guarded by the lock of its run queue, or by owning its wake-up.
    entity: P::Cell<u64>,
    /// Delayed dequeues.
    delays: bool,
    ended: P::Word,
    /// Queues the task is on: the observer's, unknown to the checkers.
    queues: AtomicUsize,
}

impl<P: Platform, L: RawLock<P>> World<P, L> {
    fn words(&self) -> WakeWords<'_, P> {
        WakeWords { state: &self.state, on_rq: &self.on_rq, on_cpu: &self.on_cpu }
    }
    fn link<'a>(&'a self) -> impl Fn(TaskId) -> &'a P::Word
    where
        P::Word: 'a,
    {
        |task| &self.links[task.index()]
    }

    /// An interrupt. It orders memory, as the hardware's do.
    fn interrupt(&self, p: &P, target: usize) {
        p.fetch_or(&self.cpus[target].interrupt, 1, Ordering::Release);
        p.kick(&self.cpus[target].interrupt, CpuId(target as u16));
    }

    /// Ask a CPU to look at its queues.
    fn notify(&self, p: &P, target: usize) {
        let old = p.fetch_or(&self.cpus[target].flags, NEED_RESCHED, Ordering::AcqRel);
        if old & POLLING == 0 {
            self.interrupt(p, target);
        }
    }

    /// Put the task on the run queue of `target`, whose lock is held.
    fn enqueue(&self, p: &P, target: usize) {
        assert_eq!(self.queues.fetch_add(1, Relaxed), 0, "the task is on two queues");
        // SAFETY: the run queue's lock is held.
        unsafe { p.write(&self.cpus[target].queue, |queue| queue.push(TASK)) };
        self.touch_entity(p);
        enter_queue(p, self.words());
    }

    /// try_to_wake_up.
    fn wake(&self, p: &P, path: Path, place: Place) {
        self.pi_lock.lock(p);
        let mut found = claim(p, self.words(), INTERRUPTIBLE);
        if found == Claim::Queued {
            let at = lock_mover(p, &self.cpu, |cpu| &self.cpus[cpu.index()].rq_lock).index();
            found = match reclaim_queued(p, self.words()) {
                Some(claim) => claim,
                None => {
                    self.revive(p, at);
                    Claim::NotAsleep
                }
            };
            self.cpus[at].rq_lock.unlock(p);
        }
        if let Claim::Claimed { on_cpu } = found {
            self.place(p, path, place, on_cpu);
        }
        self.pi_lock.unlock(p);
    }

    /// A task that was found queued, with that run queue's lock: if its dequeue was delayed, it may run again.
    fn revive(&self, p: &P, at: usize) {
        // SAFETY: the run queue's lock is held.
        let revived = unsafe { p.write(&self.cpus[at].delayed, std::mem::take) };
        if revived {
            assert_eq!(self.queues.fetch_add(1, Relaxed), 0, "the task is on two queues");
            self.touch_entity(p);
            // SAFETY: the run queue's lock is held.
            unsafe { p.write(&self.cpus[at].queue, |queue| queue.push(TASK)) };
            if at != p.cpu().index() {
                self.notify(p, at);
            }
        }
    }

    fn touch_entity(&self, p: &P) {
        // SAFETY: the callers hold the lock of the task's run queue or own its wake-up; that this excludes is checked.
        unsafe { p.write(&self.entity, |entity| *entity += 1) };
    }

    /// The part of it that owns the wake-up.
    fn place(&self, p: &P, path: Path, place: Place, on_cpu: bool) {
        let me = p.cpu().index();
        let previous = p.load(&self.cpu, Ordering::Relaxed) as usize;
        if on_cpu && path == Path::QueueOnCpu && previous != me {
            return self.queue(p, previous);
        }
        if on_cpu {
            wait_off_cpu(p, self.words());
        }
        // Placement, without any run-queue lock.
        self.touch_entity(p);
        let target = if place == Place::Previous { previous } else { me };
        p.store(&self.cpu, target as u64, Ordering::Relaxed);
        if target != me && path != Path::RemoteLock {
            return self.queue(p, target);
        }
        let rq_lock = &self.cpus[target].rq_lock;
        rq_lock.lock(p);
        self.enqueue(p, target);
        rq_lock.unlock(p);
        if target != me {
            self.notify(p, target);
        }
    }

    fn queue(&self, p: &P, target: usize) {
        if self.cpus[target].wake_list.push(p, &self.link(), TASK) {
            self.notify(p, target);
        }
    }

    /// The interrupt handler: queued wake-ups.
    fn drain(&self, p: &P, me: usize) {
        let cpu = &self.cpus[me];
        cpu.rq_lock.lock(p);
        cpu.wake_list.drain(p, &self.link(), |_| {
            // A task queued while it still switched out did so on this CPU, which has finished that before.
            assert_eq!(p.load(&self.on_cpu, Ordering::Acquire), 0, "enqueued while it still switches out");
            self.enqueue(p, me);
        });
        cpu.rq_lock.unlock(p);
    }

    /// The loop of a CPU, until the task has ended. `running`: it begins inside the task.
    fn cpu_loop(&self, p: &P, wakers: usize, idle: Idle, mut running: bool) {
        let me = p.cpu().index();
        let cpu = &self.cpus[me];
        loop {
            if running {
                self.run_task(p, me, wakers);
            }
            let interrupted = p.swap(&cpu.interrupt, 0, Ordering::Acquire) != 0;
            let told = p.fetch_and(&cpu.flags, !NEED_RESCHED, Ordering::AcqRel) & NEED_RESCHED != 0;
            // After the interrupt was taken, so that the one that tells of the end is not taken for another.
            if p.load(&self.ended, Ordering::Acquire) != 0 {
                return;
            }
            if interrupted || told {
                self.drain(p, me);
            }
            cpu.rq_lock.lock(p);
            // SAFETY: the run queue's lock is held.
            running = unsafe { p.write(&cpu.queue, Vec::pop) }.is_some();
            if running {
                self.queues.fetch_sub(1, Relaxed);
                enter_cpu(p, self.words());
            // SAFETY: the run queue's lock is held.
            } else if unsafe { p.write(&cpu.delayed, std::mem::take) } {
                self.touch_entity(p);
                leave_queue(p, self.words());
            }
            cpu.rq_lock.unlock(p);
            if !running {
                match idle {
                    Idle::Halts => p.halt(&cpu.interrupt, 0),
                    Idle::Polls => {
                        p.fetch_or(&cpu.flags, POLLING, Ordering::AcqRel);
                        p.wait_until([&cpu.flags, &cpu.interrupt], None, |[flags, interrupt]| {
                            flags & NEED_RESCHED != 0 || interrupt != 0
                        });
                        p.fetch_and(&cpu.flags, !POLLING, Ordering::AcqRel);
                    }
                }
            }
        }
    }

    /// The running task calls schedule() without wanting to sleep.
    fn yields(&self, p: &P, me: usize) {
        let rq_lock = &self.cpus[me].rq_lock;
        rq_lock.lock(p);
        assert!(!wants_sleep(p, self.words()), "a running task was taken for asleep");
        rq_lock.unlock(p);
    }

    /// The task, until it sleeps or ends.
    fn run_task(&self, p: &P, me: usize, wakers: usize) {
        let words = self.words();
        self.yields(p, me);
        loop {
            // SAFETY: the task runs on this CPU alone: that this is so, and ordered, is what is checked.
            unsafe { p.write(&self.private, |private| *private += 1) };
            announce_sleep(p, words, INTERRUPTIBLE);
            if p.load(&self.counted, Ordering::Relaxed) >= wakers as u64 {
                cancel_sleep(p, words);
                self.yields(p, me);
                p.store(&self.ended, 1, Ordering::Release);
                (0..self.cpus.len()).for_each(|cpu| self.interrupt(p, cpu));
                return;
            }
            // schedule()
            let rq_lock = &self.cpus[me].rq_lock;
            rq_lock.lock(p);
            let sleeps = wants_sleep(p, words);
            if sleeps {
                self.touch_entity(p);
                if self.delays {
                    // SAFETY: the run queue's lock is held.
                    unsafe { p.write(&self.cpus[me].delayed, |delayed| *delayed = true) };
                } else {
                    leave_queue(p, words);
                }
                // SAFETY: the registers are saved last; nobody else may run the task yet.
                unsafe { p.write(&self.private, |private| *private += 1) };
                leave_cpu(p, words);
            }
            rq_lock.unlock(p);
            if sleeps {
                return;
            }
        }
    }
}

impl<P: Platform, L: MakeLock<P> + 'static> Model<P> for Wakeup<L> {
    type Shared = World<P, L>;

    fn cpus(&self) -> usize {
        1 + self.wakers
    }
    fn setup(&self, p: &P) -> World<P, L> {
        let n = 1 + self.wakers;
        let pool = std::sync::Arc::new(L::pool(p, n));
        let word = |init| p.word(p.line(), init);
        let cpu = |_| Cpu {
            rq_lock: L::on_line(p, p.line(), &pool),
            queue: p.cell(p.line(), Vec::new()),
            delayed: p.cell(p.line(), false),
            wake_list: CallList::new(p, p.line()),
            interrupt: word(0),
            flags: word(0),
        };
        World {
            cpus: (0..n).map(cpu).collect(),
            pi_lock: L::on_line(p, p.line(), &pool),
            state: word(0),
            on_rq: word(1),
            on_cpu: word(1),
            cpu: word(0),
            links: vec![word(0)],
            counted: word(0),
            private: p.cell(p.line(), 0),
            entity: p.cell(p.line(), 0),
            delays: self.delayed,
            ended: word(0),
            queues: AtomicUsize::new(0),
        }
    }
    fn run(&self, p: &P, s: &World<P, L>) {
        if p.cpu() == CpuId(0) {
            s.cpu_loop(p, self.wakers, self.idle, true);
        } else {
            p.fetch_add(&s.counted, 1, Ordering::Relaxed);
            s.wake(p, self.path, self.place);
            if self.place == Place::Waker {
                s.cpu_loop(p, self.wakers, self.idle, false);
            }
        }
    }
    fn finish(&self, p: &P, s: &World<P, L>) {
        // The task has ended running: nobody may own a wake-up of it, or have queued it.
        assert_eq!(p.load(&s.state, Ordering::Relaxed), RUNNING, "somebody still wakes the task");
        assert_eq!(s.queues.load(Relaxed), 0, "the task runs and is on a queue");
        assert!(s.cpus.iter().all(|cpu| cpu.wake_list.is_empty(p)), "the task runs and is on a wake list");
    }
}
