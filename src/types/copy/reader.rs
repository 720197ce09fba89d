//! COPY's reader: chunks of bytes in, columns out, with PostgreSQL's line numbers and error contexts.
//!
//! Chunks may be cut anywhere. What is not yet a whole row waits in a buffer; how far it was scanned is remembered, so
//! that a long row is scanned once.

use super::{CopyFormat, Form, Header, SIGNATURE};
use crate::config::COPY_ROW_BYTES_MAX;
use crate::error::{Error, Result};
use crate::types::scalar::utf8;
use crate::types::settings::Settings;
use crate::types::{ColumnBuilder, Type};
use arrow::array::ArrayRef;
use bytes::{Buf, BytesMut};

/// How many characters of a value an error shows.
const SHOWN_CHARACTERS_MAX: usize = 100;

/// Reads rows in a COPY's format.
#[derive(Debug)]
pub struct CopyReader {
    relation: String,
    names: Vec<String>,
    builders: Vec<ColumnBuilder>,
    forced: Vec<Forced>,
    format: CopyFormat,
    buffer: BytesMut,
    scan: Scan,
    line: u64,
    rows: usize,
    bytes: usize,
    state: State,
    scratch: Vec<u8>,
}

/// What is special about the NULLs of a column.
#[derive(Debug, Clone, Copy)]
struct Forced {
    null: bool,
    not_null: bool,
}

/// How far the row at the buffer's front has been looked at.
#[derive(Debug, Default)]
struct Scan {
    at: usize,
    quoted: bool,
    newlines: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// The header or signature is still to come.
    Start,
    /// Rows.
    Rows,
    /// The end marker has been seen; what follows is ignored.
    Ended,
}

impl CopyReader {
    /// A reader of rows for columns of a relation, in the order in which the data has them.
    pub fn new(relation: &str, columns: &[(String, Type)], format: CopyFormat, settings: Settings) -> Self {
        let builders = columns
            .iter()
            .map(|(_, kind)| ColumnBuilder::new(kind).with_settings(settings))
            .collect();
        let forced = columns.iter().map(|(name, _)| Forced {
            null: format.force_null.contains(name),
            not_null: format.force_not_null.contains(name),
        });
        let has_start = format.form == Form::Binary || format.header != Header::None;
        Self {
            relation: relation.to_owned(),
            names: columns.iter().map(|(name, _)| name.clone()).collect(),
            forced: forced.collect(),
            builders,
            format,
            buffer: BytesMut::new(),
            scan: Scan::default(),
            line: 0,
            rows: 0,
            bytes: 0,
            state: if has_start { State::Start } else { State::Rows },
            scratch: Vec::new(),
        }
    }

    /// Reads the rows that a chunk completes. After an error the reader is to be thrown away.
    pub fn feed(&mut self, chunk: &[u8]) -> Result<()> {
        if self.state == State::Ended {
            return Ok(());
        }
        self.buffer.extend_from_slice(chunk);
        if self.format.form == Form::Binary {
            self.read_binary()?;
        } else {
            while let Some(end) = self.line_end() {
                let line = self.buffer.split_to(end + 1);
                self.bytes += line.len();
                self.read_line(&line[..end])?;
                if self.state == State::Ended {
                    self.buffer.clear();
                    return Ok(());
                }
            }
        }
        if self.buffer.len() > COPY_ROW_BYTES_MAX {
            return Err(Error::limit("54000", "a row of COPY data is too long")
                .with_detail(format!("The limit is {COPY_ROW_BYTES_MAX} bytes (copy_row_bytes_max)."))
                .with_context(format!("COPY {}, line {}", self.relation, self.line + 1)));
        }
        Ok(())
    }

    /// Reads a last line that has no end, and checks that nothing is missing.
    pub fn finish(&mut self) -> Result<()> {
        if self.format.form == Form::Binary {
            if self.state != State::Ended {
                return Err(self.at_line(self.line + 1, bad_format("unexpected EOF in COPY data")));
            }
            return Ok(());
        }
        if self.scan.quoted {
            let error = bad_format("unterminated CSV quoted field");
            let line = self.line + 1 + self.scan.newlines;
            let rest = self.buffer.split();
            return Err(self.with_line(line, &rest, error));
        }
        if !self.buffer.is_empty() && self.state != State::Ended {
            let line = self.buffer.split();
            self.bytes += line.len();
            self.read_line(&line)?;
        }
        Ok(())
    }

    /// The number of rows read and not yet taken.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// The bytes of the input of the rows read and not yet taken.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The number of the line read last, from 1.
    pub fn line(&self) -> u64 {
        self.line
    }

    /// Takes the rows read so far, column by column.
    pub fn take(&mut self) -> Vec<ArrayRef> {
        self.rows = 0;
        self.bytes = 0;
        self.builders.iter_mut().map(ColumnBuilder::finish).collect()
    }

    /// Where the row at the buffer's front ends, if it does: the index of its newline.
    fn line_end(&mut self) -> Option<usize> {
        let csv = self.format.form == Form::Csv;
        let (quote, escape) = (self.format.quote, self.format.escape);
        let bytes = &self.buffer[..];
        let mut at = self.scan.at;
        while let Some(byte) = bytes.get(at).copied() {
            if csv {
                if self.scan.quoted && byte == escape && escape != quote {
                    // An escape counts only before a quote or an escape; which, the next byte tells.
                    match bytes.get(at + 1) {
                        None => break,
                        Some(next) if *next == quote || *next == escape => at += 1,
                        Some(_) => {}
                    }
                } else if byte == quote {
                    self.scan.quoted = !self.scan.quoted;
                } else if byte == b'\n' {
                    if !self.scan.quoted {
                        return Some(at);
                    }
                    self.scan.newlines += 1;
                }
            } else if byte == b'\\' {
                if at + 1 >= bytes.len() {
                    break;
                }
                self.scan.newlines += u64::from(bytes[at + 1] == b'\n');
                at += 1;
            } else if byte == b'\n' {
                return Some(at);
            }
            at += 1;
        }
        self.scan.at = at;
        None
    }

    fn read_line(&mut self, line: &[u8]) -> Result<()> {
        let scan = std::mem::take(&mut self.scan);
        self.line += 1 + scan.newlines;
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line == b"\\." {
            self.state = State::Ended;
            return Ok(());
        }
        let number = self.line;
        let text = utf8(line).map_err(|error| self.at_line(number, error))?;
        if self.state == State::Start {
            self.state = State::Rows;
            return self.read_header(text);
        }
        match self.format.form {
            Form::Csv => self.read_csv(text),
            _ => self.read_text(text),
        }?;
        self.rows += 1;
        Ok(())
    }

    fn read_header(&mut self, text: &str) -> Result<()> {
        if self.format.header != Header::Match {
            return Ok(());
        }
        let mut fields = Vec::new();
        let mut rest = Some(text);
        while let Some(from) = rest {
            let (field, after) = match self.format.form {
                Form::Csv => self.csv_field(from),
                _ => self.text_field(from),
            };
            fields.push(field.to_owned_text(&self.scratch));
            rest = after;
        }
        let problem = if fields.len() == self.names.len() {
            fields
                .iter()
                .zip(&self.names)
                .enumerate()
                .find_map(|(index, (got, name))| {
                    (got != name).then(|| {
                        format!(
                            "column name mismatch in header line field {}: got \"{got}\", expected \"{name}\"",
                            index + 1
                        )
                    })
                })
        } else {
            Some(format!(
                "wrong number of fields in header line: got {}, expected {}",
                fields.len(),
                self.names.len()
            ))
        };
        match problem {
            None => Ok(()),
            Some(problem) => Err(self.with_line(1, text.as_bytes(), bad_format(problem))),
        }
    }

    fn read_text(&mut self, line: &str) -> Result<()> {
        self.read_fields(line, Self::text_field)
    }

    fn read_csv(&mut self, line: &str) -> Result<()> {
        self.read_fields(line, Self::csv_field)
    }

    fn read_fields<'a>(
        &mut self,
        line: &'a str,
        next: fn(&mut Self, &'a str) -> (Field<'a>, Option<&'a str>),
    ) -> Result<()> {
        let mut rest = Some(line);
        let number = self.line;
        for column in 0..self.builders.len() {
            let Some(from) = rest else {
                let message = format!("missing data for column \"{}\"", self.names[column]);
                return Err(self.with_line(number, line.as_bytes(), bad_format(message)));
            };
            let (field, after) = next(self, from);
            rest = after;
            let forced = self.forced[column];
            let null = self.format.null.as_str();
            let value = match field {
                Field::Plain(text) if text == null && !forced.not_null => None,
                Field::Plain(text) => Some(text),
                // What was escaped came from valid UTF-8, but an octal or hexadecimal escape may have broken it.
                Field::Scratch => {
                    let text = utf8(&self.scratch)
                        .map_err(|error| error.with_context(format!("COPY {}, line {number}", self.relation)))?;
                    let quoted_null = forced.null && text == null;
                    (!quoted_null).then_some(text)
                }
            };
            if let Err(error) = self.builders[column].push_text(value) {
                let shown = value.map_or("null input".to_owned(), |text| format!("\"{}\"", shortened(text)));
                let name = &self.names[column];
                let place = format!("COPY {}, line {number}, column {name}: {shown}", self.relation);
                return Err(placed(error, place));
            }
        }
        if rest.is_some() && !(self.builders.is_empty() && line.is_empty()) {
            let error = bad_format("extra data after last expected column");
            return Err(self.with_line(number, line.as_bytes(), error));
        }
        Ok(())
    }

    /// The field at the front of a line of text, and what follows its delimiter.
    fn text_field<'a>(&mut self, line: &'a str) -> (Field<'a>, Option<&'a str>) {
        let bytes = line.as_bytes();
        let mut end = bytes.len();
        let mut escaped = false;
        let mut at = 0;
        while at < bytes.len() {
            if bytes[at] == b'\\' {
                escaped = true;
                at += 1;
            } else if bytes[at] == self.format.delimiter {
                end = at;
                break;
            }
            at += 1;
        }
        let field = &line[..end];
        let rest = (end < bytes.len()).then(|| &line[end + 1..]);
        // The null string is compared before escapes are undone.
        if !escaped || field == self.format.null {
            return (Field::Plain(field), rest);
        }
        self.scratch.clear();
        unescape(field.as_bytes(), &mut self.scratch);
        (Field::Scratch, rest)
    }

    /// The field at the front of a CSV record, and what follows its delimiter.
    fn csv_field<'a>(&mut self, line: &'a str) -> (Field<'a>, Option<&'a str>) {
        let CopyFormat {
            delimiter,
            quote,
            escape,
            ..
        } = self.format;
        let bytes = line.as_bytes();
        let plain_end = bytes.iter().position(|byte| *byte == delimiter || *byte == quote);
        match plain_end {
            None => return (Field::Plain(line), None),
            Some(end) if bytes[end] == delimiter => {
                return (Field::Plain(&line[..end]), Some(&line[end + 1..]));
            }
            Some(_) => {}
        }
        self.scratch.clear();
        let mut quoted = false;
        let mut at = 0;
        while at < bytes.len() {
            let byte = bytes[at];
            let next = bytes.get(at + 1).copied();
            if quoted {
                if byte == escape && next.is_some_and(|next| next == quote || next == escape) {
                    self.scratch.extend(next);
                    at += 1;
                } else if byte == quote {
                    quoted = false;
                } else {
                    self.scratch.push(byte);
                }
            } else if byte == quote {
                quoted = true;
            } else if byte == delimiter {
                return (Field::Scratch, Some(&line[at + 1..]));
            } else {
                self.scratch.push(byte);
            }
            at += 1;
        }
        (Field::Scratch, None)
    }

    fn read_binary(&mut self) -> Result<()> {
        if self.state == State::Start && !self.read_signature()? {
            return Ok(());
        }
        while self.state == State::Rows {
            let Some(length) = self.binary_row_length()? else {
                return Ok(());
            };
            let mut row = self.buffer.split_to(length);
            self.bytes += length;
            self.line += 1;
            row.advance(2);
            for column in 0..self.builders.len() {
                let size = row.get_i32();
                let value = usize::try_from(size).ok().map(|size| row.split_to(size));
                if let Err(error) = self.builders[column].push_binary(value.as_deref()) {
                    let name = &self.names[column];
                    let place = format!("COPY {}, line {}, column {name}", self.relation, self.line);
                    return Err(placed(error, place));
                }
            }
            self.rows += 1;
        }
        self.buffer.clear();
        Ok(())
    }

    /// Reads the signature, flags and extension; `false` while they are incomplete.
    fn read_signature(&mut self) -> Result<bool> {
        let fixed = SIGNATURE.len() + 8;
        let known = self.buffer.len().min(SIGNATURE.len());
        if self.buffer[..known] != SIGNATURE[..known] {
            return Err(bad_format("COPY file signature not recognized"));
        }
        if self.buffer.len() < fixed {
            return Ok(false);
        }
        let mut rest = &self.buffer[SIGNATURE.len()..];
        let flags = rest.get_u32();
        if flags >> 16 != 0 {
            return Err(bad_format("unrecognized critical flags in COPY file header"));
        }
        let extension =
            usize::try_from(rest.get_i32()).map_err(|_| bad_format("invalid COPY file header (missing length)"))?;
        if rest.len() < extension {
            return Ok(false);
        }
        self.buffer.advance(fixed + extension);
        self.state = State::Rows;
        Ok(true)
    }

    /// The bytes of the row at the buffer's front; `None` while it is incomplete or at the trailer.
    fn binary_row_length(&mut self) -> Result<Option<usize>> {
        let mut rest = &self.buffer[..];
        if rest.len() < 2 {
            return Ok(None);
        }
        let count = rest.get_i16();
        if count == -1 {
            self.state = State::Ended;
            return Ok(None);
        }
        let expected = self.builders.len();
        if usize::try_from(count).ok() != Some(expected) {
            let error = bad_format(format!("row field count is {count}, expected {expected}"));
            return Err(self.at_line(self.line + 1, error));
        }
        for _ in 0..expected {
            if rest.len() < 4 {
                return Ok(None);
            }
            let size = rest.get_i32();
            if size < -1 {
                return Err(self.at_line(self.line + 1, bad_format("invalid field size")));
            }
            let size = usize::try_from(size).unwrap_or(0);
            if rest.len() < size {
                return Ok(None);
            }
            rest.advance(size);
        }
        Ok(Some(self.buffer.len() - rest.len()))
    }

    fn at_line(&self, line: u64, error: Error) -> Error {
        placed(error, format!("COPY {}, line {line}", self.relation))
    }

    fn with_line(&self, line: u64, content: &[u8], error: Error) -> Error {
        let text = String::from_utf8_lossy(content);
        let place = format!("COPY {}, line {line}: \"{}\"", self.relation, shortened(&text));
        placed(error, place)
    }
}

/// A field of a line: a part of it, or what the scratch buffer holds after escapes and quotes were undone.
enum Field<'a> {
    Plain(&'a str),
    Scratch,
}

impl Field<'_> {
    fn to_owned_text(&self, scratch: &[u8]) -> String {
        match self {
            Self::Plain(text) => (*text).to_owned(),
            Self::Scratch => String::from_utf8_lossy(scratch).into_owned(),
        }
    }
}

fn bad_format(message: impl Into<String>) -> Error {
    Error::semantic("22P04", message)
}

/// Says where in the data an error happened, after what its own context says.
fn placed(error: Error, place: String) -> Error {
    let context = match error.context() {
        Some(context) => format!("{context}\n{place}"),
        None => place,
    };
    error.with_context(context)
}

fn shortened(text: &str) -> String {
    match text.char_indices().nth(SHOWN_CHARACTERS_MAX) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_owned(),
    }
}

/// Undoes the escapes of the text format.
fn unescape(field: &[u8], out: &mut Vec<u8>) {
    let mut at = 0;
    while at < field.len() {
        let byte = field[at];
        at += 1;
        if byte != b'\\' || at == field.len() {
            out.push(byte);
            continue;
        }
        let escape = field[at];
        at += 1;
        match escape {
            b'b' => out.push(8),
            b'f' => out.push(12),
            b'n' => out.push(b'\n'),
            b'r' => out.push(b'\r'),
            b't' => out.push(b'\t'),
            b'v' => out.push(11),
            b'0'..=b'7' => {
                let mut value = u32::from(escape - b'0');
                let end = (at + 2).min(field.len());
                while at < end && (b'0'..=b'7').contains(&field[at]) {
                    value = value * 8 + u32::from(field[at] - b'0');
                    at += 1;
                }
                out.push(value as u8);
            }
            b'x' if field.get(at).is_some_and(u8::is_ascii_hexdigit) => {
                let mut value = 0;
                let end = (at + 2).min(field.len());
                while at < end && field[at].is_ascii_hexdigit() {
                    value = value * 16 + char::from(field[at]).to_digit(16).unwrap_or(0);
                    at += 1;
                }
                out.push(value as u8);
            }
            other => out.push(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::copy::{Chosen, CopyWriter};
    use crate::types::text::column_to_text;
    use arrow::array::{Array, RecordBatch};

    fn columns() -> Vec<(String, Type)> {
        vec![("a".to_owned(), Type::Int4), ("b".to_owned(), Type::Text)]
    }

    /// Reads data cut into chunks of every size, which must not matter, and shows the rows.
    fn read(format: &CopyFormat, data: &[u8]) -> Result<Vec<String>> {
        let mut last: Option<Result<Vec<String>>> = None;
        for size in 1..=data.len().max(1) {
            let mut reader = CopyReader::new("t", &columns(), format.clone(), Settings::default());
            let fed = data
                .chunks(size)
                .try_for_each(|chunk| reader.feed(chunk))
                .and_then(|()| reader.finish());
            let shown = fed.map(|()| {
                let rows = reader.rows();
                let taken = reader.take();
                let texts: Vec<_> = taken
                    .iter()
                    .zip(columns())
                    .map(|(array, (_, kind))| column_to_text(&kind, array, &Settings::default()).unwrap())
                    .collect();
                (0..rows)
                    .map(|row| {
                        let cells = texts.iter().map(|text| {
                            if text.is_null(row) {
                                "NULL".to_owned()
                            } else {
                                format!("<{}>", text.value(row))
                            }
                        });
                        cells.collect::<Vec<_>>().join(" ")
                    })
                    .collect()
            });
            if let Some(last) = &last {
                assert_eq!(last, &shown, "chunks of {size}");
            }
            last = Some(shown);
        }
        last.unwrap()
    }

    #[test]
    fn text_rows_are_read() {
        let format = CopyFormat::default();
        assert_eq!(
            read(&format, b"1\tx\n2\t\\N\n\\N\t\n3\ta\\tb\\\\\\x41\\101\\q\n4\tend").unwrap(),
            ["<1> <x>", "<2> NULL", "NULL <>", "<3> <a\tb\\AAq>", "<4> <end>"]
        );
        assert_eq!(read(&format, b"1\tx\r\n\\.\nrubbish").unwrap(), ["<1> <x>"]);
        assert_eq!(read(&format, b"1\ta\\\nb\n").unwrap(), ["<1> <a\nb>"]);
        assert_eq!(read(&format, b"").unwrap(), Vec::<String>::new());
    }

    #[test]
    fn csv_records_are_read() {
        let mut format = CopyFormat::of(Form::Csv);
        assert_eq!(
            read(&format, b"1,x\n2,\n3,\"\"\n4,\"a,\"\"b\"\"\nc\"\n5,p\"q,\"r\n").unwrap(),
            ["<1> <x>", "<2> NULL", "<3> <>", "<4> <a,\"b\"\nc>", "<5> <pq,r>"]
        );
        format.header = Header::Names;
        format.force_null = Chosen::All;
        assert_eq!(read(&format, b"x,y\r\n3,\"\"\r\n").unwrap(), ["<3> NULL"]);
        format.header = Header::Match;
        format.force_not_null = Chosen::Named(vec!["b".to_owned()]);
        assert_eq!(read(&format, b"a,\"b\"\n3,\n").unwrap(), ["<3> <>"]);
        assert_eq!(
            read(&format, b"a,c\n3,\n").unwrap_err().message(),
            "column name mismatch in header line field 2: got \"c\", expected \"b\""
        );
        let mut format = CopyFormat::of(Form::Csv);
        format.escape = b'\\';
        assert_eq!(read(&format, b"1,\"a\\\"\nb\\\\\"\n").unwrap(), ["<1> <a\"\nb\\>"]);
    }

    #[test]
    fn errors_say_where() {
        let text = CopyFormat::default();
        let csv = CopyFormat::of(Form::Csv);
        for (format, data, code, context) in [
            (
                &text,
                &b"1\tx\nabc\ty\n"[..],
                "22P02",
                "COPY t, line 2, column a: \"abc\"",
            ),
            (&text, b"1\n", "22P04", "COPY t, line 1: \"1\""),
            (&text, b"1\tx\ty\n", "22P04", "COPY t, line 1: \"1\tx\ty\""),
            (&text, b"\n", "22P02", "COPY t, line 1, column a: \"\""),
            (&text, b"1\t\xff\n", "22021", "COPY t, line 1"),
            (&text, b"1\t\\377\n", "22021", "COPY t, line 1"),
            (&csv, b"1,\"x\ny\"\n2,\"x", "22P04", "COPY t, line 3: \"2,\"x\""),
            (&csv, b"1,\"x\ny\"\nz,1\n", "22P02", "COPY t, line 3, column a: \"z\""),
        ] {
            let error = read(format, data).unwrap_err();
            assert_eq!((error.code(), error.context()), (code, Some(context)));
        }
    }

    #[test]
    fn binary_rows_come_back() {
        let format = CopyFormat::of(Form::Binary);
        let mut a = ColumnBuilder::new(&Type::Int4);
        let mut b = ColumnBuilder::new(&Type::Text);
        for (x, y) in [(Some("1"), Some("x")), (None, None), (Some("-3"), Some(""))] {
            a.push_text(x).unwrap();
            b.push_text(y).unwrap();
        }
        let batch = RecordBatch::try_from_iter([("a", a.finish()), ("b", b.finish())]).unwrap();
        let writer = CopyWriter::new(columns(), format.clone(), Settings::default());
        let mut out = BytesMut::new();
        writer.start(&mut out);
        let mut rows = writer.rows(&batch).unwrap();
        for row in 0..3 {
            rows.write(row, &mut out).unwrap();
        }
        writer.end(&mut out);
        assert_eq!(read(&format, &out).unwrap(), ["<1> <x>", "NULL NULL", "<-3> <>"]);
        assert_eq!(read(&format, &out[..out.len() - 3]).unwrap_err().code(), "22P04");
        assert_eq!(read(&format, b"PGCOPZ").unwrap_err().code(), "22P04");
    }
}
