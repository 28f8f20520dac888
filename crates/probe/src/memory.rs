//! Experiments with loads and stores: what a line costs where it lies.

use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::pair::{Alone, Gate, both, on, spin_until};
use crate::stats::median;
use crate::sys;

/// Bytes of a cache line.
const LINE: usize = 64;
/// Distance of two lines of a chain: no prefetcher takes two of them for neighbours.
const STRIDE: usize = 256;

fn each_ns(began: Instant, n: usize) -> f64 {
    began.elapsed().as_nanos() as f64 / n as f64
}

/// A generator (xorshift64): the same numbers in every run.
pub struct Dice(u64);

impl Default for Dice {
    fn default() -> Self {
        Dice(0x9E37_79B9_7F4A_7C15)
    }
}

impl Dice {
    /// A number from 0, below `n`.
    pub fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % n as u64) as usize
    }
}

/// For each place of 0..n the next one: one cycle through all (Sattolo's shuffle).
fn cycle(n: usize) -> Vec<usize> {
    let mut dice = Dice::default();
    let mut next: Vec<usize> = (0..n).collect();
    for i in (1..n).rev() {
        next.swap(i, dice.below(i));
    }
    next
}

/// A load that hits the first cache, each needing the one before.
pub fn hit(cpu: usize) -> Option<f64> {
    const N: usize = 20_000;
    on(cpu, || {
        let cell = black_box(AtomicU64::new(0));
        let cells = std::slice::from_ref(&cell);
        let began = Instant::now();
        let mut at = 0;
        for _ in 0..N {
            // The address of each load is the value of the last.
            at = cells[at].load(Ordering::Relaxed) as usize;
        }
        black_box(at);
        Some(each_ns(began, N))
    })
}

/// An atomic addition to a line that is held.
pub fn atomic(cpu: usize) -> Option<f64> {
    const N: usize = 10_000;
    on(cpu, || {
        let cell = black_box(AtomicU64::new(0));
        let began = Instant::now();
        for _ in 0..N {
            cell.fetch_add(1, Ordering::AcqRel);
        }
        Some(each_ns(began, N))
    })
}

/// A reading of the clock.
pub fn clock_read(cpu: usize) -> Option<f64> {
    const N: usize = 2_000;
    on(cpu, || {
        let began = Instant::now();
        for _ in 0..N {
            black_box(Instant::now());
        }
        Some(each_ns(began, N))
    })
}

/// Lines of a chain: the word of each is the place of the next.
fn chain(lines: usize) -> Vec<AtomicU64> {
    let words = STRIDE / 8;
    let memory: Vec<AtomicU64> = (0..lines * words).map(|_| AtomicU64::new(0)).collect();
    for (place, next) in cycle(lines).into_iter().enumerate() {
        memory[place * words].store((next * words) as u64, Ordering::Relaxed);
    }
    memory
}

/// One CPU writes lines, another loads them, each load needing the one before: the transfer of one modified line.
pub fn transfer(writer: usize, reader: usize) -> Option<f64> {
    const LINES: usize = 64;
    const ROUNDS: u64 = 40;
    let memory = chain(LINES);
    let (gate, turn) = (Gate::default(), Alone::<AtomicU64>::default());
    let (_, times) = both(
        (writer, reader),
        || {
            gate.meet()?;
            for round in 0..ROUNDS {
                spin_until(&turn.0, 2 * round)?;
                // Beside the link, on the same line.
                memory.chunks(STRIDE / 8).for_each(|line| line[1].store(round, Ordering::Relaxed));
                turn.0.store(2 * round + 1, Ordering::Release);
            }
            Some(())
        },
        || {
            gate.meet()?;
            let mut times = Vec::new();
            for round in 0..ROUNDS {
                spin_until(&turn.0, 2 * round + 1)?;
                let began = Instant::now();
                let mut at = 0;
                for _ in 0..LINES {
                    at = memory[at].load(Ordering::Relaxed) as usize;
                }
                black_box(at);
                times.push(each_ns(began, LINES));
                turn.0.store(2 * round + 2, Ordering::Release);
            }
            Some(times)
        },
    )?;
    // Without the first rounds, which bring the memory.
    median(&mut times[4..].to_vec())
}

/// Two CPUs take turns at one word: half a round trip.
pub fn ping(a: usize, b: usize) -> Option<f64> {
    const TURNS: u64 = 1_000;
    let (gate, word) = (Gate::default(), Alone::<AtomicU64>::default());
    let player = |first: u64| {
        let (gate, word) = (&gate, &word.0);
        move || {
            gate.meet()?;
            // Both are there: the first turns are not timed.
            let mut began = Instant::now();
            for turn in 0..TURNS + 10 {
                if turn == 10 {
                    began = Instant::now();
                }
                spin_until(word, 2 * turn + first)?;
                word.store(2 * turn + first + 1, Ordering::Release);
            }
            Some(each_ns(began, 2 * TURNS as usize))
        }
    };
    Some(both((a, b), player(0), player(1))?.0)
}

/// One CPU writes some KiB, another fetches them, several loads in flight: ns a KiB, less what the same loads take when
/// they hit.
pub fn refill(from: usize, to: usize, kib: usize) -> Option<f64> {
    const ROUNDS: u64 = 8;
    let lines = kib * 1024 / LINE;
    let memory: Vec<AtomicU64> = (0..lines * LINE / 8).map(|_| AtomicU64::new(1)).collect();
    // An odd step through a power of two of lines: all of them, none beside the last, and each address known in time.
    let step = (lines / 3) | 1;
    let visit = |i: usize| &memory[((i * step) & (lines - 1)) * (LINE / 8)];
    let (gate, turn) = (Gate::default(), Alone::<AtomicU64>::default());
    let (_, times) = both(
        (from, to),
        || {
            gate.meet()?;
            for round in 0..ROUNDS {
                spin_until(&turn.0, 2 * round)?;
                // Written, all of it: otherwise the partner would still have the lines of the last round.
                (0..lines).for_each(|i| visit(i).store(round, Ordering::Relaxed));
                turn.0.store(2 * round + 1, Ordering::Release);
            }
            Some(())
        },
        || {
            gate.meet()?;
            let pass = || {
                let began = Instant::now();
                black_box((0..lines).map(|i| visit(i).load(Ordering::Relaxed)).fold(0, u64::wrapping_add));
                began.elapsed().as_nanos() as f64
            };
            let mut times = Vec::new();
            for round in 0..ROUNDS {
                spin_until(&turn.0, 2 * round + 1)?;
                let cold = pass();
                times.push((cold - pass()).max(0.0) / kib as f64);
                turn.0.store(2 * round + 2, Ordering::Release);
            }
            Some(times)
        },
    )?;
    median(&mut times[1..].to_vec())
}

/// Memory of a size that no cache holds.
pub struct Memory {
    lines: Vec<AtomicU64>,
    at: usize,
}

impl Memory {
    /// A chain through `bytes`, laid by `cpu`.
    pub fn new(cpu: usize, bytes: usize) -> Option<Memory> {
        on(cpu, || {
            let (n, words) = (bytes / LINE, LINE / 8);
            let mut lines: Vec<AtomicU64> = Vec::with_capacity(n * words);
            // If the kernel does not agree, misses of the TLB are part of the latency, as they are for other programs.
            sys::huge_pages(lines.spare_capacity_mut());
            lines.resize_with(n * words, AtomicU64::default);
            for (place, next) in cycle(n).into_iter().enumerate() {
                lines[place * words] = AtomicU64::new((next * words) as u64);
            }
            Some(Memory { lines, at: 0 })
        })
    }

    /// One load after another.
    pub fn chase(&mut self, cpu: usize) -> Option<f64> {
        const N: usize = 1_000;
        let (lines, at) = (&self.lines, self.at);
        let (ns, at) = on(cpu, || {
            let mut at = at;
            let began = Instant::now();
            for _ in 0..N {
                at = lines[at].load(Ordering::Relaxed) as usize;
            }
            Some((each_ns(began, N), at))
        })?;
        self.at = at;
        Some(ns)
    }
}

/// The speed of the first of `cpus` while the others work too: percent of its speed alone.
pub fn speed_beside(cpus: &[usize]) -> Option<f64> {
    const WORK: u64 = 20_000;
    /// Integer work that keeps the ports of a core busy, in registers.
    fn work() -> u64 {
        let mut values = [black_box(1u64); 8];
        for i in 0..WORK {
            values.iter_mut().for_each(|v| *v = v.wrapping_add(i ^ *v).rotate_left(5));
        }
        values.iter().fold(0, |a, b| a ^ b)
    }
    /// The fastest of some: the one that nothing disturbed.
    fn fastest() -> Option<Duration> {
        (0..10)
            .map(|_| {
                let began = Instant::now();
                black_box(work());
                began.elapsed()
            })
            .min()
    }
    let (first, others) = cpus.split_first()?;
    let (ready, stop) = (AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|s| {
        let alone = on(*first, fastest);
        for cpu in others {
            s.spawn(|| {
                let pinned = sys::pin(*cpu);
                ready.fetch_add(1, Ordering::AcqRel);
                while pinned && stop.load(Ordering::Relaxed) == 0 {
                    black_box(work());
                }
            });
        }
        let all = others.len() as u64;
        let together = spin_until(&ready, all).and_then(|()| on(*first, fastest));
        stop.store(1, Ordering::Relaxed);
        Some(100.0 * alone?.as_secs_f64() / together?.as_secs_f64())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chain_visits_every_line_once() {
        let next = cycle(1000);
        let mut at = 0;
        let mut seen = vec![false; 1000];
        for _ in 0..1000 {
            assert!(!seen[at]);
            seen[at] = true;
            at = next[at];
        }
        assert_eq!(at, 0);
    }
}
