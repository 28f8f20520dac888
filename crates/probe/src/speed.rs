//! How fast a CPU computes, so that run times recorded on one machine mean something on another.
//!
//! A round packs and unpacks a text as zip does: it looks up, compares and branches in half a MiB, as compilers, databases and servers
//! do, and needs nothing but the processor and its nearer caches. The text is made of drawn words and the same everywhere.

use std::hint::black_box;
use std::time::Instant;

use miniz_oxide::{deflate::compress_to_vec, inflate::decompress_to_vec};

use contend_machine::{CAPACITY_MAX, Cost};

use crate::How;
use crate::derive::Found;
use crate::memory::Dice;
use crate::pair::on;
use crate::stats::Spread;
use crate::sysfs::CpuSet;

/// Bytes of the text.
const BYTES: usize = 64 * 1024;
/// What zip programs use if nobody asks for another.
const LEVEL: u8 = 6;
/// Different words.
const WORDS: usize = 2000;

/// A text in which few words are frequent and most are rare.
fn text() -> Vec<u8> {
    let mut dice = Dice::default();
    let words: Vec<Vec<u8>> =
        (0..WORDS).map(|_| (0..2 + dice.below(9)).map(|_| b'a' + dice.below(26) as u8).collect()).collect();
    let mut text = Vec::with_capacity(BYTES + 16);
    while text.len() < BYTES {
        let below = 1 + dice.below(WORDS);
        text.extend(&words[dice.below(below)]);
        text.push(if dice.below(10) == 0 { b'\n' } else { b' ' });
    }
    text.truncate(BYTES);
    text
}

/// What is said to have been measured.
const WHAT: &str = "packing and unpacking 64 KiB of text, rounds a second, the fastest; range: other programs";
/// Rounds of a burst: some 40 ms on a processor of 2022.
const BURST: usize = 24;
/// At most so many bursts, a second and a half.
const BURSTS_MAX: usize = 40;
/// A machine that has idled begins slowly, for half a second and longer: measured when the fastest round of so many bursts in succession was no
/// faster than that of those before them ...
const STEADY: usize = 8;
/// ... by more than this factor.
const FASTER: f64 = 1.01;

/// How much more or less than packing a text other programs may gain from a faster machine. The CPU times of ten commands on two
/// machines, by which speeds say x1.22, were x1.09 to x1.55 (docs/models.md): off by up to x1.27, which is x1.13 for each of the two.
const PROGRAMS: f64 = 1.13;

/// Measured alone, on CPUs in turn; `None` if none may be used. What disturbs a thread (another one of its core, which a hypervisor may
/// hide, an interrupt, a clock that has not risen yet) makes it slower only: the fastest counts.
pub fn measure(cpus: &CpuSet) -> Option<Found> {
    let text = text();
    let mut rounds = cpus.iter().cycle().filter_map(|cpu| rounds(*cpu, &text));
    let (value, n) = settled(|| rounds.by_ref().take(BURST).reduce(f64::max))?;
    let s = with_range(value, n * BURST);
    let source = format!("measured by contend probe: {WHAT}; {} repetitions", s.n);
    let cost = Cost { value: s.value.round() as u64, lo: s.lo.floor() as u64, hi: s.hi.ceil() as u64, source };
    Some(Found { section: "cpu", field: "speed", how: How::Measured, cost })
}

/// What a CPU of speed `slow` is worth against one of speed `fast`. Programs differ in what they gain from the faster one, as they do between
/// machines.
pub fn compared(slow: &Cost, fast: &Cost) -> Found {
    let ratio = |a: u64, b: u64| (a as f64 / b.max(1) as f64 * CAPACITY_MAX as f64).round() as u64;
    let value = ratio(slow.value, fast.value).clamp(1, CAPACITY_MAX);
    let (lo, hi) = (ratio(slow.lo, fast.hi).clamp(1, value), ratio(slow.hi, fast.lo).clamp(value, CAPACITY_MAX));
    let source = format!(
        "measured by contend probe: {} rounds a second against {} (cpu.speed); range: other programs",
        slow.value, fast.value
    );
    Found { section: "cpu", field: "capacity", how: How::Measured, cost: Cost { value, lo, hi, source } }
}

/// The fastest of bursts that have become steady, and how many there were.
fn settled(mut burst: impl FnMut() -> Option<f64>) -> Option<(f64, usize)> {
    let (mut best, mut since) = (burst()?, 0);
    for n in 1..BURSTS_MAX {
        if since == STEADY {
            return Some((best, n));
        }
        let next = burst()?;
        since = if next > best * FASTER { 0 } else { since + 1 };
        best = best.max(next);
    }
    Some((best, BURSTS_MAX))
}

fn with_range(value: f64, n: usize) -> Spread {
    Spread { value, lo: value / PROGRAMS, hi: value * PROGRAMS, n }
}

/// Rounds a second.
fn rounds(cpu: usize, text: &[u8]) -> Option<f64> {
    on(cpu, || {
        let round = || {
            let packed = compress_to_vec(black_box(text), LEVEL);
            black_box(decompress_to_vec(&packed)).is_ok()
        };
        let warm = round();
        let began = Instant::now();
        (warm && round()).then(|| 1.0 / began.elapsed().as_secs_f64())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_that_begins_slowly_is_waited_for() {
        let slow_for = |n: usize| {
            let mut i = 0;
            settled(|| {
                i += 1;
                Some(if i <= n { 550.0 + (i % 3) as f64 } else { 800.0 })
            })
        };
        assert_eq!(slow_for(0), Some((800.0, 1 + STEADY)));
        assert_eq!(slow_for(STEADY), Some((800.0, 2 * STEADY + 1)));
        let mut rising = 0.0;
        assert_eq!(
            settled(|| {
                rising += 100.0;
                Some(rising)
            }),
            Some((100.0 * BURSTS_MAX as f64, BURSTS_MAX))
        );
        assert_eq!(settled(|| None), None);
    }

    #[test]
    fn kinds_are_compared_by_their_speeds() {
        let cost = |value| Cost { value, lo: value * 9 / 10, hi: value * 11 / 10, source: String::new() };
        let compared = |slow: &Cost, fast: &Cost| super::compared(slow, fast).cost;
        let c = compared(&cost(400), &cost(800));
        assert_eq!((c.lo, c.value, c.hi), (419, 512, 626));
        // Faster than the fastest, or nothing.
        let c = compared(&cost(900), &cost(800));
        assert_eq!((c.lo <= c.value, c.value, c.hi), (true, CAPACITY_MAX, CAPACITY_MAX));
        assert_eq!(compared(&cost(0), &cost(0)).value, 1);
    }

    #[test]
    fn the_text_is_the_same_everywhere_and_packs_as_texts_do() {
        let text = text();
        assert_eq!((text.len(), &text[..20]), (BYTES, &b"yuiexou sbri ipnrujo"[..]));
        let packed = compress_to_vec(&text, LEVEL);
        assert!((BYTES / 4..BYTES / 2).contains(&packed.len()), "{} bytes", packed.len());
        assert_eq!(decompress_to_vec(&packed).unwrap(), text);
        assert!(rounds(0, &text).is_none_or(|r| r > 1.0));
    }
}
