//! The lock as a type parameter: the same program with each of them.
//!
//!     cargo run --release -p contend-locks --example choose -- [THREADS]
//!
//! This is no benchmark: one run of each, one after the other. It shows how differently locks behave as soon as there are more
//! threads than CPUs.

use contend_locks::lock_api::{Mutex, RawMutex};
use contend_locks::{adaptive, hybrid, pv_queued, pv_ticket, queued, ticket, unfair_byte, unfair_queued};
use std::time::{Duration, Instant};

/// Accounts, each under a lock of its own; which one, the user says.
struct Bank<R: RawMutex> {
    accounts: Vec<Mutex<R, i64>>,
}

impl<R: RawMutex> Bank<R> {
    fn new(accounts: usize) -> Self {
        Bank { accounts: (0..accounts).map(|_| Mutex::new(100)).collect() }
    }

    /// # Panics
    /// If `from` is `to`: nobody can hold one mutex twice.
    fn transfer(&self, from: usize, to: usize, amount: i64) {
        assert_ne!(from, to);
        // Always the lower one first, so that no two transfers wait for one another.
        let (mut first, mut second);
        let (source, target) = if from < to {
            first = self.accounts[from].lock();
            second = self.accounts[to].lock();
            (&mut *first, &mut *second)
        } else {
            first = self.accounts[to].lock();
            second = self.accounts[from].lock();
            (&mut *second, &mut *first)
        };
        *source -= amount;
        *target += amount;
    }
}

/// Transfers by all threads in a tenth of a second.
fn run<R: RawMutex + Sync>(name: &str, threads: usize) {
    let bank = Bank::<R>::new(3);
    let end = Instant::now() + Duration::from_millis(100);
    let transfers: Vec<u64> = std::thread::scope(|s| {
        let spawn = |thread: usize| {
            let bank = &bank;
            s.spawn(move || {
                let mut done = 0;
                while Instant::now() < end {
                    let from = (thread + done as usize) % 3;
                    bank.transfer(from, (from + 1) % 3, 1);
                    done += 1;
                }
                done
            })
        };
        let threads: Vec<_> = (0..threads).map(spawn).collect();
        threads.into_iter().map(|t| t.join().expect("no panic")).collect()
    });
    let sum: i64 = bank.accounts.into_iter().map(Mutex::into_inner).sum();
    assert_eq!(sum, 300, "money is neither made nor lost");
    let (least, most) = (transfers.iter().min().unwrap_or(&0), transfers.iter().max().unwrap_or(&0));
    println!("{name:13} {:>9} transfers; least {least}, most {most} of a thread", transfers.iter().sum::<u64>());
}

fn main() {
    let cpus = std::thread::available_parallelism().map_or(2, usize::from);
    let threads = std::env::args().nth(1).map_or(cpus, |n| n.parse().expect("a number of threads"));
    println!("{threads} threads on {cpus} CPUs");
    run::<adaptive::RawMutex>("adaptive", threads);
    run::<ticket::RawMutex>("ticket", threads);
    run::<unfair_byte::RawMutex>("unfair_byte", threads);
    run::<queued::RawMutex>("queued", threads);
    run::<pv_queued::RawMutex>("pv_queued", threads);
    run::<pv_ticket::RawMutex>("pv_ticket", threads);
    run::<unfair_queued::RawMutex>("unfair_queued", threads);
    run::<hybrid::RawMutex>("hybrid", threads);
}
