//! `unnest`: a row for each element of its list columns. Linear: each row is taken apart by itself, and its weight goes
//! to all of its elements.

use super::{Keys, Operator, Output, Spec, StepContext, TableSpec};
use crate::delta::{Batch, Delta, batch_of};
use crate::error::{Error, Result};
use arrow::array::{Array, AsArray, ListArray, UInt32Array};
use arrow::compute::take;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use std::sync::Arc;

/// One row for each element; the list columns are replaced in place by their elements.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Unnest {
    /// The list columns, taken apart side by side; the shorter are filled with NULL.
    pub columns: Vec<usize>,
    /// What becomes of a row without an element.
    pub keep_empty: KeepEmpty,
}

/// What becomes of a row whose lists are all NULL or empty.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum KeepEmpty {
    /// It is left out.
    No,
    /// It gives one row with NULL.
    Yes,
}

impl Spec for Unnest {
    fn name(&self) -> &'static str {
        "Unnest"
    }

    fn schema(&self, inputs: &[SchemaRef]) -> Result<SchemaRef> {
        let mut fields: Vec<Field> = Vec::with_capacity(inputs[0].fields().len());
        for (index, field) in inputs[0].fields().iter().enumerate() {
            if !self.columns.contains(&index) {
                fields.push(super::output_field(field, index));
                continue;
            }
            let DataType::List(item) = field.data_type() else {
                return Err(Error::internal(format!("unnest of {}", field.data_type())));
            };
            fields.push(super::output_field(item, index));
        }
        Ok(Arc::new(Schema::new(fields)))
    }

    fn keys(&self) -> Keys {
        Keys::Stateless
    }

    fn tables(&self) -> Vec<TableSpec> {
        Vec::new()
    }

    fn build(&self, inputs: &[SchemaRef]) -> Result<Box<dyn Operator>> {
        Ok(Box::new(Running {
            schema: self.schema(inputs)?,
            spec: self.clone(),
        }))
    }
}

struct Running {
    spec: Unnest,
    schema: SchemaRef,
}

impl Running {
    fn apart(&self, batch: &Batch) -> Result<Batch> {
        let lists: Vec<&ListArray> = self
            .spec
            .columns
            .iter()
            .map(|column| batch.rows.column(*column).as_list::<i32>())
            .collect();
        let length = |list: &ListArray, row: usize| {
            if list.is_null(row) {
                0
            } else {
                list.value_length(row) as usize
            }
        };
        // Of each row that is put out: the row that it comes from, and the element of each list.
        let mut rows: Vec<u32> = Vec::with_capacity(batch.len());
        let mut elements: Vec<Vec<Option<u32>>> = vec![Vec::new(); lists.len()];
        for row in 0..batch.len() {
            let longest = lists.iter().map(|list| length(list, row)).max().unwrap_or(0);
            let count = if self.spec.keep_empty == KeepEmpty::Yes {
                longest.max(1)
            } else {
                longest
            };
            rows.extend(std::iter::repeat_n(row as u32, count));
            for (list, elements) in lists.iter().zip(&mut elements) {
                let (from, own) = (list.value_offsets()[row] as usize, length(list, row));
                elements.extend((0..count).map(|place| (place < own).then_some((from + place) as u32)));
            }
        }
        let rows = UInt32Array::from(rows);
        let mut columns = Vec::with_capacity(batch.rows.num_columns());
        for (index, column) in batch.rows.columns().iter().enumerate() {
            columns.push(match self.spec.columns.iter().position(|list| *list == index) {
                None => take(column, &rows, None)?,
                Some(place) => take(lists[place].values(), &UInt32Array::from(elements[place].clone()), None)?,
            });
        }
        Ok(Batch {
            rows: batch_of(self.schema.clone(), columns, rows.len())?,
            weights: batch.weights.take(&rows)?,
        })
    }
}

impl Operator for Running {
    fn step(&mut self, _context: &mut StepContext<'_>, inputs: &[Delta], output: &mut Output) -> Result<()> {
        let mut all = Delta::new();
        for batch in &inputs[0].batches {
            all.push(self.apart(batch)?);
        }
        // Rows that differ in a list may share an element.
        if !all.is_inserts() {
            all = all.consolidate(&self.schema)?;
        }
        output.append(all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operator::harness::{Law, Row, actions, rows_of, schema_of};
    use proptest::prelude::*;

    const LISTS: &[&str] = &["[1, 2, 2]", "[]", "-", "[3]", "[1]"];

    proptest! {
        #![proptest_config(ProptestConfig { cases: 40, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn laws(
            changes in actions(vec![rows_of(&[&["a", "-"], LISTS, LISTS])], 40),
            keep in any::<bool>(),
            both in any::<bool>(),
        ) {
            let spec = Unnest {
                columns: if both { vec![1, 2] } else { vec![1] },
                keep_empty: if keep { KeepEmpty::Yes } else { KeepEmpty::No },
            };
            let items = |text: &Option<String>| -> Vec<String> {
                let text = text.clone().unwrap_or_default();
                let items = text.trim_matches(['[', ']']).split(", ").filter(|item| !item.is_empty());
                items.map(str::to_owned).collect()
            };
            let oracle = |inputs: &[Vec<Row>]| {
                let mut out: Vec<Row> = Vec::new();
                for row in &inputs[0] {
                    let lists: Vec<Vec<String>> = spec.columns.iter().map(|column| items(&row[*column])).collect();
                    let longest = lists.iter().map(Vec::len).max().unwrap_or(0);
                    for place in 0..if keep { longest.max(1) } else { longest } {
                        let mut shown = row.clone();
                        for (column, list) in spec.columns.iter().zip(&lists) {
                            shown[*column] = list.get(place).cloned();
                        }
                        out.push(shown);
                    }
                }
                out
            };
            let list = DataType::new_list(DataType::Int64, true);
            let schema = schema_of(&[DataType::Utf8, list.clone(), list]);
            Law { spec: &spec, inputs: vec![schema], oracle: &oracle }.check(&changes);
        }
    }
}
