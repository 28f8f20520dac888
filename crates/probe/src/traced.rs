//! What only the kernel's events tell: needs a tracefs that may be written, as `contend record` does. The trace instance is one of our own.

use std::fs;
use std::io::Cursor;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use contend_trace::Reader;
use contend_trace::event::Kind;

use crate::pair::on;
use crate::sys;

/// Where tracefs is mounted.
const ROOTS: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];
const TIMES: usize = 40;
/// Long enough to idle, too short for a deep state.
const SLEEP: Duration = Duration::from_micros(250);

/// A trace instance; it goes with its owner.
struct Instance(PathBuf);

impl Instance {
    /// With these events. `None`: not here, or not for us.
    fn new(events: &[&str]) -> Option<Instance> {
        let root = ROOTS.iter().find(|root| Path::new(root).join("instances").is_dir())?;
        // `contend record`, which has one of its own in the same process, removes what killed ones left behind: those of
        // its own PID namespace.
        let namespace = fs::metadata("/proc/self/ns/pid").map_or(0, |of| of.ino());
        let path = Path::new(root).join(format!("instances/contend-probe-{namespace}-{}", std::process::id()));
        fs::create_dir(&path).ok()?;
        let instance = Instance(path);
        fs::write(instance.0.join("trace_clock"), "mono").ok()?;
        events
            .iter()
            .try_for_each(|event| fs::write(instance.0.join("events").join(event).join("enable"), "1"))
            .ok()?;
        Some(instance)
    }

    fn read(&self, cpu: usize) -> Option<String> {
        fs::write(self.0.join("tracing_on"), "0").ok()?;
        fs::read_to_string(self.0.join(format!("per_cpu/cpu{cpu}/trace"))).ok()
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        // Whatever goes wrong: `contend record` removes it later.
        let _ = fs::remove_dir(&self.0);
    }
}

/// A thread sleeps on `cpu`, which idles meanwhile. In ns, from the end of the timer's handler that wakes it until it is switched to.
pub fn idle_timer(cpu: usize) -> Option<f64> {
    let instance = Instance::new(&["timer/hrtimer_expire_exit", "sched/sched_switch"])?;
    let thread = on(cpu, || {
        (0..TIMES).for_each(|_| std::thread::sleep(SLEEP));
        Some(sys::thread())
    })?;
    middle(from_handler(&instance.read(cpu)?, thread))
}

/// From each last end of a timer's handler until the idle task gives way to `thread`, in ns.
fn from_handler(trace: &str, thread: u32) -> Vec<f64> {
    let Ok(events) = Reader::from_read("trace", Cursor::new(trace.to_string())) else { return Vec::new() };
    let mut found = Vec::new();
    let mut handled = None;
    for event in events.map_while(Result::ok) {
        match event.kind {
            Kind::Timer { hrtimer: true, entry: false } => handled = Some(event.ts),
            Kind::Switch { prev, next, .. } => {
                if let Some(handled) = handled.take().filter(|_| (prev.pid, next.pid) == (0, thread)) {
                    found.push(event.ts.saturating_sub(handled) as f64);
                }
            }
            _ => {}
        }
    }
    found
}

/// The mean of the middle half: time stamps are of whole us.
fn middle(mut of: Vec<f64>) -> Option<f64> {
    of.sort_by(f64::total_cmp);
    let part = &of[of.len() / 4..of.len() - of.len() / 4];
    (of.len() >= TIMES / 2).then(|| part.iter().sum::<f64>() / part.len() as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn switches_behind_a_handler_are_found() {
        let trace = "# tracer: nop
          <idle>-0       [001] dNh1. 40896.376470: hrtimer_expire_exit: hrtimer=000000001230d072
          <idle>-0       [001] d..2. 40896.376477: sched_switch: prev_comm=swapper/1 prev_pid=0 prev_prio=120 prev_state=R ==> next_comm=a: b next_pid=31145 next_prio=120
            a: b-31145   [001] d..2. 40896.376496: sched_switch: prev_comm=a: b prev_pid=31145 prev_prio=120 prev_state=S ==> next_comm=swapper/1 next_pid=0 next_prio=120
          <idle>-0       [001] dNh1. 40896.377000: hrtimer_expire_exit: hrtimer=000000001230d072
          <idle>-0       [001] d..2. 40896.377007: sched_switch: prev_comm=swapper/1 prev_pid=0 prev_prio=120 prev_state=R ==> next_comm=other next_pid=3114 next_prio=120
          <idle>-0       [001] d..2. 40896.377107: sched_switch: prev_comm=swapper/1 prev_pid=0 prev_prio=120 prev_state=R ==> next_comm=a: b next_pid=31145 next_prio=120
 a line that says no";
        let found = from_handler(trace, 31145);
        assert_eq!(found, [7000.0]);
    }

    #[test]
    fn few_say_nothing() {
        assert_eq!(middle([7000.0; TIMES / 2 - 1].to_vec()), None);
        assert_eq!(
            middle([[6000.0, 7000.0].repeat(TIMES / 2), vec![1e6; 9]].concat()).map(|ns| ns as u64 / 100),
            Some(66)
        );
    }
}
