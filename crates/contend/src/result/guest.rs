//! What a result says of virtual machines: keys of the summary, and the tables `vcpus`, `guest_tasks`, `guest_locks`.

use std::collections::BTreeMap;

use contend_platform::Account;
use contend_sim::guest::{GuestReport, LockPreemption, VcpuReport};
use contend_sim::host::RunResult;
use contend_sim::kvm::{Exit, Kvm};
use serde::Serialize;

use super::{Lock, LockKind, Metrics, Ordered, Tasks, lock, lock_kinds, metrics_summary, reported, seconds, task_sums};
use crate::scenario::Plan;
use crate::scenario::guest::GuestPlan;
use crate::table::Table;

/// Locks listed for each guest; the table `guest_locks` has all.
const LOCKS_MAX: usize = 16;

/// One virtual machine, or the sums over all.
#[derive(Clone, Debug, Serialize)]
#[allow(missing_docs, reason = "docs/results.md describes each key")]
pub struct Guest {
    #[serde(flatten)]
    pub about: Option<About>,
    pub vcpus: u64,
    pub finished_s: Option<f64>,
    pub guest_user_pct: f64,
    pub guest_kernel_pct: f64,
    pub spin_pct: f64,
    pub halted_pct: f64,
    pub steal_pct: f64,
    pub host_pct: f64,
    pub exits: Ordered<u64>,
    pub exits_count: u64,
    pub preempted: u64,
    pub preempted_max_us: f64,
    pub lock_preemption: Preemption,
    pub lock_preemption_kinds: Vec<PreemptionOfKind>,
    pub lock_kinds: Vec<LockKind>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub locks: Option<Vec<LockOfGuest>>,
    pub tasks: Tasks,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub long_waits: Option<Vec<String>>,
    pub metrics: Metrics,
    pub ledger_ns: Ordered<u64>,
}

/// What tells a guest from others.
#[derive(Clone, Debug, Serialize)]
#[allow(missing_docs, reason = "docs/results.md describes each key")]
pub struct About {
    pub name: String,
    pub workload: &'static str,
    pub policy: String,
    pub topology: String,
    pub pin: &'static str,
    pub set: BTreeMap<&'static str, String>,
}

/// What the loss of CPUs did at locks.
#[derive(Clone, Debug, Serialize)]
#[allow(missing_docs, reason = "docs/results.md describes each key")]
pub struct Preemption {
    pub holder: u64,
    pub holder_s: f64,
    pub holder_max_us: f64,
    pub waiter: u64,
    pub waiter_s: f64,
}

/// [`Preemption`] at all locks of a kind.
#[derive(Clone, Debug, Serialize)]
#[allow(missing_docs, reason = "docs/results.md describes each key")]
pub struct PreemptionOfKind {
    pub kind: &'static str,
    #[serde(flatten)]
    pub sums: Preemption,
}

/// A lock, and what the loss of CPUs did there.
#[derive(Clone, Debug, Serialize)]
#[allow(missing_docs, reason = "docs/results.md describes each key")]
pub struct LockOfGuest {
    #[serde(flatten)]
    pub lock: Lock,
    pub preemption: Preemption,
}

impl From<LockPreemption> for Preemption {
    fn from(p: LockPreemption) -> Self {
        Preemption {
            holder: p.holder,
            holder_s: seconds(p.holder_ns),
            holder_max_us: p.holder_max as f64 / 1e3,
            waiter: p.waiter,
            waiter_s: seconds(p.waiter_ns),
        }
    }
}

fn both(a: LockPreemption, b: LockPreemption) -> LockPreemption {
    LockPreemption {
        holder: a.holder + b.holder,
        holder_ns: a.holder_ns + b.holder_ns,
        holder_max: a.holder_max.max(b.holder_max),
        waiter: a.waiter + b.waiter,
        waiter_ns: a.waiter_ns + b.waiter_ns,
    }
}

/// In the way the host's ledger sees guest mode: the guests' tasks, their kernels, and their kernels' spinning.
fn host_account(account: Account) -> Account {
    match account {
        Account::User | Account::ColdCache => Account::GuestUser,
        Account::RqLock | Account::SpinLock | Account::OnCpu => Account::GuestSpin,
        _ => Account::GuestKernel,
    }
}

/// One guest, or several as one.
fn guest(plan: &Plan, r: &RunResult, of: &[&GuestReport], about: Option<About>) -> Guest {
    let vcpus = || of.iter().flat_map(|g| &g.vcpus);
    let sum = |f: &dyn Fn(&VcpuReport) -> u64| vcpus().map(f).sum::<u64>();
    let ledger: Vec<(Account, u64)> =
        Account::ALL.iter().enumerate().map(|(i, a)| (*a, sum(&|v| v.ledger[i]))).collect();
    let mode = |host: Account| ledger.iter().filter(|(a, _)| host_account(*a) == host).map(|(_, ns)| ns).sum::<u64>();
    let (halted, stolen) = (sum(&|v| v.times.halted), sum(&|v| v.times.stolen));
    let host = sum(&|v| v.times.host);
    let total = ledger.iter().map(|(_, ns)| ns).sum::<u64>() + halted + stolen + host;
    let pct = |ns: u64| if total == 0 { 0.0 } else { 100.0 * ns as f64 / total as f64 };
    let exits: Vec<(String, u64)> =
        Exit::ALL.iter().enumerate().map(|(i, e)| (e.name().into(), sum(&|v| v.exits[i]))).collect();

    let mut kinds: BTreeMap<&'static str, LockPreemption> = BTreeMap::new();
    let preemptions = || of.iter().flat_map(|g| std::iter::zip(&g.locks, &g.preemption));
    for (lock, p) in preemptions() {
        let kind = kinds.entry(lock.kind).or_default();
        *kind = both(*kind, *p);
    }
    let all = kinds.values().copied().fold(LockPreemption::default(), both);
    let mut kinds: Vec<_> = kinds.into_iter().filter(|(_, p)| *p != LockPreemption::default()).collect();
    // Stable: kinds that lost equal time stay in the order of their names.
    kinds.sort_by_key(|(_, p)| std::cmp::Reverse(p.holder_ns + p.waiter_ns));
    let locks = about.is_some().then(|| {
        let mut used: Vec<_> = preemptions().filter(|(l, _)| l.stats.acquisitions > 0).collect();
        used.sort_by_key(|(l, p)| std::cmp::Reverse((l.stats.wait_ns, p.holder_ns)));
        used.truncate(LOCKS_MAX);
        used.into_iter().map(|(l, p)| LockOfGuest { lock: lock(l), preemption: (*p).into() }).collect()
    });
    let long_waits = about.is_some().then(|| of.iter().flat_map(|g| g.long_waits.clone()).collect());
    // The last exit may lie some ns behind the time when the engine stopped for it.
    let end = |g: &&GuestReport| g.finished.map(|at| at.min(r.virtual_ns));
    let finished = of.iter().map(end).collect::<Option<Vec<_>>>();
    Guest {
        about,
        vcpus: vcpus().count() as u64,
        finished_s: finished.and_then(|all| all.into_iter().max()).map(seconds),
        guest_user_pct: pct(mode(Account::GuestUser)),
        guest_kernel_pct: pct(mode(Account::GuestKernel)),
        spin_pct: pct(mode(Account::GuestSpin)),
        halted_pct: pct(halted),
        steal_pct: pct(stolen),
        host_pct: pct(host),
        exits_count: exits.iter().map(|(_, n)| n).sum(),
        exits: Ordered(exits),
        preempted: sum(&|v| v.preempted),
        preempted_max_us: vcpus().map(|v| v.preempted_max).max().unwrap_or(0) as f64 / 1e3,
        lock_preemption: all.into(),
        lock_preemption_kinds: kinds.into_iter().map(|(kind, p)| PreemptionOfKind { kind, sums: p.into() }).collect(),
        lock_kinds: lock_kinds(of.iter().flat_map(|g| &g.locks)),
        locks,
        tasks: task_sums(of.iter().flat_map(|g| &g.tasks)),
        long_waits,
        metrics: metrics_summary(plan, r, &reported(of.iter().map(|g| &g.metrics))),
        ledger_ns: Ordered(ledger.into_iter().map(|(a, ns)| (a.name().into(), ns)).collect()),
    }
}

/// The plan of each guest of a result that has a kernel.
fn plans(plan: &Plan) -> impl Iterator<Item = &GuestPlan> {
    let kernel = |g: &&GuestPlan| g.domain.as_ref().is_none_or(|d| d.kernel);
    plan.guests.iter().filter(kernel).flat_map(|g| std::iter::repeat_n(g, g.copies.unwrap_or(1) as usize))
}

/// Each guest.
pub(super) fn each(plan: &Plan, r: &RunResult) -> Vec<Guest> {
    std::iter::zip(&r.guests, plans(plan))
        .map(|(report, of)| {
            let about = About {
                name: report.name.clone(),
                workload: of.workload.kind(),
                policy: of.preset.name.into(),
                topology: of.shape.clone(),
                pin: of.pin.name(),
                set: of.features_set().into_iter().collect(),
            };
            guest(plan, r, &[report], Some(about))
        })
        .collect()
}

/// All guests as one; `None` if there are none.
pub(super) fn total(plan: &Plan, r: &RunResult) -> Option<Guest> {
    let all: Vec<&GuestReport> = r.guests.iter().collect();
    (!all.is_empty()).then(|| guest(plan, r, &all, None))
}

/// KVM's counters; none without guests.
pub(super) fn kvm(r: &RunResult) -> Ordered<u64> {
    let counters = std::iter::zip(Kvm::ALL, r.kvm).filter(|_| !r.guests.is_empty());
    Ordered(counters.map(|(k, n)| (k.name().into(), n)).collect())
}

/// Rows of all guests, each with its guest.
fn rows<'a, T>(r: &'a RunResult, of: impl Fn(&'a GuestReport) -> &'a [T] + 'a) -> Vec<(&'a str, u64, &'a T)> {
    let row = |g: &'a GuestReport| of(g).iter().enumerate().map(|(i, row)| (g.name.as_str(), i as u64, row));
    r.guests.iter().flat_map(row).collect()
}

pub(super) fn vcpus(r: &RunResult) -> Table {
    let all = rows(r, |g| &g.vcpus);
    let v = || all.iter().map(|(_, _, v)| *v);
    let mut table = Table::default()
        .words("guest", all.iter().map(|row| row.0))
        .u64("vcpu", all.iter().map(|row| row.1))
        .u64("halted_ns", v().map(|v| v.times.halted))
        .u64("stolen_ns", v().map(|v| v.times.stolen))
        .u64("host_ns", v().map(|v| v.times.host));
    for (i, account) in Account::ALL.iter().enumerate() {
        table = table.u64(&format!("{}_ns", account.name()), v().map(|v| v.ledger[i]));
    }
    for (i, exit) in Exit::ALL.iter().enumerate() {
        table = table.u64(&format!("exits_{}", exit.name().to_lowercase()), v().map(|v| v.exits[i]));
    }
    table
        .u64("preempted", v().map(|v| v.preempted))
        .u64("preempted_max_ns", v().map(|v| v.preempted_max))
        .u64("yld_count", v().map(|v| v.stats.yld_count))
        .u64("sched_count", v().map(|v| v.stats.sched_count))
        .u64("sched_goidle", v().map(|v| v.stats.sched_goidle))
        .u64("ttwu_count", v().map(|v| v.stats.ttwu_count))
        .u64("ttwu_local", v().map(|v| v.stats.ttwu_local))
        .u64("rq_cpu_time", v().map(|v| v.stats.rq_cpu_time))
        .u64("run_delay", v().map(|v| v.stats.run_delay))
        .u64("pcount", v().map(|v| v.stats.pcount))
}

pub(super) fn tasks(r: &RunResult) -> Table {
    let all: Vec<_> = r.guests.iter().flat_map(|g| g.tasks.iter().map(move |t| (g, t))).collect();
    let table = Table::default().words("guest", all.iter().map(|(g, _)| &g.name));
    super::tables::task_columns(table, &all.iter().map(|(g, t)| (*t, &g.groups)).collect::<Vec<_>>())
}

pub(super) fn locks(r: &RunResult) -> Table {
    let all = rows(r, |g| &g.locks);
    let lost: Vec<&LockPreemption> = r.guests.iter().flat_map(|g| &g.preemption).collect();
    let table = Table::default().words("guest", all.iter().map(|row| row.0));
    super::tables::lock_columns(table, &all.iter().map(|row| row.2).collect::<Vec<_>>())
        .u64("holder_preempted", lost.iter().map(|p| p.holder))
        .u64("holder_preempted_ns", lost.iter().map(|p| p.holder_ns))
        .u64("holder_preempted_max_ns", lost.iter().map(|p| p.holder_max))
        .u64("waiter_preempted", lost.iter().map(|p| p.waiter))
        .u64("waiter_preempted_ns", lost.iter().map(|p| p.waiter_ns))
}

#[cfg(test)]
mod tests {
    use contend_workload::spec::Origins;
    use std::collections::BTreeMap;
    use std::path::Path;

    use contend_platform::Account;
    use contend_sim::guest::{GuestReport, LockPreemption, VcpuReport, VcpuTimes};
    use contend_sim::host::{Limits, LockReport, RunResult, Setup, simulate};
    use contend_sim::kvm::{Exit, Kvm};
    use contend_sim::os::MetricStore;
    use serde_json::Value;

    use crate::scenario::{Plan, Scenario};

    const SCENARIO: &str = "machine = \"2c\"\n[set]\nkvm.ple_gap = 0\n[[guest]]\nname = \"a\"\ncopies = 2\nvcpus = 2\n\
                            set = { spinlock = \"ticket\" }\n[guest.workload]\nkind = \"hackbench\"\n";
    const LENGTH: u64 = 1_000;

    fn plan() -> Plan {
        Scenario::parse(SCENARIO, "test", Path::new("")).and_then(|s| s.plan()).expect("a right scenario")
    }

    fn vcpu(stolen: u64) -> VcpuReport {
        let mut ledger = [0; Account::COUNT];
        ledger[Account::User as usize] = 300;
        ledger[Account::ColdCache as usize] = 100;
        ledger[Account::Syscall as usize] = 150;
        ledger[Account::SpinLock as usize] = 50;
        let mut exits = [0; Exit::COUNT];
        exits[Exit::Hlt as usize] = 3;
        let times = VcpuTimes { halted: 400 - stolen - 20, stolen, host: 20 };
        VcpuReport { ledger, times, exits, stats: Default::default(), preempted: 2, preempted_max: stolen }
    }

    /// Guests made by hand, in the result of a host that has nothing to do.
    fn result(plan: &Plan) -> RunResult {
        let setup = Setup {
            machine: plan.machine.clone(),
            features: plan.features.clone(),
            workload: Default::default(),
            seed: 1,
            limits: Limits { horizon: LENGTH, ..Limits::default() },
            guests: Default::default(),
        };
        let mut r = simulate(plan.preset.policy, setup, None, &mut |_| true).expect("memory for two CPUs");
        let lock = |name: &str, kind, wait_ns| {
            let mut l = LockReport { name: name.into(), kind, stats: Default::default() };
            (l.stats.acquisitions, l.stats.wait_ns) = (10, wait_ns);
            l
        };
        let lost = LockPreemption { holder: 1, holder_ns: 70, holder_max: 70, waiter: 2, waiter_ns: 30 };
        r.virtual_ns = LENGTH;
        r.kvm[Kvm::OnSpin as usize] = 9;
        r.guests = (["a0", "a1"].into_iter().zip([100, 200]))
            .map(|(name, stolen)| GuestReport {
                name: name.into(),
                finished: (stolen == 100).then_some(900),
                vcpus: vec![vcpu(stolen), vcpu(stolen)],
                tasks: Vec::new(),
                groups: contend_sim::program::Groups::default(),
                long_waits: vec!["x (task 0) waits for a post to y".into(); usize::from(stolen == 200)],
                locks: vec![lock("rq/0", "rq", 5), lock("zone", "spinlock", 80)],
                preemption: vec![LockPreemption::default(), lost],
                metrics: MetricStore { counts: BTreeMap::from([("ops", stolen)]), ..MetricStore::default() },
            })
            .collect();
        r
    }

    #[test]
    fn the_summary_of_guests() {
        let plan = plan();
        let out = crate::result::summarise(&plan, &result(&plan), &Origins::default(), BTreeMap::new());
        let s: Value = serde_json::from_str(&out.summary_json()).expect("JSON");
        assert_eq!(s["workload"], "guests");
        assert_eq!(s["set"]["kvm.ple_gap"], "0");
        assert_eq!(s["kvm"]["kvm_vcpu_on_spin"], 9);
        assert_eq!(s["metrics"]["counts"]["ops"]["count"], 300);
        let (a0, a1, all) = (&s["guests"][0], &s["guests"][1], &s["guests_total"]);
        assert_eq!(
            (&a0["name"], &a0["workload"], &a0["set"]["spinlock"]),
            (&"a0".into(), &"hackbench".into(), &"ticket".into())
        );
        assert_eq!((a0["finished_s"].as_f64(), a1["finished_s"].as_f64()), (Some(9e-7), None));
        assert_eq!(all["finished_s"], Value::Null);
        for (key, of_a0, of_all) in [
            ("guest_user_pct", 40.0, 40.0),
            ("guest_kernel_pct", 15.0, 15.0),
            ("spin_pct", 5.0, 5.0),
            ("halted_pct", 28.0, 23.0),
            ("steal_pct", 10.0, 15.0),
            ("host_pct", 2.0, 2.0),
        ] {
            assert_eq!((a0[key].as_f64(), all[key].as_f64()), (Some(of_a0), Some(of_all)), "{key}");
        }
        assert_eq!((all["exits"]["HLT"].as_u64(), all["exits_count"].as_u64()), (Some(12), Some(12)));
        assert_eq!((a0["long_waits"].as_array().map(Vec::len), all.get("long_waits")), (Some(0), None));
        assert_eq!(a1["long_waits"][0], "x (task 0) waits for a post to y");
        assert_eq!(a0["locks"][0]["name"], "zone");
        assert_eq!(a0["locks"][0]["preemption"]["holder"], 1);
        assert_eq!(all["lock_preemption"]["waiter"], 4);
        assert_eq!(all["lock_preemption_kinds"][0]["kind"], "spinlock");
        assert_eq!(all["lock_preemption_kinds"].as_array().map(Vec::len), Some(1));
        assert!(all.get("locks").is_none() && all.get("name").is_none());
    }

    #[test]
    fn the_stored_scenario_is_read_back_as_the_same_plan() {
        let text = plan().resolved_toml(&BTreeMap::new()).replace("machine.toml", "2c");
        let again = Scenario::parse(&text, "again", Path::new("")).and_then(|s| s.plan()).expect(&text);
        assert_eq!(again.resolved_toml(&BTreeMap::new()).replace("machine.toml", "2c"), text);
        assert_eq!(again.guests[0].features, plan().guests[0].features);
        assert_eq!((again.kvm.ple_gap, again.guests[0].copies), (0, Some(2)));
    }
}
