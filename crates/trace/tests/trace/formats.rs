//! Each event in each of the formats, from lines that Linux 6.12 and 6.18, trace-cmd 3.1.6 and perf 6.1 printed.

use contend_trace::{Event, Format, Kind, Reader, TaskRef, TaskState};

fn task(pid: u32, comm: &str, prio: i32) -> TaskRef {
    TaskRef { pid, comm: comm.into(), prio }
}

#[track_caller]
fn one(line: &'static str) -> Event {
    let mut reader = Reader::from_read("line", line.as_bytes()).expect("a trace");
    let event = reader.next().unwrap_or_else(|| panic!("no event: {}", reader.report())).expect("an event");
    assert!(reader.next().is_none());
    event
}

#[track_caller]
fn check(line: &'static str, at: (u64, u32, u32, &str), kind: Kind) {
    let (ts, cpu, pid, comm) = at;
    let event = one(line);
    let (context, resched) = (event.context, event.resched);
    assert_eq!(event, Event { ts, cpu, pid, comm: comm.into(), context, resched, kind });
}

mod tracefs {
    use super::*;

    #[test]
    fn a_switch_that_is_due() {
        let due = |line| one(line).resched;
        assert!(!due("a-1 [000] ..... 1.2: sys_exit: NR 202 = 1"));
        assert!(due("a-1 [000] .N... 1.2: sys_exit: NR 202 = 1"));
        assert!(due("a-1 [000] dLh1. 1.2: sys_exit: NR 202 = 1"));
    }

    #[test]
    fn switch() {
        check(
            "         x ==> y-5866    [000] d..2.  1575.886814: sched_switch: prev_comm=x ==> y prev_pid=5866 prev_prio=120 prev_state=S ==> next_comm=python3 next_pid=5867 next_prio=120",
            (1_575_886_814_000, 0, 5866, "x ==> y"),
            Kind::Switch {
                prev: task(5866, "x ==> y", 120),
                prev_state: TaskState::SLEEPING,
                next: task(5867, "python3", 120),
            },
        );
        check(
            "         python3-5821    [001] d..2.  1575.886766: sched_switch: prev_comm=python3 prev_pid=5821 prev_prio=120 prev_state=R+ ==> next_comm=Web Content next_pid=5863 next_prio=120",
            (1_575_886_766_000, 1, 5821, "python3"),
            Kind::Switch {
                prev: task(5821, "python3", 120),
                prev_state: TaskState::PREEMPTED,
                next: task(5863, "Web Content", 120),
            },
        );
        // With trace-cmd's -N, the kernel's own format; the idle task gets one name in all formats.
        check(
            "          <idle>-0     [002]     7.441813: sched_switch:         prev_comm=swapper/2 prev_pid=0 prev_prio=120 prev_state=R ==> next_comm=kworker/2:0 next_pid=34 next_prio=120",
            (7_441_813_000, 2, 0, "swapper/2"),
            Kind::Switch {
                prev: task(0, "swapper/2", 120),
                prev_state: TaskState::RUNNABLE,
                next: task(34, "kworker/2:0", 120),
            },
        );
    }

    #[test]
    fn names_that_look_like_fields() {
        let names = [
            "comm=z pid=7",
            "p] [120] q",
            "-dash-",
            "n-12 [000]",
            " ==> next_comm=",
            " prev_state=R+",
            "  sp",
            "tgt  ",
            " ==> ",
        ];
        for prev in names {
            for next in names {
                let line = format!(
                    "{prev:>16}-5870    [000] d..2.  1575.891748: sched_switch: prev_comm={prev} prev_pid=5870 prev_prio=120 prev_state=S ==> next_comm={next} next_pid=5660 next_prio=-1\n"
                );
                let event = one(line.leak());
                assert_eq!(&*event.comm, prev.trim_start());
                let prev = task(5870, prev, 120);
                let kind = Kind::Switch { prev, prev_state: TaskState::SLEEPING, next: task(5660, next, -1) };
                assert_eq!(event.kind, kind);
            }
        }
    }

    #[test]
    fn waking() {
        check(
            "   a[000] 1.2: x-5876    [001] d.h3.  1575.888894: sched_waking: comm=Web Content pid=5863 prio=120 target_cpu=001",
            (1_575_888_894_000, 1, 5876, "a[000] 1.2: x"),
            Kind::Waking { task: task(5863, "Web Content", 120), target_cpu: 1 },
        );
    }

    #[test]
    fn wakeup() {
        check(
            "            bash-5660    [000] dNh3.  1575.887862: sched_wakeup: comm=x ==> y pid=5866 prio=120 target_cpu=000",
            (1_575_887_862_000, 0, 5660, "bash"),
            Kind::Wakeup { task: task(5866, "x ==> y", 120), target_cpu: 0 },
        );
        // Before Linux 4.3.
        check(
            "            sshd-900   [003] d.h4   100.000001: sched_wakeup: comm=tmux: server pid=901 prio=120 success=1 target_cpu=003",
            (100_000_001_000, 3, 900, "sshd"),
            Kind::Wakeup { task: task(901, "tmux: server", 120), target_cpu: 3 },
        );
    }

    #[test]
    fn wakeup_new() {
        check(
            "     Web Content-5863    [001] d..2.  1575.889158: sched_wakeup_new: comm=Web Content pid=5877 prio=120 target_cpu=001",
            (1_575_889_158_000, 1, 5863, "Web Content"),
            Kind::WakeupNew { task: task(5877, "Web Content", 120), target_cpu: 1 },
        );
    }

    #[test]
    fn migrate() {
        check(
            "            bash-5913    (   5913) [001] d..3.  1576.041015: sched_migrate_task: comm=rcu_preempt pid=18 prio=120 orig_cpu=3 dest_cpu=2",
            (1_576_041_015_000, 1, 5913, "bash"),
            Kind::Migrate { task: task(18, "rcu_preempt", 120), orig_cpu: 3, dest_cpu: 2 },
        );
    }

    #[test]
    fn fork() {
        check(
            "     Web Content-5863    [001] .....  1575.889156: sched_process_fork: comm=Web Content pid=5863 child_comm=Web Content child_pid=5877",
            (1_575_889_156_000, 1, 5863, "Web Content"),
            Kind::Fork {
                parent_pid: 5863,
                parent_comm: "Web Content".into(),
                child_pid: 5877,
                child_comm: "Web Content".into(),
            },
        );
    }

    #[test]
    fn exec() {
        check(
            "            bash-5915    [001]   1576.041343: sched_process_exec: filename=/opt/My App/run pid=5915 old_pid=5916",
            (1_576_041_343_000, 1, 5915, "bash"),
            Kind::Exec { filename: "/opt/My App/run".into(), pid: 5915, old_pid: 5916 },
        );
    }

    #[test]
    fn exit() {
        check(
            "            bash-5916    (   5916) [001] .....  1576.045385: sched_process_exit: comm=bash pid=5916 prio=120 group_dead=true",
            (1_576_045_385_000, 1, 5916, "bash"),
            Kind::Exit { task: task(5916, "bash", 120) },
        );
    }
}

mod trace_cmd {
    use super::*;

    #[test]
    fn switch() {
        check(
            "     kworker/2:0-34    [002]     7.441913: sched_switch:         kworker/2:0:34 [120] W ==> swapper/2:0 [120]",
            (7_441_913_000, 2, 34, "kworker/2:0"),
            Kind::Switch {
                prev: task(34, "kworker/2:0", 120),
                prev_state: TaskState::IDLE,
                next: task(0, "swapper/2", 120),
            },
        );
        check(
            "       hackbench-417   [000]     8.158881317: sched_switch:         hackbench:417 [120] X ==> x ==> y:456 [98]",
            (8_158_881_317, 0, 417, "hackbench"),
            Kind::Switch {
                prev: task(417, "hackbench", 120),
                prev_state: TaskState::ZOMBIE,
                next: task(456, "x ==> y", 98),
            },
        );
        check(
            "       hackbench-417   [000]     8.158881: sched_switch:          prev_comm=p] [1] S prev_pid=417 prev_prio=120 prev_state=256 next_comm=a=b next_pid=456 next_prio=120",
            (8_158_881_000, 0, 417, "hackbench"),
            Kind::Switch {
                prev: task(417, "p] [1] S", 120),
                prev_state: TaskState::PREEMPTED,
                next: task(456, "a=b", 120),
            },
        );
    }

    #[test]
    fn waking() {
        check(
            "          <idle>-0     [002]     7.441689719: sched_waking:         comm=kworker/2:0 pid=34 prio=120 target_cpu=002",
            (7_441_689_719, 2, 0, "swapper/2"),
            Kind::Waking { task: task(34, "kworker/2:0", 120), target_cpu: 2 },
        );
    }

    #[test]
    fn wakeup() {
        check(
            "          <idle>-0     [002]     7.441734: sched_wakeup:         kworker/2:0:34 [120] CPU:002",
            (7_441_734_000, 2, 0, "swapper/2"),
            Kind::Wakeup { task: task(34, "kworker/2:0", 120), target_cpu: 2 },
        );
    }

    #[test]
    fn wakeup_new() {
        check(
            "       hackbench-378   [000]     7.470900: sched_wakeup_new:     p] [120] q:379 [120] success=1 CPU:001",
            (7_470_900_000, 0, 378, "hackbench"),
            Kind::WakeupNew { task: task(379, "p] [120] q", 120), target_cpu: 1 },
        );
    }

    #[test]
    fn migrate() {
        check(
            "          <idle>-0     [002]     7.485155: sched_migrate_task:   comm=rcu_preempt pid=18 prio=120 orig_cpu=3 dest_cpu=2",
            (7_485_155_000, 2, 0, "swapper/2"),
            Kind::Migrate { task: task(18, "rcu_preempt", 120), orig_cpu: 3, dest_cpu: 2 },
        );
    }

    #[test]
    fn fork() {
        let kind = Kind::Fork {
            parent_pid: 378,
            parent_comm: "hackbench".into(),
            child_pid: 379,
            child_comm: "hackbench".into(),
        };
        check(
            "       hackbench-378   [000]     7.470831: sched_process_fork:   comm=hackbench pid=378 child_comm=hackbench child_pid=379",
            (7_470_831_000, 0, 378, "hackbench"),
            kind.clone(),
        );
        check(
            "       hackbench-378   [000]     7.470831: sched_process_fork:    parent_comm=hackbench parent_pid=378 child_comm=hackbench child_pid=379",
            (7_470_831_000, 0, 378, "hackbench"),
            kind,
        );
    }

    #[test]
    fn exec() {
        check(
            "       hackbench-378   [000]     7.442020: sched_process_exec:   filename=/bin/hackbench pid=378 old_pid=378",
            (7_442_020_000, 0, 378, "hackbench"),
            Kind::Exec { filename: "/bin/hackbench".into(), pid: 378, old_pid: 378 },
        );
    }

    #[test]
    fn exit() {
        check(
            "           <...>-8129  [000]  2084.162377: sched_process_exit:   comm=hackbench pid=8129 prio=120 group_dead=true",
            (2_084_162_377_000, 0, 8129, "<...>"),
            Kind::Exit { task: task(8129, "hackbench", 120) },
        );
    }
}

mod perf_script {
    use super::*;

    #[test]
    fn switch() {
        check(
            "      p] [120] q  6485 [000]  1817.772034:       sched:sched_switch: prev_comm=p] [120] q prev_pid=6485 prev_prio=120 prev_state=S ==> next_comm=python3 next_pid=6486 next_prio=120",
            (1_817_772_034_000, 0, 6485, "p] [120] q"),
            Kind::Switch {
                prev: task(6485, "p] [120] q", 120),
                prev_state: TaskState::SLEEPING,
                next: task(6486, "python3", 120),
            },
        );
        check(
            "         swapper     0 [000]  1541.111843999:       sched:sched_switch: prev_comm=swapper/0 prev_pid=0 prev_prio=120 prev_state=R ==> next_comm=perf-exec next_pid=5714 next_prio=120",
            (1_541_111_843_999, 0, 0, "swapper/0"),
            Kind::Switch {
                prev: task(0, "swapper/0", 120),
                prev_state: TaskState::RUNNABLE,
                next: task(5714, "perf-exec", 120),
            },
        );
    }

    #[test]
    fn waking() {
        check(
            "            perf  5712 [000]  1541.111714:       sched:sched_waking: comm=migration/0 pid=18 prio=0 target_cpu=000",
            (1_541_111_714_000, 0, 5712, "perf"),
            Kind::Waking { task: task(18, "migration/0", 0), target_cpu: 0 },
        );
    }

    #[test]
    fn wakeup() {
        // A perf built with libtraceevent's plug-ins prints as trace-cmd does.
        check(
            "     Web Content  5712/5713  [000]  1541.111714:       sched:sched_wakeup: tmux: server:18 [0] CPU:000",
            (1_541_111_714_000, 0, 5713, "Web Content"),
            Kind::Wakeup { task: task(18, "tmux: server", 0), target_cpu: 0 },
        );
    }

    #[test]
    fn wakeup_new() {
        check(
            "       hackbench  5714 [000]  1541.113313:   sched:sched_wakeup_new: comm=hackbench pid=5716 prio=120 target_cpu=000",
            (1_541_113_313_000, 0, 5714, "hackbench"),
            Kind::WakeupNew { task: task(5716, "hackbench", 120), target_cpu: 0 },
        );
    }

    #[test]
    fn migrate() {
        check(
            "     migration/0    18 [000]  1541.111726: sched:sched_migrate_task: comm=perf pid=5712 prio=120 orig_cpu=0 dest_cpu=1",
            (1_541_111_726_000, 0, 18, "migration/0"),
            Kind::Migrate { task: task(5712, "perf", 120), orig_cpu: 0, dest_cpu: 1 },
        );
    }

    #[test]
    fn fork() {
        check(
            "       hackbench  5714 [000]  1541.113309: sched:sched_process_fork: comm=hackbench pid=5714 child_comm=hackbench child_pid=5716",
            (1_541_113_309_000, 0, 5714, "hackbench"),
            Kind::Fork {
                parent_pid: 5714,
                parent_comm: "hackbench".into(),
                child_pid: 5716,
                child_comm: "hackbench".into(),
            },
        );
    }

    #[test]
    fn exec() {
        check(
            "       hackbench  6621 [000]  1821.002059:               sched:sched_process_exec: filename=/usr/bin/hackbench pid=6621 old_pid=6621",
            (1_821_002_059_000, 0, 6621, "hackbench"),
            Kind::Exec { filename: "/usr/bin/hackbench".into(), pid: 6621, old_pid: 6621 },
        );
    }

    #[test]
    fn exit() {
        check(
            "           :6644  6644 [000]  1821.322241:          1    sched:sched_process_exit: comm=hackbench pid=6644 prio=120 group_dead=true",
            (1_821_322_241_000, 0, 6644, "<...>"),
            Kind::Exit { task: task(6644, "hackbench", 120) },
        );
    }

    #[test]
    fn a_cpu_without_a_known_task() {
        let line =
            "             :-1    -1 [000]  1821.322241: sched:sched_waking: comm=perf pid=5712 prio=120 target_cpu=000";
        let event = one(line);
        assert_eq!((event.pid, &*event.comm), (u32::MAX, "<...>"));
        assert_eq!(Reader::from_read("line", line.as_bytes()).unwrap().format(), Format::PerfScript);
    }
}

/// What Linux 6.18 printed, and trace-cmd 3.1.6 and perf 6.1 of it; KVM's from the events' print formats.
mod explaining {
    use contend_trace::Context;

    use super::*;

    #[track_caller]
    fn kinds(lines: &[&'static str], kind: Kind) {
        for line in lines {
            let event = one(line);
            assert_eq!(event.kind, kind, "{line}");
        }
    }

    #[test]
    fn interrupts() {
        kinds(
            &[
                " lto cgu.0.rcgu.-21904   [001] d.h..  1718.361572: irq_handler_entry: irq=36 name=virtio1-req.0",
                " lto cgu.0.rcgu.-21904 [001]  1718.361572418: irq_handler_entry:    irq=36 name=virtio1-req.0",
                "            perf 22969 [001]  1761.558954420:      irq:irq_handler_entry:                         irq=36 name=virtio1-req.0",
            ],
            Kind::Irq { irq: 36, entry: true },
        );
        kinds(
            &[
                " lto cgu.0.rcgu.-21904   [001] d.h..  1718.361578: irq_handler_exit: irq=36 ret=handled",
                " lto cgu.0.rcgu.-21904 [001]  1718.361578157: irq_handler_exit:      irq=36 ret=1",
            ],
            Kind::Irq { irq: 36, entry: false },
        );
        kinds(
            &[
                "          rec.sh-22023   [000] .Ns1.  1718.360035: softirq_entry: vec=9 [action=RCU]",
                "          rec.sh-22023 [000]  1718.360034578: softirq_entry:         vec=9",
            ],
            Kind::Softirq { vec: 9, entry: true },
        );
        kinds(
            &["            ruff-22032   [001] .Ns..  1718.360054: softirq_exit: vec=9 [action=RCU]"],
            Kind::Softirq { vec: 9, entry: false },
        );
    }

    #[test]
    fn timers() {
        kinds(
            &[
                "          rec.sh-22023   [000] d.h1.  1718.360017: hrtimer_expire_entry: hrtimer=00000000ed8e3c73 function=tick_nohz_handler now=1718360014938",
                "          rec.sh-22023 [000]  1718.360017452: hrtimer_expire_entry: hrtimer=0xffff888627c1c6f8 now=1718360014938 function=tick_nohz_handler/0x0",
            ],
            Kind::Timer { hrtimer: true, entry: true },
        );
        kinds(
            &["      opt cgu.02-22006   [001] dNh..  1718.365326: hrtimer_expire_exit: hrtimer=0000000017dad7f9"],
            Kind::Timer { hrtimer: true, entry: false },
        );
        kinds(
            &[
                "            ruff-22033   [000] ..s..  1718.368036: timer_expire_entry: timer=000000009da684cd function=process_timeout now=4295321826 baseclk=4295321826",
            ],
            Kind::Timer { hrtimer: false, entry: true },
        );
        kinds(
            &["            ruff-22033 [000]  1718.368041706: timer_expire_exit:    timer=0xffffc9000007fdf8"],
            Kind::Timer { hrtimer: false, entry: false },
        );
    }

    #[test]
    fn system_calls() {
        kinds(
            &[
                " memfd:sealed-91-10999   [001] .....  1718.365366: sys_enter: NR 5 (5, 7fff13545100, 7fff13545100, 0, 7fff135451e0, 7f1076fd319b)",
                " memfd:sealed-91-10999 [001]  1718.365366360: sys_enter:             id=5 args=ARRAY[05, 00, 00]",
                "            perf 22969 [000]  1761.546690672:     raw_syscalls:sys_enter:                         NR 5 (19, 2400, 0, 7fb74c02b5e0, 1, 0)",
            ],
            Kind::Syscall { nr: 5, entry: true },
        );
        kinds(
            &[
                " memfd:sealed-91-10999   [001] .....  1718.365353: sys_exit: NR 202 = -110",
                " memfd:sealed-91-10999 [001]  1718.365353400: sys_exit:              id=202 ret=-110",
            ],
            Kind::Syscall { nr: 202, entry: false },
        );
        kinds(
            &[
                "            ruff-22033   [000] .....  1718.367654: sys_read(fd: 3, buf: 0x7f24bc178820, count: 0x20)",
                "            ruff-22033 [000]  1718.367654178: sys_enter_read:       fd: 0x00000003, buf: 0x7f24bc178820, count: 0x00000020",
                "            perf 22969 [001]  1761.550788266:    syscalls:sys_enter_read:                         fd: 0x00000027, buf: 0x7ffc94b91660, count: 0x00000fff",
            ],
            Kind::Syscall { nr: -1, entry: true },
        );
        kinds(
            &[
                "            ruff-22033 [000]  1718.367654178: sys_enter_read:        __syscall_nr=0 fd=0x00000003 buf=0x7f24bc178820 count=0x00000020",
            ],
            Kind::Syscall { nr: 0, entry: true },
        );
        kinds(
            &[
                "            ruff-22033   [000] .....  1718.367652: sys_read -> 0x368c",
                "            ruff-22033 [000]  1718.367651774: sys_exit_read:        0x368c",
            ],
            Kind::Syscall { nr: -1, entry: false },
        );
    }

    #[test]
    fn contended_locks() {
        let begin = |lock| Kind::ContentionBegin { lock, flags: 1 };
        kinds(
            &[" lto cgu.0.rcgu.-21904   [001] dNs1.  1718.376048: contention_begin: 000000000e7dd258 (flags=SPIN)"],
            begin(0x0e7d_d258),
        );
        kinds(
            &[
                " lto cgu.0.rcgu.-21904 [001]  1718.376047950: contention_begin:     0xffffffff830f3100 (flags=SPIN)",
                " lto cgu.0.rcgu.-21904 [001]  1718.376047950: contention_begin:      lock_addr=0xffffffff830f3100 flags=1",
            ],
            begin(0xffff_ffff_830f_3100),
        );
        kinds(
            &[
                " lto cgu.0.rcgu.-21904 [001]  1718.376048791: contention_end:       0xffffffff830f3100 (ret=0)",
                " lto cgu.0.rcgu.-21904 [001]  1718.376048791: contention_end:        lock_addr=0xffffffff830f3100 ret=0",
            ],
            Kind::ContentionEnd { lock: 0xffff_ffff_830f_3100, ret: 0 },
        );
    }

    #[test]
    fn kvm() {
        kinds(
            &[
                " CPU 0/KVM-7 [0] d..1. 1.0: kvm_entry: vcpu 2, rip 0xffffffff81a0 intr_info 0x00000000 error_code 0x00000000",
                " CPU 0/KVM-7 [0] d..1. 1.0: kvm_entry: vcpu 2",
                " CPU 0/KVM-7 [0] 1.0: kvm_entry: vcpu_id=2 rip=0xffffffff81a0",
            ],
            Kind::KvmEntry { vcpu: 2 },
        );
        kinds(
            &[
                " CPU 0/KVM-7 [0] d..1. 1.0: kvm_exit: vcpu 2 reason HLT rip 0xffffffff81a0 info1 0x0000000000000000 info2 0x0000000000000000",
                " CPU 0/KVM-7 [0] d..1. 1.0: kvm_exit: vcpu 2 reason npf rip 0xffffffff81a0 info1 0x0000000000000000 info2 0x0000000000000000",
            ],
            Kind::KvmExit { vcpu: 2, reason: u32::MAX },
        );
        kinds(
            &[" CPU 0/KVM-7 [0] 1.0: kvm_exit: exit_reason=12 guest_rip=0xffffffff81a0 isa=1 vcpu_id=2"],
            Kind::KvmExit { vcpu: 2, reason: 12 },
        );
        // Before 5.10, and a reason that the printer does not know.
        kinds(
            &[" CPU 0/KVM-7 [0] d..1. 1.0: kvm_exit: reason UNKNOWN (76) rip 0xffffffff81a0 info 0 0"],
            Kind::KvmExit { vcpu: u32::MAX, reason: 76 },
        );
    }

    #[test]
    fn the_flags_say_on_whose_behalf() {
        let at = |flags| -> Context {
            one(Box::leak(format!(" a-1 [0] {flags} 1.0: softirq_exit: vec=1 [action=TIMER]").into_boxed_str())).context
        };
        for (flags, context) in [
            ("..s..", Context::Softirq),
            ("dNh1.", Context::Hardirq),
            ("d.H1.", Context::Hardirq),
            ("d.z1.", Context::Nmi),
            ("d.Z1.", Context::Nmi),
            ("b..1.", Context::Task),
        ] {
            assert_eq!(at(flags), context, "{flags}");
        }
        assert_eq!(one(" a-1 [0] 1.0: softirq_exit: vec=1 [action=TIMER]").context, Context::Unknown);
    }

    #[test]
    fn damage_is_counted() {
        for line in [
            " a-1 [0] 1.0: irq_handler_entry: irq= name=x",
            " a-1 [0] 1.0: softirq_entry: vec=99999999999",
            " a-1 [0] 1.0: hrtimer_expire_entry: timer=1",
            " a-1 [0] 1.0: sys_enter: NR x",
            " a-1 [0] 1.0: contention_begin: 0xffffffff830f3100 (flags=SPUN)",
            " a-1 [0] 1.0: contention_end: 0xffffffff830f3100",
            " a-1 [0] 1.0: kvm_exit: vcpu 2",
        ] {
            let mut reader = Reader::from_read("line", line.as_bytes()).unwrap();
            assert!(reader.next().is_some_and(|e| e.is_err()), "{line}");
            assert_eq!(reader.report().unparsable.count, 1, "{line}");
        }
    }
}
