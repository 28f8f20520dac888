//! The loop that runs a simulation and watches how it goes on.

use crate::engine::{Engine, Stacks, Stop};
use crate::host::{Limits, Outcome, Progress, Status};
use contend_platform::{CpuId, NEVER, Nanos, Time};
use contend_sched::kernel::{CorruptList, PolicyError};
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Events between two calls of the progress function.
const EVENTS_PER_LOOK: u64 = 20_000;
/// And the most virtual time: a CPU that computes on in place makes few events.
const LOOK_EVERY: Nanos = 100_000_000;

/// What runs on the machine.
pub(crate) trait System {
    /// Tasks alive.
    fn alive(&self) -> u64;
    /// Do all that could go on wait, and have waited for as long as this, for what only they can give?
    fn stuck(&self, now: Time, long: Nanos) -> bool;
    /// Does somebody sleep until a time that is still to come?
    fn sleeps(&self, now: Time) -> bool;
    /// Somebody runnable who has waited for longer than this, in words.
    fn stalled(&self, now: Time, long: Nanos) -> Option<String>;
    /// Who waits for what.
    fn who_waits(&self) -> Vec<String>;
}

/// Run `stacks` on `engine` to the end, and the virtual time of that.
pub(crate) fn run(
    engine: &Engine,
    stacks: &mut Stacks,
    system: &dyn System,
    (horizon, limits): (Time, Limits),
    progress: Progress<'_>,
) -> (Outcome, Time) {
    let run = AssertUnwindSafe(|| run_to_end(engine, stacks, system, (horizon, limits), progress));
    let outcome = catch_unwind(run).unwrap_or_else(outcome_of_panic);
    let end = if outcome == Outcome::Horizon { horizon } else { engine.settled_now() };
    (outcome, end)
}

fn run_to_end(
    engine: &Engine,
    stacks: &mut Stacks,
    system: &dyn System,
    (horizon, limits): (Time, Limits),
    progress: Progress<'_>,
) -> Outcome {
    // Dispatches, tasks' CPU time and the time when a task last ran, for livelocks.
    let mut seen = (0, 0, 0);
    // Looking for stalls walks the task table: do it rarely.
    let mut next_look = limits.stall / 4;
    loop {
        let until = horizon.min(engine.settled_now().saturating_add(LOOK_EVERY));
        match engine.run(stacks, until, EVENTS_PER_LOOK) {
            Stop::Asked => return Outcome::Finished,
            Stop::Horizon if until < horizon => {}
            Stop::Horizon => return stalled(engine, system, horizon, limits).map_or(Outcome::Horizon, Outcome::Stall),
            Stop::Nothing => return Outcome::Deadlock(system.who_waits()),
            Stop::Budget => {}
        }
        let now = engine.settled_now();
        let dispatches = engine.dispatches.get();
        let known = (horizon != NEVER).then_some(horizon);
        if !progress(Status { now, horizon: known, alive: system.alive(), dispatches }) {
            return Outcome::Interrupted;
        }
        if now >= next_look {
            next_look = now + limits.stall / 4;
            // Threads that spin do so while ticks go on: the engine alone cannot tell.
            if system.stuck(now, limits.stall / 2) {
                return Outcome::Deadlock(system.who_waits());
            }
            if let Some(stalled) = stalled(engine, system, now, limits) {
                return Outcome::Stall(stalled);
            }
        }
        // Nobody was given a CPU, nobody computes, and nobody will be woken by the clock: all that happens is the kernel's own.
        let ran = engine.task_time();
        if (dispatches, ran) != (seen.0, seen.1) {
            seen = (dispatches, ran, now);
        } else if now - seen.2 > limits.stall {
            if !system.sleeps(now) {
                return Outcome::Livelock(now - seen.2);
            }
            seen.2 = now;
        }
    }
}

/// Who has been kept from running for too long: a task, or a CPU that waits for a spinlock of the kernel, interrupts off. That is a
/// hard lockup after a third of what makes a stall: by default 10 s, as Linux's `watchdog_thresh`.
fn stalled(engine: &Engine, system: &dyn System, now: Time, limits: Limits) -> Option<String> {
    let locked_up = |(_, (_, since)): &(CpuId, (u32, Time))| now.saturating_sub(*since) > limits.stall / 3;
    let words = |(CpuId(cpu), (_, since))| {
        let since = since / 1_000_000;
        format!(
            "CPU {cpu} has waited for a spinlock of the kernel since {since} ms and does nothing else (a hard lockup)"
        )
    };
    engine.lock_waits().find(locked_up).map(words).or_else(|| system.stalled(now, limits.stall))
}

/// CPUs that spin in the kernel, in words.
pub(crate) fn who_spins(engine: &Engine) -> Vec<String> {
    engine.waiting().into_iter().map(|(cpu, line)| format!("{cpu:?} spins on line {line}")).collect()
}

fn outcome_of_panic(payload: Box<dyn Any + Send>) -> Outcome {
    let payload = match payload.downcast::<PolicyError>() {
        Ok(e) => return Outcome::PolicyError(e.0),
        Err(other) => other,
    };
    let payload = match payload.downcast::<CorruptList>() {
        Ok(e) => return Outcome::CorruptList(e.0),
        Err(other) => other,
    };
    let text = payload
        .downcast_ref::<&str>()
        .map(ToString::to_string)
        .or_else(|| payload.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "a panic without a message".into());
    Outcome::Panic(text)
}
