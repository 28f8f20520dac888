//! What a process's threads park on: a word for each, in a table that grows and never shrinks.

use crate::pv_ticket::{Waiting, next_number};
use contend_platform::native::Threads;
use contend_platform::{CpuId, Padded};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicU64};

/// Threads whose words are allocated together: as many as a mask has bits.
const THREADS_PER_CHUNK: usize = 64;
/// Chunks for every number a thread can have.
const CHUNKS: usize = (u16::MAX as usize).div_ceil(THREADS_PER_CHUNK);

#[derive(Default)]
struct Chunk {
    mask: Padded<AtomicU64>,
    words: Vec<Padded<AtomicU64>>,
}

static TABLE: [OnceLock<Chunk>; CHUNKS] = [const { OnceLock::new() }; CHUNKS];
static LOCKS: AtomicU32 = AtomicU32::new(0);

fn chunk(i: usize) -> &'static Chunk {
    let new =
        || Chunk { words: (0..THREADS_PER_CHUNK).map(|_| Padded(AtomicU64::new(0))).collect(), ..Chunk::default() };
    TABLE[i].get_or_init(new)
}

/// The words of whatever thread calls. Only this crate's mutexes have a value of it, as of [`Global`](super::Global).
#[derive(Clone, Copy, Debug)]
pub struct Parked(pub(crate) ());

impl Waiting<Threads> for Parked {
    fn word(&self, thread: CpuId) -> Option<&AtomicU64> {
        if thread == Threads::NOBODY {
            return None;
        }
        let i = thread.index() / THREADS_PER_CHUNK;
        // All up to there, so that a look at the masks may end at the first that is missing.
        (0..i).for_each(|i| _ = chunk(i));
        Some(&chunk(i).words[thread.index() % THREADS_PER_CHUNK])
    }
    fn mask(&self, i: usize) -> Option<&AtomicU64> {
        Some(&TABLE.get(i)?.get()?.mask)
    }
    fn number(&self) -> u32 {
        next_number(&LOCKS)
    }
}
