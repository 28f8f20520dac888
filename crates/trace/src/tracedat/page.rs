//! A page of the kernel's ring buffer: a header, then records behind each other.
//!
//! ```text
//! page:    time stamp (8 bytes) | commit (a long): bytes of records, bits 31 and 30: events were lost before this page,
//!          and how many stands behind the records
//! record:  type_len (5 bits) | time_delta (27 bits), then by type_len
//!          1..=28   that many words of data
//!          0        a word: 4 + bytes of data; then the data
//!          29       padding: to the end of the page (no time_delta), or a discarded record as type 0
//!          30       a word: more bits of time_delta
//!          31       a word: with time_delta, the time itself (59 bits)
//! ```
//! In the byte order of the recorded machine, bit fields too.

use super::bytes::Order;
use super::format::fields;

const LOST: u64 = 1 << 31;
const LOST_STORED: u64 = 1 << 30;
/// What of the commit word is a size.
const SIZE: u64 = (1 << 27) - 1;
/// Bits of time that a time stamp record holds; the page's has those above.
const STAMP_BITS: u32 = 59;

/// Where things are in a page, from the file's `header_page`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    commit: usize,
    long: usize,
    data: usize,
    /// Size of a whole page.
    pub page: usize,
}

impl Layout {
    /// Pages of sub-buffers have been up to 2^9 machine pages large.
    const PAGE_MAX: usize = 64 << 20;

    /// `None`: not a description of a page.
    pub(super) fn parse(text: &[u8]) -> Option<Self> {
        let fields = fields(&String::from_utf8_lossy(text));
        let field = |name| fields.iter().find(|(n, _)| n == name).map(|(_, f)| *f);
        let (stamp, commit, data) = (field("timestamp")?, field("commit")?, field("data")?);
        let page = data.offset.checked_add(data.size)?;
        let sound = (stamp.offset, stamp.size) == (0, 8)
            && matches!(commit.size, 4 | 8)
            && commit.offset >= 8
            && commit.offset.checked_add(commit.size)? <= data.offset
            && data.offset < page
            && page <= Self::PAGE_MAX;
        sound.then_some(Layout { commit: commit.offset, long: commit.size, data: data.offset, page })
    }

    /// The same with pages of another size.
    pub(super) fn with_page(self, page: usize) -> Option<Self> {
        (page > self.data && page <= Self::PAGE_MAX).then_some(Layout { page, ..self })
    }
}

/// A place in a page.
#[derive(Debug, Default)]
pub(super) struct Page {
    /// Where the next record begins, in the page.
    pub at: usize,
    end: usize,
    ts: u64,
}

/// A record of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Record {
    pub ts: u64,
    pub from: usize,
    pub to: usize,
}

/// The rest of the page cannot be read.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Damaged;

impl Page {
    /// Begins a page. Also tells how many events were lost before it, 0 if nobody knows.
    pub(super) fn begin(bytes: &[u8], layout: Layout, order: Order) -> Result<(Self, Option<u64>), Damaged> {
        let ts = order.uint(bytes.get(..8).ok_or(Damaged)?);
        let commit = order.uint(bytes.get(layout.commit..layout.commit + layout.long).ok_or(Damaged)?);
        let end = layout.data + (commit & SIZE) as usize;
        if end > bytes.len() {
            return Err(Damaged);
        }
        let lost = (commit & LOST != 0).then(|| {
            let stored = if commit & LOST_STORED != 0 { bytes.get(end..end + layout.long) } else { None };
            stored.map_or(0, |count| order.uint(count))
        });
        Ok((Page { at: layout.data, end, ts }, lost))
    }

    /// The next record of an event.
    #[inline]
    pub(super) fn next(&mut self, bytes: &[u8], order: Order) -> Result<Option<Record>, Damaged> {
        let word = |at: usize, end: usize| -> Result<u64, Damaged> {
            if at + 4 > end { Err(Damaged) } else { Ok(order.uint(&bytes[at..at + 4])) }
        };
        while self.at < self.end {
            let head = word(self.at, self.end)?;
            let (type_len, delta) = match order {
                Order::Little => (head & 31, head >> 5),
                Order::Big => (head >> 27, head & ((1 << 27) - 1)),
            };
            let body = self.at + 4;
            match type_len {
                29 if delta == 0 => {
                    self.at = self.end;
                    return Ok(None);
                }
                0 | 29 => {
                    let len = word(body, self.end)? as usize;
                    // Records begin at words.
                    let next = body + len.checked_next_multiple_of(4).ok_or(Damaged)?;
                    if len < 4 || next > self.end {
                        return Err(Damaged);
                    }
                    self.ts = self.ts.wrapping_add(delta);
                    self.at = next;
                    if type_len == 0 {
                        return Ok(Some(Record { ts: self.ts, from: body + 4, to: body + len }));
                    }
                }
                30 => {
                    let more = word(body, self.end)?;
                    self.ts = self.ts.wrapping_add(more << 27 | delta);
                    self.at = body + 4;
                }
                31 => {
                    let stamp = (word(body, self.end)? << 27 | delta) & ((1 << STAMP_BITS) - 1);
                    let above = self.ts >> STAMP_BITS << STAMP_BITS;
                    self.ts = above | stamp;
                    self.at = body + 4;
                }
                words => {
                    let to = body + 4 * words as usize;
                    if to > self.end {
                        return Err(Damaged);
                    }
                    self.ts = self.ts.wrapping_add(delta);
                    self.at = to;
                    return Ok(Some(Record { ts: self.ts, from: body, to }));
                }
            }
        }
        Ok(None)
    }
}
