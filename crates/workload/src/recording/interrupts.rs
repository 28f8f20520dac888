//! What interrupts a CPU, and what it spins for: to be taken out of the running task's time, and to tell what ends a sleep.

use contend_trace::event::{Context, Event, Kind, contention, softirq};

/// What a wake-up on a CPU is to be taken for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wakes {
    /// The running task's.
    Task,
    /// The running task's, if the recording does not hide an interrupt.
    TaskPerhaps,
    /// A timer's.
    Timer,
    /// A device's.
    Device,
    /// An interrupt's.
    Interrupt,
}

/// One CPU's interrupts, as they nest.
#[derive(Clone, Copy, Default, Debug)]
pub struct Interrupts {
    /// Handlers entered and not left.
    depth: u32,
    /// When the outermost was entered.
    since: u64,
    /// Time in handlers since the last [`Interrupts::take`].
    stolen: u64,
    /// Within a device's handler.
    device: bool,
    /// Within a timer's function.
    timer: bool,
    /// When a high-resolution timer last expired here, and the one before; whether the timer that is served is one.
    expired: [u64; 2],
    precise: bool,
    /// The softirq that is served; how.
    softirq: Option<(u32, Softirq)>,
    /// The last event of this CPU was the end of a handler: what follows at once is still the interrupt, or was raised in the same call.
    leaving: Option<Softirq>,
    /// When the last handler was left.
    left: Option<u64>,
    /// Waits for a kernel lock since then.
    spins: Option<u64>,
    /// Time of such waits since the last [`Interrupts::take`].
    spun: u64,
}

/// On whose stack a softirq is served.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Softirq {
    /// On the way out of an interrupt.
    Interrupt,
    /// Within a system call of the running task, which raised it: local network traffic.
    Inline,
}

impl Interrupts {
    /// Take an event of this CPU.
    pub fn event(&mut self, e: &Event) {
        let leaving = std::mem::take(&mut self.leaving);
        match e.kind {
            Kind::Irq { entry, .. } => {
                self.device = entry;
                self.handler(e.ts, entry);
            }
            Kind::Timer { entry, hrtimer } => {
                self.precise = entry && hrtimer;
                if self.precise {
                    self.expired = [e.ts, self.expired[0]];
                }
                self.timer = entry;
                self.handler(e.ts, entry);
            }
            Kind::Softirq { vec, entry: true } => {
                let raised = match leaving {
                    Some(Softirq::Interrupt) => false,
                    // Timers that do not interrupt, and are due when traffic sets them: acknowledgements, pacing.
                    Some(Softirq::Inline) => matches!(vec, softirq::NET_RX | softirq::HRTIMER),
                    None => vec == softirq::NET_RX,
                };
                let inline = raised && self.depth == 0 && e.pid != 0;
                let how = if inline { Softirq::Inline } else { Softirq::Interrupt };
                self.softirq = Some((vec, how));
                if !inline {
                    self.handler(e.ts, true);
                }
            }
            Kind::Softirq { entry: false, .. } => {
                if let Some((_, Softirq::Inline)) = self.softirq.take() {
                    self.leaving = Some(Softirq::Inline);
                } else {
                    self.handler(e.ts, false);
                }
            }
            Kind::ContentionBegin { flags, .. } if flags & contention::SPIN != 0 && self.depth == 0 => {
                self.spins = Some(e.ts);
            }
            Kind::ContentionEnd { .. } if self.depth == 0 => {
                self.spun += self.spins.take().map_or(0, |since| e.ts.saturating_sub(since));
            }
            // A task that is switched away spins no longer; no handler lasts over a switch.
            Kind::Switch { .. } => {
                let Interrupts { stolen, spun, left, expired, .. } = *self;
                *self = Interrupts { stolen, spun, left, expired, ..Interrupts::default() }
            }
            _ => {}
        }
    }

    fn handler(&mut self, ts: u64, entry: bool) {
        if entry {
            if self.depth == 0 {
                self.since = ts;
            }
            self.depth += 1;
        } else if self.depth > 0 {
            self.depth -= 1;
            if self.depth == 0 {
                self.stolen += ts.saturating_sub(self.since);
            }
        }
        if !entry {
            self.left = Some(ts);
            self.leaving = Some(Softirq::Interrupt);
        }
    }

    /// The timer that is served, armed at `since`: was it to expire before all others here? As far as those did expire.
    pub fn was_first(&self, since: u64) -> bool {
        self.precise && self.expired[0] >= since && self.expired[1] < since
    }

    /// When a handler was last left here.
    pub fn left(&self) -> Option<u64> {
        self.left
    }

    /// What a `sched_waking` here is to be taken for.
    pub fn wakes(&self, e: &Event) -> Wakes {
        if e.context == Context::Task {
            return Wakes::Task;
        }
        if self.timer {
            return Wakes::Timer;
        }
        if self.device {
            return Wakes::Device;
        }
        match self.softirq {
            Some((_, Softirq::Inline)) => Wakes::Task,
            Some((softirq::BLOCK | softirq::NET_RX | softirq::NET_TX, _)) => Wakes::Device,
            Some((softirq::TIMER | softirq::HRTIMER, _)) => Wakes::Timer,
            Some(_) => Wakes::Interrupt,
            None if e.context == Context::Unknown => Wakes::TaskPerhaps,
            None => Wakes::Interrupt,
        }
    }

    /// Time in handlers, and of spinning, since the last call.
    pub fn take(&mut self) -> (u64, u64) {
        (std::mem::take(&mut self.stolen), std::mem::take(&mut self.spun))
    }
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::*;

    /// Time taken out of the running task, in us, and what each wake-up is taken for.
    fn served(text: &str) -> (u64, Vec<Wakes>) {
        let (mut interrupts, mut wakes) = (Interrupts::default(), Vec::new());
        for event in contend_trace::Reader::from_read("t", Cursor::new(text.to_string())).expect("a trace") {
            let event = event.expect("an event");
            interrupts.event(&event);
            if let Kind::Waking { .. } = event.kind {
                wakes.push(interrupts.wakes(&event));
            }
        }
        (interrupts.take().0 / 1000, wakes)
    }

    #[test]
    fn what_traffic_raises_in_a_call_is_the_calls() {
        let call = "
 a-7 [000] ..s.. 1.000010: softirq_entry: vec=3 [action=NET_RX]
 a-7 [000] d.s.. 1.000012: sched_waking: comm=b pid=9 prio=120 target_cpu=000
 a-7 [000] ..s.. 1.000020: softirq_exit: vec=3 [action=NET_RX]
 a-7 [000] ..s.. 1.000021: softirq_entry: vec=8 [action=HRTIMER]
 a-7 [000] d.s.. 1.000022: sched_waking: comm=b pid=9 prio=120 target_cpu=000
 a-7 [000] ..s.. 1.000031: softirq_exit: vec=8 [action=HRTIMER]
 a-7 [000] ..s.. 1.000032: softirq_entry: vec=3 [action=NET_RX]
 a-7 [000] ..s.. 1.000040: softirq_exit: vec=3 [action=NET_RX]
";
        assert_eq!(served(call), (0, vec![Wakes::Task, Wakes::Task]));
        // Behind an interrupt all of it is that's.
        let after = " a-7 [000] d.h.. 1.000001: irq_handler_entry: irq=36 name=x
 a-7 [000] d.h.. 1.000009: irq_handler_exit: irq=36 ret=handled";
        assert_eq!(served(&(after.to_string() + call)), (8 + 10 + 10 + 8, vec![Wakes::Device, Wakes::Timer]));
        // A timer's softirq alone, too.
        let timer = call.replace("NET_RX", "TIMER").replace("vec=3", "vec=1");
        assert_eq!(served(&timer), (10 + 10 + 8, vec![Wakes::Timer, Wakes::Timer]));
    }
}
