//! Functions on numbers.

mod exact;
mod exponential;
mod integer;
mod round;

use super::cast::out_of_range;
use super::decimal::{Exacts, build, overflow};
use super::definition::{Call, Definition, Kind, Overload};
use crate::error::{Error, Result};
use crate::types::Type;
use arrow::array::{Array, ArrayRef, AsArray, Float64Array, Int32Array};
use arrow::datatypes::{ArrowPrimitiveType, DataType, Float32Type, Float64Type, Int16Type, Int32Type, Int64Type, i256};
use datafusion::common::ScalarValue;
pub(super) use exponential::power;
use exponential::{exp, logarithm, sqrt};
use integer::{bit_not, div, factorial, gcd, integers, modulo, width_bucket};
use round::{Direction, to_digits, to_whole};
use std::sync::Arc;

fn float8(_: &[Type]) -> Type {
    Type::Float8
}

fn same(types: &[Type]) -> Type {
    types.first().cloned().unwrap_or(Type::Unknown)
}

fn int4(_: &[Type]) -> Type {
    Type::Int4
}

fn int8(_: &[Type]) -> Type {
    Type::Int8
}

fn quotient(_: &[Type]) -> Type {
    Type::Quotient
}

/// An integral numeric with room for a carry.
fn whole(types: &[Type]) -> Type {
    match types.first() {
        Some(Type::Numeric(Some((precision, scale)))) => {
            let digits = (i32::from(*precision) - i32::from(*scale) + 1).clamp(1, 76);
            Type::Numeric(Some((digits as u8, 0)))
        }
        _ => Type::Numeric(Some((39, 0))),
    }
}

const fn takes(
    arguments: &'static [Kind],
    result: fn(&[Type]) -> Type,
    kernel: fn(&Call<'_>) -> Result<ArrayRef>,
) -> Overload {
    Overload {
        arguments,
        rest: None,
        result,
        kernel,
        of_constants: None,
    }
}

const fn named(name: &'static str, doc: &'static str, overloads: &'static [Overload]) -> Definition {
    Definition { name, doc, overloads }
}

/// `round(x, n)`, of n digits where n is a constant.
const fn to_constant_digits(kernel: fn(&Call<'_>) -> Result<ArrayRef>) -> Overload {
    Overload {
        arguments: &[Kind::Numeric, Kind::Int4],
        rest: None,
        result: rounded,
        kernel,
        of_constants: Some(|result, constants| {
            let Some(Some(ScalarValue::Int32(Some(digits)))) = constants.get(1) else {
                return result;
            };
            let digits = (*digits).clamp(0, 38) as i8;
            let whole = match result {
                Type::Numeric(Some((precision, scale))) => i32::from(precision) - i32::from(scale),
                _ => 39,
            };
            Type::Numeric(Some(((whole + i32::from(digits)).clamp(1, 76) as u8, digits)))
        }),
    }
}

use Kind::{Any, Float8, Int4, Int8, Numeric};

/// One float to one float.
macro_rules! float_function {
    ($name:literal, $doc:literal, $change:expr) => {
        named($name, $doc, &[takes(&[Float8], float8, |call| floats(call, $change))])
    };
}

/// The functions of this file.
pub(super) const FUNCTIONS: &[Definition] = &[
    named("abs", "The absolute value.", &[takes(&[Any], same, abs)]),
    named(
        "__negative",
        "The number with the other sign.",
        &[takes(&[Any], same, negative)],
    ),
    named(
        "__bitnot",
        "The number with all bits turned.",
        &[takes(&[Any], same, bit_not)],
    ),
    named(
        "sign",
        "-1, 0 or 1.",
        &[
            takes(&[Numeric], quotient_like, sign),
            takes(&[Float8], float8, |call| {
                floats(call, |x| Ok(if x == 0.0 { 0.0 } else { x.signum() }))
            }),
        ],
    ),
    named("ceil", "The least integer not below.", CEIL),
    named("ceiling", "The least integer not below.", CEIL),
    named(
        "floor",
        "The greatest integer not above.",
        &[
            takes(&[Numeric], whole, |call| to_whole(call, Direction::Down)),
            takes(&[Float8], float8, |call| floats(call, |x| Ok(x.floor()))),
        ],
    ),
    named(
        "round",
        "The nearest number of so many digits; halves away from zero, of floats to the even one.",
        &[
            takes(&[Numeric], whole, |call| to_whole(call, Direction::Nearest)),
            takes(&[Float8], float8, |call| floats(call, |x| Ok(x.round_ties_even()))),
            to_constant_digits(|call| to_digits(call, Direction::Nearest)),
        ],
    ),
    named(
        "trunc",
        "The number cut to so many digits.",
        &[
            takes(&[Numeric], whole, |call| to_whole(call, Direction::Zero)),
            takes(&[Float8], float8, |call| floats(call, |x| Ok(x.trunc()))),
            to_constant_digits(|call| to_digits(call, Direction::Zero)),
        ],
    ),
    named(
        "mod",
        "The rest of a division.",
        &[
            takes(&[Int4, Int4], int4, modulo::<Int32Type>),
            takes(&[Int8, Int8], int8, modulo::<Int64Type>),
            takes(&[Numeric, Numeric], modulo_type, |call| {
                super::decimal::arithmetic(
                    super::decimal::Arithmetic::Modulo,
                    &call.arguments[0],
                    &call.arguments[1],
                    call.result,
                )
            }),
        ],
    ),
    named(
        "div",
        "The integral quotient.",
        &[takes(&[Numeric, Numeric], |_| Type::Numeric(Some((39, 0))), div)],
    ),
    named(
        "gcd",
        "The greatest common divisor.",
        &[takes(&[Int8, Int8], int8, |call| integers(call, gcd))],
    ),
    named(
        "lcm",
        "The least common multiple.",
        &[takes(&[Int8, Int8], int8, |call| {
            integers(call, |a, b| {
                if a == 0 || b == 0 {
                    return Some(0);
                }
                (a / gcd(a, b)?).checked_mul(b)?.checked_abs()
            })
        })],
    ),
    named(
        "factorial",
        "n!",
        &[takes(&[Int8], |_| Type::Numeric(Some((76, 0))), factorial)],
    ),
    named("power", "a raised to b.", POWER),
    named("pow", "a raised to b.", POWER),
    named(
        "sqrt",
        "The square root.",
        &[
            takes(&[Float8], float8, |call| floats(call, sqrt)),
            takes(&[Numeric], quotient, exact::sqrt),
        ],
    ),
    named(
        "cbrt",
        "The cube root.",
        &[takes(&[Float8], float8, |call| floats(call, |x| Ok(x.cbrt())))],
    ),
    named(
        "exp",
        "e raised to it.",
        &[
            takes(&[Float8], float8, |call| floats(call, exp)),
            takes(&[Numeric], quotient, exact::exp),
        ],
    ),
    named(
        "ln",
        "The natural logarithm.",
        &[
            takes(&[Float8], float8, |call| floats(call, |x| logarithm(x, f64::ln))),
            takes(&[Numeric], quotient, exact::ln),
        ],
    ),
    named(
        "log",
        "The logarithm to base 10, or to a given base.",
        &[
            takes(&[Float8], float8, |call| floats(call, |x| logarithm(x, f64::log10))),
            takes(&[Numeric], quotient, exact::log10),
            takes(&[Numeric, Numeric], quotient, exact::log),
        ],
    ),
    named(
        "log10",
        "The logarithm to base 10.",
        &[
            takes(&[Float8], float8, |call| floats(call, |x| logarithm(x, f64::log10))),
            takes(&[Numeric], quotient, exact::log10),
        ],
    ),
    float_function!("sin", "The sine.", |x| Ok(x.sin())),
    float_function!("cos", "The cosine.", |x| Ok(x.cos())),
    float_function!("tan", "The tangent.", |x| Ok(x.tan())),
    float_function!("cot", "The cotangent.", |x| Ok(1.0 / x.tan())),
    float_function!("asin", "The inverse sine.", |x| in_unit(x).map(f64::asin)),
    float_function!("acos", "The inverse cosine.", |x| in_unit(x).map(f64::acos)),
    float_function!("atan", "The inverse tangent.", |x| Ok(x.atan())),
    float_function!("sinh", "The hyperbolic sine.", |x| Ok(x.sinh())),
    float_function!("cosh", "The hyperbolic cosine.", |x| Ok(x.cosh())),
    float_function!("tanh", "The hyperbolic tangent.", |x| Ok(x.tanh())),
    float_function!("degrees", "Radians in degrees.", |x| Ok(x.to_degrees())),
    float_function!("radians", "Degrees in radians.", |x| Ok(x.to_radians())),
    named(
        "atan2",
        "The angle of a point.",
        &[takes(&[Float8, Float8], float8, |call| {
            Ok(Arc::new(pairs(call, |y, x| Ok(y.atan2(x)))?))
        })],
    ),
    named(
        "pi",
        "3.14159...",
        &[takes(&[], float8, |call| {
            Ok(Arc::new(Float64Array::from(vec![std::f64::consts::PI; call.rows])))
        })],
    ),
    named(
        "width_bucket",
        "The number of the bucket that a number is in.",
        &[takes(&[Float8, Float8, Float8, Int4], int4, width_bucket)],
    ),
    named(
        "scale",
        "The digits after the point.",
        &[takes(&[Numeric], int4, scale_of)],
    ),
];

const CEIL: &[Overload] = &[
    takes(&[Numeric], whole, |call| to_whole(call, Direction::Up)),
    takes(&[Float8], float8, |call| floats(call, |x| Ok(x.ceil()))),
];

const POWER: &[Overload] = &[
    takes(&[Float8, Float8], float8, |call| {
        power(&call.arguments[0], &call.arguments[1], call.result)
    }),
    takes(&[Numeric, Numeric], quotient, |call| {
        power(&call.arguments[0], &call.arguments[1], call.result)
    }),
];

fn quotient_like(_: &[Type]) -> Type {
    Type::Numeric(Some((1, 0)))
}

fn rounded(types: &[Type]) -> Type {
    match types.first() {
        Some(Type::Numeric(Some((precision, scale)))) => {
            Type::Numeric(Some((precision.saturating_add(1).min(76), *scale)))
        }
        _ => Type::Numeric(None),
    }
}

fn modulo_type(types: &[Type]) -> Type {
    use super::decimal::{Arithmetic, Exact, result_type};
    match (types.first().and_then(Exact::of), types.get(1).and_then(Exact::of)) {
        (Some(a), Some(b)) => result_type(Arithmetic::Modulo, a, b),
        _ => Type::Numeric(None),
    }
}

fn finite(value: f64, given: f64) -> Result<f64> {
    if value.is_infinite() && given.is_finite() {
        return Err(Error::semantic("22003", "value out of range: overflow"));
    }
    Ok(value)
}

fn floats(call: &Call<'_>, change: impl Fn(f64) -> Result<f64>) -> Result<ArrayRef> {
    let values = call.arguments[0].as_primitive::<Float64Type>();
    let result: Float64Array = values.try_unary(|value| change(value).and_then(|result| finite(result, value)))?;
    Ok(Arc::new(result))
}

/// A function of exact numbers that is computed with floats: some 15 digits of the result are right.
fn pairs(call: &Call<'_>, change: impl Fn(f64, f64) -> Result<f64>) -> Result<Float64Array> {
    let (a, b) = (
        call.arguments[0].as_primitive::<Float64Type>(),
        call.arguments[1].as_primitive::<Float64Type>(),
    );
    let mut values = Vec::with_capacity(call.rows);
    for (a, b) in a.iter().zip(b) {
        values.push(match (a, b) {
            (Some(a), Some(b)) => Some(change(a, b)?),
            _ => None,
        });
    }
    Ok(Float64Array::from(values))
}

fn in_unit(x: f64) -> Result<f64> {
    if !(-1.0..=1.0).contains(&x) && !x.is_nan() {
        return Err(Error::semantic("22003", "input is out of range"));
    }
    Ok(x)
}

/// The numbers of any type, changed within it.
fn numbers(
    call: &Call<'_>,
    integer: impl Fn(i64) -> Option<i64>,
    float: impl Fn(f64) -> f64,
    exact: impl Fn(i256) -> Option<i256>,
) -> Result<ArrayRef> {
    let array = &call.arguments[0];
    let kind = call.result;
    match array.data_type() {
        DataType::Int16 => each_integer::<Int16Type>(array, kind, integer),
        DataType::Int32 => each_integer::<Int32Type>(array, kind, integer),
        DataType::Int64 => each_integer::<Int64Type>(array, kind, integer),
        DataType::Float32 => Ok(Arc::new(
            array
                .as_primitive::<Float32Type>()
                .unary::<_, Float32Type>(|value| float(f64::from(value)) as f32),
        )),
        DataType::Float64 => Ok(Arc::new(
            array.as_primitive::<Float64Type>().unary::<_, Float64Type>(float),
        )),
        DataType::Decimal128(..) | DataType::Decimal256(..) => {
            let (numbers, _) = Exacts::of(array)?;
            let mut values = Vec::with_capacity(call.rows);
            for row in 0..call.rows {
                values.push(if numbers.is_null(row) {
                    None
                } else {
                    Some(exact(numbers.value(row)).ok_or_else(|| overflow(kind))?)
                });
            }
            build(values, kind)
        }
        _ => Err(Error::semantic(
            "42883",
            format!("operator does not exist: - {}", call.types[0]),
        )),
    }
}

fn each_integer<T>(array: &ArrayRef, kind: &Type, change: impl Fn(i64) -> Option<i64>) -> Result<ArrayRef>
where
    T: ArrowPrimitiveType,
    T::Native: Into<i64> + TryFrom<i64>,
{
    let values = array.as_primitive::<T>();
    let result: arrow::array::PrimitiveArray<T> = values.try_unary(|value: T::Native| {
        change(value.into())
            .and_then(|value| T::Native::try_from(value).ok())
            .ok_or_else(|| out_of_range(kind))
    })?;
    Ok(Arc::new(result))
}

fn abs(call: &Call<'_>) -> Result<ArrayRef> {
    numbers(call, i64::checked_abs, f64::abs, |value| Some(value.wrapping_abs()))
}

fn negative(call: &Call<'_>) -> Result<ArrayRef> {
    if matches!(call.types[0], Type::Interval) {
        let values = call.arguments[0].as_primitive::<arrow::datatypes::IntervalMonthDayNanoType>();
        let result: arrow::array::IntervalMonthDayNanoArray = values.try_unary(super::interval::negated)?;
        return Ok(Arc::new(result));
    }
    if call.types[0] == Type::Text {
        // `- '5'`: a literal of no type, which PostgreSQL takes for a float.
        let floats = super::cast::convert(
            &call.arguments[0],
            &Type::Text,
            &Type::Float8,
            super::cast::Context::Explicit,
            &Default::default(),
        )?;
        let negated: Float64Array = floats.as_primitive::<Float64Type>().unary(|value: f64| -value);
        return super::cast::convert(
            &(Arc::new(negated) as ArrayRef),
            &Type::Float8,
            &Type::Text,
            super::cast::Context::Explicit,
            &Default::default(),
        );
    }
    numbers(
        call,
        i64::checked_neg,
        |value| -value,
        |value| Some(value.wrapping_neg()),
    )
}

fn sign(call: &Call<'_>) -> Result<ArrayRef> {
    let (numbers, _) = Exacts::of(&call.arguments[0])?;
    let values = (0..call.rows)
        .map(|row| {
            (!numbers.is_null(row)).then(|| {
                let value = numbers.value(row);
                if value == i256::ZERO {
                    i256::ZERO
                } else if value.is_negative() {
                    i256::MINUS_ONE
                } else {
                    i256::ONE
                }
            })
        })
        .collect();
    build(values, call.result)
}

fn scale_of(call: &Call<'_>) -> Result<ArrayRef> {
    let (numbers, scale) = Exacts::of(&call.arguments[0])?;
    let fixed = matches!(call.types[0], Type::Numeric(Some(_)));
    let values: Int32Array = (0..call.rows)
        .map(|row| {
            (!numbers.is_null(row)).then(|| {
                if fixed {
                    return i32::from(scale);
                }
                i32::from(
                    super::decimal::Number {
                        value: numbers.value(row),
                        scale,
                    }
                    .trimmed()
                    .scale,
                )
            })
        })
        .collect();
    Ok(Arc::new(values))
}
