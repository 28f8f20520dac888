//! How benchmarks of clients and servers begin: a parent forks the clients one after the other, and the server forks a process for
//! each that connects. The kernel places both as new tasks, while what runs already runs.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use contend_platform::Nanos;
use contend_sim::program::{Cx, ObjId, ObjectKind, Op, Program, TaskSpec, Workload};

use super::up_to;

/// What a program computes before its first own step, from half of this to one and a half, at random: the loader finds and links its
/// libraries. Estimate, 300,000 to 2,000,000.
const LOADING: Nanos = 1_000_000;

/// A client and the server process that it will have.
pub(super) struct Pair {
    pub client: TaskSpec,
    pub server: TaskSpec,
}

/// When clients that have connected go on.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Go {
    /// Each at once.
    AtOnce,
    /// When all have.
    Together,
}

/// Who has connected, and waits for a process.
type Backlog = Arc<Mutex<VecDeque<TaskSpec>>>;

/// Adds the two parents of `pairs`, named after the tools. `exec`: the parent of the clients is a shell, and each client a program
/// that it starts.
pub(super) fn forked(w: &mut Workload, tools: (&str, &str), pairs: Vec<Pair>, exec: bool, go: Go) {
    let parties = pairs.len() as u32;
    let accept = w.object("accept", ObjectKind::Semaphore { initial: 0 });
    let all = (go == Go::Together && parties > 1).then(|| w.object("connected", ObjectKind::Barrier { parties }));
    let backlog = Backlog::default();
    let children = pairs.into_iter().map(|Pair { client, server }| {
        let first = if exec { Begin::Exec } else { Begin::Connect };
        let last = all.map(Op::Barrier);
        let connecting =
            Connecting { first, connect: Some((server, Arc::clone(&backlog), accept)), last, then: client.program };
        TaskSpec { program: Box::new(connecting), ..client }
    });
    w.task(TaskSpec::new(tools.0, Parent { children: children.collect() }));
    w.task(TaskSpec::new(tools.1, Listener { left: parties, accept, backlog, accepted: false }));
}

/// Forks its children, and ends.
struct Parent {
    children: VecDeque<TaskSpec>,
}

impl Program for Parent {
    fn next(&mut self, _: &mut Cx<'_>) -> Op {
        self.children.pop_front().map_or(Op::Exit, |child| Op::Spawn(Box::new(child)))
    }
}

/// Forks a process for each that connects.
struct Listener {
    left: u32,
    accept: ObjId,
    backlog: Backlog,
    accepted: bool,
}

impl Program for Listener {
    fn next(&mut self, _: &mut Cx<'_>) -> Op {
        if self.accepted {
            self.accepted = false;
            let child = self.backlog.lock().expect("no program panics").pop_front().expect("one for each post");
            return Op::Spawn(Box::new(child));
        }
        if self.left == 0 {
            return Op::Exit;
        }
        self.left -= 1;
        self.accepted = true;
        Op::SemWait(self.accept)
    }
}

/// What comes before a client connects.
enum Begin {
    Exec,
    Load,
    Connect,
}

/// A client that begins by connecting.
struct Connecting {
    first: Begin,
    connect: Option<(TaskSpec, Backlog, ObjId)>,
    last: Option<Op>,
    then: Box<dyn Program>,
}

impl Program for Connecting {
    fn next(&mut self, cx: &mut Cx<'_>) -> Op {
        match self.first {
            Begin::Exec => {
                self.first = Begin::Load;
                return Op::Exec;
            }
            Begin::Load => {
                self.first = Begin::Connect;
                return Op::Run(LOADING / 2 + up_to(LOADING, cx.rng));
            }
            Begin::Connect => {}
        }
        if let Some((server, backlog, accept)) = self.connect.take() {
            backlog.lock().expect("no program panics").push_back(server);
            // As a packet that arrives: the sender will sleep soon.
            return Op::Wake { semaphore: accept, sync: true, tail: 0, blocks: false };
        }
        self.last.take().unwrap_or_else(|| self.then.next(cx))
    }

    fn working_set_kib(&self) -> u32 {
        self.then.working_set_kib()
    }
}
