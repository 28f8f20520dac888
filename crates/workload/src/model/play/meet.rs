//! What a player does at a barrier (`barriers` says which, `mutexes` with which mutex).

use std::sync::Mutex;

use contend_sim::program::{ObjId, Op};

use super::Player;
use crate::model::barriers::Meeting;
use crate::model::mutexes::Act;

/// Who goes on from a barrier that is made of a condition variable locks its mutex first.
#[derive(Clone, Copy)]
pub(super) struct Relock {
    mutex: ObjId,
    /// It has it until a later step, otherwise for no time.
    keeps: bool,
}

impl Player {
    /// The round that this one comes to at step `at`, and who has come to it.
    fn meeting(&self, at: usize) -> Option<(&Meeting, &Mutex<Vec<u32>>)> {
        let rounds = &self.tape.barriers.rounds;
        let round = *self.tape.barriers.arrivals.get(&at)?;
        Some((&rounds[round], &self.tape.meetings[self.copy.number as usize * rounds.len() + round]))
    }

    /// Would it have to wait at the barrier at step `at` now?
    pub(super) fn waits_at(&self, at: usize) -> bool {
        let came = |m: &Mutex<Vec<u32>>| m.lock().expect("nobody panics with it").len();
        self.meeting(at).is_some_and(|(meeting, here)| came(here) + 1 < meeting.parties)
    }

    /// Come to the barrier at step `at`: wait, or wake those who do in one call.
    pub(super) fn meet(&mut self, at: usize) {
        let Some((meeting, here)) = self.meeting(at) else { return };
        let has = |at| match self.tape.mutexes.acts.get(&at) {
            Some(Act::Lock(mutex, _)) => Some(self.copy.mutex(*mutex)),
            _ => None,
        };
        let own = has(at).map(|mutex| Relock { mutex, keeps: true });
        let relock = own.or_else(|| Some(Relock { mutex: has(meeting.last.1)?, keeps: false }));
        let came = {
            let mut came = here.lock().expect("nobody panics with it");
            came.push(self.number);
            if came.len() < meeting.parties { None } else { Some(std::mem::take(&mut *came)) }
        };
        let Some(mut came) = came else {
            self.relocks = relock.filter(|_| !self.tape.mutexes.relocked.contains(&at));
            self.wait(true, false);
            self.make_good(None);
            self.begins(at, true);
            return;
        };
        came.pop();
        let posts: Vec<Op> = (came.iter().enumerate().rev())
            .map(|(i, &sleeper)| {
                self.closes(sleeper);
                let more = i + 1 < came.len();
                Op::Wake { semaphore: self.copy.wake(sleeper), sync: false, tail: 0, blocks: more }
            })
            .collect();
        match relock {
            Some(relock) => self.relock(relock, posts),
            None => self.due.extend(posts),
        }
    }

    /// Lock, do that (last first), and unlock unless that comes later.
    pub(super) fn relock(&mut self, Relock { mutex, keeps }: Relock, ops: impl IntoIterator<Item = Op>) {
        if !keeps {
            self.due.push(Op::Unlock(mutex));
        }
        self.due.extend(ops);
        self.lock(mutex);
        self.locks -= u32::from(!keeps);
    }
}
