//! The parts of a time: `EXTRACT` and `date_part`.

use super::{JULIAN_EPOCH_DAYS, unknown_unit};
use crate::error::{Error, Result};
use crate::sql::function::decimal;
use crate::sql::function::decimal::build;
use crate::sql::function::definition::Call;
use crate::types::Type;
use crate::types::calendar::{
    Civil, DAY_MICROS, HOUR_MICROS, MINUTE_MICROS, SECOND_MICROS, TIMESTAMP_INFINITY, TIMESTAMP_MINUS_INFINITY, Zone,
    civil_of_days, days_of_civil,
};
use arrow::array::{Array, ArrayRef, AsArray, Float64Array};
use arrow::datatypes::{
    Date32Type, IntervalMonthDayNano, IntervalMonthDayNanoType, Time64MicrosecondType, TimestampMicrosecondType, i256,
};
use std::sync::Arc;

/// A moment taken apart: a day, the time on it, and the zone's offset.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Moment {
    /// Microseconds since 1970-01-01 on the clock.
    pub(crate) local: i64,
    /// Seconds east of Greenwich; `None` without a zone.
    pub(crate) offset: Option<i32>,
}

impl Moment {
    pub(crate) fn civil(self) -> Civil {
        civil_of_days(self.local.div_euclid(DAY_MICROS))
    }

    pub(crate) fn of_day(self) -> i64 {
        self.local.rem_euclid(DAY_MICROS)
    }

    fn instant(self) -> i64 {
        self.local - i64::from(self.offset.unwrap_or(0)) * SECOND_MICROS
    }
}

/// The day of the week, 0 is Sunday.
pub(crate) fn weekday(days: i64) -> i64 {
    (days + 4).rem_euclid(7)
}

/// The ISO year and week of a day.
pub(crate) fn iso_week(days: i64) -> (i64, i64) {
    // The Thursday of a week decides its year.
    let thursday = days - (weekday(days) + 6).rem_euclid(7) + 3;
    let year = civil_of_days(thursday).year;
    (year, (thursday - days_of_civil(year, 1, 1)) / 7 + 1)
}

/// A part in millionths, or `None` if there is no such part.
pub(super) fn part_micros(field: &str, moment: Moment) -> Option<i128> {
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

pub(crate) fn moment_of(micros: i64, kind: &Type, zone: Zone) -> Moment {
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

pub(super) fn extract(call: &Call<'_>, scale: i8) -> Result<ArrayRef> {
    let mut values = Vec::with_capacity(call.rows);
    for part in parts_of(call)? {
        values.push(match part {
            Some(Part::Finite(millionths)) => {
                let value = decimal::rescale(i256::from_i128(millionths), 6, scale);
                Some(value.ok_or_else(|| decimal::overflow(call.result))?)
            }
            Some(Part::Infinite(_)) => {
                return Err(Error::unsupported("numeric infinity is not supported"));
            }
            Some(Part::None) | None => None,
        });
    }
    build(values, call.result)
}

pub(super) fn date_part(call: &Call<'_>) -> Result<ArrayRef> {
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
