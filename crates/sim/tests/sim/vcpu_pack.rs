//! `vcpu_pack`: a guest's kernel that packs tasks on few virtual CPUs. CPU 0 wakes; the run queues say what the test wrote into them.

use crate::common::{Stage, machine, preset, stage_on};
use contend_machine::{Flags, Machine};
use contend_platform::Ordering::{Relaxed, Release};
use contend_platform::Platform;
use contend_sched::class::Sched;
use contend_sched::cpuset::Affinity;
use contend_sched::pelt::Average;
use contend_sim::program::GroupId;

/// 70 % of a CPU.
const FILLED: u64 = 716;

fn on(vcpu_pack: bool, preset_name: &str, script: impl FnOnce(&Stage) + Clone + 'static) {
    let flags = Flags { vcpu_pack, ..Flags::default() };
    stage_on(Machine { flags, ..machine("2c") }, preset(preset_name).features, false, script);
}

/// CPU 0 runs the waker alone and is so busy; CPU 1 idles.
fn waker_of(s: &Stage, util: u64, est: u64) {
    s.idle_only(&[1]);
    let now = s.p.now();
    s.p.store(&s.kernel.rqs[0].util, Average::new(util, now).pack(), Release);
    s.p.store(&s.kernel.rqs[0].util_est, est, Release);
}

fn fork(s: &Stage) -> usize {
    let t = s.kernel.create(&s.p, Sched::default(), Affinity::ALL, GroupId::ROOT);
    s.kernel.wake_up_new(&s.p, t);
    s.kernel.task_cpu(&s.p, t).index()
}

/// With room a wakee comes to its waker wherever it slept, though the other CPU idles; without, the search goes as ever.
#[test]
fn wakees_and_new_tasks_come_to_a_waker_with_room() {
    on(true, "linux-6.18", |s| {
        for slept in [0, 1] {
            waker_of(s, FILLED, 0);
            assert_eq!(s.wake_from(slept).0, 0, "slept on {slept}");
            waker_of(s, FILLED + 1, 0);
            assert_eq!(s.wake_from(slept).0, 1, "slept on {slept}, no room");
        }
        waker_of(s, FILLED, 0);
        assert_eq!(fork(s), 0);
        waker_of(s, FILLED + 1, 0);
        assert_eq!(fork(s), 1);
    });
}

/// A wakee that slept here is in this CPU's average, one that slept elsewhere is not.
#[test]
fn a_wakee_is_counted_once() {
    on(true, "linux-6.18", |s| {
        for (slept, util, goes_to) in [(0, FILLED, 0), (1, FILLED - 300, 0), (1, FILLED - 299, 1)] {
            waker_of(s, util, 0);
            let t = s.sleeper(slept);
            let now = s.p.now();
            // SAFETY: nobody else is here.
            unsafe { s.p.write(&s.kernel.task(t).ent, |e| e.util = Average::new(300, now)) };
            assert_eq!(s.wake(t, 0).0, goes_to, "slept on {slept}, {util}");
        }
    });
}

/// A task that is there from the beginning has used nothing.
#[test]
fn tasks_of_the_beginning_fill_nothing() {
    on(true, "linux-6.18", |s| {
        waker_of(s, 0, 0);
        let t = s.kernel.create(&s.p, Sched::default(), Affinity::ALL, GroupId::ROOT);
        s.kernel.wake_up_first(&s.p, t);
        assert_eq!(s.kernel.task_cpu(&s.p, t).index(), 0);
        assert_eq!(Average::unpack(s.p.load(&s.kernel.rqs[0].util, Relaxed)).get(), 0);
    });
}

#[test]
fn other_guests_use_the_idle_cpu() {
    on(false, "linux-6.18", |s| {
        for slept in [0, 1] {
            waker_of(s, 100, 0);
            assert_eq!(s.wake_from(slept).0, 1, "slept on {slept}");
        }
        waker_of(s, 100, 0);
        assert_eq!(fork(s), 1);
    });
    // Nor does a kernel that knows no averages.
    on(true, "linux-2.6.37", |s| {
        waker_of(s, 100, 0);
        assert_eq!(s.wake_from(1).0, 1);
    });
}

/// Room is for one: with another runnable beside the waker there is none, however little they use.
#[test]
fn a_second_runnable_task_leaves_no_room() {
    on(true, "linux-6.18", |s| {
        waker_of(s, 100, 0);
        s.p.store(&s.kernel.rqs[0].peek, (u64::from(s.waker().0) + 1) << 32 | 2, Release);
        assert_eq!(s.wake_from(1).0, 1);
    });
}

/// What the runnable tasks and the wakee had when they last slept counts, where it is more than the averages.
#[test]
fn estimates_count() {
    on(true, "linux-6.18", |s| {
        waker_of(s, 100, FILLED + 1);
        assert_eq!(s.wake_from(1).0, 1);
        for (est, goes_to) in [(300, 0), (301, 1)] {
            waker_of(s, 0, FILLED - 300);
            let t = s.sleeper(1);
            // SAFETY: nobody else is here.
            unsafe { s.p.write(&s.kernel.task(t).ent, |e| e.util_est = est) };
            assert_eq!(s.wake(t, 0).0, goes_to, "{est}");
        }
    });
}

/// A new task brings half of what its CPU has to spare: a second one finds the CPU filled.
#[test]
fn new_tasks_fill_a_cpu() {
    on(true, "linux-6.18", |s| {
        waker_of(s, 0, 0);
        let waker = u64::from(s.waker().0) + 1;
        // The waker is the test's alone: a run queue that a task came to knows nothing of it.
        let waker_runs = || s.p.store(&s.kernel.rqs[0].peek, waker << 32 | 1, Release);
        let util = || Average::unpack(s.p.load(&s.kernel.rqs[0].util, Relaxed)).get();
        for (then, at) in [(512, 0), (768, 0), (768, 1)] {
            waker_runs();
            assert_eq!(fork(s), at);
            assert_eq!(util(), then);
        }
    });
}
