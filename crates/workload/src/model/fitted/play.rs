//! Roles as tasks.

use std::sync::{Arc, Mutex, MutexGuard};

use contend_platform::{Nanos, Time};
use contend_sim::program::{Cx, ObjId, ObjectKind, Op, Program, TaskSpec, Workload};
use rand::RngExt;

use super::{End, Fitted, Role};
use crate::model::play::PlayOptions;
use crate::model::step::Why;

/// The keeper looks this often for waits to be given up, at most.
const LOOK_NS_MIN: Nanos = 1_000_000;

/// After how long a wait for a task is given up, in µs: twice what nine of ten recorded ones took.
fn give_up_us(end: &End) -> f64 {
    2.0 * end.us.at(0.9)
}

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

impl Copy {
    fn open(&self) -> MutexGuard<'_, Open> {
        self.open.lock().expect("nobody panics with it")
    }
}

/// What a copy's tasks share.
#[derive(Default)]
struct Open {
    /// Of each role: until when its waits last before they are given up, and whose they are.
    waits: Vec<Vec<(Time, u64)>>,
    /// What is dealt out to the tasks of each role.
    deals: Vec<Deal>,
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
    let waits = model.roles.iter().flat_map(|r| &r.ends).filter(|e| e.why() == Some(Why::Task)).map(give_up_us);
    let look = ((waits.fold(f64::INFINITY, f64::min) * 1e3) as Nanos).max(LOOK_NS_MIN);
    let mut copies = Vec::new();
    for copy in 0..options.copies {
        let suffix = if options.copies > 1 { format!("+{copy}") } else { String::new() };
        copies.push(Copy {
            objects: w.objects.len() as u32,
            open: Mutex::new(Open {
                waits: vec![Vec::new(); model.roles.len()],
                deals: model.roles.iter().map(Deal::of).collect(),
                ..Open::default()
            }),
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
                let open = &mut stage.copies[copy].open();
                w.task(Actor::spec(&stage, copy, open, role, None));
            }
        }
        if waits {
            let keeper = Keeper { stage: Arc::clone(&stage), copy, look, due: Vec::new() };
            let spec = TaskSpec::new("model-keeper", keeper);
            w.task(TaskSpec { background: true, ..spec });
        }
    }
}

/// Steps of the sequences that draw turns, run times and sleeps: the golden ratio, and the roots of 2 and 3, less their whole parts. A
/// sequence of such a step is as even as one can be, and the three are independent of each other.
const STEPS: [f64; 3] = [0.618_033_988_749_894_9, 0.414_213_562_373_095_1, 0.732_050_807_568_877_2];

/// What is dealt out to the tasks of a role: after any number of turns each way of ending happened as often as its share says, and the
/// quantiles were met evenly, so that the work of a short run does not hang on a few draws.
#[derive(Default)]
struct Deal {
    /// Where the sequences are; begun at random.
    at: Option<[f64; 3]>,
    ends: Vec<Even>,
    wakes: Vec<Even>,
    starts: Vec<Even>,
}

impl Deal {
    fn of(role: &Role) -> Self {
        let even = |n: usize| vec![Even(0.5); n];
        Deal { at: None, ends: even(role.ends.len()), wakes: even(role.wakes.len()), starts: even(role.starts.len()) }
    }

    /// The next place of a sequence, 0 to 1.
    fn place(&mut self, sequence: usize, cx: &mut Cx<'_>) -> f64 {
        let at = self.at.get_or_insert_with(|| std::array::from_fn(|_| cx.rng.random()));
        at[sequence] = (at[sequence] + STEPS[sequence]).fract();
        at[sequence]
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
    fn spec(stage: &Arc<Stage>, copy: usize, open: &mut Open, role: usize, slot: Option<u32>) -> TaskSpec {
        let r = &stage.model.roles[role];
        open.ids += 1;
        open.alive += 1;
        let id = open.ids;
        let actor = Actor {
            stage: Arc::clone(stage),
            copy,
            role,
            slot,
            turns: None,
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

    fn born(&mut self, open: &mut Open, cx: &mut Cx<'_>) {
        let role = &self.stage.model.roles[self.role];
        let deal = &mut open.deals[self.role];
        self.turns = Some((role.turns.at(deal.place(0, cx)).round() as u32).max(1));
        self.starts = std::iter::zip(&mut deal.starts, &role.starts).map(|(even, s)| even.take(s.per_life)).collect();
    }

    /// A turn's run, cut where it wakes and starts others, and the sleep.
    fn turn(&mut self, open: &mut Open, cx: &mut Cx<'_>, left: u32) {
        let stage = Arc::clone(&self.stage);
        let (role, links) = (&stage.model.roles[self.role], &stage.links[self.role]);
        let mut events: Vec<Op> = Vec::new();
        let run = role.run_us.at(open.deals[self.role].place(1, cx)) * 1e3 / stage.speed;
        for (entry, &who) in links.wakes.iter().enumerate() {
            let n = open.deals[self.role].wakes[entry].take(role.wakes[entry].per_turn);
            events.extend((0..n).map(|_| Op::SemPost(self.object(who as u32), 1)));
        }
        for (entry, &(who, slot)) in links.starts.iter().enumerate() {
            // Evenly over the turns that are left.
            let n = self.starts[entry].div_ceil(left);
            self.starts[entry] -= n;
            for _ in 0..n {
                events.extend(slot.map(|s| Op::SemWait(self.object(s))));
                events.push(Op::Spawn(Box::new(Actor::spec(&stage, self.copy, open, who, slot))));
            }
        }
        let piece = (run / (events.len() + 1) as f64) as Nanos;
        self.due.clear();
        if left > 1 {
            self.end_turn(open, cx);
        }
        self.due.push(Op::Run(piece));
        for event in events.into_iter().rev() {
            self.due.push(event);
            self.due.push(Op::Run(piece));
        }
    }

    fn end_turn(&mut self, open: &mut Open, cx: &mut Cx<'_>) {
        let stage = Arc::clone(&self.stage);
        let role = &stage.model.roles[self.role];
        // The end that is most behind its share.
        let deal = &mut open.deals[self.role];
        for (even, end) in std::iter::zip(&mut deal.ends, &role.ends) {
            even.0 += end.share;
        }
        let most = (0..deal.ends.len()).max_by(|&a, &b| deal.ends[a].0.total_cmp(&deal.ends[b].0));
        let Some(entry) = most else { return };
        deal.ends[entry].0 -= 1.0;
        let place = deal.place(2, cx);
        match stage.links[self.role].ends[entry] {
            Some(_) => {
                self.waits = Some(entry);
                self.due.push(Op::SemWait(self.object(self.role as u32)));
            }
            None => self.due.push(Op::Sleep((role.ends[entry].us.at(place) * 1e3) as Nanos)),
        }
    }
}

impl Program for Actor {
    fn next(&mut self, cx: &mut Cx<'_>) -> Op {
        let stage = Arc::clone(&self.stage);
        let copy = &stage.copies[self.copy];
        if let Some(op) = self.due.pop() {
            // Its wait begins: the only operation on its own role's semaphore.
            if let (Op::SemWait(_), Some(entry), true) = (&op, self.waits, self.due.is_empty()) {
                let give_up = (give_up_us(&stage.model.roles[self.role].ends[entry]) * 1e3) as u64;
                copy.open().waits[self.role].push((cx.now + give_up.max(1_000_000), self.id));
            }
            return op;
        }
        if self.over {
            return Op::Exit;
        }
        let open = &mut copy.open();
        if self.waits.take().is_some() {
            open.waits[self.role].retain(|(_, id)| *id != self.id);
        }
        if self.turns.is_none() {
            self.born(open, cx);
        }
        match self.turns {
            Some(left @ 1..) => {
                self.turns = Some(left - 1);
                self.turn(open, cx, left);
            }
            _ => {
                self.over = true;
                open.alive -= 1;
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

/// Wakes those that have waited so long that it is given up.
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
        let mut open = copy.open();
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
