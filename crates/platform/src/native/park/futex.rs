//! The kernel's futex, on the low half of a word.

use std::sync::atomic::AtomicU64;
use std::time::Duration;

pub(super) fn wait(w: &AtomicU64, expected: u32, timeout: Option<Duration>) {
    let ts = timeout.map(|t| libc::timespec {
        tv_sec: libc::time_t::try_from(t.as_secs()).unwrap_or(libc::time_t::MAX),
        tv_nsec: libc::c_long::from(t.subsec_nanos() as i32),
    });
    let ts = ts.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: the address is that of the low 32 bits of a live atomic (see `low_half`), `ts` is null or points to a live
    // timespec; the call keeps neither.
    unsafe {
        libc::syscall(libc::SYS_futex, low_half(w), libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG, expected, ts);
    }
}

pub(super) fn wake(w: *const AtomicU64, count: i32) {
    // SAFETY: a private wake does not read the word; an address at which nobody sleeps is no error.
    unsafe {
        libc::syscall(libc::SYS_futex, low_half(w), libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG, count);
    }
}

/// The futex word: the half of the atomic that holds its low 32 bits.
fn low_half(w: *const AtomicU64) -> *const u32 {
    let base = w.cast::<u32>();
    if cfg!(target_endian = "big") { base.wrapping_add(1) } else { base }
}
