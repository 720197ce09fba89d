//! Bytes and numbers as text, and text as bytes.

use super::strings;
use crate::error::{Error, Result};
use crate::sql::function::definition::Call;
use arrow::array::{ArrayRef, AsArray, BinaryArray, StringArray, StringBuilder};
use arrow::datatypes::{Int32Type, Int64Type};
use std::sync::Arc;

pub(super) fn to_hex4(call: &Call<'_>) -> Result<ArrayRef> {
    let result: StringArray = call.arguments[0]
        .as_primitive::<Int32Type>()
        .iter()
        .map(|value| value.map(|value| format!("{value:x}")))
        .collect();
    Ok(Arc::new(result))
}

pub(super) fn to_hex8(call: &Call<'_>) -> Result<ArrayRef> {
    let result: StringArray = call.arguments[0]
        .as_primitive::<Int64Type>()
        .iter()
        .map(|value| value.map(|value| format!("{value:x}")))
        .collect();
    Ok(Arc::new(result))
}

const BASE64: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

fn encode_one(bytes: &[u8], form: &str) -> Result<String> {
    match form.to_lowercase().as_str() {
        "hex" => Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect()),
        "base64" => {
            let mut output = String::new();
            for (index, chunk) in bytes.chunks(3).enumerate() {
                if index > 0 && index % 19 == 0 {
                    output.push('\n');
                }
                let word = (u32::from(chunk[0]) << 16)
                    | (u32::from(chunk.get(1).copied().unwrap_or(0)) << 8)
                    | u32::from(chunk.get(2).copied().unwrap_or(0));
                for position in 0..4 {
                    if position <= chunk.len() {
                        output.push(char::from(BASE64[(word >> (18 - 6 * position)) as usize & 63]));
                    } else {
                        output.push('=');
                    }
                }
            }
            Ok(output)
        }
        "escape" => Ok(bytes
            .iter()
            .map(|byte| match byte {
                0 | 0x80.. => format!("\\{byte:03o}"),
                b'\\' => "\\\\".to_owned(),
                other => char::from(*other).to_string(),
            })
            .collect()),
        _ => Err(Error::semantic("22023", format!("unrecognized encoding: \"{form}\""))),
    }
}

fn decode_one(text: &str, form: &str) -> Result<Vec<u8>> {
    let invalid = |what: &str| Error::semantic("22023", format!("invalid {what}"));
    match form.to_lowercase().as_str() {
        "hex" => {
            let digits: Vec<u8> = text.bytes().filter(|byte| !byte.is_ascii_whitespace()).collect();
            if !digits.len().is_multiple_of(2) {
                return Err(invalid("hexadecimal data: odd number of digits"));
            }
            digits
                .chunks(2)
                .map(|pair| {
                    std::str::from_utf8(pair)
                        .ok()
                        .and_then(|pair| u8::from_str_radix(pair, 16).ok())
                        .ok_or_else(|| invalid("hexadecimal digit"))
                })
                .collect()
        }
        "base64" => {
            let mut output = Vec::new();
            let (mut word, mut bits) = (0u32, 0);
            for byte in text.bytes().filter(|byte| !byte.is_ascii_whitespace() && *byte != b'=') {
                let value = BASE64
                    .iter()
                    .position(|known| *known == byte)
                    .ok_or_else(|| invalid("symbol found while decoding base64 sequence"))?;
                word = (word << 6) | value as u32;
                bits += 6;
                if bits >= 8 {
                    bits -= 8;
                    output.push((word >> bits) as u8);
                }
            }
            Ok(output)
        }
        "escape" => {
            let mut output = Vec::new();
            let bytes = text.as_bytes();
            let mut at = 0;
            while at < bytes.len() {
                if bytes[at] != b'\\' {
                    output.push(bytes[at]);
                    at += 1;
                } else if bytes.get(at + 1) == Some(&b'\\') {
                    output.push(b'\\');
                    at += 2;
                } else {
                    let octal = text
                        .get(at + 1..at + 4)
                        .and_then(|digits| u8::from_str_radix(digits, 8).ok());
                    output.push(octal.ok_or_else(|| Error::semantic("22P02", "invalid input syntax for type bytea"))?);
                    at += 4;
                }
            }
            Ok(output)
        }
        _ => Err(Error::semantic("22023", format!("unrecognized encoding: \"{form}\""))),
    }
}

pub(super) fn encode(call: &Call<'_>) -> Result<ArrayRef> {
    let mut builder = StringBuilder::new();
    for (bytes, form) in call.arguments[0]
        .as_binary::<i32>()
        .iter()
        .zip(strings(&call.arguments[1]))
    {
        match (bytes, form) {
            (Some(bytes), Some(form)) => builder.append_value(encode_one(bytes, form)?),
            _ => builder.append_null(),
        }
    }
    Ok(Arc::new(builder.finish()))
}

pub(super) fn decode(call: &Call<'_>) -> Result<ArrayRef> {
    let mut values = Vec::with_capacity(call.rows);
    for (text, form) in strings(&call.arguments[0]).iter().zip(strings(&call.arguments[1])) {
        values.push(match (text, form) {
            (Some(text), Some(form)) => Some(decode_one(text, form)?),
            _ => None,
        });
    }
    let result: BinaryArray = values.into_iter().collect();
    Ok(Arc::new(result))
}

pub(super) fn convert_from(call: &Call<'_>) -> Result<ArrayRef> {
    let mut builder = StringBuilder::new();
    for bytes in call.arguments[0].as_binary::<i32>() {
        match bytes {
            Some(bytes) => builder.append_value(
                std::str::from_utf8(bytes)
                    .map_err(|_| Error::semantic("22021", "invalid byte sequence for encoding \"UTF8\""))?,
            ),
            None => builder.append_null(),
        }
    }
    Ok(Arc::new(builder.finish()))
}

pub(super) fn convert_to(call: &Call<'_>) -> Result<ArrayRef> {
    let result: BinaryArray = strings(&call.arguments[0])
        .iter()
        .map(|text| text.map(str::as_bytes))
        .collect();
    Ok(Arc::new(result))
}

/// The MD5 of bytes, in hexadecimal (RFC 1321).
pub(super) fn md5(bytes: &[u8]) -> String {
    const SHIFTS: [[u32; 4]; 4] = [[7, 12, 17, 22], [5, 9, 14, 20], [4, 11, 16, 23], [6, 10, 15, 21]];
    let mut state: [u32; 4] = [0x6745_2301, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476];
    let mut padded = bytes.to_vec();
    padded.push(0x80);
    while padded.len() % 64 != 56 {
        padded.push(0);
    }
    padded.extend_from_slice(&(bytes.len() as u64).wrapping_mul(8).to_le_bytes());
    for block in padded.chunks_exact(64) {
        let word = |index: usize| {
            let at = index * 4;
            u32::from_le_bytes([block[at], block[at + 1], block[at + 2], block[at + 3]])
        };
        let [mut a, mut b, mut c, mut d] = state;
        for step in 0..64usize {
            let (mixed, index) = match step / 16 {
                0 => ((b & c) | (!b & d), step),
                1 => ((d & b) | (!d & c), (5 * step + 1) % 16),
                2 => (b ^ c ^ d, (3 * step + 5) % 16),
                _ => (c ^ (b | !d), (7 * step) % 16),
            };
            let constant = (((step + 1) as f64).sin().abs() * 4_294_967_296.0) as u32;
            let sum = a.wrapping_add(mixed).wrapping_add(constant).wrapping_add(word(index));
            (a, d, c) = (d, c, b);
            b = b.wrapping_add(sum.rotate_left(SHIFTS[step / 16][step % 4]));
        }
        for (slot, value) in state.iter_mut().zip([a, b, c, d]) {
            *slot = slot.wrapping_add(value);
        }
    }
    state
        .iter()
        .flat_map(|word| word.to_le_bytes())
        .map(|byte| format!("{byte:02x}"))
        .collect()
}
