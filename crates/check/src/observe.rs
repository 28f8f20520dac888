//! What no assertion inside a lock can see: how often a waiter is overtaken, and who touches the queue nodes of others.
//!
//! [`Observed`] is a platform around another one that reports to a [`Watch`]. The watch fails the execution when
//!
//! * a waiter that has its place in line is overtaken more often than the lock promises
//!   ([`RawLock::BYPASS_MAX`](contend_locks::RawLock::BYPASS_MAX)): acquisitions are counted that belong to CPUs which took their
//!   place later, or none;
//! * a CPU changes a queue node of another after that one has released it, or looks at it, unless the lock says that it
//!   peeks. A node is known by its line. A failed compare-and-exchange and a kick change nothing. The owner may do what it
//!   likes.
//!
//! Places in line, claims and releases are notes of the algorithms ([`Platform::note`]), acquisitions are notes of the model.
//! They are made without a scheduling point after the operation they tell of, so they are in its order.
//!
//! An access that comes so late that the owner has claimed the node again is not noticed as such. But whoever may come so late
//! may come a little earlier, and that is another execution.

use crate::{CheckedPlatform, Model};
use contend_platform::{CpuId, Line, LockEvent, Nanos, Note, Ordering, Platform, Time};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The observer of all CPUs of an execution.
#[derive(Debug)]
pub struct Watch {
    bypass_max: Option<u32>,
    peeks: bool,
    state: Mutex<State>,
}

#[derive(Default, Debug)]
struct State {
    line: Vec<Place>,
    nodes: HashMap<u32, Node>,
    /// Second lines of nodes.
    joined: HashMap<u32, u32>,
    seen: Seen,
}

/// What a watch has seen, in all executions.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Seen {
    /// Places in line taken.
    pub queued: u64,
    /// Most acquisitions past one waiter.
    pub bypasses_max: u32,
    /// Looks at nodes whose owners had left.
    pub peeks: u64,
}

/// A waiter.
#[derive(Debug)]
struct Place {
    cpu: CpuId,
    /// CPUs that took their places before and have not had their turn.
    ahead: Vec<CpuId>,
    /// Position in line when it came, from 1.
    position: u32,
    bypasses: u32,
}

#[derive(Debug)]
struct Node {
    owner: CpuId,
    claimed: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Touch {
    Look,
    Change,
}

impl Watch {
    /// A watch over locks with that bound on bypasses; `peeks`: their waiters look at nodes whose owners may have left.
    pub fn new(bypass_max: Option<u32>, peeks: bool) -> Arc<Self> {
        Arc::new(Watch { bypass_max, peeks, state: Mutex::default() })
    }
    /// What it has seen so far.
    pub fn seen(&self) -> Seen {
        self.state().seen
    }
    /// A handle that reports here.
    pub fn on<P>(self: &Arc<Self>, inner: P) -> Observed<P> {
        Observed { inner, watch: Arc::clone(self) }
    }
    /// `model`, each of whose executions begins with an empty line.
    pub fn over<M>(self: &Arc<Self>, model: M) -> Watched<M> {
        Watched { model, watch: Arc::clone(self) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // A failed assertion below poisons it; the next execution begins anew.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note(&self, cpu: CpuId, note: Note) {
        let mut state = self.state();
        let state = &mut *state;
        match note {
            Note::Queued => {
                state.line.retain(|place| place.cpu != cpu);
                let ahead: Vec<CpuId> = state.line.iter().map(|place| place.cpu).collect();
                let position = ahead.len() as u32 + 1;
                state.line.push(Place { cpu, ahead, position, bypasses: 0 });
                state.seen.queued += 1;
            }
            Note::Left => {
                state.line.retain(|place| place.cpu != cpu);
                state.line.iter_mut().for_each(|place| place.ahead.retain(|&ahead| ahead != cpu));
            }
            Note::Acquired => {
                state.line.retain(|place| place.cpu != cpu);
                for place in &mut state.line {
                    if let Some(i) = place.ahead.iter().position(|&ahead| ahead == cpu) {
                        place.ahead.swap_remove(i);
                        continue;
                    }
                    place.bypasses += 1;
                    state.seen.bypasses_max = state.seen.bypasses_max.max(place.bypasses);
                    let (waiter, position, bypasses) = (place.cpu, place.position, place.bypasses);
                    assert!(
                        self.bypass_max.is_none_or(|max| bypasses <= max * position),
                        "{waiter:?}, {position} in line, was overtaken {bypasses} times, at last by {cpu:?}"
                    );
                }
            }
            Note::Joined { line, to } => _ = state.joined.insert(line.0, to.0),
            Note::Claimed(line) => _ = state.nodes.insert(line.0, Node { owner: cpu, claimed: true }),
            Note::Released(line) => state.nodes.get_mut(&line.0).expect("claimed before").claimed = false,
        }
    }

    fn touched(&self, cpu: CpuId, line: Line, touch: Touch) {
        let mut state = self.state();
        let line = state.joined.get(&line.0).copied().unwrap_or(line.0);
        let Some(&Node { owner, claimed }) = state.nodes.get(&line) else { return };
        if claimed || owner == cpu {
            return;
        }
        assert!(touch == Touch::Look, "{cpu:?} changes a node that {owner:?} has released");
        assert!(self.peeks, "{cpu:?} looks at a node that {owner:?} has released");
        state.seen.peeks += 1;
    }
}

/// A model under a [`Watch`].
#[derive(Clone, Debug)]
pub struct Watched<M> {
    model: M,
    watch: Arc<Watch>,
}

impl<P: Platform, M: Model<P>> Model<P> for Watched<M> {
    type Shared = M::Shared;
    fn cpus(&self) -> usize {
        self.model.cpus()
    }
    fn setup(&self, p: &P) -> M::Shared {
        let mut state = self.watch.state();
        state.line.clear();
        state.nodes.clear();
        state.joined.clear();
        drop(state);
        self.model.setup(p)
    }
    fn run(&self, p: &P, shared: &M::Shared) {
        self.model.run(p, shared);
    }
    fn finish(&self, p: &P, shared: &M::Shared) {
        self.model.finish(p, shared);
    }
}

/// A platform that reports to a [`Watch`].
#[derive(Clone, Debug)]
pub struct Observed<P> {
    inner: P,
    watch: Arc<Watch>,
}

/// A word that knows its line.
#[derive(Debug)]
pub struct ObservedWord<W> {
    word: W,
    line: Line,
}

impl<P: Platform> Observed<P> {
    /// After the operation: no other CPU runs between its effect and the report.
    fn touched(&self, w: &ObservedWord<P::Word>, touch: Touch) {
        self.watch.touched(self.inner.cpu(), w.line, touch);
    }
    fn changed(&self, w: &ObservedWord<P::Word>, old: u64) -> u64 {
        self.touched(w, Touch::Change);
        old
    }
}

impl<P: Platform> Platform for Observed<P> {
    type Word = ObservedWord<P::Word>;
    type Cell<T> = P::Cell<T>;

    fn line(&self) -> Line {
        self.inner.line()
    }
    fn word(&self, line: Line, init: u64) -> Self::Word {
        ObservedWord { word: self.inner.word(line, init), line }
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
    fn load(&self, w: &Self::Word, order: Ordering) -> u64 {
        let value = self.inner.load(&w.word, order);
        self.touched(w, Touch::Look);
        value
    }
    fn store(&self, w: &Self::Word, value: u64, order: Ordering) {
        self.inner.store(&w.word, value, order);
        self.touched(w, Touch::Change);
    }
    fn swap(&self, w: &Self::Word, value: u64, order: Ordering) -> u64 {
        self.changed(w, self.inner.swap(&w.word, value, order))
    }
    fn compare_exchange(
        &self,
        w: &Self::Word,
        current: u64,
        new: u64,
        success: Ordering,
        failure: Ordering,
    ) -> Result<u64, u64> {
        let result = self.inner.compare_exchange(&w.word, current, new, success, failure);
        self.touched(w, if result.is_ok() { Touch::Change } else { Touch::Look });
        result
    }
    fn fetch_add(&self, w: &Self::Word, n: u64, order: Ordering) -> u64 {
        let old = self.inner.fetch_add(&w.word, n, order);
        // Mutants look by adding nothing.
        self.touched(w, if n == 0 { Touch::Look } else { Touch::Change });
        old
    }
    fn fetch_or(&self, w: &Self::Word, bits: u64, order: Ordering) -> u64 {
        self.changed(w, self.inner.fetch_or(&w.word, bits, order))
    }
    fn fetch_and(&self, w: &Self::Word, bits: u64, order: Ordering) -> u64 {
        self.changed(w, self.inner.fetch_and(&w.word, bits, order))
    }
    fn fence(&self, order: Ordering) {
        self.inner.fence(order);
    }
    fn wait_until<const N: usize>(
        &self,
        words: [&Self::Word; N],
        budget: Option<Nanos>,
        done: impl FnMut([u64; N]) -> bool,
    ) -> Option<[u64; N]> {
        let values = self.inner.wait_until(words.map(|w| &w.word), budget, done);
        words.iter().for_each(|w| self.touched(w, Touch::Look));
        values
    }
    fn halt(&self, w: &Self::Word, expected: u64) {
        self.inner.halt(&w.word, expected);
    }
    fn kick(&self, w: &Self::Word, target: CpuId) {
        self.inner.kick(&w.word, target);
    }
    inner_hints!();
    fn lock_event(&self, event: LockEvent, n: u64) {
        self.inner.lock_event(event, n);
    }
    fn note(&self, note: Note) {
        self.watch.note(self.inner.cpu(), note);
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
    unsafe fn rewrite<T, R>(&self, c: &P::Cell<T>, f: impl FnOnce(&mut T) -> R) -> R {
        // SAFETY: passed on from the caller.
        unsafe { self.inner.rewrite(c, f) }
    }
}

impl<P: CheckedPlatform> CheckedPlatform for Observed<P> {
    fn wait_until_ordered<const N: usize>(
        &self,
        words: [&Self::Word; N],
        order: Ordering,
        budget: Option<Nanos>,
        done: impl FnMut([u64; N]) -> bool,
    ) -> Option<[u64; N]> {
        let values = self.inner.wait_until_ordered(words.map(|w| &w.word), order, budget, done);
        words.iter().for_each(|w| self.touched(w, Touch::Look));
        values
    }
}
