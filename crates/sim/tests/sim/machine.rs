//! The engine against closed forms: speeds, refills, timers, interrupts, ticks, line transfers, the ledger.

use crate::common::{MS, hog, machine, preset, run_on, script};
use contend_machine::{Flags, Machine};
use contend_platform::Ordering::{Acquire, Release};
use contend_platform::{Account, CpuId, Ipi, Platform, TaskId, Time};
use contend_sim::engine::{Engine, Stop};
use contend_sim::program::{ObjectKind, Op, TaskSpec, Workload};
use contend_sim::world::Sim;
use std::cell::RefCell;
use std::rc::Rc;

/// What the CPUs noted.
type Notes<T> = Rc<RefCell<Vec<T>>>;

/// Each CPU executes `code`, which may note things; returns the engine and the notes.
fn bare<T: 'static>(m: Machine, code: impl Fn(CpuId, &Sim, &Notes<T>) + Clone + 'static) -> (Rc<Engine>, Vec<T>) {
    let engine = Engine::new(m);
    let notes: Notes<T> = Rc::default();
    let mut stacks = engine
        .boot(|_| {
            let (code, notes, p) = (code.clone(), Rc::clone(&notes), Sim::new(Rc::clone(&engine), None));
            move |cpu: CpuId| code(cpu, &p, &notes)
        })
        .expect("stacks");
    while engine.run(&mut stacks, 10_000 * MS, 1_000_000) == Stop::Budget {}
    drop(stacks);
    let notes = notes.take();
    (engine, notes)
}

/// Let private work delay this CPU until `time`.
fn until(p: &Sim, time: Time) {
    while p.now() < time {
        p.engine().owe((time - p.now()).min(1000));
        p.engine().settle();
    }
}

/// The machine is a KVM guest with steal time: who halts looks preempted, who runs does not.
#[test]
fn a_halted_cpu_of_a_guest_looks_preempted() {
    for steal_time in [false, true] {
        let m = Machine { flags: Flags { steal_time, ..Flags::default() }, ..machine("2c") };
        let (_, seen) = bare(m, |cpu, p, notes| {
            if cpu.0 == 0 {
                until(p, 1000);
                notes.borrow_mut().extend([0, 1].map(|c| p.preempted(CpuId(c))));
            }
            p.engine().idle(None, || false);
        });
        assert_eq!(seen, [false, steal_time]);
    }
}

#[test]
fn smt_retimes_work_in_flight_exactly() {
    let m = machine("1n1l1c2t");
    let speed = (m.costs.cpu.smt_speed_pct[1].value * 1024).div_ceil(100);
    assert!(speed < 1024);
    let (_, ends) = bare(m, |cpu, p, notes| {
        let task = TaskId(u32::from(cpu.0));
        p.engine().create_task(task, 0);
        p.engine().set_work(task, if cpu.0 == 0 { 10 * MS } else { 4 * MS }, Account::User);
        assert!(p.engine().run_user(task));
        notes.borrow_mut().push((cpu.0, p.now()));
        p.engine().idle(None, || false);
    });
    // Together until the short one is done; then the long one alone at full speed.
    let short = (4 * MS * 1024).div_ceil(speed);
    let left = 10 * MS * 1024 - short * speed;
    assert_eq!(ends, [(1, short), (0, short + left.div_ceil(1024))]);
}

#[test]
fn a_migration_refills_by_distance() {
    let m = machine("intel-2s-44c-88t");
    let c = &m.costs;
    let (kib, l2) = (300, c.cache.l2_kib.value);
    assert!(kib > l2);
    let want = [
        (44, c.cache.refill_core_per_kib.value * l2),
        (1, c.cache.refill_llc_per_kib.value * l2),
        (22, c.cache.refill_remote_per_kib.value * kib),
    ];
    // CPU 0 first, then its sibling, another core of the cache, the other socket.
    let route = [0, 44, 1, 22];
    let (_, took) = bare(m, move |cpu, p, notes| {
        let Some(turn) = route.iter().position(|c| *c == cpu.0) else { return p.engine().idle(None, || false) };
        let task = TaskId(0);
        if turn == 0 {
            p.engine().create_task(task, kib as u32);
        }
        until(p, turn as u64 * MS);
        p.engine().set_work(task, 0, Account::User);
        p.engine().switch_to(None, Some(task));
        p.engine().settle();
        let began = p.now();
        assert!(p.engine().run_user(task));
        notes.borrow_mut().push((cpu.0, p.now() - began));
        p.engine().switch_to(Some(task), None);
        p.engine().idle(None, || false);
    });
    assert_eq!(took[0], (0, 0), "the first run of a task refills nothing");
    assert_eq!(took[1..], want);
}

#[test]
fn timers_expire_by_time_then_by_order_of_arming() {
    let (_, fired) = bare(machine("1c"), |_, p, notes| {
        for (at, task) in [(300_000, 3), (100_000, 1), (100_000, 2), (200_000, 0)] {
            p.engine().arm_timer(at, TaskId(task));
        }
        while notes.borrow().len() < 4 {
            p.engine().idle(None, || false);
            assert!(p.engine().take_interrupts().timers);
            while let Some(t) = p.engine().take_timer() {
                notes.borrow_mut().push((t.0, p.now() / 100_000));
            }
        }
    });
    assert_eq!(fired, [(1, 1), (2, 1), (0, 2), (3, 3)]);
}

/// Setting the hardware's timer is paid for when it is set: by a timer that is before all others, after timers that expired, as the tick
/// stops. A device's interrupts are none of its.
#[test]
fn the_hardwares_timer_is_written_when_it_changes() {
    let mut m = machine("1c");
    m.set("interrupts.timer_write", "5000").expect("a cost");
    let irq = m.costs.interrupts.irq.value;
    let (_, took) = bare(m, move |cpu, p, notes| {
        let note = |what: &dyn Fn()| {
            let began = p.now();
            what();
            notes.borrow_mut().push(p.now() - began);
        };
        for stopped in [false, true, true] {
            note(&|| p.engine().stop_tick(stopped));
        }
        note(&|| p.engine().arm_device(MS, TaskId(0), cpu.0.into()));
        note(&|| p.engine().arm_timer(3 * MS, TaskId(1)));
        note(&|| p.engine().arm_timer(2 * MS, TaskId(2)));
        note(&|| p.engine().arm_timer(4 * MS, TaskId(3)));
        for _ in 0..2 {
            p.engine().idle(None, || false);
            note(&|| {
                assert!(p.engine().take_interrupts().timers);
                p.engine().take_timer().expect("one is due");
                p.engine().leave_interrupts();
            });
        }
    });
    assert_eq!(took, [0, 5000, 0, 0, 5000, 5000, 0, irq, irq + 5000]);
}

/// With idle CPUs that halt a wake-up takes an interrupt under presets that poll in idle, too.
#[test]
fn idle_cpus_that_halt_are_interrupted() {
    let ipis = |idle_halts: bool| {
        let m = Machine { flags: Flags { idle_halts, ..Flags::default() }, ..machine("2c") };
        let mut w = Workload::default();
        let sem = w.object("sem", ObjectKind::Semaphore { initial: 0 });
        w.task(script("waker", (0..20).flat_map(|_| [Op::Run(MS), Op::SemPost(sem, 1)]).collect()));
        w.task(script("sleeper", (0..20).map(|_| Op::SemWait(sem)).collect()));
        run_on(m, &preset("linux-6.18"), w, 100 * MS).counts.ipis
    };
    assert!(ipis(true) >= ipis(false) + 19, "{} and {}", ipis(true), ipis(false));
}

#[test]
fn interrupts_coalesce_and_take_their_time() {
    for (name, target) in [("2c", 1u16), ("2n1l1c1t", 1)] {
        let m = machine(name);
        let i = &m.costs.interrupts;
        let deliver = if name == "2c" { i.ipi_deliver.value } else { i.ipi_deliver_remote.value };
        let (send, irq, exit) = (i.ipi_send.value, i.irq.value, i.idle_exit.value);
        let (engine, seen) = bare(m, move |cpu, p, notes| {
            if cpu.0 == target {
                for _ in 0..2 {
                    p.engine().idle(None, || false);
                    let woken = p.now();
                    let found = p.engine().take_interrupts();
                    notes.borrow_mut().push((found.ipis, woken, p.now() - woken));
                }
                return;
            }
            until(p, 10_000);
            (0..3).for_each(|_| p.engine().send_ipi(CpuId(target), Ipi::Reschedule));
            until(p, 100_000);
            p.engine().send_ipi(CpuId(target), Ipi::CallFunction);
            p.engine().send_ipi(CpuId(target), Ipi::Reschedule);
            p.engine().idle(None, || false);
        });
        assert_eq!(
            seen,
            [
                (Ipi::Reschedule.bit(), 10_000 + send + deliver + exit, irq),
                // The second kind comes one sending later: seen at once if the first has not been taken by then.
                (
                    if send <= exit {
                        Ipi::CallFunction.bit() | Ipi::Reschedule.bit()
                    } else {
                        Ipi::CallFunction.bit()
                    },
                    100_000 + send + deliver + exit,
                    irq
                ),
            ],
            "{name}"
        );
        assert_eq!(engine.counts().ipis, 3, "{name}: three of one kind are one");
    }
}

#[test]
fn ticks_lie_on_a_grid_skewed_by_cpu() {
    let m = machine("4c");
    let period = 1_000_000_000 / u64::from(m.hz);
    let exit = m.costs.interrupts.idle_exit.value;
    let (_, ticks) = bare(m, move |cpu, p, notes| {
        until(p, 3_000 * u64::from(cpu.0));
        p.engine().stop_tick(false);
        let mut n = 0;
        while n < 3 {
            p.engine().idle(None, || false);
            let at = p.now() - exit;
            if p.engine().take_interrupts().tick {
                n += 1;
                notes.borrow_mut().push((cpu.0, at));
            }
        }
        p.engine().stop_tick(true);
        p.engine().idle(None, || false);
    });
    for cpu in 0..4u16 {
        let phase = period * u64::from(cpu) / 4;
        let first = if phase == 0 { period } else { phase };
        let mine: Vec<Time> = ticks.iter().filter(|t| t.0 == cpu).map(|t| t.1).collect();
        assert_eq!(mine, [first, first + period, first + 2 * period], "cpu {cpu}");
    }
}

#[test]
fn transfers_of_one_line_queue_those_of_two_do_not() {
    let m = machine("5c");
    let llc = m.costs.lines.llc.value;
    for same in [true, false] {
        let shared: Rc<RefCell<Option<[<Sim as Platform>::Word; 2]>>> = Rc::default();
        let (engine, ends) = bare(machine("5c"), move |cpu, p, notes| {
            if cpu.0 == 0 {
                let (a, b) = (p.line(), p.line());
                *shared.borrow_mut() = Some([p.word(a, 0), p.word(if same { a } else { b }, 0)]);
                let words = shared.borrow();
                words.iter().flatten().for_each(|w| p.store(w, 1, Release));
                drop(words);
                return p.engine().idle(None, || false);
            }
            if cpu.0 > 2 {
                return p.engine().idle(None, || false);
            }
            until(p, 10_000);
            let words = shared.borrow();
            let word = &words.as_ref().expect("made by CPU 0")[usize::from(cpu.0) - 1];
            // A borrow over a suspension: nobody borrows it mutably any more.
            p.swap(word, 2, Acquire);
            p.engine().settle();
            notes.borrow_mut().push((cpu.0, p.now() - 10_000));
            p.engine().idle(None, || false);
        });
        let second = if same { 2 * llc } else { llc };
        assert_eq!(ends, [(1, llc), (2, second)], "one line: {same}");
        assert_eq!(engine.transfers()[2], 2);
    }
}

#[test]
fn the_ledger_knows_what_was_asked_for() {
    let mut w = Workload::default();
    w.task(script("a", vec![Op::Run(7 * MS), Op::Syscall(MS), Op::Sleep(5 * MS), Op::Run(3 * MS)]));
    w.task(TaskSpec { affinity: Some(crate::common::cpus(&[1])), ..hog("b", 11 * MS) });
    let r = run_on(machine("2c"), &preset("linux-6.18"), w, 1000 * MS);
    let l = r.ledger();
    assert_eq!(l[Account::User as usize], 21 * MS);
    assert!((MS..MS + 100_000).contains(&l[Account::Syscall as usize]), "{}", l[Account::Syscall as usize]);
    assert_eq!(l.iter().sum::<u64>(), 2 * r.virtual_ns);
    assert!((16 * MS..16 * MS + 200_000).contains(&r.virtual_ns), "{}", r.virtual_ns);
    let idle = 2 * r.virtual_ns - 22 * MS;
    assert!(l[Account::Idle as usize].abs_diff(idle) < 400_000);
}
