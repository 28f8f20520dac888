//! vCPUs as tasks: run states of a binary trace as the scheduler events of [`crate::event`].
//!
//! A vCPU is a task of its name (`d1v0`) for as long as the trace lasts. It is switched to when it begins to run and switched away from, to
//! the idle task, when it ceases; what Xen does in between is nobody's. Its wake-ups are an interrupt's: who sent the event that ended a
//! block stands in no record. A vCPU that is neither running nor blocked (paused, parked by a cap, on its way to another pCPU) has not
//! gone to sleep.

use std::collections::VecDeque;
use std::io;

use rustc_hash::FxHashMap;

use super::{Clock, RunState, TimeOrder, VcpuId, XenEvent};
use crate::error::TraceError;
use crate::event::{Context, Event, Kind, TaskRef, TaskState};
use crate::intern::Interner;
use crate::tally::Tally;

/// Priority of a task with nice 0.
const PRIO: i32 = 120;

/// The events of a binary trace.
pub(crate) struct Source {
    order: TimeOrder,
    clock: Clock,
    first: Option<u64>,
    /// vCPUs by domain and number, as they come.
    pids: FxHashMap<(u16, u16), u32>,
    /// A record may be two events.
    ready: VecDeque<Event>,
}

impl Source {
    pub(crate) fn new(order: TimeOrder) -> Self {
        Source { order, clock: Clock::default(), first: None, pids: FxHashMap::default(), ready: VecDeque::new() }
    }

    /// How often the time stamps count in a second.
    pub(crate) fn set_clock(&mut self, clock: Clock) {
        self.clock = clock;
    }

    pub(crate) fn next(&mut self, tally: &mut Tally, names: &mut Interner) -> io::Result<Option<Event>> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Ok(Some(event));
            }
            let Some(record) = self.order.next() else {
                let report = self.order.report();
                tally.lost = report.lost;
                tally.truncated |= report.missing > 0;
                tally.unparsable.count = report.damage.count;
                tally.strays = self.order.strays();
                tally.unparsable.first = report.damage.first;
                return Ok(None);
            };
            let record = record.map_err(|e| match e {
                TraceError::Io { source, .. } => source,
                other => io::Error::other(other.to_string()),
            })?;
            let first = *self.first.get_or_insert(record.tsc);
            let XenEvent::Runstate { vcpu, old, new } = record.event else { continue };
            if !vcpu.is_idle() {
                self.changed(
                    self.clock.ns(record.tsc.saturating_sub(first)),
                    record.cpu.0.into(),
                    vcpu,
                    old,
                    new,
                    names,
                );
            }
        }
    }

    fn changed(&mut self, ts: u64, cpu: u32, vcpu: VcpuId, old: RunState, new: RunState, names: &mut Interner) {
        let name = names.get(vcpu.to_string().as_bytes());
        // 0 is the idle task's.
        let next = 1 + self.pids.len() as u32;
        let pid = *self.pids.entry((vcpu.dom, vcpu.vcpu)).or_insert(next);
        let task = TaskRef { pid, comm: name, prio: PRIO };
        let idle = TaskRef { pid: 0, comm: names.idle(cpu), prio: PRIO };
        let ready = &mut self.ready;
        let mut put = |on: &TaskRef, context, kind| {
            ready.push_back(Event { ts, cpu, pid: on.pid, comm: on.comm.clone(), context, resched: false, kind });
        };
        if old == RunState::Running && new != RunState::Running {
            let prev_state = if new == RunState::Blocked { TaskState::SLEEPING } else { TaskState::PREEMPTED };
            let kind = Kind::Switch { prev: task.clone(), prev_state, next: idle.clone() };
            put(&task, Context::Task, kind);
        }
        // Also where it may not run yet: paused, or parked by a cap.
        if old == RunState::Blocked && new != RunState::Blocked {
            put(&idle, Context::Hardirq, Kind::Waking { task: task.clone(), target_cpu: cpu });
        }
        if new == RunState::Running && old != RunState::Running {
            let kind = Kind::Switch { prev: idle.clone(), prev_state: TaskState::RUNNABLE, next: task };
            put(&idle, Context::Task, kind);
        }
    }
}
