//! Intervals: the age between two times, and hours and days carried into days and months.

use super::part::Moment;
use crate::error::Result;
use crate::sql::function::cast::is_infinite;
use crate::sql::function::definition::Call;
use crate::sql::function::interval::between;
use crate::types::calendar::{DAY_MICROS, Zone, month_days};
use arrow::array::{ArrayRef, AsArray, IntervalMonthDayNanoArray};
use arrow::datatypes::{IntervalMonthDayNano, IntervalMonthDayNanoType, TimestampMicrosecondType};
use std::sync::Arc;

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

pub(super) fn age(call: &Call<'_>, zone: Option<Zone>) -> Result<ArrayRef> {
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

pub(super) fn intervals(
    call: &Call<'_>,
    change: impl Fn(IntervalMonthDayNano) -> IntervalMonthDayNano,
) -> Result<ArrayRef> {
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

pub(super) fn justify_hours(value: IntervalMonthDayNano) -> IntervalMonthDayNano {
    let (days, nanos) = carry(i64::from(value.days), value.nanoseconds, DAY_MICROS * 1000);
    IntervalMonthDayNano::new(value.months, days as i32, nanos)
}

pub(super) fn justify_days(value: IntervalMonthDayNano) -> IntervalMonthDayNano {
    let (months, days) = carry(i64::from(value.months), i64::from(value.days), 30);
    IntervalMonthDayNano::new(months as i32, days as i32, value.nanoseconds)
}

/// Hours to days and days to months, all of one sign.
pub(super) fn justify(value: IntervalMonthDayNano) -> IntervalMonthDayNano {
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
