//! Changes to streams and tables: checked against what is there, then written.
//!
//! The driver applies the writes of an epoch one after the other. Each is checked first, whole, against the store and
//! against what earlier writes of the same epoch did; then it is applied, whole, or refused.

use super::command::{Duplicate, Write};
use super::published::Stored;
use crate::catalog::{Relation, RelationId, RelationKind};
use crate::dataflow::Changes;
use crate::delta::Delta;
use crate::error::{Error, Result};
use crate::state::relation::{Form, Rows};
use crate::state::{Commit, Store};
use crate::time::Epoch;
use ahash::RandomState;
use arrow::array::RecordBatch;
use hashbrown::HashMap;
use std::sync::Arc;

/// What the writes of one epoch have done so far to relations.
#[derive(Default)]
pub struct Pending {
    /// Keyed tables: the row of each key that was touched (`None`: deleted).
    keyed: HashMap<(RelationId, Box<[u8]>), Row, RandomState>,
    /// Bags: how many copies of a row were deleted.
    deleted: HashMap<(RelationId, Box<[u8]>), i64, RandomState>,
    /// Logs: the next part of each stream.
    parts: HashMap<RelationId, u32, RandomState>,
    /// The changes of each relation.
    pub changes: Changes,
}

/// The place of a write: what it is applied to.
pub struct Base<'a> {
    /// The store.
    pub store: &'a Store,
    /// The epoch.
    pub epoch: Epoch,
    /// The relation.
    pub relation: &'a Arc<Relation>,
    /// Where its rows are.
    pub stored: &'a Stored,
}

/// The encoded row of a touched key; `None`: deleted.
type Row = Option<Box<[u8]>>;

/// The touched keys of one checked change of a keyed table.
type Touched = Vec<(Box<[u8]>, Row)>;

/// The keys that the change being checked has touched so far.
type Own = HashMap<Box<[u8]>, Row, RandomState>;

/// What was found when a change was checked.
pub enum Checked {
    /// A keyed table's new rows by key.
    Keyed(Touched),
    /// A bag's deleted rows.
    Bag(Vec<(Box<[u8]>, i64)>),
    /// A stream's rows need no check.
    Log,
}

impl Pending {
    /// Checks a write against what is there.
    pub fn check(&self, base: &Base<'_>, delta: &Delta, write: &Write) -> Result<Checked> {
        let rows = rows_of(base)?;
        match rows.form {
            Form::Log => {
                if !delta.is_inserts() {
                    return Err(Error::unsupported(format!(
                        "rows of stream \"{}\" cannot be changed",
                        base.relation.name
                    ))
                    .with_hint("Streams are append-only: use a table for rows that change."));
                }
                Ok(Checked::Log)
            }
            Form::Keyed => self.check_keyed(base, rows, delta, write.duplicate).map(Checked::Keyed),
            Form::Bag => self.check_bag(base, rows, delta).map(Checked::Bag),
        }
    }

    fn check_keyed(&self, base: &Base<'_>, rows: &Rows, delta: &Delta, duplicate: Duplicate) -> Result<Touched> {
        let key = base
            .stored
            .key
            .as_ref()
            .ok_or_else(|| Error::internal("a keyed table has no key"))?;
        let mut own = Own::default();
        for deletes in [true, false] {
            for batch in &delta.batches {
                let keys = key.encode(&batch.rows)?;
                let encoded = rows.encode(&batch.rows)?;
                let found = self.current(base, rows, &keys, &own)?;
                for (row, stored) in found.iter().enumerate() {
                    let weight = batch.weights.at(row);
                    if (weight < 0) != deletes {
                        continue;
                    }
                    let key_bytes: Box<[u8]> = keys.row(row).data().into();
                    let row_bytes = encoded.row(row).data();
                    let current = match own.get(&key_bytes) {
                        Some(value) => value.clone(),
                        None => stored.clone(),
                    };
                    if deletes {
                        if current.as_deref() != Some(row_bytes) {
                            return Err(changed_meanwhile(base.relation));
                        }
                        own.insert(key_bytes, None);
                    } else {
                        if current.is_some() || weight > 1 {
                            return Err(match duplicate {
                                Duplicate::Error => duplicate_key(base.relation, &key.columns, &batch.rows, row),
                                Duplicate::Conflict => changed_meanwhile(base.relation),
                            });
                        }
                        own.insert(key_bytes, Some(row_bytes.into()));
                    }
                }
            }
        }
        Ok(own.into_iter().collect())
    }

    /// The rows that are there now for these keys: from this epoch's writes, else from the store.
    fn current(&self, base: &Base<'_>, rows: &Rows, keys: &arrow::row::Rows, own: &Own) -> Result<Vec<Row>> {
        let stored: Vec<Vec<u8>> = keys.iter().map(|key| rows.stored_key(key.data())).collect();
        let found = base.store.multi_get(&stored)?;
        Ok(keys
            .iter()
            .zip(found)
            .map(|(key, found)| {
                if own.contains_key(key.data()) {
                    return None;
                }
                match self.keyed.get(&(base.relation.id, key.data().into())) {
                    Some(pending) => pending.clone(),
                    None => found.map(Vec::into_boxed_slice),
                }
            })
            .collect())
    }

    fn check_bag(&self, base: &Base<'_>, rows: &Rows, delta: &Delta) -> Result<Vec<(Box<[u8]>, i64)>> {
        let mut deleted: HashMap<Box<[u8]>, i64, RandomState> = HashMap::default();
        for batch in &delta.batches {
            if matches!(batch.weights, crate::delta::Weights::Ones) {
                continue;
            }
            let encoded = rows.encode(&batch.rows)?;
            for row in (0..batch.len()).filter(|row| batch.weights.at(*row) < 0) {
                *deleted.entry(encoded.row(row).data().into()).or_insert(0) -= batch.weights.at(row);
            }
        }
        let deleted: Vec<(Box<[u8]>, i64)> = deleted.into_iter().collect();
        let stored: Vec<Vec<u8>> = deleted.iter().map(|(row, _)| rows.stored_key(row)).collect();
        for ((row, count), found) in deleted.iter().zip(base.store.multi_get(&stored)?) {
            let there = found.map_or(0, |value| {
                <[u8; 8]>::try_from(value.as_slice()).map_or(0, i64::from_le_bytes)
            });
            let gone = self.deleted.get(&(base.relation.id, row.clone())).copied().unwrap_or(0);
            if there - gone < *count {
                return Err(changed_meanwhile(base.relation));
            }
        }
        Ok(deleted)
    }

    /// Applies a checked change.
    pub fn apply(&mut self, base: &Base<'_>, delta: Delta, checked: Checked, commit: &mut Commit) -> Result<()> {
        let rows = rows_of(base)?;
        let id = base.relation.id;
        match checked {
            Checked::Log => {
                let part = self.parts.entry(id).or_insert(0);
                let retained = match &base.relation.kind {
                    RelationKind::Stream(stream) => stream.retention != crate::catalog::Retention::None,
                    _ => true,
                };
                if retained {
                    for batch in &delta.batches {
                        *part = rows.write_log(base.epoch, *part, &batch.rows, commit)?;
                    }
                }
            }
            Checked::Keyed(touched) => {
                for (key, row) in touched {
                    let stored = rows.stored_key(&key);
                    match &row {
                        Some(row) => commit.put(&stored, row),
                        None => commit.delete(&stored),
                    }
                    self.keyed.insert((id, key), row);
                }
            }
            Checked::Bag(deleted) => {
                rows.write_bag(&delta, commit)?;
                for (row, count) in deleted {
                    *self.deleted.entry((id, row)).or_insert(0) += count;
                }
            }
        }
        self.changes.entry(id).or_default().append(delta);
        Ok(())
    }
}

fn rows_of<'a>(base: &'a Base<'_>) -> Result<&'a Rows> {
    base.stored
        .rows
        .as_ref()
        .ok_or_else(|| Error::internal(format!("relation \"{}\" keeps no rows", base.relation.name)))
}

fn changed_meanwhile(relation: &Relation) -> Error {
    Error::conflict("could not serialize access due to concurrent update")
        .with_detail(format!("A row of table \"{}\" has changed meanwhile.", relation.name))
        .with_hint("Try the transaction again.")
}

/// PostgreSQL's words for a duplicate key.
pub fn duplicate_key(relation: &Relation, key: &[usize], rows: &RecordBatch, row: usize) -> Error {
    let names: Vec<&str> = key.iter().map(|index| relation.columns[*index].name.as_str()).collect();
    let values: Vec<String> = key
        .iter()
        .map(|index| arrow::util::display::array_value_to_string(rows.column(*index), row).unwrap_or_default())
        .collect();
    Error::semantic(
        "23505",
        format!(
            "duplicate key value violates unique constraint \"{}_pkey\"",
            relation.name
        ),
    )
    .with_detail(format!(
        "Key ({})=({}) already exists.",
        names.join(", "),
        values.join(", ")
    ))
}
