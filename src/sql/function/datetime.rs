//! Functions on dates, times and intervals.

use super::cast::{is_infinite, timestamp_to_date};
use super::decimal::build;
use super::definition::{Call, Definition, Kind, Overload};
use super::interval::{between, checked_timestamp, shift};
use super::to_char;
use crate::error::{Error, Result};
use crate::types::Type;
use crate::types::calendar::{
    Civil, DAY_MICROS, HOUR_MICROS, MINUTE_MICROS, SECOND_MICROS, TIMESTAMP_INFINITY, TIMESTAMP_MINUS_INFINITY, Zone,
    civil_of_days, days_of_civil, month_days,
};
use arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, Date32Array, Float64Array, IntervalMonthDayNanoArray, StringBuilder,
    TimestampMicrosecondArray,
};
use arrow::datatypes::{
    Date32Type, Float64Type, Int32Type, IntervalMonthDayNano, IntervalMonthDayNanoType, Time64MicrosecondType,
    TimestampMicrosecondType, i256,
};
use std::sync::Arc;

/// Days from 4714-11-24 BC, where the Julian count begins, to 1970-01-01.
const JULIAN_EPOCH_DAYS: i64 = 2_440_588;

const fn takes(
    arguments: &'static [Kind],
    result: fn(&[Type]) -> Type,
    kernel: fn(&Call<'_>) -> Result<ArrayRef>,
) -> Overload {
    Overload {
        arguments,
        rest: None,
        result,
        kernel,
        of_constants: None,
    }
}

const fn named(name: &'static str, doc: &'static str, overloads: &'static [Overload]) -> Definition {
    Definition { name, doc, overloads }
}

fn timestamp(_: &[Type]) -> Type {
    Type::Timestamp(None)
}

fn timestamptz(_: &[Type]) -> Type {
    Type::Timestamptz(None)
}

fn interval(_: &[Type]) -> Type {
    Type::Interval
}

fn float8(_: &[Type]) -> Type {
    Type::Float8
}

fn boolean(_: &[Type]) -> Type {
    Type::Bool
}

fn date(_: &[Type]) -> Type {
    Type::Date
}

fn text(_: &[Type]) -> Type {
    Type::Text
}

use Kind::{Date, Float8, Int4, Interval, Numeric, Text, Time, Timestamp, Timestamptz};

/// The ways to name a part of a time.
macro_rules! parts {
    ($result:expr, $kernel:expr) => {
        &[
            takes(&[Text, Timestamp], $result, $kernel),
            takes(&[Text, Timestamptz], $result, $kernel),
            takes(&[Text, Date], $result, $kernel),
            takes(&[Text, Time], $result, $kernel),
            takes(&[Text, Interval], $result, $kernel),
        ]
    };
}

/// The functions of this file.
pub(super) const FUNCTIONS: &[Definition] = &[
    named(
        "__extract0",
        "EXTRACT of a whole number.",
        parts!(|_| Type::Numeric(Some((20, 0))), |call| extract(call, 0)),
    ),
    named(
        "__extract3",
        "EXTRACT of milliseconds.",
        parts!(|_| Type::Numeric(Some((20, 3))), |call| extract(call, 3)),
    ),
    named(
        "__extract6",
        "EXTRACT of seconds.",
        parts!(|_| Type::Numeric(Some((24, 6))), |call| extract(call, 6)),
    ),
    named(
        "__extract_free",
        "EXTRACT of what has many digits.",
        parts!(|_| Type::Numeric(None), |call| extract(call, 38)),
    ),
    named(
        "extract",
        "A part of a time, as numeric.",
        parts!(|_| Type::Numeric(Some((24, 6))), |call| extract(call, 6)),
    ),
    named(
        "date_part",
        "A part of a time, as double precision.",
        parts!(float8, date_part),
    ),
    named(
        "date_trunc",
        "A time cut to a unit.",
        &[
            takes(&[Text, Timestamp], timestamp, |call| truncate(call, None)),
            takes(&[Text, Timestamptz], timestamptz, |call| {
                truncate(call, Some(call.time_zone()?))
            }),
            takes(&[Text, Timestamptz, Text], timestamptz, truncate_in_zone),
            takes(&[Text, Interval], interval, truncate_intervals),
        ],
    ),
    named(
        "date_bin",
        "The start of the bin of a size that a time is in.",
        &[
            takes(&[Interval, Timestamp, Timestamp], timestamp, date_bin),
            takes(&[Interval, Timestamptz, Timestamptz], timestamptz, date_bin),
        ],
    ),
    named(
        "timezone",
        "A time in another zone: AT TIME ZONE.",
        &[
            takes(&[Text, Timestamptz], timestamp, |call| in_zone(call, Way::ToLocal)),
            takes(&[Text, Timestamp], timestamptz, |call| in_zone(call, Way::ToInstant)),
            takes(&[Interval, Timestamptz], timestamp, |call| {
                at_offset(call, Way::ToLocal)
            }),
            takes(&[Interval, Timestamp], timestamptz, |call| {
                at_offset(call, Way::ToInstant)
            }),
        ],
    ),
    named(
        "age",
        "The years, months and days between two times.",
        &[
            takes(&[Timestamp, Timestamp], interval, |call| age(call, None)),
            takes(&[Timestamptz, Timestamptz], interval, |call| {
                age(call, Some(call.time_zone()?))
            }),
        ],
    ),
    named(
        "isfinite",
        "Whether a time is neither infinity.",
        &[
            takes(&[Timestamp], boolean, is_finite),
            takes(&[Timestamptz], boolean, is_finite),
            takes(&[Date], boolean, |call| {
                let days = call.arguments[0].as_primitive::<Date32Type>();
                let found: BooleanArray = days
                    .iter()
                    .map(|day| day.map(|day| day != i32::MAX && day != i32::MIN))
                    .collect();
                Ok(Arc::new(found))
            }),
            takes(&[Interval], boolean, |call| {
                Ok(Arc::new(BooleanArray::from(vec![true; call.rows])))
            }),
        ],
    ),
    named(
        "make_date",
        "A date of its parts.",
        &[takes(&[Int4, Int4, Int4], date, make_date)],
    ),
    named(
        "make_time",
        "A time of its parts.",
        &[takes(&[Int4, Int4, Float8], |_| Type::Time, make_time)],
    ),
    named(
        "make_timestamp",
        "A timestamp of its parts.",
        &[takes(&[Int4, Int4, Int4, Int4, Int4, Float8], timestamp, |call| {
            make_timestamp(call, None)
        })],
    ),
    named(
        "make_timestamptz",
        "A timestamptz of its parts, in the session's zone.",
        &[takes(&[Int4, Int4, Int4, Int4, Int4, Float8], timestamptz, |call| {
            make_timestamp(call, Some(call.time_zone()?))
        })],
    ),
    named(
        "make_interval",
        "An interval of its parts.",
        &[Overload {
            arguments: &[],
            rest: Some(Float8),
            result: interval,
            kernel: make_interval,
            of_constants: None,
        }],
    ),
    named(
        "justify_hours",
        "An interval with 24 hours made a day.",
        &[takes(&[Interval], interval, |call| intervals(call, justify_hours))],
    ),
    named(
        "justify_days",
        "An interval with 30 days made a month.",
        &[takes(&[Interval], interval, |call| intervals(call, justify_days))],
    ),
    named(
        "justify_interval",
        "An interval with 24 hours made a day and 30 days a month.",
        &[takes(&[Interval], interval, |call| intervals(call, justify))],
    ),
    named(
        "to_timestamp",
        "The time of seconds since 1970, or of a text in a format.",
        &[
            takes(&[Float8], timestamptz, to_timestamp),
            takes(&[Text, Text], timestamptz, |call| {
                let zone = call.time_zone()?;
                to_char::read(call, |local| Ok(zone.instant_of_local(local)))
            }),
        ],
    ),
    named(
        "to_date",
        "The date of a text in a format.",
        &[takes(&[Text, Text], date, to_char::read_date)],
    ),
    named(
        "to_number",
        "The number of a text in a format.",
        &[takes(&[Text, Text], |_| Type::Numeric(None), to_char::read_number)],
    ),
    named(
        "to_char",
        "A value as text in a format.",
        &[
            takes(&[Timestamp, Text], text, |call| to_char::timestamps(call, None)),
            takes(&[Timestamptz, Text], text, |call| {
                to_char::timestamps(call, Some(call.time_zone()?))
            }),
            takes(&[Date, Text], text, to_char::dates),
            takes(&[Interval, Text], text, to_char::intervals),
            takes(&[Numeric, Text], text, to_char::numbers),
            takes(&[Float8, Text], text, to_char::floats),
        ],
    ),
];

/// A moment taken apart: a day, the time on it, and the zone's offset.
#[derive(Debug, Clone, Copy)]
pub(super) struct Moment {
    /// Microseconds since 1970-01-01 on the clock.
    pub(super) local: i64,
    /// Seconds east of Greenwich; `None` without a zone.
    pub(super) offset: Option<i32>,
}

impl Moment {
    pub(super) fn civil(self) -> Civil {
        civil_of_days(self.local.div_euclid(DAY_MICROS))
    }

    pub(super) fn of_day(self) -> i64 {
        self.local.rem_euclid(DAY_MICROS)
    }

    fn instant(self) -> i64 {
        self.local - i64::from(self.offset.unwrap_or(0)) * SECOND_MICROS
    }
}

/// The day of the week, 0 is Sunday.
pub(super) fn weekday(days: i64) -> i64 {
    (days + 4).rem_euclid(7)
}

/// The ISO year and week of a day.
pub(super) fn iso_week(days: i64) -> (i64, i64) {
    // The Thursday of a week decides its year.
    let thursday = days - (weekday(days) + 6).rem_euclid(7) + 3;
    let year = civil_of_days(thursday).year;
    (year, (thursday - days_of_civil(year, 1, 1)) / 7 + 1)
}

/// A part in millionths, or `None` if there is no such part.
fn part_micros(field: &str, moment: Moment) -> Option<i128> {
    let (civil, of_day) = (moment.civil(), moment.of_day());
    let days = moment.local.div_euclid(DAY_MICROS);
    // There is no year 0: the year before 1 is -1.
    let year = if civil.year > 0 { civil.year } else { civil.year - 1 };
    let whole = match field {
        "year" | "years" | "y" | "yr" | "yrs" => year,
        "month" | "months" | "mon" | "mons" => i64::from(civil.month),
        "day" | "days" | "d" => i64::from(civil.day),
        "hour" | "hours" | "h" | "hr" | "hrs" => of_day / HOUR_MICROS,
        "minute" | "minutes" | "m" | "min" | "mins" => of_day / MINUTE_MICROS % 60,
        "second" | "seconds" | "s" | "sec" | "secs" => return Some(i128::from(of_day % MINUTE_MICROS)),
        "millisecond" | "milliseconds" | "msec" | "msecs" | "ms" => {
            return Some(i128::from(of_day % MINUTE_MICROS) * 1000);
        }
        "microsecond" | "microseconds" | "usec" | "usecs" | "us" => of_day % MINUTE_MICROS,
        "quarter" | "qtr" => (i64::from(civil.month) - 1) / 3 + 1,
        "decade" | "decades" => civil.year.div_euclid(10),
        "century" | "centuries" | "c" | "cent" => part_of_years(year, 100),
        "millennium" | "millennia" | "mil" | "mils" => part_of_years(year, 1000),
        "dow" => weekday(days),
        "isodow" => (weekday(days) + 6).rem_euclid(7) + 1,
        "doy" => days - days_of_civil(civil.year, 1, 1) + 1,
        "week" | "weeks" | "w" => iso_week(days).1,
        "isoyear" => {
            let iso = iso_week(days).0;
            if iso > 0 { iso } else { iso - 1 }
        }
        "epoch" => return Some(i128::from(moment.instant())),
        "timezone" => i64::from(moment.offset?),
        "timezone_hour" | "timezone_h" => i64::from(moment.offset? / 3600),
        "timezone_minute" | "timezone_m" => i64::from(moment.offset? / 60 % 60),
        "julian" => {
            let micros = i128::from(days + JULIAN_EPOCH_DAYS) * 1_000_000;
            return Some(micros + i128::from(of_day) * 1_000_000 / i128::from(DAY_MICROS));
        }
        _ => return None,
    };
    Some(i128::from(whole) * 1_000_000)
}

/// Centuries and millennia, of which there is no zeroth.
fn part_of_years(year: i64, span: i64) -> i64 {
    if year > 0 {
        (year + span - 1) / span
    } else {
        -((span - 1 - year) / span)
    }
}

/// A part of an interval in millionths.
fn interval_part_micros(field: &str, interval: IntervalMonthDayNano) -> Option<i128> {
    let micros = interval.nanoseconds / 1000;
    let months = i64::from(interval.months);
    let whole = match field {
        "year" | "years" | "y" | "yr" | "yrs" => months / 12,
        "month" | "months" | "mon" | "mons" => months % 12,
        "day" | "days" | "d" => i64::from(interval.days),
        "hour" | "hours" | "h" | "hr" | "hrs" => micros / HOUR_MICROS,
        "minute" | "minutes" | "m" | "min" | "mins" => micros / MINUTE_MICROS % 60,
        "second" | "seconds" | "s" | "sec" | "secs" => return Some(i128::from(micros % MINUTE_MICROS)),
        "millisecond" | "milliseconds" | "msec" | "msecs" | "ms" => {
            return Some(i128::from(micros % MINUTE_MICROS) * 1000);
        }
        "microsecond" | "microseconds" | "usec" | "usecs" | "us" => micros % MINUTE_MICROS,
        "quarter" | "qtr" => (months % 12) / 3 + 1,
        "decade" | "decades" => months / 120,
        "century" | "centuries" | "c" | "cent" => months / 1200,
        "millennium" | "millennia" | "mil" | "mils" => months / 12000,
        "epoch" => {
            // A year is 365.25 days here, a month 30.
            let days =
                i128::from(months / 12) * 36525 + i128::from(months % 12) * 3000 + i128::from(interval.days) * 100;
            return Some(days * i128::from(DAY_MICROS) / 100 + i128::from(micros));
        }
        _ => return None,
    };
    Some(i128::from(whole) * 1_000_000)
}

fn unknown_unit(field: &str, kind: &Type) -> Error {
    let somewhere = Moment {
        local: 0,
        offset: Some(0),
    };
    if part_micros(field, somewhere).is_some() {
        return Error::unsupported(format!("unit \"{field}\" not supported for type {kind}"));
    }
    Error::semantic("22023", format!("unit \"{field}\" not recognized for type {kind}"))
}

/// The part of each row, in millionths; infinite times have infinite or no parts.
fn parts_of(call: &Call<'_>) -> Result<Vec<Option<Part>>> {
    let fields = call.arguments[0].as_string::<i32>();
    let array = &call.arguments[1];
    let kind = &call.types[1];
    let zone = call.time_zone()?;
    let mut parts = Vec::with_capacity(call.rows);
    for row in 0..call.rows {
        if fields.is_null(row) || array.is_null(row) {
            parts.push(None);
            continue;
        }
        let field = fields.value(row).to_lowercase();
        let part = match kind {
            Type::Interval => interval_part_micros(&field, array.as_primitive::<IntervalMonthDayNanoType>().value(row))
                .map(Part::Finite),
            Type::Time => {
                let local = array.as_primitive::<Time64MicrosecondType>().value(row);
                time_part(&field)
                    .then(|| part_micros(&field, Moment { local, offset: None }))
                    .flatten()
                    .map(Part::Finite)
            }
            Type::Date => {
                let day = array.as_primitive::<Date32Type>().value(row);
                match day {
                    i32::MAX => infinite_part(&field, f64::INFINITY),
                    i32::MIN => infinite_part(&field, f64::NEG_INFINITY),
                    day if !time_part(&field) || field == "epoch" => {
                        let moment = Moment {
                            local: i64::from(day) * DAY_MICROS,
                            offset: None,
                        };
                        part_micros(&field, moment).map(Part::Finite)
                    }
                    _ => None,
                }
            }
            _ => {
                let micros = array.as_primitive::<TimestampMicrosecondType>().value(row);
                match micros {
                    TIMESTAMP_INFINITY => infinite_part(&field, f64::INFINITY),
                    TIMESTAMP_MINUS_INFINITY => infinite_part(&field, f64::NEG_INFINITY),
                    _ => part_micros(&field, moment_of(micros, kind, zone)).map(Part::Finite),
                }
            }
        };
        parts.push(Some(part.ok_or_else(|| unknown_unit(&field, kind))?));
    }
    Ok(parts)
}

/// A part of a time that may be infinite.
#[derive(Debug, Clone, Copy)]
enum Part {
    Finite(i128),
    Infinite(f64),
    None,
}

fn time_part(field: &str) -> bool {
    let probe = ["hour", "minute", "second", "millisecond", "microsecond"];
    probe.iter().any(|name| field.starts_with(name))
        || [
            "h", "hr", "hrs", "m", "min", "mins", "s", "sec", "secs", "msec", "msecs", "ms", "usec", "usecs", "us",
            "epoch",
        ]
        .contains(&field)
}

fn infinite_part(field: &str, value: f64) -> Option<Part> {
    Some(match field {
        "epoch" | "year" | "years" | "decade" | "century" | "millennium" | "isoyear" | "julian" => {
            Part::Infinite(value)
        }
        _ => Part::None,
    })
}

pub(super) fn moment_of(micros: i64, kind: &Type, zone: Zone) -> Moment {
    match kind {
        Type::Timestamptz(_) => {
            let offset = zone.offset_at(micros);
            Moment {
                local: micros + i64::from(offset) * SECOND_MICROS,
                offset: Some(offset),
            }
        }
        _ => Moment {
            local: micros,
            offset: None,
        },
    }
}

fn extract(call: &Call<'_>, scale: i8) -> Result<ArrayRef> {
    let mut values = Vec::with_capacity(call.rows);
    for part in parts_of(call)? {
        values.push(match part {
            Some(Part::Finite(millionths)) => {
                let value = super::decimal::rescale(i256::from_i128(millionths), 6, scale);
                Some(value.ok_or_else(|| super::decimal::overflow(call.result))?)
            }
            Some(Part::Infinite(_)) => {
                return Err(Error::unsupported("numeric infinity is not supported"));
            }
            Some(Part::None) | None => None,
        });
    }
    build(values, call.result)
}

fn date_part(call: &Call<'_>) -> Result<ArrayRef> {
    let values: Float64Array = parts_of(call)?
        .into_iter()
        .map(|part| match part {
            Some(Part::Finite(millionths)) => Some(millionths as f64 / 1e6),
            Some(Part::Infinite(value)) => Some(value),
            Some(Part::None) | None => None,
        })
        .collect();
    Ok(Arc::new(values))
}

/// A local time cut to a unit.
fn cut(field: &str, local: i64, kind: &Type) -> Result<i64> {
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

fn truncate(call: &Call<'_>, zone: Option<Zone>) -> Result<ArrayRef> {
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

fn truncate_in_zone(call: &Call<'_>) -> Result<ArrayRef> {
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

fn times_of(values: Vec<Option<i64>>, call: &Call<'_>) -> Result<ArrayRef> {
    Ok(Arc::new(
        TimestampMicrosecondArray::from(values).with_data_type(call.result.arrow()),
    ))
}

fn truncate_intervals(call: &Call<'_>) -> Result<ArrayRef> {
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

fn date_bin(call: &Call<'_>) -> Result<ArrayRef> {
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
        values.push(Some(super::window::window_start(time, size, origin)));
    }
    times_of(values, call)
}

/// Which way AT TIME ZONE goes.
#[derive(Clone, Copy)]
enum Way {
    /// From an instant to what clocks show.
    ToLocal,
    /// From what clocks show to an instant.
    ToInstant,
}

fn converted(micros: i64, zone: Zone, way: Way) -> i64 {
    if is_infinite(micros) {
        return micros;
    }
    match way {
        Way::ToLocal => zone.local_of_instant(micros),
        Way::ToInstant => zone.instant_of_local(micros),
    }
}

fn in_zone(call: &Call<'_>, way: Way) -> Result<ArrayRef> {
    let names = call.arguments[0].as_string::<i32>();
    let times = call.arguments[1].as_primitive::<TimestampMicrosecondType>();
    let mut last: Option<(String, Zone)> = None;
    let mut values = Vec::with_capacity(call.rows);
    for (name, time) in names.iter().zip(times) {
        let (Some(name), Some(time)) = (name, time) else {
            values.push(None);
            continue;
        };
        let zone = match &last {
            Some((known, zone)) if known == name => *zone,
            _ => {
                let zone = Zone::parse(name)
                    .map_err(|_| Error::semantic("22023", format!("time zone \"{name}\" not recognized")))?;
                last = Some((name.to_owned(), zone));
                zone
            }
        };
        values.push(Some(converted(time, zone, way)));
    }
    times_of(values, call)
}

fn at_offset(call: &Call<'_>, way: Way) -> Result<ArrayRef> {
    let offsets = call.arguments[0].as_primitive::<IntervalMonthDayNanoType>();
    let times = call.arguments[1].as_primitive::<TimestampMicrosecondType>();
    let mut values = Vec::with_capacity(call.rows);
    for (offset, time) in offsets.iter().zip(times) {
        let (Some(offset), Some(time)) = (offset, time) else {
            values.push(None);
            continue;
        };
        if offset.months != 0 || offset.days != 0 {
            return Err(Error::semantic(
                "22023",
                "interval time zone must not include months or days",
            ));
        }
        let zone = Zone::Fixed((offset.nanoseconds / 1_000_000_000) as i32);
        values.push(Some(converted(time, zone, way)));
    }
    times_of(values, call)
}

/// Years, months, days and time from the earlier to the later, borrowed as a calendar borrows.
fn age_between(a: i64, b: i64) -> Result<IntervalMonthDayNano> {
    if is_infinite(a) || is_infinite(b) {
        return between(a, b);
    }
    let (later, earlier, sign) = if a >= b { (a, b, 1) } else { (b, a, -1) };
    let (from, to) = (
        Moment {
            local: earlier,
            offset: None,
        },
        Moment {
            local: later,
            offset: None,
        },
    );
    let (start, end) = (from.civil(), to.civil());
    let mut months = (end.year - start.year) * 12 + i64::from(end.month) - i64::from(start.month);
    let mut days = i64::from(end.day) - i64::from(start.day);
    let mut time = to.of_day() - from.of_day();
    if time < 0 {
        time += DAY_MICROS;
        days -= 1;
    }
    if days < 0 {
        // The month that is borrowed is the earlier one's.
        months -= 1;
        days += i64::from(month_days(start.year, start.month));
    }
    Ok(IntervalMonthDayNano::new(
        (months * sign) as i32,
        (days * sign) as i32,
        time * sign * 1000,
    ))
}

fn age(call: &Call<'_>, zone: Option<Zone>) -> Result<ArrayRef> {
    let a = call.arguments[0].as_primitive::<TimestampMicrosecondType>();
    let b = call.arguments[1].as_primitive::<TimestampMicrosecondType>();
    let local = |micros: i64| match zone {
        Some(zone) if !is_infinite(micros) => zone.local_of_instant(micros),
        _ => micros,
    };
    let mut values = Vec::with_capacity(call.rows);
    for (a, b) in a.iter().zip(b) {
        values.push(match (a, b) {
            (Some(a), Some(b)) => Some(age_between(local(a), local(b))?),
            _ => None,
        });
    }
    Ok(Arc::new(IntervalMonthDayNanoArray::from(values)))
}

fn is_finite(call: &Call<'_>) -> Result<ArrayRef> {
    let found: BooleanArray = call.arguments[0]
        .as_primitive::<TimestampMicrosecondType>()
        .iter()
        .map(|micros| micros.map(|micros| !is_infinite(micros)))
        .collect();
    Ok(Arc::new(found))
}

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

fn make_date(call: &Call<'_>) -> Result<ArrayRef> {
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

fn make_time(call: &Call<'_>) -> Result<ArrayRef> {
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

fn make_timestamp(call: &Call<'_>, zone: Option<Zone>) -> Result<ArrayRef> {
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
fn make_interval(call: &Call<'_>) -> Result<ArrayRef> {
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

fn intervals(call: &Call<'_>, change: impl Fn(IntervalMonthDayNano) -> IntervalMonthDayNano) -> Result<ArrayRef> {
    let values: IntervalMonthDayNanoArray = call.arguments[0]
        .as_primitive::<IntervalMonthDayNanoType>()
        .unary(change);
    Ok(Arc::new(values))
}

/// Moves whole units up, and gives both parts one sign.
fn carry(upper: i64, lower: i64, unit: i64) -> (i64, i64) {
    let (mut upper, mut lower) = (upper + lower / unit, lower % unit);
    if upper > 0 && lower < 0 {
        upper -= 1;
        lower += unit;
    } else if upper < 0 && lower > 0 {
        upper += 1;
        lower -= unit;
    }
    (upper, lower)
}

fn justify_hours(value: IntervalMonthDayNano) -> IntervalMonthDayNano {
    let (days, nanos) = carry(i64::from(value.days), value.nanoseconds, DAY_MICROS * 1000);
    IntervalMonthDayNano::new(value.months, days as i32, nanos)
}

fn justify_days(value: IntervalMonthDayNano) -> IntervalMonthDayNano {
    let (months, days) = carry(i64::from(value.months), i64::from(value.days), 30);
    IntervalMonthDayNano::new(months as i32, days as i32, value.nanoseconds)
}

/// Hours to days and days to months, all of one sign.
fn justify(value: IntervalMonthDayNano) -> IntervalMonthDayNano {
    const DAY_NANOS: i64 = DAY_MICROS * 1000;
    let (extra, mut nanos) = (value.nanoseconds / DAY_NANOS, value.nanoseconds % DAY_NANOS);
    let mut days = i64::from(value.days) + extra;
    let mut months = i64::from(value.months) + days / 30;
    days %= 30;
    if months > 0 && (days < 0 || (days == 0 && nanos < 0)) {
        days += 30;
        months -= 1;
    } else if months < 0 && (days > 0 || (days == 0 && nanos > 0)) {
        days -= 30;
        months += 1;
    }
    if days > 0 && nanos < 0 {
        nanos += DAY_NANOS;
        days -= 1;
    } else if days < 0 && nanos > 0 {
        nanos -= DAY_NANOS;
        days += 1;
    }
    IntervalMonthDayNano::new(months as i32, days as i32, nanos)
}

fn to_timestamp(call: &Call<'_>) -> Result<ArrayRef> {
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

/// Each row's time and format, as text made of them.
pub(super) fn formatted(
    call: &Call<'_>,
    mut write: impl FnMut(usize, &str, &mut String) -> Result<Option<()>>,
) -> Result<ArrayRef> {
    let formats = call.arguments[1].as_string::<i32>();
    let mut builder = StringBuilder::new();
    let mut output = String::new();
    for row in 0..call.rows {
        if call.arguments[0].is_null(row) || formats.is_null(row) {
            builder.append_null();
            continue;
        }
        output.clear();
        match write(row, formats.value(row), &mut output)? {
            Some(()) => builder.append_value(&output),
            None => builder.append_null(),
        }
    }
    Ok(Arc::new(builder.finish()))
}

/// A timestamp an interval later, for series.
pub(super) fn later(micros: i64, step: IntervalMonthDayNano, zone: Option<Zone>) -> Result<i64> {
    shift(micros, step, zone)
}
