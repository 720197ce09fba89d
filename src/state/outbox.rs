//! What a sink has still to deliver: the changes of its query, epoch by epoch.
//!
//! An epoch's atomic write puts the sink's change here; delivery takes whole epochs out at its own pace and forgets
//! them in the same write that stores its position. Keys are `table | epoch (8) | part (8) | rows (4)`, so that epochs
//! come in order, and what waits can be counted without decoding it.

use super::relation::{Form, Rows};
use super::{Commit, Store, TableId};
use crate::delta::{Batch, Delta, Weights, batch_of};
use crate::error::{Error, Result};
use crate::time::Epoch;
use arrow::array::{ArrayRef, AsArray, Int64Array};
use arrow::datatypes::{DataType, Field, Int64Type, Schema, SchemaRef};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The bytes of a key.
const KEY_BYTES: usize = 24;

/// The changes that a sink has to deliver.
#[derive(Debug, Clone)]
pub struct Outbox {
    /// The columns of the rows.
    pub schema: SchemaRef,
    rows: Rows,
    /// The next part. Parts of an epoch are only ordered, not counted, and no epoch outlives the process that makes it
    /// without being whole; so any growing number will do.
    part: Arc<AtomicU64>,
}

/// The changes of one epoch, or a part of them.
#[derive(Debug)]
pub struct Portion {
    /// The epoch.
    pub epoch: Epoch,
    /// The changes.
    pub delta: Delta,
}

/// How much waits.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Waiting {
    /// The changed rows.
    pub rows: u64,
    /// The bytes that they take in the store, before compression.
    pub bytes: u64,
}

impl Outbox {
    /// The outbox in a table, for rows of these columns.
    pub fn new(table: TableId, schema: SchemaRef) -> Result<Self> {
        let weight = Field::new("diff", DataType::Int64, false);
        let fields = std::iter::once(Arc::new(weight)).chain(schema.fields().iter().cloned());
        let stored = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
        Ok(Self {
            schema,
            rows: Rows::new(table, Form::Log, stored)?,
            part: Arc::default(),
        })
    }

    /// Adds an epoch's changes; what is added counts as waiting.
    pub fn write(&self, epoch: Epoch, delta: &Delta, commit: &mut Commit) -> Result<()> {
        for batch in delta.batches.iter().filter(|batch| !batch.is_empty()) {
            let weights: ArrayRef = match &batch.weights {
                Weights::Ones => Arc::new(Int64Array::from_value(1, batch.len())),
                Weights::Each(weights) => Arc::new(weights.clone()),
            };
            let columns = std::iter::once(weights).chain(batch.rows.columns().iter().cloned());
            let whole = batch_of(self.rows.schema.clone(), columns.collect(), batch.len())?;
            let mut key = self.start_of(epoch);
            key.extend_from_slice(&self.part.fetch_add(1, Ordering::Relaxed).to_be_bytes());
            key.extend_from_slice(&(batch.len() as u32).to_be_bytes());
            commit.put(&key, &self.rows.block(&whole)?);
        }
        Ok(())
    }

    /// How much waits of the epochs up to `last`.
    pub fn waiting(&self, store: &Store, last: Epoch) -> Result<Waiting> {
        let mut waiting = Waiting::default();
        let (from, _) = self.rows.table.range();
        let mut scan = store.scan(&from, &self.start_of(last.next()));
        while let Some((key, block)) = scan.next_entry()? {
            let (_, rows) = read_key(key)?;
            waiting.rows += u64::from(rows);
            waiting.bytes += (key.len() + block.len()) as u64;
        }
        Ok(waiting)
    }

    /// Gives `take` the changes of the epochs up to `last`, in order. After `bytes_max` bytes it stops at the end of
    /// an epoch. The last epoch that was given whole, and how much that was.
    pub fn read(
        &self,
        store: &Store,
        last: Epoch,
        bytes_max: u64,
        mut take: impl FnMut(Portion) -> Result<()>,
    ) -> Result<Option<(Epoch, Waiting)>> {
        let (from, _) = self.rows.table.range();
        let mut scan = store.scan(&from, &self.start_of(last.next()));
        let mut given: Option<(Epoch, Waiting)> = None;
        while let Some((key, block)) = scan.next_entry()? {
            let (epoch, rows) = read_key(key)?;
            let mut taken = match given {
                Some((before, taken)) if before != epoch && taken.bytes >= bytes_max => break,
                Some((_, taken)) => taken,
                None => Waiting::default(),
            };
            taken.rows += u64::from(rows);
            taken.bytes += (key.len() + block.len()) as u64;
            let delta = self.changes(block)?;
            take(Portion { epoch, delta })?;
            given = Some((epoch, taken));
        }
        Ok(given)
    }

    /// Forgets the epochs up to `last`.
    pub fn forget(&self, last: Epoch, commit: &mut Commit) {
        let (from, _) = self.rows.table.range();
        commit.delete_range(&from, &self.start_of(last.next()));
    }

    fn start_of(&self, epoch: Epoch) -> Vec<u8> {
        let mut key = self.rows.table.prefix().to_vec();
        key.extend_from_slice(&epoch.0.to_be_bytes());
        key
    }

    fn changes(&self, block: &[u8]) -> Result<Delta> {
        let mut delta = Delta::new();
        for whole in self.rows.read_block(block)? {
            let (weights, columns) = whole
                .columns()
                .split_first()
                .ok_or_else(|| Error::corrupt("a change in an outbox has no weight"))?;
            delta.push(Batch {
                rows: batch_of(self.schema.clone(), columns.to_vec(), whole.num_rows())?,
                weights: Weights::Each(weights.as_primitive::<Int64Type>().clone()),
            });
        }
        Ok(delta)
    }
}

fn read_key(key: &[u8]) -> Result<(Epoch, u32)> {
    let fields = || {
        let rest = (key.len() == KEY_BYTES).then_some(key)?.get(4..)?;
        let epoch = u64::from_be_bytes(rest.get(..8)?.try_into().ok()?);
        let rows = u32::from_be_bytes(rest.get(16..)?.try_into().ok()?);
        Some((Epoch(epoch), rows))
    };
    fields().ok_or_else(|| Error::corrupt("a key of an outbox has another form"))
}

#[cfg(test)]
mod tests {
    use super::super::Durability;
    use super::*;
    use arrow::array::RecordBatch;

    fn delta(rows: &[(i64, i64)]) -> Delta {
        let ids: ArrayRef = Arc::new(Int64Array::from_iter_values(rows.iter().map(|(id, _)| *id)));
        let weights: Vec<i64> = rows.iter().map(|(_, weight)| *weight).collect();
        let rows = RecordBatch::try_from_iter([("a", ids)]).expect("one column is as long as itself");
        Delta::from(Batch {
            rows,
            weights: weights.into(),
        })
    }

    fn flat(portions: &[Portion]) -> Vec<(u64, i64, i64)> {
        let mut all = Vec::new();
        for portion in portions {
            for batch in &portion.delta.batches {
                let ids = batch.rows.column(0).as_primitive::<Int64Type>();
                all.extend((0..batch.len()).map(|row| (portion.epoch.0, ids.value(row), batch.weights.at(row))));
            }
        }
        all
    }

    #[test]
    fn whole_epochs_come_in_order_and_are_forgotten() -> Result<()> {
        let store = Store::memory()?;
        let schema = Arc::new(Schema::new(vec![Field::new("a", DataType::Int64, true)]));
        let outbox = Outbox::new(TableId(9), schema)?;
        let mut commit = Commit::new();
        outbox.write(Epoch(4), &delta(&[(1, 1), (2, 1)]), &mut commit)?;
        outbox.write(Epoch(4), &delta(&[(3, 1)]), &mut commit)?;
        outbox.write(Epoch(300), &delta(&[(1, -1)]), &mut commit)?;
        outbox.write(Epoch(301), &delta(&[(9, 2)]), &mut commit)?;
        store.commit(commit, Durability::Buffered)?;
        assert_eq!(outbox.waiting(&store, Epoch(300))?.rows, 4);

        let mut got = Vec::new();
        let take = |portion| {
            got.push(portion);
            Ok(())
        };
        let (last, taken) = outbox.read(&store, Epoch(400), 1, take)?.expect("there are changes");
        assert_eq!((last, taken.rows), (Epoch(4), 3), "an epoch is never cut");
        assert_eq!(flat(&got), vec![(4, 1, 1), (4, 2, 1), (4, 3, 1)]);

        let mut commit = Commit::new();
        outbox.forget(last, &mut commit);
        store.commit(commit, Durability::Buffered)?;
        let mut got = Vec::new();
        let take = |portion| {
            got.push(portion);
            Ok(())
        };
        let read = outbox.read(&store, Epoch(300), u64::MAX, take)?;
        assert_eq!(
            read.map(|(last, _)| last),
            Some(Epoch(300)),
            "not beyond what was asked for"
        );
        assert_eq!(flat(&got), vec![(300, 1, -1)]);
        assert_eq!(outbox.waiting(&store, Epoch(u64::MAX - 1))?.rows, 2);
        Ok(())
    }
}
