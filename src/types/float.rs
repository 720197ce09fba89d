//! Binary floating point as text: the shortest digits that read back the same, laid out as PostgreSQL lays them out.

use crate::error::{Error, Result};
use bytes::{BufMut, BytesMut};
use std::fmt::Write as _;

/// Writes a `double precision`: `0.1`, `1e+20`, `-0`, `NaN`, `Infinity`.
pub fn write_float8(value: f64, out: &mut BytesMut) {
    if !write_special(value, out) {
        let mut digits = Scratch::default();
        write!(digits, "{value:e}").expect("17 digits and an exponent fit the scratch buffer");
        let mut decimals = digit_count(digits.text());
        // Of two decimals equally near, the even one, which rounding to so many digits gives.
        let mut even = Scratch::default();
        write!(even, "{value:.*e}", decimals - 1).expect("so many digits fit the scratch buffer");
        if even.str().parse::<f64>() == Ok(value) {
            digits = even;
        }
        // One digit more than there are, until the decimal is nearer than half way to a neighbour.
        while is_boundary(digits.text(), 54) && decimals < 17 {
            digits = Scratch::default();
            write!(digits, "{value:.decimals$e}").expect("so many digits fit the scratch buffer");
            decimals += 1;
        }
        layout(digits.text(), 15, out);
    }
}

/// Writes a `real`, with the digits that a 32-bit number needs.
pub fn write_float4(value: f32, out: &mut BytesMut) {
    if !write_special(f64::from(value), out) {
        let mut digits = Scratch::default();
        write!(digits, "{value:e}").expect("9 digits and an exponent fit the scratch buffer");
        let mut decimals = digit_count(digits.text());
        // Of two decimals equally near, the even one, which rounding to so many digits gives.
        let mut even = Scratch::default();
        write!(even, "{value:.*e}", decimals - 1).expect("so many digits fit the scratch buffer");
        if even.str().parse::<f32>() == Ok(value) {
            digits = even;
        }
        // One digit more than there are, until the decimal is nearer than half way to a neighbour.
        while is_boundary(digits.text(), 25) && decimals < 9 {
            digits = Scratch::default();
            write!(digits, "{value:.decimals$e}").expect("so many digits fit the scratch buffer");
            decimals += 1;
        }
        layout(digits.text(), 6, out);
    }
}

fn write_special(value: f64, out: &mut BytesMut) -> bool {
    let name: &[u8] = if value.is_nan() {
        b"NaN"
    } else if value == f64::INFINITY {
        b"Infinity"
    } else if value == f64::NEG_INFINITY {
        b"-Infinity"
    } else if value == 0.0 {
        if value.is_sign_negative() { b"-0" } else { b"0" }
    } else {
        return false;
    };
    out.put_slice(name);
    true
}

/// A number's text on the stack.
#[derive(Default)]
struct Scratch {
    bytes: [u8; 32],
    length: usize,
}

impl Scratch {
    fn text(&self) -> &[u8] {
        &self.bytes[..self.length]
    }

    /// The same as a string; empty if it is none, which digits always are.
    fn str(&self) -> &str {
        std::str::from_utf8(self.text()).unwrap_or("")
    }
}

impl std::fmt::Write for Scratch {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        let end = self.length + text.len();
        let slot = self.bytes.get_mut(self.length..end).ok_or(std::fmt::Error)?;
        slot.copy_from_slice(text.as_bytes());
        self.length = end;
        Ok(())
    }
}

/// Whether a decimal lies exactly between two neighbouring numbers, which have one bit less than `bits`.
///
/// Such a decimal reads back right only where ties are known to go to the even neighbour. PostgreSQL does not count on
/// that, and writes more digits then: 1e23 is `9.999999999999999e+22`.
fn is_boundary(scientific: &[u8], bits: u32) -> bool {
    let (mantissa, mut exponent) = parts(scientific);
    let mut number: u128 = 0;
    for digit in mantissa.iter().filter(|byte| byte.is_ascii_digit()) {
        number = number * 10 + u128::from(digit - b'0');
    }
    exponent -= digit_count(scientific) as i32 - 1;
    // Only a number without a factor 1/5 has a finite binary form.
    while exponent < 0 && number > 0 && number.is_multiple_of(5) {
        number /= 5;
        exponent += 1;
    }
    if exponent < 0 || number == 0 {
        return false;
    }
    let Some(scaled) = 5_u128
        .checked_pow(exponent as u32)
        .and_then(|power| power.checked_mul(number))
    else {
        return false;
    };
    let odd = scaled >> scaled.trailing_zeros();
    u128::BITS - odd.leading_zeros() == bits
}

/// The digits of `-d.ddde-x` before its exponent.
fn digit_count(scientific: &[u8]) -> usize {
    let (mantissa, _) = parts(scientific);
    mantissa.iter().filter(|byte| byte.is_ascii_digit()).count()
}

/// The digits, with sign and point, and the exponent of `-d.ddde-x`.
fn parts(scientific: &[u8]) -> (&[u8], i32) {
    let e = scientific
        .iter()
        .position(|byte| *byte == b'e')
        .unwrap_or(scientific.len());
    let exponent = scientific.get(e + 1..).map_or(0, |digits| {
        let (negative, digits) = match digits.strip_prefix(b"-") {
            Some(digits) => (true, digits),
            None => (false, digits),
        };
        let value = digits
            .iter()
            .fold(0_i32, |sum, digit| sum * 10 + i32::from(digit - b'0'));
        if negative { -value } else { value }
    });
    (&scientific[..e], exponent)
}

/// Turns `-d.ddde-x` into plain digits where the exponent is at least -4 and less than `exponent_end`, else into
/// PostgreSQL's `d.ddde+xx`.
fn layout(scientific: &[u8], exponent_end: i32, out: &mut BytesMut) {
    let (mantissa, exponent) = parts(scientific);
    let (sign, rest) = match mantissa.strip_prefix(b"-") {
        Some(rest) => (&b"-"[..], rest),
        None => (&b""[..], mantissa),
    };
    let first = &rest[..1];
    let others = rest.get(2..).unwrap_or(b"");
    let significant = others.iter().rposition(|digit| *digit != b'0');
    let others = &others[..significant.map_or(0, |last| last + 1)];
    out.put_slice(sign);
    if (-4..exponent_end).contains(&exponent) {
        if exponent < 0 {
            out.put_slice(b"0.");
            for _ in 1..-exponent {
                out.put_u8(b'0');
            }
            out.put_slice(first);
            out.put_slice(others);
        } else {
            let whole = exponent as usize;
            out.put_slice(first);
            out.put_slice(&others[..whole.min(others.len())]);
            for _ in others.len()..whole {
                out.put_u8(b'0');
            }
            if others.len() > whole {
                out.put_u8(b'.');
                out.put_slice(&others[whole..]);
            }
        }
        return;
    }
    out.put_slice(first);
    if !others.is_empty() {
        out.put_u8(b'.');
        out.put_slice(others);
    }
    out.put_slice(if exponent < 0 { b"e-" } else { b"e+" });
    write!(out, "{:02}", exponent.unsigned_abs()).expect("a buffer grows as needed");
}

/// Reads a `double precision`.
pub fn read_float8(text: &str) -> Result<f64> {
    let value: f64 = read(text, "double precision")?;
    if value.is_infinite() || value == 0.0 {
        check_range(text, value.is_infinite(), "double precision")?;
    }
    Ok(value)
}

/// Reads a `real`.
pub fn read_float4(text: &str) -> Result<f32> {
    let value: f32 = read(text, "real")?;
    if value.is_infinite() || value == 0.0 {
        check_range(text, value.is_infinite(), "real")?;
    }
    Ok(value)
}

fn read<T: std::str::FromStr>(text: &str, kind: &str) -> Result<T> {
    let trimmed = text.trim_matches(|c: char| c.is_ascii_whitespace());
    // Rust reads `infinity`, `inf` and `nan` in any case too, but also a signed nan.
    let signed_nan = trimmed.len() == 4 && trimmed[1..].eq_ignore_ascii_case("nan");
    trimmed
        .parse()
        .ok()
        .filter(|_| !signed_nan)
        .ok_or_else(|| Error::semantic("22P02", format!("invalid input syntax for type {kind}: \"{text}\"")))
}

/// Refuses a number that became infinite or zero only because it does not fit.
fn check_range(text: &str, infinite: bool, kind: &str) -> Result<()> {
    let mantissa = text.split(['e', 'E']).next().unwrap_or(text);
    let overflowed = infinite && mantissa.bytes().any(|byte| byte.is_ascii_digit());
    let underflowed = !infinite && mantissa.bytes().any(|byte| (b'1'..=b'9').contains(&byte));
    if overflowed || underflowed {
        return Err(Error::semantic(
            "22003",
            format!("\"{}\" is out of range for type {kind}", text.trim()),
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn show8(value: f64) -> String {
        let mut out = BytesMut::new();
        write_float8(value, &mut out);
        String::from_utf8(out.to_vec()).unwrap()
    }

    fn show4(value: f32) -> String {
        let mut out = BytesMut::new();
        write_float4(value, &mut out);
        String::from_utf8(out.to_vec()).unwrap()
    }

    #[test]
    fn doubles_show_the_shortest_digits_in_postgresql_layout() {
        for (value, shows) in [
            (0.0, "0"),
            (-0.0, "-0"),
            (1.0, "1"),
            (0.1, "0.1"),
            (-1.5, "-1.5"),
            (100.0, "100"),
            (1e14, "100000000000000"),
            (123_456_789_012_345.6, "123456789012345.6"),
            (1e15, "1e+15"),
            (1e20, "1e+20"),
            (1e22, "1e+22"),
            (1e23, "9.999999999999999e+22"),
            (1.25e20, "1.25e+20"),
            (0.0001, "0.0001"),
            (1e-5, "1e-05"),
            (1.5e-300, "1.5e-300"),
            (f64::MAX, "1.7976931348623157e+308"),
            (5e-324, "5e-324"),
            (f64::NAN, "NaN"),
            (f64::INFINITY, "Infinity"),
            (f64::NEG_INFINITY, "-Infinity"),
        ] {
            assert_eq!(show8(value), shows);
        }
        assert_eq!(show4(0.1), "0.1");
        assert_eq!(show4(1e6), "1e+06");
        assert_eq!(show4(123_456.0), "123456");
        assert_eq!(show4(1e-5), "1e-05");
    }

    #[test]
    fn numbers_that_do_not_fit_are_refused() {
        assert_eq!(read_float8(" 1e3 ").unwrap(), 1000.0);
        assert_eq!(read_float8("-inf").unwrap(), f64::NEG_INFINITY);
        assert!(read_float8("nan").unwrap().is_nan());
        assert_eq!(read_float8("0.0").unwrap(), 0.0);
        let error = read_float8("1e400").unwrap_err();
        assert_eq!(error.message(), "\"1e400\" is out of range for type double precision");
        assert_eq!(read_float4("1e-60").unwrap_err().code(), "22003");
        for text in ["", "x", "1x", "+nan", "1e"] {
            assert_eq!(read_float8(text).unwrap_err().code(), "22P02", "{text}");
        }
    }
}
