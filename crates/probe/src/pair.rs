//! Threads bound to CPUs, and how two of them take turns.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::sys;

/// A wait for the partner gives up after this: somebody else has its CPU.
const PATIENCE: Duration = Duration::from_millis(200);

/// A word on cache lines of its own (two, since some processors fetch them in pairs).
#[repr(align(128))]
#[derive(Default)]
pub struct Alone<T>(pub T);

/// Runs `f` on a thread bound to `cpu`. `None` if it may not run there.
pub fn on<R: Send>(cpu: usize, f: impl FnOnce() -> Option<R> + Send) -> Option<R> {
    std::thread::scope(|s| s.spawn(|| sys::pin(cpu).then(f).flatten()).join().ok().flatten())
}

/// Runs `a` and `b` on threads bound to CPUs; `None` if one of them may not run there. Either returns `None` if the
/// other does not answer, so none waits for ever.
pub fn both<A: Send, B: Send>(
    cpus: (usize, usize),
    a: impl FnOnce() -> Option<A> + Send,
    b: impl FnOnce() -> Option<B> + Send,
) -> Option<(A, B)> {
    std::thread::scope(|s| {
        let a = s.spawn(|| sys::pin(cpus.0).then(a).flatten());
        let b = s.spawn(|| sys::pin(cpus.1).then(b).flatten());
        let (a, b) = (a.join().ok().flatten(), b.join().ok().flatten());
        a.zip(b)
    })
}

/// Spin until the word is `value` or more.
#[inline]
pub fn spin_until(word: &AtomicU64, value: u64) -> Option<()> {
    for _ in 0..1 << 14 {
        if word.load(Ordering::Acquire) >= value {
            return Some(());
        }
        std::hint::spin_loop();
    }
    let began = Instant::now();
    while word.load(Ordering::Acquire) < value {
        if began.elapsed() > PATIENCE {
            return None;
        }
        std::hint::spin_loop();
    }
    Some(())
}

/// Sleep until the word is `value` or more. Only behind a [`Gate`], when it is certain that the partner runs: a time limit
/// would program a timer each time.
#[inline]
pub fn sleep_until(word: &AtomicU32, value: u32) {
    loop {
        let now = word.load(Ordering::Acquire);
        if now >= value {
            return;
        }
        sys::futex_wait(word, now);
    }
}

/// Set the word and wake who sleeps on it.
#[inline]
pub fn wake(word: &AtomicU32, value: u32) {
    word.store(value, Ordering::Release);
    sys::futex_wake(word);
}

/// Two threads come together here.
#[derive(Default)]
pub struct Gate(AtomicU64);

impl Gate {
    /// Wait for the other; `None` if it does not come. Nobody passes alone.
    pub fn meet(&self) -> Option<()> {
        const GONE: u64 = 1 << 32;
        match self.0.fetch_add(1, Ordering::AcqRel) {
            0 => {}
            other => return (other < GONE).then_some(()),
        }
        let began = Instant::now();
        while self.0.load(Ordering::Acquire) < 2 {
            let late = began.elapsed() > PATIENCE;
            if late && self.0.compare_exchange(1, GONE, Ordering::AcqRel, Ordering::Acquire).is_ok() {
                return None;
            }
            sys::sched_yield();
        }
        Some(())
    }
}
