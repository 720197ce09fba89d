//! Where relations keep their rows: what readers scan.
//!
//! Three forms, all under a table id of their own:
//!
//! - [`Form::Log`]: a stream's retained rows (and, with other keys, a sink's [`super::outbox`]), blocks in order of arrival: `epoch (8) | part (4)` -> block;
//! - [`Form::Keyed`]: a table with a key: `key group | key` -> row;
//! - [`Form::Bag`]: a table without a key, and every view: `key group | row` -> count.
//!
//! Counts are added to, not read and rewritten: a view's change costs one blind write per changed row.

use super::store::count_of;
use super::{Commit, Scan, Snapshot, TableId};
use crate::delta::{Batch, Delta, KeyCodec, batch_of, key_group};
use crate::error::{Error, Result};
use crate::time::Epoch;
use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use arrow::ipc::reader::StreamReader;
use arrow::ipc::writer::StreamWriter;
use std::sync::Arc;

/// The rows that a scan decodes at a time.
const SCAN_ROWS: usize = 8192;

/// The rows up to which a block of a log is kept row by row, without Arrow's schema.
const SMALL_BLOCK_ROWS: usize = 64;

/// The first byte of a block: what follows.
const BLOCK_ROWS: u8 = 1;
const BLOCK_ARROW: u8 = 2;

/// How a relation keeps its rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// Blocks in order of arrival.
    Log,
    /// One row per key.
    Keyed,
    /// Rows and their counts.
    Bag,
}

/// The place of a relation's rows.
#[derive(Debug, Clone)]
pub struct Rows {
    /// The table that holds them.
    pub table: TableId,
    /// How.
    pub form: Form,
    /// Their columns.
    pub schema: SchemaRef,
    codec: Arc<KeyCodec>,
}

impl Rows {
    /// The rows of a relation.
    pub fn new(table: TableId, form: Form, schema: SchemaRef) -> Result<Self> {
        let codec = Arc::new(KeyCodec::rows(&schema)?);
        Ok(Self {
            table,
            form,
            schema,
            codec,
        })
    }

    /// Encodes rows.
    pub fn encode(&self, rows: &RecordBatch) -> Result<arrow::row::Rows> {
        self.codec.encode(rows.columns(), rows.num_rows())
    }

    /// Decodes rows.
    pub fn decode<'a>(&self, rows: impl IntoIterator<Item = &'a [u8]>) -> Result<RecordBatch> {
        let rows: Vec<&[u8]> = rows.into_iter().collect();
        let count = rows.len();
        batch_of(self.schema.clone(), self.codec.decode(rows)?, count)
    }

    /// The stored key of an encoded row (bag) or key (keyed).
    pub fn stored_key(&self, key: &[u8]) -> Vec<u8> {
        let mut stored = Vec::with_capacity(key.len() + 5);
        self.write_key(key, &mut stored);
        stored
    }

    fn write_key(&self, key: &[u8], stored: &mut Vec<u8>) {
        stored.clear();
        stored.extend_from_slice(&self.table.prefix());
        stored.push(key_group(key));
        stored.extend_from_slice(key);
    }

    /// Adds a change to a bag.
    pub fn write_bag(&self, delta: &Delta, commit: &mut Commit) -> Result<()> {
        let mut stored = Vec::new();
        for batch in &delta.batches {
            let encoded = self.encode(&batch.rows)?;
            for row in 0..batch.len() {
                self.write_key(encoded.row(row).data(), &mut stored);
                commit.add(&stored, batch.weights.at(row));
            }
        }
        Ok(())
    }

    /// Appends rows to a log, as part `part` of an epoch; the number of the next part is returned.
    pub fn write_log(&self, epoch: Epoch, part: u32, rows: &RecordBatch, commit: &mut Commit) -> Result<u32> {
        let mut key = self.table.prefix().to_vec();
        key.extend_from_slice(&epoch.0.to_be_bytes());
        key.extend_from_slice(&part.to_be_bytes());
        commit.put(&key, &self.block(rows)?);
        Ok(part + 1)
    }

    pub(super) fn block(&self, rows: &RecordBatch) -> Result<Vec<u8>> {
        if rows.num_rows() <= SMALL_BLOCK_ROWS {
            let encoded = self.encode(rows)?;
            let mut block = vec![BLOCK_ROWS];
            for row in encoded.iter() {
                let data = row.data();
                block.extend_from_slice(&(data.len() as u32).to_le_bytes());
                block.extend_from_slice(data);
            }
            return Ok(block);
        }
        let mut writer = StreamWriter::try_new(vec![BLOCK_ARROW], &self.schema)?;
        writer.write(rows)?;
        writer.finish()?;
        Ok(writer.into_inner()?)
    }

    pub(super) fn read_block(&self, block: &[u8]) -> Result<Vec<RecordBatch>> {
        match block.split_first() {
            Some((&BLOCK_ROWS, mut rest)) => {
                let mut rows = Vec::new();
                while let Some((length, tail)) = rest.split_at_checked(4) {
                    let length = u32::from_le_bytes(length.try_into().unwrap_or_default()) as usize;
                    let (row, tail) = tail
                        .split_at_checked(length)
                        .ok_or_else(|| Error::corrupt("a block of a stream's log ends early"))?;
                    rows.push(row);
                    rest = tail;
                }
                Ok(vec![self.decode(rows)?])
            }
            Some((&BLOCK_ARROW, rest)) => StreamReader::try_new(rest, None)?
                .map(|batch| {
                    let batch = batch?;
                    batch_of(self.schema.clone(), batch.columns().to_vec(), batch.num_rows())
                })
                .collect(),
            _ => Err(Error::corrupt("a block of a stream's log has an unknown form")),
        }
    }

    /// The rows as of a snapshot, a few thousand at a time.
    pub fn scan(&self, snapshot: &Snapshot) -> RowScan {
        let (from, to) = self.table.range();
        RowScan {
            rows: self.clone(),
            scan: snapshot.scan(&from, &to),
            ready: Vec::new(),
        }
    }

    /// The row of a key of a keyed table.
    pub fn get(&self, snapshot: &Snapshot, key: &[u8]) -> Result<Option<Vec<u8>>> {
        snapshot.get(&self.stored_key(key))
    }
}

/// A scan over a relation's rows.
pub struct RowScan {
    rows: Rows,
    scan: Scan,
    ready: Vec<Batch>,
}

impl RowScan {
    /// The next rows with their counts; `None` at the end.
    pub fn next_batch(&mut self) -> Result<Option<Batch>> {
        match self.rows.form {
            Form::Log => self.next_of_log(),
            Form::Keyed => self.next_of_rows(|_, value| (value.to_vec(), 1)),
            Form::Bag => self.next_of_rows(|key, value| (key[5..].to_vec(), count_of(value))),
        }
    }

    fn next_of_log(&mut self) -> Result<Option<Batch>> {
        if let Some(batch) = self.ready.pop() {
            return Ok(Some(batch));
        }
        let Some((_, block)) = self.scan.next_entry()? else {
            return Ok(None);
        };
        // Single-row blocks are many: gather them before decoding.
        if block.first() == Some(&BLOCK_ROWS) {
            let mut blocks = vec![block.to_vec()];
            let mut bytes = blocks[0].len();
            let mut other = None;
            while blocks.len() < SCAN_ROWS && bytes < 4 << 20 {
                match self.scan.next_entry()? {
                    Some((_, next)) if next.first() == Some(&BLOCK_ROWS) => {
                        bytes += next.len();
                        blocks.push(next.to_vec());
                    }
                    Some((_, next)) => {
                        other = Some(next.to_vec());
                        break;
                    }
                    None => break,
                }
            }
            let mut all = vec![BLOCK_ROWS];
            for block in &blocks {
                all.extend_from_slice(&block[1..]);
            }
            if let Some(next) = other {
                for batch in self.rows.read_block(&next)?.into_iter().rev() {
                    self.ready.push(Batch::inserts(batch));
                }
            }
            let first = self.rows.read_block(&all)?.swap_remove(0);
            return Ok(Some(Batch::inserts(first)));
        }
        let block = block.to_vec();
        let mut batches = self.rows.read_block(&block)?;
        batches.reverse();
        self.ready = batches.into_iter().map(Batch::inserts).collect();
        Ok(self.ready.pop())
    }

    fn next_of_rows(&mut self, read: impl Fn(&[u8], &[u8]) -> (Vec<u8>, i64)) -> Result<Option<Batch>> {
        let mut encoded = Vec::with_capacity(SCAN_ROWS);
        let mut weights = Vec::with_capacity(SCAN_ROWS);
        while encoded.len() < SCAN_ROWS {
            let Some((key, value)) = self.scan.next_entry()? else {
                break;
            };
            let (row, weight) = read(key, value);
            if weight == 0 {
                continue;
            }
            if weight < 0 {
                return Err(Error::corrupt("a row has a negative count"));
            }
            encoded.push(row);
            weights.push(weight);
        }
        if encoded.is_empty() {
            return Ok(None);
        }
        let rows = self.rows.decode(encoded.iter().map(Vec::as_slice))?;
        Ok(Some(Batch {
            rows,
            weights: weights.into(),
        }))
    }
}

/// Repeats each row as often as its weight says.
pub fn expand(batch: &Batch) -> Result<RecordBatch> {
    match &batch.weights {
        crate::delta::Weights::Ones => Ok(batch.rows.clone()),
        crate::delta::Weights::Each(_) => {
            let indices =
                (0..batch.len()).flat_map(|row| std::iter::repeat_n(row as u32, batch.weights.at(row).max(0) as usize));
            let indices = arrow::array::UInt32Array::from_iter_values(indices);
            Ok(Batch::inserts(batch.rows.clone()).take(&indices)?.rows)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Durability, Store};
    use super::*;
    use arrow::array::{ArrayRef, Int64Array, StringArray};
    use arrow::datatypes::{DataType, Field, Schema};

    fn rows(values: std::ops::Range<i64>) -> RecordBatch {
        let ids: ArrayRef = Arc::new(Int64Array::from_iter_values(values.clone()));
        let texts: ArrayRef = Arc::new(StringArray::from_iter_values(values.map(|n| format!("t{n}"))));
        RecordBatch::try_from_iter([("a", ids), ("b", texts)]).expect("the columns are equally long")
    }

    #[test]
    fn a_log_gives_back_its_rows_in_order() -> Result<()> {
        let store = Store::memory()?;
        let schema = Arc::new(Schema::new(vec![
            Field::new("a", DataType::Int64, true),
            Field::new("b", DataType::Utf8, true),
        ]));
        let log = Rows::new(TableId(3), Form::Log, schema.clone())?;
        let mut commit = Commit::new();
        let mut next = 0;
        for (epoch, count) in [(1, 1), (2, 3), (3, 500), (4, 2), (5, 100), (6, 1)] {
            let part = log.write_log(Epoch(epoch), 0, &rows(next..next + count), &mut commit)?;
            assert_eq!(part, 1);
            next += count;
        }
        store.commit(commit, Durability::Buffered)?;
        let mut scan = log.scan(&store.snapshot());
        let mut seen = Vec::new();
        while let Some(batch) = scan.next_batch()? {
            let ids = arrow::array::AsArray::as_primitive::<arrow::datatypes::Int64Type>(batch.rows.column(0));
            seen.extend(ids.values().iter().copied());
        }
        assert_eq!(seen, (0..next).collect::<Vec<_>>());
        Ok(())
    }

    #[test]
    fn a_bag_counts_and_forgets_what_counts_nothing() -> Result<()> {
        let store = Store::memory()?;
        let bag = Rows::new(TableId(3), Form::Bag, rows(0..0).schema())?;
        let mut commit = Commit::new();
        bag.write_bag(&Batch::inserts(rows(0..3)).into(), &mut commit)?;
        bag.write_bag(&Batch::inserts(rows(1..2)).into(), &mut commit)?;
        bag.write_bag(&Batch::deletes(rows(0..1)).into(), &mut commit)?;
        store.commit(commit, Durability::Buffered)?;
        let batch = bag.scan(&store.snapshot()).next_batch()?.expect("there are rows");
        let mut weights: Vec<i64> = (0..batch.len()).map(|row| batch.weights.at(row)).collect();
        weights.sort_unstable();
        assert_eq!(weights, vec![1, 2]);
        assert_eq!(expand(&batch)?.num_rows(), 3);
        Ok(())
    }
}
