//! What both ways to sleep promise.

use crate::native::park::portable::{BUCKETS, bucket_of};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

type Wait = fn(&AtomicU64, u32, Option<Duration>);
type Wake = fn(*const AtomicU64, i32);

/// Upper half, which must not matter.
const HIGH: u64 = 0xffff_0000_0000_0000;

fn does_not_sleep_on_another_value(wait: Wait) {
    let w = AtomicU64::new(HIGH | 7);
    wait(&w, 8, None);
    wait(&w, 0, None);
}

fn times_out(wait: Wait) {
    let w = AtomicU64::new(HIGH | 7);
    let start = Instant::now();
    while start.elapsed() < Duration::from_millis(20) {
        wait(&w, 7, Some(Duration::from_millis(20)));
    }
    wait(&w, 7, Some(Duration::ZERO));
}

/// Two threads that take turns, each asleep while it is the other's: a lost wake-up hangs.
fn loses_no_wake_up(wait: Wait, wake: Wake) {
    const TURNS: u64 = if cfg!(miri) { 50 } else { 5_000 };
    let turn = AtomicU64::new(0);
    std::thread::scope(|s| {
        for me in 0..2 {
            let turn = &turn;
            s.spawn(move || {
                for mine in (me..TURNS).step_by(2) {
                    loop {
                        let now = turn.load(Ordering::Acquire);
                        if now == mine {
                            break;
                        }
                        wait(turn, now as u32, None);
                    }
                    turn.store(mine + 1, Ordering::Release);
                    wake(turn, i32::MAX);
                }
            });
        }
    });
    assert_eq!(turn.into_inner(), TURNS);
}

/// Sleepers on several words, some of one bucket: a wake-up of one word wakes its sleepers, one at a time if so asked.
fn wakes_whom_it_names(wait: Wait, wake: Wake) {
    const WORDS: usize = if cfg!(miri) { 3 } else { BUCKETS + 1 };
    let words: Vec<AtomicU64> = (0..WORDS).map(|_| AtomicU64::new(1)).collect();
    let up = AtomicU32::new(0);
    std::thread::scope(|s| {
        for w in words.iter().flat_map(|w| [w, w]) {
            let up = &up;
            s.spawn(move || {
                while w.load(Ordering::Acquire) == 1 {
                    wait(w, 1, None);
                }
                up.fetch_add(1, Ordering::Relaxed);
            });
        }
        for (i, w) in words.iter().enumerate() {
            w.store(0, Ordering::Release);
            wake(w, 1);
            wake(w, 1);
            while up.load(Ordering::Relaxed) != 2 * (i as u32 + 1) {
                std::thread::yield_now();
            }
        }
    });
}

/// A thread that is being torn down sleeps and is woken.
fn works_in_tear_down(wait: Wait, wake: Wake) {
    struct AtEnd(Arc<AtomicU64>, Wait);
    impl Drop for AtEnd {
        fn drop(&mut self) {
            while self.0.load(Ordering::Acquire) == 1 {
                (self.1)(&self.0, 1, None);
            }
        }
    }
    thread_local!(static AT_END: std::cell::RefCell<Option<AtEnd>> = const { std::cell::RefCell::new(None) });
    let w = Arc::new(AtomicU64::new(1));
    let at_end = AtEnd(Arc::clone(&w), wait);
    let thread = std::thread::spawn(move || AT_END.with(|cell| cell.borrow_mut().replace(at_end).is_none()));
    std::thread::sleep(Duration::from_millis(5));
    w.store(0, Ordering::Release);
    wake(&*w, i32::MAX);
    assert!(thread.join().expect("no panic"));
}

macro_rules! parking {
    ($($(#[$meta:meta])* $name:ident;)*) => { $(
        $(#[$meta])*
        mod $name {
            use crate::native::park::$name::{wait, wake};

            #[test]
            fn does_not_sleep_on_another_value() {
                super::does_not_sleep_on_another_value(wait);
            }
            #[test]
            fn times_out() {
                super::times_out(wait);
            }
            #[test]
            fn loses_no_wake_up() {
                super::loses_no_wake_up(wait, wake);
            }
            #[test]
            fn wakes_whom_it_names() {
                super::wakes_whom_it_names(wait, wake);
            }
            #[test]
            fn works_in_tear_down() {
                super::works_in_tear_down(wait, wake);
            }
        }
    )* };
}

parking! {
    #[cfg(all(target_os = "linux", target_pointer_width = "64", not(miri)))]
    futex;
    portable;
}

#[test]
fn neighbours_use_different_buckets() {
    let mut seen = std::collections::BTreeSet::new();
    seen.extend((0..64).map(|i| bucket_of(0x7f00_1234_5000 + i * 128)));
    assert!(seen.len() >= 32, "64 lines share {} buckets", seen.len());
}
