//! Names of tasks where events give only their numbers.

use rustc_hash::FxHashMap;

use crate::event::{Comm, Kind, TaskRef};
use crate::intern::Interner;

/// Tasks whose names are remembered; then all begins anew.
const TASKS_MAX: usize = 1 << 17;

#[derive(Default)]
pub(crate) struct Who {
    saved: FxHashMap<u32, Comm>,
    learned: FxHashMap<u32, Comm>,
}

impl Who {
    /// From lines of `pid name`.
    pub(crate) fn saved(lines: &[u8], names: &mut Interner) -> Self {
        let mut who = Who::default();
        for line in lines.split(|b| *b == b'\n') {
            let Some(blank) = memchr::memchr(b' ', line) else { continue };
            let pid = std::str::from_utf8(&line[..blank]).ok().and_then(|pid| pid.parse().ok());
            if let Some(pid) = pid
                && who.saved.len() < TASKS_MAX
            {
                who.saved.insert(pid, names.get(line[blank + 1..].split(|b| *b == 0).next().unwrap_or(b"")));
            }
        }
        who
    }

    /// A name that stands elsewhere than in an event; later events may know better.
    pub(crate) fn tell(&mut self, pid: u32, name: &Comm) {
        if !self.learned.contains_key(&pid) {
            self.learn(pid, name);
        }
    }

    /// The name of the task that recorded an event; also learns from the event.
    pub(crate) fn name(&mut self, pid: u32, cpu: u32, kind: &Kind, names: &mut Interner) -> Comm {
        let comm = match kind {
            _ if pid == 0 => names.idle(cpu),
            Kind::Switch { prev, .. } if prev.pid == pid && !self.saved.contains_key(&pid) => prev.comm.clone(),
            _ => match self.saved.get(&pid).or_else(|| self.learned.get(&pid)) {
                Some(comm) => comm.clone(),
                None => names.get(b"<...>"),
            },
        };
        match kind {
            Kind::Switch { prev, next, .. } => {
                self.task(prev);
                self.task(next);
            }
            Kind::Waking { task, .. }
            | Kind::Wakeup { task, .. }
            | Kind::WakeupNew { task, .. }
            | Kind::Migrate { task, .. }
            | Kind::Exit { task } => self.task(task),
            Kind::Fork { parent_pid, parent_comm, child_pid, child_comm } => {
                self.learn(*parent_pid, parent_comm);
                self.learn(*child_pid, child_comm);
            }
            _ => {}
        }
        comm
    }

    fn task(&mut self, task: &TaskRef) {
        self.learn(task.pid, &task.comm);
    }

    fn learn(&mut self, pid: u32, name: &Comm) {
        match self.learned.get_mut(&pid) {
            Some(known) if Comm::ptr_eq(known, name) => {}
            Some(known) => known.clone_from(name),
            None if pid == 0 || pid == u32::MAX => {}
            None => {
                if self.learned.len() == TASKS_MAX {
                    self.learned.clear();
                }
                self.learned.insert(pid, name.clone());
            }
        }
    }
}
