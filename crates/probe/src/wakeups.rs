//! Experiments with sleeping and waking: context switches, wake-ups on one CPU and across.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::pair::{Alone, Gate, both, sleep_until, wake};
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

/// A thread on `sleeper` is woken from `waker` after its CPU has been idle for about `idle`: from just before the call
/// until it runs.
pub fn wake_idle(waker: usize, sleeper: usize, idle: Duration, times: u32) -> Option<f64> {
    let gate = Gate::default();
    let word = Alone::<AtomicU32>::default();
    let answer = Alone::<AtomicU64>::default();
    let epoch = Instant::now();
    let stamp = || epoch.elapsed().as_nanos() as u64;
    let (latencies, _) = both(
        (waker, sleeper),
        || {
            gate.meet()?;
            let mut latencies = Vec::new();
            for turn in 1..=times {
                let from = Instant::now();
                while from.elapsed() < idle {
                    std::hint::spin_loop();
                }
                let waking = stamp();
                wake(&word.0, turn);
                // The answer is when it ran; the partner's next sleep begins after it.
                let woken = loop {
                    match answer.0.load(Ordering::Acquire) {
                        0 => std::hint::spin_loop(),
                        woken => break woken,
                    }
                };
                answer.0.store(0, Ordering::Release);
                latencies.push(woken.saturating_sub(waking) as f64);
            }
            Some(latencies)
        },
        || {
            gate.meet()?;
            for turn in 1..=times {
                sleep_until(&word.0, turn);
                answer.0.store(stamp().max(1), Ordering::Release);
            }
            Some(())
        },
    )?;
    median(&mut latencies[times.min(2) as usize - 1..].to_vec())
}
