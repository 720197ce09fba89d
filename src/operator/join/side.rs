//! One side of a join: its keys, its rows, and what changes of it in an epoch.

use crate::delta::{Batch, Delta, KeyCodec, batch_of};
use crate::error::Result;
use crate::operator::groups::{Groups, columns_of, encode_keys, not_there};
use crate::operator::map::keep_rows;
use crate::state::Arranged;
use arrow::array::{Array, ArrayRef, BooleanArray, UInt32Array, new_null_array};
use arrow::compute::take;
use arrow::datatypes::SchemaRef;
use arrow::record_batch::RecordBatch;
use arrow::row::Rows;

use super::NullEquality;

/// What an epoch brings to both sides together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Arrivals {
    /// Nothing is taken away on either side.
    Inserts,
    /// Something is taken away: a pair may come by one side and go by the other, and is weighed once, so that no
    /// side may bring a row twice.
    Mixed,
}

impl Arrivals {
    /// What these changes bring.
    pub(super) fn of(inputs: &[Delta]) -> Self {
        if inputs.iter().all(Delta::is_inserts) {
            Self::Inserts
        } else {
            Self::Mixed
        }
    }
}

/// An input of a join.
pub(super) struct Side {
    pub(super) on: Vec<usize>,
    pub(super) keys: KeyCodec,
    pub(super) rows: KeyCodec,
    pub(super) schema: SchemaRef,
}

/// Rows that come and go, with their keys' numbers and their encodings.
pub(super) struct Changed {
    pub(super) batch: Batch,
    pub(super) groups: Vec<u32>,
    pub(super) rows: Rows,
}

/// What changes of a side.
pub(super) struct SideChange {
    /// Rows that may have a partner.
    pub(super) parts: Vec<Changed>,
    /// Rows that cannot: one of their keys is NULL.
    pub(super) alone: Vec<Batch>,
}

impl Side {
    pub(super) fn new(on: Vec<usize>, schema: &SchemaRef) -> Result<Self> {
        let kinds = on
            .iter()
            .map(|column| schema.field(*column).data_type().clone())
            .collect();
        Ok(Self {
            on,
            keys: KeyCodec::keys(kinds)?,
            rows: KeyCodec::rows(schema)?,
            schema: schema.clone(),
        })
    }

    /// Numbers the keys and encodes the rows of a change; each row comes once, or where `inserts` as it came.
    pub(super) fn take(
        &self,
        delta: &Delta,
        arrivals: Arrivals,
        nulls: NullEquality,
        groups: &mut Groups,
    ) -> Result<SideChange> {
        let mut change = SideChange {
            parts: Vec::new(),
            alone: Vec::new(),
        };
        let batches = match arrivals {
            Arrivals::Inserts => delta.batches.clone(),
            Arrivals::Mixed => delta.consolidate(&self.schema)?.batches,
        };
        for batch in batches {
            let (matching, alone) = self.split(batch, nulls)?;
            if !alone.is_empty() {
                change.alone.push(alone);
            }
            if matching.is_empty() {
                continue;
            }
            let keys = encode_keys(&self.keys, &matching, &self.on)?;
            change.parts.push(Changed {
                groups: groups.intern_all(&keys),
                rows: self.rows.encode(matching.rows.columns(), matching.len())?,
                batch: matching,
            });
        }
        Ok(change)
    }

    /// The rows that may have a partner, and those that cannot.
    fn split(&self, batch: Batch, nulls: NullEquality) -> Result<(Batch, Batch)> {
        let keys = columns_of(&batch, &self.on);
        if nulls == NullEquality::NullsMatch || keys.iter().all(|key| key.null_count() == 0) {
            let none = Batch::inserts(batch.rows.slice(0, 0));
            return Ok((batch, none));
        }
        let valid: BooleanArray = (0..batch.len())
            .map(|row| Some(keys.iter().all(|key| key.is_valid(row))))
            .collect();
        let alone = arrow::compute::not(&valid)?;
        Ok((keep_rows(&batch, &valid)?, keep_rows(&batch, &alone)?))
    }

    /// Applies a change to the side's arrangement.
    pub(super) fn apply(
        &self,
        operator: &'static str,
        change: &SideChange,
        groups: &Groups,
        table: &mut Arranged,
    ) -> Result<()> {
        for part in &change.parts {
            for (row, group) in part.groups.iter().enumerate() {
                let key = groups.key(*group as usize);
                table
                    .update(key, part.rows.row(row).data(), part.batch.weights.at(row))
                    .map_err(|_| not_there(operator, &self.keys, key))?;
            }
        }
        Ok(())
    }
}

impl SideChange {
    /// Marks the keys that it touches.
    pub(super) fn touched(&self, groups: usize) -> Vec<bool> {
        let mut touched = vec![false; groups];
        for group in self.parts.iter().flat_map(|part| &part.groups) {
            touched[*group as usize] = true;
        }
        touched
    }

    /// Whether every row is added.
    pub(super) fn is_inserts(&self) -> bool {
        self.parts
            .iter()
            .all(|part| matches!(part.batch.weights, crate::delta::Weights::Ones))
    }
}

/// Rows of one side for the output.
pub(super) enum Part<'a> {
    /// Rows of a batch.
    Taken(&'a RecordBatch, &'a [u32]),
    /// Rows from their encodings.
    Decoded(&'a [&'a [u8]]),
    /// NULLs.
    Nulls(usize),
}

impl Part<'_> {
    /// The columns.
    fn columns(&self, side: &Side) -> Result<Vec<ArrayRef>> {
        match self {
            Self::Taken(batch, rows) => {
                let rows = UInt32Array::from(rows.to_vec());
                Ok(batch
                    .columns()
                    .iter()
                    .map(|column| take(column, &rows, None))
                    .collect::<Result<_, _>>()?)
            }
            Self::Decoded(rows) => side.rows.decode(rows.iter().copied()),
            Self::Nulls(count) => {
                let fields = side.schema.fields().iter();
                Ok(fields.map(|field| new_null_array(field.data_type(), *count)).collect())
            }
        }
    }
}

/// Rows of both sides beside one another; the right one is left out where the join puts out left rows alone.
pub(super) fn beside(
    schema: &SchemaRef,
    left: (&Side, &Part<'_>),
    right: Option<(&Side, &Part<'_>)>,
    count: usize,
) -> Result<RecordBatch> {
    let mut columns = left.1.columns(left.0)?;
    if let Some((side, part)) = right {
        columns.extend(part.columns(side)?);
    }
    batch_of(schema.clone(), columns, count)
}

/// Which keys have no row in a table; `count` of them.
pub(super) fn emptiness(table: &Arranged, groups: &Groups, count: usize) -> Vec<bool> {
    (0..count)
        .map(|number| table.group(groups.key(number)).is_empty())
        .collect()
}
