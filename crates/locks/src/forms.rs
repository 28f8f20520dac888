//! The forms in which programs use a lock: raw mutexes for `lock_api`, and names for what that makes of them.
//!
//! The last lines of a lock's file are
//!
//! ```text
//! mutex!(Ticket<Threads> = Ticket { state: word(0) }, GuardSend, fair);
//! spin_mutex!(Ticket<Bare> = Ticket { state: word(0) }, GuardSend, fair);
//! ```
//!
//! `mutex!` makes `RawMutex`, `Mutex`, `ReentrantMutex` and their guards, for OS threads (feature `std`). `spin_mutex!` makes
//! `RawSpinMutex`, `SpinMutex` and its guards, which need no operating system; locks with queue nodes have none, since
//! nobody has a number there. Then follow:
//!
//! * `GuardSend` if any thread may release, `GuardNoSend` if only the one that acquired may. `GuardSend` needs a reason in a
//!   comment beside it: neither the lock's state nor the waiters' nodes may say who holds;
//! * `fair` if a release hands the lock to the longest waiter, or at least to somebody in the queue, before newcomers;
//!   `unlock_fair` if the lock has a method of this name that does, beside a release that does not; `unfair` if neither.

// Without lock_api nothing of this is used.
#![cfg_attr(not(any(feature = "lock_api", feature = "lock_api_04")), allow(unused_macros, dead_code, unused_imports))]

/// What the arguments of [`mutex!`] and [`spin_mutex!`] may name.
#[cfg(any(feature = "lock_api", feature = "lock_api_04"))]
pub(crate) mod scope {
    #[cfg(feature = "std")]
    pub(crate) use crate::native::Global;
    pub(crate) use contend_platform::bare::Bare;
    #[cfg(feature = "std")]
    pub(crate) use contend_platform::native::Threads;
    use core::sync::atomic::AtomicU64;

    /// A word of threads.
    pub(crate) const fn word(value: u64) -> AtomicU64 {
        AtomicU64::new(value)
    }
}

/// The traits of both versions of lock_api.
macro_rules! raw_mutex {
    ($raw:ident, $world:ident, $lock:ty = $free:expr, $guard:ident, $fair:ident) => {
        #[doc = concat!("[`", stringify!($lock), "`] as `lock_api` wants it: a type parameter of its `Mutex`.")]
        pub struct $raw($lock);

        impl $raw {
            /// A free lock.
            #[must_use]
            pub const fn new() -> Self {
                $raw($free)
            }
        }

        impl Default for $raw {
            fn default() -> Self {
                $raw::new()
            }
        }

        impl core::fmt::Debug for $raw {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                f.debug_struct(stringify!($raw)).finish_non_exhaustive()
            }
        }

        #[cfg(feature = "lock_api")]
        // SAFETY: the algorithm excludes, and orders what its holders do: acquire in `lock` and `try_lock`, release in
        // `unlock`; that is what the conformance tests and the checkers test. A free lock that is moved or dropped while
        // held and not waited for has no node or other thread that knows its address. No operation unwinds.
        unsafe impl lock_api::RawMutex for $raw {
            const INIT: Self = $raw::new();
            type Guard = lock_api::$guard;

            #[inline]
            fn lock(&self) -> Self::Guard {
                RawLock::lock(&self.0, &$world);
                lock_api::$guard::new()
            }
            #[inline]
            fn try_lock(&self) -> Option<Self::Guard> {
                RawLock::try_lock(&self.0, &$world).then(lock_api::$guard::new)
            }
            #[inline]
            unsafe fn unlock(&self, _guard: Self::Guard) {
                RawLock::unlock(&self.0, &$world);
            }
            fn is_locked(&self) -> bool {
                RawLock::is_locked(&self.0, &$world)
            }
        }

        #[cfg(feature = "lock_api_04")]
        // SAFETY: as above.
        unsafe impl lock_api_04::RawMutex for $raw {
            const INIT: Self = $raw::new();
            type GuardMarker = lock_api_04::$guard;

            #[inline]
            fn lock(&self) {
                RawLock::lock(&self.0, &$world);
            }
            #[inline]
            fn try_lock(&self) -> bool {
                RawLock::try_lock(&self.0, &$world)
            }
            #[inline]
            unsafe fn unlock(&self) {
                RawLock::unlock(&self.0, &$world);
            }
            fn is_locked(&self) -> bool {
                RawLock::is_locked(&self.0, &$world)
            }
        }

        raw_mutex!(@$fair $raw $world);
    };
    (@unfair $raw:ident $world:ident) => {};
    (@fair $raw:ident $world:ident) => {
        raw_mutex!(@fair_by unlock, $raw, $world);
    };
    (@unlock_fair $raw:ident $world:ident) => {
        raw_mutex!(@fair_by unlock_fair, $raw, $world);
    };
    (@fair_by $unlock:ident, $raw:ident, $world:ident) => {
        #[cfg(feature = "lock_api")]
        // SAFETY: this release hands over to a waiter, if there is one.
        unsafe impl lock_api::RawMutexFair for $raw {
            #[inline]
            unsafe fn unlock_fair(&self, _guard: Self::Guard) {
                self.0.$unlock(&$world);
            }
        }

        #[cfg(feature = "lock_api_04")]
        // SAFETY: as above.
        unsafe impl lock_api_04::RawMutexFair for $raw {
            #[inline]
            unsafe fn unlock_fair(&self) {
                self.0.$unlock(&$world);
            }
        }
    };
}

/// The mutex of OS threads.
macro_rules! mutex {
    ($lock:ty = $free:expr, $guard:ident, $fair:ident) => {
        #[cfg(all(feature = "std", any(feature = "lock_api", feature = "lock_api_04")))]
        mod mutex {
            use super::*;
            #[allow(unused_imports, reason = "files may import the same themselves")]
            use crate::forms::scope::*;

            raw_mutex!(RawMutex, Threads, $lock = $free, $guard, $fair);

            #[cfg(feature = "lock_api")]
            mod named {
                use super::RawMutex;
                use crate::RawThreadId;

                /// A mutex of OS threads with this lock.
                pub type Mutex<T> = lock_api::Mutex<RawMutex, T>;
                /// Unlocks its [`Mutex`] when dropped.
                pub type MutexGuard<'a, T> = lock_api::MutexGuard<'a, RawMutex, T>;
                /// A [`MutexGuard`] of a part of what the mutex guards.
                pub type MappedMutexGuard<'a, T> = lock_api::MappedMutexGuard<'a, RawMutex, T>;
                /// A [`MutexGuard`] that keeps its mutex alive.
                #[cfg(feature = "arc_lock")]
                pub type ArcMutexGuard<T> = lock_api::ArcMutexGuard<RawMutex, T>;

                /// A mutex that its holder may lock again; its guards give shared access only.
                pub type ReentrantMutex<T> = lock_api::ReentrantMutex<RawMutex, RawThreadId, T>;
                /// Undoes one locking of its [`ReentrantMutex`] when dropped.
                pub type ReentrantMutexGuard<'a, T> = lock_api::ReentrantMutexGuard<'a, RawMutex, RawThreadId, T>;
                /// A [`ReentrantMutexGuard`] of a part of what the mutex guards.
                pub type MappedReentrantMutexGuard<'a, T> =
                    lock_api::MappedReentrantMutexGuard<'a, RawMutex, RawThreadId, T>;
                /// A [`ReentrantMutexGuard`] that keeps its mutex alive.
                #[cfg(feature = "arc_lock")]
                pub type ArcReentrantMutexGuard<T> = lock_api::ArcReentrantMutexGuard<RawMutex, RawThreadId, T>;
            }
            #[cfg(feature = "lock_api")]
            pub use named::*;
        }
        #[cfg(all(feature = "std", any(feature = "lock_api", feature = "lock_api_04")))]
        pub use mutex::*;
    };
}

/// The mutex of hardware threads.
macro_rules! spin_mutex {
    ($lock:ty = $free:expr, $guard:ident, $fair:ident) => {
        #[cfg(any(feature = "lock_api", feature = "lock_api_04"))]
        mod spin_mutex {
            use super::*;
            #[allow(unused_imports, reason = "files may import the same themselves")]
            use crate::forms::scope::*;

            raw_mutex!(RawSpinMutex, Bare, $lock = $free, $guard, $fair);

            #[cfg(feature = "lock_api")]
            mod named {
                use super::RawSpinMutex;

                /// A mutex with this lock whose waiters only spin: no operating system is needed, or asked for help.
                pub type SpinMutex<T> = lock_api::Mutex<RawSpinMutex, T>;
                /// Unlocks its [`SpinMutex`] when dropped.
                pub type SpinMutexGuard<'a, T> = lock_api::MutexGuard<'a, RawSpinMutex, T>;
                /// A [`SpinMutexGuard`] of a part of what the mutex guards.
                pub type MappedSpinMutexGuard<'a, T> = lock_api::MappedMutexGuard<'a, RawSpinMutex, T>;
                /// A [`SpinMutexGuard`] that keeps its mutex alive.
                #[cfg(feature = "arc_lock")]
                pub type ArcSpinMutexGuard<T> = lock_api::ArcMutexGuard<RawSpinMutex, T>;
            }
            #[cfg(feature = "lock_api")]
            pub use named::*;
        }
        #[cfg(any(feature = "lock_api", feature = "lock_api_04"))]
        pub use spin_mutex::*;
    };
}
