//! What DataFusion says, and what PostgreSQL says of the same.
//!
//! The first line of a table that fits is taken. Where a table's message has `{}`, it is filled with what stands
//! between two marks of DataFusion's text.

use super::shown;
use crate::error::{Error, Kind};

/// Said of a statement as a whole: a part of DataFusion's text, the code, the message.
const SAID: &[(&str, &str, &str)] = &[
    (
        "Aggregate function calls cannot be nested",
        "42803",
        "aggregate function calls cannot be nested",
    ),
    (
        "Order by index starts at 1",
        "42P10",
        "ORDER BY position 0 is not in select list",
    ),
    ("UNION field", "42804", "UNION types cannot be matched"),
    (
        "have different type in inputs",
        "42804",
        "UNION types cannot be matched",
    ),
    (
        "unnest() can only be applied to array",
        "42883",
        "function unnest(anyelement) does not exist",
    ),
    (
        "WITHIN GROUP is only supported for ordered-set",
        "42809",
        "WITHIN GROUP is for ordered-set aggregates only",
    ),
    (
        "start bound cannot be UNBOUNDED FOLLOWING",
        "42P20",
        "frame start cannot be UNBOUNDED FOLLOWING",
    ),
    (
        "end bound cannot be UNBOUNDED PRECEDING",
        "42P20",
        "frame end cannot be UNBOUNDED PRECEDING",
    ),
    (
        "GROUPS requires an ORDER BY",
        "42P20",
        "GROUPS mode requires an ORDER BY clause",
    ),
    (
        "RANGE requires exactly one ORDER BY column",
        "42P20",
        "RANGE with offset PRECEDING/FOLLOWING requires exactly one ORDER BY column",
    ),
    (
        "Aggregate functions are not allowed in the WHERE",
        "42803",
        "aggregate functions are not allowed in WHERE",
    ),
    (
        "UNION queries have different number of columns",
        "42601",
        "each UNION query must have the same number of columns",
    ),
    (
        "INTERSECT queries have different number of columns",
        "42601",
        "each INTERSECT query must have the same number of columns",
    ),
    (
        "EXCEPT queries have different number of columns",
        "42601",
        "each EXCEPT query must have the same number of columns",
    ),
    (
        "Inconsistent data length across values list",
        "42601",
        "VALUES lists must all be the same length",
    ),
    (
        "should only return one column",
        "42601",
        "subquery must return only one column",
    ),
    (
        "For SELECT DISTINCT, ORDER BY expressions",
        "42P10",
        "for SELECT DISTINCT, ORDER BY expressions must appear in select list",
    ),
    (
        "SELECT DISTINCT ON expressions must match",
        "42P10",
        "SELECT DISTINCT ON expressions must match initial ORDER BY expressions",
    ),
    (
        "SELECT * with no tables specified",
        "42601",
        "SELECT * with no tables specified is not valid",
    ),
    (
        "names given as column alias",
        "42P10",
        "more column aliases than columns",
    ),
];

/// Said of a name or a place: the marks before and after it, the code, the message.
const NAMED: &[(&str, &str, &str, &str)] = &[
    ("column \"", "\" must appear in the GROUP BY", "42803", NOT_GROUPED),
    (
        "HAVING clause references: ",
        " must appear in the GROUP BY",
        "42803",
        NOT_GROUPED,
    ),
    (
        "Order by column out of bounds, specified: ",
        ",",
        "42P10",
        "ORDER BY position {} is not in select list",
    ),
    (
        "The window ",
        " is defined multiple times",
        "42P20",
        "window \"{}\" is already defined",
    ),
    (
        "The window ",
        " is not defined",
        "42704",
        "window \"{}\" does not exist",
    ),
    (
        "Invalid qualifier ",
        "",
        "42P01",
        "missing FROM-clause entry for table \"{}\"",
    ),
    (
        "External error: ",
        " cannot be matched",
        "42804",
        "{} cannot be matched",
    ),
    ("Invalid function '", "'", "42883", "function {} does not exist"),
    (
        "There is no window function named ",
        "",
        "42883",
        "function {} does not exist",
    ),
    (
        "Cannot find column with position ",
        " ",
        "42P10",
        "position {} is not in select list",
    ),
    (
        "WITH query name \"",
        "\" specified more than once",
        "42712",
        "WITH query name \"{}\" specified more than once",
    ),
];

const NOT_GROUPED: &str = "column \"{}\" must appear in the GROUP BY clause or be used in an aggregate function";

/// Said of what we do not do: a part of DataFusion's text, the message, the hint if there is one.
const UNSUPPORTED: &[(&str, &str, &str)] = &[
    (
        "FILTER clause can only be used with aggregate window functions",
        "FILTER is not implemented for non-aggregate window functions",
        "",
    ),
    (
        "Correlated scalar subquery must be aggregated",
        "a correlated subquery that may return more than one row is not supported",
        "Aggregate it, for instance with max(), so that it returns at most one row.",
    ),
    (
        "Correlated column",
        "this form of correlated subquery is not supported",
        "Write it as a join.",
    ),
    (
        "outer reference",
        "this form of correlated subquery is not supported",
        "Write it as a join.",
    ),
    (
        "Recursive CTEs are not enabled",
        "WITH RECURSIVE is not supported",
        "Write out as many steps as you need.",
    ),
];

/// The text between two marks; the word after the first if there is no second.
fn between<'a>(text: &'a str, before: &str, after: &str) -> Option<&'a str> {
    let (_, rest) = text.split_once(before)?;
    if after.is_empty() {
        return rest.split_whitespace().next();
    }
    rest.split_once(after).map(|(inner, _)| inner)
}

/// What a text of DataFusion's means.
pub(super) fn from_text(text: &str, kind: Kind) -> Error {
    known_text(text).unwrap_or_else(|| match kind {
        Kind::Unsupported => Error::unsupported("this form of the statement is not supported"),
        Kind::Semantic => other_semantic(text),
        _ => {
            tracing::debug!(text, "an error of DataFusion's without a translation");
            Error::internal("the statement could not be carried out")
        }
    })
}

fn other_semantic(text: &str) -> Error {
    tracing::debug!(text, "an error of DataFusion's without a translation");
    if text.contains("does not support") || text.contains("not supported") || text.contains("not implemented") {
        Error::unsupported("this form of the statement is not supported")
    } else {
        Error::semantic("42804", "the types in the statement do not fit")
            .with_hint("You might need to add explicit type casts.")
    }
}

/// What DataFusion says of a statement, if it is known.
fn known_text(text: &str) -> Option<Error> {
    named(text)
        .or_else(|| missing_function(text))
        .or_else(|| said(text))
        .or_else(|| unsupported(text))
        .or_else(|| not_boolean(text))
        .or_else(|| known_row_text(text))
}

fn said(text: &str) -> Option<Error> {
    let (_, code, message) = SAID.iter().find(|(part, ..)| text.contains(part))?;
    Some(Error::semantic(code, *message))
}

fn named(text: &str) -> Option<Error> {
    NAMED.iter().find_map(|(before, after, code, message)| {
        let name = shown(between(text, before, after)?);
        Some(Error::semantic(code, message.replace("{}", name)))
    })
}

fn unsupported(text: &str) -> Option<Error> {
    let (_, message, hint) = UNSUPPORTED.iter().find(|(part, ..)| text.contains(part))?;
    let error = Error::unsupported(*message);
    Some(if hint.is_empty() { error } else { error.with_hint(*hint) })
}

/// A condition that is not one.
fn not_boolean(text: &str) -> Option<Error> {
    let (clause, before) = if text.contains("Unary operator 'NOT' requires a boolean") {
        ("NOT", "got ")
    } else if text.contains("non-boolean predicate") {
        ("WHERE", "returning ")
    } else {
        return None;
    };
    let kind = text.rsplit(before).next().unwrap_or("").split_whitespace().next();
    let kind = postgres_name(kind.unwrap_or(""));
    Some(Error::semantic(
        "42804",
        format!("argument of {clause} must be type boolean, not type {kind}"),
    ))
}

/// A function that is not there for these arguments.
fn missing_function(text: &str) -> Option<Error> {
    let missing = |shown: &str| {
        Error::semantic("42883", format!("function {shown} does not exist")).with_hint(
            "No function matches the given name and argument types. You might need to add explicit type casts.",
        )
    };
    // Ours, wrapped in DataFusion's account of all that it tried.
    if let Some(shown) = between(text, "External error: function ", " does not exist") {
        return Some(missing(shown));
    }
    let shown = between(
        text,
        "No function matches the given name and argument types '",
        "'. You",
    )?;
    let (name, types) = shown.split_once('(')?;
    let types: Vec<&str> = types
        .trim_end_matches(')')
        .split(", ")
        .filter(|name| !name.is_empty())
        .map(postgres_name)
        .collect();
    Some(missing(&format!("{name}({})", types.join(", "))))
}

/// The name in PostgreSQL of an Arrow type.
fn postgres_name(arrow: &str) -> &str {
    match arrow {
        "Boolean" => "boolean",
        "Int16" => "smallint",
        "Int32" => "integer",
        "Int64" | "UInt64" => "bigint",
        "Float32" => "real",
        "Float64" => "double precision",
        "Utf8" | "LargeUtf8" | "Utf8View" => "text",
        "Binary" | "BinaryView" => "bytea",
        "Date32" => "date",
        "Null" => "unknown",
        other if other.starts_with("Decimal") => "numeric",
        other if other.starts_with("Time64") => "time without time zone",
        other if other.starts_with("Interval") => "interval",
        other if other.starts_with("Timestamp") && other.contains("None") => "timestamp without time zone",
        other if other.starts_with("Timestamp") => "timestamp with time zone",
        other => other,
    }
}

/// What rows can cause while a statement runs.
fn known_row_text(text: &str) -> Option<Error> {
    let lower = text.to_ascii_lowercase();
    if lower.contains("divide by zero") || lower.contains("division by zero") {
        return Some(Error::semantic("22012", "division by zero"));
    }
    if lower.contains("overflow") || lower.contains("out of range") || lower.contains("too large to store") {
        return Some(Error::semantic("22003", "value out of range"));
    }
    if lower.contains("more than one row") || lower.contains("returned more than") {
        return Some(Error::semantic(
            "21000",
            "more than one row returned by a subquery used as an expression",
        ));
    }
    if lower.contains("cannot cast") || lower.contains("cannot parse") || lower.contains("error parsing") {
        return Some(Error::semantic("22P02", "invalid input syntax"));
    }
    if lower.contains("limit must be >= 0") {
        return Some(Error::semantic("2201W", "LIMIT must not be negative"));
    }
    if lower.contains("offset must be >=0") {
        return Some(Error::semantic("2201X", "OFFSET must not be negative"));
    }
    if lower.contains("placeholder") {
        return Some(Error::semantic("42P18", "could not determine data type of a parameter"));
    }
    None
}
