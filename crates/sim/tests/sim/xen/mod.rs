//! Xen hosts: whatever the scheduler, vCPUs run, wait and move as Xen lets them.

mod rings;
mod trace;

use crate::common::{Does, MS, hog, machine, preset, script};
use contend_machine::Machine;
use contend_platform::{Account, CpuId};
use contend_sched::xen::contract::{DomParams, Tunables};
use contend_sched::xen::features::{Scheduler, XenFeatures};
use contend_sched::xen::mask::CpuMask;
use contend_sched::xen::units::VcpuAffinity;
use contend_sim::guest::{GuestSpec, Memory};
use contend_sim::host::{Limits, Outcome, RunResult};
use contend_sim::program::{Cx, GroupId, ObjectKind, Op, Program, Workload};
use contend_sim::xen::{Change, Content, DomainSetup, PoolSetup, Sinks, What, XenSetup, simulate};

const EVERYWHERE: VcpuAffinity = VcpuAffinity { hard: CpuMask::NONE, soft: CpuMask::NONE };

fn affinity(hard: CpuMask, soft: CpuMask) -> VcpuAffinity {
    VcpuAffinity { hard, soft }
}

fn only(cpu: u16) -> CpuMask {
    CpuMask::only(CpuId(cpu))
}

/// Computes without end.
fn burner() -> Box<dyn Program> {
    Box::new(Does(|_: &mut Cx<'_>| Op::Run(1_000 * MS)))
}

/// Computes and sleeps in turn.
fn sleeper(run: u64, sleep: u64) -> Box<dyn Program> {
    let mut turn = false;
    Box::new(Does(move |_: &mut Cx<'_>| {
        turn = !turn;
        if turn { Op::Run(run) } else { Op::Sleep(sleep) }
    }))
}

fn programs(dom: u16, n: usize, make: impl Fn() -> Box<dyn Program>) -> DomainSetup {
    let content =
        Content::Programs { name: format!("d{dom}"), programs: (0..n).map(|_| make()).collect(), background: false };
    DomainSetup { dom, params: DomParams::default(), pool: 0, affinity: vec![EVERYWHERE; n], content }
}

fn kernel(dom: u16, vcpus: usize, workload: Workload) -> DomainSetup {
    let p = preset("linux-3.6");
    let mut features = p.features;
    features.set("spinlock", "ticket").expect("a kind of lock");
    let spec = GuestSpec {
        name: format!("d{dom}"),
        topology: Machine::synthetic(&format!("{vcpus}n1l1c1t")).expect("a topology").topology,
        policy: p.policy,
        features,
        hz: 250,
        group: GroupId::ROOT,
        workload,
        pin: Vec::new(),
        background: false,
        memory: None,
    };
    let content = Content::Kernel(Box::new(spec));
    DomainSetup { dom, params: DomParams::default(), pool: 0, affinity: vec![EVERYWHERE; vcpus], content }
}

fn setup(on: &str, scheduler: Scheduler, mut domains: Vec<DomainSetup>, horizon: u64) -> XenSetup {
    let machine = machine(on);
    let all = CpuMask::first_n(machine.topology.nr_cpus());
    for a in domains.iter_mut().flat_map(|d| &mut d.affinity) {
        a.hard = if a.hard.is_empty() { all } else { a.hard };
        a.soft = if a.soft.is_empty() { all } else { a.soft };
    }
    XenSetup {
        machine,
        scheduler,
        features: XenFeatures::default(),
        pools: vec![PoolSetup {
            name: "Pool-0".into(),
            cpus: all,
            tunables: Tunables { ratelimit: 1_000_000, tslice: 30_000_000 },
        }],
        domains,
        timeline: Vec::new(),
        seed: 1,
        limits: Limits { horizon, ..Limits::default() },
    }
}

fn run(setup: XenSetup) -> RunResult {
    simulate(setup, Sinks::default(), &mut |_| true).expect("stacks")
}

const ALL: [Scheduler; 3] = [Scheduler::RoundRobin, Scheduler::Credit, Scheduler::Credit2];

/// Longer than anybody may be runnable without running, without a kernel and with one.
#[test]
fn domains_may_sleep_for_long() {
    for scheduler in ALL {
        let mut w = Workload::default();
        w.task(script("sleeper", vec![Op::Run(1000), Op::Sleep(100_000 * MS), Op::Run(1000)]));
        for domain in [programs(1, 2, || sleeper(MS, 100_000 * MS)), kernel(1, 1, w)] {
            let r = run(setup("2c", scheduler, vec![domain], 150_000 * MS));
            assert!(matches!(r.outcome, Outcome::Horizon | Outcome::Finished), "{scheduler:?}: {}", r.outcome.detail());
            assert!(r.virtual_ns > 100_000 * MS);
        }
    }
}

#[test]
fn burners_and_sleepers_get_what_there_is() {
    for scheduler in ALL {
        let domains = vec![programs(1, 3, burner), programs(2, 2, || sleeper(MS, 9 * MS))];
        let r = run(setup("4c", scheduler, domains, 1_000 * MS));
        assert_eq!(r.outcome, Outcome::Horizon, "{scheduler:?}: {}", r.outcome.detail());
        let xen = r.xen.expect("a Xen host");
        let ran: Vec<u64> = xen.vcpus.iter().map(|v| v.times[0]).collect();
        // The reference policy lets who wakes wait for a whole slice.
        let least = if scheduler == Scheduler::RoundRobin { 20 * MS } else { 80 * MS };
        assert!(ran[3..].iter().all(|t| (least..105 * MS).contains(t)), "{scheduler:?}: {ran:?}");
        assert!(ran[..3].iter().all(|t| *t > 600 * MS), "{scheduler:?}: {ran:?}");
        let busy: u64 = r.cpus.iter().map(|c| c.ledger[Account::User as usize]).sum();
        assert!(busy.abs_diff(ran.iter().sum()) < 40 * MS, "{scheduler:?}: what ran, computed: {busy}, {ran:?}");
    }
}

#[test]
fn guest_kernels_run_halt_and_interrupt_one_another() {
    for scheduler in ALL {
        let mut w = Workload::default();
        let there = w.object("there", ObjectKind::Semaphore { initial: 0 });
        let back = w.object("back", ObjectKind::Semaphore { initial: 0 });
        let ping = (0..300).flat_map(|_| [Op::SemPost(there, 1), Op::SemWait(back), Op::Run(5_000)]).collect();
        let pong = (0..300).flat_map(|_| [Op::SemWait(there), Op::Run(5_000), Op::SemPost(back, 1)]).collect();
        w.task(script("ping", ping));
        w.task(script("pong", pong));
        let mut hogs = Workload::default();
        (0..3).for_each(|i| hogs.task(hog(&format!("hog{i}"), 50 * MS)));
        let r = run(setup("2c", scheduler, vec![kernel(1, 2, w), kernel(2, 2, hogs)], 20_000 * MS));
        assert_eq!(r.outcome, Outcome::Finished, "{scheduler:?}: {}", r.outcome.detail());
        assert!(r.guests.iter().all(|g| g.finished.is_some()));
        for (unit, v) in std::iter::zip(&r.xen.expect("a Xen host").vcpus, r.guests.iter().flat_map(|g| &g.vcpus)) {
            let [_, runnable, blocked, offline] = unit.times;
            // Until its thread starts a vCPU of a guest counts as halted.
            assert!(blocked.abs_diff(v.times.halted) < MS, "{:?}: {blocked} {:?}", unit.id, v.times);
            assert!((runnable + offline).abs_diff(v.times.stolen) < MS, "{:?}: {runnable} {:?}", unit.id, v.times);
        }
    }
}

#[test]
fn hard_affinity_holds_and_can_change() {
    for scheduler in ALL {
        let mut domains = vec![programs(1, 2, burner), programs(2, 2, || sleeper(2 * MS, 3 * MS))];
        domains[0].affinity = vec![affinity(only(0), only(0)); 2];
        let mut s = setup("2c", scheduler, domains, 1_000 * MS);
        s.timeline.push(Change { at: 500 * MS, what: What::Affinity(0, 1, affinity(only(1), only(1))) });
        let r = run(s);
        assert_eq!(r.outcome, Outcome::Horizon, "{scheduler:?}: {}", r.outcome.detail());
        let xen = r.xen.expect("a Xen host");
        assert_eq!(xen.vcpus[1].moves, 1, "{scheduler:?}");
        assert_eq!(xen.vcpus[0].moves, 0, "{scheduler:?}");
    }
}

#[test]
fn the_same_setup_gives_the_same_run() {
    for scheduler in ALL {
        let make = || {
            let domains = vec![programs(1, 3, burner), programs(2, 4, || sleeper(MS, 2 * MS))];
            run(setup("4c", scheduler, domains, 200 * MS))
        };
        let (a, b) = (make(), make());
        assert_eq!((a.trace_hash, a.dispatches), (b.trace_hash, b.dispatches), "{scheduler:?}");
    }
}

#[test]
fn programs_that_end_end_the_run() {
    let finite = || -> Box<dyn Program> {
        let mut ops = vec![Op::Run(3 * MS), Op::Sleep(MS), Op::Yield, Op::Run(MS), Op::Exit].into_iter();
        Box::new(Does(move |_: &mut Cx<'_>| ops.next().expect("it ends")))
    };
    for scheduler in ALL {
        let r = run(setup("2c", scheduler, vec![programs(1, 4, finite)], 1_000 * MS));
        assert_eq!(r.outcome, Outcome::Finished, "{scheduler:?}: {}", r.outcome.detail());
        assert!((8 * MS..14 * MS).contains(&r.virtual_ns), "{scheduler:?}: {}", r.virtual_ns);
    }
}

#[test]
fn what_is_left_of_a_stretch_goes_on_at_the_speed_of_the_node_that_a_vcpu_moves_to() {
    for scheduler in ALL {
        let mut w = Workload::default();
        w.task(hog("hog", 50 * MS));
        let mut domain = kernel(1, 1, w);
        let Content::Kernel(spec) = &mut domain.content else { unreachable!("a kernel was asked for") };
        spec.memory = Some(Memory { node: 0, stall_pct: 50 });
        let (near, far) = (CpuMask::only(CpuId(0)), CpuMask::only(CpuId(1)));
        domain.affinity = vec![affinity(near, near)];
        let mut s = setup("2n1c", scheduler, vec![domain], 1_000 * MS);
        let m = s.machine.costs.memory.clone();
        s.timeline.push(Change { at: 20 * MS, what: What::Affinity(0, 0, affinity(far, far)) });
        let r = run(s);
        assert_eq!(r.outcome, Outcome::Finished, "{scheduler:?}: {}", r.outcome.detail());
        // 20 ms near its memory, and the rest half as much longer as the latency is.
        let factor = 1.0 + 0.5 * (m.remote[0].value as f64 / m.local.value as f64 - 1.0);
        let all = r.guests[0].vcpus[0].ledger[Account::User as usize] as f64;
        let right = (20.0 + 30.0 * factor) * MS as f64;
        assert!((all - right).abs() < 0.2 * MS as f64, "{scheduler:?}: {all}, not {right}");
    }
}
