//! A policy or program that does not return cannot be stopped from outside: a watchdog notices, from a thread of its own.
//!
//! It hears of a simulation through its progress function ([`Watchdog::hears`]), which is called every 20,000 events: milliseconds.

use crate::host::Status;
use std::sync::mpsc::{self, RecvTimeoutError, SyncSender};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// How often a watchdog looks. A process that was stopped for an hour missed one look.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Looks after one simulation until it is dropped.
pub struct Watchdog {
    heard: Arc<Mutex<Heard>>,
    /// Its end wakes the thread.
    _over: SyncSender<()>,
}

#[derive(Clone, Copy, Default)]
struct Heard {
    last: Option<Status>,
    times: u64,
    /// The simulation waits for its caller.
    away: bool,
}

impl Watchdog {
    /// Calls `hung` on another thread, once, with what was heard last, if nothing is heard for `patience`, rounded up to seconds. `hung`
    /// cannot stop the simulation; it can say so, and end the process.
    pub fn new(patience: Duration, hung: impl FnOnce(Option<Status>) + Send + 'static) -> Self {
        let heard = Arc::new(Mutex::new(Heard::default()));
        let (over, is_over) = mpsc::sync_channel::<()>(0);
        let dog = Arc::clone(&heard);
        let looks = patience.as_secs_f64().ceil().max(1.0) as u64;
        let watch = move || {
            let (mut before, mut silent) = (0, 0);
            while silent < looks {
                match is_over.recv_timeout(LOOK_EVERY) {
                    Err(RecvTimeoutError::Timeout) => {}
                    Ok(()) | Err(RecvTimeoutError::Disconnected) => return,
                }
                let now = *dog.lock().unwrap_or_else(PoisonError::into_inner);
                silent = if now.away || now.times != before { 0 } else { silent + 1 };
                before = now.times;
            }
            let last = dog.lock().unwrap_or_else(PoisonError::into_inner).last;
            hung(last);
        };
        // Without a thread nobody watches, and all else is as before.
        let _ = std::thread::Builder::new().name("watchdog".into()).spawn(watch);
        Watchdog { heard, _over: over }
    }

    /// To be called in the progress function, around what it does: `answer` may take its time.
    pub fn hears<R>(&self, status: Status, answer: impl FnOnce() -> R) -> R {
        let set = |away| {
            let mut heard = self.heard.lock().unwrap_or_else(PoisonError::into_inner);
            *heard = Heard { last: Some(status), times: heard.times + 1, away };
        };
        set(true);
        let r = answer();
        set(false);
        r
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(now: u64) -> Status {
        Status { now, horizon: None, alive: 1, dispatches: 3 }
    }

    #[test]
    fn a_watchdog_calls_once_when_nothing_is_heard() {
        let (called, calls) = mpsc::channel();
        let dog = Watchdog::new(Duration::from_millis(1), move |last| called.send(last.map(|s| s.now)).expect("heard"));
        dog.hears(status(7), || ());
        assert_eq!(calls.recv_timeout(Duration::from_secs(20)), Ok(Some(7)));
        assert_eq!(calls.recv_timeout(Duration::from_secs(20)), Err(RecvTimeoutError::Disconnected));
    }

    #[test]
    fn it_waits_while_the_simulation_does() {
        let (called, calls) = mpsc::channel::<()>();
        let dog = Watchdog::new(Duration::from_secs(1), move |_| called.send(()).expect("heard"));
        let waited = dog.hears(status(7), || calls.recv_timeout(Duration::from_secs(3)));
        assert_eq!(waited, Err(RecvTimeoutError::Timeout));
        drop(dog);
        assert_eq!(calls.recv_timeout(Duration::from_secs(20)), Err(RecvTimeoutError::Disconnected));
    }
}
