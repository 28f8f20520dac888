//! What is known of the recording that a model was made of.

/// Where a model comes from.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Source {
    /// The recording, or the model it was made of.
    pub recording: String,
    /// The command that was recorded; empty: not known.
    #[serde(default)]
    pub command: String,
    /// CPUs that recorded something.
    pub cpus: u32,
    /// From the first step to the end of the recording, in ns.
    pub span_ns: u64,
    /// How fast the recorded machine computes (`cpu.speed` of its file); 0: not known.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub machine_speed: u64,
    /// What came of newidle balances there; nothing: not known.
    #[serde(default, skip_serializing_if = "NewidlePulls::is_none")]
    pub newidle: NewidlePulls,
}

fn is_zero(speed: &u64) -> bool {
    *speed == 0
}

/// Chances to pull, and pulls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NewidlePulls {
    /// Times that a CPU began to idle while a task waited elsewhere that had not run for 500 us, and that ran on several CPUs in the
    /// recording; and those in which a CPU pulled one instead.
    pub chances: u64,
    /// Of those, the latter.
    pub pulled: u64,
}

impl NewidlePulls {
    fn is_none(&self) -> bool {
        self.chances == 0
    }

    /// Of several recordings.
    pub fn add(&mut self, other: NewidlePulls) {
        self.chances = self.chances.saturating_add(other.chances);
        self.pulled = self.pulled.saturating_add(other.pulled);
    }

    /// The feature `newidle_ratio`: of 1,024. Where there were few chances it is between what they say and the kernel's half: as much as one
    /// chance is worth.
    pub fn ratio(self) -> u64 {
        (1024.0 * (self.pulled as f64 + 0.5) / (self.chances as f64 + 1.0)).ceil() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A model says it in its file, where it is known.
    #[test]
    fn it_is_kept() {
        let source = Source { newidle: NewidlePulls { chances: 316, pulled: 13 }, ..Source::default() };
        let text = toml::to_string(&source).expect("plain values");
        assert_eq!(toml::from_str::<Source>(&text).expect("the same"), source);
        let text = toml::to_string(&Source::default()).expect("plain values");
        assert!(!text.contains("newidle"), "{text}");
    }

    #[test]
    fn few_chances_say_little() {
        let ratio = |chances, pulled| NewidlePulls { chances, pulled }.ratio();
        assert_eq!((ratio(0, 0), ratio(1, 0), ratio(1, 1), ratio(40, 0), ratio(40, 40)), (512, 256, 768, 13, 1012));
        assert!(ratio(u64::MAX, u64::MAX) <= 1024);
    }
}
