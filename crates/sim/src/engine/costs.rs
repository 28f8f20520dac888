//! Costs of a machine file, resolved to plain numbers.

use super::FULL_SPEED;
use super::idle_states::IdleState;
use crate::lines::LineCosts;
use contend_machine::{CAPACITY_MAX, Machine};
use contend_platform::{Nanos, Work};

/// Resolved costs, in ns.
pub(super) struct Costs {
    /// Cost of a unit of work, by class of speed.
    pub(super) work: Vec<[Nanos; Work::COUNT]>,
    pub(super) hit: Nanos,
    pub(super) atomic: Nanos,
    pub(super) ipi_send: Nanos,
    pub(super) ipi_deliver: Nanos,
    pub(super) ipi_deliver_remote: Nanos,
    /// Of an interrupt, up to its handler, and after it.
    pub(super) irq_enter: Nanos,
    pub(super) irq_leave: Nanos,
    pub(super) tick_restart: Nanos,
    pub(super) timer_write: Nanos,
    pub(super) idle_halts: bool,
    /// The idle states, shallowest first.
    pub(super) idle_states: Vec<IdleState>,
    pub(super) context_switch: Nanos,
    /// Latency of a line transfer by distance class; 0 for the CPU itself.
    pub(super) transfer: Vec<Nanos>,
    /// Refill per KiB of working set by distance class.
    pub(super) refill: Vec<Nanos>,
    /// Largest part of a working set that counts, by distance class, in KiB.
    pub(super) refill_max_kib: Vec<u32>,
    /// Speed of a thread in 1/1024, by its class ([`Costs::speed_class`]).
    pub(super) speed: Vec<u64>,
    /// Classes of each kind of cores: one for each number of busy threads, and an unused one.
    classes: usize,
    pub(super) tick_period: Nanos,
    /// Halted CPUs look preempted.
    pub(super) steal_time: bool,
}

impl Costs {
    /// The machine's costs, and those of its cache lines.
    pub(super) fn of(machine: &Machine) -> (Costs, LineCosts) {
        let topo = &machine.topology;
        let classes = topo.nr_distances();
        let c = &machine.costs;
        let l = &c.lines;
        let mut transfer = c.transfer_ns();
        transfer[0] = 0;
        let ca = &c.cache;
        let refill = [&ca.refill_core_per_kib]
            .into_iter()
            .chain(&ca.refill_cluster_per_kib)
            .chain([&ca.refill_llc_per_kib, &ca.refill_node_per_kib]);
        let refill = std::iter::once(0)
            .chain(refill.map(|cost| cost.value))
            .chain(std::iter::repeat(ca.refill_remote_per_kib.value))
            .take(classes)
            .collect();
        let inside_llc = |d: usize| d < topo.node_wide();
        let refill_max_kib =
            (0..classes).map(|d| if inside_llc(d) { ca.l2_kib.value } else { ca.llc_kib.value } as u32).collect();
        let threads = (0..topo.nr_cores()).map(|k| topo.core_cpus(k).len()).max().unwrap_or(1);
        let smt = c.cpu.smt_speed_pct.iter().take(threads).map(|pct| (pct.value * FULL_SPEED).div_ceil(100));
        let smt: Vec<u64> = std::iter::once(FULL_SPEED).chain(smt).collect();
        let kinds = if c.cpu.capacity.is_empty() {
            vec![CAPACITY_MAX]
        } else {
            c.cpu.capacity.iter().map(|c| c.value).collect()
        };
        let speed: Vec<u64> =
            kinds.iter().flat_map(|capacity| smt.iter().map(move |s| (s * capacity).div_ceil(CAPACITY_MAX))).collect();
        let costs = Costs {
            work: speed
                .iter()
                .map(|speed| c.kernel_ns().map(|ns| (ns * FULL_SPEED).div_ceil((*speed).max(1))))
                .collect(),
            hit: l.hit.value,
            atomic: l.atomic.value,
            ipi_send: c.interrupts.ipi_send.value,
            ipi_deliver: c.interrupts.ipi_deliver.value,
            ipi_deliver_remote: c.interrupts.ipi_deliver_remote.value,
            irq_enter: c.interrupts.irq.value.saturating_sub(c.interrupts.irq_leave.value),
            irq_leave: c.interrupts.irq_leave.value.min(c.interrupts.irq.value),
            tick_restart: c.interrupts.tick_restart.value,
            timer_write: c.interrupts.timer_write.value,
            idle_halts: machine.flags.idle_halts,
            idle_states: IdleState::of(&c.interrupts),
            context_switch: c.cpu.context_switch.value,
            transfer: transfer.clone(),
            refill,
            refill_max_kib,
            speed,
            classes: smt.len(),
            tick_period: 1_000_000_000 / u64::from(machine.hz),
            steal_time: machine.flags.steal_time,
        };
        let line_costs = LineCosts { hit: l.hit.value, atomic: l.atomic.value, transfer, memory: l.node.value };
        (costs, line_costs)
    }

    /// The class of speed of a thread in a core of `kind` that has so many busy ones.
    #[inline]
    pub(super) fn speed_class(&self, kind: usize, busy: u8) -> usize {
        kind * self.classes + usize::from(busy)
    }
}
