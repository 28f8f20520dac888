//! Threads that take one lock in turn: the closed form of a saturated lock is 1 / (hold + hand-over).

use contend_platform::{Nanos, Time};
use contend_sim::program::{Cx, ObjId, ObjectKind, Op, Program, TaskSpec, Workload};

use super::{DURATION_MS_MAX, NS_PER_MS, only, up_to};
use crate::spec::keys::spec;
use crate::spec::value::words;
use crate::spec::{Build, WorkloadError};

words! {
    /// Which lock.
    LockKind {
        /// A sleeping mutex of user space.
        Mutex = "mutex",
        /// A kernel spinlock, taken inside a system call.
        Spinlock = "spinlock",
    }
}

spec! {
    /// Threads on one lock: critical section, then work outside it. Runs until the duration is over.
    /// Counts: acquisitions. Latencies: lock_wait (mutex), section (spinlock: from asking for the lock until its release).
    pub struct LockLoop = "lock-loop" {
        /// Threads. Default: no tool's; enough to saturate the lock.
        tasks: u64 [1..=1_000_000] = 8, "tasks";
        /// "mutex" or "spinlock". Default: no tool's.
        lock: LockKind [()] = LockKind::Mutex, "";
        /// Time with the lock held. Default: no tool's.
        critical_ns: u64 [0..=1_000_000_000] = 1000, "ns";
        /// Time between unlock and lock. Default: no tool's.
        outside_ns: u64 [0..=1_000_000_000] = 1000, "ns";
        /// Random addition to the time between unlock and lock, from none to this. Default: none, for closed forms.
        jitter_pct: u64 [0..=1000] = 0, "%";
        /// Thread i on CPU i (modulo their number) alone. Default: free to move.
        pin: bool [()] = false, "";
        /// How long. Default: no tool's.
        duration_ms: u64 [1..=DURATION_MS_MAX] = 1000, "ms";
    }
}

#[derive(Clone, Copy)]
enum Step {
    Outside,
    Lock,
    Critical,
    Unlock,
}

struct Locker {
    lock: ObjId,
    kind: LockKind,
    critical: Nanos,
    outside: Nanos,
    jitter: Nanos,
    asked: Time,
    step: Step,
}

impl Program for Locker {
    fn next(&mut self, cx: &mut Cx<'_>) -> Op {
        match (self.step, self.kind) {
            (Step::Outside, _) => {
                self.step = Step::Lock;
                Op::Run(self.outside + up_to(self.jitter, cx.rng))
            }
            (Step::Lock, LockKind::Mutex) => {
                self.step = Step::Critical;
                self.asked = cx.now;
                Op::Lock(self.lock)
            }
            (Step::Lock, LockKind::Spinlock) => {
                self.step = Step::Unlock;
                self.asked = cx.now;
                Op::kernel_lock(self.lock, self.critical)
            }
            (Step::Critical, _) => {
                self.step = Step::Unlock;
                cx.metrics.latency("lock_wait", cx.now - self.asked);
                Op::Run(self.critical)
            }
            (Step::Unlock, kind) => {
                cx.metrics.count("acquisitions", 1);
                if kind == LockKind::Mutex {
                    self.step = Step::Outside;
                    return Op::Unlock(self.lock);
                }
                // The kernel's lock is taken and released within one system call: how long that took is all there is to see.
                cx.metrics.latency("section", cx.now - self.asked);
                self.step = Step::Lock;
                Op::Run(self.outside + up_to(self.jitter, cx.rng))
            }
        }
    }
}

impl Build for LockLoop {
    fn tasks(&self) -> u64 {
        self.tasks
    }

    fn build(&self, w: &mut Workload, nr_cpus: usize) -> Result<(), WorkloadError> {
        let lock = match self.lock {
            LockKind::Mutex => w.object("lock-loop", ObjectKind::Mutex),
            LockKind::Spinlock => w.object("lock-loop", ObjectKind::SpinLock),
        };
        for i in 0..self.tasks {
            let (critical, outside) = (self.critical_ns, self.outside_ns);
            let jitter = outside * self.jitter_pct / 100;
            let locker = Locker { lock, kind: self.lock, critical, outside, jitter, asked: 0, step: Step::Outside };
            let mut task = TaskSpec::new(format!("locker{i}"), locker);
            task.affinity = self.pin.then(|| only(i as usize % nr_cpus, nr_cpus));
            w.task(task);
        }
        w.horizon = Some(self.duration_ms * NS_PER_MS);
        Ok(())
    }
}
