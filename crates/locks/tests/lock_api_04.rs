//! The raw mutexes under lock_api 0.4, which many programs still have.
#![cfg(all(feature = "std", feature = "lock_api_04"))]

use contend_locks::lock_api_04::{Mutex, MutexGuard, RawMutex, RawMutexFair, ReentrantMutex};
use contend_locks::{RawThreadId, adaptive, hybrid, pv_queued, pv_ticket, queued, ticket, unfair_byte, unfair_queued};

fn works<R: RawMutex + Sync>() {
    let mutex = Mutex::<R, u64>::new(0);
    std::thread::scope(|s| {
        for _ in 0..4 {
            s.spawn(|| (0..200).for_each(|_| *mutex.lock() += 1));
        }
    });
    assert!(!mutex.is_locked());
    assert_eq!(*mutex.try_lock().expect("free"), 800);
    let guard = mutex.lock();
    assert!(mutex.is_locked() && mutex.try_lock().is_none());
    let mapped = MutexGuard::map(guard, |n| n);
    std::thread::scope(|s| assert!(s.spawn(|| mutex.is_locked()).join().expect("no panic")));
    drop(mapped);
    let reentrant = ReentrantMutex::<R, RawThreadId, u64>::new(1);
    assert_eq!(*reentrant.lock() + *reentrant.lock(), 2);
}

fn is_fair<R: RawMutexFair>() {
    let mutex = Mutex::<R, u64>::new(0);
    let mut guard = mutex.lock();
    MutexGuard::bump(&mut guard);
    MutexGuard::unlock_fair(guard);
    assert!(!mutex.is_locked());
}

#[test]
fn all_work() {
    works::<adaptive::RawMutex>();
    works::<ticket::RawMutex>();
    works::<ticket::RawSpinMutex>();
    works::<unfair_byte::RawMutex>();
    works::<unfair_byte::RawSpinMutex>();
    works::<queued::RawMutex>();
    works::<pv_queued::RawMutex>();
    works::<pv_ticket::RawMutex>();
    works::<unfair_queued::RawMutex>();
    works::<hybrid::RawMutex>();
}

#[test]
fn the_fair_ones_are() {
    is_fair::<adaptive::RawMutex>();
    is_fair::<ticket::RawMutex>();
    is_fair::<ticket::RawSpinMutex>();
    is_fair::<queued::RawMutex>();
    is_fair::<pv_queued::RawMutex>();
    is_fair::<pv_ticket::RawMutex>();
}

/// A lock in a static, made by a constant expression.
#[test]
fn in_a_static() {
    static MUTEX: Mutex<queued::RawMutex, u32> = Mutex::new(3);
    assert_eq!(*MUTEX.lock(), 3);
}
