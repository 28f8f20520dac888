//! Traces of simulated hosts in xentrace's format: they say what the run's own books say, and Xen's `xenalyze` reads them
//! with no other notes than it has on traces of a real Xen.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::io::{self, Write};
use std::process::Command;
use std::rc::Rc;

use contend_trace::xentrace::{Clock, Reader, Summarizer, Summary, Writer, XenEvent};

use super::*;
use crate::common::Lines;

/// A file that is looked at after the run.
#[derive(Clone, Default)]
struct Shared(Rc<RefCell<Vec<u8>>>);

impl Write for Shared {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.borrow_mut().write(bytes)
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Runs with a trace. Its domains are of burners and of sleepers, more than there are pCPUs.
fn traced(scheduler: Scheduler) -> (RunResult, Vec<u8>) {
    traced_with(scheduler, XenFeatures::default())
}

fn traced_with(scheduler: Scheduler, features: XenFeatures) -> (RunResult, Vec<u8>) {
    let mut heavy = programs(2, 3, burner);
    heavy.params.weight = 512;
    let domains = vec![programs(1, 3, burner), heavy, programs(3, 3, || sleeper(300_000, 700_000))];
    let file = Shared::default();
    let sinks = Sinks { xen: Some(Box::new(Writer::new(file.clone(), Clock::default()))), ..Sinks::default() };
    let setup = XenSetup { features, ..setup("2n1l2c1t", scheduler, domains, 500 * MS) };
    let r = simulate(setup, sinks, &mut |_| true).expect("stacks");
    assert_eq!(r.outcome, Outcome::Horizon, "{scheduler:?}: {}", r.outcome.detail());
    (r, file.0.take())
}

fn summary(file: &[u8]) -> Summary {
    let mut order = Reader::from_read("trace", io::Cursor::new(file.to_vec())).expect("a trace").in_time_order();
    let mut all = Summarizer::new(Clock::default());
    (&mut order).for_each(|r| all.add(&r.expect("a record")));
    let report = order.report();
    assert!(report.unknown.is_empty() && report.odd.is_empty(), "{report}");
    assert_eq!((order.late(), report.backwards.count, report.damage.count, report.missing), (0, 0, 0, 0), "{report}");
    all.finish()
}

#[test]
fn a_trace_says_what_the_run_says() {
    for scheduler in ALL {
        let (r, file) = traced(scheduler);
        let s = summary(&file);
        assert_eq!(s.unchained, 0, "{scheduler:?}");
        let xen = r.xen.expect("a Xen host");
        // The trace begins a little after the run, and ends with its last record.
        let cut = r.virtual_ns - s.duration_ns;
        assert!(cut < 35 * MS, "{scheduler:?}: {cut}");
        for unit in &xen.vcpus {
            let v =
                s.vcpus.iter().find(|v| v.vcpu == unit.id).unwrap_or_else(|| panic!("{scheduler:?}: {:?}", unit.id));
            for (ns, own) in v.state_ns.iter().zip(&unit.times) {
                assert!(
                    ns.abs_diff(*own) <= cut + 1_000,
                    "{scheduler:?} {:?}: {:?} {:?}",
                    unit.id,
                    v.state_ns,
                    unit.times
                );
            }
            assert!(v.dispatches.abs_diff(unit.dispatches) <= 1, "{scheduler:?} {:?}: {v:?}", unit.id);
        }
    }
}

#[test]
fn patch_9_tells_vcpus_apart_in_switches() {
    for (patch, numbers) in [(false, vec![0]), (true, vec![0, 1, 2])] {
        let features = XenFeatures { trace_switch_vcpu: patch, ..XenFeatures::default() };
        let (_, file) = traced_with(Scheduler::Credit, features);
        let of = |event: &XenEvent| match event {
            XenEvent::SwitchInfPrev { vcpu, .. } | XenEvent::SwitchInfNext { vcpu, .. } if !vcpu.is_idle() => {
                Some(vcpu.vcpu)
            }
            _ => None,
        };
        let records = Reader::from_read("trace", io::Cursor::new(file)).expect("a trace");
        let seen: BTreeSet<u16> = records.filter_map(|r| of(&r.expect("a record").event)).collect();
        assert_eq!(seen.into_iter().collect::<Vec<_>>(), numbers);
    }
}

/// What `xenalyze` says besides records: of the file, and of vCPUs that it meets.
const NOTES: [&str; 9] = [
    "Using VMX hardware-assisted virtualization.",
    "Creating ",
    "First schedule for ",
    "Using first_tsc for ",
    "scan_for_new_pcpu: Activating ",
    "process_cpu_change: Activating ",
    "init_pcpus: through first ",
    "read_record: read returned zero",
    "deactivate_pcpu: ",
];

#[test]
fn xenalyze_reads_a_trace_without_other_notes() {
    let tool = ["xenalyze", "/usr/lib/xen-4.17/bin/xenalyze"]
        .into_iter()
        .find(|tool| Command::new(tool).arg("--help").output().is_ok());
    let Some(tool) = tool else {
        eprintln!("SKIPPED: xenalyze is not on this machine (Debian: apt-get install xen-utils-4.17)");
        return;
    };
    for scheduler in ALL {
        let (_, file) = traced(scheduler);
        let name = std::env::temp_dir().join(format!("contend-{}-{scheduler:?}.bin", std::process::id()));
        std::fs::write(&name, &file).expect("a temporary file");
        for what in ["--dump-all", "-s"] {
            let done = Command::new(tool).args([what, "--cpu-hz=2.4G"]).arg(&name).output().expect("it was there");
            let (out, err) = (String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
            assert!(done.status.success(), "{scheduler:?}: {err}");
            // Of a summary it makes its notes on stderr. After a tickle_check it leaves a line empty.
            let odd: Vec<&str> = out
                .lines()
                .filter(|_| what == "--dump-all")
                .chain(err.lines())
                .filter(|line| {
                    !line.is_empty() && !line.starts_with(' ') && !NOTES.iter().any(|note| line.starts_with(note))
                })
                .collect();
            assert!(odd.is_empty(), "{scheduler:?} {what}: {}: {:?}", odd.len(), &odd[..odd.len().min(9)]);
        }
        std::fs::remove_file(&name).expect("the temporary file");
    }
}

/// As events of tasks: who blocks leaves asleep, and a wake-up names the pCPU that the vCPU is assigned to.
#[test]
fn vcpus_as_tasks() {
    let lines = Rc::new(RefCell::new(Vec::new()));
    let sinks = Sinks { sched: Some(Box::new(Lines(Rc::clone(&lines)))), ..Sinks::default() };
    let sleepers = programs(1, 2, || sleeper(900_000, 700_000));
    let r = simulate(setup("2c", Scheduler::Credit2, vec![sleepers], 20 * MS), sinks, &mut |_| true).expect("stacks");
    let lines = lines.take();
    let left: Vec<_> = lines.iter().filter(|l| l.contains("-> idle")).collect();
    assert!(left.len() >= 10 && left.iter().all(|l| l.contains(" sleeps -> idle")), "{left:#?}");
    let vcpus: Vec<_> = r.xen.as_ref().expect("a Xen host").vcpus.iter().map(|v| v.moves).collect();
    // Each wakes where it then runs, but for moves.
    let mut elsewhere = 0;
    for (i, line) in lines.iter().enumerate().filter(|(_, l)| l.contains(" wakes ")) {
        let (who, target) = line.split(" wakes ").nth(1).and_then(|l| l.split_once(" on ")).expect("whom and where");
        let comes = lines[i..].iter().find(|l| l.ends_with(&format!("-> {who}")));
        elsewhere += u64::from(comes.is_some_and(|l| !l.contains(&format!("  {target}  "))));
    }
    assert!(elsewhere <= vcpus.iter().sum(), "{elsewhere} of {lines:#?}");
}
