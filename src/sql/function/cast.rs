//! Casts that mean what PostgreSQL's mean.
//!
//! Arrow truncates where PostgreSQL rounds, wraps where it refuses, and knows no session's time zone. A cast that
//! Arrow does right (widening an integer, say) stays a plain cast, which optimizers understand; any other becomes a
//! [`CastTo`].

use super::decimal;
use super::kernel::{columnar, expand};
use crate::error::{Error, Result};
use crate::sql::error::external;
use crate::types::calendar::{
    DATE_INFINITY, DATE_MINUS_INFINITY, DAY_MICROS, TIMESTAMP_INFINITY, TIMESTAMP_MINUS_INFINITY, Zone,
};
use crate::types::datetime::round_timestamp;
use crate::types::text::{Settings, column_to_text};
use crate::types::{ColumnBuilder, Nullability, Type};
use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, StringArray};
use arrow::compute::{CastOptions, cast_with_options};
use arrow::datatypes::{
    ArrowPrimitiveType, DataType, Date32Type, FieldRef, Float32Type, Float64Type, Int16Type, Int32Type, Int64Type,
    IntervalMonthDayNano, IntervalMonthDayNanoType, Time64MicrosecondType, TimestampMicrosecondType,
};
use datafusion::common::Result as DataFusionResult;
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::{
    ColumnarValue, Expr, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, TypeSignature,
    Volatility,
};
use std::sync::Arc;

/// Who asked for a cast, which decides what happens to what does not fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Context {
    /// `CAST`, `::`: too long text is cut.
    Explicit,
    /// INSERT and UPDATE: too long text is refused.
    Assignment,
    /// The rules of operators and functions.
    Implicit,
}

/// A cast from one type to another, under a time zone.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct CastTo {
    /// The type of the argument.
    pub source: Type,
    /// The type of the result.
    pub target: Type,
    /// Who asked.
    pub context: Context,
    /// The session's time zone when the statement was bound.
    pub zone: String,
    signature: Signature,
}

impl CastTo {
    /// A cast of values of `source`.
    pub fn new(source: Type, target: Type, context: Context, zone: impl Into<String>) -> Self {
        Self {
            source,
            target,
            context,
            zone: zone.into(),
            signature: Signature::new(TypeSignature::Any(1), Volatility::Immutable),
        }
    }

    /// The call of this cast.
    pub fn call(self, argument: Expr) -> Expr {
        Expr::ScalarFunction(ScalarFunction::new_udf(
            Arc::new(ScalarUDF::new_from_impl(self)),
            vec![argument],
        ))
    }
}

impl ScalarUDFImpl for CastTo {
    fn name(&self) -> &str {
        "cast"
    }

    fn schema_name(&self, args: &[Expr]) -> DataFusionResult<String> {
        Ok(match args {
            [argument] => format!("{argument}::{}", self.target),
            _ => format!("cast to {}", self.target),
        })
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> DataFusionResult<DataType> {
        Ok(self.target.arrow())
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> DataFusionResult<FieldRef> {
        let nullable = args.arg_fields.iter().any(|field| field.is_nullable());
        let nullability = if nullable {
            Nullability::Nullable
        } else {
            Nullability::NotNull
        };
        Ok(Arc::new(self.target.field("cast", nullability)))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> DataFusionResult<ColumnarValue> {
        let (arrays, scalar) = expand(&args)?;
        let [array] = arrays.as_slice() else {
            return Err(external(Error::internal("a cast takes one value")));
        };
        let result = self.convert(array).map_err(external)?;
        columnar(result, scalar)
    }
}

impl CastTo {
    fn settings(&self) -> Result<Settings> {
        Ok(Settings {
            time_zone: Zone::parse(&self.zone)?,
            ..Settings::default()
        })
    }

    /// The values of a column in the target type.
    pub fn convert(&self, array: &ArrayRef) -> Result<ArrayRef> {
        if array.data_type() == &DataType::Null {
            return Ok(arrow::array::new_null_array(&self.target.arrow(), array.len()));
        }
        convert(array, &self.source, &self.target, self.context, &self.settings()?)
    }
}

/// Whether values of a type are kept as Arrow strings.
pub(crate) fn is_textual(kind: &Type) -> bool {
    kind.arrow() == DataType::Utf8
}

/// Whether a type is text to PostgreSQL's rules.
pub(crate) fn is_text(kind: &Type) -> bool {
    matches!(
        kind,
        Type::Text | Type::Varchar(_) | Type::Char(_) | Type::Name | Type::InternalChar | Type::Unknown
    )
}

pub(crate) fn is_integer(kind: &Type) -> bool {
    matches!(kind, Type::Int2 | Type::Int4 | Type::Int8 | Type::Oid(_))
}

pub(crate) fn is_float(kind: &Type) -> bool {
    matches!(kind, Type::Float4 | Type::Float8)
}

pub(crate) fn is_numeric(kind: &Type) -> bool {
    matches!(kind, Type::Numeric(_) | Type::Quotient)
}

/// Whether a cast changes nothing in a column's values.
pub(crate) fn is_same(source: &Type, target: &Type) -> bool {
    source == target
        || matches!(
            (source, target),
            (Type::Timestamp(_), Type::Timestamp(None)) | (Type::Timestamptz(_), Type::Timestamptz(None))
        )
        || (is_textual(source)
            && matches!(target, Type::Text | Type::Varchar(None))
            && !matches!(source, Type::Unknown))
        || (source.arrow() == target.arrow() && matches!(target, Type::Oid(_) | Type::Int8))
}

/// Whether PostgreSQL has such a cast at all.
pub(crate) fn exists(source: &Type, target: &Type, context: Context) -> bool {
    use Type as T;
    let explicit = context == Context::Explicit;
    let assignment = context != Context::Implicit;
    match (source, target) {
        (a, b) if a == b => true,
        (T::Unknown, _) => true,
        // Text is read as anything when asked to, and anything can be written as text.
        (s, _) if is_text(s) && explicit => true,
        (s, t) if is_text(s) && is_text(t) => true,
        (_, t) if is_text(t) && assignment => true,
        (s, t) if number_rank(s).is_some() && number_rank(t).is_some() => {
            assignment || number_rank(s) <= number_rank(t)
        }
        (T::Bool, T::Int4) | (T::Int4, T::Bool) => explicit,
        (T::Date, T::Timestamp(_) | T::Timestamptz(_)) => true,
        (T::Timestamp(_), T::Timestamp(_) | T::Timestamptz(_)) => true,
        (T::Timestamptz(_), T::Timestamptz(_)) => true,
        (T::Timestamptz(_), T::Timestamp(_)) => assignment,
        (T::Timestamp(_) | T::Timestamptz(_), T::Date | T::Time) => assignment,
        (T::Time, T::Interval) => true,
        (T::Interval, T::Time) => assignment,
        (T::Json, T::Jsonb) | (T::Jsonb, T::Json) => assignment,
        (T::Jsonb, t) => explicit && (number_rank(t).is_some() || *t == T::Bool),
        (T::Array(s), T::Array(t)) => exists(s, t, context),
        (T::Record(_), T::Record(_)) => explicit,
        _ => false,
    }
}

/// Numbers in the order in which they are cast implicitly.
fn number_rank(kind: &Type) -> Option<u8> {
    Some(match kind {
        Type::Int2 => 0,
        Type::Int4 => 1,
        Type::Int8 => 2,
        Type::Oid(_) => 2,
        Type::Numeric(_) | Type::Quotient => 3,
        Type::Float4 => 4,
        Type::Float8 => 5,
        _ => return None,
    })
}

pub(crate) fn convert(
    array: &ArrayRef,
    source: &Type,
    target: &Type,
    context: Context,
    settings: &Settings,
) -> Result<ArrayRef> {
    if source == target && array.data_type() == &target.arrow() {
        return Ok(array.clone());
    }
    // A string literal of no type yet is read as the target's text.
    let source = match (source, array.data_type()) {
        (Type::Unknown, DataType::Utf8) => &Type::Text,
        _ => source,
    };
    match (source, target) {
        (_, Type::Varchar(Some(_)) | Type::Char(_)) => {
            let text = to_text(array, source, settings)?;
            fit(&text, target, context)
        }
        (Type::Json, Type::Jsonb) => from_text(&to_text(array, &Type::Text, settings)?, target, settings),
        (Type::Jsonb, other) if !is_textual(other) => jsonb_scalar(array, other, settings),
        (s, t) if is_textual(s) && is_textual(t) && (is_text(t) || (*s == Type::Jsonb && *t == Type::Json)) => {
            Ok(array.clone())
        }
        (s, t) if is_textual(s) => from_text(array.as_string::<i32>(), t, settings),
        (s, t) if is_text(t) => Ok(Arc::new(to_text(array, s, settings)?)),
        (s, t) if is_numeric(s) || is_numeric(t) => decimal::convert(array, s, t),
        (Type::Float4 | Type::Float8, t) if is_integer(t) => float_to_integer(array, t),
        (Type::Float8, Type::Float4) => float8_to_float4(array),
        (Type::Array(from), Type::Array(to)) => cast_elements(array, from, to, context, settings),
        _ => temporal(array, source, target, settings),
    }
}

fn to_text(array: &ArrayRef, source: &Type, settings: &Settings) -> Result<StringArray> {
    if array.data_type() == &DataType::Utf8 {
        return Ok(array.as_string::<i32>().clone());
    }
    if let (Type::Bool, Some(values)) = (source, array.as_boolean_opt()) {
        return Ok(values
            .iter()
            .map(|value| value.map(|value| if value { "true" } else { "false" }))
            .collect());
    }
    column_to_text(source, array, settings)
}

fn from_text(array: &StringArray, target: &Type, settings: &Settings) -> Result<ArrayRef> {
    let mut builder = ColumnBuilder::new(target).with_settings(*settings);
    for value in array {
        builder.push_text(value)?;
    }
    Ok(builder.finish())
}

/// Text in the length of its type: cut if that was asked for, refused otherwise; blanks at the end do not count.
fn fit(array: &StringArray, target: &Type, context: Context) -> Result<ArrayRef> {
    let (length, padded) = match target {
        Type::Varchar(Some(length)) => (*length as usize, false),
        Type::Char(length) => (length.map_or(usize::MAX, |length| length as usize), true),
        _ => (usize::MAX, false),
    };
    let mut builder = arrow::array::StringBuilder::with_capacity(array.len(), array.value_data().len());
    for value in array {
        let Some(value) = value else {
            builder.append_null();
            continue;
        };
        let kept = match value.char_indices().nth(length) {
            Some((end, _)) => {
                if context == Context::Assignment && !value[end..].bytes().all(|byte| byte == b' ') {
                    return Err(Error::semantic("22001", format!("value too long for type {target}")));
                }
                &value[..end]
            }
            None => value,
        };
        builder.append_value(if padded { kept.trim_end_matches(' ') } else { kept });
    }
    Ok(Arc::new(builder.finish()))
}

/// `'5'::jsonb::int`.
fn jsonb_scalar(array: &ArrayRef, target: &Type, settings: &Settings) -> Result<ArrayRef> {
    let mut builder = ColumnBuilder::new(target).with_settings(*settings);
    for value in array.as_string::<i32>() {
        let Some(text) = value else {
            builder.push_null();
            continue;
        };
        let found = match text.as_bytes().first() {
            Some(b'{') => "object",
            Some(b'[') => "array",
            Some(b'"') => "string",
            Some(b't' | b'f') => "boolean",
            Some(b'n') => "null",
            _ => "numeric",
        };
        let wanted = if *target == Type::Bool { "boolean" } else { "numeric" };
        if found != wanted {
            return Err(Error::semantic(
                "22023",
                format!("cannot cast jsonb {found} to type {target}"),
            ));
        }
        if is_integer(target) {
            let rounded = decimal::round_text(text)?;
            builder.push_text(Some(&rounded))?;
        } else {
            builder.push_text(Some(text))?;
        }
    }
    Ok(builder.finish())
}

/// `integer out of range`.
pub(crate) fn out_of_range(kind: &Type) -> Error {
    let name = match kind {
        Type::Oid(_) => "OID",
        _ => return Error::semantic("22003", format!("{kind} out of range")),
    };
    Error::semantic("22003", format!("{name} out of range"))
}

fn float_to_integer(array: &ArrayRef, target: &Type) -> Result<ArrayRef> {
    let values: Vec<Option<f64>> = match array.as_primitive_opt::<Float64Type>() {
        Some(values) => values.iter().collect(),
        None => array
            .as_primitive::<Float32Type>()
            .iter()
            .map(|value| value.map(f64::from))
            .collect(),
    };
    let (low, high) = match target {
        Type::Int2 => (-32768.0, 32768.0),
        Type::Int4 => (-2_147_483_648.0, 2_147_483_648.0),
        _ => (-9_223_372_036_854_775_808.0, 9_223_372_036_854_775_808.0),
    };
    let mut integers = Vec::with_capacity(values.len());
    for value in values {
        integers.push(match value {
            Some(value) => {
                let rounded = value.round_ties_even();
                // Written so that NaN is refused too.
                if !(rounded >= low && rounded < high) {
                    return Err(out_of_range(target));
                }
                Some(rounded as i64)
            }
            None => None,
        });
    }
    let wide: ArrayRef = Arc::new(arrow::array::Int64Array::from(integers));
    narrow(&wide, target)
}

fn float8_to_float4(array: &ArrayRef) -> Result<ArrayRef> {
    let values = array.as_primitive::<Float64Type>();
    let mut floats = Vec::with_capacity(values.len());
    for value in values {
        floats.push(match value {
            Some(value) => {
                let narrow = value as f32;
                if narrow.is_infinite() && value.is_finite() {
                    return Err(Error::semantic("22003", "value out of range: overflow"));
                }
                if narrow == 0.0 && value != 0.0 {
                    return Err(Error::semantic("22003", "value out of range: underflow"));
                }
                Some(narrow)
            }
            None => None,
        });
    }
    Ok(Arc::new(arrow::array::Float32Array::from(floats)))
}

fn narrow(array: &ArrayRef, target: &Type) -> Result<ArrayRef> {
    let options = CastOptions {
        safe: false,
        ..Default::default()
    };
    cast_with_options(array, &target.arrow(), &options).map_err(|_| out_of_range(target))
}

fn cast_elements(array: &ArrayRef, from: &Type, to: &Type, context: Context, settings: &Settings) -> Result<ArrayRef> {
    let list = array.as_list::<i32>();
    let values = convert(list.values(), from, to, context, settings)?;
    let field = Arc::new(to.field("item", Nullability::Nullable));
    Ok(Arc::new(arrow::array::ListArray::try_new(
        field,
        list.offsets().clone(),
        values,
        list.nulls().cloned(),
    )?))
}

/// One value at a time, NULLs kept.
fn each<S: ArrowPrimitiveType, T: ArrowPrimitiveType>(
    array: &ArrayRef,
    target: &Type,
    change: impl Fn(S::Native) -> Result<T::Native>,
) -> Result<ArrayRef> {
    let values = array.as_primitive::<S>();
    let changed: arrow::array::PrimitiveArray<T> = values.try_unary(change)?;
    Ok(Arc::new(changed.with_data_type(target.arrow())))
}

fn date_to_timestamp(days: i32) -> Result<i64> {
    match days {
        DATE_INFINITY => Ok(TIMESTAMP_INFINITY),
        DATE_MINUS_INFINITY => Ok(TIMESTAMP_MINUS_INFINITY),
        days => Ok(i64::from(days) * DAY_MICROS),
    }
}

pub(crate) fn timestamp_to_date(micros: i64) -> Result<i32> {
    match micros {
        TIMESTAMP_INFINITY => Ok(DATE_INFINITY),
        TIMESTAMP_MINUS_INFINITY => Ok(DATE_MINUS_INFINITY),
        micros => Ok(micros.div_euclid(DAY_MICROS) as i32),
    }
}

pub(crate) fn is_infinite(micros: i64) -> bool {
    matches!(micros, TIMESTAMP_INFINITY | TIMESTAMP_MINUS_INFINITY)
}

fn time_of(micros: i64) -> Result<i64> {
    if is_infinite(micros) {
        return Err(Error::semantic("22008", "timestamp out of range"));
    }
    Ok(micros.rem_euclid(DAY_MICROS))
}

fn temporal(array: &ArrayRef, source: &Type, target: &Type, settings: &Settings) -> Result<ArrayRef> {
    type Micros = TimestampMicrosecondType;
    let zone = settings.time_zone;
    let local = move |micros| {
        if is_infinite(micros) {
            micros
        } else {
            zone.local_of_instant(micros)
        }
    };
    let instant = move |micros| {
        if is_infinite(micros) {
            micros
        } else {
            zone.instant_of_local(micros)
        }
    };
    let round = |digits: &Option<u8>| {
        let digits = digits.unwrap_or(6);
        move |micros| round_timestamp(micros, digits)
    };
    match (source, target) {
        (Type::Date, Type::Timestamp(_)) => each::<Date32Type, Micros>(array, target, date_to_timestamp),
        (Type::Date, Type::Timestamptz(_)) => {
            each::<Date32Type, Micros>(array, target, |days| date_to_timestamp(days).map(instant))
        }
        (Type::Timestamp(_), Type::Date) => each::<Micros, Date32Type>(array, target, timestamp_to_date),
        (Type::Timestamptz(_), Type::Date) => {
            each::<Micros, Date32Type>(array, target, |micros| timestamp_to_date(local(micros)))
        }
        (Type::Timestamp(_), Type::Time) => each::<Micros, Time64MicrosecondType>(array, target, time_of),
        (Type::Timestamptz(_), Type::Time) => {
            each::<Micros, Time64MicrosecondType>(array, target, |micros| time_of(local(micros)))
        }
        (Type::Timestamp(_), Type::Timestamp(digits)) | (Type::Timestamptz(_), Type::Timestamptz(digits)) => {
            let round = round(digits);
            each::<Micros, Micros>(array, target, |micros| Ok(round(micros)))
        }
        (Type::Timestamp(_), Type::Timestamptz(digits)) => {
            let round = round(digits);
            each::<Micros, Micros>(array, target, |micros| Ok(round(instant(micros))))
        }
        (Type::Timestamptz(_), Type::Timestamp(digits)) => {
            let round = round(digits);
            each::<Micros, Micros>(array, target, |micros| Ok(round(local(micros))))
        }
        (Type::Time, Type::Interval) => {
            each::<Time64MicrosecondType, IntervalMonthDayNanoType>(array, target, |micros| {
                Ok(IntervalMonthDayNano::new(0, 0, micros * 1000))
            })
        }
        (Type::Interval, Type::Time) => {
            each::<IntervalMonthDayNanoType, Time64MicrosecondType>(array, target, |interval| {
                Ok((interval.nanoseconds / 1000).rem_euclid(DAY_MICROS))
            })
        }
        (Type::Bool, t) if is_integer(t) => {
            let values = array.as_boolean();
            let integers: arrow::array::Int64Array = values.iter().map(|value| value.map(i64::from)).collect();
            narrow(&(Arc::new(integers) as ArrayRef), target)
        }
        (s, Type::Bool) if is_integer(s) => integer_to_bool(array),
        (s, t) if is_integer(s) && is_integer(t) => narrow(array, target),
        (s, t) if is_integer(s) && is_float(t) => narrow(array, target),
        (Type::Float4, Type::Float8) => narrow(array, target),
        (Type::Unknown, _) => Ok(arrow::array::new_null_array(&target.arrow(), array.len())),
        _ => Err(Error::semantic(
            "42846",
            format!("cannot cast type {source} to {target}"),
        )),
    }
}

fn integer_to_bool(array: &ArrayRef) -> Result<ArrayRef> {
    let bools: BooleanArray = match array.data_type() {
        DataType::Int16 => array
            .as_primitive::<Int16Type>()
            .iter()
            .map(|v| v.map(|v| v != 0))
            .collect(),
        DataType::Int32 => array
            .as_primitive::<Int32Type>()
            .iter()
            .map(|v| v.map(|v| v != 0))
            .collect(),
        _ => array
            .as_primitive::<Int64Type>()
            .iter()
            .map(|v| v.map(|v| v != 0))
            .collect(),
    };
    Ok(Arc::new(bools))
}

/// An expression in another type: a literal is converted at once, a harmless cast stays plain, others are ours.
///
/// Errors of a literal's text are raised here, as PostgreSQL raises them while it parses.
pub(crate) fn cast_expression(expr: Expr, source: &Type, target: &Type, context: Context, zone: &str) -> Result<Expr> {
    if let Expr::Placeholder(placeholder) = &expr
        && placeholder.field.is_none()
    {
        let mut placeholder = placeholder.clone();
        placeholder.field = Some(Arc::new(target.field(&placeholder.id, Nullability::Nullable)));
        return Ok(Expr::Placeholder(placeholder));
    }
    if source == target {
        return Ok(expr);
    }
    if let Expr::Literal(value, _) = &expr {
        // The type of a bare literal decides how its text is read.
        let cast = CastTo::new(source.clone(), target.clone(), context, zone);
        let array = value.to_array().map_err(crate::sql::error::from_datafusion)?;
        let converted = cast.convert(&array)?;
        return literal(&converted, target);
    }
    if is_same(source, target) && *target == Type::Text && *source != Type::Unknown {
        // The values are the same; the type must be said, or metadata would go on saying the old one.
        return Ok(CastTo::new(source.clone(), target.clone(), context, zone).call(expr));
    }
    if is_plain(source, target) {
        return Ok(Expr::Cast(datafusion::logical_expr::Cast::new(
            Box::new(expr),
            target.arrow(),
        )));
    }
    Ok(CastTo::new(source.clone(), target.clone(), context, zone).call(expr))
}

/// Whether Arrow's own cast does the same and cannot fail.
pub(crate) fn is_plain(source: &Type, target: &Type) -> bool {
    use Type as T;
    matches!(
        (source, target),
        (T::Int2, T::Int4 | T::Int8 | T::Float4 | T::Float8)
            | (T::Int4, T::Int8 | T::Float8)
            | (T::Int8, T::Float8)
            | (T::Float4, T::Float8)
    )
}

/// The one value of an array as a literal of a type.
pub(crate) fn literal(array: &ArrayRef, kind: &Type) -> Result<Expr> {
    let value =
        datafusion::common::ScalarValue::try_from_array(array, 0).map_err(crate::sql::error::from_datafusion)?;
    let field = kind.field("literal", Nullability::Nullable);
    let metadata = (!field.metadata().is_empty()).then(|| datafusion::logical_expr::expr::FieldMetadata::from(&field));
    Ok(Expr::Literal(value, metadata))
}
