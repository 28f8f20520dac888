//! Shared memory: visible accesses, waiting on lines, waking who waits.

use super::{Engine, Mode};
use crate::lines::{Cost, Touch};
use crate::queue::key;
use contend_platform::{CpuId, Nanos, Time};

impl Engine {
    /// A fresh cache line.
    pub fn create_line(&self) -> u32 {
        self.lines.create()
    }

    /// A visible access: settle, pay, return when it takes effect.
    #[inline]
    pub fn access(&self, line: u32, how: Touch) {
        self.settle();
        self.touch(line, how);
    }

    /// What a fence takes that waits for earlier stores, in ns: as long as an exchange of a line that is there.
    #[inline]
    pub fn fence_cost(&self) -> Nanos {
        self.costs.atomic
    }

    /// Access to data that a lock guards: no settling point unless the line must move.
    #[inline]
    pub fn touch(&self, line: u32, how: Touch) {
        if self.lines.holds(line, self.current.get(), how) {
            let cost = if how == Touch::Rmw { self.costs.atomic } else { self.costs.hit };
            self.debt.set(self.debt.get() + cost);
        } else {
            self.transfer(line, how);
        }
    }

    /// The line must move, or is shared.
    #[inline(never)]
    fn transfer(&self, line: u32, how: Touch) {
        match self.lines.touch(&self.machine.topology, line, self.current.get(), self.now(), how) {
            Cost::Hit(ns) => self.debt.set(self.debt.get() + ns),
            Cost::Until(time) => {
                if !self.advances_to(time) {
                    self.suspend(key(time, self.current.get()), Mode::Kernel);
                }
            }
        }
    }

    /// Independent loads: their transfers overlap, each on its own line.
    pub fn access_many<const N: usize>(&self, lines: [u32; N]) {
        self.settle();
        let now = self.now.get();
        let (hits, done) = self.lines.load_many(&self.machine.topology, &lines, self.current.get(), now);
        if done > now {
            self.advance_to(done);
        }
        self.debt.set(self.debt.get() + hits);
    }

    /// Loads of `lines`, each as [`Engine::touch`]: at once if all are there, and false if not.
    pub fn touch_copies<const N: usize>(&self, lines: [u32; N]) -> bool {
        let there = self.lines.has_copies(&lines, self.current.get());
        if there {
            self.debt.set(self.debt.get() + self.costs.hit * N as Nanos);
        }
        there
    }

    /// The value of a word on `line` has changed: CPUs that wait on the line look again.
    ///
    /// The store was complete when the farthest copy was gone, and by then the requests of all that poll were under way,
    /// those of near CPUs ahead: with [`Engine::near_first`] they are served by distance from the writer, else by CPU number.
    #[inline]
    pub fn changed(&self, line: u32) {
        if self.lines.is_watched(line) {
            self.wake_watchers(line);
        }
    }

    #[cold]
    fn wake_watchers(&self, line: u32) {
        let list = self.lines.take_watchers(line);
        let now = self.now();
        let (near_first, writer) = (self.near_first.get(), self.current.get());
        for cpu in list {
            let c = self.cpu(cpu);
            match c.mode.get() {
                // It pays its own transfer when it looks.
                Mode::Waiting | Mode::Spinning | Mode::Idle => {
                    let at = self.queue.get(cpu);
                    // A nanosecond a class of distance: enough for the order, too short to matter otherwise.
                    let after = if near_first { self.topology().distance(writer, cpu) as Time } else { 0 };
                    self.set_key(cpu, at.min(key(now + after, cpu)));
                }
                // It has been woken by something else and has not run yet.
                Mode::Kernel | Mode::User | Mode::Running => {}
            }
        }
    }

    /// Sleep on `lines` until one changes or `deadline` passes. Spurious returns are allowed.
    pub fn wait_on(&self, lines: &[u32], deadline: Time, waits_for: u64) {
        let cpu = self.current.get();
        lines.iter().for_each(|l| self.lines.watch(*l, cpu));
        self.cpu(cpu).waits_for.set(waits_for);
        self.suspend(key(deadline, cpu), Mode::Waiting);
        self.cpu(cpu).waits_for.set(0);
        lines.iter().for_each(|l| self.lines.unwatch(*l, cpu));
    }

    /// CPUs that spin, and on what, for the deadlock report.
    pub fn waiting(&self) -> Vec<(CpuId, u64)> {
        (0..self.cpus.len())
            .filter(|&i| self.cpus[i].mode.get() == Mode::Waiting)
            .map(|i| (CpuId(i as u16), self.cpus[i].waits_for.get()))
            .collect()
    }
}
