//! Powers, roots, exponentials and logarithms of floats; those of exact numbers are in `exact`.

use crate::error::{Error, Result};
use crate::sql::function::decimal;
use crate::types::Type;
use arrow::array::{Array, ArrayRef, AsArray, Float64Array};
use arrow::datatypes::{DataType, Float64Type};
use std::sync::Arc;

pub(super) fn negative_root() -> Error {
    Error::semantic("2201F", "cannot take square root of a negative number")
}

pub(super) fn sqrt(x: f64) -> Result<f64> {
    if x < 0.0 {
        return Err(negative_root());
    }
    Ok(x.sqrt())
}

pub(super) fn exp(x: f64) -> Result<f64> {
    Ok(x.exp())
}

/// Refuses what has no logarithm.
pub(super) fn check_logarithm(x: f64) -> Result<()> {
    if x == 0.0 {
        return Err(Error::semantic("2201E", "cannot take logarithm of zero"));
    }
    if x < 0.0 {
        return Err(Error::semantic("2201E", "cannot take logarithm of a negative number"));
    }
    Ok(())
}

pub(super) fn logarithm(x: f64, log: impl Fn(f64) -> f64) -> Result<f64> {
    check_logarithm(x)?;
    Ok(log(x))
}

/// Refuses a power that is not a real number.
pub(super) fn check_power(base: f64, exponent: f64) -> Result<()> {
    if base == 0.0 && exponent < 0.0 {
        return Err(Error::semantic("2201F", "zero raised to a negative power is undefined"));
    }
    if base < 0.0 && exponent.fract() != 0.0 {
        return Err(Error::semantic(
            "2201F",
            "a negative number raised to a non-integer power yields a complex result",
        ));
    }
    Ok(())
}

/// `a ^ b`.
pub(crate) fn power(left: &ArrayRef, right: &ArrayRef, result: &Type) -> Result<ArrayRef> {
    if *result != Type::Float8 {
        return super::exact::power(left, right, result);
    }
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
        check_power(base, exponent)?;
        let value = base.powf(exponent);
        if value.is_infinite() && base.is_finite() && exponent.is_finite() {
            return Err(Error::semantic("22003", "value out of range: overflow"));
        }
        values.push(Some(value));
    }
    Ok(Arc::new(Float64Array::from(values)))
}
