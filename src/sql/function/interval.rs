//! Arithmetic with dates, times and intervals.
//!
//! An interval is months, days and a time, added in that order, each as the calendar has it: a month later is the
//! same day of the next month or its last, a day later is the same time on the clocks of the zone.

use super::cast::is_infinite;
use super::operator::Sign;
use crate::error::{Error, Result};
use crate::types::calendar::{
    DATE_INFINITY, DATE_MINUS_INFINITY, DAY_END, DAY_MICROS, DAY_MIN, TIMESTAMP_INFINITY, TIMESTAMP_MINUS_INFINITY,
    Zone, civil_of_days, days_of_civil, month_days,
};
pub(crate) use crate::types::interval::scaled_by;
use arrow::array::{ArrayRef, AsArray, PrimitiveArray};
use arrow::datatypes::{
    ArrowPrimitiveType, Date32Type, Float64Type, Int32Type, IntervalMonthDayNano, IntervalMonthDayNanoType,
    Time64MicrosecondType, TimestampMicrosecondType,
};
use arrow::error::ArrowError;
use std::sync::Arc;

fn two<A, B, C>(
    left: &ArrayRef,
    right: &ArrayRef,
    change: impl Fn(A::Native, B::Native) -> Result<C::Native>,
) -> Result<PrimitiveArray<C>>
where
    A: ArrowPrimitiveType,
    B: ArrowPrimitiveType,
    C: ArrowPrimitiveType,
{
    Ok(arrow::compute::try_binary(
        left.as_primitive::<A>(),
        right.as_primitive::<B>(),
        |a, b| change(a, b).map_err(|error| ArrowError::ExternalError(Box::new(error))),
    )?)
}

fn timestamp_out_of_range() -> Error {
    Error::semantic("22008", "timestamp out of range")
}

fn interval_out_of_range() -> Error {
    Error::semantic("22008", "interval out of range")
}

/// A timestamp within PostgreSQL's range.
pub(crate) fn checked_timestamp(micros: Option<i64>) -> Result<i64> {
    micros
        .filter(|micros| (DAY_MIN * DAY_MICROS..DAY_END.saturating_mul(DAY_MICROS)).contains(micros))
        .ok_or_else(timestamp_out_of_range)
}

/// `date + n`, `date - n`.
pub(crate) fn date_days(left: &ArrayRef, right: &ArrayRef, sign: Sign) -> Result<ArrayRef> {
    let shifted = two::<Date32Type, Int32Type, Date32Type>(left, right, |date, days| {
        if matches!(date, DATE_INFINITY | DATE_MINUS_INFINITY) {
            return Ok(date);
        }
        let days = if sign == Sign::Minus {
            -i64::from(days)
        } else {
            i64::from(days)
        };
        let moved = i64::from(date) + days;
        if (DAY_MIN..DAY_END).contains(&moved) {
            Ok(moved as i32)
        } else {
            Err(Error::semantic("22008", "date out of range"))
        }
    })?;
    Ok(Arc::new(shifted))
}

/// `date - date`: days.
pub(crate) fn date_difference(left: &ArrayRef, right: &ArrayRef) -> Result<ArrayRef> {
    let days = two::<Date32Type, Date32Type, Int32Type>(left, right, |a, b| {
        if [a, b]
            .iter()
            .any(|date| matches!(*date, DATE_INFINITY | DATE_MINUS_INFINITY))
        {
            return Err(Error::semantic("22008", "cannot subtract infinite dates"));
        }
        Ok(a - b)
    })?;
    Ok(Arc::new(days))
}

/// `date + time`.
pub(crate) fn date_and_time(left: &ArrayRef, right: &ArrayRef) -> Result<ArrayRef> {
    let joined =
        two::<Date32Type, Time64MicrosecondType, TimestampMicrosecondType>(left, right, |date, time| match date {
            DATE_INFINITY => Ok(TIMESTAMP_INFINITY),
            DATE_MINUS_INFINITY => Ok(TIMESTAMP_MINUS_INFINITY),
            date => Ok(i64::from(date) * DAY_MICROS + time),
        })?;
    Ok(Arc::new(joined))
}

/// The days and the time between two timestamps.
pub(crate) fn between(a: i64, b: i64) -> Result<IntervalMonthDayNano> {
    if is_infinite(a) || is_infinite(b) {
        return Err(Error::semantic("22008", "cannot subtract infinite timestamps"));
    }
    let micros = a.checked_sub(b).ok_or_else(interval_out_of_range)?;
    let days = i32::try_from(micros / DAY_MICROS).map_err(|_| interval_out_of_range())?;
    Ok(IntervalMonthDayNano::new(0, days, micros % DAY_MICROS * 1000))
}

/// `timestamp - timestamp`.
pub(crate) fn timestamp_difference(left: &ArrayRef, right: &ArrayRef) -> Result<ArrayRef> {
    let intervals =
        two::<TimestampMicrosecondType, TimestampMicrosecondType, IntervalMonthDayNanoType>(left, right, between)?;
    Ok(Arc::new(intervals))
}

/// `time - time`.
pub(crate) fn time_difference(left: &ArrayRef, right: &ArrayRef) -> Result<ArrayRef> {
    let intervals =
        two::<Time64MicrosecondType, Time64MicrosecondType, IntervalMonthDayNanoType>(left, right, |a, b| {
            Ok(IntervalMonthDayNano::new(0, 0, (a - b) * 1000))
        })?;
    Ok(Arc::new(intervals))
}

/// The interval the other way.
pub(crate) fn negated(interval: IntervalMonthDayNano) -> Result<IntervalMonthDayNano> {
    Ok(IntervalMonthDayNano::new(
        interval.months.checked_neg().ok_or_else(interval_out_of_range)?,
        interval.days.checked_neg().ok_or_else(interval_out_of_range)?,
        interval.nanoseconds.checked_neg().ok_or_else(interval_out_of_range)?,
    ))
}

/// A local timestamp so many months and days later.
fn shift_calendar(local: i64, months: i32, days: i32) -> Option<i64> {
    let mut day = local.div_euclid(DAY_MICROS);
    let time = local.rem_euclid(DAY_MICROS);
    if months != 0 {
        let civil = civil_of_days(day);
        let month = civil.year * 12 + i64::from(civil.month) - 1 + i64::from(months);
        let (year, month) = (month.div_euclid(12), month.rem_euclid(12) as u32 + 1);
        day = days_of_civil(year, month, civil.day.min(month_days(year, month)));
    }
    day.checked_add(i64::from(days))?
        .checked_mul(DAY_MICROS)?
        .checked_add(time)
}

/// A timestamp an interval later; months and days are counted on the clocks of the zone, if there is one.
pub(crate) fn shift(micros: i64, interval: IntervalMonthDayNano, zone: Option<Zone>) -> Result<i64> {
    if is_infinite(micros) {
        return Ok(micros);
    }
    let mut shifted = micros;
    if interval.months != 0 || interval.days != 0 {
        let local = zone.map_or(shifted, |zone| zone.local_of_instant(shifted));
        let moved = checked_timestamp(shift_calendar(local, interval.months, interval.days))?;
        shifted = zone.map_or(moved, |zone| zone.instant_of_local(moved));
    }
    checked_timestamp(shifted.checked_add(interval.nanoseconds / 1000))
}

/// `timestamp + interval`, `timestamp - interval`.
pub(crate) fn shift_timestamps(left: &ArrayRef, right: &ArrayRef, sign: Sign, zone: Option<Zone>) -> Result<ArrayRef> {
    let shifted = two::<TimestampMicrosecondType, IntervalMonthDayNanoType, TimestampMicrosecondType>(
        left,
        right,
        |micros, interval| {
            let interval = if sign == Sign::Minus {
                negated(interval)?
            } else {
                interval
            };
            shift(micros, interval, zone)
        },
    )?;
    Ok(Arc::new(shifted.with_data_type(left.data_type().clone())))
}

/// `time + interval`: the time of day, around the clock.
pub(crate) fn shift_times(left: &ArrayRef, right: &ArrayRef, sign: Sign) -> Result<ArrayRef> {
    let shifted = two::<Time64MicrosecondType, IntervalMonthDayNanoType, Time64MicrosecondType>(
        left,
        right,
        |time, interval| {
            let micros = interval.nanoseconds / 1000;
            let micros = if sign == Sign::Minus { -micros } else { micros };
            Ok((time + micros.rem_euclid(DAY_MICROS)).rem_euclid(DAY_MICROS))
        },
    )?;
    Ok(Arc::new(shifted))
}

/// `interval + interval`, `interval - interval`, part by part.
pub(crate) fn sum(left: &ArrayRef, right: &ArrayRef, sign: Sign) -> Result<ArrayRef> {
    let sums =
        two::<IntervalMonthDayNanoType, IntervalMonthDayNanoType, IntervalMonthDayNanoType>(left, right, |a, b| {
            add(a, if sign == Sign::Minus { negated(b)? } else { b })
        })?;
    Ok(Arc::new(sums))
}

/// The sum of two intervals.
pub(crate) fn add(a: IntervalMonthDayNano, b: IntervalMonthDayNano) -> Result<IntervalMonthDayNano> {
    let months = a.months.checked_add(b.months);
    let days = a.days.checked_add(b.days);
    let nanos = a.nanoseconds.checked_add(b.nanoseconds);
    match (months, days, nanos) {
        (Some(months), Some(days), Some(nanos)) => Ok(IntervalMonthDayNano::new(months, days, nanos)),
        _ => Err(interval_out_of_range()),
    }
}

/// `interval * n`, `interval / n`.
pub(crate) fn scale(left: &ArrayRef, right: &ArrayRef, sign: Sign) -> Result<ArrayRef> {
    let scaled =
        two::<IntervalMonthDayNanoType, Float64Type, IntervalMonthDayNanoType>(left, right, |interval, factor| {
            if sign == Sign::Over {
                if factor == 0.0 {
                    return Err(Error::semantic("22012", "division by zero"));
                }
                scaled_by(interval, |part| part / factor)
            } else {
                scaled_by(interval, |part| part * factor)
            }
        })?;
    Ok(Arc::new(scaled))
}

/// An interval as one number of microseconds, a month being 30 days, as PostgreSQL compares them.
pub(crate) fn comparable(interval: IntervalMonthDayNano) -> i128 {
    let days = i128::from(interval.months) * 30 + i128::from(interval.days);
    days * i128::from(DAY_MICROS) + i128::from(interval.nanoseconds / 1000)
}
