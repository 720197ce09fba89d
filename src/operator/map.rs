//! Map and filter: rows through expressions. Linear, so a change goes through like any rows: d(f(A)) = f(dA).

use super::{Faults, Keys, Operator, Output, RowError, Spec, StepContext, TableSpec};
use crate::delta::{Batch, Delta, Weights, batch_of};
use crate::error::Result;
use crate::expr::{Compiled, Expression, RowFailure};
use arrow::array::{ArrayRef, BooleanArray, UInt32Array};
use arrow::datatypes::{Field, Schema, SchemaRef};
use std::sync::Arc;

/// Keep the rows for which the predicate is true; put out the expressions of each.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct MapFilter {
    /// Which rows stay; `None` for all.
    pub predicate: Option<Expression>,
    /// What is put out for each.
    pub projection: Vec<Expression>,
    /// What becomes of a row whose expression fails.
    pub on_error: OnError,
}

/// What becomes of a row whose expression fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum OnError {
    /// It is left out and listed.
    #[default]
    Skip,
    /// The expression is NULL.
    Null,
    /// The view stops.
    Fail,
}

impl MapFilter {
    /// Whether it puts out each row of an input of that width as it is.
    pub fn is_identity(&self, width: usize) -> bool {
        self.predicate.is_none() && self.projection.len() == width && self.picks_in_place()
    }

    /// Whether it only picks columns.
    pub fn only_picks(&self) -> bool {
        self.predicate.is_none() && self.projection.iter().all(|expr| expr.as_column().is_some())
    }

    /// Whether there may be a row for which it fails.
    pub fn can_fail(&self) -> bool {
        self.predicate.iter().chain(&self.projection).any(Expression::can_fail)
    }

    /// The same map, equal to all others that do the same: what becomes of rows that fail is of no account where
    /// none does.
    #[must_use]
    pub fn settled(self) -> Self {
        let on_error = if self.can_fail() {
            self.on_error
        } else {
            OnError::default()
        };
        Self { on_error, ..self }
    }

    fn picks_in_place(&self) -> bool {
        self.projection
            .iter()
            .enumerate()
            .all(|(index, expr)| expr.as_column() == Some(index))
    }
}

impl Spec for MapFilter {
    fn name(&self) -> &'static str {
        match (
            &self.predicate,
            self.projection.iter().all(|expr| expr.as_column().is_some()),
        ) {
            (Some(_), true) => "Filter",
            _ => "Map",
        }
    }

    fn schema(&self, _inputs: &[SchemaRef]) -> Result<SchemaRef> {
        let fields: Vec<Field> = self
            .projection
            .iter()
            .enumerate()
            .map(|(index, expr)| {
                expr.field()
                    .as_ref()
                    .clone()
                    .with_name(format!("#{index}"))
                    .with_nullable(true)
            })
            .collect();
        Ok(Arc::new(Schema::new(fields)))
    }

    fn keys(&self) -> Keys {
        Keys::Stateless
    }

    fn tables(&self) -> Vec<TableSpec> {
        Vec::new()
    }

    fn build(&self, inputs: &[SchemaRef]) -> Result<Box<dyn Operator>> {
        let projection = self
            .projection
            .iter()
            .map(|expr| match expr.as_column() {
                Some(index) => Ok(Column::Copy(index)),
                None => Ok(Column::Compute(expr.compile(&inputs[0])?)),
            })
            .collect::<Result<_>>()?;
        Ok(Box::new(Running {
            predicate: self
                .predicate
                .as_ref()
                .map(|expr| expr.compile(&inputs[0]))
                .transpose()?,
            projection,
            schema: self.schema(inputs)?,
            on_error: self.on_error,
        }))
    }
}

/// How one column of the output comes about.
enum Column {
    /// It is a column of the input.
    Copy(usize),
    /// It is computed.
    Compute(Compiled),
}

struct Running {
    predicate: Option<Compiled>,
    projection: Vec<Column>,
    schema: SchemaRef,
    on_error: OnError,
}

impl Operator for Running {
    fn step(&mut self, context: &mut StepContext<'_>, inputs: &[Delta], output: &mut Output) -> Result<()> {
        for batch in &inputs[0].batches {
            let kept = match &self.predicate {
                None => batch.clone(),
                Some(predicate) => self.filter(predicate, batch, context.faults)?,
            };
            if !kept.is_empty() {
                output.push(self.map(&kept, context.faults)?)?;
            }
        }
        Ok(())
    }
}

impl Running {
    fn filter(&self, predicate: &Compiled, batch: &Batch, faults: &mut Faults) -> Result<Batch> {
        let (keep, failures) = predicate.filter(&batch.rows)?;
        self.report(&failures, batch, faults)?;
        if keep.true_count() == keep.len() {
            return Ok(batch.clone());
        }
        keep_rows(batch, &keep)
    }

    fn map(&self, batch: &Batch, faults: &mut Faults) -> Result<Batch> {
        let mut columns: Vec<ArrayRef> = Vec::with_capacity(self.projection.len());
        let mut failed: Vec<RowFailure> = Vec::new();
        for column in &self.projection {
            match column {
                Column::Copy(index) => columns.push(batch.rows.column(*index).clone()),
                Column::Compute(compiled) => {
                    let (values, failures) = compiled.evaluate(&batch.rows)?;
                    columns.push(values);
                    failed.extend(failures);
                }
            }
        }
        let mapped = Batch {
            rows: batch_of(self.schema.clone(), columns, batch.len())?,
            weights: batch.weights.clone(),
        };
        if failed.is_empty() {
            return Ok(mapped);
        }
        // A row is listed once, for the first of its expressions that fails.
        failed.sort_by_key(|failure| failure.row);
        failed.dedup_by_key(|failure| failure.row);
        self.report(&failed, batch, faults)?;
        if self.on_error == OnError::Null {
            return Ok(mapped);
        }
        let mut keep = vec![true; batch.len()];
        for failure in &failed {
            keep[failure.row] = false;
        }
        keep_rows(&mapped, &BooleanArray::from(keep))
    }

    fn report(&self, failures: &[RowFailure], batch: &Batch, faults: &mut Faults) -> Result<()> {
        for failure in failures {
            match self.on_error {
                OnError::Null => {}
                OnError::Fail => return Err(failure.error.clone()),
                OnError::Skip => faults.row_errors.push(RowError {
                    row: batch.rows.slice(failure.row, 1),
                    weight: batch.weights.at(failure.row),
                    error: failure.error.clone(),
                }),
            }
        }
        Ok(())
    }
}

/// The rows of a batch for which `keep` is true.
pub(super) fn keep_rows(batch: &Batch, keep: &BooleanArray) -> Result<Batch> {
    let rows = arrow::compute::filter_record_batch(&batch.rows, keep)?;
    let weights = match &batch.weights {
        Weights::Ones => Weights::Ones,
        Weights::Each(_) => {
            let indices = keep.values().set_indices().map(|index| index as u32);
            batch.weights.take(&UInt32Array::from_iter_values(indices))?
        }
    };
    Ok(Batch { rows, weights })
}
