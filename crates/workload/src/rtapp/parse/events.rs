//! Events.

use std::collections::HashMap;

use super::super::ast::{Event, EventKind};
use super::super::error::{Problem, RtAppError};
use super::super::json::{Member, cut};
use super::{BOTH_KEYS, EVENTS, GLOBAL_KEYS, INT_MAX, LEGACY_KEYS, Parser, TASK_KEYS, event_name};

impl Parser<'_> {
    pub(super) fn event(
        &mut self,
        m: &Member<'_>,
        task: &str,
        place: &'static str,
    ) -> Result<Option<Event>, RtAppError> {
        let key = &*m.key;
        if LEGACY_KEYS.contains(&key) {
            let what = "a key of rt-app 0.x; since 1.0 a task is a list of events: \"run\", \"timer\", \"lock\"...";
            return Err(self.error(m.at, Problem::Senseless(what.into())));
        }
        if key.starts_with("external_workload") {
            return Err(self.error(m.at, Problem::NotModelled("code from a shared library cannot run here".into())));
        }
        let Some(name) = event_name(key) else {
            if GLOBAL_KEYS.contains(&key) {
                let what = format!("\"{key}\" is a key of the section \"global\"; move it there");
                return Err(self.error(m.at, Problem::Senseless(what)));
            }
            let tasks = if place == "a task" { &TASK_KEYS[..] } else { &[] };
            let valid = EVENTS.iter().chain(&BOTH_KEYS).chain(tasks).copied();
            return Err(self.unknown(m, place, valid));
        };
        let kind = match name {
            "run" => match self.int(m, -1, INT_MAX, "a whole number of microseconds, or -1 for ever")? {
                -1 => EventKind::RunForever,
                us => EventKind::Run(us as u32),
            },
            "runtime" => EventKind::Runtime(self.micros(m)?),
            "sleep" => EventKind::Sleep(self.micros(m)?),
            "mem" => EventKind::Mem(self.bytes(m, 0)?),
            "iorun" => EventKind::IoRun(self.bytes(m, 0)?),
            "timer" => self.timer(m)?,
            "lock" => EventKind::Lock(self.name(m, "the name of a mutex")?),
            "unlock" => EventKind::Unlock(self.name(m, "the name of a mutex")?),
            "signal" => EventKind::Signal(self.name(m, "the name of a condition variable")?),
            "broad" | "broadcast" => EventKind::Broadcast(self.name(m, "the name of a condition variable")?),
            "wait" => {
                let (cond, mutex) = self.cond_and_mutex(m)?;
                EventKind::Wait { cond, mutex }
            }
            "sync" => {
                let (cond, mutex) = self.cond_and_mutex(m)?;
                EventKind::Sync { cond, mutex, take: false }
            }
            "barrier" => EventKind::Barrier(self.name(m, "the name of a barrier")?),
            "suspend" => {
                // workgen fills in the task's name where the value is empty or omitted.
                let name = match &m.value {
                    None => String::new(),
                    Some(item) => self.text_item(item, "the name under which the task waits, or \"\" for its own")?,
                };
                EventKind::Suspend(if name.is_empty() { task.into() } else { name })
            }
            "resume" => EventKind::Resume(self.name(m, "the name of whom to wake")?),
            "yield" => {
                if let Some(item) = &m.value {
                    self.text_item(item, "a text, usually \"\"")?;
                }
                EventKind::Yield
            }
            _ => EventKind::Fork(self.name(m, "the name of a task")?),
        };
        Ok(Some(Event { key: key.into(), pos: self.lines.pos(m.at), kind }))
    }

    fn timer(&mut self, m: &Member<'_>) -> Result<EventKind, RtAppError> {
        let item = self.value(m)?;
        let members = self.object(item, "an object such as { \"ref\": \"unique\", \"period\": 10000 }")?;
        let (mut timer, mut period, mut absolute) = (None, None, false);
        let mut seen = HashMap::new();
        for m in members {
            self.at(&m.key, |p| {
                p.duplicate(m, &mut seen)?;
                match &*m.key {
                    "ref" => timer = Some(p.name(m, "the name of a timer, or \"unique\"")?),
                    "period" => period = Some(p.micros(m)?),
                    "mode" => {
                        let item = p.value(m)?;
                        absolute = match &*p.text_item(item, "\"relative\" or \"absolute\"")? {
                            "relative" => false,
                            "absolute" => true,
                            other => {
                                let found = format!("{:?}", cut(other));
                                let want = "\"relative\" or \"absolute\"".into();
                                return Err(p.error(item.at, Problem::Value { found, want }));
                            }
                        };
                    }
                    _ => return Err(p.unknown(m, "a timer", ["ref", "period", "mode"].into_iter())),
                }
                Ok(())
            })?;
        }
        let missing = |want| self.error(item.at, Problem::Missing { want });
        let timer = timer.ok_or_else(|| missing("\"ref\": the timer's name, or \"unique\""))?;
        let period_us = period.ok_or_else(|| missing("\"period\": microseconds"))?;
        Ok(EventKind::Timer { timer, period_us, absolute })
    }

    fn cond_and_mutex(&mut self, m: &Member<'_>) -> Result<(String, String), RtAppError> {
        let item = self.value(m)?;
        let members = self.object(item, "an object such as { \"ref\": \"queue\", \"mutex\": \"m\" }")?;
        let (mut cond, mut mutex) = (None, None);
        let mut seen = HashMap::new();
        for m in members {
            self.at(&m.key, |p| {
                p.duplicate(m, &mut seen)?;
                match &*m.key {
                    "ref" => cond = Some(p.name(m, "the name of a condition variable")?),
                    "mutex" => mutex = Some(p.name(m, "the name of a mutex")?),
                    _ => return Err(p.unknown(m, "a wait or sync", ["ref", "mutex"].into_iter())),
                }
                Ok(())
            })?;
        }
        let missing = |want| self.error(item.at, Problem::Missing { want });
        let cond = cond.ok_or_else(|| missing("\"ref\": the condition variable to wait for"))?;
        let mutex = mutex.ok_or_else(|| missing("\"mutex\": the mutex to release while waiting"))?;
        Ok((cond, mutex))
    }
}
