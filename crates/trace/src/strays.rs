//! Time stamps that cannot be: hours away from those before and after.

use std::io;

use crate::event::Event;

/// Farther from its neighbours no event of a recording is: ns.
const FAR_NS: u64 = 3_600_000_000_000;

/// Holds an event that is far from the one before until the next shows which of the two is damaged.
#[derive(Default)]
pub(crate) struct Strays {
    last: Option<u64>,
    held: Option<Event>,
    /// Read already, to be returned next.
    ready: Option<Event>,
    /// Events that were left out.
    pub count: u64,
}

impl Strays {
    /// The next event that is none.
    pub(crate) fn next(&mut self, mut read: impl FnMut() -> io::Result<Option<Event>>) -> io::Result<Option<Event>> {
        if let Some(event) = self.ready.take() {
            self.last = Some(event.ts);
            return Ok(Some(event));
        }
        loop {
            let Some(event) = read()? else {
                // A single event is near nothing.
                let only = self.held.take();
                self.count += u64::from(self.last.is_some() && only.is_some());
                return Ok(only.filter(|_| self.last.is_none()));
            };
            let near = |ts: u64| event.ts.abs_diff(ts) <= FAR_NS;
            if self.last.is_some_and(near) {
                self.count += u64::from(self.held.take().is_some());
                self.last = Some(event.ts);
                return Ok(Some(event));
            }
            match self.held.take() {
                Some(held) if near(held.ts) => {
                    self.last = Some(held.ts);
                    self.ready = Some(event);
                    return Ok(Some(held));
                }
                stray => {
                    self.count += u64::from(stray.is_some());
                    self.held = Some(event);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{Comm, Context, Kind};

    fn left(hours: &[u64]) -> (Vec<u64>, u64) {
        let mut strays = Strays::default();
        let mut from = hours.iter();
        let mut read = || {
            Ok(from.next().map(|hour| Event {
                ts: hour * FAR_NS,
                cpu: 0,
                pid: 1,
                comm: Comm::from("sh"),
                context: Context::Task,
                resched: false,
                kind: Kind::Setsid { sid: 1 },
            }))
        };
        let mut all = Vec::new();
        while let Some(event) = strays.next(&mut read).expect("no file is read") {
            all.push(event.ts / FAR_NS);
        }
        (all, strays.count)
    }

    #[test]
    fn one_alone_is_left_out_wherever_it_stands() {
        assert_eq!(left(&[5, 5, 90, 5, 6]), (vec![5, 5, 5, 6], 1));
        assert_eq!(left(&[90, 5, 5, 6]), (vec![5, 5, 6], 1));
        assert_eq!(left(&[5, 5, 6, 90]), (vec![5, 5, 6], 1));
        assert_eq!(left(&[5, 5, 0, 90, 5]), (vec![5, 5, 5], 2));
    }

    #[test]
    fn a_pause_is_one_and_a_single_event_stays() {
        assert_eq!(left(&[5, 5, 90, 90, 91]), (vec![5, 5, 90, 90, 91], 0));
        assert_eq!(left(&[5]), (vec![5], 0));
        assert_eq!(left(&[]), (vec![], 0));
    }
}
