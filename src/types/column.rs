//! A column in the making: values come as PostgreSQL's text or binary, one by one, and leave as an Arrow array.
//!
//! COPY, the parameters of prepared statements and casts from text all read values here, so that they accept the same
//! things and refuse the rest in the same words.

use super::Type;
use super::array::{self, Element};
use super::calendar::{
    DATE_INFINITY, DATE_MINUS_INFINITY, DAY_END, DAY_MICROS, DAY_MIN, POSTGRES_EPOCH_DAYS, POSTGRES_EPOCH_MICROS,
    TIMESTAMP_INFINITY, TIMESTAMP_MINUS_INFINITY,
};
use super::datetime::{read_date, read_time, read_timestamp, read_timestamptz, round_timestamp};
use super::numeric::{Shape, read_decimal, read_decimal_binary};
use super::scalar::{fitted, read_bool, read_bytea, read_integer, read_oid, read_uuid, utf8, uuid_text};
use super::settings::Settings;
use super::{float, interval, json};
use crate::error::{Error, Result};
use arrow::array::{
    ArrayRef, BinaryBuilder, BooleanBuilder, Date32Builder, Decimal128Builder, Decimal256Builder, Float32Builder,
    Float64Builder, Int16Builder, Int32Builder, Int64Builder, IntervalMonthDayNanoBuilder, ListArray, NullArray,
    StringBuilder, StructArray, Time64MicrosecondBuilder, TimestampMicrosecondBuilder,
};
use arrow::buffer::{NullBuffer, OffsetBuffer};
use arrow::datatypes::{DataType, IntervalMonthDayNano};
use bytes::Buf;
use std::sync::Arc;

/// Builds one column of a type.
#[derive(Debug)]
pub struct ColumnBuilder {
    kind: Type,
    settings: Settings,
    values: Builder,
}

#[derive(Debug)]
enum Builder {
    Null(usize),
    Bool(BooleanBuilder),
    Int2(Int16Builder),
    Int4(Int32Builder),
    Int8(Int64Builder),
    Float4(Float32Builder),
    Float8(Float64Builder),
    Decimal128(Decimal128Builder, Shape),
    Decimal256(Decimal256Builder, Shape),
    Text(StringBuilder),
    Bytea(BinaryBuilder),
    Date(Date32Builder),
    Time(Time64MicrosecondBuilder),
    Timestamp(TimestampMicrosecondBuilder),
    Interval(IntervalMonthDayNanoBuilder),
    List {
        offsets: Vec<i32>,
        valid: Vec<bool>,
        elements: Box<ColumnBuilder>,
    },
    Record {
        valid: Vec<bool>,
        fields: Vec<ColumnBuilder>,
    },
}

impl ColumnBuilder {
    /// An empty column of a type, read under the default settings.
    pub fn new(kind: &Type) -> Self {
        let values = match kind {
            Type::Unknown => Builder::Null(0),
            Type::Bool => Builder::Bool(BooleanBuilder::new()),
            Type::Int2 => Builder::Int2(Int16Builder::new()),
            Type::Int4 => Builder::Int4(Int32Builder::new()),
            Type::Int8 | Type::Oid(_) => Builder::Int8(Int64Builder::new()),
            Type::Float4 => Builder::Float4(Float32Builder::new()),
            Type::Float8 => Builder::Float8(Float64Builder::new()),
            Type::Numeric(declared) => decimal(kind, declared.is_some()),
            Type::Quotient => decimal(kind, false),
            Type::Text
            | Type::Varchar(_)
            | Type::Char(_)
            | Type::Uuid
            | Type::Json
            | Type::Jsonb
            | Type::Name
            | Type::InternalChar => Builder::Text(StringBuilder::new()),
            Type::Bytea => Builder::Bytea(BinaryBuilder::new()),
            Type::Date => Builder::Date(Date32Builder::new()),
            Type::Time => Builder::Time(Time64MicrosecondBuilder::new()),
            Type::Timestamp(_) | Type::Timestamptz(_) => {
                Builder::Timestamp(TimestampMicrosecondBuilder::new().with_data_type(kind.arrow()))
            }
            Type::Interval => Builder::Interval(IntervalMonthDayNanoBuilder::new()),
            Type::Array(element) => Builder::List {
                offsets: vec![0],
                valid: Vec::new(),
                elements: Box::new(Self::new(element)),
            },
            Type::Record(fields) => Builder::Record {
                valid: Vec::new(),
                fields: fields.iter().map(|(_, kind)| Self::new(kind)).collect(),
            },
        };
        Self {
            kind: kind.clone(),
            settings: Settings::default(),
            values,
        }
    }

    /// Reads under a session's settings.
    #[must_use]
    pub fn with_settings(mut self, settings: Settings) -> Self {
        self.settings = settings;
        match &mut self.values {
            Builder::List { elements, .. } => {
                let plain = std::mem::replace(elements.as_mut(), Self::new(&Type::Unknown));
                **elements = plain.with_settings(settings);
            }
            Builder::Record { fields, .. } => {
                let plain = std::mem::take(fields);
                *fields = plain.into_iter().map(|field| field.with_settings(settings)).collect();
            }
            _ => {}
        }
        self
    }

    /// The type of the column.
    pub fn kind(&self) -> &Type {
        &self.kind
    }

    /// The number of values so far.
    pub fn len(&self) -> usize {
        use arrow::array::ArrayBuilder;
        match &self.values {
            Builder::Null(count) => *count,
            Builder::Bool(builder) => builder.len(),
            Builder::Int2(builder) => builder.len(),
            Builder::Int4(builder) => builder.len(),
            Builder::Int8(builder) => builder.len(),
            Builder::Float4(builder) => builder.len(),
            Builder::Float8(builder) => builder.len(),
            Builder::Decimal128(builder, _) => builder.len(),
            Builder::Decimal256(builder, _) => builder.len(),
            Builder::Text(builder) => builder.len(),
            Builder::Bytea(builder) => builder.len(),
            Builder::Date(builder) => builder.len(),
            Builder::Time(builder) => builder.len(),
            Builder::Timestamp(builder) => builder.len(),
            Builder::Interval(builder) => builder.len(),
            Builder::List { valid, .. } | Builder::Record { valid, .. } => valid.len(),
        }
    }

    /// Whether there is no value yet.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Appends NULL.
    pub fn push_null(&mut self) {
        match &mut self.values {
            Builder::Null(count) => *count += 1,
            Builder::Bool(builder) => builder.append_null(),
            Builder::Int2(builder) => builder.append_null(),
            Builder::Int4(builder) => builder.append_null(),
            Builder::Int8(builder) => builder.append_null(),
            Builder::Float4(builder) => builder.append_null(),
            Builder::Float8(builder) => builder.append_null(),
            Builder::Decimal128(builder, _) => builder.append_null(),
            Builder::Decimal256(builder, _) => builder.append_null(),
            Builder::Text(builder) => builder.append_null(),
            Builder::Bytea(builder) => builder.append_null(),
            Builder::Date(builder) => builder.append_null(),
            Builder::Time(builder) => builder.append_null(),
            Builder::Timestamp(builder) => builder.append_null(),
            Builder::Interval(builder) => builder.append_null(),
            Builder::List {
                offsets,
                valid,
                elements,
            } => {
                offsets.push(elements.len() as i32);
                valid.push(false);
            }
            Builder::Record { valid, fields } => {
                fields.iter_mut().for_each(Self::push_null);
                valid.push(false);
            }
        }
    }

    /// Appends a value from its text; `None` is NULL. Nothing is appended on an error, but parts of an array may be:
    /// a builder that has failed is to be thrown away.
    pub fn push_text(&mut self, text: Option<&str>) -> Result<()> {
        let Some(text) = text else {
            self.push_null();
            return Ok(());
        };
        let settings = &self.settings;
        match &mut self.values {
            Builder::Null(_) => {
                return Err(Error::semantic("42P18", "could not determine the data type of a value"));
            }
            Builder::Bool(builder) => builder.append_value(read_bool(text)?),
            Builder::Int2(builder) => builder.append_value(read_integer(text, "smallint")?),
            Builder::Int4(builder) => builder.append_value(read_integer(text, "integer")?),
            Builder::Int8(builder) => builder.append_value(match &self.kind {
                Type::Oid(name) => i64::from(read_oid(text, name)?),
                _ => read_integer(text, "bigint")?,
            }),
            Builder::Float4(builder) => builder.append_value(float::read_float4(text)?),
            Builder::Float8(builder) => builder.append_value(float::read_float8(text)?),
            Builder::Decimal128(builder, shape) => {
                let value = read_decimal(text, *shape)?;
                builder.append_value(value.to_i128().ok_or_else(too_many_digits)?);
            }
            Builder::Decimal256(builder, shape) => {
                builder.append_value(read_decimal(text, *shape)?);
            }
            Builder::Text(builder) => push_characters(&self.kind, text, builder)?,
            Builder::Bytea(builder) => builder.append_value(read_bytea(text)?),
            Builder::Date(builder) => builder.append_value(read_date(text, settings)?),
            Builder::Time(builder) => builder.append_value(read_time(text, settings)?),
            Builder::Timestamp(builder) => {
                let micros = match &self.kind {
                    Type::Timestamp(_) => read_timestamp(text, settings)?,
                    _ => read_timestamptz(text, settings)?,
                };
                builder.append_value(rounded(&self.kind, micros));
            }
            Builder::Interval(builder) => builder.append_value(interval::read_interval(text)?),
            Builder::List { .. } => {
                let elements = array::parse(text)?;
                self.push_elements(&elements)?;
            }
            Builder::Record { .. } => {
                return Err(Error::unsupported(
                    "input of anonymous composite types is not implemented",
                ));
            }
        }
        Ok(())
    }

    fn push_elements(&mut self, list: &[Element<'_>]) -> Result<()> {
        let Builder::List {
            offsets,
            valid,
            elements,
        } = &mut self.values
        else {
            return Err(Error::unsupported(format!(
                "an array of more dimensions than its type {}[] declares is not supported",
                self.kind
            )));
        };
        for element in list {
            match element {
                Element::Null => elements.push_null(),
                Element::List(inner) => elements.push_elements(inner)?,
                Element::Text(_) if matches!(elements.values, Builder::List { .. }) => {
                    return Err(Error::unsupported(format!(
                        "an array of fewer dimensions than its type {} declares is not supported",
                        self.kind
                    )));
                }
                Element::Text(text) => elements.push_text(Some(text))?,
            }
        }
        offsets.push(elements.len() as i32);
        valid.push(true);
        Ok(())
    }

    /// Appends a value from its binary form; `None` is NULL. On an error, the same holds as for
    /// [`ColumnBuilder::push_text`].
    pub fn push_binary(&mut self, bytes: Option<&[u8]>) -> Result<()> {
        let Some(bytes) = bytes else {
            self.push_null();
            return Ok(());
        };
        match &mut self.values {
            Builder::Null(_) => {
                return Err(Error::semantic("42P18", "could not determine the data type of a value"));
            }
            Builder::Bool(builder) => builder.append_value(u8::from_be_bytes(exact(bytes)?) != 0),
            Builder::Int2(builder) => builder.append_value(i16::from_be_bytes(exact(bytes)?)),
            Builder::Int4(builder) => builder.append_value(i32::from_be_bytes(exact(bytes)?)),
            Builder::Int8(builder) => builder.append_value(match &self.kind {
                Type::Oid(_) => i64::from(u32::from_be_bytes(exact(bytes)?)),
                _ => i64::from_be_bytes(exact(bytes)?),
            }),
            Builder::Float4(builder) => builder.append_value(f32::from_be_bytes(exact(bytes)?)),
            Builder::Float8(builder) => builder.append_value(f64::from_be_bytes(exact(bytes)?)),
            Builder::Decimal128(builder, shape) => {
                let value = read_decimal_binary(bytes, *shape)?;
                builder.append_value(value.to_i128().ok_or_else(too_many_digits)?);
            }
            Builder::Decimal256(builder, shape) => {
                builder.append_value(read_decimal_binary(bytes, *shape)?);
            }
            Builder::Text(builder) => push_binary_characters(&self.kind, bytes, builder)?,
            Builder::Bytea(builder) => builder.append_value(bytes),
            Builder::Date(builder) => {
                builder.append_value(date_of_binary(i32::from_be_bytes(exact(bytes)?))?);
            }
            Builder::Time(builder) => {
                let micros = i64::from_be_bytes(exact(bytes)?);
                if !(0..=DAY_MICROS).contains(&micros) {
                    return Err(Error::semantic("22008", "time out of range"));
                }
                builder.append_value(micros);
            }
            Builder::Timestamp(builder) => {
                let micros = timestamp_of_binary(i64::from_be_bytes(exact(bytes)?))?;
                builder.append_value(rounded(&self.kind, micros));
            }
            Builder::Interval(builder) => builder.append_value(interval_of_binary(bytes)?),
            Builder::List { .. } => self.push_binary_list(bytes)?,
            Builder::Record { valid, fields } => {
                push_binary_record(bytes, fields)?;
                valid.push(true);
            }
        }
        Ok(())
    }

    fn push_binary_list(&mut self, mut bytes: &[u8]) -> Result<()> {
        if bytes.len() < 12 {
            return Err(malformed());
        }
        let dimensions = bytes.get_i32();
        let _has_nulls = bytes.get_i32();
        let element = bytes.get_u32();
        if !(0..=6).contains(&dimensions) || bytes.len() < dimensions as usize * 8 {
            return Err(malformed());
        }
        let expected = self.kind.innermost().oid();
        if element != expected {
            return Err(Error::semantic("42804", "wrong element type"));
        }
        let mut lengths = Vec::new();
        for _ in 0..dimensions {
            let length = usize::try_from(bytes.get_i32()).map_err(|_| malformed())?;
            let _lower_bound = bytes.get_i32();
            lengths.push(length);
        }
        let lengths = if lengths.is_empty() { vec![0] } else { lengths };
        self.push_binary_dimension(&lengths, &mut bytes)?;
        if bytes.is_empty() { Ok(()) } else { Err(malformed()) }
    }

    fn push_binary_dimension(&mut self, lengths: &[usize], bytes: &mut &[u8]) -> Result<()> {
        let wrong = Error::unsupported(format!(
            "an array of another number of dimensions than its type {} declares is not supported",
            self.kind
        ));
        let Builder::List {
            offsets,
            valid,
            elements,
        } = &mut self.values
        else {
            return Err(wrong);
        };
        let Some((length, inner)) = lengths.split_first() else {
            return Err(wrong);
        };
        for _ in 0..*length {
            if !inner.is_empty() {
                elements.push_binary_dimension(inner, bytes)?;
            } else if matches!(elements.values, Builder::List { .. }) {
                return Err(wrong);
            } else {
                elements.push_binary(sized(bytes)?)?;
            }
        }
        offsets.push(elements.len() as i32);
        valid.push(true);
        Ok(())
    }

    /// The column; the builder is empty afterwards.
    pub fn finish(&mut self) -> ArrayRef {
        match &mut self.values {
            Builder::Null(count) => Arc::new(NullArray::new(std::mem::take(count))),
            Builder::Bool(builder) => Arc::new(builder.finish()),
            Builder::Int2(builder) => Arc::new(builder.finish()),
            Builder::Int4(builder) => Arc::new(builder.finish()),
            Builder::Int8(builder) => Arc::new(builder.finish()),
            Builder::Float4(builder) => Arc::new(builder.finish()),
            Builder::Float8(builder) => Arc::new(builder.finish()),
            Builder::Decimal128(builder, _) => Arc::new(builder.finish()),
            Builder::Decimal256(builder, _) => Arc::new(builder.finish()),
            Builder::Text(builder) => Arc::new(builder.finish()),
            Builder::Bytea(builder) => Arc::new(builder.finish()),
            Builder::Date(builder) => Arc::new(builder.finish()),
            Builder::Time(builder) => Arc::new(builder.finish()),
            Builder::Timestamp(builder) => Arc::new(builder.finish()),
            Builder::Interval(builder) => Arc::new(builder.finish()),
            Builder::List {
                offsets,
                valid,
                elements,
            } => {
                let offsets = std::mem::replace(offsets, vec![0]);
                let DataType::List(field) = self.kind.arrow() else {
                    return Arc::new(NullArray::new(0));
                };
                Arc::new(ListArray::new(
                    field,
                    OffsetBuffer::new(offsets.into()),
                    elements.finish(),
                    Some(NullBuffer::from(std::mem::take(valid))),
                ))
            }
            Builder::Record { valid, fields } => {
                let DataType::Struct(kinds) = self.kind.arrow() else {
                    return Arc::new(NullArray::new(0));
                };
                let valid = std::mem::take(valid);
                if kinds.is_empty() {
                    let nulls = Some(NullBuffer::from(valid.clone()));
                    return Arc::new(StructArray::new_empty_fields(valid.len(), nulls));
                }
                let columns = fields.iter_mut().map(Self::finish).collect();
                Arc::new(StructArray::new(kinds, columns, Some(NullBuffer::from(valid))))
            }
        }
    }
}

impl Type {
    /// The type of the values within all dimensions of an array; the type itself otherwise.
    pub fn innermost(&self) -> &Self {
        match self {
            Self::Array(element) => element.innermost(),
            other => other,
        }
    }
}

fn decimal(kind: &Type, declared: bool) -> Builder {
    let shape = |precision, scale| Shape {
        precision,
        scale,
        declared,
    };
    match kind.arrow() {
        DataType::Decimal128(precision, scale) => Builder::Decimal128(
            Decimal128Builder::new().with_data_type(kind.arrow()),
            shape(precision, scale),
        ),
        DataType::Decimal256(precision, scale) => Builder::Decimal256(
            Decimal256Builder::new().with_data_type(kind.arrow()),
            shape(precision, scale),
        ),
        _ => Builder::Null(0),
    }
}

fn too_many_digits() -> Error {
    Error::semantic("22003", "value overflows numeric format")
}

fn malformed() -> Error {
    Error::semantic("22P03", "incorrect binary data format")
}

fn exact<const N: usize>(bytes: &[u8]) -> Result<[u8; N]> {
    bytes.try_into().map_err(|_| malformed())
}

/// The next value of a composite binary form, after its length; `None` for NULL.
fn sized<'a>(bytes: &mut &'a [u8]) -> Result<Option<&'a [u8]>> {
    if bytes.len() < 4 {
        return Err(malformed());
    }
    let length = bytes.get_i32();
    if length == -1 {
        return Ok(None);
    }
    let length = usize::try_from(length).map_err(|_| malformed())?;
    let (value, rest) = bytes.split_at_checked(length).ok_or_else(malformed)?;
    *bytes = rest;
    Ok(Some(value))
}

fn push_characters(kind: &Type, text: &str, builder: &mut StringBuilder) -> Result<()> {
    match kind {
        Type::Uuid => builder.append_value(uuid_text(read_uuid(text)?)),
        Type::Json => {
            json::check(text)?;
            builder.append_value(text);
        }
        Type::Jsonb => builder.append_value(json::normalize(text)?),
        _ => builder.append_value(fitted(kind, text)?),
    }
    Ok(())
}

fn push_binary_characters(kind: &Type, bytes: &[u8], builder: &mut StringBuilder) -> Result<()> {
    match kind {
        Type::Uuid => {
            builder.append_value(uuid_text(u128::from_be_bytes(exact(bytes)?)));
            Ok(())
        }
        Type::Jsonb => match bytes.split_first() {
            Some((1, text)) => push_characters(kind, utf8(text)?, builder),
            Some((version, _)) => Err(Error::semantic(
                "22P03",
                format!("unsupported jsonb version number {version}"),
            )),
            None => Err(malformed()),
        },
        _ => push_characters(kind, utf8(bytes)?, builder),
    }
}

fn push_binary_record(mut bytes: &[u8], fields: &mut [ColumnBuilder]) -> Result<()> {
    if bytes.len() < 4 || bytes.get_i32() as usize != fields.len() {
        return Err(malformed());
    }
    for field in fields {
        if bytes.len() < 4 {
            return Err(malformed());
        }
        let kind = bytes.get_u32();
        if kind != field.kind.oid() {
            return Err(Error::semantic("42804", "wrong data type in a composite value"));
        }
        field.push_binary(sized(&mut bytes)?)?;
    }
    if bytes.is_empty() { Ok(()) } else { Err(malformed()) }
}

fn date_of_binary(days: i32) -> Result<i32> {
    if matches!(days, DATE_INFINITY | DATE_MINUS_INFINITY) {
        return Ok(days);
    }
    days.checked_add(POSTGRES_EPOCH_DAYS)
        .filter(|days| (DAY_MIN..DAY_END).contains(&i64::from(*days)))
        .ok_or_else(|| Error::semantic("22008", "date out of range"))
}

fn timestamp_of_binary(micros: i64) -> Result<i64> {
    if matches!(micros, TIMESTAMP_INFINITY | TIMESTAMP_MINUS_INFINITY) {
        return Ok(micros);
    }
    micros
        .checked_add(POSTGRES_EPOCH_MICROS)
        .filter(|micros| (DAY_MIN * DAY_MICROS..DAY_END * DAY_MICROS).contains(micros))
        .ok_or_else(|| Error::semantic("22008", "timestamp out of range"))
}

fn interval_of_binary(bytes: &[u8]) -> Result<IntervalMonthDayNano> {
    let mut bytes: &[u8] = &exact::<16>(bytes)?;
    let nanoseconds = bytes
        .get_i64()
        .checked_mul(1_000)
        .ok_or_else(|| Error::semantic("22008", "interval out of range"))?;
    let days = bytes.get_i32();
    let months = bytes.get_i32();
    Ok(IntervalMonthDayNano {
        months,
        days,
        nanoseconds,
    })
}

fn rounded(kind: &Type, micros: i64) -> i64 {
    match kind {
        Type::Timestamp(Some(digits)) | Type::Timestamptz(Some(digits)) => round_timestamp(micros, *digits),
        _ => micros,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_builder_is_empty_after_it_finished() {
        for kind in [
            Type::Int4,
            Type::Array(Box::new(Type::Text)),
            Type::Record(vec![("a".to_owned(), Type::Int4)]),
            Type::Record(Vec::new()),
            Type::Unknown,
            Type::Timestamptz(None),
            Type::Numeric(None),
        ] {
            let mut builder = ColumnBuilder::new(&kind);
            builder.push_null();
            builder.push_null();
            assert_eq!(builder.len(), 2, "{kind}");
            let array = builder.finish();
            assert_eq!(array.len(), 2, "{kind}");
            assert_eq!(array.data_type(), &kind.arrow(), "{kind}");
            assert_eq!(array.logical_null_count(), 2, "{kind}");
            assert!(builder.is_empty());
            assert_eq!(builder.finish().len(), 0, "{kind}");
        }
    }

    #[test]
    fn arrays_of_other_dimensions_are_refused() {
        let mut flat = ColumnBuilder::new(&Type::Array(Box::new(Type::Int4)));
        assert_eq!(flat.push_text(Some("{{1}}")).unwrap_err().code(), "0A000");
        let mut square = ColumnBuilder::new(&Type::Array(Box::new(Type::Array(Box::new(Type::Int4)))));
        assert_eq!(square.push_text(Some("{1}")).unwrap_err().code(), "0A000");
    }

    #[test]
    fn settings_reach_the_elements_of_arrays() {
        let settings = Settings {
            time_zone: super::super::calendar::Zone::Fixed(3600),
            ..Settings::default()
        };
        let kind = Type::Array(Box::new(Type::Timestamptz(None)));
        let mut builder = ColumnBuilder::new(&kind).with_settings(settings);
        builder.push_text(Some("{2024-01-01}")).unwrap();
        let text = super::super::text::column_to_text(&kind, &builder.finish(), &Settings::default());
        assert_eq!(text.unwrap().value(0), "{\"2023-12-31 23:00:00+00\"}");
    }
}
