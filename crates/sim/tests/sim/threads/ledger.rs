//! Conservation and determinism of random mixes of threads.

use crate::common::{MS, preset};
use crate::threads::{booked, machine};
use contend_locks::{MakeLock, Mcs, RawLock};
use contend_platform::{Account, CpuId, Ordering, Platform};
use contend_sim::guest::Guests;
use contend_sim::host::{Limits, RunResult, Setup, simulate};
use contend_sim::program::{ObjectKind, Op, Workload};
use contend_sim::thread::{Thread, ThreadSpec};
use proptest::prelude::*;
use std::rc::Rc;

/// What a thread does next.
#[derive(Clone, Copy, Debug)]
enum Step {
    Compute(u64),
    Critical(u64),
    Sleep(u64),
    Spin(u64),
    Halt,
    Kick,
    Yield,
    Mutex(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (0u64..3_000_000).prop_map(Step::Compute),
        (0u64..20_000).prop_map(Step::Critical),
        (0u64..300_000).prop_map(Step::Sleep),
        (0u64..100_000).prop_map(Step::Spin),
        Just(Step::Halt),
        Just(Step::Kick),
        Just(Step::Yield),
        (0u64..50_000).prop_map(Step::Mutex),
    ]
}

fn mix(on: &str, policy: &str, plans: Vec<Vec<Step>>) -> RunResult {
    let p = preset(policy);
    let mut workload = Workload::default();
    let mutex = workload.object("m", ObjectKind::Mutex);
    workload.threads = Some(Box::new(move |outside| {
        let n = plans.len();
        let lock = Rc::new(<Mcs<Thread> as MakeLock<Thread>>::new(outside, n));
        let word = Rc::new(outside.word(outside.line(), 0));
        let thread = |(i, plan): (usize, Vec<Step>)| {
            let (lock, word) = (Rc::clone(&lock), Rc::clone(&word));
            ThreadSpec::new(format!("t{i}"), i as u16, move |t: &Thread| {
                for step in plan {
                    match step {
                        Step::Compute(ns) => t.compute(ns),
                        Step::Critical(ns) => {
                            lock.lock(t);
                            t.compute(ns);
                            lock.unlock(t);
                        }
                        Step::Sleep(ns) => t.sleep(ns),
                        Step::Spin(ns) => drop(t.wait_until([&word], Some(ns), |[v]| v == u64::MAX)),
                        // The value has gone by then unless nobody kicks: never sleeps for ever.
                        Step::Halt => {
                            let v = t.fetch_add(&word, 1, Ordering::AcqRel);
                            t.kick(&word, CpuId(0));
                            t.halt(&word, v);
                        }
                        Step::Kick => t.kick(&word, CpuId(0)),
                        Step::Yield => t.sched_yield(),
                        Step::Mutex(ns) => {
                            t.call(Op::Lock(mutex));
                            t.compute(ns);
                            t.call(Op::Unlock(mutex));
                        }
                    }
                }
            })
        };
        plans.into_iter().enumerate().map(thread).collect()
    }));
    let limits = Limits { horizon: 60_000 * MS, ..Limits::default() };
    let setup =
        Setup { machine: machine(on), features: p.features, workload, seed: 1, limits, guests: Guests::default() };
    simulate(p.policy, setup, None, &mut |_| true).expect("stacks")
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    #[test]
    fn time_is_conserved_and_runs_repeat(
        plans in prop::collection::vec(prop::collection::vec(step(), 0..25), 1..9),
        on in prop::sample::select(vec!["1c", "2c", "3c", "2n1l2c1t"]),
        policy in prop::sample::select(vec!["linux-6.18", "linux-5.2", "linux-2.6.37", "fifo"]),
    ) {
        let asked: u64 = plans.iter().flatten().map(|s| match s {
            Step::Compute(ns) | Step::Critical(ns) | Step::Mutex(ns) => *ns,
            _ => 0,
        }).sum();
        let accesses = 20 * 1000 * plans.iter().flatten().count() as u64;
        let r = mix(on, policy, plans.clone());
        prop_assert_eq!(r.outcome.name(), "finished", "{}", r.outcome.detail());
        for cpu in &r.cpus {
            prop_assert_eq!(cpu.ledger.iter().sum::<u64>(), r.virtual_ns);
        }
        let user = booked(&r, Account::User);
        prop_assert!((asked..=asked + accesses).contains(&user), "computed {} of {}", user, asked);
        let again = mix(on, policy, plans);
        prop_assert_eq!(
            (r.trace_hash, r.virtual_ns, r.counts, r.ledger(), r.transfers),
            (again.trace_hash, again.virtual_ns, again.counts, again.ledger(), again.transfers)
        );
    }
}
