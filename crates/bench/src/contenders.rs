//! The locks of the benchmark, ours and others', behind one small trait.

use contend_locks::lock_api::RawMutex;
use contend_locks::native::Global;
use contend_locks::pv::PvTunables;
use contend_locks::pv_queued::{PvFeatures, PvQueued};
use contend_locks::{RawLock, adaptive, hybrid, pv_queued, pv_ticket, queued, ticket, unfair_byte, unfair_queued};
use contend_platform::native::Threads;
use std::cell::UnsafeCell;
use std::marker::PhantomPinned;
use std::pin::Pin;

/// A lock to measure.
pub trait Contender: Default + Sync {
    /// Run `f` with the lock held. Pinned, since a mutex of the C library must not move once it is in use.
    fn with<R>(self: Pin<&Self>, f: impl FnOnce() -> R) -> R;
}

/// Something to do with a contender whose type is chosen by name.
pub trait Visitor {
    /// What comes of it.
    type Out;
    /// Do it.
    fn visit<C: Contender>(self) -> Self::Out;
}

macro_rules! contenders {
    ($( $(#[doc = $doc:literal])* $name:literal = $lock:ty, $ours:literal; )*) => {
        /// The names, in the order of tables.
        pub const NAMES: &[&str] = &[$($name,)*];

        /// What a lock is, in a line.
        pub fn describe(name: &str) -> Option<&'static str> {
            match name { $( $name => Some(concat!($($doc),*).trim_ascii()), )* _ => None }
        }

        /// Is it one of this project's (and so can be simulated)?
        pub fn is_ours(name: &str) -> bool {
            match name { $( $name => $ours, )* _ => false }
        }

        /// Call `visitor` with the lock of that name; `None` if there is none.
        pub fn dispatch<V: Visitor>(name: &str, visitor: V) -> Option<V::Out> {
            match name { $( $name => Some(visitor.visit::<$lock>()), )* _ => None }
        }
    };
}

contenders! {
    /// std::sync::Mutex: futex, three states
    "std" = std::sync::Mutex<()>, false;
    /// parking_lot 0.13: parking lot, fair unlock every 0.5 ms or so
    "parking_lot" = parking_lot::Mutex<()>, false;
    /// usync 0.2: word-sized queue lock
    "usync" = usync::Mutex<()>, false;
    /// PTHREAD_MUTEX_ADAPTIVE_NP of the C library
    "pthread-adaptive" = PthreadAdaptive, false;
    /// spin 0.12: test and set
    "spin" = spin::Mutex<()>, false;
    /// this project's own: bounded stealing before a queue, yields where nothing is held
    "adaptive" = Ours<adaptive::RawMutex>, true;
    /// unfair byte lock: test and set
    "unfair-byte" = Ours<unfair_byte::RawMutex>, true;
    /// ticket lock
    "ticket" = Ours<ticket::RawMutex>, true;
    /// paravirtual ticket lock
    "pv-ticket" = Ours<pv_ticket::RawMutex>, true;
    /// queued spinlock with pending bit
    "queued" = Ours<queued::RawMutex>, true;
    /// paravirtual queued spinlock of Linux 4.2
    "pv-queued" = PvQueuedV4_2, true;
    /// the same with all parts of the series of 2015
    "pv-queued-2015" = Ours<pv_queued::RawMutex>, true;
    /// queued unfair lock of the series of 2015
    "unfair-queued" = Ours<unfair_queued::RawMutex>, true;
    /// today's hybrid paravirtual queued spinlock
    "hybrid" = Ours<hybrid::RawMutex>, true;
}

impl Contender for std::sync::Mutex<()> {
    #[inline]
    fn with<R>(self: Pin<&Self>, f: impl FnOnce() -> R) -> R {
        let _guard = self.get_ref().lock().expect("critical sections do not panic");
        f()
    }
}

macro_rules! by_guard {
    ($($lock:ty,)*) => { $(
        impl Contender for $lock {
            #[inline]
            fn with<R>(self: Pin<&Self>, f: impl FnOnce() -> R) -> R {
                let _guard = self.get_ref().lock();
                f()
            }
        }
    )* };
}
by_guard! { parking_lot::Mutex<()>, usync::Mutex<()>, spin::Mutex<()>, }

/// One of this project's.
pub struct Ours<R>(R);

impl<R: RawMutex> Default for Ours<R> {
    fn default() -> Self {
        Ours(R::INIT)
    }
}

impl<R: RawMutex + Sync> Contender for Ours<R> {
    #[inline]
    fn with<T>(self: Pin<&Self>, f: impl FnOnce() -> T) -> T {
        let guard = self.0.lock();
        let result = f();
        // SAFETY: locked above.
        unsafe { self.0.unlock(guard) };
        result
    }
}

/// The paravirtual queued lock before the series, which has no mutex of its own.
pub struct PvQueuedV4_2(PvQueued<Threads, Global>);

impl Default for PvQueuedV4_2 {
    fn default() -> Self {
        PvQueuedV4_2(PvQueued::of(PvFeatures::V4_2, PvTunables::DEFAULT))
    }
}

impl Contender for PvQueuedV4_2 {
    #[inline]
    fn with<R>(self: Pin<&Self>, f: impl FnOnce() -> R) -> R {
        self.0.lock(&Threads);
        let result = f();
        self.0.unlock(&Threads);
        result
    }
}

/// The C library's adaptive mutex, where it is used: behind a pointer each acquisition would read one more line.
pub struct PthreadAdaptive {
    mutex: UnsafeCell<libc::pthread_mutex_t>,
    _stays: PhantomPinned,
}

// SAFETY: a pthread mutex is made to be used by several threads. It does not move while they do: they use it pinned.
unsafe impl Sync for PthreadAdaptive {}

impl Default for PthreadAdaptive {
    fn default() -> Self {
        #[cfg(all(target_os = "linux", target_env = "gnu"))]
        let initial = libc::PTHREAD_ADAPTIVE_MUTEX_INITIALIZER_NP;
        #[cfg(not(all(target_os = "linux", target_env = "gnu")))]
        let initial = libc::PTHREAD_MUTEX_INITIALIZER;
        PthreadAdaptive { mutex: UnsafeCell::new(initial), _stays: PhantomPinned }
    }
}

impl Contender for PthreadAdaptive {
    #[inline]
    fn with<R>(self: Pin<&Self>, f: impl FnOnce() -> R) -> R {
        let mutex = self.mutex.get();
        // SAFETY: the mutex was initialised statically; nobody has used it before it was pinned, and it has not moved since.
        let error = unsafe { libc::pthread_mutex_lock(mutex) };
        assert_eq!(error, 0, "pthread_mutex_lock");
        let result = f();
        // SAFETY: as above; this thread holds it.
        let error = unsafe { libc::pthread_mutex_unlock(mutex) };
        assert_eq!(error, 0, "pthread_mutex_unlock");
        result
    }
}

impl Drop for PthreadAdaptive {
    fn drop(&mut self) {
        // SAFETY: nobody holds it or waits for it: `&mut self`.
        unsafe { libc::pthread_mutex_destroy(self.mutex.get()) };
    }
}
