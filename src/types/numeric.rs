//! Decimal numbers as text, and PostgreSQL's base-10000 binary form.
//!
//! A value is an integer and a scale. How many digits after the point are shown depends on the type, see [`Digits`].

use crate::error::{Error, Result};
use arrow::datatypes::i256;
use bytes::{Buf, BufMut, BytesMut};

/// How many digits after the point are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Digits {
    /// Always so many: `numeric(p,s)`.
    Fixed(i8),
    /// As many as there are: `numeric`.
    Free,
    /// Sixteen significant ones at least, as PostgreSQL's division gives: quotients.
    Quotient,
}

/// The digits of a number that fits 256 bits, most significant first, in a buffer of their own.
struct Decimal {
    digits: [u8; 80],
    start: usize,
    negative: bool,
}

impl Decimal {
    fn of(value: i256) -> Self {
        let negative = value.is_negative();
        let mut decimal = Self {
            digits: [0; 80],
            start: 80,
            negative,
        };
        if let Some(small) = value.to_i128() {
            decimal.push_u128(small.unsigned_abs());
            return decimal;
        }
        // Cut into pieces of 38 digits, which fit 128 bits each.
        let unit = i256::from_i128(10_i128.pow(38));
        let mut rest = value;
        while rest != i256::ZERO {
            let piece = rest.wrapping_rem(unit);
            rest = rest.wrapping_div(unit);
            let end = decimal.start;
            decimal.push_u128(piece.to_i128().map_or(0, i128::unsigned_abs));
            if rest != i256::ZERO {
                decimal.start = end - 38;
            }
        }
        decimal
    }

    /// Puts the digits of a number before those that are there.
    fn push_u128(&mut self, value: u128) {
        let mut rest = value;
        while rest > u128::from(u64::MAX) {
            let mut piece = (rest % 10_000_000_000_000_000_000) as u64;
            rest /= 10_000_000_000_000_000_000;
            for _ in 0..19 {
                self.start -= 1;
                self.digits[self.start] = (piece % 10) as u8;
                piece /= 10;
            }
        }
        let mut rest = rest as u64;
        while rest > 0 {
            self.start -= 1;
            self.digits[self.start] = (rest % 10) as u8;
            rest /= 10;
        }
    }

    fn is_zero(&self) -> bool {
        self.digits[self.start..].iter().all(|digit| *digit == 0)
    }

    /// The digit worth 10^`exponent` of the unscaled number.
    fn at(&self, exponent: i32) -> u8 {
        let index = 79 - exponent;
        if exponent < 0 || index < self.start as i32 {
            0
        } else {
            self.digits[index as usize]
        }
    }

    /// Drops the last `count` digits, rounding half away from zero.
    fn round_off(&mut self, count: usize) {
        if count == 0 {
            return;
        }
        let up = count <= 80 && self.at(count as i32 - 1) >= 5;
        let kept = 80_usize.saturating_sub(count);
        self.digits.copy_within(0..kept, 80 - kept);
        self.digits[..80 - kept].fill(0);
        self.start = (self.start + 80 - kept).min(80);
        if up {
            let mut index = 80;
            loop {
                index -= 1;
                self.digits[index] += 1;
                if self.digits[index] < 10 {
                    break;
                }
                self.digits[index] = 0;
            }
            self.start = self.start.min(index);
        }
    }
}

/// The digits after the point with which a quotient is shown: at least sixteen significant ones, counted in groups of
/// four, as PostgreSQL chooses the scale of a division.
fn quotient_scale(decimal: &Decimal, scale: i8) -> i8 {
    let power_of_ten = |exponent: i32| decimal.at(exponent) == 1 && (0..exponent).all(|lower| decimal.at(lower) == 0);
    let weight = if decimal.is_zero() {
        -1
    } else {
        let first = decimal.digits[decimal.start..]
            .iter()
            .position(|digit| *digit != 0)
            .unwrap_or(0);
        let highest = 79 - (decimal.start + first) as i32;
        let exponent = highest - i32::from(scale);
        let weight = exponent.div_euclid(4);
        // Exactly 10000^k counts as one group less.
        if exponent.rem_euclid(4) == 0 && power_of_ten(highest) {
            weight - 1
        } else {
            weight
        }
    };
    (16 - 4 * weight).clamp(0, i32::from(super::QUOTIENT_SCALE)) as i8
}

/// Brings a value to the digits that are shown of it; the scale that remains.
fn shown(value: i256, scale: i8, digits: Digits) -> (Decimal, i8) {
    let mut decimal = Decimal::of(value);
    let target = match digits {
        Digits::Fixed(target) => target.max(0),
        Digits::Quotient => quotient_scale(&decimal, scale),
        Digits::Free => {
            let zeros = (0..i32::from(scale.max(0)))
                .take_while(|exponent| decimal.at(*exponent) == 0)
                .count();
            scale.max(0) - zeros as i8
        }
    };
    if target < scale {
        decimal.round_off((scale - target) as usize);
        return (decimal, target);
    }
    (decimal, scale)
}

/// Writes a decimal number.
pub fn write_decimal(value: i256, scale: i8, digits: Digits, out: &mut BytesMut) {
    let (decimal, left) = shown(value, scale, digits);
    if decimal.negative && !decimal.is_zero() {
        out.put_u8(b'-');
    }
    let left = i32::from(left);
    let highest = (79 - decimal.start as i32).max(left).max(0);
    for exponent in (left.max(0)..=highest).rev() {
        out.put_u8(b'0' + decimal.at(exponent));
    }
    if !decimal.is_zero() {
        for _ in left..0 {
            out.put_u8(b'0');
        }
    }
    let target = match digits {
        Digits::Fixed(target) => i32::from(target.max(0)),
        _ => left.max(0),
    };
    if target > 0 {
        out.put_u8(b'.');
        for exponent in (0..left.max(0)).rev() {
            out.put_u8(b'0' + decimal.at(exponent));
        }
        for _ in left.max(0)..target {
            out.put_u8(b'0');
        }
    }
}

/// Writes PostgreSQL's binary form: groups of four decimal digits.
pub fn write_decimal_binary(value: i256, scale: i8, digits: Digits, out: &mut BytesMut) {
    let (decimal, left) = shown(value, scale, digits);
    let left = i32::from(left);
    let highest = 79 - decimal.start as i32 - left;
    let group = |weight: i32| {
        (0..4).rev().fold(0_i16, |sum, exponent| {
            sum * 10 + i16::from(decimal.at(weight * 4 + exponent + left))
        })
    };
    let mut first = highest.div_euclid(4);
    let mut last = (-left).div_euclid(4);
    while first >= last && group(first) == 0 {
        first -= 1;
    }
    while last <= first && group(last) == 0 {
        last += 1;
    }
    let count = (first - last + 1).max(0);
    out.put_i16(count as i16);
    out.put_i16(if count == 0 { 0 } else { first as i16 });
    let negative = decimal.negative && count > 0;
    out.put_u16(if negative { 0x4000 } else { 0 });
    let scale_shown = match digits {
        Digits::Fixed(target) => i32::from(target.max(0)),
        _ => left.max(0),
    };
    out.put_i16(scale_shown as i16);
    for weight in (last..=first).rev() {
        out.put_i16(group(weight));
    }
}

/// What a decimal number may be: its digits in all, and those after the point.
#[derive(Debug, Clone, Copy)]
pub struct Shape {
    /// All digits.
    pub precision: u8,
    /// Digits after the point.
    pub scale: i8,
    /// Whether the user wrote `numeric(p,s)`, which decides how overflow is worded.
    pub declared: bool,
}

/// Reads a decimal number, rounding half away from zero to the scale.
pub fn read_decimal(text: &str, shape: Shape) -> Result<i256> {
    let invalid = || Error::semantic("22P02", format!("invalid input syntax for type numeric: \"{text}\""));
    let trimmed = text.trim_matches(|c: char| c.is_ascii_whitespace());
    let (negative, unsigned) = match trimmed.as_bytes().first() {
        Some(b'-') => (true, &trimmed[1..]),
        Some(b'+') => (false, &trimmed[1..]),
        _ => (false, trimmed),
    };
    if ["nan", "inf", "infinity"].contains(&unsigned.to_ascii_lowercase().as_str()) {
        return Err(not_a_number());
    }
    let (mantissa, exponent) = match unsigned.find(['e', 'E']) {
        Some(at) => {
            let exponent = &unsigned[at + 1..];
            let digits = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
            if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
                return Err(invalid());
            }
            let exponent = exponent.parse::<i32>().unwrap_or(i32::MAX / 2);
            (&unsigned[..at], exponent.clamp(-100_000, 100_000))
        }
        None => (unsigned, 0),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    if (whole.is_empty() && fraction.is_empty()) || !digits(whole) || !digits(fraction) {
        return Err(invalid());
    }
    let all = whole.bytes().chain(fraction.bytes()).map(|byte| byte - b'0');
    // The first digit is worth 10^highest of the scaled integer.
    let highest = whole.len() as i64 - 1 + i64::from(exponent) + i64::from(shape.scale);
    assemble(all, highest, negative, shape)
}

/// Reads PostgreSQL's binary form.
pub fn read_decimal_binary(mut bytes: &[u8], shape: Shape) -> Result<i256> {
    let malformed = || Error::semantic("22P03", "invalid binary numeric value");
    if bytes.len() < 8 {
        return Err(malformed());
    }
    let count = bytes.get_u16() as usize;
    let weight = i64::from(bytes.get_i16());
    let sign = bytes.get_u16();
    let _scale = bytes.get_u16();
    match sign {
        0 | 0x4000 => {}
        0xC000 | 0xD000 | 0xF000 => return Err(not_a_number()),
        _ => return Err(malformed()),
    }
    if bytes.len() != count * 2 {
        return Err(malformed());
    }
    let mut digits = Vec::with_capacity(count * 4);
    for _ in 0..count {
        let group = bytes.get_u16();
        if group > 9999 {
            return Err(malformed());
        }
        digits.extend([group / 1000, group / 100 % 10, group / 10 % 10, group % 10].map(|d| d as u8));
    }
    let highest = weight * 4 + 3 + i64::from(shape.scale);
    assemble(digits.into_iter(), highest, sign == 0x4000, shape)
}

fn not_a_number() -> Error {
    Error::unsupported("numeric NaN and infinity are not supported")
        .with_hint("Use double precision for values that are not numbers.")
}

/// Adds up digits, the first of which is worth 10^`highest`, rounds what is below 1, and checks the precision.
fn assemble(digits: impl Iterator<Item = u8>, highest: i64, negative: bool, shape: Shape) -> Result<i256> {
    let mut small: i128 = 0;
    let mut large: Option<i256> = None;
    let ten = i256::from_i128(10);
    let mut exponent = highest;
    let mut round_up = false;
    let mut push = |digit: u8| -> Result<()> {
        if let Some(value) = &mut large {
            *value = value
                .checked_mul(ten)
                .and_then(|value| value.checked_add(i256::from_i128(i128::from(digit))))
                .ok_or_else(|| overflow(shape))?;
        } else if let Some(value) = small
            .checked_mul(10)
            .and_then(|value| value.checked_add(i128::from(digit)))
        {
            small = value;
        } else {
            let value = i256::from_i128(small).wrapping_mul(ten);
            large = Some(value.wrapping_add(i256::from_i128(i128::from(digit))));
        }
        Ok(())
    };
    for digit in digits {
        if exponent < 0 {
            round_up = exponent == -1 && digit >= 5;
            break;
        }
        push(digit)?;
        exponent -= 1;
    }
    if exponent >= 0 {
        let mut zeros = exponent + 1;
        while zeros > 0 {
            // Trailing zeros of a zero stay nothing; of anything else they overflow soon enough.
            push(0)?;
            zeros -= 1;
        }
    }
    let mut value = large.unwrap_or_else(|| i256::from_i128(small));
    if round_up {
        value = value.wrapping_add(i256::ONE);
    }
    let limit = ten.wrapping_pow(u32::from(shape.precision));
    if value >= limit {
        return Err(overflow(shape));
    }
    Ok(if negative { value.wrapping_neg() } else { value })
}

fn overflow(shape: Shape) -> Error {
    if !shape.declared {
        return Error::semantic("22003", "value overflows numeric format");
    }
    let whole = i32::from(shape.precision) - i32::from(shape.scale);
    let bound = if whole == 0 {
        "1".to_owned()
    } else {
        format!("10^{whole}")
    };
    Error::semantic("22003", "numeric field overflow").with_detail(format!(
        "A field with precision {}, scale {} must round to an absolute value less than {bound}.",
        shape.precision, shape.scale
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn show(value: i256, scale: i8, digits: Digits) -> String {
        let mut out = BytesMut::new();
        write_decimal(value, scale, digits, &mut out);
        String::from_utf8(out.to_vec()).unwrap()
    }

    const FREE: Shape = Shape {
        precision: 76,
        scale: 38,
        declared: false,
    };

    fn declared(precision: u8, scale: i8) -> Shape {
        Shape {
            precision,
            scale,
            declared: true,
        }
    }

    #[test]
    fn a_free_numeric_shows_the_digits_it_has() {
        for (text, shows) in [
            ("0", "0"),
            ("-0", "0"),
            ("1", "1"),
            ("-1.50", "-1.5"),
            ("123456789012345678901234567890.5", "123456789012345678901234567890.5"),
            ("1e10", "10000000000"),
            ("1.5e-3", "0.0015"),
            (".5", "0.5"),
            ("5.", "5"),
            ("  42  ", "42"),
            ("0e99999", "0"),
            (
                "99999999999999999999999999999999999999",
                "99999999999999999999999999999999999999",
            ),
            (
                "-0.00000000000000000000000000000000000001",
                "-0.00000000000000000000000000000000000001",
            ),
        ] {
            let value = read_decimal(text, FREE).unwrap_or_else(|e| panic!("{text}: {e}"));
            assert_eq!(show(value, 38, Digits::Free), shows, "{text}");
        }
    }

    #[test]
    fn a_declared_numeric_rounds_and_pads() {
        for (text, precision, scale, shows) in [
            ("1", 5, 2, "1.00"),
            ("1.005", 5, 2, "1.01"),
            ("-1.005", 5, 2, "-1.01"),
            ("1.0049", 5, 2, "1.00"),
            ("999.99", 5, 2, "999.99"),
            ("0.004", 5, 2, "0.00"),
            ("-0.004", 5, 2, "0.00"),
            ("12350", 3, -2, "12400"),
            ("0.005", 2, 3, "0.005"),
        ] {
            let value = read_decimal(text, declared(precision, scale)).unwrap();
            assert_eq!(show(value, scale, Digits::Fixed(scale)), shows, "{text}");
        }
        let error = read_decimal("999.995", declared(5, 2)).unwrap_err();
        assert_eq!(error.code(), "22003");
        assert_eq!(error.message(), "numeric field overflow");
        assert_eq!(
            error.detail(),
            Some("A field with precision 5, scale 2 must round to an absolute value less than 10^3.")
        );
        for text in ["", "x", "1e", "1.2.3", "--1", "1 2", "e5"] {
            assert_eq!(read_decimal(text, FREE).unwrap_err().code(), "22P02", "{text}");
        }
        assert_eq!(read_decimal("NaN", FREE).unwrap_err().code(), "0A000");
        assert_eq!(read_decimal("1e40", FREE).unwrap_err().code(), "22003");
        assert_eq!(read_decimal("1e999999", FREE).unwrap_err().code(), "22003");
    }

    #[test]
    fn a_quotient_shows_sixteen_significant_digits_at_least() {
        let shape = Shape {
            precision: 76,
            scale: 36,
            declared: false,
        };
        for (text, shows) in [
            ("7", "7.0000000000000000"),
            ("1", "1.00000000000000000000"),
            ("0", "0.00000000000000000000"),
            ("0.5", "0.50000000000000000000"),
            ("-2.5", "-2.5000000000000000"),
            ("10000", "10000.0000000000000000"),
            ("10001", "10001.000000000000"),
            ("123456789.5", "123456789.50000000"),
            ("0.333333333333333333333333333333333333", "0.33333333333333333333"),
            ("0.666666666666666666666666666666666667", "0.66666666666666666667"),
            ("0.00005", "0.000050000000000000000000"),
        ] {
            let value = read_decimal(text, shape).unwrap();
            assert_eq!(show(value, 36, Digits::Quotient), shows, "{text}");
        }
    }

    #[test]
    fn the_binary_form_comes_back_whole() {
        for text in [
            "0",
            "1",
            "-1",
            "1.5",
            "0.0001",
            "12345678.9",
            "-99999999999999999999.000000001",
            "10000",
            "100000000",
            "0.5",
        ] {
            let value = read_decimal(text, FREE).unwrap();
            let mut out = BytesMut::new();
            write_decimal_binary(value, 38, Digits::Free, &mut out);
            assert_eq!(read_decimal_binary(&out, FREE).unwrap(), value, "{text}");
        }
        let value = read_decimal("12345.678", declared(10, 3)).unwrap();
        let mut out = BytesMut::new();
        write_decimal_binary(value, 3, Digits::Fixed(3), &mut out);
        // As PostgreSQL's numeric_send: three groups 1, 2345, 6780.
        assert_eq!(out.to_vec(), [0, 3, 0, 1, 0, 0, 0, 3, 0, 1, 0x09, 0x29, 0x1a, 0x7c]);
    }
}
