//! Parallelism, all of it: N copies of a plain operator, each with the keys of its key groups.
//!
//! A delta is split by the key group of its keys; equal keys always meet in one shard, whichever input they come
//! through. Small deltas run on the calling thread, since waking another one would cost more than the work.

use crate::delta::{Batch, Delta, KEY_GROUPS, KeyCodec, key_group};
use crate::error::Result;
use crate::operator::{Advance, Faults, Keys, Operator, Output, StepContext, StepMetrics, StepTime};
use crate::state::Tables;
use crate::time::Timestamp;
use arrow::array::{ArrayRef, UInt32Array};
use arrow::datatypes::SchemaRef;
use rayon::prelude::{IndexedParallelIterator, IntoParallelIterator, IntoParallelRefMutIterator, ParallelIterator};

/// The rows from which on shards run on several threads.
const PARALLEL_ROWS_MIN: usize = 1024;

/// One copy of an operator, with the state of its key groups.
pub(super) struct Shard {
    operator: Box<dyn Operator>,
    pub(super) tables: Tables,
}

impl Shard {
    pub(super) fn new(operator: Box<dyn Operator>, tables: Tables) -> Self {
        Self { operator, tables }
    }

    pub(super) fn due(&self) -> Option<Timestamp> {
        self.operator.due()
    }

    pub(super) fn step(
        &mut self,
        time: StepTime,
        watermarks: &[Advance],
        inputs: &[Delta],
        faults: &mut Faults,
        metrics: &mut StepMetrics,
        output: &mut Output,
    ) -> Result<()> {
        let mut context = StepContext {
            time,
            watermarks,
            tables: &mut self.tables,
            faults,
            metrics,
        };
        self.operator.step(&mut context, inputs, output)
    }
}

/// The inputs of each shard.
pub(super) fn split(inputs: Vec<Delta>, keys: &Keys, schemas: &[SchemaRef], shards: usize) -> Result<Vec<Vec<Delta>>> {
    if shards == 1 {
        return Ok(vec![inputs]);
    }
    let mut parts: Vec<Vec<Delta>> = (0..shards).map(|_| vec![Delta::new(); inputs.len()]).collect();
    for (index, input) in inputs.into_iter().enumerate() {
        match keys {
            Keys::Single => parts[0][index] = input,
            Keys::Stateless => split_evenly(input, index, &mut parts),
            Keys::By(lists) => split_by_key(&input, index, &lists[index], &schemas[index], &mut parts)?,
        }
    }
    Ok(parts)
}

fn split_evenly(input: Delta, index: usize, parts: &mut [Vec<Delta>]) {
    if input.len() < PARALLEL_ROWS_MIN {
        parts[0][index] = input;
        return;
    }
    for batch in input.batches {
        let share = batch.len().div_ceil(parts.len()).max(1);
        for (turn, part) in parts.iter_mut().enumerate() {
            let from = (turn * share).min(batch.len());
            let length = share.min(batch.len() - from);
            part[index].push(slice(&batch, from, length));
        }
    }
}

fn slice(batch: &Batch, from: usize, length: usize) -> Batch {
    use crate::delta::Weights;
    Batch {
        rows: batch.rows.slice(from, length),
        weights: match &batch.weights {
            Weights::Ones => Weights::Ones,
            Weights::Each(weights) => Weights::Each(weights.slice(from, length)),
        },
    }
}

fn split_by_key(
    input: &Delta,
    index: usize,
    columns: &[usize],
    schema: &SchemaRef,
    parts: &mut [Vec<Delta>],
) -> Result<()> {
    let types = columns
        .iter()
        .map(|column| schema.field(*column).data_type().clone())
        .collect();
    let codec = KeyCodec::keys(types)?;
    for batch in &input.batches {
        let keys: Vec<ArrayRef> = columns
            .iter()
            .map(|column| batch.rows.column(*column).clone())
            .collect();
        let encoded = codec.encode(&keys, batch.len())?;
        let mut rows: Vec<Vec<u32>> = vec![Vec::new(); parts.len()];
        for (row, key) in encoded.iter().enumerate() {
            let shard = usize::from(key_group(key.data())) * parts.len() / KEY_GROUPS;
            rows[shard].push(row as u32);
        }
        for (part, rows) in parts.iter_mut().zip(rows) {
            if rows.len() == batch.len() {
                part[index].push(batch.clone());
            } else if !rows.is_empty() {
                part[index].push(batch.take(&UInt32Array::from(rows))?);
            }
        }
    }
    Ok(())
}

/// Runs each shard over its part, in parallel when that pays.
pub(super) fn run<T: Send>(
    shards: &mut [Shard],
    parts: Vec<Vec<Delta>>,
    work: &(dyn Fn(&mut Shard, &[Delta]) -> T + Sync),
) -> Vec<T> {
    let rows: usize = parts.iter().flatten().map(Delta::len).sum();
    if shards.len() > 1 && rows >= PARALLEL_ROWS_MIN {
        return shards
            .par_iter_mut()
            .zip(parts.into_par_iter())
            .map(|(shard, part)| work(shard, &part))
            .collect();
    }
    shards
        .iter_mut()
        .zip(parts)
        .map(|(shard, part)| work(shard, &part))
        .collect()
}
