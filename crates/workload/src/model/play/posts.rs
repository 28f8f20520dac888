//! What a player does about posts: which it makes at once, owes, makes before it stops, or waits to make (`pairs` says why).

use std::sync::Arc;
use std::sync::atomic::Ordering;

use contend_sim::program::Op;

use super::{Copy, Owed, Player, Tape};
use crate::model::pairs::Held;
use crate::model::step::What;

impl Copy {
    /// Tell `task`, which waits for it, how far another is: in the call with which that `stops`, if it does, so that nobody comes in between.
    fn notice(self, tape: &Tape, task: u32, stops: bool) -> Op {
        let waits = self.progress(tape, task).expect("there is one for each task");
        waits.notices.fetch_add(1, Ordering::Relaxed);
        let semaphore = self.wake(task);
        if stops { Op::Wake { semaphore, sync: false, tail: 0, blocks: true } } else { Op::SemPost(semaphore, 1) }
    }
}

impl Player {
    /// The wait at step `at` begins: whoever owes a post for it hears of it, if it sleeps; in the call with which this one `stops`, if it does.
    pub(super) fn begins(&mut self, at: usize, stops: bool) {
        let tape = Arc::clone(&self.tape);
        let Some(progress) = self.copy.progress(&tape, self.number) else { return };
        progress.begun.store(at + 1, Ordering::Relaxed);
        progress.open.store(tape.pairs.streams.contains(&at), Ordering::Relaxed);
        progress.owing.lock().expect("nobody panics with it").retain(|&(wait, task)| {
            let waker = self.copy.progress(&tape, task).expect("there is one for each task");
            if wait <= at && waker.waiting.load(Ordering::Relaxed) {
                self.due.push(self.copy.notice(&tape, task, stops));
            }
            wait > at
        });
    }

    /// Has `sleeper` begun this wait?
    fn has_begun(&self, sleeper: u32, wait: usize) -> bool {
        self.copy.progress(&self.tape, sleeper).is_none_or(|p| p.begun.load(Ordering::Relaxed) > wait)
    }

    /// A post that is owed and due.
    pub(super) fn owed(&mut self) -> Option<Op> {
        if let Some(due) = self.streams.iter().position(|o| self.is_open(o.sleeper)) {
            let owed = self.streams.remove(due);
            return Some(self.late(owed));
        }
        let due = self.owes.iter().position(|&(owed, wait)| self.has_begun(owed.sleeper, wait))?;
        let (owed, _) = self.owes.remove(due);
        Some(self.late(owed))
    }

    /// Make a post that was owed.
    fn late(&mut self, Owed { sleeper, sync, tail }: Owed) -> Op {
        self.closes(sleeper);
        self.ahead += tail;
        Op::Wake { semaphore: self.copy.wake(sleeper), sync, tail, blocks: false }
    }

    /// The post at step `at` is owed. The system call that it is part of goes on as it would; that in which it will be made is one of those
    /// that wake nobody, somewhere in a run.
    fn owe(&self, at: usize, sleeper: u32) -> Owed {
        let sync = matches!(self.tape.model.steps[at].what(), What::Post(_, true));
        let tail = match self.call_rest() {
            Some((ns, false)) => ns,
            _ => 0,
        };
        Owed { sleeper, sync, tail }
    }

    /// Does `sleeper` wait for a stream?
    fn is_open(&self, sleeper: u32) -> bool {
        self.copy.progress(&self.tape, sleeper).is_none_or(|p| p.open.load(Ordering::Relaxed))
    }

    /// Wait, before the post at step `at`, until `sleeper` stops, if that is called for; is it? This one owes it a post already, and nobody waits for a mutex of this
    /// one meanwhile. Whoever waits for a task is let go before that waits for anything, so none of these waits can be part of a deadlock.
    fn hold_back(&mut self, at: usize, sleeper: u32) -> bool {
        let Some(progress) = self.copy.progress(&self.tape, sleeper) else { return false };
        let stops = progress.waiting.load(Ordering::Relaxed) || progress.over.load(Ordering::Relaxed);
        let behind = self.locks == 0
            && !stops
            && self.streams.iter().chain(self.owes.iter().map(|(o, _)| o)).any(|o| o.sleeper == sleeper);
        if behind {
            progress.held_up.lock().expect("nobody panics with it").push(self.number);
            self.held_up = Some(at);
        }
        behind
    }

    /// It does not wait for that any more. Has it been let go, and has nothing for a sleeper that waits, the others are, too.
    pub(super) fn goes_on(&mut self, sleeper: u32) {
        let Some(progress) = self.copy.progress(&self.tape, sleeper) else { return };
        progress.held_up.lock().expect("nobody panics with it").retain(|&task| task != self.number);
        if progress.waiting.load(Ordering::Relaxed) {
            self.let_go(sleeper, usize::MAX, false);
        }
    }

    /// Writers that wait until that task stops go on, so many of them; told in the call with which that task stops if it is this one (`stops`).
    fn let_go(&mut self, sleeper: u32, writers: usize, stops: bool) {
        let Some(progress) = self.copy.progress(&self.tape, sleeper) else { return };
        let mut held_up = progress.held_up.lock().expect("nobody panics with it");
        let writers = held_up.len().min(writers);
        self.due.extend(held_up.drain(..writers).map(|task| self.copy.notice(&self.tape, task, stops)));
    }

    /// It is about to wait, or to end: writers that wait for that go on. Of those of a stream for which it waits (`open`) the first: that wakes it.
    pub(super) fn stops(&mut self, open: bool) {
        self.let_go(self.number, if open { 1 } else { usize::MAX }, true);
    }

    /// It has to no longer: it is woken.
    pub(super) fn closes(&self, sleeper: u32) {
        if let Some(progress) = self.copy.progress(&self.tape, sleeper) {
            progress.open.store(false, Ordering::Relaxed);
            progress.waiting.store(false, Ordering::Relaxed);
        }
    }

    /// A post of a stream that it owes, if it is about to sleep or to end: what it has sent is there.
    pub(super) fn sent_before(&mut self) -> Option<Op> {
        let what = (self.at < self.to).then(|| self.tape.model.steps[self.at].what());
        let stops = match what {
            None | Some(What::Sleep(..)) => true,
            Some(What::Barrier(_)) => self.waits_at(self.at),
            _ => false,
        };
        if self.streams.is_empty() || !(stops || self.request.is_some()) {
            return None;
        }
        let Owed { sleeper, .. } = self.streams.remove(0);
        self.closes(sleeper);
        Some(Op::SemPost(self.copy.wake(sleeper), 1))
    }

    /// The post at step `at`; it is owed if the sleeper has not begun the wait that it ended.
    pub(super) fn post(&mut self, at: usize, sleeper: u32) -> Option<Op> {
        match self.tape.pairs.held.get(&at) {
            Some(&Held { server: Some(server), .. }) => {
                let sent = self.send(server);
                self.request = sent.is_none().then_some(at);
                sent.flatten()
            }
            None if self.tape.pairs.streams.contains(&at) => {
                if self.is_open(sleeper) {
                    self.closes(sleeper);
                    return Some(Op::SemPost(self.copy.wake(sleeper), 1));
                }
                if self.hold_back(at, sleeper) {
                    return None;
                }
                let owed = self.owe(at, sleeper);
                self.streams.push(owed);
                None
            }
            Some(&Held { sleeper, wait, .. }) if !self.has_begun(sleeper, wait) => {
                if self.hold_back(at, sleeper) {
                    return None;
                }
                self.listen(sleeper, wait);
                let owed = self.owe(at, sleeper);
                self.owes.push((owed, wait));
                None
            }
            _ => {
                self.closes(sleeper);
                Some(Op::SemPost(self.copy.wake(sleeper), 1))
            }
        }
    }

    /// Have `sleeper` tell when it begins this wait.
    fn listen(&self, sleeper: u32, wait: usize) {
        let progress = self.copy.progress(&self.tape, sleeper).expect("there is one for each task");
        let mut owing = progress.owing.lock().expect("nobody panics with it");
        if !owing.contains(&(wait, self.number)) {
            owing.push((wait, self.number));
        }
    }

    /// The next request to `server` if that has replied, else to another of its kind that has. `None`: none has, and they will tell.
    /// `Some(None)`: it was sent before, to make good.
    fn send(&mut self, server: usize) -> Option<Option<Op>> {
        let tape = Arc::clone(&self.tape);
        let servers = &tape.pairs.servers[&self.number];
        self.sent.resize(servers.len(), 0);
        self.asked.resize(servers.len(), 0);
        let kind: Vec<usize> = (0..servers.len()).filter(|&s| servers[s].kind == servers[server].kind).collect();
        let of_kind = |requests: &[usize]| kind.iter().map(|&s| requests[s]).sum::<usize>();
        if of_kind(&self.sent) > of_kind(&self.asked) {
            self.asked[server] += 1;
            return Some(None);
        }
        let open = |s: usize| servers[s].waits.get(self.sent[s]).map(|&wait| (servers[s].task, wait));
        let ready = |s: &usize| open(*s).is_some_and(|(task, wait)| self.has_begun(task, wait));
        let chosen = Some(server).filter(ready).or_else(|| kind.iter().copied().find(ready));
        match chosen {
            Some(s) => {
                self.sent[s] += 1;
                self.asked[server] += 1;
                Some(Some(Op::SemPost(self.copy.wake(servers[s].task), 1)))
            }
            None => {
                kind.iter().filter_map(|&s| open(s)).for_each(|(task, wait)| self.listen(task, wait));
                self.make_good(Some(servers[server].kind));
                None
            }
        }
    }

    /// It stops: servers that others stood in for get what they lack, but those of the `kind` that it stops for.
    pub(super) fn make_good(&mut self, kind: Option<usize>) {
        let tape = Arc::clone(&self.tape);
        let Some(servers) = tape.pairs.servers.get(&self.number) else { return };
        for s in (0..self.sent.len()).filter(|&s| Some(servers[s].kind) != kind) {
            while self.sent[s] < self.asked[s]
                && let Some(&wait) = servers[s].waits.get(self.sent[s])
            {
                self.sent[s] += 1;
                let server = servers[s].task;
                if self.has_begun(server, wait) {
                    self.due.push(Op::SemPost(self.copy.wake(server), 1));
                } else {
                    self.listen(server, wait);
                    self.owes.push((Owed { sleeper: server, sync: false, tail: 0 }, wait));
                }
            }
        }
    }
}
