//! What must not compile, and beside it what must: compiled as documentation tests only. Each pair differs in what is tested.

/// Guards of mutexes may travel, if what they guard may.
///
/// ```
/// fn send<T: Send>(_: T) {}
/// fn sync<T: Sync>(_: T) {}
/// # use contend_locks::{adaptive, hybrid, pv_queued, pv_ticket, queued, ticket, unfair_byte, unfair_queued};
/// fn f(a: ticket::MutexGuard<u32>, b: unfair_byte::MutexGuard<u32>, c: queued::MutexGuard<u32>) {
///     send((a, b, c));
/// }
/// fn e(a: adaptive::MutexGuard<u32>, b: pv_queued::MutexGuard<u32>, c: hybrid::MutexGuard<u32>) {
///     send((a, b, c));
/// }
/// fn d(a: pv_ticket::MutexGuard<u32>, b: unfair_queued::MutexGuard<u32>) {
///     send((a, b));
/// }
/// fn g(a: ticket::MappedMutexGuard<u32>, b: queued::MappedMutexGuard<u32>, c: ticket::SpinMutexGuard<u32>) {
///     send((a, b, c));
/// }
/// fn h(a: &ticket::Mutex<u32>, b: &ticket::Mutex<std::cell::Cell<u32>>, c: queued::MutexGuard<u32>) {
///     sync((a, b, c));
/// }
/// fn i(a: contend_locks::ReentrantMutexGuard<u32>) {
///     sync(a);
/// }
/// ```
///
/// What they guard may not:
///
/// ```compile_fail,E0277
/// fn send<T: Send>(_: T) {}
/// fn f(a: contend_locks::ticket::MutexGuard<std::rc::Rc<u32>>) {
///     send(a);
/// }
/// ```
///
/// A mutex makes no `Rc` shareable, as it makes a `Cell`:
///
/// ```compile_fail,E0277
/// fn sync<T: Sync>(_: T) {}
/// fn f(a: &contend_locks::ticket::Mutex<std::rc::Rc<u32>>) {
///     sync(a);
/// }
/// ```
///
/// ```compile_fail,E0277
/// fn sync<T: Sync>(_: T) {}
/// fn f(a: contend_locks::ticket::MutexGuard<std::cell::Cell<u32>>) {
///     sync(a);
/// }
/// ```
pub fn mutexes() {}

/// Guards of reentrant mutexes stay: who holds is part of the state.
///
/// ```compile_fail,E0277
/// fn send<T: Send>(_: T) {}
/// fn f(a: contend_locks::ReentrantMutexGuard<u32>) {
///     send(a);
/// }
/// ```
///
/// And give shared access only:
///
/// ```compile_fail,E0594
/// let mutex = contend_locks::ReentrantMutex::new(1);
/// *mutex.lock() += 1;
/// ```
///
/// ```
/// let mutex = contend_locks::Mutex::new(1);
/// *mutex.lock() += 1;
/// ```
pub fn reentrant() {}

/// There is no fair release where a release is not fair:
///
/// ```compile_fail,E0277
/// fn fair<R: contend_locks::lock_api::RawMutexFair>() {}
/// fair::<contend_locks::unfair_byte::RawMutex>();
/// ```
///
/// ```
/// fn fair<R: contend_locks::lock_api::RawMutexFair>() {}
/// fair::<contend_locks::adaptive::RawMutex>();
/// fair::<contend_locks::pv_queued::RawMutex>();
/// fair::<contend_locks::ticket::RawMutex>();
/// fair::<contend_locks::queued::RawMutex>();
/// ```
///
/// And no time limit anywhere:
///
/// ```compile_fail,E0277
/// fn timed<R: contend_locks::lock_api::RawMutexTimed>() {}
/// timed::<contend_locks::ticket::RawMutex>();
/// ```
pub fn extensions() {}

/// A guard does not outlive its mutex:
///
/// ```compile_fail,E0597
/// let guard = {
///     let mutex = contend_locks::Mutex::new(1);
///     mutex.lock()
/// };
/// ```
pub fn lifetimes() {}

/// Statistics are not there unless asked for.
#[cfg(not(feature = "stats"))]
/// ```compile_fail,E0433
/// let _ = contend_locks::stats::snapshot();
/// ```
pub fn statistics() {}

/// What belongs to a CPU is its own: queue nodes are not for worlds whose CPUs have no numbers,
///
/// ```compile_fail,E0080
/// use contend_locks::algorithm::{MakeLock, Queued};
/// use contend_platform::bare::Bare;
/// <Queued<Bare> as MakeLock<Bare>>::new(&Bare, 1);
/// ```
///
/// ```compile_fail,E0080
/// use contend_locks::algorithm::{MakeLock, Mcs};
/// use contend_platform::bare::Bare;
/// <Mcs<Bare> as MakeLock<Bare>>::new(&Bare, 1);
/// ```
///
/// ```
/// use contend_locks::algorithm::{MakeLock, Queued, Ticket};
/// use contend_platform::{bare::Bare, native::Threads};
/// <Ticket<Bare> as MakeLock<Bare>>::new(&Bare, 1);
/// <Queued<Threads> as MakeLock<Threads>>::new(&Threads, 1);
/// ```
///
/// a number is given to one thread by somebody who answers for that,
///
/// ```compile_fail,E0133
/// use contend_platform::{CpuId, native::Native};
/// Native::new(CpuId(0), std::time::Instant::now());
/// ```
///
/// ```compile_fail,E0277
/// fn sync<T: Sync>() {}
/// sync::<contend_platform::native::Native>();
/// ```
///
/// ```compile_fail,E0277
/// fn clone<T: Clone>() {}
/// clone::<contend_platform::native::Native>();
/// ```
///
/// ```
/// fn send<T: Send>() {}
/// send::<contend_platform::native::Native>();
/// ```
///
/// and the nodes of the process's threads are the mutexes' alone:
///
/// ```compile_fail,E0423
/// use contend_locks::algorithm::{NodeId, Nodes};
/// use contend_locks::{native::Global, nodes::Link};
/// use contend_platform::{CpuId, native::Threads};
/// Nodes::<Threads, Link<Threads>>::release(&Global, &Threads, NodeId::of(CpuId(0), 0));
/// ```
///
/// ```compile_fail,E0277
/// fn default<T: Default>() {}
/// default::<contend_locks::native::Global>();
/// ```
pub fn nodes() {}
