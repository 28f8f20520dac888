//! The part of a line before its event's fields.
//!
//! ```text
//! ftrace:       comm-pid   (  tgid) [cpu] flags  seconds.fraction: event: fields
//! perf script:  comm  tid           [cpu]        seconds.fraction: period system:event: fields
//! ```
//! `(tgid)`, `flags` and `period` are optional. The right place is the first `[cpu]` with a pid before it and a time
//! and an event after it: a 15-byte name cannot contain all of that.

use super::{Tail, cpu, pid};
use crate::event::{Context, Nanos};

/// How a header names its task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Style {
    /// `comm-pid`.
    Ftrace,
    /// `comm tid` or `comm pid/tid`.
    Perf,
}

/// What the names of events of the system `syscalls` begin with.
pub(super) const SYS_ENTER: &[u8] = b"sys_enter_";
pub(super) const SYS_EXIT: &[u8] = b"sys_exit_";

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Header<'a> {
    pub comm: &'a [u8],
    pub pid: u32,
    pub cpu: u32,
    pub ts: Nanos,
    pub context: Context,
    pub resched: bool,
    /// Event name, without its system.
    pub event: &'a [u8],
    pub fields: &'a [u8],
}

/// Parses the header of a line.
pub(crate) fn header(line: &[u8], style: Style) -> Option<Header<'_>> {
    let mut from = 0;
    loop {
        let bracket = from + memchr::memchr(b'[', &line[from..])?;
        if let Some(header) = at_bracket(line, bracket, style) {
            return Some(header);
        }
        from = bracket + 1;
    }
}

fn at_bracket(line: &[u8], bracket: usize, style: Style) -> Option<Header<'_>> {
    let mut before = Tail(line[..bracket].trim_ascii_end());
    if before.0.len() == bracket {
        return None;
    }
    let (pid_number, comm) = match style {
        Style::Ftrace => {
            if let [rest @ .., b')'] = before.0 {
                let open = memchr::memrchr(b'(', rest)?;
                if !rest[open + 1..].iter().all(|b| b.is_ascii_digit() || matches!(b, b' ' | b'-')) {
                    return None;
                }
                before.0 = rest[..open].trim_ascii_end();
            }
            unsigned(&mut before.0).and_then(|n| Some((n, before.0.strip_suffix(b"-")?)))?
        }
        Style::Perf => {
            let mut n = unsigned(&mut before.0)?;
            // One that exits is -1, also behind its pid.
            if let Some(rest) = before.0.strip_suffix(b"-") {
                n = -n;
                before.0 = rest;
            }
            if let Some(rest) = before.0.strip_suffix(b"/") {
                before.0 = rest;
                unsigned(&mut before.0)?;
            }
            (n, before.0.strip_suffix(b" ")?)
        }
    };
    // Both pad the name on its left; perf also pads the tid, so that there a name's trailing blanks cannot be told.
    let comm = match style {
        Style::Ftrace => comm.trim_ascii_start(),
        Style::Perf => comm.trim_ascii(),
    };

    let mut rest = &line[bracket + 1..];
    let cpu_number = leading_number(&mut rest)?;
    rest = rest.strip_prefix(b"]")?.trim_ascii_start();
    let (ts, context, resched) = match time(&mut rest) {
        Some(ts) => (ts, Context::Unknown, false),
        None => {
            // The column of flags, "dNh3." or so.
            let (flags, after) = rest.split_at(memchr::memchr(b' ', rest)?);
            rest = after.trim_ascii_start();
            (time(&mut rest)?, context(flags), is_due(flags))
        }
    };
    rest = rest.trim_ascii_start();
    let (event, fields) = event(rest)?;
    Some(Header { comm, pid: pid(pid_number)?, cpu: cpu(cpu_number)?, ts, context, resched, event, fields })
}

/// The third flag: `h` or `H` (hard interrupt, the latter within a softirq), `s`, `z` or `Z` (NMI, the latter within an
/// interrupt). No kernel prints `?`: our writer does where it does not know.
fn context(flags: &[u8]) -> Context {
    match flags.get(2) {
        Some(b'h' | b'H') => Context::Hardirq,
        Some(b's') => Context::Softirq,
        Some(b'z' | b'Z') => Context::Nmi,
        Some(b'?') | None => Context::Unknown,
        Some(_) => Context::Task,
    }
}

/// The second flag: a switch is due, be it at once (`N`, `n`, `p`), at the next return to the program (`L`, `l`), or both.
fn is_due(flags: &[u8]) -> bool {
    matches!(flags.get(1), Some(b'N' | b'n' | b'p' | b'L' | b'l' | b'B' | b'b'))
}

/// Digits at the right end, no sign.
fn unsigned(text: &mut &[u8]) -> Option<i64> {
    let digits = text.iter().rev().take_while(|b| b.is_ascii_digit()).count();
    let (rest, mut number) = text.split_at(text.len() - digits);
    let value = leading_number(&mut number)?;
    *text = rest;
    Some(value)
}

fn leading_number(text: &mut &[u8]) -> Option<i64> {
    let digits = text.iter().take_while(|b| b.is_ascii_digit()).count();
    if digits == 0 || digits > 18 {
        return None;
    }
    let (number, rest) = text.split_at(digits);
    *text = rest;
    Some(number.iter().fold(0, |value, digit| value * 10 + i64::from(digit - b'0')))
}

/// `seconds.fraction:` in ns, digit by digit: a float would round. Digits beyond the ninth are cut.
fn time(text: &mut &[u8]) -> Option<Nanos> {
    let mut rest = *text;
    let seconds = leading_number(&mut rest)? as u64;
    rest = rest.strip_prefix(b".")?;
    let digits = rest.iter().take_while(|b| b.is_ascii_digit()).count();
    let nine = rest[..digits].iter().chain(std::iter::repeat(&b'0')).take(9);
    let fraction = nine.fold(0, |value, digit| value * 10 + u64::from(digit - b'0'));
    rest = rest[digits..].strip_prefix(b":")?;
    if digits == 0 {
        return None;
    }
    *text = rest;
    seconds.checked_mul(1_000_000_000)?.checked_add(fraction)
}

/// Splits `[period] [system:]event: fields`. Lines of recorders that carry no event name get one of our own.
fn event(mut text: &[u8]) -> Option<(&[u8], &[u8])> {
    let digits = text.iter().take_while(|b| b.is_ascii_digit()).count();
    if digits > 0 && text.get(digits) == Some(&b' ') {
        text = text[digits..].trim_ascii_start();
    }
    let end = memchr::memchr(b' ', text).unwrap_or(text.len());
    let (token, fields) = text.split_at(end);
    if token.starts_with(b"sys_") {
        // tracefs prints single system calls as calls.
        if fields.starts_with(b" -> ") {
            return Some((SYS_EXIT, b""));
        }
        if token.contains(&b'(') {
            return Some((SYS_ENTER, b""));
        }
    }
    if let [name @ .., b':'] = token {
        let name = &name[memchr::memrchr(b':', name).map_or(0, |colon| colon + 1)..];
        return if name.is_empty() { None } else { Some((name, fields.trim_ascii())) };
    }
    if token.starts_with(b"PERF_RECORD_") {
        let end = token.iter().position(|b| !(b.is_ascii_alphabetic() || *b == b'_')).unwrap_or(token.len());
        return Some((&token[..end], text[end..].trim_ascii()));
    }
    if token.starts_with(b"<") {
        return Some((b"<stack trace>", b""));
    }
    if fields.starts_with(b" <-") {
        return Some((b"function", b""));
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(line: &str, style: Style, comm: &str, pid: u32, cpu: u32, ts: Nanos, event: &str) {
        let h = header(line.as_bytes(), style).expect("a header");
        let got = (h.comm, h.pid, h.cpu, h.ts, h.event);
        assert_eq!(got, (comm.as_bytes(), pid, cpu, ts, event.as_bytes()), "{line}");
        let other = if style == Style::Ftrace { Style::Perf } else { Style::Ftrace };
        // perf's tid -1 reads as ftrace's pid 1.
        assert!(pid == u32::MAX || header(line.as_bytes(), other).is_none(), "{line}");
    }

    #[test]
    fn ftrace_headers() {
        use Style::Ftrace as F;
        check("    bash-5913    (   5913) [001] .....  1576.041015: e: x", F, "bash", 5913, 1, 1_576_041_015_000, "e");
        check(" <...>-5913    (-------) [001] dNh5.  1576.041015: e: x", F, "<...>", 5913, 1, 1_576_041_015_000, "e");
        check("    bash-5913    [001]   1576.041015: ev: x", F, "bash", 5913, 1, 1_576_041_015_000, "ev");
        check("  <idle>-0     [002]     7.441689719: ev:    x", F, "<idle>", 0, 2, 7_441_689_719, "ev");
        check("  n-12 [000]-5871    [010] d.h2.  15.892805: ev: x", F, "n-12 [000]", 5871, 10, 15_892_805_000, "ev");
        check("  a[000] 1.2: x-5876    [001] d.h3.  1.8: ev: x", F, "a[000] 1.2: x", 5876, 1, 1_800_000_000, "ev");
        check("  -dash--5870  [0] d..2.  0.000001: ev:", F, "-dash-", 5870, 0, 1000, "ev");
        check("  tgt  -5870  [0] d..2.  0.0000000019: ev:", F, "tgt  ", 5870, 0, 1, "ev");
        check("  ev: sched_sw:-6501 [1] d..2. 1.0: ev: y", F, "ev: sched_sw:", 6501, 1, 1_000_000_000, "ev");
        check("  bash-7 [1] d..2. 1.0: <stack trace>", F, "bash", 7, 1, 1_000_000_000, "<stack trace>");
        check(
            "  ruff-7 [0] ..... 1.0: sys_read(fd: 3, buf: 0x7f, count: 0x20)",
            F,
            "ruff",
            7,
            0,
            1_000_000_000,
            "sys_enter_",
        );
        check("  ruff-7 [0] ..... 1.0: sys_read -> 0x368c", F, "ruff", 7, 0, 1_000_000_000, "sys_exit_");
        check("  bash-7 [1] d..2. 1.0: schedule <-do_exit", F, "bash", 7, 1, 1_000_000_000, "function");
    }

    #[test]
    fn perf_headers() {
        use Style::Perf as P;
        check("  perf  5712 [000]  1541.111708: sched:s_r: x", P, "perf", 5712, 0, 1_541_111_708_000, "s_r");
        check("  perf  5712 [000]  1541.111708123:     1 sched:s_r: x", P, "perf", 5712, 0, 1_541_111_708_123, "s_r");
        check("  n-12 [000]  6487 [000]  1.772647: sched:s: x", P, "n-12 [000]", 6487, 0, 1_772_647_000, "s");
        check("  p] [120] q  6485 [003]  1.772647: sched:s: x", P, "p] [120] q", 6485, 3, 1_772_647_000, "s");
        check("  tgt    6490 [001]  1.5: sched:s: x", P, "tgt", 6490, 1, 1_500_000_000, "s");
        check("  rcu_preempt    15 [000]  1.5: sched:s: x", P, "rcu_preempt", 15, 0, 1_500_000_000, "s");
        check("  Web Content 64790/64791 [000] 1.5: sched:s: x", P, "Web Content", 64791, 0, 1_500_000_000, "s");
        check("  :-1    -1 [000] 1.5: sched:s: x", P, ":-1", u32::MAX, 0, 1_500_000_000, "s");
        check("  :-1 31628/-1    [000] 1.5: sched:s: x", P, ":-1", u32::MAX, 0, 1_500_000_000, "s");
        check(
            "  perf  6619 [000]  1821.5: PERF_RECORD_LOST lost 84",
            P,
            "perf",
            6619,
            0,
            1_821_500_000_000,
            "PERF_RECORD_LOST",
        );
        check("  k 0 [000]  0.0: PERF_RECORD_COMM: kthreadd:2/2", P, "k", 0, 0, 0, "PERF_RECORD_COMM");
    }

    #[test]
    fn damage_is_refused() {
        for line in [
            "",
            "[",
            "[0]",
            "-1 [0]",
            "a-1 [0] 1.:",
            "a-1 [0] 1.0",
            "a-1 [0] 1.0:",
            "a-1 [0] 1.0: sched_swi",
            "a-1 [99999] 1.0: e: x",
            "a-1 [0] 123456: e: x",
            "a-99999999999 [0] 1.0: e: x",
            "a-1 [0] 99999999999999999.0: e: x",
            "a-1[0] 1.0: e: x",
        ] {
            assert_eq!(header(line.as_bytes(), Style::Ftrace), None, "{line}");
            assert_eq!(header(line.as_bytes(), Style::Perf), None, "{line}");
        }
    }
}
