//! Dates, times and timestamps as text: PostgreSQL's input grammar and its ISO output.
//!
//! Input is cut into fields (dates, times, offsets, numbers, words), which are then given their meaning, as
//! PostgreSQL's `DecodeDateTime` does; the common ISO forms take a shorter way that gives the same result.

mod fields;

use super::calendar::{
    Civil, DATE_INFINITY, DATE_MINUS_INFINITY, DAY_END, DAY_MICROS, DAY_MIN, POSTGRES_EPOCH_MICROS, SECOND_MICROS,
    TIMESTAMP_INFINITY, TIMESTAMP_MINUS_INFINITY, Zone, civil_of_days, days_of_civil, month_days,
};
use super::settings::Settings;
use crate::error::{Error, Result};
use bytes::{BufMut, BytesMut};
use fields::{Fields, Special, invalid};

/// Writes a date: `2024-02-29`, `0044-03-15 BC`, `infinity`.
pub fn write_date(days: i32, out: &mut BytesMut) {
    match days {
        DATE_INFINITY => out.put_slice(b"infinity"),
        DATE_MINUS_INFINITY => out.put_slice(b"-infinity"),
        _ => {
            let civil = civil_of_days(i64::from(days));
            write_civil(civil, out);
            write_era(civil, out);
        }
    }
}

/// Writes a time of day: `04:05:06.789`.
pub fn write_time(micros: i64, out: &mut BytesMut) {
    let seconds = micros / SECOND_MICROS;
    put_two(out, seconds / 3600);
    out.put_u8(b':');
    put_two(out, seconds / 60 % 60);
    out.put_u8(b':');
    put_two(out, seconds % 60);
    write_fraction(micros % SECOND_MICROS, out);
}

/// Writes a timestamp without zone: `2024-02-29 04:05:06.789`.
pub fn write_timestamp(micros: i64, out: &mut BytesMut) {
    write_instant(micros, None, out);
}

/// Writes a timestamp with zone as clocks of `zone` show it: `2024-02-29 04:05:06.789+01`.
pub fn write_timestamptz(micros: i64, zone: &Zone, out: &mut BytesMut) {
    write_instant(micros, Some(zone), out);
}

fn write_instant(micros: i64, zone: Option<&Zone>, out: &mut BytesMut) {
    match micros {
        TIMESTAMP_INFINITY => return out.put_slice(b"infinity"),
        TIMESTAMP_MINUS_INFINITY => return out.put_slice(b"-infinity"),
        _ => {}
    }
    let offset = zone.map(|zone| zone.offset_at(micros));
    let local = micros.saturating_add(i64::from(offset.unwrap_or(0)) * SECOND_MICROS);
    let civil = civil_of_days(local.div_euclid(DAY_MICROS));
    write_civil(civil, out);
    out.put_u8(b' ');
    write_time(local.rem_euclid(DAY_MICROS), out);
    if let Some(offset) = offset {
        write_offset(offset, out);
    }
    write_era(civil, out);
}

/// Writes an offset from Greenwich: `+00`, `-03:30`, `+00:53:28`.
pub fn write_offset(seconds: i32, out: &mut BytesMut) {
    out.put_u8(if seconds < 0 { b'-' } else { b'+' });
    let total = i64::from(seconds.unsigned_abs());
    put_two(out, total / 3600);
    if total % 3600 != 0 {
        out.put_u8(b':');
        put_two(out, total / 60 % 60);
        if total % 60 != 0 {
            out.put_u8(b':');
            put_two(out, total % 60);
        }
    }
}

fn write_civil(civil: Civil, out: &mut BytesMut) {
    let year = if civil.year > 0 { civil.year } else { 1 - civil.year };
    if year > 9999 {
        let mut digits = [0u8; 20];
        let mut at = digits.len();
        let mut rest = year;
        while rest > 0 {
            at -= 1;
            digits[at] = b'0' + (rest % 10) as u8;
            rest /= 10;
        }
        out.put_slice(&digits[at..]);
    } else {
        put_two(out, year / 100);
        put_two(out, year % 100);
    }
    out.put_u8(b'-');
    put_two(out, i64::from(civil.month));
    out.put_u8(b'-');
    put_two(out, i64::from(civil.day));
}

fn write_era(civil: Civil, out: &mut BytesMut) {
    if civil.year <= 0 {
        out.put_slice(b" BC");
    }
}

/// Writes `.` and the digits of a fraction of a second without trailing zeros; nothing for none.
pub(super) fn write_fraction(micros: i64, out: &mut BytesMut) {
    if micros == 0 {
        return;
    }
    let mut digits = *b".000000";
    let mut rest = micros;
    for digit in digits[1..].iter_mut().rev() {
        *digit = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    let end = digits.iter().rposition(|digit| *digit != b'0').unwrap_or(0);
    out.put_slice(&digits[..=end]);
}

/// Writes a number below 100 with two digits.
pub(super) fn put_two(out: &mut BytesMut, number: i64) {
    out.put_u8(b'0' + (number / 10) as u8);
    out.put_u8(b'0' + (number % 10) as u8);
}

/// Reads a date: days since 1970-01-01.
pub fn read_date(text: &str, settings: &Settings) -> Result<i32> {
    if let Some((days, rest)) = iso_date(text.as_bytes())
        && rest.is_empty()
    {
        return Ok(days as i32);
    }
    let kind = "date";
    let fields = Fields::read(text, kind, settings)?;
    let days = match fields.special {
        Some(Special::Infinity) => return Ok(DATE_INFINITY),
        Some(Special::MinusInfinity) => return Ok(DATE_MINUS_INFINITY),
        Some(Special::Now) => settings
            .time_zone
            .local_of_instant(settings.now_micros)
            .div_euclid(DAY_MICROS),
        Some(Special::Epoch) => 0,
        None => fields.days(text, kind)?,
    };
    if !(DAY_MIN..DAY_END).contains(&days) {
        return Err(Error::semantic("22008", format!("date out of range: \"{text}\"")));
    }
    Ok(days as i32)
}

/// Reads a time of day: microseconds since midnight.
pub fn read_time(text: &str, settings: &Settings) -> Result<i64> {
    let kind = "time";
    let fields = Fields::read(text, kind, settings)?;
    match (fields.special, fields.time) {
        (None, Some(micros)) => Ok(micros),
        (Some(Special::Now), _) => Ok(settings
            .time_zone
            .local_of_instant(settings.now_micros)
            .rem_euclid(DAY_MICROS)),
        _ => Err(invalid(text, kind)),
    }
}

/// Reads a timestamp without zone: microseconds since 1970-01-01 00:00; a zone in the text is ignored.
pub fn read_timestamp(text: &str, settings: &Settings) -> Result<i64> {
    if let Some((micros, rest)) = iso_timestamp(text.as_bytes())
        && rest.is_empty()
    {
        return Ok(micros);
    }
    let kind = "timestamp";
    let fields = Fields::read(text, kind, settings)?;
    match fields.special {
        Some(Special::Infinity) => Ok(TIMESTAMP_INFINITY),
        Some(Special::MinusInfinity) => Ok(TIMESTAMP_MINUS_INFINITY),
        Some(Special::Now) => Ok(settings.time_zone.local_of_instant(settings.now_micros)),
        Some(Special::Epoch) => Ok(0),
        None => in_range(fields.local(text, kind)?, text),
    }
}

/// Reads a timestamp with zone: microseconds since 1970-01-01 00:00 UTC; without a zone in the text, the session's.
pub fn read_timestamptz(text: &str, settings: &Settings) -> Result<i64> {
    if let Some((micros, rest)) = iso_timestamp(text.as_bytes()) {
        match rest {
            b"" => return in_range(Some(settings.time_zone.instant_of_local(micros)), text),
            b"Z" | b"+00" | b"+00:00" => return Ok(micros),
            _ => {}
        }
    }
    let kind = "timestamp with time zone";
    let fields = Fields::read(text, kind, settings)?;
    match fields.special {
        Some(Special::Infinity) => Ok(TIMESTAMP_INFINITY),
        Some(Special::MinusInfinity) => Ok(TIMESTAMP_MINUS_INFINITY),
        Some(Special::Now) => Ok(settings.now_micros),
        Some(Special::Epoch) => Ok(0),
        None => {
            let zone = fields.zone.unwrap_or(settings.time_zone);
            let local = fields.local(text, kind)?;
            in_range(local.map(|local| zone.instant_of_local(local)), text)
        }
    }
}

/// Rounds a timestamp to so many digits after the point of its seconds, halves away from 2000-01-01 as PostgreSQL.
pub fn round_timestamp(micros: i64, digits: u8) -> i64 {
    if matches!(micros, TIMESTAMP_INFINITY | TIMESTAMP_MINUS_INFINITY) || digits >= 6 {
        return micros;
    }
    let unit = 10_i64.pow(6 - u32::from(digits));
    let since = micros.saturating_sub(POSTGRES_EPOCH_MICROS);
    let rounded = if since >= 0 {
        since.saturating_add(unit / 2) / unit * unit
    } else {
        -(since.saturating_neg().saturating_add(unit / 2) / unit * unit)
    };
    rounded.saturating_add(POSTGRES_EPOCH_MICROS)
}

fn in_range(micros: Option<i64>, text: &str) -> Result<i64> {
    micros
        .filter(|micros| (DAY_MIN * DAY_MICROS..DAY_END.saturating_mul(DAY_MICROS)).contains(micros))
        .ok_or_else(|| Error::semantic("22008", format!("timestamp out of range: \"{text}\"")))
}

/// The days of a leading `YYYY-MM-DD` and what follows it; `None` sends the text the long way.
fn iso_date(text: &[u8]) -> Option<(i64, &[u8])> {
    let (date, rest) = text.split_at_checked(10)?;
    if date[4] != b'-' || date[7] != b'-' {
        return None;
    }
    let year = i64::from(two(&date[0..2])?) * 100 + i64::from(two(&date[2..4])?);
    let (month, day) = (two(&date[5..7])?, two(&date[8..10])?);
    let valid = year > 0 && (1..=12).contains(&month) && day >= 1 && day <= month_days(year, month);
    valid.then(|| (days_of_civil(year, month, day), rest))
}

/// The microseconds of a leading `YYYY-MM-DD[ T]HH:MM:SS[.fraction]` and what follows it.
fn iso_timestamp(text: &[u8]) -> Option<(i64, &[u8])> {
    let (days, rest) = iso_date(text)?;
    if rest.is_empty() {
        return Some((days * DAY_MICROS, rest));
    }
    let (time, mut rest) = rest.split_at_checked(9)?;
    if !matches!(time[0], b' ' | b'T') || time[3] != b':' || time[6] != b':' {
        return None;
    }
    let (hour, minute, second) = (two(&time[1..3])?, two(&time[4..6])?, two(&time[7..9])?);
    if hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    let mut micros = i64::from(hour * 3600 + minute * 60 + second) * SECOND_MICROS;
    if let Some(fraction) = rest.strip_prefix(b".") {
        let digits = fraction.iter().take_while(|byte| byte.is_ascii_digit()).count();
        if digits == 0 || digits > 6 {
            return None;
        }
        let value = fraction[..digits]
            .iter()
            .fold(0, |sum, digit| sum * 10 + i64::from(digit - b'0'));
        micros += value * 10_i64.pow(6 - digits as u32);
        rest = &fraction[digits..];
    }
    Some((days * DAY_MICROS + micros, rest))
}

fn two(digits: &[u8]) -> Option<u32> {
    let [tens, ones] = digits else { return None };
    (tens.is_ascii_digit() && ones.is_ascii_digit()).then(|| u32::from(tens - b'0') * 10 + u32::from(ones - b'0'))
}

/// The microseconds of the digits after a decimal point, rounded; halves to the even one.
pub(super) fn fraction_micros(digits: &str) -> i64 {
    let mut micros = 0;
    for index in 0..6 {
        let digit = digits.as_bytes().get(index).copied().unwrap_or(b'0');
        micros = micros * 10 + i64::from(digit - b'0');
    }
    let rest = digits.as_bytes().get(6..).unwrap_or(b"");
    let up = match rest.first() {
        None | Some(..b'5') => false,
        Some(b'5') if rest[1..].iter().all(|digit| *digit == b'0') => micros % 2 == 1,
        Some(_) => true,
    };
    micros + i64::from(up)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(write: impl Fn(&mut BytesMut)) -> String {
        let mut out = BytesMut::new();
        write(&mut out);
        String::from_utf8(out.to_vec()).unwrap()
    }

    #[test]
    fn dates_are_read_in_every_common_form() {
        let settings = Settings::default();
        for (text, shows) in [
            ("2024-02-29", "2024-02-29"),
            (" 2024-2-9 ", "2024-02-09"),
            ("1/8/1999", "1999-01-08"),
            ("January 8, 1999", "1999-01-08"),
            ("8 Jan 1999", "1999-01-08"),
            ("1999-Jan-08", "1999-01-08"),
            ("Jan-08-1999", "1999-01-08"),
            ("08-Jan-99", "1999-01-08"),
            ("19990108", "1999-01-08"),
            ("990108", "1999-01-08"),
            ("1999.01.08", "1999-01-08"),
            ("1999-008", "1999-01-08"),
            ("J2451187", "1999-01-08"),
            ("January 8, 99 BC", "0099-01-08 BC"),
            ("0044-03-15 BC", "0044-03-15 BC"),
            ("4714-11-24 BC", "4714-11-24 BC"),
            ("12345-06-07", "12345-06-07"),
            ("infinity", "infinity"),
            ("-infinity", "-infinity"),
            ("epoch", "1970-01-01"),
            ("today", "1970-01-01"),
            ("yesterday", "1969-12-31"),
            ("2024-01-01 10:00:00+02", "2024-01-01"),
        ] {
            let days = read_date(text, &settings).unwrap();
            assert_eq!(shown(|out| write_date(days, out)), shows, "{text}");
        }
    }

    #[test]
    fn wrong_dates_are_refused_as_postgresql_does() {
        let settings = Settings::default();
        for (text, code, message) in [
            ("x", "22007", "invalid input syntax for type date: \"x\""),
            ("", "22007", "invalid input syntax for type date: \"\""),
            (
                "2024-13-01",
                "22008",
                "date/time field value out of range: \"2024-13-01\"",
            ),
            (
                "2023-02-29",
                "22008",
                "date/time field value out of range: \"2023-02-29\"",
            ),
            ("4714-11-23 BC", "22008", "date out of range: \"4714-11-23 BC\""),
            ("300000-01-01", "22008", "date out of range: \"300000-01-01\""),
        ] {
            let error = read_date(text, &settings).unwrap_err();
            assert_eq!((error.code(), error.message()), (code, message));
        }
    }

    #[test]
    fn timestamps_are_read_and_shown() {
        let settings = Settings {
            time_zone: Zone::parse("Europe/Berlin").unwrap(),
            ..Settings::default()
        };
        for (text, plain, zoned) in [
            (
                "2024-07-01 12:34:56.789",
                "2024-07-01 12:34:56.789",
                "2024-07-01 12:34:56.789+02",
            ),
            ("2024-07-01T12:34:56Z", "2024-07-01 12:34:56", "2024-07-01 14:34:56+02"),
            (
                "2024-01-01 12:00:00 America/New_York",
                "2024-01-01 12:00:00",
                "2024-01-01 18:00:00+01",
            ),
            (
                "2024-01-01 12:00:00-05:30",
                "2024-01-01 12:00:00",
                "2024-01-01 18:30:00+01",
            ),
            (
                "Mon Jan 01 12:00:00 2024 PST",
                "2024-01-01 12:00:00",
                "2024-01-01 21:00:00+01",
            ),
            ("20240101T123456", "2024-01-01 12:34:56", "2024-01-01 12:34:56+01"),
            ("2024-01-01 04:05 PM", "2024-01-01 16:05:00", "2024-01-01 16:05:00+01"),
            ("2024-01-01 24:00:00", "2024-01-02 00:00:00", "2024-01-02 00:00:00+01"),
            (
                "2024-01-01 00:00:00.1234567",
                "2024-01-01 00:00:00.123457",
                "2024-01-01 00:00:00.123457+01",
            ),
            ("infinity", "infinity", "infinity"),
            (
                "0001-01-01 00:00:00 BC",
                "0001-01-01 00:00:00 BC",
                "0001-01-01 00:00:00+00:53:28 BC",
            ),
        ] {
            let micros = read_timestamp(text, &settings).unwrap();
            assert_eq!(shown(|out| write_timestamp(micros, out)), plain, "{text}");
            let micros = read_timestamptz(text, &settings).unwrap();
            let zone = settings.time_zone;
            assert_eq!(shown(|out| write_timestamptz(micros, &zone, out)), zoned, "{text}");
        }
        let error = read_timestamptz("2024-01-01 10:00 Mars/Olympus", &settings).unwrap_err();
        assert_eq!(error.code(), "22023");
        let error = read_timestamp("2024-01-01 25:00:00", &settings).unwrap_err();
        assert_eq!(error.code(), "22008");
    }

    #[test]
    fn the_ends_of_the_range_are_those_of_64_bits() {
        let settings = Settings::default();
        assert!(read_timestamp("294246-12-31 23:59:59.999999", &settings).is_ok());
        assert_eq!(read_timestamp("294277-01-01", &settings).unwrap_err().code(), "22008");
        assert!(read_timestamp("4714-11-24 00:00:00 BC", &settings).is_ok());
        assert_eq!(
            read_timestamp("4714-11-23 23:59:59 BC", &settings)
                .unwrap_err()
                .message(),
            "timestamp out of range: \"4714-11-23 23:59:59 BC\""
        );
    }

    #[test]
    fn times_and_rounding() {
        let settings = Settings::default();
        for (text, shows) in [
            ("04:05:06.789", "04:05:06.789"),
            ("04:05", "04:05:00"),
            ("040506", "04:05:06"),
            ("04:05 AM", "04:05:00"),
            ("12:05 am", "00:05:00"),
            ("24:00:00", "24:00:00"),
        ] {
            let micros = read_time(text, &settings).unwrap();
            assert_eq!(shown(|out| write_time(micros, out)), shows, "{text}");
        }
        let half = read_timestamp("2024-01-01 00:00:00.5", &settings).unwrap();
        assert_eq!(
            shown(|out| write_timestamp(round_timestamp(half, 0), out)),
            "2024-01-01 00:00:01"
        );
    }
}
