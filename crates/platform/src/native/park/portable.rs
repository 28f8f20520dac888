//! Compare and sleep with nothing but the standard library: sleepers in a small table, hashed by the word's address.
//!
//! The sleeper compares under the mutex of its bucket, and the waker, who changed the word before, takes that mutex. If the
//! sleeper was first, the waker finds it in the bucket. If the waker was first, the mutex orders the change before the
//! comparison. There is no third case, so no wake-up is lost.
//!
//! Each sleeper has a condition variable of its own, so a wake-up disturbs nobody else, whatever shares the bucket. Nothing
//! here needs a thread-local variable: threads being torn down may sleep and wake.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// More would help only if tens of words were slept on at once, each by short sleeps.
pub(super) const BUCKETS: usize = 64;

struct Sleeper {
    address: usize,
    /// Written and read under the bucket's mutex.
    woken: AtomicBool,
    condvar: Condvar,
}

/// Who sleeps, the longest first.
type Bucket = Mutex<VecDeque<Arc<Sleeper>>>;

static TABLE: [Bucket; BUCKETS] = [const { Mutex::new(VecDeque::new()) }; BUCKETS];

pub(super) fn bucket_of(address: usize) -> usize {
    // Fibonacci hashing: the top bits of the product depend on all of the address.
    ((address as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (u64::BITS - BUCKETS.ilog2())) as usize
}

fn lock(bucket: &Bucket) -> MutexGuard<'_, VecDeque<Arc<Sleeper>>> {
    // A bucket is consistent between any two statements.
    bucket.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(super) fn wait(w: &AtomicU64, expected: u32, timeout: Option<Duration>) {
    // A timeout beyond the clock's end is none.
    let deadline = timeout.and_then(|t| Instant::now().checked_add(t));
    let address = std::ptr::from_ref(w).addr();
    let bucket = &TABLE[bucket_of(address)];
    let mut sleepers = lock(bucket);
    // Relaxed: the mutex orders it after the change of any waker that has gone through.
    if w.load(Ordering::Relaxed) as u32 != expected {
        return;
    }
    let me = Arc::new(Sleeper { address, woken: AtomicBool::new(false), condvar: Condvar::new() });
    sleepers.push_back(Arc::clone(&me));
    while !me.woken.load(Ordering::Relaxed) {
        sleepers = match deadline {
            None => me.condvar.wait(sleepers).unwrap_or_else(PoisonError::into_inner),
            Some(deadline) => {
                let left = deadline.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    sleepers.retain(|s| !Arc::ptr_eq(s, &me));
                    return;
                }
                me.condvar.wait_timeout(sleepers, left).unwrap_or_else(PoisonError::into_inner).0
            }
        };
    }
}

pub(super) fn wake(w: *const AtomicU64, count: i32) {
    let address = w.addr();
    let mut left = count;
    lock(&TABLE[bucket_of(address)]).retain(|s| {
        let wake = s.address == address && left > 0;
        if wake {
            left -= 1;
            s.woken.store(true, Ordering::Relaxed);
            s.condvar.notify_one();
        }
        !wake
    });
}
