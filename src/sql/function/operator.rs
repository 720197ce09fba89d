//! PostgreSQL's operators: which one two types mean, and what it computes.
//!
//! An operator is resolved while a statement is bound, when both types are known ([`resolve`]). Comparisons stay
//! DataFusion's, which its optimizer understands; arithmetic and the like become calls of [`Operator`], which checks
//! for overflow, divides as PostgreSQL does, and knows time zones. [`Operator::of`] finds one in an expression again.

use super::cast::{is_float, is_integer, is_numeric, is_text, out_of_range};
use super::decimal::{self, Arithmetic, Exact};
use super::kernel::{columnar, expand};
use super::{array, interval, json, pattern};
use crate::error::{Error, Result};
use crate::sql::error::external;
use crate::types::calendar::Zone;
use crate::types::{Nullability, Type};
use arrow::array::{Array, ArrayRef, AsArray, StringBuilder};
use arrow::compute::kernels::numeric;
use arrow::datatypes::{DataType, FieldRef, Float32Type, Float64Type, Int32Type, Int64Type};
use arrow::error::ArrowError;
use datafusion::common::Result as DataFusionResult;
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::{
    ColumnarValue, Expr, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, TypeSignature,
    Volatility,
};
use std::sync::Arc;

/// What an operator does, when its types are settled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Op {
    /// `+ - * / %` on integers of one width.
    Integer(Sign),
    /// `+ - * /` on floats of one width.
    Float(Sign),
    /// `+ - * / %` on exact numbers.
    Numeric(Sign),
    /// `^`
    Power,
    /// `date + integer`, `date - integer`
    DateDays(Sign),
    /// `date - date`
    DateDifference,
    /// `timestamp - timestamp`, with or without zone
    TimestampDifference,
    /// `time - time`
    TimeDifference,
    /// `timestamp + interval`, `timestamp - interval`, with or without zone
    TimestampInterval(Sign),
    /// `time + interval`, `time - interval`
    TimeInterval(Sign),
    /// `date + time`
    DateTime,
    /// `interval + interval`, `interval - interval`
    IntervalSum(Sign),
    /// `interval * double precision`, `interval / double precision`
    IntervalScale(Sign),
    /// `& | # << >>` on integers of one width
    Bits(Bit),
    /// `||` on text
    Concat,
    /// `||` on bytea
    ConcatBytes,
    /// `||` on arrays and elements
    ConcatArray(Sides),
    /// `||` on jsonb
    ConcatJson,
    /// `-> ->> #> #>>`
    JsonGet(json::Get),
    /// `@> ?` and their like on jsonb
    JsonTest(json::Test),
    /// `jsonb - text` and the like
    JsonDelete(json::Delete),
    /// `~ ~* !~ !~*`
    Regex(pattern::Match),
    /// `~~ !~~ ~~* !~~*`
    Like(pattern::Match),
    /// `@> <@ &&` on arrays
    ArrayTest(array::Test),
    /// `^@`
    StartsWith,
}

/// Which of the arithmetic operators.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Sign {
    /// `+`
    Plus,
    /// `-`
    Minus,
    /// `*`
    Times,
    /// `/`
    Over,
    /// `%`
    Modulo,
}

/// Which of the operators on bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Bit {
    /// `&`
    And,
    /// `|`
    Or,
    /// `#`
    Xor,
    /// `<<`
    Left,
    /// `>>`
    Right,
}

/// Which sides of `||` are arrays.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Sides {
    /// Both.
    Both,
    /// The left one; the right one is an element.
    Left,
    /// The right one; the left one is an element.
    Right,
}

impl Sign {
    fn of(symbol: &str) -> Option<Self> {
        Some(match symbol {
            "+" => Self::Plus,
            "-" => Self::Minus,
            "*" => Self::Times,
            "/" => Self::Over,
            "%" => Self::Modulo,
            _ => return None,
        })
    }

    fn arithmetic(self) -> Arithmetic {
        match self {
            Self::Plus => Arithmetic::Add,
            Self::Minus => Arithmetic::Subtract,
            Self::Times => Arithmetic::Multiply,
            Self::Over => Arithmetic::Divide,
            Self::Modulo => Arithmetic::Modulo,
        }
    }
}

/// An operator, its operands' types and its result's.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Resolved {
    /// What it does.
    pub op: Op,
    /// What the left operand is cast to.
    pub left: Type,
    /// What the right operand is cast to.
    pub right: Type,
    /// What comes out.
    pub result: Type,
}

fn resolved(op: Op, left: Type, right: Type, result: Type) -> Option<Resolved> {
    Some(Resolved {
        op,
        left,
        right,
        result,
    })
}

/// The operator that a symbol means between two types; comparisons are not among them.
pub(crate) fn resolve(symbol: &str, left: &Type, right: &Type) -> Option<Resolved> {
    if let Some(found) = resolve_known(symbol, left, right) {
        return Some(found);
    }
    // A literal takes the type of the other side, or else whatever makes an operator.
    if *left == Type::Unknown || *right == Type::Unknown {
        return resolve_unknown(symbol, left, right);
    }
    None
}

fn resolve_unknown(symbol: &str, left: &Type, right: &Type) -> Option<Resolved> {
    if *left == Type::Unknown && *right == Type::Unknown {
        return resolve_known(symbol, &Type::Text, &Type::Text);
    }
    let (known, unknown_left) = if *left == Type::Unknown {
        (right, true)
    } else {
        (left, false)
    };
    let candidates = [
        known.clone(),
        Type::Interval,
        Type::Text,
        Type::Int4,
        Type::Float8,
        Type::Jsonb,
        Type::Array(Box::new(Type::Text)),
    ];
    candidates.iter().find_map(|candidate| {
        if unknown_left {
            resolve_known(symbol, candidate, right)
        } else {
            resolve_known(symbol, left, candidate)
        }
    })
}

fn resolve_known(symbol: &str, left: &Type, right: &Type) -> Option<Resolved> {
    if let Some(sign) = Sign::of(symbol) {
        return arithmetic(sign, left, right).or_else(|| json_delete(symbol, left, right));
    }
    match symbol {
        "^" => power(left, right),
        "||" => concatenation(left, right),
        "&" | "|" | "#" | "<<" | ">>" => bits(symbol, left, right),
        "->" | "->>" | "#>" | "#>>" => json_get(symbol, left, right),
        "@>" | "<@" | "&&" | "?" | "?|" | "?&" => containment(symbol, left, right),
        "~" | "~*" | "!~" | "!~*" if is_text(left) && is_text(right) => resolved(
            Op::Regex(pattern::Match::of(symbol)?),
            Type::Text,
            Type::Text,
            Type::Bool,
        ),
        "~~" | "~~*" | "!~~" | "!~~*" if is_text(left) && is_text(right) => resolved(
            Op::Like(pattern::Match::of(symbol)?),
            Type::Text,
            Type::Text,
            Type::Bool,
        ),
        "^@" if is_text(left) && is_text(right) => resolved(Op::StartsWith, Type::Text, Type::Text, Type::Bool),
        "#-" if *left == Type::Jsonb => resolved(
            Op::JsonDelete(json::Delete::Path),
            Type::Jsonb,
            Type::Array(Box::new(Type::Text)),
            Type::Jsonb,
        ),
        _ => None,
    }
}

fn integer_width(left: &Type, right: &Type) -> Type {
    for kind in [Type::Int8, Type::Int4] {
        if *left == kind || *right == kind {
            return kind;
        }
    }
    if matches!(left, Type::Oid(_)) || matches!(right, Type::Oid(_)) {
        return Type::Int8;
    }
    Type::Int2
}

fn is_number(kind: &Type) -> bool {
    is_integer(kind) || is_float(kind) || is_numeric(kind)
}

fn arithmetic(sign: Sign, left: &Type, right: &Type) -> Option<Resolved> {
    if is_number(left) && is_number(right) {
        return number_arithmetic(sign, left, right);
    }
    time_arithmetic(sign, left, right)
}

fn number_arithmetic(sign: Sign, left: &Type, right: &Type) -> Option<Resolved> {
    if is_float(left) || is_float(right) {
        if sign == Sign::Modulo {
            return None;
        }
        let kind = if *left == Type::Float4 && *right == Type::Float4 {
            Type::Float4
        } else {
            Type::Float8
        };
        return resolved(Op::Float(sign), kind.clone(), kind.clone(), kind);
    }
    if is_integer(left) && is_integer(right) {
        let kind = integer_width(left, right);
        return resolved(Op::Integer(sign), kind.clone(), kind.clone(), kind);
    }
    let result = decimal::result_type(sign.arithmetic(), Exact::of(left)?, Exact::of(right)?);
    resolved(Op::Numeric(sign), left.clone(), right.clone(), result)
}

fn time_arithmetic(sign: Sign, left: &Type, right: &Type) -> Option<Resolved> {
    use Type as T;
    let plus_or_minus = matches!(sign, Sign::Plus | Sign::Minus);
    match (left, right) {
        (T::Date, T::Int2 | T::Int4) if plus_or_minus => resolved(Op::DateDays(sign), T::Date, T::Int4, T::Date),
        (T::Date, T::Date) if sign == Sign::Minus => resolved(Op::DateDifference, T::Date, T::Date, T::Int4),
        (T::Date, T::Interval) if plus_or_minus => resolved(
            Op::TimestampInterval(sign),
            T::Timestamp(None),
            T::Interval,
            T::Timestamp(None),
        ),
        (T::Date, T::Time) if sign == Sign::Plus => resolved(Op::DateTime, T::Date, T::Time, T::Timestamp(None)),
        (T::Timestamp(_), T::Interval) if plus_or_minus => resolved(
            Op::TimestampInterval(sign),
            T::Timestamp(None),
            T::Interval,
            T::Timestamp(None),
        ),
        (T::Timestamptz(_), T::Interval) if plus_or_minus => resolved(
            Op::TimestampInterval(sign),
            T::Timestamptz(None),
            T::Interval,
            T::Timestamptz(None),
        ),
        (T::Time, T::Interval) if plus_or_minus => resolved(Op::TimeInterval(sign), T::Time, T::Interval, T::Time),
        (T::Time, T::Time) if sign == Sign::Minus => resolved(Op::TimeDifference, T::Time, T::Time, T::Interval),
        (T::Interval, T::Interval) if plus_or_minus => {
            resolved(Op::IntervalSum(sign), T::Interval, T::Interval, T::Interval)
        }
        (T::Interval, number) if is_number(number) && matches!(sign, Sign::Times | Sign::Over) => {
            resolved(Op::IntervalScale(sign), T::Interval, T::Float8, T::Interval)
        }
        (T::Timestamptz(_), T::Timestamptz(_) | T::Timestamp(_) | T::Date)
        | (T::Timestamp(_) | T::Date, T::Timestamptz(_))
            if sign == Sign::Minus =>
        {
            resolved(
                Op::TimestampDifference,
                T::Timestamptz(None),
                T::Timestamptz(None),
                T::Interval,
            )
        }
        (T::Timestamp(_), T::Timestamp(_) | T::Date) | (T::Date, T::Timestamp(_)) if sign == Sign::Minus => resolved(
            Op::TimestampDifference,
            T::Timestamp(None),
            T::Timestamp(None),
            T::Interval,
        ),
        _ => None,
    }
}

/// Whether the operands of an operator may be swapped before it is looked for again.
pub(crate) fn is_swappable(symbol: &str, left: &Type, right: &Type) -> bool {
    let time = |kind: &Type| {
        matches!(
            kind,
            Type::Date | Type::Timestamp(_) | Type::Timestamptz(_) | Type::Time
        )
    };
    match symbol {
        "+" => matches!(left, Type::Interval | Type::Int2 | Type::Int4 | Type::Time) && time(right),
        "*" => is_number(left) && *right == Type::Interval,
        _ => false,
    }
}

fn power(left: &Type, right: &Type) -> Option<Resolved> {
    if !is_number(left) || !is_number(right) {
        return None;
    }
    if (is_numeric(left) || is_numeric(right)) && !is_float(left) && !is_float(right) {
        return resolved(Op::Power, Type::Numeric(None), Type::Numeric(None), Type::Quotient);
    }
    resolved(Op::Power, Type::Float8, Type::Float8, Type::Float8)
}

fn concatenation(left: &Type, right: &Type) -> Option<Resolved> {
    use Type as T;
    match (left, right) {
        (T::Array(a), T::Array(_)) => {
            let kind = T::Array(a.clone());
            resolved(Op::ConcatArray(Sides::Both), kind.clone(), kind.clone(), kind)
        }
        (T::Array(element), other) if *other != T::Unknown => {
            let kind = T::Array(element.clone());
            resolved(Op::ConcatArray(Sides::Left), kind.clone(), (**element).clone(), kind)
        }
        (other, T::Array(element)) if *other != T::Unknown => {
            let kind = T::Array(element.clone());
            resolved(Op::ConcatArray(Sides::Right), (**element).clone(), kind.clone(), kind)
        }
        (T::Jsonb, T::Jsonb) => resolved(Op::ConcatJson, T::Jsonb, T::Jsonb, T::Jsonb),
        (T::Bytea, T::Bytea) => resolved(Op::ConcatBytes, T::Bytea, T::Bytea, T::Bytea),
        // One side must be text; anything else is written as text.
        (a, b) if (is_text(a) || is_text(b)) && *a != T::Unknown && *b != T::Unknown => {
            resolved(Op::Concat, T::Text, T::Text, T::Text)
        }
        _ => None,
    }
}

fn bits(symbol: &str, left: &Type, right: &Type) -> Option<Resolved> {
    if !is_integer(left) || !is_integer(right) {
        return None;
    }
    let bit = match symbol {
        "&" => Bit::And,
        "|" => Bit::Or,
        "#" => Bit::Xor,
        "<<" => Bit::Left,
        _ => Bit::Right,
    };
    let kind = match bit {
        Bit::Left | Bit::Right => left.clone(),
        _ => integer_width(left, right),
    };
    let right = match bit {
        Bit::Left | Bit::Right => Type::Int4,
        _ => kind.clone(),
    };
    resolved(Op::Bits(bit), kind.clone(), right, kind)
}

fn json_get(symbol: &str, left: &Type, right: &Type) -> Option<Resolved> {
    if !matches!(left, Type::Json | Type::Jsonb) {
        return None;
    }
    let (get, key) = match (symbol, right) {
        ("->" | "->>", kind) if is_integer(kind) => (json::Get::Element, Type::Int4),
        ("->" | "->>", kind) if is_text(kind) => (json::Get::Field, Type::Text),
        ("#>" | "#>>", Type::Array(_)) => (json::Get::Path, Type::Array(Box::new(Type::Text))),
        _ => return None,
    };
    let result = if symbol.ends_with(">>") {
        Type::Text
    } else {
        left.clone()
    };
    resolved(Op::JsonGet(get), left.clone(), key, result)
}

fn json_delete(symbol: &str, left: &Type, right: &Type) -> Option<Resolved> {
    if symbol != "-" || *left != Type::Jsonb {
        return None;
    }
    let (delete, key) = match right {
        kind if is_integer(kind) => (json::Delete::Element, Type::Int4),
        kind if is_text(kind) => (json::Delete::Field, Type::Text),
        Type::Array(_) => (json::Delete::Fields, Type::Array(Box::new(Type::Text))),
        _ => return None,
    };
    resolved(Op::JsonDelete(delete), Type::Jsonb, key, Type::Jsonb)
}

fn containment(symbol: &str, left: &Type, right: &Type) -> Option<Resolved> {
    if let (Type::Array(a), Type::Array(b)) = (left, right) {
        let test = array::Test::of(symbol)?;
        let element = if **a == Type::Unknown { b.clone() } else { a.clone() };
        let kind = Type::Array(element);
        return resolved(Op::ArrayTest(test), kind.clone(), kind, Type::Bool);
    }
    let test = json::Test::of(symbol)?;
    if *left != Type::Jsonb {
        return None;
    }
    let other = match test {
        json::Test::Contains | json::Test::Contained if *right == Type::Jsonb => Type::Jsonb,
        json::Test::Exists if is_text(right) => Type::Text,
        json::Test::ExistsAny | json::Test::ExistsAll if matches!(right, Type::Array(_)) => {
            Type::Array(Box::new(Type::Text))
        }
        _ => return None,
    };
    resolved(Op::JsonTest(test), Type::Jsonb, other, Type::Bool)
}

/// A resolved operator as a function that DataFusion calls.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct Operator {
    /// How it is written.
    pub symbol: String,
    /// What it is.
    pub resolved: Resolved,
    /// The session's time zone when the statement was bound.
    pub zone: String,
    signature: Signature,
}

impl Operator {
    /// The call of an operator on operands that have its types already.
    pub(crate) fn call(symbol: &str, resolved: Resolved, zone: &str, left: Expr, right: Expr) -> Expr {
        let operator = Self {
            symbol: symbol.to_owned(),
            resolved,
            zone: zone.to_owned(),
            signature: Signature::new(TypeSignature::Any(2), Volatility::Immutable),
        };
        Expr::ScalarFunction(ScalarFunction::new_udf(
            Arc::new(ScalarUDF::new_from_impl(operator)),
            vec![left, right],
        ))
    }

    /// The operator that an expression applies, and its operands.
    pub fn of(expr: &Expr) -> Option<(&Self, &Expr, &Expr)> {
        let Expr::ScalarFunction(function) = expr else {
            return None;
        };
        let operator = function.func.inner().downcast_ref::<Self>()?;
        match function.args.as_slice() {
            [left, right] => Some((operator, left, right)),
            _ => None,
        }
    }
}

impl ScalarUDFImpl for Operator {
    fn name(&self) -> &str {
        &self.symbol
    }

    fn schema_name(&self, args: &[Expr]) -> DataFusionResult<String> {
        Ok(match args {
            [left, right] => format!("({left} {} {right})", self.symbol),
            _ => self.symbol.clone(),
        })
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> DataFusionResult<DataType> {
        Ok(self.resolved.result.arrow())
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> DataFusionResult<FieldRef> {
        let partial = matches!(self.resolved.op, Op::JsonGet(_) | Op::ConcatArray(_));
        let nullable = partial || args.arg_fields.iter().any(|field| field.is_nullable());
        let nullability = if nullable {
            Nullability::Nullable
        } else {
            Nullability::NotNull
        };
        Ok(Arc::new(self.resolved.result.field("operator", nullability)))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> DataFusionResult<ColumnarValue> {
        if let Some(fast) = self.invoke_on_scalar(&args) {
            return fast.map_err(external);
        }
        let (arrays, shape) = expand(&args)?;
        let [left, right] = arrays.as_slice() else {
            return Err(external(Error::internal("an operator takes two values")));
        };
        let result = self.evaluate(left, right).map_err(external)?;
        columnar(result, shape)
    }
}

/// Arrow's error of a checked kernel, in PostgreSQL's words.
fn kernel_error(error: ArrowError, kind: &Type) -> Error {
    match error {
        ArrowError::DivideByZero => Error::semantic("22012", "division by zero"),
        ArrowError::ArithmeticOverflow(_) => out_of_range(kind),
        other => Error::from(other),
    }
}

impl Operator {
    /// Integers of which one side is a constant need no column for it.
    fn invoke_on_scalar(&self, args: &ScalarFunctionArgs) -> Option<Result<ColumnarValue>> {
        let Op::Integer(sign) = self.resolved.op else {
            return None;
        };
        let kind = &self.resolved.result;
        let result = match args.args.as_slice() {
            [ColumnarValue::Array(left), ColumnarValue::Scalar(right)] => {
                let right = right.to_scalar().ok()?;
                integers(sign, left, &right)
            }
            [ColumnarValue::Scalar(left), ColumnarValue::Array(right)] => {
                let left = left.to_scalar().ok()?;
                integers(sign, &left, right)
            }
            [ColumnarValue::Array(left), ColumnarValue::Array(right)] => integers(sign, left, right),
            _ => return None,
        };
        Some(
            result
                .map(ColumnarValue::Array)
                .map_err(|error| kernel_error(error, kind)),
        )
    }

    fn evaluate(&self, left: &ArrayRef, right: &ArrayRef) -> Result<ArrayRef> {
        let Resolved { op, result, .. } = &self.resolved;
        if left.data_type() == &DataType::Null || right.data_type() == &DataType::Null {
            return Ok(arrow::array::new_null_array(&result.arrow(), left.len()));
        }
        let zone = || Zone::parse(&self.zone);
        match op {
            Op::Integer(sign) => integers(*sign, left, right).map_err(|error| kernel_error(error, result)),
            Op::Float(sign) => floats(*sign, left, right),
            Op::Numeric(sign) => decimal::arithmetic(sign.arithmetic(), left, right, result),
            Op::Power => super::math::power(left, right, result),
            Op::DateDays(sign) => interval::date_days(left, right, *sign),
            Op::DateDifference => interval::date_difference(left, right),
            Op::TimestampDifference => interval::timestamp_difference(left, right),
            Op::TimeDifference => interval::time_difference(left, right),
            Op::TimestampInterval(sign) => {
                let zone = matches!(result, Type::Timestamptz(_)).then(zone).transpose()?;
                interval::shift_timestamps(left, right, *sign, zone)
            }
            Op::TimeInterval(sign) => interval::shift_times(left, right, *sign),
            Op::DateTime => interval::date_and_time(left, right),
            Op::IntervalSum(sign) => interval::sum(left, right, *sign),
            Op::IntervalScale(sign) => interval::scale(left, right, *sign),
            Op::Bits(bit) => bit_operation(*bit, left, right, result),
            Op::Concat => Ok(concat_text(left, right)),
            Op::ConcatBytes => Ok(concat_bytes(left, right)),
            Op::ConcatArray(sides) => array::concat(left, right, *sides, result),
            Op::ConcatJson => json::concat(left, right),
            Op::JsonGet(get) => json::get(left, right, *get, &self.resolved.left, result),
            Op::JsonTest(test) => json::test(left, right, *test),
            Op::JsonDelete(delete) => json::delete(left, right, *delete),
            Op::Regex(kind) => pattern::regex(left, right, *kind),
            Op::Like(kind) => pattern::like(left, right, *kind),
            Op::ArrayTest(test) => array::test(left, right, *test),
            Op::StartsWith => {
                let found = left
                    .as_string::<i32>()
                    .iter()
                    .zip(right.as_string::<i32>())
                    .map(|(text, start)| Some(text?.starts_with(start?)))
                    .collect::<arrow::array::BooleanArray>();
                Ok(Arc::new(found))
            }
        }
    }
}

fn integers(
    sign: Sign,
    left: &dyn arrow::array::Datum,
    right: &dyn arrow::array::Datum,
) -> Result<ArrayRef, ArrowError> {
    match sign {
        Sign::Plus => numeric::add(left, right),
        Sign::Minus => numeric::sub(left, right),
        Sign::Times => numeric::mul(left, right),
        Sign::Over => numeric::div(left, right),
        Sign::Modulo => numeric::rem(left, right),
    }
}

/// Floats, where infinity may not come of finite numbers and nothing is divided by zero.
fn floats(sign: Sign, left: &ArrayRef, right: &ArrayRef) -> Result<ArrayRef> {
    macro_rules! each {
        ($kind:ty, $native:ty) => {{
            let lefts = left.as_primitive::<$kind>();
            let rights = right.as_primitive::<$kind>();
            let result: arrow::array::PrimitiveArray<$kind> =
                arrow::compute::try_binary(lefts, rights, |a: $native, b: $native| {
                    float(sign, a.into(), b.into(), <$native>::MAX.into())
                        .map(|value| value as $native)
                        .map_err(|error| ArrowError::ExternalError(Box::new(error)))
                })?;
            Ok(Arc::new(result))
        }};
    }
    match left.data_type() {
        DataType::Float32 => each!(Float32Type, f32),
        _ => each!(Float64Type, f64),
    }
}

fn float(sign: Sign, a: f64, b: f64, largest: f64) -> Result<f64> {
    if sign == Sign::Over && b == 0.0 && !a.is_nan() {
        return Err(Error::semantic("22012", "division by zero"));
    }
    let value = match sign {
        Sign::Plus => a + b,
        Sign::Minus => a - b,
        Sign::Times => a * b,
        _ => a / b,
    };
    let finite = a.is_finite() && b.is_finite();
    if finite && (value.abs() > largest) {
        return Err(Error::semantic("22003", "value out of range: overflow"));
    }
    let vanished = match sign {
        Sign::Times => a != 0.0 && b != 0.0,
        Sign::Over => a != 0.0,
        _ => false,
    };
    if finite && vanished && value == 0.0 {
        return Err(Error::semantic("22003", "value out of range: underflow"));
    }
    Ok(value)
}

fn bit_operation(bit: Bit, left: &ArrayRef, right: &ArrayRef, result: &Type) -> Result<ArrayRef> {
    let wide = |array: &ArrayRef| arrow::compute::cast(array, &DataType::Int64);
    let (lefts, rights) = (wide(left)?, wide(right)?);
    let width = match result {
        Type::Int2 => 16,
        Type::Int4 => 32,
        _ => 64,
    };
    let values: arrow::array::Int64Array = arrow::compute::binary(
        lefts.as_primitive::<Int64Type>(),
        rights.as_primitive::<Int64Type>(),
        |a, b| match bit {
            Bit::And => a & b,
            Bit::Or => a | b,
            Bit::Xor => a ^ b,
            // As C shifts: the count is taken modulo the width that it computes in.
            Bit::Left => a.wrapping_shl(b as u32 % if width == 64 { 64 } else { 32 }),
            Bit::Right => a.wrapping_shr(b as u32 % if width == 64 { 64 } else { 32 }),
        },
    )?;
    // Shifted-out bits are lost, which is no overflow.
    let narrowed: ArrayRef = match result {
        Type::Int2 => Arc::new(values.unary::<_, arrow::datatypes::Int16Type>(|value| value as i16)),
        Type::Int4 => Arc::new(values.unary::<_, Int32Type>(|value| value as i32)),
        _ => Arc::new(values),
    };
    Ok(narrowed)
}

fn concat_text(left: &ArrayRef, right: &ArrayRef) -> ArrayRef {
    let (lefts, rights) = (left.as_string::<i32>(), right.as_string::<i32>());
    let bytes = lefts.value_data().len() + rights.value_data().len();
    let mut builder = StringBuilder::with_capacity(left.len(), bytes);
    let mut scratch = String::new();
    for (a, b) in lefts.iter().zip(rights) {
        match (a, b) {
            (Some(a), Some(b)) => {
                scratch.clear();
                scratch.push_str(a);
                scratch.push_str(b);
                builder.append_value(&scratch);
            }
            _ => builder.append_null(),
        }
    }
    Arc::new(builder.finish())
}

fn concat_bytes(left: &ArrayRef, right: &ArrayRef) -> ArrayRef {
    let joined: arrow::array::BinaryArray = left
        .as_binary::<i32>()
        .iter()
        .zip(right.as_binary::<i32>())
        .map(|(a, b)| Some([a?, b?].concat()))
        .collect();
    Arc::new(joined)
}
