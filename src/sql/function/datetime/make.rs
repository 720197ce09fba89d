//! Times and intervals from their parts.

use super::times_of;
use crate::error::{Error, Result};
use crate::sql::function::cast::timestamp_to_date;
use crate::sql::function::definition::Call;
use crate::sql::function::interval::checked_timestamp;
use crate::types::calendar::{
    DAY_MICROS, HOUR_MICROS, MINUTE_MICROS, TIMESTAMP_INFINITY, TIMESTAMP_MINUS_INFINITY, Zone, days_of_civil,
    month_days,
};
use arrow::array::{Array, ArrayRef, AsArray, Date32Array, IntervalMonthDayNanoArray};
use arrow::datatypes::{Float64Type, Int32Type, IntervalMonthDayNano};
use std::sync::Arc;

/// A day of the calendar; negative years are BC.
fn day_of(year: i32, month: i32, day: i32) -> Option<i64> {
    if year == 0 || !(1..=12).contains(&month) {
        return None;
    }
    let astronomical = if year > 0 { i64::from(year) } else { i64::from(year) + 1 };
    let most = month_days(astronomical, month as u32);
    (1..=most as i32)
        .contains(&day)
        .then(|| days_of_civil(astronomical, month as u32, day as u32))
}

pub(super) fn make_date(call: &Call<'_>) -> Result<ArrayRef> {
    let column = |index: usize| call.arguments[index].as_primitive::<Int32Type>();
    let (years, months, days) = (column(0), column(1), column(2));
    let mut values = Vec::with_capacity(call.rows);
    for ((year, month), day) in years.iter().zip(months).zip(days) {
        values.push(match (year, month, day) {
            (Some(year), Some(month), Some(day)) => Some(timestamp_to_date(
                day_of(year, month, day).ok_or_else(|| {
                    Error::semantic(
                        "22008",
                        format!("date field value out of range: {year}-{month:02}-{day:02}"),
                    )
                })? * DAY_MICROS,
            )?),
            _ => None,
        });
    }
    Ok(Arc::new(Date32Array::from(values)))
}

fn time_micros(hour: i32, minute: i32, second: f64) -> Option<i64> {
    let fits = (0..=24).contains(&hour) && (0..60).contains(&minute) && (0.0..=60.0).contains(&second);
    if !fits {
        return None;
    }
    let micros = i64::from(hour) * HOUR_MICROS + i64::from(minute) * MINUTE_MICROS + (second * 1e6).round() as i64;
    (micros <= DAY_MICROS).then_some(micros)
}

pub(super) fn make_time(call: &Call<'_>) -> Result<ArrayRef> {
    let hours = call.arguments[0].as_primitive::<Int32Type>();
    let minutes = call.arguments[1].as_primitive::<Int32Type>();
    let seconds = call.arguments[2].as_primitive::<Float64Type>();
    let mut values = Vec::with_capacity(call.rows);
    for ((hour, minute), second) in hours.iter().zip(minutes).zip(seconds) {
        values.push(match (hour, minute, second) {
            (Some(hour), Some(minute), Some(second)) => Some(time_micros(hour, minute, second).ok_or_else(|| {
                Error::semantic(
                    "22008",
                    format!("time field value out of range: {hour}:{minute:02}:{second}"),
                )
            })?),
            _ => None,
        });
    }
    Ok(Arc::new(arrow::array::Time64MicrosecondArray::from(values)))
}

pub(super) fn make_timestamp(call: &Call<'_>, zone: Option<Zone>) -> Result<ArrayRef> {
    let column = |index: usize| call.arguments[index].as_primitive::<Int32Type>();
    let seconds = call.arguments[5].as_primitive::<Float64Type>();
    let mut values = Vec::with_capacity(call.rows);
    for row in 0..call.rows {
        if call.arguments.iter().any(|array| array.is_null(row)) {
            values.push(None);
            continue;
        }
        let (year, month, day) = (column(0).value(row), column(1).value(row), column(2).value(row));
        let (hour, minute, second) = (column(3).value(row), column(4).value(row), seconds.value(row));
        let local = day_of(year, month, day)
            .ok_or_else(|| {
                Error::semantic(
                    "22008",
                    format!("date field value out of range: {year}-{month:02}-{day:02}"),
                )
            })?
            .checked_mul(DAY_MICROS)
            .zip(time_micros(hour, minute, second))
            .map(|(day, time)| day + time)
            .ok_or_else(|| {
                Error::semantic(
                    "22008",
                    format!("time field value out of range: {hour}:{minute:02}:{second}"),
                )
            })?;
        values.push(Some(zone.map_or(local, |zone| zone.instant_of_local(local))));
    }
    times_of(values, call)
}

/// `make_interval(years, months, weeks, days, hours, mins, secs)`.
pub(super) fn make_interval(call: &Call<'_>) -> Result<ArrayRef> {
    let mut values = Vec::with_capacity(call.rows);
    for row in 0..call.rows {
        if call.arguments.iter().any(|array| array.is_null(row)) {
            values.push(None);
            continue;
        }
        let at = |index: usize| {
            call.arguments
                .get(index)
                .map_or(0.0, |array| array.as_primitive::<Float64Type>().value(row))
        };
        let months = at(0) * 12.0 + at(1);
        let days = at(2) * 7.0 + at(3);
        let nanos = at(4) * 3.6e12 + at(5) * 6e10 + (at(6) * 1e6).round() * 1e3;
        if months.abs() > f64::from(i32::MAX) || days.abs() > f64::from(i32::MAX) || nanos.abs() > 9.2e18 {
            return Err(Error::semantic("22008", "interval out of range"));
        }
        values.push(Some(IntervalMonthDayNano::new(
            months as i32,
            days as i32,
            nanos as i64,
        )));
    }
    Ok(Arc::new(IntervalMonthDayNanoArray::from(values)))
}

pub(super) fn to_timestamp(call: &Call<'_>) -> Result<ArrayRef> {
    let mut values = Vec::with_capacity(call.rows);
    for seconds in call.arguments[0].as_primitive::<Float64Type>() {
        values.push(match seconds {
            None => None,
            Some(seconds) if seconds == f64::INFINITY => Some(TIMESTAMP_INFINITY),
            Some(seconds) if seconds == f64::NEG_INFINITY => Some(TIMESTAMP_MINUS_INFINITY),
            Some(seconds) if seconds.is_nan() => {
                return Err(Error::semantic("22008", "timestamp cannot be NaN"));
            }
            Some(seconds) => {
                let micros = (seconds * 1e6).round_ties_even();
                if micros.abs() > 9.2e18 {
                    return Err(Error::semantic(
                        "22008",
                        format!("timestamp out of range: \"{seconds}\""),
                    ));
                }
                Some(checked_timestamp(Some(micros as i64))?)
            }
        });
    }
    times_of(values, call)
}
