//! Queue nodes of a process's threads: a table that grows and never shrinks, since others peek at a node after its
//! thread has gone on.

use crate::nodes::{Link, NODES_PER_CPU, NodeId, Nodes, QueueNode, count_depth};
use contend_platform::native::{NativeCell, Threads};
use contend_platform::{LockEvent, Padded, Platform};
use std::sync::OnceLock;

/// Threads whose nodes are allocated together.
const THREADS_PER_CHUNK: usize = 64;
/// Chunks for every number a thread can have.
const CHUNKS: usize = (u16::MAX as usize).div_ceil(THREADS_PER_CHUNK);

struct Chunk<N> {
    nodes: Box<[Padded<N>]>,
    /// How many nodes of each thread are in use; private to it.
    depth: Box<[Padded<NativeCell<u32>>]>,
}

/// The nodes of one type.
pub struct Table<N> {
    chunks: [OnceLock<Chunk<N>>; CHUNKS],
}

impl<N: QueueNode<Threads>> Table<N> {
    /// No nodes yet.
    pub const fn new() -> Self {
        Table { chunks: [const { OnceLock::new() }; CHUNKS] }
    }
    fn chunk(&self, thread: usize) -> &Chunk<N> {
        self.chunks[thread / THREADS_PER_CHUNK].get_or_init(|| {
            let p = Threads;
            let nodes = THREADS_PER_CHUNK * NODES_PER_CPU;
            Chunk {
                nodes: (0..nodes).map(|_| Padded(N::new(&p, p.line()))).collect(),
                depth: (0..THREADS_PER_CHUNK).map(|_| Padded(NativeCell::new(0))).collect(),
            }
        })
    }
    #[inline]
    fn depth(&self, thread: usize) -> &NativeCell<u32> {
        &self.chunk(thread).depth[thread % THREADS_PER_CHUNK]
    }
}

impl<N: QueueNode<Threads>> Default for Table<N> {
    fn default() -> Self {
        Table::new()
    }
}

/// A node type that has a table.
pub trait GlobalNode: QueueNode<Threads> + Sized + 'static {
    /// Its table.
    fn table() -> &'static Table<Self>;
}

impl GlobalNode for Link<Threads> {
    fn table() -> &'static Table<Self> {
        static TABLE: Table<Link<Threads>> = Table::new();
        &TABLE
    }
}

/// The nodes of whatever thread calls. Only this crate's mutexes have a value of it: whoever has one can change others' nodes.
#[derive(Clone, Copy, Debug)]
pub struct Global(pub(crate) ());

impl<N: GlobalNode> Nodes<Threads, N> for Global {
    #[inline]
    fn get(&self, id: NodeId) -> &N {
        &N::table().chunk(id.cpu().index()).nodes[id.index() % (THREADS_PER_CHUNK * NODES_PER_CPU)]
    }
    #[inline]
    fn claim(&self, p: &Threads) -> Option<NodeId> {
        let thread = p.cpu();
        if thread == Threads::NOBODY {
            p.lock_event(LockEvent::LockNoNode, 1);
            return None;
        }
        // SAFETY: only the thread itself touches its count. A signal handler that comes in between counts up and down
        // again before this goes on; the closure is plain code.
        let depth = unsafe {
            p.write(N::table().depth(thread.index()), |depth| {
                let mine = *depth as usize;
                *depth = (*depth + 1).min(NODES_PER_CPU as u32);
                mine
            })
        };
        if depth == NODES_PER_CPU {
            p.lock_event(LockEvent::LockNoNode, 1);
            return None;
        }
        count_depth(p, depth);
        Some(NodeId::of(thread, depth))
    }
    #[inline]
    fn release(&self, p: &Threads, id: NodeId) {
        // SAFETY: as in `claim`; the locks release what the calling thread has claimed.
        unsafe { p.write(N::table().depth(id.cpu().index()), |depth| *depth -= 1) };
    }
}
