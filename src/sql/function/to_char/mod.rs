//! `to_char` and its way back: values written and read by a format such as `YYYY-MM-DD HH24:MI`.
//!
//! Formats of times are taken apart here, for [`time`] which writes by them and [`read`](mod@read) which reads; those of
//! numbers are a language of their own ([`number`]).

mod number;
mod read;
mod time;

pub(super) use number::{floats, numbers};
pub(super) use read::{read, read_date, read_number};
pub(super) use time::{dates, intervals, timestamps};

pub(super) const MONTHS: [&str; 12] = [
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
pub(super) const DAYS: [&str; 7] = [
    "Sunday",
    "Monday",
    "Tuesday",
    "Wednesday",
    "Thursday",
    "Friday",
    "Saturday",
];
pub(super) const ROMAN_MONTHS: [&str; 12] = ["I", "II", "III", "IV", "V", "VI", "VII", "VIII", "IX", "X", "XI", "XII"];

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
pub(super) enum Piece {
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
pub(super) enum Ordinal {
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

pub(super) fn pieces(format: &str) -> Vec<Piece> {
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

pub(super) fn ordinal(number: i64, style: Ordinal) -> &'static str {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_are_taken_apart() {
        assert_eq!(pieces("YYYY-MM").len(), 3);
        assert_eq!(pieces("HH24:MI:SS.US").len(), 7);
        assert_eq!(pieces("\"at\" FMDDth").len(), 2);
    }
}
