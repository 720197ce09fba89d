//! DataFusion's errors in PostgreSQL's words.
//!
//! Our own errors travel through DataFusion as `DataFusionError::External` and come back whole. What DataFusion finds
//! itself is recognised by its kind, and by its text where the kind says too little; its own words never reach a
//! user: what is not recognised becomes a plain `0A000` or `XX000`.

use crate::error::{Error, Kind};
use arrow::error::ArrowError;
use datafusion::common::{Column, DataFusionError, SchemaError};
use sqlparser::tokenizer::Location;

/// The error in PostgreSQL's words, without a position.
pub fn from_datafusion(error: DataFusionError) -> Error {
    with_location(error).0
}

/// The error, and where DataFusion says it is.
pub(crate) fn with_location(error: DataFusionError) -> (Error, Option<Location>) {
    match error {
        DataFusionError::External(inner) => match inner.downcast::<Error>() {
            Ok(own) => (*own, None),
            Err(other) => match other.downcast::<DataFusionError>() {
                Ok(nested) => with_location(*nested),
                Err(other) => (from_text(&other.to_string(), Kind::Internal), None),
            },
        },
        DataFusionError::ArrowError(inner, _) => (from_arrow(*inner), None),
        DataFusionError::Context(_, inner) => with_location(*inner),
        DataFusionError::Diagnostic(diagnostic, inner) => {
            let (error, location) = with_location(*inner);
            let span = diagnostic
                .span
                .map(|span| Location::new(span.start.line, span.start.column));
            (error, location.or(span))
        }
        DataFusionError::Collection(errors) => match errors.into_iter().next() {
            Some(first) => with_location(first),
            None => (Error::internal("an error without a reason"), None),
        },
        DataFusionError::Shared(shared) => match std::sync::Arc::try_unwrap(shared) {
            Ok(inner) => with_location(inner),
            Err(shared) => (from_shared(&shared), None),
        },
        DataFusionError::SchemaError(inner, _) => from_schema(&inner),
        DataFusionError::Plan(text) => (from_text(&text, Kind::Semantic), None),
        DataFusionError::NotImplemented(text) => (from_text(&text, Kind::Unsupported), None),
        DataFusionError::Execution(text) => (from_text(&text, Kind::Semantic), None),
        DataFusionError::ResourcesExhausted(_) => (
            Error::limit("53200", "out of memory").with_hint("Raise --memory-limit, or read less at once."),
            None,
        ),
        other => (from_text(&other.strip_backtrace(), Kind::Internal), None),
    }
}

/// An error that several readers hold, which can be looked at only.
fn from_shared(error: &DataFusionError) -> Error {
    match error {
        DataFusionError::External(inner) => match inner.downcast_ref::<Error>() {
            Some(own) => own.clone(),
            None => from_text(&inner.to_string(), Kind::Internal),
        },
        DataFusionError::Context(_, inner) | DataFusionError::Diagnostic(_, inner) => from_shared(inner),
        DataFusionError::ArrowError(inner, _) => match inner.as_ref() {
            ArrowError::ExternalError(inner) => match inner.downcast_ref::<Error>() {
                Some(own) => own.clone(),
                None => from_text(&inner.to_string(), Kind::Internal),
            },
            ArrowError::DivideByZero => Error::semantic("22012", "division by zero"),
            other => from_text(&other.to_string(), Kind::Semantic),
        },
        other => from_text(&other.strip_backtrace(), Kind::Semantic),
    }
}

fn from_arrow(error: ArrowError) -> Error {
    match error {
        ArrowError::ExternalError(inner) => match inner.downcast::<Error>() {
            Ok(own) => *own,
            Err(other) => match other.downcast::<DataFusionError>() {
                Ok(nested) => from_datafusion(*nested),
                Err(other) => from_text(&other.to_string(), Kind::Internal),
            },
        },
        ArrowError::DivideByZero => Error::semantic("22012", "division by zero"),
        other => from_text(&other.to_string(), Kind::Semantic),
    }
}

/// A column's name as messages show it.
fn column_name(column: &Column) -> String {
    let name = shown(&column.name);
    match &column.relation {
        Some(relation) => format!("{}.{name}", relation.table()),
        None => name.to_owned(),
    }
}

fn from_schema(error: &SchemaError) -> (Error, Option<Location>) {
    let location = |column: &Column| {
        column
            .spans()
            .first()
            .map(|span| Location::new(span.start.line, span.start.column))
    };
    match error {
        SchemaError::AmbiguousReference { field } => (
            Error::semantic(
                "42702",
                format!("column reference \"{}\" is ambiguous", shown(&field.name)),
            ),
            location(field),
        ),
        SchemaError::FieldNotFound { field, valid_fields } => (column_not_found(field, valid_fields), location(field)),
        SchemaError::DuplicateQualifiedField { name, .. } | SchemaError::DuplicateUnqualifiedField { name } => (
            Error::semantic("42702", format!("column reference \"{}\" is ambiguous", shown(name))),
            None,
        ),
    }
}

/// `column "x" does not exist`, or the table before it if that is what is missing.
pub(crate) fn column_not_found(field: &Column, valid_fields: &[Column]) -> Error {
    let Some(relation) = &field.relation else {
        return Error::semantic("42703", format!("column \"{}\" does not exist", shown(&field.name)));
    };
    let known = valid_fields.iter().any(|valid| {
        valid
            .relation
            .as_ref()
            .is_some_and(|valid| valid.table() == relation.table())
    });
    if known {
        Error::semantic("42703", format!("column {} does not exist", column_name(field)))
    } else {
        Error::semantic(
            "42P01",
            format!("missing FROM-clause entry for table \"{}\"", relation.table()),
        )
    }
}

/// A name without what the binder adds to keep equal names apart.
pub(crate) fn shown(name: &str) -> &str {
    name.split('\u{1}').next().unwrap_or(name)
}

/// The text between two marks.
fn between<'a>(text: &'a str, before: &str, after: &str) -> Option<&'a str> {
    let (_, rest) = text.split_once(before)?;
    rest.split_once(after).map(|(inner, _)| inner)
}

/// What a text of DataFusion's means.
fn from_text(text: &str, kind: Kind) -> Error {
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

fn known_text(text: &str) -> Option<Error> {
    let semantic = |code, message: String| Some(Error::semantic(code, message));
    if let Some(column) = between(text, "column \"", "\" must appear in the GROUP BY") {
        let column = shown(column);
        return semantic(
            "42803",
            format!("column \"{column}\" must appear in the GROUP BY clause or be used in an aggregate function"),
        );
    }
    if text.contains("HAVING clause references") {
        let column = between(text, "references: ", " must appear").map(shown).unwrap_or("");
        return semantic(
            "42803",
            format!("column \"{column}\" must appear in the GROUP BY clause or be used in an aggregate function"),
        );
    }
    if let Some(error) = missing_function(text) {
        return Some(error);
    }
    if text.contains("Aggregate function calls cannot be nested") {
        return semantic("42803", "aggregate function calls cannot be nested".to_owned());
    }
    if let Some(position) = between(text, "Order by column out of bounds, specified: ", ",") {
        return semantic("42P10", format!("ORDER BY position {position} is not in select list"));
    }
    if text.contains("Order by index starts at 1") {
        return semantic("42P10", "ORDER BY position 0 is not in select list".to_owned());
    }
    if text.contains("is defined multiple times") {
        let name = between(text, "The window ", " is defined").unwrap_or("");
        return semantic("42P20", format!("window \"{name}\" is already defined"));
    }
    if text.contains("UNION field") || text.contains("have different type in inputs") {
        return semantic("42804", "UNION types cannot be matched".to_owned());
    }
    if text.contains("FILTER clause can only be used with aggregate window functions") {
        return Some(Error::unsupported(
            "FILTER is not implemented for non-aggregate window functions",
        ));
    }
    if text.contains("WITHIN GROUP is only supported for ordered-set") {
        return semantic("42809", "WITHIN GROUP is for ordered-set aggregates only".to_owned());
    }
    if text.contains("start bound cannot be UNBOUNDED FOLLOWING") {
        return semantic("42P20", "frame start cannot be UNBOUNDED FOLLOWING".to_owned());
    }
    if text.contains("end bound cannot be UNBOUNDED PRECEDING") {
        return semantic("42P20", "frame end cannot be UNBOUNDED PRECEDING".to_owned());
    }
    if text.contains("GROUPS requires an ORDER BY") {
        return semantic("42P20", "GROUPS mode requires an ORDER BY clause".to_owned());
    }
    if text.contains("RANGE requires exactly one ORDER BY column") {
        return semantic(
            "42P20",
            "RANGE with offset PRECEDING/FOLLOWING requires exactly one ORDER BY column".to_owned(),
        );
    }
    if text.contains("Aggregate functions are not allowed in the WHERE") {
        return semantic("42803", "aggregate functions are not allowed in WHERE".to_owned());
    }
    if let Some(name) = between(text, "Invalid function '", "'") {
        return semantic("42883", format!("function {name} does not exist"));
    }
    if let Some(name) = text.split("There is no window function named ").nth(1) {
        let name = name.split_whitespace().next().unwrap_or("");
        return semantic("42883", format!("function {name} does not exist"));
    }
    if let Some(op) = ["UNION", "INTERSECT", "EXCEPT"]
        .iter()
        .find(|op| text.contains(&format!("{op} queries have different number of columns")))
    {
        return semantic("42601", format!("each {op} query must have the same number of columns"));
    }
    if text.contains("Inconsistent data length across values list") {
        return semantic("42601", "VALUES lists must all be the same length".to_owned());
    }
    if text.contains("Correlated scalar subquery must be aggregated") {
        return Some(
            Error::unsupported("a correlated subquery that may return more than one row is not supported")
                .with_hint("Aggregate it, for instance with max(), so that it returns at most one row."),
        );
    }
    if text.contains("Correlated column") || text.contains("outer reference") {
        return Some(
            Error::unsupported("this form of correlated subquery is not supported").with_hint("Write it as a join."),
        );
    }
    if text.contains("subquery should only return one column") || text.contains("should only return one column") {
        return semantic("42601", "subquery must return only one column".to_owned());
    }
    if text.contains("Unary operator 'NOT' requires a boolean") {
        let kind = text.rsplit("got ").next().unwrap_or("").split_whitespace().next();
        let kind = postgres_name(kind.unwrap_or(""));
        return semantic(
            "42804",
            format!("argument of NOT must be type boolean, not type {kind}"),
        );
    }
    if text.contains("non-boolean predicate") {
        let kind = text.rsplit("returning ").next().unwrap_or("").split_whitespace().next();
        let kind = postgres_name(kind.unwrap_or(""));
        return semantic(
            "42804",
            format!("argument of WHERE must be type boolean, not type {kind}"),
        );
    }
    if let Some(position) = between(text, "Cannot find column with position ", " ") {
        return semantic("42P10", format!("position {position} is not in select list"));
    }
    if text.contains("For SELECT DISTINCT, ORDER BY expressions") {
        return semantic(
            "42P10",
            "for SELECT DISTINCT, ORDER BY expressions must appear in select list".to_owned(),
        );
    }
    if text.contains("SELECT DISTINCT ON expressions must match") {
        return semantic(
            "42P10",
            "SELECT DISTINCT ON expressions must match initial ORDER BY expressions".to_owned(),
        );
    }
    if text.contains("SELECT * with no tables specified") {
        return semantic("42601", "SELECT * with no tables specified is not valid".to_owned());
    }
    if let Some(name) = between(text, "WITH query name \"", "\" specified more than once") {
        return semantic("42712", format!("WITH query name \"{name}\" specified more than once"));
    }
    if text.contains("Recursive CTEs are not enabled") {
        return Some(
            Error::unsupported("WITH RECURSIVE is not supported").with_hint("Write out as many steps as you need."),
        );
    }
    if let Some(name) = between(text, "The window ", " is not defined") {
        return semantic("42704", format!("window \"{name}\" does not exist"));
    }
    if text.contains("names given as column alias") {
        return semantic("42P10", "more column aliases than columns".to_owned());
    }
    known_row_text(text)
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

/// An error of ours on its way through DataFusion.
pub(crate) fn external(error: Error) -> DataFusionError {
    DataFusionError::External(Box::new(error))
}
