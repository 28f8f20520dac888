//! What a trace says in all: of made-up records, and of a real Xen's beside what its `xenalyze` says.

use std::path::Path;

use contend_platform::CpuId;
use contend_trace::xentrace::{Clock, Record, RunState, Summarizer, Summary, VcpuId, XenEvent, open};
use proptest::prelude::*;

const GHZ: u64 = 1_000_000_000;

fn clock(hz: u64) -> Clock {
    Clock::new(hz).unwrap()
}

fn sum(records: &[(u64, u16, XenEvent)]) -> Summary {
    let mut all = Summarizer::new(clock(GHZ));
    for (tsc, cpu, event) in records {
        all.add(&Record { cpu: CpuId(*cpu), tsc: *tsc, timed: true, event: *event, pad: 0 });
    }
    all.finish()
}

/// `r`unning, r`u`nnable, `b`locked, `o`ffline.
fn change(vcpu: VcpuId, states: &str) -> XenEvent {
    let state = |c| RunState::ALL["rubo".find(c).unwrap()];
    let mut chars = states.chars();
    XenEvent::Runstate { vcpu, old: state(chars.next().unwrap()), new: state(chars.next().unwrap()) }
}

const A: VcpuId = VcpuId::new(1, 0);
const B: VcpuId = VcpuId::new(1, 1);

#[test]
fn times_counts_and_latencies() {
    let idle = VcpuId::idle(CpuId(1));
    let s = sum(&[
        (1_000, 0, XenEvent::Wake { vcpu: A }),
        (1_100, 0, change(A, "bu")),
        (1_110, 0, XenEvent::Credit2Tickle { cpu: CpuId(1) }),
        (1_140, 1, change(idle, "ru")),
        (1_150, 1, change(A, "ur")),
        (1_350, 1, XenEvent::Yield { vcpu: A }),
        (1_400, 1, change(A, "ru")),
        (1_420, 1, change(B, "ur")),
        (1_430, 0, XenEvent::Credit2Tickle { cpu: CpuId(1) }),
        (1_500, 0, change(A, "ur")),
        (1_600, 0, XenEvent::RunstateContinue { vcpu: A }),
        (1_700, 0, change(A, "ru")),
        (
            2_000,
            1,
            XenEvent::Credit2Schedule {
                cpu: CpuId(1),
                rq: 0,
                tasklet: false,
                idle: false,
                smt_idle: false,
                tickled: true,
            },
        ),
    ]);
    assert_eq!((s.duration_ns, s.unchained, s.beyond), (1_000, 0, 0));
    let a = &s.vcpus[0];
    assert_eq!((a.vcpu, a.state_ns, a.unknown_ns), (A, [450, 450, 100, 0], 0));
    assert_eq!((a.dispatches, a.wakeups, a.migrations, a.yields, a.preemptions, a.continued), (2, 1, 1, 1, 1, 1));
    assert_eq!(a.running_on_ns, [(0, 200), (1, 250)].into());
    assert_eq!((a.run_ns.len(), a.run_ns.min(), a.run_ns.max()), (2, 200, 250));
    assert_eq!((a.wake_to_run_ns.len(), a.wake_to_run_ns.max()), (1, 50));
    assert_eq!(s.vcpus[1].state_ns, [580, 420, 0, 0]);
    assert_eq!((s.vcpus[1].run_ns.len(), s.vcpus[1].wake_to_run_ns.len()), (0, 0));
    let p = &s.pcpus[1];
    assert_eq!((p.idle_ns, p.busy_ns, p.other_ns), (140, 250 + 580, 30));
    assert_eq!((p.tickled_idle, p.tickled_busy, p.tickled_other, p.passes), (0, 1, 1, 1));
    assert_eq!(s.events["csched2:runq_tickle"], 2);
}

#[test]
fn a_gap_is_unknown_time() {
    let s = sum(&[
        (0, 0, change(A, "ur")),
        (100, 0, change(A, "rb")),
        // Its wake-up and dispatch are missing.
        (300, 0, change(A, "ru")),
        (350, 0, change(A, "ur")),
    ]);
    assert_eq!((s.vcpus[0].state_ns, s.vcpus[0].unknown_ns, s.unchained), ([100, 50, 0, 0], 200, 1));
    assert_eq!(s.vcpus[0].run_ns.len(), 1);
}

#[test]
fn a_real_trace_as_xenalyze_adds_it_up() {
    // xenalyze --cpu-hz=2.6G -s: runs (it counts each continuation as one more), stays in runnable, in blocked; it leaves out
    // each vCPU's first stay, or its last. Times in ms of its cycles; what is left out is as much as the last number.
    let expected = [
        ("credit2-mixed", VcpuId::new(0, 0), [80, 64, 63], [258.9, 780.5, 3950.0], 0.9),
        ("credit2-mixed", VcpuId::new(0, 1), [63, 58, 58], [752.7, 72.4, 4116.2], 50.0),
        ("credit2-mixed", VcpuId::new(1, 1), [30, 25, 25], [555.2, 121.9, 4219.2], 95.0),
        ("credit-mixed", VcpuId::new(0, 1), [126, 125, 125], [f64::NAN; 3], 4.0),
    ];
    for (name, vcpu, counts, times, tolerance) in expected {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/xentrace").join(format!("{name}.bin.gz"));
        let mut all = Summarizer::new(clock(2_600_000_000));
        open(file).unwrap().in_time_order().for_each(|r| all.add(&r.unwrap()));
        let s = all.finish();
        let v = s.vcpus.iter().find(|v| v.vcpu == vcpu).unwrap();
        assert!((v.dispatches + v.continued).abs_diff(counts[0]) <= 1, "{name} {vcpu} {v:?}");
        assert!(v.wakeups.abs_diff(counts[2]) <= 1, "{name} {vcpu}");
        for (ns, ms) in v.state_ns.iter().zip(times) {
            let more = *ns as f64 / 1e6 - ms;
            assert!(ms.is_nan() || (-0.1..tolerance).contains(&more), "{name} {vcpu}: {ns} {ms}");
        }
        for v in &s.vcpus {
            let total: u64 = v.state_ns.iter().sum();
            assert!(total.abs_diff(s.duration_ns) <= 4 && v.unknown_ns == 0, "{name} {}", v.vcpu);
        }
        for p in &s.pcpus {
            assert!((p.idle_ns + p.busy_ns + p.other_ns).abs_diff(s.duration_ns) <= 4, "{name} {p:?}");
            assert!(p.other_ns < 1_000_000, "{name} {p:?}");
        }
        assert_eq!(s.unchained, 0);
    }
}

fn any_event() -> impl Strategy<Value = XenEvent> {
    let vcpu = (prop_oneof![Just(0x7fffu16), 0u16..3], 0u16..3).prop_map(|(d, v)| VcpuId::new(d, v));
    let state = || prop::sample::select(&RunState::ALL[..]);
    prop_oneof![
        6 => (vcpu.clone(), state(), state()).prop_map(|(vcpu, old, new)| XenEvent::Runstate { vcpu, old, new }),
        1 => vcpu.clone().prop_map(|vcpu| XenEvent::RunstateContinue { vcpu }),
        1 => vcpu.prop_map(|vcpu| XenEvent::Yield { vcpu }),
        1 => (0u16..5).prop_map(|cpu| XenEvent::Credit1Tickle { cpu: CpuId(cpu) }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever comes: nothing panics, and each vCPU's and pCPU's times add up to the length of the trace.
    #[test]
    fn times_add_up(
        mut records in prop::collection::vec((prop_oneof![8 => 0u64..10_000, 1 => any::<u64>()], 0u16..4, any_event()), 1..60),
        sorted in any::<bool>(),
    ) {
        if sorted {
            records.sort_by_key(|r| r.0);
        }
        let s = sum(&records);
        for v in &s.vcpus {
            let total = u128::from(v.unknown_ns) + v.state_ns.iter().map(|t| u128::from(*t)).sum::<u128>();
            prop_assert!(!sorted || total == u128::from(s.duration_ns), "{v:?}");
        }
        for p in &s.pcpus {
            let total = u128::from(p.idle_ns) + u128::from(p.busy_ns) + u128::from(p.other_ns);
            prop_assert!(!sorted || total == u128::from(s.duration_ns), "{p:?}");
        }
        prop_assert_eq!(s.events.values().sum::<u64>(), records.len() as u64);
    }
}
