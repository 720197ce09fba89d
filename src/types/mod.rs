//! "What is a value?" PostgreSQL's types, and how Arrow carries them.
//!
//! Arrow alone cannot tell `varchar(3)` from `text` or `uuid` from a string, so every column of ours is a [`Type`],
//! and the Arrow [`Field`] made from it carries the name of the type in its metadata under [`TYPE_KEY`] wherever the
//! Arrow data type alone would not say it. [`Type::of_field`] reads it back.
//!
//! | type | Arrow | note |
//! |---|---|---|
//! | `numeric(p,s)`, p <= 38 | `Decimal128(p, s)` | |
//! | `numeric(p,s)`, p <= 76 | `Decimal256(p, s)` | sums |
//! | `numeric` | `Decimal256(76, 38)` | shown without trailing zeros |
//! | a quotient of numerics, `avg` | `Decimal256(76, 36)` | shown with PostgreSQL's 16 significant digits at least |
//! | `uuid`, `json`, `jsonb`, `varchar(n)`, `char(n)` | `Utf8` and metadata | uuid in lower case, jsonb normalised, char trimmed |
//! | `timestamptz` | `Timestamp(Microsecond, "+00:00")` | |
//! | `-infinity`, `infinity` | the least and greatest integer | dates and timestamps |

mod array;
pub mod binary;
pub mod calendar;
mod cells;
mod column;
pub mod copy;
pub mod datetime;
pub mod float;
#[cfg(test)]
mod golden;
pub mod interval;
pub mod json;
pub mod numeric;
pub mod oid;
mod scalar;
mod settings;
pub mod text;

pub use calendar::Zone;
pub use column::ColumnBuilder;

use arrow::datatypes::{DataType, Field, IntervalUnit, TimeUnit};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::sync::Arc;

/// The metadata key of a field under which the PostgreSQL type is kept where Arrow's does not tell it.
pub const TYPE_KEY: &str = "pg_type";

/// The digits after the point of a `numeric` without a scale.
pub const FREE_SCALE: i8 = 38;

/// The digits after the point that are kept of a quotient.
pub const QUOTIENT_SCALE: i8 = 36;

/// A PostgreSQL type.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Type {
    /// The type of a bare `NULL`.
    Unknown,
    /// `boolean`
    Bool,
    /// `smallint`
    Int2,
    /// `integer`
    Int4,
    /// `bigint`
    Int8,
    /// `real`
    Float4,
    /// `double precision`
    Float8,
    /// `numeric`, with precision and scale if they are given.
    Numeric(Option<(u8, i8)>),
    /// The `numeric` that a division or `avg` returns: its scale depends on the value.
    Quotient,
    /// `text`
    Text,
    /// `varchar(n)`
    Varchar(Option<u32>),
    /// `char(n)`
    Char(Option<u32>),
    /// `bytea`
    Bytea,
    /// `date`
    Date,
    /// `time`
    Time,
    /// `timestamp(p)`
    Timestamp(Option<u8>),
    /// `timestamptz(p)`
    Timestamptz(Option<u8>),
    /// `interval`
    Interval,
    /// `uuid`
    Uuid,
    /// `json`
    Json,
    /// `jsonb`
    Jsonb,
    /// An array of one element type.
    Array(Box<Type>),
    /// A row type.
    Record(Vec<(String, Type)>),
    /// `oid` and the `reg*` types, by name.
    Oid(String),
    /// `name`, the catalog's identifiers.
    Name,
    /// `"char"`, one byte in the catalog.
    InternalChar,
}

impl Type {
    /// The Arrow type that carries values of this type.
    pub fn arrow(&self) -> DataType {
        match self {
            Self::Unknown => DataType::Null,
            Self::Bool => DataType::Boolean,
            Self::Int2 => DataType::Int16,
            Self::Int4 => DataType::Int32,
            Self::Int8 | Self::Oid(_) => DataType::Int64,
            Self::Float4 => DataType::Float32,
            Self::Float8 => DataType::Float64,
            Self::Numeric(Some((precision, scale))) if *precision <= 38 => DataType::Decimal128(*precision, *scale),
            Self::Numeric(Some((precision, scale))) => DataType::Decimal256(*precision, *scale),
            Self::Numeric(None) => DataType::Decimal256(76, FREE_SCALE),
            Self::Quotient => DataType::Decimal256(76, QUOTIENT_SCALE),
            Self::Text
            | Self::Varchar(_)
            | Self::Char(_)
            | Self::Uuid
            | Self::Json
            | Self::Jsonb
            | Self::Name
            | Self::InternalChar => DataType::Utf8,
            Self::Bytea => DataType::Binary,
            Self::Date => DataType::Date32,
            Self::Time => DataType::Time64(TimeUnit::Microsecond),
            Self::Timestamp(_) => DataType::Timestamp(TimeUnit::Microsecond, None),
            Self::Timestamptz(_) => DataType::Timestamp(TimeUnit::Microsecond, Some(Arc::from("+00:00"))),
            Self::Interval => DataType::Interval(IntervalUnit::MonthDayNano),
            Self::Array(element) => DataType::List(Arc::new(element.field("item", Nullability::Nullable))),
            Self::Record(fields) => DataType::Struct(
                fields
                    .iter()
                    .map(|(name, kind)| kind.field(name, Nullability::Nullable))
                    .collect(),
            ),
        }
    }

    /// The Arrow field of a column of this type.
    pub fn field(&self, name: impl Into<String>, nullability: Nullability) -> Field {
        let field = Field::new(name, self.arrow(), matches!(nullability, Nullability::Nullable));
        match self.tag() {
            Some(tag) => field.with_metadata(HashMap::from([(TYPE_KEY.to_owned(), tag)])),
            None => field,
        }
    }

    /// The type of a column, from its field's metadata or else from its Arrow type.
    pub fn of_field(field: &Field) -> Self {
        if let Some(known) = field.metadata().get(TYPE_KEY).and_then(|tag| Self::of_tag(tag)) {
            return known;
        }
        Self::of_arrow(field.data_type())
    }

    /// The type that an Arrow type stands for where nothing more is known.
    pub fn of_arrow(data_type: &DataType) -> Self {
        match data_type {
            DataType::Null => Self::Unknown,
            DataType::Boolean => Self::Bool,
            DataType::Int8 | DataType::Int16 | DataType::UInt8 => Self::Int2,
            DataType::Int32 | DataType::UInt16 => Self::Int4,
            DataType::Int64 | DataType::UInt32 | DataType::Duration(_) => Self::Int8,
            DataType::UInt64 => Self::Numeric(Some((20, 0))),
            DataType::Float16 | DataType::Float32 => Self::Float4,
            DataType::Float64 => Self::Float8,
            DataType::Decimal256(76, FREE_SCALE) => Self::Numeric(None),
            DataType::Decimal256(76, QUOTIENT_SCALE) => Self::Quotient,
            DataType::Decimal32(precision, scale)
            | DataType::Decimal64(precision, scale)
            | DataType::Decimal128(precision, scale)
            | DataType::Decimal256(precision, scale) => Self::Numeric(Some((*precision, *scale))),
            DataType::Binary | DataType::LargeBinary | DataType::BinaryView | DataType::FixedSizeBinary(_) => {
                Self::Bytea
            }
            DataType::Date32 | DataType::Date64 => Self::Date,
            DataType::Time32(_) | DataType::Time64(_) => Self::Time,
            DataType::Timestamp(_, None) => Self::Timestamp(None),
            DataType::Timestamp(_, Some(_)) => Self::Timestamptz(None),
            DataType::Interval(_) => Self::Interval,
            DataType::List(item)
            | DataType::LargeList(item)
            | DataType::ListView(item)
            | DataType::LargeListView(item)
            | DataType::FixedSizeList(item, _) => Self::Array(Box::new(Self::of_field(item))),
            DataType::Struct(fields) => Self::Record(
                fields
                    .iter()
                    .map(|field| (field.name().clone(), Self::of_field(field)))
                    .collect(),
            ),
            DataType::Dictionary(_, value) => Self::of_arrow(value),
            _ => Self::Text,
        }
    }

    /// What the metadata says of a type that Arrow's own does not tell; `None` where it does.
    fn tag(&self) -> Option<String> {
        match self {
            Self::Varchar(_)
            | Self::Char(_)
            | Self::Uuid
            | Self::Json
            | Self::Jsonb
            | Self::Oid(_)
            | Self::Name
            | Self::InternalChar
            | Self::Timestamp(Some(_))
            | Self::Timestamptz(Some(_)) => Some(self.to_string()),
            _ => None,
        }
    }

    fn of_tag(tag: &str) -> Option<Self> {
        let (name, argument) = match tag.split_once('(') {
            Some((name, rest)) => (name, rest.trim_end_matches(|c| c != ')').trim_end_matches(')')),
            None => (tag, ""),
        };
        let number = argument.parse::<u32>().ok();
        Some(match name {
            "character varying" => Self::Varchar(number),
            "character" | "bpchar" => Self::Char(number),
            "uuid" => Self::Uuid,
            "json" => Self::Json,
            "jsonb" => Self::Jsonb,
            "name" => Self::Name,
            "\"char\"" => Self::InternalChar,
            "timestamp" if tag.ends_with("with time zone") => Self::Timestamptz(number.map(|n| n as u8)),
            "timestamp" => Self::Timestamp(number.map(|n| n as u8)),
            _ => Self::Oid((*OID_TYPES.iter().find(|known| **known == name)?).to_owned()),
        })
    }
}

/// The types that hold an object identifier.
pub const OID_TYPES: &[&str] = &[
    "oid",
    "regclass",
    "regtype",
    "regproc",
    "regnamespace",
    "regrole",
    "xid",
];

/// Whether a column may hold NULL.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Nullability {
    /// It may.
    Nullable,
    /// It never does.
    NotNull,
}

impl std::fmt::Display for Type {
    /// As PostgreSQL's `format_type` shows it.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Unknown => f.write_str("unknown"),
            Self::Bool => f.write_str("boolean"),
            Self::Int2 => f.write_str("smallint"),
            Self::Int4 => f.write_str("integer"),
            Self::Int8 => f.write_str("bigint"),
            Self::Float4 => f.write_str("real"),
            Self::Float8 => f.write_str("double precision"),
            Self::Numeric(Some((precision, scale))) => write!(f, "numeric({precision},{scale})"),
            Self::Numeric(None) | Self::Quotient => f.write_str("numeric"),
            Self::Text => f.write_str("text"),
            Self::Varchar(None) => f.write_str("character varying"),
            Self::Varchar(Some(length)) => write!(f, "character varying({length})"),
            Self::Char(None) => f.write_str("bpchar"),
            Self::Char(Some(length)) => write!(f, "character({length})"),
            Self::Bytea => f.write_str("bytea"),
            Self::Date => f.write_str("date"),
            Self::Time => f.write_str("time without time zone"),
            Self::Timestamp(None) => f.write_str("timestamp without time zone"),
            Self::Timestamp(Some(digits)) => write!(f, "timestamp({digits}) without time zone"),
            Self::Timestamptz(None) => f.write_str("timestamp with time zone"),
            Self::Timestamptz(Some(digits)) => write!(f, "timestamp({digits}) with time zone"),
            Self::Interval => f.write_str("interval"),
            Self::Uuid => f.write_str("uuid"),
            Self::Json => f.write_str("json"),
            Self::Jsonb => f.write_str("jsonb"),
            Self::Array(element) => write!(f, "{element}[]"),
            Self::Record(_) => f.write_str("record"),
            Self::Oid(name) => f.write_str(name),
            Self::Name => f.write_str("name"),
            Self::InternalChar => f.write_str("\"char\""),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_tagged_type_comes_back_from_its_field() {
        for kind in [
            Type::Varchar(Some(10)),
            Type::Varchar(None),
            Type::Char(Some(3)),
            Type::Char(None),
            Type::Uuid,
            Type::Json,
            Type::Jsonb,
            Type::Oid("regclass".to_owned()),
            Type::Name,
            Type::InternalChar,
            Type::Timestamp(Some(3)),
            Type::Timestamptz(Some(0)),
            Type::Array(Box::new(Type::Uuid)),
            Type::Numeric(Some((10, 2))),
            Type::Numeric(None),
            Type::Quotient,
            Type::Text,
        ] {
            assert_eq!(Type::of_field(&kind.field("c", Nullability::Nullable)), kind);
        }
    }
}
