//! Linux system calls that the experiments make, each behind a safe function. Results of the calls that are timed are
//! not looked at; whether they work at all is asked once, before.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::AtomicU32;

use crate::sysfs::CpuSet;

/// Words of a CPU mask: 4,096 CPUs and more, which `cpu_set_t` has no room for.
const MASK_WORDS: usize = 1 << 10;

/// The CPUs that the calling thread may run on.
pub fn allowed() -> CpuSet {
    let mut mask = [0u64; MASK_WORDS];
    // SAFETY: the buffer is as long as is said; the kernel writes no more.
    let got = unsafe { libc::syscall(libc::SYS_sched_getaffinity, 0, std::mem::size_of_val(&mask), mask.as_mut_ptr()) };
    let words = usize::try_from(got).unwrap_or(0) / 8;
    (0..words * 64).filter(|c| mask[c / 64] >> (c % 64) & 1 == 1).collect()
}

/// Bind the calling thread to a CPU. Returns whether that was possible.
pub fn pin(cpu: usize) -> bool {
    let mut mask = [0u64; MASK_WORDS];
    let Some(word) = mask.get_mut(cpu / 64) else { return false };
    *word = 1 << (cpu % 64);
    // SAFETY: the buffer is as long as is said; the kernel only reads it.
    unsafe { libc::syscall(libc::SYS_sched_setaffinity, 0, std::mem::size_of_val(&mask), mask.as_ptr()) == 0 }
}

/// The calling thread no longer preempts others when it is woken (SCHED_BATCH).
pub fn batch() -> bool {
    let param = libc::sched_param { sched_priority: 0 };
    // SAFETY: the parameter outlives the call, which only reads it; 0 is the calling thread.
    unsafe { libc::sched_setscheduler(0, libc::SCHED_BATCH, &param) == 0 }
}

/// The calling thread's number.
pub fn thread() -> u32 {
    // SAFETY: takes nothing and always succeeds.
    unsafe { libc::gettid() }.cast_unsigned()
}

/// Context switches of the calling thread so far.
pub fn switches() -> u64 {
    // SAFETY: the structure is plain numbers, for which zeros are a value; the call fills it.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_THREAD, &mut usage);
        usage
    };
    u64::try_from(usage.ru_nvcsw + usage.ru_nivcsw).unwrap_or(0)
}

/// The cheapest system call that no library answers itself.
#[inline]
pub fn getppid() {
    // SAFETY: takes nothing and always succeeds.
    unsafe { libc::syscall(libc::SYS_getppid) };
}

/// `sched_yield`.
#[inline]
pub fn sched_yield() {
    // SAFETY: takes nothing.
    unsafe { libc::sched_yield() };
}

/// Sleep on a word while it is `expected`.
#[inline]
pub fn futex_wait(word: &AtomicU32, expected: u32) {
    let (op, forever) = (libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG, std::ptr::null::<libc::timespec>());
    // SAFETY: the address is that of a live atomic for the whole call; without a time limit nothing else is passed.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), op, expected, forever) };
}

/// Wake one sleeper.
#[inline]
pub fn futex_wake(word: &AtomicU32) {
    // SAFETY: as in `futex_wait`; the kernel only looks the address up.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG, 1) };
}

/// Ticks a second: what the kernel gives as the resolution of its coarse clock is the length of a tick.
pub fn tick_hz() -> Option<u32> {
    let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the structure outlives the call, which fills it.
    let done = unsafe { libc::clock_getres(libc::CLOCK_MONOTONIC_COARSE, &mut t) } == 0;
    let ns = u64::try_from(t.tv_nsec).ok().filter(|ns| done && t.tv_sec == 0 && *ns > 0)?;
    u32::try_from((1_000_000_000 + ns / 2) / ns).ok()
}

/// A timer that expires into a file descriptor.
pub struct Timer(OwnedFd);

impl Timer {
    /// Of the monotonic clock.
    pub fn new() -> Option<Timer> {
        // SAFETY: the descriptor that a successful call returns belongs to nobody else.
        unsafe {
            let fd = libc::timerfd_create(libc::CLOCK_MONOTONIC, libc::TFD_NONBLOCK | libc::TFD_CLOEXEC);
            (fd >= 0).then(|| Timer(OwnedFd::from_raw_fd(fd)))
        }
    }

    /// Expire once after `ns` (below a second); 0 disarms.
    #[inline]
    pub fn arm(&self, ns: u32) {
        let zero = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        let value = libc::timespec { tv_sec: 0, tv_nsec: libc::c_long::from(ns as i32) };
        let spec = libc::itimerspec { it_interval: zero, it_value: value };
        // SAFETY: the descriptor is open, the structure outlives the call, which only reads it.
        unsafe { libc::timerfd_settime(self.0.as_raw_fd(), 0, &spec, std::ptr::null_mut()) };
    }
}

/// `membarrier`: an interrupt to every CPU that runs another thread of this process, and back.
pub struct Membarrier(());

impl Membarrier {
    /// Registers the process, which lasts.
    pub fn new() -> Option<Membarrier> {
        let register = libc::MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED;
        // SAFETY: takes numbers only.
        let done = unsafe { libc::syscall(libc::SYS_membarrier, register, 0, 0) } == 0;
        done.then_some(Membarrier(()))
    }

    /// Interrupts the others and waits for them.
    #[inline]
    pub fn issue(&self) {
        // SAFETY: takes numbers only.
        unsafe { libc::syscall(libc::SYS_membarrier, libc::MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0) };
    }
}

/// Ask for huge pages below `memory`. Returns whether the kernel agreed.
pub fn huge_pages<T>(memory: &[T]) -> bool {
    const PAGE: usize = 4096;
    let start = (memory.as_ptr() as usize).next_multiple_of(PAGE);
    let end = (memory.as_ptr() as usize + std::mem::size_of_val(memory)) & !(PAGE - 1);
    if start >= end {
        return false;
    }
    // SAFETY: whole pages within memory that is borrowed here; the advice changes neither contents nor validity.
    unsafe { libc::madvise(start as *mut libc::c_void, end - start, libc::MADV_HUGEPAGE) == 0 }
}
