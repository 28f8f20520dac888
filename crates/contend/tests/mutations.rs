//! Damaged scenarios and traces are refused with a message or read; they never panic. The damage is the same in every run.

use contend::scenario::Scenario;
use contend::{xen_audit, xen_replay, xen_trace};
use contend_platform::CpuId;
use contend_trace::xentrace::{Clock, RunState, VcpuId, Writer, XenEvent};
use std::path::Path;

/// xorshift64: enough to choose places.
struct Dice(u64);
impl Dice {
    fn roll(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % n.max(1) as u64) as usize
    }
}

#[test]
fn damaged_scenarios_never_panic() {
    let texts = [
        include_str!("../../../scenarios/hackbench-88.toml"),
        include_str!("../../../scenarios/schbench-88.toml"),
        include_str!("../../../scenarios/recorded-hackbench-88.toml"),
        include_str!("../../../scenarios/ping-pong-2cpu.toml"),
        include_str!("../../../scenarios/guests-2x.toml"),
        include_str!("../../../scenarios/xen-weights.toml"),
        include_str!("../../../scenarios/xen-soft-affinity.toml"),
    ];
    let mut dice = Dice(0x2545_F491_4F6C_DD1D);
    let words = [
        "0",
        "-1",
        "1e9",
        "1000000000",
        "nan",
        "\"",
        "[",
        "]",
        "{",
        "=",
        "\n",
        "[set]",
        "[[guest]]",
        "[xen]",
        "[[at]]\ns = 1\nxl = \"sched-credit2 -d 1 -w 9\"\n",
        "cpus = \"^0-3,node:1\"\n",
        "copies = 3\n",
        "[[xen.pool]]\ncpus = \"0\"\n",
        "kind",
        "é",
        "\0",
    ];
    let (mut read, mut refused) = (0, 0);
    for text in texts {
        for _ in 0..1_000 {
            let mut chars: Vec<char> = text.chars().collect();
            for _ in 0..1 + dice.roll(3) {
                let at = dice.roll(chars.len());
                match dice.roll(4) {
                    0 => chars.truncate(at),
                    1 => drop(chars.splice(at..(at + dice.roll(20)).min(chars.len()), [])),
                    2 => drop(chars.splice(at..at, words[dice.roll(words.len())].chars())),
                    _ => {
                        let from = dice.roll(chars.len());
                        let part: Vec<char> = chars[from..(from + dice.roll(40)).min(chars.len())].to_vec();
                        drop(chars.splice(at..at, part));
                    }
                }
            }
            let damaged: String = chars.into_iter().collect();
            match Scenario::parse(&damaged, "damaged.toml", Path::new(".")) {
                Ok(scenario) => {
                    read += 1;
                    let _ = scenario.plan();
                }
                Err(e) => {
                    refused += 1;
                    assert!(e.to_string().starts_with("damaged.toml"), "{e}");
                }
            }
        }
    }
    assert!(refused > 100 && read > 100, "{refused} refused, {read} read");
}

fn replay() -> xen_replay::Replay {
    xen_replay::Replay {
        cpu_hz: 2_400_000_000,
        scheduler: "credit2".into(),
        preset: "upstream-today".into(),
        machine: None,
        ratelimit_us: 1000,
        domains: Default::default(),
        seed: 1,
    }
}

#[test]
fn damaged_xen_traces_never_panic() {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../trace/tests/data/xentrace/credit2-mixed.bin.gz");
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join("damaged.bin");
    let _ = std::fs::remove_file(&file);
    xen_trace::rewrite(&data, &file, &mut || true).expect("the trace unpacked");
    let mut whole = std::fs::read(&file).expect("what was written");
    // Enough for all kinds of records; whole words.
    whole.truncate(40_000);
    let recorded = xen_audit::Recorded {
        cpu_hz: 2_400_000_000,
        weights: Vec::new(),
        soft: Vec::new(),
        ratelimit_us: 1000,
        machine: None,
    };
    let mut dice = Dice(0x2545_F491_4F6C_DD1D);
    let words = [0, 1, 23, 0xffff, 0x7fff_ffff, 0x8000_0000, u32::MAX];
    let (mut done, mut refused) = (0, 0);
    for round in 0..60 {
        let mut bytes = whole.clone();
        for _ in 0..[1, 5, 50, 500][round % 4] {
            let at = 12 + dice.roll(bytes.len() - 12);
            match dice.roll(8) {
                0 => drop(bytes.drain(at..(at + dice.roll(64)).min(bytes.len()))),
                1..=4 => bytes[at] = dice.roll(256) as u8,
                _ if at + 8 > bytes.len() => bytes.truncate(at),
                _ => bytes[at & !3..][..4].copy_from_slice(&u32::to_le_bytes(words[dice.roll(words.len())])),
            }
        }
        std::fs::write(&file, &bytes).expect("a file");
        match xen_audit::run(&file, &recorded, &mut || true) {
            Ok(_) => done += 1,
            Err(e) => {
                refused += 1;
                assert!(e.to_string().contains("damaged.bin"), "{e}");
            }
        }
        match xen_replay::run(&file, &replay(), &mut || true) {
            Ok(said) => assert_eq!(said["outcome"], "horizon", "round {round}: {}", said["outcome_detail"]),
            Err(e) => {
                refused += 1;
                assert!(e.to_string().contains("damaged.bin"), "{e}");
            }
        }
    }
    assert!(refused > 0 && done > 0, "{refused} refused, {done} read");
}

#[test]
fn a_xen_trace_of_more_than_a_day_is_refused() {
    let mut out = Writer::new(Vec::new(), Clock::default());
    let (vcpu, old, new) = (VcpuId::new(1, 0), RunState::Runnable, RunState::Running);
    for hours in [0, 25, 25] {
        out.event(hours * 3_600_000_000_000, CpuId(0), &XenEvent::Runstate { vcpu, old, new }).expect("a buffer");
    }
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join("long.bin");
    std::fs::write(&file, out.finish().expect("a buffer")).expect("a file");
    let said = xen_replay::run(&file, &replay(), &mut || true).expect_err("too long").to_string();
    assert!(
        said.contains("long.bin: found records over 25 hours; expected 24 at most: time stamps are damaged"),
        "{said}"
    );
}
