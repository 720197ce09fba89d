//! Text read by a format: `to_timestamp`, `to_date`, `to_number`.

use super::super::decimal::build;
use super::super::definition::Call;
use super::{DAYS, MONTHS, Piece, pieces};
use crate::error::{Error, Result};
use crate::types::calendar::{DAY_MICROS, HOUR_MICROS, MINUTE_MICROS, SECOND_MICROS, days_of_civil, month_days};
use crate::types::numeric::{Shape, read_decimal};
use arrow::array::{Array, ArrayRef, AsArray, Date32Array, TimestampMicrosecondArray};
use std::sync::Arc;

/// What a text said in a format.
#[derive(Debug, Clone, Default)]
struct Read {
    year: Option<i64>,
    month: Option<u32>,
    day: Option<u32>,
    day_of_year: Option<i64>,
    hour: i64,
    hour12: bool,
    afternoon: Option<bool>,
    before_christ: bool,
    minute: i64,
    second: i64,
    micros: i64,
    offset: Option<i64>,
    julian: Option<i64>,
}

fn take_number(rest: &mut &str, width: usize) -> Option<(i64, usize)> {
    *rest = rest.trim_start();
    let whole: &str = rest;
    let negative = whole.starts_with('-') && width >= 4;
    let body = if negative { &whole[1..] } else { whole };
    let digits = body.bytes().take(width).take_while(u8::is_ascii_digit).count();
    if digits == 0 {
        return None;
    }
    let value: i64 = body[..digits].parse().ok()?;
    *rest = &body[digits..];
    Some((if negative { -value } else { value }, digits))
}

fn take_name(rest: &mut &str, names: &[&str], short: usize) -> Option<usize> {
    let index = names.iter().position(|name| {
        let wanted = if short > 0 { &name[..short] } else { name };
        rest.get(..wanted.len())
            .is_some_and(|start| start.eq_ignore_ascii_case(wanted))
    })?;
    let length = if short > 0 { short } else { names[index].len() };
    *rest = &rest[length..];
    Some(index)
}

fn read_text(text: &str, format: &str) -> Result<Read> {
    let mut read = Read::default();
    let mut rest = text;
    let all = pieces(format);
    for (index, piece) in all.iter().enumerate() {
        let (keyword, _) = match piece {
            Piece::Literal(literal) => {
                // Separators match any separators, as in PostgreSQL.
                for c in literal.chars() {
                    if c.is_alphanumeric() {
                        if rest.chars().next().is_some() {
                            let mut chars = rest.chars();
                            chars.next();
                            rest = chars.as_str();
                        }
                    } else if let Some(next) = rest.chars().next()
                        && !next.is_alphanumeric()
                        && !(next == '-' || next == '+')
                    {
                        rest = &rest[next.len_utf8()..];
                    } else if let Some(next) = rest.chars().next()
                        && next == c
                    {
                        rest = &rest[next.len_utf8()..];
                    }
                }
                continue;
            }
            Piece::Field { keyword, fill, .. } => (*keyword, *fill),
        };
        // A field that another number follows at once takes its width and no more.
        let bounded = matches!(all.get(index + 1), Some(Piece::Field { .. }));
        read_field(&mut read, keyword, &mut rest, bounded, text)?;
    }
    Ok(read)
}

fn read_field(read: &mut Read, keyword: &str, rest: &mut &str, bounded: bool, text: &str) -> Result<()> {
    let invalid = || {
        Error::semantic(
            "22007",
            format!("invalid value \"{}\" for \"{keyword}\"", rest_word(text)),
        )
        .with_detail("Value must be an integer.")
    };
    let number = |width: usize, rest: &mut &str| {
        let width = if bounded { width } else { 18 };
        take_number(rest, width).ok_or_else(invalid)
    };
    match keyword {
        "YYYY" | "IYYY" => read.year = Some(number(4, rest)?.0),
        "YYY" | "YY" | "Y" | "IYY" | "IY" | "I" => {
            let (year, digits) = number(keyword.trim_start_matches('I').len().max(1), rest)?;
            read.year = Some(if digits >= 4 { year } else { near_2020(year, digits) });
        }
        "MM" => read.month = u32::try_from(number(2, rest)?.0).ok(),
        "DD" => read.day = u32::try_from(number(2, rest)?.0).ok(),
        "DDD" => read.day_of_year = Some(number(3, rest)?.0),
        "HH24" => read.hour = number(2, rest)?.0,
        "HH" | "HH12" => {
            read.hour = number(2, rest)?.0;
            read.hour12 = true;
        }
        "MI" => read.minute = number(2, rest)?.0,
        "SS" => read.second = number(2, rest)?.0,
        "SSSS" | "SSSSS" => {
            let seconds = number(5, rest)?.0;
            (read.hour, read.minute, read.second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
        }
        "MS" | "FF3" => read.micros = fraction(number(3, rest)?, 3),
        "US" | "FF6" => read.micros = fraction(number(6, rest)?, 6),
        "FF1" => read.micros = fraction(number(1, rest)?, 1),
        "FF2" => read.micros = fraction(number(2, rest)?, 2),
        "FF4" => read.micros = fraction(number(4, rest)?, 4),
        "FF5" => read.micros = fraction(number(5, rest)?, 5),
        "J" => read.julian = Some(number(18, rest)?.0),
        "MONTH" | "Month" | "month" => {
            let index = take_name(rest, &MONTHS, 0)
                .or_else(|| take_name(rest, &MONTHS, 3))
                .ok_or_else(invalid)?;
            read.month = Some(index as u32 + 1);
        }
        "MON" | "Mon" | "mon" => {
            read.month = Some(take_name(rest, &MONTHS, 3).ok_or_else(invalid)? as u32 + 1);
        }
        "DAY" | "Day" | "day" => {
            let _ = take_name(rest, &DAYS, 0);
        }
        "DY" | "Dy" | "dy" => {
            let _ = take_name(rest, &DAYS, 3);
        }
        "TZH" => {
            let negative = rest.starts_with('-');
            *rest = rest.trim_start_matches(['+', '-']);
            let hours = number(2, rest)?.0 * 3600;
            read.offset = Some(if negative { -hours } else { hours });
        }
        "TZM" => {
            let minutes = number(2, rest)?.0 * 60;
            read.offset = read
                .offset
                .map(|offset| if offset < 0 { offset - minutes } else { offset + minutes });
        }
        "D" | "ID" | "Q" | "WW" | "IW" | "W" | "CC" | "IDDD" => {
            let _ = number(3, rest)?;
        }
        half => {
            let lower = half.to_lowercase();
            let options: &[(&str, bool)] = match lower.as_str() {
                "am" | "pm" => &[("am", false), ("pm", true)],
                "a.m." | "p.m." => &[("a.m.", false), ("p.m.", true)],
                "ad" | "bc" => &[("ad", false), ("bc", true)],
                "a.d." | "b.c." => &[("a.d.", false), ("b.c.", true)],
                _ => return Ok(()),
            };
            for (option, value) in options {
                if rest
                    .get(..option.len())
                    .is_some_and(|start| start.eq_ignore_ascii_case(option))
                {
                    *rest = &rest[option.len()..];
                    if lower.contains('m') {
                        read.afternoon = Some(*value);
                    } else {
                        read.before_christ = *value;
                    }
                    break;
                }
            }
        }
    }
    Ok(())
}

fn rest_word(text: &str) -> &str {
    text.split_whitespace().next().unwrap_or(text)
}

/// A year of fewer than four digits is the one nearest to 2020.
fn near_2020(year: i64, digits: usize) -> i64 {
    match digits {
        0..=2 if year < 70 => 2000 + year,
        0..=2 => 1900 + year,
        _ if year < 520 => 2000 + year,
        _ => 1000 + year,
    }
}

/// Digits after the point, in microseconds.
fn fraction((value, digits): (i64, usize), _: usize) -> i64 {
    match digits {
        0..=6 => value * 10_i64.pow(6 - digits as u32),
        more => value / 10_i64.pow(more as u32 - 6),
    }
}

impl Read {
    fn days(&self, text: &str) -> Result<i64> {
        let out_of_range = || Error::semantic("22008", format!("date/time field value out of range: \"{text}\""));
        if let Some(julian) = self.julian {
            return Ok(julian - 2_440_588);
        }
        let year = match self.year {
            Some(year) if self.before_christ => 1 - year,
            Some(0) | None => 0,
            Some(year) if year < 0 => year + 1,
            Some(year) => year,
        };
        if let Some(day) = self.day_of_year {
            return Ok(days_of_civil(year, 1, 1) + day - 1);
        }
        let (month, day) = (self.month.unwrap_or(1), self.day.unwrap_or(1));
        if !(1..=12).contains(&month) || !(1..=month_days(year, month)).contains(&day) {
            return Err(out_of_range());
        }
        Ok(days_of_civil(year, month, day))
    }

    fn local(&self, text: &str) -> Result<i64> {
        let mut hour = self.hour;
        if self.hour12 {
            if !(1..=12).contains(&hour) {
                return Err(
                    Error::semantic("22007", format!("hour \"{hour}\" is invalid for the 12-hour clock"))
                        .with_hint("Use the 24-hour clock, or give an hour between 1 and 12."),
                );
            }
            hour %= 12;
        }
        if self.afternoon == Some(true) {
            hour = hour % 12 + 12;
        } else if self.afternoon == Some(false) {
            hour %= 12;
        }
        if !(0..=24).contains(&hour) || !(0..60).contains(&self.minute) || !(0..=60).contains(&self.second) {
            return Err(Error::semantic(
                "22008",
                format!("date/time field value out of range: \"{text}\""),
            ));
        }
        let time = hour * HOUR_MICROS + self.minute * MINUTE_MICROS + self.second * SECOND_MICROS + self.micros;
        Ok(self.days(text)? * DAY_MICROS + time)
    }
}

/// `to_timestamp(text, format)`.
pub(in crate::sql::function) fn read(call: &Call<'_>, instant: impl Fn(i64) -> Result<i64>) -> Result<ArrayRef> {
    let (texts, formats) = (
        call.arguments[0].as_string::<i32>(),
        call.arguments[1].as_string::<i32>(),
    );
    let mut values = Vec::with_capacity(call.rows);
    for (text, format) in texts.iter().zip(formats) {
        let (Some(text), Some(format)) = (text, format) else {
            values.push(None);
            continue;
        };
        let read = read_text(text, format)?;
        let local = read.local(text)?;
        values.push(Some(match read.offset {
            Some(offset) => local - offset * SECOND_MICROS,
            None => instant(local)?,
        }));
    }
    Ok(Arc::new(
        TimestampMicrosecondArray::from(values).with_data_type(call.result.arrow()),
    ))
}

/// `to_date(text, format)`.
pub(in crate::sql::function) fn read_date(call: &Call<'_>) -> Result<ArrayRef> {
    let (texts, formats) = (
        call.arguments[0].as_string::<i32>(),
        call.arguments[1].as_string::<i32>(),
    );
    let mut values = Vec::with_capacity(call.rows);
    for (text, format) in texts.iter().zip(formats) {
        values.push(match (text, format) {
            (Some(text), Some(format)) => Some(read_text(text, format)?.days(text)? as i32),
            _ => None,
        });
    }
    Ok(Arc::new(Date32Array::from(values)))
}

/// `to_number(text, format)`: the digits that the format lets through.
pub(in crate::sql::function) fn read_number(call: &Call<'_>) -> Result<ArrayRef> {
    let (texts, formats) = (
        call.arguments[0].as_string::<i32>(),
        call.arguments[1].as_string::<i32>(),
    );
    let mut values = Vec::with_capacity(call.rows);
    for row in 0..call.rows {
        if texts.is_null(row) || formats.is_null(row) {
            values.push(None);
            continue;
        }
        let text = texts.value(row);
        let negative = text.contains('-') || text.trim_start().starts_with('<');
        let mut digits: String = text.chars().filter(|c| c.is_ascii_digit() || *c == '.').collect();
        if digits.is_empty() {
            return Err(Error::semantic(
                "22P02",
                format!("invalid input syntax for type numeric: \"{text}\""),
            ));
        }
        if negative {
            digits.insert(0, '-');
        }
        let shape = Shape {
            precision: 76,
            scale: 38,
            declared: false,
        };
        values.push(Some(read_decimal(&digits, shape)?));
    }
    build(values, call.result)
}
