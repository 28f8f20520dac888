//! `contend xen replay`: the load of a binary trace on a simulated host (`docs/xen-decisions.md`).
//!
//! Of each vCPU what it did of itself is kept: how long it ran between two times that it blocked, and how long it was
//! blocked. Waiting for a pCPU and being moved are what the simulated scheduler decides anew.

use std::collections::BTreeMap;
use std::path::Path;

use contend_machine::Machine;
use contend_platform::CpuId;
use contend_sched::xen::contract::{DomParams, Tunables};
use contend_sched::xen::features::{Scheduler, XenFeatures};
use contend_sched::xen::mask::{CpuMask, PCPUS_MAX};
use contend_sched::xen::perf::Perf;
use contend_sched::xen::units::VcpuAffinity;
use contend_sim::host::{Limits, Outcome};
use contend_sim::program::{Cx, Op, Program};
use contend_sim::xen::{Content, DomainSetup, PoolSetup, Sinks, XenSetup, simulate};
use contend_trace::TraceError;
use contend_trace::xentrace::audit::LENGTH_MAX;
use contend_trace::xentrace::{Clock, RunState, VcpuId, XenEvent, open};
use serde_json::{Value, json};

use crate::scenario::xen::domain::check_cap;
use crate::xen_trace::{XenTraceError, check_ratelimit, clock, each};

/// A domain's weight, cap and affinities, as far as they are given.
#[derive(Clone, Debug, Default)]
pub struct Given {
    /// Weight.
    pub weight: Option<u16>,
    /// Cap, % of a pCPU.
    pub cap: Option<u16>,
    /// pCPUs that its vCPUs may use; all.
    pub hard: Option<Vec<u16>>,
    /// pCPUs that they prefer; all.
    pub soft: Option<Vec<u16>>,
}

/// How a load is replayed.
#[derive(Clone, Debug)]
pub struct Replay {
    /// Frequency of the time stamps.
    pub cpu_hz: u64,
    /// `credit` or `credit2`.
    pub scheduler: String,
    /// A set of switches.
    pub preset: String,
    /// The machine; `None`: as many cores as there are pCPUs.
    pub machine: Option<String>,
    /// The rate limit, in us.
    pub ratelimit_us: u64,
    /// By domain.
    pub domains: BTreeMap<u16, Given>,
    /// Seed of the run.
    pub seed: u64,
}

/// What a vCPU did of itself, and where its time went.
#[derive(Clone, Debug, Default)]
struct Load {
    /// Running and blocked in turn, in ns; the first is a run.
    turns: Vec<u64>,
    /// It was still running or waiting at the end.
    goes_on: bool,
    state: Option<RunState>,
    since: u64,
    /// By run state, in ns.
    times: [u64; 4],
    dispatches: u64,
    moves: u64,
    on: Option<CpuId>,
}

impl Load {
    /// Time passes in the state that it is in.
    fn pass(&mut self, now: u64) {
        let Some(state) = self.state else { return };
        let passed = now.saturating_sub(self.since);
        self.since = self.since.max(now);
        self.times[state as usize] += passed;
        let blocked = match state {
            RunState::Running => false,
            RunState::Blocked => true,
            RunState::Runnable | RunState::Offline => return,
        };
        // Runs stand at even places.
        let last_is_blocked = self.turns.len().is_multiple_of(2);
        match self.turns.last_mut() {
            Some(last) if last_is_blocked == blocked => *last += passed,
            Some(_) => self.turns.push(passed),
            None if blocked => self.turns.extend([0, passed]),
            None => self.turns.push(passed),
        }
    }
}

/// Does a vCPU's turns.
struct Turns {
    turns: Vec<u64>,
    next: usize,
    /// From the beginning, when it has come to the end of them: who has not blocked at the end of the trace would have gone on.
    again: bool,
}

/// Longer than any trace, in ns.
const FOR_EVER: u64 = 1_000_000_000_000;

impl Program for Turns {
    fn next(&mut self, _: &mut Cx<'_>) -> Op {
        for _ in 0..=2 * self.turns.len() {
            let at = self.next;
            self.next += 1;
            match self.turns.get(at) {
                Some(0) => {}
                // Runs stand at even places.
                Some(ns) if at.is_multiple_of(2) => return Op::Run(*ns),
                Some(ns) => return Op::Sleep(*ns),
                None if self.again => self.next = 0,
                None => break,
            }
        }
        Op::Sleep(FOR_EVER)
    }
}

/// vCPUs that a domain can have: Xen's limit, as far as is known.
const VCPUS_MAX: u16 = 8192;

/// What a trace tells of a host's load.
struct Recording {
    vcpus: BTreeMap<VcpuId, Load>,
    length: u64,
    pcpus: usize,
    tickles: u64,
}

fn read(path: &Path, clock: Clock, go_on: &mut dyn FnMut() -> bool) -> Result<Recording, XenTraceError> {
    let mut of = Recording { vcpus: BTreeMap::new(), length: 0, pcpus: 0, tickles: 0 };
    let mut first = None;
    each(&mut open(path)?.in_time_order(), go_on, |record| {
        let now = clock.ns(record.tsc.saturating_sub(*first.get_or_insert(record.tsc)));
        of.length = of.length.max(now);
        of.pcpus = of.pcpus.max(record.cpu.index() + 1);
        match record.event {
            XenEvent::Runstate { vcpu, old, new } if !vcpu.is_idle() => {
                let load = of.vcpus.entry(vcpu).or_default();
                // Before its first record it has been as that one says since the trace began.
                load.state.get_or_insert(old);
                load.pass(now);
                load.state = Some(new);
                if new == RunState::Running {
                    load.dispatches += 1;
                    load.moves += u64::from(load.on.replace(record.cpu).is_some_and(|on| on != record.cpu));
                }
            }
            XenEvent::Credit1Tickle { .. } | XenEvent::Credit2Tickle { .. } => of.tickles += 1,
            _ => {}
        }
        Ok::<(), XenTraceError>(())
    })?;
    if of.vcpus.is_empty() {
        let found = "no change of a vCPU's run state".into();
        return Err(TraceError::Unfit { path: path.into(), found, right: "expected a host with domains".into() }.into());
    }
    if let Some(vcpu) = of.vcpus.keys().find(|v| v.vcpu >= VCPUS_MAX) {
        let right = format!("expected {VCPUS_MAX} vCPUs of a domain at most: the trace is damaged");
        return Err(TraceError::Unfit { path: path.into(), found: format!("a vCPU {vcpu}"), right }.into());
    }
    if of.length > LENGTH_MAX {
        return Err(TraceError::too_long(path.into(), of.length).into());
    }
    for load in of.vcpus.values_mut() {
        load.pass(of.length);
        load.goes_on = matches!(load.state, Some(RunState::Running | RunState::Runnable));
    }
    Ok(of)
}

/// What was recorded and what came out, as a JSON object. `go_on` is asked now and then.
///
/// # Errors
/// See [`XenTraceError`].
pub fn run(path: &Path, replay: &Replay, go_on: &mut dyn FnMut() -> bool) -> Result<Value, XenTraceError> {
    let wrong = |key: &str, found: String| XenTraceError::Option { key: key.into(), found };
    let recording = read(path, clock(replay.cpu_hz)?, go_on)?;
    let scheduler = match replay.scheduler.as_str() {
        "credit" => Scheduler::Credit,
        "credit2" => Scheduler::Credit2,
        other => return Err(wrong("scheduler", format!("found '{other}'; should be credit or credit2"))),
    };
    let features = XenFeatures::preset(&replay.preset).ok_or_else(|| {
        wrong("preset", format!("found '{}'; should be one of {}", replay.preset, XenFeatures::PRESETS.join(", ")))
    })?;
    check_ratelimit(replay.ratelimit_us)?;
    let features = XenFeatures { ratelimit_us: replay.ratelimit_us, ..features };
    if scheduler == Scheduler::Credit && features.ratelimit_us > features.tslice_ms * 1000 {
        let (us, ms) = (features.ratelimit_us, features.tslice_ms);
        return Err(wrong("ratelimit", format!("found {us}; should be no longer than Credit1's time slice, {ms} ms")));
    }
    let machine = match &replay.machine {
        Some(name) => Machine::load(name)?,
        None => Machine::synthetic(&format!("{}c", recording.pcpus))?,
    };
    let pcpus = machine.topology.nr_cpus();
    if pcpus > PCPUS_MAX {
        let right = format!("expected {PCPUS_MAX} at most");
        return Err(TraceError::Unfit { path: path.into(), found: format!("{pcpus} pCPUs"), right }.into());
    }
    let all = CpuMask::first_n(pcpus);
    let mut domains = Vec::new();
    let mut doms: Vec<u16> = recording.vcpus.keys().map(|v| v.dom).collect();
    doms.dedup();
    for (dom, given) in &replay.domains {
        let option = || {
            [(given.weight.is_some(), "weights"), (given.cap.is_some(), "cap"), (given.hard.is_some(), "hard")]
                .into_iter()
                .find_map(|(is, name)| is.then_some(name))
                .unwrap_or("soft")
        };
        if !doms.contains(dom) {
            let known: Vec<String> = doms.iter().map(|d| format!("d{d}")).collect();
            return Err(wrong(option(), format!("found d{dom}; the trace has {}", known.join(", "))));
        }
        let vcpus = recording.vcpus.keys().filter(|v| v.dom == *dom).map(|v| usize::from(v.vcpu) + 1).max();
        let cap = given.cap.unwrap_or(0);
        check_cap(u64::from(cap), vcpus.unwrap_or(0), scheduler, &features)
            .map_err(|right| wrong("cap", format!("found d{dom}={cap}; should be {right}")))?;
    }
    for dom in doms {
        let given = replay.domains.get(&dom).cloned().unwrap_or_default();
        let mask = |name: &str, cpus: &Option<Vec<u16>>| match cpus {
            None => Ok(all),
            Some(cpus) => match cpus.iter().find(|c| usize::from(**c) >= pcpus) {
                Some(cpu) => Err(wrong(name, format!("found pCPU {cpu} for d{dom}; the machine has {pcpus}"))),
                None => Ok(cpus.iter().map(|c| CpuId(*c)).collect()),
            },
        };
        let (hard, soft) = (mask("hard", &given.hard)?, mask("soft", &given.soft)?);
        if hard.is_empty() {
            return Err(wrong("hard", format!("found no pCPU for d{dom}; should be one at least")));
        }
        if !soft.intersects(&hard) {
            let right = format!("should be a set that its hard affinity meets: that is {hard:?}");
            return Err(wrong("soft", format!("found d{dom}={soft:?}; {right}")));
        }
        let affinity = VcpuAffinity { hard, soft };
        // A vCPU that the trace does not name sleeps.
        let vcpus = recording.vcpus.keys().filter(|v| v.dom == dom).map(|v| v.vcpu + 1).max().unwrap_or(0);
        let program = |vcpu: u16| -> Box<dyn Program> {
            let load = recording.vcpus.get(&VcpuId::new(dom, vcpu)).cloned().unwrap_or_default();
            Box::new(Turns { turns: load.turns, next: 0, again: load.goes_on })
        };
        let content = Content::Programs {
            name: format!("d{dom}"),
            programs: (0..vcpus).map(program).collect(),
            background: false,
        };
        let mut params = DomParams::default();
        params.weight = given.weight.unwrap_or(params.weight);
        params.cap = given.cap.unwrap_or(params.cap);
        domains.push(DomainSetup { dom, params, pool: 0, affinity: vec![affinity; usize::from(vcpus)], content });
    }
    let tunables = Tunables { ratelimit: features.ratelimit_us * 1000, tslice: features.tslice_ms * 1_000_000 };
    let setup = XenSetup {
        machine,
        scheduler,
        features,
        pools: vec![PoolSetup { name: "Pool-0".into(), cpus: all, tunables }],
        domains,
        timeline: Vec::new(),
        seed: replay.seed,
        limits: Limits { horizon: recording.length, ..Limits::default() },
    };
    let result = simulate(setup, Sinks::default(), &mut |_| go_on())
        .map_err(|source| XenTraceError::Write { path: path.into(), source })?;
    if result.outcome == Outcome::Interrupted {
        return Err(XenTraceError::Interrupted);
    }
    let xen = result.xen.as_ref().expect("a Xen host");
    let counted = |perf: Perf| xen.perf[perf as usize];
    let vcpus: Vec<Value> = xen
        .vcpus
        .iter()
        .map(|v| {
            let load = recording.vcpus.get(&v.id).cloned().unwrap_or_default();
            let side = |times: [u64; 4], dispatches: u64, moves: u64| {
                json!({"running_ns": times[0], "runnable_ns": times[1], "blocked_ns": times[2], "offline_ns": times[3],
                    "dispatches": dispatches, "migrations": moves})
            };
            json!({
                "vcpu": v.id.to_string(),
                "dom": v.id.dom,
                "recorded": side(load.times, load.dispatches, load.moves),
                "simulated": side(v.times, v.dispatches, v.moves),
            })
        })
        .collect();
    Ok(json!({
        "file": path.display().to_string(),
        "scheduler": replay.scheduler,
        "preset": replay.preset,
        "duration_ns": recording.length,
        "simulated_ns": result.virtual_ns,
        "outcome": result.outcome.name(),
        "outcome_detail": result.outcome.detail(),
        "pcpus": pcpus,
        "tickles": {"recorded": recording.tickles, "simulated": counted(Perf::TickledIdle) + counted(Perf::TickledBusy)},
        "vcpus": vcpus,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_and_moving_are_left_out() {
        use RunState::{Blocked, Offline, Runnable, Running};
        let mut load = Load::default();
        let mut go = |state, now| {
            load.pass(now);
            load.state = Some(state);
        };
        for (state, now) in [(Blocked, 0), (Runnable, 5), (Running, 7), (Runnable, 10), (Offline, 11), (Running, 12)] {
            go(state, now);
        }
        go(Blocked, 20);
        go(Running, 50);
        load.pass(51);
        // Blocked for 5, ran for 3 + 8, blocked for 30, ran for 1.
        assert_eq!(load.turns, [0, 5, 11, 30, 1]);
        assert_eq!(load.times, [12, 3, 35, 1]);
    }
}
