//! Lateness: a window that the watermark has closed refuses what comes for it.
//!
//! Its input are rows with the start and the end of a window in the last columns, one for each window that a row is
//! in. A pair of row and window is refused when the window's end is not after the watermark; so a row may be refused
//! by some of its windows and taken by others. What is refused is handed to the faults with its weight: a row that is
//! taken away from a closed window is refused like one that is added, and the window stays as it was.
//!
//! Which watermark? Where rows come straight from a stream, each carries, in a column behind all others, the watermark
//! just before it in the stream's log: which rows are late depends on the log alone, not on how it was cut into
//! epochs. Elsewhere it is the least watermark of the inputs before the epoch.

use super::map::keep_rows;
use super::{Keys, LateRows, Operator, Output, Spec, StepContext, TableSpec};
use crate::delta::{Batch, Delta, batch_of};
use crate::error::Result;
use crate::time::{Timestamp, Watermark};
use arrow::array::{Array, AsArray, BooleanArray, Int64Array, UInt32Array};
use arrow::datatypes::{DataType, Int64Type, SchemaRef};

/// Refuse what comes for windows that are closed.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Lateness {
    /// The number under which refused rows are listed.
    pub label: i64,
    /// How far the window's time is ahead of the streams' event time, in microseconds.
    pub shift_us: i64,
    /// The length of all windows, if it is one: then their starts close too.
    pub size_us: Option<i64>,
    /// By which watermark rows are judged.
    pub judged: Judged,
}

/// By which watermark rows are judged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Judged {
    /// By that of the last column, in microseconds, which goes no further.
    ByRow,
    /// By that of the input before the epoch.
    ByEpoch,
}

impl Lateness {
    /// The number of columns that it puts out for an input of that width.
    pub fn width(&self, input: usize) -> usize {
        match self.judged {
            Judged::ByRow => input - 1,
            Judged::ByEpoch => input,
        }
    }
}

impl Spec for Lateness {
    fn name(&self) -> &'static str {
        "RefuseLate"
    }

    fn schema(&self, inputs: &[SchemaRef]) -> Result<SchemaRef> {
        Ok(super::unnamed(&inputs[0], self.width(inputs[0].fields().len())))
    }

    fn keys(&self) -> Keys {
        Keys::Stateless
    }

    fn tables(&self) -> Vec<TableSpec> {
        Vec::new()
    }

    fn build(&self, inputs: &[SchemaRef]) -> Result<Box<dyn Operator>> {
        Ok(Box::new(Running {
            spec: self.clone(),
            schema: self.schema(inputs)?,
        }))
    }
}

struct Running {
    spec: Lateness,
    schema: SchemaRef,
}

impl Operator for Running {
    fn step(&mut self, context: &mut StepContext<'_>, inputs: &[Delta], output: &mut Output) -> Result<()> {
        let width = self.schema.fields().len();
        let epoch = context.watermarks[0].before.map(|Watermark(Timestamp(micros))| micros);
        for batch in &inputs[0].batches {
            let own = Batch {
                rows: batch_of(self.schema.clone(), batch.rows.columns()[..width].to_vec(), batch.len())?,
                weights: batch.weights.clone(),
            };
            let ends = arrow::compute::cast(own.rows.column(width - 1), &DataType::Int64)?;
            let ends = ends.as_primitive::<Int64Type>();
            let rows: Option<&Int64Array> = match self.spec.judged {
                Judged::ByRow => Some(batch.rows.column(width).as_primitive::<Int64Type>()),
                Judged::ByEpoch => None,
            };
            let watermark = |row: usize| match rows {
                Some(rows) => rows.is_valid(row).then(|| rows.value(row)),
                None => epoch,
            };
            let late = |row: usize| {
                watermark(row).is_some_and(|micros| ends.value(row) <= micros.saturating_add(self.spec.shift_us))
            };
            let keep: Vec<bool> = (0..own.len()).map(|row| !late(row)).collect();
            if keep.iter().all(|kept| *kept) {
                output.push(own)?;
                continue;
            }
            let refused: Vec<u32> = (0..own.len()).filter(|row| !keep[*row]).map(|row| row as u32).collect();
            let marks = refused.iter().filter_map(|row| watermark(*row as usize));
            let watermarks = marks.map(|micros| Watermark(Timestamp(micros))).collect();
            let gone = own.take(&UInt32Array::from(refused))?;
            context.faults.late_rows.push(LateRows {
                label: self.spec.label,
                weights: (0..gone.len()).map(|row| gone.weights.at(row)).collect(),
                rows: gone.rows,
                watermarks,
            });
            let kept = keep_rows(&own, &BooleanArray::from(keep))?;
            if !kept.is_empty() {
                output.push(kept)?;
            }
        }
        Ok(())
    }
}
