//! Exact numbers: arithmetic on integers scaled by a power of ten, in 128 bits where they fit and 256 otherwise.
//!
//! The scale of a result is its type's, and is fixed when a statement is bound: sums keep the greater scale, products
//! add them, quotients have [`QUOTIENT_SCALE`] digits of which those that PostgreSQL would not compute are zero.
//! Rounding is half away from zero throughout, as PostgreSQL's `numeric` rounds.

use super::cast::{is_float, is_integer, out_of_range};
use crate::error::{Error, Result};
use crate::types::numeric::{Shape, read_decimal};
use crate::types::{FREE_SCALE, QUOTIENT_SCALE, Type};
use arrow::array::{Array, ArrayRef, AsArray, Decimal128Array, Decimal256Array, Float64Array, Int64Array};
use arrow::datatypes::{
    DataType, Decimal128Type, Decimal256Type, Float32Type, Float64Type, Int16Type, Int32Type, Int64Type, i256,
};
use std::sync::{Arc, LazyLock};

/// The powers of ten that 256 bits hold.
static POWERS: LazyLock<Vec<i256>> = LazyLock::new(|| {
    let ten = i256::from_i128(10);
    std::iter::successors(Some(i256::ONE), |power| power.checked_mul(ten))
        .take(77)
        .collect()
});

/// 10^exponent, if 256 bits hold it.
pub(crate) fn power_of_ten(exponent: i32) -> Option<i256> {
    POWERS.get(usize::try_from(exponent).ok()?).copied()
}

/// Addition and its relatives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Arithmetic {
    /// `+`
    Add,
    /// `-`
    Subtract,
    /// `*`
    Multiply,
    /// `/`
    Divide,
    /// `%`
    Modulo,
}

/// The digits and the scale of an exact type, as arithmetic sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exact {
    /// So many digits, so many of them after the point.
    Fixed(u8, i8),
    /// `numeric`
    Free,
    /// A quotient.
    Quotient,
}

impl Exact {
    /// What a type is to arithmetic; `None` for what is not exact.
    pub(crate) fn of(kind: &Type) -> Option<Self> {
        Some(match kind {
            Type::Int2 => Self::Fixed(5, 0),
            Type::Int4 => Self::Fixed(10, 0),
            Type::Int8 | Type::Oid(_) => Self::Fixed(19, 0),
            Type::Numeric(Some((precision, scale))) => Self::Fixed(*precision, *scale),
            Type::Numeric(None) => Self::Free,
            Type::Quotient => Self::Quotient,
            _ => return None,
        })
    }

    fn scale(self) -> i8 {
        match self {
            Self::Fixed(_, scale) => scale,
            Self::Free => FREE_SCALE,
            Self::Quotient => QUOTIENT_SCALE,
        }
    }
}

/// The type of the result of exact arithmetic.
pub(crate) fn result_type(op: Arithmetic, left: Exact, right: Exact) -> Type {
    if op == Arithmetic::Divide || left == Exact::Quotient || right == Exact::Quotient {
        return Type::Quotient;
    }
    let (Exact::Fixed(p1, s1), Exact::Fixed(p2, s2)) = (left, right) else {
        return Type::Numeric(None);
    };
    let (p1, s1, p2, s2) = (i32::from(p1), i32::from(s1), i32::from(p2), i32::from(s2));
    let (precision, scale) = match op {
        Arithmetic::Multiply => (p1 + p2, s1 + s2),
        Arithmetic::Modulo => {
            let scale = s1.max(s2);
            ((p1 - s1).min(p2 - s2) + scale, scale)
        }
        _ => {
            let scale = s1.max(s2);
            ((p1 - s1).max(p2 - s2) + scale + 1, scale)
        }
    };
    // Past what PostgreSQL's own types would ever show, digits after the point give way.
    let scale = scale.clamp(0, i32::from(FREE_SCALE));
    let precision = precision.clamp(scale.max(1), 76);
    Type::Numeric(Some((precision as u8, scale as i8)))
}

/// `numeric field overflow`, in PostgreSQL's words.
pub(crate) fn overflow(kind: &Type) -> Error {
    match kind {
        Type::Numeric(Some((precision, scale))) => {
            let power = i32::from(*precision) - i32::from(*scale);
            let limit = if power == 0 {
                "1".to_owned()
            } else {
                format!("10^{power}")
            };
            Error::semantic("22003", "numeric field overflow").with_detail(format!(
                "A field with precision {precision}, scale {scale} must round to an absolute value less than {limit}."
            ))
        }
        _ => Error::semantic("22003", "value overflows numeric format"),
    }
}

/// A quotient rounded half away from zero.
pub(crate) fn divide_rounded(numerator: i256, denominator: i256) -> Option<i256> {
    let quotient = numerator.checked_div(denominator)?;
    let rest = numerator.checked_rem(denominator)?;
    let twice = rest.wrapping_abs().checked_mul(i256::from_i128(2));
    let up = twice.is_none_or(|twice| twice >= denominator.wrapping_abs());
    if !up || rest == i256::ZERO {
        return Some(quotient);
    }
    let one = if numerator.is_negative() == denominator.is_negative() {
        i256::ONE
    } else {
        i256::MINUS_ONE
    };
    quotient.checked_add(one)
}

/// The same number at another scale, rounded.
pub(crate) fn rescale(value: i256, from: i8, to: i8) -> Option<i256> {
    let shift = i32::from(to) - i32::from(from);
    if shift >= 0 {
        if value == i256::ZERO {
            return Some(value);
        }
        value.checked_mul(power_of_ten(shift)?)
    } else {
        match power_of_ten(-shift) {
            Some(power) => divide_rounded(value, power),
            None => Some(i256::ZERO),
        }
    }
}

/// A column of exact numbers, read one by one.
pub(crate) enum Exacts<'a> {
    Int2(&'a arrow::array::Int16Array),
    Int4(&'a arrow::array::Int32Array),
    Int8(&'a Int64Array),
    Small(&'a Decimal128Array),
    Large(&'a Decimal256Array),
}

impl<'a> Exacts<'a> {
    /// The numbers of a column and their scale.
    pub(crate) fn of(array: &'a ArrayRef) -> Result<(Self, i8)> {
        Ok(match array.data_type() {
            DataType::Int16 => (Self::Int2(array.as_primitive::<Int16Type>()), 0),
            DataType::Int32 => (Self::Int4(array.as_primitive::<Int32Type>()), 0),
            DataType::Int64 => (Self::Int8(array.as_primitive::<Int64Type>()), 0),
            DataType::Decimal128(_, scale) => (Self::Small(array.as_primitive::<Decimal128Type>()), *scale),
            DataType::Decimal256(_, scale) => (Self::Large(array.as_primitive::<Decimal256Type>()), *scale),
            other => return Err(Error::internal(format!("{other} is not an exact number"))),
        })
    }

    pub(crate) fn is_null(&self, row: usize) -> bool {
        match self {
            Self::Int2(array) => array.is_null(row),
            Self::Int4(array) => array.is_null(row),
            Self::Int8(array) => array.is_null(row),
            Self::Small(array) => array.is_null(row),
            Self::Large(array) => array.is_null(row),
        }
    }

    /// The number in 128 bits, for columns that fit.
    fn small(&self, row: usize) -> Option<i128> {
        Some(match self {
            Self::Int2(array) => i128::from(array.value(row)),
            Self::Int4(array) => i128::from(array.value(row)),
            Self::Int8(array) => i128::from(array.value(row)),
            Self::Small(array) => array.value(row),
            Self::Large(_) => return None,
        })
    }

    pub(crate) fn value(&self, row: usize) -> i256 {
        match self {
            Self::Large(array) => array.value(row),
            other => i256::from_i128(other.small(row).unwrap_or(0)),
        }
    }
}

/// A column of exact numbers of a type, from numbers at its scale; checks that they fit.
pub(crate) fn build(values: Vec<Option<i256>>, kind: &Type) -> Result<ArrayRef> {
    match kind.arrow() {
        DataType::Decimal128(precision, scale) => {
            let limit = 10_i128.pow(u32::from(precision));
            let narrow = values
                .into_iter()
                .map(|value| match value {
                    Some(value) => value
                        .to_i128()
                        .filter(|value| *value < limit && *value > -limit)
                        .map(Some)
                        .ok_or_else(|| overflow(kind)),
                    None => Ok(None),
                })
                .collect::<Result<Vec<_>>>()?;
            Ok(Arc::new(
                Decimal128Array::from(narrow).with_precision_and_scale(precision, scale)?,
            ))
        }
        DataType::Decimal256(precision, scale) => {
            let limit = power_of_ten(i32::from(precision)).unwrap_or(i256::MAX);
            let fits = |value: &i256| *value < limit && *value > limit.wrapping_neg();
            if values.iter().flatten().any(|value| !fits(value)) {
                return Err(overflow(kind));
            }
            Ok(Arc::new(
                Decimal256Array::from(values).with_precision_and_scale(precision, scale)?,
            ))
        }
        other => Err(Error::internal(format!("{other} is not a decimal type"))),
    }
}

/// Exact arithmetic, row by row.
pub(crate) fn arithmetic(op: Arithmetic, left: &ArrayRef, right: &ArrayRef, result: &Type) -> Result<ArrayRef> {
    let (lefts, left_scale) = Exacts::of(left)?;
    let (rights, right_scale) = Exacts::of(right)?;
    let scale = Exact::of(result).map_or(0, Exact::scale);
    if let Some(small) = small_arithmetic(op, (&lefts, left_scale), (&rights, right_scale), result, left.len())? {
        return Ok(small);
    }
    let mut values = Vec::with_capacity(left.len());
    for row in 0..left.len() {
        if lefts.is_null(row) || rights.is_null(row) {
            values.push(None);
            continue;
        }
        let a = Number {
            value: lefts.value(row),
            scale: left_scale,
        };
        let b = Number {
            value: rights.value(row),
            scale: right_scale,
        };
        let value = match op {
            Arithmetic::Divide => divide(a, b)?,
            _ => combine(op, a, b, scale)?,
        };
        values.push(Some(value.ok_or_else(|| overflow(&Type::Numeric(None)))?));
    }
    build(values, result)
}

/// Sums and products that stay within 128 bits, the common case.
fn small_arithmetic(
    op: Arithmetic,
    (lefts, left_scale): (&Exacts<'_>, i8),
    (rights, right_scale): (&Exacts<'_>, i8),
    result: &Type,
    rows: usize,
) -> Result<Option<ArrayRef>> {
    let DataType::Decimal128(precision, scale) = result.arrow() else {
        return Ok(None);
    };
    let exact_product = op == Arithmetic::Multiply && left_scale + right_scale == scale;
    let sum = matches!(op, Arithmetic::Add | Arithmetic::Subtract) && left_scale.max(right_scale) == scale;
    if !(exact_product || sum) {
        return Ok(None);
    }
    let left_factor = 10_i128.pow((scale - left_scale).max(0) as u32);
    let right_factor = 10_i128.pow((scale - right_scale).max(0) as u32);
    let limit = 10_i128.pow(u32::from(precision));
    let mut values = Vec::with_capacity(rows);
    for row in 0..rows {
        if lefts.is_null(row) || rights.is_null(row) {
            values.push(None);
            continue;
        }
        let (Some(a), Some(b)) = (lefts.small(row), rights.small(row)) else {
            return Ok(None);
        };
        let value = match op {
            Arithmetic::Multiply => a.checked_mul(b),
            Arithmetic::Add => a
                .checked_mul(left_factor)
                .zip(b.checked_mul(right_factor))
                .and_then(|(a, b)| a.checked_add(b)),
            _ => a
                .checked_mul(left_factor)
                .zip(b.checked_mul(right_factor))
                .and_then(|(a, b)| a.checked_sub(b)),
        };
        let value = value.filter(|value| *value < limit && *value > -limit);
        values.push(Some(value.ok_or_else(|| overflow(&Type::Numeric(None)))?));
    }
    Ok(Some(Arc::new(
        Decimal128Array::from(values).with_precision_and_scale(precision, scale)?,
    )))
}

/// A number and its scale.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Number {
    /// The number times 10^scale.
    pub(crate) value: i256,
    /// The digits after the point.
    pub(crate) scale: i8,
}

impl Number {
    /// The same number without zeros at the end of its fraction.
    pub(crate) fn trimmed(mut self) -> Self {
        let ten = i256::from_i128(10);
        while self.scale > 0 && self.value.checked_rem(ten) == Some(i256::ZERO) {
            self.value = self.value.wrapping_div(ten);
            self.scale -= 1;
        }
        self
    }

    /// The same number with the digits after the point that it shows: those of no fixed scale show no zeros at the end.
    pub(crate) fn with_own_digits(self) -> Self {
        if self.scale >= QUOTIENT_SCALE {
            self.trimmed()
        } else {
            self
        }
    }

    /// PostgreSQL's weight (in digits of base 10000) and first such digit.
    pub(crate) fn weight(self) -> (i32, i32) {
        if self.value == i256::ZERO {
            return (0, 0);
        }
        let magnitude = self.value.wrapping_abs();
        let digits = POWERS.iter().take_while(|power| **power <= magnitude).count() as i32;
        // The exponent of the first decimal digit.
        let exponent = digits - 1 - i32::from(self.scale);
        let weight = exponent.div_euclid(4);
        // The leading group is the number divided by 10000^weight, cut.
        let shift = weight * 4 + i32::from(self.scale);
        let group = if shift >= 0 {
            power_of_ten(shift).map(|power| magnitude.wrapping_div(power))
        } else {
            power_of_ten(-shift).map(|power| magnitude.wrapping_mul(power))
        };
        (weight, group.and_then(i256::to_i128).unwrap_or(1) as i32)
    }
}

fn combine(op: Arithmetic, a: Number, b: Number, scale: i8) -> Result<Option<i256>> {
    let common = a.scale.max(b.scale);
    match op {
        Arithmetic::Multiply => {
            let exact = a.value.checked_mul(b.value).zip(a.scale.checked_add(b.scale));
            let (value, at) = match exact {
                Some(exact) => exact,
                None => {
                    let (a, b) = (a.trimmed(), b.trimmed());
                    match a.value.checked_mul(b.value) {
                        Some(value) => (value, a.scale + b.scale),
                        None => return Ok(None),
                    }
                }
            };
            Ok(rescale(value, at, scale))
        }
        _ => {
            let (Some(x), Some(y)) = (rescale(a.value, a.scale, common), rescale(b.value, b.scale, common)) else {
                return Ok(None);
            };
            let value = match op {
                Arithmetic::Add => x.checked_add(y),
                Arithmetic::Subtract => x.checked_sub(y),
                _ if y == i256::ZERO => return Err(Error::semantic("22012", "division by zero")),
                _ => x.checked_rem(y),
            };
            Ok(value.and_then(|value| rescale(value, common, scale)))
        }
    }
}

/// The digits after the point that PostgreSQL computes of a quotient (`select_div_scale`).
fn quotient_digits(a: Number, b: Number) -> i8 {
    let (a_weight, a_first) = a.weight();
    let (b_weight, b_first) = b.weight();
    let mut weight = a_weight - b_weight;
    if a_first <= b_first {
        weight -= 1;
    }
    let digits = 16 - weight * 4;
    digits
        .max(i32::from(a.scale))
        .max(i32::from(b.scale))
        .clamp(0, i32::from(QUOTIENT_SCALE)) as i8
}

/// A quotient at [`QUOTIENT_SCALE`], rounded where PostgreSQL rounds it.
pub(crate) fn divide(a: Number, b: Number) -> Result<Option<i256>> {
    if b.value == i256::ZERO {
        return Err(Error::semantic("22012", "division by zero"));
    }
    let (a, b) = (a.with_own_digits(), b.with_own_digits());
    let digits = quotient_digits(a, b);
    let shift = i32::from(digits) + i32::from(b.scale) - i32::from(a.scale);
    let quotient = if shift >= 0 {
        let scaled = power_of_ten(shift).and_then(|power| a.value.checked_mul(power));
        match scaled {
            Some(scaled) => divide_rounded(scaled, b.value),
            None => long_division(a.value, shift, b.value),
        }
    } else {
        power_of_ten(-shift)
            .and_then(|power| b.value.checked_mul(power))
            .and_then(|scaled| divide_rounded(a.value, scaled))
    };
    Ok(quotient.and_then(|quotient| rescale(quotient, digits, QUOTIENT_SCALE)))
}

/// `value * 10^shift / divisor`, digit by digit, where the product does not fit.
fn long_division(value: i256, shift: i32, divisor: i256) -> Option<i256> {
    let ten = i256::from_i128(10);
    let negative = value.is_negative() != divisor.is_negative();
    let divisor = divisor.wrapping_abs();
    let value = value.wrapping_abs();
    let mut quotient = value.checked_div(divisor)?;
    let mut rest = value.checked_rem(divisor)?;
    for _ in 0..shift {
        rest = rest.checked_mul(ten)?;
        quotient = quotient.checked_mul(ten)?.checked_add(rest.checked_div(divisor)?)?;
        rest = rest.checked_rem(divisor)?;
    }
    if rest.checked_mul(i256::from_i128(2))? >= divisor {
        quotient = quotient.checked_add(i256::ONE)?;
    }
    Some(if negative { quotient.wrapping_neg() } else { quotient })
}

/// Casts between exact and other numbers.
pub(crate) fn convert(array: &ArrayRef, source: &Type, target: &Type) -> Result<ArrayRef> {
    if is_float(source) {
        return from_float(array, target);
    }
    let (numbers, scale) = Exacts::of(array)?;
    if is_float(target) {
        return to_float(&numbers, scale, array.len(), target);
    }
    let to = match Exact::of(target) {
        Some(_) if is_integer(target) => 0,
        Some(exact) => exact.scale(),
        None => {
            return Err(Error::semantic(
                "42846",
                format!("cannot cast type {source} to {target}"),
            ));
        }
    };
    let mut values = Vec::with_capacity(array.len());
    for row in 0..array.len() {
        if numbers.is_null(row) {
            values.push(None);
            continue;
        }
        let value = rescale(numbers.value(row), scale, to);
        values.push(Some(value.ok_or_else(|| overflow(target))?));
    }
    if is_integer(target) {
        return to_integers(values, target);
    }
    build(values, target)
}

fn to_integers(values: Vec<Option<i256>>, target: &Type) -> Result<ArrayRef> {
    let (low, high) = match target {
        Type::Int2 => (i64::from(i16::MIN), i64::from(i16::MAX)),
        Type::Int4 => (i64::from(i32::MIN), i64::from(i32::MAX)),
        _ => (i64::MIN, i64::MAX),
    };
    let mut integers = Vec::with_capacity(values.len());
    for value in values {
        integers.push(match value {
            Some(value) => Some(
                value
                    .to_i128()
                    .and_then(|value| i64::try_from(value).ok())
                    .filter(|value| (low..=high).contains(value))
                    .ok_or_else(|| out_of_range(target))?,
            ),
            None => None,
        });
    }
    let wide: ArrayRef = Arc::new(Int64Array::from(integers));
    Ok(arrow::compute::cast(&wide, &target.arrow())?)
}

/// Floats have 15 digits (real: 6) when they become exact, as in PostgreSQL.
fn from_float(array: &ArrayRef, target: &Type) -> Result<ArrayRef> {
    let (floats, digits): (Vec<Option<f64>>, usize) = match array.as_primitive_opt::<Float64Type>() {
        Some(values) => (values.iter().collect(), 15),
        None => (
            array
                .as_primitive::<Float32Type>()
                .iter()
                .map(|value| value.map(f64::from))
                .collect(),
            6,
        ),
    };
    let shape = match target.arrow() {
        DataType::Decimal128(precision, scale) | DataType::Decimal256(precision, scale) => Shape {
            precision,
            scale,
            declared: matches!(target, Type::Numeric(Some(_))),
        },
        other => return Err(Error::internal(format!("{other} is not a decimal type"))),
    };
    let mut values = Vec::with_capacity(floats.len());
    for value in floats {
        values.push(match value {
            Some(value) => Some(read_decimal(&format!("{value:.*e}", digits - 1), shape)?),
            None => None,
        });
    }
    build(values, target)
}

/// The nearest float to an exact number.
pub(crate) fn nearest_float(value: i256, scale: i8) -> f64 {
    if scale <= 0
        && let Some(small) = value.to_i128()
    {
        return small as f64;
    }
    let mut text = bytes::BytesMut::new();
    crate::types::numeric::write_decimal(value, scale, crate::types::numeric::Digits::Fixed(scale), &mut text);
    std::str::from_utf8(&text)
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(f64::NAN)
}

fn to_float(numbers: &Exacts<'_>, scale: i8, rows: usize, target: &Type) -> Result<ArrayRef> {
    let floats: Vec<Option<f64>> = (0..rows)
        .map(|row| (!numbers.is_null(row)).then(|| nearest_float(numbers.value(row), scale)))
        .collect();
    let wide: ArrayRef = Arc::new(Float64Array::from(floats));
    match target {
        Type::Float8 => Ok(wide),
        _ => super::cast::convert(
            &wide,
            &Type::Float8,
            target,
            super::cast::Context::Implicit,
            &crate::types::text::Settings::default(),
        ),
    }
}

/// The text of a number, rounded to an integer.
pub(crate) fn round_text(text: &str) -> Result<String> {
    let shape = Shape {
        precision: 76,
        scale: 0,
        declared: false,
    };
    let value = read_decimal(text, shape)?;
    Ok(value.to_string())
}
