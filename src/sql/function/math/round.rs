//! Rounding to whole numbers and to so many digits.

use crate::error::Result;
use crate::sql::function::decimal;
use crate::sql::function::decimal::{Exacts, build, overflow, rescale};
use crate::sql::function::definition::Call;
use arrow::array::{Array, ArrayRef, AsArray};
use arrow::datatypes::{Int32Type, i256};

/// Which way a number is rounded.
#[derive(Clone, Copy)]
pub(super) enum Direction {
    Up,
    Down,
    Zero,
    Nearest,
}

/// A number at a lower scale.
fn at_scale(value: i256, from: i8, to: i8, direction: Direction) -> Option<i256> {
    if to >= from {
        return rescale(value, from, to);
    }
    let power = match decimal::power_of_ten(i32::from(from) - i32::from(to)) {
        Some(power) => power,
        None => return Some(i256::ZERO),
    };
    let cut = value.checked_div(power)?;
    let rest = value.checked_rem(power)?;
    Some(match direction {
        Direction::Nearest => decimal::divide_rounded(value, power)?,
        Direction::Up if rest > i256::ZERO => cut.checked_add(i256::ONE)?,
        Direction::Down if rest < i256::ZERO => cut.checked_sub(i256::ONE)?,
        _ => cut,
    })
}

pub(super) fn to_whole(call: &Call<'_>, direction: Direction) -> Result<ArrayRef> {
    let (numbers, scale) = Exacts::of(&call.arguments[0])?;
    let mut values = Vec::with_capacity(call.rows);
    for row in 0..call.rows {
        values.push(if numbers.is_null(row) {
            None
        } else {
            Some(at_scale(numbers.value(row), scale, 0, direction).ok_or_else(|| overflow(call.result))?)
        });
    }
    build(values, call.result)
}

pub(super) fn to_digits(call: &Call<'_>, direction: Direction) -> Result<ArrayRef> {
    let (numbers, scale) = Exacts::of(&call.arguments[0])?;
    let digits = call.arguments[1].as_primitive::<Int32Type>();
    let (_, result_scale) =
        Exacts::of(&arrow::array::new_empty_array(&call.result.arrow())).map(|(_, scale)| ((), scale))?;
    let mut values = Vec::with_capacity(call.rows);
    for row in 0..call.rows {
        if numbers.is_null(row) || digits.is_null(row) {
            values.push(None);
            continue;
        }
        let to = digits.value(row).clamp(-76, i32::from(scale)) as i8;
        let value = at_scale(numbers.value(row), scale, to, direction)
            .and_then(|value| rescale(value, to, result_scale))
            .ok_or_else(|| overflow(call.result))?;
        values.push(Some(value));
    }
    build(values, call.result)
}
