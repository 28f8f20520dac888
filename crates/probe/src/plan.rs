//! Which experiments a machine allows, and the rounds in which they take turns.
//!
//! Each round runs every experiment once, so that a quiet or a busy minute touches all of them alike; CPUs and pairs of
//! CPUs change from round to round. Medians over rounds follow in [`crate::derive`].

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use contend_machine::Topology;
use contend_platform::CpuId;

use crate::interrupts::{self, Ipi};
use crate::memory::{self, Memory};
use crate::sys::Membarrier;
use crate::{Progress, calls, traced, wakeups};

/// What was measured, in ns unless its name says otherwise.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum What {
    /// A load that hits.
    Hit,
    /// An atomic operation on a line that is held.
    Atomic,
    /// A reading of the clock.
    ClockRead,
    /// A load from memory.
    Memory,
    /// A modified line from a CPU at this distance.
    Transfer(usize),
    /// Half a round trip of one polled word between CPUs at this distance.
    Ping(usize),
    /// Fetching a KiB from a CPU at this distance.
    Refill(usize),
    /// Percent of its speed that a thread keeps with so many busy in its core.
    SmtPct(usize),
    /// Percent of its speed that a CPU keeps while another, of another core, is busy.
    NearPct,
    /// `getppid`.
    Syscall,
    /// FUTEX_WAIT on a word that differs.
    FutexMismatch,
    /// `sched_yield` alone.
    Yield,
    /// What a yield that switches takes more than one that does not.
    Switch,
    /// Half a futex ping-pong on one CPU.
    PingPong,
    /// Its waking call.
    Wake,
    /// A wake-up of a CPU that has been idle, by the index of [`IDLE`].
    WakeIdle(usize),
    /// The waking call after [`HALTED`].
    WakeIdleCall,
    /// Interrupting another CPU, and its answer; remote: of another node.
    IpiCall {
        /// Of another node.
        remote: bool,
    },
    /// What the interrupted CPU loses.
    IpiGap,
    /// From the end of the call until the interrupted CPU goes on; may be below zero.
    IpiAfter,
    /// On a CPU that idled, from the end of a timer's handler until the woken thread is switched to, as tracefs says.
    IdleTimer,
    /// What a timer's interrupt takes.
    TimerGap,
    /// What the tick takes.
    TickGap,
    /// Arming and disarming a timer.
    TimerProgram,
    /// A pair of `write` and `read` through a pipe, of [`SMALL`] bytes.
    PipeSmall,
    /// The same of [`LARGE`] bytes.
    PipeLarge,
    /// The same through a local socket, of [`SMALL`] bytes.
    Socket,
}

/// Bytes of a small message.
pub const SMALL: usize = 64;
/// Bytes of a large message: with [`SMALL`], within one page.
pub const LARGE: usize = 4032;
/// How long a CPU has been idle before it is woken: from hardly at all to long enough for a deep idle state.
pub const IDLE: [Duration; 6] = [
    Duration::from_micros(15),
    Duration::from_micros(50),
    Duration::from_micros(100),
    Duration::from_micros(300),
    Duration::from_millis(1),
    Duration::from_millis(3),
];
/// Of these, the shortest after which a halted CPU of a guest has come to rest: after 5 to 15 us some wake-ups find it on its way.
pub const HALTED: usize = 1;
/// Of these, the one that is long enough for a middle idle state.
pub const MIDDLE: usize = 3;
/// How often each idle time, some 100 ms in all.
const IDLE_WAKES: [(Duration, u32); IDLE.len()] =
    [(IDLE[0], 200), (IDLE[1], 120), (IDLE[2], 80), (IDLE[3], 40), (IDLE[4], 24), (IDLE[5], 12)];
/// Before them: wake-ups after the first.
const WARM_UP: Duration = Duration::from_millis(60);
/// Wake-ups of idle CPUs take long, so not in every round.
const WAKE_UPS_EVERY: usize = 16;

/// All repetitions.
pub type Samples = BTreeMap<What, Vec<f64>>;

/// Rounds that are run even if they take longer than planned.
const ROUNDS_MIN: usize = 3;
/// More say nothing new.
const ROUNDS_MAX: usize = 400;
/// CPUs and pairs that are taken in turn.
const SAMPLED: usize = 8;

/// CPUs and pairs to measure on, by the kernel's numbers.
pub struct Places {
    /// For what needs one CPU.
    pub single: Vec<usize>,
    /// Pairs by class of distance.
    pub pairs: BTreeMap<usize, Vec<(usize, usize)>>,
    /// The threads of a core, if there is one with several.
    pub core: Vec<usize>,
    /// The first class that is one of other nodes.
    pub first_remote: usize,
}

impl Places {
    /// Of CPUs that may be used; `kernel` is the kernel's number of each CPU of the topology.
    pub fn of(topo: &Topology, kernel: &[usize], usable: impl Fn(usize) -> bool) -> Places {
        let cpus: Vec<usize> = (0..topo.nr_cpus()).filter(|c| usable(kernel[*c])).collect();
        let some: Vec<usize> = spread(&cpus, 2 * SAMPLED);
        let mut pairs: BTreeMap<usize, Vec<(usize, usize)>> = BTreeMap::new();
        for &a in &some {
            let mut last = BTreeMap::new();
            for &b in &cpus {
                let d = topo.distance(CpuId(a as u16), CpuId(b as u16));
                if d > 0 {
                    if last.insert(d, b).is_none() {
                        pairs.entry(d).or_default().push((kernel[a], kernel[b]));
                    }
                }
            }
            last.into_iter().for_each(|(d, b)| pairs.entry(d).or_default().push((kernel[a], kernel[b])));
        }
        for list in pairs.values_mut() {
            list.dedup();
            *list = spread(list, SAMPLED);
        }
        let threads = |k: usize| -> Vec<usize> {
            topo.core_cpus(k).iter().map(|c| kernel[c.index()]).filter(|c| usable(*c)).collect()
        };
        let core = (0..topo.nr_cores()).map(threads).max_by_key(Vec::len).filter(|c| c.len() > 1).unwrap_or_default();
        let single = spread(&cpus, SAMPLED).into_iter().map(|c| kernel[c]).collect();
        Places { single, pairs, core, first_remote: topo.first_remote() }
    }

    /// Pairs of different cores, the nearest class there is.
    fn near(&self) -> Option<&Vec<(usize, usize)>> {
        self.pairs.range(2..).next().map(|(_, pairs)| pairs)
    }

    fn remote(&self) -> Option<&Vec<(usize, usize)>> {
        self.pairs.range(self.first_remote..).next().map(|(_, pairs)| pairs)
    }
}

/// At most `n` of a list, evenly.
fn spread<T: Copy>(all: &[T], n: usize) -> Vec<T> {
    if all.len() <= n { all.to_vec() } else { (0..n).map(|i| all[i * all.len() / n]).collect() }
}

/// What an experiment needs to know of the machine.
pub struct Facts {
    /// Where to measure.
    pub places: Places,
    /// Ticks a second.
    pub hz: u32,
    /// A working set that a core's private cache holds, in KiB; a power of two.
    pub refill_kib: usize,
    /// Memory that no cache holds, in bytes.
    pub memory_bytes: usize,
}

/// One kind of experiment; a round gives its number.
struct Experiment<'a> {
    /// Every so many rounds.
    every: usize,
    run: Box<Run<'a>>,
}

/// Takes the number of the round; `None` if nothing was measured.
type Run<'a> = dyn FnMut(usize, &mut Samples) -> Option<()> + 'a;

fn put(samples: &mut Samples, what: What, value: f64) {
    samples.entry(what).or_default().push(value);
}

/// Runs them for about `budget`. `None`: stopped by `progress`.
pub fn run(facts: &Facts, budget: Duration, progress: &mut Progress<'_>) -> Option<Samples> {
    let began = Instant::now();
    let mut experiments = experiments(facts);
    let mut samples = Samples::new();
    for round in 0..ROUNDS_MAX {
        if round >= ROUNDS_MIN && began.elapsed() > budget {
            break;
        }
        for e in &mut experiments {
            if round % e.every == 0 {
                // What cannot be measured stays without samples.
                let _ = (e.run)(round, &mut samples);
            }
            if !progress((began.elapsed().as_secs_f64() / budget.as_secs_f64()).min(1.0)) {
                return None;
            }
        }
    }
    Some(samples)
}

fn experiments<'a>(facts: &'a Facts) -> Vec<Experiment<'a>> {
    let mut all: Vec<Experiment<'a>> = Vec::new();
    let places = &facts.places;
    let single = |round: usize| places.single[round % places.single.len()];
    let mut one = |what: What, every: usize, f: Box<dyn Fn(usize) -> Option<f64> + 'a>| {
        let run = Box::new(move |round: usize, samples: &mut Samples| {
            put(samples, what, f(single(round / every))?);
            Some(())
        });
        all.push(Experiment { every, run });
    };
    one(What::Hit, 1, Box::new(memory::hit));
    one(What::Atomic, 1, Box::new(memory::atomic));
    one(What::ClockRead, 1, Box::new(memory::clock_read));
    one(What::Syscall, 1, Box::new(calls::getppid));
    one(What::FutexMismatch, 1, Box::new(calls::futex_mismatch));
    one(What::Yield, 1, Box::new(calls::sched_yield));
    one(What::TimerProgram, 1, Box::new(calls::timer_program));
    one(What::TimerGap, 1, Box::new(interrupts::timer));
    one(What::TickGap, 2, Box::new(|cpu| interrupts::tick(cpu, facts.hz)));
    one(What::IdleTimer, WAKE_UPS_EVERY, Box::new(traced::idle_timer));
    one(What::PipeSmall, 1, Box::new(|cpu| calls::pipe(cpu, SMALL)));
    one(What::PipeLarge, 1, Box::new(|cpu| calls::pipe(cpu, LARGE)));
    one(What::Socket, 1, Box::new(|cpu| calls::socket(cpu, SMALL)));

    let run = Box::new(move |round, samples: &mut Samples| {
        // The yield of this round, which was measured just before.
        let alone = *samples.get(&What::Yield)?.last()?;
        let (ns, yields, switches) = wakeups::yields(single(round))?;
        put(samples, What::Switch, ((ns - yields * alone) / switches.max(1.0)).max(0.0));
        Some(())
    });
    all.push(Experiment { every: 1, run });
    let run = Box::new(move |round, samples: &mut Samples| {
        let cpu = single(round);
        let p = wakeups::ping_pong(cpu, cpu)?;
        put(samples, What::PingPong, p.half);
        put(samples, What::Wake, p.wake);
        Some(())
    });
    all.push(Experiment { every: 1, run });

    for (&class, pairs) in &places.pairs {
        let mut pair = |what: What, f: Box<dyn Fn(usize, usize) -> Option<f64> + 'a>| {
            let run = Box::new(move |round, samples: &mut Samples| {
                let (a, b) = pairs[round % pairs.len()];
                let (a, b) = if round / pairs.len() % 2 == 0 { (a, b) } else { (b, a) };
                put(samples, what, f(a, b)?);
                Some(())
            });
            all.push(Experiment { every: 1, run });
        };
        pair(What::Transfer(class), Box::new(memory::transfer));
        pair(What::Ping(class), Box::new(memory::ping));
        pair(What::Refill(class), Box::new(|a, b| memory::refill(a, b, facts.refill_kib)));
    }
    if let Some(near) = places.near() {
        let run = Box::new(move |round: usize, samples: &mut Samples| {
            let (a, b) = near[round % near.len()];
            put(samples, What::NearPct, memory::speed_beside(&[a, b])?);
            Some(())
        });
        all.push(Experiment { every: 4, run });
        let at = |round: usize| near[round % near.len()];
        let run = Box::new(move |round, samples: &mut Samples| {
            let (a, b) = at(round / WAKE_UPS_EVERY);
            for (i, wakes) in wakeups::wake_idle(a, b, WARM_UP, &IDLE_WAKES)?.into_iter().enumerate() {
                for wake in wakes {
                    put(samples, What::WakeIdle(i), wake.latency);
                    if i == HALTED {
                        put(samples, What::WakeIdleCall, wake.call);
                    }
                }
            }
            Some(())
        });
        all.push(Experiment { every: WAKE_UPS_EVERY, run });
    }
    for (remote, pairs) in [(false, places.near()), (true, places.remote())] {
        // Of a machine whose CPUs are all of different nodes the nearest pair is remote.
        let Some(pairs) = pairs.filter(|p| remote || places.remote() != Some(*p)) else { continue };
        let mut membarrier = None;
        let run = Box::new(move |round: usize, samples: &mut Samples| {
            if membarrier.is_none() {
                membarrier = Membarrier::new();
            }
            let (a, b) = pairs[round % pairs.len()];
            let Ipi { call, gap, after } = interrupts::ipi(membarrier.as_ref()?, a, b)?;
            put(samples, What::IpiCall { remote }, call);
            put(samples, What::IpiGap, gap);
            put(samples, What::IpiAfter, after);
            Some(())
        });
        all.push(Experiment { every: 1, run });
    }
    for busy in 2..=places.core.len() {
        let run = Box::new(move |_, samples: &mut Samples| {
            put(samples, What::SmtPct(busy), memory::speed_beside(&places.core[..busy])?);
            Some(())
        });
        all.push(Experiment { every: 1, run });
    }
    let mut chain: Option<Memory> = None;
    let run = Box::new(move |_, samples: &mut Samples| {
        let cpu = single(0);
        if chain.is_none() {
            chain = Memory::new(cpu, facts.memory_bytes);
        }
        put(samples, What::Memory, chain.as_mut()?.chase(cpu)?);
        Some(())
    });
    all.push(Experiment { every: 1, run });
    all
}
