//! Roles as tasks.
//!
//! Each role has two semaphores: one that wake-ups are posted to, and one for what it is asked. Each way of asking has one for the
//! replies. Who asks is queued beside the semaphore; a task that is asked replies when it next waits to be asked, as a server does that
//! has served.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard};

use contend_platform::{Nanos, Time};
use contend_sim::program::{Cx, ObjId, ObjectKind, Op, Program, Sched, TaskSpec, Workload};
use rand::RngExt;

use super::meeting::{Meeting, patience_us};
use super::{By, End, Fitted, Role};
use crate::model::play::PlayOptions;
use crate::model::step::Why;
use crate::speed::run_ns;

/// The keeper looks this often for waits to be given up, at most.
const LOOK_NS_MIN: Nanos = 1_000_000;

/// After how long a wait is given up, in µs: twice what nine of ten recorded ones took. What was waited for is run times, mostly:
/// longer by as much as those are.
fn give_up_us(end: &End, speed: f64) -> f64 {
    2.0 * end.us.at(0.9) / speed.min(1.0)
}

/// What all tasks share.
struct Stage {
    model: Fitted,
    speed: f64,
    /// There are fewer slots than jobs were recorded at once: who asks may have to wait for the one that is to be asked to end.
    scarce: bool,
    /// How many meet at the barrier, and the first of the two semaphores on which they wait in turn: who is fast may be at the next round
    /// before others have left this one.
    parties: u32,
    barrier: u32,
    /// If nobody has come for so long, those who wait there go on.
    patience: Nanos,
    /// For each role, the roles of its ends, wakes and starts by number.
    links: Vec<Links>,
    copies: Vec<Copy>,
}

/// The semaphores are counted from the copy's first.
struct Links {
    ends: Vec<Ending>,
    wakes: Vec<usize>,
    /// Role, and whether a slot is needed.
    starts: Vec<(usize, bool)>,
    /// Slots of each task for those.
    slots: u32,
    /// Its tasks meet at the barrier.
    meets: bool,
}

/// How a turn ends.
#[derive(Clone, Copy)]
enum Ending {
    /// With a sleep of its length.
    Sleep,
    /// With a wait for a post to this semaphore; given up if it lasts too long.
    Wait(u32),
    /// With a wait for being asked.
    Asked(u32),
    /// With asking this role, which has this semaphore; replies are posted to the other.
    Ask { role: usize, asked: u32, reply: u32 },
    /// At the barrier.
    Meet,
}

struct Copy {
    /// Its first semaphore.
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
    /// Waits: for a post to which semaphore, until when they last before they are given up, and whose they are.
    waits: Vec<(u32, Time, u64)>,
    /// By role: the semaphores on which those wait who have asked it and have no reply.
    asked: Vec<VecDeque<u32>>,
    /// What is dealt out to the tasks of each role.
    deals: Vec<Deal>,
    /// By role: semaphores of slots that no task has.
    slots: Vec<Vec<u32>>,
    /// The barrier.
    meeting: Meeting,
    /// Tasks that live.
    alive: u64,
    ids: u64,
}

/// Add the model's tasks to `w`.
pub fn play(model: Fitted, w: &mut Workload, options: PlayOptions) {
    let number = |name: &str| model.roles.iter().position(|r| r.name == name).expect("checked");
    // Names and first values of a copy's semaphores.
    let mut objects: Vec<(String, u32)> = model.roles.iter().map(|r| (format!("wake/{}", r.name), 0)).collect();
    let mut object = |name: String, initial: u32| {
        objects.push((name, initial));
        (objects.len() - 1) as u32
    };
    let asked: Vec<Option<u32>> =
        model.roles.iter().map(|r| model.is_asked(r).then(|| object(format!("asked/{}", r.name), 0))).collect();
    let lives = lives(&model);
    // By role: semaphores with the slots of a task each, the first last.
    let (mut links, mut pools) = (Vec::new(), Vec::<Vec<u32>>::new());
    for (i, role) in model.roles.iter().enumerate() {
        let ends = role.ends.iter().map(|e| match (e.by(), asked[i]) {
            (Some(By::Ask), _) => {
                let server = number(&e.role);
                let reply = object(format!("reply/{}/{}", role.name, e.role), 0);
                Ending::Ask { role: server, asked: asked[server].expect("this role asks it"), reply }
            }
            (Some(By::Sleep(Why::Task)), Some(own)) if model.asks(&e.role, role) => Ending::Asked(own),
            (Some(By::Sleep(Why::Task)), _) => Ending::Wait(i as u32),
            (Some(By::Barrier), _) => Ending::Meet,
            _ => Ending::Sleep,
        });
        let ends = ends.collect();
        let most = role.starts.iter().map(|s| s.at_once).max().unwrap_or(0);
        let slots = options.jobs.filter(|_| most > 1).unwrap_or(most);
        let pool = if slots > 0 { lives[i] } else { 0 };
        pools.push((0..pool).map(|life| object(format!("slots/{}/{life}", role.name), slots)).collect());
        pools[i].reverse();
        let starts = role.starts.iter().map(|s| (number(&s.role), s.at_once > 0)).collect();
        let (wakes, meets) = (role.wakes.iter().map(|w| number(&w.role)).collect(), role.meets());
        links.push(Links { ends, wakes, starts, slots, meets });
    }
    let parties = model.parties();
    let barrier = if parties > 0 { [0, 1].map(|round| object(format!("barrier/{round}"), 0))[0] } else { 0 };
    let waits =
        || model.roles.iter().flat_map(|r| &r.ends).filter(|e| matches!(e.by(), Some(By::Sleep(Why::Task) | By::Ask)));
    let patience = patience_us(&model, options.speed);
    let barrier_us = if parties > 0 { patience } else { f64::INFINITY };
    let give_up = waits().map(|e| give_up_us(e, options.speed)).fold(barrier_us, f64::min);
    let look = ((give_up * 1e3) as Nanos).max(LOOK_NS_MIN);
    let keeps = parties > 0 || waits().next().is_some();
    let mut copies = Vec::new();
    for copy in 0..options.copies {
        let suffix = if options.copies > 1 { format!("+{copy}") } else { String::new() };
        copies.push(Copy {
            objects: w.objects.len() as u32,
            open: Mutex::new(Open {
                asked: vec![VecDeque::new(); model.roles.len()],
                deals: model.roles.iter().map(Deal::of).collect(),
                slots: pools.clone(),
                ..Open::default()
            }),
        });
        for (name, initial) in &objects {
            w.object(format!("{name}{suffix}"), ObjectKind::Semaphore { initial: *initial });
        }
    }
    let mut limits = model.roles.iter().flat_map(|r| &r.starts).map(|s| s.at_once);
    let scarce = options.jobs.is_some_and(|jobs| limits.any(|limit| limit > 1 && jobs < limit));
    let stage = Arc::new(Stage {
        model,
        speed: options.speed,
        scarce,
        parties,
        barrier,
        patience: (patience * 1e3) as Nanos,
        links,
        copies,
    });
    for copy in 0..stage.copies.len() {
        for role in 0..stage.model.roles.len() {
            for _ in 0..stage.model.roles[role].tasks {
                let open = &mut stage.copies[copy].open();
                w.task(Actor::spec(&stage, copy, open, role, None));
            }
        }
        if keeps {
            let keeper = Keeper { stage: Arc::clone(&stage), copy, look, due: Vec::new() };
            let spec = TaskSpec::new("model-keeper", keeper);
            w.task(TaskSpec { background: true, ..spec });
        }
    }
}

/// Of more tasks of a role than this at a time, the others start without limit.
const POOL_MAX: u32 = 4096;

/// How many tasks each role has in a whole run, at most about [`POOL_MAX`].
pub(in crate::model) fn lives(model: &Fitted) -> Vec<u32> {
    let mut lives = vec![0u32; model.roles.len()];
    // Role by role, with all that its tasks start: roles do not start themselves.
    let mut todo: Vec<(usize, u32)> = model.roles.iter().map(|r| r.tasks).enumerate().filter(|(_, n)| *n > 0).collect();
    while let Some((role, n)) = todo.pop() {
        let n = n.min(POOL_MAX - lives[role]);
        lives[role] += n;
        for s in model.roles[role].starts.iter().filter(|_| n > 0) {
            let child = model.roles.iter().position(|r| r.name == s.role).expect("checked");
            todo.push((child, (f64::from(n) * s.per_life).ceil().min(f64::from(POOL_MAX)) as u32));
        }
    }
    lives
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

/// What an actor does next.
enum Due {
    Op(Op),
    /// Wait for a post to this semaphore: to be given up after so long, in ns.
    Wait(u32, Option<Nanos>),
    /// Wait to be asked: to be given up as above.
    Asked(u32, Option<Nanos>),
    /// Ask this role by a post to its semaphore; replies are posted to the other.
    Ask {
        role: usize,
        asked: u32,
        reply: u32,
    },
    /// Come to the barrier.
    Meet,
}

/// A task that acts a role.
struct Actor {
    stage: Arc<Stage>,
    copy: usize,
    role: usize,
    /// The slot that it gives back at its end.
    slot: Option<u32>,
    /// Its own slots, for those that it starts.
    slots: Option<u32>,
    /// Turns that are left; unknown before the first.
    turns: Option<u32>,
    /// Starts that are left, by entry.
    starts: Vec<u32>,
    /// Requests without a reply, by entry of its ends.
    unanswered: Vec<u32>,
    /// Where it owes replies.
    askers: Vec<u32>,
    /// Its number among the copy's.
    id: u64,
    /// It waits, and that may be given up; or to be asked.
    waits: bool,
    awaits_request: bool,
    /// What is to be done, last first.
    due: Vec<Due>,
    /// It counts among those that meet at the barrier.
    meets: bool,
    over: bool,
}

impl Actor {
    fn spec(stage: &Arc<Stage>, copy: usize, open: &mut Open, role: usize, slot: Option<u32>) -> TaskSpec {
        let (r, meets) = (&stage.model.roles[role], stage.links[role].meets);
        open.ids += 1;
        open.alive += u64::from(!r.serves);
        open.meeting.members += u32::from(meets);
        let id = open.ids;
        let actor = Actor {
            stage: Arc::clone(stage),
            copy,
            role,
            slot,
            slots: None,
            turns: None,
            starts: Vec::new(),
            unanswered: vec![0; r.ends.len()],
            askers: Vec::new(),
            id,
            waits: false,
            awaits_request: false,
            due: Vec::new(),
            meets,
            over: false,
        };
        let suffix = if stage.copies.len() > 1 { format!("+{copy}") } else { String::new() };
        let spec = TaskSpec::new(format!("{}-{id}{suffix}", r.name), actor);
        TaskSpec { sched: Some(r.class()).filter(|s| *s != Sched::default()), background: r.serves, ..spec }
    }

    fn object(&self, number: u32) -> ObjId {
        ObjId(self.stage.copies[self.copy].objects + number)
    }

    fn post(&self, number: u32, n: u32) -> Due {
        Due::Op(Op::SemPost(self.object(number), n))
    }

    fn born(&mut self, open: &mut Open, cx: &mut Cx<'_>) {
        let role = &self.stage.model.roles[self.role];
        let deal = &mut open.deals[self.role];
        self.turns = Some((role.turns.at(deal.place(0, cx)).round() as u32).max(1));
        self.slots = open.slots[self.role].pop();
        self.starts = std::iter::zip(&mut deal.starts, &role.starts).map(|(even, s)| even.take(s.per_life)).collect();
    }

    /// A turn's run, cut where it wakes and starts others, and its end.
    fn turn(&mut self, open: &mut Open, cx: &mut Cx<'_>, left: u32) {
        let stage = Arc::clone(&self.stage);
        let (role, links) = (&stage.model.roles[self.role], &stage.links[self.role]);
        let mut events: Vec<Due> = Vec::new();
        let run = run_ns(role.run_us.at(open.deals[self.role].place(1, cx)) * 1e3, stage.speed);
        for (entry, &who) in links.wakes.iter().enumerate() {
            let n = open.deals[self.role].wakes[entry].take(role.wakes[entry].per_turn);
            events.extend((0..n).map(|_| self.post(who as u32, 1)));
        }
        for (entry, &(who, limited)) in links.starts.iter().enumerate() {
            // Evenly over the turns that are left; those that meet at the barrier at once, since each waits there for all.
            let n = if stage.links[who].meets { self.starts[entry] } else { self.starts[entry].div_ceil(left) };
            self.starts[entry] -= n;
            let slot = self.slots.filter(|_| limited);
            for _ in 0..n {
                events.extend(slot.map(|s| Due::Op(Op::SemWait(self.object(s)))));
                events.push(Due::Op(Op::Spawned(Box::new(Actor::spec(&stage, self.copy, open, who, slot)))));
            }
        }
        let piece = (run / (events.len() + 1) as f64) as Nanos;
        self.due.clear();
        if left > 1 {
            self.end_turn(open, cx);
        }
        self.due.push(Due::Op(Op::Run(piece)));
        for event in events.into_iter().rev() {
            self.due.push(event);
            self.due.push(Due::Op(Op::Run(piece)));
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
        let end = &role.ends[entry];
        match stage.links[self.role].ends[entry] {
            Ending::Sleep => self.due.push(Due::Op(Op::Sleep((end.us.at(place) * 1e3) as Nanos))),
            Ending::Wait(object) => self.due.push(Due::Wait(object, Some(give_up_ns(end, self.stage.speed)))),
            Ending::Asked(object) => {
                // One that serves to the end of the run has no slot.
                let give_up = (stage.scarce && !role.serves).then(|| give_up_ns(end, stage.speed));
                self.due.push(Due::Asked(object, give_up));
                self.reply();
            }
            Ending::Meet => self.due.push(Due::Meet),
            Ending::Ask { role, asked, reply } => {
                self.due.push(Due::Ask { role, asked, reply });
                if self.unanswered[entry] == end.open {
                    self.due.push(self.await_reply(entry, reply));
                } else {
                    self.unanswered[entry] += 1;
                }
            }
        }
    }

    /// Reply to all that have asked.
    fn reply(&mut self) {
        for reply in std::mem::take(&mut self.askers) {
            self.due.push(self.post(reply, 1));
        }
    }

    /// A server that stays replies in the end; another may be gone.
    fn await_reply(&self, entry: usize, reply: u32) -> Due {
        let end = &self.stage.model.roles[self.role].ends[entry];
        let stays = self.stage.model.roles.iter().any(|r| r.name == end.role && r.serves);
        Due::Wait(reply, (!stays).then(|| give_up_ns(end, self.stage.speed)))
    }

    /// The next turn, or the end of its life.
    fn go_on(&mut self, cx: &mut Cx<'_>) {
        let stage = Arc::clone(&self.stage);
        let open = &mut stage.copies[self.copy].open();
        if self.turns.is_none() {
            self.born(open, cx);
        }
        let serves = stage.model.roles[self.role].serves;
        match self.turns {
            Some(left) if left > 0 || serves => {
                self.turns = Some(left.saturating_sub(1));
                self.turn(open, cx, if serves { left.max(2) } else { left });
            }
            _ => {
                self.over = true;
                self.end();
            }
        }
    }

    /// Its last turn is over.
    fn end(&mut self) {
        let stage = Arc::clone(&self.stage);
        let links = &stage.links[self.role];
        self.due.extend(self.slot.map(|slot| self.post(slot, 1)));
        // All that it has started have ended when it has all slots.
        if let Some(slots) = self.slots {
            self.due.push(self.post(slots, links.slots));
            let object = self.object(slots);
            self.due.extend((0..links.slots).map(|_| Due::Op(Op::SemWait(object))));
        }
        for (entry, end) in links.ends.iter().enumerate() {
            if let Ending::Ask { reply, .. } = *end {
                let missing = std::mem::take(&mut self.unanswered[entry]);
                for _ in 0..missing {
                    self.due.push(self.await_reply(entry, reply));
                }
            }
        }
        self.reply();
    }

    fn op(&mut self, due: Due, cx: &Cx<'_>) -> Op {
        let copy = &self.stage.copies[self.copy];
        match due {
            Due::Op(op) => op,
            Due::Wait(object, give_up) | Due::Asked(object, give_up) => {
                if let Some(give_up) = give_up {
                    copy.open().waits.push((object, cx.now + give_up, self.id));
                    self.waits = true;
                }
                self.awaits_request = matches!(due, Due::Asked(..));
                Op::SemWait(self.object(object))
            }
            Due::Ask { role, asked, reply } => {
                copy.open().asked[role].push_back(reply);
                Op::SemPost(self.object(asked), 1)
            }
            Due::Meet => {
                let mut open = copy.open();
                open.meeting.came += 1;
                open.meeting.last = cx.now;
                match open.meeting.complete(self.stage.parties) {
                    Some((_, 1)) => Op::Run(0),
                    Some((round, came)) => Op::SemPost(self.object(self.stage.barrier + round), came - 1),
                    None => Op::SemWait(self.object(self.stage.barrier + open.meeting.round)),
                }
            }
        }
    }
}

fn give_up_ns(end: &End, speed: f64) -> Nanos {
    ((give_up_us(end, speed) * 1e3) as Nanos).max(LOOK_NS_MIN)
}

impl Program for Actor {
    fn next(&mut self, cx: &mut Cx<'_>) -> Op {
        if self.waits || self.awaits_request {
            let mut open = self.stage.copies[self.copy].open();
            if std::mem::take(&mut self.waits) {
                open.waits.retain(|(.., id)| *id != self.id);
            }
            if std::mem::take(&mut self.awaits_request) {
                self.askers.extend(open.asked[self.role].pop_front());
            }
        }
        if let Some(due) = self.due.pop() {
            return self.op(due, cx);
        }
        if !self.over {
            self.go_on(cx);
            if let Some(due) = self.due.pop() {
                return self.op(due, cx);
            }
        }
        let mut open = self.stage.copies[self.copy].open();
        if self.meets {
            self.meets = false;
            open.meeting.members -= 1;
            open.meeting.fewer = true;
            if let Some((round, came)) = open.meeting.complete(self.stage.parties) {
                return Op::SemPost(self.object(self.stage.barrier + round), came);
            }
        }
        open.alive -= 1;
        open.slots[self.role].extend(self.slots.take());
        Op::Exited
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
        // The waiter itself takes its wait off the list: another may take the post that was meant for it.
        for (object, until, _) in open.waits.iter_mut().filter(|(_, until, _)| *until <= cx.now) {
            *until = cx.now + self.look;
            cx.metrics.count("model_timeouts", 1);
            self.due.push(Op::SemPost(ObjId(copy.objects + *object), 1));
        }
        let meeting = &mut open.meeting;
        if meeting.came > 0 && cx.now > meeting.last.saturating_add(self.stage.patience).saturating_add(LOOK_NS_MIN) {
            let (round, came) = meeting.end();
            cx.metrics.count("model_timeouts", came.into());
            self.due.push(Op::SemPost(ObjId(copy.objects + self.stage.barrier + round), came));
        }
        self.due.pop().expect("a sleep at least")
    }
}
