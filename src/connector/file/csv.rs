//! CSV as RFC 4180 has it, with PostgreSQL's NULL.
//!
//! A quote counts only at the start of a value; within, two of them are one, and line ends are text. A value is NULL if
//! it is the null text *without* quotes. A record with more or fewer values than the first line is listed as
//! undecodable. So is the line that opens a quote which the file never closes: reading goes on behind that line,
//! rather than the one stray quote swallowing all that follows.

use super::{CsvForm, Header};
use crate::connector::decode::RowDecoder;
use crate::error::{Error, Result};

/// What is at the start of some bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Split {
    /// A record, with its line end.
    Record {
        /// Its length.
        bytes: usize,
        /// The lines that it takes.
        lines: u64,
    },
    /// A line without anything in it.
    Blank {
        /// Its length.
        bytes: usize,
    },
    /// The start of a record that may go on behind the bytes.
    Part,
    /// A record that cannot end: its quote is not closed before the end of the file.
    Unclosed,
}

/// Where a value is.
#[derive(Debug, Clone, Copy)]
struct Field {
    start: usize,
    end: usize,
    form: FieldForm,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FieldForm {
    /// In the record, without quotes.
    Bare,
    /// In the record, between quotes.
    Quoted,
    /// In the scratch space, because it had quotes within.
    Rewritten,
}

/// Which value of a record goes to which column.
#[derive(Debug, Clone)]
struct Mapping {
    /// How many values a record has.
    width: usize,
    /// For each delivered column its value's place, if the file has one.
    places: Vec<Option<usize>>,
}

/// Finds records and their values.
pub(super) struct Csv {
    form: CsvForm,
    names: Vec<String>,
    /// Where each delivered column stands in the file when there is no header.
    by_position: Vec<usize>,
    mapping: Option<Mapping>,
    fields: Vec<Field>,
    scratch: Vec<u8>,
}

impl Csv {
    /// A reader that delivers columns of these names; in a file without a header they stand at `by_position`.
    pub(super) fn new(form: CsvForm, names: Vec<String>, by_position: Vec<usize>) -> Self {
        Self {
            form,
            names,
            by_position,
            mapping: None,
            fields: Vec::new(),
            scratch: Vec::new(),
        }
    }

    /// Learns from the first record, which was just split, where the columns are. Whether it is a header.
    pub(super) fn learn(&mut self, bytes: &[u8]) -> Result<Header> {
        let width = self.fields.len();
        let places = match self.form.header {
            Header::Absent => self
                .by_position
                .iter()
                .map(|place| (*place < width).then_some(*place))
                .collect(),
            Header::Names => {
                let header: Vec<String> = (0..width)
                    .map(|index| {
                        String::from_utf8_lossy(self.value(bytes, index).0)
                            .trim()
                            .to_lowercase()
                    })
                    .collect();
                self.places_by_name(&header)?
            }
        };
        self.mapping = Some(Mapping { width, places });
        Ok(self.form.header)
    }

    fn places_by_name(&self, header: &[String]) -> Result<Vec<Option<usize>>> {
        let mut places = Vec::with_capacity(self.names.len());
        for name in &self.names {
            let folded = name.to_lowercase();
            let mut found = header.iter().enumerate().filter(|(_, known)| **known == folded);
            places.push(found.next().map(|(index, _)| index));
            if found.next().is_some() {
                return Err(Error::semantic(
                    "42701",
                    format!("column \"{name}\" stands more than once in the file's header"),
                ));
            }
        }
        if !self.names.is_empty() && places.iter().all(Option::is_none) {
            let shown: Vec<&str> = header.iter().take(20).map(String::as_str).collect();
            return Err(Error::semantic("42703", "the file's header names none of the columns")
                .with_detail(format!("The header is: {}.", shown.join(", ")))
                .with_hint("If the file has no header, say header = 'false'."));
        }
        Ok(places)
    }

    /// Whether the first record was seen.
    pub(super) fn is_ready(&self) -> bool {
        self.mapping.is_some()
    }

    /// Finds the record at the start of the bytes. `at_end` says that no more bytes follow.
    pub(super) fn split(&mut self, bytes: &[u8], at_end: bool) -> Split {
        self.fields.clear();
        self.scratch.clear();
        let mut lines = 1;
        let mut at = 0;
        loop {
            let end = if bytes.get(at) == Some(&self.form.quote) {
                match self.quoted(bytes, at, at_end, &mut lines) {
                    Ok(end) => end,
                    Err(split) => return split,
                }
            } else {
                let delimiter = self.form.delimiter;
                let length = bytes[at..].iter().position(|byte| *byte == delimiter || *byte == b'\n');
                let Some(end) = length.map(|length| at + length).or(at_end.then_some(bytes.len())) else {
                    return Split::Part;
                };
                self.fields.push(Field {
                    start: at,
                    end,
                    form: FieldForm::Bare,
                });
                end
            };
            if bytes.get(end) == Some(&self.form.delimiter) {
                at = end + 1;
                continue;
            }
            let last = self.fields.last_mut().expect("a value was just pushed");
            if last.form == FieldForm::Bare && last.end > last.start && bytes[last.end - 1] == b'\r' {
                last.end -= 1;
            }
            let is_blank = self.fields.len() == 1 && last_is_empty(&self.fields);
            let bytes = (end + 1).min(bytes.len());
            let is_one_column = self.mapping.as_ref().is_some_and(|mapping| mapping.width == 1);
            return if is_blank && !is_one_column {
                Split::Blank { bytes }
            } else {
                Split::Record { bytes, lines }
            };
        }
    }

    /// Reads the value that opens with a quote at `open`; the place behind it.
    fn quoted(&mut self, bytes: &[u8], open: usize, at_end: bool, lines: &mut u64) -> Result<usize, Split> {
        let quote = self.form.quote;
        let unfinished = if at_end { Split::Unclosed } else { Split::Part };
        let rewritten = self.scratch.len();
        let mut from = open + 1;
        let mut at = from;
        loop {
            let Some(length) = bytes[at..].iter().position(|byte| *byte == quote) else {
                return Err(unfinished);
            };
            let close = at + length;
            match bytes.get(close + 1) {
                None if !at_end => return Err(Split::Part),
                Some(next) if *next == quote => {
                    self.scratch.extend_from_slice(&bytes[from..=close]);
                    from = close + 2;
                    at = from;
                }
                _ => {
                    *lines += newlines(&bytes[open..close]);
                    return self.close(bytes, (open, from, close, rewritten), at_end);
                }
            }
        }
    }

    /// Ends a quoted value: usually a delimiter or line end follows; other text there belongs to the value.
    fn close(
        &mut self,
        bytes: &[u8],
        (open, from, close, rewritten): (usize, usize, usize, usize),
        at_end: bool,
    ) -> Result<usize, Split> {
        let delimiter = self.form.delimiter;
        let length = bytes[close + 1..]
            .iter()
            .position(|byte| *byte == delimiter || *byte == b'\n');
        let Some(end) = length
            .map(|length| close + 1 + length)
            .or(at_end.then_some(bytes.len()))
        else {
            return Err(Split::Part);
        };
        let mut behind = &bytes[close + 1..end];
        if bytes.get(end) != Some(&delimiter) {
            behind = behind.strip_suffix(b"\r").unwrap_or(behind);
        }
        if from == open + 1 && behind.is_empty() {
            self.fields.push(Field {
                start: from,
                end: close,
                form: FieldForm::Quoted,
            });
        } else {
            self.scratch.extend_from_slice(&bytes[from..close]);
            self.scratch.extend_from_slice(behind);
            self.fields.push(Field {
                start: rewritten,
                end: self.scratch.len(),
                form: FieldForm::Rewritten,
            });
        }
        Ok(end)
    }

    fn value<'a>(&'a self, bytes: &'a [u8], index: usize) -> (&'a [u8], FieldForm) {
        let field = self.fields[index];
        let from = if field.form == FieldForm::Rewritten {
            self.scratch.as_slice()
        } else {
            bytes
        };
        (&from[field.start..field.end], field.form)
    }

    /// Decodes the record that was just split; what is wrong with it, if something is.
    pub(super) fn decode(&self, bytes: &[u8], rows: &mut RowDecoder) -> Option<String> {
        let mapping = self
            .mapping
            .as_ref()
            .expect("the first record is learned from before any is decoded");
        if self.fields.len() != mapping.width {
            let (values, width) = (self.fields.len(), mapping.width);
            let what = if values < width {
                "missing data"
            } else {
                "extra data after last expected column"
            };
            return Some(format!(
                "{what}: the record has {values} values, the file's first line has {width}"
            ));
        }
        let null = self.form.null.as_bytes();
        for (column, place) in mapping.places.iter().enumerate() {
            let value = place.and_then(|index| {
                let (text, form) = self.value(bytes, index);
                (form != FieldForm::Bare || text != null).then_some(text)
            });
            rows.push(column, value);
        }
        rows.end()
    }
}

fn last_is_empty(fields: &[Field]) -> bool {
    fields
        .last()
        .is_some_and(|field| field.form == FieldForm::Bare && field.start == field.end)
}

fn newlines(bytes: &[u8]) -> u64 {
    bytes.iter().filter(|byte| **byte == b'\n').count() as u64
}
