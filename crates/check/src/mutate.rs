//! Mutants: the algorithm under test with one mistake, made from its unchanged source.
//!
//! [`Mutated`] is a platform around another one. Generic code calls the platform's operations at certain places of its
//! source, and the compiler tells an operation where it was called from (`#[track_caller]`): that is a [`Site`]. A
//! [`Mutant`] changes what happens at one site: a weaker ordering, a store or fence left out, a wait that does not wait.
//! [`Log`] collects the sites that a run passes, so that the list of mutants is complete by construction: every ordering
//! in the source is either noticed by a checker when it is weakened, or is listed as not needed.

use crate::{CheckedPlatform, Explored, Failure};
use contend_platform::{CpuId, Line, LockEvent, Nanos, Note, Ordering, Platform, Time};
use std::collections::BTreeSet;
use std::fmt;
use std::panic::Location;
use std::sync::{Arc, Mutex};

/// An operation of the platform.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Op {
    /// Atomic load.
    Load,
    /// Atomic store.
    Store,
    /// Exchange, fetch-and-something, successful compare-and-exchange.
    ReadModifyWrite,
    /// Fence.
    Fence,
    /// `wait_until`.
    Wait,
    /// `kick`.
    Kick,
}

/// A place in the source where a platform operation is called.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Site {
    /// File, from the workspace's root.
    pub file: String,
    /// Line, from 1.
    pub line: u32,
    /// Column, from 1.
    pub column: u32,
    /// The operation.
    pub op: Op,
    /// Its ordering, as text (`Ordering` itself is not ordered).
    pub order: String,
}

impl Site {
    /// The text of the source line.
    pub fn source(&self) -> String {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../").to_string() + &self.file;
        let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{path}: {e}"));
        text.lines().nth(self.line as usize - 1).unwrap_or_default().trim().to_string()
    }
}

/// One mistake.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Mistake {
    /// The operation has this ordering instead.
    Order(Ordering),
    /// The store, fence or kick is left out; the wait returns at once, whatever it finds.
    Skip,
}

/// One mistake at one site.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mutant {
    /// Where.
    pub site: Site,
    /// What.
    pub mistake: Mistake,
}

impl fmt::Display for Mutant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.mistake {
            Mistake::Order(order) => write!(f, "{:?} instead of {}", order, self.site.order),
            Mistake::Skip => write!(f, "left out"),
        }
    }
}

impl Mutant {
    /// All mistakes that make sense at `site`.
    pub fn at(site: &Site) -> Vec<Mutant> {
        use Ordering::{AcqRel, Acquire, Relaxed, Release};
        let weaker: &[Ordering] = match (site.op, site.order.as_str()) {
            (Op::Fence, "SeqCst") => &[AcqRel],
            (Op::Fence, _) | (_, "Relaxed") => &[],
            (Op::ReadModifyWrite, "AcqRel") => &[Acquire, Release],
            _ => &[Relaxed],
        };
        let skip = matches!(site.op, Op::Store | Op::Fence | Op::Wait | Op::Kick);
        let mistakes = weaker.iter().map(|&o| Mistake::Order(o)).chain(skip.then_some(Mistake::Skip));
        mistakes.map(|mistake| Mutant { site: site.clone(), mistake }).collect()
    }
}

/// The sites that a run has passed.
#[derive(Clone, Default, Debug)]
pub struct Log(Arc<Mutex<BTreeSet<Site>>>);

impl Log {
    /// The sites in files whose name ends so, in source order.
    pub fn sites(&self, file: &str) -> Vec<Site> {
        self.0.lock().expect("no panic inside").iter().filter(|s| s.file.ends_with(file)).cloned().collect()
    }
}

/// A platform with a mistake (or none), or that logs its sites.
pub struct Mutated<P> {
    inner: P,
    mutant: Option<Arc<Mutant>>,
    log: Option<Log>,
}

impl<P> Mutated<P> {
    /// `inner` with a mistake.
    pub fn new(inner: P, mutant: Option<Arc<Mutant>>) -> Self {
        Mutated { inner, mutant, log: None }
    }
    /// `inner`, logging.
    pub fn logged(inner: P, log: Log) -> Self {
        Mutated { inner, mutant: None, log: Some(log) }
    }

    /// What happens at this place instead, if anything.
    fn at(&self, at: &Location<'_>, op: Op, order: Option<Ordering>) -> Option<&Mistake> {
        if let Some(log) = &self.log {
            let order = order.map_or(String::new(), |o| format!("{o:?}"));
            log.0.lock().expect("no panic inside").insert(Site {
                file: at.file().to_string(),
                line: at.line(),
                column: at.column(),
                op,
                order,
            });
        }
        let mutant = self.mutant.as_deref()?;
        let here = mutant.site.line == at.line() && mutant.site.column == at.column() && mutant.site.file == at.file();
        here.then_some(&mutant.mistake)
    }

    /// The ordering to use at this place.
    fn order(&self, at: &Location<'_>, op: Op, order: Ordering) -> Ordering {
        match self.at(at, op, Some(order)) {
            Some(&Mistake::Order(weaker)) => weaker,
            _ => order,
        }
    }
}

impl<P: CheckedPlatform> Platform for Mutated<P> {
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
        let order = self.order(Location::caller(), Op::Load, order);
        self.inner.load(w, order)
    }
    #[track_caller]
    fn store(&self, w: &P::Word, value: u64, order: Ordering) {
        match self.at(Location::caller(), Op::Store, Some(order)) {
            Some(Mistake::Skip) => {}
            Some(&Mistake::Order(weaker)) => self.inner.store(w, value, weaker),
            None => self.inner.store(w, value, order),
        }
    }
    #[track_caller]
    fn store_many<const N: usize>(&self, words: [&P::Word; N], values: [u64; N]) {
        if self.at(Location::caller(), Op::Store, Some(Ordering::Relaxed)).is_none() {
            self.inner.store_many(words, values);
        }
    }
    #[track_caller]
    fn swap(&self, w: &P::Word, value: u64, order: Ordering) -> u64 {
        let order = self.order(Location::caller(), Op::ReadModifyWrite, order);
        self.inner.swap(w, value, order)
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
        let success = self.order(Location::caller(), Op::ReadModifyWrite, success);
        self.inner.compare_exchange(w, current, new, success, failure)
    }
    #[track_caller]
    fn fetch_add(&self, w: &P::Word, n: u64, order: Ordering) -> u64 {
        let order = self.order(Location::caller(), Op::ReadModifyWrite, order);
        self.inner.fetch_add(w, n, order)
    }
    #[track_caller]
    fn fetch_or(&self, w: &P::Word, bits: u64, order: Ordering) -> u64 {
        let order = self.order(Location::caller(), Op::ReadModifyWrite, order);
        self.inner.fetch_or(w, bits, order)
    }
    #[track_caller]
    fn fetch_and(&self, w: &P::Word, bits: u64, order: Ordering) -> u64 {
        let order = self.order(Location::caller(), Op::ReadModifyWrite, order);
        self.inner.fetch_and(w, bits, order)
    }
    #[track_caller]
    fn fence(&self, order: Ordering) {
        match self.at(Location::caller(), Op::Fence, Some(order)) {
            Some(Mistake::Skip) => {}
            Some(&Mistake::Order(weaker)) => self.inner.fence(weaker),
            None => self.inner.fence(order),
        }
    }
    #[track_caller]
    fn wait_until<const N: usize>(
        &self,
        words: [&P::Word; N],
        budget: Option<Nanos>,
        done: impl FnMut([u64; N]) -> bool,
    ) -> Option<[u64; N]> {
        match self.at(Location::caller(), Op::Wait, Some(Ordering::Acquire)) {
            Some(Mistake::Skip) => Some(words.map(|w| self.inner.load(w, Ordering::Relaxed))),
            Some(&Mistake::Order(weaker)) => self.inner.wait_until_ordered(words, weaker, budget, done),
            None => self.inner.wait_until(words, budget, done),
        }
    }
    fn halt(&self, w: &P::Word, expected: u64) {
        self.inner.halt(w, expected);
    }
    #[track_caller]
    fn kick(&self, w: &P::Word, target: CpuId) {
        if self.at(Location::caller(), Op::Kick, None).is_none() {
            self.inner.kick(w, target);
        }
    }
    fn preempted(&self, cpu: CpuId) -> bool {
        self.inner.preempted(cpu)
    }
    fn yield_point(&self) {
        self.inner.yield_point();
    }
    fn relinquish(&self) {
        self.inner.relinquish();
    }
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

/// One check: its name, and how it runs with a mutant.
pub type Check = (&'static str, fn(Option<Arc<Mutant>>) -> Result<Explored, Failure>);

/// The table of all mutants of the sites logged in `file`: source line, mistake, which check catches it first, as what.
pub fn table(file: &str, log: &Log, checks: &[Check]) -> String {
    let sites = log.sites(file);
    assert!(!sites.is_empty(), "no run passes a place in {file}");
    let row = |mutant: Mutant| {
        let shared = Arc::new(mutant.clone());
        let caught = checks.iter().find_map(|(name, check)| Some((name, check(Some(Arc::clone(&shared))).err()?)));
        let verdict = caught.map_or("NOT CAUGHT".into(), |(name, failure)| format!("{:?} ({name})", failure.kind));
        format!("{} | {mutant} | {verdict}\n", mutant.site.source())
    };
    sites.iter().flat_map(Mutant::at).map(row).collect()
}
