//! Shared memory: visible accesses, waiting on lines, waking who waits.

use super::{Engine, Mode, RIGHTS};
use crate::lines::{Cost, Touch};
use crate::queue::key;
use contend_platform::{CpuId, Time};

impl Engine {
    /// A fresh cache line.
    pub fn create_line(&self) -> u32 {
        self.lines.borrow_mut().create()
    }

    /// A visible access: settle, pay, return when it takes effect.
    #[inline]
    pub fn access(&self, line: u32, how: Touch) {
        self.settle();
        self.touch(line, how);
    }

    /// Access to data that a lock guards: no settling point unless the line must move.
    #[inline]
    pub fn touch(&self, line: u32, how: Touch) {
        // Rights that the running CPU was seen to have since it was resumed are still its own: nobody else has run.
        let seen = self.rights[line as usize % RIGHTS].get();
        let exclusive = Self::right(self.resumed.get(), line);
        if seen == exclusive || (how == Touch::Read && seen == exclusive - 1) {
            let cost = if how == Touch::Rmw { self.costs.atomic } else { self.costs.hit };
            self.debt.set(self.debt.get() + cost);
            return;
        }
        self.touch_line(line, how);
    }

    /// What `rights` holds for a line that this CPU may write; minus 1: only read.
    #[inline]
    fn right(resumed: u64, line: u32) -> u64 {
        resumed << 33 | u64::from(line) << 1 | 1
    }

    fn touch_line(&self, line: u32, how: Touch) {
        if !self.lines.borrow().holds(line, self.current.get(), how) {
            return self.transfer(line, how);
        }
        let cost = if how == Touch::Rmw { self.costs.atomic } else { self.costs.hit };
        self.debt.set(self.debt.get() + cost);
        let right = Self::right(self.resumed.get(), line);
        self.rights[line as usize % RIGHTS].set(if how == Touch::Read { right - 1 } else { right });
    }

    /// The line must move, or is shared. No right is noted: a transfer may let others run.
    #[cold]
    fn transfer(&self, line: u32, how: Touch) {
        let cost = {
            let mut lines = self.lines.borrow_mut();
            lines.touch(&self.machine.topology, line, self.current.get(), self.now(), how)
        };
        match cost {
            Cost::Hit(ns) => self.debt.set(self.debt.get() + ns),
            Cost::Until(time) => self.advance_to(time),
        }
    }

    /// Independent loads: their transfers overlap, each on its own line.
    pub fn access_many<const N: usize>(&self, lines: [u32; N]) {
        self.settle();
        let now = self.now.get();
        let (mut hits, mut done) = (0, now);
        {
            let mut all = self.lines.borrow_mut();
            for line in lines {
                match all.touch(&self.machine.topology, line, self.current.get(), now, Touch::Read) {
                    Cost::Hit(ns) => hits += ns,
                    Cost::Until(time) => done = done.max(time),
                }
            }
        }
        if done > now {
            self.advance_to(done);
        }
        self.debt.set(self.debt.get() + hits);
    }

    /// The value of a word on `line` has changed: CPUs that wait on the line look again.
    #[inline]
    pub fn changed(&self, line: u32) {
        if self.lines.borrow().is_watched(line) {
            self.wake_watchers(line);
        }
    }

    fn wake_watchers(&self, line: u32) {
        let list = self.lines.borrow_mut().take_watchers(line);
        let now = self.now();
        for cpu in list {
            let c = self.cpu(cpu);
            match c.mode.get() {
                // It pays its own transfer when it looks.
                Mode::Waiting | Mode::Idle => {
                    let at = self.queue.borrow().get(cpu);
                    self.set_key(cpu, at.min(key(now, cpu)));
                }
                // It has been woken by something else and has not run yet.
                Mode::Kernel | Mode::User | Mode::Running => {}
            }
        }
    }

    /// Sleep on `lines` until one changes or `deadline` passes. Spurious returns are allowed.
    pub fn wait_on(&self, lines: &[u32], deadline: Time, waits_for: u64) {
        let cpu = self.current.get();
        {
            let mut all = self.lines.borrow_mut();
            lines.iter().for_each(|l| all.watch(*l, cpu));
        }
        self.cpu(cpu).waits_for.set(waits_for);
        self.suspend(key(deadline, cpu), Mode::Waiting);
        self.cpu(cpu).waits_for.set(0);
        let mut all = self.lines.borrow_mut();
        lines.iter().for_each(|l| all.unwatch(*l, cpu));
    }

    /// CPUs that spin, and on what, for the deadlock report.
    pub fn waiting(&self) -> Vec<(CpuId, u64)> {
        (0..self.cpus.len())
            .filter(|&i| self.cpus[i].mode.get() == Mode::Waiting)
            .map(|i| (CpuId(i as u16), self.cpus[i].waits_for.get()))
            .collect()
    }
}
