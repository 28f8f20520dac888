//! A counter that threads share.

use contend_locks::{Mutex, MutexGuard};

/// Mutexes are made by constant expressions, so a static needs no lazy initialisation.
static LAST_NAME: Mutex<String> = Mutex::new(String::new());

fn main() {
    let counts = Mutex::new([0u64; 4]);
    std::thread::scope(|s| {
        for thread in 0..4 {
            let counts = &counts;
            s.spawn(move || {
                for _ in 0..10_000 {
                    counts.lock()[thread] += 1;
                }
                // A guard of one part of what is guarded: the lock is held until it goes.
                let mine = MutexGuard::map(counts.lock(), |counts| &mut counts[thread]);
                *LAST_NAME.lock() = format!("thread {thread}, which counted to {}", *mine);
            });
        }
    });
    println!("{:?}; the last was {}", counts.into_inner(), LAST_NAME.lock());
}
