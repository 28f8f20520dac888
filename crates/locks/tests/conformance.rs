//! Every lock, on OS threads: mutual exclusion with fewer and with more threads than cores, try_lock, nesting.
#![cfg(feature = "std")]

use contend_locks::native::{Global, Parked};
use contend_locks::pv::PvTunables;
use contend_locks::{
    Adaptive, Hybrid, MakeLock, Mcs, McsPool, PvFeatures, PvQueued, PvQueuedWith, PvTicket, Queued, RawLock, Ticket,
    UnfairByte, UnfairQueued, WaitPool, lock_mover, lock_pair, unlock_pair,
};
use contend_platform::native::{Native, NativeCell, Threads};
use contend_platform::{CpuId, Ordering, Platform};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Instant;

fn cpu(n: usize) -> Native {
    // SAFETY: tests use the handle of a number in one thread at a time.
    unsafe { Native::new(CpuId(n as u16), Instant::now()) }
}

/// Run `body` on CPUs `0..n`.
fn on_cpus(n: usize, body: impl Fn(&Native) + Sync) {
    std::thread::scope(|s| {
        for i in 0..n {
            let body = &body;
            s.spawn(move || body(&cpu(i)));
        }
    });
}

/// Two fields that differ only inside a critical section.
type Guarded = NativeCell<(u64, u64)>;

fn bump(p: &Native, data: &Guarded) {
    // SAFETY: the callers hold the lock under test, which is what the test is about.
    unsafe {
        p.write(data, |(a, b)| {
            assert_eq!(*a, *b, "somebody else is inside");
            *a += 1;
            std::hint::black_box(&mut *a);
            *b += 1;
        });
    }
}

fn excludes<L: MakeLock<Native> + Sync>(cpus: usize, rounds: u64) {
    let p = cpu(0);
    let lock = L::new(&p, cpus);
    let data = p.cell(p.line(), (0, 0));
    on_cpus(cpus, |p| {
        for i in 0..rounds {
            if i % 3 != 0 || !lock.try_lock(p) {
                lock.lock(p);
            }
            bump(p, &data);
            lock.unlock(p);
        }
    });
    // SAFETY: the threads are gone.
    assert_eq!(unsafe { p.read(&data, |d| d.0) }, cpus as u64 * rounds);
}

fn tries<L: MakeLock<Native>>() {
    let (a, b) = (cpu(0), cpu(1));
    let lock = L::new(&a, 2);
    for _ in 0..2 {
        assert!(lock.try_lock(&a), "free");
        assert!(!lock.try_lock(&b), "held");
        lock.unlock(&a);
        assert!(!lock.lock(&b), "did not wait");
        assert!(!lock.try_lock(&a), "held");
        lock.unlock(&b);
    }
}

/// Locks of one world on the same nodes: held together, released in an order that is not the reverse of taking.
fn nests<L: MakeLock<Native>>() {
    let p = cpu(2);
    let pool = Arc::new(L::pool(&p, 3));
    let locks: Vec<L> = (0..4).map(|_| L::on_line(&p, p.line(), &pool)).collect();
    for _ in 0..3 {
        for lock in &locks {
            lock.lock(&p);
        }
        for i in [1, 3, 0] {
            locks[i].unlock(&p);
        }
        assert!(!locks[2].try_lock(&cpu(0)), "still held");
        assert!(locks[3].try_lock(&p), "free");
        locks[3].unlock(&p);
        locks[2].unlock(&p);
    }
}

/// Transfers between accounts, each under two locks named in the caller's order.
fn pairs<L: MakeLock<Native> + Sync + Send>(cpus: usize, rounds: usize)
where
    L::Pool: Sync + Send,
{
    const ACCOUNTS: usize = 3;
    let p = cpu(0);
    let pool = Arc::new(L::pool(&p, cpus));
    let locks: Vec<L> = (0..ACCOUNTS).map(|_| L::on_line(&p, p.line(), &pool)).collect();
    let accounts: Vec<NativeCell<i64>> = (0..ACCOUNTS).map(|_| p.cell(p.line(), 0)).collect();
    on_cpus(cpus, |p| {
        for i in 0..rounds {
            let (from, to) = ((p.cpu().index() + i) % ACCOUNTS, (p.cpu().index() + 2 * i + 1) % ACCOUNTS);
            let (a, b) = ((CpuId(from as u16), &locks[from]), (CpuId(to as u16), &locks[to]));
            lock_pair(p, a, b);
            // SAFETY: both locks are held; if the accounts are the same, the accesses follow one another.
            unsafe {
                p.write(&accounts[from], |v| *v -= 1);
                p.write(&accounts[to], |v| *v += 1);
            }
            unlock_pair(p, a, b);
        }
    });
    // SAFETY: the threads are gone.
    let sum: i64 = accounts.iter().map(|a| unsafe { p.read(a, |v| *v) }).sum();
    assert_eq!(sum, 0);
}

/// A thing that moves between two locks while others lock wherever it is.
fn moves<L: MakeLock<Native> + Sync>(cpus: usize, rounds: usize) {
    let p = cpu(0);
    let locks: Vec<L> = (0..2).map(|_| L::new(&p, cpus)).collect();
    let place = p.word(p.line(), 0);
    let data = p.cell(p.line(), (0, 0));
    on_cpus(cpus, |p| {
        for i in 0..rounds {
            if (p.cpu().index() + i).is_multiple_of(4) {
                let (a, b) = ((CpuId(0), &locks[0]), (CpuId(1), &locks[1]));
                lock_pair(p, b, a);
                let at = p.load(&place, Ordering::Relaxed);
                p.store(&place, 1 - at, Ordering::Relaxed);
                unlock_pair(p, b, a);
            } else {
                let at = lock_mover(p, &place, |cpu| &locks[cpu.index()]);
                bump(p, &data);
                locks[at.index()].unlock(p);
            }
        }
    });
}

macro_rules! conformance {
    ($($name:ident: $lock:ty;)*) => { $(
        mod $name {
            use super::*;

            #[test]
            fn one_cpu() {
                excludes::<$lock>(1, 10_000);
            }
            #[test]
            fn two_cpus() {
                excludes::<$lock>(2, 10_000);
            }
            #[test]
            fn more_cpus_than_cores() {
                excludes::<$lock>(9, 300);
            }
            #[test]
            fn try_lock() {
                tries::<$lock>();
            }
            #[test]
            fn nesting() {
                nests::<$lock>();
            }
            #[test]
            fn pairs_in_any_order() {
                pairs::<$lock>(4, 300);
            }
            #[test]
            fn moving() {
                moves::<$lock>(3, 400);
            }
        }
    )* };
}

conformance! {
    unfair_byte: UnfairByte<Native>;
    ticket: Ticket<Native>;
    mcs: Mcs<Native>;
    queued: Queued<Native>;
    pv_4_2: PvQueuedWith<Native, { PvFeatures::V4_2.bits() }>;
    pv_kick_at_unlock: PvQueuedWith<Native, { PvFeatures::KICK_AT_UNLOCK.bits() }>;
    pv_kick_ahead: PvQueuedWith<Native, { PvFeatures::KICK_AHEAD.bits() }>;
    pv_wait_early: PvQueuedWith<Native, { PvFeatures::WAIT_EARLY.bits() }>;
    pv_pending: PvQueuedWith<Native, { PvFeatures::PENDING.bits() }>;
    pv_series_2015: PvQueuedWith<Native, { PvFeatures::SERIES_2015.bits() }>;
    hybrid: Hybrid<Native>;
    pv_ticket: PvTicket<Native>;
    unfair_queued: UnfairQueued<Native>;
    adaptive: Adaptive<Native>;
}

/// The ticket counter passes its limit while CPUs wait.
#[test]
fn ticket_wraps() {
    let p = cpu(0);
    let lock = Ticket::<Native>::after(&p, p.line(), u32::MAX - 20);
    let (data, inside) = (p.cell(p.line(), (0, 0)), AtomicU64::new(0));
    on_cpus(3, |p| {
        for _ in 0..50 {
            lock.lock(p);
            assert_eq!(inside.fetch_add(1, Ordering::Relaxed), 0);
            bump(p, &data);
            inside.fetch_sub(1, Ordering::Relaxed);
            lock.unlock(p);
        }
    });
}

/// Waiters of the paravirtual ticket lock halt at once, and the counter passes its limit meanwhile.
#[test]
fn pv_ticket_halts_and_wraps() {
    let p = cpu(0);
    let pool = Arc::new(WaitPool::new(&p, 5));
    let lock = PvTicket::<Native>::after(&p, p.line(), pool, 0, u32::MAX - 20);
    let data = p.cell(p.line(), (0, 0));
    on_cpus(5, |p| {
        for _ in 0..500 {
            lock.lock(p);
            bump(p, &data);
            lock.unlock(p);
        }
    });
    assert!(lock.try_lock(&p));
}

#[test]
#[should_panic(expected = "releases a ticket lock that is free")]
fn ticket_released_twice() {
    let p = cpu(0);
    let lock = Ticket::<Native>::new(&p);
    lock.unlock(&p);
}

#[test]
#[should_panic(expected = "takes an MCS lock that it holds")]
fn mcs_taken_twice() {
    let p = cpu(0);
    let lock = Mcs::new(&p, Arc::new(McsPool::new(&p, 1)));
    lock.lock(&p);
    lock.lock(&p);
}

#[test]
#[should_panic(expected = "does not hold")]
fn mcs_released_by_another() {
    let p = cpu(0);
    let lock = Mcs::new(&p, Arc::new(McsPool::new(&p, 2)));
    lock.lock(&p);
    lock.unlock(&cpu(1));
}

#[test]
#[should_panic(expected = "holds 4 MCS locks")]
fn mcs_too_deep() {
    let p = cpu(0);
    let pool = Arc::new(McsPool::new(&p, 1));
    let locks: Vec<Mcs<Native>> = (0..5).map(|_| Mcs::on_line(&p, p.line(), &pool)).collect();
    for lock in &locks {
        lock.lock(&p);
    }
}

/// Locks of threads that have no handle, several at once in the hash of the process; threads come and go.
fn any_thread<L: RawLock<Threads> + Sync>(new: impl Fn(PvTunables) -> L) {
    // A budget of a look: nearly every wait halts.
    let tunables = PvTunables { spin_ns: 1, pending_ns: 1, ..PvTunables::DEFAULT };
    let locks: [L; 3] = std::array::from_fn(|_| new(tunables));
    let counts: [NativeCell<u64>; 3] = std::array::from_fn(|_| NativeCell::new(0));
    for _ in 0..3 {
        std::thread::scope(|s| {
            for thread in 0..8 {
                let (locks, counts) = (&locks, &counts);
                s.spawn(move || {
                    for i in 0..300 {
                        let at = (thread + i) % 3;
                        locks[at].lock(&Threads);
                        // SAFETY: the lock is held.
                        unsafe { Threads.write(&counts[at], |count| *count += 1) };
                        locks[at].unlock(&Threads);
                    }
                });
            }
        });
    }
    // SAFETY: the threads are gone.
    let sum: u64 = counts.iter().map(|count| unsafe { Threads.read(count, |c| *c) }).sum();
    assert_eq!(sum, 3 * 8 * 300);
}

#[test]
fn pv_locks_of_any_thread() {
    for bits in 0..16 {
        any_thread(|tunables| PvQueued::<Threads, Global>::of(PvFeatures::from_bits(bits), tunables));
    }
    any_thread(Hybrid::<Threads, Global>::of);
    any_thread(|tunables| PvTicket::<Threads, Parked>::of(tunables.spin_ns));
    any_thread(|_| UnfairQueued::<Threads, Global>::of_threads());
}
