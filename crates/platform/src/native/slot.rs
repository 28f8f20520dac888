//! Numbers for threads: the lowest that is free, for as long as the thread lives.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Threads that may have a number at once. The last u16 means "none".
const SLOTS_MAX: usize = u16::MAX as usize;

struct Slots {
    /// Numbers from here on have never been given.
    fresh: usize,
    freed: BinaryHeap<Reverse<u16>>,
}

static SLOTS: Mutex<Slots> = Mutex::new(Slots { fresh: 0, freed: BinaryHeap::new() });

fn slots() -> MutexGuard<'static, Slots> {
    // The table is consistent between any two statements.
    SLOTS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A number, freed when dropped.
struct Slot(Option<u16>);

impl Slot {
    fn take() -> Self {
        let mut slots = slots();
        if let Some(Reverse(number)) = slots.freed.pop() {
            return Slot(Some(number));
        }
        if slots.fresh == SLOTS_MAX {
            return Slot(None);
        }
        slots.fresh += 1;
        Slot(Some((slots.fresh - 1) as u16))
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        if let Some(number) = self.0 {
            slots().freed.push(Reverse(number));
        }
    }
}

thread_local! {
    static MINE: Slot = Slot::take();
}

/// The calling thread's number; `None` while it is being torn down, and when 65,535 threads have one.
#[inline]
pub(super) fn mine() -> Option<u16> {
    MINE.try_with(|slot| slot.0).ok().flatten()
}

#[cfg(test)]
mod tests {
    use super::mine;

    #[test]
    fn numbers_are_distinct_and_reused() {
        let me = mine().expect("few threads");
        assert_eq!(mine(), Some(me));
        let other = || std::thread::spawn(|| mine().expect("few threads")).join().expect("no panic");
        assert_ne!(other(), me);
        // Other tests' threads come and go, but not hundreds at a time.
        assert!((0..300).all(|_| other() < 250));
    }
}
