//! Intervals as text: PostgreSQL's input forms (verbose, SQL standard, ISO 8601) and its `postgres` output style.
//!
//! An interval is months, days and time of day, which do not turn into one another: a day is not always 24 hours.
//! Arrow keeps the time in nanoseconds, so it reaches 292 years; a time beyond that is refused with `22008`.

use super::calendar::{DAY_MICROS, HOUR_MICROS, MINUTE_MICROS, SECOND_MICROS};
use super::datetime::{fraction_micros, put_two, write_fraction};
use crate::error::{Error, Result};
use arrow::datatypes::IntervalMonthDayNano;
use bytes::{BufMut, BytesMut};
use std::fmt::Write as _;

/// Writes an interval in the `postgres` style: `1 year 2 mons -3 days +04:05:06.789`.
pub fn write_interval(interval: IntervalMonthDayNano, out: &mut BytesMut) {
    let micros = interval.nanoseconds / 1_000;
    let mut style = Style::default();
    style.unit(interval.months / 12, "year", out);
    style.unit(interval.months % 12, "mon", out);
    style.unit(interval.days, "day", out);
    if micros == 0 && style.written {
        return;
    }
    if style.written {
        out.put_u8(b' ');
    }
    if micros < 0 {
        out.put_u8(b'-');
    } else if style.negative {
        out.put_u8(b'+');
    }
    let magnitude = micros.unsigned_abs() as i64;
    let hours = magnitude / HOUR_MICROS;
    if hours < 100 {
        put_two(out, hours);
    } else {
        write!(out, "{hours}").expect("a buffer grows as needed");
    }
    out.put_u8(b':');
    put_two(out, magnitude / MINUTE_MICROS % 60);
    out.put_u8(b':');
    put_two(out, magnitude / SECOND_MICROS % 60);
    write_fraction(magnitude % SECOND_MICROS, out);
}

/// What has been written of an interval so far.
#[derive(Default)]
struct Style {
    written: bool,
    negative: bool,
}

impl Style {
    fn unit(&mut self, value: i32, name: &str, out: &mut BytesMut) {
        if value == 0 {
            return;
        }
        let space = if self.written { " " } else { "" };
        let plus = if self.negative && value > 0 { "+" } else { "" };
        let plural = if value == 1 { "" } else { "s" };
        write!(out, "{space}{plus}{value} {name}{plural}").expect("a buffer grows as needed");
        self.written = true;
        self.negative = value < 0;
    }
}

/// Reads an interval in any of PostgreSQL's forms.
pub fn read_interval(text: &str) -> Result<IntervalMonthDayNano> {
    let trimmed = text.trim_matches(|c: char| c.is_ascii_whitespace());
    let mut sum = Sum::default();
    // The designators of ISO 8601 are capital letters.
    let read = match trimmed.strip_prefix('P') {
        Some(iso) if !iso.is_empty() => read_iso(iso, &mut sum),
        _ => read_verbose(&trimmed.to_ascii_lowercase(), &mut sum),
    };
    match read {
        Ok(()) => sum.finish(),
        Err(problem) => Err(problem),
    }
    .map_err(|problem| match problem {
        Problem::Syntax => Error::semantic("22007", format!("invalid input syntax for type interval: \"{text}\"")),
        Problem::FieldRange => Error::semantic("22015", format!("interval field value out of range: \"{text}\"")),
        Problem::Range => Error::semantic("22008", "interval out of range"),
    })
}

enum Problem {
    Syntax,
    FieldRange,
    Range,
}

/// The sum of the fields that were read.
#[derive(Default)]
struct Sum {
    months: i64,
    days: i64,
    micros: i64,
    /// The names of the units that were given; each may be given once.
    given: Vec<&'static str>,
}

/// A number as it was written: its sign, digits, and digits after the point.
#[derive(Clone, Copy)]
struct Number<'a> {
    negative: bool,
    whole: &'a str,
    fraction: &'a str,
}

impl<'a> Number<'a> {
    fn parse(text: &'a str) -> Result<Self, Problem> {
        let (negative, digits) = match text.as_bytes().first() {
            Some(b'-') => (true, &text[1..]),
            Some(b'+') => (false, &text[1..]),
            _ => (false, text),
        };
        let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
        let all_digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
        if (whole.is_empty() && fraction.is_empty()) || !all_digits(whole) || !all_digits(fraction) {
            return Err(Problem::Syntax);
        }
        Ok(Self {
            negative,
            whole,
            fraction,
        })
    }

    fn signed<T: std::ops::Neg<Output = T>>(&self, value: T) -> T {
        if self.negative { -value } else { value }
    }

    fn whole(&self) -> Result<i64, Problem> {
        if self.whole.is_empty() {
            return Ok(0);
        }
        let value: i64 = self.whole.parse().map_err(|_| Problem::FieldRange)?;
        Ok(self.signed(value))
    }

    fn fraction(&self) -> f64 {
        let value = format!("0.{}0", self.fraction).parse().unwrap_or(0.0);
        self.signed(value)
    }
}

impl Sum {
    fn add(&mut self, number: Number<'_>, unit: Unit) -> Result<(), Problem> {
        let whole = number.whole()?;
        let fraction = number.fraction();
        match unit {
            Unit::Months(each) => {
                self.add_months(whole, each)?;
                let extra = fraction * each as f64;
                if each == 1 {
                    self.add_days_of(extra * 30.0)?;
                } else {
                    self.add_months(extra.round_ties_even() as i64, 1)?;
                }
            }
            Unit::Days(each) => {
                let days = whole.checked_mul(each).ok_or(Problem::FieldRange)?;
                self.days = self.days.checked_add(days).ok_or(Problem::FieldRange)?;
                self.add_days_of(fraction * each as f64)?;
            }
            Unit::Micros(each) => {
                let extra = if each == SECOND_MICROS {
                    number.signed(fraction_micros(number.fraction))
                } else {
                    (fraction * each as f64).round_ties_even() as i64
                };
                self.micros = whole
                    .checked_mul(each)
                    .and_then(|micros| micros.checked_add(extra))
                    .and_then(|micros| micros.checked_add(self.micros))
                    .ok_or(Problem::FieldRange)?;
            }
        }
        Ok(())
    }

    /// Adds a number of a unit that may be given once.
    fn add_named(&mut self, number: Number<'_>, named: Named) -> Result<(), Problem> {
        self.give(&[named.name])?;
        self.add(number, named.unit)
    }

    fn give(&mut self, names: &[&'static str]) -> Result<(), Problem> {
        if names.iter().any(|name| self.given.contains(name)) {
            return Err(Problem::Syntax);
        }
        self.given.extend(names);
        Ok(())
    }

    fn add_months(&mut self, count: i64, each: i64) -> Result<(), Problem> {
        self.months = count
            .checked_mul(each)
            .and_then(|months| months.checked_add(self.months))
            .ok_or(Problem::FieldRange)?;
        Ok(())
    }

    /// Adds a number of days with a fraction, which becomes time.
    fn add_days_of(&mut self, days: f64) -> Result<(), Problem> {
        let whole = days.trunc();
        let micros = ((days - whole) * DAY_MICROS as f64).round_ties_even() as i64;
        self.days = self.days.checked_add(whole as i64).ok_or(Problem::FieldRange)?;
        self.micros = self.micros.checked_add(micros).ok_or(Problem::FieldRange)?;
        Ok(())
    }

    fn add_clock(&mut self, clock: &str) -> Result<(), Problem> {
        let (negative, digits) = match clock.as_bytes().first() {
            Some(b'-') => (true, &clock[1..]),
            Some(b'+') => (false, &clock[1..]),
            _ => (false, clock),
        };
        let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
        let mut parts = [0_i64; 3];
        let mut count = 0;
        for part in whole.split(':') {
            let slot = parts.get_mut(count).ok_or(Problem::Syntax)?;
            if part.is_empty() {
                return Err(Problem::Syntax);
            }
            *slot = part.parse().map_err(|_| Problem::FieldRange)?;
            count += 1;
        }
        // `02:03.5` is minutes and seconds.
        if count == 2 && !fraction.is_empty() {
            parts = [0, parts[0], parts[1]];
        }
        let [hours, minutes, seconds] = parts;
        if minutes > 59 || seconds > 60 {
            return Err(Problem::FieldRange);
        }
        let micros = hours
            .checked_mul(HOUR_MICROS)
            .and_then(|micros| micros.checked_add(minutes * MINUTE_MICROS))
            .and_then(|micros| micros.checked_add(seconds * SECOND_MICROS))
            .and_then(|micros| micros.checked_add(fraction_micros(fraction)))
            .ok_or(Problem::FieldRange)?;
        let micros = if negative { -micros } else { micros };
        self.micros = self.micros.checked_add(micros).ok_or(Problem::FieldRange)?;
        Ok(())
    }

    fn negate(&mut self) {
        self.months = -self.months;
        self.days = -self.days;
        self.micros = -self.micros;
    }

    fn finish(self) -> Result<IntervalMonthDayNano, Problem> {
        Ok(IntervalMonthDayNano {
            months: i32::try_from(self.months).map_err(|_| Problem::FieldRange)?,
            days: i32::try_from(self.days).map_err(|_| Problem::FieldRange)?,
            nanoseconds: self.micros.checked_mul(1_000).ok_or(Problem::Range)?,
        })
    }
}

/// What one of a unit is.
#[derive(Clone, Copy)]
enum Unit {
    Months(i64),
    Days(i64),
    Micros(i64),
}

/// A unit and its name.
#[derive(Clone, Copy)]
struct Named {
    name: &'static str,
    unit: Unit,
}

/// The units and the words for each.
const UNITS: &[(&str, Unit, &[&str])] = &[
    (
        "microsecond",
        Unit::Micros(1),
        &["microsecond", "microseconds", "us", "usec", "usecs", "useconds"],
    ),
    (
        "millisecond",
        Unit::Micros(1_000),
        &["millisecond", "milliseconds", "ms", "msec", "msecs", "mseconds"],
    ),
    (
        "second",
        Unit::Micros(SECOND_MICROS),
        &["second", "seconds", "s", "sec", "secs"],
    ),
    (
        "minute",
        Unit::Micros(MINUTE_MICROS),
        &["minute", "minutes", "m", "min", "mins"],
    ),
    ("hour", Unit::Micros(HOUR_MICROS), &["hour", "hours", "h", "hr", "hrs"]),
    ("day", Unit::Days(1), &["day", "days", "d"]),
    ("week", Unit::Days(7), &["week", "weeks", "w"]),
    ("month", Unit::Months(1), &["month", "months", "mon", "mons"]),
    ("year", Unit::Months(12), &["year", "years", "y", "yr", "yrs"]),
    ("decade", Unit::Months(120), &["decade", "decades", "dec", "decs"]),
    ("century", Unit::Months(1_200), &["century", "centuries", "c", "cent"]),
    (
        "millennium",
        Unit::Months(12_000),
        &["millennium", "millennia", "mil", "mils"],
    ),
];

fn unit_of(word: &str) -> Option<Named> {
    let (name, unit, _) = *UNITS.iter().find(|(_, _, words)| words.contains(&word))?;
    Some(Named { name, unit })
}

/// Reads `1 year 2 mons 3 days 04:05:06`, `3 days ago`, `1-2`, `1 2:03:04`, `90`.
fn read_verbose(text: &str, sum: &mut Sum) -> Result<(), Problem> {
    let mut rest = text.trim_start_matches('@');
    let mut pending: Option<Number<'_>> = None;
    let mut fields = 0;
    loop {
        rest = rest.trim_start();
        let Some(first) = rest.bytes().next() else {
            break;
        };
        fields += 1;
        if first.is_ascii_alphabetic() {
            let end = rest.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(rest.len());
            let (word, after) = rest.split_at(end);
            rest = after;
            if word == "ago" && pending.is_none() && fields > 1 && rest.trim().is_empty() {
                sum.negate();
                return Ok(());
            }
            let number = pending.take().ok_or(Problem::Syntax)?;
            sum.add_named(number, unit_of(word).ok_or(Problem::Syntax)?)?;
            continue;
        }
        let signs = usize::from(matches!(first, b'+' | b'-'));
        let unsigned = &rest[signs..];
        let length = unsigned
            .find(|c: char| !(c.is_ascii_digit() || matches!(c, '.' | ':' | '-')))
            .unwrap_or(unsigned.len());
        if length == 0 {
            return Err(Problem::Syntax);
        }
        let (token, after) = rest.split_at(signs + length);
        rest = after;
        if token.contains(':') {
            // A bare number before a time is days.
            if let Some(days) = pending.take() {
                sum.give(&["day"])?;
                sum.add(days, Unit::Days(1))?;
            }
            sum.give(&["hour", "minute", "second"])?;
            sum.add_clock(token)?;
        } else if let Some((years, months)) = token[signs..].split_once('-') {
            let negative = first == b'-';
            let years = Number {
                negative,
                ..Number::parse(years)?
            };
            let months = Number {
                negative,
                ..Number::parse(months)?
            };
            if months.whole()?.abs() > 11 {
                return Err(Problem::FieldRange);
            }
            sum.add(years, Unit::Months(12))?;
            sum.add(months, Unit::Months(1))?;
        } else {
            if pending.is_some() {
                return Err(Problem::Syntax);
            }
            pending = Some(Number::parse(token)?);
        }
    }
    if let Some(seconds) = pending {
        sum.give(&["second"])?;
        sum.add(seconds, Unit::Micros(SECOND_MICROS))?;
    }
    if fields == 0 {
        return Err(Problem::Syntax);
    }
    Ok(())
}

/// Reads what follows the `P` of ISO 8601: `1Y2M3DT4H5M6.7S`, `2W`, or `0001-02-03T04:05:06`.
fn read_iso(text: &str, sum: &mut Sum) -> Result<(), Problem> {
    let (date, time) = match text.split_once('T') {
        Some((date, time)) => (date, Some(time)),
        None => (text, None),
    };
    if date.bytes().filter(|byte| *byte == b'-').count() == 2
        && date.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-')
    {
        // A full date.
        for (part, unit) in date.split('-').zip([Unit::Months(12), Unit::Months(1), Unit::Days(1)]) {
            sum.add(Number::parse(part)?, unit)?;
        }
    } else if !date.is_empty() && date.bytes().all(|byte| byte.is_ascii_digit()) {
        // A year alone.
        sum.add(Number::parse(date)?, Unit::Months(12))?;
    } else {
        read_designated(date, sum, |designator| match designator {
            'Y' => Some(Unit::Months(12)),
            'M' => Some(Unit::Months(1)),
            'W' => Some(Unit::Days(7)),
            'D' => Some(Unit::Days(1)),
            _ => None,
        })?;
    }
    match time {
        None | Some("") => Ok(()),
        Some(time) if time.contains(':') => sum.add_clock(time),
        Some(time) => read_designated(time, sum, |designator| match designator {
            'H' => Some(Unit::Micros(HOUR_MICROS)),
            'M' => Some(Unit::Micros(MINUTE_MICROS)),
            'S' => Some(Unit::Micros(SECOND_MICROS)),
            _ => None,
        }),
    }
}

fn read_designated(text: &str, sum: &mut Sum, unit_of: impl Fn(char) -> Option<Unit>) -> Result<(), Problem> {
    let mut rest = text;
    while !rest.is_empty() {
        let end = rest.find(|c: char| c.is_ascii_alphabetic()).ok_or(Problem::Syntax)?;
        let designator = rest[end..].chars().next().ok_or(Problem::Syntax)?;
        let unit = unit_of(designator).ok_or(Problem::Syntax)?;
        sum.add(Number::parse(&rest[..end])?, unit)?;
        rest = &rest[end + 1..];
    }
    Ok(())
}

/// The days of a month where an interval is cut into parts.
/// The days of a month, where a fraction of it is taken.
const MONTH_DAYS: f64 = 30.0;

/// Scales each part; fractions of a month spill into days, of a day into time (PostgreSQL's `interval_mul`).
pub(crate) fn scaled_by(interval: IntervalMonthDayNano, scale: impl Fn(f64) -> f64) -> Result<IntervalMonthDayNano> {
    // Rounded to microseconds, so that 0.1 month is 3 days and not 2 days 23:59:59.999999.
    let tidy = |value: f64| (value * 1e6).round() / 1e6;
    let integer = |value: f64| {
        (value.abs() <= f64::from(i32::MAX))
            .then_some(value as i32)
            .ok_or_else(out_of_range)
    };
    let months = scale(f64::from(interval.months));
    let days = scale(f64::from(interval.days));
    let whole_months = integer(months.trunc())?;
    let month_days = tidy((months - months.trunc()) * MONTH_DAYS);
    let mut seconds = tidy((days - days.trunc() + month_days - month_days.trunc()) * 86_400.0);
    let mut whole_days = integer(days.trunc() + month_days.trunc())?;
    if seconds.abs() >= 86_400.0 {
        whole_days = whole_days
            .checked_add((seconds / 86_400.0) as i32)
            .ok_or_else(out_of_range)?;
        seconds -= (seconds / 86_400.0).trunc() * 86_400.0;
    }
    let micros = scale(interval.nanoseconds as f64 / 1000.0) + seconds * 1e6;
    let micros = micros.round_ties_even();
    if micros.is_nan() || micros.abs() >= i64::MAX as f64 / 1000.0 {
        return Err(out_of_range());
    }
    Ok(IntervalMonthDayNano::new(
        whole_months,
        whole_days,
        micros as i64 * 1000,
    ))
}

fn out_of_range() -> Error {
    Error::semantic("22008", "interval out of range")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_are_read_and_shown_as_postgresql_does() {
        for (text, shows) in [
            ("1 day", "1 day"),
            ("2 days", "2 days"),
            (
                "1 year 2 months 3 days 4 hours 5 minutes 6 seconds",
                "1 year 2 mons 3 days 04:05:06",
            ),
            ("1-2", "1 year 2 mons"),
            ("-1-2 +3 -4:05:06", "-1 years -2 mons +3 days -04:05:06"),
            ("1 2:03:04", "1 day 02:03:04"),
            ("3 days ago", "-3 days"),
            ("@ 1 minute", "00:01:00"),
            ("90", "00:01:30"),
            ("1.5 hours", "01:30:00"),
            ("1.5 days", "1 day 12:00:00"),
            ("1.5 months", "1 mon 15 days"),
            ("1.5 years", "1 year 6 mons"),
            ("1.5 weeks", "10 days 12:00:00"),
            ("-1 days 02:03:04", "-1 days +02:03:04"),
            ("1 mon -1 day", "1 mon -1 days"),
            ("P1Y2M3DT4H5M6S", "1 year 2 mons 3 days 04:05:06"),
            ("P1Y-2M", "10 mons"),
            ("PT-1.5S", "-00:00:01.5"),
            ("P2W", "14 days"),
            ("P0001-02-03T04:05:06", "1 year 2 mons 3 days 04:05:06"),
            ("100 hours", "100:00:00"),
            ("1h", "01:00:00"),
            ("1 millisecond", "00:00:00.001"),
            ("5 us", "00:00:00.000005"),
            ("0", "00:00:00"),
            ("1 decade", "10 years"),
            ("1 century", "100 years"),
            ("12 months", "1 year"),
            ("-1 month", "-1 mons"),
            ("02:03.5", "00:02:03.5"),
            ("  1   day  ", "1 day"),
        ] {
            let interval = read_interval(text).unwrap_or_else(|error| panic!("{text}: {error}"));
            let mut out = BytesMut::new();
            write_interval(interval, &mut out);
            assert_eq!(std::str::from_utf8(&out).unwrap(), shows, "{text}");
        }
    }

    #[test]
    fn wrong_intervals_are_refused() {
        for (text, code) in [
            ("", "22007"),
            ("x", "22007"),
            ("1 fortnight", "22007"),
            ("1 2", "22007"),
            ("day", "22007"),
            ("99999999999 years", "22015"),
            ("1 day 1 day", "22007"),
            ("p1y", "22007"),
            ("1:99", "22015"),
            ("9000000 hours", "22008"),
        ] {
            let error = read_interval(text).unwrap_err();
            assert_eq!(error.code(), code, "{text}: {error}");
        }
    }
}
