//! Which wake-ups were made by interrupts.
//!
//! `sched_waking` in interrupt context names the interrupted task as its waker. ftrace's own text tells: the third of
//! the flags before the time is `h` or `H` (hard interrupt), `s` (softirq), `z` or `Z` (NMI). The events of
//! `contend-trace` have no such field, so the text is looked at once more, and the two are matched by their times.
//! `trace-cmd report` and `perf script` print no flags.

use std::io::{BufRead, BufReader, Read};

use flate2::read::MultiGzDecoder;

const EVENT: &[u8] = b": sched_waking: ";
/// Longest line that is looked at; others have no flags.
const LINE_MAX: u64 = 4096;
/// Entries that may be skipped to find an event's.
const SKIP_MAX: usize = 64;

/// For each `sched_waking` line with flags, in file order: its time, and whether it was in interrupt context.
#[derive(Debug, Default)]
pub struct Contexts {
    /// Time in ns, doubled, + 1 in interrupt context.
    lines: Vec<u64>,
    at: usize,
}

impl Contexts {
    /// Of the next `sched_waking` event; `None`: the text does not say.
    pub fn next(&mut self, ts: u64) -> Option<bool> {
        let found = self.lines[self.at..].iter().take(SKIP_MAX).position(|l| l >> 1 == ts)?;
        self.at += found + 1;
        Some(self.lines[self.at - 1] & 1 == 1)
    }
}

/// Look through a recording. What cannot be read is the reader's to report.
pub fn wakings(bytes: &[u8]) -> Contexts {
    let mut contexts = Contexts::default();
    let mut input: Box<dyn BufRead + '_> = if bytes.starts_with(&[0x1f, 0x8b]) {
        Box::new(BufReader::new(MultiGzDecoder::new(bytes)))
    } else {
        Box::new(bytes)
    };
    let mut line = Vec::new();
    loop {
        line.clear();
        match (&mut input).take(LINE_MAX).read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => return contexts,
            Ok(_) => contexts.lines.extend(entry(&line)),
        }
    }
}

fn entry(line: &[u8]) -> Option<u64> {
    let at = line.windows(EVENT.len()).position(|w| w == EVENT)?;
    // Leftwards: time, flags, [cpu].
    let mut words = line[..at].rsplit(|b| *b == b' ').filter(|w| !w.is_empty());
    let (time, flags, cpu) = (words.next()?, words.next()?, words.next()?);
    if !cpu.starts_with(b"[") || flags.starts_with(b"[") {
        return None;
    }
    let dot = time.iter().position(|b| *b == b'.')?;
    let number = |digits: &[u8]| {
        digits.iter().try_fold(0u64, |n, d| {
            d.is_ascii_digit().then(|| n.checked_mul(10)?.checked_add(u64::from(d - b'0'))).flatten()
        })
    };
    let fraction = &time[dot + 1..];
    let fraction = &fraction[..fraction.len().min(9)];
    let ns = number(fraction)?.checked_mul(10u64.pow(9 - fraction.len() as u32))?;
    let ts = number(&time[..dot])?.checked_mul(1_000_000_000)?.checked_add(ns)?;
    let interrupt = matches!(flags.get(2)?, b'h' | b'H' | b's' | b'z' | b'Z');
    (ts < 1 << 62).then_some(ts << 1 | u64::from(interrupt))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_read_and_matched_by_time() {
        let text = "# tracer: nop\n\
            a-1 [001] d..2. 5.000001: sched_waking: comm=b pid=2 prio=120 target_cpu=000\n\
            a-1 [001] d.h2. 5.000002: sched_waking: comm=b pid=2 prio=120 target_cpu=000\n\
            a-1 [001] d.s2. 5.000003: sched_waking: comm=b pid=2 prio=120 target_cpu=000\n\
            a-1 [001] 5.000004: sched_waking: comm=b pid=2 prio=120 target_cpu=000\n";
        let mut c = wakings(text.as_bytes());
        assert_eq!(c.lines.len(), 3);
        assert_eq!(c.next(5_000_001_000), Some(false));
        assert_eq!(c.next(5_000_003_000), Some(true));
        assert_eq!(c.next(5_000_004_000), None);
    }
}
