//! The barrier of a model: who has come, and when nobody is expected any more.

use contend_platform::Time;

use super::Fitted;

/// The barrier.
#[derive(Default)]
pub(super) struct Meeting {
    /// Who has come to this round, and which of the two semaphores it waits on.
    pub came: u32,
    pub round: u32,
    /// When the last one came.
    pub last: Time,
    /// Tasks of its roles that live, and whether some have ended.
    pub members: u32,
    pub fewer: bool,
}

impl Meeting {
    /// If all have come now: which semaphore they wait on, and how many came.
    pub fn complete(&mut self, parties: u32) -> Option<(u32, u32)> {
        let parties = if self.fewer { parties.min(self.members) } else { parties };
        (self.came > 0 && self.came >= parties).then(|| self.end())
    }

    /// The next round begins.
    pub fn end(&mut self) -> (u32, u32) {
        let (round, came) = (self.round, self.came);
        (self.came, self.round) = (0, 1 - round);
        (round, came)
    }
}

/// After how long without anybody coming to the barrier nobody is expected any more, in µs: four times what it takes if all run their longest
/// turns one after another, and one of them then sleeps its longest.
pub(super) fn patience_us(model: &Fitted, speed: f64) -> f64 {
    let most = |all: &mut dyn Iterator<Item = f64>| all.fold(0.0, f64::max);
    let meets = || model.roles.iter().filter(|r| r.meets());
    let run = most(&mut meets().map(|r| r.run_us.at(1.0)));
    let sleep = most(&mut meets().flat_map(|r| &r.ends).filter(|e| e.parties == 0).map(|e| e.us.at(1.0)));
    4.0 * (f64::from(model.parties()) * run / speed.min(1.0) + sleep)
}
