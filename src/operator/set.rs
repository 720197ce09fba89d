//! INTERSECT and EXCEPT: whole rows, NULLs equal. Both are functions of the two weights of each row, which are kept; a
//! change puts out the difference of the function before and after.

use super::changes::put_out_rows;
use super::groups::{Groups, not_there};
use super::{Keys, Operator, Output, Spec, StepContext, TableSpec};
use crate::delta::{Delta, KeyCodec};
use crate::error::{Error, Result};
use crate::state::Shape;
use arrow::datatypes::{Field, Schema, SchemaRef};
use std::sync::Arc;

/// The version byte before every state.
const VERSION: u8 = 1;

/// Whole rows of the first input that are, or are not, in the second.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct SetOperation {
    /// Which of them.
    pub kind: SetKind,
    /// Whether copies count.
    pub all: All,
    /// The number of columns of both inputs.
    pub width: usize,
}

/// Which rows of the first input are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SetKind {
    /// Those that are in the second too.
    Intersect,
    /// Those that are not.
    Except,
}

/// Whether copies count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum All {
    /// They do: `ALL`.
    Yes,
    /// Each row is put out once.
    No,
}

impl Spec for SetOperation {
    fn name(&self) -> &'static str {
        match self.kind {
            SetKind::Intersect => "Intersect",
            SetKind::Except => "Except",
        }
    }

    fn schema(&self, inputs: &[SchemaRef]) -> Result<SchemaRef> {
        let fields = inputs[0].fields().iter().enumerate();
        let fields: Vec<Field> = fields.map(|(index, field)| super::output_field(field, index)).collect();
        Ok(Arc::new(Schema::new(fields)))
    }

    fn keys(&self) -> Keys {
        let all: Vec<usize> = (0..self.width).collect();
        Keys::By(vec![all.clone(), all])
    }

    fn tables(&self) -> Vec<TableSpec> {
        vec![TableSpec {
            name: "counts",
            shape: Shape::Keyed,
        }]
    }

    fn build(&self, inputs: &[SchemaRef]) -> Result<Box<dyn Operator>> {
        let schema = self.schema(inputs)?;
        Ok(Box::new(Running {
            rows: KeyCodec::rows(&schema)?,
            schema,
            spec: self.clone(),
        }))
    }
}

struct Running {
    spec: SetOperation,
    rows: KeyCodec,
    schema: SchemaRef,
}

impl SetOperation {
    /// How often a row is put out that the inputs hold so often.
    fn copies(&self, left: i64, right: i64) -> i64 {
        match (self.kind, self.all) {
            (SetKind::Intersect, All::Yes) => left.min(right),
            (SetKind::Intersect, All::No) => i64::from(left > 0 && right > 0),
            (SetKind::Except, All::Yes) => (left - right).max(0),
            (SetKind::Except, All::No) => i64::from(left > 0 && right == 0),
        }
    }
}

/// How often a row is in both inputs, as it is kept.
fn read(state: Option<&[u8]>) -> Result<[i64; 2]> {
    let Some(state) = state else {
        return Ok([0, 0]);
    };
    let damaged = || Error::corrupt("the state of a set operation cannot be read");
    let (version, rest) = state.split_first().ok_or_else(damaged)?;
    match rest.as_chunks::<8>() {
        ([left, right], []) if *version == VERSION => Ok([i64::from_le_bytes(*left), i64::from_le_bytes(*right)]),
        _ => Err(damaged()),
    }
}

impl Operator for Running {
    fn step(&mut self, context: &mut StepContext<'_>, inputs: &[Delta], output: &mut Output) -> Result<()> {
        let mut groups = Groups::default();
        let mut changes: Vec<[i64; 2]> = Vec::new();
        for (side, input) in inputs.iter().enumerate() {
            for batch in &input.batches {
                let rows = self.rows.encode(batch.rows.columns(), batch.len())?;
                for (row, encoded) in rows.iter().enumerate() {
                    let number = groups.intern(encoded.data()) as usize;
                    changes.resize(groups.len(), [0, 0]);
                    changes[number][side] += batch.weights.at(row);
                }
            }
        }
        let table = context.tables.keyed(0);
        table.load(groups.iter())?;
        context.metrics.state_reads += groups.len() as u64;
        let (mut rows, mut weights) = (Vec::new(), Vec::new());
        for (row, change) in groups.iter().zip(&changes) {
            let old = read(table.get(row))?;
            let new = [old[0] + change[0], old[1] + change[1]];
            if new[0] < 0 || new[1] < 0 {
                return Err(not_there(self.spec.name(), &self.rows, row));
            }
            if new == [0, 0] {
                if old != new {
                    table.remove(row);
                }
            } else if old != new {
                let mut state = vec![VERSION];
                new.iter()
                    .for_each(|count| state.extend_from_slice(&count.to_le_bytes()));
                table.put(row, &state);
                context.metrics.state_writes += 1;
            }
            let weight = self.spec.copies(new[0], new[1]) - self.spec.copies(old[0], old[1]);
            if weight != 0 {
                rows.push(row);
                weights.push(weight);
            }
        }
        put_out_rows(&self.schema, &self.rows, &rows, &weights, output)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operator::harness::{Law, Row, actions, rows_of, schema_of};
    use arrow::datatypes::DataType;
    use proptest::prelude::*;

    const VALUES: &[&str] = &["1", "-", "2"];

    proptest! {
        #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn laws(
            changes in actions(vec![rows_of(&[VALUES, VALUES]), rows_of(&[VALUES, VALUES])], 40),
            intersect in any::<bool>(),
            all in any::<bool>(),
        ) {
            let spec = SetOperation {
                kind: if intersect { SetKind::Intersect } else { SetKind::Except },
                all: if all { All::Yes } else { All::No },
                width: 2,
            };
            let oracle = |inputs: &[Vec<Row>]| {
                let mut right = inputs[1].clone();
                let mut out: Vec<Row> = Vec::new();
                for row in &inputs[0] {
                    let found = right.iter().position(|other| other == row);
                    if found.is_some() == intersect {
                        out.push(row.clone());
                    }
                    if let (Some(place), true) = (found, all) {
                        right.swap_remove(place);
                    }
                }
                if !all {
                    out.sort();
                    out.dedup();
                }
                out
            };
            let schema = schema_of(&[DataType::Int64, DataType::Utf8]);
            Law { spec: &spec, inputs: vec![schema.clone(), schema], oracle: &oracle }.check(&changes);
        }
    }
}
