//! Run times of one machine on another.

use std::fmt;

use contend_machine::Cost;

/// The longest run: every simulation ends before, and the engine takes longer ones for mistakes. 11 days.
const RUN_MAX: f64 = 1e15;

/// A run of so many ns where everything takes `speed` times less.
pub(crate) fn run_ns(ns: f64, speed: f64) -> f64 {
    (ns / speed).min(RUN_MAX)
}

/// The machine that a recording was made on, as its file says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordedOn {
    /// Its name.
    pub name: String,
    /// Its `cpu.speed`, with its range.
    pub speed: Cost,
}

/// Run times that were recorded on one machine, and the machine they are played on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rescaled {
    /// The recording or the model.
    pub file: String,
    /// How fast the recorded machine computes (`cpu.speed`); 0: not known.
    pub recorded: u64,
    /// The recorded machine, if its file is at hand: a model only has the speed.
    pub recorded_on: Option<RecordedOn>,
    /// How fast this one does; 0: not known.
    pub here: u64,
}

impl Rescaled {
    /// Run times are divided by this: 1 where one of the two is not known.
    pub fn factor(&self) -> f64 {
        if self.recorded == 0 || self.here == 0 { 1.0 } else { self.here as f64 / self.recorded as f64 }
    }

    /// Is it certain to be of the machine of this name and speed?
    pub fn is_of(&self, name: &str, speed: &Cost) -> bool {
        match &self.recorded_on {
            Some(on) => on.name == name && on.speed == *speed,
            None => self.recorded == self.here,
        }
    }

    /// The range of the speed of a machine that it is replayed on, as far as this recording goes: how uncertain its own machine's speed
    /// is counts, too, since only the ratio of the two matters.
    pub fn range(&self, here: &Cost) -> (u64, u64) {
        let Some(RecordedOn { speed, .. }) = self.recorded_on.as_ref().filter(|on| on.speed.value > 0) else {
            return (here.lo, here.hi);
        };
        let at = |here: u64, recorded: u64| here as f64 * speed.value as f64 / recorded.max(1) as f64;
        (at(here.lo, speed.hi).floor() as u64, at(here.hi, speed.lo).ceil() as u64)
    }
}

impl fmt::Display for Rescaled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Rescaled { file, recorded, here, .. } = self;
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

#[cfg(test)]
mod tests {
    use super::*;

    fn cost(value: u64, lo: u64, hi: u64) -> Cost {
        Cost { value, lo, hi, source: "a test".into() }
    }

    #[test]
    fn both_machines_are_uncertain() {
        let on = |speed| Some(RecordedOn { name: "there".into(), speed });
        let r = Rescaled { file: "f".into(), recorded: 800, recorded_on: on(cost(800, 400, 1600)), here: 500 };
        assert_eq!(r.range(&cost(500, 250, 1000)), (125, 2000));
        assert!(!r.is_of("here", &cost(800, 400, 1600)), "as fast, but another machine");
        assert!(r.is_of("there", &cost(800, 400, 1600)));
        let model = Rescaled { recorded_on: None, ..r };
        assert_eq!(model.range(&cost(500, 250, 1000)), (250, 1000), "a model does not say");
    }
}
