//! The ledger: every ns of every CPU is booked to one account, in all and over time.

use super::timeline::{Interval, Timeline, differences};
use super::{Cpu, Engine, take_back};
use contend_platform::{Account, CpuId, Nanos, Time};

impl Engine {
    /// Book the running CPU's time to `account` from now on.
    #[inline]
    pub fn enter(&self, account: Account) -> Account {
        let cpu = self.current.get();
        let c = self.cpu(cpu);
        let old = c.account.replace(account);
        if old != account {
            self.book(cpu, old, self.now());
        }
        old
    }

    #[inline]
    fn book(&self, cpu: CpuId, account: Account, until: Time) {
        let c = self.cpu(cpu);
        if c.notes.crosses(until) {
            self.cross(cpu, account, until);
        }
        let since = c.since.replace(until);
        self.recent.note(since, account as usize);
        let booked = &c.ledger[account as usize];
        booked.set(booked.get() + until - since);
    }

    /// The stretch about to be booked spans borders of intervals.
    #[cold]
    #[inline(never)]
    fn cross(&self, cpu: CpuId, account: Account, until: Time) {
        let c = self.cpu(cpu);
        c.notes.cross(&c.ledger, account as usize, 1, c.since.get(), until);
    }

    /// `cpu` has `n` runnable tasks from now on. Booked at the time of the last event, which never goes back and is at most
    /// what may be owed before the caller's: CPUs look at each other's queues.
    #[inline]
    pub fn queue_length(&self, cpu: CpuId, n: u32) {
        self.queue_lengths[cpu.index()].set(n, self.now.get());
    }

    /// Keep what the running CPU, `c`, has booked past the last event, for [`Engine::close_ledger`].
    pub(super) fn keep_ahead(&self, c: &Cpu) {
        let mut ahead = c.ahead.borrow_mut();
        ahead.clear();
        for stretch in self.recent.latest_first() {
            ahead.push(stretch);
            if stretch.0 <= self.now.get() {
                break;
            }
        }
    }

    /// The accounts up to `end`, CPU by CPU, and the same over time. The sum of each is exactly CPUs x `end`.
    ///
    /// A CPU that was cut off inside a stretch that ends later is booked to `end` only, and one that has booked past the
    /// end is taken back to there: see [`super::recent`].
    pub fn close_ledger(&self, end: Time) -> (Vec<[Nanos; Account::COUNT]>, Timeline) {
        // It has not given way if it panicked.
        self.keep_ahead(self.cpu(self.current.get()));
        for (i, c) in self.cpus.iter().enumerate() {
            let cpu = CpuId(i as u16);
            if c.since.get() <= end {
                self.book(cpu, c.account.get(), end);
            }
        }
        let runnable: Vec<Nanos> = self.queue_lengths.iter().map(|q| q.close(end)).collect();
        let widths =
            self.cpus.iter().map(|c| c.notes.width()).chain(self.queue_lengths.iter().map(|q| q.notes.width()));
        let mut timeline = Timeline { width: widths.max().unwrap_or(1), ..Timeline::default() };
        let mut all = Vec::with_capacity(self.cpus.len());
        for (i, c) in self.cpus.iter().enumerate() {
            let mut ledger: [Nanos; Account::COUNT] = std::array::from_fn(|i| c.ledger[i].get());
            take_back(&mut ledger, c.ahead.borrow().iter().copied(), c.since.get(), end);
            if ledger.iter().sum::<Nanos>() != end {
                self.doubts.borrow_mut().push(format!("the ledger of CPU {i} does not sum to {end} ns: {ledger:?}"));
            }
            let parts = differences(&c.notes.notes(timeline.width, end), ledger);
            all.push(ledger);
            let queue = differences(&self.queue_lengths[i].notes.notes(timeline.width, end), [runnable[i]]);
            let intervals = std::iter::zip(parts, queue);
            timeline.cpus.push(intervals.map(|(ledger, [runnable])| Interval { ledger, runnable }).collect());
        }
        (all, timeline)
    }
}
