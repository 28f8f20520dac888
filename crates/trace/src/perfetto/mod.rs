//! Perfetto's native protobuf trace: read ([`read`]), and written, for <https://ui.perfetto.dev> and `trace_processor`.
//!
//! Scheduler events go into ftrace bundles, as the kernel's own do, so that CPU tracks, thread states and the standard
//! SQL tables (`sched`, `thread_state`) work. What no kernel event says is drawn by track events: counters
//! ([`Writer::counter`]) and slices on named tracks ([`Writer::begin`], [`Writer::end`]), or on a thread's own track
//! ([`Writer::thread_track`]), where a lock wait stands beside the thread's states.
//!
//! Three things a reader of the format must be told, and is told in the first packet:
//! - times are `BOOTTIME` ns, and all clocks run alike (a clock snapshot at 0);
//! - `prev_state` is that of Linux 4.14 and later: without a kernel release `trace_processor` assumes 4.4, where the
//!   bits above `Z` mean other things;
//! - names of slices are interned: sent once, then numbered, until the table is full and all begins anew.
//!
//! Events are encoded as they come into a buffer for their CPU. A buffer becomes one packet when it is full, when all
//! of them together exceed a limit, or when a CPU's time goes backwards: events of one bundle are in time order. So
//! memory is bounded at a few MiB, and the same calls always give the same bytes.

mod compact;
mod encode;
pub mod proto;
mod read;
mod window;
mod wire;

use std::io::{self, Write};

use prost::Message;
use rustc_hash::FxHashMap;

use crate::event::{Kind, Nanos, TaskState};
use crate::sink::{At, SchedSink, Task};
pub(crate) use read::{Source, is_perfetto};

use encode::{bytes, bytes_head, fixed64, int, uint, varint_len};
use proto::{TracePacket, TrackDescriptor};

/// A CPU's buffer is written when it holds this much: about 500 events.
const BUNDLE_BYTES: usize = 32 << 10;
/// All CPUs' buffers are written when they hold this much together.
const PENDING_BYTES_MAX: usize = 4 << 20;
/// All CPUs' buffers are written after this many events: so a reader who puts events of different bundles into order need
/// not look further ahead than twice that.
const PENDING_EVENTS_MAX: usize = 64 << 10;
/// Packets are passed on in pieces of this size.
const OUT_BYTES: usize = 256 << 10;
/// Processes and threads named in one packet.
const TREE_MAX: usize = 1024;
/// Different names of slices before numbering begins anew.
const NAMES_MAX: usize = 1 << 16;

/// The one sequence of packets that a writer is.
const SEQUENCE: u32 = 1;

/// A track of counters or slices of this trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Track(u64);

/// An arrow between two slices or marks, by a number of the caller's that is used for one arrow only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// No arrow.
    None,
    /// It begins here.
    From(u64),
    /// It ends here.
    To(u64),
}

/// What a counter counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit<'a> {
    /// Things.
    Count,
    /// Nanoseconds.
    Nanos,
    /// Bytes.
    Bytes,
    /// Whatever this says.
    Named(&'a str),
}

/// Takes events, writes a `.pftrace`. Call [`Writer::finish`].
#[must_use = "finish() writes what is still buffered"]
pub struct Writer<W: Write> {
    out: W,
    /// Whole packets, to be passed on.
    ready: Vec<u8>,
    cpus: Vec<Bundle>,
    /// Bytes in `cpus`.
    pending: usize,
    /// Events since all of them were written.
    recent: usize,
    tree: proto::ProcessTree,
    tracks: u64,
    names: FxHashMap<Box<str>, u64>,
    /// Buffers for a message within a message.
    inner: Vec<u8>,
    packet: Vec<u8>,
}

/// Encoded events of one CPU, each with its field tag.
#[derive(Default)]
struct Bundle {
    events: Vec<u8>,
    last_ts: Nanos,
}

impl<W: Write> Writer<W> {
    /// Starts a trace.
    ///
    /// # Errors
    /// The sink's, here and in all other calls.
    pub fn new(out: W) -> io::Result<Self> {
        let mut writer = Self {
            out,
            ready: Vec::with_capacity(OUT_BYTES + BUNDLE_BYTES + 4096),
            cpus: Vec::new(),
            pending: 0,
            recent: 0,
            tree: proto::ProcessTree::default(),
            tracks: 0,
            names: FxHashMap::default(),
            inner: Vec::new(),
            packet: Vec::new(),
        };
        let clocks = [proto::CLOCK_BOOTTIME, proto::CLOCK_MONOTONIC, proto::CLOCK_REALTIME];
        writer.rare_packet(TracePacket {
            clock_snapshot: Some(proto::ClockSnapshot {
                clocks: clocks.map(|id| proto::Clock { clock_id: Some(id), timestamp: Some(0) }).into(),
                primary_trace_clock: Some(proto::CLOCK_BOOTTIME as i32),
            }),
            timestamp: Some(0),
            sequence_flags: Some(proto::SEQ_INCREMENTAL_STATE_CLEARED),
            first_packet_on_sequence: Some(true),
            ..Default::default()
        })?;
        writer.rare_packet(TracePacket {
            system_info: Some(proto::SystemInfo {
                utsname: Some(proto::Utsname {
                    sysname: Some("Linux".into()),
                    version: Some("contend".into()),
                    release: Some("6.12.0".into()),
                    machine: Some("x86_64".into()),
                }),
                tracing_service_version: Some(concat!("contend ", env!("CARGO_PKG_VERSION")).into()),
                num_cpus: None,
            }),
            ..Default::default()
        })?;
        Ok(writer)
    }

    /// Writes the rest and returns the sink.
    ///
    /// # Errors
    /// The sink's.
    pub fn finish(mut self) -> io::Result<W> {
        self.flush_all()?;
        self.out.write_all(&self.ready)?;
        self.out.flush()?;
        Ok(self.out)
    }

    /// Names a process: a VM, a benchmark. Its threads are then shown under it.
    pub fn process(&mut self, pid: u32, parent: u32, name: &str) -> io::Result<()> {
        let (pid, ppid) = (Some(pid as i32), Some(parent as i32));
        self.tree.processes.push(proto::Process { pid, ppid, cmdline: vec![name.into()] });
        self.tree_grew()
    }

    /// Names a thread and the process that it belongs to (`tgid`; the main thread has its process's number).
    pub fn thread(&mut self, tid: u32, tgid: u32, name: &str) -> io::Result<()> {
        let (tid, tgid) = (Some(tid as i32), Some(tgid as i32));
        self.tree.threads.push(proto::Thread { tid, name: Some(name.into()), tgid });
        self.tree_grew()
    }

    fn tree_grew(&mut self) -> io::Result<()> {
        if self.tree.processes.len() + self.tree.threads.len() >= TREE_MAX { self.flush_tree() } else { Ok(()) }
    }

    fn flush_tree(&mut self) -> io::Result<()> {
        if self.tree.processes.is_empty() && self.tree.threads.is_empty() {
            return Ok(());
        }
        let tree = std::mem::take(&mut self.tree);
        self.rare_packet(TracePacket { process_tree: Some(tree), timestamp: Some(0), ..Default::default() })
    }

    /// A track of numbers.
    pub fn counter_track(&mut self, name: &str, unit: Unit<'_>, parent: Option<Track>) -> io::Result<Track> {
        let (unit, unit_name) = match unit {
            Unit::Count => (Some(proto::UNIT_COUNT), None),
            Unit::Nanos => (Some(proto::UNIT_TIME_NS), None),
            Unit::Bytes => (Some(proto::UNIT_SIZE_BYTES), None),
            Unit::Named(name) => (None, Some(name.into())),
        };
        let counter = Some(proto::CounterDescriptor { unit, unit_name });
        self.track(TrackDescriptor { name: Some(name.into()), counter, ..Default::default() }, parent)
    }

    /// A track of slices, or a heading above other tracks (`parent`).
    pub fn slice_track(&mut self, name: &str, parent: Option<Track>) -> io::Result<Track> {
        self.track(TrackDescriptor { name: Some(name.into()), ..Default::default() }, parent)
    }

    /// The track of a thread: slices on it are shown under the thread's states. `name` is the thread's.
    pub fn thread_track(&mut self, tid: u32, tgid: u32, name: &str) -> io::Result<Track> {
        let (pid, tid) = (Some(tgid as i32), Some(i64::from(tid)));
        let thread = Some(proto::ThreadDescriptor { pid, tid, thread_name: Some(name.into()) });
        self.track(TrackDescriptor { thread, ..Default::default() }, None)
    }

    fn track(&mut self, descriptor: TrackDescriptor, parent: Option<Track>) -> io::Result<Track> {
        self.tracks += 1;
        let track = Track(self.tracks);
        let descriptor = TrackDescriptor { uuid: Some(track.0), parent_uuid: parent.map(|p| p.0), ..descriptor };
        self.rare_packet(TracePacket { track_descriptor: Some(descriptor), timestamp: Some(0), ..Default::default() })?;
        Ok(track)
    }

    /// The counter has this value from now on.
    pub fn counter(&mut self, track: Track, ts: Nanos, value: i64) -> io::Result<()> {
        self.track_event(track, ts, proto::TYPE_COUNTER, None, Some(value), Flow::None)
    }

    /// A slice begins. Slices of one track nest.
    pub fn begin(&mut self, track: Track, ts: Nanos, name: &str) -> io::Result<()> {
        self.begin_with(track, ts, name, Flow::None)
    }

    /// A slice begins, and an arrow begins or ends at it.
    pub fn begin_with(&mut self, track: Track, ts: Nanos, name: &str, flow: Flow) -> io::Result<()> {
        self.track_event(track, ts, proto::TYPE_SLICE_BEGIN, Some(name), None, flow)
    }

    /// The track's innermost slice ends.
    pub fn end(&mut self, track: Track, ts: Nanos) -> io::Result<()> {
        self.track_event(track, ts, proto::TYPE_SLICE_END, None, None, Flow::None)
    }

    /// A mark without a length.
    pub fn instant(&mut self, track: Track, ts: Nanos, name: &str) -> io::Result<()> {
        self.instant_with(track, ts, name, Flow::None)
    }

    /// A mark without a length, at which an arrow begins or ends.
    pub fn instant_with(&mut self, track: Track, ts: Nanos, name: &str, flow: Flow) -> io::Result<()> {
        self.track_event(track, ts, proto::TYPE_INSTANT, Some(name), None, flow)
    }

    fn track_event(
        &mut self,
        track: Track,
        ts: Nanos,
        kind: i32,
        name: Option<&str>,
        value: Option<i64>,
        flow: Flow,
    ) -> io::Result<()> {
        let mut flags = proto::SEQ_NEEDS_INCREMENTAL_STATE;
        let mut new = None;
        let iid = name.map(|name| match self.names.get(name) {
            Some(iid) => *iid,
            None => {
                if self.names.len() == NAMES_MAX {
                    self.names.clear();
                    flags |= proto::SEQ_INCREMENTAL_STATE_CLEARED;
                }
                let iid = self.names.len() as u64 + 1;
                self.names.insert(name.into(), iid);
                new = Some(proto::EventName { iid: Some(iid), name: Some(name.into()) });
                iid
            }
        });

        self.inner.clear();
        let out = &mut self.inner;
        int(out, 9, kind.into());
        if let Some(iid) = iid {
            uint(out, 10, iid);
        }
        uint(out, 11, track.0);
        if let Some(value) = value {
            int(out, 30, value);
        }
        match flow {
            Flow::None => {}
            Flow::From(id) => fixed64(out, 47, id),
            Flow::To(id) => fixed64(out, 48, id),
        }
        let out = &mut self.packet;
        out.clear();
        uint(out, 8, ts);
        uint(out, 10, SEQUENCE.into());
        bytes(out, 11, &self.inner);
        if let Some(name) = new {
            bytes(out, 12, &proto::InternedData { event_names: vec![name] }.encode_to_vec());
        }
        uint(out, 13, flags.into());
        bytes(&mut self.ready, 1, &self.packet);
        self.pass_on()
    }

    fn rare_packet(&mut self, packet: TracePacket) -> io::Result<()> {
        let packet = TracePacket { trusted_packet_sequence_id: Some(SEQUENCE), ..packet };
        bytes(&mut self.ready, 1, &packet.encode_to_vec());
        self.pass_on()
    }

    fn pass_on(&mut self) -> io::Result<()> {
        if self.ready.len() >= OUT_BYTES {
            self.out.write_all(&self.ready)?;
            self.ready.clear();
        }
        Ok(())
    }

    /// Adds an event whose message is in `inner`.
    #[inline]
    fn ftrace(&mut self, at: At<'_>, field: u32) -> io::Result<()> {
        let cpu = at.cpu as usize;
        if cpu >= self.cpus.len() {
            self.cpus.resize_with(cpu + 1, Bundle::default);
        }
        let bundle = &mut self.cpus[cpu];
        if at.ts < bundle.last_ts && !bundle.events.is_empty() {
            self.flush(cpu)?;
        }
        let bundle = &mut self.cpus[cpu];
        bundle.last_ts = at.ts;
        let before = bundle.events.len();
        let inner = self.inner.len();
        let flags = at.context.common_flags();
        let len = 1
            + varint_len(at.ts)
            + 1
            + varint_len(at.pid.into())
            + flags.map_or(0, |flags| 1 + varint_len(flags.into()))
            + varint_len(u64::from(field) << 3)
            + varint_len(inner as u64)
            + inner;
        let out = &mut bundle.events;
        bytes_head(out, 2, len);
        uint(out, 1, at.ts);
        uint(out, 2, at.pid.into());
        if let Some(flags) = flags {
            uint(out, 5, flags.into());
        }
        bytes(out, field, &self.inner);
        let after = out.len();
        self.pending += after - before;
        self.recent += 1;
        if self.pending >= PENDING_BYTES_MAX || self.recent >= PENDING_EVENTS_MAX {
            self.flush_all()
        } else if after >= BUNDLE_BYTES {
            self.flush(cpu)
        } else {
            Ok(())
        }
    }

    /// Makes a packet of one CPU's events.
    fn flush(&mut self, cpu: usize) -> io::Result<()> {
        // A thread is known by its process before anything happens to it.
        self.flush_tree()?;
        let bundle = &mut self.cpus[cpu];
        if bundle.events.is_empty() {
            return Ok(());
        }
        let bundle_len = 1 + varint_len(cpu as u64) + bundle.events.len();
        let packet_len = 1 + varint_len(bundle_len as u64) + bundle_len + 1 + varint_len(SEQUENCE.into());
        let out = &mut self.ready;
        bytes_head(out, 1, packet_len);
        bytes_head(out, 1, bundle_len);
        uint(out, 1, cpu as u64);
        out.extend_from_slice(&bundle.events);
        uint(out, 10, SEQUENCE.into());
        self.pending -= bundle.events.len();
        bundle.events.clear();
        self.pass_on()
    }

    fn flush_all(&mut self) -> io::Result<()> {
        self.recent = 0;
        self.flush_tree()?;
        (0..self.cpus.len()).try_for_each(|cpu| self.flush(cpu))
    }

    #[inline]
    fn task(&mut self, task: Task<'_>) {
        self.inner.clear();
        let out = &mut self.inner;
        bytes(out, 1, task.comm.as_bytes());
        int(out, 2, pid(task.pid));
        int(out, 3, task.prio.into());
    }

    #[inline]
    fn woken(&mut self, at: At<'_>, field: u32, task: Task<'_>, target_cpu: u32) -> io::Result<()> {
        self.task(task);
        int(&mut self.inner, 4, 1);
        int(&mut self.inner, 5, target_cpu.into());
        self.ftrace(at, field)
    }
}

/// Perfetto's pids are signed: an unknown one is -1.
fn pid(pid: u32) -> i64 {
    i64::from(pid as i32)
}

impl<W: Write> SchedSink for Writer<W> {
    fn switch(&mut self, at: At<'_>, prev: Task<'_>, prev_state: TaskState, next: Task<'_>) -> io::Result<()> {
        self.task(prev);
        let out = &mut self.inner;
        int(out, 4, prev_state.prev_state());
        bytes(out, 5, next.comm.as_bytes());
        int(out, 6, pid(next.pid));
        int(out, 7, next.prio.into());
        self.ftrace(at, 4)
    }

    fn waking(&mut self, at: At<'_>, task: Task<'_>, target_cpu: u32) -> io::Result<()> {
        self.woken(at, 20, task, target_cpu)
    }

    fn wakeup(&mut self, at: At<'_>, task: Task<'_>, target_cpu: u32) -> io::Result<()> {
        self.woken(at, 17, task, target_cpu)
    }

    fn wakeup_new(&mut self, at: At<'_>, task: Task<'_>, target_cpu: u32) -> io::Result<()> {
        self.woken(at, 114, task, target_cpu)
    }

    fn migrate(&mut self, at: At<'_>, task: Task<'_>, orig_cpu: u32, dest_cpu: u32) -> io::Result<()> {
        self.task(task);
        int(&mut self.inner, 4, orig_cpu.into());
        int(&mut self.inner, 5, dest_cpu.into());
        self.ftrace(at, 491)
    }

    fn fork(&mut self, at: At<'_>, parent: (u32, &str), child: (u32, &str)) -> io::Result<()> {
        self.inner.clear();
        let out = &mut self.inner;
        bytes(out, 1, parent.1.as_bytes());
        int(out, 2, pid(parent.0));
        bytes(out, 3, child.1.as_bytes());
        int(out, 4, pid(child.0));
        self.ftrace(at, 239)
    }

    fn exec(&mut self, at: At<'_>, filename: &str, new_pid: u32, old_pid: u32) -> io::Result<()> {
        self.inner.clear();
        let out = &mut self.inner;
        bytes(out, 1, filename.as_bytes());
        int(out, 2, pid(new_pid));
        int(out, 3, pid(old_pid));
        self.ftrace(at, 237)
    }

    fn exit(&mut self, at: At<'_>, task: Task<'_>) -> io::Result<()> {
        self.inner.clear();
        let out = &mut self.inner;
        bytes(out, 1, task.comm.as_bytes());
        int(out, 2, pid(task.pid));
        int(out, 4, task.prio.into());
        self.ftrace(at, 238)
    }

    fn explain(&mut self, at: At<'_>, kind: &Kind) -> io::Result<()> {
        self.inner.clear();
        let out = &mut self.inner;
        let side = |entry: bool, first: u32| if entry { first } else { first + 1 };
        let field = match *kind {
            Kind::Irq { irq, entry } => {
                int(out, 1, i64::from(irq as i32));
                side(entry, 36)
            }
            Kind::Softirq { vec, entry } => {
                uint(out, 1, vec.into());
                side(entry, 24)
            }
            Kind::Timer { hrtimer, entry } => side(entry, if hrtimer { 553 } else { 557 }),
            Kind::Syscall { nr, entry } => {
                int(out, 1, nr);
                side(entry, 329)
            }
            // The schema has no messages for the rest (its kvm_entry and kvm_exit are Arm's).
            Kind::Futex { uaddr, op, val } => {
                generic(out, kind, &[("uaddr", uaddr), ("op", op.into()), ("val", val.into())])
            }
            Kind::Setsid { sid } => generic(out, kind, &[("ret", sid.into())]),
            Kind::ContentionBegin { lock, flags } => {
                generic(out, kind, &[("lock_addr", lock), ("flags", flags.into())])
            }
            Kind::ContentionEnd { lock, ret } => generic(out, kind, &[("lock_addr", lock), ("ret", ret as i64 as u64)]),
            Kind::KvmEntry { vcpu } => generic(out, kind, &[("vcpu_id", vcpu.into())]),
            Kind::KvmExit { vcpu, reason } => {
                generic(out, kind, &[("vcpu_id", vcpu.into()), ("exit_reason", reason.into())])
            }
            _ => unreachable!("{} has a method of its own", kind.name()),
        };
        self.ftrace(at, field)
    }
}

/// An event without a message of its own: names and numbers. Returns the field that it goes into.
fn generic(out: &mut Vec<u8>, kind: &Kind, fields: &[(&str, u64)]) -> u32 {
    bytes(out, 1, kind.name().as_bytes());
    for (name, value) in fields {
        let len = 1 + varint_len(name.len() as u64) + name.len() + 1 + varint_len(*value);
        bytes_head(out, 2, len);
        bytes(out, 1, name.as_bytes());
        uint(out, 5, *value);
    }
    327
}
