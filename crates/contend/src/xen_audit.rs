//! `contend xen audit`: Credit2's decisions in a binary trace against ours (`docs/xen-decisions.md`).

use std::path::Path;

use contend_machine::Machine;
use contend_platform::CpuId;
use contend_sched::xen::mask::PCPUS_MAX;
use contend_trace::xentrace::audit::{Case, Host, Tally, audit};
use contend_trace::xentrace::open;
use serde_json::{Value, json};

use crate::xen_trace::{XenTraceError, check_ratelimit, clock};

/// What is known of the recorded host, and not in the trace.
#[derive(Clone, Debug)]
pub struct Recorded {
    /// Frequency of the time stamps.
    pub cpu_hz: u64,
    /// Domains and their weights; 256 of those not named.
    pub weights: Vec<(u16, u16)>,
    /// Domains and the pCPUs that their vCPUs prefer; all for those not named.
    pub soft: Vec<(u16, Vec<u16>)>,
    /// The rate limit, in us.
    pub ratelimit_us: u64,
    /// The machine; `None`: as many cores as there are pCPUs.
    pub machine: Option<String>,
}

/// What came out, as a JSON object. `go_on` is asked now and then.
///
/// # Errors
/// See [`XenTraceError`].
pub fn run(path: &Path, recorded: &Recorded, go_on: &mut dyn FnMut() -> bool) -> Result<Value, XenTraceError> {
    check_ratelimit(recorded.ratelimit_us)?;
    for (dom, cpus) in &recorded.soft {
        if let Some(cpu) = cpus.iter().find(|c| usize::from(**c) >= PCPUS_MAX) {
            let found = format!("found pCPU {cpu} for d{dom}; hosts here have {PCPUS_MAX} at most");
            return Err(XenTraceError::Option { key: "soft".into(), found });
        }
    }
    let topology = recorded.machine.as_deref().map(Machine::load).transpose()?.map(|machine| machine.topology);
    let host = Host {
        clock: clock(recorded.cpu_hz)?,
        weights: recorded.weights.iter().copied().collect(),
        soft: recorded.soft.iter().map(|(dom, cpus)| (*dom, cpus.iter().map(|c| CpuId(*c)).collect())).collect(),
        ratelimit_us: recorded.ratelimit_us,
        topology,
        ..Host::default()
    };
    let said = audit(open(path)?, &host, go_on)?.ok_or(XenTraceError::Interrupted)?;
    let tally = |name: &str, t: &Tally| {
        let why: Vec<Value> = t.unknown.iter().map(|(why, count)| json!({"why": why, "decisions": count})).collect();
        json!({"kind": name, "decisions": t.total, "known": t.known, "agree": t.agree, "unknown": why})
    };
    let case =
        |c: &Case| json!({"kind": c.kind.name(), "ns": c.ns, "cpu": c.cpu.0, "record": c.record, "what": c.what});
    Ok(json!({
        "file": path.display().to_string(),
        "damaged": said.damaged,
        "kinds": said.kinds.iter().map(|(kind, t)| tally(kind.name(), t)).collect::<Vec<_>>(),
        "all": tally("all", &said.sum()),
        "disagreements": said.cases.iter().map(case).collect::<Vec<_>>(),
    }))
}
