//! Who the holder of a reentrant mutex is.

#[cfg(any(feature = "lock_api", feature = "lock_api_04"))]
use std::num::NonZeroUsize;

/// Tells OS threads apart, for `lock_api`'s `ReentrantMutex`.
///
/// A thread has one number for all its life, tear-down included, and no other thread ever has the same: a thread that gets
/// its memory, or its place in a table, from one that has ended is not taken for it. (A thread's place in the table of queue
/// nodes would not do: it is given away again, and threads in tear-down have none.)
///
/// # Panics
/// Where `usize` has 32 bits, when 2^32 threads have used a reentrant mutex in the life of the process.
#[derive(Debug, Default)]
pub struct RawThreadId(());

#[cfg(any(feature = "lock_api", feature = "lock_api_04"))]
impl RawThreadId {
    fn number() -> NonZeroUsize {
        use std::sync::atomic::{AtomicUsize, Ordering};
        static LAST: AtomicUsize = AtomicUsize::new(0);
        thread_local! {
            // Without a destructor, so it can be used for as long as the thread runs code.
            static MINE: NonZeroUsize = {
                let last = LAST.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |last| last.checked_add(1));
                NonZeroUsize::new(last.expect("no number is left for another thread") + 1).expect("one more than some")
            };
        }
        MINE.with(|number| *number)
    }
}

#[cfg(feature = "lock_api")]
// SAFETY: see `RawThreadId`.
unsafe impl lock_api::GetThreadId for RawThreadId {
    const INIT: Self = RawThreadId(());

    fn nonzero_thread_id(&self) -> NonZeroUsize {
        RawThreadId::number()
    }
}

#[cfg(feature = "lock_api_04")]
// SAFETY: see `RawThreadId`.
unsafe impl lock_api_04::GetThreadId for RawThreadId {
    const INIT: Self = RawThreadId(());

    fn nonzero_thread_id(&self) -> NonZeroUsize {
        RawThreadId::number()
    }
}
