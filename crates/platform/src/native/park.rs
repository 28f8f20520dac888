//! Sleeping until a word changes.
//!
//! [`futex_wait`] compares and sleeps as one step with respect to [`futex_wake`] on the same word. So a waker that changes
//! the word first and wakes then is never missed: either the comparison sees the change, or the sleeper is there to be
//! woken. On 64-bit Linux the kernel does this. Elsewhere, and on Linux with the feature `portable-parking`, a table of
//! the process does (`portable`).

#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
// Compiled but unused where the other one is chosen: its tests compare the two.
#[cfg_attr(feature = "portable-parking", allow(dead_code))]
mod futex;
#[cfg(any(test, feature = "portable-parking", not(all(target_os = "linux", target_pointer_width = "64"))))]
mod portable;

#[cfg(all(target_os = "linux", target_pointer_width = "64", not(feature = "portable-parking")))]
use futex as chosen;
#[cfg(any(feature = "portable-parking", not(all(target_os = "linux", target_pointer_width = "64"))))]
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
