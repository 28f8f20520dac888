//! Roles as tasks.

use std::sync::{Arc, Mutex};

use contend_platform::{Nanos, Time};
use contend_sim::program::{Cx, ObjId, ObjectKind, Op, Program, TaskSpec, Workload};
use rand::RngExt;

use super::Fitted;
use crate::model::play::PlayOptions;
use crate::model::step::Why;

/// The keeper looks this often for waits to be given up, at most.
const LOOK_NS_MIN: Nanos = 10_000_000;

/// What all tasks share.
struct Stage {
    model: Fitted,
    speed: f64,
    /// For each role, the roles of its ends, wakes and starts by number.
    links: Vec<Links>,
    /// Slots of each kind of limited start.
    slots: Vec<u32>,
    /// The first semaphore of each copy's roles, and its open waits.
    copies: Vec<Copy>,
}

struct Links {
    ends: Vec<Option<usize>>,
    wakes: Vec<usize>,
    /// Role, and the semaphore of its slots counted from the copy's first.
    starts: Vec<(usize, Option<u32>)>,
}

struct Copy {
    objects: u32,
    open: Mutex<Open>,
}

/// Waits of a copy's roles: when they began, oldest first, and after how long they are given up.
#[derive(Default)]
struct Open {
    waits: Vec<Vec<(Time, u64)>>,
    /// Tasks that live.
    alive: u64,
    ids: u64,
}

/// Add the model's tasks to `w`.
pub fn play(model: Fitted, w: &mut Workload, options: PlayOptions) {
    let number = |name: &str| model.roles.iter().position(|r| r.name == name).expect("checked");
    let mut slots = Vec::new();
    let links = (model.roles.iter())
        .map(|role| Links {
            ends: role.ends.iter().map(|e| (e.why() == Some(Why::Task)).then(|| number(&e.role))).collect(),
            wakes: role.wakes.iter().map(|w| number(&w.role)).collect(),
            starts: (role.starts.iter())
                .map(|s| {
                    let at_once = options.jobs.filter(|_| s.at_once > 0).unwrap_or(s.at_once);
                    let slot = (at_once > 0).then(|| {
                        slots.push((format!("{}/{}", role.name, s.role), at_once));
                        (model.roles.len() + slots.len() - 1) as u32
                    });
                    (number(&s.role), slot)
                })
                .collect(),
        })
        .collect();
    let longest = model.roles.iter().flat_map(|r| &r.ends).filter(|e| e.why() == Some(Why::Task)).map(|e| e.us.max());
    let look = ((longest.fold(f64::INFINITY, f64::min) * 1e3) as Nanos).max(LOOK_NS_MIN);
    let mut copies = Vec::new();
    for copy in 0..options.copies {
        let suffix = if options.copies > 1 { format!("+{copy}") } else { String::new() };
        copies.push(Copy {
            objects: w.objects.len() as u32,
            open: Mutex::new(Open { waits: vec![Vec::new(); model.roles.len()], ..Open::default() }),
        });
        for role in &model.roles {
            w.object(format!("wake/{}{suffix}", role.name), ObjectKind::Semaphore { initial: 0 });
        }
        for (name, at_once) in &slots {
            w.object(format!("slots/{name}{suffix}"), ObjectKind::Semaphore { initial: *at_once });
        }
    }
    let waits = model.roles.iter().any(|r| r.ends.iter().any(|e| e.why() == Some(Why::Task)));
    let slots = slots.into_iter().map(|(_, at_once)| at_once).collect();
    let stage = Arc::new(Stage { model, speed: options.speed, links, slots, copies });
    for copy in 0..stage.copies.len() {
        for role in 0..stage.model.roles.len() {
            for _ in 0..stage.model.roles[role].tasks {
                w.task(Actor::spec(&stage, copy, role, None));
            }
        }
        if waits {
            let keeper = Keeper { stage: Arc::clone(&stage), copy, look, due: Vec::new() };
            let spec = TaskSpec::new("model-keeper", keeper);
            w.task(TaskSpec { background: true, ..spec });
        }
    }
}

/// Deals out events of a rate evenly.
#[derive(Clone, Copy)]
struct Even(f64);

impl Even {
    fn take(&mut self, rate: f64) -> u32 {
        self.0 += rate;
        let whole = self.0.floor();
        self.0 -= whole;
        whole as u32
    }
}

/// A task that acts a role.
struct Actor {
    stage: Arc<Stage>,
    copy: usize,
    role: usize,
    /// The slot that it gives back at its end.
    slot: Option<u32>,
    /// Turns that are left; unknown before the first.
    turns: Option<u32>,
    all_turns: u32,
    ends: Vec<Even>,
    wakes: Vec<Even>,
    /// Starts that are left, by entry.
    starts: Vec<u32>,
    /// Its number among the copy's, and its open wait.
    id: u64,
    waits: Option<usize>,
    /// What is to be done, last first.
    due: Vec<Op>,
    over: bool,
}

impl Actor {
    fn spec(stage: &Arc<Stage>, copy: usize, role: usize, slot: Option<u32>) -> TaskSpec {
        let r = &stage.model.roles[role];
        let id = {
            let mut open = stage.copies[copy].open.lock().expect("nobody panics with it");
            open.ids += 1;
            open.alive += 1;
            open.ids
        };
        let actor = Actor {
            stage: Arc::clone(stage),
            copy,
            role,
            slot,
            turns: None,
            all_turns: 0,
            ends: Vec::new(),
            wakes: Vec::new(),
            starts: Vec::new(),
            id,
            waits: None,
            due: Vec::new(),
            over: false,
        };
        let suffix = if stage.copies.len() > 1 { format!("+{copy}") } else { String::new() };
        TaskSpec { nice: r.nice, ..TaskSpec::new(format!("{}-{id}{suffix}", r.name), actor) }
    }

    fn object(&self, number: u32) -> ObjId {
        ObjId(self.stage.copies[self.copy].objects + number)
    }

    fn born(&mut self, cx: &mut Cx<'_>) {
        let stage = Arc::clone(&self.stage);
        let role = &stage.model.roles[self.role];
        self.all_turns = (role.turns.draw(cx.rng).round() as u32).max(1);
        self.turns = Some(self.all_turns);
        // Tasks of a role do not do everything in step.
        self.ends = role.ends.iter().map(|_| Even(cx.rng.random())).collect();
        self.wakes = role.wakes.iter().map(|_| Even(cx.rng.random())).collect();
        self.starts = role.starts.iter().map(|s| Even(cx.rng.random()).take(s.per_life)).collect();
    }

    /// A turn's run, cut where it wakes and starts others, and the sleep.
    fn turn(&mut self, cx: &mut Cx<'_>, left: u32) {
        let stage = Arc::clone(&self.stage);
        let (role, links) = (&stage.model.roles[self.role], &stage.links[self.role]);
        let mut events: Vec<Op> = Vec::new();
        for (entry, &who) in links.wakes.iter().enumerate() {
            let n = self.wakes[entry].take(role.wakes[entry].per_turn);
            events.extend((0..n).map(|_| Op::SemPost(self.object(who as u32), 1)));
        }
        for (entry, &(who, slot)) in links.starts.iter().enumerate() {
            // Evenly over the turns that are left.
            let n = self.starts[entry].div_ceil(left);
            self.starts[entry] -= n;
            for _ in 0..n {
                events.extend(slot.map(|s| Op::SemWait(self.object(s))));
                events.push(Op::Spawn(Box::new(Actor::spec(&stage, self.copy, who, slot))));
            }
        }
        let run = role.run_us.draw(cx.rng) * 1e3 / stage.speed;
        let piece = (run / (events.len() + 1) as f64) as Nanos;
        self.due.clear();
        if left > 1 {
            self.end_turn(cx);
        }
        self.due.push(Op::Run(piece));
        for event in events.into_iter().rev() {
            self.due.push(event);
            self.due.push(Op::Run(piece));
        }
    }

    fn end_turn(&mut self, cx: &mut Cx<'_>) {
        let stage = Arc::clone(&self.stage);
        let role = &stage.model.roles[self.role];
        // The end that is most behind its share.
        for (even, end) in std::iter::zip(&mut self.ends, &role.ends) {
            even.0 += end.share;
        }
        let most = (0..self.ends.len()).max_by(|&a, &b| self.ends[a].0.total_cmp(&self.ends[b].0));
        let Some(entry) = most else { return };
        self.ends[entry].0 -= 1.0;
        match stage.links[self.role].ends[entry] {
            Some(_) => {
                self.waits = Some(entry);
                self.due.push(Op::SemWait(self.object(self.role as u32)));
            }
            None => self.due.push(Op::Sleep((role.ends[entry].us.draw(cx.rng) * 1e3) as Nanos)),
        }
    }
}

impl Program for Actor {
    fn next(&mut self, cx: &mut Cx<'_>) -> Op {
        let stage = Arc::clone(&self.stage);
        let copy = &stage.copies[self.copy];
        let open = || copy.open.lock().expect("nobody panics with it");
        if let Some(op) = self.due.pop() {
            // Its wait begins: the only operation on its own role's semaphore.
            if let (Op::SemWait(_), Some(entry), true) = (&op, self.waits, self.due.is_empty()) {
                let give_up = (stage.model.roles[self.role].ends[entry].us.max() * 1e3) as u64;
                open().waits[self.role].push((cx.now + give_up.max(1_000_000), self.id));
            }
            return op;
        }
        if self.over {
            return Op::Exit;
        }
        if self.waits.take().is_some() {
            open().waits[self.role].retain(|(_, id)| *id != self.id);
        }
        if self.turns.is_none() {
            self.born(cx);
        }
        match self.turns {
            Some(left @ 1..) => {
                self.turns = Some(left - 1);
                self.turn(cx, left);
            }
            _ => {
                self.over = true;
                open().alive -= 1;
                self.due.extend(self.slot.map(|slot| Op::SemPost(self.object(slot), 1)));
                // A dispatcher's jobs have ended when it has all slots.
                for slot in stage.links[self.role].starts.iter().filter_map(|(_, slot)| *slot) {
                    let (object, all) = (self.object(slot), stage.slots[slot as usize - stage.model.roles.len()]);
                    self.due.push(Op::SemPost(object, all));
                    self.due.extend((0..all).map(|_| Op::SemWait(object)));
                }
            }
        }
        self.due.pop().unwrap_or(Op::Exit)
    }
}

/// Wakes those that have waited longer than anybody did in the recording.
struct Keeper {
    stage: Arc<Stage>,
    copy: usize,
    look: Nanos,
    due: Vec<Op>,
}

impl Program for Keeper {
    fn next(&mut self, cx: &mut Cx<'_>) -> Op {
        if let Some(op) = self.due.pop() {
            return op;
        }
        let copy = &self.stage.copies[self.copy];
        let mut open = copy.open.lock().expect("nobody panics with it");
        if open.alive == 0 {
            return Op::Exit;
        }
        self.due.push(Op::Sleep(self.look));
        for (role, waits) in open.waits.iter_mut().enumerate() {
            let mut late = 0;
            // The waiter itself takes its wait off the list: another may take the post that was meant for it.
            for (until, _) in waits.iter_mut().filter(|(until, _)| *until <= cx.now) {
                *until = cx.now + self.look;
                late += 1;
            }
            if late > 0 {
                cx.metrics.count("model_timeouts", late.into());
                self.due.push(Op::SemPost(ObjId(copy.objects + role as u32), late));
            }
        }
        self.due.pop().expect("a sleep at least")
    }
}
