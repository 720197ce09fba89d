//! Whole numbers: remainders, quotients, divisors, factorials, bits and buckets.

use super::numbers;
use crate::error::{Error, Result};
use crate::sql::function::cast::out_of_range;
use crate::sql::function::decimal::{Exacts, build, overflow, rescale};
use crate::sql::function::definition::Call;
use crate::types::Type;
use arrow::array::{Array, ArrayRef, AsArray, Int32Array, Int64Array};
use arrow::datatypes::{ArrowPrimitiveType, Float64Type, Int32Type, Int64Type, i256};
use std::sync::Arc;

pub(super) fn bit_not(call: &Call<'_>) -> Result<ArrayRef> {
    numbers(call, |value| Some(!value), |value| value, Some)
}

pub(super) fn modulo<T: ArrowPrimitiveType>(call: &Call<'_>) -> Result<ArrayRef> {
    arrow::compute::kernels::numeric::rem(
        call.arguments[0].as_primitive::<T>(),
        call.arguments[1].as_primitive::<T>(),
    )
    .map_err(Error::from)
}

pub(super) fn div(call: &Call<'_>) -> Result<ArrayRef> {
    let (a, a_scale) = Exacts::of(&call.arguments[0])?;
    let (b, b_scale) = Exacts::of(&call.arguments[1])?;
    let common = a_scale.max(b_scale);
    let mut values = Vec::with_capacity(call.rows);
    for row in 0..call.rows {
        if a.is_null(row) || b.is_null(row) {
            values.push(None);
            continue;
        }
        let (x, y) = (
            rescale(a.value(row), a_scale, common),
            rescale(b.value(row), b_scale, common),
        );
        let (Some(x), Some(y)) = (x, y) else {
            return Err(overflow(call.result));
        };
        if y == i256::ZERO {
            return Err(Error::semantic("22012", "division by zero"));
        }
        values.push(x.checked_div(y));
    }
    build(values, call.result)
}

pub(super) fn gcd(a: i64, b: i64) -> Option<i64> {
    let (mut a, mut b) = (a.unsigned_abs(), b.unsigned_abs());
    while b != 0 {
        (a, b) = (b, a % b);
    }
    i64::try_from(a).ok()
}

pub(super) fn integers(call: &Call<'_>, change: impl Fn(i64, i64) -> Option<i64>) -> Result<ArrayRef> {
    let (a, b) = (
        call.arguments[0].as_primitive::<Int64Type>(),
        call.arguments[1].as_primitive::<Int64Type>(),
    );
    let mut values = Vec::with_capacity(call.rows);
    for (a, b) in a.iter().zip(b) {
        values.push(match (a, b) {
            (Some(a), Some(b)) => Some(change(a, b).ok_or_else(|| out_of_range(&Type::Int8))?),
            _ => None,
        });
    }
    Ok(Arc::new(Int64Array::from(values)))
}

pub(super) fn factorial(call: &Call<'_>) -> Result<ArrayRef> {
    let mut values = Vec::with_capacity(call.rows);
    for value in call.arguments[0].as_primitive::<Int64Type>() {
        let Some(n) = value else {
            values.push(None);
            continue;
        };
        if n < 0 {
            return Err(Error::semantic("22003", "factorial of a negative number is undefined"));
        }
        let mut product = Some(i256::ONE);
        for factor in 2..=n.min(100) {
            product = product.and_then(|product| product.checked_mul(i256::from_i128(i128::from(factor))));
        }
        values.push(Some(product.ok_or_else(|| overflow(&Type::Numeric(None)))?));
    }
    build(values, call.result)
}

pub(super) fn width_bucket(call: &Call<'_>) -> Result<ArrayRef> {
    let column = |index: usize| call.arguments[index].as_primitive::<Float64Type>();
    let (operand, low, high) = (column(0), column(1), column(2));
    let counts = call.arguments[3].as_primitive::<Int32Type>();
    let mut values = Vec::with_capacity(call.rows);
    for row in 0..call.rows {
        if operand.is_null(row) || low.is_null(row) || high.is_null(row) || counts.is_null(row) {
            values.push(None);
            continue;
        }
        let (x, low, high, count) = (operand.value(row), low.value(row), high.value(row), counts.value(row));
        if count <= 0 {
            return Err(Error::semantic("2201G", "count must be greater than zero"));
        }
        if low == high {
            return Err(Error::semantic("2201G", "lower bound cannot equal upper bound"));
        }
        let (x, low, high) = if low < high { (x, low, high) } else { (-x, -low, -high) };
        values.push(Some(if x < low {
            0
        } else if x >= high {
            count.checked_add(1).ok_or_else(|| out_of_range(&Type::Int4))?
        } else {
            ((x - low) / (high - low) * f64::from(count)) as i32 + 1
        }));
    }
    Ok(Arc::new(Int32Array::from(values)))
}
