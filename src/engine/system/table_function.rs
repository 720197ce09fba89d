//! Functions in FROM: what a view left out, what a stream could not read, and a few of PostgreSQL's.

use super::Facts;
use super::name;
use super::provider::Provider;
use super::sheet::{Cell, column};
use crate::catalog::{Relation, RelationKind};
use crate::delta::batch_of;
use crate::engine::watermark::time_text;
use crate::error::{Error, Result};
use crate::types::{Nullability, Type};
use arrow::array::{ArrayRef, RecordBatch, StringArray};
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

/// `row_errors('view')` and `decode_errors('stream')`; `late_rows('view')`.
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
        return Ok(late_rows(facts, &relation));
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

/// `late_rows('view')`: the rows that the view's windows have refused, with the columns of the relation that the windows
/// are over; where there are windows over relations with other columns, each row as text.
fn late_rows(facts: &Arc<Facts>, relation: &Arc<Relation>) -> Arc<dyn TableSource> {
    let lists = match &relation.kind {
        RelationKind::MaterializedView(view) => view.late.clone(),
        _ => Vec::new(),
    };
    let alike = lists.windows(2).all(|pair| pair[0].columns == pair[1].columns);
    let mut columns: Vec<(&str, Type)> = match lists.first() {
        Some(first) if alike => first
            .columns
            .iter()
            .map(|(name, kind)| (name.as_str(), kind.clone()))
            .collect(),
        _ => vec![("row", Type::Text)],
    };
    columns.extend([
        ("weight", Type::Int8),
        ("watermark", Type::Timestamp(None)),
        ("windows", Type::Array(Box::new(Type::Text))),
    ]);
    let kinds: Vec<Type> = columns[columns.len() - 3..]
        .iter()
        .map(|(_, kind)| kind.clone())
        .collect();
    let schema = schema(&columns);
    let (own, facts, id) = (schema.clone(), facts.clone(), relation.id);
    source(Provider::of_function("late_rows", schema, move || {
        let mut parts = Vec::new();
        for list in &lists {
            let Some(listed) = facts.live.late(id, list)? else {
                continue;
            };
            let mut arrays = if alike {
                listed.rows.columns().to_vec()
            } else {
                let texts = (0..listed.rows.num_rows()).map(|row| row_text(&listed.rows, row));
                vec![Arc::new(StringArray::from_iter_values(texts)) as ArrayRef]
            };
            let weights: Vec<Cell> = listed.weights.iter().map(|weight| Cell::Int(*weight)).collect();
            let marks: Vec<Cell> = listed.watermarks.iter().map(|mark| Cell::Micros(*mark)).collect();
            let windows: Vec<Cell> = listed
                .windows
                .iter()
                .map(|windows| Cell::Texts(windows.iter().map(shown).collect()))
                .collect();
            for (kind, cells) in kinds.iter().zip([weights, marks, windows]) {
                arrays.push(column(kind, &cells)?);
            }
            parts.push(batch_of(own.clone(), arrays, listed.weights.len())?);
        }
        Ok(arrow::compute::concat_batches(&own, &parts)?)
    }))
}

/// A window as it is written: `[start, end)`.
fn shown((start, end): &(i64, i64)) -> String {
    format!("[{}, {})", time_text(*start), time_text(*end))
}

fn row_text(rows: &RecordBatch, row: usize) -> String {
    let values = rows.columns().iter();
    let values: Vec<String> = values
        .map(|column| arrow::util::display::array_value_to_string(column, row).unwrap_or_default())
        .collect();
    format!("({})", values.join(","))
}
