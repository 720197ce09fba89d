//! Literals: numbers get PostgreSQL's types, texts one spelling, intervals one form.

use super::{call, cast, string};
use crate::sql::parser::fold;
use sqlparser::ast::{
    DataType, DateTimeField, ExactNumberInfo, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments,
    UnaryOperator, Value, ValueWithSpan,
};
use sqlparser::tokenizer::Span;

/// The ways to write a text, in one.
pub(super) fn plain_string(value: Value) -> Value {
    match value {
        Value::EscapedStringLiteral(text)
        | Value::UnicodeStringLiteral(text)
        | Value::NationalStringLiteral(text)
        | Value::DollarQuotedString(sqlparser::ast::DollarQuotedString { value: text, .. }) => {
            Value::SingleQuotedString(text)
        }
        other => other,
    }
}

/// `pg_typeof('a')`: what a literal is before anything has given it a type.
pub(super) fn is_type_of_literal(function: &Function) -> bool {
    let FunctionArguments::List(list) = &function.args else {
        return false;
    };
    function
        .name
        .0
        .last()
        .and_then(|part| part.as_ident())
        .map(fold)
        .as_deref()
        == Some("pg_typeof")
        && matches!(
            list.args.as_slice(),
            [FunctionArg::Unnamed(FunctionArgExpr::Expr(Expr::Value(
                ValueWithSpan {
                    value: Value::SingleQuotedString(_),
                    ..
                }
            )))]
        )
}

/// A number without its exponent, if it then has no more digits than a numeric.
fn without_exponent(number: &str) -> Option<String> {
    let (mantissa, exponent) = number.split_once(['e', 'E']).unwrap_or((number, "0"));
    let exponent: i32 = exponent.parse().ok()?;
    let (sign, mantissa) = match mantissa.strip_prefix('-') {
        Some(rest) => ("-", rest),
        None => ("", mantissa),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let point = i32::try_from(whole.len()).ok()?.checked_add(exponent)?;
    let mut digits = format!("{whole}{fraction}");
    if point.unsigned_abs() as usize > digits.len() + 2 * NUMERIC_DIGITS_MAX {
        return None;
    }
    if point <= 0 {
        digits.insert_str(0, &"0".repeat(point.unsigned_abs() as usize + 1));
    }
    let point = point.max(1) as usize;
    while digits.len() < point {
        digits.push('0');
    }
    let (whole, fraction) = digits.split_at(point);
    let whole = whole.trim_start_matches('0');
    if whole.len() + fraction.len() > NUMERIC_DIGITS_MAX {
        return None;
    }
    let whole = if whole.is_empty() { "0" } else { whole };
    let dot = if fraction.is_empty() { "" } else { "." };
    Some(format!("{sign}{whole}{dot}{fraction}"))
}

/// The digits that a numeric holds.
const NUMERIC_DIGITS_MAX: usize = 76;

/// The type of a number's literal: integer, bigint or numeric, whichever is the first to hold it.
pub(super) fn number(text: String, long: bool, span: Span) -> Expr {
    let value = |text: String| Expr::Value(Value::Number(text, long).with_span(span));
    let digits = text.replace('_', "");
    if digits.parse::<i32>().is_ok() {
        return cast(value(digits), DataType::Integer(None));
    }
    if digits.parse::<i64>().is_ok() {
        return value(digits);
    }
    let unsigned = digits.trim_start_matches('-').trim_start_matches('0');
    let is_whole = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if is_whole(unsigned) && unsigned.len() <= NUMERIC_DIGITS_MAX {
        let info = ExactNumberInfo::PrecisionAndScale(unsigned.len() as u64, 0);
        return cast(string(digits), DataType::Numeric(info));
    }
    match without_exponent(&digits) {
        Some(plain) => {
            let unsigned = plain.trim_start_matches('-');
            if is_whole(unsigned) {
                let info = ExactNumberInfo::PrecisionAndScale(unsigned.len() as u64, 0);
                return cast(string(plain), DataType::Numeric(info));
            }
            value(plain)
        }
        // Beyond a numeric's digits, an exponent makes a float; plain digits are refused when they are read.
        None if digits.contains(['e', 'E']) => cast(string(digits), DataType::DoublePrecision),
        None => cast(string(digits), DataType::Numeric(ExactNumberInfo::None)),
    }
}

pub(super) fn unary(op: UnaryOperator, expr: Expr, span: Span) -> Expr {
    match (op, expr) {
        (UnaryOperator::Plus, expr) => expr,
        (
            UnaryOperator::Minus,
            Expr::Cast {
                expr: inner, data_type, ..
            },
        ) if matches!(inner.as_ref(), Expr::Value(ValueWithSpan { value: Value::Number(text, _), .. }) if !text.starts_with('-'))
            && matches!(data_type, DataType::Integer(None)) =>
        {
            match *inner {
                Expr::Value(ValueWithSpan {
                    value: Value::Number(text, long),
                    span,
                }) => number(format!("-{text}"), long, span),
                other => other,
            }
        }
        (
            UnaryOperator::Minus,
            Expr::Value(ValueWithSpan {
                value: Value::Number(text, long),
                span,
            }),
        ) if !text.starts_with('-') => number(format!("-{text}"), long, span),
        (UnaryOperator::Minus, expr) => call("__negative", vec![expr], span),
        (UnaryOperator::BitwiseNot, expr) => call("__bitnot", vec![expr], span),
        (UnaryOperator::PGAbs, expr) => call("abs", vec![expr], span),
        (UnaryOperator::PGSquareRoot, expr) => call("sqrt", vec![expr], span),
        (UnaryOperator::PGCubeRoot, expr) => call("cbrt", vec![expr], span),
        (UnaryOperator::PGPrefixFactorial | UnaryOperator::PGPostfixFactorial, expr) => {
            call("factorial", vec![expr], span)
        }
        (op, expr) => Expr::UnaryOp {
            op,
            expr: Box::new(expr),
        },
    }
}

/// `INTERVAL '5' DAY` is a text read as an interval.
pub(super) fn interval_literal(interval: sqlparser::ast::Interval) -> Expr {
    let value = match *interval.value {
        Expr::Value(ValueWithSpan {
            value: Value::SingleQuotedString(text),
            ..
        }) => text,
        Expr::Cast { expr, .. } => match *expr {
            Expr::Value(ValueWithSpan {
                value: Value::Number(text, _),
                ..
            }) => text,
            other => {
                return cast(
                    other,
                    DataType::Interval {
                        fields: None,
                        precision: None,
                    },
                );
            }
        },
        other => {
            return cast(
                other,
                DataType::Interval {
                    fields: None,
                    precision: None,
                },
            );
        }
    };
    let bare = value.trim().trim_start_matches(['-', '+']);
    let is_number = !bare.is_empty() && bare.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    let text = match &interval.leading_field {
        Some(field) if is_number => format!("{value} {}", field_name(field)),
        _ => value,
    };
    cast(
        string(text),
        DataType::Interval {
            fields: None,
            precision: None,
        },
    )
}

/// EXTRACT by how many digits after the point its result has.
pub(super) fn extract_name(field: &str) -> &'static str {
    match field {
        "epoch" | "second" | "seconds" | "sec" | "secs" => "__extract6",
        "millisecond" | "milliseconds" | "msec" | "msecs" | "ms" => "__extract3",
        "julian" => "__extract_free",
        _ => "__extract0",
    }
}

pub(super) fn field_name(field: &DateTimeField) -> String {
    match field {
        DateTimeField::Custom(ident) => ident.value.to_lowercase(),
        other => other.to_string().trim_matches('\'').to_lowercase(),
    }
}

/// Whether an expression is a number as it was written, with the type that [`number`] gave it.
pub(super) fn is_number(expr: &Expr) -> bool {
    match expr {
        Expr::Cast { expr, .. } => is_number(expr),
        Expr::Value(value) => matches!(value.value, Value::Number(..)),
        _ => false,
    }
}
