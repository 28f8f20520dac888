//! Experiments with sleeping and waking: context switches, wake-ups on one CPU and across.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::pair::{Alone, Gate, both, sleep_until, spin_until, wake};
use crate::stats::median;
use crate::sys;

/// Two threads of one CPU that yield to each other: (ns, yields, context switches).
pub fn yields(cpu: usize) -> Option<(f64, f64, f64)> {
    const YIELDS: u64 = 1_000;
    let (gate, done) = (Gate::default(), AtomicU64::new(0));
    let player = || {
        gate.meet()?;
        let (began, before) = (Instant::now(), sys::switches());
        let mut yielded = 0;
        // Until both have done their part, so that there is always somebody to yield to.
        while yielded < YIELDS || done.load(Ordering::Relaxed) < 2 {
            sys::sched_yield();
            yielded += 1;
            if yielded == YIELDS {
                done.fetch_add(1, Ordering::Relaxed);
            }
        }
        Some((began.elapsed(), yielded, sys::switches() - before))
    };
    let (a, b) = both((cpu, cpu), player, player)?;
    let ns = a.0.max(b.0).as_nanos() as f64;
    Some((ns, (a.1 + b.1) as f64, (a.2 + b.2) as f64))
}

/// What a futex ping-pong says, in ns.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct PingPong {
    /// Half a round trip: one wake-up, one sleep.
    pub half: f64,
    /// The waker's call alone, with two readings of the clock.
    pub wake: f64,
}

/// Two threads wake each other and sleep. On one CPU both are such that a wakee does not preempt its waker.
pub fn ping_pong(a: usize, b: usize) -> Option<PingPong> {
    const TURNS: u32 = 100;
    let gate = Gate::default();
    let words: [Alone<AtomicU32>; 2] = Default::default();
    let player = |me: usize| {
        let (gate, mine, other) = (&gate, &words[me].0, &words[1 - me].0);
        move || {
            if a == b && !sys::batch() {
                return None;
            }
            gate.meet()?;
            let mut wakes = Vec::with_capacity(TURNS as usize);
            let began = Instant::now();
            for turn in 1..=TURNS {
                if me == 1 {
                    sleep_until(mine, turn);
                }
                let waking = Instant::now();
                wake(other, turn);
                wakes.push(waking.elapsed().as_nanos() as f64);
                if me == 0 {
                    sleep_until(mine, turn);
                }
            }
            Some((began.elapsed(), median(&mut wakes)?))
        }
    };
    let (first, _) = both((a, b), player(0), player(1))?;
    Some(PingPong { half: first.0.as_nanos() as f64 / f64::from(2 * TURNS), wake: first.1 })
}

/// Some wake-ups of a CPU that idled: medians, in ns.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct IdleWake {
    /// From just before the waker's call until the woken thread runs.
    pub latency: f64,
    /// The call, with two readings of the clock.
    pub call: f64,
}

/// How many parts the wake-ups after one idle time are taken in, each a repetition.
const PARTS: usize = 8;

/// A thread on `sleeper` is woken from `waker` again and again, for each of `series` so many times after its CPU has been idle for about
/// so long; [`PARTS`] of each.
///
/// All in one go and after a warm-up: in a guest of a hypervisor the first wake-ups after the waking CPU did other things were found to take
/// 15 us, and those from some 10 to 40 ms on 20 us.
pub fn wake_idle(
    waker: usize,
    sleeper: usize,
    warm_up: Duration,
    series: &[(Duration, u32)],
) -> Option<Vec<Vec<IdleWake>>> {
    let gate = Gate::default();
    let word = Alone::<AtomicU32>::default();
    let answer = Alone::<AtomicU64>::default();
    let epoch = Instant::now();
    let stamp = || epoch.elapsed().as_nanos() as u64;
    // What the sleeper waits for last.
    const OVER: u32 = u32::MAX;
    let mut turn = 0;
    let mut one = |idle: Duration| {
        let from = Instant::now();
        while from.elapsed() < idle {
            std::hint::spin_loop();
        }
        turn += 1;
        let waking = stamp();
        wake(&word.0, turn);
        let called = stamp();
        // The answer is when it ran; the partner's next sleep begins after it.
        spin_until(&answer.0, 1)?;
        let woken = answer.0.swap(0, Ordering::AcqRel);
        Some((woken.saturating_sub(waking) as f64, (called - waking) as f64))
    };
    let mut all = || {
        let began = Instant::now();
        while began.elapsed() < warm_up {
            one(series.first()?.0)?;
        }
        let mut taken = Vec::new();
        for &(idle, times) in series {
            let wakes = (0..times).map(|_| one(idle)).collect::<Option<Vec<(f64, f64)>>>()?;
            let parts = wakes.chunks(wakes.len().div_ceil(PARTS).max(1)).filter_map(|part| {
                let (mut latencies, mut calls): (Vec<f64>, Vec<f64>) = part.iter().copied().unzip();
                Some(IdleWake { latency: median(&mut latencies)?, call: median(&mut calls)? })
            });
            taken.push(parts.collect());
        }
        Some(taken)
    };
    let (taken, _) = both(
        (waker, sleeper),
        || {
            gate.meet()?;
            let taken = all();
            // However it went: the partner waits.
            wake(&word.0, OVER);
            taken
        },
        || {
            gate.meet()?;
            for turn in 1.. {
                sleep_until(&word.0, turn);
                if word.0.load(Ordering::Acquire) == OVER {
                    break;
                }
                answer.0.store(stamp().max(1), Ordering::Release);
            }
            Some(())
        },
    )?;
    Some(taken)
}
