//! The kernel's descriptions of its events: where a field is, and what of it makes one of our events.
//!
//! ```text
//! name: sched_waking
//! ID: 371
//! format:
//!         field:unsigned short common_type;       offset:0;       size:2; signed:0;
//!         ...
//!         field:char comm[16];    offset:8;       size:16;        signed:0;
//! print fmt: "comm=%s ...", REC->comm, ...
//! ```
//! No offset is taken for granted: kernels move fields, and make arrays into strings that stand elsewhere in the record
//! (`__data_loc`: a word with the offset in its low half and the length in its high half).

use super::bytes::Order;
use crate::event::{Kind, TaskRef, TaskState};
use crate::intern::Interner;

/// Where a field is in a record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Field {
    pub offset: usize,
    pub size: usize,
    pub signed: bool,
    place: Place,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Place {
    #[default]
    Here,
    /// The field says where in the record.
    DataLoc,
    /// The field says where behind itself.
    RelLoc,
}

impl Field {
    #[inline]
    fn bytes(self, record: &[u8]) -> Option<&[u8]> {
        record.get(self.offset..)?.get(..self.size)
    }

    /// A number of at most 8 bytes.
    #[inline]
    pub(super) fn int(self, record: &[u8], order: Order) -> Option<i64> {
        let bytes = self.bytes(record)?;
        if !(1..=8).contains(&bytes.len()) {
            return None;
        }
        let value = order.uint(bytes);
        let unused = 64 - 8 * bytes.len() as u32;
        Some(if self.signed { (value << unused) as i64 >> unused } else { value as i64 })
    }

    /// A string up to its NUL, or to the end of the field.
    fn text(self, record: &[u8], order: Order) -> Option<&[u8]> {
        let bytes = match self.place {
            Place::Here => self.bytes(record)?,
            place => {
                let word = order.uint(self.bytes(record).filter(|b| b.len() == 4)?);
                let (offset, len) = ((word & 0xffff) as usize, (word >> 16) as usize);
                let from = if place == Place::RelLoc { self.offset + self.size } else { 0 };
                record.get(from + offset..)?.get(..len)?
            }
        };
        Some(&bytes[..memchr::memchr(0, bytes).unwrap_or(bytes.len())])
    }

    fn pid(self, record: &[u8], order: Order) -> Option<u32> {
        match self.int(record, order)? {
            -1 => Some(u32::MAX),
            pid => i32::try_from(pid).ok()?.try_into().ok(),
        }
    }
}

/// A description that was read.
#[derive(Debug, Default)]
pub(super) struct Format {
    pub name: String,
    pub id: u16,
    fields: Vec<(String, Field)>,
    print: String,
}

impl Format {
    /// `None`: no name or no number.
    pub(super) fn parse(text: &[u8]) -> Option<Self> {
        let text = String::from_utf8_lossy(text);
        let mut format = Format { fields: fields(&text), ..Format::default() };
        let mut id = None;
        for line in text.lines() {
            if let Some(name) = line.strip_prefix("name: ") {
                format.name = name.trim().into();
            } else if let Some(number) = line.strip_prefix("ID: ") {
                id = number.trim().parse().ok();
            } else if let Some(print) = line.strip_prefix("print fmt: ") {
                format.print = print.into();
            }
        }
        format.id = id?;
        (!format.name.is_empty()).then_some(format)
    }

    pub(super) fn field(&self, name: &str) -> Option<Field> {
        self.fields.iter().find(|(n, _)| n == name).map(|(_, f)| *f)
    }
}

/// The fields of a description, also of the ring buffer's page (`header_page`).
pub(super) fn fields(text: &str) -> Vec<(String, Field)> {
    text.lines().filter_map(field).collect()
}

fn field(line: &str) -> Option<(String, Field)> {
    let mut field = Field::default();
    let mut name = None;
    for part in line.trim().split(';') {
        let (key, value) = part.trim().split_once(':').unwrap_or(("", ""));
        match key {
            "field" | "field special" => {
                field.place = match value {
                    v if v.contains("__data_loc ") => Place::DataLoc,
                    v if v.contains("__rel_loc ") => Place::RelLoc,
                    _ => Place::Here,
                };
                let last = value.rsplit([' ', '*']).next()?;
                name = Some(last.split('[').next()?.to_owned());
            }
            "offset" => field.offset = value.parse().ok()?,
            "size" => field.size = value.parse().ok()?,
            "signed" => field.signed = value == "1",
            _ => {}
        }
    }
    Some((name?, field))
}

/// How the records of one kind of event become ours.
#[derive(Debug)]
pub(super) enum Plan {
    /// One of ours: what it is, and its fields in the order of [`EVENTS`].
    Ours { what: What, fields: [Option<Field>; FIELDS_MAX], states: Vec<(i64, TaskState)> },
    /// One of ours by name, whose description lacks this field.
    Lacks { name: String, field: &'static str },
    /// Another.
    Other { name: String },
}

const FIELDS_MAX: usize = 7;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum What {
    Switch,
    Waking,
    Wakeup,
    WakeupNew,
    Migrate,
    Fork,
    Exec,
    Exit,
    Irq { entry: bool },
    Softirq { entry: bool },
    Timer { hrtimer: bool, entry: bool },
    Syscall { entry: bool },
    Futex,
    Setsid,
    ContentionBegin,
    ContentionEnd,
    KvmEntry,
    KvmExit,
}

const WOKEN: &[&str] = &["comm", "pid", "prio", "target_cpu"];

/// Our events, and the fields that they need; those with a `?` only some kernels have.
const EVENTS: [(&str, What, &[&str]); 24] = [
    (
        "sched_switch",
        What::Switch,
        &["prev_comm", "prev_pid", "prev_prio", "prev_state", "next_comm", "next_pid", "next_prio"],
    ),
    ("sched_waking", What::Waking, WOKEN),
    ("sched_wakeup", What::Wakeup, WOKEN),
    ("sched_wakeup_new", What::WakeupNew, WOKEN),
    ("sched_migrate_task", What::Migrate, &["comm", "pid", "prio", "orig_cpu", "dest_cpu"]),
    ("sched_process_fork", What::Fork, &["parent_comm", "parent_pid", "child_comm", "child_pid"]),
    ("sched_process_exec", What::Exec, &["filename", "pid", "old_pid"]),
    ("sched_process_exit", What::Exit, &["comm", "pid", "prio"]),
    ("irq_handler_entry", What::Irq { entry: true }, &["irq"]),
    ("irq_handler_exit", What::Irq { entry: false }, &["irq"]),
    ("softirq_entry", What::Softirq { entry: true }, &["vec"]),
    ("softirq_exit", What::Softirq { entry: false }, &["vec"]),
    ("hrtimer_expire_entry", What::Timer { hrtimer: true, entry: true }, &[]),
    ("hrtimer_expire_exit", What::Timer { hrtimer: true, entry: false }, &[]),
    ("timer_expire_entry", What::Timer { hrtimer: false, entry: true }, &[]),
    ("timer_expire_exit", What::Timer { hrtimer: false, entry: false }, &[]),
    ("sys_enter", What::Syscall { entry: true }, &["id"]),
    ("sys_exit", What::Syscall { entry: false }, &["id"]),
    ("sys_enter_futex", What::Futex, &["__syscall_nr", "?uaddr", "?op", "?val"]),
    ("sys_exit_setsid", What::Setsid, &["__syscall_nr", "ret"]),
    ("contention_begin", What::ContentionBegin, &["lock_addr", "flags"]),
    ("contention_end", What::ContentionEnd, &["lock_addr", "ret"]),
    ("kvm_entry", What::KvmEntry, &["?vcpu_id"]),
    ("kvm_exit", What::KvmExit, &["?vcpu_id", "?exit_reason", "?isa"]),
];

impl Plan {
    pub(super) fn new(format: &Format) -> Plan {
        let name = format.name.clone();
        let (what, needed) = match EVENTS.iter().find(|(event, ..)| *event == name) {
            Some((_, what, needed)) => (*what, *needed),
            None if name.starts_with("sys_enter_") => (What::Syscall { entry: true }, &["__syscall_nr"][..]),
            None if name.starts_with("sys_exit_") => (What::Syscall { entry: false }, &["__syscall_nr"][..]),
            None => return Plan::Other { name },
        };
        let mut fields = [None; FIELDS_MAX];
        for (place, field) in fields.iter_mut().zip(needed) {
            *place = format.field(field.trim_start_matches('?'));
            if place.is_none() && !field.starts_with('?') {
                return Plan::Lacks { name, field };
            }
        }
        let states = if what == What::Switch { states(&format.print) } else { Vec::new() };
        Plan::Ours { what, fields, states }
    }
}

/// The bits of `prev_state` by this kernel's own print format: pairs of `{ 0x40, "P" }`, and above the last of them the
/// bit of a preempted task.
fn states(print: &str) -> Vec<(i64, TaskState)> {
    let (mut states, mut last) = (Vec::new(), None);
    for pair in print.split('{').skip(1) {
        let Some((bit, letter)) = pair.split('}').next().and_then(|pair| pair.split_once(',')) else { continue };
        let bit = bit.trim();
        let bit = bit.strip_prefix("0x").map_or_else(|| bit.parse().ok(), |hex| i64::from_str_radix(hex, 16).ok());
        let state = TaskState::from_letters(letter.trim().trim_matches('"').as_bytes());
        let Some(bit) = bit.filter(|bit| (1..1 << 32).contains(bit)) else { continue };
        // The last may be of a state that no task leaves a CPU in (`n`, new).
        last = last.max(Some(bit));
        states.extend(state.map(|state| (bit, state)));
    }
    states.extend(last.map(|last| (last << 1, TaskState::PREEMPTED)));
    states
}

/// Makes one of our events of a record. `None`: the record is too short, or holds impossible numbers.
pub(super) fn decode(
    what: What,
    fields: &[Option<Field>; FIELDS_MAX],
    states: &[(i64, TaskState)],
    record: &[u8],
    order: Order,
    names: &mut Interner,
) -> Option<Kind> {
    let int = |i: usize| fields[i]?.int(record, order);
    let number = |i: usize| -> Option<u32> { Some(int(i)? as u32) };
    let pid = |i: usize| fields[i]?.pid(record, order);
    let cpu = |i: usize| int(i).filter(|cpu| (0..=0xffff).contains(cpu)).map(|cpu| cpu as u32);
    let text = |i: usize| fields[i]?.text(record, order);
    let prio = |i: usize| int(i)?.try_into().ok();
    // The numbers first: a damaged record interns nothing.
    let task = |names: &mut Interner| {
        let (pid, prio) = (pid(1)?, prio(2)?);
        Some(TaskRef { pid, prio, comm: names.get(text(0)?) })
    };
    Some(match what {
        What::Switch => {
            let raw = int(3)?;
            let prev_state = if states.is_empty() {
                TaskState::from_prev_state(raw & 0x1ff)?
            } else {
                states.iter().filter(|(bit, _)| raw & bit != 0).fold(TaskState::RUNNABLE, |all, (_, s)| all.union(*s))
            };
            let (next_pid, next_prio, next_comm) = (pid(5)?, prio(6)?, text(4)?);
            let prev = task(names)?;
            let next = TaskRef { pid: next_pid, prio: next_prio, comm: names.get(next_comm) };
            Kind::Switch { prev, prev_state, next }
        }
        What::Waking | What::Wakeup | What::WakeupNew => {
            let target_cpu = cpu(3)?;
            let task = task(names)?;
            match what {
                What::Waking => Kind::Waking { task, target_cpu },
                What::Wakeup => Kind::Wakeup { task, target_cpu },
                _ => Kind::WakeupNew { task, target_cpu },
            }
        }
        What::Migrate => {
            let (orig_cpu, dest_cpu) = (cpu(3)?, cpu(4)?);
            Kind::Migrate { task: task(names)?, orig_cpu, dest_cpu }
        }
        What::Fork => {
            let (parent_pid, child_pid, parent, child) = (pid(1)?, pid(3)?, text(0)?, text(2)?);
            Kind::Fork { parent_pid, parent_comm: names.get(parent), child_pid, child_comm: names.get(child) }
        }
        What::Exec => {
            let (pid, old_pid) = (pid(1)?, pid(2)?);
            Kind::Exec { filename: names.get(text(0)?), pid, old_pid }
        }
        What::Exit => Kind::Exit { task: task(names)? },
        What::Irq { entry } => Kind::Irq { irq: number(0)?, entry },
        What::Softirq { entry } => Kind::Softirq { vec: number(0)?, entry },
        What::Timer { hrtimer, entry } => Kind::Timer { hrtimer, entry },
        What::Syscall { entry } => Kind::Syscall { nr: int(0)?, entry },
        What::Futex => match (int(1), int(2), int(3)) {
            (Some(uaddr), Some(op), Some(val)) => Kind::Futex { uaddr: uaddr as u64, op: op as u32, val: val as u32 },
            _ => Kind::Syscall { nr: int(0)?, entry: true },
        },
        What::Setsid => match u32::try_from(int(1)?) {
            Ok(sid) => Kind::Setsid { sid },
            Err(_) => Kind::Syscall { nr: int(0)?, entry: false },
        },
        What::ContentionBegin => Kind::ContentionBegin { lock: int(0)? as u64, flags: number(1)? },
        What::ContentionEnd => Kind::ContentionEnd { lock: int(0)? as u64, ret: int(1)? as i32 },
        What::KvmEntry => Kind::KvmEntry { vcpu: number(0).unwrap_or(u32::MAX) },
        What::KvmExit => {
            // Intel's (instruction set 1) keep the reason in the low half and flags above it.
            let reason = number(1).map_or(u32::MAX, |r| if number(2) == Some(1) { r & 0xffff } else { r });
            Kind::KvmExit { vcpu: number(0).unwrap_or(u32::MAX), reason }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SWITCH: &str = "name: sched_switch\nID: 372\nformat:\n\
        \tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\n\
        \tfield:char prev_comm[16];\toffset:8;\tsize:16;\tsigned:0;\n\
        \tfield:long prev_state;\toffset:32;\tsize:8;\tsigned:1;\n\
        \tfield:void * lock_addr;\toffset:40;\tsize:8;\tsigned:0;\n\
        \tfield:__data_loc char[] filename;\toffset:48;\tsize:4;\tsigned:0;\n\n\
        print fmt: \"prev_state=%s%s\", __print_flags(REC->prev_state & 3, \"|\", { 0x00000001, \"S\" }, { 2, \"D\" }), \"+\"\n";

    #[test]
    fn descriptions_are_read() {
        let format = Format::parse(SWITCH.as_bytes()).unwrap();
        assert_eq!((&*format.name, format.id), ("sched_switch", 372));
        let field = |name| format.field(name).unwrap();
        assert_eq!(field("prev_comm"), Field { offset: 8, size: 16, signed: false, place: Place::Here });
        assert_eq!(field("prev_state"), Field { offset: 32, size: 8, signed: true, place: Place::Here });
        assert_eq!(field("lock_addr").offset, 40);
        assert_eq!(field("filename").place, Place::DataLoc);
        assert_eq!(
            states(&format.print),
            [(1, TaskState::SLEEPING), (2, TaskState::UNINTERRUPTIBLE), (4, TaskState::PREEMPTED)]
        );
        assert!(matches!(Plan::new(&format), Plan::Lacks { field: "prev_pid", .. }));
    }

    #[test]
    fn fields_are_where_they_are_said_to_be() {
        let record = b"\x04\0\x03\0\xff\xfe\0abc\0\x01\0\x02\0xy";
        let field = |offset, size, signed, place| Field { offset, size, signed, place };
        let int = |f: Field, order| f.int(record, order);
        assert_eq!(int(field(4, 2, true, Place::Here), Order::Little), Some(-257));
        assert_eq!(int(field(4, 2, true, Place::Here), Order::Big), Some(-2));
        assert_eq!(int(field(4, 2, false, Place::Here), Order::Big), Some(0xfffe));
        for damaged in
            [field(16, 4, false, Place::Here), field(0, 9, false, Place::Here), field(0, 0, false, Place::Here)]
        {
            assert_eq!(int(damaged, Order::Little), None);
        }
        let text = |f: Field| f.text(record, Order::Little);
        assert_eq!(text(field(7, 4, false, Place::Here)), Some(&b"abc"[..]));
        assert_eq!(text(field(7, 2, false, Place::Here)), Some(&b"ab"[..]));
        // Offset 4, length 3.
        assert_eq!(text(field(0, 4, false, Place::DataLoc)), Some(&b"\xff\xfe"[..]));
    }
}
