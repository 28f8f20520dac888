//! Damaged scenarios are refused with a message or read; they never panic. The damage is the same in every run.

use contend::scenario::Scenario;
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
