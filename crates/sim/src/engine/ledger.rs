//! The ledger: every ns of every CPU is booked to one account, in all and over time.

use super::Engine;
use super::timeline::{Interval, Timeline, differences};
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

    /// Book every CPU up to `end` and return the accounts, CPU by CPU, and the same over time. The sum of each is exactly CPUs x `end`.
    ///
    /// A CPU that was cut off inside a stretch that ends later is booked to `end` only.
    pub fn close_ledger(&self, end: Time) -> (Vec<[Nanos; Account::COUNT]>, Timeline) {
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
            let notes = c.notes.notes(timeline.width, end);
            let mut parts = differences(&notes, std::array::from_fn(|i| c.ledger[i].get()));
            // Debt booked past the end (at most DEBT_MAX) by an account change: take it back from the last interval, from that
            // account, then from the kernel's accounts before the tasks', which come first.
            let over = c.since.replace(end) - end;
            let last = parts.last_mut().expect("the end is one");
            last.reverse();
            take_back(last, Account::COUNT - 1 - c.account.get() as usize, over);
            last.reverse();
            let sum = |i| parts.iter().map(|p: &[Nanos; Account::COUNT]| p[i]).sum::<Nanos>();
            let ledger: [Nanos; Account::COUNT] = std::array::from_fn(sum);
            assert_eq!(ledger.iter().sum::<Nanos>(), end, "{:?}: the ledger does not add up", CpuId(i as u16));
            all.push(ledger);
            let queue = differences(&self.queue_lengths[i].notes.notes(timeline.width, end), [runnable[i]]);
            let intervals = std::iter::zip(parts, queue);
            timeline.cpus.push(intervals.map(|(ledger, [runnable])| Interval { ledger, runnable }).collect());
        }
        (all, timeline)
    }
}

/// Remove `over` ns from `of`, from `first` as far as it goes: time that was booked past the end of a run.
pub(crate) fn take_back(of: &mut [Nanos], first: usize, mut over: Nanos) {
    for i in std::iter::once(first).chain(0..of.len()) {
        let n = of[i].min(over);
        of[i] -= n;
        over -= n;
    }
    debug_assert_eq!(over, 0);
}
