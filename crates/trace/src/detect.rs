//! Tells what a file is by its first bytes, and if it is no trace, what would be right.

use std::path::Path;

use crate::error::TraceError;
use crate::reader::Format;
use crate::text::{Header, Style, header, is_silent, shown};
use crate::{perfetto, tracedat};

/// What a text that is no trace should have been, where nothing more is known of it.
pub const EXPECTED: &str = "a line of a tracefs `trace` file or of `trace-cmd report` \
    (`bash-7 [001] d..2. 5.000100: sched_waking: comm=...`), or of `perf script` \
    (`bash 7 [001] 5.000100: sched:sched_waking: comm=...`)";

const EXPECTED_NORMAL: &str = "ftrace's default layout: turn the latency format off \
    (`echo 0 > options/latency-format`, `trace-cmd report` without -l)";

const EXPECTED_CLOCK: &str = "a time in seconds: record with a clock that counts ns \
    (`echo mono > trace_clock`, not `counter`, `uptime` or `x86-tsc`)";

pub(crate) fn detect(head: &[u8], path: &Path) -> Result<Format, TraceError> {
    // The file's name with this behind it, as a shell takes it; what cannot be quoted is no path.
    let file = |end: &str| {
        let name = format!("{}{end}", path.display());
        shlex::try_quote(&name).map_or(name.clone(), |q| q.into_owned())
    };
    let binary = |found, command| Err(TraceError::Binary { path: path.into(), found, command });
    if head.starts_with(tracedat::MAGIC) {
        return Ok(Format::TraceDat);
    }
    if head.starts_with(b"PERFILE2") || head.starts_with(b"2ELIFREP") {
        return binary("a perf recording (perf.data)", format!("perf script --ns -i {} > {}", file(""), file(".txt")));
    }
    if head.starts_with(&[0x28, 0xb5, 0x2f, 0xfd]) {
        return binary("a zstd-compressed file", format!("zstd -d {}", file("")));
    }
    if perfetto::is_perfetto(head) {
        return Ok(Format::Perfetto);
    }
    let bad = |line: usize, found: String, expected| {
        Err(TraceError::NotATrace { path: path.into(), line: line as u64, found, expected })
    };
    if head.is_empty() {
        return bad(1, "an empty file".into(), EXPECTED);
    }
    if crate::xentrace::is_xentrace(head) {
        return Ok(Format::Xentrace);
    }

    let mut ftrace = false;
    let mut latency = false;
    let mut first = None;
    let mut either = None;
    for (i, line) in head.split(|b| *b == b'\n').enumerate() {
        match (header(line, Style::Ftrace), header(line, Style::Perf)) {
            (Some(_), None) => return Ok(Format::Ftrace),
            (None, Some(_)) => return Ok(Format::PerfScript),
            // perf's tid -1, or a name that ends in a blank before ftrace's dash: another line tells, or the name of
            // the event, which perf alone gives with its system.
            (Some(_), Some(h)) => {
                either = either.or(Some(if has_system(line, &h) { Format::PerfScript } else { Format::Ftrace }))
            }
            (None, None) => {}
        }
        ftrace |= line.starts_with(b"# tracer:") || line.starts_with(b"cpus=");
        latency |= line.starts_with(b"#") && memchr::memmem::find(line, b" latency trace v").is_some();
        if first.is_none() && !line.starts_with(b"#") && !line.starts_with(b"cpus=") && !is_silent(line) {
            first = Some((i + 1, line));
        }
    }
    if let Some(format) = either {
        return Ok(format);
    }
    match first {
        // An empty recording.
        None if ftrace => Ok(Format::Ftrace),
        None => bad(1, shown(head.split(|b| *b == b'\n').next().unwrap_or(head)), EXPECTED),
        Some((i, line)) if latency => bad(i, shown(line), EXPECTED_NORMAL),
        Some((i, line)) if has_ticks(line) => bad(i, shown(line), EXPECTED_CLOCK),
        Some((i, line)) => bad(i, shown(line), EXPECTED),
    }
}

/// Whether the event is given as `sched:sched_switch`.
fn has_system(line: &[u8], header: &Header<'_>) -> bool {
    let at = header.event.as_ptr() as usize - line.as_ptr() as usize;
    at > 0 && line[at - 1] == b':'
}

/// Whether the line would be a trace line if its whole-numbered time were one in seconds.
fn has_ticks(line: &[u8]) -> bool {
    let Some(colon) = memchr::memmem::find(line, b": ") else { return false };
    let digits = line[..colon].iter().rev().take_while(|b| b.is_ascii_digit()).count();
    let fixed = [&line[..colon - digits], b"0.0", &line[colon..]].concat();
    digits > 0 && (header(&fixed, Style::Ftrace).is_some() || header(&fixed, Style::Perf).is_some())
}
