//! Experiments with interrupts, seen from a thread that reads the clock without pause: time that is gone between two
//! readings was spent in an interrupt (or in another task: medians leave that out).

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::pair::{Gate, both, on};
use crate::stats::median;
use crate::sys::{Membarrier, Timer};

/// The longest time between two readings of the clock until `end`, and the second of these.
#[inline]
fn longest_gap(end: Instant) -> (Duration, Instant) {
    let mut last = Instant::now();
    let mut longest = (Duration::ZERO, last);
    while last < end {
        let now = Instant::now();
        if now - last > longest.0 {
            longest = (now - last, now);
        }
        last = now;
    }
    longest
}

fn ns(d: Duration) -> f64 {
    d.as_nanos() as f64
}

/// A timer expires while its CPU is busy, and nobody waits for it: the interrupt and its handler, and one reading of the
/// clock.
pub fn timer(cpu: usize) -> Option<f64> {
    const TIMES: usize = 15;
    let timer = Timer::new()?;
    on(cpu, || {
        let mut gaps: Vec<f64> = (0..TIMES)
            .map(|_| {
                timer.arm(20_000);
                let (gap, _) = longest_gap(Instant::now() + Duration::from_micros(40));
                timer.arm(0);
                ns(gap)
            })
            .collect();
        median(&mut gaps)
    })
}

/// The tick on a busy CPU: the interrupt and its handler, and one reading of the clock. Each period has one tick, and is
/// long enough for other things: the shortest of the longest gaps is the tick that came alone.
pub fn tick(cpu: usize, hz: u32) -> Option<f64> {
    const TICKS: u32 = 4;
    let period = Duration::from_nanos(1_000_000_000 / u64::from(hz.max(1)));
    on(cpu, || {
        let began = Instant::now();
        (1..=TICKS).map(|k| ns(longest_gap(began + period * k).0)).min_by(f64::total_cmp)
    })
}

/// What an interrupt from one CPU to another, and back, takes, in ns.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Ipi {
    /// The sender's call: sending, flight, the handler's first half, the answer.
    pub call: f64,
    /// What the receiver loses, with one reading of the clock.
    pub gap: f64,
    /// From the end of the sender's call until the receiver goes on: the handler's second half, less what the answer and the way out of the call
    /// take. Below zero if that is longer.
    pub after: f64,
}

/// `from` interrupts `to`, which is busy.
pub fn ipi(membarrier: &Membarrier, from: usize, to: usize) -> Option<Ipi> {
    const TIMES: usize = 30;
    /// Time between two of them, so that each gap is one interrupt.
    const APART: Duration = Duration::from_micros(20);
    let (gate, stop) = (Gate::default(), AtomicU64::new(0));
    let (calls, gaps) = both(
        (from, to),
        || {
            gate.meet()?;
            let mut calls = Vec::new();
            for _ in 0..TIMES {
                let from = Instant::now();
                while from.elapsed() < APART {
                    std::hint::spin_loop();
                }
                let sending = Instant::now();
                membarrier.issue();
                calls.push((sending, Instant::now()));
            }
            stop.store(1, Ordering::Release);
            Some(calls)
        },
        || {
            gate.meet()?;
            let mut gaps = Vec::new();
            while stop.load(Ordering::Acquire) == 0 {
                gaps.push(longest_gap(Instant::now() + 2 * APART));
            }
            // The first and the last have no interrupt in them perhaps.
            gaps.pop();
            Some(gaps)
        },
    )?;
    // Each gap and the call that it began in.
    let of = |&(gap, end): &(Duration, Instant)| {
        let (_, ended) = calls.iter().find(|(sent, ended)| (*sent..*ended).contains(&(end - gap)))?;
        Some(if end > *ended { ns(end - *ended) } else { -ns(*ended - end) })
    };
    let mut after: Vec<f64> = gaps.iter().filter_map(of).collect();
    let mut gap: Vec<f64> = gaps.iter().map(|(gap, _)| ns(*gap)).collect();
    let mut call: Vec<f64> = calls.iter().map(|(sent, ended)| ns(*ended - *sent)).collect();
    Some(Ipi { call: median(&mut call)?, gap: median(&mut gap)?, after: median(&mut after)? })
}
