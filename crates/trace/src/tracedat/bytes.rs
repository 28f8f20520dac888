//! Numbers and strings as the recorded machine wrote them.

use std::io::{self, ErrorKind, Read, Seek, SeekFrom};

/// Byte order of the recorded machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    Little,
    Big,
}

impl Order {
    /// An unsigned number of 1 to 8 bytes.
    #[inline]
    pub(super) fn uint(self, bytes: &[u8]) -> u64 {
        let mut word = [0; 8];
        match self {
            Order::Little => {
                word[..bytes.len()].copy_from_slice(bytes);
                u64::from_le_bytes(word)
            }
            Order::Big => {
                word[8 - bytes.len()..].copy_from_slice(bytes);
                u64::from_be_bytes(word)
            }
        }
    }
}

/// Reads the parts of a header one after the other, from a file or from a section in memory.
pub(super) struct Cursor<R> {
    pub inner: R,
    pub order: Order,
}

impl<R: Read + Seek> Cursor<R> {
    pub(super) fn seek(&mut self, at: u64) -> io::Result<()> {
        self.inner.seek(SeekFrom::Start(at)).map(|_| ())
    }

    pub(super) fn position(&mut self) -> u64 {
        self.inner.stream_position().unwrap_or(0)
    }

    /// Goes past `len` bytes. What lies beyond the end is found by the next read.
    pub(super) fn skip(&mut self, len: u64) -> io::Result<()> {
        let at = self.inner.stream_position()?.checked_add(len).ok_or(ErrorKind::UnexpectedEof)?;
        self.seek(at)
    }

    pub(super) fn bytes(&mut self, len: u64, len_max: u64) -> io::Result<Vec<u8>> {
        if len > len_max {
            return Err(io::Error::new(ErrorKind::InvalidData, format!("a size of {len} bytes")));
        }
        let mut bytes = Vec::new();
        (&mut self.inner).take(len).read_to_end(&mut bytes)?;
        if bytes.len() as u64 == len { Ok(bytes) } else { Err(ErrorKind::UnexpectedEof.into()) }
    }

    fn uint<const N: usize>(&mut self) -> io::Result<u64> {
        let mut bytes = [0; N];
        self.inner.read_exact(&mut bytes)?;
        Ok(self.order.uint(&bytes))
    }

    pub(super) fn u16(&mut self) -> io::Result<u16> {
        self.uint::<2>().map(|n| n as u16)
    }

    pub(super) fn u32(&mut self) -> io::Result<u32> {
        self.uint::<4>().map(|n| n as u32)
    }

    pub(super) fn u64(&mut self) -> io::Result<u64> {
        self.uint::<8>()
    }

    /// A string up to its NUL.
    pub(super) fn string(&mut self) -> io::Result<String> {
        const STRING_MAX: usize = 4096;
        let mut text = Vec::new();
        loop {
            match self.uint::<1>()? as u8 {
                0 => return Ok(String::from_utf8_lossy(&text).into_owned()),
                _ if text.len() == STRING_MAX => {
                    return Err(io::Error::new(ErrorKind::InvalidData, "a string without end"));
                }
                byte => text.push(byte),
            }
        }
    }

    /// A string that must stand here, with its NUL.
    pub(super) fn expect(&mut self, text: &str) -> io::Result<()> {
        let found = self.bytes(text.len() as u64, u64::MAX)?;
        if found == text.as_bytes() {
            return Ok(());
        }
        let found = String::from_utf8_lossy(&found).into_owned();
        Err(io::Error::new(ErrorKind::InvalidData, format!("{found:?} where {text:?} should stand")))
    }
}
