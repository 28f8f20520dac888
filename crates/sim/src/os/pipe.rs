//! Pipes and local sockets: bytes with a wait queue at either end.
//!
//! As in Linux the reader that a write wakes is woken synchronously (WF_SYNC: the writer is expected to sleep soon) and
//! exclusively: the walk over the queue stops after the first wake-up that reports success. With Rowand's patch a queued
//! wake-up reports failure, and the walk wakes everybody: a result here.

use super::{Os, Pending};
use crate::program::{ObjId, ObjectKind};
use crate::world::World;
use contend_platform::{Account, CpuId, TaskId, Work};
use contend_sched::kernel::{Kernel, SyscallEnd};
use contend_sched::policy::Policy;
use contend_sched::wakeup::flags;
use std::cell::RefCell;
use std::collections::VecDeque;

/// Bytes of a page.
const PAGE: u64 = 4096;

impl<W: World> Os<W> {
    pub(super) fn copy(&self, p: &W, bytes: u64) {
        let ns = (p.work_cost(Work::CopyKib) * bytes).div_ceil(1024);
        p.charge(Work::Ns, ns);
    }

    /// Copy bytes that `writer` wrote: they come out of its caches.
    fn copy_from(&self, p: &W, writer: CpuId, bytes: u64) {
        self.copy(p, bytes);
        let ns = (p.refill_cost(writer, p.cpu()) * bytes).div_ceil(1024);
        if ns > 0 {
            let before = p.enter(Account::ColdCache);
            p.owe_latency(ns);
            p.enter(before);
        }
    }

    /// A socket's state comes from the CPU that worked on it last.
    fn fetch_state(&self, p: &W, o: ObjId) {
        let ob = self.object(o);
        if let ObjectKind::Socket { lines, .. } | ObjectKind::Inbox { lines, .. } = ob.kind {
            Self::fetch_lines(p, ob, lines);
        }
    }

    fn is_socket(&self, o: ObjId) -> bool {
        matches!(self.object(o).kind, ObjectKind::Socket { .. } | ObjectKind::Inbox { .. })
    }

    fn transfer_cost(&self, p: &W, o: ObjId) {
        p.charge(if self.is_socket(o) { Work::SocketOp } else { Work::PipeOp }, 1);
    }

    fn capacity(&self, o: ObjId) -> u64 {
        match self.object(o).kind {
            ObjectKind::Pipe { capacity }
            | ObjectKind::Socket { capacity, .. }
            | ObjectKind::Inbox { capacity, .. } => u64::from(capacity),
            ref other => panic!("{} is a {other:?}, not a pipe or socket", self.object(o).name),
        }
    }

    pub(super) fn pipe_write<L: Policy>(
        &self,
        kernel: &Kernel<W, L>,
        p: &W,
        task: TaskId,
        o: ObjId,
        bytes: u32,
    ) -> SyscallEnd {
        self.transfer_cost(p, o);
        let capacity = self.capacity(o);
        let ob = self.object(o);
        // A socket's sender fills its buffer before it takes the queue's lock; a pipe is filled under it.
        let filled = self.is_socket(o) && u64::from(bytes) <= capacity - ob.level.get();
        // An inbox is handed its bytes.
        let copied = !matches!(ob.kind, ObjectKind::Inbox { .. });
        if filled && copied {
            self.copy(p, bytes.into());
        }
        ob.lock.lock(p);
        ob.touch(p);
        self.fetch_state(p, o);
        self.leave(&ob.writers, task);
        let free = capacity - ob.level.get();
        // A write that fits the buffer at all goes in whole (PIPE_BUF); a larger one in parts.
        let n = if u64::from(bytes) <= capacity && u64::from(bytes) > free { 0 } else { u64::from(bytes).min(free) };
        if n > 0 {
            if !filled && copied {
                self.copy(p, n);
            }
            ob.writer.set(p.cpu());
            ob.level.set(ob.level.get() + n);
            self.wake_queue(kernel, p, &ob.waiters);
        }
        let left = bytes - n as u32;
        let end = if left == 0 {
            self.done(task)
        } else {
            ob.writers.borrow_mut().push_back(task);
            self.block(kernel, p, task, Pending::Write(o, left))
        };
        ob.lock.unlock(p);
        end
    }

    pub(super) fn pipe_read<L: Policy>(
        &self,
        kernel: &Kernel<W, L>,
        p: &W,
        task: TaskId,
        o: ObjId,
        bytes: u32,
    ) -> SyscallEnd {
        self.transfer_cost(p, o);
        let ob = self.object(o);
        ob.lock.lock(p);
        ob.touch(p);
        self.fetch_state(p, o);
        self.leave(&ob.waiters, task);
        let n = u64::from(bytes).min(ob.level.get());
        let writer = ob.writer.get();
        if n > 0 {
            if !self.is_socket(o) {
                self.copy_from(p, writer, n);
            }
            ob.level.set(ob.level.get() - n);
            if self.wakes_writers(o, n) {
                match ob.kind {
                    // Senders that wait for room in a socket do not wait exclusively: all are woken.
                    ObjectKind::Socket { .. } | ObjectKind::Inbox { .. } => {
                        self.wake_all(kernel, p, ob.writers.take().into(), flags::SYNC)
                    }
                    _ => self.wake_queue(kernel, p, &ob.writers),
                }
            }
            if ob.level.get() > 0 {
                // More than one reader may have something to read.
                self.wake_queue(kernel, p, &ob.waiters);
            }
        }
        let left = bytes - n as u32;
        let end = if left == 0 {
            self.done(task)
        } else {
            ob.waiters.borrow_mut().push_back(task);
            self.block(kernel, p, task, Pending::Read(o, left))
        };
        ob.lock.unlock(p);
        // A socket's receiver has taken the buffers off the queue, and empties them outside.
        if n > 0 && self.is_socket(o) {
            self.copy_from(p, writer, n);
        }
        end
    }

    /// After `n` bytes were read: is there enough room to wake a writer? A pipe frees whole pages, and wakes one writer a
    /// page; a local socket wakes writers once it is at most a quarter full (unix_writable).
    fn wakes_writers(&self, o: ObjId, n: u64) -> bool {
        let ob = self.object(o);
        if ob.writers.borrow().is_empty() {
            return false;
        }
        match ob.kind {
            ObjectKind::Socket { capacity, .. } | ObjectKind::Inbox { capacity, .. } => {
                ob.level.get() <= u64::from(capacity) / 4
            }
            _ => {
                ob.freed.set(ob.freed.get() + n);
                let page = ob.freed.get() >= PAGE || ob.level.get() == 0;
                if page {
                    ob.freed.set(0);
                }
                page
            }
        }
    }

    /// finish_wait: a task that was woken without being taken off the queue takes itself off.
    pub(super) fn leave(&self, queue: &RefCell<VecDeque<TaskId>>, task: TaskId) {
        let mut q = queue.borrow_mut();
        if let Some(at) = q.iter().position(|t| *t == task) {
            q.remove(at);
        }
    }

    /// Wake one exclusive waiter: the first whose wake-up reports success leaves the queue, and the walk ends.
    fn wake_queue<L: Policy>(&self, kernel: &Kernel<W, L>, p: &W, queue: &RefCell<VecDeque<TaskId>>) {
        if queue.borrow().is_empty() {
            return;
        }
        let mut i = 0;
        loop {
            let Some(task) = queue.borrow().get(i).copied() else { return };
            if self.wake(kernel, p, task, flags::SYNC) {
                self.leave(queue, task);
                return;
            }
            i += 1;
        }
    }
}
