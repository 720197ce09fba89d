//! Numbers as text in a format such as `9,999.00`, digit by digit as PostgreSQL writes them.
//!
//! A format is taken apart into [`Node`]s and a [`Template`] that says of all of them together how many digits stand
//! where. The number is rounded to that many digits, and a [`Writer`] goes through the nodes with the digits at hand.

use super::super::datetime::formatted;
use super::super::decimal::{Exacts, nearest_float, power_of_ten, rescale};
use super::super::definition::Call;
use super::{Ordinal, ordinal};
use crate::error::{Error, Result};
use crate::types::numeric::{Digits, write_decimal};
use arrow::array::{ArrayRef, AsArray};
use arrow::datatypes::{Float64Type, i256};

/// The digits that a double is sure of.
const FLOAT_DIGITS: usize = 15;

/// A piece of a format.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Node {
    Nine,
    Zero,
    Point,
    Comma,
    Currency,
    Minus,
    Plus,
    Sign,
    Ordinal(Ordinal),
    /// Whether in lower case.
    Roman(bool),
    /// What has its effect on the whole, and writes nothing itself.
    Nothing,
    Character(char),
}

/// Where `S` writes the sign.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
enum LocaleSign {
    #[default]
    None,
    Before,
    After,
}

/// What the pieces of a format say together.
#[derive(Debug, Clone, Default)]
struct Template {
    before: usize,
    after: usize,
    shift: usize,
    /// The slot from which zeros are written, counted from 1; 0 where there is none.
    zero_start: usize,
    zero_end: usize,
    sign: LocaleSign,
    digits_before_sign: usize,
    fill_mode: bool,
    zero: bool,
    decimal: bool,
    minus: bool,
    plus: bool,
    brackets: bool,
    multiply: bool,
    exponent: bool,
    roman: bool,
}

fn invalid(message: &str) -> Error {
    Error::syntax(message)
}

/// The keyword at the start of a text, in either case of letters, and its length.
fn keyword(rest: &str) -> Option<(&'static str, usize)> {
    const KEYWORDS: &[&str] = &[
        "EEEE", "FM", "MI", "PL", "PR", "RN", "SG", "SP", "TH", ",", ".", "0", "9", "B", "C", "D", "G", "L", "S", "V",
    ];
    KEYWORDS
        .iter()
        .find(|keyword| {
            rest.get(..keyword.len()).is_some_and(|start| {
                start.eq_ignore_ascii_case(keyword)
                    && (start.chars().all(char::is_uppercase)
                        || start.chars().all(char::is_lowercase)
                        || !start.starts_with(char::is_alphabetic))
            })
        })
        .map(|keyword| (*keyword, keyword.len()))
}

fn parse(format: &str) -> Result<(Vec<Node>, Template)> {
    let (mut nodes, mut template) = (Vec::new(), Template::default());
    let mut rest = format;
    while let Some(c) = rest.chars().next() {
        if let Some((word, length)) = keyword(rest) {
            let is_lower = rest.starts_with(char::is_lowercase);
            nodes.push(template.take(word, is_lower)?);
            rest = &rest[length..];
            continue;
        }
        rest = &rest[c.len_utf8()..];
        if c == '"' {
            let mut chars = rest.chars();
            while let Some(c) = chars.next() {
                match c {
                    '"' => break,
                    '\\' => nodes.extend(chars.next().map(Node::Character)),
                    other => nodes.push(Node::Character(other)),
                }
            }
            rest = chars.as_str();
        } else if c == '\\' && rest.starts_with('"') {
            nodes.push(Node::Character('"'));
            rest = &rest[1..];
        } else {
            nodes.push(Node::Character(c));
        }
    }
    Ok((nodes, template))
}

impl Template {
    /// Takes a keyword in.
    fn take(&mut self, word: &str, is_lower: bool) -> Result<Node> {
        if self.exponent && word != "EEEE" {
            return Err(invalid("\"EEEE\" must be the last pattern used"));
        }
        Ok(match word {
            "9" | "0" => self.digit(word)?,
            "." | "D" => self.point()?,
            "," | "G" => Node::Comma,
            "L" => Node::Currency,
            "FM" => {
                self.fill_mode = true;
                Node::Nothing
            }
            "S" => self.locale_sign()?,
            "MI" | "PL" | "SG" => {
                if self.sign != LocaleSign::None {
                    return Err(invalid(&format!("cannot use \"S\" and \"{word}\" together")));
                }
                self.minus |= word != "PL";
                self.plus |= word != "MI";
                match word {
                    "MI" => Node::Minus,
                    "PL" => Node::Plus,
                    _ => Node::Sign,
                }
            }
            "PR" => {
                if self.sign != LocaleSign::None || self.plus || self.minus {
                    return Err(invalid("cannot use \"PR\" and \"S\"/\"PL\"/\"MI\"/\"SG\" together"));
                }
                self.brackets = true;
                Node::Nothing
            }
            "RN" => {
                self.roman = true;
                Node::Roman(is_lower)
            }
            "TH" => Node::Ordinal(if is_lower { Ordinal::Lower } else { Ordinal::Upper }),
            "V" => {
                if self.decimal {
                    return Err(invalid("cannot use \"V\" and decimal point together"));
                }
                self.multiply = true;
                Node::Nothing
            }
            "EEEE" => {
                let others = self.fill_mode || self.brackets || self.minus || self.plus || self.roman || self.multiply;
                if self.exponent {
                    return Err(invalid("cannot use \"EEEE\" twice"));
                }
                if others || self.sign != LocaleSign::None {
                    return Err(invalid("\"EEEE\" is incompatible with other formats")
                        .with_detail("\"EEEE\" may only be used together with digit and decimal point patterns."));
                }
                self.exponent = true;
                Node::Nothing
            }
            _ => Node::Nothing,
        })
    }

    fn digit(&mut self, word: &str) -> Result<Node> {
        if self.brackets {
            return Err(invalid(&format!("\"{word}\" must be ahead of \"PR\"")));
        }
        if word == "9" {
            match (self.multiply, self.decimal) {
                (true, _) => self.shift += 1,
                (_, true) => self.after += 1,
                _ => self.before += 1,
            }
            return Ok(Node::Nine);
        }
        if !self.zero && !self.decimal {
            self.zero = true;
            self.zero_start = self.before + 1;
        }
        if self.decimal {
            self.after += 1;
        } else {
            self.before += 1;
        }
        self.zero_end = self.before + self.after;
        Ok(Node::Zero)
    }

    fn point(&mut self) -> Result<Node> {
        if self.decimal {
            return Err(invalid("multiple decimal points"));
        }
        if self.multiply {
            return Err(invalid("cannot use \"V\" and decimal point together"));
        }
        self.decimal = true;
        Ok(Node::Point)
    }

    fn locale_sign(&mut self) -> Result<Node> {
        if self.sign != LocaleSign::None {
            return Err(invalid("cannot use \"S\" twice"));
        }
        if self.plus || self.minus || self.brackets {
            return Err(invalid("cannot use \"S\" and \"PL\"/\"MI\"/\"SG\"/\"PR\" together"));
        }
        if self.decimal {
            self.sign = LocaleSign::After;
        } else {
            self.sign = LocaleSign::Before;
            self.digits_before_sign = self.before;
        }
        Ok(Node::Nothing)
    }
}

/// A number's sign and digits, as many as a template has places for.
struct Number {
    is_negative: bool,
    digits: Vec<u8>,
    /// Blanks before the first digit.
    blanks: usize,
}

impl Number {
    /// Digits in a template: all `#` if they do not fit.
    fn new(is_negative: bool, digits: String, template: &Template) -> Self {
        let whole = digits.find('.').unwrap_or(digits.len());
        let mut digits = digits.into_bytes();
        if whole > template.before {
            digits = vec![b'#'; template.before + template.after + 1];
            digits[template.before] = b'.';
        }
        Self {
            is_negative,
            digits,
            blanks: template.before.saturating_sub(whole),
        }
    }

    fn is_positive(&self) -> bool {
        !self.is_negative
    }
}

/// Writes a number node by node.
struct Writer<'a> {
    template: &'a Template,
    number: &'a Number,
    sign: LocaleSign,
    brackets: bool,
    sign_is_written: bool,
    /// The digit after which those of the fraction are dropped (`FM`).
    last_relevant: Option<usize>,
    slots: usize,
    slot: usize,
    /// The next digit.
    at: usize,
    is_in_number: bool,
    output: &'a mut String,
}

impl<'a> Writer<'a> {
    fn new(template: &'a Template, number: &'a Number, output: &'a mut String) -> Self {
        let fill_mode = template.fill_mode;
        let mut sign = template.sign;
        let sign_is_written = if template.plus || template.minus {
            !template.plus || template.minus
        } else {
            if sign == LocaleSign::Before && template.before == template.digits_before_sign {
                sign = LocaleSign::After;
            }
            number.is_positive() && fill_mode && template.sign == LocaleSign::None
        };
        let mut slots = (template.after + template.before).saturating_sub(1);
        if !sign_is_written && number.blanks == 0 {
            slots += 1;
        }
        Self {
            template,
            number,
            sign,
            brackets: template.brackets && !(number.is_positive() && fill_mode),
            sign_is_written,
            last_relevant: (fill_mode && template.decimal)
                .then(|| last_relevant(template, number))
                .flatten(),
            slots,
            slot: 0,
            at: 0,
            is_in_number: false,
            output,
        }
    }

    fn node(&mut self, node: Node) {
        let fill_mode = self.template.fill_mode;
        match node {
            Node::Nine | Node::Zero | Node::Point => self.digit(node),
            Node::Comma if self.is_in_number => self.output.push(','),
            Node::Comma if fill_mode => {}
            Node::Comma | Node::Currency => self.output.push(' '),
            Node::Minus if self.number.is_negative => self.output.push('-'),
            Node::Plus if self.number.is_positive() => self.output.push('+'),
            Node::Minus | Node::Plus if fill_mode => {}
            Node::Minus | Node::Plus => self.output.push(' '),
            Node::Sign => self.output.push(self.sign_character()),
            Node::Ordinal(style) => {
                let digits = std::str::from_utf8(&self.number.digits).unwrap_or("");
                if self.number.is_positive()
                    && !self.template.decimal
                    && let Ok(number) = digits.parse::<i128>()
                {
                    self.output.push_str(ordinal((number % 100) as i64, style));
                }
            }
            Node::Roman(_) | Node::Nothing => {}
            Node::Character(c) => self.output.push(c),
        }
    }

    fn sign_character(&self) -> char {
        if self.number.is_negative { '-' } else { '+' }
    }

    /// Whether the zero before the point is left out: `9.9` writes 0.1 as `.1`.
    fn hides_zero(&self) -> bool {
        !self.template.zero && self.at == 0 && self.number.digits.first() == Some(&b'0') && self.template.after != 0
    }

    fn relevant_is_point(&self) -> bool {
        self.last_relevant
            .is_some_and(|at| self.number.digits.get(at) == Some(&b'.'))
    }

    fn leading_sign(&mut self) {
        let zero_begins = self.template.zero && self.template.zero_start.saturating_sub(1) == self.slot;
        let begins = self.slot >= self.number.blanks || zero_begins;
        if self.sign_is_written || !begins || (self.hides_zero() && !self.relevant_is_point()) {
            return;
        }
        let positive = self.number.is_positive();
        if self.template.sign != LocaleSign::None {
            if self.sign == LocaleSign::Before {
                self.output.push(self.sign_character());
                self.sign_is_written = true;
            }
            return;
        }
        if self.brackets {
            self.output.push(if positive { ' ' } else { '<' });
        } else if !positive {
            self.output.push('-');
        } else if !self.template.fill_mode {
            self.output.push(' ');
        }
        self.sign_is_written = true;
    }

    fn digit(&mut self, node: Node) {
        self.is_in_number = false;
        self.leading_sign();
        let fill_mode = self.template.fill_mode;
        let zero_begun = self.template.zero && self.template.zero_start.saturating_sub(1) <= self.slot;
        if self.slot < self.number.blanks && !zero_begun {
            if !fill_mode {
                self.output.push(' ');
            }
        } else if self.slot < self.number.blanks {
            self.output.push('0');
            self.is_in_number = true;
        } else {
            self.next_digit(node);
        }
        let mut end = self.slots + usize::from(self.number.blanks > 0) + usize::from(self.template.decimal);
        if self.last_relevant == Some(self.at) {
            end = self.slot;
        }
        if self.slot + 1 == end {
            if self.sign_is_written && self.brackets {
                self.output.push(if self.number.is_positive() { ' ' } else { '>' });
            } else if self.template.sign != LocaleSign::None && self.sign == LocaleSign::After {
                self.output.push(self.sign_character());
            }
        }
        self.slot += 1;
    }

    fn next_digit(&mut self, node: Node) {
        match self.number.digits.get(self.at) {
            Some(b'.') => self.output.push('.'),
            digit => {
                let is_dropped = self.last_relevant.is_some_and(|last| self.at > last) && node != Node::Zero;
                if is_dropped {
                } else if self.hides_zero() {
                    if !self.template.fill_mode {
                        self.output.push(' ');
                    } else if self.relevant_is_point() {
                        self.output.push('0');
                    }
                } else {
                    self.output.extend(digit.map(|digit| char::from(*digit)));
                    self.is_in_number = true;
                }
            }
        }
        if self.at < self.number.digits.len() {
            self.at += 1;
        }
    }
}

/// The last digit of the fraction that is no zero, or the point; zeros that the format asks for count.
fn last_relevant(template: &Template, number: &Number) -> Option<usize> {
    let point = number.digits.iter().position(|digit| *digit == b'.')?;
    let last = number.digits.iter().rposition(|digit| *digit != b'0').unwrap_or(point);
    let last = last.max(point);
    if template.zero_end <= number.blanks {
        return Some(last);
    }
    let zero = (number.digits.len() - 1).min(template.zero_end - number.blanks);
    Some(last.max(zero))
}

/// Writes a number whose digits are in place.
fn write(nodes: &[Node], template: &Template, number: &Number, output: &mut String) {
    let mut writer = Writer::new(template, number, output);
    for node in nodes {
        writer.node(*node);
    }
}

fn write_roman(nodes: &[Node], template: &Template, number: Option<i64>, output: &mut String) {
    const NUMERALS: [(i64, &str); 13] = [
        (1000, "M"),
        (900, "CM"),
        (500, "D"),
        (400, "CD"),
        (100, "C"),
        (90, "XC"),
        (50, "L"),
        (40, "XL"),
        (10, "X"),
        (9, "IX"),
        (5, "V"),
        (4, "IV"),
        (1, "I"),
    ];
    let mut text = String::new();
    match number.filter(|number| (1..=3999).contains(number)) {
        Some(mut rest) => {
            for (value, numeral) in NUMERALS {
                while rest >= value {
                    text.push_str(numeral);
                    rest -= value;
                }
            }
        }
        None => text = "#".repeat(15),
    }
    for node in nodes {
        match node {
            Node::Roman(is_lower) => {
                let text = if *is_lower { text.to_lowercase() } else { text.clone() };
                let width = if template.fill_mode { 0 } else { 15 };
                output.push_str(&format!("{text:>width$}"));
            }
            Node::Character(c) => output.push(*c),
            _ => {}
        }
    }
}

/// `1.25e+01`, a blank for the sign of what is not negative.
fn write_exponent(value: f64, digits: usize, output: &mut String) {
    let text = format!("{value:.digits$e}");
    let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let blank = if mantissa.starts_with('-') { "" } else { " " };
    let sign = if exponent < 0 { '-' } else { '+' };
    output.push_str(&format!("{blank}{mantissa}e{sign}{:02}", exponent.abs()));
}

/// `to_char(numeric, format)`.
pub(in crate::sql::function) fn numbers(call: &Call<'_>) -> Result<ArrayRef> {
    let (values, scale) = Exacts::of(&call.arguments[0])?;
    formatted(call, |row, format, output| {
        let (nodes, mut template) = parse(format)?;
        let value = values.value(row);
        if template.roman {
            let whole = rescale(value, scale, 0).and_then(i256::to_i128);
            let whole = whole.and_then(|whole| i64::try_from(whole).ok());
            write_roman(&nodes, &template, whole, output);
            return Ok(Some(()));
        }
        if template.exponent {
            write_exponent(nearest_float(value, scale), template.after, output);
            return Ok(Some(()));
        }
        let shifted = power_of_ten(template.shift as i32).and_then(|power| value.checked_mul(power));
        let shifted = shifted.unwrap_or(value);
        template.before += template.shift;
        let places = template.after.min(76) as i8;
        let rounded = rescale(shifted, scale, places).unwrap_or(shifted);
        let mut digits = bytes::BytesMut::new();
        write_decimal(rounded.wrapping_abs(), places, Digits::Fixed(places), &mut digits);
        let digits = String::from_utf8_lossy(&digits).into_owned();
        let number = Number::new(rounded.is_negative(), digits, &template);
        write(&nodes, &template, &number, output);
        Ok(Some(()))
    })
}

/// `to_char(double precision, format)`.
pub(in crate::sql::function) fn floats(call: &Call<'_>) -> Result<ArrayRef> {
    let values = call.arguments[0].as_primitive::<Float64Type>();
    formatted(call, |row, format, output| {
        let (nodes, mut template) = parse(format)?;
        let value = values.value(row);
        if template.roman {
            let whole = value.round_ties_even();
            let whole = (whole.abs() < 1e6).then_some(whole as i64);
            write_roman(&nodes, &template, whole, output);
            return Ok(Some(()));
        }
        if !value.is_finite() {
            let digits = vec![b'#'; template.before + template.after + 1];
            let mut number = Number {
                is_negative: value < 0.0,
                digits,
                blanks: 0,
            };
            number.digits[template.before] = b'.';
            write(&nodes, &template, &number, output);
            return Ok(Some(()));
        }
        if template.exponent {
            write_exponent(value, template.after, output);
            return Ok(Some(()));
        }
        let shifted = value * 10_f64.powi(template.shift as i32);
        template.before += template.shift;
        // A double is written to the digits that it is sure of.
        let whole = format!("{:.0}", shifted.abs()).len();
        template.after = template.after.min(FLOAT_DIGITS.saturating_sub(whole));
        let digits = format!("{:.*}", template.after, shifted.abs());
        let number = Number::new(shifted < 0.0, digits, &template);
        write(&nodes, &template, &number, output);
        Ok(Some(()))
    })
}
