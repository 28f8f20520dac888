//! Waiters that only spin let others run once they have spun for long: each of a queue, wherever it stands.
#![cfg(all(feature = "lock_api", target_os = "linux", not(miri)))]

use contend_locks::lock_api::{Mutex, RawMutex};
use contend_locks::{queued, ticket, unfair_byte, unfair_queued};
use std::cell::Cell;
use std::time::{Duration, Instant};

thread_local!(static YIELDS: Cell<u64> = const { Cell::new(0) });

/// In the place of the C library's.
#[unsafe(no_mangle)]
extern "C" fn sched_yield() -> libc::c_int {
    YIELDS.with(|yields| yields.set(yields.get() + 1));
    // SAFETY: the call takes no memory of ours.
    unsafe { libc::syscall(libc::SYS_sched_yield) as libc::c_int }
}

fn all_yield<R: RawMutex + Sync>(name: &str) {
    let mutex = Mutex::<R, u32>::new(0);
    std::thread::scope(|s| {
        let held = mutex.lock();
        let waiter = || {
            let asked = Instant::now();
            *mutex.lock() += 1;
            (asked.elapsed(), YIELDS.with(Cell::get))
        };
        let waiters: Vec<_> = (0..4).map(|_| s.spawn(waiter)).collect();
        std::thread::sleep(Duration::from_millis(300));
        drop(held);
        for waiter in waiters {
            let (waited, yields) = waiter.join().expect("no panic");
            // Not one that came late, on a busy machine.
            assert!(waited < Duration::from_millis(200) || yields > 10, "{name}: {yields} yields in {waited:?}");
        }
    });
}

#[test]
fn who_spins_for_long_yields() {
    all_yield::<queued::RawMutex>("queued");
    all_yield::<ticket::RawMutex>("ticket");
    all_yield::<unfair_byte::RawMutex>("unfair_byte");
    all_yield::<unfair_queued::RawMutex>("unfair_queued");
}
