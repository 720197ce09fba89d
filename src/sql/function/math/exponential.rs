//! Powers, roots, exponentials and logarithms.

use crate::error::{Error, Result};
use crate::sql::function::decimal;
use crate::sql::function::decimal::{Exacts, build, nearest_float, rescale};
use crate::sql::function::definition::Call;
use crate::types::{QUOTIENT_SCALE, Type};
use arrow::array::{Array, ArrayRef, AsArray, Float64Array};
use arrow::datatypes::{DataType, Float64Type};
use std::sync::Arc;

pub(super) fn sqrt(x: f64) -> Result<f64> {
    if x < 0.0 {
        return Err(Error::semantic("2201F", "cannot take square root of a negative number"));
    }
    Ok(x.sqrt())
}

pub(super) fn exp(x: f64) -> Result<f64> {
    Ok(x.exp())
}

pub(super) fn logarithm(x: f64, log: impl Fn(f64) -> f64) -> Result<f64> {
    if x == 0.0 {
        return Err(Error::semantic("2201E", "cannot take logarithm of zero"));
    }
    if x < 0.0 {
        return Err(Error::semantic("2201E", "cannot take logarithm of a negative number"));
    }
    Ok(log(x))
}

pub(super) fn log_base(call: &Call<'_>) -> Result<ArrayRef> {
    let (bases, base_scale) = Exacts::of(&call.arguments[0])?;
    let (numbers, scale) = Exacts::of(&call.arguments[1])?;
    let mut values = Vec::with_capacity(call.rows);
    for row in 0..call.rows {
        if bases.is_null(row) || numbers.is_null(row) {
            values.push(None);
            continue;
        }
        let base = logarithm(nearest_float(bases.value(row), base_scale), f64::ln)?;
        let number = logarithm(nearest_float(numbers.value(row), scale), f64::ln)?;
        if base == 0.0 {
            return Err(Error::semantic("22012", "division by zero"));
        }
        values.push(Some(number / base));
    }
    let array: ArrayRef = Arc::new(Float64Array::from(values));
    decimal::convert(&array, &Type::Float8, call.result)
}

/// `a ^ b`.
pub(crate) fn power(left: &ArrayRef, right: &ArrayRef, result: &Type) -> Result<ArrayRef> {
    let to_floats = |array: &ArrayRef| -> Result<ArrayRef> {
        match array.data_type() {
            DataType::Float64 => Ok(array.clone()),
            _ => decimal::convert(array, &Type::Numeric(None), &Type::Float8),
        }
    };
    let (a, b) = (to_floats(left)?, to_floats(right)?);
    let (a, b) = (a.as_primitive::<Float64Type>(), b.as_primitive::<Float64Type>());
    let mut values = Vec::with_capacity(left.len());
    for (base, exponent) in a.iter().zip(b) {
        let (Some(base), Some(exponent)) = (base, exponent) else {
            values.push(None);
            continue;
        };
        if base == 0.0 && exponent < 0.0 {
            return Err(Error::semantic("2201F", "zero raised to a negative power is undefined"));
        }
        if base < 0.0 && exponent.fract() != 0.0 {
            return Err(Error::semantic(
                "2201F",
                "a negative number raised to a non-integer power yields a complex result",
            ));
        }
        let value = base.powf(exponent);
        if value.is_infinite() && base.is_finite() && exponent.is_finite() {
            return Err(Error::semantic("22003", "value out of range: overflow"));
        }
        values.push(Some(value));
    }
    let floats: ArrayRef = Arc::new(Float64Array::from(values));
    match result {
        Type::Float8 => Ok(floats),
        _ => exact_power(left, right, &floats, result),
    }
}

/// Whole powers of exact numbers are exact as long as they fit.
fn exact_power(left: &ArrayRef, right: &ArrayRef, floats: &ArrayRef, result: &Type) -> Result<ArrayRef> {
    let (bases, base_scale) = Exacts::of(left)?;
    let (exponents, exponent_scale) = Exacts::of(right)?;
    let approximate = decimal::convert(floats, &Type::Float8, result)?;
    let (near, _) = Exacts::of(&approximate)?;
    let mut values = Vec::with_capacity(left.len());
    for row in 0..left.len() {
        if bases.is_null(row) || exponents.is_null(row) {
            values.push(None);
            continue;
        }
        let exponent = decimal::Number {
            value: exponents.value(row),
            scale: exponent_scale,
        }
        .trimmed();
        let base = decimal::Number {
            value: bases.value(row),
            scale: base_scale,
        }
        .trimmed();
        let whole = (exponent.scale == 0).then(|| exponent.value.to_i128()).flatten();
        let exact = whole.filter(|n| (0..=256).contains(n)).and_then(|n| {
            let scale = i128::from(base.scale) * n;
            let value = base.value.checked_pow(n as u32)?;
            (scale <= 76)
                .then(|| rescale(value, scale as i8, QUOTIENT_SCALE))
                .flatten()
        });
        values.push(Some(exact.unwrap_or_else(|| near.value(row))));
    }
    build(values, result)
}
