//! The loop on bare CPUs of a simulated machine: no tasks, interrupts off, one lock. What a lock is worth by itself, and
//! how that changes with the number of CPUs and the distances between them.
//!
//! CPUs are taken in the order of their numbers (on a synthetic machine: cores first, node by node), the others idle. Each
//! does what a thread of [`crate::native`] does: lock, write two lines of shared data, work, unlock, think. `halt` and
//! `kick` cost what the simulator's platform says: a halted CPU looks at its word when that changes, a kick is an
//! interrupt sent.
//!
//! All CPUs come at once. What counts begins when each has had the lock once, or after as long as the run is to last if
//! one has to wait so long; how long that took is a result of its own.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use contend_locks::{
    Adaptive, Hybrid, MakeLock, Mcs, PvFeatures, PvQueuedWith, PvTicket, Queued, Ticket, UnfairByte, UnfairQueued,
};
use contend_machine::Machine;
use contend_platform::{CpuId, NEVER, Ordering, Platform, Time, Work};
use contend_sim::engine::{Engine, Stop};
use contend_sim::world::Sim;
use hdrhistogram::Histogram;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use serde::Serialize;

use crate::row::{jain, waits};
use crate::{Load, LoadError};

/// Events after which a run counts as endless: a second or ten of wall time.
const EVENTS_MAX: u64 = 1 << 30;

/// One lock under one load on one machine.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct BareRow {
    /// The lock's name.
    pub lock: String,
    /// The machine's name.
    pub machine: String,
    /// CPUs on it.
    pub cpus: u32,
    /// Virtual seconds.
    pub seconds: f64,
    /// Acquisitions of all CPUs.
    pub acquisitions: u64,
    /// Acquisitions a virtual second.
    pub throughput: f64,
    /// Jain's index of the CPUs' acquisitions: 1: all equal; 1/n: one has all.
    pub jain: f64,
    /// Most acquisitions of a CPU / fewest; infinite if a CPU had none.
    pub max_min: f64,
    /// Acquisitions outside the node that had most, as a share of what was fair for the CPUs there: 1 is fair, 0 none. NaN
    /// if all CPUs were in one node.
    pub far_share: f64,
    /// From the start, when all come at once, until each CPU had the lock once, in ns; at most the duration.
    pub all_once_ns: u64,
    /// From release to the next acquisition by a CPU that waited: median, in ns.
    pub handover_p50_ns: u64,
    /// 99th percentile.
    pub handover_p99_ns: u64,
    /// Longest.
    pub handover_max_ns: u64,
    /// From asking to having, in ns: median.
    pub p50_ns: u64,
    /// 99th percentile.
    pub p99_ns: u64,
    /// 99.9th percentile.
    pub p999_ns: u64,
    /// 99.99th percentile.
    pub p9999_ns: u64,
    /// Longest wait, in ns, of waits that had not ended at the end too.
    pub wait_max_ns: u64,
    /// Moves of a cache line between CPUs for each acquisition.
    pub transfers: f64,
    /// Of these, between nodes.
    pub transfers_remote: f64,
}

/// Something to do with a lock whose type is chosen by name.
trait Visitor {
    type Out;
    fn visit<L: MakeLock<Sim> + 'static>(self) -> Self::Out;
}

macro_rules! locks {
    ($( $(#[doc = $doc:literal])* $name:literal = $lock:ty; )*) => {
        /// The names, in the order of tables.
        pub const NAMES: &[&str] = &[$($name,)*];

        /// What a lock is, in a line.
        pub fn describe(name: &str) -> Option<&'static str> {
            match name { $( $name => Some(concat!($($doc),*).trim_ascii()), )* _ => None }
        }

        fn dispatch<V: Visitor>(name: &str, visitor: V) -> Option<V::Out> {
            match name { $( $name => Some(visitor.visit::<$lock>()), )* _ => None }
        }
    };
}

locks! {
    /// unfair byte lock: test and set
    "unfair-byte" = UnfairByte<Sim>;
    /// ticket lock
    "ticket" = Ticket<Sim>;
    /// queued spinlock with a pending bit
    "queued" = Queued<Sim>;
    /// MCS: a queue of nodes
    "mcs" = Mcs<Sim>;
    /// paravirtual ticket lock
    "pv-ticket" = PvTicket<Sim>;
    /// queued unfair lock: every waiter steals, seldom far from the head
    "unfair-queued" = UnfairQueued<Sim>;
    /// paravirtual queued spinlock of Linux 4.2
    "pv-queued" = PvQueuedWith<Sim, { PvFeatures::V4_2.bits() }>;
    /// paravirtual queued spinlock with all parts of the series of 2015
    "pv-queued-2015" = PvQueuedWith<Sim, { PvFeatures::SERIES_2015.bits() }>;
    /// paravirtual queued spinlock of Linux 6.x: one attempt to steal, then the queue
    "hybrid" = Hybrid<Sim>;
    /// this project's own: bounded stealing before a queue
    "adaptive" = Adaptive<Sim>;
}

/// A load, a lock or a machine that does not go together.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BareError {
    /// The load makes no sense, or there is no such lock.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// Each thread of the loop is a CPU here.
    #[error("threads = {found}: {machine} has {cpus} CPUs, and each thread is one")]
    Cpus {
        /// What was given.
        found: u32,
        /// The machine.
        machine: String,
        /// Its CPUs.
        cpus: usize,
    },
    /// Nothing else runs on bare CPUs.
    #[error("hogs = {0}: bare CPUs run nothing beside the lock's loop; should be 0")]
    Hogs(u32),
    /// The run did not end.
    #[error("{lock} on {cpus} CPUs did not end within {EVENTS_MAX} events; waiting: {waiting}")]
    Endless {
        /// The lock.
        lock: String,
        /// CPUs on it.
        cpus: u32,
        /// How many wait.
        waiting: usize,
    },
    /// CPUs that wait for ever.
    #[error("{lock} on {cpus} CPUs: {waiting} CPUs wait for ever")]
    Deadlock {
        /// The lock.
        lock: String,
        /// CPUs on it.
        cpus: u32,
        /// How many wait.
        waiting: usize,
    },
    /// The system refused memory for the CPUs' stacks.
    #[error("{0} CPUs need more memory for their stacks than the system gives")]
    Memory(usize),
}

/// Run lock `name` under `load` on the first CPUs of `machine`. The same arguments give the same row.
///
/// # Errors
/// The load makes no sense on that machine, there is no such lock, or the lock itself hangs.
pub fn run(name: &str, machine: &Machine, load: &Load) -> Result<BareRow, BareError> {
    check(machine, load)?;
    let unknown = || LoadError::Lock(name.into(), NAMES.join(", "));
    dispatch(name, Run { name, machine, load }).ok_or_else(unknown)?
}

/// Run a lock that is not in the list.
///
/// # Errors
/// As for [`run`].
pub fn run_type<L: MakeLock<Sim> + 'static>(name: &str, machine: &Machine, load: &Load) -> Result<BareRow, BareError> {
    check(machine, load)?;
    Run { name, machine, load }.visit::<L>()
}

fn check(machine: &Machine, load: &Load) -> Result<(), BareError> {
    load.check()?;
    let cpus = machine.topology.nr_cpus();
    if load.threads as usize > cpus {
        return Err(BareError::Cpus { found: load.threads, machine: machine.name.clone(), cpus });
    }
    if load.hogs > 0 {
        return Err(BareError::Hogs(load.hogs));
    }
    Ok(())
}

struct Run<'a> {
    name: &'a str,
    machine: &'a Machine,
    load: &'a Load,
}

/// What an observer notes, without simulated cost.
struct Log {
    /// Acquisitions that count, by CPU.
    counts: Vec<u64>,
    /// CPUs that had the lock once.
    seen: Vec<bool>,
    unseen: usize,
    waits: Histogram<u64>,
    handovers: Histogram<u64>,
    released: Time,
    holder: Option<CpuId>,
    /// When what counts begins, once that is known, and the transfers until then.
    begin: Option<(Time, Vec<u64>)>,
    /// The transfers until what counts ended.
    ended: Option<Vec<u64>>,
}

impl Log {
    fn new(cpus: usize) -> Log {
        Log {
            counts: vec![0; cpus],
            seen: vec![false; cpus],
            unseen: cpus,
            waits: waits(),
            handovers: waits(),
            released: 0,
            holder: None,
            begin: None,
            ended: None,
        }
    }

    /// The time of the running CPU is `now`: is it over?
    fn over(&mut self, now: Time, duration: Time, engine: &Engine) -> bool {
        if self.begin.is_none() && (self.unseen == 0 || now >= duration) {
            self.begin = Some((now.min(duration), engine.transfers()));
        }
        let over = self.begin.as_ref().is_some_and(|(begin, _)| now >= begin + duration);
        if over && self.ended.is_none() {
            self.ended = Some(engine.transfers());
        }
        over
    }

    fn taken(&mut self, cpu: CpuId, asked: Time, now: Time, duration: Time, waited: bool) {
        assert_eq!(self.holder.replace(cpu), None, "the lock let two CPUs in");
        if !std::mem::replace(&mut self.seen[cpu.index()], true) {
            self.unseen -= 1;
        }
        let Some((begin, _)) = self.begin else { return };
        let end = begin + duration;
        if now < begin || asked >= end {
            return;
        }
        // A wait that is not over at the end is as long as it has been.
        self.waits.saturating_record(now.min(end) - asked.max(begin));
        if now >= end {
            return;
        }
        self.counts[cpu.index()] += 1;
        if waited && asked < self.released {
            self.handovers.saturating_record(now - self.released);
        }
    }
}

/// What the CPUs share.
struct Shared<L> {
    lock: L,
    /// Two lines of data that the lock guards.
    data: [<Sim as Platform>::Word; 2],
    log: RefCell<Log>,
    left: Cell<u32>,
}

impl Visitor for Run<'_> {
    type Out = Result<BareRow, BareError>;

    fn visit<L: MakeLock<Sim> + 'static>(self) -> Self::Out {
        let (n, cpus) = (self.load.threads, self.machine.topology.nr_cpus());
        let engine = Engine::new(self.machine.clone());
        engine.near_first.set(true);
        let sim = Sim::new(Rc::clone(&engine), None);
        let shared = Rc::new(Shared {
            lock: L::new(&sim, cpus),
            data: [sim.word(sim.line(), 0), sim.word(sim.line(), 0)],
            log: RefCell::new(Log::new(n as usize)),
            left: Cell::new(n),
        });
        let load = self.load.clone();
        let mut stacks = engine
            .boot(|_| {
                let (sim, shared, load) = (sim.clone(), Rc::clone(&shared), load.clone());
                move |cpu: CpuId| {
                    if cpu.index() < load.threads as usize {
                        one_cpu(&sim, &shared, &load, cpu);
                    }
                    // A CPU that has nothing to do leaves its core to its siblings.
                    sim.engine().idle(None, || false);
                }
            })
            .map_err(|_| BareError::Memory(cpus))?;
        let stop = engine.run(&mut stacks, NEVER - 1, EVENTS_MAX);
        let waiting = engine.waiting().len();
        let (lock, left) = (self.name.to_string(), shared.left.get());
        if left > 0 && stop == Stop::Budget {
            return Err(BareError::Endless { lock, cpus: n, waiting });
        }
        if left > 0 {
            return Err(BareError::Deadlock { lock, cpus: n, waiting });
        }
        Ok(self.row(&shared.log.borrow()))
    }
}

/// The loop of one CPU.
fn one_cpu<L: MakeLock<Sim>>(p: &Sim, shared: &Shared<L>, load: &Load, cpu: CpuId) {
    let mut rng = Pcg64Mcg::seed_from_u64(load.seed << 32 | u64::from(cpu.0));
    let mut think = || rng.random_range(load.think_ns.0..=load.think_ns.1);
    // CPUs do not come to the first acquisition in step.
    p.charge(Work::Ns, think());
    // No borrow of the log is held across a platform operation.
    loop {
        let asked = p.now();
        if shared.log.borrow_mut().over(asked, load.duration_ns, p.engine()) {
            break;
        }
        let waited = shared.lock.lock(p);
        let now = p.now();
        shared.log.borrow_mut().taken(cpu, asked, now, load.duration_ns, waited);
        for word in &shared.data {
            p.store(word, now, Ordering::Relaxed);
        }
        p.charge(Work::Ns, load.critical_ns);
        {
            let released = p.now();
            let mut log = shared.log.borrow_mut();
            log.holder = None;
            log.released = released;
        }
        shared.lock.unlock(p);
        p.charge(Work::Ns, think());
    }
    shared.left.set(shared.left.get() - 1);
}

impl Run<'_> {
    fn row(&self, log: &Log) -> BareRow {
        let topo = &self.machine.topology;
        let acquisitions: u64 = log.counts.iter().sum();
        let each = |total: u64| total as f64 / acquisitions.max(1) as f64;
        let (least, most) = (log.counts.iter().min().copied(), log.counts.iter().max().copied());
        let mut by_node = vec![(0u64, 0u64); topo.nr_nodes()];
        for (cpu, count) in log.counts.iter().enumerate() {
            let node = &mut by_node[topo.node_of(CpuId(cpu as u16))];
            *node = (node.0 + 1, node.1 + count);
        }
        let (near_cpus, near) = by_node.iter().max_by_key(|(_, count)| *count).copied().unwrap_or_default();
        let far_cpus = log.counts.len() as u64 - near_cpus;
        let fair = acquisitions as f64 * far_cpus as f64 / log.counts.len() as f64;
        let seconds = self.load.duration_ns as f64 * 1e-9;
        let (all_once_ns, before) = log.begin.as_ref().map_or((0, [].as_slice()), |(at, t)| (*at, t));
        let after = log.ended.as_deref().unwrap_or_default();
        let transfers: Vec<u64> = std::iter::zip(after, before).map(|(after, before)| after - before).collect();
        BareRow {
            lock: self.name.into(),
            machine: self.machine.name.clone(),
            cpus: self.load.threads,
            seconds,
            acquisitions,
            throughput: acquisitions as f64 / seconds,
            jain: jain(&log.counts),
            max_min: most.unwrap_or(0) as f64 / least.unwrap_or(0) as f64,
            far_share: if far_cpus == 0 { f64::NAN } else { (acquisitions - near) as f64 / fair },
            all_once_ns,
            handover_p50_ns: log.handovers.value_at_quantile(0.5),
            handover_p99_ns: log.handovers.value_at_quantile(0.99),
            handover_max_ns: log.handovers.max(),
            p50_ns: log.waits.value_at_quantile(0.5),
            p99_ns: log.waits.value_at_quantile(0.99),
            p999_ns: log.waits.value_at_quantile(0.999),
            p9999_ns: log.waits.value_at_quantile(0.9999),
            wait_max_ns: log.waits.max(),
            transfers: each(transfers.iter().sum()),
            transfers_remote: each(transfers.iter().skip(4).sum()),
        }
    }
}
