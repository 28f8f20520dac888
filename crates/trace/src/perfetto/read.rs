//! Reads the ftrace events of a Perfetto trace, packet by packet.
//!
//! Who ran is known by number; the name is that of the switches before, or of Perfetto's own list of processes. In compact
//! bundles ([`super::compact`]) who left is who came before on that CPU: of a CPU's first switch, and of the first
//! after lost events, that is not known (`u32::MAX`, `<...>`, priority 120).

use std::io::{self, BufReader, ErrorKind, Read};

use super::compact::{Compact, Half};
use super::window::{Waiting, Window};
use super::wire::{Damaged, Fields, Value, each};
use crate::event::{Comm, Context, Event, Kind, Nanos, TaskRef, TaskState};
use crate::intern::Interner;
use crate::pack::Packing;
use crate::tally::Tally;
use crate::who::Who;

/// Larger packets than this, packed or not, are damage.
const PACKET_BYTES_MAX: u64 = 64 << 20;
const CPUS_MAX: u64 = 1 << 16;

/// Whether these are the first bytes of a trace: a packet, then another or the end; and no text that begins with an empty
/// line, which a packet's tag looks like.
pub(crate) fn is_perfetto(head: &[u8]) -> bool {
    if !head.iter().take(4096).any(|b| b.is_ascii_control() && !b.is_ascii_whitespace()) {
        return false;
    }
    let mut file = Fields(head);
    if file.varint() != Ok(0x0a) {
        return false;
    }
    let Ok(len) = file.varint() else { return false };
    let (packet, rest) = file.0.split_at(file.0.len().min(usize::try_from(len).unwrap_or(usize::MAX)));
    let whole = packet.len() as u64 == len;
    let mut fields = Fields(packet);
    loop {
        let mut here = fields;
        match fields.next() {
            Ok(Some((field, _))) if field > FIELD_MAX => return false,
            Ok(Some(_)) => {}
            Ok(None) => return len > 0 && rest.first().is_none_or(|tag| *tag == 0x0a),
            // Cut by the end of what we see, if it is a field at all.
            Err(Damaged) => {
                let field = here.varint();
                let sensible =
                    |tag: u64| matches!(tag & 7, 0 | 1 | 2 | 5) && (1..=FIELD_MAX.into()).contains(&(tag >> 3));
                return !whole && field.map_or(here.0.len() < 10, sensible);
            }
        }
    }
}

/// Packets have no fields of higher numbers.
const FIELD_MAX: u32 = 5000;

/// Events of a Perfetto trace.
pub(crate) struct Source {
    stream: BufReader<Box<dyn Read + Send>>,
    position: u64,
    at_end: bool,
    window: Window,
    cpus: Vec<Cpu>,
    who: Who,
    compact: Compact,
    /// Events of the bundle at hand.
    bundle: Vec<(Nanos, u32, Half)>,
    packet: Vec<u8>,
}

#[derive(Default)]
struct Cpu {
    /// Who runs there as far as the bundles tell.
    running: Option<TaskRef>,
    /// Events were lost before the next.
    gap: bool,
}

impl Source {
    pub(crate) fn new(stream: Box<dyn Read + Send>) -> Self {
        Self {
            stream: BufReader::with_capacity(256 << 10, stream),
            position: 0,
            at_end: false,
            window: Window::default(),
            cpus: Vec::new(),
            who: Who::default(),
            compact: Compact::default(),
            bundle: Vec::new(),
            packet: Vec::new(),
        }
    }

    pub(crate) fn next(&mut self, tally: &mut Tally, names: &mut Interner) -> io::Result<Option<Event>> {
        while !self.at_end && !self.window.is_full() {
            self.read_packet(tally, names)?;
        }
        let Some(Waiting { mut event, gap }) = self.window.pop() else {
            for (cpu, state) in (0..).zip(&mut self.cpus) {
                if std::mem::take(&mut state.gap) {
                    tally.gap(Some(cpu), 0);
                }
            }
            return Ok(None);
        };
        if gap {
            tally.gap(Some(event.cpu), 0);
        }
        event.comm = self.who.name(event.pid, event.cpu, &event.kind, names);
        Ok(Some(event))
    }

    fn read_packet(&mut self, tally: &mut Tally, names: &mut Interner) -> io::Result<()> {
        let at = self.position;
        let Some(tag) = self.varint(tally)? else {
            self.at_end = true;
            return Ok(());
        };
        let len = match tag & 7 {
            0 => self.varint(tally)?.map(|_| 0),
            1 => Some(8),
            2 => self.varint(tally)?,
            5 => Some(4),
            _ => {
                tally.damaged(at, || "no field of a trace; the rest is not read".into());
                None
            }
        };
        let Some(len) = len else {
            self.at_end = true;
            return Ok(());
        };
        if len > PACKET_BYTES_MAX {
            tally.damaged(at, || format!("a packet of {len} bytes"));
            let skipped = io::copy(&mut (&mut self.stream).take(len), &mut io::sink())?;
            self.advance(skipped, len, tally);
            return Ok(());
        }
        let mut packet = std::mem::take(&mut self.packet);
        packet.clear();
        let got = (&mut self.stream).take(len).read_to_end(&mut packet)? as u64;
        self.advance(got, len, tally);
        if got == len && tag == 0x0a && self.packet(&packet, at, tally, names, false).is_err() {
            tally.damaged(at, || "a packet that ends within a field".into());
        }
        self.packet = packet;
        Ok(())
    }

    fn advance(&mut self, got: u64, len: u64, tally: &mut Tally) {
        self.position += got;
        if got < len {
            tally.truncated = true;
            self.at_end = true;
        }
    }

    /// A number of the file itself; nothing at its end.
    fn varint(&mut self, tally: &mut Tally) -> io::Result<Option<u64>> {
        let mut value = 0;
        for i in 0..10 {
            let mut byte = [0];
            match self.stream.read_exact(&mut byte) {
                Ok(()) => {}
                Err(e) if e.kind() == ErrorKind::UnexpectedEof => {
                    tally.truncated |= i > 0;
                    return Ok(None);
                }
                Err(e) => return Err(e),
            }
            self.position += 1;
            value |= u64::from(byte[0] & 0x7f) << (7 * i);
            if byte[0] & 0x80 == 0 {
                return Ok(Some(value));
            }
        }
        let at = self.position;
        tally.damaged(at, || "a number without end; the rest is not read".into());
        Ok(None)
    }

    /// A packet. `packed`: it was in another, compressed.
    fn packet(
        &mut self,
        packet: &[u8],
        at: u64,
        tally: &mut Tally,
        names: &mut Interner,
        packed: bool,
    ) -> Result<(), Damaged> {
        each(packet, |field, value| {
            match field {
                1 => return self.ftrace(value.bytes(), at, tally, names),
                2 => return self.process_tree(value.bytes(), names),
                45 => each(value.bytes(), |field, value| {
                    if field == 8 {
                        tally.cpus_declared = u32::try_from(value.number()).ok();
                    }
                    Ok(())
                })?,
                50 | 133 if !packed => {
                    let packing = if field == 50 { Packing::Zlib } else { Packing::Zstd };
                    match packing.unpack_all(value.bytes(), PACKET_BYTES_MAX) {
                        Ok(packets) => each(&packets, |field, value| match field {
                            1 => self.packet(value.bytes(), at, tally, names, true),
                            _ => Ok(()),
                        })?,
                        Err(e) => tally.damaged(at, || e.to_string()),
                    }
                }
                _ => {}
            }
            Ok(())
        })
    }

    fn process_tree(&mut self, tree: &[u8], names: &mut Interner) -> Result<(), Damaged> {
        each(tree, |field, thread| {
            if field != 2 {
                return Ok(());
            }
            let (mut tid, mut name) = (0, None);
            each(thread.bytes(), |field, value| {
                match field {
                    1 => tid = value.number() as u32,
                    2 => name = Some(value.bytes()),
                    _ => {}
                }
                Ok(())
            })?;
            if let Some(name) = name.filter(|name| !name.is_empty()) {
                self.who.tell(tid, &names.get(name));
            }
            Ok(())
        })
    }

    /// A bundle of one CPU's events.
    fn ftrace(&mut self, bundle: &[u8], at: u64, tally: &mut Tally, names: &mut Interner) -> Result<(), Damaged> {
        let (mut cpu, mut lost) = (0, false);
        self.bundle.clear();
        let whole = each(bundle, |field, value| {
            match field {
                1 => cpu = value.number(),
                2 => match event(value.bytes(), names) {
                    Ok(Ok(event)) => self.bundle.push(event),
                    Ok(Err(name)) => tally.unknown(name.as_bytes()),
                    Err(Damaged) => tally.damaged(at, || "an event that makes no sense".into()),
                },
                3 => lost = value.number() != 0,
                4 => {
                    self.compact.clear();
                    let compact = each(value.bytes(), |field, value| self.compact.field(field, value, names));
                    let out = &mut self.bundle;
                    let push = |ts, half| out.push((ts, u32::MAX, half));
                    if compact.and_then(|()| self.compact.each(push)).is_err() {
                        tally.damaged(at, || "columns of switches and wake-ups that do not fit together".into());
                    }
                }
                5 => tally.clock = CLOCKS.get(value.number() as usize).map(|clock| (*clock).to_owned()),
                _ => {}
            }
            Ok(())
        });
        if cpu >= CPUS_MAX {
            tally.damaged(at, || format!("events of CPU {cpu}"));
            return Ok(());
        }
        self.take_bundle(cpu as u32, lost, names);
        whole
    }

    /// Brings a CPU's events into order, and fills in what follows from those before.
    fn take_bundle(&mut self, cpu: u32, lost: bool, names: &mut Interner) {
        if self.cpus.len() <= cpu as usize {
            self.cpus.resize_with(cpu as usize + 1, Cpu::default);
        }
        let state = &mut self.cpus[cpu as usize];
        if lost {
            *state = Cpu { running: None, gap: true };
        }
        // A name is looked up when the event is given.
        let nobody = names.get(b"");
        // A few sorted runs, which this sort merges.
        self.bundle.sort_by_key(|(ts, ..)| *ts);
        for (ts, pid, half) in self.bundle.drain(..) {
            let compact = pid == u32::MAX;
            let running = || state.running.clone();
            let (pid, context, kind) = match half {
                Half::Switch { prev_state, next } => {
                    let prev =
                        running().unwrap_or_else(|| TaskRef { pid: u32::MAX, comm: names.get(b"<...>"), prio: 120 });
                    (prev.pid, Context::Unknown, Kind::Switch { prev, prev_state, next })
                }
                Half::Whole { kind, context } if compact => {
                    (running().map_or(u32::MAX, |task| task.pid), context, kind)
                }
                Half::Whole { kind, context } => (pid, context, kind),
            };
            if let Kind::Switch { next, .. } = &kind {
                state.running = Some(next.clone());
            }
            let event = Event { ts, cpu, pid, comm: nobody.clone(), context, resched: false, kind };
            self.window.push(Waiting { event, gap: std::mem::take(&mut state.gap) });
        }
    }
}

/// Names by number of the enumeration.
const CLOCKS: [&str; 5] = ["boot", "unknown", "global", "local", "mono_raw"];

/// The numbers of our events' messages in FtraceEvent.
mod number {
    pub const SWITCH: u32 = 4;
    pub const WAKEUP: u32 = 17;
    pub const WAKING: u32 = 20;
    pub const SOFTIRQ_ENTRY: u32 = 24;
    pub const SOFTIRQ_EXIT: u32 = 25;
    pub const IRQ_ENTRY: u32 = 36;
    pub const IRQ_EXIT: u32 = 37;
    pub const WAKEUP_NEW: u32 = 114;
    pub const EXEC: u32 = 237;
    pub const EXIT: u32 = 238;
    pub const FORK: u32 = 239;
    pub const GENERIC: u32 = 327;
    pub const SYS_ENTER: u32 = 329;
    pub const SYS_EXIT: u32 = 330;
    pub const KVM_ENTRY: u32 = 376;
    pub const KVM_EXIT: u32 = 377;
    pub const MIGRATE: u32 = 491;
    pub const HRTIMER_ENTRY: u32 = 553;
    pub const HRTIMER_EXIT: u32 = 554;
    pub const TIMER_ENTRY: u32 = 557;
    pub const TIMER_EXIT: u32 = 558;
}

/// An event of a bundle; the inner error is the name of one that is none of ours.
fn event(message: &[u8], names: &mut Interner) -> Result<Result<(Nanos, u32, Half), String>, Damaged> {
    let (mut ts, mut pid, mut context, mut payload) = (0, 0, Context::Unknown, None);
    each(message, |field, value| {
        match field {
            1 => ts = value.number(),
            2 => pid = value.number() as u32,
            5 => context = Context::from_common_flags(value.number() as u8),
            _ => payload = Some((field, value)),
        }
        Ok(())
    })?;
    let Some((field, Value::Bytes(payload))) = payload else { return Ok(Err("(no event)".into())) };
    if field == number::GENERIC {
        return Ok(generic(payload)?.map(|kind| (ts, pid, Half::Whole { kind, context })));
    }
    let Some(kind) = kind(field, payload, names)? else { return Ok(Err(format!("(Perfetto's event {field})"))) };
    Ok(Ok((ts, pid, Half::Whole { kind, context })))
}

/// Fields of a message by number: none of ours needs higher ones than 7.
struct Row<'a>([Value<'a>; 8]);

impl<'a> Row<'a> {
    fn new(message: &'a [u8]) -> Result<Self, Damaged> {
        let mut row = [Value::Number(0); 8];
        each(message, |field, value| {
            if let Some(place) = row.get_mut(field as usize) {
                *place = value;
            }
            Ok(())
        })?;
        Ok(Row(row))
    }

    fn number(&self, field: usize) -> u64 {
        self.0[field].number()
    }

    fn cpu(&self, field: usize) -> Result<u32, Damaged> {
        let cpu = self.number(field);
        if cpu < CPUS_MAX { Ok(cpu as u32) } else { Err(Damaged) }
    }

    fn comm(&self, field: usize, names: &mut Interner) -> Comm {
        names.get(self.0[field].bytes())
    }

    /// Name, pid and priority, which stand beside each other.
    fn task(&self, first: usize, names: &mut Interner) -> TaskRef {
        let comm = self.comm(first, names);
        TaskRef { pid: self.number(first + 1) as u32, comm, prio: self.number(first + 2) as i32 }
    }
}

fn kind(field: u32, message: &[u8], names: &mut Interner) -> Result<Option<Kind>, Damaged> {
    let row = Row::new(message)?;
    Ok(Some(match field {
        number::SWITCH => Kind::Switch {
            prev: row.task(1, names),
            prev_state: TaskState::from_prev_state(row.number(4) as i64 & 0x1ff).ok_or(Damaged)?,
            next: row.task(5, names),
        },
        number::WAKING => Kind::Waking { target_cpu: row.cpu(5)?, task: row.task(1, names) },
        number::WAKEUP => Kind::Wakeup { target_cpu: row.cpu(5)?, task: row.task(1, names) },
        number::WAKEUP_NEW => Kind::WakeupNew { target_cpu: row.cpu(5)?, task: row.task(1, names) },
        number::MIGRATE => Kind::Migrate { orig_cpu: row.cpu(4)?, dest_cpu: row.cpu(5)?, task: row.task(1, names) },
        number::FORK => Kind::Fork {
            parent_comm: row.comm(1, names),
            parent_pid: row.number(2) as u32,
            child_comm: row.comm(3, names),
            child_pid: row.number(4) as u32,
        },
        number::EXEC => {
            Kind::Exec { filename: row.comm(1, names), pid: row.number(2) as u32, old_pid: row.number(3) as u32 }
        }
        number::EXIT => {
            let (pid, prio) = (row.number(2) as u32, row.number(4) as i32);
            Kind::Exit { task: TaskRef { pid, comm: row.comm(1, names), prio } }
        }
        number::IRQ_ENTRY | number::IRQ_EXIT => {
            Kind::Irq { irq: row.number(1) as u32, entry: field == number::IRQ_ENTRY }
        }
        number::SOFTIRQ_ENTRY | number::SOFTIRQ_EXIT => {
            Kind::Softirq { vec: row.number(1) as u32, entry: field == number::SOFTIRQ_ENTRY }
        }
        number::HRTIMER_ENTRY | number::HRTIMER_EXIT => {
            Kind::Timer { hrtimer: true, entry: field == number::HRTIMER_ENTRY }
        }
        number::TIMER_ENTRY | number::TIMER_EXIT => Kind::Timer { hrtimer: false, entry: field == number::TIMER_ENTRY },
        number::SYS_ENTER | number::SYS_EXIT => {
            Kind::Syscall { nr: row.number(1) as i64, entry: field == number::SYS_ENTER }
        }
        // Arm's, which name no vCPU.
        number::KVM_ENTRY => Kind::KvmEntry { vcpu: u32::MAX },
        number::KVM_EXIT => Kind::KvmExit { vcpu: u32::MAX, reason: row.number(1) as u32 },
        _ => return Ok(None),
    }))
}

/// An event that has no message: its name, and its fields by name.
fn generic(message: &[u8]) -> Result<Result<Kind, String>, Damaged> {
    let mut event: &[u8] = b"";
    let mut fields: Vec<(&[u8], u64)> = Vec::new();
    each(message, |field, value| {
        match field {
            1 => event = value.bytes(),
            2 => {
                let (mut name, mut number): (&[u8], _) = (b"", None);
                each(value.bytes(), |field, value| {
                    match field {
                        1 => name = value.bytes(),
                        4 | 5 => number = Some(value.number()),
                        _ => {}
                    }
                    Ok(())
                })?;
                fields.extend(number.map(|number| (name, number)));
            }
            _ => {}
        }
        Ok(())
    })?;
    let find = |name: &str| fields.iter().find(|(field, _)| *field == name.as_bytes()).map(|(_, number)| *number);
    let kind = match event {
        b"contention_begin" => Kind::ContentionBegin {
            lock: find("lock_addr").ok_or(Damaged)?,
            flags: find("flags").ok_or(Damaged)? as u32,
        },
        b"contention_end" => {
            Kind::ContentionEnd { lock: find("lock_addr").ok_or(Damaged)?, ret: find("ret").ok_or(Damaged)? as i32 }
        }
        b"sys_enter_futex" => Kind::Futex {
            uaddr: find("uaddr").ok_or(Damaged)?,
            op: find("op").ok_or(Damaged)? as u32,
            val: find("val").ok_or(Damaged)? as u32,
        },
        b"kvm_entry" => Kind::KvmEntry { vcpu: find("vcpu_id").ok_or(Damaged)? as u32 },
        b"kvm_exit" => {
            let number = |name| find(name).map_or(u32::MAX, |number| number as u32);
            Kind::KvmExit { vcpu: number("vcpu_id"), reason: number("exit_reason") }
        }
        other => return Ok(Err(String::from_utf8_lossy(other).into_owned())),
    };
    Ok(Ok(kind))
}
