//! Two ends of a connection that send a message to and fro, as uperf's ping-pong and netperf's request and response do.

use contend_platform::{Nanos, Time};
use contend_sim::program::{Cx, ObjId, Op, Program};

/// What an end reports.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Counts {
    /// Each message that arrived; a round trip from the run's beginning on.
    Messages,
    /// The client its transactions, from its own beginning on.
    Transactions,
}

#[derive(Clone, Copy)]
enum Step {
    Work,
    Write,
    Read,
    Arrived,
}

/// One end. All of a message's private work stands before the write, in the sender.
pub(super) struct Side {
    to: ObjId,
    from: ObjId,
    bytes: u32,
    work: Nanos,
    /// The client measures.
    client: bool,
    counts: Counts,
    /// When the client began its round trip.
    started: Option<Time>,
    step: Step,
}

impl Side {
    /// The client, which begins, or the server, with the sockets to and from the other.
    pub(super) fn new(client: bool, (to, from): (ObjId, ObjId), bytes: u64, work: Nanos, counts: Counts) -> Self {
        let step = if client { Step::Work } else { Step::Read };
        let started = (counts == Counts::Messages).then_some(0);
        Side { to, from, bytes: bytes as u32, work, client, counts, started, step }
    }
}

impl Program for Side {
    fn next(&mut self, cx: &mut Cx<'_>) -> Op {
        loop {
            match self.step {
                Step::Work => {
                    self.step = Step::Write;
                    self.started.get_or_insert(cx.now);
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
                    match self.counts {
                        Counts::Messages => cx.metrics.count("messages", 1),
                        Counts::Transactions if self.client => cx.metrics.count("transactions", 1),
                        Counts::Transactions => {}
                    }
                    if self.client
                        && let Some(started) = self.started.replace(cx.now)
                    {
                        cx.metrics.latency("round_trip", cx.now - started);
                    }
                    self.step = Step::Work;
                }
            }
        }
    }
}
