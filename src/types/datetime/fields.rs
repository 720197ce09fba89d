//! The fields of a date or time as people write it, and what they mean together.
//!
//! A text is cut into dates, times, offsets, numbers and words; each is given its meaning by itself and by what came
//! before it, as in PostgreSQL's `ParseDateTime` and `DecodeDateTime`.

use super::fraction_micros;
use crate::error::{Error, Result};
use crate::types::calendar::{
    DAY_MICROS, HOUR_MICROS, MINUTE_MICROS, SECOND_MICROS, Zone, days_of_civil, month_days, parse_offset,
};
use crate::types::settings::{DateOrder, Settings};

pub(super) fn invalid(text: &str, kind: &str) -> Error {
    Error::semantic("22007", format!("invalid input syntax for type {kind}: \"{text}\""))
}

fn field_out_of_range(text: &str) -> Error {
    Error::semantic("22008", format!("date/time field value out of range: \"{text}\""))
}

fn month_or_day_out_of_range(text: &str) -> Error {
    field_out_of_range(text).with_hint("Perhaps you need a different \"datestyle\" setting.")
}

/// A text that names an instant instead of spelling it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Special {
    /// `infinity`
    Infinity,
    /// `-infinity`
    MinusInfinity,
    /// `now`
    Now,
    /// `epoch`
    Epoch,
}

/// What the fields of a text say.
#[derive(Debug, Default)]
pub(super) struct Fields {
    /// The instant it names.
    pub(super) special: Option<Special>,
    date: Option<DateParts>,
    month: Option<u32>,
    numbers: Vec<(i64, usize)>,
    days: Option<i64>,
    /// Microseconds since midnight.
    pub(super) time: Option<i64>,
    afternoon: Option<Half>,
    /// The zone it names.
    pub(super) zone: Option<Zone>,
    before_christ: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Half {
    Morning,
    Afternoon,
}

#[derive(Debug, Clone, Copy)]
struct DateParts {
    year: i64,
    /// Digits in which the year was written; one or two mean the current century's neighbourhood.
    year_digits: usize,
    month: u32,
    day: u32,
}

/// What stands after a `t` or a `j`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Expecting {
    Anything,
    Time,
    JulianDay,
}

impl Fields {
    /// Reads a text that is to be of a type.
    pub(super) fn read(text: &str, kind: &str, settings: &Settings) -> Result<Self> {
        let lower = text.to_ascii_lowercase();
        let mut fields = Self::default();
        let mut expecting = Expecting::Anything;
        let mut rest = lower.as_str();
        while let Some((token, after)) = next_token(rest).map_err(|()| invalid(text, kind))? {
            rest = after;
            let expected = std::mem::replace(&mut expecting, Expecting::Anything);
            match token {
                Token::Date(date) => {
                    if fields.date.is_some() || fields.days.is_some() {
                        return Err(invalid(text, kind));
                    }
                    fields.read_date(date, text, kind, settings)?;
                }
                Token::Time(time) => {
                    let micros = clock(time, text, kind)?;
                    if fields.time.replace(micros).is_some() {
                        return Err(invalid(text, kind));
                    }
                }
                Token::Offset(offset) => {
                    let seconds = parse_offset(offset).ok_or_else(|| {
                        if offset[1..].bytes().all(|b| b.is_ascii_digit() || b == b':') {
                            Error::semantic("22009", format!("time zone displacement out of range: \"{text}\""))
                        } else {
                            invalid(text, kind)
                        }
                    })?;
                    fields.zone = Some(Zone::Fixed(seconds));
                }
                Token::Number(number) => fields.read_number(number, expected, text, kind)?,
                Token::Word(word) => expecting = fields.read_word(word, text, kind, settings)?,
            }
        }
        fields.finish(text, kind, settings)?;
        Ok(fields)
    }

    fn read_date(&mut self, date: &str, text: &str, kind: &str, settings: &Settings) -> Result<()> {
        let parts: Vec<&str> = date.split(['-', '/', '.']).collect();
        if let [year, day] = parts.as_slice()
            && year.len() >= 4
            && day.len() == 3
        {
            let year: i64 = year.parse().map_err(|_| invalid(text, kind))?;
            let day: i64 = day.parse().map_err(|_| invalid(text, kind))?;
            self.days = Some(days_of_civil(year, 1, 1) + day - 1);
            return Ok(());
        }
        let [first, second, third] = parts.as_slice() else {
            return Err(invalid(text, kind));
        };
        let (year, month, day) = match [month_of(first), month_of(second)] {
            [Some(month), _] => (*third, month, *second),
            [_, Some(month)] if first.len() > 2 => (*first, month, *third),
            [_, Some(month)] => (*third, month, *first),
            _ => {
                let (year, month, day) = if first.len() > 2 {
                    (first, second, third)
                } else {
                    match settings.date_order {
                        DateOrder::Mdy => (third, first, second),
                        DateOrder::Dmy => (third, second, first),
                        DateOrder::Ymd => (first, second, third),
                    }
                };
                let month = month.parse().map_err(|_| invalid(text, kind))?;
                (*year, month, *day)
            }
        };
        let number = |part: &str| {
            let digits = !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
            digits
                .then(|| part.parse::<i64>().ok())
                .flatten()
                .ok_or_else(|| invalid(text, kind))
        };
        self.date = Some(DateParts {
            year: number(year)?,
            year_digits: year.len(),
            month,
            day: u32::try_from(number(day)?).map_err(|_| month_or_day_out_of_range(text))?,
        });
        Ok(())
    }

    fn read_number(&mut self, number: &str, expected: Expecting, text: &str, kind: &str) -> Result<()> {
        let (digits, fraction) = number.split_once('.').unwrap_or((number, ""));
        let value: i64 = digits.parse().map_err(|_| field_out_of_range(text))?;
        let has_date = self.date.is_some() || self.days.is_some();
        if expected == Expecting::JulianDay {
            self.days = Some(value - 2_440_588);
        } else if expected == Expecting::Time || ((has_date || kind == "time") && self.time.is_none()) {
            let spelled = match digits.len() {
                6 => format!("{}:{}:{}", &digits[..2], &digits[2..4], &digits[4..]),
                4 => format!("{}:{}", &digits[..2], &digits[2..]),
                _ => return Err(invalid(text, kind)),
            };
            let point = if fraction.is_empty() { "" } else { "." };
            self.time = Some(clock(&format!("{spelled}{point}{fraction}"), text, kind)?);
        } else if digits.len() == 4 && fraction.len() == 3 {
            // A year and its day: `2024.366`.
            let day: i64 = fraction.parse().map_err(|_| invalid(text, kind))?;
            self.days = Some(days_of_civil(value, 1, 1) + day - 1);
        } else if !fraction.is_empty() {
            return Err(invalid(text, kind));
        } else if digits.len() >= 8 && self.month.is_none() {
            let (year, rest) = digits.split_at(digits.len() - 4);
            self.date = Some(DateParts {
                year: year.parse().map_err(|_| invalid(text, kind))?,
                year_digits: year.len(),
                month: rest[..2].parse().map_err(|_| invalid(text, kind))?,
                day: rest[2..].parse().map_err(|_| invalid(text, kind))?,
            });
        } else if digits.len() == 6 && self.month.is_none() {
            self.date = Some(DateParts {
                year: value / 10_000,
                year_digits: 2,
                month: (value / 100 % 100) as u32,
                day: (value % 100) as u32,
            });
        } else {
            self.numbers.push((value, digits.len()));
        }
        Ok(())
    }

    fn read_word(&mut self, word: &str, text: &str, kind: &str, settings: &Settings) -> Result<Expecting> {
        let local_now = || settings.time_zone.local_of_instant(settings.now_micros);
        let midnight = |fields: &mut Self, shift: i64| {
            fields.days = Some(local_now().div_euclid(DAY_MICROS) + shift);
        };
        match word {
            "t" => return Ok(Expecting::Time),
            "j" | "jd" | "julian" => return Ok(Expecting::JulianDay),
            "infinity" | "+infinity" => self.special = Some(Special::Infinity),
            "-infinity" => self.special = Some(Special::MinusInfinity),
            "now" => self.special = Some(Special::Now),
            "epoch" => self.special = Some(Special::Epoch),
            "today" => midnight(self, 0),
            "tomorrow" => midnight(self, 1),
            "yesterday" => midnight(self, -1),
            "allballs" => {
                self.time = Some(0);
                self.zone = Some(Zone::UTC);
            }
            "am" => self.afternoon = Some(Half::Morning),
            "pm" => self.afternoon = Some(Half::Afternoon),
            "bc" => self.before_christ = true,
            "ad" | "at" | "on" => {}
            _ => {
                if let Some(month) = month_of(word) {
                    if self.month.replace(month).is_some() {
                        return Err(invalid(text, kind));
                    }
                } else if WEEKDAYS.iter().any(|day| abbreviates(word, day)) {
                    // The day of the week is never checked.
                } else if let Some(zone) = Zone::find(word) {
                    self.zone = Some(zone);
                } else if word.contains(['/', '_', '+', '-']) {
                    self.zone = Some(
                        Zone::parse(word)
                            .map_err(|_| Error::semantic("22023", format!("time zone \"{word}\" not recognized")))?,
                    );
                } else {
                    return Err(invalid(text, kind));
                }
            }
        }
        Ok(Expecting::Anything)
    }

    /// Puts together a date of separate words, applies `pm`, and refuses what is left over.
    fn finish(&mut self, text: &str, kind: &str, settings: &Settings) -> Result<()> {
        if let Some(month) = self.month {
            let (day, year) = match self.numbers.as_slice() {
                [first, second] if first.1 > 2 => (*second, *first),
                [first, second] => match settings.date_order {
                    DateOrder::Ymd if second.1 <= 2 => (*second, *first),
                    _ => (*first, *second),
                },
                _ => return Err(invalid(text, kind)),
            };
            self.date = Some(DateParts {
                year: year.0,
                year_digits: year.1,
                month,
                day: u32::try_from(day.0).map_err(|_| month_or_day_out_of_range(text))?,
            });
        } else if !self.numbers.is_empty() {
            return Err(invalid(text, kind));
        }
        match (self.afternoon, &mut self.time) {
            (None, _) => {}
            (Some(_), None) => return Err(invalid(text, kind)),
            (Some(half), Some(time)) => {
                if *time >= 13 * HOUR_MICROS {
                    return Err(field_out_of_range(text));
                }
                let noon = 12 * HOUR_MICROS;
                match half {
                    Half::Morning if *time >= noon => *time -= noon,
                    Half::Afternoon if *time < noon => *time += noon,
                    _ => {}
                }
            }
        }
        let nothing = self.special.is_none() && self.date.is_none() && self.days.is_none();
        if nothing && (self.time.is_none() || kind != "time") {
            return Err(invalid(text, kind));
        }
        Ok(())
    }

    /// The days from 1970-01-01 to its date.
    pub(super) fn days(&self, text: &str, kind: &str) -> Result<i64> {
        if let Some(days) = self.days {
            return Ok(days);
        }
        let date = self.date.ok_or_else(|| invalid(text, kind))?;
        let year = match (self.before_christ, date.year_digits) {
            (_, _) if date.year == 0 && date.year_digits > 2 => {
                return Err(field_out_of_range(text));
            }
            (true, _) => 1 - date.year,
            (false, 0..=2) if date.year < 70 => date.year + 2000,
            (false, 0..=2) => date.year + 1900,
            (false, _) => date.year,
        };
        if !(1..=12).contains(&date.month) || !(1..=31).contains(&date.day) {
            return Err(month_or_day_out_of_range(text));
        }
        if date.day > month_days(year, date.month) {
            return Err(field_out_of_range(text));
        }
        if year.abs() > 10_000_000 {
            return Err(Error::semantic("22008", format!("{kind} out of range: \"{text}\"")));
        }
        Ok(days_of_civil(year, date.month, date.day))
    }

    /// The clock's reading as microseconds; `None` when it is beyond what 64 bits hold.
    pub(super) fn local(&self, text: &str, kind: &str) -> Result<Option<i64>> {
        let days = self.days(text, kind)?;
        Ok(days
            .checked_mul(DAY_MICROS)
            .and_then(|micros| micros.checked_add(self.time.unwrap_or(0))))
    }
}

#[derive(Debug)]
enum Token<'a> {
    Date(&'a str),
    Time(&'a str),
    Offset(&'a str),
    Number(&'a str),
    Word(&'a str),
}

/// The next field of a text in lower case, and what follows it.
fn next_token<'a>(text: &'a str) -> Result<Option<(Token<'a>, &'a str)>, ()> {
    let text = text.trim_start_matches(|c: char| c.is_ascii_whitespace() || c == ',');
    let bytes = text.as_bytes();
    let Some(first) = bytes.first() else {
        return Ok(None);
    };
    let run =
        |from: usize, accept: fn(u8) -> bool| from + bytes[from..].iter().take_while(|byte| accept(**byte)).count();
    let digit = |byte: u8| byte.is_ascii_digit();
    let at = |index: usize| bytes.get(index).copied().unwrap_or(0);
    let (token, end): (fn(&'a str) -> Token<'a>, usize) = match first {
        b'0'..=b'9' => {
            let end = run(0, digit);
            match at(end) {
                b':' => {
                    let mut end = run(end, |byte| byte.is_ascii_digit() || byte == b':');
                    if at(end) == b'.' {
                        end = run(end + 1, digit);
                    }
                    (Token::Time, end)
                }
                delimiter @ (b'-' | b'/' | b'.') => {
                    let second = run(end + 1, |byte| byte.is_ascii_alphanumeric());
                    if at(second) == delimiter {
                        (Token::Date, run(second + 1, digit))
                    } else if delimiter == b'.' {
                        (Token::Number, run(end + 1, digit))
                    } else if second == end + 4 && end >= 4 && delimiter == b'-' {
                        (Token::Date, second)
                    } else {
                        (Token::Number, end)
                    }
                }
                _ => (Token::Number, end),
            }
        }
        b'+' | b'-' => {
            if at(1).is_ascii_alphabetic() {
                (Token::Word, run(1, |byte| byte.is_ascii_alphabetic()))
            } else {
                let end = run(1, |byte| byte.is_ascii_digit() || byte == b':');
                (Token::Offset, end)
            }
        }
        byte if byte.is_ascii_alphabetic() => {
            let end = run(0, |byte| byte.is_ascii_alphabetic());
            let follows = at(end + 1);
            match at(end) {
                b'-' | b'/' if follows.is_ascii_digit() && month_of(&text[..end]).is_some() => {
                    let end = run(end, |byte| byte.is_ascii_digit() || matches!(byte, b'-' | b'/'));
                    (Token::Date, end)
                }
                b'/' | b'_' => (Token::Word, run(end, of_zone_name)),
                // `EST5EDT`, unlike `t101010`, `j2451187` or `jan08`.
                b'0'..=b'9' if end >= 3 && month_of(&text[..end]).is_none() => {
                    (Token::Word, run(end, |byte| byte.is_ascii_alphanumeric()))
                }
                b'+' | b'-' if end >= 3 && follows.is_ascii_digit() => (Token::Word, run(end, of_zone_name)),
                _ => (Token::Word, end),
            }
        }
        _ => return Err(()),
    };
    Ok(Some((token(&text[..end]), &text[end..])))
}

fn of_zone_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'/' | b'_' | b'-' | b'+')
}

/// Reads `HH:MM[:SS[.fraction]]` as microseconds since midnight, rounded to a microsecond.
fn clock(time: &str, text: &str, kind: &str) -> Result<i64> {
    let (whole, fraction) = time.split_once('.').unwrap_or((time, ""));
    let mut parts = [0_i64; 3];
    for (index, part) in whole.split(':').enumerate() {
        if index == parts.len() || part.is_empty() {
            return Err(invalid(text, kind));
        }
        parts[index] = part.parse().map_err(|_| field_out_of_range(text))?;
    }
    let [hours, minutes, seconds] = parts;
    let micros = fraction_micros(fraction);
    let total = hours.saturating_mul(HOUR_MICROS).saturating_add(
        minutes
            .saturating_mul(MINUTE_MICROS)
            .saturating_add(seconds.saturating_mul(SECOND_MICROS).saturating_add(micros)),
    );
    if minutes > 59 || seconds > 60 || total > DAY_MICROS || hours > 24 {
        return Err(field_out_of_range(text));
    }
    Ok(total)
}

const MONTHS: [&str; 12] = [
    "january",
    "february",
    "march",
    "april",
    "may",
    "june",
    "july",
    "august",
    "september",
    "october",
    "november",
    "december",
];

const WEEKDAYS: [&str; 7] = [
    "sunday",
    "monday",
    "tuesday",
    "wednesday",
    "thursday",
    "friday",
    "saturday",
];

fn month_of(word: &str) -> Option<u32> {
    if word == "sept" {
        return Some(9);
    }
    let index = MONTHS.iter().position(|month| abbreviates(word, month))?;
    Some(index as u32 + 1)
}

/// Whether a word is a name or its first three letters.
fn abbreviates(word: &str, name: &str) -> bool {
    word == name || word == &name[..3]
}
