//! JSON as PostgreSQL has it: `json` keeps its text, `jsonb` its normal form.
//!
//! The normal form orders an object's keys by length and then bytes, keeps the last of equal keys, puts a blank after
//! `:` and `,`, writes numbers without exponent, and strings with the fewest escapes.

use crate::error::{Error, Result};

/// How deep values may be nested.
const DEPTH_MAX: usize = 512;

/// Checks that a text is JSON: `22P02` otherwise.
pub fn check(text: &str) -> Result<()> {
    parse(text).map(|_| ())
}

/// The normal form of a JSON text: what `jsonb` shows.
pub fn normalize(text: &str) -> Result<String> {
    let value = parse(text)?;
    let mut out = String::with_capacity(text.len() + 8);
    value.write(&mut out)?;
    Ok(out)
}

/// A JSON value that borrows its scalars' text.
#[derive(Debug, Clone, PartialEq)]
pub enum Value<'a> {
    /// `null`
    Null,
    /// `true` or `false`
    Bool(bool),
    /// A number as it was written.
    Number(&'a str),
    /// A string as it was written between its quotes, escapes included.
    String(&'a str),
    /// An array.
    Array(Vec<Value<'a>>),
    /// An object: its keys, as they were written, and values in their order.
    Object(Vec<(&'a str, Value<'a>)>),
}

/// Reads a JSON text.
pub fn parse(text: &str) -> Result<Value<'_>> {
    let mut parser = Parser { text, at: 0 };
    let value = parser.value(0)?;
    parser.skip_blanks();
    if parser.at < text.len() {
        return Err(parser.unexpected("end of input"));
    }
    Ok(value)
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Parser<'a> {
    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn skip_blanks(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    fn value(&mut self, depth: usize) -> Result<Value<'a>> {
        if depth > DEPTH_MAX {
            return Err(Error::limit("54001", "JSON is nested too deeply")
                .with_detail(format!("The limit is {DEPTH_MAX} levels.")));
        }
        self.skip_blanks();
        match self.peek() {
            Some(b'{') => self.object(depth),
            Some(b'[') => self.array(depth),
            Some(b'"') => Ok(Value::String(self.string()?)),
            Some(b'-' | b'0'..=b'9') => self.number(),
            Some(b'a'..=b'z' | b'A'..=b'Z') => {
                let word = self.word();
                let value = match word {
                    "null" => Value::Null,
                    "true" => Value::Bool(true),
                    "false" => Value::Bool(false),
                    _ => return Err(self.invalid_token(word)),
                };
                self.at += word.len();
                Ok(value)
            }
            _ => Err(self.unexpected("JSON value")),
        }
    }

    fn object(&mut self, depth: usize) -> Result<Value<'a>> {
        self.at += 1;
        let mut entries = Vec::new();
        self.skip_blanks();
        if self.peek() == Some(b'}') {
            self.at += 1;
            return Ok(Value::Object(entries));
        }
        loop {
            self.skip_blanks();
            if self.peek() != Some(b'"') {
                let expected = if entries.is_empty() {
                    "string or \"}\""
                } else {
                    "string"
                };
                return Err(self.unexpected(expected));
            }
            let key = self.string()?;
            self.skip_blanks();
            if self.peek() != Some(b':') {
                return Err(self.unexpected("\":\""));
            }
            self.at += 1;
            entries.push((key, self.value(depth + 1)?));
            self.skip_blanks();
            match self.peek() {
                Some(b',') => self.at += 1,
                Some(b'}') => {
                    self.at += 1;
                    return Ok(Value::Object(entries));
                }
                _ => return Err(self.unexpected("\",\" or \"}\"")),
            }
        }
    }

    fn array(&mut self, depth: usize) -> Result<Value<'a>> {
        self.at += 1;
        let mut elements = Vec::new();
        self.skip_blanks();
        if self.peek() == Some(b']') {
            self.at += 1;
            return Ok(Value::Array(elements));
        }
        loop {
            elements.push(self.value(depth + 1)?);
            self.skip_blanks();
            match self.peek() {
                Some(b',') => self.at += 1,
                Some(b']') => {
                    self.at += 1;
                    return Ok(Value::Array(elements));
                }
                _ => return Err(self.unexpected("\",\" or \"]\"")),
            }
        }
    }

    /// The text between the quotes of the string that starts here.
    fn string(&mut self) -> Result<&'a str> {
        let start = self.at + 1;
        let bytes = self.text.as_bytes();
        let mut at = start;
        loop {
            match bytes.get(at) {
                None => {
                    return Err(self.invalid_token(&self.text[self.at..]));
                }
                Some(b'"') => break,
                Some(b'\\') => at = self.escape(at)?,
                Some(0..=0x1f) => {
                    let detail = format!("Character with value 0x{:02x} must be escaped.", bytes[at]);
                    return Err(self.syntax(detail));
                }
                Some(_) => at += 1,
            }
        }
        self.at = at + 1;
        Ok(&self.text[start..at])
    }

    /// Checks the escape at `at`; where it ends.
    fn escape(&self, at: usize) -> Result<usize> {
        let bytes = self.text.as_bytes();
        match bytes.get(at + 1) {
            Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => Ok(at + 2),
            Some(b'u') => {
                let digits = bytes.get(at + 2..at + 6);
                if digits.is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit)) {
                    Ok(at + 6)
                } else {
                    Err(self.syntax("\"\\u\" must be followed by four hexadecimal digits."))
                }
            }
            _ => {
                let escape: String = self.text[at..].chars().take(2).collect();
                Err(self.syntax(format!("Escape sequence \"{escape}\" is invalid.")))
            }
        }
    }

    fn number(&mut self) -> Result<Value<'a>> {
        let bytes = self.text.as_bytes();
        let start = self.at;
        let digits = |from: usize| bytes[from..].iter().take_while(|byte| byte.is_ascii_digit()).count();
        let mut at = start + usize::from(bytes[start] == b'-');
        let whole = digits(at);
        let mut valid = whole == 1 || (whole > 1 && bytes[at] != b'0');
        at += whole;
        if bytes.get(at) == Some(&b'.') {
            let fraction = digits(at + 1);
            valid &= fraction > 0;
            at += 1 + fraction;
        }
        if matches!(bytes.get(at), Some(b'e' | b'E')) {
            at += 1 + usize::from(matches!(bytes.get(at + 1), Some(b'+' | b'-')));
            let exponent = bytes.get(at..).map_or(0, |_| digits(at));
            valid &= exponent > 0;
            at += exponent;
        }
        let trails = bytes
            .get(at)
            .is_some_and(|byte| byte.is_ascii_alphanumeric() || *byte == b'_' || *byte >= 0x80);
        if !valid || trails {
            let word = self.word();
            return Err(self.invalid_token(word));
        }
        self.at = at;
        Ok(Value::Number(&self.text[start..at]))
    }

    /// The run of characters here that PostgreSQL names in its message.
    fn word(&self) -> &'a str {
        let rest = &self.text[self.at..];
        let end = rest
            .find(|c: char| !(c.is_alphanumeric() || matches!(c, '_' | '.' | '+' | '-')))
            .unwrap_or(rest.len());
        &rest[..end]
    }

    fn syntax(&self, detail: impl Into<String>) -> Error {
        let line = self.text[..self.at].matches('\n').count() + 1;
        let shown: String = self.text[..self.at].lines().next_back().unwrap_or("").to_owned();
        Error::semantic("22P02", "invalid input syntax for type json")
            .with_detail(detail)
            .with_context(format!("JSON data, line {line}: {shown}"))
    }

    fn invalid_token(&self, token: &str) -> Error {
        self.syntax(format!("Token \"{token}\" is invalid."))
    }

    fn unexpected(&self, expected: &str) -> Error {
        let rest = &self.text[self.at..];
        let Some(first) = rest.chars().next() else {
            return self.syntax("The input string ended unexpectedly.");
        };
        let token = match first {
            '"' => {
                let mut ahead = Parser {
                    text: self.text,
                    at: self.at,
                };
                let length = ahead.string().map_or(rest.len(), |_| ahead.at - self.at);
                &rest[..length]
            }
            c if c.is_alphanumeric() || c == '-' => self.word(),
            c => &rest[..c.len_utf8()],
        };
        if !matches!(first, '{' | '}' | '[' | ']' | ',' | ':' | '"' | '-')
            && !first.is_ascii_digit()
            && !["true", "false", "null"].contains(&token)
        {
            return self.invalid_token(token);
        }
        self.syntax(match expected {
            "end of input" => format!("Expected end of input, but found \"{token}\"."),
            _ => format!("Expected {expected}, but found \"{token}\"."),
        })
    }
}

impl Value<'_> {
    /// Writes the normal form.
    fn write(&self, out: &mut String) -> Result<()> {
        match self {
            Self::Null => out.push_str("null"),
            Self::Bool(true) => out.push_str("true"),
            Self::Bool(false) => out.push_str("false"),
            Self::Number(text) => write_number(text, out)?,
            Self::String(raw) => write_string(&unescape(raw)?, out),
            Self::Array(elements) => {
                out.push('[');
                for (index, element) in elements.iter().enumerate() {
                    if index > 0 {
                        out.push_str(", ");
                    }
                    element.write(out)?;
                }
                out.push(']');
            }
            Self::Object(entries) => {
                let mut keyed = Vec::with_capacity(entries.len());
                for (index, (key, value)) in entries.iter().enumerate() {
                    keyed.push((unescape(key)?, index, value));
                }
                keyed.sort_by(|(a, i, _), (b, j, _)| (a.len(), a, i).cmp(&(b.len(), b, j)));
                out.push('{');
                let mut written = false;
                for (at, (key, _, value)) in keyed.iter().enumerate() {
                    // Of equal keys the last counts.
                    if keyed.get(at + 1).is_some_and(|(next, _, _)| next == key) {
                        continue;
                    }
                    if written {
                        out.push_str(", ");
                    }
                    written = true;
                    write_string(key, out);
                    out.push_str(": ");
                    value.write(out)?;
                }
                out.push('}');
            }
        }
        Ok(())
    }
}

/// The characters of a string that was written with escapes.
pub fn unescape(raw: &str) -> Result<String> {
    let mut out = String::with_capacity(raw.len());
    let mut rest = raw;
    while let Some(at) = rest.find('\\') {
        out.push_str(&rest[..at]);
        let escape = rest.as_bytes().get(at + 1).copied().unwrap_or(b'\\');
        let mut length = 2;
        match escape {
            b'b' => out.push('\u{8}'),
            b'f' => out.push('\u{c}'),
            b'n' => out.push('\n'),
            b'r' => out.push('\r'),
            b't' => out.push('\t'),
            b'u' => {
                let (character, consumed) = unicode_escape(&rest[at..])?;
                out.push(character);
                length = consumed;
            }
            other => out.push(char::from(other)),
        }
        rest = &rest[at + length..];
    }
    out.push_str(rest);
    Ok(out)
}

/// The character of `\uXXXX`, or of a surrogate pair of them, and the bytes they take.
fn unicode_escape(text: &str) -> Result<(char, usize)> {
    let unit = |from: usize| -> Option<u32> {
        let digits = text.get(from..from + 6)?.strip_prefix("\\u")?;
        u32::from_str_radix(digits, 16).ok()
    };
    let surrogate = |detail: &str| Error::semantic("22P02", "invalid input syntax for type json").with_detail(detail);
    let high = unit(0).unwrap_or(0);
    if high == 0 {
        return Err(Error::semantic("22P05", "unsupported Unicode escape sequence")
            .with_detail("\\u0000 cannot be converted to text."));
    }
    if (0xdc00..0xe000).contains(&high) {
        return Err(surrogate("Unicode low surrogate must follow a high surrogate."));
    }
    if !(0xd800..0xdc00).contains(&high) {
        return Ok((char::from_u32(high).unwrap_or('\u{fffd}'), 6));
    }
    match unit(6) {
        Some(low) if (0xdc00..0xe000).contains(&low) => {
            let code = 0x10000 + ((high - 0xd800) << 10) + (low - 0xdc00);
            Ok((char::from_u32(code).unwrap_or('\u{fffd}'), 12))
        }
        _ => Err(surrogate("Unicode low surrogate must follow a high surrogate.")),
    }
}

/// Writes a string with quotes and the fewest escapes.
pub fn write_string(text: &str, out: &mut String) {
    out.push('"');
    for character in text.chars() {
        match character {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            c if (c as u32) < 0x20 => out.push_str(&format!("\\u{:04x}", c as u32)),
            c => out.push(c),
        }
    }
    out.push('"');
}

/// Writes a number as PostgreSQL's numeric shows it: without exponent, with the digits after the point it had.
fn write_number(text: &str, out: &mut String) -> Result<()> {
    let (mantissa, exponent) = match text.find(['e', 'E']) {
        Some(at) => {
            let exponent: i64 = text[at + 1..].parse().unwrap_or(i64::MAX);
            (&text[..at], exponent)
        }
        None => (text, 0),
    };
    let (negative, unsigned) = match mantissa.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, mantissa),
    };
    let (whole, fraction) = unsigned.split_once('.').unwrap_or((unsigned, ""));
    let digits = format!("{whole}{fraction}");
    let zero = digits.bytes().all(|byte| byte == b'0');
    // PostgreSQL's numeric ends at 131072 digits before the point and 16383 after it.
    if !zero && exponent.saturating_add(whole.len() as i64) > 131_072 {
        return Err(Error::semantic("22003", "value overflows numeric format"));
    }
    let point = whole.len() as i64 + exponent.clamp(-20_000, 131_072);
    let scale = (fraction.len() as i64 - exponent.clamp(-20_000, 131_072)).clamp(0, 16_383);
    let digit = |index: i64| -> char {
        usize::try_from(index)
            .ok()
            .and_then(|index| digits.as_bytes().get(index))
            .map_or('0', |byte| char::from(*byte))
    };
    let mut shown: String = (0..point.max(0)).map(digit).collect();
    let leading = shown.len() - shown.trim_start_matches('0').len();
    shown.drain(..leading);
    if shown.is_empty() || zero {
        shown.clear();
        shown.push('0');
    }
    if negative && !zero {
        out.push('-');
    }
    out.push_str(&shown);
    if scale > 0 {
        out.push('.');
        out.extend((point..point + scale).map(digit));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_normal_form_is_that_of_jsonb() {
        for (text, normal) in [
            ("{\"b\":1,\"a\":2,\"aa\":3,\"a\":4}", r#"{"a": 4, "b": 1, "aa": 3}"#),
            ("[1, 2,3 , [ ] , { }]", "[1, 2, 3, [], {}]"),
            (" true ", "true"),
            ("1.10", "1.10"),
            ("1e2", "100"),
            ("1.5e3", "1500"),
            ("1E-3", "0.001"),
            ("1.50e1", "15.0"),
            ("-0", "0"),
            ("-0.0", "0.0"),
            ("0.5", "0.5"),
            ("12345678901234567890.123", "12345678901234567890.123"),
            (r#""a\/b\u00e9\ud83d\ude00\n\u0001""#, "\"a/bé😀\\n\\u0001\""),
            ("null", "null"),
        ] {
            assert_eq!(normalize(text).unwrap(), normal, "{text}");
        }
    }

    #[test]
    fn what_is_not_json_is_refused_with_its_detail() {
        for (text, detail) in [
            ("x", "Token \"x\" is invalid."),
            ("", "The input string ended unexpectedly."),
            ("{\"a\":1", "The input string ended unexpectedly."),
            ("{a:1}", "Token \"a\" is invalid."),
            ("[1,]", "Expected JSON value, but found \"]\"."),
            ("[1 2]", "Expected \",\" or \"]\", but found \"2\"."),
            ("1 2", "Expected end of input, but found \"2\"."),
            ("01", "Token \"01\" is invalid."),
            ("\"\\x\"", "Escape sequence \"\\x\" is invalid."),
            ("\"abc", "Token \"\"abc\" is invalid."),
        ] {
            let error = check(text).unwrap_err();
            assert_eq!(error.code(), "22P02", "{text}");
            assert_eq!(error.detail(), Some(detail), "{text}");
        }
        assert_eq!(normalize("\"\\u0000\"").unwrap_err().code(), "22P05");
        assert!(check("\"\\u0000\"").is_ok());
        assert_eq!(check(&"[".repeat(100_000)).unwrap_err().code(), "54001");
    }
}
