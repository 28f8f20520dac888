//! The two ends of a ring that domains share ([`crate::guest::Channel`]): netfront in a guest, netback in dom0.
//!
//! A sender copies its bytes into its kernel, and puts them into the ring under the queue's lock; it sleeps while the ring is full. The
//! back end's thread takes one packet at a time, has the hypervisor copy it, and answers. Events interrupt the virtual CPU
//! that the end is bound to, whose handler wakes who sleeps there. Ordering: data before index, request for an event before the
//! last look.

use super::{Os, Pending};
use crate::guest::{Channel, Packet, SLOTS};
use crate::program::{ObjId, ObjectKind, RingEnd};
use crate::world::World;
use contend_platform::Ordering::{AcqRel, Acquire, SeqCst};
use contend_platform::{TaskId, Work};
use contend_sched::kernel::{Kernel, SyscallEnd};
use contend_sched::policy::Policy;

impl<W: World> Os<W> {
    fn ring(&self, o: ObjId, end: RingEnd) -> &Channel {
        let ob = self.object(o);
        match &ob.kind {
            ObjectKind::Ring { end: found, .. } if *found == end => {
                ob.channel.as_deref().expect("made with the object")
            }
            other => panic!("{} is a {other:?}, not the {} end of a ring", ob.name, end.name()),
        }
    }

    pub(super) fn is_ring(&self, o: ObjId) -> bool {
        matches!(self.object(o).kind, ObjectKind::Ring { .. })
    }

    /// The front end sends `bytes` as one packet.
    pub(super) fn ring_send<L: Policy>(
        &self,
        kernel: &Kernel<W, L>,
        p: &W,
        task: TaskId,
        o: ObjId,
        bytes: u32,
    ) -> SyscallEnd {
        let ring = self.ring(o, RingEnd::Front);
        let ob = self.object(o);
        if self.with(task, |t| t.pending) == Pending::Nothing {
            p.charge(Work::SocketOp, 1);
            self.copy(p, bytes.into());
        }
        let slots = Packet::slots(bytes);
        ob.lock.lock(p);
        ob.touch(p);
        self.leave(&ob.writers, task);
        let sent = ring.req_prod.observe();
        let mut asked = None;
        let room = loop {
            let under_way = sent - p.load(&ring.rsp_prod, Acquire);
            if SLOTS - under_way >= slots {
                break true;
            }
            // Told when half of what is under way has been answered.
            let event = sent - under_way + under_way / 2 + 1;
            if asked == Some(event) {
                break false;
            }
            p.store(&ring.rsp_event, event, SeqCst);
            asked = Some(event);
        };
        if !room {
            ob.writers.borrow_mut().push_back(task);
            let end = self.block(kernel, p, task, Pending::Write(o, bytes));
            ob.lock.unlock(p);
            return end;
        }
        ring.requests.borrow_mut().push_back(Packet { bytes, from: p.physical_cpu() });
        p.store(&ring.req_prod, sent + slots, SeqCst);
        let event = p.load(&ring.req_event, Acquire);
        ob.lock.unlock(p);
        if (sent + 1..=sent + slots).contains(&event) {
            p.notify(ring, RingEnd::Back);
        }
        self.done(task)
    }

    /// The back end takes one packet.
    pub(super) fn ring_take<L: Policy>(&self, kernel: &Kernel<W, L>, p: &W, task: TaskId, o: ObjId) -> SyscallEnd {
        let ring = self.ring(o, RingEnd::Back);
        let ob = self.object(o);
        ob.lock.lock(p);
        ob.touch(p);
        self.leave(&ob.waiters, task);
        let taken = ring.taken.get();
        let mut asked = false;
        let found = loop {
            if p.load(&ring.req_prod, Acquire) > taken {
                break true;
            }
            if asked {
                break false;
            }
            p.store(&ring.req_event, taken + 1, SeqCst);
            asked = true;
        };
        if !found {
            ob.waiters.borrow_mut().push_back(task);
            let end = self.block(kernel, p, task, Pending::Read(o, 0));
            ob.lock.unlock(p);
            return end;
        }
        let packet = ring.requests.borrow_mut().pop_front().expect("the index says so");
        let slots = Packet::slots(packet.bytes);
        ring.taken.set(taken + slots);
        ob.lock.unlock(p);
        p.grant_copy(packet);
        let answered = ring.rsp_prod.observe();
        p.store(&ring.rsp_prod, answered + slots, SeqCst);
        let event = p.load(&ring.rsp_event, Acquire);
        if (answered + 1..=answered + slots).contains(&event) {
            p.notify(ring, RingEnd::Front);
        }
        self.done(task)
    }

    /// The handler of events, on the virtual CPU that they are bound to.
    pub(super) fn ring_events<L: Policy>(&self, kernel: &Kernel<W, L>, p: &W) {
        for &o in &self.rings {
            let ob = self.object(o);
            let (Some(ring), ObjectKind::Ring { end, .. }) = (&ob.channel, &ob.kind) else { continue };
            if ring.port(*end).number != p.cpu() || p.swap(ring.pending(*end), 0, AcqRel) == 0 {
                continue;
            }
            ob.lock.lock(p);
            ob.touch(p);
            self.wake_all(kernel, p, ob.waiters.take().into(), 0);
            self.wake_all(kernel, p, ob.writers.take().into(), 0);
            ob.lock.unlock(p);
        }
    }
}
