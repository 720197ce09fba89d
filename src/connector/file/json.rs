//! JSON lines: one object a line, its members to the columns of their names.
//!
//! The text of a value goes to the column as it stands, so that nothing is lost on the way: a number keeps all its
//! digits, and what a column cannot hold is an error, never the nearest value that it can. Objects and arrays go to
//! json, jsonb and text columns as JSON; an array also to an array column. A member that is missing or null is NULL; of
//! members with the same name the last counts; those that no column asks for are checked for their syntax only.

use super::csv::Split;
use crate::connector::decode::RowDecoder;
use crate::error::{Error, Result};
use crate::types::Type;
use crate::types::json::unescape;

/// How deep values may be nested.
const DEPTH_MAX: usize = 128;

/// Reads objects.
pub(super) struct Json {
    names: Vec<String>,
    /// The member names of the last object in their order, and their columns: the next one is likely to have the same.
    seen: Vec<(Vec<u8>, Option<usize>)>,
    values: Vec<Option<Value>>,
    scratch: String,
}

/// A value, by its place in the record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Value {
    kind: ValueKind,
    start: usize,
    end: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ValueKind {
    Null,
    /// A number, `true` or `false`.
    Plain,
    /// A string without escapes; the quotes are not part of it.
    String,
    /// A string with escapes; the quotes are not part of it.
    EscapedString,
    Array,
    Object,
}

impl Json {
    /// A reader for columns of these names.
    pub(super) fn new(names: Vec<String>) -> Self {
        let values = vec![None; names.len()];
        Self {
            names,
            seen: Vec::new(),
            values,
            scratch: String::new(),
        }
    }

    /// Finds the line at the start of the bytes. `at_end` says that no more bytes follow.
    pub(super) fn split(bytes: &[u8], at_end: bool) -> Split {
        let end = bytes.iter().position(|byte| *byte == b'\n').map(|end| end + 1);
        match end.or(at_end.then_some(bytes.len())) {
            None => Split::Part,
            Some(end) if bytes[..end].trim_ascii().is_empty() => Split::Blank { bytes: end },
            Some(end) => Split::Record { bytes: end, lines: 1 },
        }
    }

    /// Decodes a line; what is wrong with it, if something is.
    pub(super) fn decode(&mut self, record: &[u8], rows: &mut RowDecoder) -> Option<String> {
        let text = match std::str::from_utf8(record) {
            Ok(text) => text,
            Err(error) => {
                let byte = record[error.valid_up_to()];
                return Some(format!("invalid byte sequence for encoding \"UTF8\": 0x{byte:02x}"));
            }
        };
        if let Err(problem) = self.object(record) {
            return Some(format!("invalid input syntax for type json: {problem}"));
        }
        for column in 0..self.names.len() {
            let Some(value) = self.values[column].filter(|value| value.kind != ValueKind::Null) else {
                rows.push(column, None);
                continue;
            };
            self.scratch.clear();
            let kind = rows.kind(column);
            let within = &text[value.start..value.end];
            let is_json = matches!(kind, Type::Json | Type::Jsonb);
            match (value.kind, kind) {
                (ValueKind::String | ValueKind::EscapedString, _) if is_json => {
                    rows.push(column, Some(&record[value.start - 1..=value.end]));
                }
                (ValueKind::EscapedString, _) => match unescape(within) {
                    Ok(text) => rows.push(column, Some(text.as_bytes())),
                    Err(error) => return self.abandon(column, rows, &error),
                },
                (ValueKind::Array, Type::Array(element)) => {
                    if let Err(error) = array_text(within, element, &mut self.scratch) {
                        return self.abandon(column, rows, &error);
                    }
                    rows.push(column, Some(self.scratch.as_bytes()));
                }
                _ => rows.push(column, Some(within.as_bytes())),
            }
        }
        rows.end()
    }

    /// Fills the rest of a row whose value cannot be read, and reports that instead.
    fn abandon(&self, column: usize, rows: &mut RowDecoder, error: &Error) -> Option<String> {
        for rest in column..self.names.len() {
            rows.push(rest, None);
        }
        let detail = error.detail().map(|detail| format!(": {detail}")).unwrap_or_default();
        rows.fail(format!("column \"{}\": {error}{detail}", self.names[column]));
        rows.end()
    }

    /// Finds the members of the record's object.
    fn object(&mut self, record: &[u8]) -> Result<(), String> {
        self.values.fill(None);
        let mut scanner = Scanner { bytes: record, at: 0 };
        scanner.skip_space();
        if scanner.peek() != Some(b'{') {
            return Err("the line is not an object".to_owned());
        }
        scanner.at += 1;
        scanner.skip_space();
        if scanner.peek() == Some(b'}') {
            scanner.at += 1;
        } else {
            let mut member = 0;
            loop {
                scanner.skip_space();
                let key = scanner.string()?;
                scanner.skip_space();
                scanner.expect(b':')?;
                let column = self.column_of(member, &record[key.start..key.end], key.kind);
                let value = scanner.value(1)?;
                if let Some(column) = column {
                    self.values[column] = Some(value);
                }
                member += 1;
                scanner.skip_space();
                match scanner.next() {
                    Some(b',') => {}
                    Some(b'}') => break,
                    _ => return Err(scanner.problem("\",\" or \"}\"")),
                }
            }
        }
        scanner.skip_space();
        if scanner.at < record.len() {
            Err(scanner.problem("the end of the line"))
        } else {
            Ok(())
        }
    }

    /// The column of a member.
    fn column_of(&mut self, member: usize, key: &[u8], kind: ValueKind) -> Option<usize> {
        if let Some((name, column)) = self.seen.get(member)
            && name == key
        {
            return *column;
        }
        let text = String::from_utf8_lossy(key).into_owned();
        let name = if kind == ValueKind::EscapedString {
            unescape(&text).unwrap_or(text)
        } else {
            text
        };
        let exact = self.names.iter().position(|known| *known == name);
        let column = exact.or_else(|| self.names.iter().position(|known| known.eq_ignore_ascii_case(&name)));
        self.seen.truncate(member);
        // Objects with members without end must not make this grow without end.
        if member < 1024 && self.seen.len() == member {
            self.seen.push((key.to_vec(), column));
        }
        column
    }
}

/// Reads JSON strictly, by RFC 8259.
struct Scanner<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Scanner<'_> {
    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    fn next(&mut self) -> Option<u8> {
        let byte = self.peek();
        self.at += 1;
        byte
    }

    fn skip_space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\r' | b'\n')) {
            self.at += 1;
        }
    }

    fn expect(&mut self, byte: u8) -> Result<(), String> {
        if self.next() == Some(byte) {
            Ok(())
        } else {
            Err(self.problem(&format!("\"{}\"", byte as char)))
        }
    }

    fn problem(&self, expected: &str) -> String {
        format!("{expected} was expected at byte {}", self.at.min(self.bytes.len()))
    }

    fn value(&mut self, depth: usize) -> Result<Value, String> {
        self.skip_space();
        let start = self.at;
        let plain = |scanner: &Self, kind| Value {
            kind,
            start,
            end: scanner.at,
        };
        match self.peek() {
            Some(b'"') => self.string(),
            Some(b'{' | b'[') if depth >= DEPTH_MAX => Err(format!("values are nested deeper than {DEPTH_MAX}")),
            Some(b'{') => {
                self.members(depth)?;
                Ok(plain(self, ValueKind::Object))
            }
            Some(b'[') => {
                self.elements(depth, |_, _| {})?;
                Ok(plain(self, ValueKind::Array))
            }
            Some(b'-' | b'0'..=b'9') => {
                self.number()?;
                Ok(plain(self, ValueKind::Plain))
            }
            _ => {
                let words = [
                    ("true", ValueKind::Plain),
                    ("false", ValueKind::Plain),
                    ("null", ValueKind::Null),
                ];
                let found = words
                    .iter()
                    .find(|(word, _)| self.bytes[start.min(self.bytes.len())..].starts_with(word.as_bytes()));
                let (word, kind) = found.ok_or_else(|| self.problem("a value"))?;
                self.at += word.len();
                Ok(plain(self, *kind))
            }
        }
    }

    fn members(&mut self, depth: usize) -> Result<(), String> {
        self.at += 1;
        self.skip_space();
        if self.peek() == Some(b'}') {
            self.at += 1;
            return Ok(());
        }
        loop {
            self.skip_space();
            self.string()?;
            self.skip_space();
            self.expect(b':')?;
            self.value(depth + 1)?;
            self.skip_space();
            match self.next() {
                Some(b',') => {}
                Some(b'}') => return Ok(()),
                _ => return Err(self.problem("\",\" or \"}\"")),
            }
        }
    }

    /// Reads an array, showing each element.
    fn elements(&mut self, depth: usize, mut see: impl FnMut(usize, Value)) -> Result<(), String> {
        self.at += 1;
        self.skip_space();
        if self.peek() == Some(b']') {
            self.at += 1;
            return Ok(());
        }
        for index in 0.. {
            let value = self.value(depth + 1)?;
            see(index, value);
            self.skip_space();
            match self.next() {
                Some(b',') => {}
                Some(b']') => break,
                _ => return Err(self.problem("\",\" or \"]\"")),
            }
        }
        Ok(())
    }

    fn string(&mut self) -> Result<Value, String> {
        if self.next() != Some(b'"') {
            return Err(self.problem("a string"));
        }
        let start = self.at;
        let mut kind = ValueKind::String;
        loop {
            match self.next() {
                Some(b'"') => {
                    return Ok(Value {
                        kind,
                        start,
                        end: self.at - 1,
                    });
                }
                Some(b'\\') => {
                    kind = ValueKind::EscapedString;
                    match self.next() {
                        Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => {}
                        Some(b'u') => {
                            for _ in 0..4 {
                                if !self.next().is_some_and(|byte| byte.is_ascii_hexdigit()) {
                                    return Err(self.problem("a hexadecimal digit"));
                                }
                            }
                        }
                        _ => return Err(self.problem("an escape sequence")),
                    }
                }
                Some(0..0x20) => return Err(self.problem("an escape for a control character")),
                Some(_) => {}
                None => return Err(self.problem("the end of a string")),
            }
        }
    }

    fn digits(&mut self) -> Result<(), String> {
        let start = self.at;
        while self.peek().is_some_and(|byte| byte.is_ascii_digit()) {
            self.at += 1;
        }
        if self.at == start {
            Err(self.problem("a digit"))
        } else {
            Ok(())
        }
    }

    fn number(&mut self) -> Result<(), String> {
        if self.peek() == Some(b'-') {
            self.at += 1;
        }
        let is_zero = self.peek() == Some(b'0');
        let start = self.at;
        self.digits()?;
        if is_zero && self.at > start + 1 {
            return Err("a number has a leading zero".to_owned());
        }
        if self.peek() == Some(b'.') {
            self.at += 1;
            self.digits()?;
        }
        if matches!(self.peek(), Some(b'e' | b'E')) {
            self.at += 1;
            if matches!(self.peek(), Some(b'+' | b'-')) {
                self.at += 1;
            }
            self.digits()?;
        }
        Ok(())
    }
}

/// A JSON array as PostgreSQL's array text.
fn array_text(array: &str, element: &Type, text: &mut String) -> Result<()> {
    let mut values = Vec::new();
    let mut scanner = Scanner {
        bytes: array.as_bytes(),
        at: 0,
    };
    scanner
        .elements(1, |_, value| values.push(value))
        .map_err(Error::internal)?;
    text.push('{');
    for (index, value) in values.into_iter().enumerate() {
        if index > 0 {
            text.push(',');
        }
        let within = &array[value.start..value.end];
        let is_json = matches!(element, Type::Json | Type::Jsonb);
        match value.kind {
            ValueKind::Null => text.push_str("NULL"),
            ValueKind::Array if !is_json => array_text(within, element, text)?,
            ValueKind::String | ValueKind::EscapedString if is_json => {
                push_quoted(&array[value.start - 1..=value.end], text);
            }
            ValueKind::EscapedString => {
                push_quoted(&unescape(within)?, text);
            }
            _ => push_quoted(within, text),
        }
    }
    text.push('}');
    Ok(())
}

fn push_quoted(value: &str, text: &mut String) {
    text.push('"');
    for letter in value.chars() {
        if matches!(letter, '"' | '\\') {
            text.push('\\');
        }
        text.push(letter);
    }
    text.push('"');
}
