//! uperf's ping-pong: client and server threads that send one message back and forth over local TCP.
//!
//! uperf replays a profile; in a ping-pong profile the client's transaction is a write and a read of the same size, and
//! the server's the reverse (uperf's wiki and manual). The study's profile is not published: one connection a thread and
//! messages of 8 KiB are what its post says.
//!
//! Over loopback the sender's CPU runs the receiver's half of TCP before it wakes the receiver. So all of a message's
//! private work (`work_ns`) stands before the write, in the sender; waking and copying are the socket's.

use contend_sim::program::Workload;

use super::echo::{Counts, Side};
use super::{DURATION_MS_MAX, NS_PER_MS, cached, tcp};
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

impl Build for Uperf {
    fn tasks(&self) -> u64 {
        self.threads * 2
    }

    fn build(&self, w: &mut Workload, _: usize) -> Result<(), WorkloadError> {
        for i in 0..self.threads {
            let there = tcp(w, format!("request{i}"), self.state_lines);
            let back = tcp(w, format!("answer{i}"), self.state_lines);
            let end = |name, to, from, client| {
                let side = Side::new(client, (to, from), self.bytes, self.work_ns, Counts::Messages);
                cached(format!("{name}{i}"), side, self.working_set_kib)
            };
            w.task(end("client", there, back, true));
            w.task(end("server", back, there, false));
        }
        w.horizon = Some(self.duration_ms * NS_PER_MS);
        Ok(())
    }
}
