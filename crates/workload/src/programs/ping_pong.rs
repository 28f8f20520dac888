//! Pairs of tasks that wake one another in turn, as `perf bench sched pipe` does.

use contend_platform::{Nanos, Time};
use contend_sim::program::{Cx, ObjId, ObjectKind, Op, Program, TaskSpec, Workload};

use super::{PIPE_BYTES, only, up_to};
use crate::spec::keys::spec;
use crate::spec::value::words;
use crate::spec::{Build, SpecError, SpecProblem, WorkloadError};

words! {
    /// How the two wake one another.
    Channel {
        /// Two pipes.
        Pipe = "pipe",
        /// Two semaphores on futexes.
        Futex = "futex",
    }
}

words! {
    /// Where the two of a pair run.
    Pin {
        /// Anywhere.
        None = "none",
        /// Both on CPU i.
        Same = "same",
        /// On CPUs 2i and 2i + 1.
        Near = "near",
        /// On CPU i and the one half the machine's CPUs away by number.
        Far = "far",
    }
}

spec! {
    /// Pairs of tasks that wake one another in turn, as `perf bench sched pipe`. Ends after the round trips.
    /// Counts: round_trips. Latencies: round_trip.
    pub struct PingPong = "ping-pong" {
        /// Pairs. Default: the tool's.
        pairs: u64 [1..=500_000] = 1, "pairs";
        /// Round trips of each pair (-l). Default: a tenth of the tool's 1,000,000.
        round_trips: u64 [1..=1_000_000_000] = 100_000, "round trips";
        /// "pipe" or "futex". Default: the tool's.
        channel: Channel [()] = Channel::Pipe, "";
        /// Size of a message; a futex has none. Default: the tool's int.
        bytes: u64 [1..=65_536] = 4, "bytes";
        /// Work of either side between its wake-up and its answer. Default: the tool does none.
        work_ns: u64 [0..=1_000_000_000] = 0, "ns";
        /// Random addition to that work, from none to this. Default: the tool has none.
        jitter_pct: u64 [0..=1000] = 0, "%";
        /// Where pair i runs: "none" (anywhere), "same" (both on CPU i), "near" (CPUs 2i and 2i + 1), "far" (CPU i and
        /// the one half the machine's CPUs away, by number); i modulo the places there are. Default: the tool's.
        pin: Pin [()] = Pin::None, "";
    }
}

struct Side {
    channel: Channel,
    to: ObjId,
    from: ObjId,
    bytes: u32,
    work: Nanos,
    jitter: Nanos,
    /// Rounds left, the running one included.
    left: u64,
    /// The side that begins, and measures.
    leads: bool,
    started: Time,
    step: Step,
}

#[derive(Clone, Copy, PartialEq)]
enum Step {
    /// Work, then send.
    Work,
    Send,
    Receive,
    /// The answer has come.
    Round,
}

impl Side {
    fn send(&self) -> Op {
        match self.channel {
            Channel::Pipe => Op::Write(self.to, self.bytes),
            Channel::Futex => Op::SemPost(self.to, 1),
        }
    }
    fn receive(&self) -> Op {
        match self.channel {
            Channel::Pipe => Op::Read(self.from, self.bytes),
            Channel::Futex => Op::SemWait(self.from),
        }
    }
}

impl Program for Side {
    fn next(&mut self, cx: &mut Cx<'_>) -> Op {
        loop {
            match self.step {
                Step::Work => {
                    self.step = Step::Send;
                    if self.work > 0 {
                        return Op::Run(self.work + up_to(self.jitter, cx.rng));
                    }
                }
                Step::Send => {
                    self.step = if self.leads { Step::Receive } else { Step::Round };
                    return self.send();
                }
                Step::Receive => {
                    self.step = if self.leads { Step::Round } else { Step::Work };
                    return self.receive();
                }
                Step::Round => {
                    if self.leads {
                        cx.metrics.count("round_trips", 1);
                        cx.metrics.latency("round_trip", cx.now - self.started);
                        self.started = cx.now;
                    }
                    self.left -= 1;
                    if self.left == 0 {
                        return Op::Exit;
                    }
                    self.step = if self.leads { Step::Work } else { Step::Receive };
                }
            }
        }
    }
}

impl Build for PingPong {
    fn tasks(&self) -> u64 {
        self.pairs * 2
    }

    fn build(&self, w: &mut Workload, nr_cpus: usize) -> Result<(), WorkloadError> {
        if matches!(self.pin, Pin::Near | Pin::Far) && nr_cpus < 2 {
            let found = format!("\"{}\" on a machine with one CPU", self.pin.word());
            let problem = SpecProblem::Value { found, right: "\"none\" or \"same\"".into() };
            return Err(SpecError { key: "workload.pin".into(), span: None, problem }.into());
        }
        for i in 0..self.pairs {
            let n = i as usize;
            let cpus = match self.pin {
                Pin::None => None,
                Pin::Same => Some([n % nr_cpus; 2]),
                Pin::Near => Some([n % (nr_cpus / 2) * 2, n % (nr_cpus / 2) * 2 + 1]),
                Pin::Far => Some([n % (nr_cpus / 2), n % (nr_cpus / 2) + nr_cpus / 2]),
            };
            let mut object = |name| match self.channel {
                Channel::Pipe => w.object(format!("{name}{i}"), ObjectKind::Pipe { capacity: PIPE_BYTES }),
                Channel::Futex => w.object(format!("{name}{i}"), ObjectKind::Semaphore { initial: 0 }),
            };
            let (there, back) = (object("ping"), object("pong"));
            for leads in [true, false] {
                let (to, from) = if leads { (there, back) } else { (back, there) };
                let side = Side {
                    channel: self.channel,
                    to,
                    from,
                    bytes: self.bytes as u32,
                    work: self.work_ns,
                    jitter: self.work_ns * self.jitter_pct / 100,
                    left: self.round_trips,
                    leads,
                    started: 0,
                    step: if leads { Step::Work } else { Step::Receive },
                };
                let mut task = TaskSpec::new(format!("{}{i}", if leads { "ping" } else { "pong" }), side);
                task.affinity = cpus.map(|c| only(c[usize::from(!leads)], nr_cpus));
                w.task(task);
            }
        }
        Ok(())
    }
}
