//! Values as PostgreSQL's text: what a client sees, what COPY writes, what a cast to `text` gives.
//!
//! [`TextWriter`] is made once per column and then writes its cells one by one into a buffer. Reading text is
//! [`super::ColumnBuilder`]'s.

pub use super::scalar::{utf8, uuid_text};
pub use super::settings::{DateOrder, Settings};

use super::Type;
use super::calendar::Zone;
use super::cells::{Cells, Values};
use super::datetime::{write_date, write_time, write_timestamp, write_timestamptz};
use super::float::{write_float4, write_float8};
use super::interval::write_interval;
use super::numeric::write_decimal;
use crate::error::Result;
use arrow::array::{Array, ArrayRef};
use arrow::datatypes::i256;
use bytes::{BufMut, BytesMut};

/// Writes the cells of one column as text.
#[derive(Debug)]
pub struct TextWriter {
    cells: Cells,
    zone: Zone,
}

impl TextWriter {
    /// A writer for a column.
    pub fn for_column(kind: &Type, array: &ArrayRef, settings: &Settings) -> Result<Self> {
        Ok(Self {
            cells: Cells::of(kind, array)?,
            zone: settings.time_zone,
        })
    }

    /// Whether a cell is NULL, which has no text.
    pub fn is_null(&self, row: usize) -> bool {
        self.cells.is_null(row)
    }

    /// Appends the text of a cell; nothing for NULL.
    pub fn write(&self, row: usize, out: &mut BytesMut) {
        if !self.cells.is_null(row) {
            write_value(&self.cells, row, &self.zone, out);
        }
    }
}

/// The text of a whole column, as its type's output function gives it. A cast to `text` differs in two types: it
/// writes booleans in full, and `char(n)` without its padding.
pub fn column_to_text(kind: &Type, array: &ArrayRef, settings: &Settings) -> Result<arrow::array::StringArray> {
    let writer = TextWriter::for_column(kind, array, settings)?;
    let mut builder = arrow::array::StringBuilder::with_capacity(array.len(), array.len() * 8);
    let mut scratch = BytesMut::new();
    for row in 0..array.len() {
        if writer.is_null(row) {
            builder.append_null();
            continue;
        }
        scratch.clear();
        writer.write(row, &mut scratch);
        builder.append_value(String::from_utf8_lossy(&scratch));
    }
    Ok(builder.finish())
}

fn write_value(cells: &Cells, row: usize, zone: &Zone, out: &mut BytesMut) {
    match &cells.values {
        Values::Null => {}
        Values::Bool(array) => out.put_u8(if array.value(row) { b't' } else { b'f' }),
        Values::Int2(array) => write_integer(i64::from(array.value(row)), out),
        Values::Int4(array) => write_integer(i64::from(array.value(row)), out),
        Values::Int8(array) | Values::Oid(array) => write_integer(array.value(row), out),
        Values::Float4(array) => write_float4(array.value(row), out),
        Values::Float8(array) => write_float8(array.value(row), out),
        Values::Decimal128(array, scale, digits) => {
            write_decimal(i256::from_i128(array.value(row)), *scale, *digits, out);
        }
        Values::Decimal256(array, scale, digits) => {
            write_decimal(array.value(row), *scale, *digits, out);
        }
        Values::Text(strings) | Values::Uuid(strings) | Values::Jsonb(strings) => {
            out.put_slice(strings.value(row).as_bytes());
        }
        Values::Padded(strings, length) => {
            let text = strings.value(row);
            out.put_slice(text.as_bytes());
            for _ in text.chars().count()..*length {
                out.put_u8(b' ');
            }
        }
        Values::Bytea(array) => write_hex(array.value(row), out),
        Values::Date(array) => write_date(array.value(row), out),
        Values::Time(array) => write_time(array.value(row), out),
        Values::Timestamp(array) => write_timestamp(array.value(row), out),
        Values::Timestamptz(array) => write_timestamptz(array.value(row), zone, out),
        Values::Interval(array) => write_interval(array.value(row), out),
        Values::List { lists, elements, .. } => {
            let offsets = lists.value_offsets();
            let range = offsets[row] as usize..offsets[row + 1] as usize;
            write_list(elements, range, zone, out);
        }
        Values::Record(fields) => {
            out.put_u8(b'(');
            for (index, (field, _)) in fields.iter().enumerate() {
                if index > 0 {
                    out.put_u8(b',');
                }
                if !field.is_null(row) {
                    let start = out.len();
                    write_value(field, row, zone, out);
                    quote(out, start, needs_quotes_in_record, Escape::Doubled);
                }
            }
            out.put_u8(b')');
        }
    }
}

fn write_list(elements: &Cells, range: std::ops::Range<usize>, zone: &Zone, out: &mut BytesMut) {
    let nested = matches!(elements.values, Values::List { .. });
    out.put_u8(b'{');
    for (count, index) in range.enumerate() {
        if count > 0 {
            out.put_u8(b',');
        }
        if elements.is_null(index) {
            out.put_slice(b"NULL");
            continue;
        }
        let start = out.len();
        write_value(elements, index, zone, out);
        if !nested {
            quote(out, start, needs_quotes_in_array, Escape::Backslash);
        }
    }
    out.put_u8(b'}');
}

/// How a quote inside quotes is written.
#[derive(Clone, Copy)]
enum Escape {
    Backslash,
    Doubled,
}

/// Puts what was written since `start` in quotes if it needs them.
fn quote(out: &mut BytesMut, start: usize, needed: fn(&[u8]) -> bool, escape: Escape) {
    if !needed(&out[start..]) {
        return;
    }
    let plain = out.split_off(start);
    out.put_u8(b'"');
    for byte in plain {
        match (byte, escape) {
            (b'"', Escape::Doubled) => out.put_u8(b'"'),
            (b'"', Escape::Backslash) => out.put_u8(b'\\'),
            (b'\\', _) => out.put_u8(b'\\'),
            _ => {}
        }
        out.put_u8(byte);
    }
    out.put_u8(b'"');
}

fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r' | 0x0b | 0x0c)
}

fn needs_quotes_in_array(text: &[u8]) -> bool {
    text.is_empty()
        || text.eq_ignore_ascii_case(b"null")
        || text
            .iter()
            .any(|byte| matches!(byte, b'"' | b'\\' | b'{' | b'}' | b',') || is_blank(*byte))
}

fn needs_quotes_in_record(text: &[u8]) -> bool {
    text.is_empty()
        || text
            .iter()
            .any(|byte| matches!(byte, b'"' | b'\\' | b'(' | b')' | b',') || is_blank(*byte))
}

/// Writes an integer.
pub fn write_integer(value: i64, out: &mut BytesMut) {
    let mut digits = [0_u8; 20];
    let mut at = digits.len();
    let mut rest = value.unsigned_abs();
    loop {
        at -= 1;
        digits[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    if value < 0 {
        out.put_u8(b'-');
    }
    out.put_slice(&digits[at..]);
}

/// Writes bytes in `bytea`'s hex form: `\x00ff`.
pub fn write_hex(bytes: &[u8], out: &mut BytesMut) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    out.reserve(2 + bytes.len() * 2);
    out.put_slice(b"\\x");
    for byte in bytes {
        out.put_u8(DIGITS[usize::from(byte >> 4)]);
        out.put_u8(DIGITS[usize::from(byte & 15)]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::ColumnBuilder;

    fn round_trip(kind: &Type, text: &str) -> String {
        let settings = Settings {
            time_zone: Zone::parse("Europe/Berlin").unwrap(),
            ..Settings::default()
        };
        let mut builder = ColumnBuilder::new(kind).with_settings(settings);
        builder
            .push_text(Some(text))
            .unwrap_or_else(|error| panic!("{kind} {text}: {error}"));
        builder.push_null();
        let array = builder.finish();
        assert_eq!(array.data_type(), &kind.arrow());
        let writer = TextWriter::for_column(kind, &array, &settings).unwrap();
        assert!(writer.is_null(1));
        let mut out = BytesMut::new();
        writer.write(0, &mut out);
        String::from_utf8(out.to_vec()).unwrap()
    }

    fn array(element: Type) -> Type {
        Type::Array(Box::new(element))
    }

    #[test]
    fn every_type_shows_what_was_read() {
        for (kind, text, shows) in [
            (Type::Bool, " YES ", "t"),
            (Type::Bool, "off", "f"),
            (Type::Int2, "-32768", "-32768"),
            (Type::Int4, " 42 ", "42"),
            (Type::Int8, "-9223372036854775808", "-9223372036854775808"),
            (Type::Oid("oid".to_owned()), "4294967295", "4294967295"),
            (Type::Float8, "1e20", "1e+20"),
            (Type::Float4, "0.1", "0.1"),
            (Type::Numeric(Some((10, 2))), "1.5", "1.50"),
            (Type::Numeric(Some((50, 3))), "-1.5", "-1.500"),
            (Type::Numeric(None), "1.50", "1.5"),
            (Type::Quotient, "7", "7.0000000000000000"),
            (Type::Text, " a b ", " a b "),
            (Type::Varchar(Some(3)), "abc  ", "abc"),
            (Type::Varchar(Some(3)), "ab ", "ab "),
            (Type::Char(Some(5)), "ab", "ab   "),
            (Type::Char(Some(5)), "ab        ", "ab   "),
            (Type::Bytea, "\\xDEADbeef", "\\xdeadbeef"),
            (Type::Bytea, "a\\\\b\\001", "\\x615c6201"),
            (Type::Date, "0044-03-15 BC", "0044-03-15 BC"),
            (Type::Time, "4:5:6.7", "04:05:06.7"),
            (Type::Timestamp(None), "2024-01-01", "2024-01-01 00:00:00"),
            (
                Type::Timestamp(Some(1)),
                "2024-01-01 00:00:00.25",
                "2024-01-01 00:00:00.3",
            ),
            (Type::Timestamptz(None), "2024-07-01 12:00Z", "2024-07-01 14:00:00+02"),
            (Type::Interval, "1 day 2 hours", "1 day 02:00:00"),
            (
                Type::Uuid,
                "{A0EEBC99-9c0b-4ef8-bb6d-6bb9bd380a11}",
                "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11",
            ),
            (Type::Json, "{\"b\":1,  \"a\":2}", "{\"b\":1,  \"a\":2}"),
            (Type::Jsonb, "{\"b\":1,  \"a\":2}", "{\"a\": 2, \"b\": 1}"),
            (array(Type::Int4), "{1, NULL,3}", "{1,NULL,3}"),
            (array(Type::Int4), "{}", "{}"),
            (
                array(Type::Text),
                "{\"a b\",c,\"\",\"NULL\",\"q\\\"\\\\\",d\\ e}",
                "{\"a b\",c,\"\",\"NULL\",\"q\\\"\\\\\",\"d e\"}",
            ),
            (array(array(Type::Int4)), "{{1,2},{3,4}}", "{{1,2},{3,4}}"),
            (
                array(Type::Timestamp(None)),
                "{2024-01-01}",
                "{\"2024-01-01 00:00:00\"}",
            ),
        ] {
            assert_eq!(round_trip(&kind, text), shows, "{kind} {text}");
        }
    }

    #[test]
    fn records_quote_their_fields() {
        let kind = Type::Record(vec![
            ("a".to_owned(), Type::Int4),
            ("b".to_owned(), Type::Text),
            ("c".to_owned(), Type::Text),
        ]);
        let columns: Vec<ArrayRef> = vec![
            std::sync::Arc::new(arrow::array::Int32Array::from(vec![1])),
            std::sync::Arc::new(arrow::array::StringArray::from(vec!["a \"b"])),
            std::sync::Arc::new(arrow::array::StringArray::from(vec![None::<&str>])),
        ];
        let arrow::datatypes::DataType::Struct(fields) = kind.arrow() else {
            panic!("a record is a struct");
        };
        let array: ArrayRef = std::sync::Arc::new(arrow::array::StructArray::new(fields, columns, None));
        let writer = TextWriter::for_column(&kind, &array, &Settings::default()).unwrap();
        let mut out = BytesMut::new();
        writer.write(0, &mut out);
        assert_eq!(&out[..], b"(1,\"a \"\"b\",)");
    }

    #[test]
    fn other_arrow_types_are_brought_to_the_column_type() {
        let array: ArrayRef = std::sync::Arc::new(arrow::array::TimestampNanosecondArray::from(vec![1_500_000_000]));
        let writer = TextWriter::for_column(&Type::Timestamp(None), &array, &Settings::default()).unwrap();
        let mut out = BytesMut::new();
        writer.write(0, &mut out);
        assert_eq!(&out[..], b"1970-01-01 00:00:01.5");
        let array: ArrayRef = std::sync::Arc::new(arrow::array::UInt64Array::from(vec![u64::MAX]));
        let kind = Type::of_arrow(array.data_type());
        let text = column_to_text(&kind, &array, &Settings::default()).unwrap();
        assert_eq!(text.value(0), "18446744073709551615");
    }
}
