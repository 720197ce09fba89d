//! Functions on dates, times and intervals.

mod justify;
mod make;
mod part;
mod truncate;
mod zone;

use super::cast::is_infinite;
use super::definition::{Call, Definition, Kind, Overload};
use super::interval::shift;
use super::to_char;
use crate::error::{Error, Result};
use crate::types::Type;
use crate::types::calendar::Zone;
use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, StringBuilder, TimestampMicrosecondArray};
use arrow::datatypes::{Date32Type, IntervalMonthDayNano, TimestampMicrosecondType};
use justify::{age, intervals, justify, justify_days, justify_hours};
use make::{make_date, make_interval, make_time, make_timestamp, to_timestamp};
pub(super) use part::{Moment, iso_week, moment_of, weekday};
use part::{date_part, extract, part_micros};
use std::sync::Arc;
use truncate::{date_bin, truncate, truncate_in_zone, truncate_intervals};
use zone::{Way, at_offset, in_zone};

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

fn times_of(values: Vec<Option<i64>>, call: &Call<'_>) -> Result<ArrayRef> {
    Ok(Arc::new(
        TimestampMicrosecondArray::from(values).with_data_type(call.result.arrow()),
    ))
}

fn is_finite(call: &Call<'_>) -> Result<ArrayRef> {
    let found: BooleanArray = call.arguments[0]
        .as_primitive::<TimestampMicrosecondType>()
        .iter()
        .map(|micros| micros.map(|micros| !is_infinite(micros)))
        .collect();
    Ok(Arc::new(found))
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
