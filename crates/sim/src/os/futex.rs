//! Mutexes, condition variables, barriers, semaphores and plain futexes: user-space words with a queue in the kernel.
//!
//! A free mutex is taken and released in user space by one atomic operation on its line. Everything else takes the hash
//! bucket's lock. Wake-ups are collected under the lock and made after it is released (wake_q), as in Linux.

use super::object::Object;
use super::{Os, Pending};
use crate::program::{ObjId, ObjectKind};
use crate::world::World;
use contend_platform::Ordering::{AcqRel, Acquire, Relaxed};
use contend_platform::{TaskId, Time, Work};
use contend_sched::kernel::{Kernel, SyscallEnd};
use contend_sched::policy::Policy;

impl<W: World> Os<W> {
    /// pthread_mutex_lock. `fresh`: the first attempt, made in user space.
    pub(super) fn mutex_lock<L: Policy>(
        &self,
        kernel: &Kernel<W, L>,
        p: &W,
        task: TaskId,
        o: ObjId,
        fresh: bool,
    ) -> SyscallEnd {
        let ob = self.object(o);
        let me = u64::from(task.0) + 1;
        let asked = if fresh { p.now() } else { self.with(task, |t| t.asked) };
        if p.compare_exchange(&ob.word, 0, me, Acquire, Relaxed).is_ok() {
            return self.mutex_taken(p, task, ob, asked, !fresh);
        }
        if fresh {
            self.with(task, |t| t.asked = asked);
            p.charge(Work::Syscall, 1);
        }
        p.charge(Work::FutexOp, 1);
        ob.lock.lock(p);
        ob.touch(p);
        // The holder may have let go meanwhile: FUTEX_WAIT compares the word under the lock.
        let end = if p.compare_exchange(&ob.word, 0, me, Acquire, Relaxed).is_ok() {
            self.mutex_taken(p, task, ob, asked, true)
        } else {
            if !ob.waiters.borrow().contains(&task) {
                ob.waiters.borrow_mut().push_back(task);
            }
            self.block(kernel, p, task, Pending::Lock(o))
        };
        ob.lock.unlock(p);
        end
    }

    /// The task has the mutex; `contended`: it was not free at first.
    fn mutex_taken(&self, p: &W, task: TaskId, ob: &Object<W>, asked: Time, contended: bool) -> SyscallEnd {
        ob.mutex.taken(asked, p.now(), contended);
        self.done(task)
    }

    /// pthread_mutex_unlock: free the word, then wake one waiter, who tries again.
    pub(super) fn mutex_unlock<L: Policy>(&self, kernel: &Kernel<W, L>, p: &W, task: TaskId, o: ObjId) -> SyscallEnd {
        let ob = self.object(o);
        assert_eq!(ob.owner(), Some(task), "mutex {} is unlocked by a task that does not hold it", ob.name);
        ob.mutex.released(p.now());
        p.swap(&ob.word, 0, AcqRel);
        if ob.waiters.borrow().is_empty() {
            return SyscallEnd::Continue;
        }
        p.charge(Work::Syscall, 1);
        self.futex_wake(kernel, p, o, 1)
    }

    /// pthread_cond_wait: queue at the condition variable, then let go of the mutex, so that no signal is lost.
    pub(super) fn cond_wait<L: Policy>(
        &self,
        kernel: &Kernel<W, L>,
        p: &W,
        task: TaskId,
        cond: ObjId,
        mutex: ObjId,
    ) -> SyscallEnd {
        self.with(task, |t| t.woken = false);
        let end = self.futex_wait(kernel, p, task, cond, Pending::Cond(cond, mutex));
        self.mutex_unlock(kernel, p, task, mutex);
        end
    }

    /// Sleep at an object until [`Os::futex_wake`] takes the task off its queue.
    pub(super) fn futex_wait<L: Policy>(
        &self,
        kernel: &Kernel<W, L>,
        p: &W,
        task: TaskId,
        o: ObjId,
        pending: Pending,
    ) -> SyscallEnd {
        p.charge(Work::FutexOp, 1);
        let ob = self.object(o);
        ob.lock.lock(p);
        ob.touch(p);
        let queued = ob.waiters.borrow().contains(&task);
        if !queued {
            self.with(task, |t| t.woken = false);
            ob.waiters.borrow_mut().push_back(task);
        }
        let end = self.block(kernel, p, task, pending);
        ob.lock.unlock(p);
        end
    }

    /// Wake up to `n` sleepers, first come first served.
    pub(super) fn futex_wake<L: Policy>(&self, kernel: &Kernel<W, L>, p: &W, o: ObjId, n: u32) -> SyscallEnd {
        p.charge(Work::FutexOp, 1);
        let ob = self.object(o);
        ob.lock.lock(p);
        ob.touch(p);
        let woken = self.take(o, n);
        ob.lock.unlock(p);
        self.wake_all(kernel, p, woken, 0);
        SyscallEnd::Continue
    }

    /// Take up to `n` sleepers off an object's queue.
    fn take(&self, o: ObjId, n: u32) -> Vec<TaskId> {
        let mut waiters = self.object(o).waiters.borrow_mut();
        let n = (n as usize).min(waiters.len());
        let woken: Vec<TaskId> = waiters.drain(..n).collect();
        for &t in &woken {
            self.with(t, |t| t.woken = true);
        }
        woken
    }

    pub(super) fn wake_all<L: Policy>(&self, kernel: &Kernel<W, L>, p: &W, tasks: Vec<TaskId>, flags: u64) {
        for task in tasks {
            self.wake(kernel, p, task, flags);
        }
    }

    pub(super) fn barrier<L: Policy>(&self, kernel: &Kernel<W, L>, p: &W, task: TaskId, o: ObjId) -> SyscallEnd {
        p.charge(Work::FutexOp, 1);
        let ob = self.object(o);
        let ObjectKind::Barrier { parties } = ob.kind else { panic!("{} is not a barrier", ob.name) };
        ob.lock.lock(p);
        ob.touch(p);
        ob.level.set(ob.level.get() + 1);
        let generation = ob.generation.get();
        if ob.level.get() < u64::from(parties) {
            ob.waiters.borrow_mut().push_back(task);
            let end = self.block(kernel, p, task, Pending::Barrier(o, generation));
            ob.lock.unlock(p);
            return end;
        }
        ob.level.set(0);
        ob.generation.set(generation + 1);
        let woken = self.take(o, u32::MAX);
        ob.lock.unlock(p);
        self.wake_all(kernel, p, woken, 0);
        self.done(task)
    }

    /// A task at a barrier runs again: has its generation passed?
    pub(super) fn barrier_check<L: Policy>(
        &self,
        kernel: &Kernel<W, L>,
        p: &W,
        task: TaskId,
        o: ObjId,
        generation: u64,
    ) -> SyscallEnd {
        if self.object(o).generation.get() > generation {
            return self.done(task);
        }
        self.block(kernel, p, task, Pending::Barrier(o, generation))
    }

    pub(super) fn sem_wait<L: Policy>(&self, kernel: &Kernel<W, L>, p: &W, task: TaskId, o: ObjId) -> SyscallEnd {
        p.charge(Work::FutexOp, 1);
        let ob = self.object(o);
        ob.lock.lock(p);
        ob.touch(p);
        let end = if ob.level.get() > 0 {
            ob.level.set(ob.level.get() - 1);
            self.done(task)
        } else {
            if !ob.waiters.borrow().contains(&task) {
                ob.waiters.borrow_mut().push_back(task);
            }
            self.block(kernel, p, task, Pending::Sem(o))
        };
        ob.lock.unlock(p);
        end
    }

    pub(super) fn sem_post<L: Policy>(&self, kernel: &Kernel<W, L>, p: &W, o: ObjId, n: u32, flags: u64) -> SyscallEnd {
        p.charge(Work::FutexOp, 1);
        let ob = self.object(o);
        ob.lock.lock(p);
        ob.touch(p);
        ob.level.set(ob.level.get() + u64::from(n));
        let woken = self.take(o, n);
        ob.lock.unlock(p);
        self.wake_all(kernel, p, woken, flags);
        SyscallEnd::Continue
    }
}
