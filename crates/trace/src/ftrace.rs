//! Writes ftrace text: the layout of a tracefs `trace` file, with times to the nanosecond.
//!
//! [`crate::Reader`] reads it back to the same events, and so does whatever else reads ftrace text.

use std::io::{self, Write};

use crate::event::{Context, Kind, TaskState, contention, softirq};
use crate::sink::{At, SchedSink, Task};

/// Buffered bytes before they go to the sink.
const FLUSH_BYTES: usize = 64 << 10;

/// Takes scheduler events, writes text. Lines stand in the order of the calls. Call [`TextWriter::finish`].
#[must_use = "finish() writes what is still buffered"]
pub struct TextWriter<W: Write> {
    out: W,
    buffer: Vec<u8>,
}

impl<W: Write> TextWriter<W> {
    /// Starts a file. `cpus`: the machine's number of CPUs, for its header.
    pub fn new(out: W, cpus: u32) -> Self {
        let header = format!(
            "# tracer: nop\n#\n#                                           #P:{cpus}\n#\n\
             #           TASK-PID     CPU#  FLAGS      TIMESTAMP  FUNCTION\n\
             #              | |         |     |            |         |\n"
        );
        let mut buffer = Vec::with_capacity(FLUSH_BYTES + 4096);
        buffer.extend_from_slice(header.as_bytes());
        Self { out, buffer }
    }

    /// Writes the rest and returns the sink.
    ///
    /// # Errors
    /// The sink's.
    pub fn finish(mut self) -> io::Result<W> {
        self.out.write_all(&self.buffer)?;
        self.out.flush()?;
        Ok(self.out)
    }

    fn head(&mut self, at: At<'_>, event: &str) {
        let out = &mut self.buffer;
        let comm = if at.pid == 0 { "<idle>" } else { at.comm };
        pad(out, 16usize.saturating_sub(comm.len()));
        name(out, comm);
        out.push(b'-');
        let start = out.len();
        pid(out, at.pid);
        pad(out, 7usize.saturating_sub(out.len() - start));
        out.extend_from_slice(b" [");
        digits(out, at.cpu.into(), 3);
        out.extend_from_slice(match at.context {
            Context::Unknown => b"] d.?2. ",
            Context::Task => b"] d..2. ",
            Context::Softirq => b"] d.s2. ",
            Context::Hardirq => b"] d.h2. ",
            Context::Nmi => b"] d.z2. ",
        });
        let seconds = at.ts / 1_000_000_000;
        pad(out, 4usize.saturating_sub(seconds.checked_ilog10().unwrap_or(0) as usize));
        digits(out, seconds, 1);
        out.push(b'.');
        digits(out, at.ts % 1_000_000_000, 9);
        out.extend_from_slice(b": ");
        out.extend_from_slice(event.as_bytes());
        out.extend_from_slice(b": ");
    }

    fn field(&mut self, key: &str, value: i64) {
        self.buffer.extend_from_slice(key.as_bytes());
        int(&mut self.buffer, value);
    }

    fn pid_field(&mut self, key: &str, value: u32) {
        self.buffer.extend_from_slice(key.as_bytes());
        pid(&mut self.buffer, value);
    }

    fn name_field(&mut self, key: &str, value: &str) {
        self.buffer.extend_from_slice(key.as_bytes());
        name(&mut self.buffer, value);
    }

    fn task(&mut self, task: Task<'_>) {
        self.name_field("comm=", task.comm);
        self.pid_field(" pid=", task.pid);
        self.field(" prio=", task.prio.into());
    }

    fn woken(&mut self, event: &str, at: At<'_>, task: Task<'_>, target_cpu: u32) -> io::Result<()> {
        self.head(at, event);
        self.task(task);
        self.buffer.extend_from_slice(b" target_cpu=");
        digits(&mut self.buffer, target_cpu.into(), 3);
        self.end()
    }

    fn end(&mut self) -> io::Result<()> {
        self.buffer.push(b'\n');
        if self.buffer.len() >= FLUSH_BYTES {
            self.out.write_all(&self.buffer)?;
            self.buffer.clear();
        }
        Ok(())
    }
}

impl<W: Write> SchedSink for TextWriter<W> {
    fn switch(&mut self, at: At<'_>, prev: Task<'_>, prev_state: TaskState, next: Task<'_>) -> io::Result<()> {
        self.head(at, "sched_switch");
        self.name_field("prev_comm=", prev.comm);
        self.pid_field(" prev_pid=", prev.pid);
        self.field(" prev_prio=", prev.prio.into());
        self.buffer.extend_from_slice(b" prev_state=");
        prev_state.push_letters(&mut self.buffer);
        self.name_field(" ==> next_comm=", next.comm);
        self.pid_field(" next_pid=", next.pid);
        self.field(" next_prio=", next.prio.into());
        self.end()
    }

    fn waking(&mut self, at: At<'_>, task: Task<'_>, target_cpu: u32) -> io::Result<()> {
        self.woken("sched_waking", at, task, target_cpu)
    }

    fn wakeup(&mut self, at: At<'_>, task: Task<'_>, target_cpu: u32) -> io::Result<()> {
        self.woken("sched_wakeup", at, task, target_cpu)
    }

    fn wakeup_new(&mut self, at: At<'_>, task: Task<'_>, target_cpu: u32) -> io::Result<()> {
        self.woken("sched_wakeup_new", at, task, target_cpu)
    }

    fn migrate(&mut self, at: At<'_>, task: Task<'_>, orig_cpu: u32, dest_cpu: u32) -> io::Result<()> {
        self.head(at, "sched_migrate_task");
        self.task(task);
        self.field(" orig_cpu=", orig_cpu.into());
        self.field(" dest_cpu=", dest_cpu.into());
        self.end()
    }

    fn fork(&mut self, at: At<'_>, parent: (u32, &str), child: (u32, &str)) -> io::Result<()> {
        self.head(at, "sched_process_fork");
        self.name_field("comm=", parent.1);
        self.pid_field(" pid=", parent.0);
        self.name_field(" child_comm=", child.1);
        self.pid_field(" child_pid=", child.0);
        self.end()
    }

    fn exec(&mut self, at: At<'_>, filename: &str, pid: u32, old_pid: u32) -> io::Result<()> {
        self.head(at, "sched_process_exec");
        self.name_field("filename=", filename);
        self.pid_field(" pid=", pid);
        self.pid_field(" old_pid=", old_pid);
        self.end()
    }

    fn exit(&mut self, at: At<'_>, task: Task<'_>) -> io::Result<()> {
        self.head(at, "sched_process_exit");
        self.task(task);
        self.end()
    }

    /// What an [`Event`](crate::Event) does not hold is written as `?`.
    fn explain(&mut self, at: At<'_>, kind: &Kind) -> io::Result<()> {
        self.head(at, kind.name());
        let out = &mut self.buffer;
        match *kind {
            Kind::Irq { irq, entry } => {
                write!(out, "irq={irq} {}", if entry { "name=?" } else { "ret=?" })?;
            }
            Kind::Softirq { vec, .. } => {
                let action = softirq::NAMES.get(vec as usize).unwrap_or(&"?");
                write!(out, "vec={vec} [action={action}]")?;
            }
            Kind::Timer { hrtimer, .. } => out.extend_from_slice(if hrtimer { &b"hrtimer=?"[..] } else { b"timer=?" }),
            Kind::Syscall { nr, entry: true } => write!(out, "NR {nr} (?)")?,
            Kind::Syscall { nr, .. } => write!(out, "NR {nr} = ?")?,
            Kind::Futex { uaddr, op, val } => write!(out, "uaddr=0x{uaddr:x} op=0x{op:x} val=0x{val:x}")?,
            Kind::Setsid { sid } => write!(out, "0x{sid:x}")?,
            Kind::ContentionBegin { lock, flags } => {
                write!(out, "0x{lock:x} (flags=")?;
                let names = contention::NAMES.iter().enumerate().filter(|(bit, _)| flags >> bit & 1 != 0);
                let mut first = true;
                for (_, name) in names {
                    write!(out, "{}{name}", if first { "" } else { "|" })?;
                    first = false;
                }
                let rest = flags & !((1 << contention::NAMES.len()) - 1);
                if rest != 0 {
                    write!(out, "{}0x{rest:x}", if first { "" } else { "|" })?;
                }
                out.push(b')');
            }
            Kind::ContentionEnd { lock, ret } => write!(out, "0x{lock:x} (ret={ret})")?,
            Kind::KvmEntry { vcpu } => write!(out, "vcpu {vcpu}, rip ?")?,
            Kind::KvmExit { vcpu, reason } => {
                if vcpu != u32::MAX {
                    write!(out, "vcpu {vcpu} ")?;
                }
                match reason {
                    u32::MAX => out.extend_from_slice(b"reason ? rip ?"),
                    reason => write!(out, "reason 0x{reason:x} rip ?")?,
                }
            }
            _ => unreachable!("{} has a method of its own", kind.name()),
        }
        self.end()
    }
}

fn pad(out: &mut Vec<u8>, spaces: usize) {
    out.resize(out.len() + spaces, b' ');
}

/// A name, with control characters (a line end would break the file) replaced.
fn name(out: &mut Vec<u8>, text: &str) {
    out.extend(text.bytes().map(|b| if b.is_ascii_control() { b'?' } else { b }));
}

/// A pid, unknown as the kernel writes it.
fn pid(out: &mut Vec<u8>, pid: u32) {
    int(out, if pid == u32::MAX { -1 } else { pid.into() });
}

fn int(out: &mut Vec<u8>, value: i64) {
    if value < 0 {
        out.push(b'-');
    }
    digits(out, value.unsigned_abs(), 1);
}

fn digits(out: &mut Vec<u8>, mut value: u64, width: usize) {
    let mut text = [b'0'; 20];
    let mut at = text.len();
    while value > 0 {
        at -= 1;
        text[at] = b'0' + (value % 10) as u8;
        value /= 10;
    }
    at = at.min(text.len() - width);
    out.extend_from_slice(&text[at..]);
}
