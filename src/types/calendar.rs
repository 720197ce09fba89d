//! Days, microseconds and time zones over PostgreSQL's whole range, 4713 BC to 294276 AD.
//!
//! The calendar is the proleptic Gregorian one, years counted as astronomers do (0 is 1 BC). Instants are
//! microseconds since 1970-01-01 00:00 UTC, days are days since 1970-01-01; the least and greatest integers of
//! either stand for -infinity and infinity.

use crate::error::{Error, Result};
use chrono::{LocalResult, NaiveDate, NaiveDateTime, Offset, TimeZone as _};
use chrono_tz::Tz;

/// Microseconds in a second.
pub const SECOND_MICROS: i64 = 1_000_000;
/// Microseconds in a minute.
pub const MINUTE_MICROS: i64 = 60 * SECOND_MICROS;
/// Microseconds in an hour.
pub const HOUR_MICROS: i64 = 60 * MINUTE_MICROS;
/// Microseconds in a day.
pub const DAY_MICROS: i64 = 24 * HOUR_MICROS;

/// The timestamp `infinity`.
pub const TIMESTAMP_INFINITY: i64 = i64::MAX;
/// The timestamp `-infinity`.
pub const TIMESTAMP_MINUS_INFINITY: i64 = i64::MIN;
/// The date `infinity`.
pub const DATE_INFINITY: i32 = i32::MAX;
/// The date `-infinity`.
pub const DATE_MINUS_INFINITY: i32 = i32::MIN;

/// 4714-11-24 BC, the first day of the Julian calendar's count.
pub const DAY_MIN: i64 = -2_440_588;
/// 294247-01-01 AD, the first day past the last year whose every microsecond fits.
pub const DAY_END: i64 = 106_751_982;

/// Days from 1970-01-01 to 2000-01-01, where PostgreSQL's binary forms count from.
pub const POSTGRES_EPOCH_DAYS: i32 = 10_957;
/// Microseconds from 1970-01-01 to 2000-01-01.
pub const POSTGRES_EPOCH_MICROS: i64 = POSTGRES_EPOCH_DAYS as i64 * DAY_MICROS;

/// A day of the calendar.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Civil {
    /// The astronomical year: 0 is 1 BC.
    pub year: i64,
    /// 1 to 12.
    pub month: u32,
    /// 1 to 31.
    pub day: u32,
}

/// The day of the calendar that is `days` days after 1970-01-01.
/// (Howard Hinnant, "chrono-compatible low-level date algorithms".)
pub fn civil_of_days(days: i64) -> Civil {
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = (day_of_year - (153 * shifted_month + 2) / 5 + 1) as u32;
    let month = if shifted_month < 10 {
        shifted_month + 3
    } else {
        shifted_month - 9
    } as u32;
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    Civil { year, month, day }
}

/// The days from 1970-01-01 to a day of the calendar.
pub fn days_of_civil(year: i64, month: u32, day: u32) -> i64 {
    let year = year - i64::from(month <= 2);
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let month = i64::from(month);
    let shifted_month = if month > 2 { month - 3 } else { month + 9 };
    let day_of_year = (153 * shifted_month + 2) / 5 + i64::from(day) - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}

/// Whether the astronomical year has a 29 February.
pub fn is_leap(year: i64) -> bool {
    year.rem_euclid(4) == 0 && (year.rem_euclid(100) != 0 || year.rem_euclid(400) == 0)
}

/// The number of days in a month.
pub fn month_days(year: i64, month: u32) -> u32 {
    match month {
        4 | 6 | 9 | 11 => 30,
        2 if is_leap(year) => 29,
        2 => 28,
        _ => 31,
    }
}

/// A time zone of a session or of a literal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Zone {
    /// A zone of the IANA database.
    Named(Tz),
    /// A constant offset: seconds east of Greenwich.
    Fixed(i32),
}

impl Zone {
    /// Coordinated universal time.
    pub const UTC: Self = Self::Named(Tz::UTC);

    /// Reads a zone as `SET TIME ZONE` takes it: a name of the IANA database in any case, an abbreviation, an
    /// offset in hours such as `-7.5` (east is positive), or POSIX's `UTC-3` (west is positive). `22023` otherwise.
    pub fn parse(text: &str) -> Result<Self> {
        let trimmed = text.trim();
        if let Ok(hours) = trimmed.parse::<f64>() {
            if hours.abs() <= 167.0 {
                return Ok(Self::Fixed((hours * 3600.0).round() as i32));
            }
        } else if let Some(zone) = Self::find(trimmed) {
            return Ok(zone);
        } else if let Some(seconds) = parse_offset(trimmed) {
            return Ok(Self::Fixed(seconds));
        } else if let Some(west) = trimmed
            .find(['+', '-'])
            .filter(|at| *at >= 3 && trimmed[..*at].bytes().all(|byte| byte.is_ascii_alphabetic()))
            .and_then(|at| parse_offset(&trimmed[at..]))
        {
            return Ok(Self::Fixed(-west));
        }
        Err(Error::semantic(
            "22023",
            format!("invalid value for parameter \"TimeZone\": \"{text}\""),
        ))
    }

    /// The zone of a name or abbreviation, in any case.
    pub fn find(name: &str) -> Option<Self> {
        if name.is_empty() {
            return None;
        }
        if let Some((_, hours)) = ABBREVIATIONS.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)) {
            return Some(Self::Fixed((hours * 3600.0) as i32));
        }
        if ["utc", "gmt", "z", "zulu"].contains(&name.to_ascii_lowercase().as_str()) {
            return Some(Self::UTC);
        }
        let exact = name.parse::<Tz>().ok();
        let folded = || {
            chrono_tz::TZ_VARIANTS
                .iter()
                .find(|tz| tz.name().eq_ignore_ascii_case(name))
                .copied()
        };
        exact.or_else(folded).map(Self::Named)
    }

    /// The names of all zones.
    pub fn names() -> impl Iterator<Item = &'static str> {
        chrono_tz::TZ_VARIANTS.iter().map(|zone| zone.name())
    }

    /// The name as `SHOW TimeZone` prints it.
    pub fn name(&self) -> String {
        match self {
            Self::Named(tz) => tz.name().to_owned(),
            Self::Fixed(seconds) => {
                // PostgreSQL shows such a zone in POSIX's spelling, in which west is positive.
                let total = seconds.unsigned_abs();
                let mut digits = format!("{:02}", total / 3600);
                if total % 3600 != 0 {
                    digits.push_str(&format!(":{:02}", total / 60 % 60));
                }
                let (east, west) = if *seconds < 0 { ('-', '+') } else { ('+', '-') };
                format!("<{east}{digits}>{west}{digits}")
            }
        }
    }

    /// The seconds east of Greenwich at an instant.
    pub fn offset_at(&self, micros: i64) -> i32 {
        match self {
            Self::Fixed(seconds) => *seconds,
            Self::Named(Tz::UTC) => 0,
            Self::Named(tz) => tz.offset_from_utc_datetime(&naive(micros)).fix().local_minus_utc(),
        }
    }

    /// The abbreviation in force at an instant, such as `CEST`; empty for a constant offset.
    pub fn abbreviation_at(&self, micros: i64) -> String {
        match self {
            Self::Fixed(_) => String::new(),
            Self::Named(tz) => tz.offset_from_utc_datetime(&naive(micros)).to_string(),
        }
    }

    /// The instant at which clocks of this zone show `local` (microseconds as if it were UTC).
    ///
    /// In the gap of a spring transition the offset before it holds, in the overlap of an autumn transition the one
    /// after it, as in PostgreSQL.
    pub fn instant_of_local(&self, local: i64) -> i64 {
        let seconds = match self {
            Self::Fixed(seconds) => *seconds,
            Self::Named(Tz::UTC) => 0,
            Self::Named(tz) => match tz.offset_from_local_datetime(&naive(local)) {
                LocalResult::Single(offset) => offset.fix().local_minus_utc(),
                LocalResult::Ambiguous(_, later) => later.fix().local_minus_utc(),
                LocalResult::None => self.offset_at(local.saturating_sub(DAY_MICROS)),
            },
        };
        local.saturating_sub(i64::from(seconds) * SECOND_MICROS)
    }

    /// What clocks of this zone show at an instant, as microseconds as if it were UTC.
    pub fn local_of_instant(&self, micros: i64) -> i64 {
        micros.saturating_add(i64::from(self.offset_at(micros)) * SECOND_MICROS)
    }
}

/// A date and time that chrono can look up transitions for. The zone tables end long before chrono's range does: a
/// later year is replaced by one of the last tabulated years with the same calendar, which keeps daylight saving
/// going as PostgreSQL does; an earlier one by the first.
fn naive(micros: i64) -> NaiveDateTime {
    const LAST_YEAR: i64 = 2098;
    let mut days = micros.div_euclid(DAY_MICROS);
    let of_day = micros.rem_euclid(DAY_MICROS);
    let civil = civil_of_days(days);
    if civil.year > LAST_YEAR {
        let weekday = |year| days_of_civil(year, 1, 1).rem_euclid(7);
        let same = |year: &i64| is_leap(*year) == is_leap(civil.year) && weekday(*year) == weekday(civil.year);
        let twin = (LAST_YEAR - 27..=LAST_YEAR).find(same).unwrap_or(LAST_YEAR);
        days = days_of_civil(twin, civil.month, civil.day);
    }
    let days = days.max(-719_162);
    let seconds = (of_day / SECOND_MICROS) as u32;
    let date = NaiveDate::from_num_days_from_ce_opt((days + 719_163) as i32).unwrap_or_default();
    date.and_hms_opt(seconds / 3600, seconds / 60 % 60, seconds % 60)
        .unwrap_or_default()
}

/// Reads `+02`, `-0330`, `+5:30`, `+05:30:15` as seconds east; `None` if it is none of them or beyond 15:59:59.
pub fn parse_offset(text: &str) -> Option<i32> {
    let (sign, digits) = match text.as_bytes().first()? {
        b'+' => (1, &text[1..]),
        b'-' => (-1, &text[1..]),
        _ => return None,
    };
    let number = |part: &str| -> Option<i32> {
        (!part.is_empty() && part.len() <= 2 && part.bytes().all(|byte| byte.is_ascii_digit()))
            .then(|| part.parse().ok())?
    };
    let (hours, minutes, seconds) = if digits.contains(':') {
        let mut parts = digits.split(':');
        let hours = number(parts.next()?)?;
        let minutes = number(parts.next()?)?;
        let seconds = parts.next().map_or(Some(0), number)?;
        if parts.next().is_some() {
            return None;
        }
        (hours, minutes, seconds)
    } else if digits.is_ascii() {
        match digits.len() {
            1 | 2 => (number(digits)?, 0, 0),
            3 | 4 => {
                let (hours, minutes) = digits.split_at(digits.len() - 2);
                (number(hours)?, number(minutes)?, 0)
            }
            6 => (number(&digits[..2])?, number(&digits[2..4])?, number(&digits[4..])?),
            _ => return None,
        }
    } else {
        return None;
    };
    if hours > 15 || minutes > 59 || seconds > 59 {
        return None;
    }
    Some(sign * (hours * 3600 + minutes * 60 + seconds))
}

/// The abbreviations of PostgreSQL's default set that people write, in hours east of Greenwich.
const ABBREVIATIONS: &[(&str, f64)] = &[
    ("ACDT", 10.5),
    ("ACST", 9.5),
    ("ADT", -3.0),
    ("AEDT", 11.0),
    ("AEST", 10.0),
    ("AKDT", -8.0),
    ("AKST", -9.0),
    ("AST", -4.0),
    ("AWST", 8.0),
    ("BST", 1.0),
    ("CDT", -5.0),
    ("CEST", 2.0),
    ("CET", 1.0),
    ("CST", -6.0),
    ("EDT", -4.0),
    ("EEST", 3.0),
    ("EET", 2.0),
    ("EST", -5.0),
    ("HKT", 8.0),
    ("HST", -10.0),
    ("IST", 2.0),
    ("JST", 9.0),
    ("KST", 9.0),
    ("MDT", -6.0),
    ("MSK", 3.0),
    ("MST", -7.0),
    ("NDT", -2.5),
    ("NST", -3.5),
    ("NZDT", 13.0),
    ("NZST", 12.0),
    ("PDT", -7.0),
    ("PST", -8.0),
    ("SGT", 8.0),
    ("UCT", 0.0),
    ("WAT", 1.0),
    ("WEST", 1.0),
    ("WET", 0.0),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_calendar_is_its_own_inverse() {
        for days in (DAY_MIN..DAY_END).step_by(9973) {
            let civil = civil_of_days(days);
            assert_eq!(days_of_civil(civil.year, civil.month, civil.day), days);
        }
        assert_eq!(days_of_civil(1970, 1, 1), 0);
        assert_eq!(days_of_civil(2000, 1, 1), i64::from(POSTGRES_EPOCH_DAYS));
        assert_eq!(days_of_civil(-4713, 11, 24), DAY_MIN);
        assert_eq!(days_of_civil(294_247, 1, 1), DAY_END);
    }

    #[test]
    fn zones_are_read_in_every_spelling() {
        assert_eq!(Zone::parse("europe/berlin").unwrap().offset_at(0), 3600);
        assert_eq!(Zone::parse("+05:30").unwrap(), Zone::Fixed(19_800));
        assert_eq!(Zone::parse("-7.5").unwrap(), Zone::Fixed(-27_000));
        assert_eq!(Zone::parse("UTC-3").unwrap(), Zone::Fixed(10_800));
        assert_eq!(Zone::parse("utc").unwrap(), Zone::UTC);
        assert_eq!(Zone::parse("EST").unwrap(), Zone::Fixed(-18_000));
        assert_eq!(Zone::parse("Nowhere/Land").unwrap_err().code(), "22023");
        assert_eq!(Zone::Fixed(10_800).name(), "<+03>-03");
        assert_eq!(Zone::Fixed(-19_800).name(), "<-05:30>+05:30");
    }

    #[test]
    fn gaps_take_the_offset_before_and_overlaps_the_one_after() {
        let berlin = Zone::parse("Europe/Berlin").unwrap();
        let local = |month, hour: i64| (days_of_civil(2024, month, 1) * 24 + hour) * HOUR_MICROS;
        // 2024-03-31 02:30 does not exist: 01:30 UTC, shown as 03:30.
        let gap = local(3, 30 * 24 + 2) + 30 * MINUTE_MICROS;
        let instant = berlin.instant_of_local(gap);
        assert_eq!(berlin.local_of_instant(instant), gap + HOUR_MICROS);
        // 2024-10-27 02:30 exists twice: the later one.
        let overlap = local(10, 26 * 24 + 2) + 30 * MINUTE_MICROS;
        assert_eq!(overlap - berlin.instant_of_local(overlap), HOUR_MICROS);
    }

    #[test]
    fn daylight_saving_goes_on_after_the_tables_end() {
        let berlin = Zone::parse("Europe/Berlin").unwrap();
        let july = days_of_civil(2500, 7, 1) * DAY_MICROS;
        let january = days_of_civil(2500, 1, 1) * DAY_MICROS;
        assert_eq!(berlin.offset_at(july), 7200);
        assert_eq!(berlin.offset_at(january), 3600);
    }
}
