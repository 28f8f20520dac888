//! Events of a text, line by line.

use std::io::{self, Read};

use super::{Header, Style, header, payload};
use crate::event::Event;
use crate::intern::Interner;
use crate::lines::{Line, Lines};
use crate::tally::Tally;

/// Bytes of a damaged line that are shown.
const SHOWN_MAX: usize = 120;

/// A text that is read.
pub(crate) struct Source {
    lines: Lines<Box<dyn Read + Send>>,
    style: Style,
}

impl Source {
    pub(crate) fn new(source: Box<dyn Read + Send>, style: Style) -> Self {
        Self { lines: Lines::new(source), style }
    }

    pub(crate) fn next(&mut self, tally: &mut Tally, names: &mut Interner) -> io::Result<Option<Event>> {
        while let Some(line) = self.lines.next()? {
            tally.lines += 1;
            match line {
                Line::Whole(line) => {
                    if let Some(event) = event(line, self.style, tally, names) {
                        return Ok(Some(event));
                    }
                }
                Line::TooLong(line) => damaged(line, tally),
            }
        }
        Ok(None)
    }
}

fn event(line: &[u8], style: Style, tally: &mut Tally, names: &mut Interner) -> Option<Event> {
    let Some(header) = header(line, style) else {
        if !note(line, tally) {
            damaged(line, tally);
        }
        return None;
    };
    let Some(kind) = payload(header.event, header.fields, names) else {
        other(&header, tally);
        return None;
    };
    let Some(kind) = kind else {
        damaged(line, tally);
        return None;
    };
    let comm = match header.comm {
        _ if header.pid == 0 => names.idle(header.cpu),
        // perf names a task that it does not know by its tid.
        [b':', digits @ ..] if !digits.is_empty() && digits.iter().all(|b| b.is_ascii_digit() || *b == b'-') => {
            names.get(b"<...>")
        }
        comm => names.get(comm),
    };
    Some(Event {
        ts: header.ts,
        cpu: header.cpu,
        pid: header.pid,
        comm,
        context: header.context,
        resched: header.resched,
        kind,
    })
}

/// An event that is none of ours.
fn other(header: &Header<'_>, tally: &mut Tally) {
    if header.event == b"PERF_RECORD_LOST" || header.event == b"PERF_RECORD_LOST_SAMPLES" {
        tally.gap(None, last_number(header.fields).unwrap_or(0));
    } else {
        tally.unknown(header.event);
    }
}

/// Takes a line that is rightly no event.
fn note(line: &[u8], tally: &mut Tally) -> bool {
    let text = line.trim_ascii();
    if let Some(comment) = text.strip_prefix(b"#") {
        if let Some(at) = memchr::memmem::find(comment, b"#P:") {
            tally.cpus_declared = first_number(&comment[at + 3..]).and_then(|n| n.try_into().ok());
        }
        if let Some(rest) = comment.trim_ascii_start().strip_prefix(b"entries-in-buffer/entries-written:")
            && let Some(slash) = memchr::memchr(b'/', rest)
            && let (Some(kept), Some(written)) = (first_number(rest), first_number(&rest[slash + 1..]))
        {
            tally.lost.before_start += written.saturating_sub(kept);
        }
        return true;
    }
    if let Some(rest) = text.strip_prefix(b"cpus=") {
        tally.cpus_declared = first_number(rest).and_then(|n| n.try_into().ok());
        return tally.cpus_declared.is_some();
    }
    // "CPU:0 [LOST 545 EVENTS]" (kernel), "CPU:0 [545 EVENTS DROPPED]" (trace-cmd), either without a number.
    if let Some(rest) = text.strip_prefix(b"CPU:")
        && let Some(open) = memchr::memchr(b'[', rest)
        && let Some(mark) = rest[open + 1..].strip_suffix(b"]")
        && (mark.starts_with(b"LOST ") || mark.ends_with(b" DROPPED"))
    {
        tally.gap(None, mark.split(|b| *b == b' ').find_map(first_number).unwrap_or(0));
        return true;
    }
    is_silent(line)
}

fn damaged(line: &[u8], tally: &mut Tally) {
    tally.damaged(tally.lines, || shown(line));
}

/// Lines that say nothing about events: blanks, call chains (ftrace's ` => f`, perf's tab, address, symbol),
/// trace-cmd's `CPU 3 is empty` and `version = 6`.
pub(crate) fn is_silent(line: &[u8]) -> bool {
    let text = line.trim_ascii();
    let address = || text.split(|b| *b == b' ').next().is_some_and(|word| word.iter().all(u8::is_ascii_hexdigit));
    text.is_empty()
        || text.starts_with(b"=> ")
        // An editor may have made spaces of the tab.
        || ((line[0] == b'\t' || (line[0] == b' ' && text.ends_with(b")"))) && address())
        || (text.starts_with(b"CPU ") && text.ends_with(b" is empty"))
        || text.starts_with(b"version = ")
}

/// A line for a message, shortened.
pub(crate) fn shown(line: &[u8]) -> String {
    let mut text = String::from_utf8_lossy(&line[..line.len().min(SHOWN_MAX)]).into_owned();
    if line.len() > SHOWN_MAX {
        text.push_str("...");
    }
    text
}

fn first_number(text: &[u8]) -> Option<u64> {
    let text = text.trim_ascii_start();
    let digits = text.iter().take_while(|b| b.is_ascii_digit()).take(18).count();
    std::str::from_utf8(&text[..digits]).ok()?.parse().ok()
}

fn last_number(text: &[u8]) -> Option<u64> {
    first_number(text.trim_ascii_end().rsplit(|b| *b == b' ').next()?)
}
