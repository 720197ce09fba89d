//! DataFusion's errors in PostgreSQL's words.
//!
//! Our own errors travel through DataFusion as `DataFusionError::External` and come back whole. What DataFusion finds
//! itself is recognised by its kind, and by its text where the kind says too little; its own words never reach a
//! user: what is not recognised becomes a plain `0A000` or `XX000`.

mod text;

use crate::error::{Error, Kind};
use arrow::error::ArrowError;
use datafusion::common::{Column, DataFusionError, SchemaError};
use sqlparser::tokenizer::Location;
use text::from_text;

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

/// An error of ours on its way through DataFusion.
pub(crate) fn external(error: Error) -> DataFusionError {
    DataFusionError::External(Box::new(error))
}
