//! Run times of one machine on another.

use std::fmt;

/// The longest run: every simulation ends before, and the engine takes longer ones for mistakes. 11 days.
const RUN_MAX: f64 = 1e15;

/// A run of so many ns where everything takes `speed` times less.
pub(crate) fn run_ns(ns: f64, speed: f64) -> f64 {
    (ns / speed).min(RUN_MAX)
}

/// Run times that were recorded on one machine, and the machine they are played on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rescaled {
    /// The recording or the model.
    pub file: String,
    /// How fast the recorded machine computes (`cpu.speed`); 0: not known.
    pub recorded: u64,
    /// How fast this one does; 0: not known.
    pub here: u64,
}

impl Rescaled {
    /// Run times are divided by this: 1 where one of the two is not known.
    pub fn factor(&self) -> f64 {
        if self.recorded == 0 || self.here == 0 { 1.0 } else { self.here as f64 / self.recorded as f64 }
    }
}

impl fmt::Display for Rescaled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Rescaled { file, recorded, here } = self;
        match (recorded, here) {
            (0, 0) => write!(f, "{file}: run times as recorded: neither machine has a cpu.speed"),
            (0, _) => write!(f, "{file}: run times as recorded: the recorded machine has no cpu.speed"),
            (_, 0) => write!(f, "{file}: run times as recorded: this machine has no cpu.speed"),
            _ => write!(
                f,
                "{file}: run times x{:.2}: cpu.speed is {recorded} where it was recorded, {here} here",
                1.0 / self.factor()
            ),
        }
    }
}
