//! What a trace says in all: each vCPU's time by run state, its dispatches, wake-ups and migrations; each pCPU's tickles.
//!
//! Times come from the records of run-state changes alone. The first change of a vCPU says in which state it was before:
//! it was in that since the trace's first record, since every change is recorded. So each vCPU's times add up to the length
//! of the trace. Where a change does not follow from the one before (records were lost), the time between counts as
//! unknown.

use std::collections::BTreeMap;

use contend_platform::CpuId;
use hdrhistogram::Histogram;

use super::{Clock, Record, RunState, VcpuId, XenEvent};

/// vCPUs that are kept apart at most.
const VCPUS_MAX: usize = 16_384;

/// The figures of a trace.
#[derive(Clone, Debug)]
pub struct Summary {
    /// From the earliest to the latest record, in ns.
    pub duration_ns: u64,
    /// By domain and number, idle vCPUs included.
    pub vcpus: Vec<VcpuSummary>,
    /// By number, of every pCPU that reported or was named.
    pub pcpus: Vec<PcpuSummary>,
    /// Records by the event's name.
    pub events: BTreeMap<&'static str, u64>,
    /// Run-state changes that do not follow from the vCPU's change before.
    pub unchained: u64,
    /// Records about vCPUs beyond the 16,384th, which are in [`Self::events`] alone.
    pub beyond: u64,
}

/// A vCPU.
#[derive(Clone, Debug)]
pub struct VcpuSummary {
    /// Which.
    pub vcpu: VcpuId,
    /// Time in each [`RunState`], by its number, in ns.
    pub state_ns: [u64; 4],
    /// Time in a state that the trace does not tell, in ns.
    pub unknown_ns: u64,
    /// Running time by pCPU, in ns.
    pub running_on_ns: BTreeMap<u16, u64>,
    /// Changes to running.
    pub dispatches: u64,
    /// Changes from blocked to runnable.
    pub wakeups: u64,
    /// Dispatches on another pCPU than the time before.
    pub migrations: u64,
    /// Times it gave way of itself.
    pub yields: u64,
    /// Changes from running to runnable without a yield since the dispatch; idle vCPUs have none.
    pub preemptions: u64,
    /// Passes of the scheduler that left it running.
    pub continued: u64,
    /// Lengths of runs that both begin and end in the trace, in ns.
    pub run_ns: Histogram<u32>,
    /// From the change to runnable (from blocked or offline) to the dispatch, in ns.
    pub wake_to_run_ns: Histogram<u32>,
}

/// A pCPU.
#[derive(Clone, Debug, Default)]
pub struct PcpuSummary {
    /// Which.
    pub cpu: u16,
    /// Time in which its idle vCPU ran, in ns.
    pub idle_ns: u64,
    /// Time in which another ran, in ns.
    pub busy_ns: u64,
    /// The rest: between two vCPUs, or not known, in ns.
    pub other_ns: u64,
    /// Changes from one vCPU to another.
    pub switches: u64,
    /// Passes of the scheduler.
    pub passes: u64,
    /// Tickles of this pCPU while it idled.
    pub tickled_idle: u64,
    /// Tickles while a vCPU ran.
    pub tickled_busy: u64,
    /// Tickles between two vCPUs, or while it is not known who ran.
    pub tickled_other: u64,
    /// Records that it reported.
    pub records: u64,
}

/// Adds records up, which come in the order of time.
#[derive(Debug)]
pub struct Summarizer {
    clock: Clock,
    start: Option<u64>,
    end: u64,
    vcpus: BTreeMap<VcpuId, Vcpu>,
    pcpus: Vec<Option<Pcpu>>,
    events: BTreeMap<&'static str, u64>,
    unchained: u64,
    beyond: u64,
}

#[derive(Debug)]
struct Vcpu {
    /// Times are ticks here until the end.
    figures: VcpuSummary,
    state: Option<RunState>,
    since: u64,
    /// Whether `since` is when the state began.
    whole: bool,
    /// Whether it became runnable from blocked or offline.
    woken: bool,
    yielded: bool,
    cpu: Option<CpuId>,
}

#[derive(Debug, Default)]
struct Pcpu {
    figures: PcpuSummary,
    /// Who runs, and since when.
    on: Option<VcpuId>,
    since: u64,
    /// Whether `on` was ever known.
    seen: bool,
}

fn record(histogram: &mut Histogram<u32>, ns: u64) {
    histogram.record(ns).expect("the histogram grows");
}

impl Vcpu {
    fn new(vcpu: VcpuId, start: u64) -> Self {
        let histogram = || Histogram::new(2).expect("two digits are possible");
        let figures = VcpuSummary {
            vcpu,
            state_ns: [0; 4],
            unknown_ns: 0,
            running_on_ns: BTreeMap::new(),
            dispatches: 0,
            wakeups: 0,
            migrations: 0,
            yields: 0,
            preemptions: 0,
            continued: 0,
            run_ns: histogram(),
            wake_to_run_ns: histogram(),
        };
        Self { figures, state: None, since: start, whole: false, woken: false, yielded: false, cpu: None }
    }

    /// Books the time up to `now`, which it spent in `state`.
    fn book(&mut self, state: Option<RunState>, now: u64) -> u64 {
        let ticks = now.saturating_sub(self.since);
        match state {
            Some(state) => self.figures.state_ns[state as usize] += ticks,
            None => self.figures.unknown_ns += ticks,
        }
        if let (Some(RunState::Running), Some(cpu)) = (state, self.cpu) {
            *self.figures.running_on_ns.entry(cpu.0).or_default() += ticks;
        }
        self.since = self.since.max(now);
        ticks
    }

    /// A change that `cpu` reports. Whether it follows from the one before.
    fn change(&mut self, now: u64, cpu: CpuId, old: RunState, new: RunState, clock: Clock) -> bool {
        let follows = self.state.is_none_or(|state| state == old);
        if old == RunState::Running && follows {
            self.cpu.get_or_insert(cpu);
        }
        let ticks = self.book(follows.then_some(old), now);
        let whole = follows && self.whole;
        if whole && old == RunState::Running {
            record(&mut self.figures.run_ns, clock.ns(ticks));
        }
        if whole && old == RunState::Runnable && new == RunState::Running && self.woken {
            record(&mut self.figures.wake_to_run_ns, clock.ns(ticks));
        }
        self.figures.wakeups += u64::from((old, new) == (RunState::Blocked, RunState::Runnable));
        let preempted = (old, new) == (RunState::Running, RunState::Runnable) && !self.yielded;
        self.figures.preemptions += u64::from(preempted && !self.figures.vcpu.is_idle());
        self.woken = new == RunState::Runnable && old != RunState::Running;
        if new == RunState::Running {
            self.figures.dispatches += 1;
            self.figures.migrations += u64::from(self.cpu.is_some_and(|last| last != cpu));
            self.cpu = Some(cpu);
            self.yielded = false;
        }
        self.state = Some(new);
        self.whole = true;
        follows
    }
}

impl Pcpu {
    fn book(&mut self, now: u64) {
        let ticks = now.saturating_sub(self.since);
        match self.on {
            Some(vcpu) if vcpu.is_idle() => self.figures.idle_ns += ticks,
            Some(_) => self.figures.busy_ns += ticks,
            None => self.figures.other_ns += ticks,
        }
        self.since = self.since.max(now);
    }

    fn change(&mut self, now: u64, vcpu: VcpuId, old: RunState, new: RunState) {
        if old == RunState::Running {
            if !self.seen {
                self.on = Some(vcpu);
            }
            self.book(now);
            self.on = None;
        }
        if new == RunState::Running {
            self.book(now);
            self.on = Some(vcpu);
        }
        self.seen |= old == RunState::Running || new == RunState::Running;
    }
}

impl Summarizer {
    /// Nothing yet. `clock`: of the trace's time stamps.
    pub fn new(clock: Clock) -> Self {
        Self {
            clock,
            start: None,
            end: 0,
            vcpus: BTreeMap::new(),
            pcpus: Vec::new(),
            events: BTreeMap::new(),
            unchained: 0,
            beyond: 0,
        }
    }

    /// Adds a record.
    pub fn add(&mut self, record: &Record) {
        let now = record.tsc;
        self.start.get_or_insert(now);
        self.end = self.end.max(now);
        *self.events.entry(record.event.name()).or_default() += 1;
        let reporting = self.pcpu(record.cpu);
        reporting.figures.records += 1;
        match record.event {
            XenEvent::Runstate { vcpu, old, new } => self.change(record, vcpu, old, new),
            XenEvent::RunstateContinue { vcpu } => {
                let Some(v) = self.vcpu(vcpu) else { return };
                v.figures.continued += 1;
                if v.state != Some(RunState::Running) {
                    // Its first record, or one after a gap: it has been running for a time that nobody knows.
                    let known = v.state.is_some();
                    v.cpu.get_or_insert(record.cpu);
                    v.book((!known).then_some(RunState::Running), now);
                    v.state = Some(RunState::Running);
                    v.whole = false;
                    self.unchained += u64::from(known);
                }
            }
            XenEvent::Yield { vcpu } => {
                if let Some(v) = self.vcpu(vcpu) {
                    v.figures.yields += 1;
                    v.yielded = true;
                }
            }
            XenEvent::Switch { .. } => reporting.figures.switches += 1,
            XenEvent::Credit1Tickle { cpu } | XenEvent::Credit2Tickle { cpu } | XenEvent::RtdsTickle { cpu } => {
                let p = self.pcpu(cpu);
                let count = match p.on {
                    Some(vcpu) if vcpu.is_idle() => &mut p.figures.tickled_idle,
                    Some(_) => &mut p.figures.tickled_busy,
                    None => &mut p.figures.tickled_other,
                };
                *count += 1;
            }
            XenEvent::Credit1Schedule { .. } | XenEvent::Credit2Schedule { .. } | XenEvent::RtdsSchedule { .. } => {
                reporting.figures.passes += 1;
            }
            _ => {}
        }
    }

    fn change(&mut self, record: &Record, vcpu: VcpuId, old: RunState, new: RunState) {
        self.pcpu(record.cpu).change(record.tsc, vcpu, old, new);
        let clock = self.clock;
        let Some(v) = self.vcpu(vcpu) else { return };
        let follows = v.change(record.tsc, record.cpu, old, new, clock);
        self.unchained += u64::from(!follows);
    }

    fn vcpu(&mut self, vcpu: VcpuId) -> Option<&mut Vcpu> {
        let start = self.start.unwrap_or(0);
        if self.vcpus.len() >= VCPUS_MAX && !self.vcpus.contains_key(&vcpu) {
            self.beyond += 1;
            return None;
        }
        Some(self.vcpus.entry(vcpu).or_insert_with(|| Vcpu::new(vcpu, start)))
    }

    fn pcpu(&mut self, cpu: CpuId) -> &mut Pcpu {
        let start = self.start.unwrap_or(0);
        let index = usize::from(cpu.0);
        if self.pcpus.len() <= index {
            self.pcpus.resize_with(index + 1, || None);
        }
        self.pcpus[index].get_or_insert_with(|| Pcpu {
            figures: PcpuSummary { cpu: cpu.0, ..PcpuSummary::default() },
            since: start,
            ..Pcpu::default()
        })
    }

    /// The figures.
    pub fn finish(self) -> Summary {
        let Self { clock, start, end, vcpus, pcpus, events, unchained, beyond } = self;
        let vcpus = vcpus.into_values().map(|mut v| {
            v.book(v.state, end);
            let f = &mut v.figures;
            f.state_ns.iter_mut().chain(f.running_on_ns.values_mut()).for_each(|t| *t = clock.ns(*t));
            f.unknown_ns = clock.ns(f.unknown_ns);
            v.figures
        });
        let pcpus = pcpus.into_iter().flatten().map(|mut p| {
            p.book(end);
            let f = &mut p.figures;
            for ticks in [&mut f.idle_ns, &mut f.busy_ns, &mut f.other_ns] {
                *ticks = clock.ns(*ticks);
            }
            p.figures
        });
        let duration_ns = clock.ns(end - start.unwrap_or(end));
        Summary { duration_ns, vcpus: vcpus.collect(), pcpus: pcpus.collect(), events, unchained, beyond }
    }
}
