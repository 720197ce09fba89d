//! How a group's state is written: integers in as few bytes as they need, one call after another.

use crate::error::{Error, Result};

/// The version byte before every state. Not 0, which the store takes for "nothing".
pub(crate) const VERSION: u8 = 1;

/// Appends an unsigned integer, seven bits a byte.
pub(crate) fn put_u64(state: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        state.push(value as u8 | 0x80);
        value >>= 7;
    }
    state.push(value as u8);
}

/// Appends an integer; small ones of either sign are short.
pub(crate) fn put_i64(state: &mut Vec<u8>, value: i64) {
    put_u64(state, ((value << 1) ^ (value >> 63)) as u64);
}

/// Appends a wide integer; small ones of either sign are short.
pub(crate) fn put_i128(state: &mut Vec<u8>, value: i128) {
    let mut rest = ((value << 1) ^ (value >> 127)) as u128;
    while rest >= 0x80 {
        state.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    state.push(rest as u8);
}

/// Takes what [`put_u64`] appended.
pub(crate) fn take_u64(state: &mut &[u8]) -> Result<u64> {
    Ok(take_u128(state)? as u64)
}

/// Takes what [`put_i64`] appended.
pub(crate) fn take_i64(state: &mut &[u8]) -> Result<i64> {
    let coded = take_u64(state)?;
    Ok((coded >> 1) as i64 ^ -((coded & 1) as i64))
}

/// Takes what [`put_i128`] appended.
pub(crate) fn take_i128(state: &mut &[u8]) -> Result<i128> {
    let coded = take_u128(state)?;
    Ok((coded >> 1) as i128 ^ -((coded & 1) as i128))
}

fn take_u128(state: &mut &[u8]) -> Result<u128> {
    let mut value = 0_u128;
    let mut shift = 0;
    while let Some(byte) = state.split_off_first() {
        value |= u128::from(byte & 0x7f).checked_shl(shift).ok_or_else(damaged)?;
        if byte & 0x80 == 0 {
            return Ok(value);
        }
        shift += 7;
    }
    Err(damaged())
}

/// The error for a state that cannot be read.
pub(crate) fn damaged() -> Error {
    Error::corrupt("the state of an aggregate cannot be read")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_come_back() -> Result<()> {
        let mut state = Vec::new();
        let wide = [0, 1, -1, i128::MAX, i128::MIN, 1 << 90];
        let narrow = [0, -1, 63, 64, i64::MAX, i64::MIN];
        wide.iter().for_each(|value| put_i128(&mut state, *value));
        narrow.iter().for_each(|value| put_i64(&mut state, *value));
        let mut rest = state.as_slice();
        for value in wide {
            assert_eq!(take_i128(&mut rest)?, value);
        }
        for value in narrow {
            assert_eq!(take_i64(&mut rest)?, value);
        }
        assert!(rest.is_empty());
        assert!(take_i64(&mut rest).is_err());
        Ok(())
    }
}
