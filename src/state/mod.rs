//! "What do we remember?" Everything that must outlive a step is in a state table.
//!
//! Operators never see the store. They see two shapes, each with a resident cache in front of RocksDB:
//!
//! - [`Keyed`]: key -> bytes (the state of a group);
//! - [`Arranged`]: key -> rows in order, with weights (an indexed Z-set: a side of a join, a top-k partition).
//!
//! Changes are made in the cache during a step and written once, at the end of the epoch, in the one atomic
//! [`Commit`] of the whole engine ([`Table::flush`]). A key in the store is
//! `table (4 bytes) | key group (1 byte) | key | row`, so that a shard is a range and dropping a table is one range
//! delete. Encoded keys are prefix-free (see [`crate::delta::KeyCodec`]), so all rows of a key are one range too.
//!
//! While a table is *complete* (all of it is resident), no read reaches the store. A table that was made in this
//! process is complete until memory runs short; one that was reopened is read key by key, as its keys come up.

mod arranged;
mod keyed;
pub mod outbox;
pub mod relation;
mod store;

pub use arranged::{Arranged, Group};
pub use keyed::Keyed;
pub use store::{Checked, Commit, Durability, Scan, Snapshot, Store};

use crate::delta::KEY_GROUPS;
use crate::error::Result;

/// The number of a state table; never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TableId(pub u32);

/// The table of the engine's own records: the format, the epoch, the catalog, source positions.
pub const SYSTEM_TABLE: TableId = TableId(0);

impl TableId {
    /// The prefix of every key of the table.
    pub fn prefix(self) -> [u8; 4] {
        self.0.to_be_bytes()
    }

    /// The half-open range of all keys of the table.
    pub fn range(self) -> (Vec<u8>, Vec<u8>) {
        (self.prefix().to_vec(), (self.0 + 1).to_be_bytes().to_vec())
    }
}

/// The shape of a state table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Shape {
    /// Key -> bytes.
    Keyed,
    /// Key -> bytes, the keys in the order of the time that they begin with.
    KeyedByTime,
    /// Key -> rows with weights, in row order.
    Arranged,
}

/// What was in the store when a table is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// Nothing: the table is new.
    Fresh,
    /// Whatever an earlier process left.
    Stored,
}

/// A state table of either shape.
#[derive(Debug)]
pub enum Table {
    /// Key -> bytes.
    Keyed(Keyed),
    /// Key -> rows with weights.
    Arranged(Arranged),
}

impl Table {
    /// Opens a table.
    pub fn open(store: &Store, id: TableId, shape: Shape, origin: Origin) -> Self {
        match shape {
            Shape::Keyed => Self::Keyed(Keyed::open(store, id, origin)),
            Shape::KeyedByTime => Self::Keyed(Keyed::open_by_time(store, id, origin)),
            Shape::Arranged => Self::Arranged(Arranged::open(store, id, origin)),
        }
    }

    /// Writes what changed since the last flush.
    pub fn flush(&mut self, commit: &mut Commit) {
        match self {
            Self::Keyed(table) => table.flush(commit),
            Self::Arranged(table) => table.flush(commit),
        }
    }

    /// The number of keys in the cache.
    pub fn resident_keys(&self) -> usize {
        match self {
            Self::Keyed(table) => table.resident_rows(),
            Self::Arranged(table) => table.resident_keys(),
        }
    }

    /// The bytes that the cache holds, about.
    pub fn resident_bytes(&self) -> usize {
        match self {
            Self::Keyed(table) => table.resident_bytes(),
            Self::Arranged(table) => table.resident_bytes(),
        }
    }

    /// Forgets about half of what is resident; it is read back when needed. Only between epochs.
    pub fn shrink(&mut self) {
        match self {
            Self::Keyed(table) => table.shrink(),
            Self::Arranged(table) => table.shrink(),
        }
    }
}

/// The state tables of one operator in one shard, in the order of its spec.
#[derive(Debug, Default)]
pub struct Tables(pub Vec<Table>, pub Part);

/// Which key groups a shard has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part {
    /// The number of the shard.
    pub shard: usize,
    /// Of how many.
    pub shards: usize,
}

impl Default for Part {
    fn default() -> Self {
        Self { shard: 0, shards: 1 }
    }
}

impl Part {
    /// Whether a key group is the shard's.
    pub fn owns(self, group: u8) -> bool {
        usize::from(group) * self.shards / KEY_GROUPS == self.shard
    }
}

impl Tables {
    /// The keyed table at `index`.
    pub fn keyed(&mut self, index: usize) -> &mut Keyed {
        match &mut self.0[index] {
            Table::Keyed(table) => table,
            Table::Arranged(_) => panic_shape(index),
        }
    }

    /// The arrangement at `index`.
    pub fn arranged(&mut self, index: usize) -> &mut Arranged {
        match &mut self.0[index] {
            Table::Arranged(table) => table,
            Table::Keyed(_) => panic_shape(index),
        }
    }

    /// Two arrangements at once.
    pub fn arranged_pair(&mut self, first: usize, second: usize) -> (&mut Arranged, &mut Arranged) {
        match self.0.get_disjoint_mut([first, second]) {
            Ok([Table::Arranged(a), Table::Arranged(b)]) => (a, b),
            _ => panic_shape(second),
        }
    }

    /// All tables, for operators that need several at once.
    pub fn all(&mut self) -> &mut [Table] {
        &mut self.0
    }

    /// Writes what changed since the last flush.
    pub fn flush(&mut self, commit: &mut Commit) -> Result<()> {
        for table in &mut self.0 {
            table.flush(commit);
        }
        Ok(())
    }
}

/// An operator asked for another shape than its own spec declares: a mistake in the operator.
fn panic_shape(index: usize) -> ! {
    panic!("state table {index} has another shape than the operator's spec declares")
}
