//! When rows arrived, for windows over relations without event time: each row with the clock of its epoch and a number
//! that grows.
//!
//! A row that is taken away is the earliest of its copies that are there. Rows that are only ever added need no
//! memory but the next number.

use super::groups::not_there;
use super::timers::{sortable, time_of};
use super::{Keys, Operator, Output, Spec, StepContext, TableSpec};
use crate::delta::{Batch, Delta, KeyCodec, Weights, batch_of};
use crate::error::Result;
use crate::state::Shape;
use crate::time::Timestamp;
use crate::types::{Nullability, Type};
use arrow::array::{ArrayRef, Int64Array};
use arrow::datatypes::{Field, Schema, SchemaRef};
use std::sync::Arc;

/// The key of the next number.
const NEXT: &[u8] = b"next";

/// The version of the next number's form.
const VERSION: u8 = 1;

/// The rows, each with when it arrived: the clock, then the number.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Stamp {
    /// Whether rows may be taken away again.
    pub memory: Memory,
}

/// Whether it is kept when which row arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Memory {
    /// Rows are only ever added.
    None,
    /// Rows may be taken away.
    Rows,
}

impl Spec for Stamp {
    fn name(&self) -> &'static str {
        "Arrival"
    }

    fn schema(&self, inputs: &[SchemaRef]) -> Result<SchemaRef> {
        let stamp = [
            Type::Timestamptz(None).field("", Nullability::Nullable),
            Type::Int8.field("", Nullability::Nullable),
        ];
        let fields = inputs[0].fields().iter().map(|field| field.as_ref()).chain(&stamp);
        let fields: Vec<Field> = fields
            .enumerate()
            .map(|(index, field)| super::output_field(field, index))
            .collect();
        Ok(Arc::new(Schema::new(fields)))
    }

    fn keys(&self) -> Keys {
        Keys::Single
    }

    fn tables(&self) -> Vec<TableSpec> {
        let mut tables = vec![TableSpec {
            name: "the next number",
            shape: Shape::Keyed,
        }];
        if self.memory == Memory::Rows {
            tables.push(TableSpec {
                name: "when rows arrived",
                shape: Shape::Arranged,
            });
        }
        tables
    }

    fn build(&self, inputs: &[SchemaRef]) -> Result<Box<dyn Operator>> {
        Ok(Box::new(Running {
            memory: self.memory,
            codec: KeyCodec::rows(&inputs[0])?,
            input: inputs[0].clone(),
            schema: self.schema(inputs)?,
        }))
    }
}

struct Running {
    memory: Memory,
    codec: KeyCodec,
    input: SchemaRef,
    schema: SchemaRef,
}

/// Stamps of rows.
#[derive(Default)]
struct Stamps {
    rows: Vec<u32>,
    clocks: Vec<i64>,
    numbers: Vec<i64>,
}

impl Running {
    fn put_out(&self, batch: &Batch, stamps: Stamps, sign: i64, output: &mut Output) -> Result<()> {
        if stamps.rows.is_empty() {
            return Ok(());
        }
        let count = stamps.rows.len();
        let rows = Batch::inserts(batch.rows.clone()).take(&stamps.rows.into())?.rows;
        let mut columns = rows.columns().to_vec();
        let width = columns.len();
        for numbers in [stamps.clocks, stamps.numbers] {
            let numbers: ArrayRef = Arc::new(Int64Array::from(numbers));
            columns.push(arrow::compute::cast(
                &numbers,
                self.schema.field(columns.len()).data_type(),
            )?);
        }
        debug_assert_eq!(columns.len(), width + 2, "the clock and the number");
        output.push(Batch {
            rows: batch_of(self.schema.clone(), columns, count)?,
            weights: Weights::from(vec![sign; count]),
        })
    }

    fn take(&self, batch: &Batch, next: &mut i64, context: &mut StepContext<'_>, output: &mut Output) -> Result<()> {
        let Timestamp(clock) = context.time.clock;
        let rows = self.codec.encode(batch.rows.columns(), batch.len())?;
        if self.memory == Memory::Rows {
            context.tables.arranged(1).load(rows.iter().map(|row| row.data()))?;
        }
        let (mut come, mut go) = (Stamps::default(), Stamps::default());
        for (number, row) in rows.iter().enumerate() {
            let key = row.data();
            for _ in 0..batch.weights.at(number).max(0) {
                come.rows.push(number as u32);
                come.clocks.push(clock);
                come.numbers.push(*next);
                if self.memory == Memory::Rows {
                    let place = [sortable(*next), sortable(clock)].concat();
                    context.tables.arranged(1).update(key, &place, 1)?;
                }
                *next += 1;
            }
            for _ in 0..(-batch.weights.at(number)).max(0) {
                let lost = || not_there("Arrival", &self.codec, key);
                if self.memory == Memory::None {
                    return Err(lost());
                }
                let table = context.tables.arranged(1);
                let first: Box<[u8]> = table.group(key).first().ok_or_else(lost)?.0.into();
                table.update(key, &first, -1)?;
                go.rows.push(number as u32);
                go.clocks.push(time_of(&first[8..]));
                go.numbers.push(time_of(&first));
            }
        }
        context.metrics.state_writes += (come.rows.len() + go.rows.len()) as u64;
        self.put_out(batch, go, -1, output)?;
        self.put_out(batch, come, 1, output)
    }
}

impl Operator for Running {
    fn step(&mut self, context: &mut StepContext<'_>, inputs: &[Delta], output: &mut Output) -> Result<()> {
        if inputs[0].is_empty() {
            return Ok(());
        }
        context.tables.keyed(0).load([NEXT])?;
        let known = context.tables.keyed(0).get(NEXT).and_then(|bytes| bytes.get(1..));
        let mut next = known.map_or(0, time_of);
        for batch in super::changes::net(&inputs[0], &self.input)? {
            self.take(&batch, &mut next, context, output)?;
        }
        let value = [&[VERSION][..], &sortable(next)].concat();
        context.tables.keyed(0).put(NEXT, &value);
        Ok(())
    }
}
