//! Barriers of user space, from the calls of `futex` for them.
//!
//! Who comes to a barrier of a C library, of OpenMP, or of a mutex and a condition variable, waits on a word (`FUTEX_WAIT`). Who comes last
//! wakes all (`FUTEX_WAKE`, as many as there are). Waits that ended so are marked with the word's number, and so are the wake-ups. What
//! else wakes all, a writer that lets readers in, is marked, too: `model::barriers` tells it apart, which sees all of it.

use contend_trace::event::futex;
use rustc_hash::FxHashMap;

/// The call of futex that a task is in.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Call {
    /// It waits on the word at this address.
    Wait(u64),
    /// It wakes all who do; a step says so already (`true`).
    WakeAll(u64, bool),
}

impl Call {
    /// What this call is, if it can be one of a barrier.
    pub fn of(uaddr: u64, op: u32, val: u32) -> Option<Self> {
        match (futex::command(op), val) {
            (futex::WAIT | futex::WAIT_BITSET, _) => Some(Call::Wait(uaddr)),
            (futex::WAKE, futex::ALL) => Some(Call::WakeAll(uaddr, false)),
            _ => None,
        }
    }
}

/// The words' numbers, by address.
#[derive(Default)]
pub struct Barriers(FxHashMap<u64, u32>);

impl Barriers {
    /// The number of the word, if a task in the call `sleeper` is woken as one of all by one in the call `waker`.
    pub fn woken(&mut self, waker: Option<Call>, sleeper: Option<Call>) -> Option<u32> {
        match (waker?, sleeper?) {
            (Call::WakeAll(uaddr, _), Call::Wait(waits)) if waits == uaddr => {
                let next = self.0.len() as u32;
                Some(*self.0.entry(uaddr).or_insert(next))
            }
            _ => None,
        }
    }
}
