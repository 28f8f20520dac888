//! Damaged machine files are refused with a message or read; they never panic. The damage is the same in every run.

use contend_machine::Machine;

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
fn damaged_files_never_panic() {
    let mut dice = Dice(0x9E37_79B9_7F4A_7C15);
    let words = [
        "0",
        "-1",
        "1e9",
        "99999999999999999999",
        "nan",
        "\"",
        "[",
        "]",
        "{",
        "=",
        "\n",
        "[[topology.cpu]]",
        "é",
        "\0",
    ];
    let (mut read, mut refused) = (0, 0);
    for (name, text) in Machine::shipped() {
        for _ in 0..300 {
            let mut chars: Vec<char> = text.chars().collect();
            for _ in 0..1 + dice.roll(4) {
                let at = dice.roll(chars.len());
                match dice.roll(4) {
                    0 => chars.truncate(at),
                    1 => drop(chars.splice(at..(at + dice.roll(40)).min(chars.len()), [])),
                    2 => drop(chars.splice(at..at, words[dice.roll(words.len())].chars())),
                    _ => {
                        let from = dice.roll(chars.len());
                        let part: Vec<char> = chars[from..(from + dice.roll(80)).min(chars.len())].to_vec();
                        drop(chars.splice(at..at, part));
                    }
                }
            }
            let damaged: String = chars.into_iter().collect();
            match Machine::parse(&damaged, name) {
                Ok(_) => read += 1,
                Err(e) => {
                    refused += 1;
                    assert!(!e.to_string().is_empty());
                }
            }
        }
    }
    assert!(refused > read && read > 0, "{refused} refused, {read} read");
}
