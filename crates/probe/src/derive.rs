//! From repetitions to costs.
//!
//! A cost is measured where an experiment is nothing but that cost, and derived where it is a part of a measured sum. A
//! sum is that of the simulator's path: what the simulator charges for the same experiment adds up to what was measured.
//! The parts of a sum that no experiment separates keep the proportion that they have in `machines/defaults.toml`. Each
//! source says so, with the sum.

mod hardware;
mod idle;

use contend_machine::{Cost, Machine, Unit, keys};

use crate::layout::Layout;
use crate::plan::{Facts, IDLE, LARGE, SMALL, Samples, What};
use crate::stats::Spread;
use crate::sysfs::RawIdleState;
use crate::{Check, How, Row};

/// A cost that was found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Found {
    /// As in a machine file.
    pub section: &'static str,
    /// As in a machine file.
    pub field: &'static str,
    /// How it came about.
    pub how: How,
    /// Value, range and source.
    pub cost: Cost,
}

/// What costs are derived from.
pub struct Given<'a> {
    /// The repetitions.
    pub samples: &'a Samples,
    /// The machine's shape, with the default costs.
    pub machine: &'a Machine,
    /// Cache sizes.
    pub layout: &'a Layout,
    /// Declared by the kernel.
    pub idle_states: &'a [RawIdleState],
    /// How it was measured.
    pub facts: &'a Facts,
    /// The machine is a guest of a hypervisor.
    pub guest: bool,
}

/// What was derived.
pub struct Derived {
    /// Costs; the entries of an array in order.
    pub costs: Vec<Found>,
    /// Other figures.
    pub checks: Vec<Check>,
    /// What could not be measured.
    pub notes: Vec<String>,
    /// Idle CPUs halt: to wake one takes an interrupt.
    pub idle_halts: bool,
}

/// Derives what the repetitions allow.
pub fn derive(given: &Given<'_>) -> Derived {
    let out = Derived { costs: Vec::new(), checks: Vec::new(), notes: Vec::new(), idle_halts: false };
    let mut d = Deriving { given, out };
    d.lines();
    d.calls();
    d.sleeping();
    d.interrupts();
    d.idle();
    d.smt();
    d.hidden_siblings();
    d.caches();
    d.checks();
    d.out
}

/// Every cost of a machine with how it came about.
pub fn rows(machine: &Machine, found: &[Found]) -> Vec<Row> {
    let mut rows = Vec::new();
    for (key, costs) in machine.costs.iter() {
        let how: Vec<How> =
            found.iter().filter(|f| (f.section, f.field) == (key.section, key.field)).map(|f| f.how).collect();
        for (i, c) in costs.iter().enumerate() {
            rows.push(Row {
                cost: key.name_of(i),
                value: c.value,
                lo: c.lo,
                hi: c.hi,
                unit: key.unit.name(),
                how: how.get(i).copied().unwrap_or(How::Estimate),
                source: c.source.clone(),
            });
        }
    }
    rows
}

/// An interrupt's way, in ns, below which nothing is to be told from it: hypervisors that deliver interrupts without an exit.
const FLIGHT_MIN: f64 = 1_000.0;

struct Deriving<'a> {
    given: &'a Given<'a>,
    out: Derived,
}

impl Deriving<'_> {
    fn of(&self, what: What) -> Option<Spread> {
        Spread::of(self.given.samples.get(&what)?)
    }

    fn put(&mut self, key: (&'static str, &'static str), how: How, s: Spread, source: String) {
        let unit = keys().find(|k| (k.section, k.field) == key).map_or(Unit::Ns, |k| k.unit);
        // Nothing that was measured is free.
        let fit = |v: f64| (v as u64).clamp(1, unit.max());
        let value = fit(s.value.round());
        let cost = Cost { value, lo: fit(s.lo.floor()).min(value), hi: fit(s.hi.ceil()).max(value), source };
        self.out.costs.push(Found { section: key.0, field: key.1, how, cost });
    }

    fn measured(&mut self, key: (&'static str, &'static str), s: Option<Spread>, how: &str) {
        if let Some(s) = s {
            self.put(key, How::Measured, s, format!("measured by contend probe: {how}; {} repetitions", s.n));
        }
    }

    fn derived(&mut self, key: (&'static str, &'static str), s: Spread, how: &str) {
        self.put(key, How::Derived, s, format!("derived by contend probe: {how}; {} repetitions", s.n));
    }

    /// The costs of a default.
    fn default(&self, key: (&str, &str), index: usize) -> Cost {
        self.given.machine.costs.get(key.0, key.1).expect("a key of the list")[index].clone()
    }

    /// Parts of a sum in the proportion of the defaults.
    fn split(&mut self, parts: &[(&'static str, &'static str)], sum: Spread, how: &str) {
        let shares: Vec<u64> = parts.iter().map(|k| self.default(*k, 0).value).collect();
        let all = shares.iter().sum::<u64>().max(1) as f64;
        let names: Vec<&str> = parts.iter().map(|k| k.1).collect();
        let proportion: Vec<String> = shares.iter().map(u64::to_string).collect();
        let into = format!(
            "{how}; that is {:.0} ns for {}, divided {} as in defaults.toml",
            sum.value,
            names.join(", "),
            proportion.join(":")
        );
        for (key, share) in parts.iter().zip(shares) {
            self.derived(*key, sum.times(share as f64 / all), &into);
        }
    }

    /// An estimate that must not contradict its neighbours.
    fn estimate(&mut self, key: (&'static str, &'static str), cost: Cost) {
        self.out.costs.push(Found { section: key.0, field: key.1, how: How::Estimate, cost });
    }

    fn calls(&mut self) {
        let clock = self.of(What::ClockRead);
        self.measured(("kernel", "clock_read"), clock, "the monotonic clock, read again and again");
        let syscall = self.of(What::Syscall);
        self.measured(("kernel", "syscall"), syscall, "getppid");
        let Some(syscall) = syscall else { return };
        let two = syscall.times(2.0);
        let call = |s: Spread| format!("less {:.0} ns a system call", s.value);
        if let Some(pipe) = self.of(What::PipeSmall) {
            let how = format!(
                "half of a write and a read of {SMALL} bytes by one thread ({:.0} ns), {}",
                pipe.value,
                call(syscall)
            );
            self.derived(("kernel", "pipe_op"), pipe.less(two).times(0.5), &how);
            if let Some(large) = self.of(What::PipeLarge) {
                let kib = 2.0 * (LARGE - SMALL) as f64 / 1024.0;
                let how = format!(
                    "{LARGE} instead of {SMALL} bytes through a pipe, in and out ({:.0} ns more)",
                    large.value - pipe.value
                );
                self.derived(("kernel", "copy_kib"), large.less(pipe).times(1.0 / kib), &how);
            }
        }
        if let Some(socket) = self.of(What::Socket) {
            let how = format!(
                "half of a write and a read of {SMALL} bytes through a local stream socket ({:.0} ns), {}",
                socket.value,
                call(syscall)
            );
            self.derived(("kernel", "socket_op"), socket.less(two).times(0.5), &how);
        }
        if let Some(timer) = self.of(What::TimerProgram) {
            let how =
                format!("half of arming and disarming the CPU's next timer ({:.0} ns), {}", timer.value, call(syscall));
            let half = timer.less(two).times(0.5);
            // Putting it in its queue is no more than elsewhere; the rest is the hardware's, or the hypervisor's.
            let queued = half.at_most(self.default(("kernel", "timer_program"), 0).value as f64);
            self.derived(("kernel", "timer_program"), queued, &format!("{how}; at most as in defaults.toml"));
            if half.value >= queued.value + 1.0 {
                let how = format!("{how}, and less timer_program ({:.0})", queued.value);
                self.derived(("interrupts", "timer_write"), half.less(queued), &how);
            }
        }
        if let Some((miss, atomic)) = self.of(What::FutexMismatch).zip(self.of(What::Atomic)) {
            let how = format!(
                "FUTEX_WAIT on a word that differs ({:.0} ns), {} and {:.0} for the bucket's lock",
                miss.value,
                call(syscall),
                atomic.value
            );
            self.derived(("kernel", "futex_op"), miss.less(syscall).less(atomic), &how);
        }
    }

    /// A cost that was found before.
    fn known(&self, section: &str, field: &str) -> Option<Spread> {
        let f = self.out.costs.iter().find(|f| (f.section, f.field) == (section, field))?;
        let (value, lo, hi) = (f.cost.value as f64, f.cost.lo as f64, f.cost.hi as f64);
        Some(Spread { value, lo, hi, n: usize::MAX })
    }

    /// The split of a futex ping-pong on one CPU.
    fn sleeping(&mut self) {
        let switch = self.of(What::Switch);
        self.measured(
            ("cpu", "context_switch"),
            switch,
            "two threads of one process on one CPU that yield to each other: what a switch takes beyond a yield that \
             has nobody to yield to",
        );
        let parts = || Some((self.of(What::PingPong)?, self.of(What::Wake)?, self.of(What::ClockRead)?, switch?));
        let costs = || Some((self.known("kernel", "syscall")?, self.known("kernel", "futex_op")?));
        let Some(((half, wake, clock, switch), (syscall, futex))) = parts().zip(costs()) else { return };
        let woke = wake.less(clock).less(syscall).less(futex);
        let how = format!(
            "FUTEX_WAKE of a thread of the same CPU ({:.0} ns) less a system call and futex_op ({:.0} and {:.0})",
            wake.value - clock.value,
            syscall.value,
            futex.value
        );
        let wake_parts = [("kernel", "ttwu"), ("kernel", "select_cpu"), ("kernel", "enqueue")];
        self.split(&wake_parts, woke, &how);
        let slept = half.less(wake).less(clock.times(2.0)).less(syscall).less(futex).less(switch);
        let how = format!(
            "half a futex ping-pong on one CPU ({:.0} ns) less its wake-up, a clock reading, a system call, futex_op and \
             the switch ({:.0})",
            half.value - clock.value,
            switch.value
        );
        self.split(&[("kernel", "dequeue"), ("kernel", "pick")], slept, &how);
    }

    fn interrupts(&mut self) {
        let Some(clock) = self.of(What::ClockRead) else { return };
        let irq = self.of(What::IpiGap).map(|g| g.less(clock));
        self.measured(
            ("interrupts", "irq"),
            irq,
            "what a membarrier of another CPU takes from a thread that reads the clock without pause",
        );
        let write = self.known("interrupts", "timer_write").unwrap_or(Spread::exactly(0.0));
        // Without another CPU: the timer's interrupt, split.
        match (irq, self.of(What::TimerGap)) {
            (Some(irq), Some(gap)) => {
                let how = format!(
                    "a timer's interrupt on a busy CPU ({:.0} ns) less irq and timer_write ({:.0} and {:.0})",
                    gap.value - clock.value,
                    irq.value,
                    write.value
                );
                self.derived(("kernel", "timer"), gap.less(clock).less(irq).less(write), &how);
            }
            (None, Some(gap)) => {
                let how = format!(
                    "a timer's interrupt on a busy CPU ({:.0} ns) less timer_write ({:.0})",
                    gap.value - clock.value,
                    write.value
                );
                self.split(&[("interrupts", "irq"), ("kernel", "timer")], gap.less(clock).less(write), &how);
            }
            _ => {}
        }
        if let Some(irq) = self.known("interrupts", "irq") {
            self.irq_leave(irq);
        }
        if let Some((gap, irq)) = self.of(What::TickGap).zip(self.known("interrupts", "irq")) {
            let how = format!("the tick on a busy CPU ({:.0} ns) less irq ({:.0})", gap.value - clock.value, irq.value);
            self.derived(("kernel", "tick"), gap.less(clock).less(irq), &how);
        }
        let known = self.known("interrupts", "irq_leave").zip(self.known("kernel", "syscall"));
        let (Some(irq), Some((leave, syscall))) = (irq, known) else { return };
        let line = self.near_line();
        let way_in = irq.less(leave);
        let flight = |call: Spread| call.less(clock).less(syscall).less(way_in).less(line);
        let how = |call: Spread| {
            format!(
                "a membarrier that interrupts one other CPU ({:.0} ns) less a system call, irq without irq_leave ({:.0}) and \
                 a line transfer",
                call.value - clock.value,
                way_in.value
            )
        };
        let near = self.of(What::IpiCall { remote: false });
        let far = self.of(What::IpiCall { remote: true });
        if let Some(near) = near {
            self.sent(flight(near), way_in, &how(near));
        }
        if let Some((far, send)) = far.zip(self.known("interrupts", "ipi_send")) {
            let how = format!("{}, to another node, and less ipi_send", how(far));
            self.derived(("interrupts", "ipi_deliver_remote"), flight(far).less(send), &how);
        } else if let Some(near) = self.known("interrupts", "ipi_deliver") {
            let (d, was) =
                (self.default(("interrupts", "ipi_deliver"), 0), self.default(("interrupts", "ipi_deliver_remote"), 0));
            let ratio = was.value as f64 / d.value.max(1) as f64;
            self.put(
                ("interrupts", "ipi_deliver_remote"),
                How::Estimate,
                near.times(ratio),
                format!("estimate: ipi_deliver times {ratio:.2}, the ratio of defaults.toml"),
            );
        }
    }

    /// The part of an interrupt that follows its handler's answer.
    fn irq_leave(&mut self, irq: Spread) {
        let key = ("interrupts", "irq_leave");
        let Some((after, syscall)) = self.of(What::IpiAfter).zip(self.known("kernel", "syscall")) else {
            let leave = Spread { value: irq.value / 2.0, lo: 0.0, hi: irq.value, n: 0 };
            return self.put(
                key,
                How::Estimate,
                leave,
                "estimate: half of irq: the way out is as long as the way in".into(),
            );
        };
        // The answer reaches the sender by a line's transfer, and half a system call lies before it reads the clock.
        let how = format!(
            "where a membarrier interrupts another CPU, that goes on {:.0} ns after the call has ended; half a system call and a line transfer more, at \
             most irq",
            after.value
        );
        let leave = after.plus(syscall.times(0.5)).plus(self.near_line()).at_most(irq.value);
        self.derived(key, leave, &how);
    }

    /// The two parts of an interrupt's way to another CPU. How long the sender's is shows where a halted CPU is woken: the call is that
    /// beyond what waking on the same CPU takes, and lines from elsewhere. Where idle CPUs watch a flag nothing is sent, and the call is hardly longer.
    fn sent(&mut self, flight: Spread, way_in: Spread, how: &str) {
        let calls = self.given.guest.then(|| self.of(What::WakeIdleCall).zip(self.of(What::Wake))).flatten();
        let lines = self.near_line().times(idle::WAKEUP_TRANSFERS);
        let sent = calls.map(|(idle, same)| (idle, idle.less(same).less(lines)));
        let sent = sent.filter(|(_, sent)| flight.value >= FLIGHT_MIN && sent.value > flight.value / 2.0);
        let Some((call, sent)) = sent else {
            return self.split(&[("interrupts", "ipi_send"), ("interrupts", "ipi_deliver")], flight, how);
        };
        self.out.idle_halts = true;
        // A CPU that runs may be interrupted before the sender's part is over; one that halts waits for it.
        let whole = flight.value + way_in.value;
        let send = sent.at_most(whole);
        let how_send = format!(
            "FUTEX_WAKE to a CPU that halts ({:.0} ns), less one on the same CPU and {:.0} ns of line transfers; at most {how}, and the way into the \
             handler; that is {whole:.0} ns",
            call.value, lines.value
        );
        self.derived(("interrupts", "ipi_send"), send, &how_send);
        let how = format!("{how}, and less ipi_send ({:.0})", send.value);
        self.derived(("interrupts", "ipi_deliver"), flight.less(send), &how);
    }

    fn declared(&mut self, key: (&'static str, &'static str), s: Spread, what: &str) {
        self.put(key, How::Declared, s, format!("declared by the kernel: {what}"));
    }

    fn checks(&mut self) {
        let topo = &self.given.machine.topology;
        let mut checks = vec![
            (What::Yield, "sched_yield with nobody to yield to".to_string()),
            (What::PingPong, "half a futex ping-pong on one CPU (wake, sleep, switch)".into()),
            (What::Memory, "a load from memory".into()),
        ];
        checks.push((What::WakeIdleCall, "the waking call for an idle CPU, with two readings of the clock".into()));
        for (i, idle) in IDLE.into_iter().enumerate() {
            checks.push((
                What::WakeIdle(i),
                format!("wake-up of a CPU idle for {} us, until the thread runs", idle.as_micros()),
            ));
        }
        for class in 1..topo.nr_distances() {
            let name = topo.distance_name(class);
            checks.push((
                What::Ping(class),
                format!("half a round trip of one polled word, {name} (two transfers in the simulator)"),
            ));
        }
        for (what, words) in checks {
            if let Some(s) = self.of(what) {
                self.out.checks.push(Check { what: words, value: s.value, lo: s.lo, hi: s.hi, n: s.n });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::idle::{NEVER_NS, steps};
    use super::*;
    use crate::plan::Places;
    use contend_machine::Place;
    use std::collections::BTreeMap;

    fn layout(cpus: usize) -> Layout {
        let places = (0..cpus).map(|i| Place { core: i, cluster: None, llc: 0, node: 0 }).collect();
        let (kernel_cpu, slit) = ((0..cpus).collect(), vec![vec![10]]);
        Layout {
            kernel_cpu,
            places,
            slit,
            private_kib: None,
            llc_kib: None,
            kinds: vec![],
            capacity: vec![],
            asym_packing: false,
            notes: vec![],
        }
    }

    fn derived(samples: &[(What, f64)], states: &[RawIdleState]) -> Derived {
        let samples: Samples = samples.iter().map(|(w, v)| (*w, vec![*v; 9])).collect();
        let places = Places { single: vec![0], pairs: BTreeMap::new(), core: vec![], first_remote: 4 };
        let facts = Facts { places, hz: 250, refill_kib: 64, memory_bytes: 1 << 20 };
        let machine = Machine::synthetic("2c").unwrap();
        let (layout, guest) = (layout(2), true);
        derive(&Given {
            samples: &samples,
            machine: &machine,
            layout: &layout,
            idle_states: states,
            facts: &facts,
            guest,
        })
    }

    fn value(d: &Derived, section: &str, field: &str) -> Option<u64> {
        Some(d.costs.iter().find(|f| (f.section, f.field) == (section, field))?.cost.value)
    }

    /// Round numbers that add up.
    fn round() -> Vec<(What, f64)> {
        vec![
            (What::Hit, 1.0),
            (What::Atomic, 10.0),
            (What::ClockRead, 20.0),
            (What::Memory, 100.0),
            (What::Transfer(2), 50.0),
            (What::Syscall, 100.0),
            (What::FutexMismatch, 210.0),
            (What::Switch, 500.0),
            (What::Wake, 20.0 + 100.0 + 100.0 + 360.0),
            (What::PingPong, 580.0 + 40.0 + 100.0 + 100.0 + 500.0 + 200.0),
            (What::IpiGap, 720.0),
            (What::TimerGap, 1020.0),
            (What::TickGap, 1520.0),
            (What::IpiCall { remote: false }, 20.0 + 100.0 + 350.0 + 50.0 + 850.0),
        ]
    }

    #[test]
    fn sums_are_split_and_add_up() {
        let d = derived(&round(), &[]);
        let all = [
            ("lines", "llc", 50),
            ("lines", "node", 100),
            ("kernel", "futex_op", 100),
            ("kernel", "ttwu", 200),
            ("kernel", "select_cpu", 60),
            ("kernel", "enqueue", 100),
            ("kernel", "dequeue", 100),
            ("kernel", "pick", 100),
            ("cpu", "context_switch", 500),
            ("interrupts", "irq", 700),
            ("interrupts", "irq_leave", 350),
            ("interrupts", "ipi_send", 250),
            ("interrupts", "ipi_deliver", 600),
            ("kernel", "timer", 300),
            ("kernel", "tick", 800),
        ];
        for (section, field, expected) in all {
            assert_eq!(value(&d, section, field), Some(expected), "{section}.{field}");
        }
        assert_eq!(value(&d, "interrupts", "idle_exit"), None, "no wake-up across CPUs was measured");
    }

    #[test]
    fn leaving_idle_is_what_the_simulator_does_not_charge() {
        let mut samples = round();
        // 100 + 100 + 200 + 60 + 100 + 100 + 2 x 20 + 500 + 39 x 1 + 8 x 10 + 16 x 50 = 2119.
        samples.extend((0..5).map(|i| (What::WakeIdle(i), 2119.0 + 1000.0)));
        samples.push((What::WakeIdle(5), 2119.0 + 1000.0 + 90_000.0));
        let d = derived(&samples, &[]);
        assert_eq!(value(&d, "interrupts", "idle_exit"), Some(1000));
        assert_eq!(value(&d, "interrupts", "c1e_residency"), Some(NEVER_NS));
        assert_eq!(value(&d, "interrupts", "c6_exit"), Some(91_000));
        assert_eq!(value(&d, "interrupts", "tick_restart"), None, "what setting a timer takes was not measured");
        // Besides the 100 ns of the defaults for a timer's place in its queue.
        let timer = |ns: f64| [samples.clone(), vec![(What::TimerProgram, 400.0 + 2.0 * ns)]].concat();
        let keys = ["timer_write", "tick_restart", "idle_exit", "c6_exit"];
        let parts = |d: &Derived| keys.map(|key| value(d, "interrupts", key).expect("it was found"));
        let d = derived(&timer(200.0), &[]);
        assert_eq!(parts(&d), [200, 200, 800, 90_800]);
        assert_eq!((value(&d, "kernel", "timer_program"), value(&d, "kernel", "timer")), (Some(100), Some(100)));
        assert_eq!(parts(&derived(&timer(900.0), &[])), [900, 500, 500, 90_500], "at most half");
        let residency = value(&d, "interrupts", "c6_residency").unwrap();
        assert!((1_000_000..3_000_000).contains(&residency), "{residency}");

        let state = |name: &str, us: u64| RawIdleState { name: name.into(), residency_ns: us * 1000 };
        let d = derived(&samples, &[state("POLL", 0), state("C1", 2), state("C1E", 20), state("C6", 600)]);
        assert_eq!(value(&d, "interrupts", "c1e_residency"), Some(20_000));
        assert_eq!(value(&d, "interrupts", "c6_residency"), Some(600_000));
    }

    #[test]
    fn the_way_out_of_an_interrupt_is_what_follows_the_answer() {
        let of = |after: f64| {
            let d = derived(&[round(), vec![(What::IpiAfter, after)]].concat(), &[]);
            ["irq_leave", "ipi_send", "ipi_deliver"].map(|key| value(&d, "interrupts", key).expect("it was found"))
        };
        // Half a system call of 100 ns and a line of 50 more. Of a membarrier's 850 ns beyond its call and half of irq the way in takes 700 less that.
        assert_eq!(of(250.0), [350, 250, 600]);
        assert_eq!(of(-60.0), [40, 159, 381], "the handler is nearly all of it");
        assert_eq!(of(-500.0)[0], 1);
        assert_eq!(of(9_000.0), [700, 353, 847], "at most all of it");
    }

    #[test]
    fn the_kernels_events_say_whether_the_tick_is_set_again() {
        let mut samples = round();
        samples.extend((0..6).map(|i| (What::WakeIdle(i), 2119.0 + 4000.0)));
        // A write of 900 ns, irq_leave 350, pick 100.
        samples.push((What::TimerProgram, 400.0 + 2.0 * 900.0));
        let of = |seen: f64| {
            let d = derived(&[samples.clone(), vec![(What::IdleTimer, seen)]].concat(), &[]);
            ["tick_restart", "idle_exit"].map(|key| value(&d, "interrupts", key).expect("it was found"))
        };
        assert_eq!(of(1_350.0), [1, 3_999], "it is not");
        assert_eq!(of(2_350.0), [1_000, 3_000]);
        assert_eq!(of(9_000.0), [4_000, 1], "no more than leaving idle takes");
    }

    #[test]
    fn steps_are_where_wake_ups_begin_to_take_longer() {
        assert_eq!(steps(&[17.0, 25.0, 26.0, 38.0, 40.0, 41.0], 2), [1, 3]);
        assert_eq!(steps(&[17.0, 17.5, 17.0, 18.0, 17.0, 40.0], 2), [5]);
        assert_eq!(steps(&[17.0, 16.0, 18.0, 18.5, 18.0, 19.0], 2), [0; 0], "no level is a sixth above another");
        assert_eq!(steps(&[40.0, 30.0, 20.0, 17.0, 12.0, 10.0], 2), [0; 0]);
        assert_eq!(steps(&[17.0], 2), [0; 0]);
        assert_eq!(steps(&[], 2), [0; 0]);
        let mut samples = round();
        for (i, longer) in [0.0, 8e3, 9e3, 20e3, 22e3, 24e3].into_iter().enumerate() {
            samples.push((What::WakeIdle(i), 2119.0 + 10_000.0 + longer));
        }
        let d = derived(&samples, &[]);
        let keys = ["idle_exit", "c1e_exit", "c1e_residency", "c6_exit", "c6_residency"];
        let values = keys.map(|key| value(&d, "interrupts", key).expect("it was found"));
        assert_eq!(values, [10_000, 18_500, 27_386, 32_000, 173_205]);
    }

    #[test]
    fn a_waker_that_sends_an_interrupt_shows_that_idle_cpus_halt() {
        let mut samples = round();
        // 2,850 for the interrupt's way, of which the waking call has what it takes longer than the 580 ns of one on the same CPU and 16 lines of
        // 50 ns; 700 for serving it.
        samples.retain(|(what, _)| !matches!(what, What::IpiCall { .. }));
        samples.push((What::IpiCall { remote: false }, 20.0 + 100.0 + 350.0 + 50.0 + 2850.0));
        samples.extend((0..6).map(|i| (What::WakeIdle(i), 2119.0 + 2850.0 + 700.0 + 1000.0)));
        let of = |call: f64| {
            let d = derived(&[samples.clone(), vec![(What::WakeIdleCall, 580.0 + 800.0 + call)]].concat(), &[]);
            let costs = ["ipi_send", "ipi_deliver", "idle_exit"];
            (d.idle_halts, costs.map(|key| value(&d, "interrupts", key).expect("it was found")))
        };
        assert_eq!(of(1_600.0), (true, [1_600, 1_250, 1_000]));
        assert_eq!(of(9_000.0), (true, [3_200, 1, 649]), "not more than the whole way; nothing is free");
        assert_eq!(of(400.0), (false, [838, 2_012, 4_550]), "nothing was sent");
        samples.retain(|(what, _)| !matches!(what, What::IpiCall { .. }));
        samples.push((What::IpiCall { remote: false }, 30.0));
        let d = derived(&[samples, vec![(What::WakeIdleCall, 3_000.0)]].concat(), &[]);
        assert!(!d.idle_halts, "of an interrupt's way nothing is known");
    }

    #[test]
    fn noise_makes_no_negative_costs() {
        let mut samples = round();
        for (_, ns) in &mut samples {
            *ns = 30.0;
        }
        samples.push((What::WakeIdle(0), 1.0));
        let d = derived(&samples, &[]);
        assert!(d.costs.iter().all(|f| f.cost.lo <= f.cost.value && f.cost.value <= f.cost.hi && f.cost.value > 0));
    }

    #[test]
    fn nothing_measured_nothing_derived() {
        let d = derived(&[], &[]);
        assert!(d.costs.iter().all(|f| f.how == How::Declared), "{:?}", d.costs);
        assert!(d.checks.is_empty());
    }

    #[test]
    fn what_is_not_there_is_not_dearer_than_what_is() {
        let d = derived(&[(What::Transfer(2), 5.0), (What::Memory, 100.0)], &[]);
        assert_eq!(value(&d, "lines", "core"), Some(5));
    }
}
