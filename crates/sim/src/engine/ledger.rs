//! The ledger: every ns of every CPU is booked to one account.

use super::Engine;
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
        let since = c.since.replace(until);
        let booked = &c.ledger[account as usize];
        booked.set(booked.get() + until - since);
    }

    /// Book every CPU up to `end` and return the accounts, CPU by CPU. The sum is exactly CPUs x `end`.
    ///
    /// A CPU that was cut off inside a stretch that ends later is booked to `end` only.
    pub fn close_ledger(&self, end: Time) -> Vec<[Nanos; Account::COUNT]> {
        let mut all = Vec::with_capacity(self.cpus.len());
        for (i, c) in self.cpus.iter().enumerate() {
            let cpu = CpuId(i as u16);
            let mut l: [Nanos; Account::COUNT];
            if c.since.get() <= end {
                self.book(cpu, c.account.get(), end);
                l = std::array::from_fn(|i| c.ledger[i].get());
            } else {
                // Debt booked past the end (at most DEBT_MAX) by an account change: take it back from that account.
                let over = c.since.replace(end) - end;
                l = std::array::from_fn(|i| c.ledger[i].get());
                take_back(&mut l, c.account.get() as usize, over);
            }
            assert_eq!(l.iter().sum::<Nanos>(), end, "{cpu:?}: the ledger does not add up");
            all.push(l);
        }
        all
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
