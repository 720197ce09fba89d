//! Constant rows: put out once, in the first step of the operator's life.

use super::{First, Keys, Operator, Output, Spec, StepContext, TableSpec};
use crate::delta::{Batch, Delta, batch_of};
use crate::error::Result;
use crate::expr::{Compiled, Expression};
use arrow::array::{ArrayRef, RecordBatch};
use arrow::compute::concat;
use arrow::datatypes::{Schema, SchemaRef};
use std::sync::Arc;

/// Rows of constant expressions.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Values {
    /// The rows; each has an expression per column.
    pub rows: Vec<Vec<Expression>>,
    /// The columns.
    pub schema: SchemaRef,
}

impl Spec for Values {
    fn name(&self) -> &'static str {
        "Values"
    }

    fn schema(&self, _inputs: &[SchemaRef]) -> Result<SchemaRef> {
        Ok(self.schema.clone())
    }

    fn keys(&self) -> Keys {
        Keys::Single
    }

    fn tables(&self) -> Vec<TableSpec> {
        Vec::new()
    }

    fn build(&self, _inputs: &[SchemaRef]) -> Result<Box<dyn Operator>> {
        let nothing = Arc::new(Schema::empty());
        let rows = self
            .rows
            .iter()
            .map(|row| row.iter().map(|expr| expr.compile(&nothing)).collect())
            .collect::<Result<_>>()?;
        Ok(Box::new(Running {
            rows,
            schema: self.schema.clone(),
        }))
    }
}

struct Running {
    rows: Vec<Vec<Compiled>>,
    schema: SchemaRef,
}

impl Operator for Running {
    fn step(&mut self, context: &mut StepContext<'_>, _inputs: &[Delta], output: &mut Output) -> Result<()> {
        if context.time.first == First::No || self.rows.is_empty() {
            return Ok(());
        }
        let one = batch_of(Arc::new(Schema::empty()), Vec::new(), 1)?;
        let mut columns: Vec<Vec<ArrayRef>> = vec![Vec::new(); self.schema.fields().len()];
        for row in &self.rows {
            for (index, value) in row.iter().enumerate() {
                columns[index].push(constant(value, &one)?);
            }
        }
        let columns = columns
            .iter()
            .zip(self.schema.fields())
            .map(|(parts, field)| {
                let parts: Vec<&dyn arrow::array::Array> = parts.iter().map(AsRef::as_ref).collect();
                let whole = concat(&parts)?;
                Ok(arrow::compute::cast(&whole, field.data_type())?)
            })
            .collect::<Result<_>>()?;
        output.push(Batch::inserts(batch_of(self.schema.clone(), columns, self.rows.len())?))
    }
}

/// The value of an expression without columns; one that fails fails the statement that makes the view.
fn constant(value: &Compiled, one: &RecordBatch) -> Result<ArrayRef> {
    let (values, failures) = value.evaluate(one)?;
    match failures.into_iter().next() {
        Some(failure) => Err(failure.error),
        None => Ok(values),
    }
}
