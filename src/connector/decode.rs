//! Text to columns: the values of one row after another, by the rules of [`types`](crate::types).
//!
//! A row that fails keeps its place until the batch is taken, NULL in what failed, and is left out then: builders
//! cannot go back.

use super::schema_of;
use crate::catalog::Column;
use crate::delta::{Batch, batch_of};
use crate::error::{Error, Result};
use crate::types::{ColumnBuilder, Type};
use arrow::array::{ArrayRef, BooleanArray};
use arrow::compute::filter_record_batch;
use arrow::datatypes::{Schema, SchemaRef};
use std::sync::Arc;

/// Builds batches of the delivered columns from text.
pub(super) struct RowDecoder {
    schema: SchemaRef,
    columns: Vec<(Column, ColumnBuilder)>,
    rows: usize,
    failed: Vec<usize>,
    failure: Option<String>,
}

impl RowDecoder {
    /// A decoder of these columns.
    pub(super) fn new(columns: &[&Column]) -> Self {
        Self {
            schema: schema_of(columns),
            columns: columns
                .iter()
                .map(|column| ((*column).clone(), ColumnBuilder::new(&column.kind)))
                .collect(),
            rows: 0,
            failed: Vec::new(),
            failure: None,
        }
    }

    /// The type of a column.
    pub(super) fn kind(&self, column: usize) -> &Type {
        &self.columns[column].0.kind
    }

    /// Adds the value of a column to the current row. Each column gets one value a row.
    pub(super) fn push(&mut self, column: usize, value: Option<&[u8]>) {
        let (definition, builder) = &mut self.columns[column];
        let problem = match value {
            None if definition.not_null => Some(format!(
                "null value in column \"{}\" violates not-null constraint",
                definition.name
            )),
            None => None,
            Some(text) => match push_text(&definition.kind, builder, text) {
                Ok(()) => return,
                Err(error) => Some(format!("column \"{}\": {}", definition.name, error.message())),
            },
        };
        builder.push_null();
        if let Some(problem) = problem {
            self.fail(problem);
        }
    }

    /// Makes the current row fail, unless it has failed before.
    pub(super) fn fail(&mut self, problem: String) {
        self.failure.get_or_insert(problem);
    }

    /// Ends the row; what was wrong with it, if something was.
    pub(super) fn end(&mut self) -> Option<String> {
        let failure = self.failure.take();
        if failure.is_some() {
            self.failed.push(self.rows);
        }
        self.rows += 1;
        failure
    }

    /// The rows since the last call that did not fail.
    pub(super) fn finish(&mut self) -> Result<Batch> {
        let rows = std::mem::take(&mut self.rows);
        let arrays = self.columns.iter_mut().map(|(_, builder)| builder.finish()).collect();
        if self.failed.is_empty() {
            return Ok(Batch::inserts(batch_of(self.schema.clone(), arrays, rows)?));
        }
        let mut kept = vec![true; rows];
        for row in self.failed.drain(..) {
            kept[row] = false;
        }
        keep(&self.schema, arrays, BooleanArray::from(kept))
    }
}

/// The rows that are kept of some, in which columns that are NOT NULL may hold NULL where a row is not kept.
pub(super) fn keep(schema: &SchemaRef, arrays: Vec<ArrayRef>, kept: BooleanArray) -> Result<Batch> {
    let fields = schema
        .fields()
        .iter()
        .map(|field| field.as_ref().clone().with_nullable(true));
    let loose = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
    let good = filter_record_batch(&batch_of(loose, arrays, kept.len())?, &kept)?;
    Ok(Batch::inserts(batch_of(
        schema.clone(),
        good.columns().to_vec(),
        good.num_rows(),
    )?))
}

/// Adds a value; nothing is added when it fails.
fn push_text(kind: &Type, builder: &mut ColumnBuilder, text: &[u8]) -> Result<()> {
    let text = utf8(text)?;
    if let Type::Array(element) = kind
        && matches!(**element, Type::Array(_))
    {
        // An array of arrays that fails half-way leaves a part of itself in the builder.
        ColumnBuilder::new(kind).push_text(Some(text))?;
    }
    builder.push_text(Some(text))
}

/// Bytes as PostgreSQL's text: UTF-8 without NUL.
fn utf8(bytes: &[u8]) -> Result<&str> {
    let invalid = |bytes: &[u8]| {
        let shown: Vec<String> = bytes.iter().take(4).map(|byte| format!("0x{byte:02x}")).collect();
        Error::semantic(
            "22021",
            format!("invalid byte sequence for encoding \"UTF8\": {}", shown.join(" ")),
        )
    };
    let text = std::str::from_utf8(bytes).map_err(|error| {
        let from = &bytes[error.valid_up_to()..];
        invalid(&from[..error.error_len().unwrap_or(from.len())])
    })?;
    if bytes.contains(&0) {
        Err(invalid(&[0]))
    } else {
        Ok(text)
    }
}
