//! Futexes on the words of threads: FUTEX_WAIT with the value compared under the bucket's lock, and FUTEX_WAKE.
//!
//! A bucket per line: Linux hashes to 256 buckets a CPU, so that two words in use rarely meet in one. A wake-up looks at the
//! bucket's count of waiters before it takes the lock, and returns if there are none. A waiter counts itself before it
//! loads the value, and a waker changes the value before it asks for the count: one of them sees the other.

use super::{ObjectReport, Os, Pending};
use crate::thread::Futex;
use crate::world::{Sim, SimWord};
use contend_platform::Ordering::{AcqRel, Acquire};
use contend_platform::{Account, Platform, TaskId, Time, Work};
use contend_sched::kernel::{Kernel, SyscallEnd};
use contend_sched::policy::Policy;
use contend_sched::rq_lock::KernelLock;
use rustc_hash::FxHashMap;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

/// A hash bucket; all of it lies on one line.
struct Bucket {
    lock: KernelLock<Sim>,
    /// Waiters there, or about to be.
    count: SimWord,
    data: <Sim as Platform>::Cell<()>,
    /// Sleepers, first come first served.
    queue: RefCell<VecDeque<(Futex, TaskId)>>,
}

/// All buckets that were used, by the line of the words they serve.
#[derive(Default)]
pub(super) struct Buckets(RefCell<FxHashMap<u32, Rc<Bucket>>>);

impl Buckets {
    fn get<L: Policy>(&self, kernel: &Kernel<Sim, L>, p: &Sim, futex: Futex) -> Rc<Bucket> {
        let mut buckets = self.0.borrow_mut();
        Rc::clone(buckets.entry(futex.line).or_insert_with(|| {
            let line = p.line();
            Rc::new(Bucket {
                lock: kernel.locks.create(p, line, Account::SpinLock),
                count: p.word(line, 0),
                data: p.cell(line, ()),
                queue: RefCell::default(),
            })
        }))
    }

    /// Their locks, for the result.
    pub(super) fn reports(&self, end: Time) -> Vec<ObjectReport> {
        let buckets = self.0.borrow();
        let mut lines: Vec<_> = buckets.iter().collect();
        lines.sort_by_key(|(line, _)| **line);
        let report = |(line, b): (&u32, &Rc<Bucket>)| ObjectReport {
            name: format!("futex of line {line}"),
            kind: "futex",
            lock: b.lock.stats_at(end),
            number: Some(b.lock.number()),
        };
        lines.into_iter().map(report).collect()
    }
}

impl Bucket {
    /// Touch the queue; the lock is held.
    fn touch(&self, p: &Sim) {
        // SAFETY: the lock that guards the data is held by the caller; the closure does nothing.
        unsafe { p.write(&self.data, |()| ()) }
    }
}

impl Os<Sim> {
    /// Sleep while `word` holds `expected`, until woken.
    pub(super) fn word_wait<L: Policy>(
        &self,
        kernel: &Kernel<Sim, L>,
        p: &Sim,
        task: TaskId,
        word: &SimWord,
        expected: u32,
    ) -> SyscallEnd {
        p.charge(Work::FutexOp, 1);
        let futex = Futex::of(word);
        let b = self.buckets.get(kernel, p, futex);
        p.fetch_add(&b.count, 1, AcqRel);
        b.lock.lock(p);
        let end = if p.load(word, Acquire) as u32 == expected {
            b.touch(p);
            self.with(task, |t| t.woken = false);
            b.queue.borrow_mut().push_back((futex, task));
            self.block(kernel, p, task, Pending::WordFutex)
        } else {
            p.fetch_add(&b.count, u64::MAX, AcqRel);
            self.done(task)
        };
        b.lock.unlock(p);
        end
    }

    /// A task that slept on a word runs again.
    pub(super) fn word_woken<L: Policy>(&self, kernel: &Kernel<Sim, L>, p: &Sim, task: TaskId) -> SyscallEnd {
        let woken = self.with(task, |t| t.woken);
        if woken { self.done(task) } else { self.block(kernel, p, task, Pending::WordFutex) }
    }

    /// Wake whoever sleeps on the word.
    pub(super) fn word_wake<L: Policy>(&self, kernel: &Kernel<Sim, L>, p: &Sim, futex: Futex) -> SyscallEnd {
        p.charge(Work::FutexOp, 1);
        let b = self.buckets.get(kernel, p, futex);
        if p.load(&b.count, Acquire) == 0 {
            return SyscallEnd::Continue;
        }
        b.lock.lock(p);
        b.touch(p);
        let mut woken = Vec::new();
        b.queue.borrow_mut().retain(|&(f, task)| {
            if f == futex {
                woken.push(task);
            }
            f != futex
        });
        for &task in &woken {
            self.with(task, |t| t.woken = true);
        }
        if !woken.is_empty() {
            p.fetch_add(&b.count, (woken.len() as u64).wrapping_neg(), AcqRel);
        }
        b.lock.unlock(p);
        self.wake_all(kernel, p, woken, 0);
        SyscallEnd::Continue
    }
}
