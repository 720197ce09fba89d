//! UNION ALL: deltas add up. Linear: d(A + B) = dA + dB.

use super::{Keys, Operator, Output, Spec, StepContext, TableSpec};
use crate::delta::{Batch, Delta, batch_of};
use crate::error::Result;
use arrow::datatypes::{Field, Schema, SchemaRef};
use std::sync::Arc;

/// The rows of all inputs, whose columns have equal types.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Union;

impl Spec for Union {
    fn name(&self) -> &'static str {
        "Union"
    }

    fn schema(&self, inputs: &[SchemaRef]) -> Result<SchemaRef> {
        let fields = inputs[0].fields().iter().enumerate();
        let fields: Vec<Field> = fields.map(|(index, field)| super::output_field(field, index)).collect();
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
        }))
    }
}

struct Running {
    schema: SchemaRef,
}

impl Operator for Running {
    fn step(&mut self, _context: &mut StepContext<'_>, inputs: &[Delta], output: &mut Output) -> Result<()> {
        let mut sum = Delta::new();
        for batch in inputs.iter().flat_map(|delta| &delta.batches) {
            sum.push(Batch {
                rows: batch_of(self.schema.clone(), batch.rows.columns().to_vec(), batch.len())?,
                weights: batch.weights.clone(),
            });
        }
        // Rows that leave one input may come in through another.
        if !sum.is_inserts() {
            sum = sum.consolidate(&self.schema)?;
        }
        output.append(sum)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operator::harness::{Law, Row, actions, rows_of, schema_of};
    use arrow::datatypes::DataType;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig { cases: 40, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn laws(changes in actions(vec![rows_of(&[&["1", "-", "2"]]), rows_of(&[&["1", "-", "2"]])], 40)) {
            let oracle = |inputs: &[Vec<Row>]| inputs.concat();
            let schema = schema_of(&[DataType::Int64]);
            Law { spec: &Union, inputs: vec![schema.clone(), schema], oracle: &oracle }.check(&changes);
        }
    }
}
