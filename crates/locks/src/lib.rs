//! Mutexes made of the spinlocks that kernels use, and the algorithms themselves.
//!
//! ```
//! # #[cfg(all(feature = "std", feature = "lock_api"))] {
//! use contend_locks::Mutex;
//!
//! static COUNTER: Mutex<u64> = Mutex::new(0);
//!
//! std::thread::scope(|s| {
//!     for _ in 0..4 {
//!         s.spawn(|| *COUNTER.lock() += 1);
//!     }
//! });
//! assert_eq!(*COUNTER.lock(), 4);
//! # }
//! ```
//!
//! Each algorithm is written once, in a file of its own, over a small contract with the world that it runs in
//! (`contend_platform::Platform`). The same source serves OS threads and bare metal here, and a simulator of large machines and
//! the model checkers loom and shuttle in the project that this crate is from. Each lock's module says in its text what
//! states the lock has and what each operation does to them.
//!
//! # Which lock when
//!
//! | module | hand-over | waiters | choose it when |
//! |---|---|---|---|
//! | [`adaptive`] | to whoever comes, a bounded number of times past the first in line | spin for some µs, sleep for moments or yield, then sleep in a queue | in doubt; threads in general, more of them than CPUs |
//! | [`unfair_byte`] | to anybody; a waiter may be passed for ever | spin on the lock | sections are short and rarely contended, and fairness does not matter |
//! | [`ticket`] | first come, first served | spin on the lock | few CPUs, each thread has one to itself, and order or a bound on the wait matters |
//! | [`queued`] | first come, first served | one spins on the lock, the others on a line of their own | many CPUs, each thread has one to itself |
//! | [`pv_queued`] | first come, first served | as in [`queued`], but sleep after 0.16 ms | to compare, or when order matters and threads share CPUs: the cost is as below |
//! | [`pv_ticket`] | first come, first served | as in [`ticket`], but sleep after 0.16 ms | the same |
//! | [`unfair_queued`] | to whoever comes, else to the first in line or somebody near it | as in [`queued`] | a waiter may not be running, and nobody may sleep |
//! | [`hybrid`] | to whoever comes while the first in line sleeps, else first come, first served | as in [`pv_queued`] | to compare with [`adaptive`] |
//!
//! [`Mutex`] in the crate's root is the one to take when in doubt: that of [`adaptive`].
//!
//! **First come, first served is wrong for threads that share CPUs.** When the next in line is not running, the lock
//! stands still until the scheduler comes to that thread, however many others run. With twice as many busy threads as CPUs
//! the throughput of a fair spinlock is one or two orders of magnitude below that of a mutex that sleeps. So use `ticket`
//! and `queued` where each thread has a CPU to itself: pinned threads, thread-per-core servers, kernels, measurements. "Spin"
//! above is for OS threads: spin for long, then yield the CPU again and again. Only where the table says so they sleep.
//!
//! **`adaptive` bounds who goes before whom, not how long that takes.** Those that come later take the lock at most 16,383 times for each
//! place in line: 2 ms with sections of 100 ns, 16 s with sections of 1 ms. A thread that does little between long sections can have the lock
//! for all that time. There `MutexGuard::unlock_fair` hands it to the first in line. And after a contended section the thread may give its CPU up: with
//! nested mutexes it may still hold an outer one.
//!
//! A mutex is 16 bytes and what it guards; 8 with `ticket`, `queued` and `unfair_byte`, 16 with `unfair_queued`, 24 with `pv_ticket`, 40 with `pv_queued` and `hybrid`. A
//! lock with a queue has nodes: 640 bytes for each thread of the process, for all locks of a module together, allocated for
//! 64 threads when one of them first waits in a queue, and never freed.
//!
//! Where it can, `adaptive` makes its release cheap by making the rare sleeper pay (`membarrier` on Linux 4.14 and later). For that
//! the process registers itself with the kernel, in one system call, when it first unlocks such a mutex.
//!
//! How they compare with one another and with `std` and `parking_lot` is measured by the project's benchmark
//! (`contend-bench`), which prints numbers for the machine that it runs on. Before you choose for speed, measure your program.
//!
//! # What every mutex has
//!
//! The mutexes are those of [`lock_api`], so they have what its users know: `const fn new`, `try_lock`, guards that can be
//! mapped, `get_mut`, `into_inner`, `Debug`, `Default`, `From<T>`. A module has
//!
//! | | for | needs |
//! |---|---|---|
//! | `Mutex`, `MutexGuard`, `MappedMutexGuard` | OS threads | feature `std` |
//! | `ReentrantMutex` and its guards | OS threads; whoever holds it may lock it again, for shared access | feature `std` |
//! | `SpinMutex` and its guards | code without an operating system; only of locks that need no queue nodes | |
//! | `RawMutex`, `RawSpinMutex` | `lock_api`'s type parameter: to choose a lock by type | |
//!
//! * **Fair release.** `MutexGuard::unlock_fair` and `bump` exist where the first in line can be served. Where all are served
//!   in order anyway, `unlock_fair` is `unlock`; `bump` lets a waiter in. `unfair_byte`,
//!   `unfair_queued` and `hybrid` have neither.
//! * **Sending guards.** The guard of a mutex may be sent to another thread and dropped there: none of these locks knows who
//!   holds it. That is part of the interface. Guards of a `ReentrantMutex` stay where they are.
//! * **Panics.** There is no poisoning. A panic in a critical section drops the guard on its way, which releases the lock;
//!   the data stay as they were left. If they must not be seen half changed, put them in order in a `Drop`.
//! * **Relocking** by the holder never returns (but for `ReentrantMutex`).
//! * **Forgetting a guard** leaves the lock held, for ever. Moving or dropping the mutex is then still sound.
//!
//! # What is not here
//!
//! * **Timed locking.** Waiters of these queues cannot leave: nothing in the algorithms takes a node out of the middle.
//!   [`try_lock`](lock_api::Mutex::try_lock) is there.
//! * **`RwLock`, `Condvar`, `Once`.** Use those of `parking_lot` or `std`.
//! * **Poisoning**, deadlock detection, hardware lock elision.
//! * **Locks in signal handlers and in allocators.** A handler that interrupts its own thread in a critical section and wants
//!   the same lock waits for ever, as with every mutex. Locks with nodes allocate them once for 64 threads, and threads get a
//!   number from a table on the heap, so a global allocator can use only `SpinMutex`.
//!
//! # Features
//!
//! | feature | default | |
//! |---|---|---|
//! | `std` | yes | OS threads |
//! | `lock_api` | yes | the mutexes, by `lock_api` 0.5; needs Rust 1.95, the rest of the crate 1.88 |
//! | `lock_api_04` | | `RawMutex` and `RawSpinMutex` implement the traits of `lock_api` 0.4 also: `lock_api_04::Mutex<ticket::RawMutex, T>` |
//! | `arc_lock`, `serde` | | those features of `lock_api` |
//! | `stats` | | counts what slow paths do, by the names of the kernel's counters (module `stats`); without it no code of that is compiled |
//! | `alloc` | with `std` | the algorithms with queue nodes, for worlds of one's own |
//! | `portable-parking` | | for tests |
//!
//! Without `std` the crate is `no_std`, and without `alloc` it links no allocator. What is left is the generic layer
//! [`algorithm`] and, with `lock_api` or `lock_api_04`, the `SpinMutex` of [`ticket`] and [`unfair_byte`]. Every target must have 64-bit atomics.
//!
//! # The layer below
//!
//! [`algorithm`] has the same locks over any platform, with explicit handles: for simulators, checkers and kernels.

#![cfg_attr(not(feature = "std"), no_std)]
#![cfg_attr(docsrs, feature(doc_cfg))]
#![warn(missing_docs)]
// The text names what is not there without these.
#![cfg_attr(not(all(feature = "std", feature = "lock_api")), allow(rustdoc::broken_intra_doc_links))]

#[cfg(not(target_has_atomic = "64"))]
compile_error!("contend-locks keeps a lock in one 64-bit atomic, which this target does not have");

#[cfg(feature = "alloc")]
extern crate alloc;

#[macro_use]
mod forms;

#[cfg(all(doctest, feature = "std", feature = "lock_api"))]
mod compile_tests;
#[cfg(all(doctest, feature = "std", feature = "lock_api"))]
#[doc = include_str!("../README.md")]
mod readme {}

#[cfg(feature = "alloc")]
pub mod adaptive;
pub mod algorithm;
#[cfg(feature = "alloc")]
pub mod hash;
#[cfg(feature = "alloc")]
pub mod hybrid;
#[cfg(feature = "alloc")]
mod kicked;
#[cfg(feature = "alloc")]
pub mod mcs;
#[cfg(feature = "std")]
pub mod native;
#[cfg(feature = "alloc")]
pub mod nodes;
pub mod order;
#[cfg(feature = "alloc")]
pub mod pv;
#[cfg(feature = "alloc")]
pub mod pv_queued;
#[cfg(feature = "alloc")]
pub mod pv_ticket;
#[cfg(feature = "alloc")]
pub mod queued;
#[cfg(feature = "stats")]
pub mod stats;
pub mod ticket;
pub mod unfair_byte;
#[cfg(feature = "alloc")]
pub mod unfair_queued;

#[cfg(feature = "lock_api")]
pub use lock_api;
#[cfg(feature = "lock_api_04")]
pub use lock_api_04;
#[cfg(feature = "std")]
pub use native::RawThreadId;

// The lock for those who do not want to choose. The one place that decides which it is (the text above says so).
#[cfg(all(feature = "std", feature = "arc_lock", feature = "lock_api"))]
#[doc(inline)]
pub use adaptive::{ArcMutexGuard, ArcReentrantMutexGuard};
#[cfg(all(feature = "std", feature = "lock_api"))]
#[doc(inline)]
pub use adaptive::{
    MappedMutexGuard, MappedReentrantMutexGuard, Mutex, MutexGuard, ReentrantMutex, ReentrantMutexGuard,
};

// By these paths the other crates of the workspace know the layer below.
#[doc(hidden)]
pub use algorithm::*;
