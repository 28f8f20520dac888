//! Mutants: the algorithm under test with one mistake, made from its unchanged source.
//!
//! [`Mutated`] is a platform around another one. Generic code calls the platform's operations at certain places of its
//! source, and the compiler tells an operation where it was called from (`#[track_caller]`): that is a [`Site`]. A
//! [`Mutant`] changes what happens at one site: a weaker ordering, a store or fence left out, a wait that does not wait, a
//! compare-and-exchange that does not compare, an operation that comes too late. [`Log`] collects the sites that a run passes,
//! so that the list of mutants is complete by construction: every ordering in the source is either noticed by a checker when
//! it is weakened, or is listed as not needed.
//!
//! Mistakes of logic are made in the same way, by name ([`Named`]). "Kick before release" is a release that takes effect
//! after the kick; "skip the recheck" is a load that is not looked at. A late operation waits in the handle: until the CPU has
//! passed the other place, until it touches the same word (it would see its own write), or until it ends. What a late
//! read-modify-write returns is what it would have returned in time.

mod mutant;

pub use mutant::{Check, Log, Mistake, Mutant, Named, Op, Place, Site, What, logic_table, table};

use crate::CheckedPlatform;
use contend_platform::{CpuId, Line, LockEvent, Nanos, Note, Ordering, Platform, Time};
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::panic::Location;
use std::sync::Arc;

/// A platform with a mistake (or none), or that logs its sites.
pub struct Mutated<P: Platform> {
    inner: P,
    mutant: Option<Arc<Mutant>>,
    log: Option<Log>,
    late: Cell<Option<Late<P>>>,
    /// What the CPU saw last, by word; kept for [`Mistake::Stale`] only.
    seen: RefCell<HashMap<*const P::Word, u64>>,
}

/// An operation that has not taken effect yet.
struct Late<P: Platform> {
    word: *const P::Word,
    effect: Box<Effect<P>>,
}

type Effect<P> = dyn FnOnce(&P, &<P as Platform>::Word);

impl<P: Platform> Mutated<P> {
    /// `inner` with a mistake.
    pub fn new(inner: P, mutant: Option<Arc<Mutant>>) -> Self {
        Mutated { inner, mutant, log: None, late: Cell::new(None), seen: RefCell::default() }
    }
    /// `inner`, logging.
    pub fn logged(inner: P, log: Log) -> Self {
        let mut logged = Mutated::new(inner, None);
        logged.log = Some(log);
        logged
    }

    /// What happens at this place instead, if anything.
    fn at(&self, at: &Location<'_>, op: Op, order: Option<Ordering>) -> Option<&Mistake> {
        if let Some(log) = &self.log {
            log.passed(at, op, order);
        }
        let mutant = self.mutant.as_deref()?;
        mutant.site.is(at).then_some(&mutant.mistake)
    }

    /// The late operation takes effect.
    fn settle(&self) {
        if let Some(late) = self.late.take() {
            // SAFETY: the words of a model live until the handles of its CPUs are gone: the worlds see to that.
            (late.effect)(&self.inner, unsafe { &*late.word });
        }
    }
    /// The CPU is about to touch these words.
    fn before(&self, words: &[&P::Word]) {
        if let Some(late) = self.late.take() {
            let word = late.word;
            self.late.set(Some(late));
            if words.iter().any(|&w| std::ptr::eq(w, word)) {
                self.settle();
            }
        }
    }
    /// The CPU has passed this place. (If it is the late operation itself, that is not yet in `late`.)
    fn after(&self, at: &Location<'_>) {
        if let Some(Mutant { mistake: Mistake::Late(until), .. }) = self.mutant.as_deref() {
            if until.is(at) {
                self.settle();
            }
        }
    }
    /// What the CPU takes for the value of `w`, having found `found`.
    fn seen(&self, w: &P::Word, mistake: Option<&Mistake>, found: u64) -> u64 {
        if !matches!(self.mutant.as_deref(), Some(Mutant { mistake: Mistake::Stale, .. })) {
            return found;
        }
        let mut seen = self.seen.borrow_mut();
        if mistake.is_some() {
            return *seen.entry(std::ptr::from_ref(w)).or_insert(found);
        }
        seen.insert(w, found);
        found
    }

    /// A read-modify-write: `effect` with an ordering.
    fn modify(
        &self,
        at: &Location<'_>,
        w: &P::Word,
        order: Ordering,
        effect: impl FnOnce(&P, &P::Word, Ordering) -> u64 + 'static,
    ) -> u64 {
        self.before(&[w]);
        let mistake = self.at(at, Op::ReadModifyWrite, Some(order));
        let old = match mistake {
            None | Some(Mistake::Blind | Mistake::Stale) => effect(&self.inner, w, order),
            Some(&Mistake::Order(weaker)) => effect(&self.inner, w, weaker),
            // An addition of nothing is a look that is never out of date.
            Some(Mistake::Skip) => self.inner.fetch_add(w, 0, order),
            Some(Mistake::Late(_)) => {
                let effect = Box::new(move |p: &P, w: &P::Word| _ = effect(p, w, order));
                self.late.set(Some(Late { word: w, effect }));
                return self.inner.fetch_add(w, 0, order);
            }
        };
        self.after(at);
        self.seen(w, mistake, old)
    }
}

impl<P: Platform> Drop for Mutated<P> {
    fn drop(&mut self) {
        // In an execution that fails, others may have gone, and their words with them.
        if !std::thread::panicking() {
            self.settle();
        }
    }
}

impl<P: CheckedPlatform + 'static> Platform for Mutated<P> {
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
    #[track_caller]
    fn load(&self, w: &P::Word, order: Ordering) -> u64 {
        let at = Location::caller();
        self.before(&[w]);
        let mistake = self.at(at, Op::Load, Some(order));
        let order = if let Some(&Mistake::Order(weaker)) = mistake { weaker } else { order };
        let found = self.inner.load(w, order);
        self.after(at);
        self.seen(w, mistake, found)
    }
    #[track_caller]
    fn store(&self, w: &P::Word, value: u64, order: Ordering) {
        let at = Location::caller();
        self.before(&[w]);
        match self.at(at, Op::Store, Some(order)) {
            Some(Mistake::Skip) => {}
            Some(Mistake::Late(_)) => {
                let effect = Box::new(move |p: &P, w: &P::Word| p.store(w, value, order));
                return self.late.set(Some(Late { word: w, effect }));
            }
            Some(&Mistake::Order(weaker)) => self.inner.store(w, value, weaker),
            _ => self.inner.store(w, value, order),
        }
        self.after(at);
    }
    /// One operation to mutants: it cannot be late.
    #[track_caller]
    fn store_many<const N: usize>(&self, words: [&P::Word; N], values: [u64; N]) {
        let at = Location::caller();
        self.before(&words);
        if self.at(at, Op::Store, Some(Ordering::Relaxed)) != Some(&Mistake::Skip) {
            self.inner.store_many(words, values);
        }
        self.after(at);
    }
    #[track_caller]
    fn swap(&self, w: &P::Word, value: u64, order: Ordering) -> u64 {
        self.modify(Location::caller(), w, order, move |p, w, order| p.swap(w, value, order))
    }
    #[track_caller]
    fn compare_exchange(
        &self,
        w: &P::Word,
        current: u64,
        new: u64,
        success: Ordering,
        failure: Ordering,
    ) -> Result<u64, u64> {
        let at = Location::caller();
        self.before(&[w]);
        let result = match self.at(at, Op::CompareExchange, Some(success)) {
            Some(Mistake::Blind) => {
                self.inner.swap(w, new, success);
                Ok(current)
            }
            Some(Mistake::Late(_)) => {
                let effect =
                    Box::new(move |p: &P, w: &P::Word| _ = p.compare_exchange(w, current, new, success, failure));
                self.late.set(Some(Late { word: w, effect }));
                let found = self.inner.fetch_add(w, 0, success);
                return if found == current { Ok(found) } else { Err(found) };
            }
            Some(&Mistake::Order(weaker)) => self.inner.compare_exchange(w, current, new, weaker, failure),
            _ => self.inner.compare_exchange(w, current, new, success, failure),
        };
        self.after(at);
        self.seen(w, None, result.unwrap_or_else(|found| found));
        result
    }
    #[track_caller]
    fn fetch_add(&self, w: &P::Word, n: u64, order: Ordering) -> u64 {
        self.modify(Location::caller(), w, order, move |p, w, order| p.fetch_add(w, n, order))
    }
    #[track_caller]
    fn fetch_or(&self, w: &P::Word, bits: u64, order: Ordering) -> u64 {
        self.modify(Location::caller(), w, order, move |p, w, order| p.fetch_or(w, bits, order))
    }
    #[track_caller]
    fn fetch_and(&self, w: &P::Word, bits: u64, order: Ordering) -> u64 {
        self.modify(Location::caller(), w, order, move |p, w, order| p.fetch_and(w, bits, order))
    }
    #[track_caller]
    fn fence(&self, order: Ordering) {
        let at = Location::caller();
        match self.at(at, Op::Fence, Some(order)) {
            Some(Mistake::Skip) => {}
            Some(&Mistake::Order(weaker)) => self.inner.fence(weaker),
            _ => self.inner.fence(order),
        }
        self.after(at);
    }
    #[track_caller]
    fn wait_until<const N: usize>(
        &self,
        words: [&P::Word; N],
        budget: Option<Nanos>,
        mut done: impl FnMut([u64; N]) -> bool,
    ) -> Option<[u64; N]> {
        let at = Location::caller();
        self.before(&words);
        let mut last = [0; N];
        let done = |values| {
            last = values;
            done(values)
        };
        let found = match self.at(at, Op::Wait, Some(Ordering::Acquire)) {
            Some(Mistake::Skip) => {
                last = words.map(|w| self.inner.load(w, Ordering::Relaxed));
                Some(last)
            }
            Some(&Mistake::Order(weaker)) => self.inner.wait_until_ordered(words, weaker, budget, done),
            _ => self.inner.wait_until(words, budget, done),
        };
        self.after(at);
        std::iter::zip(words, last).for_each(|(w, value)| _ = self.seen(w, None, value));
        found
    }
    #[track_caller]
    fn halt(&self, w: &P::Word, expected: u64) {
        let at = Location::caller();
        self.before(&[w]);
        match self.at(at, Op::Halt, None) {
            Some(Mistake::Blind) => self.inner.halt(w, self.inner.fetch_add(w, 0, Ordering::Relaxed)),
            _ => self.inner.halt(w, expected),
        }
        self.after(at);
    }
    // A kick does not touch the word.
    #[track_caller]
    fn kick(&self, w: &P::Word, target: CpuId) {
        let at = Location::caller();
        if self.at(at, Op::Kick, None) != Some(&Mistake::Skip) {
            self.inner.kick(w, target);
        }
        self.after(at);
    }
    inner_hints!();
    fn lock_event(&self, event: LockEvent, n: u64) {
        self.inner.lock_event(event, n);
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
