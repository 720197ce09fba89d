//! Operators that remember where they were written.
//!
//! The parser knows the places of an operator's operands but not the operator's own, and DataFusion loses both. While
//! spellings are rewritten each operator is given the place at which its left operand ends ([`at`]); should there be
//! no such operator for its operands' types, it is looked for behind that place.

use sqlparser::ast::BinaryOperator;
use sqlparser::tokenizer::Location;

/// Between an operator's symbol and its place.
const MARK: char = '\u{1}';

/// Over what an operator ranges: `x = ANY (array)`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Over {
    /// One value.
    One,
    /// Some element of an array.
    Any,
    /// All elements of an array.
    All,
}

/// An operator as it was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Written {
    /// Its symbol.
    pub(super) symbol: String,
    /// Over what it ranges.
    pub(super) over: Over,
    /// Where its left operand ends.
    pub(super) after: Option<Location>,
}

/// The operator with the place at which its left operand ends.
pub(super) fn at(op: BinaryOperator, after: Location) -> BinaryOperator {
    match op {
        BinaryOperator::And | BinaryOperator::Or => op,
        op if after.line == 0 => op,
        op => BinaryOperator::Custom(format!("{}{MARK}{}:{}", written(&op), after.line, after.column)),
    }
}

/// The operator of `x = ANY (array)`.
pub(super) fn quantified(over: &str, op: &BinaryOperator) -> BinaryOperator {
    BinaryOperator::Custom(format!("{over} {}", written(op)))
}

/// The symbol that PostgreSQL knows an operator by.
fn written(op: &BinaryOperator) -> String {
    match op {
        BinaryOperator::PGLikeMatch => "~~".to_owned(),
        BinaryOperator::PGILikeMatch => "~~*".to_owned(),
        BinaryOperator::PGNotLikeMatch => "!~~".to_owned(),
        BinaryOperator::PGNotILikeMatch => "!~~*".to_owned(),
        BinaryOperator::PGCustomBinaryOperator(parts) => parts.last().cloned().unwrap_or_default(),
        BinaryOperator::NotEq => "<>".to_owned(),
        other => other.to_string(),
    }
}

/// What an operator is.
pub(super) fn read(op: &BinaryOperator) -> Written {
    let text = written(op);
    let (symbol, after) = match text.split_once(MARK) {
        Some((symbol, place)) => (symbol, place.split_once(':')),
        None => (text.as_str(), None),
    };
    let after = after.and_then(|(line, column)| Some(Location::new(line.parse().ok()?, column.parse().ok()?)));
    let (over, symbol) = match symbol.split_once(' ') {
        Some(("any", symbol)) => (Over::Any, symbol),
        Some(("all", symbol)) => (Over::All, symbol),
        _ => (Over::One, symbol),
    };
    Written {
        symbol: symbol.to_owned(),
        over,
        after,
    }
}
