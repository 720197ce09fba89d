//! The engine's own records in the store: the epoch, the definitions, source positions.
//!
//! Keys in the system table: `e` the epoch and the next free table id; `c` the catalog without its relations;
//! `r<id>` a relation and what belongs to it; `p<id>` the position of a stream's source;
//! `w<id>` how far a stream's event time is; `l<id>` how many rows a view has refused as late.

use super::published::Record;
use super::watermark::{LateCount, StreamTime, Times, ViewTime};
use crate::catalog::{Catalog, Relation, RelationId, RelationKind};
use crate::error::{Error, Result};
use crate::state::{Commit, SYSTEM_TABLE, Store};
use crate::time::{Epoch, Timestamp};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::sync::Arc;

/// What the store knows at the start.
#[derive(Debug, Default)]
pub struct Opened {
    /// The last epoch.
    pub epoch: Epoch,
    /// The next free state table.
    pub next_table: u32,
    /// The clock of the last epoch, in microseconds; 0 before the first.
    pub clock: i64,
    /// The definitions.
    pub catalog: Catalog,
    /// What belongs to each relation.
    pub records: HashMap<RelationId, Record>,
}

#[derive(Serialize, Deserialize)]
struct Progress {
    epoch: u64,
    next_table: u32,
    #[serde(default)]
    clock: i64,
}

#[derive(Serialize, Deserialize)]
struct RelationRecord {
    relation: Arc<Relation>,
    record: Record,
}

/// Reads everything back.
pub fn read(store: &Store) -> Result<Opened> {
    let mut opened = Opened {
        next_table: SYSTEM_TABLE.0 + 1,
        ..Opened::default()
    };
    if let Some(progress) = get::<Progress>(store, b"e")? {
        opened.epoch = Epoch(progress.epoch);
        opened.next_table = progress.next_table;
        opened.clock = progress.clock;
    }
    if let Some(catalog) = get::<Catalog>(store, b"c")? {
        opened.catalog = catalog;
    }
    let (from, to) = (key(b"r"), key(b"s"));
    let mut scan = store.scan(&from, &to);
    while let Some((_, value)) = scan.next_entry()? {
        let found: RelationRecord = parse(value)?;
        opened.records.insert(found.relation.id, found.record);
        opened.catalog.relations.insert(found.relation.id, found.relation);
    }
    Ok(opened)
}

/// Writes how far the engine is.
pub fn write_progress(commit: &mut Commit, epoch: Epoch, next_table: u32, clock: Timestamp) -> Result<()> {
    put(
        commit,
        b"e",
        &Progress {
            epoch: epoch.0,
            next_table,
            clock: clock.0,
        },
    )
}

/// Writes the catalog without its relations.
pub fn write_catalog(commit: &mut Commit, catalog: &Catalog) -> Result<()> {
    let mut bare = catalog.clone();
    bare.relations.clear();
    put(commit, b"c", &bare)
}

/// Writes a relation and what belongs to it.
pub fn write_relation(commit: &mut Commit, relation: &Arc<Relation>, record: &Record) -> Result<()> {
    let document = RelationRecord {
        relation: relation.clone(),
        record: record.clone(),
    };
    put(commit, &relation_key(relation.id), &document)
}

/// Removes a relation.
pub fn delete_relation(commit: &mut Commit, id: RelationId) {
    commit.delete(&key(&relation_key(id)));
    commit.delete(&key(&position_key(id)));
    commit.delete(&key(&numbered(b'w', id)));
    commit.delete(&key(&numbered(b'l', id)));
}

/// Writes the position of a stream's source.
pub fn write_position(commit: &mut Commit, id: RelationId, position: &[u8]) {
    let mut value = vec![1];
    value.extend_from_slice(position);
    commit.put(&key(&position_key(id)), &value);
}

/// The position of a stream's source.
pub fn read_position(store: &Store, id: RelationId) -> Result<Option<Vec<u8>>> {
    Ok(store.get(&key(&position_key(id)))?.map(|value| value[1..].to_vec()))
}

/// Writes how far a stream's event time is.
pub fn write_time(commit: &mut Commit, id: RelationId, time: &StreamTime) -> Result<()> {
    put(commit, &numbered(b'w', id), time)
}

/// Writes how many rows a view has refused.
pub fn write_late(commit: &mut Commit, id: RelationId, late: &LateCount) -> Result<()> {
    put(commit, &numbered(b'l', id), late)
}

/// How many rows a view has refused.
pub fn read_late(store: &Store, id: RelationId) -> Result<LateCount> {
    Ok(get(store, &numbered(b'l', id))?.unwrap_or_default())
}

/// How far event time is in the streams and views that there are.
pub fn read_times(store: &Store, catalog: &Catalog) -> Result<Times> {
    let mut times = Times::default();
    for relation in catalog.relations.values() {
        match &relation.kind {
            RelationKind::Stream(stream) if stream.watermark.is_some() => {
                let time = get(store, &numbered(b'w', relation.id))?.unwrap_or_default();
                times.streams.insert(relation.id, time);
            }
            RelationKind::MaterializedView(_) => {
                let late = read_late(store, relation.id)?;
                times.views.insert(relation.id, ViewTime { watermark: None, late });
            }
            _ => {}
        }
    }
    Ok(times)
}

fn numbered(kind: u8, id: RelationId) -> Vec<u8> {
    [&[kind][..], &id.0.to_be_bytes()].concat()
}

fn relation_key(id: RelationId) -> Vec<u8> {
    let mut name = vec![b'r'];
    name.extend_from_slice(&id.0.to_be_bytes());
    name
}

fn position_key(id: RelationId) -> Vec<u8> {
    let mut name = vec![b'p'];
    name.extend_from_slice(&id.0.to_be_bytes());
    name
}

fn key(name: &[u8]) -> Vec<u8> {
    let mut key = SYSTEM_TABLE.prefix().to_vec();
    key.extend_from_slice(name);
    key
}

fn get<T: DeserializeOwned>(store: &Store, name: &[u8]) -> Result<Option<T>> {
    store.get(&key(name))?.map(|value| parse(&value)).transpose()
}

fn put<T: Serialize>(commit: &mut Commit, name: &[u8], value: &T) -> Result<()> {
    let bytes =
        serde_json::to_vec(value).map_err(|error| Error::internal(format!("a record cannot be written: {error}")))?;
    commit.put(&key(name), &bytes);
    Ok(())
}

fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T> {
    serde_json::from_slice(bytes)
        .map_err(|error| Error::corrupt(format!("a record of the store cannot be read: {error}")))
}
