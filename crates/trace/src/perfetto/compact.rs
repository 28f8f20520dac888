//! Switches and wake-ups as columns, as Perfetto records them by default: differences of times, indices of names.
//!
//! Who left a CPU is not recorded: it is who came before. A wake-up's waker is who runs there.

use super::wire::{Damaged, Value, repeated};
use crate::event::{Comm, Context, Kind, TaskRef, TaskState};
use crate::intern::Interner;

/// What the columns say of an event; the rest is known when all of the CPU's events are in order.
pub(super) enum Half {
    Switch { prev_state: TaskState, next: TaskRef },
    Whole { kind: Kind, context: Context },
}

#[derive(Default)]
pub(super) struct Compact {
    switch: [Vec<u64>; 5],
    waking: [Vec<u64>; 6],
    names: Vec<Comm>,
}

impl Compact {
    /// Takes a field of the message.
    pub(super) fn field(&mut self, field: u32, value: Value<'_>, names: &mut Interner) -> Result<(), Damaged> {
        let column = match field {
            1..=4 => &mut self.switch[field as usize - 1],
            5 => {
                self.names.push(names.get(value.bytes()));
                return Ok(());
            }
            6 => &mut self.switch[4],
            7..=12 => &mut self.waking[field as usize - 7],
            _ => return Ok(()),
        };
        repeated(value, column)
    }

    pub(super) fn clear(&mut self) {
        self.switch.iter_mut().chain(&mut self.waking).for_each(Vec::clear);
        self.names.clear();
    }

    /// Calls `f` with each event and its time.
    ///
    /// # Errors
    /// Columns of different lengths, names that are not there: no event is given then.
    pub(super) fn each(&self, mut f: impl FnMut(u64, Half)) -> Result<(), Damaged> {
        let [switch_ts, prev_state, next_pid, next_prio, next_comm] = &self.switch;
        let [waking_ts, pid, target_cpu, prio, comm, flags] = &self.waking;
        let same = |len: usize, columns: &[&Vec<u64>]| columns.iter().all(|column| column.len() == len);
        let named = |column: &[u64]| column.iter().all(|name| *name < self.names.len() as u64);
        let sound = same(switch_ts.len(), &[prev_state, next_pid, next_prio, next_comm])
            && same(waking_ts.len(), &[pid, target_cpu, prio, comm])
            && (flags.is_empty() || flags.len() == waking_ts.len())
            && named(next_comm)
            && named(comm)
            && target_cpu.iter().all(|cpu| *cpu <= 0xffff);
        if !sound {
            return Err(Damaged);
        }
        let task = |pid: u64, prio: u64, comm: u64| TaskRef {
            pid: pid as u32,
            comm: self.names[comm as usize].clone(),
            prio: prio as i32,
        };
        let mut ts = 0u64;
        for (i, delta) in switch_ts.iter().enumerate() {
            ts = ts.wrapping_add(*delta);
            let prev_state = TaskState::from_prev_state(prev_state[i] as i64 & 0x1ff).ok_or(Damaged)?;
            f(ts, Half::Switch { prev_state, next: task(next_pid[i], next_prio[i], next_comm[i]) });
        }
        ts = 0;
        for (i, delta) in waking_ts.iter().enumerate() {
            ts = ts.wrapping_add(*delta);
            let kind = Kind::Waking { task: task(pid[i], prio[i], comm[i]), target_cpu: target_cpu[i] as u32 };
            let context = flags.get(i).map_or(Context::Unknown, |flags| Context::from_common_flags(*flags as u8));
            f(ts, Half::Whole { kind, context });
        }
        Ok(())
    }
}
