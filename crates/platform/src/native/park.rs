//! Sleeping until a word changes.
//!
//! [`futex_wait`] compares and sleeps as one step with respect to [`futex_wake`] on the same word. So a waker that changes
//! the word first and wakes then is never missed: either the comparison sees the change, or the sleeper is there to be
//! woken. On 64-bit Linux the kernel does this. Elsewhere a table of the process does (`portable`); and on Linux with the
//! feature `portable-parking`, and under Miri, to which the kernel's look at half a word is a data race.

#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
// Where the other one is chosen, only the tests use it.
#[cfg_attr(any(miri, feature = "portable-parking"), allow(dead_code))]
mod futex;
// The same for this one.
#[cfg_attr(
    not(any(miri, feature = "portable-parking", not(all(target_os = "linux", target_pointer_width = "64")))),
    allow(dead_code)
)]
mod portable;

#[cfg(all(target_os = "linux", target_pointer_width = "64", not(any(miri, feature = "portable-parking"))))]
use futex as chosen;
#[cfg(any(miri, feature = "portable-parking", not(all(target_os = "linux", target_pointer_width = "64"))))]
use portable as chosen;

use std::sync::atomic::AtomicU64;
use std::time::Duration;

/// Sleep while the low half of `w` equals `expected`, until woken or until `timeout`; may return early.
pub fn futex_wait(w: &AtomicU64, expected: u32, timeout: Option<Duration>) {
    chosen::wait(w, expected, timeout);
}

/// Wake up to `count` threads that sleep in [`futex_wait`] on `w`.
///
/// Only the address is used: the word may be gone by now, when whoever saw it change has freed it.
pub fn futex_wake(w: *const AtomicU64, count: i32) {
    chosen::wake(w, count);
}

#[cfg(test)]
mod tests;
