//! The input of simple types: booleans, integers, bytes, uuids, and text that must fit its column.

use super::Type;
use crate::error::{Error, Result};

/// The bytes that a name of the catalog may have.
const NAME_BYTES_MAX: usize = 63;

/// `invalid input syntax for type integer: "x"`
pub(super) fn invalid(kind: &str, text: &str) -> Error {
    Error::semantic("22P02", format!("invalid input syntax for type {kind}: \"{text}\""))
}

fn trimmed(text: &str) -> &str {
    text.trim_matches(|c: char| c.is_ascii_whitespace() || c == '\u{b}')
}

/// Reads a boolean: any unambiguous beginning of true, false, yes, no, on, off, or 1 and 0.
pub(super) fn read_bool(text: &str) -> Result<bool> {
    let word = trimmed(text).to_ascii_lowercase();
    let begins = |name: &str, least: usize| word.len() >= least && name.starts_with(&word);
    if begins("true", 1) || begins("yes", 1) || word == "on" || word == "1" {
        Ok(true)
    } else if begins("false", 1) || begins("no", 1) || begins("off", 2) || word == "0" {
        Ok(false)
    } else {
        Err(invalid("boolean", text))
    }
}

/// Reads an integer of the width of `T`.
pub(super) fn read_integer<T>(text: &str, kind: &str) -> Result<T>
where
    T: std::str::FromStr,
{
    let digits = trimmed(text);
    digits.parse().map_err(|_| {
        let unsigned = digits.strip_prefix(['+', '-']).unwrap_or(digits);
        if !unsigned.is_empty() && unsigned.bytes().all(|byte| byte.is_ascii_digit()) {
            Error::semantic("22003", format!("value \"{text}\" is out of range for type {kind}"))
        } else {
            invalid(kind, text)
        }
    })
}

/// Reads an object identifier. A negative number stands for the unsigned one of the same bits, as in C.
pub(super) fn read_oid(text: &str, kind: &str) -> Result<u32> {
    match trimmed(text).parse::<i32>() {
        Ok(negative @ ..0) => Ok(negative as u32),
        _ => read_integer(text, kind),
    }
}

/// Reads `bytea`: hex after `\x`, else the escape form.
pub(super) fn read_bytea(text: &str) -> Result<Vec<u8>> {
    if let Some(digits) = text.strip_prefix("\\x") {
        return read_hex(digits);
    }
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        rest = after;
        if *first != b'\\' {
            bytes.push(*first);
            continue;
        }
        match rest {
            [b'\\', after @ ..] => {
                bytes.push(b'\\');
                rest = after;
            }
            [a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', after @ ..] => {
                bytes.push((a - b'0') << 6 | (b - b'0') << 3 | (c - b'0'));
                rest = after;
            }
            _ => return Err(Error::semantic("22P02", "invalid input syntax for type bytea")),
        }
    }
    Ok(bytes)
}

fn read_hex(digits: &str) -> Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(digits.len() / 2);
    let mut high: Option<u32> = None;
    for character in digits.chars() {
        let digit = match (character.to_digit(16), high) {
            (Some(digit), _) => digit,
            (None, None) if character.is_ascii_whitespace() => continue,
            _ => {
                return Err(Error::semantic(
                    "22023",
                    format!("invalid hexadecimal digit: \"{character}\""),
                ));
            }
        };
        match high.take() {
            None => high = Some(digit),
            Some(high) => bytes.push((high << 4 | digit) as u8),
        }
    }
    if high.is_some() {
        return Err(Error::semantic(
            "22023",
            "invalid hexadecimal data: odd number of digits",
        ));
    }
    Ok(bytes)
}

/// Reads a uuid: 32 hexadecimal digits, hyphens after any group of four, braces around it all.
pub(super) fn read_uuid(text: &str) -> Result<u128> {
    let inner = match text.strip_prefix('{') {
        Some(rest) => rest.strip_suffix('}').ok_or_else(|| invalid("uuid", text))?,
        None => text,
    };
    let mut value = 0_u128;
    let mut digits = 0;
    let mut after_hyphen = true;
    for character in inner.chars() {
        if character == '-' {
            if after_hyphen || digits % 4 != 0 || digits == 32 {
                return Err(invalid("uuid", text));
            }
            after_hyphen = true;
            continue;
        }
        after_hyphen = false;
        let digit = character
            .to_digit(16)
            .filter(|_| digits < 32)
            .ok_or_else(|| invalid("uuid", text))?;
        value = value << 4 | u128::from(digit);
        digits += 1;
    }
    if digits != 32 {
        return Err(invalid("uuid", text));
    }
    Ok(value)
}

/// The text of a uuid: lower case, in its five groups.
pub fn uuid_text(value: u128) -> String {
    let digits = format!("{value:032x}");
    format!(
        "{}-{}-{}-{}-{}",
        &digits[..8],
        &digits[8..12],
        &digits[12..16],
        &digits[16..20],
        &digits[20..]
    )
}

/// What is kept of a text in a column of a character type: cut where only blanks are lost, `22001` where more would
/// be.
pub(super) fn fitted<'a>(kind: &Type, text: &'a str) -> Result<&'a str> {
    if text.as_bytes().contains(&0) {
        return Err(not_utf8("0x00"));
    }
    match kind {
        Type::Varchar(Some(length)) => match text.char_indices().nth(*length as usize) {
            Some((end, _)) if text[end..].bytes().all(|byte| byte == b' ') => Ok(&text[..end]),
            Some(_) => Err(too_long(kind)),
            None => Ok(text),
        },
        Type::Char(length) => {
            let text = text.trim_end_matches(' ');
            match length {
                Some(length) if text.chars().nth(*length as usize).is_some() => Err(too_long(kind)),
                _ => Ok(text),
            }
        }
        Type::Name if text.len() > NAME_BYTES_MAX => {
            let end = (0..=NAME_BYTES_MAX)
                .rev()
                .find(|end| text.is_char_boundary(*end))
                .unwrap_or(0);
            Ok(&text[..end])
        }
        Type::InternalChar => {
            let end = text.char_indices().nth(1).map_or(text.len(), |(end, _)| end);
            Ok(&text[..end])
        }
        _ => Ok(text),
    }
}

fn too_long(kind: &Type) -> Error {
    Error::semantic("22001", format!("value too long for type {kind}"))
}

/// Bytes as text; `22021` where they are not UTF-8.
pub fn utf8(bytes: &[u8]) -> Result<&str> {
    std::str::from_utf8(bytes).map_err(|error| {
        let from = error.valid_up_to();
        let to = (from + error.error_len().unwrap_or(4)).min(bytes.len());
        let shown: Vec<String> = bytes[from..to].iter().map(|b| format!("0x{b:02x}")).collect();
        not_utf8(&shown.join(" "))
    })
}

fn not_utf8(bytes: &str) -> Error {
    Error::semantic("22021", format!("invalid byte sequence for encoding \"UTF8\": {bytes}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_tell_what_is_wrong_with_them() {
        assert_eq!(read_integer::<i32>(" +7 ", "integer").unwrap(), 7);
        let error = read_integer::<i32>("99999999999", "integer").unwrap_err();
        assert_eq!(
            (error.code(), error.message()),
            ("22003", "value \"99999999999\" is out of range for type integer")
        );
        let error = read_integer::<i32>("x", "integer").unwrap_err();
        assert_eq!(
            (error.code(), error.message()),
            ("22P02", "invalid input syntax for type integer: \"x\"")
        );
        assert_eq!(read_integer::<i32>("", "integer").unwrap_err().code(), "22P02");
        assert_eq!(read_integer::<i32>("1.5", "integer").unwrap_err().code(), "22P02");
    }

    #[test]
    fn text_must_fit_unless_only_blanks_are_lost() {
        let three = Type::Varchar(Some(3));
        assert_eq!(fitted(&three, "äöü").unwrap(), "äöü");
        assert_eq!(fitted(&three, "abc   ").unwrap(), "abc");
        let error = fitted(&three, "abcd").unwrap_err();
        assert_eq!(
            (error.code(), error.message()),
            ("22001", "value too long for type character varying(3)")
        );
        let error = fitted(&Type::Char(Some(3)), "abcd").unwrap_err();
        assert_eq!(error.message(), "value too long for type character(3)");
        assert_eq!(fitted(&Type::Text, "a\0b").unwrap_err().code(), "22021");
        assert_eq!(fitted(&Type::Name, &"ä".repeat(40)).unwrap().len(), 62);
    }

    #[test]
    fn wrong_bytes_and_uuids_are_refused() {
        assert_eq!(read_bytea("\\x0").unwrap_err().code(), "22023");
        assert_eq!(read_bytea("\\xzz").unwrap_err().code(), "22023");
        assert_eq!(read_bytea("\\9").unwrap_err().code(), "22P02");
        for text in [
            "",
            "a0eebc99",
            "a-0eebc999c0b4ef8bb6d6bb9bd380a11",
            "{a0eebc999c0b4ef8bb6d6bb9bd380a11",
        ] {
            assert_eq!(read_uuid(text).unwrap_err().code(), "22P02", "{text}");
        }
        assert_eq!(read_bool("o").unwrap_err().code(), "22P02");
    }
}
