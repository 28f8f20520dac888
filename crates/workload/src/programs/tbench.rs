//! tbench: the network part of NetBench over local TCP, a client and a server process a connection.
//!
//! "tbench produces only the TCP and process load": the same socket calls as an SMB server under the load, and no file
//! system (dbench(1)). A client sends a request, the server reads it and answers; WriteX carries its payload in the
//! request, ReadX in the answer. See `netbench` for the mix. Where the work stands: as in `uperf`.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use contend_platform::{Nanos, Time};
use contend_sim::program::{Cx, ObjId, Op, Program, Workload};

use super::netbench::{Kind, draw};
use super::starting::{Go, Pair, forked};
use super::{DURATION_MS_MAX, NS_PER_MS, cached, tcp};
use crate::spec::keys::spec;
use crate::spec::value::words;
use crate::spec::{Build, WorkloadError};

words! {
    /// How the processes begin.
    Start {
        /// All are there from the beginning, spread over the CPUs.
        Spread = "spread",
        /// As the tools start.
        Forked = "forked",
    }
}

spec! {
    /// Client and server processes that replay the network part of NetBench over local TCP, after tbench. Runs until the
    /// duration is over. Counts: ops, bytes (payload of ReadX and WriteX, the tool's throughput). Latencies: op.
    pub struct Tbench = "tbench" {
        /// Client processes, each with a connection and a server process of its own. Default: one.
        clients: u64 [1..=100_000] = 1, "pairs";
        /// CPU work of either side for each operation beyond the machine's socket_op and copy_kib, done before it sends:
        /// TCP/IP both ways and the tool's own code. Default: uperf's estimate, 0 to 10,000.
        work_ns: u64 [0..=10_000_000] = 2000, "ns";
        /// Cache lines of a connection's state that a write and a read each write, fetched from the CPU that did so last:
        /// both sides' TCP control blocks, queues and the message's descriptor. Default: an estimate, 4 to 16.
        state_lines: u64 [0..=1_000] = 8, "lines";
        /// Working set of a task, fetched again after a migration. Default: an estimate, two buffers of the
        /// 15 that a transfer has on average, and 2 for the kernel's structures of the task.
        working_set_kib: u64 [0..=1_048_576] = 32, "KiB";
        /// "spread": all are there from the beginning, spread evenly over the CPUs. "forked": tbench forks the clients, tbench_srv a
        /// process for each connection, where the kernel places new tasks; clients begin together when all have connected.
        /// Default: as balancing has them after a while.
        start: Start [()] = Start::Spread, "";
        /// How long. Default: 1 s, tens of thousands of operations a client.
        duration_ms: u64 [1..=DURATION_MS_MAX] = 1000, "ms";
    }
}

/// A request or an answer without payload. Estimate: 36 bytes of NetBIOS and SMB headers (MS-CIFS), then parameters, and
/// a path in about half of the requests.
const MESSAGE_BYTES: u32 = 100;

/// Sizes of the request and the answer under way, packed: the server's parser.
type Call = Arc<AtomicU64>;

struct Client {
    call: Call,
    to: ObjId,
    from: ObjId,
    work: Nanos,
    payload: u32,
    /// Sizes of this request and its answer.
    request: u32,
    answer: u32,
    started: Time,
    step: Step,
}

struct Server {
    call: Call,
    to: ObjId,
    from: ObjId,
    work: Nanos,
    /// A request's head has been read; the rest follows.
    rest: u32,
    answer: u32,
    step: Step,
}

#[derive(Clone, Copy)]
enum Step {
    Work,
    Write,
    Read,
    Arrived,
}

impl Program for Client {
    fn next(&mut self, cx: &mut Cx<'_>) -> Op {
        loop {
            match self.step {
                Step::Work => {
                    let op = draw(cx.rng);
                    self.payload = op.bytes;
                    self.request = MESSAGE_BYTES + if op.kind == Kind::Write { op.bytes } else { 0 };
                    self.answer = MESSAGE_BYTES + if op.kind == Kind::Read { op.bytes } else { 0 };
                    self.step = Step::Write;
                    if self.work > 0 {
                        return Op::Run(self.work);
                    }
                }
                Step::Write => {
                    self.call.store(u64::from(self.request) << 32 | u64::from(self.answer), Relaxed);
                    self.step = Step::Read;
                    return Op::Write(self.to, self.request);
                }
                Step::Read => {
                    self.step = Step::Arrived;
                    return Op::Read(self.from, self.answer);
                }
                Step::Arrived => {
                    cx.metrics.count("ops", 1);
                    if self.payload > 0 {
                        cx.metrics.count("bytes", self.payload.into());
                    }
                    cx.metrics.latency("op", cx.now - self.started);
                    self.started = cx.now;
                    self.step = Step::Work;
                }
            }
        }
    }
}

impl Program for Server {
    fn next(&mut self, _: &mut Cx<'_>) -> Op {
        loop {
            match self.step {
                Step::Read => {
                    self.step = Step::Arrived;
                    return Op::Read(self.from, MESSAGE_BYTES);
                }
                Step::Arrived => {
                    // The head says how long the request is: a payload is read by a second call.
                    let call = self.call.load(Relaxed);
                    self.rest = (call >> 32) as u32 - MESSAGE_BYTES;
                    self.answer = call as u32;
                    self.step = Step::Work;
                    if self.rest > 0 {
                        return Op::Read(self.from, self.rest);
                    }
                }
                Step::Work => {
                    self.step = Step::Write;
                    if self.work > 0 {
                        return Op::Run(self.work);
                    }
                }
                Step::Write => {
                    self.step = Step::Read;
                    return Op::Write(self.to, self.answer);
                }
            }
        }
    }
}

impl Build for Tbench {
    fn tasks(&self) -> u64 {
        self.clients * 2 + if self.start == Start::Forked { 2 } else { 0 }
    }

    fn build(&self, w: &mut Workload, _: usize) -> Result<(), WorkloadError> {
        let work = self.work_ns;
        let mut pairs = Vec::new();
        for i in 0..self.clients {
            let there = tcp(w, format!("request{i}"), self.state_lines);
            let back = tcp(w, format!("answer{i}"), self.state_lines);
            let call = Call::default();
            let client = Client {
                call: Arc::clone(&call),
                to: there,
                from: back,
                work,
                payload: 0,
                request: 0,
                answer: 0,
                started: 0,
                step: Step::Work,
            };
            let server = Server { call, to: back, from: there, work, rest: 0, answer: 0, step: Step::Read };
            pairs.push(Pair {
                client: cached(format!("tbench{i}"), client, self.working_set_kib),
                server: cached(format!("tbench_srv{i}"), server, self.working_set_kib),
            });
        }
        match self.start {
            Start::Spread => pairs.into_iter().for_each(|Pair { client, server }| {
                w.task(client);
                w.task(server);
            }),
            Start::Forked => forked(w, ("tbench", "tbench_srv"), pairs, false, Go::Together),
        }
        w.horizon = Some(self.duration_ms * NS_PER_MS);
        Ok(())
    }
}
