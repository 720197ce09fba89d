//! "What changed?" Rows with weights, in columns.
//!
//! A [`Delta`] is a Z-set: a bag of rows in which each row has a weight, +n for n copies added and -n for n copies
//! taken away. **The key of a Z-set is the whole row**: an update is the old row at -1 and the new row at +1.
//! Deltas add up (`a + b` is both lists of batches), and [`Delta::consolidate`] brings equal rows together.

mod codec;

pub use codec::{KEY_GROUPS, KeyCodec, RowOrder, key_group};

use crate::error::Result;
use arrow::array::{Array, ArrayRef, Int64Array, UInt32Array};
use arrow::compute::{concat, take};
use arrow::datatypes::SchemaRef;
use arrow::record_batch::RecordBatch;

/// The weights of a batch's rows. All +1 is the common case and costs nothing.
#[derive(Debug, Clone, PartialEq)]
pub enum Weights {
    /// Each row has weight +1.
    Ones,
    /// One weight per row; never 0, never NULL.
    Each(Int64Array),
}

/// Rows and their weights.
#[derive(Debug, Clone, PartialEq)]
pub struct Batch {
    /// The rows.
    pub rows: RecordBatch,
    /// Their weights.
    pub weights: Weights,
}

/// A change: batches that add up.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Delta {
    /// The parts; none of them is empty.
    pub batches: Vec<Batch>,
}

impl Weights {
    /// The weight of row `index`.
    pub fn at(&self, index: usize) -> i64 {
        match self {
            Self::Ones => 1,
            Self::Each(weights) => weights.value(index),
        }
    }

    /// The weights of the rows at `indices`, in that order.
    pub fn take(&self, indices: &UInt32Array) -> Result<Self> {
        Ok(match self {
            Self::Ones => Self::Ones,
            Self::Each(weights) => Self::from(take_i64(weights, indices)?),
        })
    }
}

fn take_i64(weights: &Int64Array, indices: &UInt32Array) -> Result<Vec<i64>> {
    let taken = take(weights, indices, None)?;
    let taken = arrow::array::AsArray::as_primitive::<arrow::datatypes::Int64Type>(&taken);
    Ok(taken.values().to_vec())
}

impl From<Vec<i64>> for Weights {
    /// Keeps the cheap form when it can.
    fn from(weights: Vec<i64>) -> Self {
        if weights.iter().all(|weight| *weight == 1) {
            Self::Ones
        } else {
            Self::Each(Int64Array::from(weights))
        }
    }
}

impl Batch {
    /// Rows that are all added once.
    pub fn inserts(rows: RecordBatch) -> Self {
        Self {
            rows,
            weights: Weights::Ones,
        }
    }

    /// Rows that are all taken away once.
    pub fn deletes(rows: RecordBatch) -> Self {
        let weights = Weights::Each(Int64Array::from_value(-1, rows.num_rows()));
        Self { rows, weights }
    }

    /// The number of rows.
    pub fn len(&self) -> usize {
        self.rows.num_rows()
    }

    /// Whether there is no row.
    pub fn is_empty(&self) -> bool {
        self.rows.num_rows() == 0
    }

    /// The rows at `indices`, with their weights.
    pub fn take(&self, indices: &UInt32Array) -> Result<Self> {
        let columns = self
            .rows
            .columns()
            .iter()
            .map(|column| take(column, indices, None))
            .collect::<Result<Vec<_>, _>>()?;
        Ok(Self {
            rows: batch_of(self.rows.schema(), columns, indices.len())?,
            weights: self.weights.take(indices)?,
        })
    }

    /// Some of the rows, without copying them.
    #[must_use]
    pub fn slice(&self, from: usize, length: usize) -> Self {
        Self {
            rows: self.rows.slice(from, length),
            weights: match &self.weights {
                Weights::Ones => Weights::Ones,
                Weights::Each(weights) => Weights::Each(weights.slice(from, length)),
            },
        }
    }

    /// How many rows are taken away before the first is added; `None` if some are taken away after it.
    pub fn deletes_before_inserts(&self) -> Option<usize> {
        let Weights::Each(weights) = &self.weights else {
            return Some(0);
        };
        let weights = weights.values();
        let deletes = weights.iter().take_while(|weight| **weight < 0).count();
        weights[deletes..].iter().all(|weight| *weight > 0).then_some(deletes)
    }

    /// The same rows with the opposite weights.
    #[must_use]
    pub fn negate(&self) -> Self {
        let weights = (0..self.len()).map(|row| -self.weights.at(row)).collect();
        Self {
            rows: self.rows.clone(),
            weights: Weights::Each(Int64Array::from_iter_values(Vec::<i64>::into_iter(weights))),
        }
    }
}

impl Delta {
    /// No change.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a batch; an empty one is left out.
    pub fn push(&mut self, batch: Batch) {
        if !batch.is_empty() {
            self.batches.push(batch);
        }
    }

    /// Adds another change.
    pub fn append(&mut self, other: Self) {
        self.batches.extend(other.batches);
    }

    /// Whether nothing changes.
    pub fn is_empty(&self) -> bool {
        self.batches.is_empty()
    }

    /// The number of rows, each counted once whatever its weight.
    pub fn len(&self) -> usize {
        self.batches.iter().map(Batch::len).sum()
    }

    /// Whether every weight is +1.
    pub fn is_inserts(&self) -> bool {
        self.batches.iter().all(|batch| matches!(batch.weights, Weights::Ones))
    }

    /// The bytes of the rows in memory.
    pub fn bytes(&self) -> usize {
        self.batches
            .iter()
            .map(|batch| batch.rows.get_array_memory_size())
            .sum()
    }

    /// All rows in one batch.
    pub fn concat(&self, schema: &SchemaRef) -> Result<Batch> {
        match self.batches.as_slice() {
            [] => Ok(Batch::inserts(RecordBatch::new_empty(schema.clone()))),
            [single] => Ok(single.clone()),
            many => {
                let columns = (0..schema.fields().len())
                    .map(|index| {
                        let parts: Vec<&dyn Array> =
                            many.iter().map(|batch| batch.rows.column(index).as_ref()).collect();
                        concat(&parts)
                    })
                    .collect::<Result<Vec<_>, _>>()?;
                let weights = if self.is_inserts() {
                    Weights::Ones
                } else {
                    let weights = many
                        .iter()
                        .flat_map(|batch| (0..batch.len()).map(|row| batch.weights.at(row)));
                    Weights::Each(Int64Array::from_iter_values(weights.collect::<Vec<_>>()))
                };
                Ok(Batch {
                    rows: batch_of(schema.clone(), columns, self.len())?,
                    weights,
                })
            }
        }
    }

    /// The same change with each row once and no weight of 0; taken-away rows first, then added ones, each in the
    /// order in which they first came.
    pub fn consolidate(&self, schema: &SchemaRef) -> Result<Self> {
        if self.len() <= 1 {
            return Ok(self.clone());
        }
        let all = self.concat(schema)?;
        let codec = KeyCodec::rows(schema)?;
        let encoded = codec.encode(all.rows.columns(), all.len())?;
        let mut sums: hashbrown::HashMap<&[u8], usize, ahash::RandomState> =
            hashbrown::HashMap::with_capacity_and_hasher(all.len(), ahash::RandomState::new());
        let mut firsts: Vec<(u32, i64)> = Vec::with_capacity(all.len());
        for row in 0..all.len() {
            let weight = all.weights.at(row);
            let next = firsts.len();
            let slot = *sums.entry(encoded.row(row).data()).or_insert(next);
            if slot == next {
                firsts.push((row as u32, weight));
            } else {
                firsts[slot].1 += weight;
            }
        }
        let deletes = firsts.iter().filter(|(_, weight)| *weight < 0);
        let inserts = firsts.iter().filter(|(_, weight)| *weight > 0);
        let ordered: Vec<(u32, i64)> = deletes.chain(inserts).copied().collect();
        let indices = UInt32Array::from_iter_values(ordered.iter().map(|(row, _)| *row));
        let weights: Vec<i64> = ordered.iter().map(|(_, weight)| *weight).collect();
        let mut taken = Batch::inserts(all.rows).take(&indices)?;
        taken.weights = Weights::from(weights);
        let mut delta = Self::new();
        delta.push(taken);
        Ok(delta)
    }
}

impl From<Batch> for Delta {
    fn from(batch: Batch) -> Self {
        let mut delta = Self::new();
        delta.push(batch);
        delta
    }
}

/// A record batch of `rows` rows, also when it has no column.
pub fn batch_of(schema: SchemaRef, columns: Vec<ArrayRef>, rows: usize) -> Result<RecordBatch> {
    let options = arrow::record_batch::RecordBatchOptions::new().with_row_count(Some(rows));
    Ok(RecordBatch::try_new_with_options(schema, columns, &options)?)
}
