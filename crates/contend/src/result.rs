//! Results: a summary object and tables of columns; `docs/results.md` is their reference.
//!
//! A stored result is a directory: `summary.json`, one `.arrow` file a table, and the scenario that made it with all
//! its inputs (`scenario.toml`, `machine.toml`, `inputs/`). It holds no time of day, no path and no host: the same
//! scenario gives the same bytes everywhere.

mod guest;
mod tables;
mod timeline;
mod xen;

use std::collections::BTreeMap;
use std::path::Path;

use contend_machine::Kind;
use contend_platform::{Account, CpuId};
use contend_sched::policy::groups;
use contend_sim::host::{LockReport, Outcome, RunResult};
use contend_sim::os::{MetricStore, Samples, TaskReport, histogram};
use contend_sim::program::GroupId;
use contend_workload::recording::{self, RecordingReport};
use contend_workload::spec::Origins;
use contend_workload::speed::Rescaled;
use hdrhistogram::Histogram;
use serde::Serialize;

use crate::error::RunError;
use crate::scenario::{Input, Plan};
use crate::target::{Partial, write_error};
pub use guest::{About, Guest, LockOfGuest, Preemption, PreemptionOfKind};
pub use tables::TABLES;
pub use xen::{Domain, Pool, Timed, Xen};

/// Version of the summary's keys and the tables' columns.
pub const SCHEMA: u32 = 1;

/// Locks listed in the summary; the table `locks` has all.
const LOCKS_MAX: usize = 128;

/// A finished run.
#[derive(Clone, Debug)]
pub struct Output {
    /// The summary.
    pub summary: Summary,
    /// Tables by name, as Arrow IPC files.
    pub tables: Vec<(&'static str, Vec<u8>)>,
    /// Time the run took, in s. Not stored.
    pub wall_s: f64,
    /// CPU time the run took, in s. Not stored.
    pub cpu_s: f64,
    /// How it ended.
    pub outcome: Outcome,
    scenario_toml: String,
    machine_toml: String,
    inputs: Vec<Input>,
}

/// The summary object.
#[derive(Clone, Debug, Serialize)]
#[allow(missing_docs, reason = "docs/results.md describes each key")]
pub struct Summary {
    pub schema: u32,
    pub contend: &'static str,
    pub outcome: &'static str,
    pub outcome_detail: String,
    pub machine: String,
    pub policy: String,
    pub algorithm: String,
    pub workload: String,
    pub seed: u64,
    pub set: BTreeMap<String, String>,
    pub cpus: u64,
    pub virtual_s: f64,
    pub virtual_ns: u64,
    pub dispatches: u64,
    pub events: u64,
    pub trace_hash: String,
    pub ledger_ns: Ordered<u64>,
    pub ledger_pct: Ordered<f64>,
    pub kvm: Ordered<u64>,
    pub guests_total: Option<Guest>,
    pub guests: Vec<Guest>,
    pub xen: Option<Xen>,
    pub lock_kinds: Vec<LockKind>,
    pub locks: Vec<Lock>,
    pub locks_used: u64,
    pub wakeup_latency_us: Percentiles,
    pub wakeups: Wakeups,
    pub tasks: Tasks,
    pub groups: Vec<Group>,
    pub cpu_kinds: Vec<CpuKind>,
    pub metrics: Metrics,
    pub engine: EngineSummary,
    pub recordings: Vec<String>,
    pub rescaled: Vec<RunTimes>,
    pub recorded_locks: Vec<RecordedLock>,
    pub features: Ordered<String>,
}

/// A JSON object whose keys keep their order.
#[derive(Clone, Debug)]
pub struct Ordered<V>(pub Vec<(String, V)>);

impl<V> Ordered<V> {
    /// The values, in order.
    pub fn values(&self) -> impl Iterator<Item = &V> {
        self.0.iter().map(|(_, v)| v)
    }
}

impl<V: Serialize> Serialize for Ordered<V> {
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_map(self.0.iter().map(|(k, v)| (k, v)))
    }
}

/// One lock.
#[derive(Clone, Debug, Serialize)]
#[allow(missing_docs, reason = "docs/results.md describes each key")]
pub struct Lock {
    pub name: String,
    pub kind: &'static str,
    pub acquisitions: u64,
    pub contended: u64,
    pub wait_s: f64,
    pub wait_max_us: f64,
    pub hold_s: f64,
}

/// Run times of a recording or a model on this machine.
#[derive(Clone, Debug, Serialize)]
#[allow(missing_docs, reason = "docs/results.md describes each key")]
pub struct RunTimes {
    pub file: String,
    pub recorded_speed: u64,
    pub speed: u64,
    pub run_times_x: f64,
    pub said: String,
}

fn rescaled(r: &Rescaled) -> RunTimes {
    let Rescaled { file, recorded, here, .. } = r.clone();
    RunTimes { file, recorded_speed: recorded, speed: here, run_times_x: 1.0 / r.factor(), said: r.to_string() }
}

/// A lock of a recording's kernel that its tasks waited for.
#[derive(Clone, Debug, Serialize)]
#[allow(missing_docs, reason = "docs/results.md describes each key")]
pub struct RecordedLock {
    pub recording: String,
    pub lock: u32,
    pub address: String,
    pub kind: &'static str,
    pub contended: u64,
    pub wait_s: f64,
    pub wait_max_us: f64,
}

/// All locks of one kind.
#[derive(Clone, Debug, Serialize)]
#[allow(missing_docs, reason = "docs/results.md describes each key")]
pub struct LockKind {
    pub kind: &'static str,
    pub locks: u64,
    pub acquisitions: u64,
    pub contended: u64,
    pub wait_s: f64,
    pub hold_s: f64,
}

/// A distribution in the percentiles of schbench, in µs.
#[derive(Clone, Debug, Serialize)]
#[allow(missing_docs, reason = "docs/results.md describes each key")]
pub struct Percentiles {
    pub count: u64,
    pub mean: f64,
    pub p50: f64,
    pub p75: f64,
    pub p90: f64,
    pub p95: f64,
    pub p99: f64,
    #[serde(rename = "p99.5")]
    pub p99_5: f64,
    #[serde(rename = "p99.9")]
    pub p99_9: f64,
    pub max: f64,
}

/// Where wake-ups went.
#[derive(Clone, Debug, Serialize)]
#[allow(missing_docs, reason = "docs/results.md describes each key")]
pub struct Wakeups {
    pub from_waker: Ordered<u64>,
    pub from_previous: Ordered<u64>,
    pub idle_searches: u64,
    pub idle_searches_found: u64,
    pub probes: u64,
}

/// Sums over all tasks.
#[derive(Clone, Debug, Serialize)]
#[allow(missing_docs, reason = "docs/results.md describes each key")]
pub struct Tasks {
    pub count: u64,
    pub exited: u64,
    pub runtime_s: f64,
    pub delay_s: f64,
    pub switches: u64,
    pub preempted: u64,
    pub migrations: u64,
}

/// A group of tasks, the groups within it included.
#[derive(Clone, Debug, Serialize)]
#[allow(missing_docs, reason = "docs/results.md describes each key")]
pub struct Group {
    pub name: String,
    pub weight: u64,
    pub tasks: u64,
    pub runtime_s: f64,
    pub runtime_share: f64,
    pub delay_s: f64,
    /// `null`: the group has no limit.
    pub bandwidth: Option<Bandwidth>,
}

/// A group's limit, and what `cpu.stat` shows of it.
#[derive(Clone, Debug, Serialize)]
#[allow(missing_docs, reason = "docs/results.md describes each key")]
pub struct Bandwidth {
    pub quota_us: u64,
    pub period_us: u64,
    pub burst_us: u64,
    pub nr_periods: u64,
    pub nr_throttled: u64,
    pub throttled_s: f64,
    pub nr_bursts: u64,
    pub burst_s: f64,
}

/// The CPUs of one kind, on a machine that has several.
#[derive(Clone, Debug, Serialize)]
#[allow(missing_docs, reason = "docs/results.md describes each key")]
pub struct CpuKind {
    pub name: String,
    pub cpus: String,
    pub nr_cpus: u64,
    pub capacity: u64,
    pub runtime_s: f64,
    pub runtime_share: f64,
    pub busy_share: f64,
    pub misfit_s: f64,
}

/// What programs reported.
#[derive(Clone, Debug, Serialize)]
#[allow(missing_docs, reason = "docs/results.md describes each key")]
pub struct Metrics {
    pub counts: BTreeMap<&'static str, Rate>,
    pub latencies_us: BTreeMap<&'static str, Percentiles>,
}

/// A count and its rate in virtual time.
#[derive(Clone, Debug, Serialize)]
#[allow(missing_docs, reason = "docs/results.md describes each key")]
pub struct Rate {
    pub count: u64,
    pub per_s: f64,
}

/// The engine's own counts.
#[derive(Clone, Debug, Serialize)]
#[allow(missing_docs, reason = "docs/results.md describes each key")]
pub struct EngineSummary {
    pub ipis: u64,
    pub interrupts: u64,
    pub line_transfers: Ordered<u64>,
}

fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

pub(crate) fn percentiles(h: &Histogram<u64>) -> Percentiles {
    let at = |q: f64| if h.is_empty() { 0.0 } else { h.value_at_quantile(q) as f64 / 1e3 };
    Percentiles {
        count: h.len(),
        mean: h.mean() / 1e3,
        p50: at(0.5),
        p75: at(0.75),
        p90: at(0.9),
        p95: at(0.95),
        p99: at(0.99),
        p99_5: at(0.995),
        p99_9: at(0.999),
        max: h.max() as f64 / 1e3,
    }
}

/// The recorded locks with the longest waits.
pub(crate) fn recorded_locks(report: &RecordingReport) -> Vec<RecordedLock> {
    let row = |l: &recording::RecordedLock| RecordedLock {
        recording: report.file.clone(),
        lock: l.number,
        address: format!("{:#x}", l.address),
        kind: l.kind,
        contended: l.contended,
        wait_s: seconds(l.wait_ns),
        wait_max_us: l.wait_max_ns as f64 / 1e3,
    };
    report.locks.iter().take(LOCKS_MAX).map(row).collect()
}

fn lock(l: &LockReport) -> Lock {
    Lock {
        name: l.name.clone(),
        kind: l.kind,
        acquisitions: l.stats.acquisitions,
        contended: l.stats.contended,
        wait_s: seconds(l.stats.wait_ns),
        wait_max_us: l.stats.wait_ns_max as f64 / 1e3,
        hold_s: seconds(l.stats.hold_ns),
    }
}

fn lock_kinds<'a>(locks: impl Iterator<Item = &'a LockReport>) -> Vec<LockKind> {
    let mut kinds: BTreeMap<&'static str, (u64, u64, u64, u64, u64)> = BTreeMap::new();
    for l in locks {
        let k = kinds.entry(l.kind).or_default();
        k.0 += 1;
        k.1 += l.stats.acquisitions;
        k.2 += l.stats.contended;
        k.3 += l.stats.wait_ns;
        k.4 += l.stats.hold_ns;
    }
    let row = |(kind, (locks, acquisitions, contended, wait, hold))| LockKind {
        kind,
        locks,
        acquisitions,
        contended,
        wait_s: seconds(wait),
        hold_s: seconds(hold),
    };
    kinds.into_iter().map(row).collect()
}

fn task_sums<'a>(tasks: impl Iterator<Item = &'a TaskReport>) -> Tasks {
    let mut sums =
        Tasks { count: 0, exited: 0, runtime_s: 0.0, delay_s: 0.0, switches: 0, preempted: 0, migrations: 0 };
    let (mut runtime, mut delay) = (0, 0);
    for t in tasks {
        sums.count += 1;
        sums.exited += u64::from(t.exited.is_some());
        runtime += t.run.sum_exec;
        delay += t.run.wait_sum;
        sums.switches += t.run.switches;
        sums.preempted += t.run.preempted;
        sums.migrations += t.run.nr_migrations;
    }
    Tasks { runtime_s: seconds(runtime), delay_s: seconds(delay), ..sums }
}

/// The groups that the kernel made, each with what its tasks had.
fn groups(plan: &Plan, r: &RunResult) -> Vec<Group> {
    let all: u64 = r.tasks.iter().map(|t| t.run.sum_exec).sum();
    let mut sums = vec![(0, 0, 0); r.groups.len() + 1];
    for t in &r.tasks {
        for group in r.groups.path(t.group) {
            let sum = &mut sums[group.0 as usize];
            *sum = (sum.0 + 1, sum.1 + t.run.sum_exec, sum.2 + t.run.wait_sum);
        }
    }
    let sessions = plan.features.autogroup && plan.has_groups();
    let made = r.groups.iter().filter(|(_, g)| sessions || !g.session);
    let row = |(id, g): (GroupId, &groups::Group)| {
        let (tasks, runtime, delay) = sums[id.0 as usize];
        let stat = r.bandwidth.iter().find(|(limited, _)| *limited == id).map(|(_, stat)| stat);
        let bandwidth = g.limit.zip(stat).map(|(limit, stat)| Bandwidth {
            quota_us: limit.quota / 1000,
            period_us: limit.period / 1000,
            burst_us: limit.burst / 1000,
            nr_periods: stat.nr_periods,
            nr_throttled: stat.nr_throttled,
            throttled_s: seconds(stat.throttled_ns),
            nr_bursts: stat.nr_bursts,
            burst_s: seconds(stat.burst_ns),
        });
        Group {
            name: g.name.clone(),
            weight: groups::weight_of(g.shares),
            tasks,
            runtime_s: seconds(runtime),
            runtime_share: runtime as f64 / all.max(1) as f64,
            delay_s: seconds(delay),
            bandwidth,
        }
    };
    made.map(row).collect()
}

/// The kinds of CPUs, each with what ran there. (Xen knows of none, and books what its pCPUs run elsewhere.)
fn cpu_kinds(plan: &Plan, r: &RunResult) -> Vec<CpuKind> {
    if plan.xen.is_some() {
        return Vec::new();
    }
    let topo = &plan.machine.topology;
    let of = |kind: usize| {
        r.cpus.iter().enumerate().filter(move |(c, _)| topo.kind_of(CpuId(*c as u16)) == kind).map(|(_, c)| c)
    };
    let ran = |kind: usize| of(kind).map(|c| c.stats.rq_cpu_time).sum::<u64>();
    let all: u64 = (0..topo.kinds().len()).map(ran).sum();
    let row = |(k, kind): (usize, &Kind)| {
        let nr_cpus = of(k).count() as u64;
        let idle: u64 = of(k).map(|c| c.ledger[Account::Idle as usize]).sum();
        CpuKind {
            name: kind.name.clone(),
            cpus: kind.cpus.clone(),
            nr_cpus,
            capacity: plan.machine.costs.cpu.capacity[k].value,
            runtime_s: seconds(ran(k)),
            runtime_share: ran(k) as f64 / all.max(1) as f64,
            busy_share: 1.0 - idle as f64 / (nr_cpus * r.virtual_ns).max(1) as f64,
            misfit_s: seconds(of(k).map(|c| c.stats.misfit_time).sum()),
        }
    };
    topo.kinds().iter().enumerate().map(row).collect()
}

/// What programs of host or guests reported, as one.
fn reported<'a>(stores: impl Iterator<Item = &'a MetricStore>) -> MetricStore {
    let mut all = MetricStore::default();
    for store in stores {
        store.counts.iter().for_each(|(name, n)| *all.counts.entry(name).or_default() += n);
        for (name, s) in &store.latencies {
            let samples = all.latencies.entry(name).or_insert_with(|| Samples { histogram: histogram() });
            samples.histogram.add(&s.histogram).expect("histograms of one size");
        }
    }
    all
}

fn metrics_summary(plan: &Plan, r: &RunResult, m: &MetricStore) -> Metrics {
    Metrics {
        counts: m.counts.iter().map(|(name, &count)| (*name, Rate { count, per_s: per_s(plan, r, count) })).collect(),
        latencies_us: m.latencies.iter().map(|(name, s)| (*name, percentiles(&s.histogram))).collect(),
    }
}

/// The output of a run; times taken are the caller's to add.
pub(crate) fn summarise(plan: &Plan, r: &RunResult, origins: &Origins, inputs: BTreeMap<String, Input>) -> Output {
    let topo = &plan.machine.topology;
    let by_distance = |counts: &[u64]| {
        Ordered(counts.iter().enumerate().map(|(d, n)| (topo.distance_name(d).to_string(), *n)).collect())
    };
    let virtual_s = seconds(r.virtual_ns);
    let mut used: Vec<&LockReport> = r.locks.iter().filter(|l| l.stats.acquisitions > 0).collect();
    let locks_used = used.len() as u64;
    // Stable: locks of equal waits stay in the order of the run.
    used.sort_by_key(|l| std::cmp::Reverse(l.stats.wait_ns));
    let mut set: BTreeMap<String, String> = plan.features_set().into_iter().map(|(k, v)| (k.to_string(), v)).collect();
    if let Some(xen) = &plan.xen {
        set.extend(xen.features_set().into_iter().map(|(k, v)| (format!("xen.{k}"), v)));
    }
    set.extend(plan.kvm_set().into_iter().map(|(k, v)| (format!("kvm.{k}"), v)));
    set.extend(plan.groups_set());
    set.extend(plan.machine_set.iter().map(|(k, v)| (format!("machine.{k}"), v.clone())));

    let metrics = reported(std::iter::once(&r.metrics).chain(r.guests.iter().map(|g| &g.metrics)));
    let accounts = std::iter::zip(Account::ALL, r.ledger());
    let total = accounts.clone().map(|(_, ns)| ns).sum::<u64>().max(1) as f64;
    let mut features: Vec<(String, String)> = match &plan.xen {
        Some(xen) => xen::features(xen),
        None => plan.features.list().into_iter().map(|f| (f.key.into(), f.value)).collect(),
    };
    if !plan.guests.is_empty() && plan.xen.is_none() {
        features.extend(plan.kvm.list().into_iter().map(|f| (format!("kvm.{}", f.key), f.value)));
    }

    let summary = Summary {
        schema: SCHEMA,
        contend: env!("CARGO_PKG_VERSION"),
        outcome: r.outcome.name(),
        outcome_detail: r.outcome.detail(),
        machine: plan.machine_base.name.clone(),
        policy: plan.policy_name(),
        algorithm: plan.algorithm(),
        workload: match (&plan.workload, &plan.xen) {
            (Some(workload), _) => workload.kind().into(),
            (None, None) => "guests".into(),
            (None, Some(_)) => "domains".into(),
        },
        seed: plan.seed,
        set,
        cpus: r.cpus.len() as u64,
        virtual_s,
        virtual_ns: r.virtual_ns,
        dispatches: r.dispatches,
        events: r.counts.events,
        trace_hash: format!("{:016x}", r.trace_hash),
        ledger_ns: Ordered(accounts.clone().map(|(a, ns)| (a.name().into(), ns)).collect()),
        ledger_pct: Ordered(accounts.map(|(a, ns)| (a.name().into(), 100.0 * ns as f64 / total)).collect()),
        kvm: guest::kvm(r),
        guests_total: guest::total(plan, r),
        guests: guest::each(plan, r),
        xen: xen::summary(plan, r),
        lock_kinds: lock_kinds(r.locks.iter()),
        locks: used.iter().take(LOCKS_MAX).map(|l| lock(l)).collect(),
        locks_used,
        wakeup_latency_us: percentiles(&r.observed.wakeup_latency),
        wakeups: Wakeups {
            from_waker: by_distance(&r.observed.wakeups_from_waker),
            from_previous: by_distance(&r.observed.wakeups_from_prev),
            idle_searches: r.observed.idle_searches,
            idle_searches_found: r.observed.idle_searches_found,
            probes: r.observed.probes,
        },
        tasks: task_sums(r.tasks.iter()),
        groups: groups(plan, r),
        cpu_kinds: cpu_kinds(plan, r),
        metrics: metrics_summary(plan, r, &metrics),
        engine: EngineSummary {
            ipis: r.counts.ipis,
            interrupts: r.counts.interrupts,
            line_transfers: by_distance(&r.transfers),
        },
        recorded_locks: origins.recordings.iter().flat_map(recorded_locks).collect(),
        recordings: origins.recordings.iter().map(ToString::to_string).collect(),
        rescaled: origins.rescaled.iter().filter(|r| r.recorded == 0 || r.recorded != r.here).map(rescaled).collect(),
        features: Ordered(features),
    };
    let stored = inputs.iter().map(|(name, i)| (name.clone(), i.stored.clone())).collect();
    Output {
        tables: tables::all(plan, r, &metrics),
        summary,
        wall_s: 0.0,
        cpu_s: 0.0,
        outcome: r.outcome.clone(),
        scenario_toml: plan.resolved_toml(&stored),
        machine_toml: plan.machine_base.to_toml(),
        inputs: inputs.into_values().collect(),
    }
}

/// A program's count over the virtual time in which it counted.
fn per_s(plan: &Plan, r: &RunResult, count: u64) -> f64 {
    let counted = r.virtual_ns.saturating_sub(plan.warmup_ns);
    if counted == 0 { 0.0 } else { count as f64 / seconds(counted) }
}

impl Output {
    /// The summary as stored: one JSON object, a line break at the end.
    pub fn summary_json(&self) -> String {
        serde_json::to_string_pretty(&self.summary).expect("plain values") + "\n"
    }

    /// The scenario that makes this result again.
    pub fn scenario_toml(&self) -> &str {
        &self.scenario_toml
    }

    /// Store the result in the directory `dir`. It appears whole or not at all; a result that stands there is
    /// replaced.
    ///
    /// # Errors
    /// Something else stands there, or the system refuses.
    pub fn write(&self, dir: &Path) -> Result<(), RunError> {
        check_target(dir)?;
        let partial = Partial::beside(dir);
        let fail = |e: std::io::Error| write_error(dir, &e);
        if let Some(parent) = dir.parent().filter(|p| !p.as_os_str().is_empty()) {
            std::fs::create_dir_all(parent).map_err(fail)?;
        }
        std::fs::create_dir(&partial.0).map_err(fail)?;
        let put = |name: &str, bytes: &[u8]| std::fs::write(partial.0.join(name), bytes).map_err(fail);
        put("summary.json", self.summary_json().as_bytes())?;
        put("scenario.toml", self.scenario_toml.as_bytes())?;
        put("machine.toml", self.machine_toml.as_bytes())?;
        for (name, bytes) in &self.tables {
            put(&format!("{name}.arrow"), bytes)?;
        }
        if !self.inputs.is_empty() {
            std::fs::create_dir(partial.0.join("inputs")).map_err(fail)?;
        }
        for input in &self.inputs {
            put(&input.stored, &input.bytes)?;
        }
        if !dir.exists() {
            return partial.publish(dir);
        }
        // A directory cannot replace one that is not empty: the old result steps aside, and back if that fails.
        let old = Partial::beside(dir);
        std::fs::rename(dir, &old.0).map_err(fail)?;
        partial.publish(dir).inspect_err(|_| {
            let _ = std::fs::rename(&old.0, dir);
        })
    }
}

/// Whether a result may be stored as `dir`: nothing stands there, or an empty directory, or a result.
///
/// # Errors
/// Something else stands there.
pub fn check_target(dir: &Path) -> Result<(), RunError> {
    let refuse = |why: &str| Err(RunError::Write { file: dir.display().to_string(), why: why.into() });
    if dir.file_name().is_none() {
        return refuse("not the name of a new directory");
    }
    if !dir.exists() {
        return Ok(());
    }
    if !dir.is_dir() {
        return refuse("a file of this name exists; name a directory for the result");
    }
    let result = dir.join("summary.json").is_file() && dir.join("scenario.toml").is_file();
    let empty = std::fs::read_dir(dir).is_ok_and(|mut d| d.next().is_none());
    if result || empty { Ok(()) } else { refuse("the directory exists and is no result; name another or remove it") }
}
