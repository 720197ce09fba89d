//! Functions in FROM: what a view left out, what a stream could not read, and a few of PostgreSQL's.

use super::Facts;
use super::name;
use super::provider::Provider;
use super::sheet::{Cell, column};
use crate::delta::batch_of;
use crate::error::{Error, Result};
use crate::types::{Nullability, Type};
use arrow::array::RecordBatch;
use arrow::datatypes::{Schema, SchemaRef};
use datafusion::common::ScalarValue;
use datafusion::datasource::provider_as_source;
use datafusion::logical_expr::{Expr, TableSource};
use std::sync::Arc;

/// The relation that a call gives; `None` if there is no function of that name.
pub(super) fn call(facts: &Arc<Facts>, name: &str, arguments: &[Expr]) -> Option<Result<Arc<dyn TableSource>>> {
    match name {
        "row_errors" | "decode_errors" | "late_rows" => Some(faults(facts, name, arguments)),
        "pg_get_keywords" => Some(Ok(keywords())),
        "pg_options_to_table" => Some(Ok(fixed(name, &["option_name", "option_value"], Vec::new()))),
        "pg_listening_channels" => Some(Ok(fixed(name, &["pg_listening_channels"], Vec::new()))),
        _ => None,
    }
}

fn schema(columns: &[(&str, Type)]) -> SchemaRef {
    Arc::new(Schema::new(
        columns
            .iter()
            .map(|(name, kind)| kind.field(*name, Nullability::Nullable))
            .collect::<Vec<_>>(),
    ))
}

fn source(provider: Provider) -> Arc<dyn TableSource> {
    provider_as_source(Arc::new(provider))
}

/// A relation of texts that is always the same.
fn fixed(name: &str, columns: &[&'static str], rows: Vec<Vec<Cell>>) -> Arc<dyn TableSource> {
    let typed: Vec<(&str, Type)> = columns.iter().map(|column| (*column, Type::Text)).collect();
    let schema = schema(&typed);
    let own = schema.clone();
    source(Provider::of_function(name, schema, move || {
        let columns = (0..own.fields().len())
            .map(|index| {
                let cells: Vec<Cell> = rows.iter().map(|row| row[index].clone()).collect();
                column(&Type::Text, &cells)
            })
            .collect::<Result<Vec<_>>>()?;
        batch_of(own.clone(), columns, rows.len())
    }))
}

/// `pg_get_keywords()`.
fn keywords() -> Arc<dyn TableSource> {
    let rows = include_str!("pg_catalog/keywords.txt")
        .lines()
        .map(|line| {
            let mut words = line.split(' ');
            let word = words.next().unwrap_or_default();
            let (code, described) = match words.next().unwrap_or_default() {
                "R" => ("R", "reserved"),
                "T" => ("T", "reserved (can be function or type name)"),
                "C" => ("C", "unreserved (cannot be function or type name)"),
                _ => ("U", "unreserved"),
            };
            let (label, label_described) = match words.next() {
                Some("true") => ("true", "can be bare label"),
                _ => ("false", "requires AS"),
            };
            [word, code, label, described, label_described].map(Cell::from).to_vec()
        })
        .collect();
    fixed(
        "pg_get_keywords",
        &["word", "catcode", "barelabel", "catdesc", "baredesc"],
        rows,
    )
}

/// The name that the one argument is.
fn named(name: &str, arguments: &[Expr]) -> Result<String> {
    match arguments {
        [Expr::Literal(ScalarValue::Utf8(Some(text)), _)] => Ok(text.clone()),
        _ => Err(
            Error::semantic("42883", format!("{name}() takes the name of a relation"))
                .with_hint(format!("Write {name}('view').")),
        ),
    }
}

/// `row_errors('view')` and `decode_errors('stream')`; `late_rows('view')`, of which there are none.
fn faults(facts: &Arc<Facts>, function: &str, arguments: &[Expr]) -> Result<Arc<dyn TableSource>> {
    let text = named(function, arguments)?;
    let missing = || Error::semantic("42P01", format!("relation \"{text}\" does not exist"));
    let number = name::relation_oid(facts, &text)?.ok_or_else(missing)?;
    let relation = facts
        .catalog
        .relations
        .values()
        .find(|relation| i64::from(relation.id.0) == number);
    let relation = relation.ok_or_else(missing)?.clone();
    let wanted = if function == "decode_errors" {
        "stream"
    } else {
        "materialized view"
    };
    if relation.noun() != wanted {
        return Err(Error::semantic(
            "42809",
            format!("\"{}\" is not a {wanted}", relation.name),
        ));
    }
    if function == "late_rows" {
        let mut columns: Vec<(&str, Type)> = relation
            .columns
            .iter()
            .map(|column| (column.name.as_str(), column.kind.clone()))
            .collect();
        columns.extend([
            ("weight", Type::Int8),
            ("watermark", Type::Timestamptz(None)),
            ("windows", Type::Array(Box::new(Type::Text))),
        ]);
        let schema = schema(&columns);
        let own = schema.clone();
        return Ok(source(Provider::of_function(function, schema, move || {
            Ok(RecordBatch::new_empty(own.clone()))
        })));
    }
    let schema = schema(&[("message", Type::Text), ("row", Type::Text)]);
    let (own, facts) = (schema.clone(), facts.clone());
    Ok(source(Provider::of_function(function, schema, move || {
        let listed = facts.live.faults(relation.id)?;
        Ok(match listed {
            Some(batch) => batch_of(own.clone(), batch.columns().to_vec(), batch.num_rows())?,
            None => RecordBatch::new_empty(own.clone()),
        })
    })))
}
