//! What the instructions of one probe of an idle-CPU search take: the source of `kernel.probe` in `defaults.toml`.
//!
//! A loop of the same shape as a search over the CPUs of a cache: the next bit of a mask that wraps, the task's affinity,
//! the run queue's address by CPU number, and whether its current task is the idle one; three calls a probe that the
//! compiler may not inline. Everything is in the first cache: what the lines of other CPUs cost is simulated.
//!
//!     cargo run --release -p contend-machine --example probe

use std::hint::black_box;
use std::time::Instant;

const CPUS: usize = 88;
const ROUNDS: u32 = 100_000;
/// The probes of a search that fails in a cache of 44 CPUs.
const PROBES: u32 = 44;

struct Rq {
    curr: usize,
    idle: usize,
    nr_running: u32,
}

#[inline(never)]
fn next_set(mask: &[u64; 2], from: usize) -> Option<usize> {
    let mut word = from / 64;
    let mut bits = mask.get(word)? & (u64::MAX << (from % 64));
    while bits == 0 {
        word += 1;
        bits = *mask.get(word)?;
    }
    Some(word * 64 + bits.trailing_zeros() as usize).filter(|n| *n < CPUS)
}

#[inline(never)]
fn next_wrap(mask: &[u64; 2], after: usize) -> usize {
    next_set(mask, after + 1).or_else(|| next_set(mask, 0)).expect("the mask is not empty")
}

#[inline(never)]
fn idle_cpu(rqs: &[Box<Rq>], cpu: usize) -> bool {
    let rq = &rqs[cpu];
    rq.curr == rq.idle && rq.nr_running == 0
}

fn main() {
    let rqs: Vec<Box<Rq>> = (0..CPUS).map(|i| Box::new(Rq { curr: i + 1, idle: 0, nr_running: 1 })).collect();
    let (mask, allowed) = (black_box([u64::MAX; 2]), black_box([u64::MAX; 2]));
    let best = (0..10).map(|_| {
        let began = Instant::now();
        for round in 0..ROUNDS {
            let mut cpu = round as usize % CPUS;
            for _ in 0..PROBES {
                cpu = next_wrap(&mask, cpu);
                if allowed[cpu / 64] >> (cpu % 64) & 1 == 1 && idle_cpu(black_box(&rqs), cpu) {
                    break;
                }
            }
            black_box(cpu);
        }
        began.elapsed().as_nanos() as f64 / f64::from(ROUNDS * PROBES)
    });
    println!("{:.1} ns a probe (best of 10)", best.fold(f64::MAX, f64::min));
}
