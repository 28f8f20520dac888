//! A platform around a platform that counts lock events: what a run has passed, and how often.

use contend_platform::{CpuId, Line, LockEvent, Nanos, Note, Ordering, Platform, Time};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Counters of all events, shared by the handles of a run. Not visible to the checkers.
#[derive(Clone, Debug)]
pub struct Counts(Arc<[AtomicU64; LockEvent::COUNT]>);

impl Default for Counts {
    fn default() -> Self {
        Counts(Arc::new([const { AtomicU64::new(0) }; LockEvent::COUNT]))
    }
}

impl Counts {
    /// How often `event` happened (for latencies: the sum, in steps of the clock).
    pub fn of(&self, event: LockEvent) -> u64 {
        self.0[event as usize].load(Relaxed)
    }
}

/// `inner`, counting. Its clock for latencies makes a step at every look.
pub struct Counted<P> {
    inner: P,
    counts: Counts,
    clock: AtomicU64,
}

impl<P> Counted<P> {
    /// A handle that adds to `counts`.
    pub fn new(inner: P, counts: Counts) -> Self {
        Counted { inner, counts, clock: AtomicU64::new(0) }
    }
}

impl<P: Platform> Platform for Counted<P> {
    type Word = P::Word;
    type Cell<T> = P::Cell<T>;

    fn line(&self) -> Line {
        self.inner.line()
    }
    fn word(&self, line: Line, init: u64) -> P::Word {
        self.inner.word(line, init)
    }
    fn cell<T>(&self, line: Line, init: T) -> P::Cell<T> {
        self.inner.cell(line, init)
    }
    fn cpu(&self) -> CpuId {
        self.inner.cpu()
    }
    fn now(&self) -> Time {
        self.inner.now()
    }
    fn load(&self, w: &P::Word, order: Ordering) -> u64 {
        self.inner.load(w, order)
    }
    fn store(&self, w: &P::Word, value: u64, order: Ordering) {
        self.inner.store(w, value, order);
    }
    fn swap(&self, w: &P::Word, value: u64, order: Ordering) -> u64 {
        self.inner.swap(w, value, order)
    }
    fn compare_exchange(
        &self,
        w: &P::Word,
        current: u64,
        new: u64,
        success: Ordering,
        failure: Ordering,
    ) -> Result<u64, u64> {
        self.inner.compare_exchange(w, current, new, success, failure)
    }
    fn fetch_add(&self, w: &P::Word, n: u64, order: Ordering) -> u64 {
        self.inner.fetch_add(w, n, order)
    }
    fn fetch_or(&self, w: &P::Word, bits: u64, order: Ordering) -> u64 {
        self.inner.fetch_or(w, bits, order)
    }
    fn fetch_and(&self, w: &P::Word, bits: u64, order: Ordering) -> u64 {
        self.inner.fetch_and(w, bits, order)
    }
    fn fence(&self, order: Ordering) {
        self.inner.fence(order);
    }
    fn wait_until<const N: usize>(
        &self,
        words: [&P::Word; N],
        budget: Option<Nanos>,
        done: impl FnMut([u64; N]) -> bool,
    ) -> Option<[u64; N]> {
        self.inner.wait_until(words, budget, done)
    }
    fn halt(&self, w: &P::Word, expected: u64) {
        self.inner.halt(w, expected);
    }
    fn kick(&self, w: &P::Word, target: CpuId) {
        self.inner.kick(w, target);
    }
    fn preempted(&self, cpu: CpuId) -> bool {
        self.inner.preempted(cpu)
    }
    fn lock_event(&self, event: LockEvent, n: u64) {
        self.counts.0[event as usize].fetch_add(n, Relaxed);
    }
    fn lock_clock(&self) -> Time {
        1 + self.clock.fetch_add(1, Relaxed)
    }
    fn note(&self, note: Note) {
        self.inner.note(note);
    }
    unsafe fn read<T, R>(&self, c: &P::Cell<T>, f: impl FnOnce(&T) -> R) -> R {
        // SAFETY: passed on from the caller.
        unsafe { self.inner.read(c, f) }
    }
    unsafe fn write<T, R>(&self, c: &P::Cell<T>, f: impl FnOnce(&mut T) -> R) -> R {
        // SAFETY: passed on from the caller.
        unsafe { self.inner.write(c, f) }
    }
}
