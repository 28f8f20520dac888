//! The fields of the events that explain scheduling: interrupts, timers, system calls, contended locks, KVM.
//!
//! Kernel, plug-in and raw prints differ as for the scheduler's own ([`super::payload`]):
//!
//! ```text
//! kernel:  irq=36 name=virtio1   NR 5 (5, 7fff13545100, ...)   0xffffffff830f3100 (flags=SPIN)    vcpu 0 reason HLT rip 0x...
//! raw:     irq=36 name=virtio1   id=5 args=ARRAY[...]          lock_addr=0xffff... flags=1        exit_reason=12 ... vcpu_id=0
//! ```
//! tracefs hashes addresses (`00000000ed8e3c73`), and prints single system calls as `sys_read(fd: 3, ...)`, `sys_read -> 0x0`.

use super::header::{SYS_ENTER, SYS_EXIT};
use crate::event::{Kind, contention, syscall};

/// Parses the fields of an event that explains scheduling. `None`: not one of these. `Some(None)`: one, damaged.
pub(super) fn explain(event: &[u8], fields: &[u8]) -> Option<Option<Kind>> {
    let (name, entry) = entry_or_exit(event)?;
    Some(match name {
        b"irq_handler" => number(fields, b"irq=").map(|irq| Kind::Irq { irq, entry }),
        b"softirq" => number(fields, b"vec=").map(|vec| Kind::Softirq { vec, entry }),
        b"hrtimer_expire" => fields.starts_with(b"hrtimer=").then_some(Kind::Timer { hrtimer: true, entry }),
        b"timer_expire" => fields.starts_with(b"timer=").then_some(Kind::Timer { hrtimer: false, entry }),
        b"sys" => number(fields, b"NR ").or_else(|| number(fields, b"id=")).map(|nr| Kind::Syscall { nr, entry }),
        b"contention" => contended(fields, entry),
        b"kvm" if entry => {
            let vcpu = number(fields, b"vcpu ").or_else(|| keyed(fields, b"vcpu_id="));
            vcpu.map(|vcpu| Kind::KvmEntry { vcpu })
        }
        b"kvm" => kvm_exit(fields),
        _ if event == b"sys_exit_setsid" => Some(match number::<u32>(fields, b"") {
            Some(sid) => Kind::Setsid { sid },
            None => Kind::Syscall { nr: -1, entry },
        }),
        _ if event == b"sys_enter_futex" && keyed::<u64>(fields, b"uaddr=").is_some() => {
            let called = || {
                let (uaddr, op) = (keyed(fields, b"uaddr=")?, keyed(fields, b"op=")?);
                Some(Kind::Futex { uaddr, op, val: keyed(fields, b"val=")? })
            };
            // trace-cmd's plug-in names the operation.
            Some(called().unwrap_or(Kind::Syscall { nr: syscall::FUTEX_X86_64, entry }))
        }
        // A single system call: its name says which, its number is only in the raw print.
        _ => {
            let named = if event.ends_with(b"_futex") {
                syscall::FUTEX_X86_64
            } else if event.ends_with(b"_execve") {
                syscall::EXECVE_X86_64
            } else {
                -1
            };
            Some(Kind::Syscall { nr: number(fields, b"__syscall_nr=").unwrap_or(named), entry })
        }
    })
}

/// The event's name without what says which side it is, and whether it is the first.
fn entry_or_exit(event: &[u8]) -> Option<(&[u8], bool)> {
    if let Some(name) = event.strip_suffix(b"_entry") {
        return matches!(name, b"irq_handler" | b"softirq" | b"hrtimer_expire" | b"timer_expire" | b"kvm")
            .then_some((name, true));
    }
    if let Some(name) = event.strip_suffix(b"_exit")
        && matches!(name, b"irq_handler" | b"softirq" | b"hrtimer_expire" | b"timer_expire" | b"kvm")
    {
        return Some((name, false));
    }
    match event {
        b"sys_enter" => Some((b"sys", true)),
        b"sys_exit" => Some((b"sys", false)),
        b"contention_begin" => Some((b"contention", true)),
        b"contention_end" => Some((b"contention", false)),
        _ if event.starts_with(SYS_ENTER) => Some((b"call", true)),
        _ if event.starts_with(SYS_EXIT) => Some((b"call", false)),
        _ => None,
    }
}

fn contended(fields: &[u8], begin: bool) -> Option<Kind> {
    let raw = fields.strip_prefix(b"lock_addr=");
    let text = raw.unwrap_or(fields);
    let text = text.strip_prefix(b"0x").unwrap_or(text);
    let (lock, rest) = hexadecimal(text)?;
    let rest = rest.strip_prefix(b" ")?;
    let rest = if raw.is_some() { rest } else { rest.strip_prefix(b"(")?.strip_suffix(b")")? };
    if !begin {
        return Some(Kind::ContentionEnd { lock, ret: number(rest, b"ret=")? });
    }
    let mut flags = 0;
    for flag in rest.strip_prefix(b"flags=")?.split(|b| *b == b'|').filter(|f| !f.is_empty()) {
        flags |= match contention::NAMES.iter().position(|name| name.as_bytes() == flag) {
            Some(bit) => 1 << bit,
            None => number(flag, b"")?,
        };
    }
    Some(Kind::ContentionBegin { lock, flags })
}

fn kvm_exit(fields: &[u8]) -> Option<Kind> {
    if let Some(reason) = keyed::<u32>(fields, b"exit_reason=") {
        return Some(Kind::KvmExit { vcpu: keyed(fields, b"vcpu_id=").unwrap_or(u32::MAX), reason });
    }
    let rest = match fields.strip_prefix(b"vcpu ") {
        Some(rest) => &rest[memchr::memchr(b' ', rest)? + 1..],
        None => fields,
    };
    // The name of the reason; a number if the kernel, or trace-cmd's plug-in ("UNKNOWN (76)"), knows none.
    let reason = rest.strip_prefix(b"reason ")?;
    let reason = number(reason, b"").or_else(|| number(reason, b"UNKNOWN (")).unwrap_or(u32::MAX);
    Some(Kind::KvmExit { vcpu: number(fields, b"vcpu ").unwrap_or(u32::MAX), reason })
}

/// The number behind `key`, wherever that stands as a word.
fn keyed<N: TryFrom<i128>>(fields: &[u8], key: &[u8]) -> Option<N> {
    fields.split(|b| *b == b' ').find_map(|word| number(word, key))
}

/// The number at the front, decimal or `0x...`, behind `key`.
fn number<N: TryFrom<i128>>(fields: &[u8], key: &[u8]) -> Option<N> {
    let text = fields.strip_prefix(key)?;
    if let Some(hex) = text.strip_prefix(b"0x") {
        return N::try_from(hexadecimal(hex)?.0.into()).ok();
    }
    let (negative, text) = text.strip_prefix(b"-").map_or((false, text), |rest| (true, rest));
    let digits = text.iter().take_while(|b| b.is_ascii_digit()).count();
    if !(1..=19).contains(&digits) {
        return None;
    }
    let value = text[..digits].iter().fold(0i128, |value, digit| value * 10 + i128::from(digit - b'0'));
    N::try_from(if negative { -value } else { value }).ok()
}

/// Hexadecimal digits at the front, and what follows them.
fn hexadecimal(text: &[u8]) -> Option<(u64, &[u8])> {
    let digits = text.iter().take_while(|b| b.is_ascii_hexdigit()).count();
    if !(1..=16).contains(&digits) {
        return None;
    }
    let value = text[..digits]
        .iter()
        .fold(0, |value, digit| value << 4 | u64::from((*digit as char).to_digit(16).unwrap_or(0)));
    Some((value, &text[digits..]))
}
