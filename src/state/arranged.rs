//! An arrangement: key -> rows in order, with weights. An indexed Z-set.

use super::store::count_of;
use super::{Commit, Origin, Store, TableId};
use crate::delta::key_group;
use crate::error::{Error, Result};
use ahash::RandomState;
use hashbrown::HashMap;
use std::collections::BTreeMap;

/// What a resident row costs beside its bytes, about.
const ROW_OVERHEAD: usize = 48;

/// The rows of one key, with positive weights, in row order.
#[derive(Debug, Clone, Default)]
pub enum Group {
    /// No row.
    #[default]
    Empty,
    /// One row: the common case for keys that are unique.
    One(Box<[u8]>, i64),
    /// Several rows.
    Many(BTreeMap<Box<[u8]>, i64>),
}

impl Group {
    /// The rows and their weights, in row order.
    pub fn iter(&self) -> Box<dyn DoubleEndedIterator<Item = (&[u8], i64)> + '_> {
        match self {
            Self::Empty => Box::new(std::iter::empty()),
            Self::One(row, weight) => Box::new(std::iter::once((row.as_ref(), *weight))),
            Self::Many(rows) => Box::new(rows.iter().map(|(row, weight)| (row.as_ref(), *weight))),
        }
    }

    /// Calls `each` with every row and weight, in row order; cheaper than [`Self::iter`].
    pub fn for_each(&self, mut each: impl FnMut(&[u8], i64)) {
        match self {
            Self::Empty => {}
            Self::One(row, weight) => each(row, *weight),
            Self::Many(rows) => rows.iter().for_each(|(row, weight)| each(row, *weight)),
        }
    }

    /// The first row and its weight.
    pub fn first(&self) -> Option<(&[u8], i64)> {
        match self {
            Self::Empty => None,
            Self::One(row, weight) => Some((row, *weight)),
            Self::Many(rows) => rows.first_key_value().map(|(row, weight)| (row.as_ref(), *weight)),
        }
    }

    /// The last row and its weight.
    pub fn last(&self) -> Option<(&[u8], i64)> {
        match self {
            Self::Empty => None,
            Self::One(row, weight) => Some((row, *weight)),
            Self::Many(rows) => rows.last_key_value().map(|(row, weight)| (row.as_ref(), *weight)),
        }
    }

    /// The rows at or after `from`, in row order.
    pub fn range_from<'a>(&'a self, from: &'a [u8]) -> Box<dyn DoubleEndedIterator<Item = (&'a [u8], i64)> + 'a> {
        match self {
            Self::Many(rows) => Box::new(
                rows.range::<[u8], _>((std::ops::Bound::Included(from), std::ops::Bound::Unbounded))
                    .map(|(row, weight)| (row.as_ref(), *weight)),
            ),
            _ => Box::new(self.iter().filter(move |(row, _)| *row >= from)),
        }
    }

    /// The rows before `to`, in row order.
    pub fn range_to<'a>(&'a self, to: &'a [u8]) -> Box<dyn DoubleEndedIterator<Item = (&'a [u8], i64)> + 'a> {
        match self {
            Self::Many(rows) => Box::new(
                rows.range::<[u8], _>((std::ops::Bound::Unbounded, std::ops::Bound::Excluded(to)))
                    .map(|(row, weight)| (row.as_ref(), *weight)),
            ),
            _ => Box::new(self.iter().filter(move |(row, _)| *row < to)),
        }
    }

    /// The weight of a row.
    pub fn weight(&self, row: &[u8]) -> i64 {
        match self {
            Self::Empty => 0,
            Self::One(own, weight) => {
                if own.as_ref() == row {
                    *weight
                } else {
                    0
                }
            }
            Self::Many(rows) => rows.get(row).copied().unwrap_or(0),
        }
    }

    /// Whether there is no row.
    pub fn is_empty(&self) -> bool {
        matches!(self, Self::Empty)
    }

    /// The number of different rows.
    pub fn len(&self) -> usize {
        match self {
            Self::Empty => 0,
            Self::One(..) => 1,
            Self::Many(rows) => rows.len(),
        }
    }

    /// Adds to the weight of a row.
    pub fn add(&mut self, row: &[u8], amount: i64) {
        let weight = self.weight(row) + amount;
        self.set(row, weight);
    }

    /// Sets the weight of a row; 0 removes it.
    fn set(&mut self, row: &[u8], weight: i64) {
        match self {
            Self::Empty if weight != 0 => *self = Self::One(row.into(), weight),
            Self::Empty => {}
            Self::One(own, old) if own.as_ref() == row => {
                if weight == 0 {
                    *self = Self::Empty;
                } else {
                    *old = weight;
                }
            }
            Self::One(own, old) if weight != 0 => {
                let mut rows = BTreeMap::new();
                rows.insert(std::mem::take(own), *old);
                rows.insert(row.into(), weight);
                *self = Self::Many(rows);
            }
            Self::One(..) => {}
            Self::Many(rows) => {
                if weight != 0 {
                    match rows.get_mut(row) {
                        Some(old) => *old = weight,
                        None => {
                            rows.insert(row.into(), weight);
                        }
                    }
                } else {
                    rows.remove(row);
                    if rows.is_empty() {
                        *self = Self::Empty;
                    }
                }
            }
        }
    }
}

/// The weight of a row before and after a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Change {
    /// Before.
    pub old: i64,
    /// After.
    pub new: i64,
}

/// A key and a row of it, encoded.
type KeyAndRow = (Box<[u8]>, Box<[u8]>);

/// A table of rows by key, with its resident part.
#[derive(Debug)]
pub struct Arranged {
    id: TableId,
    store: Store,
    groups: HashMap<Box<[u8]>, Group, RandomState>,
    /// The keys and rows that are not written yet.
    changed: Vec<KeyAndRow>,
    complete: Complete,
    bytes: usize,
}

/// Whether all of the table is resident.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Complete {
    Yes,
    No,
}

impl Arranged {
    /// Opens the table.
    pub fn open(store: &Store, id: TableId, origin: Origin) -> Self {
        Self {
            id,
            store: store.clone(),
            groups: HashMap::default(),
            changed: Vec::new(),
            complete: if origin == Origin::Fresh {
                Complete::Yes
            } else {
                Complete::No
            },
            bytes: 0,
        }
    }

    /// Makes the keys resident, so that [`Self::group`] and [`Self::update`] know them.
    pub fn load<'a>(&mut self, keys: impl IntoIterator<Item = &'a [u8]>) -> Result<()> {
        if self.complete == Complete::Yes {
            return Ok(());
        }
        let mut missing: Vec<&[u8]> = keys.into_iter().filter(|key| !self.groups.contains_key(*key)).collect();
        missing.sort_unstable();
        missing.dedup();
        for key in missing {
            let group = self.read(key)?;
            self.groups.insert(key.into(), group);
        }
        Ok(())
    }

    /// Reads all rows of a key from the store.
    fn read(&mut self, key: &[u8]) -> Result<Group> {
        let from = self.stored_key(key);
        let to = after_prefix(&from);
        let mut scan = self.store.scan(&from, &to);
        let mut rows = Vec::new();
        while let Some((stored, value)) = scan.next_entry()? {
            let row: Box<[u8]> = stored[from.len()..].into();
            self.bytes += row.len() + ROW_OVERHEAD;
            rows.push((row, count_of(value)));
        }
        self.bytes += key.len() + ROW_OVERHEAD;
        Ok(match rows.len() {
            0 => Group::Empty,
            1 => {
                let (row, weight) = rows.swap_remove(0);
                Group::One(row, weight)
            }
            _ => Group::Many(rows.into_iter().collect()),
        })
    }

    /// The rows of a loaded key.
    pub fn group(&self, key: &[u8]) -> &Group {
        static EMPTY: Group = Group::Empty;
        self.groups.get(key).unwrap_or(&EMPTY)
    }

    /// Adds to the weight of a row of a loaded key. A weight that would fall below 0 is an error: something retracts
    /// a row that is not there.
    pub fn update(&mut self, key: &[u8], row: &[u8], amount: i64) -> Result<Change> {
        let group = match self.groups.get_mut(key) {
            Some(group) => group,
            None => {
                self.bytes += key.len() + ROW_OVERHEAD;
                self.groups.entry_ref(key).or_insert(Group::Empty)
            }
        };
        let old = group.weight(row);
        let new = old + amount;
        if new < 0 {
            return Err(Error::internal("a row was retracted that is not there")
                .with_detail(format!("The row's weight would be {new}.")));
        }
        if old == 0 && new != 0 {
            self.bytes += row.len() + ROW_OVERHEAD;
        } else if old != 0 && new == 0 {
            self.bytes = self.bytes.saturating_sub(row.len() + ROW_OVERHEAD);
        }
        group.set(row, new);
        self.changed.push((key.into(), row.into()));
        Ok(Change { old, new })
    }

    /// The number of resident keys.
    pub fn resident_keys(&self) -> usize {
        self.groups.len()
    }

    /// Writes what changed since the last flush.
    pub fn flush(&mut self, commit: &mut Commit) {
        let mut changed = std::mem::take(&mut self.changed);
        changed.sort_unstable();
        changed.dedup();
        let mut stored = Vec::new();
        for (key, row) in &changed {
            let weight = self.group(key).weight(row);
            stored.clear();
            stored.extend_from_slice(&self.id.prefix());
            stored.push(key_group(key));
            stored.extend_from_slice(key);
            stored.extend_from_slice(row);
            if weight == 0 {
                commit.delete(&stored);
            } else {
                commit.put(&stored, &weight.to_le_bytes());
            }
        }
        for (key, _) in &changed {
            if self.groups.get(key).is_some_and(Group::is_empty) {
                self.groups.remove(key);
                self.bytes = self.bytes.saturating_sub(key.len() + ROW_OVERHEAD);
            }
        }
        changed.clear();
        self.changed = changed;
    }

    /// The bytes that the cache holds, about.
    pub fn resident_bytes(&self) -> usize {
        self.bytes
    }

    /// Forgets about half of what is resident. Only between epochs, when nothing is unwritten.
    pub fn shrink(&mut self) {
        debug_assert!(self.changed.is_empty(), "shrink between epochs only");
        let mut turn = 0_usize;
        let mut kept = 0;
        self.groups.retain(|key, group| {
            turn += 1;
            let keep = turn.is_multiple_of(2);
            if keep {
                kept += key.len() + ROW_OVERHEAD;
                group.for_each(|row, _| kept += row.len() + ROW_OVERHEAD);
            }
            keep
        });
        self.groups.shrink_to_fit();
        self.bytes = kept;
        self.complete = Complete::No;
    }

    fn stored_key(&self, key: &[u8]) -> Vec<u8> {
        let mut stored = Vec::with_capacity(key.len() + 5);
        stored.extend_from_slice(&self.id.prefix());
        stored.push(key_group(key));
        stored.extend_from_slice(key);
        stored
    }
}

/// The first key after all that begin with `prefix`.
fn after_prefix(prefix: &[u8]) -> Vec<u8> {
    let mut end = prefix.to_vec();
    while let Some(last) = end.pop() {
        if last != u8::MAX {
            end.push(last + 1);
            break;
        }
    }
    end
}

#[cfg(test)]
mod tests {
    use super::super::Durability;
    use super::*;

    #[test]
    fn rows_come_back_in_order_after_reopening() -> Result<()> {
        let store = Store::memory()?;
        let mut table = Arranged::open(&store, TableId(9), Origin::Fresh);
        for row in [3_u8, 1, 2, 1] {
            table.update(b"k", &[row], 1)?;
        }
        table.update(b"k", &[2], -1)?;
        let mut commit = Commit::new();
        table.flush(&mut commit);
        store.commit(commit, Durability::Synced)?;
        let mut reopened = Arranged::open(&store, TableId(9), Origin::Stored);
        reopened.load([b"k".as_slice()])?;
        let rows: Vec<(Vec<u8>, i64)> = reopened
            .group(b"k")
            .iter()
            .map(|(row, weight)| (row.to_vec(), weight))
            .collect();
        assert_eq!(rows, vec![(vec![1], 2), (vec![3], 1)]);
        Ok(())
    }

    #[test]
    fn retracting_what_is_not_there_is_an_error() -> Result<()> {
        let store = Store::memory()?;
        let mut table = Arranged::open(&store, TableId(9), Origin::Fresh);
        assert!(table.update(b"k", b"r", -1).is_err());
        Ok(())
    }

    #[test]
    fn the_end_of_a_prefix_skips_over_ff() {
        assert_eq!(after_prefix(&[1, 255, 255]), vec![2]);
        assert_eq!(after_prefix(&[1, 2]), vec![1, 3]);
    }
}
