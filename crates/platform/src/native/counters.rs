//! Counts of lock events, per thread number and never freed: a thread's counts remain when its number goes to another.
//!
//! Each counter has one writer, except those of threads without a number, so counting is a load and a store to a line that
//! stays with its core. (A signal handler that counts between the two is not counted.)

use super::Threads;
use crate::{LockEvent, Padded, Platform};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// Threads whose counters are allocated together.
const THREADS_PER_CHUNK: usize = 64;
const CHUNKS: usize = (u16::MAX as usize).div_ceil(THREADS_PER_CHUNK);

type Counters = Padded<[AtomicU64; LockEvent::COUNT]>;

static CHUNKS_OF_THREADS: [OnceLock<Box<[Counters]>>; CHUNKS] = [const { OnceLock::new() }; CHUNKS];
/// Of threads that have no number.
static OTHERS: Counters = zero();

const fn zero() -> Counters {
    Padded([const { AtomicU64::new(0) }; LockEvent::COUNT])
}

pub(super) fn count(event: LockEvent, n: u64) {
    let thread = Threads.cpu();
    if thread == Threads::NOBODY {
        OTHERS[event as usize].fetch_add(n, Ordering::Relaxed);
        return;
    }
    let chunk = CHUNKS_OF_THREADS[thread.index() / THREADS_PER_CHUNK]
        .get_or_init(|| (0..THREADS_PER_CHUNK).map(|_| zero()).collect());
    let counter = &chunk[thread.index() % THREADS_PER_CHUNK][event as usize];
    counter.store(counter.load(Ordering::Relaxed).wrapping_add(n), Ordering::Relaxed);
}

/// What all threads of the process have counted so far, in the order of [`LockEvent::ALL`].
///
/// Counters that other threads change meanwhile are seen before or after the change, each by itself.
pub fn lock_events() -> [u64; LockEvent::COUNT] {
    let mut sum = [0u64; LockEvent::COUNT];
    let chunks = CHUNKS_OF_THREADS.iter().filter_map(OnceLock::get);
    for counters in chunks.flat_map(|chunk| chunk.iter()).chain([&OTHERS]) {
        for (sum, counter) in sum.iter_mut().zip(&counters.0) {
            *sum = sum.wrapping_add(counter.load(Ordering::Relaxed));
        }
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::lock_events;
    use crate::native::Threads;
    use crate::{LockEvent, Platform};

    #[test]
    fn counts_of_all_threads_add_up() {
        let event = LockEvent::PvHashHops;
        let before = lock_events()[event as usize];
        std::thread::scope(|s| {
            for n in 0..100 {
                s.spawn(move || (0..10).for_each(|_| Threads.lock_event(event, n)));
            }
        });
        assert_eq!(lock_events()[event as usize] - before, 10 * (0..100).sum::<u64>());
    }
}
