//! Lines of a stream in a buffer of fixed size.

use std::io::{self, ErrorKind, Read};

/// Buffer size: also the longest line that is looked at. Real trace lines have some 100 bytes.
pub(crate) const CAPACITY: usize = 256 << 10;

/// One line, without its end.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Line<'a> {
    /// A whole line.
    Whole(&'a [u8]),
    /// The first [`CAPACITY`] bytes of a longer one; the rest is skipped.
    TooLong(&'a [u8]),
}

pub(crate) struct Lines<R> {
    source: R,
    buffer: Box<[u8]>,
    start: usize,
    end: usize,
    at_eof: bool,
    /// Within a line whose beginning was returned as too long.
    skipping: bool,
}

impl<R: Read> Lines<R> {
    pub(crate) fn new(source: R) -> Self {
        Self { source, buffer: vec![0; CAPACITY].into(), start: 0, end: 0, at_eof: false, skipping: false }
    }

    fn fill(&mut self) -> io::Result<()> {
        if self.start > 0 {
            self.buffer.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        loop {
            match self.source.read(&mut self.buffer[self.end..]) {
                Ok(0) => self.at_eof = true,
                Ok(n) => self.end += n,
                Err(e) if e.kind() == ErrorKind::Interrupted => continue,
                Err(e) => return Err(e),
            }
            return Ok(());
        }
    }

    pub(crate) fn next(&mut self) -> io::Result<Option<Line<'_>>> {
        let mut searched = 0;
        loop {
            if let Some(at) = memchr::memchr(b'\n', &self.buffer[self.start + searched..self.end]) {
                let from = self.start;
                let to = from + searched + at;
                self.start = to + 1;
                if self.skipping {
                    self.skipping = false;
                    searched = 0;
                    continue;
                }
                return Ok(Some(Line::Whole(&self.buffer[from..to])));
            }
            searched = self.end - self.start;
            if self.at_eof {
                let from = self.start;
                self.start = self.end;
                if searched == 0 || self.skipping {
                    return Ok(None);
                }
                return Ok(Some(Line::Whole(&self.buffer[from..self.end])));
            }
            if searched == CAPACITY {
                self.start = self.end;
                if !self.skipping {
                    self.skipping = true;
                    return Ok(Some(Line::TooLong(&self.buffer[..])));
                }
                searched = 0;
            }
            self.fill()?;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Gives a few bytes at a time.
    struct Dribble<'a>(&'a [u8]);

    impl Read for Dribble<'_> {
        fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
            let n = self.0.len().min(3).min(buf.len());
            buf[..n].copy_from_slice(&self.0[..n]);
            self.0 = &self.0[n..];
            Ok(n)
        }
    }

    fn all(source: impl Read) -> Vec<(bool, usize)> {
        let mut lines = Lines::new(source);
        let mut out = Vec::new();
        while let Some(line) = lines.next().unwrap() {
            out.push(match line {
                Line::Whole(l) => (true, l.len()),
                Line::TooLong(l) => (false, l.len()),
            });
        }
        out
    }

    #[test]
    fn lines_with_and_without_a_last_newline() {
        assert_eq!(all(Dribble(b"ab\n\nabcdefgh")), [(true, 2), (true, 0), (true, 8)]);
        assert_eq!(all(Dribble(b"ab\n")), [(true, 2)]);
        assert_eq!(all(Dribble(b"")), []);
    }

    #[test]
    fn a_line_longer_than_the_buffer_is_cut_and_skipped() {
        for extra in [0, 1, CAPACITY, 3 * CAPACITY + 7] {
            let mut text = vec![b'x'; CAPACITY + extra];
            text.extend(b"\nabc\n");
            assert_eq!(all(&text[..]), [(false, CAPACITY), (true, 3)], "{extra}");
        }
        assert_eq!(all(&vec![b'x'; CAPACITY - 1][..]), [(true, CAPACITY - 1)]);
    }
}
