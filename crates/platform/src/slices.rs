//! When a thread should give its CPU up by itself, so that it is not taken away in the middle of a critical section.
//!
//! A thread that is preempted while it holds a lock makes everybody wait for a whole round of the scheduler. A thread that
//! calls `sched_yield` where it holds nothing makes nobody wait, if it does so before its time slice is over. No system
//! call tells how much of a slice is left; but a thread that passes here now and then sees when it was away: more time has
//! gone by than it has used. So each thread knows when its present slice began.
//!
//! How long a slice may last: with n threads taking turns on c CPUs a round takes n/c slices, and whoever loses its CPU at
//! a bad moment waits a round. The slice is chosen so that a round takes `ROUND_NS`. n is counted: a number that all
//! threads of the process increase at the beginning of a slice grows by about n between two slices of one thread. Threads
//! that do not pass here (other programs, tasks that only compute) are not counted: a shorter slice of ours would not bring
//! the round to an end sooner.
//!
//! Where threads are few their slices are left to the operating system, and with no other program on the CPUs a preempted
//! holder gets its CPU back as soon as the others wait. Beside others it does not. So a thread that gets clearly less than its part of the CPUs
//! and is preempted is crowded, and lets ticks pass before it takes the lock again ([`crate::ticks`]).
//!
//! Who waits in vain while the threads are many gives its CPU up, too. If its waits are short as a rule, the holder has lost its
//! CPU, and the thread sleeps until that is over, at growing distances. It does not yield: a thread that yields early in its turn
//! may be charged for a whole slice of the operating system's (2.8 ms on Linux 6.18 with 2 CPUs; ours are a tenth of that), others that yield late are not,
//! and it stands back for many rounds. If its waits are often long, sections are, and a sleeping thread would come too late: it yields, as all the others do.
//!
//! This is the arithmetic: clocks and yielding are the world's (`native` has those of the operating system).

use crate::ticks::{Ticks, ahead};
use crate::{NEVER, Nanos, Time};
use core::cell::Cell;
use core::sync::atomic::{AtomicU64, Ordering};

/// How long a round of all threads should take: half of the longest wait that is aimed at (12 ms). A waiter may lose one
/// round when the holder is preempted in spite of all, and another when its own turn comes late.
const ROUND_NS: Nanos = 6_000_000;
/// Slices that would be longer are left to the operating system, whose own are hardly longer: with few threads a round
/// is short enough without, and a yield gives part of a slice away to whoever else wants the CPU.
const SLICE_NS_MAX: Nanos = 2_000_000;
/// Shorter slices are not worth their context switches (estimate: 1 to 2 µs each).
const SLICE_NS_MIN: Nanos = 50_000;
/// Of so many contended acquisitions one looks at the clock when it ends.
const PASSAGES_PER_LOOK: u32 = 4;
/// A thread that did not look at the clock for this long asks whether it was away.
const GAP_NS: Nanos = 40_000;
/// It was if this much more time has gone by than it has used. Interrupts take less.
const AWAY_NS: Nanos = 20_000;
/// How long a thread counts what it gets of the CPUs: a dozen slices of the operating system.
const WINDOW_NS: Nanos = 100_000_000;
/// It is crowded if it gets less than this many percent of its part. (Four threads beside two others on two CPUs get 67; one slice more or
/// less in a window is 8.)
const CROWDED_PERCENT: u64 = 80;
/// And if it is preempted at least this often. One that sleeps by itself gets little, too.
const CROWDED_PREEMPTED_NS: Nanos = 25_000_000;

/// After so many short waits a long one says that the holder has lost its CPU, or sleeps; not that sections are long.
const STALL_PASSAGES: u32 = 16;
/// The first sleep of one who waits for such a holder, in ns: as long as other programs often take a CPU for, and some context switches.
const SLEEP_NS: Nanos = 20_000;
/// Each is twice as long as the one before, so often.
const SLEEP_DOUBLINGS: u32 = 5;
/// Sleeps before the thread waits in another way: 8 ms in all.
const SLEEPS: u32 = 16;
/// Yields, where sections are long.
const YIELDS: u32 = 4;

/// What the threads of a process know of one another.
#[derive(Debug, Default)]
pub struct Rounds {
    /// Slices begun by all threads.
    slices: AtomicU64,
    /// Slices of all threads from one of a thread to its next, smoothed over the latest ones, in 1/16. Updates may get lost.
    round_x16: AtomicU64,
    /// Threads that have come here and live.
    threads: AtomicU64,
}

impl Rounds {
    /// No thread yet.
    pub const fn new() -> Self {
        Rounds { slices: AtomicU64::new(0), round_x16: AtomicU64::new(0), threads: AtomicU64::new(0) }
    }

    /// A slice begins; the thread's last one had the number `last`, 0 if there was none. Its number, and how long it may
    /// last on one of `cpus`.
    fn begin(&self, last: u64, cpus: u64) -> (u64, Nanos) {
        let number = self.slices.fetch_add(1, Ordering::Relaxed) + 1;
        if last == 0 {
            // One more thread: do not wait for a whole round with slices that are too long to find out.
            let threads = self.threads.fetch_add(1, Ordering::Relaxed) + 1;
            self.round_x16.fetch_max(16 * threads, Ordering::Relaxed);
        }
        // The length comes from others' rounds: a thread whose own was short must not be given a longer slice for it.
        let round_x16 = self.round_x16.load(Ordering::Relaxed);
        if last > 0 {
            self.round_x16.store(round_x16 - round_x16 / 16 + (number - last), Ordering::Relaxed);
        }
        let length = ROUND_NS * cpus * 16 / round_x16.max(16);
        (number, if length > SLICE_NS_MAX { NEVER } else { length.max(SLICE_NS_MIN) })
    }

    /// The thread of this slice ends.
    pub fn leave(&self, slice: &Slice) {
        if slice.number.replace(0) > 0 {
            self.threads.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// What a thread does once it has let go of a contended lock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Parting {
    /// It gives its CPU up if its slice is over.
    #[default]
    YieldIfOver,
    /// It waits, without the lock, until the tick has come that may take its CPU away.
    PassTick,
}

/// How a thread that waits lets others run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Relinquish {
    /// It gives its CPU up, and wants it back (`sched_yield`).
    Yield,
    /// It sleeps for about this long, in ns. (A Linux thread up to 50 µs longer: its timer slack, prctl(2).)
    Sleep(Nanos),
}

/// What a thread can ask of its world.
pub trait Clocks {
    /// CPUs that the threads may use.
    fn cpus(&self) -> u64;
    /// The time.
    fn now(&self) -> Time;
    /// CPU time that the thread has used so far, in ns; where it is not known, 0 makes every gap an absence.
    fn used(&self) -> Nanos;
    /// Times that it was preempted so far (involuntary context switches); 0 where it is not known.
    fn preempted(&self) -> u64;
    /// The stamp of the latest tick and then the time, both of one clock, perhaps not that of [`Clocks::now`].
    fn tick(&self) -> (Time, Time);
    /// Time between two ticks, in ns, 1 or more; [`NEVER`] where none are known.
    fn tick_period(&self) -> Nanos;
}

/// The present slice of one thread.
#[derive(Debug)]
pub struct Slice {
    /// Waits for locks.
    passages: Cell<u32>,
    /// Their number when the thread last spun in vain.
    vain: Cell<u32>,
    /// Is that wait one of many that were short?
    stalled: Cell<bool>,
    /// The last look at the clock.
    seen: Cell<Time>,
    began: Cell<Time>,
    /// CPU time that the thread had used by then.
    used: Cell<Nanos>,
    /// How long it may last; [`NEVER`]: as long as the operating system lets it.
    length: Cell<Nanos>,
    /// Its number; 0: the thread's first is to come.
    number: Cell<u64>,
    /// When the thread began to count, what it had used by then, and how often it had been preempted.
    window: Cell<(Time, Nanos, u64)>,
    /// What came of the last count, if it was not long ago.
    crowded: Cell<bool>,
    /// When the next tick is due, as far as is known.
    tick_due: Cell<Time>,
}

impl Default for Slice {
    fn default() -> Self {
        Slice::new()
    }
}

impl Slice {
    /// Of a thread that has not come here yet.
    pub const fn new() -> Self {
        Slice {
            passages: Cell::new(0),
            vain: Cell::new(0),
            stalled: Cell::new(false),
            seen: Cell::new(0),
            began: Cell::new(0),
            used: Cell::new(0),
            length: Cell::new(NEVER),
            number: Cell::new(0),
            window: Cell::new((0, 0, 0)),
            crowded: Cell::new(false),
            tick_due: Cell::new(0),
        }
    }

    /// The thread waits for a lock; true: let it ask [`Slice::parting`] when it lets go.
    #[inline]
    pub fn parting_due(&self) -> bool {
        let passages = self.passages.get().wrapping_add(1);
        self.passages.set(passages);
        passages.is_multiple_of(PASSAGES_PER_LOOK)
    }

    /// Is it for this thread to end its slices?
    #[inline]
    fn is_ours(&self) -> bool {
        self.length.get() != NEVER
    }

    /// The thread has spun in vain, for the `turn`-th time in this wait (from 0): how to let others run, if at all. Not where the
    /// operating system ends the slices: a yield gives a part of the thread's share away to whoever else wants the CPU.
    pub fn relinquish(&self, turn: u32) -> Option<Relinquish> {
        if !self.is_ours() {
            return None;
        }
        if turn == 0 {
            let short = self.passages.get().wrapping_sub(self.vain.replace(self.passages.get()));
            self.stalled.set(short >= STALL_PASSAGES);
        }
        if self.stalled.get() {
            (turn < SLEEPS).then(|| Relinquish::Sleep(SLEEP_NS << turn.min(SLEEP_DOUBLINGS)))
        } else {
            (turn < YIELDS).then_some(Relinquish::Yield)
        }
    }

    /// A slice begins.
    pub fn begin(&self, rounds: &Rounds, clocks: &impl Clocks) {
        self.begin_at(rounds, clocks, clocks.now(), clocks.used());
    }

    fn begin_at(&self, rounds: &Rounds, clocks: &impl Clocks, now: Time, used: Nanos) {
        let cpus = clocks.cpus();
        let (number, length) = rounds.begin(self.number.get(), cpus);
        self.number.set(number);
        self.length.set(length);
        self.began.set(now);
        self.used.set(used);
        self.seen.set(now);
        if now.saturating_sub(self.window.get().0) >= WINDOW_NS {
            self.count(rounds, clocks, now, used);
        }
    }

    /// Once a window: what has the thread had of its part of the CPUs?
    #[cold]
    fn count(&self, rounds: &Rounds, clocks: &impl Clocks, now: Time, used: Nanos) {
        let preempted = clocks.preempted();
        let (since, used_before, preempted_before) = self.window.replace((now, used, preempted));
        let elapsed = now - since;
        let threads = rounds.threads.load(Ordering::Relaxed).max(1);
        let part = elapsed * clocks.cpus().min(threads) / threads;
        let little = used.saturating_sub(used_before) * 100 < part * CROWDED_PERCENT;
        let often = preempted.saturating_sub(preempted_before) * CROWDED_PREEMPTED_NS >= elapsed;
        // The first window began with the clock.
        self.crowded.set(since > 0 && little && often);
    }

    /// Has the thread been off its CPU since its slice began?
    fn away(&self, now: Time, used: Nanos) -> bool {
        now.saturating_sub(self.began.get()) > used.saturating_sub(self.used.get()) + AWAY_NS
    }

    /// What to do after letting go of a lock. Asked with the lock held, so it makes no system call: a thread may lose its CPU in any.
    #[inline]
    pub fn parting(&self, ticks: &Ticks, clocks: &impl Clocks) -> Parting {
        let pass = self.crowded.get() && !self.is_ours() && self.tick_is_near(ticks, clocks);
        if pass { Parting::PassTick } else { Parting::YieldIfOver }
    }

    /// Is the slice over? If it is: yield, then [`Slice::begin`].
    #[inline]
    pub fn is_over(&self, rounds: &Rounds, clocks: &impl Clocks) -> bool {
        let now = clocks.now();
        if now.saturating_sub(self.seen.get()) > GAP_NS {
            let used = clocks.used();
            if self.number.get() == 0 || self.away(now, used) {
                self.begin_at(rounds, clocks, now, used);
            }
        }
        self.seen.set(now);
        now.saturating_sub(self.began.get()) > self.length.get()
    }

    /// Of a crowded thread.
    #[cold]
    fn tick_is_near(&self, ticks: &Ticks, clocks: &impl Clocks) -> bool {
        let now = clocks.now();
        if now.saturating_sub(self.began.get()) > WINDOW_NS {
            // Nobody has taken its CPU away for as long.
            self.crowded.set(false);
            return false;
        }
        let period = clocks.tick_period();
        if now >= self.tick_due.get() {
            self.tick_due.set(now.saturating_add(ticks.due_in(period, clocks.tick())));
        }
        self.tick_due.get() - now <= ahead(period)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A thread of one of `cpus` at a moment.
    struct At {
        cpus: u64,
        now: Time,
        used: Nanos,
        preempted: u64,
    }

    impl Clocks for At {
        fn cpus(&self) -> u64 {
            self.cpus
        }
        fn now(&self) -> Time {
            self.now
        }
        fn used(&self) -> Nanos {
            self.used
        }
        fn preempted(&self) -> u64 {
            self.preempted
        }
        /// One is always near.
        fn tick(&self) -> (Time, Time) {
            (0, 0)
        }
        fn tick_period(&self) -> Nanos {
            1
        }
    }

    fn waits(slice: &Slice, at: &At) -> bool {
        slice.parting(&Ticks::new(), at) == Parting::PassTick
    }

    /// Never preempted.
    fn at(cpus: u64, now: Time, used: Nanos) -> At {
        At { cpus, now, used, preempted: 0 }
    }

    /// `threads` on `cpus` in turn, passing every 10 µs; the operating system ends a slice after 4 ms. The length of the last
    /// slices, in ns.
    fn lengths(threads: usize, cpus: u64) -> Vec<Nanos> {
        let rounds = Rounds::new();
        let slices: Vec<Slice> = (0..threads).map(|_| Slice::new()).collect();
        let mut used = vec![0; threads];
        let (mut now, mut lengths) = (GAP_NS * 2, Vec::new());
        for turn in 0..20 * threads {
            let i = turn % threads;
            let began = now;
            loop {
                now += 10_000;
                used[i] += 10_000;
                if slices[i].is_over(&rounds, &at(cpus, now, used[i])) {
                    slices[i].begin(&rounds, &at(cpus, now, used[i]));
                    break;
                }
                if now - began >= 4_000_000 {
                    break;
                }
            }
            if turn >= 19 * threads {
                lengths.push(now - began);
            }
        }
        lengths
    }

    #[test]
    fn a_round_of_many_threads_takes_its_time() {
        for (threads, cpus) in [(64, 1), (64, 2), (20, 2)] {
            let lengths = lengths(threads, cpus);
            // All run one after another here, whatever the number of CPUs is said to be.
            let round: Nanos = lengths.iter().sum();
            let aim = ROUND_NS * cpus;
            assert!(round > aim * 9 / 10 && round < aim * 14 / 10, "{threads} threads, {cpus} CPUs: {round} ns");
        }
    }

    #[test]
    fn slices_are_ours_where_threads_are_many() {
        let ours = |threads| one_of(threads).is_ours();
        assert!(!Slice::new().is_ours() && !ours(4) && ours(8) && ours(64));
    }

    /// One of `threads` on two CPUs.
    fn one_of(threads: usize) -> Slice {
        let (rounds, slice) = (Rounds::new(), Slice::new());
        for _ in 1..threads {
            Slice::new().begin(&rounds, &at(2, 0, 0));
        }
        slice.begin(&rounds, &at(2, 0, 0));
        slice
    }

    /// What it does in one wait that goes on and on, after `short` others.
    fn relinquishes(slice: &Slice, short: u32) -> Vec<Relinquish> {
        for _ in 0..=short {
            slice.parting_due();
        }
        (0..).map_while(|turn| slice.relinquish(turn)).collect()
    }

    #[test]
    fn after_many_short_waits_a_long_one_is_slept_through_at_growing_distances() {
        let slice = one_of(64);
        let sleeps = relinquishes(&slice, STALL_PASSAGES);
        let ns: Vec<Nanos> = sleeps
            .iter()
            .map(|how| match how {
                Relinquish::Sleep(ns) => *ns,
                Relinquish::Yield => panic!("yields"),
            })
            .collect();
        assert_eq!(ns[..7], [20_000, 40_000, 80_000, 160_000, 320_000, 640_000, 640_000]);
        assert!((7_000_000..9_000_000).contains(&ns.iter().sum::<Nanos>()));
    }

    #[test]
    fn where_spinning_often_is_in_vain_threads_yield() {
        let slice = one_of(64);
        for short in [0, 3, 0, STALL_PASSAGES - 2] {
            assert_eq!(relinquishes(&slice, short), [Relinquish::Yield; YIELDS as usize], "after {short}");
        }
        assert!(matches!(relinquishes(&slice, STALL_PASSAGES)[..], [Relinquish::Sleep(_), ..]));
    }

    #[test]
    fn where_slices_are_the_systems_nobody_relinquishes_them() {
        assert_eq!(relinquishes(&one_of(4), 100), []);
        assert_eq!(relinquishes(&Slice::new(), 100), []);
    }

    #[test]
    fn few_threads_are_left_alone() {
        assert!(lengths(4, 2).iter().all(|&length| length == 4_000_000));
        assert!(lengths(1, 2).iter().all(|&length| length == 4_000_000));
    }

    #[test]
    fn a_gap_without_work_is_an_absence_and_one_with_work_is_not() {
        let (rounds, slice) = (Rounds::new(), Slice::new());
        let passes = |now, used| slice.is_over(&rounds, &at(2, now, used));
        assert!(!passes(1_000_000, 0));
        let first = slice.number.get();
        assert!(!passes(1_200_000, 200_000), "it computed");
        assert_eq!(slice.number.get(), first);
        assert!(!passes(1_400_000, 210_000), "it was away");
        assert_eq!((slice.number.get(), slice.began.get()), (first + 1, 1_400_000));
    }

    /// Is a thread crowded that gets `percent` of a CPU for a second, in pieces of 4 ms of which all but `slept` in 100 end by
    /// preemption, with `others` like it on two CPUs?
    fn crowded(percent: u64, slept: u64, others: usize) -> bool {
        let (rounds, slice) = (Rounds::new(), Slice::new());
        for _ in 0..others {
            Slice::new().begin(&rounds, &at(2, 0, 0));
        }
        let mut at = at(2, 1_000_000, 0);
        for turn in 0..10 * percent / 4 {
            slice.begin(&rounds, &at);
            at.now += 400_000_000 / percent;
            at.used += 4_000_000;
            at.preempted += u64::from(turn % 100 >= slept);
        }
        waits(&slice, &at)
    }

    #[test]
    fn who_gets_less_than_its_part_and_is_preempted_is_crowded() {
        assert!(crowded(33, 0, 3), "four threads beside two hogs");
        assert!(crowded(50, 0, 1), "two beside two");
        assert!(!crowded(50, 0, 3), "four alone");
        assert!(!crowded(98, 0, 1), "two alone");
        assert!(!crowded(33, 100, 3), "four that sleep");
    }

    #[test]
    fn who_is_not_preempted_any_more_is_not_crowded_for_long() {
        let (rounds, slice) = (Rounds::new(), Slice::new());
        let mut at = at(2, 1, 0);
        for _ in 0..100 {
            slice.begin(&rounds, &at);
            (at.now, at.used, at.preempted) = (at.now + 8_000_000, at.used + 2_000_000, at.preempted + 1);
        }
        slice.begin(&rounds, &at);
        assert!(waits(&slice, &at));
        for _ in 0..200 {
            (at.now, at.used) = (at.now + 1_000_000, at.used + 1_000_000);
            waits(&slice, &at);
        }
        assert!(!waits(&slice, &at));
    }
}
