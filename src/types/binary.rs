//! Values in PostgreSQL's binary form: big-endian, times counted from 2000-01-01.
//!
//! [`BinaryWriter`] is made once per column, like its sibling for text. Reading is [`super::ColumnBuilder`]'s.

use super::Type;
use super::calendar::{
    DATE_INFINITY, DATE_MINUS_INFINITY, POSTGRES_EPOCH_DAYS, POSTGRES_EPOCH_MICROS, TIMESTAMP_INFINITY,
    TIMESTAMP_MINUS_INFINITY,
};
use super::cells::{Cells, Values};
use super::numeric::write_decimal_binary;
use crate::error::{Error, Result};
use arrow::array::ArrayRef;
use arrow::datatypes::i256;
use bytes::{BufMut, BytesMut};

/// Writes the cells of one column in binary.
#[derive(Debug)]
pub struct BinaryWriter {
    cells: Cells,
}

impl BinaryWriter {
    /// A writer for a column.
    pub fn for_column(kind: &Type, array: &ArrayRef) -> Result<Self> {
        Ok(Self {
            cells: Cells::of(kind, array)?,
        })
    }

    /// Whether a cell is NULL, which has no bytes.
    pub fn is_null(&self, row: usize) -> bool {
        self.cells.is_null(row)
    }

    /// Appends the bytes of a cell; nothing for NULL. Fails only on an array whose parts differ in length, which
    /// has no binary form.
    pub fn write(&self, row: usize, out: &mut BytesMut) -> Result<()> {
        if self.cells.is_null(row) {
            return Ok(());
        }
        write_value(&self.cells, row, out)
    }
}

fn write_value(cells: &Cells, row: usize, out: &mut BytesMut) -> Result<()> {
    match &cells.values {
        Values::Null => {}
        Values::Bool(array) => out.put_u8(u8::from(array.value(row))),
        Values::Int2(array) => out.put_i16(array.value(row)),
        Values::Int4(array) => out.put_i32(array.value(row)),
        Values::Int8(array) => out.put_i64(array.value(row)),
        Values::Oid(array) => out.put_u32(array.value(row) as u32),
        Values::Float4(array) => out.put_f32(array.value(row)),
        Values::Float8(array) => out.put_f64(array.value(row)),
        Values::Decimal128(array, scale, digits) => {
            write_decimal_binary(i256::from_i128(array.value(row)), *scale, *digits, out);
        }
        Values::Decimal256(array, scale, digits) => {
            write_decimal_binary(array.value(row), *scale, *digits, out);
        }
        Values::Text(strings) => out.put_slice(strings.value(row).as_bytes()),
        Values::Padded(strings, length) => {
            let text = strings.value(row);
            out.put_slice(text.as_bytes());
            for _ in text.chars().count()..*length {
                out.put_u8(b' ');
            }
        }
        Values::Uuid(strings) => write_uuid(strings.value(row), out)?,
        Values::Jsonb(strings) => {
            out.put_u8(1);
            out.put_slice(strings.value(row).as_bytes());
        }
        Values::Bytea(array) => out.put_slice(array.value(row)),
        Values::Date(array) => out.put_i32(match array.value(row) {
            infinite @ (DATE_INFINITY | DATE_MINUS_INFINITY) => infinite,
            days => days.saturating_sub(POSTGRES_EPOCH_DAYS),
        }),
        Values::Time(array) => out.put_i64(array.value(row)),
        Values::Timestamp(array) | Values::Timestamptz(array) => {
            out.put_i64(match array.value(row) {
                infinite @ (TIMESTAMP_INFINITY | TIMESTAMP_MINUS_INFINITY) => infinite,
                micros => micros.saturating_sub(POSTGRES_EPOCH_MICROS),
            });
        }
        Values::Interval(array) => {
            let interval = array.value(row);
            out.put_i64(interval.nanoseconds / 1_000);
            out.put_i32(interval.days);
            out.put_i32(interval.months);
        }
        Values::List { .. } => write_list(cells, row, out)?,
        Values::Record(fields) => {
            out.put_i32(fields.len() as i32);
            for (field, kind) in fields {
                out.put_u32(kind.oid());
                write_sized(field, row, out)?;
            }
        }
    }
    Ok(())
}

/// Writes a cell after its length, -1 for NULL.
fn write_sized(cells: &Cells, row: usize, out: &mut BytesMut) -> Result<()> {
    if cells.is_null(row) {
        out.put_i32(-1);
        return Ok(());
    }
    let start = out.len();
    out.put_i32(0);
    write_value(cells, row, out)?;
    let length = (out.len() - start - 4) as i32;
    out[start..start + 4].copy_from_slice(&length.to_be_bytes());
    Ok(())
}

fn write_uuid(text: &str, out: &mut BytesMut) -> Result<()> {
    let digits = text.bytes().filter(|byte| *byte != b'-');
    let mut value = 0_u128;
    let mut count = 0;
    for digit in digits {
        let digit = char::from(digit)
            .to_digit(16)
            .ok_or_else(|| Error::internal(format!("a stored uuid is not one: \"{text}\"")))?;
        value = value << 4 | u128::from(digit);
        count += 1;
    }
    if count != 32 {
        return Err(Error::internal(format!("a stored uuid is not one: \"{text}\"")));
    }
    out.put_u128(value);
    Ok(())
}

/// Writes an array: its dimensions, then all its elements in order.
fn write_list(cells: &Cells, row: usize, out: &mut BytesMut) -> Result<()> {
    let mut dimensions = Vec::new();
    // The level whose elements are values, and which of them belong to this row.
    let mut level = cells;
    let mut range = row..row + 1;
    let mut innermost = &Type::Unknown;
    while let Values::List {
        lists,
        elements,
        element,
    } = &level.values
    {
        let offsets = lists.value_offsets();
        let length = |index: usize| offsets[index + 1] - offsets[index];
        let first = if range.is_empty() { 0 } else { length(range.start) };
        let ragged = range
            .clone()
            .any(|index| level.is_null(index) || length(index) != first);
        if ragged {
            return Err(
                Error::unsupported("an array whose parts differ in length has no binary form")
                    .with_hint("Ask for the text format."),
            );
        }
        dimensions.push(first);
        range = offsets[range.start] as usize..offsets[range.end] as usize;
        level = elements;
        innermost = element;
    }
    let has_nulls = range.clone().any(|index| level.is_null(index));
    if range.is_empty() {
        dimensions.clear();
    }
    out.put_i32(dimensions.len() as i32);
    out.put_i32(i32::from(has_nulls));
    out.put_u32(innermost.oid());
    for dimension in dimensions {
        out.put_i32(dimension);
        out.put_i32(1);
    }
    for index in range {
        write_sized(level, index, out)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::ColumnBuilder;

    fn binary(kind: &Type, text: &str) -> Vec<u8> {
        let mut builder = ColumnBuilder::new(kind);
        builder.push_text(Some(text)).unwrap();
        let writer = BinaryWriter::for_column(kind, &builder.finish()).unwrap();
        let mut out = BytesMut::new();
        writer.write(0, &mut out).unwrap();
        out.to_vec()
    }

    fn array(element: Type) -> Type {
        Type::Array(Box::new(element))
    }

    #[test]
    fn every_type_comes_back_from_its_binary_form() {
        for (kind, text) in [
            (Type::Bool, "t"),
            (Type::Int2, "-7"),
            (Type::Int4, "70000"),
            (Type::Int8, "-9000000000"),
            (Type::Oid("oid".to_owned()), "4294967295"),
            (Type::Float4, "1.5"),
            (Type::Float8, "-0"),
            (Type::Numeric(Some((10, 2))), "12345.60"),
            (Type::Numeric(None), "-0.001"),
            (Type::Text, "héllo"),
            (Type::Varchar(Some(9)), "abc"),
            (Type::Char(Some(5)), "ab   "),
            (Type::Bytea, "\\x00ff"),
            (Type::Date, "1999-12-31"),
            (Type::Date, "infinity"),
            (Type::Time, "23:59:59.999999"),
            (Type::Timestamp(None), "1999-12-31 23:59:59.5"),
            (Type::Timestamp(None), "-infinity"),
            (Type::Timestamptz(None), "2024-07-01 12:00:00+00"),
            (Type::Interval, "-1 mons +2 days -03:04:05.6"),
            (Type::Uuid, "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"),
            (Type::Json, "[1,  2]"),
            (Type::Jsonb, "[1, 2]"),
            (array(Type::Int4), "{1,NULL,3}"),
            (array(Type::Int4), "{}"),
            (array(array(Type::Text)), "{{a,b},{c,d}}"),
            (Type::Name, "pg_class"),
        ] {
            let bytes = binary(&kind, text);
            let mut builder = ColumnBuilder::new(&kind);
            builder.push_binary(Some(&bytes)).unwrap();
            let settings = super::super::text::Settings::default();
            let shown = super::super::text::column_to_text(&kind, &builder.finish(), &settings).unwrap();
            assert_eq!(shown.value(0), text, "{kind}");
        }
    }

    #[test]
    fn the_bytes_are_those_of_postgresql() {
        assert_eq!(binary(&Type::Date, "2000-01-02"), [0, 0, 0, 1]);
        assert_eq!(
            binary(&Type::Timestamp(None), "2000-01-01 00:00:01"),
            1_000_000_i64.to_be_bytes()
        );
        assert_eq!(binary(&Type::Jsonb, "1"), [1, b'1']);
        assert_eq!(
            binary(&array(Type::Int4), "{7}"),
            [
                0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 23, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 4, 0, 0, 0, 7
            ]
        );
    }

    #[test]
    fn malformed_binary_values_are_refused() {
        for (kind, bytes) in [
            (Type::Int4, &[0, 0, 1][..]),
            (Type::Bool, &[][..]),
            (Type::Jsonb, &[2, b'1'][..]),
            (Type::Uuid, &[0; 15][..]),
            (Type::Text, &[0xff][..]),
            (array(Type::Int4), &[0, 0, 0, 1][..]),
            (Type::Numeric(None), &[0, 1, 0, 0, 0, 0, 0, 0][..]),
        ] {
            let error = ColumnBuilder::new(&kind).push_binary(Some(bytes)).unwrap_err();
            assert!(error.code().starts_with("22"), "{kind}: {error:?}");
        }
    }
}
