//! Decimal results: scales, rounding and limits as PostgreSQL's numeric has them.

use super::exact::Exact;
use crate::error::{Error, Result};
use arrow::array::{ArrayRef, AsArray};
use arrow::datatypes::{DataType, Decimal128Type, Decimal256Type, i256};
use std::sync::Arc;

/// The digits of a quotient that PostgreSQL keeps at least.
const SIGNIFICANT_DIGITS: i32 = 16;

/// The digits after the point of a type; 0 for integers.
pub(crate) fn scale_of(data_type: &DataType) -> i8 {
    match data_type {
        DataType::Decimal128(_, scale) | DataType::Decimal256(_, scale) => *scale,
        _ => 0,
    }
}

/// The error for a numeric that is too large.
pub(crate) fn overflow() -> Error {
    Error::semantic("22003", "value overflows numeric format")
}

/// Refuses a value with more digits than `precision`.
pub(crate) fn check(value: i256, precision: u8) -> Result<()> {
    arrow::datatypes::validate_decimal256_precision(value, precision, 0).map_err(|_| overflow())
}

/// The square root at the same scale, rounded; `None` when the way there does not fit 256 bits.
pub(crate) fn square_root(value: i256, scale: i8) -> Option<i256> {
    let square = value.checked_mul(power_of_ten(scale as u32)?)?;
    if square <= i256::ZERO {
        return Some(i256::ZERO);
    }
    // Newton's method from above.
    let two = i256::from_i128(2);
    let mut root = i256::ONE << (((257 - square.leading_zeros()) / 2 + 1).min(254) as u8);
    loop {
        let next = square.checked_div(root)?.checked_add(root)?.checked_div(two)?;
        if next >= root {
            break;
        }
        root = next;
    }
    let rest = square.checked_sub(root.checked_mul(root)?)?;
    if rest > root {
        root.checked_add(i256::ONE)
    } else {
        Some(root)
    }
}

/// The same values as decimals of another precision and scale.
pub(crate) fn retyped(values: &ArrayRef, output: &DataType) -> ArrayRef {
    match output {
        DataType::Decimal128(..) => {
            let values = values.as_primitive::<Decimal128Type>().clone();
            Arc::new(values.with_data_type(output.clone()))
        }
        DataType::Decimal256(..) => {
            let values = values.as_primitive::<Decimal256Type>().clone();
            Arc::new(values.with_data_type(output.clone()))
        }
        _ => values.clone(),
    }
}

/// The value at another scale, rounded half away from zero; `None` when it does not fit.
pub(crate) fn rescale(value: i256, from: i8, to: i8) -> Option<i256> {
    if to >= from {
        return value.checked_mul(power_of_ten((to - from) as u32)?);
    }
    let divisor = power_of_ten((from - to) as u32)?;
    let quotient = value.checked_div(divisor)?;
    let rest = value.checked_rem(divisor)?;
    let twice = rest.wrapping_abs().checked_mul(i256::from_i128(2))?;
    let step = if value.is_negative() {
        i256::MINUS_ONE
    } else {
        i256::ONE
    };
    if twice >= divisor {
        quotient.checked_add(step)
    } else {
        Some(quotient)
    }
}

/// 10^exponent, if it fits.
pub(crate) fn power_of_ten(exponent: u32) -> Option<i256> {
    i256::from_i128(10).checked_pow(exponent)
}

/// The nearest float.
pub(crate) fn to_float(value: i256) -> f64 {
    let mut exact = Exact::default();
    exact.add_i256(value);
    let (mantissa, exponent) = exact.to_scaled();
    super::exact::scale_by_power(mantissa, exponent)
}

/// sum / count at scale `to`, rounded where PostgreSQL rounds: the common case, in 128 bits. `None` when these do not
/// suffice.
pub(crate) fn mean_of_integers(sum: i128, count: i64, to: i8) -> Option<i256> {
    let count = i128::from(count);
    let size = (sum / count).unsigned_abs();
    // What is at or below 1, or a power of ten itself, takes the wide way.
    if size < 2 || 10_u128.pow(size.ilog10()) == size {
        return None;
    }
    let scale = (SIGNIFICANT_DIGITS - 4 * (size.ilog10() as i32 / 4)).max(0);
    if scale > i32::from(to) {
        return None;
    }
    let scaled = sum.checked_mul(10_i128.checked_pow(scale as u32)?)?;
    let (quotient, rest) = (scaled / count, scaled % count);
    let rounded = if rest.unsigned_abs() * 2 >= count.unsigned_abs() {
        quotient + scaled.signum()
    } else {
        quotient
    };
    i256::from_i128(rounded).checked_mul(power_of_ten((i32::from(to) - scale) as u32)?)
}

/// number * 10^-from / (the divisors' product), at scale `to`, rounded at the scale that PostgreSQL shows a quotient
/// with: 16 significant digits at least, in steps of four, and no fewer after the point than `scale_min`.
pub(crate) fn quotient(number: &Exact, from: i8, divisors: &[u64], scale_min: i8, to: i8) -> Option<i256> {
    if number.is_zero() {
        return Some(i256::ZERO);
    }
    let at = |scale: i8| -> Option<i256> {
        let shift = i32::from(scale) - i32::from(from);
        let mut factor = Exact::default();
        factor.add_i256(power_of_ten(shift.unsigned_abs())?);
        if shift >= 0 {
            return number.product(&factor).divided(divisors).to_i256();
        }
        let tens = vec![10_u64; shift.unsigned_abs() as usize];
        number.divided(&[divisors, &tens].concat()).to_i256()
    };
    let fine = at(to)?;
    let scale = quotient_scale(fine, to).max(from).max(scale_min).min(to);
    rescale(at(scale)?, scale, to)
}

/// The scale at which PostgreSQL rounds a quotient of this size.
pub(crate) fn quotient_scale(value: i256, scale: i8) -> i8 {
    let size = value.wrapping_abs();
    // 10000^k < size <= 10000^(k + 1), in units of 10^-scale.
    let mut k = -i32::from(scale) / 4;
    while k < 10 {
        let exponent = 4 * (k + 1) + i32::from(scale);
        match power_of_ten(exponent.max(0) as u32) {
            Some(limit) if size > limit => k += 1,
            _ => break,
        }
    }
    (SIGNIFICANT_DIGITS - 4 * k).clamp(0, i32::from(scale)) as i8
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mean(sum: i128, count: i64) -> String {
        let mut number = Exact::default();
        number.add_shifted(sum, 0);
        let wide = quotient(&number, 0, &[count as u64], 0, 36).expect("it fits");
        if let Some(short) = mean_of_integers(sum, count, 36) {
            assert_eq!(short, wide, "{sum} / {count}");
        }
        let text = wide.to_string();
        text.trim_end_matches('0').to_owned()
    }

    #[test]
    fn means_are_rounded_where_postgresql_rounds() {
        assert_eq!(mean(10, 3), format!("3{}", "3".repeat(16)));
        assert_eq!(mean(20, 3), format!("6{}7", "6".repeat(15)));
        assert_eq!(mean(-20, 3), format!("-6{}7", "6".repeat(15)));
        assert_eq!(mean(1, 3), "3".repeat(20));
        assert_eq!(mean(100_000, 3), format!("{}{}", "33333", "3".repeat(12)));
        assert_eq!(mean(30_000, 3), "1");
        assert_eq!(mean(2, 1), "2");
    }

    #[test]
    fn square_roots_are_rounded() {
        let number = |value: i128| i256::from_i128(value);
        assert_eq!(square_root(number(400), 2), Some(number(200)));
        assert_eq!(square_root(number(2_0000), 4), Some(number(1_4142)));
        assert_eq!(square_root(number(3_0000), 4), Some(number(1_7321)));
        assert_eq!(square_root(number(0), 4), Some(number(0)));
    }

    #[test]
    fn rescaling_rounds_half_away_from_zero() {
        let number = |value: i128| i256::from_i128(value);
        assert_eq!(rescale(number(25), 1, 0), Some(number(3)));
        assert_eq!(rescale(number(-25), 1, 0), Some(number(-3)));
        assert_eq!(rescale(number(24), 1, 0), Some(number(2)));
        assert_eq!(rescale(number(3), 0, 2), Some(number(300)));
        assert_eq!(rescale(i256::MAX, 0, 2), None);
    }
}
