//! Rows of partitions in an order: what top-k, window functions and sessions keep.
//!
//! A row's *place* in its partition is the encoding of its order columns, then the row, then the length of the former,
//! so that places sort as the rows do, ties broken by row order. Operators look at a partition as it was and as it
//! will be by merging what is kept with what changes ([`OrderedChanges::merge`]), before the change is applied.

use super::changes::net;
use super::groups::{Groups, columns_of, encode_keys, not_there};
use crate::delta::{Batch, Delta, KeyCodec, RowOrder};
use crate::error::Result;
use crate::state::{Arranged, Group};
use arrow::array::{Array, ArrayRef, AsArray, Int64Array};
use arrow::datatypes::{DataType, Int64Type, SchemaRef, TimeUnit};
use arrow::row::Rows;

/// The encodings of partitions, orders and rows.
pub(super) struct Ordered {
    partition: Vec<usize>,
    keys: KeyCodec,
    order: Order,
    pub(super) rows: KeyCodec,
    schema: SchemaRef,
}

/// What rows are ordered by.
enum Order {
    /// Columns.
    Columns(Vec<usize>, KeyCodec),
    /// A time, in eight bytes that sort as it does, so that it can be read back at once.
    Time(usize),
}

/// What changes, sorted by partition and place.
pub(super) struct OrderedChanges {
    pub(super) groups: Groups,
    bytes: Vec<u8>,
    changes: Vec<PlaceChange>,
}

#[derive(Debug, Clone, Copy)]
struct PlaceChange {
    group: u32,
    from: usize,
    to: usize,
    amount: i64,
}

/// The changes of one partition.
pub(super) struct Partition {
    /// The number of its key.
    pub(super) number: usize,
    from: usize,
    to: usize,
}

impl Partition {
    /// How many places change.
    pub(super) fn len(&self) -> usize {
        self.to - self.from
    }
}

/// A row of a partition, before and after.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place<'a> {
    /// All of it.
    pub(super) bytes: &'a [u8],
    /// The encoding of its order columns.
    pub(super) order: &'a [u8],
    /// Its own encoding.
    pub(super) row: &'a [u8],
    /// Its weight before.
    pub(super) old: i64,
    /// Its weight after.
    pub(super) new: i64,
}

impl Ordered {
    pub(super) fn new(partition: &[usize], order: &[(usize, RowOrder)], schema: &SchemaRef) -> Result<Self> {
        let type_of = |column: &usize| schema.field(*column).data_type().clone();
        let (columns, orders): (Vec<usize>, Vec<RowOrder>) = order.iter().copied().unzip();
        let codec = KeyCodec::ordered(columns.iter().map(type_of).collect(), &orders)?;
        Self::by(partition, Order::Columns(columns, codec), schema)
    }

    /// By a column of times; rows without a time are left out.
    pub(super) fn by_time(partition: &[usize], time: usize, schema: &SchemaRef) -> Result<Self> {
        Self::by(partition, Order::Time(time), schema)
    }

    fn by(partition: &[usize], order: Order, schema: &SchemaRef) -> Result<Self> {
        let type_of = |column: &usize| schema.field(*column).data_type().clone();
        Ok(Self {
            partition: partition.to_vec(),
            keys: KeyCodec::keys(partition.iter().map(type_of).collect())?,
            order,
            rows: KeyCodec::rows(schema)?,
            schema: schema.clone(),
        })
    }

    /// Encodes values of the order columns.
    pub(super) fn encode_order(&self, columns: &[ArrayRef], rows: usize) -> Result<Vec<Vec<u8>>> {
        match &self.order {
            Order::Columns(_, codec) => Ok(codec
                .encode(columns, rows)?
                .iter()
                .map(|row| row.data().to_vec())
                .collect()),
            Order::Time(_) => {
                let times = micros(&columns[0])?;
                Ok(times
                    .iter()
                    .map(|time| time.map_or_else(Vec::new, |time| time_bytes(time).to_vec()))
                    .collect())
            }
        }
    }

    /// The rows of a batch that have a place.
    fn placed(&self, batch: Batch) -> Result<Batch> {
        match self.order {
            Order::Time(time) if batch.rows.column(time).null_count() > 0 => {
                let valid = arrow::compute::is_not_null(batch.rows.column(time))?;
                super::map::keep_rows(&batch, &valid)
            }
            _ => Ok(batch),
        }
    }

    /// Encodes and sorts a change.
    pub(super) fn take(&self, delta: &Delta) -> Result<OrderedChanges> {
        let mut groups = Groups::default();
        let mut bytes = Vec::new();
        let mut changes = Vec::with_capacity(delta.len());
        for batch in net(delta, &self.schema)? {
            let batch = self.placed(batch)?;
            let keys = encode_keys(&self.keys, &batch, &self.partition)?;
            let orders = Orders::of(&self.order, &batch)?;
            let rows = self.rows.encode(batch.rows.columns(), batch.len())?;
            for row in 0..batch.len() {
                let from = bytes.len();
                orders.append(row, &mut bytes);
                let length = (bytes.len() - from) as u32;
                bytes.extend_from_slice(rows.row(row).data());
                bytes.extend_from_slice(&length.to_le_bytes());
                changes.push(PlaceChange {
                    group: groups.intern(keys.row(row).data()),
                    from,
                    to: bytes.len(),
                    amount: batch.weights.at(row),
                });
            }
        }
        changes.sort_unstable_by(|a, b| (a.group, &bytes[a.from..a.to]).cmp(&(b.group, &bytes[b.from..b.to])));
        changes.dedup_by(|next, first| {
            let same = first.group == next.group && bytes[first.from..first.to] == bytes[next.from..next.to];
            if same {
                first.amount += next.amount;
            }
            same
        });
        changes.retain(|change| change.amount != 0);
        Ok(OrderedChanges { groups, bytes, changes })
    }
}

/// The encoded order columns of a batch.
enum Orders {
    Columns(Rows),
    Times(Int64Array),
}

impl Orders {
    fn of(order: &Order, batch: &Batch) -> Result<Self> {
        Ok(match order {
            Order::Columns(columns, codec) => Self::Columns(codec.encode(&columns_of(batch, columns), batch.len())?),
            Order::Time(time) => Self::Times(micros(batch.rows.column(*time))?),
        })
    }

    fn append(&self, row: usize, bytes: &mut Vec<u8>) {
        match self {
            Self::Columns(rows) => bytes.extend_from_slice(rows.row(row).data()),
            Self::Times(times) => bytes.extend_from_slice(&time_bytes(times.value(row))),
        }
    }
}

/// Times in microseconds.
fn micros(column: &ArrayRef) -> Result<Int64Array> {
    let column = match column.data_type() {
        DataType::Date32 => arrow::compute::cast(column, &DataType::Timestamp(TimeUnit::Microsecond, None))?,
        _ => column.clone(),
    };
    Ok(arrow::compute::cast(&column, &DataType::Int64)?
        .as_primitive::<Int64Type>()
        .clone())
}

/// Bytes that sort as the time does.
fn time_bytes(time: i64) -> [u8; 8] {
    (time ^ i64::MIN).to_be_bytes()
}

impl OrderedChanges {
    /// How many places change.
    pub(super) fn len(&self) -> usize {
        self.changes.len()
    }

    fn bytes(&self, change: &PlaceChange) -> &[u8] {
        &self.bytes[change.from..change.to]
    }

    /// The partitions that change.
    pub(super) fn partitions(&self) -> Vec<Partition> {
        let mut partitions: Vec<Partition> = Vec::new();
        for (place, change) in self.changes.iter().enumerate() {
            match partitions.last_mut() {
                Some(last) if last.number == change.group as usize => last.to = place + 1,
                _ => partitions.push(Partition {
                    number: change.group as usize,
                    from: place,
                    to: place + 1,
                }),
            }
        }
        partitions
    }

    /// The changed places of a partition, in order.
    pub(super) fn places<'a>(&'a self, partition: &Partition) -> impl DoubleEndedIterator<Item = (&'a [u8], i64)> + 'a {
        self.changes[partition.from..partition.to]
            .iter()
            .map(|change| (self.bytes(change), change.amount))
    }

    /// All places of a partition in order, those kept and those that come, with both weights.
    pub(super) fn merge<'a>(&'a self, partition: &Partition, group: &'a Group) -> impl Iterator<Item = Place<'a>> + 'a {
        merge(group.iter(), self.places(partition))
    }

    /// Applies the change to the table.
    pub(super) fn apply(&self, operator: &'static str, ordered: &Ordered, table: &mut Arranged) -> Result<()> {
        for change in &self.changes {
            let key = self.groups.key(change.group as usize);
            table
                .update(key, self.bytes(change), change.amount)
                .map_err(|_| not_there(operator, &ordered.keys, key))?;
        }
        Ok(())
    }
}

/// Merges places that are kept with changes, both in order.
pub(super) fn merge<'a, K, C>(kept: K, changes: C) -> impl Iterator<Item = Place<'a>>
where
    K: Iterator<Item = (&'a [u8], i64)>,
    C: Iterator<Item = (&'a [u8], i64)>,
{
    let (mut kept, mut changes) = (kept.peekable(), changes.peekable());
    std::iter::from_fn(move || {
        let from_kept = match (kept.peek(), changes.peek()) {
            (None, None) => return None,
            (Some(_), None) => true,
            (None, Some(_)) => false,
            (Some((there, _)), Some((change, _))) => there <= change,
        };
        if !from_kept {
            return changes.next().map(|(place, amount)| Place::of(place, 0, amount));
        }
        let (place, old) = kept.next()?;
        let amount = changes
            .next_if(|(change, _)| *change == place)
            .map_or(0, |(_, amount)| amount);
        Some(Place::of(place, old, old + amount))
    })
}

impl<'a> Place<'a> {
    /// The time of a place that is ordered by time.
    pub(super) fn time(&self) -> i64 {
        self.order
            .try_into()
            .map_or(0, |bytes| i64::from_be_bytes(bytes) ^ i64::MIN)
    }

    /// A place from its bytes.
    pub(super) fn of(place: &'a [u8], old: i64, new: i64) -> Self {
        let (rest, length) = place.split_last_chunk::<4>().expect("a place ends with a length");
        let (order, row) = rest.split_at(u32::from_le_bytes(*length) as usize);
        Self {
            bytes: place,
            order,
            row,
            old,
            new,
        }
    }
}
