//! The table `timeline`: what each CPU did in each of equal intervals of virtual time.

use contend_platform::Account;
use contend_sim::engine::Interval;
use contend_sim::host::RunResult;

use crate::table::Table;

/// A row a CPU and interval, CPU by CPU. Columns are made one after the other: they are long on a large machine.
pub(super) fn table(r: &RunResult) -> Table {
    let width = r.timeline.width;
    let column = |value: &dyn Fn(usize, u64, &Interval) -> u64| {
        let mut all = Vec::with_capacity(r.timeline.cpus.iter().map(Vec::len).sum());
        for (cpu, intervals) in r.timeline.cpus.iter().enumerate() {
            all.extend(std::iter::zip(0.., intervals).map(|(i, interval)| value(cpu, i, interval)));
        }
        all.into_iter()
    };
    let has_queues = r.timeline.has_queues;
    let mut table = Table::default()
        .u64("cpu", column(&|cpu, _, _| cpu as u64))
        .u64("from_ns", column(&|_, i, _| i * width))
        .u64("to_ns", column(&|_, i, _| ((i + 1) * width).min(r.virtual_ns)))
        .maybe_u64("runnable_ns", column(&|_, _, t| t.runnable).map(|ns| has_queues.then_some(ns)));
    for (i, account) in Account::ALL.iter().enumerate() {
        table = table.u64(&format!("{}_ns", account.name()), column(&|_, _, t| t.ledger[i]));
    }
    table
}
