//! uperf's ping-pong: client and server threads that send one message back and forth over local TCP.
//!
//! uperf replays a profile; in a ping-pong profile the client's transaction is a write and a read of the same size, and
//! the server's the reverse (uperf's wiki and manual). The study's profile is not published: one connection a thread and
//! messages of 8 KiB are what its post says.
//!
//! Over loopback the sender's CPU runs the receiver's half of TCP before it wakes the receiver. So all of a message's
//! private work (`work_ns`) stands before the write, in the sender; waking and copying are the socket's.

use contend_platform::{Nanos, Time};
use contend_sim::program::{Cx, ObjId, ObjectKind, Op, Program, Workload};

use super::{DURATION_MS_MAX, NS_PER_MS, TCP_BYTES, cached};
use crate::spec::keys::spec;
use crate::spec::{Build, WorkloadError};

spec! {
    /// Client and server threads that send a message to and fro over local TCP, after uperf. Runs until the duration is
    /// over. Counts: messages (received, in both directions). Latencies: round_trip.
    pub struct Uperf = "uperf" {
        /// Client threads, each with a connection and a server thread of its own (nthreads of the profile). Default: one.
        threads: u64 [1..=100_000] = 1, "pairs";
        /// Size of a message, and of its answer. Default: the 8k of the study idle-cpu-search-2019.
        bytes: u64 [1..=1_048_576] = 8192, "bytes";
        /// CPU work for each message beyond the machine's socket_op and copy_kib, done by its sender: TCP/IP both ways
        /// and the tool's own code. Default: an estimate, 0 to 10,000; loopback TCP answers 40,000 to 80,000 times a
        /// second on such machines (general knowledge, not checked).
        work_ns: u64 [0..=10_000_000] = 2000, "ns";
        /// Cache lines of a connection's state that a write and a read each write, fetched from the CPU that did so last:
        /// both sides' TCP control blocks, queues and the message's descriptor. Default: an estimate, 4 to 16.
        state_lines: u64 [0..=1_000] = 8, "lines";
        /// Working set of a task, fetched again after a migration. Default: an estimate, two buffers of a message's
        /// size, and 8 for stacks, sockets and descriptors of the task.
        working_set_kib: u64 [0..=1_048_576] = 24, "KiB";
        /// How long. Default: 1 s, tens of thousands of messages a pair.
        duration_ms: u64 [1..=DURATION_MS_MAX] = 1000, "ms";
    }
}

#[derive(Clone, Copy)]
enum Step {
    Work,
    Write,
    Read,
    Arrived,
}

struct Side {
    to: ObjId,
    from: ObjId,
    bytes: u32,
    work: Nanos,
    /// The client measures.
    client: bool,
    started: Time,
    step: Step,
}

impl Program for Side {
    fn next(&mut self, cx: &mut Cx<'_>) -> Op {
        loop {
            match self.step {
                Step::Work => {
                    self.step = Step::Write;
                    if self.work > 0 {
                        return Op::Run(self.work);
                    }
                }
                Step::Write => {
                    self.step = Step::Read;
                    return Op::Write(self.to, self.bytes);
                }
                Step::Read => {
                    self.step = Step::Arrived;
                    return Op::Read(self.from, self.bytes);
                }
                Step::Arrived => {
                    cx.metrics.count("messages", 1);
                    if self.client {
                        cx.metrics.latency("round_trip", cx.now - self.started);
                        self.started = cx.now;
                    }
                    self.step = Step::Work;
                }
            }
        }
    }
}

impl Build for Uperf {
    fn tasks(&self) -> u64 {
        self.threads * 2
    }

    fn build(&self, w: &mut Workload, _: usize) -> Result<(), WorkloadError> {
        for i in 0..self.threads {
            let there = w.object(
                format!("request{i}"),
                ObjectKind::Socket { capacity: TCP_BYTES, lines: self.state_lines as u32 },
            );
            let back = w.object(
                format!("answer{i}"),
                ObjectKind::Socket { capacity: TCP_BYTES, lines: self.state_lines as u32 },
            );
            for client in [true, false] {
                let (to, from) = if client { (there, back) } else { (back, there) };
                let step = if client { Step::Work } else { Step::Read };
                let side = Side { to, from, bytes: self.bytes as u32, work: self.work_ns, client, started: 0, step };
                w.task(cached(format!("{}{i}", if client { "client" } else { "server" }), side, self.working_set_kib));
            }
        }
        w.horizon = Some(self.duration_ms * NS_PER_MS);
        Ok(())
    }
}
