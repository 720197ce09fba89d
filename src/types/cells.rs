//! A column made ready for writing: its Arrow array brought to the one form per type that the writers know.
//!
//! Query results come in more Arrow types than [`Type::arrow`] names (views, dictionaries, other time units). They
//! are cast here, once per column, so that writing a cell is one match and no allocation.

use super::Type;
use super::numeric::Digits;
use crate::error::Result;
use arrow::array::{
    Array, ArrayRef, AsArray, BinaryArray, BooleanArray, Date32Array, Decimal128Array, Decimal256Array, Float32Array,
    Float64Array, Int16Array, Int32Array, Int64Array, IntervalMonthDayNanoArray, LargeStringArray, ListArray,
    StringArray, StringViewArray, Time64MicrosecondArray, TimestampMicrosecondArray,
};
use arrow::buffer::NullBuffer;
use arrow::compute::cast;
use arrow::datatypes::{
    DataType, Date32Type, Decimal128Type, Decimal256Type, Float32Type, Float64Type, Int16Type, Int32Type, Int64Type,
    IntervalMonthDayNanoType, Time64MicrosecondType, TimeUnit, TimestampMicrosecondType,
};

/// The cells of a column.
#[derive(Debug)]
pub(super) struct Cells {
    nulls: Option<NullBuffer>,
    /// The values by type.
    pub(super) values: Values,
}

/// A column's values in the form of their type.
#[derive(Debug)]
pub(super) enum Values {
    /// Nothing but NULL.
    Null,
    /// `boolean`
    Bool(BooleanArray),
    /// `smallint`
    Int2(Int16Array),
    /// `integer`
    Int4(Int32Array),
    /// `bigint`
    Int8(Int64Array),
    /// `oid` and its kin: 64 bits here, 32 on the wire.
    Oid(Int64Array),
    /// `real`
    Float4(Float32Array),
    /// `double precision`
    Float8(Float64Array),
    /// `numeric` of at most 38 digits, its scale, and what is shown of it.
    Decimal128(Decimal128Array, i8, Digits),
    /// `numeric` of more digits.
    Decimal256(Decimal256Array, i8, Digits),
    /// Text, json and their kin.
    Text(Strings),
    /// `char(n)`: filled up to so many characters.
    Padded(Strings, usize),
    /// `uuid`
    Uuid(Strings),
    /// `jsonb`
    Jsonb(Strings),
    /// `bytea`
    Bytea(BinaryArray),
    /// `date`
    Date(Date32Array),
    /// `time`
    Time(Time64MicrosecondArray),
    /// `timestamp`
    Timestamp(TimestampMicrosecondArray),
    /// `timestamptz`
    Timestamptz(TimestampMicrosecondArray),
    /// `interval`
    Interval(IntervalMonthDayNanoArray),
    /// An array: its rows' ranges, and the cells of all elements.
    List {
        /// Which elements belong to a row.
        lists: ListArray,
        /// All elements.
        elements: Box<Cells>,
        /// Their type.
        element: Type,
    },
    /// A row: the cells of each field and its type.
    Record(Vec<(Cells, Type)>),
}

/// Strings in any of Arrow's layouts.
#[derive(Debug)]
pub(super) enum Strings {
    /// 32-bit offsets.
    Plain(StringArray),
    /// 64-bit offsets.
    Large(LargeStringArray),
    /// Views.
    View(StringViewArray),
}

impl Strings {
    /// The string of a row.
    pub(super) fn value(&self, row: usize) -> &str {
        match self {
            Self::Plain(array) => array.value(row),
            Self::Large(array) => array.value(row),
            Self::View(array) => array.value(row),
        }
    }

    fn of(array: &ArrayRef) -> Result<Self> {
        Ok(match array.data_type() {
            DataType::Utf8 => Self::Plain(array.as_string().clone()),
            DataType::LargeUtf8 => Self::Large(array.as_string().clone()),
            DataType::Utf8View => Self::View(array.as_string_view().clone()),
            _ => Self::Plain(cast(array, &DataType::Utf8)?.as_string().clone()),
        })
    }
}

impl Cells {
    /// The cells of a column of a type.
    pub(super) fn of(kind: &Type, array: &ArrayRef) -> Result<Self> {
        let guessed;
        let kind = match (kind, array.data_type()) {
            (_, DataType::Null) => &Type::Unknown,
            (Type::Unknown, data_type) => {
                guessed = Type::of_arrow(data_type);
                &guessed
            }
            _ => kind,
        };
        let nulls = array.logical_nulls();
        let values = match kind {
            Type::Unknown => Values::Null,
            Type::Text | Type::Varchar(_) | Type::Json | Type::Name | Type::InternalChar => {
                Values::Text(Strings::of(array)?)
            }
            Type::Char(None) => Values::Text(Strings::of(array)?),
            Type::Char(Some(length)) => Values::Padded(Strings::of(array)?, *length as usize),
            Type::Uuid => Values::Uuid(Strings::of(array)?),
            Type::Jsonb => Values::Jsonb(Strings::of(array)?),
            Type::Numeric(_) | Type::Quotient => decimals(kind, array)?,
            Type::Array(element) => lists(element, array)?,
            Type::Record(fields) => records(fields, array)?,
            _ => scalars(kind, array)?,
        };
        Ok(Self { nulls, values })
    }

    /// Whether a cell is NULL.
    pub(super) fn is_null(&self, row: usize) -> bool {
        matches!(self.values, Values::Null) || self.nulls.as_ref().is_some_and(|nulls| nulls.is_null(row))
    }
}

fn brought(kind: &Type, array: &ArrayRef) -> Result<ArrayRef> {
    let wanted = kind.arrow();
    let same = match (&wanted, array.data_type()) {
        // The instants are the same whatever the zone is called.
        (DataType::Timestamp(TimeUnit::Microsecond, _), DataType::Timestamp(TimeUnit::Microsecond, _)) => true,
        (wanted, actual) => wanted == actual,
    };
    if same {
        return Ok(array.clone());
    }
    Ok(cast(array, &wanted)?)
}

fn scalars(kind: &Type, array: &ArrayRef) -> Result<Values> {
    let array = brought(kind, array)?;
    Ok(match kind {
        Type::Bool => Values::Bool(array.as_boolean().clone()),
        Type::Int2 => Values::Int2(array.as_primitive::<Int16Type>().clone()),
        Type::Int4 => Values::Int4(array.as_primitive::<Int32Type>().clone()),
        Type::Int8 => Values::Int8(array.as_primitive::<Int64Type>().clone()),
        Type::Oid(_) => Values::Oid(array.as_primitive::<Int64Type>().clone()),
        Type::Float4 => Values::Float4(array.as_primitive::<Float32Type>().clone()),
        Type::Float8 => Values::Float8(array.as_primitive::<Float64Type>().clone()),
        Type::Bytea => Values::Bytea(array.as_binary::<i32>().clone()),
        Type::Date => Values::Date(array.as_primitive::<Date32Type>().clone()),
        Type::Time => Values::Time(array.as_primitive::<Time64MicrosecondType>().clone()),
        Type::Timestamp(_) => Values::Timestamp(array.as_primitive::<TimestampMicrosecondType>().clone()),
        Type::Timestamptz(_) => Values::Timestamptz(array.as_primitive::<TimestampMicrosecondType>().clone()),
        Type::Interval => Values::Interval(array.as_primitive::<IntervalMonthDayNanoType>().clone()),
        _ => Values::Text(Strings::of(&array)?),
    })
}

fn decimals(kind: &Type, array: &ArrayRef) -> Result<Values> {
    let digits = match kind {
        Type::Numeric(Some((_, scale))) => Digits::Fixed(*scale),
        Type::Quotient => Digits::Quotient,
        _ => Digits::Free,
    };
    Ok(match array.data_type() {
        DataType::Decimal128(_, scale) => {
            Values::Decimal128(array.as_primitive::<Decimal128Type>().clone(), *scale, digits)
        }
        DataType::Decimal256(_, scale) => {
            Values::Decimal256(array.as_primitive::<Decimal256Type>().clone(), *scale, digits)
        }
        DataType::Decimal32(precision, scale) | DataType::Decimal64(precision, scale) => {
            let wider = cast(array, &DataType::Decimal128(*precision, *scale))?;
            Values::Decimal128(wider.as_primitive::<Decimal128Type>().clone(), *scale, digits)
        }
        _ => return decimals(kind, &cast(array, &kind.arrow())?),
    })
}

fn lists(element: &Type, array: &ArrayRef) -> Result<Values> {
    let array = match array.data_type() {
        DataType::List(_) => array.clone(),
        DataType::LargeList(field)
        | DataType::FixedSizeList(field, _)
        | DataType::ListView(field)
        | DataType::LargeListView(field) => cast(array, &DataType::List(field.clone()))?,
        _ => cast(array, &Type::Array(Box::new(element.clone())).arrow())?,
    };
    let lists = array.as_list::<i32>().clone();
    let elements = Box::new(Cells::of(element, lists.values())?);
    Ok(Values::List {
        lists,
        elements,
        element: element.clone(),
    })
}

fn records(fields: &[(String, Type)], array: &ArrayRef) -> Result<Values> {
    let array = match array.data_type() {
        DataType::Struct(_) => array.clone(),
        _ => cast(array, &Type::Record(fields.to_vec()).arrow())?,
    };
    let columns = array.as_struct().columns();
    let cells = columns.iter().enumerate().map(|(index, column)| {
        let kind = fields
            .get(index)
            .map_or_else(|| Type::of_arrow(column.data_type()), |(_, kind)| kind.clone());
        Ok((Cells::of(&kind, column)?, kind))
    });
    Ok(Values::Record(cells.collect::<Result<_>>()?))
}
