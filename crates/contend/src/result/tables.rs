//! The tables of a result, as columns.

use contend_platform::Account;
use contend_sim::host::{LockReport, RunResult};
use contend_sim::os::{MetricStore, TaskReport};
use contend_sim::program::Groups;
use hdrhistogram::Histogram;

use super::{guest, per_s, timeline, xen};
use crate::scenario::Plan;
use crate::table::Table;

/// The names of the tables, in the order of [`Output::tables`].
pub const TABLES: &[&str] = &[
    "tasks",
    "cpus",
    "domains",
    "locks",
    "ledger",
    "latency",
    "metrics",
    "distances",
    "vcpus",
    "guest_tasks",
    "guest_locks",
    "xen_vcpus",
    "timeline",
];

/// Every table, as an Arrow IPC file.
pub(super) fn all(plan: &Plan, r: &RunResult, reported: &MetricStore) -> Vec<(&'static str, Vec<u8>)> {
    let all = [
        task_columns(Table::default(), &r.tasks.iter().map(|t| (t, &r.groups)).collect::<Vec<_>>()),
        cpus(plan, r),
        domains(r),
        lock_columns(Table::default(), &r.locks.iter().collect::<Vec<_>>()),
        ledger(r),
        latency(r, reported),
        metrics(plan, r, reported),
        distances(plan, r),
        guest::vcpus(r),
        guest::tasks(r),
        guest::locks(r),
        xen::vcpus(r),
        timeline::table(r),
    ];
    std::iter::zip(TABLES.iter().copied(), all.map(Table::into_ipc)).collect()
}

/// A row a task, with the groups of its kernel.
pub(super) fn task_columns(table: Table, tasks: &[(&TaskReport, &Groups)]) -> Table {
    let t = || tasks.iter().map(|(t, _)| *t);
    table
        .u64("task", t().map(|t| t.id))
        .words("name", t().map(|t| t.name.as_str()))
        .words("group", tasks.iter().map(|(t, groups)| groups.path_of(t.group)))
        .words("sched", t().map(|t| t.sched.to_string()))
        .i64("nice", t().map(|t| i64::from(t.sched.nice())))
        .u64("started_ns", t().map(|t| t.started))
        .maybe_u64("exited_ns", t().map(|t| t.exited))
        .u64("runtime_ns", t().map(|t| t.run.sum_exec))
        .u64("switches", t().map(|t| t.run.switches))
        .u64("avg_delay_ns", t().map(|t| t.run.wait_sum / t.run.waits.max(1)))
        .u64("max_delay_ns", t().map(|t| t.run.wait_max))
        .u64("max_delay_start_ns", t().map(|t| t.run.wait_max_at))
        .u64("delay_ns", t().map(|t| t.run.wait_sum))
        .u64("delays", t().map(|t| t.run.waits))
        .u64("preempted", t().map(|t| t.run.preempted))
        .u64("nr_migrations", t().map(|t| t.run.nr_migrations))
        .u64("nr_wakeups", t().map(|t| t.wake.nr_wakeups))
        .u64("nr_wakeups_sync", t().map(|t| t.wake.nr_wakeups_sync))
        .u64("nr_wakeups_migrate", t().map(|t| t.wake.nr_wakeups_migrate))
        .u64("nr_wakeups_local", t().map(|t| t.wake.nr_wakeups_local))
        .u64("nr_wakeups_remote", t().map(|t| t.wake.nr_wakeups_remote))
        .u64("nr_wakeups_affine", t().map(|t| t.wake.nr_wakeups_affine))
        .u64("nr_wakeups_affine_attempts", t().map(|t| t.wake.nr_wakeups_affine_attempts))
        .maybe_words("waits_for", t().map(|t| t.waits_for.clone()))
}

fn cpus(plan: &Plan, r: &RunResult) -> Table {
    let topo = &plan.machine.topology;
    let place = |f: &dyn Fn(contend_platform::CpuId) -> usize| -> Vec<u64> {
        (0..r.cpus.len()).map(|i| f(contend_platform::CpuId(i as u16)) as u64).collect()
    };
    let c = || r.cpus.iter();
    let mut table = Table::default()
        .u64("cpu", 0..r.cpus.len() as u64)
        .u64("core", place(&|c| topo.core_of(c)).into_iter())
        .u64("llc", place(&|c| topo.llc_of(c)).into_iter())
        .u64("node", place(&|c| topo.node_of(c)).into_iter())
        .u64("yld_count", c().map(|c| c.stats.yld_count))
        .u64("sched_count", c().map(|c| c.stats.sched_count))
        .u64("sched_goidle", c().map(|c| c.stats.sched_goidle))
        .u64("ttwu_count", c().map(|c| c.stats.ttwu_count))
        .u64("ttwu_local", c().map(|c| c.stats.ttwu_local))
        .u64("rq_cpu_time", c().map(|c| c.stats.rq_cpu_time))
        .u64("run_delay", c().map(|c| c.stats.run_delay))
        .u64("pcount", c().map(|c| c.stats.pcount));
    for (i, account) in Account::ALL.iter().enumerate() {
        table = table.u64(&format!("{}_ns", account.name()), c().map(|c| c.ledger[i]));
    }
    table
}

fn domains(r: &RunResult) -> Table {
    // In the order of the report's arrays.
    const IDLE: [&str; 3] = ["not_idle", "idle", "newly_idle"];
    let rows: Vec<_> = (r.cpus.iter().enumerate())
        .flat_map(|(cpu, c)| c.domains.iter().enumerate().map(move |(i, (level, stats))| (cpu, i, *level, stats)))
        .flat_map(|(cpu, i, level, stats)| (0..3).map(move |k| (cpu as u64, i as u64, level, IDLE[k], stats[k])))
        .collect();
    let rows = || rows.iter();
    Table::default()
        .u64("cpu", rows().map(|r| r.0))
        .u64("domain", rows().map(|r| r.1))
        .words("level", rows().map(|r| r.2.name()))
        .words("idle", rows().map(|r| r.3))
        .u64("lb_count", rows().map(|r| r.4.lb_count))
        .u64("lb_balanced", rows().map(|r| r.4.lb_balanced))
        .u64("lb_failed", rows().map(|r| r.4.lb_failed))
        .u64("lb_imbalance", rows().map(|r| r.4.lb_imbalance))
        .u64("lb_gained", rows().map(|r| r.4.lb_gained))
        .u64("lb_hot_gained", rows().map(|r| r.4.lb_hot_gained))
        .u64("lb_nobusyq", rows().map(|r| r.4.lb_nobusyq))
        .u64("lb_nobusyg", rows().map(|r| r.4.lb_nobusyg))
        .u64("alb_count", rows().map(|r| r.4.alb_count))
        .u64("alb_pushed", rows().map(|r| r.4.alb_pushed))
}

pub(super) fn lock_columns(table: Table, locks: &[&LockReport]) -> Table {
    let l = || locks.iter();
    table
        .words("name", l().map(|l| l.name.as_str()))
        .words("kind", l().map(|l| l.kind))
        .u64("acquisitions", l().map(|l| l.stats.acquisitions))
        .u64("contended", l().map(|l| l.stats.contended))
        .u64("wait_ns", l().map(|l| l.stats.wait_ns))
        .u64("wait_max_ns", l().map(|l| l.stats.wait_ns_max))
        .u64("hold_ns", l().map(|l| l.stats.hold_ns))
}

fn ledger(r: &RunResult) -> Table {
    let ledger = r.ledger();
    let total = ledger.iter().sum::<u64>().max(1) as f64;
    Table::default()
        .words("account", Account::ALL.iter().map(|a| a.name()))
        .u64("ns", ledger.iter().copied())
        .f64("share", ledger.iter().map(|ns| *ns as f64 / total))
}

fn latency(r: &RunResult, reported: &MetricStore) -> Table {
    let mut rows: Vec<(String, u64, u64, u64)> = Vec::new();
    let mut add = |name: &str, h: &Histogram<u64>| {
        for v in h.iter_recorded() {
            let value = v.value_iterated_to();
            rows.push((name.into(), h.lowest_equivalent(value), h.highest_equivalent(value), v.count_at_value()));
        }
    };
    add("wakeup", &r.observed.wakeup_latency);
    reported.latencies.iter().for_each(|(name, s)| add(name, &s.histogram));
    let rows = || rows.iter();
    Table::default()
        .words("name", rows().map(|r| r.0.as_str()))
        .u64("from_ns", rows().map(|r| r.1))
        .u64("to_ns", rows().map(|r| r.2))
        .u64("count", rows().map(|r| r.3))
}

fn metrics(plan: &Plan, r: &RunResult, reported: &MetricStore) -> Table {
    let m = || reported.counts.iter();
    Table::default()
        .words("name", m().map(|(name, _)| *name))
        .u64("count", m().map(|(_, n)| *n))
        .f64("per_s", m().map(|(_, n)| per_s(plan, r, *n)))
}

fn distances(plan: &Plan, r: &RunResult) -> Table {
    let topo = &plan.machine.topology;
    let kinds = [
        ("wakeup_from_waker", &r.observed.wakeups_from_waker),
        ("wakeup_from_previous", &r.observed.wakeups_from_prev),
        ("line_transfer", &r.transfers),
    ];
    let rows: Vec<_> =
        (kinds.iter()).flat_map(|(what, counts)| counts.iter().enumerate().map(move |(d, n)| (*what, d, *n))).collect();
    Table::default()
        .words("what", rows.iter().map(|r| r.0))
        .u64("distance", rows.iter().map(|r| r.1 as u64))
        .words("name", rows.iter().map(|r| topo.distance_name(r.1)))
        .u64("count", rows.iter().map(|r| r.2))
}
