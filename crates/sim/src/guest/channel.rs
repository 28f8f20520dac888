//! A ring of requests that two domains share, and the event channel between its ends.
//!
//! The front end (a network driver in a guest) puts requests in, the back end (dom0) takes them and answers. Who finds
//! nothing to do asks to be told: it writes up to where the other side may go on in silence, looks once more, and sleeps; the other
//! side sends an event when it passes that point. So a busy ring sends none. The four indices lie on one line, as in the first page
//! of a shared ring (public Xen interface; general knowledge, not checked).

use super::state::VcpuState;
use crate::program::RingEnd;
use crate::world::SimWord;
use contend_platform::{CpuId, Platform};
use std::cell::{Cell, OnceCell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

/// Slots of a ring: a page of them (public Xen interface; general knowledge, not checked).
pub(crate) const SLOTS: u64 = 256;
/// Bytes of a page, as many as a slot grants.
const PAGE: u32 = 4096;

/// What the front end has sent.
#[derive(Clone, Copy, Debug)]
pub struct Packet {
    pub(crate) bytes: u32,
    /// The physical CPU whose caches hold it.
    pub(crate) from: CpuId,
}

impl Packet {
    /// A slot a page, and one for the header.
    pub(crate) fn slots(bytes: u32) -> u64 {
        u64::from(bytes.div_ceil(PAGE)) + 1
    }
}

/// One end.
struct End {
    /// 1: an event has come and no handler has taken it.
    pending: SimWord,
    /// The virtual CPU that events interrupt.
    port: OnceCell<Rc<VcpuState>>,
}

/// A shared ring.
pub struct Channel {
    pub(crate) number: u32,
    /// Slots that the front end has filled so far, and up to where it need not tell.
    pub(crate) req_prod: SimWord,
    pub(crate) req_event: SimWord,
    /// Slots that the back end has answered, and up to where it need not tell.
    pub(crate) rsp_prod: SimWord,
    pub(crate) rsp_event: SimWord,
    /// The requests between `taken` and `req_prod`.
    pub(crate) requests: RefCell<VecDeque<Packet>>,
    /// Slots that the back end has taken.
    pub(crate) taken: Cell<u64>,
    ends: [End; 2],
}

impl Channel {
    pub(crate) fn new(p: &impl Platform<Word = SimWord>, number: u32) -> Self {
        let page = p.line();
        // The pending bits lie in what each domain shares with the hypervisor.
        let end = || End { pending: p.word(p.line(), 0), port: OnceCell::new() };
        Channel {
            number,
            req_prod: p.word(page, 0),
            req_event: p.word(page, 1),
            rsp_prod: p.word(page, 0),
            rsp_event: p.word(page, 1),
            requests: RefCell::default(),
            taken: Cell::new(0),
            ends: [end(), end()],
        }
    }

    /// Events for `end` interrupt `vcpu`.
    pub(crate) fn bind(&self, end: RingEnd, vcpu: &Rc<VcpuState>) {
        let bound = self.ends[end as usize].port.set(Rc::clone(vcpu));
        assert!(bound.is_ok(), "channel {} has two {} ends", self.number, end.name());
    }
    /// The virtual CPU that events for `end` interrupt.
    pub(crate) fn port(&self, end: RingEnd) -> &Rc<VcpuState> {
        let port = self.ends[end as usize].port.get();
        port.unwrap_or_else(|| panic!("channel {} has no {} end", self.number, end.name()))
    }
    pub(crate) fn pending(&self, end: RingEnd) -> &SimWord {
        &self.ends[end as usize].pending
    }
}
