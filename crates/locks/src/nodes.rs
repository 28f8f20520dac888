//! Queue nodes: who owns them, and where they are.
//!
//! A waiter's node must outlive its wait: others peek at it, and kick its owner, after the owner has gone on. So nodes are
//! never freed and never on a stack. They belong to CPUs, [`NODES_PER_CPU`] each (a CPU that waits can be interrupted by
//! code that waits for another lock: task, soft interrupt, hard interrupt, NMI), and are used like a stack: a node is
//! claimed when its CPU queues and free again when it has the lock. All locks of a world share them.
//!
//! Worlds with a known number of CPUs have a [`Pool`]; threads of a process find theirs in a table that grows
//! (`native::Global`).

use alloc::sync::Arc;
use alloc::vec::Vec;
use contend_platform::{CpuId, Line, LockEvent, Note, Ordering, Padded, Platform};

/// How deep waits of one CPU may nest. A deeper one spins on `try_lock` ([`LockEvent::LockNoNode`]).
pub const NODES_PER_CPU: usize = 4;

/// The number of a node, from 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NodeId(u32);

impl NodeId {
    /// Node `depth` of `cpu`.
    #[inline]
    pub fn of(cpu: CpuId, depth: usize) -> Self {
        NodeId((cpu.index() * NODES_PER_CPU + depth) as u32)
    }
    /// How words hold it: 0 is no node. At most 18 bits for 65,535 CPUs.
    #[inline]
    pub fn link(self) -> u64 {
        u64::from(self.0) + 1
    }
    /// The node that a word names; `None` for 0.
    #[inline]
    pub fn from_link(link: u64) -> Option<Self> {
        (link != 0).then(|| NodeId(link as u32 - 1))
    }
    /// As an index.
    #[inline]
    pub fn index(self) -> usize {
        self.0 as usize
    }
    /// Whose it is.
    #[inline]
    pub fn cpu(self) -> CpuId {
        CpuId((self.0 as usize / NODES_PER_CPU) as u16)
    }
}

/// A place in a queue.
pub trait QueueNode<P: Platform> {
    /// A node on `line`, not in any queue.
    fn new(p: &P, line: Line) -> Self;
}

/// What most queue locks need of a node.
pub struct Link<P: Platform> {
    /// 1: the predecessor has handed over.
    pub locked: P::Word,
    /// [`NodeId::link`] of the successor; 0: none, or not linked yet.
    pub next: P::Word,
}

impl<P: Platform> QueueNode<P> for Link<P> {
    fn new(p: &P, line: Line) -> Self {
        Link { locked: p.word(line, 0), next: p.word(line, 0) }
    }
}

impl<P: Platform> Link<P> {
    /// Prepare a claimed node for the end of a queue.
    // `track_caller`, here and below: to the checkers these are operations of the lock that calls.
    #[inline]
    #[track_caller]
    pub(crate) fn clear(&self, p: &P) {
        // Relaxed: nobody else knows the node; it is published by the exchange of the tail.
        p.store(&self.locked, 0, Ordering::Relaxed);
        p.store(&self.next, 0, Ordering::Relaxed);
    }
    /// The successor, which has swapped the tail and has linked itself, or is about to.
    #[inline]
    #[track_caller]
    pub(crate) fn successor(&self, p: &P) -> NodeId {
        let [next] = p.wait_until([&self.next], None, |[next]| next != 0).expect("waits without budget");
        NodeId::from_link(next).expect("waited for one")
    }
}

/// Where a queue lock gets its nodes from.
pub trait Nodes<P: Platform, N> {
    /// The node, for its owner and for others.
    fn get(&self, id: NodeId) -> &N;
    /// A node of the calling CPU; `None` when all are in use.
    fn claim(&self, p: &P) -> Option<NodeId>;
    /// The node that the calling CPU claimed last is free again.
    fn release(&self, p: &P, id: NodeId);
}

/// Report how deep a claim went.
pub(crate) fn count_depth<P: Platform>(p: &P, depth: usize) {
    let nested = [LockEvent::LockUseNode2, LockEvent::LockUseNode3, LockEvent::LockUseNode4];
    if let Some(&event) = depth.checked_sub(1).and_then(|i| nested.get(i)) {
        p.lock_event(event, 1);
    }
}

/// The nodes of CPUs `0..n`.
pub struct Pool<P: Platform, N> {
    nodes: Vec<Padded<N>>,
    /// Which line each lies on: to a checker, its name.
    lines: Vec<Line>,
    /// How many nodes of each CPU are in use; private to it.
    depth: Vec<Padded<P::Cell<u32>>>,
}

impl<P: Platform, N: QueueNode<P>> Pool<P, N> {
    /// Nodes for CPUs `0..nr_cpus`.
    pub fn new(p: &P, nr_cpus: usize) -> Self {
        const { assert!(P::NUMBERED, "queue nodes belong to CPUs, which have no numbers in this world") };
        assert!(nr_cpus <= CpuId::MAX_CPUS, "{nr_cpus} CPUs: at most {} exist", CpuId::MAX_CPUS);
        let node = |_| {
            let line = p.line();
            (Padded(N::new(p, line)), line)
        };
        let (nodes, lines) = (0..nr_cpus * NODES_PER_CPU).map(node).unzip();
        Pool { nodes, lines, depth: (0..nr_cpus).map(|_| Padded(p.cell(p.line(), 0))).collect() }
    }
}

impl<P: Platform, N> Nodes<P, N> for Arc<Pool<P, N>> {
    #[inline]
    fn get(&self, id: NodeId) -> &N {
        &self.nodes[id.index()]
    }
    #[inline]
    fn claim(&self, p: &P) -> Option<NodeId> {
        let cpu = p.cpu();
        // SAFETY: only the CPU itself touches its count, since CPUs have numbers of their own here (checked by `Pool::new`); a claim or
        // release is never interrupted by another; the closure is plain code.
        let depth = unsafe {
            p.write(&self.depth[cpu.index()], |depth: &mut u32| {
                let mine = *depth;
                *depth = (mine + 1).min(NODES_PER_CPU as u32);
                mine as usize
            })
        };
        if depth == NODES_PER_CPU {
            p.lock_event(LockEvent::LockNoNode, 1);
            return None;
        }
        count_depth(p, depth);
        let id = NodeId::of(cpu, depth);
        p.note(Note::Claimed(self.lines[id.index()]));
        Some(id)
    }
    #[inline]
    fn release(&self, p: &P, id: NodeId) {
        let cpu = p.cpu();
        p.note(Note::Released(self.lines[id.index()]));
        // SAFETY: as in `claim`.
        unsafe {
            p.write(&self.depth[cpu.index()], |depth: &mut u32| {
                *depth -= 1;
                assert_eq!(NodeId::of(cpu, *depth as usize), id, "nodes are released in reverse");
            });
        }
    }
}
