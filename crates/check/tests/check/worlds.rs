//! The checkers' platforms themselves: what they find, and what they are known not to model.

use contend_check::{FailureKind, Loom, LoomRun, Model, Shuttle, ShuttleRun, run_native};
use contend_platform::{CpuId, Ordering, Platform};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// A model from three closures.
struct Small<S, A, R, F> {
    cpus: usize,
    setup: A,
    run: R,
    finish: F,
    shared: std::marker::PhantomData<fn() -> S>,
}

impl<S, A: Clone, R: Clone, F: Clone> Clone for Small<S, A, R, F> {
    fn clone(&self) -> Self {
        Small {
            cpus: self.cpus,
            setup: self.setup.clone(),
            run: self.run.clone(),
            finish: self.finish.clone(),
            shared: std::marker::PhantomData,
        }
    }
}

impl<P, S, A, R, F> Model<P> for Small<S, A, R, F>
where
    P: Platform,
    S: 'static,
    A: Fn(&P) -> S + Clone + Send + Sync + 'static,
    R: Fn(&P, &S) + Clone + Send + Sync + 'static,
    F: Fn(&P, &S) + Clone + Send + Sync + 'static,
{
    type Shared = S;
    fn cpus(&self) -> usize {
        self.cpus
    }
    fn setup(&self, p: &P) -> S {
        (self.setup)(p)
    }
    fn run(&self, p: &P, s: &S) {
        (self.run)(p, s);
    }
    fn finish(&self, p: &P, s: &S) {
        (self.finish)(p, s);
    }
}

fn small<P, S, A, R, F>(cpus: usize, setup: A, run: R, finish: F) -> Small<S, A, R, F>
where
    P: Platform,
    A: Fn(&P) -> S,
    R: Fn(&P, &S),
    F: Fn(&P, &S),
{
    Small { cpus, setup, run, finish, shared: std::marker::PhantomData }
}

fn word<P: Platform>(p: &P) -> P::Word {
    p.word(p.line(), 0)
}

/// Unordered accesses to a cell are a race, even where they do not overlap in time.
#[test]
fn races_are_found() {
    fn run<P: Platform>(p: &P, cell: &P::Cell<u64>) {
        // SAFETY: deliberately not: the checker's panic comes before the access.
        unsafe { p.write(cell, |v| *v += 1) };
    }
    let on_loom = small(2, |p: &Loom| p.cell(p.line(), 0), run, |_, _| {});
    assert_eq!(LoomRun::default().check(on_loom).unwrap_err().kind, FailureKind::Race);
    let on_shuttle = small(2, |p: &Shuttle| p.cell(p.line(), 0), run, |_, _| {});
    assert_eq!(ShuttleRun::random(100).check(on_shuttle).unwrap_err().kind, FailureKind::Race);
}

/// The expiry of a budget is a branch: with a word that may or may not be set in time, both ends are explored.
#[test]
fn budgets_expire_or_not() {
    let (expired, met) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    fn run<P: Platform>(p: &P, w: &P::Word, expired: &AtomicUsize, met: &AtomicUsize) {
        if p.cpu() == CpuId(0) {
            match p.wait_until([w], Some(1_000), |[w]| w == 1) {
                Some(_) => met.fetch_add(1, Relaxed),
                None => expired.fetch_add(1, Relaxed),
            };
        } else {
            p.store(w, 1, Ordering::Release);
        }
    }
    let (e, m) = (Arc::clone(&expired), Arc::clone(&met));
    let on_loom = small(2, word, move |p: &Loom, w: &_| run(p, w, &e, &m), |_, _| {});
    LoomRun { coins: 2, ..LoomRun::default() }.check(on_loom).unwrap();
    assert!(expired.swap(0, Relaxed) > 0 && met.swap(0, Relaxed) > 0, "both branches");
    let (e, m) = (Arc::clone(&expired), Arc::clone(&met));
    let on_shuttle = small(2, word, move |p: &Shuttle, w: &_| run(p, w, &e, &m), |_, _| {});
    ShuttleRun::random(200).check(on_shuttle).unwrap();
    assert!(expired.load(Relaxed) > 0 && met.load(Relaxed) > 0, "both branches");
}

/// Nobody sets the word.
#[test]
fn waiting_for_ever_is_found() {
    fn run<P: Platform>(p: &P, w: &P::Word) {
        p.wait_until([w], None, |[w]| w == 1);
    }
    let on_loom = small(2, word::<Loom>, run, |_, _| {});
    assert_eq!(LoomRun::default().check(on_loom).unwrap_err().kind, FailureKind::Deadlock);
    let on_shuttle = small(2, word::<Shuttle>, run, |_, _| {});
    assert_eq!(ShuttleRun::random(10).check(on_shuttle).unwrap_err().kind, FailureKind::NoProgress);
}

/// CPU 0 halts while the word is 0; CPU 1 changes it and kicks, in this order or in the wrong one.
fn halt_and_kick<P: Platform>(p: &P, w: &P::Word, right: bool) {
    if p.cpu() == CpuId(0) {
        while p.load(w, Ordering::Acquire) == 0 {
            p.halt(w, 0);
        }
    } else if right {
        p.fetch_or(w, 1, Ordering::Release);
        p.kick(w, CpuId(0));
    } else {
        p.kick(w, CpuId(0));
        p.fetch_or(w, 1, Ordering::Release);
    }
}

#[test]
fn a_kick_is_not_lost() {
    LoomRun::default().check(small(2, word, |p: &Loom, w: &_| halt_and_kick(p, w, true), |_, _| {})).unwrap();
    ShuttleRun::random(500).check(small(2, word, |p: &Shuttle, w: &_| halt_and_kick(p, w, true), |_, _| {})).unwrap();
    for _ in 0..200 {
        run_native(&small(2, word, |p: &_, w: &_| halt_and_kick(p, w, true), |_, _| {}));
    }
}

#[test]
fn a_kick_before_the_change_is_lost() {
    let on_loom = small(2, word, |p: &Loom, w: &_| halt_and_kick(p, w, false), |_, _| {});
    assert_eq!(LoomRun::default().check(on_loom).unwrap_err().kind, FailureKind::Deadlock);
    let on_shuttle = small(2, word, |p: &Shuttle, w: &_| halt_and_kick(p, w, false), |_, _| {});
    assert_eq!(ShuttleRun::random(500).check(on_shuttle).unwrap_err().kind, FailureKind::Deadlock);
}

/// Store buffering: each CPU sets its word and looks at the other's. With full fences one of them sees the other.
fn store_buffering<P: Platform>(
    p: &P,
    s: &([P::Word; 2], [P::Cell<u64>; 2]),
    fence: bool,
    order: (Ordering, Ordering),
) {
    let me = p.cpu().index();
    p.store(&s.0[me], 1, order.0);
    if fence {
        p.fence(Ordering::SeqCst);
    }
    let other = p.load(&s.0[1 - me], order.1);
    // SAFETY: each CPU has its own cell.
    unsafe { p.write(&s.1[me], |seen| *seen = other) };
}

type Buffers<P> = ([<P as Platform>::Word; 2], [<P as Platform>::Cell<u64>; 2]);

fn buffering(fence: bool, order: (Ordering, Ordering)) -> Option<FailureKind> {
    let setup = |p: &Loom| -> Buffers<Loom> { ([word(p), word(p)], [p.cell(p.line(), 0), p.cell(p.line(), 0)]) };
    let finish = |p: &Loom, s: &Buffers<Loom>| {
        // SAFETY: the CPUs have ended.
        let seen = unsafe { p.read(&s.1[0], |v| *v) + p.read(&s.1[1], |v| *v) };
        assert!(seen > 0, "neither saw the other");
    };
    let run = move |p: &Loom, s: &Buffers<Loom>| store_buffering(p, s, fence, order);
    LoomRun::default().check(small(2, setup, run, finish)).err().map(|failure| failure.kind)
}

#[test]
fn full_fences_work_and_are_needed() {
    assert_eq!(buffering(true, (Ordering::Relaxed, Ordering::Relaxed)), None);
    assert_eq!(buffering(false, (Ordering::Release, Ordering::Acquire)), Some(FailureKind::Assertion));
}

/// Known gap: loom takes sequentially consistent accesses for acquire and release, and so rejects right code.
#[test]
fn known_gap_seqcst_accesses() {
    assert_eq!(buffering(false, (Ordering::SeqCst, Ordering::SeqCst)), Some(FailureKind::Assertion));
}

/// Known gap: where a plain store races with read-modify-writes, loom shows the latter values that no execution can: here
/// two exchanges that both miss the store and yet overwrite it. As a read-modify-write it is never missed.
#[test]
fn known_gap_store_beside_exchange() {
    type Shared = (<Loom as Platform>::Word, <Loom as Platform>::Cell<u64>);
    let missed = |plain: bool| {
        let setup = |p: &Loom| -> Shared { (word(p), p.cell(p.line(), 0)) };
        let run = move |p: &Loom, s: &Shared| {
            if p.cpu() == CpuId(0) {
                let seen = p.swap(&s.0, 0, Ordering::Relaxed) + p.swap(&s.0, 0, Ordering::Relaxed);
                // SAFETY: CPU 0's own until the end.
                unsafe { p.write(&s.1, |v| *v += seen) };
            } else if plain {
                p.store(&s.0, 1, Ordering::Relaxed);
            } else {
                p.swap(&s.0, 1, Ordering::Relaxed);
            }
        };
        let finish = |p: &Loom, s: &Shared| {
            // SAFETY: the CPUs have ended.
            let seen = unsafe { p.read(&s.1, |v| *v) };
            assert_eq!(seen + p.swap(&s.0, 0, Ordering::Relaxed), 1, "the store was missed");
        };
        LoomRun::default().check(small(2, setup, run, finish)).err().map(|failure| failure.kind)
    };
    assert_eq!(missed(false), None);
    assert_eq!(missed(true), Some(FailureKind::Assertion));
}
