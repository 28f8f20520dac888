//! Statistics: the kernel's names, and counts of what happened.
#![cfg(all(feature = "stats", feature = "lock_api"))]

use contend_locks::stats::{LockEvent, snapshot};
use contend_locks::{pv_queued, queued};
use contend_platform::{Platform, native::Threads};
use std::cell::RefCell;
use std::sync::Arc;
use std::time::{Duration, Instant};

#[test]
fn every_counter_has_its_name() {
    let counts = snapshot();
    let names: Vec<&str> = counts.iter().map(|(name, _)| name).collect();
    assert_eq!(names.len(), LockEvent::COUNT);
    for name in ["pv_hash_hops", "pv_wait_early", "pv_lock_stealing", "lock_pending", "lock_slowpath", "lock_no_node"] {
        assert!(names.contains(&name), "{name}");
    }
    let text = counts.to_string();
    assert_eq!(text.lines().count(), LockEvent::COUNT);
    assert!(text.lines().all(|line| line.split_once(' ').is_some_and(|(_, count)| count.parse::<u64>().is_ok())));
}

/// A thread in tear-down has no queue node, and says so when it has to wait: also when nobody has its number any more.
// Elsewhere thread-local values may go in another order.
#[cfg(target_os = "linux")]
#[test]
fn a_wait_without_a_node_is_counted() {
    struct AtEnd(Arc<queued::Mutex<u32>>);
    impl Drop for AtEnd {
        fn drop(&mut self) {
            *self.0.lock() += 1;
        }
    }
    thread_local!(static AT_END: RefCell<Option<AtEnd>> = const { RefCell::new(None) });

    let mutex = Arc::new(queued::Mutex::new(0));
    let before = snapshot();
    let held = mutex.lock();
    let spawn = |_| {
        let at_end = AtEnd(Arc::clone(&mutex));
        std::thread::spawn(move || {
            let first = AT_END.with(|cell| cell.replace(Some(at_end)).is_none());
            // The last thing to be made is the first to go: the thread's number.
            first && Threads.cpu() != Threads::NOBODY
        })
    };
    let start = Instant::now();
    // One of them waits on the word itself, which takes no node.
    let threads: Vec<_> = (0..3).map(spawn).collect();
    while snapshot().since(&before).get(LockEvent::LockNoNode) < 2 {
        assert!(start.elapsed() < Duration::from_secs(20), "{}", snapshot().since(&before));
        std::thread::yield_now();
    }
    drop(held);
    assert!(threads.into_iter().all(|thread| thread.join().expect("no panic")));
    let counts = snapshot().since(&before);
    assert_eq!((*mutex.lock(), counts.get(LockEvent::LockNoNode), counts.get(LockEvent::LockUseNode2)), (3, 2, 0));
}

/// Who waits for long halts; the release kicks.
#[test]
fn halts_and_kicks_are_counted() {
    let mutex = pv_queued::Mutex::new(0);
    let before = snapshot();
    let counted = || snapshot().since(&before);
    std::thread::scope(|s| {
        let held = mutex.lock();
        for _ in 0..3 {
            s.spawn(|| *mutex.lock() += 1);
        }
        let start = Instant::now();
        // The first in line halts, and those behind it do.
        while counted().get(LockEvent::PvWaitHead) == 0 || counted().get(LockEvent::PvWaitNode) == 0 {
            assert!(start.elapsed() < Duration::from_secs(20), "{}", counted());
            std::thread::yield_now();
        }
        drop(held);
    });
    let counts = counted();
    assert!(counts.get(LockEvent::LockSlowpath) >= 2, "{counts}");
    assert!(counts.get(LockEvent::PvKickUnlock) >= 1, "{counts}");
    assert!(counts.get(LockEvent::PvLatencyKick) > 0, "the clock of latencies goes: {counts}");
    assert_eq!(mutex.into_inner(), 3);
}
