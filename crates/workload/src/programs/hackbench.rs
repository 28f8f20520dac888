//! hackbench: groups of senders and receivers; every sender writes to every receiver of its group.
//!
//! After hackbench(8) of rt-tests. All tasks wait at a gate until the last has started; then each sender writes `loops`
//! times one message to each receiver of its group, and a receiver reads until it has had all of them. What the tool
//! reports as its time is the counter `run_ns`: from the opening of the gate to the last receiver's end.
//!
//! The tool's process and thread modes are one here: the simulator's switch costs do not depend on the address space,
//! and the reference counts of a shared file table are not modelled.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use contend_platform::Nanos;
use contend_sim::program::{Cx, ObjId, ObjectKind, Op, Program, Workload};

use super::{PIPE_BYTES, cached, up_to};
use crate::spec::Build;
use crate::spec::WorkloadError;
use crate::spec::keys::spec;
use crate::spec::value::words;

words! {
    /// What messages travel through.
    Transport {
        /// Pipes (`-p`).
        Pipe = "pipe",
        /// Local stream sockets.
        Socket = "socket",
    }
}

spec! {
    /// Groups of senders and receivers over pipes or sockets, after hackbench(8). Ends when all messages have arrived.
    /// Counts: messages, run_ns (from the start signal to the last receiver's end).
    pub struct Hackbench = "hackbench" {
        /// Groups (-g). Default: the tool's.
        groups: u64 [1..=25_000] = 10, "groups";
        /// Senders, and as many receivers, of a group (-f). Default: the tool's.
        fds: u64 [1..=10_000] = 20, "tasks";
        /// Messages that a sender writes to each receiver (-l). Default: the tool's.
        loops: u64 [1..=100_000_000] = 100, "messages";
        /// Size of a message (-s). Default: the tool's.
        bytes: u64 [1..=65_536] = 100, "bytes";
        /// "pipe" (-p) or "socket". Default: the tool's.
        transport: Transport [()] = Transport::Socket, "";
        /// User-space work of either side for each message, run once for every `fds` messages. Default: an estimate, two
        /// calls through the C library and a loop.
        work_ns: u64 [0..=1_000_000] = 50, "ns";
        /// Each stretch of that work is longer or shorter by up to this, at random: runs with different seeds differ as
        /// runs on a machine do. Default: an estimate.
        jitter_pct: u64 [0..=100] = 10, "%";
        /// Working set of a task, fetched again after a migration. Default: an estimate, no data to speak
        /// of; 8 for stacks, sockets and descriptors of the task.
        working_set_kib: u64 [0..=1_048_576] = 8, "KiB";
    }
}

/// Send buffer of a local socket: net.core.wmem_default of x86-64 kernels.
const SOCKET_BYTES: u64 = 212_992;
/// What a small message takes of it beyond its bytes. Estimate: a socket buffer of 256 bytes, and data with its
/// trailer in a slab object of 512 bytes, for 100 bytes: 768 - 100.
const SOCKET_OVERHEAD: u64 = 668;

/// What the tasks of a run share.
struct Shared {
    /// Receivers that still read.
    left: AtomicU64,
    /// When the gate opened.
    start: AtomicU64,
}

struct Sender {
    shared: Arc<Shared>,
    gate: ObjId,
    /// The group's first receiver's object; the others follow.
    first: u32,
    fds: u32,
    bytes: u32,
    work: Nanos,
    /// Added to each stretch of work at random, from none to this.
    jitter: Nanos,
    loops: u64,
    /// Receivers served in this loop.
    at: u32,
    waited: bool,
}

impl Program for Sender {
    fn next(&mut self, cx: &mut Cx<'_>) -> Op {
        if self.at < self.fds {
            self.at += 1;
            return Op::Write(ObjId(self.first + self.at - 1), self.bytes);
        }
        if !self.waited {
            self.waited = true;
            return Op::Barrier(self.gate);
        }
        self.shared.start.fetch_min(cx.now, Relaxed);
        if self.loops == 0 {
            return Op::Exit;
        }
        self.loops -= 1;
        self.at = 0;
        Op::Run(self.work + up_to(self.jitter, cx.rng))
    }
}

struct Receiver {
    shared: Arc<Shared>,
    gate: ObjId,
    pipe: ObjId,
    fds: u32,
    bytes: u32,
    work: Nanos,
    /// Added to each stretch of work at random, from none to this.
    jitter: Nanos,
    /// Times `fds` messages still to come.
    loops: u64,
    /// Messages still to be read before the next count.
    left: u32,
    waited: bool,
}

impl Program for Receiver {
    fn next(&mut self, cx: &mut Cx<'_>) -> Op {
        if self.left > 0 {
            self.left -= 1;
            return Op::Read(self.pipe, self.bytes);
        }
        if !self.waited {
            self.waited = true;
            self.left = self.fds;
            return Op::Barrier(self.gate);
        }
        if self.loops == 0 {
            return Op::Exit;
        }
        // `fds` messages have arrived.
        self.loops -= 1;
        cx.metrics.count("messages", self.fds.into());
        if self.loops > 0 {
            self.left = self.fds;
        } else if self.shared.left.fetch_sub(1, Relaxed) == 1 {
            cx.metrics.count("run_ns", cx.now.saturating_sub(self.shared.start.load(Relaxed)));
        }
        Op::Run(self.work + up_to(self.jitter, cx.rng))
    }
}

impl Build for Hackbench {
    fn tasks(&self) -> u64 {
        self.groups * self.fds * 2
    }

    fn build(&self, w: &mut Workload, _: usize) -> Result<(), WorkloadError> {
        let (fds, bytes) = (self.fds as u32, self.bytes as u32);
        let kind = match self.transport {
            Transport::Pipe => ObjectKind::Pipe { capacity: PIPE_BYTES },
            Transport::Socket => {
                let messages = (SOCKET_BYTES / (self.bytes + SOCKET_OVERHEAD)).max(1);
                ObjectKind::Socket { capacity: (messages * self.bytes) as u32, lines: 0 }
            }
        };
        let receivers = self.groups * self.fds;
        let shared = Arc::new(Shared { left: AtomicU64::new(receivers), start: AtomicU64::new(u64::MAX) });
        let gate = w.object("hackbench-gate", ObjectKind::Barrier { parties: self.tasks() as u32 });
        let mean = self.work_ns * self.fds;
        let deviation = mean * self.jitter_pct / 100;
        let (work, jitter) = (mean - deviation, 2 * deviation);
        for group in 0..self.groups {
            let first = w.objects.len() as u32;
            for i in 0..fds {
                let pipe = w.object(format!("{}/{group}.{i}", self.transport.word()), kind.clone());
                let shared = Arc::clone(&shared);
                let loops = self.loops;
                let receiver = Receiver { shared, gate, pipe, fds, bytes, work, jitter, loops, left: 0, waited: false };
                w.task(cached(format!("recv{group}.{i}"), receiver, self.working_set_kib));
            }
            for i in 0..fds {
                let shared = Arc::clone(&shared);
                let loops = self.loops;
                let sender = Sender { shared, gate, first, fds, bytes, work, jitter, loops, at: fds, waited: false };
                w.task(cached(format!("send{group}.{i}"), sender, self.working_set_kib));
            }
        }
        Ok(())
    }
}
