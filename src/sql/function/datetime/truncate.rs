//! Times cut to a unit or to a bin.

use super::part::weekday;
use super::{times_of, unknown_unit};
use crate::error::{Error, Result};
use crate::sql::function::cast::is_infinite;
use crate::sql::function::definition::Call;
use crate::sql::function::interval::checked_timestamp;
use crate::sql::function::window;
use crate::types::Type;
use crate::types::calendar::{
    DAY_MICROS, HOUR_MICROS, MINUTE_MICROS, SECOND_MICROS, Zone, civil_of_days, days_of_civil,
};
use arrow::array::{ArrayRef, AsArray, IntervalMonthDayNanoArray};
use arrow::datatypes::{IntervalMonthDayNano, IntervalMonthDayNanoType, TimestampMicrosecondType};
use std::sync::Arc;

/// A local time cut to a unit.
pub(super) fn cut(field: &str, local: i64, kind: &Type) -> Result<i64> {
    let days = local.div_euclid(DAY_MICROS);
    let civil = civil_of_days(days);
    let to_years = |span: i64, first: i64| {
        let year = (civil.year - first).div_euclid(span) * span + first;
        days_of_civil(year, 1, 1) * DAY_MICROS
    };
    let to = |unit: i64| local - local.rem_euclid(unit);
    Ok(match field {
        "microsecond" | "microseconds" | "us" => local,
        "millisecond" | "milliseconds" | "ms" => to(1000),
        "second" | "seconds" | "sec" | "s" => to(SECOND_MICROS),
        "minute" | "minutes" | "min" | "m" => to(MINUTE_MICROS),
        "hour" | "hours" | "hr" | "h" => to(HOUR_MICROS),
        "day" | "days" | "d" => to(DAY_MICROS),
        "week" | "weeks" | "w" => (days - (weekday(days) + 6).rem_euclid(7)) * DAY_MICROS,
        "month" | "months" | "mon" => days_of_civil(civil.year, civil.month, 1) * DAY_MICROS,
        "quarter" | "qtr" => days_of_civil(civil.year, (civil.month - 1) / 3 * 3 + 1, 1) * DAY_MICROS,
        "year" | "years" | "y" => to_years(1, 0),
        "decade" | "decades" => to_years(10, 0),
        "century" | "centuries" => to_years(100, 1),
        "millennium" | "millennia" => to_years(1000, 1),
        _ => return Err(unknown_unit(field, kind)),
    })
}

fn truncate_one(field: &str, micros: i64, zone: Option<Zone>, kind: &Type) -> Result<i64> {
    if is_infinite(micros) {
        return Ok(micros);
    }
    match zone {
        None => checked_timestamp(Some(cut(field, micros, kind)?)),
        Some(zone) => {
            let local = zone.local_of_instant(micros);
            let cut_local = cut(field, local, kind)?;
            // Within a day the offset stays, so that the two hours of an autumn night are kept apart.
            let small = ["hour", "minute", "second", "milli", "micro"]
                .iter()
                .any(|unit| field.starts_with(unit));
            let instant = if small {
                micros - (local - cut_local)
            } else {
                zone.instant_of_local(cut_local)
            };
            checked_timestamp(Some(instant))
        }
    }
}

pub(super) fn truncate(call: &Call<'_>, zone: Option<Zone>) -> Result<ArrayRef> {
    let fields = call.arguments[0].as_string::<i32>();
    let times = call.arguments[1].as_primitive::<TimestampMicrosecondType>();
    let mut values = Vec::with_capacity(call.rows);
    for (field, time) in fields.iter().zip(times) {
        values.push(match (field, time) {
            (Some(field), Some(time)) => Some(truncate_one(&field.to_lowercase(), time, zone, &call.types[1])?),
            _ => None,
        });
    }
    times_of(values, call)
}

pub(super) fn truncate_in_zone(call: &Call<'_>) -> Result<ArrayRef> {
    let fields = call.arguments[0].as_string::<i32>();
    let times = call.arguments[1].as_primitive::<TimestampMicrosecondType>();
    let zones = call.arguments[2].as_string::<i32>();
    let mut values = Vec::with_capacity(call.rows);
    for ((field, time), zone) in fields.iter().zip(times).zip(zones) {
        values.push(match (field, time, zone) {
            (Some(field), Some(time), Some(zone)) => Some(truncate_one(
                &field.to_lowercase(),
                time,
                Some(Zone::parse(zone)?),
                &call.types[1],
            )?),
            _ => None,
        });
    }
    times_of(values, call)
}

pub(super) fn truncate_intervals(call: &Call<'_>) -> Result<ArrayRef> {
    let fields = call.arguments[0].as_string::<i32>();
    let values = call.arguments[1].as_primitive::<IntervalMonthDayNanoType>();
    let mut results = Vec::with_capacity(call.rows);
    for (field, value) in fields.iter().zip(values) {
        results.push(match (field, value) {
            (Some(field), Some(value)) => Some(truncate_interval(&field.to_lowercase(), value)?),
            _ => None,
        });
    }
    Ok(Arc::new(IntervalMonthDayNanoArray::from(results)))
}

fn truncate_interval(field: &str, value: IntervalMonthDayNano) -> Result<IntervalMonthDayNano> {
    let micros = value.nanoseconds / 1000;
    let time = |unit: i64| IntervalMonthDayNano::new(value.months, value.days, micros / unit * unit * 1000);
    let months = |unit: i32| IntervalMonthDayNano::new(value.months / unit * unit, 0, 0);
    Ok(match field {
        "microsecond" | "microseconds" => time(1),
        "millisecond" | "milliseconds" => time(1000),
        "second" | "seconds" => time(SECOND_MICROS),
        "minute" | "minutes" => time(MINUTE_MICROS),
        "hour" | "hours" => time(HOUR_MICROS),
        "day" | "days" => IntervalMonthDayNano::new(value.months, value.days, 0),
        "month" | "months" => months(1),
        "quarter" => months(3),
        "year" | "years" => months(12),
        "decade" => months(120),
        "century" => months(1200),
        "millennium" => months(12000),
        _ => return Err(unknown_unit(field, &Type::Interval)),
    })
}

pub(super) fn date_bin(call: &Call<'_>) -> Result<ArrayRef> {
    let strides = call.arguments[0].as_primitive::<IntervalMonthDayNanoType>();
    let times = call.arguments[1].as_primitive::<TimestampMicrosecondType>();
    let origins = call.arguments[2].as_primitive::<TimestampMicrosecondType>();
    let mut values = Vec::with_capacity(call.rows);
    for ((stride, time), origin) in strides.iter().zip(times).zip(origins) {
        let (Some(stride), Some(time), Some(origin)) = (stride, time, origin) else {
            values.push(None);
            continue;
        };
        if stride.months != 0 {
            return Err(Error::unsupported(
                "timestamps cannot be binned into intervals containing months or years",
            ));
        }
        if is_infinite(time) {
            values.push(Some(time));
            continue;
        }
        let size = i64::from(stride.days)
            .checked_mul(DAY_MICROS)
            .and_then(|days| days.checked_add(stride.nanoseconds / 1000))
            .filter(|size| *size > 0)
            .ok_or_else(|| Error::semantic("22023", "stride must be greater than zero"))?;
        values.push(Some(window::window_start(time, size, origin)));
    }
    times_of(values, call)
}
