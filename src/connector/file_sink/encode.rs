//! Changes as lines of CSV or JSON.
//!
//! Values are written in PostgreSQL's text form; in JSON, booleans, numbers, json and arrays as what they are, and
//! times with a `T`, as `to_json` writes them. CSV puts in quotes whatever would otherwise read as something else,
//! the null text included.

use super::Content;
use crate::catalog::Column;
use crate::connector::file::CsvForm;
use crate::delta::{Batch, Weights};
use crate::error::Result;
use crate::types::Type;
use crate::types::json::write_string;
use crate::types::text::{Settings, TextWriter, write_integer};
use arrow::array::{Array, ArrayRef, AsArray, ListArray};
use bytes::{BufMut, BytesMut};

/// Writes lines.
pub(super) struct Encoder {
    /// How CSV is written; `None` for JSON.
    form: Option<CsvForm>,
}

/// The lines of one batch.
pub(super) struct Lines<'a> {
    form: Option<&'a CsvForm>,
    content: Content,
    epoch: u64,
    weights: &'a Weights,
    columns: Vec<(String, Value)>,
    scratch: BytesMut,
}

/// A column, ready to be written.
enum Value {
    /// As the text that its type has.
    Text(TextWriter, Shape),
    /// A JSON array of its elements.
    List(ListArray, Box<Value>),
}

/// What the text of a type is in JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shape {
    String,
    Time,
    Bool,
    Number,
    Json,
}

impl Encoder {
    pub(super) fn csv(form: CsvForm) -> Self {
        Self { form: Some(form) }
    }

    pub(super) fn json() -> Self {
        Self { form: None }
    }

    /// Writes the line that names the columns, if there is to be one.
    pub(super) fn header(&self, columns: &[Column], content: Content, out: &mut BytesMut) {
        let Some(form) = self.form.as_ref().filter(|form| form.has_header()) else {
            return;
        };
        let added: &[&str] = if content == Content::Changes {
            &["epoch", "diff"]
        } else {
            &[]
        };
        let names = added
            .iter()
            .copied()
            .chain(columns.iter().map(|column| column.name.as_str()));
        for (index, name) in names.enumerate() {
            if index > 0 {
                out.put_u8(form.delimiter);
            }
            write_csv(form, name.as_bytes(), out);
        }
        out.put_u8(b'\n');
    }

    /// The lines of a batch.
    pub(super) fn lines<'a>(
        &'a self,
        columns: &[Column],
        content: Content,
        epoch: u64,
        batch: &'a Batch,
    ) -> Result<Lines<'a>> {
        let form = self.form.as_ref();
        let values = columns.iter().zip(batch.rows.columns()).map(|(column, array)| {
            let value = if form.is_some() {
                Value::text(&column.kind, array)
            } else {
                Value::json(&column.kind, array)
            };
            let mut name = String::new();
            write_string(&column.name, &mut name);
            Ok((name, value?))
        });
        Ok(Lines {
            form,
            content,
            epoch,
            weights: &batch.weights,
            columns: values.collect::<Result<_>>()?,
            scratch: BytesMut::new(),
        })
    }
}

impl Value {
    fn text(kind: &Type, array: &ArrayRef) -> Result<Self> {
        Ok(Self::Text(
            TextWriter::for_column(kind, array, &Settings::default())?,
            Shape::of(kind),
        ))
    }

    fn json(kind: &Type, array: &ArrayRef) -> Result<Self> {
        match (kind, array.as_list_opt::<i32>()) {
            (Type::Array(element), Some(lists)) => Ok(Self::List(
                lists.clone(),
                Box::new(Self::json(element, lists.values())?),
            )),
            _ => Self::text(kind, array),
        }
    }

    fn write_json(&self, row: usize, scratch: &mut BytesMut, out: &mut BytesMut) {
        match self {
            Self::List(lists, _) if lists.is_null(row) => out.put_slice(b"null"),
            Self::List(lists, elements) => {
                let offsets = lists.value_offsets();
                out.put_u8(b'[');
                for index in offsets[row] as usize..offsets[row + 1] as usize {
                    if index > offsets[row] as usize {
                        out.put_u8(b',');
                    }
                    elements.write_json(index, scratch, out);
                }
                out.put_u8(b']');
            }
            Self::Text(writer, _) if writer.is_null(row) => out.put_slice(b"null"),
            Self::Text(writer, shape) => {
                scratch.clear();
                writer.write(row, scratch);
                shape.write(scratch, out);
            }
        }
    }
}

impl Shape {
    fn of(kind: &Type) -> Self {
        match kind {
            Type::Bool => Self::Bool,
            Type::Int2 | Type::Int4 | Type::Int8 | Type::Oid(_) => Self::Number,
            Type::Float4 | Type::Float8 | Type::Numeric(_) | Type::Quotient => Self::Number,
            Type::Json | Type::Jsonb => Self::Json,
            Type::Timestamp(_) | Type::Timestamptz(_) => Self::Time,
            _ => Self::String,
        }
    }

    fn write(self, text: &mut [u8], out: &mut BytesMut) {
        let is_number = |text: &[u8]| text.last().is_some_and(u8::is_ascii_digit);
        match self {
            Self::Bool => out.put_slice(if text == b"t" { b"true" } else { b"false" }),
            Self::Number if is_number(text) => out.put_slice(text),
            Self::Json => {
                // Line ends in json's text are blanks between tokens: strings cannot hold them unescaped.
                out.extend(
                    text.iter()
                        .map(|byte| if matches!(byte, b'\n' | b'\r') { b' ' } else { *byte }),
                );
            }
            Self::Time | Self::String | Self::Number => {
                if self == Self::Time
                    && let Some(blank) = text.iter().position(|byte| *byte == b' ')
                {
                    text[blank] = b'T';
                }
                let mut quoted = String::with_capacity(text.len() + 2);
                write_string(&String::from_utf8_lossy(text), &mut quoted);
                out.put_slice(quoted.as_bytes());
            }
        }
    }
}

impl Lines<'_> {
    /// Writes the line of a row.
    pub(super) fn write(&mut self, row: usize, out: &mut BytesMut) {
        match self.form {
            Some(form) => self.write_csv_line(form, row, out),
            None => self.write_json_line(row, out),
        }
        out.put_u8(b'\n');
    }

    fn write_csv_line(&mut self, form: &CsvForm, row: usize, out: &mut BytesMut) {
        let mut is_first = true;
        if self.content == Content::Changes {
            write_integer(self.epoch as i64, out);
            out.put_u8(form.delimiter);
            write_integer(self.weights.at(row), out);
            is_first = false;
        }
        for (_, value) in &self.columns {
            if !is_first {
                out.put_u8(form.delimiter);
            }
            is_first = false;
            let Value::Text(writer, _) = value else {
                continue;
            };
            if writer.is_null(row) {
                out.put_slice(form.null.as_bytes());
            } else {
                self.scratch.clear();
                writer.write(row, &mut self.scratch);
                write_csv(form, &self.scratch, out);
            }
        }
    }

    fn write_json_line(&mut self, row: usize, out: &mut BytesMut) {
        out.put_u8(b'{');
        let mut is_first = true;
        if self.content == Content::Changes {
            out.put_slice(b"\"epoch\":");
            write_integer(self.epoch as i64, out);
            out.put_slice(b",\"diff\":");
            write_integer(self.weights.at(row), out);
            is_first = false;
        }
        for (name, value) in &self.columns {
            if !is_first {
                out.put_u8(b',');
            }
            is_first = false;
            out.put_slice(name.as_bytes());
            out.put_u8(b':');
            value.write_json(row, &mut self.scratch, out);
        }
        out.put_u8(b'}');
    }
}

/// Writes a value that is not NULL, in quotes if it needs them.
fn write_csv(form: &CsvForm, text: &[u8], out: &mut BytesMut) {
    let is_special = |byte: &u8| *byte == form.delimiter || *byte == form.quote || matches!(byte, b'\n' | b'\r');
    if text != form.null.as_bytes() && !text.is_empty() && !text.iter().any(is_special) {
        out.put_slice(text);
        return;
    }
    out.put_u8(form.quote);
    for byte in text {
        if *byte == form.quote {
            out.put_u8(form.quote);
        }
        out.put_u8(*byte);
    }
    out.put_u8(form.quote);
}
