//! Protobuf by hand, for what is written millions of times.
//!
//! A message's length stands before it, so the innermost message is written first, into a buffer that is reused.
//! Field numbers are named in the callers and checked against [`super::proto`] by decoding.

/// Field numbers and wire types: varint 0, fixed 1, length-delimited 2.
const VARINT: u32 = 0;
const FIXED64: u32 = 1;
const BYTES: u32 = 2;

#[inline]
pub(super) fn varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Bytes that [`varint`] takes: one for each begun group of seven bits.
#[inline]
pub(super) fn varint_len(value: u64) -> usize {
    (70 - (value | 1).leading_zeros() as usize) / 7
}

#[inline]
pub(super) fn uint(out: &mut Vec<u8>, field: u32, value: u64) {
    varint(out, u64::from(field << 3 | VARINT));
    varint(out, value);
}

#[inline]
pub(super) fn fixed64(out: &mut Vec<u8>, field: u32, value: u64) {
    varint(out, u64::from(field << 3 | FIXED64));
    out.extend_from_slice(&value.to_le_bytes());
}

/// `int32` and `int64` fields: negative numbers are sign-extended to 64 bits.
#[inline]
pub(super) fn int(out: &mut Vec<u8>, field: u32, value: i64) {
    uint(out, field, value as u64);
}

#[inline]
pub(super) fn bytes(out: &mut Vec<u8>, field: u32, value: &[u8]) {
    bytes_head(out, field, value.len());
    out.extend_from_slice(value);
}

/// The beginning of a field of `len` bytes that the caller appends.
#[inline]
pub(super) fn bytes_head(out: &mut Vec<u8>, field: u32, len: usize) {
    varint(out, u64::from(field << 3 | BYTES));
    varint(out, len as u64);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_match_what_is_written() {
        for bits in 0..64 {
            for value in [1 << bits, (1 << bits) - 1, u64::MAX >> bits] {
                let mut out = Vec::new();
                varint(&mut out, value);
                assert_eq!(out.len(), varint_len(value), "{value}");
                assert_eq!(prost::encoding::decode_varint(&mut &out[..]).unwrap(), value);
            }
        }
    }
}
