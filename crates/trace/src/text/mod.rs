//! Trace lines as bytes: the header every line has ([`header`]), the fields of an event ([`payload`]).
//!
//! A task may be named anything: `x ==> y`, `comm=z pid=7`, `n-12 [000]`. What identifies a field is therefore never
//! the first thing that looks like it: fields are taken from the right, where only numbers stand, and a candidate
//! place is taken only if everything to both sides of it fits.

mod explain;
mod header;
mod payload;
mod source;

pub(crate) use header::{Header, Style, header};
pub(crate) use payload::payload;
pub(crate) use source::{Source, is_silent, shown};

/// What is left of a text that is eaten from its right end.
#[derive(Clone, Copy)]
struct Tail<'a>(&'a [u8]);

impl Tail<'_> {
    fn strip(&mut self, suffix: &[u8]) -> Option<()> {
        self.0 = self.0.strip_suffix(suffix)?;
        Some(())
    }

    /// Takes `key` and the number behind it. At most 19 digits, so that nothing overflows.
    fn number(&mut self, key: &[u8]) -> Option<i64> {
        let bytes = self.0;
        let mut at = bytes.len();
        let mut value = 0i64;
        let mut scale = 1i64;
        while at > 0 && bytes[at - 1].is_ascii_digit() {
            if bytes.len() - at == 18 {
                return None;
            }
            value += i64::from(bytes[at - 1] - b'0') * scale;
            scale = scale.wrapping_mul(10);
            at -= 1;
        }
        if at == bytes.len() {
            return None;
        }
        if at > 0 && bytes[at - 1] == b'-' {
            value = -value;
            at -= 1;
        }
        self.0 = &bytes[..at];
        self.strip(key)?;
        Some(value)
    }
}

/// A pid: -1 (unknown to the recorder) becomes `u32::MAX`.
fn pid(number: i64) -> Option<u32> {
    if number == -1 { Some(u32::MAX) } else { i32::try_from(number).ok()?.try_into().ok() }
}

/// A CPU number. Higher ones than any kernel has are damage.
fn cpu(number: i64) -> Option<u32> {
    (0..=65535).contains(&number).then_some(number as u32)
}
