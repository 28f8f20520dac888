//! iperf from a guest to dom0: a TCP stream through a paravirtual network device.
//!
//! In the guest a client writes chunks; its kernel copies each and puts it into the ring that netfront and netback share, as one
//! packet (segmentation offload: up to 64 KiB). In dom0 netback's thread has the hypervisor copy a packet, and hands it to the
//! server's socket; the server copies it to its own memory. The ring has 256 slots of a page, so some 14 packets of 64 KiB are
//! under way at most. A side that finds nothing to do asks for an event and sleeps; a busy ring sends none.
//!
//! Left out: acknowledgements (each would be a small packet the other way), TCP's window (the ring bounds what is under way), the
//! bridge, more than one queue. netback of 2016 took packets in a softirq and mapped rather than copied what it forwarded; for a local
//! receiver the copy came later. One copy by one thread stands for that.

use contend_platform::Nanos;
use contend_sim::program::{Cx, ObjId, ObjectKind, Op, Program, RingEnd, Workload};

use super::{DURATION_MS_MAX, NS_PER_MS, TCP_BYTES, cached};
use crate::spec::keys::spec;
use crate::spec::{Build, WorkloadError};

spec! {
    /// iperf's client in a domain of a Xen host: sends without end to the iperf-server of another domain (dom0), over the
    /// ring of the same number. Runs until the duration is over. Counts: sent (bytes).
    pub struct IperfClient = "iperf-client" {
        /// Number of the ring; a client and a server of two domains have the same. Default: the first.
        ring: u64 [0..=1_000] = 0, "number";
        /// Bytes of a packet. Default: the most that segmentation offload makes.
        chunk_kib: u64 [1..=256] = 64, "KiB";
        /// CPU work for each packet beyond the machine's socket_op and copy_kib: TCP/IP, netfront, the program's own. Default: an
        /// estimate, 1,000 to 5,000: one pass through the stack, once a packet thanks to the offload, and 17 slots.
        work_ns: u64 [0..=10_000_000] = 2000, "ns";
        /// Working set of the client, fetched again after a migration. Default: an estimate: its buffer, and the kernel's.
        working_set_kib: u64 [0..=1_048_576] = 128, "KiB";
        /// The virtual CPU that events interrupt. Default: the first, where Linux binds them unless told otherwise; of fewer, the last.
        event_vcpu: u64 [0..=4_095] = 0, "vCPU";
        /// How long. Default: 1 s.
        duration_ms: u64 [1..=DURATION_MS_MAX] = 1000, "ms";
    }
}

spec! {
    /// iperf's server in dom0, and the thread of netback that serves its client's ring. Runs until the duration is over. Counts:
    /// bytes (received), packets.
    pub struct IperfServer = "iperf-server" {
        /// Number of the ring, as the client's. Default: the first.
        ring: u64 [0..=1_000] = 0, "number";
        /// Bytes of a packet, as the client's. Default: the most that segmentation offload makes.
        chunk_kib: u64 [1..=256] = 64, "KiB";
        /// CPU work of netback for each packet beyond copying and the hand-over (the machine's socket_op): 17 slots, bridge, TCP/IP.
        /// Default: an estimate, 1,000 to 10,000.
        netback_ns: u64 [0..=10_000_000] = 3000, "ns";
        /// CPU work of the server for each packet beyond socket_op and copying. Default: an estimate, 0 to 2,000.
        work_ns: u64 [0..=10_000_000] = 500, "ns";
        /// Cache lines of the connection's state that the hand-over and a read each write. Default: as uperf's.
        state_lines: u64 [0..=1_000] = 8, "lines";
        /// Working set of the server, fetched again after a migration. Default: an estimate: its buffer, and the kernel's.
        working_set_kib: u64 [0..=1_048_576] = 128, "KiB";
        /// The virtual CPU that events interrupt. Default: the first, where Linux binds them unless told otherwise; of fewer, the last.
        event_vcpu: u64 [0..=4_095] = 0, "vCPU";
        /// How long. Default: 1 s.
        duration_ms: u64 [1..=DURATION_MS_MAX] = 1000, "ms";
    }
}

/// Does its work and then one operation, for ever.
struct Turns {
    work: Nanos,
    bytes: u32,
    op: Turn,
    step: u8,
}

#[derive(Clone, Copy)]
enum Turn {
    Send(ObjId),
    Forward { ring: ObjId, inbox: ObjId },
    Receive(ObjId),
}

impl Program for Turns {
    fn next(&mut self, cx: &mut Cx<'_>) -> Op {
        loop {
            let step = self.step;
            self.step = (step + 1) % 3;
            match (self.op, step) {
                (Turn::Send(_), 0) if self.work > 0 => return Op::Syscall(self.work),
                (Turn::Send(ring), 1) => return Op::Write(ring, self.bytes),
                (Turn::Send(_), 2) => cx.metrics.count("sent", self.bytes.into()),
                (Turn::Forward { ring, .. }, 0) => return Op::Read(ring, self.bytes),
                (Turn::Forward { .. }, 1) if self.work > 0 => return Op::Syscall(self.work),
                (Turn::Forward { inbox, .. }, 2) => return Op::Write(inbox, self.bytes),
                (Turn::Receive(inbox), 0) => return Op::Read(inbox, self.bytes),
                (Turn::Receive(_), 1) => {
                    cx.metrics.count("bytes", self.bytes.into());
                    cx.metrics.count("packets", 1);
                }
                (Turn::Receive(_), 2) if self.work > 0 => return Op::Syscall(self.work),
                _ => {}
            }
        }
    }
}

impl Build for IperfClient {
    fn tasks(&self) -> u64 {
        1
    }

    fn build(&self, w: &mut Workload, nr_cpus: usize) -> Result<(), WorkloadError> {
        let bytes = self.chunk_kib as u32 * 1024;
        let ring =
            w.object(format!("netfront{}", self.ring), end(self.ring, RingEnd::Front, self.event_vcpu, bytes, nr_cpus));
        let client = Turns { work: self.work_ns, bytes, op: Turn::Send(ring), step: 0 };
        w.task(cached("iperf-client".into(), client, self.working_set_kib));
        w.horizon = Some(self.duration_ms * NS_PER_MS);
        Ok(())
    }
}

impl Build for IperfServer {
    fn tasks(&self) -> u64 {
        2
    }

    fn build(&self, w: &mut Workload, nr_cpus: usize) -> Result<(), WorkloadError> {
        let bytes = self.chunk_kib as u32 * 1024;
        let ring =
            w.object(format!("netback{}", self.ring), end(self.ring, RingEnd::Back, self.event_vcpu, bytes, nr_cpus));
        let lines = self.state_lines as u32;
        let inbox = w.object(format!("inbox{}", self.ring), ObjectKind::Inbox { capacity: TCP_BYTES, lines });
        let netback = Turns { work: self.netback_ns, bytes, op: Turn::Forward { ring, inbox }, step: 0 };
        // What it copies passes through its caches and is not used again.
        w.task(cached("netback".into(), netback, 0));
        let server = Turns { work: self.work_ns, bytes, op: Turn::Receive(inbox), step: 0 };
        w.task(cached("iperf-server".into(), server, self.working_set_kib));
        w.horizon = Some(self.duration_ms * NS_PER_MS);
        Ok(())
    }
}

/// An end of a ring; a virtual CPU that is not there is the last.
fn end(ring: u64, end: RingEnd, vcpu: u64, bytes: u32, nr_cpus: usize) -> ObjectKind {
    let last = nr_cpus.saturating_sub(1) as u64;
    ObjectKind::Ring { channel: ring as u32, end, vcpu: vcpu.min(last) as u16, bytes }
}
