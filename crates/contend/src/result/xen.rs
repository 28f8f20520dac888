//! What a result says of a Xen host: the key `xen` of the summary, and the table `xen_vcpus`.

use std::collections::BTreeMap;

use contend_sched::switches::Value;
use contend_sched::xen::event::RunState;
use contend_sched::xen::perf::Perf;
use contend_sim::host::RunResult;
use contend_sim::xen::XenVcpu;
use serde::Serialize;

use super::{Ordered, seconds};
use crate::scenario::Plan;
use crate::scenario::xen::{XenPlan, cpus};
use crate::table::Table;

/// A Xen host.
#[derive(Clone, Debug, Serialize)]
#[allow(missing_docs, reason = "docs/results.md describes each key")]
pub struct Xen {
    pub scheduler: String,
    pub preset: &'static str,
    pub patches: Vec<usize>,
    pub set: BTreeMap<&'static str, String>,
    pub pools: Vec<Pool>,
    pub domains: Vec<Domain>,
    pub timeline: Vec<Timed>,
    pub not_reached: Vec<Timed>,
    pub perf: Ordered<u64>,
    pub trylocks: u64,
    pub trylocks_failed: u64,
}

/// A cpupool, as the run began.
#[derive(Clone, Debug, Serialize)]
#[allow(missing_docs, reason = "docs/results.md describes each key")]
pub struct Pool {
    pub name: String,
    pub cpus: String,
    pub ratelimit_us: u64,
    pub tslice_ms: u64,
}

/// A domain: its parameters at the end, and what its vCPUs got.
#[derive(Clone, Debug, Serialize)]
#[allow(missing_docs, reason = "docs/results.md describes each key")]
pub struct Domain {
    pub id: u16,
    pub name: String,
    pub workload: &'static str,
    pub pool: String,
    pub kernel: bool,
    pub vcpus: u64,
    pub weight: u16,
    pub cap: u16,
    pub cpu_pct: f64,
    pub share_pct: f64,
    pub run_s: f64,
    pub wait_s: f64,
    pub blocked_s: f64,
    pub offline_s: f64,
    pub wait_max_us: f64,
    pub soft_pct: Option<f64>,
    pub dispatches: u64,
    pub preempted: u64,
    pub moves: u64,
}

/// A command of the timeline.
#[derive(Clone, Debug, Serialize)]
#[allow(missing_docs, reason = "docs/results.md describes each key")]
pub struct Timed {
    pub s: f64,
    pub xl: String,
}

/// What the summary's key `features` has on a Xen host.
pub(super) fn features(xen: &XenPlan) -> Vec<(String, String)> {
    let own = [("xen.scheduler", xen.scheduler.show()), ("xen.preset", xen.preset.to_string())];
    let switches = xen.features.list().into_iter().map(|f| (format!("xen.{}", f.key), f.value));
    own.into_iter().map(|(k, v)| (k.to_string(), v)).chain(switches).collect()
}

/// `None`: the host is not Xen's.
pub(super) fn summary(plan: &Plan, r: &RunResult) -> Option<Xen> {
    let (xen, report) = (plan.xen.as_ref()?, r.xen.as_ref()?);
    let all: u64 = report.vcpus.iter().map(|v| v.times[RunState::Running as usize]).sum();
    let mut left = report.vcpus.as_slice();
    let mut domains = Vec::new();
    for of in &xen.domains {
        let guest = &plan.guests[of.guest];
        let (vcpus, rest) = left.split_at(guest.vcpus());
        left = rest;
        let domain = guest.domain.as_ref().expect("guests of a Xen host are domains");
        let sum = |f: &dyn Fn(&XenVcpu) -> u64| vcpus.iter().map(f).sum::<u64>();
        let time = |state: RunState| sum(&|v| v.times[state as usize]);
        let (run, in_soft) = (time(RunState::Running), sum(&|v| v.in_soft));
        let pct = |part: u64, of: u64| if of == 0 { 0.0 } else { 100.0 * part as f64 / of as f64 };
        let params = vcpus.first().map_or(domain.params, |v| v.params);
        domains.push(Domain {
            id: of.dom,
            name: of.name.clone(),
            workload: guest.workload.kind(),
            pool: xen.pools[domain.pool].name.clone(),
            kernel: domain.kernel,
            vcpus: vcpus.len() as u64,
            weight: params.weight,
            cap: params.cap,
            cpu_pct: pct(run, r.virtual_ns),
            share_pct: pct(run, all),
            run_s: seconds(run),
            wait_s: seconds(time(RunState::Runnable)),
            blocked_s: seconds(time(RunState::Blocked)),
            offline_s: seconds(time(RunState::Offline)),
            wait_max_us: vcpus.iter().map(|v| v.wait_max).max().unwrap_or(0) as f64 / 1e3,
            soft_pct: (run > 0).then(|| pct(in_soft, run)),
            dispatches: sum(&|v| v.dispatches),
            preempted: sum(&|v| v.preempted),
            moves: sum(&|v| v.moves),
        });
    }
    domains.sort_by_key(|d| d.id);
    let mut timeline: Vec<Timed> = xen.timeline().map(|(at, xl)| Timed { s: seconds(at), xl: xl.into() }).collect();
    let not_reached = timeline.split_off(xen.carried_out(report.changes));
    let patches = xen.features.patches();
    let [tried, failed] = report.trylocks;
    Some(Xen {
        scheduler: xen.scheduler.show(),
        preset: xen.preset,
        patches: patches.iter().filter(|(_, p)| p.value == "true").map(|(n, _)| *n).collect(),
        set: xen.features_set().into_iter().collect(),
        pools: (xen.pools.iter())
            .map(|p| Pool {
                name: p.name.clone(),
                cpus: cpus::show(&p.cpus),
                ratelimit_us: p.tunables.ratelimit / 1_000,
                tslice_ms: p.tunables.tslice / 1_000_000,
            })
            .collect(),
        domains,
        timeline,
        not_reached,
        perf: Ordered(std::iter::zip(Perf::ALL, report.perf).map(|(p, n)| (p.name().into(), n)).collect()),
        trylocks: tried,
        trylocks_failed: failed,
    })
}

pub(super) fn vcpus(r: &RunResult) -> Table {
    let all = r.xen.as_ref().map_or(&[][..], |x| &x.vcpus);
    let v = || all.iter();
    let time = |state: RunState| v().map(move |v| v.times[state as usize]);
    Table::default()
        .u64("domain", v().map(|v| v.id.dom.into()))
        .words("name", v().map(|v| v.domain.as_str()))
        .u64("vcpu", v().map(|v| v.id.vcpu.into()))
        .u64("weight", v().map(|v| v.params.weight.into()))
        .u64("cap", v().map(|v| v.params.cap.into()))
        .u64("run_ns", time(RunState::Running))
        .u64("wait_ns", time(RunState::Runnable))
        .u64("blocked_ns", time(RunState::Blocked))
        .u64("offline_ns", time(RunState::Offline))
        .u64("in_soft_ns", v().map(|v| v.in_soft))
        .u64("dispatches", v().map(|v| v.dispatches))
        .u64("preempted", v().map(|v| v.preempted))
        .u64("moves", v().map(|v| v.moves))
        .u64("wait_max_ns", v().map(|v| v.wait_max))
}
