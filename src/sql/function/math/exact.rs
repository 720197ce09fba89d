//! Powers, roots, exponentials and logarithms of exact numbers.
//!
//! They are computed in decimal and rounded once, to as many digits after the point as PostgreSQL computes of them:
//! sixteen significant ones, as it estimates them beforehand, and no fewer than the arguments have.

use crate::error::{Error, Result};
use crate::sql::function::decimal::{Exacts, Number, build, nearest_float, overflow, rescale};
use crate::sql::function::definition::Call;
use crate::types::{QUOTIENT_SCALE, Type};
use arrow::array::ArrayRef;
use arrow::datatypes::i256;
use dashu_float::round::mode::HalfAway;
use dashu_float::{ConstCache, Context, DBig, FpError, FpResult};

/// The significant digits that there are at least.
const DIGITS_MIN: i32 = 16;

/// Digits that are computed beyond those that are kept.
const DIGITS_SPARE: i32 = 8;

/// No result of more digits before the point, or of so many zeros after it, can be kept.
const WEIGHT_MAX: f64 = 80.0;

/// log10(e)
const LOG10_E: f64 = std::f64::consts::LOG10_E;

/// An argument: its value, and the digits after the point that it shows.
struct Given {
    value: Number,
    near: f64,
}

impl Given {
    fn of(value: i256, scale: i8) -> Self {
        Self {
            value: Number { value, scale }.with_own_digits(),
            near: nearest_float(value, scale),
        }
    }

    fn scale(&self) -> i32 {
        i32::from(self.value.scale)
    }

    fn is_zero(&self) -> bool {
        self.value.value == i256::ZERO
    }

    fn decimal(&self) -> Result<DBig> {
        let digits = self.value.value.to_string();
        let digits = digits
            .parse()
            .map_err(|_| Error::internal(format!("{digits} is not a number")))?;
        Ok(DBig::from_parts(digits, -(self.value.scale as isize)))
    }

    /// The number if it is whole and small.
    fn whole(&self) -> Option<i32> {
        let number = self.value.trimmed();
        let value = (number.scale == 0).then(|| number.value.to_i128()).flatten()?;
        i32::try_from(value).ok()
    }

    /// How many digits before the point the natural logarithm has; below zero, minus the zeros after the point.
    fn logarithm_weight(&self) -> f64 {
        if (0.9..=1.1).contains(&self.near) {
            // Near one the logarithm is as small as what is over one.
            let one = rescale(i256::ONE, 0, self.value.scale).unwrap_or(i256::ZERO);
            let over = self.value.value.wrapping_sub(one);
            if over == i256::ZERO {
                return 0.0;
            }
            return nearest_float(over, self.value.scale).abs().log10().floor();
        }
        self.near.ln().abs().log10().trunc()
    }
}

/// How a result is computed: with digits for what is kept of it.
struct Plan {
    context: Context<HalfAway>,
    digits: i32,
}

impl Plan {
    /// For a result of about 10^`weight`, of arguments of such scales.
    fn new(weight: f64, scales: &[i32]) -> Self {
        let shown = scales.iter().copied().max().unwrap_or(0);
        Self::with_digits(weight, (DIGITS_MIN - weight as i32).max(shown))
    }

    /// For a result of about 10^`weight` of which so many digits after the point are kept.
    fn with_digits(weight: f64, digits: i32) -> Self {
        let digits = digits.clamp(0, i32::from(QUOTIENT_SCALE));
        let before = weight.max(0.0) as i32 + 1;
        Self {
            context: Context::new((before + digits + DIGITS_SPARE) as usize),
            digits,
        }
    }

    /// The result at [`QUOTIENT_SCALE`].
    fn keep(&self, result: FpResult<DBig>) -> Result<i256> {
        let value = computed(result)?;
        let rounded = value.quantize(-(self.digits as isize)).value();
        let (significand, exponent) = rounded.into_repr().into_parts();
        i8::try_from(-exponent)
            .ok()
            .zip(i256::from_string(&significand.to_string()))
            .and_then(|(scale, value)| rescale(value, scale, QUOTIENT_SCALE))
            .ok_or_else(|| overflow(&Type::Quotient))
    }
}

/// A result that is there.
fn computed(result: FpResult<DBig>) -> Result<DBig> {
    match result.map(|rounded| rounded.value()) {
        Ok(value) if value.repr().is_infinite() => Err(overflow(&Type::Quotient)),
        Ok(value) => Ok(value),
        Err(FpError::Underflow(_)) => Ok(DBig::ZERO),
        Err(FpError::Overflow(_)) => Err(overflow(&Type::Quotient)),
        Err(error) => Err(Error::internal(format!("a number could not be computed: {error}"))),
    }
}

/// What is kept of a result of about 10^`weight` without computing it, if that is clear.
fn beyond(weight: f64) -> Option<Result<i256>> {
    if weight > WEIGHT_MAX {
        return Some(Err(overflow(&Type::Quotient)));
    }
    (weight < -WEIGHT_MAX).then_some(Ok(i256::ZERO))
}

/// One number to one number.
fn each(call: &Call<'_>, change: impl Fn(&Given, &mut ConstCache) -> Result<i256>) -> Result<ArrayRef> {
    let (numbers, scale) = Exacts::of(&call.arguments[0])?;
    let mut constants = ConstCache::new();
    let mut values = Vec::with_capacity(call.rows);
    for row in 0..call.rows {
        let given = (!numbers.is_null(row)).then(|| Given::of(numbers.value(row), scale));
        values.push(given.map(|given| change(&given, &mut constants)).transpose()?);
    }
    build(values, call.result)
}

/// Two numbers to one.
fn each_pair(
    (left, right): (&ArrayRef, &ArrayRef),
    result: &Type,
    change: impl Fn(&Given, &Given, &mut ConstCache) -> Result<i256>,
) -> Result<ArrayRef> {
    let (lefts, left_scale) = Exacts::of(left)?;
    let (rights, right_scale) = Exacts::of(right)?;
    let mut constants = ConstCache::new();
    let mut values = Vec::with_capacity(left.len());
    for row in 0..left.len() {
        if lefts.is_null(row) || rights.is_null(row) {
            values.push(None);
            continue;
        }
        let left = Given::of(lefts.value(row), left_scale);
        let right = Given::of(rights.value(row), right_scale);
        values.push(Some(change(&left, &right, &mut constants)?));
    }
    build(values, result)
}

/// `sqrt(numeric)`
pub(super) fn sqrt(call: &Call<'_>) -> Result<ArrayRef> {
    each(call, |x, _| {
        if x.value.value.is_negative() {
            return Err(super::exponential::negative_root());
        }
        // Half the digits before the point, counted in groups of four.
        let weight = f64::from((x.value.weight().0 + 1) * 2 - 1);
        let plan = Plan::new(weight, &[x.scale()]);
        plan.keep(plan.context.sqrt(x.decimal()?.repr()))
    })
}

/// `exp(numeric)`
pub(super) fn exp(call: &Call<'_>) -> Result<ArrayRef> {
    each(call, |x, constants| {
        let weight = x.near * LOG10_E;
        if let Some(kept) = beyond(weight) {
            return kept;
        }
        let plan = Plan::new(weight, &[x.scale()]);
        plan.keep(plan.context.exp(x.decimal()?.repr(), Some(constants)))
    })
}

/// `ln(numeric)`
pub(super) fn ln(call: &Call<'_>) -> Result<ArrayRef> {
    each(call, |x, constants| {
        super::exponential::check_logarithm(x.near)?;
        let plan = Plan::new(x.logarithm_weight(), &[x.scale()]);
        plan.keep(plan.context.ln(x.decimal()?.repr(), Some(constants)))
    })
}

/// `log(numeric)`
pub(super) fn log10(call: &Call<'_>) -> Result<ArrayRef> {
    each(call, |x, constants| {
        super::exponential::check_logarithm(x.near)?;
        let plan = Plan::new(x.logarithm_weight(), &[x.scale()]);
        plan.keep(plan.context.log10(x.decimal()?.repr(), Some(constants)))
    })
}

/// `log(base, numeric)`
pub(super) fn log(call: &Call<'_>) -> Result<ArrayRef> {
    let arguments = (&call.arguments[0], &call.arguments[1]);
    each_pair(arguments, call.result, |base, x, constants| {
        super::exponential::check_logarithm(base.near)?;
        super::exponential::check_logarithm(x.near)?;
        let weight = x.logarithm_weight() - base.logarithm_weight();
        let plan = Plan::new(weight, &[base.scale(), x.scale()]);
        // The logarithms are rounded to significant digits, so their quotient is as good.
        let base = computed(plan.context.ln(base.decimal()?.repr(), Some(constants)))?;
        let x = computed(plan.context.ln(x.decimal()?.repr(), Some(constants)))?;
        if base == DBig::ZERO {
            return Err(Error::semantic("22012", "division by zero"));
        }
        plan.keep(plan.context.div(x.repr(), base.repr()))
    })
}

/// `a ^ b`
pub(super) fn power(left: &ArrayRef, right: &ArrayRef, result: &Type) -> Result<ArrayRef> {
    each_pair((left, right), result, |base, exponent, constants| {
        super::exponential::check_power(base.near, exponent.near)?;
        if base.is_zero() && !exponent.is_zero() {
            return Ok(i256::ZERO);
        }
        // Zero to the power of zero is one.
        let weight = if base.is_zero() {
            0.0
        } else {
            exponent.near * base.near.abs().log10()
        };
        if let Some(kept) = beyond(weight) {
            return kept;
        }
        let (number, scales) = (base.decimal()?, [base.scale(), exponent.scale()]);
        match exponent.whole() {
            Some(whole) => {
                let plan = Plan::with_digits(weight, DIGITS_MIN.max(base.scale()));
                plan.keep(plan.context.powi(number.repr(), whole.into()))
            }
            None => {
                let plan = Plan::new(weight, &scales);
                let exponent = exponent.decimal()?;
                plan.keep(plan.context.powf(number.repr(), exponent.repr(), Some(constants)))
            }
        }
    })
}
