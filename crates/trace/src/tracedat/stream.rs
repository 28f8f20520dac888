//! One CPU's records: its pages, read some at a time.

use std::io::{self, Read, SeekFrom};

use super::bytes::Order;
use super::head::Pages;
use super::page::{Layout, Page, Record};
use crate::pack::Packing;
use crate::spool::ReadSeek;
use crate::tally::Tally;

/// Larger chunks than this are damage: trace-cmd packs some ten pages together.
const CHUNK_BYTES_MAX: u32 = 64 << 20;

/// The record that comes next, and what was lost just before it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Next {
    pub record: Record,
    pub lost: Option<u64>,
}

#[derive(Debug)]
pub(super) struct Stream {
    pages: Pages,
    layout: Layout,
    order: Order,
    packing: Packing,
    /// Bytes to read at once.
    ahead: usize,
    /// Where in the file the rest is, and how much.
    offset: u64,
    left: u64,
    /// Chunks that are still to come; `None` before the first, or if pages are not packed.
    chunks: Option<u32>,
    /// Whole pages.
    buffer: Vec<u8>,
    /// Where in `buffer` the page in use begins and ends.
    from: usize,
    to: usize,
    page: Page,
    /// Events lost before a record that has not come yet.
    lost: Option<u64>,
}

impl Stream {
    /// `ahead`: bytes to read at once, rounded to pages.
    pub(super) fn new(pages: Pages, layout: Layout, order: Order, packing: Packing, ahead: usize) -> Self {
        let ahead = (ahead / layout.page).max(1) * layout.page;
        Stream {
            pages,
            layout,
            order,
            packing,
            ahead,
            offset: pages.offset,
            // trace-cmd's size leaves out the word that counts the chunks.
            left: if pages.packed { pages.size.saturating_add(4) } else { pages.size },
            chunks: None,
            buffer: Vec::new(),
            from: 0,
            to: 0,
            page: Page::default(),
            lost: None,
        }
    }

    pub(super) fn cpu(&self) -> u32 {
        self.pages.cpu
    }

    /// The data of a record, until the next call of [`Self::next`].
    #[inline]
    pub(super) fn data(&self, record: Record) -> &[u8] {
        &self.buffer[self.from + record.from..self.from + record.to]
    }

    /// Where a record stands: in the file, or in what its chunk unpacks to.
    pub(super) fn position(&self, record: Record) -> u64 {
        let in_buffer = (self.from + record.from) as u64;
        if self.pages.packed { in_buffer } else { self.offset - self.buffer.len() as u64 + in_buffer }
    }

    /// The next record of this CPU.
    pub(super) fn next(&mut self, file: &mut dyn ReadSeek, tally: &mut Tally) -> io::Result<Option<Next>> {
        loop {
            match self.page.next(&self.buffer[self.from..self.to], self.order) {
                Ok(Some(record)) => return Ok(Some(Next { record, lost: self.lost.take() })),
                Ok(None) => {}
                Err(_) => {
                    let at = Record { ts: 0, from: self.page.at, to: self.page.at };
                    let cpu = self.pages.cpu;
                    tally.damaged(self.position(at), || {
                        format!("no record of CPU {cpu}; the rest of its page is skipped")
                    });
                    self.lost_here(0);
                }
            }
            if !self.turn(file, tally)? {
                // Lost at the end: no record follows that could tell.
                if let Some(lost) = self.lost.take() {
                    tally.gap(Some(self.pages.cpu), lost);
                }
                return Ok(None);
            }
        }
    }

    fn lost_here(&mut self, events: u64) {
        self.lost = Some(self.lost.unwrap_or(0).saturating_add(events));
    }

    /// Goes to the next page; false at the end.
    fn turn(&mut self, file: &mut dyn ReadSeek, tally: &mut Tally) -> io::Result<bool> {
        self.from = self.to;
        self.page = Page::default();
        if self.from >= self.buffer.len() && !self.fill(file, tally)? {
            return Ok(false);
        }
        self.to = (self.from + self.layout.page).min(self.buffer.len());
        match Page::begin(&self.buffer[self.from..self.to], self.layout, self.order) {
            Ok((page, lost)) => {
                self.page = page;
                lost.into_iter().for_each(|lost| self.lost_here(lost));
            }
            Err(_) => {
                let at = Record { ts: 0, from: 0, to: 0 };
                let cpu = self.pages.cpu;
                tally.damaged(self.position(at), || format!("no page of CPU {cpu}"));
                self.lost_here(0);
            }
        }
        Ok(true)
    }

    /// Reads more pages; false at the end.
    fn fill(&mut self, file: &mut dyn ReadSeek, tally: &mut Tally) -> io::Result<bool> {
        (self.from, self.to) = (0, 0);
        self.buffer.clear();
        if self.pages.packed {
            return self.chunk(file, tally);
        }
        let wanted = self.left.min(self.ahead as u64);
        self.read(file, wanted, tally)?;
        Ok(!self.buffer.is_empty())
    }

    /// Reads `len` bytes of the file into the buffer, or fewer if there are no more.
    fn read(&mut self, file: &mut dyn ReadSeek, len: u64, tally: &mut Tally) -> io::Result<()> {
        self.buffer.clear();
        if len == 0 {
            return Ok(());
        }
        file.seek(SeekFrom::Start(self.offset))?;
        let got = file.take(len).read_to_end(&mut self.buffer)? as u64;
        self.offset = self.offset.saturating_add(got);
        self.left -= got;
        if got < len {
            tally.truncated = true;
            self.left = 0;
        }
        Ok(())
    }

    /// Unpacks a chunk of pages.
    fn chunk(&mut self, file: &mut dyn ReadSeek, tally: &mut Tally) -> io::Result<bool> {
        if self.chunks.is_none() {
            self.chunks = Some(if self.read_all(file, 4, tally)? { self.word(0) } else { 0 });
        }
        loop {
            let Some(rest) = self.chunks.and_then(|chunks| chunks.checked_sub(1)) else {
                self.buffer.clear();
                return Ok(false);
            };
            self.chunks = Some(rest);
            if !self.read_all(file, 8, tally)? {
                return Ok(self.stop());
            }
            let (packed, unpacked) = (self.word(0), self.word(4));
            let at = self.offset;
            if packed > CHUNK_BYTES_MAX || unpacked > CHUNK_BYTES_MAX {
                tally.damaged(at, || format!("a chunk of {packed} bytes, {unpacked} unpacked"));
                return Ok(self.stop());
            }
            if !self.read_all(file, packed.into(), tally)? {
                return Ok(self.stop());
            }
            match self.packing.unpack(&self.buffer, unpacked as usize) {
                Ok(pages) if pages.is_empty() => {}
                Ok(pages) => {
                    self.buffer = pages;
                    return Ok(true);
                }
                Err(e) => {
                    // The next chunk can still be read.
                    tally.damaged(at, || e.to_string());
                    self.lost_here(0);
                }
            }
        }
    }

    /// Reads `len` bytes that must be there.
    fn read_all(&mut self, file: &mut dyn ReadSeek, len: u64, tally: &mut Tally) -> io::Result<bool> {
        if len > self.left {
            tally.truncated = true;
            return Ok(false);
        }
        self.read(file, len, tally)?;
        Ok(self.buffer.len() as u64 == len)
    }

    fn word(&self, at: usize) -> u32 {
        self.order.uint(&self.buffer[at..at + 4]) as u32
    }

    /// Nothing more can be read of this CPU.
    fn stop(&mut self) -> bool {
        self.buffer.clear();
        self.left = 0;
        self.chunks = Some(0);
        false
    }
}
