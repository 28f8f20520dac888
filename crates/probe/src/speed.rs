//! How fast a CPU computes, so that run times recorded on one machine mean something on another.
//!
//! A round packs and unpacks a text as zip does: it looks up, compares and branches in half a MiB, as compilers, databases and servers
//! do, and needs nothing but the processor and its nearer caches. The text is made of drawn words and the same everywhere.

use std::hint::black_box;
use std::time::Instant;

use miniz_oxide::{deflate::compress_to_vec, inflate::decompress_to_vec};

use contend_machine::Cost;

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
pub fn text() -> Vec<u8> {
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
pub const WHAT: &str = "packing and unpacking 64 KiB of text, rounds a second, the 95th percentile";
/// Repetitions of a measurement of nothing else: a fifth of a second on a processor of 2022.
const TIMES: usize = 60;

/// Measured alone, on CPUs in turn; `None` if none may be used.
pub fn measure(cpus: &CpuSet) -> Option<Found> {
    let text = text();
    let samples: Vec<f64> = cpus.iter().cycle().take(TIMES).filter_map(|cpu| rounds(*cpu, &text)).collect();
    let s = undisturbed(Spread::of(&samples)?);
    let source = format!("measured by contend record: {WHAT}; {} repetitions", s.n);
    let cost = Cost { value: s.value.round() as u64, lo: s.lo.floor() as u64, hi: s.hi.ceil() as u64, source };
    Some(Found { section: "cpu", field: "speed", how: How::Measured, cost })
}

/// How fast a thread is that has its core to itself: what disturbs it (another thread of its core, which a hypervisor may hide, an
/// interrupt) makes it slower only. The 95th percentile differed by 6 % between seven measurements of one machine, the median by 19 %.
pub fn undisturbed(s: Spread) -> Spread {
    Spread { value: s.hi, ..s }
}

/// Rounds a second.
pub fn rounds(cpu: usize, text: &[u8]) -> Option<f64> {
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
    fn the_text_is_the_same_everywhere_and_packs_as_texts_do() {
        let text = text();
        assert_eq!((text.len(), &text[..20]), (BYTES, &b"yuiexou sbri ipnrujo"[..]));
        let packed = compress_to_vec(&text, LEVEL);
        assert!((BYTES / 4..BYTES / 2).contains(&packed.len()), "{} bytes", packed.len());
        assert_eq!(decompress_to_vec(&packed).unwrap(), text);
        assert!(rounds(0, &text).is_none_or(|r| r > 1.0));
    }
}
