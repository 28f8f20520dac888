//! The steps that an exact model's tasks do.

use contend_sim::program::{Sched, Share};

/// One step in 8 bytes: a kind in the upper 8 bits, why it sleeps or how it wakes in the next 6, a number below.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Step(u64);

/// A step, unpacked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum What {
    /// Nothing: a post that ended no sleep.
    Nop,
    /// Run for this many ns of CPU time.
    Run(u64),
    /// The system call that did the step before goes on for this many ns of CPU time, and then either returns or does the next
    /// step, too: a sleep or the exit (`true`).
    Kernel(u64, bool),
    /// Sleep for this many ns. [`What::By`] follows if a task's post ended it: then until that task's post.
    Sleep(u64, Why),
    /// The task that ended the sleep before.
    By(u32),
    /// The CPU on which the sleep before was ended, by an interrupt or by a kernel thread.
    On(u32),
    /// Wake this task; synchronously (WF_SYNC), as pipes and sockets do: the waker says that it will sleep soon.
    Post(u32, bool),
    /// Start this task.
    Spawn(u32),
    /// Execute a program (`execve`).
    Exec,
    /// Let others run (`sched_yield`).
    Yield,
    /// Lock the mutex of this number. If the task had to wait for it (`true`), what it did until [`What::Locked`] was that.
    Lock(u32, bool),
    /// It has the mutex that it waited for.
    Locked,
    /// Unlock this mutex. A post that follows is part of it.
    Unlock(u32),
    /// It arrives at the barrier of this number: the wait that follows is there, or the posts that follow are for those who wait there.
    Barrier(u32),
    /// From here on it is of this class and priority.
    Sched(Sched),
    /// The recorded kernel did so many ns more for the step before than it does for each of its kind. In recordings only, not in models.
    Extra(u64),
}

/// What ended a sleep.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, PartialOrd, Ord)]
pub enum Why {
    /// Another task of the model: [`What::By`] follows.
    Task,
    /// A timer.
    Timer,
    /// A device, or a kernel thread that serves one; or the sleep was uninterruptible and an interrupt ended it. [`What::On`]
    /// follows.
    Io,
    /// A task that is not in the model.
    Outside,
    /// An interrupt, and the recording does not tell which.
    Interrupt,
    /// The end was not recorded.
    Unseen,
}

impl Why {
    /// All, in the order of their numbers.
    pub const ALL: [Why; 6] = [Why::Task, Why::Timer, Why::Io, Why::Outside, Why::Interrupt, Why::Unseen];

    /// In a word, as files have it.
    pub fn name(self) -> &'static str {
        match self {
            Why::Task => "task",
            Why::Timer => "timer",
            Why::Io => "io",
            Why::Outside => "outside",
            Why::Interrupt => "interrupt",
            Why::Unseen => "unseen",
        }
    }

    /// From the word.
    pub fn find(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|w| w.name() == name)
    }
}

/// Times are cut at 13 days.
const NUMBER: u64 = (1 << 50) - 1;

impl Step {
    /// Pack a step; a time is cut at 2^50 ns.
    pub fn new(what: What) -> Self {
        let (tag, why, number) = match what {
            What::Nop => (0, 0, 0),
            What::Run(ns) => (1, 0, ns),
            What::Sleep(ns, why) => (2, why as u64, ns),
            What::By(t) => (3, 0, t.into()),
            What::Post(t, sync) => (4, u64::from(sync), t.into()),
            What::Spawn(t) => (5, 0, t.into()),
            What::On(cpu) => (6, 0, cpu.into()),
            What::Yield => (7, 0, 0),
            What::Kernel(ns, blocks) => (8, u64::from(blocks), ns),
            What::Lock(mutex, waited) => (9, u64::from(waited), mutex.into()),
            What::Locked => (10, 0, 0),
            What::Unlock(mutex) => (11, 0, mutex.into()),
            What::Sched(sched) => {
                let (class, n) = pack(sched);
                (12, class, n)
            }
            What::Extra(ns) => (13, 0, ns),
            What::Exec => (14, 0, 0),
            What::Barrier(barrier) => (15, 0, barrier.into()),
        };
        Step(tag << 56 | why << 50 | number.min(NUMBER))
    }

    /// Unpack it.
    pub fn what(self) -> What {
        let n = self.0 & NUMBER;
        match self.0 >> 56 {
            1 => What::Run(n),
            2 => What::Sleep(n, Why::ALL[(self.0 >> 50 & 0x3f) as usize]),
            3 => What::By(n as u32),
            4 => What::Post(n as u32, self.0 >> 50 & 1 != 0),
            5 => What::Spawn(n as u32),
            6 => What::On(n as u32),
            7 => What::Yield,
            8 => What::Kernel(n, self.0 >> 50 & 1 != 0),
            9 => What::Lock(n as u32, self.0 >> 50 & 1 != 0),
            10 => What::Locked,
            11 => What::Unlock(n as u32),
            12 => What::Sched(unpack(self.0 >> 50 & 0x3f, n)),
            13 => What::Extra(n),
            14 => What::Exec,
            15 => What::Barrier(n as u32),
            _ => What::Nop,
        }
    }
}

/// A class in 6 bits; its priority or nice value in the lowest 8 of the others, its slice above.
fn pack(sched: Sched) -> (u64, u64) {
    let share = |s: Share| u64::from(s.nice.cast_unsigned()) | u64::from(s.slice_us) << 8;
    match sched {
        Sched::Normal(s) => (0, share(s)),
        Sched::Batch(s) => (1, share(s)),
        Sched::Idle => (2, 0),
        Sched::Fifo(prio) => (3, prio.into()),
        Sched::RoundRobin(prio) => (4, prio.into()),
    }
}

fn unpack(class: u64, n: u64) -> Sched {
    let prio = n as u8;
    let share = || Share { nice: prio.cast_signed(), slice_us: (n >> 8) as u32 };
    match class {
        0 => Sched::Normal(share()),
        1 => Sched::Batch(share()),
        2 => Sched::Idle,
        3 => Sched::Fifo(prio),
        _ => Sched::RoundRobin(prio),
    }
}
