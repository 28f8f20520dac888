//! What a reader of binary traces met besides events.

use std::collections::BTreeMap;
use std::fmt;

use crate::report::Lost;

/// Counts of everything in a binary trace: nothing is dropped silently.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct XenReadReport {
    /// Bytes read, uncompressed.
    pub bytes: u64,
    /// Windows: what one pCPU's buffer held when it was read.
    pub windows: u64,
    /// Records returned.
    pub records: u64,
    /// Of these, events of no known number, by number. From the 4,096th different number on they count as 0.
    pub unknown: BTreeMap<u32, u64>,
    /// Of these, events of a known number in a layout that is not Xen 4.17's, by number.
    pub odd: BTreeMap<u32, u64>,
    /// Of these, records without a time stamp of their own.
    pub untimed: u64,
    /// Of these, records whose time stamp is before that of the pCPU's record before.
    pub backwards: Backwards,
    /// Records that the hypervisor says it lost.
    pub lost: Lost,
    /// Bytes that fill ends of buffers.
    pub padding: u64,
    /// What is no record.
    pub damage: Damage,
    /// Bytes that the file's last window lacks: a recording that was cut off.
    pub missing: u64,
    /// pCPUs that have a window, ascending.
    pub cpus: Vec<u16>,
    /// Earliest time stamp.
    pub first_tsc: Option<u64>,
    /// Latest time stamp.
    pub last_tsc: Option<u64>,
}

/// Time stamps that go backwards on one pCPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Backwards {
    /// How many.
    pub count: u64,
    /// How far the worst is behind the latest on its pCPU, in ticks.
    pub worst_ticks: u64,
}

/// Places at which a file is not what it should be.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Damage {
    /// How many.
    pub count: u64,
    /// Bytes passed over to find the next window.
    pub bytes: u64,
    /// Offset in the uncompressed file of the first, and what is wrong there.
    pub first: Option<(u64, String)>,
}

impl fmt::Display for XenReadReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "xentrace: {} records in {} windows of {} pCPUs", self.records, self.windows, self.cpus.len())?;
        for (what, events) in [("other events", &self.unknown), ("events in another layout", &self.odd)] {
            if !events.is_empty() {
                write!(f, "\n  {what}:")?;
                events.iter().try_for_each(|(id, count)| write!(f, " {id:#07x} {count}"))?;
            }
        }
        if self.lost.gaps > 0 {
            write!(f, "\n  lost: {} records in {} gaps", self.lost.events, self.lost.gaps)?;
        }
        if self.untimed > 0 {
            write!(f, "\n  without a time stamp: {}", self.untimed)?;
        }
        if self.backwards.count > 0 {
            write!(f, "\n  out of order: {}, worst by {} ticks", self.backwards.count, self.backwards.worst_ticks)?;
        }
        if let Some((offset, what)) = &self.damage.first {
            write!(f, "\n  damaged places: {}, {} bytes passed over", self.damage.count, self.damage.bytes)?;
            write!(f, ", first at offset {offset}: {what}")?;
        }
        if self.missing > 0 {
            write!(f, "\n  cut off: the last window lacks {} bytes", self.missing)?;
        }
        Ok(())
    }
}
