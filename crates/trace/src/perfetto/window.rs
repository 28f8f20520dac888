//! Events of all CPUs in the order of time, as far as a window of bounded size goes.
//!
//! A bundle holds some of one CPU's events, and bundles of different CPUs overlap. Those that were read and not yet given
//! wait here, a queue a CPU; the earliest is given when there are [`EVENTS`] of them, or no more to come. A recording
//! whose bundles are further apart than that comes out of order, which is counted.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use crate::event::Event;

/// Events that wait at most, before one is given: some 30 MB, and up to four times that for room in the queues.
pub(super) const EVENTS: usize = 1 << 18;

/// A queue keeps this much room when it is emptied.
const ROOM: usize = 1024;

#[derive(Default)]
pub(super) struct Window {
    queues: Vec<VecDeque<Waiting>>,
    heap: BinaryHeap<Reverse<(u64, u32)>>,
    len: usize,
}

pub(super) struct Waiting {
    pub event: Event,
    /// The CPU lost events just before.
    pub gap: bool,
}

impl Window {
    pub(super) fn push(&mut self, waiting: Waiting) {
        let cpu = waiting.event.cpu;
        if self.queues.len() <= cpu as usize {
            self.queues.resize_with(cpu as usize + 1, VecDeque::new);
        }
        let queue = &mut self.queues[cpu as usize];
        if queue.is_empty() {
            self.heap.push(Reverse((waiting.event.ts, cpu)));
        }
        queue.push_back(waiting);
        self.len += 1;
    }

    pub(super) fn is_full(&self) -> bool {
        self.len >= EVENTS
    }

    pub(super) fn pop(&mut self) -> Option<Waiting> {
        let mut top = self.heap.peek_mut()?;
        let queue = &mut self.queues[top.0.1 as usize];
        let first = queue.pop_front();
        if queue.capacity() > ROOM && queue.len() < queue.capacity() / 4 {
            queue.shrink_to(queue.capacity() / 2);
        }
        match queue.front() {
            Some(next) => top.0.0 = next.event.ts,
            None => drop(std::collections::binary_heap::PeekMut::pop(top)),
        }
        self.len -= 1;
        first
    }
}
