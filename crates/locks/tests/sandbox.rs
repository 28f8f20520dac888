//! A thread that forbids itself `membarrier` (seccomp) after the first use of a lock: it still gets the lock.
#![cfg(all(feature = "lock_api", target_os = "linux", not(miri)))]

use contend_locks::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

/// Filter the calling thread's system calls: `membarrier` gives `error`. False: this system has no filters.
fn forbid_membarrier(error: i32) -> bool {
    let step = |code, jt, jf, k| libc::sock_filter { code: code as u16, jt, jf, k };
    let mut filter = [
        step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
        step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 1, libc::SYS_membarrier as u32),
        step(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ERRNO | error as u32),
        step(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    // SAFETY: the program and its filter live until the call returns.
    unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
            && libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program) == 0
    }
}

#[test]
fn a_head_that_may_not_use_membarrier_gets_the_lock() {
    static MUTEX: Mutex<u64> = Mutex::new(0);
    // The first unlock registers the process.
    *MUTEX.lock() += 1;
    let (done, got) = channel();
    let held = MUTEX.lock();
    for error in [libc::EPERM, libc::ENOSYS] {
        let done = done.clone();
        std::thread::spawn(move || {
            let filtered = forbid_membarrier(error);
            *MUTEX.lock() += 1;
            let _ = done.send(filtered);
        });
    }
    // Longer than the head spins.
    std::thread::sleep(Duration::from_millis(100));
    drop(held);
    for _ in 0..2 {
        let filtered = got.recv_timeout(Duration::from_secs(20)).expect("a waiter hangs though the lock is free");
        if !filtered {
            eprintln!("skipped: no seccomp filters here");
        }
    }

    // And goes on to, beside threads that may use it.
    let counts = [const { AtomicU64::new(0) }; 6];
    let end = Instant::now() + Duration::from_millis(300);
    std::thread::scope(|s| {
        for (i, count) in counts.iter().enumerate() {
            s.spawn(move || {
                if i % 2 == 0 {
                    forbid_membarrier(libc::EPERM);
                }
                while Instant::now() < end {
                    *MUTEX.lock() += 1;
                    count.fetch_add(1, Relaxed);
                }
            });
        }
    });
    let all: u64 = counts.iter().map(|c| c.load(Relaxed)).sum();
    assert_eq!(*MUTEX.lock(), 3 + all);
}
