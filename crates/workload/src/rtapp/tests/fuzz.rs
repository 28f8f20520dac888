//! No input makes the parser panic, and what it accepts runs.

use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::Rng;

use super::{Player, SAMPLES, parse};

/// Pieces that a file is made of.
const PIECES: [&str; 40] = [
    "{",
    "}",
    "[",
    "]",
    ",",
    ":",
    "\"",
    "'",
    "//",
    "/*",
    "*/",
    "\\",
    "\n",
    "-1",
    "0",
    "1",
    "99999999999999999999",
    "1e9",
    "2147483647",
    "2147483648",
    "null",
    "true",
    "\"run\"",
    "\"loop\" : -1,",
    "\"timer\" :",
    "\"lock\" : \"m\",",
    "\"unlock\" : \"m\",",
    "\"phases\" : {",
    "\"barrier\" : \"x\",",
    "\"suspend\",",
    "\"sync\" :",
    "\"instance\" : 0,",
    "\"fork\" : \"t\",",
    "\u{e9}",
    "\u{1f600}",
    "\u{2028}",
    "\0",
    "\"\\u12\"",
    "\"\\ud800\"",
    "+",
];

struct Dice(Pcg64Mcg);

impl Dice {
    fn below(&mut self, n: usize) -> usize {
        (self.0.next_u64() % n.max(1) as u64) as usize
    }
}

fn mutate(dice: &mut Dice, text: &[u8], others: &[u8]) -> Vec<u8> {
    let mut bytes = text.to_vec();
    for _ in 0..=dice.below(4) {
        let at = dice.below(bytes.len() + 1);
        let end = (at + dice.below(20)).min(bytes.len());
        match dice.below(6) {
            0 => bytes.truncate(at),
            1 => drop(bytes.drain(at..end)),
            2 => drop(bytes.splice(at..at, PIECES[dice.below(PIECES.len())].bytes())),
            3 => drop(bytes.splice(at..end, PIECES[dice.below(PIECES.len())].bytes())),
            4 => {
                let from = dice.below(others.len());
                let to = (from + dice.below(80)).min(others.len());
                drop(bytes.splice(at..at, others[from..to].iter().copied()));
            }
            _ => {
                if let Some(b) = bytes.get_mut(at) {
                    *b ^= 1 << dice.below(8);
                }
            }
        }
    }
    bytes
}

#[test]
fn mutated_samples_never_panic() {
    let mut dice = Dice(Pcg64Mcg::new(0x5eed));
    let all: Vec<u8> = SAMPLES.iter().flat_map(|(_, t)| t.bytes()).collect();
    let (mut good, mut bad) = (0, 0);
    for round in 0..20_000 {
        let bytes = mutate(&mut dice, SAMPLES[round % SAMPLES.len()].1.as_bytes(), &all);
        let text = String::from_utf8_lossy(&bytes);
        match parse(&text, "f") {
            Err(e) => {
                bad += 1;
                assert!(!e.to_string().is_empty() && e.pos.line > 0 && e.pos.column > 0);
            }
            Ok(app) if app.task_count() <= 1000 => {
                good += 1;
                let Ok(w) = app.workload(2) else { continue };
                for spec in w.tasks.into_iter().take(4) {
                    Player::new(spec).play(200);
                }
            }
            Ok(_) => {}
        }
    }
    assert!(good > 500 && bad > 5000, "{good} good, {bad} bad: the mutations reach too little");
}

#[test]
fn every_prefix_is_an_error_or_loads() {
    for (file, text) in SAMPLES {
        for (end, _) in text.char_indices() {
            let _ = parse(&text[..end], file);
        }
    }
}

#[test]
fn hostile_shapes_end_quickly() {
    for open in ["[", "{\"a\":", "{\"tasks\":{\"t\":{\"phases\":{\"p\":{\"timer\":"] {
        assert!(parse(&open.repeat(200_000), "f").is_err());
    }
    assert!(parse(&format!("[{}]", "1,".repeat(4_000_000)), "f").is_err());
    assert!(parse(&" ".repeat((16 << 20) + 1), "f").is_err());
    assert!(parse(&"/*".repeat(100_000), "f").is_err());
    let wide = "\"run\":1,".repeat(500_000);
    assert_eq!(parse(&super::task(&wide), "f").unwrap().tasks[0].phases[0].events.len(), 500_000);
}
