//! The fields of an event, in the kernel's own print formats (tracefs, `perf script`) and in those of libtraceevent's
//! plug-ins (`trace-cmd report`, `perf script` where it was built with them), and raw (`trace-cmd report -R`).
//!
//! ```text
//! kernel:  prev_comm=bash prev_pid=1 prev_prio=120 prev_state=R+ ==> next_comm=x next_pid=2 next_prio=120
//! raw:     prev_comm=bash prev_pid=1 prev_prio=120 prev_state=256 next_comm=x next_pid=2 next_prio=120
//! plug-in: bash:1 [120] R ==> x:2 [120]
//! ```

use super::explain::explain;
use super::{Tail, cpu, pid};
use crate::event::{Kind, TaskRef, TaskState};
use crate::intern::Interner;

/// Fields that newer kernels may append (`group_dead=true`) and that are dropped to find the known ones.
const APPENDED_MAX: usize = 4;
/// Shorter words of hexadecimal digits are no addresses.
const ADDRESS_MIN: usize = 6;

/// Parses the fields of one of our events. `None`: not one of ours. `Some(None)`: one of ours, damaged.
pub(crate) fn payload(event: &[u8], fields: &[u8], names: &mut Interner) -> Option<Option<Kind>> {
    let parse: fn(&[u8], &mut Interner) -> Option<Kind> = match event {
        b"sched_switch" => switch,
        b"sched_waking" => |f, n| woken(f, n).map(|(task, target_cpu)| Kind::Waking { task, target_cpu }),
        b"sched_wakeup" => |f, n| woken(f, n).map(|(task, target_cpu)| Kind::Wakeup { task, target_cpu }),
        b"sched_wakeup_new" => |f, n| woken(f, n).map(|(task, target_cpu)| Kind::WakeupNew { task, target_cpu }),
        b"sched_migrate_task" => migrate,
        b"sched_process_fork" => fork,
        b"sched_process_exec" => exec,
        b"sched_process_exit" => exit,
        _ => return explain(event, fields),
    };
    let mut fields = fields;
    for _ in 0..=APPENDED_MAX {
        if let Some(kind) = parse(fields, names) {
            return Some(Some(kind));
        }
        let Some(blank) = memchr::memrchr(b' ', fields) else { break };
        let field = fields[blank..].contains(&b'=').then(|| fields[..blank].trim_ascii_end());
        let Some(before) = field.or_else(|| before_address(fields)) else { break };
        fields = before;
    }
    Some(None)
}

/// What stands before an address, its symbol and object, which perf appends if it is told to (`-F +ip,+sym,+dso`).
fn before_address(fields: &[u8]) -> Option<&[u8]> {
    let mut end = fields.len();
    for _ in 0..3 {
        let blank = memchr::memrchr(b' ', &fields[..end])?;
        let word = &fields[blank + 1..end];
        if word.len() >= ADDRESS_MIN && word.iter().all(u8::is_ascii_hexdigit) {
            return Some(fields[..blank].trim_ascii_end());
        }
        end = blank;
    }
    None
}

/// A task before it is interned: a damaged line interns nothing.
struct Found<'a> {
    comm: &'a [u8],
    pid: u32,
    prio: i32,
}

impl Found<'_> {
    fn intern(&self, names: &mut Interner) -> TaskRef {
        TaskRef { pid: self.pid, comm: names.get(self.comm), prio: self.prio }
    }
}

/// `comm:pid [prio]`, all that is left.
fn plugin_task(mut text: Tail<'_>) -> Option<Found<'_>> {
    text.strip(b"]")?;
    let prio = text.number(b" [")?.try_into().ok()?;
    let pid = pid(text.number(b":")?)?;
    Some(Found { comm: text.0, pid, prio })
}

/// `comm=NAME pid=N prio=N`, all that is left.
fn kernel_task(mut text: Tail<'_>) -> Option<Found<'_>> {
    let prio = text.number(b" prio=")?.try_into().ok()?;
    let pid = pid(text.number(b" pid=")?)?;
    Some(Found { comm: text.0.strip_prefix(b"comm=")?, pid, prio })
}

fn switch(fields: &[u8], names: &mut Interner) -> Option<Kind> {
    let (prev, prev_state, next) = kernel_switch(fields).or_else(|| plugin_switch(fields))?;
    Some(Kind::Switch { prev: prev.intern(names), prev_state, next: next.intern(names) })
}

fn kernel_switch(fields: &[u8]) -> Option<(Found<'_>, TaskState, Found<'_>)> {
    const NEXT: &[u8] = b" next_comm=";
    let mut text = Tail(fields);
    let prio = text.number(b" next_prio=")?.try_into().ok()?;
    let next_pid = pid(text.number(b" next_pid=")?)?;
    let mut end = text.0.len();
    loop {
        let at = memchr::memrchr(b' ', &text.0[..end])?;
        if text.0[at..].starts_with(NEXT)
            && let Some((prev, state)) = kernel_prev(Tail(&text.0[..at]))
        {
            return Some((prev, state, Found { comm: &text.0[at + NEXT.len()..], pid: next_pid, prio }));
        }
        end = at;
    }
}

/// `prev_comm=NAME prev_pid=N prev_prio=N prev_state=X`, with or without an arrow.
fn kernel_prev(mut text: Tail<'_>) -> Option<(Found<'_>, TaskState)> {
    text.0 = text.0.strip_suffix(b" ==>").unwrap_or(text.0);
    let equals = memchr::memrchr(b'=', text.0)?;
    let letters = &text.0[equals + 1..];
    let state = match TaskState::from_letters(letters) {
        Some(state) => state,
        None => TaskState::from_raw(Tail(letters).number(b"")?)?,
    };
    text.0 = &text.0[..=equals];
    text.strip(b" prev_state=")?;
    let prio = text.number(b" prev_prio=")?.try_into().ok()?;
    let pid = pid(text.number(b" prev_pid=")?)?;
    Some((Found { comm: text.0.strip_prefix(b"prev_comm=")?, pid, prio }, state))
}

fn plugin_switch(fields: &[u8]) -> Option<(Found<'_>, TaskState, Found<'_>)> {
    const ARROW: &[u8] = b" ==> ";
    let mut end = fields.len();
    loop {
        let at = memchr::memrchr(b' ', &fields[..end])?;
        end = at;
        if !fields[at..].starts_with(ARROW) {
            continue;
        }
        let left = &fields[..at];
        let Some(blank) = memchr::memrchr(b' ', left) else { continue };
        if let Some(state) = TaskState::from_plugin_letters(&left[blank + 1..])
            && let Some(prev) = plugin_task(Tail(&left[..blank]))
            && let Some(next) = plugin_task(Tail(&fields[at + ARROW.len()..]))
        {
            return Some((prev, state, next));
        }
    }
}

fn woken(fields: &[u8], names: &mut Interner) -> Option<(TaskRef, u32)> {
    let (task, target_cpu) = kernel_woken(Tail(fields)).or_else(|| plugin_woken(Tail(fields)))?;
    Some((task.intern(names), cpu(target_cpu)?))
}

fn kernel_woken(mut text: Tail<'_>) -> Option<(Found<'_>, i64)> {
    let target_cpu = text.number(b" target_cpu=")?;
    // Kernels before 4.3 also say whether the task was not yet awake.
    let mut older = text;
    if older.number(b" success=").is_some() {
        text = older;
    }
    Some((kernel_task(text)?, target_cpu))
}

fn plugin_woken(mut text: Tail<'_>) -> Option<(Found<'_>, i64)> {
    let target_cpu = text.number(b" CPU:")?;
    let mut older = text;
    if older.number(b" success=").is_some() {
        text = older;
    }
    Some((plugin_task(text)?, target_cpu))
}

fn migrate(fields: &[u8], names: &mut Interner) -> Option<Kind> {
    let mut text = Tail(fields);
    let dest_cpu = cpu(text.number(b" dest_cpu=")?)?;
    let orig_cpu = cpu(text.number(b" orig_cpu=")?)?;
    Some(Kind::Migrate { task: kernel_task(text)?.intern(names), orig_cpu, dest_cpu })
}

fn fork(fields: &[u8], names: &mut Interner) -> Option<Kind> {
    const CHILD: &[u8] = b" child_comm=";
    let mut text = Tail(fields);
    let child_pid = pid(text.number(b" child_pid=")?)?;
    let (child_comm, parent_pid, parent_comm) = {
        let mut end = text.0.len();
        loop {
            let at = memchr::memrchr(b' ', &text.0[..end])?;
            end = at;
            if !text.0[at..].starts_with(CHILD) {
                continue;
            }
            if let Some((parent_pid, parent_comm)) = fork_parent(Tail(&text.0[..at])) {
                break (&text.0[at + CHILD.len()..], parent_pid, parent_comm);
            }
        }
    };
    Some(Kind::Fork { parent_pid, parent_comm: names.get(parent_comm), child_pid, child_comm: names.get(child_comm) })
}

/// `comm=NAME pid=N`, or `parent_comm=NAME parent_pid=N` in the raw form.
fn fork_parent(text: Tail<'_>) -> Option<(u32, &[u8])> {
    let mut kernel = text;
    if let Some(number) = kernel.number(b" pid=")
        && let Some(comm) = kernel.0.strip_prefix(b"comm=")
    {
        return Some((pid(number)?, comm));
    }
    let mut raw = text;
    let number = raw.number(b" parent_pid=")?;
    Some((pid(number)?, raw.0.strip_prefix(b"parent_comm=")?))
}

fn exec(fields: &[u8], names: &mut Interner) -> Option<Kind> {
    let mut text = Tail(fields);
    let old_pid = pid(text.number(b" old_pid=")?)?;
    let new_pid = pid(text.number(b" pid=")?)?;
    Some(Kind::Exec { filename: names.get(text.0.strip_prefix(b"filename=")?), pid: new_pid, old_pid })
}

fn exit(fields: &[u8], names: &mut Interner) -> Option<Kind> {
    let task = kernel_task(Tail(fields)).or_else(|| plugin_task(Tail(fields)))?;
    Some(Kind::Exit { task: task.intern(names) })
}
