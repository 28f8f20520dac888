//! netperf's request and response: client and server processes that send a byte to and fro over the machine's own TCP or UDP.
//!
//! The client of TCP_RR and UDP_RR writes a request and reads a response, the server the reverse, one transaction at a time
//! (netperf's manual). A shell starts the clients one after the other in the background, as scripts that measure with several
//! do; netserver forks a process for each. TCP and UDP differ in `work_ns` alone here.
//!
//! As in uperf, all of a message's private work stands before the write, in the sender.

use contend_sim::program::Workload;

use super::echo::{Counts, Side};
use super::starting::{Go, Pair, forked};
use super::{DURATION_MS_MAX, NS_PER_MS, cached, tcp};
use crate::spec::keys::spec;
use crate::spec::{Build, WorkloadError};

spec! {
    /// Client and server processes that send a byte to and fro over local TCP or UDP, after netperf's TCP_RR and UDP_RR. Runs until
    /// the duration is over. Counts: transactions. Latencies: round_trip.
    pub struct Netperf = "netperf" {
        /// Clients, each a process with a server process of its own. Default: one.
        instances: u64 [1..=100_000] = 1, "pairs";
        /// Size of a request, and of its response. Default: the tool's.
        bytes: u64 [1..=1_048_576] = 1, "bytes";
        /// CPU work for each message beyond the machine's socket_op and copy_kib, done by its sender: TCP/IP or UDP/IP both ways
        /// and the tool's own code. Default: uperf's estimate, 0 to 10,000.
        work_ns: u64 [0..=10_000_000] = 2000, "ns";
        /// Cache lines of a connection's state that a write and a read each write, fetched from the CPU that did so last:
        /// both sides' control blocks, queues and the message's descriptor. Default: an estimate, 4 to 16.
        state_lines: u64 [0..=1_000] = 8, "lines";
        /// Working set of a task, fetched again after a migration. Default: an estimate, no data to speak of; 8 for stacks,
        /// sockets and descriptors of the task.
        working_set_kib: u64 [0..=1_048_576] = 8, "KiB";
        /// How long. Default: 1 s, tens of thousands of transactions a pair.
        duration_ms: u64 [1..=DURATION_MS_MAX] = 1000, "ms";
    }
}

impl Build for Netperf {
    fn tasks(&self) -> u64 {
        self.instances * 2 + 2
    }

    fn build(&self, w: &mut Workload, _: usize) -> Result<(), WorkloadError> {
        let pairs = (0..self.instances)
            .map(|i| {
                let there = tcp(w, format!("request{i}"), self.state_lines);
                let back = tcp(w, format!("response{i}"), self.state_lines);
                let end = |name, to, from, client| {
                    let side = Side::new(client, (to, from), self.bytes, self.work_ns, Counts::Transactions);
                    cached(format!("{name}{i}"), side, self.working_set_kib)
                };
                Pair { client: end("netperf", there, back, true), server: end("netserver", back, there, false) }
            })
            .collect();
        forked(w, ("sh", "netserver"), pairs, true, Go::AtOnce);
        w.horizon = Some(self.duration_ms * NS_PER_MS);
        Ok(())
    }
}
