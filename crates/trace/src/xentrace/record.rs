//! The frame of a record, and time.
//!
//! ```text
//! word 0       bits 0-27 event id, 28-30 number of words (0 to 7), 31 whether a time stamp follows
//! words 1, 2   the time stamp, if there is one: the pCPU's TSC, low word first
//! then         the words
//! ```
//! All little endian. Three ids speak of the file rather than of the machine: [`CPU_CHANGE`], [`PADDING`], [`LOST`].

use contend_platform::{CpuId, Time};

use super::layout::{Encoded, encode_padded};
use super::{Words, XenEvent};

/// Opens a window. Words: pCPU, bytes of records that follow. Without a time stamp.
pub const CPU_CHANGE: u32 = 0x1_f003;

/// Fills the end of a trace buffer. Its words are whatever lay there.
pub const PADDING: u32 = 0x1_f002;

/// Records are missing here, since the buffer was full. Words: how many; vCPU and domain (half a word each) that ran;
/// time stamp of the first that is missing.
pub const LOST: u32 = 0x1_f001;

/// The first word of a [`CPU_CHANGE`] record.
pub(super) const CPU_CHANGE_HEADER: u32 = CPU_CHANGE | 2 << 28;

/// Bytes of a [`CPU_CHANGE`] record.
pub(super) const CPU_CHANGE_BYTES: usize = 12;

/// The longest record.
pub(super) const RECORD_BYTES_MAX: usize = 12 + 4 * Words::MAX;

/// A record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Record {
    /// The pCPU that reports.
    pub cpu: CpuId,
    /// Its TSC. That of the pCPU's record before, if this one has none (0 if there is none before).
    pub tsc: u64,
    /// Whether the record has a time stamp of its own.
    pub timed: bool,
    /// What it reports. [`LOST`] is [`XenEvent::Other`], too.
    pub event: XenEvent,
    /// Padding, see [`Decoded::pad`](super::layout::Decoded::pad).
    pub pad: u32,
}

impl Record {
    /// How many records are missing here, if that is what it says.
    pub fn lost(&self) -> Option<u32> {
        match &self.event {
            XenEvent::Other { id: LOST, words } => Some(words.as_slice().first().copied().unwrap_or(0)),
            _ => None,
        }
    }

    /// Appends the record's bytes.
    pub fn push_bytes(&self, to: &mut Vec<u8>) {
        push(to, self.timed.then_some(self.tsc), &encode_padded(&self.event, self.pad));
    }
}

/// Appends a record.
pub(super) fn push(to: &mut Vec<u8>, tsc: Option<u64>, record: &Encoded) {
    let words = record.words.as_slice();
    let header = record.id | (words.len() as u32) << 28 | u32::from(tsc.is_some()) << 31;
    to.extend_from_slice(&header.to_le_bytes());
    if let Some(tsc) = tsc {
        to.extend_from_slice(&tsc.to_le_bytes());
    }
    words.iter().for_each(|word| to.extend_from_slice(&word.to_le_bytes()));
}

/// Between time stamps and ns.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Clock {
    /// Ticks of the TSC a second.
    hz: u64,
}

impl Clock {
    /// The frequency that `xenalyze` assumes where none is given.
    pub const DEFAULT_HZ: u64 = 2_400_000_000;

    /// The slowest and the fastest that is believed: 1 MHz and 100 GHz.
    pub const HZ_RANGE: std::ops::RangeInclusive<u64> = 1_000_000..=100_000_000_000;

    /// A TSC of this frequency, in Hz. `None`: out of [`Self::HZ_RANGE`].
    pub fn new(hz: u64) -> Option<Self> {
        Self::HZ_RANGE.contains(&hz).then_some(Self { hz })
    }

    /// Ticks a second.
    pub fn hz(self) -> u64 {
        self.hz
    }

    /// A number of ns in ticks, rounded down.
    pub fn ticks(self, ns: Time) -> u64 {
        (u128::from(ns) * u128::from(self.hz) / 1_000_000_000).try_into().unwrap_or(u64::MAX)
    }

    /// A number of ticks in ns, rounded down.
    pub fn ns(self, ticks: u64) -> Time {
        (u128::from(ticks) * 1_000_000_000 / u128::from(self.hz)).try_into().unwrap_or(u64::MAX)
    }
}

impl Default for Clock {
    /// [`Self::DEFAULT_HZ`].
    fn default() -> Self {
        Self { hz: Self::DEFAULT_HZ }
    }
}
