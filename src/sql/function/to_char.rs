//! `to_char` and its way back: values written and read by a format such as `YYYY-MM-DD HH24:MI`.

use super::datetime::{Moment, formatted, iso_week, moment_of, weekday};
use super::decimal::{Exacts, build};
use super::definition::Call;
use crate::error::{Error, Result};
use crate::types::Type;
use crate::types::calendar::{DAY_MICROS, HOUR_MICROS, MINUTE_MICROS, SECOND_MICROS, Zone, days_of_civil, month_days};
use crate::types::numeric::{Digits, Shape, read_decimal, write_decimal};
use arrow::array::{Array, ArrayRef, AsArray, Date32Array, TimestampMicrosecondArray};
use arrow::datatypes::{Date32Type, IntervalMonthDayNanoType, TimestampMicrosecondType, i256};
use std::sync::Arc;

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
const DAYS: [&str; 7] = [
    "Sunday",
    "Monday",
    "Tuesday",
    "Wednesday",
    "Thursday",
    "Friday",
    "Saturday",
];
const ROMAN_MONTHS: [&str; 12] = ["I", "II", "III", "IV", "V", "VI", "VII", "VIII", "IX", "X", "XI", "XII"];

/// The keywords of a format, longest first where one begins another.
const KEYWORDS: &[&str] = &[
    "SSSSS", "SSSS", "A.D.", "B.C.", "A.M.", "P.M.", "a.d.", "b.c.", "a.m.", "p.m.", "MONTH", "Month", "month",
    "Y,YYY", "IYYY", "YYYY", "HH24", "HH12", "IDDD", "TZH", "TZM", "FF1", "FF2", "FF3", "FF4", "FF5", "FF6", "IYY",
    "YYY", "DAY", "Day", "day", "DDD", "MON", "Mon", "mon", "HH", "MI", "MM", "MS", "SS", "US", "DD", "DY", "Dy", "dy",
    "IW", "WW", "CC", "IY", "YY", "TZ", "tz", "OF", "AD", "BC", "AM", "PM", "ad", "bc", "am", "pm", "RM", "rm", "ID",
    "I", "J", "Q", "W", "D", "Y",
];

/// A piece of a format.
#[derive(Debug, Clone, PartialEq)]
enum Piece {
    /// A keyword, with what stands around it.
    Field {
        keyword: &'static str,
        fill: bool,
        ordinal: Option<Ordinal>,
    },
    /// Text that stands for itself.
    Literal(String),
}

/// How `st`, `nd`, `rd`, `th` are written.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Ordinal {
    Upper,
    Lower,
}

fn keyword_at(rest: &str) -> Option<&'static str> {
    if let Some(exact) = KEYWORDS.iter().find(|keyword| rest.starts_with(**keyword)) {
        return Some(exact);
    }
    // Keywords of numbers may be in any case.
    let upper: String = rest.chars().take(5).collect::<String>().to_ascii_uppercase();
    KEYWORDS
        .iter()
        .find(|keyword| upper.starts_with(**keyword) && !keyword.contains('.'))
        .copied()
}

fn pieces(format: &str) -> Vec<Piece> {
    let mut pieces = Vec::new();
    let mut rest = format;
    let mut fill = true;
    while let Some(c) = rest.chars().next() {
        if rest.len() >= 2 && rest.is_char_boundary(2) && rest[..2].eq_ignore_ascii_case("fm") {
            fill = false;
            rest = &rest[2..];
            continue;
        }
        if rest.len() >= 2 && rest.is_char_boundary(2) && rest[..2].eq_ignore_ascii_case("fx") {
            rest = &rest[2..];
            continue;
        }
        if rest.len() >= 2 && rest.is_char_boundary(2) && rest[..2].eq_ignore_ascii_case("tm") {
            rest = &rest[2..];
            continue;
        }
        if c == '"' {
            let mut literal = String::new();
            let mut chars = rest[1..].char_indices();
            let mut end = rest.len();
            while let Some((at, c)) = chars.next() {
                match c {
                    '"' => {
                        end = 1 + at + 1;
                        break;
                    }
                    '\\' => literal.extend(chars.next().map(|(_, c)| c)),
                    other => literal.push(other),
                }
            }
            pieces.push(Piece::Literal(literal));
            rest = &rest[end..];
            continue;
        }
        if let Some(keyword) = keyword_at(rest) {
            rest = &rest[keyword.len()..];
            let ordinal = if rest.starts_with("TH") {
                Some(Ordinal::Upper)
            } else if rest.starts_with("th") {
                Some(Ordinal::Lower)
            } else {
                None
            };
            if ordinal.is_some() {
                rest = &rest[2..];
            }
            pieces.push(Piece::Field { keyword, fill, ordinal });
            fill = true;
            continue;
        }
        let width = if c == '\\' {
            rest[1..].chars().next().map_or(1, |next| 1 + next.len_utf8())
        } else {
            c.len_utf8()
        };
        let literal = if c == '\\' && width > 1 {
            &rest[1..width]
        } else {
            &rest[..width]
        };
        match pieces.last_mut() {
            Some(Piece::Literal(text)) => text.push_str(literal),
            _ => pieces.push(Piece::Literal(literal.to_owned())),
        }
        rest = &rest[width..];
    }
    pieces
}

/// A name in the case of its keyword, padded to nine letters.
fn name(full: &str, keyword: &str, width: usize, fill: bool) -> String {
    let short = keyword.len() <= 3 && width == 0;
    let text = if short { &full[..3] } else { full };
    let first_two: Vec<char> = keyword.chars().take(2).collect();
    let text = match first_two.as_slice() {
        [a, b] if a.is_uppercase() && b.is_uppercase() => text.to_uppercase(),
        [a, _] if a.is_uppercase() => text.to_owned(),
        _ => text.to_lowercase(),
    };
    if fill && width > 0 {
        format!("{text:<width$}")
    } else {
        text
    }
}

fn ordinal(number: i64, style: Ordinal) -> &'static str {
    let number = number.abs();
    let index = match (number % 100, number % 10) {
        (11..=13, _) => 3,
        (_, 1) => 0,
        (_, 2) => 1,
        (_, 3) => 2,
        _ => 3,
    };
    match style {
        Ordinal::Upper => ["ST", "ND", "RD", "TH"][index],
        Ordinal::Lower => ["st", "nd", "rd", "th"][index],
    }
}

/// What a format says of a time.
struct Fields {
    moment: Moment,
    zone_name: String,
}

impl Fields {
    fn write(&self, pieces: &[Piece], output: &mut String) {
        for piece in pieces {
            match piece {
                Piece::Literal(text) => output.push_str(text),
                Piece::Field { keyword, fill, ordinal } => self.field(keyword, *fill, *ordinal, output),
            }
        }
    }

    fn field(&self, keyword: &str, fill: bool, style: Option<Ordinal>, output: &mut String) {
        let moment = self.moment;
        let (civil, of_day) = (moment.civil(), moment.of_day());
        let days = moment.local.div_euclid(DAY_MICROS);
        let year = if civil.year > 0 { civil.year } else { 1 - civil.year };
        let hour = of_day / HOUR_MICROS;
        let hour12 = if hour % 12 == 0 { 12 } else { hour % 12 };
        let micros = of_day % SECOND_MICROS;
        let offset = i64::from(moment.offset.unwrap_or(0));
        let month_name = MONTHS[civil.month as usize - 1];
        let day_name = DAYS[weekday(days) as usize];
        let (iso_year, iso_number) = iso_week(days);
        let day_of_year = days - days_of_civil(civil.year, 1, 1) + 1;
        let (number, width) = match keyword {
            "YYYY" => (year, 4),
            "YYY" => (year % 1000, 3),
            "YY" => (year % 100, 2),
            "Y" => (year % 10, 1),
            "IYYY" => (iso_year, 4),
            "IYY" => (iso_year % 1000, 3),
            "IY" => (iso_year % 100, 2),
            "I" => (iso_year % 10, 1),
            "MM" => (i64::from(civil.month), 2),
            "DD" => (i64::from(civil.day), 2),
            "DDD" => (day_of_year, 3),
            "IDDD" => ((iso_number - 1) * 7 + (weekday(days) + 6).rem_euclid(7) + 1, 3),
            "D" => (weekday(days) + 1, 1),
            "ID" => ((weekday(days) + 6).rem_euclid(7) + 1, 1),
            "HH24" => (hour, 2),
            "HH" | "HH12" => (hour12, 2),
            "MI" => (of_day / MINUTE_MICROS % 60, 2),
            "SS" => (of_day / SECOND_MICROS % 60, 2),
            "SSSS" | "SSSSS" => (of_day / SECOND_MICROS, 1),
            "MS" => (micros / 1000, 3),
            "US" => (micros, 6),
            "FF1" => (micros / 100_000, 1),
            "FF2" => (micros / 10_000, 2),
            "FF3" => (micros / 1000, 3),
            "FF4" => (micros / 100, 4),
            "FF5" => (micros / 10, 5),
            "FF6" => (micros, 6),
            "Q" => ((i64::from(civil.month) - 1) / 3 + 1, 1),
            "WW" => ((day_of_year - 1) / 7 + 1, 2),
            "W" => ((i64::from(civil.day) - 1) / 7 + 1, 1),
            "IW" => (iso_number, 2),
            "CC" => (
                if civil.year > 0 {
                    (year + 99) / 100
                } else {
                    -((year + 99) / 100)
                },
                2,
            ),
            "J" => (days + 2_440_588, 1),
            "TZM" => (offset.abs() / 60 % 60, 2),
            "Y,YYY" => {
                output.push_str(&format!("{},{:03}", year / 1000, year % 1000));
                return;
            }
            "MONTH" | "Month" | "month" => return output.push_str(&name(month_name, keyword, 9, fill)),
            "MON" | "Mon" | "mon" => return output.push_str(&name(month_name, keyword, 0, fill)),
            "DAY" | "Day" | "day" => return output.push_str(&name(day_name, keyword, 9, fill)),
            "DY" | "Dy" | "dy" => return output.push_str(&name(day_name, keyword, 0, fill)),
            "RM" | "rm" => {
                let roman = ROMAN_MONTHS[civil.month as usize - 1];
                let roman = if keyword == "rm" {
                    roman.to_lowercase()
                } else {
                    roman.to_owned()
                };
                return output.push_str(&if fill { format!("{roman:<4}") } else { roman });
            }
            "TZH" => {
                output.push_str(&format!(
                    "{}{:02}",
                    if offset < 0 { '-' } else { '+' },
                    offset.abs() / 3600
                ));
                return;
            }
            "OF" => {
                output.push_str(&format!(
                    "{}{:02}",
                    if offset < 0 { '-' } else { '+' },
                    offset.abs() / 3600
                ));
                if offset % 3600 != 0 {
                    output.push_str(&format!(":{:02}", offset.abs() / 60 % 60));
                }
                return;
            }
            "TZ" => return output.push_str(&self.zone_name.to_uppercase()),
            "tz" => return output.push_str(&self.zone_name.to_lowercase()),
            half => return output.push_str(&halves(half, hour >= 12, civil.year <= 0)),
        };
        let text = if fill {
            zero_padded(number, width)
        } else {
            number.to_string()
        };
        output.push_str(&text);
        if let Some(style) = style {
            output.push_str(ordinal(number, style));
        }
    }
}

fn zero_padded(number: i64, width: usize) -> String {
    if number < 0 {
        format!("-{:0width$}", -number)
    } else {
        format!("{number:0width$}")
    }
}

/// AM and PM, AD and BC, in the spelling of the keyword.
fn halves(keyword: &str, afternoon: bool, before_christ: bool) -> String {
    let lower = keyword.to_lowercase();
    let text = match (lower.as_str(), afternoon, before_christ) {
        ("am" | "pm", true, _) => "pm",
        ("am" | "pm", false, _) => "am",
        ("a.m." | "p.m.", true, _) => "p.m.",
        ("a.m." | "p.m.", false, _) => "a.m.",
        ("ad" | "bc", _, true) => "bc",
        ("ad" | "bc", _, false) => "ad",
        (_, _, true) => "b.c.",
        (_, _, false) => "a.d.",
    };
    if keyword.starts_with(char::is_uppercase) {
        text.to_uppercase()
    } else {
        text.to_owned()
    }
}

/// Keeps the pieces of the last format.
struct Formats {
    last: Option<(String, Vec<Piece>)>,
}

impl Formats {
    fn of(&mut self, format: &str) -> &[Piece] {
        if self.last.as_ref().is_none_or(|(known, _)| known != format) {
            self.last = Some((format.to_owned(), pieces(format)));
        }
        self.last.as_ref().map_or(&[], |(_, pieces)| pieces)
    }
}

/// `to_char(timestamp, format)`.
pub(super) fn timestamps(call: &Call<'_>, zone: Option<Zone>) -> Result<ArrayRef> {
    let times = call.arguments[0].as_primitive::<TimestampMicrosecondType>();
    let mut formats = Formats { last: None };
    formatted(call, |row, format, output| {
        let micros = times.value(row);
        if super::cast::is_infinite(micros) {
            return Ok(None);
        }
        let moment = moment_of(micros, &call.types[0], zone.unwrap_or(Zone::UTC));
        let zone_name = zone.map(|zone| zone.abbreviation_at(micros)).unwrap_or_default();
        Fields { moment, zone_name }.write(formats.of(format), output);
        Ok(Some(()))
    })
}

/// `to_char(date, format)`.
pub(super) fn dates(call: &Call<'_>) -> Result<ArrayRef> {
    let days = call.arguments[0].as_primitive::<Date32Type>();
    let mut formats = Formats { last: None };
    formatted(call, |row, format, output| {
        let day = days.value(row);
        if day == i32::MAX || day == i32::MIN {
            return Ok(None);
        }
        let moment = Moment {
            local: i64::from(day) * DAY_MICROS,
            offset: None,
        };
        Fields {
            moment,
            zone_name: String::new(),
        }
        .write(formats.of(format), output);
        Ok(Some(()))
    })
}

/// `to_char(interval, format)`: hours and years are not bounded.
pub(super) fn intervals(call: &Call<'_>) -> Result<ArrayRef> {
    let values = call.arguments[0].as_primitive::<IntervalMonthDayNanoType>();
    let mut formats = Formats { last: None };
    formatted(call, |row, format, output| {
        let value = values.value(row);
        let micros = value.nanoseconds / 1000;
        for piece in formats.of(format) {
            let Piece::Field { keyword, fill, .. } = piece else {
                if let Piece::Literal(text) = piece {
                    output.push_str(text);
                }
                continue;
            };
            let (number, width) = match *keyword {
                "YYYY" => (i64::from(value.months / 12), 4),
                "YY" => (i64::from(value.months / 12), 2),
                "MM" => (i64::from(value.months % 12), 2),
                "DD" => (i64::from(value.days), 2),
                "HH24" => (micros / HOUR_MICROS, 2),
                "HH" | "HH12" => {
                    let hour = micros / HOUR_MICROS % 12;
                    (if hour == 0 { 12 } else { hour }, 2)
                }
                "MI" => (micros / MINUTE_MICROS % 60, 2),
                "SS" => (micros / SECOND_MICROS % 60, 2),
                "MS" => (micros % SECOND_MICROS / 1000, 3),
                "US" => (micros % SECOND_MICROS, 6),
                other => {
                    return Err(
                        Error::semantic("22007", "invalid format specification for an interval value")
                            .with_hint(format!("Intervals are not tied to specific calendar dates: {other}.")),
                    );
                }
            };
            output.push_str(&if *fill {
                zero_padded(number, width)
            } else {
                number.to_string()
            });
        }
        Ok(Some(()))
    })
}

/// A format of numbers, taken apart.
#[derive(Debug, Default, Clone)]
struct NumberFormat {
    /// The pieces before the point, each a digit or what stands between.
    before: Vec<char>,
    after: Vec<char>,
    has_point: bool,
    fill: bool,
    sign: Sign,
    prefix_currency: bool,
    exponent: bool,
    ordinal: Option<Ordinal>,
    shift: usize,
}

/// How a number's sign is written.
#[derive(Debug, Default, Clone, Copy, PartialEq)]
enum Sign {
    /// `-` or a blank before the number.
    #[default]
    Plain,
    /// `S` in front.
    Front,
    /// `S` behind.
    Behind,
    /// `MI`: a minus behind, or a blank.
    MinusBehind,
    /// `MI` in front.
    MinusFront,
    /// `PL`: a plus in front.
    Plus,
    /// `PR`: angle brackets.
    Brackets,
}

fn number_format(format: &str) -> Result<NumberFormat> {
    let mut parsed = NumberFormat {
        fill: true,
        ..Default::default()
    };
    let mut rest = format;
    let mut in_shift = false;
    while let Some(c) = rest.chars().next() {
        let upper: String = rest.chars().take(4).collect::<String>().to_ascii_uppercase();
        let digits_yet = !parsed.before.is_empty() || parsed.has_point;
        let length = if upper.starts_with("EEEE") {
            parsed.exponent = true;
            4
        } else if upper.starts_with("FM") {
            parsed.fill = false;
            2
        } else if upper.starts_with("MI") {
            parsed.sign = if digits_yet {
                Sign::MinusBehind
            } else {
                Sign::MinusFront
            };
            2
        } else if upper.starts_with("PL") {
            parsed.sign = Sign::Plus;
            2
        } else if upper.starts_with("SG") {
            parsed.sign = if digits_yet { Sign::Behind } else { Sign::Front };
            2
        } else if upper.starts_with("PR") {
            parsed.sign = Sign::Brackets;
            2
        } else if upper.starts_with("TH") {
            parsed.ordinal = Some(if rest.starts_with("th") {
                Ordinal::Lower
            } else {
                Ordinal::Upper
            });
            2
        } else if upper.starts_with("RN") {
            return Err(Error::unsupported("Roman numerals in to_char are not supported"));
        } else {
            match c {
                '9' | '0' if in_shift => parsed.shift += 1,
                '9' | '0' if parsed.has_point => parsed.after.push(c),
                '9' | '0' | ',' => parsed.before.push(c),
                'G' | 'g' => parsed.before.push(','),
                '.' | 'D' | 'd' => parsed.has_point = true,
                'V' | 'v' => in_shift = true,
                'S' | 's' => parsed.sign = if digits_yet { Sign::Behind } else { Sign::Front },
                'L' | 'l' => parsed.prefix_currency = true,
                '$' => parsed.prefix_currency = true,
                '"' => {
                    let end = rest[1..].find('"').map_or(rest.len(), |at| at + 2);
                    rest = &rest[end..];
                    continue;
                }
                other if parsed.has_point => parsed.after.push(other),
                other => parsed.before.push(other),
            }
            c.len_utf8()
        };
        rest = &rest[length..];
    }
    Ok(parsed)
}

/// A number's digits before and after the point, rounded to so many.
fn digits_of(value: i256, scale: i8, after: usize) -> (bool, String, String) {
    let to = after.min(76) as i8;
    let rounded = super::decimal::rescale(value, scale, to).unwrap_or(value);
    let mut text = bytes::BytesMut::new();
    write_decimal(rounded.wrapping_abs(), to, Digits::Fixed(to), &mut text);
    let text = String::from_utf8_lossy(&text).into_owned();
    let (before, after) = text.split_once('.').unwrap_or((&text, ""));
    (rounded.is_negative(), before.to_owned(), after.to_owned())
}

fn write_number(format: &NumberFormat, value: i256, scale: i8, output: &mut String) {
    if format.exponent {
        let float = super::decimal::nearest_float(value, scale);
        let text = format!("{float:.*e}", format.after.len());
        let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
        let exponent: i32 = exponent.parse().unwrap_or(0);
        let blank = if format.fill && !mantissa.starts_with('-') {
            " "
        } else {
            ""
        };
        let sign = if exponent < 0 { '-' } else { '+' };
        output.push_str(&format!("{blank}{mantissa}e{sign}{:02}", exponent.abs()));
        return;
    }
    let shifted = super::decimal::power_of_ten(format.shift as i32)
        .and_then(|power| value.checked_mul(power))
        .unwrap_or(value);
    let places = format.after.iter().filter(|c| matches!(c, '9' | '0')).count();
    let (negative, before, after) = digits_of(shifted, scale, places);
    let slots = format.before.iter().filter(|c| matches!(c, '9' | '0')).count() + format.shift;
    let zero_from = format
        .before
        .iter()
        .filter(|c| matches!(c, '9' | '0'))
        .position(|c| *c == '0');
    let before = if before == "0" { String::new() } else { before };
    let too_long = before.len() > slots;
    let digits: Vec<char> = before.chars().collect();
    let mut body = String::new();
    let mut slot = 0;
    let lead = slots.saturating_sub(digits.len());
    let mut began = false;
    let template: Vec<char> = format
        .before
        .iter()
        .copied()
        .chain(std::iter::repeat_n('9', format.shift))
        .collect();
    let has_fraction_digit = places > 0;
    for c in &template {
        match c {
            '9' | '0' => {
                if too_long {
                    body.push('#');
                    began = true;
                } else if slot >= lead {
                    body.push(digits[slot - lead]);
                    began = true;
                } else if zero_from.is_some_and(|from| slot >= from) {
                    body.push('0');
                    began = true;
                } else if slot + 1 == slots && digits.is_empty() && !has_fraction_digit {
                    // A lone zero is shown.
                    body.push('0');
                    began = true;
                } else if format.fill {
                    body.push(' ');
                }
                slot += 1;
            }
            ',' => {
                if began {
                    body.push(',');
                } else if format.fill {
                    body.push(' ');
                }
            }
            other => body.push(*other),
        }
    }
    if format.has_point {
        body.push('.');
        let mut fraction = after.chars();
        let mut written = String::new();
        for c in &format.after {
            match c {
                '9' | '0' => written.push(if too_long { '#' } else { fraction.next().unwrap_or('0') }),
                other => written.push(*other),
            }
        }
        if !format.fill {
            // FM drops zeros at the end, down to the last 0 of the format.
            let keep = format.after.iter().rposition(|c| *c == '0').map_or(0, |at| at + 1);
            while written.len() > keep && written.ends_with('0') {
                written.pop();
            }
        }
        body.push_str(&written);
    }
    finish_number(format, negative, body, output);
}

/// The sign, currency and ordinal around the digits.
fn finish_number(format: &NumberFormat, negative: bool, body: String, output: &mut String) {
    let blanks = body.len() - body.trim_start_matches(' ').len();
    let (pad, digits) = body.split_at(blanks);
    let currency = if format.prefix_currency { "$" } else { "" };
    let fill = format.fill;
    let text = match format.sign {
        Sign::Plain => {
            let sign = if negative {
                "-"
            } else if fill {
                " "
            } else {
                ""
            };
            format!("{pad}{sign}{currency}{digits}")
        }
        Sign::Front => format!("{pad}{}{currency}{digits}", if negative { '-' } else { '+' }),
        Sign::Behind => format!("{pad}{currency}{digits}{}", if negative { '-' } else { '+' }),
        Sign::MinusBehind => {
            let sign = if negative {
                "-"
            } else if fill {
                " "
            } else {
                ""
            };
            format!("{pad}{currency}{digits}{sign}")
        }
        Sign::MinusFront => {
            let sign = if negative {
                "-"
            } else if fill {
                " "
            } else {
                ""
            };
            format!("{sign}{pad}{currency}{digits}")
        }
        Sign::Plus => format!("{pad}{}{currency}{digits}", if negative { "-" } else { "+" }),
        Sign::Brackets => {
            if negative {
                format!("{pad}<{currency}{digits}>")
            } else if fill {
                format!("{pad} {currency}{digits} ")
            } else {
                format!("{pad}{currency}{digits}")
            }
        }
    };
    output.push_str(&text);
    if let Some(style) = format.ordinal
        && let Ok(number) = digits.replace(',', "").parse::<i64>()
    {
        output.push_str(ordinal(number, style));
    }
}

/// `to_char(numeric, format)`.
pub(super) fn numbers(call: &Call<'_>) -> Result<ArrayRef> {
    let (values, scale) = Exacts::of(&call.arguments[0])?;
    formatted(call, |row, format, output| {
        write_number(&number_format(format)?, values.value(row), scale, output);
        Ok(Some(()))
    })
}

/// `to_char(double precision, format)`.
pub(super) fn floats(call: &Call<'_>) -> Result<ArrayRef> {
    let exact = super::decimal::convert(&call.arguments[0], &Type::Float8, &Type::Numeric(None))?;
    let (values, scale) = Exacts::of(&exact)?;
    formatted(call, |row, format, output| {
        write_number(&number_format(format)?, values.value(row), scale, output);
        Ok(Some(()))
    })
}

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
pub(super) fn read(call: &Call<'_>, instant: impl Fn(i64) -> Result<i64>) -> Result<ArrayRef> {
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
pub(super) fn read_date(call: &Call<'_>) -> Result<ArrayRef> {
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
pub(super) fn read_number(call: &Call<'_>) -> Result<ArrayRef> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_are_taken_apart() {
        assert_eq!(pieces("YYYY-MM").len(), 3);
        assert_eq!(pieces("HH24:MI:SS.US").len(), 7);
        assert_eq!(pieces("\"at\" FMDDth").len(), 3);
    }
}
