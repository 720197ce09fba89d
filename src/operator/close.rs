//! EMIT ON WINDOW CLOSE: rows are held back until the watermark says that they are final, and put out once.
//!
//! ```text
//! held, by closing time:   [10:10: a, b]  [10:20: c]        watermark 10:12
//!                           put out, +1     still held
//! ```
//!
//! The input's column of closing times is *closed* by the watermark: nothing at or before it changes any more, since
//! the windows below refuse what comes later. So what is put out never has to be taken back, and a change of what was
//! put out is a broken invariant, which stops the view.

use super::{Keys, Operator, Output, Spec, StepContext, TableSpec};
use crate::delta::{Batch, Delta, KeyCodec, Weights, batch_of};
use crate::error::{Error, Result};
use crate::state::Shape;
use crate::time::{Timestamp, Watermark};
use arrow::array::{Array, AsArray};
use arrow::datatypes::{DataType, Int64Type, SchemaRef, TimeUnit};

/// The one key under which all held rows are, in the order in which they close.
const HELD: &[u8] = b"held";

/// The rows of a batch that is put out.
const BATCH_ROWS: usize = 8192;

/// Hold rows back until they are final.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Close {
    /// The column of the time that closes a row.
    pub column: usize,
    /// How far that time is ahead of the watermark's, in microseconds.
    pub shift_us: i64,
}

impl Spec for Close {
    fn name(&self) -> &'static str {
        "EmitOnClose"
    }

    fn schema(&self, inputs: &[SchemaRef]) -> Result<SchemaRef> {
        Ok(super::unnamed(&inputs[0], inputs[0].fields().len()))
    }

    fn keys(&self) -> Keys {
        Keys::Single
    }

    fn tables(&self) -> Vec<TableSpec> {
        vec![TableSpec {
            name: "rows that are not final",
            shape: Shape::Arranged,
        }]
    }

    fn build(&self, inputs: &[SchemaRef]) -> Result<Box<dyn Operator>> {
        let schema = self.schema(inputs)?;
        Ok(Box::new(Running {
            spec: self.clone(),
            codec: KeyCodec::rows(&schema)?,
            schema,
        }))
    }
}

struct Running {
    spec: Close,
    codec: KeyCodec,
    schema: SchemaRef,
}

/// A time as eight bytes that sort as it does.
fn sortable(micros: i64) -> [u8; 8] {
    (micros ^ i64::MIN).to_be_bytes()
}

impl Running {
    /// Up to which time rows are final at a watermark.
    fn final_until(&self, watermark: Option<Watermark>) -> Option<i64> {
        watermark.map(|Watermark(Timestamp(micros))| micros.saturating_add(self.spec.shift_us))
    }

    fn hold(&self, context: &mut StepContext<'_>, input: &Delta) -> Result<()> {
        let done = self.final_until(context.watermarks[0].before);
        for batch in &input.batches {
            let kind = DataType::Timestamp(TimeUnit::Microsecond, None);
            let times = arrow::compute::cast(batch.rows.column(self.spec.column), &kind)?;
            let times = arrow::compute::cast(&times, &DataType::Int64)?;
            let times = times.as_primitive::<Int64Type>();
            let encoded = self.codec.encode(batch.rows.columns(), batch.len())?;
            let mut place = Vec::new();
            for row in (0..batch.len()).filter(|row| times.is_valid(*row)) {
                let time = times.value(row);
                // A session that a retraction splits may leave a part that is closed at once: it is put out at once.
                if done.is_some_and(|done| time <= done) && batch.weights.at(row) < 0 {
                    return Err(Error::internal("a row changed that was final"));
                }
                place.clear();
                place.extend_from_slice(&sortable(time));
                place.extend_from_slice(encoded.row(row).data());
                // Within a change, a row may come before the one that it replaces goes: weights settle at the end.
                context.tables.arranged(0).update(HELD, &place, batch.weights.at(row))?;
                context.metrics.state_writes += 1;
            }
        }
        Ok(())
    }

    fn emit(&self, context: &mut StepContext<'_>, output: &mut Output) -> Result<()> {
        let Some(done) = self.final_until(context.watermarks[0].after) else {
            return Ok(());
        };
        let table = context.tables.arranged(0);
        let after_last = done.checked_add(1).map(sortable);
        let held = table.group(HELD);
        let closed: Vec<(Box<[u8]>, i64)> = match &after_last {
            Some(to) => held
                .range_to(to)
                .map(|(place, weight)| (place.into(), weight))
                .collect(),
            None => held.iter().map(|(place, weight)| (place.into(), weight)).collect(),
        };
        for part in closed.chunks(BATCH_ROWS) {
            let columns = self.codec.decode(part.iter().map(|(place, _)| &place[8..]))?;
            let weights: Vec<i64> = part.iter().map(|(_, weight)| *weight).collect();
            output.push(Batch {
                rows: batch_of(self.schema.clone(), columns, part.len())?,
                weights: Weights::from(weights),
            })?;
        }
        for (place, weight) in &closed {
            table.update(HELD, place, -weight)?;
        }
        Ok(())
    }
}

impl Operator for Running {
    fn step(&mut self, context: &mut StepContext<'_>, inputs: &[Delta], output: &mut Output) -> Result<()> {
        context.tables.arranged(0).load([HELD])?;
        let net = if inputs[0].is_inserts() {
            inputs[0].clone()
        } else {
            inputs[0].consolidate(&self.schema)?
        };
        self.hold(context, &net)?;
        self.emit(context, output)
    }
}

#[cfg(test)]
mod tests {
    use super::super::harness::schema_of;
    use super::super::{Advance, Faults, First, StepMetrics, StepTime};
    use super::*;
    use crate::state::{Commit, Durability, Origin, Part, Store, Table, TableId, Tables};
    use crate::time::Epoch;
    use arrow::array::{ArrayRef, Int64Array, TimestampMicrosecondArray};
    use std::sync::Arc;

    fn rows(schema: &SchemaRef, values: &[(i64, i64, i64)]) -> Delta {
        let times: ArrayRef = Arc::new(TimestampMicrosecondArray::from_iter_values(values.iter().map(|v| v.0)));
        let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values(values.iter().map(|v| v.1)));
        let weights: Vec<i64> = values.iter().map(|v| v.2).collect();
        Delta::from(Batch {
            rows: batch_of(schema.clone(), vec![times, numbers], values.len()).expect("a batch"),
            weights: Weights::from(weights),
        })
    }

    /// A row comes out once, when the watermark reaches its time, also when the operator is built anew in between.
    #[test]
    fn rows_come_out_once_when_they_are_final() -> Result<()> {
        let schema = schema_of(&[DataType::Timestamp(TimeUnit::Microsecond, None), DataType::Int64]);
        let spec = Close { column: 0, shift_us: 0 };
        let store = Store::memory()?;
        let mark = |micros: i64| Some(Watermark(Timestamp(micros)));
        // The changes as (time, value, weight), the watermark, and how many rows come out.
        type Change = (i64, i64, i64);
        let steps: [(&[Change], i64, usize); 4] = [
            (&[(10, 1, 1), (20, 2, 1)], 5, 0),
            (&[(10, 1, -1), (10, 7, 1)], 9, 0),
            (&[], 10, 1),
            (&[(20, 2, -1)], 30, 0),
        ];
        let mut before = None;
        for (turn, (changes, watermark, expected)) in steps.into_iter().enumerate() {
            let origin = if turn == 0 { Origin::Fresh } else { Origin::Stored };
            let mut tables = Tables(
                vec![Table::open(&store, TableId(5), Shape::Arranged, origin)],
                Part::default(),
            );
            let mut operator = spec.build(std::slice::from_ref(&schema))?;
            let watermarks = [Advance {
                before,
                after: mark(watermark),
                latest: None,
            }];
            let mut output = Output::new(1 << 20);
            let mut context = StepContext {
                time: StepTime {
                    epoch: Epoch(turn as u64),
                    clock: Timestamp(0),
                    first: First::No,
                },
                watermarks: &watermarks,
                tables: &mut tables,
                faults: &mut Faults::default(),
                metrics: &mut StepMetrics::default(),
            };
            let input = if changes.is_empty() {
                Delta::new()
            } else {
                rows(&schema, changes)
            };
            operator.step(&mut context, &[input], &mut output)?;
            let out = output.into_delta();
            assert_eq!(out.len(), expected, "step {turn}");
            if expected == 1 {
                assert_eq!(out.batches[0].rows.column(1).as_primitive::<Int64Type>().value(0), 7);
            }
            let mut commit = Commit::new();
            tables.flush(&mut commit)?;
            store.commit(commit, Durability::Synced)?;
            before = mark(watermark);
        }
        Ok(())
    }
}
