//! Times, dates and intervals as text in a format.

use super::super::datetime::{Moment, formatted, iso_week, moment_of, weekday};
use super::super::definition::Call;
use super::{DAYS, MONTHS, Ordinal, Piece, ROMAN_MONTHS, ordinal, pieces};
use crate::error::{Error, Result};
use crate::types::calendar::{DAY_MICROS, HOUR_MICROS, MINUTE_MICROS, SECOND_MICROS, Zone, days_of_civil};
use arrow::array::{ArrayRef, AsArray};
use arrow::datatypes::{Date32Type, IntervalMonthDayNanoType, TimestampMicrosecondType};

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
        let Some((number, width)) = self.day_number(keyword).or_else(|| self.clock_number(keyword)) else {
            return self.word(keyword, fill, output);
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

    /// The days since the epoch.
    fn days(&self) -> i64 {
        self.moment.local.div_euclid(DAY_MICROS)
    }

    /// The year as it is counted, before Christ and after.
    fn year(&self) -> i64 {
        let year = self.moment.civil().year;
        if year > 0 { year } else { 1 - year }
    }

    /// A number of the calendar and its width.
    fn day_number(&self, keyword: &str) -> Option<(i64, usize)> {
        let civil = self.moment.civil();
        let days = self.days();
        let year = self.year();
        let (iso_year, iso_number) = iso_week(days);
        let day_of_year = days - days_of_civil(civil.year, 1, 1) + 1;
        let iso_day = (weekday(days) + 6).rem_euclid(7) + 1;
        Some(match keyword {
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
            "IDDD" => ((iso_number - 1) * 7 + iso_day, 3),
            "D" => (weekday(days) + 1, 1),
            "ID" => (iso_day, 1),
            "Q" => ((i64::from(civil.month) - 1) / 3 + 1, 1),
            "WW" => ((day_of_year - 1) / 7 + 1, 2),
            "W" => ((i64::from(civil.day) - 1) / 7 + 1, 1),
            "IW" => (iso_number, 2),
            "CC" if civil.year > 0 => ((year + 99) / 100, 2),
            "CC" => (-((year + 99) / 100), 2),
            "J" => (days + 2_440_588, 1),
            _ => return None,
        })
    }

    /// A number of the clock and its width.
    fn clock_number(&self, keyword: &str) -> Option<(i64, usize)> {
        let of_day = self.moment.of_day();
        let hour = of_day / HOUR_MICROS;
        let micros = of_day % SECOND_MICROS;
        Some(match keyword {
            "HH24" => (hour, 2),
            "HH" | "HH12" => (if hour % 12 == 0 { 12 } else { hour % 12 }, 2),
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
            "TZM" => (self.offset().abs() / 60 % 60, 2),
            _ => return None,
        })
    }

    /// Seconds east of Greenwich.
    fn offset(&self) -> i64 {
        i64::from(self.moment.offset.unwrap_or(0))
    }

    /// What is not a plain number.
    fn word(&self, keyword: &str, fill: bool, output: &mut String) {
        let civil = self.moment.civil();
        let month_name = MONTHS[civil.month as usize - 1];
        let day_name = DAYS[weekday(self.days()) as usize];
        let offset = self.offset();
        let sign = if offset < 0 { '-' } else { '+' };
        output.push_str(&match keyword {
            "Y,YYY" => format!("{},{:03}", self.year() / 1000, self.year() % 1000),
            "MONTH" | "Month" | "month" => name(month_name, keyword, 9, fill),
            "MON" | "Mon" | "mon" => name(month_name, keyword, 0, fill),
            "DAY" | "Day" | "day" => name(day_name, keyword, 9, fill),
            "DY" | "Dy" | "dy" => name(day_name, keyword, 0, fill),
            "RM" | "rm" => {
                let roman = ROMAN_MONTHS[civil.month as usize - 1];
                let roman = if keyword == "rm" {
                    roman.to_lowercase()
                } else {
                    roman.to_owned()
                };
                if fill { format!("{roman:<4}") } else { roman }
            }
            "TZH" => format!("{sign}{:02}", offset.abs() / 3600),
            "OF" if offset % 3600 == 0 => format!("{sign}{:02}", offset.abs() / 3600),
            "OF" => format!("{sign}{:02}:{:02}", offset.abs() / 3600, offset.abs() / 60 % 60),
            "TZ" => self.zone_name.to_uppercase(),
            "tz" => self.zone_name.to_lowercase(),
            half => {
                let afternoon = self.moment.of_day() >= 12 * HOUR_MICROS;
                halves(half, afternoon, civil.year <= 0)
            }
        });
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
pub(in crate::sql::function) fn timestamps(call: &Call<'_>, zone: Option<Zone>) -> Result<ArrayRef> {
    let times = call.arguments[0].as_primitive::<TimestampMicrosecondType>();
    let mut formats = Formats { last: None };
    formatted(call, |row, format, output| {
        let micros = times.value(row);
        if crate::sql::function::cast::is_infinite(micros) {
            return Ok(None);
        }
        let moment = moment_of(micros, &call.types[0], zone.unwrap_or(Zone::UTC));
        let zone_name = zone.map(|zone| zone.abbreviation_at(micros)).unwrap_or_default();
        Fields { moment, zone_name }.write(formats.of(format), output);
        Ok(Some(()))
    })
}

/// `to_char(date, format)`.
pub(in crate::sql::function) fn dates(call: &Call<'_>) -> Result<ArrayRef> {
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
pub(in crate::sql::function) fn intervals(call: &Call<'_>) -> Result<ArrayRef> {
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
