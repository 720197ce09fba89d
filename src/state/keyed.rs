//! A keyed value table: key -> bytes.

use super::{Commit, Origin, Store, TableId};
use crate::delta::key_group;
use crate::error::Result;
use ahash::RandomState;
use hashbrown::HashMap;
use std::collections::BTreeMap;

/// What a cache entry costs beside its bytes, about.
const ENTRY_OVERHEAD: usize = 64;

/// A table of values by key, with its resident part.
#[derive(Debug)]
pub struct Keyed {
    id: TableId,
    store: Store,
    values: HashMap<Box<[u8]>, Slot, RandomState>,
    changed: Vec<Box<[u8]>>,
    complete: Complete,
    bytes: usize,
    /// For a table whose keys begin with a time: what is resident, by time.
    times: Option<Times>,
}

/// The bytes of a key that are its time: a mark that it is not NULL, and eight that sort as it does.
pub const TIME_BYTES: usize = 9;

/// The resident keys of a table by time, and what was forgotten.
#[derive(Debug, Default)]
struct Times {
    keys: BTreeMap<Box<[u8]>, Vec<Box<[u8]>>>,
    /// Keys before this are forgotten.
    floor: Vec<u8>,
    /// The range to be deleted with the next flush.
    dropped: Option<(Vec<u8>, Vec<u8>)>,
}

/// Whether all of the table is resident.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Complete {
    Yes,
    No,
}

#[derive(Debug)]
struct Slot {
    value: Option<Box<[u8]>>,
    state: SlotState,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SlotState {
    Clean,
    Changed,
}

impl Keyed {
    /// Opens the table.
    pub fn open(store: &Store, id: TableId, origin: Origin) -> Self {
        Self {
            id,
            store: store.clone(),
            values: HashMap::default(),
            changed: Vec::new(),
            complete: if origin == Origin::Fresh {
                Complete::Yes
            } else {
                Complete::No
            },
            bytes: 0,
            times: None,
        }
    }

    /// Opens a table whose keys begin with a time, and are stored in its order.
    pub fn open_by_time(store: &Store, id: TableId, origin: Origin) -> Self {
        Self {
            times: Some(Times::default()),
            ..Self::open(store, id, origin)
        }
    }

    /// Forgets all keys before `bound`, the beginning of a key: they are deleted as a range.
    pub fn drop_before(&mut self, bound: &[u8]) -> Result<()> {
        let from = self.id.prefix();
        let Some(times) = &mut self.times else {
            return Ok(());
        };
        if times.floor.as_slice() >= bound {
            return Ok(());
        }
        let rest = times.keys.split_off(bound);
        let gone = std::mem::replace(&mut times.keys, rest);
        let from = [&from[..], &times.floor].concat();
        let to = [&self.id.prefix()[..], bound].concat();
        let stored = self.complete == Complete::No && self.store.scan(&from, &to).next_entry()?.is_some();
        if gone.is_empty() && !stored {
            return Ok(());
        }
        for key in gone.into_values().flatten() {
            if let Some(slot) = self.values.remove(&key) {
                let held = key.len() + slot.value.as_ref().map_or(0, |bytes| bytes.len()) + ENTRY_OVERHEAD;
                self.bytes = self.bytes.saturating_sub(held);
            }
        }
        times.floor = bound.to_vec();
        let from = times.dropped.take().map_or(from, |(earlier, _)| earlier);
        times.dropped = Some((from, to));
        Ok(())
    }

    fn note(times: &mut Option<Times>, key: &[u8]) {
        if let Some(times) = times {
            let time = &key[..TIME_BYTES.min(key.len())];
            times.keys.entry(time.into()).or_default().push(key.into());
        }
    }

    /// Makes the keys resident, so that [`Self::get`] knows them.
    pub fn load<'a>(&mut self, keys: impl IntoIterator<Item = &'a [u8]>) -> Result<()> {
        if self.complete == Complete::Yes {
            return Ok(());
        }
        let mut missing: Vec<&[u8]> = keys.into_iter().filter(|key| !self.values.contains_key(*key)).collect();
        missing.sort_unstable();
        missing.dedup();
        let stored: Vec<Vec<u8>> = missing.iter().map(|key| self.stored_key(key)).collect();
        for (key, value) in missing.iter().zip(self.store.multi_get(&stored)?) {
            let value = value.map(Vec::into_boxed_slice);
            self.bytes += key.len() + value.as_ref().map_or(0, |bytes| bytes.len()) + ENTRY_OVERHEAD;
            let slot = Slot {
                value,
                state: SlotState::Clean,
            };
            self.values.insert((*key).into(), slot);
            Self::note(&mut self.times, key);
        }
        Ok(())
    }

    /// The value of a loaded key.
    pub fn get(&self, key: &[u8]) -> Option<&[u8]> {
        self.values.get(key)?.value.as_deref()
    }

    /// Sets the value of a loaded key. The value must not begin with a zero byte.
    pub fn put(&mut self, key: &[u8], value: &[u8]) {
        debug_assert!(value.first() != Some(&0), "values begin with a non-zero byte");
        self.set(key, Some(value));
    }

    /// Removes a loaded key.
    pub fn remove(&mut self, key: &[u8]) {
        self.set(key, None);
    }

    fn set(&mut self, key: &[u8], value: Option<&[u8]>) {
        let added = value.map_or(0, <[u8]>::len);
        match self.values.get_mut(key) {
            Some(slot) => {
                let dropped = slot.value.as_ref().map_or(0, |bytes| bytes.len());
                self.bytes = self.bytes + added - dropped;
                slot.value = value.map(Into::into);
                if slot.state == SlotState::Clean {
                    slot.state = SlotState::Changed;
                    self.changed.push(key.into());
                }
            }
            None => {
                self.bytes += key.len() + added + ENTRY_OVERHEAD;
                let slot = Slot {
                    value: value.map(Into::into),
                    state: SlotState::Changed,
                };
                self.values.insert(key.into(), slot);
                Self::note(&mut self.times, key);
                self.changed.push(key.into());
            }
        }
    }

    /// The number of resident keys that have a value.
    pub fn resident_rows(&self) -> usize {
        self.values.len()
    }

    /// Writes what changed since the last flush.
    pub fn flush(&mut self, commit: &mut Commit) {
        if let Some((from, to)) = self.times.as_mut().and_then(|times| times.dropped.take()) {
            commit.delete_range(&from, &to);
        }
        self.changed.sort_unstable();
        let mut stored = Vec::new();
        for key in self.changed.drain(..) {
            let Some(slot) = self.values.get_mut(&key) else {
                continue;
            };
            slot.state = SlotState::Clean;
            stored.clear();
            write_key(self.id, self.times.is_some(), &key, &mut stored);
            match &slot.value {
                Some(value) => commit.put(&stored, value),
                None => {
                    commit.delete(&stored);
                    self.bytes = self.bytes.saturating_sub(key.len() + ENTRY_OVERHEAD);
                    self.values.remove(&key);
                }
            }
        }
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
        self.values.retain(|key, slot| {
            turn += 1;
            let keep = turn.is_multiple_of(2);
            if keep {
                kept += key.len() + slot.value.as_ref().map_or(0, |bytes| bytes.len()) + ENTRY_OVERHEAD;
            }
            keep
        });
        self.values.shrink_to_fit();
        self.bytes = kept;
        self.complete = Complete::No;
        if let Some(times) = &mut self.times {
            times.keys.clear();
            for key in self.values.keys() {
                let time = &key[..TIME_BYTES.min(key.len())];
                times.keys.entry(time.into()).or_default().push(key.clone());
            }
        }
    }

    fn stored_key(&self, key: &[u8]) -> Vec<u8> {
        let mut stored = Vec::with_capacity(key.len() + 5);
        write_key(self.id, self.times.is_some(), key, &mut stored);
        stored
    }
}

/// `table | key group | key`, or `table | time | key group | rest of the key`.
fn write_key(id: TableId, by_time: bool, key: &[u8], stored: &mut Vec<u8>) {
    let time = if by_time { TIME_BYTES.min(key.len()) } else { 0 };
    stored.extend_from_slice(&id.prefix());
    stored.extend_from_slice(&key[..time]);
    stored.push(key_group(key));
    stored.extend_from_slice(&key[time..]);
}

#[cfg(test)]
mod tests {
    use super::super::Durability;
    use super::*;

    #[test]
    fn what_is_flushed_is_there_after_reopening_and_after_shrinking() -> Result<()> {
        let store = Store::memory()?;
        let mut table = Keyed::open(&store, TableId(7), Origin::Fresh);
        for key in 0..100_u8 {
            table.put(&[key], &[1, key]);
        }
        table.remove(&[3]);
        let mut commit = Commit::new();
        table.flush(&mut commit);
        store.commit(commit, Durability::Synced)?;
        table.shrink();
        let mut reopened = Keyed::open(&store, TableId(7), Origin::Stored);
        for table in [&mut table, &mut reopened] {
            for key in 0..100_u8 {
                table.load([[key].as_slice()])?;
                let expected: Option<&[u8]> = if key == 3 { None } else { Some(&[1, key]) };
                assert_eq!(table.get(&[key]).map(<[u8]>::to_vec), expected.map(<[u8]>::to_vec));
            }
        }
        Ok(())
    }
}
