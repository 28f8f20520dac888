//! The lock of a cpupool (`prv->lock`): a spinlock for writers, and a count of readers who only ever try.

use crate::rq_lock::{KernelLock, LockFactory, LockStats};
use contend_platform::Ordering::{AcqRel, Acquire, Release};
use contend_platform::{Account, Platform};
use std::cell::Cell;

/// In the readers' word: a writer holds the lock or waits for the readers to leave.
const WRITER: u64 = 1 << 32;

pub(super) struct PoolLock<P: Platform> {
    writers: KernelLock<P>,
    readers: P::Word,
    /// Attempts to read, and those that found a writer.
    tried: Cell<u64>,
    failed: Cell<u64>,
}

impl<P: Platform> PoolLock<P> {
    pub fn new(p: &P, locks: &LockFactory<P>) -> Self {
        let line = p.line();
        PoolLock {
            writers: locks.create(p, line, Account::SpinLock),
            readers: p.word(line, 0),
            tried: Cell::new(0),
            failed: Cell::new(0),
        }
    }
    /// Exclude readers and writers.
    pub fn lock(&self, p: &P) {
        self.writers.lock(p);
        if p.fetch_or(&self.readers, WRITER, AcqRel) != 0 {
            let before = p.enter(Account::SpinLock);
            p.wait_until([&self.readers], None, |[r]| r == WRITER);
            p.enter(before);
        }
    }
    pub fn unlock(&self, p: &P) {
        p.store(&self.readers, 0, Release);
        self.writers.unlock(p);
    }
    /// Join the readers, if no writer is there.
    pub fn try_read(&self, p: &P) -> bool {
        self.tried.set(self.tried.get() + 1);
        let got = p.fetch_add(&self.readers, 1, Acquire) & WRITER == 0;
        if !got {
            p.fetch_add(&self.readers, u64::MAX, Release);
            self.failed.set(self.failed.get() + 1);
        }
        got
    }
    pub fn unlock_read(&self, p: &P) {
        p.fetch_add(&self.readers, u64::MAX, Release);
    }
    /// Writers' statistics, attempts to read, failures of these.
    pub fn stats(&self) -> (LockStats, u64, u64) {
        (self.writers.stats(), self.tried.get(), self.failed.get())
    }
}
