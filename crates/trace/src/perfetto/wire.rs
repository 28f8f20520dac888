//! Protobuf as bytes: the fields of a message, one after the other.
//!
//! Decoded by hand for the reason for which events are encoded by hand: a message of millions of events would be as many
//! allocations.

/// What a field holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Value<'a> {
    /// A number: varint, or fixed.
    Number(u64),
    /// A string, a message, or packed numbers.
    Bytes(&'a [u8]),
}

impl<'a> Value<'a> {
    pub(super) fn number(self) -> u64 {
        match self {
            Value::Number(n) => n,
            Value::Bytes(_) => 0,
        }
    }

    pub(super) fn bytes(self) -> &'a [u8] {
        match self {
            Value::Number(_) => &[],
            Value::Bytes(b) => b,
        }
    }
}

/// The message is damaged from here on.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Damaged;

/// What is left of a message.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fields<'a>(pub &'a [u8]);

impl<'a> Fields<'a> {
    #[inline]
    pub(super) fn varint(&mut self) -> Result<u64, Damaged> {
        let mut value = 0;
        for (i, byte) in self.0.iter().take(10).enumerate() {
            value |= u64::from(byte & 0x7f) << (7 * i);
            if byte & 0x80 == 0 {
                self.0 = &self.0[i + 1..];
                return Ok(value);
            }
        }
        Err(Damaged)
    }

    fn take(&mut self, len: u64) -> Result<&'a [u8], Damaged> {
        let len = usize::try_from(len).ok().filter(|len| *len <= self.0.len()).ok_or(Damaged)?;
        let (taken, rest) = self.0.split_at(len);
        self.0 = rest;
        Ok(taken)
    }

    /// The next field and its number; nothing at the end.
    #[inline]
    pub(super) fn next(&mut self) -> Result<Option<(u32, Value<'a>)>, Damaged> {
        if self.0.is_empty() {
            return Ok(None);
        }
        let tag = self.varint()?;
        let field = u32::try_from(tag >> 3).ok().filter(|field| *field > 0).ok_or(Damaged)?;
        let fixed = |bytes: &[u8]| bytes.iter().rev().fold(0, |n, byte| n << 8 | u64::from(*byte));
        let value = match tag & 7 {
            0 => Value::Number(self.varint()?),
            1 => Value::Number(fixed(self.take(8)?)),
            2 => {
                let len = self.varint()?;
                Value::Bytes(self.take(len)?)
            }
            5 => Value::Number(fixed(self.take(4)?)),
            _ => return Err(Damaged),
        };
        Ok(Some((field, value)))
    }
}

/// Calls `f` with every field of a message.
#[inline]
pub(super) fn each<'a>(
    message: &'a [u8],
    mut f: impl FnMut(u32, Value<'a>) -> Result<(), Damaged>,
) -> Result<(), Damaged> {
    let mut fields = Fields(message);
    while let Some((field, value)) = fields.next()? {
        f(field, value)?;
    }
    Ok(())
}

/// Appends the numbers of a repeated field, packed or not.
pub(super) fn repeated(value: Value<'_>, out: &mut Vec<u64>) -> Result<(), Damaged> {
    match value {
        Value::Number(n) => out.push(n),
        Value::Bytes(packed) => {
            let mut packed = Fields(packed);
            while !packed.0.is_empty() {
                out.push(packed.varint()?);
            }
        }
    }
    Ok(())
}
