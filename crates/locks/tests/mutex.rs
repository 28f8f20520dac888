//! Every mutex, through lock_api, as programs use it.
#![cfg(all(feature = "std", feature = "lock_api"))]

use contend_locks::RawThreadId;
use contend_locks::lock_api::{Mutex, MutexGuard, RawMutex, RawMutexFair, ReentrantMutex};
use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc;
use std::time::Duration;

/// Two fields that differ only inside a critical section.
type Pair = (u64, u64);

/// Miri is slower by orders of magnitude, and finds what it can find in few rounds.
const fn rounds(n: u64) -> u64 {
    if cfg!(miri) { 2 } else { n }
}

fn bump(pair: &mut Pair) {
    assert_eq!(pair.0, pair.1, "somebody else is inside");
    pair.0 += 1;
    std::hint::black_box(&mut *pair);
    pair.1 += 1;
}

fn excludes<R: RawMutex + Sync>(threads: u64, rounds: u64) {
    let mutex = Mutex::<R, Pair>::new((0, 0));
    std::thread::scope(|s| {
        for _ in 0..threads {
            s.spawn(|| {
                for i in 0..rounds {
                    let tried = if i % 3 == 0 { mutex.try_lock() } else { None };
                    bump(&mut tried.unwrap_or_else(|| mutex.lock()));
                }
            });
        }
    });
    assert_eq!(mutex.into_inner(), (threads * rounds, threads * rounds));
}

fn tries<R: RawMutex + Sync>() {
    let mutex = Mutex::<R, u32>::new(1);
    let elsewhere = || std::thread::scope(|s| s.spawn(|| mutex.try_lock().is_some()).join().expect("no panic"));
    for _ in 0..3 {
        assert!(!mutex.is_locked());
        assert!(elsewhere(), "free");
        let guard = mutex.try_lock().expect("free");
        assert!(mutex.is_locked());
        assert!(mutex.try_lock().is_none() && !elsewhere(), "held");
        assert_eq!(format!("{mutex:?}"), "Mutex { data: <locked> }");
        drop(guard);
        assert_eq!(format!("{mutex:?}"), "Mutex { data: 1 }");
    }
}

/// Who only looks does not make another see it held.
fn looks<R: RawMutex + Sync>() {
    let mutex = Mutex::<R, u32>::new(1);
    std::thread::scope(|s| {
        for _ in 0..2 {
            s.spawn(|| (0..rounds(100_000)).for_each(|_| assert!(!mutex.is_locked(), "nobody holds it")));
        }
    });
}

/// What lock_api gives.
fn is_a_mutex<R: RawMutex + Sync>() {
    let mut mutex = Mutex::<R, (u32, String)>::from((1, "a".into()));
    mutex.get_mut().0 = 2;
    {
        let mut word = MutexGuard::map(mutex.lock(), |pair| &mut pair.1);
        word.push('b');
        assert!(mutex.is_locked(), "a mapped guard holds");
    }
    assert!(!mutex.is_locked());
    let () = MutexGuard::unlocked(&mut mutex.lock(), || assert!(!mutex.is_locked()));
    assert_eq!(mutex.into_inner(), (2, "ab".into()));
    assert_eq!(*Mutex::<R, u8>::default().lock(), 0);
    let unsized_: &Mutex<R, [u8]> = &Mutex::<R, [u8; 3]>::new([1, 2, 3]);
    assert_eq!(unsized_.lock().len(), 3);
}

/// What is guarded is dropped once, by whom it should be, and temporaries of guards live as long as the language says.
fn drops<R: RawMutex + Sync>() {
    struct Counts<'a>(&'a Cell<u32>);
    impl Drop for Counts<'_> {
        fn drop(&mut self) {
            self.0.set(self.0.get() + 1);
        }
    }
    let dropped = Cell::new(0);
    drop(Mutex::<R, _>::new(Counts(&dropped)));
    assert_eq!(dropped.get(), 1);
    let inner = Mutex::<R, _>::new(Counts(&dropped)).into_inner();
    assert_eq!(dropped.get(), 1);
    drop(inner);
    assert_eq!(dropped.get(), 2);
    let mutex = Mutex::<R, _>::new(Counts(&dropped));
    *mutex.lock() = Counts(&dropped);
    assert_eq!(dropped.get(), 3);
    assert!(!mutex.is_locked(), "the guard went at the end of the statement");
    // A forgotten guard: held for ever, but moving and dropping are sound.
    std::mem::forget(mutex.lock());
    let moved = Box::new(mutex);
    assert!(moved.try_lock().is_none());
    drop(moved);
    assert_eq!(dropped.get(), 4);
}

fn a_panic_releases<R: RawMutex + Sync>() {
    let mutex = Mutex::<R, u32>::new(0);
    for _ in 0..3 {
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            let mut guard = mutex.lock();
            *guard += 1;
            std::panic::resume_unwind(Box::new("inside"));
        }));
        assert!(panicked.is_err());
    }
    assert_eq!(*mutex.try_lock().expect("released"), 3, "and not poisoned");
    // With others waiting: they go on.
    std::thread::scope(|s| {
        for i in 0..4 {
            let mutex = &mutex;
            s.spawn(move || {
                for _ in 0..20 {
                    let inside = || {
                        let mut guard = mutex.lock();
                        *guard += 1;
                        if i % 2 == 0 {
                            std::panic::resume_unwind(Box::new("inside"));
                        }
                    };
                    assert_eq!(catch_unwind(AssertUnwindSafe(inside)).is_err(), i % 2 == 0);
                }
            });
        }
    });
    assert_eq!(mutex.into_inner(), 83);
}

/// Far more locks held by one thread than it has queue nodes, while others wait for each; released in no order.
fn many_at_once<R: RawMutex + Sync>() {
    const LOCKS: usize = if cfg!(miri) { 8 } else { 40 };
    let mutexes: Vec<Mutex<R, u32>> = (0..LOCKS).map(|_| Mutex::new(0)).collect();
    let started = AtomicU32::new(0);
    std::thread::scope(|s| {
        let mut guards: Vec<_> = mutexes.iter().map(|m| Some(m.lock())).collect();
        for first in 0..3 {
            let (mutexes, started) = (&mutexes, &started);
            s.spawn(move || {
                started.fetch_add(1, Ordering::Relaxed);
                // One at a time: these wait in different queues.
                for i in 0..LOCKS {
                    *mutexes[(first * 13 + i) % LOCKS].lock() += 1;
                }
                // And all together, in one order.
                let mut all: Vec<_> = mutexes.iter().map(|m| m.lock()).collect();
                all.iter_mut().for_each(|guard| **guard += 1);
            });
        }
        while started.load(Ordering::Relaxed) != 3 {
            std::thread::yield_now();
        }
        for i in 0..LOCKS {
            *guards[(i * 3) % LOCKS].take().expect("3 divides neither") += 1;
        }
    });
    assert!(mutexes.into_iter().all(|m| m.into_inner() == 7));
}

/// Threads by the hundred that live for a moment, in several generations.
fn comes_and_goes<R: RawMutex + Send + Sync + 'static>(threads: usize) {
    let mutex = Arc::new(Mutex::<R, Pair>::new((0, 0)));
    for _ in 0..3 {
        let spawn = |_| {
            let mutex = Arc::clone(&mutex);
            std::thread::spawn(move || (0..3).for_each(|_| bump(&mut mutex.lock())))
        };
        let spawned: Vec<_> = (0..threads).map(spawn).collect();
        spawned.into_iter().for_each(|thread| thread.join().expect("no panic"));
    }
    let total = 9 * threads as u64;
    assert_eq!(*mutex.lock(), (total, total));
}

/// More threads than one chunk of nodes serves, all alive at once.
fn crowd<R: RawMutex + Sync>(threads: usize, rounds: usize) {
    let mutex = Mutex::<R, Pair>::new((0, 0));
    let barrier = std::sync::Barrier::new(threads);
    std::thread::scope(|s| {
        for _ in 0..threads {
            s.spawn(|| {
                barrier.wait();
                (0..rounds).for_each(|_| bump(&mut mutex.lock()));
                barrier.wait();
            });
        }
    });
    assert_eq!(mutex.into_inner().0, (threads * rounds) as u64);
}

/// Thread-local values that lock when their thread is torn down, when it has no number any more.
fn locks_in_tear_down<R: RawMutex + Send + Sync + 'static>() {
    struct AtEnd(Box<dyn Fn()>);
    impl Drop for AtEnd {
        fn drop(&mut self) {
            (self.0)();
        }
    }
    thread_local!(static AT_END: RefCell<Vec<AtEnd>> = const { RefCell::new(Vec::new()) });

    let mutex = Arc::new(Mutex::<R, Pair>::new((0, 0)));
    let spawn = |i: usize| {
        let mutex = Arc::clone(&mutex);
        std::thread::spawn(move || {
            let at_end = AtEnd({
                let mutex = Arc::clone(&mutex);
                Box::new(move || (0..20).for_each(|_| bump(&mut mutex.lock())))
            });
            // Destructors run in the reverse of first uses: some threads lock, and so get their number, before, some after.
            let first = i.is_multiple_of(2);
            if first {
                bump(&mut mutex.lock());
            }
            AT_END.with(|values| values.borrow_mut().push(at_end));
            if !first {
                bump(&mut mutex.lock());
            }
        })
    };
    let spawned: Vec<_> = (0..12).map(spawn).collect();
    spawned.into_iter().for_each(|thread| thread.join().expect("no panic"));
    assert_eq!(mutex.lock().0, 12 * 21);
}

/// Sections so long that whoever can sleep does, in the queue and at its head, and is woken.
fn long_sections<R: RawMutex + Sync>() {
    let mutex = Mutex::<R, Pair>::new((0, 0));
    std::thread::scope(|s| {
        for _ in 0..5 {
            s.spawn(|| {
                for _ in 0..rounds(4) {
                    let mut guard = mutex.lock();
                    std::thread::sleep(Duration::from_millis(1));
                    bump(&mut guard);
                }
            });
        }
    });
    assert_eq!(mutex.into_inner().0, 5 * rounds(4));
}

/// Guards go to another thread, which releases, while a third waits.
fn guards_travel<R: RawMutex<Guard: Send> + Sync>() {
    let mutex = Mutex::<R, Pair>::new((0, 0));
    std::thread::scope(|s| {
        let (send, receive) = mpsc::channel::<MutexGuard<'_, R, Pair>>();
        s.spawn(move || receive.into_iter().for_each(|mut guard| bump(&mut guard)));
        for _ in 0..2 {
            let (mutex, send) = (&mutex, send.clone());
            s.spawn(move || {
                for _ in 0..50 {
                    let mut guard = mutex.lock();
                    bump(&mut guard);
                    send.send(guard).expect("the receiver waits for all senders");
                }
            });
        }
    });
    assert_eq!(mutex.into_inner(), (200, 200));
}

/// Whoever waits for one that holds for ever and bumps gets in.
fn bump_lets_in<R: RawMutexFair + Sync>() {
    let mutex = Mutex::<R, u32>::new(0);
    std::thread::scope(|s| {
        let mut guard = mutex.lock();
        s.spawn(|| *mutex.lock() = 1);
        while *guard == 0 {
            MutexGuard::bump(&mut guard);
            std::thread::yield_now();
        }
        MutexGuard::unlock_fair(guard);
    });
    assert!(!mutex.is_locked());
}

/// After a release with somebody waiting, the one who released and wants the lock again waits its turn.
fn hands_over<R: RawMutexFair + Sync>() {
    let mutex = Mutex::<R, u32>::new(0);
    let served_first = |_: &u32| {
        let (arrived, served) = (AtomicBool::new(false), AtomicBool::new(false));
        std::thread::scope(|s| {
            let guard = mutex.lock();
            s.spawn(|| {
                arrived.store(true, Ordering::Relaxed);
                let _guard = mutex.lock();
                served.store(true, Ordering::Relaxed);
            });
            while !arrived.load(Ordering::Relaxed) {
                std::thread::yield_now();
            }
            // Now it is about to queue, in a time that cannot be known: on a busy machine it may be late.
            std::thread::sleep(Duration::from_micros(500));
            MutexGuard::unlock_fair(guard);
            let _guard = mutex.lock();
            served.load(Ordering::Relaxed)
        })
    };
    let enough = if cfg!(miri) { 1 } else { 5 };
    assert_eq!((0..500).filter(served_first).take(enough).count(), enough);
}

fn reenters<R: RawMutex + Sync>(threads: usize) {
    let mutex = ReentrantMutex::<R, RawThreadId, Cell<Pair>>::new(Cell::new((0, 0)));
    std::thread::scope(|s| {
        for _ in 0..threads {
            s.spawn(|| {
                for _ in 0..50 {
                    let outer = mutex.lock();
                    let before = outer.get();
                    assert_eq!(before.0, before.1, "somebody else is inside");
                    outer.set((before.0 + 1, before.1));
                    {
                        let inner = mutex.lock();
                        let again = mutex.try_lock().expect("mine");
                        again.set((inner.get().0, before.1 + 1));
                    }
                    assert!(mutex.is_owned_by_current_thread());
                }
            });
        }
    });
    assert_eq!(mutex.into_inner().get(), (50 * threads as u64, 50 * threads as u64));
}

macro_rules! mutexes {
    ($($name:ident: $raw:ty, $fair:ident, rounds $rounds:expr;)*) => { $(
        mod $name {
            type Raw = $raw;

            /// A static, made by a constant expression.
            #[test]
            fn in_a_static() {
                static MUTEX: super::Mutex<Raw, Vec<u32>> = super::Mutex::new(Vec::new());
                std::thread::scope(|s| (0..4).for_each(|i| drop(s.spawn(move || MUTEX.lock().push(i)))));
                let mut values = MUTEX.lock().clone();
                values.sort_unstable();
                assert_eq!(values, [0, 1, 2, 3]);
            }
            #[test]
            fn two_threads() {
                super::excludes::<Raw>(2, super::rounds($rounds * 20));
            }
            #[test]
            fn nine_threads() {
                super::excludes::<Raw>(9, super::rounds($rounds));
            }
            #[test]
            fn tries() {
                super::tries::<Raw>();
            }
            #[test]
            fn looks() {
                super::looks::<Raw>();
            }
            #[test]
            fn is_a_mutex() {
                super::is_a_mutex::<Raw>();
            }
            #[test]
            fn drops() {
                super::drops::<Raw>();
            }
            #[test]
            fn a_panic_releases() {
                super::a_panic_releases::<Raw>();
            }
            #[test]
            fn many_at_once() {
                super::many_at_once::<Raw>();
            }
            #[test]
            fn long_sections() {
                super::long_sections::<Raw>();
            }
            #[test]
            fn guards_travel() {
                super::guards_travel::<Raw>();
            }
            #[test]
            fn reenters() {
                super::reenters::<Raw>(3);
            }
            mutexes!(@$fair);
        }
    )* };
    (@unfair) => {};
    (@fair) => {
        #[test]
        fn bump_lets_in() {
            super::bump_lets_in::<Raw>();
        }
        #[test]
        fn hands_over() {
            super::hands_over::<Raw>();
        }
    };
}

mutexes! {
    adaptive: contend_locks::adaptive::RawMutex, fair, rounds 300;
    ticket: contend_locks::ticket::RawMutex, fair, rounds 300;
    unfair_byte: contend_locks::unfair_byte::RawMutex, unfair, rounds 300;
    queued: contend_locks::queued::RawMutex, fair, rounds 300;
    pv_queued: contend_locks::pv_queued::RawMutex, fair, rounds 300;
    hybrid: contend_locks::hybrid::RawMutex, unfair, rounds 300;
    pv_ticket: contend_locks::pv_ticket::RawMutex, fair, rounds 300;
    unfair_queued: contend_locks::unfair_queued::RawMutex, unfair, rounds 300;
    // Waiters that never yield: each hand-over to a thread that does not run takes a scheduler's slice.
    ticket_spinning: contend_locks::ticket::RawSpinMutex, fair, rounds 5;
    unfair_byte_spinning: contend_locks::unfair_byte::RawSpinMutex, unfair, rounds 50;
}

/// Tests of threads that come, go and are many: for the mutexes of threads.
macro_rules! of_threads {
    ($($name:ident: $raw:ty;)*) => { $(
        mod $name {
            #[test]
            fn comes_and_goes() {
                super::comes_and_goes::<$raw>(if cfg!(miri) { 3 } else { 100 });
            }
            #[test]
            fn crowd() {
                super::crowd::<$raw>(if cfg!(miri) { 66 } else { 150 }, super::rounds(5) as usize);
            }
            #[test]
            fn locks_in_tear_down() {
                super::locks_in_tear_down::<$raw>();
            }
        }
    )* };
}

of_threads! {
    adaptive_of_threads: contend_locks::adaptive::RawMutex;
    ticket_of_threads: contend_locks::ticket::RawMutex;
    unfair_byte_of_threads: contend_locks::unfair_byte::RawMutex;
    queued_of_threads: contend_locks::queued::RawMutex;
    pv_ticket_of_threads: contend_locks::pv_ticket::RawMutex;
    unfair_queued_of_threads: contend_locks::unfair_queued::RawMutex;
    pv_queued_of_threads: contend_locks::pv_queued::RawMutex;
    hybrid_of_threads: contend_locks::hybrid::RawMutex;
}

/// Some lock of those that do not know who holds must still be the default one: the guard's type is part of the interface.
#[test]
fn the_default_is_there() {
    fn is_send<T: Send>(_: &T) {}
    static MUTEX: contend_locks::Mutex<u32> = contend_locks::Mutex::new(1);
    let guard: contend_locks::MutexGuard<'_, u32> = MUTEX.lock();
    is_send(&guard);
    let mapped: contend_locks::MappedMutexGuard<'_, u32> = MutexGuard::map(guard, |n| n);
    assert_eq!(*mapped, 1);
}

/// What the crate's text says of sizes.
#[test]
fn sizes() {
    use contend_locks::{adaptive, hybrid, pv_queued, pv_ticket, queued, ticket, unfair_byte, unfair_queued};
    use std::mem::size_of;
    let small = [size_of::<queued::RawMutex>(), size_of::<ticket::RawMutex>(), size_of::<unfair_byte::RawMutex>()];
    assert_eq!(small, [8; 3]);
    assert_eq!(size_of::<adaptive::RawMutex>(), 16);
    let others = [size_of::<pv_queued::RawMutex>(), size_of::<hybrid::RawMutex>()];
    assert_eq!(others, [40; 2]);
    assert_eq!((size_of::<pv_ticket::RawMutex>(), size_of::<unfair_queued::RawMutex>()), (24, 16));
}
